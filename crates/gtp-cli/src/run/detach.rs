//! How a pump goes into the background.
//!
//! Whoever starts it starts a process that starts the pump's keeper and ends once the pump listens.
//! So neither is a child of a program that waits for its children, in a session or group that ends
//! with a terminal or a program, or holds open what that has open.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitCode, Stdio};

use gtp::{Failure, FailureKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};

use super::program::pump_arguments;
use super::{PumpArgs, place};
use crate::verbs::other;

/// What a pump says once it listens.
pub const READY: &str = "ready";
/// What a pump in the background says when there was one already.
pub const THERE: &str = "there";

/// Starts this command again, in the background, and returns once a pump listens.
pub fn detach(pump: &PumpArgs) -> Result<ExitCode, Failure> {
    gtp_sys::descriptors::pass_none_on().map_err(other)?;
    let socket = std::path::absolute(place::socket(pump.socket.as_deref())?).map_err(other)?;
    let mut command = Command::new(place::own_program()?);
    command.args(pump_arguments(pump, &socket)?).arg("--detached");
    // It does not hold on to a terminal, to pipes or to a directory.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    leave_directory(&mut command)?;
    let mut pump = command.spawn().map_err(other)?;
    let mut said = String::new();
    if let Some(stdout) = pump.stdout.take() {
        BufReader::new(stdout).read_line(&mut said).map_err(other)?;
    }
    if [READY, THERE].contains(&said.trim()) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut why = String::new();
    if let Some(mut stderr) = pump.stderr.take() {
        stderr.read_to_string(&mut why).map_err(other)?;
    }
    let why = why.lines().last().unwrap_or("it does not say why");
    let why = why.strip_prefix("gtp: ").unwrap_or(why);
    Err(Failure::new(FailureKind::Other, format!("the pump did not start: {why}")))
}

/// Starts a command in no directory of anybody's, and where keys and lists are is what it was.
pub fn leave_directory(command: &mut Command) -> Result<(), Failure> {
    for name in ["GTP_CONFIG_DIR", "HOME"] {
        let named = std::env::var_os(name).filter(|dir| !dir.is_empty());
        if let Some(dir) = named {
            command.env(name, std::path::absolute(dir).map_err(other)?);
        }
    }
    command.current_dir("/");
    Ok(())
}

/// Makes this process one of a session of its own.
pub fn leave_session() {
    // One that leads a group already stays there.
    let _ = setsid();
}

/// Lets this process hold as many descriptors as it may.
pub fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where that is not allowed, fewer connections fit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Tells whoever started the pump how it stands; nobody need wait for that.
pub fn say(word: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    match writeln!(out, "{word}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(other(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
