//! What a page of steps on a tree takes of quotas.
//!
//! Names that the steps concern are looked at alone; a directory that moves is looked at with all
//! beneath it, and belongs to this page while it runs. Steps are admitted one by one: what a step
//! needs depends on the steps before it. Paths are those beneath the export.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use gtp_store::replica::{Deed, Seen};
use gtp_store::{RelPath, Sizes, Usage};

use super::closing::hides;
use super::{Change, new_name, note};
use crate::server::quota::{Amounts, Full, Meter, Reservation};
use crate::server::watched::with_above;

/// Room for steps on a tree.
pub(in crate::server) struct PageCharge<'m> {
    meter: &'m Meter,
    held: Option<Reservation>,
    sizes: Sizes,
    /// The tree's path beneath what sizes look at.
    tree: Option<RelPath>,
    /// Names that are watched.
    names: BTreeSet<String>,
    /// Directories that move with all beneath them.
    moving: BTreeSet<String>,
    /// Names that other sessions hold.
    barred: BTreeSet<String>,
    /// What admitted steps have made at most at each name.
    made: BTreeMap<String, Usage>,
    /// What was beneath those that move.
    before: Beneath,
    /// What admitted steps may have added.
    reserved: Amounts,
}

/// What is beneath directories that move, with what they are themselves.
#[derive(Default)]
struct Beneath {
    amounts: Amounts,
    /// Whether some of it could not be looked at.
    is_partial: bool,
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
        let mut page = PageCharge {
            meter,
            held: None,
            sizes: Sizes::beneath(root),
            tree,
            names: BTreeSet::new(),
            moving: BTreeSet::new(),
            barred: BTreeSet::new(),
            made: BTreeMap::new(),
            before: Beneath::default(),
            reserved: meter.nothing(),
        };
        let (mut names, mut deep) = (BTreeSet::new(), BTreeSet::new());
        for deed in deeds {
            names.extend(page.concerned(deed));
            if let Deed::Move { path, seen: Seen::Dir, to } = deed {
                deep.extend([path, to].map(|path| page.path(path.as_str())));
            }
        }
        page.enter(names, deep);
        page.before = page.beneath();
        Some(page)
    }

    /// The names at which a step changes something.
    fn concerned(&self, deed: &Deed) -> Vec<String> {
        let own = self.path(deed.name());
        let with_new = |new: &str| with_above(new).map(str::to_owned).collect();
        let mut names: Vec<String> = match deed {
            Deed::MakeDir { path: None } => with_new(&own),
            Deed::Move { to, .. } => with_new(&self.path(to.as_str())),
            Deed::MakeDir { path: Some(_) }
            | Deed::Remove { .. }
            | Deed::Link { .. }
            | Deed::HardLink { .. }
            | Deed::Dig { .. }
            | Deed::Dress(_)
            | Deed::Write { .. }
            | Deed::Patch { .. }
            | Deed::Keep { .. } => Vec::new(),
        };
        names.push(own);
        // The export itself is not counted.
        names.retain(|name| !name.is_empty());
        names.dedup();
        names
    }

    fn enter(&mut self, names: BTreeSet<String>, deep: BTreeSet<String>) {
        let mut table = self.meter.watched().table();
        // Those above come first.
        for path in deep {
            if !with_above(&path).any(|above| self.moving.contains(above)) {
                let claimed = table.claim(&path).is_ok();
                if claimed { &mut self.moving } else { &mut self.barred }.insert(path);
            }
        }
        for name in names {
            if !with_above(&name).any(|above| self.moving.contains(above)) {
                let entered = table.enter(&name, &mut self.sizes).is_ok();
                if entered { &mut self.names } else { &mut self.barred }.insert(name);
            }
        }
    }

    /// Reserves what a step needs.
    ///
    /// # Errors
    /// [`Full`].
    pub fn admit(&mut self, deed: &Deed) -> Result<(), Full> {
        let concerned = self.concerned(deed);
        if concerned.iter().any(|name| self.barred.contains(name)) {
            return Err(Full::Claimed);
        }
        let mut needs = self.meter.nothing();
        let at = self.path(deed.name());
        let made = match deed {
            Deed::MakeDir { .. } | Deed::Link { .. } => Usage { bytes: 0, files: 1 },
            Deed::Write { content, .. } => Usage { bytes: content.len() as u64, files: 1 },
            Deed::Patch { size, .. } => Usage { bytes: *size as u64, files: 1 },
            Deed::HardLink { to, .. } => {
                let target = self.path(to.as_str());
                Usage { files: 1, ..self.there(&target) }
            }
            Deed::Move { seen, to, .. } => return self.admit_move(&at, *seen, to),
            Deed::Dress(dress) => {
                let closes = dress.closes() && hides(self.sizes.base()) && self.sizes.is_dir(&at);
                return if closes { Err(Full::Closed) } else { Ok(()) };
            }
            Deed::Remove { .. } | Deed::Dig { .. } | Deed::Keep { .. } => return Ok(()),
        };
        for name in &concerned {
            let new = new_name(&mut self.sizes, name);
            let bytes = if *name == at { made.bytes } else { 0 };
            self.meter.add(&mut needs, name, Usage { bytes, ..new });
        }
        self.reserve(&needs)?;
        self.make(&at, made);
        Ok(())
    }

    /// Reserves what a step needs that moves something: the directories above its new name, and
    /// itself where that counts for others.
    fn admit_move(&mut self, at: &str, seen: Seen, to: &RelPath) -> Result<(), Full> {
        let (mut needs, to) = (self.meter.nothing(), self.path(to.as_str()));
        for above in with_above(&to).filter(|above| *above != to) {
            let new = new_name(&mut self.sizes, above);
            self.meter.add(&mut needs, above, new);
        }
        let own = self.there(at);
        if !self.meter.is_even() {
            self.meter.add(&mut needs, &to, own);
            if seen == Seen::Dir {
                self.add_moved(&mut needs, at, &to)?;
            }
        }
        self.reserve(&needs)?;
        self.make(&to, own);
        Ok(())
    }

    /// Adds all that is beneath a directory, as it will be beneath another one.
    fn add_moved(&mut self, needs: &mut Amounts, at: &str, to: &str) -> Result<(), Full> {
        let (meter, mut is_whole) = (self.meter, true);
        self.sizes.beneath_path(at, &mut |path, takes| {
            is_whole &= takes.is_some();
            meter.add(needs, &format!("{to}/{path}"), takes.unwrap_or_default());
        });
        // What steps before have written may not have its name yet.
        let beneath = format!("{at}/");
        for (name, &made) in self.made.range(beneath.clone()..) {
            let Some(path) = name.strip_prefix(&beneath) else { break };
            meter.add(needs, &format!("{to}/{path}"), made);
        }
        if is_whole { Ok(()) } else { Err(Full::Unseen) }
    }

    /// What is at a name at most once all steps that were admitted are done.
    fn there(&mut self, name: &str) -> Usage {
        let there = self.sizes.of(name).unwrap_or_default();
        let made = self.made.get(name).copied().unwrap_or_default();
        Usage { bytes: there.bytes.max(made.bytes), files: there.files.max(made.files) }
    }

    fn make(&mut self, name: &str, made: Usage) {
        let sum = self.made.entry(name.to_owned()).or_default();
        *sum = sum.plus(made);
    }

    fn reserve(&mut self, needs: &Amounts) -> Result<(), Full> {
        match &mut self.held {
            Some(held) => self.meter.extend(held, needs)?,
            none @ None => *none = Some(self.meter.reserve(needs)?),
        }
        for (sum, need) in self.reserved.iter_mut().zip(needs) {
            *sum = sum.plus(*need);
        }
        Ok(())
    }

    /// Notes what is there now.
    pub fn settle(self) {
        drop(self);
    }

    /// What directories that move are, with all beneath them.
    fn beneath(&mut self) -> Beneath {
        let (meter, mut amounts, mut is_partial) = (self.meter, self.meter.nothing(), false);
        for top in &self.moving {
            let own = self.sizes.with_part(top);
            is_partial |= own.is_none();
            meter.add(&mut amounts, top, own.unwrap_or_default());
            self.sizes.beneath_path(top, &mut |path, takes| {
                is_partial |= takes.is_none();
                meter.add(&mut amounts, &format!("{top}/{path}"), takes.unwrap_or_default());
            });
        }
        Beneath { amounts, is_partial }
    }

    /// A path beneath the export; empty for the export itself.
    fn path(&self, name: &str) -> String {
        match (&self.tree, name) {
            (None, name) => name.to_owned(),
            (Some(tree), "") => tree.as_str().to_owned(),
            (Some(tree), name) => format!("{}/{name}", tree.as_str()),
        }
    }
}

impl Drop for PageCharge<'_> {
    fn drop(&mut self) {
        self.sizes.look_anew();
        let now = self.beneath();
        let mut before = std::mem::take(&mut self.before);
        let mut after = match before.is_partial || now.is_partial {
            false => now.amounts,
            // Nothing was lost for sure, and no more came than was reserved.
            true => before.amounts.iter().zip(&self.reserved).map(|(b, r)| b.plus(*r)).collect(),
        };
        let mut table = self.meter.watched().table();
        for name in &self.names {
            let made = self.made.get(name).copied().unwrap_or_default();
            let change: Change = table.leave(name, &mut self.sizes, made);
            note(self.meter, (&mut before.amounts, &mut after), name, change);
        }
        for path in &self.moving {
            table.give_back(path);
        }
        self.meter.settle(&before.amounts, &after);
    }
}
