//! Traffic that rivals have to live with: sources that send at a constant rate, always or by turns.
//!
//! AECP 6.2 puts 400 on-off sources of web traffic, 80 Mbit/s in all, and twenty constant ones of
//! 160 Mbit/s beside its flows; periods are not given. The one idea: nobody is told anything, what
//! is lost stays lost. Periods are exponential, so that sources by turns begin as Poisson's.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::draw::Draw;
use crate::{Body, Endpoint, Note, Packet, Progress};

/// When a source sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Always.
    Constant,
    /// By turns of these mean lengths; it begins at a random place of its silence.
    OnOff {
        /// Mean length of a time of sending.
        on: Span,
        /// Mean length of a silence.
        off: Span,
    },
}

/// A source without control.
#[derive(Clone, Debug)]
pub struct Source {
    rate: Rate,
    size: Bytes,
    pattern: Pattern,
    draw: Draw,
    /// When the next packet is due, and when the present time of sending ends.
    next: Time,
    until: Time,
    sent: u64,
}

impl Source {
    /// A source that begins at `now`, with packets of `size` bytes on the wire (at least one) at
    /// `rate` while it sends. Its turns follow from `seed`.
    #[must_use]
    pub fn new(now: Time, rate: Rate, size: Bytes, pattern: Pattern, seed: u64) -> Source {
        let mut source = Source {
            rate,
            size: size.max(Bytes(1)),
            pattern,
            draw: Draw::new(seed),
            next: now,
            until: Time::MAX,
            sent: 0,
        };
        source.fall_silent(now);
        source
    }

    /// The next time of sending, after a silence that begins at `now`.
    fn fall_silent(&mut self, now: Time) {
        let Pattern::OnOff { on, off } = self.pattern else { return };
        self.next = now + self.turn(off);
        self.until = self.next + self.turn(on);
    }

    fn turn(&mut self, mean: Span) -> Span {
        Span::from_secs_f64(self.draw.exponential(mean.as_secs_f64())).max(TURN_MIN)
    }
}

/// The shortest turn, so that a host always gets on.
const TURN_MIN: Span = Span::from_micros(1);

impl Endpoint for Source {
    fn handle_packet(&mut self, _now: Time, _packet: &Packet) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        while self.next > self.until {
            self.fall_silent(self.until);
        }
        if self.next > now {
            return None;
        }
        self.next += self.size / self.rate;
        self.sent += 1;
        Some(Packet { size: self.size, body: Body::Empty, note: Note::None })
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }

    /// The rate while it sends from now on; `None` is its end.
    fn set_demand(&mut self, now: Time, rate: Option<Rate>) {
        self.rate = rate.unwrap_or(Rate::ZERO);
        self.next = self.next.max(now);
    }

    fn progress(&self) -> Progress {
        Progress { sent: self.sent, rate: self.rate, ..Progress::default() }
    }
}

/// Where such traffic ends.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    arrived: Bytes,
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
        self.arrived += packet.size;
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time) -> Option<Packet> {
        None
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
    use super::*;

    /// Packets of a thousand bytes in ten seconds.
    fn packets(pattern: Pattern, seed: u64) -> u64 {
        let start = Time::from_nanos(1_000_000_000);
        let mut source = Source::new(start, Rate::from_mbps(2), Bytes(1_000), pattern, seed);
        let end = start + Span::from_secs(10);
        while let Some(due) = source.poll_timeout().filter(|due| *due < end) {
            source.poll_transmit(due);
        }
        source.progress().sent
    }

    #[test]
    fn a_constant_source_sends_at_its_rate() {
        assert_eq!(packets(Pattern::Constant, 1), 2_500);
    }

    #[test]
    fn sources_by_turns_send_their_share_of_the_time() {
        let web = Pattern::OnOff { on: Span::from_millis(50), off: Span::from_millis(450) };
        let sum: u64 = (0..400).map(|seed| packets(web, seed)).sum();
        // A tenth of the time; every time of sending begins with a packet, half of one more.
        let mean = sum as f64 / 400.0;
        assert!((mean / 260.0 - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn a_stopped_source_is_silent() {
        let mut source =
            Source::new(Time::ZERO, Rate::from_mbps(2), Bytes(1_000), Pattern::Constant, 1);
        source.poll_transmit(Time::ZERO);
        source.set_demand(Time::ZERO, None);
        let last = source.poll_timeout().unwrap();
        source.poll_transmit(last);
        assert_eq!(source.poll_timeout(), Some(Time::MAX));
    }
}
