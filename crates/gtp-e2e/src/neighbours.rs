//! What attackers cost an honest neighbour.
//!
//! A public server with a stated capacity sends an honest listed client a file without end. Then
//! 1, 8 and 64 attackers of a kind come, each with a key and an address of its own. What counts is
//! what the neighbour still receives, how much memory and how many lines of log the server takes
//! for the attackers, and how soon listed clients come in meanwhile. The attackers' process has the
//! lowest priority, because attackers have machines of their own.

mod attackers;
mod house;
mod liar;
mod objects;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_net::messages::Verb;
use gtp_net::trust::HostTrust;
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::running::Running;
pub use attackers::{Attack, KINDS, Kind};
pub use house::Under;
use house::{House, Neighbour};

/// Attackers at a time, in turn.
const ATTACKERS: [usize; 3] = [1, 8, 64];
/// Before anything is measured; how long the neighbour is alone; how long it is attacked.
const SETTLES: Duration = Duration::from_secs(2);
const ALONE: Duration = Duration::from_secs(4);
/// Between an attack's begin and its measuring: the lines that a server may write at once are out.
const BURSTS: Duration = Duration::from_secs(5);
const ATTACKED: Duration = Duration::from_secs(6);
/// Between two readings of what the server uses.
const LOOK: Duration = Duration::from_millis(100);
/// Between two listed clients that come in.
const NEXT_VISIT: Duration = Duration::from_millis(200);
/// The neighbour keeps this part of its share, and this where files are listed and hashed for
/// others.
const SHARE: f64 = 0.99;
const SHARE_BESIDE_WORK: f64 = 0.95;
/// What the server may take for attackers.
pub const MEMORY_MOST: u64 = 64 << 20;
/// Lines a second that it may write.
pub const LINES_MOST: f64 = 10.0;
/// A listed client is in within this time, 99 of 100 times.
const ENTERED: Duration = Duration::from_secs(2);
const ENTERING: f64 = 0.99;

/// Attacks as planned, and says twice a second how many bytes of data came of it, until it is
/// killed.
///
/// # Errors
/// If an attacker cannot begin.
pub async fn attack(plan: Attack) -> Result<()> {
    let moved = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&moved);
    let tell = async move {
        loop {
            tokio::time::sleep(Duration::from_millis(250)).await;
            gtp_lab::say!("{}", told.load(Ordering::Relaxed));
        }
    };
    tokio::select! { ended = attackers::run(plan, moved) => ended, () = tell => Ok(()) }
}

/// Runs the case, or one kind of attacker of it: `neighbours-flood`. A row for each kind, number
/// of attackers, and way to share the capacity out.
///
/// # Errors
/// If there is no such kind, or a process cannot be started or ends.
pub fn run(name: &str, tools: &Tools) -> Result<Vec<Value>> {
    let chosen = name.strip_prefix("neighbours").and_then(|rest| rest.strip_prefix('-'));
    let is_chosen = |kind: &str| chosen.is_none_or(|chosen| chosen == kind);
    let kinds: Vec<_> = KINDS.into_iter().filter(|(kind, _)| is_chosen(kind)).collect();
    let known = KINDS.map(|(kind, _)| kind).join(", ");
    ensure!(!kinds.is_empty(), "no case {name}; attackers are {known}");
    let mut rows = Vec::new();
    for under in [Under::Serve, Under::Gtpd] {
        for (name, kind) in &kinds {
            rows.extend(besiege(tools, under, (name, *kind))?);
        }
    }
    Ok(rows)
}

/// One kind, in each number.
fn besiege(tools: &Tools, under: Under, (name, kind): (&str, Kind)) -> Result<Vec<Value>> {
    let mut house = House::open(tools, under)?;
    let neighbour = Neighbour::start(&house)?;
    std::thread::sleep(SETTLES);
    let idle = house.usage()?;
    let before = alone(&neighbour)?;
    let mut seen = Vec::new();
    for attackers in ATTACKERS {
        seen.push((attackers, attacked(tools, &mut house, &neighbour, (kind, attackers))?));
        std::thread::sleep(SETTLES);
    }
    let alone = f64::midpoint(before, alone(&neighbour)?);
    let row = |(attackers, seen): (usize, Seen)| {
        let part = match kind {
            Kind::List | Kind::Hash => SHARE_BESIDE_WORK,
            Kind::Leave | Kind::Squat | Kind::Trickle | Kind::Lazy => SHARE,
            Kind::Flood | Kind::KeepAlive | Kind::Garbage => SHARE,
        };
        let mut row = seen.to_json(alone, idle.memory, part);
        row["case"] = "neighbours".into();
        row["attackers"] = attackers.into();
        row["kind"] = name.into();
        row["under"] = format!("{under:?}").to_lowercase().into();
        row
    };
    Ok(seen.into_iter().map(row).collect())
}

/// What the neighbour receives alone, bit/s.
fn alone(neighbour: &Neighbour) -> Result<f64> {
    let from = Instant::now();
    std::thread::sleep(ALONE);
    neighbour.rate(from, Instant::now())
}

/// What was seen during an attack.
struct Seen {
    /// What the neighbour received, and the attackers, bit/s.
    neighbour: f64,
    attackers: f64,
    /// The most memory of the server.
    memory: u64,
    lines: f64,
    visits: Visits,
}

/// Listed clients that came.
#[derive(Default)]
struct Visits {
    all: usize,
    in_time: usize,
    slowest: Duration,
}

