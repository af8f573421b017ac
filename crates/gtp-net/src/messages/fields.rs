//! The parts that messages are made of, each with its own encoding and bounds.
//!
//! A part that decodes is valid: ranges and lengths are checked here, so that no later code has to.
//! Nothing here knows which message it is in.

use std::fmt;

use minicbor::decode::Error as DecodeError;
use minicbor::encode::{Error as EncodeError, Write};
use minicbor::{Decode, Decoder, Encode, Encoder};

use super::limits::*;
use super::{Malformed, within};

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Verb {
    /// Units of the object at `path` are to be sent to the client.
    #[n(0)]
    Get {
        /// Path below the served directory; `/`-separated, empty for the directory itself.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
    },
    /// The client sends an object to `path`; its manifest follows.
    #[n(1)]
    Put {
        /// Path below the served directory.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
    },
    /// The names at `path`, and nothing else.
    #[n(2)]
    List {
        /// Path below the served directory.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
    },
    /// A stream in each direction.
    #[n(3)]
    Stream {
        /// What it shall lead to, as the server names it; empty where there is but one thing.
        #[cbor(n(0), with = "minicbor::bytes")]
        service: Vec<u8>,
        /// The session id that datagrams to the client must carry in the session that brings the
        /// server's bytes; the one of [`super::Open`] is that of the client's bytes.
        #[n(1)]
        down_session: u32,
        /// Units that either sink may ask for ahead of what it has, at most.
        #[n(2)]
        window: u32,
        /// For streams of frames, how they are delivered; absent for streams of bytes.
        #[n(3)]
        delivery: Option<Delivery>,
    },
    /// A tree is to be looked at, and perhaps changed step by step.
    #[n(4)]
    Tree {
        /// Path of the tree below the served directory.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// Whether steps will change it.
        #[n(1)]
        changes: bool,
    },
    /// The server is to fetch an object to `path` from other servers, which
    /// [`super::FetchFrom`] names.
    #[n(5)]
    Fetch {
        /// Path below the served directory.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
    },
    /// Blocks of the object that somebody sends to `path` now are to be given on to the client,
    /// which gets the same object.
    #[n(6)]
    Relay {
        /// Path below the served directory.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// Which object of the sender's; see [`super::RelayJoin`].
        #[cbor(n(1), with = "minicbor::bytes")]
        transfer: super::RelayId,
    },
}

/// What becomes of what is lost of a stream of frames. A frame arrives whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Delivery {
    /// Nothing is sent again.
    #[n(1)]
    Frames,
    /// What was lost is sent again once.
    #[n(2)]
    FramesOnce,
}

impl Verb {
    /// The path that the verb is about; a stream's service.
    pub fn path(&self) -> &[u8] {
        match self {
            Verb::Get { path }
            | Verb::Put { path }
            | Verb::List { path }
            | Verb::Fetch { path }
            | Verb::Relay { path, transfer: _ }
            | Verb::Tree { path, changes: _ } => path,
            Verb::Stream { service, .. } => service,
        }
    }

    /// The path of the file that a stream of bytes is to be written to; `None` for any other verb.
    pub fn streamed_path(&self) -> Option<&[u8]> {
        match self {
            Verb::Stream { service, delivery: None, .. } => service.strip_prefix(PUT_SERVICE),
            Verb::Stream { .. }
            | Verb::Get { .. }
            | Verb::Put { .. }
            | Verb::List { .. }
            | Verb::Fetch { .. }
            | Verb::Relay { .. }
            | Verb::Tree { .. } => None,
        }
    }

    /// The place for which a stream of frames is a probe, as the client names it: what is behind
    /// the word and the numbers of the service. `None` for any other verb.
    pub fn probed_path(&self) -> Option<&[u8]> {
        match self {
            Verb::Stream { service, delivery: Some(Delivery::Frames), .. } => {
                let rest = service.strip_prefix(PROBE_SERVICE)?;
                rest.iter().position(|&byte| byte == b':').map(|colon| &rest[colon + 1..])
            }
            Verb::Stream { .. }
            | Verb::Get { .. }
            | Verb::Put { .. }
            | Verb::List { .. }
            | Verb::Fetch { .. }
            | Verb::Relay { .. }
            | Verb::Tree { .. } => None,
        }
    }

