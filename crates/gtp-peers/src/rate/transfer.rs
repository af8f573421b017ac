//! What is moved and what is still missing: the bookkeeping that rate-based ends share.
//!
//! A [`Transfer`] is a length cut into blocks, one a packet. [`Backlog`] is the sender's side: what
//! was never sent and what must go again, lost blocks first. [`Arrivals`] is the receiver's: which
//! blocks are there. [`Ordinals`] counts losses by the packets' numbers on the wire, which number
//! repeated packets too. None of them knows when anything happens.

use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::Bytes;
use gtp_alloc::led::Counts;
use gtp_ranges::RangeSet;

use crate::Progress;

/// A transfer as both ends know it from set-up, which is not simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    payload: Bytes,
    header: Bytes,
    length: Option<Bytes>,
}

impl Transfer {
    /// A transfer in packets of `payload` bytes (at least one) under `header` bytes of headers;
    /// `None` never ends.
    pub fn new(payload: Bytes, header: Bytes, length: Option<Bytes>) -> Transfer {
        Transfer { payload: Bytes(payload.0.max(1)), header, length }
    }

    /// `length` in packets of 1,500 bytes: 20 of IP, 8 of UDP, 16 of the protocol's own.
    pub fn of(length: Bytes) -> Transfer {
        Transfer { length: Some(length), ..Transfer::ENDLESS }
    }

    /// As [`Transfer::of`], without end.
    pub const ENDLESS: Transfer =
        Transfer { payload: Bytes(1_456), header: Bytes(44), length: None };

    /// Bytes on links of a full packet.
    pub fn packet(&self) -> Bytes {
        self.payload + self.header
    }

    /// Bytes on links of a packet that carries `content` bytes of the protocol's own.
    pub fn control(&self, content: u64) -> Bytes {
        self.header + Bytes(content)
    }

    /// Payload of a full packet.
    pub fn payload(&self) -> Bytes {
        self.payload
    }

    /// How many blocks there are; as many as can be counted if it never ends.
    pub fn blocks(&self) -> u64 {
        self.length.map_or(u64::MAX - 1, |length| length.0.div_ceil(self.payload.0))
    }

    /// Payload of the first `n` blocks.
    pub fn prefix(&self, n: u64) -> Bytes {
        let whole = Bytes(n.saturating_mul(self.payload.0));
        self.length.map_or(whole, |length| whole.min(length))
    }

    /// Payload of a block.
    pub fn block(&self, n: u64) -> Bytes {
        self.prefix(n + 1) - self.prefix(n)
    }

    /// Whether it ends.
    pub fn is_finite(&self) -> bool {
        self.length.is_some()
    }
}

/// What a sender has still to send.
#[derive(Clone, Debug)]
pub struct Backlog {
    blocks: u64,
    fresh: u64,
    again: RangeSet,
}

/// A block to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Its number.
    pub block: u64,
    /// Whether it goes for the first time.
    pub turn: Turn,
}

/// Whether a packet carries its block for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It does.
    First,
    /// It was sent before.
    Again,
}

impl Backlog {
    /// Everything is still to be sent.
    pub fn new(transfer: &Transfer) -> Backlog {
        Backlog { blocks: transfer.blocks(), fresh: 0, again: RangeSet::new() }
    }

    /// The next block, lost ones first, new ones only below `limit`.
    pub fn take(&mut self, limit: u64) -> Option<Pick> {
        if let Some(block) = self.again.first() {
            self.again.remove_one(block);
            return Some(Pick { block, turn: Turn::Again });
        }
        (self.fresh < self.blocks.min(limit)).then(|| {
            self.fresh += 1;
            Pick { block: self.fresh - 1, turn: Turn::First }
        })
    }

    /// Whether [`Backlog::take`] would answer.
    pub fn has_more(&self, limit: u64) -> bool {
        !self.again.is_empty() || self.fresh < self.blocks.min(limit)
    }

    /// Puts blocks on the list of lost ones; what was never sent is not lost.
    pub fn repeat(&mut self, lost: Range<u64>) {
        self.again.insert(lost.start..lost.end.min(self.fresh));
    }

    /// Blocks below this have arrived and need not go again.
    pub fn settle(&mut self, below: u64) {
        self.again.remove(0..below);
    }

    /// The first block that was never sent.
    pub fn fresh(&self) -> u64 {
        self.fresh
    }
}

/// What has arrived at a receiver.
#[derive(Clone, Debug)]
pub struct Arrivals {
    transfer: Transfer,
    have: RangeSet,
    distinct: Bytes,
    prefix: u64,
    top: u64,
}

