//! UDT: SABUL's successor, with acknowledgements each 10 ms, packet pairs and a flow window.
//!
//! Sources: the thesis, II.5.D; GTP 2004 calls release 1.0 "SABUL" in its tables. The rate law and
//! the filters are in [`law`]; this file is the two ends.
//!
//! Rules:
//! - U1 new packets leave one each period while fewer than the window are unacknowledged; lost ones
//!   go first. After each block whose number is a multiple of 16 the next leaves at once: a pair,
//!   whose spacing at the receiver is the narrowest link's.
//! - U2 each SYN (10 ms) the receiver acknowledges what is new, with the rate it receives at, the
//!   pairs' estimate and the round trip; the sender answers, from which the round trip is measured.
//! - U3 an acknowledgement raises the rate, at most one each SYN ([`law::Law::note_ack`]).
//! - U4 a gap in the block numbers is reported at once and cuts ([`law::Law::note_loss`]); it is
//!   reported again after `k` times `RTT + 4 Var`, `k` counting the reports.
//! - U5 after a silence of `RTT + 4 Var + SYN`, at least 300 ms, times the number of silences, all
//!   that is not acknowledged counts as lost.
//!
//! Departures:
//! - D1 The receiver's buffer is the window's upper bound from the beginning, not advertised.
//! - D2 Losses reported again do not cut a second time where the law's own rule does not say so.
//! - D3 Handshake and keep-alive are not simulated: the round trip begins at 100 ms.

pub mod law;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Rate, Span, Time};

use self::law::{Law, Measures, Spans, Version};
use super::message::{self, Data, FIELDS, Message, Stamp};
use super::pacer::{self, Pacer};
use super::transfer::{Arrivals, Backlog, Pick, Transfer, Turn};
use super::wanted::Wanted;
use crate::{Body, Endpoint, Packet, Progress};

/// UDT's control packets.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// U2.
    Ack(Ack),
    /// U2: the answer to the acknowledgement of this number.
    Ack2(u64),
    /// U4.
    Nak(Vec<Range<u64>>),
}

/// U2: an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    /// Its number.
    pub number: u64,
    /// All blocks below are here.
    pub below: u64,
    /// What the receiver measured.
    pub measures: Measures,
}

/// UDT's sending end.
#[derive(Clone, Debug)]
pub struct Sender {
    transfer: Transfer,
    law: Law,
    measures: Measures,
    variation: f64,
    demand: Option<Rate>,
    pacer: Pacer,
    stamp: Stamp,
    backlog: Backlog,
    acked: u64,
    /// U1: the second of a pair is next.
    pair: bool,
    controlled: Time,
    acked_at_control: u64,
    sent_at_control: u64,
    reported: u64,
    answers: VecDeque<u64>,
    heard: Option<Time>,
    silences: u64,
}

impl Sender {
    /// A sender whose window is at most `window` packets; `seed` is for the cuts that the law
    /// draws.
    pub fn new(transfer: Transfer, version: Version, window: u64, seed: u64) -> Sender {
        Sender {
            transfer,
            law: Law::new(version, transfer.packet().0, window, seed),
            measures: Measures { rtt: FIRST_RTT, ..Measures::default() },
            variation: FIRST_RTT / 2.0,
            demand: None,
            pacer: Pacer::new(),
            stamp: Stamp::default(),
            backlog: Backlog::new(&transfer),
            acked: 0,
            pair: false,
            controlled: Time::ZERO,
            acked_at_control: 0,
            sent_at_control: 0,
            reported: 0,
            answers: VecDeque::new(),
            heard: None,
            silences: 1,
        }
    }

    /// Whether it is still in slow start.
    pub fn is_starting(&self) -> bool {
        self.law.is_starting()
    }

    fn limit(&self) -> u64 {
        self.acked.saturating_add(self.law.window as u64)
    }

    fn spacing(&self) -> f64 {
        if self.pair {
            return 0.0;
        }
        let limit = self.demand.map_or(0.0, |rate| pacer::gap(self.transfer.packet(), rate));
        self.law.period.max(limit)
    }

