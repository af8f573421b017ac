//! The last question: do all sources mean the same bytes?
//!
//! Blocks were checked one by one against what their source said of them. At the end every live
//! source is asked for the hashes of the files that wait; they must agree with each other before
//! any of those files gets its name (and the sink compares them with what it merged). A source that
//! does not answer in time has no say: it can delay the end, and cannot prevent it.

use std::collections::BTreeMap;
use std::time::Duration;

use gtp_alloc::Time;
use gtp_store::{Manifest, Value};

use super::link::Order;
use crate::flows::{FileIndex, hashing_span, runs};
use crate::messages::ROOTS_PER_PAGE;

/// The question, and the answers so far.
pub(super) struct RootCheck {
    index: FileIndex,
    /// Entries of the files in question, ascending.
    wanted: Vec<u32>,
    answers: BTreeMap<usize, BTreeMap<u32, Value>>,
    began: Time,
    /// Bytes of the files in question.
    bytes: u64,
}

/// How many times faster than the slowest source one must be when another has answered: 64 MiB/s.
const HASTE: u32 = 8;

/// What files must be, by their places in the manifest.
pub(super) type Expected = Vec<(u32, Option<Value>)>;

/// Two sources that mean different bytes.
pub(super) struct Disagreement {
    /// The file's place in the manifest.
    pub file: u32,
    /// The two sources.
    pub sources: (usize, usize),
}

impl RootCheck {
    /// The question for these files, asked first at `began`.
    pub fn new(manifest: &Manifest, wanted: Vec<u32>, began: Time) -> RootCheck {
        let size = |&file: &u32| manifest.entries.get(file as usize).map_or(0, |e| e.size);
        let bytes = wanted.iter().map(size).fold(0, u64::saturating_add);
        let index = FileIndex::of(manifest);
        RootCheck { index, wanted, answers: BTreeMap::new(), began, bytes }
    }

    /// Whether those who have not answered by `now` have had their time: `patience`, and what
    /// hashing takes. Where somebody has answered the others are given less.
    pub fn is_overdue(&self, now: Time, patience: Duration) -> bool {
        let hashing = hashing_span(self.bytes);
        let share = if self.is_answered() { hashing / HASTE } else { hashing };
        gtp_sys::clock::duration(now.since(self.began)) > patience + share
    }

    /// Whether anybody has answered everything.
    pub fn is_answered(&self) -> bool {
        self.answers.values().any(|a| a.len() == self.wanted.len())
    }

    /// The sources that have not answered everything; they are waited for no more.
    pub fn dismiss_late(&mut self) -> Vec<usize> {
        let all = self.wanted.len();
        let late = self.answers.iter().filter(|(_, a)| a.len() < all).map(|(&n, _)| n).collect();
        self.answers.retain(|_, a| a.len() == all);
        late
    }

    /// What a source must be asked.
    pub fn orders(&mut self, source: usize) -> Vec<Order> {
        self.answers.insert(source, BTreeMap::new());
        let runs = runs(&self.index, &self.wanted, ROOTS_PER_PAGE);
        runs.into_iter().map(|(first_file, files)| Order::AskRoots { first_file, files }).collect()
    }

    /// Takes a source's answer in; what was not asked is dropped.
    pub fn answer(&mut self, source: usize, first_file: u64, roots: &[Value]) {
        let count = u32::try_from(roots.len()).unwrap_or(u32::MAX);
        let (Some(answers), Some(entries)) =
            (self.answers.get_mut(&source), self.index.entries(first_file, count))
        else {
            return;
        };
        for (&entry, &root) in entries.iter().zip(roots) {
            if self.wanted.binary_search(&entry).is_ok() {
                answers.insert(entry, root);
            }
        }
    }

    /// A source is gone before it answered.
    pub fn forget(&mut self, source: usize) {
        if self.answers.get(&source).is_some_and(|a| a.len() < self.wanted.len()) {
            self.answers.remove(&source);
        }
    }

    /// What the files must be, once everybody who was asked has answered.
    pub fn verdict(&self) -> Option<Result<Expected, Disagreement>> {
        let complete = self.answers.values().all(|a| a.len() == self.wanted.len());
        let (&first, reference) = self.answers.first_key_value()?;
        if !complete {
            return None;
        }
        for (&source, answers) in &self.answers {
            let differs = answers.iter().find(|(file, root)| reference.get(file) != Some(root));
            if let Some((&file, _)) = differs {
                return Some(Err(Disagreement { file, sources: (first, source) }));
            }
        }
        Some(Ok(reference.iter().map(|(&file, &root)| (file, Some(root))).collect()))
    }
}
