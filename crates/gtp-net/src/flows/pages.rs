//! Manifests as pages on the control channel, and back.
//!
//! What comes from a peer becomes a [`Manifest`] only when every name is sane, the order is right
//! and the sums are those that were announced; the memory it takes is counted page by page.

use std::sync::Arc;

use gtp_store::{Attributes, Entry, Kind, Manifest, Mode, Mtime, RelPath, RootKind};

use crate::messages::{
    self, ENTRIES_MAX, EntryKind, Message, PATHS_MAX, Page, Pages, PagesEnd, printable,
};

/// A peer's pages that are no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the listing is refused: {0}")]
pub struct BadListing(String);

/// The messages that carry a manifest: pages, then the end. A directory's own mode and time come
/// first, in an entry without a name, which is not counted.
pub(crate) fn to_messages(manifest: &Manifest) -> impl Iterator<Item = Message> + '_ {
    let own = manifest.own.map(|Attributes { mode, mtime }| messages::Entry {
        path: Vec::new(),
        kind: EntryKind::Directory,
        size: 0,
        mode: mode.bits(),
        mtime_s: mtime.secs(),
        mtime_ns: mtime.nanos(),
    });
    let entries = own.into_iter().chain(manifest.entries.iter().map(to_wire));
    let end = PagesEnd {
        entries_total: manifest.entries.len() as u64,
        content_bytes: manifest.content_bytes(),
    };
    Pages::new(entries).map(Message::ManifestPage).chain([Message::ManifestEnd(end)])
}

/// The messages that carry a file whose name the other end decides.
pub(crate) fn unnamed_file(manifest: &Manifest) -> impl Iterator<Item = Message> + '_ {
    to_messages(manifest).map(|mut message| {
        if let Message::ManifestPage(page) = &mut message {
            page.entries.iter_mut().for_each(|entry| entry.path.clear());
        }
        message
    })
}

/// One entry as it travels.
pub(crate) fn to_wire(entry: &Entry) -> messages::Entry {
    messages::Entry {
        path: entry.path.as_str().as_bytes().to_vec(),
        kind: wire_kind(entry.kind),
        size: entry.size,
        mode: entry.mode.bits(),
        mtime_s: entry.mtime.secs(),
        mtime_ns: entry.mtime.nanos(),
    }
}

/// The wire's word for a kind of object.
pub(crate) fn wire_root(kind: RootKind) -> EntryKind {
    match kind {
        RootKind::File => EntryKind::File,
        RootKind::Dir => EntryKind::Directory,
    }
}

/// The kind of object that the wire's word means.
pub(crate) fn root_kind(kind: EntryKind) -> RootKind {
    match kind {
        EntryKind::File => RootKind::File,
        EntryKind::Directory => RootKind::Dir,
    }
}

fn wire_kind(kind: Kind) -> EntryKind {
    match kind {
        Kind::File => EntryKind::File,
        Kind::Dir => EntryKind::Directory,
    }
}

/// Gathers a peer's pages.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    entries: Vec<Entry>,
    path_bytes: usize,
    own: Option<Attributes>,
    own_name: Option<RelPath>,
    unnamed: usize,
}

impl Gathering {
    /// Takes a file without a name as the object itself, and gives it this one.
    pub(crate) fn named(own_name: Option<RelPath>) -> Gathering {
        Gathering { own_name, ..Gathering::default() }
    }

    /// What the object is: one file without a name is a file, all else is a directory.
    pub(crate) fn kind(&self) -> RootKind {
        if self.unnamed > 0 { RootKind::File } else { RootKind::Dir }
    }

    /// Takes a page in.
    pub(crate) fn page(&mut self, page: Page) -> Result<(), BadListing> {
        for mut entry in page.entries {
            if entry.path.is_empty() && entry.kind == EntryKind::Directory {
                self.take_own(&entry)?;
                continue;
            }
            if self.entries.len() as u64 == ENTRIES_MAX {
                return Err(BadListing(format!("more than {ENTRIES_MAX} entries")));
            }
            if let (b"", Some(name)) = (&entry.path[..], &self.own_name) {
                if self.unnamed > 0 {
                    return Err(BadListing("more than one entry has no name".into()));
                }
                entry.path = name.as_str().as_bytes().to_vec();
                self.unnamed += 1;
            }
            self.path_bytes += entry.path.len();
            if self.path_bytes > PATHS_MAX {
                return Err(BadListing(format!("more than {PATHS_MAX} bytes of names")));
            }
            self.entries.push(from_wire(&entry)?);
        }
        Ok(())
    }

