//! Sets of numbers kept as ranges: which units are wanted, which blocks of a file are there.
//!
//! What arrives in order is one range, a resumed transfer a few, a lossy one some hundreds. Every
//! operation is logarithmic in their number but for those that come for each packet and each block:
//! they grow the last range at its end or eat it from its start, and it lies apart from the others,
//! so that they cost a few comparisons. It knows nothing of what it numbers.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeMap;
use core::ops::{Bound, Range};

/// A set of `u64` below `u64::MAX`, stored as its maximal half-open ranges. Memory grows with the
/// gaps, not with the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start and end of each range but the last; neighbours never touch.
    ranges: BTreeMap<u64, u64>,
    /// The last range; empty at 0 if there is none.
    last: Range<u64>,
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
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many separate ranges the set consists of.
    pub fn pieces(&self) -> usize {
        self.ranges.len() + usize::from(!self.is_empty())
    }

    /// The smallest number in the set.
    pub fn first(&self) -> Option<u64> {
        self.iter().next().map(|range| range.start)
    }

    /// Whether `x` is in the set.
    pub fn contains(&self, x: u64) -> bool {
        if x >= self.last.start {
            return x < self.last.end;
        }
        self.ranges.range(..=x).next_back().is_some_and(|(_, &end)| x < end)
    }

    /// Ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.ranges.iter().map(|(&start, &end)| start..end);
        before.chain(self.last())
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
        let (from, to) = (window.start, window.end);
        let last = self.last().filter(|r| r.start < to && r.end > from);
        before
            .into_iter()
            .chain(inside.into_iter().flatten())
            .chain(last)
            .filter(move |_| from < to)
            .map(move |r| r.start.max(from)..r.end.min(to))
    }

    /// Adds `range`; returns how many numbers are new.
    #[inline]
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let before = self.len;
        if range.start < self.last.start {
            self.insert_before(range);
        } else if range.start <= self.last.end && !self.is_empty() {
            let end = self.last.end.max(range.end);
            self.len += end - self.last.end;
            self.last.end = end;
        } else {
            self.len += range.end - range.start;
            let old = core::mem::replace(&mut self.last, range);
            if old.start < old.end {
                self.ranges.insert(old.start, old.end);
            }
        }
        self.len - before
    }

    /// Adds one number; says whether it is new. `u64::MAX` has no successor and is refused.
    pub fn insert_one(&mut self, x: u64) -> bool {
        x.checked_add(1).is_some_and(|end| self.insert(x..end) == 1)
    }

    /// Removes `range`; returns how many numbers were there.
    #[inline]
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.start == self.last.start && range.start < range.end && range.end < self.last.end {
            self.last.start = range.end;
            self.len -= range.end - range.start;
            return range.end - range.start;
        }
        self.remove_any(range)
    }

    /// Removes one number; says whether it was there.
    #[inline]
    pub fn remove_one(&mut self, x: u64) -> bool {
        x.checked_add(1).is_some_and(|end| self.remove(x..end) == 1)
    }

    fn last(&self) -> Option<Range<u64>> {
        (!self.is_empty()).then(|| self.last.clone())
    }

    /// Adds a range that begins before the last one.
    fn insert_before(&mut self, range: Range<u64>) {
        if range.end >= self.last.start {
            // It reaches the last one, which so begins earlier, and earlier still if it meets more.
            let end = self.last.end.max(range.end);
            let mut start = range.start;
            self.len -= self.last.end - self.last.start;
            while let Some((&from, &reach)) = self.ranges.last_key_value()
                && reach >= range.start
            {
                start = start.min(from);
                self.take(from);
            }
            self.len += end - start;
            self.last = start..end;
            return;
        }
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
    }

    fn remove_any(&mut self, range: Range<u64>) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let before = self.len;
        if range.end > self.last.start && range.start < self.last.end {
            self.remove_of_last(&range);
        }
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
        self.promote();
        before - self.len
    }

    /// Removes what of the last range lies in `range`; what stays before it joins the others.
    fn remove_of_last(&mut self, range: &Range<u64>) {
        let Range { start, end } = core::mem::take(&mut self.last);
        self.len -= end - start;
        if start < range.start {
            self.put(start..range.start);
        }
        if range.end < end {
            self.last = range.end..end;
            self.len += end - range.end;
        }
    }

    /// The last of the others takes the place of a last range that is gone.
    fn promote(&mut self) {
        if self.last.is_empty()
            && let Some((start, end)) = self.ranges.pop_last()
        {
            self.last = start..end;
        }
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
