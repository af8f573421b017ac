//! The unfinished files of an object: created, written, reopened, placed.
//!
//! A part file is created where nothing may be, or taken over from an earlier transfer when its
//! journal vouches for it. Its identity is remembered, and whenever it is met again under its
//! name it must still be that file: so two transfers whose destinations overlap end in an error
//! and never in a mixed file.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::destination::Names;
use crate::disk::{Disk, FoundKind, Identity, Opened};
use crate::hash::{Value, block_value};
use crate::manifest::{Entry, Manifest, Mode};
use crate::row::{BLOCK, blocks_in, content_of};
use crate::sink::{Fault, SinkError};
use crate::walk::split;

/// The most part files kept open.
const MAX_OPEN: usize = 64;

/// Zeros, to know others by.
static ZEROS: [u8; 4_096] = [0; 4_096];

/// All part files of one object.
#[derive(Debug)]
pub(crate) struct Parts<D: Disk> {
    pub(crate) disk: D,
    pub(crate) names: Names,
    manifest: Arc<Manifest>,
    known: HashMap<u32, Part>,
    /// Most recently used last.
    open: Vec<(u32, D::File)>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    identity: Identity,
    /// The file's number in the journal.
    number: u32,
    unwritten: Unwritten,
}

/// What a part file holds where this transfer has written nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unwritten {
    /// Holes: it was created by this transfer.
    Holes,
    /// Anything.
    Unknown,
}

impl<D: Disk> Parts<D> {
    pub(crate) fn new(disk: D, names: Names, manifest: Arc<Manifest>) -> Parts<D> {
        Parts { disk, names, manifest, known: HashMap::new(), open: Vec::new() }
    }

    /// The number in the journal of a file that has a part.
    pub(crate) fn number(&self, file: u32) -> Option<u32> {
        self.known.get(&file).map(|part| part.number)
    }

