//! How far a sink is with reading again what is there already.
//!
//! Opening a sink may hash terabytes on one thread. Others see how much of it is done, and can stop
//! it at the next block. It knows no files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sink::SinkError;

/// Watches the opening of a sink from another thread.
#[derive(Debug, Default)]
pub struct Recheck {
    bytes: AtomicU64,
    stopped: AtomicBool,
}

impl Recheck {
    /// Content bytes read again so far, good or not.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Ends the opening at the next block, with [`SinkError::Stopped`]; what is there stays.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// One more block was read.
    pub(crate) fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`SinkError::Stopped`].
    pub fn go_on(&self) -> Result<(), SinkError> {
        if self.stopped.load(Ordering::Relaxed) { Err(SinkError::Stopped) } else { Ok(()) }
    }
}
