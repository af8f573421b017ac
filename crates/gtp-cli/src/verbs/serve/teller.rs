//! What a server says of what happens: to programs on standard output, to people in its log.
//!
//! Each event is a line with fields. Programs hear of all, people of as many as the ration lets
//! through; what is left out is counted and summed up. What comes from clients was escaped before
//! it came here. Where the lines go is unknown here.

use gtp::{Failure, FailureKind, Moved, Objects, Request, ServerEvent, Stands, Visit, Whose};
use gtp_sys::Clock;
use serde_json::{Value, json};
use tracing::{error, info, warn};

use super::ration::{LeftOut, Ration, Topic};
use crate::log::SERVER;
use crate::show::json as out;

/// Says what happens at a server.
pub struct Teller {
    json: bool,
    clock: Clock,
    ration: Ration,
    standing: out::Standing,
}

impl Teller {
    /// One that also tells programs if `args` ask for that.
    pub fn new(args: &crate::args::ServeArgs) -> Teller {
        let (clock, ration, standing) = (Clock::start(), Ration::new(), out::Standing::default());
        Teller { json: args.json, clock, ration, standing }
    }

    /// Tells programs of an event, and people if not too much else happens.
    pub fn tell(&mut self, event: &ServerEvent) {
        if let Some(line) = as_json(event).filter(|_| self.json) {
            out::line(&line);
        }
        let topic = match event {
            ServerEvent::TurnedAway { .. } => Topic::Refused(Whose::Stranger),
            ServerEvent::Refused { whose, .. } => Topic::Refused(*whose),
            ServerEvent::Started { visit } | ServerEvent::Ended { visit, .. } => {
                Topic::Session(visit.whose)
            }
            // The audit has them.
            ServerEvent::Changed { .. } => return,
            ServerEvent::KeysRead { .. }
            | ServerEvent::KeysUnreadable { .. }
            | ServerEvent::KeysUsable { .. }
            | ServerEvent::Missed { .. } => return log(event),
        };
        if self.ration.allows(self.clock.now(), topic) {
            log(event);
        }
    }

    /// Tells programs what this server is to the machine's daemon; people read it in the log.
    pub fn stands(&mut self, stands: Stands) {
        if self.json {
            self.standing.look(stands);
        }
    }

    /// Says how much was left out.
    pub fn sum_up(&mut self) {
        if let Some(LeftOut { refused, sessions }) = self.ration.take_left_out() {
            info!(
                target: SERVER,
                refused,
                sessions,
                "left out here: {refused} lines about refused connections, {sessions} about \
                 sessions that began or ended"
            );
        }
    }
}

/// The word for how a session ended.
pub fn outcome(failure: Option<&Failure>) -> &'static str {
    failure.map_or("done", |failure| failure.kind.as_str())
}

/// Bits of content per second, rounded; zero for a session without length.
pub fn rate(moved: &Moved) -> u64 {
    let seconds = moved.span.as_secs_f64();
    if seconds > 0.0 { (moved.content_bytes as f64 * 8.0 / seconds).round() as u64 } else { 0 }
}

fn log(event: &ServerEvent) {
    match event {
        ServerEvent::TurnedAway { client, more } => {
            warn!(target: SERVER, %client, more, "too many connections");
        }
        ServerEvent::Refused { client, request: None, failure, reason, .. } => {
            let (reason, why) = (reason.as_str(), &failure.text);
            info!(target: SERVER, %client, reason, why, "refused");
        }
        ServerEvent::Refused { client, request: Some(request), failure, reason, .. } => {
            let Request { key, name, verb, path } = request;
            let (name, object) = (name.as_deref(), format!("/{path}"));
            let (reason, why) = (reason.as_str(), &failure.text);
            info!(target: SERVER, %client, %key, name, verb, object, reason, why, "refused");
        }
        ServerEvent::KeysRead { keys } => {
            info!(target: SERVER, keys, "reload: the list of keys was read again");
        }
        ServerEvent::KeysUnreadable { failure } => error!(
            target: SERVER,
            why = failure.text,
            "the list of keys cannot be used: new clients are refused, and sessions of listed \
             clients end in five minutes"
        ),
        ServerEvent::KeysUsable { keys } => {
            info!(target: SERVER, keys, "the list of keys can be used again");
        }
        ServerEvent::Missed { count } => {
            warn!(target: SERVER, events = count, "some events were not reported");
        }
        ServerEvent::Started { visit } => log_begin(visit),
        ServerEvent::Ended { visit, moved, objects, failure } => {
            log_end(visit, (moved, objects), failure.as_ref());
        }
        ServerEvent::Changed { .. } => {}
    }
}

fn log_begin(visit: &Visit) {
    let Visit { id, client, whose: _, request, export, groups: _ } = visit;
    let Request { key, name, verb, path } = request;
    let (name, export, object) = (name.as_deref(), export.as_deref(), format!("/{path}"));
    info!(
        target: SERVER, session = id, %client, %key, name, verb, export, object, "session begins"
    );
}

