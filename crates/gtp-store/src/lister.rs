//! Lists an object entry by entry, in the order of a manifest, in bounded memory.
//!
//! The order is that of whole paths, so a directory's content does not follow its name at once:
//! `a-b` comes before `a/c`. Each open directory has its names sorted, and a stack of the
//! directories in it whose content is due later. Of a directory with very many names all are kept
//! where listings share them; elsewhere only the next ones are kept, and when they are used up, the
//! directory is read again for the names after them. The
//! tree may change meanwhile: no entry comes twice or out of order, and names that are gone are
//! reported as skipped. This module must not know who wants the entries, nor how fast.

use std::collections::BinaryHeap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    Access, AtFlags, FileType, OFlags, RawDir, SeekFrom, Stat, accessat, fstat, seek, statat,
};
use rustix::io::Errno;

use crate::abilities::is_refusal;
use crate::dir_names::{Collecting, NamesHeld, Taken, Upcoming};
use crate::export::{Chosen, SkipReason, Skipped, Stamp, attributes, beneath_error, entry};
use crate::manifest::{Attributes, Entry, Kind, MAX_ENTRIES, ManifestError, RootKind};
use crate::name::{RelPath, escaped};
use crate::numbering::Numbering;
use crate::source::SourceError;
use crate::walk;

/// How far a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The listing holds the names in the directory itself.
    One,
    /// The listing holds everything beneath the directory.
    All,
}

/// What one step of a [`Lister`] finds.
#[derive(Debug)]
pub enum Step {
    /// The next entry of the listing.
    Entry(Entry),
    /// A name that exists and is left out of the listing.
    Skipped(Skipped),
    /// Nothing yet, because the step read a part of a directory.
    Nothing,
}

/// A listing of one object, which is taken step by step.
#[derive(Debug)]
pub struct Lister {
    kind: RootKind,
    /// The directory that is listed, or the one that holds the file.
    base: OwnedFd,
    own: Option<Attributes>,
    /// The names directly in the directory that are listed; all if `None`.
    chosen: Option<Arc<Chosen>>,
    depth: Depth,
    /// What it may keep of names.
    held: NamesHeld,
    /// The directories on the way to the present one, outermost first.
    dirs: Vec<Dir>,
    /// The present directory, while it is open.
    open: Option<OwnedFd>,
    entries: usize,
    /// The stamp of the latest entry.
    stamp: Option<Stamp>,
}

/// A directory that is being listed.
#[derive(Debug)]
struct Dir {
    /// Its path beneath the base, which is empty for the base itself.
    path: String,
    /// Its device and inode number, by which it is known again.
    identity: (u64, u64),
    /// Whether inode numbers of its file system identify files.
    numbering: Numbering,
    /// The next names.
    names: Upcoming,
    /// The pass through the directory that is under way, if there is one.
    reading: Option<Reading>,
    /// The pass that takes over all names, if that is under way, and the last name that was listed
    /// before it.
    collecting: Option<(Collecting, Option<Box<[u8]>>)>,
    /// The last name that was kept, if there are more after it.
    more_after: Option<Box<[u8]>>,
    /// Directories in it whose content is due, the next one last. The name of each begins with the
    /// name of the one before it, so they form a stack.
    due: Vec<Box<[u8]>>,
}

/// A pass through a directory, which keeps the names that are next in order.
#[derive(Debug, Default)]
struct Reading {
    after: Option<Box<[u8]>>,
    least: BinaryHeap<Box<[u8]>>,
    has_more: bool,
    /// All names that the pass has met, and their bytes.
    met: (usize, usize),
}

/// The least number of names of a directory that are kept at a time.
const NAMES_LEAST: usize = 64;

/// The size in bytes of the buffer into which one step reads names.
const READ_BYTES: usize = 16 * 1024;

