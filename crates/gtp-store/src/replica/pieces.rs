//! Pieces of a small file, so that of one of which an older version is there only those that differ
//! need travel.
//!
//! Whoever has the older version sums its pieces up with a key that is drawn anew each time;
//! whoever has the new one says which of them stay, and gives the rest. A piece of the older
//! version stays if the new one holds the same bytes at the same place, so a file that has only
//! grown keeps all.

use super::deed::SMALL_MAX;

/// Bytes of a piece. The last one may be shorter.
pub const PIECE: usize = 1 << 10;

/// The sum of a piece. Two that differ have one sum by chance in 2^64 cases.
pub type PieceSum = [u8; 8];

/// What makes a new version of a file of an older one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The pieces of the older version that stay, one bit each, from the lowest on.
    pub kept: u64,
    /// What is not in them, in order.
    pub rest: Vec<u8>,
}

/// The sums of all pieces of a file.
pub fn piece_sums(content: &[u8], key: &[u8; 32]) -> Vec<PieceSum> {
    content.chunks(PIECE).map(|piece| sum(piece, key)).collect()
}

fn sum(piece: &[u8], key: &[u8; 32]) -> PieceSum {
    let hash = blake3::keyed_hash(key, piece);
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

impl Patch {
    /// What makes `new` of an older version of `old_size` bytes whose pieces have these sums.
    pub fn of(new: &[u8], old_size: u64, sums: &[PieceSum], key: &[u8; 32]) -> Patch {
        let mut patch = Patch { kept: 0, rest: Vec::new() };
        for (number, piece) in new.chunks(PIECE).enumerate().take(PIECES_MAX) {
            let old = old_length(old_size, number);
            let stays = old > 0
                && sums.get(number).zip(piece.get(..old)).is_some_and(|(old, same)| {
                    // A sum is of a whole piece, so the length is part of it.
                    *old == sum(same, key)
                });
            if stays {
                patch.kept |= 1 << number;
            }
            patch.rest.extend_from_slice(if stays { &piece[old..] } else { piece });
        }
        patch
    }

    /// Makes the new version, of `size` bytes, of the older one; `None` if they do not fit.
    pub fn apply(&self, old: &[u8], size: usize) -> Option<Vec<u8>> {
        if size > SMALL_MAX {
            return None;
        }
        let (mut new, mut rest) = (Vec::with_capacity(size), &self.rest[..]);
        for number in 0..size.div_ceil(PIECE) {
            let at = number * PIECE;
            let length = PIECE.min(size - at);
            let stays = match self.kept >> number & 1 {
                0 => &[][..],
                _ => old.get(at..old.len().min(at + PIECE))?,
            };
            let (more, left) = rest.split_at_checked(length.checked_sub(stays.len())?)?;
            new.extend_from_slice(stays);
            new.extend_from_slice(more);
            rest = left;
        }
        (rest.is_empty() && new.len() == size).then_some(new)
    }
}

/// The length of a piece of a file of this size; 0 beyond its end.
fn old_length(size: u64, number: usize) -> usize {
    let left = size.saturating_sub((number * PIECE) as u64);
    usize::try_from(left).unwrap_or(usize::MAX).min(PIECE)
}

/// The most pieces of a small file: one for each bit.
const PIECES_MAX: usize = SMALL_MAX / PIECE;
const _: () = assert!(PIECES_MAX == 64);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn patch(old: &[u8], new: &[u8]) -> Patch {
        Patch::of(new, old.len() as u64, &piece_sums(old, &KEY), &KEY)
    }

    /// Bytes that do not repeat.
    fn bytes(count: usize) -> Vec<u8> {
        let mut content = vec![0; count];
        blake3::Hasher::new().finalize_xof().fill(&mut content);
        content
    }

    #[test]
    fn of_a_file_that_has_grown_only_what_is_new_travels() {
        let old = bytes(2 * PIECE + 100);
        let new = [&old[..], b"more"].concat();
        assert_eq!(patch(&old, &new), Patch { kept: 0b111, rest: b"more".to_vec() });
        let whole = bytes(2 * PIECE);
        let new = [&whole[..], b"more"].concat();
        assert_eq!(patch(&whole, &new), Patch { kept: 0b11, rest: b"more".to_vec() });
    }

    #[test]
    fn of_a_file_in_which_a_byte_has_changed_one_piece_travels() {
        let old = bytes(SMALL_MAX);
        let mut new = old.clone();
        new[5 * PIECE + 3] ^= 1;
        let patch = patch(&old, &new);
        assert_eq!((patch.kept, patch.rest.len()), (!(1 << 5), PIECE));
        assert_eq!(patch.apply(&old, new.len()), Some(new));
    }

    #[test]
    fn a_patch_that_does_not_fit_makes_nothing() {
        let (old, new) = (bytes(3_000), bytes(3_500));
        let fits = patch(&old, &new);
        assert_eq!(fits.apply(&old, 3_500).as_deref(), Some(&new[..]));
        assert_eq!(fits.apply(&old, 3_499), None, "a rest is left");
        assert_eq!(fits.apply(&old, 3_501), None, "the rest is too short");
        assert_eq!(fits.apply(&old[..2_000], 3_500), None, "a piece is shorter");
        assert_eq!(fits.apply(&[], 3_500), None, "no older version");
        assert_eq!(Patch { kept: 1, rest: Vec::new() }.apply(&old, 100), None, "it is longer");
        assert_eq!(Patch { kept: 0, rest: vec![0; SMALL_MAX + 1] }.apply(&[], SMALL_MAX + 1), None);
    }

    proptest! {
        #[test]
        fn whatever_has_changed_the_new_version_comes_out(
            old in proptest::collection::vec(0..2_u8, 0..5_000),
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            length in 0..5_000_usize,
        ) {
            let mut new = old.clone();
            new.resize(length, 1);
            for (at, byte) in edits {
                if !new.is_empty() {
                    let at = at.index(new.len());
                    new[at] = byte;
                }
            }
            let patch = patch(&old, &new);
            prop_assert!(patch.rest.len() <= new.len());
            prop_assert_eq!(patch.apply(&old, new.len()), Some(new));
        }

        #[test]
        fn whatever_a_peer_says_no_more_is_made_than_it_says(
            kept: u64,
            rest in proptest::collection::vec(any::<u8>(), 0..3_000),
            old in proptest::collection::vec(any::<u8>(), 0..3_000),
            size in 0..100_000_usize,
        ) {
            if let Some(new) = (Patch { kept, rest }).apply(&old, size) {
                prop_assert_eq!(new.len(), size);
            }
        }
    }
}