fn log_end(visit: &Visit, (moved, objects): (&Moved, &Objects), failure: Option<&Failure>) {
    let Visit { id, client, whose: _, request, export, groups: _ } = visit;
    let Request { key, name, verb, path } = request;
    let (name, export, object) = (name.as_deref(), export.as_deref(), format!("/{path}"));
    let (bytes, wire_bytes, files) = (moved.content_bytes, moved.wire_bytes, moved.files);
    let (changes, loss, bps) = (moved.changes, moved.loss_ratio, rate(moved));
    let (seconds, outcome) = (moved.span.as_secs_f64(), outcome(failure));
    let wrote = wrote(visit, objects).filter(|_| failure.is_none() || bytes > 0 || files > 0);
    let wrote = wrote.as_deref();
    match failure {
        None => info!(
            target: SERVER, session = id, %client, %key, name, verb, export, object, wrote, bytes,
            wire_bytes, files, changes, seconds, rate = bps, loss, outcome, "session ends"
        ),
        Some(Failure { kind, text }) if is_no_fault(*kind) => info!(
            target: SERVER, session = id, %client, %key, name, verb, export, object, wrote, bytes,
            wire_bytes, files, changes, seconds, rate = bps, loss, outcome, why = text,
            "session ends"
        ),
        Some(Failure { text, .. }) => warn!(
            target: SERVER, session = id, %client, %key, name, verb, export, object, wrote, bytes,
            wire_bytes, files, changes, seconds, rate = bps, loss, outcome, why = text,
            "session ends"
        ),
    }
}

/// Whether a session that ends so does as the operator's settings say, by hours, quotas and the
/// list of keys, or as its client wants, which asks for what is not there or gives up. The alerts
/// leave out the same.
fn is_no_fault(kind: FailureKind) -> bool {
    use FailureKind::{Interrupted, Missing, OutsideHours, Quota, Revoked, TimeLimit, Usage};
    matches!(kind, Interrupted | Missing | OutsideHours | Quota | Revoked | TimeLimit | Usage)
}

/// What a session wrote, where its request alone does not say it.
fn wrote(visit: &Visit, objects: &Objects) -> Option<String> {
    let Objects { paths, more } = objects;
    if paths.is_empty() || (*paths == [visit.request.path.as_str()] && *more == 0) {
        return None;
    }
    let named: Vec<String> = paths.iter().take(WROTE_MOST).map(|path| format!("/{path}")).collect();
    let more = more + paths.len().saturating_sub(WROTE_MOST) as u64;
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("{}{rest}", named.join(", ")))
}

/// Objects that a line names.
const WROTE_MOST: usize = 4;

fn as_json(event: &ServerEvent) -> Option<Value> {
    Some(match event {
        ServerEvent::TurnedAway { client, more } => {
            json!({ "event": "turned_away", "client": client.to_string(), "more": more })
        }
        ServerEvent::KeysRead { keys } => json!({ "event": "keys_read", "keys": keys }),
        ServerEvent::KeysUnreadable { failure } => {
            json!({ "event": "keys_unreadable", "message": failure.text })
        }
        ServerEvent::KeysUsable { keys } => json!({ "event": "keys_usable", "keys": keys }),
        ServerEvent::Missed { count } => json!({ "event": "missing", "lines": count }),
        ServerEvent::Refused { client, request, failure, reason, .. } => json!({
            "event": "refused",
            "reason": reason.as_str(),
            "client": client.to_string(),
            "key": request.as_ref().map(|request| request.key.to_string()),
            "message": failure.text,
        }),
        ServerEvent::Started { visit } => begin_as_json(visit),
        ServerEvent::Ended { visit, moved, objects, failure } => {
            end_as_json(visit, (moved, objects), failure.as_ref())
        }
        ServerEvent::Changed { .. } => return None,
    })
}

fn begin_as_json(visit: &Visit) -> Value {
    json!({
        "event": "session",
        "id": visit.id,
        "client": visit.client.to_string(),
        "key": visit.request.key.to_string(),
        "name": visit.request.name,
        "verb": visit.request.verb,
        "export": visit.export.as_deref(),
        "path": visit.request.path,
    })
}

fn end_as_json(
    visit: &Visit,
    (moved, objects): (&Moved, &Objects),
    failure: Option<&Failure>,
) -> Value {
    json!({
        "event": "session_end",
        "id": visit.id,
        "bytes": moved.content_bytes,
        "wire_bytes": moved.wire_bytes,
        "files": moved.files,
        "objects": objects.paths,
        "objects_more": objects.more,
        "changes": moved.changes,
        "seconds": moved.span.as_secs_f64(),
        "rate": rate(moved),
        "loss_ratio": moved.loss_ratio,
        "outcome": outcome(failure),
        "failure": failure.map(|f| &f.text),
    })
}