impl Arrivals {
    /// Nothing has.
    pub fn new(transfer: Transfer) -> Arrivals {
        let (have, distinct) = (RangeSet::new(), Bytes::ZERO);
        Arrivals { transfer, have, distinct, prefix: 0, top: 0 }
    }

    /// Takes a block in; whether it is a new one. A number beyond the transfer's end is not.
    pub fn insert(&mut self, block: u64) -> bool {
        if block >= self.transfer.blocks() || !self.have.insert_one(block) {
            return false;
        }
        self.distinct += self.transfer.block(block);
        self.top = self.top.max(block + 1);
        if block == self.prefix {
            self.prefix = self.have.iter().next().map_or(0, |range| range.end);
        }
        true
    }

    /// Whether a block is there.
    pub fn contains(&self, block: u64) -> bool {
        self.have.contains(block)
    }

    /// The first block that is missing.
    pub fn prefix(&self) -> u64 {
        self.prefix
    }

    /// One more than the highest block seen.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Number of different blocks.
    pub fn blocks(&self) -> u64 {
        self.have.len()
    }

    /// What is missing of `window`, in order.
    pub fn missing(&self, window: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = window.start;
        for range in self.have.within(window.clone()) {
            if at < range.start {
                gaps.push(at..range.start);
            }
            at = range.end;
        }
        if at < window.end {
            gaps.push(at..window.end);
        }
        gaps
    }

    /// Payload that is there without a gap before it.
    pub fn in_order(&self) -> Bytes {
        self.transfer.prefix(self.prefix)
    }

    /// Payload that is there, in whatever order: what a protocol that writes into its place has
    /// delivered.
    pub fn in_place(&self) -> Bytes {
        self.distinct
    }

    /// How far the transfer is at a receiver that knows nothing else.
    pub fn progress(&self) -> Progress {
        Progress { delivered: self.in_place(), done: self.is_complete(), ..Progress::default() }
    }

    /// Whether all of a transfer that ends is there.
    pub fn is_complete(&self) -> bool {
        self.transfer.is_finite() && self.prefix == self.transfer.blocks()
    }
}

/// Counts packets received and lost by their numbers on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ordinals {
    expected: u64,
    /// Lost are numbers that were passed over; one that comes late is taken back.
    counts: Counts,
}

impl Ordinals {
    /// What was counted, in all.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Counts a packet.
    pub fn note(&mut self, ordinal: u64) {
        self.counts.received += 1;
        if ordinal < self.expected {
            self.counts.lost = self.counts.lost.saturating_sub(1);
            return;
        }
        self.counts.lost += ordinal - self.expected;
        self.expected = ordinal + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_is_what_is_left() {
        let transfer = Transfer::of(Bytes(3_000));
        assert_eq!((transfer.blocks(), transfer.packet()), (3, Bytes(1_500)));
        assert_eq!((transfer.block(0), transfer.block(2)), (Bytes(1_456), Bytes(88)));
        assert_eq!(transfer.prefix(3), Bytes(3_000));
    }

    #[test]
    fn lost_blocks_go_before_new_ones_and_unsent_ones_are_not_lost() {
        let mut backlog = Backlog::new(&Transfer::of(Bytes(14_560)));
        for _ in 0..4 {
            backlog.take(u64::MAX);
        }
        backlog.repeat(1..8);
        backlog.settle(2);
        let order: Vec<u64> =
            core::iter::from_fn(|| backlog.take(6)).map(|pick| pick.block).collect();
        assert_eq!(order, [2, 3, 4, 5]);
        assert!(backlog.has_more(7) && !backlog.has_more(6));
    }

    #[test]
    fn arrivals_know_their_gaps_and_count_each_block_once() {
        let mut arrivals = Arrivals::new(Transfer::of(Bytes(14_560)));
        for block in [0, 1, 4, 4, 9, 99] {
            arrivals.insert(block);
        }
        assert_eq!(arrivals.missing(0..10), [2..4, 5..9]);
        assert_eq!((arrivals.prefix(), arrivals.top(), arrivals.blocks()), (2, 10, 4));
        assert_eq!((arrivals.in_order(), arrivals.in_place()), (Bytes(2_912), Bytes(5_824)));
        for block in 0..10 {
            arrivals.insert(block);
        }
        assert!(arrivals.is_complete());
    }

    #[test]
    fn losses_are_numbers_passed_over() {
        let mut ordinals = Ordinals::default();
        for n in [0, 1, 4, 5] {
            ordinals.note(n);
        }
        let before = ordinals.counts();
        assert_eq!(before, Counts { received: 4, lost: 2 });
        ordinals.note(3);
        ordinals.note(8);
        assert_eq!(ordinals.counts(), Counts { received: 6, lost: 3 });
        assert_eq!(ordinals.counts().since(&before).loss(), 1.0 / 3.0);
    }
}
