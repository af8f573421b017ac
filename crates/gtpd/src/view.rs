//! What people are shown of the host, as JSON lines.
//!
//! A list is made at most ten times a second for each user, however often it is asked for, and is
//! kept while somebody reads it, as far as there is room. Rates of all sessions are for everybody,
//! for they are the host's; names and programs are for their own user and for root.

use std::cmp::Reverse;
use std::io;
use std::rc::Rc;

use gtp_alloc::{Rate, Span, Time, tree};
use gtp_share::{ClientView, HostView, Policy, Posted, SessionView, Side, Terms};
use serde::Serialize;

use crate::hub::{Client, ClientId, Hub, Right};
use crate::limits::Given;
use crate::seats::{Seat, direction};

/// Lists made lately, or on their way to somebody, and the last hour as it was told last.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    kept: Vec<Kept>,
    hour: Option<(Time, Rc<Vec<u8>>)>,
    /// The same by key, for each who may see other names.
    keys: Vec<(Right, Time, Rc<Vec<u8>>)>,
}

/// A list for those who may see the same: a user, or those who may see all.
#[derive(Debug)]
struct Kept {
    who: Option<u32>,
    made: Time,
    text: Rc<Vec<u8>>,
}

/// A list is as good as new for so long.
const FRESH: Span = Span::from_millis(100);
/// The last hour is as good as new for so long; so readers who are slow keep a few of its texts.
const HOUR_FRESH: Span = Span::from_secs(1);
/// Lists at a time, of all and of one user: readers who stop reading keep the old ones.
const KEPT: usize = 64;
const KEPT_OF_ONE: usize = 4;
/// No list is made while those that are kept have so many bytes.
const BYTES_MOST: usize = 256 << 20;

impl Lists {
    /// The list for somebody.
    ///
    /// # Errors
    /// When too many are on their way.
    pub fn list(&mut self, now: Time, hub: &Hub, right: Right) -> io::Result<Rc<Vec<u8>>> {
        let who = match right {
            Right::Of(uid) => Some(uid),
            Right::Anybodys | Right::Nobodys => None,
        };
        let fresh = |kept: &Kept| now.since(kept.made) < FRESH;
        self.kept.retain(|kept| fresh(kept) || Rc::strong_count(&kept.text) > 1);
        let mut same = self.kept.iter().filter(|kept| kept.who == who);
        if let Some(known) = same.clone().find(|kept| fresh(kept)) {
            return Ok(known.text.clone());
        }
        let bytes: usize = self.kept.iter().map(|kept| kept.text.len()).sum();
        let full = self.kept.len() >= KEPT || bytes >= BYTES_MOST;
        if full || same.nth(KEPT_OF_ONE - 1).is_some() {
            return Err(io::Error::other("too many lists are not read yet: ask again later"));
        }
        let text = Rc::new(hub.list(right)?);
        self.kept.push(Kept { who, made: now, text: text.clone() });
        Ok(text)
    }

    /// The last hour, one user and direction a line. It is the same for everybody.
    ///
    /// # Errors
    /// When it cannot be written, which does not happen.
    pub fn hour(&mut self, now: Time, hub: &Hub) -> io::Result<Rc<Vec<u8>>> {
        if let Some((made, text)) = &self.hour
            && now.since(*made) < HOUR_FRESH
        {
            return Ok(text.clone());
        }
        let text = Rc::new(lines(&hub.history.view())?);
        self.hour = Some((now, text.clone()));
        Ok(text)
    }

    /// The same by key, with the names that `right` allows to see. Readers who are slow keep what
    /// they were given: 256 keys and as many lines for each direction at most.
    ///
    /// # Errors
    /// When it cannot be written, which does not happen.
    pub fn keys(&mut self, now: Time, hub: &Hub, right: Right) -> io::Result<Rc<Vec<u8>>> {
        self.keys.retain(|(_, made, _)| now.since(*made) < HOUR_FRESH);
        if let Some((_, _, text)) = self.keys.iter().find(|(whose, _, _)| *whose == right) {
            return Ok(text.clone());
        }
        let text = Rc::new(lines(&hub.by_key.view(right))?);
        self.keys.push((right, now, text.clone()));
        Ok(text)
    }
}

/// Any rows, one JSON object a line.
pub(crate) fn lines(rows: &[impl Serialize]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut text, row)?;
        text.push(b'\n');
    }
    Ok(text)
}

