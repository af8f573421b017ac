//! The row: all units of an object, numbered.
//!
//! The blocks of all files in manifest order, each followed by its [`TRAILER`], are cut into
//! units of one payload size; a block's last unit is shorter, and no unit crosses a block. So the
//! number of a unit says by arithmetic alone which bytes of which file it carries, and neither
//! side keeps a table of them: only the number of units before each file.

use std::ops::Range;

use crate::manifest::Manifest;

/// Content bytes in a block, except a file's last: 256 chunks of BLAKE3.
pub const BLOCK: u64 = 262_144;

/// Bytes of a block's BLAKE3 value, which follow its content.
pub const TRAILER: usize = 32;

/// The most units in a row: their numbers are 48 bits wide.
pub const MAX_UNITS: u64 = 1 << 48;

/// The arithmetic of an object's units.
#[derive(Debug, Clone)]
pub struct Row {
    unit_payload: u16,
    units_per_block: u64,
    content_bytes: u64,
    blocks: u64,
    sizes: Vec<u64>,
    /// `first_units[f]` is the number of units before file `f`; one more at the end.
    first_units: Vec<u64>,
}

/// What one unit carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The file: its place in the manifest.
    pub file: u32,
    /// The block, counted in its file.
    pub block: u64,
    /// Where the unit starts in the block's content and trailer, in bytes.
    pub offset: u32,
    /// The unit's payload in bytes.
    pub len: u16,
}

/// Why there is no such row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Units without payload carry nothing.
    #[error("a unit cannot carry zero bytes")]
    NoPayload,
    /// The row would have more than [`MAX_UNITS`] units.
    #[error("the object has more than 2^48 units")]
    TooLong,
    /// More files than a 32-bit number can name.
    #[error("the object has too many files")]
    TooManyFiles,
}

impl Row {
    /// The row of files with these sizes in bytes, cut into units of `unit_payload` bytes.
    /// Directories and empty files have size zero and no unit.
    ///
    /// # Errors
    /// When the payload is zero or the row is longer than a row can be.
    pub fn new(sizes: &[u64], unit_payload: u16) -> Result<Row, RowError> {
        Row::from_sizes(sizes.to_vec(), unit_payload)
    }

    /// The row of an object: entry `i` of the manifest is file `i`.
    ///
    /// # Errors
    /// As [`Row::new`].
    pub fn of(manifest: &Manifest, unit_payload: u16) -> Result<Row, RowError> {
        Row::from_sizes(manifest.entries.iter().map(|e| e.size).collect(), unit_payload)
    }

    fn from_sizes(sizes: Vec<u64>, unit_payload: u16) -> Result<Row, RowError> {
        if unit_payload == 0 {
            return Err(RowError::NoPayload);
        }
        u32::try_from(sizes.len()).map_err(|_| RowError::TooManyFiles)?;
        let units_per_block = units_in(BLOCK, unit_payload);
        let mut first_units = Vec::with_capacity(sizes.len() + 1);
        let (mut units, mut blocks, mut content_bytes) = (0u64, 0u64, 0u64);
        first_units.push(0);
        for &size in &sizes {
            // At most 2^46 * 2^18 + 2^18, below 2^65: the product alone needs the check.
            let whole = (size / BLOCK).checked_mul(units_per_block).ok_or(RowError::TooLong)?;
            let units_here = whole.saturating_add(units_in(size % BLOCK, unit_payload));
            units = units.saturating_add(units_here);
            if units > MAX_UNITS {
                return Err(RowError::TooLong);
            }
            first_units.push(units);
            blocks += blocks_in(size);
            content_bytes = content_bytes.checked_add(size).ok_or(RowError::TooLong)?;
        }
        Ok(Row { unit_payload, units_per_block, content_bytes, blocks, sizes, first_units })
    }

    /// How many units there are; they are numbered from zero.
    pub fn units(&self) -> u64 {
        *self.first_units.last().expect("there is always the sum of all files")
    }

