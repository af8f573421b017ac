//! What happens next: an indexed heap with one entry per actor.
//!
//! An actor is whatever can want to be woken: a link whose first packet arrives, a host, one end of
//! a session. Each has one wish at most, so the heap holds as many entries as there are busy
//! actors, however many packets are under way. The order is that of (time, sequence number): equal
//! times are served in the order in which they were asked for.

use gtp_alloc::Time;

/// An actor's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ActorId(pub u32);

/// When an actor is to be woken: time first, then the order of asking. One number, because one
/// comparison of it is what everything here costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    /// Later than every wish.
    pub const NEVER: Key = Key(u128::MAX);

    #[inline]
    pub const fn new(at: Time, sequence: u64) -> Key {
        Key((at.as_nanos() as u128) << 64 | sequence as u128)
    }

    #[inline]
    pub const fn at(self) -> Time {
        Time::from_nanos((self.0 >> 64) as u64)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    actor: ActorId,
}

/// A four-ary heap of wishes that knows where each actor's is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    heap: Vec<Entry>,
    /// Place in the heap of each actor's wish.
    places: Vec<u32>,
    sequence: u64,
}

const NOWHERE: u32 = u32::MAX;
/// Children of a node: the heap is half as deep as one of pairs, and the least of four is found
/// without a branch.
const FAN: usize = 4;

impl Schedule {
    /// A new actor, without a wish.
    pub fn add_actor(&mut self) -> ActorId {
        self.places.push(NOWHERE);
        ActorId(self.places.len() as u32 - 1)
    }

    /// A sequence number for something that is asked for now.
    #[inline]
    pub fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// The earliest wish.
    #[inline]
    pub fn peek(&self) -> Option<(Key, ActorId)> {
        self.heap.first().map(|e| (e.key, e.actor))
    }

    /// The wish of an actor, [`Key::NEVER`] if it has none.
    #[cfg(test)]
    pub fn key(&self, actor: ActorId) -> Key {
        match self.places[actor.0 as usize] {
            NOWHERE => Key::NEVER,
            place => self.heap[place as usize].key,
        }
    }

    /// Wakes `actor` at `at`, after all that was asked for that time before; [`Time::MAX`] is
    /// never.
    pub fn wake(&mut self, actor: ActorId, at: Time) {
        if at == Time::MAX {
            self.clear(actor);
        } else {
            let sequence = self.next_sequence();
            self.set(actor, Key::new(at, sequence));
        }
    }

    /// Replaces the wish of `actor`.
    pub fn set(&mut self, actor: ActorId, key: Key) {
        if key == Key::NEVER {
            return self.clear(actor);
        }
        let entry = Entry { key, actor };
        match self.places[actor.0 as usize] {
            NOWHERE => {
                self.heap.push(entry);
                self.rise(self.heap.len() - 1, entry);
            }
            place => self.settle(place as usize, entry),
        }
    }

    /// The actor wants nothing.
    pub fn clear(&mut self, actor: ActorId) {
        let place = core::mem::replace(&mut self.places[actor.0 as usize], NOWHERE);
        if place == NOWHERE {
            return;
        }
        if let Some(last) = self.heap.pop()
            && (place as usize) < self.heap.len()
        {
            self.settle(place as usize, last);
        }
    }

    /// Puts `entry` at `place` or wherever it belongs above or below.
    fn settle(&mut self, place: usize, entry: Entry) {
        if place > 0 && entry.key < self.heap[(place - 1) / FAN].key {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    fn rise(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / FAN;
            if self.heap[parent].key <= entry.key {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: Entry) {
        loop {
            let first = place * FAN + 1;
            let (least, key) = if let Some(four) = self.heap.get(first..first + FAN) {
                let later = |a: usize, b: usize| usize::from(four[b].key < four[a].key);
                let (left, right) = (later(0, 1), 2 + later(2, 3));
                let least = if four[right].key < four[left].key { right } else { left };
                (first + least, four[least].key)
            } else {
                let few = self.heap.get(first..).unwrap_or_default().iter().enumerate();
                match few.map(|(i, e)| (e.key, i)).min() {
                    Some((key, i)) => (first + i, key),
                    None => break,
                }
            };
            if entry.key <= key {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    #[inline]
    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.places[entry.actor.0 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn wishes_are_served_as_a_sorted_list_would_serve_them(
            steps in prop::collection::vec((0u32..24, 0u64..50, 0u8..4), 1..400)
        ) {
            let mut schedule = Schedule::default();
            for _ in 0..24 {
                schedule.add_actor();
            }
            let mut naive: BTreeMap<u32, Key> = BTreeMap::new();
            for (actor, at, what) in steps {
                match what {
                    0 => {
                        schedule.clear(ActorId(actor));
                        naive.remove(&actor);
                    }
                    1 => {
                        let first = naive.iter().map(|(a, k)| (*k, ActorId(*a))).min();
                        prop_assert_eq!(schedule.peek(), first);
                        if let Some((_, first)) = first {
                            schedule.clear(first);
                            naive.remove(&first.0);
                        }
                    }
                    _ => {
                        schedule.wake(ActorId(actor), Time::from_nanos(at));
                        let key = Key::new(Time::from_nanos(at), schedule.sequence);
                        naive.insert(actor, key);
                    }
                }
                let key = naive.get(&actor).copied().unwrap_or(Key::NEVER);
                prop_assert_eq!(schedule.key(ActorId(actor)), key);
                let first = naive.iter().map(|(a, k)| (*k, ActorId(*a))).min();
                prop_assert_eq!(schedule.peek(), first);
            }
        }
    }
}
