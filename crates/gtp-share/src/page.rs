//! The two pages of one process: its reports, and the daemon's grants.
//!
//! Each page is a head and a row of slots; each slot is one record with its sequence word. Which
//! slot a session has is the process's choice; the daemon answers in the slot of the same number.
//! Reading a page costs the daemon as much as the process says it uses of it, and no more.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use gtp_alloc::Rate;

use crate::layout::{GRANTED_WORDS, Granted, HEAD_WORDS, MAGIC, POSTED_WORDS, Posted, SLOTS_MOST};
use crate::map::{Access, Mapping, Theirs};
use crate::words;

/// A process's reports: written by the process, read by the daemon.
#[derive(Debug)]
pub struct ReportsPage {
    mapping: Mapping,
    slots: u32,
}

/// The daemon's grants to one process: written by the daemon, read by the process.
#[derive(Debug)]
pub struct GrantsPage {
    mapping: Mapping,
    slots: u32,
}

/// What was found in a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<T> {
    /// No record.
    Nothing,
    /// A whole record.
    Record(T),
    /// No whole record in all tries: what was known before stands.
    Torn,
}

/// Words of the heads.
const HEAD_MAGIC: usize = 0;
const REPORTS_BEAT: usize = 1;
const REPORTS_USED: usize = 2;
const GRANTS_CAPACITY_OUT: usize = 1;
const GRANTS_CAPACITY_IN: usize = 2;
const GRANTS_BEAT: usize = 3;

impl ReportsPage {
    /// A new page, for the daemon, and the descriptor that the process gets.
    ///
    /// # Errors
    /// When the system gives no memory or no descriptor.
    pub fn create(slots: u32) -> io::Result<(ReportsPage, OwnedFd)> {
        let slots = slots.min(SLOTS_MOST);
        let words = HEAD_WORDS + slots as usize * POSTED_WORDS;
        let (mapping, fd) = Mapping::create(words, Theirs::Write)?;
        mapping.words()[HEAD_MAGIC].store(MAGIC, Ordering::Relaxed);
        Ok((ReportsPage { mapping, slots }, fd))
    }

    /// The page as the process maps it.
    ///
    /// # Errors
    /// When it is not what it should be.
    pub fn open(fd: impl AsFd, slots: u32) -> io::Result<ReportsPage> {
        let slots = slots.min(SLOTS_MOST);
        let words = HEAD_WORDS + slots as usize * POSTED_WORDS;
        let mapping = Mapping::open(fd, words, Access::Write)?;
        check_magic(&mapping)?;
        Ok(ReportsPage { mapping, slots })
    }

    /// Sessions that it has room for.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Posts a record; only the process does. A slot beyond the last is nobody's.
    pub fn post(&self, slot: u32, posted: &Posted) {
        self.write(slot, &posted.encode());
        let used = &self.mapping.words()[REPORTS_USED];
        if slot < self.slots && used.load(Ordering::Relaxed) <= u64::from(slot) {
            used.store(u64::from(slot) + 1, Ordering::Relaxed);
        }
    }

    /// Empties a slot; only the process does.
    pub fn clear(&self, slot: u32) {
        self.write(slot, &[0; POSTED_WORDS - 1]);
    }

    /// Says that the process is at work; only the process does.
    pub fn beat(&self) {
        advance(&self.mapping.words()[REPORTS_BEAT]);
    }

    /// How often it has said so: any change is a sign of life.
    pub fn beats(&self) -> u64 {
        self.mapping.words()[REPORTS_BEAT].load(Ordering::Relaxed)
    }

    /// Slots from the first to the last that the process has ever used.
    pub fn used(&self) -> u32 {
        let used = self.mapping.words()[REPORTS_USED].load(Ordering::Relaxed);
        used.min(u64::from(self.slots)) as u32
    }

    /// What stands in a slot; whatever the process wrote, it is in range.
    pub fn read(&self, slot: u32) -> Found<Posted> {
        let mut values = [0; POSTED_WORDS - 1];
        match record(&self.mapping, self.slots, slot, POSTED_WORDS) {
            None => Found::Nothing,
            // Never written.
            Some((sequence, _)) if sequence.load(Ordering::Relaxed) == 0 => Found::Nothing,
            Some((sequence, words)) if words::read(sequence, words, &mut values) => {
                Posted::decode(&values).map_or(Found::Nothing, Found::Record)
            }
            Some(_) => Found::Torn,
        }
    }

