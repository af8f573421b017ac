//! The two pages of one process: its reports, and the daemon's grants.
//!
//! Each page is a head and a row of slots; each slot is one record with its sequence word. Which
//! slot a session has is the process's choice; the daemon answers in the slot of the same number.
//! Reading a page costs the daemon as much as the process says it uses of it, and no more.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use gtp_alloc::Rate;

use crate::layout::{
    GRANTED_WORDS, Granted, HEAD_WORDS, LIVE_WORDS, MAGIC, POSTED_WORDS, Posted, SLOTS_MOST, Side,
    Update,
};
use crate::map::{Access, Mapping, Theirs};
use crate::words;

/// The process's end of its reports: it alone writes them.
#[derive(Debug)]
pub struct ReportsWriter {
    page: Page<POSTED_WORDS>,
    terms: bool,
}

/// The daemon's end of a process's reports.
#[derive(Debug)]
pub struct ReportsReader(Page<POSTED_WORDS>);

/// The daemon's end of its grants to one process: it alone writes them.
#[derive(Debug)]
pub struct GrantsWriter(Page<GRANTED_WORDS>);

/// The process's end of the daemon's grants to it.
#[derive(Debug)]
pub struct GrantsReader(Page<GRANTED_WORDS>);

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
const REPORTS_TERMS: usize = 3;
const GRANTS_CAPACITY_OUT: usize = 1;
const GRANTS_CAPACITY_IN: usize = 2;
const GRANTS_BEAT: usize = 3;
const GRANTS_FALLBACK_OUT: usize = 4;
const GRANTS_FALLBACK_IN: usize = 5;
const GRANTS_ENDED: usize = 6;
const GRANTS_TERMS: usize = 7;

impl ReportsWriter {
    /// The page as the process maps it.
    ///
    /// # Errors
    /// When it is not what it should be.
    pub fn open(fd: impl AsFd, slots: u32) -> io::Result<ReportsWriter> {
        let page = Page::open(fd, slots, Access::Write)?;
        Ok(ReportsWriter { page, terms: false })
    }

    /// From now on served clients' terms are posted as well, for a daemon that knows them. To be
    /// called before anything is posted.
    pub fn post_terms(&mut self) {
        self.page.word(REPORTS_TERMS).store(1, Ordering::Relaxed);
        self.terms = true;
    }

    /// Whether served clients' terms are posted.
    pub fn posts_terms(&self) -> bool {
        self.terms
    }

    /// Sessions that it has room for.
    pub fn slots(&self) -> u32 {
        self.page.slots
    }

    /// Posts a record. A slot beyond the last is nobody's.
    pub fn post(&self, slot: u32, posted: &Posted) {
        let words = if self.terms { posted.encode_with_terms() } else { posted.encode() };
        self.write(slot, &words);
        let used = self.page.word(REPORTS_USED);
        if slot < self.page.slots && used.load(Ordering::Relaxed) <= u64::from(slot) {
            used.store(u64::from(slot) + 1, Ordering::Relaxed);
        }
    }

    /// Empties a slot.
    pub fn clear(&self, slot: u32) {
        self.write(slot, &[0; POSTED_WORDS - 1]);
    }

    /// Says that the process is at work.
    pub fn beat(&self) {
        advance(self.page.word(REPORTS_BEAT));
    }

    /// Writes any words into a slot, as a process could that means harm.
    pub fn write(&self, slot: u32, values: &[u64; POSTED_WORDS - 1]) {
        self.page.write(slot, values);
    }

    /// Every word of the page, for tests that write at random.
    pub fn raw(&self) -> &[AtomicU64] {
        self.page.mapping.words()
    }
}

impl ReportsReader {
    /// A new page, for the daemon, and the descriptor that the process gets.
    ///
    /// # Errors
    /// When the system gives no memory or no descriptor.
    pub fn create(slots: u32) -> io::Result<(ReportsReader, OwnedFd)> {
        let (page, fd) = Page::create(slots, Theirs::Write)?;
        Ok((ReportsReader(page), fd))
    }