    pub(super) fn check(&self) -> Result<(), Malformed> {
        match self {
            Verb::Get { path }
            | Verb::Put { path }
            | Verb::List { path }
            | Verb::Fetch { path }
            | Verb::Relay { path, transfer: _ }
            | Verb::Tree { path, changes: _ } => {
                within(path.len(), 0..=PATH_MAX, "length of the path")
            }
            Verb::Stream { service, down_session: _, window, delivery: _ } => {
                within(service.len(), 0..=SERVICE_MAX, "length of the service")?;
                within(*window, STREAM_WINDOW, "window")
            }
        }
    }
}

/// How both ends' agents control the session's rate.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub enum Law {
    /// Committed grants.
    #[n(0)]
    Grant,
    /// The thesis's end-node law (Algorithms 2 and 3).
    #[n(1)]
    EndNode {
        /// Step of the expected rate towards its share, above 0 and at most 1.
        #[n(0)]
        alpha: f64,
        /// Smallest step as a part of the largest, above 0 and at most 1.
        #[n(1)]
        beta: f64,
    },
    /// GTP 2004: the sink's host alone.
    #[n(2)]
    Gtp2004,
    /// RBUDP: the source, at this rate.
    #[n(3)]
    Rbudp {
        /// Bit/s, within [`ALONE_RATE`].
        #[n(0)]
        rate: u64,
    },
    /// SABUL: the source, from this rate on.
    #[n(4)]
    Sabul {
        /// Bit/s, within [`ALONE_RATE`].
        #[n(0)]
        rate: u64,
    },
    /// Tsunami: the source, at most at this rate.
    #[n(5)]
    Tsunami {
        /// Bit/s, within [`ALONE_RATE`].
        #[n(0)]
        rate: u64,
    },
    /// LambdaStream: the sink of a stream.
    #[n(6)]
    LambdaStream {
        /// The link's rate in bit/s, within [`ALONE_RATE`].
        #[n(0)]
        link: u64,
        /// The first rate, likewise.
        #[n(1)]
        rate: u64,
    },
}

impl Law {
    /// Whether one end decides alone by it. Such a law is said again in [`Opened`](super::Opened).
    pub fn is_alone(self) -> bool {
        match self {
            Law::Grant | Law::EndNode { .. } => false,
            Law::Gtp2004
            | Law::Rbudp { .. }
            | Law::Sabul { .. }
            | Law::Tsunami { .. }
            | Law::LambdaStream { .. } => true,
        }
    }

    pub(super) fn check(&self) -> Result<(), Malformed> {
        match *self {
            Law::Grant | Law::Gtp2004 => Ok(()),
            Law::Rbudp { rate } | Law::Sabul { rate } | Law::Tsunami { rate } => {
                within(rate, ALONE_RATE, "rate of the law")
            }
            Law::LambdaStream { link, rate } => {
                within(link, ALONE_RATE, "rate of the link")?;
                within(rate, ALONE_RATE, "rate of the law")
            }
            Law::EndNode { alpha, beta } => {
                // Both comparisons are false for a NaN.
                let positive_part = |x: f64| x > 0.0 && x <= 1.0;
                let fits = positive_part(alpha) && positive_part(beta);
                if fits { Ok(()) } else { Err(Malformed::OutOfRange("alpha or beta")) }
            }
        }
    }
}

/// Codes of AEAD suites, best first, as one byte string. Unknown codes are allowed: a newer
/// client offers what an older server does not know.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct SuiteList(#[cbor(n(0), with = "minicbor::bytes")] pub Vec<u8>);

impl SuiteList {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.0.len(), 1..=SUITES_MAX, "number of suites")
    }
}

/// What an entry of a manifest or listing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum EntryKind {
    /// A regular file.
    #[n(0)]
    File,
    /// A directory.
    #[n(1)]
    Directory,
}

