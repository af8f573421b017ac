//! The sender's scoreboard: which segments are out, which have arrived, which are lost.
//!
//! RFC 6675 section 3 and 4, in whole segments. Two bits per segment (arrived out of order,
//! repeated) and one edge: what lies below it and has not arrived is lost. So the pipe is four
//! counters, and asking for the next segment to repeat is a scan by words from a cursor.

use alloc::collections::VecDeque;
use core::ops::Range;

use super::bits::{Bits, members, words};

/// What is known of the segments from the first unacknowledged one to the last that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    watch: Repeats,
    first: u64,
    next: u64,
    arrived: Bits,
    repeated: Bits,
    /// Segments below this that have not arrived are lost.
    edge: u64,
    /// One more than the highest segment known to have arrived out of order.
    top: u64,
    arrived_count: u64,
    lost_count: u64,
    /// Repeated and not known to have arrived.
    repeated_count: u64,
    /// No segment below this is lost and not yet repeated.
    cursor: u64,
    /// Each repeated segment, and the next new one at that time; in order of time.
    repeats: VecDeque<(u64, u64)>,
    /// The previous acknowledgment's blocks, whose segments need no second look.
    seen: [Range<u64>; 3],
}

impl Board {
    pub(crate) fn new(watch: Repeats) -> Board {
        Board {
            watch,
            first: 0,
            next: 0,
            arrived: Bits::new(),
            repeated: Bits::new(),
            edge: 0,
            top: 0,
            arrived_count: 0,
            lost_count: 0,
            repeated_count: 0,
            cursor: 0,
            repeats: VecDeque::new(),
            seen: [0..0, 0..0, 0..0],
        }
    }

    /// The first segment that is not acknowledged (SND.UNA).
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The first segment that was never sent (SND.NXT).
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Segments sent and not acknowledged in order (FlightSize of RFC 5681).
    pub(crate) fn outstanding(&self) -> u64 {
        self.next - self.first
    }

    /// Segments known to be lost and not yet arrived, repeated or not.
    pub(crate) fn lost(&self) -> u64 {
        self.lost_count
    }

    /// Segments thought to be on the path: RFC 6675, SetPipe().
    pub(crate) fn pipe(&self) -> u64 {
        self.outstanding() + self.repeated_count - self.arrived_count - self.lost_count
    }

