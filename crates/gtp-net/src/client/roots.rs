//! The last question: do all sources mean the same bytes?
//!
//! Blocks were checked one by one against what their source said of them. At the end every live
//! source is asked for the hashes of the files that wait; they must agree with each other before
//! any of those files gets its name (and the sink compares them with what it merged). A source that
//! does not answer in time has no say: it can delay the end, and cannot prevent it. Nor can a quick
//! answer shorten the others' time, unless a second one agrees with it.

use std::collections::BTreeMap;
use std::time::Duration;

use gtp_alloc::Time;
use gtp_store::{LOST, Manifest, Value};
use gtp_sys::clock::duration;

use super::link::Order;
use crate::flows::{FileIndex, hashing_span, runs};
use crate::messages::ROOTS_PER_PAGE;

/// The question, and the answers so far.
pub(super) struct RootCheck {
    index: FileIndex,
    /// Entries of the files in question, ascending.
    wanted: Vec<u32>,
    asked: BTreeMap<usize, Asked>,
    /// The first two that were found to differ.
    disagreement: Option<Disagreement>,
    began: Time,
    patience: Duration,
    /// Time that hashing the files in question may take.
    hashing: Duration,
}

/// A source that was asked.
struct Asked {
    at: Time,
    /// What it has said, file by file.
    said: BTreeMap<u32, Value>,
}

/// How many times faster than the slowest source one must be when two others agree: 64 MiB/s.
const HASTE: u32 = 8;

/// Sources whose agreement needs no third.
const VOICES: usize = 2;

/// Times that one source may have, all in all, that loses its line and is asked again.
const TURNS: u32 = 2;

/// How long a source whose line is being made may take to be asked when there is only one voice.
const BACK_SPAN: Duration = Duration::from_secs(10);

/// What files must be, by their places in the manifest.
pub(super) type Expected = Vec<(u32, Option<Value>)>;

/// Two sources that mean different bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disagreement {
    /// The file's place in the manifest.
    pub file: u32,
    /// The two sources.
    pub sources: (usize, usize),
}

impl RootCheck {
    /// The question for these files, asked first at `began`. A source has `patience`, and what
    /// hashing takes.
    pub fn new(
        manifest: &Manifest,
        wanted: Vec<u32>,
        began: Time,
        patience: Duration,
    ) -> RootCheck {
        let size = |&file: &u32| manifest.entries.get(file as usize).map_or(0, |e| e.size);
        let hashing = hashing_span(wanted.iter().map(size).fold(0, u64::saturating_add));
        let index = FileIndex::of(manifest);
        let (asked, disagreement) = (BTreeMap::new(), None);
        RootCheck { index, wanted, asked, disagreement, began, patience, hashing }
    }

    /// How many sources have answered everything.
    fn voices(&self) -> usize {
        self.asked.values().filter(|a| self.is_whole(a)).count()
    }

    fn is_whole(&self, asked: &Asked) -> bool {
        asked.said.len() == self.wanted.len()
    }

    /// Whether nobody's answer is left to wait for or to decide by.
    pub fn is_deserted(&self) -> bool {
        self.asked.is_empty()
    }

    /// Whether this source has answered everything.
    pub fn has_answered(&self, source: usize) -> bool {
        self.asked.get(&source).is_some_and(|a| self.is_whole(a))
    }

    /// Whether a source without a line may yet come and be asked: it may for a while if otherwise a
    /// single one would decide.
    pub fn waits_for_lost(&self, now: Time) -> bool {
        let waited = duration(now.since(self.began));
        self.voices() < VOICES && waited < BACK_SPAN.min(self.patience)
    }

    /// The sources that have had their time by `now` and have not answered everything; they are
    /// waited for no more.
    pub fn dismiss_late(&mut self, now: Time) -> Vec<usize> {
        let full = self.patience + self.hashing;
        // One voice alone may be a false one, whose haste must not silence the others.
        let hasty = self.patience + self.hashing / HASTE;
        let time = if self.voices() < VOICES { full } else { hasty };
        let over = duration(now.since(self.began)) > full * TURNS;
        let all = self.wanted.len();
        let is_late = |a: &Asked| a.said.len() < all && (over || duration(now.since(a.at)) > time);
        let late = self.asked.iter().filter(|(_, a)| is_late(a)).map(|(&n, _)| n).collect();
        self.asked.retain(|_, a| !is_late(a));
        late
    }

    /// What a source must be asked now; nothing if it has answered before.
    pub fn orders(&mut self, source: usize, now: Time) -> Vec<Order> {
        if self.has_answered(source) {
            return Vec::new();
        }
        self.asked.insert(source, Asked { at: now, said: BTreeMap::new() });
        let runs = runs(&self.index, &self.wanted, ROOTS_PER_PAGE);
        runs.into_iter().map(|(first_file, files)| Order::AskRoots { first_file, files }).collect()
    }

    /// Takes a source's answer in; what was not asked is dropped.
    pub fn answer(&mut self, source: usize, first_file: u64, roots: &[Value]) {
        let count = u32::try_from(roots.len()).unwrap_or(u32::MAX);
        let (Some(asked), Some(entries)) =
            (self.asked.get_mut(&source), self.index.entries(first_file, count))
        else {
            return;
        };
        let before = asked.said.len();
        for (&entry, &root) in entries.iter().zip(roots) {
            if self.wanted.binary_search(&entry).is_ok() {
                // What was said once stays said.
                asked.said.entry(entry).or_insert(root);
            }
        }
        if before < self.wanted.len() {
            self.compare(source);
        }
    }

