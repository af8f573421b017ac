//! A tree beneath an open directory, and how its names are changed.
//!
//! Each step walks from the tree's directory component by component and follows no link. Something
//! is removed only if it is still what was seen, so a decision that is out of date does no harm.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps,
    XattrFlags, chmodat, chownat, fallocate, fchmod, flock, fstat, futimens, linkat, mkdirat,
    renameat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::deed::{Deed, Dress, SMALL_MAX, Seen, patch_hash};
use super::node::{ACL_NAMES, TARGET_MAX, Xattr, may_carry};
use super::steps::{Spare, Stood};
use super::survey::{by_handle, words, xattrs};
use crate::export::attributes;
use crate::hash::{Value, block_value};
use crate::manifest::Mtime;
use crate::name::{RelPath, escaped};
use crate::row::{BLOCK, blocks_in, content_of};
use crate::walk;

/// A tree beneath an open directory. It need not exist yet.
#[derive(Debug)]
pub struct Replica {
    pub(super) holder: OwnedFd,
    /// Its path beneath the holder; `None` is the holder itself.
    pub(super) at: Option<RelPath>,
    /// Where old versions are kept that are to be kept outside the tree.
    pub(super) place: Option<Arc<Replica>>,
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The name that it concerns, escaped for display.
    pub path: String,
    /// Why, for people.
    pub why: String,
}

/// What came of a step that did not fail.
pub(super) enum Done {
    /// It is done.
    All,
    /// An old version is kept, and lacks this.
    But(Vec<&'static str>),
    /// A file is written and is to get its name.
    Written(Spare),
}

impl Replica {
    /// The tree at `at` beneath a directory. Links in `holder` itself are followed: its user named
    /// it.
    ///
    /// # Errors
    /// What opening the directory says.
    pub fn beneath(holder: &Path, at: Option<RelPath>) -> std::io::Result<Replica> {
        Replica::beneath_open(OwnedFd::from(std::fs::File::open(holder)?), at)
    }

    /// The same beneath a directory that is open already.
    ///
    /// # Errors
    /// `NotADirectory` if it is none.
    pub fn beneath_open(holder: OwnedFd, at: Option<RelPath>) -> std::io::Result<Replica> {
        if FileType::from_raw_mode(fstat(&holder)?.st_mode) != FileType::Directory {
            return Err(std::io::ErrorKind::NotADirectory.into());
        }
        Ok(Replica { holder, at, place: None })
    }

    /// The tree at an absolute path, which need not be there, nor the directories above it. Links
    /// in what is there of the path are followed.
    ///
    /// # Errors
    /// What opening says, and `InvalidInput` if a name that is not there cannot be made.
    pub fn at(path: &Path) -> std::io::Result<Replica> {
        let bad = |why: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
        let holder = path.ancestors().find(|part| part.is_dir()).unwrap_or(Path::new("/"));
        let rest = path.strip_prefix(holder).ok().and_then(Path::to_str);
        let rest = rest.ok_or_else(|| bad("the name is not UTF-8".into()))?;
        let at = (!rest.is_empty()).then(|| RelPath::new(rest)).transpose();
        Replica::beneath(holder, at.map_err(|why| bad(why.to_string()))?)
    }

    /// As [`Replica::at`], but no link in the path is followed, neither now nor later: for a path
    /// that was judged, and where somebody may put a link meanwhile. What is there of the path is
    /// opened now, and is the same directory from then on, whatever becomes of its name.
    ///
    /// # Errors
    /// What opening says, and `InvalidInput` for a path that is not absolute, has `..` in it, or
    /// cannot be made.
    pub fn at_judged(path: &Path) -> std::io::Result<Replica> {
        let bad = |why: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
        let from_root = path.strip_prefix("/").map_err(|why| bad(why.to_string()))?;
        let mut dir = OwnedFd::from(std::fs::File::open("/")?);
        let mut rest = from_root.components();
        while let Some(component) = rest.clone().next() {
            let Component::Normal(name) = component else {
                return Err(bad("the path has `..` in it".into()));
            };
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            match walk::open_bytes(dir.as_fd(), name.as_bytes(), flags) {
                Ok(next) => dir = next,
                // Nothing, a file, or a link: what comes from here on is made, or fails there.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => break,
                Err(error) => return Err(error.into()),
            }
            rest.next();
        }
        let rest = rest.as_path().to_str().ok_or_else(|| bad("the name is not UTF-8".into()))?;
        let at = (!rest.is_empty()).then(|| RelPath::new(rest)).transpose();
        let at = at.map_err(|why| bad(why.to_string()))?;
        Ok(Replica { holder: walk::dir_for_reading(dir.as_fd(), "")?, at, place: None })
    }

