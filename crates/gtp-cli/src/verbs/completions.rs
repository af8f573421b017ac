//! `gtp completions`: a script that teaches a shell the command's words.
//!
//! It is made from the same definition that parses, so it cannot fall behind. It goes to standard
//! output; where it belongs differs from shell to shell.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use gtp::Failure;

use crate::output;

pub fn run(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::args::Cli::command(), "gtp", &mut script);
    output::text_as_it_is(String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
