//! The receiving end of the TCP engine.
//!
//! It keeps what has arrived, acknowledges it in order, names blocks that arrived out of order
//! (RFC 2018), may wait for a second segment before it does (RFC 5681, 4.2), and offers no more
//! room than its buffer has: 35 KB is the papers' untuned host.

use core::ops::Range;

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::bits::Bits;
use super::segment::{Ack, HEADER, Place, Segment, Tcp};
use crate::{Body, Endpoint, Note, Packet, Progress};

/// When segments in order are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckDelay {
    /// Each at once.
    None,
    /// Every second one, or this long after the first.
    Second {
        /// The longest wait (RFC 5681: at most 500 ms).
        wait: Span,
    },
}

impl AckDelay {
    /// The wait of 40 ms that is common today.
    pub const USUAL: AckDelay = AckDelay::Second { wait: Span::from_millis(40) };
}

/// Whether acknowledgments name blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Blocks {
    /// They do not: the sender counts duplicates.
    Unnamed,
    /// Up to three (RFC 2018).
    #[default]
    Named,
}

/// The parameters of a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// Payload of a full segment, the sender's.
    pub mss: Bytes,
    /// Bytes of headers on each segment.
    pub header: Bytes,
    /// When it acknowledges.
    pub delay: AckDelay,
    /// Whether it names blocks.
    pub blocks: Blocks,
    /// Room for what has arrived and was not read; in whole segments, one at least.
    pub buffer: Bytes,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            mss: Bytes(1_460),
            header: HEADER,
            delay: AckDelay::USUAL,
            blocks: Blocks::Named,
            buffer: Bytes(u64::MAX),
        }
    }
}

/// The receiving end of a connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    connection: u16,
    arrived: Bits,
    /// The first segment that has not arrived.
    next: u64,
    /// Segments that have arrived behind that one.
    ahead: u64,
    /// The last segment's number and payload, once seen.
    tail: Option<(u64, Bytes)>,
    /// The latest blocks, most recent first.
    recent: [Range<u64>; 3],
    /// The application's reading rate, since when, and what it had read then, in bytes.
    demand: Option<Rate>,
    since: Time,
    base: f64,
    /// What was read, where somebody else tells it.
    released: Option<u64>,
    /// The limit last told.
    told: u64,
    /// Segments in order that are not acknowledged yet.
    unacknowledged: u64,
    due: Due,
    echo: Note,
    duplicates: u64,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Opened,
    Ack,
    AckAt(Time),
}

/// Whether the sender knows of a gap that a segment may have filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    None,
    Known,
}

impl Receiver {
    /// A receiver with an empty buffer.
    ///
    /// # Panics
    /// If the segment size is zero.
    pub fn new(config: ReceiverConfig) -> Receiver {
        assert!(config.mss > Bytes::ZERO, "a segment has payload");
        Receiver {
            config,
            connection: 0,
            arrived: Bits::new(),
            next: 0,
            ahead: 0,
            tail: None,
            recent: [0..0, 0..0, 0..0],
            demand: None,
            since: Time::ZERO,
            base: 0.0,
            released: None,
            told: 0,
            unacknowledged: 0,
            due: Due::Nothing,
            echo: Note::None,
            duplicates: 0,
        }
    }

    /// The same as one of several connections that share a transfer.
    pub(crate) fn share(mut self, connection: u16) -> Receiver {
        self.connection = connection;
        self
    }

    /// Segments in order so far.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// From now on what is read is told by `release_to`, nothing at first.
    pub(crate) fn await_release(&mut self) {
        self.released = Some(0);
    }

    /// The first `n` segments have been read.
    pub(crate) fn release_to(&mut self, n: u64) {
        if self.released.is_none_or(|old| n <= old) {
            return;
        }
        self.released = Some(n);
        let room = self.room();
        let limit = n.saturating_add(room);
        if limit.saturating_sub(self.told) >= (room / 4).max(1) && room < u64::MAX {
            self.due = Due::Ack;
        }
    }

