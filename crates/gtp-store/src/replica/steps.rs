//! Steps in their order, of which those that write files wait for each other.
//!
//! A file is written under a spare name. Files of steps that follow one another are made durable
//! together and then get their names, before a step of another kind is carried out: one by one,
//! each would wait for the disk. This module must not know what a tree is to become.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, fsync, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::deed::Deed;
use super::survey::words;
use super::tree::{CHANGED, Done, Fault, Replica};
use crate::abilities::is_refusal;
use crate::disk::sync_file_system;
use crate::export::attributes;
use crate::file_sink::SYNC_SINGLY;
use crate::manifest::Mtime;
use crate::name::escaped;
use crate::walk;

/// The most files that wait: beyond this number, to wait for the disk once more hardly counts.
const WAITING_MOST: usize = 1_024;

/// One file waits for each 16 descriptors that the process may have. It holds two of them, so the
/// files of all rows take an eighth. Some files may wait even where descriptors are few.
const DESCRIPTORS_EACH: u64 = 16;
const WAITING_LEAST: usize = 32;

/// Parts in which files get their names at once. Four took a fifth of the time that one took where
/// each replaced file's space is given back to the disk, and more took no less.
const PLACED_AT_ONCE: usize = 4;

/// Files for which a thread is worth its beginning.
const WORTH_A_THREAD: usize = 16;

/// A file that is written whole, under a name of its own.
pub(super) struct Spare {
    /// The directory that it is in.
    pub dir: OwnedFd,
    /// Its name there.
    pub spare: String,
    /// The name that it is to get.
    pub name: String,
    /// What had this name when it was written.
    pub stood: Option<Stood>,
    /// Open, and so locked against other transfers.
    pub file: OwnedFd,
    /// Whether it has got it.
    pub is_placed: bool,
}

/// What a file had that stands at a name: one that was changed or replaced differs in one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stood {
    place: (u64, u64),
    size: i64,
    mtime: Mtime,
}

impl Stood {
    pub fn of(stat: &Stat) -> Stood {
        let (size, mtime) = (stat.st_size, attributes(stat).mtime);
        Stood { place: (stat.st_dev, stat.st_ino), size, mtime }
    }
}

/// Files of all rows of this process that wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Lets one file wait, as long as it is kept.
struct Permit;

impl Permit {
    /// Takes one; `None` if [`waiting_most`] files wait already.
    fn take() -> Option<Permit> {
        let most = waiting_most();
        let more = |waiting| (waiting < most).then_some(waiting + 1);
        WAITING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A row of steps that are being carried out.
pub struct Steps<'r> {
    replica: &'r Replica,
    waiting: Vec<(usize, String, Spare)>,
    /// One for each file that waits.
    permits: Vec<Permit>,
    faults: Vec<(usize, Fault)>,
    lacks: BTreeMap<&'static str, u32>,
}

impl Replica {
    /// Begins a row of steps.
    pub fn steps(&self) -> Steps<'_> {
        let (waiting, permits, faults) = (Vec::new(), Vec::new(), Vec::new());
        Steps { replica: self, waiting, permits, faults, lacks: BTreeMap::new() }
    }

    /// Carries out one step. Blocks.
    ///
    /// # Errors
    /// A [`Fault`] that names what the step concerns; the tree is as it was.
    pub fn apply(&self, deed: &Deed) -> Result<(), Fault> {
        let mut steps = self.steps();
        steps.carry_out(0, deed);
        steps.finish().pop().map_or(Ok(()), |(_, fault)| Err(fault))
    }
}

impl Steps<'_> {
    /// Carries out the next step, or begins to. Its `index` says which one failed. One that fails
    /// does not keep the others from being tried. Blocks.
    pub fn carry_out(&mut self, index: usize, deed: &Deed) {
        let writes = matches!(deed, Deed::Write { .. } | Deed::Patch { .. });
        let mut permit = if writes { Permit::take() } else { None };
        if self.waiting.len() >= WAITING_MOST || permit.is_none() {
            self.settle();
            permit = permit.or_else(|| if writes { Permit::take() } else { None });
        }
        let mut written = self.replica.carry_out(deed);
        if written.is_err() && !self.waiting.is_empty() {
            // Those that wait may be in the way, by their descriptors or by a spare name.
            self.settle();
            written = self.replica.carry_out(deed);
        }
        let name = escaped(deed.name());
        match written {
            Ok(Done::All) => {}
            Ok(Done::But(lacks)) => {
                lacks.into_iter().for_each(|what| *self.lacks.entry(what).or_insert(0) += 1);
            }
            Ok(Done::Written(spare)) => {
                self.waiting.push((index, name, spare));
                match permit {
                    Some(permit) => self.permits.push(permit),
                    // The other rows have them all, so this file does not wait.
                    None => self.settle(),
                }
            }
            Err(why) => self.faults.push((index, Fault { path: name, why })),
        }
    }

    /// What the old versions that were kept so far lack because their place has no such thing, for
    /// people, and how many lack it.
    pub fn lacks(&self) -> &BTreeMap<&'static str, u32> {
        &self.lacks
    }

    /// Ends the row, and returns the steps that failed, in their order. Of each of them the tree is
    /// as it was, unless it was named before the disk failed. Blocks.
    pub fn finish(mut self) -> Vec<(usize, Fault)> {
        self.settle();
        self.faults.sort_by_key(|(index, _)| *index);
        self.faults
    }

    /// Makes the files that wait durable, gives them their names, and makes these durable.
    fn settle(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let singly = waiting.len() < SYNC_SINGLY;
        let files = |(.., spare): &(usize, String, Spare)| sync_file(&spare.file);
        let synced = each(&waiting, singly, files);
        let placed = place_all(&mut waiting, &synced);
        let named = each(&waiting, singly, |(.., spare)| sync_dir(spare).map(|_| ()));
        for (((index, path, _), placed), named) in waiting.into_iter().zip(placed).zip(named) {
            if let Err(why) = placed.and(named.map_err(words)) {
                self.faults.push((index, Fault { path, why }));
            }
        }
        // The descriptors are closed by now.
        self.permits.clear();
    }
}

