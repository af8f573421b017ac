//! The rivals of AECP's figures, packet by packet, over links of an entry's.
//!
//! TCP with SACK, XCP, VCP and AECP, each with its router at every link, in the rivals' own
//! virtual-time world; beside them web and constant traffic that nobody controls. Access links
//! have no limit. What is read off a run are the paper's quantities: rates, use, loss and queues,
//! over spans of time. Nothing here knows what the paper found.

use super::aecp::put;
use super::formula::Quantities;
use crate::series::{Axis, Figure, Series};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::LinkSpec;
use gtp_path::{START, World};
use gtp_peers::background::{Pattern, Sink, Source};
use gtp_peers::tcp::laws::Reno;
use gtp_peers::tcp::{AckDelay, Law, Opening, Receiver, ReceiverConfig};
use gtp_peers::tcp::{Segment, Sender, SenderConfig, Timing};
use gtp_peers::{Admission, Body, Packet, Routed, Router, aecp, vcp, xcp};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Runs of one network, one for each of `protocols`, whose names stand before the quantities.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    protocols: Vec<Protocol>,
    links: Vec<Hop>,
    flows: Vec<Flow>,
    #[serde(default)]
    beside: Vec<Beside>,
    seconds: f64,
    read: Vec<Read>,
}

/// Whose ends and routers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// TCP with selective acknowledgments; drop-tail.
    Sack,
    /// XCP, whose ends repair losses as Reno does, with timestamps.
    Xcp,
    /// XCP as ns-2's own code has it: its arithmetic, and timestamps take ten bytes more.
    XcpNs2,
    /// VCP with the queue of its authors' code.
    Vcp,
    /// AECP with the paper's gains.
    Aecp,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hop {
    mbps: u64,
    delay_ms: u64,
    /// The queue: as many packets as the link carries of 1,000 bytes in this time.
    buffer_ms: u64,
}

/// Flows with packets of 1,000 bytes and acknowledgments of 40, one for each packet, that begin at
/// one packet per round trip.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flow {
    /// Links there and back, from one.
    route: Vec<usize>,
    #[serde(default)]
    back: Vec<usize>,
    /// What the way back takes beside its links.
    #[serde(default)]
    back_ms: u64,
    #[serde(default = "one")]
    count: usize,
    /// When the first begins, how much later each of the others, and when they end.
    #[serde(default)]
    start: f64,
    #[serde(default)]
    every: f64,
    stop: Option<f64>,
}

/// Sources without control, with packets of 1,000 bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beside {
    route: Vec<usize>,
    count: usize,
    /// The rate of each while it sends.
    mbps: f64,
    /// Mean lengths of sending and silence; without them it always sends.
    on_off_ms: Option<[u64; 2]>,
    /// Which of many equally likely courses of all that is random.
    #[serde(default)]
    draw: u64,
    #[serde(default)]
    start: f64,
    stop: Option<f64>,
}

/// Quantities of a span of time.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
enum Read {
    /// Mean rate of each of the `flows` (from one; all without it), Mbit/s at the receiver.
    Rates { name: String, from: f64, until: f64, flows: Option<Vec<usize>> },
    /// Standard deviation of each flow's means over whole seconds, as a part of its mean.
    Spread { name: String, from: f64, until: f64, flows: Option<Vec<usize>> },
    /// When the means over whole seconds of the `flows` are all within `band` of `mbps` until the
    /// end of the span, in s from its beginning; infinite if they are not in its last second.
    Settle { name: String, from: f64, until: f64, flows: Vec<usize>, mbps: f64, band: f64 },
    /// Jain's index of the mean rates.
    Jain { name: String, from: f64, until: f64, flows: Vec<usize> },
    /// What a link carries as a part of its capacity.
    Use { name: String, link: usize, from: f64, until: f64 },
    /// What is lost at a link of what comes to it.
    Loss { name: String, link: usize, from: f64, until: f64 },
    /// Mean queue of a link in packets of any size, looked at 100 times a second.
    Queue { name: String, link: usize, from: f64, until: f64 },
}

