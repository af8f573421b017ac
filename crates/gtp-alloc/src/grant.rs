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

/// Shares of `capacity` bit/s (may be infinite) among `claims`, written to `shares` in order.
pub fn shares(capacity: f64, claims: &[Claim], shares: &mut Vec<Share>) {
    let n = claims.len();
    shares.clear();
    shares.resize(n, Share::default());
    if capacity.is_infinite() {
        for (share, claim) in shares.iter_mut().zip(claims) {
            *share = Share { target: claim.bound, offer: f64::INFINITY };
        }
        return;
    }
    let ratio = |k: usize| claims[k].bound / claims[k].weight;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
    // below[i]: sum of the first i bounds in order; beyond[i]: sum of the weights from i on.
    let mut below = Vec::with_capacity(n + 1);
    let mut beyond = alloc::vec![0.0; n + 1];
    below.push(0.0);
    for i in 0..n {
        below.push(below[i] + claims[order[i]].bound);
    }
    for i in (0..n).rev() {
        beyond[i] = beyond[i + 1] + claims[order[i]].weight;
    }
    let level = (0..n)
        .find(|&i| below[i] + beyond[i] * ratio(order[i]) >= capacity)
        .map_or(f64::INFINITY, |i| (capacity - below[i]) / beyond[i]);
    for (place, &k) in order.iter().enumerate() {
        let Claim { weight, bound } = claims[k];
        let offer = if ratio(k) >= level {
            weight * level
        } else {
            let wanted = capacity + bound;
            let i = (place + 1..n)
                .find(|&i| below[i] + (beyond[i] + weight) * ratio(order[i]) >= wanted)
                .unwrap_or(n);
            weight * (capacity - (below[i] - bound)) / (beyond[i] + weight)
        };
        shares[k] = Share { target: bound.min(weight * level), offer: offer.max(0.0) };
    }
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

/// The sum of non-negative numbers with one rounding error in all (Neumaier's compensation).
fn sum(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0, 0.0);
    for x in terms {
        let next: f64 = total + x;
        if next == f64::INFINITY {
            return next;
        }
        lost += if total >= x { (total - next) + x } else { (x - next) + total };
        total = next;
    }
    total + lost
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
