//! The cases: what is run, and the figures read off it.
//!
//! Rates are of IP bytes as they leave the last link towards the sink; goodput is of file bytes as
//! the sink's process counts them. Sources serve a sparse file without end, sinks verify every
//! block and drop it, unless a case is about files.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use gtp_alloc::fairness::jain_index;
use gtp_net::identity::Identity;
use serde_json::{Value, json};

use crate::grid;
use crate::lab::{Branch, Lab, Shape, mesh_file, sink_address, source_address};
use crate::plan::{Plan, Transfer};
use crate::produce::Produce;
use crate::record::{Record, route};
use crate::running::Running;
use crate::{frames, processes, rivals, startup, tcp};

/// A share counts as reached when it is held this long, in seconds.
pub(crate) const HOLD: f64 = 0.5;

/// The sink's stated capacity in the common set-up.
pub const CAPACITY: f64 = 630e6;

/// Where the binaries are.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The product.
    pub gtp: PathBuf,
    /// This program, for the sink's process.
    pub own: PathBuf,
}

/// The names of all cases.
pub const NAMES: &[&str] = &[
    "start",
    "first-byte",
    "loss",
    "hidden",
    "hidden-two",
    "hidden-cubic",
    "unstated",
    "one-by-one",
    "together",
    "end-node",
    "long-intervals",
    "five-to-five",
    "slow-reader",
    "slow-producer",
    "small-files",
    "three-sources",
    "three-links",
    "three-killed",
    "tcp-five",
    "tcp-loss",
    "gtp2004-table-2",
    "gtp2004-table-3",
    "gtp2004-table-4",
    "gtp2004-table-5",
    "gtp2004-fig-1",
    "gtp2004-fig-11",
    "gtp2004-fig-12",
    "lambda-3",
    "lambda-8",
    "lambda-10a",
    "lambda-10b",
    "lambda-10c",
    "lambda-10d",
    "lambda-11a",
    "lambda-11b",
    "lambda-11c",
    "lambda-12",
    "lambda-full",
    "probe-ix-1",
    "probe-5-2",
    "daemon-endnode",
    "frames",
    "frames-loss",
    "frames-group",
    "grid",
    "grid-others",
    "bare",
    "daemon-killed",
    "daemon-lives",
    "users-in",
    "users-out",
    "weights",
    "processes-one-by-one",
    "processes-five-to-five",
    "room-for-tcp",
    "sockets",
    "churn",
    "crowd",
    "sizing",
    "busy-day",
    "accounts",
    "neighbours",
    "plan",
    "one-to-five",
    "tree-to-many",
    "relay",
    "router",
];

