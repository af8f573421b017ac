//! What a sink asks of a file system, and the real one.
//!
//! The list is short on purpose: a test stands in for the file system, records every call, and
//! replays them with un-synced ones lost. Paths are relative to one directory handle and made of
//! valid components; no call follows a symbolic link in any of them.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    Advice, AtFlags, Dir, FallocateFlags, FileType, FlockOperation, OFlags, Stat, Timespec,
    Timestamps, fadvise, fallocate, fchmod, flock, fstat, fsync, ftruncate, futimens, mkdirat,
    renameat, statat, syncfs, unlinkat,
};
use rustix::io::Errno;

use crate::manifest::{Mode, Mtime};
use crate::walk;

/// The operations of a destination.
pub trait Disk: Send {
    /// An open file; reading and writing at offsets.
    type File: Send;

    /// What is at `path`, a link itself and not what it points to; `None` when nothing is.
    ///
    /// # Errors
    /// What the system says.
    fn look(&mut self, path: &str) -> io::Result<Option<Found>>;

    /// Creates a file, owner-only, where nothing may be, and locks it.
    ///
    /// # Errors
    /// What the system says; `AlreadyExists` when something is there.
    fn create(&mut self, path: &str) -> io::Result<Self::File>;

    /// Opens and locks a file that an earlier transfer of this user left.
    ///
    /// # Errors
    /// What the system says.
    fn open(&mut self, path: &str) -> io::Result<Opened<Self::File>>;

    /// Which file a handle is, wherever its name went.
    ///
    /// # Errors
    /// What the system says.
    fn identity(&mut self, file: &Self::File) -> io::Result<Identity>;

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&mut self, file: &Self::File) -> io::Result<u64>;

    /// Fills `out` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before, else what the system says.
    fn read_at(&mut self, file: &Self::File, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the system says.
    fn write_at(&mut self, file: &Self::File, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes a part of a file read as zeros, as a hole where the file system has holes.
    ///
    /// # Errors
    /// What the system says.
    fn clear(&mut self, file: &Self::File, offset: u64, len: u64) -> io::Result<()>;

    /// Cuts or extends a file; new bytes read as zeros.
    ///
    /// # Errors
    /// What the system says.
    fn set_len(&mut self, file: &Self::File, len: u64) -> io::Result<()>;

    /// Suggests to write a part of a file out soon, without waiting for it.
    fn start_writing(&mut self, file: &Self::File, offset: u64, len: u64);

    /// Gives a file its final mode and time.
    ///
    /// # Errors
    /// What the system says.
    fn dress(&mut self, file: &Self::File, mode: Mode, mtime: Mtime) -> io::Result<()>;

    /// Waits until a file, its content and its attributes survive a loss of power.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&mut self, file: &Self::File) -> io::Result<()>;

    /// Makes a directory for its owner, or finds that one is there.
    ///
    /// # Errors
    /// What the system says; `NotADirectory` when something else is there.
    fn make_dir(&mut self, path: &str) -> io::Result<MadeDir>;

    /// Gives a directory (`""`: the handle's own) its final time, and its mode if there is one.
    ///
    /// # Errors
    /// What the system says.
    fn dress_dir(&mut self, path: &str, mode: Option<Mode>, mtime: Mtime) -> io::Result<()>;

    /// How many names directly beneath the handle end like this. Looks at a bounded number.
    ///
    /// # Errors
    /// What the system says.
    fn count_names(&mut self, _suffix: &str) -> io::Result<usize> {
        Ok(0)
    }

    /// Moves a file to another name, atomically replacing a file there, never a directory.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&mut self, path: &str) -> io::Result<()>;

    /// Waits until the names in a directory (`""`: the handle's own) survive a loss of power.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&mut self, path: &str) -> io::Result<()>;

    /// Waits until everything on the file system survives a loss of power.
    ///
    /// # Errors
    /// What the system says.
    fn sync_all(&mut self) -> io::Result<()>;
}

/// Names of a directory that are looked at to count some of them: a few hundredths of a second.
const NAMES_SEEN: usize = 100_000;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub kind: FoundKind,
    /// Which one it is.
    pub identity: Identity,
    /// Its length in bytes.
    pub size: u64,
    /// When its content last changed.
    pub mtime: Mtime,
}

