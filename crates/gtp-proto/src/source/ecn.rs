//! A source's part in ECN: when it may be used, and what the sink counts.
//!
//! Whether the path carries the bits unharmed is for [`crate::ecn`] to say. This module must not
//! know what a mark does to the rate.

use gtp_alloc::Time;

use super::{Kept, SourceConfig, SourceSession};
use crate::ecn::{EcnState, Heard};
use crate::wire::{Feedback, Revision};

/// Whether a source that is kept to its path in this way answers marks, and its peer can count
/// them: only then may packets say so.
pub(super) fn heeds_marks(config: &SourceConfig, kept: Kept) -> bool {
    let bounds = kept == Kept::ByPathBound && !config.law.is_alone();
    bounds && config.link.revision >= Revision::Second
}

impl SourceSession {
    /// Whether the session uses ECN.
    pub fn ecn_state(&self) -> EcnState {
        self.ecn.standing().state
    }

    /// Its datagrams go by another path from now on.
    pub(crate) fn handle_new_path(&mut self) {
        self.ecn.handle_new_path(self.numbering.upcoming());
    }

    /// Checks what the newest feedback counts of ECN bits. What is marked is the path's business.
    pub(super) fn hear_counts(&mut self, now: Time, f: &Feedback) {
        let (rtt, next_pn) = (self.rtt.smoothed(), self.numbering.upcoming());
        let heard = Heard { now, rtt, receipt: &f.receipt, counts: f.ecn, next_pn };
        self.marked += self.ecn.hear(&heard);
    }
}
