//! SABUL: a gap between packets, decided anew in rounds from the loss of each.
//!
//! Sources: Oothongsap, Viniotis and Vouk, "Theoretical and experimental analysis of the SABUL
//! congestion control algorithm" (S), and the released 2.x, whose law had already changed. The
//! laws are in [`law`] (`gtp-laws`), the paper's model as an executable in [`model`]; this file is
//! the two ends.
//!
//! Rules:
//! - S1 a round ends at the sender when a SYN packet comes, which the receiver sends each `T`
//!   (200 ms by default); both parameter sets and all intervals of tables I and II can be set.
//! - S2 the loss rate of a round is what was lost of what was sent; eqs. 1 to 3 give the next gap,
//!   eq. 5 the rate ([`Law::Paper`]).
//! - S3 2.x: a loss report cuts at once, a round without much loss raises ([`Law::Release`]).
//! - S4 the receiver reports a gap in the block numbers at once, and each 20 ms again what it has
//!   reported and not got within 1.5 round trips; it acknowledges each 100 ms (2.x).
//! - S5 lost blocks go first; after 1 s without any report or acknowledgement all that is not
//!   acknowledged counts as lost (2.x).
//!
//! Departures:
//! - D1 [`Law::Paper`] takes its loss rate from numbers that packets have beside their block's, so
//!   that a block lost twice counts twice; 2.x takes it from the reports, as released.
//! - D2 The control connection is packets. SYN packets hold totals, so that a lost one makes a
//!   round longer, not wrong; lost reports are made again by S4 and S5.
//! - D3 No flow window: the paper has none.
//! - D4 The round trip for S4 is measured by a packet of the receiver's, not at set-up.

pub mod model;

pub use gtp_laws::sabul as law;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::led::Counts;
use gtp_alloc::{Rate, Span, Time};

use self::law::{Cut, Excess, Paper, Parameters, Release};
use super::message::{self, Data, FIELDS, Message, Stamp};
use super::pacer::{self, Pacer};
use super::transfer::{Arrivals, Backlog, Ordinals, Transfer};
use super::wanted::Wanted;
use crate::{Body, Endpoint, Packet, Progress};

/// What SABUL's ends say on the control connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// S1: a round is over. What was received and lost since the beginning.
    Syn {
        /// Packets received.
        received: u64,
        /// Packets lost.
        lost: u64,
    },
    /// S4: these blocks are missing.
    Nak(Vec<Range<u64>>),
    /// S4: all blocks below are here.
    Ack(u64),
    /// D4: the receiver asks for an echo of its clock.
    Ping(Time),
    /// D4: the echo.
    Pong(Time),
}

/// How a sender decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// S2.
    Paper {
        /// Equations 1 to 4.
        parameters: Parameters,
        /// The sender's interface, `C` of eq. 5.
        interface: Rate,
        /// Eq. 4.
        excess: Excess,
    },
    /// S3, with rounds of this length.
    Release(Span),
}

/// SABUL's sending end.
#[derive(Clone, Debug)]
pub struct Sender {
    transfer: Transfer,
    control: State,
    demand: Option<Rate>,
    pacer: Pacer,
    stamp: Stamp,
    backlog: Backlog,
    acked: u64,
    /// The totals of the newest SYN packet.
    counted: Counts,
    /// S3: nothing is sent before this.
    frozen: Time,
    /// S5: when feedback last came.
    fed: Option<Time>,
    pongs: VecDeque<Time>,
}

#[derive(Clone, Debug)]
enum State {
    Paper(Paper),
    Release { law: Release, round: Span, sent_before: u64, reported: u64 },
}

