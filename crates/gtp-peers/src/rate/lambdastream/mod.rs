//! LambdaStream: streaming at a rate that is kept constant until the path changes.
//!
//! Source: Xiong, Leigh, He, Vishwanath, Murata, Renambot and DeFanti, "LambdaStream - a data
//! transport protocol for streaming network-intensive applications over photonic networks" (L). The
//! laws are in [`law`] (`gtp-laws`), frames and their jitter in [`frames`]; this file is the two
//! ends.
//!
//! Rules:
//! - L1 the sender paces at the rate that the receiver asks for; it begins with the link's capacity
//!   over the greatest number of flows (1).
//! - L2 once an epoch the receiver averages receiving over sending gaps, spikes removed (2.1), and
//!   asks for a new rate if 4.2 gives one.
//! - L3 a loss is judged when it shows (4.1), and may lengthen the gap at once.
//! - L4 every 8,000 packets, 300 leave as a train at rising rates (4.4).
//! - L5 quick notification: a gap in the block numbers is reported at once, and resent at once (3).
//! - L6 epoch notification: each epoch what was reported and did not come within 1.5 round trips is
//!   reported again; [`Delivery::Unreliable`] turns it off, and then nothing waits for a block (3).
//!
//! Departures and choices where L is silent:
//! - D1 An epoch is a round trip, at least 20 ms, and until 20 ms of samples have come that left at
//!   the rate that L2 last asked for, or a cut of L3 since: older ones say nothing about this one.
//! - D2 One cut of L3 at a time: the next waits until packets at the new rate have come. The
//!   pseudo-code would cut once for each of the thousands of gaps of one overload.
//! - D3 Packets of a train are no samples for L2.
//! - D4 The first train leaves with the first packets, and trains need more data than the
//!   application's rate gives: a sender below its rate for want of data sends none.
//! - D5 The available bandwidth `A` is kept from train to train; what is free is `A` less the rate.
//! - D6 Feedback is datagrams. A rate that is not seen in data within two round trips is asked for
//!   again; the end of a transfer that ends is said each epoch until the sender answers.
//! - D7 The last blocks of a transfer that ends show no gap: after two epochs without data they
//!   count as reported. Without reliable delivery a lost last block hides the end.
//! - D8 A receiving gap across a loss is divided by the numbers passed (eq. 2), so that heavy loss
//!   hides in the ratio and is left to L3. Samples of adjacent packets alone show the overload at
//!   once, but two flows then still differ by half after 45 s: the choice decides Fig. 10(a).
//! - D9 The first round trip is measured by asking for the rate that there is.

pub mod frames;

pub use gtp_laws::lambdastream as law;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Rate, Span, Time};

use self::frames::Frames;
use self::law::{Differentiation, GROUP, Loss, PERIOD, RateControl, TRAIN};
use super::message::{self, Data, FIELDS, Message, Stamp};
use super::pacer::{self, Pacer};
use super::transfer::{Arrivals, Backlog, Ordinals, Transfer};
use super::wanted::Wanted;
use crate::{Body, Endpoint, Packet, Progress};

/// What LambdaStream's ends say beside data.
#[derive(Clone, Debug, PartialEq)]
pub enum Feedback {
    /// L1: this rate, please. Rates are numbered, and data says which one it left at.
    Rate {
        /// The rate's number.
        number: u64,
        /// Bits on links a second.
        rate: Rate,
    },
    /// L5, L6: these blocks are missing.
    Missing(Vec<Range<u64>>),
    /// D6: everything is here.
    Done,
    /// D6: the sender has heard it.
    Bye,
}

/// What LambdaStream must be told about its network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// `L`: the link's capacity.
    pub link: Rate,
    /// L1: the first rate.
    pub initial: Rate,
    /// L6.
    pub delivery: Delivery,
}

/// Whether blocks that were lost more than once are still wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// All blocks are delivered, in order.
    #[default]
    Reliable,
    /// What is lost twice stays lost; blocks are delivered as they come.
    Unreliable,
}

/// What a packet's mark holds: the number of its rate, and its group in a train, from one on.
fn mark(number: u64, group: u64) -> u64 {
    number << 8 | group
}

/// LambdaStream's sending end.
#[derive(Clone, Debug)]
pub struct Sender {
    transfer: Transfer,
    link: f64,
    rate: Rate,
    number: u64,
    demand: Option<Rate>,
    pacer: Pacer,
    stamp: Stamp,
    backlog: Backlog,
    /// D6.
    done: bool,
    bye: bool,
}

