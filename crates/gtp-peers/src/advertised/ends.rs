//! The ends of explicit rates: a source that is told how fast it may send, a sink that returns
//! what the way said.
//!
//! The stream is not repaired: only its rate is of interest. The source paces packets at the
//! lesser of its demand and the rate that came back last; before anything came back it sends one
//! packet each tenth of a second. Any router that lowers [`Note::Advertised`] can steer it.
//!
//! A source of [`Source::with_control`] asks by control packets instead, one of which is always on
//! its way, and sends nothing before the first is back: for links that keep
//! [`perc`](crate::anchors::perc)'s rules.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::Cell;
use crate::anchors::perc::{Claim, Least};
use crate::{Body, Endpoint, Note, Packet, Progress};

/// Bytes on the wire of a packet that returns a rate.
pub const ECHO: Bytes = Bytes(40);

/// How often a source that has heard nothing asks.
const ASKED_EVERY: Span = Span::from_millis(100);
/// The same by control packets, of which only the last one's answer counts.
const ASKED_FIRST: Span = Span::from_secs(1);
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
    /// From the source to the links on its way, and to the sink.
    Control {
        /// What links read and change.
        claim: Claim,
        /// When it was sent.
        sent: Time,
    },
    /// From the sink: what the links wrote.
    Answer {
        /// The least rates of the way.
        least: Least,
        /// When the control packet was sent.
        sent: Time,
        /// Bytes that have arrived in all.
        arrived: Bytes,
    },
}

/// How a source asks.
#[derive(Clone, Copy, Debug)]
enum Asks {
    /// Every packet does.
    Along,
    /// By control packets: what the last answer said, when the last question was sent, and when to
    /// ask again. Only the answer to that one counts: late ones and copies would each beget
    /// another question.
    Apart { said: Option<Least>, asked: Option<Time>, next: Time },
}

/// A sender whose rate the way decides.
#[derive(Clone, Debug)]
pub struct Source {
    session: u32,
    size: Bytes,
    asks: Asks,
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
            asks: Asks::Along,
            demand: Rate::UNLIMITED,
            told: None,
            last: None,
            sent: 0,
            delivered: Bytes::ZERO,
            rtt: Span::ZERO,
        }
    }

    /// The same, which asks by control packets.
    #[must_use]
    pub fn with_control(session: u32, size: Bytes) -> Source {
        let asks = Asks::Apart { said: None, asked: None, next: Time::ZERO };
        Source { asks, ..Source::new(session, size) }
    }

    /// What it sends at now.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.told.unwrap_or(Rate::ZERO).min(self.demand)
    }

    /// When the next packet with payload is due. A source that may not send still asks, if it has
    /// no other way.
    fn due(&self) -> Option<Time> {
        match (self.asks, self.last) {
            (Asks::Apart { .. }, _) if self.rate() == Rate::ZERO => None,
            (_, None) => Some(Time::ZERO),
            (_, Some(last)) => Some(last + (self.size / self.rate()).min(ASKED_EVERY)),
        }
    }

    /// A control packet, if one is due.
    fn ask(&mut self, now: Time) -> Option<Packet> {
        let Asks::Apart { said, asked, next } = &mut self.asks else { return None };
        if *next > now {
            return None;
        }
        // Should it be lost.
        *next = now + if self.rtt == Span::ZERO { ASKED_FIRST } else { ASKED_EVERY + self.rtt * 2 };
        *asked = Some(now);
        let claim = Claim::new(self.session, self.demand, *said);
        let body = Body::Explicit(Message::Control { claim, sent: now });
        Some(Packet { size: ECHO, body, note: Note::None })
    }

    /// The way allows `rate`, as a packet of `sent` found out.
    fn hear(&mut self, now: Time, rate: Rate, sent: Time, arrived: Bytes) {
        self.told = Some(rate);
        self.delivered = self.delivered.max(arrived);
        let sample = now.since(sent);
        let first = self.rtt == Span::ZERO;
        let smoothed = (self.rtt * (SMOOTHING - 1) + sample) / SMOOTHING;
        self.rtt = if first { sample } else { smoothed };
    }
}

impl Endpoint for Source {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Explicit(message) = packet.body else { return };
        match message {
            Message::Echo { rate, sent, arrived } => self.hear(now, rate, sent, arrived),
            Message::Answer { least, sent, arrived } => {
                if let Asks::Apart { said, asked, next } = &mut self.asks
                    && *asked == Some(sent)
                {
                    (*said, *asked, *next) = (Some(least), None, now);
                    self.hear(now, least.rate(), sent, arrived);
                }
            }
            Message::Payload { .. } | Message::Control { .. } => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if let Some(control) = self.ask(now) {
            return Some(control);
        }
        let due = self.due().filter(|due| *due <= now)?;
        // What was due a little earlier keeps the rate even, a long pause is not made up for.
        let late = now.since(due) > ASKED_EVERY;
        self.last = Some(if late { now } else { due });
        self.sent += 1;
        let note = match self.asks {
            Asks::Along => {
                let (wanted, rate) = (self.demand, Rate::UNLIMITED);
                Note::Advertised(Cell { session: self.session, wanted, rate })
            }
            Asks::Apart { .. } => Note::None,
        };
        let body = Body::Explicit(Message::Payload { sent: now });
        Some(Packet { size: self.size, body, note })
    }

    fn poll_timeout(&self) -> Option<Time> {
        let asks = match self.asks {
            Asks::Along => None,
            Asks::Apart { next, .. } => Some(next),
        };
        [self.due(), asks].into_iter().flatten().min()
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

/// A receiver that returns what each packet, or each control packet, was told.
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
        let Body::Explicit(message) = packet.body else { return };
        match message {
            Message::Payload { sent } => {
                self.arrived += packet.size;
                if let Note::Advertised(cell) = packet.note {
                    let arrived = self.arrived;
                    self.echo = Some(Message::Echo { rate: cell.rate, sent, arrived });
                }
            }
            Message::Control { claim, sent } => {
                let (least, arrived) = (claim.least(), self.arrived);
                self.echo = Some(Message::Answer { least, sent, arrived });
            }
            Message::Echo { .. } | Message::Answer { .. } => {}
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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn questions(source: &mut Source, now: Time) -> Vec<Packet> {
        let all = core::iter::from_fn(|| source.poll_transmit(now));
        all.filter(|p| matches!(p.body, Body::Explicit(Message::Control { .. }))).collect()
    }

    #[test]
    fn one_question_is_on_its_way_whatever_is_copied_and_however_long_the_way() {
        let ms = |ms: u64| Time::ZERO + Span::from_millis(ms);
        let (mut source, mut sink) = (Source::with_control(1, Bytes(1_000)), Sink::new());
        source.set_demand(ms(0), Some(Rate::from_mbps(1)));
        let asked = questions(&mut source, ms(1));
        assert_eq!(asked.len(), 1);
        assert!(questions(&mut source, ms(300)).is_empty(), "no answer can be here");
        sink.handle_packet(ms(150), &asked[0]);
        let answer = sink.poll_transmit(ms(150)).expect("an answer");
        source.handle_packet(ms(301), &answer);
        assert_eq!(source.rate(), Rate::from_mbps(1));
        assert_eq!(questions(&mut source, ms(301)).len(), 1);
        source.handle_packet(ms(302), &answer);
        assert!(questions(&mut source, ms(302)).is_empty(), "it was a copy");
        // Lost: asked again after two round trips and a tenth of a second.
        assert_eq!(questions(&mut source, ms(301 + 700)).len(), 1);
    }
}
