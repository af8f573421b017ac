//! A machine's daemon through its life, under ten transfers of four processes.
//!
//! Four servers of one machine, each with a capacity of its own, send to ten clients, and links
//! without a rate lead there. A daemon with half of the servers' capacities is installed while they
//! run, is stopped, comes back, is killed and comes back, is replaced, and is killed for good. What
//! counts is that every transfer goes on, that what leaves the machine stays within the daemon's
//! capacity from when all have equal parts until three seconds after it has gone, and how soon the
//! processes are alone again, or equal again.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::equal;
use crate::kills::{APART, SETTLES};
use crate::lab::{Branch, Lab, Shape, sink_address};
use crate::product::{Server, pass};
use crate::record::Record;
use crate::running::Running;

/// The clients of each server.
const CLIENTS: [usize; 4] = [3, 3, 2, 2];
/// All of them, each with one transfer.
const TRANSFERS: usize = 10;
/// What the daemon shares out, and what one server does alone, in Mbit/s.
const CAPACITY: f64 = 50.0;
const OF_ONE: f64 = 25.0;
/// Bytes of each transfer: more than it gets.
const OBJECT: u64 = 1 << 30;
/// All are granted equal parts again within so many seconds of a daemon's start.
const FAIR_AGAIN: f64 = 1.0;
/// The servers are alone again within so many seconds when it has gone; they wait for three.
const ALONE_AGAIN: f64 = 5.0;
const WAIT: f64 = 3.0;
/// The most that may leave the machine in a second of the capacity, statuses and all. Seconds in
/// which the emulator stood still do not count, as what it takes in at once was sent before; of
/// each span this part has to be left.
const MOST: f64 = 1.01;
const PUNCTUAL: f64 = 0.5;
/// Servers are alone when so much of their capacities leaves the machine in a quarter of a second.
const ALONE: f64 = 0.9;
/// A transfer stands still while it has less than this part of an equal one in a tenth of a second.
const STILL: f64 = 0.1;
/// An orphan waits for a second before it uses its part; then its first packets travel.
const STILL_MOST: f64 = 1.2;
/// Time between the steps, and for the servers to be alone again.
const REST: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(8);
/// How long the daemon is away where it comes back before the servers are alone.
const AWAY: Duration = Duration::from_secs(1);

/// The machine with its servers, and the clients.
struct Machine<'a> {
    lab: Lab,
    tools: &'a Tools,
    servers: Vec<Server>,
    transfers: Vec<Running>,
    daemon: Option<Running>,
}

/// When, in seconds, what happened.
struct Marks {
    /// From when all had equal parts until the servers might be alone.
    shared: Vec<(f64, f64)>,
    /// When it had gone for good.
    gone: Vec<f64>,
    /// How long it took from a daemon's start until all had equal parts: of servers that were
    /// alone, and of those that waited.
    joined: Vec<f64>,
    again: Vec<f64>,
}

/// Runs the case; one row.
///
/// # Errors
/// If the network or a process cannot be started, a transfer ends, or all are never equal.
pub fn run(tools: &Tools) -> Result<Value> {
    let mut machine = Machine::open(tools)?;
    let began = machine.lab.now();
    pass(LONG);
    let (mut joined, mut again) = (Vec::new(), Vec::new());
    let mut live = |machine: &mut Machine<'_>| -> Result<f64> {
        joined.push(machine.start()?);
        let equal = machine.lab.now();
        pass(REST);
        Ok(equal)
    };
    let installed = live(&mut machine)?;
    let stopped = machine.end("TERM")?;
    pass(LONG);
    let back = live(&mut machine)?;
    machine.end("KILL")?;
    pass(AWAY);
    again.push(machine.start()?);
    pass(REST);
    machine.end("TERM")?;
    again.push(machine.start()?);
    pass(REST);
    let killed = machine.end("KILL")?;
    pass(LONG);
    let last = live(&mut machine)?;
    let to = machine.end("KILL")?;
    let shared = vec![(installed, stopped + WAIT), (back, killed + WAIT), (last, to)];
    let marks = Marks { shared, gone: vec![stopped, killed], joined, again };
    let record = machine.close()?;
    Ok(row(&record, (began, to), &marks))
}