impl Sender {
    /// A sender that begins at `initial`, counted in bytes on links.
    pub fn new(transfer: Transfer, law: Law, initial: Rate) -> Sender {
        let length = bits(&transfer);
        let control = match law {
            Law::Paper { parameters, interface, excess } => {
                let interface = (interface.as_f64(), excess);
                State::Paper(Paper::new(parameters, interface, initial.as_f64(), length))
            }
            Law::Release(round) => State::Release {
                law: Release::new(length / initial.as_f64(), round.as_secs_f64()),
                round,
                sent_before: 0,
                reported: 0,
            },
        };
        Sender {
            transfer,
            control,
            demand: None,
            pacer: Pacer::new(),
            stamp: Stamp::default(),
            backlog: Backlog::new(&transfer),
            acked: 0,
            counted: Counts::default(),
            frozen: Time::ZERO,
            fed: None,
            pongs: VecDeque::new(),
        }
    }

    /// Seconds between packets as the law has it: eq. 5's denominator over the rate's unit.
    fn period(&self) -> f64 {
        match &self.control {
            State::Paper(law) => law.period(bits(&self.transfer)),
            State::Release { law, .. } => law.period,
        }
    }

    fn spacing(&self) -> f64 {
        let limit = self.demand.map_or(0.0, |rate| pacer::gap(self.transfer.packet(), rate));
        self.period().max(limit)
    }

    /// S1 to S3.
    fn end_round(&mut self, total: &Counts) {
        match &mut self.control {
            State::Paper(law) => law.end_round(total),
            State::Release { law, sent_before, reported, .. } => {
                let sent = (self.stamp.sent - *sent_before).max(*reported);
                if sent > 0 {
                    law.end_round(*reported as f64 / sent as f64);
                }
                (*sent_before, *reported) = (self.stamp.sent, 0);
            }
        }
    }

    fn note_loss(&mut self, now: Time, lost: &[Range<u64>]) {
        for range in lost {
            self.backlog.repeat(range.start.max(self.acked)..range.end);
        }
        match &mut self.control {
            State::Paper(law) => law.note_report(),
            State::Release { law, round, reported, .. } => {
                *reported += lost.iter().map(|range| range.end - range.start).sum::<u64>();
                let Some(first) = lost.first() else { return };
                match law.note_report(first.start, self.backlog.fresh()) {
                    Cut::First => self.frozen = now + *round,
                    Cut::Further | Cut::None => {}
                }
            }
        }
    }

    fn expires(&self) -> Option<Time> {
        let outstanding = self.backlog.fresh() > self.acked;
        self.fed.filter(|_| outstanding).map(|at| at + EXPIRY)
    }
}

