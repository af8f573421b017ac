//! Who keeps a pump: starts it, and starts it again where it is killed or breaks.
//!
//! What must outlive a pump is held here: the endpoint, at which programs wait meanwhile and are
//! refused by nobody, its lock, and what remains. A keeper has no keys, no sessions and no network,
//! and does nothing but wait; who tells it to end tells its pump. Programs themselves start no
//! pump: they may be beneath a ban, another root, other limits or another user, and have children
//! that they do not know of.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};

use gtp::Failure;
use gtp_alloc::Span;
use gtp_sys::Clock;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::signal::unix::{SignalKind, signal};

use super::endpoint::{self, Endpoint};
use super::remains::Remains;
use super::{PumpArgs, detach, place};
use crate::output::aside;
use crate::signals::Signals;
use crate::verbs::other;

/// A pump that ends sooner than this has done nothing.
const QUICK: Span = Span::from_millis(1_000);
/// So many in a row are the last: something is wrong that another pump does not mend.
const QUICK_MOST: u32 = 5;

/// What a pump is started with.
struct Keeper {
    endpoint: OwnedFd,
    remains: String,
}

/// Keeps a pump until one ends unasked, or is told to.
pub fn keep(args: &PumpArgs) -> Result<ExitCode, Failure> {
    detach::leave_session();
    let socket = place::socket(args.socket.as_deref())?;
    let endpoint = {
        let runtime = crate::verbs::runtime()?;
        match runtime.block_on(async { Endpoint::open(&socket).await?.hand_over() }) {
            Ok(endpoint) => endpoint,
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                return detach::say(detach::THERE).map(|()| ExitCode::SUCCESS);
            }
            Err(error) => {
                return Err(other(format!("cannot listen at {}: {error}", socket.display())));
            }
        }
    };
    let (endpoint, lock) = endpoint;
    let remains = Remains::new().map_err(other)?;
    let keeper = Keeper { endpoint, remains: remains.pass_on().map_err(other)? };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(other)?.block_on(async {
        let mut told_here = ToldHere::take().map_err(other)?;
        keep_on(|| keeper.start(), async || told_here.next().await).await
    });
    endpoint::forget(&socket);
    drop(lock); // The name was this one's until here.
    ended
}

/// One pump after another, as `start` starts them, until one is the last: see [`Course::is_meant`].
async fn keep_on(
    mut start: impl FnMut() -> Result<Child, Failure>,
    mut told_here: impl AsyncFnMut(),
) -> Result<ExitCode, Failure> {
    let clock = Clock::start();
    let mut quick = 0;
    let mut first = true;
    loop {
        let began = clock.now();
        let pump = start()?;
        let course = attend(pump, &mut told_here, first).await.map_err(other)?;
        first &= !course.worked;
        let lived = clock.now().since(began);
        quick = if lived < QUICK { quick + 1 } else { 0 };
        // One that never worked will not; a later one may have met what passes.
        if first || course.is_meant() || quick == QUICK_MOST {
            return Ok(exit_code(course.ended));
        }
    }
}

impl Keeper {
    /// Starts a pump.
    fn start(&self) -> Result<Child, Failure> {
        // After an upgrade its name leads to another program, or nowhere; this is the same one.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("gtp");
        let rest = std::env::args_os().skip(1).filter(|word| word != OsStr::new("--detached"));
        command.args(rest).args(["--kept", &self.remains]).stdout(Stdio::piped());
        command.stdin(self.endpoint.try_clone().map_err(other)?);
        command.spawn().map_err(other)
    }
}

/// What became of a pump.
struct Course {
    ended: ExitStatus,
    /// It has said that it works.
    worked: bool,
    /// It was ended here, since it is of no use.
    dropped: bool,
    /// This process was told to end meanwhile.
    told: bool,
}

impl Course {
    /// Whether no other pump is to follow it.
    fn is_meant(&self) -> bool {
        self.told || (!self.dropped && ended_as_told(self.ended))
    }
}

/// The wish that this process ends: also where a session that it is none of the members of hangs
/// up on it by name.
struct ToldHere {
    signals: Signals,
    hangup: tokio::signal::unix::Signal,
}

