//! Files that are sent to several places at once: listed once, and read once as far as the places
//! keep pace.
//!
//! Each place has a source of its own for each part, with its own open files and its own memory of
//! what it was given; blocks, their values and the hashes of whole files are shared. It does not
//! know where the files go.

use std::sync::Arc;

use crate::export::Scanned;
use crate::file_source::FileSource;
use crate::known_roots::KnownRoots;
use crate::shared_blocks::{ReadCount, SharedBlocks, number_blocks};

/// Listings that several places get at once.
#[derive(Debug)]
pub struct SharedFiles {
    parts: Vec<(Arc<Scanned>, Arc<[u64]>)>,
    blocks: Arc<SharedBlocks>,
    known: Arc<KnownRoots>,
    settled: fn(i64) -> bool,
}

/// The most hashes of whole files that are kept: about 12 MB.
const MAX_ROOTS: usize = 1 << 16;

/// Whether a time of change, in seconds of the wall clock, is old enough.
#[derive(Clone, Copy, Debug)]
pub struct Settling {
    /// For the next change to show in a file's times.
    pub shows: fn(i64) -> bool,
    /// For what is remembered of the file to be used by others.
    pub lasts: fn(i64) -> bool,
}

impl SharedFiles {
    /// Shares these listings among so many places, with so many bytes of memory for blocks.
    ///
    /// # Panics
    /// With more places than [`MAX_READERS`](crate::MAX_READERS).
    pub fn new(
        parts: Vec<Scanned>,
        (places, memory): (usize, usize),
        settling: Settling,
        count: Arc<ReadCount>,
    ) -> SharedFiles {
        let mut next = 0;
        let parts = parts.into_iter().map(|scanned| {
            let (starts, end) = number_blocks(&scanned.manifest, next);
            next = end;
            (Arc::new(scanned), starts)
        });
        SharedFiles {
            parts: parts.collect(),
            blocks: SharedBlocks::new(places, memory, count),
            known: Arc::new(KnownRoots::new(MAX_ROOTS, settling.lasts)),
            settled: settling.shows,
        }
    }

    /// The listing of a part.
    pub fn listing(&self, part: usize) -> &Arc<Scanned> {
        &self.parts[part].0
    }

    /// A source of a part, for a place. A place may ask again, for another try.
    pub fn source(&self, part: usize, place: usize) -> FileSource {
        let (scanned, starts) = &self.parts[part];
        let reader = self.blocks.reader(place, Arc::clone(starts));
        let source = FileSource::new(Arc::clone(scanned)).with_settling(self.settled);
        source.with_known_roots(Arc::clone(&self.known)).with_reader(reader)
    }

    /// A place needs nothing any more.
    pub fn leave(&self, place: usize) {
        self.blocks.leave(place);
    }

    /// Keeps no blocks from now on: there is a newer listing. Sources that are in use read on their
    /// own.
    pub fn retire(&self) {
        self.blocks.retire();
    }

    /// Whether a file could not be read, or is not the one that was listed any more.
    pub fn has_failed(&self) -> bool {
        self.blocks.has_failed()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::export::Export;
    use crate::row::BLOCK;
    use crate::source::{BlockSource, SourceError, new_framed};

    const ALWAYS: Settling = Settling { shows: |_| true, lasts: |_| true };

    /// A file of some blocks, shared among so many places, and what it holds.
    fn shared(blocks: u64, places: usize) -> (tempfile::TempDir, SharedFiles, Arc<ReadCount>) {
        let dir = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..blocks * BLOCK).map(|at| (at / BLOCK + at % 7) as u8).collect();
        fs::write(dir.path().join("f"), content).unwrap();
        let scanned = Export::open(dir.path()).unwrap().scan(None).unwrap();
        let count = Arc::new(ReadCount::default());
        let room = (places, 64 * BLOCK as usize);
        (dir, SharedFiles::new(vec![scanned], room, ALWAYS, Arc::clone(&count)), count)
    }

    #[test]
    fn places_that_keep_pace_get_the_same_content_and_hash_and_the_file_is_read_once() {
        let (dir, files, count) = shared(20, 3);
        let content = fs::read(dir.path().join("f")).unwrap();
        let mut sources: Vec<_> = (0..3).map(|place| files.source(0, place)).collect();
        let mut alone = FileSource::new(Arc::clone(files.listing(0)));
        for block in 0..20 {
            let (mut out, mut own) = (new_framed(), new_framed());
            alone.load_block(0, block, &mut own).unwrap();
            for source in &mut sources {
                source.load_block(0, block, &mut out).unwrap();
                assert!(out == own, "block {block} with its trailer");
            }
        }
        for source in &mut sources {
            assert_eq!(source.file_root(0).unwrap(), *blake3::hash(&content).as_bytes());
        }
        let read = count.bytes();
        assert_eq!((read.all, read.again), (20 * BLOCK, 0));
    }

    #[test]
    fn places_that_have_parts_from_before_share_the_reading_for_the_hash_too() {
        let (dir, files, count) = shared(20, 3);
        let content = fs::read(dir.path().join("f")).unwrap();
        for place in 0..3 {
            let mut source = files.source(0, place);
            for block in 5 * place as u64..20 {
                source.load_block(0, block, &mut new_framed()).unwrap();
            }
            assert_eq!(source.file_root(0).unwrap(), *blake3::hash(&content).as_bytes());
        }
        assert_eq!(count.bytes().all, 20 * BLOCK);
    }

    #[test]
    fn a_file_that_changes_is_lost_for_the_hash_whoever_has_read_it() {
        let (dir, files, _) = shared(4, 2);
        let mut sources: Vec<_> = (0..2).map(|place| files.source(0, place)).collect();
        for block in 0..4 {
            sources[0].load_block(0, block, &mut new_framed()).unwrap();
        }
        fs::write(dir.path().join("f"), "other").unwrap();
        for block in 0..4 {
            assert!(sources[1].load_block(0, block, &mut new_framed()).is_ok(), "from memory");
        }
        for source in &mut sources {
            let root = source.file_root(0);
            assert!(matches!(root, Err(SourceError::Changed { .. })), "{root:?}");
        }
        assert!(files.has_failed());
    }
}
