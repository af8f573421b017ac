//! The rate of a session as it is shown.
//!
//! A session reports its rate of each control interval, of some milliseconds. Packets leave and
//! arrive in bursts, so that one interval may hold more than was granted for it and the next less.
//! What is shared out follows each report. What people see is the mean of half a second: that stays
//! within the grant, but for a grant that has come down meanwhile.

use gtp_alloc::{Rate, Span, Time};

/// Reports of this long are one rate: `gtp top` looks twice a second.
const SPAN: Span = Span::from_millis(500);

/// The mean of a session's reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Sum of the rates reported since the last mean, in bit/s.
    sum: u64,
    count: u64,
    mean: Option<Rate>,
}

impl Pace {
    /// Takes in a report.
    #[inline]
    pub fn add(&mut self, measured: Rate) {
        self.sum = self.sum.saturating_add(measured.as_bps());
        self.count += 1;
    }

    /// Ends a span: what was reported in it is the rate from now on.
    pub fn close(&mut self) {
        if let Some(mean) = self.sum.checked_div(self.count) {
            *self = Pace { mean: Some(Rate::from_bps(mean)), ..Pace::default() };
        }
    }

    /// The rate to show; none before the first span has ended.
    pub fn mean(&self) -> Option<Rate> {
        self.mean
    }
}

/// When spans end, for all sessions at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paces(Time);

impl Paces {
    /// The first span begins at `now`.
    pub fn new(now: Time) -> Paces {
        Paces(now + SPAN)
    }

    /// Whether a span has ended; the next one begins then.
    pub fn end(&mut self, now: Time) -> bool {
        let ended = now >= self.0;
        if ended {
            self.0 = now + SPAN;
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_around_a_grant_show_as_the_grant_and_never_as_more() {
        let mut pace = Pace::default();
        assert_eq!(pace.mean(), None);
        for burst in [130, 70].into_iter().cycle().take(100) {
            pace.add(Rate::from_mbps(burst));
        }
        pace.close();
        assert_eq!(pace.mean(), Some(Rate::from_mbps(100)));
        pace.close();
        assert_eq!(pace.mean(), Some(Rate::from_mbps(100)), "nothing new was reported");
        pace.add(Rate::from_mbps(40));
        pace.close();
        assert_eq!(pace.mean(), Some(Rate::from_mbps(40)), "what was before does not count");
    }

    #[test]
    fn a_span_ends_twice_a_second() {
        let start = Time::ZERO;
        let mut paces = Paces::new(start);
        let ends = (0..400u64).filter(|n| paces.end(start + Span::from_millis(n * 10))).count();
        assert_eq!(ends, 7);
    }
}
