//! The hierarchical law against a slow twin, and what it promises to users.

use gtp_alloc::grant::{Claim, shares};
use gtp_alloc::tree::{LOW_WEIGHT, Node, Policy, allocate, weights};
use proptest::collection::vec;
use proptest::prelude::*;

fn run(capacity: f64, nodes: &[Node]) -> Vec<f64> {
    let mut out = Vec::new();
    allocate(capacity, nodes, &mut out);
    out
}

fn flat(nodes: &[Node]) -> Vec<f64> {
    let mut out = Vec::new();
    weights(nodes, &mut out);
    out
}

fn children(nodes: &[Node], parent: Option<usize>) -> Vec<usize> {
    (0..nodes.len()).filter(|&n| nodes[n].parent == parent).collect()
}

fn is_low(nodes: &[Node], n: usize) -> bool {
    nodes[n].policy == Policy::Low || nodes[n].parent.is_some_and(|p| is_low(nodes, p))
}

/// The most that everything below a node may have in one pass; by recursion.
fn most(nodes: &[Node], n: usize, pass: Policy, had: &[f64]) -> f64 {
    let below = children(nodes, Some(n));
    let room = (nodes[n].cap - had[n]).max(0.0);
    if !below.is_empty() {
        return room.min(below.iter().map(|&c| most(nodes, c, pass, had)).sum());
    }
    if is_low(nodes, n) == (pass == Policy::Low) { room } else { 0.0 }
}

fn least(nodes: &[Node], n: usize, pass: Policy, had: &[f64]) -> f64 {
    if pass == Policy::Low {
        return 0.0;
    }
    let below: f64 = children(nodes, Some(n)).iter().map(|&c| least(nodes, c, pass, had)).sum();
    nodes[n].guarantee.max(below).min(most(nodes, n, pass, had))
}

/// The same law by halving levels, node by node from the top.
fn twin(capacity: f64, nodes: &[Node]) -> Vec<f64> {
    let mut out = vec![0.0; nodes.len()];
    let mut rest = capacity;
    for pass in [Policy::Normal, Policy::Low] {
        let had = out.clone();
        let used = pour(rest, None, nodes, pass, &had, &mut out);
        rest = (rest - used).max(0.0);
    }
    out
}

fn pour(
    amount: f64,
    parent: Option<usize>,
    nodes: &[Node],
    pass: Policy,
    had: &[f64],
    out: &mut [f64],
) -> f64 {
    let group = children(nodes, parent);
    let low: Vec<f64> = group.iter().map(|&n| least(nodes, n, pass, had)).collect();
    let high: Vec<f64> = group.iter().map(|&n| most(nodes, n, pass, had)).collect();
    let at = |level: f64, i: usize| (nodes[group[i]].weight * level).max(low[i]).min(high[i]);
    let guaranteed: f64 = low.iter().sum();
    let given: Vec<f64> = if guaranteed >= amount && guaranteed > 0.0 {
        low.iter().map(|g| g * (amount / guaranteed)).collect()
    } else {
        let (mut from, mut to) = (0.0_f64, 1e9_f64);
        for _ in 0..200 {
            let middle = (from + to) / 2.0;
            let sum: f64 = (0..group.len()).map(|i| at(middle, i)).sum();
            if sum > amount { to = middle } else { from = middle }
        }
        (0..group.len()).map(|i| at(from, i)).collect()
    };
    for (&n, &g) in group.iter().zip(&given) {
        out[n] += g;
        pour(g, Some(n), nodes, pass, had, out);
    }
    given.iter().sum()
}

fn cap() -> impl Strategy<Value = f64> {
    prop_oneof![2 => Just(f64::INFINITY), 1 => Just(0.0), 4 => 0.0f64..40.0]
}

fn node() -> impl Strategy<Value = Node> {
    let guarantee = prop_oneof![3 => Just(0.0), 1 => 0.0f64..8.0];
    let policy = prop_oneof![5 => Just(Policy::Normal), 1 => Just(Policy::Low)];
    (prop_oneof![Just(1.0), 0.1f64..10.0], guarantee, cap(), policy).prop_map(
        |(weight, guarantee, cap, policy)| Node { parent: None, weight, guarantee, cap, policy },
    )
}

