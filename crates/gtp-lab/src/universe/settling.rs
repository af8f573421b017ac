//! How long shares may take to settle once nothing changes any more, by the theory of each law.
//!
//! The grant law is exact: it needs an interval and half a round trip for each bottleneck that
//! depends on another, some hundred milliseconds in these worlds, far less than they are given in
//! any case. The end-node law approaches each level of the max-min allocation by steps, and the
//! next level only from there (thesis, Lemmas 2 to 4), so a world of it lasts longer by what these
//! steps take. No session may use that time to finish what it has to move.

use gtp_alloc::Span;
use gtp_proto::limits::INTERVAL_MAX;

use super::lasting;
use crate::course;
use crate::scenario::model::{LawName, Scenario};

/// Shares nearer than this part are one level.
const LEVEL: f64 = 1e-6;

/// What the law of `scenario` may take from the last change to its shares, beyond what every
/// world gives.
pub fn after(scenario: &Scenario) -> Span {
    match scenario.law {
        LawName::Grant => Span::ZERO,
        LawName::EndNode => {
            let active = lasting(scenario);
            let shares = course::shares(scenario, Span::MAX, &active).unwrap_or_default();
            let trips = course::round_trips(scenario).unwrap_or_default();
            let rtt = active.iter().filter_map(|&k| trips.get(k).copied()).max();
            let steps = steps(scenario.params.alpha, scenario.params.beta);
            climb(steps, rtt.unwrap_or(Span::ZERO)) * levels(shares)
        }
    }
}

/// Steps from nothing to a level: towards it by `alpha` of what lacks until `beta` of it lacks,
/// then by `alpha beta` of it.
fn steps(alpha: f64, beta: f64) -> u64 {
    let exponential = libm::ceil(libm::log(beta) / libm::log(1.0 - alpha));
    let linear = libm::ceil(1.0 / alpha);
    (exponential + linear) as u64
}

/// The time of so many steps, one for each round trip and interval, and of the window over which a
/// level must hold before the next one counts on it (thesis, Lemma 2).
fn climb(steps: u64, rtt: Span) -> Span {
    (rtt + INTERVAL_MAX) * steps + rtt + INTERVAL_MAX * 2
}

/// How many different shares there are.
fn levels(mut shares: Vec<f64>) -> u64 {
    shares.sort_by(f64::total_cmp);
    shares.dedup_by(|a, b| *a <= *b * (1.0 + LEVEL));
    shares.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_theory_gives_the_steps_that_a_lone_session_is_known_to_take() {
        // 63.6 exponential steps and 40 linear ones: 10.2 s at 100 ms each.
        assert_eq!(steps(0.025, 0.2), 64 + 40);
        assert_eq!(steps(0.1, 0.2), 16 + 10);
    }

    #[test]
    fn equal_shares_are_one_level() {
        assert_eq!(levels(vec![4.0, 1.0, 4.0 + 1e-9, 2.0, 1.0]), 3);
        assert_eq!(levels(Vec::new()), 0);
    }

    #[test]
    fn only_worlds_of_the_end_node_law_last_longer() {
        for seed in 1..200 {
            let world = super::super::world(seed);
            let more = after(&world);
            let needed = world.law == LawName::EndNode && !lasting(&world).is_empty();
            assert_eq!(more > Span::ZERO, needed, "world {seed}");
            assert!(more < Span::from_secs(120), "world {seed}: {more:?}");
        }
    }
}
