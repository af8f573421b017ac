//! What happens in a run: the network, the law, the changes, and generators of all three.

use super::{MS, Nanos};
use gtp_alloc::endnode::{CapAtTarget, Params};

/// Which law the nodes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    EndNode,
    Grant,
}

#[derive(Clone, Copy, Debug)]
pub struct NodeSpec {
    pub capacity: f64,
    pub interval: Nanos,
    /// The end of the first interval, at most one interval.
    pub phase: Nanos,
    pub params: Params,
}

#[derive(Clone, Copy, Debug)]
pub struct SessionSpec {
    pub source: usize,
    pub sink: usize,
    pub rtt: Nanos,
    pub weight: f64,
    pub demand: f64,
    pub joins: Nanos,
    pub leaves: Option<Nanos>,
    /// The rate before anything is known; with `joins` zero and this above zero, the session has
    /// always run at it.
    pub initial: f64,
}

#[derive(Clone, Copy, Debug)]
pub enum Change {
    Demand(usize, f64),
    Capacity(usize, f64),
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub law: Law,
    pub nodes: Vec<NodeSpec>,
    pub sessions: Vec<SessionSpec>,
    pub changes: Vec<(Nanos, Change)>,
    /// Probability that a message is lost.
    pub loss: f64,
    pub seed: u64,
}

/// Numbers from a seed: SplitMix64.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    /// As many orders of magnitude as there are between the ends, all alike.
    pub fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }
}

/// A node as in the convergence table: interval 10..100 ms, alpha and beta 0.05..0.15.
fn node(draw: &mut Draw, capacity: f64) -> NodeSpec {
    let interval = draw.between(10.0, 100.0) * MS as f64;
    NodeSpec {
        capacity,
        interval: interval as Nanos,
        phase: (draw.between(0.01, 1.0) * interval) as Nanos,
        params: Params {
            alpha: draw.between(0.05, 0.15),
            beta: draw.between(0.05, 0.15),
            cap_at_target: CapAtTarget::No,
        },
    }
}

/// A session of unlimited demand and weight 1, from the start and from zero.
pub fn session(source: usize, sink: usize, rtt: Nanos) -> SessionSpec {
    let demand = f64::INFINITY;
    SessionSpec { source, sink, rtt, weight: 1.0, demand, joins: 0, leaves: None, initial: 0.0 }
}

/// The networks of the convergence table: half of `nodes` are sources with four sessions each to
/// random sinks; equal capacities, RTT 1..100 ms, demands unlimited, nothing lost.
pub fn table_network(law: Law, nodes: usize, seed: u64) -> Scenario {
    let mut draw = Draw::new(seed);
    let half = nodes / 2;
    let specs = (0..nodes).map(|_| node(&mut draw, 1e9)).collect();
    let mut sessions = Vec::new();
    for source in 0..half {
        for _ in 0..4 {
            let rtt = (draw.between(1.0, 100.0) * MS as f64) as Nanos;
            sessions.push(session(source, half + draw.below(half), rtt));
        }
    }
    Scenario { law, nodes: specs, sessions, changes: Vec::new(), loss: 0.0, seed }
}

/// Small random networks: 2 to 10 nodes, up to 24 sessions, capacities 1:10^6, half the demands
/// finite, RTT 0.2 ms to 1 s; weights 1:10^3 under the grant law.
pub fn random_network(law: Law, seed: u64) -> Scenario {
    let mut draw = Draw::new(seed);
    let (sources, sinks) = (1 + draw.below(5), 1 + draw.below(5));
    let mut nodes: Vec<NodeSpec> = (0..sources + sinks).map(|_| node(&mut draw, 0.0)).collect();
    for n in &mut nodes {
        // Whole bits, so that the thesis's law can hold them.
        n.capacity = draw.magnitude(1e6, 1e12).round();
    }
    let mut sessions = Vec::new();
    for _ in 0..1 + draw.below(24) {
        let rtt = draw.magnitude(0.2, 1_000.0) * MS as f64;
        let mut s = session(draw.below(sources), sources + draw.below(sinks), rtt as Nanos);
        if draw.unit() < 0.5 {
            s.demand = draw.magnitude(1e5, 1e11).round();
        }
        if law == Law::Grant {
            s.weight = draw.magnitude(0.03, 30.0);
        }
        sessions.push(s);
    }
    Scenario { law, nodes, sessions, changes: Vec::new(), loss: 0.0, seed }
}

/// A random network whose sessions come, go and change their demands until `until`, while up to
/// 30 % of the messages are lost.
pub fn churn(law: Law, seed: u64, until: Nanos) -> Scenario {
    let mut scenario = random_network(law, seed);
    let mut draw = Draw::new(!seed);
    scenario.loss = draw.between(0.0, 0.3);
    let moment = |draw: &mut Draw| (draw.unit() * until as f64) as Nanos;
    for k in 0..scenario.sessions.len() {
        let s = &mut scenario.sessions[k];
        if draw.unit() < 0.5 {
            s.joins = moment(&mut draw);
        }
        if draw.unit() < 0.3 {
            s.leaves = Some(s.joins + 1 + moment(&mut draw) / 2);
        }
        while draw.unit() < 0.5 {
            let demand = if draw.unit() < 0.3 { f64::INFINITY } else { draw.magnitude(1e5, 1e11) };
            scenario.changes.push((moment(&mut draw), Change::Demand(k, demand.round())));
        }
    }
    scenario
}