    /// How many blocks all files have together.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many files there are, empty ones and directories included.
    pub fn files(&self) -> u32 {
        self.sizes.len() as u32
    }

    /// Content of all files in bytes, without trailers.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Payload bytes of all units: content and trailers.
    pub fn wire_bytes(&self) -> u64 {
        self.content_bytes + self.blocks * TRAILER as u64
    }

    /// Payload of a unit in bytes, except a block's last.
    pub fn unit_payload(&self) -> u16 {
        self.unit_payload
    }

    /// Content of a file in bytes; `None` when there is no such file.
    pub fn file_size(&self, file: u32) -> Option<u64> {
        self.sizes.get(file as usize).copied()
    }

    /// How many blocks a file has; none when it is empty or does not exist.
    pub fn file_blocks(&self, file: u32) -> u64 {
        self.file_size(file).map_or(0, blocks_in)
    }

    /// The units of a file; `None` when there is no such file.
    pub fn file_units(&self, file: u32) -> Option<Range<u64>> {
        let first = *self.first_units.get(file as usize)?;
        Some(first..*self.first_units.get(file as usize + 1)?)
    }

    /// Content of a block in bytes, without its trailer; `None` when there is no such block.
    pub fn block_content(&self, file: u32, block: u64) -> Option<u32> {
        let size = self.file_size(file)?;
        (block < blocks_in(size)).then(|| content_of(size, block))
    }

    /// The units of one block; `None` when there is no such block.
    pub fn block_units(&self, file: u32, block: u64) -> Option<Range<u64>> {
        let content = self.block_content(file, block)?;
        let first = self.first_units[file as usize] + block * self.units_per_block;
        Some(first..first + units_in(u64::from(content), self.unit_payload))
    }

    /// The units of some neighbouring blocks of a file, cut to those that exist.
    pub fn blocks_units(&self, file: u32, blocks: Range<u64>) -> Range<u64> {
        let end = blocks.end.min(self.file_blocks(file));
        if blocks.start >= end {
            return 0..0;
        }
        let first = self.block_units(file, blocks.start).map_or(0, |units| units.start);
        first..self.block_units(file, end - 1).map_or(first, |units| units.end)
    }

    /// What a unit carries; `None` past the end of the row. Logarithmic in the number of files.
    pub fn locate(&self, unit: u64) -> Option<Place> {
        let mut hint = u32::MAX;
        self.locate_near(unit, &mut hint)
    }

    /// As [`Row::locate`], in constant time when the unit is of the hinted file or of the next;
    /// leaves the unit's file in the hint. Any hint is right, a good one is fast.
    pub fn locate_near(&self, unit: u64, hint: &mut u32) -> Option<Place> {
        let file = self.file_of(unit, *hint)?;
        *hint = file;
        let size = self.sizes[file as usize];
        let inside = unit - self.first_units[file as usize];
        let block = inside / self.units_per_block;
        let offset = (inside % self.units_per_block) * u64::from(self.unit_payload);
        let framed = u64::from(content_of(size, block)) + TRAILER as u64;
        let len = (framed - offset).min(u64::from(self.unit_payload)) as u16;
        Some(Place { file, block, offset: offset as u32, len })
    }

    /// All units of the block that a unit belongs to; `None` past the end of the row.
    pub fn block_of(&self, unit: u64) -> Option<Range<u64>> {
        let place = self.locate(unit)?;
        self.block_units(place.file, place.block)
    }

    fn file_of(&self, unit: u64, hint: u32) -> Option<u32> {
        if unit >= self.units() {
            return None;
        }
        let holds = |file: u32| self.file_units(file).is_some_and(|u| u.contains(&unit));
        for near in [hint, hint.saturating_add(1)] {
            if holds(near) {
                return Some(near);
            }
        }
        Some(self.first_units.partition_point(|&first| first <= unit) as u32 - 1)
    }
}

/// How many blocks a file of `size` bytes has.
pub(crate) fn blocks_in(size: u64) -> u64 {
    size.div_ceil(BLOCK)
}

