//! Standard output and standard error, and what happens when nobody reads them any more.
//!
//! A reader that goes away (`gtp ls | head -1`) is no failure: what is left to say is not said, and
//! the command ends as it would have ended. Nothing else in this crate writes to either stream,
//! because the standard macros panic there. A server's lines go through queues, so that a reader
//! that stands still does not hold it up.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use gtp::{Failure, FailureKind};

use crate::lines::Lines;
use crate::log;

/// Writes one line of result to standard output, at once.
///
/// # Errors
/// When it could not be written although somebody reads: a full disk, for example.
pub fn line(text: impl Display) -> Result<(), Failure> {
    if let Some(queue) = RESULTS.get() {
        queue.push(format!("{text}\n").as_bytes());
        return Ok(());
    }
    text_as_it_is(format_args!("{text}\n"))
}

/// From now on nobody who writes a line waits for its reader. What a reader is too slow for is
/// dropped, and counted where it is missing.
///
/// # Errors
/// When the system gives no thread.
pub fn never_wait() -> io::Result<()> {
    log::never_wait()?;
    let missing = |count| format!("{{\"event\":\"missing\",\"lines\":{count}}}\n");
    // Who asks twice has it already.
    let _ = RESULTS.set(Lines::to(io::stdout(), missing)?);
    Ok(())
}

/// Waits until what was said is written, for a second at most for either stream.
pub fn drain() {
    if let Some(queue) = RESULTS.get() {
        queue.drain(log::DRAIN_SPAN);
    }
    log::drain();
}

/// Writes text of result to standard output as it is, at once.
///
/// # Errors
/// As [`line`].
pub fn text_as_it_is(text: impl Display) -> Result<(), Failure> {
    result(to(io::stdout().lock(), &text.to_string()))
}

/// Writes one line for people to standard error. If that fails there is nobody to tell.
pub fn aside(text: impl Display) {
    let _ = to(log::Errors, &format!("{text}\n"));
}

/// Standard output as the place that fetched data go to: there a reader that goes away is a
/// failure, and errors say where they come from.
pub struct Data;

impl Write for Data {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// In one piece, so that lines of several processes do not mix.
fn to(mut out: impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What a server says to programs.
static RESULTS: OnceLock<Lines> = OnceLock::new();

fn result(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(FailureKind::Destination, named(error).to_string())),
    }
}
