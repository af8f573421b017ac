//! A network to be simulated, as an entry describes it, and the cases it stands for.
//!
//! What is left out has the values of the thesis's Table VII.1. A range is drawn from uniformly,
//! once for each node or session; `cases` repeats the whole with other draws, `runs` repeats it
//! with some fields changed and everything else, draws included, the same. Knows no engine.

use gtp_alloc::endnode::{CapAtTarget, Params};
use gtp_alloc::maxmin::{Network, Session, solve};
use gtp_link::Rng;
use serde::Deserialize;

use crate::scenario::model::PathBound;

/// A description and its runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name for measures; needed if there are several.
    #[serde(default)]
    pub name: String,
    /// The description's own fields, with the defaults of Table VII.1.
    pub network: toml::Table,
    /// Fields that differ from run to run.
    #[serde(default)]
    pub runs: Vec<toml::Table>,
    /// How many times, with the seeds from `network.seed` on.
    #[serde(default = "one")]
    pub cases: usize,
}

fn one() -> usize {
    1
}

/// What one run is made from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    /// What the run is called.
    #[serde(default)]
    label: String,
    links: Links,
    seconds: f64,
    #[serde(default = "first_seed")]
    seed: u64,
    #[serde(default = "gigabit")]
    capacity_mbps: f64,
    /// What the nodes' access links carry; the capacity if left out.
    link_mbps: Option<f64>,
    #[serde(default = "fifty")]
    rtt_ms: Spread,
    /// The nodes' control intervals.
    #[serde(default = "fifty")]
    interval_ms: Spread,
    /// The ends of their first ones; random if left out.
    phase_ms: Option<Spread>,
    #[serde(default = "alpha")]
    alpha: Spread,
    #[serde(default = "beta")]
    beta: Spread,
    /// Whether alpha and beta belong to nodes or go with sessions to both ends.
    #[serde(default)]
    parameters: Belong,
    /// Whether the path bounds sessions of the paper's law, packet by packet.
    #[serde(default)]
    path_bound: PathBound,
    #[serde(default = "unlimited")]
    demand_mbps: Spread,
    #[serde(default = "zero")]
    start: Spread,
    #[serde(default = "unlimited")]
    stop: Spread,
    /// Rates under which the sessions have always run, as parts of the capacity.
    #[serde(default = "zero")]
    initial: Spread,
    /// Rates of that kind that follow from the max-min rates, in place of `initial`.
    from: Option<From>,
    /// What each session has to deliver.
    #[serde(default = "unlimited")]
    megabytes: Spread,
    /// Each packet's chance of being lost on its session's path.
    #[serde(default = "zero")]
    loss: Spread,
    #[serde(default)]
    demand_steps: Vec<DemandStep>,
    /// Whether each rate is to be held against those before it.
    #[serde(default)]
    replay: bool,
}

/// Who talks to whom: for each source, the sinks of its sessions, both counted from one.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Links {
    /// Each source's sinks.
    Given(Vec<Vec<usize>>),
    /// Drawn with replacement.
    Random {
        /// Number of sources.
        sources: usize,
        /// Number of sinks.
        sinks: usize,
        /// Sessions of each source.
        sessions: usize,
    },
}

/// One number for all, one for each, or a range to draw from.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Spread {
    /// The same for all.
    Same(f64),
    /// In the sessions' order.
    Each(Vec<f64>),
    /// By the number of a session's source.
    BySource {
        /// One for each source.
        by_source: Vec<f64>,
    },
    /// Drawn uniformly.
    Uniform {
        /// Lower and upper end.
        uniform: [f64; 2],
    },
}

/// Whose parameters alpha and beta are.
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Belong {
    /// Each node's own.
    #[default]
    Nodes,
    /// Each session's, at both ends.
    Sessions,
}

/// A change of a session's desired rate.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemandStep {
    /// Which session, from one.
    pub session: usize,
    /// When, in seconds.
    pub at: f64,
    /// The new desired rate.
    pub mbps: f64,
}

