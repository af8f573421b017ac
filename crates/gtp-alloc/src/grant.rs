//! The grant law: what one node of a given capacity lets each of its sessions have.
//!
//! Every session states a weight and a bound (the most it could use, given what limits it
//! elsewhere). The node answers with a target (its weighted max-min share under those bounds) and
//! an offer (the share that the session would have if its own bound were lifted). Offers travel to
//! the other end and become bounds there; from any start this settles at the global weighted
//! max-min allocation. This file knows nothing of messages, numbers or time.

use alloc::vec::Vec;

/// What a session asks of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Positive weight.
    pub weight: f64,
    /// Upper bound in bit/s, `f64::INFINITY` if none.
    pub bound: f64,
}

/// What the node answers, in bit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// The session's weighted max-min share under its bound.
    pub target: f64,
    /// The share that it would have without its bound; never below `w C / sum w`.
    pub offer: f64,
}

/// Weights are clamped to at most this and at least its inverse: nobody needs more, and no
/// product or quotient of them with a rate leaves the range of floats.
const WEIGHT_CLAMP: f64 = 1e9;

/// Shares of `capacity` bit/s (may be infinite) among `claims`, written to `shares` in order.
///
/// NaN and negative capacities and bounds count as zero; weights are clamped into `1e-9..=1e9`,
/// NaN to the lower end. Takes `O(n log n)` at most, and mostly `O(n)`: the level is found without
/// sorting, and of the claims only those are sorted that some offer may push below their bounds.
pub fn shares(capacity: f64, claims: &[Claim], shares: &mut Vec<Share>) {
    shares.clear();
    if capacity == f64::INFINITY {
        let free = |c: &Claim| Share { target: positive(c.bound), offer: f64::INFINITY };
        shares.extend(claims.iter().map(free));
        return;
    }
    let capacity = positive(capacity);
    let rungs: Vec<Rung> = claims.iter().map(Rung::of).collect();
    let all = sum(rungs.iter().map(|rung| rung.weight));
    let level = rise(capacity, all, &rungs, ROUNDS);
    let ladder = Ladder::new(capacity, level, &rungs);
    let least = capacity / all;
    shares.extend(rungs.iter().map(|rung| {
        let wanted = rung.weight * level;
        let offer = if rung.bound < wanted { ladder.offer_below_level(rung) } else { wanted };
        Share {
            target: rung.bound.min(wanted).min(capacity),
            offer: offer.max(rung.weight * least),
        }
    }));
}

/// The level at which the capacity is used up by claims of these weights in all; infinite if all
/// bounds fit.
///
/// What all have is a concave function of the level, so that its tangent reaches the capacity at
/// or below the level that is looked for: from there on, whoever has all that he wants has it for
/// good. Whoever has not is looked at again; these become few soon, and what is left after
/// so many `rounds` is sorted, so that nobody can make it long by what he wants.
fn rise(capacity: f64, all: f64, rungs: &[Rung], rounds: usize) -> f64 {
    let (mut left, mut met, mut level) = (rungs.to_vec(), Sum::default(), capacity / all);
    for _ in 0..rounds {
        let (before, mut beyond) = (left.len(), Sum::default());
        let mut kept = 0;
        for at in 0..before {
            let rung = left[at];
            let waits = rung.bound > rung.weight * level;
            met.add(if waits { 0.0 } else { rung.bound });
            beyond.add(if waits { rung.weight } else { 0.0 });
            left[kept] = rung;
            kept += usize::from(waits);
        }
        if kept == 0 {
            return f64::INFINITY;
        }
        left.truncate(kept);
        level = level.max((capacity - met.value()) / beyond.value());
        if kept == before {
            return level;
        }
    }
    sorted_level(capacity, met, left)
}

/// Looks at those that are left. Each at least quarters what is free times the weights that are left,
/// and with demands of one kind a handful is enough.
const ROUNDS: usize = 24;

/// The level of those that are `left`, where others have `met`.
fn sorted_level(capacity: f64, met: Sum, left: Vec<Rung>) -> f64 {
    let sorted = Sorted::new(left, met, Sum::default());
    let i = first(0, sorted.rungs.len(), |i| sorted.needed(i, 0.0) >= capacity);
    if i == sorted.rungs.len() {
        f64::INFINITY
    } else {
        (capacity - sorted.below[i]).max(0.0) / sorted.beyond[i]
    }
}

/// One claim on the ladder of levels at which claims are satisfied.
#[derive(Clone, Copy)]
struct Rung {
    weight: f64,
    bound: f64,
}

