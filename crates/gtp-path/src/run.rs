//! How time passes in a world: what is booked happens in its order, and books what follows.
//!
//! A packet on a link is an entry of one of the link's two rings; the agenda holds the first of
//! each. What comes out of turn is booked by itself.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;

use gtp_alloc::{Bytes, Time};
use gtp_link::Verdict;
use gtp_peers::Admission;

use super::{BIN, Event, Flow, Hop, Lanes, Parcel, Place, START, Side, What, World};

impl World {
    pub(crate) fn book(&mut self, at: Time, what: What) {
        self.serial += 1;
        self.agenda.push(Reverse(Event { at, serial: self.serial, what }));
    }

    /// Books a packet that comes out of a link's queue, or off its wire, at `at`.
    fn book_packet(&mut self, at: Time, hop: usize, place: Place, parcel: Parcel) {
        let ring = self.hops[hop].ring(place);
        if ring.back().is_some_and(|(last, ..)| *last > at) {
            assert!(matches!(place, Place::Wire), "a queue keeps its order");
            return self.book(at, What::LandsEarly(Box::new(parcel)));
        }
        self.serial += 1;
        ring.push_back((at, self.serial, parcel));
        if ring.len() == 1 {
            let event = Event { at, serial: self.serial, what: place.of(hop) };
            self.agenda.push(Reverse(event));
        }
    }

    /// The packet whose time has come; the next one takes its place in the agenda.
    fn take_packet(&mut self, hop: usize, place: Place) -> Option<Parcel> {
        let ring = self.hops[hop].ring(place);
        let (_, _, parcel) = ring.pop_front()?;
        if let Some((at, serial, _)) = ring.front() {
            let event = Event { at: *at, serial: *serial, what: place.of(hop) };
            self.agenda.push(Reverse(event));
        }
        Some(parcel)
    }

    pub(crate) fn happen(&mut self, what: What) {
        let now = self.now;
        match what {
            What::Start(flow) => {
                self.serve(flow, Side::Receiver);
                self.serve(flow, Side::Sender);
            }
            What::Timer(flow, side) => self.ring(flow, side),
            What::Router(hop) => self.ring_router(hop),
            What::Leaves(hop) => {
                let parcel = self.take_packet(hop, Place::Queue);
                parcel.into_iter().for_each(|parcel| self.leave(hop, parcel));
            }
            What::Lands(hop) => {
                let parcel = self.take_packet(hop, Place::Wire);
                parcel.into_iter().for_each(|parcel| self.arrive(parcel));
            }
            What::LandsEarly(parcel) => self.arrive(*parcel),
            What::Demand(flow, side, rate) => {
                self.flows[flow].ends[side as usize].set_demand(now, rate);
                self.serve(flow, side);
            }
            What::Stop(flow) => self.flows[flow].stopped = true,
        }
    }

    fn ring(&mut self, flow: usize, side: Side) {
        let now = self.now;
        let Flow { ends, booked, stopped, .. } = &mut self.flows[flow];
        booked[side as usize].retain(|at| *at > now);
        if *stopped {
            return;
        }
        let end = &mut ends[side as usize];
        match end.poll_timeout() {
            Some(due) if due <= now => end.handle_timeout(now),
            Some(due) => return self.book_timer(flow, side, due),
            None => return,
        }
        self.serve(flow, side);
    }

    /// Sees to it that an end is asked at `due` or before; asked too early it is booked anew.
    fn book_timer(&mut self, flow: usize, side: Side, due: Time) {
        let due = due.max(self.now);
        let booked = &mut self.flows[flow].booked[side as usize];
        if booked.last().is_none_or(|first| *first > due) {
            booked.push(due);
            self.book(due, What::Timer(flow, side));
        }
    }

    fn ring_router(&mut self, hop: usize) {
        let now = self.now;
        let queued = self.hops[hop].queued(now);
        let Hop { router: Some(router), booked, .. } = &mut self.hops[hop] else { return };
        if *booked > now {
            return;
        }
        *booked = Time::MAX;
        if router.poll_timeout().is_some_and(|due| due <= now) {
            router.handle_timeout(now, queued);
        }
        self.book_router(hop);
    }

    pub(crate) fn book_router(&mut self, hop: usize) {
        let due = self.hops[hop].router.as_ref().and_then(|router| router.poll_timeout());
        if let Some(due) = due
            && due < self.hops[hop].booked
        {
            self.hops[hop].booked = due;
            self.book(due.max(self.now), What::Router(hop));
        }
    }

    fn arrive(&mut self, mut parcel: Parcel) {
        let now = self.now;
        let Some(&hop) = self.flows[parcel.flow].routes[parcel.to as usize].get(parcel.hop) else {
            self.deliver(&parcel);
            return;
        };
        let watched = self.hops[hop].router.is_some();
        let queued = if watched { self.hops[hop].queued(now) } else { Bytes::ZERO };
        let Hop { router, thief, lanes, seen, refused, stolen, .. } = &mut self.hops[hop];
        let ordinal = *seen;
        *seen += 1;
        if thief.as_mut().is_some_and(|thief| thief(ordinal, &parcel.packet)) {
            *stolen += 1;
            return;
        }
        if let Some(router) = router
            && router.handle_arrival(now, queued, &mut parcel.packet) != Admission::Pass
        {
            *refused += 1;
            self.book_router(hop);
            return;
        }
        match lanes {
            Some(lanes) if lanes.inside > 0 => lanes.push(parcel),
            Some(_) | None => self.enter(hop, parcel),
        }
        self.book_router(hop);
    }

