//! `gtp ls`: what a server has at an address.
//!
//! One level only: whoever wants a tree asks again below. Names are escaped for people, and given
//! as they are to programs. What is there and cannot be fetched is listed too, with the reason.

use std::process::ExitCode;

use gtp::{AcceptNew, Entry, Failure, Host, Kind};
use serde_json::json;

use crate::args::LsArgs;
use crate::output;
use crate::words;

pub fn run(args: LsArgs) -> Result<ExitCode, Failure> {
    let runtime = super::runtime()?;
    let host = Host::builder().start()?;
    let accept_new = if args.trust.accept_new { AcceptNew::Yes } else { AcceptNew::No };
    let listing = runtime.block_on(host.list(&args.url, &args.trust.fingerprint, accept_new))?;
    for entry in &listing.entries {
        if args.json {
            output::json(as_json(entry))?;
        } else {
            output::line(as_text(entry))?;
        }
    }
    for failure in &listing.left_out {
        if args.json {
            let kind = failure.kind.as_str();
            output::json(json!({ "event": "skipped", "kind": kind, "message": failure.text }))?;
        } else {
            output::line(format_args!("{:>3} {:>10}  {failure} (left out)", "-", "-"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(entry: &Entry) -> serde_json::Value {
    json!({
        "event": "entry",
        "path": entry.path.as_str(),
        "kind": word(entry.kind),
        "size": entry.size,
        "mode": format!("{:o}", entry.mode.bits()),
        "mtime": entry.mtime.secs() as f64 + f64::from(entry.mtime.nanos()) / 1e9,
    })
}

fn as_text(entry: &Entry) -> String {
    let size = match entry.kind {
        Kind::File => words::say_bytes(entry.size),
        Kind::Dir => "-".into(),
    };
    let slash = match entry.kind {
        Kind::File => "",
        Kind::Dir => "/",
    };
    format!("{:o} {size:>10}  {}{slash}", entry.mode.bits(), entry.path)
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "directory",
    }
}
