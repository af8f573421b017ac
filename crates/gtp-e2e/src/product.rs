//! The product's programs as processes of a case, and the time that a case lets pass.
//!
//! Each program gets a configuration directory of its own, so that nothing on the machine changes
//! what it does. The module knows how programs are started, not what a case measures.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cases::Tools;
use crate::running::Running;
use crate::usage::{Usage, processor_seconds};

/// How long a daemon may take until it answers, also on a machine with a hundred other processes.
const ANSWERS: Duration = Duration::from_secs(60);
/// The time between two questions to a daemon that does not answer yet.
const ASKED_AGAIN: Duration = Duration::from_millis(10);

/// The command that starts a program of the product with the configuration in a directory.
pub(crate) fn program(tools: &Tools, config: &Path, name: &str) -> Command {
    let mut command = Command::new(tools.gtp.with_file_name(name));
    command.env("GTP_CONFIG_DIR", config).stdin(Stdio::null());
    command
}

/// A `gtp serve` at work, which ends with this value.
pub(crate) struct Server {
    process: Running,
    log: PathBuf,
    /// The address at which it listens.
    pub(crate) address: String,
    /// The fingerprint of its key.
    pub(crate) fingerprint: String,
}

impl Server {
    /// Starts a server by a command with `--json`, and waits until it listens. What it writes for
    /// people goes to the file at `log`.
    ///
    /// # Errors
    /// If it cannot be started, or does not say that it listens.
    pub(crate) fn start(mut serve: Command, log: PathBuf) -> Result<Server> {
        serve.stderr(File::create(&log)?);
        Server::start_logged(serve, log)
    }

    /// The same, where the command sees to it that the file gets what it writes for people.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(crate) fn start_logged(mut serve: Command, log: PathBuf) -> Result<Server> {
        serve.stdout(Stdio::piped());
        let mut process = Running::start("the server", &mut serve)?;
        let mut said = BufReader::new(process.child.stdout.take().context("no output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        // It tells programs of every session; somebody must read that.
        std::thread::spawn(move || io::copy(&mut said, &mut io::sink()));
        let line: Value = serde_json::from_str(&line).context("serve said nothing")?;
        let word = |name: &str| line[name].as_str().context("serve did not say it").map(Into::into);
        let (address, fingerprint) = (word("addr")?, word("fingerprint")?);
        Ok(Server { process, log, address, fingerprint })
    }

    /// What it uses now.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn usage(&mut self) -> Result<Usage> {
        let ended = self.process.child.try_wait()?;
        ensure!(ended.is_none(), "the server has ended: {ended:?}: {}", self.log()?);
        Usage::of(self.process.child.id())
    }

    /// Sends it a signal, by its name.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let id = self.process.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status()?;
        ensure!(sent.success(), "the server has ended: {}", self.log()?);
        Ok(())
    }

    /// Waits until it has ended by itself, and well.
    ///
    /// # Errors
    /// If it has not ended well.
    pub(crate) fn finish(self) -> Result<()> {
        self.process.finish()
    }

    /// The processor time that it has taken, in seconds.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn processor_seconds(&self) -> Result<f64> {
        processor_seconds(self.process.child.id())
    }

    /// All that it has written for people.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }
}

/// Starts a daemon with these options and waits until it answers.
///
/// # Errors
/// If it cannot be started, or does not answer within a minute.
pub(crate) fn start_daemon(
    tools: &Tools,
    config: &Path,
    socket: &Path,
    options: &[&str],
) -> Result<Running> {
    let mut gtpd = program(tools, config, "gtpd");
    gtpd.arg("--socket").arg(socket).args(options).stdout(Stdio::null()).stderr(Stdio::null());
    let daemon = Running::start("the daemon", &mut gtpd)?;
    await_daemon(socket)?;
    Ok(daemon)
}

/// Waits until the daemon at a socket answers.
///
/// # Errors
/// If it does not within a minute.
pub(crate) fn await_daemon(socket: &Path) -> Result<()> {
    let began = Instant::now();
    while gtp_share::client::sessions(socket).is_err() {
        ensure!(began.elapsed() < ANSWERS, "the daemon at {} does not answer", socket.display());
        pass(ASKED_AGAIN);
    }
    Ok(())
}

/// Lets a stated time pass. A measurement lasts for a stated time, and what a process uses is read
/// at stated intervals; no event ends either.
pub(crate) fn pass(span: Duration) {
    std::thread::sleep(span);
}

/// What the environment says of a number, if anything.
///
/// # Errors
/// If it says something that is no such number.
pub(crate) fn variable<T: std::str::FromStr>(name: &str) -> Result<Option<T>> {
    let Ok(said) = std::env::var(name) else { return Ok(None) };
    let number = said.parse().ok().with_context(|| format!("{name}={said} is not a number"))?;
    Ok(Some(number))
}
