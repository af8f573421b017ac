//! From a network of rivals to its course: the world is built, run and looked at each millisecond.
//!
//! A course holds what was seen, by time; what is read off it is another file's affair. Nothing
//! here knows a paper or a criterion.

use super::ends::{Makers, Receiving, kilobytes, mbps};
use super::{Flow, Network};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Chance, Jitter, LinkSpec, Order};
use gtp_path::{BIN, Side, World, bottleneck, wire};
use gtp_peers::{Admission, Packet, Router};

/// What was seen of one run.
pub struct Course {
    /// Which run.
    pub label: String,
    /// Its length in seconds.
    pub seconds: f64,
    /// The port's rate in bit/s.
    pub port: f64,
    /// At the port every millisecond: bytes waiting, packets lost and packets come so far.
    pub queue: Vec<u64>,
    /// See `queue`.
    pub lost: Vec<u64>,
    /// See `queue`.
    pub seen: Vec<u64>,
    /// The flows.
    pub flows: Vec<FlowCourse>,
}

/// What was seen of one flow.
#[derive(Default)]
pub struct FlowCourse {
    /// When it began, in seconds.
    pub start: f64,
    /// Packets sent so far, every millisecond.
    pub sent: Vec<u64>,
    /// Mbit/s on the link into the receiver, by bin.
    pub wire: Vec<f64>,
    /// Mbit/s handed to the application, by bin.
    pub goodput: Vec<f64>,
    /// Seconds that its transfer took.
    pub done: Option<f64>,
    /// When its frames were complete, in seconds.
    pub frames: Vec<f64>,
    /// Packets that found the receiving host's buffer full.
    pub overrun: u64,
    /// LambdaStream: the first mean ratio of gaps, what the first train found, changes of the rate
    /// by control and by loss.
    pub ratio: Option<f64>,
    /// See `ratio`.
    pub available: Option<f64>,
    /// See `ratio`.
    pub changes: Option<[u64; 2]>,
}

/// How often a run is looked at.
pub const LOOK: Span = Span::from_millis(1);
/// Length of the bins of rates, in seconds.
pub const BIN_S: f64 = 0.01;
/// Points of a curve are means over so many bins.
const CURVE_BINS: usize = 10;

impl Course {
    /// Name and points of each flow's curve.
    pub fn curves(&self) -> impl Iterator<Item = (String, Vec<(f64, f64)>)> {
        self.flows.iter().enumerate().map(|(k, flow)| {
            let mean = |bins: &[f64]| bins.iter().sum::<f64>() / bins.len() as f64;
            let step = CURVE_BINS as f64 * BIN_S;
            let points = flow.wire.chunks(CURVE_BINS).enumerate();
            let points = points.map(|(i, bins)| ((i as f64 + 0.5) * step, mean(bins))).collect();
            (format!("flow {}", k + 1), points)
        })
    }
}

/// Runs a network.
pub fn run(label: &str, network: &Network) -> Course {
    let mut world = World::new();
    let port = world.seeded_link(port(network), network.seed * 1_000);
    if let Some(places) = network.queue_packets {
        world.control(port, Box::new(Places { places, waiting: 0 }));
    }
    if !network.lose.is_empty() {
        world.lose(port, &network.lose);
    }
    // One host reads what comes to all flows.
    let host = network
        .host
        .map(|host| world.controlled_link(wire(Span::ZERO), Box::new(host.processor())));
    let shared: Vec<usize> = [Some(port), host].into_iter().flatten().collect();
    let (makers, mut starts) = (Makers::new(network), Vec::new());
    for flow in network.flows.iter().flat_map(|flow| std::iter::repeat_n(flow, flow.copies)) {
        add(&mut world, network, &makers, (flow, starts.len()), &shared);
        starts.push(flow.start);
    }
    let mut course = Course {
        label: label.to_owned(),
        seconds: network.seconds,
        port: network.port_mbps * 1e6,
        queue: vec![0],
        lost: vec![0],
        seen: vec![0],
        flows: starts.iter().map(|start| FlowCourse { start: *start, ..begin() }).collect(),
    };
    world.watch(Span::from_secs_f64(network.seconds), LOOK, |w| look(w, port, &mut course));
    finish(&world, &mut course);
    course
}

