//! The blocks of an object that a source session holds ready.
//!
//! What will be asked for soon is read ahead, and what was sent lately is kept for a while, so
//! that a lost unit is repaired without reading its block again. The cache knows blocks by their
//! first unit; it does not know where they come from. What lies in memory anyway is lent when its
//! turn has come, and is neither read ahead nor copied.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use gtp_proto::Supplied;
use gtp_store::{Framed, Lender, Row, TRAILER, new_framed};
use gtp_sys::prefetch;

/// Blocks at hand and on their way.
#[derive(Default)]
pub(super) struct Cache {
    slots: Vec<Slot>,
    /// The slot of each block, by its first unit.
    index: BTreeMap<u64, usize>,
    /// The slot of the last unit that was supplied.
    current: Option<usize>,
    /// Where in its block that unit lies.
    supplied: Range<usize>,
    turn: u64,
    /// Buffers to be used again, the one that was touched last at the end.
    spare: Vec<Framed>,
    most: usize,
    lender: Option<Box<dyn Lender>>,
    /// Blocks that the session has come to since the last read-ahead.
    pub moved_on: usize,
    /// Something was asked for that was not at hand.
    pub hungry: bool,
}

struct Slot {
    units: Range<u64>,
    used: u64,
    held: Held,
}

enum Held {
    Reading,
    Loaded(Framed),
    Lent(Bytes),
}

impl Held {
    /// Nothing of a block that is being read.
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Held::Reading => &[],
            Held::Loaded(bytes) => bytes,
            Held::Lent(bytes) => bytes,
        }
    }
}

/// A block that is to be read.
pub(super) struct Missing {
    pub file: u32,
    pub block: u64,
    pub first_unit: u64,
    pub buffer: Framed,
}

impl Cache {
    /// A cache that first asks `lender` for what is not at hand.
    pub fn new(lender: Option<Box<dyn Lender>>) -> Cache {
        Cache { lender, ..Cache::default() }
    }

    /// Whether blocks need not be read ahead.
    pub fn lends(&self) -> bool {
        self.lender.is_some()
    }

    /// Holds at most `most` blocks from now on.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Gives back the memory of what is held beyond that. What is being read stays until the next
    /// call.
    pub fn give_back(&mut self) {
        while self.slots.len() > self.most && self.evict() {}
        self.spare.truncate(self.most.saturating_sub(self.slots.len()));
        self.spare.shrink_to_fit();
    }

