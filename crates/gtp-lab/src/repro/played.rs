//! Scenario files beside an entry, run as `gtp-lab run` would: rivals, routers, shared links.
//!
//! What the description of networks in an entry has no words for is a file that a reader can run
//! by itself. Its sessions become a trajectory like any other: what arrived in each bin, headers
//! included. A file with sessions of the project's own runs under both laws, one of rivals alone
//! once.

use super::compute::{Law, Runs};
use super::follow::{Follow, Warden};
use super::measure::{Steps, Trajectory};
use crate::course::{self, Watched};
use crate::refusal::Refusal;
use crate::scenario::model::{LawName, NodeKind, PathBound, Scenario};
use crate::scenario::protocol::Protocol;
use crate::scenario::{Document, Overrides};
use gtp_alloc::Rate;
use serde::Deserialize;
use std::path::Path;

/// A scenario file and its runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Played {
    /// Name for measures; needed if there are several.
    #[serde(default)]
    pub name: String,
    /// The file, in the entry's folder.
    pub file: String,
    /// A host's capacity that follows what is measured, in all runs.
    pub capacity: Option<Follow>,
    /// What differs from run to run; one run as the file stands if there are none.
    #[serde(default)]
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// What it is called.
    pub label: String,
    /// Keys by their paths, as a sweep names them, and their values.
    #[serde(default)]
    pub set: toml::Table,
}

impl Played {
    /// Runs all, under each law.
    ///
    /// # Errors
    /// A sentence that says what in the file is wrong.
    pub fn run(&self, folder: &Path) -> Result<Vec<Runs>, String> {
        let path = folder.join(&self.file);
        let document = Document::open(&path).map_err(|e| e.to_string())?;
        let whole = [Run { label: String::new(), set: toml::Table::new() }];
        let runs = if self.runs.is_empty() { &whole[..] } else { &self.runs[..] };
        let mut all = Vec::new();
        for law in [Law::EndNode, Law::Grant] {
            let mut found = Vec::new();
            for run in runs {
                found.extend(self.one(&document, run, law)?);
            }
            if !found.is_empty() {
                all.push(Runs { name: self.name.clone(), law, runs: found });
            }
        }
        Ok(all)
    }

    /// One run under one law; nothing if the law decides nothing in it and it is not the first.
    fn one(&self, document: &Document, run: &Run, law: Law) -> Result<Option<Trajectory>, String> {
        let mut document = document.clone();
        for (key, value) in &run.set {
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
                    value.to_string()
                }
                toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => {
                    return Err(format!(
                        "{}: `{key}` is set to what is no single value",
                        run.label
                    ));
                }
            };
            document.set(key, &text).map_err(|e| e.to_string())?;
        }
        let mut scenario = document.scenario(Overrides::default()).map_err(|e| e.to_string())?;
        scenario.law = match law {
            Law::EndNode => LawName::EndNode,
            Law::Grant => LawName::Grant,
        };
        if law == Law::Grant {
            // What is shown beside the paper's is the product as it is.
            scenario.path_bound = PathBound::On;
        }
        let own = scenario.sessions.iter().any(|session| session.protocol == Protocol::Gtp);
        if law == Law::Grant && !own {
            return Ok(None);
        }
        let mut warden = match &self.capacity {
            Some(follow) => Some(Warden::new(follow, &scenario)?),
            None => None,
        };
        let watched = course::watched(&scenario, &mut |world| match &mut warden {
            Some(warden) => warden.look(world).map_err(Refusal::Input),
            None => Ok(()),
        });
        let watched = watched.map_err(|e| e.to_string())?;
        let shared = warden.map_or_else(Vec::new, |warden| warden.shared);
        Ok(Some(Trajectory { shared, ..trajectory(&scenario, watched, &run.label) }))
    }
}

