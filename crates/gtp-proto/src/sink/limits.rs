//! What keeps a session from going faster, as its sink sees it.
//!
//! Each end knows what it allots itself, and hears what limits the other one. This module decides
//! nothing.

use gtp_alloc::Rate;

use super::SinkSession;
use crate::report::{LimitedBy, reaches};

impl SinkSession {
    /// What keeps this session from going faster.
    pub fn limited_by(&self) -> LimitedBy {
        let offered = self.peer.as_ref().map_or(Rate::UNLIMITED, |status| status.offer);
        match &self.peer {
            // The source has more, and this host would grant more: its user wants no more.
            Some(_) if reaches(offered.min(self.grant.rate), self.config.max_rate) => {
                LimitedBy::Demand
            }
            Some(status) if offered < self.grant.offer => match status.limited_by {
                // The source sees our grant as the sink's limit, but it follows its own offer.
                LimitedBy::Sink => LimitedBy::Source,
                other => other,
            },
            Some(_) | None if self.router_binds() => LimitedBy::Router,
            Some(_) | None => LimitedBy::Sink,
        }
    }

    /// What the routers that this host asks could let the session have, for what is said of its
    /// limits. Their grants are part of the host's.
    pub fn handle_routers(&mut self, offer: Rate) {
        self.routers = offer;
    }

    /// Whether a router that this host asks leaves the session less than the host would.
    pub(super) fn router_binds(&self) -> bool {
        !self.routers.is_unlimited() && self.routers <= self.grant.offer
    }
}
