//! Blocks that several sources of the same files share: one source reads a block, the others take
//! it from memory.
//!
//! Each source is a reader. A block that one of them has read is kept until all others have taken
//! it, as far as memory allows. When memory is full, the block that fewest readers lack goes first,
//! and of those the one that was read last: a reader that has fallen behind comes to the older ones
//! sooner. What a reader does not find here it reads itself, so a slow reader never delays another
//! one. Values of blocks are kept longer than blocks, so that a block is hashed once. This module
//! opens no file.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gtp_ranges::RangeSet;

use crate::hash::Value;
use crate::manifest::Manifest;
use crate::row::blocks_in;
use crate::source::{Framed, new_framed};

/// The most readers on one set of blocks: a bit for each.
pub const MAX_READERS: usize = 64;

/// The most values that are kept: those of 64 GiB of content, in about 16 MB.
const MAX_VALUES: usize = 1 << 18;

/// The most ranges that are remembered of what one reader has taken, and of what has been read.
/// Sinks choose what readers take, so the ranges are bounded: at 48 bytes each, 200 kB for a
/// reader.
const MAX_PIECES: usize = 1 << 12;

/// The most blocks of which the turn is kept after them.
const MAX_RECENT: usize = 1 << 12;

/// What a block that is kept costs at least: its place in the tables, rounded up by far so that
/// they stay short.
const COST_LEAST: usize = 4_096;

/// The least number of blocks that are put in between two looks for blocks that nobody will take
/// any more. It is at least half the number of blocks kept, so that a put never costs more than two
/// looks at a block on average.
const PUTS_PER_LOOK: usize = 256;

/// A reader that has come to blocks that were read so many turns after another one will not ask for
/// that one any more: it has it from before. Repairs come sooner.
const BEHIND: u64 = 256;

/// Blocks of the same files, for several readers.
#[derive(Debug)]
pub(crate) struct SharedBlocks {
    /// The most memory for blocks.
    most: AtomicUsize,
    count: Arc<ReadCount>,
    state: Mutex<State>,
    /// A block that was being read is here, or could not be read.
    arrived: Condvar,
    failed: AtomicBool,
}

/// One source's access to shared blocks.
#[derive(Debug)]
pub(crate) struct BlockReader {
    blocks: Arc<SharedBlocks>,
    /// The number of each file's first block among all shared blocks.
    starts: Arc<[u64]>,
    number: usize,
}

/// Bytes that were read from files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadBytes {
    /// All of them.
    pub all: u64,
    /// Of them, those of blocks that had been read before.
    pub again: u64,
}

/// Counts bytes that are read from files.
#[derive(Debug, Default)]
pub struct ReadCount {
    all: AtomicU64,
    again: AtomicU64,
}

impl ReadCount {
    /// The bytes so far.
    pub fn bytes(&self) -> ReadBytes {
        let again = self.again.load(Ordering::Relaxed);
        ReadBytes { all: self.all.load(Ordering::Relaxed), again }
    }

    fn add(&self, bytes: usize, before: Before) {
        self.all.fetch_add(bytes as u64, Ordering::Relaxed);
        match before {
            Before::Never => {}
            Before::At(_) | Before::LongAgo => {
                self.again.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    }
}

/// When a block was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// So soon after the file's last change that the next one might not show.
    Early,
    /// Later than that.
    Settled,
}

/// What a reader gets when it asks for a block.
pub(crate) enum Taken<'a> {
    /// The block, which another source read then.
    Here(Timing),
    /// Nothing: the caller is to read the block, and others may wait for that.
    Missing(Claim<'a>),
}

/// The right to read a block, for all who want it. Dropped without the block, it passes to the next
/// one who wants it.
pub(crate) struct Claim<'a> {
    reader: &'a BlockReader,
    at: u64,
    /// When it was read before, if that was lately.
    before: Before,
}

/// Whether a block was read before.
#[derive(Clone, Copy, Debug)]
enum Before {
    Never,
    /// Lately, at this turn.
    At(u64),
    LongAgo,
}

#[derive(Debug, Default)]
struct State {
    slots: HashMap<u64, Slot>,
    /// Blocks that are here, the one that goes first in front.
    order: BTreeSet<Rank>,
    held: usize,
    /// Blocks put since the last look.
    puts: usize,
    turn: u64,
    readers: Vec<ReaderState>,
    read: RangeSet,
    /// When the blocks were read that were read last.
    recent: HashMap<u64, u64>,
    recent_in_order: VecDeque<u64>,
    values: HashMap<u64, Value>,
}

#[derive(Debug)]
enum Slot {
    Reading,
    Here(Kept),
}