    /// How often the process has said that it is at work: any change is a sign of life.
    pub fn beats(&self) -> u64 {
        self.0.load(REPORTS_BEAT)
    }

    /// Slots from the first to the last that the process has ever used.
    pub fn used(&self) -> u32 {
        self.0.load(REPORTS_USED).min(u64::from(self.0.slots)) as u32
    }

    /// What stands in a slot; whatever the process wrote, it is in range.
    pub fn read(&self, slot: u32) -> Found<Posted> {
        match self.has_terms() {
            false => self.0.read::<{ POSTED_WORDS - 1 }, _>(slot, Posted::decode),
            true => self.0.read::<{ POSTED_WORDS - 1 }, _>(slot, Posted::decode_with_terms),
        }
    }

    /// Whether the process posts the terms of served clients.
    #[inline]
    fn has_terms(&self) -> bool {
        self.0.load(REPORTS_TERMS) == 1
    }

    /// Brings up to date what was read of a slot before; reads as much of it as changes while a
    /// session lives.
    #[inline]
    pub fn update(&self, slot: u32, known: &mut Posted) -> Found<Update> {
        if known.principal != 0 && self.has_terms() {
            let update = |words: &_| Some(known.update_with_terms(words));
            return self.0.read::<{ POSTED_WORDS - 1 }, _>(slot, update);
        }
        self.0.read::<LIVE_WORDS, _>(slot, |words| Some(known.update(words)))
    }

    /// Changes with each record that is written into a slot; asked before one is read, it tells
    /// later whether there is another.
    #[inline]
    pub fn sequence(&self, slot: u32) -> u64 {
        self.0.record(slot).map_or(0, |(sequence, _)| sequence.load(Ordering::Relaxed))
    }
}

impl GrantsWriter {
    /// A new page, for the daemon, and the descriptor that the process gets: it can only read.
    ///
    /// # Errors
    /// When the system gives no memory or no descriptor.
    pub fn create(slots: u32) -> io::Result<(GrantsWriter, OwnedFd)> {
        let (page, fd) = Page::create(slots, Theirs::Read)?;
        page.word(GRANTS_TERMS).store(1, Ordering::Relaxed);
        Ok((GrantsWriter(page), fd))
    }

    /// Writes a grant.
    #[inline]
    pub fn grant(&self, slot: u32, granted: &Granted) {
        self.0.write(slot, &granted.encode());
    }

    /// Empties a slot.
    pub fn clear(&self, slot: u32) {
        self.0.write(slot, &[0; GRANTED_WORDS - 1]);
    }

    /// Shows the host's capacities.
    pub fn set_capacity(&self, out: Rate, in_: Rate) {
        self.0.word(GRANTS_CAPACITY_OUT).store(out.as_bps(), Ordering::Relaxed);
        self.0.word(GRANTS_CAPACITY_IN).store(in_.as_bps(), Ordering::Relaxed);
    }

    /// Tells the process what it may use in one direction if the daemon goes.
    pub fn set_fallback(&self, side: Side, rate: Rate) {
        self.0.word(fallback_word(side)).store(rate.as_bps(), Ordering::Relaxed);
    }

    /// Tells the process that the daemon ends in order.
    pub fn end(&self) {
        self.0.word(GRANTS_ENDED).store(1, Ordering::Relaxed);
    }

    /// Says that the daemon is at work.
    pub fn beat(&self) {
        advance(self.0.word(GRANTS_BEAT));
    }
}

impl GrantsReader {
    /// The page as the process maps it.
    ///
    /// # Errors
    /// When it is not what it should be.
    pub fn open(fd: impl AsFd, slots: u32) -> io::Result<GrantsReader> {
        Page::open(fd, slots, Access::Read).map(GrantsReader)
    }

    /// How often the daemon has said that it is at work: any change is a sign of life.
    pub fn beats(&self) -> u64 {
        self.0.load(GRANTS_BEAT)
    }

