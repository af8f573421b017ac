//! Processes of one host under its daemon: users, weights, joins and leaves, other people's
//! traffic, and the five-to-one and five-to-five cases with a process for every session.
//!
//! Every process is a `gtp get` that verifies and drops what it fetches, or a `gtp serve`, and
//! knows no capacity: the daemon of its host does. Rates are read off the emulated links.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gtp_alloc::fairness::jain_index;
use serde_json::{Value, json};

use crate::cases::{
    CAPACITY, FIVE, HOLD, MESH_CAPACITY, PAIRS, Tools, five, in_mbit, weighted_optimum,
};
use crate::lab::{Branch, Lab, Shape, mesh_file, sink_address, source_address};
use crate::product;
use crate::record::{Record, route};
use crate::running::Running;
use crate::tcp;

/// Two users who are nobody here.
const USERS: [u32; 2] = [4_001, 4_002];
/// Sessions of each process: two of each user.
const SESSIONS: [usize; 4] = [1, 1, 4, 10];
/// What the daemon shares out among users, in bit/s.
const SHARED: f64 = 400e6;
/// Seconds after the start of the last process between which rates are taken.
const STEADY: (f64, f64) = (3.0, 10.0);
/// The port of the first server of a host.
pub(crate) const PORT: u16 = 4810;
/// What is fetched.
const FILE: &str = "big";

/// A laboratory whose hosts have daemons and processes of any user.
pub(crate) struct World<'a> {
    pub(crate) lab: Lab,
    tools: &'a Tools,
    data: PathBuf,
}

/// What a process fetches, and as whom.
pub(crate) struct What<'a> {
    pub(crate) host: &'a str,
    pub(crate) user: u32,
    /// Its configuration, where its key is.
    pub(crate) name: &'a str,
    /// Addresses and keys of its sources: a session each.
    pub(crate) sources: &'a [(String, String)],
    pub(crate) options: &'a [&'a str],
}

