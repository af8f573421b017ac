//! What the ends of rate-based protocols say to each other.
//!
//! All of them send blocks in packets of one form, [`Data`]; what goes the other way, and what a
//! sender has to say beside its blocks, is each protocol's own. Control messages that the papers
//! send over TCP are packets here, but for RBUDP's, and each protocol's file says how it lives with
//! their loss.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::transfer::{Pick, Transfer, Turn};
use super::{gtp2004, lambdastream, netblt, rbudp, sabul, tsunami, udt};
use crate::{Body, Note, Packet, Progress};

/// The body of a rate-based protocol's packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A block.
    Data(Data),
    /// RBUDP's control connection. Its segments are rare and larger than the rest.
    Rbudp(Box<rbudp::Control>),
    /// Tsunami's control connection.
    Tsunami(tsunami::Control),
    /// NETBLT's control packets.
    Netblt(netblt::Control),
    /// SABUL's control connection.
    Sabul(sabul::Control),
    /// LambdaStream's feedback.
    Lambda(lambdastream::Feedback),
    /// GTP's control connection.
    Gtp(gtp2004::Control),
    /// UDT's control packets.
    Udt(udt::Control),
}

/// A block on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Data {
    /// The packet's number on the wire: repeated packets have numbers of their own.
    pub ordinal: u64,
    /// The block's number in the transfer.
    pub block: u64,
    /// Whether the block goes for the first time.
    pub turn: Turn,
    /// When it left, by the sender's clock.
    pub sent: Time,
    /// How long before it the packet with the ordinal before left, as planned.
    pub gap: Span,
    /// What else the protocol's header holds: see each protocol.
    pub mark: u64,
}

/// The packet that carries a block.
pub(crate) fn data(transfer: &Transfer, data: Data) -> Packet {
    let size = transfer.control(transfer.block(data.block).0);
    Packet { size, body: Body::Rate(Message::Data(data)), note: Note::None }
}

/// A packet without payload, of `content` bytes of the protocol's own.
pub(crate) fn control(transfer: &Transfer, content: u64, message: Message) -> Packet {
    Packet { size: transfer.control(content), body: Body::Rate(message), note: Note::None }
}

/// Numbers packets and counts them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    /// Packets so far, which is the next ordinal.
    pub sent: u64,
    /// Those that carried a block again.
    pub repeated: u64,
}

impl Stamp {
    /// The next packet's header.
    pub fn next(&mut self, now: Time, pick: Pick, gap: f64) -> Data {
        let ordinal = self.sent;
        self.sent += 1;
        self.repeated += u64::from(pick.turn == Turn::Again);
        let gap = Span::from_secs_f64(gap);
        Data { ordinal, block: pick.block, turn: pick.turn, sent: now, gap, mark: 0 }
    }

    /// Where a sender at `rate` stands whose first `known` blocks are known to have arrived.
    pub fn progress(&self, transfer: &Transfer, known: u64, rate: Rate) -> Progress {
        Progress {
            delivered: transfer.prefix(known),
            sent: self.sent,
            repeated: self.repeated,
            rate,
            done: transfer.is_finite() && known >= transfer.blocks(),
            ..Progress::default()
        }
    }
}

/// Cuts a list of ranges into lists that fit a packet.
pub(crate) fn pages(ranges: Vec<Range<u64>>) -> Vec<Vec<Range<u64>>> {
    ranges.chunks(RANGES_A_PACKET).map(<[_]>::to_vec).collect()
}

/// Bytes that a list of ranges takes in a packet: two numbers of four bytes each, as SABUL's and
/// UDT's lists have them.
pub(crate) fn bytes_of(ranges: &[Range<u64>]) -> u64 {
    ranges.len() as u64 * 8
}

/// The longest list that a packet of 1,500 bytes holds beside its headers.
const RANGES_A_PACKET: usize = 180;
/// Bytes of a control packet with a few fields and no list.
pub(crate) const FIELDS: Bytes = Bytes(16);
