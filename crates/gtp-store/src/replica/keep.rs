//! Copies of single files and links in another tree, which may be on another file system.
//!
//! What is there stays as it is. No link is followed, in either tree, and what has the new name is
//! replaced when the copy is whole.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, fsync, futimens,
    linkat, readlinkat, renameat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::survey::{by_handle, words, xattrs};
use super::tree::{Fault, Replica, clear_spare, holder, make_holders, times};
use crate::abilities::is_refusal;
use crate::export::attributes;
use crate::name::{PART_SUFFIX, RelPath, beside, escaped};
use crate::walk;

/// How a file is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// As a further name of it where one file system has both, else as a copy.
    Name,
    /// As a copy.
    Copy,
}

impl Replica {
    /// Keeps the file or link at `path` in another tree, at `to`. The tree's own directory is made
    /// if need be, and so are those above `to`. Blocks.
    ///
    /// Returns what the copy lacks because the place has no such thing, for people.
    ///
    /// # Errors
    /// A [`Fault`] if it is not kept.
    pub fn keep(
        &self,
        path: &RelPath,
        place: &Replica,
        to: &RelPath,
        how: Keep,
    ) -> Result<Vec<&'static str>, Fault> {
        let kept = self.try_keep(path, place, to, how);
        kept.map_err(|why| Fault { path: escaped(path.as_str()), why })
    }

    pub(super) fn try_keep(
        &self,
        path: &RelPath,
        place: &Replica,
        to: &RelPath,
        how: Keep,
    ) -> Result<Vec<&'static str>, String> {
        place.make_root().map_err(words)?;
        let root = self.open_root().map_err(words)?.ok_or("the tree is not there")?;
        let there = place.open_root().map_err(words)?.ok_or("the place is not there")?;
        make_holders(&there, to).map_err(words)?;
        let (dir, name) = holder(&root, path).map_err(words)?;
        let (new_dir, new) = holder(&there, to).map_err(words)?;
        let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(words)?;
        // Two names of one file are two versions once one is replaced; one name is not.
        if name == new && is_same_dir(&dir, &new_dir).map_err(words)? {
            return Err(ITSELF.into());
        }
        let spare = beside(new, PART_SUFFIX);
        clear_spare(&new_dir, &spare)?;
        let from = (&dir, name);
        let made = match how {
            Keep::Name => linkat(&dir, name, &new_dir, &*spare, AtFlags::empty())
                .map(|()| Vec::new())
                .or_else(|_| copy(from, &stat, (&new_dir, &spare))),
            Keep::Copy => copy(from, &stat, (&new_dir, &spare)),
        };
        let placed = made.and_then(|lacks| {
            renameat(&new_dir, &*spare, &new_dir, new)?;
            Ok(lacks)
        });
        // Two names of one file stay two names; and what failed is told in any case.
        let _ = unlinkat(&new_dir, &*spare, AtFlags::empty());
        placed.map_err(words)
    }
}

/// Whether both are one directory.
fn is_same_dir(one: &OwnedFd, other: &OwnedFd) -> Result<bool, Errno> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Why nothing can be kept under its own name.
const ITSELF: &str = "the place of its backup is the file itself";

/// Copies a file or link with its attributes. Returns those that cannot be had there.
fn copy(
    (dir, name): (&OwnedFd, &str),
    stat: &Stat,
    (to_dir, to): (&OwnedFd, &str),
) -> Result<Vec<&'static str>, Errno> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => copy_file((dir, name), (to_dir, to)),
        FileType::Symlink => {
            symlinkat(readlinkat(dir, name, Vec::new())?, to_dir, to)?;
            let times = times(attributes(stat).mtime);
            utimensat(to_dir, to, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(Vec::new())
        }
        _ => Err(Errno::INVAL),
    }
}

fn copy_file(
    (dir, name): (&OwnedFd, &str),
    (to_dir, to): (&OwnedFd, &str),
) -> Result<Vec<&'static str>, Errno> {
    let from = walk::open(dir.as_fd(), name, OFlags::RDONLY, Mode::empty())?;
    let stat = fstat(&from)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let new = walk::open(to_dir.as_fd(), to, flags, Mode::from_raw_mode(0o600))?;
    let mut lacks = Vec::new();
    let mut try_to = |what: &'static str, done: Result<(), Errno>| match done {
        Err(error) if is_refusal(error) => {
            lacks.push(what);
            Ok(())
        }
        done => done,
    };
    let set = |(name, value): (String, Vec<u8>)| {
        rustix::fs::fsetxattr(&new, &*name, &value, rustix::fs::XattrFlags::empty())
    };
    try_to("extended attributes", xattrs(&by_handle(&from)).into_iter().try_for_each(set))?;
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    if Replica::may_own() {
        try_to("owner and group", fchown(&new, Some(uid), Some(gid)))?;
    } else {
        // Who is in the group may give the copy to it; what is lacking otherwise, the mode tells.
        let _ = fchown(&new, None, Some(gid));
    }
    let mode = kept_mode(&stat, &fstat(&new)?);
    let (mut from, mut new) = (std::fs::File::from(from), std::fs::File::from(new));
    let copied = std::io::copy(&mut from, &mut new);
    copied.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    try_to("mode", fchmod(&new, Mode::from_raw_mode(mode)))?;
    try_to("time", futimens(&new, &times(attributes(&stat).mtime)))?;
    // What it is kept for may be replaced at once.
    fsync(&new).or_else(|error| if is_refusal(error) { Ok(()) } else { Err(error) })?;
    Ok(lacks)
}

/// The permissions of a copy. Those of the group are of the file's own, and none are another
/// group's.
fn kept_mode(of: &Stat, copy: &Stat) -> u32 {
    let mode = of.st_mode & 0o777;
    if copy.st_gid == of.st_gid { mode } else { mode & !0o070 }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::path::Path;

    use super::*;
    use crate::unprivileged::{NOBODY, without_rights};

    #[test]
    fn a_copy_that_cannot_have_its_files_group_is_closed_to_every_other_group() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root has a file of a group that it is not in.
        }
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(dir.path(), 0o777);
        for (name, group) in [("own", NOBODY), ("other", 12_345)] {
            let file = dir.path().join(name);
            std::fs::write(&file, name).unwrap();
            chown(&file, Some(NOBODY), Some(group)).unwrap();
            mode(&file, 0o664);
        }
        let kept = |name: &str, from: &str| {
            let tree = Replica::beneath(dir.path(), None).unwrap();
            let (path, to) = (RelPath::new(from).unwrap(), RelPath::new(name).unwrap());
            tree.keep(&path, &tree, &to, Keep::Copy).unwrap();
            let copy = dir.path().join(name).metadata().unwrap();
            (copy.mode() & 0o777, copy.gid())
        };
        without_rights(|| {
            assert_eq!(kept("own~", "own"), (0o664, NOBODY));
            assert_eq!(kept("other~", "other"), (0o604, NOBODY));
        });
        assert_eq!(kept("other~~", "other"), (0o664, 12_345), "root gives it the group");
    }
}