/// Runs one case once; returns its rows.
///
/// # Errors
/// If the network or a process cannot be started.
pub fn run(name: &str, tools: &Tools) -> Result<Vec<Value>> {
    match name {
        "start" => ["100ms", "5ms"].iter().map(|q| start(tools, q)).collect(),
        "first-byte" => [20.0, 300.0].iter().map(|&rtt| startup::run(tools, rtt)).collect(),
        "loss" => ["0%", "0.1%", "1%", "5%"].iter().map(|l| loss(tools, l)).collect(),
        "hidden" => ["0%", "1%"].iter().map(|l| hidden(tools, l, 1)).collect(),
        "hidden-two" => ["0%", "1%"].iter().map(|l| hidden(tools, l, 2)).collect(),
        "hidden-cubic" => Ok(vec![hidden_cubic(tools)?]),
        "unstated" => Ok(vec![unstated(tools)?]),
        "one-by-one" => ["100ms", "5ms"].iter().map(|q| one_by_one(tools, q, None, 3.0)).collect(),
        "end-node" => Ok(vec![one_by_one(tools, "100ms", Some((0.1, 0.2)), 6.0)?]),
        "long-intervals" => Ok(vec![crate::long_intervals::run(tools)?]),
        "together" => Ok(vec![together(tools, None)?, together(tools, Some((0.1, 0.2)))?]),
        "five-to-five" => Ok(vec![five_to_five(tools)?]),
        "small-files" => Ok(vec![small_files(tools)?]),
        "slow-producer" => Ok(vec![slow_producer(tools)?]),
        "bare" => Ok(vec![bare(tools)?]),
        "gtp2004-table-2" => rivals::table(2, tools),
        "gtp2004-table-3" => rivals::table(3, tools),
        "gtp2004-table-4" => rivals::table(4, tools),
        "gtp2004-table-5" => rivals::table(5, tools),
        "gtp2004-fig-1" => crate::emulated::figure_1(tools),
        "gtp2004-fig-11" => crate::emulated::figure_11(tools),
        "gtp2004-fig-12" => crate::emulated::figure_12(tools),
        "lambda-3" => crate::gaps::run(tools),
        name if name.starts_with("lambda-") => crate::lambdas::run(name, tools),
        "probe-ix-1" => crate::probes::table_ix_1(tools),
        "probe-5-2" => crate::probes::stream(tools),
        "daemon-endnode" => crate::compare::by_daemons(tools),
        "frames" => frames::rows("0%", tools),
        "frames-loss" => frames::rows("0.1%", tools),
        name if name.starts_with("frames-group") => crate::in_step::run(name, tools),
        "sockets" => crate::sockets::run(tools),
        "daemon-killed" => Ok(vec![crate::kills::run(tools)?]),
        "daemon-lives" => Ok(vec![crate::lives::run(tools)?]),
        "plan" => crate::plans::run(tools),
        "one-to-five" => Ok(vec![crate::sinks::run(tools)?]),
        "tree-to-many" => crate::sinks::trees(tools),
        "relay" => crate::relay::run(tools),
        name if name.starts_with("router") => crate::routed::run(name, tools),
        "churn" => Ok(vec![crate::churn::run(tools)?]),
        "crowd" => crate::crowd::run(tools),
        "sizing" => crate::sizing::run(tools),
        "busy-day" => Ok(vec![crate::busy_day::run(tools)?]),
        "accounts" => Ok(vec![crate::accounts::run(tools)?]),
        name if name.starts_with("neighbours") => crate::neighbours::run(name, tools),
        "users-in" => Ok(vec![processes::users_in(tools)?]),
        "users-out" => Ok(vec![processes::users_out(tools)?]),
        "weights" => Ok(vec![processes::weights(tools)?]),
        "processes-one-by-one" => processes::five_to_one(tools),
        "processes-five-to-five" => processes::five_to_five(tools),
        "room-for-tcp" => processes::room_for_tcp(tools),
        "slow-reader" => Ok(vec![slow_reader(tools)?]),
        "three-sources" => Ok(vec![three(tools, Limit::Declared, None)?]),
        "three-links" => Ok(vec![three(tools, Limit::Links, None)?]),
        "three-killed" => Ok(vec![three(tools, Limit::Declared, Some(1))?]),
        "tcp-five" => ["cubic", "bbr"].iter().map(|law| tcp_five(tools, law)).collect(),
        "tcp-loss" => tcp_loss(tools),
        _ => match (grid::round_trips("grid", name), grid::round_trips("grid-others", name)) {
            (Some(round_trips), _) => grid::gtp(tools, &round_trips),
            (None, Some(round_trips)) => grid::others(&round_trips),
            (None, None) => anyhow::bail!("no case {name}; there are {}", NAMES.join(", ")),
        },
    }
}

fn access(queue: &str) -> (String, String) {
    ("700Mbit".into(), queue.into())
}

pub(crate) fn one_branch(queue: &str, loss: &str) -> Shape {
    let branch = Branch { loss: loss.into(), ..Branch::rtt(60.0) };
    Shape { access: access(queue), middle: None, branches: vec![branch] }
}

/// A laboratory whose sources all serve the same sparse file.
pub(crate) fn with_sources(
    shape: &Shape,
    tools: &Tools,
    options: &[Vec<String>],
) -> Result<(Lab, Vec<String>)> {
    serving(Lab::open(shape, &tools.gtp)?, shape.branches.len(), options)
}

pub(crate) fn serving(
    mut lab: Lab,
    sources: usize,
    options: &[Vec<String>],
) -> Result<(Lab, Vec<String>)> {
    let data = lab.dir.path().join("data");
    std::fs::create_dir(&data)?;
    std::fs::File::create(data.join("big"))?.set_len(100 << 30)?;
    let mut prints = Vec::new();
    for i in 0..sources {
        let mut all = vec!["--public", "--allow-control", "endnode"];
        all.extend(options.get(i).into_iter().flatten().map(String::as_str));
        prints.push(lab.serve(&format!("src{i}"), &data, &all)?);
    }
    Ok((lab, prints))
}

/// A measuring process, with its lines as they came.
pub(crate) struct Sink {
    process: Running,
    lines: std::thread::JoinHandle<Vec<(f64, Value)>>,
    pub(crate) began: f64,
}

impl Sink {
    pub(crate) fn start(lab: &Lab, tools: &Tools, plan: &Plan) -> Result<Sink> {
        Sink::start_on(lab, "sink", tools, plan)
    }

    pub(crate) fn start_on(lab: &Lab, host: &str, tools: &Tools, plan: &Plan) -> Result<Sink> {
        Sink::spawn(lab, host, tools, ("sink", serde_json::to_vec(plan)?))
    }

