//! Which blocks of an object have arrived: the part that every sink shares.
//!
//! A block is checked first, kept by the sink, and noted only then, so that a failing disk never
//! makes a block count as there.

use std::collections::HashMap;
use std::sync::Arc;

use crate::hash::{BlockCheck, Value, check_block, empty_root};
use crate::manifest::{Entry, Kind, Manifest};
use crate::name::escaped;
use crate::row::{BLOCK, TRAILER, blocks_in, content_of};
use crate::sink::{SinkError, Written};
use crate::tree::Tree;

/// The arrivals of one object.
#[derive(Debug)]
pub(crate) struct Arrivals {
    manifest: Arc<Manifest>,
    trees: HashMap<u32, Tree>,
    files: Vec<Progress>,
}

/// How far a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Blocks are missing, or all are there and the file is not finished.
    Open,
    /// Nothing was ever to come: a directory, an empty file, an unchanged file.
    Settled,
    /// Finished.
    Finished,
    /// It will not be whole: its source or this destination cannot.
    GivenUp,
}

/// What the check of a block found.
#[derive(Debug)]
pub(crate) enum Checked<'a> {
    /// Nothing is to be kept: it is there already, or it is not what it claims to be.
    Over(Written),
    /// Keep this content, which has this value, then note it.
    Keep(Value, &'a [u8]),
}

impl Arrivals {
    pub(crate) fn new(manifest: Arc<Manifest>) -> Arrivals {
        let progress = |e: &Entry| if e.size == 0 { Progress::Settled } else { Progress::Open };
        let files = manifest.entries.iter().map(progress).collect();
        Arrivals { manifest, trees: HashMap::new(), files }
    }

    pub(crate) fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    pub(crate) fn entry(&self, file: u32) -> &Entry {
        &self.manifest.entries[file as usize]
    }

    /// How far a file is; a file that does not exist is settled.
    pub(crate) fn progress(&self, file: u32) -> Progress {
        self.files.get(file as usize).copied().unwrap_or(Progress::Settled)
    }

    pub(crate) fn set(&mut self, file: u32, progress: Progress) {
        self.files[file as usize] = progress;
    }

    /// Whether a file still has to be finished.
    pub(crate) fn is_open(&self, file: u32) -> bool {
        match self.progress(file) {
            Progress::Open => true,
            Progress::Settled | Progress::Finished | Progress::GivenUp => false,
        }
    }

    /// Checks a block with its trailer; changes nothing.
    pub(crate) fn check<'a>(
        &self,
        file: u32,
        block: u64,
        framed: &'a [u8],
    ) -> Result<Checked<'a>, SinkError> {
        let size = match self.manifest.entries.get(file as usize) {
            Some(entry) if block < blocks_in(entry.size) => entry.size,
            Some(_) | None => return Err(SinkError::NotWanted { file, block }),
        };
        let there = |tree: &Tree| tree.there().contains(block);
        if !self.is_open(file) || self.trees.get(&file).is_some_and(there) {
            return Ok(Checked::Over(Written::Duplicate));
        }
        Ok(match check_block(size, block, framed) {
            BlockCheck::Good(value) => Checked::Keep(value, &framed[..framed.len() - TRAILER]),
            BlockCheck::Lost => Checked::Over(Written::Lost),
            BlockCheck::Bad | BlockCheck::WrongLength => Checked::Over(Written::Bad),
        })
    }

    /// Notes a block that was kept.
    pub(crate) fn note(&mut self, file: u32, block: u64, value: Value) -> Written {
        let size = self.entry(file).size;
        let tree = self.trees.entry(file).or_insert_with(|| Tree::new(size));
        tree.insert(block, value);
        if tree.missing() == 0 { Written::Completed } else { Written::Good }
    }

    /// Forgets the blocks of a file: they must come again. Returns the content bytes in them.
    pub(crate) fn forget(&mut self, file: u32) -> u64 {
        let Some(tree) = self.trees.remove(&file) else { return 0 };
        let (there, size) = (tree.there(), self.entry(file).size);
        let last = blocks_in(size).saturating_sub(1);
        let lacks =
            if there.contains(last) { BLOCK - u64::from(content_of(size, last)) } else { 0 };
        there.len() * BLOCK - lacks
    }

    /// What is known of a file's blocks.
    pub(crate) fn tree(&self, file: u32) -> Option<&Tree> {
        self.trees.get(&file)
    }

    /// How many blocks of a file have not been noted.
    pub(crate) fn missing(&self, file: u32) -> u64 {
        let blocks = blocks_in(self.entry(file).size);
        self.trees.get(&file).map_or(blocks, Tree::missing)
    }

    /// The root of a file whose blocks are all there, compared with what is expected of it.
    pub(crate) fn root(&self, file: u32, expected: Option<Value>) -> Result<Value, SinkError> {
        let path = || escaped(self.entry(file).path.as_str());
        let got = match self.trees.get(&file) {
            None if self.entry(file).size == 0 => Some(empty_root()),
            None => None,
            Some(tree) => tree.root(),
        };
        let Some(got) = got else {
            return Err(SinkError::Incomplete { path: path(), missing: self.missing(file) });
        };
        match expected {
            Some(expected) if expected != got => {
                Err(SinkError::RootMismatch { path: path(), expected, got })
            }
            Some(_) | None => Ok(got),
        }
    }

    /// Marks a file finished and frees what was known of its blocks.
    pub(crate) fn finished(&mut self, file: u32) {
        self.trees.remove(&file);
        self.set(file, Progress::Finished);
    }

    /// Gives an entry up, whatever is there of it; says how many of its blocks were missing.
    /// `None`: it was given up before.
    pub(crate) fn give_up(&mut self, file: u32) -> Option<u64> {
        match self.progress(file) {
            Progress::GivenUp => None,
            Progress::Open | Progress::Settled | Progress::Finished => {
                let missing = if self.is_open(file) { self.missing(file) } else { 0 };
                self.trees.remove(&file);
                self.set(file, Progress::GivenUp);
                Some(missing)
            }
        }
    }

    /// How many files were given up.
    pub(crate) fn given_up(&self) -> u64 {
        let lost = |(p, e): &(&Progress, &Entry)| **p == Progress::GivenUp && e.kind == Kind::File;
        self.files.iter().zip(&self.manifest.entries).filter(lost).count() as u64
    }

    /// The first file that is not finished, as an error.
    pub(crate) fn all_finished(&self) -> Result<(), SinkError> {
        match self.files.iter().position(|&p| p == Progress::Open) {
            None => Ok(()),
            Some(file) => Err(SinkError::Incomplete {
                path: escaped(self.entry(file as u32).path.as_str()),
                missing: self.missing(file as u32),
            }),
        }
    }
}
