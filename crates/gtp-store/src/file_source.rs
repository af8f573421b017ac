//! Blocks from files on disk.
//!
//! A block is read when it is asked for, hashed as it is read, and nothing is read before. The
//! file must still be the one that was listed: its stamp (device, inode, size, times of content
//! and of inode) is compared when it is opened and after every read, so bytes of a file that was
//! written in between are not sent as if they were its old content.
//!
//! One change is tolerated: a file that has only grown, as logs do, is sent up to the length that
//! was listed. Then each block is read twice, and a file of several blocks once more as a whole
//! when its root is requested. Every block is then read a second time after all have been read for
//! the first time, and if all are alike, the file held them all at the moment between. A new mode
//! or name of a file is tolerated in the same way. Every other change makes the file lost.
//!
//! A stamp shows no change that follows another one within a step of the file system's clock. So
//! blocks that were read too soon after the last change are read a second time as well.
//!
//! A block that lies wholly in a hole is not read: its zeros are only hashed (its value depends
//! on its offset, so there is no one value of a zero block).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{Advice, Mode, OFlags, SeekFrom, fadvise, fstat, seek};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::export::{Scanned, Stamp, beneath_error};
use crate::hash::{Value, block_value};
use crate::known_roots::KnownRoots;
use crate::manifest::Manifest;
use crate::roots::Roots;
use crate::row::{BLOCK, TRAILER, blocks_in, content_of};
use crate::shared_blocks::{BlockReader, Taken, Timing};
use crate::source::{BlockSource, Framed, SourceError, new_framed};
use crate::synthetic::{size_of_file, size_of_root};
use crate::tree::Tree;
use crate::walk;

/// The most files that one source keeps open.
const MAX_OPEN: usize = 32;

/// Files that all sources of this process keep open beyond the one that each reads from.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Most of them: a part of the descriptors that the process may have open.
fn kept_most() -> usize {
    let open = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(open).unwrap_or(usize::MAX) / 4
}

/// Bytes that one unit of a file's allocation count stands for (`st_blocks`).
const ALLOCATION_UNIT: u64 = 512;

/// The right to keep one more file open.
#[derive(Debug)]
struct Keeping;

impl Keeping {
    fn take() -> Option<Keeping> {
        let before = KEPT.fetch_add(1, Ordering::Relaxed);
        // Dropping it counts it out again.
        Some(Keeping).filter(|_| before < kept_most())
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves the files of one listing.
#[derive(Debug)]
pub struct FileSource {
    scanned: Arc<Scanned>,
    /// Most recently used last.
    open: Vec<OpenFile>,
    roots: Roots,
    /// Files that were found longer than listed; each is told once.
    grown: BTreeSet<u32>,
    remarks: Vec<(u32, SourceError)>,
    known: Option<Arc<KnownRoots>>,
    /// Where other sources of the same files share what they read.
    reader: Option<Arc<BlockReader>>,
    /// Whether a time of change is old enough for the next change to show. `None`: it always is.
    settled: Option<fn(i64) -> bool>,
    /// Blocks that were read before the last change of their file had settled, by file and block.
    early: BTreeMap<(u32, u64), Value>,
    /// Files of which more blocks were read early than are remembered.
    wholly_early: BTreeSet<u32>,
    /// The root that nobody waited for to its end.
    unfinished: Option<Unfinished>,
}

/// A root as far as it is computed.
#[derive(Debug)]
struct Unfinished {
    file: u32,
    /// Of all blocks that were read since the file was listed.
    first: Reading,
    /// Of all blocks once more, where the file has changed meanwhile.
    again: Option<Reading>,
}

/// The blocks of a file that were read for a root.
#[derive(Debug)]
struct Reading {
    tree: Tree,
    /// Blocks before this one are in it.
    next: u64,
}

impl Reading {
    fn of(tree: Tree) -> Reading {
        Reading { tree, next: 0 }
    }
}

#[derive(Debug)]
struct OpenFile {
    number: u32,
    file: File,
    /// Whether less is allocated than the size says: then holes are looked for.
    sparse: bool,
    /// It may stay open while others are read.
    keeping: Option<Keeping>,
}

/// The most blocks remembered that were read early: 16 GB of content in 6 MB.
const MAX_EARLY: usize = 1 << 16;

/// How a file has changed since it was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing.
    AsListed,
    /// It has become longer, or has another mode or name.
    Moved,
}

/// A block that was read.
struct ReadBlock {
    value: Value,
    state: State,
    timing: Timing,
}

/// Whether what other sources know of a file's blocks counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recall {
    /// It does: the file is still as it was listed.
    Shared,
    /// It does not: all is to be read once more.
    Nothing,
}

