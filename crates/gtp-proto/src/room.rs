//! Room to grow: what a session claims beyond what it uses, and how sessions of one party share it.
//!
//! A session claims a little more than it uses, so that its rate can rise. While others want the
//! capacity, all sessions of one party (one client, or all strangers of a server) hold no more of
//! such room together than one session may need. So many slow sessions cost a neighbour as little
//! as one does. Where nobody wants what they hold, they keep it. This module must not know weights
//! or grants.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gtp_alloc::Rate;
use gtp_alloc::grant::Claim;

use crate::report::{FlowId, Phase, Report};

/// A party's room is this part of the capacity, even while others want it: a quarter of the
/// hundredth by which its neighbours may fall short.
pub const ROOM_PART: f64 = 1.0 / 256.0;
/// A party's room is at least a packet a second, however small the capacity.
pub const ROOM_LEAST: Rate = Rate::from_bps(12_000);
/// The party of all clients of a server that are not on its list: anybody can make as many keys as
/// they like. No other party has this number.
pub const STRANGERS: u64 = 1;

/// Returns what a session under the grant law asks of its node.
pub fn claim(report: &Report) -> Claim {
    let bound = match report.phase {
        Phase::Open => report.peer_offer.min(report.demand),
        Phase::Closing => Rate::ZERO,
    };
    Claim { weight: report.weight * report.peer_weight, bound: bound.as_f64() }
}

/// Whether a session has room that it shares with others of its party.
#[inline]
pub fn is_shared(report: &Report) -> bool {
    report.firm < report.demand && report.party != 0
}

/// Lowers the bounds of `claims` on a node of `capacity`, which are those of `reports` in their
/// order, until each party holds no more room than its part, or than nobody else wants.
pub fn share(capacity: Rate, reports: &[(FlowId, Report)], claims: &mut [Claim]) {
    if capacity.is_unlimited() {
        return;
    }
    let capacity = capacity.as_f64();
    let mut parties = Parties::default();
    let mut firm = 0.0;
    for ((_, report), claim) in reports.iter().zip(&*claims) {
        let room = room(capacity, report, claim);
        firm += claim.bound.min(capacity) - room;
        if room > 0.0 {
            parties.add(report.party, room);
        }
    }
    let all: f64 = parties.rooms.iter().sum();
    let rest = (capacity - firm) / all;
    let least = (capacity * ROOM_PART).max(ROOM_LEAST.as_f64());
    // What nobody else wants is shared among all parties by what they want of it.
    parties.rooms.iter_mut().for_each(|room| *room = (least / *room).max(rest).min(1.0));
    for ((_, report), claim) in reports.iter().zip(claims) {
        let room = room(capacity, report, claim);
        if room > 0.0 {
            claim.bound = claim.bound.min(capacity) - room * (1.0 - parties.of(report.party));
        }
    }
}

/// Returns what a claim has of its party's room in bit/s; nothing if the session shares none.
fn room(capacity: f64, report: &Report, claim: &Claim) -> f64 {
    let room = claim.bound.min(capacity) - report.firm.as_f64();
    if report.party != 0 && room > 0.0 { room } else { 0.0 }
}

/// A number for each party.
#[derive(Default)]
struct Parties {
    places: BTreeMap<u64, usize>,
    rooms: Vec<f64>,
    /// The party that was looked for last, as the next session mostly is of the same.
    last: Option<(u64, usize)>,
}

impl Parties {
    fn place(&mut self, party: u64) -> usize {
        if let Some((last, place)) = self.last
            && last == party
        {
            return place;
        }
        let next = self.rooms.len();
        let place = *self.places.entry(party).or_insert(next);
        if place == next {
            self.rooms.push(0.0);
        }
        self.last = Some((party, place));
        place
    }

    fn add(&mut self, party: u64, room: f64) {
        let place = self.place(party);
        self.rooms[place] += room;
    }

    fn of(&mut self, party: u64) -> f64 {
        let place = self.place(party);
        self.rooms[place]
    }
}

#[cfg(test)]
mod tests;
