//! The last question: do all sources mean the same bytes?
//!
//! Blocks were checked one by one against what their source said of them. At the end every live
//! source is asked for the hashes of the files that wait; the sink compares what they agree on with
//! what it merged before any of those files gets its name. With three or more sources the
//! majority decides; two that differ decide nothing. A source that does not answer in time has no
//! say: it can delay the end, and cannot prevent it. Nor can a quick answer shorten the others'
//! time, unless a second one agrees with it.

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
    /// How many sources the user named.
    sources: usize,
    /// The hash that the user gave for the only file: it decides.
    given: Option<Value>,
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
const BACK_SPAN: Duration = Duration::from_secs(3);

/// From this many sources on there can be a majority against one.
const SOURCES_THAT_VOTE: usize = 3;

/// What files must be, by their places in the manifest.
pub(super) type Expected = Vec<(u32, Option<Value>)>;

/// What follows from the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The files must be this.
    Agreed {
        /// Their hashes.
        roots: Expected,
        /// Sources that say otherwise.
        against: Vec<usize>,
    },
    /// It cannot be told which sources are right.
    Open(Disagreement),
}

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
        sources: usize,
    ) -> RootCheck {
        let size = |&file: &u32| manifest.entries.get(file as usize).map_or(0, |e| e.size);
        let hashing = hashing_span(wanted.iter().map(size).fold(0, u64::saturating_add));
        let index = FileIndex::of(manifest);
        let (asked, given) = (BTreeMap::new(), None);
        RootCheck { index, wanted, asked, sources, given, began, patience, hashing }
    }

    /// The same when the user gave the hash of the only file; the question is then which differ.
    #[must_use]
    pub fn decided_by(mut self, given: Option<Value>) -> RootCheck {
        self.given = given;
        self
    }

    /// The sources that have answered everything.
    fn voters(&self) -> impl Iterator<Item = (usize, &Asked)> {
        self.asked.iter().filter(|(_, a)| self.is_whole(a)).map(|(&number, a)| (number, a))
    }

    /// The largest set of them in which no two disagree; of equals, the first that is found. A
    /// source that has lost a file agrees with everybody about it, so those who agree with one
    /// source need not agree with each other: each that joins is held against all that are there.
    fn majority(&self) -> Vec<usize> {
        let mut best = Vec::new();
        for (number, asked) in self.voters() {
            let mut alike = vec![(number, asked)];
            for (other, said) in self.voters().filter(|(other, _)| *other != number) {
                if alike.iter().all(|(_, there)| differing(there, said).is_none()) {
                    alike.push((other, said));
                }
            }
            if alike.len() > best.len() {
                best = alike.into_iter().map(|(number, _)| number).collect();
                best.sort_unstable();
            }
        }
        best
    }

    /// How many sources have answered everything and agree, if no other says otherwise.
    fn voices(&self) -> usize {
        let agree = self.majority().len();
        if agree == self.voters().count() { agree } else { agree.min(1) }
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
        for (&entry, &root) in entries.iter().zip(roots) {
            if self.wanted.binary_search(&entry).is_ok() {
                // What was said once stays said.
                asked.said.entry(entry).or_insert(root);
            }
        }
    }

    /// A source is gone; what it has not said in full counts no more.
    pub fn forget(&mut self, source: usize) {
        if !self.has_answered(source) {
            self.asked.remove(&source);
        }
    }

    /// What follows, once it is certain: when every source that was asked has answered, or when no
    /// further answer can change the result.
    pub fn verdict(&self) -> Option<Verdict> {
        if let Some(given) = self.given {
            return self.verdict_by(given);
        }
        let most = self.majority();
        let against: Vec<usize> =
            self.voters().map(|(n, _)| n).filter(|n| !most.contains(n)).collect();
        if most.is_empty() {
            return None;
        }
        let all_said = self.asked.values().all(|a| self.is_whole(a));
        let votes = self.sources >= SOURCES_THAT_VOTE;
        let certain = votes && self.wanted.iter().all(|file| self.is_certain(*file, &most));
        let outvoted = votes && self.wanted.iter().all(|file| self.is_outvoted(*file, &most));
        if certain || all_said && (against.is_empty() || outvoted) {
            let roots = self.wanted.iter().map(|&file| (file, Some(self.root_of(file, &most))));
            return Some(Verdict::Agreed { roots: roots.collect(), against });
        }
        if votes && !all_said {
            return None; // A third may decide.
        }
        let mut pairs = most.iter().flat_map(|&a| against.iter().map(move |&b| (a, b)));
        let (a, b, file) = pairs.find_map(|(a, b)| {
            let file = differing(self.asked.get(&a)?, self.asked.get(&b)?)?;
            Some((a, b, file))
        })?;
        Some(Verdict::Open(Disagreement { file, sources: (a.min(b), a.max(b)) }))
    }

    /// What these sources, no two of which disagree, say of a file. One that has lost it has no
    /// say; if all have, it is lost.
    fn root_of(&self, file: u32, most: &[usize]) -> Value {
        let said = most.iter().filter_map(|number| self.asked.get(number)?.said.get(&file));
        said.copied().find(|&root| root != LOST).unwrap_or(LOST)
    }

    /// How many sources say what these say of a file, and how many say something else. Those that
    /// have lost it count on neither side.
    fn sides(&self, file: u32, most: &[usize]) -> (usize, usize) {
        let root = self.root_of(file, most);
        let said = self.voters().filter_map(|(_, asked)| asked.said.get(&file));
        said.filter(|&&said| said != LOST).fold((0, 0), |(with, against), &said| {
            if said == root { (with + 1, against) } else { (with, against + 1) }
        })
    }

    /// Whether more than half of all sources say what these say of a file.
    fn is_certain(&self, file: u32, most: &[usize]) -> bool {
        self.sides(file, most).0 * 2 > self.sources
    }

    /// Whether nobody says otherwise of a file, or at least two say what these say and fewer say
    /// something else.
    fn is_outvoted(&self, file: u32, most: &[usize]) -> bool {
        let (with, against) = self.sides(file, most);
        against == 0 || with > against && with > 1
    }

    fn verdict_by(&self, given: Value) -> Option<Verdict> {
        if self.asked.is_empty() || !self.asked.values().all(|a| self.is_whole(a)) {
            return None;
        }
        let differs =
            |asked: &Asked| asked.said.values().any(|&root| root != given && root != LOST);
        let against = self.voters().filter(|(_, asked)| differs(asked)).map(|(n, _)| n).collect();
        let roots = self.wanted.iter().map(|&file| (file, Some(given))).collect();
        Some(Verdict::Agreed { roots, against })
    }
}

