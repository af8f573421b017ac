//! Standard output and standard error, and what happens when they cannot be written.
//!
//! A reader that goes away (`gtp ls | head -1`) is no failure: the rest of the output is dropped,
//! and the command ends as it would have ended. Output that is lost for another reason
//! (standard output is closed, its disk is full) makes the command fail, at its end if it does
//! something else as well. Nothing else in this crate writes to either stream, because the standard
//! macros panic there. A server's lines go through queues, so that a stopped reader does not hold
//! it up.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use gtp::{Failure, FailureKind};
use gtp_sys::stdio::{Stream, was_given};

use crate::lines::Lines;
use crate::log;
use crate::patient::Patient;

/// Writes one line of result to standard output, at once; what hides or commands a terminal in it
/// is escaped.
///
/// # Errors
/// When it could not be written for another reason than a missing reader: a full disk, or no
/// standard output.
pub fn line(text: impl Display) -> Result<(), Failure> {
    let text = gtp_text::of_lines(&text.to_string());
    if let Some(queue) = RESULTS.get() {
        queue.push(format!("{text}\n").as_bytes());
        return Ok(());
    }
    text_as_it_is(format_args!("{text}\n"))
}

/// From now on no writer of a line waits for its reader. Lines that the reader is too slow for are
/// dropped, and counted where they are missing.
///
/// # Errors
/// When the system gives no thread.
pub fn never_wait() -> io::Result<()> {
    log::never_wait()?;
    let missing = |count| format!("{{\"event\":\"missing\",\"lines\":{count}}}\n");
    // Without standard output each line fails, and is remembered as lost.
    if let Ok(out) = out() {
        // A second call finds it set.
        let _ = RESULTS.set(Lines::to(Patient(out), missing, |error| lose(lost_by(error)))?);
    }
    Ok(())
}

/// Waits until what was said is written, for a second at most for either stream.
pub fn drain() {
    if let Some(queue) = RESULTS.get() {
        queue.drain(log::DRAIN_SPAN);
    }
    log::drain();
}

/// Writes one JSON object a line to standard output, at once. Characters that a terminal would obey
/// or hide are escaped within its strings, which mean the same to a program.
///
/// # Errors
/// As [`line`].
pub fn json(value: impl Display) -> Result<(), Failure> {
    line(gtp_text::escape_json(&value.to_string()))
}

/// Writes text of result to standard output as it is, at once.
///
/// # Errors
/// As [`line`].
pub fn text_as_it_is(text: impl Display) -> Result<(), Failure> {
    let text = text.to_string();
    // The lock keeps the lines of several threads apart.
    let _turn = io::stdout().lock();
    result(out().and_then(|out| Patient(out).write_all(text.as_bytes())))
}

/// Writes one JSON object a line beside a job that goes on whether or not this is possible. What is
/// lost is told by [`lost`].
pub fn line_beside(text: impl Display) {
    if let Err(failure) = json(text) {
        lose(failure);
    }
}

/// Notes that output beside a job is lost, which makes the command fail at its end.
pub fn lose(failure: Failure) {
    // Only the first is told.
    let _ = LOST.set(failure);
}

/// Why output that was written by [`line_beside`], or that waited in a queue, is lost, if it is.
pub fn lost() -> Option<Failure> {
    LOST.get().cloned()
}

static LOST: OnceLock<Failure> = OnceLock::new();

/// Writes one line for people to standard error, escaped like [`line`]. If that fails there is
/// no one to tell.
pub fn aside(text: impl Display) {
    let shown = gtp_text::of_lines(&text.to_string());
    let _ = to(log::Errors, &format!("{shown}\n"));
}

/// Standard output as the place that data go to: there a reader that goes away is a failure, and
/// errors say where they come from.
pub struct Data(File);

impl Data {
    /// Standard output, if there is one.
    ///
    /// # Errors
    /// [`FailureKind::Destination`] when it is closed.
    pub fn open() -> Result<Data, Failure> {
        let out = out().and_then(|out| out.try_clone()).map_err(named);
        out.map(Data).map_err(|e| Failure::new(FailureKind::Destination, e.to_string()))
    }

    /// The same as a file, for asynchronous writing.
    pub fn into_file(self) -> File {
        self.0
    }
}

impl Write for Data {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Patient(&self.0).write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether there is a standard input to read data from.
///
/// # Errors
/// [`FailureKind::Missing`] when it is closed.
pub fn check_input() -> Result<(), Failure> {
    if was_given(Stream::In) {
        return Ok(());
    }
    Err(Failure::new(FailureKind::Missing, "standard input is closed"))
}

/// Standard output without the standard library's buffer, which hides errors of a descriptor that
/// cannot be written.
fn out() -> io::Result<&'static File> {
    static OUT: OnceLock<Option<File>> = OnceLock::new();
    let out = OUT.get_or_init(|| {
        let there = was_given(Stream::Out);
        there.then(|| io::stdout().as_fd().try_clone_to_owned().ok().map(File::from)).flatten()
    });
    out.as_ref().ok_or_else(|| io::Error::other("it is closed"))
}

/// What errors call standard output.
pub const NAME: &str = "standard output";

fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{NAME}: {error}"))
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
        Err(error) => Err(lost_by(error)),
    }
}

fn lost_by(error: io::Error) -> Failure {
    Failure::new(FailureKind::Destination, named(error).to_string())
}
