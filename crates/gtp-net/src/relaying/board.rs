//! Which blocks the source of a relayed object gives to which sink.
//!
//! Each block is given to one sink, which gives it on. It is given again where the first sink is
//! lost or out of reach, keeps what it got to itself, or passes it on more slowly than the others
//! do. A sink is given little at a time, about what it takes in half a second, so sinks share the
//! blocks by what each of them takes, and one that is lost holds few. Time is an argument, and this
//! module knows no network.

use std::collections::VecDeque;
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

/// A sink that has got nothing for so long of what it was given keeps it from nobody any more; one
/// of whose blocks others have got nothing keeps those from nobody; and one that has got nothing at
/// all is given what others have. Where blocks take longer, it is the time of some.
const STALLED: Span = Span::from_secs(3);
const STALLED_BLOCKS: u64 = 4;

/// A sink passes blocks on slowly if the oldest that nobody else has is so many times as old as
/// that of the sink in the middle of the others.
const SLOW: u64 = 2;

/// A sink is given at most what others got from it in this time of what only it had, and a little
/// more: so that grows fourfold in the half second that a block takes to be passed on and told.
const PASSING: Span = Span::from_secs(2);

/// How often the patience with a sink that passed on nothing it is given nothing first, before it
/// has done so twice; and how often that doubles.
const STRUCK: u64 = 2;
const STRIKES_MOST: u32 = 10;

/// The part of the blocks that is given again because a sink passes them on slowly: one in so many.
const AGAIN: u64 = 20;

/// What the source knows of all sinks.
#[derive(Debug)]
pub(crate) struct Board {
    blocks: u64,
    places: Vec<Place>,
    /// Blocks of which sinks know what they must be: what else a sink has, it does not give on.
    known: RangeSet,
    /// How many blocks were given again because a sink is slow.
    again: u64,
}

#[derive(Clone, Debug, Default)]
struct Place {
    is_here: bool,
    joined: Time,
    /// How many blocks have come since: those that it was given, and those that it can have from
    /// other sinks.
    came: u64,
    /// What it gives on.
    gives: RangeSet,
    /// What it needs not: what it gives on, and what it keeps.
    has: RangeSet,
    /// What it says it gives on though it was not given it and no other sink had it: what it had
    /// before, or a lie. It counts as there once anybody has got it from another sink.
    claimed: RangeSet,
    /// What it was given and has not.
    leased: RangeSet,
    /// When it last got something of that, or had nothing of it.
    leased_moved: Time,
    /// When it last got anything.
    moved: Time,
    /// When it last got something that it was not given, so from another sink.
    brought: Time,
    /// Whether it was given what others have since, because nothing came from them.
    is_helped: bool,
    /// What it gives on and no other sink has, and since when, the oldest first.
    alone: RangeSet,
    since_alone: VecDeque<(Time, Range<u64>)>,
    /// When another sink last got something of that, or it had nothing of it; and how many blocks
    /// others got of it lately.
    passed: Time,
    passes: VecDeque<(Time, u64)>,
    /// How often it has passed on nothing, and until when it is therefore given nothing first.
    strikes: u32,
    struck_until: Time,
    /// A bit for each sink from which it reads.
    reached: u64,
    /// Since when it may reach each of the others.
    since: Vec<Time>,
}

impl Board {
    /// For an object of so many blocks, and so many sinks that are not there yet.
    pub fn new(blocks: u64, places: usize) -> Board {
        let places = vec![Place::default(); places];
        Board { blocks, places, known: RangeSet::new(), again: 0 }
    }

    /// A sink has come, or has come again: what it has, it will say.
    pub fn join(&mut self, now: Time, place: usize) {
        self.leave(now, place);
        let count = self.places.len();
        if let Some(place) = self.places.get_mut(place) {
            place.is_here = true;
            (place.joined, place.passed, place.leased_moved) = (now, now, now);
            (place.moved, place.brought) = (now, now);
            place.since = vec![now; count];
        }
        for other in &mut self.places {
            if let Some(since) = other.since.get_mut(place) {
                *since = now;
            }
        }
    }

