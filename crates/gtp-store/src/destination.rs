//! Where an object goes.
//!
//! The rule is that of `cp`: when the destination is a directory, the object goes beneath it
//! under its own name; otherwise the destination is the object's new name, and the directory that
//! holds it must exist. An object without a name of its own (all that a server exports) can also
//! go into an existing directory directly, beside what is there. One addition makes the same
//! words mean the same place until they have succeeded: a directory that is the new name of an
//! unfinished transfer, whose journal still lies beside it, is resumed and not gone beneath.
//!
//! The directory that holds the object is opened once, links in the user's own words followed.
//! From there on everything is beneath that handle and no link is followed.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::disk::OsDisk;
use crate::manifest::RootKind;
use crate::name::{JOURNAL_SUFFIX, PART_SUFFIX, RelPath, beside, escaped};
use crate::sink::{Fault, SinkError};
use crate::walk::split;

/// A place for one object.
#[derive(Debug)]
pub struct Destination {
    pub(crate) disk: OsDisk,
    pub(crate) names: Names,
}

/// The paths of an object's files in its destination, relative to the handle.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    kind: RootKind,
    /// The object's name there; `None` puts a directory's entries into the handle itself.
    base: Option<RelPath>,
    /// The handle's path as the user wrote it, escaped.
    shown: String,
}

impl Destination {
    /// Finds the place for an object of this kind. `name` is the object's own name: needed for a
    /// file, and for a directory that is to go beneath an existing one under its name.
    ///
    /// # Errors
    /// [`Fault::Missing`] when the holding directory does not exist, [`Fault::NotADirectory`]
    /// when something is where a directory should go, [`SinkError::Unsuitable`] for a name that
    /// is not one valid component, and what opening says.
    pub fn open(
        dest: &Path,
        name: Option<&RelPath>,
        kind: RootKind,
    ) -> Result<Destination, SinkError> {
        let shown = dest.to_string_lossy();
        if dest.is_dir() && !(kind == RootKind::Dir && is_unfinished(dest)) {
            let fits = name.is_none_or(|name| name.parent().is_none());
            if !fits || (kind == RootKind::File && name.is_none()) {
                let why = format!("{}: the object has no name to go there", escaped(&shown));
                return Err(SinkError::Unsuitable(why));
            }
            return Destination::beneath(dest, name.cloned(), kind);
        }
        let in_the_way = dest.symlink_metadata().is_ok_and(|found| !found.is_dir());
        if in_the_way && kind == RootKind::Dir {
            return Err(SinkError::refused(&shown, Fault::NotADirectory));
        }
        let new_name = dest.file_name().unwrap_or_default().as_bytes();
        let new_name = RelPath::from_bytes(new_name)
            .map_err(|why| SinkError::Unsuitable(format!("{}: {why}", escaped(&shown))))?;
        let holder = dest.parent().filter(|p| !p.as_os_str().is_empty());
        Destination::beneath(holder.unwrap_or(Path::new(".")), Some(new_name), kind)
    }

    fn beneath(
        holder: &Path,
        base: Option<RelPath>,
        kind: RootKind,
    ) -> Result<Destination, SinkError> {
        let shown = holder.to_string_lossy();
        let disk = OsDisk::beneath(holder).map_err(|e| SinkError::disk(&shown, e))?;
        Ok(Destination { disk, names: Names::new(kind, base, &shown) })
    }

    /// The path of the object as the user will find it, escaped for display.
    pub fn shown(&self) -> String {
        self.names.shown(self.names.root())
    }
}

/// Whether the journal of a transfer to this very name lies beside a directory.
fn is_unfinished(dest: &Path) -> bool {
    let Some(name) = dest.file_name().and_then(|name| name.to_str()) else { return false };
    let journal = dest.with_file_name(beside(name, JOURNAL_SUFFIX));
    journal.symlink_metadata().is_ok_and(|found| found.is_file())
}