impl Spare {
    /// Gives it its name, unless something else stands there by now than when it was written.
    fn place(&mut self) -> Result<(), String> {
        let stands = match statat(&self.dir, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(Stood::of(&stat)),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(words(error)),
        };
        if stands != self.stood {
            return Err(CHANGED.into());
        }
        renameat(&self.dir, &*self.spare, &self.dir, &*self.name).map_err(words)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // Under its spare name there may be another transfer's part by now if this one is placed.
        if !self.is_placed {
            let _ = unlinkat(&self.dir, &*self.spare, AtFlags::empty());
        }
    }
}

/// Gives files that are durable their names, several at a time: to replace a file, some file
/// systems wait for the disk.
fn place_all(
    waiting: &mut [(usize, String, Spare)],
    synced: &[Result<(), Errno>],
) -> Vec<Result<(), String>> {
    let part = waiting.len().div_ceil(PLACED_AT_ONCE).max(WORTH_A_THREAD);
    let place = |waiting: &mut [(usize, String, Spare)], synced: &[Result<(), Errno>]| {
        let spares = waiting.iter_mut().map(|(.., spare)| spare).zip(synced);
        let placed =
            spares.map(|(spare, synced)| synced.map_err(words).and_then(|()| spare.place()));
        placed.collect::<Vec<_>>()
    };
    let parts = Mutex::new(waiting.chunks_mut(part).zip(synced.chunks(part)).enumerate());
    let placed = Mutex::new(Vec::new());
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((number, (waiting, synced))) = next() {
            let done = place(waiting, synced);
            placed.lock().unwrap_or_else(PoisonError::into_inner).push((number, done));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..synced.len().div_ceil(part) {
            // If there is no thread, this one does its part.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut placed = placed.into_inner().unwrap_or_else(PoisonError::into_inner);
    placed.sort_unstable_by_key(|(number, _)| *number);
    placed.into_iter().flat_map(|(_, done)| done).collect()
}

/// How many files may wait in this process, those of all rows together.
fn waiting_most() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / DESCRIPTORS_EACH;
    usize::try_from(limit).unwrap_or(usize::MAX).clamp(WAITING_LEAST, WAITING_MOST)
}

/// Syncs one by one, or all at once by their file systems.
fn each(
    waiting: &[(usize, String, Spare)],
    singly: bool,
    sync: impl Fn(&(usize, String, Spare)) -> Result<(), Errno>,
) -> Vec<Result<(), Errno>> {
    if singly {
        return waiting.iter().map(sync).collect();
    }
    let mut done: Vec<(u64, Result<(), Errno>)> = Vec::new();
    let of = |(.., spare): &(usize, String, Spare)| -> Result<(), Errno> {
        let device = fstat(&spare.file)?.st_dev;
        if let Some((_, synced)) = done.iter().find(|(known, _)| *known == device) {
            return *synced;
        }
        let synced = sync_file_system(spare.file.as_fd());
        done.push((device, synced));
        synced
    };
    waiting.iter().map(of).collect()
}

fn sync_file(file: &OwnedFd) -> Result<(), Errno> {
    excused(fsync(file))
}

/// What was made durable with a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Synced {
    /// It alone.
    Directory,
    /// All of its file system, since it may be written and not be opened for reading.
    FileSystem,
}

/// Makes the names in a file's directory durable.
fn sync_dir(spare: &Spare) -> Result<Synced, Errno> {
    let dir: BorrowedFd<'_> = spare.dir.as_fd();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    match walk::open(dir, ".", flags, Mode::empty()) {
        Ok(dir) => excused(fsync(dir)).map(|()| Synced::Directory),
        Err(Errno::ACCESS | Errno::PERM) => {
            excused(sync_file_system(spare.file.as_fd())).map(|()| Synced::FileSystem)
        }
        Err(error) => excused(Err(error)).map(|()| Synced::Directory),
    }
}

/// A file system that cannot sync has done what it can.
fn excused(synced: Result<(), Errno>) -> Result<(), Errno> {
    synced.or_else(|error| if is_refusal(error) { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::unprivileged::without_rights;

    #[test]
    fn a_directory_that_may_not_be_read_is_made_durable_with_its_file_system() {
        without_rights(|| {
            let tree = tempfile::tempdir().unwrap();
            let dir = tree.path().join("d");
            std::fs::create_dir(&dir).unwrap();
            let file = std::fs::File::create(dir.join("f")).unwrap();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let spare = Spare {
                dir: rustix::fs::open(&dir, flags, Mode::empty()).unwrap(),
                spare: "f".into(),
                name: "f".into(),
                stood: None,
                file: file.into(),
                is_placed: true,
            };
            let mode = |mode| {
                std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            };
            for (bits, synced) in [(0o700, Synced::Directory), (0o300, Synced::FileSystem)] {
                mode(bits);
                assert_eq!(sync_dir(&spare), Ok(synced), "{bits:o}");
            }
            mode(0o700);
        });
    }
}
