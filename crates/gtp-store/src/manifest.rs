//! What an object is made of.
//!
//! A manifest lists every file and directory of an object once, in the order of the bytes of
//! their paths, every directory before what it holds. The place of an entry in this list is its
//! number everywhere else: in the row, in requests, in the journal. A manifest from a peer is
//! believed only after [`Manifest::validate`].

use std::collections::HashSet;

use crate::name::RelPath;

/// The most entries in one object: at about 150 bytes each, a manifest stays below 600 MB.
pub const MAX_ENTRIES: usize = 4_000_000;

/// The largest file: offsets in files are signed 64-bit numbers.
const MAX_FILE: u64 = i64::MAX as u64;

/// An object's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Whether the object is one file or a directory tree.
    pub root_kind: RootKind,
    /// Of a directory: its own mode and time. `None` for a file, whose entry has them, and for a
    /// bundle of several objects, which is no directory at its source.
    pub own: Option<Attributes>,
    /// For a file: one entry, its name as its path. For a directory: everything beneath it.
    pub entries: Vec<Entry>,
}

/// Whether an object is one file or a directory tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKind {
    /// One file.
    File,
    /// A directory tree, perhaps empty.
    Dir,
}

/// One file or directory of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it is, relative to the object's root.
    pub path: RelPath,
    /// What it is.
    pub kind: Kind,
    /// Content in bytes; zero for a directory.
    pub size: u64,
    /// Permission bits.
    pub mode: Mode,
    /// When its content last changed.
    pub mtime: Mtime,
}

/// The kinds of entries. Links, devices, sockets and pipes are not carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
}

/// What an object looks like beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: Mode,
    /// When its content last changed.
    pub mtime: Mtime,
}

/// Permission bits, `0o777` at most: set-user, set-group and sticky bits are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(u16);

impl Mode {
    /// Keeps the permission bits of `bits` and drops all others.
    pub const fn new(bits: u32) -> Mode {
        Mode((bits & 0o777) as u16)
    }

    /// The bits, `0o777` at most.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }
}

/// A time of modification: seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    secs: i64,
    nanos: u32,
}

/// The nanoseconds of a time were not below one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a time of modification has {0} nanoseconds")]
pub struct MtimeError(pub u32);

impl Mtime {
    /// A time from seconds (before 1970: negative) and nanoseconds below 10^9.
    ///
    /// # Errors
    /// When the nanoseconds are 10^9 or more.
    pub const fn new(secs: i64, nanos: u32) -> Result<Mtime, MtimeError> {
        if nanos >= 1_000_000_000 {
            return Err(MtimeError(nanos));
        }
        Ok(Mtime { secs, nanos })
    }

    /// Whole seconds since 1970.
    pub const fn secs(self) -> i64 {
        self.secs
    }

    /// Nanoseconds after the whole second, below 10^9.
    pub const fn nanos(self) -> u32 {
        self.nanos
    }
}

/// Why a manifest was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// More than [`MAX_ENTRIES`] entries.
    #[error("the listing has {0} entries, more than {MAX_ENTRIES}")]
    TooMany(usize),
    /// An object that is one file must list exactly that file.
    #[error("the listing of a single file does not have exactly one file at its root")]
    NotOneFile,
    /// An entry is not after its predecessor in the order of path bytes.
    #[error("the listing is not sorted at {0}")]
    Unsorted(RelPath),
    /// Two entries have the same path.
    #[error("the listing has {0} twice")]
    Duplicate(RelPath),
    /// An entry lies beneath something that is not listed as a directory.
    #[error("the listing has {0}, but not the directory that holds it")]
    Orphan(RelPath),
    /// A directory has a size.
    #[error("the listing gives the directory {0} a size")]
    SizedDir(RelPath),
    /// A file is larger than a file can be, or all together are.
    #[error("the sizes in the listing are too large at {0}")]
    TooLarge(RelPath),
}

impl Manifest {
    /// Checks everything that the rest of the crate relies on: the number of entries, their
    /// order, that none is twice, that every entry's directory is listed before it (so no file
    /// is also a directory), and that sizes add up without overflow.
    ///
    /// # Errors
    /// The first rule that is broken, with the entry that breaks it.
    pub fn validate(&self) -> Result<(), ManifestError> {
        if self.entries.len() > MAX_ENTRIES {
            return Err(ManifestError::TooMany(self.entries.len()));
        }
        if self.root_kind == RootKind::File && !self.is_one_file() {
            return Err(ManifestError::NotOneFile);
        }
        let mut dirs: HashSet<&str> = HashSet::new();
        let mut before: Option<&RelPath> = None;
        let mut total = 0u64;
        for entry in &self.entries {
            let path = &entry.path;
            check_order(before, path)?;
            if path.parent().is_some_and(|parent| !dirs.contains(parent)) {
                return Err(ManifestError::Orphan(path.clone()));
            }
            match entry.kind {
                Kind::Dir if entry.size != 0 => {
                    return Err(ManifestError::SizedDir(path.clone()));
                }
                Kind::Dir => {
                    dirs.insert(path.as_str());
                }
                Kind::File => {}
            }
            total = total
                .checked_add(entry.size)
                .filter(|&sum| sum <= MAX_FILE)
                .ok_or_else(|| ManifestError::TooLarge(path.clone()))?;
            before = Some(path);
        }
        Ok(())
    }

