//! Real against simulated: one scenario in both worlds, and how far its two trajectories are apart.
//!
//! A scenario is a network file and sessions with the times at which they start and stop. It is
//! run twice through real sockets and the emulator, and in the packet-level simulator, whose world
//! is built from the same file. Both leave samples of the same kind, and one piece of code judges
//! them, knowing of no world. How far two real runs are apart says what difference means nothing
//! (thesis IX.3, Figures IX.5, IX.12 and IX.13, where one looks at two plots).
//!
//! The simulator has no TCP and TLS, so its sessions start sooner. It therefore runs once as
//! planned, and once for each real run with every start delayed until its first data comes when it
//! came there.

mod daemons;
mod distance;
mod figures;
mod net;
mod page;
mod simulated;

use anyhow::{Context, Result, ensure};
use gtp_proto::{Law, PathUse};
use serde_json::{Value, json};

use crate::cases::{
    CAPACITY, HOLD, PAIRS, Sink, Tools, five, one_branch, plan, transfer, with_sources,
};
use crate::lab::{Branch, Lab, Shape};
use crate::plan::{Plan, Transfer};
use crate::record::Record;

pub use daemons::rows as by_daemons;
pub use distance::{Distance, Trajectories, between};
pub use figures::Figures;
pub use net::{Mesh, Net};
pub use simulated::simulate;

/// The names of all comparisons, of a thesis's figures: `one` session over 60 ms (IX.5), with a
/// number behind it over so many ms (IX.7); five with round trips of 1, 1, 60, 60 and 140 ms to one
/// sink that start `one-by-one` every three seconds and stop in the same order, are `joining`
/// every ten (IX.9), or start `together` (IX.8); and among five such sources and five sinks, at a
/// tenth of the rates, `twenty`, source `i` skipping sink `i` (IX.12), `fifteen` of Table IX.2
/// (IX.15), `two-each`, two at each node, one more every two seconds (IX.17), and `three-each`,
/// three, of which the first stops before the others (IX.18).
pub const NAMES: &[&str] =
    &["one", "one-by-one", "joining", "together", "twenty", "fifteen", "two-each", "three-each"];

/// Length of a bin of the trajectories, in seconds.
pub const BIN: f64 = 0.1;

/// Alpha of the end-node law, unless another is asked for (thesis IX.3).
pub const ALPHA: f64 = 0.1;

/// Control interval of the end-node law's sink in milliseconds (thesis IX.3).
const INTERVAL_MS: u64 = 20;

/// Access links and capacities of the hosts of a mesh: a tenth of the thesis's, because one machine
/// carries all of it in ten processes.
const MESH: (&str, f64) = ("70Mbit", 63e6);

/// As many that join or leave at once are named one by one.
const SINGLY: usize = 5;

/// A session that settles is within this part of its share.
const BAND: f64 = 0.05;

/// IP bytes after which a session's data counts as flowing: beyond any handshake.
const FIRST_BYTES: f64 = 12_000.0;

/// What is run in both worlds.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// The network.
    pub net: Net,
    /// Each sink's capacity in bit/s, and each source's in a mesh.
    pub capacity: f64,
    /// How agents share it.
    pub law: Law,
    /// Whether the path bounds its sessions.
    pub path: PathUse,
    /// When each session starts and stops, in seconds.
    pub lives: Vec<(f64, f64)>,
}

/// A run of a scenario in either world.
pub struct Run {
    /// What was sampled.
    pub record: Record,
    /// The sampler's time when the scenario began.
    pub zero: f64,
    /// Hash of a simulated run.
    pub hash: Option<u64>,
}

/// A stretch of a scenario in which the same sessions live.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// From when to when, in seconds.
    pub span: (f64, f64),
    /// What happened at its beginning.
    pub what: String,
    /// The sessions that live.
    pub live: Vec<usize>,
}

