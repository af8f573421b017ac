//! A set of unit numbers as half-open ranges.
//!
//! Sequential transfers keep a handful of ranges, lossy ones a few hundred; every operation is
//! logarithmic in their number.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// A set of `u64`, stored as disjoint, non-adjacent half-open ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// start → end
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

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many separate ranges the set consists of.
    pub fn pieces(&self) -> usize {
        self.ranges.len()
    }

    /// The smallest number in the set.
    pub fn first(&self) -> Option<u64> {
        self.ranges.keys().next().copied()
    }

    /// Whether `x` is in the set.
    pub fn contains(&self, x: u64) -> bool {
        self.ranges.range(..=x).next_back().is_some_and(|(_, &end)| x < end)
    }

    /// Ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// The parts of the set that lie in `window`, ascending.
    pub fn within(&self, window: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self
            .ranges
            .range(..window.start)
            .next_back()
            .map(|(&start, &end)| start..end)
            .filter(|r| r.end > window.start);
        let inside = if window.start < window.end {
            Some(self.ranges.range(window.clone()).map(|(&start, &end)| start..end))
        } else {
            None
        };
        before
            .filter(|_| window.start < window.end)
            .into_iter()
            .chain(inside.into_iter().flatten())
            .map(move |r| r.start.max(window.start)..r.end.min(window.end))
    }

    /// Adds `range`; returns how many numbers are new.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let before = self.len;
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&s, &e)) = self.ranges.range(..=start).next_back()
            && e >= start
        {
            start = s;
            end = end.max(e);
            self.take(s);
        }
        while let Some((&s, &e)) = self.ranges.range(start..=end).next() {
            end = end.max(e);
            self.take(s);
        }
        self.put(start..end);
        self.len - before
    }

    /// Removes `range`; returns how many numbers were there.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let before = self.len;
        if let Some((&s, &e)) = self.ranges.range(..range.start).next_back()
            && e > range.start
        {
            self.take(s);
            self.put(s..range.start);
            if e > range.end {
                self.put(range.end..e);
                return before - self.len;
            }
        }
        while let Some((&s, &e)) = self.ranges.range(range.clone()).next() {
            self.take(s);
            if e > range.end {
                self.put(range.end..e);
            }
        }
        before - self.len
    }

    /// Removes one number; says whether it was there.
    pub fn remove_one(&mut self, x: u64) -> bool {
        self.remove(x..x + 1) == 1
    }

    fn put(&mut self, r: Range<u64>) {
        self.len += r.end - r.start;
        self.ranges.insert(r.start, r.end);
    }

    fn take(&mut self, start: u64) {
        if let Some(end) = self.ranges.remove(&start) {
            self.len -= end - start;
        }
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(iter: I) -> RangeSet {
        let mut set = RangeSet::new();
        for r in iter {
            set.insert(r);
        }
        set
    }
}