/// Any tree of at most `size` nodes.
fn tree(size: usize) -> impl Strategy<Value = Vec<Node>> {
    vec((node(), any::<u16>()), 1..=size).prop_map(|drawn| {
        let place = |(i, (node, choice)): (usize, (Node, u16))| {
            let parent = usize::from(choice) % (i + 1);
            Node { parent: (parent < i).then_some(parent), ..node }
        };
        drawn.into_iter().enumerate().map(place).collect()
    })
}

fn near(x: f64, y: f64) -> bool {
    (x - y).abs() <= 1e-9 * y.abs() + 1e-9
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn every_node_gets_what_halving_levels_gives(nodes in tree(30), capacity in 0.0f64..200.0) {
        let (fast, slow) = (run(capacity, &nodes), twin(capacity, &nodes));
        for (n, (x, y)) in fast.iter().zip(&slow).enumerate() {
            prop_assert!(near(*x, *y), "node {n}: {x}, twin {y}");
        }
    }

    #[test]
    fn capacity_and_caps_hold_and_nothing_usable_is_left(
        nodes in tree(30),
        capacity in 0.0f64..200.0,
    ) {
        let got = run(capacity, &nodes);
        let tops = children(&nodes, None);
        let used: f64 = tops.iter().map(|&n| got[n]).sum();
        let usable: f64 = [Policy::Normal, Policy::Low].iter().map(|&pass| {
            let none = vec![0.0; nodes.len()];
            tops.iter().map(|&n| most(&nodes, n, pass, &none)).sum::<f64>()
        }).sum();
        prop_assert!(used <= capacity * (1.0 + 1e-12));
        // A cap above both normal and low children may make less usable than the sum says.
        let shared_cap = nodes.iter().any(|n| n.policy == Policy::Low);
        prop_assert!(shared_cap || near(used, capacity.min(usable)), "{used} of {capacity}");
        for (n, x) in got.iter().enumerate() {
            prop_assert!(*x <= nodes[n].cap * (1.0 + 1e-12));
        }
    }

    #[test]
    fn guarantees_hold_when_they_fit_together(nodes in tree(30), capacity in 1.0f64..200.0) {
        let none = vec![0.0; nodes.len()];
        let promised: f64 = children(&nodes, None)
            .iter().map(|&n| least(&nodes, n, Policy::Normal, &none)).sum();
        prop_assume!(promised <= capacity);
        let got = run(capacity, &nodes);
        for (n, x) in got.iter().enumerate() {
            let usable = nodes[n].guarantee.min(most(&nodes, n, Policy::Normal, &none));
            // What stands above may be capped below what is promised beneath it.
            let mut above = nodes[n].parent;
            let mut capped = false;
            while let Some(p) = above {
                let below = children(&nodes, Some(p));
                let sum: f64 = below.iter().map(|&c| least(&nodes, c, Policy::Normal, &none)).sum();
                capped |= sum > most(&nodes, p, Policy::Normal, &none);
                above = nodes[p].parent;
            }
            prop_assert!(capped || *x >= usable * (1.0 - 1e-9), "node {n}: {x} of {usable}");
        }
    }

    #[test]
    fn low_nodes_take_nothing_from_normal_ones(nodes in tree(30), capacity in 0.0f64..200.0) {
        let got = run(capacity, &nodes);
        let mut without = nodes.clone();
        for (n, node) in without.iter_mut().enumerate() {
            if is_low(&nodes, n) {
                node.cap = 0.0;
            }
        }
        let alone = run(capacity, &without);
        for n in (0..nodes.len()).filter(|&n| !is_low(&nodes, n)) {
            if children(&nodes, Some(n)).is_empty() {
                prop_assert!(near(got[n], alone[n]), "node {n}: {} and {}", got[n], alone[n]);
            }
        }
    }

    #[test]
    fn opening_more_sessions_gains_a_user_nothing(
        users in vec((0.1f64..10.0, 1usize..5), 2..6),
        more in 1usize..50,
        capacity in 1.0f64..200.0,
    ) {
        let grow = |extra: usize| {
            let mut nodes = Vec::new();
            for (u, &(weight, sessions)) in users.iter().enumerate() {
                let user = nodes.len();
                nodes.push(Node { weight, ..Node::below(None) });
                for _ in 0..sessions + if u == 0 { extra } else { 0 } {
                    nodes.push(Node::below(Some(user)));
                }
            }
            nodes
        };
        let (before, after) = (grow(0), grow(more));
        prop_assert!(near(run(capacity, &after)[0], run(capacity, &before)[0]));
        let sum = |nodes: &[Node]| -> f64 {
            let flat = flat(nodes);
            children(nodes, Some(0)).iter().map(|&n| flat[n]).sum()
        };
        prop_assert!(near(sum(&after), sum(&before)));
    }

    #[test]
    fn where_all_want_more_the_flat_law_with_flattened_weights_gives_the_same(
        drawn in tree(30),
        capacity in 1.0f64..200.0,
    ) {
        let nodes: Vec<Node> = drawn.iter().map(|n| Node {
            guarantee: 0.0, cap: f64::INFINITY, policy: Policy::Normal, ..*n
        }).collect();
        let flat = flat(&nodes);
        let leaves: Vec<usize> =
            (0..nodes.len()).filter(|&n| children(&nodes, Some(n)).is_empty()).collect();
        let claims: Vec<Claim> =
            leaves.iter().map(|&n| Claim { weight: flat[n], bound: f64::INFINITY }).collect();
        let mut got = Vec::new();
        shares(capacity, &claims, &mut got);
        let whole = run(capacity, &nodes);
        for (share, &n) in got.iter().zip(&leaves) {
            prop_assert!(near(share.target, whole[n]), "{n}: {share:?}, {}", whole[n]);
        }
    }

    #[test]
    fn hostile_numbers_neither_panic_nor_exceed_the_capacity(
        drawn in vec((0usize..7, 0usize..7, 0usize..7, any::<u16>()), 1..12),
        capacity in 0usize..7,
    ) {
        let odd = [f64::NAN, -1.0, 0.0, f64::MIN_POSITIVE, 1.0, f64::MAX, f64::INFINITY];
        let nodes: Vec<Node> = drawn.iter().enumerate().map(|(i, &(w, g, c, p))| {
            let parent = usize::from(p) % (i + 1);
            Node {
                parent: (parent < i).then_some(parent),
                weight: odd[w], guarantee: odd[g], cap: odd[c],
                policy: if p % 5 == 0 { Policy::Low } else { Policy::Normal },
            }
        }).collect();
        let capacity = odd[capacity];
        for x in run(capacity, &nodes) {
            prop_assert!(x >= 0.0, "{x}");
            prop_assert!(capacity == f64::INFINITY || x <= capacity.max(0.0), "{x}");
        }
        prop_assert!(flat(&nodes).iter().all(|w| w.is_finite() && *w > 0.0));
    }
}

