//! Samples of every session, ten a second, as JSON lines in a file.
//!
//! A trace is for whoever studies a transfer afterwards: the same fields as in the progress of
//! `--json`, with the time since the request. To lose it never costs the transfer.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use gtp::{Failure, FailureKind, Progress};
use serde_json::json;

use super::json;

/// The file that samples go to.
pub struct Trace {
    out: BufWriter<File>,
}

impl Trace {
    /// Makes the file, or empties it.
    pub fn create(path: &Path) -> Result<Trace, Failure> {
        let file = File::create(path).map_err(|error| {
            Failure::new(FailureKind::Destination, format!("{}: {error}", path.display()))
        })?;
        Ok(Trace { out: BufWriter::new(file) })
    }

    pub fn sample(&mut self, progress: &Progress) {
        let seconds = progress.elapsed.as_secs_f64();
        for share in &progress.sources {
            let mut sample = json::source(share);
            sample["seconds"] = json!(seconds);
            // A full disk costs the trace, not the transfer.
            let _ = writeln!(self.out, "{}", gtp_text::escape_json(&sample.to_string()));
        }
    }

    pub fn flush(&mut self) {
        let _ = self.out.flush();
    }
}