    /// A sink is gone, with all that it has. What it had from another one may be there alone now.
    pub fn leave(&mut self, now: Time, place: usize) {
        let Some(gone) = self.places.get_mut(place).map(Place::go) else { return };
        for other in (0..self.places.len()).filter(|other| *other != place) {
            let both = common(&self.places[other].gives, &gone.gives);
            self.note_alone(now, other, &both);
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
        let Some(before) = self.places.get(place).filter(|place| place.is_here) else {
            return false;
        };
        let (had, leased) = (before.has.len(), before.leased.len());
        let cut = |range: &Range<u64>| range.start..range.end.min(self.blocks);
        let (gives, kept): (RangeSet, RangeSet) =
            (gives.iter().map(cut).collect(), kept.iter().map(cut).collect());
        self.note_copies(now, place, &gives);
        self.note_kept(now, place, &kept);
        let Some(place) = self.places.get_mut(place) else { return false };
        if place.leased.len() < leased || place.leased.is_empty() {
            place.leased_moved = now;
        }
        for (other, since) in place.since.iter_mut().enumerate() {
            if place.reached & !reached & (1 << other) != 0 {
                *since = now;
            }
        }
        place.reached = reached;
        let has_moved = place.has.len() > had;
        if has_moved {
            place.moved = now;
        }
        has_moved
    }

    /// A sink gives on these blocks.
    fn note_copies(&mut self, now: Time, place: usize, gives: &RangeSet) {
        let Some(to) = self.places.get_mut(place) else { return };
        let given = common(gives, &to.leased);
        let mut brought = without(gives, &to.has);
        subtract(&mut brought, given.iter());
        for range in gives.iter() {
            to.has.insert(range.clone());
            to.gives.insert(range.clone());
            to.leased.remove(range);
        }
        if !brought.is_empty() {
            (to.brought, to.is_helped) = (now, false);
        }
        let others = |places: &[Place]| -> Vec<usize> {
            (0..places.len()).filter(|&other| other != place && places[other].is_here).collect()
        };
        let mut claimed = brought.clone();
        for other in others(&self.places) {
            // It may pass on what it was given before it says that it has it.
            let other = &self.places[other];
            claimed = without(&without(&claimed, &other.has), &other.leased);
        }
        self.places[place].came += given.len() + brought.len() - claimed.len();
        if claimed.is_empty() {
            others(&self.places).into_iter().for_each(|other| {
                self.places[other].note_passed(now, &brought);
            });
            self.places.iter_mut().for_each(|other| subtract(&mut other.claimed, brought.iter()));
        } else {
            // Who says that it has what nobody can have given it has perhaps none of this.
            add(&mut self.places[place].claimed, brought.iter());
        }
        let mut alone = given;
        add(&mut alone, claimed.iter());
        self.note_alone(now, place, &alone);
        let everywhere = self.everywhere(gives);
        self.places.iter_mut().for_each(|other| other.forget_alone(now, &everywhere));
    }

    /// A sink neither needs these blocks nor gives them on.
    fn note_kept(&mut self, now: Time, place: usize, kept: &RangeSet) {
        let Some(to) = self.places.get_mut(place) else { return };
        for range in kept.iter() {
            to.has.insert(range.clone());
            to.gives.remove(range.clone());
            to.leased.remove(range);
        }
        self.places.iter_mut().for_each(|other| other.forget_alone(now, kept));
    }

    /// Of blocks that a sink gives on, those count that others lack and no other one has, as far as
    /// that is known.
    fn note_alone(&mut self, now: Time, place: usize, blocks: &RangeSet) {
        let mut alone = blocks.clone();
        for (number, other) in self.places.iter().enumerate() {
            if number != place && other.is_here {
                let there = without(&common(&alone, &other.has), &other.claimed);
                subtract(&mut alone, there.iter());
            }
        }
        let everywhere = self.everywhere(&alone);
        subtract(&mut alone, everywhere.iter());
        let Some(place) = self.places.get_mut(place) else { return };
        for range in alone.iter() {
            if place.alone.is_empty() {
                place.passed = now;
            }
            if place.alone.insert(range.clone()) > 0 {
                place.since_alone.push_back((now, range));
            }
        }
    }

    /// Of these blocks, those that no sink lacks.
    fn everywhere(&self, blocks: &RangeSet) -> RangeSet {
        let here = self.places.iter().filter(|place| place.is_here);
        here.fold(blocks.clone(), |left, place| common(&left, &place.has))
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
        let patience = self.patience();
        let is_late: Vec<Late> =
            (0..self.places.len()).map(|other| self.late(now, other, patience)).collect();
        self.strike((now, patience), &is_late);
        let wanted = most - outstanding;
        let mut given = self.own_part((now, patience), place, wanted, &is_late);
        if given.is_empty() && outstanding == 0 {
            given = self.help((now, patience), place, wanted, &is_late);
        }
        if let Some(to) = self.places.get_mut(place) {
            if outstanding == 0 {
                to.leased_moved = now;
            }
            add(&mut to.leased, given.iter());
        }
        given
    }

    /// What comes to a sink from nobody else: all that no other one lacks, and of the rest as much
    /// as it passes on.
    fn own_part(
        &self,
        (now, patience): (Time, Span),
        place: usize,
        wanted: u64,
        late: &[Late],
    ) -> RangeSet {
        let mut covered = self.covered((now, patience), place, late);
        let mut others_have = covered.clone();
        self.add_firsts(now, &mut others_have, place, late);
        let mut given = lowest(&others_have, self.blocks, wanted);
        if self.is_in_time(now, place, late) {
            add(&mut covered, given.iter());
            let room = self.places[place].room(now).min(wanted - given.len());
            add(&mut given, lowest(&covered, self.blocks, room).iter());
        }
        given
    }

    /// How long nothing may come: where the fastest sink takes long for a block, for some blocks.
    fn patience(&self) -> Span {
        let here = self.places.iter().filter(|place| place.is_here && place.came > 0);
        let each = here.map(|place| place.moved.since(place.joined) / place.came);
        each.min().map_or(FOR_EVER, |each| STALLED.max(each * STALLED_BLOCKS))
    }

    /// How a sink passes on what only it has.
    fn late(&self, now: Time, place: usize, patience: Span) -> Late {
        let age = |place: &Place| place.oldest_alone().map_or(Span::ZERO, |at| now.since(at));
        let Some(of) = self.places.get(place).filter(|place| place.is_here) else {
            return Late::No;
        };
        let own = age(of);
        let others = self.places.iter().enumerate().filter(|(other, _)| *other != place);
        let mut ages: Vec<Span> =
            others.filter(|(_, other)| other.is_here).map(|(_, other)| age(other)).collect();
        ages.sort_unstable();
        if own < patience || ages.is_empty() {
            Late::No
        } else if now.since(of.passed) >= patience {
            Late::Withholds
        } else if own > ages[(ages.len() - 1) / 2] * SLOW {
            Late::Slow
        } else {
            Late::No
        }
    }

    /// Blocks that a sink has, was given, or gets from others.
    fn covered(&self, (now, patience): (Time, Span), place: usize, late: &[Late]) -> RangeSet {
        let mut covered = RangeSet::new();
        for (number, other) in self.places.iter().enumerate() {
            if number == place || !other.is_here || !self.may_reach(now, place, number) {
                continue;
            }
            add(&mut covered, other.gives.iter().flat_map(|range| self.known.within(range)));
            if late[number] == Late::Withholds {
                subtract(&mut covered, other.alone.iter());
            }
        }
        add(&mut covered, self.places[place].has.iter());
        for (number, other) in self.places.iter().enumerate() {
            let is_given = other.is_here && self.may_reach(now, place, number);
            if number == place || is_given && now.since(other.leased_moved) < patience {
                add(&mut covered, other.leased.iter());
            }
        }
        covered
    }

    /// A sink that passes on nothing is given nothing first for a while, and longer each time.
    fn strike(&mut self, (now, patience): (Time, Span), late: &[Late]) {
        for (place, late) in self.places.iter_mut().zip(late) {
            if *late == Late::Withholds && now >= place.struck_until {
                place.strikes = (place.strikes + 1).min(STRIKES_MOST);
                place.struck_until = now + patience * (STRUCK << place.strikes);
            }
        }
    }

    /// Whether a sink is given blocks that others lack.
    fn is_in_time(&self, now: Time, place: usize, late: &[Late]) -> bool {
        late[place] == Late::No && now >= self.places[place].struck_until
    }

    /// Adds blocks that another sink which passes on in time lacks.
    fn add_firsts(&self, now: Time, covered: &mut RangeSet, place: usize, late: &[Late]) {
        for (number, other) in self.places.iter().enumerate() {
            if number != place && other.is_here && self.is_in_time(now, number, late) {
                add(covered, gaps(&other.has, self.blocks));
            }
        }
    }

    /// What a sink is given again that has nothing to do: what another one passes on slowly, as far
    /// as the source may give blocks again; and where nothing comes from others, what they have.
    fn help(
        &mut self,
        (now, patience): (Time, Span),
        place: usize,
        wanted: u64,
        late: &[Late],
    ) -> RangeSet {
        let to = &self.places[place];
        let is_quiet = now.since(to.brought) >= patience;
        if is_quiet && (to.is_helped || now.since(to.moved) >= patience) {
            let wanted = if to.is_helped { wanted } else { LEASE_LEAST };
            let mut covered = to.has.clone();
            for (number, other) in self.places.iter().enumerate() {
                if number != place && other.is_here && now.since(other.leased_moved) < patience {
                    add(&mut covered, other.leased.iter());
                }
            }
            self.places[place].is_helped = true;
            return lowest(&covered, self.blocks, wanted);
        }
        if !self.is_in_time(now, place, late) {
            return RangeSet::new();
        }
        let mut slow = RangeSet::new();
        for (other, _) in late.iter().enumerate().filter(|(_, late)| **late == Late::Slow) {
            add(&mut slow, self.places[other].alone.iter());
        }
        for other in self.places.iter().filter(|other| other.is_here) {
            subtract(&mut slow, other.leased.iter().chain(to.has.iter()));
        }
        let left = (self.blocks / AGAIN).saturating_sub(self.again);
        let given = highest(&slow, wanted.min(left));
        self.again += given.len();
        given
    }
}

/// How a sink passes on what only it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    /// In time.
    No,
    /// Much more slowly than the others.
    Slow,
    /// Not at all.
    Withholds,
}