/// Rates at the start that follow from the max-min rates.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum From {
    /// They themselves.
    Goal,
    /// A random part of each.
    BelowGoal,
    /// A random number of the lowest are there, the others anywhere above those.
    LowestAtGoal,
    /// A random number of the lowest are there, the others anywhere between those and their own.
    LowestAtGoalRestBelow,
}

fn first_seed() -> u64 {
    1
}
fn gigabit() -> f64 {
    1000.0
}
fn fifty() -> Spread {
    Spread::Same(50.0)
}
fn alpha() -> Spread {
    Spread::Same(Params::TABLE_VII_1.alpha)
}
fn beta() -> Spread {
    Spread::Same(Params::TABLE_VII_1.beta)
}
fn unlimited() -> Spread {
    Spread::Same(f64::INFINITY)
}
fn zero() -> Spread {
    Spread::Same(0.0)
}

/// One run with every draw made: what an engine is given.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is called among its scenario's runs.
    pub label: String,
    /// Its length.
    pub seconds: f64,
    /// Seed for what the engine draws itself.
    pub seed: u64,
    /// Each node's capacity, in bit/s.
    pub capacity: f64,
    /// What each node's access link carries, in bit/s.
    pub link: f64,
    /// Sources, then sinks.
    pub nodes: Vec<Node>,
    /// How many of the nodes are sources.
    pub sources: usize,
    /// The sessions, by source.
    pub sessions: Vec<Planned>,
    /// Whose parameters alpha and beta are.
    pub parameters: Belong,
    /// Whether the path bounds sessions of the paper's law, packet by packet.
    pub path_bound: PathBound,
    /// Whether the ends of the nodes' first intervals were given, not drawn.
    pub phased: bool,
    /// Changes of desired rates, by moment.
    pub demand_steps: Vec<DemandStep>,
    /// Whether each rate is to be held against those before it.
    pub replay: bool,
}

/// A node of a case.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Its control interval, in seconds.
    pub interval: f64,
    /// The end of its first interval, in seconds: uniform in one interval.
    pub phase: f64,
    /// Its alpha.
    pub alpha: f64,
    /// Its beta.
    pub beta: f64,
}

/// A session of a case.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// Its source, an index into the nodes.
    pub source: usize,
    /// Its sink, an index into the nodes.
    pub sink: usize,
    /// Its round-trip time, in seconds.
    pub rtt: f64,
    /// Its desired rate in bit/s.
    pub demand: f64,
    /// When it joins, in seconds.
    pub start: f64,
    /// When it leaves, in seconds.
    pub stop: f64,
    /// The rate at which it has always run, in bit/s.
    pub initial: f64,
    /// What it has to deliver, in bytes.
    pub bytes: f64,
    /// Each of its packets' chance of being lost.
    pub loss: f64,
    /// Its alpha, if parameters belong to sessions.
    pub alpha: f64,
    /// Its beta, if parameters belong to sessions.
    pub beta: f64,
}

/// More nodes, sessions or runs than this are refused.
const MANY: usize = 1 << 20;

impl Scenario {
    /// Every run of every case.
    ///
    /// # Errors
    /// A sentence that says what in the description is wrong.
    pub fn expand(&self) -> Result<Vec<Case>, String> {
        let none = [toml::Table::new()];
        let runs = if self.runs.is_empty() { &none[..] } else { &self.runs[..] };
        if self.cases == 0 || self.cases.saturating_mul(runs.len()) > MANY {
            return Err("no case, or too many runs".to_owned());
        }
        let mut all = Vec::new();
        for run in runs {
            let mut fields = self.network.clone();
            fields.extend(run.clone());
            let plan: Plan =
                fields.try_into().map_err(|e| format!("scenario {}: {e}", self.name))?;
            for case in 0..self.cases {
                all.push(draw(&plan, plan.seed + case as u64, case)?);
            }
        }
        Ok(all)
    }
}