fn bits(transfer: &Transfer) -> f64 {
    transfer.packet().0 as f64 * 8.0
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(Message::Sabul(control)) = &packet.body else { return };
        match control {
            Control::Syn { received, lost } => {
                let total = Counts { received: *received, lost: *lost };
                // One that another has overtaken says nothing.
                if total.received >= self.counted.received {
                    self.counted = total;
                    self.end_round(&total);
                }
            }
            Control::Nak(lost) => {
                self.fed = Some(now);
                self.note_loss(now, lost);
            }
            Control::Ack(below) => {
                self.fed = Some(now);
                self.acked = self.acked.max((*below).min(self.backlog.fresh()));
                self.backlog.settle(self.acked);
            }
            Control::Ping(at) => self.pongs.push_back(*at),
            Control::Pong(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        // S5.
        if self.expires().is_some_and(|at| at <= now) {
            self.fed = Some(now);
            self.backlog.repeat(self.acked..self.backlog.fresh());
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if let Some(at) = self.pongs.pop_front() {
            let pong = Message::Sabul(Control::Pong(at));
            return Some(message::control(&self.transfer, FIELDS.0, pong));
        }
        let spacing = self.spacing();
        if now < self.frozen || !self.pacer.is_ready(now, spacing) {
            return None;
        }
        let pick = self.backlog.take(u64::MAX)?;
        self.fed.get_or_insert(now);
        self.pacer.note_sent(now, spacing);
        Some(message::data(&self.transfer, self.stamp.next(now, pick, spacing)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let due = self.backlog.has_more(u64::MAX);
        let next = due.then(|| self.pacer.due(self.spacing()).max(self.frozen));
        [next, self.expires()].into_iter().flatten().min()
    }

    fn set_demand(&mut self, _now: Time, rate: Option<Rate>) {
        self.demand = rate;
    }

    fn progress(&self) -> Progress {
        let rate = pacer::rate(self.transfer.packet(), self.period());
        self.stamp.progress(&self.transfer, self.acked, rate)
    }
}

/// SABUL's receiving end.
#[derive(Clone, Debug)]
pub struct Receiver {
    transfer: Transfer,
    interval: Span,
    arrivals: Arrivals,
    ordinals: Ordinals,
    wanted: Wanted,
    acked: u64,
    owes: bool,
    rtt: Option<Span>,
    timers: Option<Timers>,
    outbox: VecDeque<Control>,
}

#[derive(Clone, Copy, Debug)]
struct Timers {
    syn: Time,
    ack: Time,
    err: Time,
}

impl Receiver {
    /// A receiver whose rounds last `interval`.
    pub fn new(transfer: Transfer, interval: Span) -> Receiver {
        Receiver {
            transfer,
            interval: interval.max(Span::from_millis(1)),
            arrivals: Arrivals::new(transfer),
            ordinals: Ordinals::default(),
            wanted: Wanted::new(),
            acked: 0,
            owes: false,
            rtt: None,
            timers: None,
            outbox: VecDeque::new(),
        }
    }

    /// S4.
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

    /// S4: where there is something new to say, or the sender seems not to have heard it.
    fn acknowledge(&mut self) {
        let prefix = self.arrivals.prefix();
        if prefix > self.acked || self.owes {
            (self.acked, self.owes) = (prefix, false);
            self.outbox.push_back(Control::Ack(prefix));
        }
    }

    fn syn(&mut self, now: Time) {
        let Counts { received, lost } = self.ordinals.counts();
        self.outbox.push_back(Control::Syn { received, lost });
        if self.rtt.is_none() {
            self.outbox.push_back(Control::Ping(now));
        }
    }

    fn report_again(&mut self, now: Time) {
        // S4: the release takes 20 ms where 1.5 round trips are less.
        let patience = self.rtt.map_or(ERR, |rtt| (rtt * 3 / 2).max(ERR));
        let overdue = self.wanted.ask_again(now, |at, _| now >= at + patience);
        self.outbox.extend(message::pages(overdue).into_iter().map(Control::Nak));
    }
}

impl Endpoint for Receiver {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(message) = &packet.body else { return };
        if let Message::Data(Data { block, ordinal, .. }) = message {
            self.ordinals.note(*ordinal);
            self.note_block(now, *block);
        }
        if let Message::Sabul(Control::Pong(at)) = message {
            self.rtt = Some(now.since(*at));
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let Some(mut timers) = self.timers else { return };
        if timers.syn <= now {
            timers.syn += self.interval;
            self.syn(now);
        }
        if timers.ack <= now {
            timers.ack += ACK;
            self.acknowledge();
        }
        if timers.err <= now {
            timers.err += ERR;
            self.report_again(now);
        }
        self.timers = Some(timers);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if self.timers.is_none() {
            let syn = now + self.interval;
            self.timers = Some(Timers { syn, ack: now + ACK, err: now + ERR });
            self.outbox.push_back(Control::Ping(now));
        }
        let control = self.outbox.pop_front()?;
        let bytes = match &control {
            Control::Nak(ranges) => message::bytes_of(ranges),
            Control::Syn { .. } | Control::Ack(_) | Control::Ping(_) | Control::Pong(_) => FIELDS.0,
        };
        Some(message::control(&self.transfer, bytes, Message::Sabul(control)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.timers.map(|timers| timers.syn.min(timers.ack).min(timers.err))
    }

    /// There is no flow control (D3): see [`Slow`](super::Slow) for a receiver that reads slowly.
    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}

    fn progress(&self) -> Progress {
        Progress {
            delivered: self.arrivals.in_order(),
            done: self.arrivals.is_complete(),
            ..Progress::default()
        }
    }
}

/// S4 and S5: intervals of 2.x.
const ACK: Span = Span::from_millis(100);
const ERR: Span = Span::from_millis(20);
const EXPIRY: Span = Span::from_secs(1);
