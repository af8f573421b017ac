//! Which blocks the source of a relayed object gives to which sink.
//!
//! Each block is given to one sink, which gives it on. It is given again only where the first sink
//! is lost or out of reach, or keeps what it got to itself. A sink is given little at a time, about
//! what it takes in half a second, so sinks share the blocks by what each of them takes, and one
//! that is lost holds few. Time is an argument, and this module knows no network.

use std::ops::Range;

use gtp_alloc::{Rate, Span, Time};
use gtp_store::{BLOCK, RangeSet};

/// A sink is given what it takes in this time: some control intervals, the time between two looks,
/// and a round trip.
const LEASE: Span = Span::from_millis(500);

/// Blocks that a sink is given at least, and at most: 2 MiB, and half a second at 17 Gbit/s.
const LEASE_LEAST: u64 = 8;
const LEASE_MOST: u64 = 4_096;

/// How long sinks may take to reach each other before a block of the one is given to the other.
const REACH_SPAN: Span = Span::from_secs(3);

/// A sink that has got nothing for so long of what it was given keeps it from nobody any more, and
/// one that has got nothing at all is given what others have.
const STALLED: Span = Span::from_secs(3);

/// What the source knows of all sinks.
#[derive(Debug)]
pub(super) struct Board {
    blocks: u64,
    places: Vec<Place>,
    /// Blocks of which sinks know what they must be: what else a sink has, it does not give on.
    known: RangeSet,
}

#[derive(Clone, Debug, Default)]
struct Place {
    is_here: bool,
    /// What it gives on.
    gives: RangeSet,
    /// What it needs not: what it gives on, and what it keeps.
    has: RangeSet,
    /// What it was given and has not.
    leased: RangeSet,
    /// When it last got something of that, or had nothing of it.
    leased_moved: Time,
    /// When it last got anything.
    moved: Time,
    /// A bit for each sink from which it reads.
    reached: u64,
    /// Since when it may reach each of the others.
    since: Vec<Time>,
}

impl Board {
    /// For an object of so many blocks, and so many sinks that are not there yet.
    pub fn new(blocks: u64, places: usize) -> Board {
        Board { blocks, places: vec![Place::default(); places], known: RangeSet::new() }
    }

    /// A sink has come, or has come again: what it has, it will say.
    pub fn join(&mut self, now: Time, place: usize) {
        let count = self.places.len();
        if let Some(place) = self.places.get_mut(place) {
            let times = Place { leased_moved: now, moved: now, ..Place::default() };
            *place = Place { is_here: true, since: vec![now; count], ..times };
        }
        for other in &mut self.places {
            if let Some(since) = other.since.get_mut(place) {
                *since = now;
            }
        }
    }

    /// A sink is gone, with all that it has.
    pub fn leave(&mut self, place: usize) {
        if let Some(place) = self.places.get_mut(place) {
            *place = Place::default();
        }
    }

    /// Sinks are told what these blocks must be.
    pub fn note_known(&mut self, block: u64) {
        self.known.insert_one(block);
    }

    /// A sink gives on these blocks from now on, and keeps those; it reads from these sinks.
    /// Returns whether it has got something.
    pub fn note_have(
        &mut self,
        now: Time,
        place: usize,
        (gives, kept): (&[Range<u64>], &[Range<u64>]),
        reached: u64,
    ) -> bool {
        let Some(place) = self.places.get_mut(place).filter(|place| place.is_here) else {
            return false;
        };
        let (before, leased) = (place.has.len(), place.leased.len());
        for range in gives {
            let range = range.start..range.end.min(self.blocks);
            place.gives.insert(range.clone());
            place.has.insert(range.clone());
            place.leased.remove(range);
        }
        for range in kept {
            let range = range.start..range.end.min(self.blocks);
            place.has.insert(range.clone());
            place.leased.remove(range);
        }
        if place.leased.len() < leased || place.leased.is_empty() {
            place.leased_moved = now;
        }
        for (other, since) in place.since.iter_mut().enumerate() {
            if place.reached & !reached & (1 << other) != 0 {
                *since = now;
            }
        }
        place.reached = reached;
        let has_moved = place.has.len() > before;
        if has_moved {
            place.moved = now;
        }
        has_moved
    }

