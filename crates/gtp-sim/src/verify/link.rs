//! One link, replayed: what waits in its queue and what travels on its wire.
//!
//! Written from what a link is, not from how `gtp-link` computes it: service is an integral of the
//! rate over time, so that changes of rate need no special case.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Chance, LinkSpec, LinkState, Order, Reason, Trace};

use super::Rule;
use crate::trace::{Fate, Record};

type Breach = (Rule, String);

/// A link as the verifier sees it.
#[derive(Default)]
pub(super) struct Replay {
    spec: LinkSpec,
    /// From when on it was what: rate (zero while down) and delay.
    history: Vec<(Time, Rate, Span)>,
    queue: VecDeque<Waiting>,
    /// Bytes of them.
    held: Bytes,
    /// When the last packet that is not in `queue` left.
    left: Time,
    /// What travels, by name.
    wire: BTreeMap<u64, Time>,
    /// In which order it must arrive; what is not on the wire any more is passed over.
    order: VecDeque<u64>,
    /// Of what is on the wire: what was cut off when the link went down, and must be dropped.
    cut: BTreeSet<u64>,
    last_arrival: Time,
    /// No lost packet would have arrived after that; those behind it keep their turn all the same.
    last_lost: Time,
    /// Bytes of lost packets that waited when the rate changed. Nobody tells when such a packet
    /// leaves then, only that it has left by `unsure_until`: what waits is at least what is known.
    ghosts: Bytes,
    unsure_until: Time,
    /// Where in the queue the next packet waits that a change moves.
    next_moved: usize,
    bucket: Bucket,
}

/// What passed a policer: tokens spent beyond those that came in since, in the parts of [`BYTE`].
#[derive(Default)]
struct Bucket {
    owed: u128,
    at: Time,
}

#[derive(Clone, Copy)]
struct Waiting {
    packet: u64,
    size: Bytes,
    offered: Time,
    leave: Time,
    fate: Fate,
}

impl Replay {
    pub fn change(&mut self, at: Time, spec: &LinkSpec) -> Vec<Breach> {
        let breaches = self.depart(at);
        if self.ghosts > Bytes::ZERO {
            self.lost_leaves(self.unsure_until.min(at));
        }
        let rate = match spec.state {
            LinkState::Up => spec.rate,
            LinkState::Down => Rate::ZERO,
        };
        let is_new = self.history.last().is_some_and(|&(_, before, _)| before != rate);
        match spec.state {
            LinkState::Down => self.cut_off(at),
            LinkState::Up if is_new => self.forget_lost(at, rate),
            LinkState::Up => {}
        }
        self.next_moved = 0;
        self.history.push((at, rate, spec.delay));
        self.spec = spec.clone();
        breaches
    }

    /// The last bit of a lost packet leaves then at the latest.
    fn lost_leaves(&mut self, leave: Time) {
        self.last_lost = self.last_lost.max(self.in_turn(leave));
    }

    /// What waits never leaves.
    fn cut_off(&mut self, at: Time) {
        let waits = self.wire.iter().filter(|&(_, &leave)| leave > at);
        self.cut.extend(waits.map(|(&name, _)| name));
        self.queue.clear();
        (self.held, self.ghosts, self.unsure_until) = (Bytes::ZERO, Bytes::ZERO, at);
    }

    /// Lost packets that wait leave at times of their own from now on.
    fn forget_lost(&mut self, at: Time, rate: Rate) {
        if at >= self.unsure_until {
            self.ghosts = Bytes::ZERO;
        }
        let most = self.held + self.ghosts;
        let all = self.queue.len() as u64 + self.ghosts.0;
        self.queue.retain(|w| w.fate == Fate::Carried);
        let known = self.queue.iter().fold(Bytes::ZERO, |sum, w| sum + w.size);
        self.ghosts = most - known;
        self.held = known;
        if self.ghosts > Bytes::ZERO {
            // All of it anew, and a nanosecond of rounding each; a packet has a byte or more.
            self.unsure_until = at + most / rate + Span::from_nanos(all);
        }
    }

