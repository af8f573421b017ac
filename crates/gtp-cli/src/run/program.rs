//! `gtp run`: finds the pump, or starts one, and becomes the program.
//!
//! What cannot be spoken for is refused before anything starts. Nothing of this process is left
//! but a few variables of the environment, by which the library finds the pump.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use gtp::{Failure, FailureKind};

use super::detach;
use super::elf::{self, Program};
use super::{PumpArgs, RunArgs, endpoint, place};
use crate::output::aside;
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
    if !endpoint::is_there(&socket) {
        place::check_pump()?;
        start_pump(&args.pump, &socket)?;
    }
    let mut libraries = OsString::from(preload);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", libraries).env(place::SOCKET, socket);
    command.env("GTP_RUN_TERMS", terms(&args));
    match args.require {
        true => {
            command.env("GTP_RUN_REQUIRE", "1");
            forbid_tcp();
        }
        false => {
            command.env_remove("GTP_RUN_REQUIRE");
        }
    }
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

/// Lets this process, what it becomes and all that it starts connect nowhere over TCP: only what
/// the pump connects for them is connected, whatever they do to their environment, and whether or
/// not they can be spoken for. Where the kernel cannot do that, it is said.
fn forbid_tcp() {
    use landlock::{AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr};
    let forbidden = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessNet::ConnectTcp)
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    if forbidden.is_err() {
        let text = "gtp run: this kernel has no way (Landlock, Linux 6.7) to keep programs that \
            clear their environment, or are linked statically, from TCP";
        aside(text);
    }
}

/// Starts this user's pump, and waits until it listens.
fn start_pump(pump: &PumpArgs, socket: &Path) -> Result<(), Failure> {
    let mut command = Command::new(place::own_program()?);
    command.args(pump_arguments(pump, socket)?).arg("--detach");
    // It is itself no program that is spoken for.
    command.env_remove("LD_PRELOAD").env_remove("GTP_RUN_REQUIRE");
    command.env_remove(place::SOCKET).env_remove("GTP_RUN_TERMS");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    detach::leave_directory(&mut command)?;
    let ended = command.output().map_err(other)?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let why = said.lines().last().unwrap_or("the pump did not start");
    let why = why.strip_prefix("gtp: ").unwrap_or(why).to_owned();
    Err(Failure::new(FailureKind::Other, why))
}

/// The words by which a pump is started with these options.
pub fn pump_arguments(pump: &PumpArgs, socket: &Path) -> Result<Vec<OsString>, Failure> {
    let mut words: Vec<OsString> = vec!["pump".into()];
    let mut say = |option: &str, value: OsString| words.extend([option.into(), value]);
    say("--pump", socket.into());
    say("--pump-listen", (&pump.listen).into());
    say("--pump-idle", format!("{}ms", pump.exit_when_idle.as_millis()).into());
    let rates =
        [("--capacity-in", pump.host.capacity_in), ("--capacity-out", pump.host.capacity_out)];
    for (option, rate) in rates {
        if let Some(rate) = rate {
            say(option, format!("{}bit", rate.as_bps()).into());
        }
    }
    if let Some(keys) = &pump.authorized_keys {
        say("--authorized-keys", std::path::absolute(keys).map_err(other)?.into());
    }
    if let Some(interval) = pump.host.interval {
        say("--interval", format!("{}us", interval.as_micros()).into());
    }
    if let Some(daemon) = &pump.host.daemon {
        say("--daemon", daemon.word().map_err(other)?);
    }
    if pump.public {
        words.push("--public".into());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Verb};

    #[test]
    fn a_pump_is_started_with_every_option_that_was_given() {
        let all = [
            "--pump=/run/x/pump.sock",
            "--pump-listen=[::1]:99",
            "--public",
            "--authorized-keys=/keys",
            "--pump-idle=7s",
            "--capacity-in=7Mbit",
            "--capacity-out=8Mbit",
            "--interval=20ms",
            "--daemon=/run/x/gtpd.sock",
        ];
        let pump_of = |verb| match verb {
            Verb::Run(args) => args.pump,
            Verb::Pump(command) => command.pump,
            _ => panic!("another verb"),
        };
        for given in [&all[..], &["--daemon=off"], &["--daemon=start"], &["--daemon=auto"], &[]] {
            let words = ["gtp", "run"].iter().chain(given).chain(&["true"]);
            let asked = pump_of(Cli::try_parse_from(words).unwrap().verb);
            let socket = Path::new("/run/x/pump.sock");
            let words = pump_arguments(&asked, socket).unwrap();
            let words = std::iter::once("gtp".into()).chain(words);
            let told = pump_of(Cli::try_parse_from(words).unwrap().verb);
            let asked = PumpArgs { socket: Some(socket.to_owned()), ..asked };
            assert_eq!(format!("{told:?}"), format!("{asked:?}"));
        }
    }
}