impl Place {
    /// It is gone. That it has passed on nothing is remembered, should it come again; the rest is
    /// returned.
    fn go(&mut self) -> Place {
        let (strikes, struck_until) = (self.strikes, self.struck_until);
        std::mem::replace(self, Place { strikes, struck_until, ..Place::default() })
    }

    /// Another sink has got these blocks from some sink.
    fn note_passed(&mut self, now: Time, brought: &RangeSet) {
        let blocks = common(&self.alone, brought).len() + common(&self.leased, brought).len();
        self.forget_alone(now, brought);
        if blocks == 0 {
            return;
        }
        self.passed = now;
        match self.passes.back_mut() {
            Some((at, count)) if *at == now => *count += blocks,
            Some(_) | None => self.passes.push_back((now, blocks)),
        }
        while self.passes.front().is_some_and(|(at, _)| now.since(*at) > PASSING) {
            self.passes.pop_front();
        }
    }

    /// How many blocks more that no other one has it passes on soon.
    fn room(&self, now: Time) -> u64 {
        let lately = self.passes.iter().filter(|(at, _)| now.since(*at) <= PASSING);
        let passed: u64 = lately.map(|(_, blocks)| blocks).sum();
        (LEASE_LEAST + passed).saturating_sub(self.alone.len() + self.leased.len())
    }

