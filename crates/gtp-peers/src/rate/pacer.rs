//! Pacing: one packet each `s/r` (thesis, eq. II.13).
//!
//! The pacer keeps when the last packet was due, with fractions of a nanosecond, so that a rate
//! holds exactly over millions of packets although the host serves it in whole nanoseconds. The
//! gap is asked for anew each time: a change of rate acts on the packet that waits now. It knows
//! no protocol and no rate.

use gtp_alloc::{Bytes, Rate, Time};

/// The seconds between two packets of `size` at `rate`: eq. II.13. Infinite at rate zero, zero
/// at an unlimited rate.
pub fn gap(size: Bytes, rate: Rate) -> f64 {
    size.0 as f64 * 8.0 / rate.as_f64()
}

/// The rate at which packets of `size` leave when they are `gap` seconds apart.
pub fn rate(size: Bytes, gap: f64) -> Rate {
    Rate::from_f64(size.0 as f64 * 8.0 / gap)
}

/// When the next packet may leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// When the last packet was due: whole nanoseconds and a fraction.
    last: Option<(Time, f64)>,
}

impl Pacer {
    /// A pacer that lets its first packet go at once.
    pub fn new() -> Pacer {
        Pacer::default()
    }

    /// When the next packet may leave if packets are to be `gap` seconds apart.
    pub fn due(&self, gap: f64) -> Time {
        self.exact(gap).map_or(Time::ZERO, |(at, _)| at)
    }

    /// Whether a packet may leave now.
    pub fn is_ready(&self, now: Time, gap: f64) -> bool {
        self.due(gap) <= now
    }

    /// Notes that a packet left. A sender that was late by less than a gap catches up; one that
    /// had nothing to send does not.
    pub fn note_sent(&mut self, now: Time, gap: f64) {
        let (due, rest) = self.exact(gap).unwrap_or((now, 0.0));
        let late = now.since(due).as_nanos() as f64;
        self.last = Some(if late > gap * NANOS { (now, 0.0) } else { (due, rest) });
    }

    fn exact(&self, gap: f64) -> Option<(Time, f64)> {
        let (last, rest) = self.last?;
        let nanos = gap * NANOS + rest;
        let whole = libm::floor(nanos);
        let at = Time::from_nanos(last.as_nanos().saturating_add(whole as u64));
        Some((at, if whole.is_finite() { nanos - whole } else { 0.0 }))
    }
}

const NANOS: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_each_twelve_microseconds_is_a_gigabit() {
        assert_eq!(gap(Bytes(1_500), Rate::from_mbps(1_000)), 12e-6);
        assert_eq!(rate(Bytes(1_500), 12e-6), Rate::from_mbps(1_000));
    }

    #[test]
    fn fractions_of_nanoseconds_add_up() {
        // A third of a microsecond, a million times.
        let (mut pacer, gap) = (Pacer::new(), 1e-6 / 3.0);
        let mut now = Time::from_nanos(5);
        for _ in 0..1_000_001 {
            now = pacer.due(gap).max(now);
            pacer.note_sent(now, gap);
        }
        assert!(now.since(Time::from_nanos(5 + 333_333_333)).as_nanos() <= 1);
    }

    #[test]
    fn what_was_not_sent_in_time_is_not_made_up_for() {
        let mut pacer = Pacer::new();
        pacer.note_sent(Time::from_nanos(0), 1e-6);
        pacer.note_sent(Time::from_nanos(900_000), 1e-6);
        assert_eq!(pacer.due(1e-6), Time::from_nanos(901_000));
    }

    #[test]
    fn a_rate_of_zero_is_never_due() {
        let mut pacer = Pacer::new();
        pacer.note_sent(Time::from_nanos(10), 1.0);
        assert_eq!(pacer.due(gap(Bytes(1_500), Rate::ZERO)), Time::MAX);
    }
}
