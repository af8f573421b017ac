//! A scene: flows between pairs of hosts that share one bottleneck, as a scenario.
//!
//! Link 0 is the bottleneck, on the way forth. Each pair of hosts has a wire of its own behind it
//! and one back; both have half of the pair's round-trip time. What a test wants beside that it
//! changes in the scene before it becomes a scenario. Flows of ours come before the others, so that
//! a run is read off by their number.

use gtp_alloc::endnode::Params;
use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Change, LinkSpec};
use gtp_peers::tcp::Flavour;

use super::{Cell, Who};
use crate::scenario::model::{
    BackgroundEntry, Event, HostEntry, LawName, Level, LinkEntry, NodeEntry, NodeKind, Output,
    PathBound, Pattern, Reach, RouteEntry, Scenario, SessionEntry,
};
use crate::scenario::protocol::{Delayed, Protocol, RouterEntry, WindowLaw, Windowed};

/// A scene: what is played, for how long, and on what; see the module's head.
#[derive(Clone, Debug)]
pub struct Scene {
    /// How long it lasts, in seconds.
    pub seconds: f64,
    /// The seed, which all that is drawn follows from.
    pub seed: u64,
    /// The capacity that each host states for both directions.
    pub ends: Rate,
    /// The bottleneck's parameters.
    pub core: LinkSpec,
    /// What controls the bottleneck's queue. `None`: nothing does.
    pub router: Option<RouterEntry>,
    /// What each wire behind the bottleneck does besides delaying.
    pub forth: LinkSpec,
    /// How many of the flows, from the first on, are GTP's or in its place.
    pub ours: usize,
    /// The flows, those of ours first.
    pub flows: Vec<Flow>,
    /// Stretches in which a call goes on between a pair of hosts of its own: from when to when, in
    /// seconds. It sends a packet of 200 bytes each 10 ms, forth only.
    pub calls: Vec<(f64, f64)>,
    /// What happens to the links: when, in seconds, to which, and what.
    pub changes: Vec<(f64, Place, Change)>,
}

/// A link of a scene.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The bottleneck itself.
    Core,
    /// All wires behind the bottleneck.
    Forth,
    /// All wires on the way back.
    Back,
}

/// One flow of a scene.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The protocol that it speaks.
    pub protocol: Protocol,
    /// The number of the pair of hosts that it joins.
    pub pair: usize,
    /// The round-trip time of its pair. All flows of a pair state the same.
    pub rtt: Span,
    /// When it begins, in seconds.
    pub start: f64,
    /// When it is stopped, in seconds. `None`: never.
    pub stop: Option<f64>,
    /// How much it moves. `None`: it has no end.
    pub size: Option<Bytes>,
    /// Its weight, which GTP alone heeds.
    pub weight: f64,
}

impl Flow {
    /// Makes a flow without end.
    pub fn new(protocol: Protocol, pair: usize, rtt: Span, start: f64) -> Flow {
        Flow { protocol, pair, rtt, start, stop: None, size: None, weight: 1.0 }
    }
}

/// Returns a TCP of this flavour, set up as hosts have it.
pub fn tcp(flavour: Flavour) -> Protocol {
    Protocol::Window(Windowed {
        law: WindowLaw::Tcp(flavour),
        connections: 1,
        window: None,
        delayed: Delayed::Yes,
        initial_window: 10,
        slow_start_limit: None,
        threshold: None,
    })
}

/// Returns the protocol of whoever is in GTP's place.
pub fn protocol(who: Who) -> Protocol {
    match who {
        Who::Gtp => Protocol::Gtp,
        Who::Cubic => tcp(Flavour::Cubic),
        Who::Bbr => tcp(Flavour::Bbr),
        Who::Bbr3 => tcp(Flavour::Bbr3),
    }
}

/// The bottleneck's own part of the delay. It is short: the switch is near the sources.
const NEAR: Span = Span::from_micros(100);
/// The time between two points of a curve.
const EVERY: Span = Span::from_millis(20);