fn one() -> usize {
    1
}

/// Runs them; figures of the flows' rates are added to `figures`.
///
/// # Errors
/// A sentence, if the network is senseless or something is read twice.
pub fn run(
    id: &str,
    wanted: &Packets,
    quantities: &mut Quantities,
    figures: &mut Vec<Figure>,
) -> Result<(), String> {
    check(wanted)?;
    for protocol in &wanted.protocols {
        let course = played(wanted, *protocol);
        let word = format!("{protocol:?}").to_lowercase();
        for read in &wanted.read {
            let (name, numbers) = course.read(read, wanted)?;
            put(&word, vec![(name, numbers)], quantities)?;
        }
        figures.push(course.figure(id, &word, wanted.seconds));
    }
    Ok(())
}

thread_local! {
    /// Runs so far, by all that decides them: a figure and a table may be of the same one.
    static PLAYED: RefCell<BTreeMap<String, Rc<Course>>> = const { RefCell::new(BTreeMap::new()) };
}

fn played(wanted: &Packets, protocol: Protocol) -> Rc<Course> {
    let Packets { links, flows, beside, seconds, .. } = wanted;
    let key = format!("{protocol:?} {links:?} {flows:?} {beside:?} {seconds}");
    if let Some(course) = PLAYED.with_borrow(|played| played.get(&key).cloned()) {
        return course;
    }
    let course = Rc::new(Course::of(wanted, protocol));
    PLAYED.with_borrow_mut(|played| played.insert(key, Rc::clone(&course)));
    course
}

/// As large as a network of an entry is at most.
const SECONDS_MAX: f64 = 1_000.0;
const COUNT_MAX: usize = 1_000;

fn check(wanted: &Packets) -> Result<(), String> {
    let links = wanted.links.len();
    let known = |route: &[usize]| route.iter().all(|link| (1..=links).contains(link));
    let flows = wanted.flows.iter().all(|f| known(&f.route) && known(&f.back));
    let beside = wanted.beside.iter().all(|f| known(&f.route));
    let counts = wanted.flows.iter().map(|f| f.count).chain(wanted.beside.iter().map(|f| f.count));
    if !flows || !beside || wanted.links.iter().any(|hop| hop.mbps == 0) {
        return Err("a route names links from one on, and each has a rate".to_owned());
    }
    if counts.sum::<usize>() > COUNT_MAX || !(0.0..=SECONDS_MAX).contains(&wanted.seconds) {
        return Err(format!("at most {COUNT_MAX} flows and {SECONDS_MAX} s"));
    }
    Ok(())
}

/// What was seen of a run.
struct Course {
    world: World,
    flows: Vec<usize>,
    /// By link: each hundredth of a second.
    seen: Vec<Vec<Look>>,
}

/// What a link looked like at a moment: packets so far, and those that wait.
#[derive(Clone, Copy, Default)]
struct Look {
    offered: u64,
    lost: u64,
    carried: u64,
    queued: u64,
}

const LOOK: Span = Span::from_millis(10);