/// How often a block of a file that is being written is read until two readings agree.
const READINGS: usize = 3;

impl FileSource {
    /// A source of what a scan found, which several may share. Opens nothing yet.
    pub fn new(scanned: impl Into<Arc<Scanned>>) -> FileSource {
        FileSource {
            scanned: scanned.into(),
            open: Vec::new(),
            roots: Roots::default(),
            grown: BTreeSet::new(),
            remarks: Vec::new(),
            known: None,
            reader: None,
            settled: None,
            early: BTreeMap::new(),
            wholly_early: BTreeSet::new(),
            unfinished: None,
        }
    }

    /// The same, with a way to tell whether a time of change, in seconds of the wall clock, is old
    /// enough for the next change to show in a file's times. Without it every time is.
    #[must_use]
    pub fn with_settling(self, settled: fn(i64) -> bool) -> FileSource {
        FileSource { settled: Some(settled), ..self }
    }

    /// The same, sharing the hashes of whole files with other sources.
    #[must_use]
    pub fn with_known_roots(self, known: Arc<KnownRoots>) -> FileSource {
        FileSource { known: Some(known), ..self }
    }

    /// The same, sharing what is read with other sources of the same files.
    #[must_use]
    pub(crate) fn with_reader(self, reader: BlockReader) -> FileSource {
        FileSource { reader: Some(Arc::new(reader)), ..self }
    }

    fn read_block(
        &mut self,
        file: u32,
        size: u64,
        block: u64,
        out: &mut Framed,
    ) -> Result<ReadBlock, SourceError> {
        let len = content_of(size, block) as usize;
        // With memory for the trailer behind: growing later would copy all.
        out.reserve_exact((len + TRAILER).saturating_sub(out.len()));
        out.resize(len, 0);
        self.read_once(file, block, out)?;
        let state = self.state(file)?;
        let (early, alone) = (self.is_early(file), blocks_in(size) == 1);
        if state == State::Moved || (early && alone) {
            self.read_until_stable(file, block, out)?;
        }
        if state == State::Moved && alone {
            self.note_grown(file)?;
        }
        let timing = if early { Timing::Early } else { Timing::Settled };
        let sure = (state, timing) == (State::AsListed, Timing::Settled);
        let value = block_value(size, block, out);
        if let Some(reader) = self.reader.as_ref().filter(|_| sure) {
            match reader.value(file, block) {
                // No stamp shows it, such as what is written through mapped memory.
                Some(known) if known != value => return Err(self.changed(file)),
                Some(_) => {}
                None => reader.note_value(file, block, value),
            }
        }
        if early && !alone {
            self.note_early(file, block, value);
        }
        Ok(ReadBlock { value, state, timing })
    }

    /// Reads a block with its trailer.
    fn load_own(
        &mut self,
        file: u32,
        size: u64,
        block: u64,
        out: &mut Framed,
    ) -> Result<ReadBlock, SourceError> {
        let read = self.read_block(file, size, block, out)?;
        out.extend_from_slice(&read.value);
        self.roots.note(file, size, block, read.value);
        Ok(read)
    }

    /// Takes a block with its trailer from another source, or reads it for all.
    fn load_shared(
        &mut self,
        reader: &BlockReader,
        (file, size): (u32, u64),
        block: u64,
        out: &mut Framed,
    ) -> Result<(), SourceError> {
        match reader.take(file, block, out) {
            Taken::Here(timing) => {
                let Some(&value) = out.last_chunk::<TRAILER>() else { return Ok(()) };
                if timing == Timing::Early && blocks_in(size) > 1 {
                    self.note_early(file, block, value);
                }
                self.roots.note(file, size, block, value);
            }
            Taken::Missing(claim) => {
                let read = self.load_own(file, size, block, out)?;
                if read.state == State::AsListed {
                    claim.share(out, read.timing);
                }
            }
        }
        Ok(())
    }

