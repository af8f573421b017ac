//! A set of numbers kept as ranges: which blocks of a file are there.
//!
//! A file that arrives in order is one range, and a resumed one a few. It knows nothing of blocks
//! but their numbers.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of `u64`, stored as its maximal ranges. Memory grows with the gaps, not the numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start and end of each range; neighbours never touch.
    ranges: BTreeMap<u64, u64>,
    len: u64,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// How many numbers are in the set.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `number` is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, &end)| number < end)
    }

    /// Adds one number; whether it was new. `u64::MAX` has no successor and is refused.
    pub fn insert(&mut self, number: u64) -> bool {
        if number == u64::MAX || self.contains(number) {
            return false;
        }
        let (mut start, mut end) = (number, number + 1);
        if let Some((&before, &touch)) = self.ranges.range(..number).next_back()
            && touch == number
        {
            start = before;
        }
        if let Some(after) = self.ranges.remove(&end) {
            end = after;
        }
        self.ranges.insert(start, end);
        self.len += 1;
        true
    }

    /// The ranges, in order, none empty and none touching.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_set_and_its_ranges_never_touch(
            numbers in proptest::collection::vec(0u64..60, 0..80),
        ) {
            let (mut ranges, mut set) = (RangeSet::new(), BTreeSet::new());
            for n in numbers {
                prop_assert_eq!(ranges.insert(n), set.insert(n));
            }
            let listed: Vec<u64> = ranges.iter().flatten().collect();
            prop_assert_eq!(listed, set.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ranges.len(), set.len() as u64);
            let all: Vec<_> = ranges.iter().collect();
            prop_assert!(all.windows(2).all(|w| w[0].end < w[1].start));
            for n in 0..61 {
                prop_assert_eq!(ranges.contains(n), set.contains(&n));
            }
        }
    }
}
