//! Names beneath one export that sessions change, and what counts of each of them.
//!
//! A session enters a name before it changes anything there, and leaves it once it has: what it
//! finds then takes the place of what was known. Sessions that change the same name at once share
//! what is known, so that each change counts once, whoever finds it. A directory that moves with
//! all beneath it has one session alone. Whose account it is is unknown here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gtp_store::{Sizes, Usage};

use super::quota::Full;

/// What sessions change beneath an export.
#[derive(Default)]
pub(super) struct Watched {
    table: Mutex<Table>,
}

/// The names; whoever holds it may look at the disk meanwhile, so only threads that block take it.
#[derive(Default)]
pub(super) struct Table {
    names: BTreeMap<Box<str>, Name>,
    /// Directories that move.
    moving: BTreeSet<String>,
}

struct Name {
    sessions: u32,
    /// What counts of it and its unfinished file; `None` if it could not be looked at.
    counts: Option<Usage>,
}

/// What counted of a name before, and what counts of it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub before: Usage,
    pub after: Usage,
}

impl Watched {
    /// The names. Blocks for as long as another session looks at some of them.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Notes that a session is about to change a name.
    ///
    /// # Errors
    /// [`Full::Claimed`] if another one moves a directory above it.
    pub fn enter(&mut self, path: &str, sizes: &mut Sizes) -> Result<(), Full> {
        if with_above(path).any(|above| self.moving.contains(above)) {
            return Err(Full::Claimed);
        }
        match self.names.get_mut(path) {
            Some(name) => name.sessions += 1,
            None => {
                let name = Name { sessions: 1, counts: sizes.with_part(path) };
                self.names.insert(path.into(), name);
            }
        }
        Ok(())
    }

    /// Notes that a session has changed a name, where it has reserved so much. What nobody could
    /// look at counts as what it may be at most.
    pub fn leave(&mut self, path: &str, sizes: &mut Sizes, reserved: Usage) -> Change {
        let Some(name) = self.names.get_mut(path) else { return Change::default() };
        let mut found = sizes.with_part(path);
        if found == Some(Usage::default()) {
            // Another directory may have taken the place of the one that was opened.
            sizes.look_anew();
            found = sizes.with_part(path);
        }
        let change = match (name.counts, found) {
            (Some(before), Some(after)) => Change { before, after },
            (Some(before), None) => Change { before, after: before.plus(reserved) },
            (None, Some(found)) => {
                let (bytes, files) =
                    (found.bytes.min(reserved.bytes), found.files.min(reserved.files));
                Change { before: Usage::default(), after: Usage { bytes, files } }
            }
            (None, None) => Change { before: Usage::default(), after: reserved },
        };
        name.counts = found.or(name.counts.map(|_| change.after));
        name.sessions -= 1;
        if name.sessions == 0 {
            self.names.remove(path);
        }
        change
    }

    /// Has a directory to one session alone, with all beneath it, until it is given back.
    ///
    /// # Errors
    /// [`Full::Claimed`] if somebody changes something there.
    pub fn claim(&mut self, path: &str) -> Result<(), Full> {
        let (from, to) = (format!("{path}/"), format!("{path}0"));
        // The character behind the slash is 0.
        let range = (Bound::Included(from.as_str()), Bound::Excluded(to.as_str()));
        let is_used = self.names.contains_key(path)
            || self.names.range::<str, _>(range).next().is_some()
            || self.moving.range::<str, _>(range).next().is_some()
            || with_above(path).any(|above| self.moving.contains(above));
        if is_used {
            return Err(Full::Claimed);
        }
        self.moving.insert(path.to_owned());
        Ok(())
    }

    /// Gives a directory back.
    pub fn give_back(&mut self, path: &str) {
        self.moving.remove(path);
    }

    /// Whether nobody changes anything.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.moving.is_empty()
    }
}

/// A path, and the paths of the directories above it.
pub(super) fn with_above(path: &str) -> impl Iterator<Item = &str> {
    let slashes = path.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    slashes.map(|(at, _)| &path[..at]).chain([path])
}