    /// Another sink has these blocks, or nobody needs them.
    fn forget_alone(&mut self, now: Time, blocks: &RangeSet) {
        subtract(&mut self.alone, blocks.iter());
        if self.alone.is_empty() {
            self.passed = now;
        }
        while let Some((_, range)) = self.since_alone.front()
            && self.alone.within(range.clone()).next().is_none()
        {
            self.since_alone.pop_front();
        }
    }

    /// Since when it has had the oldest of the blocks that no other sink has.
    fn oldest_alone(&self) -> Option<Time> {
        self.since_alone.front().map(|(at, _)| *at)
    }
}

/// Longer than any transfer.
const FOR_EVER: Span = Span::from_secs(1 << 32);

fn add(set: &mut RangeSet, ranges: impl Iterator<Item = Range<u64>>) {
    for range in ranges {
        set.insert(range);
    }
}

/// What is in both.
fn common(one: &RangeSet, other: &RangeSet) -> RangeSet {
    one.iter().flat_map(|range| other.within(range)).collect()
}

/// What is in one and not in the other. It takes as long as the one is, and not the other.
fn without(one: &RangeSet, other: &RangeSet) -> RangeSet {
    let mut left = one.clone();
    subtract(&mut left, common(one, other).iter());
    left
}

fn subtract(set: &mut RangeSet, ranges: impl Iterator<Item = Range<u64>>) {
    for range in ranges {
        set.remove(range);
    }
}

/// The numbers below `end` that are not in a set.
fn gaps(set: &RangeSet, end: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = 0_u64;
    let ends = std::iter::once(end..end);
    set.within(0..end).chain(ends).filter_map(move |range| {
        let gap = at..range.start;
        at = range.end;
        (gap.start < gap.end).then_some(gap)
    })
}

/// The lowest `wanted` of the numbers below `end` that are not in a set.
fn lowest(set: &RangeSet, end: u64, mut wanted: u64) -> RangeSet {
    let mut free = RangeSet::new();
    for gap in gaps(set, end) {
        if wanted == 0 {
            break;
        }
        let stop = gap.end.min(gap.start.saturating_add(wanted));
        wanted -= free.insert(gap.start..stop);
    }
    free
}

/// The highest `wanted` numbers of a set.
fn highest(set: &RangeSet, mut wanted: u64) -> RangeSet {
    let (mut most, all) = (RangeSet::new(), set.iter().collect::<Vec<_>>());
    for range in all.into_iter().rev() {
        let start = range.start.max(range.end.saturating_sub(wanted));
        wanted -= most.insert(start..range.end);
    }
    most
}

#[cfg(test)]
mod tests;
