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
    kept: Kept<'a>,
}

/// What is known of a listing so far.
struct Kept<'a> {
    earlier: Option<&'a Scanned>,
    /// Entries that are as in the earlier listing, and are not kept here.
    same: usize,
    /// Names left out that are as in the earlier listing, and are not kept here.
    same_skipped: usize,
    entries: Vec<Entry>,
    stamps: Vec<Stamp>,
    skipped: Vec<Skipped>,
    skipped_total: u64,
}

/// Is told the length of each path before that is kept, and 0 now and then; returns whether to go
/// on.
type Room<'a> = &'a mut dyn FnMut(usize) -> bool;

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
        let kept = Kept {
            earlier: earlier.map(|earlier| &**earlier).filter(alike),
            same: 0,
            same_skipped: 0,
            entries: Vec::new(),
            stamps: Vec::new(),
            skipped: Vec::new(),
            skipped_total: 0,
        };
        Gathering { lister, kept }
    }

    /// Gathers everything, as far as there is `room`.
    ///
    /// # Errors
    /// As [`crate::Export::scan_like`].
    pub fn run(mut self, room: Room) -> Result<Scanned, SourceError> {
        let kept = &mut self.kept;
        loop {
            let next = self.lister.next_entry(&mut |step| match step {
                Step::Skipped(name) => kept.skip(name, room).is_ok(),
                Step::Entry(_) | Step::Nothing => room(0),
            });
            let Some(next) = next else { break };
            let (entry, stamp) = next?;
            kept.take(entry, stamp, room)?;
        }
        if !kept.is_like_earlier() {
            kept.part(room)?;
        }
        self.end()
    }

    fn end(self) -> Result<Scanned, SourceError> {
        let Kept { earlier, mut entries, mut stamps, skipped, skipped_total, .. } = self.kept;
        entries.shrink_to_fit();
        stamps.shrink_to_fit();
        let is_unchanged = earlier.is_some();
        let (root_kind, own) = (self.lister.kind(), self.lister.own());
        let manifest = Manifest { root_kind, own, entries };
        if !is_unchanged {
            manifest.validate()?;
        }
        Ok(Scanned {
            manifest: Arc::new(manifest),
            skipped,
            skipped_total,
            base: self.lister.into_base(),
            stamps,
            is_unchanged,
        })
    }
}

impl Kept<'_> {
    /// Takes the next entry, which is kept unless it is as in the earlier listing.
    fn take(&mut self, entry: Entry, stamp: Stamp, room: Room) -> Result<(), SourceError> {
        if self.is_expected(&entry, &stamp) {
            self.same += 1;
            return told(room, 0);
        }
        self.part(room)?;
        told(room, entry.path.as_str().len())?;
        self.entries.push(entry);
        self.stamps.push(stamp);
        Ok(())
    }

    /// Takes a name that is left out. The first [`MAX_SKIPPED`] are kept, the rest only counted.
    fn skip(&mut self, name: Skipped, room: Room) -> Result<(), SourceError> {
        self.skipped_total += 1;
        if self.skipped_total > MAX_SKIPPED as u64 {
            return told(room, 0);
        }
        let expected = self.earlier.and_then(|earlier| earlier.skipped.get(self.same_skipped));
        if expected == Some(&name) {
            self.same_skipped += 1;
            return told(room, 0);
        }
        self.part(room)?;
        told(room, name.path.len().max(1))?;
        self.skipped.push(name);
        Ok(())
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
                && self.same_skipped == earlier.skipped.len()
                && self.skipped_total == earlier.skipped_total
        })
    }

    /// Leaves the earlier listing: what was the same in it is copied.
    fn part(&mut self, room: Room) -> Result<(), SourceError> {
        let Some(earlier) = self.earlier.take() else { return Ok(()) };
        self.entries.reserve(earlier.stamps.len());
        self.stamps.reserve(earlier.stamps.len());
        let entries = earlier.manifest.entries.iter().zip(&earlier.stamps);
        for (entry, stamp) in entries.take(self.same) {
            told(room, entry.path.as_str().len())?;
            self.entries.push(entry.clone());
            self.stamps.push(*stamp);
        }
        for name in earlier.skipped.iter().take(self.same_skipped) {
            told(room, name.path.len().max(1))?;
            self.skipped.push(name.clone());
        }
        Ok(())
    }
}

fn told(room: Room, path: usize) -> Result<(), SourceError> {
    if room(path) { Ok(()) } else { Err(SourceError::NoRoom) }
}
