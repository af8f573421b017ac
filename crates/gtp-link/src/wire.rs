//! Things under way, each due at its own time, taken out in the order of these times.
//!
//! Nearly everything is put in in that order, so that a ring is enough; what comes out of turn
//! (held back, or with free jitter) goes to a heap beside it. Things due at the same time leave in
//! the order in which they were put in.

use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Ordering;

use gtp_alloc::Time;

/// A time-ordered queue that costs a ring's price when its entries come in order.
#[derive(Clone, Debug)]
pub struct Wire<T> {
    ring: VecDeque<Entry<T>>,
    late: BinaryHeap<Entry<T>>,
    pushed: u64,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    at: Time,
    serial: u64,
    thing: T,
}

impl<T> Default for Wire<T> {
    fn default() -> Wire<T> {
        Wire { ring: VecDeque::new(), late: BinaryHeap::new(), pushed: 0 }
    }
}

impl<T> Wire<T> {
    /// An empty wire.
    pub fn new() -> Wire<T> {
        Wire::default()
    }

    /// Puts in a thing that is due at `at`.
    pub fn push(&mut self, at: Time, thing: T) {
        let entry = Entry { at, serial: self.pushed, thing };
        self.pushed += 1;
        match self.ring.back() {
            Some(last) if last.at > at => self.late.push(entry),
            Some(_) | None => self.ring.push_back(entry),
        }
    }

    /// When the next thing is due.
    pub fn next_at(&self) -> Option<Time> {
        self.first().map(|first| first.at)
    }

    /// The next thing, and when it is due.
    pub fn peek(&self) -> Option<(Time, &T)> {
        self.first().map(|first| (first.at, &first.thing))
    }

    #[inline]
    fn first(&self) -> Option<&Entry<T>> {
        match (self.ring.front(), self.late.peek()) {
            (Some(a), Some(b)) if (b.at, b.serial) < (a.at, a.serial) => Some(b),
            (Some(first), _) | (None, Some(first)) => Some(first),
            (None, None) => None,
        }
    }

    /// Takes the next thing out, if it is due by `now`.
    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<(Time, T)> {
        if self.late.is_empty() {
            self.ring.front().filter(|first| first.at <= now)?;
            return self.ring.pop_front().map(|first| (first.at, first.thing));
        }
        if self.next_at()? > now {
            return None;
        }
        let late_first = match (self.ring.front(), self.late.peek()) {
            (Some(a), Some(b)) => (b.at, b.serial) < (a.at, a.serial),
            (Some(_), None) => false,
            (None, Some(_)) => true,
            (None, None) => return None,
        };
        let entry = if late_first { self.late.pop() } else { self.ring.pop_front() };
        entry.map(|e| (e.at, e.thing))
    }

    /// Takes everything out, in order.
    pub fn drain(&mut self) -> alloc::vec::Vec<(Time, T)> {
        core::iter::from_fn(|| self.pop(Time::MAX)).collect()
    }

    /// Number of things under way.
    pub fn len(&self) -> usize {
        self.ring.len() + self.late.len()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.late.is_empty()
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed, because the heap gives its greatest entry first.
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_leave_by_time_and_then_by_arrival() {
        let mut wire = Wire::new();
        for (at, name) in [(5, 'a'), (9, 'b'), (7, 'c'), (9, 'd'), (5, 'e')] {
            wire.push(Time::from_nanos(at), name);
        }
        assert_eq!(wire.next_at(), Some(Time::from_nanos(5)));
        assert_eq!(wire.peek(), Some((Time::from_nanos(5), &'a')));
        assert_eq!(wire.pop(Time::from_nanos(4)), None);
        let order: alloc::string::String = wire.drain().into_iter().map(|(_, c)| c).collect();
        assert_eq!(order, "aecbd");
        assert!(wire.is_empty());
    }
}