    /// Puts a packet into a link's own queue.
    fn enter(&mut self, hop: usize, mut parcel: Parcel) {
        let now = self.now;
        let Hop { link, router, lanes, .. } = &mut self.hops[hop];
        let before = link.busy_until();
        let verdict = link.enqueue(now, parcel.packet.size);
        parcel.hop += 1;
        (parcel.at, parcel.copies) = match verdict {
            Verdict::Deliver { transit, copies } => (Some(transit.at), copies),
            Verdict::Drop(_) => (None, 0),
        };
        // What the wire loses has still passed the queue.
        let (leave, queued) = (link.busy_until(), link.busy_until() > before);
        let watched = router.is_some() || lanes.is_some();
        match parcel.at {
            _ if watched && queued => {
                lanes.iter_mut().for_each(|lanes| lanes.inside += 1);
                self.book_packet(leave, hop, Place::Queue, parcel);
            }
            Some(_) => self.fly(hop, parcel),
            None => {}
        }
    }

    fn leave(&mut self, hop: usize, mut parcel: Parcel) {
        let now = self.now;
        // In service from now on, so that it does not wait any more.
        let mut next = self.hops[hop].lanes.as_mut().and_then(Lanes::follow);
        let queued = self.hops[hop].queued(now);
        if let Some(router) = &mut self.hops[hop].router {
            router.handle_departure(now, queued, &mut parcel.packet);
        }
        self.fly(hop, parcel);
        // What the link refuses, or carries in no time, will not leave: then the next has its turn.
        while let Some(parcel) = next {
            self.enter(hop, parcel);
            next = self.hops[hop].lanes.as_mut().and_then(Lanes::pop);
        }
        self.book_router(hop);
    }

    fn fly(&mut self, hop: usize, parcel: Parcel) {
        let Some(at) = parcel.at else { return };
        for _ in 1..parcel.copies {
            self.book_packet(at, hop, Place::Wire, parcel.clone());
        }
        self.book_packet(at, hop, Place::Wire, parcel);
    }

    fn deliver(&mut self, parcel: &Parcel) {
        let now = self.now;
        let flow = &mut self.flows[parcel.flow];
        if flow.stopped {
            return;
        }
        flow.ends[parcel.to as usize].handle_packet(now, &parcel.packet);
        let bin = (now.since(START).as_nanos() / BIN.as_nanos()) as usize;
        if let Side::Receiver = parcel.to {
            add(&mut flow.wire_bins, bin, parcel.packet.size.0);
            let delivered = flow.ends[1].progress().delivered;
            assert!(delivered >= flow.delivered, "what was delivered stays delivered");
            add(&mut flow.goodput_bins, bin, (delivered - flow.delivered).0);
            flow.delivered = delivered;
        }
        self.serve(parcel.flow, parcel.to);
    }

    fn serve(&mut self, flow: usize, side: Side) {
        self.drain(flow, side);
        for k in 0..self.ties.len() {
            match self.ties[k] {
                [one, other] if one == (flow, side) => self.drain(other.0, other.1),
                [other, one] if one == (flow, side) => self.drain(other.0, other.1),
                [_, _] => {}
            }
        }
    }

    /// Drains an end and books its timer.
    fn drain(&mut self, flow: usize, side: Side) {
        let now = self.now;
        if self.flows[flow].stopped || self.flows[flow].start > now {
            return;
        }
        for round in 0.. {
            assert!(round < LIVELOCK, "flow {flow} {side:?} sends without end at {now:?}");
            let Some(packet) = self.flows[flow].ends[side as usize].poll_transmit(now) else {
                break;
            };
            let to = match side {
                Side::Sender => Side::Receiver,
                Side::Receiver => Side::Sender,
            };
            self.arrive(Parcel { flow, to, hop: 0, packet, at: None, copies: 0 });
        }
        let Flow { ends, done_at, .. } = &mut self.flows[flow];
        if done_at.is_none() && ends[side as usize].progress().done {
            *done_at = Some(now);
        }
        if let Some(due) = ends[side as usize].poll_timeout() {
            self.book_timer(flow, side, due);
        }
    }
}

impl Lanes {
    fn push(&mut self, parcel: Parcel) {
        self.waiting += parcel.packet.size;
        match (self.urgent)(&parcel.packet) {
            true => self.first.push_back(parcel),
            false => self.rest.push_back(parcel),
        }
    }

    /// The next for the link, which one has left.
    fn follow(&mut self) -> Option<Parcel> {
        self.inside = self.inside.saturating_sub(1);
        self.pop()
    }

    /// The next for the link, if that has none.
    fn pop(&mut self) -> Option<Parcel> {
        if self.inside > 0 {
            return None;
        }
        let parcel = self.first.pop_front().or_else(|| self.rest.pop_front())?;
        self.waiting -= parcel.packet.size;
        Some(parcel)
    }
}

/// Packets that an end may send at one moment before it counts as stuck.
const LIVELOCK: u64 = 1 << 20;

fn add(bins: &mut Vec<u64>, bin: usize, bytes: u64) {
    if bins.len() <= bin {
        bins.resize(bin + 1, 0);
    }
    bins[bin] += bytes;
}
