//! A receiver's rate meter, after EyeQ: one rate for all senders to a node, moved by the use that
//! they make of the node.
//!
//! | rule | where |
//! |---|---|
//! | each interval, against the excess: `R = R * (1 - a * (y - C) / C)` | `next_rate` |
//! | every packet is told the rate; its sink returns the least of its way | [`Meter`] |
//!
//! No state per session, as in the original: who leaves is missed in what arrives.
//!
//! Departure: the original works in data centres, with an interval of 200 microseconds, longer
//! than its round-trip times. Here the interval is given; it must be longer than the longest
//! round-trip time for the same reason, a change must be felt before the next one.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::{Admission, Note, Packet, Router};

/// How much of the difference one interval mends: the original's `alpha`.
const GAIN: f64 = 0.5;
/// The share of the capacity below which the rate never falls, so that it can rise again.
const LEAST: f64 = 1e-6;
/// The shortest interval, the original's.
const INTERVAL_MIN: Span = Span::from_micros(200);

/// The controller at one side of a host.
#[derive(Clone, Debug)]
pub struct Meter {
    interval: Span,
    capacity: Rate,
    rate: Rate,
    arrived: Bytes,
    due: Option<Time>,
}

impl Meter {
    /// A meter that changes its rate every `interval`, at least 200 microseconds.
    #[must_use]
    pub fn new(interval: Span) -> Meter {
        Meter {
            interval: interval.max(INTERVAL_MIN),
            capacity: Rate::ZERO,
            rate: Rate::ZERO,
            arrived: Bytes::ZERO,
            due: None,
        }
    }

    /// What every sender is told.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }
}

/// The rate after an interval in which `arrived` came, between a millionth of `capacity` and all.
fn next_rate(rate: Rate, arrived: Rate, capacity: Rate) -> Rate {
    let excess = arrived.as_f64() / capacity.as_f64() - 1.0;
    // More than thrice the capacity would turn the sign.
    let next = rate.scale((1.0 - GAIN * excess).max(0.0));
    next.min(capacity).max(capacity.scale(LEAST))
}

impl Router for Meter {
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.capacity = capacity;
        if self.due.is_none() {
            self.rate = capacity;
            self.due = Some(now + self.interval);
        }
        self.rate = self.rate.min(capacity);
    }

    fn handle_arrival(&mut self, _now: Time, _queued: Bytes, packet: &mut Packet) -> Admission {
        self.arrived += packet.size;
        if let Note::Advertised(cell) = &mut packet.note {
            cell.rate = cell.rate.min(self.rate);
        }
        Admission::Pass
    }

    fn handle_timeout(&mut self, now: Time, _queued: Bytes) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let arrived = core::mem::take(&mut self.arrived).per(self.interval);
        self.rate = next_rate(self.rate, arrived, self.capacity);
        self.due = Some(now + self.interval);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Rate = Rate::from_mbps(1_000);

    #[test]
    fn senders_at_one_rate_are_brought_to_an_equal_share() {
        for senders in [1_u64, 2, 5, 40] {
            let mut rate = NODE;
            for _ in 0..200 {
                let arrived = Rate::from_bps(rate.as_bps() * senders);
                rate = next_rate(rate, arrived, NODE);
            }
            let want = NODE.as_f64() / senders as f64;
            assert!((rate.as_f64() / want - 1.0).abs() < 1e-6, "{senders}: {rate}");
        }
    }

    #[test]
    fn the_rate_stays_between_a_millionth_and_all_of_the_capacity() {
        assert_eq!(next_rate(NODE, Rate::ZERO, NODE), NODE);
        assert_eq!(next_rate(NODE, NODE.scale(100.0), NODE), NODE.scale(1e-6));
        assert_eq!(next_rate(Rate::ZERO, Rate::ZERO, Rate::ZERO), Rate::ZERO);
    }
}
