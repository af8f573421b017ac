//! The rate of a session as it is shown.
//!
//! A session reports its rate of each control interval, of some milliseconds. Packets leave and
//! arrive in bursts, so that one interval may hold more than was granted for it and the next less.
//! What is shared out follows each report. What people see is the mean of half a second's reports,
//! in which bursts even out. A mean from before the grant came down tells nothing of the grant of
//! now, so then the last report is shown.

use gtp_alloc::{Rate, Span, Time};

/// Reports of this long are one rate: `gtp top` looks twice a second.
const SPAN: Span = Span::from_millis(500);

/// A grant that has come down by less than this part is the same one.
const AS_GOOD_AS: f64 = 0.98;

/// The mean of a session's reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Sum of the rates reported since the last mean, in bit/s.
    sum: u64,
    count: u64,
    mean: Option<Rate>,
    /// The grant when the last span ended.
    grant: Rate,
}

impl Pace {
    /// Takes in a report.
    #[inline]
    pub fn add(&mut self, measured: Rate) {
        self.sum = self.sum.saturating_add(measured.as_bps());
        self.count += 1;
    }

    /// Ends a span, with this grant: what was reported in it is the rate from now on.
    pub fn close(&mut self, grant: Rate) {
        let Some(mean) = self.sum.checked_div(self.count) else { return };
        let mean = (!self.has_fallen(grant)).then(|| Rate::from_bps(mean));
        *self = Pace { mean, grant, ..Pace::default() };
    }

    /// The rate to show under this grant; none before the first span has ended, nor before the
    /// first since the grant has come down.
    pub fn mean(&self, grant: Rate) -> Option<Rate> {
        self.mean.filter(|_| !self.has_fallen(grant))
    }

    fn has_fallen(&self, grant: Rate) -> bool {
        grant < self.grant.scale(AS_GOOD_AS)
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
        let (mut pace, grant) = (Pace::default(), Rate::from_mbps(100));
        assert_eq!(pace.mean(grant), None);
        for burst in [130, 70].into_iter().cycle().take(100) {
            pace.add(Rate::from_mbps(burst));
        }
        pace.close(grant);
        assert_eq!(pace.mean(grant), Some(grant));
        pace.close(grant);
        assert_eq!(pace.mean(grant), Some(grant), "nothing new was reported");
        pace.add(Rate::from_mbps(40));
        pace.close(grant);
        assert_eq!(pace.mean(grant), Some(Rate::from_mbps(40)), "what was before does not count");
    }

    #[test]
    fn a_mean_from_before_the_grant_came_down_is_not_shown() {
        let (mut pace, [high, low]) = (Pace::default(), [100, 50].map(Rate::from_mbps));
        pace.add(high);
        pace.close(high);
        assert_eq!(pace.mean(low), None);
        pace.add(high);
        pace.close(low);
        assert_eq!(pace.mean(low), None, "a part of that span was before");
        pace.add(low);
        pace.close(low);
        assert_eq!(pace.mean(low), Some(low));
        assert_eq!(pace.mean(high), Some(low), "a grant that has risen changes nothing");
    }

    #[test]
    fn a_span_ends_twice_a_second() {
        let start = Time::ZERO;
        let mut paces = Paces::new(start);
        let ends = (0..400u64).filter(|n| paces.end(start + Span::from_millis(n * 10))).count();
        assert_eq!(ends, 7);
    }
}
