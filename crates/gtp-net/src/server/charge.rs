//! What a session's writing takes of quotas: looked up before it begins, reserved, and settled by
//! what is there at the end, however it ends.
//!
//! A session reserves at most what it adds: replaced files are there until their successors are
//! whole. A file that an earlier attempt left unfinished is there already and not reserved again.
//! All is looked at from the export's own directory: so sessions mean the same by a path.
//! Everything here blocks.

mod closing;
mod page;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use closing::hides;
use gtp_store::{Entry, Kind, Manifest, RelPath, RootKind, Sizes, StreamedFile, Usage};
pub(super) use page::PageCharge;

use super::quota::{Amounts, Full, Meter, Reservation};
use super::watched::Change;

/// Names that are looked at before others get their turn.
const AT_ONCE: usize = 256;

/// Room for an object that is put.
pub(super) struct Charge {
    meter: Meter,
    sizes: Sizes,
    object: Object,
    /// So many of its names are watched.
    entered: usize,
    /// What was reserved for each name.
    needs: Vec<Need>,
    held: Option<Reservation>,
}

/// What one name needs.
#[derive(Clone, Copy, Default)]
struct Need {
    reserved: Usage,
    /// Bytes beside that if the file that is there is not kept, against expectation.
    unless_kept: u64,
}

/// An object at the path that it goes to; `None` is the export itself.
struct Object {
    path: Option<RelPath>,
    manifest: Arc<Manifest>,
}

impl Charge {
    /// Reserves room for an object that goes to this path of the export whose directory is `root`,
    /// where its `holder` was found.
    ///
    /// # Errors
    /// [`Full`].
    pub fn take(
        meter: Meter,
        (root, holder): (OwnedFd, &OwnedFd),
        path: Option<&RelPath>,
        manifest: &Arc<Manifest>,
    ) -> Result<Charge, Full> {
        if may_close(manifest) && hides(root.as_fd()) {
            return Err(Full::Closed);
        }
        let object = Object { path: path.cloned(), manifest: Arc::clone(manifest) };
        let (sizes, entered, needs) = (Sizes::beneath(root), 0, Vec::new());
        let mut charge = Charge { meter, sizes, object, entered, needs, held: None };
        charge.enter()?;
        // From now on no session moves it.
        let above = path.and_then(RelPath::parent).unwrap_or_default();
        still_there(&mut charge.sizes, above, holder)?;
        charge.reserve()?;
        Ok(charge)
    }

    fn enter(&mut self) -> Result<(), Full> {
        while self.entered < self.object.names() {
            let end = self.object.names().min(self.entered + AT_ONCE);
            let mut table = self.meter.watched().table();
            while self.entered < end {
                table.enter(&self.object.name(self.entered), &mut self.sizes)?;
                self.entered += 1;
            }
        }
        Ok(())
    }

    fn reserve(&mut self) -> Result<(), Full> {
        let (mut sum, mut needs) = (self.meter.nothing(), Vec::new());
        for index in 0..self.object.names() {
            let name = self.object.name(index);
            let need = need(&mut self.sizes, &name, self.object.entry(index));
            self.meter.add(&mut sum, &name, need.reserved);
            needs.push(need);
        }
        self.held = Some(self.meter.reserve(&sum)?);
        self.needs = needs;
        Ok(())
    }

    /// Reserves what is written in spite of what was seen before, of files not kept: of each alone,
    /// since the room of one that is kept is there for no other.
    ///
    /// # Errors
    /// [`Full`].
    pub fn top_up(&mut self, is_kept: impl Fn(u32) -> bool) -> Result<(), Full> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let first = self.object.names() - self.object.manifest.entries.len();
        let files = (0_u32..).zip(first..self.object.names());
        let is_new = |&(number, _): &(u32, usize)| !is_kept(number);
        let new: Vec<usize> = files.filter(is_new).map(|(_, index)| index).collect();
        let mut more = self.meter.nothing();
        for &index in &new {
            let bytes = self.needs.get(index).map_or(0, |need| need.unless_kept);
            self.meter.add(&mut more, &self.object.name(index), Usage { bytes, files: 0 });
        }
        self.meter.extend(held, &more)?;
        for index in new {
            if let Some(need) = self.needs.get_mut(index) {
                need.reserved.bytes += std::mem::take(&mut need.unless_kept);
            }
        }
        Ok(())
    }
}