fn begin() -> FlowCourse {
    FlowCourse { sent: vec![0], ..FlowCourse::default() }
}

fn port(network: &Network) -> LinkSpec {
    let rate = mbps(network.port_mbps);
    let room = |ms| kilobytes(network.port_mbps * ms / 8.0);
    let queue = network.queue_ms.map_or(Bytes(u64::MAX), room);
    let loss = Chance::from_billionths((network.loss * 1e9).round() as u32);
    LinkSpec { loss, ..bottleneck(rate, Span::ZERO, queue) }
}

/// A queue with a place for each packet of any size, and one in service.
struct Places {
    places: u64,
    waiting: u64,
}

impl Router for Places {
    fn set_capacity(&mut self, _: Time, _: Rate) {}

    fn handle_arrival(&mut self, _: Time, _: Bytes, _: &mut Packet) -> Admission {
        if self.waiting > self.places {
            return Admission::Drop;
        }
        self.waiting += 1;
        Admission::Pass
    }

    fn handle_departure(&mut self, _: Time, _: Bytes, _: &mut Packet) {
        self.waiting -= 1;
    }
}

fn add(
    world: &mut World,
    network: &Network,
    makers: &Makers<'_>,
    (flow, number): (&Flow, usize),
    shared: &[usize],
) {
    let half = Span::from_secs_f64(flow.rtt_ms / 2e3);
    let jitter =
        Jitter { span: Span::from_nanos((network.jitter_us * 1e3) as u64), order: Order::Kept };
    let rate = network.access_mbps.map_or(Rate::UNLIMITED, mbps);
    let access = LinkSpec { jitter, ..bottleneck(rate, half, Bytes(u64::MAX)) };
    let seed = network.seed * 1_000 + 2 * number as u64 + 1;
    let there = world.seeded_link(access, seed);
    let back = world.seeded_link(wire(half), seed + 1);
    let (sender, receiver) = makers.pair(flow, number);
    let start = Span::from_secs_f64(flow.start);
    let id = world.flow(start, sender, receiver, &[&[there], shared].concat(), &[back]);
    if let Some(limit) = flow.limit_mbps {
        world.demand_at(start, id, Side::Sender, Some(mbps(limit)));
    }
    if let Some(reader) = flow.reader {
        let from = Span::from_secs_f64(reader.from);
        world.demand_at(from, id, Side::Receiver, Some(mbps(reader.mbps)));
        if let Some(until) = reader.until {
            world.demand_at(Span::from_secs_f64(until), id, Side::Receiver, None);
        }
    }
    if let Some(stop) = flow.stop {
        world.stop_at(Span::from_secs_f64(stop), id);
    }
}

fn look(world: &World, port: usize, course: &mut Course) {
    course.queue.push(world.queued(port).0);
    course.lost.push(world.lost(port));
    course.seen.push(world.seen(port));
    for (k, flow) in course.flows.iter_mut().enumerate() {
        flow.sent.push(world.sent(k).sent);
        if let Some(lambda) = world.receiver::<Receiving>(k).inner().lambda() {
            flow.ratio = flow.ratio.or(lambda.ratio());
            flow.available = flow.available.or(lambda.available());
        }
    }
}

fn finish(world: &World, course: &mut Course) {
    let bins = (course.seconds / BIN_S).round() as usize;
    let first = gtp_path::START;
    for (k, flow) in course.flows.iter_mut().enumerate() {
        let at = |i: usize| (i as f64 * BIN_S, (i + 1) as f64 * BIN_S);
        let all = |f: &dyn Fn(f64, f64) -> f64| {
            (0..bins).map(|i| f(at(i).0, at(i).1) / 1e6).collect::<Vec<f64>>()
        };
        flow.wire = all(&|from, to| world.wire_rate(k, from, to));
        flow.goodput = all(&|from, to| world.goodput(k, from, to));
        flow.done = world.duration(k);
        let host = world.receiver::<Receiving>(k);
        flow.overrun = host.lost();
        let frames = host.inner().frames().iter();
        flow.frames = frames.map(|at| at.since(first).as_secs_f64()).collect();
        flow.changes = host.inner().lambda().map(|lambda| {
            let (control, loss) = lambda.changes();
            [control, loss]
        });
    }
    debug_assert_eq!(BIN.as_secs_f64(), BIN_S);
}
