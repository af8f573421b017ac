//! `--watch`: syncs again whenever the source changes.
//!
//! What changed is not asked: a round surveys both trees, so that nothing can be missed. Rounds
//! begin when the source has been quiet for a moment; the far end watches a source behind a login.
//! For a round after one that failed, the far end is called anew. The watch itself is begun anew
//! when it may have missed something, and a slow round now and then finds what no watch tells.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gtp::{Failure, FailureKind};
use tokio::time::{sleep, timeout};

use super::filter::Filter;
use super::limit::within;
use super::side::Here;
use super::timeline::Timeline;
use super::watched::Watched;
use super::work::Work;
use super::{Ends, SyncArgs};
use crate::cp::operand::Operand;
use crate::output;
use crate::signals::Signals;
use crate::verbs::{done, other};
use crate::words;

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
    let source = match &from {
        Operand::Local(source) => Some(&**source),
        Operand::Remote(_) | Operand::Address(_) => None,
    };
    if let Operand::Address(_) = &from {
        let every = words::say_seconds(between_looks(args.watch_every).as_secs_f64());
        output::aside(format_args!(
            "gtp: a server reports no changes; the trees are compared every {every}"
        ));
    }
    let mut signals = Signals::take().map_err(other)?;
    let mut watch = source.map(Watch::begin).transpose()?;
    let mut rounds = Rounds::new(args, filter, (&from, &to), source);
    loop {
        if let Some(watch) = &mut watch {
            watch.renew();
        }
        let Some(ended) = rounds.run_unless(&mut signals).await else { break };
        let next = rounds.next(ended).await?;
        let paused = async {
            match &watch {
                Some(watch) => watch.pause(next).await,
                None => rounds.pause(next).await,
            }
        };
        tokio::select! {
            () = paused => {}
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
    /// The source, if it is here.
    source: Option<&'a Path>,
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
        source: Option<&'a Path>,
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
            let ends = self.ends.insert(Ends::find(self.args, from, to).await?);
            ends.refuse_backups(self.args)?;
            if let (Operand::Remote(_), Some(far)) = (self.from, &ends.far) {
                far.watch().await?;
            }
        }
        let Some(ends) = &mut self.ends else { return Ok(done()) };
        if let Some(source) = self.source {
            match ends.look_anew(source) {
                // A new version may come at any time; the far end is kept for it.
                Err(failure) if failure.kind == FailureKind::Missing && self.has_served => {
                    output::aside(format_args!("gtp: {failure}"));
                    return Ok(ExitCode::from(FailureKind::Partial.exit_code()));
                }
                looked => looked?,
            }
        }
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

    /// Waits for the next round of a source elsewhere.
    async fn pause(&mut self, next: Next) {
        let most = match (next, self.from) {
            // The far end has failed, and no event says when it is back: this is the pause between
            // two tries.
            (Next::After(wait), _) => return sleep(wait).await,
            (Next::ChangeOr(wait), _) => wait,
            // A server reports no changes, so its tree is compared after a pause.
            (Next::Change, Operand::Address(_)) => {
                return sleep(between_looks(self.args.watch_every)).await;
            }
            (Next::Change, Operand::Local(_) | Operand::Remote(_)) => LOOK_SPAN,
        };
        // A far end may report changes as often as it likes: this is the least time between rounds.
        let least = sleep(LEAST_SPAN);
        let far = self.ends.as_mut().and_then(|ends| ends.far.as_mut());
        let changed = async {
            match far {
                // If it is gone, the next round says so.
                Some(far) => far.changed().await,
                None => std::future::pending().await,
            }
        };
        // After that time there is a round in any case.
        let _ = timeout(most, changed).await;
        least.await;
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

impl<'a> Watch<'a> {
    fn begin(source: &'a Path) -> Result<Watch<'a>, Failure> {
        // What is not there is told as elsewhere.
        if Here::single(source)?.is_none() {
            Here::source(source)?;
        }
        Ok(Watch { source, watched: Some(Watched::begin(source)?) })
    }

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

/// Time between two looks at a server, of which the user wishes `watch_every`: rounds without a
/// pause would only load it.
fn between_looks(watch_every: Duration) -> Duration {
    watch_every.max(LEAST_SPAN)
}

/// Time between two rounds at least if the source is elsewhere.
const LEAST_SPAN: Duration = Duration::from_secs(1);

/// Longest wait after a failed round.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Time for a round to keep what is complete when the user ends it.
const LAST_SPAN: Duration = Duration::from_secs(10);

/// Time after which a round looks at a source that has told of no change. Some file systems tell
/// of none, such as those of a network.
const LOOK_SPAN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_not_looked_at_without_a_pause_whatever_the_user_wishes() {
        assert_eq!(between_looks(Duration::ZERO), LEAST_SPAN);
        assert_eq!(between_looks(LEAST_SPAN * 5), LEAST_SPAN * 5);
    }
}
