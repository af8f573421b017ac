//! `--watch`: syncs again whenever the source changes.
//!
//! What changed is not asked: a round surveys both trees, so that nothing can be missed. Rounds
//! begin when the source has been quiet for a moment. For a round after one that failed, the far
//! end is called anew.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gtp::{Failure, FailureKind};
use notify::{Event, RecursiveMode, Watcher};
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
/// A [`Failure`] of the first round that waiting does not mend, or of the watch itself.
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
    let watched = Watched::begin(source)?;
    let mut rounds = Rounds {
        args,
        filter,
        from: &from,
        to: &to,
        source,
        ends: None,
        failed: 0,
        has_served: false,
    };
    loop {
        let ended = {
            let round = rounds.run();
            tokio::pin!(round);
            tokio::select! {
                ended = &mut round => Ok(ended),
                // A transfer hears of the signal as well, and keeps what is complete.
                () = signals.next() => Err(timeout(LAST_SPAN, round).await.ok()),
            }
        };
        let wait = match ended {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(rounds.wait(failure).await?),
            Err(_) => break,
        };
        let next = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => watched.settled().await,
            }
        };
        tokio::select! {
            () = next => {}
            () = signals.next() => break,
        }
    }
    rounds.close().await;
    Ok(done())
}

struct Rounds<'a> {
    args: &'a SyncArgs,
    filter: &'a Filter,
    from: &'a Operand,
    to: &'a Operand,
    source: &'a Path,
    /// Both ends, as long as they serve.
    ends: Option<Ends>,
    /// Rounds that have failed since one did not.
    failed: u32,
    /// Whether any has not.
    has_served: bool,
}

impl Rounds<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let timeline = Timeline::begin();
        if self.ends.is_none() {
            let (from, to) = (self.from.clone(), self.to.clone());
            self.ends = Some(Ends::find(self.args, from, to).await?);
        }
        let Some(ends) = &mut self.ends else { return Ok(()) };
        // The directory may be another one by now.
        ends.source = Side::Here(Here::source(self.source)?);
        let work = Work::new(self.args, self.filter.clone(), ends, timeline).run();
        let given = &self.args.transfer.host;
        within(self.args.bwlimit.as_ref(), &ends.host, given, work).await?;
        self.failed = 0;
        self.has_served = true;
        Ok(())
    }

    /// Takes a failed round in; returns how long to wait before the next.
    async fn wait(&mut self, failure: Failure) -> Result<Duration, Failure> {
        self.close().await;
        let ends = matches!(
            failure.kind,
            FailureKind::Usage | FailureKind::Interrupted | FailureKind::TimeLimit
        );
        if ends || !self.has_served && !failure.is_temporary() {
            return Err(failure);
        }
        let wait = LONGEST_WAIT.min(Duration::from_secs(1 << self.failed.min(6)));
        self.failed += 1;
        let seconds = gtp_text::count(wait.as_secs(), "second");
        output::aside(format_args!("gtp: {failure}; tried again in {seconds}"));
        Ok(wait)
    }

    async fn close(&mut self) {
        if let Some(ends) = self.ends.take() {
            ends.close().await;
        }
    }
}

/// A source that is watched.
struct Watched {
    changed: Arc<Notify>,
    /// Dropped, it ends the watch.
    _watcher: notify::RecommendedWatcher,
}

impl Watched {
    fn begin(source: &Path) -> Result<Watched, Failure> {
        let changed = Arc::new(Notify::new());
        let tell = Arc::clone(&changed);
        let heard = move |event: notify::Result<Event>| {
            // What this command reads is no change. What was lost may have been one.
            if event.is_ok_and(|event| event.kind.is_access()) {
                return;
            }
            tell.notify_one();
        };
        let failed = |error: notify::Error| {
            let shown = gtp_text::of_text(&source.to_string_lossy());
            Failure::new(FailureKind::Other, format!("{shown}: cannot be watched: {error}"))
        };
        let mut watcher = notify::recommended_watcher(heard).map_err(failed)?;
        watcher.watch(source, RecursiveMode::Recursive).map_err(failed)?;
        Ok(Watched { changed, _watcher: watcher })
    }

    /// Waits until something has changed, and then for quiet.
    async fn settled(&self) {
        self.changed.notified().await;
        let quiet = async { while timeout(QUIET_SPAN, self.changed.notified()).await.is_ok() {} };
        // A source that never is quiet is synced all the same.
        let _ = timeout(LATEST_SPAN, quiet).await;
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
