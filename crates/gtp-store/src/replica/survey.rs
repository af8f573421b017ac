//! What a tree holds, taken directory by directory.
//!
//! A directory's names are sorted, so that a survey is in the order of a walk: each directory
//! before what it holds. What cannot be looked at is told, and whether it may have hidden anything.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread::Builder;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;

use super::ahead::{Ahead, Listed, Next};
use super::node::{ACL_NAMES, Node, NodeKind, XATTRS_BYTES_MAX, XATTRS_MAX, Xattr, may_carry};
use super::tree::Replica;
use crate::export::attributes;
use crate::hash::Value;
use crate::name::RelPath;
use crate::walk;

/// What a survey looks at beside names, sizes, modes and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// Whether each file is hashed.
    pub hashes: bool,
    /// Whether extended attributes of the user namespace are read.
    pub xattrs: bool,
    /// Whether access control lists are read.
    pub acls: bool,
}

impl Asked {
    /// How many further threads are of use in a survey. None is where files are read: a disk may
    /// be slower if several are read at a time.
    pub fn helpers(self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if self.hashes { 0 } else { (processors - 1).min(HELPERS_MAX) }
    }
}

/// Something that is there and cannot be carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its path, as the file system has it.
    pub path: Vec<u8>,
    /// Why, for people.
    pub why: String,
    /// Whether more may be there that nobody saw, so that nothing may be inferred from absence.
    pub hides: bool,
}

impl LeftOut {
    /// Its path, escaped for display.
    pub fn shown(&self) -> String {
        gtp_text::of_bytes(&self.path)
    }
}

/// What one step of a survey found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Surveyed {
    /// A node.
    Node(Box<Node>),
    /// Something that is left out.
    LeftOut(LeftOut),
}

impl Replica {
    /// Walks through the whole tree and hands on what it finds, for as long as `each` says to go
    /// on. Returns whether the tree's own directory is there. Blocks.
    ///
    /// # Errors
    /// If the directory is there and cannot be read.
    pub fn survey(
        &self,
        asked: Asked,
        each: &mut dyn FnMut(Surveyed) -> bool,
    ) -> Result<bool, Errno> {
        self.survey_with(asked, 0, each)
    }

    /// As [`Replica::survey`], with the help of so many further threads, which look at directories
    /// that come soon. What is found comes in the same order. They hold a few MiB at most, and the
    /// names of a directory each.
    ///
    /// # Errors
    /// As there.
    pub fn survey_with(
        &self,
        asked: Asked,
        helpers: usize,
        each: &mut dyn FnMut(Surveyed) -> bool,
    ) -> Result<bool, Errno> {
        let Some(root) = self.open_root()? else { return Ok(false) };
        let walk = Walk { root, asked };
        let mut own = walk.node(None, &fstat(&walk.root)?);
        own.xattrs = walk.xattrs_of(walk.root.as_fd().as_raw_fd());
        if each(Surveyed::Node(Box::new(own))) {
            walk.all(helpers, each);
        }
        Ok(true)
    }
}

impl Replica {
    /// As [`Replica::survey`], of the tree's own directory and one name in it, and of nothing
    /// beneath that.
    ///
    /// # Errors
    /// As there, and [`Errno::INVAL`] if the name has more than one part: the way to what is deeper
    /// could lead through a link.
    pub fn survey_name(
        &self,
        asked: Asked,
        name: &RelPath,
        each: &mut dyn FnMut(Surveyed) -> bool,
    ) -> Result<bool, Errno> {
        if name.as_str().contains('/') {
            return Err(Errno::INVAL);
        }
        let Some(root) = self.open_root()? else { return Ok(false) };
        let walk = Walk { root, asked };
        let mut own = walk.node(None, &fstat(&walk.root)?);
        own.xattrs = walk.xattrs_of(walk.root.as_fd().as_raw_fd());
        let name = name.as_str().as_bytes();
        if each(Surveyed::Node(Box::new(own)))
            && let Some(found) = walk.name(&walk.root, name, name)
        {
            each(found);
        }
        Ok(true)
    }

