//! A small virtual-time world for tests: ends joined over links, with routers at their queues.
//!
//! Links are gtp-link's; a route is a list of them, and flows that name the same link share it.
//! Time jumps from event to event, in the order (time, order of booking), so that a run is a
//! function of what was built. Packets under way wait in rings, of which the agenda holds the
//! first only: they leave a link in the order in which they came. An end is served (drained, its
//! timer asked) after each of its inputs and never otherwise. A router sees a packet when it
//! arrives at its link and when its last bit leaves the queue.
//!
//! ```text
//! let mut world = World::new();
//! let there = world.link(LinkSpec { rate, delay, queue, ..LinkSpec::default() });
//! let back = world.link(LinkSpec { delay, ..LinkSpec::default() });
//! let flow = world.flow(Span::ZERO, sender, receiver, &[there], &[back]);
//! world.run_for(Span::from_secs(10));
//! world.goodput(flow, 5.0, 10.0)
//! ```
#![allow(dead_code, missing_docs)]

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Change, Link, LinkSpec, Verdict};
use gtp_peers::{Admission, Endpoint, Packet, Progress, Router};

/// When every world begins.
pub const START: Time = Time::from_nanos(1_000_000_000);
/// Length of one bin of a flow's record.
pub const BIN: Span = Span::from_millis(10);

/// An end that a test can look into by its own type.
pub trait End: Endpoint + Any {}
impl<T: Endpoint + Any> End for T {}

/// A router that a test can look into by its own type.
pub trait Control: Router + Any {}
impl<T: Router + Any> Control for T {}

/// Decides which packets a link loses at its entrance: called with the packet's ordinal there
/// (from nought) and the packet; `true` loses it.
pub type Thief = Box<dyn FnMut(u64, &Packet) -> bool>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Sender,
    Receiver,
}

struct Hop {
    link: Link,
    router: Option<Box<dyn Control>>,
    booked: Time,
    thief: Option<Thief>,
    /// Packets that came to the entrance.
    seen: u64,
    /// Dropped by the router, and stolen.
    refused: u64,
    stolen: u64,
    /// What waits in the queue, if there is a router, and what is on the wire.
    leaving: Ring,
    flying: Ring,
}

/// Packets in the order of their times and bookings.
type Ring = VecDeque<(Time, u64, Parcel)>;

/// Where at a link a packet is.
#[derive(Clone, Copy)]
enum Place {
    Queue,
    Wire,
}

impl Place {
    fn of(self, hop: usize) -> What {
        match self {
            Place::Queue => What::Leaves(hop),
            Place::Wire => What::Lands(hop),
        }
    }
}

impl Hop {
    fn ring(&mut self, place: Place) -> &mut Ring {
        match place {
            Place::Queue => &mut self.leaving,
            Place::Wire => &mut self.flying,
        }
    }
}

struct Flow {
    ends: [Box<dyn End>; 2],
    routes: [Vec<usize>; 2],
    /// Times in the agenda at which the ends are asked for their timers: few, the last the first.
    booked: [Vec<Time>; 2],
    start: Time,
    stopped: bool,
    /// Bytes on links that arrived at the receiver, by bin.
    wire_bins: Vec<u64>,
    /// Payload handed over in order at the receiver, by bin.
    goodput_bins: Vec<u64>,
    delivered: Bytes,
    /// When the receiver, and if it cannot know then the sender, first was done.
    done_at: Option<Time>,
}

enum What {
    Start(usize),
    Timer(usize, Side),
    Router(usize),
    /// The last bit of the first packet in the ring leaves the queue of a link; booked only where
    /// there is a router.
    Leaves(usize),
    /// The first packet in the ring is at the entrance of its next link, or at its end.
    Lands(usize),
    /// The same of packets that are out of turn.
    LeavesEarly(usize, Box<Parcel>),
    LandsEarly(Box<Parcel>),
    Change(usize, Box<Change>),
    Demand(usize, Side, Option<Rate>),
    Stop(usize),
}

#[derive(Clone)]
struct Parcel {
    flow: usize,
    to: Side,
    hop: usize,
    packet: Packet,
    /// When it is at the far end of the link it is on; `None` if the wire loses it.
    at: Option<Time>,
    copies: u32,
}