/// What can be at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link, wherever it leads.
    Link,
    /// A device, pipe or socket.
    Special,
}

/// A file's identity on this host: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Number of the device.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
}

/// What opening a file that an earlier transfer left found.
#[derive(Debug)]
pub enum Opened<F> {
    /// A regular file of this user with one name, now locked.
    Ours(F),
    /// Nothing is there.
    Absent,
    /// A link, a special file, another user's file, or one with several names.
    Foreign,
    /// Ours, but another process holds its lock.
    Locked,
}

/// What making a directory found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeDir {
    /// It is new, so nothing is in it.
    New,
    /// It was there.
    There,
}

/// A file locked for this process. Dropped, it is unlocked in so many words: closing alone would
/// leave the lock to a program that another thread is about to start, until that one runs.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    fn lock(file: File) -> Result<LockedFile, Errno> {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(LockedFile(file))
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl AsFd for LockedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if let Err(error) = flock(&self.0, FlockOperation::Unlock) {
            tracing::trace!(%error, "a file stays locked until it is closed");
        }
    }
}

/// The file system beneath one directory.
#[derive(Debug)]
pub struct OsDisk {
    base: OwnedFd,
    /// The directory that was used last: entries come sorted, so it is used again.
    near: Option<(String, OwnedFd)>,
    user: u32,
}

impl OsDisk {
    /// The file system beneath `dir`. Links in `dir` itself are followed: its user named it.
    ///
    /// # Errors
    /// What the system says.
    pub fn beneath(dir: &Path) -> io::Result<OsDisk> {
        let base = OwnedFd::from(File::open(dir)?);
        if FileType::from_raw_mode(fstat(&base)?.st_mode) != FileType::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(OsDisk::of(base))
    }

    /// The file system beneath a directory that is open for reading.
    pub fn of(base: OwnedFd) -> OsDisk {
        OsDisk { base, near: None, user: rustix::process::geteuid().as_raw() }
    }

    /// The directory that holds `path`, and the last component.
    fn holder<'p>(&mut self, path: &'p str) -> Result<(&OwnedFd, &'p str), Errno> {
        let (parent, name) = walk::split(path);
        if parent.is_empty() {
            return Ok((&self.base, name));
        }
        if self.near.as_ref().is_none_or(|(near, _)| near != parent) {
            let fd = walk::dir_handle(self.base.as_fd(), parent)?;
            self.near = Some((parent.to_owned(), fd));
        }
        let (_, fd) = self.near.as_ref().expect("it was just put there");
        Ok((fd, name))
    }

    fn open_here(&mut self, path: &str, flags: OFlags) -> Result<File, Errno> {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let (holder, name) = self.holder(path)?;
        walk::open(holder.as_fd(), name, flags, mode).map(File::from)
    }
}

impl Disk for OsDisk {
    type File = LockedFile;