    /// The tree that holds this one's place, and the name of the file or link that is at the place;
    /// `None` if a directory is there, or nothing.
    pub fn of_file(&self) -> Option<(Replica, RelPath)> {
        let at = self.at.as_ref()?;
        let (holder, name) = walk::split(at.as_str());
        let dir = walk::dir_handle(self.holder.as_fd(), holder).ok()?;
        let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => {}
            _ => return None,
        }
        let at = (!holder.is_empty()).then(|| RelPath::new(holder)).transpose().ok()?;
        let holder = self.holder.try_clone().ok()?;
        Some((Replica { holder, at, place: None }, RelPath::new(name).ok()?))
    }
}

/// A walk under way.
struct Walk {
    root: OwnedFd,
    asked: Asked,
}

/// What a directory holds.
struct Listing {
    /// What has been looked at.
    found: VecDeque<Surveyed>,
    /// Bytes of that, about.
    bytes: usize,
    /// What has not.
    rest: Option<Rest>,
}

/// Names of a directory that have not been looked at.
struct Rest {
    at: String,
    dir: OwnedFd,
    names: std::vec::IntoIter<Vec<u8>>,
}

impl Listed for Listing {
    fn bytes(&self) -> usize {
        let names = self.rest.as_ref().map_or(&[][..], |rest| rest.names.as_slice());
        self.bytes + names.iter().map(|name| size_of::<Vec<u8>>() + name.capacity()).sum::<usize>()
    }
}