    /// Old versions that are to be kept outside this tree are kept in that one.
    pub fn keeping_in(self, place: impl Into<Arc<Replica>>) -> Replica {
        Replica { place: Some(place.into()), ..self }
    }

    /// Whether what is made here can be given to any owner.
    pub fn may_own() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// The tree's own directory, opened for reading; `None` if it is not there.
    ///
    /// # Errors
    /// What opening it says; `LOOP` or `NOTDIR` where something else is there.
    pub fn open_root(&self) -> Result<Option<OwnedFd>, Errno> {
        let at = self.at.as_ref().map_or("", RelPath::as_str);
        match walk::dir_for_reading(self.holder.as_fd(), at) {
            Ok(root) => Ok(Some(root)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether it was opened beneath this very directory.
    pub fn is_beneath(&self, dir: impl AsFd) -> bool {
        let place = |dir: BorrowedFd<'_>| fstat(dir).map(|stat| (stat.st_dev, stat.st_ino));
        place(self.holder.as_fd()).is_ok_and(|own| place(dir.as_fd()) == Ok(own))
    }

    /// Carries out one step. A file that it writes has its name only once it is placed.
    pub(super) fn carry_out(&self, deed: &Deed) -> Result<Done, String> {
        if let Deed::MakeDir { path: None } = deed {
            return self.make_root().map(|()| Done::All).map_err(words);
        }
        if let Deed::Keep { path, to, how } = deed {
            let place = self.place.as_deref().ok_or(NO_PLACE)?;
            return self.try_keep(path, place, to, *how).map(Done::But);
        }
        let root = self.open_root().map_err(words)?.ok_or("the tree is not there")?;
        if let Deed::Write { path, content, mode, mtime } = deed {
            return write(&root, path, None, content, (*mode, *mtime)).map(Done::Written);
        }
        if let Deed::Patch { path, seen, patch, size, hash, mode, mtime } = deed {
            let old = self.read_seen(path, *seen).ok_or(CHANGED)?;
            let new = patch.apply(&old, *size).filter(|new| patch_hash(new) == *hash);
            let new = new.ok_or(CHANGED)?;
            return write(&root, path, Some(*seen), &new, (*mode, *mtime)).map(Done::Written);
        }
        change(&root, deed).map(|()| Done::All)
    }

    /// Makes the tree's directory and at most those directly above it.
    pub(super) fn make_root(&self) -> Result<(), Errno> {
        let Some(at) = &self.at else { return Ok(()) };
        let mut path = String::new();
        for component in at.components() {
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(component);
            make_dir_with(&self.holder, &path, 0o777)?;
        }
        Ok(())
    }

    /// Reads a file of [`SMALL_MAX`] bytes at most that is what was seen, before and after it is
    /// read; `None` if that cannot be. Blocks.
    pub fn read_seen(&self, path: &RelPath, seen: Seen) -> Option<Vec<u8>> {
        let Seen::File { size, .. } = seen else { return None };
        let root = self.open_root().ok()??;
        let file = walk::open(root.as_fd(), path.as_str(), OFlags::RDONLY, Mode::empty()).ok()?;
        let is_same = |file: &std::fs::File| {
            let stat = fstat(file).ok()?;
            (seen_at(&stat) == Some(seen)).then_some(())
        };
        let file = std::fs::File::from(file);
        is_same(&file)?;
        let mut content = Vec::new();
        (&file).take(SMALL_MAX as u64 + 1).read_to_end(&mut content).ok()?;
        is_same(&file)?;
        (content.len() as u64 == size && content.len() <= SMALL_MAX).then_some(content)
    }

    /// The values of at most `most` blocks of a file that is there, from block `first` on, for a
    /// file of `size` bytes in its place; fewer where it is shorter. Blocks.
    ///
    /// # Errors
    /// A [`Fault`] if it cannot be read.
    pub fn block_values(
        &self,
        path: &RelPath,
        size: u64,
        first: u64,
        most: usize,
    ) -> Result<Vec<Value>, Fault> {
        let fault = |error: Errno| Fault { path: path.to_string(), why: words(error) };
        let root = self.open_root().map_err(fault)?.ok_or(Errno::NOENT).map_err(fault)?;
        let file = walk::open(root.as_fd(), path.as_str(), OFlags::RDONLY, Mode::empty());
        let file = std::fs::File::from(file.map_err(fault)?);
        let mut values = Vec::new();
        let mut buffer = Vec::new();
        for block in (first..blocks_in(size)).take(most) {
            buffer.resize(content_of(size, block) as usize, 0);
            let read = std::os::unix::fs::FileExt::read_exact_at(&file, &mut buffer, block * BLOCK);
            if read.is_err() {
                break;
            }
            values.push(block_value(size, block, &buffer));
        }
        Ok(values)
    }
}

/// Makes the directories above a path.
pub(super) fn make_holders(root: &OwnedFd, path: &RelPath) -> Result<(), Errno> {
    let mut made = String::new();
    let (parent, _) = walk::split(path.as_str());
    for component in parent.split('/').filter(|component| !component.is_empty()) {
        if !made.is_empty() {
            made.push('/');
        }
        made.push_str(component);
        make_dir(root, &made)?;
    }
    Ok(())
}

fn make_dir(root: &OwnedFd, path: &str) -> Result<(), Errno> {
    make_dir_with(root, path, 0o700)
}

fn make_dir_with(root: &OwnedFd, path: &str, mode: u32) -> Result<(), Errno> {
    let (parent, name) = walk::split(path);
    let holder = walk::dir_handle(root.as_fd(), parent)?;
    match mkdirat(&holder, name, Mode::from_raw_mode(mode)) {
        // Something else there stops the walk.
        Err(Errno::EXIST) => walk::dir_handle(holder.as_fd(), name).map(drop),
        made => made,
    }
}

/// Opens the directory that holds a path; with the last component.
pub(super) fn holder<'p>(root: &OwnedFd, path: &'p RelPath) -> Result<(OwnedFd, &'p str), Errno> {
    let (parent, name) = walk::split(path.as_str());
    Ok((walk::dir_handle(root.as_fd(), parent)?, name))
}

/// Whether there is still what was seen.
fn check(dir: &OwnedFd, name: &str, seen: Seen) -> Result<(), String> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(words)?;
    match seen_at(&stat) == Some(seen) {
        true => Ok(()),
        false => Err(CHANGED.into()),
    }
}

/// What is there now, as a survey sees it; `None` for what is never removed.
fn seen_at(stat: &Stat) -> Option<Seen> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            Some(Seen::File { size: stat.st_size as u64, mtime: attributes(stat).mtime })
        }
        FileType::Directory => Some(Seen::Dir),
        FileType::Symlink => Some(Seen::Link),
        _ => None,
    }
}

