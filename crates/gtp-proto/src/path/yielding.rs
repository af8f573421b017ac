//! Giving way: a session of low weight leaves the path to others that fill its queue.
//!
//! It never competes. Where others would, it sends next to nothing, and climbs again only after the
//! path was free for a while. A rival that is there each time makes it wait longer, so that its
//! climbs cost the rival little. A session that is alone meets the end of a path with a short queue
//! by losses too, but each time at about one rate: then it stays a little below that.

use gtp_alloc::{Rate, Span, Time};

use super::cruise::{Cruise, REMEMBERS};
use super::measures::Verdict;
use super::sample::Conditions;
use super::{PathBound, State};
use crate::meter::WindowedMax;

/// At first the path must be free for so long before it is tried to send more.
const FREE: Span = Span::from_secs(2);
/// A climb that ends soon makes the wait so many times longer.
const LONGER: u64 = 4;
/// The wait is no longer than this.
const FREE_MOST: Span = Span::from_secs(32);
/// The path must be free for so many round trips at least.
const FREE_ROUNDS: u64 = 8;
/// Who meets a loss between these parts of the most that it had of late has met the path's end.
const ALIKE: (f64, f64) = (0.9, 1.1);
/// It stays at this part of it. The rest shows a newcomer: with it, losses come below the end.
const STAYS: f64 = 0.93;

/// A session that gives way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yield {
    /// Whether it gives way to somebody, and does not only keep off the path's end.
    pub rival: bool,
    /// The queue when it was last seen: one of its own drains where it keeps off the path's end.
    queue: Option<Span>,
    /// Since when neither a queue nor a loss that chance does not explain was seen.
    free_since: Option<Time>,
}

/// How long the path must be free before it is tried to send more, and where its end was met.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    waits: Span,
    /// When the last climb began.
    climbed_at: Option<Time>,
    /// The largest rate of late at which a loss was met.
    met: WindowedMax,
}

impl Patience {
    pub fn new(now: Time) -> Patience {
        Patience { waits: FREE, climbed_at: None, met: WindowedMax::new(now, REMEMBERS) }
    }

    /// A start has met the path's end at this rate.
    pub fn note_end(&mut self, now: Time, level: Rate) {
        self.met.add(now, level);
    }

    /// Whether `level`, at which a loss was met at `now`, is the path's end rather than a rival's
    /// doing.
    fn is_end(&mut self, now: Time, level: Rate) -> bool {
        let most = self.met.max(now);
        self.met.add(now, level);
        (most.scale(ALIKE.0)..most.scale(ALIKE.1)).contains(&level)
    }

    /// A climb has ended at `now`: waits longer if it did soon.
    fn note_met(&mut self, now: Time) {
        let Some(climbed_at) = self.climbed_at.take() else { return };
        if now.since(climbed_at) < REMEMBERS {
            self.lengthen();
        } else {
            self.waits = FREE;
        }
    }

    fn lengthen(&mut self) {
        self.waits = (self.waits * LONGER).min(FREE_MOST);
    }
}

impl PathBound {
    /// Meets a loss or a rival where the session has `level` now.
    pub(super) fn give_way(&mut self, now: Time, level: Rate, given: &Conditions) {
        let rival = !self.patience.is_end(now, level);
        if rival {
            self.shares.rival_until = now + REMEMBERS;
        }
        self.patience.note_met(now);
        self.state = State::Yield(Yield { rival, queue: None, free_since: None });
        self.set_bound(if rival { Rate::ZERO } else { level.scale(STAYS) }, given);
    }

    /// A sample of the present rate while it gives way.
    pub(super) fn wait_for_rivals(
        &mut self,
        yields: Yield,
        now: Time,
        v: &Verdict,
        given: &Conditions,
    ) {
        if !given.yields {
            // Its group has a session now that competes like any other.
            self.lift(given);
            return;
        }
        let drains = !yields.rival && yields.queue.is_none_or(|last| v.delay <= last);
        if v.excess || v.queued && !drains {
            if !yields.rival {
                self.shares.rival_until = now + REMEMBERS;
                self.patience.lengthen();
            }
            self.state = State::Yield(Yield { rival: true, queue: None, free_since: None });
            self.set_bound(Rate::ZERO, given);
            return;
        }
        let queue = v.queued.then_some(v.delay);
        let free_since = if v.queued { None } else { yields.free_since.or(Some(now)) };
        self.state = State::Yield(Yield { queue, free_since, ..yields });
        let waits = self.patience.waits.max(given.rtt * FREE_ROUNDS);
        if free_since.is_some_and(|since| now.since(since) >= waits) {
            self.patience.climbed_at = Some(now);
            self.shares.unsettle();
            self.state = State::Cruise(Cruise::default());
        }
    }
}
