//! A source over which nothing moves speaks seldom.
//!
//! Ten statuses a second keep its sink's word and its lease fresh; a hundred would say the same.
//! With the first request or the first unit it speaks as often as any.

use gtp_alloc::{Span, Time};

use super::SourceSession;
use crate::limits::{INTERVAL_MAX, REST_AFTER};
use crate::report::Law;

impl SourceSession {
    /// Whether the session rests: for some time nothing was asked for or sent.
    pub fn is_resting(&self, now: Time) -> bool {
        let moved_at = self.asked_at.max(self.sent_meter.newest());
        self.config.law == Law::Grant && now.since(moved_at) >= REST_AFTER
    }

    /// How long to wait for the next status, if nothing happens.
    pub(super) fn pause(&mut self, now: Time) -> Span {
        self.resting = self.is_resting(now);
        let interval = self.target.interval;
        if self.resting { interval.max(INTERVAL_MAX) } else { interval }
    }

    /// Data flows again: statuses come as often as they should.
    #[cold]
    pub(super) fn stir(&mut self, now: Time) {
        self.resting = false;
        self.status_due = self.status_due.min(now + self.target.interval);
    }
}
