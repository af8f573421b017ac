//! `--watch`: syncs again whenever the source changes.
//!
//! What changed is not asked: a round surveys both trees, so that nothing can be missed. Rounds
//! begin when the source has been quiet for a moment. For a round after one that failed, the far
//! end is called anew. The watch itself is begun anew when it may have missed something, and a slow
//! round now and then finds what no watch tells.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gtp::{Failure, FailureKind};
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::filter::Filter;
use super::limit::within;
use super::side::{Here, Side};
use super::timeline::Timeline;
use super::work::Work;
use super::{Ends, SyncArgs, usage};
use crate::cp::operand::Operand;
use crate::output;
use crate::signals::Signals;
use crate::verbs::{done, other};

/// Runs rounds until the user ends it.
///
/// # Errors
/// A [`Failure`] of the first round that waiting does not mend, or of the first watch.
pub async fn run(
    args: &SyncArgs,
    filter: &Filter,
    from: Operand,
    to: Operand,
) -> Result<ExitCode, Failure> {
    let Operand::Local(source) = &from else {
        return Err(usage("--watch needs SRC on this machine"));
    };
    let mut signals = Signals::take().map_err(other)?;
    // What is not there is told as elsewhere.
    Here::source(source)?;
    let mut watch = Watch { source, watched: Some(Watched::begin(source)?) };
    let mut rounds = Rounds::new(args, filter, (&from, &to), source);
    loop {
        watch.renew();
        let Some(ended) = rounds.run_unless(&mut signals).await else { break };
        let next = rounds.next(ended).await?;
        tokio::select! {
            () = watch.pause(next) => {}
            () = signals.next() => break,
        }
    }
    tokio::select! {
        () = rounds.close() => {}
        () = signals.next() => exit_at_once(),
    }
    Ok(done())
}

/// The user has asked a second time.
fn exit_at_once() {
    std::process::exit(i32::from(FailureKind::Interrupted.exit_code()));
}

/// What the next round waits for.
enum Next {
    /// A change.
    Change,
    /// A change, or this time.
    ChangeOr(Duration),
    /// This time.
    After(Duration),
}

struct Rounds<'a> {
    args: &'a SyncArgs,
    filter: &'a Filter,
    from: &'a Operand,
    to: &'a Operand,
    source: &'a Path,
    /// Both ends, as long as they serve.
    ends: Option<Ends>,
    /// Set when the user ends it.
    stop: Arc<AtomicBool>,
    /// Rounds that have failed, or in which a part failed, since one did not.
    failed: u32,
    /// Whether any has not failed.
    has_served: bool,
}

