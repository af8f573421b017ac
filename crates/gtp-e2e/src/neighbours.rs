//! What attackers cost an honest neighbour.
//!
//! A public server with a stated capacity sends a file without end to an honest listed client, the
//! neighbour. Then 1, 8 and 64 attackers of one kind come, each with a key and an address of its
//! own. The case measures what the neighbour still receives, how much memory and how many lines of
//! log the server spends on the attackers, and how soon listed clients get in meanwhile. The
//! attackers' process has the lowest priority, because real attackers have machines of their own.
//! This module must not know how an attack is made; that is in `attackers` and `liar`.

mod attackers;
mod liar;
mod objects;
mod testbed;

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
use tokio::time::MissedTickBehavior;

use crate::cases::Tools;
use crate::product;
use crate::running::Running;
pub use attackers::{Attack, KINDS, Kind};
pub use testbed::Under;
use testbed::{Neighbour, Testbed};

/// The numbers of attackers with which each kind is tried, in order.
const ATTACKERS: [usize; 3] = [1, 8, 64];
/// Time for the server to settle before anything is measured.
const SETTLES: Duration = Duration::from_secs(2);
/// How long the neighbour is measured alone.
const ALONE: Duration = Duration::from_secs(4);
/// Time between the begin of an attack and its measurement, in which the server writes the lines
/// that it may write at once.
const BURSTS: Duration = Duration::from_secs(5);
/// How long the neighbour is measured under attack.
const ATTACKED: Duration = Duration::from_secs(6);
/// Time between two readings of what the server uses.
const LOOK: Duration = Duration::from_millis(100);
/// The time between two reports of the attackers.
const TOLD: Duration = Duration::from_millis(250);
/// The least time between the arrivals of two listed clients.
const NEXT_VISIT: Duration = Duration::from_millis(200);
/// The part of its share that the neighbour must keep.
const SHARE: f64 = 0.99;
/// What sessions of strangers may hold for each bit that is sent to them, and their common room as
/// a part of the capacity (docs/CLAIMS.md).
const CLAIMED: f64 = 1.0 + gtp_proto::limits::DEMAND_ALPHA;
const ROOM: f64 = gtp_proto::room::ROOM_PART;
/// The part of its share that it must keep while the server lists and hashes files for attackers.
const SHARE_BESIDE_WORK: f64 = 0.95;
/// Bytes of memory that the server may take for attackers.
pub const MEMORY_MOST: u64 = 64 << 20;
/// Lines of log per second that the server may write.
pub const LINES_MOST: f64 = 10.0;
/// Time within which a listed client must get in, in the part [`ENTERING`] of all visits.
const ENTERED: Duration = Duration::from_secs(2);
/// The part of visits that must succeed within [`ENTERED`].
const ENTERING: f64 = 0.99;

/// Attacks as planned until the process is killed. Four times a second it prints how many bytes the
/// attackers have received, statuses and all.
///
/// # Errors
/// If an attacker cannot begin.
pub async fn attack(plan: Attack) -> Result<()> {
    let moved = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&moved);
    let tell = async move {
        let mut due = tokio::time::interval(TOLD);
        loop {
            due.tick().await;
            gtp_lab::say!("{}", told.load(Ordering::Relaxed));
        }
    };
    tokio::select! { ended = attackers::run(plan, moved) => ended, () = tell => Ok(()) }
}

/// Runs the case with all kinds of attackers, or with one, as `neighbours-flood` does. Returns a
/// row for each kind, number of attackers, and way to share the capacity out.
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
            rows.extend(measure(tools, under, (name, *kind))?);
        }
    }
    Ok(rows)
}

/// Tries one kind of attackers in each number, and returns a row for each.
fn measure(tools: &Tools, under: Under, (name, kind): (&str, Kind)) -> Result<Vec<Value>> {
    let mut testbed = Testbed::open(tools, under)?;
    let neighbour = Neighbour::start(&testbed)?;
    product::pass(SETTLES);
    let idle = testbed.server.usage()?;
    let before = alone(&neighbour)?;
    let mut seen = Vec::new();
    for attackers in ATTACKERS {
        seen.push((attackers, attacked(tools, &mut testbed, &neighbour, (kind, attackers))?));
        product::pass(SETTLES);
    }
    let alone = f64::midpoint(before, alone(&neighbour)?);
    let row = |(attackers, seen): (usize, Seen)| {
        let (held, part) = match kind {
            Kind::List | Kind::Hash => (seen.attackers, SHARE_BESIDE_WORK),
            Kind::Squat | Kind::Trickle | Kind::Lazy => {
                (seen.attackers * CLAIMED + alone * ROOM, SHARE)
            }
            Kind::Leave | Kind::Flood | Kind::KeepAlive | Kind::Garbage => (seen.attackers, SHARE),
        };
        let mut row = seen.to_json(alone, alone - held, (idle.memory, part));
        row["case"] = "neighbours".into();
        row["attackers"] = attackers.into();
        row["kind"] = name.into();
        row["under"] = format!("{under:?}").to_lowercase().into();
        row
    };
    Ok(seen.into_iter().map(row).collect())
}

/// Measures what the neighbour receives without attackers, in bit/s.
fn alone(neighbour: &Neighbour) -> Result<f64> {
    let from = Instant::now();
    product::pass(ALONE);
    neighbour.rate(from, Instant::now())
}

/// What was seen during an attack.
struct Seen {
    /// The rate of what the neighbour received, in bit/s.
    neighbour: f64,
    /// The rate of what all attackers received together, statuses and all, in bit/s.
    attackers: f64,
    /// The most memory that the server had, in bytes.
    memory: u64,
    /// Lines of log that the server wrote per second.
    lines: f64,
    visits: Visits,
}

