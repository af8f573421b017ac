//! The `gtp` command: words in, words out.
//!
//! This crate parses, converts, waits and prints; everything else is the library's. Each verb is
//! a file, and each ends in one exit code, whose meaning does not change.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod accepting;
mod args;
mod bench;
mod config;
mod cp;
mod daemon;
mod demo;
mod lines;
mod log;
mod output;
mod patient;
mod run;
mod show;
mod signals;
mod sync;
mod top;
mod verbs;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    gtp_sys::memory::give_back_large();
    log::to_stderr().without_time().with_target(false).init();
    let code = match args::parse() {
        Ok(verb) => verbs::run(verb),
        Err(code) => code,
    };
    output::drain();
    code
}
