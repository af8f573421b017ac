//! Measures by which allocations are judged: how fair, how efficient, how near the optimum.
//!
//! All take rates in bit/s by session, in the order of the network's sessions. The max-min test
//! is the bottleneck characterisation, which needs no solver: every session either has what it
//! demands or crosses a full resource on which nobody is faster for its weight. None of this
//! knows how the rates came about.

use crate::maxmin::Network;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

/// Why an allocation is not max-min fair, or not even feasible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unfair {
    /// There are not as many rates as sessions.
    Length,
    /// The rate is negative, infinite or NaN.
    NotARate {
        /// Index of the session.
        session: usize,
    },
    /// The rate exceeds the session's demand.
    AboveDemand {
        /// Index of the session.
        session: usize,
    },
    /// The rates through a resource sum to more than its capacity.
    Overloaded {
        /// Index of the resource.
        resource: usize,
    },
    /// The session wants more, and nowhere on its way is a full resource on which it is among
    /// the fastest: it could rise at the cost of faster sessions alone, or of nobody.
    CouldRise {
        /// Index of the session.
        session: usize,
    },
}

impl fmt::Display for Unfair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Unfair::Length => f.write_str("there are not as many rates as sessions"),
            Unfair::NotARate { session } => write!(f, "session {session} has no proper rate"),
            Unfair::AboveDemand { session } => write!(f, "session {session} exceeds its demand"),
            Unfair::Overloaded { resource } => write!(f, "resource {resource} is overloaded"),
            Unfair::CouldRise { session } => {
                write!(f, "session {session} could rise without harm to a slower one")
            }
        }
    }
}

impl core::error::Error for Unfair {}

/// The sum of rates through each resource, in bit/s.
///
/// # Panics
/// If there are not as many rates as sessions.
pub fn loads(network: &Network, rates: &[f64]) -> Vec<f64> {
    assert_eq!(rates.len(), network.sessions(), "one rate for each session");
    let mut load = alloc::vec![0.0; network.capacities().len()];
    for (k, rate) in rates.iter().enumerate() {
        for &r in network.session(k).uses {
            load[r as usize] += rate;
        }
    }
    load
}

/// Checks thesis, Definition 1: no session above its demand, no resource above its capacity.
///
/// `tolerance` is relative to the demand or capacity in question.
///
/// # Errors
/// Every [`Unfair`] but `CouldRise`.
pub fn check_feasible(network: &Network, rates: &[f64], tolerance: f64) -> Result<(), Unfair> {
    if rates.len() != network.sessions() {
        return Err(Unfair::Length);
    }
    for (session, &rate) in rates.iter().enumerate() {
        if !(0.0..f64::INFINITY).contains(&rate) {
            return Err(Unfair::NotARate { session });
        }
        if rate > network.session(session).demand * (1.0 + tolerance) {
            return Err(Unfair::AboveDemand { session });
        }
    }
    let over = |(load, capacity): (&f64, &f64)| *load > capacity * (1.0 + tolerance);
    match loads(network, rates).iter().zip(network.capacities()).position(over) {
        Some(resource) => Err(Unfair::Overloaded { resource }),
        None => Ok(()),
    }
}

/// Checks that `rates` are the weighted max-min fair ones, by the bottleneck characterisation.
///
/// `[FIX]` thesis, Definition 2 prints `y_q < x_q < x_p` where `x_q <= x_p` is meant; sessions
/// equally fast count as bottlenecked together. `tolerance` is relative: to the demand, or to
/// the capacity of the resource on which a session is compared with others.
///
/// # Errors
/// What is wrong, by the first session or resource found.
pub fn check_max_min(network: &Network, rates: &[f64], tolerance: f64) -> Result<(), Unfair> {
    check_feasible(network, rates, tolerance)?;
    let load = loads(network, rates);
    let mut fastest = alloc::vec![0.0f64; load.len()];
    for (k, rate) in rates.iter().enumerate() {
        let session = network.session(k);
        for &r in session.uses {
            fastest[r as usize] = fastest[r as usize].max(rate / session.weight);
        }
    }
    for (k, rate) in rates.iter().enumerate() {
        let session = network.session(k);
        let bottleneck = |&r: &u32| {
            let capacity = network.capacities()[r as usize];
            let behind = fastest[r as usize] * session.weight - rate;
            load[r as usize] >= capacity * (1.0 - tolerance) && behind <= capacity * tolerance
        };
        let satisfied = *rate >= session.demand * (1.0 - tolerance);
        if !satisfied && !session.uses.iter().any(bottleneck) {
            return Err(Unfair::CouldRise { session: k });
        }
    }
    Ok(())
}

/// Jain's fairness index `(sum x)^2 / (n sum x^2)`: 1 if all rates are equal, `1/n` if one
/// session has everything. 1 for no sessions, or for rates that are all zero.
pub fn jain_index(rates: &[f64]) -> f64 {
    // Scaled by the largest, so that squares neither overflow nor vanish.
    let largest = rates.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return 1.0;
    }
    let sum: f64 = rates.iter().map(|x| x / largest).sum();
    let squares: f64 = rates.iter().map(|x| (x / largest) * (x / largest)).sum();
    sum * sum / (rates.len() as f64 * squares)
}

