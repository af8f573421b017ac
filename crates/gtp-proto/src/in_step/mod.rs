//! Frames in step: parts of one frame from several sources, and one frame at several sinks.
//!
//! A picture may be too large for one host to make or to show. Then each of several sources sends a
//! part of every frame to one sink, or one source sends every frame to several sinks. The end that
//! all share keeps the time: frames are numbered, due and released by its clock, which the others
//! learn from the words that both ends of each connection exchange ([`PeerClock`], [`Word`]). A
//! sink puts parts together and says which frame is released when ([`Gather`]); no source can hold
//! a frame up beyond its time. What a frame shows is nothing to this module, which holds bodies of
//! any type and knows neither sockets nor clocks (docs/PROTOCOL.md, 20.4).

mod clock;
mod gather;
mod word;

pub use clock::PeerClock;
pub use gather::{Fate, Gather, GatherConfig, Part, Place, Released, Settled, Tally, Totals};
pub use word::{Begun, Malformed, PART_HEAD, Word};

use gtp_alloc::{Span, Time};

/// Sources whose parts make one frame, at most: an eight by eight wall.
pub const PARTS_MOST: u16 = 64;

/// When frames are due: frame 0 at one time, and each later one so much after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tempo {
    at: Time,
    every: Span,
}

impl Tempo {
    /// Frame 0 at this time, and one each `every`; that is a nanosecond at least.
    pub fn new(at: Time, every: Span) -> Tempo {
        Tempo { at, every: every.max(Span::from_nanos(1)) }
    }

    /// When frame 0 is due.
    pub fn at(&self) -> Time {
        self.at
    }

    /// Time between two frames.
    pub fn every(&self) -> Span {
        self.every
    }

    /// When frame `number` is due.
    pub fn due(&self, number: u64) -> Time {
        let after = self.every.as_nanos().saturating_mul(number);
        Time::from_nanos(self.at.as_nanos().saturating_add(after))
    }

    /// The last frame that is due at `now`; 0 before the first one is.
    pub fn number(&self, now: Time) -> u64 {
        now.since(self.at).as_nanos() / self.every.as_nanos()
    }

    /// The first frame that is not due before `now`.
    pub fn next(&self, now: Time) -> u64 {
        now.since(self.at).as_nanos().div_ceil(self.every.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_at_even_intervals_and_counted_from_the_first() {
        let tempo = Tempo::new(Time::from_nanos(1_000), Span::from_nanos(50));
        assert_eq!(tempo.due(0), Time::from_nanos(1_000));
        assert_eq!(tempo.due(3), Time::from_nanos(1_150));
        for (now, last, next) in [(0, 0, 0), (1_000, 0, 0), (1_001, 0, 1), (1_150, 3, 3)] {
            let now = Time::from_nanos(now);
            assert_eq!((tempo.number(now), tempo.next(now)), (last, next));
        }
    }

    #[test]
    fn a_tempo_that_a_peer_made_up_overflows_nothing() {
        let tempo = Tempo::new(Time::from_nanos(u64::MAX), Span::ZERO);
        assert_eq!(tempo.due(u64::MAX), Time::from_nanos(u64::MAX));
        assert_eq!(tempo.number(Time::from_nanos(u64::MAX)), 0);
        let fast = Tempo::new(Time::ZERO, Span::ZERO);
        assert_eq!(fast.next(Time::from_nanos(u64::MAX)), u64::MAX);
    }
}
