//! Datagrams on their way out, side by side in one buffer.
//!
//! Data packets of one size that follow each other form a **run** that leaves with one call; the
//! last of a run may be shorter. So a shorter one, the last of a block, is **held** until those
//! that follow it are in: it ends the run that way, and does not part it. Everything else is a run
//! of its own: a padded hello that is too long for the path must not take its neighbours with it.

use std::ops::Range;

use gtp_proto::Codepoint;
use gtp_sys::udp::MAX_BATCH;

/// Sealed datagrams of one session, for one destination.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// A datagram shorter than those of its run, which has to be the last of one.
    held: Vec<u8>,
    /// The ECN bits of what is added.
    ecn: Codepoint,
}

/// Datagrams that may leave together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Their bytes in the batch.
    pub bytes: Range<usize>,
    /// Length of each but the last.
    pub segment: usize,
    /// Their ECN bits.
    pub ecn: Codepoint,
    /// Whether another datagram may follow.
    open: bool,
}

/// Whether a datagram may share a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joins {
    /// It may, and may go behind those that follow it: nobody waits for it alone.
    InAnyOrder,
    /// It may, where its place is.
    InOrder,
    /// It may not.
    Nobody,
}

/// A full-size packet of the most common path, where none has shown how long they are.
const ROOM: usize = 1_500;

impl Batch {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        self.held.clear();
        self.ecn = Codepoint::NotEct;
    }

    /// What is added from now on leaves with these ECN bits: a run has one kind of header.
    #[inline]
    pub fn set_ecn(&mut self, ecn: Codepoint) {
        if self.ecn != ecn {
            self.change_ecn(ecn);
        }
    }

    #[cold]
    fn change_ecn(&mut self, ecn: Codepoint) {
        self.finish();
        if let Some(run) = self.runs.last_mut() {
            run.open = false;
        }
        self.ecn = ecn;
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The longest datagram; none in an empty batch.
    pub fn longest_datagram(&self) -> &[u8] {
        let longest = self.runs.iter().max_by_key(|run| run.segment.min(run.bytes.len()));
        longest.map_or(&[], |run| &self.bytes(run)[..run.segment.min(run.bytes.len())])
    }

    /// Its bytes.
    #[inline]
    pub fn longest(&self) -> usize {
        self.runs.iter().map(|run| run.segment).max().unwrap_or(0)
    }

    /// Whether another datagram should be added: one as long as the last ones still fits, so that
    /// no call is made for the one that does not.
    #[inline]
    pub fn has_room(&self) -> bool {
        let next = self.runs.last().map_or(ROOM, |run| run.segment.max(ROOM));
        self.bytes.len() + self.held.len() + next <= MAX_BATCH
    }

    /// Where the next datagram is to be appended. [`Batch::end`] must follow.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The datagram that began at `start` is whole.
    pub fn end(&mut self, start: usize, joins: Joins) {
        let start = if joins == Joins::InAnyOrder { start } else { self.finish_before(start) };
        let (end, open) = (self.bytes.len(), joins != Joins::Nobody);
        let segment = end - start;
        match self.runs.last_mut().filter(|run| open && run.takes(segment, end)) {
            Some(run) if run.segment == segment => run.bytes.end = end,
            Some(_) if joins == Joins::InAnyOrder => self.hold(start),
            Some(run) => (run.bytes.end, run.open) = (end, false),
            None => {
                let ecn = self.ecn;
                self.runs.push(Run { bytes: start..end, segment, ecn, open });
            }
        }
    }

    /// What is held goes before the datagram from `start` on; says where that begins then.
    fn finish_before(&mut self, start: usize) -> usize {
        let held = self.held.len();
        self.let_go(held, start);
        start + held
    }

    /// Puts the shorter datagram from `start` on aside; the one that was there ends the run.
    fn hold(&mut self, start: usize) {
        let before = self.held.len();
        self.held.extend_from_slice(&self.bytes[start..]);
        self.bytes.truncate(start);
        self.let_go(before, start);
    }

    /// Adds what is held: nothing follows.
    pub fn finish(&mut self) {
        self.finish_before(self.bytes.len());
    }

    /// Puts the first bytes of what is held, a datagram or none, to where the last run ends.
    fn let_go(&mut self, len: usize, at: usize) {
        if len == 0 {
            return;
        }
        self.bytes.splice(at..at, self.held.drain(..len));
        let end = at + len;
        match self.runs.last_mut().filter(|run| run.takes(len, end)) {
            Some(run) => {
                run.bytes.end = end;
                run.open = len == run.segment;
            }
            None => {
                let (bytes, ecn) = (at..end, self.ecn);
                self.runs.push(Run { bytes, segment: len, ecn, open: true });
            }
        }
    }

    /// All runs, in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The bytes of a run.
    pub fn bytes(&self, run: &Run) -> &[u8] {
        &self.bytes[run.bytes.clone()]
    }
}

