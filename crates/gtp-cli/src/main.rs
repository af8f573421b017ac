//! The `gtp` command: words in, words out.
//!
//! This crate parses, converts, waits and prints; everything else is the library's. Each verb is
//! a file, and each ends in one exit code, whose meaning does not change.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod accepting;
mod args;
mod bench;
mod candidates;
mod config;
mod cp;
mod daemon;
mod demo;
mod doctor;
mod exports;
mod hosts;
mod keys;
mod limit;
mod lines;
mod log;
mod log_settings;
mod loopback;
mod manager;
mod origins;
mod output;
mod pages;
mod patient;
mod plain_log;
mod plan;
mod probe;
mod refused;
mod routers;
mod run;
mod shell;
mod show;
mod signals;
mod ssh;
mod sync;
mod toml_words;
mod top;
mod verbs;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    gtp_sys::memory::give_back_large();
    // Without it a limit of file sizes ends the process, as it does elsewhere.
    let _ = gtp_sys::signals::survive_file_limit();
    let parsed = args::parse();
    match &parsed {
        Ok(args::Verb::Serve(args)) => log_settings::set(args.log_format, args.log.as_deref()),
        Ok(_) | Err(_) => plain_log::to_stderr(),
    }
    let code = match parsed {
        Ok(verb) => verbs::run(verb),
        Err(code) => code,
    };
    output::drain();
    code
}
