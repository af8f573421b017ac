//! Where an object's files go, once it is decided which directory holds them.
//!
//! An object goes beneath a directory under one name, or, if it is a directory or a bundle of
//! objects, straight into one. Either way everything happens beneath one open handle, and no link
//! is followed from there. What lies in the directory changes nothing about the place, and so an
//! unfinished transfer is found again by the same words. Which directory and which name a command
//! means is decided elsewhere.

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::disk::{MadeDir, OsDisk};
use crate::manifest::{Manifest, RootKind};
use crate::name::{JOURNAL_SUFFIX, PART_SUFFIX, RelPath, beside, escaped};
use crate::sink::SinkError;
use crate::walk::split;

/// The mode with which a directory is made for an object: its owner's alone. The sticky bit, which
/// means nothing there, tells the next transfer that this one did not live to note what it made.
pub const UNFINISHED_DIR: u32 = 0o1700;

/// A place for one object.
#[derive(Debug)]
pub struct Destination {
    pub(crate) disk: OsDisk,
    pub(crate) names: Names,
    /// Whether the transfer has made the directory that the handle is.
    pub(crate) made: MadeDir,
}

/// The paths of an object's files in its destination, relative to the handle.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    kind: RootKind,
    /// The object's name there; `None` puts a directory's entries into the handle itself.
    base: Option<RelPath>,
    journal: String,
    /// What the journal is of: one name beneath the handle, or `""` for all that goes there.
    object: String,
    /// Whether it is a bundle of several objects.
    is_bundle: bool,
    /// The handle's path as the user wrote it, escaped.
    shown: String,
}

impl Destination {
    /// A place under `name` in the directory `holder`, for an object of this kind. Links in
    /// `holder` are followed: its user named it.
    ///
    /// # Errors
    /// [`crate::Fault::Missing`] when the directory does not exist,
    /// [`crate::Fault::NotADirectory`] when it is none, and what opening says.
    pub fn beneath(holder: &Path, name: RelPath, kind: RootKind) -> Result<Destination, SinkError> {
        let (disk, shown) = open(holder)?;
        Ok(Destination { disk, names: Names::new(kind, Some(name), &shown), made: MadeDir::There })
    }

    /// A directory that takes the entries of an object directly, beside what is in it. `made`
    /// says whether it was made for them: such a directory gets the mode of the object. One that
    /// has [`UNFINISHED_DIR`] for its mode was made for them by an earlier transfer.
    ///
    /// # Errors
    /// As [`Destination::beneath`].
    pub fn into(dir: &Path, made: MadeDir) -> Result<Destination, SinkError> {
        let (disk, shown) = open(dir)?;
        let made = disk.whoever_made(made);
        Ok(Destination { disk, names: Names::new(RootKind::Dir, None, &shown), made })
    }

    /// Whether the directory itself was made for the object.
    pub fn made(&self) -> MadeDir {
        self.made
    }

    /// As [`Destination::beneath`], in a directory that is open for reading. `shown` is its path
    /// as people know it.
    pub fn beneath_open(
        holder: OwnedFd,
        shown: &str,
        name: RelPath,
        kind: RootKind,
    ) -> Destination {
        let names = Names::new(kind, Some(name), shown);
        Destination { disk: OsDisk::of(holder), names, made: MadeDir::There }
    }

    /// As [`Destination::into`], for a directory that is open for reading. `shown` is its path as
    /// people know it.
    pub fn into_open(dir: OwnedFd, shown: &str, made: MadeDir) -> Destination {
        let disk = OsDisk::of(dir);
        let made = disk.whoever_made(made);
        Destination { disk, names: Names::new(RootKind::Dir, None, shown), made }
    }

    /// The path of the object as the user will find it, escaped for display.
    pub fn shown(&self) -> String {
        self.names.shown(self.names.root())
    }
}

fn open(dir: &Path) -> Result<(OsDisk, String), SinkError> {
    let shown = dir.to_string_lossy().into_owned();
    let disk = OsDisk::beneath(dir).map_err(|e| SinkError::disk(&shown, e))?;
    Ok((disk, shown))
}

impl Names {
    pub(crate) fn new(kind: RootKind, base: Option<RelPath>, holder: &str) -> Names {
        let object = base.as_ref().map_or("", RelPath::as_str).to_owned();
        let journal = beside(&object, JOURNAL_SUFFIX);
        Names { kind, base, journal, object, is_bundle: false, shown: escaped(holder) }
    }

