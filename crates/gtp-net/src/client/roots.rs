//! The last question: do all sources mean the same bytes?
//!
//! Blocks were checked one by one against what their source said of them. At the end every live
//! source is asked for the hashes of the files that wait; they must agree with each other before
//! any of those files gets its name (and the sink compares them with what it merged).

use std::collections::BTreeMap;

use gtp_store::{Manifest, Value};

use super::link::Order;
use crate::flows::{FileIndex, runs};
use crate::messages::ROOTS_PER_PAGE;

/// The question, and the answers so far.
pub(super) struct RootCheck {
    index: FileIndex,
    /// Entries of the files in question, ascending.
    wanted: Vec<u32>,
    answers: BTreeMap<usize, BTreeMap<u32, Value>>,
}

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
    pub fn new(manifest: &Manifest, wanted: Vec<u32>) -> RootCheck {
        RootCheck { index: FileIndex::of(manifest), wanted, answers: BTreeMap::new() }
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