struct Event {
    at: Time,
    serial: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Event) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

pub struct World {
    now: Time,
    hops: Vec<Hop>,
    flows: Vec<Flow>,
    agenda: BinaryHeap<Reverse<Event>>,
    serial: u64,
    ties: Vec<[(usize, Side); 2]>,
}

impl World {
    pub fn new() -> World {
        World {
            now: START,
            hops: Vec::new(),
            flows: Vec::new(),
            agenda: BinaryHeap::new(),
            serial: 0,
            ties: Vec::new(),
        }
    }

    /// Adds a link; its chances follow from its number.
    pub fn link(&mut self, spec: LinkSpec) -> usize {
        let seed = 7 + self.hops.len() as u64;
        self.seeded_link(spec, seed)
    }

    pub fn seeded_link(&mut self, spec: LinkSpec, seed: u64) -> usize {
        self.hops.push(Hop {
            link: Link::new(spec, seed),
            router: None,
            booked: Time::MAX,
            thief: None,
            seen: 0,
            refused: 0,
            stolen: 0,
            leaving: Ring::new(),
            flying: Ring::new(),
        });
        self.hops.len() - 1
    }

    /// Adds a link with a controller at its queue, which is told the link's rate at once.
    pub fn controlled_link(&mut self, spec: LinkSpec, mut router: Box<dyn Control>) -> usize {
        router.set_capacity(self.now, spec.rate);
        let hop = self.link(spec);
        self.hops[hop].router = Some(router);
        self.book_router(hop);
        hop
    }

    /// Lets `thief` decide what the link loses at its entrance.
    pub fn set_thief(&mut self, link: usize, thief: Thief) {
        self.hops[link].thief = Some(thief);
    }

    /// Loses the packets with these ordinals (from nought) at the link's entrance.
    pub fn lose(&mut self, link: usize, ordinals: &[u64]) {
        let ordinals = ordinals.to_vec();
        self.set_thief(link, Box::new(move |n, _| ordinals.contains(&n)));
    }

    /// Loses every `period`-th packet at the link's entrance: a loss ratio of exactly one in
    /// `period`.
    pub fn lose_every(&mut self, link: usize, period: u64) {
        self.set_thief(link, Box::new(move |n, _| n % period == period - 1));
    }

    /// Adds a flow that starts `after` the world's beginning. `there` are the links from sender to
    /// receiver, `back` those on the way back.
    pub fn flow(
        &mut self,
        after: Span,
        sender: Box<dyn End>,
        receiver: Box<dyn End>,
        there: &[usize],
        back: &[usize],
    ) -> usize {
        let start = START + after;
        assert!(start >= self.now, "a flow starts now or later");
        self.flows.push(Flow {
            ends: [sender, receiver],
            routes: [back.to_vec(), there.to_vec()],
            booked: [Vec::new(), Vec::new()],
            start,
            stopped: false,
            wire_bins: Vec::new(),
            goodput_bins: Vec::new(),
            delivered: Bytes::ZERO,
            done_at: None,
        });
        let flow = self.flows.len() - 1;
        self.book(start, What::Start(flow));
        flow
    }

    /// Two ends live in one machine: whenever one was served, the other is.
    pub fn tie(&mut self, one: (usize, Side), other: (usize, Side)) {
        self.ties.push([one, other]);
    }

    /// Lets a link change `after` the world's beginning; a router at it is told of a new rate.
    pub fn change_at(&mut self, after: Span, link: usize, change: Change) {
        self.book(START + after, What::Change(link, Box::new(change)));
    }

    /// Sets an application's limit `after` the world's beginning.
    pub fn demand_at(&mut self, after: Span, flow: usize, side: Side, rate: Option<Rate>) {
        self.book(START + after, What::Demand(flow, side, rate));
    }

    /// Ends a flow: its ends are not served any more, what is under way still loads the links.
    pub fn stop_at(&mut self, after: Span, flow: usize) {
        self.book(START + after, What::Stop(flow));
    }

    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    /// Runs to the time `end`, which counts from [`START`] on the world's own clock.
    pub fn run_until(&mut self, end: Time) {
        while self.agenda.peek().is_some_and(|Reverse(event)| event.at <= end) {
            let Some(Reverse(event)) = self.agenda.pop() else { break };
            self.now = self.now.max(event.at);
            self.happen(event.what);
        }
        self.now = end;
    }

