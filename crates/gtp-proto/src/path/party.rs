//! One session of a path group, as its group knows it.
//!
//! It keeps what the session's receipts said until the group sums up, and counts its packets from
//! when it came. This module must not know the other sessions.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::member::{Facts, PathShare, Piece};

/// One session of a group.
#[derive(Debug)]
pub(super) struct Party {
    pub facts: Facts,
    /// What was said since the last sum.
    pub whole: Option<Piece>,
    pub partial: Option<Piece>,
    /// Its packet numbers count from this one, and the first that nothing was said of.
    pub begun_pn: u64,
    pub heard_pn: u64,
    /// Until when it counts as one that sends.
    pub active_until: Time,
    pub present: bool,
    pub share: Option<PathShare>,
}

/// A session counts as one that sends for so long after it last did, or for as long as so many
/// bytes take at its share.
const ACTIVE: Span = Span::from_millis(250);
const PACKETS: Bytes = Bytes(4 * 1_500);
impl Party {
    pub fn new(facts: Facts) -> Party {
        let pn = facts.given.next_pn;
        Party {
            facts,
            whole: None,
            partial: None,
            begun_pn: pn,
            heard_pn: pn,
            active_until: Time::ZERO,
            present: true,
            share: None,
        }
    }

    /// Packets sent since it came.
    pub fn sent(&self) -> u64 {
        self.facts.given.next_pn.saturating_sub(self.begun_pn)
    }

    /// Packets that something was said of since.
    pub fn heard(&self) -> u64 {
        self.heard_pn.saturating_sub(self.begun_pn)
    }

    /// Whether it sends, or did a moment ago.
    pub fn is_active(&self, now: Time) -> bool {
        now < self.active_until
    }

    /// Whether something more will be said soon of what it sends.
    pub fn is_awaited(&self, now: Time) -> bool {
        self.is_active(now) && self.whole.is_none() && self.heard_pn < self.facts.given.next_pn
    }

    /// Takes in what its receipts said. The first after a pause also tells of the pause.
    pub fn hear(&mut self, now: Time, [whole, partial]: [Option<Piece>; 2]) {
        let data = |piece: &Piece| piece.sample.sent > Bytes::ZERO;
        let speaks = whole.as_ref().or(partial.as_ref()).is_some_and(data);
        for (kept, piece) in [(&mut self.whole, whole), (&mut self.partial, partial)] {
            let Some(piece) = piece else { continue };
            self.heard_pn = self.heard_pn.max(piece.sample.end_pn);
            *kept = (now < self.active_until).then(|| Piece::joined(*kept, piece));
        }
        if speaks {
            let sends = self.share.map_or(Rate::UNLIMITED, |share| share.sends);
            self.active_until = now + ACTIVE.max(PACKETS / sends);
        }
    }
}
