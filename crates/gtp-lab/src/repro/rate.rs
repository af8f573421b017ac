//! Cases on the rate-level engine.
//!
//! A case becomes a world of `gtp_sim::rate`; its sending rates are looked at every millisecond
//! (every five in large networks) and kept where they change. Times are therefore right to that
//! step; loads are the engine's own and miss nothing. Sizes of transfers and losses have no place
//! at this level.

use super::case::{Belong, Case};
use super::compute::Law;
use super::measure::{Steps, Trajectory};
use super::replay::unexplained;
use gtp_alloc::endnode::{CapAtTarget, Params};
use gtp_alloc::{Rate, Span, Time};
use gtp_proto::Side;
use gtp_sim::rate::{Builder, Change, Config, NodeId, NodeSpec, SessionId, SessionSpec, World};

/// Networks with more sessions are looked at less often.
const MANY_SESSIONS: usize = 256;

/// Runs a case.
///
/// # Errors
/// A sentence, if the engine refuses it.
pub fn run(case: &Case, law: Law) -> Result<Trajectory, String> {
    if case.sessions.iter().any(|s| s.loss > 0.0 || s.bytes.is_finite()) {
        return Err("rates have neither losses nor sizes: use the packet level".to_owned());
    }
    let mut world = build(case, law)?;
    let step = Span::from_millis(if case.sessions.len() > MANY_SESSIONS { 5 } else { 1 });
    let end = Time::ZERO + Span::from_secs_f64(case.seconds);
    let mut seen = Seen::new(case.sessions.len());
    seen.look(&mut world);
    while world.now() < end {
        world.run_until((world.now() + step).min(end));
        seen.look(&mut world);
    }
    let replayed = case.replay && law == Law::EndNode;
    let unexplained = if replayed { unexplained(case, &seen.steps) } else { f64::NAN };
    Ok(Trajectory {
        label: case.label.clone(),
        end: case.seconds,
        rates: seen.steps,
        goals: case.goals(),
        load: seen.load,
        standing: Vec::new(),
        bounds: Vec::new(),
        timeouts: Vec::new(),
        counts: Vec::new(),
        shared: Vec::new(),
        done: Vec::new(),
        lost: 0.0,
        losses: Vec::new(),
        longest: case.longest(),
        unexplained,
        capacity: case.capacity,
    })
}

fn build(case: &Case, law: Law) -> Result<World, String> {
    let config = match law {
        Law::EndNode => Config::THESIS,
        Law::Grant => Config::GRANT,
    };
    let rate = |bps: f64| if bps.is_finite() { Rate::from_f64(bps) } else { Rate::UNLIMITED };
    let time = |seconds: f64| Time::ZERO + Span::from_secs_f64(seconds);
    let params = |alpha, beta| Params { alpha, beta, cap_at_target: CapAtTarget::No };
    let mut builder = Builder::new(config);
    for (v, node) in case.nodes.iter().enumerate() {
        let own = match case.parameters {
            Belong::Nodes => params(node.alpha, node.beta),
            // Every session brings its own.
            Belong::Sessions => Params::TABLE_VII_1,
        };
        let interval = Span::from_secs_f64(node.interval);
        builder.node(NodeSpec {
            side: if v < case.sources { Side::Source } else { Side::Sink },
            capacity: rate(case.capacity),
            interval,
            // Only rounding to whole nanoseconds can lead out of these.
            phase: Span::from_secs_f64(node.phase).min(interval).max(Span::from_nanos(1)),
            params: own,
        });
    }
    for s in &case.sessions {
        let (source, sink) = (NodeId(s.source as u32), NodeId(s.sink as u32));
        let goes_along = case.parameters == Belong::Sessions;
        builder.session(SessionSpec {
            demand: rate(s.demand),
            joins: time(s.start),
            leaves: s.stop.is_finite().then(|| time(s.stop)),
            initial: rate(s.initial),
            params: goes_along.then(|| params(s.alpha, s.beta)),
            ..SessionSpec::new(source, sink, Span::from_secs_f64(s.rtt))
        });
    }
    for step in &case.demand_steps {
        let session = SessionId(step.session as u32 - 1);
        builder.at(time(step.at), Change::Demand(session, rate(step.mbps * 1e6)));
    }
    builder.build().map_err(|e| e.to_string())
}

/// What was seen so far.
struct Seen {
    now: Vec<f64>,
    last: Vec<f64>,
    steps: Vec<Steps>,
    load: Steps,
}

impl Seen {
    fn new(sessions: usize) -> Seen {
        let steps = vec![Vec::new(); sessions];
        Seen { now: Vec::new(), last: vec![f64::NAN; sessions], steps, load: Vec::new() }
    }

    fn look(&mut self, world: &mut World) {
        let t = world.now().since(Time::ZERO).as_secs_f64();
        world.rates(&mut self.now);
        for (k, rate) in self.now.iter().enumerate() {
            if *rate != self.last[k] {
                self.last[k] = *rate;
                self.steps[k].push((t, *rate));
            }
        }
        let load = world.take_worst_load(Side::Sink).part;
        if self.load.last().is_none_or(|(_, last)| *last != load) {
            self.load.push((t, load));
        }
    }
}