impl Scenario {
    /// The scenario of a name in [`NAMES`], or `one-RTT`. The path bounds no session of the
    /// thesis's law.
    ///
    /// # Errors
    /// If there is no such name.
    pub fn named(name: &str, queue: &str, law: Law) -> Result<Scenario> {
        let found = to_one(name, queue).or_else(|| among_five(name, queue));
        let (net, lives) = found
            .with_context(|| format!("no comparison {name}; there are {}", NAMES.join(", ")))?;
        let capacity = if net.limits_sources() { MESH.1 } else { CAPACITY };
        let path = match law {
            Law::EndNode { .. } => PathUse::Unbounded,
            Law::Grant | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => {
                PathUse::default()
            }
        };
        Ok(Scenario { name: name.to_owned(), net, capacity, law, path, lives })
    }

    /// What its files' names begin with.
    pub fn stem(&self) -> String {
        let alpha = match self.law {
            Law::EndNode { alpha, .. } if alpha != ALPHA => format!("-alpha-{alpha}"),
            _ => String::new(),
        };
        format!("compare-{}-{}{alpha}-{}", self.name, law_name(self.law), self.net.queue())
    }

    /// When the last session stops.
    pub fn end(&self) -> f64 {
        self.lives.iter().map(|life| life.1).fold(0.0, f64::max)
    }

    /// The stretches between starts and stops.
    pub fn phases(&self) -> Vec<Phase> {
        let mut times: Vec<f64> = self.lives.iter().flat_map(|life| [life.0, life.1]).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let phase = |span: &[f64]| {
            let at = span[0];
            let those = |of: fn(&(f64, f64)) -> f64, verb: &str| {
                let those = (0..self.lives.len()).filter(|&i| of(&self.lives[i]) == at);
                match those.clone().count() {
                    0..=SINGLY => those.map(|i| format!("s{} {verb}s", i + 1)).collect(),
                    many => vec![format!("{many} {verb}")],
                }
            };
            let what = [those(|life| life.0, "join"), those(|life| life.1, "leave")].concat();
            let alive = |i: &usize| self.lives[*i].0 <= at && at < self.lives[*i].1;
            let live = (0..self.lives.len()).filter(alive).collect();
            Phase { span: (at, span[1]), what: what.join(", "), live }
        };
        times.windows(2).map(phase).collect()
    }

    /// What each live session of a phase should have, in bit/s.
    ///
    /// # Errors
    /// If there is no such network.
    pub fn shares(&self, phase: &Phase) -> Result<Vec<f64>> {
        self.net.shares(&phase.live, self.capacity)
    }
}

impl Run {
    /// The rates at which sessions' IP bytes left the sink's access link.
    pub fn trajectories(&self, scenario: &Scenario) -> Trajectories {
        let bins = (scenario.end() / BIN).round() as usize;
        let at = |k: usize| self.zero + BIN * k as f64;
        let session = |i: usize| {
            (0..bins)
                .map(|k| self.record.rate(&scenario.net.route(i), at(k), at(k + 1)))
                .collect::<Vec<_>>()
        };
        Trajectories { bin: BIN, rates: (0..scenario.lives.len()).map(session).collect() }
    }

    /// Seconds from each session's planned start to its first data; not a number without any.
    pub fn start_up(&self, scenario: &Scenario) -> Vec<f64> {
        let first = |(i, life): (usize, &(f64, f64))| {
            let start = self.zero + life.0;
            let first = self.record.first_data(&scenario.net.route(i), start, FIRST_BYTES);
            first.map_or(f64::NAN, |at| at - start)
        };
        scenario.lives.iter().enumerate().map(first).collect()
    }

    /// Seconds from each session's planned stop to its last data; not a number without any.
    pub fn end(&self, scenario: &Scenario) -> Vec<f64> {
        let last = |(i, life): (usize, &(f64, f64))| {
            let last = self.record.last_data(&scenario.net.route(i), FIRST_BYTES);
            last.map_or(f64::NAN, |at| at - self.zero - life.1)
        };
        scenario.lives.iter().enumerate().map(last).collect()
    }

    /// Seconds after each phase's beginning from which on its sessions have had their shares for
    /// half a second; not a number where that never was.
    pub fn settling(&self, scenario: &Scenario) -> Vec<f64> {
        let settled = |phase: &Phase| {
            let Ok(shares) = scenario.shares(phase) else { return f64::NAN };
            let routes = phase.live.iter().map(|&i| scenario.net.route(i));
            let shares: Vec<_> = routes.zip(shares).collect();
            let span = (self.zero + phase.span.0, self.zero + phase.span.1);
            self.record.reached(&shares, span, BAND, BIN, HOLD)
        };
        scenario.phases().iter().map(settled).collect()
    }

