//! An idealised Vlink: somebody types a cap in for a node, and its sessions get equal slices.
//!
//! Nothing is measured and nothing moves: a slice that its session does not use is lost, and a cap
//! that does not fit stays wrong. Better than any real one in that its sessions are counted at
//! once and exactly.

use alloc::collections::BTreeSet;

use gtp_alloc::{Bytes, Rate, Time};

use crate::advertised::SESSIONS_MAX;
use crate::{Admission, Note, Packet, Router};

/// The controller at one side of a host.
#[derive(Clone, Debug)]
pub struct Slice {
    cap: Rate,
    sessions: BTreeSet<u32>,
}

impl Slice {
    /// A node whose sessions share `cap`.
    #[must_use]
    pub fn new(cap: Rate) -> Slice {
        Slice { cap, sessions: BTreeSet::new() }
    }

    /// What each session is told; the whole cap before there is one.
    #[must_use]
    pub fn rate(&self) -> Rate {
        Rate::from_bps(self.cap.as_bps() / self.sessions.len().max(1) as u64)
    }

    /// A session has ended.
    pub fn forget(&mut self, session: u32) {
        self.sessions.remove(&session);
    }
}

impl Router for Slice {
    /// The cap is typed in: what the link can carry changes nothing.
    fn set_capacity(&mut self, _now: Time, _capacity: Rate) {}

    fn handle_arrival(&mut self, _now: Time, _queued: Bytes, packet: &mut Packet) -> Admission {
        if let Note::Advertised(cell) = &mut packet.note {
            if self.sessions.len() < SESSIONS_MAX {
                self.sessions.insert(cell.session);
            }
            cell.rate = cell.rate.min(self.rate());
        }
        Admission::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;
    use crate::advertised::Cell;

    #[test]
    fn a_slice_is_the_same_whether_its_neighbours_use_theirs_or_not() {
        let mut slice = Slice::new(Rate::from_mbps(900));
        for session in [4, 5, 6, 4] {
            let note = Note::Advertised(Cell {
                session,
                wanted: Rate::from_mbps(1),
                rate: Rate::UNLIMITED,
            });
            let mut packet = Packet { size: Bytes(1_000), body: Body::Empty, note };
            slice.handle_arrival(Time::ZERO, Bytes::ZERO, &mut packet);
        }
        assert_eq!(slice.rate(), Rate::from_mbps(300));
        slice.forget(5);
        assert_eq!(slice.rate(), Rate::from_mbps(450));
    }
}
