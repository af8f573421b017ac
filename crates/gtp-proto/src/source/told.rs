//! What the newest receipts told: in how much time what they prove arrived.
//!
//! A receipt names the time at which its last packet arrived, so it takes two of them that lie side
//! by side to know how long the packets of the second one took. Networks lose feedback and turn it
//! round, and a sink often speaks twice in a moment. So the few newest receipts are kept in the
//! order of the packets that they are about, and a receipt that closes a gap gives the one after it
//! its time as well. Over a gap there is only a lower bound: all that the gap hides counts as lost.
//! Proofs and rates are not known here.

use alloc::collections::VecDeque;
use core::ops::Range;

use gtp_alloc::{Bytes, Span};

use crate::meter::wire_gap;

/// What one receipt proves.
#[derive(Clone, Debug)]
pub(super) struct Word {
    /// The packet numbers that it is about.
    pub span: Range<u64>,
    /// IP bytes of data among them that arrived.
    pub arrived: Bytes,
    /// When the last of them did, by the sink's clock, if any did.
    pub arrived_at: Option<u32>,
    /// The path's least delay above its usual one meanwhile.
    pub delay: Span,
}

/// Since when time is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// Since the receipt right before.
    LastReceipt,
    /// Since one before a gap: not all that arrived meanwhile is counted.
    EarlierReceipt,
}

/// What arrived in a known time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    /// The packet numbers sent meanwhile, those of a gap included.
    pub span: Range<u64>,
    /// IP bytes of data that are proven to have arrived.
    pub arrived: Bytes,
    /// The time in which they did.
    pub arrived_in: Span,
    /// See [`Word::delay`].
    pub delay: Span,
    /// Whether there is a gap.
    pub since: Since,
}

/// The newest receipts, in the order of their packet numbers.
#[derive(Debug, Default)]
pub(super) struct Told {
    words: VecDeque<Word>,
}

/// Receipts that are kept: what is further apart is not side by side soon.
const KEPT: usize = 8;

impl Told {
    /// Takes in a receipt about numbers that no other was about. Gives the times that are known
    /// now: its own, and that of the receipt right after it if it was here before.
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

/// In what time that of `word` arrived, counted from `before`.
fn timed(before: &Word, word: &Word) -> Option<Timed> {
    let arrived_in = wire_gap(before.arrived_at?, word.arrived_at?);
    let (arrived, delay) = (word.arrived, word.delay);
    let (start, end) = (before.span.end, word.span.end);
    let since = if start == word.span.start { Since::LastReceipt } else { Since::EarlierReceipt };
    Some(Timed { span: start..end, arrived, arrived_in, delay, since })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// A receipt of ten packets each 100 bytes long, the last of which came at their number.
    fn word(tens: u64) -> Word {
        let span = tens * 10..tens * 10 + 10;
        let arrived_at = Some(span.end as u32);
        Word { span, arrived: Bytes(1_000), arrived_at, delay: Span::ZERO }
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
