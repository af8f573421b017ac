//! Diagnostics of `gtp` and of `gtpd`, which are no results.
//!
//! They go to standard error, and a reader of it that goes away is no failure of the command. A
//! server puts a queue before it, so that a reader that stands still does not hold it up, and
//! rations warnings, as a client may cause any of them. Each place in the program that warns has a
//! ration of its own, so that many warnings of one kind do not hide another. Errors are always
//! written, and if `GTP_LOG` asks for details, so is everything. What each line has beside its
//! words is the command's to say.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gtp::{Span, Time};
use gtp_sys::Clock;
use tracing::Level;
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{DefaultFields, Format};
use tracing_subscriber::fmt::{MakeWriter, SubscriberBuilder};

use crate::lines::Lines;
use crate::patient::Patient;

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
    if LevelFilter::current() < LevelFilter::DEBUG {
        let _ = RATION.set((Clock::start(), Mutex::default()));
    }
    // A second call finds it set.
    let _ = QUEUE.set(Lines::to(Patient(io::stderr()), missing, |_| {})?);
    Ok(())
}

/// Says what was left out since, and waits until all is written, for a second at most.
pub fn drain() {
    if let Some((_, ration)) = RATION.get() {
        let rest = ration.lock().unwrap_or_else(PoisonError::into_inner).take_rest();
        for (module, more) in rest {
            say_left_out(&module, more);
        }
    }
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
            None => return Patient(io::stderr().lock()).write(line),
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
        let ration = RATION.get().filter(|_| *of.level() == Level::WARN);
        let Some((clock, ration)) = ration else { return Diagnostic::Wanted };
        let mut ration = ration.lock().unwrap_or_else(PoisonError::into_inner);
        match ration.take(of.callsite(), of.target(), clock.now()) {
            None => Diagnostic::LeftOut,
            Some(0) => Diagnostic::Wanted,
            Some(more) => {
                say_left_out(of.target(), more);
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

/// Writes how many warnings of one kind were left out.
fn say_left_out(module: &str, more: u64) {
    let line = format!("and {more} more like this from {module}\n");
    // If standard error cannot be written, there is no one to tell.
    let _ = Errors.write_all(line.as_bytes());
}

/// Which warnings of a server are written. `K` tells kinds apart.
struct Ration<K> {
    kinds: HashMap<K, Kind>,
}

/// What was written of one kind of warning.
struct Kind {
    module: String,
    /// When the present period began.
    since: Time,
    /// Warnings written in it.
    written: u32,
    /// Warnings left out, and not told.
    left_out: u64,
}

/// Warnings of one kind that are written in a period. All kinds together, and what is said of those
/// left out, stay below two lines a second: there are about twenty.
const WRITTEN_MOST: u32 = 2;
/// The length of a period, which begins with a warning.
const PERIOD: Span = Span::from_secs(30);

impl<K> Default for Ration<K> {
    fn default() -> Ration<K> {
        Ration { kinds: HashMap::new() }
    }
}

impl<K: Eq + Hash> Ration<K> {
    /// Counts a warning. Returns how many of its kind were left out before it, and not told, if it
    /// is to be written.
    fn take(&mut self, kind: K, module: &str, now: Time) -> Option<u64> {
        let new = || Kind { module: module.into(), since: now, written: 0, left_out: 0 };
        let kind = self.kinds.entry(kind).or_insert_with(new);
        if now.since(kind.since) >= PERIOD {
            (kind.since, kind.written) = (now, 0);
        }
        if kind.written == WRITTEN_MOST {
            kind.left_out += 1;
            return None;
        }
        kind.written += 1;
        Some(std::mem::take(&mut kind.left_out))
    }

    /// Returns how many were left out of each kind, and not told, with the module of each.
    fn take_rest(&mut self) -> Vec<(String, u64)> {
        let rest = self.kinds.values_mut();
        let rest = rest.map(|kind| (kind.module.clone(), std::mem::take(&mut kind.left_out)));
        rest.filter(|(_, more)| *more > 0).collect()
    }
}

static RATION: OnceLock<(Clock, Mutex<Ration<Identifier>>)> = OnceLock::new();

/// A live reader takes what waits in much less time; a stopped one must not keep the process.
pub const DRAIN_SPAN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_warning_hides_no_other_and_each_that_was_left_out_is_counted() {
        let (mut ration, start) = (Ration::default(), Time::from_nanos(1));
        let (mut written, mut told) = (0, 0);
        for ms in 0..100_000 {
            let before = ration.take("flood", "net", start + Span::from_millis(ms));
            written += u64::from(before.is_some());
            told += before.unwrap_or(0);
        }
        let now = start + Span::from_secs(100);
        assert_eq!(written, 8, "two in each of four periods");
        assert_eq!(ration.take("another", "store", now), Some(0));
        let more = 100_000 - written - told;
        assert_eq!(ration.take_rest(), [("net".to_owned(), more)]);
        assert_eq!(ration.take_rest(), []);
        assert_eq!(ration.take("flood", "net", now), None);
    }
}