impl Course {
    fn of(wanted: &Packets, protocol: Protocol) -> Course {
        let mut world = World::new();
        let links: Vec<usize> =
            wanted.links.iter().map(|hop| link(&mut world, hop, protocol)).collect();
        let mut flows = Vec::new();
        for group in &wanted.flows {
            let there = ids(&links, &group.route);
            for n in 0..group.count {
                let mut back = ids(&links, &group.back);
                let delay = Span::from_millis(group.back_ms);
                back.push(world.link(LinkSpec { delay, ..LinkSpec::default() }));
                let after = Span::from_secs_f64(group.start + group.every * n as f64);
                let flow = connect(&mut world, protocol, after, &there, &back);
                stop(&mut world, flow, group.stop);
                flows.push(flow);
            }
        }
        for group in &wanted.beside {
            let there = ids(&links, &group.route);
            for n in 0..group.count as u64 {
                let seed = group.draw * COUNT_MAX as u64 + n;
                let flow = disturb(&mut world, group, &there, seed);
                stop(&mut world, flow, group.stop);
            }
        }
        let mut seen = vec![Vec::new(); links.len()];
        world.watch(Span::from_secs_f64(wanted.seconds), LOOK, |world| {
            for (looks, link) in seen.iter_mut().zip(&links) {
                looks.push(Look {
                    offered: world.seen(*link),
                    lost: world.lost(*link),
                    carried: world.link_ref(*link).stats().carried.bytes.0,
                    queued: world.router::<Counted>(*link).waiting.saturating_sub(1),
                });
            }
        });
        Course { world, flows, seen }
    }

    fn read<'a>(&self, read: &'a Read, wanted: &Packets) -> Result<(&'a str, Vec<f64>), String> {
        Ok(match read {
            Read::Rates { name, from, until, flows } => {
                (name, self.rates(&self.chosen(flows.as_deref())?, *from, *until))
            }
            Read::Spread { name, from, until, flows } => {
                let chosen = self.chosen(flows.as_deref())?;
                (name, chosen.iter().map(|flow| self.spread(*flow, *from, *until)).collect())
            }
            Read::Settle { name, from, until, flows, mbps, band } => {
                let chosen = self.chosen(Some(flows))?;
                (name, vec![self.settle(&chosen, *from, *until, *mbps, *band)])
            }
            Read::Jain { name, from, until, flows } => {
                let rates = self.rates(&self.chosen(Some(flows))?, *from, *until);
                (name, vec![gtp_alloc::fairness::jain_index(&rates)])
            }
            Read::Use { name, link, from, until } => {
                let (first, last) = self.span(*link, *from, *until)?;
                let bits = 8.0 * (last.carried - first.carried) as f64;
                let capacity = wanted.links[link - 1].mbps as f64 * 1e6 * (until - from);
                (name, vec![bits / capacity])
            }
            Read::Loss { name, link, from, until } => {
                let (first, last) = self.span(*link, *from, *until)?;
                let offered = (last.offered - first.offered) as f64;
                (name, vec![(last.lost - first.lost) as f64 / offered])
            }
            Read::Queue { name, link, from, until } => {
                self.span(*link, *from, *until)?;
                let looks = &self.seen[link - 1][place(*from)..place(*until)];
                let sum: u64 = looks.iter().map(|look| look.queued).sum();
                (name, vec![sum as f64 / looks.len() as f64])
            }
        })
    }

    fn chosen(&self, flows: Option<&[usize]>) -> Result<Vec<usize>, String> {
        let Some(flows) = flows else { return Ok(self.flows.clone()) };
        let of = |n: &usize| self.flows.get(n.wrapping_sub(1)).copied();
        let chosen: Option<Vec<usize>> = flows.iter().map(of).collect();
        chosen.ok_or_else(|| format!("there are {} flows, from one", self.flows.len()))
    }

    fn rates(&self, flows: &[usize], from: f64, until: f64) -> Vec<f64> {
        flows.iter().map(|flow| self.world.wire_rate(*flow, from, until) / 1e6).collect()
    }

    /// Means over whole seconds.
    fn seconds(&self, flow: usize, from: f64, until: f64) -> Vec<f64> {
        let whole = (until - from) as usize;
        let at = |n: usize| from + n as f64;
        (0..whole).map(|n| self.world.wire_rate(flow, at(n), at(n + 1)) / 1e6).collect()
    }

    fn spread(&self, flow: usize, from: f64, until: f64) -> f64 {
        let means = self.seconds(flow, from, until);
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let squares = means.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / means.len() as f64;
        libm::sqrt(squares) / mean
    }

    fn settle(&self, flows: &[usize], from: f64, until: f64, mbps: f64, band: f64) -> f64 {
        let off = |x: f64| (x / mbps - 1.0).abs() > band;
        let last_off = |flow: &usize| {
            let means = self.seconds(*flow, from, until);
            let last = means.iter().rposition(|x| off(*x));
            last.map_or(0.0, |n| if n + 1 == means.len() { f64::INFINITY } else { n as f64 + 1.0 })
        };
        flows.iter().map(last_off).fold(0.0, f64::max)
    }

    fn span(&self, link: usize, from: f64, until: f64) -> Result<(Look, Look), String> {
        let looks = self.seen.get(link.wrapping_sub(1)).ok_or("there is no such link")?;
        let at = |seconds| match place(seconds) {
            0 => Some(Look::default()),
            n => looks.get(n - 1).copied(),
        };
        match (at(from), at(until)) {
            (Some(first), Some(last)) if from < until => Ok((first, last)),
            (_, _) => Err(format!("{from} s to {until} s is no span of the run")),
        }
    }

    fn figure(&self, id: &str, word: &str, seconds: f64) -> Figure {
        let axes = (Axis::linear("Time, s"), Axis::linear("Rate at the receiver, Mbit/s"));
        let title = format!("{id}: {word}");
        let mut figure = Figure::new(&format!("{id}-{word}"), title, axes.0, axes.1);
        figure.note = "Means over one second.".to_owned();
        for (n, flow) in self.flows.iter().take(CURVES_MAX).enumerate() {
            let means = self.seconds(*flow, 0.0, seconds).into_iter().enumerate();
            let points = means.map(|(t, rate)| (t as f64 + 0.5, rate)).collect();
            figure.series.push(Series::line(format!("flow {}", n + 1), "Mbit/s", points));
        }
        figure
    }
}