impl<'a> World<'a> {
    fn open(shape: &Shape, tools: &'a Tools) -> Result<World<'a>> {
        World::around(Lab::open(shape, &tools.gtp)?, tools)
    }

    /// A host for each session of all users, and the one that they share.
    fn of_users(tools: &'a Tools) -> Result<World<'a>> {
        let branches = vec![Branch::rtt(20.0); SESSIONS.iter().sum()];
        World::open(&Shape { branches, ..five("100ms") }, tools)
    }

    pub(crate) fn around(lab: Lab, tools: &'a Tools) -> Result<World<'a>> {
        // Other users than this one find their daemon and their keys there.
        std::fs::set_permissions(lab.dir.path(), std::fs::Permissions::from_mode(0o755))?;
        let data = lab.dir.path().join("data");
        std::fs::create_dir(&data)?;
        std::fs::File::create(data.join(FILE))?.set_len(100 << 30)?;
        Ok(World { lab, tools, data })
    }

    fn socket(&self, host: &str) -> PathBuf {
        self.lab.dir.path().join(format!("{host}.gtpd"))
    }

    /// The options by which a process of a host finds its daemon.
    pub(crate) fn under(&self, host: &str) -> [String; 2] {
        ["--daemon".into(), self.socket(host).display().to_string()]
    }

    /// Starts the daemon of a host and waits until it answers.
    pub(crate) fn daemon(&mut self, host: &str, options: &[&str]) -> Result<()> {
        let socket = self.socket(host);
        let gtpd = self.tools.gtp.with_file_name("gtpd").display().to_string();
        let name = socket.display().to_string();
        self.lab.start(host, &gtpd, &[&["--socket", &name], options].concat())?;
        product::await_daemon(&socket)
    }

    /// Starts a server of source `i`, without a daemon.
    fn serve(&mut self, i: usize, options: &[&str]) -> Result<Source> {
        let options = [&["--daemon", "off"], options].concat();
        self.serve_as(0, &format!("src{i}"), (source_address(i), PORT), &options)
    }

    pub(crate) fn serve_as(
        &mut self,
        user: u32,
        host: &str,
        (address, port): (String, u16),
        options: &[&str],
    ) -> Result<Source> {
        let key = self.lab.serve_as(user, host, port, &self.data, options)?;
        Ok((format!("gtp://{address}:{port}/{FILE}"), key))
    }

    /// A file that lists the keys of these configurations.
    fn keys(&self, names: &[String]) -> Result<String> {
        let mut listed = String::new();
        for name in names {
            let said = self.lab.command_as(0, "sink", name)?.arg("id").output()?;
            ensure!(said.status.success(), "no key");
            listed.push_str(&String::from_utf8(said.stdout)?);
        }
        let path = self.lab.config("keys");
        std::fs::write(&path, listed)?;
        Ok(path.display().to_string())
    }

    pub(crate) fn fetch(&self, what: &What<'_>) -> Result<Running> {
        let (first, more) = what.sources.split_first().context("no source")?;
        let mut command = self.lab.command_as(what.user, what.host, what.name)?;
        command.args(["get", &first.0, "-"]).args(what.options);
        command.args(more.iter().flat_map(|(url, _)| ["--mirror", url]));
        command.args(what.sources.iter().flat_map(|(_, key)| ["--fingerprint", key]));
        let log = std::fs::File::create(self.lab.config(&format!("{}.log", what.name)))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Running::start(&format!("the transfer {}", what.name), &mut command)
    }
}

/// An address and its key.
pub(crate) type Source = (String, String);

fn bits(rate: f64) -> String {
    format!("{rate:.0}bit")
}

/// The largest deviation of rates that should be equal, as a part of their mean.
fn spread(rates: &[f64]) -> Result<f64> {
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    ensure!(mean > 0.0, "nothing was moved");
    Ok(rates.iter().map(|rate| (rate / mean - 1.0).abs()).fold(0.0, f64::max))
}

/// Ends processes that must all still be at it.
pub(crate) fn end(processes: impl IntoIterator<Item = Running>) -> Result<()> {
    processes.into_iter().try_for_each(Running::end)
}

/// Lets what was started run while it is looked at, for a set time; nothing is asserted by that.
fn sleep(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

/// Two users, each with two processes, of 1, 1, 4 and 10 sessions, into one host.
///
/// # Errors
/// If the network or a process cannot be started.
pub fn users_in(tools: &Tools) -> Result<Value> {
    let mut world = World::of_users(tools)?;
    world.daemon("sink", &["--capacity-in", &bits(SHARED)])?;
    let sources = (0..SESSIONS.iter().sum())
        .map(|i| world.serve(i, &["--public"]))
        .collect::<Result<Vec<_>>>()?;
    let [daemon, socket] = &world.under("sink");
    let options = &[daemon.as_str(), socket];
    let (mut processes, mut ranges, mut from) = (Vec::new(), Vec::new(), 0);
    for (i, count) in SESSIONS.into_iter().enumerate() {
        let sources = &sources[from..from + count];
        let (user, name) = (USERS[i / 2], &format!("get{i}"));
        processes.push(world.fetch(&What { host: "sink", user, name, sources, options })?);
        ranges.push(from..from + count);
        from += count;
    }
    let began = world.lab.now();
    sleep(STEADY.1 + 0.2);
    end(processes)?;
    let record = Record(world.lab.close()?);
    let rate = |i| record.rate(&route(i), began + STEADY.0, began + STEADY.1);
    let transfers: Vec<f64> = ranges.into_iter().map(|of| of.map(rate).sum()).collect();
    users_row("users-in", transfers.chunks(2).map(<[f64]>::to_vec).collect())
}

/// What two users have, by transfer.
fn users_row(case: &str, transfers: Vec<Vec<f64>>) -> Result<Value> {
    let users: Vec<f64> = transfers.iter().map(|of| of.iter().sum()).collect();
    let within = transfers.iter().map(|of| spread(of)).collect::<Result<Vec<_>>>()?;
    Ok(json!({"case": case, "users_Mbit": in_mbit(&users), "users_apart": spread(&users)?,
        "transfers_Mbit": transfers.iter().map(|of| in_mbit(of)).collect::<Vec<_>>(),
        "transfers_apart": within.into_iter().fold(0.0, f64::max),
        "sum_of_capacity": users.iter().sum::<f64>() / SHARED}))
}

/// Two users, told by their keys, fetch 1 and 1, and 4 and 10 files at a time out of one host, each
/// from servers of its own.
///
/// # Errors
/// As [`users_in`].
pub fn users_out(tools: &Tools) -> Result<Value> {
    let mut world = World::of_users(tools)?;
    let names = USERS.map(|user| format!("user{user}"));
    let keys = world.keys(&names)?;
    world.daemon("sink", &["--capacity-out", &bits(SHARED)])?;
    let [daemon, socket] = &world.under("sink");
    let (mut processes, mut from) = (Vec::new(), 0);
    let mut users = vec![Vec::new(), Vec::new()];
    for (i, count) in SESSIONS.into_iter().enumerate() {
        let place = (sink_address(), PORT + i as u16);
        let options = ["--authorized-keys", &keys, daemon, socket];
        let source = [world.serve_as(0, "sink", place, &options)?];
        for n in from..from + count {
            let (host, name, options) = (&format!("src{n}"), &names[i / 2], &["--daemon", "off"]);
            let what = What { host, user: 0, name, sources: &source, options };
            processes.push(world.fetch(&what)?);
            users[i / 2].push(n);
        }
        from += count;
    }
    let began = world.lab.now();
    sleep(STEADY.1 + 0.2);
    end(processes)?;
    let record = Record(world.lab.close()?);
    let rate =
        |&i: &usize| record.rate(&format!("sink-src{i}"), began + STEADY.0, began + STEADY.1);
    let of = |mine: Vec<usize>| mine.iter().map(rate).collect();
    users_row("users-out", users.into_iter().map(of).collect())
}

/// Three processes of weights 1, 2 and 4.
///
/// # Errors
/// As [`users_in`].
pub fn weights(tools: &Tools) -> Result<Value> {
    const WEIGHTS: [f64; 3] = [1.0, 2.0, 4.0];
    let mut shape = five("100ms");
    shape.branches.truncate(WEIGHTS.len());
    let mut world = World::open(&shape, tools)?;
    world.daemon("sink", &["--capacity-in", &bits(CAPACITY)])?;
    let names: Vec<String> = (0..WEIGHTS.len()).map(|i| format!("get{i}")).collect();
    // A server takes more than one only from who is listed.
    let keys = world.keys(&names)?;
    let [daemon, socket] = &world.under("sink");
    let mut processes = Vec::new();
    for (i, (weight, name)) in WEIGHTS.into_iter().zip(&names).enumerate() {
        let sources = &[world.serve(i, &["--authorized-keys", &keys])?];
        let options = &["--weight", &weight.to_string(), daemon, socket];
        processes.push(world.fetch(&What { host: "sink", user: 0, name, sources, options })?);
    }
    let began = world.lab.now();
    sleep(STEADY.1 + 0.2);
    end(processes)?;
    let record = Record(world.lab.close()?);
    let rate = |i| record.rate(&route(i), began + STEADY.0, began + STEADY.1);
    let rates: Vec<f64> = (0..WEIGHTS.len()).map(rate).collect();
    let by_weight: Vec<f64> =
        rates.iter().zip(WEIGHTS).map(|(rate, weight)| rate / weight).collect();
    Ok(json!({"case": "weights", "rates_Mbit": in_mbit(&rates), "apart": spread(&by_weight)?,
        "sum_of_capacity": rates.iter().sum::<f64>() / CAPACITY}))
}

/// Five processes come one by one and are killed one by one, in one order of round trips.
fn one_by_one(tools: &Tools, order: [usize; 5]) -> Result<Value> {
    const STEP: f64 = 2.5;
    let mut world = World::open(&five("100ms"), tools)?;
    world.daemon("sink", &["--capacity-in", &bits(CAPACITY)])?;
    let sources = (0..5).map(|i| world.serve(i, &["--public"])).collect::<Result<Vec<_>>>()?;
    let [daemon, socket] = &world.under("sink");
    let options = &[daemon.as_str(), socket];
    let (mut processes, mut at) = (std::collections::VecDeque::new(), Vec::new());
    for phase in 0..9 {
        at.push(world.lab.now());
        if let Some(&i) = order.get(phase) {
            let sources = std::slice::from_ref(&sources[i]);
            let name = &format!("get{i}");
            let what = What { host: "sink", user: 0, name, sources, options };
            processes.push_back(world.fetch(&what)?);
        } else {
            processes.pop_front().context("nobody is left")?.end()?;
        }
        let next = at[0] + STEP * (phase + 1) as f64;
        sleep((next - world.lab.now()).max(0.0));
    }
    at.push(world.lab.now());
    end(processes)?;
    let record = Record(world.lab.close()?);
    let (mut reached, mut worst_jain, mut worst_sum) = (Vec::new(), 1.0_f64, f64::INFINITY);
    for phase in 0..9_usize {
        let live = &order[phase.saturating_sub(4)..=phase.min(4)];
        let share = CAPACITY / live.len() as f64;
        let shares: Vec<_> = live.iter().map(|&i| (route(i), share)).collect();
        let (from, to) = (at[phase], at[phase + 1]);
        reached.push(record.reached(&shares, (from, to), 0.05, 0.1, HOLD));
        let rates: Vec<f64> = live.iter().map(|&i| record.rate(&route(i), to - 1.0, to)).collect();
        ensure!(rates.iter().all(|rate| *rate > 0.0), "nothing was moved in phase {phase}");
        worst_jain = worst_jain.min(jain_index(&rates));
        worst_sum = worst_sum.min(rates.iter().sum());
    }
    let (offered, dropped) = record.drops("access", at[0], at[9]);
    Ok(json!({"case": "processes-one-by-one", "round_trips_ms": order.map(|i| FIVE[i]),
        "reached_s": reached, "worst_jain_last_second": worst_jain,
        "worst_sum_of_capacity": worst_sum / CAPACITY,
        "shared_queue_loss": dropped as f64 / offered.max(1) as f64}))
}

/// Short round trips first, long ones first, and mixed.
///
/// # Errors
/// As [`users_in`].
pub fn five_to_one(tools: &Tools) -> Result<Vec<Value>> {
    let orders = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]];
    orders.into_iter().map(|order| one_by_one(tools, order)).collect()
}

/// Fifteen sessions among five sources and five sinks, each session a process at either end: first
/// each process of a user of its own, then all of one, who so has a part of a part at both ends.
///
/// # Errors
/// As [`users_in`].
pub fn five_to_five(tools: &Tools) -> Result<Vec<Value>> {
    [false, true].into_iter().map(|one_user| mesh(tools, one_user)).collect()
}

fn mesh(tools: &Tools, one_user: bool) -> Result<Value> {
    let rtts = [60.0, 1.0, 140.0, 1.0, 60.0];
    let lab = Lab::open_file(&mesh_file(("140Mbit", "100ms"), &rtts, &PAIRS), &tools.gtp)?;
    let mut world = World::around(lab, tools)?;
    let capacity = bits(MESH_CAPACITY as f64);
    for i in 0..5 {
        world.daemon(&format!("src{i}"), &["--capacity-out", &capacity])?;
        world.daemon(&format!("sink{i}"), &["--capacity-in", &capacity])?;
    }
    let user = |n: usize| if one_user { 0 } else { USERS[0] + n as u32 };
    let mut sources = Vec::new();
    for (n, (from, _)) in PAIRS.into_iter().enumerate() {
        let (host, place) = (format!("src{from}"), (source_address(from), PORT + n as u16));
        let [daemon, socket] = &world.under(&host);
        let options = ["--public", daemon, socket];
        sources.push(world.serve_as(user(n), &host, place, &options)?);
    }
    let began = world.lab.now();
    let mut processes = Vec::new();
    for (n, (source, (_, to))) in sources.iter().zip(PAIRS).enumerate() {
        let (host, name) = (&format!("sink{to}"), &format!("get{n}"));
        let [daemon, socket] = &world.under(host);
        let (sources, options) = (std::slice::from_ref(source), &[daemon.as_str(), socket]);
        processes.push(world.fetch(&What { host, user: user(n), name, sources, options })?);
    }
    sleep(8.0);
    end(processes)?;
    let record = Record(world.lab.close()?);
    let count = |holds: &dyn Fn(&(usize, usize)) -> bool| {
        PAIRS.iter().filter(|pair| holds(pair)).count() as f64
    };
    let weight = |&(from, to): &(usize, usize)| match one_user {
        true => 1.0 / count(&|pair| pair.0 == from) / count(&|pair| pair.1 == to),
        false => 1.0,
    };
    let best = weighted_optimum(&PAIRS, 5, MESH_CAPACITY as f64, weight)?;
    let name = |&(from, to): &(usize, usize)| format!("src{from}-sink{to}");
    let shares: Vec<_> = PAIRS.iter().map(name).zip(best).collect();
    let off = |(route, share): &(String, f64)| {
        (record.rate(route, began + 4.0, began + 8.0) / share - 1.0).abs()
    };
    Ok(json!({"case": "processes-five-to-five", "of_one_user": one_user,
        "reached_s": record.reached(&shares, (began, began + 8.0), 0.05, 0.2, HOLD),
        "worst_off_optimum": shares.iter().map(off).fold(0.0, f64::max),
        "emulator_late_s_most": record.lateness(began + 8.0)}))
}

/// Two processes under a daemon that leaves others room; kernel TCP comes, and goes.
///
/// # Errors
/// As [`users_in`].
pub fn room_for_tcp(tools: &Tools) -> Result<Vec<Value>> {
    [None, Some(200e6)].into_iter().map(|reserve| beside_tcp(tools, reserve)).collect()
}

fn beside_tcp(tools: &Tools, reserve: Option<f64>) -> Result<Value> {
    /// Seconds from the start at which TCP's flows come; they stay this long.
    const COME: f64 = 5.0;
    const STAY: f64 = 15.0;
    const FLOWS: std::ops::Range<usize> = 2..4;
    let shape = Shape { branches: vec![Branch::rtt(20.0); FLOWS.end], ..five("100ms") };
    let mut world = World::open(&shape, tools)?;
    tcp::listen(&mut world.lab, FLOWS.end)?;
    let (capacity, kept) = (bits(CAPACITY), reserve.map(bits));
    let mut options = vec!["--capacity-in", &capacity, "--interface", "gtp0"];
    options.extend(kept.iter().flat_map(|kept| ["--reserve", kept]));
    world.daemon("sink", &options)?;
    let [daemon, socket] = &world.under("sink");
    let mut processes = Vec::new();
    for i in 0..FLOWS.start {
        let (name, sources) = (&format!("get{i}"), &[world.serve(i, &["--public"])?]);
        let options = &[daemon.as_str(), socket];
        processes.push(world.fetch(&What { host: "sink", user: 0, name, sources, options })?);
    }
    sleep(COME);
    let come = world.lab.now();
    let flows =
        FLOWS.map(|i| tcp::send(&world.lab, i, "cubic", STAY)).collect::<Result<Vec<_>>>()?;
    flows.into_iter().try_for_each(Running::finish)?;
    let gone = world.lab.now();
    sleep(5.0);
    end(processes)?;
    let record = Record(world.lab.close()?);
    let sum = |of: std::ops::Range<usize>, from, to| -> f64 {
        of.map(|i| record.rate(&route(i), from, to)).sum()
    };
    let gtp = |from, to| sum(0..FLOWS.start, from, to);
    let tcp = |from, to| sum(FLOWS, from, to);
    let (settled, end) = (come + 8.0, come + STAY - 0.5);
    let first = |from: f64, holds: &dyn Fn(f64) -> bool| {
        (0..400).map(|i| from + 0.025 * f64::from(i)).find(|&at| holds(at)).map(|at| at - from)
    };
    let before = gtp(come - 2.0, come);
    // A stall is no leave: it is looked for from the end.
    let last = (0..400)
        .map(|i| gone - 0.025 * f64::from(i))
        .find(|&at| tcp(at - 0.1, at) >= 1e6)
        .unwrap_or(gone);
    let (offered, dropped) = record.drops("access", settled, end);
    Ok(json!({"case": "room-for-tcp", "reserve_Mbit": reserve.map(|rate| rate / 1e6),
        "gtp_before_Mbit": before / 1e6,
        "gtp_beside_Mbit": gtp(settled, end) / 1e6, "tcp_Mbit": tcp(settled, end) / 1e6,
        "tcp_each_second_Mbit": (0..STAY as u32)
            .map(|s| (tcp(come + f64::from(s), come + f64::from(s + 1)) / 1e6).round())
            .collect::<Vec<_>>(),
        "gtp_first_below_95_percent_s": first(come, &|at| gtp(at, at + 0.1) < 0.95 * before),
        "tcp_half_of_its_rate_s":
            first(come, &|at| tcp(at, at + 0.1) >= 0.5 * tcp(settled, end)),
        "taken_back_s": first(last, &|at| gtp(at, at + 0.1) >= 0.95 * before),
        "queue_loss": dropped as f64 / offered.max(1) as f64}))
}
