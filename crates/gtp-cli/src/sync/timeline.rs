//! Where the time of a `sync` goes.
//!
//! `GTP_LOG=gtp::timeline=debug` shows each step when it is done, with the milliseconds since the
//! command began. The steps of a transfer count from the transfer's own beginning.

use gtp_sys::Clock;

/// The time since the command began.
#[derive(Clone, Copy)]
pub struct Timeline(Clock);

impl Timeline {
    /// Begins now.
    pub fn begin() -> Timeline {
        Timeline(Clock::start())
    }

    /// Notes that a step is done.
    pub fn done(self, step: &str) {
        let ms = self.0.now().as_nanos() / 1_000_000;
        tracing::debug!(target: "gtp::timeline", ms, "{step}");
    }
}
