//! A source over which nothing moves speaks seldom.
//!
//! Ten statuses a second keep its sink's word and its lease fresh; a hundred would say the same.
//! With the first request or the first unit it speaks as often as any.

use gtp_alloc::{Rate, Span, Time};

use super::SourceSession;
use crate::limits::{INTERVAL_MAX, REST_AFTER, SILENCE_STOP};
use crate::report::Law;
use crate::wire::STATUS_LEN;

impl SourceSession {
    /// Whether the session rests: for some time nothing was asked for or sent.
    pub fn is_resting(&self, now: Time) -> bool {
        let moved_at = self.asked_at.max(self.sent_meter.newest());
        self.config.law == Law::Grant && !self.closing && now.since(moved_at) >= REST_AFTER
    }

    /// How long to wait for the next status, if nothing happens.
    pub(super) fn pause(&mut self, now: Time) -> Span {
        self.resting = self.is_resting(now);
        let least = if self.resting { INTERVAL_MAX } else { self.paid_pause() };
        self.target.pause().max(least)
    }

    /// The pause at which statuses take no more than half of what both ends grant: that much the
    /// pacer leaves them. A rate that is small for other reasons, such as the sink's silence, may
    /// soon be a large one, of which the sink should know.
    fn paid_pause(&self) -> Span {
        let granted = self.target.rate.min(self.heard.rate);
        if self.config.law != Law::Grant || granted == Rate::ZERO {
            return Span::ZERO;
        }
        let status = self.config.link.wire_bytes(STATUS_LEN);
        ((status / granted) * 2).min(INTERVAL_MAX)
    }

    /// A sink heard again after a silence, or a grant that begins or ends, is news: what was asked
    /// for before may be sent now.
    pub(super) fn note_news(&mut self, now: Time, granted: Rate) {
        let silent = now.since(self.heard.at) >= SILENCE_STOP;
        let begins_or_ends = (granted == Rate::ZERO) != (self.heard.rate == Rate::ZERO);
        if silent || begins_or_ends {
            self.asked_at = now;
        }
    }

    /// Data flows again: statuses come as often as they should.
    #[cold]
    pub(super) fn stir(&mut self, now: Time) {
        self.resting = false;
        self.status_due = self.status_due.min(now + self.target.pause());
    }
}
