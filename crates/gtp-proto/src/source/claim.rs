//! What a source claims of its host, and how much of that it is sure to use.
//!
//! It claims nothing before its sink grants anything, and no longer than the lease of the grant
//! lasts. What it claims above its grant, or above what its application supplies, is only room to
//! grow. This module must not know other sessions.

use gtp_alloc::{Bytes, Rate, Time};

use super::{SourceSession, lease};
use crate::claims;
use crate::demand::MUCH;
use crate::limits::DEMAND_ALPHA;
use crate::report::Law;
use crate::requests::Answerer;
use crate::wire::STATUS_LEN;

impl SourceSession {
    /// Returns what this end claims, and what of that is more than room to grow.
    pub(super) fn claim(&mut self, now: Time) -> (Rate, Rate) {
        if self.heard.pn.is_none() {
            return (Rate::ZERO, Rate::UNLIMITED);
        }
        let (mut wanted, mut firm) = (self.wants_of_host(now), self.firm(now));
        if self.is_resting(now) {
            (wanted, firm) = (wanted.min(claims::CLAIM_RESTING), Rate::ZERO);
        }
        (lease(wanted, now.since(self.heard.at), &self.heard), firm)
    }

    fn wants_of_host(&mut self, now: Time) -> Rate {
        match self.config.law {
            Law::Grant | Law::EndNode { .. } => {
                self.prospect(now).min(claims::of_granted(self.heard.rate))
            }
            // What its law wants of what it is granted.
            Law::SourceAlone => self.decided().min(self.heard.rate).min(self.wanted(now)),
            Law::SinkAlone => self.heard.rate.min(self.wanted(now)),
            Law::SessionAlone => self.config.max_rate,
        }
    }

    /// Returns what the grant in force and the application use, with a tenth to grow. A greater
    /// grant that comes counts at once. What an application supplies leaves beside statuses, which
    /// take no more than half of a rate.
    pub(super) fn firm(&mut self, now: Time) -> Rate {
        if self.config.law != Law::Grant {
            return Rate::UNLIMITED;
        }
        let granted = self.heard.rate.scale(1.0 + DEMAND_ALPHA);
        if !self.demand.is_limited() {
            return granted;
        }
        let supplied = self.demand.supplied(now, left(&self.answerer, self.packet_bytes()));
        let said = self.config.link.wire_bytes(STATUS_LEN).per(self.target.pause());
        granted.min(supplied.saturating_add(said.min(supplied)))
    }
}

/// Returns what the sink has asked for and was not sent, in packets of so many bytes, as far as it
/// is less than [`MUCH`].
pub(super) fn left(answerer: &Answerer, packet: Bytes) -> Bytes {
    let mut bytes = Bytes::ZERO;
    for units in answerer.upcoming() {
        bytes += Bytes((units.end - units.start).min(MUCH.0) * packet.0);
        if bytes >= MUCH {
            break;
        }
    }
    bytes
}