/// More curves tell a reader nothing.
const CURVES_MAX: usize = 20;

fn place(seconds: f64) -> usize {
    (seconds / LOOK.as_secs_f64()).round().max(0.0) as usize
}

fn ids(links: &[usize], route: &[usize]) -> Vec<usize> {
    route.iter().map(|link| links[link - 1]).collect()
}

fn link(world: &mut World, hop: &Hop, protocol: Protocol) -> usize {
    let rate = Rate::from_mbps(hop.mbps);
    let spec = LinkSpec { rate, delay: Span::from_millis(hop.delay_ms), ..LinkSpec::default() };
    let router: Option<Box<dyn Router>> = match protocol {
        Protocol::Sack => None,
        Protocol::Xcp | Protocol::XcpNs2 => Some(Box::new(xcp::Queue::new())),
        Protocol::Vcp => Some(Box::new(vcp::Queue::as_coded())),
        Protocol::Aecp => Some(Box::new(aecp::Queue::new(aecp::Config::default()))),
    };
    let room = rate.bytes_in(Span::from_millis(hop.buffer_ms)).0 / PACKET;
    let link = world.controlled_link(spec, Box::new(Counted { router, room, waiting: 0 }));
    if protocol == Protocol::Vcp {
        world.set_urgent(link, acknowledges);
    }
    link
}

/// The queue of VCP's authors for ns-2 lets acknowledgments pass.
fn acknowledges(packet: &Packet) -> bool {
    matches!(&packet.body, Body::Tcp(tcp) if matches!(tcp.segment, Segment::Ack(_)))
}

/// A drop-tail queue with room for so many packets, whatever their size, as ns-2's has: where
/// acknowledgments pass too, it holds less than its room times a packet of data. One more is in
/// service.
struct Counted {
    router: Option<Box<dyn Router>>,
    room: u64,
    waiting: u64,
}

