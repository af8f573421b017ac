//! Blocks that are being put together from units.
//!
//! A block is opened when its units are asked for, gets its buffer with the first unit that
//! arrives, and leaves whole. Buffers are used again, so memory is touched once. Whether a unit is
//! wanted is the core's question; where it goes and how long it must be is answered here.

use std::collections::VecDeque;
use std::ops::Range;

use gtp_alloc::Bytes;
use gtp_proto::{FlowId, Group, RangeSet};
use gtp_store::Row;
use gtp_sys::prefetch;

/// All open blocks of one transfer, in order: they are opened at the end and mostly leave at the
/// front.
#[derive(Default)]
pub(super) struct Assembly {
    open: VecDeque<Block>,
    /// Where the last unit went: the next one mostly goes there as well.
    recent: usize,
    spare: Vec<Vec<u8>>,
    /// Bytes of the open blocks with their trailers.
    bytes: u64,
}

/// One open block.
struct Block {
    units: Range<u64>,
    file: u32,
    block: u64,
    /// With its trailer.
    length: usize,
    bytes: Vec<u8>,
    /// One bit a unit.
    present: Vec<u64>,
    missing: u64,
    brought: Vec<(FlowId, u64)>,
}

/// A block that has all its units.
pub(super) struct Whole {
    pub units: Range<u64>,
    pub file: u32,
    pub block: u64,
    pub bytes: Vec<u8>,
    /// Payload bytes that each session brought.
    pub brought: Vec<(FlowId, u64)>,
}

/// What became of a unit.
pub(super) enum Placed {
    /// It is in place.
    Kept,
    /// It was the last of its block.
    Completed(Whole),
    /// It is here already.
    Twice,
    /// Its block is not open.
    NotOpen,
    /// Its length is not that of the unit it says it is.
    WrongLength,
}

impl Assembly {
    /// How many blocks are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// How long they are together, with their trailers.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// The place of the block of `unit`, or the place where it would be.
    #[inline]
    fn find(&self, unit: u64) -> Result<usize, usize> {
        let recent = self.open.get(self.recent);
        if recent.is_some_and(|block| block.units.contains(&unit)) {
            return Ok(self.recent);
        }
        self.search(unit)
    }

    #[inline(never)]
    fn search(&self, unit: u64) -> Result<usize, usize> {
        let here = |at: usize| self.open.get(at).is_some_and(|block| block.units.contains(&unit));
        let next = self.open.partition_point(|block| block.units.start <= unit);
        let before = next.checked_sub(1).filter(|&at| here(at));
        before.ok_or(next)
    }

    /// Whether `unit` is in place.
    #[cfg(test)]
    pub fn holds(&self, unit: u64) -> bool {
        let Ok(at) = self.search(unit) else { return false };
        let block = &self.open[at];
        let index = unit - block.units.start;
        block.present[(index / 64) as usize] & (1 << (index % 64)) != 0
    }

    /// Whether the block of `unit` is open.
    pub fn is_open(&self, unit: u64) -> bool {
        self.find(unit).is_ok()
    }

    /// Opens the block of `unit` if it is not.
    pub fn open(&mut self, row: &Row, unit: u64) {
        let Err(at) = self.find(unit) else { return };
        let Some(place) = row.locate(unit) else { return };
        let Some(units) = row.block_units(place.file, place.block) else { return };
        let missing = units.end - units.start;
        let content = row.block_content(place.file, place.block).unwrap_or(0) as usize;
        let length = content + gtp_store::TRAILER;
        self.bytes += length as u64;
        let block = Block {
            units,
            file: place.file,
            block: place.block,
            length,
            bytes: Vec::new(),
            present: vec![0; missing.div_ceil(64) as usize],
            missing,
            brought: Vec::new(),
        };
        self.open.insert(at, block);
    }

