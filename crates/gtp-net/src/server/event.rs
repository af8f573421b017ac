//! What the program that runs a server hears from it.
//!
//! Events are values without handles. What comes from clients in them is escaped, so that they may
//! be printed as they are.

use std::net::SocketAddr;
use std::sync::Arc;

use gtp_alloc::Span;
use tokio::sync::OwnedSemaphorePermit;

use super::objects::Objects;
use crate::control::ControlError;
use crate::flows::Failure;
use crate::identity::Fingerprint;
use crate::messages::Reason;

/// Numbers a server's sessions, from 1.
pub type SessionId = u64;

/// Whether a client is on the list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// Its key is on the list.
    Listed,
    /// Its key is not: the server lets anyone read.
    Stranger,
}

/// Why a connection became no session. There are few, so that refusals can be counted by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhyRefused {
    /// It proved no key, or said nothing that is understood.
    NoKey,
    /// Its key may not do this here.
    NotAllowed,
    /// It is none of the hours in which its key may come.
    OutsideHours,
    /// The server does not do what it asks for: it only reads, or the control law is not allowed.
    NotOffered,
    /// The path that it asks for cannot be one, or it asks for a stream.
    BadRequest,
    /// Nothing is there that its key may see.
    Missing,
    /// There is no room for it now.
    Busy,
    /// There is no version or cipher in common. One that is refused for its version counts as a
    /// stranger: the list of keys is looked at later.
    Version,
    /// The server cannot use its list of keys.
    NoList,
}

impl WhyRefused {
    /// All of them.
    pub const ALL: [WhyRefused; 9] = [
        WhyRefused::NoKey,
        WhyRefused::NotAllowed,
        WhyRefused::OutsideHours,
        WhyRefused::NotOffered,
        WhyRefused::BadRequest,
        WhyRefused::Missing,
        WhyRefused::Busy,
        WhyRefused::Version,
        WhyRefused::NoList,
    ];

    /// What this is called where refusals are counted.
    pub const fn as_str(self) -> &'static str {
        match self {
            WhyRefused::NoKey => "no_key",
            WhyRefused::NotAllowed => "not_allowed",
            WhyRefused::OutsideHours => "outside_hours",
            WhyRefused::NotOffered => "not_offered",
            WhyRefused::BadRequest => "bad_request",
            WhyRefused::Missing => "missing",
            WhyRefused::Busy => "busy",
            WhyRefused::Version => "version",
            WhyRefused::NoList => "no_list",
        }
    }

    /// Why a connection is refused that did not come as far as a request.
    pub(super) fn of_opening(error: &ControlError) -> WhyRefused {
        match error {
            ControlError::Version(_) => WhyRefused::Version,
            ControlError::Unreachable { .. }
            | ControlError::NoSuchHost { .. }
            | ControlError::TimedOut(_)
            | ControlError::NotGtp(_)
            | ControlError::Host(_)
            | ControlError::Trust(_)
            | ControlError::NotProved(_)
            | ControlError::KeyRefused
            | ControlError::NotAuthorised(_)
            | ControlError::OutsideHours(_)
            | ControlError::Refused { .. }
            | ControlError::Malformed(_)
            | ControlError::Unexpected(_)
            | ControlError::Closed
            | ControlError::Lost(_) => WhyRefused::NoKey,
        }
    }

    /// Why a client with a proved key is refused that is told this reason.
    pub(super) fn of_reason(reason: Reason) -> WhyRefused {
        match reason {
            Reason::NotAuthorised => WhyRefused::NotAllowed,
            Reason::Permission | Reason::Destination => WhyRefused::NotOffered,
            Reason::Missing => WhyRefused::Missing,
            Reason::Unreadable
            | Reason::Changed
            | Reason::Integrity
            | Reason::Limit
            | Reason::Unexpected
            | Reason::Other => WhyRefused::BadRequest,
            Reason::Busy | Reason::Stopping | Reason::TimedOut | Reason::NoUdpPath => {
                WhyRefused::Busy
            }
            Reason::Version => WhyRefused::Version,
        }
    }
}

/// What a client with a proved key asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its key.
    pub key: Fingerprint,
    /// The comment on that key's line in the list, escaped for display.
    pub name: Option<String>,
    /// `get`, `put`, `fetch`, `list`, `tree` or `stream`.
    pub verb: &'static str,
    /// The path asked for, escaped for display.
    pub path: String,
}

/// A session as it is known from its beginning.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Its number.
    pub id: SessionId,
    /// Whence the client came.
    pub client: SocketAddr,
    /// Whether its key is on the list.
    pub whose: Whose,
    /// What it is for.
    pub request: Request,
    /// The name of the export that it uses, which is the first component of the path; `None` if the
    /// server has one export alone, and for the list of several.
    pub export: Option<Arc<str>>,
    /// The client's groups that the configuration had when the session began.
    pub groups: Vec<Arc<str>>,
}

