//! A session's weight: the product of what its two ends bring to it.
//!
//! With different weights at its two ends, offers between several bottlenecks need never settle.
//! So each end tells the other its own factor, as its host's tree of users and transfers has it,
//! and both use the product. The opening of the session names both factors; datagrams name one
//! only where it has changed since. No end can bring more than the opening allowed, or than one.

use crate::limits::{PEER_WEIGHT_LEAST, WEIGHT_LOW};

/// The factors as the opening of the session says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// This end's; positive and finite.
    pub own: f64,
    /// The other end's; positive and finite.
    pub peer: f64,
}

impl Weights {
    /// Of a session of weight one.
    pub const ONE: Weights = Weights { own: 1.0, peer: 1.0 };

    /// Whether the session gives way to everybody else on its path, rivals included: one end brings
    /// no more than [`WEIGHT_LOW`].
    pub fn yield_to_others(&self) -> bool {
        self.own.min(self.peer) <= WEIGHT_LOW
    }
}

/// The factors as they are now.
#[derive(Debug)]
pub(crate) struct SharedWeight {
    opened: Weights,
    own: f64,
    peer: f64,
}

impl SharedWeight {
    pub fn new(opened: Weights) -> SharedWeight {
        SharedWeight { opened, own: opened.own, peer: opened.peer }
    }

    /// The other end's factor.
    pub fn peer(&self) -> f64 {
        self.peer
    }

    /// This host has said what its end brings; whether that is news for the peer.
    #[must_use]
    pub fn set_own(&mut self, own: f64) -> bool {
        let changed = self.own != own;
        self.own = own;
        changed
    }

    /// The peer has said what it brings: `None` is what the opening said.
    pub fn hear(&mut self, peer: Option<f32>) {
        let most = self.opened.peer.max(1.0);
        self.peer =
            peer.map_or(self.opened.peer, |said| f64::from(said).clamp(PEER_WEIGHT_LEAST, most));
    }

    /// What to tell the peer.
    pub fn said(&self) -> Option<f32> {
        (self.own != self.opened.own).then_some(self.own as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(own: f64, peer: f64) -> SharedWeight {
        SharedWeight::new(Weights { own, peer })
    }

    #[test]
    fn what_the_opening_said_is_not_said_again() {
        let mut here = weight(2.0, 1.0);
        assert_eq!(here.said(), None);
        assert!(here.set_own(0.25));
        assert!(!here.set_own(0.25));
        assert_eq!(here.said(), Some(0.25));
        assert!(here.set_own(2.0));
        assert_eq!(here.said(), None);
    }

    #[test]
    fn a_peer_may_bring_less_and_never_more_than_the_opening_allowed_or_one() {
        for (opened, most) in [(0.5, 1.0), (1.0, 1.0), (40.0, 40.0)] {
            let mut here = weight(1.0, opened);
            for (said, believed) in [(0.125, 0.125), (1e30, most), (1e-30, PEER_WEIGHT_LEAST)] {
                here.hear(Some(said));
                assert_eq!(here.peer(), believed);
            }
            here.hear(None);
            assert_eq!(here.peer(), opened);
        }
    }
}
