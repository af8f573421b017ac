//! Words on their way from one end of a session to the other.
//!
//! The writer knows when a word arrives, so it puts it where the reader will look and the reader
//! takes it in when its own time has come: no event for each word, and a reader touches its own
//! memory alone. Each direction of a session has one ring in a common store; a slot that waits
//! for nothing holds [`EMPTY`], so that neither end needs the other's place. This file knows
//! nothing of laws.

/// The arrival time of a slot that holds no word.
pub(super) const EMPTY: u64 = u64::MAX;

/// Whether a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It has not joined yet.
    Future,
    /// It is there.
    Open,
    /// It has left.
    Gone,
}

/// What one end tells the other; rates in bit/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    /// When it arrives, in nanoseconds.
    pub at: u64,
    /// From a source: the most it sends. From a sink: its grant or expected rate.
    pub rate: u64,
    /// What the session could have at the writer's node if nothing else limited it.
    pub offer: u64,
    /// Number of the grant, from a sink.
    pub number: u32,
    /// Whether the writer's end still lives.
    pub life: Life,
}

const NOTHING: Word = Word { at: EMPTY, rate: 0, offer: 0, number: 0, life: Life::Future };

/// One end's place in a ring: the reader's next slot, or the writer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    base: u32,
    mask: u32,
    next: u32,
}

impl Place {
    fn slot(self, at: u32) -> usize {
        (self.base + (at & self.mask)) as usize
    }
}

/// All rings, in one store.
#[derive(Clone, Debug, Default)]
pub(super) struct Mail {
    slots: Vec<Word>,
}

impl Mail {
    /// A new ring for at least `words` words: the place of its reader, and of its writer too.
    pub fn ring(&mut self, words: u32) -> Place {
        let size = words.next_power_of_two();
        let base = self.slots.len() as u32;
        self.slots.resize(self.slots.len() + size as usize, NOTHING);
        Place { base, mask: size - 1, next: 0 }
    }

    /// Takes out the next word if it arrives at `now` or before.
    #[inline]
    pub fn take(&mut self, reader: &mut Place, now: u64) -> Option<Word> {
        let slot = &mut self.slots[reader.slot(reader.next)];
        if slot.at > now {
            return None;
        }
        reader.next = reader.next.wrapping_add(1);
        let word = *slot;
        slot.at = EMPTY;
        Some(word)
    }

    /// When the next word arrives; [`EMPTY`] if none is on its way.
    #[inline]
    pub fn peek(&self, reader: &Place) -> u64 {
        self.slots[reader.slot(reader.next)].at
    }

    /// What is on its way, in order.
    pub fn waiting(&self, reader: &Place, writer: &Place) -> impl Iterator<Item = &Word> {
        let (reader, n) = (*reader, writer.next.wrapping_sub(reader.next));
        (0..n).map(move |i| &self.slots[reader.slot(reader.next.wrapping_add(i))])
    }

    /// Puts a word in, unless the ring is full.
    #[inline]
    #[must_use]
    pub fn put(&mut self, writer: &mut Place, word: Word) -> Put {
        let slot = &mut self.slots[writer.slot(writer.next)];
        if slot.at != EMPTY {
            return Put::Full;
        }
        *slot = word;
        writer.next = writer.next.wrapping_add(1);
        Put::Done
    }

    /// Moves a full ring into one of twice its size; both ends are told of their new places.
    pub fn grow(&mut self, reader: &mut Place, writer: &mut Place) {
        let size = reader.mask + 1;
        let mut wider = self.ring(2 * size);
        let new_reader = wider;
        for at in 0..size {
            let word = self.slots[reader.slot(reader.next.wrapping_add(at))];
            let moved = self.put(&mut wider, word);
            debug_assert!(moved == Put::Done);
        }
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
        let mut mail = Mail::default();
        let _other = mail.ring(4);
        let mut reader = mail.ring(2);
        let mut writer = reader;
        let mut next = 0;
        for round in 0..40u64 {
            for at in [10 * round, 10 * round + 1, 10 * round + 5] {
                let word = Word { at, rate: at, ..NOTHING };
                if mail.put(&mut writer, word) == Put::Full {
                    mail.grow(&mut reader, &mut writer);
                    assert_eq!(mail.put(&mut writer, word), Put::Done);
                }
            }
            // Two of three are taken, so the ring must grow again and again.
            for _ in 0..2 {
                let due = 10 * (next / 3) + [0, 1, 5][next as usize % 3];
                assert_eq!(mail.peek(&reader), due);
                if due > 0 {
                    assert!(mail.take(&mut reader, due - 1).is_none());
                }
                assert_eq!(mail.take(&mut reader, due).unwrap().rate, due);
                next += 1;
            }
        }
    }

    #[test]
    fn a_word_fits_half_a_cache_line() {
        assert_eq!(std::mem::size_of::<Word>(), 32);
    }
}
