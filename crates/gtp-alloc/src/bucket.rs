//! A rate limit for events: a number a second, and a burst at once.
//!
//! One moment is all that is kept: when the next one would be due if all came evenly (the generic
//! cell rate algorithm, ITU-T I.371). An event that comes earlier than that by more than the
//! burst allows is one too many. Time is an argument, and what is counted is unknown here.

use crate::{Span, Time};

/// Counts events against the number that may come.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// The time that one event takes.
    each: Span,
    /// How far ahead of its due time an event may come.
    early: Span,
    /// When the next one is due.
    due: Time,
}

impl Bucket {
    /// A bucket for `per_second` a second, of which `burst` may come at once. Both count as one
    /// at least.
    pub const fn new(per_second: u32, burst: u32) -> Bucket {
        let per_second = if per_second == 0 { 1 } else { per_second as u64 };
        let each = 1_000_000_000 / per_second;
        let early = each * (burst as u64).saturating_sub(1);
        Bucket { each: Span::from_nanos(each), early: Span::from_nanos(early), due: Time::ZERO }
    }

    /// Counts an event at `now`, unless it is one too many; returns whether it was counted.
    pub fn take(&mut self, now: Time) -> bool {
        let due = self.due.max(now);
        if due.since(now) > self.early {
            return false;
        }
        self.due = due + self.each;
        true
    }

    /// Counts `count` events that cannot be refused; returns how long their cause must wait before
    /// the next.
    pub fn debit(&mut self, now: Time, count: u64) -> Span {
        let due = self.due.max(now);
        self.due = due + self.each * count;
        self.due.since(now).saturating_sub(self.early)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_its_burst_and_then_its_rate_and_a_rest_fills_the_bucket_again() {
        let mut bucket = Bucket::new(5, 4);
        let start = Time::from_nanos(7_000_000_000);
        let flood = |bucket: &mut Bucket, from: Time| {
            (0..2_000).filter(|&ms| bucket.take(from + Span::from_millis(ms))).count()
        };
        assert_eq!(flood(&mut bucket, start), 4 + 9);
        assert_eq!(flood(&mut bucket, start + Span::from_secs(60)), 4 + 9);
    }

    #[test]
    fn what_must_come_makes_its_cause_wait_for_as_long_as_it_takes() {
        let mut bucket = Bucket::new(100, 10);
        let start = Time::from_nanos(1);
        assert_eq!(bucket.debit(start, 9), Span::ZERO);
        assert_eq!(bucket.debit(start, 101), Span::from_millis(1_010));
        assert!(!bucket.take(start));
        assert!(bucket.take(start + Span::from_millis(1_010)));
    }
}
