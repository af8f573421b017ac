//! A small world in virtual time for rivals alone: ends joined over links, with routers at queues.
//!
//! It is where the rivals' own tests and the papers' small experiments run: a test looks into ends
//! and routers by their own types, loses packets by their number, and needs no host, no address and
//! no session of the protocol. The simulator proper is another crate, which this one does not know.
//!
//! Links are gtp-link's; a route is a list of them, and flows that name the same link share it.
//! Time jumps from event to event, in the order (time, order of booking), so that a run is a
//! function of what was built. Packets under way wait in rings, of which the agenda holds the
//! first only: they leave a link in the order in which they came. An end is served (drained, its
//! timer asked) after each of its inputs and never otherwise. A router sees a packet when it
//! arrives at its link and when its last bit leaves the queue.
//!
//! ```
//! use gtp_alloc::{Bytes, Rate, Span};
//! use gtp_path::{START, World, bottleneck, wire};
//! use gtp_peers::tcp::{Flavour, ReceiverConfig, SenderConfig};
//!
//! let mut world = World::new();
//! let (rate, delay) = (Rate::from_mbps(20), Span::from_millis(10));
//! let there = world.link(bottleneck(rate, delay, Bytes(50_000)));
//! let back = world.link(wire(delay));
//! let sender = Flavour::Sack.sender(START, SenderConfig::default(), 1);
//! let receiver = Flavour::Sack.receiver(ReceiverConfig::default());
//! let flow = world.flow(Span::ZERO, Box::new(sender), Box::new(receiver), &[there], &[back]);
//! world.run_for(Span::from_secs(6));
//! assert!(world.goodput(flow, 1.0, 6.0) > 0.9 * rate.as_f64());
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod run;

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::any::Any;
use core::cmp::Reverse;
use core::fmt;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Link, LinkSpec};
use gtp_peers::{Endpoint, Packet, Progress, Router};

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
/// (from zero) and the packet; `true` loses it.
pub type Thief = Box<dyn FnMut(u64, &Packet) -> bool>;

/// Which packets leave a link's queue before all others.
pub type Urgent = fn(&Packet) -> bool;

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Where payload comes from.
    Sender,
    /// Where it goes.
    Receiver,
}

struct Hop {
    link: Link,
    router: Option<Box<dyn Control>>,
    booked: Time,
    thief: Option<Thief>,
    lanes: Option<Lanes>,
    /// Packets that came to the entrance.
    seen: u64,
    /// Dropped by the router, and stolen.
    refused: u64,
    stolen: u64,
    /// What waits in the queue, if there is a router, and what is on the wire.
    leaving: Ring,
    flying: Ring,
}

/// What waits before a link that lets some pass before others; the link has what is in service.
struct Lanes {
    urgent: Urgent,
    first: VecDeque<Parcel>,
    rest: VecDeque<Parcel>,
    waiting: Bytes,
    /// Packets that the link has, of which each is booked to leave.
    inside: usize,
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
    /// Bytes that wait, without the packet in service.
    fn queued(&mut self, now: Time) -> Bytes {
        let lanes = self.lanes.as_ref().map_or(Bytes::ZERO, |lanes| lanes.waiting);
        self.link.queued(now) + lanes
    }

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
    /// there is a router, or what is urgent passes the rest.
    Leaves(usize),
    /// The first packet in the ring is at the entrance of its next link, or at its end.
    Lands(usize),
    /// The same of a packet that is out of turn.
    LandsEarly(Box<Parcel>),
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
    fn partial_cmp(&self, other: &Event) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Event) -> core::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

/// Links, flows over them, and the time; see the crate's head.
///
/// Links and flows are known by the numbers that adding them gave. All calls that take one panic
/// where there is no such link or flow, and those that name a type where it is another.
pub struct World {
    now: Time,
    hops: Vec<Hop>,
    flows: Vec<Flow>,
    agenda: BinaryHeap<Reverse<Event>>,
    serial: u64,
    ties: Vec<[(usize, Side); 2]>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (links, flows) = (self.hops.len(), self.flows.len());
        let mut shown = f.debug_struct("World");
        shown.field("now", &self.now).field("links", &links).field("flows", &flows);
        shown.finish_non_exhaustive()
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl World {
    /// A world without anything, at [`START`].
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

    /// Adds a link whose chances follow from `seed`.
    pub fn seeded_link(&mut self, spec: LinkSpec, seed: u64) -> usize {
        self.hops.push(Hop {
            link: Link::new(spec, seed),
            router: None,
            booked: Time::MAX,
            thief: None,
            lanes: None,
            seen: 0,
            refused: 0,
            stolen: 0,
            leaving: Ring::new(),
            flying: Ring::new(),
        });
        self.hops.len() - 1
    }

    /// Adds a link with a controller at its queue, which is told the link's rate at once.
    pub fn controlled_link(&mut self, spec: LinkSpec, router: Box<dyn Control>) -> usize {
        let hop = self.link(spec);
        self.control(hop, router);
        hop
    }

    /// Puts a controller at a link's queue, before anything has come there.
    pub fn control(&mut self, link: usize, mut router: Box<dyn Control>) {
        router.set_capacity(self.now, self.hops[link].link.spec().rate);
        self.hops[link].router = Some(router);
        self.book_router(link);
    }

    /// Lets packets of which `urgent` is true leave the link's queue before all others. The room in
    /// that queue is its router's to count: the link itself then drops nothing for want of it.
    pub fn set_urgent(&mut self, link: usize, urgent: Urgent) {
        let (first, rest) = (VecDeque::new(), VecDeque::new());
        let (waiting, inside) = (Bytes::ZERO, 0);
        self.hops[link].lanes = Some(Lanes { urgent, first, rest, waiting, inside });
    }

    /// Lets `thief` decide what the link loses at its entrance.
    pub fn set_thief(&mut self, link: usize, thief: Thief) {
        self.hops[link].thief = Some(thief);
    }

    /// Loses the packets with these ordinals (from zero) at the link's entrance.
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

    /// Sets an application's limit `after` the world's beginning.
    pub fn demand_at(&mut self, after: Span, flow: usize, side: Side, rate: Option<Rate>) {
        self.book(START + after, What::Demand(flow, side, rate));
    }

    /// Ends a flow: its ends are not served any more, what is under way still loads the links.
    pub fn stop_at(&mut self, after: Span, flow: usize) {
        self.book(START + after, What::Stop(flow));
    }

    /// Runs for `span`.
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

    /// The time, on the world's own clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Seconds since the world began.
    pub fn elapsed(&self) -> f64 {
        self.now.since(START).as_secs_f64()
    }

    /// Where a flow stands, as its sender sees it.
    pub fn sent(&self, flow: usize) -> Progress {
        self.flows[flow].ends[0].progress()
    }

    /// Where a flow stands, as its receiver sees it.
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

    /// A link.
    pub fn link_ref(&self, link: usize) -> &Link {
        &self.hops[link].link
    }

    /// Bytes that wait at a link now, without the packet in service.
    pub fn queued(&self, link: usize) -> Bytes {
        let hop = &self.hops[link];
        let lanes = hop.lanes.as_ref().map_or(Bytes::ZERO, |lanes| lanes.waiting);
        hop.link.clone().queued(self.now) + lanes
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
}

fn mean_rate(bins: &[u64], from: f64, to: f64) -> f64 {
    let bin = BIN.as_secs_f64();
    let number = |seconds: f64| libm::round(seconds / bin) as usize;
    let (a, b) = (number(from), number(to));
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
