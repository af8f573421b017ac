//! The oracle against a twin that shares nothing with it but the definition.
//!
//! The twin is progressive filling over exact fractions: raise everybody together until a node
//! fills or a demand is met, freeze whoever that stops, go on. Quadratic, and obviously right.

use gtp_alloc::fairness::{Unfair, check_max_min, leximin_cmp};
use gtp_alloc::maxmin::{Network, NetworkError, Session, solve};
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

const UNLIMITED: f64 = f64::INFINITY;

#[derive(Clone, Debug)]
struct Asked {
    uses: Vec<u32>,
    weight: f64,
    demand: f64,
}

fn fraction(x: f64) -> BigRational {
    BigRational::from_float(x).expect("finite")
}

/// Progressive filling, exactly.
fn filled(capacity: &[f64], sessions: &[Asked]) -> Vec<BigRational> {
    let mut rate = vec![BigRational::zero(); sessions.len()];
    let mut rising = vec![true; sessions.len()];
    while rising.contains(&true) {
        // How far each node and each demand lets the level rise from here.
        let mut steps = Vec::new();
        for (v, c) in capacity.iter().enumerate().filter(|(_, c)| c.is_finite()) {
            let (left, weight) = room(fraction(*c), v, sessions, &rate, &rising);
            if !weight.is_zero() {
                steps.push(left / weight);
            }
        }
        for (k, s) in sessions.iter().enumerate() {
            if rising[k] && s.demand.is_finite() {
                steps.push((fraction(s.demand) - &rate[k]) / fraction(s.weight));
            }
        }
        let step = steps.into_iter().min().expect("somebody is limited");
        for (k, s) in sessions.iter().enumerate().filter(|(k, _)| rising[*k]) {
            rate[k] += &step * fraction(s.weight);
        }
        let full: Vec<bool> = (0..capacity.len())
            .map(|v| {
                capacity[v].is_finite()
                    && room(fraction(capacity[v]), v, sessions, &rate, &rising).0.is_zero()
            })
            .collect();
        for (k, s) in sessions.iter().enumerate() {
            let satisfied = s.demand.is_finite() && rate[k] == fraction(s.demand);
            if satisfied || s.uses.iter().any(|&v| full[v as usize]) {
                rising[k] = false;
            }
        }
    }
    rate
}

/// What is left at node `v`, and the sum of the weights that still rise there.
fn room(
    capacity: BigRational,
    v: usize,
    sessions: &[Asked],
    rate: &[BigRational],
    rising: &[bool],
) -> (BigRational, BigRational) {
    let (mut left, mut weight) = (capacity, BigRational::zero());
    for (k, s) in sessions.iter().enumerate().filter(|(_, s)| s.uses.contains(&(v as u32))) {
        left -= &rate[k];
        if rising[k] {
            weight += fraction(s.weight);
        }
    }
    (left, weight)
}

fn network(capacity: &[f64], sessions: &[Asked]) -> Network {
    let mut network = Network::new(capacity.to_vec()).unwrap();
    for s in sessions {
        network.add(Session { uses: &s.uses, weight: s.weight, demand: s.demand }).unwrap();
    }
    network
}

/// A capacity or demand: small whole numbers make ties, the rest makes rounding.
fn amount() -> impl Strategy<Value = f64> {
    prop_oneof![
        1 => Just(0.0),
        8 => (1u32..12).prop_map(f64::from),
        4 => 0.01f64..100.0,
        1 => (-20f64..20.0).prop_map(|e| 2f64.powf(e)),
    ]
}

fn weight() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => Just(1.0),
        2 => (1u32..5).prop_map(f64::from),
        2 => 0.001f64..1000.0,
    ]
}

fn demand() -> impl Strategy<Value = f64> {
    prop_oneof![2 => Just(UNLIMITED), 1 => amount()]
}

fn capacity() -> impl Strategy<Value = f64> {
    prop_oneof![12 => amount(), 1 => Just(UNLIMITED)]
}

