//! One run of the end-node law on random inputs: what thesis VI.2 and VI.3 say of it.
//!
//! A second implementation, line by line from the print with its errata put right, shows the
//! target rates that the project's function keeps to itself. Every property is tried on inputs
//! with idle sessions, equal ones and sums near the capacity, where the claims are tightest.

use super::formula::Quantities;
use super::response;
use gtp_alloc::Rate;
use gtp_alloc::endnode::{CapAtTarget, Params, expected_rates};
use gtp_alloc::fairness::{distance, leximin_cmp};
use gtp_link::Rng;
use serde::Deserialize;
use std::cmp::Ordering;

/// A property of one run of the law.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// Eq. VI.3: `law_off` (largest difference from the print as a part of the capacity, beyond one
    /// bit), `target_falls` (how often a target was below the one before), `least_target` (as a
    /// part of an equal share).
    Target,
    /// VI.2.F: `excess` over the capacity in the worst case, by the number of `sessions`, and
    /// `random_excess` over any random case, both as parts of `alpha C`, the latter divided by its
    /// bound; `bound` by the number of sessions.
    Excess,
    /// Lemma 1: how often its parts (a), (b) and (c) are broken at one node: `broken_a`,
    /// `broken_b`, `broken_c`.
    Order,
    /// Lemma 4: `least_step`, the smallest raise of a session below its target as a part of
    /// `alpha beta C / K`.
    Step,
    /// VII.1.C: `distance_off`, the largest relative difference of the distance from its
    /// definition, and `distance_at_goal`.
    Distance,
    /// II.5.B: mean windows of four TCP laws under regular loss; see `response`. Draws nothing.
    Responses,
}

/// Tries a property on `cases` random inputs.
pub fn run(property: Property, cases: usize, seed: u64, quantities: &mut Quantities) {
    let mut rng = Rng::new(seed);
    let mut put = |name: &str, values: Vec<f64>| quantities.insert(name.to_owned(), values);
    put("cases", vec![cases as f64]);
    match property {
        Property::Target => target(cases, &mut rng, &mut put),
        Property::Excess => excess(cases, &mut rng, &mut put),
        Property::Order => order(cases, &mut rng, &mut put),
        Property::Step => step(cases, &mut rng, &mut put),
        Property::Distance => distances(cases, &mut rng, &mut put),
        Property::Responses => response::run(quantities),
    }
}

/// Where results go.
type Put<'a> = dyn FnMut(&str, Vec<f64>) -> Option<Vec<f64>> + 'a;

fn target(cases: usize, rng: &mut Rng, put: &mut Put<'_>) {
    let (mut off, mut falls, mut least) = (0.0f64, 0, f64::INFINITY);
    for _ in 0..cases {
        let (p, node) = (parameters(rng), Node::random(rng));
        let (print, targets) = printed(&p, node.capacity, &node.measured);
        let ours = node.run(&p);
        let differences = ours.iter().zip(&print).map(|(x, y)| (x - y).abs() - 1.0);
        off = off.max(differences.fold(0.0, f64::max) / node.capacity);
        falls += targets.windows(2).filter(|pair| pair[1] < pair[0] * (1.0 - 1e-12)).count();
        let share = node.capacity / node.measured.len() as f64;
        least = least.min(targets.iter().copied().fold(f64::INFINITY, f64::min) / share);
    }
    put("law_off", vec![off]);
    put("target_falls", vec![falls as f64]);
    put("least_target", vec![least]);
}

fn excess(cases: usize, rng: &mut Rng, put: &mut Put<'_>) {
    let p = Params::CHAPTER_VIII;
    let sizes = [2usize, 3, 5, 10, 32, 100];
    let bound = |n: usize| (1..=n).map(|k| 1.0 / k as f64).sum::<f64>() - 1.0 + p.beta;
    let over = |node: &Node| {
        (node.run(&p).iter().sum::<f64>() - node.capacity) / (p.alpha * node.capacity)
    };
    let worst = |n: usize| {
        // All but one idle, and the last just below the whole capacity.
        let capacity = 1e15;
        let mut measured = vec![0.0; n];
        measured[n - 1] = (capacity * (1.0 - 1e-8f64)).floor();
        over(&Node { capacity, measured })
    };
    let ratio = |node: &Node| over(node) / bound(node.measured.len());
    let random = (0..cases).map(|_| Node::random(rng)).filter(|n| n.measured.len() > 1);
    let random = random.map(|node| ratio(&node)).fold(f64::NEG_INFINITY, f64::max);
    put("sessions", sizes.iter().map(|n| *n as f64).collect());
    put("excess", sizes.iter().map(|n| worst(*n)).collect());
    put("bound", sizes.iter().map(|n| bound(*n)).collect());
    put("random_excess", vec![random]);
}