/// The source and the sink of each session.
fn pairs(links: &[Vec<usize>]) -> Vec<(usize, usize)> {
    links.iter().enumerate().flat_map(|(s, row)| row.iter().map(move |r| (s, *r))).collect()
}

fn draw(plan: &Plan, seed: u64, case: usize) -> Result<Case, String> {
    // Each kind of draw has its own generator, so that a run that changes one keeps the others.
    let mut generators = (0u64..).map(|n| Rng::new(seed.wrapping_mul(64).wrapping_add(n)));
    let mut next = || generators.next().unwrap_or_else(|| Rng::new(seed));
    let links = plan.links.resolve(&mut next())?;
    let sources = links.len();
    let sinks = plan.links.sinks(&links);
    let pairs = pairs(&links);
    let by_session: Vec<usize> = pairs.iter().map(|(source, _)| *source).collect();
    let by_node: Vec<usize> = (0..sources + sinks).collect();
    let mut spread = |spread: &Spread, owners: &[usize]| spread.resolve(owners, &mut next());
    let owners = match plan.parameters {
        Belong::Nodes => &by_node,
        Belong::Sessions => &by_session,
    };
    let (alpha, beta) = (spread(&plan.alpha, owners)?, spread(&plan.beta, owners)?);
    let interval = spread(&plan.interval_ms, &by_node)?;
    let drawn = spread(plan.phase_ms.as_ref().unwrap_or(&ANYWHERE), &by_node)?;
    let phase = |v: usize| match &plan.phase_ms {
        Some(_) => drawn[v],
        // Never at the very moment zero, which would be a whole interval early.
        None => (1.0 - drawn[v]) * interval[v],
    };
    let rtt = spread(&plan.rtt_ms, &by_session)?;
    let demand = spread(&plan.demand_mbps, &by_session)?;
    let (start, stop) = (spread(&plan.start, &by_session)?, spread(&plan.stop, &by_session)?);
    let initial = spread(&plan.initial, &by_session)?;
    let (megabytes, loss) =
        (spread(&plan.megabytes, &by_session)?, spread(&plan.loss, &by_session)?);
    let capacity = plan.capacity_mbps * 1e6;
    let node = |v: usize| Node {
        interval: interval[v] / 1e3,
        phase: phase(v) / 1e3,
        alpha: *alpha.get(v).unwrap_or(&0.0),
        beta: *beta.get(v).unwrap_or(&0.0),
    };
    let session = |k: usize| Planned {
        source: pairs[k].0,
        sink: sources + pairs[k].1,
        rtt: rtt[k] / 1e3,
        demand: demand[k] * 1e6,
        start: start[k],
        stop: stop[k],
        initial: initial[k] * capacity,
        bytes: megabytes[k] * 1e6,
        loss: loss[k],
        alpha: *alpha.get(k).unwrap_or(&0.0),
        beta: *beta.get(k).unwrap_or(&0.0),
    };
    let mut case = Case {
        label: label(plan, case),
        seconds: plan.seconds,
        seed,
        capacity,
        link: plan.link_mbps.map_or(capacity, |mbps| mbps * 1e6),
        nodes: by_node.iter().map(|v| node(*v)).collect(),
        sources,
        sessions: (0..pairs.len()).map(session).collect(),
        parameters: plan.parameters,
        path_bound: plan.path_bound,
        phased: plan.phase_ms.is_some(),
        demand_steps: in_order(plan),
        replay: plan.replay,
    };
    case.check()?;
    if let Some(from) = plan.from {
        case.begin(from, &mut next());
    }
    Ok(case)
}

/// What a case is called.
fn label(plan: &Plan, case: usize) -> String {
    if plan.label.is_empty() { format!("case {}", case + 1) } else { plan.label.clone() }
}

/// The changes of demand, in order of time.
fn in_order(plan: &Plan) -> Vec<DemandStep> {
    let mut steps = plan.demand_steps.clone();
    steps.sort_by(|a, b| a.at.total_cmp(&b.at));
    steps
}

