//! The wall clock of a probe, which nobody can set while it runs.
//!
//! It is looked at once, when the probe begins; from there the monotonic clock leads on. So a step
//! of the wall clock does not show as delay.

use gtp_alloc::Time;
use gtp_sys::clock::{Clock, unix_time};

/// What the wall clock showed at one moment, and how far the monotonic clock was.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    unix_ns: u64,
    at: Time,
}

impl Wall {
    /// The wall clock as it is now.
    pub fn now() -> Wall {
        let unix_ns = u64::try_from(unix_time().as_nanos()).unwrap_or(u64::MAX);
        Wall { unix_ns, at: Clock::start().now() }
    }

    /// Nanoseconds since the start of 1970 at a time of the monotonic clock.
    pub fn of(&self, time: Time) -> u64 {
        let (later, earlier) = (time.since(self.at), self.at.since(time));
        self.unix_ns.saturating_add(later.as_nanos()).saturating_sub(earlier.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_the_look_keep_their_distance() {
        let wall = Wall { unix_ns: 1_000, at: Time::from_nanos(500) };
        assert_eq!(wall.of(Time::from_nanos(700)), 1_200);
        assert_eq!(wall.of(Time::from_nanos(400)), 900);
    }
}
