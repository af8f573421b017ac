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
//! - R5 the control connection crosses the same links as the blast. What is lost of it waits for
//!   its timer, twice as long each time (RFC 6298), and its flow is silent until then.
//!
//! Departures:
//! - D1 The connection is two of the TCP engine, one each way, without piggybacked
//!   acknowledgments: the end of a round is acknowledged at once instead of with the bitmap. Both
//!   are open from the start.
//! - D2 The bitmap travels as what is missing in each of its segments; its size is that of bits.
//! - D3 Delivered is what is in its place: there is no order until the last round.
//! - D4 Pieces: those papers blast all data in one; what does not fit into memory may be blasted
//!   piece by piece here, each in rounds of its own.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_laws::SourceLaw;
use gtp_laws::rbudp::Fixed;

use super::message::{self, Data, FIELDS, Message, Stamp};
use super::pacer::{self, Pacer};
use super::transfer::{Arrivals, Pick, Transfer, Turn};
use crate::tcp::{self, AckDelay, Flavour, Opening, ReceiverConfig, Segment, SenderConfig, Tcp};
use crate::{Body, Endpoint, Note, Packet, Progress};
use gtp_ranges::RangeSet;

/// A segment of the control connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// The segment; its connection says which way its payload goes.
    pub tcp: Tcp,
    /// What its payload says.
    pub says: Says,
}

/// What RBUDP says on its control connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Says {
    /// Nothing: an acknowledgment, or what was answered before.
    Nothing,
    /// R2: the blast is over, the bitmap of these blocks is wanted.
    End(Range<u64>),
    /// R3: what is missing in one segment's worth of the bitmap.
    Missing(Vec<Range<u64>>),
}

/// R5: the TCP of the hosts, which carries the control connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Room of each receiving end.
    pub buffer: Bytes,
    /// The window to begin with, in segments.
    pub initial_window: f64,
    /// The least timeout.
    pub least_timeout: Span,
}

impl Default for Line {
    fn default() -> Line {
        let SenderConfig { initial_window, least_timeout, .. } = SenderConfig::default();
        Line { buffer: Bytes(u64::MAX), initial_window, least_timeout }
    }
}

impl Line {
    /// D1: the sending end of one direction, for segments of `mss`.
    fn speaker(&self, connection: u16, mss: Bytes) -> tcp::Sender {
        let Line { initial_window, least_timeout, .. } = *self;
        let config = SenderConfig {
            mss,
            initial_window,
            least_timeout,
            opening: Opening::Open,
            ..SenderConfig::default()
        };
        Flavour::Sack.sender(Time::ZERO, config, 1).share(connection)
    }

    /// D1: the receiving end of one direction.
    fn hearer(&self, connection: u16, delay: AckDelay) -> tcp::Receiver {
        let config = ReceiverConfig { buffer: self.buffer, delay, ..ReceiverConfig::default() };
        tcp::Receiver::new(config).share(connection)
    }
}

/// R2's and R3's direction of the control connection.
const ENDS: u16 = 0;
const BITMAPS: u16 = 1;

/// Payload of a full segment of bitmap.
const SEGMENT: Bytes = Bytes(1_460);
/// Blocks in one segment's worth of bitmap.
const PART: u64 = SEGMENT.0 * 8;

/// The number of segments that a piece's bitmap takes.
fn parts(piece: &Range<u64>) -> u64 {
    (piece.end - piece.start).div_ceil(PART)
}

/// The segment of one direction that is due now, in a packet.
fn spoken(packet: Packet, says: impl FnOnce(u64) -> Says) -> Option<Packet> {
    let Body::Tcp(tcp) = packet.body else { return None };
    let says = match tcp.segment {
        Segment::Data { number, .. } => says(number),
        Segment::Open | Segment::Opened { .. } | Segment::Probe | Segment::Ack(_) => Says::Nothing,
    };
    let body = Body::Rate(Message::Rbudp(Box::new(Control { tcp, says })));
    Some(Packet { size: packet.size, body, note: Note::None })
}

