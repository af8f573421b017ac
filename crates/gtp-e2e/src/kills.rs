//! The machine's daemon killed again and again under fifty transfers.
//!
//! Fifty processes fetch through one access link that carries four times what their daemon may
//! share out, so nothing but grants holds them back. The daemon is killed, is away for a while, and
//! comes back, a hundred times. What counts is that no transfer fails, that what leaves the link
//! stays within the capacity in every second, and how soon all are granted equal parts again.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::equal;
use crate::lab::{Branch, Lab, Shape, source_address};
use crate::record::{Record, route};
use crate::running::Running;

/// Hosts that are fetched from, and processes that fetch.
const SOURCES: usize = 5;
const TRANSFERS: usize = 50;
/// How often the daemon is killed.
const KILLS: usize = 100;
/// What it shares out, in bit/s, and what the link carries.
const CAPACITY: f64 = 50e6;
const ACCESS: &str = "200Mbit";
/// Bytes of each transfer: more than it gets while daemons are killed.
const OBJECT: u64 = 30 << 20;
/// How long the daemon is away, in turn, in milliseconds: from no time to more than a lease lasts.
const AWAY_MS: [u64; 5] = [0, 30, 120, 400, 1_500];
/// The most that may leave the link in any second, of the capacity, statuses and all.
const MOST: f64 = 1.01;
/// Looks at the emulator are 10 ms apart; if two are further apart than this, in seconds, it stood
/// still, and what had been sent meanwhile leaves the link later. It has left after `SETTLES`.
pub(crate) const APART: f64 = 0.02;
pub(crate) const SETTLES: f64 = 0.1;
/// All are granted equal parts again within so many seconds of a daemon's start.
const FAIR_AGAIN: f64 = 1.0;
/// Between being fair and the next kill.
const REST: Duration = Duration::from_millis(500);
/// Before the first kill.
const BEFORE: Duration = Duration::from_secs(5);