impl Hub {
    /// The host and all sessions, one JSON object a line.
    pub(crate) fn list(&self, right: Right) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(&self.host())?;
        text.push(b'\n');
        for (&id, client) in &self.clients {
            for (_, seat) in client.seats.iter() {
                let view = self.view((id, client), seat, right);
                serde_json::to_writer(&mut text, &view)?;
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
            here.fold(0, |sum: u64, (_, seat)| sum.saturating_add(self.rate(seat).as_bps()))
        };
        HostView {
            capacity_out: limited(out),
            capacity_in: limited(in_),
            used_out: used(Side::Source),
            used_in: used(Side::Sink),
            guaranteed: self.guaranteed().as_bps(),
            processes: self.clients.len() as u32,
            sessions: seats().count() as u32,
        }
    }

    /// All sessions, with the names that `right` allows to see.
    pub fn sessions_for(&self, right: Right) -> Vec<SessionView> {
        let of = |client: (ClientId, _)| move |(_, seat)| self.view(client, seat, right);
        let all = self.clients.iter().map(|(&id, client)| (id, client));
        all.flat_map(|client| client.1.seats.iter().map(of(client))).collect()
    }

    /// The sessions that move most, at most so many, with the names that `right` allows to see.
    pub(crate) fn busiest(&self, most: usize, right: Right) -> Vec<SessionView> {
        let of = |client: (ClientId, _)| move |(_, seat)| (client, seat);
        let all = self.clients.iter().map(|(&id, client)| (id, client));
        let seats = all.flat_map(|client| client.1.seats.iter().map(of(client)));
        let mut seats: Vec<((ClientId, &Client), &Seat)> = seats.collect();
        seats.sort_unstable_by_key(|(_, seat)| (Reverse(self.rate(seat)), seat.flow));
        let shown = seats.into_iter().take(most);
        shown.map(|(client, seat)| self.view(client, seat, right)).collect()
    }

    /// A session's rate for people.
    fn rate(&self, seat: &Seat) -> Rate {
        seat.rate(self.granted(seat).map_or(Rate::ZERO, |grant| grant.rate))
    }

    fn view(&self, (id, client): (ClientId, &Client), seat: &Seat, right: Right) -> SessionView {
        let of_transfer = self.bounds.of(seat.transfer(id));
        let granted = self.granted(seat).map_or(Rate::ZERO, |grant| grant.rate);
        view(client, seat, (of_transfer, granted), right)
    }
}

fn view(
    client: &Client,
    seat: &Seat,
    (of_transfer, granted): (Given, Rate),
    right: Right,
) -> SessionView {
    let visible = right.sees(client.who.uid);
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
        peer_weight: report.peer_weight,
        max_rate: limited(seat.max_rate),
        transfer_max_rate: limited(of_transfer.most),
        transfer_guarantee: of_transfer.least.as_bps(),
        policy: match seat.policy {
            tree::Policy::Normal => Policy::Normal,
            tree::Policy::Low => Policy::Low,
        },
        demand: limited(report.demand),
        peer_offer: limited(report.peer_offer),
        granted: limited(granted),
        measured: seat.rate(granted).as_bps(),
        limited_by: posted.limited_by.as_str().to_owned(),
        path: posted.path.standing().map(Into::into),
        carrier: if posted.path.is_over_tcp() { "tcp" } else { "udp" }.to_owned(),
        loss_ratio: loss_ratio(posted.lost, posted.packets),
        rtt_us: report.rtt.as_micros(),
        wire_bytes: posted.wire_bytes,
        client: (posted.principal != 0).then(|| client_view(posted, visible)),
    }
}

/// Whom a session serves, if that is to be seen, and what its server gives it.
fn client_view(posted: &Posted, visible: bool) -> ClientView {
    let name = |text: String| if visible { text } else { String::new() };
    let Terms { weight, each, group: _, least, most } = posted.terms;
    ClientView {
        name: name(posted.label.name()),
        groups: name(posted.label.groups()),
        weight: weight.into(),
        max_rate: limited(each),
        group_max_rate: limited(most),
        group_guarantee: least.as_bps(),
    }
}

/// The part that was lost of the packets whose fate is known: from 0 to 1, and 0 of none. A process
/// may report any numbers.
fn loss_ratio(lost: u64, arrived: u64) -> f64 {
    if lost == 0 { 0.0 } else { lost as f64 / (lost as f64 + arrived as f64) }
}

fn limited(rate: Rate) -> Option<u64> {
    (!rate.is_unlimited()).then(|| rate.as_bps())
}