/// What a server says of a session's datagrams, once it has read all that had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Arrivals {
    /// None has come.
    #[n(0)]
    None,
    /// At least one has come, and opened under the session's key.
    #[n(1)]
    Some,
    /// None was read, but some may have been lost at this host: it does not keep up with what
    /// comes.
    #[n(2)]
    Unread,
}

/// One entry of a manifest or listing. That the paths are sane, sorted and unique is checked by
/// whoever builds a manifest of them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// Path relative to the object, `/`-separated, at most [`PATH_MAX`] bytes. Empty only for
    /// the object itself.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// File or directory.
    #[n(1)]
    pub kind: EntryKind,
    /// Bytes of content; 0 for a directory.
    #[n(2)]
    pub size: u64,
    /// Permission bits, at most 0o7777.
    #[n(3)]
    pub mode: u32,
    /// Time of the last change: whole seconds since 1970, negative before.
    #[n(4)]
    pub mtime_s: i64,
    /// The rest of it in nanoseconds, below a second.
    #[n(5)]
    pub mtime_ns: u32,
}

impl Entry {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        check_path(&self.path)?;
        within(self.mode, 0..=0o7777, "mode")?;
        within(self.mtime_ns, 0..=999_999_999, "nanoseconds")?;
        match self.kind {
            EntryKind::File => within(self.size, 0..=CONTENT_MAX, "size"),
            EntryKind::Directory => within(self.size, 0..=0, "size of a directory"),
        }
    }

    /// Bytes that the entry takes in a page, at most.
    fn page_bytes(&self) -> usize {
        // Map header, six keys, and heads of 9 bytes for a path and four numbers, 1 for the kind.
        self.path.len() + 1 + 6 + 5 * 9 + 1
    }
}

pub(super) fn check_path(path: &[u8]) -> Result<(), Malformed> {
    within(path.len(), 0..=PATH_MAX, "length of a path")
}

/// Cuts a row of entries into pages that are allowed to be sent.
#[derive(Debug)]
pub struct Pages<I: Iterator<Item = Entry>> {
    entries: std::iter::Peekable<I>,
}

impl<I: Iterator<Item = Entry>> Pages<I> {
    /// Pages of these entries, in this order.
    pub fn new(entries: impl IntoIterator<IntoIter = I>) -> Pages<I> {
        Pages { entries: entries.into_iter().peekable() }
    }
}

impl<I: Iterator<Item = Entry>> Iterator for Pages<I> {
    type Item = super::Page;

    fn next(&mut self) -> Option<super::Page> {
        let mut page = vec![self.entries.next()?];
        let mut room = PAGE_BYTES_SENT.saturating_sub(page[0].page_bytes());
        while page.len() < ENTRIES_SENT {
            let Some(entry) = self.entries.next_if(|e| e.page_bytes() <= room) else { break };
            room -= entry.page_bytes();
            page.push(entry);
        }
        Some(super::Page { entries: page })
    }
}

/// Entries of a page that is sent. It is fewer than a peer takes: a page waits in memory for a peer
/// that reads slowly, and larger ones save nothing.
const ENTRIES_SENT: usize = 512;
/// Bytes of a page that is sent, unless its only entry is longer.
const PAGE_BYTES_SENT: usize = 64 * 1024;
const _: () = assert!(ENTRIES_SENT <= ENTRIES_PER_PAGE && PAGE_BYTES_SENT < PAGE_FRAME_MAX - 64);

/// Decodes a list of entries without believing its stated length: memory grows with the entries
/// that are really there, up to the bound.
pub(super) fn decode_entries<C>(
    decoder: &mut Decoder<'_>,
    context: &mut C,
) -> Result<Vec<Entry>, DecodeError> {
    let count = decoder.array()?.ok_or_else(|| DecodeError::message("list without a length"))?;
    if count > ENTRIES_PER_PAGE as u64 {
        return Err(DecodeError::message("too many entries in a page"));
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        entries.push(Entry::decode(decoder, context)?);
    }
    Ok(entries)
}

/// BLAKE3 hashes of whole files, on the wire as one byte string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots(pub Vec<[u8; 32]>);

