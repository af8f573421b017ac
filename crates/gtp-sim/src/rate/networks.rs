//! The networks of the thesis's chapter VII, and larger ones.
//!
//! Where the thesis is silent: rates start at zero; node clocks start at a phase drawn uniformly
//! within one interval; alpha, beta and interval are drawn for each node and the round-trip time
//! for each session; sinks are drawn with replacement, so a source may have two sessions to one
//! sink; the normalised capacity is 1 Gbit/s. All draws follow from a seed, in the order in which
//! nodes and then sessions are added.

use gtp_alloc::endnode::{CapAtTarget, Params};
use gtp_alloc::{Rate, Span};
use gtp_link::Rng;
use gtp_proto::Side;

use super::build::{Builder, Config, NodeId, NodeSpec, SessionSpec};

/// What the thesis calls a link of 1 Gbit/s, and 1.
pub const CAPACITY: Rate = Rate::from_mbps(1_000);

/// What all nodes and sessions of a small network have in common.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Law, hosting and pace.
    pub config: Config,
    /// Capacity of every node.
    pub capacity: Rate,
    /// Control interval of every node.
    pub interval: Span,
    /// Parameters of every node.
    pub params: Params,
    /// For phases.
    pub seed: u64,
}

impl Defaults {
    /// Table VII.1: alpha 0.15, beta 0.2, interval 50 ms, 1 Gbit/s.
    pub fn table_vii_1(config: Config, seed: u64) -> Defaults {
        Defaults {
            config,
            capacity: CAPACITY,
            interval: Span::from_millis(50),
            params: Params::TABLE_VII_1,
            seed,
        }
    }

    fn nodes(&self, builder: &mut Builder, rng: &mut Rng, sources: usize, sinks: usize) {
        for v in 0..sources + sinks {
            let side = if v < sources { Side::Source } else { Side::Sink };
            builder.node(NodeSpec {
                side,
                capacity: self.capacity,
                interval: self.interval,
                phase: phase(rng, self.interval),
                params: self.params,
            });
        }
    }
}

/// One session per round-trip time, from a source each to one sink (Figure VII.4); with a single
/// one, Figure VII.1. The sources come first.
pub fn many_to_one(defaults: &Defaults, rtts: &[Span]) -> Builder {
    let mut builder = Builder::new(defaults.config);
    defaults.nodes(&mut builder, &mut Rng::new(defaults.seed), rtts.len(), 1);
    for (k, rtt) in rtts.iter().enumerate() {
        let (source, sink) = (NodeId(k as u32), NodeId(rtts.len() as u32));
        builder.session(SessionSpec::new(source, sink, *rtt));
    }
    builder
}

/// One session per round-trip time, from one source to a sink each (Figure VII.11).
pub fn one_to_many(defaults: &Defaults, rtts: &[Span]) -> Builder {
    let mut builder = Builder::new(defaults.config);
    defaults.nodes(&mut builder, &mut Rng::new(defaults.seed), 1, rtts.len());
    for (k, rtt) in rtts.iter().enumerate() {
        builder.session(SessionSpec::new(NodeId(0), NodeId(k as u32 + 1), *rtt));
    }
    builder
}

/// VII.4: four sources of 500 Mbit/s, four such sinks, a session for each pair, alpha 0.1.
pub fn four_to_four(config: Config, beta: f64, seed: u64) -> Builder {
    let mut builder = Builder::new(config);
    let mut rng = Rng::new(seed);
    for v in 0..8 {
        let interval = INTERVALS.draw(&mut rng);
        builder.node(NodeSpec {
            side: if v < 4 { Side::Source } else { Side::Sink },
            capacity: Rate::from_mbps(500),
            interval,
            phase: phase(&mut rng, interval),
            params: Params { alpha: 0.1, beta, cap_at_target: CapAtTarget::No },
        });
    }
    for k in 0..16 {
        let rtt = RTTS.draw(&mut rng);
        builder.session(SessionSpec::new(NodeId(k / 4), NodeId(4 + k % 4), rtt));
    }
    builder
}

/// Case `seed` of VII.5 (Table VII.2): half of `nodes` are sources, each with four sessions to
/// sinks drawn at random.
pub fn random(config: Config, nodes: u32, seed: u64) -> Builder {
    let mut builder = Builder::new(config);
    let mut rng = Rng::new(seed);
    let half = nodes / 2;
    for v in 0..2 * half {
        let interval = INTERVALS.draw(&mut rng);
        let phase = phase(&mut rng, interval);
        let params = Params {
            alpha: PARAMS.draw(&mut rng),
            beta: PARAMS.draw(&mut rng),
            cap_at_target: CapAtTarget::No,
        };
        let side = if v < half { Side::Source } else { Side::Sink };
        builder.node(NodeSpec { side, capacity: CAPACITY, interval, phase, params });
    }
    for k in 0..4 * half {
        let sink = NodeId(half + rng.below(half.into()) as u32);
        let rtt = RTTS.draw(&mut rng);
        builder.session(SessionSpec::new(NodeId(k / 4), sink, rtt));
    }
    builder
}

/// The synchronous companion of [`random`] with the same sessions: every round-trip time and
/// every interval is `slot`, all clocks agree, alpha and beta are 0.1 (the thesis is silent).
pub fn synchronous(config: Config, nodes: u32, seed: u64, slot: Span) -> Builder {
    let mut builder = random(config, nodes, seed);
    for node in &mut builder.nodes {
        (node.interval, node.phase) = (slot, slot);
        node.params = Params { alpha: 0.1, beta: 0.1, cap_at_target: CapAtTarget::No };
    }
    builder.sessions.iter_mut().for_each(|s| s.rtt = slot);
    builder
}

/// Far beyond the thesis: half of `nodes` are sources, `sessions` are dealt to them in turn and
/// go to sinks drawn at random; all intervals are `interval`, the rest is as in [`random`].
pub fn large(config: Config, nodes: u32, sessions: u32, interval: Span, seed: u64) -> Builder {
    let mut builder = random(config, nodes, seed);
    let mut rng = Rng::new(!seed);
    for node in &mut builder.nodes {
        (node.interval, node.phase) = (interval, phase(&mut rng, interval));
    }
    let half = nodes / 2;
    builder.sessions.clear();
    for k in 0..sessions {
        let sink = NodeId(half + rng.below(half.into()) as u32);
        let rtt = RTTS.draw(&mut rng);
        builder.session(SessionSpec::new(NodeId(k % half.max(1)), sink, rtt));
    }
    builder
}

/// A uniform distribution between two ends.
struct Uniform<T>(T, T);

/// Table VII.2.
const RTTS: Uniform<Span> = Uniform(Span::from_millis(1), Span::from_millis(100));
const INTERVALS: Uniform<Span> = Uniform(Span::from_millis(10), Span::from_millis(100));
const PARAMS: Uniform<f64> = Uniform(0.05, 0.15);

impl Uniform<Span> {
    fn draw(&self, rng: &mut Rng) -> Span {
        let width = self.1.saturating_sub(self.0).as_nanos();
        self.0 + Span::from_nanos(rng.below(width + 1))
    }
}

impl Uniform<f64> {
    fn draw(&self, rng: &mut Rng) -> f64 {
        let part = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        self.0 + (self.1 - self.0) * part
    }
}

/// The end of a node's first interval: anywhere in it but at its beginning.
fn phase(rng: &mut Rng, interval: Span) -> Span {
    Span::from_nanos(1 + rng.below(interval.as_nanos()))
}