    /// Runs for `span` and calls `look` after every `step` of it.
    pub fn watch(&mut self, span: Span, step: Span, mut look: impl FnMut(&World)) {
        let end = self.now + span;
        while self.now < end {
            self.run_until((self.now + step).min(end));
            look(self);
        }
    }

    /// Runs until the flow is done, at most for `span`; whether it is.
    pub fn run_until_done(&mut self, flow: usize, span: Span) -> bool {
        let end = self.now + span;
        while self.flows[flow].done_at.is_none() {
            match self.agenda.peek() {
                Some(Reverse(event)) if event.at <= end => self.run_until(event.at),
                Some(_) | None => break,
            }
        }
        self.flows[flow].done_at.is_some()
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// Seconds since the world began.
    pub fn elapsed(&self) -> f64 {
        self.now.since(START).as_secs_f64()
    }

    pub fn sent(&self, flow: usize) -> Progress {
        self.flows[flow].ends[0].progress()
    }

    pub fn received(&self, flow: usize) -> Progress {
        self.flows[flow].ends[1].progress()
    }

    /// Seconds from the flow's start until it was done.
    pub fn duration(&self, flow: usize) -> Option<f64> {
        let flow = &self.flows[flow];
        flow.done_at.map(|at| at.since(flow.start).as_secs_f64())
    }

    /// Mean rate on the wire into the receiver, in bit/s, between two times in seconds since the
    /// world began, which are rounded to bins.
    pub fn wire_rate(&self, flow: usize, from: f64, to: f64) -> f64 {
        mean_rate(&self.flows[flow].wire_bins, from, to)
    }

    /// Mean rate at which payload was handed over in order, as [`World::wire_rate`].
    pub fn goodput(&self, flow: usize, from: f64, to: f64) -> f64 {
        mean_rate(&self.flows[flow].goodput_bins, from, to)
    }

    /// The sender, by its own type.
    pub fn sender<T: Endpoint + Any>(&self, flow: usize) -> &T {
        let end: &dyn Any = &*self.flows[flow].ends[0];
        end.downcast_ref().expect("the sender's type")
    }

    /// The receiver, by its own type.
    pub fn receiver<T: Endpoint + Any>(&self, flow: usize) -> &T {
        let end: &dyn Any = &*self.flows[flow].ends[1];
        end.downcast_ref().expect("the receiver's type")
    }

    /// The router at a link, by its own type.
    pub fn router<T: Router + Any>(&self, link: usize) -> &T {
        let router: &dyn Any = &**self.hops[link].router.as_ref().expect("a router");
        router.downcast_ref().expect("the router's type")
    }

    pub fn link_ref(&self, link: usize) -> &Link {
        &self.hops[link].link
    }

    /// Bytes that wait at a link now, without the packet in service.
    pub fn queued(&self, link: usize) -> Bytes {
        self.hops[link].link.clone().queued(self.now)
    }

    /// Packets lost at a link so far: stolen, refused by its router, dropped by the queue or lost
    /// on its wire.
    pub fn lost(&self, link: usize) -> u64 {
        let hop = &self.hops[link];
        hop.stolen + hop.refused + hop.link.stats().drops.total().packets
    }

    /// Packets that came to a link's entrance so far.
    pub fn seen(&self, link: usize) -> u64 {
        self.hops[link].seen
    }

    fn book(&mut self, at: Time, what: What) {
        self.serial += 1;
        self.agenda.push(Reverse(Event { at, serial: self.serial, what }));
    }

    /// Books a packet that comes out of a link's queue, or off its wire, at `at`.
    fn book_packet(&mut self, at: Time, hop: usize, place: Place, parcel: Parcel) {
        let ring = self.hops[hop].ring(place);
        let early = ring.back().is_some_and(|(last, ..)| *last > at);
        match (early, place) {
            (true, Place::Queue) => self.book(at, What::LeavesEarly(hop, Box::new(parcel))),
            (true, Place::Wire) => self.book(at, What::LandsEarly(Box::new(parcel))),
            (false, _) => {
                self.serial += 1;
                ring.push_back((at, self.serial, parcel));
                if ring.len() == 1 {
                    let event = Event { at, serial: self.serial, what: place.of(hop) };
                    self.agenda.push(Reverse(event));
                }
            }
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

    fn happen(&mut self, what: What) {
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
            What::LeavesEarly(hop, parcel) => self.leave(hop, *parcel),
            What::LandsEarly(parcel) => self.arrive(*parcel),
            What::Change(hop, change) => self.change(hop, *change),
            What::Demand(flow, side, rate) => {
                self.flows[flow].ends[side as usize].set_demand(now, rate);
                self.serve(flow, side);
            }
            What::Stop(flow) => self.flows[flow].stopped = true,
        }
    }

    fn change(&mut self, hop: usize, change: Change) {
        let now = self.now;
        self.hops[hop].link.change(now, change);
        if let (Some(router), Some(rate)) = (&mut self.hops[hop].router, change.rate) {
            router.set_capacity(now, rate);
            self.book_router(hop);
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
        let Hop { link, router: Some(router), booked, .. } = &mut self.hops[hop] else { return };
        if *booked > now {
            return;
        }
        *booked = Time::MAX;
        if router.poll_timeout().is_some_and(|due| due <= now) {
            router.handle_timeout(now, link.queued(now));
        }
        self.book_router(hop);
    }

    fn book_router(&mut self, hop: usize) {
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
        let Hop { link, router, thief, seen, refused, stolen, .. } = &mut self.hops[hop];
        let ordinal = *seen;
        *seen += 1;
        if thief.as_mut().is_some_and(|thief| thief(ordinal, &parcel.packet)) {
            *stolen += 1;
            return;
        }
        if let Some(router) = router
            && router.handle_arrival(now, link.queued(now), &mut parcel.packet) == Admission::Drop
        {
            *refused += 1;
            self.book_router(hop);
            return;
        }
        let before = link.busy_until();
        let verdict = link.enqueue(now, parcel.packet.size);
        parcel.hop += 1;
        (parcel.at, parcel.copies) = match verdict {
            Verdict::Deliver { transit, copies } => (Some(transit.at), copies),
            Verdict::Drop(_) => (None, 0),
        };
        // What the wire loses has still passed the queue.
        let (leave, queued) = (link.busy_until(), link.busy_until() > before);
        let watched = router.is_some();
        match parcel.at {
            _ if watched && queued => self.book_packet(leave, hop, Place::Queue, parcel),
            Some(_) => self.fly(hop, parcel),
            None => {}
        }
        self.book_router(hop);
    }

    fn leave(&mut self, hop: usize, mut parcel: Parcel) {
        let now = self.now;
        let Hop { link, router, .. } = &mut self.hops[hop];
        if let Some(router) = router {
            router.handle_departure(now, link.queued(now), &mut parcel.packet);
        }
        self.fly(hop, parcel);
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

/// Packets that an end may send at one moment before it counts as stuck.
const LIVELOCK: u64 = 1 << 20;

fn add(bins: &mut Vec<u64>, bin: usize, bytes: u64) {
    if bins.len() <= bin {
        bins.resize(bin + 1, 0);
    }
    bins[bin] += bytes;
}

fn mean_rate(bins: &[u64], from: f64, to: f64) -> f64 {
    let bin = BIN.as_secs_f64();
    let (a, b) = ((from / bin).round() as usize, (to / bin).round() as usize);
    let bytes: u64 = (a..b).map(|i| bins.get(i).copied().unwrap_or(0)).sum();
    bytes as f64 * 8.0 / (to - from)
}

/// A link of this rate and delay whose queue holds `queue` bytes.
pub fn bottleneck(rate: Rate, delay: Span, queue: Bytes) -> LinkSpec {
    LinkSpec { rate, delay, queue, ..LinkSpec::default() }
}

/// A wire of unlimited rate with this delay.
pub fn wire(delay: Span) -> LinkSpec {
    LinkSpec { delay, ..LinkSpec::default() }
}

/// What a link of this rate carries in a round trip of `rtt`.
pub fn bdp(rate: Rate, rtt: Span) -> Bytes {
    rate.bytes_in(rtt)
}

/// Jain's index of fairness.
pub fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    sum * sum / (rates.len() as f64 * squares)
}