/// Some part of an interval.
const ANYWHERE: Spread = Spread::Uniform { uniform: [0.0, 1.0] };
/// Longest run, in seconds: a day.
const SECONDS_MOST: f64 = 86_400.0;
/// Largest capacity, in bit/s: what the engines take.
const CAPACITY_MOST: f64 = 1e15;

impl Links {
    /// For each source, the indices of its sessions' sinks.
    ///
    /// # Errors
    /// A sentence, if a sink is numbered zero or there are too many of anything.
    pub fn resolve(&self, rng: &mut Rng) -> Result<Vec<Vec<usize>>, String> {
        match self {
            Links::Given(rows) => {
                let fine = rows.iter().flatten().all(|sink| (1..=MANY).contains(sink));
                if !fine || rows.iter().map(Vec::len).sum::<usize>() == 0 {
                    return Err("links: sinks are counted from one, and there is one".to_owned());
                }
                let row = |row: &Vec<usize>| row.iter().map(|sink| sink - 1).collect();
                Ok(rows.iter().map(row).collect())
            }
            Links::Random { sources, sinks, sessions } => {
                let most = sources.max(sinks).max(&sources.saturating_mul(*sessions)).to_owned();
                if most > MANY || *sinks == 0 {
                    return Err("links: too many nodes or sessions, or no sink".to_owned());
                }
                let mut sink = || rng.below(*sinks as u64) as usize;
                Ok((0..*sources).map(|_| (0..*sessions).map(|_| sink()).collect()).collect())
            }
        }
    }

    /// How many sinks there are.
    fn sinks(&self, links: &[Vec<usize>]) -> usize {
        match self {
            Links::Given(_) => links.iter().flatten().max().map_or(0, |sink| sink + 1),
            Links::Random { sinks, .. } => *sinks,
        }
    }
}

impl Spread {
    /// A number for each owner; `owners` holds the source's number of each session.
    ///
    /// # Errors
    /// A sentence, if a list has another length.
    pub fn resolve(&self, owners: &[usize], rng: &mut Rng) -> Result<Vec<f64>, String> {
        match self {
            Spread::Same(x) => Ok(vec![*x; owners.len()]),
            Spread::Each(list) if list.len() == owners.len() => Ok(list.clone()),
            Spread::Each(list) => {
                Err(format!("{} numbers for {} sessions or nodes", list.len(), owners.len()))
            }
            Spread::BySource { by_source } => {
                let of = |source: &usize| {
                    by_source.get(*source).copied().ok_or("by_source: too few".to_owned())
                };
                owners.iter().map(of).collect()
            }
            Spread::Uniform { uniform: [low, high] } => {
                let unit = |rng: &mut Rng| (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                Ok(owners.iter().map(|_| low + (high - low) * unit(rng)).collect())
            }
        }
    }
}

impl Case {
    /// Whether an engine can be given it.
    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{}: {what}", self.label));
        let sized = |bps: f64| bps > 0.0 && bps <= CAPACITY_MOST;
        if self.sessions.is_empty() {
            return wrong("there is no session");
        }
        if !(0.0..=SECONDS_MOST).contains(&self.seconds) {
            return wrong("`seconds` is from 0 to 86,400");
        }
        if !sized(self.capacity) || !sized(self.link) {
            return wrong("capacities are above 0 and at most 10^9 Mbit/s");
        }
        if self.nodes.iter().any(|node| !(1e-4..=1.0).contains(&node.interval)) {
            return wrong("intervals are from 0.1 to 1,000 ms");
        }
        if self.nodes.iter().any(|node| !(node.phase > 0.0 && node.phase <= node.interval)) {
            return wrong("a first interval ends after 0 ms and not after one whole interval");
        }
        let valid = |alpha, beta| Params { alpha, beta, cap_at_target: CapAtTarget::No }.is_valid();
        let valid = match self.parameters {
            Belong::Nodes => self.nodes.iter().all(|node| valid(node.alpha, node.beta)),
            Belong::Sessions => self.sessions.iter().all(|s| valid(s.alpha, s.beta)),
        };
        if !valid {
            return wrong("alpha and beta are above 0 and below 1");
        }
        let fine = |s: &Planned| {
            let positive = [s.rtt, s.demand, s.start, s.initial, s.bytes, s.loss];
            positive.iter().all(|x| *x >= 0.0) && s.rtt.is_finite() && s.start.is_finite()
        };
        if !self.sessions.iter().all(|s| fine(s) && s.stop >= s.start) {
            return wrong("nothing of a session is below zero, and none stops before it starts");
        }
        let named = |step: &DemandStep| (1..=self.sessions.len()).contains(&step.session);
        if !self.demand_steps.iter().all(|step| named(step) && step.mbps >= 0.0) {
            return wrong("a step of demand names no session, or a rate below zero");
        }
        Ok(())
    }

