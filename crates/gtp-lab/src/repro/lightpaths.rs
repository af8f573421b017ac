//! Light paths shared out by the end-node law: whole ones, once in a long interval (thesis X.3.C).
//!
//! A node has so many light paths. The law shares them out in fractions, which only the nodes speak
//! of; of these each node promises whole paths, as many as the fractions come to, and a session
//! holds what both its ends promise. Intervals are so long that round trips do not count: time goes
//! in tenths of them, and nodes end theirs at different tenths. It knows no rates and no packets.

use super::formula::Quantities;
use gtp_alloc::Rate;
use gtp_alloc::endnode::{Params, expected_rates};
use gtp_alloc::maxmin::{Network, Session, solve};
use gtp_link::Rng;
use serde::Deserialize;

/// Random networks; `name` and `_` stand before the quantities, which have a number for each case.
///
/// `gap`: the most by which a session's light paths differ from its max-min share at the end;
/// `used`: all that are held then, as a part of all of those shares; `moves`: how many were taken
/// up or given back in the last tenth of the time; `over`: how often a node's sessions held more
/// than it has.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lightpaths {
    name: String,
    cases: usize,
    #[serde(default = "one")]
    seed: u64,
    sources: usize,
    sinks: usize,
    sessions: usize,
    /// Light paths of a node, at least and at most.
    paths: [u64; 2],
    /// How many intervals a run takes.
    intervals: usize,
    #[serde(default)]
    measured: Measured,
}

/// What the law takes for a session's measured rate.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Measured {
    /// Its fraction: the least that an end of it expects.
    #[default]
    Fractions,
    /// The light paths that it holds, and so many are promised as there are whole ones in what is
    /// expected.
    Paths,
}

fn one() -> u64 {
    1
}

/// More than a run of a moment takes.
const MANY: usize = 1_000;
/// Steps of an interval.
const TENTHS: usize = 10;
/// A light path in the law's unit: its fractions are exact to a millionth and better.
const PATH: f64 = 1e9;
/// Fractions nearer than this are equal.
const NEAR: f64 = 1e-6;

/// Runs all.
///
/// # Errors
/// A sentence, if the numbers make no sense.
pub fn run(wanted: &Lightpaths, quantities: &mut Quantities) -> Result<(), String> {
    let Lightpaths { cases, sources, sinks, sessions, intervals, paths: [low, high], .. } = *wanted;
    let counts = [cases, sources, sinks, sessions, intervals];
    let fine = counts.iter().all(|n| (1..=MANY).contains(n));
    if !fine || low == 0 || low > high || high > MANY as u64 {
        return Err(format!("{}: from 1 to {MANY} of everything", wanted.name));
    }
    let worlds: Vec<World> = (0..cases as u64)
        .map(|case| World::drawn(wanted, wanted.seed + case).run(wanted))
        .collect();
    let mut put = |what: &str, of: &dyn Fn(&World) -> f64| {
        let name = format!("{}_{what}", wanted.name);
        let numbers = worlds.iter().map(of).collect();
        quantities.insert(name.clone(), numbers).map_or(Ok(()), |_| Err(format!("{name} twice")))
    };
    put("gap", &World::gap)?;
    put("used", &World::used)?;
    put("moves", &|world| world.moves as f64)?;
    put("over", &|world| world.over as f64)
}

/// A network under way.
struct World {
    /// Light paths of each node, sources first.
    paths: Vec<u64>,
    /// The tenth of an interval at which each node's ends.
    phase: Vec<usize>,
    ends: Vec<[usize; 2]>,
    /// The sessions of each node, and which of their ends it is.
    members: Vec<Vec<(usize, usize)>>,
    /// What each end expects of each session, in fractions, and promises.
    expected: Vec<[f64; 2]>,
    promised: Vec<[u64; 2]>,
    /// What each session had in each tenth of the last interval.
    past: Vec<[f64; TENTHS]>,
    moves: u64,
    over: u64,
}

impl World {
    fn drawn(wanted: &Lightpaths, seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let Lightpaths { sources, sinks, sessions, paths: [low, high], .. } = *wanted;
        let nodes = sources + sinks;
        let paths = (0..nodes).map(|_| low + rng.below(high - low + 1)).collect();
        let phase = (0..nodes).map(|_| rng.below(TENTHS as u64) as usize).collect();
        let mut end = |from: usize, many: usize| from + rng.below(many as u64) as usize;
        let ends: Vec<[usize; 2]> =
            (0..sessions).map(|_| [end(0, sources), end(sources, sinks)]).collect();
        let mut members = vec![Vec::new(); nodes];
        for (k, both) in ends.iter().enumerate() {
            both.iter().enumerate().for_each(|(side, node)| members[*node].push((k, side)));
        }
        World {
            paths,
            phase,
            members,
            expected: vec![[0.0; 2]; sessions],
            promised: vec![[0; 2]; sessions],
            past: vec![[0.0; TENTHS]; sessions],
            ends,
            moves: 0,
            over: 0,
        }
    }

    fn run(mut self, wanted: &Lightpaths) -> World {
        let end = wanted.intervals * TENTHS;
        for at in 0..end {
            let before: Vec<u64> = self.held().collect();
            for node in 0..self.members.len() {
                if at % TENTHS == self.phase[node] {
                    self.tick(node, wanted.measured);
                }
            }
            if at >= end - end / 10 {
                let moved: u64 = before.iter().zip(self.held()).map(|(a, b)| a.abs_diff(b)).sum();
                self.moves += moved;
            }
            let held: Vec<u64> = self.held().collect();
            for (node, members) in self.members.iter().enumerate() {
                let sum: u64 = members.iter().map(|(k, _)| held[*k]).sum();
                self.over += u64::from(sum > self.paths[node]);
            }
            for (k, past) in self.past.iter_mut().enumerate() {
                past[at % TENTHS] = match wanted.measured {
                    Measured::Fractions => self.expected[k][0].min(self.expected[k][1]),
                    Measured::Paths => held[k] as f64,
                };
            }
        }
        self
    }

