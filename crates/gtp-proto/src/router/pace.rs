//! How fast one end of a talk between a host and a router may speak.
//!
//! A burst of [`ROUTER_BURST`] datagrams, then a pause until [`ROUTER_PAUSE`] after its first one.
//! Both ends keep to it: a host, so that thousands of sessions do not fill its link, and a router
//! to each host, so that one that asks cannot have another flooded. It knows no datagrams.

use gtp_alloc::Time;

use crate::limits::{ROUTER_BURST, ROUTER_PAUSE};

/// The present burst.
#[derive(Debug)]
pub(super) struct Pace {
    begun: Time,
    left: u32,
}

impl Pace {
    pub fn new(now: Time) -> Pace {
        Pace { begun: now, left: ROUTER_BURST }
    }

    /// When the next datagram may leave; zero if at once.
    pub fn due(&self) -> Time {
        if self.left > 0 { Time::ZERO } else { self.begun + ROUTER_PAUSE }
    }

    /// A datagram leaves.
    pub fn take(&mut self, now: Time) {
        if now >= self.begun + ROUTER_PAUSE {
            (self.begun, self.left) = (now, ROUTER_BURST);
        }
        self.left = self.left.saturating_sub(1);
    }
}