    fn spawn(lab: &Lab, host: &str, tools: &Tools, (role, plan): (&str, Vec<u8>)) -> Result<Sink> {
        let path = lab.dir.path().join(format!("{host}.json"));
        std::fs::write(&path, plan)?;
        let mut command = lab.command(host, &tools.own);
        command.arg(role).arg(&path).stdout(Stdio::piped());
        let mut process = Running::start(&format!("{role} of {host}"), &mut command)?;
        let out = process.child.stdout.take().context("no output")?;
        let (began, origin) = (lab.now(), std::time::Instant::now());
        let lines = std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines
                .filter_map(|l| serde_json::from_str(&l).ok())
                .map(|v| (began + origin.elapsed().as_secs_f64(), v))
                .collect()
        });
        Ok(Sink { process, lines, began })
    }

    pub(crate) fn finish(mut self) -> Result<Vec<(f64, Value)>> {
        self.process.child.wait()?;
        let lines = self.lines.join();
        let lines = lines.map_err(|_| anyhow::anyhow!("the sink's reader failed"))?;
        if let Some(path) = std::env::var_os("GTP_MEASURE_LINES") {
            use std::io::Write;
            let text: String = lines.iter().map(|(t, v)| format!("{t:.3} {v}\n")).collect();
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
            file.write_all(text.as_bytes())?;
        }
        Ok(lines)
    }
}

pub(crate) fn transfer(i: usize, prints: &[String], start: f64, stop: f64) -> Transfer {
    let url = format!("gtp://{}/big", source_address(i));
    let sources = vec![(url, prints[i].clone())];
    Transfer { sources, start, stop, dest: None, slow: None }
}

pub(crate) fn plan(transfers: Vec<Transfer>) -> Plan {
    Plan {
        capacity_in: Some(CAPACITY as u64),
        interval_ms: None,
        end_node: None,
        alone: None,
        unbounded: false,
        transfers,
    }
}

/// File bytes that a transfer had in place at time `t`.
fn bytes_at(lines: &[(f64, Value)], transfer: u64, t: f64) -> f64 {
    let mine = lines.iter().filter(|(at, v)| *at <= t && v["transfer"] == transfer);
    mine.filter_map(|(_, v)| v["bytes"].as_f64()).next_back().unwrap_or(0.0)
}

pub(crate) fn goodput(lines: &[(f64, Value)], transfer: u64, from: f64, to: f64) -> f64 {
    (bytes_at(lines, transfer, to) - bytes_at(lines, transfer, from)) * 8.0 / (to - from)
}

fn start(tools: &Tools, queue: &str) -> Result<Value> {
    let (lab, prints) = with_sources(&one_branch(queue, "0%"), tools, &[])?;
    let sink = Sink::start(&lab, tools, &plan(vec![transfer(0, &prints, 0.0, 6.0)]))?;
    let began = sink.began;
    let lines = sink.finish()?;
    let record = Record(lab.close()?);
    let first = record.first_data(&route(0), began, 12_000.0).context("no data")?;
    let reached = (0..200)
        .map(|i| first + 0.01 * f64::from(i))
        .find(|t| record.rate(&route(0), *t, t + 0.05) >= 0.95 * CAPACITY)
        .map_or(f64::NAN, |t| t + 0.05);
    let (offered, dropped) = record.drops("access", began, first + 5.0);
    Ok(json!({"case": "start", "queue": queue,
        "rate_Mbit": record.rate(&route(0), first + 1.0, first + 5.0) / 1e6,
        "of_630": record.rate(&route(0), first + 1.0, first + 5.0) / CAPACITY,
        "goodput_Mbit": goodput(&lines, 0, first + 1.0, first + 5.0) / 1e6,
        "first_data_to_95_s": reached - first, "command_to_95_s": reached - began,
        "dropped": dropped, "offered": offered}))
}

fn loss(tools: &Tools, loss: &str) -> Result<Value> {
    let (lab, prints) = with_sources(&one_branch("100ms", loss), tools, &[])?;
    let sink = Sink::start(&lab, tools, &plan(vec![transfer(0, &prints, 0.0, 9.0)]))?;
    let began = sink.began;
    let lines = sink.finish()?;
    let record = Record(lab.close()?);
    let (from, to) = (began + 2.0, began + 8.5);
    Ok(json!({"case": "loss", "loss": loss,
        "goodput_Mbit": goodput(&lines, 0, from, to) / 1e6,
        "rate_Mbit": record.rate(&route(0), from, to) / 1e6}))
}