impl Router for Counted {
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        if let Some(router) = &mut self.router {
            router.set_capacity(now, capacity);
        }
    }

    fn handle_arrival(&mut self, now: Time, queued: Bytes, packet: &mut Packet) -> Admission {
        let asked = match &mut self.router {
            Some(router) => router.handle_arrival(now, queued, packet),
            None => Admission::Pass,
        };
        match asked {
            Admission::Pass if self.waiting <= self.room => {
                self.waiting += 1;
                Admission::Pass
            }
            Admission::Pass | Admission::Mark | Admission::Drop => Admission::Drop,
        }
    }

    fn handle_departure(&mut self, now: Time, queued: Bytes, packet: &mut Packet) {
        self.waiting -= 1;
        if let Some(router) = &mut self.router {
            router.handle_departure(now, queued, packet);
        }
    }

    fn handle_timeout(&mut self, now: Time, queued: Bytes) {
        if let Some(router) = &mut self.router {
            router.handle_timeout(now, queued);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.router.as_ref().and_then(|router| router.poll_timeout())
    }
}

/// Bytes of a packet of data.
const PACKET: u64 = 1_000;

/// Payload of a packet of 1,000 bytes; AECP's have its header beside them, so that what is read of
/// it pays for it.
const MSS: Bytes = Bytes(960);
/// Headers of a packet with timestamps, as ns-2 counts them.
const STAMPED: Bytes = Bytes(50);
/// The least timeout of ns-2 (`minrto_`, since 2004), by which the paper has its results. A second,
/// as RFC 6298 has it, is time enough for one lost repetition to show in a mean over ten.
const LEAST_TIMEOUT: Span = Span::from_millis(200);

fn connect(
    world: &mut World,
    protocol: Protocol,
    after: Span,
    there: &[usize],
    back: &[usize],
) -> usize {
    let config = SenderConfig {
        mss: MSS,
        initial_window: 1.0,
        opening: Opening::Open,
        least_timeout: LEAST_TIMEOUT,
        ..SenderConfig::default()
    };
    let (config, law): (_, Box<dyn Law>) = match protocol {
        Protocol::Sack => (config, Box::new(Reno)),
        Protocol::Xcp => {
            // As in ns-2; without them the round trip of what waited behind a gap is measured, too.
            let config = SenderConfig { timing: Timing::Stamps, ..config };
            (Routed::Xcp.adapt(config), Routed::Xcp.law())
        }
        Protocol::XcpNs2 => {
            let config = SenderConfig { timing: Timing::Stamps, header: STAMPED, ..config };
            (Routed::Xcp.adapt(config), Box::new(xcp::Law::as_in_ns2(MSS)))
        }
        Protocol::Vcp => (Routed::Vcp.adapt(config), Routed::Vcp.law()),
        Protocol::Aecp => (Routed::Aecp.adapt(config), Routed::Aecp.law()),
    };
    let sender = Sender::new(START + after, config, law);
    let receiver = ReceiverConfig { mss: MSS, delay: AckDelay::None, ..ReceiverConfig::default() };
    let receiver = match protocol {
        Protocol::Aecp => Routed::Aecp.adapt_receiver(receiver),
        Protocol::Sack | Protocol::Xcp | Protocol::XcpNs2 | Protocol::Vcp => receiver,
    };
    world.flow(after, Box::new(sender), Box::new(Receiver::new(receiver)), there, back)
}

fn disturb(world: &mut World, group: &Beside, there: &[usize], seed: u64) -> usize {
    let after = Span::from_secs_f64(group.start);
    let pattern = match group.on_off_ms {
        None => Pattern::Constant,
        Some([on, off]) => {
            Pattern::OnOff { on: Span::from_millis(on), off: Span::from_millis(off) }
        }
    };
    let rate = Rate::from_f64(group.mbps * 1e6);
    let source = Source::new(START + after, rate, Bytes(1_000), pattern, seed);
    world.flow(after, Box::new(source), Box::new(Sink::new()), there, &[])
}

fn stop(world: &mut World, flow: usize, at: Option<f64>) {
    if let Some(at) = at {
        world.stop_at(Span::from_secs_f64(at), flow);
    }
}