/// The segment as the engine takes it.
fn heard(packet: &Packet, tcp: &Tcp) -> Packet {
    Packet { size: packet.size, body: Body::Tcp(tcp.clone()), note: Note::None }
}

/// RBUDP's sending end.
#[derive(Debug)]
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
    /// D4: the blocks of the piece under way, and how many a piece has.
    piece: Range<u64>,
    step: u64,
    state: State,
    ends: tcp::Sender,
    bitmaps: tcp::Receiver,
    /// R3: segments of bitmaps asked for so far, and what those of this round lack.
    wanted: u64,
    lacks: RangeSet,
    missing: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Blasting,
    /// R3: the bitmap is under way.
    Waiting,
    Done,
}

impl Sender {
    /// A sender at `rate`, counted in bytes on links.
    pub fn new(transfer: Transfer, rate: Rate) -> Sender {
        Sender::in_pieces(transfer, rate, transfer.blocks())
    }

    /// D4: one that blasts so many blocks at a time, at least one.
    pub fn in_pieces(transfer: Transfer, rate: Rate, blocks: u64) -> Sender {
        let step = blocks.max(1);
        let line = Line::default();
        Sender {
            transfer,
            law: Fixed(rate),
            demand: None,
            pacer: Pacer::new(),
            stamp: Stamp::default(),
            round: 0,
            fresh: 0,
            blast: RangeSet::new(),
            piece: 0..step.min(transfer.blocks()),
            step,
            state: if transfer.blocks() == 0 { State::Done } else { State::Blasting },
            ends: line.speaker(ENDS, FIELDS),
            bitmaps: line.hearer(BITMAPS, AckDelay::USUAL),
            wanted: 0,
            lacks: RangeSet::new(),
            missing: transfer.blocks(),
        }
    }

    /// The same over such a control connection.
    pub fn over(mut self, line: Line) -> Sender {
        self.ends = line.speaker(ENDS, FIELDS);
        self.bitmaps = line.hearer(BITMAPS, AckDelay::USUAL);
        self
    }

    /// Rounds that were answered, the last of each piece included: each cost a round trip.
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
        if self.state != State::Blasting || !self.pacer.is_ready(now, gap) {
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
        if self.blast.is_empty() && self.fresh >= self.piece.end {
            // R2.
            self.state = State::Waiting;
            self.wanted += parts(&self.piece);
            self.ends.supply_to(u64::from(self.round) + 1);
        }
        self.pacer.note_sent(now, gap);
        Some(message::data(&self.transfer, self.stamp.next(now, pick, gap)))
    }

    /// R3: a segment of the bitmap is here.
    fn take_part(&mut self, number: u64, missing: &[Range<u64>]) {
        if self.state != State::Waiting || number < self.wanted - parts(&self.piece) {
            return;
        }
        for range in missing {
            let range = range.start.max(self.piece.start)..range.end.min(self.piece.end);
            self.lacks.insert(range);
        }
    }