    /// Blocks' worth of memory that it holds.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.slots.len() + self.spare.len()
    }

    /// Whether the bytes of `unit` are at hand; [`Cache::supplied`] gives them.
    pub fn supply(&mut self, row: &Row, unit: u64) -> Supplied {
        let current = self.current.and_then(|at| self.slots.get(at));
        let here = current.is_some_and(|slot| slot.units.contains(&unit));
        if !here && unit >= row.units() {
            return Supplied::NoSuchUnit;
        }
        let at_hand = here || self.move_on(row, unit);
        let Some(bytes) = at_hand.then(|| self.locate(row, unit)).flatten() else {
            self.hungry = true;
            return Supplied::NotYet;
        };
        let length = bytes.len() as u16;
        prefetch::soon(self.behind(&bytes));
        self.supplied = bytes;
        Supplied::Ready(length)
    }

    /// The next unit of the current block, of which this is one; nothing behind the last one.
    #[inline]
    fn behind(&self, unit: &Range<usize>) -> &[u8] {
        let slot = self.current.and_then(|at| self.slots.get(at));
        let rest = slot.and_then(|slot| slot.held.bytes().get(unit.end..)).unwrap_or_default();
        &rest[..rest.len().min(unit.len())]
    }

    /// The bytes of the unit that was supplied last, until anything else is asked of the cache.
    #[inline]
    pub fn supplied(&self) -> &[u8] {
        let slot = self.current.and_then(|at| self.slots.get(at));
        slot.and_then(|slot| slot.held.bytes().get(self.supplied.clone())).unwrap_or_default()
    }

    /// The session has come to the block of `unit`. `false`: that is neither here nor on its way.
    fn move_on(&mut self, row: &Row, unit: u64) -> bool {
        let Some(at) = self.find(unit).or_else(|| self.borrow(row, unit)) else { return false };
        self.current = Some(at);
        self.moved_on += 1;
        self.turn += 1;
        self.slots[at].used = self.turn;
        true
    }

    /// Where the bytes of `unit` lie in the current block, which is its own.
    fn locate(&self, row: &Row, unit: u64) -> Option<Range<usize>> {
        let slot = &self.slots[self.current?];
        let payload = usize::from(row.unit_payload());
        let start = (unit - slot.units.start) as usize * payload;
        let end = slot.held.bytes().len().min(start + payload);
        (start < end).then_some(start..end)
    }

    /// Has the block of `unit` lent; says in which slot it is then.
    fn borrow(&mut self, row: &Row, unit: u64) -> Option<usize> {
        let place = row.locate(unit)?;
        let units = row.block_units(place.file, place.block)?;
        let lent = self.lent(row, place.file, place.block)?;
        if self.slots.len() >= self.most && !self.evict() {
            return None;
        }
        let at = self.slots.len();
        self.index.insert(units.start, at);
        self.slots.push(Slot { units, used: self.turn, held: Held::Lent(lent) });
        Some(at)
    }

    /// A block as it is lent: whole, or it has to be read like one that is not.
    fn lent(&self, row: &Row, file: u32, block: u64) -> Option<Bytes> {
        let lent = self.lender.as_ref()?.lend(file, block)?;
        (Some(lent.len()) == framed_len(row, file, block)).then_some(lent)
    }

    /// Marks the block of `unit` as wanted soon. If it must be read, says so, and makes room.
    pub fn want(&mut self, row: &Row, unit: u64) -> Wanted {
        self.turn += 1;
        if let Some(known) = self.find(unit) {
            let slot = &mut self.slots[known];
            slot.used = self.turn;
            return Wanted::Known(slot.units.end);
        }
        let Some(place) = row.locate(unit) else { return Wanted::Nowhere };
        let Some(units) = row.block_units(place.file, place.block) else { return Wanted::Nowhere };
        if self.lent(row, place.file, place.block).is_some() {
            return Wanted::Known(units.end);
        }
        while self.slots.len() >= self.most {
            if !self.evict() {
                return Wanted::NoRoom;
            }
        }
        let (first_unit, end) = (units.start, units.end);
        self.index.insert(first_unit, self.slots.len());
        self.slots.push(Slot { units, used: self.turn, held: Held::Reading });
        let buffer = self.spare.pop().unwrap_or_else(new_framed);
        let missing = Missing { file: place.file, block: place.block, first_unit, buffer };
        Wanted::Missing(missing, end)
    }

    /// Holds nothing any more: units are cut in another way.
    pub fn forget(&mut self) {
        self.index.clear();
        self.current = None;
        for slot in self.slots.drain(..) {
            if let Held::Loaded(buffer) = slot.held {
                self.spare.push(buffer);
            }
        }
    }

    /// A buffer comes back whose block is not wanted.
    pub fn take_back(&mut self, buffer: Framed) {
        self.spare.push(buffer);
    }

    /// A block was read.
    pub fn loaded(&mut self, first_unit: u64, content_and_trailer: Framed) {
        match self.index.get(&first_unit) {
            Some(&at) => self.slots[at].held = Held::Loaded(content_and_trailer),
            None => self.spare.push(content_and_trailer),
        }
    }

    /// The slot that holds `unit`.
    fn find(&self, unit: u64) -> Option<usize> {
        let (_, &at) = self.index.range(..=unit).next_back()?;
        self.slots[at].units.contains(&unit).then_some(at)
    }

    /// Drops the block that was used longest ago, unless all are being read.
    fn evict(&mut self) -> bool {
        let ready = self.slots.iter().enumerate().filter(|(_, slot)| match slot.held {
            Held::Reading => false,
            Held::Loaded(_) | Held::Lent(_) => true,
        });
        let Some((oldest, _)) = ready.min_by_key(|(_, slot)| slot.used) else { return false };
        self.current = None;
        let evicted = self.slots.swap_remove(oldest);
        self.index.remove(&evicted.units.start);
        if let Some(moved) = self.slots.get(oldest) {
            self.index.insert(moved.units.start, oldest);
        }
        match evicted.held {
            Held::Loaded(buffer) => self.spare.push(buffer),
            Held::Reading | Held::Lent(_) => {}
        }
        true
    }
}

/// Bytes of a block's content and its trailer.
pub(super) fn framed_len(row: &Row, file: u32, block: u64) -> Option<usize> {
    Some(row.block_content(file, block)? as usize + TRAILER)
}

/// What [`Cache::want`] says of a unit's block.
pub(super) enum Wanted {
    /// It is here, on its way, or lent when its turn has come; it ends before this unit.
    Known(u64),
    /// It must be read; it ends before this unit.
    Missing(Missing, u64),
    /// There is no such unit.
    Nowhere,
    /// All room is taken by blocks that are still being read.
    NoRoom,
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_store::BLOCK;

