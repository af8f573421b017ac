//! Standard output and standard error, and what happens when nobody reads them any more.
//!
//! A reader that goes away (`gtp ls | head -1`) is no failure: what is left to say is not said, and
//! the command ends as it would have ended. Nothing else in this crate writes to either stream,
//! because the standard macros panic there.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use gtp::{Failure, FailureKind};

/// Writes one line of result to standard output, at once.
///
/// # Errors
/// When it could not be written although somebody reads: a full disk, for example.
pub fn line(text: impl Display) -> Result<(), Failure> {
    text_as_it_is(format_args!("{text}\n"))
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
    let _ = to(io::stderr().lock(), &format!("{text}\n"));
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

fn result(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(FailureKind::Destination, named(error).to_string())),
    }
}