    fn take_ack(&mut self, now: Time, ack: &Ack) {
        self.answers.push_back(ack.number);
        self.acked = self.acked.max(ack.below.min(self.backlog.fresh()));
        self.backlog.settle(self.acked);
        let m = &mut self.measures;
        let error = (ack.measures.rtt - m.rtt).abs();
        self.variation = (self.variation * 3.0 + error) / 4.0;
        m.rtt = smooth(m.rtt, ack.measures.rtt);
        if ack.measures.received > 0.0 {
            m.received = smooth(m.received, ack.measures.received);
        }
        if ack.measures.bandwidth > 0.0 {
            m.bandwidth = smooth(m.bandwidth, ack.measures.bandwidth);
        }
        // U3.
        if now < self.controlled + SYN {
            return;
        }
        self.controlled = now;
        let sent = (self.stamp.sent - self.sent_at_control).max(self.reported).max(1);
        let loss = self.reported as f64 / sent as f64;
        self.law.note_ack(self.acked - self.acked_at_control, loss, &self.measures);
        self.acked_at_control = self.acked;
        (self.sent_at_control, self.reported) = (self.stamp.sent, 0);
    }

    fn take_nak(&mut self, lost: &[Range<u64>]) {
        for range in lost {
            self.backlog.repeat(range.start.max(self.acked)..range.end);
            self.reported += range.end - range.start;
        }
        if let Some(first) = lost.first() {
            self.law.note_loss(first.start, self.backlog.fresh(), &self.measures);
        }
    }

    /// U5.
    fn expires(&self) -> Option<Time> {
        let outstanding = self.backlog.fresh() > self.acked;
        let silence = Span::from_secs_f64(self.measures.rtt + 4.0 * self.variation) + SYN;
        let silence = silence.max(LEAST_SILENCE) * self.silences;
        self.heard.filter(|_| outstanding).map(|at| at + silence)
    }
}

