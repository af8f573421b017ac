//! A scenario at the packet level.
//!
//! Links, hosts and sessions are put into an engine's world in the scenario's order; every
//! session's links are stated, so that the solver and the engine speak of the same ways.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{LinkId, LinkSpec};
use gtp_peers::tcp::HEADER;
use gtp_proto::Law;
use gtp_sim::diverge::first_divergence;
use gtp_sim::packet::{
    Action, AgentState, BackgroundId, BackgroundSpec, BuildError, ClockSpec, HostSpec, NodeId,
    Pace, Path, Pattern, SessionId, SessionSpec, Standing, Volume, World,
};
use gtp_sim::trace::PacketTrace;
use gtp_sim::verify::verify;

use super::judge::judge;
use super::peers::{Shop, router, slowest};
use super::routers;
use super::wanted::epochs;
use super::ways::{Links, Way, find};
use super::{Course, LinkCourse, Outcome, Progress, Replayed, Warden, Watched, seconds};
use crate::refusal::Refusal;
use crate::scenario::model::{self, Event, LawName, NodeKind, Scenario};
use crate::scenario::protocol::{Protocol, RouterEntry};

/// A world made from a scenario.
struct Made {
    world: World,
    ways: Vec<Way>,
    backgrounds: Vec<Links>,
    flows: Vec<BackgroundId>,
}

/// Points of all curves: 40 bytes each.
const POINTS_MAX: u64 = 1 << 25;
/// Pieces into which a run is cut to report its progress.
const PIECES: u64 = 200;

pub fn run(scenario: &Scenario, progress: Progress<'_>) -> Result<Outcome, Refusal> {
    Ok(played(scenario, 0, progress)?.outcome(scenario))
}

/// As [`run`], with what `look` makes of every step of every packet; the end of session k's source
/// has number 2k there, that of its sink 2k + 1.
pub fn run_watched<T>(
    scenario: &Scenario,
    look: impl FnOnce(&PacketTrace) -> T,
) -> Result<(Outcome, T), Refusal> {
    let made = played(scenario, STEPS_MAX, &mut |_| {})?;
    let trace = made.world.packet_trace();
    if trace.cut {
        return Err(Refusal::Input(format!(
            "more than {STEPS_MAX} steps of packets to be watched"
        )));
    }
    let seen = look(trace);
    Ok((made.outcome(scenario), seen))
}

/// A run with its series, and each session's bound by the path and count of timeouts as they stood
/// at the end of each bin, when `warden` may change something.
pub fn watched(scenario: &Scenario, warden: Warden<'_>) -> Result<Watched, Refusal> {
    let mut made = prepared(scenario, 0)?;
    let end = Time::ZERO + scenario.duration;
    let mut bounds = vec![Vec::new(); scenario.sessions.len()];
    let (mut timeouts, mut counts) = (bounds.clone(), Vec::new());
    while made.world.now() < end {
        made.world.run_until((made.world.now() + scenario.output.every).min(end));
        warden(&mut made.world)?;
        let now = seconds(made.world.now().since(Time::ZERO));
        let (mut arrived, mut lost) = (0, 0);
        for (k, (bounds, timeouts)) in bounds.iter_mut().zip(&mut timeouts).enumerate() {
            let status = made.world.session(SessionId(k as u32));
            arrived += status.as_ref().map_or(0, |status| status.received_packets);
            lost += status.as_ref().map_or(0, |status| status.lost);
            let rung = status.as_ref().map_or(0, |status| status.timeouts);
            step(timeouts, now, rung as f64);
            step(bounds, now, finite(status.map_or(Rate::UNLIMITED, |status| status.path_bound)));
        }
        counts.push((now, arrived as f64, lost as f64));
    }
    let outcome = made.outcome(scenario);
    let trace = made.world.trace().clone();
    Ok(Watched { outcome, trace, bounds, timeouts, counts })
}

/// From `now` on it is `value`.
fn step(steps: &mut Vec<(f64, f64)>, now: f64, value: f64) {
    if steps.last().is_none_or(|(_, last)| *last != value) {
        steps.push((now, value));
    }
}

