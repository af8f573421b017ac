//! The end-node law in a process for every host against the same law in the hosts' daemons.
//!
//! In the first runs each host is one process, whose agent sees all its sessions. In the others
//! each session has a process of its own at either end, none of which knows a capacity, and the
//! host's daemon shares out by Algorithms 2 and 3 over the flow table (`gtpd --law endnode`), as
//! the thesis's does. Each is run twice, so that what two runs of one kind are apart is known.

use std::time::Duration;

use anyhow::{Result, ensure};
use gtp_proto::Law;
use serde_json::{Value, json};

use super::{ALPHA, Figures, INTERVAL_MS, Net, Run, Scenario, Trajectories, between, real};
use crate::cases::Tools;
use crate::lab::{Lab, source_address};
use crate::processes::{PORT, Source, What, World, end};
use crate::product::pass;
use crate::record::Record;

/// The networks: five sessions to one sink, and fifteen among five sources and five sinks.
const NETWORKS: [&str; 2] = ["together", "fifteen"];
/// As far apart the shares may be.
const APART: f64 = 0.05;
/// Beta, as everywhere in the thesis.
const BETA: f64 = 0.2;

/// A row for each network.
///
/// # Errors
/// If a network or a process cannot be started, or one ended too soon.
pub fn rows(tools: &Tools) -> Result<Vec<Value>> {
    NETWORKS.iter().map(|name| row(tools, name)).collect()
}

fn row(tools: &Tools, name: &str) -> Result<Value> {
    let law = Law::EndNode { alpha: ALPHA, beta: BETA };
    let scenario = Scenario::named(name, "100ms", law)?;
    let one = [real(tools, &scenario)?, real(tools, &scenario)?];
    let daemons = [by_daemons(tools, &scenario)?, by_daemons(tools, &scenario)?];
    let figures = |runs: &[Run; 2]| runs.each_ref().map(|run| run.figures(&scenario));
    let curves = |runs: &[Run; 2]| runs.each_ref().map(|run| run.trajectories(&scenario));
    let settling = |runs: &[Run; 2]| runs.each_ref().map(|run| run.settling(&scenario));
    let (by_one, by_daemon) = (figures(&one), figures(&daemons));
    let worst = apart(&means(&by_one), &means(&by_daemon));
    let missed =
        (worst > APART).then(|| format!("{name}: shares are {:.1} % apart", 100.0 * worst));
    let distance = |a: &Trajectories, b: &Trajectories| between(a, b).map(|distance| distance.all);
    let (of_one, of_daemon) = (curves(&one), curves(&daemons));
    Ok(json!({"case": "daemon-endnode", "network": name, "worst_apart": worst,
        "one_process_runs_apart": apart(&by_one[0].share, &by_one[1].share),
        "one_process": by_one, "daemon": by_daemon,
        "one_process_settling_s": settling(&one), "daemon_settling_s": settling(&daemons),
        "distance": distance(&of_one[0], &of_daemon[0])?,
        "distance_of_two_one_process_runs": distance(&of_one[0], &of_one[1])?,
        "distance_of_two_daemon_runs": distance(&of_daemon[0], &of_daemon[1])?,
        "missed": missed.into_iter().collect::<Vec<_>>()}))
}

/// Each session's share, the mean of two runs.
fn means(runs: &[Figures; 2]) -> Vec<f64> {
    let pairs = runs[0].share.iter().zip(&runs[1].share);
    pairs.map(|(a, b)| 0.5 * (a + b)).collect()
}

/// The largest difference, as a part of the first.
fn apart(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (b / a - 1.0).abs()).fold(0.0, f64::max)
}

/// Runs a scenario, whose sessions all live from its beginning to its end, with a process for each
/// session at either end and a daemon for each host that has a capacity.
fn by_daemons(tools: &Tools, scenario: &Scenario) -> Result<Run> {
    ensure!(scenario.lives.iter().all(|life| *life == (0.0, scenario.end())), "all live alike");
    let mut world = World::around(Lab::open_file(&scenario.net.file(), &tools.gtp)?, tools)?;
    let capacity = format!("{:.0}bit", scenario.capacity);
    let interval = format!("{INTERVAL_MS}ms");
    for (host, way) in hosts(scenario) {
        let options = ["--law", "endnode", "--interval", &interval, way, &capacity];
        world.daemon(&host, &options)?;
    }
    let sources = (0..scenario.lives.len()).map(|i| serve(&mut world, scenario, i));
    let sources = sources.collect::<Result<Vec<Source>>>()?;
    let (zero, mut processes) = (world.lab.now(), Vec::new());
    for (i, source) in sources.iter().enumerate() {
        let (host, name) = (&scenario.net.ends(i).1, &format!("get{i}"));
        let [daemon, socket] = &world.under(host);
        let options = &["--control", "endnode", "--no-path-bound", daemon.as_str(), socket];
        let sources = std::slice::from_ref(source);
        processes.push(world.fetch(&What { host, user: 0, name, sources, options })?);
    }
    pass(Duration::from_secs_f64((zero + scenario.end() - world.lab.now()).max(0.0)));
    end(processes)?;
    Ok(Run { record: Record(world.lab.close()?), zero, hash: None })
}

/// Every host that has a capacity, with the option that says so to its daemon.
fn hosts(scenario: &Scenario) -> Vec<(String, &'static str)> {
    let ends: Vec<_> = (0..scenario.lives.len()).map(|i| scenario.net.ends(i)).collect();
    let mut hosts: Vec<_> = ends.iter().map(|(_, to)| (to.clone(), "--capacity-in")).collect();
    if scenario.net.limits_sources() {
        hosts.extend(ends.into_iter().map(|(from, _)| (from, "--capacity-out")));
    }
    hosts.sort();
    hosts.dedup();
    hosts
}

/// Session `i`'s server, under its host's daemon if that has a capacity.
fn serve(world: &mut World<'_>, scenario: &Scenario, i: usize) -> Result<Source> {
    let (host, from) = match &scenario.net {
        Net::Star(_) => (format!("src{i}"), i),
        Net::Mesh(mesh) => (format!("src{}", mesh.pairs[i].0), mesh.pairs[i].0),
    };
    let mut options = vec!["--public", "--no-path-bound", "--allow-control", "endnode"];
    let [daemon, socket] = match scenario.net.limits_sources() {
        true => world.under(&host),
        false => ["--daemon".into(), "off".into()],
    };
    options.extend([daemon.as_str(), &socket]);
    world.serve_as(0, &host, (source_address(from), PORT + i as u16), &options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinks_alone_have_daemons_where_sources_have_no_capacity() {
        let law = Law::EndNode { alpha: ALPHA, beta: BETA };
        let of = |name| hosts(&Scenario::named(name, "100ms", law).unwrap());
        assert_eq!(of("together"), [("sink".to_owned(), "--capacity-in")]);
        let mesh = of("fifteen");
        assert_eq!(mesh.len(), 10);
        assert_eq!(mesh.iter().filter(|(_, way)| *way == "--capacity-in").count(), 5);
    }

    #[test]
    fn how_far_shares_are_apart_is_the_worst_of_them() {
        assert_eq!(apart(&[1.0, 2.0], &[1.0, 1.5]), 0.25);
    }
}
