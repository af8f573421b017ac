//! The physics verifier: whether what a trace says happened can have happened.
//!
//! It replays the steps of all packets and knows nothing of how they were computed: only links'
//! parameters, and what follows from them. A packet is in one place at a time and ends once; it
//! leaves a queue after those before it and when its bytes have had the time that they take, not a
//! nanosecond sooner or later; it travels as long as the wire is; a queue holds no more than it
//! may, and turns nobody away before it is full.

mod link;

use gtp_alloc::{Bytes, Time};
use gtp_link::Reason;

use crate::trace::{Fate, PacketTrace, Record, What};
use link::Replay;

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The trace is whole, and its times do not go back.
    Complete,
    /// Every packet is in one place at a time, and ends once: delivered, dropped or under way.
    Conservation,
    /// A link sends at its rate and no faster, one packet at a time.
    Rate,
    /// Nothing arrives before it has left and travelled.
    Early,
    /// Nothing leaves or arrives later than its link makes it, or never.
    Late,
    /// First in, first out, unless the link was asked to reorder.
    Order,
    /// No queue holds more than its size.
    Queue,
    /// A link drops only for a reason that holds: full, down, too long, lossy.
    Drop,
}

/// One breach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Of which rule.
    pub rule: Rule,
    /// The record that shows it; the number of records for what shows at the end.
    pub record: usize,
    /// What is wrong.
    pub text: String,
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "record {}: {:?}: {}", self.record, self.rule, self.text)
    }
}

/// What a trace that keeps all rules amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Summary {
    /// Packets sent by hosts.
    pub sent: u64,
    /// Copies that links made.
    pub copied: u64,
    /// Packets that hosts took.
    pub delivered: u64,
    /// Packets that links dropped.
    pub dropped: u64,
    /// Packets that hosts had no room for.
    pub refused: u64,
    /// Packets on a link at the end, or held by a host.
    pub under_way: u64,
}

/// Where a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nobody has heard of it.
    Unborn,
    /// At a host or between two links.
    Between,
    /// On a link, until it arrives.
    On(u32),
    /// Lost on this link's wire, which must be said next.
    LostOn(u32),
    /// Nowhere any more.
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    place: Place,
    size: Bytes,
    to: u32,
}

/// The most violations that are told of one trace.
const VIOLATIONS_MOST: usize = 100;

/// Judges a trace of a run that ended at `end`, when `under_way` packets were on links or held by
/// hosts.
///
/// # Errors
/// All breaches of rules, the first hundred of them.
pub fn verify(trace: &PacketTrace, end: Time, under_way: usize) -> Result<Summary, Vec<Violation>> {
    let mut judge = Judge::default();
    if trace.cut {
        judge.breach(Rule::Complete, "the trace had no room for all steps".into());
    }
    let mut changes = trace.links.iter().peekable();
    for (index, record) in trace.records.iter().enumerate() {
        judge.record = index;
        while let Some(change) = changes.next_if(|change| change.record <= index) {
            let held = judge.link(change.link).change(change.at, &change.spec);
            judge.check(held);
        }
        judge.take(record);
        if judge.violations.len() >= VIOLATIONS_MOST {
            return Err(judge.violations);
        }
    }
    judge.record = trace.records.len();
    for change in changes {
        let held = judge.link(change.link).change(change.at, &change.spec);
        judge.check(held);
    }
    judge.finish(end, under_way as u64);
    if judge.violations.is_empty() { Ok(judge.summary) } else { Err(judge.violations) }
}

#[derive(Default)]
struct Judge {
    links: Vec<Replay>,
    packets: Vec<Packet>,
    clock: Time,
    record: usize,
    summary: Summary,
    violations: Vec<Violation>,
}

impl Judge {
    fn breach(&mut self, rule: Rule, text: String) {
        self.violations.push(Violation { rule, record: self.record, text });
    }

    fn check(&mut self, breaches: impl IntoIterator<Item = (Rule, String)>) {
        breaches.into_iter().for_each(|(rule, text)| self.breach(rule, text));
    }