impl Sender {
    /// A sender of `transfer`.
    pub fn new(transfer: Transfer, terms: Terms) -> Sender {
        Sender {
            transfer,
            link: terms.link.as_f64(),
            rate: terms.initial,
            number: 0,
            demand: None,
            pacer: Pacer::new(),
            stamp: Stamp::default(),
            backlog: Backlog::new(&transfer),
            done: false,
            bye: false,
        }
    }

    /// L4, D4: the train's group that the next packet is in, from one on.
    fn group(&self) -> u64 {
        let place = self.stamp.sent % PERIOD;
        let wanting = self.demand.is_some_and(|rate| rate <= self.rate);
        if place < TRAIN && !wanting { place / GROUP + 1 } else { 0 }
    }

    fn spacing(&self) -> f64 {
        let group = self.group();
        let rate = law::train_rate(self.rate.as_f64(), group.saturating_sub(1), self.link);
        let gap = pacer::gap(self.transfer.packet(), Rate::from_f64(rate));
        let limit = self.demand.map_or(0.0, |rate| pacer::gap(self.transfer.packet(), rate));
        if group > 0 { gap } else { gap.max(limit) }
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, _now: Time, packet: &Packet) {
        let Body::Rate(Message::Lambda(feedback)) = &packet.body else { return };
        match feedback {
            Feedback::Rate { number, rate } => {
                if *number > self.number {
                    (self.number, self.rate) = (*number, *rate);
                }
            }
            Feedback::Missing(ranges) => {
                for range in ranges {
                    self.backlog.repeat(range.clone());
                }
            }
            Feedback::Done => (self.done, self.bye) = (true, true),
            Feedback::Bye => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if core::mem::take(&mut self.bye) {
            let bye = Message::Lambda(Feedback::Bye);
            return Some(message::control(&self.transfer, FIELDS.0, bye));
        }
        let spacing = self.spacing();
        if self.done || !self.pacer.is_ready(now, spacing) {
            return None;
        }
        let mark = mark(self.number, self.group());
        let pick = self.backlog.take(u64::MAX)?;
        self.pacer.note_sent(now, spacing);
        let header = self.stamp.next(now, pick, spacing);
        Some(message::data(&self.transfer, Data { mark, ..header }))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let due = !self.done && self.backlog.has_more(u64::MAX);
        due.then(|| self.pacer.due(self.spacing()))
    }

    fn set_demand(&mut self, _now: Time, rate: Option<Rate>) {
        self.demand = rate;
    }

    fn progress(&self) -> Progress {
        let known = if self.done { self.transfer.blocks() } else { 0 };
        Progress { done: self.done, ..self.stamp.progress(&self.transfer, known, self.rate) }
    }
}

/// LambdaStream's receiving end.
#[derive(Clone, Debug)]
pub struct Receiver {
    transfer: Transfer,
    terms: Terms,
    arrivals: Arrivals,
    ordinals: Ordinals,
    wanted: Wanted,
    control: RateControl,
    differentiation: Differentiation,
    frames: Option<Frames>,
    /// L1: the rate asked for, its number, when it was asked for, and whether it was seen.
    rate: f64,
    number: u64,
    asked: Time,
    seen: bool,
    /// D1: samples count from the rate of this number on.
    measured: u64,
    rtt: Option<Span>,
    /// The packet before: when it came, when it left, its number and its train's group.
    before: Option<(Time, Data)>,
    samples: Samples,
    train: Train,
    /// D5.
    available: Option<f64>,
    ratio: Option<f64>,
    epoch: Option<Time>,
    /// D7.
    quiet_since: Time,
    heard: bool,
    updates: u64,
    cuts: u64,
    outbox: VecDeque<Feedback>,
}

/// L2: the gaps of one epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    count: u64,
    ratios: f64,
    spanned: f64,
}

/// L4: the train that is arriving: the group's number, its first and its last packet, and the
/// groups before it as (sent, came) in bit/s.
#[derive(Clone, Debug, Default)]
struct Train {
    group: u64,
    first: Option<(Time, Data)>,
    last: Option<(Time, Data)>,
    count: u64,
    groups: Vec<(f64, f64)>,
}