/// However a session ends, also while it begins: what it left is there.
impl Drop for Charge {
    fn drop(&mut self) {
        self.sizes.look_anew();
        for begin in (0..self.entered).step_by(AT_ONCE) {
            let mut table = self.meter.watched().table();
            let (mut before, mut after) = (self.meter.nothing(), self.meter.nothing());
            for index in begin..self.entered.min(begin + AT_ONCE) {
                let name = self.object.name(index);
                let reserved = self.needs.get(index).map(|need| need.reserved);
                let change = table.leave(&name, &mut self.sizes, reserved.unwrap_or_default());
                note(&self.meter, (&mut before, &mut after), &name, change);
            }
            self.meter.settle(&before, &after);
        }
    }
}

fn note(meter: &Meter, (before, after): (&mut Amounts, &mut Amounts), name: &str, change: Change) {
    meter.add(before, name, change.before);
    meter.add(after, name, change.after);
}

/// Looks whether the directory that was opened is still the one at its path.
///
/// # Errors
/// [`Full::Claimed`] if another session has moved it, [`Full::Unopened`] if nobody can tell.
fn still_there(sizes: &mut Sizes, above: &str, holder: &OwnedFd) -> Result<(), Full> {
    match sizes.leads_to(above, holder.as_fd()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Full::Claimed),
        Err(errno) => Err(Full::Unopened(std::io::Error::from(errno).to_string())),
    }
}

/// Whether an object has directories that their owner may not list and search.
fn may_close(manifest: &Manifest) -> bool {
    const LISTS_AND_SEARCHES: u32 = 0o500;
    let dirs = manifest.entries.iter().filter(|entry| entry.kind == Kind::Dir);
    let modes = dirs.map(|entry| entry.mode).chain(manifest.own.map(|own| own.mode));
    let mut bits = modes.map(|mode| mode.bits());
    bits.any(|bits| bits & LISTS_AND_SEARCHES != LISTS_AND_SEARCHES)
}

/// What a name needs beside what is there: one for a directory or link, or for an entry.
fn need(sizes: &mut Sizes, at: &str, entry: Option<&Entry>) -> Need {
    let mut reserved = new_name(sizes, at);
    let Some(entry) = entry.filter(|entry| entry.kind == Kind::File) else {
        return Need { reserved, unless_kept: 0 };
    };
    let part = sizes.of_part(at).unwrap_or_default();
    let bytes = entry.size.saturating_sub(part.bytes);
    if is_alike(sizes, entry, at) {
        return Need { reserved, unless_kept: bytes };
    }
    reserved = Usage { bytes, files: reserved.files.saturating_sub(part.files) };
    Need { reserved, unless_kept: 0 }
}

/// Whether a file is there that a put will most likely keep.
fn is_alike(sizes: &mut Sizes, entry: &Entry, at: &str) -> bool {
    sizes.file(at).is_some_and(|(size, seconds)| {
        size == entry.size && entry.mtime.secs().abs_diff(seconds) <= COARSEST_S
    })
}

/// The coarsest times of file systems, in seconds.
const COARSEST_S: u64 = 2;

impl Object {
    /// How many names it has: those of its entries, and its own if it is a directory.
    fn names(&self) -> usize {
        self.manifest.entries.len() + usize::from(self.has_own())
    }

    fn has_own(&self) -> bool {
        self.manifest.root_kind == RootKind::Dir && self.path.is_some()
    }

    /// The entry of a name; `None` for the object's own.
    fn entry(&self, index: usize) -> Option<&Entry> {
        let entry = index.checked_sub(usize::from(self.has_own()))?;
        self.manifest.entries.get(entry)
    }

