//! CoDel, FQ-CoDel and PIE beside ns-3's: the same arrivals in front of the same link.
//!
//! Packets come as a Poisson process, drawn here as `bench/referees/queues.cc` draws it, and nobody
//! answers to drops, so that the queue alone decides. The figures of ns-3.37 are what that program
//! printed for 300 s and seeds 1, 2 and 3; bench/referees/README.md says how.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::managed::{Ecn, Kind, Managed, Packet};
use gtp_peers::{Admission, Body, Note, Router, pie};

const PACKET: Bytes = Bytes(1_500);
/// What a packet takes on 10 Mbit/s.
const SERVICE: Span = Span::from_micros(1_200);
const LIMIT: Bytes = Bytes(15_000_000);
const SECONDS: u64 = 300;

/// Poisson processes, one for each flow.
struct Arrivals {
    next: Vec<(u64, f64, Time)>,
}

impl Arrivals {
    fn new(seed: u64, loads: &[f64]) -> Arrivals {
        let flow = |(n, load): (u64, &f64)| {
            let mean = SERVICE.as_secs_f64() / load;
            let mut flow = (seed + 1_000 * n, mean, Time::ZERO);
            Arrivals::step(&mut flow);
            flow
        };
        Arrivals { next: (1..).zip(loads).map(flow).collect() }
    }

    fn step((state, mean, at): &mut (u64, f64, Time)) {
        *state = state.wrapping_mul(6_364_136_223_846_793_005);
        *state = state.wrapping_add(1_442_695_040_888_963_407);
        let unit = (*state >> 11) as f64 / (1u64 << 53) as f64;
        *at += Span::from_nanos((-(1.0 - unit).ln() * *mean * 1e9) as u64);
    }

    /// The next arrival and its flow.
    fn pop(&mut self) -> (Time, u64) {
        let first = (0..self.next.len()).min_by_key(|&n| self.next[n].2).expect("a flow");
        let at = self.next[first].2;
        Arrivals::step(&mut self.next[first]);
        (at, first as u64)
    }
}

/// What a queue did: the mean wait in milliseconds, the share that was dropped, and each flow's
/// share of what was sent.
struct Seen {
    wait_ms: f64,
    dropped: f64,
    shares: Vec<f64>,
}

/// A queue in front of the link.
trait Served {
    fn arrive(&mut self, now: Time, flow: u64);
    /// The next packet that is sent: when it came, and its flow.
    fn serve(&mut self, now: Time) -> Option<(Time, u64)>;
    fn dropped(&self) -> u64;
}

struct OfLink {
    queue: Managed<Time>,
    dropped: Vec<Packet<Time>>,
}

impl Served for OfLink {
    fn arrive(&mut self, now: Time, flow: u64) {
        let packet = Packet { size: PACKET, flow, ecn: Ecn::NotCapable, thing: now };
        self.queue.enqueue(now, LIMIT, packet, &mut self.dropped);
    }

    fn serve(&mut self, now: Time) -> Option<(Time, u64)> {
        self.queue.dequeue(now, &mut self.dropped).map(|packet| (packet.thing, packet.flow))
    }

    fn dropped(&self) -> u64 {
        self.dropped.len() as u64
    }
}

struct OfPie {
    control: pie::Queue,
    waiting: std::collections::VecDeque<(Time, u64)>,
    dropped: u64,
}

impl OfPie {
    /// The controller's updates until now. Returns what waits.
    fn catch_up(&mut self, now: Time) -> Bytes {
        let queued = Bytes(PACKET.0 * self.waiting.len() as u64);
        while let Some(due) = self.control.poll_timeout().filter(|&due| due <= now) {
            self.control.handle_timeout(due, queued);
        }
        queued
    }
}

impl Served for OfPie {
    fn arrive(&mut self, now: Time, flow: u64) {
        let mut packet = gtp_peers::Packet { size: PACKET, body: Body::Empty, note: Note::None };
        let queued = self.catch_up(now);
        match self.control.handle_arrival(now, queued, &mut packet) {
            Admission::Pass => self.waiting.push_back((now, flow)),
            Admission::Mark | Admission::Drop => self.dropped += 1,
        }
    }

