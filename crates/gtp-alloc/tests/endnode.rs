//! The end-node law against its print, and the properties that the thesis and its corrections
//! state of one run (VI.2.C to VI.2.F).

use gtp_alloc::Rate;
use gtp_alloc::endnode::{CapAtTarget, Params, expected_rates};
use proptest::collection::vec;
use proptest::prelude::*;

/// Algorithm 2 line by line, with its errata put right and no thought of speed. Also returns the
/// target rate of every pass. `print` is line 12's comparison with the tolerance for whole bits.
fn printed(p: &Params, capacity: f64, measured: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = measured.len();
    let mut expected: Vec<Option<f64>> = vec![None; n];
    let mut targets = Vec::new();
    while expected.contains(&None) {
        let determined: f64 = (0..n).filter(|&k| expected[k].is_some()).map(|k| measured[k]).sum();
        let undetermined = expected.iter().filter(|e| e.is_none()).count();
        let target = (capacity - determined) / undetermined as f64;
        targets.push(target);
        let slowest = (0..n)
            .filter(|&k| expected[k].is_none())
            .min_by(|&a, &b| measured[a].total_cmp(&measured[b]))
            .unwrap();
        let average = measured[slowest];
        let grain = n as f64 / undetermined as f64;
        if average >= target - (1e-9 * target).max(grain) {
            expected.iter_mut().filter(|e| e.is_none()).for_each(|e| *e = Some(target));
            break;
        }
        let mut step = p.alpha * (target - average);
        step = step.max(p.beta * p.alpha * target);
        step = step.min(p.alpha * target);
        expected[slowest] = Some(match p.cap_at_target {
            CapAtTarget::No => average + step,
            CapAtTarget::Yes => target.min(average + step),
        });
    }
    (expected.into_iter().map(Option::unwrap).collect(), targets)
}

fn run(p: &Params, capacity: f64, measured: &[f64]) -> Vec<f64> {
    let measured: Vec<Rate> = measured.iter().map(|&x| Rate::from_f64(x)).collect();
    let mut expected = vec![Rate::ZERO; measured.len()];
    expected_rates(p, Rate::from_f64(capacity), &measured, &mut expected);
    expected.into_iter().map(Rate::as_f64).collect()
}

fn harmonic(n: usize) -> f64 {
    (1..=n).map(|k| 1.0 / k as f64).sum()
}

fn params() -> impl Strategy<Value = Params> {
    let cap = prop_oneof![Just(CapAtTarget::No), Just(CapAtTarget::Yes)];
    (0.01f64..0.99, 0.01f64..0.99, cap).prop_map(|(alpha, beta, cap_at_target)| Params {
        alpha,
        beta,
        cap_at_target,
    })
}

