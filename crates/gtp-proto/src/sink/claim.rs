//! What a sink claims of its host for its source, and how much of that is more than room to grow.
//!
//! It claims for a source that is heard, and no more than the source's use of its grants has earned
//! (`claims`). This module must not know other sessions.

use gtp_alloc::{Rate, Span, Time};

use super::SinkSession;
use crate::claims::{Awaits, CLAIM_RESTING, CLAIM_SILENCE, Claims, Peer, Trip};
use crate::limits::LEASE_MIN;
use crate::report::Law;
use crate::wire::Status;

impl SinkSession {
    /// What this end claims of its host for the source, whatever that offers.
    pub(super) fn claim(&self, now: Time) -> Rate {
        if !self.source.may_claim(&self.config.role, self.silence(now)) {
            return Rate::ZERO;
        }
        let own = match self.config.law {
            Law::Grant if self.is_resting(now) => CLAIM_RESTING.min(self.usage.bound()),
            Law::Grant => self.usage.bound(),
            Law::EndNode { .. } | Law::SourceAlone | Law::SinkAlone => Rate::UNLIMITED,
            Law::SessionAlone => self.wish(),
        };
        own.min(self.config.max_rate)
    }

    /// What of the claim is more than room to grow.
    pub(super) fn firm(&self, now: Time, offer: Rate) -> Rate {
        match self.config.law {
            Law::Grant if self.is_resting(now) => Rate::ZERO,
            Law::Grant => self.usage.firm(offer),
            Law::EndNode { .. } | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => {
                Rate::UNLIMITED
            }
        }
    }

    /// Something authentic came.
    #[inline]
    pub(super) fn hear_source(&mut self, now: Time) {
        let silence = self.silence(now);
        if self.source == Peer::Heard && silence > CLAIM_SILENCE {
            self.usage.returned(now, silence);
        }
        (self.last_datagram, self.source) = (now, Peer::Heard);
    }

    /// The source says how long it has heard nothing. If that was longer than a lease, and it hears
    /// again, what it did not use meanwhile says nothing of what it would use.
    pub(super) fn note_hearing(&mut self, now: Time, status: &Status) {
        let deaf = |status: &Status| Span::from_micros(status.echo_hold.into()) > LEASE_MIN;
        if self.peer.as_ref().is_some_and(deaf) && !deaf(status) {
            self.usage.hears_again(now);
        }
    }

    /// Looks at what the source has made of its grants.
    pub(super) fn look_at_usage(&mut self, now: Time) {
        let intervals = self.grant.pause() * 2;
        let (usual, least) = (self.rtt.smoothed() + intervals, self.rtt.least() + intervals);
        let trip = Trip { usual, least };
        let awaits = if self.asker.outstanding() > 0 { Awaits::Units } else { Awaits::Nothing };
        let offer = self.peer.as_ref().map_or(Rate::ZERO, |status| status.offer);
        let less = self.usage.is_granted_less(offer);
        let claims = if self.is_resting(now) {
            Claims::Resting
        } else if less || self.claim(now) < self.usage.bound().min(self.config.max_rate) {
            Claims::LessThanBound
        } else {
            Claims::Bound
        };
        self.usage.roll(now, &self.grant, awaits, claims, trip);
    }
}