impl ToldHere {
    fn take() -> std::io::Result<ToldHere> {
        Ok(ToldHere { signals: Signals::take()?, hangup: signal(SignalKind::hangup())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            () = self.signals.next() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Waits until a pump has ended, passes on that it works if it is the `first`, and tells it, from
/// its start on, to end whenever `told_here` returns.
async fn attend(
    mut pump: Child,
    mut told_here: impl AsyncFnMut(),
    first: bool,
) -> std::io::Result<Course> {
    let process = pidfd_open(Pid::from_child(&pump), PidfdFlags::empty())?;
    let stdout = pump.stdout.take();
    let mut says = tokio::task::spawn_blocking(move || first_line(stdout));
    let mut ends = tokio::task::spawn_blocking(move || pump.wait());
    // One that has ended meanwhile need not be told.
    let end = || pidfd_send_signal(&process, Signal::TERM).unwrap_or_default();
    let (mut worked, mut heard, mut dropped, mut told) = (false, false, false, false);
    loop {
        tokio::select! {
            biased;
            said = &mut says, if !heard => {
                heard = true;
                let said = said.unwrap_or_else(|error| Err(std::io::Error::other(error)));
                worked = said.as_deref().is_ok_and(|said| said == detach::READY);
                let unheard = worked && first && detach::say(detach::READY).is_err();
                if let Err(error) = &said {
                    aside(format_args!("a pump is ended, since it cannot be heard: {error}"));
                }
                if said.is_err() || unheard {
                    (worked, dropped) = (false, true);
                    end();
                }
            }
            ended = &mut ends, if heard => {
                let ended = ended.map_err(std::io::Error::other)??;
                return Ok(Course { ended, worked, dropped, told });
            }
            () = told_here() => {
                told = true;
                end();
            }
        }
    }
}

/// What a pump says first; nothing if it ends without a word.
fn first_line(stdout: Option<ChildStdout>) -> std::io::Result<String> {
    let mut said = String::new();
    if let Some(stdout) = stdout {
        BufReader::new(stdout).read_line(&mut said)?;
    }
    Ok(said.trim().to_owned())
}

/// Whether a pump that has ended so has ended unasked, or was told to.
fn ended_as_told(ended: ExitStatus) -> bool {
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

    #[tokio::test]
    async fn a_keeper_that_is_told_to_end_before_its_pump_works_ends_it() {
        let mut command = Command::new("sleep");
        let pump = command.arg("60").stdout(Stdio::piped()).spawn().unwrap();
        let mut wish = Some(());
        let told_here = async || {
            if wish.take().is_none() {
                std::future::pending().await
            }
        };
        let course = attend(pump, told_here, true).await.unwrap();
        assert!(course.told && !course.worked);
        assert_eq!(course.ended.signal(), Some(Signal::TERM.as_raw()));
    }

    #[tokio::test]
    async fn a_pump_that_says_what_is_no_text_did_not_work_and_is_told_to_end() {
        let mut command = Command::new("sh");
        command.args(["-c", r"printf '\377\n'; exec sleep 60"]).stdout(Stdio::piped());
        let pump = command.spawn().unwrap();
        let course = attend(pump, std::future::pending::<()>, true).await.unwrap();
        assert!(!course.told && !course.worked);
        assert_eq!(course.ended.signal(), Some(Signal::TERM.as_raw()));
    }

    #[tokio::test]
    async fn a_later_pump_that_says_what_is_no_text_is_followed_by_another() {
        let mut pumps = [
            "echo ready; kill -KILL $$",
            r"printf '\377\n'; exec sleep 60",
            "echo ready; exit 0",
            "exit 0",
        ]
        .iter();
        let start = || {
            let mut command = Command::new("sh");
            command.arg("-c").arg(pumps.next().unwrap()).stdout(Stdio::piped());
            command.spawn().map_err(other)
        };
        keep_on(start, std::future::pending::<()>).await.unwrap();
        assert_eq!(pumps.len(), 1, "the third ended unasked");
    }

    #[tokio::test]
    async fn a_keeper_is_told_to_end_by_a_hangup() {
        let mut told = ToldHere::take().unwrap();
        rustix::process::kill_process(rustix::process::getpid(), Signal::HUP).unwrap();
        told.next().await;
    }

    #[test]
    fn a_pump_that_is_told_to_end_is_not_started_again_and_one_that_is_killed_is() {
        let killed_by = |signal: Signal| ExitStatus::from_raw(signal.as_raw());
        for meant in [killed_by(Signal::TERM), killed_by(Signal::INT), ExitStatus::from_raw(0)] {
            assert!(ended_as_told(meant), "{meant}");
        }
        let failed = ExitStatus::from_raw(1 << 8);
        for other in [killed_by(Signal::KILL), killed_by(Signal::ABORT), failed] {
            assert!(!ended_as_told(other), "{other}");
        }
    }
}