#[derive(Debug)]
struct Kept {
    framed: Arc<Framed>,
    timing: Timing,
    /// The readers that lack it, a bit each.
    lacking: u64,
    turn: u64,
}

/// How many readers lack a block, its turn, and the block.
type Rank = (u32, Reverse<u64>, u64);

/// What is known of the source behind a reader.
#[derive(Clone, Debug, Default)]
struct ReaderState {
    gone: bool,
    taken: RangeSet,
    /// The turn of the newest block that it has come to.
    turn: u64,
}

impl ReaderState {
    /// Whether it will still ask for a block that was read at this turn, as far as can be said.
    fn lacks(&self, block: u64, turn: u64) -> bool {
        !self.gone && self.turn <= turn.saturating_add(BEHIND) && !self.taken.contains(block)
    }
}

/// Adds a block to a set, if the set stays within its bound.
fn note(set: &mut RangeSet, block: u64) {
    if set.pieces() < MAX_PIECES || block > 0 && set.contains(block - 1) {
        set.insert_one(block);
    }
}

impl SharedBlocks {
    /// Blocks for so many readers, in so much memory.
    pub fn new(readers: usize, most: usize, count: Arc<ReadCount>) -> Arc<SharedBlocks> {
        assert!(readers <= MAX_READERS, "every reader has a bit");
        let state = State { readers: vec![ReaderState::default(); readers], ..State::default() };
        let (state, arrived, failed) = (Mutex::new(state), Condvar::new(), AtomicBool::new(false));
        Arc::new(SharedBlocks { most: AtomicUsize::new(most), count, state, arrived, failed })
    }

    /// The reader of this number, on files whose blocks are numbered so.
    pub fn reader(self: &Arc<SharedBlocks>, number: usize, starts: Arc<[u64]>) -> BlockReader {
        BlockReader { blocks: Arc::clone(self), starts, number }
    }

    /// Nobody will use this reader any more: nothing is kept for it.
    pub fn leave(&self, number: usize) {
        let mut state = self.state();
        state.readers[number].gone = true;
        state.look();
    }

    /// Keeps nothing from now on.
    pub fn retire(&self) {
        self.most.store(0, Ordering::Relaxed);
        let mut state = self.state();
        while let Some(&first) = state.order.first() {
            state.drop_block(first.2);
        }
    }

    /// Whether a file could not be read, or is not the one that was listed any more.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of each file's first block where the first file's is `from`, and the number after
/// the last block.
pub(crate) fn number_blocks(manifest: &Manifest, from: u64) -> (Arc<[u64]>, u64) {
    let mut next = from;
    let starts = manifest.entries.iter().map(|entry| {
        let start = next;
        next += blocks_in(entry.size);
        start
    });
    (starts.collect(), next)
}

impl BlockReader {
    /// Replaces `out` with a block if it is here; waits if another source is reading it.
    pub fn take(&self, file: u32, block: u64, out: &mut Framed) -> Taken<'_> {
        let at = self.at(file, block);
        let mut state = self.blocks.state();
        loop {
            match state.slots.get(&at) {
                Some(Slot::Here(_)) => break,
                Some(Slot::Reading) => {
                    let waited = self.blocks.arrived.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    state.slots.insert(at, Slot::Reading);
                    return Taken::Missing(Claim { reader: self, at, before: state.before(at) });
                }
            }
        }
        let (framed, timing) = state.hand_out(at, self.number);
        drop(state);
        out.clear();
        out.extend_from_slice(&framed);
        Taken::Here(timing)
    }

    /// The value of a block that was read when a change would have shown.
    pub fn value(&self, file: u32, block: u64) -> Option<Value> {
        self.blocks.state().values.get(&self.at(file, block)).copied()
    }

    /// Notes the value of such a block.
    pub fn note_value(&self, file: u32, block: u64, value: Value) {
        let mut state = self.blocks.state();
        if state.values.len() < MAX_VALUES {
            state.values.insert(self.at(file, block), value);
        }
    }

    /// Notes that so many bytes of a block were read.
    pub fn note_read(&self, file: u32, block: u64, bytes: usize) {
        let at = self.at(file, block);
        let mut state = self.blocks.state();
        self.blocks.count.add(bytes, state.before(at));
        note(&mut state.read, at);
    }

    /// Notes that a file could not be read, or is another one.
    pub fn note_failure(&self) {
        self.blocks.failed.store(true, Ordering::Relaxed);
    }

    fn at(&self, file: u32, block: u64) -> u64 {
        self.starts[file as usize] + block
    }
}