    /// The object itself, a directory: it comes first, and once.
    fn take_own(&mut self, entry: &messages::Entry) -> Result<(), BadListing> {
        if self.own.is_some() || !self.entries.is_empty() || entry.size != 0 {
            return Err(BadListing(
                "the directory itself is not listed first, once and empty".into(),
            ));
        }
        let mtime = Mtime::new(entry.mtime_s, entry.mtime_ns);
        let mtime = mtime.map_err(|why| BadListing(why.to_string()))?;
        self.own = Some(Attributes { mode: Mode::new(entry.mode), mtime });
        Ok(())
    }

    /// Everything is there: checks it as a whole.
    pub(crate) fn end(self, end: &PagesEnd, kind: RootKind) -> Result<Arc<Manifest>, BadListing> {
        if kind == RootKind::File && self.own.is_some() {
            return Err(BadListing("it is of a file and names a directory".into()));
        }
        let manifest = Manifest { root_kind: kind, own: self.own, entries: self.entries };
        manifest.validate().map_err(|why| BadListing(why.to_string()))?;
        let honest = end.entries_total == manifest.entries.len() as u64
            && end.content_bytes == manifest.content_bytes();
        if !honest {
            return Err(BadListing("it is not as long as announced".into()));
        }
        Ok(Arc::new(manifest))
    }
}

/// Checks the pages of a listing that is only shown, and keeps nothing of them.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    entries: u64,
    path_bytes: usize,
}

impl Passing {
    /// Returns the entries of a page.
    pub(crate) fn page(&mut self, page: Page) -> Result<Vec<Entry>, BadListing> {
        self.entries += page.entries.len() as u64;
        if self.entries > ENTRIES_MAX {
            return Err(BadListing(format!("more than {ENTRIES_MAX} entries")));
        }
        self.path_bytes += page.entries.iter().map(|entry| entry.path.len()).sum::<usize>();
        if self.path_bytes > PATHS_MAX {
            return Err(BadListing(format!("more than {PATHS_MAX} bytes of names")));
        }
        page.entries.iter().map(from_wire).collect()
    }

    /// Checks at the end that all entries have come.
    pub(crate) fn end(&self, end: &PagesEnd) -> Result<(), BadListing> {
        if end.entries_total != self.entries {
            return Err(BadListing("it is not as long as announced".into()));
        }
        Ok(())
    }
}

fn from_wire(entry: &messages::Entry) -> Result<Entry, BadListing> {
    let refused = |why: String| BadListing(format!("{}: {why}", printable(&entry.path)));
    let path = RelPath::from_bytes(&entry.path).map_err(|why| refused(why.to_string()))?;
    let mtime =
        Mtime::new(entry.mtime_s, entry.mtime_ns).map_err(|why| refused(why.to_string()))?;
    let kind = match entry.kind {
        EntryKind::File => Kind::File,
        EntryKind::Directory => Kind::Dir,
    };
    Ok(Entry { path, kind, size: entry.size, mode: Mode::new(entry.mode), mtime })
}

/// The manifest's files among its entries: the wire counts files in `RootsWanted`, everything
/// else counts entries.
#[derive(Debug)]
pub(crate) struct FileIndex {
    entries: Vec<u32>,
}

impl FileIndex {
    /// The files of a manifest.
    pub(crate) fn of(manifest: &Manifest) -> FileIndex {
        let files = manifest.entries.iter().zip(0u32..);
        FileIndex { entries: files.filter(|(e, _)| e.kind == Kind::File).map(|(_, n)| n).collect() }
    }

    /// The entries of `count` files from the `first` on; `None` beyond the end.
    pub(crate) fn entries(&self, first: u64, count: u32) -> Option<&[u32]> {
        let first = usize::try_from(first).ok()?;
        self.entries.get(first..first.checked_add(count as usize)?)
    }

