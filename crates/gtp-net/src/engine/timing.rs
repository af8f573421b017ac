//! When the datagrams of a socket reached this host.
//!
//! The kernel notes it, by the wall clock. What is believed of that is bounded by what the thread
//! knows itself: a datagram came after the socket was last found empty, and not before the one
//! that was read before it. A thread that had to wait for a processor then takes none of its
//! lateness for a queue of the path. But one that does not keep up is a bottleneck, and what stands
//! in its buffer is a queue: it shows as one when catching up takes longer than a wait explains. It
//! does not where the host sees its full buffer itself and shares out less: then all its sessions
//! come down in their shares, and none has to find a bound of its own.

use gtp_alloc::{Span, Time};
use gtp_proto::Arrival;

/// What is known of one socket.
#[derive(Debug)]
pub(super) struct Timing {
    /// When it was last known to be empty.
    emptied: Time,
    /// It has not been emptied since some read, and should have been by then.
    catch_up_by: Option<Time>,
    /// When the last datagram came.
    last: Time,
    /// The longest wait among the datagrams of this read.
    longest: Span,
    /// What stands in its buffer is seen by other means.
    watched: bool,
}

/// Catching up may take so long in any case.
const CATCH_UP: Span = Span::from_millis(20);
/// Catching up may take so many times the wait before it: a thread that is busy for four fifths
/// of its time needs no more.
const WAITS: u64 = 4;

impl Timing {
    /// A socket that is opened at `now`.
    pub fn new(now: Time) -> Timing {
        Timing { emptied: now, catch_up_by: None, last: now, longest: Span::ZERO, watched: false }
    }

    /// Whether somebody else sees what stands in the socket's buffer and has less sent to it. Then
    /// that is no queue of the path, however long it takes to catch up.
    pub fn set_watched(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// When a datagram came that was read at `now` after it `waited`, as the kernel says.
    pub fn arrival(&mut self, now: Time, waited: Span) -> Arrival {
        let at = match self.catch_up_by {
            Some(by) if by < now && !self.watched => now,
            Some(_) | None => now.saturating_sub(waited).max(self.emptied),
        };
        self.last = at.max(self.last).min(now);
        self.longest = self.longest.max(now.since(self.last));
        Arrival { at: self.last, ..now.into() }
    }

    /// A read that was asked for at `asked` ended at `now`, and all its datagrams are timed. It
    /// `emptied` the socket, or did not.
    pub fn handle_read(&mut self, asked: Time, now: Time, emptied: bool) {
        if emptied {
            // Whatever is read later came after the last moment at which nothing was read yet.
            (self.emptied, self.catch_up_by) = (asked, None);
        } else if self.catch_up_by.is_none() {
            self.catch_up_by = Some(now + (self.longest * WAITS).max(CATCH_UP));
        }
        self.longest = Span::ZERO;
    }

    /// Whether something may be left of what the last read found.
    pub fn is_behind(&self) -> bool {
        self.catch_up_by.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    const fn span(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn after_a_standstill_datagrams_came_when_the_kernel_says_also_those_read_later() {
        let mut timing = Timing::new(ms(0));
        timing.handle_read(ms(100), ms(100), true);
        assert_eq!(timing.arrival(ms(160), span(59)).at, ms(101));
        timing.handle_read(ms(160), ms(160), false);
        assert_eq!(timing.arrival(ms(200), span(60)).at, ms(140), "it is catching up");
        timing.handle_read(ms(200), ms(200), true);
        assert_eq!(timing.arrival(ms(201), span(0)).at, ms(201));
    }

    #[test]
    fn what_stands_in_the_buffer_of_a_thread_that_does_not_keep_up_shows_as_a_queue() {
        let mut timing = Timing::new(ms(0));
        timing.handle_read(ms(100), ms(100), true);
        for now in 101..=121 {
            assert_eq!(timing.arrival(ms(now), span(1)).at, ms(now - 1));
            timing.handle_read(ms(now), ms(now), false);
        }
        assert_eq!(timing.arrival(ms(122), span(15)).at, ms(122));
        timing.handle_read(ms(122), ms(122), true);
        assert_eq!(timing.arrival(ms(123), span(1)).at, ms(122), "it has caught up");
    }

    #[test]
    fn what_stands_in_a_buffer_that_is_watched_shows_as_no_queue() {
        let mut timing = Timing::new(ms(0));
        timing.set_watched(true);
        timing.handle_read(ms(100), ms(100), true);
        for now in 101..=200 {
            assert_eq!(timing.arrival(ms(now), span(now - 100)).at, ms(100));
            timing.handle_read(ms(now), ms(now), false);
        }
        timing.set_watched(false);
        assert_eq!(timing.arrival(ms(201), span(101)).at, ms(201));
    }

    #[test]
    fn a_wait_counts_by_its_datagrams_and_not_by_how_long_nothing_came() {
        let mut timing = Timing::new(ms(0));
        timing.handle_read(ms(1), ms(1), true);
        let idle_until = 600_000;
        assert_eq!(timing.arrival(ms(idle_until), span(4)).at, ms(idle_until - 4));
        timing.handle_read(ms(idle_until), ms(idle_until), false);
        assert!(timing.is_behind());
        assert_eq!(timing.arrival(ms(idle_until + 30), span(9)).at, ms(idle_until + 30));
        timing.handle_read(ms(idle_until + 30), ms(idle_until + 30), true);
        assert!(!timing.is_behind());
    }

    #[test]
    fn a_wall_clock_that_is_set_falsifies_no_more_than_the_last_wait() {
        let mut timing = Timing::new(ms(0));
        timing.handle_read(ms(5_000), ms(5_000), true);
        assert_eq!(timing.arrival(ms(5_004), span(3_600_000)).at, ms(5_000));
    }

    #[test]
    fn a_thread_that_stood_still_as_a_read_returned_had_not_emptied_what_came_then() {
        let mut timing = Timing::new(ms(0));
        timing.handle_read(ms(100), ms(150), true);
        assert_eq!(timing.arrival(ms(151), span(40)).at, ms(111));
    }

    proptest! {
        #[test]
        fn times_of_arrival_never_go_back_and_never_lie_ahead(
            reads in prop::collection::vec((0..40_u64, 0..5_u64, any::<bool>(), 0..200_u64), 1..80),
        ) {
            let (mut timing, mut now, mut last) = (Timing::new(ms(0)), ms(0), ms(0));
            for (rest, took, emptied, waited) in reads {
                let asked = now + span(rest);
                now = asked + span(took);
                for waited in [waited, waited / 2, 0] {
                    let came = timing.arrival(now, span(waited));
                    prop_assert!(last <= came.at && came.at <= came.read && came.read == now);
                    last = came.at;
                }
                timing.handle_read(asked, now, emptied);
            }
        }
    }
}
