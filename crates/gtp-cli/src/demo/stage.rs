//! The demo as it happens: sources, paths, one sink with five sessions, and a look at all of
//! it fifty times a second.
//!
//! The sink is one host of the library, in this process: its five sessions share one agent, and so
//! its capacity. Every session is a transfer of a real file that ends by being complete; each is
//! asked for the hash of the file that was made, and is read again from disk when nothing else
//! runs. Nothing is judged here: what is seen goes into the record.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gtp::{Failure, FailureKind, Get, Host, Law, Outcome, Transfer, Value};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use super::analysis::{Series, WINDOW};
use super::files::{Hashes, LARGE_FILE, Making, SESSION_FILE, Workspace, verify_and_remove};
use super::network::Paths;
use super::plan::{Each, NAMES, Plan, SESSIONS, SINK, wanted};
use super::record::{Arrival, Asked, Record, Said, Sample};
use super::screen::Screen;
use super::servers::{self, Sources};
use crate::words;

/// Plays the whole demo and returns what was seen.
///
/// # Errors
/// When something cannot be started, a transfer fails, or everything takes far too long.
pub async fn play(
    plan: Plan,
    law: Law,
    workspace: &Arc<Workspace>,
    screen: &Screen,
) -> Result<Record, Failure> {
    let load_before = load_average();
    let hashes = make_files(plan, workspace, screen).await?;
    screen.part("starting five servers");
    let place = Arc::clone(workspace);
    let sources = blocking(move || servers::start(&place)).await?;
    let paths = Paths::start(&std::array::from_fn(|k| sources[k].address))?;
    let host = Host::builder().config_dir(workspace.sink_home()).capacity_in(SINK).start()?;
    let mut stage = Stage {
        plan,
        law,
        workspace,
        screen,
        sources,
        paths,
        host,
        hashes,
        board: Board::default(),
        record: Record { step: plan.step.as_secs_f64(), ..Record::default() },
    };
    let before = processor_time();
    stage.steps().await?;
    stage.verify_steps().await?;
    stage.gather().await?;
    let (late_p50, late_p99) = stage.paths.lateness()?;
    let conditions = &mut stage.record.conditions;
    conditions.processors = std::thread::available_parallelism().map_or(0, usize::from);
    conditions.load_before = load_before;
    conditions.idle = idle_between(before, processor_time());
    conditions.late_p50 = late_p50;
    conditions.late_p99 = late_p99;
    Ok(stage.record)
}

struct Stage<'a> {
    plan: Plan,
    law: Law,
    workspace: &'a Arc<Workspace>,
    screen: &'a Screen,
    sources: Sources,
    paths: Paths,
    host: Host,
    hashes: Hashes,
    board: Board,
    record: Record,
}

/// Where running transfers write what they say of their sessions.
#[derive(Clone, Debug, Default)]
struct Board(Arc<Mutex<Each<Option<Said>>>>);

/// A transfer that has ended: its number, and how.
type Ended = (usize, Result<Outcome, Failure>);

