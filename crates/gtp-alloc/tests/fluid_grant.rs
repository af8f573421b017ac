//! The grant law in the rate-level model: every promise that can be stated without packets.
//!
//! A failing case prints its seed; `random_network(Law::Grant, seed)` or `churn(…)` is the case.

mod fluid;

use fluid::scenario::{Change, Draw, Law, NodeSpec, Scenario, churn, random_network, session};
use fluid::{Fluid, MS, Nanos, SECOND, settling_times};
use gtp_alloc::endnode::Params;
use proptest::prelude::*;

/// What sums of a few dozen floats may be off by.
const ROUNDING: f64 = 1e-12;

/// What rounding may leave where capacities differ by 10^6 and a rate may be 10^-6 of its own:
/// the worst of some 4,000 networks tried was 3e-9.
const EXACT: f64 = 1e-7;

fn peak(fluid: &Fluid) -> f64 {
    fluid.peak.iter().copied().fold(0.0, f64::max)
}

fn node(capacity: f64, interval: Nanos, phase: Nanos) -> NodeSpec {
    NodeSpec { capacity, interval, phase, params: Params::DEFAULT }
}

fn scenario(nodes: Vec<NodeSpec>, sessions: Vec<fluid::scenario::SessionSpec>) -> Scenario {
    Scenario { law: Law::Grant, nodes, sessions, changes: Vec::new(), loss: 0.0, seed: 1 }
}

/// The largest relative distance of any rate from the optimum; rates of next to nothing count as
/// parts of their node's capacity.
fn off_optimum(fluid: &Fluid) -> f64 {
    let off = |((rate, goal), s): ((&f64, &f64), &fluid::scenario::SessionSpec)| {
        let capacity = |v: usize| fluid.scenario.nodes[v].capacity;
        (rate - goal).abs() / (goal + 1e-6 * capacity(s.source).min(capacity(s.sink)))
    };
    let (rates, goal) = (fluid.rates(), fluid.optimum());
    rates.iter().zip(&goal).zip(&fluid.scenario.sessions).map(off).fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn rates_reach_the_optimum_exactly_and_stay(seed in any::<u64>()) {
        let mut fluid = Fluid::new(random_network(Law::Grant, seed));
        fluid.run(30 * SECOND, |_| {});
        prop_assert!(off_optimum(&fluid) < EXACT, "seed {}: off {:e}", seed, off_optimum(&fluid));
        let goal = fluid.rates();
        let mut worst = 0.0f64;
        fluid.run(35 * SECOND, |f| {
            worst = worst.max(gtp_alloc::fairness::distance(&f.rates(), &goal));
        });
        let size = goal.iter().copied().fold(0.0, f64::max);
        prop_assert!(worst <= 1e-9 * size, "seed {}: moved by {:e}", seed, worst / size);
    }

    #[test]
    fn nothing_is_overloaded_through_joins_leaves_demand_steps_and_loss(seed in any::<u64>()) {
        let mut fluid = Fluid::new(churn(Law::Grant, seed, 10 * SECOND));
        fluid.run(10 * SECOND, |_| {});
        prop_assert!(peak(&fluid) <= 1.0 + ROUNDING, "seed {}: {:e}", seed, peak(&fluid) - 1.0);
        // And then it settles, lost messages or not.
        fluid.run(80 * SECOND, |_| {});
        prop_assert!(peak(&fluid) <= 1.0 + ROUNDING, "seed {}: {:e}", seed, peak(&fluid) - 1.0);
        prop_assert!(off_optimum(&fluid) < 1e-6, "seed {}: off {:e}", seed, off_optimum(&fluid));
    }

    #[test]
    fn after_a_fall_of_capacity_overload_ends_with_the_echoes(seed in any::<u64>()) {
        let mut scenario = random_network(Law::Grant, seed);
        let mut draw = Draw::new(!seed);
        let fallen = draw.below(scenario.nodes.len());
        let capacity = scenario.nodes[fallen].capacity * draw.between(0.01, 0.9);
        let at = 20 * SECOND;
        scenario.changes.push((at, Change::Capacity(fallen, capacity)));
        let longest = scenario.sessions.iter().map(|s| s.rtt).max().unwrap();
        let interval = scenario.nodes[fallen].interval;
        let mut fluid = Fluid::new(scenario);
        fluid.run(at - 1, |_| {});
        prop_assert!(peak(&fluid) <= 1.0 + ROUNDING);
        // A sink decides within an interval, its word and then the lower rate travel one RTT.
        fluid.run(at + interval + longest, |_| {});
        fluid.peak.fill(0.0);
        fluid.run(60 * SECOND, |_| {});
        prop_assert!(peak(&fluid) <= 1.0 + ROUNDING, "seed {}: {:e}", seed, peak(&fluid) - 1.0);
        prop_assert!(off_optimum(&fluid) < EXACT, "seed {}: off {:e}", seed, off_optimum(&fluid));
    }
}

