//! Lends directories the owner's permission bits that they lack while a transfer writes there.
//!
//! A tree may hold directories that are read-only even to their owner, and the second transfer into
//! it finds them so. If a call beneath a directory of this user is refused for want of the
//! owner's bits, the directory gets them, and its own mode again at the end. Only directories of
//! the object are changed, never one that holds it: that mode is the user's decision. Directories
//! of other users, and what a privileged user may do anyway, are left alone.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, chmodat, fchmod, fstat, statat};
use rustix::io::Errno;

use crate::walk;

/// All bits of an owner.
const OWNER: u32 = 0o700;

/// Where bits may be lent, and where they are.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// The object's directory; `None` lends nothing.
    beneath: Option<String>,
    /// Whether the base is no part of an object and is left alone.
    spares_base: bool,
    /// Paths and the modes that they had. They are given back from the deepest up.
    loans: Vec<(String, u32)>,
}

impl Lent {
    /// Allows loans to this directory and to those beneath it; `""` is the base itself.
    pub(crate) fn allow(&mut self, beneath: &str) {
        self.beneath = Some(beneath.to_owned());
    }

    /// Allows loans to all directories beneath the base, and not to the base: it holds objects.
    pub(crate) fn allow_beneath(&mut self) {
        self.allow("");
        self.spares_base = true;
    }

    /// Lends the directories on the way to `path` the bits that their owner lacks; returns whether
    /// that changed anything.
    pub(crate) fn lend(&mut self, base: BorrowedFd<'_>, user: u32, path: &str) -> bool {
        let mut any = false;
        let dirs = path.match_indices('/').map(|(at, _)| &path[..at]);
        for dir in std::iter::once("").chain(dirs) {
            if self.covers(dir) {
                any |= self.lend_one(base, user, dir).unwrap_or(false);
            }
        }
        any
    }

    /// Remembers a loan of an earlier transfer that did not live to give it back. A directory that
    /// has got another mode since then keeps it.
    pub(crate) fn owe(&mut self, base: BorrowedFd<'_>, user: u32, dir: &str, mode: u32) {
        let still_lent = look(base, dir).is_ok_and(|now| now == (mode | OWNER, user));
        let known = self.loans.iter().any(|(lent, _)| lent == dir);
        if mode & OWNER != OWNER && self.covers(dir) && still_lent && !known {
            self.loans.push((dir.to_owned(), mode));
        }
    }

    /// What is lent now: paths, and the modes that they had.
    pub(crate) fn loans(&self) -> &[(String, u32)] {
        &self.loans
    }

    /// Whether a directory is one of the object's, to which bits may be lent.
    pub(crate) fn covers(&self, dir: &str) -> bool {
        self.beneath.as_deref().is_some_and(|beneath| {
            beneath.is_empty() && !(dir.is_empty() && self.spares_base)
                || !beneath.is_empty() && dir == beneath
                || dir.strip_prefix(beneath).is_some_and(|rest| rest.starts_with('/'))
        })
    }

    fn lend_one(&mut self, base: BorrowedFd<'_>, user: u32, dir: &str) -> Result<bool, Errno> {
        let (mode, owner) = look(base, dir)?;
        if owner != user || mode & OWNER == OWNER {
            return Ok(false);
        }
        set_mode(base, dir, mode | OWNER)?;
        self.loans.push((dir.to_owned(), mode));
        Ok(true)
    }

    /// Notes that a directory has its final mode, so that nothing is to be given back.
    pub(crate) fn forget(&mut self, dir: &str) {
        self.loans.retain(|(lent, _)| lent != dir);
    }

    /// Gives all directories the modes that they had, the deepest first.
    pub(crate) fn give_back(&mut self, base: BorrowedFd<'_>) {
        // A path sorts after those of the directories that hold it.
        self.loans.sort_unstable();
        while let Some((dir, mode)) = self.loans.pop() {
            match set_mode(base, &dir, mode) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => tracing::warn!(%dir, %error, "a directory keeps its owner's bits"),
            }
        }
    }
}

