//! A scenario at the rate level: no packets, so neither queues nor losses; of links only delays.
//!
//! Each host is two nodes of the engine. A session with a size leaves when what it was sent adds
//! up to that, to the precision of the output's bins.

use gtp_alloc::fairness::{distance, jain_index};
use gtp_alloc::{Rate, Span, Time};
use gtp_link::Rng;
use gtp_proto::Side;
use gtp_proto::limits::{INTERVAL_MAX, INTERVAL_MIN};
use gtp_sim::rate::{
    BuildError, Builder, Change, Config, NodeId, NodeSpec, SessionId, SessionSpec, World,
};

use super::judge::{Judged, Phase, judge};
use super::packets::TOO_MANY;
use super::wanted::epochs;
use super::ways::{Way, find};
use super::{Course, Outcome, Progress, seconds};
use crate::refusal::Refusal;
use crate::scenario::model::{Event, LawName, NodeKind, Scenario};
use crate::scenario::protocol::Protocol;

/// With more sessions or points than this, only a few are watched one by one.
const WATCHED_MAX: usize = 2_000;
const POINTS_MAX: usize = 1 << 24;

pub fn run(scenario: &Scenario, progress: Progress<'_>) -> Result<Outcome, Refusal> {
    let (mut world, ways) = build(scenario)?;
    let every = scenario.output.every;
    let bins = (scenario.duration.as_nanos() / every.as_nanos().max(1)) as usize;
    let all = scenario.sessions.len();
    let watch_all = all <= WATCHED_MAX && all.saturating_mul(bins) <= POINTS_MAX;
    let watched = if watch_all { all } else { all.min(scenario.output.curves) };
    let mut watch = Watch::new(scenario, watched);
    for bin in 1..=bins {
        let until = Time::ZERO + every * bin as u64;
        world.run_until(until);
        watch.bin(&mut world, every);
        progress(bin as f64 / bins as f64);
    }
    let mut outcome = watch.outcome;
    outcome.hash = world.hash();
    outcome.events = world.counters().0;
    outcome.notes = notes(scenario);
    if watch_all {
        let lives: Vec<(Span, Span)> = (scenario.sessions.iter().zip(&watch.ended))
            .map(|(s, ended)| (s.start, ended.or(s.stop).unwrap_or(scenario.duration)))
            .collect();
        match epochs(scenario, &ways, &[], &lives) {
            Some(epochs) => judge(scenario, &epochs, &mut outcome),
            None => outcome.notes.push(TOO_MANY.to_owned()),
        }
    } else {
        outcome.phases.extend(whole(scenario, &outcome, &world));
    }
    for (course, ended) in outcome.sessions.iter_mut().zip(&watch.ended) {
        let session = &scenario.sessions[course.number];
        let stop = session.stop.filter(|stop| *stop <= scenario.duration);
        course.ending = match (ended, stop) {
            (Some(_), _) => "done".into(),
            (None, Some(_)) => "stopped".into(),
            (None, None) => "running".into(),
        };
        let end = ended.or(stop).unwrap_or(scenario.duration);
        course.life = (seconds(session.start), seconds(end));
    }
    Ok(outcome)
}

/// What is read off the world as it runs.
struct Watch<'a> {
    scenario: &'a Scenario,
    outcome: Outcome,
    /// Bytes sent so far, of sessions with a size.
    sent: Vec<f64>,
    /// When each session's size was reached.
    ended: Vec<Option<Span>>,
    goal: Option<(u64, Vec<f64>)>,
    rates: Vec<f64>,
}