    /// Puts a unit in its place.
    #[inline]
    pub fn place(&mut self, row: &Row, flow: FlowId, unit: u64, payload: &[u8]) -> Placed {
        let Ok(at) = self.find(unit) else { return Placed::NotOpen };
        self.recent = at;
        let block = &mut self.open[at];
        if block.bytes.is_empty() {
            let spare = self.spare.pop();
            block.take_room(spare.unwrap_or_default());
        }
        let index = unit - block.units.start;
        let start = (index * u64::from(row.unit_payload())) as usize;
        let end = block.bytes.len().min(start + usize::from(row.unit_payload()));
        if payload.len() != end - start {
            return Placed::WrongLength;
        }
        let (word, bit) = (&mut block.present[(index / 64) as usize], 1 << (index % 64));
        if *word & bit != 0 {
            return Placed::Twice;
        }
        *word |= bit;
        block.missing -= 1;
        block.bytes[start..end].copy_from_slice(payload);
        let behind = block.bytes.len().min(end + payload.len());
        prefetch::soon(&block.bytes[end..behind]);
        block.credit(flow, payload.len() as u64);
        if block.missing > 0 { Placed::Kept } else { self.complete(at) }
    }

    /// The block at this place has all its units.
    #[inline(never)]
    fn complete(&mut self, at: usize) -> Placed {
        match self.close(at) {
            Some(block) => Placed::Completed(block.whole()),
            None => Placed::NotOpen,
        }
    }

    fn close(&mut self, at: usize) -> Option<Block> {
        let block = self.open.remove(at)?;
        self.bytes -= block.length as u64;
        Some(block)
    }

    /// Nobody is asked for the missing units of `range` any more: blocks of it of which nothing
    /// has arrived need no room.
    pub fn give_back(&mut self, range: Range<u64>) {
        let meets = |units: &Range<u64>| units.start < range.end && range.start < units.end;
        let bytes = &mut self.bytes;
        self.open.retain(|block| {
            let stays = !block.brought.is_empty() || !meets(&block.units);
            *bytes -= if stays { 0 } else { block.length as u64 };
            stays
        });
    }

    /// The blocks of which something has arrived, and of whose rest some is in `missing` and nobody
    /// else is asked for any.
    pub fn left_unfinished(&self, missing: &RangeSet, group: &Group) -> Vec<Range<u64>> {
        let left = |block: &&Block| {
            let units = || block.units.clone();
            let back: u64 = missing.within(units()).map(|range| range.end - range.start).sum();
            let brought = !block.brought.is_empty();
            brought && back > 0 && back + group.free_in(units()) == block.missing
        };
        self.open.iter().filter(left).map(|block| block.units.clone()).collect()
    }

    /// What has arrived of the block that begins with this unit does not count: it will come anew.
    pub fn forget(&mut self, first: u64) {
        let begins = |&at: &usize| self.open[at].units.start == first;
        let block = self.find(first).ok().filter(begins).and_then(|at| self.close(at));
        if let Some(block) = block
            && !block.bytes.is_empty()
        {
            self.spare.push(block.bytes);
        }
    }

    /// A buffer can be used again, unless there are as many as this may have in all.
    pub fn recycle(&mut self, bytes: Vec<u8>, most: usize) {
        if self.held() < most {
            self.spare.push(bytes);
        }
    }

    /// Gives back the memory of buffers that nothing is in, beyond so many in all.
    pub fn give_back_memory(&mut self, most: usize) {
        self.spare.truncate(most.saturating_sub(self.open.len()));
        self.spare.shrink_to_fit();
    }

    /// Blocks' worth of memory that it holds, or is about to.
    fn held(&self) -> usize {
        self.open.len() + self.spare.len()
    }
}

impl Block {
    /// Gets its buffer.
    #[cold]
    fn take_room(&mut self, spare: Vec<u8>) {
        self.bytes = spare;
        self.bytes.resize(self.length, 0);
    }

    #[inline]
    fn credit(&mut self, flow: FlowId, bytes: u64) {
        match self.brought.iter_mut().find(|(id, _)| *id == flow) {
            Some((_, sum)) => *sum += bytes,
            None => self.brought.push((flow, bytes)),
        }
    }

