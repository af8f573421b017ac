//! A whole listing in memory, gathered from a [`Lister`], within a budget.
//!
//! Many clients ask for the same object. So a listing is compared with an earlier one while it
//! grows: as long as both agree, nothing is kept of the new one, and if they agree to the end, the
//! earlier one stands for both. Who asks, and whose memory it is, is unknown here.

use std::sync::Arc;

use rustix::fs::fstat;

use crate::export::{MAX_SKIPPED, Scanned, Skipped, Stamp};
use crate::lister::{Lister, Step};
use crate::manifest::{Entry, Manifest};
use crate::source::SourceError;

/// A listing that grows.
pub(crate) struct Gathering<'a> {
    lister: Lister,
    earlier: Option<&'a Scanned>,
    /// Entries that are as in the earlier listing, and are not kept here.
    same: usize,
    entries: Vec<Entry>,
    stamps: Vec<Stamp>,
    skipped: Vec<Skipped>,
    skipped_total: u64,
}

impl<'a> Gathering<'a> {
    pub fn of(lister: Lister, earlier: Option<&'a Arc<Scanned>>) -> Gathering<'a> {
        let alike = |earlier: &&Scanned| {
            let is_here = match (fstat(lister.base()), fstat(&earlier.base)) {
                (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
                (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
            };
            let manifest = &earlier.manifest;
            is_here && manifest.root_kind == lister.kind() && manifest.own == lister.own()
        };
        Gathering {
            earlier: earlier.map(|earlier| &**earlier).filter(alike),
            lister,
            same: 0,
            entries: Vec::new(),
            stamps: Vec::new(),
            skipped: Vec::new(),
            skipped_total: 0,
        }
    }

    /// Gathers everything, as far as there is `room`.
    ///
    /// # Errors
    /// As [`crate::Export::scan_like`].
    pub fn run(mut self, room: &mut dyn FnMut(usize) -> bool) -> Result<Scanned, SourceError> {
        while let Some(next) = self.next(room) {
            let (entry, stamp) = next?;
            if self.is_expected(&entry, &stamp) {
                self.same += 1;
                if !room(0) {
                    return Err(SourceError::NoRoom);
                }
                continue;
            }
            self.part(room)?;
            if !room(entry.path.as_str().len()) {
                return Err(SourceError::NoRoom);
            }
            self.entries.push(entry);
            self.stamps.push(stamp);
        }
        if !self.is_like_earlier() {
            self.part(room)?;
        }
        self.end()
    }

    fn next(
        &mut self,
        room: &mut dyn FnMut(usize) -> bool,
    ) -> Option<Result<(Entry, Stamp), SourceError>> {
        let (skipped, total) = (&mut self.skipped, &mut self.skipped_total);
        self.lister.next_entry(&mut |step| {
            if let Step::Skipped(name) = step {
                *total += 1;
                if skipped.len() < MAX_SKIPPED {
                    skipped.push(name);
                }
            }
            room(0)
        })
    }

    /// Whether an entry is the next one of the earlier listing.
    fn is_expected(&self, entry: &Entry, stamp: &Stamp) -> bool {
        self.earlier.is_some_and(|earlier| {
            earlier.manifest.entries.get(self.same) == Some(entry)
                && earlier.stamps.get(self.same) == Some(stamp)
        })
    }

    fn is_like_earlier(&self) -> bool {
        self.earlier.is_some_and(|earlier| {
            self.same == earlier.stamps.len()
                && self.skipped == earlier.skipped
                && self.skipped_total == earlier.skipped_total
        })
    }

    /// Leaves the earlier listing: what was the same in it is copied.
    fn part(&mut self, room: &mut dyn FnMut(usize) -> bool) -> Result<(), SourceError> {
        let Some(earlier) = self.earlier.take() else { return Ok(()) };
        self.entries.reserve(earlier.stamps.len());
        self.stamps.reserve(earlier.stamps.len());
        let entries = earlier.manifest.entries.iter().zip(&earlier.stamps);
        for (entry, stamp) in entries.take(self.same) {
            if !room(entry.path.as_str().len()) {
                return Err(SourceError::NoRoom);
            }
            self.entries.push(entry.clone());
            self.stamps.push(*stamp);
        }
        Ok(())
    }

    fn end(mut self) -> Result<Scanned, SourceError> {
        self.entries.shrink_to_fit();
        self.stamps.shrink_to_fit();
        let is_unchanged = self.earlier.is_some();
        let (root_kind, own) = (self.lister.kind(), self.lister.own());
        let manifest = Manifest { root_kind, own, entries: self.entries };
        if !is_unchanged {
            manifest.validate()?;
        }
        Ok(Scanned {
            manifest: Arc::new(manifest),
            skipped: self.skipped,
            skipped_total: self.skipped_total,
            base: self.lister.into_base(),
            stamps: self.stamps,
            is_unchanged,
        })
    }
}