    pub fn accepted(&mut self, record: &Record, leave: Time, fate: Fate) -> Vec<Breach> {
        let mut breaches = self.depart(record.at);
        if self.spec.state == LinkState::Down {
            breaches.push((Rule::Drop, "a link that is down took a packet".into()));
        }
        if self.spec.mtu.is_some_and(|mtu| record.size > mtu) {
            breaches.push((Rule::Drop, format!("{:?} are too long for the link", record.size)));
        }
        breaches.extend(self.police(record, Passage::Passed));
        if self.is_full(record.size) {
            let text = format!(
                "{:?} wait and {:?} come to a queue of {:?}",
                self.waiting(),
                record.size,
                self.spec.queue
            );
            breaches.push((Rule::Queue, text));
        }
        let before = self.queue.back().map_or(self.left, |last| last.leave);
        let waiting =
            Waiting { packet: record.packet, size: record.size, offered: record.at, leave, fate };
        breaches.extend(self.serve(before, &waiting));
        self.queue.push_back(waiting);
        self.held += record.size;
        if fate == Fate::Carried {
            self.wire.insert(record.packet, leave);
            self.order.push_back(record.packet);
        }
        breaches
    }

    pub fn copied(&mut self, of: u64, record: &Record) -> Result<(), Breach> {
        let Some(&leave) = self.wire.get(&of) else {
            return Err((Rule::Conservation, format!("a copy of {of}, which is not there")));
        };
        self.wire.insert(record.packet, leave);
        self.order.push_back(record.packet);
        if self.spec.duplicate == Chance::NEVER {
            return Err((Rule::Conservation, "a link that copies nothing made a copy".into()));
        }
        Ok(())
    }

    pub fn moved(&mut self, record: &Record, leave: Time) {
        self.wire.insert(record.packet, leave);
        // They are mostly told in the order in which they wait.
        let is_next = |w: &Waiting| w.packet == record.packet;
        let place = match self.queue.get(self.next_moved) {
            Some(next) if is_next(next) => Some(self.next_moved),
            Some(_) | None => self.queue.iter().position(is_next),
        };
        if let Some(place) = place {
            self.queue[place].leave = leave;
            self.next_moved = place + 1;
        }
    }

    pub fn arrived(&mut self, record: &Record) -> Vec<Breach> {
        let mut breaches = self.depart(record.at);
        let Some(leave) = self.wire.remove(&record.packet) else { return breaches };
        let due = leave + self.delay_at(leave);
        if record.at < due {
            let text = format!("packet {} arrived at {:?}, due {due:?}", record.packet, record.at);
            breaches.push((Rule::Early, text));
        }
        if record.at > self.latest(due) {
            let text = format!("packet {} arrived at {:?}, due {due:?}", record.packet, record.at);
            breaches.push((Rule::Late, text));
        }
        if self.cut.remove(&record.packet) {
            let text = format!("packet {} was cut off and arrived", record.packet);
            breaches.push((Rule::Rate, text));
        }
        breaches.extend(self.take_turn(record.packet));
        self.last_arrival = self.last_arrival.max(record.at);
        breaches
    }

    /// A packet, no longer on the wire, has arrived: whether it was its turn.
    fn take_turn(&mut self, packet: u64) -> Option<Breach> {
        while let Some(first) = self.order.front()
            && !self.wire.contains_key(first)
        {
            if self.order.pop_front() == Some(packet) {
                return None;
            }
        }
        if !self.keeps_order() {
            return None;
        }
        let place = self.order.iter().position(|&name| name == packet)?;
        let ahead = self.order.drain(..=place).filter(|name| self.wire.contains_key(name)).count();
        Some((Rule::Order, format!("packet {packet} overtook {ahead} others")))
    }