/// The world at its end, with the first `steps` steps of its packets.
fn played(scenario: &Scenario, steps: usize, progress: Progress<'_>) -> Result<Made, Refusal> {
    let mut made = prepared(scenario, steps)?;
    for piece in 1..=PIECES {
        let nanos = scenario.duration.as_nanos() / PIECES * piece;
        let until = if piece == PIECES { scenario.duration.as_nanos() } else { nanos };
        made.world.run_until(Time::from_nanos(until));
        progress(piece as f64 / PIECES as f64);
    }
    Ok(made)
}

/// The world at its beginning, which will keep the first `steps` steps of its packets.
fn prepared(scenario: &Scenario, steps: usize) -> Result<Made, Refusal> {
    let every = scenario.output.every;
    let bins = scenario.duration.as_nanos() / every.as_nanos().max(1);
    let curves = curves(scenario);
    if bins.saturating_mul(curves) > POINTS_MAX {
        return Err(Refusal::Input(format!(
            "{bins} points for each of {curves} sessions, links and flows are too many to keep: \
             give [output] a longer `every`, or run it with level = \"rate\""
        )));
    }
    let mut made = Made::new(scenario)?;
    if steps > 0 {
        made.world.trace_packets(steps);
    }
    made.world.trace_every(every).map_err(|e| Refusal::Input(format!("`every`: {e}")))?;
    Ok(made)
}

/// Things of which a run keeps curves: a session's own wire is a link in each direction.
fn curves(scenario: &Scenario) -> u64 {
    let wired = scenario.sessions.iter();
    let wired = wired.filter(|s| s.wire > Span::ZERO || matches!(s.reach, model::Reach::Wire(_)));
    let links = scenario.links.len() + 2 * wired.count();
    let talks = routers::wires(scenario);
    (scenario.sessions.len() + links + 2 * talks + scenario.backgrounds.len()) as u64
}

impl Made {
    fn new(scenario: &Scenario) -> Result<Made, Refusal> {
        let most = model::Level::Packet.sessions_most();
        if scenario.sessions.len() > most {
            return Err(Refusal::Input(format!(
                "{} sessions are too many for level = \"packet\", which takes {most}: \
                 run it with level = \"rate\"",
                scenario.sessions.len()
            )));
        }
        let mut world = World::new(scenario.seed);
        for link in &scenario.links {
            // Links of one scenario lose other packets with another seed.
            let seed = link.seed ^ scenario.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let id = world.add_seeded_link(link.spec.clone(), seed);
            if let Some(router) = router(scenario, link) {
                let added = world.add_router(id, router);
                added.map_err(|e| unfit(&format!("link {:?}", link.name), e))?;
            }
            if let Some(RouterEntry::Managed(kind)) = link.router {
                let added = world.add_managed(id, kind, seed);
                added.map_err(|e| unfit(&format!("link {:?}", link.name), e))?;
            }
        }
        let nodes: Vec<NodeId> =
            scenario.nodes.iter().map(|n| node(&mut world, scenario, n)).collect();
        let (ways, backgrounds) = find(scenario)?;
        let mut shop = Shop::default();
        for (k, (session, way)) in scenario.sessions.iter().zip(&ways).enumerate() {
            let spec = session_spec(&mut world, scenario, session, way, &nodes);
            let links = way.forth.iter().map(|&n| &scenario.links[n].spec);
            let added = match shop.ends(scenario, k, slowest(links)) {
                None => world.add_session(spec),
                Some(ends) => world.add_peer_session(spec, ends),
            };
            let added = added.and_then(|id| match session.relays {
                None => Ok(()),
                Some(first) => world.tie(SessionId(first as u32), id),
            });
            added.map_err(|e| unfit(&format!("session {:?}", session.name), e))?;
        }
        for group in scenario.groups() {
            let members: Vec<SessionId> = group.iter().map(|&k| SessionId(k as u32)).collect();
            let added = world.add_group(&members);
            added
                .map_err(|e| unfit(&format!("group of {}", scenario.sessions[group[0]].name), e))?;
        }
        let mut flows = Vec::new();
        for (flow, links) in scenario.backgrounds.iter().zip(&backgrounds) {
            let spec = background_spec(flow, links, &nodes);
            let added = world.add_background(spec);
            flows.push(added.map_err(|e| unfit(&format!("background {:?}", flow.name), e))?);
        }
        // Their talks have the last ends, so that those of sessions have the first numbers.
        let routers = routers::add(&mut world, scenario, &ways, &nodes)?;
        for (at, event) in &scenario.events {
            let added = world.at(Time::ZERO + *at, action(event, &nodes, &routers));
            added.map_err(|e| unfit(&format!("what happens at {:.3} s", seconds(*at)), e))?;
        }
        Ok(Made { world, ways, backgrounds, flows })
    }