/// A daemon on the sink's host.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    fn start(lab: &Lab, gtpd: &Path, capacity: f64) -> Result<Daemon> {
        let socket = lab.dir.path().join("gtpd.sock");
        let mut command = lab.command("sink", gtpd);
        command.arg("--socket").arg(&socket);
        command.arg("--capacity-in").arg(format!("{capacity:.0}bit")).stdin(Stdio::null());
        Ok(Daemon { child: command.spawn()?, socket })
    }

    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until all are granted an equal part of `capacity`; the seconds that it took.
    fn fair(&self, capacity: f64) -> Result<f64> {
        let each = capacity / TRANSFERS as f64;
        equal::wait((&self.socket, Instant::now()), TRANSFERS, each, || Ok(()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may be dead.
        let _ = self.kill();
    }
}

/// Runs the case; one row.
///
/// # Errors
/// If the network or a process cannot be started, a transfer fails, or all are never fair.
pub fn run(tools: &Tools) -> Result<Value> {
    let gtpd = tools.gtp.with_file_name("gtpd");
    let shape = Shape {
        access: (ACCESS.into(), "100ms".into()),
        middle: None,
        branches: vec![Branch::rtt(20.0); SOURCES],
    };
    let mut lab = Lab::open(&shape, &tools.gtp)?;
    let served = lab.dir.path().join("data");
    std::fs::create_dir(&served)?;
    std::fs::File::create(served.join("big"))?.set_len(OBJECT)?;
    let serve = |i| lab.serve(&format!("src{i}"), &served, &["--public", "--daemon", "off"]);
    let prints: Vec<String> = (0..SOURCES).map(serve).collect::<Result<_>>()?;
    let mut daemon = Daemon::start(&lab, &gtpd, CAPACITY)?;
    let mut transfers = Vec::new();
    for number in 0..TRANSFERS {
        transfers.push(fetch(&lab, tools, &prints, number, &daemon.socket)?);
    }
    daemon.fair(CAPACITY).with_context(|| ended(&lab, &mut transfers))?;
    let began = lab.now();
    std::thread::sleep(BEFORE);
    let from = lab.now();
    let mut back = Vec::new();
    for number in 0..KILLS {
        std::thread::sleep(REST);
        daemon.kill()?;
        std::thread::sleep(Duration::from_millis(AWAY_MS[number % AWAY_MS.len()]));
        daemon = Daemon::start(&lab, &gtpd, CAPACITY)?;
        let again = daemon.fair(CAPACITY);
        back.push(again.with_context(|| ended(&lab, &mut transfers))?);
    }
    std::thread::sleep(REST);
    let to = lab.now();
    for transfer in &mut transfers {
        ensure!(transfer.child.try_wait()?.is_none(), "a transfer ended before the daemons");
    }
    // The rest need not take as long.
    daemon.kill()?;
    daemon = Daemon::start(&lab, &gtpd, 4.0 * CAPACITY)?;
    for (number, transfer) in transfers.into_iter().enumerate() {
        let said = || std::fs::read_to_string(log(&lab, number)).unwrap_or_default();
        transfer.finish().with_context(said)?;
    }
    drop(daemon);
    row(&Record(lab.close()?), (began, from, to), back)
}

/// What those transfers said that have ended already.
fn ended(lab: &Lab, transfers: &mut [Running]) -> String {
    let over = |(number, transfer): (usize, &mut Running)| {
        let status = transfer.child.try_wait().ok()??;
        let said = std::fs::read_to_string(log(lab, number)).unwrap_or_default();
        Some(format!("transfer {number}: {status}: {said}"))
    };
    let all: Vec<String> = transfers.iter_mut().enumerate().filter_map(over).collect();
    if all.is_empty() { "all transfers are there".into() } else { all.join("; ") }
}

fn log(lab: &Lab, number: usize) -> PathBuf {
    lab.dir.path().join(format!("fetch{number}.log"))
}

fn fetch(
    lab: &Lab,
    tools: &Tools,
    prints: &[String],
    number: usize,
    daemon: &Path,
) -> Result<Running> {
    let source = number % SOURCES;
    let mut command = lab.command("sink", &tools.gtp);
    command.arg("get").arg(format!("gtp://{}/big", source_address(source))).arg("-");
    command.args(["--fingerprint", &prints[source], "--daemon"]).arg(daemon);
    let log = std::fs::File::create(log(lab, number))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Running::start(&format!("transfer {number}"), &mut command)
}

fn row(record: &Record, (began, from, to): (f64, f64, f64), mut back: Vec<f64>) -> Result<Value> {
    let sum = |from, to| (0..SOURCES).map(|i| record.rate(&route(i), from, to)).sum::<f64>();
    let seconds = |from: f64, to: f64| {
        (0..((to - from - 1.0) / 0.01) as usize).map(move |at| from + at as f64 * 0.01)
    };
    let most = |begins: &mut dyn Iterator<Item = f64>| {
        begins
            .map(|begin| (sum(begin, begin + 1.0), begin))
            .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
    };
    let (highest, at) = most(&mut seconds(from, to));
    let punctual = |begin: &f64| record.punctual(begin - SETTLES, begin + 1.0, APART);
    let counted: Vec<f64> = seconds(from, to).filter(punctual).collect();
    let highest_punctual =
        (!counted.is_empty()).then(|| most(&mut counted.iter().copied()).0 / CAPACITY);
    let slowest = |turn: usize| back.iter().skip(turn).step_by(AWAY_MS.len()).copied();
    let by_absence: Vec<Value> = (0..AWAY_MS.len())
        .map(|turn| json!([AWAY_MS[turn], slowest(turn).fold(0.0, f64::max)]))
        .collect();
    back.sort_by(f64::total_cmp);
    let last = back.last().copied().context("no kill")?;
    let before = most(&mut seconds(began, from)).0;
    let mut missed = Vec::new();
    for (when, most) in [("before the first kill", before), ("during the kills", highest)] {
        if most > MOST * CAPACITY {
            missed.push(format!("{:.4} of the capacity in a second {when}", most / CAPACITY));
        }
    }
    if last > FAIR_AGAIN {
        missed.push(format!("{last:.2} s until all were granted equal parts again"));
    }
    Ok(json!({
        "case": "daemon-killed",
        "kills": back.len(),
        "transfers": TRANSFERS,
        "seconds": to - from,
        "most_in_a_second_of_capacity": highest / CAPACITY,
        "most_in_a_second_at_s": at - from,
        "most_in_a_punctual_second_of_capacity": highest_punctual,
        "punctual_part": counted.len() as f64 / seconds(from, to).count() as f64,
        "most_before_of_capacity": before / CAPACITY,
        "mean_before_of_capacity": sum(began, from) / CAPACITY,
        "mean_of_capacity": sum(from, to) / CAPACITY,
        "fair_again_s_median": gtp_lab::series::median(&back),
        "fair_again_s_95th": back[back.len() * 95 / 100],
        "fair_again_s_longest": last,
        "fair_again_s_longest_by_ms_away": by_absence,
        "emulator_late_s_most": record.lateness(to),
        "missed": missed,
    }))
}
