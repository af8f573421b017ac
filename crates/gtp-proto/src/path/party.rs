//! One session of a path group, as its group knows it.
//!
//! It keeps what the session's receipts said until the group sums up, and counts its packets from
//! when it came. This module must not know the other sessions.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::Conditions;
use super::member::{Facts, PathShare, Piece};
use super::sum::Rates;

/// One session of a group.
#[derive(Debug)]
pub(super) struct Party {
    pub facts: Facts,
    /// What was said since the last sum.
    pub whole: Option<Piece>,
    /// What is known to have arrived since the last sum, where losses are not known.
    pub partial: Option<Piece>,
    /// Its packets count from this number.
    pub begun_pn: u64,
    /// No receipt has covered this packet or a later one.
    heard_pn: u64,
    /// The next packet to be sent at a time a while ago: of those before it something should have
    /// been said by now.
    unheard: (Time, u64),
    /// Until when it counts as one that sends.
    active_until: Time,
    /// Its rates when it spoke last.
    pub rates: Rates,
    /// Whether it is there in this round.
    pub present: bool,
    /// What it was told last.
    pub share: Option<PathShare>,
}

/// A session counts as one that sends for so long after it was last heard of.
const ACTIVE: Span = Span::from_millis(250);
/// It does for as long as so many bytes take at its share, too.
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
            unheard: (Time::ZERO, pn),
            active_until: Time::ZERO,
            rates: Rates::default(),
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

    /// Counts what was sent as heard of where nothing is said of it for long after it should be.
    fn give_up(&mut self, now: Time) {
        let Conditions { next_pn, rtt, .. } = self.facts.given;
        let (at, pn) = self.unheard;
        if self.is_active(now) {
            self.unheard = (now, next_pn);
        } else if now.since(at) > ACTIVE + rtt * 2 {
            self.heard_pn = self.heard_pn.max(pn);
            self.unheard = (now, next_pn);
        }
    }

    /// Takes in what its receipts said. What one that has fallen silent sent is not waited for.
    pub fn hear(&mut self, now: Time, [whole, partial]: [Option<Piece>; 2]) {
        self.give_up(now);
        let data = |piece: &Piece| piece.sample.sent > Bytes::ZERO;
        let speaks = whole.as_ref().or(partial.as_ref()).is_some_and(data);
        for (kept, piece) in [(&mut self.whole, whole), (&mut self.partial, partial)] {
            let Some(piece) = piece else { continue };
            self.heard_pn = self.heard_pn.max(piece.sample.end_pn);
            self.rates = Rates::of(&piece);
            *kept = Some(Piece::joined(*kept, piece));
        }
        if speaks {
            let sends = self.share.map_or(Rate::UNLIMITED, |share| share.sends);
            self.active_until = now + ACTIVE.max(PACKETS / sends);
        }
    }
}
