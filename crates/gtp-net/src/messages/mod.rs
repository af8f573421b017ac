//! What the two ends say to each other on the control channel.
//!
//! A message travels as one frame: a 4-byte big-endian length of what follows, one byte that
//! names the message, and a CBOR map (RFC 8949) with small integers as keys. Keys that this
//! version does not know are skipped, so that fields can be added; a message or a choice that it
//! does not know is an error, because to ignore a request is worse than to refuse it.
//!
//! The one idea: a decoded message is a valid one. Every number is in its range, every list and
//! name within its bound, before anybody sees it; what comes from outside and is not so becomes
//! a [`Malformed`]. The same check stands before encoding, so both ends keep one contract.
//! This module knows no sockets and no files: paths are bytes, and their meaning is the store's.

mod fetch;
mod fields;
mod limits;
mod packed;
mod relay;
#[cfg(test)]
mod tests;
mod tree;

use gtp_proto::Revision;
use minicbor::{Decode, Encode};

use crate::ticket::TICKET_MAX;

pub use fetch::{FETCH_SOURCES_MAX, FetchFrom, FetchSeen, FetchSource, Fetched, HOST_TEXT_MAX};
pub use fields::{
    Arrivals, Delivery, Entry, EntryKind, Law, Pages, PeerText, Reason, Roots, SuiteList, Verb,
    printable,
};
pub use limits::*;
pub use packed::Packed;
pub use relay::{
    BlockRanges, RELAY_BLOCKS_MAX, RELAY_RANGES_MAX, RELAY_SINKS_MAX, RelayGive, RelayHave,
    RelayId, RelayJoin, RelayPeer, RelayValues, Relays,
};
pub use tree::{
    AlikeList, BlockValues, BlocksWanted, Contents, ContentsWanted, DeedFault, Deeds, DeedsDone,
    Lack, Lacks, Moment, NodeKind, OwnPieces, SmallContent, SmallFile, TreeAlike, TreeDeed,
    TreeEnd, TreeNode, TreeOwner, TreePage, TreeSeen, TreeSums, TreeWanted, TreeXattr, XattrList,
};

/// Newest revision of the messages within ALPN `gtp/1` that this end speaks. Each end names its
/// own in [`Open`]; both then use the older of the two, which the server names in [`Opened`].
pub const VERSION: u32 = Revision::NEWEST.number();

/// Client to server, the first message: asks for a session.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Open {
    /// [`VERSION`] of the client, the newest revision that it speaks.
    #[n(0)]
    pub version: u32,
    /// What is to be done, and to which path.
    #[n(1)]
    pub verb: Verb,
    /// Codes of the AEAD suites that the client can do, best first; 1 to 8 of them.
    #[n(2)]
    pub suites: SuiteList,
    /// The control law of the session.
    #[n(3)]
    pub law: Law,
    /// Weight of the session in thousandths, 1 to 1,000,000; 1,000 is an ordinary session.
    #[n(4)]
    pub weight_milli: u32,
    /// Largest unit payload that the client takes, in bytes.
    #[n(5)]
    pub unit_payload_max: u16,
    /// The session id that datagrams to the client must carry.
    #[n(6)]
    pub client_session: u32,
    /// Control interval that the client wants, in microseconds, 1,000 to 1,000,000; absent: the
    /// server's choice.
    #[n(7)]
    pub interval_us: Option<u32>,
    /// How the client would have the session use its path, as [`gtp_proto::PathUse::code`] writes
    /// it.
    #[n(8)]
    pub path: Option<u8>,
    /// What somebody who may read the object has signed for the client; see [`crate::ticket`].
    #[cbor(n(9), with = "minicbor::bytes")]
    pub ticket: Option<Vec<u8>>,
    /// Of a put, whether the server is asked to give on what it gets ([`RelayJoin`]).
    #[n(10)]
    pub relay: Option<bool>,
}