/// The content bytes of one existing block of a file of `size` bytes.
pub(crate) fn content_of(size: u64, block: u64) -> u32 {
    (size - block * BLOCK).min(BLOCK) as u32
}

/// The units of a block of `content` bytes; none without content.
fn units_in(content: u64, unit_payload: u16) -> u64 {
    if content == 0 { 0 } else { (content + TRAILER as u64).div_ceil(u64::from(unit_payload)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every unit of the row, by walking it.
    fn enumerate(sizes: &[u64], unit_payload: u16) -> Vec<Place> {
        let mut places = Vec::new();
        for (file, &size) in sizes.iter().enumerate() {
            let (mut rest, mut block) = (size, 0);
            while rest > 0 {
                let content = rest.min(BLOCK);
                let (mut offset, framed) = (0, content as u32 + TRAILER as u32);
                while offset < framed {
                    let len = (framed - offset).min(u32::from(unit_payload)) as u16;
                    places.push(Place { file: file as u32, block, offset, len });
                    offset += u32::from(len);
                }
                (rest, block) = (rest - content, block + 1);
            }
        }
        places
    }

    #[test]
    fn a_megabyte_of_default_units_has_188_units_a_block() {
        let row = Row::new(&[1_000_000], 1_400).unwrap();
        assert_eq!(row.blocks(), 4);
        assert_eq!(row.units(), 3 * 188 + 153);
        assert_eq!(row.wire_bytes(), 1_000_000 + 4 * 32);
        assert_eq!(row.block_of(200), Some(188..376));
        assert_eq!(row.locate(row.units()), None);
    }

    #[test]
    fn rows_that_cannot_be_numbered_are_refused() {
        assert_eq!(Row::new(&[1], 0).unwrap_err(), RowError::NoPayload);
        assert_eq!(Row::new(&[u64::MAX], 1).unwrap_err(), RowError::TooLong);
        assert_eq!(Row::new(&[u64::MAX; 9], 65_535).unwrap_err(), RowError::TooLong);
        assert_eq!(Row::new(&[1 << 48], 1).unwrap_err(), RowError::TooLong);
        assert!(Row::new(&[1 << 47], 1).is_ok());
    }

    #[test]
    fn a_row_without_content_has_no_units() {
        let row = Row::new(&[0, 0, 0], 1_400).unwrap();
        assert_eq!((row.units(), row.blocks(), row.files()), (0, 0, 3));
        assert_eq!(row.locate(0), None);
        assert_eq!(row.block_units(1, 0), None);
        assert_eq!(Row::new(&[], 1_400).unwrap().units(), 0);
    }

    fn sizes() -> impl Strategy<Value = Vec<u64>> {
        let size = prop_oneof![Just(0), 1..5_000u64, (BLOCK - 40)..(3 * BLOCK + 40), Just(BLOCK)];
        proptest::collection::vec(size, 0..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn arithmetic_agrees_with_walking_the_row(
            sizes in sizes(), unit_payload in 500u16.., hint in any::<u32>(),
        ) {
            let row = Row::new(&sizes, unit_payload).unwrap();
            let places = enumerate(&sizes, unit_payload);
            prop_assert_eq!(row.units(), places.len() as u64);
            let (mut near, mut wire) = (hint, 0);
            for (unit, place) in places.iter().enumerate() {
                let unit = unit as u64;
                prop_assert_eq!(row.locate(unit), Some(*place));
                prop_assert_eq!(row.locate_near(unit, &mut near), Some(*place));
                let block = row.block_units(place.file, place.block).unwrap();
                prop_assert!(block.contains(&unit));
                prop_assert_eq!(row.block_of(unit), Some(block));
                wire += u64::from(place.len);
            }
            prop_assert_eq!(row.wire_bytes(), wire);
            for file in 0..row.files() {
                let all = row.blocks_units(file, 0..row.file_blocks(file));
                if !all.is_empty() {
                    prop_assert_eq!(Some(all), row.file_units(file));
                }
            }
        }
    }
}
