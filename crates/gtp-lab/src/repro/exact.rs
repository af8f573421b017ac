//! Exact allocations: Algorithm 1 in fractions, and what the definitions demand of its results.
//!
//! The solver that the project uses works in floating point and skips ahead; this one follows the
//! thesis line by line over fractions, counts its rounds and shares no code with it. Agreement
//! of the two over many random networks is what the entries of chapters III and V rest on.

use super::formula::Quantities;
use gtp_alloc::fairness::{check_feasible, check_max_min, leximin_cmp};
use gtp_alloc::maxmin::{Network, Session, solve};
use gtp_link::Rng;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use serde::Deserialize;
use std::cmp::Ordering;

/// A property of exact allocations.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Exact {
    /// Algorithm 1 against the project's solver: `solver_off` (largest difference as a part of the
    /// largest capacity), `rounds_over_sessions` (largest ratio), `unfair` (results that the
    /// checker of Definition 2 refuses).
    AlgorithmOne,
    /// Definitions 1 and 2 against vectors that are and are not fair: `good_refused`,
    /// `overfull_accepted`, `unfair_accepted`, `beaten` (feasible vectors above the result in
    /// leximin order).
    Definitions,
}

/// A random network small enough for fractions.
pub struct Small {
    capacity: Vec<f64>,
    uses: Vec<[u32; 2]>,
    demand: Vec<f64>,
}

/// Tries a property on `cases` random networks.
pub fn run(property: Exact, cases: usize, seed: u64, quantities: &mut Quantities) {
    let mut rng = Rng::new(seed);
    match property {
        Exact::AlgorithmOne => algorithm_one(cases, &mut rng, quantities),
        Exact::Definitions => definitions(cases, &mut rng, quantities),
    }
}

fn algorithm_one(cases: usize, rng: &mut Rng, quantities: &mut Quantities) {
    let (mut off, mut rounds, mut unfair) = (0.0f64, 0.0f64, 0);
    for _ in 0..cases {
        let small = Small::random(rng);
        let network = small.network();
        let (exact, used) = small.algorithm_one();
        off = off.max(relative(&solve(&network), &exact, &small.capacity));
        rounds = rounds.max(used as f64 / small.uses.len() as f64);
        let exact: Vec<f64> = exact.iter().map(float).collect();
        unfair += usize::from(check_max_min(&network, &exact, 1e-9).is_err());
    }
    quantities.insert("cases".to_owned(), vec![cases as f64]);
    quantities.insert("solver_off".to_owned(), vec![off]);
    quantities.insert("rounds_over_sessions".to_owned(), vec![rounds]);
    quantities.insert("unfair".to_owned(), vec![unfair as f64]);
}

fn definitions(cases: usize, rng: &mut Rng, quantities: &mut Quantities) {
    let [mut refused, mut overfull, mut accepted, mut beaten] = [0usize; 4];
    for _ in 0..cases {
        let small = Small::random(rng);
        let network = small.network();
        let best = solve(&network);
        let good = check_feasible(&network, &best, 1e-9).is_ok();
        refused += usize::from(!good || check_max_min(&network, &best, 1e-9).is_err());
        let k = rng.below(best.len() as u64) as usize;
        if best[k] == 0.0 {
            continue;
        }
        let mut more = best.clone();
        more[k] *= 1.001; // above its demand, or through a full node
        overfull += usize::from(check_feasible(&network, &more, 1e-9).is_ok());
        let mut less = best.clone();
        less[k] *= 0.999; // what it leaves on its bottleneck could be its own
        accepted += usize::from(check_max_min(&network, &less, 1e-9).is_ok());
        beaten += usize::from(small.is_beaten(&best, rng));
    }
    quantities.insert("cases".to_owned(), vec![cases as f64]);
    quantities.insert("good_refused".to_owned(), vec![refused as f64]);
    quantities.insert("overfull_accepted".to_owned(), vec![overfull as f64]);
    quantities.insert("unfair_accepted".to_owned(), vec![accepted as f64]);
    quantities.insert("beaten".to_owned(), vec![beaten as f64]);
}

impl Small {
    /// Up to five sources and sinks and fourteen sessions. Small whole numbers make ties; zero
    /// capacities and zero demands are among them.
    fn random(rng: &mut Rng) -> Small {
        let sources = 1 + rng.below(5);
        let sinks = 1 + rng.below(5);
        let amount = |rng: &mut Rng| match rng.below(8) {
            0 => 0.0,
            1..=4 => (1 + rng.below(12)) as f64,
            5 | 6 => (1 + rng.below(100_000)) as f64 / 1000.0,
            7.. => (1 + rng.below(1 << 20)) as f64,
        };
        let capacity = (0..sources + sinks).map(|_| amount(rng)).collect();
        let sessions = 1 + rng.below(14);
        let pair = |rng: &mut Rng| [rng.below(sources) as u32, (sources + rng.below(sinks)) as u32];
        let uses = (0..sessions).map(|_| pair(rng)).collect();
        let wish = |rng: &mut Rng| if rng.below(2) == 0 { f64::INFINITY } else { amount(rng) };
        let demand = (0..sessions).map(|_| wish(rng)).collect();
        Small { capacity, uses, demand }
    }

    fn network(&self) -> Network {
        let mut network = Network::new(self.capacity.clone()).expect("capacities are finite");
        for (uses, demand) in self.uses.iter().zip(&self.demand) {
            let session = Session { uses, weight: 1.0, demand: *demand };
            network.add(session).expect("a proper session");
        }
        network
    }

