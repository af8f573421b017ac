//! `gtp doctor`: what makes transfers slow or fail here and on the way to a server, and the line
//! that mends it.
//!
//! Each check is a file: what it reads, and apart from that a decision on plain values. Rows are
//! printed as they are found. Nothing is changed here or at the server, with one exception: with
//! `--accept-new` the key of a new server is remembered. What is written to try a disk is removed.

mod buffers;
mod clock;
mod daemon;
mod descriptors;
mod disk;
mod far;
mod finding;
mod memory;
mod mtu;
mod offload;
mod version;

use std::process::ExitCode;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueHint};
use gtp::{Failure, Url};

use crate::args::{HostArgs, TrustArgs};
use finding::{Finding, Verdict};

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A file or directory of a server: the way there is looked at too, and it is fetched and
    /// dropped
    #[arg(value_hint = ValueHint::Hostname)]
    pub url: Option<Url>,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub host: HostArgs,
    /// One JSON object a line on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// The exit code if any row is a warning or a fault.
const SOMETHING_IS_WRONG: u8 = 13;

/// Looks at everything, and prints a row for each.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let mut worst = Verdict::Ok;
    let checks: [&dyn Fn() -> Finding; 9] = [
        &version::check,
        &buffers::check,
        &offload::check,
        &mtu::check,
        &clock::check,
        &descriptors::check,
        &memory::check,
        &disk::check,
        &|| daemon::check(args.host.daemon.as_ref()),
    ];
    for check in checks {
        let finding = check();
        finding.say(args.json)?;
        worst = worst.max(finding.verdict);
    }
    if let Some(url) = &args.url {
        let mut say = |finding: Finding| {
            worst = worst.max(finding.verdict);
            finding.say(args.json)
        };
        crate::verbs::runtime()?.block_on(far::check(args, url, &mut say))?;
    }
    Ok(exit_code(worst))
}

fn exit_code(worst: Verdict) -> ExitCode {
    match worst {
        Verdict::Ok | Verdict::Unknown => ExitCode::SUCCESS,
        Verdict::Warning | Verdict::Fault => ExitCode::from(SOMETHING_IS_WRONG),
    }
}
