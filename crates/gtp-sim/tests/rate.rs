//! What the rate level promises: the laws' fixed points, agents' own words, exact loads.

use gtp_alloc::endnode::{CapAtTarget, Params};
use gtp_alloc::{Rate, Span, Time};
use gtp_link::Rng;
use gtp_proto::Side;
use gtp_sim::rate::{
    BuildError, Builder, Change, Config, Hosting, Law, NodeId, NodeSpec, Pace, Record, SessionId,
    SessionSpec, Telling, World, networks,
};
use proptest::prelude::*;

const MS: Span = Span::from_millis(1);

fn ms(n: u64) -> Time {
    Time::ZERO + MS * n
}

/// A number between the ends, all orders of magnitude alike.
fn magnitude(rng: &mut Rng, low: f64, high: f64) -> f64 {
    let part = rng.below(1 << 32) as f64 / (1u64 << 32) as f64;
    low * libm::pow(high / low, part)
}

fn rate(rng: &mut Rng, low: f64, high: f64) -> Rate {
    Rate::from_f64(magnitude(rng, low, high))
}

/// 2 to 10 nodes, up to 24 sessions; capacities 1:10^4 under the grant law and alike under the
/// other, half the demands finite, round trips of 0 to 500 ms, weights 1:100 where they count.
fn small(config: Config, seed: u64) -> Builder {
    let mut rng = Rng::new(seed);
    let mut builder = Builder::new(config);
    let (sources, sinks) = (1 + rng.below(5) as u32, 1 + rng.below(5) as u32);
    for v in 0..sources + sinks {
        let interval = Span::from_nanos(10_000_000 + rng.below(90_000_000));
        let capacity = match config.law {
            Law::Grant => rate(&mut rng, 1e7, 1e11),
            Law::EndNode => Rate::from_mbps(1_000),
        };
        builder.node(NodeSpec {
            side: if v < sources { Side::Source } else { Side::Sink },
            capacity,
            interval,
            phase: Span::from_nanos(1 + rng.below(interval.as_nanos())),
            params: Params {
                alpha: magnitude(&mut rng, 0.05, 0.2),
                beta: magnitude(&mut rng, 0.05, 0.3),
                cap_at_target: CapAtTarget::Yes,
            },
        });
    }
    for _ in 0..1 + rng.below(24) {
        let source = NodeId(rng.below(sources.into()) as u32);
        let sink = NodeId(sources + rng.below(sinks.into()) as u32);
        let rtt = match rng.below(8) {
            0 => Span::ZERO,
            _ => Span::from_micros(magnitude(&mut rng, 100.0, 500_000.0) as u64),
        };
        let mut session = SessionSpec::new(source, sink, rtt);
        if rng.below(2) == 0 {
            session.demand = rate(&mut rng, 1e6, 1e9);
        }
        if config.law == Law::Grant {
            session.weight = magnitude(&mut rng, 0.1, 10.0);
        }
        builder.session(session);
    }
    builder
}

/// Joins, leaves and changes of demand and capacity in the first ten seconds.
fn churn(builder: &mut Builder, seed: u64) {
    let mut rng = Rng::new(!seed);
    for k in 0..builder.sessions.len() {
        let session = &mut builder.sessions[k];
        if rng.below(2) == 0 {
            session.joins = ms(rng.below(5_000));
        }
        if rng.below(3) == 0 {
            session.leaves = Some(session.joins + MS * rng.below(5_000));
        }
        while rng.below(2) == 0 {
            let demand = rate(&mut rng, 1e6, 1e9);
            builder.at(ms(rng.below(10_000)), Change::Demand(SessionId(k as u32), demand));
        }
    }
}

fn fall_of_capacity(builder: &mut Builder, seed: u64) {
    let v = Rng::new(seed).below(builder.nodes.len() as u64) as usize;
    let capacity = builder.nodes[v].capacity.scale(0.5);
    builder.at(ms(7_000), Change::Capacity(NodeId(v as u32), capacity));
}

fn build(builder: &Builder) -> World {
    builder.build().expect("a sound network")
}

fn config(law: Law, hosting: Hosting, pace: Pace) -> Config {
    Config { law, hosting, pace }
}

/// The largest distance of any rate from the optimum, as a part of it; rates of next to nothing
/// count as parts of 1 Mbit/s.
fn off_optimum(world: &World) -> f64 {
    let mut rates = Vec::new();
    world.rates(&mut rates);
    let off = |(rate, goal): (&f64, &f64)| (rate - goal).abs() / (goal + 1e6);
    rates.iter().zip(&world.optimum()).map(off).fold(0.0, f64::max)
}

