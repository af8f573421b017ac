//! How many blocks a session that sends has read ahead of the sending.
//!
//! What waits for its turn is cold by then, and memory that is touched for the first time is slow.
//! So as few as will do: more each time that one was missed, as long as that can help. It helps a
//! reader that waits for a disk now and then, and not one that has too much to do.

use gtp_alloc::{Rate, Span};
use gtp_store::BLOCK;

/// The number, and what it follows from.
#[derive(Debug)]
pub(super) struct Ahead {
    blocks: usize,
    /// The longest that a block took to be read, lately.
    slowest: Span,
}

/// At least this many, whatever the rate.
pub(super) const LEAST: usize = 32;
/// When none was missed, this part less each time.
const FALL: usize = 32;
/// Beyond the least, what is sent while so many of the slowest blocks are read...
const SLOWEST: u64 = 2;
/// ... and no more than is sent in this time.
const MOST: Span = Span::from_millis(100);
/// Of the longest that a block took, this part is forgotten with each that took less.
const FORGOTTEN: u64 = 32;

impl Ahead {
    /// Nothing was read yet.
    pub fn new() -> Ahead {
        Ahead { blocks: LEAST, slowest: Span::ZERO }
    }

    /// A block was read, in so long.
    pub fn handle_loaded(&mut self, took: Span) {
        let lately = self.slowest.saturating_sub(self.slowest / FORGOTTEN);
        self.slowest = took.max(lately);
    }

    /// How many to read ahead now, at this sending rate and with memory for `most` blocks.
    /// `missed`: one was not there when its turn had come.
    pub fn look(&mut self, rate: Rate, most: usize, missed: bool) -> usize {
        let useful = LEAST + blocks_in(rate, (self.slowest * SLOWEST).min(MOST));
        // Never so many that blocks make room for others before they are sent.
        let top = useful.min((most / 2).max(1));
        self.blocks = if missed { self.blocks * 2 } else { self.blocks - self.blocks / FALL };
        self.blocks = self.blocks.clamp(LEAST.min(top), top);
        self.blocks
    }
}

/// Whole blocks that are sent in a time.
pub(super) fn blocks_in(rate: Rate, span: Span) -> usize {
    (rate.bytes_in(span).0 / BLOCK) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbps(8_000);

    /// After so many misses in a row, each block read in `took`.
    fn after_misses(misses: usize, took: Span, most: usize) -> usize {
        let mut ahead = Ahead::new();
        for _ in 0..misses {
            ahead.handle_loaded(took);
            ahead.look(RATE, most, true);
        }
        ahead.blocks
    }

    #[test]
    fn a_reader_that_cannot_keep_up_is_not_given_more_and_more_to_hold() {
        let took = Span::from_micros(300); // 7 Gbit/s
        assert_eq!(after_misses(100, took, 10_000), LEAST + 2);
    }

    #[test]
    fn blocks_are_there_while_a_disk_seeks() {
        let ahead = after_misses(4, Span::from_millis(20), 10_000);
        assert!(ahead > blocks_in(RATE, Span::from_millis(20)), "{ahead}");
        assert!(after_misses(100, Span::from_secs(5), 10_000) <= LEAST + blocks_in(RATE, MOST));
    }

    #[test]
    fn half_of_the_memory_is_left_for_what_was_sent() {
        assert_eq!(after_misses(100, Span::from_millis(50), 40), 20);
        assert_eq!(after_misses(1, Span::from_millis(50), 1), 1);
    }

    #[test]
    fn one_slow_block_is_forgotten() {
        let mut ahead = Ahead::new();
        ahead.handle_loaded(Span::from_millis(50));
        (0..3).for_each(|_| _ = ahead.look(RATE, 10_000, true));
        for _ in 0..500 {
            ahead.handle_loaded(Span::from_micros(100));
            ahead.look(RATE, 10_000, false);
        }
        assert_eq!(ahead.look(RATE, 10_000, true), LEAST);
    }
}
