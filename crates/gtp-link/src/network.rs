//! Links strung into routes that share them.
//!
//! A parcel enters a route at a time and passes its links one after another, each at the time at
//! which the one before delivers it, in the order of these times over the whole network: so flows
//! that meet on a link meet there as they would in truth. One event per hop, one ring per link.
//! The network moves parcels, whatever they are; it knows their sizes only.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use gtp_alloc::{Bytes, Span, Time};

use crate::link::{Link, Reason, Transit, Verdict};
use crate::spec::{Change, LinkSpec};
use crate::wire::Wire;

/// A link's number in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// A route's number in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub usize);

/// What became of a parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<P> {
    /// It is at the end of its route.
    Delivered {
        /// When it got there.
        due: Time,
        /// Its route.
        route: RouteId,
        /// What was sent.
        parcel: P,
    },
    /// A link on its way dropped it.
    Dropped {
        /// When it was dropped: a loss on the wire counts from the time the link took it.
        at: Time,
        /// Its route.
        route: RouteId,
        /// The link.
        link: LinkId,
        /// Why.
        reason: Reason,
        /// What was sent.
        parcel: P,
    },
}

/// Links, routes over them, and the parcels under way.
#[derive(Clone, Debug)]
pub struct Network<P> {
    links: Vec<Link>,
    routes: Vec<Vec<LinkId>>,
    /// What is about to enter its route, then what is under way on each link.
    wires: Vec<Wire<Flight<P>>>,
    /// The next event of every wire that has one; an entry that is not in `booked` is stale.
    agenda: BinaryHeap<Reverse<(Time, usize)>>,
    booked: Vec<Time>,
    changes: VecDeque<(Time, LinkId, Change)>,
    outbox: VecDeque<Outcome<P>>,
    held: Bytes,
    limit: Bytes,
    clock: Time,
}

#[derive(Clone, Debug)]
struct Flight<P> {
    transit: Option<Transit>,
    route: RouteId,
    /// Links passed or being passed.
    hops: usize,
    size: Bytes,
    parcel: P,
}

impl<P: Clone> Network<P> {
    /// An empty network that holds at most `limit` bytes of parcels at a time.
    pub fn new(limit: Bytes) -> Network<P> {
        Network {
            links: Vec::new(),
            routes: Vec::new(),
            wires: alloc::vec![Wire::new()],
            agenda: BinaryHeap::new(),
            booked: alloc::vec![Time::MAX],
            changes: VecDeque::new(),
            outbox: VecDeque::new(),
            held: Bytes::ZERO,
            limit,
            clock: Time::ZERO,
        }
    }

    /// Adds a link.
    pub fn add_link(&mut self, spec: LinkSpec, seed: u64) -> LinkId {
        self.links.push(Link::new(spec, seed));
        self.wires.push(Wire::new());
        self.booked.push(Time::MAX);
        LinkId(self.links.len() - 1)
    }

    /// Adds a route over these links, in order; a route over none delivers at once.
    ///
    /// # Panics
    /// If a link is not of this network.
    pub fn add_route(&mut self, links: &[LinkId]) -> RouteId {
        assert!(links.iter().all(|l| l.0 < self.links.len()), "a route's links are the network's");
        self.routes.push(links.to_vec());
        RouteId(self.routes.len() - 1)
    }

    /// Lets a change happen at `at`.
    pub fn schedule(&mut self, at: Time, link: LinkId, change: Change) {
        let place = self.changes.partition_point(|(t, _, _)| *t <= at);
        self.changes.insert(place, (at, link, change));
    }

    /// Sends a parcel that counts as `size` on the links; it enters its route at `at`, or at the
    /// latest time already worked off if that is later.
    ///
    /// # Errors
    /// The parcel itself, if the network holds as much as it may.
    pub fn send(&mut self, at: Time, route: RouteId, size: Bytes, parcel: P) -> Result<(), P> {
        if self.held + size > self.limit {
            return Err(parcel);
        }
        self.held += size;
        let flight = Flight { transit: None, route, hops: 0, size, parcel };
        self.put(ENTRANCE, at.max(self.clock), flight);
        Ok(())
    }

