//! Diagnostics of commands that are no services: words on standard error.
//!
//! They have neither time nor source, and colours on a terminal, because a person waits for the
//! command. How lines are queued and rationed is `log`'s to know.

use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::log::{Diagnostics, read_filter};

/// Diagnostics go to standard error, as `GTP_LOG` wants them.
pub fn to_stderr() {
    let wanted = std::env::var("GTP_LOG").ok().and_then(|wanted| read_filter(&wanted).ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(Diagnostics)
        // It would print its errors where it just failed to print, and panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_target(false);
    tracing_subscriber::registry().with(filter).with(layer).init();
}
