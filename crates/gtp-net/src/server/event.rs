//! What whoever runs a server hears from it.
//!
//! Events are values without handles. What comes from clients in them is escaped, so that they may
//! be printed as they are.

use std::net::SocketAddr;

use crate::flows::Failure;
use crate::identity::Fingerprint;

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
        /// How many.
        count: u64,
    },
    /// A connection that did not become a session.
    Refused {
        /// Whence it came.
        client: SocketAddr,
        /// Why not.
        failure: Failure,
    },
    /// A session begins.
    Started {
        /// Its number.
        id: SessionId,
        /// Whence the client came.
        client: SocketAddr,
        /// Its key.
        key: Fingerprint,
        /// Whether that is on the list.
        whose: Whose,
        /// `get`, `put` or `list`.
        verb: &'static str,
        /// The path asked for, escaped for display.
        path: String,
    },
    /// A session has ended.
    Ended {
        /// Its number.
        id: SessionId,
        /// Whether its client's key is on the list.
        whose: Whose,
        /// IP bytes of data packets that it sent or received.
        wire_bytes: u64,
        /// Why, if not because all was done.
        failure: Option<Failure>,
    },
}
