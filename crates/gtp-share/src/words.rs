//! Records of several words with one writer and readers that never see half of one.
//!
//! A sequence word stands before each record: odd while the writer is at work, two higher after it.
//! A reader that finds it odd, or changed behind its back, tries again, a few times and no more:
//! a writer that stops in the middle holds up nobody. It is written against a trait so that
//! the very same code runs in shared memory and under a model checker.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// One word of shared memory, and the fences that go with it.
pub trait Word {
    /// Reads it, in no order with others.
    fn load(&self) -> u64;
    /// Writes it, in no order with others.
    fn store(&self, value: u64);
    /// What was loaded before stays before what is loaded after.
    fn fence_loads();
    /// What was stored before stays before what is stored after.
    fn fence_stores();
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        AtomicU64::load(self, Ordering::Relaxed)
    }

    #[inline]
    fn store(&self, value: u64) {
        AtomicU64::store(self, value, Ordering::Relaxed);
    }

    #[inline]
    fn fence_loads() {
        fence(Ordering::Acquire);
    }

    #[inline]
    fn fence_stores() {
        fence(Ordering::Release);
    }
}

/// Times that a reader looks before it gives up: a write takes some tens of nanoseconds, so only a
/// writer that was stopped in the middle, or that writes without end, is met so often.
pub const TRIES: usize = 16;

/// Writes a record; only ever called by its one writer.
#[inline]
pub fn write<W: Word, const N: usize>(sequence: &W, words: &[W; N], values: &[u64; N]) {
    let busy = sequence.load() | 1;
    sequence.store(busy);
    W::fence_stores();
    for i in 0..N {
        words[i].store(values[i]);
    }
    W::fence_stores();
    sequence.store(busy.wrapping_add(1));
}

/// Reads a record into `values`; `false` if no whole one was met in [`TRIES`] tries, and `values`
/// then holds nothing of use.
#[inline]
pub fn read<W: Word, const N: usize>(sequence: &W, words: &[W; N], values: &mut [u64; N]) -> bool {
    (0..TRIES).any(|_| read_once(sequence, words, values))
}

/// One try of [`read`].
#[inline]
pub fn read_once<W: Word, const N: usize>(
    sequence: &W,
    words: &[W; N],
    values: &mut [u64; N],
) -> bool {
    let before = sequence.load();
    W::fence_loads();
    if before & 1 == 1 {
        return false;
    }
    for i in 0..N {
        values[i] = words[i].load();
    }
    W::fence_loads();
    sequence.load() == before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_one_half_written_does_not() {
        let sequence = AtomicU64::new(0);
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        write(&sequence, &words, &[7, 9]);
        let mut values = [0; 2];
        assert!(read(&sequence, &words, &mut values));
        assert_eq!(values, [7, 9]);
        sequence.store(sequence.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        assert!(!read(&sequence, &words, &mut values));
        write(&sequence, &words, &[1, 2]); // A new writer of the same page.
        assert!(read(&sequence, &words, &mut values));
        assert_eq!(values, [1, 2]);
    }
}
