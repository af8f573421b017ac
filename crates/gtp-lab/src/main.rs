//! `gtp-lab`: questions about allocations, answered without a network.
//!
//! This file knows the verbs' names, prints errors and chooses exit codes. Each verb has a file
//! of its own, which reads, computes through the library crates and writes.

mod figures;
mod maxmin;
mod refusal;
mod series;

use clap::{Parser, Subcommand};
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
    /// Print the exact max-min fair rates of a network of sessions.
    Maxmin(maxmin::Maxmin),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().verb {
        Verb::Maxmin(arguments) => maxmin::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            eprintln!("gtp-lab: {refusal}");
            refusal.exit_code()
        }
    }
}
