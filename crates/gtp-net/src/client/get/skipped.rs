//! What will not come, as the sources say: remembered up to a bound, and counted beyond it.
//!
//! A source can name faults for as long as it likes; memory and the user's screen must not follow.
//! Whether a fault matters is decided elsewhere.

use crate::client::Monitor;
use crate::client::progress::Event;
use crate::flows::{Failure, FailureKind};

/// The faults of single files.
#[derive(Default)]
pub(super) struct Skipped {
    named: Vec<Failure>,
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

    /// All of them; those beyond the bound in one.
    pub fn into_list(self) -> Vec<Failure> {
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
        let list = skipped.into_list();
        assert_eq!(list.len(), NAMED_MAX + 1);
        let last = list.last().unwrap();
        assert_eq!((last.kind, last.text.as_str()), (FailureKind::Partial, "1000 more"));
        let told = std::iter::from_fn(|| heard.try_recv().ok()).count();
        assert_eq!(told, NAMED_MAX);
    }
}
