//! What a host asks of a source, and what comes back to the host.
//!
//! Every unit that the host assigns leaves the session in exactly one way: it arrives, the session
//! reports it as given up, or the host takes it back. A session that has ended still holds its
//! units until then; a unit that no session holds would never be requested again. Rates are unknown
//! here.

use core::ops::Range;

use gtp_ranges::RangeSet;

use super::SinkSession;

impl SinkSession {
    /// Decides how long units are; must precede [`SinkSession::assign`]. Whatever was asked by
    /// another length is forgotten, here and at the source.
    pub fn begin(&mut self, unit_payload: u16) {
        self.unreturned = RangeSet::new();
        self.asker = self.asker.begun_anew(unit_payload.max(1));
    }

    /// How long whole units are, as it was begun with.
    pub fn unit_payload(&self) -> u16 {
        self.asker.unit_payload()
    }

    /// Wants the units of `range` from this source.
    pub fn assign(&mut self, range: Range<u64>) {
        self.asker.assign(range);
    }

    /// Units assigned and not here yet.
    pub fn outstanding(&self) -> u64 {
        self.asker.outstanding()
    }

    /// Whether the host assigned `unit` and has neither received it nor taken it back.
    pub fn owes(&self, unit: u64) -> bool {
        self.asker.is_missing(unit) || self.unreturned.contains(unit)
    }

    /// Units that were lost and are not asked for again: they will not come. Each is told once,
    /// the lowest first.
    pub fn poll_given_up(&mut self) -> Option<Range<u64>> {
        self.asker.poll_given_up()
    }

    /// Gives up on this source at once; returns all that was assigned, had not arrived and was not
    /// returned before, also after the session has closed by itself.
    pub fn abandon(&mut self) -> RangeSet {
        self.stop_asking();
        core::mem::take(&mut self.unreturned)
    }

    /// Wants nothing more. What was assigned stays here until the host takes it back: a unit that
    /// no session holds would never be requested.
    pub(super) fn stop_asking(&mut self) {
        for range in self.asker.abandon().iter() {
            self.unreturned.insert(range);
        }
    }

    /// Asks the source to forget what it has not sent yet.
    pub fn ask_drop(&mut self) {
        self.asker.ask_drop();
    }

    /// Whether the source has yet to say that it has forgotten what it was asked to.
    pub fn is_dropping(&self) -> bool {
        self.asker.is_dropping()
    }

    /// Once the source has forgotten: what will not come from it any more.
    pub fn poll_dropped(&mut self) -> Option<RangeSet> {
        self.asker.poll_dropped()
    }
}
