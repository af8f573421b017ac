//! The one clock read.
//!
//! A [`Clock`] measures from one origin that the whole process shares, so that times read by
//! different threads and by different `Clock` values can be compared and subtracted. It is
//! monotonic: it never goes back and no one can set it. The wall clock is a separate function, for
//! file times and for records that people read; nothing is scheduled by it.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use gtp_alloc::{Span, Time};

/// The process's monotonic clock; copies and further clocks share its origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// The process's clock. The first call in the process sets the origin of all of them.
    pub fn start() -> Clock {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Clock { origin: *ORIGIN.get_or_init(Instant::now) }
    }

    /// The time now, in nanoseconds since the process's origin.
    pub fn now(&self) -> Time {
        let elapsed = self.origin.elapsed();
        Time::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The wall clock: the time since the start of 1970 (UTC), zero on a machine whose clock is before
/// it. It may jump; use it for records and file times only, and for what the kernel notes by it,
/// within bounds.
pub fn unix_time() -> Duration {
    since_1970(SystemTime::now())
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// The wall clock in whole seconds since the start of 1970 (UTC); see [`unix_time`].
pub fn unix_seconds() -> u64 {
    unix_time().as_secs()
}

/// Whether something keeps the wall clock right, as far as the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronised {
    /// A program that compares it with others has set it, and says that it is right.
    Yes,
    /// None has lately.
    No,
    /// The kernel does not say.
    Unknown,
}

/// Asks the kernel whether the wall clock is kept right.
pub fn synchronised() -> Synchronised {
    // SAFETY: all fields are numbers, of which zero is a valid value; `modes` of zero asks only.
    let mut asked: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into this one structure, which lives until the call has ended.
    match unsafe { libc::adjtimex(&raw mut asked) } {
        -1 => Synchronised::Unknown,
        _ if asked.status & libc::STA_UNSYNC != 0 => Synchronised::No,
        _ => Synchronised::Yes,
    }
}

/// `span` as the standard library's duration, for waiting functions.
pub fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

/// `duration` as a span; longer ones than a span holds, five hundred years, count as that.
pub fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_different_threads_agree() {
        let before = Clock::start().now();
        let inside = std::thread::spawn(|| Clock::start().now()).join().expect("the thread ends");
        let after = Clock::start().now();
        assert!(before <= inside && inside <= after);
    }

    #[test]
    fn a_time_before_1970_counts_as_its_start() {
        let second = Duration::from_secs(1);
        assert_eq!(since_1970(SystemTime::UNIX_EPOCH - second), Duration::ZERO);
        assert_eq!(since_1970(SystemTime::UNIX_EPOCH + second), second);
    }

    #[test]
    fn the_wall_clock_is_past_the_year_2020() {
        assert!(unix_seconds() > 1_577_836_800);
    }
}