    /// R4, D4: all of the bitmap is here.
    fn end_round(&mut self) {
        self.round += 1;
        self.missing = self.lacks.len() + (self.transfer.blocks() - self.piece.end);
        self.blast = core::mem::take(&mut self.lacks);
        self.state = if self.missing == 0 { State::Done } else { State::Blasting };
        if self.blast.is_empty() {
            let end = self.piece.end.saturating_add(self.step).min(self.transfer.blocks());
            self.piece = self.piece.end..end;
        }
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(Message::Rbudp(control)) = &packet.body else { return };
        let Control { tcp, says } = &**control;
        let segment = heard(packet, tcp);
        self.ends.handle_packet(now, &segment);
        self.bitmaps.handle_packet(now, &segment);
        if let (Segment::Data { number, .. }, Says::Missing(missing)) = (&tcp.segment, says) {
            self.take_part(*number, missing);
        }
        if self.state == State::Waiting && self.bitmaps.next() >= self.wanted {
            self.end_round();
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.ends.handle_timeout(now);
        self.bitmaps.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if let Some(packet) = self.bitmaps.poll_transmit(now) {
            return spoken(packet, |_| Says::Nothing);
        }
        if let Some(packet) = self.ends.poll_transmit(now) {
            return spoken(packet, |_| Says::End(self.piece.clone()));
        }
        self.blast(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let blast = (self.state == State::Blasting).then(|| self.pacer.due(self.gap()));
        let control = [self.ends.poll_timeout(), self.bitmaps.poll_timeout()];
        control.into_iter().chain([blast]).flatten().min()
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
            rtt: self.ends.progress().rtt,
            done: self.state == State::Done,
            ..Progress::default()
        }
    }
}

/// RBUDP's receiving end.
#[derive(Debug)]
pub struct Receiver {
    arrivals: Arrivals,
    transfer: Transfer,
    ends: tcp::Receiver,
    bitmaps: tcp::Sender,
    /// Rounds that were answered.
    answered: u64,
    /// R3: the newest bitmap by segments, and the number of its first.
    bitmap: Vec<Vec<Range<u64>>>,
    first: u64,
}

impl Receiver {
    /// A receiver of `transfer`.
    pub fn new(transfer: Transfer) -> Receiver {
        let line = Line::default();
        Receiver {
            arrivals: Arrivals::new(transfer),
            transfer,
            // D1: what acknowledges an end would be the bitmap.
            ends: line.hearer(ENDS, AckDelay::None),
            bitmaps: line.speaker(BITMAPS, SEGMENT),
            answered: 0,
            bitmap: Vec::new(),
            first: 0,
        }
    }

    /// The same over such a control connection.
    pub fn over(mut self, line: Line) -> Receiver {
        self.ends = line.hearer(ENDS, AckDelay::None);
        self.bitmaps = line.speaker(BITMAPS, SEGMENT);
        self
    }

    /// R3.
    fn answer(&mut self, piece: &Range<u64>) {
        let end = piece.end.min(self.transfer.blocks());
        self.first += self.bitmap.len() as u64;
        let parts = (piece.start.min(end)..end).step_by(PART as usize);
        self.bitmap = parts.map(|at| self.arrivals.missing(at..(at + PART).min(end))).collect();
        self.bitmaps.supply_to(self.first + self.bitmap.len() as u64);
    }
}

impl Endpoint for Receiver {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        if let Body::Rate(Message::Data(Data { block, .. })) = &packet.body {
            self.arrivals.insert(*block);
        }
        let Body::Rate(Message::Rbudp(control)) = &packet.body else { return };
        let Control { tcp, says } = &**control;
        let segment = heard(packet, tcp);
        self.ends.handle_packet(now, &segment);
        self.bitmaps.handle_packet(now, &segment);
        if let Says::End(piece) = says
            && self.ends.next() > self.answered
        {
            self.answered = self.ends.next();
            self.answer(piece);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.ends.handle_timeout(now);
        self.bitmaps.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if let Some(packet) = self.ends.poll_transmit(now) {
            return spoken(packet, |_| Says::Nothing);
        }
        let packet = self.bitmaps.poll_transmit(now)?;
        let (bitmap, first) = (&self.bitmap, self.first);
        // What came before the newest bitmap has arrived, or that would not have been asked for.
        spoken(packet, |number| {
            let part = number.checked_sub(first).and_then(|part| bitmap.get(part as usize));
            part.map_or(Says::Nothing, |missing| Says::Missing(missing.clone()))
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.ends.poll_timeout(), self.bitmaps.poll_timeout()].into_iter().flatten().min()
    }

    /// There is no flow control: see [`Slow`](super::Slow) for a receiver that reads slowly.
    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}

    fn progress(&self) -> Progress {
        self.arrivals.progress()
    }
}
