//! Hashes of whole files that were computed before, for all sources of a process.
//!
//! A hash costs as much as reading the file, and every client that may read can ask for it. So it
//! is cached under the file's stamp, which changes with the content. The hash of a file that has
//! just changed is not cached: a file system's clock ticks slowly, so the file may change again and
//! keep its stamp. The caller knows the time and says when a change has settled.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::export::Stamp;
use crate::hash::Value;

/// The hashes of files that were asked for last.
#[derive(Debug)]
pub struct KnownRoots {
    most: usize,
    settled: fn(i64) -> bool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    young: HashMap<Stamp, Value>,
    old: HashMap<Stamp, Value>,
}

impl KnownRoots {
    /// Keeps at least the last `most` hashes and at most twice as many, of 88 bytes each.
    /// `settled` says whether a time of change, in seconds of the wall clock, is old enough for the
    /// next change to show.
    pub fn new(most: usize, settled: fn(i64) -> bool) -> KnownRoots {
        KnownRoots { most: most.max(1), settled, known: Mutex::default() }
    }

    pub(crate) fn get(&self, stamp: &Stamp) -> Option<Value> {
        if !stamp.names_a_file() {
            return None;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.young.get(stamp).or_else(|| known.old.get(stamp)).copied()?;
        known.put(self.most, *stamp, found);
        Some(found)
    }

    pub(crate) fn note(&self, stamp: Stamp, root: Value) {
        if stamp.names_a_file() && (self.settled)(stamp.changed()) {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.put(self.most, stamp, root);
        }
    }
}

impl Known {
    fn put(&mut self, most: usize, stamp: Stamp, root: Value) {
        if self.young.len() >= most && !self.young.contains_key(&stamp) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(stamp, root);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use super::*;
    use crate::{BlockSource, Export, FileSource, SourceError};

    /// A source of the one file in a directory, that counts the blocks which are asked for.
    fn root(dir: &std::path::Path, known: &Arc<KnownRoots>) -> (Result<Value, SourceError>, u32) {
        let scanned = Export::open(dir).unwrap().scan(None).unwrap();
        let mut source = FileSource::new(scanned).with_known_roots(Arc::clone(known));
        let read = std::cell::Cell::new(0);
        let wanted = || read.replace(read.get() + 1) < 1_000;
        let root = source.file_root_while(0, &wanted);
        (root, read.get())
    }

    #[test]
    fn a_file_is_hashed_once_for_all_sessions_and_anew_when_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [1; 1_000]).unwrap();
        let known = Arc::new(KnownRoots::new(8, |_| true));
        let hash = |byte| *blake3::hash(&[byte; 1_000]).as_bytes();
        let (first, read) = root(dir.path(), &known);
        assert_eq!((first.unwrap(), read), (hash(1), 1));
        let (again, read) = root(dir.path(), &known);
        assert_eq!((again.unwrap(), read), (hash(1), 0));
        // Another file of the same length under the same name.
        std::fs::write(dir.path().join("other"), [2; 1_000]).unwrap();
        std::fs::rename(dir.path().join("other"), &path).unwrap();
        let (changed, read) = root(dir.path(), &known);
        assert_eq!((changed.unwrap(), read), (hash(2), 1));
    }

    #[test]
    fn the_hash_of_a_file_that_has_just_changed_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [1; 1_000]).unwrap();
        let known = Arc::new(KnownRoots::new(8, |_| false));
        root(dir.path(), &known).0.unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().write_at(&[9], 0).unwrap();
        let (again, read) = root(dir.path(), &known);
        assert_ne!(again.unwrap(), *blake3::hash(&[1; 1_000]).as_bytes());
        assert_eq!(read, 1);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_was_asked_for_last_is_kept() {
        let stamp = Stamp::of_size;
        let known = KnownRoots::new(10, |_| true);
        for size in 0..1_000 {
            known.note(stamp(size), [size as u8; 32]);
            assert_eq!(known.get(&stamp(0)), Some([0; 32]), "it is asked for each time");
        }
        let there = (0..1_000).filter(|&size| known.get(&stamp(size)).is_some());
        assert!((10..=21).contains(&there.count()));
    }
}
