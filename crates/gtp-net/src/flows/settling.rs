//! When a change of a file is old enough for the next one to show in the file's times.
//!
//! File systems' clocks tick every few milliseconds, some every second or two, and those of other
//! machines may be ahead or behind. Until the clock ticks, a file can change and look the same.

use gtp_store::RelPath;
use gtp_store::replica::{Replica, Seen};

/// The coarsest steps of a local file system's times, in seconds: those of FAT.
const STEP_S: i64 = 2;

/// By how many seconds the clock of a machine that serves files to this one may differ, beside the
/// steps: what is cached for long allows for it.
const SKEW_S: i64 = 8;

/// Whether a change after one at this time, in seconds of the wall clock, shows on a file system
/// that goes by this machine's clock.
pub fn next_change_shows(changed: i64) -> bool {
    age(changed) > STEP_S
}

/// The same on any file system, for what is remembered beyond a session.
pub(crate) fn has_settled(changed: i64) -> bool {
    age(changed) > STEP_S + SKEW_S
}

/// When a file is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Now, whenever it has changed.
    Now,
    /// Only if it has not changed so lately that a further change might not show.
    Settled,
}

/// Reads a small file of a tree that is what was seen; `None` if that cannot be. Blocks.
pub fn read_small(
    replica: &Replica,
    (path, seen): &(RelPath, Seen),
    when: When,
) -> Option<Vec<u8>> {
    match seen {
        Seen::File { mtime, .. } if when == When::Now || next_change_shows(mtime.secs()) => {
            replica.read_seen(path, *seen)
        }
        Seen::File { .. } | Seen::Dir | Seen::Link => None,
    }
}

fn age(changed: i64) -> i64 {
    let now = i64::try_from(gtp_sys::clock::unix_seconds()).unwrap_or(i64::MAX);
    now.saturating_sub(changed)
}