/// Server to client: the session exists. For `get` manifest pages follow; for `put` the client
/// sends them; for `list` listing pages follow and no datagram is ever sent.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Opened {
    /// The revision of the session: the older of what the two ends speak.
    #[n(0)]
    pub version: u32,
    /// The session id that datagrams to the server must carry.
    #[n(1)]
    pub server_session: u32,
    /// Code of the AEAD suite, one of those that the client named.
    #[n(2)]
    pub suite: u8,
    /// Payload of a unit in bytes, at most what the client takes.
    #[n(3)]
    pub unit_payload: u16,
    /// UDP port of the server, at the address of the control channel.
    #[n(4)]
    pub udp_port: u16,
    /// What the path is at the server; for `put`, what it will be written into or over. Absent
    /// where nothing is there yet.
    #[n(5)]
    pub object: Option<EntryKind>,
    /// Entries that the manifest or listing will have in all; 0 for `put`.
    #[n(6)]
    pub entries_total: u64,
    /// File bytes of the whole object; 0 for `put` and `list`.
    #[n(7)]
    pub content_bytes: u64,
    /// Weight that the server agrees to, in thousandths; it may be lower than the one asked for.
    #[n(8)]
    pub weight_milli: u32,
    /// Control interval of the session in microseconds.
    #[n(9)]
    pub interval_us: u32,
    /// The control law of the session, where one end decides alone by it: said again, as it was
    /// asked for.
    #[n(10)]
    pub law: Option<Law>,
    /// How the session uses its path, as [`gtp_proto::PathUse::code`] writes it: no less cautiously
    /// than the client asked for.
    #[n(11)]
    pub path: Option<u8>,
    /// Whether the session has the rights of the ticket that the client has shown, and not its own.
    /// Absent is no, as servers say that know no tickets.
    #[n(12)]
    pub by_ticket: Option<bool>,
    /// What the server's clock says, in seconds since 1970. Nothing goes by it: it is told to
    /// people who find out why times do not fit.
    #[n(13)]
    pub time_s: Option<u64>,
    /// The server gives on what it gets, as the client has asked for. Absent is no, as servers say
    /// that know no relays.
    #[n(14)]
    pub relays: Option<Relays>,
}

/// Server to client: no session, and why.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Refused {
    /// The kind of reason.
    #[n(0)]
    pub reason: Reason,
    /// The same for people.
    #[n(1)]
    pub text: PeerText,
    /// Whether only the hour is in the way: the key may come at another one. Absent is no, as
    /// servers of earlier releases say.
    #[n(2)]
    pub outside_hours: Option<bool>,
}

/// Source to sink: the next entries of the manifest, in manifest order; server to client: of a
/// listing.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Page {
    /// 1 to [`ENTRIES_PER_PAGE`] entries.
    #[cbor(n(0), decode_with = "fields::decode_entries")]
    pub entries: Vec<Entry>,
}

/// Source to sink: the manifest, or the listing, is complete.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct PagesEnd {
    /// Entries sent in all.
    #[n(0)]
    pub entries_total: u64,
    /// Sum of the files' sizes in bytes.
    #[n(1)]
    pub content_bytes: u64,
}

/// Client to server, before the first request for units: the path carries no more than this.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct UnitChoice {
    /// Payload of a unit in bytes, at most that of [`Opened`].
    #[n(0)]
    pub unit_payload: u16,
}

/// Sink to source: asks for the root hashes of files.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct RootsWanted {
    /// Index of the first file; files are counted from 0 in manifest order, without directories.
    #[n(0)]
    pub first_file: u64,
    /// How many, 1 to [`ROOTS_PER_PAGE`].
    #[n(1)]
    pub files: u32,
}

/// Source to sink: root hashes, as asked for.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct RootsPage {
    /// Index of the first file.
    #[n(0)]
    pub first_file: u64,
    /// 1 to [`ROOTS_PER_PAGE`] BLAKE3 hashes of whole files, 32 bytes each.
    #[n(1)]
    pub roots: Roots,
}

