//! What the application has given the sender so far: a number of segments that only rises.
//!
//! A transfer has a length or goes on for ever; a producer with a rate makes it available bit by
//! bit, and connections that share a transfer are allotted segments one by one.

use gtp_alloc::{Bytes, Rate, Time};

/// Segments available to a sender.
#[derive(Clone, Debug)]
pub(crate) struct Supply {
    mss: Bytes,
    /// Bytes to be sent in all; `None` without end.
    length: Option<Bytes>,
    /// Segments allotted, where somebody else allots them.
    allotted: Option<u64>,
    demand: Option<Rate>,
    /// When the demand was set, and the bytes available then.
    since: Time,
    base: f64,
}

impl Supply {
    pub(crate) fn new(mss: Bytes, length: Option<Bytes>) -> Supply {
        let (allotted, demand) = (None, None);
        Supply { mss, length, allotted, demand, since: Time::ZERO, base: 0.0 }
    }

    /// From now on segments are allotted, none at first.
    pub(crate) fn ration(&mut self) {
        self.allotted = Some(self.allotted.unwrap_or(0));
    }

    /// Allots one more segment.
    pub(crate) fn allot(&mut self) {
        self.allotted = self.allotted.map(|n| n + 1);
    }

    /// Allots the first `n` segments.
    pub(crate) fn allot_to(&mut self, n: u64) {
        self.allotted = self.allotted.map(|old| old.max(n));
    }

    /// The producer's rate from now on; what it made so far, or what was sent if it was without
    /// limit, is the base.
    pub(crate) fn set_demand(&mut self, now: Time, rate: Option<Rate>, sent: u64) {
        self.base = match self.demand {
            Some(old) => self.base + produced(old, self.since, now),
            None => (sent * self.mss.0) as f64,
        };
        self.since = now;
        self.demand = rate;
    }

    /// The number of segments that may be sent so far: the first one that may not.
    pub(crate) fn limit(&self, now: Time) -> u64 {
        let made = match self.demand {
            None => u64::MAX,
            Some(rate) => {
                let bytes = self.base + produced(rate, self.since, now);
                // A whole segment less a rounding is a whole segment.
                libm::floor(bytes / self.mss.0 as f64 + 1e-6) as u64
            }
        };
        made.min(self.segments()).min(self.allotted.unwrap_or(u64::MAX))
    }

    /// When segment `n` will be available, if the producer's rate is what holds it back.
    pub(crate) fn due(&self, n: u64) -> Option<Time> {
        let rate = self.demand.filter(|rate| *rate > Rate::ZERO)?;
        if n >= self.segments().min(self.allotted.unwrap_or(u64::MAX)) {
            return None;
        }
        let missing = ((n + 1) * self.mss.0) as f64 - self.base;
        let wait = libm::ceil(missing.max(0.0)) as u64;
        Some(self.since + Bytes(wait) / rate)
    }

    /// Segments of the whole transfer; the last may be short, and even an empty transfer has one.
    pub(crate) fn segments(&self) -> u64 {
        self.length.map_or(u64::MAX, |length| length.0.div_ceil(self.mss.0).max(1))
    }

    /// Payload of segment `n`.
    pub(crate) fn payload(&self, n: u64) -> Bytes {
        match self.length {
            None => self.mss,
            Some(length) => (length - Bytes(n.saturating_mul(self.mss.0))).min(self.mss),
        }
    }

    /// Payload of the first `n` segments.
    pub(crate) fn bytes(&self, n: u64) -> Bytes {
        let full = Bytes(n.saturating_mul(self.mss.0));
        self.length.map_or(full, |length| full.min(length))
    }
}

fn produced(rate: Rate, since: Time, now: Time) -> f64 {
    rate.as_f64() * now.since(since).as_secs_f64() / 8.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_alloc::Span;

    #[test]
    fn a_producer_makes_a_segment_available_when_its_last_byte_is_made() {
        let mut supply = Supply::new(Bytes(1_000), None);
        assert_eq!(supply.limit(Time::ZERO), u64::MAX);
        supply.set_demand(Time::ZERO, Some(Rate::from_mbps(8)), 5);
        assert_eq!(supply.limit(Time::ZERO), 5);
        let due = supply.due(5).expect("it will be made");
        assert_eq!(due, Time::ZERO + Span::from_millis(1));
        assert_eq!(supply.limit(due), 6);
        supply.set_demand(due, Some(Rate::ZERO), 6);
        assert_eq!((supply.limit(due + Span::from_secs(1)), supply.due(6)), (6, None));
    }

    #[test]
    fn the_last_segment_holds_what_is_left() {
        let supply = Supply::new(Bytes(1_000), Some(Bytes(2_500)));
        assert_eq!(
            (supply.segments(), supply.payload(1), supply.payload(2)),
            (3, Bytes(1_000), Bytes(500))
        );
        assert_eq!((supply.bytes(2), supply.bytes(3)), (Bytes(2_000), Bytes(2_500)));
    }
}
