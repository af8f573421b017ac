//! What a sink asks of a file system, and the real one.
//!
//! The list is short on purpose: a test stands in for the file system, records every call, and
//! replays them with un-synced ones lost. Paths are relative to one directory handle and made of
//! valid components; no call follows a symbolic link in any of them. The real one goes on where a
//! call is refused that data do not need, and says so once.

mod renaming;

use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{
    Advice, AtFlags, Dir, FallocateFlags, FileType, FlockOperation, OFlags, Stat, Timespec,
    Timestamps, fadvise, fallocate, fchmod, flock, fstat, fsync, ftruncate, futimens, mkdirat,
    renameat, statat, syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;

use renaming::rename_otherwise;

use crate::abilities::{Ability, Lacks, is_refusal};
use crate::destination::UNFINISHED_DIR;
use crate::lent::{self, Lent};
use crate::manifest::{Mode, Mtime};
use crate::numbering::{Numbering, Numberings};
use crate::time_step::{COARSEST_S, TimeStep};
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

    /// As [`Disk::open`], of a whole file that is only read. The default opens it as that does.
    ///
    /// # Errors
    /// What the system says.
    fn open_to_read(&mut self, path: &str) -> io::Result<Opened<Self::File>> {
        self.open(path)
    }

    /// The device on which its base lies. The default does not know.
    fn device(&self) -> Option<u64> {
        None
    }

    /// Another view of it, which lends nothing, if it is the system's own and gives one more
    /// descriptor. The default is not.
    fn another(&self) -> Option<OsDisk> {
        None
    }

    /// Allows this directory, which is the object's, and those beneath it to be made writable for
    /// the time of the transfer where they are not. The default cannot.
    fn may_lend(&mut self, _dir: &str) {}

    /// The same for those beneath the base alone: the base holds the objects, and is none.
    fn may_lend_beneath(&mut self) {}

    /// The mode of a directory of the object to which this disk may have to lend permissions, so
    /// that it can be noted first. The default lends to none.
    fn lacking(&mut self, _dir: &str) -> Option<u32> {
        None
    }

    /// What is lent now: directories and the modes that they had. The default has lent none.
    fn loans(&self) -> Vec<(String, u32)> {
        Vec::new()
    }

    /// Takes over a loan to a directory that an earlier transfer noted, if it was not given back.
    /// The default has no use for it.
    fn owe(&mut self, _dir: &str, _mode: u32) {}

    /// The transfer is over: gives lent permissions back. The default has lent none.
    fn settle(&mut self) {}

    /// One sentence about what the destination was found to be unable to do, told once.
    fn warning(&mut self) -> Option<String> {
        None
    }

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
    fn set_dir_attributes(
        &mut self,
        path: &str,
        mode: Option<Mode>,
        mtime: Mtime,
    ) -> io::Result<()>;

    /// Whether the handle's own directory is still a directory of the file system, and not removed
    /// while it is open. The default does not know of removals.
    fn is_linked(&mut self) -> bool {
        true
    }

    /// How many names directly beneath the handle end like this. Looks at a bounded number.
    ///
    /// # Errors
    /// What the system says.
    fn count_names(&mut self, _suffix: &str) -> io::Result<usize> {
        Ok(0)
    }

    /// The names directly beneath the handle that end like this and are UTF-8. Looks at a bounded
    /// number. The default finds none.
    ///
    /// # Errors
    /// What the system says.
    fn names(&mut self, _suffix: &str) -> io::Result<Vec<String>> {
        Ok(Vec::new())
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

/// The bits of a mode that are compared with what was asked for.
pub(crate) const PERMISSIONS: u32 = 0o777;

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

/// A file's identity on this host: device and inode. Where the file system makes inode numbers
/// up, all its files have the same one: there it says only that the file is on this file system.
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
    lacks: Lacks,
    lent: Lent,
    numberings: Numberings,
}

/// The set-group bit of a directory: what is made in it gets its group, and directories this bit.
const SET_GROUP: u32 = 0o2000;

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
        let user = rustix::process::geteuid().as_raw();
        OsDisk {
            base,
            near: None,
            user,
            lacks: Lacks::default(),
            lent: Lent::default(),
            numberings: Numberings::default(),
        }
    }

    /// Whether the directory itself was made for a transfer, which may have been an earlier one.
    pub(crate) fn whoever_made(&self, made: MadeDir) -> MadeDir {
        // Beneath a directory with the set-group bit, a new one has that bit as well.
        let mode = |stat: &Stat| stat.st_mode & 0o7777 & !SET_GROUP;
        let unfinished = |stat: Stat| stat.st_uid == self.user && mode(&stat) == UNFINISHED_DIR;
        if fstat(&self.base).is_ok_and(unfinished) { MadeDir::New } else { made }
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
        self.permitted(path, |disk| {
            let (holder, name) = disk.holder(path)?;
            walk::open(holder.as_fd(), name, flags, mode).map(File::from)
        })
    }

    /// Does something with `path`. If permission is denied, lends to the directories on the way
    /// what their owner lacks and tries once more.
    fn permitted<T>(
        &mut self,
        path: &str,
        work: impl Fn(&mut OsDisk) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match work(self) {
            Err(Errno::ACCESS) if self.lent.lend(self.base.as_fd(), self.user, path) => work(self),
            done => done,
        }
    }

    /// Locks a file, where files can be locked.
    fn lock(&mut self, file: File) -> Result<LockedFile, Errno> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Errno::WOULDBLOCK),
            Err(error) => self.lacks.excuse(Ability::Locks, error)?,
        }
        Ok(LockedFile(file))
    }

    /// Whether an ordinary time of a file is kept, which it has then.
    fn keeps_times(&mut self, file: &LockedFile) -> io::Result<bool> {
        let Some(ordinary) = TimeStep::probe() else { return Ok(false) };
        self.excuse(Ability::Times, futimens(file, &times(ordinary)))?;
        Ok(fstat(file)?.st_mtime.abs_diff(ordinary.secs()) <= COARSEST_S)
    }

    fn excuse(&mut self, ability: Ability, done: Result<(), Errno>) -> io::Result<()> {
        match done {
            Ok(()) => Ok(()),
            Err(error) => Ok(self.lacks.excuse(ability, error)?),
        }
    }

    /// Waits for all of the file system of a directory that may be written and not be opened for
    /// reading.
    fn sync_around(&self, path: &str) -> Result<(), Errno> {
        let name = if path.is_empty() { "." } else { path };
        let around = statat(&self.base, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if around.st_dev == fstat(&self.base)?.st_dev {
            return sync_file_system(self.base.as_fd());
        }
        rustix::fs::sync();
        Ok(())
    }
}

