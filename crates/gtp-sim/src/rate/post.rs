//! Words on their way to where their readers look for them.
//!
//! A node's words go to rings anywhere in a store that no cache holds, and a processor would wait
//! for each. So words are noted one after another instead, by parts of the readers' ends, which lie
//! in the order in which their nodes compute; a part with its rings fits into a near cache. Before
//! a node of a part looks, all that was noted for the part is put in together, if any of it has
//! arrived. What a reader finds is the same as if each word had been put in at once. Used where
//! nearly every end tells something in every interval; this file knows nothing of laws.

use super::ends::End;
use super::mailbox::{EMPTY, Mail, Word};

/// Words for the ends of one kind.
#[derive(Clone, Debug)]
pub(super) struct Post {
    parts: Vec<Part>,
}

/// Words for the ends of one part.
#[derive(Clone, Debug)]
struct Part {
    /// When the first of them arrives.
    earliest: u64,
    noted: Vec<Noted>,
}

/// A word, without an offer.
#[derive(Clone, Copy, Debug)]
struct Noted {
    to: u32,
    at: u64,
    rate: u64,
}

/// A part has `2^11` ends: with their rings some 400 KB.
const PART: u32 = 11;

impl Post {
    /// For so many ends.
    pub fn new(ends: usize) -> Post {
        let part = Part { earliest: EMPTY, noted: Vec::new() };
        Post { parts: vec![part; (ends >> PART) + 1] }
    }

    /// Notes a word for end `to`.
    #[inline]
    pub fn note(&mut self, to: u32, word: Word) {
        let part = &mut self.parts[(to >> PART) as usize];
        part.earliest = part.earliest.min(word.at);
        part.noted.push(Noted { to, at: word.at, rate: word.rate });
    }

    /// Puts in what was noted for these of `all` ends, if any of it arrives until `now`.
    #[inline]
    pub fn deliver<E: End>(
        &mut self,
        ends: &std::ops::Range<u32>,
        now: u64,
        all: &mut [E],
        mail: &mut Mail,
    ) {
        let Some(last) = ends.end.checked_sub(1) else { return };
        for part in &mut self.parts[(ends.start >> PART) as usize..=(last >> PART) as usize] {
            if part.earliest <= now {
                part.deliver(all, mail);
            }
        }
    }
}

impl Part {
    #[inline(never)]
    fn deliver<E: End>(&mut self, all: &mut [E], mail: &mut Mail) {
        self.earliest = EMPTY;
        for &Noted { to, at, rate } in &self.noted {
            let end = all[to as usize].common_mut();
            let word = Word { at, rate, offer: u64::MAX };
            mail.put_in(&mut end.inbox, &mut end.writer, word);
        }
        self.noted.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::ends::SourceEnd;
    use super::super::mailbox::Offers;
    use super::*;

    #[test]
    fn a_word_is_there_when_it_arrives_and_rings_grow_as_they_must() {
        let mut mail = Mail::new(Offers::None);
        let mut ends: Vec<SourceEnd> = (0..5_000).map(|_| SourceEnd::idle(mail.ring(1))).collect();
        let mut post = Post::new(ends.len());
        for n in 0..9u64 {
            for to in [7, 2_047, 2_048] {
                post.note(to, Word { at: 10 + n, rate: n, offer: 0 });
            }
        }
        post.deliver(&(2_040..2_048), 9, &mut ends, &mut mail);
        assert!(mail.take(&mut ends[2_047].common.inbox, EMPTY - 1).is_none(), "too early");
        post.deliver(&(2_047..2_049), 10, &mut ends, &mut mail);
        for to in [7usize, 2_047, 2_048] {
            let inbox = &mut ends[to].common.inbox;
            let found: Vec<u64> =
                std::iter::from_fn(|| mail.take(inbox, EMPTY - 1)).map(|word| word.rate).collect();
            assert_eq!(found, (0..9).collect::<Vec<_>>(), "end {to}");
        }
    }
}
