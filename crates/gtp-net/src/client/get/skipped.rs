//! What will not come, as the sources say: remembered up to a bound, and counted beyond it.
//!
//! A source can name faults for as long as it likes; memory and the user's screen must not follow.
//! Whether a fault matters is decided elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use gtp_store::RelPath;

use crate::client::Monitor;
use crate::client::progress::Event;
use crate::flows::{Failure, FailureKind};
use crate::messages::printable;

/// The faults of single files.
#[derive(Default)]
pub(super) struct Skipped {
    named: Vec<Failure>,
    /// Why sources say that they cannot give files, as long as the files may come from others.
    said: BTreeMap<Vec<u8>, Failure>,
    /// Files that will not come, and of which no source has said why.
    unsaid: BTreeSet<Vec<u8>>,
    /// How many more there were.
    more: u64,
    /// Whether one of those should have come.
    missed: bool,
}

/// Faults that are told and remembered by name.
const NAMED_MAX: usize = 1_000;

impl Skipped {
    pub fn contains(&self, failure: &Failure) -> bool {
        self.named.contains(failure)
    }

    /// Tells and remembers a fault, or counts it.
    pub fn note(&mut self, failure: Failure, monitor: &Monitor) {
        if self.named.len() < NAMED_MAX {
            monitor.tell(Event::Skipped(failure.clone()));
            self.named.push(failure);
        } else {
            self.more += 1;
            self.missed |= failure.kind == FailureKind::Partial;
        }
    }

    /// A source says why it cannot give a file.
    pub fn hear(&mut self, path: Vec<u8>, failure: Failure, monitor: &Monitor) {
        if self.unsaid.remove(&path) {
            self.note(failure, monitor);
        } else if self.said.len() < NAMED_MAX {
            self.said.insert(path, failure);
        }
    }

    /// No source can give a file. Why may be said already, or be on its way.
    pub fn lose(&mut self, path: &RelPath, monitor: &Monitor) {
        let path = path.as_str().as_bytes();
        match self.said.remove(path) {
            Some(failure) => self.note(failure, monitor),
            None => {
                self.unsaid.insert(path.to_vec());
            }
        }
    }

    /// All of them; those beyond the bound in one.
    pub fn into_list(mut self, monitor: &Monitor) -> Vec<Failure> {
        for path in std::mem::take(&mut self.unsaid) {
            let failure = Failure::new(FailureKind::Partial, "the source cannot give it any more");
            self.note(failure.about(printable(&path)), monitor);
        }
        let mut all = self.named;
        if self.more > 0 {
            let kind = if self.missed { FailureKind::Partial } else { FailureKind::Other };
            all.push(Failure::new(kind, format!("{} more", self.more)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::client::Progress;

    #[test]
    fn faults_beyond_the_bound_are_counted_and_not_kept() {
        let (events, mut heard) = mpsc::unbounded_channel();
        let (_stop, stop) = watch::channel(None);
        let monitor = Monitor { events, progress: watch::Sender::new(Progress::default()), stop };
        let mut skipped = Skipped::default();
        for n in 0..2_000 {
            let kind = if n == 1_999 { FailureKind::Partial } else { FailureKind::Other };
            skipped.note(Failure::new(kind, n.to_string()), &monitor);
        }
        let list = skipped.into_list(&monitor);
        assert_eq!(list.len(), NAMED_MAX + 1);
        let last = list.last().unwrap();
        assert_eq!((last.kind, last.text.as_str()), (FailureKind::Partial, "1000 more"));
        let told = std::iter::from_fn(|| heard.try_recv().ok()).count();
        assert_eq!(told, NAMED_MAX);
    }
}
