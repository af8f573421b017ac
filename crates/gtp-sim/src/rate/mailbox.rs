//! Words on their way from one end of a session to the other.
//!
//! The writer knows when a word arrives, so it puts it where the reader will look and the reader
//! takes it in when its own time has come: no event for each word, and a reader touches its own
//! memory alone. Each direction of a session has one ring in a common store; a slot that waits
//! for nothing holds [`EMPTY`], so that neither end needs the other's place. This file knows
//! nothing of laws.

/// The arrival time of a slot that holds no word.
pub(super) const EMPTY: u64 = u64::MAX;

/// In place of a source's rate: the session has left. Rates are at most 10^15, or 2^64 - 1.
pub(super) const GONE: u64 = 1 << 63;

/// What one end tells the other; rates in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// When it arrives, in nanoseconds.
    pub at: u64,
    /// From a source: the most it sends, or [`GONE`]. From a sink: its grant or expected rate.
    pub rate: u64,
    /// What the session could have at the writer's node if nothing else limited it.
    pub offer: u64,
}

/// Where a word waits: 16 bytes, because millions of them make a large network.
#[derive(Clone, Copy, Debug)]
struct Slot {
    at: u64,
    rate: u64,
}

/// One end's place in a ring: the reader's next slot, or the writer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    base: u32,
    size: u32,
    next: u32,
}

impl Place {
    /// The next slot.
    pub fn next(self) -> u32 {
        self.next
    }

    /// The place in the same ring whose next slot is `next`.
    pub fn at(self, next: u32) -> Place {
        Place { next, ..self }
    }

    fn slot(self) -> usize {
        (self.base + self.next) as usize
    }

    fn step(&mut self) {
        self.next = if self.next + 1 == self.size { 0 } else { self.next + 1 };
    }
}

/// All rings, in one store.
#[derive(Clone, Debug)]
pub(super) struct Mail {
    slots: Vec<Slot>,
    /// By slot; left out where no law makes offers.
    offers: Option<Vec<u64>>,
}

/// Whether words carry offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offers {
    /// They do.
    Told,
    /// They do not: every offer reads as unlimited.
    None,
}

impl Mail {
    /// No rings yet.
    pub fn new(offers: Offers) -> Mail {
        Mail { slots: Vec::new(), offers: (offers == Offers::Told).then(Vec::new) }
    }

    /// A new ring for `words` words, at least one: the place of its reader, and of its writer too.
    pub fn ring(&mut self, words: u32) -> Place {
        let size = words.max(1);
        let base = self.slots.len() as u32;
        let end = self.slots.len() + size as usize;
        self.slots.resize(end, Slot { at: EMPTY, rate: 0 });
        if let Some(offers) = &mut self.offers {
            offers.resize(end, 0);
        }
        Place { base, size, next: 0 }
    }

    /// Takes out the next word if it arrives at `now` or before.
    #[inline]
    pub fn take(&mut self, reader: &mut Place, now: u64) -> Option<Word> {
        let at = reader.slot();
        let slot = &mut self.slots[at];
        debug_assert!(now < EMPTY, "what is empty never arrives");
        if slot.at > now {
            return None;
        }
        let offer = self.offers.as_ref().map_or(u64::MAX, |offers| offers[at]);
        let word = Word { at: slot.at, rate: slot.rate, offer };
        slot.at = EMPTY;
        reader.step();
        Some(word)
    }

    /// When the next word arrives; [`EMPTY`] if none is on its way.
    #[inline]
    pub fn peek(&self, reader: &Place) -> u64 {
        self.slots[reader.slot()].at
    }

    /// Whether the writer's next slot is free.
    #[inline]
    pub fn has_room(&self, writer: &Place) -> bool {
        self.slots[writer.slot()].at == EMPTY
    }

    /// The rates of what is on its way, in order.
    pub fn waiting(&self, reader: &Place) -> impl Iterator<Item = u64> {
        let mut at = *reader;
        (0..reader.size).map_while(move |_| {
            let slot = self.slots[at.slot()];
            at.step();
            (slot.at != EMPTY).then_some(slot.rate)
        })
    }

    /// Puts a word in, unless the ring is full.
    #[inline]
    #[must_use]
    pub fn put(&mut self, writer: &mut Place, word: Word) -> Put {
        let at = writer.slot();
        let slot = &mut self.slots[at];
        if slot.at != EMPTY {
            return Put::Full;
        }
        *slot = Slot { at: word.at, rate: word.rate };
        if let Some(offers) = &mut self.offers {
            offers[at] = word.offer;
        }
        writer.step();
        Put::Done
    }

    /// Puts a word in, into a wider ring if this one is full; only then the reader is asked for.
    #[inline]
    pub fn put_far<'a>(
        &mut self,
        writer: &mut Place,
        word: Word,
        reader: impl FnOnce() -> &'a mut Place,
    ) {
        if self.put(writer, word) == Put::Full {
            self.put_wider(reader(), writer, word);
        }
    }

    /// The same where both places are at hand.
    #[inline]
    pub fn put_in(&mut self, reader: &mut Place, writer: &mut Place, word: Word) {
        if self.put(writer, word) == Put::Full {
            self.put_wider(reader, writer, word);
        }
    }

    /// Moves a full ring into one of twice its size and puts `word` in too; both ends are told
    /// of their new places.
    pub fn put_wider(&mut self, reader: &mut Place, writer: &mut Place, word: Word) {
        let mut wider = self.ring(2 * reader.size);
        let new_reader = wider;
        while let Some(old) = self.take(reader, EMPTY - 1) {
            let moved = self.put(&mut wider, old);
            debug_assert!(moved == Put::Done);
        }
        let put = self.put(&mut wider, word);
        debug_assert!(put == Put::Done);
        (*reader, *writer) = (new_reader, wider);
    }

    /// Slots in all rings together.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}

/// Whether a word found room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It did.
    Done,
    /// The ring must grow first.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_in_order_at_their_times_also_from_a_ring_that_grew() {
        let mut mail = Mail::new(Offers::Told);
        let _other = mail.ring(4);
        let mut reader = mail.ring(2);
        let mut writer = reader;
        let mut next = 0;
        for round in 0..40u64 {
            for at in [10 * round, 10 * round + 1, 10 * round + 5] {
                let word = Word { at, rate: at, offer: at + 1 };
                if mail.put(&mut writer, word) == Put::Full {
                    mail.put_wider(&mut reader, &mut writer, word);
                }
            }
            // Two of three are taken, so the ring must grow again and again.
            for _ in 0..2 {
                let due = 10 * (next / 3) + [0, 1, 5][next as usize % 3];
                assert_eq!(mail.peek(&reader), due);
                if due > 0 {
                    assert!(mail.take(&mut reader, due - 1).is_none());
                }
                let word = Word { at: due, rate: due, offer: due + 1 };
                assert_eq!(mail.take(&mut reader, due), Some(word));
                next += 1;
            }
        }
    }

    #[test]
    fn what_waits_is_listed_from_an_empty_to_a_full_ring() {
        let mut mail = Mail::new(Offers::None);
        let reader = mail.ring(3);
        let mut writer = reader;
        for at in 0..3 {
            assert_eq!(mail.waiting(&reader).collect::<Vec<_>>(), (0..at).collect::<Vec<_>>());
            assert_eq!(mail.put(&mut writer, Word { at, rate: at, offer: 0 }), Put::Done);
        }
        assert_eq!(mail.waiting(&reader).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(mail.put(&mut writer, Word { at: 3, rate: 3, offer: 0 }), Put::Full);
    }
}
