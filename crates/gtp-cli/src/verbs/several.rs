//! One source, several sinks: the same objects to several addresses at once.
//!
//! All transfers run in this process on one host, so one agent shares the capacity among them, and
//! each retries, resumes and fails as it would alone. One that fails does not stop the others. A
//! signal and the time limit stop all of them.

use std::path::PathBuf;
use std::process::ExitCode;

use gtp::{
    Event, Failure, FailureKind, Fingerprint, Host, Outcome, Progress, Put, RelayReport, Relaying,
    SharedPaths, Stopper, Transfer, Url,
};
use tokio::sync::mpsc;

use super::transfer::{Ends, LOOK_SPAN, Options, time_limit};
use crate::args::TransferArgs;
use crate::cp::near::FarEnd;
use crate::cp::operand::Login;
use crate::show::several::Several;
use crate::signals::Signals;

/// One of the sinks.
pub struct Sink {
    /// How the user has named it.
    pub shown: String,
    /// Where that is, or why it is unavailable.
    pub to: Result<To, Failure>,
}

/// Where a sink is.
pub struct To {
    pub url: Url,
    /// The key that the server must have; what the options say if `None`.
    pub key: Option<Fingerprint>,
    /// The far end behind a login, which is ended with the transfer.
    pub far: Option<(Login, FarEnd)>,
}

impl Sink {
    /// A server's address.
    pub fn at(url: Url) -> Sink {
        Sink { shown: url.to_string(), to: Ok(To { url, key: None, far: None }) }
    }
}

/// What one of the transfers tells.
enum Told {
    Event(Event),
    Progress(Progress),
    Ended(Result<Outcome, Failure>),
}

/// News of all transfers that wait to be shown.
const NEWS_MOST: usize = 256;

/// Sends these paths to all sinks.
///
/// # Errors
/// If no transfer was started.
pub async fn send(
    host: &Host,
    paths: Vec<PathBuf>,
    (sinks, relaying): (Vec<Sink>, Relaying),
    args: &TransferArgs,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    let mut shower = Several::new(args, sinks.iter().map(|sink| sink.shown.clone()).collect())?;
    let is_there: Vec<bool> = sinks.iter().map(|sink| sink.to.is_ok()).collect();
    let (tell, told) = mpsc::channel(NEWS_MOST);
    let (stoppers, shared) = start(host, paths, (sinks, relaying), args, &tell)?;
    drop(tell);
    watch(host, told, (&stoppers, signals), args, &mut shower).await;
    let mut ends = Ends::default();
    let all = shower.ends();
    let done = all.iter().zip(&is_there).filter(|(_, there)| **there).map(|(end, _)| end.is_ok());
    let done: Vec<bool> = done.collect();
    for ended in all {
        ends.note(ended);
    }
    let code = ends.exit_code();
    let relay = shared.relay().map(|relay| {
        let report = relay.report(host.capacities()[0], &done);
        RelayReport { relaying: of_all(&is_there, &report.relaying), ..report }
    });
    shower.ended(code, shared.read_bytes(), relay.as_ref());
    Ok(if code == 0 { super::done() } else { ExitCode::from(code) })
}

/// What is so for each sink that is available, for all of them: it is not for the others.
fn of_all(is_there: &[bool], so: &[bool]) -> Vec<bool> {
    let mut so = so.iter().copied();
    is_there.iter().map(|there| *there && so.next().unwrap_or(false)).collect()
}