    /// Whether no file has a part.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Creates a file's part, in place of one that nobody vouches for.
    pub(crate) fn create(&mut self, file: u32, number: u32) -> Result<(), SinkError> {
        let path = self.part_path(file);
        self.forget(file);
        let handle = match self.disk.create(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.clear_way(&path)?;
                self.disk.create(&path)
            }
            other => other,
        };
        let handle = handle.map_err(|e| self.not_created(file, &path, e))?;
        let size = self.entry(file).size;
        if blocks_in(size) > 1
            && let Err(error) = self.disk.set_len(&handle, size)
        {
            // An empty part helps nobody, and the first error is the one to tell.
            drop(handle);
            if let Err(second) = self.disk.remove(&path) {
                tracing::debug!(error = %second, "an empty part file stays");
            }
            return Err(self.failed(&path, error));
        }
        let identity = self.disk.identity(&handle).map_err(|e| self.failed(&path, e))?;
        self.known.insert(file, Part { identity, number, unwritten: Unwritten::Holes });
        self.keep_open(file, handle);
        Ok(())
    }

    /// Writes the content of a checked block. Blocks of zeros stay holes.
    pub(crate) fn write(&mut self, file: u32, block: u64, content: &[u8]) -> Result<(), SinkError> {
        let (size, offset, len) = (self.entry(file).size, block * BLOCK, content.len() as u64);
        let at = self.handle(file)?;
        let unwritten = self.known.get(&file).map(|part| part.unwritten);
        let (disk, handle) = (&mut self.disk, &self.open[at].1);
        let zeros = content.chunks(ZEROS.len()).all(|piece| piece == &ZEROS[..piece.len()]);
        let done = match (zeros, unwritten) {
            (true, Some(Unwritten::Holes)) if blocks_in(size) > 1 => Ok(()),
            (true, Some(Unwritten::Holes)) => disk.set_len(handle, size),
            (true, Some(Unwritten::Unknown) | None) => disk.clear(handle, offset, len),
            (false, _) => disk.write_at(handle, offset, content),
        };
        if done.is_ok() && !zeros && blocks_in(size) > 1 {
            disk.start_writing(handle, offset, len);
        }
        done.map_err(|e| self.failed(&self.part_path(file), e))
    }

    /// Hashes one block of a part that an earlier transfer left; if it has the journaled value,
    /// the part is taken over under this number.
    pub(crate) fn verify(
        &mut self,
        file: u32,
        number: u32,
        block: u64,
        value: &Value,
    ) -> Result<Verified, SinkError> {
        let size = self.entry(file).size;
        if block >= blocks_in(size) {
            return Ok(Verified::Wrong);
        }
        let at = match self.open.iter().position(|(open, _)| *open == file) {
            Some(at) => at,
            None => match self.open_left(file)? {
                Some(at) => at,
                None => return Ok(Verified::NoPart),
            },
        };
        let mut content = vec![0; content_of(size, block) as usize];
        let (disk, handle) = (&mut self.disk, &self.open[at].1);
        let identity = disk.identity(handle);
        match disk.read_at(handle, block * BLOCK, &mut content) {
            Ok(()) if block_value(size, block, &content) == *value => {}
            Ok(()) => return Ok(Verified::Wrong),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Verified::Wrong),
            Err(e) => return Err(self.failed(&self.part_path(file), e)),
        }
        let identity = identity.map_err(|e| self.failed(&self.part_path(file), e))?;
        self.known.insert(file, Part { identity, number, unwritten: Unwritten::Unknown });
        Ok(Verified::Good)
    }

    /// Gives a part its final time and mode, as far as its owner can still open it.
    pub(crate) fn dress(&mut self, file: u32) -> Result<(), SinkError> {
        let at = self.handle(file)?;
        let (mode, mtime) = (self.entry(file).mode, self.entry(file).mtime);
        let dressed = self.disk.dress(&self.open[at].1, openable(mode), mtime);
        dressed.map_err(|e| self.failed(&self.part_path(file), e))
    }

    /// Waits until a part survives a loss of power.
    pub(crate) fn sync(&mut self, file: u32) -> Result<(), SinkError> {
        let at = self.handle(file)?;
        let synced = self.disk.sync(&self.open[at].1);
        synced.map_err(|e| self.failed(&self.part_path(file), e))
    }

    /// Gives a dressed part its file's name; a mode that closes it even to its owner comes last,
    /// so that no part is left that a resume could not open.
    pub(crate) fn place(&mut self, file: u32) -> Result<(), SinkError> {
        let (part, path) = (self.part_path(file), self.final_path(file));
        let found = self.disk.look(&part).map_err(|e| self.failed(&part, e))?;
        let known = self.known.get(&file).map(|part| part.identity);
        let Some(found) = found else { return Err(self.refused(&part, Fault::Gone)) };
        // The length tells as well, where the file system numbers no files.
        let size = self.entry(file).size;
        if Some(found.identity) != known || found.size != size {
            return Err(self.refused(&part, Fault::InUse));
        }
        let (mode, mtime) = (self.entry(file).mode, self.entry(file).mtime);
        let closing = mode != openable(mode);
        let at = if closing { Some(self.handle(file)?) } else { None };
        self.disk.rename(&part, &path).map_err(|e| self.not_renamed(&part, &path, e))?;
        if let Some(at) = at {
            let dressed = self.disk.dress(&self.open[at].1, mode, mtime);
            dressed.map_err(|e| self.failed(&path, e))?;
        }
        self.forget(file);
        Ok(())
    }

    /// Removes a part whose content turned out wrong.
    pub(crate) fn discard(&mut self, file: u32) -> Result<(), SinkError> {
        let path = self.part_path(file);
        self.forget(file);
        self.disk.remove(&path).map_err(|e| self.failed(&path, e))
    }

    /// Drops what is known of a part and leaves the file.
    pub(crate) fn forget(&mut self, file: u32) {
        self.close(file);
        self.known.remove(&file);
    }

    /// Closes a part's handle; it is opened again when needed.
    pub(crate) fn close(&mut self, file: u32) {
        self.open.retain(|(open, _)| *open != file);
    }

    /// Removes a part file of ours at `path`, if there is one; nothing else.
    pub(crate) fn clear_way(&mut self, path: &str) -> Result<(), SinkError> {
        let opened = self.disk.open(path).map_err(|e| self.failed(path, e))?;
        match opened {
            Opened::Ours(_) => self.disk.remove(path).map_err(|e| self.failed(path, e)),
            Opened::Absent => Ok(()),
            Opened::Foreign => Err(self.refused(path, Fault::Foreign)),
            Opened::Locked => Err(self.refused(path, Fault::InUse)),
        }
    }

    pub(crate) fn part_path(&self, file: u32) -> String {
        self.names.part_path(&self.entry(file).path)
    }

    pub(crate) fn final_path(&self, file: u32) -> String {
        self.names.final_path(&self.entry(file).path)
    }

    pub(crate) fn failed(&self, path: &str, error: io::Error) -> SinkError {
        SinkError::disk(&self.names.shown(path), error)
    }

    pub(crate) fn refused(&self, path: &str, fault: Fault) -> SinkError {
        SinkError::refused(&self.names.shown(path), fault)
    }

    fn entry(&self, file: u32) -> &Entry {
        &self.manifest.entries[file as usize]
    }

    /// Returns why a part could not get its file's name. A file system may take a part's name,
    /// which ends otherwise, and not that of the file: one that ends in a dot, for example. File
    /// systems in user space and on networks give the same errors for other reasons, so the name
    /// is tried.
    fn not_renamed(&mut self, part: &str, path: &str, error: io::Error) -> SinkError {
        match may_mean_the_name(&error) && self.is_impossible(path, part, &error) {
            true => self.refused(path, Fault::Unnameable),
            false => self.failed(path, error),
        }
    }

    /// Returns whether the name of `path` alone is at fault: an empty file of that name cannot be
    /// created either, with the same error, while one of another name beside `part` can.
    fn is_impossible(&mut self, path: &str, part: &str, error: &io::Error) -> bool {
        let same = |other: io::Error| other.raw_os_error() == error.raw_os_error();
        self.try_name(path).is_err_and(same) && self.try_name(&format!("{part}~")).is_ok()
    }

    /// Creates an empty file where nothing is, and removes it.
    fn try_name(&mut self, path: &str) -> io::Result<()> {
        drop(self.disk.create(path)?);
        if let Err(error) = self.disk.remove(path) {
            tracing::debug!(%error, "an empty file stays");
        }
        Ok(())
    }

    /// Returns why a directory could not get this name.
    pub(crate) fn not_named(&self, path: &str, error: io::Error) -> SinkError {
        match may_mean_the_name(&error) {
            true => self.refused(path, Fault::Unnameable),
            false => self.failed(path, error),
        }
    }

    /// Why a part could not be created. A file system that has no such names says so, or says that
    /// something is not there although the directory is.
    fn not_created(&mut self, file: u32, part: &str, error: io::Error) -> SinkError {
        let holder = split(part).0.to_owned();
        let is_absent = error.raw_os_error() == Some(Errno::NOENT.raw_os_error());
        let refuses_name = may_mean_the_name(&error) || is_absent && self.is_dir(&holder);
        if refuses_name {
            self.refused(&self.final_path(file), Fault::Unnameable)
        } else {
            self.failed(part, error)
        }
    }

    fn is_dir(&mut self, path: &str) -> bool {
        if path.is_empty() {
            return self.disk.is_linked();
        }
        let found = self.disk.look(path).ok().flatten();
        found.is_some_and(|found| found.kind == FoundKind::Dir)
    }

    /// The place in `open` of a known part, opened again if it was closed.
    fn handle(&mut self, file: u32) -> Result<usize, SinkError> {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == file) {
            self.open[at..].rotate_left(1);
            return Ok(self.open.len() - 1);
        }
        let path = self.part_path(file);
        let handle = match self.disk.open(&path).map_err(|e| self.failed(&path, e))? {
            Opened::Ours(handle) => handle,
            Opened::Absent => return Err(self.refused(&path, Fault::Gone)),
            Opened::Foreign | Opened::Locked => return Err(self.refused(&path, Fault::InUse)),
        };
        let identity = self.disk.identity(&handle).map_err(|e| self.failed(&path, e))?;
        if self.known.get(&file).map(|part| part.identity) != Some(identity) {
            return Err(self.refused(&path, Fault::InUse));
        }
        Ok(self.keep_open(file, handle))
    }

    /// Opens a part that an earlier transfer left and gives it its file's length.
    fn open_left(&mut self, file: u32) -> Result<Option<usize>, SinkError> {
        let path = self.part_path(file);
        let handle = match self.disk.open(&path).map_err(|e| self.failed(&path, e))? {
            Opened::Ours(handle) => handle,
            Opened::Absent => return Ok(None),
            Opened::Foreign => return Err(self.refused(&path, Fault::Foreign)),
            Opened::Locked => return Err(self.refused(&path, Fault::InUse)),
        };
        let size = self.entry(file).size;
        let len = self.disk.len(&handle).map_err(|e| self.failed(&path, e))?;
        if len != size {
            self.disk.set_len(&handle, size).map_err(|e| self.failed(&path, e))?;
        }
        Ok(Some(self.keep_open(file, handle)))
    }

    fn keep_open(&mut self, file: u32, handle: D::File) -> usize {
        if self.open.len() == MAX_OPEN {
            self.open.remove(0);
        }
        self.open.push((file, handle));
        self.open.len() - 1
    }
}

/// Whether the system may have said that it has no such name.
pub(crate) fn may_mean_the_name(error: &io::Error) -> bool {
    let error = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(error, Some(Errno::INVAL | Errno::ILSEQ))
}

/// A mode with which its owner can read and write.
fn openable(mode: Mode) -> Mode {
    Mode::new(mode.bits() | 0o600)
}

/// What became of a journaled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verified {
    /// It is there.
    Good,
    /// The part does not hold it.
    Wrong,
    /// There is no part.
    NoPart,
}
