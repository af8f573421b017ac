//! The server, its daemon and the honest client, as processes over loopback.
//!
//! Each process ends with the value that stands for it. This module must not know attackers.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use gtp_net::identity::{Fingerprint, Identity};
use serde_json::Value;

use super::objects;
use crate::cases::Tools;
use crate::product::{Server, program, start_daemon};
use crate::running::Running;

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

/// A running server, and its daemon if there is one.
pub(super) struct Testbed {
    tools: Tools,
    directory: tempfile::TempDir,
    pub server: Server,
    _daemon: Option<Running>,
    pub address: SocketAddr,
    pub fingerprint: Fingerprint,
    /// The key of a client that is on the server's list.
    pub friend: Identity,
}

impl Testbed {
    pub fn open(tools: &Tools, under: Under) -> Result<Testbed> {
        let directory = tempfile::tempdir()?;
        let place = |name: &str| directory.path().join(name);
        objects::make(&place("served"))?;
        std::fs::create_dir_all(place("config"))?;
        std::fs::create_dir_all(place("neighbour"))?;
        let key = program(tools, &place("neighbour"), "gtp").arg("id").output()?;
        ensure!(key.status.success(), "gtp id: {}", String::from_utf8_lossy(&key.stderr));
        let friend = Identity::generate();
        let listed = String::from_utf8(key.stdout)? + &format!("{}\n", friend.fingerprint());
        std::fs::write(place("config").join("authorized_keys"), listed)?;
        let mut serve = program(tools, &place("config"), "gtp");
        serve.arg("serve").arg(place("served")).args(["--public", "--listen", "127.0.0.1:0"]);
        serve.args(["--json", "--capacity-out", CAPACITY, "--daemon"]);
        let daemon = match under {
            Under::Serve => {
                serve.arg("off");
                None
            }
            Under::Gtpd => {
                serve.arg(place("gtpd.sock"));
                let (config, socket) = (place("config"), place("gtpd.sock"));
                Some(start_daemon(tools, &config, &socket, &["--capacity-out", CAPACITY])?)
            }
        };
        let server = Server::start(serve, place("serve.log"))?;
        let (address, fingerprint) = (server.address.parse()?, server.fingerprint.parse()?);
        let (tools, _daemon) = (tools.clone(), daemon);
        Ok(Testbed { tools, directory, server, _daemon, address, fingerprint, friend })
    }

    pub fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the command by which the honest client fetches an object.
    pub fn get(&self, object: &str, to: &Path) -> Command {
        let mut command = program(&self.tools, &self.place("neighbour"), "gtp");
        command.arg("get").arg(format!("gtp://{}/{object}", self.address)).arg(to);
        command.args(["--json", "--daemon", "off", "--fingerprint"]);
        command.arg(self.fingerprint.to_string());
        command
    }
}

/// The progress that a transfer reported: when it was read, the transfer's own time in seconds, and
/// the IP bytes received until then.
type Received = Arc<Mutex<Vec<(Instant, f64, f64)>>>;

/// The honest client's transfer, which goes on as long as this value lives.
pub(super) struct Neighbour {
    _process: Running,
    received: Received,
}

impl Neighbour {
    pub fn start(testbed: &Testbed) -> Result<Neighbour> {
        let mut command = testbed.get(objects::BIG, Path::new("/dev/null"));
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Running::start("the neighbour", &mut command)?;
        let lines = BufReader::new(process.child.stdout.take().context("no output")?).lines();
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