fn hidden(tools: &Tools, loss: &str, sessions: usize) -> Result<Value> {
    let branch = Branch { loss: loss.into(), ..Branch::rtt(60.0) };
    let shape = Shape {
        access: access("100ms"),
        middle: Some(("300Mbit".into(), "100ms".into())),
        branches: vec![branch; sessions],
    };
    let (lab, prints) = with_sources(&shape, tools, &[])?;
    let stop = if sessions == 1 { 12.0 } else { 24.0 };
    let transfers = (0..sessions).map(|i| transfer(i, &prints, 2.0 * i as f64, stop)).collect();
    let sink = Sink::start(&lab, tools, &plan(transfers))?;
    let began = sink.began;
    let lines = sink.finish()?;
    let record = Record(lab.close()?);
    let (from, to) = (began + if sessions == 1 { 2.0 } else { 8.0 }, began + stop - 0.5);
    let (offered, dropped) = record.drops("middle", from, to);
    let rates: Vec<f64> = (0..sessions).map(|i| record.rate(&route(i), from, to)).collect();
    Ok(json!({"case": "hidden", "loss": loss, "sessions": sessions,
        "rates_Mbit": in_mbit(&rates),
        "of_300": rates.iter().sum::<f64>() / 300e6, "jain": jain_index(&rates),
        "goodput_Mbit": goodput(&lines, 0, from, to) / 1e6,
        "queue_loss": dropped as f64 / offered.max(1) as f64}))
}

fn hidden_cubic(tools: &Tools) -> Result<Value> {
    let shape = Shape {
        access: access("100ms"),
        middle: Some(("300Mbit".into(), "100ms".into())),
        branches: vec![Branch::rtt(60.0), Branch::rtt(60.0)],
    };
    let (mut lab, prints) = with_sources(&shape, tools, &[])?;
    tcp::listen(&mut lab, 2)?;
    let flow = tcp::send(&lab, 1, "cubic", 30.0)?;
    std::thread::sleep(std::time::Duration::from_secs(5));
    let alone = lab.now();
    let sink = Sink::start(&lab, tools, &plan(vec![transfer(0, &prints, 0.0, 24.0)]))?;
    let began = sink.began;
    sink.finish()?;
    flow.finish()?;
    let record = Record(lab.close()?);
    let (from, to) = (began + 5.0, began + 23.0);
    Ok(json!({"case": "hidden-cubic",
        "cubic_alone_Mbit": record.rate(&route(1), alone - 3.0, alone) / 1e6,
        "cubic_Mbit": record.rate(&route(1), from, to) / 1e6,
        "gtp_Mbit": record.rate(&route(0), from, to) / 1e6}))
}

fn unstated(tools: &Tools) -> Result<Value> {
    let (lab, prints) = with_sources(&one_branch("100ms", "0%"), tools, &[])?;
    let mut plan = plan(vec![transfer(0, &prints, 0.0, 12.0)]);
    plan.capacity_in = None;
    let sink = Sink::start(&lab, tools, &plan)?;
    let began = sink.began;
    sink.finish()?;
    let record = Record(lab.close()?);
    let (from, to) = (began + 2.0, began + 11.5);
    let (offered, dropped) = record.drops("access", from, to);
    let rate = record.rate(&route(0), from, to);
    Ok(json!({"case": "unstated", "rate_Mbit": rate / 1e6, "of_700": rate / 700e6,
        "queue_loss": dropped as f64 / offered.max(1) as f64}))
}

pub(crate) const FIVE: [f64; 5] = [1.0, 1.0, 60.0, 60.0, 140.0];

pub(crate) fn five(queue: &str) -> Shape {
    let branches = FIVE.iter().map(|&rtt| Branch::rtt(rtt)).collect();
    Shape { access: access(queue), middle: None, branches }
}

fn one_by_one(tools: &Tools, queue: &str, law: Option<(f64, f64)>, step: f64) -> Result<Value> {
    let (lab, prints) = with_sources(&five(queue), tools, &[])?;
    let transfers: Vec<Transfer> =
        (0..5).map(|i| transfer(i, &prints, step * i as f64, step * (5 + i) as f64)).collect();
    let mut plan = plan(transfers);
    if law.is_some() {
        (plan.end_node, plan.interval_ms) = (law, Some(20));
    }
    let sink = Sink::start(&lab, tools, &plan)?;
    let zero = sink.began;
    sink.finish()?;
    let record = Record(lab.close()?);
    let (mut settling, mut reached, mut after_data) = (Vec::new(), Vec::new(), Vec::new());
    let mut outside = Vec::new();
    let (mut worst_jain, mut worst_sum) = (1.0_f64, f64::INFINITY);
    for phase in 0..9 {
        let live: Vec<usize> = (0..5).filter(|&i| i <= phase && phase < i + 5).collect();
        let share = CAPACITY / live.len() as f64;
        let (from, to) = (zero + step * phase as f64, zero + step * (phase + 1) as f64);
        let shares: Vec<_> = live.iter().map(|&i| (route(i), share)).collect();
        settling.push(record.settled(&shares, from, to, 0.05, 0.1));
        let took = record.reached(&shares, (from, to), 0.05, 0.1, HOLD);
        let joined =
            (phase < 5).then(|| record.first_data(&route(phase), from, 12_000.0)).flatten();
        after_data.push(took - joined.map_or(0.0, |at| at - from));
        outside.push(record.outside(&shares, (from + took, to), 0.05, 0.1));
        reached.push(took);
        let rates: Vec<f64> = live.iter().map(|&i| record.rate(&route(i), to - 1.0, to)).collect();
        worst_jain = worst_jain.min(jain_index(&rates));
        worst_sum = worst_sum.min(rates.iter().sum());
    }
    let (offered, dropped) = record.drops("access", zero, zero + 9.0 * step);
    Ok(json!({"case": "one-by-one", "queue": queue, "law": law_name(law), "settling_s": settling,
        "reached_s": reached, "reached_after_first_data_s": after_data, "outside_after": outside,
        "worst_jain_last_second": worst_jain, "worst_sum_Mbit": worst_sum / 1e6,
        "shared_queue_loss": dropped as f64 / offered.max(1) as f64}))
}