impl Scene {
    /// Makes a scene of flows over a cell. The first `ours` are GTP's or in its place.
    pub fn new(cell: Cell, start: u64, seconds: f64, ours: usize, flows: Vec<Flow>) -> Scene {
        let core =
            LinkSpec { rate: cell.rate(), delay: NEAR, queue: cell.room(), ..LinkSpec::default() };
        Scene {
            seconds,
            seed: start + 1,
            ends: Rate::from_mbps(10_000),
            core,
            router: None,
            forth: LinkSpec::default(),
            ours,
            flows,
            calls: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Makes a scene of one flow, which begins at `begins` seconds.
    pub fn alone(cell: Cell, start: u64, who: Who, seconds: f64, begins: f64) -> Scene {
        let flow = Flow::new(protocol(who), 0, cell.rtt(), begins);
        Scene::new(cell, start, seconds, 1, vec![flow])
    }

    /// Returns the scene as a scenario.
    pub fn scenario(&self, title: String) -> Scenario {
        let of_flows = self.flows.iter().map(|flow| flow.pair + 1).max().unwrap_or(0);
        let pairs = of_flows + usize::from(!self.calls.is_empty());
        Scenario {
            title,
            about: String::new(),
            level: Level::Packet,
            duration: span(self.seconds),
            seed: self.seed,
            law: LawName::Grant,
            path_bound: PathBound::On,
            params: Params::DEFAULT,
            interval: None,
            links: self.links(pairs),
            nodes: (0..pairs).flat_map(|pair| self.hosts(pair)).collect(),
            routes: (0..pairs).flat_map(routes).collect(),
            paths: Vec::new(),
            allocators: Vec::new(),
            sessions: self.flows.iter().enumerate().map(|(k, flow)| session(k, flow)).collect(),
            backgrounds: self.calls.iter().map(|&call| background(of_flows, call)).collect(),
            events: self.events(pairs),
            output: Output { every: EVERY, curves: 12, tolerance: 0.05 },
        }
    }

    fn links(&self, pairs: usize) -> Vec<LinkEntry> {
        // A call's hosts are as far apart as those of the first flow.
        let rtts = (0..pairs).map(|pair| {
            let of_pair = self.flows.iter().find(|flow| flow.pair == pair);
            of_pair.or(self.flows.first()).map_or(Span::ZERO, |flow| flow.rtt)
        });
        let core = entry("core".to_owned(), self.core.clone(), 1);
        let mut links = vec![LinkEntry { router: self.router, ..core }];
        for (pair, rtt) in rtts.enumerate() {
            let half = rtt / 2;
            let forth =
                LinkSpec { delay: half.saturating_sub(self.core.delay), ..self.forth.clone() };
            let back = LinkSpec { delay: half, ..LinkSpec::default() };
            links.push(entry(format!("forth{pair}"), forth, 2 + 2 * pair as u64));
            links.push(entry(format!("back{pair}"), back, 3 + 2 * pair as u64));
        }
        links
    }

    fn hosts(&self, pair: usize) -> [NodeEntry; 2] {
        ["a", "b"].map(|end| {
            let host = HostEntry {
                capacity_out: self.ends,
                capacity_in: self.ends,
                interval: None,
                coalesce: Span::ZERO,
                skew_ppb: 0,
            };
            NodeEntry { name: format!("{end}{pair}"), kind: NodeKind::Host(host) }
        })
    }

    fn events(&self, pairs: usize) -> Vec<(Span, Event)> {
        let mut events = Vec::new();
        for &(at, place, change) in &self.changes {
            let links: Vec<usize> = match place {
                Place::Core => vec![0],
                Place::Forth => (0..pairs).map(|pair| 1 + 2 * pair).collect(),
                Place::Back => (0..pairs).map(|pair| 2 + 2 * pair).collect(),
            };
            events.extend(links.into_iter().map(|link| (span(at), Event::Link(link, change))));
        }
        events.sort_by_key(|(at, _)| *at);
        events
    }
}

fn entry(name: String, spec: LinkSpec, seed: u64) -> LinkEntry {
    LinkEntry { name, spec, seed, ends: None, router: None }
}

fn routes(pair: usize) -> [RouteEntry; 2] {
    let (source, sink) = (2 * pair, 2 * pair + 1);
    [
        RouteEntry { from: source, to: sink, links: vec![0, 1 + 2 * pair].into() },
        RouteEntry { from: sink, to: source, links: vec![2 + 2 * pair].into() },
    ]
}

fn session(k: usize, flow: &Flow) -> SessionEntry {
    SessionEntry {
        name: format!("s{k}"),
        source: 2 * flow.pair,
        sink: 2 * flow.pair + 1,
        start: span(flow.start),
        stop: flow.stop.map(span),
        size: flow.size,
        demand: Vec::new(),
        weight: flow.weight,
        reach: Reach::Routes,
        unit: UNIT,
        protocol: flow.protocol,
        wire: Span::ZERO,
        relays: None,
        group: None,
    }
}

/// A packet of a call, in bytes.
const CALL_PACKET: Bytes = Bytes(200);
/// A packet each 10 ms.
const CALL_RATE: Rate = Rate::from_bps(160_000);

fn background(pair: usize, (from, to): (f64, f64)) -> BackgroundEntry {
    BackgroundEntry {
        name: "call".to_owned(),
        source: 2 * pair,
        sink: 2 * pair + 1,
        links: None,
        start: span(from),
        stop: Some(span(to)),
        packet: CALL_PACKET,
        pattern: Pattern::Constant(CALL_RATE),
    }
}

/// The payload of a packet, in bytes.
const UNIT: u16 = 1_400;

/// Turns seconds into a span.
pub fn span(seconds: f64) -> Span {
    Span::from_secs_f64(seconds)
}