/// Capacity and measured rates in whole bits: idle sessions, equal ones, sums near the capacity.
fn node() -> impl Strategy<Value = (f64, Vec<f64>)> {
    let part = prop_oneof![2 => Just(0.0), 2 => Just(1.0), 4 => 0.0f64..1.0, 1 => 0.0f64..0.01];
    (1e6f64..1e13, vec(part, 1..40), 0.0f64..1.5).prop_map(|(capacity, parts, fill)| {
        let all: f64 = parts.iter().sum::<f64>() + 1e-12;
        let capacity = capacity.floor();
        (capacity, parts.into_iter().map(|x| (x / all * fill * capacity).floor()).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn law_equals_its_print((p, (capacity, measured)) in (params(), node())) {
        let (print, _) = printed(&p, capacity, &measured);
        for (x, y) in run(&p, capacity, &measured).iter().zip(&print) {
            prop_assert!((x - y).abs() <= 1.0 + 1e-9 * y, "{} and {}", x, y);
        }
    }

    /// Property 1.
    #[test]
    fn target_never_falls_within_a_run((p, (capacity, measured)) in (params(), node())) {
        let (_, targets) = printed(&p, capacity, &measured);
        for pair in targets.windows(2) {
            prop_assert!(pair[1] >= pair[0] * (1.0 - 1e-12));
        }
        prop_assert!(targets[0] > 0.0);
    }

    /// Property 1's consequence: only a session above its target is ever lowered, and never
    /// below an equal part.
    #[test]
    fn no_session_is_lowered_below_an_equal_part((p, (capacity, measured)) in (params(), node())) {
        let part = capacity / measured.len() as f64;
        for (x, average) in run(&p, capacity, &measured).iter().zip(&measured) {
            prop_assert!(*x >= average.min(part) - 1.0);
        }
    }

    /// Property 2, with the tight bound in place of the printed alpha C.
    #[test]
    fn excess_is_at_most_alpha_c_times_the_harmonic_bound(
        (p, (capacity, measured)) in (params(), node()),
    ) {
        let beta = match p.cap_at_target { CapAtTarget::No => p.beta, CapAtTarget::Yes => 0.0 };
        let bound = p.alpha * capacity * (harmonic(measured.len()) - 1.0 + beta);
        let excess = run(&p, capacity, &measured).iter().sum::<f64>() - capacity;
        prop_assert!(excess <= bound + 1e-8 * capacity, "{} over {}", excess, bound);
    }

    /// Property 3.
    #[test]
    fn from_idle_the_nth_session_gets_alpha_c_over_the_rest(p in params(), n in 1usize..50) {
        let capacity = 1e12;
        for (k, x) in run(&p, capacity, &vec![0.0; n]).iter().enumerate() {
            let alone = p.alpha * capacity / (n - k) as f64;
            prop_assert!((x - alone).abs() <= 1.0);
        }
    }

    /// Property 4 and its remedy: just below the target the smallest step ripples, unless capped.
    #[test]
    fn a_settled_session_ripples_by_alpha_beta_unless_capped(p in params(), n in 1usize..20) {
        let capacity = 1e12;
        let part = (capacity / n as f64 * 0.999_999).floor();
        let slowest = run(&p, capacity, &vec![part; n])[0];
        let target = (capacity / n as f64).floor();
        match p.cap_at_target {
            CapAtTarget::Yes => prop_assert!(slowest <= target),
            CapAtTarget::No => {
                let ripple = part + p.alpha * p.beta * capacity / n as f64;
                prop_assert!((slowest - ripple).abs() <= 2.0, "{} and {}", slowest, ripple);
            }
        }
    }

    /// Lemma 4's smallest increment.
    #[test]
    fn a_raise_is_at_least_alpha_beta_c_over_k((p, (capacity, measured)) in (params(), node())) {
        let p = Params { cap_at_target: CapAtTarget::No, ..p };
        let smallest = p.alpha * p.beta * capacity / measured.len() as f64;
        let (_, targets) = printed(&p, capacity, &measured);
        let slowest = measured.iter().copied().fold(f64::INFINITY, f64::min);
        if slowest < targets[0] - (1e-9 * targets[0]).max(1.0) {
            let k = measured.iter().position(|x| *x == slowest).unwrap();
            prop_assert!(run(&p, capacity, &measured)[k] - slowest >= smallest - 1.0);
        }
    }
}

#[test]
fn the_harmonic_bound_is_attained_so_the_printed_one_is_false() {
    let p = Params::CHAPTER_VIII;
    let capacity = 1e15;
    for (n, times) in [(2, 0.7), (5, 1.4833), (32, 3.2585), (100, 4.3874)] {
        let mut measured = vec![0.0; n - 1];
        measured.push(capacity * (1.0 - 1e-8));
        let excess = run(&p, capacity, &measured).iter().sum::<f64>() - capacity;
        let bound = harmonic(n) - 1.0 + p.beta;
        let got = excess / (p.alpha * capacity);
        assert!((got - bound).abs() < 1e-6, "{n}: {got} and {bound}");
        assert!((got - times).abs() < 1e-4, "{n}: {got}");
    }
}