impl Stage<'_> {
    /// Five sessions start one after another; each ends when its file is complete.
    async fn steps(&mut self) -> Result<(), Failure> {
        self.screen.part("five sessions to one sink, one after another");
        let mut running: JoinSet<Ended> = JoinSet::new();
        let mut tick = ticks();
        let (begin, mut started) = (self.look()?, 0);
        while started < SESSIONS || !running.is_empty() {
            tokio::select! {
                _ = tick.tick() => {
                    let t = self.look()?;
                    if started < SESSIONS && t - begin >= self.plan.start(started).as_secs_f64() {
                        let transfer = self.session(started)?;
                        self.record.asked[started] = Asked { from: t, to: t };
                        running.spawn(follow(started, transfer, vec![started], self.board.clone()));
                        started += 1;
                    }
                    let part = (t - begin) / self.plan.length().as_secs_f64();
                    self.show(part, t);
                    self.check_time(part)?;
                }
                Some(ended) = running.join_next() => {
                    let (session, outcome) = ended.map_err(broken)?;
                    self.record.asked[session].to = self.look()?;
                    self.record.arrivals[session] = arrival(&outcome?);
                }
            }
        }
        Ok(())
    }

    /// One file from all sources at once.
    async fn gather(&mut self) -> Result<(), Failure> {
        self.screen.part("one file from all five sources at once");
        let mut get = self.get((0..SESSIONS).map(|source| (source, LARGE_FILE)))?;
        get = get.blake3(self.hashes.large).to(self.workspace.arrived(LARGE_FILE));
        let from = self.look()?;
        let transfer = get.start(&self.host)?;
        let sources = (0..SESSIONS).collect();
        let mut running: JoinSet<Ended> = JoinSet::new();
        running.spawn(follow(0, transfer, sources, self.board.clone()));
        let mut tick = ticks();
        let expected = self.plan.large_bytes() as f64 * 8.0 / SINK.as_f64();
        let outcome = loop {
            tokio::select! {
                _ = tick.tick() => {
                    let t = self.look()?;
                    self.show((t - from) / expected, t);
                    self.check_time((t - from) / expected)?;
                }
                Some(ended) = running.join_next() => break ended.map_err(broken)?.1?,
            }
        };
        self.record.gather = Asked { from, to: self.look()? };
        self.record.gather_arrival = arrival(&outcome);
        for (bytes, share) in self.record.gather_bytes.iter_mut().zip(&outcome.progress.sources) {
            *bytes = share.bytes;
        }
        self.screen.part("reading it again from disk");
        let path = self.workspace.arrived(LARGE_FILE);
        self.record.gather_arrival.verified = verified(path, self.hashes.large).await?;
        Ok(())
    }

    /// Reads the sessions' files again, while nothing else runs.
    async fn verify_steps(&mut self) -> Result<(), Failure> {
        self.screen.part("reading the five files again from disk");
        for (session, name) in NAMES.iter().enumerate() {
            let path = self.workspace.arrived(name);
            let good = verified(path, self.hashes.sessions[session]).await?;
            self.record.arrivals[session].verified = good;
        }
        Ok(())
    }

    /// Starts the transfer of one session.
    fn session(&self, session: usize) -> Result<Transfer, Failure> {
        let get = self.get([(session, SESSION_FILE)].into_iter())?;
        let hash = self.hashes.sessions[session];
        get.blake3(hash).to(self.workspace.arrived(NAMES[session])).start(&self.host)
    }

    /// A request for one object at these sources, each by the path that leads to it.
    fn get(&self, sources: impl Iterator<Item = (usize, &'static str)>) -> Result<Get, Failure> {
        let mut get: Option<Get> = None;
        for (source, file) in sources {
            let text = format!("gtp://{}/{file}", self.paths.entrances[source]);
            let url: gtp::Url = text.parse().map_err(broken)?;
            let next = match get {
                None => Get::new(url),
                Some(get) => get.mirror(url),
            };
            get = Some(next.fingerprint(self.sources[source].fingerprint));
        }
        let get = get.ok_or_else(|| broken("no source is named"))?;
        Ok(get.control(self.law).patience(SILENCE))
    }

    /// Takes a sample and returns its time.
    fn look(&mut self) -> Result<f64, Failure> {
        let said = self.board.read();
        let sample = Sample { said, ..self.paths.look()? };
        let t = sample.t;
        self.record.samples.push(sample);
        Ok(t)
    }

    /// Shows people the rates of the last moment.
    fn show(&self, part: f64, t: f64) {
        self.screen.at(part, || {
            let series = Series { samples: &self.record.samples };
            let rates: Each<f64> = std::array::from_fn(|k| series.rate(k, t - WINDOW, t) / 1e6);
            let active = self.board.read().map(|said| said.is_some());
            let share = wanted(&active).into_iter().fold(0.0, f64::max) / 1e6;
            let each = (0..SESSIONS).map(|k| format!("{} {:>3.0}", NAMES[k], rates[k]));
            let each: Vec<String> = each.collect();
            format!("{}  Mbit/s, each should have {share:.0}", each.join("  "))
        });
    }

    /// Ends what takes several times as long as it should, instead of keeping people waiting.
    fn check_time(&self, part: f64) -> Result<(), Failure> {
        let beyond = (part - 1.0) * self.plan.length().as_secs_f64();
        if part > TOO_LONG && beyond > TOO_LONG_SECONDS {
            let text = "this machine is too slow or too busy for the demo: it takes several times \
                        as long as it should";
            return Err(Failure::new(FailureKind::Temporary, text));
        }
        Ok(())
    }
}