    /// A segment was sent for the first time; its number.
    pub(crate) fn send_new(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Segment `n` is sent again.
    pub(crate) fn send_again(&mut self, n: u64) {
        if self.repeated.insert(n) {
            self.repeated_count += 1;
        }
        match self.watch {
            Repeats::Unwatched => {}
            Repeats::Watched => self.repeats.push_back((n, self.next)),
        }
        if n == self.cursor {
            self.cursor += 1;
        }
    }

    /// All below `to` has arrived; `each` is called for those of them that were not known to.
    #[inline]
    pub(crate) fn acknowledge(&mut self, to: u64, mut each: impl FnMut(u64)) {
        let to = to.min(self.next);
        if to <= self.first {
            return;
        }
        if self.arrived_count + self.repeated_count + self.lost_count == 0 {
            // Nothing is marked, so that there is nothing to unmark.
            (self.first..to).for_each(each);
            self.arrived.pass(to);
            self.repeated.pass(to);
        } else {
            self.unmark(to, &mut each);
        }
        self.first = to;
        self.edge = self.edge.max(to);
        self.cursor = self.cursor.max(to);
        self.top = self.top.max(to);
    }

    fn unmark(&mut self, to: u64, each: &mut impl FnMut(u64)) {
        for (index, mask) in words(self.first..to) {
            let (arrived, repeated) = (self.arrived.word(index), self.repeated.word(index));
            let missing = !arrived & mask;
            self.arrived_count -= u64::from((arrived & mask).count_ones());
            self.repeated_count -= u64::from((repeated & missing).count_ones());
            self.lost_count -= u64::from((missing & below(index, self.edge)).count_ones());
            members(index, missing).for_each(&mut *each);
        }
        self.arrived.advance(to);
        self.repeated.advance(to);
    }

    /// A block of an acknowledgment has arrived (RFC 2018); `each` is called for what is new of it.
    pub(crate) fn take_block(&mut self, block: Range<u64>, mut each: impl FnMut(u64)) {
        let block = block.start.max(self.first)..block.end.min(self.next);
        if block.is_empty() {
            return;
        }
        let known = self.seen.iter().find(|old| old.start < block.end && block.start < old.end);
        let known = known.cloned().unwrap_or(block.end..block.end);
        let (low, high) = (block.start..known.start.min(block.end), known.end..block.end);
        for part in [low, high] {
            for (index, mask) in words(part) {
                let new = mask & !self.arrived.word(index);
                members(index, new).for_each(|n| {
                    self.take_one(n);
                    each(n);
                });
            }
        }
        self.top = self.top.max(block.end);
    }

    /// The blocks of the acknowledgment just taken: the next one need look at new ones only.
    #[inline]
    pub(crate) fn remember(&mut self, blocks: [Range<u64>; 3]) {
        self.seen = blocks;
    }

    /// RFC 6675, IsLost(): what has `threshold` arrived segments above it is lost, and a repeated
    /// segment too once that many sent after it have arrived, if repeats are watched.
    ///
    /// `each` is called for what is newly lost.
    #[inline]
    pub(crate) fn find_lost(&mut self, threshold: u64, each: impl FnMut(u64)) {
        if self.arrived_count >= threshold {
            self.find_below(threshold, each);
        }
    }

    fn find_below(&mut self, threshold: u64, mut each: impl FnMut(u64)) {
        let mut edge = self.top;
        for _ in 0..threshold {
            match self.arrived.last_below(edge) {
                Some(n) => edge = n,
                None => return,
            }
        }
        self.raise_edge(edge, &mut each);
        self.find_lost_repeats(edge, each);
    }

    /// What is below `edge` and has not arrived is lost.
    fn raise_edge(&mut self, edge: u64, mut each: impl FnMut(u64)) {
        for (index, mask) in words(self.edge..edge) {
            let missing = mask & !self.arrived.word(index);
            self.lost_count += u64::from(missing.count_ones());
            members(index, missing).for_each(&mut each);
        }
        self.edge = self.edge.max(edge);
    }

    /// The first segment is lost, even if it was repeated before.
    pub(crate) fn lose_first(&mut self, each: impl FnMut(u64)) {
        self.raise_edge(self.first + 1, each);
        self.forget_repeat(self.first);
    }

    /// All that has not arrived is lost, repeated or not (a timeout).
    pub(crate) fn lose_all(&mut self, each: impl FnMut(u64)) {
        self.raise_edge(self.next, each);
        self.repeated.clear();
        self.repeated_count = 0;
        self.repeats.clear();
        self.cursor = self.first;
    }

    /// The first segment that is lost and not repeated: RFC 6675, NextSeg() rule 1.
    pub(crate) fn next_lost(&mut self) -> Option<u64> {
        let found = self.first_waiting(self.cursor..self.edge);
        self.cursor = found.unwrap_or(self.edge.max(self.cursor));
        found
    }

    /// The first segment neither arrived nor repeated that has an arrived one above it, lost or
    /// not: NextSeg() rule 3.
    pub(crate) fn next_doubtful(&self) -> Option<u64> {
        self.first_waiting(self.first..self.top)
    }

    fn first_waiting(&self, range: Range<u64>) -> Option<u64> {
        words(range).find_map(|(index, mask)| {
            let waiting = mask & !self.arrived.word(index) & !self.repeated.word(index);
            (waiting != 0).then(|| index * 64 + u64::from(waiting.trailing_zeros()))
        })
    }

    fn take_one(&mut self, n: u64) {
        self.arrived.insert(n);
        self.arrived_count += 1;
        if n < self.edge {
            self.lost_count -= 1;
        }
        if self.repeated.has(n) {
            self.repeated_count -= 1;
        }
    }

    fn find_lost_repeats(&mut self, edge: u64, mut each: impl FnMut(u64)) {
        while let Some(&(n, next_then)) = self.repeats.front() {
            let settled = n < self.first || self.arrived.has(n);
            if !settled && next_then > edge {
                return;
            }
            self.repeats.pop_front();
            if !settled {
                self.forget_repeat(n);
                each(n);
            }
        }
    }

    fn forget_repeat(&mut self, n: u64) {
        if self.repeated.remove(n) {
            self.repeated_count -= 1;
        }
        self.cursor = self.cursor.min(n);
    }
}

/// Whether the loss of repeated segments is found before the timer rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Repeats {
    /// No: RFC 6675.
    #[default]
    Unwatched,
    /// Yes: a repeated segment is lost when three segments first sent after it have arrived.
    Watched,
}

