//! What is under way to one place, taken out in the order of arrival.
//!
//! Nearly everything is put in in that order, or a few places out of it, so that a ring is enough.
//! What comes further out of turn, as from links of different lengths to one queue, begins a second
//! ring, a third and so on, in each of which the order holds, as patience sorts cards into piles;
//! what fits into none of a few goes to a heap. The order is that of (time, sequence number), and
//! of one link's own numbers where both are equal.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use gtp_alloc::{Bytes, Time};
use gtp_link::{Ring, Transit};

use super::parcel::ParcelId;

/// A packet under way on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub sequence: u64,
    pub transit: Transit,
    pub packet: Packet,
    /// The link that it is on.
    pub on: u32,
}

/// What links need to know of a packet, so that they need not look for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub size: Bytes,
    pub parcel: ParcelId,
    /// Where its next link stands in the table of routes.
    pub hop: u32,
}

/// When something arrives: time, sequence number.
pub(crate) type Turn = (Time, u64);

/// All packets under way to one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flights {
    /// The first ring, which is the only one nearly everywhere.
    lane: Lane,
    /// Packets that are not in it.
    astray: usize,
    aside: Option<Box<Aside>>,
}

/// What did not fit into the first ring.
#[derive(Clone, Debug)]
struct Aside {
    lanes: [Lane; ASIDE],
    late: BinaryHeap<Flight>,
    /// The turns of the firsts: of the first ring, of `lanes`, of `late`. Kept while there is
    /// anything aside.
    firsts: [u128; ASIDE + 2],
    /// Behind so many of them there is nothing.
    used: usize,
    /// Which of these is the first, and the first of the others.
    best: usize,
    second: u128,
}

/// Packets in the order of arrival.
#[derive(Clone, Debug, Default)]
struct Lane {
    ring: Ring<Flight>,
    /// The turn of the newest that was ever put in: what was put in with equal turns stays in order
    /// also after the ring was empty.
    last: u128,
}

/// Rings besides the first: to look at each first of so many costs what a heap of some dozens does.
const ASIDE: usize = 6;
/// So many places out of turn still belong into the same ring.
const NEAR: usize = 2;
/// The turn of what is not there.
const NONE: u128 = u128::MAX;

impl Flights {
    /// Puts a packet in; of one link and with equal turns, they come in the order of their numbers.
    #[inline(always)]
    pub fn push(&mut self, flight: Flight) {
        let key = flight.key();
        if self.astray == 0 && key >= self.lane.last {
            self.lane.push(key, flight);
        } else {
            self.push_out_of_turn(key, &flight);
        }
    }

    #[inline(never)]
    fn push_out_of_turn(&mut self, key: u128, flight: &Flight) {
        let is_empty = self.astray == 0 && self.lane.ring.is_empty();
        if key >= self.lane.last || is_empty {
            self.lane.push(key, *flight);
        } else if !self.lane.push_near(key, flight) {
            return self.push_aside(key, flight);
        }
        if self.astray > 0
            && let Some(aside) = &mut self.aside
            && key < aside.firsts[0]
        {
            aside.lead(0, key);
        }
    }

    fn push_aside(&mut self, key: u128, flight: &Flight) {
        let aside = self.aside.get_or_insert_with(Box::default);
        if self.astray == 0 {
            aside.firsts = [NONE; ASIDE + 2];
            aside.firsts[0] = self.lane.first();
            aside.used = 1;
            aside.choose();
        }
        self.astray += 1;
        let place = aside.lanes.iter().position(|lane| key >= lane.last).unwrap_or(ASIDE);
        match aside.lanes.get_mut(place) {
            Some(lane) => lane.push(key, *flight),
            None => aside.late.push(*flight),
        }
        if key < aside.firsts[place + 1] {
            aside.lead(place + 1, key);
        }
    }

    /// The packet that arrives next.
    #[inline]
    pub fn first(&self) -> Option<&Flight> {
        match &self.aside {
            Some(aside) if self.astray > 0 => match aside.best {
                0 => self.lane.ring.front(),
                place => aside.lanes.get(place - 1).map_or(aside.late.peek(), |l| l.ring.front()),
            },
            Some(_) | None => self.lane.ring.front(),
        }
    }

    /// Takes out the packet that arrives next.
    #[inline]
    pub fn pop(&mut self) -> Option<Flight> {
        if self.astray == 0 { self.lane.ring.pop_front() } else { self.pop_of_all() }
    }

    /// The same if it arrives before `turn`.
    #[inline(always)]
    pub fn pop_before(&mut self, turn: Turn) -> Option<Flight> {
        if self.astray == 0 {
            let first = *self.lane.ring.front()?;
            if first.key() >= key(turn) {
                return None;
            }
            self.lane.ring.drop_front();
            return Some(first);
        }
        if self.first()?.key() < key(turn) { self.pop_of_all() } else { None }
    }

    #[inline(never)]
    fn pop_of_all(&mut self) -> Option<Flight> {
        let aside = self.aside.as_mut()?;
        let (taken, next) = match aside.best {
            0 => (self.lane.ring.pop_front(), self.lane.first()),
            place => {
                self.astray -= 1;
                match aside.lanes.get_mut(place - 1) {
                    Some(lane) => (lane.ring.pop_front(), lane.first()),
                    None => (aside.late.pop(), aside.late.peek().map_or(NONE, Flight::key)),
                }
            }
        };
        aside.firsts[aside.best] = next;
        if next > aside.second {
            aside.choose();
        }
        taken
    }