/// Rates in Mbit/s.
pub(crate) fn in_mbit(rates: &[f64]) -> Vec<f64> {
    rates.iter().map(|r| r / 1e6).collect()
}

pub(crate) fn law_name(law: Option<(f64, f64)>) -> &'static str {
    if law.is_some() { "endnode" } else { "grant" }
}

fn together(tools: &Tools, law: Option<(f64, f64)>) -> Result<Value> {
    let (lab, prints) = with_sources(&five("100ms"), tools, &[])?;
    let mut plan = plan((0..5).map(|i| transfer(i, &prints, 0.0, 10.0)).collect());
    if law.is_some() {
        (plan.end_node, plan.interval_ms) = (law, Some(20));
    }
    let sink = Sink::start(&lab, tools, &plan)?;
    let zero = sink.began;
    sink.finish()?;
    let record = Record(lab.close()?);
    let shares: Vec<_> = (0..5).map(|i| (route(i), CAPACITY / 5.0)).collect();
    let steady = if law.is_some() { 6 } else { 2 };
    let seconds: Vec<Vec<f64>> = (steady..9)
        .map(|s| {
            (0..5)
                .map(|i| record.rate(&route(i), zero + f64::from(s), zero + f64::from(s + 1)))
                .collect()
        })
        .collect();
    let jain = seconds.iter().map(|r| jain_index(r)).fold(1.0, f64::min);
    let sum = seconds.iter().map(|r| r.iter().sum::<f64>()).fold(f64::INFINITY, f64::min);
    let (offered, dropped) = record.drops("access", zero, zero + 10.0);
    Ok(json!({"case": "together", "law": law_name(law),
        "settling_s": record.settled(&shares, zero, zero + 9.5, 0.05, 0.1),
        "reached_s": record.reached(&shares, (zero, zero + 9.5), 0.05, 0.1, HOLD),
        "outside_after": record.outside(&shares, (zero + 2.0, zero + 9.5), 0.05, 0.1),
        "worst_jain": jain, "worst_sum_Mbit": sum / 1e6,
        "shared_queue_loss": dropped as f64 / offered.max(1) as f64}))
}

fn slow_reader(tools: &Tools) -> Result<Value> {
    let mut shape = five("100ms");
    shape.branches.truncate(3);
    shape.branches.iter_mut().for_each(|b| b.rtt_ms = 60.0);
    let (lab, prints) = with_sources(&shape, tools, &[])?;
    let mut transfers: Vec<Transfer> = (0..3).map(|i| transfer(i, &prints, 0.0, 14.0)).collect();
    transfers[0].slow = Some((50e6, 9.0));
    let sink = Sink::start(&lab, tools, &plan(transfers))?;
    let zero = sink.began;
    let lines = sink.finish()?;
    let record = Record(lab.close()?);
    let rates: Vec<f64> = (0..3).map(|i| record.rate(&route(i), zero + 4.0, zero + 8.5)).collect();
    let shares: Vec<_> = (0..3).map(|i| (route(i), 210e6)).collect();
    let (offered, dropped) = record.drops("access", zero + 9.0, zero + 11.0);
    Ok(json!({"case": "slow-reader", "rates_Mbit": in_mbit(&rates),
        "slow_goodput_Mbit": goodput(&lines, 0, zero + 4.0, zero + 8.5) / 1e6,
        "others_get_Mbit": 0.5 * (CAPACITY - rates[0]) / 1e6,
        "free_again_settling_s": record.settled(&shares, zero + 9.0, zero + 13.5, 0.05, 0.1),
        "free_again_reached_s":
            record.reached(&shares, (zero + 9.0, zero + 13.5), 0.05, 0.1, HOLD),
        "queue_loss_after": dropped as f64 / offered.max(1) as f64}))
}

