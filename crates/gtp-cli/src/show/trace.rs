//! Samples of every session, ten a second, as JSON lines in a file.
//!
//! A trace is for whoever studies a transfer afterwards: the same fields as in the progress of
//! `--json`, with the time since the request. A full disk costs the trace, and makes the command
//! fail at its end; it does not cost the transfer.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use gtp::{Failure, FailureKind, Progress};
use serde_json::json;

use super::json;

/// The file that samples go to.
pub struct Trace {
    out: BufWriter<File>,
    path: PathBuf,
    /// Why samples are missing.
    lost: Option<io::Error>,
}

impl Trace {
    /// Makes the file, or empties it.
    pub fn create(path: &Path) -> Result<Trace, Failure> {
        let file = File::create(path).map_err(|error| failure(path, &error))?;
        Ok(Trace { out: BufWriter::new(file), path: path.to_owned(), lost: None })
    }

    pub fn sample(&mut self, progress: &Progress) {
        let seconds = progress.elapsed.as_secs_f64();
        for share in &progress.sources {
            let mut sample = json::source(share);
            sample["seconds"] = json!(seconds);
            let line = gtp_text::escape_json(&sample.to_string());
            if let Err(error) = writeln!(self.out, "{line}") {
                self.lost.get_or_insert(error);
            }
        }
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// Why samples are missing, if some are.
    pub fn flush(&mut self) -> Result<(), Failure> {
        match self.lost.take().map_or_else(|| self.out.flush(), Err) {
            Ok(()) => Ok(()),
            Err(error) => Err(failure(&self.path, &error)),
        }
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(FailureKind::Destination, format!("{}: {error}", path.display()))
}
