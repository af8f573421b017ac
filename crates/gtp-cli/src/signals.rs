//! The user's wish to stop: the first one is obeyed cleanly, the second at once.
//!
//! Interrupt and termination mean the same here. What a clean stop is, and what happens at the
//! second signal, is decided by the verb that waits.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interrupt and termination.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes the signals over from their default.
    pub fn take() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
