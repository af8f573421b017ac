//! The guard: when most of what is sent is lost, next to nothing is sent.
//!
//! Whatever the reason, a session that loses more than half for a second does harm and gets nothing
//! done. It sends four packets a round trip until they arrive, and starts anew; each time that this
//! happens soon again it waits twice as long.

use gtp_alloc::{Rate, Span, Time};

use super::measures::Verdict;
use super::sample::Conditions;
use super::{PathBound, State};

/// The least time over which losses are counted.
const COUNTED: Span = Span::from_secs(1);
/// The least number of packets over which losses are counted.
const PACKETS: u64 = 64;
/// The guard is set when a larger part than this is lost.
const MOST: f64 = 0.5;
/// The guard ends when a smaller part than this is lost.
const ENDS: f64 = 0.3;
/// The least time for which the guard is set, at first and at most.
const LASTS: Span = Span::from_millis(500);
const LASTS_MOST: Span = Span::from_secs(16);

/// Packets sent and lost of late, and what the guard did last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    since: Time,
    packets: u64,
    lost: u64,
    lasts: Span,
    ended: Time,
}

/// The guard is set until then at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    until: Time,
}

impl Guard {
    pub fn new(now: Time) -> Guard {
        Guard { since: now, packets: 0, lost: 0, lasts: LASTS, ended: now }
    }

    /// Counts a sample, and returns whether most was lost of late and still is. A session that has
    /// lowered its rate meanwhile, so that most arrives, needs no guard.
    fn count(&mut self, now: Time, v: &Verdict) -> bool {
        (self.packets, self.lost) = (self.packets + v.packets, self.lost + v.lost);
        if now.since(self.since) < COUNTED || self.packets < PACKETS {
            return false;
        }
        let most = self.lost as f64 > MOST * self.packets as f64 && v.loss() >= ENDS;
        (self.since, self.packets, self.lost) = (now, 0, 0);
        most
    }
}

impl PathBound {
    /// Counts a sample, and sets the guard if most was lost of late. Returns whether it did.
    pub(super) fn watch_losses(&mut self, now: Time, v: &Verdict, given: &Conditions) -> bool {
        let most = self.guard.count(now, v);
        let set = most && !matches!(self.state, State::Held(_));
        if set {
            let soon = now.since(self.guard.ended) < LASTS_MOST;
            self.guard.lasts = if soon { (self.guard.lasts * 2).min(LASTS_MOST) } else { LASTS };
            self.state = State::Held(Held { until: now + self.guard.lasts });
            self.set_bound(Rate::ZERO, given);
        }
        set
    }

    /// A sample while the guard is set.
    pub(super) fn hold(&mut self, held: Held, now: Time, v: &Verdict, given: &Conditions) {
        if now >= held.until && v.loss() < ENDS {
            self.guard = Guard { lasts: self.guard.lasts, ..Guard::new(now) };
            self.proven.clear(now);
            self.proven.add(now, v.carried);
            self.lift(given);
        }
    }
}
