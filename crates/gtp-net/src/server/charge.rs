//! What a session's writing takes of quotas: looked up before it begins, reserved, and settled by
//! what is there at the end.
//!
//! A session reserves at most what it adds: replaced files are there until their successors are
//! whole. A file that an earlier attempt left unfinished is there already and not reserved again.
//! Everything here blocks.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gtp_store::replica::{Deed, Seen};
use gtp_store::{BlockSink, Entry, Kind, Manifest, RelPath, RootKind, Sizes, Usage};

use super::quota::{Amounts, Claimed, Full, Meter, Reservation};
use super::spot::Spot;

/// Room for an object that is put.
pub(super) struct Charge {
    meter: Meter,
    held: Reservation,
    needs: Amounts,
    before: Amounts,
    object: Object,
    /// Given back when all is settled.
    _claimed: Claimed,
}

/// An object at the place that it goes to.
struct Object {
    /// Beneath the holder.
    sizes: Sizes,
    /// Its name in the holder; `None` is the holder itself.
    name: Option<RelPath>,
    manifest: Arc<Manifest>,
}

impl Charge {
    /// Reserves room for an object; `None` where nothing is counted.
    ///
    /// # Errors
    /// [`Full`].
    pub fn take(
        meter: Meter,
        spot: &Spot,
        manifest: &Arc<Manifest>,
    ) -> Result<Option<Charge>, Full> {
        let Ok(holder) = spot.holder.as_fd().try_clone_to_owned() else { return Ok(None) };
        if meter.is_idle() {
            return Ok(None);
        }
        let claimed = meter.claim()?;
        let (name, manifest) = (spot.name.clone(), Arc::clone(manifest));
        let mut object = Object { sizes: Sizes::beneath(holder), name, manifest };
        let needs = object.needs(&meter, |sizes, _, entry, at| is_alike(sizes, entry, at));
        let held = meter.reserve(&needs)?;
        let before = object.there(&meter);
        Ok(Some(Charge { meter, held, needs, before, object, _claimed: claimed }))
    }

    /// Reserves what the sink will write in spite of what was seen before.
    ///
    /// # Errors
    /// [`Full`].
    pub fn top_up(&mut self, sink: &dyn BlockSink) -> Result<(), Full> {
        let needs = self.object.needs(&self.meter, |_, number, _, _| sink.is_kept(number));
        let more = needs.iter().zip(&self.needs).map(|(now, had)| now.minus(*had));
        let more: Amounts = more.collect();
        self.meter.extend(&mut self.held, &more)
    }

    /// Notes what is there now.
    pub fn settle(self) {
        drop(self);
    }
}

/// However a session ends, also while it begins: what it left is there.
impl Drop for Charge {
    fn drop(&mut self) {
        let after = self.object.there(&self.meter);
        self.meter.settle(&self.before, &after);
    }
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
    /// The paths of an entry: beneath the holder, and beneath the meter's path.
    fn paths<'e>(
        (kind, name): (RootKind, Option<&RelPath>),
        entry: &'e Entry,
    ) -> (String, &'e str) {
        let beneath = entry.path.as_str();
        match (kind, name) {
            (RootKind::File, Some(name)) => (name.as_str().to_owned(), ""),
            (RootKind::Dir, Some(name)) => (format!("{}/{beneath}", name.as_str()), beneath),
            (RootKind::File | RootKind::Dir, None) => (beneath.to_owned(), beneath),
        }
    }

    /// What it needs beside what is there, but for files that are `kept`.
    fn needs(
        &mut self,
        meter: &Meter,
        mut kept: impl FnMut(&mut Sizes, u32, &Entry, &str) -> bool,
    ) -> Amounts {
        let Object { sizes, name, manifest } = self;
        let (place, mut needs) = ((manifest.root_kind, name.as_ref()), meter.nothing());
        if let (RootKind::Dir, Some(name)) = place {
            meter.add(&mut needs, "", new_name(sizes, name.as_str()));
        }
        for (number, entry) in (0_u32..).zip(&manifest.entries) {
            let (at, beneath) = Object::paths(place, entry);
            let mut need = new_name(sizes, &at);
            if entry.kind == Kind::File && !kept(sizes, number, entry, &at) {
                let part = sizes.of_part(&at);
                need.bytes = entry.size.saturating_sub(part.bytes);
                need.files = need.files.saturating_sub(part.files);
            }
            meter.add(&mut needs, beneath, need);
        }
        needs
    }

    /// What is there of it.
    fn there(&mut self, meter: &Meter) -> Amounts {
        let Object { sizes, name, manifest } = self;
        sizes.look_anew();
        let (place, mut there) = ((manifest.root_kind, name.as_ref()), meter.nothing());
        if let (RootKind::Dir, Some(name)) = place {
            meter.add(&mut there, "", sizes.of(name.as_str()));
        }
        for entry in &manifest.entries {
            let (at, beneath) = Object::paths(place, entry);
            meter.add(&mut there, beneath, sizes.of(&at));
            if entry.kind == Kind::File {
                meter.add(&mut there, beneath, sizes.of_part(&at));
            }
        }
        there
    }
}

/// One more name, if there is none.
fn new_name(sizes: &mut Sizes, at: &str) -> Usage {
    let files = u64::from(sizes.of(at) == Usage::default());
    Usage { bytes: 0, files }
}

/// Room for a stream whose length nobody knows, to one name.
pub(super) struct StreamCharge {
    meter: Meter,
    held: Reservation,
    sizes: Sizes,
    name: RelPath,
    before: Usage,
}

