//! What a sink of a relayed object gives on: blocks that are here and of which the object's source
//! has said what they are.
//!
//! A block is shown once both are so, and is read again, and checked again, where it was written.
//! Whoever reads is told of blocks in the order in which they came. This module knows no network.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp_store::{
    BlockRow, BlockSource, Framed, Manifest, RangeSet, RelPath, Reread, SourceError, Value,
};
use tokio::sync::watch;

use crate::identity::Fingerprint;
use crate::messages::RelayId;

/// All objects that a server gives on, by who sends them.
#[derive(Default)]
pub(in crate::server) struct Shelves(Mutex<HashMap<(Fingerprint, RelayId), Arc<Shelf>>>);

/// One object that is given on.
pub(in crate::server) struct Shelf {
    /// The path to which it is sent, as in its address.
    pub path: Vec<u8>,
    manifest: Arc<Manifest>,
    blocks: BlockRow,
    /// What each session that reads gets a copy of.
    reread: Mutex<Reread>,
    state: Mutex<State>,
    /// Whether it is over; changes with each block that is shown.
    changed: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    values: HashMap<u64, Value>,
    /// Blocks that were written and checked here.
    here: RangeSet,
    /// Those of them that have values, in the order in which both were so.
    shown: Vec<u64>,
}

/// That an object is on the shelf, for as long as this is held.
pub(in crate::server) struct OnShelf<'a> {
    shelves: &'a Shelves,
    key: (Fingerprint, RelayId),
    pub shelf: Arc<Shelf>,
}

impl Shelves {
    /// Gives on an object of this sender until the guard is dropped. An attempt of the same sender
    /// that has not ended yet gives nothing on any more.
    pub fn put(&self, key: (Fingerprint, RelayId), shelf: Arc<Shelf>) -> OnShelf<'_> {
        if let Some(before) = self.all().insert(key, Arc::clone(&shelf)) {
            before.changed.send_replace(true);
        }
        OnShelf { shelves: self, key, shelf }
    }

    /// What this sender has given on under this number.
    pub fn find(&self, key: (Fingerprint, RelayId)) -> Option<Arc<Shelf>> {
        self.all().get(&key).cloned()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<(Fingerprint, RelayId), Arc<Shelf>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OnShelf<'_> {
    fn drop(&mut self) {
        let mut all = self.shelves.all();
        if all.get(&self.key).is_some_and(|shelf| Arc::ptr_eq(shelf, &self.shelf)) {
            all.remove(&self.key);
        }
        self.shelf.changed.send_replace(true);
    }
}

impl Shelf {
    /// A shelf for an object that is sent to this path; `here` are blocks that were found good.
    pub fn new(
        path: Vec<u8>,
        manifest: Arc<Manifest>,
        reread: Reread,
        here: RangeSet,
    ) -> Arc<Shelf> {
        let blocks = BlockRow::of(&manifest);
        let state = Mutex::new(State { here, ..State::default() });
        let (reread, changed) = (Mutex::new(reread), watch::Sender::new(false));
        Arc::new(Shelf { path, manifest, blocks, reread, state, changed })
    }

    /// A block is here and good.
    pub fn note_here(&self, number: u64) {
        let mut state = self.state();
        let is_news = state.here.insert_one(number);
        if is_news && state.values.contains_key(&number) {
            state.shown.push(number);
            self.changed.send_modify(|_| {});
        }
    }

    /// The source has said what these blocks are, from this number on.
    pub fn note_values(&self, first: u64, values: &[Value]) {
        let mut state = self.state();
        for (number, value) in (first..self.blocks.len()).zip(values) {
            if state.values.insert(number, *value).is_none() && state.here.contains(number) {
                state.shown.push(number);
            }
        }
        self.changed.send_modify(|_| {});
    }

    /// Says when more is shown, and whether nothing will be any more.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.changed.subscribe()
    }

    /// What was shown since the caller had been told of so many blocks, of which it counts more
    /// then.
    pub fn news(&self, told: &mut usize) -> RangeSet {
        let state = self.state();
        let news = state.shown.get(*told..).unwrap_or_default();
        *told = state.shown.len();
        news.iter().map(|&number| number..number + 1).collect()
    }

    fn value(&self, number: u64) -> Option<Value> {
        let state = self.state();
        state.values.get(&number).copied().filter(|_| state.here.contains(number))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The blocks of a shelf as a source.
pub(in crate::server) struct ShelfSource {
    shelf: Arc<Shelf>,
    reread: Reread,
}

impl ShelfSource {
    /// A source of its own; `None` if the system gives no descriptor.
    pub fn of(shelf: &Arc<Shelf>) -> Option<ShelfSource> {
        let reread = shelf.reread.lock().unwrap_or_else(PoisonError::into_inner).another()?;
        Some(ShelfSource { shelf: Arc::clone(shelf), reread })
    }
}

impl BlockSource for ShelfSource {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.shelf.manifest
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        let none = || SourceError::NoSuchBlock { file, block };
        let number = self.shelf.blocks.number(file, block).ok_or_else(none)?;
        let value = self.shelf.value(number).ok_or_else(none)?;
        match self.reread.read(file, block, &value, out) {
            true => Ok(()),
            false => {
                let entry = self.shelf.manifest.entries.get(file as usize);
                let path = entry.map(|entry| entry.path.clone());
                Err(path.map_or_else(none, |path: RelPath| SourceError::Changed { path }))
            }
        }
    }

    fn file_root_while(
        &mut self,
        file: u32,
        _wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        // The object's own source says that.
        Err(SourceError::NoSuchBlock { file, block: 0 })
    }
}

/// What of `range` is in a set.
pub(in crate::server) fn common(set: &RangeSet, range: Range<u64>) -> Vec<Range<u64>> {
    set.within(range).collect()
}
