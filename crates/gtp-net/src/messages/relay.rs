//! What is said when sinks of one object give its blocks on to each other.
//!
//! Blocks are counted through the object, from zero, in manifest order: hosts may cut them into
//! units of different lengths. Who may give what to whom stands in tickets: docs/PROTOCOL.md,
//! chapter 28. Nothing here is trusted because it is well formed.

use std::ops::Range;

use minicbor::decode::Error as DecodeError;
use minicbor::encode::{Error as EncodeError, Write};
use minicbor::{Decode, Decoder, Encode, Encoder};

use super::fetch::HOST_TEXT_MAX;
use super::{Malformed, ROOTS_PER_PAGE, Roots, within};
use crate::ticket::TICKET_MAX;

/// Blocks of an object that sinks give on at most: 256 GiB. Hosts remember where each block is.
pub const RELAY_BLOCKS_MAX: u64 = 1 << 20;

/// Sinks of one object at most, and so the numbers that they may have.
pub const RELAY_SINKS_MAX: u32 = 64;

/// Ranges of blocks in one message: two numbers of 5 bytes each fit into a frame three times.
pub const RELAY_RANGES_MAX: usize = 2_048;

/// What tells one relayed object of a client from its others.
pub type RelayId = [u8; 16];

/// In the answer to a put: the server gives on what it gets, if it is told to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Relays {
    /// What it can receive, in bit/s; absent if it does not know.
    #[n(0)]
    pub in_bps: Option<u64>,
    /// What it can send, likewise.
    #[n(1)]
    pub out_bps: Option<u64>,
}

/// Client to server, before the manifest of a put: from now on the server asks the client for those
/// blocks only that [`RelayGive`] names, and gives on what it has.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct RelayJoin {
    /// Drawn at random by the client: the same for all sinks of the object.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub transfer: RelayId,
    /// The server's own number among the sinks.
    #[n(1)]
    pub number: u32,
}

/// Client to server: another sink of the object. Said again, it brings a newer ticket.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct RelayPeer {
    /// Its number.
    #[n(0)]
    pub number: u32,
    /// `host:port`, with an IPv6 address in brackets.
    #[n(1)]
    pub host: String,
    /// The client's ticket for the blocks there; see [`crate::ticket`].
    #[cbor(n(2), with = "minicbor::bytes")]
    pub ticket: Vec<u8>,
}

/// Client to server: blocks that the server may ask the client for, beside those of earlier
/// messages.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct RelayGive {
    /// Which.
    #[n(0)]
    pub blocks: BlockRanges,
}

/// Client to server: what blocks are. A block of another host counts only if it has this value.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct RelayValues {
    /// The number of the first of these blocks, which follow each other.
    #[n(0)]
    pub first: u64,
    /// Their values.
    #[n(1)]
    pub values: Roots,
}

/// Server to client, and server to the sink that reads from it: blocks that the server has, beside
/// those of earlier messages.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct RelayHave {
    /// Which; perhaps none.
    #[n(0)]
    pub blocks: BlockRanges,
    /// To the client: a bit for each sink that the server reads from now, by its number.
    #[n(1)]
    pub reached: Option<u64>,
    /// To the client: blocks of files that the server keeps as they are. It neither needs them nor
    /// gives them on.
    #[n(2)]
    pub kept: Option<BlockRanges>,
}

/// Ranges of blocks, ascending and apart: an array of pairs of a first number and a count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRanges(pub Vec<Range<u64>>);

impl<C> Encode<C> for BlockRanges {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeError<W::Error>> {
        e.array(2 * self.0.len() as u64)?;
        for range in &self.0 {
            e.u64(range.start)?.u64(range.end.saturating_sub(range.start))?;
        }
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for BlockRanges {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<BlockRanges, DecodeError> {
        let count = d.array()?.ok_or_else(|| DecodeError::message("ranges without a number"))?;
        if count % 2 != 0 || count > 2 * RELAY_RANGES_MAX as u64 {
            return Err(DecodeError::message("not so many ranges"));
        }
        let mut ranges = Vec::new();
        for _ in 0..count / 2 {
            let (first, length) = (d.u64()?, d.u64()?);
            let end = first.checked_add(length);
            ranges.push(first..end.ok_or_else(|| DecodeError::message("no such block"))?);
        }
        Ok(BlockRanges(ranges))
    }
}

impl BlockRanges {
    /// Cuts ranges, which ascend and lie apart, into messages.
    pub fn pages(ranges: impl Iterator<Item = Range<u64>>) -> Vec<BlockRanges> {
        let all: Vec<Range<u64>> = ranges.collect();
        all.chunks(RELAY_RANGES_MAX).map(|page| BlockRanges(page.to_vec())).collect()
    }

    fn check(&self) -> Result<(), Malformed> {
        within(self.0.len(), 0..=RELAY_RANGES_MAX, "number of ranges")?;
        let mut before = None;
        self.0.iter().try_for_each(|range| {
            within(range.start, 0..=RELAY_BLOCKS_MAX, "number of a block")?;
            within(range.end, range.start + 1..=RELAY_BLOCKS_MAX, "number of a block")?;
            let apart = before.is_none_or(|before| before < range.start);
            before = Some(range.end);
            if apart { Ok(()) } else { Err(Malformed::OutOfRange("order of ranges")) }
        })
    }
}

impl RelayJoin {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        check_number(self.number)
    }
}

impl RelayPeer {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        check_number(self.number)?;
        within(self.host.len(), 1..=HOST_TEXT_MAX, "length of a host")?;
        within(self.ticket.len(), 1..=TICKET_MAX, "length of a ticket")
    }
}

impl RelayGive {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        self.blocks.check()
    }
}

impl RelayValues {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.values.0.len(), 1..=ROOTS_PER_PAGE, "number of values")?;
        let end = RELAY_BLOCKS_MAX - self.values.0.len() as u64;
        within(self.first, 0..=end, "number of a block")
    }
}

impl RelayHave {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        self.kept.as_ref().map_or(Ok(()), BlockRanges::check)?;
        self.blocks.check()
    }
}

fn check_number(number: u32) -> Result<(), Malformed> {
    within(number, 0..=RELAY_SINKS_MAX - 1, "number of a sink")
}
