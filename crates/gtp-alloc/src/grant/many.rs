//! The grant law among many, without sorting all of them.
//!
//! What all have together is a concave function of the level, so its tangent anywhere reaches the
//! capacity at or below the level that is looked for, and from there the next one, until nobody is
//! satisfied newly. Offers then depend on the order only of those whom an offer to another could
//! push below their bounds: mostly few, just below the level. Where that does not hold, whoever
//! asks has to sort.

use alloc::vec::Vec;

use super::{Claim, Share, Sum, first, higher, lower, positive, running_sums, tame};

/// Tangents that are tried. With demands of one kind a handful is enough, but they can be such that
/// each satisfies only one claim more.
const ROUNDS: usize = 24;
/// Where more than this part of the claims would have to be sorted, all may be as well.
const SORTED_MOST: usize = 8;
/// More than rounding can do to sums.
const ROUNDING: f64 = 1.0 + 1e-9;
/// Sums are made side by side.
const LANES: usize = 4;

/// Claims by columns, filled up with claims of nothing.
struct Columns {
    weights: Vec<f64>,
    bounds: Vec<f64>,
}

/// As [`super::shares`] for a finite capacity; `false` where all have to be sorted.
pub(super) fn shares(capacity: f64, claims: &[Claim], shares: &mut Vec<Share>) -> bool {
    let columns = Columns::new(claims);
    let Some(level) = columns.rise(capacity) else { return false };
    let Some(ladder) = Ladder::new(capacity, level, &columns) else { return false };
    let least = capacity / columns.sum(|weight, _| weight);
    let columns = columns.weights.iter().zip(&columns.bounds).take(claims.len());
    shares.extend(columns.map(|(&weight, &bound)| {
        let full = weight * ladder.level;
        let offer = if bound < full { ladder.offer(weight, bound) } else { full };
        let target = lower(lower(bound, full), capacity);
        Share { target, offer: higher(offer, weight * least) }
    }));
    true
}

impl Columns {
    fn new(claims: &[Claim]) -> Columns {
        let rows = claims.len().next_multiple_of(LANES);
        let mut columns =
            Columns { weights: Vec::with_capacity(rows), bounds: Vec::with_capacity(rows) };
        columns.weights.extend(claims.iter().map(|claim| tame(claim.weight)));
        columns.bounds.extend(claims.iter().map(|claim| positive(claim.bound)));
        columns.weights.resize(rows, 0.0);
        columns.bounds.resize(rows, 0.0);
        columns
    }

    /// Near the level at which the capacity is used up, as it satisfies the same claims; infinite
    /// if all bounds fit, none if it takes too long to find.
    fn rise(&self, capacity: f64) -> Option<f64> {
        let mut level = 0.0;
        for _ in 0..ROUNDS {
            let (met, beyond) = self.tally(level);
            if beyond == 0.0 {
                return Some(f64::INFINITY);
            }
            let next = (capacity - met) / beyond;
            if next <= level {
                return Some(level);
            }
            level = next;
        }
        None
    }

    /// What those have together who are satisfied at this level, and the weights of the others.
    fn tally(&self, level: f64) -> (f64, f64) {
        let (mut met, mut beyond) = ([0.0; LANES], [0.0; LANES]);
        let (weights, bounds) =
            (self.weights.as_chunks::<LANES>(), self.bounds.as_chunks::<LANES>());
        for (weights, bounds) in weights.0.iter().zip(bounds.0) {
            for lane in 0..LANES {
                let waits = bounds[lane] > weights[lane] * level;
                met[lane] += if waits { 0.0 } else { bounds[lane] };
                beyond[lane] += if waits { weights[lane] } else { 0.0 };
            }
        }
        (met.iter().sum(), beyond.iter().sum())
    }

    /// The sum over all claims of a term of their weight and bound.
    fn sum(&self, term: impl Fn(f64, f64) -> f64) -> f64 {
        let mut sums = [Sum::default(); LANES];
        let (weights, bounds) =
            (self.weights.as_chunks::<LANES>(), self.bounds.as_chunks::<LANES>());
        for (weights, bounds) in weights.0.iter().zip(bounds.0) {
            for lane in 0..LANES {
                sums[lane].add(term(weights[lane], bounds[lane]));
            }
        }
        sums.iter().flat_map(|sum| [sum.total, sum.lost]).collect::<Sum>().value()
    }