impl Names {
    pub(crate) fn new(kind: RootKind, base: Option<RelPath>, holder: &str) -> Names {
        Names { kind, base, shown: escaped(holder) }
    }

    /// The object itself; `""` when it is the handle.
    pub(crate) fn root(&self) -> &str {
        self.base.as_ref().map_or("", RelPath::as_str)
    }

    /// Where an entry goes.
    pub(crate) fn final_path(&self, entry: &RelPath) -> String {
        match (self.kind, &self.base) {
            (RootKind::File, Some(base)) => base.as_str().to_owned(),
            (RootKind::Dir, Some(base)) => format!("{}/{}", base.as_str(), entry.as_str()),
            (RootKind::File | RootKind::Dir, None) => entry.as_str().to_owned(),
        }
    }

    /// Where an entry is while it is not whole.
    pub(crate) fn part_path(&self, entry: &RelPath) -> String {
        let path = self.final_path(entry);
        match split(&path) {
            ("", name) => beside(name, PART_SUFFIX),
            (parent, name) => format!("{parent}/{}", beside(name, PART_SUFFIX)),
        }
    }

    /// The journal of the object, always in the handle itself.
    pub(crate) fn journal_path(&self) -> String {
        beside(self.root(), JOURNAL_SUFFIX)
    }

    /// A path as the user knows it, escaped already where it was not written by us.
    pub(crate) fn shown(&self, path: &str) -> String {
        match (self.shown.as_str(), path) {
            (".", path) => escaped(path),
            (holder, "") => holder.to_owned(),
            (holder, path) => format!("{}/{}", holder.trim_end_matches('/'), escaped(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(s: &str) -> RelPath {
        RelPath::new(s).unwrap()
    }

    #[test]
    fn an_existing_directory_takes_the_object_beneath_it_and_a_new_name_renames_it() {
        let dir = tempfile::tempdir().unwrap();
        let open = |dest: &Path, kind| Destination::open(dest, Some(&name("obj")), kind).unwrap();
        let beneath = open(dir.path(), RootKind::File);
        assert_eq!(beneath.names.final_path(&name("obj")), "obj");
        let renamed = open(&dir.path().join("new"), RootKind::Dir);
        assert_eq!(renamed.names.final_path(&name("a/b")), "new/a/b");
        assert_eq!(renamed.names.part_path(&name("a/b")), "new/a/b.gtp-part");
        assert_eq!(renamed.names.journal_path(), "new.gtp-journal");
        assert_eq!(renamed.shown(), format!("{}/new", dir.path().display()));
        let into = Destination::open(dir.path(), None, RootKind::Dir).unwrap();
        assert_eq!(into.names.final_path(&name("a/b")), "a/b");
        assert_eq!(into.names.journal_path(), ".gtp-journal");
    }

    #[test]
    fn an_unfinished_transfer_to_a_new_name_is_resumed_there_and_a_finished_one_gone_beneath() {
        let dir = tempfile::tempdir().unwrap();
        let dest = dir.path().join("new");
        std::fs::create_dir(&dest).unwrap();
        let path = || {
            let there = Destination::open(&dest, Some(&name("obj")), RootKind::Dir).unwrap();
            there.names.final_path(&name("a"))
        };
        assert_eq!(path(), "obj/a");
        std::fs::write(dir.path().join("new.gtp-journal"), b"").unwrap();
        assert_eq!(path(), "new/a");
    }

    #[test]
    fn impossible_destinations_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let fault = |dest: &Path, kind| Destination::open(dest, None, kind).unwrap_err().fault();
        let missing = dir.path().join("no/such");
        assert_eq!(fault(&missing, RootKind::File), Some(Fault::Missing));
        let file = dir.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        assert_eq!(fault(&file, RootKind::Dir), Some(Fault::NotADirectory));
        assert_eq!(fault(&file.join("x"), RootKind::File), Some(Fault::NotADirectory));
        assert_eq!(fault(dir.path(), RootKind::File), None);
        assert_eq!(fault(&dir.path().join("x.gtp-part"), RootKind::File), None);
    }
}