/// The permissions of a directory, if some of its owner's are missing.
pub(crate) fn lacks_bits(mode: u32) -> Option<u32> {
    (mode & OWNER != OWNER).then_some(mode & 0o7777)
}

/// The permission bits of a directory, and its owner.
fn look(base: BorrowedFd<'_>, dir: &str) -> Result<(u32, u32), Errno> {
    let stat = if dir.is_empty() {
        fstat(base)?
    } else {
        let (parent, name) = walk::split(dir);
        let holder = walk::dir_handle(base, parent)?;
        statat(holder, name, AtFlags::SYMLINK_NOFOLLOW)?
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok((stat.st_mode & 0o7777, stat.st_uid)),
        _ => Err(Errno::NOTDIR),
    }
}

/// Gives a directory this mode, whether or not it can be read.
pub(crate) fn set_mode(base: BorrowedFd<'_>, dir: &str, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode);
    if dir.is_empty() {
        return fchmod(base, mode);
    }
    // A directory without a bit for reading can be opened as a handle only, which takes no mode
    // itself; the kernel's name for the handle does.
    let handle: OwnedFd = walk::dir_handle(base, dir)?;
    let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
    match chmodat(CWD, name, mode, AtFlags::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let (parent, name) = walk::split(dir);
            let holder = walk::dir_handle(base, parent)?;
            chmodat(holder.as_fd(), name, mode, AtFlags::empty())
        }
        set => set,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn bits_are_lent_beneath_the_object_alone_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("holder/object/sub")).unwrap();
        let mode = |name: &str| fs::metadata(path(name)).unwrap().mode() & 0o777;
        for (name, bits) in [("holder/object/sub", 0), ("holder/object", 0o555), ("holder", 0o555)]
        {
            fs::set_permissions(path(name), Permissions::from_mode(bits)).unwrap();
        }
        let base = OwnedFd::from(File::open(dir.path()).unwrap());
        let user = rustix::process::geteuid().as_raw();
        let mut lent = Lent::default();
        assert!(!lent.lend(base.as_fd(), user, "holder/object/sub/file"), "nothing is allowed");
        lent.allow("holder/object");
        assert!(lent.lend(base.as_fd(), user, "holder/object/sub/file"));
        assert!(!lent.lend(base.as_fd(), user, "holder/object/sub/file"), "it has all bits now");
        assert_eq!(mode("holder/object"), 0o755);
        assert_eq!(mode("holder/object/sub"), 0o700);
        assert_eq!(mode("holder"), 0o555, "who holds the object decides about its directory");
        lent.give_back(base.as_fd());
        assert_eq!(mode("holder/object"), 0o555);
        fs::set_permissions(path("holder/object"), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(mode("holder/object/sub"), 0);
        assert!(!lent.lend(base.as_fd(), user + 1, "holder/object/sub/file"), "another's");
        for name in ["holder", "holder/object", "holder/object/sub"] {
            fs::set_permissions(path(name), Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn a_loan_of_a_process_that_was_killed_is_given_back_unless_the_mode_was_changed_since() {
        let dir = tempfile::tempdir().unwrap();
        let mode = || fs::metadata(dir.path().join("d")).unwrap().mode() & 0o777;
        let set = |bits| {
            fs::set_permissions(dir.path().join("d"), Permissions::from_mode(bits)).unwrap();
        };
        fs::create_dir(dir.path().join("d")).unwrap();
        let base = OwnedFd::from(File::open(dir.path()).unwrap());
        let user = rustix::process::geteuid().as_raw();
        for (now, then) in [(0o755, 0o555), (0o700, 0o700), (0o555, 0o555)] {
            set(now);
            let mut lent = Lent::default();
            lent.allow("d");
            lent.owe(base.as_fd(), user, "d", 0o555);
            lent.owe(base.as_fd(), user, "", 0o555);
            lent.give_back(base.as_fd());
            assert_eq!(mode(), then);
        }
    }
}
