//! Random worlds: a seed is a network, its traffic and its misfortunes.
//!
//! Each world draws its law, its temper and how often it strikes. What strikes ends: links that are
//! down or lossier than usual, hosts that stand still, dead agents, other capacities. What a world
//! is made of stays to its end: the losses, bursts, copies, jitter and reordering of its links, its
//! hosts' coalescing and clocks. After the last strike every session with a size must finish, no
//! session may be lost, and what is left must have its max-min shares ([`shares`]), judged by what
//! is sent ([`witness`]). How long they may take follows from the law ([`settling`]). A world
//! follows from its seed alone, so a failing one is found again by its number.

mod grouped;
mod permits;
mod routed;
mod settling;
mod shares;
mod witness;

use clap::ValueEnum;
use gtp_alloc::endnode::Params;
use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Burst, Chance, Change, Jitter, LinkSpec, LinkState, Order, Reorder, Rng};

use shares::Judgement;

use crate::course::{self, Outcome};
use crate::scenario::model::{
    BackgroundEntry, Event, HostEntry, LawName, Level, LinkEntry, NodeEntry, NodeKind, Output,
    PathBound, Pattern, Reach, RouteEntry, Scenario, SessionEntry,
};
use crate::scenario::protocol::Protocol;

pub use shares::{Means, Standard};

/// When everything that strikes has ended.
pub const HEALED: Span = Span::from_secs(3);
/// When everything that ends must have ended.
pub const FINISHED: Span = Span::from_secs(9);
/// The last part of a world, which is judged.
pub const JUDGED: Span = Span::from_secs(2);
/// How far a session may be off its share, as a part of it.
pub const TOLERANCE: f64 = 0.05;

/// What went wrong with a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it is about.
    pub what: String,
}

/// Draws that follow from a world's seed.
struct Fate(Rng);

impl Fate {
    fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// From `low` to below `high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low)
    }

    /// Whether something of so many per cent happens.
    fn happens(&mut self, percent: u32) -> bool {
        self.0.happens(Chance::from_percent(percent))
    }

    /// From `low` to `high`, every order of magnitude as likely.
    fn across(&mut self, low: f64, high: f64) -> f64 {
        let part = self.0.below(1 << 20) as f64 / f64::from(1 << 20);
        low * libm::pow(high / low, part)
    }

    fn span(&mut self, low: Span, high: Span) -> Span {
        Span::from_nanos(self.between(low.as_nanos(), high.as_nanos().max(low.as_nanos() + 1)))
    }

    fn chance(&mut self, low: f64, high: f64) -> Chance {
        Chance::from_billionths((self.across(low, high) * 1e9) as u32)
    }
}

/// Which misfortunes a world knows, and how often they strike.
struct Temper {
    loss: bool,
    burst: bool,
    duplicate: bool,
    reorder: bool,
    jitter: bool,
    coalesce: bool,
    skew: bool,
    /// Strikes of each kind in the time of faults.
    cuts: u64,
    losses: u64,
    pauses: u64,
    deaths: u64,
    capacities: u64,
}

impl Temper {
    fn draw(fate: &mut Fate) -> Temper {
        let mut strikes =
            |percent, most| if fate.happens(percent) { 1 + fate.below(most) } else { 0 };
        let (cuts, losses, pauses) = (strikes(30, 4), strikes(30, 3), strikes(25, 3));
        let (deaths, capacities) = (strikes(20, 2), strikes(25, 3));
        Temper {
            loss: fate.happens(40),
            burst: fate.happens(20),
            duplicate: fate.happens(20),
            reorder: fate.happens(20),
            jitter: fate.happens(30),
            coalesce: fate.happens(20),
            skew: fate.happens(30),
            cuts,
            losses,
            pauses,
            deaths,
            capacities,
        }
    }
}

/// What worlds are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Hosts and links, and what befalls them
    #[default]
    Plain,
    /// Sites behind links that routers share out
    Routers,
    /// Objects that several sources bring together, or that one sends to several sinks
    Groups,
}