    /// The sinks that are here and that a sink has not reached for so long that it gets what they
    /// have from the source.
    pub fn unreached(&self, now: Time, place: usize) -> Vec<usize> {
        let others = (0..self.places.len()).filter(|&other| other != place);
        others
            .filter(|&other| self.places[other].is_here && !self.may_reach(now, place, other))
            .collect()
    }

    /// Whether a sink reads from another, or may do so soon.
    fn may_reach(&self, now: Time, place: usize, other: usize) -> bool {
        let Some(to) = self.places.get(place) else { return false };
        let is_soon = |&since: &Time| now.since(since) < REACH_SPAN;
        to.reached & (1 << other) != 0 || to.since.get(other).is_some_and(is_soon)
    }

    /// How many blocks a sink has.
    pub fn count(&self, place: usize) -> u64 {
        self.places.get(place).map_or(0, |place| place.has.len())
    }

    /// Which blocks a sink is given now, which takes from the source at this rate.
    pub fn give(&mut self, now: Time, place: usize, rate: Rate) -> RangeSet {
        let none = RangeSet::new();
        let Some(to) = self.places.get(place).filter(|place| place.is_here) else { return none };
        let soon = rate.bytes_in(LEASE).0 / BLOCK;
        let most = soon.clamp(LEASE_LEAST, LEASE_MOST);
        let outstanding = to.leased.len();
        if outstanding * 2 > most || to.has.len() == self.blocks {
            return none;
        }
        let mut covered = self.covered(now, place);
        let is_stalled = now.since(to.moved) >= STALLED && outstanding == 0;
        let mut wanted = most - outstanding;
        if is_stalled && covered.len() == self.blocks {
            (covered, wanted) = (to.has.clone(), LEASE_LEAST);
        }
        let given = lowest(&covered, self.blocks, wanted);
        if let Some(to) = self.places.get_mut(place) {
            if outstanding == 0 {
                to.leased_moved = now;
            }
            add(&mut to.leased, given.iter());
        }
        given
    }

    /// Blocks that a sink has, was given, or gets from others.
    fn covered(&self, now: Time, place: usize) -> RangeSet {
        let to = &self.places[place];
        let mut covered = to.has.clone();
        add(&mut covered, to.leased.iter());
        for (number, other) in self.places.iter().enumerate() {
            if number == place || !other.is_here || !self.may_reach(now, place, number) {
                continue;
            }
            for range in other.gives.iter() {
                add(&mut covered, self.known.within(range));
            }
            if now.since(other.leased_moved) < STALLED {
                add(&mut covered, other.leased.iter());
            }
        }
        covered
    }
}

fn add(set: &mut RangeSet, ranges: impl Iterator<Item = Range<u64>>) {
    for range in ranges {
        set.insert(range);
    }
}

