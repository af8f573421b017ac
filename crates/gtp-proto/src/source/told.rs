//! The newest receipts, and the time in which the packets of each arrived.
//!
//! A receipt names the time at which its last packet arrived, so it takes two adjacent receipts to
//! know how long the packets of the second one took. Networks lose and reorder feedback, and a sink
//! often sends two within a millisecond. The few newest receipts are therefore kept in the order of
//! their packet numbers, and a receipt that closes a gap also gives the one after it its time. Over
//! a gap there is only a lower bound: whatever the gap hides counts as lost. This module must not
//! know proofs or rates.

use alloc::collections::VecDeque;
use core::ops::Range;

use gtp_alloc::{Bytes, Span};

use crate::meter::wire_gap;

/// What one receipt proves, and when its packets arrived.
#[derive(Clone, Debug)]
pub(super) struct Word {
    /// The packet numbers that the receipt covers.
    pub span: Range<u64>,
    /// IP bytes of data that arrived with these packets.
    pub arrived: Bytes,
    /// How many of these packets are missing.
    pub lost: u64,
    /// When the last packet arrived, by the sink's clock in microseconds, if any did.
    pub arrived_at: Option<u32>,
    /// The path's least delay above its usual one while they arrived.
    pub delay: Span,
    /// The path's greatest delay above its usual one while they arrived.
    pub peak: Span,
}

/// The receipt from which the time of another one is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The receipt directly before it.
    LastReceipt,
    /// A receipt before a gap, so that not everything that arrived meanwhile is counted.
    EarlierReceipt,
}

/// Packets that arrived in a known time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    /// Their numbers, including those of a gap.
    pub span: Range<u64>,
    /// IP bytes of data that are proven to have arrived.
    pub arrived: Bytes,
    /// How many of these packets are missing; those of a gap do not count.
    pub lost: u64,
    /// The time in which these bytes arrived.
    pub arrived_in: Span,
    /// The least delay, as in [`Word::delay`].
    pub delay: Span,
    /// The greatest delay, as in [`Word::peak`].
    pub peak: Span,
    /// From which receipt the time is counted.
    pub since: Since,
}

/// The newest receipts, in the order of their packet numbers.
#[derive(Debug, Default)]
pub(super) struct Told {
    words: VecDeque<Word>,
}

/// Receipts that are kept. Receipts further apart do not become adjacent soon.
const KEPT: usize = 8;

impl Told {
    /// Takes in a receipt whose packet numbers no other receipt covers. Returns the times that
    /// become known: its own, and that of the receipt directly after it, if that came earlier.
    pub fn add(&mut self, word: Word) -> impl Iterator<Item = Timed> + use<> {
        let place = self.words.partition_point(|kept| kept.span.start < word.span.start);
        let before = self.words.range(..place).rev().find(|kept| kept.arrived_at.is_some());
        let own = before.and_then(|before| timed(before, &word));
        let after = self.words.get(place).filter(|after| after.span.start == word.span.end);
        let after = after.and_then(|after| timed(&word, after));
        self.words.insert(place, word);
        if self.words.len() > KEPT {
            self.words.pop_front();
        }
        own.into_iter().chain(after)
    }
}

/// Returns the time in which the packets of `word` arrived, counted from the receipt `before`.
fn timed(before: &Word, word: &Word) -> Option<Timed> {
    let arrived_in = wire_gap(before.arrived_at?, word.arrived_at?);
    let &Word { arrived, lost, delay, peak, .. } = word;
    let (start, end) = (before.span.end, word.span.end);
    let since = if start == word.span.start { Since::LastReceipt } else { Since::EarlierReceipt };
    Some(Timed { span: start..end, arrived, lost, arrived_in, delay, peak, since })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Returns a receipt of ten packets of 100 bytes, the last of which arrived at a time that
    /// equals its number.
    fn word(tens: u64) -> Word {
        let span = tens * 10..tens * 10 + 10;
        let arrived_at = Some(span.end as u32);
        Word {
            span,
            arrived: Bytes(1_000),
            lost: 0,
            arrived_at,
            delay: Span::ZERO,
            peak: Span::ZERO,
        }
    }

    fn add(told: &mut Told, tens: u64) -> Vec<(Range<u64>, u64, Since)> {
        let timed = told.add(word(tens));
        timed.map(|t| (t.span, t.arrived_in.as_micros(), t.since)).collect()
    }

    #[test]
    fn every_receipt_gets_its_time_in_whatever_order_they_come() {
        let mut told = Told::default();
        assert_eq!(add(&mut told, 0), []);
        assert_eq!(add(&mut told, 1), [(10..20, 10, Since::LastReceipt)]);
        assert_eq!(add(&mut told, 3), [(20..40, 20, Since::EarlierReceipt)]);
        let both = [(20..30, 10, Since::LastReceipt), (30..40, 10, Since::LastReceipt)];
        assert_eq!(add(&mut told, 2), both);
    }

    #[test]
    fn a_receipt_without_a_time_of_arrival_gives_none() {
        let mut told = Told::default();
        add(&mut told, 0);
        let none = told.add(Word { arrived_at: None, arrived: Bytes::ZERO, ..word(1) });
        assert_eq!(none.count(), 0);
        assert_eq!(add(&mut told, 2), [(10..30, 20, Since::EarlierReceipt)]);
    }

    #[test]
    fn no_more_than_a_few_receipts_are_kept() {
        let mut told = Told::default();
        (0..100).for_each(|tens| drop(add(&mut told, tens * 2)));
        assert_eq!(told.words.len(), KEPT);
        assert_eq!(add(&mut told, 1), [], "it is older than all that is kept");
    }
}