/// Starts a transfer to each sink that is available.
fn start(
    host: &Host,
    paths: Vec<PathBuf>,
    (sinks, relaying): (Vec<Sink>, Relaying),
    args: &TransferArgs,
    tell: &mpsc::Sender<(usize, Told)>,
) -> Result<(Vec<Stopper>, std::sync::Arc<SharedPaths>), Failure> {
    let mut there = Vec::new();
    for (number, Sink { to, .. }) in sinks.into_iter().enumerate() {
        match to {
            Ok(to) => there.push((number, to)),
            Err(failure) => {
                let tell = tell.clone();
                tokio::spawn(async move { tell.send((number, Told::Ended(Err(failure)))).await });
            }
        }
    }
    let urls = there.iter().map(|(_, to)| to.url.clone());
    let (puts, shared) = Put::to_each(paths, urls, relaying)?;
    let described = puts.into_iter().zip(&there).map(|(put, (_, to))| {
        let trusting = match to.key {
            Some(key) => put.fingerprint(key),
            None => put.with_trust(args),
        };
        trusting.with_options(args)
    });
    let described = described.collect::<Result<Vec<Put>, Failure>>()?;
    let started = described.into_iter().map(|put| put.start(host));
    let started = started.collect::<Result<Vec<Transfer>, Failure>>()?;
    let stoppers = started.iter().map(Transfer::stopper).collect();
    for (transfer, (number, to)) in started.into_iter().zip(there) {
        tokio::spawn(follow(number, transfer, to.far, tell.clone()));
    }
    Ok((stoppers, shared))
}

/// Shows the transfers until all are over; obeys signals and the time limit.
async fn watch(
    host: &Host,
    mut told: mpsc::Receiver<(usize, Told)>,
    (stoppers, signals): (&[Stopper], &mut Signals),
    args: &TransferArgs,
    shower: &mut Several,
) {
    let mut limit = std::pin::pin!(time_limit(args));
    let (mut over, mut interrupted) = (false, false);
    let stop = |kind| stoppers.iter().for_each(|stopper| stopper.stop(kind));
    let mut look = tokio::time::interval(LOOK_SPAN);
    loop {
        tokio::select! {
            biased;
            () = signals.next() => {
                if interrupted {
                    std::process::exit(i32::from(FailureKind::Interrupted.exit_code()));
                }
                interrupted = true;
                stop(FailureKind::Interrupted);
            }
            () = &mut limit, if !over => {
                over = true;
                stop(FailureKind::TimeLimit);
            }
            _ = look.tick() => {
                shower.stands(host.stands());
                shower.look();
            }
            news = told.recv() => match news {
                Some((number, Told::Event(event))) => shower.event(number, &event),
                Some((number, Told::Progress(progress))) => shower.progress(number, progress),
                Some((number, Told::Ended(ended))) => shower.end(number, ended),
                None => return,
            },
        }
    }
}

/// Tells what one transfer does, to its end, and ends the far end that it goes to.
async fn follow(
    number: usize,
    transfer: Transfer,
    far: Option<(Login, FarEnd)>,
    tell: mpsc::Sender<(usize, Told)>,
) {
    let stopper = transfer.stopper();
    let telling = tell_all(number, transfer, &tell);
    let ended = match far {
        None => telling.await,
        Some((login, mut far)) => {
            let ended = crate::cp::while_there(telling, &stopper, &login, &mut far).await;
            far.close().await;
            ended
        }
    };
    // Nobody hears it when the command is over.
    let _ = tell.send((number, Told::Ended(ended))).await;
}

async fn tell_all(
    number: usize,
    mut transfer: Transfer,
    tell: &mpsc::Sender<(usize, Told)>,
) -> Result<Outcome, Failure> {
    let mut look = tokio::time::interval(LOOK_SPAN);
    loop {
        let told = tokio::select! {
            biased;
            event = transfer.next_event() => match event {
                Some(event) => Told::Event(event),
                None => return transfer.wait().await,
            },
            _ = look.tick() => Told::Progress(transfer.progress()),
        };
        // As above.
        let _ = tell.send((number, told)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_that_was_not_available_did_not_relay_and_takes_nobodys_place() {
        assert_eq!(of_all(&[true, false, true], &[false, true]), [false, false, true]);
        assert_eq!(of_all(&[false, true], &[true]), [false, true]);
    }
}