    /// Tells other sources of the same files that one of them cannot be had, if it is so.
    fn tell<T>(&self, done: Result<T, SourceError>) -> Result<T, SourceError> {
        match (&self.reader, &done) {
            (None, _)
            | (_, Ok(_) | Err(SourceError::Unwanted | SourceError::NoSuchBlock { .. })) => {}
            (Some(reader), Err(_)) => reader.note_failure(),
        }
        done
    }

    fn note_early(&mut self, file: u32, block: u64, value: Value) {
        if self.early.len() < MAX_EARLY {
            self.early.entry((file, block)).or_insert(value);
        } else {
            self.wholly_early.insert(file);
        }
    }

    /// Whether the next change of a file might not show in its times.
    fn is_early(&self, file: u32) -> bool {
        let listed = &self.scanned.stamps[file as usize];
        self.settled.is_some_and(|settled| !settled(listed.inode_changed()))
    }

    /// Reads again what was read before the last change of a file had settled; all of the file if
    /// that was not counted any more.
    fn check_early(
        &mut self,
        file: u32,
        size: u64,
        (root, again): (Option<Value>, &mut Option<Reading>),
        wanted: &dyn Fn() -> bool,
    ) -> Result<(), SourceError> {
        if self.wholly_early.contains(&file) {
            return self.check_again(file, size, (root, again), wanted);
        }
        let mut early = self.early.split_off(&(file, 0));
        let mut others = early.split_off(&(file.saturating_add(1), 0));
        self.early.append(&mut others);
        let mut content = new_framed();
        for ((_, block), value) in early {
            if !wanted() {
                self.wholly_early.insert(file);
                return Err(SourceError::Unwanted);
            }
            if self.read_block(file, size, block, &mut content)?.value != value {
                return Err(self.changed(file));
            }
        }
        Ok(())
    }

    fn read_once(&mut self, file: u32, block: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let (start, len) = (block * BLOCK, out.len() as u64);
        let opened = self.opened(file)?;
        if opened.sparse && is_hole(&opened.file, start, len) {
            out.fill(0);
        } else if let Err(error) = opened.file.read_exact_at(out, start) {
            return Err(self.read_failed(file, error));
        } else if let Some(reader) = &self.reader {
            reader.note_read(file, block, out.len());
        }
        Ok(())
    }

    /// Reads a block of a file that is being written again, until it has come out the same twice.
    fn read_until_stable(
        &mut self,
        file: u32,
        block: u64,
        out: &mut [u8],
    ) -> Result<(), SourceError> {
        let mut again = vec![0; out.len()];
        for _ in 0..READINGS {
            self.read_once(file, block, &mut again)?;
            self.state(file)?;
            if out == &again[..] {
                return Ok(());
            }
            out.copy_from_slice(&again);
        }
        Err(self.changed(file))
    }

    /// Remembers to say that a file has become longer.
    fn note_grown(&mut self, file: u32) -> Result<(), SourceError> {
        let stat = fstat(&self.opened(file)?.file);
        let path = self.scanned.manifest.entries[file as usize].path.clone();
        let stat = stat.map_err(|e| beneath_error(&path.to_string(), e))?;
        let listed = &self.scanned.stamps[file as usize];
        let written = Stamp::beside(&stat, listed).was_written(listed);
        if written && self.grown.insert(file) {
            self.remarks.push((file, SourceError::Grew { path }));
        }
        Ok(())
    }

    fn changed(&self, file: u32) -> SourceError {
        SourceError::Changed { path: self.scanned.manifest.entries[file as usize].path.clone() }
    }