/// Sink to source: everything has arrived, is verified and in its place; of a stream, all of it
/// has arrived in order, and both ends send it, each for what it received. The sender of `Done`
/// closes the channel; a source that never gets it knows nothing about the outcome.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Done {
    /// Files in place.
    #[n(0)]
    pub files: u64,
    /// Their bytes.
    #[n(1)]
    pub content_bytes: u64,
    /// Content bytes that this session brought, where others or an earlier attempt brought some.
    #[n(2)]
    pub brought_bytes: Option<u64>,
}

impl Done {
    /// Nothing was to be kept.
    pub const NOTHING: Done = Done { files: 0, content_bytes: 0, brought_bytes: None };
}

/// Server to client, after a put's manifest: the place is prepared and the session waits for the
/// client's first datagram.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Ready {
    /// Content bytes that are there already and need not be sent.
    #[n(0)]
    pub resumed_bytes: u64,
    /// Files that are there already, whole and under their names.
    #[n(1)]
    pub files_unchanged: u64,
}

/// Server to client, after [`Opened`] for a stream: what it leads to is there.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Connected {
    /// The session id that datagrams to the server must carry in the session that brings its
    /// bytes.
    #[n(0)]
    pub down_session: u32,
    /// Units that either sink may ask for ahead of what it has: at most what the client said.
    #[n(1)]
    pub window: u32,
    /// How frames are delivered: said again, as it was asked for.
    #[n(2)]
    pub delivery: Option<Delivery>,
}

/// Source to sink of a stream of frames: more will not be said. Nothing on the data path says so.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Ended {
    /// Units that there are in all.
    #[n(0)]
    pub units: u64,
    /// Frames that there are in all, at most as many.
    #[n(1)]
    pub frames: u64,
}

/// Server to client, the answer to [`Message::ArrivalsWanted`].
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct ArrivalsSeen {
    /// What has come of the session's datagrams.
    #[n(0)]
    pub arrivals: Arrivals,
}

/// Client to server, where UDP does not get through: from here on both ends may put the session's
/// datagrams on this connection, each in a frame of the type [`DATAGRAM`] between those of
/// messages. No answer. Once on a connection, and only to peers of [`Revision::Fourth`] or later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Carry {
    /// The client's own UDP port. The server may send to it first, at the address that the
    /// connection comes from, to open a firewall on its side for what the client sends.
    #[n(0)]
    pub port: Option<u16>,
}

/// Either way: the session fails, or one file of it does.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Fault {
    /// The kind of reason.
    #[n(0)]
    pub reason: Reason,
    /// The same for people.
    #[n(1)]
    pub text: PeerText,
    /// The manifest path that it is about; absent if it is about the whole session, which then
    /// ends.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub path: Option<Vec<u8>>,
}