    fn outcome(&self, scenario: &Scenario) -> Outcome {
        let trace = self.world.trace();
        let bin = seconds(scenario.output.every);
        let mut outcome = Outcome {
            times: (1..=trace.bins).map(|n| n as f64 * bin).collect(),
            hash: self.world.hash(),
            events: self.world.events(),
            ..Outcome::default()
        };
        let mut lives = Vec::new();
        for (k, session) in scenario.sessions.iter().enumerate() {
            let (course, life) = self.course(scenario, k, session);
            outcome.packets.0 += course.arrived;
            outcome.packets.1 += course.lost;
            outcome.sessions.push(course);
            lives.push(life);
        }
        for (n, link) in scenario.links.iter().enumerate() {
            outcome.links.extend(self.link(scenario, n, &link.name));
        }
        for (flow, id) in scenario.backgrounds.iter().zip(&self.flows) {
            if let Some(status) = self.world.background(*id) {
                outcome.backgrounds.push((status.sent, status.arrived));
                outcome.notes.push(format!(
                    "Background flow {}: {} packets sent, {} arrived.",
                    flow.name, status.sent, status.arrived
                ));
            }
        }
        match epochs(scenario, &self.ways, &self.backgrounds, &lives) {
            Some(epochs) => judge(scenario, &epochs, &mut outcome),
            None => outcome.notes.push(TOO_MANY.to_owned()),
        }
        outcome
    }

    fn course(
        &self,
        scenario: &Scenario,
        k: usize,
        session: &model::SessionEntry,
    ) -> (Course, (Span, Span)) {
        let trace = &self.world.trace().sessions[k];
        let bin = seconds(scenario.output.every);
        let Some(status) = self.world.session(SessionId(k as u32)) else {
            return (Course::default(), (Span::ZERO, Span::ZERO));
        };
        let stop = session.stop.unwrap_or(Span::MAX).min(scenario.duration);
        let ended = status.ended.map_or(stop, |at| at.since(Time::ZERO)).min(stop);
        let (ending, ended) = match status.standing {
            Standing::Waiting => ("never started".to_owned(), session.start.min(stop)),
            Standing::Opening => ("opening".to_owned(), stop),
            Standing::Live => ("running".to_owned(), stop),
            Standing::Done => ("done".to_owned(), ended),
            Standing::Stopped => ("stopped".to_owned(), ended),
            Standing::Lost(why) => (format!("lost: {why}"), ended),
        };
        let rtts = trace.rtt.iter().filter(|rtt| **rtt > Span::ZERO).map(|rtt| seconds(*rtt));
        let (sum, count) = rtts.fold((0.0, 0), |(sum, n), rtt| (sum + rtt, n + 1));
        let course = Course {
            number: k,
            life: (seconds(session.start), seconds(ended)),
            rate: trace.received.iter().map(|bytes| bytes.0 as f64 * 8.0 / bin).collect(),
            wanted: Vec::new(),
            arrived: status.received_packets,
            lost: status.lost,
            payload: status.payload.0,
            rtt: if count == 0 { 0.0 } else { sum / f64::from(count) },
            bounds: (finite(status.granted), finite(status.path_bound)),
            ending,
        };
        (course, (session.start, ended))
    }