    /// Writes any words into a slot, as a process could that means harm.
    pub fn write(&self, slot: u32, values: &[u64; POSTED_WORDS - 1]) {
        if let Some((sequence, words)) = record(&self.mapping, self.slots, slot, POSTED_WORDS) {
            words::write(sequence, words, values);
        }
    }

    /// Every word of the page, for tests that write at random.
    pub fn raw(&self) -> &[AtomicU64] {
        self.mapping.words()
    }
}

impl GrantsPage {
    /// A new page, for the daemon, and the descriptor that the process gets: it can only read.
    ///
    /// # Errors
    /// When the system gives no memory or no descriptor.
    pub fn create(slots: u32) -> io::Result<(GrantsPage, OwnedFd)> {
        let slots = slots.min(SLOTS_MOST);
        let words = HEAD_WORDS + slots as usize * GRANTED_WORDS;
        let (mapping, fd) = Mapping::create(words, Theirs::Read)?;
        mapping.words()[HEAD_MAGIC].store(MAGIC, Ordering::Relaxed);
        Ok((GrantsPage { mapping, slots }, fd))
    }

    /// The page as the process maps it.
    ///
    /// # Errors
    /// When it is not what it should be.
    pub fn open(fd: impl AsFd, slots: u32) -> io::Result<GrantsPage> {
        let slots = slots.min(SLOTS_MOST);
        let words = HEAD_WORDS + slots as usize * GRANTED_WORDS;
        let mapping = Mapping::open(fd, words, Access::Read)?;
        check_magic(&mapping)?;
        Ok(GrantsPage { mapping, slots })
    }

    /// Writes a grant; only the daemon does.
    pub fn grant(&self, slot: u32, granted: &Granted) {
        self.write(slot, &granted.encode());
    }

    /// Empties a slot; only the daemon does.
    pub fn clear(&self, slot: u32) {
        self.write(slot, &[0; GRANTED_WORDS - 1]);
    }

    /// Shows the host's capacities; only the daemon does.
    pub fn set_capacity(&self, out: Rate, in_: Rate) {
        self.mapping.words()[GRANTS_CAPACITY_OUT].store(out.as_bps(), Ordering::Relaxed);
        self.mapping.words()[GRANTS_CAPACITY_IN].store(in_.as_bps(), Ordering::Relaxed);
    }

    /// Says that the daemon is at work; only the daemon does.
    pub fn beat(&self) {
        advance(&self.mapping.words()[GRANTS_BEAT]);
    }

    /// How often it has said so: any change is a sign of life.
    pub fn beats(&self) -> u64 {
        self.mapping.words()[GRANTS_BEAT].load(Ordering::Relaxed)
    }

    /// The host's capacities, out and in.
    pub fn capacity(&self) -> (Rate, Rate) {
        let rate = |at: usize| Rate::from_bps(self.mapping.words()[at].load(Ordering::Relaxed));
        (rate(GRANTS_CAPACITY_OUT), rate(GRANTS_CAPACITY_IN))
    }

    /// The grant in a slot.
    pub fn read(&self, slot: u32) -> Found<Granted> {
        let mut values = [0; GRANTED_WORDS - 1];
        match record(&self.mapping, self.slots, slot, GRANTED_WORDS) {
            None => Found::Nothing,
            Some((sequence, words)) if words::read(sequence, words, &mut values) => {
                Granted::decode(&values).map_or(Found::Nothing, Found::Record)
            }
            Some(_) => Found::Torn,
        }
    }

    fn write(&self, slot: u32, values: &[u64; GRANTED_WORDS - 1]) {
        if let Some((sequence, words)) = record(&self.mapping, self.slots, slot, GRANTED_WORDS) {
            words::write(sequence, words, values);
        }
    }
}

/// One sign of life more; each beat has one writer.
fn advance(beat: &AtomicU64) {
    beat.store(beat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// The sequence word and the words of a slot.
fn record(
    mapping: &Mapping,
    slots: u32,
    slot: u32,
    size: usize,
) -> Option<(&AtomicU64, &[AtomicU64])> {
    if slot >= slots {
        return None;
    }
    let start = HEAD_WORDS + slot as usize * size;
    mapping.words().get(start..start + size)?.split_first()
}

fn check_magic(mapping: &Mapping) -> io::Result<()> {
    let found = mapping.words().first().map(|word| word.load(Ordering::Relaxed));
    if found == Some(MAGIC) {
        return Ok(());
    }
    Err(io::Error::other("a page of another layout: daemon and program are of different versions"))
}
