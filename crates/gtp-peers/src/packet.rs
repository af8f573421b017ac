//! What travels between two ends: a size on links, a body for the far end, a note for routers.
//!
//! Fields, not bytes: payload is a length. Each family of protocols adds one body, and a note if
//! routers take part.

use gtp_alloc::Bytes;

use crate::{advertised, aecp, vcp, xcp};

/// One packet of a rival.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Bytes on links: IP header, transport header and payload.
    pub size: Bytes,
    /// What the far end reads.
    pub body: Body,
    /// What routers on the way read and change; echoed by the far end where the protocol says so.
    pub note: Note,
}

/// What the far end reads of a packet: one variant for each family of protocols.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Nothing: a packet that only loads the path.
    Empty,
    /// A rate-based protocol's message.
    Rate(crate::rate::Message),
    /// A segment of TCP, and of the protocols that share its engine.
    Tcp(crate::tcp::Tcp),
    /// Of a stream whose rate the way decides.
    Explicit(advertised::Message),
}

/// The field of a header that routers read and change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Note {
    /// The protocol asks routers for nothing.
    #[default]
    None,
    /// XCP's congestion header.
    Xcp(xcp::Request),
    /// VCP's two bits.
    Vcp(vcp::Load),
    /// AECP's pre-allocation factor.
    Aecp(aecp::Factor),
    /// A wish that switches lower to the rate they advertise.
    Advertised(advertised::Cell),
}