/// The visits of listed clients.
#[derive(Default)]
struct Visits {
    all: usize,
    in_time: usize,
    slowest: Duration,
}

fn attacked(
    tools: &Tools,
    testbed: &mut Testbed,
    neighbour: &Neighbour,
    (kind, attackers): (Kind, usize),
) -> Result<Seen> {
    let (server, fingerprint) = (testbed.address, testbed.fingerprint.to_string());
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
    let visits = Visitor::start(testbed);
    product::pass(BURSTS);
    let (lines, had, from) =
        (testbed.server.log()?.lines().count(), moved.load(Ordering::Relaxed), Instant::now());
    let mut memory = 0;
    while from.elapsed() < ATTACKED {
        memory = memory.max(testbed.server.usage()?.memory);
        product::pass(LOOK);
    }
    let (to, seconds) = (Instant::now(), from.elapsed().as_secs_f64());
    let seen = Seen {
        neighbour: neighbour.rate(from, to)?,
        attackers: (moved.load(Ordering::Relaxed) - had) as f64 * 8.0 / seconds,
        memory,
        lines: (testbed.server.log()?.lines().count() - lines) as f64 / seconds,
        visits: visits.finish()?,
    };
    attack.end()?;
    Ok(seen)
}

impl Seen {
    /// Returns the row of a neighbour that had a rate `alone` and has this share now, of which it
    /// must keep a `part`. What attackers may hold is no part of the share.
    fn to_json(&self, alone: f64, share: f64, (idle, part): (u64, f64)) -> Value {
        let share = share.max(1.0);
        let (kept, memory) = (self.neighbour / share, self.memory.saturating_sub(idle));
        let Visits { all, in_time, slowest } = self.visits;
        let mut missed = Vec::new();
        let mut must = |holds: bool, what: String| missed.extend((!holds).then_some(what));
        must(kept >= part, format!("the neighbour kept {:.1} % of its share", 100.0 * kept));
        must(memory <= MEMORY_MOST, format!("{:.1} MiB more", memory as f64 / 1_048_576.0));
        must(self.lines <= LINES_MOST, format!("{:.1} lines a second", self.lines));
        let entering = in_time as f64 >= ENTERING * all as f64 && all > 0;
        must(entering, format!("{in_time} of {all} listed clients were in in time"));
        json!({"alone_Mbit": alone / 1e6, "share_Mbit": share / 1e6,
            "neighbour_Mbit": self.neighbour / 1e6,
            "attackers_Mbit": self.attackers / 1e6, "kept": kept,
            "memory_MiB": memory as f64 / 1_048_576.0, "lines_per_s": self.lines,
            "visits": all, "visits_in_time": in_time,
            "slowest_visit_s": slowest.as_secs_f64(), "missed": missed})
    }
}

/// A thread in which listed clients come in, one after another, and leave.
struct Visitor {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Visits>>,
}

impl Visitor {
    fn start(testbed: &Testbed) -> Visitor {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (server, friend) = (testbed.address, testbed.friend.clone());
        let trust = Arc::new(HostTrust::Pinned(vec![testbed.fingerprint]));
        let visit = async move {
            let mut visits = Visits::default();
            let mut due = tokio::time::interval(NEXT_VISIT);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !stopped.load(Ordering::Relaxed) {
                due.tick().await;
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
    /// The most memory that it took beyond what it had at first, in bytes.
    pub memory: u64,
    /// Lines of log that it wrote.
    pub lines: usize,
    /// How long the attack lasted.
    pub lasted: Duration,
    /// How many listed clients came, and how many of them got in within time.
    pub visits: (usize, usize),
}

/// Attacks a server from threads of this process while an honest client fetches a file of `bytes`
/// bytes. The rates under such an attack mean nothing, because the attackers take the client's
/// processor time.
///
/// # Errors
/// If a process cannot be started, the honest client does not finish, or has other content.
pub fn hold(tools: &Tools, kind: Kind, attackers: usize, bytes: usize) -> Result<Held> {
    let mut testbed = Testbed::open(tools, Under::Serve)?;
    let content: Vec<u8> = (0..bytes).map(|at| (at / 251 + at) as u8).collect();
    std::fs::write(testbed.place("served/honest"), &content)?;
    let (idle, written) = (testbed.server.usage()?.memory, testbed.server.log()?.lines().count());
    let (server, fingerprint) = (testbed.address, testbed.fingerprint.to_string());
    let plan = Attack { kind, attackers, server, fingerprint };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    let attack = runtime.spawn(attackers::run(plan, Arc::default()));
    let (began, visits) = (Instant::now(), Visitor::start(&testbed));
    let to = testbed.place("honest");
    let mut command = testbed.get("honest", &to);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut client = Running::start("the honest client", &mut command)?;
    let mut memory = 0;
    while client.child.try_wait()?.is_none() {
        memory = memory.max(testbed.server.usage()?.memory);
        product::pass(LOOK);
    }
    client.finish()?;
    ensure!(std::fs::read(&to)? == content, "the honest client received something else");
    let visits = visits.finish()?;
    ensure!(!attack.is_finished(), "the attackers have ended");
    runtime.shutdown_background();
    Ok(Held {
        memory: memory.saturating_sub(idle),
        lines: testbed.server.log()?.lines().count() - written,
        lasted: began.elapsed(),
        visits: (visits.all, visits.in_time),
    })
}
