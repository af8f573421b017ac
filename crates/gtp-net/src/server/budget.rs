//! Memory for listings, all sessions of a server together.
//!
//! Each session takes a share that grows entry by entry, before memory is taken, and gives it back
//! when it ends. Who finds the budget used up is told to come again later. It counts, and knows
//! nothing of what is listed.

use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::Bytes;

/// What all shares may take together.
pub(super) struct Budget {
    left: Mutex<u64>,
}

/// What one session has taken; given back when it is dropped.
pub(super) struct Share {
    budget: Arc<Budget>,
    taken: u64,
}

/// Words for a client whose listing found no room.
pub(super) const USED_UP: &str =
    "the server's memory for listings is used up; try again later, or ask for a part";

impl Budget {
    pub fn new(whole: Bytes) -> Arc<Budget> {
        Arc::new(Budget { left: Mutex::new(whole.0) })
    }

    /// An empty share.
    pub fn share(self: &Arc<Budget>) -> Share {
        Share { budget: Arc::clone(self), taken: 0 }
    }
}

impl Share {
    /// Takes `bytes` more; whether they were there.
    pub fn take(&mut self, bytes: u64) -> bool {
        let mut left = self.budget.left.lock().unwrap_or_else(PoisonError::into_inner);
        match left.checked_sub(bytes) {
            Some(rest) => {
                *left = rest;
                self.taken += bytes;
                true
            }
            None => false,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.budget.left.lock().unwrap_or_else(PoisonError::into_inner) += self.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_together_never_exceed_the_budget_and_come_back_whole() {
        let budget = Budget::new(Bytes(100));
        let (mut a, mut b) = (budget.share(), budget.share());
        assert!(a.take(60) && b.take(40));
        assert!(!a.take(1) && !b.take(u64::MAX), "not one byte more");
        drop(a);
        assert!(b.take(60) && !b.take(1));
        drop(b);
        assert!(budget.share().take(100));
    }
}