/// Three sources that send by themselves to a server at the sink, one of them produced slowly.
fn slow_producer(tools: &Tools) -> Result<Value> {
    let mut shape = five("100ms");
    shape.branches.truncate(3);
    shape.branches.iter_mut().for_each(|b| b.rtt_ms = 60.0);
    let mut lab = Lab::open(&shape, &tools.gtp)?;
    let (big, keys) = (lab.dir.path().join("big"), lab.dir.path().join("keys"));
    let up = tempfile::tempdir_in("/dev/shm")?; // No disk shall be the limit.
    std::fs::File::create(&big)?.set_len(100 << 30)?;
    let identity = |i: usize| lab.dir.path().join(format!("key{i}"));
    let mut listed = String::new();
    for i in 0..3 {
        listed.push_str(&format!("{}\n", Identity::load_or_create(&identity(i))?.fingerprint()));
    }
    std::fs::write(&keys, listed)?;
    let identities: Vec<_> = (0..3).map(identity).collect();
    let keys = keys.display().to_string();
    let options = ["--writable", "--capacity-in", "630Mbit", "--authorized-keys", &keys];
    let fingerprint = lab.serve("sink", up.path(), &options)?;
    let zero = lab.now();
    let mut children = Vec::new();
    for (i, identity) in identities.into_iter().enumerate() {
        let plan = Produce {
            number: i,
            url: format!("gtp://{}/made{i}", sink_address()),
            fingerprint: fingerprint.clone(),
            identity,
            file: big.clone(),
            stop: 14.0,
            slow: (i == 0).then_some((50e6, 9.0)),
        };
        let plan = ("source", serde_json::to_vec(&plan)?);
        children.push(Sink::spawn(&lab, &format!("src{i}"), tools, plan)?);
    }
    for child in children {
        child.finish()?;
    }
    let record = Record(lab.close()?);
    let rates: Vec<f64> = (0..3).map(|i| record.rate(&route(i), zero + 4.0, zero + 8.5)).collect();
    let shares: Vec<_> = (0..3).map(|i| (route(i), 210e6)).collect();
    let (offered, dropped) = record.drops("access", zero + 9.0, zero + 11.0);
    let after = (zero + 9.0, zero + 13.5);
    Ok(json!({"case": "slow-producer", "rates_Mbit": in_mbit(&rates),
        "free_again_settling_s": record.settled(&shares, after.0, after.1, 0.05, 0.1),
        "free_again_reached_s": record.reached(&shares, after, 0.05, 0.1, HOLD),
        "queue_loss_after": dropped as f64 / offered.max(1) as f64}))
}

/// What this machine's noise alone does to the measures: five senders at constant rates, without
/// any control, by the same emulator.
fn bare(tools: &Tools) -> Result<Value> {
    let mut lab = Lab::open(&five("100ms"), &tools.gtp)?;
    tcp::listen(&mut lab, 5)?;
    let zero = lab.now();
    let flows = (0..5).map(|i| tcp::constant(&lab, i, 126, 12.0)).collect::<Result<Vec<_>>>()?;
    flows.into_iter().try_for_each(Running::finish)?;
    let record = Record(lab.close()?);
    let (from, to) = (zero + 2.0, zero + 11.0);
    let shares: Vec<_> = (0..5).map(|i| (route(i), record.rate(&route(i), from, to))).collect();
    Ok(json!({"case": "bare", "rates_Mbit":
        in_mbit(&shares.iter().map(|s| s.1).collect::<Vec<_>>()),
        "outside": record.outside(&shares, (from, to), 0.05, 0.1),
        "settling_s": record.settled(&shares, from, to, 0.05, 0.1)}))
}

/// Table IX.2's sessions: the first source sends to all sinks, the next to one fewer, and so on.
pub(crate) const PAIRS: [(usize, usize); 15] = [
    (0, 0),
    (0, 1),
    (0, 2),
    (0, 3),
    (0, 4),
    (1, 0),
    (1, 1),
    (1, 2),
    (1, 3),
    (2, 0),
    (2, 1),
    (2, 2),
    (3, 0),
    (3, 1),
    (4, 0),
];

/// Every host's capacity in it: a fifth of the thesis's, because one machine carries all of it.
pub(crate) const MESH_CAPACITY: u64 = 126_000_000;