impl Receiver {
    /// A receiver of `transfer`, which may notice frames of `frames` blocks.
    pub fn new(transfer: Transfer, terms: Terms, frames: Option<u64>) -> Receiver {
        Receiver {
            transfer,
            terms,
            arrivals: Arrivals::new(transfer),
            ordinals: Ordinals::default(),
            wanted: Wanted::new(),
            control: RateControl::new(terms.link.as_f64()),
            differentiation: Differentiation::default(),
            frames: frames.map(Frames::of),
            rate: terms.initial.as_f64(),
            number: 0,
            asked: Time::ZERO,
            seen: true,
            measured: 0,
            rtt: None,
            before: None,
            samples: Samples::default(),
            train: Train::default(),
            available: None,
            ratio: None,
            epoch: None,
            quiet_since: Time::ZERO,
            heard: false,
            updates: 0,
            cuts: 0,
            outbox: VecDeque::new(),
        }
    }

    /// When frames were complete, if they are noticed.
    pub fn frames(&self) -> Option<&Frames> {
        self.frames.as_ref()
    }

    /// Changes of the rate by L2, and by L3.
    pub fn changes(&self) -> (u64, u64) {
        (self.updates, self.cuts)
    }

    /// L2: the mean ratio of receiving over sending gaps in the last epoch (L, Fig. 3).
    pub fn ratio(&self) -> Option<f64> {
        self.ratio
    }

    /// L4: what the last train found to be available, in bit/s.
    pub fn available(&self) -> Option<f64> {
        self.available
    }

    fn packet_bits(&self) -> f64 {
        self.transfer.packet().0 as f64 * 8.0
    }

    /// L1.
    fn ask(&mut self, now: Time, rate: f64) {
        self.rate = rate;
        self.number += 1;
        (self.asked, self.seen) = (now, false);
        self.say_rate();
    }

    fn say_rate(&mut self) {
        let rate = Rate::from_f64(self.rate);
        self.outbox.push_back(Feedback::Rate { number: self.number, rate });
    }

    /// L2 and L3: the packet beside the one before it.
    fn note_gap(&mut self, now: Time, data: &Data) {
        if !self.seen && data.mark >> 8 == self.number {
            self.seen = true;
            let sample = now.since(self.asked);
            self.rtt = Some(self.rtt.map_or(sample, |old| (old * 7 + sample) / 8));
        }
        let Some((came, last)) = self.before.replace((now, *data)) else { return };
        if data.ordinal <= last.ordinal {
            return;
        }
        let delay = law::average_delay(now.since(came).as_secs_f64(), data.ordinal, last.ordinal);
        // Eq. 2's divisor is the same on both sides of the ratio.
        let sent = data.sent.since(last.sent).as_secs_f64();
        let gap = law::average_delay(sent, data.ordinal, last.ordinal);
        let current = data.mark >= mark(self.measured, 0) && data.mark & 0xff == 0;
        if current && last.mark == data.mark && gap > 0.0 && delay <= law::SPIKE * gap {
            self.samples.count += 1;
            self.samples.ratios += delay / gap;
            self.samples.spanned += sent;
        }
        if data.ordinal > last.ordinal + 1
            && self.differentiation.judge(data.ordinal, delay, gap) == Loss::Counts
            && self.seen
        {
            self.cuts += 1;
            self.ask(now, self.rate / (1.0 + law::K1));
        }
    }

    /// L4.
    fn note_train(&mut self, now: Time, data: &Data) {
        let group = data.mark & 0xff;
        if group != self.train.group {
            self.end_group();
            if group <= 1 {
                self.end_train();
            }
            self.train.group = group;
            (self.train.first, self.train.last, self.train.count) = (None, None, 0);
        }
        if group > 0 {
            self.train.first.get_or_insert((now, *data));
            self.train.last = Some((now, *data));
            self.train.count += 1;
        }
    }

    fn end_group(&mut self) {
        let (Some(first), Some(last)) = (self.train.first, self.train.last) else { return };
        let sent = last.1.sent.since(first.1.sent).as_secs_f64();
        let came = last.0.since(first.0).as_secs_f64();
        if sent > 0.0 && came > 0.0 {
            let left = self.packet_bits() * (last.1.ordinal.saturating_sub(first.1.ordinal)) as f64;
            let arrived = self.packet_bits() * (self.train.count - 1) as f64;
            self.train.groups.push((left / sent, arrived / came));
        }
    }

    fn end_train(&mut self) {
        if let Some(rate) = law::available(&self.train.groups) {
            self.available = Some(rate);
        }
        self.train.groups.clear();
    }