    /// The content of all files together, in bytes. Saturates in a manifest never validated.
    pub fn content_bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.size))
    }

    /// How many entries are files.
    pub fn files(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.kind == Kind::File).count() as u64
    }

    /// Whether another source that shows `other` serves the same object: the same paths, kinds
    /// and sizes in the same order. Modes and times may differ.
    pub fn same_content_layout(&self, other: &Manifest) -> bool {
        let alike =
            |(a, b): (&Entry, &Entry)| a.path == b.path && a.kind == b.kind && a.size == b.size;
        self.root_kind == other.root_kind
            && self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(alike)
    }

    fn is_one_file(&self) -> bool {
        match self.entries.as_slice() {
            [only] => only.kind == Kind::File && only.path.parent().is_none(),
            [] | [_, ..] => false,
        }
    }
}

fn check_order(before: Option<&RelPath>, path: &RelPath) -> Result<(), ManifestError> {
    match before.map(|b| b.cmp(path)) {
        None | Some(std::cmp::Ordering::Less) => Ok(()),
        Some(std::cmp::Ordering::Equal) => Err(ManifestError::Duplicate(path.clone())),
        Some(std::cmp::Ordering::Greater) => Err(ManifestError::Unsorted(path.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: Kind, size: u64) -> Entry {
        let mtime = Mtime::new(0, 0).unwrap();
        Entry { path: RelPath::new(path).unwrap(), kind, size, mode: Mode::new(0o644), mtime }
    }

    fn dir(entries: Vec<Entry>) -> Manifest {
        Manifest { root_kind: RootKind::Dir, own: None, entries }
    }

    #[test]
    fn a_tree_whose_names_sort_between_a_directory_and_its_content_is_valid() {
        let tree = dir(vec![
            entry("a", Kind::Dir, 0),
            entry("a-b", Kind::File, 3),
            entry("a/c", Kind::File, 4),
        ]);
        assert_eq!(tree.validate(), Ok(()));
        assert_eq!((tree.content_bytes(), tree.files()), (7, 2));
    }

    #[test]
    fn duplicates_disorder_and_collisions_are_refused() {
        let path = |s: &str| RelPath::new(s).unwrap();
        let file = |s: &str| entry(s, Kind::File, 1);
        assert_eq!(
            dir(vec![file("a"), file("a")]).validate(),
            Err(ManifestError::Duplicate(path("a")))
        );
        assert_eq!(
            dir(vec![file("b"), file("a")]).validate(),
            Err(ManifestError::Unsorted(path("a")))
        );
        assert_eq!(
            dir(vec![file("a"), file("a-b"), file("a/b")]).validate(),
            Err(ManifestError::Orphan(path("a/b")))
        );
        assert_eq!(dir(vec![file("x/y")]).validate(), Err(ManifestError::Orphan(path("x/y"))));
        let sized = dir(vec![entry("d", Kind::Dir, 1)]);
        assert_eq!(sized.validate(), Err(ManifestError::SizedDir(path("d"))));
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let huge = |s: &str| entry(s, Kind::File, 1 << 62);
        let both = dir(vec![huge("a"), huge("b")]);
        assert!(matches!(both.validate(), Err(ManifestError::TooLarge(_))));
        let one = dir(vec![entry("a", Kind::File, u64::MAX)]);
        assert!(matches!(one.validate(), Err(ManifestError::TooLarge(_))));
    }

    #[test]
    fn a_single_file_lists_itself_and_nothing_else() {
        let file = |entries| Manifest { root_kind: RootKind::File, own: None, entries }.validate();
        assert_eq!(file(vec![entry("a", Kind::File, 1)]), Ok(()));
        assert_eq!(file(vec![]), Err(ManifestError::NotOneFile));
        assert_eq!(file(vec![entry("a", Kind::Dir, 0)]), Err(ManifestError::NotOneFile));
        let two = vec![entry("a", Kind::File, 1), entry("b", Kind::File, 1)];
        assert_eq!(file(two), Err(ManifestError::NotOneFile));
    }

    #[test]
    fn special_permission_bits_are_dropped() {
        assert_eq!(Mode::new(0o104_755).bits(), 0o755);
        assert_eq!(Mode::new(0o7777).bits(), 0o777);
        assert!(Mtime::new(0, 1_000_000_000).is_err());
    }
}