    pub fn dropped(&mut self, record: &Record, reason: Reason) -> Vec<Breach> {
        let mut breaches = self.depart(record.at);
        match reason {
            Reason::Queue => breaches.extend(self.police(record, Passage::Passed)),
            Reason::Policer => {
                breaches.extend(self.police(record, Passage::Dropped));
                return breaches;
            }
            Reason::Loss | Reason::Down | Reason::Mtu => {}
        }
        let why = match reason {
            Reason::Queue if !self.is_full(record.size) && record.at >= self.unsure_until => {
                format!("{:?} wait and {:?} have room", self.waiting(), record.size)
            }
            Reason::Loss if self.spec.loss == Chance::NEVER && self.spec.burst.is_none() => {
                "a link without losses lost a packet".into()
            }
            Reason::Down if self.spec.state == LinkState::Up => "the link is up".into(),
            Reason::Mtu if self.spec.mtu.is_none_or(|mtu| record.size <= mtu) => {
                format!("{:?} are not too long", record.size)
            }
            Reason::Queue | Reason::Loss | Reason::Down | Reason::Mtu | Reason::Policer => {
                let was_here = reason == Reason::Down && self.wire.remove(&record.packet).is_some();
                if was_here && !self.cut.remove(&record.packet) {
                    let text = format!("packet {} had left the queue", record.packet);
                    breaches.push((Rule::Drop, text));
                }
                return breaches;
            }
        };
        breaches.push((Rule::Drop, why));
        breaches
    }

    /// What should have arrived by `end`, or have been dropped, and has not.
    pub fn overdue(&self, end: Time) -> Vec<Breach> {
        let is_late = |name: &u64, leave: Time| {
            self.cut.contains(name) || self.latest(leave + self.delay_at(leave)) < end
        };
        let late = self.wire.iter().filter(|&(name, &leave)| is_late(name, leave));
        late.map(|(name, _)| (Rule::Late, format!("packet {name} never arrived"))).collect()
    }

    /// Lets go of what has left by `now`, and checks that it could.
    fn depart(&mut self, now: Time) -> Vec<Breach> {
        let mut breaches = Vec::new();
        while let Some(&first) = self.queue.front()
            && first.leave <= now
        {
            // Checked again: a change may have moved it since it was accepted.
            breaches.extend(self.serve(self.left, &first));
            self.left = self.left.max(first.leave);
            if first.fate == Fate::Lost {
                self.lost_leaves(first.leave);
            }
            self.held -= first.size;
            self.queue.pop_front();
        }
        breaches
    }

    /// Whether a packet behind one that leaves at `before` can have left when it did.
    fn serve(&self, before: Time, waiting: &Waiting) -> Option<Breach> {
        let Waiting { packet, size, offered, leave, .. } = *waiting;
        if leave < before {
            return Some((Rule::Order, format!("packet {packet} left before one ahead of it")));
        }
        let start = before.max(offered);
        let needed = u128::from(size.0) * BYTE;
        let is_early = leave < start || self.carried(start, leave) < needed;
        if is_early && leave < Time::MAX {
            let text = format!("packet {packet} was sent from {start:?} to {leave:?}, too fast");
            return Some((Rule::Rate, text));
        }
        // A lost packet that nobody follows may have been ahead of it.
        let start = start.max(self.unsure_until);
        if self.waits_too_long(start, leave, needed) {
            let text = format!("packet {packet} was sent from {start:?} to {leave:?}, too late");
            return Some((Rule::Late, text));
        }
        None
    }

    /// Whether a packet that began at `start` could have left a nanosecond before `leave`.
    ///
    /// A change of rate on the way may cost it what links round by then: a byte, and what the old
    /// rate sends in a nanosecond. A rate of zero may make it begin anew.
    fn waits_too_long(&self, start: Time, leave: Time, needed: u128) -> bool {
        let last = leave.saturating_sub(Span::from_nanos(1));
        let (mut start, mut rounded, mut old) = (start, 0, Rate::ZERO);
        for (since, until, rate) in self.stretches(start, last) {
            if rate == Rate::ZERO {
                (start, rounded) = (until, 0);
            } else if since > start && rate != old {
                rounded += BYTE + u128::from(old.as_bps());
            }
            old = rate;
        }
        if self.spec.trace.is_some() {
            // What an opportunity at its start has left is not known here.
            start += Span::from_nanos(1);
        }
        start < leave && self.carried(start, last) >= needed + rounded
    }