    /// L5.
    fn note_block(&mut self, now: Time, data: &Data) {
        let top = self.arrivals.top();
        if self.arrivals.insert(data.block) && data.block > top {
            self.wanted.ask(now, top..data.block);
            self.outbox.push_back(Feedback::Missing(alloc::vec![top..data.block]));
        }
        self.wanted.note_arrival(data.block);
        let readable = match self.terms.delivery {
            Delivery::Reliable => self.arrivals.prefix(),
            Delivery::Unreliable => self.arrivals.top(),
        };
        if let Some(frames) = &mut self.frames {
            frames.note(now, readable);
        }
    }

    /// D1.
    fn epoch_length(&self) -> Span {
        self.rtt.map_or(LEAST_EPOCH, |rtt| rtt.max(LEAST_EPOCH))
    }

    fn end_epoch(&mut self, now: Time) {
        let enough = self.samples.spanned >= LEAST_EPOCH.as_secs_f64();
        if self.samples.count > 0 && enough {
            let ratio = self.samples.ratios / self.samples.count as f64;
            self.ratio = Some(ratio);
            let free = self.available.map_or(0.0, |a| a - self.rate);
            self.samples = Samples::default();
            let next = self.control.update(self.rate, ratio, free);
            if next != self.rate {
                self.updates += 1;
                self.ask(now, next);
                self.measured = self.number;
            }
        }
        let patience = self.rtt.unwrap_or(LEAST_EPOCH) * 3 / 2;
        if !self.seen && now >= self.asked + self.epoch_length() * 2 {
            self.say_rate();
        }
        if self.terms.delivery == Delivery::Reliable {
            self.notify(now, patience);
        }
        if self.arrivals.is_complete() && !self.heard {
            self.outbox.push_back(Feedback::Done);
        }
    }

    /// L6, D7.
    fn notify(&mut self, now: Time, patience: Span) {
        if self.transfer.is_finite() && now >= self.quiet_since + self.epoch_length() * 2 {
            self.wanted.ask(now.saturating_sub(patience), self.tail());
            self.quiet_since = now;
        }
        let overdue = self.wanted.ask_again(now, |at, _| now >= at + patience);
        self.outbox.extend(message::pages(overdue).into_iter().map(Feedback::Missing));
    }

    /// D7: what lies beyond the highest block seen and is not asked for yet.
    fn tail(&self) -> Range<u64> {
        let asked = self.wanted.end().max(self.arrivals.top());
        asked..self.transfer.blocks()
    }
}

impl Endpoint for Receiver {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(message) = &packet.body else { return };
        if let Message::Data(data) = message {
            self.quiet_since = now;
            self.ordinals.note(data.ordinal);
            self.note_train(now, data);
            self.note_gap(now, data);
            self.note_block(now, data);
        }
        if let Message::Lambda(Feedback::Bye) = message {
            self.heard = true;
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let Some(due) = self.epoch else { return };
        if now < due {
            return;
        }
        self.end_epoch(now);
        // D1: an epoch that lacks samples only goes on until it has them.
        let lacks = self.samples.count > 0;
        let next = if lacks { LEAST_EPOCH } else { self.epoch_length() };
        self.epoch = (!self.heard).then(|| now + next);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if self.epoch.is_none() && !self.heard {
            self.epoch = Some(now + LEAST_EPOCH);
            self.quiet_since = now;
            // D9.
            self.ask(now, self.rate);
        }
        let feedback = self.outbox.pop_front()?;
        let bytes = match &feedback {
            Feedback::Missing(ranges) => message::bytes_of(ranges),
            Feedback::Rate { .. } | Feedback::Done | Feedback::Bye => FIELDS.0,
        };
        Some(message::control(&self.transfer, bytes, Message::Lambda(feedback)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.epoch
    }

    /// See [`Slow`](super::Slow) for a receiver that reads slowly: LambdaStream notices by itself.
    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}

    fn progress(&self) -> Progress {
        let delivered = match self.terms.delivery {
            Delivery::Reliable => self.arrivals.in_order(),
            Delivery::Unreliable => self.arrivals.in_place(),
        };
        let done = match self.terms.delivery {
            Delivery::Reliable => self.arrivals.is_complete(),
            Delivery::Unreliable => self.arrivals.top() == self.transfer.blocks(),
        };
        Progress {
            delivered,
            rate: Rate::from_f64(self.rate),
            rtt: self.rtt.unwrap_or(Span::ZERO),
            done,
            ..Progress::default()
        }
    }
}

/// D1.
const LEAST_EPOCH: Span = Span::from_millis(20);
