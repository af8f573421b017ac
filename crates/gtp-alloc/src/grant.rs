//! The grant law: what one node of a given capacity lets each of its sessions have.
//!
//! Every session states a weight and a bound (the most it could use, given what limits it
//! elsewhere). The node answers with a target (its weighted max-min share under those bounds) and
//! an offer (the share that the session would have if its own bound were lifted). Offers travel to
//! the other end and become bounds there; from any start this settles at the global weighted
//! max-min allocation. This file knows nothing of messages, numbers or time.

mod many;

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
/// NaN to the lower end. Takes `O(n log n)`.
pub fn shares(capacity: f64, claims: &[Claim], shares: &mut Vec<Share>) {
    shares.clear();
    if capacity == f64::INFINITY {
        let free = |c: &Claim| Share { target: positive(c.bound), offer: f64::INFINITY };
        shares.extend(claims.iter().map(free));
        return;
    }
    let capacity = positive(capacity);
    if claims.len() < MANY || !many::shares(capacity, claims, shares) {
        sorted_shares(capacity, claims, shares);
    }
}

/// The same for a finite capacity, in the order in which a rising level satisfies the claims.
fn sorted_shares(capacity: f64, claims: &[Claim], shares: &mut Vec<Share>) {
    let filling = Filling::new(capacity, claims);
    let level = filling.level();
    shares.resize(claims.len(), Share::default());
    let least = filling.capacity / filling.beyond[0];
    let mut near = 0;
    for (place, rung) in filling.rungs.iter().enumerate() {
        let offer = if rung.ratio >= level {
            rung.weight * level
        } else {
            filling.offer_below_level(place, &mut near)
        };
        shares[rung.claim] = Share {
            target: rung.bound.min(rung.weight * level).min(filling.capacity),
            offer: offer.max(rung.weight * least),
        };
    }
}

/// One claim on the ladder of levels at which claims are satisfied.
#[derive(Clone, Copy)]
struct Rung {
    ratio: f64,
    weight: f64,
    bound: f64,
    claim: usize,
}

/// A node's claims in the order in which a rising level satisfies them.
struct Filling {
    capacity: f64,
    rungs: Vec<Rung>,
    /// `below[i]`: sum of the first i bounds.
    below: Vec<f64>,
    /// `beyond[i]`: sum of the weights from i on.
    beyond: Vec<f64>,
}

impl Filling {
    fn new(capacity: f64, claims: &[Claim]) -> Filling {
        let rung = |(claim, c): (usize, &Claim)| {
            let (weight, bound) = (tame(c.weight), positive(c.bound));
            Rung { ratio: bound / weight, weight, bound, claim }
        };
        let unsorted: Vec<Rung> = claims.iter().enumerate().map(rung).collect();
        // Ratios are not negative, so their bits are in their order, and whole numbers sort faster.
        let key = |rung: &Rung| (rung.ratio.to_bits(), rung.claim);
        let mut order: Vec<(u64, usize)> = unsorted.iter().map(key).collect();
        sort(&mut order);
        let rungs: Vec<Rung> = order.iter().map(|&(_, at)| unsorted[at]).collect();
        let below = running_sums(Sum::default(), rungs.iter().map(|r| r.bound));
        let mut beyond = running_sums(Sum::default(), rungs.iter().rev().map(|r| r.weight));
        beyond.reverse();
        Filling { capacity, rungs, below, beyond }
    }

    /// The level at which the capacity is used up; infinite if all bounds fit.
    ///
    /// What `i` claims and a common level need grows with `i`, so the place is found by halving.
    fn level(&self) -> f64 {
        let needed = |i: usize| self.below[i] + self.beyond[i] * self.rungs[i].ratio;
        let i = first(0, self.rungs.len(), |i| needed(i) >= self.capacity);
        if i == self.rungs.len() {
            f64::INFINITY
        } else {
            (self.capacity - self.below[i]).max(0.0) / self.beyond[i]
        }
    }

    /// What the claim at `place`, satisfied below the level, would get without its bound: the
    /// level of the others and itself, rising without end, over the capacity. It is looked for
    /// `near` where that of the claim before was found.
    fn offer_below_level(&self, place: usize, near: &mut usize) -> f64 {
        let Rung { weight, bound, .. } = self.rungs[place];
        let wanted = self.capacity + bound;
        let needed = |i: usize| self.below[i] + (self.beyond[i] + weight) * self.rungs[i].ratio;
        let i = first_near(*near, place + 1, self.rungs.len(), |i| needed(i) >= wanted);
        *near = i;
        weight * ((wanted - self.below[i]) / (self.beyond[i] + weight))
    }
}

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

/// The same, looked for in steps that double from `near` on: at once if it is there.
fn first_near(near: usize, from: usize, to: usize, holds: impl Fn(usize) -> bool) -> usize {
    let near = near.clamp(from, to);
    let (mut low, mut high, mut step) = (from, near, 1);
    if near < to && !holds(near) {
        low = near + 1;
        while low + step <= to && !holds(low + step - 1) {
            low += step;
            step *= 2;
        }
        high = to.min(low + step - 1);
    } else {
        while high >= low + step && holds(high - step) {
            high -= step;
            step *= 2;
        }
        low = low.max((high + 1).saturating_sub(step));
    }
    first(low, high, holds)
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
    let target = |h: &Held| lower(positive(h.target), capacity);
    let newest = |h: &Held| positive(h.newest);
    let committed = |h: &Held| higher(positive(h.committed), newest(h));
    let spare = capacity - held.iter().map(committed).collect::<Sum>().value();
    let lack = |h: &Held| positive(target(h) - committed(h));
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
            lower(committed(h) + part * lack(h), target(h))
        }
    }));
}

/// A weight within bounds.
fn tame(weight: f64) -> f64 {
    positive(weight).clamp(1.0 / WEIGHT_CLAMP, WEIGHT_CLAMP)
}

/// `x`, or zero where it is negative or NaN.
fn positive(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.0 }
}

/// The lower of two numbers, in one instruction; the second if either is no number.
fn lower(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// The higher of two numbers; the second if either is no number.
fn higher(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// A sum of non-negative numbers with one rounding error in all (Neumaier's compensation).
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    total: f64,
    lost: f64,
}

impl Sum {
    #[inline]
    pub(crate) fn add(&mut self, x: f64) {
        let next = self.total + x;
        // What each of the two lost, whichever is larger (Knuth's two-sum).
        let part = next - self.total;
        let lost = (self.total - (next - part)) + (x - part);
        self.lost += if next < f64::INFINITY { lost } else { 0.0 };
        self.total = next;
    }

    pub(crate) fn value(self) -> f64 {
        self.total + self.lost
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Sum {
        let mut sum = Sum::default();
        terms.into_iter().for_each(|x| sum.add(x));
        sum
    }
}

/// `sum`, and with the first 1, 2, … terms.
fn running_sums(mut sum: Sum, terms: impl ExactSizeIterator<Item = f64>) -> Vec<f64> {
    let mut sums = Vec::with_capacity(terms.len() + 1);
    sums.push(sum.value());
    for x in terms {
        sum.add(x);
        sums.push(sum.value());
    }
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
    fn a_place_is_the_same_from_wherever_it_is_looked_for() {
        for to in 0..20 {
            for from in 0..=to {
                for place in 0..=to {
                    for near in 0..=to + 1 {
                        let found = first_near(near, from, to, |i| i >= place);
                        assert_eq!(found, first(from, to, |i| i >= place));
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