    /// The part of the packets that the access links' queues dropped.
    pub fn loss(&self, scenario: &Scenario) -> f64 {
        let span = (self.zero, self.zero + scenario.end());
        let links = scenario.net.access_links().into_iter();
        let counts = links.map(|link| self.record.drops(&link, span.0, span.1));
        let (offered, dropped) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        dropped as f64 / offered.max(1) as f64
    }
}

/// Runs a scenario through real sockets and the emulator.
///
/// # Errors
/// If the caller is not root, a process cannot be started or one says nothing.
pub fn real(tools: &Tools, scenario: &Scenario) -> Result<Run> {
    let (lab, prints) = sources(tools, scenario)?;
    let mut sinks: Vec<String> =
        (0..scenario.lives.len()).map(|i| scenario.net.ends(i).1).collect();
    sinks.sort();
    sinks.dedup();
    let began = lab.now();
    let mut running = Vec::new();
    for sink in sinks {
        let of = |i: &usize| scenario.net.ends(*i).1 == sink;
        let mine: Vec<usize> = (0..scenario.lives.len()).filter(of).collect();
        // A process that is started later waits less.
        let wait = if scenario.net.limits_sources() { LEAD - (lab.now() - began) } else { 0.0 };
        let transfers = mine.iter().map(|&i| told(scenario, i, &prints, wait)).collect();
        running.push((
            mine,
            wait,
            Sink::start_on(&lab, &sink, tools, &terms(scenario, transfers))?,
        ));
    }
    let mut zeros = Vec::new();
    for (mine, wait, sink) in running {
        let lines = sink.finish()?;
        let began = |(at, line): &(f64, Value)| {
            let nth = line["transfer"].as_u64().filter(|_| line["event"] == "begin")? as usize;
            Some(at - scenario.lives[*mine.get(nth)?].0)
        };
        zeros.push(lines.iter().find_map(began).context("a sink's process did not begin")?);
        ensure!(wait >= 0.0, "the processes took longer than {LEAD} s to start");
    }
    let zero = zeros.into_iter().fold(f64::INFINITY, f64::min);
    Ok(Run { record: Record(lab.close()?), zero, hash: None })
}

/// Seconds in which all sinks' processes of a mesh are started.
const LEAD: f64 = 0.5;

/// A laboratory whose sources serve, each with its capacity in a mesh.
fn sources(tools: &Tools, scenario: &Scenario) -> Result<(Lab, Vec<String>)> {
    let unbounded = (scenario.path == PathUse::Unbounded).then_some("--no-path-bound");
    let mesh = match &scenario.net {
        Net::Star(shape) => {
            let options = unbounded.map(str::to_owned).into_iter().collect();
            return with_sources(shape, tools, &vec![options; shape.branches.len()]);
        }
        Net::Mesh(mesh) => mesh,
    };
    let mut lab = Lab::open_file(&scenario.net.file(), &tools.gtp)?;
    let data = lab.dir.path().join("data");
    std::fs::create_dir(&data)?;
    std::fs::File::create(data.join("big"))?.set_len(100 << 30)?;
    let out = format!("{:.0}bit", scenario.capacity);
    let interval = format!("{INTERVAL_MS}ms");
    let mut options = vec!["--public", "--capacity-out", &out];
    options.extend(unbounded);
    if let Law::EndNode { .. } = scenario.law {
        options.extend(["--interval", &interval, "--allow-control", "endnode"]);
    }
    let mut prints = Vec::new();
    for i in 0..mesh.rtts_ms.len() {
        prints.push(lab.serve(&format!("src{i}"), &data, &options)?);
    }
    Ok((lab, prints))
}

/// What a session's sink is told of it.
fn told(scenario: &Scenario, i: usize, prints: &[String], wait: f64) -> Transfer {
    let source = match &scenario.net {
        Net::Star(_) => i,
        Net::Mesh(mesh) => mesh.pairs[i].0,
    };
    let (start, stop) = scenario.lives[i];
    transfer(source, prints, start + wait, stop + wait)
}

