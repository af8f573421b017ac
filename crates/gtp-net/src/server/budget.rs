//! Memory for listings, all sessions of a server together.
//!
//! Each session takes a share that grows entry by entry, before memory is taken, and gives it back
//! when it ends. Nobody may hold more than a part of the whole, so that no key can starve the
//! others. Who finds the budget used up is told to come again later. It counts, and knows nothing
//! of what is listed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp_alloc::Bytes;
use gtp_share::KEYS;

use super::Whose;
use crate::identity::Fingerprint;
use crate::messages::{ENTRIES_MAX, ENTRY_MEMORY, LISTINGS_MEMORY, PATHS_MAX};

/// Who takes a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// A key on the list.
    Listed(Fingerprint),
    /// All keys that are not on the list together: anybody can have as many as they like.
    Strangers,
}

impl Holder {
    /// Whether this is a key on the list.
    pub fn whose(&self) -> Whose {
        match self {
            Holder::Listed(_) => Whose::Listed,
            Holder::Strangers => Whose::Stranger,
        }
    }

    /// A number for sharing rates among clients: of the key, never zero; zero for strangers, whom
    /// their addresses tell apart.
    pub fn principal(&self) -> u64 {
        match self {
            Holder::Listed(key) => {
                let bytes = key.as_bytes().iter().take(8);
                bytes.fold(0, |number, &byte| number << 8 | u64::from(byte)) | KEYS
            }
            Holder::Strangers => 0,
        }
    }
}

/// What all shares may take together.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What one holder may take.
    part: u64,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    left: u64,
    held: HashMap<Holder, u64>,
}

/// What one session has taken; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    holder: Holder,
    taken: u64,
}

/// Words for a client whose listing found no room.
pub(crate) const USED_UP: &str =
    "the server's memory for listings is used up; try again later, or ask for a part";

/// One holder may take the whole divided by this.
const PARTS: u64 = 4;
const _: () = assert!(LONGEST + NAMES_MEMORY as u64 <= LISTINGS_MEMORY / PARTS);
/// What the longest listing takes.
const LONGEST: u64 = ENTRIES_MAX * ENTRY_MEMORY + PATHS_MAX as u64;
/// What the names of large directories may take at a time, for one walk.
pub(crate) const NAMES_MEMORY: usize = 64 << 20;

impl Budget {
    pub fn new(whole: Bytes) -> Arc<Budget> {
        let books = Books { left: whole.0, held: HashMap::new() };
        Arc::new(Budget { part: whole.0 / PARTS, books: Mutex::new(books) })
    }

    /// The whole of which one holder may take so much.
    pub fn with_part(part: u64) -> u64 {
        part.saturating_mul(PARTS)
    }

    /// An empty share.
    pub fn share(self: &Arc<Budget>, holder: Holder) -> Share {
        Share { budget: Arc::clone(self), holder, taken: 0 }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// An empty share of the same holder.
    pub fn another(&self) -> Share {
        self.budget.share(self.holder)
    }

    /// Bytes that this holder may take still.
    pub fn left(&self) -> u64 {
        let books = self.budget.books();
        let held = books.held.get(&self.holder).copied().unwrap_or(0);
        books.left.min(self.budget.part.saturating_sub(held))
    }

    /// Takes `bytes` more; whether they were there, for this holder.
    pub fn take(&mut self, bytes: u64) -> bool {
        let mut books = self.budget.books();
        let held = books.held.get(&self.holder).copied().unwrap_or(0);
        let holds = held.checked_add(bytes).filter(|&holds| holds <= self.budget.part);
        let (Some(left), Some(holds)) = (books.left.checked_sub(bytes), holds) else {
            return false;
        };
        books.left = left;
        books.held.insert(self.holder, holds);
        self.taken += bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut books = self.budget.books();
        books.left += self.taken;
        if let Some(held) = books.held.get_mut(&self.holder) {
            *held -= self.taken;
            if *held == 0 {
                books.held.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    fn somebody() -> Holder {
        Holder::Listed(Identity::generate().fingerprint())
    }

    #[test]
    fn shares_together_never_exceed_the_budget_and_come_back_whole() {
        let budget = Budget::new(Bytes(103));
        let mut shares: Vec<Share> = (0..5).map(|_| budget.share(somebody())).collect();
        assert!(shares[..4].iter_mut().all(|share| share.take(25)));
        assert!(shares[4].take(3) && !shares[4].take(1), "not one byte more");
        drop(shares.remove(0));
        assert!(shares[3].take(22) && !shares[3].take(u64::MAX));
        assert!(shares[3].take(0) && !shares[3].take(1), "its part is used up");
        drop(shares);
        let books = budget.books();
        assert_eq!((books.left, books.held.len()), (103, 0));
    }

    #[test]
    fn one_key_and_all_strangers_together_take_no_more_than_a_quarter() {
        let budget = Budget::new(Bytes(400));
        for holder in [somebody(), Holder::Strangers] {
            let (mut first, mut second) = (budget.share(holder), budget.share(holder));
            assert!(first.take(60) && second.take(40));
            assert!(!first.take(1) && !second.take(1), "{holder:?}");
            assert!(budget.share(somebody()).take(100), "others find room");
            drop(first);
            assert!(second.take(60) && !second.take(1));
        }
    }
}
