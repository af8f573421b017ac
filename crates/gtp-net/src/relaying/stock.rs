//! What a sink of a relayed object may give on.
//!
//! A block is shown once it is here and the object's source has said what it is. A file that turns
//! out not to hold what was written, or that is given up, goes off for good with all its blocks.
//! This module must not know who reads, nor where the blocks lie.

use std::collections::HashMap;
use std::ops::Range;

use gtp_store::{RangeSet, Value};

/// Blocks that are here, and what they are.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// How many blocks the object has.
    blocks: u64,
    values: HashMap<u64, Value>,
    /// Blocks that were written and checked here, without those that are off.
    here: RangeSet,
    /// Those of them that have values, in the order in which both were so; also such as are off.
    shown: Vec<u64>,
    /// Blocks that are not given on any more, and none of their files is.
    off: RangeSet,
    /// Blocks that were here, went off, and of which nobody has been told.
    off_untold: RangeSet,
}

/// What a block that came counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// Readers hear of it now.
    Shown,
    /// It was known, or nobody has said what it is.
    Waits,
    /// It is here, and is not given on.
    Off,
}

impl Stock {
    /// For an object of so many blocks, of which these were found good.
    pub fn new(blocks: u64, here: RangeSet) -> Stock {
        Stock { blocks, here, ..Stock::default() }
    }

    /// A block is here and good.
    pub fn note_here(&mut self, number: u64) -> Noted {
        if self.off.contains(number) {
            return Noted::Off;
        }
        if !self.here.insert_one(number) || !self.values.contains_key(&number) {
            return Noted::Waits;
        }
        self.shown.push(number);
        Noted::Shown
    }

    /// The source has said what these blocks are, from this number on. What it has said first
    /// counts: the block was checked against that.
    pub fn note_values(&mut self, first: u64, values: &[Value]) {
        for (number, value) in (first..self.blocks).zip(values) {
            let is_news = !self.values.contains_key(&number);
            if is_news {
                self.values.insert(number, *value);
                if self.here.contains(number) {
                    self.shown.push(number);
                }
            }
        }
    }

    /// All blocks of a file go off.
    pub fn take_off(&mut self, file: Range<u64>) {
        let were_here: Vec<_> = self.here.within(file.clone()).collect();
        for range in were_here {
            self.off_untold.insert(range);
        }
        self.here.remove(file.clone());
        self.off.insert(file);
    }

    /// What went off since this was asked last, of what was here.
    pub fn taken_off(&mut self) -> RangeSet {
        std::mem::take(&mut self.off_untold)
    }

    /// What was shown since the reader had been told of so many blocks, of which it counts more
    /// then. What went off meanwhile is left out.
    pub fn news(&self, told: &mut usize) -> RangeSet {
        let news = self.shown.get(*told..).unwrap_or_default();
        *told = self.shown.len();
        let left = news.iter().filter(|&&number| self.here.contains(number));
        left.map(|&number| number..number + 1).collect()
    }

    /// What a block that may be given on is.
    pub fn value(&self, number: u64) -> Option<Value> {
        self.values.get(&number).copied().filter(|_| self.here.contains(number))
    }
}

#[cfg(test)]
mod tests;
