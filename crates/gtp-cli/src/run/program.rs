//! `gtp run`: finds the pump, or starts one, and becomes the program.
//!
//! What cannot be spoken for is refused before anything starts. Nothing of this process is left
//! but a few variables of the environment, by which the library finds the pump.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use gtp::{Failure, FailureKind};

use super::elf::{self, Program};
use super::{RunArgs, place, talk};
use crate::verbs::other;

/// Runs a program; comes back only with a failure.
pub fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Failure::new(FailureKind::Usage, "a program is needed"));
    };
    let path = find(program)?;
    check(&path, 0)?;
    let preload = place::preload(args.preload.as_deref())?;
    if preload.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        let text =
            format!("{}: the loader takes no path with a space or a colon", preload.display());
        return Err(Failure::new(FailureKind::Usage, text));
    }
    let socket = place::socket(args.pump.socket.as_deref())?;
    let socket = std::path::absolute(socket).map_err(other)?;
    if !talk::is_there(&socket) {
        start_pump(&args, &socket)?;
    }
    let mut libraries = OsString::from(preload);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", libraries).env("GTP_RUN_SOCKET", socket);
    command.env("GTP_RUN_TERMS", terms(&args));
    match args.require {
        true => command.env("GTP_RUN_REQUIRE", "1"),
        false => command.env_remove("GTP_RUN_REQUIRE"),
    };
    Err(other(command.exec()))
}

/// What the program's connections ask for, in the pump's words.
fn terms(args: &RunArgs) -> String {
    let mut words = vec![format!("weight={}", args.weight)];
    words.extend(args.max_rate.map(|rate| format!("max_rate={}", rate.as_bps())));
    words.extend(args.trust.fingerprint.iter().map(|key| format!("key={key}")));
    words.extend(args.trust.accept_new.then(|| "accept_new".to_owned()));
    words.join(" ")
}

/// The file of a program, found as a shell finds it.
fn find(program: &OsStr) -> Result<PathBuf, Failure> {
    let missing = || {
        let text = format!("{}: no such program", program.to_string_lossy());
        Failure::new(FailureKind::Missing, text)
    };
    let named = Path::new(program);
    if named.components().count() > 1 || named.is_absolute() {
        return named.is_file().then(|| named.to_owned()).ok_or_else(missing);
    }
    let places = std::env::var_os("PATH").unwrap_or_default();
    let runs = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let mut found = std::env::split_paths(&places).map(|dir| dir.join(program));
    found.find(runs).ok_or_else(missing)
}

/// Scripts of scripts that are looked through.
const DEPTH: usize = 4;

/// Whether a program can be spoken for; a script's interpreter is what counts.
fn check(path: &Path, depth: usize) -> Result<(), Failure> {
    let refused = |why: &str| {
        let text = format!("{}: {why}; gtp run cannot speak for it", path.display());
        Err(Failure::new(FailureKind::Usage, text))
    };
    let mut head = Vec::new();
    let file = File::open(path).map_err(other)?;
    let mode = file.metadata().map_err(other)?.permissions().mode();
    file.take(elf::HEAD as u64).read_to_end(&mut head).map_err(other)?;
    let raised = rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64]).is_ok();
    if mode & 0o6000 != 0 || raised {
        return refused("it runs with another's rights, so nothing may be put before its library");
    }
    match elf::judge(&head) {
        Program::Script(interpreter) if depth < DEPTH => check(Path::new(&interpreter), depth + 1),
        Program::Static => refused("it is linked statically"),
        Program::Bypasses => {
            refused("it makes its system calls itself and not through the C library")
        }
        Program::Unknown => refused("it is no program for this machine's own C library"),
        Program::Loaded | Program::Script(_) => Ok(()),
    }
}

/// Starts this user's pump, and waits until it listens.
fn start_pump(args: &RunArgs, socket: &Path) -> Result<(), Failure> {
    let pump = &args.pump;
    let mut command = Command::new(std::env::current_exe().map_err(other)?);
    command.arg("pump").arg("--pump").arg(socket).arg("--pump-listen").arg(&pump.listen);
    command.arg("--pump-idle").arg(format!("{}ms", pump.exit_when_idle.as_millis()));
    let rates =
        [("--capacity-in", pump.host.capacity_in), ("--capacity-out", pump.host.capacity_out)];
    for (option, rate) in rates {
        if let Some(rate) = rate {
            command.arg(option).arg(format!("{}bit", rate.as_bps()));
        }
    }
    if pump.public {
        command.arg("--public");
    }
    if let Some(keys) = &pump.authorized_keys {
        command.arg("--authorized-keys").arg(std::path::absolute(keys).map_err(other)?);
    }
    if let Some(interval) = pump.host.interval {
        command.arg("--interval").arg(format!("{}us", interval.as_micros()));
    }
    // It is itself no program that is spoken for.
    command.env_remove("LD_PRELOAD").env_remove("GTP_RUN_REQUIRE");
    command.env_remove("GTP_RUN_SOCKET").env_remove("GTP_RUN_TERMS");
    // It outlives the program, and what ends the program's group does not end it.
    command.process_group(0).stdin(Stdio::null()).current_dir("/");
    // Nor does it hold on to the program's terminal or pipes.
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(other)?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut said).map_err(other)?;
    }
    if said.trim() == "ready" {
        return Ok(());
    }
    let mut why = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut why).map_err(other)?;
    }
    let why = why.lines().last().unwrap_or("it does not say why").to_owned();
    Err(Failure::new(FailureKind::Other, format!("the pump did not start: {why}")))
}
