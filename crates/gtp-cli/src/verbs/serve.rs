//! `gtp serve`: lets others fetch from a directory, and perhaps write to it.
//!
//! Programs read standard output, whose first line says where it listens; people read standard
//! error, where every session begins and ends with a line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gtp::{AUTHORIZED_KEYS_FILE, Alone, Failure, RunningServer, Server, ServerEvent};
use serde_json::json;

use crate::args::{OneEnd, ServeArgs};
use crate::output::aside;
use crate::show::json as out;
use crate::signals::Signals;
use crate::words;

pub fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    let runtime = super::runtime()?;
    runtime.block_on(serve(args))
}

async fn serve(args: ServeArgs) -> Result<ExitCode, Failure> {
    let engines = args.engines.unwrap_or_else(gtp::default_engines);
    let host = super::host(&args.host).engines(engines).start()?;
    let mut server = Server::export(&args.dir).listen(&args.listen);
    if args.public {
        server = server.public();
    }
    if args.writable {
        server = server.writable();
    }
    if let Some(keys) = &args.authorized_keys {
        server = server.authorized_keys(keys);
    }
    if let Some(rate) = args.max_rate {
        server = server.max_rate(rate);
    }
    for law in &args.allow_control {
        server = server.allow(match law {
            OneEnd::Gtp2004 => Alone::Gtp2004,
            OneEnd::Rbudp => Alone::Rbudp,
            OneEnd::Sabul => Alone::Sabul,
            OneEnd::Tsunami => Alone::Tsunami,
        });
    }
    let mut signals = Signals::take().map_err(super::other)?;
    let mut running = server.start(&host).await?;
    announce(&args, &running);
    loop {
        tokio::select! {
            event = running.next_event() => match event {
                Some(event) => tell(&args, &event),
                None => break,
            },
            () = signals.next() => break,
        }
    }
    tokio::select! {
        () = running.stop() => Ok(ExitCode::SUCCESS),
        () = signals.next() => std::process::exit(130),
    }
}

fn announce(args: &ServeArgs, running: &RunningServer) {
    let (address, fingerprint) = (running.address(), running.fingerprint());
    if args.json {
        out::line(&json!({
            "event": "listening",
            "addr": address.to_string(),
            "fingerprint": fingerprint.to_string(),
        }));
    }
    let who = match (args.public, args.writable) {
        (true, false) => "anyone may read",
        (true, true) => "anyone may read, authorized keys may write",
        (false, false) => "authorized keys may read",
        (false, true) => "authorized keys may read and write",
    };
    let dir = args.dir.display();
    aside(format_args!("serving {dir} on {address} (TCP and UDP); {who}"));
    aside(format_args!("this host's key: {fingerprint}"));
    let anyone = args.public && !args.writable;
    if let Some(list) = missing_list(anyone, args.authorized_keys.as_deref()) {
        say_missing(&list);
    }
    let port = address.port();
    aside(format_args!("elsewhere: gtp get gtp://HOST:{port}/PATH . --fingerprint {fingerprint}"));
}

/// The list of keys, if it is needed and not there.
pub(super) fn missing_list(anyone: bool, given: Option<&Path>) -> Option<PathBuf> {
    let usual = || gtp::config_dir().ok().map(|dir| dir.join(AUTHORIZED_KEYS_FILE));
    let list = given.map(Path::to_path_buf).or_else(usual)?;
    (!anyone && !list.exists()).then_some(list)
}

pub(super) fn say_missing(list: &Path) {
    let list = list.display();
    aside(format_args!("no key is listed yet: put what `gtp id` prints elsewhere into {list}"));
}

fn tell(args: &ServeArgs, event: &ServerEvent) {
    if args.json {
        out::line(&as_json(event));
    }
    match event {
        ServerEvent::TurnedAway { client, more: 0 } => {
            aside(format_args!("{client}: too many connections"));
        }
        ServerEvent::TurnedAway { client, more } => {
            aside(format_args!("{client}: too many connections, and {more} more before it"));
        }
        ServerEvent::Refused { client, failure } => {
            aside(format_args!("{client}: refused: {failure}"))
        }
        ServerEvent::Started { id, client, key, verb, path } => {
            aside(format_args!("#{id} {client}: {verb} /{path} by {key}"));
        }
        ServerEvent::Ended { id, wire_bytes, failure } => {
            let moved = words::say_bytes(*wire_bytes);
            match failure {
                None => aside(format_args!("#{id} done, {moved}")),
                Some(failure) => aside(format_args!("#{id} ended: {failure}; {moved}")),
            }
        }
    }
}

fn as_json(event: &ServerEvent) -> serde_json::Value {
    match event {
        ServerEvent::TurnedAway { client, more } => {
            json!({ "event": "turned_away", "client": client.to_string(), "more": more })
        }
        ServerEvent::Refused { client, failure } => json!({
            "event": "refused",
            "client": client.to_string(),
            "message": failure.text,
        }),
        ServerEvent::Started { id, client, key, verb, path } => json!({
            "event": "session",
            "id": id,
            "client": client.to_string(),
            "key": key.to_string(),
            "verb": verb,
            "path": path,
        }),
        ServerEvent::Ended { id, wire_bytes, failure } => json!({
            "event": "session_end",
            "id": id,
            "wire_bytes": wire_bytes,
            "failure": failure.as_ref().map(|f| &f.text),
        }),
    }
}
