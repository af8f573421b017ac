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