    fn serve(&mut self, now: Time) -> Option<(Time, u64)> {
        self.catch_up(now);
        self.waiting.pop_front()
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn run(queue: &mut dyn Served, seed: u64, loads: &[f64]) -> Seen {
    let mut arrivals = Arrivals::new(seed, loads);
    let end = Time::ZERO + Span::from_secs(SECONDS);
    let (mut offered, mut sent, mut waited) = (0u64, 0u64, 0.0);
    let mut of_flow = vec![0u64; loads.len()];
    let mut free = Time::ZERO;
    let mut busy = false;
    let (mut next, mut flow) = arrivals.pop();
    loop {
        let at = if busy { free.min(next) } else { next };
        if at > end {
            break;
        }
        if at == next && !(busy && free < next) {
            offered += 1;
            queue.arrive(at, flow);
            (next, flow) = arrivals.pop();
            if busy {
                continue;
            }
        }
        busy = false;
        if let Some((came, flow)) = queue.serve(at) {
            sent += 1;
            of_flow[flow as usize] += 1;
            waited += at.since(came).as_secs_f64();
            (busy, free) = (true, at + SERVICE);
        }
    }
    Seen {
        wait_ms: 1e3 * waited / sent as f64,
        dropped: queue.dropped() as f64 / offered as f64,
        shares: of_flow.iter().map(|&n| n as f64 / sent as f64).collect(),
    }
}

fn of_link(kind: Kind, seed: u64, loads: &[f64]) -> Seen {
    run(&mut OfLink { queue: Managed::new(kind, 1), dropped: Vec::new() }, seed, loads)
}

fn of_pie(seed: u64, loads: &[f64]) -> Seen {
    let mut control = pie::Queue::new(pie::Config::default(), seed);
    control.set_capacity(Time::ZERO, Rate::from_mbps(10));
    let waiting = std::collections::VecDeque::new();
    run(&mut OfPie { control, waiting, dropped: 0 }, seed, loads)
}

/// What ns-3 had: the mean wait in milliseconds and the share that was dropped, for each seed.
type There = [(f64, f64); 3];

/// Each figure is within a tenth of ns-3's. A share of a few packets in 200,000 says nothing.
fn check(found: impl Fn(u64) -> Seen, there: There) {
    for (seed, (wait_ms, dropped)) in (1..).zip(there) {
        let seen = found(seed);
        let off = seen.wait_ms / wait_ms - 1.0;
        assert!(off.abs() < 0.1, "seed {seed}: {} ms for {wait_ms}", seen.wait_ms);
        let off = (seen.dropped - dropped).abs();
        assert!(off < 0.1 * dropped + 1e-4, "seed {seed}: {} for {dropped}", seen.dropped);
    }
}

/// `queues codel LOAD 300 SEED`.
#[test]
fn codel_waits_and_drops_as_ns3s() {
    let codel = |load| move |seed| of_link(Kind::Codel, seed, &[load]);
    check(codel(0.9), [(5.3511, 0.00190), (5.0288, 0.00152), (5.4456, 0.00209)]);
    check(codel(1.1), [(45.7410, 0.09692), (45.7774, 0.09188), (44.6211, 0.09438)]);
    check(codel(1.5), [(617.5249, 0.33432), (588.5008, 0.33056), (573.8017, 0.33213)]);
}

const LOADS: [f64; 4] = [0.1, 0.2, 0.4, 0.8];

/// `queues fq-codel 0.1,0.2,0.4,0.8 300 SEED`.
#[test]
fn fq_codel_waits_and_drops_as_ns3s_and_gives_each_flow_the_same() {
    let fq = |seed| of_link(Kind::FqCodel, seed, &LOADS);
    check(fq, [(296.1305, 0.33167), (299.7659, 0.33370), (313.4599, 0.33207)]);
    let there = [0.0997, 0.2005, 0.3461, 0.3536];
    for (here, there) in fq(1).shares.iter().zip(there) {
        assert!((here / there - 1.0).abs() < 0.01, "{here} {there}");
    }
}

/// `queues pie LOAD 300 SEED`.
#[test]
fn pie_waits_and_drops_as_ns3s() {
    let pie = |load| move |seed| of_pie(seed, &[load]);
    check(pie(0.9), [(5.6678, 0.00001), (5.2763, 0.0), (5.8421, 0.00002)]);
    check(pie(1.1), [(15.8730, 0.10538), (15.8209, 0.10075), (15.9126, 0.10421)]);
    check(pie(1.5), [(15.8240, 0.33762), (15.9801, 0.33381), (15.9311, 0.33559)]);
}