    /// A name's path beneath the export.
    fn name(&self, index: usize) -> String {
        let path = self.path.as_ref().map(RelPath::as_str);
        match (self.manifest.root_kind, path, self.entry(index)) {
            (RootKind::File, Some(path), _) | (RootKind::Dir, Some(path), None) => path.to_owned(),
            (RootKind::Dir, Some(path), Some(entry)) => format!("{path}/{}", entry.path.as_str()),
            (_, None, entry) => entry.map_or_else(String::new, |entry| entry.path.to_string()),
        }
    }
}

/// One more name, if there is none.
fn new_name(sizes: &mut Sizes, at: &str) -> Usage {
    let files = u64::from(sizes.of(at).is_none_or(|there| there == Usage::default()));
    Usage { bytes: 0, files }
}

/// Room for a stream whose length nobody knows, to one name.
pub(super) struct StreamCharge {
    meter: Meter,
    held: Option<Reservation>,
    sizes: Sizes,
    name: String,
    /// Where it is before it gets that name.
    part: String,
    /// What of it was there, and so was counted, before this began.
    before: Usage,
    reserved: Usage,
}

impl StreamCharge {
    /// Reserves a name for a stream with this tag to this path of the export whose directory is
    /// `root`, where its `holder` was found. A part of it may be there.
    ///
    /// # Errors
    /// [`Full`].
    pub fn take(
        meter: Meter,
        (root, holder): (OwnedFd, &OwnedFd),
        path: &RelPath,
        tag: u64,
    ) -> Result<StreamCharge, Full> {
        let above = path.parent().unwrap_or_default();
        let own = RelPath::new(path.file_name()).map_err(|_| Full::Unseen)?;
        let part = StreamedFile::part_of(&own, tag);
        let part = if above.is_empty() { part } else { format!("{above}/{part}") };
        let mut sizes = Sizes::beneath(root);
        let name = path.to_string();
        meter.watched().table().enter(&name, &mut sizes)?;
        let (held, reserved, before) = (None, Usage::default(), Usage::default());
        let mut charge = StreamCharge { meter, held, sizes, name, part, before, reserved };
        still_there(&mut charge.sizes, above, holder)?;
        charge.before = charge.sizes.of(&charge.part).unwrap_or_default();
        let new = new_name(&mut charge.sizes, &charge.name);
        let files = new.files.saturating_sub(charge.before.files);
        let new = Usage { files, ..new };
        charge.held = Some(charge.meter.reserve(&charge.amounts(new))?);
        charge.reserved = new;
        Ok(charge)
    }

    /// Whether this is of the accounts of that meter.
    pub fn is_of(&self, meter: &Meter) -> bool {
        self.meter.is_same(meter)
    }

    /// Reserves bytes that are about to be written.
    ///
    /// # Errors
    /// [`Full`].
    pub fn more(&mut self, bytes: u64) -> Result<(), Full> {
        let more = Usage { bytes, files: 0 };
        let needs = self.amounts(more);
        if let Some(held) = &mut self.held {
            self.meter.extend(held, &needs)?;
        }
        self.reserved = self.reserved.plus(more);
        Ok(())
    }

    fn amounts(&self, takes: Usage) -> Amounts {
        let mut amounts = self.meter.nothing();
        self.meter.add(&mut amounts, &self.name, takes);
        amounts
    }
}

/// What was not removed of a stream that failed is there as well.
impl Drop for StreamCharge {
    fn drop(&mut self) {
        self.sizes.look_anew();
        let mut table = self.meter.watched().table();
        let mut change = table.leave(&self.name, &mut self.sizes, self.reserved);
        let part = self.sizes.of(&self.part).unwrap_or_default();
        change.after = change.after.plus(part);
        change.before = change.before.plus(self.before);
        self.meter.settle(&self.amounts(change.before), &self.amounts(change.after));
    }
}