    /// Sets the rates under which the sessions have always run, in whole bit/s.
    fn begin(&mut self, from: From, rng: &mut Rng) {
        let goal = self.goal(0.0, |_| true);
        let mut unit = || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut sorted = goal.clone();
        sorted.sort_by(f64::total_cmp);
        let lowest = sorted[(unit() * goal.len() as f64) as usize];
        for (session, goal) in self.sessions.iter_mut().zip(&goal) {
            let most = session.demand.min(self.capacity).max(lowest);
            let rate = match from {
                From::Goal => *goal,
                From::BelowGoal => goal * unit(),
                From::LowestAtGoal | From::LowestAtGoalRestBelow if *goal <= lowest => *goal,
                From::LowestAtGoalRestBelow => lowest + (goal - lowest) * unit(),
                From::LowestAtGoal => lowest + (most - lowest) * unit(),
            };
            session.initial = rate.floor().max(1.0);
        }
    }

    /// Thesis, VI.3: the longest time between cause and effect, T_max, in seconds.
    pub fn longest(&self) -> f64 {
        let rtt = self.sessions.iter().map(|s| s.rtt).fold(0.0, f64::max);
        rtt + 2.0 * self.nodes.iter().map(|node| node.interval).fold(0.0, f64::max)
    }

    /// The exact max-min rates, from each change of membership or desired rates on. Sessions with
    /// a size are taken to stay.
    pub fn goals(&self) -> Vec<(f64, Vec<f64>)> {
        let starts = self.sessions.iter().map(|s| s.start);
        let stops = self.sessions.iter().map(|s| s.stop);
        let steps = self.demand_steps.iter().map(|step| step.at);
        let mut moments: Vec<f64> = starts.chain(stops).chain(steps).collect();
        moments.push(0.0);
        moments.retain(|t| *t < self.seconds.max(f64::MIN_POSITIVE));
        moments.sort_by(f64::total_cmp);
        moments.dedup();
        moments.into_iter().map(|t| (t, self.goal(t, |k| t < self.sessions[k].stop))).collect()
    }

