//! The grant law against bisection, and its commitments against any history.

use gtp_alloc::grant::{Claim, Held, Share, grants, shares};
use num_rational::BigRational;
use proptest::collection::vec;
use proptest::prelude::*;

fn run(capacity: f64, claims: &[Claim]) -> Vec<Share> {
    let mut out = Vec::new();
    shares(capacity, claims, &mut out);
    out
}

fn fraction(x: f64) -> BigRational {
    BigRational::from_float(x).expect("finite")
}

/// Whether all claims together take at least `capacity` at `level`, claim `free` as if it had no
/// bound. Products and sums keep their rounding errors, so this is good to some 30 digits.
fn used_up(capacity: f64, claims: &[Claim], free: Option<usize>, level: f64) -> bool {
    let (mut over, mut lost) = (-capacity, 0.0);
    let mut add = |x: f64| {
        let next = over + x;
        let gone = next - over;
        lost += (over - (next - gone)) + (x - gone);
        over = next;
    };
    for (k, c) in claims.iter().enumerate() {
        let wanted = c.weight * level;
        if wanted <= c.bound || free == Some(k) {
            add(wanted);
            add(c.weight.mul_add(level, -wanted));
        } else {
            add(c.bound);
        }
    }
    over + lost >= 0.0
}

/// The level at which the capacity is used up, by halving the floats between nothing and enough
/// down to the last bit; `None` if it is never used up.
fn bisected(capacity: f64, claims: &[Claim], free: Option<usize>) -> Option<f64> {
    let lightest = claims.iter().map(|c| c.weight).fold(f64::INFINITY, f64::min);
    let (mut low, mut high) = (0, (capacity / lightest * 2.0).to_bits());
    if !used_up(capacity, claims, free, f64::from_bits(high)) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if used_up(capacity, claims, free, f64::from_bits(middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(f64::from_bits(high))
}

fn claim() -> impl Strategy<Value = Claim> {
    let weight = prop_oneof![Just(1.0), 0.1f64..10.0, 0.001f64..1000.0];
    let bound = prop_oneof![
        2 => Just(f64::INFINITY),
        1 => Just(0.0),
        4 => 0.0f64..1.0,
        2 => (-20f64..4.0).prop_map(|e| 2f64.powf(e)),
    ];
    (weight, bound).prop_map(|(weight, bound)| Claim { weight, bound })
}

/// Bounds are drawn for a capacity of about one; this brings both to any size.
fn problem(most: usize) -> impl Strategy<Value = (f64, Vec<Claim>)> {
    (vec(claim(), 1..=most), 0.01f64..10.0, 0i32..40).prop_map(|(mut claims, capacity, size)| {
        let scale = 2f64.powi(size);
        let n = claims.len() as f64;
        claims.iter_mut().for_each(|c| c.bound *= scale / n);
        (capacity * scale, claims)
    })
}

fn near(x: f64, y: f64, relative: f64) -> bool {
    (x - y).abs() <= relative * y.abs()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn targets_and_offers_equal_bisection((capacity, claims) in problem(40)) {
        let level = bisected(capacity, &claims, None);
        for (k, (share, c)) in run(capacity, &claims).iter().zip(&claims).enumerate() {
            let target = level.map_or(c.bound, |level| c.bound.min(c.weight * level));
            prop_assert!(near(share.target, target, 3e-14), "{k}: {share:?}, target {target}");
            let offer = c.weight * bisected(capacity, &claims, Some(k)).unwrap();
            prop_assert!(near(share.offer, offer, 3e-14), "{k}: {share:?}, offer {offer}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn targets_never_exceed_capacity_nor_bounds((capacity, claims) in problem(200)) {
        let got = run(capacity, &claims);
        let load: BigRational = got.iter().map(|s| fraction(s.target)).sum();
        prop_assert!(load <= fraction(capacity) * fraction(1.0 + 1e-15));
        for (share, c) in got.iter().zip(&claims) {
            prop_assert!(share.target <= c.bound && share.target <= share.offer * (1.0 + 1e-14));
        }
    }

    #[test]
    fn an_offer_is_never_below_the_weighted_part((capacity, claims) in problem(200)) {
        let weights: f64 = claims.iter().map(|c| c.weight).sum();
        for (share, c) in run(capacity, &claims).iter().zip(&claims) {
            prop_assert!(share.offer >= c.weight * capacity / weights * (1.0 - 1e-13));
        }
    }

    #[test]
    fn an_offer_does_not_depend_on_the_bound_it_answers(
        (capacity, mut claims) in problem(50),
        chosen in any::<prop::sample::Index>(),
        bound in 0.0f64..1.0,
    ) {
        let k = chosen.index(claims.len());
        let before = run(capacity, &claims)[k].offer;
        claims[k].bound = bound * capacity;
        let after = run(capacity, &claims)[k].offer;
        prop_assert!(near(after, before, 1e-12), "{} then {}", before, after);
    }

    #[test]
    fn any_input_yields_shares_between_zero_and_capacity(
        capacity in any::<f64>(),
        claims in vec((any::<f64>(), any::<f64>()), 0..20),
    ) {
        let claims: Vec<Claim> =
            claims.into_iter().map(|(weight, bound)| Claim { weight, bound }).collect();
        for share in run(capacity, &claims) {
            prop_assert!(share.target >= 0.0 && share.offer >= 0.0);
            if capacity.is_nan() || capacity < 0.0 {
                prop_assert_eq!(share.target, 0.0);
            } else if capacity < f64::INFINITY {
                prop_assert!(share.target <= capacity);
            }
        }
    }

    #[test]
    fn grants_keep_what_may_be_arriving_within_capacity(
        capacity in 1e-3f64..1e12,
        held in vec((0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0), 1..60),
        fill in 0.0f64..1.5,
    ) {
        let all: f64 = held.iter().map(|h| h.1).sum::<f64>() + 1e-9;
        let held: Vec<Held> = held
            .into_iter()
            .map(|(target, committed, newest)| {
                let committed = committed / all * fill * capacity;
                Held { target: target * capacity, committed, newest: newest * committed }
            })
            .collect();
        let mut out = Vec::new();
        grants(capacity, &held, &mut out);
        let exact = |terms: Vec<f64>| terms.into_iter().map(fraction).sum::<BigRational>();
        let arriving = exact(held.iter().zip(&out).map(|(h, x)| h.committed.max(*x)).collect());
        let before = exact(held.iter().map(|h| h.committed).collect());
        let limit = before.max(fraction(capacity)) * fraction(1.0 + 1e-15);
        prop_assert!(arriving <= limit);
        for (h, x) in held.iter().zip(&out) {
            prop_assert!(*x <= h.target, "never above the target");
            prop_assert!(h.target > h.newest || *x == h.target, "a decrease is granted at once");
            prop_assert!(h.target < h.newest || *x >= h.newest, "no decrease without cause");
        }
    }

    #[test]
    fn grants_reach_the_targets_once_echoes_return(
        capacity in 1.0f64..1e9,
        parts in vec((0.0f64..1.0, 0.0f64..1.0), 1..40),
    ) {
        // Any start within capacity, any targets within capacity, an echo after every round.
        let starts: f64 = parts.iter().map(|p| p.0).sum::<f64>() + 1e-9;
        let targets: f64 = parts.iter().map(|p| p.1).sum::<f64>() + 1e-9;
        let mut held: Vec<Held> = parts
            .iter()
            .map(|(start, target)| {
                let newest = start / starts * capacity * (1.0 - 1e-15);
                let target = target / targets * capacity * (1.0 - 1e-12);
                Held { target, committed: newest, newest }
            })
            .collect();
        let mut out = Vec::new();
        for _ in 0..2 {
            grants(capacity, &held, &mut out);
            for (h, x) in held.iter_mut().zip(&out) {
                (h.newest, h.committed) = (*x, *x);
            }
        }
        for (h, x) in held.iter().zip(&out) {
            prop_assert!(near(*x, h.target, 1e-9) || h.target < 1e-9 * capacity);
        }
    }
}

#[test]
fn ten_thousand_claims_of_extreme_ratios_stay_exact() {
    let mut state = 7u64;
    let mut draw = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    for _ in 0..3 {
        let claims: Vec<Claim> = (0..10_000)
            .map(|_| Claim {
                weight: 10f64.powf(6.0 * draw() - 3.0),
                bound: 10f64.powf(12.0 * draw() - 3.0),
            })
            .collect();
        let capacity = 1e9;
        let got = run(capacity, &claims);
        let level = bisected(capacity, &claims, None).unwrap();
        for (share, c) in got.iter().zip(&claims) {
            assert!(near(share.target, c.bound.min(c.weight * level), 3e-14));
        }
        for k in [0, 999, 5_000, 9_999] {
            let offer = claims[k].weight * bisected(capacity, &claims, Some(k)).unwrap();
            assert!(near(got[k].offer, offer, 3e-14), "{} and {offer}", got[k].offer);
        }
    }
}