    /// What can be sent in that time, in bits times nanoseconds over seconds.
    fn carried(&self, from: Time, to: Time) -> u128 {
        if let Some(trace) = &self.spec.trace {
            let after = trace.before(to + Span::from_nanos(1));
            let opportunities = after.saturating_sub(trace.before(from));
            return u128::from(opportunities) * u128::from(Trace::OPPORTUNITY.0) * BYTE;
        }
        let mut sum = 0u128;
        for (since, until, rate) in self.stretches(from, to) {
            let since = since.max(from);
            if rate.is_unlimited() && since < until {
                return u128::MAX;
            }
            let span = until.min(to).since(since);
            sum += u128::from(rate.as_bps()) * u128::from(span.as_nanos());
        }
        sum
    }

    /// From when until when it had which rate, as far as it touches that time. Some of them, when
    /// changes came together, are empty.
    fn stretches(&self, from: Time, to: Time) -> impl Iterator<Item = (Time, Time, Rate)> {
        let first = self.history.partition_point(|&(since, ..)| since <= from).max(1) - 1;
        let rest = &self.history[first.min(self.history.len())..];
        let until = rest.iter().skip(1).map(|next| next.0).chain([Time::MAX]);
        let all = rest.iter().zip(until).map(|(&(since, rate, _), until)| (since, until, rate));
        all.take_while(move |&(since, ..)| since <= to)
    }

    /// The delay in force for what left at `leave`: changes at that very time came too late.
    fn delay_at(&self, leave: Time) -> Span {
        let before = self.history.partition_point(|&(at, ..)| at < leave).max(1);
        self.history.get(before - 1).map_or(Span::ZERO, |&(_, _, delay)| delay)
    }

    fn latest(&self, due: Time) -> Time {
        let most = due + self.spec.jitter.span + self.spec.reorder.extra;
        let ghosts = match self.ghosts {
            Bytes::ZERO => Time::ZERO,
            Bytes(_) => self.in_turn(self.unsure_until),
        };
        most.max(self.last_arrival).max(self.last_lost).max(ghosts)
    }

    /// The latest arrival of what leaves then and is not held back out of turn.
    fn in_turn(&self, leave: Time) -> Time {
        leave + self.delay_at(leave) + self.spec.jitter.span
    }

    fn keeps_order(&self) -> bool {
        let wanders = self.spec.jitter.order == Order::Free && self.spec.jitter.span > Span::ZERO;
        !wanders && self.spec.reorder.chance == Chance::NEVER
    }

    /// Whether a packet could pass the policer, or be dropped by it, at its time.
    fn police(&mut self, record: &Record, passage: Passage) -> Option<Breach> {
        let Some(policer) = self.spec.policer else {
            let text = "a link without a policer dropped a packet by one".to_owned();
            return (passage == Passage::Dropped).then_some((Rule::Drop, text));
        };
        let span = u128::from(record.at.since(self.bucket.at).as_nanos());
        let came = u128::from(policer.rate.as_bps()) * span;
        let owed = self.bucket.owed.saturating_sub(came);
        self.bucket = Bucket { owed, at: record.at };
        let fits = owed + u128::from(record.size.0) * BYTE <= u128::from(policer.bucket.0) * BYTE;
        match (passage, fits) {
            (Passage::Passed, true) => self.bucket.owed += u128::from(record.size.0) * BYTE,
            (Passage::Dropped, false) => {}
            (Passage::Passed, false) => {
                let text = format!("{:?} passed a policer without tokens", record.size);
                return Some((Rule::Drop, text));
            }
            (Passage::Dropped, true) => {
                let text = format!("a policer with tokens dropped {:?}", record.size);
                return Some((Rule::Drop, text));
            }
        }
        None
    }

    fn is_full(&self, size: Bytes) -> bool {
        !self.queue.is_empty() && self.waiting() + size > self.spec.queue
    }

    /// Bytes that wait behind the packet in service.
    fn waiting(&self) -> Bytes {
        self.held - self.queue.front().map_or(Bytes::ZERO, |in_service| in_service.size)
    }
}

/// What a policer did with a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passage {
    Passed,
    Dropped,
}

/// A byte in bits times nanoseconds over seconds.
const BYTE: u128 = 8 * 1_000_000_000;