impl Run {
    fn takes(&self, len: usize, end: usize) -> bool {
        self.open && len <= self.segment && end - self.bytes.start <= MAX_BATCH
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const KINDS: &[Joins] = &[Joins::InAnyOrder, Joins::InOrder, Joins::Nobody];

    fn push(batch: &mut Batch, len: usize, joins: Joins) {
        let bytes = batch.begin();
        let start = bytes.len();
        bytes.resize(start + len, 0);
        batch.end(start, joins);
    }

    fn lengths(batch: &Batch) -> Vec<(usize, usize)> {
        batch.runs().iter().map(|run| (run.bytes.len(), run.segment)).collect()
    }

    #[test]
    fn a_shorter_datagram_ends_a_run_and_a_longer_one_begins_a_new_one() {
        let mut batch = Batch::default();
        for len in [100, 100, 40, 40, 120] {
            push(&mut batch, len, Joins::InAnyOrder);
        }
        batch.finish();
        assert_eq!(lengths(&batch), [(240, 100), (160, 120)]);
    }

    #[test]
    fn the_last_of_a_block_does_not_part_the_run_that_goes_on_with_the_next() {
        let mut batch = Batch::default();
        for len in [100, 100, 40, 100, 100] {
            push(&mut batch, len, Joins::InAnyOrder);
        }
        batch.finish();
        assert_eq!(lengths(&batch), [(440, 100)]);
    }

    #[test]
    fn what_has_its_place_keeps_it() {
        let mut batch = Batch::default();
        for len in [100, 100, 40, 100, 100] {
            push(&mut batch, len, Joins::InOrder);
        }
        batch.finish();
        assert_eq!(lengths(&batch), [(240, 100), (200, 100)]);
    }

    #[test]
    fn what_is_held_goes_before_what_joins_nobody() {
        let mut batch = Batch::default();
        for len in [100, 100, 40] {
            push(&mut batch, len, Joins::InAnyOrder);
        }
        push(&mut batch, 70, Joins::Nobody);
        push(&mut batch, 100, Joins::InAnyOrder);
        batch.finish();
        assert_eq!(lengths(&batch), [(240, 100), (70, 70), (100, 100)]);
    }

    proptest! {
        #[test]
        fn each_datagram_leaves_once_with_its_bits_and_is_cut_as_it_was_made(
            made in vec((1_usize..40, select(KINDS), any::<bool>()), 0..60),
        ) {
            let mut batch = Batch::default();
            let bits = |marked| if marked { Codepoint::Ect0 } else { Codepoint::NotEct };
            for (number, &(len, joins, marked)) in made.iter().enumerate() {
                batch.set_ecn(bits(marked));
                let bytes = batch.begin();
                let start = bytes.len();
                bytes.resize(start + len, number as u8);
                batch.end(start, joins);
            }
            batch.finish();
            let cut = |run: &Run| {
                let datagrams = batch.bytes(run).chunks(run.segment);
                datagrams.map(|bytes| (bytes.to_vec(), run.ecn)).collect::<Vec<_>>()
            };
            let mut sent: Vec<_> = batch.runs().iter().flat_map(cut).collect();
            let made = made.iter().enumerate();
            let made = made.map(|(n, &(len, _, marked))| (vec![n as u8; len], bits(marked)));
            sent.sort_by(|one, other| one.0.cmp(&other.0));
            prop_assert_eq!(sent, made.collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_joins_nobody_stays_alone() {
        let mut batch = Batch::default();
        push(&mut batch, 100, Joins::Nobody);
        push(&mut batch, 100, Joins::Nobody);
        push(&mut batch, 100, Joins::InAnyOrder);
        push(&mut batch, 100, Joins::Nobody);
        assert_eq!(lengths(&batch), [(100, 100); 4]);
    }

    #[test]
    fn a_batch_of_long_datagrams_is_one_run() {
        let mut batch = Batch::default();
        while batch.has_room() {
            push(&mut batch, 8_977, Joins::InAnyOrder);
        }
        assert_eq!(lengths(&batch), [(7 * 8_977, 8_977)]);
    }

    #[test]
    fn a_run_is_never_longer_than_one_call_may_send() {
        let mut batch = Batch::default();
        while batch.has_room() {
            push(&mut batch, 9_000, Joins::InAnyOrder);
        }
        push(&mut batch, 9_000, Joins::InAnyOrder);
        assert!(batch.runs().iter().all(|run| run.bytes.len() <= MAX_BATCH));
    }
}
