//! Sources on this machine beside others elsewhere, where everything comes here.
//!
//! They go beneath the destination as the others do, block by block, and resume after an
//! interruption. They use no connection.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gtp::copy::{Copied, OwnCopy};
use gtp::{Event, Failure, FailureKind, FilesInOrder, Outcome, Progress, Span, Time};
use gtp_sys::Clock;
use tokio::task::spawn_blocking;

use super::Copy;
use super::paths::is_content;
use crate::sync::real;
use crate::verbs::other;
use crate::verbs::transfer::{LOOK_SPAN, time_limit};

/// A copy under way, for those who watch it.
struct Watched {
    stop: Arc<AtomicBool>,
    copied: Arc<AtomicU64>,
    clock: Clock,
    began: Time,
    resumed_bytes: u64,
    total: u64,
    files: u64,
    whole: Mutex<FilesInOrder>,
}

impl Copy<'_> {
    /// Copies what is here beneath a directory; says whether to go on with what is elsewhere.
    pub(super) async fn copy_own(&mut self, from: &[PathBuf], to: &Path) -> bool {
        for path in from {
            let ended = self.copy_one(path, to).await;
            if !self.ends.take(ended, &mut self.shower) {
                return false;
            }
        }
        true
    }

    async fn copy_one(&mut self, from: &Path, to: &Path) -> Result<Outcome, Failure> {
        refuse_nested(from, to)?;
        let clock = Clock::start();
        let began = clock.now();
        let (path, dir) = (from.to_owned(), to.to_owned());
        let opened = spawn_blocking(move || OwnCopy::open(&path, &dir)).await.map_err(other)?;
        let copy = opened?;
        let (manifest, told) = (copy.manifest(), copy.skipped().len());
        let watched = Watched {
            stop: Arc::default(),
            copied: Arc::default(),
            clock,
            began,
            resumed_bytes: copy.resumed_bytes(),
            total: manifest.content_bytes(),
            files: manifest.files(),
            whole: Mutex::new(FilesInOrder::of(Arc::clone(&manifest))),
        };
        self.shower.begin();
        self.shower.event(&Event::Started {
            destination: copy.shown().to_owned(),
            kind: manifest.root_kind,
            files: manifest.files(),
            bytes: watched.total,
        });
        self.tell_left_out(copy.skipped());
        let ended = self.watch_own(copy, &watched).await;
        let ended = ended.map(|copied| watched.outcome(copied));
        if let Ok(outcome) = &ended {
            self.tell_left_out(&outcome.skipped[told..]);
        }
        self.shower.end(&ended);
        ended
    }

    fn tell_left_out(&mut self, left_out: &[Failure]) {
        for failure in left_out {
            self.shower.event(&Event::Skipped(failure.clone()));
        }
    }

    /// Shows a copy to its end; obeys signals and the time limit.
    async fn watch_own(&mut self, copy: OwnCopy, watched: &Watched) -> Result<Copied, Failure> {
        let (stop, copied) = (Arc::clone(&watched.stop), Arc::clone(&watched.copied));
        let mut copying = spawn_blocking(move || copy.run(&stop, &copied));
        let mut limit = pin!(time_limit(&self.args.transfer));
        let mut look = tokio::time::interval(LOOK_SPAN);
        let mut stopped = None;
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut copying => break ended.map_err(other)?,
                () = self.signals.next() => {
                    if stopped == Some(FailureKind::Interrupted) {
                        std::process::exit(i32::from(FailureKind::Interrupted.exit_code()));
                    }
                    stopped = Some(FailureKind::Interrupted);
                    watched.stop.store(true, Ordering::Relaxed);
                }
                () = &mut limit, if stopped.is_none() => {
                    stopped = Some(FailureKind::TimeLimit);
                    watched.stop.store(true, Ordering::Relaxed);
                }
                _ = look.tick() => self.shower.progress(&watched.progress()),
            }
        };
        ended.map_err(|failure| match stopped {
            Some(kind) if failure.kind == FailureKind::Interrupted => {
                let text = "stopped; what is complete is kept, repeat the command to go on";
                Failure::new(kind, text)
            }
            Some(_) | None => failure,
        })
    }
}

impl Watched {
    fn elapsed(&self) -> Span {
        self.clock.now().since(self.began)
    }

    fn progress(&self) -> Progress {
        let copied = self.copied.load(Ordering::Relaxed);
        let bytes = self.resumed_bytes.saturating_add(copied).min(self.total);
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        Progress {
            elapsed: self.elapsed(),
            bytes,
            resumed_bytes: self.resumed_bytes,
            total: self.total,
            files_done: whole.whole(bytes),
            files: self.files,
            ..Progress::default()
        }
    }

    fn outcome(&self, Copied { finished, skipped }: Copied) -> Outcome {
        let progress = Progress { bytes: self.total, ..self.progress() };
        Outcome {
            bytes: self.total,
            resumed_bytes: self.resumed_bytes,
            elapsed: progress.elapsed,
            files_written: finished.files_written,
            files_unchanged: finished.files_unchanged,
            blake3: finished.root,
            progress,
            skipped,
        }
    }
}

/// Refuses a directory that is to go beneath itself.
fn refuse_nested(from: &Path, to: &Path) -> Result<(), Failure> {
    let (source, destination) = (real(from), real(to));
    let is_itself = source == destination && is_content(&from.to_string_lossy());
    if !is_itself && from.is_dir() && destination.starts_with(&source) {
        let text = "the destination is inside the source";
        let shown = gtp_text::of_text(&from.to_string_lossy());
        return Err(Failure::new(FailureKind::Usage, text).about(shown));
    }
    Ok(())
}
