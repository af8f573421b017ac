//! Cases on the packet-level engine.
//!
//! A case becomes hosts with an access link each and a wire of its own for each session, half its
//! round trip long in each direction. Access links have a queue of one bandwidth-delay product of
//! the longest path, at least a thousand packets; unless the case says otherwise they carry exactly
//! the nodes' capacity, so that an excess leaves a standing queue. Rates are what
//! arrives at sinks within each control interval, headers included; loads are what sources may
//! send.

use super::case::{Belong, Case};
use super::compute::Law;
use super::measure::{Steps, Trajectory};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Chance, LinkId, LinkSpec};
use gtp_proto::Kept;
use gtp_sim::packet::{
    BuildError, HostSpec, NodeId, Pace, Path, SessionId, SessionSpec, Volume, World,
};

/// Payload of packets that are 1,500 bytes long with their 77 bytes of headers.
const UNIT: u16 = 1_423;
/// Packets for which every queue has room.
const QUEUE_LEAST: f64 = 1_000.0 * 1_500.0;

/// Runs a case.
///
/// # Errors
/// A sentence, if the engine cannot do what it asks for.
pub fn run(case: &Case, law: Law) -> Result<Trajectory, String> {
    refuse(case)?;
    let mut world = World::new(case.seed);
    let sessions = build(case, law, &mut world).map_err(|e| e.to_string())?;
    let bin = Span::from_secs_f64(case.nodes[0].interval);
    world.trace_every(bin).map_err(|e| e.to_string())?;
    let end = Time::ZERO + Span::from_secs_f64(case.seconds);
    let mut bounds = vec![Steps::new(); sessions.len()];
    while world.now() < end {
        let next = (world.now() + bin).min(end);
        world.run_until(next);
        let t = next.since(Time::ZERO).as_secs_f64();
        for (steps, status) in bounds.iter_mut().zip(sessions.iter().map(|id| world.session(*id))) {
            let bound = status.map_or(Rate::UNLIMITED, |status| status.path_bound);
            let bps = if bound == Rate::UNLIMITED { f64::INFINITY } else { bound.as_f64() };
            if steps.last().is_none_or(|(_, last)| *last != bps) {
                steps.push((t, bps));
            }
        }
    }
    Ok(Trajectory { bounds, ..trajectory(case, &world, &sessions) })
}

/// What a case may ask for that packets cannot do.
fn refuse(case: &Case) -> Result<(), String> {
    let only = |what: &str| Err(format!("packets have no {what}: use the rate level"));
    if case.parameters == Belong::Sessions {
        return only("parameters of sessions");
    }
    let own = |v: usize| (case.nodes[v].alpha, case.nodes[v].beta);
    if case.sessions.iter().any(|s| own(s.source) != own(s.sink)) {
        return only("alpha and beta that differ between the ends of a session");
    }
    if case.phased {
        return only("given phases of intervals");
    }
    if !case.demand_steps.is_empty() {
        return only("steps of demand");
    }
    if case.replay {
        return only("replay");
    }
    if case.sessions.iter().any(|s| s.initial > 0.0) {
        return only("initial rates");
    }
    Ok(())
}

fn build(case: &Case, law: Law, world: &mut World) -> Result<Vec<SessionId>, BuildError> {
    let capacity = Rate::from_f64(case.capacity);
    let longest = case.sessions.iter().map(|s| s.rtt).fold(0.0, f64::max);
    let queue = Bytes((case.capacity / 8.0 * longest).max(QUEUE_LEAST) as u64);
    let access = LinkSpec { rate: Rate::from_f64(case.link), queue, ..LinkSpec::default() };
    let mut hosts: Vec<(NodeId, LinkId)> = Vec::new();
    for node in &case.nodes {
        let interval = Some(Span::from_secs_f64(node.interval));
        let spec = HostSpec { out: capacity, in_: capacity, interval, ..HostSpec::default() };
        hosts.push((world.add_host(spec), world.add_link(access.clone())));
    }
    let mut sessions = Vec::new();
    for s in &case.sessions {
        let delay = Span::from_secs_f64(s.rtt / 2.0);
        let loss = Chance::from_billionths((s.loss * 1e9) as u32);
        let there = world.add_link(LinkSpec { delay, loss, ..LinkSpec::default() });
        let back = world.add_link(LinkSpec { delay, ..LinkSpec::default() });
        let (source, out) = hosts[s.source];
        let (sink, in_) = hosts[s.sink];
        let node = case.nodes[s.sink];
        sessions.push(world.add_session(SessionSpec {
            start: Time::ZERO + Span::from_secs_f64(s.start),
            stop: s.stop.is_finite().then(|| Time::ZERO + Span::from_secs_f64(s.stop)),
            law: match law {
                Law::EndNode => gtp_proto::Law::EndNode { alpha: node.alpha, beta: node.beta },
                Law::Grant => gtp_proto::Law::Grant,
            },
            // What is shown beside the paper's is the product as it is.
            kept: match law {
                Law::EndNode => case.path_bound.kept(),
                Law::Grant => Kept::ByPathBound,
            },
            unit: UNIT,
            volume: match s.bytes.is_finite() {
                true => Volume::Bytes(Bytes(s.bytes as u64)),
                false => Volume::Endless,
            },
            supply: match s.demand.is_finite() {
                true => Pace::constant(Rate::from_f64(s.demand)),
                false => Pace::Unlimited,
            },
            down: Path::Links(vec![out, there, in_]),
            up: Path::Links(vec![back]),
            ..SessionSpec::new(source, sink)
        })?);
    }
    Ok(sessions)
}