    /// Gives each bundle of objects a journal of its own, named after the objects, so that others
    /// can go into the same directory meanwhile. A directory's own content keeps the directory's.
    pub(crate) fn tell_apart(&mut self, manifest: &Manifest) {
        if self.base.is_some() || manifest.own.is_some() {
            return;
        }
        let paths = manifest.entries.iter().map(|entry| entry.path.as_str());
        let mut tops = paths.filter(|path| !path.contains('/'));
        let name = match (tops.next(), tops.next()) {
            (None, _) => return,
            (Some(only), None) => {
                self.object = only.to_owned();
                only.to_owned()
            }
            (Some(first), Some(second)) => {
                let mut hasher = blake3::Hasher::new();
                for name in [first, second].into_iter().chain(tops) {
                    hasher.update(name.as_bytes()).update(&[0]);
                }
                self.is_bundle = true;
                format!(".{}", &hasher.finalize().to_hex()[..BUNDLE_DIGITS])
            }
        };
        self.journal = beside(&name, JOURNAL_SUFFIX);
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
    pub(crate) fn journal_path(&self) -> &str {
        &self.journal
    }

    /// Whether it is a bundle of several objects.
    pub(crate) fn is_bundle(&self) -> bool {
        self.is_bundle
    }

    /// What another transfer with the same journal would be writing, as the user knows it.
    pub(crate) fn shown_object(&self) -> String {
        self.shown(&self.object)
    }

    /// A path as the user knows it, escaped already where it was not written by us.
    pub(crate) fn shown(&self, path: &str) -> String {
        match (self.shown.as_str(), path) {
            (".", "") => ".".to_owned(),
            (".", path) => escaped(path),
            (holder, "") => holder.to_owned(),
            (holder, path) => format!("{}/{}", holder.trim_end_matches('/'), escaped(path)),
        }
    }
}

/// Whether a bundle of several objects may have a journal of this name.
pub(crate) fn is_bundle_journal(name: &str) -> bool {
    let digits = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(JOURNAL_SUFFIX));
    digits.is_some_and(|digits| {
        digits.len() == BUNDLE_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// Hexadecimal digits of the hash that names a bundle's journal: 128 bits.
const BUNDLE_DIGITS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Attributes, Entry, Kind, Mode, Mtime};
    use crate::sink::Fault;

    fn name(s: &str) -> RelPath {
        RelPath::new(s).unwrap()
    }

    #[test]
    fn an_object_goes_beneath_a_directory_under_its_name_or_into_it() {
        let dir = tempfile::tempdir().unwrap();
        let open = |as_name, kind| Destination::beneath(dir.path(), name(as_name), kind).unwrap();
        let file = open("obj", RootKind::File);
        assert_eq!(file.names.final_path(&name("other")), "obj");
        let tree = open("new", RootKind::Dir);
        assert_eq!(tree.names.final_path(&name("a/b")), "new/a/b");
        assert_eq!(tree.names.part_path(&name("a/b")), "new/a/b.gtp-part");
        assert_eq!(tree.names.journal_path(), "new.gtp-journal");
        assert_eq!(tree.shown(), format!("{}/new", dir.path().display()));
        let into = Destination::into(dir.path(), MadeDir::There).unwrap();
        assert_eq!(into.names.final_path(&name("a/b")), "a/b");
        assert_eq!(into.names.journal_path(), ".gtp-journal");
    }

    #[test]
    fn what_lies_in_a_directory_does_not_change_where_an_object_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = || {
            let there = Destination::beneath(dir.path(), name("new"), RootKind::Dir).unwrap();
            there.names.final_path(&name("a"))
        };
        assert_eq!(path(), "new/a");
        std::fs::create_dir(dir.path().join("new")).unwrap();
        assert_eq!(path(), "new/a");
        std::fs::write(dir.path().join("new.gtp-journal"), b"").unwrap();
        assert_eq!(path(), "new/a");
    }

    #[test]
    fn bundles_of_different_objects_have_different_journals_and_the_same_ones_the_same() {
        let time = Mtime::new(0, 0).unwrap();
        let entry = |path: &str| {
            let kind = if path.contains('.') { Kind::File } else { Kind::Dir };
            Entry { path: name(path), kind, size: 0, mode: Mode::new(0o700), mtime: time }
        };
        let journal = |paths: &[&str], own| {
            let entries = paths.iter().map(|path| entry(path)).collect();
            let mut names = Names::new(RootKind::Dir, None, ".");
            names.tell_apart(&Manifest { root_kind: RootKind::Dir, own, entries });
            names.journal_path().to_owned()
        };
        assert_eq!(journal(&["a.x"], None), "a.x.gtp-journal");
        assert_eq!(journal(&["t", "t/a.x", "t/b.x"], None), "t.gtp-journal");
        let both = journal(&["a.x", "t", "t/a.x"], None);
        assert_eq!(both, journal(&["a.x", "t", "t/b.x"], None));
        assert_ne!(both, journal(&["a.x", "u"], None));
        assert_ne!(both, ".gtp-journal");
        let own = Some(Attributes { mode: Mode::new(0o750), mtime: time });
        assert_eq!(journal(&["a.x", "b.x"], own), ".gtp-journal");
    }

    #[test]
    fn a_directory_that_a_killed_transfer_made_counts_as_made_and_a_users_own_does_not() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let under_set_group = UNFINISHED_DIR | 0o2000;
        let cases = [
            (UNFINISHED_DIR, MadeDir::New),
            (under_set_group, MadeDir::New),
            (0o700, MadeDir::There),
            (0o2700, MadeDir::There),
        ];
        for (mode, made) in cases {
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
            let into = Destination::into(dir.path(), MadeDir::There).unwrap();
            assert_eq!(into.made(), made, "{mode:o}");
        }
    }

    #[test]
    fn impossible_destinations_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let fault = |holder: &Path| {
            Destination::beneath(holder, name("x"), RootKind::File).unwrap_err().fault()
        };
        assert_eq!(fault(&dir.path().join("no/such")), Some(Fault::Missing));
        let file = dir.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        assert_eq!(fault(&file), Some(Fault::NotADirectory));
    }
}
