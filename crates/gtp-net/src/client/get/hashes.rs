//! The end of a transfer: who is asked for the hashes, and what follows from what they say.
//!
//! When to wait for whom is the question's own business; here its answers become files with names,
//! a failure, or a source given up. No source is given up unless the user hears of it.

use gtp_store::SinkError;

use super::{Event, Failure, FailureKind, Gather, RootCheck, Source, State, path_of};
use crate::client::roots::{Disagreement, Expected, Verdict};

/// A file is fetched again as a whole so often, if it is another one each time.
const RENEWALS_MOST: u32 = 3;

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
        self.ask_roots(wanted);
        Ok(())
    }

    /// Asks every source that is there for the hashes of these files.
    fn ask_roots(&mut self, wanted: Vec<u32>) {
        let Some(running) = &mut self.running else { return };
        let now = self.clock.now();
        let all = self.sources.len();
        let mut check = RootCheck::new(&running.manifest, wanted, now, self.terms.patience, all);
        if let Some((_, SinkError::RootMismatch { expected, .. })) = &running.wrong {
            check = check.decided_by(Some(*expected));
        }
        for (number, source) in self.sources.iter().enumerate() {
            if let State::Live { orders, .. } = &source.state {
                for order in check.orders(number, now) {
                    // A line that has just ended reports so itself.
                    let _ = orders.send(order);
                }
            }
        }
        running.check = Some(check);
    }

    /// A file's blocks are each good, and together they are another file. Where some came from
    /// elsewhere than the sources that are left, those are asked for all of it. A file that is
    /// rewritten all the time is given up: that is no damage.
    pub(super) fn wrong_root(
        &mut self,
        file: u32,
        doubtful: bool,
        error: SinkError,
    ) -> Result<(), Failure> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let live = self.sources.iter().filter(|s| matches!(s.state, State::Live { .. })).count();
        let renewals = running.renewed.get(&file).copied().unwrap_or(0);
        if doubtful && renewals == RENEWALS_MOST {
            let text = format!("changed {} times while being fetched", renewals + 1);
            return Err(Failure::new(FailureKind::Temporary, text).about(self.path_of(file)));
        }
        if doubtful {
            self.renew(file);
            return Ok(());
        }
        if renewals > 0 {
            return Err(self.sink_failure(error));
        }
        if live < 2 {
            return Err(self.sink_failure(error));
        }
        // The hash is decided; their own words say who differs from it.
        running.wrong = Some((file, error));
        self.ask_roots(vec![file]);
        Ok(())
    }

    fn renew(&mut self, file: u32) {
        let path = self.path_of(file);
        let Some(running) = &mut self.running else { return };
        *running.renewed.entry(file).or_default() += 1;
        running.transfer.begin_anew(file);
        self.monitor.tell(Event::Renewed { path });
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
        let may_come = unsaid.iter().any(|s| s.breaches == 0 && s.tries <= u32::from(s.path_seen));
        if may_come
            && verdict.may_change(self.sources.len())
            && check.waits_for_lost(self.clock.now())
        {
            return Ok(());
        }
        match verdict {
            Verdict::Agreed { roots, against } => {
                for source in unsaid {
                    let url = source.url.to_string();
                    let unsaid = || Failure::new(FailureKind::Temporary, UNSAID);
                    let failure = source.lost_by.clone().unwrap_or_else(unsaid);
                    self.monitor.tell(Event::Dropped { url, failure });
                }
                running.check = None;
                self.conclude(roots, against)
            }
            Verdict::Open(Disagreement { file, sources: (a, b) }) => {
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

    /// The hashes are known: gives up the sources that differ, and finishes the files, or fetches a
    /// file again if blocks of such a source have spoilt it.
    fn conclude(&mut self, roots: Expected, against: Vec<usize>) -> Result<(), Failure> {
        let wrong = self.running.as_mut().and_then(|running| running.wrong.take());
        let text = match self.expected {
            Some(_) => "its content does not have the given hash",
            None => "it does not hold the same content as most of the others",
        };
        let nobody = against.is_empty();
        for number in against {
            self.give_up(number, Failure::new(FailureKind::Integrity, text))?;
        }
        match (wrong, &self.running) {
            (Some((_, error)), _) if nobody => return Err(self.sink_failure(error)),
            (Some((file, _)), _) => self.renew(file),
            (None, Some(running)) => running.transfer.finish_files(roots),
            (None, None) => {}
        }
        Ok(())
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
