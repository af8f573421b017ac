//! All blocks of an object, numbered.
//!
//! Two hosts that hold parts of one object tell each other which blocks they have. They may cut
//! blocks into units of different lengths, so they count blocks: those of all files in manifest
//! order, from zero. Names play no part, so a file has the same blocks under any name.

use std::ops::Range;

use crate::manifest::Manifest;
use crate::row::blocks_in;

/// The numbers of an object's blocks.
#[derive(Debug, Clone)]
pub struct BlockRow {
    /// The number of blocks before each entry; one more at the end.
    starts: Vec<u64>,
}

impl BlockRow {
    /// The blocks of an object: entry `i` of the manifest is file `i`.
    pub fn of(manifest: &Manifest) -> BlockRow {
        let mut next = 0_u64;
        let mut starts = vec![0];
        starts.extend(manifest.entries.iter().map(|entry| {
            // 2^20 entries of at most 2^58 bytes in all: no overflow.
            next += blocks_in(entry.size);
            next
        }));
        BlockRow { starts }
    }

    /// How many blocks there are.
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of a block of a file; `None` if there is no such block.
    pub fn number(&self, file: u32, block: u64) -> Option<u64> {
        let all = self.file(file)?;
        let number = all.start.checked_add(block)?;
        (number < all.end).then_some(number)
    }

    /// The numbers of a file's blocks; `None` if there is no such file.
    pub fn file(&self, file: u32) -> Option<Range<u64>> {
        let start = *self.starts.get(file as usize)?;
        Some(start..*self.starts.get(file as usize + 1)?)
    }

    /// The file of a block, and its place there; `None` past the end. Logarithmic in the number
    /// of files.
    pub fn locate(&self, number: u64) -> Option<(u32, u64)> {
        if number >= self.len() {
            return None;
        }
        // Files without blocks begin where the next one does.
        let after = self.starts.partition_point(|&start| start <= number);
        let file = after.checked_sub(1)?;
        Some((u32::try_from(file).ok()?, number - self.starts[file]))
    }

    /// A range of numbers as blocks of each file, cut to those that exist.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (u32, Range<u64>)> + '_ {
        let (mut at, end) = (range.start, range.end.min(self.len()));
        std::iter::from_fn(move || {
            let (file, first) = self.locate(at).filter(|_| at < end)?;
            let all = self.file(file)?;
            let stop = all.end.min(end);
            at = stop;
            Some((file, first..stop - all.start))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Entry, Kind, Mode, Mtime, RootKind};
    use crate::name::RelPath;
    use crate::row::BLOCK;

    fn row(sizes: &[u64]) -> BlockRow {
        let entry = |(n, &size): (usize, &u64)| Entry {
            path: RelPath::new(&format!("{n:03}")).unwrap(),
            kind: Kind::File,
            size,
            mode: Mode::new(0o644),
            mtime: Mtime::new(0, 0).unwrap(),
        };
        let entries = sizes.iter().enumerate().map(entry).collect();
        BlockRow::of(&Manifest { root_kind: RootKind::Dir, own: None, entries })
    }

    #[test]
    fn every_block_has_one_number_and_empty_files_have_none() {
        let row = row(&[0, BLOCK, 0, 0, 2 * BLOCK + 1, 1, 0]);
        assert_eq!(row.len(), 5);
        let all: Vec<_> = (0..5).map(|number| row.locate(number).unwrap()).collect();
        assert_eq!(all, [(1, 0), (4, 0), (4, 1), (4, 2), (5, 0)]);
        for (number, &(file, block)) in (0..).zip(&all) {
            assert_eq!(row.number(file, block), Some(number));
        }
        assert_eq!(row.locate(5), None);
        for (file, block) in [(0, 0), (1, 1), (5, 1), (6, 0), (7, 0), (1, u64::MAX)] {
            assert_eq!(row.number(file, block), None, "{file} {block}");
        }
    }

    #[test]
    fn a_range_falls_apart_at_the_ends_of_files_and_ends_with_the_object() {
        let row = row(&[2 * BLOCK, 0, BLOCK, 3 * BLOCK]);
        let parts = |range| row.parts(range).collect::<Vec<_>>();
        assert_eq!(parts(1..5), [(0, 1..2), (2, 0..1), (3, 0..2)]);
        assert_eq!(parts(4..u64::MAX), [(3, 1..3)]);
        assert_eq!(parts(6..9), []);
        assert_eq!(parts(3..3), []);
    }
}