#[test]
fn two_users_share_equally_though_one_has_ten_sessions() {
    let mut nodes = vec![Node::below(None), Node::below(None)];
    nodes.push(Node::below(Some(0)));
    nodes.extend((0..10).map(|_| Node::below(Some(1))));
    let got = run(100.0, &nodes);
    assert_eq!(got[..3], [50.0, 50.0, 50.0]);
    assert_eq!(got[3..], [5.0; 10]);
    assert_eq!(flat(&nodes)[3..], [0.1; 10]);
}

#[test]
fn what_one_session_cannot_use_stays_with_its_user() {
    let idle = Node { cap: 10.0, ..Node::below(Some(0)) };
    let nodes =
        [Node::below(None), Node::below(None), idle, Node::below(Some(0)), Node::below(Some(1))];
    assert_eq!(run(100.0, &nodes), [50.0, 50.0, 10.0, 40.0, 50.0]);
}

#[test]
fn a_low_session_waits_for_strangers_too_and_gets_all_they_leave() {
    let low = Node { policy: Policy::Low, ..Node::below(Some(0)) };
    let mut nodes = vec![Node::below(None), Node::below(None), low, Node::below(Some(1))];
    assert_eq!(run(100.0, &nodes), [0.0, 100.0, 0.0, 100.0]);
    assert_eq!(flat(&nodes), [1.0, 1.0, LOW_WEIGHT, 1.0]);
    nodes[3].cap = 30.0;
    assert_eq!(run(100.0, &nodes), [70.0, 30.0, 70.0, 30.0]);
}