    /// The file that an entry is.
    pub(crate) fn file(&self, entry: u32) -> Option<u64> {
        self.entries.binary_search(&entry).ok().map(|n| n as u64)
    }
}

/// The runs of files that must be asked for so that all `entries` (ascending) are covered, each
/// run at most `longest` long.
pub(crate) fn runs(index: &FileIndex, entries: &[u32], longest: usize) -> Vec<(u64, u32)> {
    let mut found: Vec<(u64, u32)> = Vec::new();
    for file in entries.iter().filter_map(|&entry| index.file(entry)) {
        match found.last_mut() {
            Some((first, count))
                if *first + u64::from(*count) == file && (*count as usize) < longest =>
            {
                *count += 1;
            }
            Some(_) | None => found.push((file, 1)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let entry = |path: &str, kind, size| Entry {
            path: RelPath::new(path).unwrap(),
            kind,
            size,
            mode: Mode::new(0o644),
            mtime: Mtime::new(-3, 7).unwrap(),
        };
        let entries = vec![
            entry("a", Kind::File, 3),
            entry("d", Kind::Dir, 0),
            entry("d/b", Kind::File, 0),
            entry("d/c", Kind::File, 9),
            entry("e", Kind::File, 1),
        ];
        let own = Some(Attributes { mode: Mode::new(0o750), mtime: Mtime::new(5, 6).unwrap() });
        Manifest { root_kind: RootKind::Dir, own, entries }
    }

    #[test]
    fn a_manifest_travels_unchanged() {
        let sent = manifest();
        let mut gathering = Gathering::default();
        for message in to_messages(&sent) {
            match message {
                Message::ManifestPage(page) => gathering.page(page).unwrap(),
                Message::ManifestEnd(end) => {
                    let got = std::mem::take(&mut gathering).end(&end, RootKind::Dir).unwrap();
                    assert_eq!(*got, sent);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn hostile_names_and_false_sums_are_refused() {
        for bad in [&b"../x"[..], b"/etc/passwd", b"a\0b", b"a/../b", b"\xff", b"a//b"] {
            let mut entry = to_wire(&manifest().entries[0]);
            entry.path = bad.to_vec();
            let refused = Gathering::default().page(Page { entries: vec![entry] });
            assert!(refused.is_err(), "{}", printable(bad));
        }
        let mut gathering = Gathering::default();
        let entries = manifest().entries.iter().map(to_wire).collect();
        gathering.page(Page { entries }).unwrap();
        let lie = PagesEnd { entries_total: 5, content_bytes: 14 };
        assert!(gathering.end(&lie, RootKind::Dir).is_err());
    }

    #[test]
    fn a_second_entry_without_a_name_is_refused_before_it_takes_memory() {
        let unnamed = messages::Entry {
            path: Vec::new(),
            kind: EntryKind::File,
            size: 0,
            mode: 0o644,
            mtime_s: 0,
            mtime_ns: 0,
        };
        let mut gathering = Gathering::named(Some(RelPath::new("x").unwrap()));
        gathering.page(Page { entries: vec![unnamed.clone()] }).unwrap();
        assert!(gathering.page(Page { entries: vec![unnamed] }).is_err());
    }

    #[test]
    fn a_directory_says_its_own_mode_once_and_before_all_else() {
        let own = || to_messages(&manifest()).next();
        let Some(Message::ManifestPage(page)) = own() else { panic!("a page comes first") };
        let (itself, other) = (page.entries[0].clone(), page.entries[1].clone());
        for entries in [vec![itself.clone(), itself.clone()], vec![other, itself]] {
            assert!(Gathering::default().page(Page { entries }).is_err());
        }
    }

    #[test]
    fn files_are_asked_for_in_runs_that_skip_directories() {
        let index = FileIndex::of(&manifest());
        assert_eq!(runs(&index, &[0, 2, 3, 4], 16), [(0, 4)]);
        assert_eq!(runs(&index, &[0, 3, 4], 16), [(0, 1), (2, 2)]);
        assert_eq!(runs(&index, &[0, 2, 3, 4], 3), [(0, 3), (3, 1)]);
        assert_eq!(index.entries(1, 3), Some(&[2, 3, 4][..]));
        assert_eq!(index.entries(1, 4), None);
        assert_eq!(index.entries(u64::MAX, 1), None);
    }
}
