//! What a source tells its path, and its part in the path's group.
//!
//! Sessions whose paths their host names alike share a machine, which the host's direction keeps.
//! The session tells its group what it would use if the path did not limit it, and hears its share.

use alloc::boxed::Box;

use gtp_alloc::{Rate, Time};

use super::ecn::heeds_marks;
use super::told::{Since, Timed};
use super::{Kept, PathUse, SourceSession, lease};
use crate::claims;
use crate::path::{
    Conditions, Facts, Keeps, Mode, PathBound, PathShare, Piece, Receipts, Sample, Shows, Standing,
};
use crate::report::Law;

impl SourceSession {
    /// Whether it can be one of a group: where one end decides alone, or the thesis's law is run,
    /// or the path does not bound the session, nobody else has a say.
    pub(crate) fn may_share_path(&self) -> bool {
        if self.kept == Kept::ByNothing {
            return false;
        }
        match self.config.law {
            Law::Grant => true,
            Law::EndNode { .. } | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => false,
        }
    }

    /// Makes it use its path in this way, as both ends have agreed.
    #[must_use]
    pub fn using_path(mut self, uses: PathUse) -> SourceSession {
        self.uses = uses;
        self.set_kept(uses.kept());
        self
    }

    /// How it uses its path.
    pub fn path_use(&self) -> PathUse {
        self.uses
    }

    /// Who keeps the session to what its path carries, from now on.
    pub fn set_kept(&mut self, kept: Kept) {
        if self.kept != kept {
            (self.kept, self.settled) = (kept, None);
            self.ecn.allow(heeds_marks(&self.config, kept), self.numbering.upcoming());
        }
    }

    /// The rate that the path is believed to carry; unlimited while no bottleneck was seen.
    pub fn path_bound(&self) -> Rate {
        match self.kept {
            Kept::ByPathBound => self.path.bound(),
            Kept::ByCarrier | Kept::ByNothing => Rate::UNLIMITED,
        }
    }

    /// How the path stands, for people.
    pub fn path_standing(&self) -> Standing {
        let (group, flows, ecn) = (self.path_group, self.uses.flows(), self.ecn.standing());
        let path = self.path.standing();
        let mode = if self.kept == Kept::ByNothing { Mode::Unbounded } else { path.mode };
        Standing { group, mode, flows, ecn, ..path }
    }

    /// The number of its group among those of its host, for people.
    pub(crate) fn set_path_group(&mut self, group: u16) {
        self.path_group = group;
    }

    /// What the group has to know at `now`.
    pub(crate) fn path_facts(&mut self, now: Time) -> Facts {
        let (claim, firm) = self.claim_of_path(now);
        Facts {
            weight: self.config.weights.own * self.weight.peer(),
            claim,
            firm,
            given: self.conditions(),
            heard_at: self.path_heard_at,
            machine: self.path.machine(),
            bound: self.path.bound(),
        }
    }

    /// Returns what this session would use if the path did not limit it, and what of that is more
    /// than room to grow.
    fn claim_of_path(&mut self, now: Time) -> (Rate, Rate) {
        if self.closing || self.heard.pn.is_none() {
            return (Rate::ZERO, Rate::ZERO);
        }
        let granted = claims::of_granted(self.heard.rate);
        let wanted = self.wanted(now).min(granted).min(self.heard.offer);
        let (wanted, firm) = match self.is_resting(now) {
            true => (wanted.min(claims::CLAIM_RESTING), Rate::ZERO),
            false => (wanted, self.firm(now)),
        };
        let claim = lease(wanted, now.since(self.heard.at), &self.heard);
        (claim, firm.min(claim))
    }

    /// Who keeps the machine that bounds it.
    pub(crate) fn path_keeps(&self) -> Keeps {
        self.path.machine()
    }

    /// See [`crate::path::Path`].
    pub(crate) fn take_path_pieces(&mut self) -> [Option<Piece>; 2] {
        self.path.take_pieces()
    }

    /// See [`crate::path::Path`].
    pub(crate) fn share_machine(&mut self, now: Time) -> Option<Box<PathBound>> {
        let given = self.conditions();
        self.settled = None;
        self.path.share_machine(now, &given)
    }

    /// The group has said what this session may have; the grant that follows puts it in force.
    pub(crate) fn handle_path_share(&mut self, now: Time, share: PathShare) {
        self.settled = None;
        self.path.set_share(now, share);
    }

    /// Tells the path what a receipt shows of it.
    pub(super) fn tell_path(&mut self, now: Time, timed: Timed) {
        let Timed { span, arrived, lost, arrived_in, delay, peak, since } = timed;
        let (Some(from), Some(until)) = (self.log.at(span.start), self.log.at(span.end)) else {
            return;
        };
        let shows = match since {
            // Where one end decides alone, its law sees the path's losses.
            Since::LastReceipt if self.bounds_its_path() => Shows::Losses,
            Since::LastReceipt | Since::EarlierReceipt => Shows::Arrivals,
        };
        let sample = Sample {
            sent: until.1 - from.1,
            sent_in: until.0.since(from.0),
            arrived,
            arrived_in,
            delay,
            peak,
            first_pn: span.start,
            end_pn: span.end,
            lost,
            marked: match shows {
                Shows::Losses => core::mem::take(&mut self.marked),
                Shows::Arrivals => 0,
            },
            receipts: Receipts::one(lost),
        };
        let conditions = self.conditions();
        self.path_heard_at = Some(now);
        let said = self.log.said_in(sample.first_pn, sample.end_pn);
        self.path.hear(now, sample.with_said(said), shows, &conditions);
    }

    /// What else the path goes by.
    pub(super) fn conditions(&self) -> Conditions {
        Conditions {
            // Not the grant, which follows our own bound: what both ends would give without it.
            aim: self.target.offer.min(self.heard.offer).min(self.config.max_rate),
            granted: self.allowed(),
            rtt: self.rtt.smoothed(),
            rtt_least: self.rtt.least(),
            interval: self.heard.interval,
            next_pn: self.numbering.upcoming(),
            idles: self.demand.is_limited(),
            yields: self.config.weights.yield_to_others(),
            flows: self.uses.flows(),
        }
    }
}
