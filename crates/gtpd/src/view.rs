//! What people are shown of the host, as a file of JSON lines in sealed memory.
//!
//! A list is made at most ten times a second for each user, however often it is asked for, and
//! whoever reads it slowly reads his own descriptor. Rates of all sessions are for everybody, for
//! they are the host's; names and programs are for their own user and for root.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use gtp_alloc::{Rate, Span, Time, tree};
use gtp_share::{HostView, Policy, SessionView, Side};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::hub::{Client, Hub, Right};
use crate::seats::{Seat, direction};

/// Lists made lately, each for those who may see the same.
#[derive(Debug, Default)]
pub(crate) struct Lists(BTreeMap<Option<u32>, (Time, OwnedFd, u64)>);

/// A list is as good as new for so long.
const FRESH: Span = Span::from_millis(100);
/// Users whose lists are kept.
const KEPT: usize = 64;

impl Lists {
    /// The list for somebody: its descriptor and length.
    ///
    /// # Errors
    /// When the system gives no memory or no descriptor.
    pub fn list(&mut self, now: Time, hub: &Hub, right: Right) -> io::Result<(&OwnedFd, u64)> {
        let who = match right {
            Right::Of(uid) => Some(uid),
            Right::Anybodys => None,
        };
        self.0.retain(|_, (at, ..)| now.since(*at) < FRESH);
        let full = self.0.len() >= KEPT;
        let (_, fd, bytes) = match self.0.entry(who) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if full => return Err(io::ErrorKind::WouldBlock.into()),
            Entry::Vacant(place) => {
                let text = hub.list(right)?;
                place.insert((now, sealed(&text)?, text.len() as u64))
            }
        };
        Ok((fd, *bytes))
    }
}

impl Hub {
    /// The host and all sessions, one JSON object a line.
    pub(crate) fn list(&self, right: Right) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(&self.host())?;
        text.push(b'\n');
        for client in self.clients.values() {
            for (_, seat) in client.seats.iter() {
                serde_json::to_writer(&mut text, &view(client, seat, right))?;
                text.push(b'\n');
            }
        }
        Ok(text)
    }

    /// The host in numbers.
    pub fn host(&self) -> HostView {
        let (out, in_) = self.capacity();
        let seats = || self.clients.values().flat_map(|client| client.seats.iter());
        let used = |side| {
            let here = seats().filter(|(_, seat)| seat.posted.side == side);
            here.fold(0, |sum: u64, (_, s)| sum.saturating_add(s.posted.report.measured.as_bps()))
        };
        HostView {
            capacity_out: limited(out),
            capacity_in: limited(in_),
            used_out: used(Side::Source),
            used_in: used(Side::Sink),
            processes: self.clients.len() as u32,
            sessions: seats().count() as u32,
        }
    }

    /// All sessions, with the names that `right` allows to see.
    pub fn sessions_for(&self, right: Right) -> Vec<SessionView> {
        let of = |client| move |(_, seat)| view(client, seat, right);
        self.clients.values().flat_map(|client| client.seats.iter().map(of(client))).collect()
    }
}

/// A file in memory that nobody can change any more.
fn sealed(text: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("gtp-sessions", flags)?);
    file.write_all(text)?;
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, all)?;
    Ok(file.into())
}

fn view(client: &Client, seat: &Seat, right: Right) -> SessionView {
    let visible = right == Right::Anybodys || right == Right::Of(client.who.uid);
    let name = |text: String| if visible { text } else { String::from("(another user's)") };
    let (posted, report) = (&seat.posted, &seat.posted.report);
    SessionView {
        session: seat.flow,
        uid: client.who.uid,
        pid: client.who.pid,
        program: name(client.who.program.clone()),
        label: name(posted.label.printable()),
        direction: direction(posted.side).to_owned(),
        weight: seat.weight,
        flat_weight: seat.flat,
        max_rate: limited(seat.max_rate),
        policy: match seat.policy {
            tree::Policy::Normal => Policy::Normal,
            tree::Policy::Low => Policy::Low,
        },
        demand: limited(report.demand),
        peer_offer: limited(report.peer_offer),
        granted: seat.granted.map_or(Some(0), |g| limited(g.grant.rate)),
        measured: report.measured.as_bps(),
        limited_by: posted.limited_by.as_str().to_owned(),
        loss_ratio: f64::from(posted.loss_ppm) / 1e6,
        rtt_us: report.rtt.as_micros(),
        wire_bytes: posted.wire_bytes,
    }
}

fn limited(rate: Rate) -> Option<u64> {
    (!rate.is_unlimited()).then(|| rate.as_bps())
}
