//! How often a sink says what it grants and what came: often while it is young, seldom while
//! nothing moves.
//!
//! Feedback at rest comes four times within the time after which a source would halve its rate.

use gtp_alloc::{Span, Time};

use super::SinkSession;
use crate::limits::{INTERVAL_MAX, REST_AFTER};
use crate::report::Law;

/// A young session is fed back to more often, so that it ramps up quickly.
const YOUTH: Span = Span::from_secs(1);
/// Over a long path a session is young for so many round trips.
const YOUTH_ROUNDS: u64 = 12;
/// Its interval: each step of the ramp costs a round trip and about twice this.
pub(super) const YOUNG_INTERVAL: Span = Span::from_millis(5);
/// The same before it is known that anybody hears it.
const PRESUMED_INTERVAL: Span = Span::from_millis(50);

impl SinkSession {
    /// Whether the session rests: for some time nothing came or was asked for, and the source
    /// offered what it had offered before.
    pub fn is_resting(&self, now: Time) -> bool {
        let moved_at = self.asked_at.max(self.measured.newest());
        let open = self.config.law == Law::Grant && self.closing_since.is_none();
        open && now.since(moved_at) >= REST_AFTER
    }

    /// How long to wait for the next feedback, if nothing happens.
    pub(super) fn pause(&mut self, now: Time) -> Span {
        self.resting = self.is_resting(now);
        match now.since(self.started) {
            _ if self.handshake.is_presumed() => PRESUMED_INTERVAL,
            age if age < YOUTH.max(self.rtt.smoothed() * YOUTH_ROUNDS) => YOUNG_INTERVAL,
            _ if self.resting => INTERVAL_MAX,
            _ => self.grant.pause(),
        }
    }

    /// Something was asked for, the source's offer moved, or it is heard again after a silence.
    pub(super) fn note_news(&mut self, now: Time) {
        self.asked_at = now;
        if self.resting {
            self.stir(now);
        }
    }

    /// Data flows again: feedback comes as often as it should.
    #[cold]
    pub(super) fn stir(&mut self, now: Time) {
        self.resting = false;
        self.feedback_due = self.feedback_due.min(now + self.grant.pause());
    }
}