impl Rung {
    #[inline]
    fn of(claim: &Claim) -> Rung {
        let weight = positive(claim.weight).clamp(1.0 / WEIGHT_CLAMP, WEIGHT_CLAMP);
        Rung { weight, bound: positive(claim.bound) }
    }

    fn ratio(&self) -> f64 {
        self.bound / self.weight
    }
}

/// Claims in the order in which a rising level satisfies them, above others that are.
struct Sorted {
    rungs: Vec<Rung>,
    /// `below[i]`: sum of the bounds of those others and of the first i.
    below: Vec<f64>,
    /// `beyond[i]`: sum of the weights from i on, and of all whom no level here satisfies.
    beyond: Vec<f64>,
}

impl Sorted {
    fn new(unsorted: Vec<Rung>, below: Sum, beyond: Sum) -> Sorted {
        // Ratios are not negative, so their bits are in their order, and whole numbers sort faster.
        let key = |(at, rung): (usize, &Rung)| (rung.ratio().to_bits(), at);
        let mut order: Vec<(u64, usize)> = unsorted.iter().enumerate().map(key).collect();
        sort(&mut order);
        let rungs: Vec<Rung> = order.iter().map(|&(_, at)| unsorted[at]).collect();
        let below = running_sums(below, rungs.iter().map(|r| r.bound));
        let mut beyond = running_sums(beyond, rungs.iter().rev().map(|r| r.weight));
        beyond.reverse();
        Sorted { rungs, below, beyond }
    }

    /// What all have at the level of the claim at `i`, another one's weight `more` among them.
    fn needed(&self, i: usize, more: f64) -> f64 {
        self.below[i] + (self.beyond[i] + more) * self.rungs[i].ratio()
    }
}

/// Where the level of a satisfied claim is that is offered more than it wants.
struct Ladder {
    capacity: f64,
    sorted: Sorted,
}

impl Ladder {
    /// Of the claims satisfied at `level`, those above the lowest level to which any offer may
    /// bring it.
    ///
    /// A claim of weight w and bound b that takes as much as it gets takes w L - b more at the
    /// level L, which the others must leave. What they leave as the level falls from here is no
    /// less than the weights beyond it times the fall. Where all are satisfied the level falls no
    /// lower than the highest ratio if so much is free anyway.
    fn new(capacity: f64, level: f64, rungs: &[Rung]) -> Ladder {
        let all_fit = level == f64::INFINITY;
        let top = match all_fit {
            false => level,
            true => rungs.iter().fold(0.0, |highest, rung| rung.ratio().max(highest)),
        };
        let satisfied = |rung: &Rung| all_fit || rung.bound < rung.weight * top;
        let (mut met, mut beyond, mut most) = (Sum::default(), Sum::default(), 0.0_f64);
        for rung in rungs {
            let more = rung.weight * top - rung.bound;
            most = most.max(more);
            met.add(if satisfied(rung) { rung.bound } else { 0.0 });
            beyond.add(if satisfied(rung) { 0.0 } else { rung.weight });
        }
        let lowest = match all_fit {
            false => level - most * ROUNDING / beyond.value(),
            true if most * ROUNDING < capacity - met.value() => f64::INFINITY,
            true => 0.0,
        };
        let (mut pushed, mut below) = (Vec::new(), Sum::default());
        for rung in rungs.iter().filter(|rung| satisfied(rung)) {
            if rung.bound >= rung.weight * lowest {
                pushed.push(*rung);
            } else {
                below.add(rung.bound);
            }
        }
        Ladder { capacity, sorted: Sorted::new(pushed, below, beyond) }
    }

    /// What a satisfied claim would get without its bound: the level of the others and itself,
    /// rising without end, over the capacity.
    fn offer_below_level(&self, rung: &Rung) -> f64 {
        let Rung { weight, bound } = *rung;
        let (wanted, sorted) = (self.capacity + bound, &self.sorted);
        let i = first(0, sorted.rungs.len(), |i| sorted.needed(i, weight) >= wanted);
        weight * ((wanted - sorted.below[i]) / (sorted.beyond[i] + weight))
    }
}

/// More than rounding can do to the sums above.
const ROUNDING: f64 = 1.0 + 1e-9;

