//! What a host offers: a directory or a file, and the listing of any object in it.
//!
//! Everything is reached beneath one handle, and no symbolic link is followed below it: links,
//! special files, unreadable files and names that cannot travel are skipped and said so. Only the
//! exported path itself may be a link; naming it was the operator's choice.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, Dir, FileType, OFlags, Stat, accessat, fstat, statat};
use rustix::io::Errno;

use crate::abilities::is_refusal;
use crate::manifest::{
    Attributes, Entry, Kind, MAX_ENTRIES, Manifest, ManifestError, Mode, Mtime, RootKind,
};
use crate::name::{NameError, RelPath, escaped};
use crate::source::SourceError;
use crate::walk;

/// The most skipped names that a scan remembers; more are only counted.
pub const MAX_SKIPPED: usize = 1_000;

/// A directory or a single file that this host offers.
#[derive(Debug)]
pub struct Export {
    base: OwnedFd,
    /// The only file beneath `base` that is offered; `None` offers all.
    only: Option<RelPath>,
}

/// The listing of an object, with what is needed to read it.
#[derive(Debug)]
pub struct Scanned {
    /// The listing, valid and sorted.
    pub manifest: Arc<Manifest>,
    /// What is there but not in the listing; the first [`MAX_SKIPPED`].
    pub skipped: Vec<Skipped>,
    /// How much was skipped in all.
    pub skipped_total: u64,
    pub(crate) base: OwnedFd,
    pub(crate) stamps: Vec<Stamp>,
}

/// Something that was not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path in the object, escaped for display.
    pub path: String,
    /// Why.
    pub why: SkipReason,
}

/// Why something was not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// Links are not followed.
    #[error("is a symbolic link")]
    Link,
    /// A device, pipe or socket.
    #[error("is neither a regular file nor a directory")]
    Special,
    /// Its name cannot travel.
    #[error("{0}")]
    Name(#[from] NameError),
    /// This process may not read it.
    #[error("permission denied")]
    Denied,
    /// It went away while being listed, or could not be looked at.
    #[error("could not be read")]
    Unreadable,
}

/// The identity and state of a file: as long as all of it stays, so does the content. Times come
/// from the file system, whose clock may tick only every few milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    mtime: (i64, u64),
    ctime: (i64, u64),
}

impl Stamp {
    /// Whether a file that was `listed` so may still have the same content up to the listed length:
    /// it is the same one, and has only become longer or got another mode or name.
    pub(crate) fn may_continue(&self, listed: &Stamp) -> bool {
        let same = (self.device, self.inode) == (listed.device, listed.inode);
        let kept = self.size == listed.size && self.mtime == listed.mtime;
        same && (kept || self.size > listed.size)
    }

    /// Whether the file was written since it was `listed` so.
    pub(crate) fn was_written(&self, listed: &Stamp) -> bool {
        (self.size, self.mtime) != (listed.size, listed.mtime)
    }

    pub(crate) fn of(stat: &Stat) -> Stamp {
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// When content or inode changed last, in seconds of the wall clock.
    pub(crate) fn changed(&self) -> i64 {
        self.mtime.0.max(self.ctime.0)
    }

    /// One that differs by this alone.
    #[cfg(test)]
    pub(crate) fn of_size(size: u64) -> Stamp {
        Stamp { device: 1, inode: 1, size, mtime: (0, 0), ctime: (0, 0) }
    }
}

impl Export {
    /// Offers a directory with all beneath it, or one file.
    ///
    /// # Errors
    /// When it does not exist, may not be opened, is neither, or (for a file) has a name that
    /// cannot travel.
    pub fn open(path: &Path) -> Result<Export, SourceError> {
        let shown = escaped(&path.to_string_lossy());
        let real = path.canonicalize().map_err(|e| read_error(&shown, e))?;
        let kind = std::fs::metadata(&real).map_err(|e| read_error(&shown, e))?.file_type();
        let open = |dir: &Path| -> Result<OwnedFd, SourceError> {
            std::fs::File::open(dir).map(OwnedFd::from).map_err(|e| read_error(&shown, e))
        };
        if kind.is_dir() {
            return Ok(Export { base: open(&real)?, only: None });
        }
        if !kind.is_file() {
            return Err(SourceError::Special { path: shown });
        }
        let name = real.file_name().unwrap_or(OsStr::new("")).as_bytes();
        let only = RelPath::from_bytes(name).map_err(|why| {
            read_error(&shown, std::io::Error::new(std::io::ErrorKind::InvalidInput, why))
        })?;
        Ok(Export { base: open(real.parent().unwrap_or(Path::new("/")))?, only: Some(only) })
    }

    /// Whether a directory or one file is offered.
    pub fn kind(&self) -> RootKind {
        if self.only.is_some() { RootKind::File } else { RootKind::Dir }
    }

