//! How a path stands, for people.
//!
//! What is done about it, what it carries, for how many sessions, and whose queue it has.
//! A rival's queue shows by a state, not by a delay. Nothing here decides anything.

use gtp_alloc::Rate;

use super::{PathBound, State};

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

/// How a path stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// How many sessions share it.
    pub sessions: u32,
    /// The word for what is done: `start`, `cruise`, `ask`, `compete`, `probe` or `guard`.
    pub state: &'static str,
    /// What it is believed to carry for all of them; unlimited while no bottleneck was seen.
    pub carries: Rate,
    /// Whose queue it is.
    pub queue: Queue,
}

impl Queue {
    /// The word for it in machine output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Queue::None => "none",
            Queue::Own => "own",
            Queue::Another => "another's",
        }
    }
}

impl PathBound {
    /// Whether less is sent for a moment to learn something, so that the bound says nothing of what
    /// will be sent a round trip from now.
    pub(super) fn is_testing(&self) -> bool {
        match self.state {
            State::Ask(_) | State::Probe(_) => true,
            State::Start(_) | State::Cruise(_) | State::Compete(_) | State::Held(_) => false,
        }
    }

    /// How the path stands, for one session.
    pub fn standing(&self) -> Standing {
        let (state, queue) = match self.state {
            State::Start(_) => ("start", Queue::None),
            State::Cruise(cruise) if cruise.cuts > 0 => ("cruise", Queue::Own),
            State::Cruise(_) => ("cruise", Queue::None),
            State::Ask(_) => ("ask", Queue::Own),
            State::Compete(_) => ("compete", Queue::Another),
            State::Probe(_) => ("probe", Queue::None),
            State::Held(_) => ("guard", Queue::None),
        };
        Standing { sessions: 1, state, carries: self.bound, queue }
    }
}
