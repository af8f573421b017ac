//! What a sink of a relayed object gives on: blocks that are here and of which the object's source
//! has said what they are.
//!
//! A block is shown once both are so, and is read again, and checked again, where it was written.
//! A file in which a block is not found as it was is given on no more. Whoever reads is told of
//! blocks in the order in which they came. This module knows no network.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp_store::{
    BlockRow, BlockSource, Framed, Manifest, RangeSet, Reading, Reread, SourceError, Value,
};
use tokio::sync::watch;

use crate::identity::Fingerprint;
use crate::messages::RelayId;
use crate::relaying::{Noted, Stock};

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
    stock: Mutex<Stock>,
    /// Whether it is over; changes with each block that is shown.
    changed: watch::Sender<bool>,
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
        let stock = Mutex::new(Stock::new(blocks.len(), here));
        let (reread, changed) = (Mutex::new(reread), watch::Sender::new(false));
        Arc::new(Shelf { path, manifest, blocks, reread, stock, changed })
    }

    /// A block is here and good. Returns whether it is given on, now or once it is known what it
    /// is.
    pub fn note_here(&self, number: u64) -> bool {
        let noted = self.stock().note_here(number);
        if noted == Noted::Shown {
            self.changed.send_modify(|_| {});
        }
        noted != Noted::Off
    }

    /// The source has said what these blocks are, from this number on.
    pub fn note_values(&self, first: u64, values: &[Value]) {
        self.stock().note_values(first, values);
        self.changed.send_modify(|_| {});
    }

    /// A file is given on no more.
    pub fn take_off(&self, file: Range<u64>) {
        self.stock().take_off(file);
    }

    /// Blocks that were here and are given on no more, of which this has not said so before.
    pub fn taken_off(&self) -> RangeSet {
        self.stock().taken_off()
    }

    /// Says when more is shown, and whether nothing will be any more.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.changed.subscribe()
    }

    /// What was shown since the caller had been told of so many blocks, of which it counts more
    /// then.
    pub fn news(&self, told: &mut usize) -> RangeSet {
        self.stock().news(told)
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
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
        let value = self.shelf.stock().value(number).ok_or_else(none)?;
        match self.reread.read(file, block, &value, out) {
            Reading::It => Ok(()),
            Reading::Another => {
                // Whoever reads comes again, and is told of other files only.
                self.shelf.blocks.file(file).into_iter().for_each(|all| self.shelf.take_off(all));
                Err(none())
            }
            // Perhaps descriptors are used up for a moment: whoever reads comes again for it.
            Reading::Unread => Err(none()),
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
