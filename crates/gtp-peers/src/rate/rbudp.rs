//! RBUDP, reliable blast UDP: everything at a fixed rate, then what was missed, until nothing is.
//!
//! Source: He, Leigh, Yu and DeFanti, Cluster 2002, as GTP 2004 (5.3.1), SABUL (I) and
//! LambdaStream (1) describe it. It knows nothing of the network but the rate that its user gives.
//!
//! Rules:
//! - R1 blast: all blocks leave on UDP at the user's rate, which never changes.
//! - R2 end of round: the sender says on TCP that the blast is over.
//! - R3 bitmap: the receiver answers on TCP with one bit a block.
//! - R4 next round: what the bitmap lacks is blasted; R2 again. So each round but the first costs
//!   one round trip and the time of what is resent.
//!
//! Departures:
//! - D1 The control connection is packets, not a TCP: the sender asks again for the parts of the
//!   bitmap that do not come within two round trips (at least 200 ms, 1 s before the first answer).
//!   Its slow start is therefore not seen.
//! - D2 The bitmap travels in packets of 1,456 bytes, each part of it asked for by number.
//! - D3 Delivered is what is in its place: there is no order until the last round.

use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Rate, Span, Time};
use gtp_laws::SourceLaw;
use gtp_laws::rbudp::Fixed;

use super::message::{self, Data, FIELDS, Message, Stamp};
use super::pacer::{self, Pacer};
use super::transfer::{Arrivals, Pick, Transfer, Turn};
use crate::{Body, Endpoint, Packet, Progress};
use gtp_ranges::RangeSet;

/// What RBUDP says on its control connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// R2: the blast of this round is over; the bitmap is wanted from this part on.
    End {
        /// The round, from nought.
        round: u32,
        /// The first part wanted.
        from: u64,
    },
    /// R3: what is missing in one part of the bitmap.
    Bitmap {
        /// The round that it answers.
        round: u32,
        /// Which part of the bitmap.
        part: u64,
        /// What is missing in it.
        missing: Vec<Range<u64>>,
    },
    /// R3: nothing is missing.
    Complete {
        /// The round that it answers.
        round: u32,
    },
}

/// Blocks in one packet's worth of bitmap.
const PART: u64 = 1_456 * 8;

/// The number of parts that a transfer's bitmap has.
fn parts(transfer: &Transfer) -> u64 {
    transfer.blocks().div_ceil(PART)
}

/// RBUDP's sending end.
#[derive(Clone, Debug)]
pub struct Sender {
    transfer: Transfer,
    law: Fixed,
    demand: Option<Rate>,
    pacer: Pacer,
    stamp: Stamp,
    round: u32,
    /// R1, R4: what this round has still to send. The first round of a transfer without end is
    /// not a set of ranges, but a number that grows.
    fresh: u64,
    blast: RangeSet,
    state: State,
    rtt: Span,
    missing: u64,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Blasting,
    /// R3: parts of the bitmap so far, what they lack, when the end was said, and how often.
    Waiting {
        got: RangeSet,
        lacks: RangeSet,
        asked: Time,
        asks: u32,
    },
    Done,
}

impl Sender {
    /// A sender at `rate`, counted in bytes on links.
    pub fn new(transfer: Transfer, rate: Rate) -> Sender {
        Sender {
            transfer,
            law: Fixed(rate),
            demand: None,
            pacer: Pacer::new(),
            stamp: Stamp::default(),
            round: 0,
            fresh: 0,
            blast: RangeSet::new(),
            state: if transfer.blocks() == 0 { State::Done } else { State::Blasting },
            rtt: Span::ZERO,
            missing: transfer.blocks(),
        }
    }

    /// Rounds begun after the first: each cost a round trip.
    pub fn rounds(&self) -> u32 {
        self.round
    }

    fn gap(&self) -> f64 {
        let rate = self.law.rate(self.transfer.packet());
        let rate = self.demand.map_or(rate, |limit| limit.min(rate));
        pacer::gap(self.transfer.packet(), rate)
    }

    fn blast(&mut self, now: Time) -> Option<Packet> {
        let gap = self.gap();
        if !self.pacer.is_ready(now, gap) {
            return None;
        }
        let pick = match self.blast.first() {
            Some(block) => {
                self.blast.remove_one(block);
                Pick { block, turn: Turn::Again }
            }
            None => {
                self.fresh += 1;
                Pick { block: self.fresh - 1, turn: Turn::First }
            }
        };
        if self.blast.is_empty() && self.fresh >= self.transfer.blocks() {
            let asked = now;
            let (got, lacks) = (RangeSet::new(), RangeSet::new());
            self.state = State::Waiting { got, lacks, asked, asks: 0 };
        }
        self.pacer.note_sent(now, gap);
        Some(message::data(&self.transfer, self.stamp.next(now, pick, gap)))
    }