/// What a sink's process is told.
fn terms(scenario: &Scenario, transfers: Vec<Transfer>) -> Plan {
    let mut told = plan(transfers);
    told.capacity_in = Some(scenario.capacity as u64);
    told.unbounded = scenario.path == PathUse::Unbounded;
    if let Law::EndNode { alpha, beta } = scenario.law {
        (told.end_node, told.interval_ms) = (Some((alpha, beta)), Some(INTERVAL_MS));
    }
    told
}

/// All runs of a comparison: two real ones, the simulated one as planned, and one simulated run
/// with the starts of each real one.
pub struct Runs {
    /// Through real sockets.
    pub real: [Run; 2],
    /// In the simulator, as planned.
    pub planned: Run,
    /// In the simulator, with the starts of the real runs.
    pub aligned: [Run; 2],
}

impl Runs {
    /// Runs a scenario in both worlds.
    ///
    /// # Errors
    /// If a real run cannot be started, or one of its sessions had no data.
    pub fn of(tools: &Tools, scenario: &Scenario) -> Result<Runs> {
        let real = [real(tools, scenario)?, real(tools, scenario)?];
        let none = vec![0.0; scenario.lives.len()];
        let planned = simulate(scenario, &none)?;
        let sooner = planned.start_up(scenario);
        let aligned = |run: &Run| {
            let pairs = run.start_up(scenario).into_iter().zip(&sooner);
            let delays: Vec<f64> = pairs.map(|(there, here)| there - here).collect();
            ensure!(delays.iter().all(|d| d.is_finite()), "a session had no data: {delays:?}");
            simulate(scenario, &delays.iter().map(|d| d.max(0.0)).collect::<Vec<_>>())
        };
        let aligned = [aligned(&real[0])?, aligned(&real[1])?];
        Ok(Runs { real, planned, aligned })
    }

    /// The distances: of the simulated run as planned, and of the aligned ones, to each real run,
    /// and between the two real runs.
    ///
    /// # Errors
    /// If the runs do not belong to one scenario.
    pub fn distances(&self, scenario: &Scenario) -> Result<Distances> {
        let of = |run: &Run| run.trajectories(scenario);
        let (one, other, planned) = (of(&self.real[0]), of(&self.real[1]), of(&self.planned));
        Ok(Distances {
            planned: [between(&planned, &one)?, between(&planned, &other)?],
            aligned: [
                between(&of(&self.aligned[0]), &one)?,
                between(&of(&self.aligned[1]), &other)?,
            ],
            noise: between(&one, &other)?,
        })
    }

    /// Everything as JSON.
    ///
    /// # Errors
    /// As [`Runs::distances`].
    pub fn to_json(&self, scenario: &Scenario) -> Result<Value> {
        let distances = self.distances(scenario)?;
        let pair = |of: &dyn Fn(&Run) -> Value, runs: &[Run; 2]| [of(&runs[0]), of(&runs[1])];
        let per = |of: &dyn Fn(&Run) -> Value| {
            json!({"real": pair(of, &self.real), "planned": of(&self.planned),
                "aligned": pair(of, &self.aligned)})
        };
        let phases: Vec<_> = scenario.phases().iter().map(|p| p.what.clone()).collect();
        let simulated = [&self.planned, &self.aligned[0], &self.aligned[1]];
        let hashes = simulated.map(|run| run.hash.map(|h| format!("{h:016x}")));
        Ok(json!({"comparison": scenario.name, "queue": scenario.net.queue(),
            "law": law_name(scenario.law), "bin_s": BIN,
            "distance_planned": distances.planned, "distance_aligned": distances.aligned,
            "distance_of_two_real_runs": distances.noise,
            "start_up_s": per(&|run| json!(run.start_up(scenario))),
            "end_s": per(&|run| json!(run.end(scenario))),
            "phases": phases, "settling_s": per(&|run| json!(run.settling(scenario))),
            "settling_aligned_minus_real_s": self.differences(scenario),
            "figures": per(&|run| json!(run.figures(scenario))),
            "access_queue_loss": per(&|run| json!(run.loss(scenario))),
            "hashes": hashes}))
    }

