//! Blocks that a receiver has asked for and not yet got, with when and how often it asked.
//!
//! A receiver that reports losses as it sees them must notice when what it asked for is lost once
//! more. It keeps ranges, not blocks: what is lost together is asked for together. When an answer
//! is overdue is each protocol's affair.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::Time;

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    ranges: BTreeMap<u64, Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    end: u64,
    at: Time,
    times: u32,
}

impl Wanted {
    /// Nothing was asked for.
    pub fn new() -> Wanted {
        Wanted::default()
    }

    /// Notes that `range`, none of which was asked for before, is asked for now.
    pub fn ask(&mut self, now: Time, range: Range<u64>) {
        if !range.is_empty() {
            self.ranges.insert(range.start, Asked { end: range.end, at: now, times: 1 });
        }
    }

    /// A block has come: it is wanted no more. Whether it was.
    pub fn note_arrival(&mut self, block: u64) -> bool {
        let Some((&start, &asked)) = self.ranges.range(..=block).next_back() else { return false };
        if block >= asked.end {
            return false;
        }
        self.ranges.remove(&start);
        if start < block {
            self.ranges.insert(start, Asked { end: block, ..asked });
        }
        if block + 1 < asked.end {
            self.ranges.insert(block + 1, asked);
        }
        true
    }

    /// What is overdue by `is_overdue(asked at, times asked)`, noted as asked for again now.
    pub fn ask_again(
        &mut self,
        now: Time,
        is_overdue: impl Fn(Time, u32) -> bool,
    ) -> Vec<Range<u64>> {
        let mut overdue = Vec::new();
        for (&start, asked) in &mut self.ranges {
            if is_overdue(asked.at, asked.times) {
                (asked.at, asked.times) = (now, asked.times + 1);
                overdue.push(start..asked.end);
            }
        }
        overdue
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// One more than the last block wanted; zero if there is none.
    pub fn end(&self) -> u64 {
        self.ranges.values().next_back().map_or(0, |asked| asked.end)
    }

    /// The first block wanted.
    pub fn first(&self) -> Option<u64> {
        self.ranges.keys().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_splits_what_was_asked_for_together() {
        let mut wanted = Wanted::new();
        let (early, late) = (Time::from_nanos(1), Time::from_nanos(9));
        wanted.ask(early, 3..8);
        wanted.ask(late, 10..11);
        assert!(wanted.note_arrival(5) && !wanted.note_arrival(5) && !wanted.note_arrival(8));
        assert_eq!(wanted.ask_again(late, |at, _| at < late), [3..5, 6..8]);
        assert!(wanted.ask_again(late, |at, _| at < late).is_empty());
        assert_eq!(wanted.ask_again(late, |_, times| times == 2), [3..5, 6..8]);
        assert_eq!(wanted.first(), Some(3));
    }
}