    /// Thesis, Algorithm 1, and how many rounds it took. `[FIX]` an explicit mark for undetermined
    /// sessions in place of the rate zero, so that it ends with demands or capacities of zero.
    fn algorithm_one(&self) -> (Vec<BigRational>, usize) {
        let n = self.uses.len();
        let demand: Vec<Option<BigRational>> =
            self.demand.iter().map(|d| d.is_finite().then(|| fraction(*d))).collect();
        let mut rate: Vec<Option<BigRational>> = vec![None; n];
        let mut rounds = 0;
        while rate.contains(&None) {
            rounds += 1;
            // Lines 2 and 3: the node whose undetermined sessions could have the least each.
            let (bottleneck, node) = (0..self.capacity.len())
                .filter_map(|v| Some((self.average(v, &rate)?, v)))
                .min()
                .expect("an undetermined session is at some node");
            // Line 4: the least of the undetermined demands.
            let wishes = (0..n).filter(|k| rate[*k].is_none());
            let least = wishes.filter_map(|k| Some((demand[k].clone()?, k))).min();
            match least {
                Some((wish, k)) if wish <= bottleneck => rate[k] = Some(wish),
                Some(_) | None => {
                    let here = |k: &usize| self.uses[*k].contains(&(node as u32));
                    for k in (0..n).filter(here) {
                        rate[k].get_or_insert_with(|| bottleneck.clone());
                    }
                }
            }
        }
        (rate.into_iter().flatten().collect(), rounds)
    }

    /// Thesis, eq. V.2: what each undetermined session at node `v` could have; `None` without any.
    fn average(&self, v: usize, rate: &[Option<BigRational>]) -> Option<BigRational> {
        let mut left = fraction(self.capacity[v]);
        let mut waiting = 0;
        for (_, rate) in self.uses.iter().zip(rate).filter(|(u, _)| u.contains(&(v as u32))) {
            match rate {
                Some(rate) => left -= rate,
                None => waiting += 1,
            }
        }
        (waiting > 0).then(|| left / BigRational::from_integer(waiting.into()))
    }

    /// Whether a random feasible vector is above `best` in leximin order by more than rounding.
    fn is_beaten(&self, best: &[f64], rng: &mut Rng) -> bool {
        let mut left = self.capacity.clone();
        let mut rates = vec![0.0; best.len()];
        let mut order: Vec<usize> = (0..best.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        for k in order {
            let room =
                self.uses[k].iter().map(|v| left[*v as usize]).fold(self.demand[k], f64::min);
            let part = rng.below(1001) as f64 / 1000.0;
            rates[k] = room * if part > 0.5 { 1.0 } else { 2.0 * part };
            self.uses[k].iter().for_each(|v| left[*v as usize] -= rates[k]);
        }
        let grain = self.capacity.iter().copied().fold(0.0, f64::max) * 1e-9;
        let blurred = |x: &[f64]| -> Vec<f64> { x.iter().map(|x| (x / grain).round()).collect() };
        grain > 0.0 && leximin_cmp(&blurred(&rates), &blurred(best)) == Ordering::Greater
    }
}

/// The exact max-min rates of sessions over nodes of one capacity, and the largest error of the
/// project's solver against them, as a part of the capacity.
pub fn solved(capacity: f64, uses: Vec<[u32; 2]>, demand: Vec<f64>) -> (Vec<f64>, f64) {
    let nodes = uses.iter().flatten().max().map_or(0, |v| *v as usize + 1);
    let small = Small { capacity: vec![capacity; nodes], uses, demand };
    let (exact, _) = small.algorithm_one();
    let rates = solve(&small.network());
    let off = relative(&rates, &exact, &small.capacity);
    (rates, off)
}

/// The largest difference as a part of the largest capacity.
fn relative(rates: &[f64], exact: &[BigRational], capacity: &[f64]) -> f64 {
    let largest = capacity.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let off = |(x, y): (&f64, &BigRational)| float(&(fraction(*x) - y)).abs() / largest;
    rates.iter().zip(exact).map(off).fold(0.0, f64::max)
}

fn fraction(x: f64) -> BigRational {
    BigRational::from_float(x).unwrap_or_else(BigRational::zero)
}

fn float(x: &BigRational) -> f64 {
    x.to_f64().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_stay_exact() {
        let uses = vec![[0, 3], [1, 3], [2, 3], [2, 4]];
        let (rates, off) = solved(1.0, uses, vec![f64::INFINITY, 0.1, f64::INFINITY, 0.0]);
        assert_eq!(rates, [0.45, 0.1, 0.45, 0.0]);
        assert!(off < 1e-15);
    }

    #[test]
    fn wrong_vectors_are_told_apart() {
        let mut quantities = Quantities::new();
        run(Exact::Definitions, 300, 1, &mut quantities);
        for name in ["good_refused", "overfull_accepted", "unfair_accepted", "beaten"] {
            assert_eq!(quantities[name], [0.0], "{name}");
        }
    }

    #[test]
    fn a_vector_that_is_not_the_best_is_beaten() {
        let small = Small { capacity: vec![10.0; 2], uses: vec![[0, 1]], demand: vec![9.0] };
        let mut rng = Rng::new(1);
        assert!((0..20).any(|_| small.is_beaten(&[8.0], &mut rng)));
        assert!((0..20).all(|_| !small.is_beaten(&[9.0], &mut rng)));
    }
}