    fn look(&mut self, path: &str) -> io::Result<Option<Found>> {
        let (holder, name) = self.holder(path)?;
        match statat(holder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(found(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn create(&mut self, path: &str) -> io::Result<LockedFile> {
        let file = self.open_here(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        Ok(LockedFile::lock(file)?)
    }

    fn open(&mut self, path: &str) -> io::Result<Opened<LockedFile>> {
        let file = match self.open_here(path, OFlags::RDWR) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Opened::Absent),
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::ACCESS) => {
                return Ok(Opened::Foreign);
            }
            Err(error) => return Err(error.into()),
        };
        let stat = fstat(&file)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || stat.st_nlink != 1 || stat.st_uid != self.user {
            return Ok(Opened::Foreign);
        }
        match LockedFile::lock(file) {
            Ok(file) => Ok(Opened::Ours(file)),
            Err(Errno::WOULDBLOCK) => Ok(Opened::Locked),
            Err(error) => Err(error.into()),
        }
    }

    fn identity(&mut self, file: &LockedFile) -> io::Result<Identity> {
        let stat = fstat(file)?;
        Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
    }

    fn len(&mut self, file: &LockedFile) -> io::Result<u64> {
        Ok(fstat(file)?.st_size as u64)
    }

    fn read_at(&mut self, file: &LockedFile, offset: u64, out: &mut [u8]) -> io::Result<()> {
        file.read_exact_at(out, offset)
    }

    fn write_at(&mut self, file: &LockedFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn clear(&mut self, file: &LockedFile, offset: u64, len: u64) -> io::Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(file, punch, offset, len) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                file.write_all_at(&vec![0; len as usize], offset)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn set_len(&mut self, file: &LockedFile, len: u64) -> io::Result<()> {
        Ok(ftruncate(file, len)?)
    }

    /// The advice that these pages are not needed starts their writing; pages on their way to
    /// the disk stay in memory.
    fn start_writing(&mut self, file: &LockedFile, offset: u64, len: u64) {
        if let Err(error) = fadvise(file, offset, len.try_into().ok(), Advice::DontNeed) {
            tracing::trace!(%error, "the file system takes no advice");
        }
    }

    fn dress(&mut self, file: &LockedFile, mode: Mode, mtime: Mtime) -> io::Result<()> {
        fchmod(file, rustix::fs::Mode::from_raw_mode(mode.bits()))?;
        Ok(futimens(file, &times(mtime))?)
    }

    fn sync(&mut self, file: &LockedFile) -> io::Result<()> {
        Ok(fsync(file)?)
    }

    fn make_dir(&mut self, path: &str) -> io::Result<MadeDir> {
        let (holder, name) = self.holder(path)?;
        match mkdirat(holder, name, rustix::fs::Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(MadeDir::New),
            Err(Errno::EXIST) => {
                let stat = statat(holder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => Ok(MadeDir::There),
                    _ => Err(io::ErrorKind::NotADirectory.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn dress_dir(&mut self, path: &str, mode: Option<Mode>, mtime: Mtime) -> io::Result<()> {
        let fd = walk::dir_for_reading(self.base.as_fd(), path)?;
        if let Some(mode) = mode {
            fchmod(&fd, rustix::fs::Mode::from_raw_mode(mode.bits()))?;
        }
        Ok(futimens(&fd, &times(mtime))?)
    }

    fn count_names(&mut self, suffix: &str) -> io::Result<usize> {
        let names = Dir::read_from(&self.base)?.take(NAMES_SEEN).filter_map(Result::ok);
        Ok(names.filter(|name| name.file_name().to_bytes().ends_with(suffix.as_bytes())).count())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (_, to_name) = walk::split(to);
        assert_eq!(walk::split(from).0, walk::split(to).0, "files keep their directory");
        let (holder, from_name) = self.holder(from)?;
        Ok(renameat(holder, from_name, holder, to_name)?)
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        let (holder, name) = self.holder(path)?;
        Ok(unlinkat(holder, name, AtFlags::empty())?)
    }

    fn sync_dir(&mut self, path: &str) -> io::Result<()> {
        Ok(fsync(walk::dir_for_reading(self.base.as_fd(), path)?)?)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        Ok(syncfs(&self.base)?)
    }
}

fn found(stat: &Stat) -> Found {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FoundKind::File,
        FileType::Directory => FoundKind::Dir,
        FileType::Symlink => FoundKind::Link,
        _ => FoundKind::Special,
    };
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0).min(999_999_999);
    let mtime = Mtime::new(stat.st_mtime, nanos).expect("nanoseconds were cut to a second");
    let identity = Identity { device: stat.st_dev, inode: stat.st_ino };
    Found { kind, identity, size: stat.st_size as u64, mtime }
}

fn times(mtime: Mtime) -> Timestamps {
    let mtime = Timespec { tv_sec: mtime.secs(), tv_nsec: mtime.nanos().into() };
    let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    Timestamps { last_access, last_modification: mtime }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_let_go_is_free_although_a_starting_program_still_has_it_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = OsDisk::beneath(dir.path()).unwrap();
        let held = disk.create("journal").unwrap();
        assert!(matches!(disk.open("journal").unwrap(), Opened::Locked));
        let _inherited = held.try_clone().unwrap();
        drop(held);
        assert!(matches!(disk.open("journal").unwrap(), Opened::Ours(_)));
    }
}