/// Everything that can be said on the control channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// See [`Open`].
    Open(Open),
    /// See [`Opened`].
    Opened(Opened),
    /// See [`Refused`].
    Refused(Refused),
    /// Entries of the manifest; see [`Page`].
    ManifestPage(Page),
    /// The end of the manifest; see [`PagesEnd`].
    ManifestEnd(PagesEnd),
    /// See [`UnitChoice`].
    UnitChoice(UnitChoice),
    /// See [`RootsWanted`].
    RootsWanted(RootsWanted),
    /// See [`RootsPage`].
    Roots(RootsPage),
    /// See [`Done`].
    Done(Done),
    /// See [`Fault`].
    Fault(Fault),
    /// Either way: the sender gives the session up on purpose; nothing more follows.
    Cancel,
    /// Either way: the sender is alive. No answer.
    Keepalive,
    /// Entries of a listing; see [`Page`].
    ListingPage(Page),
    /// The end of a listing; see [`PagesEnd`].
    ListingEnd(PagesEnd),
    /// See [`Ready`].
    Ready(Ready),
    /// See [`Connected`].
    Connected(Connected),
    /// See [`Ended`].
    Ended(Ended),
    /// Client to server, whose datagrams nobody has answered: asks whether any have come. Only to
    /// peers of [`Revision::Third`] or later.
    ArrivalsWanted,
    /// See [`ArrivalsSeen`].
    ArrivalsSeen(ArrivalsSeen),
    /// See [`Carry`].
    Carry(Carry),
    /// Server to client: for some seconds no datagram of the client has come, though some came
    /// before. Only to peers of [`Revision::Fourth`] or later.
    Unheard,
    /// See [`TreeWanted`].
    TreeWanted(TreeWanted),
    /// See [`TreePage`].
    TreePage(TreePage),
    /// A [`TreePage`], packed.
    TreePacked(Packed<TreePage>),
    /// See [`TreeEnd`].
    TreeEnd(TreeEnd),
    /// See [`Deeds`].
    Deeds(Deeds),
    /// [`Deeds`], packed.
    DeedsPacked(Packed<Deeds>),
    /// See [`DeedsDone`].
    DeedsDone(DeedsDone),
    /// See [`BlocksWanted`].
    BlocksWanted(BlocksWanted),
    /// See [`BlockValues`].
    BlockValues(BlockValues),
    /// See [`ContentsWanted`].
    ContentsWanted(ContentsWanted),
    /// See [`Contents`].
    Contents(Contents),
    /// See [`FetchFrom`].
    FetchFrom(FetchFrom),
    /// See [`FetchSeen`].
    FetchSeen(FetchSeen),
    /// See [`Fetched`].
    Fetched(Fetched),
    /// See [`RelayJoin`].
    RelayJoin(RelayJoin),
    /// See [`RelayPeer`].
    RelayPeer(RelayPeer),
    /// See [`RelayGive`].
    RelayGive(RelayGive),
    /// See [`RelayValues`].
    RelayValues(RelayValues),
    /// See [`RelayHave`].
    RelayHave(RelayHave),
}

/// Bytes from the peer that are no message, or a message of ours that must not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The byte that names the message names none.
    #[error("unknown message type {0}")]
    UnknownType(u8),
    /// The frame is longer than its message may be, or empty.
    #[error("frame of {length} bytes where at most {limit} are allowed")]
    Length {
        /// Bytes that the frame claims to hold.
        length: u64,
        /// Bytes allowed.
        limit: usize,
    },
    /// The body is not the CBOR that the message wants.
    #[error("malformed {message} message: {why}")]
    Body {
        /// Name of the message.
        message: &'static str,
        /// What the decoder stumbled over, with the position.
        why: String,
    },
    /// A field is out of its range.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
}

/// One row per message: wire type, name, longest frame. The table is the only place that
/// connects them; types are never reused.
macro_rules! messages {
    ($($kind:literal $variant:ident $limit:ident $(($body:ident))?;)*) => {
        impl Message {
            /// The byte that names the message on the wire.
            pub fn kind(&self) -> u8 {
                match self { $(messages!(@pattern $variant $($body)?) => $kind,)* }
            }

            /// The message's name, for logs and errors.
            pub fn name(&self) -> &'static str {
                match self { $(messages!(@pattern $variant $($body)?) => stringify!($variant),)* }
            }

            fn encode_body(&self, out: &mut Vec<u8>) {
                match self { $(messages!(@encode $variant body $($body)?) => {
                    messages!(@write out body $($body)?)
                })* }
            }

            fn decode_body(kind: u8, body: &[u8]) -> Result<Message, Malformed> {
                match kind {
                    $($kind => messages!(@decode $variant body $($body)?),)*
                    unknown => Err(Malformed::UnknownType(unknown)),
                }
            }
        }

        /// Longest frame (type byte and body) of the message that `kind` names, in bytes.
        ///
        /// # Errors
        /// [`Malformed::UnknownType`].
        pub fn frame_limit(kind: u8) -> Result<usize, Malformed> {
            match kind {
                $($kind => Ok($limit),)*
                unknown => Err(Malformed::UnknownType(unknown)),
            }
        }
    };
    (@pattern $variant:ident) => { Message::$variant };
    (@pattern $variant:ident $body:ident) => { Message::$variant(_) };
    (@encode $variant:ident $name:ident) => { Message::$variant };
    (@encode $variant:ident $name:ident $body:ident) => { Message::$variant($name) };
    (@write $out:ident $name:ident) => { $out.push(EMPTY_MAP) };
    (@write $out:ident $name:ident $body:ident) => { write_body($out, $name) };
    (@decode $variant:ident $bytes:ident) => {
        read_body::<Nothing>(stringify!($variant), $bytes).map(|Nothing {}| Message::$variant)
    };
    (@decode $variant:ident $bytes:ident $body:ident) => {
        read_body(stringify!($variant), $bytes).map(Message::$variant)
    };
}