impl Claim<'_> {
    /// Shares a block that was read as it was listed.
    pub fn share(self, framed: &[u8], timing: Timing) {
        let blocks = &self.reader.blocks;
        if blocks.state().finish(self.at, self.reader.number, self.before) == 0 {
            return;
        }
        // The copy is made without the lock, so that others take their blocks meanwhile.
        let mut copy = new_framed();
        copy.reserve_exact(framed.len());
        copy.extend_from_slice(framed);
        let mut state = blocks.state();
        // Nobody else has read it meanwhile: this claim is dropped at the end.
        let most = blocks.most.load(Ordering::Relaxed);
        state.put(self.at, (Arc::new(copy), timing), most);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.reader.blocks.state();
        if let Some(Slot::Reading) = state.slots.get(&self.at) {
            state.slots.remove(&self.at);
        }
        drop(state);
        self.reader.blocks.arrived.notify_all();
    }
}

impl State {
    /// Notes that a reader has read a block; returns the readers that lack it.
    fn finish(&mut self, at: u64, reader: usize, before: Before) -> u64 {
        self.turn += 1;
        let state = &mut self.readers[reader];
        note(&mut state.taken, at);
        match before {
            Before::Never => {
                state.turn = self.turn;
                self.note_turn(at);
            }
            Before::At(turn) => state.turn = state.turn.max(turn),
            Before::LongAgo => {}
        }
        self.lacking(at, self.turn)
    }

    fn note_turn(&mut self, at: u64) {
        self.recent.insert(at, self.turn);
        self.recent_in_order.push_back(at);
        if self.recent_in_order.len() > MAX_RECENT
            && let Some(oldest) = self.recent_in_order.pop_front()
        {
            self.recent.remove(&oldest);
        }
    }

    fn before(&self, at: u64) -> Before {
        match self.recent.get(&at) {
            Some(&turn) => Before::At(turn),
            None if self.read.contains(at) => Before::LongAgo,
            None => Before::Never,
        }
    }

    fn lacking(&self, at: u64, turn: u64) -> u64 {
        let bits = self.readers.iter().zip(0..).filter(|(state, _)| state.lacks(at, turn));
        bits.fold(0, |all, (_, bit): (_, u32)| all | 1 << bit)
    }

    /// Gives a reader a block that is here, which goes if nobody else lacks it.
    fn hand_out(&mut self, at: u64, reader: usize) -> (Arc<Framed>, Timing) {
        let Some(Slot::Here(mut kept)) = self.slots.remove(&at) else {
            unreachable!("the caller has found it");
        };
        let state = &mut self.readers[reader];
        note(&mut state.taken, at);
        state.turn = state.turn.max(kept.turn);
        self.order.remove(&kept.rank(at));
        kept.lacking &= !(1 << reader);
        let taken = (Arc::clone(&kept.framed), kept.timing);
        match kept.lacking {
            0 => self.held -= kept.cost(),
            _ => self.insert(at, kept),
        }
        taken
    }

    /// Keeps a block that was read, if there is room for it or more readers lack it than what goes
    /// for it.
    fn put(&mut self, at: u64, (framed, timing): (Arc<Framed>, Timing), most: usize) {
        self.puts += 1;
        if self.puts >= PUTS_PER_LOOK.max(self.order.len() / 2) {
            self.puts = 0;
            self.look();
        }
        let turn = self.turn;
        let kept = Kept { framed, timing, lacking: self.lacking(at, turn), turn };
        if kept.lacking == 0 {
            return;
        }
        while self.held + kept.cost() > most {
            let Some(&first) = self.order.first() else { return };
            if first.0 >= kept.lacking.count_ones() {
                return;
            }
            self.drop_block(first.2);
        }
        self.held += kept.cost();
        self.insert(at, kept);
    }

    fn insert(&mut self, at: u64, kept: Kept) {
        self.order.insert(kept.rank(at));
        self.slots.insert(at, Slot::Here(kept));
    }

    fn drop_block(&mut self, at: u64) {
        if let Some(Slot::Here(kept)) = self.slots.remove(&at) {
            self.order.remove(&kept.rank(at));
            self.held -= kept.cost();
        }
    }

    /// Looks again who lacks what is here, and drops what nobody lacks any more.
    fn look(&mut self) {
        let here: Vec<u64> = self.order.iter().map(|rank| rank.2).collect();
        for at in here {
            let Some(Slot::Here(mut kept)) = self.slots.remove(&at) else { continue };
            self.order.remove(&kept.rank(at));
            kept.lacking = self.lacking(at, kept.turn);
            match kept.lacking {
                0 => self.held -= kept.cost(),
                _ => self.insert(at, kept),
            }
        }
    }
}

impl Kept {
    fn rank(&self, at: u64) -> Rank {
        (self.lacking.count_ones(), Reverse(self.turn), at)
    }