/// The mask of those numbers of a word that are below `edge`.
fn below(index: u64, edge: u64) -> u64 {
    let start = index * 64;
    if edge <= start {
        return 0;
    }
    if edge - start >= 64 { u64::MAX } else { (1 << (edge - start)) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn sent(n: u64) -> Board {
        let mut board = Board::new(Repeats::Watched);
        (0..n).for_each(|_| {
            board.send_new();
        });
        board
    }

    #[test]
    fn three_arrived_above_make_a_segment_lost_and_it_leaves_the_pipe_until_repeated() {
        let mut board = sent(10);
        board.acknowledge(2, |_| {});
        board.take_block(3..5, |_| {});
        board.find_lost(3, |_| {});
        assert_eq!((board.lost(), board.pipe()), (0, 6));
        board.take_block(3..6, |_| {});
        board.find_lost(3, |_| {});
        assert_eq!((board.lost(), board.pipe()), (1, 4));
        assert_eq!(board.next_lost(), Some(2));
        board.send_again(2);
        assert_eq!((board.next_lost(), board.pipe()), (None, 5));
    }

    #[test]
    fn a_lost_repeat_is_found_by_what_was_sent_after_it() {
        let mut board = sent(10);
        board.take_block(1..4, |_| {});
        board.find_lost(3, |_| {});
        board.send_again(0);
        (0..3).for_each(|_| {
            board.send_new();
        });
        board.take_block(4..10, |_| {});
        board.find_lost(3, |_| {});
        assert_eq!(board.next_lost(), None, "all that arrived was sent before the repeat");
        board.take_block(10..12, |_| {});
        board.find_lost(3, |_| {});
        assert_eq!(board.next_lost(), None, "the third one above is needed");
        board.take_block(10..13, |_| {});
        board.find_lost(3, |_| {});
        assert_eq!(board.next_lost(), Some(0));
    }

    /// The same in the plainest way.
    #[derive(Default)]
    struct Plain {
        arrived: Vec<bool>,
        repeated: Vec<bool>,
        lost: Vec<bool>,
        first: usize,
    }

    impl Plain {
        fn pipe(&self) -> usize {
            (self.first..self.arrived.len())
                .filter(|&n| !self.arrived[n])
                .map(|n| usize::from(!self.lost[n]) + usize::from(self.repeated[n]))
                .sum()
        }
        fn find_lost(&mut self) {
            for n in self.first..self.arrived.len() {
                let above = self.arrived[n + 1..].iter().filter(|a| **a).count();
                self.lost[n] |= !self.arrived[n] && above >= 3;
            }
        }
    }

    proptest! {
        #[test]
        fn counters_agree_with_a_plain_scoreboard(
            steps in proptest::collection::vec((0u8..6, 0u64..40, 1u64..20), 1..200),
        ) {
            let (mut board, mut plain) = (Board::new(Repeats::Unwatched), Plain::default());
            for (what, a, b) in steps {
                match what {
                    0 | 1 => for _ in 0..b {
                        board.send_new();
                        plain.arrived.push(false);
                        plain.repeated.push(false);
                        plain.lost.push(false);
                    },
                    2 => {
                        let to = (board.first() + a).min(board.next());
                        board.acknowledge(to, |_| {});
                        plain.first = to as usize;
                    }
                    3 | 4 => {
                        let start = board.first() + 1 + a;
                        let end = (start + b).min(board.next());
                        board.take_block(start..end, |_| {});
                        board.remember([start..end, 0..0, 0..0]);
                        (start..end).for_each(|n| plain.arrived[n as usize] = true);
                        board.find_lost(3, |_| {});
                        plain.find_lost();
                    }
                    _ => if let Some(n) = board.next_lost() {
                        let n = n as usize;
                        prop_assert!(plain.lost[n] && !plain.repeated[n] && !plain.arrived[n]);
                        board.send_again(n as u64);
                        plain.repeated[n] = true;
                    },
                }
                prop_assert_eq!(board.pipe(), plain.pipe() as u64);
                let lost = (plain.first..plain.arrived.len())
                    .filter(|&n| plain.lost[n] && !plain.arrived[n]);
                prop_assert_eq!(board.lost(), lost.count() as u64);
            }
        }
    }
}