messages! {
    1 Open FRAME_MAX (Open);
    2 Opened FRAME_MAX (Opened);
    3 Refused FRAME_MAX (Refused);
    4 ManifestPage PAGE_FRAME_MAX (Page);
    5 ManifestEnd FRAME_MAX (PagesEnd);
    6 UnitChoice FRAME_MAX (UnitChoice);
    7 RootsWanted FRAME_MAX (RootsWanted);
    8 Roots PAGE_FRAME_MAX (RootsPage);
    9 Done FRAME_MAX (Done);
    10 Fault FRAME_MAX (Fault);
    11 Cancel FRAME_MAX;
    12 Keepalive FRAME_MAX;
    13 ListingPage PAGE_FRAME_MAX (Page);
    14 ListingEnd FRAME_MAX (PagesEnd);
    15 Ready FRAME_MAX (Ready);
    16 Connected FRAME_MAX (Connected);
    17 Ended FRAME_MAX (Ended);
    18 ArrivalsWanted FRAME_MAX;
    19 ArrivalsSeen FRAME_MAX (ArrivalsSeen);
    27 Carry FRAME_MAX (Carry);
    29 Unheard FRAME_MAX;
    20 TreeWanted FRAME_MAX (TreeWanted);
    21 TreePage PAGE_FRAME_MAX (TreePage);
    30 TreePacked PAGE_FRAME_MAX (Packed);
    22 TreeEnd FRAME_MAX (TreeEnd);
    23 Deeds PAGE_FRAME_MAX (Deeds);
    33 DeedsPacked PAGE_FRAME_MAX (Packed);
    24 DeedsDone PAGE_FRAME_MAX (DeedsDone);
    25 BlocksWanted FRAME_MAX (BlocksWanted);
    26 BlockValues PAGE_FRAME_MAX (BlockValues);
    31 ContentsWanted FRAME_MAX (ContentsWanted);
    32 Contents PAGE_FRAME_MAX (Contents);
    34 FetchFrom FRAME_MAX (FetchFrom);
    35 FetchSeen FRAME_MAX (FetchSeen);
    36 Fetched FRAME_MAX (Fetched);
    40 RelayJoin FRAME_MAX (RelayJoin);
    41 RelayPeer FRAME_MAX (RelayPeer);
    42 RelayGive FRAME_MAX (RelayGive);
    43 RelayValues PAGE_FRAME_MAX (RelayValues);
    44 RelayHave FRAME_MAX (RelayHave);
}

/// The byte that names a frame with a datagram of a session. It is no message: behind the byte
/// stands the datagram as UDP would carry it. Only a connection that carries datagrams has such
/// frames.
pub const DATAGRAM: u8 = 28;

impl Message {
    /// A refusal with its text.
    pub fn refused(reason: Reason, text: impl Into<String>) -> Message {
        Message::Refused(Refused { reason, text: PeerText::new(text), outside_hours: None })
    }

    /// A refusal of a key that may come at another hour, with its text.
    pub fn refused_now(text: impl Into<String>) -> Message {
        let (reason, text) = (Reason::NotAuthorised, PeerText::new(text));
        Message::Refused(Refused { reason, text, outside_hours: Some(true) })
    }