/// The lowest `wanted` of the numbers below `end` that are not in a set.
fn lowest(set: &RangeSet, end: u64, mut wanted: u64) -> RangeSet {
    let (mut free, mut at) = (RangeSet::new(), 0_u64);
    let ends = std::iter::once(end..end);
    for range in set.within(0..end).chain(ends) {
        let stop = range.start.min(at.saturating_add(wanted));
        if at < stop {
            wanted -= free.insert(at..stop);
        }
        if wanted == 0 {
            break;
        }
        at = range.end;
    }
    free
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // Lists of ranges of which one has one.
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLOW: Rate = Rate::ZERO;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn ranges(set: &RangeSet) -> Vec<Range<u64>> {
        set.iter().collect()
    }

    #[test]
    fn each_block_is_given_to_one_sink_and_again_only_when_that_one_is_lost() {
        let mut board = Board::new(20, 3);
        (0..3).for_each(|place| board.join(at(0), place));
        assert_eq!(ranges(&board.give(at(0), 0, SLOW)), [0..8]);
        assert_eq!(ranges(&board.give(at(0), 1, SLOW)), [8..16]);
        assert_eq!(ranges(&board.give(at(0), 2, SLOW)), [16..20]);
        assert!(board.give(at(0), 0, SLOW).is_empty(), "it has not got what it was given");
        (0..4).for_each(|block| board.note_known(block));
        board.note_have(at(100), 0, (&[0..4], &[]), 0b110);
        assert!(board.give(at(100), 1, SLOW).is_empty() && board.give(at(100), 2, SLOW).is_empty());
        board.note_have(at(100), 2, (&[16..20], &[]), 0b011);
        assert!(board.give(at(100), 2, SLOW).is_empty(), "all of it comes from others");
        board.leave(0);
        assert_eq!(ranges(&board.give(at(200), 2, SLOW)), [0..8]);
    }

    #[test]
    fn a_sink_that_does_not_reach_another_is_given_what_that_one_has_and_not_at_once() {
        let mut board = Board::new(8, 2);
        (0..2).for_each(|place| board.join(at(0), place));
        board.give(at(0), 0, SLOW);
        (0..8).for_each(|block| board.note_known(block));
        board.note_have(at(100), 0, (&[0..8], &[]), 0);
        board.note_have(at(100), 1, (&[], &[]), 0);
        assert!(board.give(at(2_900), 1, SLOW).is_empty(), "they may reach each other yet");
        assert!(board.unreached(at(2_900), 1).is_empty());
        assert_eq!(board.unreached(at(3_000), 1), [0]);
        assert_eq!(ranges(&board.give(at(3_000), 1, SLOW)), [0..8]);
    }

    #[test]
    fn what_a_sink_keeps_to_itself_comes_from_the_source() {
        let mut board = Board::new(8, 2);
        (0..2).for_each(|place| board.join(at(0), place));
        board.note_have(at(0), 0, (&[2..4], &[0..2]), 0b10);
        assert_eq!(ranges(&board.give(at(0), 1, SLOW)), [0..8], "nobody is told what they are");
        board.leave(1);
        board.join(at(0), 1);
        (0..8).for_each(|block| board.note_known(block));
        assert_eq!(ranges(&board.give(at(0), 1, SLOW)), [0..2, 4..8]);
        assert!(board.give(at(0), 0, SLOW).is_empty(), "the other one was given the rest");
        assert_eq!(ranges(&board.give(at(3_000), 0, SLOW)), [4..8], "and gets nothing of it");
    }

    #[test]
    fn a_sink_that_takes_more_is_given_more() {
        let mut board = Board::new(10_000, 2);
        (0..2).for_each(|place| board.join(at(0), place));
        let (slow, fast) = (Rate::from_mbps(10), Rate::from_mbps(1_000));
        assert_eq!(board.give(at(0), 0, slow).len(), 8);
        assert_eq!(board.give(at(0), 1, fast).len(), 238);
    }

    proptest! {
        /// Sinks that take what they are given at once, from the source and from each other, all
        /// get all of it; the source gives each block once if nobody is lost, and whoever is lost
        /// costs no more than what it had.
        #[test]
        fn all_get_all_and_nothing_is_given_twice_unless_somebody_is_lost(
            blocks in 1..300_u64,
            lost_at in 0..40_u64,
            takes in proptest::collection::vec(1..20_u64, 4),
        ) {
            let mut board = Board::new(blocks, 4);
            let mut has = vec![RangeSet::new(); 4];
            let mut given = 0;
            (0..4).for_each(|place| board.join(at(0), place));
            for step in 0..2_000 {
                let now = at(100 * step);
                let alive = if step < lost_at { 4 } else { 3 };
                if step == lost_at {
                    board.leave(3);
                }
                for place in 0..alive {
                    let gives = board.give(now, place, SLOW);
                    given += gives.len();
                    let mut news = Vec::new();
                    for range in gives.iter().chain(others(&has, place, alive, takes[place])) {
                        range.clone().for_each(|block| board.note_known(block));
                        has[place].insert(range.clone());
                        news.push(range);
                    }
                    board.note_have(now, place, (&news, &[]), 0b1111);
                }
            }
            for of in &has[..3] {
                prop_assert_eq!(of.len(), blocks);
            }
            prop_assert!(given <= blocks + has[3].len(), "{} of {}", given, blocks);
        }
    }

    /// What a sink lacks and others have, a few blocks of it.
    fn others(
        has: &[RangeSet],
        place: usize,
        alive: usize,
        most: u64,
    ) -> impl Iterator<Item = Range<u64>> + use<> {
        let mut lacks = RangeSet::new();
        for of in has[..alive].iter() {
            add(&mut lacks, of.iter());
        }
        for range in has[place].iter() {
            lacks.remove(range);
        }
        let all: Vec<u64> = lacks.iter().flatten().take(most as usize).collect();
        all.into_iter().map(|block| block..block + 1)
    }
}
