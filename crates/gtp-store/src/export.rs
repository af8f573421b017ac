//! What a host offers: a directory or a file, and the listing of any object in it.
//!
//! Everything is reached beneath one handle, and no symbolic link is followed below it: links,
//! special files, unreadable files and names that cannot travel are skipped and said so. Only the
//! exported path itself may be a link; naming it was the operator's choice.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Stat, statat};
use rustix::io::Errno;

use crate::dir_names::NamesHeld;
use crate::gathering::Gathering;
use crate::lister::{Depth, Lister};
use crate::manifest::{Attributes, Entry, Kind, Manifest, Mode, Mtime, RootKind};
use crate::name::{NameError, RelPath, escaped};
use crate::numbering::{Numbering, UNTOLD};
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
    /// What the listing of all that is offered has directly beneath `base`; everything if `None`.
    chosen: Option<Arc<Chosen>>,
}

/// Names directly beneath a directory.
pub type Chosen = BTreeSet<String>;

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
    /// It is as an earlier listing says; then it has no entries of its own.
    pub(crate) is_unchanged: bool,
}

/// Something that was not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path in the object, as the file system has it.
    pub path: Vec<u8>,
    /// Why.
    pub why: SkipReason,
}

impl Skipped {
    /// Its path, escaped for display.
    pub fn shown(&self) -> String {
        gtp_text::of_bytes(&self.path)
    }
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
/// from the file system, whose clock may tick only every few milliseconds, or every two seconds.
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

    /// The stamp of a file on a file system with this numbering.
    pub(crate) fn of(stat: &Stat, numbering: Numbering) -> Stamp {
        Stamp {
            device: stat.st_dev,
            inode: numbering.number(stat),
            size: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// The stamp of a file as it is now, to be compared with the one that was `listed`.
    pub(crate) fn beside(stat: &Stat, listed: &Stamp) -> Stamp {
        let numbering = if listed.names_a_file() { Numbering::Lasting } else { Numbering::Passing };
        Stamp::of(stat, numbering)
    }

    /// Whether no other file can have the same stamp.
    pub(crate) fn names_a_file(&self) -> bool {
        self.inode != UNTOLD
    }

    /// The device and the inode number of the file.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// When content or inode changed last, in seconds of the wall clock.
    pub(crate) fn changed(&self) -> i64 {
        self.mtime.0.max(self.ctime.0)
    }

    /// When content or inode changed last by the inode's own time, which nobody can set, in seconds
    /// of the wall clock.
    pub(crate) fn inode_changed(&self) -> i64 {
        self.ctime.0
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
            return Ok(Export { base: open(&real)?, only: None, chosen: None });
        }
        if !kind.is_file() {
            return Err(SourceError::Special { path: shown });
        }
        let name = real.file_name().unwrap_or(OsStr::new("")).as_bytes();
        let only = RelPath::from_bytes(name).map_err(|why| {
            read_error(&shown, std::io::Error::new(std::io::ErrorKind::InvalidInput, why))
        })?;
        let base = open(real.parent().unwrap_or(Path::new("/")))?;
        Ok(Export { base, only: Some(only), chosen: None })
    }

    /// Lists, of all that is offered, only what has these names, and what is beneath it. The
    /// listing is a bundle of objects then, and not the directory with a mode and a time.
    pub fn choosing(self, chosen: Arc<Chosen>) -> Export {
        Export { chosen: Some(chosen), ..self }
    }

    /// The directory beneath which all is offered, or the one that holds the file.
    pub fn holder(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// The same, owned.
    pub(crate) fn base(&self) -> &OwnedFd {
        &self.base
    }

    pub(crate) fn into_base(self) -> OwnedFd {
        self.base
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
    /// [`SourceError::Listing`] past [`MAX_ENTRIES`](crate::MAX_ENTRIES).
    pub fn scan(&self, at: Option<&RelPath>) -> Result<Scanned, SourceError> {
        let lister = self.lister(at, Depth::All, usize::MAX)?;
        Gathering::of(lister, None).run(&mut |_| true)
    }

    /// As [`Export::scan`] within a budget: `room` is told the length of each path before its entry
    /// or, for one that is left out, its name is kept, and 0 now and then. When it says no the
    /// listing ends. Where the object is still what an earlier listing says, the result is that
    /// one, and nothing more is kept. `names` says how many names it may hold, and with whom it
    /// shares them.
    ///
    /// # Errors
    /// As [`Export::scan`], and [`SourceError::NoRoom`] when the budget is used up.
    pub fn scan_like(
        &self,
        at: Option<&RelPath>,
        earlier: Option<&Arc<Scanned>>,
        names: impl Into<NamesHeld>,
        room: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Arc<Scanned>, SourceError> {
        let lister = self.lister(at, Depth::All, names)?;
        let scanned = Gathering::of(lister, earlier).run(room)?;
        Ok(match earlier {
            Some(earlier) if scanned.is_unchanged => Arc::clone(earlier),
            Some(_) | None => Arc::new(scanned),
        })
    }

    /// The entries of the directory at `at` and not what is beneath them; for a file, itself.
    ///
    /// # Errors
    /// As [`Export::scan`].
    pub fn list(&self, at: Option<&RelPath>) -> Result<Scanned, SourceError> {
        let lister = self.lister(at, Depth::One, usize::MAX)?;
        Gathering::of(lister, None).run(&mut |_| true)
    }

    /// Begins to list the object at `at`. `names` says how many names it may hold, and with whom it
    /// shares them.
    ///
    /// # Errors
    /// As [`Export::scan`].
    pub fn lister(
        &self,
        at: Option<&RelPath>,
        depth: Depth,
        names: impl Into<NamesHeld>,
    ) -> Result<Lister, SourceError> {
        let names = names.into();
        let at = match (&self.only, at) {
            (None, None) => {
                let lister = Lister::of_dir(&self.base, "", depth, names)?;
                return Ok(match &self.chosen {
                    Some(chosen) => lister.choosing(Arc::clone(chosen)),
                    None => lister,
                });
            }
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
            FileType::Directory => Lister::of_dir(&self.base, at.as_str(), depth, names),
            FileType::RegularFile => Ok(Lister::of_file(holder, name)),
            FileType::Symlink => Err(SourceError::Link { path: shown }),
            _ => Err(SourceError::Special { path: shown }),
        }
    }
}

pub(crate) fn entry(path: RelPath, kind: Kind, stat: &Stat) -> Entry {
    let size = match kind {
        Kind::File => stat.st_size as u64,
        Kind::Dir => 0,
    };
    let Attributes { mode, mtime } = attributes(stat);
    Entry { path, kind, size, mode, mtime }
}

pub(crate) fn attributes(stat: &Stat) -> Attributes {
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let whole = Mtime::new(stat.st_mtime, 0).expect("zero nanoseconds are below a second");
    let mtime = Mtime::new(stat.st_mtime, nanos).unwrap_or(whole);
    Attributes { mode: Mode::new(stat.st_mode), mtime }
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