/// Lemma 1 at one node without demands, whose max-min rates are equal parts. One part in 10^9
/// counts as equal, as it does in the law.
fn order(cases: usize, rng: &mut Rng, put: &mut Put<'_>) {
    let p = Params::CHAPTER_VIII;
    let mut broken = [0usize; 3];
    for _ in 0..cases {
        let node = Node::random(rng);
        let average = &node.measured;
        let least: Vec<f64> = average.iter().map(|x| (x * unit(rng)).floor()).collect();
        let equal = vec![(node.capacity / average.len() as f64).floor(); average.len()];
        let expected = node.run(&p);
        let is_less = |x: &[f64], y: &[f64]| leximin_cmp(x, y) == Ordering::Less;
        broken[0] += usize::from(leximin_cmp(&least, average) == Ordering::Greater);
        let slowest = average.iter().copied().fold(f64::INFINITY, f64::min);
        let settled = slowest >= equal[0] * (1.0 - 2e-9) - 1.0;
        let rises = is_less(average, &expected);
        broken[1] += usize::from(is_less(average, &equal) && !settled && !rises);
        let between = is_less(&equal, average) && is_less(&least, &equal);
        broken[2] += usize::from(between && !is_less(&least, &expected));
    }
    for (name, count) in ["broken_a", "broken_b", "broken_c"].into_iter().zip(broken) {
        put(name, vec![count as f64]);
    }
}

fn step(cases: usize, rng: &mut Rng, put: &mut Put<'_>) {
    let mut least = f64::INFINITY;
    for _ in 0..cases {
        let (p, node) = (parameters(rng), Node::random(rng));
        let (_, targets) = printed(&p, node.capacity, &node.measured);
        let share = p.alpha * p.beta * node.capacity / node.measured.len() as f64;
        // The pass that ends the loop raises nobody; those before it raised the slowest in turn.
        let mut order: Vec<usize> = (0..node.measured.len()).collect();
        order.sort_by(|a, b| node.measured[*a].total_cmp(&node.measured[*b]));
        let raised = targets.len() - 1;
        let expected = node.run(&p);
        for &k in &order[..raised] {
            least = least.min((expected[k] - node.measured[k] + 1.0) / share);
        }
    }
    put("least_step", vec![least]);
}

fn distances(cases: usize, rng: &mut Rng, put: &mut Put<'_>) {
    let mut off = 0.0f64;
    let mut at_goal = 0.0f64;
    for _ in 0..cases {
        let n = 1 + rng.below(50) as usize;
        let mut vector = || -> Vec<f64> { (0..n).map(|_| unit(rng) * 1e9).collect() };
        let (rates, goals) = (vector(), vector());
        let mut squares = 0.0;
        for k in 0..n {
            squares += libm::pow(rates[k] - goals[k], 2.0);
        }
        let plain = libm::sqrt(squares);
        off = off.max((distance(&rates, &goals) / plain - 1.0).abs());
        at_goal = at_goal.max(distance(&goals, &goals));
    }
    put("distance_off", vec![off]);
    put("distance_at_goal", vec![at_goal]);
}

/// A node's capacity and what it measured, in whole bit/s.
struct Node {
    capacity: f64,
    measured: Vec<f64>,
}

impl Node {
    /// Up to forty sessions: idle, equal, tiny and ordinary ones, up to half above the capacity.
    fn random(rng: &mut Rng) -> Node {
        let capacity = (1e6 * libm::pow(1e6, unit(rng))).floor();
        let part = |rng: &mut Rng| match rng.below(9) {
            0 | 1 => 0.0,
            2 | 3 => 1.0,
            4..=7 => unit(rng),
            8.. => unit(rng) / 100.0,
        };
        let n = 1 + rng.below(40);
        let parts: Vec<f64> = (0..n).map(|_| part(rng)).collect();
        let scale = capacity * 1.5 * unit(rng) / (parts.iter().sum::<f64>() + 1e-12);
        Node { capacity, measured: parts.into_iter().map(|x| (x * scale).floor()).collect() }
    }

    /// The project's law.
    fn run(&self, p: &Params) -> Vec<f64> {
        let measured: Vec<Rate> = self.measured.iter().map(|x| Rate::from_f64(*x)).collect();
        let mut expected = vec![Rate::ZERO; measured.len()];
        expected_rates(p, Rate::from_f64(self.capacity), &measured, &mut expected);
        expected.into_iter().map(Rate::as_f64).collect()
    }
}

/// Algorithm 2 from the print, and the target rate of each pass. `[FIX]` undetermined sessions are
/// kept as a list; a rate one bit (and its part in the others' rounding) or one part in 10^9 below
/// its target counts as there.
pub fn printed(p: &Params, capacity: f64, measured: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = measured.len();
    let mut waiting: Vec<usize> = (0..n).collect();
    waiting.sort_by(|a, b| measured[*a].total_cmp(&measured[*b]));
    let mut expected = vec![0.0; n];
    let mut targets = Vec::new();
    let mut gone = 0.0;
    while !waiting.is_empty() {
        let target = (capacity - gone) / waiting.len() as f64; // eq. VI.3
        targets.push(target);
        let average = measured[waiting[0]];
        let grain = (n as f64 / waiting.len() as f64).max(1e-9 * target);
        if average >= target - grain {
            waiting.drain(..).for_each(|k| expected[k] = target);
            break;
        }
        let distance = target - average;
        let stride = (p.alpha * distance).max(p.beta * p.alpha * target).min(p.alpha * target);
        expected[waiting[0]] = average + stride;
        gone += average;
        waiting.remove(0);
    }
    (expected, targets)
}

fn parameters(rng: &mut Rng) -> Params {
    let alpha = 0.01 + 0.98 * unit(rng);
    Params { alpha, beta: 0.01 + 0.98 * unit(rng), cap_at_target: CapAtTarget::No }
}

/// Uniform in [0, 1).
pub fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