fn remove(root: &OwnedFd, path: &RelPath, seen: Seen) -> Result<(), String> {
    let (dir, name) = match holder(root, path) {
        Err(Errno::NOENT) => return Ok(()),
        found => found.map_err(words)?,
    };
    if let Err(Errno::NOENT) = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        return Ok(());
    }
    check(&dir, name, seen)?;
    let how = if seen == Seen::Dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(&dir, name, how).map_err(words)
}

/// What is not there has been moved before.
fn move_away(root: &OwnedFd, path: &RelPath, seen: Seen, to: &RelPath) -> Result<(), String> {
    let (dir, name) = match holder(root, path) {
        Err(Errno::NOENT) => return Ok(()),
        found => found.map_err(words)?,
    };
    let about = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        found => found.map_err(words)?,
    };
    check(&dir, name, seen)?;
    make_holders(root, to).map_err(words)?;
    let (there, new) = holder(root, to).map_err(words)?;
    // To give a file a name that it already has changes nothing, so the old name is removed. Names
    // that differ only in case may be one name of one file.
    let is_further_name = about.st_nlink > 1
        && path != to
        && statat(&there, new, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|old| (old.st_dev, old.st_ino) == (about.st_dev, about.st_ino));
    if is_further_name {
        return unlinkat(&dir, name, AtFlags::empty()).map_err(words);
    }
    renameat(&dir, name, &there, new).map_err(words)
}

fn link(root: &OwnedFd, path: &RelPath, target: &[u8]) -> Result<(), String> {
    if !(1..=TARGET_MAX).contains(&target.len()) || target.contains(&0) {
        return Err("the link's target is empty, too long, or no path".into());
    }
    let (dir, name) = holder(root, path).map_err(words)?;
    symlinkat(target, &dir, name).map_err(words)
}