    /// Reads the blocks that the tree of a file lacks, as long as somebody wants them.
    fn read_missing(
        &mut self,
        (file, size): (u32, u64),
        Reading { tree, next }: &mut Reading,
        recall: Recall,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(), SourceError> {
        let reader = self.reader.clone().filter(|_| recall == Recall::Shared);
        let mut content = new_framed();
        for block in *next..blocks_in(size) {
            *next = block;
            if tree.there().contains(block) {
                continue;
            }
            if let Some(value) = reader.as_ref().and_then(|reader| reader.value(file, block)) {
                tree.insert(block, value);
                continue;
            }
            if !wanted() {
                return Err(SourceError::Unwanted);
            }
            let read = self.read_block(file, size, block, &mut content)?;
            tree.insert(block, read.value);
        }
        *next = blocks_in(size);
        Ok(())
    }

    /// The handle of a file, opened now if it is not.
    fn opened(&mut self, file: u32) -> Result<&OpenFile, SourceError> {
        match self.open.iter().position(|open| open.number == file) {
            Some(at) => self.open[at..].rotate_left(1),
            None => {
                self.open.retain_mut(|open| {
                    open.keeping = open.keeping.take().or_else(Keeping::take);
                    open.keeping.is_some()
                });
                if self.open.len() == MAX_OPEN {
                    self.open.remove(0);
                }
                let opened = self.open_file(file)?;
                self.open.push(opened);
            }
        }
        Ok(self.open.last().expect("the file was just put there"))
    }

    fn open_file(&self, number: u32) -> Result<OpenFile, SourceError> {
        let path = &self.scanned.manifest.entries[number as usize].path;
        let failed = |error: Errno| match error {
            // It was there, and not a link, when it was listed.
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => {
                SourceError::Changed { path: path.clone() }
            }
            other => beneath_error(&path.to_string(), other),
        };
        let base = self.scanned.base.as_fd();
        let fd = walk::open(base, path.as_str(), OFlags::RDONLY, Mode::empty()).map_err(failed)?;
        let stat = fstat(&fd).map_err(failed)?;
        let listed = &self.scanned.stamps[number as usize];
        let stamp = Stamp::beside(&stat, listed);
        if stamp != *listed && !stamp.may_continue(listed) {
            return Err(SourceError::Changed { path: path.clone() });
        }
        let size = stat.st_size as u64;
        if size > BLOCK && fadvise(&fd, 0, None, Advice::Sequential).is_err() {
            tracing::trace!(%path, "the file system takes no advice");
        }
        let sparse = (stat.st_blocks as u64).saturating_mul(ALLOCATION_UNIT) < size;
        Ok(OpenFile { number, file: fd.into(), sparse, keeping: None })
    }

    /// Compares the file's stamp, through the handle that was just read.
    fn state(&self, file: u32) -> Result<State, SourceError> {
        let path = &self.scanned.manifest.entries[file as usize].path;
        let opened = self.open.last().expect("a file was just read");
        let stat = fstat(&opened.file).map_err(|e| beneath_error(&path.to_string(), e))?;
        let listed = &self.scanned.stamps[file as usize];
        let stamp = Stamp::beside(&stat, listed);
        if stamp == *listed {
            Ok(State::AsListed)
        } else if stamp.may_continue(listed) {
            Ok(State::Moved)
        } else {
            Err(SourceError::Changed { path: path.clone() })
        }
    }

    /// Reads all of a file that is being written once more: its root must be that of what was sent.
    fn check_again(
        &mut self,
        file: u32,
        size: u64,
        (root, again): (Option<Value>, &mut Option<Reading>),
        wanted: &dyn Fn() -> bool,
    ) -> Result<(), SourceError> {
        let fresh = again.get_or_insert_with(|| Reading::of(Tree::new(size)));
        self.read_missing((file, size), fresh, Recall::Nothing, wanted)?;
        if fresh.tree.root() != root {
            return Err(self.changed(file));
        }
        self.note_grown(file)
    }

    fn read_failed(&self, file: u32, source: std::io::Error) -> SourceError {
        let path = &self.scanned.manifest.entries[file as usize].path;
        match source.kind() {
            std::io::ErrorKind::UnexpectedEof => SourceError::Changed { path: path.clone() },
            _ => SourceError::Read { path: path.to_string(), source },
        }
    }

    fn root_while(&mut self, file: u32, wanted: &dyn Fn() -> bool) -> Result<Value, SourceError> {
        let size = size_of_root(&self.scanned.manifest, file)?;
        let stamp = self.scanned.stamps[file as usize];
        let known = self.known.as_ref().and_then(|known| known.get(&stamp));
        if let Some(root) = known {
            if self.reader.is_some() && self.roots.has(file, root) {
                // The file held all of this at the moment when its hash came to be known.
                return Ok(root);
            }
            // It is that file's as long as it still has this stamp.
            self.opened(file)?;
            if self.state(file)? == State::AsListed {
                return Ok(root);
            }
        }
        let known = self.unfinished.take_if(|known| known.file == file);
        let mut work = known.unwrap_or_else(|| {
            self.set_aside();
            let first = Reading::of(self.roots.take(file, size));
            Unfinished { file, first, again: None }
        });
        let root = self.finish(&mut work, size, wanted);
        match &root {
            Err(SourceError::Unwanted) => self.unfinished = Some(work),
            Ok(_) | Err(_) => self.roots.give_back(file, work.first.tree),
        }
        root
    }

    /// Remembers of an unfinished root what was read first, and no more.
    fn set_aside(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            self.roots.give_back(unfinished.file, unfinished.first.tree);
        }
    }