impl<'a> Watch<'a> {
    fn new(scenario: &'a Scenario, watched: usize) -> Watch<'a> {
        let mut outcome = Outcome { loads: Some((Vec::new(), Vec::new())), ..Outcome::default() };
        let course = |number| Course { number, ..Course::default() };
        outcome.sessions = (0..watched).map(course).collect();
        let all = scenario.sessions.len();
        let (sent, ended) = (vec![0.0; all], vec![None; all]);
        Watch { scenario, outcome, sent, ended, goal: None, rates: Vec::new() }
    }

    fn bin(&mut self, world: &mut World, every: Span) {
        world.rates(&mut self.rates);
        if self.goal.as_ref().is_none_or(|(generation, _)| *generation != world.generation()) {
            self.goal = Some((world.generation(), world.optimum()));
        }
        let goal = self.goal.as_ref().map_or(&[][..], |(_, goal)| goal);
        let at = seconds(world.now().since(Time::ZERO));
        let out = &mut self.outcome;
        out.times.push(at);
        out.distance.push(distance(&self.rates, goal));
        out.goal.push(goal.iter().map(|g| g * g).sum::<f64>().sqrt());
        let parts = self.rates.iter().zip(goal).filter(|(_, goal)| **goal > 1_000.0);
        out.jain.push(jain_index(&parts.map(|(rate, goal)| rate / goal).collect::<Vec<_>>()));
        if let Some((source, sink)) = &mut out.loads {
            source.push(world.take_worst_load(Side::Source).part);
            sink.push(world.take_worst_load(Side::Sink).part);
        }
        for (n, course) in out.sessions.iter_mut().enumerate() {
            course.rate.push(self.rates[n]);
            match course.wanted.last() {
                Some((_, level)) if *level == goal[n] => {}
                _ => course.wanted.push((at, goal[n])),
            }
        }
        self.finish(world, every);
    }

    /// Sessions that have moved their size leave.
    fn finish(&mut self, world: &mut World, every: Span) {
        for (k, session) in self.scenario.sessions.iter().enumerate() {
            let Some(size) = session.size else { continue };
            let part = f64::from(session.unit) / (f64::from(session.unit) + 77.0);
            self.sent[k] += self.rates[k] / 8.0 * seconds(every) * part;
            let is_done = self.sent[k] >= size.0 as f64 && self.ended[k].is_none();
            if is_done && world.change(Change::Leave(SessionId(k as u32))).is_ok() {
                self.ended[k] = Some(world.now().since(Time::ZERO));
            }
        }
    }
}

fn build(scenario: &Scenario) -> Result<(World, Vec<Way>), Refusal> {
    if let Some(session) = scenario.sessions.iter().find(|s| s.protocol != Protocol::Gtp) {
        return Err(Refusal::Input(format!(
            "session {:?} is a rival's, which needs queues: run it with level = \"packet\"",
            session.name
        )));
    }
    if let Some(session) = scenario.sessions.iter().find(|s| s.group.is_some()) {
        return Err(Refusal::Input(format!(
            "session {:?} brings an object together with others, unit by unit: run it with \
             level = \"packet\"",
            session.name
        )));
    }
    let (ways, _) = find(scenario)?;
    let mut builder = Builder::new(match scenario.law {
        LawName::Grant => Config::GRANT,
        LawName::EndNode => Config::THESIS,
    });
    let intervals = intervals(scenario, &ways);
    let mut rng = Rng::new(scenario.seed);
    for (node, usual) in scenario.nodes.iter().zip(intervals) {
        // A switch keeps its two places, so that numbers stay simple; no session uses them.
        let (out, in_, interval) = match &node.kind {
            NodeKind::Host(host) => (host.capacity_out, host.capacity_in, host.interval),
            NodeKind::Switch => (Rate::UNLIMITED, Rate::UNLIMITED, None),
        };
        for (side, capacity, usual) in [(Side::Source, out, usual[0]), (Side::Sink, in_, usual[1])]
        {
            let interval = interval.or(scenario.interval).unwrap_or(usual);
            let phase = Span::from_nanos(1 + rng.below(interval.as_nanos().max(1)));
            builder.node(NodeSpec { side, capacity, interval, phase, params: scenario.params });
        }
    }
    for (session, way) in scenario.sessions.iter().zip(&ways) {
        let spec = SessionSpec::new(
            NodeId(2 * session.source as u32),
            NodeId(2 * session.sink as u32 + 1),
            way.rtt(scenario),
        );
        let id = builder.session(SessionSpec {
            weight: session.weight,
            demand: session.demand_at(session.start),
            joins: Time::ZERO + session.start,
            leaves: session.stop.map(|stop| Time::ZERO + stop),
            ..spec
        });
        for (at, rate) in session.demand.iter().filter(|(at, _)| *at > session.start) {
            if session.stop.is_none_or(|stop| *at < stop) {
                builder.at(Time::ZERO + *at, Change::Demand(id, *rate));
            }
        }
    }
    for (at, event) in &scenario.events {
        if let Event::Capacity { host, out, in_ } = *event {
            let node = |offset| NodeId(2 * host as u32 + offset);
            let capacity = |offset, rate| Change::Capacity(node(offset), rate);
            for change in [out.map(|r| capacity(0, r)), in_.map(|r| capacity(1, r))] {
                change.into_iter().for_each(|change| builder.at(Time::ZERO + *at, change));
            }
        }
    }
    let world = builder.build().map_err(|error| refusal(scenario, &error))?;
    Ok((world, ways))
}

/// Half the median round-trip time of each node's sessions, as an agent would choose it.
fn intervals(scenario: &Scenario, ways: &[Way]) -> Vec<[Span; 2]> {
    let mut rtts = vec![[Vec::new(), Vec::new()]; scenario.nodes.len()];
    for (session, way) in scenario.sessions.iter().zip(ways) {
        let rtt = way.rtt(scenario);
        rtts[session.source][0].push(rtt);
        rtts[session.sink][1].push(rtt);
    }
    let median = |list: &mut Vec<Span>| {
        list.sort_unstable();
        let middle = list.get(list.len() / 2).copied().unwrap_or(Span::ZERO);
        (middle / 2).clamp(INTERVAL_MIN, INTERVAL_MAX)
    };
    rtts.iter_mut().map(|[a, b]| [median(a), median(b)]).collect()
}

/// The engine's refusal in the scenario's own names.
fn refusal(scenario: &Scenario, error: &BuildError) -> Refusal {
    let session = |k: SessionId| scenario.sessions.get(k.0 as usize).map(|s| &s.name);
    let node = |v: NodeId| scenario.nodes.get(v.0 as usize / 2).map(|n| &n.name);
    let named = match *error {
        BuildError::Interval(v)
        | BuildError::Params(v)
        | BuildError::NodeRate(v)
        | BuildError::AgentsCap(v) => node(v).map(|name| format!("host {name:?}")),
        BuildError::Ends(k)
        | BuildError::Rtt(k)
        | BuildError::Weight(k)
        | BuildError::SessionRate(k)
        | BuildError::Unbounded(k)
        | BuildError::Times(k)
        | BuildError::SessionParams(k)
        | BuildError::AgentsSession(k) => session(k).map(|name| format!("session {name:?}")),
        BuildError::TooLarge | BuildError::Change(_) => None,
    };
    let named = named.map_or_else(String::new, |named| format!("{named}: "));
    Refusal::Input(format!("{named}the rate level refuses it: {error}"))
}

fn notes(scenario: &Scenario) -> Vec<String> {
    let mut notes = Vec::new();
    let narrow = scenario.links.iter().filter(|link| !link.spec.rate.is_unlimited()).count();
    if narrow > 0 {
        notes.push(format!(
            "The rate level has no queues and no losses: of the {narrow} links with a rate only \
             the delay counts."
        ));
    }
    if !scenario.backgrounds.is_empty() {
        notes.push("The rate level has no background traffic: it was left out.".to_owned());
    }
    if !scenario.allocators.is_empty() {
        notes.push("The rate level has no routers: their links limit nobody.".to_owned());
    }
    let other = |event: &&(Span, Event)| !matches!(event.1, Event::Capacity { .. });
    if scenario.events.iter().any(|event| other(&event)) {
        notes.push("The rate level knows no faults but changes of capacity.".to_owned());
    }
    notes
}

/// One phase over the whole run, for networks too large to be listed.
fn whole(scenario: &Scenario, outcome: &Outcome, world: &World) -> Option<Phase> {
    let first = *outcome.distance.first()?;
    let outside = outcome.distance.iter().rposition(|d| *d > scenario.output.tolerance * first);
    let settled = outcome.times.get(outside.map_or(0, |n| n + 1));
    let (goal, mut rates) = (world.optimum(), Vec::new());
    world.rates(&mut rates);
    let parts: Vec<f64> = (rates.iter().zip(&goal))
        .filter(|(_, goal)| **goal > 1_000.0)
        .map(|(rate, goal)| rate / goal)
        .collect();
    Some(Phase {
        time: (0.0, seconds(scenario.duration)),
        event: "the whole run: distance, not each session".to_owned(),
        sessions: parts.len(),
        sums: (goal.iter().sum(), rates.iter().sum()),
        jain: jain_index(&parts),
        worst: parts.iter().map(|part| (part - 1.0).abs()).fold(0.0, f64::max),
        last_off: None,
        shares: Vec::new(),
        judged: settled.map_or(Judged::Unsettled, |at| Judged::Settled(*at)),
    })
}

pub fn divergence(scenario: &Scenario) -> Result<Option<String>, Refusal> {
    let ((mut one, _), (mut other, _)) = (build(scenario)?, build(scenario)?);
    let every = scenario.output.every;
    let bins = scenario.duration.as_nanos() / every.as_nanos().max(1);
    for bin in 1..=bins {
        let until = Time::ZERO + every * bin;
        one.run_until(until);
        other.run_until(until);
        if one.hash() != other.hash() {
            return Ok(Some(format!("before {:.3} s", seconds(until.since(Time::ZERO)))));
        }
    }
    Ok(None)
}
