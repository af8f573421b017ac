//! The verbs that work on scenarios. Each reads, runs through `course` and writes.
//!
//! They know files, terminals and threads, which nothing below them does; what is printed to
//! standard output is the result, everything else goes to standard error.

pub mod grid;
pub(crate) mod pool;
pub mod replay;
pub mod run;
pub mod sweep;
pub mod universe;

use std::io::IsTerminal as _;
use std::path::Path;
use std::{fs, io};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use crate::refusal::Refusal;
use crate::scenario::model;

/// A level, on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Every packet
    Packet,
    /// Rates alone
    Rate,
}

impl From<Level> for model::Level {
    fn from(level: Level) -> model::Level {
        match level {
            Level::Packet => model::Level::Packet,
            Level::Rate => model::Level::Rate,
        }
    }
}

/// Makes the directory that results go into, before what takes long.
///
/// # Errors
/// If it cannot be made.
pub fn make(out: &Path) -> Result<(), Refusal> {
    fs::create_dir_all(out).map_err(|e| unwritten(out, &e))
}

/// Results cannot be written.
pub fn unwritten(out: &Path, e: &io::Error) -> Refusal {
    Refusal::Other(format!("cannot write to {}: {e}", out.display()))
}

/// A bar on the terminal; none where there is no terminal.
pub fn bar(steps: u64, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps).with_message(what.to_owned());
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent} % {eta}");
    bar.with_style(style.map_or_else(|_| ProgressStyle::default_bar(), |s| s.progress_chars("=> ")))
}