/// Seven parts of the past, one of the present; the first value counts whole.
fn smooth(old: f64, new: f64) -> f64 {
    if old == 0.0 { new } else { (old * 7.0 + new) / 8.0 }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(Message::Udt(control)) = &packet.body else { return };
        (self.heard, self.silences) = (Some(now), 1);
        match control {
            Control::Ack(ack) => self.take_ack(now, ack),
            Control::Nak(lost) => self.take_nak(lost),
            Control::Ack2(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.expires().is_some_and(|at| at <= now) {
            (self.heard, self.silences) = (Some(now), self.silences + 1);
            self.law.note_timeout(&self.measures);
            self.backlog.repeat(self.acked..self.backlog.fresh());
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if let Some(number) = self.answers.pop_front() {
            let answer = Message::Udt(Control::Ack2(number));
            return Some(message::control(&self.transfer, FIELDS.0, answer));
        }
        let spacing = self.spacing();
        if !self.pacer.is_ready(now, spacing) {
            return None;
        }
        let pick: Pick = self.backlog.take(self.limit())?;
        self.heard.get_or_insert(now);
        self.pair = pick.turn == Turn::First && pick.block.is_multiple_of(PAIRS);
        self.pacer.note_sent(now, spacing);
        Some(message::data(&self.transfer, self.stamp.next(now, pick, spacing)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let due = self.backlog.has_more(self.limit());
        let next = due.then(|| self.pacer.due(self.spacing()));
        [next, self.expires()].into_iter().flatten().min()
    }

    fn set_demand(&mut self, _now: Time, rate: Option<Rate>) {
        self.demand = rate;
    }

    fn progress(&self) -> Progress {
        let rate = pacer::rate(self.transfer.packet(), self.law.period);
        Progress {
            window: self.law.window,
            rtt: Span::from_secs_f64(self.measures.rtt),
            ..self.stamp.progress(&self.transfer, self.acked, rate)
        }
    }
}

/// UDT's receiving end.
#[derive(Clone, Debug)]
pub struct Receiver {
    transfer: Transfer,
    arrivals: Arrivals,
    wanted: Wanted,
    arrived: Option<Time>,
    /// U1: when the first of a pair came, and its block.
    first: Option<(u64, Time)>,
    spans: Spans,
    pairs: Spans,
    rtt: f64,
    variation: f64,
    /// U2: acknowledgements that are not answered, and the last two things they said.
    unanswered: VecDeque<(u64, u64, Time)>,
    number: u64,
    acked: u64,
    settled: u64,
    owes: bool,
    next: Option<Time>,
    outbox: VecDeque<Control>,
}

impl Receiver {
    /// A receiver of `transfer`.
    pub fn new(transfer: Transfer) -> Receiver {
        Receiver {
            transfer,
            arrivals: Arrivals::new(transfer),
            wanted: Wanted::new(),
            arrived: None,
            first: None,
            spans: Spans::new(16),
            pairs: Spans::new(16),
            rtt: FIRST_RTT,
            variation: FIRST_RTT / 2.0,
            unanswered: VecDeque::new(),
            number: 0,
            acked: 0,
            settled: 0,
            owes: false,
            next: None,
            outbox: VecDeque::new(),
        }
    }

    fn note_times(&mut self, now: Time, data: &Data) {
        if let Some(before) = self.arrived.replace(now) {
            self.spans.push(now.since(before).as_secs_f64());
        }
        if data.turn == Turn::First && data.block.is_multiple_of(PAIRS) {
            self.first = Some((data.block, now));
        } else if let Some((block, at)) = self.first
            && data.block == block + 1
        {
            self.pairs.push(now.since(at).as_secs_f64());
            self.first = None;
        }
    }

    /// U4.
    fn note_block(&mut self, now: Time, block: u64) {
        let top = self.arrivals.top();
        if !self.arrivals.insert(block) {
            self.owes = true;
        } else if block > top {
            self.wanted.ask(now, top..block);
            self.outbox.push_back(Control::Nak(alloc::vec![top..block]));
        }
        self.wanted.note_arrival(block);
    }

    /// U2: unless the sender is known to know, or was told a moment ago.
    fn acknowledge(&mut self, now: Time) {
        let below = self.arrivals.prefix();
        let patience = Span::from_secs_f64(self.rtt + 4.0 * self.variation);
        let last = self.unanswered.back().map(|(_, _, at)| *at);
        let told = below == self.acked && last.is_some_and(|at| now < at + patience);
        if !self.owes && (below == self.settled || told) {
            return;
        }
        self.owes = false;
        self.acked = below;
        self.number += 1;
        self.unanswered.push_back((self.number, below, now));
        if self.unanswered.len() > UNANSWERED {
            self.unanswered.pop_front();
        }
        let received = self.spans.rate(8);
        let measures = Measures { received, bandwidth: self.pairs.rate(0), rtt: self.rtt };
        self.outbox.push_back(Control::Ack(Ack { number: self.number, below, measures }));
    }

    fn note_answer(&mut self, now: Time, number: u64) {
        while let Some((n, below, at)) = self.unanswered.front().copied() {
            if n > number {
                break;
            }
            self.unanswered.pop_front();
            if n == number {
                let sample = now.since(at).as_secs_f64();
                self.variation = (self.variation * 3.0 + (sample - self.rtt).abs()) / 4.0;
                self.rtt = smooth(self.rtt, sample);
                self.settled = self.settled.max(below);
            }
        }
    }
}

impl Endpoint for Receiver {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(message) = &packet.body else { return };
        if let Message::Data(data) = message {
            self.note_times(now, data);
            self.note_block(now, data.block);
        }
        if let Message::Udt(Control::Ack2(number)) = message {
            self.note_answer(now, *number);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.next.is_none_or(|at| now < at) {
            return;
        }
        self.next = Some(now + SYN);
        self.acknowledge(now);
        let patience = Span::from_secs_f64(self.rtt + 4.0 * self.variation);
        let overdue =
            self.wanted.ask_again(now, |at, times| now >= at + patience * u64::from(times));
        self.outbox.extend(message::pages(overdue).into_iter().map(Control::Nak));
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        self.next.get_or_insert(now + SYN);
        let control = self.outbox.pop_front()?;
        let bytes = match &control {
            Control::Nak(ranges) => message::bytes_of(ranges),
            Control::Ack(_) => ACK_BYTES,
            Control::Ack2(_) => FIELDS.0,
        };
        Some(message::control(&self.transfer, bytes, Message::Udt(control)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next
    }

    /// D1: see [`Slow`](super::Slow) for a receiver that reads slowly.
    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}

    fn progress(&self) -> Progress {
        Progress {
            delivered: self.arrivals.in_order(),
            rtt: Span::from_secs_f64(self.rtt),
            done: self.arrivals.is_complete(),
            ..Progress::default()
        }
    }
}

/// U2, and the law's [`law::SYN`].
const SYN: Span = Span::from_millis(10);
/// U1.
const PAIRS: u64 = 16;
/// U5.
const LEAST_SILENCE: Span = Span::from_millis(300);
/// D3, in seconds.
const FIRST_RTT: f64 = 0.1;
/// An acknowledgement's fields.
const ACK_BYTES: u64 = 24;
/// Acknowledgements that wait for their answers.
const UNANSWERED: usize = 1_024;