impl Walk {
    /// Walks through the tree with the help of further threads; whether to go on.
    fn all(&self, helpers: usize, each: &mut dyn FnMut(Surveyed) -> bool) -> bool {
        let ahead = Ahead::of("");
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                let thread = Builder::new().name("gtp-walker".into()).stack_size(STACK);
                // Without it, the walk does everything by itself.
                let _ = thread.spawn_scoped(scope, || ahead.help(|at| self.list(at)));
            }
            let _over = ahead.over();
            self.in_order(&ahead, each)
        })
    }

    /// Hands on what the directories hold, one after the other; whether to go on.
    fn in_order(&self, ahead: &Ahead<Listing>, each: &mut dyn FnMut(Surveyed) -> bool) -> bool {
        while let Some(next) = ahead.next(|at| self.list(at)) {
            let mut listing = match next {
                Next::Untouched(at) => self.open(&at),
                Next::Listed(listing) => listing,
            };
            let mut beneath = Vec::new();
            while let Some(found) = self.step(&mut listing) {
                if let Surveyed::Node(node) = &found
                    && node.is_dir()
                {
                    beneath.push(node.name().to_owned());
                }
                if !each(found) {
                    return false;
                }
            }
            ahead.add(beneath);
        }
        true
    }

    /// Opens a directory and reads its names; looks at nothing in it yet.
    fn open(&self, at: &str) -> Listing {
        let opened = walk::dir_for_reading(self.root.as_fd(), at).and_then(|dir| {
            let names = names_of(&dir)?.into_iter();
            Ok(Rest { at: at.to_owned(), dir, names })
        });
        match opened {
            Ok(rest) => Listing { found: VecDeque::new(), bytes: 0, rest: Some(rest) },
            Err(error) => {
                let found = VecDeque::from([left_out(at.as_bytes(), words(error), true)]);
                Listing { found, bytes: at.len(), rest: None }
            }
        }
    }

    /// Opens a directory and looks at what is in it, or only at the first part of it, if it
    /// holds much.
    fn list(&self, at: &str) -> Listing {
        let mut listing = self.open(at);
        while listing.bytes < LISTING_BYTES_MAX
            && let Some(rest) = &mut listing.rest
        {
            match self.next(rest) {
                Some(found) => {
                    listing.bytes += bytes_of(&found);
                    listing.found.push_back(found);
                }
                None => listing.rest = None,
            }
        }
        listing
    }

    /// The next of what a directory holds.
    fn step(&self, listing: &mut Listing) -> Option<Surveyed> {
        listing.found.pop_front().or_else(|| self.next(listing.rest.as_mut()?))
    }

    fn next(&self, Rest { at, dir, names }: &mut Rest) -> Option<Surveyed> {
        names.find_map(|name| {
            let full = match at.is_empty() {
                true => name.clone(),
                false => [at.as_bytes(), b"/", &name].concat(),
            };
            self.name(dir, &name, &full)
        })
    }

    /// What a name stands for; `None` for what has gone.
    fn name(&self, dir: &OwnedFd, name: &[u8], full: &[u8]) -> Option<Surveyed> {
        let path = match RelPath::from_bytes(full) {
            Ok(path) => path,
            Err(why) => return Some(left_out(full, why.to_string(), false)),
        };
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return None,
            Err(error) => return Some(left_out(full, words(error), true)),
        };
        let mut node = self.node(Some(path), &stat);
        let filled = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => readlinkat(dir, name, Vec::new())
                .map(|target| node.kind = NodeKind::Link(target.into_bytes())),
            FileType::RegularFile => self.look_into(dir, name, &mut node),
            FileType::Directory if self.asked.xattrs || self.asked.acls => {
                walk::dir_handle(dir.as_fd(), std::str::from_utf8(name).unwrap_or_default())
                    .map(|handle| node.xattrs = self.xattrs_of(handle.as_raw_fd()))
            }
            _ => Ok(()),
        };
        match filled {
            Ok(()) => Some(Surveyed::Node(Box::new(node))),
            Err(Errno::NOENT) => None,
            Err(error) => Some(left_out(full, words(error), false)),
        }
    }

    fn node(&self, path: Option<RelPath>, stat: &Stat) -> Node {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => NodeKind::File,
            FileType::Directory => NodeKind::Dir,
            FileType::Symlink => NodeKind::Link(Vec::new()),
            _ => NodeKind::Special,
        };
        let has_names = kind == NodeKind::File && stat.st_nlink > 1;
        Node {
            path,
            size: if kind == NodeKind::File { stat.st_size as u64 } else { 0 },
            kind,
            mode: stat.st_mode & 0o7777,
            mtime: attributes(stat).mtime,
            uid: stat.st_uid,
            gid: stat.st_gid,
            same: has_names.then(|| identity(stat)),
            hash: None,
            xattrs: Vec::new(),
        }
    }

    /// Reads what was asked for of a file.
    fn look_into(&self, dir: &OwnedFd, name: &[u8], node: &mut Node) -> Result<(), Errno> {
        if self.asked == Asked::default() {
            let may_read = rustix::fs::Access::READ_OK;
            return rustix::fs::accessat(dir, name, may_read, AtFlags::EACCESS)
                .or_else(|error| if error == Errno::NOSYS { Ok(()) } else { Err(error) });
        }
        let file = walk::open_bytes(dir.as_fd(), name, OFlags::RDONLY)?;
        if self.asked.xattrs || self.asked.acls {
            node.xattrs = self.wanted(xattrs_of_open(&file));
        }
        if self.asked.hashes {
            node.hash = Some(hash(file)?);
        }
        Ok(())
    }

    /// The attributes of a handle that were asked for. A file system that has none has none.
    fn xattrs_of(&self, fd: i32) -> Vec<Xattr> {
        if !self.asked.xattrs && !self.asked.acls {
            return Vec::new();
        }
        self.wanted(xattrs(&format!("/proc/self/fd/{fd}")))
    }

    /// Of attributes, those that were asked for.
    fn wanted(&self, mut found: Vec<Xattr>) -> Vec<Xattr> {
        found.retain(|(name, _)| match ACL_NAMES.contains(&name.as_str()) {
            true => self.asked.acls,
            false => self.asked.xattrs,
        });
        found
    }
}

