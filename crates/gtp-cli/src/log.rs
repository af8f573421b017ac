//! Diagnostics of `gtp` and of `gtpd`, which are no results.
//!
//! They go to standard error, and a reader of it that goes away is no failure of the command. A
//! server puts a queue before it, so that a reader that stands still does not hold it up. What
//! each line has beside its words is the command's to say.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format};

use crate::lines::Lines;

/// Diagnostics go to standard error, as `GTP_LOG` wants them.
pub fn to_stderr() -> SubscriberBuilder<DefaultFields, Format, EnvFilter, fn() -> Errors> {
    let filter = EnvFilter::try_from_env("GTP_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer((|| Errors) as fn() -> Errors)
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
    // A second call finds it set.
    let _ = QUEUE.set(Lines::to(io::stderr(), missing)?);
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

/// A live reader takes what waits in much less time; a stopped one must not keep the process.
pub const DRAIN_SPAN: Duration = Duration::from_secs(1);