/// Sorts, and where there are many without comparing: by the upper bits, the lowest digit first.
fn sort(order: &mut Vec<(u64, usize)>) {
    if order.len() >= MANY {
        let mut other = Vec::new();
        other.resize(order.len(), (0, 0));
        for shift in DIGITS {
            let digit = |key: u64| (key >> shift) as usize % BUCKETS;
            let mut next = [0_usize; BUCKETS];
            order.iter().for_each(|&(key, _)| next[digit(key)] += 1);
            let mut sum = 0;
            for place in &mut next {
                sum += core::mem::replace(place, sum);
            }
            for &entry in order.iter() {
                let place = &mut next[digit(entry.0)];
                other[*place] = entry;
                *place += 1;
            }
            core::mem::swap(order, &mut other);
        }
    }
    // Of what is in order already, this is one look; what is left are keys that differ by less
    // than one part in four million.
    order.sort_unstable();
}

/// From so many on it is worth while.
const MANY: usize = 1_024;
/// Where the digits of a key begin: all of the exponent, and 22 bits of the fraction.
const DIGITS: [u32; 3] = [30, 41, 52];
const BUCKETS: usize = 1 << 11;

/// The first of `from..to` that satisfies `holds`, which stays true once it is; else `to`.
fn first(from: usize, to: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (from, to);
    while from < to {
        let middle = from + (to - from) / 2;
        if holds(middle) { to = middle } else { from = middle + 1 }
    }
    from
}

/// What a sink has let one session have so far, in bit/s.
///
/// A source obeys a grant only half a round trip after it was issued, and says so half a round
/// trip later. Until then anything granted before may still be arriving: it is *committed*.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// The session's target by [`shares`].
    pub target: f64,
    /// The largest grant from the one last echoed by the source up to the newest one issued;
    /// never below `newest`.
    pub committed: f64,
    /// The newest grant issued.
    pub newest: f64,
}

/// The next grant of each session at a sink of `capacity` bit/s, written to `out` in order.
///
/// A decrease is granted at once. Increases share what is not committed to anybody,
/// `capacity - sum committed`, in proportion to what each lacks of its target; going back up to
/// what is committed anyway costs nothing. So for any input
/// `sum max(committed, out) <= max(capacity, sum committed)`: what can be arriving never exceeds
/// the capacity unless the capacity itself has fallen, in which case nobody is raised until the
/// echoes have come back. Every answer lies between zero and the target.
///
/// The sums are exact to about one part in 10^15; grants rounded down to whole bit/s therefore
/// keep the bound exactly for capacities below 10^15 bit/s. NaN and negative inputs count as zero.
pub fn grants(capacity: f64, held: &[Held], out: &mut Vec<f64>) {
    out.clear();
    if capacity == f64::INFINITY {
        out.extend(held.iter().map(|h| positive(h.target)));
        return;
    }
    let capacity = positive(capacity);
    let target = |h: &Held| positive(h.target).min(capacity);
    let newest = |h: &Held| positive(h.newest);
    let committed = |h: &Held| positive(h.committed).max(newest(h));
    let spare = capacity - sum(held.iter().map(committed));
    let lack = |h: &Held| (target(h) - committed(h)).max(0.0);
    let lacking: f64 = held.iter().map(lack).sum();
    let part = if lacking > spare { spare / lacking } else { 1.0 };
    out.extend(held.iter().map(|h| {
        if target(h) <= newest(h) {
            target(h)
        } else if spare < 0.0 {
            newest(h)
        } else if part >= 1.0 || target(h) <= committed(h) {
            target(h)
        } else {
            (committed(h) + part * lack(h)).min(target(h))
        }
    }));
}

/// `x`, or zero where it is negative or NaN.
fn positive(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.0 }
}

/// A sum of non-negative numbers with one rounding error in all (Neumaier's compensation).
#[derive(Clone, Copy, Default)]
struct Sum {
    total: f64,
    lost: f64,
}

impl Sum {
    #[inline]
    fn add(&mut self, x: f64) {
        let next = self.total + x;
        if next < f64::INFINITY {
            // What each of the two lost, whichever is larger (Knuth's two-sum).
            let part = next - self.total;
            self.lost += (self.total - (next - part)) + (x - part);
        }
        self.total = next;
    }

    fn value(self) -> f64 {
        self.total + self.lost
    }
}

fn sum(terms: impl Iterator<Item = f64>) -> f64 {
    let mut sum = Sum::default();
    terms.for_each(|x| sum.add(x));
    sum.value()
}

