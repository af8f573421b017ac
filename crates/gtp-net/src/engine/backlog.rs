//! How much may wait for a slow writer.
//!
//! A reader or disk that takes less than the network brings would fill all memory before anyone
//! notices, and the session would hold a share of the capacity that it does not need for as long
//! as that takes. So once blocks pile up at the writer, what is held in all is bounded by time:
//! about as much as the writer takes in a second, and never so little that it would stand idle.
//! From then on a new block is asked for when one is written, so the source sees an even demand.
//! A writer that keeps up is never a limit, however fast the network grows.

use gtp_alloc::{Bytes, Span, Time};
use gtp_proto::meter::{Meter, WindowedMax};

/// How much of the writer's own pace may be held for it.
const AHEAD: Span = Span::from_millis(1_000);
/// So much may always be held: the writer makes things durable every 50 ms and stands still then.
const LEAST: Bytes = Bytes(4 << 20);
/// The writer is behind when this part of it is waiting.
const PILED: u64 = 4;
/// The pace is the mean over this long.
const PACE_OVER: Span = Span::from_millis(250);
/// The best pace of the last seconds counts, so that one slow sync is not taken for a slow disk.
const BEST_OF: Span = Span::from_secs(3);

/// Watches a writer's pace.
#[derive(Debug)]
pub(super) struct Backlog {
    pace: Meter,
    best: WindowedMax,
    known: bool,
}

impl Backlog {
    /// Nothing is known of the writer yet.
    pub fn new(now: Time) -> Backlog {
        Backlog { pace: Meter::new(now), best: WindowedMax::new(now, BEST_OF), known: false }
    }

    /// The writer has taken `bytes`.
    pub fn written(&mut self, now: Time, bytes: Bytes) {
        self.pace.add(bytes);
        self.roll(now);
    }

    /// Whether nothing more should be asked for at `now`, when `waiting` is at the writer, and
    /// `held` is that and all that was asked for and is not whole.
    pub fn is_full(&mut self, now: Time, waiting: Bytes, held: Bytes) -> bool {
        self.most(now).is_some_and(|most| waiting.0 * PILED > most.0 && held > most)
    }

    /// How much may be held for a writer that is behind; `None` while nothing is known of it.
    fn most(&mut self, now: Time) -> Option<Bytes> {
        self.roll(now);
        self.known.then(|| self.best.max(now).bytes_in(AHEAD).max(LEAST))
    }

    fn roll(&mut self, now: Time) {
        if self.pace.roll(now, PACE_OVER) {
            self.known = true;
            self.best.add(now, self.pace.rate());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Span = Span::from_millis(1);

    /// Lets a writer take `bytes` each ten milliseconds for `millis`.
    fn take(backlog: &mut Backlog, mut now: Time, millis: u64, bytes: u64) -> Time {
        for _ in 0..millis / 10 {
            now += MS * 10;
            backlog.written(now, Bytes(bytes));
        }
        now
    }

    #[test]
    fn a_slow_writer_gets_a_second_of_its_own_pace_and_a_fast_one_more() {
        let start = Time::from_nanos(1);
        let mut backlog = Backlog::new(start);
        assert_eq!(backlog.most(start), None, "at first memory alone is the limit");
        // 80 Mbit/s are 10 MB/s.
        let now = take(&mut backlog, start, 1_000, 100_000);
        let most = backlog.most(now).expect("a pace is known").0;
        assert!((9_500_000..=10_500_000).contains(&most), "{most}");
        let now = take(&mut backlog, now, 500, 1_000_000);
        let most = backlog.most(now).expect("a pace is known").0;
        assert!(most >= 95_000_000, "{most}");
    }

    #[test]
    fn a_writer_that_keeps_up_is_no_limit_and_one_that_is_behind_is() {
        let start = Time::from_nanos(1);
        let mut backlog = Backlog::new(start);
        let now = take(&mut backlog, start, 1_000, 100_000);
        let mega = |n: u64| Bytes(n * 1_000_000);
        assert!(!backlog.is_full(now, mega(1), mega(500)), "the network grows: all is under way");
        assert!(!backlog.is_full(now, mega(4), mega(9)), "less than a second is held");
        assert!(backlog.is_full(now, mega(4), mega(11)));
    }

    #[test]
    fn a_writer_that_stands_still_keeps_its_room_for_seconds_and_then_the_least() {
        let start = Time::from_nanos(1);
        let mut backlog = Backlog::new(start);
        let now = take(&mut backlog, start, 1_000, 1_000_000);
        let most = backlog.most(now + MS * 2_000).expect("a pace is known").0;
        assert!(most >= 95_000_000, "{most}");
        assert_eq!(backlog.most(now + MS * 4_000), Some(LEAST));
    }
}