impl Lister {
    /// Begins a listing of the directory at `at` beneath `base`. `held` says how many names it may
    /// hold, and with whom it shares them.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub(crate) fn of_dir(
        base: &OwnedFd,
        at: &str,
        depth: Depth,
        held: NamesHeld,
    ) -> Result<Lister, SourceError> {
        let failed = |error| beneath_error(if at.is_empty() { "." } else { at }, error);
        let base = walk::dir_for_reading(base.as_fd(), at).map_err(failed)?;
        let stat = fstat(&base).map_err(failed)?;
        let mut lister = Lister {
            kind: RootKind::Dir,
            base,
            own: Some(attributes(&stat)),
            chosen: None,
            depth,
            held: NamesHeld { most: held.most.max(NAMES_LEAST), ..held },
            dirs: Vec::new(),
            open: None,
            entries: 0,
            stamp: None,
        };
        let opened = walk::dir_for_reading(lister.base.as_fd(), "").map_err(failed)?;
        lister.enter(String::new(), opened).map_err(failed)?;
        Ok(lister)
    }

    /// Begins a listing of the file `name` in the directory `base`.
    pub(crate) fn of_file(base: OwnedFd, name: &str) -> Lister {
        let dir = Dir {
            path: String::new(),
            identity: (0, 0),
            numbering: Numbering::Lasting,
            names: Upcoming::Own(vec![name.as_bytes().into()]),
            reading: None,
            collecting: None,
            more_after: None,
            due: Vec::new(),
        };
        Lister {
            kind: RootKind::File,
            base,
            own: None,
            chosen: None,
            depth: Depth::One,
            held: NamesHeld::from(NAMES_LEAST),
            dirs: vec![dir],
            open: None,
            entries: 0,
            stamp: None,
        }
    }

    /// Lists these names directly in the directory alone, as a bundle of objects.
    pub(crate) fn choosing(self, chosen: Arc<Chosen>) -> Lister {
        Lister { own: None, chosen: Some(chosen), ..self }
    }

    /// Whether a name in the present directory is left out silently.
    fn is_unchosen(&self, name: &[u8]) -> bool {
        let is_top = self.dirs.last().is_some_and(|dir| dir.path.is_empty());
        let has =
            |chosen: &Arc<Chosen>| str::from_utf8(name).is_ok_and(|name| chosen.contains(name));
        is_top && self.chosen.as_ref().is_some_and(|chosen| !has(chosen))
    }

    /// Returns whether a file or a directory is listed.
    pub fn kind(&self) -> RootKind {
        self.kind
    }

    /// Returns the directory's own mode and time, or `None` for a file.
    pub fn own(&self) -> Option<Attributes> {
        self.own
    }

    /// Closes the present directory for a pause. The next step opens it again.
    pub fn rest(&mut self) {
        if self.dirs.last().is_some_and(|dir| !dir.is_being_read()) {
            self.open = None;
        }
    }

    /// Takes one step and returns what it found, or `None` at the end. A step takes some
    /// microseconds, or as long as the file system needs.
    ///
    /// # Errors
    /// [`SourceError::Listing`] if there are more than [`MAX_ENTRIES`] entries. If a file is listed
    /// and cannot be read, why not.
    pub fn step(&mut self) -> Option<Result<Step, SourceError>> {
        if self.kind == RootKind::File {
            let name = self.dirs.pop()?.names.pop()?;
            return Some(self.file(&name));
        }
        let dir = self.dirs.last_mut()?;
        if dir.is_being_read() {
            return Some(Ok(self.read_on()));
        }
        if dir.names.peek().is_none() && dir.more_after.is_some() {
            return Some(Ok(self.reopen().unwrap_or_else(|| self.more())));
        }
        if let Some(name) = dir.next_due() {
            let path = join(&dir.path, &name);
            return Some(Ok(self.descend(&path)));
        }
        match dir.names.pop() {
            Some(name) => Some(self.name(name)),
            None => {
                self.dirs.pop();
                self.open = None;
                Some(Ok(Step::Nothing))
            }
        }
    }

    /// Returns the next entry with the state of its file, or `None` at the end. Other steps go to
    /// `meanwhile`, which returns whether to go on.
    ///
    /// # Errors
    /// [`SourceError::NoRoom`] if `meanwhile` returned `false`, and whatever [`Lister::step`]
    /// returns.
    pub(crate) fn next_entry(
        &mut self,
        meanwhile: &mut dyn FnMut(Step) -> bool,
    ) -> Option<Result<(Entry, Stamp), SourceError>> {
        loop {
            match self.step()? {
                Ok(Step::Entry(entry)) => {
                    // Each entry sets it.
                    let stamp = self.stamp.take()?;
                    return Some(Ok((entry, stamp)));
                }
                Ok(step @ (Step::Skipped(_) | Step::Nothing)) => {
                    if !meanwhile(step) {
                        return Some(Err(SourceError::NoRoom));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    pub(crate) fn into_base(self) -> OwnedFd {
        self.base
    }

    pub(crate) fn base(&self) -> &OwnedFd {
        &self.base
    }

    fn file(&mut self, name: &[u8]) -> Result<Step, SourceError> {
        let shown = escaped(&String::from_utf8_lossy(name));
        let failed = |error| beneath_error(&shown, error);
        let path = RelPath::from_bytes(name);
        let path = path.map_err(|_| SourceError::Missing { path: shown.clone() })?;
        let stat = statat(&self.base, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(SourceError::Missing { path: shown });
        }
        may_read(&self.base, name).map_err(failed)?;
        self.stamp = Some(Stamp::of(&stat, Numbering::of(&self.base)));
        Ok(Step::Entry(entry(path, Kind::File, &stat)))
    }

    /// Begins the listing of a directory that has just been opened.
    fn enter(&mut self, path: String, opened: OwnedFd) -> Result<(), Errno> {
        let stat = fstat(&opened)?;
        let numbering = Numbering::of(&opened);
        let identity = (stat.st_dev, numbering.number(&stat));
        let granted = self.granted();
        let shared = self.held.sharing.as_mut();
        let shared = shared.and_then(|sharing| sharing.find(&Stamp::of(&stat, numbering), granted));
        let reading = shared.is_none().then(Reading::default);
        let names = shared.map_or(Upcoming::none(), |taken| taken.after(None));
        let (collecting, more_after, due) = (None, None, Vec::new());
        self.dirs.push(Dir {
            path,
            identity,
            numbering,
            names,
            reading,
            collecting,
            more_after,
            due,
        });
        self.open = Some(opened);
        Ok(())
    }

    /// The bytes of shared names that it holds.
    fn granted(&self) -> usize {
        self.dirs.iter().map(|dir| dir.names.granted()).sum()
    }

    fn descend(&mut self, path: &str) -> Step {
        self.open = None;
        let opened = walk::dir_for_reading(self.base.as_fd(), path);
        match opened.and_then(|opened| self.enter(path.to_owned(), opened)) {
            Ok(()) => Step::Nothing,
            Err(error) => Step::Skipped(skipped(path.as_bytes(), unreadable(error))),
        }
    }

    /// Opens the present directory again. If it is no longer the same one, returns the step that
    /// skips what is left of it.
    fn reopen(&mut self) -> Option<Step> {
        let dir = self.dirs.last_mut()?;
        let opened = walk::dir_for_reading(self.base.as_fd(), &dir.path).and_then(|opened| {
            let stat = fstat(&opened)?;
            let same = (stat.st_dev, dir.numbering.number(&stat)) == dir.identity;
            if same { Ok(opened) } else { Err(Errno::NOENT) }
        });
        match opened {
            Ok(opened) => {
                self.open = Some(opened);
                None
            }
            Err(error) => {
                (dir.reading, dir.more_after) = (None, None);
                dir.names = Upcoming::none();
                Some(Step::Skipped(skipped(dir.path.as_bytes(), unreadable(error))))
            }
        }
    }

    /// Begins to read the present directory, which has just been opened, for its next names; or
    /// takes them from a listing that has collected all of them meanwhile.
    fn more(&mut self) -> Step {
        let granted = self.granted();
        let (Some(dir), Some(open)) = (self.dirs.last_mut(), &self.open) else {
            return Step::Nothing;
        };
        let Some(after) = dir.more_after.take() else { return Step::Nothing };
        let stamp = fstat(open).map(|stat| Stamp::of(&stat, dir.numbering)).ok();
        let shared = stamp.zip(self.held.sharing.as_mut());
        match shared.and_then(|(stamp, sharing)| sharing.find(&stamp, granted)) {
            Some(taken) => dir.go_on_with(taken, Some(&after)),
            None => dir.reading = Some(Reading { after: Some(after), ..Reading::default() }),
        }
        Step::Nothing
    }

    /// Reads a part of the present directory.
    fn read_on(&mut self) -> Step {
        let held: usize = self.dirs.iter().map(|dir| dir.names.own()).sum();
        let most = self.held.most.saturating_sub(held).max(NAMES_LEAST);
        let (Some(dir), Some(open)) = (self.dirs.last_mut(), &self.open) else {
            return Step::Nothing;
        };
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut names = RawDir::new(open, &mut buffer);
        let ended = loop {
            match names.next() {
                Some(Ok(item)) => dir.consider(item.file_name().to_bytes(), most),
                Some(Err(_)) => break Some(SkipReason::Unreadable),
                None => break None,
            }
            if names.is_buffer_empty() {
                return Step::Nothing;
            }
        };
        if let Some(why) = ended {
            dir.take(most);
            dir.collecting = None;
            return Step::Skipped(skipped(dir.path.as_bytes(), why));
        }
        self.end_pass(most);
        Step::Nothing
    }

    /// Ends a pass through the present directory. If it has met too many names to be kept, this
    /// begins one that takes over all of them, as soon as there is memory for that.
    fn end_pass(&mut self, most: usize) {
        let granted = self.granted();
        let (Some(dir), Some(open)) = (self.dirs.last_mut(), &self.open) else { return };
        let pass = dir.take(most);
        let Some(sharing) = &mut self.held.sharing else { return };
        // What cannot be looked at now is read again, name by name.
        let Ok(stamp) = fstat(open).map(|stat: Stat| Stamp::of(&stat, dir.numbering)) else {
            dir.collecting = None;
            return;
        };
        if let Some((collected, after)) = dir.collecting.take() {
            dir.go_on_with(sharing.share(collected, &stamp), after.as_deref());
        } else if let Some(Pass { after, met }) = pass.filter(|_| dir.more_after.is_some()) {
            if let Some(taken) = sharing.find(&stamp, granted) {
                dir.go_on_with(taken, after.as_deref());
            } else if seek(open, SeekFrom::Start(0)).is_ok() {
                let collecting = sharing.collect(stamp, met, granted);
                dir.collecting = collecting.map(|collecting| (collecting, after));
            }
        }
    }

    /// Lists one name of the present directory.
    fn name(&mut self, name: Box<[u8]>) -> Result<Step, SourceError> {
        if self.is_unchosen(&name) {
            return Ok(Step::Nothing);
        }
        if self.open.is_none()
            && let Some(gone) = self.reopen()
        {
            return Ok(gone);
        }
        let (Some(dir), Some(open)) = (self.dirs.last_mut(), &self.open) else {
            return Ok(Step::Nothing);
        };
        let full = match dir.path.is_empty() {
            true => name.to_vec(),
            false => [dir.path.as_bytes(), b"/", &name].concat(),
        };
        let found = RelPath::from_bytes(&full).map_err(SkipReason::Name);
        let found = found.and_then(|path| Ok((path, look(open, &name)?)));
        let (path, (kind, stat)) = match found {
            Ok(found) => found,
            Err(why) => return Ok(Step::Skipped(skipped(&full, why))),
        };
        if self.entries == MAX_ENTRIES {
            return Err(ManifestError::TooMany(MAX_ENTRIES + 1).into());
        }
        self.entries += 1;
        self.stamp = Some(Stamp::of(&stat, dir.numbering));
        if kind == Kind::Dir && self.depth == Depth::All {
            dir.due.push(name);
        }
        Ok(Step::Entry(entry(path, kind, &stat)))
    }
}

impl Dir {
    /// Takes out the next directory whose content comes before the next name, if there is one.
    fn next_due(&mut self) -> Option<Box<[u8]>> {
        let due = self.due.last()?;
        let content = due.iter().chain(b"/");
        let comes_first = self.names.peek().is_none_or(|name| content.lt(name.iter()));
        if comes_first { self.due.pop() } else { None }
    }

    /// Whether a pass through it is under way.
    fn is_being_read(&self) -> bool {
        self.reading.is_some() || self.collecting.is_some()
    }

    /// Takes note of a name that a pass has met.
    fn consider(&mut self, name: &[u8], most: usize) {
        if name == b"." || name == b".." {
            return;
        }
        if let Some(reading) = &mut self.reading {
            reading.consider(name, most);
        }
        // If it has grown beyond its memory, the names that are kept have to do.
        if self.collecting.as_mut().is_some_and(|(collecting, _)| !collecting.add(name)) {
            self.collecting = None;
        }
    }

    /// Ends a pass, if one is under way that keeps the next names, and takes these over.
    fn take(&mut self, most: usize) -> Option<Pass> {
        let Reading { after, least, has_more, met } = self.reading.take()?;
        let mut names = least.into_sorted_vec();
        // The system may report a name twice if it was changed while the directory was read.
        names.dedup();
        self.more_after = names.last().filter(|_| has_more && most > 0).cloned();
        names.reverse();
        self.names = Upcoming::Own(names);
        Some(Pass { after, met })
    }

    /// Goes on with those of all names that come after this one.
    fn go_on_with(&mut self, taken: Taken, after: Option<&[u8]>) {
        self.names = taken.after(after);
        self.more_after = None;
    }
}

/// What is known of a pass that has ended.
struct Pass {
    /// The last name that was listed before it.
    after: Option<Box<[u8]>>,
    /// All names that it met, and their bytes.
    met: (usize, usize),
}

impl Reading {
    /// Keeps a name if it is among the next `most` in order.
    fn consider(&mut self, name: &[u8], most: usize) {
        self.met = (self.met.0 + 1, self.met.1 + name.len());
        if self.after.as_ref().is_some_and(|after| name <= &**after) {
            return;
        }
        if self.least.len() >= most {
            self.has_more = true;
            if self.least.peek().is_none_or(|last| name >= &**last) {
                return;
            }
            self.least.pop();
        }
        self.least.push(name.into());
    }
}

fn join(dir: &str, name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    if dir.is_empty() { name.into_owned() } else { format!("{dir}/{name}") }
}

fn skipped(path: &[u8], why: SkipReason) -> Skipped {
    let skipped = Skipped { path: path.to_owned(), why };
    tracing::debug!(path = %skipped.shown(), %why, "skipped");
    skipped
}

/// Checks that this process may read a file, by opening it if the system does not answer.
///
/// # Errors
/// Why it may not.
pub(crate) fn may_read(holder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match accessat(holder, name, Access::READ_OK, AtFlags::empty()) {
        // Some sandboxes refuse the question itself with these errors, which say nothing of the
        // file.
        Err(error) if is_refusal(error) => {
            walk::open_bytes(holder.as_fd(), name, OFlags::RDONLY).map(drop)
        }
        answered => answered,
    }
}

/// What a name of a directory stands for, if it is carried and can be read.
fn look(dir: &OwnedFd, name: &[u8]) -> Result<(Kind, Stat), SkipReason> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(unreadable)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            may_read(dir, name).map_err(unreadable)?;
            Ok((Kind::File, stat))
        }
        FileType::Directory => Ok((Kind::Dir, stat)),
        FileType::Symlink => Err(SkipReason::Link),
        _ => Err(SkipReason::Special),
    }
}

fn unreadable(error: Errno) -> SkipReason {
    if error == Errno::ACCESS || error == Errno::PERM {
        SkipReason::Denied
    } else {
        SkipReason::Unreadable
    }
}
