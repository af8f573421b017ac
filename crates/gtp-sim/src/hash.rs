//! The running hash of a run: equal runs have equal hashes, and unequal ones almost surely not.
//!
//! Everything that happens is mixed in as it happens, times and bytes of datagrams included, so
//! that two hashes compare two whole runs. What has its time and place with it, as a packet at the
//! end of a link, is noted instead: it counts whenever it is noted, so that a run may work such
//! things out earlier or later. It is no cryptographic hash, and need not be: nobody wants to forge
//! a run.

/// A hash of 64-bit words in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHash {
    /// What was mixed in, in order.
    chain: u64,
    /// What was noted, in whatever order.
    sum: u64,
}

/// Odd, with bits evenly spread: 2^64 over the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The same: 2^64 times the fraction of the square root of three.
const OTHER_SPREAD: u64 = 0xbb67_ae85_84ca_a73b;

impl RunHash {
    /// The hash of nothing, under a seed.
    pub const fn new(seed: u64) -> RunHash {
        RunHash { chain: seed ^ SPREAD, sum: 0 }
    }

    /// Mixes a word in. One word changes all later values; the order of words counts.
    #[inline]
    pub const fn mix(&mut self, word: u64) {
        self.chain = spread(self.chain ^ word);
    }

    /// Notes that something happened at `at`. What is noted counts whenever it is noted.
    #[inline]
    pub const fn note(&mut self, at: u64, what: u64) {
        let product = (at ^ SPREAD) as u128 * (what ^ OTHER_SPREAD) as u128;
        let word = (product as u64) ^ ((product >> 64) as u64) ^ at.rotate_left(17);
        self.sum = self.sum.wrapping_add(word);
    }

    /// Mixes bytes in, and how many there are.
    #[inline]
    pub fn mix_bytes(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            self.mix(u64::from_le_bytes(eight));
        }
        let rest = words.remainder().iter().rev();
        let rest = rest.fold(0, |word, &byte| word << 8 | u64::from(byte));
        self.mix(rest ^ (bytes.len() as u64).rotate_left(32));
    }

    /// The hash so far.
    pub const fn value(self) -> u64 {
        spread(self.chain ^ self.sum)
    }
}

/// Each bit of a word changes about half of the result's.
#[inline]
const fn spread(word: u64) -> u64 {
    let product = word as u128 * SPREAD as u128;
    let high = ((product >> 64) as u64).wrapping_add(word);
    (product as u64) ^ high.rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[u64]) -> u64 {
        let mut hash = RunHash::new(1);
        words.iter().for_each(|&w| hash.mix(w));
        hash.value()
    }

    #[test]
    fn every_word_every_bit_and_the_order_count() {
        let mut seen = std::collections::BTreeSet::new();
        assert!(seen.insert(of(&[1, 2, 3])) && seen.insert(of(&[1, 3, 2])));
        assert!(seen.insert(of(&[1, 2])) && seen.insert(of(&[1, 2, 0])) && seen.insert(of(&[])));
        for place in 0..3 {
            for bit in 0..64 {
                let mut words = [1, 2, 3];
                words[place] ^= 1 << bit;
                assert!(seen.insert(of(&words)), "word {place}, bit {bit}");
            }
        }
    }

    #[test]
    fn notes_count_in_any_order_each_by_its_time_and_what_it_says() {
        let of = |notes: &[(u64, u64)]| {
            let mut hash = RunHash::new(1);
            notes.iter().for_each(|&(at, what)| hash.note(at, what));
            hash.value()
        };
        assert_eq!(of(&[(1, 2), (3, 4)]), of(&[(3, 4), (1, 2)]));
        let mut seen = std::collections::BTreeSet::from([of(&[]), of(&[(0, 0)])]);
        for (at, what) in (0..64).flat_map(|bit| [(1 << bit, 0), (0, 1 << bit), (1 << bit, 7)]) {
            assert!(seen.insert(of(&[(at, what)])), "{at}, {what}");
        }
        assert_ne!(of(&[(1, 2), (3, 4)]), of(&[(1, 4), (3, 2)]), "times and words belong together");
    }

    #[test]
    fn bytes_differ_from_the_same_bytes_and_a_zero() {
        let of = |bytes: &[u8]| {
            let mut hash = RunHash::new(0);
            hash.mix_bytes(bytes);
            hash.value()
        };
        assert_ne!(of(&[1, 2, 3]), of(&[1, 2, 3, 0]));
        assert_ne!(of(&[0; 8]), of(&[0; 16]));
    }
}