    /// The exact max-min rates at a moment among the sessions that have started and are `present`.
    pub fn goal(&self, moment: f64, present: impl Fn(usize) -> bool) -> Vec<f64> {
        let mut network =
            Network::new(vec![self.capacity; self.nodes.len()]).expect("capacities are positive");
        for (k, s) in self.sessions.iter().enumerate() {
            let changed = |step: &&DemandStep| step.session == k + 1 && step.at <= moment;
            let step = self.demand_steps.iter().rev().find(changed);
            let wanted = step.map_or(s.demand, |step| step.mbps * 1e6);
            let demand = if s.start <= moment && present(k) { wanted } else { 0.0 };
            let uses = [s.source as u32, s.sink as u32];
            network.add(Session { uses: &uses, weight: 1.0, demand }).expect("a proper session");
        }
        solve(&network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<Vec<Case>, String> {
        toml::from_str::<Scenario>(text).map_err(|e| e.to_string())?.expand()
    }

    #[test]
    fn what_is_left_out_is_table_vii_1() {
        let cases = expand("network = { links = [[1]], seconds = 1 }").expect("a scenario");
        let case = &cases[0];
        assert_eq!((case.nodes[0].alpha, case.nodes[1].beta), (0.15, 0.2));
        assert_eq!((case.sessions[0].rtt, case.nodes[0].interval), (0.05, 0.05));
        assert_eq!(case.capacity, 1e9);
    }

    #[test]
    fn runs_change_what_they_name_and_keep_all_other_draws() {
        let text = "network = { links = { sources = 3, sinks = 2, sessions = 4 }, seconds = 1,\
                    rtt_ms = { uniform = [1, 100] } }\nruns = [{ alpha = 0.1 }, { alpha = 0.2 }]";
        let cases = expand(text).expect("a scenario");
        let draws = |case: &Case| -> Vec<(usize, u64)> {
            case.sessions.iter().map(|s| (s.sink, s.rtt.to_bits())).collect()
        };
        assert_eq!(draws(&cases[0]), draws(&cases[1]));
        assert_eq!((cases[0].nodes[0].alpha, cases[1].nodes[0].alpha), (0.1, 0.2));
    }

    #[test]
    fn cases_draw_anew() {
        let text = "network = { links = [[1, 2]], seconds = 1, rtt_ms = { uniform = [1, 100] } }\n\
                    cases = 2";
        let cases = expand(text).expect("a scenario");
        assert_ne!(cases[0].sessions[0].rtt, cases[1].sessions[0].rtt);
    }

    #[test]
    fn goals_follow_membership_and_demand() {
        let text = "network = { links = [[1], [1]], seconds = 20, start = [0, 5], stop = [15, inf],\
                    demand_steps = [{ session = 2, at = 10, mbps = 100 }] }";
        let goals = expand(text).expect("a scenario")[0].goals();
        let moments: Vec<f64> = goals.iter().map(|(t, _)| *t).collect();
        assert_eq!(moments, [0.0, 5.0, 10.0, 15.0]);
        assert_eq!(goals[1].1, [5e8, 5e8]);
        assert_eq!(goals[2].1, [9e8, 1e8]);
        assert_eq!(goals[3].1, [0.0, 1e8]);
    }

    #[test]
    fn a_wrong_description_is_refused() {
        for bad in [
            "network = { links = [[0]], seconds = 1 }",
            "network = { links = [], seconds = 1 }",
            "network = { links = [[1]], seconds = 1, rtt_ms = [1, 2] }",
            "network = { links = [[1]], seconds = 1, colour = 1 }",
            "network = { links = [[1]], seconds = -1 }",
            "network = { links = [[1]], seconds = 1, capacity_mbps = 0 }",
            "network = { links = [[1]], seconds = 1, interval_ms = 0 }",
            "network = { links = [[1]], seconds = 1, rtt_ms = -1 }",
            "network = { links = [[1]], seconds = 1, demand_mbps = nan }",
            "network = { links = [[1]], seconds = 1, start = 2, stop = 1 }",
            "network = { links = { sources = 0, sinks = 1, sessions = 1 }, seconds = 1 }",
            "network = { links = [[1]] }",
            "network = { links = [[1]], seconds = 1, alpha = 1.5 }",
            "network = { links = [[1]], seconds = 1, beta = 0 }",
            "network = { links = [[1]], seconds = 1, alpha = nan, parameters = 'sessions' }",
            "network = { links = [[1]], seconds = 1, phase_ms = 51 }",
            "network = { links = [[1]], seconds = 1, phase_ms = 0 }",
            "network = { links = [[1]], seconds = 1 }\ncases = 0",
            "network = { links = [[1]], seconds = 1, demand_steps = [{session=2, at=1, mbps=1}] }",
        ] {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }
}