impl Kind {
    /// What a command line says for it.
    pub fn option(self) -> &'static str {
        match self {
            Kind::Plain => "",
            Kind::Routers => "--kind routers ",
            Kind::Groups => "--kind groups ",
        }
    }

    /// The world of a seed.
    pub fn world(self, seed: u64) -> Scenario {
        match self {
            Kind::Plain => world(seed),
            Kind::Routers => routed::world(seed),
            Kind::Groups => grouped::world(seed),
        }
    }
}

/// The plain world of a seed.
pub fn world(seed: u64) -> Scenario {
    let mut fate = Fate(Rng::new(seed));
    let temper = Temper::draw(&mut fate);
    let (sources, sinks) = (1 + fate.below(4) as usize, 1 + fate.below(4) as usize);
    let law = if fate.happens(90) { LawName::Grant } else { LawName::EndNode };
    let mut scenario = empty(format!("World {seed}"), seed, law);
    network(&mut scenario, &mut fate, &temper, sources, sinks);
    let least = slowest(&scenario);
    sessions(&mut scenario, &mut fate, least, |fate| {
        let source = fate.below(sources as u64) as usize;
        (source, sources + fate.below(sinks as u64) as usize)
    });
    misfortunes(&mut scenario, &mut fate, &temper);
    scenario.duration = FINISHED + settling::after(&scenario) + JUDGED;
    scenario
}

/// A world in which there is nothing yet.
fn empty(title: String, seed: u64, law: LawName) -> Scenario {
    Scenario {
        title,
        about: String::new(),
        level: Level::Packet,
        duration: FINISHED + JUDGED,
        seed,
        law,
        path_bound: PathBound::On,
        params: Params::DEFAULT,
        interval: None,
        links: Vec::new(),
        nodes: Vec::new(),
        routes: Vec::new(),
        paths: Vec::new(),
        allocators: Vec::new(),
        sessions: Vec::new(),
        backgrounds: Vec::new(),
        events: Vec::new(),
        output: Output { every: Span::from_millis(20), curves: 12, tolerance: TOLERANCE },
    }
}

/// Adds sources and sinks, and ways between them, which half of the time share a core.
fn network(
    scenario: &mut Scenario,
    fate: &mut Fate,
    temper: &Temper,
    sources: usize,
    sinks: usize,
) {
    for n in 0..sources + sinks {
        let name =
            if n < sources { format!("src{}", n + 1) } else { format!("dst{}", n + 1 - sources) };
        settle(scenario, fate, temper, name);
    }
    let core = fate.happens(50).then(|| core(scenario, fate, temper, sources));
    // The links of node n are 2n, out of it, and 2n + 1, into it.
    for source in 0..sources {
        for sink in sources..sources + sinks {
            for (from, to, way) in [(source, sink, 0), (sink, source, 1)] {
                let shared = core.map(|core| core + way);
                let links = [Some(2 * from), shared, Some(2 * to + 1)];
                let links = links.into_iter().flatten().collect();
                scenario.routes.push(RouteEntry { from, to, links });
            }
        }
    }
}

/// Adds a host with a link out and a link in.
fn settle(scenario: &mut Scenario, fate: &mut Fate, temper: &Temper, name: String) {
    let host = host(fate, temper);
    scenario.nodes.push(NodeEntry { name: name.clone(), kind: NodeKind::Host(host) });
    for way in ["out", "in"] {
        let spec = link(fate, temper);
        add_link(scenario, fate, format!("{name}-{way}"), spec);
    }
}

/// Adds a link that joins no nodes, and gives its place.
fn add_link(scenario: &mut Scenario, fate: &mut Fate, name: String, spec: LinkSpec) -> usize {
    let seed = fate.0.next_u64();
    scenario.links.push(LinkEntry { name, spec, seed, ends: None, router: None });
    scenario.links.len() - 1
}

/// Sessions that are there to the end.
fn lasting(scenario: &Scenario) -> Vec<usize> {
    let lasts = |session: &SessionEntry| session.stop.is_none() && !moves_all(session);
    (0..scenario.sessions.len()).filter(|&k| lasts(&scenario.sessions[k])).collect()
}

