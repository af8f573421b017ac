//! What is under way on one link, taken out in the order of arrival.
//!
//! Nearly everything is put in in that order, so that a ring is enough; what comes out of turn
//! (held back, or with free jitter) goes to a heap beside it. Packets that arrive at the same time
//! leave in the order of their sequence numbers, in which they were put in.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use gtp_alloc::Time;
use gtp_link::{Ring, Transit};

use super::parcel::ParcelId;

/// A packet under way on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub sequence: u64,
    pub transit: Transit,
    pub parcel: ParcelId,
}

/// All packets under way on a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flights {
    ring: Ring<Flight>,
    /// When the ring's last arrives, if it has one.
    last_at: Time,
    late: BinaryHeap<Flight>,
}

impl Flights {
    /// Puts a packet in; sequence numbers grow from one to the next.
    #[inline]
    pub fn push(&mut self, flight: Flight) {
        let at = flight.transit.at;
        if at >= self.last_at || self.ring.is_empty() {
            self.last_at = at;
            self.ring.push_back(flight);
        } else {
            self.late.push(flight);
        }
    }

    /// The packet that arrives next.
    #[inline]
    pub fn first(&self) -> Option<&Flight> {
        let first = self.ring.front();
        if self.late.is_empty() { first } else { first.max(self.late.peek()) }
    }

    /// Takes out the packet that arrives next.
    #[inline]
    pub fn pop(&mut self) -> Option<Flight> {
        if !self.late.is_empty() && self.late.peek() > self.ring.front() {
            return self.late.pop();
        }
        self.ring.pop_front()
    }

    /// The same, of which nothing but the packet is wanted.
    #[inline]
    pub fn take(&mut self) -> Option<ParcelId> {
        if !self.late.is_empty() {
            return self.pop().map(|flight| flight.parcel);
        }
        let parcel = self.ring.front()?.parcel;
        self.ring.drop_front();
        Some(parcel)
    }

    /// Takes everything out, in order.
    pub fn drain(&mut self) -> Vec<Flight> {
        std::iter::from_fn(|| self.pop()).collect()
    }
}

impl Flight {
    fn key(&self) -> (Time, u64) {
        (self.transit.at, self.sequence)
    }
}

impl Ord for Flight {
    /// The later flight is the lesser, because the heap gives its greatest first.
    fn cmp(&self, other: &Flight) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Flight) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Flight {
    fn eq(&self, other: &Flight) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Flight {}