    /// Segments that arrived although they had arrived before.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    fn room(&self) -> u64 {
        if self.config.buffer == Bytes(u64::MAX) {
            return u64::MAX;
        }
        (self.config.buffer.0 / self.config.mss.0).max(1)
    }

    /// Segments read by the application, whole ones.
    fn read(&self, now: Time) -> u64 {
        if let Some(released) = self.released {
            return released;
        }
        match self.demand {
            None => self.next,
            Some(rate) => {
                let more = rate.as_f64() * now.since(self.since).as_secs_f64() / 8.0;
                let segments = (self.base + more) / self.config.mss.0 as f64 + 1e-6;
                (libm::floor(segments) as u64).min(self.next)
            }
        }
    }

    fn limit(&self, now: Time) -> u64 {
        self.read(now).saturating_add(self.room())
    }

    /// When the application will have made so much room that the sender should know: a quarter of
    /// the buffer more than it was told.
    #[inline]
    fn update_at(&self) -> Option<Time> {
        let rate = self.demand.filter(|rate| *rate > Rate::ZERO)?;
        let room = self.room();
        let wanted = self.told.checked_add((room / 4).max(1))?.checked_sub(room)?;
        if wanted > self.next {
            return None;
        }
        let missing = (wanted * self.config.mss.0) as f64 - self.base;
        Some(self.since + Bytes(libm::ceil(missing.max(0.0)) as u64) / rate)
    }

    fn take_segment(&mut self, now: Time, number: u64) {
        if number >= self.limit(now) {
            // No room: as if it had been lost, but the sender hears of it.
            self.due = Due::Ack;
            return;
        }
        if number == self.next && self.ahead == 0 {
            self.settle_reading(now);
            self.next += 1;
            self.arrived.pass(self.next);
            return self.note_in_order(now, Gap::None);
        }
        if number < self.next || !self.arrived.insert(number) {
            self.duplicates += 1;
            self.due = Due::Ack;
            return;
        }
        if number > self.next {
            self.ahead += 1;
            self.note_block(number);
            self.due = Due::Ack;
            return;
        }
        let had_gap = self.recent.iter().any(|block| !block.is_empty());
        self.settle_reading(now);
        self.next = self.arrived.next_gap(number);
        self.ahead -= self.next - number - 1;
        self.arrived.advance(self.next);
        for block in &mut self.recent {
            if block.start < self.next {
                *block = 0..0;
            }
        }
        self.recent.sort_by_key(|block| block.is_empty());
        self.note_in_order(now, if had_gap { Gap::Known } else { Gap::None });
    }

    /// A segment in order has been taken in.
    fn note_in_order(&mut self, now: Time, gap: Gap) {
        self.unacknowledged += 1;
        self.due = match self.config.delay {
            AckDelay::Second { wait } if self.unacknowledged < 2 && gap == Gap::None => {
                match self.due {
                    Due::Nothing => Due::AckAt(now + wait),
                    Due::Opened | Due::Ack | Due::AckAt(_) => self.due,
                }
            }
            AckDelay::None | AckDelay::Second { .. } => Due::Ack,
        };
    }

    /// An application that had read all cannot have read ahead of what arrives now.
    fn settle_reading(&mut self, now: Time) {
        if self.demand.is_some() && self.read(now) == self.next {
            self.since = now;
            self.base = (self.next * self.config.mss.0) as f64;
        }
    }

    /// RFC 2018, 4: the block of the latest segment first, then those last reported.
    fn note_block(&mut self, number: u64) {
        let start = match &self.recent[0] {
            latest if latest.end == number && !latest.is_empty() => latest.start,
            _ => self.arrived.run_start(number),
        };
        let block = start..self.arrived.next_gap(number);
        let mut kept = [block.clone(), 0..0, 0..0];
        let others = self
            .recent
            .iter()
            .filter(|old| !old.is_empty() && (old.end < block.start || old.start > block.end));
        for (place, old) in (1..kept.len()).zip(others) {
            kept[place] = old.clone();
        }
        self.recent = kept;
    }

    fn packet(&self, segment: Segment) -> Packet {
        let size = segment.size(self.config.header);
        let body = Body::Tcp(Tcp { connection: self.connection, segment });
        Packet { size, body, note: Note::None }
    }

    fn ack(&mut self, now: Time) -> Packet {
        self.due = Due::Nothing;
        self.unacknowledged = 0;
        self.told = self.limit(now);
        let blocks = match self.config.blocks {
            Blocks::Unnamed => [0..0, 0..0, 0..0],
            Blocks::Named => self.recent.clone(),
        };
        let echo = core::mem::take(&mut self.echo);
        self.packet(Segment::Ack(Ack { next: self.next, limit: self.told, blocks, echo }))
    }
}

impl Endpoint for Receiver {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Tcp(tcp) = &packet.body else { return };
        if tcp.connection != self.connection {
            return;
        }
        match tcp.segment {
            Segment::Open => self.due = Due::Opened,
            Segment::Probe => self.due = Due::Ack,
            Segment::Data { number, payload, place } => {
                self.echo = packet.note;
                match place {
                    Place::Inner => {}
                    Place::Last => self.tail = Some((number, Bytes(u64::from(payload)))),
                }
                self.take_segment(now, number);
            }
            Segment::Opened { .. } | Segment::Ack(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.due = match self.due {
                Due::Opened => Due::Opened,
                Due::Nothing | Due::Ack | Due::AckAt(_) => Due::Ack,
            };
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        match self.due {
            Due::Nothing | Due::AckAt(_) => None,
            Due::Opened => {
                self.due = Due::Nothing;
                self.told = self.limit(now);
                Some(self.packet(Segment::Opened { limit: self.told }))
            }
            Due::Ack => Some(self.ack(now)),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.due {
            Due::AckAt(at) => Some(self.update_at().map_or(at, |update| update.min(at))),
            Due::Nothing | Due::Opened | Due::Ack => self.update_at(),
        }
    }

    fn set_demand(&mut self, now: Time, rate: Option<Rate>) {
        self.base = (self.read(now) * self.config.mss.0) as f64;
        self.since = now;
        if self.demand.is_some() && rate.is_none() && self.room() < u64::MAX {
            self.due = Due::Ack;
        }
        self.demand = rate;
    }

    fn progress(&self) -> Progress {
        let full = Bytes(self.next * self.config.mss.0);
        let delivered = match self.tail {
            Some((number, payload)) if number < self.next => {
                Bytes(number * self.config.mss.0) + payload
            }
            Some(_) | None => full,
        };
        Progress { delivered, done: self.is_done(), ..Progress::default() }
    }

    fn is_done(&self) -> bool {
        self.tail.is_some_and(|(number, _)| number < self.next)
    }
}
