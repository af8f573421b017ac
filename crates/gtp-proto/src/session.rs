//! What both ends of a session have in common: how they meet their host.
//!
//! The host drains datagrams and events, and is told why one was dropped. Which end a session is,
//! and what it moves, is not known here.

use gtp_alloc::{Bytes, Span, Time};

use crate::ecn::Codepoint;
use crate::wire::{Header, Kind, Revision, TAG_LEN, WireError};

/// What a session knows of its peer and of the path there before anything is measured.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Session number that datagrams to the peer carry.
    pub peer_session: u32,
    /// Bytes of UDP and IP around a datagram: 28 for IPv4, 48 for IPv6.
    pub ip_overhead: u16,
    /// What the peer understands.
    pub revision: Revision,
}

impl Link {
    /// Bytes on the wire of a datagram whose header and clear body are `len` bytes long.
    pub fn wire_bytes(&self, len: usize) -> Bytes {
        Bytes((len + TAG_LEN) as u64 + u64::from(self.ip_overhead))
    }
}

/// When and how a datagram came.
///
/// What lies between the two times is this host's doing: the program was busy, or had to wait for a
/// processor. It says nothing of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it reached this host, as far as that is known; not after `read`.
    pub at: Time,
    /// When it was read: the time now.
    pub read: Time,
    /// The ECN bits with which it came.
    pub ecn: Codepoint,
}

impl From<Time> for Arrival {
    /// It was read when it came, without ECN bits.
    fn from(now: Time) -> Arrival {
        Arrival { at: now, read: now, ecn: Codepoint::NotEct }
    }
}

/// One datagram to send. The head (header and clear body, but for a unit's bytes) is in the buffer
/// that the host passed in; the host appends the unit, seals everything after the header and
/// appends the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Packet number, for the seal.
    pub pn: u64,
    /// The unit whose bytes follow the head, if this is a data packet.
    pub unit: Option<Unit>,
    /// The ECN bits with which it is to leave.
    pub ecn: Codepoint,
}

/// A unit and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Number of the unit in the row.
    pub number: u64,
    /// Its bytes.
    pub len: u16,
}

/// Why a session wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A hello is due, or its time is over.
    Handshake,
    /// The pacer lets the next datagram go.
    Pacing,
    /// A control interval ends.
    Interval,
    /// Silence lasted too long.
    Silence,
}

/// Why a datagram was dropped. None of these is an error of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Not in our format.
    Malformed(WireError),
    /// Its packet number was seen before, or is too old to tell.
    Replayed,
    /// Its packet number is further ahead than any sender can be.
    TooFarAhead,
    /// A kind that this end of a session does not take.
    Misdirected,
    /// Older than what was already taken in.
    Stale,
    /// Ahead of something that must come before it.
    Early,
    /// A unit that is not wanted, or not any more.
    NotWanted,
    /// It breaks a rule that an honest peer keeps; the session ends.
    Violation(&'static str),
}

impl From<WireError> for Discard {
    fn from(error: WireError) -> Discard {
        Discard::Malformed(error)
    }
}

/// What a session tells its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The path carries datagrams both ways; units may be this long.
    PathOpen {
        /// Longest unit payload that got through.
        unit_payload: u16,
    },
    /// An eager sink may ask for units of this length, though nothing shows yet that they pass. If
    /// the path opens for shorter ones, nothing is asked for any more, and
    /// [`SinkSession::begin`](crate::SinkSession::begin) begins anew.
    PathPresumed {
        /// Longest unit payload that it would use.
        unit_payload: u16,
    },
    /// No answer on UDP in time.
    NoPath,
    /// A source learnt how long units are (from its first request).
    UnitPayload(u16),
    /// The peer closed the session.
    PeerClosed,
    /// Nothing was heard for so long that the session is over.
    TimedOut,
    /// A sink has used up its request or grant numbers; the session is over, another can go on.
    Spent,
    /// The peer broke a rule; the session is over.
    Violated(&'static str),
}

/// Numbers outgoing datagrams and writes their headers.
#[derive(Debug)]
pub(crate) struct Numbering {
    pub link: Link,
    next_pn: u64,
}

impl Numbering {
    pub fn new(link: Link) -> Numbering {
        Numbering { link, next_pn: 0 }
    }

    /// The number that the next datagram will carry.
    pub fn upcoming(&self) -> u64 {
        self.next_pn
    }

    /// Writes the next header and returns its packet number.
    pub fn begin(&mut self, kind: Kind, head: &mut alloc::vec::Vec<u8>) -> u64 {
        head.clear();
        let header = self.next(kind);
        header.encode(head);
        header.pn
    }

    /// The next header.
    #[inline]
    pub fn next(&mut self, kind: Kind) -> Header {
        let pn = self.next_pn;
        self.next_pn += 1;
        Header { kind, session: self.link.peer_session, pn }
    }
}

/// The earlier of two optional wake-ups.
pub(crate) fn earliest(a: Option<(Time, Wake)>, b: Option<(Time, Wake)>) -> Option<(Time, Wake)> {
    match (a, b) {
        (Some(x), Some(y)) => Some(if y.0 < x.0 { y } else { x }),
        (x, None) => x,
        (None, y) => y,
    }
}

/// Time from a wire timestamp of our own clock to `now`, less the peer's hold.
pub(crate) fn wire_span(now: Time, sent_at: u32, hold: u32) -> Span {
    let micros = now.as_wire_micros().wrapping_sub(sent_at).wrapping_sub(hold);
    // A hold longer than the whole trip, or a forged one, wraps round.
    if micros > u32::MAX / 2 { Span::ZERO } else { Span::from_micros(micros.into()) }
}
