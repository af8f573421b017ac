//! The retransmission timer and its estimator: RFC 6298.
//!
//! | rule | where |
//! |---|---|
//! | 2.1 one second before the first measurement | [`Timer::new`] |
//! | 2.2, 2.3 smoothed time and variation | [`Timer::measure`] |
//! | 2.4 a floor; 2.5 a ceiling | [`Timer::timeout`] |
//! | 3 (Karn) no measurement of what was sent twice | the caller |
//! | 5.7 three seconds after an opening that was repeated | [`Timer::begin_late`] |
//! | 5.1 to 5.3 start, stop, restart | `start`, `stop`, `restart` |
//! | 5.5 back off, and its end | `back_off`, `relax` |
//!
//! One departure: every acknowledgment gives a measurement, not one in a round trip; the gains are
//! divided by the number expected in a round trip, as RFC 7323, appendix G, proposes.

use gtp_alloc::{Span, Time};

/// Round-trip times and the deadline that follows from them.
#[derive(Clone, Debug)]
pub(crate) struct Timer {
    floor: Span,
    smoothed: f64,
    variation: f64,
    /// `smoothed`, and the timeout that is not backed off, as they are asked for.
    smoothed_span: Span,
    base: Span,
    least: Span,
    latest: Option<Span>,
    backoff: u32,
    deadline: Option<Time>,
}

impl Timer {
    /// A timer that never rings earlier than `floor` after what it guards.
    pub(crate) fn new(floor: Span) -> Timer {
        Timer {
            floor,
            smoothed: 0.0,
            variation: 0.0,
            smoothed_span: Span::ZERO,
            base: FIRST.max(floor),
            least: Span::MAX,
            latest: None,
            backoff: 0,
            deadline: None,
        }
    }

    /// A measured round trip, with this many segments out.
    pub(crate) fn measure(&mut self, rtt: Span, outstanding: u64) {
        let sample = rtt.as_secs_f64();
        match self.latest {
            None => (self.smoothed, self.variation) = (sample, sample / 2.0),
            Some(_) => {
                let expected = outstanding.div_ceil(2).max(1) as f64;
                let miss = libm::fabs(self.smoothed - sample);
                self.variation += (miss - self.variation) / 4.0 / expected;
                self.smoothed += (sample - self.smoothed) / 8.0 / expected;
            }
        }
        self.latest = Some(rtt);
        self.least = self.least.min(rtt);
        self.smoothed_span = Span::from_secs_f64(self.smoothed);
        let timeout = Span::from_secs_f64(self.smoothed + 4.0 * self.variation);
        self.base = self.floor.max(timeout);
    }

    /// The timeout is again what was measured.
    pub(crate) fn relax(&mut self) {
        self.backoff = 0;
    }

    /// The connection is open, but only after its opening was repeated: nothing is measured yet.
    pub(crate) fn begin_late(&mut self) {
        if self.latest.is_none() {
            self.base = FIRST_LATE.max(self.floor);
        }
        self.backoff = 0;
    }

    /// RTO, backed off as it stands.
    pub(crate) fn timeout(&self) -> Span {
        CEILING.min(self.base * (1 << self.backoff.min(6)))
    }

    /// The smoothed round-trip time, zero before the first measurement.
    pub(crate) fn smoothed(&self) -> Span {
        self.smoothed_span
    }

    /// The least round-trip time measured.
    pub(crate) fn least(&self) -> Option<Span> {
        self.latest.map(|_| self.least)
    }

    /// Sets the deadline unless it is set.
    pub(crate) fn start(&mut self, now: Time) {
        if self.deadline.is_none() {
            self.restart(now);
        }
    }

    /// Sets the deadline anew.
    pub(crate) fn restart(&mut self, now: Time) {
        self.deadline = Some(now + self.timeout());
    }

    /// Nothing is guarded.
    pub(crate) fn stop(&mut self) {
        self.deadline = None;
    }

    /// It has rung: the next timeout is twice as long.
    pub(crate) fn back_off(&mut self) {
        self.backoff += 1;
        self.deadline = None;
    }

    /// When it rings.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

/// RFC 6298, 2.1.
const FIRST: Span = Span::from_secs(1);
/// RFC 6298, 5.7.
const FIRST_LATE: Span = Span::from_secs(3);
/// RFC 6298, 2.5: at least 60 s.
const CEILING: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_measurement_gives_three_times_itself_and_backing_off_doubles() {
        let mut timer = Timer::new(Span::from_millis(200));
        assert_eq!(timer.timeout(), Span::from_secs(1));
        timer.measure(Span::from_millis(100), 1);
        assert_eq!(timer.timeout(), Span::from_millis(300));
        timer.back_off();
        timer.back_off();
        assert_eq!(timer.timeout(), Span::from_millis(1_200));
        timer.measure(Span::from_millis(100), 1);
        assert_eq!(timer.timeout(), Span::from_millis(1_000));
        timer.relax();
        assert_eq!(timer.timeout(), Span::from_millis(250), "100 + 4 * 37.5 ms");
        (0..50).for_each(|_| timer.measure(Span::from_millis(100), 1));
        assert_eq!(timer.timeout(), Span::from_millis(200), "the floor");
        (0..20).for_each(|_| timer.back_off());
        assert_eq!(timer.timeout(), Span::from_nanos(64 * 200_000_000).min(CEILING));
    }
}
