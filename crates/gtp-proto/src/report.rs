//! What a session tells its host's agent, and what the agent answers.
//!
//! These two records are all that passes between them, in one process, between processes and in the
//! simulator. They hold rates and numbers, and nothing that names a peer or a packet.

use gtp_alloc::led::Counts;
use gtp_alloc::{Bytes, Rate, Span};

use crate::limits::{INTERVAL_MAX, STEP_LEAST, STEP_MOST};

/// A session's name within one host and direction.
pub type FlowId = u32;

/// The control law that a session's two ends run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Offers and committed grants: settles exactly, never overloads a sink.
    Grant,
    /// The thesis's end-node law (its Algorithms 2 and 3).
    EndNode {
        /// Step towards the target rate, in (0, 1).
        alpha: f64,
        /// Smallest step, as a fraction of the largest, in (0, 1).
        beta: f64,
    },
    /// The source decides alone, by a law that its host has given to its session
    /// ([`SourceSession::deciding_by`](crate::SourceSession::deciding_by)).
    SourceAlone,
    /// The sink's host decides alone, by a law that its agent has
    /// ([`Agent::deciding_by`](crate::Agent::deciding_by)).
    SinkAlone,
    /// The sink of the session decides alone, by a law that its host has given to it
    /// ([`SinkSession::deciding_by`](crate::SinkSession::deciding_by)).
    SessionAlone,
}

impl Law {
    /// The law as a node runs it that heard of it from a peer: steps within
    /// [`STEP_LEAST`]`..=`[`STEP_MOST`], and the least where the peer's is not a number.
    pub fn believed(self) -> Law {
        // What is no number counts as the least.
        let within = |s: f64| if s >= STEP_LEAST { s.min(STEP_MOST) } else { STEP_LEAST };
        match self {
            Law::Grant => Law::Grant,
            Law::EndNode { alpha, beta } => {
                Law::EndNode { alpha: within(alpha), beta: within(beta) }
            }
            Law::SourceAlone => Law::SourceAlone,
            Law::SinkAlone => Law::SinkAlone,
            Law::SessionAlone => Law::SessionAlone,
        }
    }

    /// Whether one end decides alone: then neither offers nor what the path is believed to carry
    /// limit the session.
    pub fn is_alone(self) -> bool {
        match self {
            Law::Grant | Law::EndNode { .. } => false,
            Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => true,
        }
    }
}

/// Where a session is in its life, for the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It moves data, or wants to.
    Open,
    /// It is ending: it wants nothing more, but what it was granted may still be under way.
    Closing,
}

/// For whom a session runs at a host that serves, and what that one has there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Owner {
    /// Sessions with the same number share; zero for the host's own sessions, which share nothing.
    pub number: u64,
    /// The most that all its sessions may have together in this direction.
    pub most: Rate,
    /// What multiplies the weight that the owner has among others.
    pub weight: f32,
    /// Its class at the host's agents ([`crate::classes`]); zero if it has none.
    pub class: u32,
}

impl Owner {
    /// That of the host's own sessions.
    pub const NOBODY: Owner = Owner { number: 0, most: Rate::UNLIMITED, weight: 1.0, class: 0 };
}

/// What a session tells the agent of its own host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// This end's factor of the session's weight, positive. The weight is the product of both
    /// ends' factors, and so the same at both.
    pub weight: f64,
    /// The other end's factor, as far as it is heard and believed.
    pub peer_weight: f64,
    /// The control law of this session.
    pub law: Law,
    /// Life phase.
    pub phase: Phase,
    /// What the other end says this session could get there.
    pub peer_offer: Rate,
    /// What this session can use, given its demand and everything else that limits it here.
    pub demand: Rate,
    /// What of the demand is more than room to grow; all of it where this is not less. Sessions of
    /// one party hold little room together while others want it ([`crate::room`]).
    pub firm: Rate,
    /// On whose behalf the session runs, for sharing room; zero for the host's own user, whose
    /// sessions share none. The host fills it in.
    pub party: u64,
    /// For whom the session runs, for sharing by client. The host fills it in.
    pub owner: Owner,
    /// Average sending rate over the last control interval (at a sink: received and lost).
    pub measured: Rate,
    /// At a sink: the newest grant number that its source has been heard to obey.
    pub echoed: u32,
    /// Smoothed round-trip time; zero while unknown.
    pub rtt: Span,
    /// At a sink: data packets that came, and packets that were lost, since the beginning.
    pub counts: Counts,
    /// Bytes on the wire of a packet with a whole unit.
    pub packet: Bytes,
}

/// What an agent tells one session of its host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// Number of this grant at a sink (counts up from 1); unused at a source.
    pub number: u32,
    /// What the session may send as far as this node is concerned.
    pub rate: Rate,
    /// What the session could have here if nothing else limited it; goes to the other end.
    pub offer: Rate,
    /// This end's factor of the session's weight; goes to the other end.
    pub weight: f64,
    /// This node's control interval. Where its user has fixed it, it may be longer than sessions
    /// may be silent: see [`Grant::pause`].
    pub interval: Span,
}

impl Grant {
    /// How often a session speaks, looks for losses and is looked after: once an interval, and in
    /// longer ones as often as in the longest that nobody has fixed. A lease bears no more.
    pub fn pause(&self) -> Span {
        self.interval.min(INTERVAL_MAX)
    }

    /// Over how long a session measures its rate. By the end-node law a node decides by means over
    /// whole intervals, however long they are; by the other laws it decides when it hears news.
    pub fn measures(&self, law: Law) -> Span {
        match law {
            Law::EndNode { .. } => self.interval,
            Law::Grant | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => self.pause(),
        }
    }
}

/// What keeps a session from sending faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// The source host's capacity, shared.
    Source,
    /// The sink host's capacity, shared.
    Sink,
    /// The application gives, or takes, no more.
    Demand,
    /// The network between them.
    Path,
    /// Storage at the receiving end.
    Disk,
    /// A router's link between them, shared ([`crate::router`]).
    Router,
}

/// Whether a rate is as good as at its user's limit. Grants are spread over intervals, so that a
/// rate may stand a little below what it is bound by.
pub(crate) fn reaches(rate: Rate, limit: Rate) -> bool {
    !limit.is_unlimited() && rate >= limit.scale(AS_GOOD_AS)
}

/// See [`reaches`]: 2 %.
const AS_GOOD_AS: f64 = 0.98;

impl LimitedBy {
    /// From its place in the list above. A router's name is not said by a byte, which older peers
    /// would refuse, but in a field of its own.
    pub(crate) const fn from_byte(byte: u8) -> Option<LimitedBy> {
        Some(match byte {
            0 => LimitedBy::Source,
            1 => LimitedBy::Sink,
            2 => LimitedBy::Demand,
            3 => LimitedBy::Path,
            4 => LimitedBy::Disk,
            5..=255 => return None,
        })
    }

    /// The byte for it in a status. A router's link is said as the host before it.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            LimitedBy::Source | LimitedBy::Router => 0,
            LimitedBy::Sink => 1,
            LimitedBy::Demand => 2,
            LimitedBy::Path => 3,
            LimitedBy::Disk => 4,
        }
    }

    /// The word for it in machine output.
    pub const fn as_str(self) -> &'static str {
        match self {
            LimitedBy::Source => "source",
            LimitedBy::Sink => "sink",
            LimitedBy::Demand => "demand",
            LimitedBy::Path => "path",
            LimitedBy::Disk => "disk",
            LimitedBy::Router => "router",
        }
    }
}
