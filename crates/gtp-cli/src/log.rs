//! Diagnostics of `gtp` and of `gtpd`, which are no results.
//!
//! They go to standard error, and a reader of it that goes away is no failure of the command. A
//! server puts a queue before it, so that a reader that stands still does not hold it up, and
//! rations warnings, as a client may cause any of them: a second may bring one, and the number of
//! those that were left out. Whoever asks for details gets them all. What each line has beside its
//! words is the command's to say.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gtp::Bucket;
use gtp_sys::Clock;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{DefaultFields, Format};
use tracing_subscriber::fmt::{MakeWriter, SubscriberBuilder};

use crate::lines::Lines;

/// Diagnostics go to standard error, as `GTP_LOG` wants them.
pub fn to_stderr() -> SubscriberBuilder<DefaultFields, Format, EnvFilter, Diagnostics> {
    let filter = EnvFilter::try_from_env("GTP_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Diagnostics)
        // It would print its errors where it just failed to print, and panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
}

/// From now on lines for standard error wait in a queue, and their writers do not wait.
///
/// # Errors
/// When the system gives no thread.
pub fn never_wait() -> io::Result<()> {
    let missing =
        |lines| format!("not shown here: {} not read in time\n", gtp_text::count(lines, "line"));
    let _ = RATION.set(Mutex::new(Ration::new(Clock::start())));
    // A second call finds it set.
    let _ = QUEUE.set(Lines::to(io::stderr(), missing, |_| {})?);
    Ok(())
}

/// Waits until what was said is written, for a second at most.
pub fn drain() {
    if let Some(queue) = QUEUE.get() {
        queue.drain(DRAIN_SPAN);
    }
}

/// Standard error, behind the queue if there is one. Whole lines must be written at once.
pub struct Errors;

impl Write for Errors {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match QUEUE.get() {
            Some(queue) => queue.push(line),
            None => return io::stderr().lock().write(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static QUEUE: OnceLock<Lines> = OnceLock::new();

/// Makes writers for diagnostics.
pub struct Diagnostics;

impl<'a> MakeWriter<'a> for Diagnostics {
    type Writer = Diagnostic;

    fn make_writer(&'a self) -> Diagnostic {
        Diagnostic::Wanted
    }

    fn make_writer_for(&'a self, of: &tracing::Metadata<'_>) -> Diagnostic {
        let ration = RATION.get().filter(|_| *of.level() <= Level::WARN);
        let Some(ration) = ration else { return Diagnostic::Wanted };
        let left_out = ration.lock().unwrap_or_else(PoisonError::into_inner).take();
        match left_out {
            None => Diagnostic::LeftOut,
            Some(0) => Diagnostic::Wanted,
            Some(left_out) => {
                let lines = gtp_text::count(left_out, "line");
                let _ = Errors.write_all(format!("left out here: {lines}\n").as_bytes());
                Diagnostic::Wanted
            }
        }
    }
}

/// Where one diagnostic goes.
pub enum Diagnostic {
    /// To standard error.
    Wanted,
    /// Nowhere: there were too many.
    LeftOut,
}

impl Write for Diagnostic {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Diagnostic::Wanted => Errors.write(line),
            Diagnostic::LeftOut => Ok(line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Which diagnostics of a server are written.
struct Ration {
    clock: Clock,
    bucket: Bucket,
    left_out: u64,
}

/// Of a server's diagnostics: one in a second, and ten at once, for its start.
const DIAGNOSTICS: Bucket = Bucket::new(1, 10);

impl Ration {
    fn new(clock: Clock) -> Ration {
        Ration { clock, bucket: DIAGNOSTICS, left_out: 0 }
    }

    /// Whether one more may be written; then, how many were left out before it.
    fn take(&mut self) -> Option<u64> {
        if self.bucket.take(self.clock.now()) {
            return Some(std::mem::take(&mut self.left_out));
        }
        self.left_out += 1;
        None
    }
}

static RATION: OnceLock<Mutex<Ration>> = OnceLock::new();

/// A live reader takes what waits in much less time; a stopped one must not keep the process.
pub const DRAIN_SPAN: Duration = Duration::from_secs(1);
