//! An idealised Vlink: somebody types a cap in for a node, and its sessions get equal slices.
//!
//! Nothing is measured and nothing moves: a slice that its session does not use is lost, and a cap
//! that does not fit stays wrong. Better than any real one in that its sessions are counted at
//! once and exactly; one that has left counts for a second more.

use alloc::collections::BTreeMap;

use gtp_alloc::{Bytes, Rate, Time};

use crate::advertised::{FORGOTTEN, SESSIONS_MAX};
use crate::{Admission, Note, Packet, Router};

/// The controller at one side of a host.
#[derive(Clone, Debug)]
pub struct Slice {
    cap: Rate,
    /// When each was heard of last.
    sessions: BTreeMap<u32, Time>,
}

impl Slice {
    /// A node whose sessions share `cap`.
    #[must_use]
    pub fn new(cap: Rate) -> Slice {
        Slice { cap, sessions: BTreeMap::new() }
    }

    /// What each session is told; the whole cap before there is one.
    #[must_use]
    pub fn rate(&self) -> Rate {
        Rate::from_bps(self.cap.as_bps() / self.sessions.len().max(1) as u64)
    }
}

impl Router for Slice {
    /// The cap is typed in: what the link can carry changes nothing.
    fn set_capacity(&mut self, _now: Time, _capacity: Rate) {}

    fn handle_arrival(&mut self, now: Time, _queued: Bytes, packet: &mut Packet) -> Admission {
        if let Note::Advertised(cell) = &mut packet.note {
            self.sessions.retain(|_, heard| now.since(*heard) < FORGOTTEN);
            if self.sessions.len() < SESSIONS_MAX || self.sessions.contains_key(&cell.session) {
                self.sessions.insert(cell.session, now);
            }
            cell.rate = cell.rate.min(self.rate());
        }
        Admission::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_alloc::Span;

    use crate::Body;
    use crate::advertised::Cell;

    /// The slice after a packet of each of these sessions, which want less.
    fn after(slice: &mut Slice, at_ms: u64, sessions: &[u32]) -> Rate {
        for session in sessions.iter().copied() {
            let (wanted, rate) = (Rate::from_mbps(1), Rate::UNLIMITED);
            let note = Note::Advertised(Cell { session, wanted, rate });
            let mut packet = Packet { size: Bytes(1_000), body: Body::Empty, note };
            slice.handle_arrival(Time::ZERO + Span::from_millis(at_ms), Bytes::ZERO, &mut packet);
        }
        slice.rate()
    }

    #[test]
    fn a_slice_is_the_same_whether_its_neighbours_use_theirs_or_not() {
        let mut slice = Slice::new(Rate::from_mbps(900));
        assert_eq!(after(&mut slice, 0, &[4, 5, 6, 4]), Rate::from_mbps(300));
    }

    #[test]
    fn a_session_that_is_silent_for_a_second_has_no_slice() {
        let mut slice = Slice::new(Rate::from_mbps(900));
        after(&mut slice, 0, &[4, 5, 6]);
        assert_eq!(after(&mut slice, 999, &[4, 6]), Rate::from_mbps(300));
        assert_eq!(after(&mut slice, 1_000, &[4]), Rate::from_mbps(450));
    }
}