    fn link(&mut self, link: u32) -> &mut Replay {
        let index = link as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, Replay::default);
        }
        &mut self.links[index]
    }

    fn take(&mut self, record: &Record) {
        if record.at < self.clock {
            self.breach(Rule::Complete, format!("{:?} after {:?}", record.at, self.clock));
        }
        self.clock = record.at;
        match record.what {
            What::Sent => {
                self.born(record, Place::Between, record.place);
                self.summary.sent += 1;
            }
            What::Copied { of } => {
                let to = self.packets.get(of as usize).map_or(0, |packet| packet.to);
                self.born(record, Place::On(record.place), to);
                self.summary.copied += 1;
                let held = self.link(record.place).copied(of, record);
                self.check(held.err());
            }
            What::Accepted { leave, fate } => {
                let on = match fate {
                    Fate::Carried => Place::On(record.place),
                    Fate::Lost => Place::LostOn(record.place),
                };
                self.go(record, Place::Between, on);
                let held = self.link(record.place).accepted(record, leave, fate);
                self.check(held);
            }
            What::Moved { leave } => {
                self.go(record, Place::On(record.place), Place::On(record.place));
                self.link(record.place).moved(record, leave);
            }
            What::Arrived => {
                self.go(record, Place::On(record.place), Place::Between);
                let held = self.link(record.place).arrived(record);
                self.check(held);
            }
            What::Dropped(reason) => self.dropped(record, reason),
            What::TurnedAway => {
                self.go(record, Place::Between, Place::Ended);
                self.summary.dropped += 1;
            }
            What::Delivered => {
                self.ended(record);
                self.summary.delivered += 1;
            }
            What::Refused => {
                self.ended(record);
                self.summary.refused += 1;
            }
        }
    }

    fn dropped(&mut self, record: &Record, reason: Reason) {
        let on = Place::On(record.place);
        let from = match reason {
            Reason::Loss => Place::LostOn(record.place),
            Reason::Down if self.place(record.packet) == on => on,
            Reason::Down | Reason::Queue | Reason::Mtu | Reason::Policer => Place::Between,
        };
        self.go(record, from, Place::Ended);
        self.summary.dropped += 1;
        let held = self.link(record.place).dropped(record, reason);
        self.check(held);
    }

    fn ended(&mut self, record: &Record) {
        self.go(record, Place::Between, Place::Ended);
        let to = self.packets.get(record.packet as usize).map(|packet| packet.to);
        if to.is_some_and(|to| to != record.place) {
            let text = format!("packet {} ended where it was not bound for", record.packet);
            self.breach(Rule::Conservation, text);
        }
    }

    fn place(&self, packet: u64) -> Place {
        self.packets.get(packet as usize).map_or(Place::Unborn, |p| p.place)
    }

    fn born(&mut self, record: &Record, place: Place, to: u32) {
        let index = record.packet as usize;
        // Names count up from one, so that no trace can make this larger than itself.
        if index > self.packets.len() + 1 {
            return self.breach(Rule::Complete, format!("packet {index} was named too early"));
        }
        if self.place(record.packet) != Place::Unborn {
            return self.breach(Rule::Conservation, format!("packet {index} was there already"));
        }
        let unborn = Packet { place: Place::Unborn, size: Bytes::ZERO, to: 0 };
        self.packets.resize(self.packets.len().max(index + 1), unborn);
        self.packets[index] = Packet { place, size: record.size, to };
    }

    fn go(&mut self, record: &Record, from: Place, to: Place) {
        let packet = self.packets.get_mut(record.packet as usize);
        let (is, size) =
            packet.as_ref().map_or((Place::Unborn, record.size), |p| (p.place, p.size));
        if let Some(packet) = packet {
            packet.place = to;
        }
        if is != from {
            let text = format!(
                "packet {} is {is:?} when {:?} happens to it at {}",
                record.packet, record.what, record.place
            );
            self.breach(Rule::Conservation, text);
        }
        if size != record.size {
            let text = format!("packet {} has {:?}, had {size:?}", record.packet, record.size);
            self.breach(Rule::Conservation, text);
        }
    }

    fn finish(&mut self, end: Time, under_way: u64) {
        let open = self
            .packets
            .iter()
            .filter(|p| matches!(p.place, Place::Between | Place::On(_) | Place::LostOn(_)));
        self.summary.under_way = open.count() as u64;
        if self.summary.under_way != under_way {
            let text = format!(
                "{} packets have not ended, and {under_way} are under way",
                self.summary.under_way
            );
            self.breach(Rule::Conservation, text);
        }
        let mut overdue = Vec::new();
        for link in &self.links {
            overdue.extend(link.overdue(end));
        }
        self.check(overdue);
    }
}
