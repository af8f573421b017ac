//! A transfer under way.
//!
//! It runs in a task of its own, whether anybody looks or not. Events, progress, stop and outcome
//! are four separate channels, so that none of them can hold up another.

use std::future::Future;

use gtp_net::client::{Event, Monitor, Outcome, Progress};
use gtp_net::flows::{Failure, FailureKind};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// A transfer that runs on the tokio runtime where it was started. Dropping it stops it; what is
/// complete is kept for a resume.
#[derive(Debug)]
pub struct Transfer {
    events: mpsc::UnboundedReceiver<Event>,
    progress: watch::Receiver<Progress>,
    stop: watch::Sender<Option<FailureKind>>,
    task: JoinHandle<Result<Outcome, Failure>>,
}

/// Stops a transfer from elsewhere.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<Option<FailureKind>>);

impl Stopper {
    /// Stops the transfer, which then fails with this kind; the first stop counts.
    pub fn stop(&self, kind: FailureKind) {
        self.0.send_if_modified(|stop| {
            let first = stop.is_none();
            if first {
                *stop = Some(kind);
            }
            first
        });
    }
}

impl Transfer {
    pub(crate) fn spawn<F>(start: impl FnOnce(Monitor) -> F) -> Transfer
    where
        F: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let (events_in, events) = mpsc::unbounded_channel();
        let (progress_in, progress) = watch::channel(Progress::default());
        let (stop, stopped) = watch::channel(None);
        let monitor = Monitor { events: events_in, progress: progress_in, stop: stopped };
        let task = tokio::spawn(start(monitor));
        Transfer { events, progress, stop, task }
    }

    /// The next event; `None` when the transfer is over. Safe to cancel.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// How it is doing, at most a tenth of a second old.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// A way to stop it from elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// [`Failure`]; what is complete is kept, and the same request resumes.
    pub async fn wait(&mut self) -> Result<Outcome, Failure> {
        let over = |e| Err(Failure::new(FailureKind::Other, format!("the transfer broke: {e}")));
        (&mut self.task).await.unwrap_or_else(over)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // The task ends by itself once it has kept what is complete.
        Stopper(self.stop.clone()).stop(FailureKind::Interrupted);
    }
}
