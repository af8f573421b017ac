//! Sets of numbers kept as ranges: which units are wanted, which blocks of a file are there.
//!
//! What arrives in order is one range, a resumed transfer a few, a lossy one some hundreds. Every
//! operation is logarithmic in their number, and the one that comes for each packet and each block,
//! growing a range at its end, changes it where it lies. It knows nothing of what it numbers.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeMap;
use core::ops::{Bound, Range};

/// A set of `u64` below `u64::MAX`, stored as its maximal half-open ranges. Memory grows with the
/// gaps, not with the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        let mut end = range.end;
        // Neighbours never touch, so nothing begins between the old end and that of what it meets.
        let met = (Bound::Excluded(range.start), Bound::Included(range.end));
        while let Some((&start, &reach)) = self.ranges.range(met).next() {
            end = end.max(reach);
            self.take(start);
        }
        match self.ranges.range_mut(..=range.start).next_back() {
            Some((_, reach)) if *reach >= range.start => {
                self.len += end.saturating_sub(*reach);
                *reach = end.max(*reach);
            }
            Some(_) | None => self.put(range.start..end),
        }
        self.len - before
    }

    /// Adds one number; says whether it is new. `u64::MAX` has no successor and is refused.
    pub fn insert_one(&mut self, x: u64) -> bool {
        x.checked_add(1).is_some_and(|end| self.insert(x..end) == 1)
    }

    /// Removes `range`; returns how many numbers were there.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let before = self.len;
        if let Some((_, reach)) = self.ranges.range_mut(..range.start).next_back()
            && *reach > range.start
        {
            let end = core::mem::replace(reach, range.start);
            self.len -= end - range.start;
            if end > range.end {
                self.put(range.end..end);
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
        x.checked_add(1).is_some_and(|end| self.remove(x..end) == 1)
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