fn problems() -> impl Strategy<Value = (Vec<f64>, Vec<Asked>)> {
    vec(capacity(), 1..8).prop_flat_map(|capacity| {
        let nodes = capacity.len() as u32;
        let uses = btree_set(0..nodes, 0..=capacity.len().min(4));
        let session =
            (uses, weight(), demand(), 0u64..2).prop_map(|(uses, weight, demand, flip)| {
                let mut uses: Vec<u32> = uses.into_iter().collect();
                if flip == 1 {
                    uses.reverse();
                }
                Asked { uses, weight, demand }
            });
        (Just(capacity), vec(session, 0..14)).prop_map(|(capacity, mut sessions)| {
            for s in &mut sessions {
                if s.uses.iter().all(|&v| capacity[v as usize] == UNLIMITED)
                    && s.demand == UNLIMITED
                {
                    s.demand = 7.0;
                }
            }
            (capacity, sessions)
        })
    })
}

/// A thousandth of a millionth of a millionth: what may be over a capacity.
fn assert_no_overload(capacity: &[f64], sessions: &[Asked], rates: &[f64]) {
    for (v, &c) in capacity.iter().enumerate().filter(|(_, c)| c.is_finite()) {
        let mut load = BigRational::zero();
        for (s, x) in sessions.iter().zip(rates) {
            if s.uses.contains(&(v as u32)) {
                load += fraction(*x);
            }
        }
        assert!(load <= fraction(c) * fraction(1.0 + 1e-14), "node {v} of {c} carries {load}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn oracle_equals_exact_progressive_filling((capacity, sessions) in problems()) {
        let exact = filled(&capacity, &sessions);
        let rates = solve(&network(&capacity, &sessions));
        let finite = capacity.iter().filter(|c| c.is_finite());
        let largest = finite.fold(0.0, |a: f64, c| a.max(*c));
        for (k, (x, y)) in rates.iter().zip(&exact).enumerate() {
            let y = y.to_f64().unwrap();
            // Differences of the largest capacity lose that much before they are a rate.
            let near = (x - y).abs() <= 1e-12 * y + 1e-13 * largest;
            prop_assert!(near, "session {}: {} but exactly {}", k, x, y);
        }
        assert_no_overload(&capacity, &sessions, &rates);
    }

    #[test]
    fn oracle_passes_the_bottleneck_test_and_nothing_less_does(
        (capacity, sessions) in problems(),
        victim in any::<prop::sample::Index>(),
    ) {
        let network = network(&capacity, &sessions);
        let rates = solve(&network);
        prop_assert_eq!(check_max_min(&network, &rates, 1e-11), Ok(()));
        if sessions.is_empty() {
            return Ok(());
        }
        // Taking a tenth from anybody who has something is unfair to him.
        let k = victim.index(sessions.len());
        let mut worse = rates.clone();
        worse[k] *= 0.9;
        if rates[k] > capacity.iter().copied().filter(|c| c.is_finite()).fold(0.0, f64::max) * 1e-9
        {
            let verdict = check_max_min(&network, &worse, 1e-11);
            let told = matches!(verdict, Err(Unfair::CouldRise { .. }));
            prop_assert!(told, "{:?}", verdict);
            prop_assert_eq!(leximin_cmp(&worse, &rates), core::cmp::Ordering::Less);
        }
    }

    #[test]
    fn order_of_sessions_does_not_matter((capacity, sessions) in problems()) {
        let rates = solve(&network(&capacity, &sessions));
        let mut reversed: Vec<Asked> = sessions.clone();
        reversed.reverse();
        let mut again = solve(&network(&capacity, &reversed));
        again.reverse();
        let largest = capacity.iter().copied().filter(|c| c.is_finite()).fold(0.0, f64::max);
        for (x, y) in rates.iter().zip(&again) {
            prop_assert!((x - y).abs() <= 1e-12 * x + 1e-13 * largest, "{} and {}", x, y);
        }
    }
}

/// A small generator, so that large cases need no crate: Knuth's MMIX constants.
fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn a_hundred_thousand_sessions_pass_the_bottleneck_test() {
    for seed in 0..4 {
        let mut draw = draws(seed);
        let nodes = 2_000u64;
        let capacity = (0..nodes).map(|_| 1e6 * (1 + draw(1_000)) as f64).collect();
        let mut network = Network::new(capacity).unwrap();
        for _ in 0..100_000 {
            let uses = [draw(nodes / 2) as u32, (nodes / 2 + draw(nodes / 2)) as u32];
            let weight = if seed % 2 == 0 { 1.0 } else { (1 + draw(1_000)) as f64 / 31.0 };
            let demand = if draw(3) == 0 { 1e4 * draw(1_000) as f64 } else { UNLIMITED };
            network.add(Session { uses: &uses, weight, demand }).unwrap();
        }
        assert_eq!(check_max_min(&network, &solve(&network), 1e-10), Ok(()), "seed {seed}");
    }
}

#[test]
fn one_node_with_a_million_sessions_is_not_overloaded() {
    let mut network = Network::new(vec![1e9, 1e9]).unwrap();
    for k in 0..1_000_000u32 {
        // Demands of a third of a bit each, most of the way, then one that takes the rest.
        let demand = if k == 0 { UNLIMITED } else { 1_000.0 / 3.0 };
        network.add(Session { uses: &[0, 1], weight: 1.0, demand }).unwrap();
    }
    let rates = solve(&network);
    let load: BigRational = rates.iter().map(|x| fraction(*x)).sum();
    let ratio = (load / fraction(1e9)).to_f64().unwrap();
    assert!((ratio - 1.0).abs() < 1e-15, "{ratio:e}");
}

#[test]
fn a_chain_of_bottlenecks_is_resolved_in_order() {
    // Node v carries the sessions v and v + 1; each level depends on the one before.
    let n = 1_000u32;
    let capacity: Vec<f64> =
        (0..n).map(|v| if v == 0 { 1.0 } else { 2.0 * f64::from(v) }).collect();
    let mut network = Network::new(capacity).unwrap();
    for v in 0..n {
        let uses: &[u32] = if v == 0 { &[0] } else { &[v - 1, v] };
        network.add(Session { uses, weight: 1.0, demand: UNLIMITED }).unwrap();
    }
    assert_eq!(check_max_min(&network, &solve(&network), 1e-12), Ok(()));
}

#[test]
fn each_malformed_session_is_refused_and_leaves_no_trace() {
    let mut network = Network::new(vec![1.0, UNLIMITED]).unwrap();
    let plain = Session { uses: &[0], weight: 1.0, demand: UNLIMITED };
    let mut refused = |s: Session<'_>, e: NetworkError| {
        assert_eq!(network.add(s), Err(e));
        assert_eq!(network.sessions(), 0);
    };
    for weight in [0.0, -1.0, f64::NAN, UNLIMITED, 1e-7, 1e7] {
        refused(Session { weight, ..plain }, NetworkError::Weight { session: 0 });
    }
    for demand in [-1.0, f64::NAN] {
        refused(Session { demand, ..plain }, NetworkError::Demand { session: 0 });
    }
    refused(
        Session { uses: &[0, 2], ..plain },
        NetworkError::UnknownResource { session: 0, resource: 2 },
    );
    refused(
        Session { uses: &[0, 1, 0], ..plain },
        NetworkError::DuplicateResource { session: 0, resource: 0 },
    );
    refused(Session { uses: &[], ..plain }, NetworkError::Unbounded { session: 0 });
    refused(Session { uses: &[1], ..plain }, NetworkError::Unbounded { session: 0 });
    assert_eq!(network.add(Session { uses: &[0, 1], ..plain }), Ok(0));
    assert_eq!(solve(&network), [1.0]);
    for bad in [-1.0, f64::NAN, 1e31, 1e-31] {
        let error = Network::new(vec![0.0, bad]).unwrap_err();
        assert_eq!(error, NetworkError::Capacity { resource: 1 });
    }
}

#[test]
fn zero_demands_and_zero_capacities_end() {
    let mut network = Network::new(vec![0.0, 5.0]).unwrap();
    for (uses, demand) in [(&[0, 1][..], 3.0), (&[1], 0.0), (&[1], UNLIMITED), (&[], 2.0)] {
        network.add(Session { uses, weight: 1.0, demand }).unwrap();
    }
    assert_eq!(solve(&network), [0.0, 0.0, 5.0, 2.0]);
    assert!(solve(&Network::new(vec![]).unwrap()).is_empty());
}
