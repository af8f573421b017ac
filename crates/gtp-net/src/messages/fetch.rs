//! What is said when a server fetches for somebody else.
//!
//! The client says from whom, and the server how far it is. Which object that is, and at which
//! server, stands in the tickets: docs/PROTOCOL.md, chapter 26. Nothing here is trusted because it
//! is well formed.

use minicbor::{Decode, Encode};

use super::tree::decode_list;
use super::{CONTENT_MAX, ENTRIES_MAX, Malformed, PeerText, within};
use crate::ticket::TICKET_MAX;

/// Sources of one object that a server is told at most. Their tickets fit into one frame.
pub const FETCH_SOURCES_MAX: usize = 8;

/// Bytes of a host and its port: a name of 253, brackets and a port.
pub const HOST_TEXT_MAX: usize = 262;
const _: () = assert!(FETCH_SOURCES_MAX * (TICKET_MAX + HOST_TEXT_MAX + 16) < super::FRAME_MAX);

/// Client to server, after the opening of a fetch: from whom.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct FetchFrom {
    /// 1 to [`FETCH_SOURCES_MAX`] servers that have the object.
    #[cbor(n(0), decode_with = "decode_list")]
    pub sources: Vec<FetchSource>,
    /// How long the server may go on without progress, in milliseconds.
    #[n(1)]
    pub patience_ms: u32,
}

/// A server that has the object.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct FetchSource {
    /// `host:port`, with an IPv6 address in brackets.
    #[n(0)]
    pub host: String,
    /// The client's ticket for the object there; see [`crate::ticket`].
    #[cbor(n(1), with = "minicbor::bytes")]
    pub ticket: Vec<u8>,
}

/// Server to client: how far a fetch is. It comes twice a second at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct FetchSeen {
    /// Content bytes in place, those that were there before included.
    #[n(0)]
    pub bytes: u64,
    /// Content bytes in all; 0 as long as nobody knows.
    #[n(1)]
    pub total: u64,
    /// Of those in place, those that were there before.
    #[n(2)]
    pub resumed_bytes: u64,
    /// Content bytes read again before anything moves.
    #[n(3)]
    pub rechecked: u64,
}

/// Server to client: all is in place.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Fetched {
    /// Content bytes of the object.
    #[n(0)]
    pub bytes: u64,
    /// Of them, those that were there before.
    #[n(1)]
    pub resumed_bytes: u64,
    /// Files written by this fetch, or finished by it.
    #[n(2)]
    pub files_written: u64,
    /// Files that were there, unchanged.
    #[n(3)]
    pub files_unchanged: u64,
    /// How many names did not come, though they are there.
    #[n(4)]
    pub left_out: u64,
    /// The first of them, with the reason.
    #[n(5)]
    pub first_left_out: Option<PeerText>,
}

impl FetchFrom {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.sources.len(), 1..=FETCH_SOURCES_MAX, "number of sources")?;
        self.sources.iter().try_for_each(|source| {
            within(source.host.len(), 1..=HOST_TEXT_MAX, "length of a host")?;
            within(source.ticket.len(), 1..=TICKET_MAX, "length of a ticket")
        })
    }
}

impl FetchSeen {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        let all = [self.bytes, self.total, self.resumed_bytes, self.rechecked];
        all.into_iter().try_for_each(|bytes| within(bytes, 0..=CONTENT_MAX, "number of bytes"))
    }
}

impl Fetched {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.bytes, 0..=CONTENT_MAX, "size of the content")?;
        within(self.resumed_bytes, 0..=self.bytes, "size of what was there")?;
        let counts = [self.files_written, self.files_unchanged, self.left_out];
        counts
            .into_iter()
            .try_for_each(|count| within(count, 0..=ENTRIES_MAX, "number of files"))?;
        self.first_left_out.as_ref().map_or(Ok(()), PeerText::check)
    }
}
