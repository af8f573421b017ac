//! A first-in, first-out ring of small values whose room is a power of two.
//!
//! Every packet goes through two rings on every link, so that their few instructions count: a place
//! is found by a mask, and a value is copied whole. It grows when it is full and never shrinks.

use alloc::vec::Vec;

/// A ring; see the module's head.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    /// As many as a power of two, or none; what is outside `len` places from `first` on is old.
    slots: Vec<T>,
    first: usize,
    len: usize,
}

/// Places of the smallest ring.
const PLACES_LEAST: usize = 4;

impl<T> Default for Ring<T> {
    fn default() -> Ring<T> {
        Ring { slots: Vec::new(), first: 0, len: 0 }
    }
}

impl<T: Copy> Ring<T> {
    /// An empty ring, which takes no memory yet.
    pub fn new() -> Ring<T> {
        Ring::default()
    }

    /// Number of values in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest value.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// The value behind `place` older ones.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        if place < self.len { self.slots.get(self.slot(place)) } else { None }
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let slot = self.slot(place);
        if place < self.len { self.slots.get_mut(slot) } else { None }
    }

    /// Puts in a newest value.
    #[inline]
    pub fn push_back(&mut self, value: T) {
        if self.len == self.slots.len() {
            self.grow(value);
        }
        let slot = self.slot(self.len);
        self.slots[slot] = value;
        self.len += 1;
    }

    /// Puts in a value that has `behind` newer ones; with as many as there are, it is the oldest.
    #[inline]
    pub fn insert(&mut self, behind: usize, value: T) {
        self.push_back(value);
        let mut place = self.len - 1;
        for _ in 0..behind.min(self.len - 1) {
            let (to, from) = (self.slot(place), self.slot(place - 1));
            self.slots[to] = self.slots[from];
            place -= 1;
        }
        let slot = self.slot(place);
        self.slots[slot] = value;
    }

    /// Takes the oldest value out.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let value = *self.front()?;
        self.first = self.slot(1);
        self.len -= 1;
        Some(value)
    }

    /// Forgets the oldest value, if there is one.
    #[inline]
    pub fn drop_front(&mut self) {
        if self.len > 0 {
            self.first = self.slot(1);
            self.len -= 1;
        }
    }

    /// All values, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).filter_map(|place| self.get(place))
    }

    /// Forgets all values, and keeps the room.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    fn slot(&self, place: usize) -> usize {
        self.first.wrapping_add(place) & self.slots.len().wrapping_sub(1)
    }

    /// Twice the room; what is new is filled with `value`.
    #[cold]
    fn grow(&mut self, value: T) {
        let room = (2 * self.slots.len()).max(PLACES_LEAST);
        let mut slots = Vec::with_capacity(room);
        slots.extend(self.iter().copied());
        slots.resize(room, value);
        (self.slots, self.first) = (slots, 0);
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_ring_holds_what_a_deque_would_hold(steps in prop::collection::vec(0u8..9, 1..600)) {
            let mut ring = Ring::new();
            let mut deque = VecDeque::new();
            prop_assert_eq!(ring.pop_front(), None);
            for (value, step) in steps.into_iter().enumerate() {
                match step {
                    0..5 => {
                        ring.push_back(value);
                        deque.push_back(value);
                    }
                    5..7 => prop_assert_eq!(ring.pop_front(), deque.pop_front()),
                    7 => {
                        let behind = value % 5;
                        ring.insert(behind, value);
                        deque.insert(deque.len().saturating_sub(behind), value);
                    }
                    _ => {
                        let place = value % 7;
                        prop_assert_eq!(ring.get_mut(place), deque.get_mut(place));
                    }
                }
                prop_assert_eq!(ring.front(), deque.front());
                prop_assert_eq!(ring.len(), deque.len());
                prop_assert!(ring.iter().eq(deque.iter()));
            }
            ring.clear();
            prop_assert!(ring.is_empty() && ring.get(0).is_none());
        }
    }
}