    /// The highest of such terms, or zero.
    fn highest(&self, term: impl Fn(f64, f64) -> f64) -> f64 {
        let mut most = [0.0; LANES];
        let (weights, bounds) =
            (self.weights.as_chunks::<LANES>(), self.bounds.as_chunks::<LANES>());
        for (weights, bounds) in weights.0.iter().zip(bounds.0) {
            for lane in 0..LANES {
                most[lane] = higher(term(weights[lane], bounds[lane]), most[lane]);
            }
        }
        most.into_iter().fold(0.0, higher)
    }

    /// Weights and bounds of those whom this level satisfies.
    fn satisfied(&self, level: f64) -> impl Iterator<Item = (f64, f64)> + '_ {
        let all = self.weights.iter().zip(&self.bounds).map(|(&weight, &bound)| (weight, bound));
        all.filter(move |&(weight, bound)| bound <= weight * level)
    }
}

/// Where the level of a satisfied claim is that is offered more than it wants.
struct Ladder {
    capacity: f64,
    level: f64,
    /// Ratios of bound and weight, rising, of the claims that an offer to another may push.
    ratios: Vec<f64>,
    /// As in [`super::Filling`], above all who cannot be pushed.
    below: Vec<f64>,
    beyond: Vec<f64>,
}

impl Ladder {
    /// A claim of weight w and bound b that takes as much as it gets takes w L - b more at the
    /// level L, which the others leave. As the level falls from here they leave no less than the
    /// weights beyond it times the fall, so it falls no further than that allows.
    fn new(capacity: f64, near: f64, columns: &Columns) -> Option<Ladder> {
        let ladder =
            |level, ratios, below, beyond| Ladder { capacity, level, ratios, below, beyond };
        if near == f64::INFINITY {
            let met = columns.sum(|_, bound| bound);
            let ratio = |weight, bound| if weight > 0.0 { bound / weight } else { 0.0 };
            let top = columns.highest(ratio);
            let most = columns.highest(|weight, bound| weight * top - bound);
            let all_fit = most * ROUNDING < capacity - met;
            return all_fit.then(|| ladder(near, Vec::new(), [met].into(), [0.0].into()));
        }
        let met = columns.sum(|weight, bound| if bound > weight * near { 0.0 } else { bound });
        let beyond = columns.sum(|weight, bound| if bound > weight * near { weight } else { 0.0 });
        let most = columns.highest(|weight, bound| weight * near - bound);
        let level = (capacity - met).max(0.0) / beyond;
        // Rounding may have raised `near` past somebody's bound, whom `beyond` then lacks.
        let is_near = level * ROUNDING >= near;
        if !is_near {
            return None;
        }
        let lowest = near - most * ROUNDING / beyond;
        let mut pushed: Vec<(f64, f64, f64)> = Vec::new();
        for (weight, bound) in columns.satisfied(near).filter(|&(w, b)| b >= w * lowest && w > 0.0)
        {
            pushed.push((bound / weight, weight, bound));
            if pushed.len() * SORTED_MOST > columns.weights.len() {
                return None;
            }
        }
        if pushed.is_empty() {
            return Some(ladder(level, Vec::new(), [met].into(), [beyond].into()));
        }
        pushed.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let kept = columns.sum(|weight, bound| if bound < weight * lowest { bound } else { 0.0 });
        let below = running_sums([kept].into_iter().collect(), pushed.iter().map(|p| p.2));
        let weights = pushed.iter().rev().map(|p| p.1);
        let mut beyond = running_sums([beyond].into_iter().collect(), weights);
        beyond.reverse();
        Some(ladder(level, pushed.iter().map(|p| p.0).collect(), below, beyond))
    }

    /// What a satisfied claim would get without its bound: the level of the others and itself,
    /// rising without end, over the capacity.
    #[inline]
    fn offer(&self, weight: f64, bound: f64) -> f64 {
        let wanted = self.capacity + bound;
        let needed = |i: usize| self.below[i] + (self.beyond[i] + weight) * self.ratios[i];
        let i = first(0, self.ratios.len(), |i| needed(i) >= wanted);
        weight * ((wanted - self.below[i]) / (self.beyond[i] + weight))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sorted_shares;
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    /// Claims of one kind: with how many binary digits weights and bounds vary, and how many have
    /// no bound.
    fn claims(kind: (u32, u32, u32), seed: u64, n: usize) -> Vec<Claim> {
        let mut random = seed | 1;
        let mut draw = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random >> 11
        };
        let part = |x: u64| x as f64 / (1_u64 << 53) as f64;
        let mut claim = || {
            let weight = (f64::from(kind.0) * part(draw())).exp2();
            let bound = 1e6 * (f64::from(kind.1) * part(draw())).exp2();
            let free = draw() % 1_000 < u64::from(kind.2);
            Claim { weight, bound: if free { f64::INFINITY } else { bound.floor() } }
        };
        (0..n).map(|_| claim()).collect()
    }