/// The first file about which two sources disagree; a file that a source has lost does not count.
fn differing(a: &Asked, b: &Asked) -> Option<u32> {
    let differs = |file: &u32, root: &Value| {
        b.said.get(file).is_none_or(|said| said != root && *said != LOST && *root != LOST)
    };
    a.said.iter().find(|(file, root)| differs(file, root)).map(|(&file, _)| file)
}

impl Verdict {
    /// Whether a source that comes back may have something to say against it, or for it.
    pub fn may_change(&self, sources: usize) -> bool {
        match self {
            Verdict::Agreed { against, .. } => against.is_empty(),
            Verdict::Open(_) => sources >= SOURCES_THAT_VOTE,
        }
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
        check_of(2)
    }

    fn check_of(sources: usize) -> RootCheck {
        let (mode, mtime) = (Mode::new(0o644), Mtime::new(0, 0).unwrap());
        let path = RelPath::new("x").unwrap();
        let entries = vec![Entry { path, kind: Kind::File, size: 640 << 20, mode, mtime }];
        let manifest = Manifest { root_kind: RootKind::File, own: None, entries };
        RootCheck::new(&manifest, vec![0], Time::ZERO, PATIENCE, sources)
    }

    fn agreed(root: [Value; 1], against: &[usize]) -> Option<Verdict> {
        let roots = vec![(0, Some(root[0]))];
        Some(Verdict::Agreed { roots, against: against.to_vec() })
    }

    /// Everybody has answered so.
    fn answered(answers: &[[Value; 1]]) -> RootCheck {
        let mut check = check_of(answers.len());
        for source in 0..answers.len() {
            check.orders(source, at(0));
        }
        for (source, root) in answers.iter().enumerate() {
            check.answer(source, 0, root);
        }
        check
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
        assert_eq!(check.verdict(), Some(Verdict::Open(disagreement)));
    }