    /// Settling time of each aligned run minus its real run's, by phase.
    pub fn differences(&self, scenario: &Scenario) -> [Vec<f64>; 2] {
        [0, 1].map(|k| {
            let (here, there) =
                (self.aligned[k].settling(scenario), self.real[k].settling(scenario));
            here.iter().zip(&there).map(|(a, b)| a - b).collect()
        })
    }

    /// Everything as a page with figures.
    ///
    /// # Errors
    /// As [`Runs::distances`].
    pub fn page(&self, scenario: &Scenario) -> Result<gtp_lab::series::Page> {
        page::page(self, scenario)
    }
}

/// See [`Runs::distances`].
#[derive(Clone, Debug, PartialEq)]
pub struct Distances {
    /// Simulated as planned, to each real run.
    pub planned: [Distance; 2],
    /// Simulated with a real run's starts, to that run.
    pub aligned: [Distance; 2],
    /// One real run to the other.
    pub noise: Distance,
}

/// The network of a scenario, and when each session starts and stops.
type Setting = (Net, Vec<(f64, f64)>);

/// A scenario of sessions to one sink.
fn to_one(name: &str, queue: &str) -> Option<Setting> {
    let five = || Net::Star(five(queue));
    Some(match name {
        "one" => (Net::Star(one_branch(queue, "0%")), vec![(0.0, 6.0)]),
        "one-by-one" => {
            let life = |i: usize| (3.0 * i as f64, 3.0 * (5 + i) as f64);
            (five(), (0..5).map(life).collect())
        }
        "joining" => (five(), (0..5).map(|i| (10.0 * i as f64, 50.0)).collect()),
        "together" => (five(), vec![(0.0, 10.0); 5]),
        _ => {
            let branches = vec![Branch::rtt(one_rtt(name)?)];
            (Net::Star(Shape { branches, ..one_branch(queue, "0%") }), vec![(0.0, 8.0)])
        }
    })
}

/// A scenario of sessions among five sources and five sinks.
fn among_five(name: &str, queue: &str) -> Option<Setting> {
    const FAR: [f64; 5] = [1.0, 1.0, 60.0, 60.0, 140.0];
    let mesh = |rtts_ms: [f64; 5], pairs: Vec<(usize, usize)>| {
        let access = (MESH.0.to_owned(), queue.to_owned());
        Net::Mesh(Mesh { access, rtts_ms: rtts_ms.to_vec(), pairs })
    };
    let around = |each: usize| {
        (0..5).flat_map(move |from| (0..each).map(move |k| (from, (from + k) % 5))).collect()
    };
    Some(match name {
        "twenty" => {
            let all = (0..5).flat_map(|from| (0..5).map(move |to| (from, to)));
            (mesh(FAR, all.filter(|(from, to)| from != to).collect()), vec![(0.0, 12.0); 20])
        }
        "fifteen" => {
            (mesh([60.0, 1.0, 140.0, 1.0, 60.0], PAIRS.to_vec()), vec![(0.0, 12.0); PAIRS.len()])
        }
        "two-each" => (mesh(FAR, around(2)), (0..10).map(|i| (2.0 * f64::from(i), 40.0)).collect()),
        "three-each" => {
            let life = |i: u32| (2.0 * f64::from(i % 3), if i % 3 < 1 { 25.0 } else { 45.0 });
            (mesh(FAR, around(3)), (0..15).map(life).collect())
        }
        _ => return None,
    })
}

/// The round trip of `one-RTT` in milliseconds.
fn one_rtt(name: &str) -> Option<f64> {
    let rtt: f64 = name.strip_prefix("one-")?.parse().ok()?;
    (rtt.is_finite() && (0.0..=1_000.0).contains(&rtt)).then_some(rtt)
}

/// A law's name, as scenario files write it.
pub fn law_name(law: Law) -> &'static str {
    match law {
        Law::Grant => "grant",
        Law::EndNode { .. } => "endnode",
        Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => "one end",
    }
}

#[cfg(test)]
mod tests;