    /// Holds a source that has just answered everything against one that did so earlier.
    fn compare(&mut self, source: usize) {
        let Some(own) = self.asked.get(&source).filter(|a| self.is_whole(a)) else { return };
        let other = self.asked.iter().find(|(n, a)| **n != source && self.is_whole(a));
        let Some((&first, other)) = other else { return };
        let differs = own.said.iter().find(|(file, root)| {
            other.said.get(file).is_none_or(|said| said != *root && *said != LOST && **root != LOST)
        });
        if let (Some((&file, _)), None) = (differs, &self.disagreement) {
            self.disagreement = Some(Disagreement { file, sources: (first, source) });
        }
    }

    /// A source is gone; what it has not said in full counts no more.
    pub fn forget(&mut self, source: usize) {
        if !self.has_answered(source) {
            self.asked.remove(&source);
        }
    }

    /// What the files must be, once everybody who was asked has answered; or who disagrees, as
    /// soon as that is known.
    pub fn verdict(&self) -> Option<Result<Expected, Disagreement>> {
        if let Some(disagreement) = &self.disagreement {
            return Some(Err(disagreement.clone()));
        }
        let first = self.asked.values().next()?;
        let whole = self.asked.values().all(|a| self.is_whole(a));
        // Who cannot give a file any more has no say about it.
        let root_of = |file: &u32, said: Value| {
            let all = self.asked.values().filter_map(|a| a.said.get(file));
            all.copied().find(|&root| root != LOST).unwrap_or(said)
        };
        whole.then(|| {
            Ok(first.said.iter().map(|(file, &root)| (*file, Some(root_of(file, root)))).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use gtp_alloc::Span;
    use gtp_store::{Entry, Kind, Mode, Mtime, RelPath, RootKind};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// One file that takes 80 s to hash at the slowest, and 10 s in haste.
    fn check() -> RootCheck {
        let (mode, mtime) = (Mode::new(0o644), Mtime::new(0, 0).unwrap());
        let path = RelPath::new("x").unwrap();
        let entries = vec![Entry { path, kind: Kind::File, size: 640 << 20, mode, mtime }];
        let manifest = Manifest { root_kind: RootKind::File, own: None, entries };
        RootCheck::new(&manifest, vec![0], Time::ZERO, PATIENCE)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    const TRUE: [Value; 1] = [[1; 32]];
    const FALSE: [Value; 1] = [[2; 32]];

    #[test]
    fn one_hasty_answer_takes_no_time_from_the_others() {
        let mut check = check();
        for source in 0..2 {
            assert_eq!(check.orders(source, at(0)).len(), 1);
        }
        check.answer(0, 0, &FALSE);
        assert!(check.verdict().is_none());
        assert!(check.dismiss_late(at(139)).is_empty());
        check.answer(1, 0, &TRUE);
        let disagreement = Disagreement { file: 0, sources: (0, 1) };
        assert_eq!(check.verdict(), Some(Err(disagreement)));
    }

    #[test]
    fn one_voice_decides_when_the_others_have_had_their_full_time() {
        let mut check = check();
        check.orders(0, at(0));
        check.orders(1, at(0));
        check.answer(0, 0, &TRUE);
        assert_eq!(check.dismiss_late(at(141)), [1]);
        assert_eq!(check.verdict(), Some(Ok(vec![(0, Some(TRUE[0]))])));
    }

    #[test]
    fn two_agreeing_voices_wait_less_for_a_third() {
        let mut check = check();
        for source in 0..3 {
            check.orders(source, at(0));
        }
        check.answer(0, 0, &TRUE);
        check.answer(2, 0, &TRUE);
        assert!(check.dismiss_late(at(69)).is_empty());
        assert!(check.verdict().is_none());
        assert_eq!(check.dismiss_late(at(71)), [1]);
        assert_eq!(check.verdict(), Some(Ok(vec![(0, Some(TRUE[0]))])));
    }

    #[test]
    fn a_disagreement_is_known_before_the_last_has_answered() {
        let mut check = check();
        for source in 0..3 {
            check.orders(source, at(0));
        }
        check.answer(0, 0, &TRUE);
        check.answer(1, 0, &FALSE);
        assert!(matches!(check.verdict(), Some(Err(_))));
    }

    #[test]
    fn who_comes_back_has_its_own_time_up_to_a_limit_for_all() {
        let mut check = check();
        check.orders(0, at(0));
        check.forget(0);
        check.orders(0, at(130));
        assert!(check.dismiss_late(at(269)).is_empty());
        check.forget(0);
        check.orders(0, at(278));
        assert!(check.dismiss_late(at(280)).is_empty());
        assert_eq!(check.dismiss_late(at(281)), [0]);
        assert!(check.is_deserted());
    }

    #[test]
    fn an_answer_given_in_full_outlives_its_line_and_cannot_be_taken_back() {
        let mut check = check();
        check.orders(0, at(0));
        check.answer(0, 0, &TRUE);
        check.forget(0);
        assert!(check.orders(0, at(1)).is_empty());
        check.answer(0, 0, &FALSE);
        assert_eq!(check.verdict(), Some(Ok(vec![(0, Some(TRUE[0]))])));
    }

    #[test]
    fn a_lost_line_is_waited_for_only_where_one_voice_would_decide() {
        let mut check = check();
        for source in 0..2 {
            check.orders(source, at(0));
        }
        check.answer(0, 0, &TRUE);
        assert!(check.waits_for_lost(at(9)) && !check.waits_for_lost(at(10)));
        check.answer(1, 0, &TRUE);
        assert!(!check.waits_for_lost(at(0)));
    }
}