    /// Works off what happens until `now`, as far as the next outcome. `None`: nothing more until
    /// [`Network::poll_timeout`].
    pub fn poll(&mut self, now: Time) -> Option<Outcome<P>> {
        loop {
            if let Some(outcome) = self.outbox.pop_front() {
                return Some(outcome);
            }
            let next_event = self.next_event();
            if let Some((at, link, change)) = self.changes.front().copied()
                && at <= now
                && next_event.is_none_or(|event| at <= event)
            {
                self.changes.pop_front();
                self.set_link(at, link, change);
                continue;
            }
            if next_event? > now {
                return None;
            }
            if let Some(outcome) = self.step() {
                return Some(outcome);
            }
        }
    }

    /// When [`Network::poll`] has something to do next.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        if !self.outbox.is_empty() {
            return Some(self.clock);
        }
        let change = self.changes.front().map_or(Time::MAX, |(at, _, _)| *at);
        let next = self.next_event().map_or(change, |event| event.min(change));
        (next < Time::MAX).then_some(next)
    }

    /// Changes a link now. What waits in it is moved or lost as [`Change`] says.
    pub fn set_link(&mut self, now: Time, id: LinkId, change: Change) {
        let now = now.max(self.clock);
        self.clock = now;
        let link = &mut self.links[id.0];
        link.change(now, change);
        let under_way = self.wires[id.0 + 1].drain();
        self.booked[id.0 + 1] = Time::MAX;
        let mut moved = Vec::with_capacity(under_way.len());
        for (_, mut flight) in under_way {
            match flight.transit.and_then(|transit| link.retime(transit)) {
                Some(transit) => {
                    flight.transit = Some(transit);
                    moved.push((transit.at, flight));
                }
                None => {
                    self.held -= flight.size;
                    let Flight { route, parcel, .. } = flight;
                    let reason = Reason::Down;
                    self.outbox.push_back(Outcome::Dropped {
                        at: now,
                        route,
                        link: id,
                        reason,
                        parcel,
                    });
                }
            }
        }
        moved.sort_by_key(|(at, _)| *at);
        for (at, flight) in moved {
            self.put(id.0 + 1, at, flight);
        }
    }

    /// A link.
    ///
    /// # Panics
    /// If it is not of this network.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0]
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// The propagation delay of a route as it is now: what an empty route costs a packet of no
    /// size, jitter aside.
    pub fn route_delay(&self, route: RouteId) -> Span {
        let delays = self.routes[route.0].iter().map(|link| self.links[link.0].spec().delay);
        delays.fold(Span::ZERO, |sum, delay| sum + delay)
    }

    /// Bytes under way.
    pub fn held(&self) -> Bytes {
        self.held
    }

    fn next_event(&mut self) -> Option<Time> {
        while let Some(&Reverse((at, wire))) = self.agenda.peek() {
            if self.booked[wire] == at {
                return (at < Time::MAX).then_some(at);
            }
            self.agenda.pop();
        }
        None
    }

    /// One event: the first parcel under way gets to the end of its link.
    fn step(&mut self) -> Option<Outcome<P>> {
        let Reverse((at, wire)) = self.agenda.pop()?;
        self.booked[wire] = Time::MAX;
        let (due, flight) = self.wires[wire].pop(at)?;
        self.book(wire);
        self.clock = due;
        match self.routes[flight.route.0].get(flight.hops).copied() {
            Some(link) => self.enter(due, link, flight),
            None => {
                self.held -= flight.size;
                Some(Outcome::Delivered { due, route: flight.route, parcel: flight.parcel })
            }
        }
    }

    fn enter(&mut self, now: Time, link: LinkId, mut flight: Flight<P>) -> Option<Outcome<P>> {
        match self.links[link.0].enqueue(now, flight.size) {
            Verdict::Deliver { transit, copies } => {
                flight.transit = Some(transit);
                flight.hops += 1;
                for _ in 1..copies {
                    self.held += flight.size;
                    self.put(link.0 + 1, transit.at, flight.clone());
                }
                self.put(link.0 + 1, transit.at, flight);
                None
            }
            Verdict::Drop(reason) => {
                self.held -= flight.size;
                let Flight { route, parcel, .. } = flight;
                Some(Outcome::Dropped { at: now, route, link, reason, parcel })
            }
        }
    }

    fn put(&mut self, wire: usize, at: Time, flight: Flight<P>) {
        self.wires[wire].push(at, flight);
        self.book(wire);
    }

    fn book(&mut self, wire: usize) {
        if let Some(at) = self.wires[wire].next_at()
            && at < self.booked[wire]
        {
            self.booked[wire] = at;
            self.agenda.push(Reverse((at, wire)));
        }
    }
}

