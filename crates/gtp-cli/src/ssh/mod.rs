//! `gtp ssh`: a command at the far end of an ssh login, whose standard streams go over GTP.
//!
//! It is made for programs that run `ssh` to move data. ssh logs in and starts a far end, as for
//! `gtp cp`; then one GTP stream carries everything ([`frames`]). Whether GTP is to be had is
//! decided before the command is started. If it is not, or the command line asks for what is
//! ssh's alone, this process becomes plain ssh, so a command never runs twice.

pub mod far;
mod frames;
mod near;
mod words;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, ValueHint};
use gtp::{Connect, Failure, FailureKind, Host, Rate, Stream};
use tokio::time::timeout;

use crate::args::HostArgs;
use crate::cp::hello::{Ready, Want};
use crate::cp::near::FarEnd;
use crate::cp::operand::Login;
use crate::cp::{Call, WayArgs, call_by, url};
use crate::output::aside;
use crate::signals::Signals;
use crate::verbs::runtime;
use crate::verbs::stream::say_if_carried;
use frames::{CONTENT_MOST, End};
use near::Input;
use words::{Plain, Words};

/// Options of `ssh`.
#[derive(Debug, Args)]
pub struct SshArgs {
    #[command(flatten)]
    pub way: WayArgs,
    #[command(flatten)]
    pub host: HostArgs,
    /// Limit of the rate in each direction
    #[arg(long, value_name = "RATE", env = "GTP_MAX_RATE", value_parser = crate::words::rate,
        allow_hyphen_values = true)]
    pub max_rate: Option<Rate>,
    /// ssh's own options, the host, and the command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SSH ARGUMENTS",
        value_hint = ValueHint::Hostname)]
    pub words: Vec<OsString>,
}

pub fn run(args: SshArgs) -> Result<ExitCode, Failure> {
    let words = match Words::of(&args.words) {
        Ok(words) => words,
        Err(Plain::Silent) => return Ok(plain(&args)),
        Err(Plain::Because(why)) => return Ok(plain_because(&args, &why)),
    };
    let Some(login) = words.host.to_str().and_then(Login::of) else {
        return Ok(plain_because(&args, "the host is written as only ssh reads it"));
    };
    if words.line().len() > CONTENT_MOST {
        return Ok(plain_because(&args, "the command is too long"));
    }
    let runtime = runtime()?;
    let ended = runtime.block_on(over_gtp(&args, &words, &login));
    // A read of standard input that waits must not keep the process.
    runtime.shutdown_background();
    Ok(match ended {
        Ok(code) => ExitCode::from(code),
        Err(Without::Login) => ExitCode::from(FAILED),
        Err(Without::Gtp(why)) => plain_because(&args, &format!("{login}: {why}")),
    })
}

/// Why the command was not started over GTP.
enum Without {
    /// ssh could not log in, and has said why.
    Login,
    /// Plain ssh may do better.
    Gtp(String),
}

/// Runs the command over GTP and returns the exit code.
async fn over_gtp(args: &SshArgs, words: &Words, login: &Login) -> Result<u8, Without> {
    let (here, far, ready) = log_in(args, words, login).await?;
    match connect(args, login, &here, &ready).await {
        Ok(stream) => Ok(command(words, login, stream, far).await),
        Err(why) => {
            far.close().await;
            Err(Without::Gtp(why))
        }
    }
}

async fn log_in(
    args: &SshArgs,
    words: &Words,
    login: &Login,
) -> Result<(Host, FarEnd, Ready), Without> {
    let subsystem = match words.is_subsystem {
        false => None,
        true => {
            let name = String::from_utf8(words.line());
            Some(name.map_err(|_| Without::Gtp("the subsystem is not known there".into()))?)
        }
    };
    // A terminal would change what is said.
    let options = [&words.options[..], &["-T".into()]].concat();
    let call = Call { way: &args.way, host: &args.host, options: &options };
    let called = call_by(call, login, Want::Run(subsystem)).await;
    called.map_err(|failure| match failure.kind == FailureKind::Unreachable {
        true => Without::Login,
        false => Without::Gtp(failure.text),
    })
}

/// The stream, once datagrams get through both ways: nothing has been started before.
async fn connect(
    args: &SshArgs,
    login: &Login,
    here: &Host,
    ready: &Ready,
) -> Result<Stream, String> {
    let url = url(login, ready, "", true).map_err(|failure| failure.text)?;
    let mut connect = Connect::new(url).fingerprint(ready.key);
    if let Some(rate) = args.max_rate {
        connect = connect.max_rate(rate);
    }
    let opened = async {
        let stream = connect.start(here).await.map_err(|failure| failure.text)?;
        match stream.line().opened().await {
            true => Ok(stream),
            false => Err(stream.line().why().unwrap_or("the connection broke").to_owned()),
        }
    };
    let late = || format!("no connection within {} s", CONNECT_SPAN.as_secs());
    timeout(CONNECT_SPAN, opened).await.unwrap_or_else(|_| Err(late()))
}

/// Starts the command, carries its streams, and returns the exit code.
async fn command(words: &Words, login: &Login, stream: Stream, far: FarEnd) -> u8 {
    let line = stream.line().clone();
    say_if_carried(&line);
    let input = if words.has_no_input { Input::None } else { Input::Own };
    let carried = async {
        let mut signals = Signals::take().map_err(|error| error.to_string())?;
        tokio::select! {
            ended = near::carry(stream, words.start(), input) => {
                ended.map_err(|error| error.to_string())
            }
            () = signals.next() => Err("interrupted".to_owned()),
        }
    };
    let code = match carried.await {
        Ok(End::Code(code)) => code,
        // As ssh shows it.
        Ok(End::Signal(_)) => FAILED,
        Err(why) => {
            aside(format_args!("gtp: {login}: {why}"));
            line.abort();
            FAILED
        }
    };
    far.close().await;
    code
}

/// Becomes plain ssh, and says why.
fn plain_because(args: &SshArgs, why: &str) -> ExitCode {
    aside(format_args!("gtp: plain ssh runs this: {why}"));
    plain(args)
}

/// Becomes plain ssh. Returns only if that fails.
fn plain(args: &SshArgs) -> ExitCode {
    let mut program = args.way.ssh.split_whitespace();
    let name = program.next().unwrap_or("ssh");
    let error = Command::new(name).args(program).args(&args.words).exec();
    aside(format_args!("gtp: cannot run {name}: {error}"));
    ExitCode::from(FAILED)
}

/// ssh's exit code for its own failures, and for commands that a signal has ended.
const FAILED: u8 = 255;

/// Time for the far end's port to be reached and for datagrams to get through: by UDP, or after
/// some three seconds without an answer over the far end's TCP port.
const CONNECT_SPAN: Duration = Duration::from_secs(12);
