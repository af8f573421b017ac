//! The server, its daemon and the honest client, as processes over loopback.
//!
//! Each process ends with the value that stands for it. This module must not know attackers.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_net::identity::{Fingerprint, Identity};
use serde_json::Value;

use super::objects;
use crate::cases::Tools;
use crate::usage::Usage;

/// The capacity that the host states for sending.
pub(super) const CAPACITY: &str = "100Mbit";

/// Which process shares the capacity out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// The server does it itself.
    Serve,
    /// A daemon does it for the server.
    Gtpd,
}

/// A process that is killed when this value is dropped.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running server, and its daemon if there is one.
pub(super) struct House {
    tools: Tools,
    directory: tempfile::TempDir,
    server: Kept,
    _daemon: Option<Kept>,
    pub address: SocketAddr,
    pub fingerprint: Fingerprint,
    /// The key of a client that is on the server's list.
    pub friend: Identity,
}

impl House {
    pub fn open(tools: &Tools, under: Under) -> Result<House> {
        let directory = tempfile::tempdir()?;
        let place = |name: &str| directory.path().join(name);
        objects::make(&place("served"))?;
        std::fs::create_dir_all(place("config"))?;
        std::fs::create_dir_all(place("neighbour"))?;
        let key = command(tools, &place("neighbour"), "gtp").arg("id").output()?;
        ensure!(key.status.success(), "gtp id: {}", String::from_utf8_lossy(&key.stderr));
        let friend = Identity::generate();
        let listed = String::from_utf8(key.stdout)? + &format!("{}\n", friend.fingerprint());
        std::fs::write(place("config").join("authorized_keys"), listed)?;
        let mut serve = command(tools, &place("config"), "gtp");
        serve.arg("serve").arg(place("served")).args(["--public", "--listen", "127.0.0.1:0"]);
        serve.args(["--json", "--capacity-out", CAPACITY, "--daemon"]);
        let daemon = match under {
            Under::Serve => {
                serve.arg("off");
                None
            }
            Under::Gtpd => {
                serve.arg(place("gtpd.sock"));
                Some(start_daemon(tools, &place("config"), &place("gtpd.sock"))?)
            }
        };
        let log = std::fs::File::create(place("serve.log"))?;
        let mut server = Kept(serve.stdout(Stdio::piped()).stderr(log).spawn()?);
        let mut said = BufReader::new(server.0.stdout.take().context("no output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        // What the server writes for programs, a line for each session, is not its log.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let line: Value = serde_json::from_str(&line).context("serve said nothing")?;
        let word = |name: &str| line[name].as_str().context("serve did not say it");
        let (address, fingerprint) = (word("addr")?.parse()?, word("fingerprint")?.parse()?);
        let (tools, _daemon) = (tools.clone(), daemon);
        Ok(House { tools, directory, server, _daemon, address, fingerprint, friend })
    }

    /// Returns what the server uses now.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn usage(&mut self) -> Result<Usage> {
        let ended = self.server.0.try_wait()?;
        ensure!(ended.is_none(), "the server has ended: {ended:?}: {}", self.log()?);
        Usage::of(self.server.0.id())
    }

    /// Returns the server's log, which is what it has written for people.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.place("serve.log"))?)
    }

    pub fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the command by which the honest client fetches an object.
    pub fn get(&self, object: &str, to: &Path) -> Command {
        let mut command = command(&self.tools, &self.place("neighbour"), "gtp");
        command.arg("get").arg(format!("gtp://{}/{object}", self.address)).arg(to);
        command.args(["--json", "--daemon", "off", "--fingerprint"]);
        command.arg(self.fingerprint.to_string());
        command
    }
}

fn start_daemon(tools: &Tools, config: &Path, socket: &Path) -> Result<Kept> {
    let mut gtpd = command(tools, config, "gtpd");
    gtpd.arg("--socket").arg(socket).args(["--capacity-out", CAPACITY]);
    let daemon = Kept(gtpd.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let began = Instant::now();
    while gtp_share::client::sessions(socket).is_err() {
        ensure!(began.elapsed() < Duration::from_secs(10), "the daemon does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(daemon)
}

/// Returns the command for a program of the product with a configuration of its own.
fn command(tools: &Tools, config: &Path, program: &str) -> Command {
    let mut command = Command::new(tools.gtp.with_file_name(program));
    command.env("GTP_CONFIG_DIR", config).stdin(Stdio::null());
    command
}

/// The progress that a transfer reported: when it was read, the transfer's own time in seconds, and
/// the IP bytes received until then.
type Received = Arc<Mutex<Vec<(Instant, f64, f64)>>>;

/// The honest client's transfer, which goes on as long as this value lives.
pub(super) struct Neighbour {
    _process: Kept,
    received: Received,
}

impl Neighbour {
    pub fn start(house: &House) -> Result<Neighbour> {
        let mut command = house.get(objects::BIG, Path::new("/dev/null"));
        let mut process = Kept(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?);
        let lines = BufReader::new(process.0.stdout.take().context("no output")?).lines();
        let received = Received::default();
        let told = Arc::clone(&received);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
                let bytes = line["sources"][0]["wire_bytes"].as_f64();
                if let Some(progress) = line["seconds"].as_f64().zip(bytes) {
                    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                    told.push((Instant::now(), progress.0, progress.1));
                }
            }
        });
        Ok(Neighbour { _process: process, received })
    }

    /// Returns the rate of the transfer between these times, in bit/s.
    ///
    /// # Errors
    /// If it reported progress less than twice in that time.
    pub fn rate(&self, from: Instant, to: Instant) -> Result<f64> {
        let told = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let within: Vec<_> = told.iter().filter(|(at, ..)| (from..=to).contains(at)).collect();
        let (Some(first), Some(last)) = (within.first(), within.last()) else {
            anyhow::bail!("the neighbour said nothing");
        };
        ensure!(last.1 > first.1, "the neighbour said nothing new");
        Ok((last.2 - first.2) * 8.0 / (last.1 - first.1))
    }
}