fn either_pace() -> impl Strategy<Value = Pace> {
    prop_oneof![Just(Pace::Intervals), Just(Pace::News)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn granted_rates_reach_the_optimum_and_nothing_is_ever_overloaded(
        seed in any::<u64>(), pace in either_pace(),
    ) {
        let hosting = Hosting::Laws(Telling::Always);
        let mut world = build(&small(config(Law::Grant, hosting, pace), seed));
        world.run_until(ms(30_000));
        // Whole bits at each of up to ten nodes, of rates down to some kbit/s.
        prop_assert!(off_optimum(&world) < 1e-5, "seed {}: {:e}", seed, off_optimum(&world));
        for side in [Side::Source, Side::Sink] {
            let worst = world.worst_load(side);
            prop_assert!(worst.part <= 1.0, "seed {}: {:?}", seed, worst);
        }
        let (_, words) = world.counters();
        world.run_until(ms(60_000));
        prop_assert_eq!(world.counters().1, words, "seed {}: settled, yet it talks", seed);
    }

    #[test]
    fn granted_rates_follow_joins_leaves_and_demands_without_overload(
        seed in any::<u64>(), pace in either_pace(),
    ) {
        let mut builder = small(config(Law::Grant, Hosting::Laws(Telling::AsAgents), pace), seed);
        churn(&mut builder, seed);
        let mut world = build(&builder);
        world.run_until(ms(40_000));
        for side in [Side::Source, Side::Sink] {
            let worst = world.worst_load(side);
            prop_assert!(worst.part <= 1.0, "seed {}: {:?}", seed, worst);
        }
        // An agent keeps small raises to itself, one part in 10^4 at a node.
        prop_assert!(off_optimum(&world) < 0.01, "seed {}: {:e}", seed, off_optimum(&world));
    }

    /// Proposition 3, with steps that stop at the target.
    #[test]
    fn expected_rates_converge_to_the_optimum(seed in any::<u64>()) {
        let mut world = build(&small(Config::THESIS, seed));
        world.run_until(ms(150_000));
        prop_assert!(off_optimum(&world) < 1e-4, "seed {}: {:e}", seed, off_optimum(&world));
    }

    /// Proposition 2: from the optimum, where all have always been, nobody moves.
    #[test]
    fn the_optimum_is_an_equilibrium_of_expected_rates(seed in any::<u64>()) {
        let mut builder = small(Config::THESIS, seed);
        let goal = build(&builder).optimum();
        for (session, goal) in builder.sessions.iter_mut().zip(&goal) {
            session.initial = Rate::from_f64(goal.max(1.0));
        }
        let mut world = build(&builder);
        for step in 1..200 {
            world.run_until(ms(100 * step));
            prop_assert!(off_optimum(&world) < 1e-4, "seed {}: {:e}", seed, off_optimum(&world));
        }
    }

    #[test]
    fn agents_and_their_laws_say_the_same_words_at_the_same_times(
        seed in any::<u64>(), pace in either_pace(), is_grant in any::<bool>(),
    ) {
        let law = if is_grant { Law::Grant } else { Law::EndNode };
        let run = |hosting| {
            let mut builder = small(config(law, hosting, pace), seed);
            churn(&mut builder, seed);
            fall_of_capacity(&mut builder, seed);
            let mut world = build(&builder);
            world.run_until(ms(12_000));
            let mut rates = Vec::new();
            world.rates(&mut rates);
            (world.hash(), world.counters(), rates, world.worst_load(Side::Sink))
        };
        let agents = run(Hosting::Agents);
        prop_assert!(agents.1.1 > 0);
        prop_assert_eq!(run(Hosting::Laws(Telling::AsAgents)), agents, "seed {}", seed);
    }

    #[test]
    fn a_run_in_one_piece_or_many_is_the_same(seed in any::<u64>(), is_grant in any::<bool>()) {
        let preset = if is_grant { Config::GRANT } else { Config::THESIS };
        let mut builder = small(preset, seed);
        churn(&mut builder, seed);
        let (mut whole, mut pieces) = (build(&builder), build(&builder));
        whole.run_until(ms(12_000));
        let mut rng = Rng::new(seed);
        while pieces.now() < ms(12_000) {
            let next = pieces.now() + Span::from_nanos(rng.below(200_000_000));
            pieces.run_until(next.min(ms(12_000)));
        }
        prop_assert_eq!(pieces.hash(), whole.hash());
        for side in [Side::Source, Side::Sink] {
            prop_assert_eq!(pieces.worst_load(side).part, whole.worst_load(side).part);
        }
        for k in 0..whole.sessions() as u32 {
            let k = SessionId(k);
            prop_assert_eq!(pieces.sending_rate(k), whole.sending_rate(k));
            prop_assert_eq!(pieces.arriving_rate(k), whole.arriving_rate(k));
        }
    }
}

/// The same in a debug and in a release build, which both run this test.
#[test]
fn runs_have_the_hashes_that_they_always_had() {
    let hash = |config| {
        let mut world = build(&networks::random(config, 32, 7));
        world.run_until(ms(5_000));
        world.hash()
    };
    let hashes = [hash(Config::GRANT), hash(Config::THESIS)];
    assert_eq!(hashes, [0xab85_7217_454e_95c6, 0x30f0_bab4_603e_e69e], "{hashes:#018x?}");
}

#[test]
fn a_joiner_gets_its_share_and_a_leaver_gives_it_back() {
    let defaults = networks::Defaults::table_vii_1(Config::GRANT, 1);
    let mut builder = networks::many_to_one(&defaults, &[MS * 50, MS * 20]);
    builder.sessions[1].joins = ms(1_000);
    builder.sessions[1].leaves = Some(ms(2_000));
    let mut world = build(&builder);
    let mbps =
        |world: &World| [0, 1].map(|k| world.sending_rate(SessionId(k)).as_bps() / 1_000_000);
    world.run_until(ms(999));
    assert_eq!(mbps(&world), [1_000, 0]);
    assert!(!world.is_active(SessionId(1)));
    world.run_until(ms(1_500));
    assert_eq!(mbps(&world), [500, 500]);
    assert!(world.is_active(SessionId(1)));
    world.run_until(ms(2_500));
    assert_eq!(mbps(&world), [1_000, 0]);
    assert!(world.worst_load(Side::Sink).part <= 1.0);
    assert!(world.change(Change::Demand(SessionId(0), Rate::from_mbps(100))).is_ok());
    assert_eq!(mbps(&world), [100, 0]);
    assert!(world.change(Change::Leave(SessionId(2))).is_err());
}

#[test]
fn changes_at_once_come_to_what_they_come_to_one_by_one() {
    let start = || {
        let mut world = build(&networks::random(Config::GRANT, 32, 3));
        world.run_until(ms(1_000));
        world
    };
    let (mut at_once, mut one_by_one) = (start(), start());
    let leaves: Vec<Change> =
        (0..at_once.sessions() as u32).step_by(2).map(|k| Change::Leave(SessionId(k))).collect();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    at_once.rates(&mut before);
    let unsound = Change::Leave(SessionId(at_once.sessions() as u32));
    let mixed = [&leaves[..], &[unsound]].concat();
    assert_eq!(at_once.change_all(&mixed), Err(BuildError::Change(unsound)));
    at_once.rates(&mut after);
    assert_eq!(before, after, "none of them happened");
    at_once.change_all(&leaves).unwrap();
    leaves.iter().for_each(|leave| one_by_one.change(*leave).unwrap());
    assert_eq!(at_once.generation(), one_by_one.generation());
    for world in [&mut at_once, &mut one_by_one] {
        assert!(
            (0..world.sessions() as u32).all(|k| world.is_active(SessionId(k)) == (k % 2 == 1))
        );
        world.run_until(ms(3_000));
        assert!(off_optimum(world) < 1e-3, "{}", off_optimum(world));
    }
}

#[test]
fn overload_is_found_between_ticks_and_at_its_moment() {
    // Two sources allow 1 Gbit/s each from the start; the sink, too, until its first tick at
    // 90 ms. The second arrives 30 ms after the first, and both are cut half a trip later.
    let mut builder = Builder::new(Config::THESIS);
    let mut node = |side, phase| {
        builder.node(NodeSpec {
            side,
            capacity: Rate::from_mbps(1_000),
            interval: MS * 90,
            phase,
            params: Params::TABLE_VII_1,
        })
    };
    let (a, b, sink) =
        (node(Side::Source, MS * 80), node(Side::Source, MS * 80), node(Side::Sink, MS * 90));
    let initial = Rate::from_mbps(800);
    let rtt = MS * 20;
    builder.session(SessionSpec { initial, ..SessionSpec::new(a, sink, rtt) });
    builder.session(SessionSpec { initial, joins: ms(30), ..SessionSpec::new(b, sink, rtt) });
    let mut world = build(&builder);
    world.run_until(ms(85));
    let worst = world.worst_load(Side::Sink);
    assert_eq!((worst.part, worst.node, worst.at), (1.6, Some(sink), ms(40)));
    world.run_until(ms(89));
    assert_eq!(world.arriving_rate(SessionId(1)), initial);
}

#[test]
fn records_hold_the_worst_of_each_step_and_when_it_settled() {
    let mut world = build(&networks::random(Config::GRANT, 32, 3));
    let record = Record::take(&mut world, ms(2_000), MS * 10, &[SessionId(5)]);
    assert_eq!(record.times.len(), 201);
    assert_eq!(record.times.last(), Some(&ms(2_000)));
    assert_eq!(record.distance[0], record.goal[0]);
    assert!(record.settled(0.01).is_some_and(|at| at < ms(600)));
    assert_eq!(record.distance_at(ms(2_000)), record.distance[200] / record.distance[0]);
    assert!(record.sink_load[200] > 0.999 && record.worst_loads().1 <= 1.0);
    let optimum = world.optimum();
    let jain = gtp_alloc::fairness::jain_index(&optimum);
    assert!(jain < 0.99 && (record.jain[200] - jain).abs() < 1e-3, "{jain}");
    let goal = optimum[5];
    let reached = record.reached(0, goal, 0.01).expect("it settles");
    assert!(reached > Time::ZERO && reached < ms(800), "{reached:?}");
}

#[test]
fn an_unsound_description_is_refused_with_what_to_do() {
    let defaults = networks::Defaults::table_vii_1(Config::THESIS, 1);
    let sound = networks::many_to_one(&defaults, &[MS, MS]);
    assert!(sound.build().is_ok());
    let refused = |spoil: &dyn Fn(&mut Builder)| {
        let mut builder = sound.clone();
        spoil(&mut builder);
        builder.build().expect_err("spoilt")
    };
    let (v, k) = (NodeId(1), SessionId(1));
    assert_eq!(refused(&|b| b.nodes[1].phase = Span::ZERO), BuildError::Interval(v));
    assert_eq!(refused(&|b| b.nodes[1].interval = MS * 1_001), BuildError::Interval(v));
    assert_eq!(refused(&|b| b.nodes[1].params.alpha = 1.0), BuildError::Params(v));
    let huge = Rate::from_bps(u64::MAX - 1);
    assert_eq!(refused(&|b| b.nodes[1].capacity = huge), BuildError::NodeRate(v));
    assert_eq!(refused(&|b| b.sessions[1].sink = NodeId(0)), BuildError::Ends(k));
    assert_eq!(refused(&|b| b.sessions[1].sink = NodeId(9)), BuildError::Ends(k));
    assert_eq!(refused(&|b| b.sessions[1].rtt = MS * 2_001), BuildError::Rtt(k));
    assert_eq!(refused(&|b| b.sessions[1].weight = f64::NAN), BuildError::Weight(k));
    assert_eq!(refused(&|b| b.sessions[1].demand = huge), BuildError::SessionRate(k));
    assert_eq!(refused(&|b| b.sessions[1].initial = huge), BuildError::SessionRate(k));
    let free = |b: &mut Builder| b.nodes.iter_mut().for_each(|n| n.capacity = Rate::UNLIMITED);
    assert_eq!(refused(&free), BuildError::Unbounded(SessionId(0)));
    let backwards = |b: &mut Builder| {
        (b.sessions[1].joins, b.sessions[1].leaves) = (ms(2), Some(ms(1)));
    };
    assert_eq!(refused(&backwards), BuildError::Times(k));
    let own = Params { beta: 0.0, ..Params::TABLE_VII_1 };
    assert_eq!(refused(&|b| b.sessions[1].params = Some(own)), BuildError::SessionParams(k));
    let agents = |b: &mut Builder| b.config.hosting = Hosting::Agents;
    assert_eq!(refused(&agents), BuildError::AgentsCap(NodeId(0)));
    let change = Change::Leave(SessionId(2));
    assert_eq!(refused(&|b| b.at(ms(1), change)), BuildError::Change(change));
    assert!(BuildError::Change(change).to_string().contains("no such session"));
}
