//! A server that is left running while clients come and go and faults are drawn.
//!
//! One `gtp serve` and one daemon run on loopback. Clients drawn from a seed fetch and send files,
//! are killed half-way, say garbage, or hold a connection and say nothing; the daemon is killed
//! and started again. Every honest transfer must end well with the right content. The server's
//! memory is read once a second and must not grow from the second quarter of the run to the last.
//! Its descriptors and threads must be back at their first values once all clients have gone.

mod clients;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gtp_link::Rng;
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::product::{self, Server, program, variable};
use crate::running::Running;
use crate::usage::Usage;
use clients::Client;

/// Clients that are there at a time unless `GTP_CHURN_CLIENTS` says otherwise.
const CLIENTS: usize = 100;
/// Keys that clients have: a server bounds the sessions of one.
const KEYS: usize = 5;
/// More clients than this at a time would send under one name.
const CLIENTS_MOST: usize = 500;
/// Between the beginnings of two clients: with the time that a client stays, about a hundred are
/// there at a time. More would measure how fast the machine starts processes.
const BEGINS: Duration = Duration::from_millis(180);
/// Between two looks at the clients.
const LOOK: Duration = Duration::from_millis(50);
/// Between two readings of what the server uses.
const READING: Duration = Duration::from_secs(1);
/// Between two deaths of the daemon.
const DAEMON_LIVES: Duration = Duration::from_secs(23);
/// How long the server may take to give everything back after the last client has gone: twice the
/// time after which it ends a session that has not said hello.
const SETTLES: Duration = Duration::from_secs(20);
/// How long the run lasts unless `GTP_CHURN_MINUTES` says otherwise: its first quarter is longer
/// than the slowest transfer, so the number of clients has settled when its second begins.
const MINUTES: f64 = 12.0;
/// What memory may differ by between two parts of the run: a session's buffers, and what an
/// allocator keeps of them.
const MEMORY_NOISE: u64 = 16 << 20;

/// Everything that runs and what it runs on.
pub(crate) struct World {
    tools: Tools,
    directory: tempfile::TempDir,
    server: Server,
    daemon: Option<Running>,
}

/// Runs the case once; one row.
///
/// # Errors
/// If a process cannot be started or the server ends before it is told to.
pub fn run(tools: &Tools) -> Result<Value> {
    let minutes = variable("GTP_CHURN_MINUTES")?.unwrap_or(MINUTES);
    let seed = variable("GTP_CHURN_SEED")?.unwrap_or(1);
    let most = variable("GTP_CHURN_CLIENTS")?.unwrap_or(CLIENTS);
    ensure!((1..=CLIENTS_MOST).contains(&most), "GTP_CHURN_CLIENTS: from 1 to {CLIENTS_MOST}");
    let mut world = World::open(tools)?;
    let mut missed = Vec::new();
    let lasts = Duration::from_secs_f64(minutes * 60.0);
    let ended = world.churn(lasts, most, seed, &mut missed)?;
    let Ended { started, readings, idle } = ended;
    let rested = world.rest(&idle)?;
    judge(&readings, &idle, &rested, &mut missed);
    let quarters: Vec<Value> = quarters(&readings).iter().map(|usage| usage.to_json()).collect();
    Ok(json!({"case": "churn", "seed": seed, "minutes": minutes, "at_once": most,
        "clients": started,
        "idle_before": idle.to_json(), "idle_after": rested.to_json(),
        "median_of_quarters": quarters, "missed": missed}))
}

/// What a run leaves.
struct Ended {
    started: usize,
    /// Once a second.
    readings: Vec<Usage>,
    /// Before the first client.
    idle: Usage,
}

impl World {
    fn open(tools: &Tools) -> Result<World> {
        let directory = tempfile::tempdir()?;
        let place = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(place("served"))?;
        std::fs::create_dir_all(place("config"))?;
        clients::make_objects(directory.path())?;
        let command = |name: &str| program(tools, &place("config"), name);
        let mut listed = Vec::new();
        for number in 0..KEYS {
            let key =
                program(tools, &place(&format!("client-key{number}")), "gtp").arg("id").output()?;
            ensure!(key.status.success(), "gtp id: {}", String::from_utf8_lossy(&key.stderr));
            listed.extend(key.stdout);
        }
        std::fs::write(place("config").join("authorized_keys"), listed)?;
        let mut serve = command("gtp");
        serve.arg("serve").arg(place("served")).args(["--public", "--writable", "--json"]);
        serve.args(["--listen", "127.0.0.1:0", "--daemon"]).arg(place("gtpd.sock"));
        // A named daemon has to be there first.
        let daemon = Some(daemon(tools, directory.path())?);
        let server = Server::start(serve, place("serve.log"))?;
        Ok(World { tools: tools.clone(), directory, server, daemon })
    }

    fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command of the client of this number, by the key that it has.
    fn gtp(&self, client: usize) -> Command {
        program(&self.tools, &self.place(&format!("client-key{}", client % KEYS)), "gtp")
    }

    /// The server's first session, after which it has the threads that work on files.
    fn warm_up(&mut self) -> Result<()> {
        let place = self.place("first");
        let mut first = self.gtp(0);
        first.arg("get").arg(clients::url(self, "small")).arg(place);
        first.args(["--fingerprint", &self.server.fingerprint, "--daemon", "off"]);
        let output = first.output()?;
        ensure!(output.status.success(), "get: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// At most so many clients at a time come and go for so long; what went wrong is added to
    /// `missed`.
    fn churn(
        &mut self,
        lasts: Duration,
        most: usize,
        seed: u64,
        missed: &mut Vec<String>,
    ) -> Result<Ended> {
        let mut rng = Rng::new(seed);
        self.warm_up()?;
        let idle = self.server.usage()?;
        let began = Instant::now();
        let (mut read, mut daemon_came, mut begun) = (began, began, began);
        let (mut present, mut started, mut readings) = (Vec::<Client>::new(), 0, Vec::new());
        while began.elapsed() < lasts || !present.is_empty() {
            let is_due = begun.elapsed() >= BEGINS;
            if is_due && began.elapsed() < lasts && present.len() < most {
                begun = Instant::now();
                present.push(Client::draw(self, started, &mut rng)?);
                started += 1;
            }
            if read.elapsed() >= READING && began.elapsed() < lasts {
                read = Instant::now();
                readings.push(self.server.usage()?);
            }
            if daemon_came.elapsed() >= DAEMON_LIVES {
                daemon_came = Instant::now();
                self.replace_daemon()?;
            }
            for client in present.extract_if(.., Client::is_over) {
                missed.extend(client.verdict(self)?);
            }
            product::pass(LOOK);
        }
        Ok(Ended { started, readings, idle })
    }

    fn replace_daemon(&mut self) -> Result<()> {
        self.daemon = None; // The one before must be gone.
        self.daemon = Some(daemon(&self.tools, self.directory.path())?);
        Ok(())
    }

    /// Waits until the server holds no more descriptors and threads than before its first client,
    /// or until it has had its time.
    fn rest(&mut self, idle: &Usage) -> Result<Usage> {
        let began = Instant::now();
        loop {
            let usage = self.server.usage()?;
            if usage.holds_no_more_than(idle) || began.elapsed() > SETTLES {
                return Ok(usage);
            }
            product::pass(LOOK);
        }
    }
}

fn daemon(tools: &Tools, directory: &Path) -> Result<Running> {
    let socket = directory.join("gtpd.sock");
    let options = ["--capacity-in", "1Gbit", "--capacity-out", "1Gbit"];
    product::start_daemon(tools, &directory.join("config"), &socket, &options)
}

/// The medians of each quarter of the run; nothing of a run without four readings.
fn quarters(readings: &[Usage]) -> Vec<Usage> {
    let length = readings.len() / 4;
    if length == 0 {
        return Vec::new();
    }
    readings.chunks_exact(length).take(4).filter_map(Usage::median).collect()
}

/// What grew that should not have.
fn judge(readings: &[Usage], idle: &Usage, rested: &Usage, missed: &mut Vec<String>) {
    if !rested.holds_no_more_than(idle) {
        missed.push(format!("after the last client {rested}, before the first {idle}"));
    }
    match quarters(readings)[..] {
        [_, second, _, last] => {
            if last.memory > second.memory + second.memory / 10 + MEMORY_NOISE {
                missed.push(format!(
                    "memory grew: {second} in the second quarter, {last} in the last"
                ));
            }
        }
        _ => missed.push("too short to be judged".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(memory_mib: u64, descriptors: usize) -> Usage {
        Usage { memory: memory_mib << 20, descriptors, threads: 8 }
    }

    fn verdict(readings: &[Usage], rested: Usage) -> Vec<String> {
        let mut missed = Vec::new();
        judge(readings, &used(10, 12), &rested, &mut missed);
        missed
    }

    #[test]
    fn a_server_that_grows_is_told_from_one_that_warms_up() {
        let warms: Vec<Usage> = (0..400).map(|s| used(50 + s.min(60), 40)).collect();
        assert_eq!(verdict(&warms, used(40, 12)), Vec::<String>::new());
        let leaks: Vec<Usage> = (0..400).map(|s| used(50 + s / 4, 40)).collect();
        assert_eq!(verdict(&leaks, used(40, 12)).len(), 1);
    }

    #[test]
    fn a_descriptor_that_stays_open_is_missed_and_so_is_a_run_too_short_to_tell() {
        let flat = vec![used(50, 40); 40];
        assert_eq!(verdict(&flat, used(40, 13)).len(), 1);
        assert_eq!(verdict(&flat[..3], used(40, 12)), ["too short to be judged"]);
    }
}