    /// Takes everything out, in order.
    pub fn drain(&mut self) -> Vec<Flight> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// Takes out what is on link `on`, in order; the rest stays.
    pub fn drain_of(&mut self, on: u32) -> Vec<Flight> {
        let (taken, rest): (Vec<_>, Vec<_>) =
            self.drain().into_iter().partition(|flight| flight.on == on);
        rest.into_iter().for_each(|flight| self.push(flight));
        taken
    }
}

impl Aside {
    /// Finds the first of the firsts, and the second.
    fn choose(&mut self) {
        while self.used > 1 && self.firsts[self.used - 1] == NONE {
            self.used -= 1;
        }
        let (mut best, mut second) = ((self.firsts[0], 0), NONE);
        for (place, &first) in self.firsts[..self.used].iter().enumerate().skip(1) {
            second = second.min(first.max(best.0));
            if first < best.0 {
                best = (first, place);
            }
        }
        (self.best, self.second) = (best.1, second);
    }

    /// A new first at a place, earlier than the one before.
    fn lead(&mut self, place: usize, key: u128) {
        self.firsts[place] = key;
        self.used = self.used.max(place + 1);
        if place != self.best {
            self.choose();
        }
    }
}

impl Default for Aside {
    fn default() -> Aside {
        let lanes = Default::default();
        let firsts = [NONE; ASIDE + 2];
        Aside { lanes, late: BinaryHeap::new(), firsts, used: 1, best: 0, second: NONE }
    }
}

impl Lane {
    #[inline]
    fn push(&mut self, key: u128, flight: Flight) {
        self.last = key;
        self.ring.push_back(flight);
    }

    /// Puts a packet in before the few newest ones, if it belongs there.
    fn push_near(&mut self, key: u128, flight: &Flight) -> bool {
        let len = self.ring.len();
        let newest = |behind: &usize| self.ring.get(len - 1 - behind);
        let earlier = |behind: &usize| newest(behind).is_some_and(|other| other.key() <= key);
        let behind = match (0..NEAR.min(len)).find(earlier) {
            Some(behind) => behind,
            None if 0 < len && len <= NEAR => len,
            None => return false,
        };
        self.ring.insert(behind, *flight);
        true
    }

    #[inline]
    fn first(&self) -> u128 {
        self.ring.front().map_or(NONE, Flight::key)
    }
}

impl Flight {
    /// When it arrives.
    #[inline]
    pub fn turn(&self) -> Turn {
        (self.transit.at, self.sequence)
    }

    /// The same as one number.
    #[inline]
    fn key(&self) -> u128 {
        key(self.turn())
    }
}

#[inline]
fn key(turn: Turn) -> u128 {
    u128::from(turn.0.as_nanos()) << 64 | u128::from(turn.1)
}

impl Ord for Flight {
    /// The later flight is the lesser, because the heap gives its greatest first.
    fn cmp(&self, other: &Flight) -> Ordering {
        let key = |flight: &Flight| (flight.key(), flight.transit.serial());
        key(other).cmp(&key(self))
    }
}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Flight) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Flight {
    fn eq(&self, other: &Flight) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Flight {}

#[cfg(test)]
mod tests {
    use gtp_alloc::Rate;
    use gtp_link::{Link, LinkSpec, Verdict};
    use proptest::prelude::*;

    use super::*;

    /// The passage of a packet that arrives at `at`.
    fn transit(at: u64) -> Transit {
        let spec = LinkSpec { rate: Rate::UNLIMITED, ..LinkSpec::default() };
        match Link::new(spec, 1).enqueue(Time::from_nanos(at), Bytes(1)) {
            Verdict::Deliver { transit, .. } => transit,
            Verdict::Drop(reason) => panic!("{reason:?}"),
        }
    }

    proptest! {
        #[test]
        fn flights_come_out_by_time_and_sequence_in_whatever_order_they_are_put_in(
            steps in prop::collection::vec((0u64..60, 0u8..3), 1..300),
            spread in prop::sample::select(vec![1u64, 8, 60]),
        ) {
            let mut flights = Flights::default();
            let mut sorted = std::collections::BTreeMap::new();
            for (n, (ahead, what)) in steps.into_iter().enumerate() {
                let n = n as u64;
                if what < 2 {
                    // From nearly in order to not at all, and many at equal times.
                    let turn = (Time::from_nanos((n + ahead % spread) / 3), n);
                    let (transit, on) = (transit(turn.0.as_nanos()), (n % 3) as u32);
                    let parcel = ParcelId(n as u32);
                    let packet = Packet { size: Bytes(1), parcel, hop: 0 };
                    flights.push(Flight { sequence: n, transit, packet, on });
                    sorted.insert(turn, parcel);
                } else {
                    let bound = (Time::from_nanos(n / 4), ahead);
                    let first = sorted.first_key_value().map(|(turn, _)| *turn);
                    let first = first.filter(|turn| *turn < bound);
                    let taken = flights.pop_before(bound).map(|flight| flight.turn());
                    prop_assert_eq!(taken, first);
                    first.into_iter().for_each(|turn| { sorted.remove(&turn); });
                }
                let first = flights.first().map(|flight| flight.packet.parcel);
                prop_assert_eq!(first, sorted.values().next().copied());
            }
            let of_one: Vec<u32> = flights.drain_of(1).iter().map(|f| f.packet.parcel.0).collect();
            let (one, rest): (Vec<u32>, Vec<u32>) =
                sorted.values().map(|parcel| parcel.0).partition(|n| n % 3 == 1);
            prop_assert_eq!(of_one, one);
            let number = |flight: &Flight| flight.packet.parcel.0;
            let left: Vec<u32> = flights.drain().iter().map(number).collect();
            prop_assert_eq!(left, rest);
        }
    }
}
