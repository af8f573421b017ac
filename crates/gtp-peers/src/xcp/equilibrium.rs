//! What XCP's queue comes to rest at, after Low, Andrew and Wydrowski, INFOCOM 2005.
//!
//! At rest every session's gains and losses cancel. At a link with spare capacity the gains are
//! shared equally and sessions that are held elsewhere cannot use theirs, which is why the link
//! stays below its capacity. With `c` the capacity, `y` the traffic, `N` sessions, a session of
//! rate `x` that only this link holds has
//!
//! `x * (gamma - alpha * (c - y) / y) = gamma * y / N`.
//!
//! Rates are in any one unit. Nothing here is simulated.

use super::{ALPHA, GAMMA};

/// The least utilisation that a link with a session of unlimited demand can be left at.
#[must_use]
pub fn floor() -> f64 {
    ALPHA / (ALPHA + GAMMA)
}

/// The rate at rest of one session of unlimited demand at a link of `capacity`, beside
/// `sessions - 1` others that are held elsewhere to `others` in all, and say so before they come
/// here (by their demand, or at a link that they cross later: what they were given is lost).
/// Thesis figure VIII.10; flow 2 of AECP's figure 10.
#[must_use]
pub fn beside_held(capacity: f64, others: f64, sessions: u32) -> f64 {
    at_rest(capacity, others, |x, y| {
        let give = GAMMA * y / f64::from(sessions);
        x * (GAMMA - ALPHA * (capacity - y) / y) - give
    })
}

/// The rate at rest of one session of unlimited demand beside one that a link *before* this one
/// holds at `other`, with ns-2's rule for the residue. Flow 4 of AECP's figure 10.
///
/// The held session arrives with a smaller wish than this link would grant, and takes from the
/// negative pool what makes up for it. So the pool `s` is empty a share `t` into each interval, and
/// the free session loses in that share only: `gamma*y/2 = t*u` with `u = s*x/y` and
/// `t * (gamma*y/2 + u) = s`.
#[must_use]
pub fn behind_held(capacity: f64, other: f64) -> f64 {
    at_rest(capacity, other, |x, y| {
        let pool = (GAMMA * y - ALPHA * (capacity - y)).max(0.0);
        let half = GAMMA * y / 2.0;
        let loss = pool * x / y;
        pool * loss - half * (half + loss)
    })
}

/// The root of `gain` in the free session's rate, by halving; all of the rest if it is below zero
/// everywhere.
fn at_rest(capacity: f64, others: f64, gain: impl Fn(f64, f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, (capacity - others).max(0.0));
    if gain(high, high + others) <= 0.0 {
        return high;
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if gain(middle, middle + others) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Enough to use up the precision of `f64`.
const HALVINGS: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_four_fifths() {
        assert!((floor() - 0.8).abs() < 1e-15);
        // Reached from above with endlessly many sessions that hardly want anything.
        let rate = beside_held(500.0, 1e-9, 1_000_000_000);
        assert!((rate / 500.0 - 0.8).abs() < 1e-3, "{rate}");
    }

    #[test]
    fn the_fat_sessions_share_declines_with_the_number_of_thin_ones() {
        // Figure VIII.10: thin sessions want half of 500 Mbit/s; shares of the other half.
        let found = [1, 2, 3, 4, 5, 10, 20, 64].map(|n| beside_held(500.0, 250.0, n + 1) / 250.0);
        let known = [1.0, 0.868, 0.802, 0.763, 0.737, 0.676, 0.640, 0.613];
        for (share, want) in found.iter().zip(known) {
            assert!((share - want).abs() < 1e-3, "{found:?}");
        }
    }

    #[test]
    fn the_fat_session_of_figure_viii_9_has_322() {
        assert!((beside_held(500.0, 100.0, 5) - 322.0).abs() < 0.5);
    }

    #[test]
    fn the_order_of_links_explains_aecps_figure_10() {
        assert!((beside_held(500.0, 125.0, 2) - 338.5).abs() < 0.05);
        assert!((behind_held(500.0, 125.0) - 360.6).abs() < 0.05);
    }
}
