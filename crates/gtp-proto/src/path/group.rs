//! One path group: what its sessions' receipts say together, and what each session may send.
//!
//! Rates add up, the least delay is the least of all, and packet numbers are the sum of all
//! sessions' numbers. So one machine sees the group as it would see one session. What the machine
//! lets through is shared by the grant law: the path is one more node, beside the two hosts. The
//! bound changes for all sessions at once. This module must not know sockets, hosts or other
//! groups.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU8;

use gtp_alloc::grant::{Claim, Share, shares};
use gtp_alloc::{Rate, Span, Time};

use super::member::{Facts, Keeps, PathShare, Piece};
use super::party::Party;
use super::sum::Sum;
use super::{Conditions, PathBound, Sample, Standing};
use crate::limits::{INTERVAL_MIN, RAMP_FACTOR};
use crate::meter::RttMeter;
use crate::report::FlowId;

/// The sessions of one path, and their machine once there are several.
#[derive(Debug, Default)]
pub(super) struct Group {
    machine: Option<Box<PathBound>>,
    /// Sessions that were there in this round, and in the last one.
    here: u32,
    were: u32,
    /// Whether in this round, and in the last one, a session was there that kept no machine, while
    /// there was none here: it came from another group.
    orphans: bool,
    orphaned: bool,
    parties: BTreeMap<FlowId, Party>,
    /// Packets that sessions which have left had sent.
    left: u64,
    summed_at: Time,
    rtt: RttMeter,
    /// What is offered to the sinks. A test of the path leaves it as it was.
    ahead: Rate,
}

/// What is known of a path is forgotten after so long without a receipt.
const REMEMBERS: Span = Span::from_secs(60);
/// All that sessions claim beside what they use is at most this part of what the path carries,
/// while others of the group want it.
const ROOM_PART: f64 = 1.0 / 64.0;

impl Group {
    /// Whether it has several sessions, or had.
    pub fn is_shared(&self) -> bool {
        self.machine.is_some() || self.were > 1 || self.orphans || self.orphaned
    }

    /// Counts a session of this round; `machine` says who keeps the machine that it goes by.
    pub fn count(&mut self, machine: Keeps) {
        self.here += 1;
        self.orphans |= machine == Keeps::Group && self.machine.is_none();
    }

    /// A session that is there in this round, with what its receipts said since the last one.
    pub fn visit(&mut self, now: Time, id: FlowId, facts: Facts, pieces: [Option<Piece>; 2]) {
        self.count(facts.machine);
        let party = self.parties.entry(id).or_insert_with(|| Party::new(facts));
        (party.facts, party.present) = (facts, true);
        party.hear(now, pieces);
    }

    /// Ends a round: forgets sessions that are gone, tells the machine what was said and works out
    /// all shares. Returns whether a session is left.
    pub fn share_out(&mut self, now: Time) -> bool {
        (self.were, self.here) = (self.here, 0);
        self.orphaned = core::mem::take(&mut self.orphans);
        if !self.is_shared() {
            self.parties.clear();
            return self.were > 0;
        }
        let left = &mut self.left;
        self.parties.retain(|_, party| {
            let stays = core::mem::take(&mut party.present);
            *left += if stays { 0 } else { party.sent() };
            stays
        });
        if let Some(mut machine) = self.machine.take().or_else(|| self.replace_machine(now)) {
            let given = self.given(now);
            self.tell_machine(now, &mut machine, &given);
            self.tell_parties(now, &mut machine, &given);
            self.machine = Some(machine);
        }
        self.were > 0
    }

    /// A machine for sessions that all come from other groups, because the path has another name
    /// now. It goes on from the least that one of them could have: to change an address frees
    /// nobody. All must have been visited.
    fn replace_machine(&mut self, now: Time) -> Option<Box<PathBound>> {
        let all = self.parties.len() == self.were as usize;
        let come = |party: &Party| party.facts.machine == Keeps::Group;
        if !all || !self.parties.values().all(come) {
            return None;
        }
        self.summed_at = now;
        let bound = self.least_of_orphans()?;
        Some(Box::new(PathBound::bounded(now, bound)))
    }