impl Board {
    fn read(&self) -> Each<Option<Said>> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, session: usize, said: Option<Said>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[session] = said;
    }
}

/// Follows a transfer to its end; `sessions` says which session each of its sources is.
async fn follow(
    number: usize,
    mut transfer: Transfer,
    sessions: Vec<usize>,
    board: Board,
) -> Ended {
    let mut tick = interval(SAY_SPAN);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = transfer.next_event() => match event {
                Some(event) => tracing::debug!(?event),
                None => break,
            },
            _ = tick.tick() => {
                for (share, session) in transfer.progress().sources.iter().zip(&sessions) {
                    let granted = share.granted.as_f64().min(SAID_MAX);
                    let said = Said { granted, limited_by: share.limited_by.as_str() };
                    board.write(*session, share.alive.then_some(said));
                }
            }
        }
    }
    let outcome = transfer.wait().await;
    for session in sessions {
        board.write(session, None);
    }
    (number, outcome)
}

/// Makes the files, showing how far that is.
async fn make_files(
    plan: Plan,
    workspace: &Arc<Workspace>,
    screen: &Screen,
) -> Result<Hashes, Failure> {
    /// Stops the making when nobody waits for it any more.
    struct Wanted(Arc<Making>);
    impl Drop for Wanted {
        fn drop(&mut self) {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
    let all: u64 = (0..=SESSIONS / 2).map(|session| plan.file_bytes(session)).sum();
    screen.part(&format!("making files of {:.1} GB in all", all as f64 / 1e9));
    let making = Wanted(Arc::default());
    let (place, told) = (Arc::clone(workspace), Arc::clone(&making.0));
    let mut made = std::pin::pin!(blocking(move || place.fill(&plan, &told)));
    let mut tick = interval(SAY_SPAN);
    loop {
        tokio::select! {
            made = &mut made => return made,
            _ = tick.tick() => {
                let part = making.0.bytes.load(Ordering::Relaxed) as f64 / all as f64;
                screen.at(part, || "making files".into());
            }
        }
    }
}

async fn verified(path: PathBuf, hash: Value) -> Result<bool, Failure> {
    blocking(move || verify_and_remove(&path, &hash)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    spawn_blocking(work).await.map_err(broken)?
}

fn arrival(outcome: &Outcome) -> Arrival {
    Arrival {
        bytes: outcome.bytes,
        seconds: outcome.elapsed.as_secs_f64(),
        loss_ratio: outcome.progress.loss_ratio(),
        duplicate_bytes: outcome.progress.duplicate_bytes(),
        blake3: outcome.blake3.as_ref().map(words::hex).unwrap_or_default(),
        verified: false,
    }
}

fn ticks() -> tokio::time::Interval {
    let mut tick = interval(LOOK_SPAN);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Other, error.to_string())
}

/// Processes that wanted a processor, as a mean over the last minute; zero where nobody counts.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Idle time and all time of all processors since the machine started, in the kernel's ticks.
fn processor_time() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.map_while(|field| field.parse().ok()).collect();
    // The fourth is idle time, the fifth waits for a disk, which keeps no processor.
    Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().sum()))
}

fn idle_between(before: Option<(f64, f64)>, after: Option<(f64, f64)>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let all = after.1 - before.1;
    (all > 0.0).then(|| ((after.0 - before.0) / all).clamp(0.0, 1.0))
}

/// Time between two samples.
const LOOK_SPAN: Duration = Duration::from_millis(20);

/// Time between two words of a transfer about its sessions.
const SAY_SPAN: Duration = Duration::from_millis(50);

/// A transfer without progress for so long has failed.
const SILENCE: Duration = Duration::from_secs(15);

/// How many times as long as it should a part may take, and at least how many seconds longer.
const TOO_LONG: f64 = 3.0;
const TOO_LONG_SECONDS: f64 = 30.0;

/// A grant without a limit is recorded as this many bit/s: JSON has no infinity.
const SAID_MAX: f64 = 1e15;