    fn link(&self, scenario: &Scenario, n: usize, name: &str) -> Option<LinkCourse> {
        let trace = self.world.trace().links.get(n)?;
        let link = self.world.link(LinkId(n))?;
        let rate = scenario.links[n].spec.rate;
        let wait = |bytes: f64| if rate.is_unlimited() { 0.0 } else { bytes * 8.0 / rate.as_f64() };
        let stats = link.stats();
        let drops = stats.drops;
        Some(LinkCourse {
            name: name.to_owned(),
            queue: trace.queue.iter().map(|bytes| wait(bytes.0 as f64)).collect(),
            queue_least: trace.queue_least.iter().map(|bytes| wait(bytes.0 as f64)).collect(),
            drops: trace.drops.clone(),
            carried: trace.carried.iter().map(|bytes| bytes.0).collect(),
            offered: stats.offered.packets,
            dropped: (drops.queue.packets, drops.total().packets - drops.queue.packets),
            busy: seconds(stats.busy) / seconds(scenario.duration),
            wait_max: seconds(self.world.longest_wait(LinkId(n))),
        })
    }
}

fn finite(rate: Rate) -> f64 {
    if rate.is_unlimited() { f64::INFINITY } else { rate.as_f64() }
}

/// Said where a run has too many changes for the solver.
pub const TOO_MANY: &str = "What each session should have was not worked out: too many changes for \
                            so many sessions.";

/// The engine's refusal of `what`.
pub fn unfit(what: &str, error: BuildError) -> Refusal {
    Refusal::Input(format!("{what}: {error}"))
}

fn node(world: &mut World, scenario: &Scenario, node: &model::NodeEntry) -> NodeId {
    match &node.kind {
        NodeKind::Switch => world.add_switch(),
        NodeKind::Host(host) => world.add_host(HostSpec {
            out: host.capacity_out,
            in_: host.capacity_in,
            interval: host.interval.or(scenario.interval),
            coalesce: host.coalesce,
            clock: ClockSpec { offset: None, drift_ppb: host.skew_ppb },
            ..HostSpec::default()
        }),
    }
}

fn session_spec(
    world: &mut World,
    scenario: &Scenario,
    session: &model::SessionEntry,
    way: &Way,
    nodes: &[NodeId],
) -> SessionSpec {
    let mut path = |links: &Links| {
        let mut links: Vec<LinkId> = links.iter().map(|&n| LinkId(n)).collect();
        if way.wire > Span::ZERO {
            let half = LinkSpec { delay: way.wire / 2, ..LinkSpec::default() };
            links.push(world.add_link(half));
        }
        Path::Links(links)
    };
    let (down, up) = (path(&way.forth), path(&way.back));
    let at = |span: Span| Time::ZERO + span;
    let script = session.demand.iter().map(|&(from, rate)| (at(from), rate)).collect();
    SessionSpec {
        start: at(session.start),
        stop: session.stop.map(at),
        law: match scenario.law {
            LawName::Grant => Law::Grant,
            LawName::EndNode => {
                Law::EndNode { alpha: scenario.params.alpha, beta: scenario.params.beta }
            }
        },
        kept: scenario.path_bound.kept(),
        weight: session.weight,
        unit: session.unit,
        volume: session.size.map_or(Volume::Endless, Volume::Bytes),
        ready: ready(session),
        supply: supply(session, script),
        down,
        up,
        ..SessionSpec::new(nodes[session.source], nodes[session.sink])
    }
}

/// What the application supplies: a demand counts IP bytes, an application payload.
fn supply(session: &model::SessionEntry, mut script: Vec<(Time, Rate)>) -> Pace {
    if script.is_empty() {
        return Pace::Unlimited;
    }
    let unit = f64::from(session.unit);
    let part = match session.protocol {
        Protocol::Gtp => unit / (unit + HEADERS),
        Protocol::Window(_) => unit / (unit + HEADER.0 as f64),
        // These count what is on links.
        Protocol::Rate(_) | Protocol::Advertised | Protocol::Perc => 1.0,
    };
    for (_, rate) in &mut script {
        *rate = if rate.is_unlimited() { MUCH } else { rate.scale(part) };
    }
    Pace::Script(script)
}