impl<'a> Machine<'a> {
    fn open(tools: &'a Tools) -> Result<Machine<'a>> {
        let shape = Shape {
            access: ("1Gbit".into(), "100ms".into()),
            middle: None,
            branches: vec![Branch::rtt(20.0); TRANSFERS],
        };
        let lab = Lab::open(&shape, &tools.gtp)?;
        let (servers, transfers) = (Vec::new(), Vec::new());
        let mut machine = Machine { lab, tools, servers, transfers, daemon: None };
        std::fs::create_dir(machine.place("data"))?;
        std::fs::File::create(machine.place("data/big"))?.set_len(OBJECT)?;
        std::fs::DirBuilder::new().mode(0o700).create(machine.place("run"))?;
        let mut first = 0;
        for (number, clients) in CLIENTS.into_iter().enumerate() {
            machine.serve(number, first..first + clients)?;
            first += clients;
        }
        Ok(machine)
    }

    fn place(&self, name: &str) -> PathBuf {
        self.lab.dir.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.place("run/gtp/gtpd.sock")
    }

    /// Starts a server that lists the keys of these clients, and their transfers.
    fn serve(&mut self, number: usize, clients: std::ops::Range<usize>) -> Result<()> {
        let config = self.place(&format!("server{number}"));
        std::fs::create_dir(&config)?;
        let mut keys = String::new();
        for client in clients.clone() {
            let key = self.lab.command(&host(client), &self.tools.gtp).arg("id").output()?;
            ensure!(key.status.success(), "gtp id: {}", String::from_utf8_lossy(&key.stderr));
            keys += &String::from_utf8(key.stdout)?;
        }
        std::fs::write(config.join("authorized_keys"), keys)?;
        let mut command = self.lab.command("sink", &self.tools.gtp);
        command.arg("serve").arg(self.place("data")).args(["--json", "--listen"]);
        command.arg(format!("0.0.0.0:{}", 4_810 + number)).args(["--daemon", "auto"]);
        command.arg("--capacity-out").arg(format!("{OF_ONE}Mbit"));
        command.env("GTP_CONFIG_DIR", config).env("XDG_RUNTIME_DIR", self.place("run"));
        let server = Server::start(command, self.place(&format!("server{number}.log")))?;
        for client in clients {
            let mut get = self.lab.command(&host(client), &self.tools.gtp);
            let url = format!("gtp://{}:{}/big", sink_address(), 4_810 + number);
            get.args(["get", &url, "-", "--daemon", "off", "--fingerprint", &server.fingerprint]);
            let log = std::fs::File::create(self.place(&format!("client{client}.log")))?;
            get.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            self.transfers.push(Running::start(&format!("client {client}"), &mut get)?);
        }
        self.servers.push(server);
        Ok(())
    }

    /// Starts a daemon; the seconds until all have equal parts.
    fn start(&mut self) -> Result<f64> {
        let began = Instant::now();
        let mut command = self.lab.command("sink", &self.tools.gtp.with_file_name("gtpd"));
        command.arg("--socket").arg(self.socket());
        command.arg("--capacity-out").arg(format!("{CAPACITY}Mbit"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemon = Some(Running::start("the daemon", &mut command)?);
        let (socket, each) = (self.socket(), CAPACITY * 1e6 / TRANSFERS as f64);
        equal::wait((&socket, began), TRANSFERS, each, || self.check())
    }

    /// Ends the daemon by a signal; when it had gone.
    fn end(&mut self, signal: &str) -> Result<f64> {
        let mut daemon = self.daemon.take().context("no daemon")?;
        let pid = daemon.child.id().to_string();
        ensure!(Command::new("kill").args(["-s", signal, &pid]).status()?.success(), "kill");
        daemon.child.wait()?;
        self.check()?;
        Ok(self.lab.now())
    }

    /// That all transfers go on.
    fn check(&mut self) -> Result<()> {
        for (client, transfer) in self.transfers.iter_mut().enumerate() {
            let ended = transfer.child.try_wait()?;
            let log = self.lab.dir.path().join(format!("client{client}.log"));
            let said = || std::fs::read_to_string(log).unwrap_or_default();
            ensure!(ended.is_none(), "client {client} has ended: {ended:?}: {}", said());
        }
        Ok(())
    }

    fn close(mut self) -> Result<Record> {
        self.check()?;
        self.transfers.clear();
        self.servers.clear();
        Ok(Record(self.lab.close()?))
    }
}

fn host(client: usize) -> String {
    format!("src{client}")
}

/// What leaves the machine for one client, in Mbit/s.
fn rate(record: &Record, client: usize, from: f64, to: f64) -> f64 {
    record.rate(&format!("sink-src{client}"), from, to) / 1e6
}

fn sum(record: &Record, from: f64, to: f64) -> f64 {
    (0..TRANSFERS).map(|client| rate(record, client, from, to)).sum()
}

/// The beginnings of all seconds of a span.
fn seconds((from, to): (f64, f64)) -> impl Iterator<Item = f64> {
    (0..((to - from - 1.0) / 0.01) as usize).map(move |at| from + at as f64 * 0.01)
}

/// The most that leaves the machine in any of these seconds, of the capacity, and when that begins.
fn most(record: &Record, begins: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let part = |begin| (sum(record, begin, begin + 1.0) / CAPACITY, begin);
    begins.map(part).max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The same of the seconds in which the emulator did not stand still, and their part of all.
fn most_punctual(record: &Record, span: (f64, f64)) -> (Option<f64>, f64) {
    let punctual = |begin: &f64| record.punctual(begin - SETTLES, begin + 1.0, APART);
    let counted: Vec<f64> = seconds(span).filter(punctual).collect();
    let part = counted.len() as f64 / seconds(span).count() as f64;
    (most(record, counted.into_iter()).map(|(most, _)| most), part)
}

/// The seconds from a daemon's end until its servers are alone again.
fn alone_again(record: &Record, gone: f64) -> Option<f64> {
    let all = ALONE * OF_ONE * CLIENTS.len() as f64;
    let ends = (0..(LONG.as_secs_f64() / 0.01) as usize).map(|at| gone + at as f64 * 0.01);
    let mut ends = ends.filter(|end| end - gone > 0.25);
    ends.find(|end| sum(record, end - 0.25, *end) >= all).map(|end| end - gone)
}

/// The longest time in seconds for which a transfer stands still.
fn longest_still(record: &Record, (from, to): (f64, f64)) -> f64 {
    let part = STILL * CAPACITY / TRANSFERS as f64;
    let of = |client| {
        let (mut since, mut longest) = (from, 0.0_f64);
        for at in 0..((to - from) / 0.01) as usize - 10 {
            let begin = from + at as f64 * 0.01;
            match rate(record, client, begin, begin + 0.1) < part {
                true => longest = longest.max(begin + 0.1 - since),
                false => since = begin + 0.01,
            }
        }
        longest
    };
    (0..TRANSFERS).map(of).fold(0.0, f64::max)
}

fn row(record: &Record, (began, to): (f64, f64), marks: &Marks) -> Value {
    let all = OF_ONE * CLIENTS.len() as f64;
    let first = marks.shared.first().map_or(to, |span| span.0);
    let spans = || marks.shared.iter().copied();
    let highest = |span| most(record, seconds(span)).unwrap_or_default();
    let (most, at): (Vec<f64>, Vec<f64>) =
        spans().map(|span| (highest(span).0, highest(span).1 - span.0)).unzip();
    let (punctual, part): (Vec<_>, Vec<_>) =
        spans().map(|span| most_punctual(record, span)).unzip();
    let alone: Vec<Option<f64>> =
        marks.gone.iter().map(|&gone| alone_again(record, gone)).collect();
    let moving = began + REST.as_secs_f64();
    let still = longest_still(record, (moving, to));
    let mut missed = Vec::new();
    let mut must = |holds: bool, what: String| missed.extend((!holds).then_some(what));
    let within = |most: &Option<f64>| most.is_some_and(|most| most <= MOST);
    let words = format!("{punctual:.4?} of the capacity in a second");
    must(punctual.iter().all(within), words);
    must(
        part.iter().all(|&part| part >= PUNCTUAL),
        format!("the emulator stood still: {part:.2?}"),
    );
    let in_time = |alone: &Option<f64>| alone.is_some_and(|alone| alone <= ALONE_AGAIN);
    must(alone.iter().all(in_time), format!("alone again after {alone:.2?} s"));
    must(
        marks.again.iter().all(|&s| s <= FAIR_AGAIN),
        format!("equal after {:.2?} s", marks.again),
    );
    must(still <= STILL_MOST, format!("a transfer stood still for {still:.2} s"));
    json!({
        "case": "daemon-lives",
        "processes": CLIENTS.len(),
        "transfers": TRANSFERS,
        "alone_before_of_capacities": sum(record, moving, first - 4.0) / all,
        "most_in_a_second_of_capacity": most,
        "most_in_a_second_at_s": at,
        "most_in_a_punctual_second_of_capacity": punctual,
        "punctual_part": part,
        "spans_s": spans().map(|(from, to)| to - from).collect::<Vec<_>>(),
        "alone_again_s": alone,
        "equal_s_when_installed": marks.joined,
        "equal_again_s": marks.again,
        "longest_still_s": still,
        "emulator_late_s_most": record.lateness(to),
        "missed": missed,
    })
}