/// Makes the link under another name first, so that the file that is there stays if that fails.
fn hard_link(root: &OwnedFd, path: &RelPath, to: &RelPath) -> Result<(), String> {
    let (from_dir, from) = holder(root, to).map_err(words)?;
    let (dir, name) = holder(root, path).map_err(words)?;
    let about = |dir: &OwnedFd, name: &str| {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(words)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((stat.st_dev, stat.st_ino)),
            _ => Err(format!("{} is no file", escaped(name))),
        }
    };
    let linked = about(&from_dir, from)?;
    match linkat(&from_dir, from, &dir, name, AtFlags::empty()) {
        Err(Errno::EXIST) => {}
        made => return made.map_err(words),
    }
    if about(&dir, name)? == linked {
        return Ok(());
    }
    let spare = crate::name::beside(name, crate::name::PART_SUFFIX);
    clear_spare(&dir, &spare)?;
    linkat(&from_dir, from, &dir, &*spare, AtFlags::empty()).map_err(words)?;
    renameat(&dir, &*spare, &dir, name).map_err(words)
}

/// Carries out a step that writes no file.
fn change(root: &OwnedFd, deed: &Deed) -> Result<(), String> {
    match deed {
        Deed::MakeDir { path: None }
        | Deed::Write { .. }
        | Deed::Patch { .. }
        | Deed::Keep { .. } => Ok(()),
        Deed::MakeDir { path: Some(path) } => make_dir(root, path.as_str()).map_err(words),
        Deed::Remove { path, seen } => remove(root, path, *seen),
        Deed::Move { path, seen, to } => move_away(root, path, *seen, to),
        Deed::Link { path, target } => link(root, path, target),
        Deed::HardLink { path, to } => hard_link(root, path, to),
        Deed::Dig { path } => dig(root, path).map_err(words),
        Deed::Dress(dress) => set(root, dress),
    }
}

/// Writes a file under another name, so that what is there stays if that fails, or if it is not
/// what was `seen`.
fn write(
    root: &OwnedFd,
    path: &RelPath,
    seen: Option<Seen>,
    content: &[u8],
    (mode, mtime): (u32, Mtime),
) -> Result<Spare, String> {
    if content.len() > SMALL_MAX {
        return Err("the file is too long for a step".into());
    }
    let (dir, name) = holder(root, path).map_err(words)?;
    let stood = standing_file(&dir, name)?;
    if seen.is_some() && stood.as_ref().and_then(seen_at) != seen {
        return Err(CHANGED.into());
    }
    let stood = stood.as_ref().map(Stood::of);
    let spare = crate::name::beside(name, crate::name::PART_SUFFIX);
    clear_spare(&dir, &spare)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = walk::open(dir.as_fd(), &spare, flags, Mode::from_raw_mode(0o600)).map_err(words)?;
    let written = Spare { dir, spare, name: name.to_owned(), stood, file, is_placed: false };
    lock(&written.file)?;
    let mut file = std::fs::File::from(written.file.try_clone().map_err(other)?);
    file.write_all(content).map_err(other)?;
    fchmod(&file, Mode::from_raw_mode(mode & 0o777)).map_err(words)?;
    futimens(&file, &times(mtime)).map_err(words)?;
    Ok(written)
}

/// What stands at a name that a file is to get; `None` if nothing does.
fn standing_file(dir: &OwnedFd, name: &str) -> Result<Option<Stat>, String> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
            Err("something else than a file is there".into())
        }
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(words(error)),
    }
}

fn other(error: std::io::Error) -> String {
    error.to_string()
}

/// Removes what an earlier transfer or step of this user has left under a spare name.
///
/// # Errors
/// Why it stays, for people: it may be another user's, or a transfer may be at work on it.
pub(super) fn clear_spare(dir: &OwnedFd, spare: &str) -> Result<(), String> {
    let stat = match statat(dir, spare, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        found => found.map_err(words)?,
    };
    let foreign = || format!("{} is not a file of ours and is left alone", escaped(spare));
    match FileType::from_raw_mode(stat.st_mode) {
        _ if stat.st_uid != rustix::process::geteuid().as_raw() => return Err(foreign()),
        FileType::RegularFile => {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = walk::open(dir.as_fd(), spare, flags, Mode::empty());
            lock(&file.map_err(|_| foreign())?)?;
        }
        FileType::Symlink => {}
        _ => return Err(foreign()),
    }
    unlinkat(dir, spare, AtFlags::empty()).map_err(words)
}

