//! How many files of an object are whole, where nothing but a number of bytes is known.
//!
//! The files of a row come in its order, or nearly: as many of the first ones are whole as fit in
//! the bytes. It goes through the listing once, and knows nothing of blocks or of who counts the
//! bytes.

use std::sync::Arc;

use crate::manifest::{Kind, Manifest};

/// Counts whole files by bytes.
#[derive(Clone, Debug)]
pub struct FilesInOrder {
    manifest: Arc<Manifest>,
    /// The first entry that has not been counted.
    next: usize,
    /// Bytes of the entries before it, and how many of these are files.
    bytes: u64,
    files: u64,
}

impl FilesInOrder {
    /// Those of an object.
    pub fn of(manifest: Arc<Manifest>) -> FilesInOrder {
        FilesInOrder { manifest, next: 0, bytes: 0, files: 0 }
    }

    /// Returns how many files are whole when so many bytes are there. It never falls.
    pub fn whole(&mut self, bytes: u64) -> u64 {
        while let Some(entry) = self.manifest.entries.get(self.next) {
            let end = self.bytes.saturating_add(entry.size);
            if end > bytes {
                break;
            }
            self.bytes = end;
            self.files += u64::from(entry.kind == Kind::File);
            self.next += 1;
        }
        self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Entry, Mode, Mtime, RootKind};
    use crate::name::RelPath;

    fn manifest(entries: &[(&str, Kind, u64)]) -> Arc<Manifest> {
        let entry = |(path, kind, size): &(&str, Kind, u64)| Entry {
            path: RelPath::new(path).unwrap(),
            kind: *kind,
            size: *size,
            mode: Mode::new(0o644),
            mtime: Mtime::new(0, 0).unwrap(),
        };
        let entries = entries.iter().map(entry).collect();
        Arc::new(Manifest { root_kind: RootKind::Dir, own: None, entries })
    }

    #[test]
    fn as_many_of_the_first_files_are_whole_as_fit_in_the_bytes() {
        let (dir, file) = (Kind::Dir, Kind::File);
        let listed = [("a", dir, 0), ("a/x", file, 10), ("b", file, 5), ("c", file, 0)];
        let mut files = FilesInOrder::of(manifest(&listed));
        let whole = [0, 9, 10, 14, 15, 15].map(|bytes| files.whole(bytes));
        assert_eq!(whole, [0, 0, 1, 1, 3, 3]);
        assert_eq!(files.whole(3), 3, "it never falls");
        assert_eq!(FilesInOrder::of(manifest(&[])).whole(u64::MAX), 0);
    }
}