    /// D1: how long the sender waits for the bitmap's next part.
    fn patience(&self) -> Span {
        if self.rtt == Span::ZERO { FIRST_PATIENCE } else { (self.rtt * 2).max(PATIENCE) }
    }

    fn take_part(&mut self, now: Time, number: u64, missing: &[Range<u64>]) {
        let whole = parts(&self.transfer);
        let State::Waiting { got, lacks, asked, asks } = &mut self.state else { return };
        if number >= whole || !got.insert_one(number) {
            return;
        }
        if *asks == 1 && got.len() == 1 {
            self.rtt = now.since(*asked);
        }
        *asked = now;
        for range in missing {
            lacks.insert(range.start..range.end.min(self.transfer.blocks()));
        }
        if got.len() == whole {
            self.round += 1;
            self.missing = lacks.len();
            self.blast = core::mem::take(lacks);
            self.state = if self.blast.is_empty() { State::Done } else { State::Blasting };
        }
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(Message::Rbudp(control)) = &packet.body else { return };
        match control {
            Control::Bitmap { round, part, missing } if *round == self.round => {
                self.take_part(now, *part, missing);
            }
            Control::Complete { round } if *round == self.round => {
                self.missing = 0;
                self.state = State::Done;
            }
            Control::Bitmap { .. } | Control::Complete { .. } | Control::End { .. } => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        let patience = self.patience();
        match &mut self.state {
            State::Blasting => self.blast(now),
            State::Done => None,
            State::Waiting { got, asked, asks, .. } => {
                if *asks > 0 && now < *asked + patience {
                    return None;
                }
                // R2. D1: the parts that are here need not come again.
                let from = got.iter().next().filter(|r| r.start == 0).map_or(0, |r| r.end);
                (*asked, *asks) = (now, *asks + 1);
                let end = Control::End { round: self.round, from };
                Some(message::control(&self.transfer, FIELDS.0, Message::Rbudp(end)))
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match &self.state {
            State::Blasting => Some(self.pacer.due(self.gap())),
            State::Waiting { asks: 0, asked, .. } => Some(*asked),
            State::Waiting { asked, .. } => Some(*asked + self.patience()),
            State::Done => None,
        }
    }

    fn set_demand(&mut self, _now: Time, rate: Option<Rate>) {
        self.demand = rate;
    }

    fn progress(&self) -> Progress {
        let known = self.transfer.blocks() - self.missing;
        Progress {
            delivered: self.transfer.prefix(known),
            sent: self.stamp.sent,
            repeated: self.stamp.repeated,
            rate: self.law.rate(self.transfer.packet()),
            rtt: self.rtt,
            done: self.state == State::Done,
            ..Progress::default()
        }
    }
}

/// RBUDP's receiving end.
#[derive(Clone, Debug)]
pub struct Receiver {
    arrivals: Arrivals,
    transfer: Transfer,
    /// R3: the round asked about and the parts still to be answered.
    answer: Option<(u32, Range<u64>)>,
}

impl Receiver {
    /// A receiver of `transfer`.
    pub fn new(transfer: Transfer) -> Receiver {
        Receiver { arrivals: Arrivals::new(transfer), transfer, answer: None }
    }
}

impl Endpoint for Receiver {
    fn handle_packet(&mut self, _now: Time, packet: &Packet) {
        if let Body::Rate(Message::Data(Data { block, .. })) = &packet.body {
            self.arrivals.insert(*block);
        }
        if let Body::Rate(Message::Rbudp(Control::End { round, from })) = &packet.body {
            self.answer = Some((*round, *from..parts(&self.transfer)));
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time) -> Option<Packet> {
        let (round, wanted) = self.answer.as_mut()?;
        let round = *round;
        if self.arrivals.is_complete() {
            self.answer = None;
            let complete = Message::Rbudp(Control::Complete { round });
            return Some(message::control(&self.transfer, FIELDS.0, complete));
        }
        let Some(part) = wanted.next() else {
            self.answer = None;
            return None;
        };
        let blocks = part * PART..((part + 1) * PART).min(self.transfer.blocks());
        let bytes = (blocks.end - blocks.start).div_ceil(8);
        let missing = self.arrivals.missing(blocks);
        let bitmap = Message::Rbudp(Control::Bitmap { round, part, missing });
        Some(message::control(&self.transfer, bytes, bitmap))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// There is no flow control: see [`Slow`](super::Slow) for a receiver that reads slowly.
    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}

    fn progress(&self) -> Progress {
        self.arrivals.progress()
    }
}

/// D1.
const PATIENCE: Span = Span::from_millis(200);
/// D1, before a round trip is known: as RFC 6298 has it for TCP.
const FIRST_PATIENCE: Span = Span::from_secs(1);