    #[test]
    fn recent_blocks_stay_and_the_longest_unused_one_makes_room() {
        let row = Row::new(&[10 * BLOCK], 1_400).unwrap();
        let first = |block| row.block_units(0, block).unwrap().start;
        let mut cache = Cache::default();
        cache.set_most(3);
        for block in 0..3 {
            assert!(matches!(cache.want(&row, first(block)), Wanted::Missing(..)));
        }
        assert!(matches!(cache.want(&row, first(3)), Wanted::NoRoom));
        for block in 0..3 {
            cache.loaded(first(block), framed(block as u8));
        }
        assert_eq!(cache.supply(&row, first(0)), Supplied::Ready(1_400));
        assert_eq!(cache.supply(&row, first(1) - 1), Supplied::Ready(376));
        assert!(matches!(cache.want(&row, first(3)), Wanted::Missing(..)));
        assert_eq!(cache.supply(&row, first(1)), Supplied::NotYet);
        assert_eq!(cache.supply(&row, first(3)), Supplied::NotYet);
        assert_eq!(cache.supply(&row, first(2)), Supplied::Ready(1_400));
        assert_eq!(cache.supplied()[0], 2);
        assert_eq!(cache.supply(&row, row.units()), Supplied::NoSuchUnit);
    }

    /// A block of such bytes, with its trailer.
    fn framed(byte: u8) -> Framed {
        let mut framed = new_framed();
        framed.resize(BLOCK as usize + TRAILER, byte);
        framed
    }

    struct Shelf(Bytes);

    impl Lender for Shelf {
        fn lend(&self, _: u32, block: u64) -> Option<Bytes> {
            (block < 4).then(|| self.0.clone())
        }
    }

    #[test]
    fn a_lent_block_is_at_hand_when_its_turn_comes_and_any_other_is_read() {
        let row = Row::new(&[10 * BLOCK], 1_400).unwrap();
        let first = |block| row.block_units(0, block).unwrap().start;
        let framed = Bytes::from(vec![7; BLOCK as usize + 32]);
        let mut cache = Cache::new(Some(Box::new(Shelf(framed.clone()))));
        cache.set_most(2);
        for block in [0, 1, 2, 3, 1, 0] {
            let unit = first(block);
            assert_eq!(cache.supply(&row, unit), Supplied::Ready(1_400));
            assert_eq!(cache.supplied().as_ptr(), framed.as_ptr(), "not a copy");
        }
        assert!(!cache.hungry);
        assert_eq!(cache.supply(&row, first(4)), Supplied::NotYet);
        assert!(cache.hungry);
        assert!(matches!(cache.want(&row, first(4)), Wanted::Missing(..)));
        assert_eq!(cache.supply(&row, row.units()), Supplied::NoSuchUnit);
    }

    #[test]
    fn what_is_lent_is_not_read_ahead_and_what_is_lent_in_part_is_read() {
        let row = Row::new(&[10 * BLOCK], 1_400).unwrap();
        let first = |block| row.block_units(0, block).unwrap().start;
        let mut cache = Cache::new(Some(Box::new(Shelf(vec![7; BLOCK as usize + 32].into()))));
        cache.set_most(4);
        assert!(matches!(cache.want(&row, first(3)), Wanted::Known(end) if end == first(4)));
        assert!(matches!(cache.want(&row, first(4)), Wanted::Missing(..)));
        for length in [0, 1_400, BLOCK as usize, BLOCK as usize + 33] {
            let mut cache = Cache::new(Some(Box::new(Shelf(vec![7; length].into()))));
            cache.set_most(4);
            assert_eq!(cache.supply(&row, first(1) - 1), Supplied::NotYet);
            let Wanted::Missing(missing, _) = cache.want(&row, 0) else { panic!("{length}") };
            cache.loaded(missing.first_unit, framed(8));
            assert_eq!(cache.supply(&row, first(1) - 1), Supplied::Ready(376));
        }
    }

    #[test]
    fn memory_is_given_back_when_less_is_allowed() {
        let row = Row::new(&[20 * BLOCK], 1_400).unwrap();
        let first = |block| row.block_units(0, block).unwrap().start;
        let mut cache = Cache::default();
        cache.set_most(8);
        for block in 0..16 {
            assert!(matches!(cache.want(&row, first(block)), Wanted::Missing(..)));
            cache.loaded(first(block), framed(1));
        }
        assert!(matches!(cache.want(&row, first(16)), Wanted::Missing(..)), "it is being read");
        cache.set_most(3);
        cache.give_back();
        assert_eq!(cache.held(), 3);
        assert_eq!(cache.supply(&row, first(15)), Supplied::Ready(1_400), "the newest are here");
        assert_eq!(cache.supply(&row, first(13)), Supplied::NotYet);
        cache.loaded(first(16), framed(1));
        assert_eq!(cache.supply(&row, first(16)), Supplied::Ready(1_400));
    }
}
