//! What bounds a source's rate, and what binds it now.
//!
//! At its own end: the ramp after what was proven, the path, the application and its user's limit.
//! What both ends allot is none of them, and is looked at only to say what limits the session.

use gtp_alloc::{Rate, Time};

use super::{Kept, SourceSession};
use crate::demand::Lack;
use crate::limits::RAMP_FACTOR;
use crate::path::Path;
use crate::report::{Law, LimitedBy, reaches};
use crate::wire::Revision;

impl SourceSession {
    /// Everything that limits this session here but the allocation.
    pub(super) fn ceiling(&mut self, now: Time) -> Rate {
        let (granted, next_pn) = (self.allowed(), self.numbering.upcoming());
        let bounds = self.bounds_its_path();
        let pace = match &mut self.path {
            Path::Own(_) if !bounds => self.ramp(now),
            Path::Own(machine) => machine.pace(now, self.rtt.smoothed(), granted, next_pn),
            Path::Shared(member) => return member.sends(now).min(self.wanted(now)),
        };
        self.demand_and_path(now).min(pace)
    }

    /// What both ends allow.
    pub(super) fn allowed(&self) -> Rate {
        self.target.rate.min(self.heard.rate)
    }

    /// The same a round trip from now: the ramp's next step is asked for before it is taken, else
    /// every step would wait for a grant of its own.
    pub(super) fn prospect(&mut self, now: Time) -> Rate {
        match &self.path {
            Path::Own(_) => {
                let ramp = self.ramp(now).scale(RAMP_FACTOR);
                self.demand_and_path(now).min(ramp)
            }
            Path::Shared(member) => member.offer().min(self.wanted(now)),
        }
    }

    pub(super) fn ramp(&mut self, now: Time) -> Rate {
        match &mut self.path {
            Path::Own(machine) => machine.ramp(now, self.rtt.smoothed()),
            Path::Shared(member) => member.offer(),
        }
    }

    fn demand_and_path(&mut self, now: Time) -> Rate {
        self.wanted(now).min(self.path_bound())
    }

    /// Whether the session itself finds out what its path carries: where one end decides alone, its
    /// law does, a carrier that pushes back follows its own congestion control, and some are told
    /// not to.
    pub(super) fn bounds_its_path(&self) -> bool {
        !self.config.law.is_alone() && self.kept == Kept::ByPathBound
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

    /// What keeps this session from sending faster.
    pub fn limited_by(&self) -> LimitedBy {
        let rate = self.pacer.rate();
        if self.demand.is_limited() {
            match self.demand.lacked() {
                Lack::Data => LimitedBy::Demand,
                // A sink asks for no more than its destination takes.
                Lack::Requests => LimitedBy::Disk,
                // A connection carries the session, and takes what its path does.
                Lack::Room => LimitedBy::Path,
            }
        } else if reaches(rate, self.config.max_rate) {
            LimitedBy::Demand
        } else if self.config.law == Law::SourceAlone {
            LimitedBy::Source
        } else if self.path_bound() <= rate {
            LimitedBy::Path
        } else if self.heard.rate.min(self.target.rate) > rate {
            // The ramp: the path has not shown yet that it carries more.
            LimitedBy::Path
        } else {
            self.narrower_host(rate)
        }
    }

    /// The same as this end says it. A router that the sink asks is the sink's to name.
    pub(super) fn says_limited_by(&self) -> LimitedBy {
        match self.limited_by() {
            LimitedBy::Router if self.routers > self.target.offer => LimitedBy::Sink,
            LimitedBy::Router if self.numbering.link.revision < Revision::Second => {
                LimitedBy::Source
            }
            other => other,
        }
    }

    /// Which host allots no more than this rate. Each end's grant follows the other's offer, so
    /// that both grants are as low as the lower offer; what tells them apart is which end could
    /// have more.
    fn narrower_host(&self, rate: Rate) -> LimitedBy {
        let spared = rate.scale(SPARED);
        match (self.target.offer > spared, self.heard.offer > spared) {
            (false, true) if self.routers <= self.target.offer => LimitedBy::Router,
            (false, true) => LimitedBy::Source,
            (true | false, false) if self.heard.router_binds => LimitedBy::Router,
            (true | false, false) => LimitedBy::Sink,
            // Both have more. What is found of the path moves around what it carries; else the
            // sink's user wants no more.
            (true, true) if self.path_bound() <= rate.scale(2.0) => LimitedBy::Path,
            (true, true) => LimitedBy::Demand,
        }
    }
}

/// An offer above the rate by this factor is more than the noise of grants: 5 %.
const SPARED: f64 = 1.05;
