//! Standard output and standard error, and what happens when nobody reads them any more.
//!
//! A reader that goes away (`gtp-lab repro --list | head`) is no failure: what is left to say is
//! not said, and the work goes on to its end, since it may write files beside. Output that cannot
//! be written although somebody wants it (a full disk) ends the program, because a result that is
//! half there is worse than none. The standard macros would panic in both cases.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints a line of result.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// Prints a line for people beside the result.
#[macro_export]
macro_rules! aside {
    ($($text:tt)*) => { $crate::output::aside(format_args!($($text)*)) };
}

/// Writes one line of result to standard output.
pub fn line(text: impl Display) {
    self::text(format_args!("{text}\n"));
}

/// Writes text of result to standard output as it is.
pub fn text(text: impl Display) {
    if let Some(error) = failure_of(to(io::stdout().lock(), &text.to_string())) {
        aside(format_args!("standard output: {error}"));
        std::process::exit(FAILED);
    }
}

/// Writes one line to standard error. If that fails there is nobody to tell.
pub fn aside(text: impl Display) {
    let _ = to(io::stderr().lock(), &format!("{text}\n"));
}

/// In one piece, so that lines of several threads do not mix.
fn to(mut out: impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What of an attempt to write is a failure of the program.
fn failure_of(written: io::Result<()>) -> Option<io::Error> {
    written.err().filter(|error| error.kind() != ErrorKind::BrokenPipe)
}

/// Exit code of a program whose result cannot be written: "destination" in README's table.
const FAILED: i32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_goes_away_is_no_failure_and_a_full_disk_is_one() {
        assert!(failure_of(Err(ErrorKind::BrokenPipe.into())).is_none());
        assert!(failure_of(Err(ErrorKind::StorageFull.into())).is_some());
        assert!(failure_of(Ok(())).is_none());
    }
}