    /// The least bound of the sessions that come from other groups.
    fn least_of_orphans(&self) -> Option<Rate> {
        let orphans = self.parties.values().filter(|party| party.facts.machine == Keeps::Group);
        orphans.map(|party| party.facts.bound).min()
    }

    /// Whether the session `id` is to give its machine to the group: where two have met, the one
    /// that knows more of the path does.
    pub fn wants_machine(&self, id: FlowId) -> bool {
        if self.machine.is_some() || self.parties.len() < 2 {
            return false;
        }
        let knows = |(id, party): (&FlowId, &Party)| {
            let given = &party.facts.given;
            (party.facts.heard_at.is_some(), given.next_pn, core::cmp::Reverse(*id))
        };
        let has = |party: &Party| party.facts.machine == Keeps::Session;
        let all = self.parties.iter().filter(|(_, party)| has(party));
        let most = all.max_by_key(|&(id, party)| knows((id, party)));
        most.is_some_and(|(most, _)| *most == id)
    }

    /// The session `id` gives its machine to the group.
    pub fn take_machine(&mut self, now: Time, id: FlowId, machine: Box<PathBound>) {
        let Some(party) = self.parties.get_mut(&id) else { return };
        // Its packet numbers go on; the others' count from now.
        (party.begun_pn, self.left, self.summed_at) = (0, 0, now);
        let old = party.facts.heard_at.is_some_and(|at| now.since(at) > REMEMBERS);
        let machine = if old { Box::new(PathBound::new(now)) } else { machine };
        // Sessions that come from other groups bring their bound to a session that waits here.
        let least = self.least_of_orphans().filter(|&least| least < machine.bound());
        self.machine = Some(match least {
            Some(least) => Box::new(PathBound::bounded(now, least)),
            None => machine,
        });
    }

    /// What the session `id` may have, once the group has a machine and has heard of it.
    pub fn share(&self, id: FlowId) -> Option<PathShare> {
        self.parties.get(&id)?.share
    }

    /// When the group should be asked next at the latest.
    pub fn poll_timeout(&self, now: Time) -> Option<Time> {
        match &self.machine {
            Some(machine) => machine.train_ends(),
            None => self.is_shared().then_some(now),
        }
    }

    fn tell_machine(&mut self, now: Time, machine: &mut PathBound, given: &Conditions) {
        if now.since(self.summed_at) > REMEMBERS {
            (*machine, self.summed_at) = (PathBound::new(now), now);
        }
        let waits = self.parties.values().any(|party| party.is_awaited(now));
        let patience = given.interval + INTERVAL_MIN;
        if waits && now.since(self.summed_at) < patience {
            return;
        }
        if let Some(sample) = self.sum(now, |party| &mut party.whole) {
            self.summed_at = now;
            // Once losses are known, what is only known to have arrived says no more.
            self.parties.values_mut().for_each(|party| party.partial = None);
            machine.note_proven(now, &sample, given);
            machine.handle_sample(now, sample, given);
        } else if now.since(self.summed_at) >= patience
            && let Some(sample) = self.sum(now, |party| &mut party.partial)
        {
            self.summed_at = now;
            machine.note_proven(now, &sample, given);
        }
    }

    /// How all sessions together want to use the path, and what they know of it.
    fn given(&mut self, now: Time) -> Conditions {
        let given = || self.parties.values().map(|party| &party.facts.given);
        let known = || given().map(|given| given.rtt).filter(|&rtt| rtt > Span::ZERO);
        let rtts: Span = known().fold(Span::ZERO, |sum, rtt| sum + rtt);
        let rtt = rtts / (known().count() as u64).max(1);
        let leasts = given().map(|given| given.rtt_least).filter(|&rtt| rtt > Span::ZERO);
        let least = leasts.min();
        let granted = given().fold(Rate::ZERO, |sum, given| sum.saturating_add(given.granted));
        let more = given().map(|given| given.aim.saturating_sub(given.granted)).max();
        let used = given().fold(Rate::ZERO, |sum, g| sum.saturating_add(g.aim.min(g.granted)));
        let interval = given().map(|given| given.interval).max().unwrap_or(INTERVAL_MIN);
        let sent: u64 = self.parties.values().map(Party::sent).sum();
        if let Some(least) = least {
            self.rtt.add(now, least);
        }
        Conditions {
            aim: used.saturating_add(more.unwrap_or(Rate::ZERO)),
            granted,
            rtt,
            rtt_least: self.rtt.least(),
            interval,
            next_pn: self.left + sent,
            idles: self.parties.values().all(|party| party.facts.given.idles),
            yields: self.parties.values().all(|party| party.facts.given.yields),
            flows: given().map(|given| given.flows).max().unwrap_or(NonZeroU8::MIN),
        }
    }