    #[test]
    fn sums_side_by_side_have_one_rounding_error_in_all() {
        for n in [1, 2, 3, 4, 5, 4_001, 4_002, 4_003] {
            // Plain sums lose each small one beside the large one of its lane.
            let mut claims = vec![Claim { weight: 1.0, bound: 1.0 / 7.0 }; n];
            claims[n / 2].bound = 1e17;
            let exact = 1e17 + (n - 1) as f64 / 7.0;
            let sum = Columns::new(&claims).sum(|_, bound| bound);
            assert!((sum - exact).abs() <= 16.0, "{n}: {sum}, not {exact}");
        }
    }

    #[test]
    fn a_term_that_is_no_number_is_never_the_highest() {
        let claims = vec![Claim { weight: 1.0, bound: f64::INFINITY }; 5];
        let columns = Columns::new(&claims);
        assert_eq!(columns.highest(|weight, bound| bound - bound / weight), 0.0);
        let of_some = |_, bound: f64| if bound > 0.0 { 3.0 } else { f64::NAN };
        assert_eq!(columns.highest(of_some), 3.0);
    }

    proptest! {
        #[test]
        fn many_are_answered_as_in_order(
            kind in (0_u32..8, 0_u32..12, 0_u32..1_000),
            seed in any::<u64>(),
            n in 1_usize..3_000,
            room in 0.0..1.5_f64,
        ) {
            let claims = claims(kind, seed, n);
            let wanted: f64 = claims.iter().map(|c| c.bound.min(1e9)).sum();
            let capacity = (room * wanted).floor();
            let (mut found, mut expected) = (Vec::new(), Vec::new());
            if !shares(capacity, &claims, &mut found) {
                prop_assert!(found.is_empty());
                return Ok(());
            }
            sorted_shares(capacity, &claims, &mut expected);
            prop_assert_eq!(found.len(), expected.len());
            for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
                for (a, b) in [(a.target, b.target), (a.offer, b.offer)] {
                    let near = (a - b).abs() <= 1e-9 * b.abs() + 1e-3;
                    prop_assert!(near, "{i}: {a} and {b}, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn a_capacity_that_is_a_sum_of_bounds_is_used_up_whatever_its_sum_was_rounded_to() {
        let mut found_level = 0;
        for weight in [1.0, 0.7, 1.0 / 7.0] {
            for (n, rest) in [(50_000, 1e-9), (5_000, 1e9), (3, 1.0)] {
                let mut claims = vec![Claim { weight, bound: 1e6 }; n];
                claims.push(Claim { weight: rest, bound: f64::INFINITY });
                claims.push(Claim { weight: 1.0, bound: 0.0 });
                let capacity = 1e6 * n as f64;
                let (mut found, mut expected) = (Vec::new(), Vec::new());
                sorted_shares(capacity, &claims, &mut expected);
                if !shares(capacity, &claims, &mut found) {
                    assert!(found.is_empty());
                    continue;
                }
                found_level += 1;
                for (a, b) in found.iter().zip(&expected) {
                    let near = (a.target - b.target).abs() <= 1e-9 * b.target + 1e-3;
                    assert!(near, "{} and {}, {n} of {weight}", a.target, b.target);
                }
                let given: f64 = found.iter().map(|share| share.target).sum();
                assert!((given - capacity).abs() <= 1e-6 * capacity, "{given} of {capacity}");
            }
        }
        assert!(found_level > 0, "all were sorted");
    }

    #[test]
    fn the_demands_of_a_host_are_answered_without_sorting_all_of_them() {
        for (room, free) in [(0.3, 0), (0.3, 500), (0.7, 0), (1.2, 0)] {
            let claims = claims((0, 3, free), 7, 5_000);
            let wanted: f64 = claims.iter().map(|c| c.bound.min(1e7)).sum();
            assert!(shares(room * wanted, &claims, &mut Vec::new()), "{room} {free}");
        }
    }

    #[test]
    fn where_an_offer_may_push_anybody_all_are_to_be_sorted() {
        let claims = claims((0, 3, 0), 7, 5_000);
        let wanted: f64 = claims.iter().map(|c| c.bound).sum();
        let mut found = Vec::new();
        assert!(!shares(wanted + 1.0, &claims, &mut found) && found.is_empty());
    }
}