fn trajectory(scenario: &Scenario, watched: Watched, label: &str) -> Trajectory {
    let Watched { outcome, trace, bounds, timeouts, counts } = watched;
    let bin = trace.bin.as_secs_f64();
    let rate = |bytes: u64| bytes as f64 * 8.0 / bin;
    let sessions = trace.sessions.iter();
    let rates = sessions.map(|session| {
        let bins = session.received.iter().enumerate();
        bins.map(|(n, bytes)| (n as f64 * bin, rate(bytes.0))).collect()
    });
    let rates: Vec<Steps> = rates.collect();
    let packets: u64 = outcome.sessions.iter().map(|course| course.arrived).sum();
    let dropped: u64 = outcome.links.iter().map(|link| link.dropped.0 + link.dropped.1).sum();
    let capacity = scenario.links.iter().map(|link| link.spec.rate);
    let capacity = capacity.filter(|rate| !rate.is_unlimited()).max();
    let done = scenario.sessions.iter().zip(&outcome.sessions);
    let done = done.map(|(session, course)| {
        let all = session.size.is_some_and(|size| course.payload >= size.0);
        if all { course.life.1 } else { f64::INFINITY }
    });
    let queues = outcome.links.iter().map(|link| &link.queue_least);
    let longest = |n: usize| queues.clone().map(|queue| queue[n]).fold(0.0, f64::max);
    Trajectory {
        label: label.to_owned(),
        end: trace.bins as f64 * bin,
        rates,
        goals: goals(&outcome),
        load: loads(scenario, &trace),
        standing: (0..trace.bins).map(|n| ((n + 1) as f64 * bin, longest(n))).collect(),
        bounds,
        timeouts,
        counts,
        shared: Vec::new(),
        done: done.collect(),
        lost: dropped as f64 / ((packets + dropped) as f64).max(1.0),
        losses: outcome.sessions.iter().map(lost).collect(),
        longest: bin,
        unexplained: f64::NAN,
        capacity: capacity.unwrap_or(Rate::from_mbps(1_000)).as_f64(),
    }
}

/// Of what a session sent, the part that was lost.
fn lost(session: &course::Course) -> f64 {
    session.lost as f64 / ((session.arrived + session.lost) as f64).max(1.0)
}

/// What each session should have had, from each change on; zero while it is not there.
fn goals(outcome: &course::Outcome) -> Vec<(f64, Vec<f64>)> {
    let levels = outcome.sessions.iter().map(|course| &course.wanted);
    let mut moments: Vec<f64> = levels.clone().flatten().map(|(t, _)| *t).collect();
    moments.push(0.0);
    moments.sort_by(f64::total_cmp);
    moments.dedup();
    let at = |wanted: &[(f64, f64)], t: f64| match wanted.partition_point(|(s, _)| *s <= t) {
        0 => 0.0,
        n if wanted[n - 1].1.is_nan() => 0.0,
        n => wanted[n - 1].1,
    };
    moments.into_iter().map(|t| (t, levels.clone().map(|wanted| at(wanted, t)).collect())).collect()
}

/// What sources may send to the sink that is worst off, as a part of what it may receive; of the
/// slowest link where it says nothing.
fn loads(scenario: &Scenario, trace: &gtp_sim::trace::Trace) -> Steps {
    let slowest = course::slowest(scenario.links.iter().map(|link| &link.spec));
    let capacity = |sink: usize| match &scenario.nodes[sink].kind {
        NodeKind::Host(host) if !host.capacity_in.is_unlimited() => host.capacity_in,
        NodeKind::Host(_) | NodeKind::Switch => slowest,
    };
    let bin = trace.bin.as_secs_f64();
    let mut load = vec![0.0; scenario.nodes.len()];
    let mut steps = Steps::new();
    for n in 0..trace.bins {
        load.fill(0.0);
        for (session, series) in scenario.sessions.iter().zip(&trace.sessions) {
            let sending = series.sending[n].as_f64();
            load[session.sink] += sending / capacity(session.sink).as_f64();
        }
        steps.push(((n + 1) as f64 * bin, load.iter().copied().fold(0.0, f64::max)));
    }
    steps
}
