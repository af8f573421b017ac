//! The end of a transfer: who is asked for the hashes, and what follows from what they say.
//!
//! When to wait for whom is the question's own business; here its answers become files with names,
//! a failure, or a source given up. Nobody loses his say unless the user hears of it.

use super::{Event, Failure, FailureKind, Gather, RootCheck, Source, State, path_of};
use crate::client::roots::Disagreement;

impl Gather {
    /// Every block is here: finishes what needs no question and asks about the rest.
    pub(super) fn all_blocks(&mut self) -> Result<(), Failure> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let waiting = (0u32..).zip(&running.unfinished).filter(|(_, u)| **u).map(|(n, _)| n);
        let waiting: Vec<u32> = waiting.collect();
        if let Some(expected) = self.expected {
            let all = waiting.into_iter().map(|file| (file, Some(expected))).collect();
            running.transfer.finish_files(all);
            return Ok(());
        }
        let (kept, wanted): (Vec<u32>, Vec<u32>) =
            waiting.into_iter().partition(|&n| running.kept.get(n as usize) == Some(&true));
        if !kept.is_empty() || wanted.is_empty() {
            running.transfer.finish_files(kept.into_iter().map(|file| (file, None)).collect());
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut check = RootCheck::new(&running.manifest, wanted, now, self.terms.patience);
        for (number, source) in self.sources.iter().enumerate() {
            if let State::Live { orders, .. } = &source.state {
                for order in check.orders(number, now) {
                    // A line that has just ended reports so itself.
                    let _ = orders.send(order);
                }
            }
        }
        running.check = Some(check);
        Ok(())
    }

    pub(super) fn judge_roots(&mut self) -> Result<(), Failure> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let Some(check) = &running.check else { return Ok(()) };
        let Some(verdict) = check.verdict() else { return Ok(()) };
        let unsaid = |(n, s): &(usize, &Source)| {
            matches!(s.state, State::Connecting) && !check.has_answered(*n)
        };
        let unsaid: Vec<&Source> =
            self.sources.iter().enumerate().filter(unsaid).map(|(_, s)| s).collect();
        // Who has taken part, or is about to, is worth a moment; who never answered is not.
        let may_come = unsaid.iter().any(|s| s.path_seen || s.tries == 0);
        if verdict.is_ok() && may_come && check.waits_for_lost(self.clock.now()) {
            return Ok(());
        }
        match verdict {
            Ok(roots) => {
                for source in unsaid {
                    let url = source.url.to_string();
                    let failure = Failure::new(FailureKind::Temporary, UNSAID);
                    self.monitor.tell(Event::Dropped { url, failure });
                }
                running.check = None;
                running.transfer.finish_files(roots);
                Ok(())
            }
            Err(Disagreement { file, sources: (a, b) }) => {
                let path = path_of(&running.manifest, file);
                let (a, b) = (&self.sources[a].url, &self.sources[b].url);
                let text = format!(
                    "{a} and {b} hold different content of {path}; give --blake3 to say which is \
                     meant"
                );
                Err(Failure::new(FailureKind::Integrity, text))
            }
        }
    }

    /// Sources that do not say their hashes in time have no say; if nobody says them, it fails.
    pub(super) fn dismiss_late(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        let Some(check) = self.running.as_mut().and_then(|running| running.check.as_mut()) else {
            return Ok(());
        };
        let late = check.dismiss_late(now);
        let deserted = check.is_deserted();
        for number in late {
            let source = &mut self.sources[number];
            let url = source.url.to_string();
            let failure = Failure::new(FailureKind::Temporary, UNSAID);
            if deserted {
                return Err(failure.about(&url));
            }
            // Without the sender of its orders its line says farewell by itself.
            let gone = State::Gone(failure.clone());
            let state = std::mem::replace(&mut source.state, gone);
            if let (State::Live { flow, .. }, Some(running)) = (state, &self.running) {
                running.transfer.remove_session(flow);
            }
            self.monitor.tell(Event::Dropped { url, failure });
        }
        self.judge_roots()
    }
}

/// What is said of a source that has no say.
const UNSAID: &str = "it does not say the hashes of its files";
