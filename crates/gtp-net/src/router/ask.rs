//! What a host is told of a router that it asks.
//!
//! A link has two sides, and what one side sends the other receives: both name the same one-way
//! link.

use std::net::{IpAddr, SocketAddr};

use gtp_proto::Side;

use super::{Prefix, RouterKey};

/// On which side of a router's link a host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkSide {
    /// Behind it, as seen from elsewhere: what the host sends goes out.
    #[default]
    Near,
    /// Beyond it: what the host sends comes in.
    Far,
}

/// A router, and which sessions of this host cross which of its links.
#[derive(Clone, Debug)]
pub struct RouterOpen {
    /// Where it is.
    pub address: SocketAddr,
    /// The key that it shares with its hosts.
    pub key: RouterKey,
    /// The link, from 0.
    pub link: u8,
    /// On which side of the link this host is.
    pub side: LinkSide,
    /// Sessions with peers of these ranges cross the link; with all peers if there are none.
    pub peers: Vec<Prefix>,
}

impl RouterOpen {
    /// Whether sessions with this peer cross the link.
    pub fn crosses(&self, peer: IpAddr) -> bool {
        self.peers.is_empty() || self.peers.iter().any(|range| range.holds(peer))
    }

    /// The number of the one-way link that sessions cross of which this host is this end: each link
    /// has one out, with an even number, and one in.
    pub fn one_way(&self, side: Side) -> u8 {
        let inward = match (side, self.side) {
            (Side::Source, LinkSide::Near) | (Side::Sink, LinkSide::Far) => 0,
            (Side::Sink, LinkSide::Near) | (Side::Source, LinkSide::Far) => 1,
        };
        self.link.saturating_mul(2).saturating_add(inward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_a_link_name_each_direction_alike() {
        let open = |side| RouterOpen {
            address: "127.0.0.1:1".parse().unwrap(),
            key: RouterKey::new(&[0; 32]),
            link: 3,
            side,
            peers: Vec::new(),
        };
        let (near, far) = (open(LinkSide::Near), open(LinkSide::Far));
        assert_eq!((near.one_way(Side::Source), near.one_way(Side::Sink)), (6, 7));
        assert_eq!((far.one_way(Side::Source), far.one_way(Side::Sink)), (7, 6));
    }
}