    /// The host's capacities, out and in.
    pub fn capacity(&self) -> (Rate, Rate) {
        let rate = |at| Rate::from_bps(self.0.load(at));
        (rate(GRANTS_CAPACITY_OUT), rate(GRANTS_CAPACITY_IN))
    }

    /// What the process may use in one direction if the daemon goes; `None` if this daemon has
    /// not said it yet.
    pub fn fallback(&self, side: Side) -> Option<Rate> {
        Some(Rate::from_bps(self.0.load(fallback_word(side)))).filter(|&rate| rate > Rate::ZERO)
    }

    /// Whether the daemon knows the terms of served clients.
    pub fn knows_terms(&self) -> bool {
        self.0.load(GRANTS_TERMS) == 1
    }

    /// Whether the daemon has ended in order.
    pub fn has_ended(&self) -> bool {
        self.0.load(GRANTS_ENDED) != 0
    }

    /// The grant in a slot.
    pub fn read(&self, slot: u32) -> Found<Granted> {
        self.0.read::<{ GRANTED_WORDS - 1 }, _>(slot, Granted::decode)
    }
}

/// The word of the grants' head that has the fallback of one direction.
fn fallback_word(side: Side) -> usize {
    match side {
        Side::Source => GRANTS_FALLBACK_OUT,
        Side::Sink => GRANTS_FALLBACK_IN,
    }
}

/// Either page, from either end; a slot has so many words, the sequence word among them.
#[derive(Debug)]
struct Page<const WORDS: usize> {
    mapping: Mapping,
    slots: u32,
}

impl<const WORDS: usize> Page<WORDS> {
    fn create(slots: u32, theirs: Theirs) -> io::Result<(Page<WORDS>, OwnedFd)> {
        let slots = slots.min(SLOTS_MOST);
        let (mapping, fd) = Mapping::create(HEAD_WORDS + slots as usize * WORDS, theirs)?;
        mapping.words()[HEAD_MAGIC].store(MAGIC, Ordering::Relaxed);
        Ok((Page { mapping, slots }, fd))
    }

    fn open(fd: impl AsFd, slots: u32, access: Access) -> io::Result<Page<WORDS>> {
        let slots = slots.min(SLOTS_MOST);
        let mapping = Mapping::open(fd, HEAD_WORDS + slots as usize * WORDS, access)?;
        let page = Page { mapping, slots };
        if page.load(HEAD_MAGIC) == MAGIC {
            return Ok(page);
        }
        let why = "a page of another layout: daemon and program are of different versions";
        Err(io::Error::other(why))
    }

    /// A word of the head.
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.mapping.words()[at]
    }

    fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// The sequence word and the words of a slot.
    #[inline]
    fn record(&self, slot: u32) -> Option<(&AtomicU64, &[AtomicU64])> {
        let (slots, _) = self.mapping.words()[HEAD_WORDS..].as_chunks::<WORDS>();
        slots.get(slot as usize)?.split_first()
    }

    #[inline]
    fn write<const N: usize>(&self, slot: u32, values: &[u64; N]) {
        if let Some((sequence, words)) = self.record(slot)
            && let Some(words) = words.first_chunk()
        {
            words::write(sequence, words, values);
        }
    }

    /// What stands in a slot.
    #[inline]
    fn read<const N: usize, T>(
        &self,
        slot: u32,
        decode: impl FnOnce(&[u64; N]) -> Option<T>,
    ) -> Found<T> {
        let Some((sequence, words)) = self.record(slot) else { return Found::Nothing };
        let Some(words) = words.first_chunk() else { return Found::Nothing };
        if sequence.load(Ordering::Relaxed) == 0 {
            return Found::Nothing; // Never written.
        }
        let mut values = [0; N];
        if !words::read(sequence, words, &mut values) {
            return Found::Torn;
        }
        decode(&values).map_or(Found::Nothing, Found::Record)
    }
}

/// One sign of life more; each beat has one writer.
fn advance(beat: &AtomicU64) {
    beat.store(beat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