    /// What each session holds.
    fn held(&self) -> impl Iterator<Item = u64> {
        self.promised.iter().map(|[source, sink]| (*source).min(*sink))
    }

    /// A node's interval is over.
    fn tick(&mut self, node: usize, measured: Measured) {
        let members = &self.members[node];
        let mean = |k: usize| self.past[k].iter().sum::<f64>() / TENTHS as f64;
        let means: Vec<Rate> =
            members.iter().map(|&(k, _)| Rate::from_f64(mean(k) * PATH)).collect();
        if means.is_empty() {
            return;
        }
        let mut expected = vec![Rate::ZERO; means.len()];
        let capacity = Rate::from_f64(self.paths[node] as f64 * PATH);
        expected_rates(&Params { alpha: 0.15, ..Params::DEFAULT }, capacity, &means, &mut expected);
        for (&(k, side), rate) in members.iter().zip(&expected) {
            self.expected[k][side] = rate.as_f64() / PATH;
        }
        let promises: Vec<u64> = match measured {
            Measured::Fractions => {
                let of = |&(k, side): &(usize, usize)| {
                    (self.expected[k][0].min(self.expected[k][1]), self.promised[k][side])
                };
                whole(self.paths[node], &members.iter().map(of).collect::<Vec<_>>())
            }
            Measured::Paths => expected.iter().map(|rate| floor(rate.as_f64() / PATH)).collect(),
        };
        for (&(k, side), promise) in members.iter().zip(promises) {
            self.promised[k][side] = promise;
        }
    }

    /// The max-min shares, in fractions.
    fn goal(&self) -> Vec<f64> {
        let paths = self.paths.iter().map(|paths| *paths as f64).collect();
        let mut network = Network::new(paths).expect("capacities are positive");
        for [source, sink] in &self.ends {
            let uses = [*source as u32, *sink as u32];
            let session = Session { uses: &uses, weight: 1.0, demand: f64::INFINITY };
            network.add(session).expect("a proper session");
        }
        solve(&network)
    }

    fn gap(&self) -> f64 {
        let gaps = self.held().zip(self.goal()).map(|(held, goal)| (held as f64 - goal).abs());
        gaps.fold(0.0, f64::max)
    }

    fn used(&self) -> f64 {
        self.held().sum::<u64>() as f64 / self.goal().iter().sum::<f64>()
    }
}

/// Whole paths in a fraction.
fn floor(fraction: f64) -> u64 {
    (fraction + NEAR) as u64
}

/// Of each fraction the whole paths below or above it, together as many as the fractions come to
/// and no more than there are. Those that are nearest to the next one have it; of equals, those
/// that had it.
fn whole(paths: u64, fractions: &[(f64, u64)]) -> Vec<u64> {
    let mut promises: Vec<u64> = fractions.iter().map(|(x, _)| floor(*x)).collect();
    let sum: f64 = fractions.iter().map(|(x, _)| x).sum();
    let mut left = floor(sum).min(paths) as i64 - promises.iter().sum::<u64>() as i64;
    let rest = |k: usize| ((fractions[k].0 - promises[k] as f64) / NEAR).round() as i64;
    let had = |k: usize| fractions[k].1 > promises[k];
    let mut order: Vec<usize> = (0..fractions.len()).collect();
    order.sort_by_key(|k| (-rest(*k), !had(*k), *k));
    for k in order.iter().copied().take(left.max(0) as usize) {
        promises[k] += 1;
        left -= 1;
    }
    // More may be expected than there is, for a while: who has most gives.
    while left < 0 {
        let Some(most) = promises.iter_mut().max() else { break };
        *most -= 1;
        left += 1;
    }
    promises
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_paths_are_those_nearest_to_the_next_one_and_stay_with_who_has_them() {
        assert_eq!(whole(8, &[(2.7, 0), (2.6, 0), (2.7, 0)]), [3, 2, 3]);
        let third = 8.0 / 3.0;
        assert_eq!(whole(8, &[(third, 0), (third, 0), (third, 0)]), [3, 3, 2]);
        assert_eq!(whole(8, &[(third, 2), (third, 3), (third, 3)]), [2, 3, 3]);
        assert_eq!(whole(8, &[(2.9999999, 0), (5.0, 0)]), [3, 5]);
        assert_eq!(whole(8, &[(6.0, 0), (4.0, 0)]), [4, 4], "no more than there are");
        assert!(whole(8, &[]).is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let text = "name = 'x'\ncases = 2\nsources = 2\nsinks = 2\nsessions = 3\n\
                    paths = [4, 8]\nintervals = 50";
        let found = |text: &str| {
            let mut quantities = Quantities::new();
            let wanted: Lightpaths = toml::from_str(text).map_err(|e| e.to_string())?;
            run(&wanted, &mut quantities).map(|()| quantities)
        };
        assert_eq!(found(text).expect("a run")["x_gap"].len(), 2);
        for (good, bad) in [("[4, 8]", "[0, 8]"), ("[4, 8]", "[9, 8]"), ("sinks = 2", "sinks = 0")]
        {
            assert!(found(&text.replace(good, bad)).is_err(), "{bad}");
        }
    }
}