    /// What the receipts of all sessions since the last sum say together, if it is enough to say
    /// something of a rate.
    fn sum(
        &mut self,
        now: Time,
        piece: impl Fn(&mut Party) -> &mut Option<Piece>,
    ) -> Option<Sample> {
        let base = self.rtt.least();
        let mut sum = Sum::default();
        for party in self.parties.values_mut() {
            let over = party.facts.given.rtt_least.saturating_sub(base);
            let (is_active, rates) = (party.is_active(now), party.rates);
            match piece(party) {
                Some(piece) => sum.add(piece, over),
                None if is_active => sum.add_silent(rates),
                None => {}
            }
        }
        let heard: u64 = self.parties.values().map(Party::heard).sum();
        let sample = sum.sample(self.left + heard)?;
        self.parties.values_mut().for_each(|party| *piece(party) = None);
        Some(sample)
    }

    /// Shares out what the machine lets through.
    fn tell_parties(&mut self, now: Time, machine: &mut PathBound, given: &Conditions) {
        let bound = machine.bound();
        let sends = machine.pace(now, given.rtt, given.granted, given.next_pn).min(bound);
        if !machine.is_testing() {
            self.ahead = machine.ramp(now, given.rtt).scale(RAMP_FACTOR).min(bound);
        }
        let ahead = self.ahead.max(sends);
        let sessions = u32::try_from(self.parties.len()).unwrap_or(u32::MAX);
        let standing = Standing { sessions, ..machine.standing() };
        let is_bounded = !bound.is_unlimited();
        let [sends, ahead, bound] = [sends, ahead, bound].map(|node| self.shares(node));
        for (i, party) in self.parties.values_mut().enumerate() {
            party.share = Some(PathShare {
                sends: Rate::from_f64(sends[i].target),
                offer: Rate::from_f64(ahead[i].offer),
                bound: match is_bounded {
                    true => Rate::from_f64(bound[i].offer),
                    false => Rate::UNLIMITED,
                },
                standing,
            });
        }
    }

    /// What each session may have of a node of this capacity.
    fn shares(&self, capacity: Rate) -> Vec<Share> {
        let facts = || self.parties.values().map(|party| &party.facts);
        let room = room(capacity, facts());
        let claims: Vec<Claim> = facts()
            .map(|facts| {
                let (claim, firm) = claimed(capacity, facts);
                Claim { weight: facts.weight, bound: firm + (claim - firm) * room }
            })
            .collect();
        let mut out = Vec::new();
        shares(capacity.as_f64(), &claims, &mut out);
        out
    }
}

/// What a session claims of a node, and what of that is more than room to grow.
fn claimed(capacity: Rate, facts: &Facts) -> (f64, f64) {
    let claim = facts.claim.min(capacity).as_f64();
    (claim, facts.firm.as_f64().min(claim))
}

/// The part that sessions get of the room that they claim, so that it leaves to the others what
/// they want.
fn room<'a>(capacity: Rate, all: impl Iterator<Item = &'a Facts>) -> f64 {
    if capacity.is_unlimited() {
        return 1.0;
    }
    let (mut firm, mut rooms) = (0.0, 0.0);
    for facts in all {
        let (claim, sure) = claimed(capacity, facts);
        (firm, rooms) = (firm + sure, rooms + claim - sure);
    }
    let capacity = capacity.as_f64();
    if rooms > 0.0 { ((capacity - firm).max(capacity * ROOM_PART) / rooms).min(1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests;