fn attacked(
    tools: &Tools,
    house: &mut House,
    neighbour: &Neighbour,
    (kind, attackers): (Kind, usize),
) -> Result<Seen> {
    let (server, fingerprint) = (house.address, house.fingerprint.to_string());
    let plan = serde_json::to_string(&Attack { kind, attackers, server, fingerprint })?;
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(&tools.own).arg("attack").arg(plan);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut attack = Running::start("the attackers", &mut command)?;
    let out = BufReader::new(attack.child.stdout.take().context("no output")?);
    let moved = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&moved);
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            told.store(line.parse().unwrap_or(0), Ordering::Relaxed);
        }
    });
    let visits = Visitor::start(house);
    std::thread::sleep(BURSTS);
    let (lines, had, from) =
        (house.log()?.lines().count(), moved.load(Ordering::Relaxed), Instant::now());
    let mut memory = 0;
    while from.elapsed() < ATTACKED {
        memory = memory.max(house.usage()?.memory);
        std::thread::sleep(LOOK);
    }
    let (to, seconds) = (Instant::now(), from.elapsed().as_secs_f64());
    let seen = Seen {
        neighbour: neighbour.rate(from, to)?,
        attackers: (moved.load(Ordering::Relaxed) - had) as f64 * 8.0 / seconds,
        memory,
        lines: (house.log()?.lines().count() - lines) as f64 / seconds,
        visits: visits.finish()?,
    };
    attack.end()?;
    Ok(seen)
}

impl Seen {
    fn to_json(&self, alone: f64, idle: u64, part: f64) -> Value {
        // What attackers move is theirs, as far as it is less than an equal part.
        let share = (alone - self.attackers).max(1.0);
        let (kept, memory) = (self.neighbour / share, self.memory.saturating_sub(idle));
        let Visits { all, in_time, slowest } = self.visits;
        let mut missed = Vec::new();
        let mut must = |holds: bool, what: String| missed.extend((!holds).then_some(what));
        must(kept >= part, format!("the neighbour kept {:.1} % of its share", 100.0 * kept));
        must(memory <= MEMORY_MOST, format!("{:.1} MiB more", memory as f64 / 1_048_576.0));
        must(self.lines <= LINES_MOST, format!("{:.1} lines a second", self.lines));
        let entering = in_time as f64 >= ENTERING * all as f64 && all > 0;
        must(entering, format!("{in_time} of {all} listed clients were in in time"));
        json!({"alone_Mbit": alone / 1e6, "neighbour_Mbit": self.neighbour / 1e6,
            "attackers_Mbit": self.attackers / 1e6, "kept": kept,
            "memory_MiB": memory as f64 / 1_048_576.0, "lines_per_s": self.lines,
            "visits": all, "visits_in_time": in_time,
            "slowest_visit_s": slowest.as_secs_f64(), "missed": missed})
    }
}

/// Listed clients that come in one after the other, and leave.
struct Visitor {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Visits>>,
}

impl Visitor {
    fn start(house: &House) -> Visitor {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (server, friend) = (house.address, house.friend.clone());
        let trust = Arc::new(HostTrust::Pinned(vec![house.fingerprint]));
        let visit = async move {
            let mut visits = Visits::default();
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                let came = async {
                    let stream = tokio::net::TcpStream::connect(server).await?;
                    let verb = Verb::Get { path: objects::SMALL.into() };
                    attackers::open(stream, server, (&friend, &trust), verb, 9).await?;
                    anyhow::Ok(())
                };
                let came = tokio::time::timeout(2 * ENTERED, came).await;
                let took = began.elapsed();
                visits.all += 1;
                visits.in_time += usize::from(matches!(came, Ok(Ok(()))) && took <= ENTERED);
                visits.slowest = visits.slowest.max(took);
                tokio::time::sleep(NEXT_VISIT).await;
            }
            visits
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(visit))
        });
        Visitor { stop, thread }
    }

    fn finish(self) -> Result<Visits> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the visitor failed"))?
    }
}

/// What a server did under a short attack.
#[derive(Debug)]
pub struct Held {
    /// What it took beyond what it had at first, at most, in bytes.
    pub memory: u64,
    /// Lines that it wrote for people.
    pub lines: usize,
    /// How long all took.
    pub lasted: Duration,
    /// Listed clients that came, and that got in.
    pub visits: (usize, usize),
}

/// Attacks a server from threads of this process while an honest client fetches a file of so many
/// bytes, and until some listed clients have come in. It must not be asked for rates.
///
/// # Errors
/// If a process cannot be started, the honest client does not finish, or has other content.
pub fn hold(tools: &Tools, kind: Kind, attackers: usize, bytes: usize) -> Result<Held> {
    let mut house = House::open(tools, Under::Serve)?;
    let content: Vec<u8> = (0..bytes).map(|at| (at / 251 + at) as u8).collect();
    std::fs::write(house.place("served/honest"), &content)?;
    let (idle, written) = (house.usage()?.memory, house.log()?.lines().count());
    let (server, fingerprint) = (house.address, house.fingerprint.to_string());
    let plan = Attack { kind, attackers, server, fingerprint };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    let attack = runtime.spawn(attackers::run(plan, Arc::default()));
    let (began, visits) = (Instant::now(), Visitor::start(&house));
    let to = house.place("honest");
    let mut command = house.get("honest", &to);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut client = Running::start("the honest client", &mut command)?;
    let mut memory = 0;
    while client.child.try_wait()?.is_none() {
        memory = memory.max(house.usage()?.memory);
        std::thread::sleep(LOOK);
    }
    client.finish()?;
    ensure!(std::fs::read(&to)? == content, "the honest client received something else");
    let visits = visits.finish()?;
    ensure!(!attack.is_finished(), "the attackers have ended");
    runtime.shutdown_background();
    Ok(Held {
        memory: memory.saturating_sub(idle),
        lines: house.log()?.lines().count() - written,
        lasted: began.elapsed(),
        visits: (visits.all, visits.in_time),
    })
}
