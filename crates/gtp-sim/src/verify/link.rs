//! One link, replayed: what waits in its queue and what travels on its wire.
//!
//! Written from what a link is, not from how `gtp-link` computes it: service is an integral of the
//! rate over time, so that changes of rate need no special case.

use std::collections::{BTreeMap, VecDeque};

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Chance, LinkSpec, LinkState, Order, Reason};

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
    /// In which order it must arrive.
    order: VecDeque<u64>,
    last_arrival: Time,
    /// Some packets in the queue left at times that are not known, because the link changed and
    /// nobody follows lost packets: what waits is at least what is known.
    unsure: bool,
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
        let rate = match spec.state {
            LinkState::Up => spec.rate,
            LinkState::Down => Rate::ZERO,
        };
        if !self.history.is_empty() {
            let lost = self.queue.iter().any(|w| w.fate == Fate::Lost);
            self.unsure |= lost;
            self.queue.retain(|w| w.fate == Fate::Carried);
            self.held = self.queue.iter().fold(Bytes::ZERO, |sum, w| sum + w.size);
        }
        self.history.push((at, rate, spec.delay));
        self.spec = spec.clone();
        breaches
    }

    pub fn accepted(&mut self, record: &Record, leave: Time, fate: Fate) -> Vec<Breach> {
        let mut breaches = self.depart(record.at);
        if self.spec.state == LinkState::Down {
            breaches.push((Rule::Drop, "a link that is down took a packet".into()));
        }
        if self.spec.mtu.is_some_and(|mtu| record.size > mtu) {
            breaches.push((Rule::Drop, format!("{:?} are too long for the link", record.size)));
        }
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
        if let Some(waiting) = self.queue.iter_mut().find(|w| w.packet == record.packet) {
            waiting.leave = leave;
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
        if self.order.front() == Some(&record.packet) {
            self.order.pop_front();
        } else if let Some(ahead) = self.order.iter().position(|&name| name == record.packet) {
            if self.keeps_order() {
                let text = format!("packet {} overtook {ahead} others", record.packet);
                breaches.push((Rule::Order, text));
                self.order.drain(..=ahead);
            } else {
                self.order.remove(ahead);
            }
        }
        self.last_arrival = self.last_arrival.max(record.at);
        breaches
    }

    pub fn dropped(&mut self, record: &Record, reason: Reason) -> Vec<Breach> {
        let mut breaches = self.depart(record.at);
        let why = match reason {
            Reason::Queue if !self.is_full(record.size) && !self.unsure => {
                format!("{:?} wait and {:?} have room", self.waiting(), record.size)
            }
            Reason::Loss if self.spec.loss == Chance::NEVER && self.spec.burst.is_none() => {
                "a link without losses lost a packet".into()
            }
            Reason::Down if self.spec.state == LinkState::Up => "the link is up".into(),
            Reason::Mtu if self.spec.mtu.is_none_or(|mtu| record.size <= mtu) => {
                format!("{:?} are not too long", record.size)
            }
            Reason::Queue | Reason::Loss | Reason::Down | Reason::Mtu => {
                if reason == Reason::Down && self.wire.remove(&record.packet).is_some() {
                    self.order.retain(|&name| name != record.packet);
                    self.queue.retain(|w| w.packet != record.packet);
                    self.held = self.queue.iter().fold(Bytes::ZERO, |sum, w| sum + w.size);
                }
                return breaches;
            }
        };
        breaches.push((Rule::Drop, why));
        breaches
    }

    /// What should have arrived by `end` and has not.
    pub fn overdue(&self, end: Time) -> Vec<Breach> {
        let late =
            self.wire.iter().filter(|&(_, &leave)| self.latest(leave + self.delay_at(leave)) < end);
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
            self.held -= first.size;
            self.queue.pop_front();
        }
        if self.queue.is_empty() {
            self.unsure = false;
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
        let needed = u128::from(size.0) * 8 * 1_000_000_000;
        if leave < start || !self.carries(start, leave, needed) {
            let text = format!("packet {packet} was sent from {start:?} to {leave:?}, too fast");
            return Some((Rule::Rate, text));
        }
        None
    }

    /// Whether so much, in bits times nanoseconds over seconds, can be sent in that time.
    fn carries(&self, from: Time, to: Time, needed: u128) -> bool {
        let mut sum = 0u128;
        for (i, &(since, rate, _)) in self.history.iter().enumerate() {
            let until = self.history.get(i + 1).map_or(Time::MAX, |next| next.0);
            let (a, b) = (since.max(from), until.min(to));
            if a > b {
                continue;
            }
            if rate.is_unlimited() {
                return true;
            }
            sum += u128::from(rate.as_bps()) * u128::from(b.since(a).as_nanos());
        }
        sum >= needed
    }

    /// The delay in force for what left at `leave`: changes at that very time came too late.
    fn delay_at(&self, leave: Time) -> Span {
        let before = self.history.partition_point(|&(at, ..)| at < leave).max(1);
        self.history.get(before - 1).map_or(Span::ZERO, |&(_, _, delay)| delay)
    }

    fn latest(&self, due: Time) -> Time {
        let most = due + self.spec.jitter.span + self.spec.reorder.extra;
        most.max(self.last_arrival)
    }

    fn keeps_order(&self) -> bool {
        let wanders = self.spec.jitter.order == Order::Free && self.spec.jitter.span > Span::ZERO;
        !wanders && self.spec.reorder.chance == Chance::NEVER
    }

    fn is_full(&self, size: Bytes) -> bool {
        !self.queue.is_empty() && self.waiting() + size > self.spec.queue
    }

    /// Bytes that wait behind the packet in service.
    fn waiting(&self) -> Bytes {
        self.held - self.queue.front().map_or(Bytes::ZERO, |in_service| in_service.size)
    }
}