    /// A fault of the whole session.
    pub fn fault(reason: Reason, text: impl Into<String>) -> Message {
        Message::Fault(Fault { reason, text: PeerText::new(text), path: None })
    }

    /// The message as a whole frame.
    ///
    /// # Errors
    /// [`Malformed`] if a field is out of range or the frame too long; nothing may be sent then.
    pub fn to_frame(&self) -> Result<Vec<u8>, Malformed> {
        self.check()?;
        let mut frame = vec![0, 0, 0, 0, self.kind()];
        self.encode_body(&mut frame);
        let length = frame.len() - LENGTH_BYTES;
        let limit = frame_limit(self.kind())?;
        if length > limit {
            return Err(Malformed::Length { length: length as u64, limit });
        }
        let length = u32::try_from(length).expect("a frame's limit fits its length field");
        frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        Ok(frame)
    }

    /// The message in a frame whose length has been taken off: type byte and body.
    ///
    /// Takes memory in proportion to the frame only, whatever the bytes claim.
    ///
    /// # Errors
    /// [`Malformed`] for anything but exactly one valid message.
    pub fn parse(frame: &[u8]) -> Result<Message, Malformed> {
        let (&kind, body) = frame.split_first().ok_or(Malformed::Length { length: 0, limit: 1 })?;
        let limit = frame_limit(kind)?;
        if frame.len() > limit {
            return Err(Malformed::Length { length: frame.len() as u64, limit });
        }
        let message = Message::decode_body(kind, body)?;
        message.check()?;
        Ok(message)
    }

    /// Whether every field is within its bound.
    fn check(&self) -> Result<(), Malformed> {
        match self {
            Message::Open(open) => open.check(),
            Message::Opened(opened) => opened.check(),
            Message::Refused(Refused { text, .. }) => text.check(),
            Message::ManifestPage(page) | Message::ListingPage(page) => page.check(),
            Message::ManifestEnd(end) | Message::ListingEnd(end) => {
                within(end.entries_total, 0..=ENTRIES_MAX, "number of entries")?;
                within(end.content_bytes, 0..=CONTENT_MAX, "size of the content")
            }
            Message::UnitChoice(UnitChoice { unit_payload }) => check_unit(*unit_payload),
            Message::RootsWanted(RootsWanted { first_file, files }) => {
                within(*first_file, 0..=ENTRIES_MAX, "index of the first file")?;
                within(*files as usize, 1..=ROOTS_PER_PAGE, "number of roots")
            }
            Message::Roots(RootsPage { first_file, roots }) => {
                within(*first_file, 0..=ENTRIES_MAX, "index of the first file")?;
                within(roots.0.len(), 1..=ROOTS_PER_PAGE, "number of roots")
            }
            Message::Done(Done { files, content_bytes, brought_bytes }) => {
                within(*files, 0..=ENTRIES_MAX, "number of files")?;
                within(*content_bytes, 0..=CONTENT_MAX, "size of the content")?;
                within(brought_bytes.unwrap_or(0), 0..=CONTENT_MAX, "size of what was brought")
            }
            Message::Fault(Fault { reason: _, text, path }) => {
                text.check()?;
                path.as_ref().map_or(Ok(()), |path| fields::check_path(path))
            }
            Message::Connected(Connected { down_session: _, window, delivery: _ }) => {
                within(*window, STREAM_WINDOW, "window")
            }
            Message::Ended(Ended { units, frames }) => {
                within(*units, 0..=STREAM_UNITS_MOST, "number of units")?;
                within(*frames, 0..=*units, "number of frames")
            }
            Message::Ready(Ready { resumed_bytes, files_unchanged }) => {
                within(*resumed_bytes, 0..=CONTENT_MAX, "size of what is there")?;
                within(*files_unchanged, 0..=ENTRIES_MAX, "number of files")
            }
            Message::ArrivalsSeen(ArrivalsSeen { arrivals: _ }) => Ok(()),
            Message::TreeWanted(wanted) => wanted.check(),
            Message::TreePage(page) | Message::TreePacked(Packed(page)) => page.check(),
            Message::TreeEnd(end) => end.check(),
            Message::Deeds(deeds) | Message::DeedsPacked(Packed(deeds)) => deeds.check(),
            Message::DeedsDone(done) => done.check(),
            Message::BlocksWanted(wanted) => wanted.check(),
            Message::BlockValues(values) => values.check(),
            Message::ContentsWanted(wanted) => wanted.check(),
            Message::Contents(contents) => contents.check(),
            Message::FetchFrom(from) => from.check(),
            Message::FetchSeen(seen) => seen.check(),
            Message::Fetched(fetched) => fetched.check(),
            Message::RelayJoin(join) => join.check(),
            Message::RelayPeer(peer) => peer.check(),
            Message::RelayGive(give) => give.check(),
            Message::RelayValues(values) => values.check(),
            Message::RelayHave(have) => have.check(),
            Message::Cancel
            | Message::Keepalive
            | Message::ArrivalsWanted
            | Message::Carry(_)
            | Message::Unheard => Ok(()),
        }
    }
}