impl<'a> Rounds<'a> {
    fn new(
        args: &'a SyncArgs,
        filter: &'a Filter,
        (from, to): (&'a Operand, &'a Operand),
        source: &'a Path,
    ) -> Rounds<'a> {
        let (ends, stop) = (None, Arc::default());
        Rounds { args, filter, from, to, source, ends, stop, failed: 0, has_served: false }
    }

    /// Runs a round to its end; `None` if the user ends it.
    async fn run_unless(&mut self, signals: &mut Signals) -> Option<Result<ExitCode, Failure>> {
        let stop = Arc::clone(&self.stop);
        let round = self.run();
        tokio::pin!(round);
        tokio::select! {
            ended = &mut round => return Some(ended),
            // A transfer hears of the signal as well, and keeps what is complete.
            () = signals.next() => stop.store(true, Ordering::Relaxed),
        }
        tokio::select! {
            _ = timeout(LAST_SPAN, round) => {}
            () = signals.next() => exit_at_once(),
        }
        None
    }

    async fn run(&mut self) -> Result<ExitCode, Failure> {
        let timeline = Timeline::begin();
        if self.ends.is_none() {
            let (from, to) = (self.from.clone(), self.to.clone());
            self.ends = Some(Ends::find(self.args, from, to).await?);
        }
        let Some(ends) = &mut self.ends else { return Ok(done()) };
        // The directory may be another one by now.
        ends.source = Side::Here(Here::source(self.source)?);
        ends.stop = Arc::clone(&self.stop);
        let work = Work::new(self.args, self.filter.clone(), ends, timeline).run();
        let given = &self.args.transfer.host;
        within(self.args.bwlimit.as_ref(), &ends.host, given, work).await
    }

    /// Takes a round in; returns what the next one waits for.
    async fn next(&mut self, ended: Result<ExitCode, Failure>) -> Result<Next, Failure> {
        match ended {
            Ok(code) => {
                self.has_served = true;
                if code == done() {
                    self.failed = 0;
                    return Ok(Next::Change);
                }
                Ok(Next::ChangeOr(self.wait("a part could not be done")))
            }
            Err(failure) => {
                self.close().await;
                let ends = matches!(
                    failure.kind,
                    FailureKind::Usage | FailureKind::Interrupted | FailureKind::TimeLimit
                );
                if ends || !self.has_served && !failure.is_temporary() {
                    return Err(failure);
                }
                Ok(Next::After(self.wait(&failure.to_string())))
            }
        }
    }

    /// How long to wait before the next try, which is said.
    fn wait(&mut self, why: &str) -> Duration {
        let wait = LONGEST_WAIT.min(Duration::from_secs(1 << self.failed.min(6)));
        self.failed += 1;
        let seconds = gtp_text::count(wait.as_secs(), "second");
        output::aside(format_args!("gtp: {why}; tried again in {seconds}"));
        wait
    }

    async fn close(&mut self) {
        if let Some(ends) = self.ends.take() {
            ends.close().await;
        }
    }
}

/// The watch of a source, as long as it can be watched.
struct Watch<'a> {
    source: &'a Path,
    watched: Option<Watched>,
}

impl Watch<'_> {
    /// Watches the source anew if changes may have been missed. A round has to follow.
    fn renew(&mut self) {
        let lost = self.watched.as_ref().map(|watched| watched.lost(self.source));
        if lost == Some(None) {
            return;
        }
        // The system bounds how much is watched, so the old watch goes first.
        self.watched = None;
        let shown = gtp_text::of_text(&self.source.to_string_lossy());
        match (Watched::begin(self.source), lost.flatten()) {
            (Ok(watched), why) => {
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                output::aside(format_args!("gtp: {shown} is watched anew{why}"));
                self.watched = Some(watched);
            }
            (Err(failure), Some(_)) => {
                let seconds = gtp_text::count(LONGEST_WAIT.as_secs(), "second");
                output::aside(format_args!("gtp: {failure}; synced every {seconds} meanwhile"));
            }
            // It has been said.
            (Err(_), None) => {}
        }
    }

    async fn pause(&self, next: Next) {
        let most = match next {
            // After a failure of the far end, no change here is a reason to try sooner.
            Next::After(wait) => return sleep(wait).await,
            Next::ChangeOr(wait) => wait,
            Next::Change if self.watched.is_none() => LONGEST_WAIT,
            Next::Change => LOOK_SPAN,
        };
        let changed = async {
            match &self.watched {
                Some(watched) => watched.settled().await,
                None => std::future::pending().await,
            }
        };
        // After that time there is a round in any case.
        let _ = timeout(most, changed).await;
    }
}

/// A source that is watched.
struct Watched {
    changed: Arc<Notify>,
    /// Why changes may have been missed.
    lost: Arc<Mutex<Option<String>>>,
    /// Device and inode of the directory.
    place: (u64, u64),
    /// Dropped, it ends the watch.
    _watcher: RecommendedWatcher,
}

