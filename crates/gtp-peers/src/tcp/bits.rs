//! A set of segment numbers in a sliding range, one bit each.
//!
//! Words sit in a ring of a power of two; numbers below the range's start are not members. The
//! ring grows with the range. Scans go by words, so that a window of 80,000 segments is 1,250
//! steps at most.

use alloc::vec::Vec;
use core::ops::Range;

/// A set of numbers that are not below a start that only rises.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    ring: Vec<u64>,
    start: u64,
}

impl Bits {
    /// The empty set.
    pub(crate) fn new() -> Bits {
        Bits { ring: alloc::vec![0; 4], start: 0 }
    }

    /// Whether `n` is a member.
    pub(crate) fn has(&self, n: u64) -> bool {
        self.covers(n) && self.word(n / 64) >> (n % 64) & 1 == 1
    }

    /// Makes `n` a member; whether it was none. Numbers below the start stay outside.
    pub(crate) fn insert(&mut self, n: u64) -> bool {
        if n < self.start {
            return false;
        }
        self.grow_to(n);
        let slot = self.slot(n / 64);
        let bit = 1 << (n % 64);
        let new = self.ring[slot] & bit == 0;
        self.ring[slot] |= bit;
        new
    }

    /// Removes `n`; whether it was a member.
    pub(crate) fn remove(&mut self, n: u64) -> bool {
        if !self.has(n) {
            return false;
        }
        let slot = self.slot(n / 64);
        self.ring[slot] &= !(1 << (n % 64));
        true
    }

    /// Removes everything below `start` for good.
    pub(crate) fn advance(&mut self, start: u64) {
        if start <= self.start {
            return;
        }
        let (old, new) = (self.start / 64, start / 64);
        if new - old >= self.ring.len() as u64 {
            self.ring.fill(0);
        } else {
            for word in old..new {
                let slot = self.slot(word);
                self.ring[slot] = 0;
            }
            let slot = self.slot(new);
            self.ring[slot] &= u64::MAX << (start % 64);
        }
        self.start = start;
    }

    /// The same where nothing is a member.
    #[inline]
    pub(crate) fn pass(&mut self, start: u64) {
        debug_assert!(self.ring.iter().all(|word| *word == 0), "nothing is a member");
        self.start = self.start.max(start);
    }

    /// Removes all members.
    pub(crate) fn clear(&mut self) {
        self.ring.fill(0);
    }

    /// The members' bits of the 64 numbers from `64 * index` on.
    pub(crate) fn word(&self, index: u64) -> u64 {
        let reach = self.start / 64 + self.ring.len() as u64;
        if index < self.start / 64 || index >= reach { 0 } else { self.ring[self.slot(index)] }
    }

    /// The first number not below `from` that is no member.
    pub(crate) fn next_gap(&self, from: u64) -> u64 {
        let mut index = from / 64;
        let mut gaps = !self.word(index) & u64::MAX << (from % 64);
        while gaps == 0 {
            index += 1;
            gaps = !self.word(index);
        }
        index * 64 + u64::from(gaps.trailing_zeros())
    }

    /// One more than the last number below `below` that is no member, or the start.
    pub(crate) fn run_start(&self, below: u64) -> u64 {
        let mut n = below;
        while n > self.start {
            let (index, bits) = ((n - 1) / 64, (n - 1) % 64 + 1);
            let gaps = !self.word(index) & mask_below(bits);
            if gaps != 0 {
                let last = index * 64 + 63 - u64::from(gaps.leading_zeros());
                return (last + 1).max(self.start);
            }
            n = index * 64;
        }
        self.start
    }

    /// The largest member below `below`.
    pub(crate) fn last_below(&self, below: u64) -> Option<u64> {
        let mut n = below;
        while n > self.start {
            let (index, bits) = ((n - 1) / 64, (n - 1) % 64 + 1);
            let members = self.word(index) & mask_below(bits);
            if members != 0 {
                return Some(index * 64 + 63 - u64::from(members.leading_zeros()));
            }
            n = index * 64;
        }
        None
    }

    fn covers(&self, n: u64) -> bool {
        n >= self.start && n / 64 < self.start / 64 + self.ring.len() as u64
    }

    fn slot(&self, index: u64) -> usize {
        index as usize & (self.ring.len() - 1)
    }

    fn grow_to(&mut self, n: u64) {
        let first = self.start / 64;
        let needed = (n / 64 - first + 1) as usize;
        if needed <= self.ring.len() {
            return;
        }
        let mut larger = alloc::vec![0; needed.next_power_of_two()];
        let slots = larger.len() - 1;
        for index in first..first + self.ring.len() as u64 {
            larger[index as usize & slots] = self.ring[self.slot(index)];
        }
        self.ring = larger;
    }
}

/// The words that a range of numbers touches, each with the mask of its numbers in the range.
pub(crate) fn words(range: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let Range { start, end } = range;
    let indices = if start < end { start / 64..(end - 1) / 64 + 1 } else { 0..0 };
    indices.map(move |index| {
        let from = if index == start / 64 { u64::MAX << (start % 64) } else { u64::MAX };
        let to = if index == (end - 1) / 64 { mask_below((end - 1) % 64 + 1) } else { u64::MAX };
        (index, from & to)
    })
}

/// The numbers of a word's members.
pub(crate) fn members(index: u64, mut word: u64) -> impl Iterator<Item = u64> {
    core::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros();
        word &= word - 1;
        Some(index * 64 + u64::from(bit))
    })
}

/// The lowest `bits` of a word, 1 to 64.
fn mask_below(bits: u64) -> u64 {
    u64::MAX >> (64 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_agree_with_an_ordinary_set(
            steps in proptest::collection::vec((0u8..4, 0u64..900), 1..120),
            probe in 0u64..1_200,
        ) {
            let (mut bits, mut set, mut start) = (Bits::new(), BTreeSet::new(), 0u64);
            for (what, n) in steps {
                match what {
                    0 | 1 if n >= start => { prop_assert_eq!(bits.insert(n), set.insert(n)); }
                    2 => { prop_assert_eq!(bits.remove(n), set.remove(&n)); }
                    3 if n > start && n < start + 100 => {
                        start = n;
                        bits.advance(n);
                        set = set.split_off(&n);
                    }
                    0..=u8::MAX => {}
                }
            }
            prop_assert_eq!(bits.has(probe), set.contains(&probe));
            let below = probe.max(start);
            prop_assert_eq!(bits.last_below(below), set.range(..below).next_back().copied());
            let gap = (below..).find(|n| !set.contains(n));
            prop_assert_eq!(Some(bits.next_gap(below)), gap);
            let run = (start..below).rev().find(|n| !set.contains(n)).map_or(start, |n| n + 1);
            prop_assert_eq!(bits.run_start(below), run);
            let counted: u32 =
                words(start..below).map(|(i, m)| (bits.word(i) & m).count_ones()).sum();
            prop_assert_eq!(counted as usize, set.range(start..below).count());
        }
    }
}
