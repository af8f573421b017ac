//! How a path stands, for people.
//!
//! What is done about it, what it carries, for how many sessions, and whose queue it has.
//! A rival's queue shows by a state, not by a delay. Nothing here decides anything.

use core::num::NonZeroU8;

use gtp_alloc::Rate;

use super::{PathBound, State};
use crate::ecn::EcnStanding;

/// Whose the queue is that the path was last seen to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// There was none of late.
    None,
    /// It drains when less is sent, or is not asked about yet.
    Own,
    /// It stays when less is sent.
    Another,
}

/// What is done about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No end of it was seen: what lies above the rate that is proven is explored.
    Start,
    /// The rate climbs until a queue shows, and steps back.
    Cruise,
    /// Less is sent to see whose queue it is.
    Ask,
    /// As much is sent as one TCP would send beside others that keep the queue full.
    Compete,
    /// Less is sent to see whether losses follow the rate.
    Probe,
    /// Most was lost: next to nothing is sent.
    Guard,
    /// Others use the path, and next to nothing is sent until they leave it.
    Yield,
    /// It does not bound the session: both ends said so.
    Unbounded,
}

/// How a path stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The number of its group, from 1, among those of the process, or of one engine of a server:
    /// sessions with one number share the path. It may be another group's once the last of them
    /// has ended. Zero if the session is in no group.
    pub group: u16,
    /// How many sessions share it.
    pub sessions: u32,
    /// What is done about it.
    pub mode: Mode,
    /// What it is believed to carry for all of them; unlimited while no bottleneck was seen.
    pub carries: Rate,
    /// Whose queue it is.
    pub queue: Queue,
    /// The TCP flows that the session stands for where it competes.
    pub flows: NonZeroU8,
    /// Whether the session uses ECN.
    pub ecn: EcnStanding,
}

impl Queue {
    /// All of them.
    pub const ALL: [Queue; 3] = [Queue::None, Queue::Own, Queue::Another];

    /// The word for it in machine output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Queue::None => "none",
            Queue::Own => "own",
            Queue::Another => "another's",
        }
    }
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 8] = [
        Mode::Start,
        Mode::Cruise,
        Mode::Ask,
        Mode::Compete,
        Mode::Probe,
        Mode::Guard,
        Mode::Yield,
        Mode::Unbounded,
    ];

    /// The word for it in machine output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::Start => "start",
            Mode::Cruise => "cruise",
            Mode::Ask => "ask",
            Mode::Compete => "compete",
            Mode::Probe => "probe",
            Mode::Guard => "guard",
            Mode::Yield => "yield",
            Mode::Unbounded => "unbounded",
        }
    }
}

impl PathBound {
    /// Whether less is sent for a moment to learn something, so that the bound says nothing of what
    /// will be sent a round trip from now.
    pub(super) fn is_testing(&self) -> bool {
        match self.state {
            State::Ask(_) | State::Probe(_) => true,
            State::Start(_) | State::Cruise(_) | State::Compete(_) => false,
            State::Held(_) | State::Yield(_) => false,
        }
    }

    /// How the path stands, for one session.
    pub fn standing(&self) -> Standing {
        let (mode, queue) = match self.state {
            State::Start(_) => (Mode::Start, Queue::None),
            State::Cruise(cruise) if cruise.cuts > 0 => (Mode::Cruise, Queue::Own),
            State::Cruise(_) => (Mode::Cruise, Queue::None),
            State::Ask(_) => (Mode::Ask, Queue::Own),
            State::Compete(_) => (Mode::Compete, Queue::Another),
            State::Probe(_) => (Mode::Probe, Queue::None),
            State::Held(_) => (Mode::Guard, Queue::None),
            State::Yield(yields) if yields.rival => (Mode::Yield, Queue::Another),
            State::Yield(_) => (Mode::Cruise, Queue::None),
        };
        let (carries, flows, ecn) = (self.bound, NonZeroU8::MIN, EcnStanding::OFF);
        Standing { group: 0, sessions: 1, mode, carries, queue, flows, ecn }
    }
}
