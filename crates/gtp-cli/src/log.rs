//! Diagnostics of `gtp` and of `gtpd`, which are no results.
//!
//! They go to standard error, and a reader of it that goes away is no failure of the command. What
//! each line has beside its words is the command's to say.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format};

/// Diagnostics go to standard error, as `GTP_LOG` wants them.
pub fn to_stderr() -> SubscriberBuilder<DefaultFields, Format, EnvFilter, fn() -> io::Stderr> {
    let filter = EnvFilter::try_from_env("GTP_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr as fn() -> io::Stderr)
        // It would print its errors where it just failed to print, and panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
}
