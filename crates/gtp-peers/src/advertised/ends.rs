//! The ends of explicit rates: a source that is told how fast it may send, a sink that returns
//! what the way said.
//!
//! The stream is not repaired: only its rate is of interest. The source paces packets at the
//! lesser of its demand and the rate that came back last; before anything came back it sends one
//! packet each tenth of a second. Any router that lowers [`Note::Advertised`] can steer it.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::Cell;
use crate::{Body, Endpoint, Note, Packet, Progress};

/// Bytes on the wire of a packet that returns a rate.
pub const ECHO: Bytes = Bytes(40);

/// How often a source that has heard nothing asks.
const ASKED_EVERY: Span = Span::from_millis(100);
/// Weight of a new round-trip time in the smoothed one, as TCP has it.
const SMOOTHING: u64 = 8;

/// What the far end reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// From the source.
    Payload {
        /// When it was sent.
        sent: Time,
    },
    /// From the sink.
    Echo {
        /// What the way allows.
        rate: Rate,
        /// When the packet that brought it was sent.
        sent: Time,
        /// Bytes that have arrived in all.
        arrived: Bytes,
    },
}

/// A sender whose rate the way decides.
#[derive(Clone, Debug)]
pub struct Source {
    session: u32,
    size: Bytes,
    demand: Rate,
    told: Option<Rate>,
    last: Option<Time>,
    sent: u64,
    delivered: Bytes,
    rtt: Span,
}

impl Source {
    /// The source of a session, with packets of `size` bytes on the wire, at least one.
    #[must_use]
    pub fn new(session: u32, size: Bytes) -> Source {
        Source {
            session,
            size: size.max(Bytes(1)),
            demand: Rate::UNLIMITED,
            told: None,
            last: None,
            sent: 0,
            delivered: Bytes::ZERO,
            rtt: Span::ZERO,
        }
    }

    /// What it sends at now.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.told.unwrap_or(Rate::ZERO).min(self.demand)
    }

    /// When the next packet is due. A source that may not send still asks.
    fn due(&self) -> Time {
        let Some(last) = self.last else { return Time::ZERO };
        last + (self.size / self.rate()).min(ASKED_EVERY)
    }
}

impl Endpoint for Source {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        if let Body::Explicit(Message::Echo { rate, sent, arrived }) = packet.body {
            self.told = Some(rate);
            self.delivered = self.delivered.max(arrived);
            let sample = now.since(sent);
            let first = self.rtt == Span::ZERO;
            let smoothed = (self.rtt * (SMOOTHING - 1) + sample) / SMOOTHING;
            self.rtt = if first { sample } else { smoothed };
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        let due = self.due();
        if due > now {
            return None;
        }
        // What was due a little earlier keeps the rate even, a long pause is not made up for.
        let late = now.since(due) > ASKED_EVERY;
        self.last = Some(if late { now } else { due });
        self.sent += 1;
        Some(Packet {
            size: self.size,
            body: Body::Explicit(Message::Payload { sent: now }),
            note: Note::Advertised(Cell {
                session: self.session,
                wanted: self.demand,
                rate: Rate::UNLIMITED,
            }),
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.due())
    }

    fn set_demand(&mut self, _now: Time, rate: Option<Rate>) {
        self.demand = rate.unwrap_or(Rate::UNLIMITED);
    }

    fn progress(&self) -> Progress {
        Progress {
            delivered: self.delivered,
            sent: self.sent,
            rate: self.rate(),
            rtt: self.rtt,
            ..Progress::default()
        }
    }
}

/// A receiver that returns each packet's rate.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    arrived: Bytes,
    echo: Option<Message>,
}

impl Sink {
    /// A sink that has received nothing.
    #[must_use]
    pub fn new() -> Sink {
        Sink::default()
    }
}

impl Endpoint for Sink {
    fn handle_packet(&mut self, _now: Time, packet: &Packet) {
        let Body::Explicit(Message::Payload { sent }) = packet.body else { return };
        self.arrived += packet.size;
        if let Note::Advertised(cell) = packet.note {
            self.echo = Some(Message::Echo { rate: cell.rate, sent, arrived: self.arrived });
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time) -> Option<Packet> {
        let body = Body::Explicit(self.echo.take()?);
        Some(Packet { size: ECHO, body, note: Note::None })
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}

    fn progress(&self) -> Progress {
        Progress { delivered: self.arrived, ..Progress::default() }
    }
}
