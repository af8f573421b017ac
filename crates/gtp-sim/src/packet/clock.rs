//! A host's clock: what it shows at a time of the world, and when it will show a given time.
//!
//! Integer arithmetic, so that it is the same everywhere; between two changes of drift it is a
//! straight line.

use gtp_alloc::{Span, Time};

/// One host's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// World time and shown time of the last change of drift.
    world: u64,
    shown: u64,
    /// Parts per billion above true time.
    drift: i64,
}

const BILLION: i128 = 1_000_000_000;

impl Clock {
    pub fn new(offset: Span, drift_ppb: i32) -> Clock {
        Clock { world: 0, shown: offset.as_nanos(), drift: drift_ppb.into() }
    }

    /// What it shows at `now`.
    #[inline]
    pub fn shows(&self, now: Time) -> Time {
        let since = now.as_nanos().saturating_sub(self.world);
        let passed = if self.drift == 0 { since } else { self.run(since) };
        Time::from_nanos(self.shown.saturating_add(passed))
    }

    /// The earliest world time at which it shows `shown` or later.
    #[inline]
    pub fn when(&self, shown: Time) -> Time {
        if shown == Time::MAX {
            return Time::MAX;
        }
        let wanted = shown.as_nanos().saturating_sub(self.shown);
        if self.drift == 0 {
            return Time::from_nanos(self.world.saturating_add(wanted));
        }
        let factor = BILLION + i128::from(self.drift);
        let since = (i128::from(wanted) * BILLION).div_euclid(factor);
        let mut since = u64::try_from(since).unwrap_or(u64::MAX);
        while self.run(since) < wanted {
            since += 1;
        }
        Time::from_nanos(self.world.saturating_add(since))
    }

    /// Changes the drift from `now` on.
    pub fn set_drift(&mut self, now: Time, drift_ppb: i32) {
        let shown = self.shows(now).as_nanos();
        *self = Clock { world: now.as_nanos(), shown, drift: drift_ppb.into() };
    }

    fn run(&self, since: u64) -> u64 {
        let since = i128::from(since);
        let passed = since + (since * i128::from(self.drift)).div_euclid(BILLION);
        u64::try_from(passed).unwrap_or(u64::MAX)
    }
}

/// Drifts beyond this count as this: a host so slow stands for one in a world a hundred times as
/// fast (the thesis's time dilation, X.3.A).
pub(crate) const DRIFT_MOST: i32 = 990_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn when_is_the_first_moment_at_which_the_clock_shows_that_time(
            offset in 0u64..1 << 50,
            drift in -DRIFT_MOST..=DRIFT_MOST,
            changed in 0u64..1 << 45,
            second in -DRIFT_MOST..=DRIFT_MOST,
            ahead in 0u64..1 << 45,
        ) {
            let mut clock = Clock::new(Span::from_nanos(offset), drift);
            clock.set_drift(Time::from_nanos(changed), second);
            let shown = clock.shows(Time::from_nanos(changed)) + Span::from_nanos(ahead);
            let when = clock.when(shown);
            prop_assert!(clock.shows(when) >= shown);
            let before = when.saturating_sub(Span::from_nanos(1));
            prop_assert!(before.as_nanos() < changed || ahead == 0 || clock.shows(before) < shown);
        }
    }
}