/// The part that is lost of what was sent: 0 to 1, also where something was lost more than once.
fn part(lost: u64, sent: u64) -> f64 {
    lost as f64 / (sent.max(lost) as f64).max(1.0)
}

fn trajectory(case: &Case, world: &World, sessions: &[SessionId]) -> Trajectory {
    let trace = world.trace();
    let bin = trace.bin.as_secs_f64();
    // What arrived in a bin held from its begin.
    let rates = |k: usize| -> Steps {
        let bins = trace.sessions[k].received.iter().enumerate();
        bins.map(|(i, bytes)| (i as f64 * bin, bytes.0 as f64 * 8.0 / bin)).collect()
    };
    let status: Vec<_> = sessions.iter().filter_map(|id| world.session(*id)).collect();
    let ended = |at: Option<Time>| at.map_or(f64::INFINITY, |t| t.since(Time::ZERO).as_secs_f64());
    let done: Vec<f64> = status.iter().map(|s| ended(s.ended)).collect();
    let sent: u64 = status.iter().map(|s| s.sent_packets).sum();
    let lost: u64 = status.iter().map(|s| s.lost).sum();
    // What comes after nearly all of a session's data is repair of losses and farewell.
    let rates: Vec<Steps> = (0..sessions.len()).map(rates).collect();
    let mut judged = case.clone();
    for ((session, done), steps) in judged.sessions.iter_mut().zip(&done).zip(&rates) {
        if session.bytes.is_finite() && done.is_finite() {
            session.stop = session.stop.min(nearly_all(steps) + bin);
        }
    }
    Trajectory {
        label: case.label.clone(),
        end: (trace.bins as f64 * bin).min(case.seconds),
        rates,
        goals: judged.goals(),
        load: loads(case, world, bin),
        standing: standing(case, world, bin),
        bounds: Vec::new(),
        timeouts: Vec::new(),
        counts: Vec::new(),
        shared: Vec::new(),
        done,
        lost: part(lost, sent),
        losses: status.iter().map(|s| part(s.lost, s.sent_packets)).collect(),
        longest: case.longest(),
        unexplained: f64::NAN,
        capacity: case.capacity,
    }
}

/// The bin in which the last thousandth begins.
fn nearly_all(steps: &Steps) -> f64 {
    let all: f64 = steps.iter().map(|(_, rate)| rate).sum();
    let mut so_far = 0.0;
    let mut reached = |rate: f64| {
        so_far += rate;
        so_far >= 0.999 * all
    };
    steps.iter().find(|(_, rate)| reached(*rate)).map_or(0.0, |(t, _)| *t)
}

/// The least that waits in each bin before the sink that is worst off, in seconds of its link.
fn standing(case: &Case, world: &World, bin: f64) -> Steps {
    let trace = world.trace();
    // Hosts' links were added first, each with its host.
    let sinks = &trace.links[case.sources..case.nodes.len()];
    let longest = |i: usize| sinks.iter().map(|link| link.queue_least[i].0).max().unwrap_or(0);
    let seconds = |bytes: u64| bytes as f64 * 8.0 / case.link;
    (0..trace.bins).map(|i| ((i + 1) as f64 * bin, seconds(longest(i)))).collect()
}

/// What sources may send to the sink that is worst off, as a part of its capacity.
fn loads(case: &Case, world: &World, bin: f64) -> Steps {
    let trace = world.trace();
    let mut steps = Steps::new();
    let mut load = vec![0.0; case.nodes.len()];
    for i in 0..trace.bins {
        load.fill(0.0);
        for (s, series) in case.sessions.iter().zip(&trace.sessions) {
            load[s.sink] += series.sending[i].as_f64().min(s.demand);
        }
        let worst = load.iter().copied().fold(0.0, f64::max) / case.capacity;
        steps.push(((i + 1) as f64 * bin, worst));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::case::Scenario;

    fn refusal(field: &str) -> Option<String> {
        let text = format!("network = {{ links = [[1]], seconds = 1{field} }}");
        let scenario: Scenario = toml::from_str(&text).expect("a scenario");
        refuse(&scenario.expand().expect("cases")[0]).err()
    }

    #[test]
    fn what_packets_cannot_do_is_refused() {
        assert_eq!(refusal(""), None);
        for field in [
            "phase_ms = 50",
            "alpha = [0.1, 0.2]",
            "beta = [0.1, 0.2]",
            "parameters = 'sessions'",
            "demand_steps = [{ session = 1, at = 0.5, mbps = 1 }]",
            "replay = true",
            "initial = 0.5",
        ] {
            assert!(refusal(&format!(", {field}")).is_some(), "{field}");
        }
    }
}
