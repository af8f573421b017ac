//! The divergence finder: runs the same world twice in step and names the first difference.
//!
//! Two hashes that differ say that something is not deterministic; this says what, when and whose
//! event it was.

use gtp_alloc::Time;

use crate::packet::{Happening, World};

/// The first event that differs between two runs; `None` where a run had no event left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// How many events were the same before it.
    pub events: u64,
    /// What the first run did.
    pub first: Option<Happening>,
    /// What the second run did.
    pub second: Option<Happening>,
}

/// Runs two worlds in step until `end` and returns the first event that differs, if one does.
pub fn first_divergence(first: &mut World, second: &mut World, end: Time) -> Option<Divergence> {
    let mut events = 0;
    loop {
        let (a, b) = (first.step(end), second.step(end));
        if a != b {
            return Some(Divergence { events, first: a, second: b });
        }
        a?;
        events += 1;
    }
}