impl Open {
    fn check(&self) -> Result<(), Malformed> {
        self.verb.check()?;
        self.suites.check()?;
        self.law.check()?;
        within(self.weight_milli, WEIGHT_MILLI, "weight")?;
        check_unit(self.unit_payload_max)?;
        let ticket = self.ticket.as_ref().map_or(1, Vec::len);
        within(ticket, 1..=TICKET_MAX, "length of the ticket")?;
        self.interval_us.map_or(Ok(()), |us| within(us, INTERVAL_US, "control interval"))
    }
}

impl Opened {
    fn check(&self) -> Result<(), Malformed> {
        check_unit(self.unit_payload)?;
        within(self.udp_port, 1..=u16::MAX, "UDP port")?;
        within(self.entries_total, 0..=ENTRIES_MAX, "number of entries")?;
        within(self.content_bytes, 0..=CONTENT_MAX, "size of the content")?;
        within(self.weight_milli, WEIGHT_MILLI, "weight")?;
        within(self.interval_us, INTERVAL_US, "control interval")?;
        self.law.map_or(Ok(()), |law| law.check())
    }
}

impl Page {
    fn check(&self) -> Result<(), Malformed> {
        within(self.entries.len(), 1..=ENTRIES_PER_PAGE, "number of entries in a page")?;
        self.entries.iter().try_for_each(Entry::check)
    }
}

fn check_unit(payload: u16) -> Result<(), Malformed> {
    within(payload, UNIT_PAYLOAD, "unit payload")
}

fn within<T: PartialOrd>(
    value: T,
    range: std::ops::RangeInclusive<T>,
    what: &'static str,
) -> Result<(), Malformed> {
    if range.contains(&value) { Ok(()) } else { Err(Malformed::OutOfRange(what)) }
}

/// Body of a message without fields; those of later versions are skipped.
#[derive(Decode)]
#[cbor(map)]
struct Nothing {}

fn write_body<T: Encode<()>>(out: &mut Vec<u8>, body: &T) {
    minicbor::encode(body, out).expect("writing to memory cannot fail");
}

fn read_body<'b, T: Decode<'b, ()>>(message: &'static str, body: &'b [u8]) -> Result<T, Malformed> {
    let malformed = |why: String| Malformed::Body { message, why };
    let mut decoder = minicbor::Decoder::new(body);
    let decoded = decoder.decode().map_err(|e| malformed(e.to_string()))?;
    if decoder.position() < body.len() {
        return Err(malformed("bytes after the end".into()));
    }
    Ok(decoded)
}

/// The length field of a frame, in bytes.
pub const LENGTH_BYTES: usize = 4;

const EMPTY_MAP: u8 = 0xA0;
