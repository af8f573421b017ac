//! `gtp serve`: lets others fetch from a directory, and perhaps write to it.
//!
//! Programs read standard output, whose first line says where it listens; people read standard
//! error, with a line for each begin and end of a session as long as these are few. A reader of
//! either stream cannot hold the server up.

mod ration;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gtp::{AUTHORIZED_KEYS_FILE, Alone, Failure, RunningServer, Server, ServerEvent, Stands};
use gtp_sys::Clock;
use serde_json::json;

use crate::args::{OneEnd, ServeArgs};
use crate::output::{self, aside};
use crate::show::json as out;
use crate::signals::{ServerSignals, Wish};
use crate::words;
use ration::{LeftOut, Ration, Topic};

pub fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    let runtime = super::runtime()?;
    runtime.block_on(serve(args))
}

async fn serve(args: ServeArgs) -> Result<ExitCode, Failure> {
    output::never_wait().map_err(super::other)?;
    let engines = args.engines.unwrap_or_else(gtp::default_engines);
    let host = super::host(&args.host).engines(engines).start()?;
    let mut signals = ServerSignals::take().map_err(super::other)?;
    let mut running = server(&args).start(&host).await?;
    announce(&args, &running);
    let (clock, ration, standing) = (Clock::start(), Ration::new(), out::Standing::default());
    let mut teller = Teller { json: args.json, clock, ration, standing };
    let mut sum_up = tokio::time::interval(SUM_UP_SPAN);
    loop {
        tokio::select! {
            event = running.next_event() => match event {
                Some(event) => teller.tell(&event),
                None => break,
            },
            wish = signals.next() => match wish {
                Wish::Stop => break,
                Wish::Reload => running.reload(),
            },
            _ = sum_up.tick() => {
                teller.stands(host.stands());
                teller.sum_up();
            }
        }
    }
    let stop_now = async { while signals.next().await != Wish::Stop {} };
    tokio::select! {
        () = running.stop() => {
            output::drain();
            Ok(super::done())
        }
        () = stop_now => std::process::exit(130),
    }
}

/// The server that the options describe.
fn server(args: &ServeArgs) -> Server {
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
    server
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

/// Says what happens at the server.
struct Teller {
    json: bool,
    clock: Clock,
    ration: Ration,
    standing: out::Standing,
}

impl Teller {
    /// Tells programs of an event, and people if not too much else happens.
    fn tell(&mut self, event: &ServerEvent) {
        if self.json {
            out::line(&as_json(event));
        }
        let topic = match event {
            ServerEvent::TurnedAway { .. } | ServerEvent::Refused { .. } => Topic::Refused,
            ServerEvent::Started { whose, .. } | ServerEvent::Ended { whose, .. } => {
                Topic::Session(*whose)
            }
            ServerEvent::KeysRead { .. }
            | ServerEvent::KeysUnreadable { .. }
            | ServerEvent::KeysUsable { .. }
            | ServerEvent::Missed { .. } => return aside(as_words(event)),
        };
        if self.ration.allows(self.clock.now(), topic) {
            aside(as_words(event));
        }
    }

    /// Tells programs what this server is to the machine's daemon; people read it in the log.
    fn stands(&mut self, stands: Stands) {
        if self.json {
            self.standing.look(stands);
        }
    }

    /// Says how much was left out.
    fn sum_up(&mut self) {
        if let Some(LeftOut { refused, sessions }) = self.ration.take_left_out() {
            aside(format_args!(
                "left out here: {refused} lines about refused connections, {sessions} about \
                 sessions that began or ended"
            ));
        }
    }
}

fn as_words(event: &ServerEvent) -> String {
    match event {
        ServerEvent::TurnedAway { client, more: 0 } => format!("{client}: too many connections"),
        ServerEvent::TurnedAway { client, more } => {
            format!("{client}: too many connections, and {more} more before it")
        }
        ServerEvent::Refused { client, failure } => format!("{client}: refused: {failure}"),
        ServerEvent::KeysRead { keys } => {
            format!("hangup: the list of keys was read again; it has {keys} lines")
        }
        ServerEvent::KeysUnreadable { failure } => {
            format!(
                "the list of keys cannot be used: new clients are refused, and sessions of \
                 listed clients end in five minutes: {failure}"
            )
        }
        ServerEvent::KeysUsable { keys } => {
            format!("the list of keys can be used again; it has {keys} lines")
        }
        ServerEvent::Missed { count } => format!("{count} events were not reported"),
        ServerEvent::Started { id, client, key, whose: _, verb, path } => {
            format!("#{id} {client}: {verb} /{path} by {key}")
        }
        ServerEvent::Ended { id, whose: _, wire_bytes, failure } => {
            let moved = words::say_bytes(*wire_bytes);
            match failure {
                None => format!("#{id} done, {moved}"),
                Some(failure) => format!("#{id} ended: {failure}; {moved}"),
            }
        }
    }
}

fn as_json(event: &ServerEvent) -> serde_json::Value {
    match event {
        ServerEvent::TurnedAway { client, more } => {
            json!({ "event": "turned_away", "client": client.to_string(), "more": more })
        }
        ServerEvent::KeysRead { keys } => json!({ "event": "keys_read", "keys": keys }),
        ServerEvent::KeysUnreadable { failure } => {
            json!({ "event": "keys_unreadable", "message": failure.text })
        }
        ServerEvent::KeysUsable { keys } => json!({ "event": "keys_usable", "keys": keys }),
        ServerEvent::Missed { count } => json!({ "event": "missing", "lines": count }),
        ServerEvent::Refused { client, failure } => json!({
            "event": "refused",
            "client": client.to_string(),
            "message": failure.text,
        }),
        ServerEvent::Started { id, client, key, whose: _, verb, path } => json!({
            "event": "session",
            "id": id,
            "client": client.to_string(),
            "key": key.to_string(),
            "verb": verb,
            "path": path,
        }),
        ServerEvent::Ended { id, whose: _, wire_bytes, failure } => json!({
            "event": "session_end",
            "id": id,
            "wire_bytes": wire_bytes,
            "failure": failure.as_ref().map(|f| &f.text),
        }),
    }
}

/// Time between two lines that sum up what was left out.
const SUM_UP_SPAN: Duration = Duration::from_secs(1);