/// How far an application with a demand may run ahead of what is sent: little, so that it is its
/// demand that shows and not what piled up while a link was down.
fn ready(session: &model::SessionEntry) -> Bytes {
    let finite = session.demand.iter().map(|(_, rate)| *rate).filter(|rate| !rate.is_unlimited());
    let most = finite.max().unwrap_or(Rate::ZERO);
    Bytes(most.bytes_in(Span::from_millis(10)).0.max(16 << 10))
}

/// GTP's, UDP's and IP's heads of a data packet.
const HEADERS: f64 = 77.0;
/// More than any host moves: a script of rates has no word for "unlimited".
const MUCH: Rate = Rate::from_bps(1_000_000_000_000);

fn background_spec(
    flow: &model::BackgroundEntry,
    links: &Links,
    nodes: &[NodeId],
) -> BackgroundSpec {
    let pattern = match flow.pattern {
        model::Pattern::Constant(rate) => Pattern::Constant { rate },
        model::Pattern::Poisson(mean) => Pattern::Poisson { mean },
        model::Pattern::OnOff { peak, on, off } => Pattern::OnOff { peak, on, off },
        model::Pattern::Pareto { peak, on, off, shape } => {
            Pattern::ParetoOnOff { peak, on, off, shape }
        }
    };
    BackgroundSpec {
        start: Time::ZERO + flow.start,
        stop: flow.stop.map(|stop| Time::ZERO + stop),
        packet: flow.packet,
        down: Path::Links(links.iter().map(|&n| LinkId(n)).collect()),
        ..BackgroundSpec::new(nodes[flow.source], nodes[flow.sink], pattern)
    }
}

fn action(event: &Event, nodes: &[NodeId], routers: &[NodeId]) -> Action {
    match *event {
        Event::Link(link, change) => Action::Link(LinkId(link), change),
        Event::Pause(host, lasts) => Action::Pause(nodes[host], lasts),
        Event::Capacity { host, out, in_ } => Action::Capacity { host: nodes[host], out, in_ },
        Event::AgentsStop(host) => Action::Agents(nodes[host], AgentState::Dead),
        Event::AgentsRun(host) => Action::Agents(nodes[host], AgentState::Running),
        Event::Skew(host, ppb) => Action::Drift(nodes[host], ppb),
        Event::Coalesce(host, span) => Action::Coalesce(nodes[host], span),
        Event::Router(router, event) => Action::Router(routers[router], routers::change(event)),
    }
}

pub fn divergence(scenario: &Scenario) -> Result<Option<String>, Refusal> {
    let (mut one, mut other) = (Made::new(scenario)?.world, Made::new(scenario)?.world);
    let end = Time::ZERO + scenario.duration;
    let found = first_divergence(&mut one, &mut other, end);
    Ok(found.map(|found| {
        format!(
            "event {}: the first run had {:?}, the second {:?}",
            found.events, found.first, found.second
        )
    }))
}

pub fn verified(scenario: &Scenario) -> Result<Replayed, Refusal> {
    let mut world = Made::new(scenario)?.world;
    world.trace_packets(STEPS_MAX);
    world.run_until(Time::ZERO + scenario.duration);
    let trace = world.packet_trace();
    if trace.cut {
        return Ok(Replayed::TooLong(format!(
            "not replayed: more than {STEPS_MAX} steps of packets; give a shorter duration"
        )));
    }
    match verify(trace, world.now(), world.packets_under_way().0) {
        Ok(summary) => Ok(Replayed::Lawful(format!(
            "{} packets were sent, {} delivered, {} dropped, {} under way: all lawful",
            summary.sent, summary.delivered, summary.dropped, summary.under_way
        ))),
        Err(violations) => {
            let first = violations.first().map_or_else(String::new, ToString::to_string);
            Err(Refusal::Other(format!(
                "{} steps of packets break the laws of nature, the first: {first}",
                violations.len()
            )))
        }
    }
}

/// Steps of packets that are kept for the verifier: 64 bytes each, 2 GiB in all.
const STEPS_MAX: usize = 1 << 25;
