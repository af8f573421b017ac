//! The five sources: `gtp serve` processes of this same program, each with a key of its own.
//!
//! They listen on free ports of the loopback and say which in their first line. They end with
//! the value that holds them, however that comes to its end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gtp::{Failure, FailureKind, Fingerprint};
use serde::Deserialize;

use super::files::Workspace;
use super::plan::{Each, SESSIONS, SOURCE};

/// A source that listens.
#[derive(Debug)]
pub struct Source {
    child: Child,
    /// Where, TCP and UDP.
    pub address: SocketAddr,
    /// Its key.
    pub fingerprint: Fingerprint,
}

/// All of them.
pub type Sources = Each<Source>;

/// Starts all sources and waits until they listen.
///
/// # Errors
/// When a process cannot be started or does not listen in time; what it said is in the text.
pub fn start(workspace: &Workspace) -> Result<Sources, Failure> {
    // All are started before the first is waited for.
    let mut starting = Vec::new();
    for source in 0..SESSIONS {
        starting.push(Starting::new(workspace, source)?);
    }
    let mut sources = Vec::new();
    for (source, starting) in starting.into_iter().enumerate() {
        let listening = starting.listening();
        let said = fs::read_to_string(workspace.home(source).join(SAID)).unwrap_or_default();
        let failed = |why: String| other(format!("source {source} does not serve: {why}; {said}"));
        sources.push(listening.map_err(failed)?);
    }
    sources.try_into().map_err(|_| other("not all sources serve".into()))
}

/// A process that was started and has not said yet where it listens.
struct Starting {
    child: Option<Child>,
    first_line: mpsc::Receiver<String>,
}

/// What a server says first.
#[derive(Deserialize)]
struct Listening {
    addr: SocketAddr,
    fingerprint: String,
}

impl Starting {
    fn new(workspace: &Workspace, source: usize) -> Result<Starting, Failure> {
        let home = workspace.home(source);
        let system = |error: std::io::Error| other(format!("cannot start a server: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(system)?);
        // What the user set for other transfers is not meant for these.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GTP_") {
                command.env_remove(name);
            }
        }
        command
            .arg("serve")
            .arg(workspace.export(source))
            .args(["--listen", "127.0.0.1:0", "--public", "--json", "--capacity-out"])
            .arg(format!("{}bit", SOURCE.as_bps()))
            .env("GTP_CONFIG_DIR", &home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(home.join(SAID)).map_err(system)?);
        let mut child = command.spawn().map_err(system)?;
        let out = child.stdout.take();
        let (line, first_line) = mpsc::channel();
        let starting = Starting { child: Some(child), first_line };
        if let Some(out) = out {
            let reader = thread::Builder::new().name("gtp-demo-source".into());
            reader.spawn(move || read_lines(out, &line)).map_err(system)?;
        }
        Ok(starting)
    }

    /// Waits for the first line.
    fn listening(mut self) -> Result<Source, String> {
        let line = self.first_line.recv_timeout(START_SPAN).map_err(|why| why.to_string())?;
        let listening: Listening =
            serde_json::from_str(&line).map_err(|error| format!("{line:?}: {error}"))?;
        let fingerprint =
            listening.fingerprint.parse().map_err(|_| format!("{line:?}: no fingerprint"))?;
        let child = self.child.take().ok_or("it is gone")?;
        Ok(Source { child, address: listening.addr, fingerprint })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end(child);
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a process that has nothing to lose, and waits until it is gone.
fn end(child: &mut Child) {
    // Either it is gone already, or it is now.
    let _ = child.kill();
    let _ = child.wait();
}

/// Hands over the first line; the rest is read so that the process can go on writing.
fn read_lines(out: ChildStdout, first: &mpsc::Sender<String>) {
    for line in BufReader::new(out).lines() {
        let Ok(line) = line else { return };
        // Only the first one is waited for.
        let _ = first.send(line);
    }
}

fn other(text: String) -> Failure {
    Failure::new(FailureKind::Other, text)
}

/// The file in which a server's words for people are kept.
const SAID: &str = "said";

/// How long a server may take to listen; a busy machine is slow.
const START_SPAN: Duration = Duration::from_secs(20);