/// Locks a file until it is closed, where files can be locked.
fn lock(file: &OwnedFd) -> Result<(), String> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err("another transfer writes this file".into()),
        // A file system without locks has none to respect.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Frees whole pages of zeros.
fn dig(root: &OwnedFd, path: &RelPath) -> Result<(), Errno> {
    let file = walk::open(root.as_fd(), path.as_str(), OFlags::RDWR, Mode::empty())?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let mut buffer = vec![0_u8; BLOCK as usize];
    let (mut at, size) = (0_u64, stat.st_size as u64);
    while at < size {
        let length = (size - at).min(BLOCK) as usize;
        let read = rustix::io::pread(&file, &mut buffer[..length], at)?;
        if read == 0 {
            break;
        }
        for (number, page) in buffer[..read].chunks(PAGE).enumerate() {
            if page.iter().all(|&b| b == 0) {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, how, at + (number * PAGE) as u64, page.len() as u64)?;
            }
        }
        at += read as u64;
    }
    Ok(())
}

/// Sets attributes; all that can be set is set, and the first failure is told.
fn set(root: &OwnedFd, dress: &Dress) -> Result<(), String> {
    let (dir, name) = match &dress.path {
        Some(path) => holder(root, path).map_err(words)?,
        None => (walk::dir_handle(root.as_fd(), "").map_err(words)?, "."),
    };
    let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(words)?;
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let mut failures = Vec::new();
    let mut note = |what: &str, done: Result<(), Errno>| {
        if let Err(error) = done {
            failures.push(format!("its {what}: {}", words(error)));
        }
    };
    if let Some((uid, gid)) = dress.owner {
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        note("owner", chownat(&dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW));
    }
    if !is_link {
        let opened = rustix::fs::openat(
            &dir,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let handle = opened.map_err(words)?;
        let path = by_handle(&handle);
        for wanted in [&dress.xattrs, &dress.acls].into_iter().flatten() {
            let of_acls = Some(wanted) == dress.acls.as_ref();
            note("extended attributes", set_xattrs(&path, wanted, of_acls));
        }
        if let Some(mode) = dress.mode {
            // After the lists, which change the bits of the group.
            let mode = Mode::from_raw_mode(mode & 0o777);
            note("mode", set_mode((&dir, name), &path, mode));
        }
    }
    if let Some(mtime) = dress.mtime {
        note("time", utimensat(&dir, name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// Sets the mode of what `path` is the kernel's name for; without `/proc` there are no such names,
/// and what has this name in the directory is opened for it.
fn set_mode((dir, name): (&OwnedFd, &str), path: &str, mode: Mode) -> Result<(), Errno> {
    match chmodat(rustix::fs::CWD, path, mode, AtFlags::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let opened = walk::open(dir.as_fd(), name, flags, Mode::empty())?;
            rustix::fs::fchmod(&opened, mode)
        }
        done => done,
    }
}

/// Makes the attributes of one kind those that are wanted.
fn set_xattrs(path: &str, wanted: &[Xattr], acls: bool) -> Result<(), Errno> {
    let of_kind = |name: &str| ACL_NAMES.contains(&name) == acls && may_carry(name);
    for (name, _) in xattrs(path) {
        if of_kind(&name) && !wanted.iter().any(|(other, _)| *other == name) {
            rustix::fs::removexattr(path, &*name)?;
        }
    }
    for (name, value) in wanted {
        if !of_kind(name) {
            return Err(Errno::PERM);
        }
        rustix::fs::setxattr(path, &**name, value, XattrFlags::empty())?;
    }
    Ok(())
}

pub(super) fn times(mtime: Mtime) -> Timestamps {
    let last_modification = Timespec { tv_sec: mtime.secs(), tv_nsec: mtime.nanos().into() };
    let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    Timestamps { last_access, last_modification }
}

/// Why an old version is not kept.
const NO_PLACE: &str = "old versions are kept in the tree alone here";

/// Why a step is not carried out at a name where something else is than was seen.
pub(super) const CHANGED: &str = "it has changed meanwhile and is kept";

/// The size in bytes of a piece that can be freed.
const PAGE: usize = 4_096;
