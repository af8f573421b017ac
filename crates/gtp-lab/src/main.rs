//! `gtp-lab`: questions about allocations, answered without a network.
//!
//! This file knows the verbs' names, prints errors and chooses exit codes. Each verb has a file
//! of its own, which reads, computes through the library crates and writes.

mod course;
mod grid;
mod maxmin;
mod refusal;
mod report;
mod repro;
mod scenario;
mod sweep_page;
mod universe;
mod verbs;

use clap::{CommandFactory, Parser, Subcommand};
use gtp_lab::{figures, series};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exact max-min fair allocations for the Group Transport Protocol.
#[derive(Parser)]
#[command(name = "gtp-lab", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a scenario: a table, a page with figures, data.
    Run(verbs::run::Run),
    /// Run a scenario under every combination of its swept values.
    Sweep(verbs::sweep::Sweep),
    /// Run random worlds with random faults; everything must come right once these have ended.
    Universe(verbs::universe::Universe),
    /// Judge GTP on a grid of paths that nobody reserved, beside what CUBIC and BBR get there.
    Grid(verbs::grid::Grid),
    /// Run a scenario twice: it must take the same course, and a lawful one.
    Replay(verbs::replay::Replay),
    /// Print the exact max-min fair rates of a network of sessions.
    Maxmin(maxmin::Maxmin),
    /// Compute again what the papers report, and say whether it is so.
    Repro(repro::Repro),
    /// Write manual pages into a directory.
    #[command(hide = true)]
    Man {
        /// The directory; made if it is not there.
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    let verb = match Arguments::try_parse() {
        Ok(arguments) => arguments.verb,
        Err(error) if error.use_stderr() => {
            // It repeats words of the command line.
            gtp_lab::aside!("{}", gtp_text::of_lines(error.to_string().trim_end()));
            return ExitCode::from(2);
        }
        Err(asked) => asked.exit(),
    };
    let outcome = match verb {
        Verb::Run(arguments) => verbs::run::run(&arguments),
        Verb::Sweep(arguments) => verbs::sweep::run(&arguments),
        Verb::Universe(arguments) => verbs::universe::run(&arguments),
        Verb::Grid(arguments) => verbs::grid::run(&arguments),
        Verb::Replay(arguments) => verbs::replay::run(&arguments),
        Verb::Maxmin(arguments) => maxmin::run(&arguments),
        Verb::Repro(arguments) => repro::run(&arguments),
        Verb::Man { directory } => return write_pages(&directory),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            gtp_lab::aside!("gtp-lab: {refusal}");
            refusal.exit_code()
        }
    }
}

/// Writes a manual page for the command and one for each verb.
fn write_pages(directory: &Path) -> ExitCode {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            gtp_lab::aside!("gtp-lab: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
