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

pub use gtp_laws::{frames, lambdastream as law};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Rate, Span, Time};

use self::frames::Frames;
use self::law::{Arrived, GROUP, Judge, LEAST_EPOCH, PERIOD, TRAIN};
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
    judge: Judge,
    frames: Option<Frames>,
    /// The number of the rate that was said last, and the packet before.
    said: u64,
    newest: Option<u64>,
    epoch: Option<Time>,
    /// D7.
    quiet_since: Time,
    heard: bool,
    outbox: VecDeque<Feedback>,
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
            judge: Judge::new(terms.link, terms.initial, transfer.packet()),
            frames: frames.map(Frames::of),
            said: 0,
            newest: None,
            epoch: None,
            quiet_since: Time::ZERO,
            heard: false,
            outbox: VecDeque::new(),
        }
    }

    /// When frames were complete, if they are noticed.
    pub fn frames(&self) -> Option<&Frames> {
        self.frames.as_ref()
    }

    /// Changes of the rate by L2, and by L3.
    pub fn changes(&self) -> (u64, u64) {
        self.judge.changes()
    }

    /// L2: the mean ratio of receiving over sending gaps in the last epoch (L, Fig. 3).
    pub fn ratio(&self) -> Option<f64> {
        self.judge.ratio()
    }

    /// L4: what the last train found to be available, in bit/s.
    pub fn available(&self) -> Option<f64> {
        self.judge.available()
    }

    /// L1: says the rate, if it is a new one.
    fn say_new_rate(&mut self) {
        if self.judge.number() != self.said {
            self.say_rate();
        }
    }

    fn say_rate(&mut self) {
        self.said = self.judge.number();
        let feedback = Feedback::Rate { number: self.said, rate: self.judge.rate() };
        self.outbox.push_back(feedback);
    }

    /// L2 to L4.
    fn note_packet(&mut self, now: Time, data: &Data) {
        let lost = self.newest.map_or(0, |newest| data.ordinal.saturating_sub(newest + 1));
        self.newest = Some(data.ordinal);
        let (rate, group) = (data.mark >> 8, data.mark & 0xff);
        let (ordinal, sent) = (data.ordinal, data.sent);
        self.judge.note(now, &Arrived { ordinal, sent, rate, group, came: 1, lost });
        self.say_new_rate();
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

    fn end_epoch(&mut self, now: Time) {
        self.judge.end_epoch(now);
        self.say_new_rate();
        let patience = self.judge.rtt().unwrap_or(LEAST_EPOCH) * 3 / 2;
        if self.judge.is_unheard(now) {
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
        if self.transfer.is_finite() && now >= self.quiet_since + self.judge.epoch_length() * 2 {
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
            self.note_packet(now, data);
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
        self.epoch = (!self.heard).then(|| self.judge.next_epoch(now));
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if self.epoch.is_none() && !self.heard {
            self.epoch = Some(now + LEAST_EPOCH);
            self.quiet_since = now;
            // D9.
            self.judge.ask_anew(now);
            self.say_new_rate();
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
            rate: self.judge.rate(),
            rtt: self.judge.rtt().unwrap_or(Span::ZERO),
            done,
            ..Progress::default()
        }
    }
}