impl<C> Encode<C> for Roots {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeError<W::Error>> {
        e.bytes(self.0.as_flattened())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Roots {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Roots, DecodeError> {
        let (roots, rest) = d.bytes()?.as_chunks::<32>();
        if !rest.is_empty() {
            return Err(DecodeError::message("roots are 32 bytes each"));
        }
        Ok(Roots(roots.to_vec()))
    }
}

/// Why something was refused or failed, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Anything else, and every code that this version does not know.
    Other,
    /// Nothing is at the path.
    Missing,
    /// The server may not, or does not want to, read or write there; also `put` to a server
    /// that only reads.
    Permission,
    /// The destination cannot be written: no space, read-only, or something else is there.
    Destination,
    /// Too many sessions now.
    Busy,
    /// The server is about to stop.
    Stopping,
    /// The client's key is not among those that may do this.
    NotAuthorised,
    /// The versions or the AEAD suites have nothing in common.
    Version,
    /// The source changed while it was being sent.
    Changed,
    /// The source could not be read.
    Unreadable,
    /// Content does not match its hash.
    Integrity,
    /// The request is beyond a limit.
    Limit,
    /// A message came that must not come then.
    Unexpected,
    /// Something took too long.
    TimedOut,
    /// No datagram gets through.
    NoUdpPath,
}

impl Reason {
    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Reason::Other => 0,
            Reason::Missing => 1,
            Reason::Permission => 2,
            Reason::Destination => 3,
            Reason::Busy => 4,
            Reason::Stopping => 5,
            Reason::NotAuthorised => 6,
            Reason::Version => 7,
            Reason::Changed => 8,
            Reason::Unreadable => 9,
            Reason::Integrity => 10,
            Reason::Limit => 11,
            Reason::Unexpected => 12,
            Reason::TimedOut => 13,
            Reason::NoUdpPath => 14,
        }
    }

    /// The reason of a code from the wire.
    pub const fn from_code(code: u8) -> Reason {
        match code {
            1 => Reason::Missing,
            2 => Reason::Permission,
            3 => Reason::Destination,
            4 => Reason::Busy,
            5 => Reason::Stopping,
            6 => Reason::NotAuthorised,
            7 => Reason::Version,
            8 => Reason::Changed,
            9 => Reason::Unreadable,
            10 => Reason::Integrity,
            11 => Reason::Limit,
            12 => Reason::Unexpected,
            13 => Reason::TimedOut,
            14 => Reason::NoUdpPath,
            _ => Reason::Other,
        }
    }

    /// The exit code of a command that ends for this reason: 3 source missing, 4 destination or
    /// permission, 5 temporary, 6 integrity, 7 authentication or version, 10 time limit, 11 no
    /// UDP path, 1 other.
    pub const fn exit_code(self) -> u8 {
        match self {
            Reason::Missing => 3,
            Reason::Permission | Reason::Destination => 4,
            Reason::Busy | Reason::Stopping | Reason::Changed => 5,
            Reason::Integrity => 6,
            Reason::NotAuthorised | Reason::Version => 7,
            Reason::TimedOut => 10,
            Reason::NoUdpPath => 11,
            Reason::Other | Reason::Unreadable | Reason::Limit | Reason::Unexpected => 1,
        }
    }
}

impl<C> Encode<C> for Reason {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeError<W::Error>> {
        e.u8(self.code())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Reason {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Reason, DecodeError> {
        Ok(Reason::from_code(d.u8()?))
    }
}

/// A text for people, perhaps from a peer. It can be had only by `Display`, which makes it
/// harmless to a terminal and leaves names in it that the peer has escaped as they are.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct PeerText(#[n(0)] pub(super) String);

impl PeerText {
    /// Takes a text and cuts it to [`TEXT_MAX`] bytes.
    pub fn new(text: impl Into<String>) -> PeerText {
        let mut text = text.into();
        let end = (0..=TEXT_MAX.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        PeerText(text)
    }

    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.0.len(), 0..=TEXT_MAX, "length of a text")
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&gtp_text::of_message(&self.0))
    }
}

/// Bytes from outside as a text that is harmless to a terminal: see [`gtp_text::of_bytes`]. Paths
/// are shown by it too.
pub fn printable(bytes: &[u8]) -> String {
    gtp_text::of_bytes(bytes)
}
