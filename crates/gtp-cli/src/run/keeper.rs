//! Who keeps a pump: starts it, and starts it again where it is killed or breaks.
//!
//! What must outlive a pump is held here: the door, at which programs wait meanwhile and are
//! refused by nobody, its lock, and what remains. A keeper has no keys, no sessions and no network,
//! and does nothing but wait; who tells it to end tells its pump. Programs themselves start no
//! pump: they may be beneath a ban, another root, other limits or another user, and have children
//! that they do not know of.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use gtp::Failure;
use gtp_alloc::Span;
use gtp_sys::Clock;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::door::Door;
use super::remains::Remains;
use super::{PumpArgs, detach, place};
use crate::signals::Signals;
use crate::verbs::other;

/// A pump that ends sooner than this has done nothing.
const QUICK: Span = Span::from_millis(1_000);
/// So many in a row are the last: something is wrong that another pump does not mend.
const QUICK_MOST: u32 = 5;

/// What a pump is started with.
struct Keeper {
    door: OwnedFd,
    remains: String,
}

/// Keeps a pump until one ends of itself, or is told to.
pub fn keep(args: &PumpArgs) -> Result<ExitCode, Failure> {
    detach::leave_session();
    let socket = place::socket(args.socket.as_deref())?;
    let door = {
        let runtime = crate::verbs::runtime()?;
        match runtime.block_on(async { Door::open(&socket).await?.hand_over() }) {
            Ok(door) => door,
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                return detach::say(detach::THERE).map(|()| ExitCode::SUCCESS);
            }
            Err(error) => {
                return Err(other(format!("cannot listen at {}: {error}", socket.display())));
            }
        }
    };
    let (door, _lock) = door;
    let remains = Remains::new().map_err(other)?;
    let keeper = Keeper { door, remains: remains.pass_on().map_err(other)? };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(other)?.block_on(keeper.keep_on())
}

impl Keeper {
    /// One pump after another.
    async fn keep_on(&self) -> Result<ExitCode, Failure> {
        let mut signals = Signals::take().map_err(other)?;
        let clock = Clock::start();
        let mut quick = 0;
        let mut first = true;
        loop {
            let began = clock.now();
            let (pump, ready) = self.start()?;
            if ready && std::mem::take(&mut first) {
                detach::say(detach::READY)?;
            }
            let (ended, told) = end_of(pump, &mut signals).await.map_err(other)?;
            let lived = clock.now().since(began);
            quick = if lived < QUICK { quick + 1 } else { 0 };
            // One that never worked will not; a later one may have met what passes.
            if first || told == Told::Yes || is_meant(ended) || quick == QUICK_MOST {
                return Ok(exit_code(ended));
            }
        }
    }

    /// Starts a pump, and waits until it says that it works or ends without.
    fn start(&self) -> Result<(Child, bool), Failure> {
        // After an upgrade its name leads to another program, or nowhere; this is the same one.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("gtp");
        let rest = std::env::args_os().skip(1).filter(|word| word != OsStr::new("--detached"));
        command.args(rest).args(["--kept", &self.remains]).stdout(Stdio::piped());
        command.stdin(self.door.try_clone().map_err(other)?);
        let mut pump = command.spawn().map_err(other)?;
        let mut said = String::new();
        if let Some(stdout) = pump.stdout.take() {
            BufReader::new(stdout).read_line(&mut said).map_err(other)?;
        }
        Ok((pump, said.trim() == detach::READY))
    }
}

/// Whether this process was told to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    No,
    Yes,
}

/// Waits until a pump has ended, and tells it whatever this process is told.
async fn end_of(mut pump: Child, signals: &mut Signals) -> std::io::Result<(ExitStatus, Told)> {
    let process = pidfd_open(Pid::from_child(&pump), PidfdFlags::empty())?;
    let mut ended = tokio::task::spawn_blocking(move || pump.wait());
    let mut told = Told::No;
    loop {
        tokio::select! {
            ended = &mut ended => return Ok((ended.map_err(std::io::Error::other)??, told)),
            () = signals.next() => {
                told = Told::Yes;
                // One that has ended meanwhile need not be told.
                let _ = pidfd_send_signal(&process, Signal::TERM);
            }
        }
    }
}

/// Whether a pump that has ended so has ended of itself, or was told to.
fn is_meant(ended: ExitStatus) -> bool {
    let told = [Signal::TERM, Signal::INT, Signal::HUP].map(Signal::as_raw);
    ended.success() || ended.signal().is_some_and(|signal| told.contains(&signal))
}

fn exit_code(ended: ExitStatus) -> ExitCode {
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pump_that_is_told_to_end_is_not_started_again_and_one_that_is_killed_is() {
        let killed_by = |signal: Signal| ExitStatus::from_raw(signal.as_raw());
        for meant in [killed_by(Signal::TERM), killed_by(Signal::INT), ExitStatus::from_raw(0)] {
            assert!(is_meant(meant), "{meant}");
        }
        let failed = ExitStatus::from_raw(1 << 8);
        for other in [killed_by(Signal::KILL), killed_by(Signal::ABORT), failed] {
            assert!(!is_meant(other), "{other}");
        }
    }
}
