//! Limits on connections to the daemon's socket, user by user.
//!
//! No user can keep others out. Each user may have a bounded number of connections that have not
//! said what they want; the oldest is closed for the next one. Processes are accepted at a bounded
//! rate. One descriptor is kept in reserve, so that a connection can be refused in words when there
//! is no other. What is said over a connection is unknown here.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;

use gtp_alloc::{Bucket, Time};
use gtp_share::{Answer, Listener};

use crate::hub::ClientId;
use crate::refusal::Refusal;

/// Most connections of one user that have not attached: few people look at lists at a time.
pub(crate) const ASKING_OF_ONE: usize = 32;
/// Processes of one user that are accepted at once, and in a second: as many as a user may have
/// here, and as many as start in a second on a busy machine. Making the pages of one process takes
/// a tenth of a millisecond.
const AT_ONCE: u32 = 256;
const A_SECOND: u32 = 100;
/// Changes of one user at once, and in a second: more than people and scripts
/// make. Each has all weights worked out twice, which takes milliseconds when the daemon is full.
const SETS_AT_ONCE: u32 = 16;
const SETS_A_SECOND: u32 = 10;
/// Connections that are refused in one turn for want of descriptors: as many as can wait, so that
/// every one gets an answer.
const TURNED_AWAY: usize = 4_096;

/// All users' comers.
#[derive(Debug, Default)]
pub(crate) struct Comers {
    users: BTreeMap<u32, Comer>,
}

/// One user's.
#[derive(Debug)]
struct Comer {
    /// Connections that have not attached, the oldest first.
    asking: VecDeque<ClientId>,
    attaches: Bucket,
    sets: Bucket,
}

impl Comers {
    /// Notes a new connection; returns the one that has to go for it, if there are too many.
    pub fn came(&mut self, uid: u32, id: ClientId) -> Option<ClientId> {
        let user = self.user(uid);
        user.asking.push_back(id);
        if user.asking.len() > ASKING_OF_ONE { user.asking.front().copied() } else { None }
    }

    /// Whether a connection has neither attached nor gone.
    pub fn is_asking(&self, uid: u32, id: ClientId) -> bool {
        let user = self.users.get(&uid);
        user.is_some_and(|user| user.asking.len() > ASKING_OF_ONE && user.asking.contains(&id))
    }

    /// Notes that a connection has attached or gone.
    pub fn left(&mut self, uid: u32, id: ClientId) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.asking.retain(|asking| *asking != id);
        }
    }

    /// Whether one more process of this user is accepted now.
    pub fn may_attach(&mut self, now: Time, uid: u32) -> bool {
        self.user(uid).attaches.take(now)
    }

    /// Whether this user may change one more session now.
    pub fn may_set(&mut self, now: Time, uid: u32) -> bool {
        self.user(uid).sets.take(now)
    }

    fn user(&mut self, uid: u32) -> &mut Comer {
        let new = || Comer {
            asking: VecDeque::new(),
            attaches: Bucket::new(A_SECOND, AT_ONCE),
            sets: Bucket::new(SETS_A_SECOND, SETS_AT_ONCE),
        };
        self.users.entry(uid).or_insert_with(new)
    }
}

/// A descriptor in reserve, to refuse connections when there is no other.
#[derive(Debug)]
pub(crate) struct Spare {
    kept: Option<File>,
    /// Whether the shortage of descriptors has been reported.
    told: bool,
}

impl Spare {
    /// Raises the limit of descriptors to the maximum and reserves one.
    pub fn new() -> Spare {
        gtp_sys::descriptors::raise_limit();
        Spare { kept: reserve(), told: false }
    }

    /// Tells some of the waiting connections that there is no room, and returns how many; the
    /// listener failed by `error`.
    pub fn turn_away(&mut self, listener: &Listener, error: &io::Error) -> u64 {
        if !self.told {
            tracing::warn!("no process can be accepted: {error}; all are told to wait");
            self.told = true;
        }
        let why = format!("{}: {error}", Refusal::Descriptors.words());
        let answer = Answer::Busy { why };
        let answer = serde_json::to_vec(&answer).unwrap_or_default();
        let mut count = 0;
        for _ in 0..TURNED_AWAY {
            self.kept = None;
            let Ok(Some(connection)) = listener.accept() else { break };
            // A peer that misses the answer sees the end of the connection.
            let _ = connection.send(&answer, &[]);
            count += 1;
        }
        self.kept = reserve();
        count
    }
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    use gtp_alloc::Span;

    use super::*;

    #[test]
    fn changes_of_one_user_come_at_a_bounded_rate_and_hinder_no_other_user() {
        let mut comers = Comers::default();
        let start = Time::ZERO + Span::from_secs(1);
        let mut made = |now, uid| (0..1_000).filter(|_| comers.may_set(now, uid)).count();
        assert_eq!(made(start, 7), 16);
        assert_eq!(made(start, 8), 16);
        assert_eq!(made(start + Span::from_secs(1), 7), 10);
    }
}