#[test]
fn a_newcomer_at_a_full_sink_starts_within_two_intervals_and_two_round_trips() {
    for seed in 0..200 {
        let mut draw = Draw::new(seed);
        let interval = (draw.between(10.0, 100.0) * MS as f64) as Nanos;
        let joins = 5 * SECOND + (draw.unit() * SECOND as f64) as Nanos;
        let nodes = (0..4).map(|v| {
            let phase = (draw.unit() * interval as f64) as Nanos + 1;
            node(if v == 3 { 1e9 } else { 1e10 }, interval, phase)
        });
        let nodes = nodes.collect();
        let mut rtt = || (draw.magnitude(1.0, 200.0) * MS as f64) as Nanos;
        let mut sessions = vec![session(0, 3, rtt()), session(1, 3, rtt()), session(2, 3, rtt())];
        sessions[2].joins = joins;
        let shortest = sessions[0].rtt.min(sessions[1].rtt);
        let own = sessions[2].rtt;
        let mut fluid = Fluid::new(scenario(nodes, sessions));
        let mut first = None;
        fluid.run(joins + 5 * SECOND, |f| {
            if f.rates()[2] > 0.0 && first.is_none() {
                first = Some(f.now);
            }
        });
        // Its first word, up to an interval, a holder's round trip, up to an interval, the grant;
        // and the newcomer's own node sets its target by its own clock.
        let bound = own + shortest + 2 * interval;
        let took = first.expect("the newcomer is served") - joins;
        assert!(took <= bound, "seed {seed}: {took} ns, bound {bound} ns");
    }
}

#[test]
fn a_chain_of_bottlenecks_settles_within_the_sum_over_its_levels() {
    // Source s carries sessions to sinks s and s + 1; capacities grow, so that every level waits
    // for the one before. Interval 20 ms, RTT 50 ms everywhere.
    let (interval, rtt) = (20 * MS, 50 * MS);
    for levels in [10, 30, 100] {
        let half = levels / 2;
        let mut draw = Draw::new(levels as u64);
        // Node order along the chain: source 0, sink 0, source 1, sink 1, …
        let nodes = (0..2 * half)
            .map(|v| {
                let place = if v < half { 2 * v } else { 2 * (v - half) + 1 };
                let phase = (draw.unit() * interval as f64) as Nanos + 1;
                node(1e8 * (2 * place + 1) as f64, interval, phase)
            })
            .collect();
        let mut sessions = Vec::new();
        for s in 0..half {
            sessions.push(session(s, half + s, rtt));
            if s + 1 < half {
                sessions.push(session(s + 1, half + s, rtt));
            }
        }
        let mut fluid = Fluid::new(scenario(nodes, sessions));
        fluid.active.fill(true);
        let goal = fluid.optimum();
        fluid.active.fill(false);
        let took = settling_times(&mut fluid, &goal, &[1e-9], 60 * SECOND)[0];
        let bound = levels as u64 * (interval + rtt / 2) + rtt + 2 * interval;
        let bound = bound as f64 / SECOND as f64;
        println!("{levels} levels: {took:.2} s, bound {bound:.2} s");
        assert!(took <= bound, "{levels} levels: {took} s, bound {bound} s");
        assert!(peak(&fluid) <= 1.0 + ROUNDING);
    }
}

#[test]
fn a_lone_session_has_everything_after_two_round_trips_and_intervals() {
    let nodes = vec![node(1e9, 50 * MS, 20 * MS), node(1e9, 50 * MS, 35 * MS)];
    let mut fluid = Fluid::new(scenario(nodes, vec![session(0, 1, 50 * MS)]));
    let took = settling_times(&mut fluid, &[1e9], &[1e-12], 5 * SECOND)[0];
    assert!(took <= 0.2, "{took} s");
    assert_eq!(fluid.rates(), [1e9]);
}