/// The wire of what is about to enter its route.
const ENTRANCE: usize = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_alloc::Rate;

    fn link(mbps: u64, delay_ms: u64) -> LinkSpec {
        LinkSpec {
            rate: Rate::from_mbps(mbps),
            delay: Span::from_millis(delay_ms),
            ..LinkSpec::default()
        }
    }

    fn deliveries(net: &mut Network<u32>) -> Vec<(u64, u32)> {
        core::iter::from_fn(|| net.poll(Time::MAX))
            .map(|outcome| match outcome {
                Outcome::Delivered { due, parcel, .. } => (due.as_nanos() / 1_000, parcel),
                Outcome::Dropped { at, parcel, .. } => (at.as_nanos() / 1_000, 1_000 + parcel),
            })
            .collect()
    }

    #[test]
    fn two_routes_meet_on_the_link_that_they_share_in_order_of_arrival_there() {
        let mut net = Network::new(Bytes(1 << 20));
        let near = net.add_link(link(8, 1), 1);
        let far = net.add_link(link(8, 5), 2);
        let shared = net.add_link(link(8, 0), 3);
        let short = net.add_route(&[near, shared]);
        let long = net.add_route(&[far, shared]);
        // 1,000 bytes take 1 ms on each link.
        net.send(Time::ZERO, long, Bytes(1_000), 1).expect("room");
        net.send(Time::from_nanos(4_500_000), short, Bytes(1_000), 2).expect("room");
        // The long one gets to the shared link at 6 ms and has left it at 7; the short one gets
        // there at 6.5 ms and waits until 7.
        assert_eq!(deliveries(&mut net), [(7_000, 1), (8_000, 2)]);
    }

    #[test]
    fn a_slower_rate_holds_for_what_already_waits() {
        let mut net = Network::new(Bytes(1 << 20));
        let only = net.add_link(link(8, 0), 1);
        let route = net.add_route(&[only]);
        for parcel in 0..3 {
            net.send(Time::ZERO, route, Bytes(1_000), parcel).expect("room");
        }
        let slower = Change { rate: Some(Rate::from_mbps(4)), ..Change::default() };
        net.schedule(Time::from_nanos(1_500_000), only, slower);
        // The second is half sent at the change: 1.5 ms + 0.5 KB at 4 Mbit/s (and one byte more,
        // which the rounding takes), the third 2 ms after it.
        assert_eq!(deliveries(&mut net), [(1_000, 0), (2_502, 1), (4_502, 2)]);
    }

    #[test]
    fn a_cut_loses_what_waits_and_delivers_what_had_left() {
        let mut net = Network::new(Bytes(1 << 20));
        let only = net.add_link(link(8, 10), 1);
        let route = net.add_route(&[only]);
        for parcel in 0..3 {
            net.send(Time::ZERO, route, Bytes(1_000), parcel).expect("room");
        }
        net.schedule(Time::from_nanos(1_500_000), only, Change::DOWN);
        assert_eq!(deliveries(&mut net), [(1_500, 1_001), (1_500, 1_002), (11_000, 0)]);
        let stats = net.link(only).stats();
        assert_eq!((stats.carried.packets, stats.drops.down.packets), (1, 2));
        assert_eq!(net.held(), Bytes::ZERO);
    }

    #[test]
    fn a_full_network_gives_the_parcel_back() {
        let mut net = Network::new(Bytes(1_500));
        let only = net.add_link(link(8, 10), 1);
        let route = net.add_route(&[only]);
        assert_eq!(net.send(Time::ZERO, route, Bytes(1_000), 1), Ok(()));
        assert_eq!(net.send(Time::ZERO, route, Bytes(1_000), 2), Err(2));
    }
}