/// What a session moved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    /// Bytes of content. Of a `put` those that came and were verified. Of a `get` those that the
    /// client proved to have received; at its proper end those that it says it has, as far as so
    /// much was sent to it.
    pub content_bytes: u64,
    /// IP bytes of data packets that were sent or received.
    pub wire_bytes: u64,
    /// IP bytes of data packets that were sent and did not arrive, or that came twice; an estimate
    /// from the part of the packets that was lost.
    pub wasted_bytes: u64,
    /// The part that was lost of the data packets whose fate is known, from 0 to 1.
    pub loss_ratio: f64,
    /// Files that got their names here, of a `put`; of a `get` those that the client says it wrote.
    pub files: u64,
    /// Steps of a `tree` that were carried out.
    pub changes: u64,
    /// Time from the session's beginning to its end.
    pub span: Span,
}

/// A step by which a client changed the exported tree, or tried to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `make_directory`, `remove`, `move`, `link`, `hard_link`, `keep`, `punch_holes`,
    /// `attributes` or `write`.
    pub what: &'static str,
    /// The path beneath the tree, escaped for display.
    pub path: String,
    /// The other path, where there is one: the new name, where a link leads, the name that a hard
    /// link adds to, the name of an old version in the place for those. Escaped for display.
    pub to: Option<String>,
    /// Why it was not carried out.
    pub failure: Option<String>,
}

/// Whether a server tells of each change of its tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changes {
    /// It does not.
    #[default]
    Untold,
    /// It does, and a client waits with its next changes until these are taken, 5 s at most.
    Told,
}

/// Room among the events for one page of changes.
#[derive(Clone, Debug)]
pub struct Room {
    /// Given back when the last copy of the event is dropped.
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Room {
    pub(super) fn new(permit: OwnedSemaphorePermit) -> Room {
        Room { _permit: Arc::new(permit) }
    }
}

/// Something that happened at a server.
#[derive(Clone, Debug)]
pub enum ServerEvent {
    /// Too many connections; this one made room before it had proved a key. Told at most once a
    /// minute of an address of IPv4 or a /64 prefix of IPv6.
    TurnedAway {
        /// Whence it came.
        client: SocketAddr,
        /// How many were turned away before it and not told: from there, and from neighbourhoods
        /// that were forgotten since, of which 1,024 are told apart.
        more: u64,
    },
    /// The list of keys was read again, at the operator's request.
    KeysRead {
        /// Lines with a key.
        keys: usize,
    },
    /// The list of keys cannot be used: no new client is admitted, and sessions of listed clients
    /// end five minutes later. Told once, and again when the reason changes or at the operator's
    /// request.
    KeysUnreadable {
        /// Why not.
        failure: Failure,
    },
    /// The list of keys can be used again.
    KeysUsable {
        /// Lines with a key.
        keys: usize,
    },
    /// Events that were dropped because they were not taken in time.
    Missed {
        /// How many. Of [`ServerEvent::Changed`] each step counts.
        count: u64,
    },
    /// A connection that did not become a session.
    Refused {
        /// Whence it came.
        client: SocketAddr,
        /// Whether its key is on the list. One that proved none is a stranger.
        whose: Whose,
        /// The kind of reason.
        reason: WhyRefused,
        /// What it asked for, once it had proved a key.
        request: Option<Request>,
        /// Why not, in words.
        failure: Failure,
    },
    /// A session begins.
    Started {
        /// The session.
        visit: Arc<Visit>,
    },
    /// A session changed the tree. Told before its end, and only if the server was asked to
    /// ([`Changes::Told`]).
    Changed {
        /// The session.
        visit: Arc<Visit>,
        /// The steps, in their order.
        changes: Vec<Change>,
        /// Given back when this event is dropped.
        room: Room,
    },
    /// A session has ended.
    Ended {
        /// The session.
        visit: Arc<Visit>,
        /// What it moved.
        moved: Moved,
        /// What it wrote, or was to write.
        objects: Objects,
        /// Why, if not because all was done.
        failure: Option<Failure>,
    },
}

impl ServerEvent {
    /// How many things it tells of: each step of a change is one.
    pub(super) fn records(&self) -> u64 {
        match self {
            ServerEvent::Changed { changes, .. } => changes.len() as u64,
            ServerEvent::TurnedAway { .. }
            | ServerEvent::KeysRead { .. }
            | ServerEvent::KeysUnreadable { .. }
            | ServerEvent::KeysUsable { .. }
            | ServerEvent::Missed { .. }
            | ServerEvent::Refused { .. }
            | ServerEvent::Started { .. }
            | ServerEvent::Ended { .. } => 1,
        }
    }
}