/// However a transfer ends, nobody's directory keeps bits that were only lent.
impl Drop for OsDisk {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Disk for OsDisk {
    type File = LockedFile;

    fn look(&mut self, path: &str) -> io::Result<Option<Found>> {
        let stat = self.permitted(path, |disk| {
            let (holder, name) = disk.holder(path)?;
            statat(holder, name, AtFlags::SYMLINK_NOFOLLOW)
        });
        match stat {
            Ok(stat) => {
                let numbering = match self.numberings.known(stat.st_dev) {
                    Some(numbering) => numbering,
                    None => {
                        let near = self.holder(path)?.0.try_clone()?;
                        self.numberings.learn(stat.st_dev, near)
                    }
                };
                Ok(Some(found(&stat, numbering)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn create(&mut self, path: &str) -> io::Result<LockedFile> {
        let file = self.open_here(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        Ok(self.lock(file)?)
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
        match self.lock(file) {
            Ok(file) => Ok(Opened::Ours(file)),
            Err(Errno::WOULDBLOCK) => Ok(Opened::Locked),
            Err(error) => Err(error.into()),
        }
    }

    fn open_to_read(&mut self, path: &str) -> io::Result<Opened<LockedFile>> {
        match self.open_here(path, OFlags::RDONLY) {
            Ok(file) => Ok(Opened::Ours(LockedFile(file))),
            Err(Errno::NOENT) => Ok(Opened::Absent),
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::ACCESS) => Ok(Opened::Foreign),
            Err(error) => Err(error.into()),
        }
    }

    fn device(&self) -> Option<u64> {
        fstat(&self.base).ok().map(|stat| stat.st_dev)
    }

    fn another(&self) -> Option<OsDisk> {
        Some(OsDisk::of(self.base.try_clone().ok()?))
    }

    fn may_lend(&mut self, dir: &str) {
        self.lent.allow(dir);
    }

    fn may_lend_beneath(&mut self) {
        self.lent.allow_beneath();
    }

    fn lacking(&mut self, dir: &str) -> Option<u32> {
        if !self.lent.covers(dir) {
            return None;
        }
        let stat = if dir.is_empty() {
            fstat(&self.base)
        } else {
            self.holder(dir)
                .and_then(|(holder, name)| statat(holder, name, AtFlags::SYMLINK_NOFOLLOW))
        };
        let stat = stat.ok().filter(|stat| stat.st_uid == self.user)?;
        lent::lacks_bits(stat.st_mode)
    }

    fn loans(&self) -> Vec<(String, u32)> {
        self.lent.loans().to_vec()
    }

    fn owe(&mut self, dir: &str, mode: u32) {
        self.lent.owe(self.base.as_fd(), self.user, dir, mode);
    }

    fn settle(&mut self) {
        self.lent.give_back(self.base.as_fd());
    }

    fn warning(&mut self) -> Option<String> {
        self.lacks.warning()
    }

    fn identity(&mut self, file: &LockedFile) -> io::Result<Identity> {
        let stat = fstat(file)?;
        let numbering = self.numberings.learn(stat.st_dev, file);
        Ok(Identity { device: stat.st_dev, inode: numbering.number(&stat) })
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
            // Whatever it has against holes: if zeros cannot be written either, that says why.
            Err(_) => file.write_all_at(&vec![0; len as usize], offset),
        }
    }

    fn set_len(&mut self, file: &LockedFile, len: u64) -> io::Result<()> {
        match ftruncate(file, len) {
            Err(error) if is_refusal(error) => match len.cmp(&(fstat(file)?.st_size as u64)) {
                // One byte at the end makes a file as long.
                Ordering::Greater => file.write_all_at(&[0], len - 1),
                Ordering::Equal => Ok(()),
                Ordering::Less => Err(error.into()),
            },
            done => Ok(done?),
        }
    }

    /// The advice that these pages are not needed starts their writing; pages on their way to
    /// the disk stay in memory.
    fn start_writing(&mut self, file: &LockedFile, offset: u64, len: u64) {
        if let Err(error) = fadvise(file, offset, len.try_into().ok(), Advice::DontNeed) {
            tracing::trace!(%error, "the file system takes no advice");
        }
    }

    fn dress(&mut self, file: &LockedFile, mode: Mode, mtime: Mtime) -> io::Result<()> {
        let bits = mode.bits() & !umask();
        let changed = fchmod(file, rustix::fs::Mode::from_raw_mode(bits));
        self.excuse(Ability::Modes, changed)?;
        self.excuse(Ability::Times, futimens(file, &times(mtime)))?;
        // Some file systems agree to everything and keep nothing.
        let stat = fstat(file)?;
        if stat.st_mode & PERMISSIONS != bits & PERMISSIONS {
            self.lacks.note(Ability::Modes);
        }
        if stat.st_mtime.abs_diff(mtime.secs()) > COARSEST_S {
            let lack = if self.keeps_times(file)? { Ability::AllTimes } else { Ability::Times };
            self.lacks.note(lack);
            self.excuse(Ability::Times, futimens(file, &times(mtime)))?;
        }
        Ok(())
    }

    fn sync(&mut self, file: &LockedFile) -> io::Result<()> {
        self.excuse(Ability::Syncing, fsync(file))
    }

    fn make_dir(&mut self, path: &str) -> io::Result<MadeDir> {
        let made = self.permitted(path, |disk| {
            let (holder, name) = disk.holder(path)?;
            mkdirat(holder, name, rustix::fs::Mode::from_raw_mode(0o700))
        });
        match made {
            Ok(()) => Ok(MadeDir::New),
            Err(Errno::EXIST) => {
                let (holder, name) = self.holder(path)?;
                let stat = statat(holder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => Ok(MadeDir::There),
                    _ => Err(io::ErrorKind::NotADirectory.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn set_dir_attributes(
        &mut self,
        path: &str,
        mode: Option<Mode>,
        mtime: Mtime,
    ) -> io::Result<()> {
        let dated = self.permitted(path, |disk| {
            let times = times(mtime);
            if path.is_empty() {
                return futimens(&disk.base, &times);
            }
            let (holder, name) = disk.holder(path)?;
            utimensat(holder, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        });
        if mode.is_none() && matches!(dated, Err(Errno::PERM | Errno::ACCESS)) {
            // The directory may be somebody else's, which says nothing about the file system.
            return Ok(dated?);
        }
        self.excuse(Ability::Times, dated)?;
        if let Some(mode) = mode {
            let changed = lent::set_mode(self.base.as_fd(), path, mode.bits() & !umask());
            self.excuse(Ability::Modes, changed)?;
            self.lent.forget(path);
        }
        Ok(())
    }

    fn is_linked(&mut self) -> bool {
        fstat(&self.base).map_or(true, |stat| stat.st_nlink > 0)
    }

    fn count_names(&mut self, suffix: &str) -> io::Result<usize> {
        let names = Dir::read_from(&self.base)?.take(NAMES_SEEN).filter_map(Result::ok);
        Ok(names.filter(|name| name.file_name().to_bytes().ends_with(suffix.as_bytes())).count())
    }

    fn names(&mut self, suffix: &str) -> io::Result<Vec<String>> {
        let names = Dir::read_from(&self.base)?.take(NAMES_SEEN).filter_map(Result::ok);
        let text = names.filter_map(|name| name.file_name().to_str().ok().map(str::to_owned));
        Ok(text.filter(|name| name.ends_with(suffix)).collect())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (_, to_name) = walk::split(to);
        assert_eq!(walk::split(from).0, walk::split(to).0, "files keep their directory");
        let renamed = self.permitted(from, |disk| {
            let (holder, from_name) = disk.holder(from)?;
            match renameat(holder, from_name, holder, to_name) {
                Err(error) if is_refusal(error) || error == Errno::EXIST => {
                    rename_otherwise(holder.as_fd(), from_name, to_name).map_err(|_| error)
                }
                done => done,
            }
        });
        Ok(renamed?)
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        Ok(self.permitted(path, |disk| {
            let (holder, name) = disk.holder(path)?;
            unlinkat(holder, name, AtFlags::empty())
        })?)
    }

    fn sync_dir(&mut self, path: &str) -> io::Result<()> {
        // Lent to as if something beneath it were opened.
        let inside = if path.is_empty() { String::new() } else { format!("{path}/.") };
        let opened = self.permitted(&inside, |disk| walk::dir_for_reading(disk.base.as_fd(), path));
        let synced = match opened {
            Ok(dir) => fsync(dir),
            Err(Errno::ACCESS) => self.sync_around(path),
            Err(error) => Err(error),
        };
        self.excuse(Ability::Syncing, synced)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        Ok(sync_file_system(self.base.as_fd())?)
    }
}

/// Waits until everything on the file system of an open file survives a loss of power.
pub(crate) fn sync_file_system(of: BorrowedFd<'_>) -> Result<(), Errno> {
    match syncfs(of) {
        Err(error) if is_refusal(error) => {
            // All file systems of the host: more than is needed, and no error to read.
            rustix::fs::sync();
            Ok(())
        }
        done => done,
    }
}

/// The bits that this process takes from the mode of everything it makes. Asking for them means
/// setting them; for that moment all are taken.
pub(crate) fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777));
        rustix::process::umask(mask);
        mask.as_raw_mode() & 0o777
    })
}

fn found(stat: &Stat, numbering: Numbering) -> Found {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FoundKind::File,
        FileType::Directory => FoundKind::Dir,
        FileType::Symlink => FoundKind::Link,
        _ => FoundKind::Special,
    };
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0).min(999_999_999);
    let mtime = Mtime::new(stat.st_mtime, nanos).expect("nanoseconds were cut to a second");
    let identity = Identity { device: stat.st_dev, inode: numbering.number(stat) };
    Found { kind, identity, size: stat.st_size as u64, mtime }
}

/// Both times: file systems built on version 2 of libfuse ignore a change of one alone.
fn times(mtime: Mtime) -> Timestamps {
    let mtime = Timespec { tv_sec: mtime.secs(), tv_nsec: mtime.nanos().into() };
    let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    Timestamps { last_access, last_modification: mtime }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn a_disk_that_is_dropped_gives_back_what_it_lent() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        let mode = || std::fs::metadata(&closed).unwrap().permissions().mode() & 0o777;
        std::fs::create_dir(&closed).unwrap();
        std::fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
        let mut disk = OsDisk::beneath(dir.path()).unwrap();
        disk.may_lend("closed");
        assert!(disk.lent.lend(disk.base.as_fd(), disk.user, "closed/file"));
        assert_eq!(mode(), 0o755);
        drop(disk);
        assert_eq!(mode(), 0o555);
    }
}