/// Whether a session moves all that it has to in the time of a world.
fn moves_all(session: &SessionEntry) -> bool {
    session.size.is_some_and(|size| size < grouped::ENDLESS)
}

fn host(fate: &mut Fate, temper: &Temper) -> HostEntry {
    let capacity = |fate: &mut Fate| Rate::from_f64(fate.across(4e6, 40e6));
    HostEntry {
        capacity_out: if fate.happens(80) { capacity(fate) } else { Rate::UNLIMITED },
        capacity_in: capacity(fate),
        interval: None,
        coalesce: if temper.coalesce {
            fate.span(Span::from_micros(20), Span::from_micros(500))
        } else {
            Span::ZERO
        },
        skew_ppb: if temper.skew { fate.below(200_000) as i32 - 100_000 } else { 0 },
    }
}

/// A link wide enough for every host: what limits is the hosts.
fn link(fate: &mut Fate, temper: &Temper) -> LinkSpec {
    let rate = Rate::from_f64(fate.across(120e6, 1e9));
    let short = fate.happens(50);
    let delay_max = if short { Span::from_millis(5) } else { Span::from_millis(60) };
    LinkSpec {
        rate,
        delay: fate.span(Span::from_micros(50), delay_max),
        queue: rate.bytes_in(Span::from_millis(20)),
        loss: if temper.loss { fate.chance(1e-5, 1e-2) } else { Chance::NEVER },
        burst: temper.burst.then(|| Burst {
            enter: fate.chance(1e-5, 1e-3),
            leave: fate.chance(0.1, 0.5),
            loss: Chance::from_percent(50 + fate.below(50) as u32),
        }),
        duplicate: if temper.duplicate { fate.chance(1e-4, 1e-2) } else { Chance::NEVER },
        reorder: if temper.reorder {
            let extra = fate.span(Span::from_micros(100), Span::from_millis(10));
            Reorder { chance: fate.chance(1e-4, 1e-2), extra }
        } else {
            Reorder::default()
        },
        jitter: if temper.jitter {
            let order = if fate.happens(50) { Order::Kept } else { Order::Free };
            Jitter { span: fate.span(Span::from_micros(10), Span::from_millis(5)), order }
        } else {
            Jitter::default()
        },
        ..LinkSpec::default()
    }
}

/// A link that all sessions share in each direction: faster than all sinks together, whatever else
/// crosses it, so that it limits nobody for long. Gives the first one's number.
fn core(scenario: &mut Scenario, fate: &mut Fate, temper: &Temper, sources: usize) -> usize {
    let first = scenario.links.len();
    let sinks = scenario.nodes[sources..].iter().map(|node| match &node.kind {
        NodeKind::Host(host) => host.capacity_in.as_f64(),
        NodeKind::Switch => 0.0,
    });
    let sinks: f64 = sinks.sum();
    let crossing = fate.happens(50).then(|| Rate::from_f64(fate.across(1e6, 30e6)));
    let beside = crossing.map_or(0.0, Rate::as_f64);
    for way in ["forth", "back"] {
        let rate = Rate::from_f64(beside + sinks * fate.across(1.25, 3.0));
        let queue = rate.bytes_in(Span::from_millis(20));
        let spec = LinkSpec { rate, queue, ..link(fate, temper) };
        add_link(scenario, fate, format!("core-{way}"), spec);
    }
    if let Some(rate) = crossing {
        let even = fate.happens(50);
        scenario.backgrounds.push(BackgroundEntry {
            name: "crossing".to_owned(),
            source: 0,
            sink: sources,
            links: Some(vec![first]),
            start: fate.span(Span::ZERO, HEALED),
            stop: None,
            packet: Bytes(fate.between(100, 1_500)),
            pattern: if even { Pattern::Constant(rate) } else { Pattern::Poisson(rate) },
        });
    }
    first
}

/// What the slowest host can move, in bit/s.
fn slowest(scenario: &Scenario) -> f64 {
    let least = scenario.nodes.iter().map(|node| match &node.kind {
        NodeKind::Host(host) => host.capacity_out.min(host.capacity_in).as_f64(),
        NodeKind::Switch => f64::INFINITY,
    });
    least.fold(f64::INFINITY, f64::min)
}