    fn finish(
        &mut self,
        Unfinished { file, first, again }: &mut Unfinished,
        size: u64,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        let file = *file;
        self.read_missing((file, size), first, Recall::Shared, wanted)?;
        let root = first.tree.root();
        if size > 0 {
            // Blocks sent long ago count for the root only if the file is still the same.
            self.opened(file)?;
            match self.state(file)? {
                State::Moved => self.check_again(file, size, (root, again), wanted)?,
                State::AsListed => {
                    self.check_early(file, size, (root, again), wanted)?;
                    let stamp = self.scanned.stamps[file as usize];
                    if let (Some(known), Some(root)) = (&self.known, root) {
                        known.note(stamp, root);
                    }
                }
            }
        }
        Ok(root.expect("every block was inserted"))
    }
}

impl BlockSource for FileSource {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.scanned.manifest
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        let size = size_of_file(&self.scanned.manifest, file, block)?;
        self.set_aside();
        let Some(reader) = self.reader.clone() else {
            return self.load_own(file, size, block, out).map(|_| ());
        };
        let loaded = self.load_shared(&reader, (file, size), block, out);
        self.tell(loaded)
    }

    fn device(&self) -> Option<u64> {
        self.scanned.stamps.first().map(|stamp| stamp.place().0)
    }

    fn take_remarks(&mut self) -> Vec<(u32, SourceError)> {
        std::mem::take(&mut self.remarks)
    }

    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        let root = self.root_while(file, wanted);
        self.tell(root)
    }
}

/// Whether a part of a file holds no data. A file system that cannot say, says no.
fn is_hole(file: &File, start: u64, len: u64) -> bool {
    match seek(file, SeekFrom::Data(start)) {
        Ok(next_data) => next_data >= start + len,
        Err(error) => error == Errno::NXIO,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::export::Export;
    use crate::numbering::Numbering;

    /// A file system whose clock has not ticked between two changes shows the second one nowhere.
    #[test]
    fn a_change_that_no_time_shows_is_found_if_reading_began_right_after_the_last_one() {
        for (settled, found) in [(false, true), (true, false)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            std::fs::write(&path, vec![1; 2 * BLOCK as usize]).unwrap();
            let scanned = Export::open(&path).unwrap().scan(None).unwrap();
            let settling: fn(i64) -> bool = if settled { |_| true } else { |_| false };
            let mut source = FileSource::new(scanned).with_settling(settling);
            source.load_block(0, 0, &mut new_framed()).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"other", 5).unwrap();
            let scanned = Arc::get_mut(&mut source.scanned).unwrap();
            scanned.stamps[0] = Stamp::of(&fstat(&file).unwrap(), Numbering::Lasting);
            source.load_block(0, 1, &mut new_framed()).unwrap();
            let root = source.file_root(0);
            assert_eq!(matches!(root, Err(SourceError::Changed { .. })), found, "{root:?}");
        }
    }
}
