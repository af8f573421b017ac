//! What bounds a source's rate at its own end.
//!
//! The ramp after what was proven, the path, the application and its user's limit. What both ends
//! allot is none of them.

use gtp_alloc::{Rate, Time};

use super::SourceSession;
use crate::limits::RAMP_FACTOR;

impl SourceSession {
    /// Everything that limits this session here but the allocation.
    pub(super) fn ceiling(&mut self, now: Time) -> Rate {
        let ramp = self.ramp(now);
        self.demand_and_path(now).min(ramp)
    }

    /// The same a round trip from now: the ramp's next step is asked for before it is taken, else
    /// every step would wait for a grant of its own.
    pub(super) fn prospect(&mut self, now: Time) -> Rate {
        let ramp = self.ramp(now).scale(RAMP_FACTOR);
        self.demand_and_path(now).min(ramp)
    }

    pub(super) fn ramp(&mut self, now: Time) -> Rate {
        self.path.ramp(now, self.rtt.smoothed())
    }

    pub(super) fn demand_and_path(&mut self, now: Time) -> Rate {
        self.wanted(now).min(self.path.bound())
    }

    /// What the application wants, within the limit that its user set.
    pub(super) fn wanted(&mut self, now: Time) -> Rate {
        self.demand.claim(now).min(self.config.max_rate)
    }

    /// What this end gives at most when the sink alone decides. Where nobody knows what this host
    /// can send, a sink cannot ask for more than a few times what it is proven to get: `ahead`
    /// times the ramp.
    pub(super) fn obeys(&mut self, now: Time, ahead: f64) -> Rate {
        if !self.target.offer.is_unlimited() {
            return self.config.max_rate;
        }
        self.ramp(now).scale(ahead).min(self.config.max_rate)
    }
}
