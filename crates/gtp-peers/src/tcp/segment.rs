//! What TCP's two ends say to each other, as fields.
//!
//! Sequence numbers count whole segments from zero, not bytes: every segment but a transfer's
//! last is full. Sizes on the wire follow the options that a real segment would carry.

use core::ops::Range;

use gtp_alloc::Bytes;

use crate::Note;

/// A segment of one of a sender's connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// Which of the connections that share a transfer; zero if there is one.
    pub connection: u16,
    /// What it says.
    pub segment: Segment,
}

/// What a segment says.
#[derive(Clone, Debug, PartialEq)]
pub enum Segment {
    /// The sender opens (SYN).
    Open,
    /// The receiver agrees (SYN-ACK).
    Opened {
        /// First segment number that the receiver has no room for.
        limit: u64,
    },
    /// Payload.
    Data {
        /// The segment's number.
        number: u64,
        /// Payload bytes.
        payload: u32,
        /// Where in the transfer.
        place: Place,
    },
    /// A segment without payload that asks for an acknowledgment.
    Probe,
    /// An acknowledgment.
    Ack(Ack),
}

/// Where in a transfer a segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// More follow.
    Inner,
    /// It is the last (FIN).
    Last,
}

/// An acknowledgment.
#[derive(Clone, Debug, PartialEq)]
pub struct Ack {
    /// The first segment that has not arrived.
    pub next: u64,
    /// First segment number that the receiver has no room for.
    pub limit: u64,
    /// Blocks that arrived out of order, the most recent first (RFC 2018); unused ones are empty.
    pub blocks: [Range<u64>; 3],
    /// The note of the segment that is acknowledged, as it arrived.
    pub echo: Note,
}

/// Bytes of IP and TCP headers without options.
pub const HEADER: Bytes = Bytes(40);

impl Segment {
    /// Bytes on links: `header` for IP and TCP, the blocks of an acknowledgment (RFC 2018: 2 bytes
    /// and 8 for each, in words of 4), the payload.
    pub fn size(&self, header: Bytes) -> Bytes {
        match self {
            Segment::Open | Segment::Opened { .. } | Segment::Probe => header,
            Segment::Data { payload, .. } => header + Bytes(u64::from(*payload)),
            Segment::Ack(ack) => {
                let blocks = ack.blocks.iter().filter(|block| !block.is_empty()).count() as u64;
                let options = if blocks == 0 { 0 } else { (2 + 8 * blocks).next_multiple_of(4) };
                header + Bytes(options)
            }
        }
    }
}
