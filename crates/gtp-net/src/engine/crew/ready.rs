//! What waits for a worker, told apart by the device that it works on.
//!
//! Turns go round the devices, and round the work on each: one with much work, or one that is slow,
//! gets its part and no more. No device has more workers than it may at a time, so one that hangs
//! never takes all that there can be. This module must not know what the work is, nor threads.

use std::collections::{BTreeMap, VecDeque};

/// What work is on, as far as it can hold up other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A device, by its number.
    Device(u64),
    /// Something that only this work knows, such as a pipe or memory.
    Own(u64),
}

/// Work that waits, and how much is done at each place now.
pub(super) struct Ready<T> {
    /// Places where work waits, the next one first.
    round: VecDeque<Place>,
    waiting: BTreeMap<Place, VecDeque<T>>,
    working: BTreeMap<Place, usize>,
    most_each: usize,
}

impl<T> Ready<T> {
    /// Nothing waits; so much may be worked on at one place at a time.
    pub fn new(most_each: usize) -> Ready<T> {
        let (waiting, working) = (BTreeMap::new(), BTreeMap::new());
        Ready { round: VecDeque::new(), waiting, working, most_each }
    }

    /// Adds work behind all other work on this place.
    pub fn push(&mut self, place: Place, work: T) {
        let queue = self.waiting.entry(place).or_default();
        if queue.is_empty() {
            self.round.push_back(place);
        }
        queue.push_back(work);
    }

    /// Takes out what is next; it counts as worked on until [`Ready::done`].
    pub fn take(&mut self) -> Option<(Place, T)> {
        let at = self.round.iter().position(|&place| !self.is_full(place))?;
        let place = self.round.remove(at)?;
        let queue = self.waiting.get_mut(&place)?;
        let work = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&place);
        } else {
            self.round.push_back(place);
        }
        *self.working.entry(place).or_default() += 1;
        Some((place, work))
    }

    /// Whether there is work that may begin.
    pub fn is_due(&self) -> bool {
        self.round.iter().any(|&place| !self.is_full(place))
    }

    /// Whether as much is worked on there as may be.
    pub fn is_full(&self, place: Place) -> bool {
        self.working.get(&place).is_some_and(|&working| working >= self.most_each)
    }

    /// Whether as much as may be is worked on there or waits for that.
    pub fn has_enough(&self, place: Place) -> bool {
        let working = self.working.get(&place).copied().unwrap_or(0);
        working + self.waiting.get(&place).map_or(0, VecDeque::len) >= self.most_each
    }

    /// Something that was taken at this place is no longer worked on.
    pub fn done(&mut self, place: Place) {
        if let Some(working) = self.working.get_mut(&place) {
            *working -= 1;
            if *working == 0 {
                self.working.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Place = Place::Device(1);
    const FAST: Place = Place::Device(2);

    #[test]
    fn a_device_with_much_work_has_every_other_turn_where_another_one_has_work() {
        let mut ready = Ready::new(9);
        (0..6).for_each(|n| ready.push(SLOW, n));
        (10..13).for_each(|n| ready.push(FAST, n));
        let taken: Vec<_> = std::iter::from_fn(|| ready.take()).map(|(_, work)| work).collect();
        assert_eq!(taken, [0, 10, 1, 11, 2, 12, 3, 4, 5]);
    }

    #[test]
    fn no_device_has_more_workers_than_it_may_and_others_do_not_wait_for_it() {
        let mut ready = Ready::new(2);
        (0..5).for_each(|n| ready.push(SLOW, n));
        assert_eq!((ready.take(), ready.take()), (Some((SLOW, 0)), Some((SLOW, 1))));
        assert!(!ready.is_due() && ready.is_full(SLOW));
        assert_eq!(ready.take(), None);
        ready.push(FAST, 10);
        assert!(ready.is_due());
        assert_eq!(ready.take(), Some((FAST, 10)));
        ready.done(SLOW);
        assert_eq!(ready.take(), Some((SLOW, 2)));
        ready.done(SLOW);
        ready.done(SLOW);
        ready.done(FAST);
        assert!(ready.working.is_empty(), "nothing is kept of what is done");
    }
}