fn five_to_five(tools: &Tools) -> Result<Value> {
    let rtts = [60.0, 1.0, 140.0, 1.0, 60.0];
    let mut lab = Lab::open_file(&mesh_file(("140Mbit", "100ms"), &rtts, &PAIRS), &tools.gtp)?;
    let data = lab.dir.path().join("data");
    std::fs::create_dir(&data)?;
    std::fs::File::create(data.join("big"))?.set_len(100 << 30)?;
    let out = format!("{}Mbit", MESH_CAPACITY / 1_000_000);
    let mut prints = Vec::new();
    for i in 0..5 {
        prints.push(lab.serve(&format!("src{i}"), &data, &["--public", "--capacity-out", &out])?);
    }
    let mut sinks = Vec::new();
    for to in 0..5 {
        let mine = PAIRS.iter().filter(|(_, t)| *t == to);
        let transfers = mine.map(|&(from, _)| transfer(from, &prints, 0.5, 8.0)).collect();
        let plan = Plan { capacity_in: Some(MESH_CAPACITY), ..plan(transfers) };
        sinks.push(Sink::start_on(&lab, &format!("sink{to}"), tools, &plan)?);
    }
    let zero = sinks.iter().map(|s| s.began).fold(0.0, f64::max) + 0.5;
    for sink in sinks {
        sink.finish()?;
    }
    let record = Record(lab.close()?);
    let best = optimum(&PAIRS, 5, MESH_CAPACITY as f64)?;
    let name = |&(from, to): &(usize, usize)| format!("src{from}-sink{to}");
    let shares: Vec<_> = PAIRS.iter().map(name).zip(best.iter().copied()).collect();
    let settling = record.settled(&shares, zero, zero + 7.0, 0.05, 0.2);
    let reached = record.reached(&shares, (zero, zero + 7.0), 0.05, 0.2, HOLD);
    let outside = record.outside(&shares, (zero + 2.0, zero + 7.0), 0.05, 0.2);
    let worst = shares
        .iter()
        .map(|(route, share)| (record.rate(route, zero + 3.0, zero + 7.0) / share - 1.0).abs())
        .fold(0.0, f64::max);
    Ok(json!({"case": "five-to-five", "settling_s": settling, "reached_s": reached,
        "outside_after": outside, "worst_off_optimum": worst,
        "optimum_Mbit": best.iter().map(|r| r / 1e6).collect::<Vec<_>>()}))
}

/// The exact allocation among so many sources and as many sinks.
pub(crate) fn optimum(pairs: &[(usize, usize)], hosts: usize, capacity: f64) -> Result<Vec<f64>> {
    weighted_optimum(pairs, hosts, capacity, |_| 1.0)
}

/// The same where sessions have weights.
pub(crate) fn weighted_optimum(
    pairs: &[(usize, usize)],
    hosts: usize,
    capacity: f64,
    weight: impl Fn(&(usize, usize)) -> f64,
) -> Result<Vec<f64>> {
    let mut network = gtp_alloc::maxmin::Network::new(vec![capacity; 2 * hosts])?;
    for pair @ &(from, to) in pairs {
        let uses = [from as u32, (hosts + to) as u32];
        network.add(gtp_alloc::maxmin::Session {
            uses: &uses,
            weight: weight(pair),
            demand: f64::INFINITY,
        })?;
    }
    Ok(gtp_alloc::maxmin::solve(&network))
}

/// Ten thousand files of 4 KiB, and one file of the same total size.
fn small_files(tools: &Tools) -> Result<Value> {
    let mut seconds = Vec::new();
    for name in ["one", "many"] {
        let mut lab = Lab::open(&one_branch("100ms", "0%"), &tools.gtp)?;
        let data = lab.dir.path().join("data");
        std::fs::create_dir_all(data.join("many"))?;
        write_noise(&data.join("one"), 40_960_000)?;
        let all = std::fs::read(data.join("one"))?;
        for (i, part) in all.chunks(4096).enumerate() {
            std::fs::write(data.join(format!("many/{i:05}")), part)?;
        }
        let print = lab.serve("src0", &data, &["--public"])?;
        let sources = vec![(format!("gtp://{}/{name}", source_address(0)), print)];
        let dest = lab.dir.path().join("got");
        let one =
            Transfer { sources, start: 0.0, stop: 120.0, dest: Some(dest.clone()), slow: None };
        let lines = Sink::start(&lab, tools, &plan(vec![one]))?.finish()?;
        let done = lines.iter().find(|(_, v)| v["event"] == "done");
        seconds.push(done.and_then(|(_, v)| v["seconds"].as_f64()).unwrap_or(f64::NAN));
        let from = data.join(name);
        let same = std::process::Command::new("diff").arg("-rq").args([&from, &dest]).status()?;
        anyhow::ensure!(same.success(), "the copy differs");
        lab.close()?;
    }
    Ok(json!({"case": "small-files", "one_s": seconds[0], "many_s": seconds[1],
        "more_s": seconds[1] - seconds[0]}))
}

/// What limits three sources.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    /// Their stated capacity.
    Declared,
    /// A link of their own.
    Links,
}