    #[test]
    fn one_voice_decides_when_the_others_have_had_their_full_time() {
        let mut check = check();
        check.orders(0, at(0));
        check.orders(1, at(0));
        check.answer(0, 0, &TRUE);
        assert_eq!(check.dismiss_late(at(141)), [1]);
        assert_eq!(check.verdict(), agreed(TRUE, &[]));
    }

    #[test]
    fn two_agreeing_voices_wait_less_for_a_third_and_a_fourth() {
        let mut check = check_of(4);
        for source in 0..4 {
            check.orders(source, at(0));
        }
        check.answer(0, 0, &TRUE);
        check.answer(2, 0, &TRUE);
        assert!(check.dismiss_late(at(69)).is_empty());
        assert!(check.verdict().is_none());
        assert_eq!(check.dismiss_late(at(71)), [1, 3]);
        assert_eq!(check.verdict(), agreed(TRUE, &[]));
    }

    #[test]
    fn most_of_all_sources_named_need_not_wait_for_the_rest() {
        let mut check = check_of(3);
        for source in 0..3 {
            check.orders(source, at(0));
        }
        check.answer(1, 0, &TRUE);
        assert!(check.verdict().is_none());
        check.answer(2, 0, &TRUE);
        assert_eq!(check.verdict(), agreed(TRUE, &[]));
    }

    #[test]
    fn most_of_three_sources_or_more_decide_and_who_differs_is_named() {
        assert_eq!(answered(&[FALSE, TRUE, TRUE]).verdict(), agreed(TRUE, &[0]));
        assert_eq!(answered(&[TRUE, FALSE, TRUE, TRUE]).verdict(), agreed(TRUE, &[1]));
        let other = [[3; 32]];
        let five = [FALSE, TRUE, TRUE, other, TRUE];
        assert_eq!(answered(&five).verdict(), agreed(TRUE, &[0, 3]));
        let open: [&[_]; 4] = [
            &[TRUE, FALSE],
            &[TRUE, FALSE, other],
            &[TRUE, FALSE, FALSE, TRUE],
            &[TRUE, TRUE, FALSE, other],
        ];
        for open in open {
            assert!(matches!(answered(open).verdict(), Some(Verdict::Open(_))), "{open:?}");
        }
    }

    #[test]
    fn a_source_that_has_lost_a_file_lends_its_voice_to_neither_side() {
        let lost = [LOST];
        for open in [
            [FALSE, lost, TRUE],
            [FALSE, TRUE, lost],
            [TRUE, lost, FALSE],
            [TRUE, FALSE, lost],
            [lost, FALSE, TRUE],
            [lost, TRUE, FALSE],
        ] {
            let verdict = answered(&open).verdict();
            assert!(matches!(verdict, Some(Verdict::Open(_))), "{open:?}: {verdict:?}");
        }
        assert_eq!(answered(&[FALSE, lost, TRUE, TRUE]).verdict(), agreed(TRUE, &[0]));
        assert_eq!(answered(&[lost, TRUE, lost]).verdict(), agreed(TRUE, &[]));
        assert_eq!(answered(&[lost, lost, lost]).verdict(), agreed(lost, &[]));
    }

    #[test]
    fn a_third_answer_is_awaited_where_two_of_three_differ() {
        let mut check = check_of(3);
        for source in 0..3 {
            check.orders(source, at(0));
        }
        check.answer(0, 0, &TRUE);
        check.answer(1, 0, &FALSE);
        assert!(check.verdict().is_none());
        assert!(check.dismiss_late(at(139)).is_empty(), "two that differ shorten nobody's time");
        check.answer(2, 0, &TRUE);
        assert_eq!(check.verdict(), agreed(TRUE, &[1]));
    }

    #[test]
    fn the_users_hash_decides_against_any_number() {
        let check = answered(&[FALSE, TRUE, FALSE]).decided_by(Some(TRUE[0]));
        assert_eq!(check.verdict(), agreed(TRUE, &[0, 2]));
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
        assert_eq!(check.verdict(), agreed(TRUE, &[]));
    }

    #[test]
    fn a_lost_line_is_waited_for_only_where_one_voice_would_decide() {
        let mut check = check();
        for source in 0..2 {
            check.orders(source, at(0));
        }
        check.answer(0, 0, &TRUE);
        assert!(check.waits_for_lost(at(2)) && !check.waits_for_lost(at(3)));
        check.answer(1, 0, &TRUE);
        assert!(!check.waits_for_lost(at(0)));
    }
}
