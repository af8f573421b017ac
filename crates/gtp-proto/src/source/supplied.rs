//! What an application has for a source to send, and when it has nothing.
//!
//! An application that makes its data as it goes is silent at times. What waits when it speaks
//! again is a claim that the source's host should hear of at once.

use gtp_alloc::{Bytes, Time};

use super::SourceSession;
use crate::demand::Lack;
use crate::limits::UNIT_ETHERNET;

impl SourceSession {
    /// Units that were not at hand may be now.
    pub fn handle_supply(&mut self, now: Time) {
        if core::mem::take(&mut self.starved) {
            self.pacer.idle(now);
        }
    }

    /// So many bytes wait to be sent for the first time, from the unit `next` on. An application
    /// that was silent and is not any more is seen by that at once, and otherwise only after half a
    /// second without a wait. What the sink has not asked for does not count.
    pub fn handle_backlog(&mut self, now: Time, waiting: Bytes, next: u64) {
        let asked = self.asked_end().saturating_sub(next);
        let most = asked.saturating_mul(self.unit_payload.unwrap_or(UNIT_ETHERNET).into());
        if self.demand.backlog(now, waiting.min(Bytes(most))) {
            self.settled = None;
        }
    }

    /// The pacer would let a datagram go and there is none: the application is the limit, at this
    /// end or at the other.
    pub(super) fn starve(&mut self, now: Time, lack: Lack) {
        self.pacer.idle(now);
        self.demand.wait(now, self.pacer.rate(), lack);
        self.starved = true;
    }
}
