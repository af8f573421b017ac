//! Diagnostics of commands that are no services: words on standard error.
//!
//! They have neither time nor source, and colours on a terminal, because a person waits for the
//! command. How lines are queued and rationed is `log`'s to know.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::log::Diagnostics;

/// Diagnostics go to standard error, as `GTP_LOG` wants them.
pub fn to_stderr() {
    let filter = EnvFilter::try_from_env("GTP_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Diagnostics)
        // It would print its errors where it just failed to print, and panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
}