    /// The listing of the object at `at`, everything beneath it included; `None` is all that is
    /// offered. Takes time and memory in proportion to the entries, and reads no content.
    ///
    /// # Errors
    /// [`SourceError::Missing`] also when a component of `at` is a link;
    /// [`SourceError::Listing`] past [`MAX_ENTRIES`].
    pub fn scan(&self, at: Option<&RelPath>) -> Result<Scanned, SourceError> {
        self.scan_within(at, &mut |_| true)
    }

    /// As [`Export::scan`] within a budget: `room` is told the length of each path before its entry
    /// is kept, and 0 for each name that is skipped; when it says no the listing ends.
    ///
    /// # Errors
    /// As there; [`SourceError::NoRoom`] when the budget is used up.
    pub fn scan_within(
        &self,
        at: Option<&RelPath>,
        room: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Scanned, SourceError> {
        self.look(at, Depth::All, room)
    }

    /// The entries of the directory at `at` and not what is beneath them; for a file, itself.
    ///
    /// # Errors
    /// As [`Export::scan`].
    pub fn list(&self, at: Option<&RelPath>) -> Result<Scanned, SourceError> {
        self.list_within(at, &mut |_| true)
    }

    /// As [`Export::list`] within a budget, as [`Export::scan_within`].
    ///
    /// # Errors
    /// As there.
    pub fn list_within(
        &self,
        at: Option<&RelPath>,
        room: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Scanned, SourceError> {
        self.look(at, Depth::One, room)
    }

    fn look(
        &self,
        at: Option<&RelPath>,
        depth: Depth,
        room: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Scanned, SourceError> {
        let at = match (&self.only, at) {
            (None, None) => return scan_dir(&self.base, "", depth, room),
            (Some(only), None) => only,
            (None, Some(at)) => at,
            (Some(only), Some(at)) if at == only => only,
            (Some(_), Some(at)) => return Err(SourceError::Missing { path: at.to_string() }),
        };
        let shown = at.to_string();
        let (parent, name) = walk::split(at.as_str());
        let holder = walk::dir_handle(self.base.as_fd(), parent);
        let holder = holder.map_err(|e| beneath_error(&shown, e))?;
        let stat = statat(&holder, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|e| beneath_error(&shown, e))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => scan_dir(&self.base, at.as_str(), depth, room),
            FileType::RegularFile => scan_file(holder, name, &stat),
            FileType::Symlink => Err(SourceError::Missing { path: shown }),
            _ => Err(SourceError::Special { path: shown }),
        }
    }
}

/// How far a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// The directory itself.
    One,
    /// Everything beneath it.
    All,
}

fn scan_file(holder: OwnedFd, name: &str, stat: &Stat) -> Result<Scanned, SourceError> {
    let path = RelPath::new(name).map_err(|_| SourceError::Missing { path: escaped(name) })?;
    may_read(&holder, name.as_bytes()).map_err(|e| beneath_error(&escaped(name), e))?;
    let entries = vec![entry(path, Kind::File, stat)];
    let manifest = Manifest { root_kind: RootKind::File, own: None, entries };
    manifest.validate()?;
    Ok(Scanned {
        manifest: Arc::new(manifest),
        skipped: Vec::new(),
        skipped_total: 0,
        base: holder,
        stamps: vec![Stamp::of(stat)],
    })
}

fn scan_dir(
    base: &OwnedFd,
    at: &str,
    depth: Depth,
    room: &mut dyn FnMut(usize) -> bool,
) -> Result<Scanned, SourceError> {
    let base = walk::dir_for_reading(base.as_fd(), at).map_err(|e| beneath_error(at, e))?;
    let own = attributes(&fstat(&base).map_err(|e| beneath_error(at, e))?);
    let mut scan =
        Scan { base: &base, room, found: Vec::new(), skipped: Vec::new(), skipped_total: 0 };
    let mut left: Vec<Option<RelPath>> = vec![None];
    while let Some(dir) = left.pop() {
        let subdirs = scan.directory(dir.as_ref())?;
        if depth == Depth::All {
            left.extend(subdirs.into_iter().map(Some));
        }
    }
    let Scan { mut found, skipped, skipped_total, .. } = scan;
    found.sort_unstable_by(|(a, _), (b, _)| a.path.cmp(&b.path));
    let (entries, stamps) = found.into_iter().unzip();
    let manifest = Manifest { root_kind: RootKind::Dir, own: Some(own), entries };
    manifest.validate()?;
    Ok(Scanned { manifest: Arc::new(manifest), skipped, skipped_total, base, stamps })
}

/// A listing under way.
struct Scan<'a> {
    base: &'a OwnedFd,
    room: &'a mut dyn FnMut(usize) -> bool,
    found: Vec<(Entry, Stamp)>,
    skipped: Vec<Skipped>,
    skipped_total: u64,
}

impl Scan<'_> {
    /// Lists one directory; returns the directories in it.
    fn directory(&mut self, dir: Option<&RelPath>) -> Result<Vec<RelPath>, SourceError> {
        let at = dir.map_or("", RelPath::as_str);
        let mut subdirs = Vec::new();
        let opened = walk::dir_for_reading(self.base.as_fd(), at);
        let reader = opened.and_then(|fd| Ok((Dir::read_from(&fd)?, fd)));
        let (reader, fd) = match (reader, dir) {
            (Ok(both), _) => both,
            (Err(error), None) => return Err(beneath_error(".", error)),
            (Err(error), Some(_)) => {
                self.skip(at.as_bytes(), unreadable(error));
                return Ok(subdirs);
            }
        };
        for item in reader {
            let Ok(item) = item else {
                self.skip(at.as_bytes(), SkipReason::Unreadable);
                break;
            };
            let name = item.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if let Some(subdir) = self.one(&fd, at, name)? {
                subdirs.push(subdir);
            }
        }
        Ok(subdirs)
    }