fn three(tools: &Tools, limit: Limit, kill: Option<usize>) -> Result<Value> {
    const RATES: [u64; 3] = [100, 200, 300];
    let own = |r: u64| (limit == Limit::Links).then(|| (format!("{r}Mbit"), "100ms".to_owned()));
    let branches = RATES.iter().map(|&r| Branch { own: own(r), ..Branch::rtt(60.0) }).collect();
    let shape = Shape { access: access("100ms"), middle: None, branches };
    let mut lab = Lab::open(&shape, &tools.gtp)?;
    let data = lab.dir.path().join("data");
    std::fs::create_dir(&data)?;
    let size = 900_000_000_u64;
    write_noise(&data.join("big"), size)?;
    let mut sources = Vec::new();
    for (i, rate) in RATES.iter().enumerate() {
        let rate = format!("{rate}Mbit");
        let mut options = vec!["--public"];
        if limit == Limit::Declared {
            options.extend(["--capacity-out", &rate]);
        }
        let print = lab.serve(&format!("src{i}"), &data, &options)?;
        sources.push((format!("gtp://{}/big", source_address(i)), print));
    }
    let dest = lab.dir.path().join("got");
    let one = Transfer { sources, start: 0.0, stop: 120.0, dest: Some(dest.clone()), slow: None };
    let sink = Sink::start(&lab, tools, &plan(vec![one]))?;
    let zero = sink.began;
    let killed_at = 6.0;
    if let Some(i) = kill {
        std::thread::sleep(std::time::Duration::from_secs_f64(killed_at));
        lab.kill(i);
    }
    let lines = sink.finish()?;
    let same = same_content(&data.join("big"), &dest)?;
    let record = Record(lab.close()?);
    let done = lines.iter().find(|(_, v)| v["event"] == "done");
    let seconds = done.and_then(|(_, v)| v["seconds"].as_f64()).unwrap_or(f64::NAN);
    // File bytes that IP bytes at full rate would bring: 1,400 of 1,477.
    let whole = size as f64 * 8.0 * 1_477.0 / 1_400.0;
    let ideal = match kill {
        None => whole / 600e6,
        Some(i) => killed_at + (whole - killed_at * 600e6) / (600e6 - RATES[i] as f64 * 1e6),
    };
    let steady: f64 = (0..3).map(|i| record.rate(&route(i), zero + 1.5, zero + 2.9)).sum();
    Ok(json!({"case": "three", "limit": if limit == Limit::Links { "links" } else { "declared" },
        "killed": kill, "seconds": seconds, "ideal_s": ideal, "over_ideal": seconds / ideal - 1.0,
        "steady_of_600": steady / 600e6, "identical": same,
        "goodput_Mbit": size as f64 * 8.0 / seconds / 1e6,
        "duplicate_bytes": done.map(|(_, v)| v["duplicate_bytes"].clone())}))
}

fn write_noise(path: &Path, size: u64) -> Result<()> {
    use std::io::Write;
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..size / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.write_all(&state.to_le_bytes())?;
    }
    Ok(out.flush()?)
}

fn same_content(a: &Path, b: &Path) -> Result<bool> {
    Ok(std::process::Command::new("cmp").arg("-s").arg(a).arg(b).status()?.success())
}

fn tcp_five(tools: &Tools, law: &str) -> Result<Value> {
    let mut lab = Lab::open(&five("100ms"), &tools.gtp)?;
    tcp::listen(&mut lab, 5)?;
    let zero = lab.now();
    let flows = (0..5).map(|i| tcp::send(&lab, i, law, 20.0)).collect::<Result<Vec<_>>>()?;
    flows.into_iter().try_for_each(Running::finish)?;
    let record = Record(lab.close()?);
    let (from, to) = (zero + 5.0, zero + 19.0);
    let rates: Vec<f64> = (0..5).map(|i| record.rate(&route(i), from, to)).collect();
    let (offered, dropped) = record.drops("access", from, to);
    Ok(json!({"case": "tcp-five", "law": law, "rates_Mbit": in_mbit(&rates),
        "jain": jain_index(&rates), "sum_Mbit": rates.iter().sum::<f64>() / 1e6,
        "shared_queue_loss": dropped as f64 / offered.max(1) as f64}))
}

fn tcp_loss(tools: &Tools) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for law in ["cubic", "bbr"] {
        for loss in ["0%", "0.1%", "1%", "5%"] {
            let mut lab = Lab::open(&one_branch("100ms", loss), &tools.gtp)?;
            tcp::listen(&mut lab, 1)?;
            let zero = lab.now();
            tcp::send(&lab, 0, law, 10.0)?.finish()?;
            let record = Record(lab.close()?);
            let rate = record.rate(&route(0), zero + 3.0, zero + 9.5);
            rows.push(
                json!({"case": "tcp-loss", "law": law, "loss": loss, "rate_Mbit": rate / 1e6}),
            );
        }
    }
    Ok(rows)
}