/// The attributes at a path that can be carried, sorted by name; a bounded number.
pub(super) fn xattrs(path: &str) -> Vec<Xattr> {
    gather_xattrs(
        |names| rustix::fs::listxattr(path, names),
        |name, value| rustix::fs::getxattr(path, name, value),
    )
}

/// The same of an open file, which takes no walk to it.
fn xattrs_of_open(file: &OwnedFd) -> Vec<Xattr> {
    gather_xattrs(
        |names| rustix::fs::flistxattr(file, names),
        |name, value| rustix::fs::fgetxattr(file, name, value),
    )
}

fn gather_xattrs(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&str, &mut [u8]) -> Result<usize, Errno>,
) -> Vec<Xattr> {
    let Some(names) = listed(list) else { return Vec::new() };
    let mut found = Vec::new();
    let mut room = XATTRS_BYTES_MAX;
    for name in names.split(|&b| b == 0) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        if !may_carry(name) || found.len() == XATTRS_MAX {
            continue;
        }
        let mut value = vec![0_u8; room];
        let Ok(length) = get(name, &mut value[..]) else { continue };
        value.truncate(length);
        value.shrink_to_fit();
        room = room.saturating_sub(length + name.len());
        found.push((name.to_owned(), value));
    }
    found.sort();
    found
}

/// The names that a file system lists; nothing if there are none. Most files have few, so that
/// seldom more than a few bytes are taken for them.
fn listed(list: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Option<Vec<u8>> {
    let mut few = [0_u8; NAMES_BYTES];
    match list(&mut few) {
        Ok(0) => None,
        Ok(length) => Some(few[..length].to_vec()),
        Err(Errno::RANGE) => {
            let mut all = vec![0_u8; XATTRS_BYTES_MAX];
            let length = list(&mut all[..]).ok()?;
            all.truncate(length);
            Some(all)
        }
        Err(_) => None,
    }
}

fn names_of(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn hash(file: OwnedFd) -> Result<Value, Errno> {
    let mut hasher = blake3::Hasher::new();
    let read = hasher.update_reader(std::fs::File::from(file));
    let as_errno = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    read.map_err(as_errno)?;
    Ok(*hasher.finalize().as_bytes())
}

/// A number that names of one file share; it says nothing else.
fn identity(stat: &Stat) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&stat.st_dev.to_le_bytes()).update(&stat.st_ino.to_le_bytes());
    let bytes = hasher.finalize();
    bytes.as_bytes().iter().take(8).fold(0, |number, &b| number << 8 | u64::from(b))
}

fn left_out(path: &[u8], why: String, hides: bool) -> Surveyed {
    Surveyed::LeftOut(LeftOut { path: path.to_owned(), why, hides })
}

/// What the system says, without the number.
pub(super) fn words(error: Errno) -> String {
    match error {
        Errno::ACCESS | Errno::PERM => "permission denied".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

/// The kernel's name for what a handle is of.
pub(super) fn by_handle(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Bytes that something that was found takes, about.
fn bytes_of(found: &Surveyed) -> usize {
    match found {
        Surveyed::Node(node) => {
            let target = if let NodeKind::Link(target) = &node.kind { target.len() } else { 0 };
            let xattrs = node.xattrs.iter().map(|(name, value)| name.len() + value.len());
            size_of::<Node>() + node.name().len() + target + xattrs.sum::<usize>()
        }
        Surveyed::LeftOut(left_out) => left_out.path.len() + left_out.why.len(),
    }
}

/// Threads that help with a survey: what they find is handed on by one.
const HELPERS_MAX: usize = 3;

/// Bytes of a directory's nodes after which no more of it is listed ahead.
const LISTING_BYTES_MAX: usize = 256 << 10;

/// Bytes of the stack of a thread that helps.
const STACK: usize = 512 * 1024;

/// Bytes of the names of a file's attributes that are usual.
const NAMES_BYTES: usize = 512;