    /// Lists one name; returns it if it is a directory.
    fn one(&mut self, fd: &OwnedFd, at: &str, name: &[u8]) -> Result<Option<RelPath>, SourceError> {
        let full = if at.is_empty() { name.to_vec() } else { [at.as_bytes(), b"/", name].concat() };
        let path = match RelPath::from_bytes(&full) {
            Ok(path) => path,
            Err(why) => return self.pass(&full, SkipReason::Name(why)),
        };
        let stat = match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => return self.pass(&full, unreadable(error)),
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => return self.pass(&full, SkipReason::Link),
            _ => return self.pass(&full, SkipReason::Special),
        };
        if kind == Kind::File
            && let Err(error) = may_read(fd, name)
        {
            return self.pass(&full, unreadable(error));
        }
        if self.found.len() == MAX_ENTRIES {
            return Err(ManifestError::TooMany(MAX_ENTRIES + 1).into());
        }
        if !(self.room)(full.len()) {
            return Err(SourceError::NoRoom);
        }
        self.found.push((entry(path.clone(), kind, &stat), Stamp::of(&stat)));
        Ok((kind == Kind::Dir).then_some(path))
    }

    /// Passes over a name; fails when the caller wants no more.
    fn pass(&mut self, path: &[u8], why: SkipReason) -> Result<Option<RelPath>, SourceError> {
        self.skip(path, why);
        if (self.room)(0) { Ok(None) } else { Err(SourceError::NoRoom) }
    }

    fn skip(&mut self, path: &[u8], why: SkipReason) {
        self.skipped_total += 1;
        if self.skipped.len() < MAX_SKIPPED {
            let path = escaped(&String::from_utf8_lossy(path));
            tracing::debug!(%path, %why, "skipped");
            self.skipped.push(Skipped { path, why });
        }
    }
}

fn entry(path: RelPath, kind: Kind, stat: &Stat) -> Entry {
    let size = match kind {
        Kind::File => stat.st_size as u64,
        Kind::Dir => 0,
    };
    let Attributes { mode, mtime } = attributes(stat);
    Entry { path, kind, size, mode, mtime }
}

fn attributes(stat: &Stat) -> Attributes {
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let whole = Mtime::new(stat.st_mtime, 0).expect("zero nanoseconds are below a second");
    let mtime = Mtime::new(stat.st_mtime, nanos).unwrap_or(whole);
    Attributes { mode: Mode::new(stat.st_mode), mtime }
}

/// Whether this process may read a file. Where the system does not say, opening the file tells.
fn may_read(holder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match accessat(holder, name, Access::READ_OK, AtFlags::empty()) {
        // Some sandboxes refuse the question in these words; opening the file is a true answer.
        Err(error) if is_refusal(error) => {
            walk::open_bytes(holder.as_fd(), name, OFlags::RDONLY).map(drop)
        }
        answered => answered,
    }
}

fn unreadable(error: Errno) -> SkipReason {
    if error == Errno::ACCESS || error == Errno::PERM {
        SkipReason::Denied
    } else {
        SkipReason::Unreadable
    }
}

/// An error of an access beneath the handle: a link on the way looks like nothing is there.
pub(crate) fn beneath_error(path: &str, error: Errno) -> SourceError {
    match error {
        Errno::LOOP | Errno::NOTDIR => SourceError::Missing { path: escaped(path) },
        other => read_error(path, other.into()),
    }
}

fn read_error(path: &str, error: std::io::Error) -> SourceError {
    let path = path.to_owned();
    match error.kind() {
        std::io::ErrorKind::NotFound => SourceError::Missing { path },
        std::io::ErrorKind::PermissionDenied => SourceError::Denied { path },
        _ => SourceError::Read { path, source: error },
    }
}