/// The 2-norm of the difference of two rate vectors, in bit/s (thesis VII.1.C, `D(t)`).
///
/// # Panics
/// If the lengths differ.
pub fn distance(rates: &[f64], others: &[f64]) -> f64 {
    assert_eq!(rates.len(), others.len(), "rates of the same sessions");
    let squares: f64 = rates.iter().zip(others).map(|(x, y)| (x - y) * (x - y)).sum();
    libm::sqrt(squares)
}

/// The used part of each resource's capacity, in 0..=1 where feasible; 0 for infinite
/// capacities, 1 for capacities of zero.
///
/// # Panics
/// If there are not as many rates as sessions.
pub fn utilisation(network: &Network, rates: &[f64]) -> Vec<f64> {
    let used = |(load, capacity): (f64, &f64)| if *capacity == 0.0 { 1.0 } else { load / capacity };
    loads(network, rates).into_iter().zip(network.capacities()).map(used).collect()
}

/// The largest theta for which sessions on one link of `capacity` bit/s are theta-efficient:
/// `sum x / C` (AECP, section 4).
pub fn theta_efficiency(capacity: f64, rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / capacity
}

/// The largest eps for which rates are eps-fair: `min x / max x` (AECP, section 4). 1 for no
/// sessions, or for rates that are all zero.
pub fn eps_fairness(rates: &[f64]) -> f64 {
    let largest = rates.iter().copied().fold(0.0, f64::max);
    let smallest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    if largest == 0.0 { 1.0 } else { smallest / largest }
}

/// Compares two vectors in leximin order (thesis, Definition 6): by their smallest elements,
/// where these are equal by the second smallest, and so on; a vector that ends first is less.
pub fn leximin_cmp(rates: &[f64], others: &[f64]) -> Ordering {
    let (rates, others) = (sorted(rates), sorted(others));
    let different = rates.iter().zip(&others).map(|(x, y)| x.total_cmp(y)).find(|o| o.is_ne());
    different.unwrap_or(rates.len().cmp(&others.len()))
}

/// The leximin mapping (thesis, Definition 5): the vector in ascending order.
fn sorted(rates: &[f64]) -> Vec<f64> {
    let mut rates = rates.to_vec();
    rates.sort_unstable_by(f64::total_cmp);
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maxmin::Session;

    fn one_link(capacity: f64, demands: &[f64]) -> Network {
        let mut network = Network::new(alloc::vec![capacity]).unwrap();
        for &demand in demands {
            network.add(Session { uses: &[0], weight: 1.0, demand }).unwrap();
        }
        network
    }

    #[test]
    fn jain_index_is_one_for_equals_and_one_nth_for_a_monopoly() {
        assert_eq!(jain_index(&[3.0; 7]), 1.0);
        assert_eq!(jain_index(&[0.0, 5.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain_index(&[]), 1.0);
        assert_eq!(jain_index(&[0.0, 0.0]), 1.0);
        assert_eq!(jain_index(&[1e300, 1e300]), 1.0);
    }

    #[test]
    fn distance_is_euclidean() {
        assert_eq!(distance(&[3.0, 0.0, 1.0], &[0.0, 4.0, 1.0]), 5.0);
    }

    #[test]
    fn efficiency_and_fairness_are_the_ratios_defined() {
        assert_eq!(theta_efficiency(10.0, &[4.0, 5.0]), 0.9);
        assert_eq!(eps_fairness(&[4.0, 5.0]), 0.8);
        assert_eq!(eps_fairness(&[]), 1.0);
    }

    #[test]
    fn leximin_favours_whoever_has_least() {
        assert_eq!(leximin_cmp(&[2.0, 9.0], &[3.0, 3.0]), Ordering::Less);
        assert_eq!(leximin_cmp(&[9.0, 2.0], &[2.0, 3.0]), Ordering::Greater);
        assert_eq!(leximin_cmp(&[9.0, 2.0], &[2.0, 9.0]), Ordering::Equal);
    }

    #[test]
    fn each_way_to_be_unfair_is_told_apart() {
        let network = one_link(10.0, &[2.0, f64::INFINITY, f64::INFINITY]);
        let check = |rates: &[f64]| check_max_min(&network, rates, 1e-9);
        assert_eq!(check(&[2.0, 4.0, 4.0]), Ok(()));
        assert_eq!(check(&[2.0, 4.0]), Err(Unfair::Length));
        assert_eq!(check(&[2.0, f64::NAN, 4.0]), Err(Unfair::NotARate { session: 1 }));
        assert_eq!(check(&[3.0, 3.0, 3.0]), Err(Unfair::AboveDemand { session: 0 }));
        assert_eq!(check(&[2.0, 5.0, 4.0]), Err(Unfair::Overloaded { resource: 0 }));
        assert_eq!(check(&[2.0, 5.0, 3.0]), Err(Unfair::CouldRise { session: 2 }));
        assert_eq!(check(&[2.0, 3.0, 3.0]), Err(Unfair::CouldRise { session: 1 }));
        assert_eq!(check(&[1.0, 4.5, 4.5]), Err(Unfair::CouldRise { session: 0 }));
    }

    #[test]
    fn utilisation_is_load_over_capacity() {
        assert_eq!(utilisation(&one_link(10.0, &[9.0, 9.0]), &[2.0, 3.0]), [0.5]);
        assert_eq!(utilisation(&one_link(0.0, &[9.0]), &[0.0]), [1.0]);
    }
}
