//! `gtp man`: a manual page for the command, one for each verb, and one for the list of keys.
//!
//! Those of verbs are made from the same definition that parses, so they cannot fall behind.
//! Packagers run this at build time.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use gtp::{Failure, FailureKind};

pub fn run(dir: &Path) -> Result<ExitCode, Failure> {
    let written = std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(crate::args::Cli::command(), dir))
        .and_then(|()| std::fs::write(dir.join("gtp-authorized_keys.5"), AUTHORIZED_KEYS_PAGE));
    written.map_err(|error| {
        Failure::new(FailureKind::Destination, format!("{}: {error}", dir.display()))
    })?;
    Ok(ExitCode::SUCCESS)
}

const AUTHORIZED_KEYS_PAGE: &str = include_str!("../../man/gtp-authorized_keys.5");