impl Watched {
    fn begin(source: &Path) -> Result<Watched, Failure> {
        let failed = |why: String| {
            let shown = gtp_text::of_text(&source.to_string_lossy());
            Failure::new(FailureKind::Other, format!("{shown}: cannot be watched: {why}"))
        };
        let place = place(source).map_err(|error| failed(error.to_string()))?;
        let root = source.canonicalize().map_err(|error| failed(error.to_string()))?;
        let (changed, lost) = (Arc::new(Notify::new()), Arc::default());
        let (tell, why, own) = (Arc::clone(&changed), Arc::clone(&lost), root.clone());
        let heard = move |event: notify::Result<Event>| match Heard::of(event, &own) {
            Heard::Nothing => {}
            Heard::Change => tell.notify_one(),
            Heard::Lost(text) => {
                lock(&why).get_or_insert(text);
                tell.notify_one();
            }
        };
        // The tree holds its links as links, so what they lead to is no concern of it.
        let config = Config::default().with_follow_symlinks(false);
        let mut watcher =
            RecommendedWatcher::new(heard, config).map_err(|error| failed(error.to_string()))?;
        let begun = watcher.watch(&root, RecursiveMode::Recursive);
        begun.map_err(|error| failed(error.to_string()))?;
        Ok(Watched { changed, lost, place, _watcher: watcher })
    }

    /// Why changes of the source may have been missed; `None` if they have not.
    fn lost(&self, source: &Path) -> Option<String> {
        let told = lock(&self.lost).clone();
        told.or_else(|| match place(source) {
            Ok(place) if place == self.place => None,
            Ok(_) => Some("another directory has its name".into()),
            Err(error) => Some(error.to_string()),
        })
    }

    /// Waits until something has changed, and then for quiet.
    async fn settled(&self) {
        self.changed.notified().await;
        let quiet = async { while timeout(QUIET_SPAN, self.changed.notified()).await.is_ok() {} };
        // A source that is never quiet is synced after that time.
        let _ = timeout(LATEST_SPAN, quiet).await;
    }
}

/// Device and inode of a directory, also behind a link.
fn place(source: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::metadata(source).map(|about| (about.dev(), about.ino()))
}

fn lock(lost: &Mutex<Option<String>>) -> std::sync::MutexGuard<'_, Option<String>> {
    lost.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an event means.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Change,
    /// Changes may be missed from now on, or have been, with the reason.
    Lost(String),
}

impl Heard {
    fn of(event: notify::Result<Event>, root: &Path) -> Heard {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Heard::Lost(error.to_string()),
        };
        if event.need_rescan() {
            return Heard::Lost("there were more changes than the system keeps".into());
        }
        let is_of_root = event.paths.iter().any(|path| path == root);
        match event.kind {
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) if is_of_root => {
                Heard::Lost("it was moved or removed".into())
            }
            // What is mapped into memory and written there is told at its close alone.
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => Heard::Change,
            // What this command reads is no change.
            EventKind::Access(_) => Heard::Nothing,
            _ => Heard::Change,
        }
    }
}

/// Quiet of the source before a round begins.
const QUIET_SPAN: Duration = Duration::from_millis(300);

/// Time after which a round begins although the source is not quiet.
const LATEST_SPAN: Duration = Duration::from_secs(5);

/// Longest wait after a failed round.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Time for a round to keep what is complete when the user ends it.
const LAST_SPAN: Duration = Duration::from_secs(10);

/// Time after which a round looks at a source that has told of no change. Some file systems tell
/// of none, such as those of a network.
const LOOK_SPAN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use notify::event::{Flag, RemoveKind};

    use super::*;

    #[test]
    fn an_event_that_may_hide_a_change_asks_for_a_new_watch_and_reading_is_no_change() {
        let of = |kind: EventKind, path: &str| Event::new(kind).add_path(path.into());
        let heard = |event: notify::Result<Event>| Heard::of(event, Path::new("/src"));
        let closed = |mode| EventKind::Access(AccessKind::Close(mode));
        assert_eq!(heard(Ok(of(closed(AccessMode::Write), "/src/a"))), Heard::Change);
        assert_eq!(heard(Ok(of(closed(AccessMode::Read), "/src/a"))), Heard::Nothing);
        let removed = EventKind::Remove(RemoveKind::Folder);
        assert_eq!(heard(Ok(of(removed, "/src/d"))), Heard::Change);
        let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        let full = notify::Error::new(notify::ErrorKind::MaxFilesWatch);
        for lost in [Ok(of(removed, "/src")), Ok(overflow), Err(full)] {
            assert!(matches!(heard(lost), Heard::Lost(_)));
        }
    }
}
