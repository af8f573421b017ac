//! Datagrams on their way out, side by side in one buffer.
//!
//! Data packets of one size that follow each other form a **run** that leaves with one call; the
//! last of a run may be shorter. Everything else is a run of its own: a padded hello that is too
//! long for the path must not take its neighbours with it.

use std::ops::Range;

use gtp_sys::udp::MAX_BATCH;

/// Sealed datagrams of one session, for one destination.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    runs: Vec<Run>,
}

/// Datagrams that may leave together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Their bytes in the batch.
    pub bytes: Range<usize>,
    /// Length of each but the last.
    pub segment: usize,
    /// Whether another datagram may follow.
    open: bool,
}

/// Whether a datagram may share a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joins {
    Neighbours,
    Nobody,
}

/// A full-size packet of the most common path, where none has shown how long they are.
const ROOM: usize = 1_500;

impl Batch {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether another datagram should be added: one as long as the last ones still fits, so that
    /// no call is made for the one that does not.
    #[inline]
    pub fn has_room(&self) -> bool {
        let next = self.runs.last().map_or(ROOM, |run| run.segment.max(ROOM));
        self.bytes.len() + next <= MAX_BATCH
    }

    /// Where the next datagram is to be appended. [`Batch::end`] must follow.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The datagram that began at `start` is whole.
    pub fn end(&mut self, start: usize, joins: Joins) {
        let (end, open) = (self.bytes.len(), joins == Joins::Neighbours);
        let segment = end - start;
        if open
            && let Some(run) = self.runs.last_mut()
            && run.takes(segment, end)
        {
            run.bytes.end = end;
            run.open = segment == run.segment;
            return;
        }
        self.runs.push(Run { bytes: start..end, segment, open });
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
    use super::*;

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
        for len in [100, 100, 40, 40, 100] {
            push(&mut batch, len, Joins::Neighbours);
        }
        assert_eq!(lengths(&batch), [(240, 100), (40, 40), (100, 100)]);
    }

    #[test]
    fn what_joins_nobody_stays_alone() {
        let mut batch = Batch::default();
        push(&mut batch, 100, Joins::Nobody);
        push(&mut batch, 100, Joins::Nobody);
        push(&mut batch, 100, Joins::Neighbours);
        push(&mut batch, 100, Joins::Nobody);
        assert_eq!(lengths(&batch), [(100, 100); 4]);
    }

    #[test]
    fn a_batch_of_long_datagrams_is_one_run() {
        let mut batch = Batch::default();
        while batch.has_room() {
            push(&mut batch, 8_977, Joins::Neighbours);
        }
        assert_eq!(lengths(&batch), [(7 * 8_977, 8_977)]);
    }

    #[test]
    fn a_run_is_never_longer_than_one_call_may_send() {
        let mut batch = Batch::default();
        while batch.has_room() {
            push(&mut batch, 9_000, Joins::Neighbours);
        }
        push(&mut batch, 9_000, Joins::Neighbours);
        assert!(batch.runs().iter().all(|run| run.bytes.len() <= MAX_BATCH));
    }
}