/// `sum`, and with the first 1, 2, … terms.
fn running_sums(mut sum: Sum, terms: impl ExactSizeIterator<Item = f64>) -> Vec<f64> {
    let mut sums = Vec::with_capacity(terms.len() + 1);
    sums.push(sum.value());
    sums.extend(terms.map(|x| {
        sum.add(x);
        sum.value()
    }));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn granted(capacity: f64, held: &[(f64, f64, f64)]) -> Vec<f64> {
        let held: Vec<Held> = held
            .iter()
            .map(|&(target, committed, newest)| Held { target, committed, newest })
            .collect();
        let mut out = Vec::new();
        grants(capacity, &held, &mut out);
        out
    }

    #[test]
    fn many_are_sorted_as_few_are_with_ties_and_with_neighbours_in_the_last_bit() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let ratio = |at: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match at % 4 {
                0 => 1e6,
                1 => f64::from_bits(1e6_f64.to_bits() + (random >> 60)),
                2 => f64::INFINITY,
                _ => (random >> 20) as f64 / 1e3,
            }
        };
        let keys: Vec<f64> = (0..5 * MANY).map(ratio).collect();
        let mut order: Vec<(u64, usize)> =
            keys.iter().enumerate().map(|(at, key)| (key.to_bits(), at)).collect();
        let mut expected = order.clone();
        expected.sort_unstable();
        sort(&mut order);
        assert_eq!(order, expected);
    }

    #[test]
    fn the_level_is_the_same_however_soon_those_that_are_left_are_sorted() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 11) as f64 / (1_u64 << 53) as f64
        };
        for n in [1, 2, 7, 300] {
            for spread in [0.1, 1.0, 30.0] {
                let rung = |_| Rung { weight: 0.5 + draw(), bound: (spread * draw()).exp2() };
                let rungs: Vec<Rung> = (0..n).map(rung).collect();
                let all = sum(rungs.iter().map(|rung| rung.weight));
                let wanted = sum(rungs.iter().map(|rung| rung.bound));
                for part in [0.01, 0.5, 0.99, 1.01] {
                    let level = |rounds| rise(part * wanted, all, &rungs, rounds);
                    let found = level(ROUNDS);
                    assert_eq!(found == f64::INFINITY, part > 1.0);
                    for rounds in 0..4 {
                        let other = level(rounds);
                        assert!(other == found || (other / found - 1.0).abs() < 1e-12, "{rounds}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_newcomer_waits_until_the_decrease_of_the_holder_is_echoed() {
        assert_eq!(granted(100.0, &[(50.0, 100.0, 100.0), (50.0, 0.0, 0.0)]), [50.0, 0.0]);
        assert_eq!(granted(100.0, &[(50.0, 100.0, 50.0), (50.0, 0.0, 0.0)]), [50.0, 0.0]);
        assert_eq!(granted(100.0, &[(50.0, 50.0, 50.0), (50.0, 0.0, 0.0)]), [50.0, 50.0]);
    }

    #[test]
    fn increases_share_what_is_free_in_proportion_to_what_they_lack() {
        let got = granted(100.0, &[(40.0, 40.0, 40.0), (20.0, 10.0, 10.0), (40.0, 20.0, 20.0)]);
        assert_eq!(got, [40.0, 20.0, 40.0]);
        let got = granted(100.0, &[(10.0, 70.0, 70.0), (40.0, 10.0, 10.0), (50.0, 5.0, 5.0)]);
        assert_eq!(got, [10.0, 10.0 + 15.0 * 30.0 / 75.0, 5.0 + 15.0 * 45.0 / 75.0]);
    }

    #[test]
    fn returning_to_what_is_still_committed_is_free() {
        assert_eq!(granted(100.0, &[(80.0, 100.0, 50.0), (20.0, 0.0, 0.0)]), [80.0, 0.0]);
    }

    #[test]
    fn after_a_fall_of_capacity_nobody_is_raised() {
        assert_eq!(granted(50.0, &[(20.0, 90.0, 90.0), (30.0, 40.0, 10.0)]), [20.0, 10.0]);
    }

    #[test]
    fn infinite_capacity_grants_the_targets() {
        let inf = f64::INFINITY;
        assert_eq!(granted(inf, &[(inf, 5.0, 5.0), (7.0, 9.0, 9.0)]), [inf, 7.0]);
    }

    #[test]
    fn hostile_numbers_yield_grants_between_zero_and_capacity() {
        let odd = [f64::NAN, -1.0, 0.0, f64::MIN_POSITIVE, 1.0, f64::MAX, f64::INFINITY];
        for capacity in odd.into_iter().filter(|c| *c != f64::INFINITY) {
            for a in odd {
                for b in odd {
                    for c in odd {
                        let got = granted(capacity, &[(a, b, c), (b, c, a), (c, a, b)]);
                        assert!(
                            got.iter().all(|x| (0.0..=positive(capacity)).contains(x)),
                            "{capacity} {a} {b} {c}: {got:?}"
                        );
                    }
                }
            }
        }
        assert_eq!(granted(1.0, &[]), vec![0.0; 0]);
    }
}