/// Adds sessions, where what is slowest moves `least` bit/s, between hosts that `ends` draws.
fn sessions(
    scenario: &mut Scenario,
    fate: &mut Fate,
    least: f64,
    mut ends: impl FnMut(&mut Fate) -> (usize, usize),
) {
    let count = 1 + fate.below(8) as usize;
    // What each would have in a quarter of a second of it, shared by all.
    let size_max = least.min(25e6) * 2.0 / 8.0 / count as f64;
    for n in 0..count {
        let start = fate.span(Span::ZERO, Span::from_millis(2_500));
        let (sized, limited, stopped) = (fate.happens(35), fate.happens(20), fate.happens(15));
        let size = Bytes((size_max * fate.across(0.02, 1.0)) as u64 + 1);
        // Mostly well above what a session claims beside its demand, see `DEMAND_FLOOR`.
        let (low, high) = if fate.happens(85) { (3e6, 15e6) } else { (3e5, 3e6) };
        let demand = Rate::from_f64(fate.across(low, high));
        // Its application must have supplied all of it in time to be moved.
        let size = if limited { size.min(demand.bytes_in(SUPPLIED)) } else { size };
        let lasts = fate.span(Span::from_millis(50), Span::from_secs(3));
        let (source, sink) = ends(fate);
        scenario.sessions.push(SessionEntry {
            start,
            stop: stopped.then(|| start + lasts),
            size: sized.then_some(size),
            demand: if limited { vec![(Span::ZERO, demand)] } else { Vec::new() },
            weight: if fate.happens(25) { 1.0 + fate.below(4) as f64 } else { 1.0 },
            ..plain_session(format!("s{}", n + 1), source, sink)
        });
    }
}

/// A session from the start on, without end and without limits.
fn plain_session(name: String, source: usize, sink: usize) -> SessionEntry {
    SessionEntry {
        name,
        source,
        sink,
        start: Span::ZERO,
        stop: None,
        size: None,
        demand: Vec::new(),
        weight: 1.0,
        reach: Reach::Routes,
        unit: gtp_proto::limits::UNIT_ETHERNET,
        protocol: Protocol::Gtp,
        wire: Span::ZERO,
        relays: None,
        group: None,
    }
}

/// In this time the application of a session supplies all that it has to move, from 2.5 s at the
/// latest, so that 2.5 s are left until it must have ended.
const SUPPLIED: Span = Span::from_secs(4);

fn misfortunes(scenario: &mut Scenario, fate: &mut Fate, temper: &Temper) {
    let (links, hosts) = (scenario.links.len() as u64, scenario.nodes.len() as u64);
    let mut events = Vec::new();
    // Each strike ends by itself, at the healing at the latest.
    let strike = |fate: &mut Fate| {
        let at = fate.span(Span::ZERO, HEALED);
        let lasts = Span::from_nanos(fate.across(1e6, 1.5e9) as u64);
        (at, (at + lasts).min(HEALED))
    };
    for _ in 0..temper.cuts {
        let (at, end) = strike(fate);
        let link = fate.below(links) as usize;
        events.push((at, Event::Link(link, Change::DOWN)));
        events.push((end, Event::Link(link, Change::UP)));
    }
    for _ in 0..temper.losses {
        let (at, end) = strike(fate);
        let link = fate.below(links) as usize;
        let loss = |loss| Change { loss: Some(loss), ..Change::default() };
        events.push((at, Event::Link(link, loss(fate.chance(0.01, 0.5)))));
        events.push((end, Event::Link(link, loss(scenario.links[link].spec.loss))));
    }
    for _ in 0..temper.pauses {
        let (at, end) = strike(fate);
        let lasts = Span::from_nanos(end.as_nanos() - at.as_nanos());
        events.push((at, Event::Pause(fate.below(hosts) as usize, lasts)));
    }
    for _ in 0..temper.deaths {
        let (at, end) = strike(fate);
        let host = fate.below(hosts) as usize;
        events.push((at, Event::AgentsStop(host)));
        events.push((end, Event::AgentsRun(host)));
    }
    for _ in 0..temper.capacities {
        let (at, end) = strike(fate);
        let host = fate.below(hosts) as usize;
        let rate = Rate::from_f64(fate.across(1e6, 40e6));
        let NodeKind::Host(spec) = &scenario.nodes[host].kind else { continue };
        events.push((at, Event::Capacity { host, out: Some(rate), in_: Some(rate) }));
        let (out, in_) = (Some(spec.capacity_out), Some(spec.capacity_in));
        events.push((end, Event::Capacity { host, out, in_ }));
    }
    heal(scenario, &mut events);
    events.sort_by_key(|(at, _)| *at);
    scenario.events = events;
}