    fn whole(self) -> Whole {
        let Block { units, file, block, bytes, brought, .. } = self;
        Whole { units, file, block, bytes, brought }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_store::{BLOCK, TRAILER};

    #[test]
    fn units_in_any_order_make_the_block_and_each_counts_once() {
        let row = Row::new(&[BLOCK + 3_000], 1_400).unwrap();
        let units = row.block_units(0, 1).unwrap();
        let bytes: Vec<u8> = (0..3_000 + TRAILER).map(|i| i as u8).collect();
        let mut assembly = Assembly::default();
        assembly.open(&row, units.start + 1);
        let part = |i: usize| &bytes[i * 1_400..bytes.len().min((i + 1) * 1_400)];
        let mut place =
            |flow, i: usize| assembly.place(&row, flow, units.start + i as u64, part(i));
        assert!(matches!(place(7, 2), Placed::Kept));
        assert!(matches!(place(7, 2), Placed::Twice));
        assert!(matches!(place(8, 0), Placed::Kept));
        let Placed::Completed(whole) = place(7, 1) else { panic!("the block is whole") };
        assert_eq!((whole.file, whole.block, &whole.bytes), (0, 1, &bytes));
        assert_eq!(whole.brought, [(7, 232 + 1_400), (8, 1_400)]);
        assert_eq!(assembly.len(), 0);
    }

    #[test]
    fn a_block_is_left_unfinished_when_all_that_lacks_of_it_comes_back() {
        let row = Row::new(&[3 * BLOCK], 1_400).unwrap();
        let blocks: Vec<_> = (0..3).map(|block| row.block_units(0, block).unwrap()).collect();
        let mut assembly = Assembly::default();
        for units in &blocks {
            assembly.open(&row, units.start);
        }
        for units in &blocks[..2] {
            assembly.place(&row, 1, units.start, &[0; 1_400]);
        }
        let mut missing = RangeSet::new();
        missing.insert(blocks[0].start + 1..blocks[2].end);
        missing.remove_one(blocks[1].start);
        assert_eq!(assembly.left_unfinished(&missing, &Group::default()), blocks[..2]);
        missing.remove_one(blocks[1].start + 7);
        let mut group = Group::default();
        let left = assembly.left_unfinished(&missing, &group);
        assert_eq!(left, blocks[..1], "one unit may still come");
        let mut free = RangeSet::new();
        free.insert(blocks[1].start + 7..blocks[1].start + 8);
        group.give_back(&free);
        let left = assembly.left_unfinished(&missing, &group);
        assert_eq!(left, blocks[..2], "that unit was given back before");
    }

    #[test]
    fn open_blocks_count_by_their_own_lengths() {
        let row = Row::new(&[1_000, 2_000, BLOCK, 10], 1_400).unwrap();
        let first = |file| row.block_units(file, 0).unwrap().start;
        let framed = |content: u64| Bytes(content + TRAILER as u64);
        let mut assembly = Assembly::default();
        for file in [0, 1, 1, 2, 3] {
            assembly.open(&row, first(file));
        }
        assert_eq!(assembly.bytes(), Bytes(1_000 + 2_000 + BLOCK + 10 + 4 * TRAILER as u64));
        let placed = assembly.place(&row, 7, first(0), &[0; 1_000 + TRAILER]);
        assert!(matches!(placed, Placed::Completed(_)));
        assembly.place(&row, 7, first(1), &[0; 1_400]);
        assembly.forget(first(1));
        assert_eq!(assembly.bytes(), framed(BLOCK) + framed(10));
        assembly.give_back(first(2)..first(2) + 1);
        assert_eq!(assembly.bytes(), framed(10));
    }

    #[test]
    fn memory_is_given_back_when_less_is_allowed() {
        let row = Row::new(&[8 * BLOCK], 1_400).unwrap();
        let mut assembly = Assembly::default();
        for block in 0..2 {
            assembly.open(&row, row.block_units(0, block).unwrap().start);
        }
        for _ in 0..8 {
            assembly.recycle(vec![0; BLOCK as usize], 6);
        }
        assert_eq!(assembly.held(), 6);
        assembly.give_back_memory(3);
        assert_eq!(assembly.held(), 3);
        assembly.recycle(vec![0; BLOCK as usize], 3);
        assert_eq!(assembly.held(), 3);
    }

    #[test]
    fn a_unit_of_another_length_or_of_a_closed_block_is_not_kept() {
        let row = Row::new(&[2 * BLOCK], 1_400).unwrap();
        let mut assembly = Assembly::default();
        assembly.open(&row, 0);
        for len in [1, 1_399, 1_401, 9_000] {
            let placed = assembly.place(&row, 1, 0, &vec![0; len]);
            assert!(matches!(placed, Placed::WrongLength));
        }
        let other = row.block_units(0, 1).unwrap().start;
        assert!(matches!(assembly.place(&row, 1, other, &[0; 1_400]), Placed::NotOpen));
        assembly.give_back(0..1);
        assert_eq!(assembly.len(), 0);
    }
}
