//! Where `gtp sessions` and `gtp top` see a server's sessions, with a daemon or without.
//!
//! The server's table of sessions becomes the rows that the daemon would list, and is answered by a
//! thread of its own, so that nobody who looks holds a transfer up. Who may look, and how a list is
//! sent, [`gtpd::listing`] knows; this file must not.

use std::os::unix::net::UnixStream;
use std::path::Path;

use gtp::{Host, LimitedBy, Pace, Rate, Running, RunningServer, Sessions, Span, Visit, Way, Whose};
use gtp_share::{ClientView, HostView, Label, Policy, SessionView, Side, served};
use gtpd::listing::{Listing, Lookout};
use tracing::{info, warn};

use crate::log::SERVER;
use crate::pages::Waiting;

/// A place where a server's sessions are to be seen, until it is dropped.
pub struct Status {
    _serving: UnixStream,
}

impl Status {
    /// Lets a server's sessions be seen at a socket. Where that cannot be made the log says so, and
    /// the server goes on without.
    pub fn serve(at: &Path, host: &Host, running: &RunningServer) -> Option<Status> {
        let shown = gtp_text::of_bytes(at.as_os_str().as_encoded_bytes());
        let begun = Lookout::at(at)
            .map_err(|error| error.to_string())
            .and_then(|place| begin(place, host.clone(), running.sessions()));
        match begun {
            Ok(serving) => {
                info!(target: SERVER, "its sessions are seen by: gtp top --daemon {shown}");
                Some(Status { _serving: serving })
            }
            Err(why) => {
                warn!(target: SERVER, "--status {shown}: {why}; its sessions are not to be seen");
                None
            }
        }
    }
}

fn begin(place: Lookout, host: Host, sessions: Sessions) -> Result<UnixStream, String> {
    let failed = |error: std::io::Error| error.to_string();
    let (serving, end) = UnixStream::pair().map_err(failed)?;
    let thread = std::thread::Builder::new().name("gtp-status".into());
    thread.spawn(move || answer(place, &host, &sessions, &end)).map_err(failed)?;
    Ok(serving)
}

/// Answers those who look, until the other end of `end` is closed.
fn answer(place: Lookout, host: &Host, sessions: &Sessions, end: &UnixStream) {
    let mut waiting = Waiting::new();
    let mut listing = Listing::new(waiting.now(), place);
    while waiting.goes_on(end, listing.poll_timeout(), listing.fds()) {
        listing.serve(waiting.now(), || list(host.capacities(), &sessions.running()));
    }
}

/// The server as a host, and its sessions.
fn list([out, in_]: [Rate; 2], running: &[Running]) -> (HostView, Vec<SessionView>) {
    let sessions: Vec<SessionView> = running.iter().map(view).collect();
    let used = |direction| {
        let those = sessions.iter().filter(|session| session.direction == direction);
        those.fold(0, |sum: u64, session| sum.saturating_add(session.measured))
    };
    let host = HostView {
        capacity_out: limited(out),
        capacity_in: limited(in_),
        used_out: used(OUT),
        used_in: used(IN),
        guaranteed: 0,
        processes: 1,
        sessions: sessions.len() as u32,
    };
    (host, sessions)
}

/// A session as the daemon would list it. What only a daemon has (weights, changes by `gtp set`,
/// what a session wants) is as of one that was never changed.
fn view(Running { visit, moved, pace }: &Running) -> SessionView {
    let pace = pace.unwrap_or_else(|| idle(visit.request.verb));
    let label = label(visit);
    SessionView {
        session: visit.id as u32,
        uid: rustix::process::geteuid().as_raw(),
        pid: std::process::id() as i32,
        program: "gtp serve".to_owned(),
        label: label.printable(),
        direction: match pace.side {
            Side::Source => OUT,
            Side::Sink => IN,
        }
        .to_owned(),
        weight: 1.0,
        flat_weight: 1.0,
        peer_weight: 1.0,
        max_rate: None,
        transfer_max_rate: None,
        transfer_guarantee: 0,
        policy: Policy::Normal,
        demand: None,
        peer_offer: None,
        granted: limited(pace.granted),
        measured: pace.rate.as_bps(),
        limited_by: pace.limited_by.as_str().to_owned(),
        path: pace.path.map(Into::into),
        carrier: match pace.way {
            Way::Udp => "udp",
            Way::Control => "tcp",
        }
        .to_owned(),
        loss_ratio: moved.loss_ratio,
        rtt_us: pace.rtt.as_micros(),
        wire_bytes: moved.wire_bytes,
        client: Some(ClientView {
            name: label.name(),
            groups: label.groups(),
            weight: 1.0,
            max_rate: None,
            group_max_rate: None,
            group_guarantee: 0,
        }),
    }
}

/// Who and what, as short as on the daemon's pages.
fn label(visit: &Visit) -> Label {
    let path = if visit.request.path.is_empty() { "/" } else { &visit.request.path };
    let label = Label::new(&served(visit.client, path));
    match visit.whose {
        Whose::Listed => {
            let key = || visit.request.key.to_string();
            let name = visit.request.name.clone().unwrap_or_else(key);
            label.of_client(&name, &visit.groups.join(","))
        }
        Whose::Stranger => label.beside_terms(),
    }
}

/// The pace of a session that moves nothing yet, or only lists.
fn idle(verb: &str) -> Pace {
    Pace {
        rate: Rate::ZERO,
        granted: Rate::ZERO,
        limited_by: LimitedBy::Demand,
        side: if matches!(verb, "put" | "fetch") { Side::Sink } else { Side::Source },
        rtt: Span::ZERO,
        path: None,
        way: Way::Udp,
    }
}

fn limited(rate: Rate) -> Option<u64> {
    (!rate.is_unlimited()).then(|| rate.as_bps())
}

const OUT: &str = "out";
const IN: &str = "in";

#[cfg(test)]
mod tests;
