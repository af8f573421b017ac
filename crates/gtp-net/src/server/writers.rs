//! Who writes to an export, told apart by when they began.
//!
//! A count of what lies there must wait for those who were writing when it was asked for, and for
//! nobody who came later. This module must not know what is written where.

use std::sync::{Arc, Weak};

/// Somebody who writes, until this is dropped.
pub(super) type Writer = Arc<()>;

/// All who write: those since the last look hold `current`, others an earlier one.
#[derive(Default)]
pub(super) struct Writers {
    current: Writer,
    earlier: Vec<Weak<()>>,
}

/// Those who wrote at some moment.
pub(super) struct SoFar(Vec<Weak<()>>);

impl Writers {
    /// Somebody begins.
    pub fn current(&self) -> Writer {
        Arc::clone(&self.current)
    }

    /// Those who write now.
    pub fn so_far(&mut self) -> SoFar {
        let until_now = std::mem::take(&mut self.current);
        self.earlier.retain(|writers| writers.strong_count() > 0);
        self.earlier.push(Arc::downgrade(&until_now));
        SoFar(self.earlier.clone())
    }
}

impl SoFar {
    /// Whether none of them writes any more.
    pub fn have_ended(&self) -> bool {
        self.0.iter().all(|writers| writers.strong_count() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_waits_for_those_who_wrote_before_it_and_for_nobody_later() {
        let mut writers = Writers::default();
        let first = writers.current();
        let one = writers.so_far();
        let second = writers.current();
        let two = writers.so_far();
        let third = writers.current();
        assert!(!one.have_ended() && !two.have_ended());
        drop(first);
        assert!(one.have_ended(), "the second began later");
        assert!(!two.have_ended());
        drop(second);
        assert!(two.have_ended(), "the third began later");
        drop(third);
        assert!(writers.so_far().have_ended());
    }
}
