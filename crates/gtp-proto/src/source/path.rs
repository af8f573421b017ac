//! A source's part in the group of its path.
//!
//! Sessions whose paths their host names alike share a machine, which the host's direction keeps.
//! The session tells its group what it would use if the path did not limit it, and hears its share.

use alloc::boxed::Box;

use gtp_alloc::{Rate, Time};

use super::{Kept, SourceSession, lease};
use crate::claims;
use crate::path::{Facts, Keeps, PathBound, PathShare, Piece, Standing};
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

    /// How the path stands, for people.
    pub fn path_standing(&self) -> Standing {
        let (group, ecn) = (self.path_group, self.ecn.standing());
        Standing { group, ecn, ..self.path.standing() }
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
}
