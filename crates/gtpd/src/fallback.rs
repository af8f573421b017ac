//! What each process may use if the daemon goes: its part of the capacity among joined processes.
//!
//! The parts are promised while the daemon lives, because it may be killed at any time. Users
//! share by their weights, a user's processes equally, and the connections of one process equally,
//! since each engine of a server has a connection of its own. The sum stays within the capacity at
//! every moment: promises are lowered before any is raised. This file knows no pages and no clock.

use std::collections::BTreeMap;

use gtp_alloc::Rate;

/// One connection of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The user of the process.
    pub uid: u32,
    /// The process id; zero if it is unknown, in which case the connection counts as a process.
    pub pid: i32,
}

/// Parts of `capacity` in the order of `joined`; a user without a weight has weight 1. The sum of
/// the parts is at most the capacity. If the capacity is unlimited, so is each part.
pub fn parts(capacity: Rate, joined: &[Joined], weights: &BTreeMap<u32, f64>) -> Vec<Rate> {
    if capacity.is_unlimited() {
        return vec![Rate::UNLIMITED; joined.len()];
    }
    let mut users: BTreeMap<u32, BTreeMap<(i32, usize), u32>> = BTreeMap::new();
    for (at, one) in joined.iter().enumerate() {
        *users.entry(one.uid).or_default().entry(process(at, *one)).or_default() += 1;
    }
    let weight = |uid: &u32| weights.get(uid).copied().unwrap_or(1.0);
    let sum: f64 = users.keys().map(weight).sum();
    let part = |(at, one): (usize, &Joined)| {
        let processes = &users[&one.uid];
        let sharing = processes.len() as f64 * f64::from(processes[&process(at, *one)]);
        // Rounded down, with a margin for the last bit of the sum.
        let part = capacity.as_f64() * weight(&one.uid) / sum / sharing;
        Rate::from_bps((part * (1.0 - f64::EPSILON * 4.0)) as u64)
    };
    joined.iter().enumerate().map(part).collect()
}

/// The process of a connection; one with an unknown id is named by its place in the list.
fn process(at: usize, one: Joined) -> (i32, usize) {
    if one.pid == 0 { (0, at + 1) } else { (one.pid, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(uid: u32, pid: i32) -> Joined {
        Joined { uid, pid }
    }

    #[test]
    fn users_share_by_weight_processes_equally_and_a_servers_engines_its_part() {
        let joined = [of(1, 10), of(1, 10), of(1, 11), of(2, 20)];
        let weights = BTreeMap::from([(2, 3.0)]);
        let parts = parts(Rate::from_mbps(80), &joined, &weights);
        let mbps: Vec<f64> = parts.iter().map(|r| (r.as_f64() / 1e6).round()).collect();
        assert_eq!(mbps, [5.0, 5.0, 10.0, 60.0]);
    }

    #[test]
    fn a_capacity_that_nobody_knows_bounds_nobody() {
        assert_eq!(parts(Rate::UNLIMITED, &[of(1, 1)], &BTreeMap::new()), [Rate::UNLIMITED]);
    }

    proptest! {
        #[test]
        fn all_parts_together_are_within_the_capacity_and_none_is_nothing(
            capacity in 1_000_000_u64..400_000_000_000,
            joined in prop::collection::vec((0_u32..5, 0_i32..9), 1..60),
            weight in 0.001_f64..1000.0,
        ) {
            let joined: Vec<Joined> = joined.iter().map(|&(uid, pid)| of(uid, pid)).collect();
            let parts = parts(Rate::from_bps(capacity), &joined, &BTreeMap::from([(1, weight)]));
            let sum: u64 = parts.iter().map(|part| part.as_bps()).sum();
            prop_assert!(sum <= capacity, "{sum} of {capacity}");
            prop_assert!(parts.iter().all(|&part| part > Rate::ZERO));
        }
    }
}