/// Strikes of the same kind may overlap; whatever they left behind ends at the healing.
fn heal(scenario: &Scenario, events: &mut Vec<(Span, Event)>) {
    let struck: Vec<Event> = events.iter().map(|(_, event)| *event).collect();
    for event in struck {
        match event {
            Event::Link(link, _) => {
                let loss = Some(scenario.links[link].spec.loss);
                let state = Some(LinkState::Up);
                let change = Change { loss, state, ..Change::default() };
                events.push((HEALED, Event::Link(link, change)));
            }
            Event::AgentsStop(host) => events.push((HEALED, Event::AgentsRun(host))),
            Event::Capacity { host, .. } => {
                if let NodeKind::Host(spec) = &scenario.nodes[host].kind {
                    let (out, in_) = (Some(spec.capacity_out), Some(spec.capacity_in));
                    events.push((HEALED, Event::Capacity { host, out, in_ }));
                }
            }
            Event::Pause(..)
            | Event::AgentsRun(_)
            | Event::Skew(..)
            | Event::Coalesce(..)
            | Event::Router(..) => {}
        }
    }
}

/// What became of a world.
pub struct Verdict {
    /// What is wrong with it.
    pub failures: Vec<Failure>,
    /// By what its shares were judged.
    pub standard: Standard,
    /// How much of what it sent was judged.
    pub means: Means,
    /// Its run, unless it was refused.
    pub outcome: Option<Outcome>,
}

/// Runs a world and judges it.
pub fn verdict(scenario: &Scenario) -> Verdict {
    let watched = course::run_watched(scenario, |trace| witness::witnesses(scenario, trace));
    let (outcome, witnesses) = match watched {
        Ok(watched) => watched,
        Err(refusal) => {
            let failures = vec![Failure { what: refusal.to_string() }];
            return Verdict::of(Judgement::none(failures), None);
        }
    };
    let mut failures = unfinished(scenario, &outcome);
    failures.extend(grouped::not_whole(scenario, &outcome));
    if !scenario.allocators.is_empty() {
        failures.extend(permits::beyond_hosts(scenario, &witnesses));
    }
    // Where something has not ended, shares at the end are not what this world was drawn for.
    let judgement = if failures.is_empty() {
        shares::judge(scenario, &outcome, &witnesses)
    } else {
        Judgement::none(failures)
    };
    Verdict::of(judgement, Some(outcome))
}

impl Verdict {
    fn of(judgement: Judgement, outcome: Option<Outcome>) -> Verdict {
        let Judgement { failures, standard, means } = judgement;
        Verdict { failures, standard, means, outcome }
    }
}

/// Sessions that were lost, or had not moved their sizes in time.
fn unfinished(scenario: &Scenario, outcome: &Outcome) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut fail = |what: String| failures.push(Failure { what });
    let finished = FINISHED.as_secs_f64();
    for (course, session) in outcome.sessions.iter().zip(&scenario.sessions) {
        let (name, ending) = (&session.name, &course.ending);
        if ending.starts_with("lost") {
            fail(format!("{name} was lost at {:.3} s: {ending}", course.life.1));
        } else if moves_all(session)
            && session.stop.is_none()
            && (ending != "done" || course.life.1 > finished)
        {
            let bytes = session.size.unwrap_or(Bytes::ZERO).0;
            fail(format!(
                "{name} has {} of {bytes} bytes at {finished} s: {ending}",
                course.payload
            ));
        }
    }
    failures
}
