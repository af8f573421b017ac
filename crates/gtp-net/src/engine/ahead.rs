//! How many blocks a session that sends has read ahead of the sending.
//!
//! What waits for its turn is cold by then, and memory that is touched for the first time is slow.
//! So as few as will do: more each time that one was missed, as long as that can help. It helps a
//! reader that waits for a disk now and then, and not one that has too much to do.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_store::BLOCK;

/// The number, and what it follows from.
#[derive(Debug)]
pub(super) struct Ahead {
    blocks: usize,
    /// The longest that a block took to be read, lately.
    slowest: Span,
    /// Mean length of the last blocks: small files have short ones.
    length: Bytes,
}

/// At least this many, if the rate is not low.
const LEAST: usize = 32;
/// No more of the least are read than are sent in this time, so that a session that sends little
/// does not hold much memory.
const LEAST_SPAN: Span = Span::from_secs(1);
/// However little is sent, the block that is being sent and the next one are read.
const LEAST_OF_ALL: usize = 2;
/// The reader is asked again when the session has come this part further.
const AGAIN: usize = 8;
/// When none was missed, this part less each time.
const FALL: usize = 32;
/// Beyond the least, what is sent while so many of the slowest blocks are read.
const SLOWEST: u64 = 2;
/// Beyond the least, no more is read than is sent in this time.
const MOST: Span = Span::from_millis(100);
/// Of the longest that a block took, and of the mean length, this part is forgotten with each.
const FORGOTTEN: u64 = 32;

impl Ahead {
    /// Nothing was read yet.
    pub fn new() -> Ahead {
        Ahead { blocks: LEAST, slowest: Span::ZERO, length: Bytes(BLOCK) }
    }

    /// A block of this length was read, in so long.
    pub fn handle_loaded(&mut self, took: Span, length: Bytes) {
        let lately = self.slowest.saturating_sub(self.slowest / FORGOTTEN);
        self.slowest = took.max(lately);
        let rest = self.length.0 - self.length.0 / FORGOTTEN;
        self.length = Bytes((rest + length.0 / FORGOTTEN).max(1));
    }

    /// How many such blocks are sent in a time.
    pub fn blocks_in(&self, rate: Rate, span: Span) -> usize {
        (rate.bytes_in(span).0 / self.length.0) as usize
    }

    /// How many to read ahead now, at this sending rate and with memory for `most` blocks.
    /// `missed`: one was not there when its turn had come.
    pub fn look(&mut self, rate: Rate, most: usize, missed: bool) -> usize {
        let least = self.blocks_in(rate, LEAST_SPAN).clamp(LEAST_OF_ALL, LEAST);
        let useful = least + self.blocks_in(rate, (self.slowest * SLOWEST).min(MOST));
        // Never so many that blocks make room for others before they are sent.
        let top = useful.min((most / 2).max(1));
        self.blocks = if missed { self.blocks * 2 } else { self.blocks - self.blocks / FALL };
        self.blocks = self.blocks.clamp(least.min(top), top);
        self.blocks
    }

    /// Whether it is time to read on, when the session has come so many blocks further.
    pub fn is_due(&self, moved_on: usize) -> bool {
        moved_on > self.blocks.min(LEAST) / AGAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbps(8_000);

    /// After so many misses in a row, each block read in `took`.
    fn after_misses(misses: usize, took: Span, most: usize) -> usize {
        let mut ahead = Ahead::new();
        for _ in 0..misses {
            ahead.handle_loaded(took, Bytes(BLOCK));
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
        let blocks_in = |span| Ahead::new().blocks_in(RATE, span);
        assert!(ahead > blocks_in(Span::from_millis(20)), "{ahead}");
        let most = LEAST + blocks_in(MOST);
        assert!(after_misses(100, Span::from_secs(5), 10_000) <= most);
    }

    #[test]
    fn of_small_files_more_are_read_ahead_for_the_same_time() {
        let (mut ahead, took, length) = (Ahead::new(), Span::from_millis(5), Bytes(10_000));
        for _ in 0..500 {
            ahead.handle_loaded(took, length);
            ahead.look(RATE, 10_000, true);
        }
        let files = (RATE.bytes_in(took).0 / length.0) as usize;
        assert!((files..3 * files).contains(&ahead.blocks), "{} {files}", ahead.blocks);
    }

    #[test]
    fn a_session_that_sends_a_trickle_holds_the_next_block_and_no_more() {
        let mut ahead = Ahead::new();
        for _ in 0..100 {
            ahead.handle_loaded(Span::from_millis(50), Bytes(BLOCK));
            assert_eq!(ahead.look(Rate::from_bps(12_000), 10_000, true), LEAST_OF_ALL);
            assert!(ahead.is_due(1), "the one after the next is read when its turn comes near");
        }
        assert_eq!(ahead.look(RATE, 10_000, false), LEAST, "the rate has grown");
    }

    #[test]
    fn half_of_the_memory_is_left_for_what_was_sent() {
        assert_eq!(after_misses(100, Span::from_millis(50), 40), 20);
        assert_eq!(after_misses(1, Span::from_millis(50), 1), 1);
    }

    #[test]
    fn one_slow_block_is_forgotten() {
        let mut ahead = Ahead::new();
        ahead.handle_loaded(Span::from_millis(50), Bytes(BLOCK));
        (0..3).for_each(|_| _ = ahead.look(RATE, 10_000, true));
        for _ in 0..500 {
            ahead.handle_loaded(Span::from_micros(100), Bytes(BLOCK));
            ahead.look(RATE, 10_000, false);
        }
        assert_eq!(ahead.look(RATE, 10_000, true), LEAST);
    }
}