impl StreamCharge {
    /// Reserves a name; `None` where nothing is counted.
    ///
    /// # Errors
    /// [`Full`].
    pub fn take(
        meter: Meter,
        holder: &OwnedFd,
        name: &RelPath,
    ) -> Result<Option<StreamCharge>, Full> {
        let Ok(holder) = holder.try_clone() else { return Ok(None) };
        if meter.is_idle() {
            return Ok(None);
        }
        let (mut sizes, name) = (Sizes::beneath(holder), name.clone());
        let before = sizes.of(name.as_str());
        let mut needs = meter.nothing();
        meter.add(&mut needs, "", new_name(&mut sizes, name.as_str()));
        let held = meter.reserve(&needs)?;
        Ok(Some(StreamCharge { meter, held, sizes, name, before }))
    }

    /// Reserves bytes that are about to be written.
    ///
    /// # Errors
    /// [`Full`].
    pub fn more(&mut self, bytes: u64) -> Result<(), Full> {
        let mut needs = self.meter.nothing();
        self.meter.add(&mut needs, "", Usage { bytes, files: 0 });
        self.meter.extend(&mut self.held, &needs)
    }

    /// Notes what is there now.
    pub fn settle(mut self) {
        let (mut before, mut after) = (self.meter.nothing(), self.meter.nothing());
        self.meter.add(&mut before, "", self.before);
        self.meter.add(&mut after, "", self.sizes.of(self.name.as_str()));
        self.meter.settle(&before, &after);
    }
}

/// Room for steps on a tree.
pub(super) struct PageCharge<'m> {
    meter: &'m Meter,
    held: Option<Reservation>,
    sizes: Sizes,
    /// The tree's path beneath what sizes look at.
    tree: Option<RelPath>,
    names: BTreeSet<String>,
    /// Those that move with all beneath them.
    deep: BTreeSet<String>,
    before: Amounts,
}

impl<'m> PageCharge<'m> {
    /// Looks at the names that these steps concern, in the tree at a path beneath `root`; `None`
    /// where nothing is counted.
    pub fn of<'d>(
        meter: &'m Meter,
        (root, tree): (OwnedFd, Option<RelPath>),
        deeds: impl Iterator<Item = &'d Deed>,
    ) -> Option<PageCharge<'m>> {
        if meter.is_idle() {
            return None;
        }
        let (mut names, mut deep) = (BTreeSet::new(), BTreeSet::new());
        for deed in deeds {
            names.insert(deed.name().to_owned());
            if let Deed::Move { path, seen, to } = deed {
                names.insert(to.as_str().to_owned());
                if *seen == Seen::Dir {
                    deep.extend([path, to].map(|path| path.as_str().to_owned()));
                }
            }
        }
        let (held, sizes, before) = (None, Sizes::beneath(root), Amounts::new());
        let mut page = PageCharge { meter, held, sizes, tree, names, deep, before };
        page.before = page.there();
        Some(page)
    }

    /// Reserves what a step needs.
    ///
    /// # Errors
    /// [`Full`].
    pub fn admit(&mut self, deed: &Deed) -> Result<(), Full> {
        let mut needs = self.meter.nothing();
        let at = self.path(deed.name());
        let new = new_name(&mut self.sizes, &at);
        let (name, takes) = match deed {
            Deed::MakeDir { .. } | Deed::Link { .. } => (deed.name(), new),
            Deed::Write { content, .. } => {
                (deed.name(), Usage { bytes: content.len() as u64, ..new })
            }
            Deed::Patch { size, .. } => (deed.name(), Usage { bytes: *size as u64, ..new }),
            Deed::HardLink { to, .. } => {
                let target = self.path(to.as_str());
                (deed.name(), Usage { bytes: self.sizes.of(&target).bytes, ..new })
            }
            Deed::Move { to, .. } if !self.meter.is_even() => {
                let mut all = self.sizes.of(&at);
                self.sizes.beneath_path(&at, &mut |_, takes| all = all.plus(takes));
                (to.as_str(), all)
            }
            Deed::Move { .. }
            | Deed::Remove { .. }
            | Deed::Dig { .. }
            | Deed::Dress(_)
            | Deed::Keep { .. } => return Ok(()),
        };
        self.meter.add(&mut needs, name, takes);
        match &mut self.held {
            Some(held) => self.meter.extend(held, &needs),
            none @ None => {
                *none = Some(self.meter.reserve(&needs)?);
                Ok(())
            }
        }
    }

    /// Notes what is there now.
    pub fn settle(mut self) {
        let after = self.there();
        self.meter.settle(&self.before, &after);
    }

    /// What is at the names: where a directory moves, with all beneath it.
    fn there(&mut self) -> Amounts {
        let (meter, mut there) = (self.meter, self.meter.nothing());
        self.sizes.look_anew();
        let names = std::mem::take(&mut self.names);
        for name in &names {
            if self.is_beneath_deep(name) {
                continue;
            }
            let at = self.path(name);
            meter.add(&mut there, name, self.sizes.of(&at));
            if self.deep.contains(name) {
                self.sizes.beneath_path(&at, &mut |path, takes| {
                    meter.add(&mut there, &format!("{name}/{path}"), takes);
                });
            }
        }
        self.names = names;
        there
    }

    /// Whether a directory above a name is looked at with all beneath it.
    fn is_beneath_deep(&self, name: &str) -> bool {
        let cuts = name.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
        cuts.map(|(at, _)| &name[..at]).any(|above| self.deep.contains(above))
    }

    fn path(&self, name: &str) -> String {
        match (&self.tree, name) {
            (None, name) => name.to_owned(),
            (Some(tree), "") => tree.as_str().to_owned(),
            (Some(tree), name) => format!("{}/{name}", tree.as_str()),
        }
    }
}