    /// The memory that it counts for.
    fn cost(&self) -> usize {
        self.framed.len().max(COST_LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers on one file of many blocks, with room for so many blocks of 4 KiB.
    fn readers(number: usize, room: usize) -> Vec<BlockReader> {
        let blocks = SharedBlocks::new(number, room * COST_LEAST, Arc::default());
        (0..number).map(|n| blocks.reader(n, Arc::from([0]))).collect()
    }

    /// Has a reader take blocks, and read those that are not here; how many it has read.
    fn take(reader: &BlockReader, blocks: std::ops::Range<u64>) -> usize {
        let mut out = new_framed();
        let mut read = 0;
        for block in blocks {
            match reader.take(0, block, &mut out) {
                Taken::Here(timing) => assert_eq!(timing, Timing::Settled),
                Taken::Missing(claim) => {
                    out.clear();
                    out.resize(100, block as u8);
                    reader.note_read(0, block, 100);
                    claim.share(&out, Timing::Settled);
                    read += 1;
                }
            }
            assert!(out.len() == 100 && out.iter().all(|&byte| byte == block as u8));
        }
        read
    }

    fn held(reader: &BlockReader) -> usize {
        reader.blocks.state().held / COST_LEAST
    }

    #[test]
    fn readers_that_keep_pace_read_each_block_once_and_keep_nothing_that_all_have_taken() {
        let readers = readers(3, 4);
        for block in 0..1_000 {
            let turn = block as usize;
            let read: usize =
                (0..3).map(|n| take(&readers[(turn + n) % 3], block..block + 1)).sum();
            assert_eq!((read, held(&readers[0])), (1, 0));
        }
        assert_eq!(readers[0].blocks.count.bytes(), ReadBytes { all: 100_000, again: 0 });
    }

    #[test]
    fn a_reader_that_stands_still_costs_the_others_no_second_reading() {
        let readers = readers(3, 8);
        for block in 0..1_000 {
            assert_eq!(take(&readers[0], block..block + 1), 1);
            assert_eq!(take(&readers[1], block..block + 1), 0, "block {block}");
            assert!(held(&readers[0]) <= 8);
        }
        // The one that stood comes to the oldest first, and they are here.
        assert_eq!(take(&readers[2], 0..7), 0);
        assert!(take(&readers[2], 7..1_000) >= 990);
        assert_eq!(readers[0].blocks.count.bytes().again, 100 * 992);
    }

    #[test]
    fn a_reader_at_a_third_of_the_pace_finds_more_than_memory_holds_at_once() {
        let readers = readers(2, 16);
        let mut read = 0;
        for block in 0..900 {
            take(&readers[0], block..block + 1);
            if block % 3 == 0 {
                read += take(&readers[1], block / 3..block / 3 + 1);
            }
        }
        read += take(&readers[1], 300..900);
        assert!(read <= 900 - 4 * 16, "{read}");
        assert_eq!(readers[0].blocks.count.bytes().again, 100 * read as u64);
    }

    #[test]
    fn blocks_that_a_reader_has_passed_by_make_room_for_those_that_it_comes_to() {
        let readers = readers(2, 300);
        // The second one has the first half from an earlier transfer.
        assert_eq!(take(&readers[0], 0..2_000), 2_000);
        assert_eq!(held(&readers[0]), 300);
        let mut read = 0;
        for block in 2_000..3_000 {
            take(&readers[0], block..block + 1);
            read += take(&readers[1], block..block + 1);
        }
        assert!(read <= PUTS_PER_LOOK, "{read} read twice");
    }

    #[test]
    fn nothing_is_kept_for_a_reader_that_is_gone() {
        let readers = readers(3, 100);
        take(&readers[0], 0..50);
        assert_eq!(held(&readers[0]), 50);
        readers[0].blocks.leave(2);
        take(&readers[1], 0..20);
        assert_eq!(held(&readers[0]), 30);
        readers[0].blocks.leave(1);
        assert_eq!(held(&readers[0]), 0);
        take(&readers[0], 50..90);
        assert_eq!(held(&readers[0]), 0);
    }

    #[test]
    fn one_reads_while_others_wait_and_the_next_one_reads_if_that_fails() {
        let readers = readers(3, 100);
        let mut out = new_framed();
        let Taken::Missing(first) = readers[0].take(0, 5, &mut out) else { panic!() };
        let (said, heard) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for reader in &readers[1..] {
                let said = said.clone();
                scope.spawn(move || {
                    let read = take(reader, 5..6);
                    said.send(read).unwrap();
                });
            }
            assert!(heard.try_recv().is_err(), "they wait");
            drop(first);
            assert_eq!(heard.recv().unwrap() + heard.recv().unwrap(), 1);
        });
    }
}
