//! Opening beneath a directory handle.
//!
//! A path is walked one component at a time with `openat`, each time refusing symbolic links, so
//! a link planted anywhere in it stops the walk. Paths are [`crate::RelPath`]s or built from them:
//! they hold no `..`, so together this stays beneath the handle on every kernel, without the
//! newer `openat2`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Flags of every open: never a link, never waiting for a pipe's other end, never inherited.
const CAREFUL: OFlags =
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// Opens a file, and waits if descriptors are used up: others give theirs back, and waiting for
/// them is better than failing.
fn openat(
    base: BorrowedFd<'_>,
    name: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    patiently(PATIENCE, || rustix::fs::openat(base, name, flags, mode))
}

/// Retries a bounded number of times while descriptors are used up, with a pause between.
fn patiently<T>(tries: u32, mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 1..tries {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => std::thread::sleep(PAUSE),
            opened => return opened,
        }
    }
    open()
}

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// Tries to get a descriptor: two seconds.
const PATIENCE: u32 = 100;

/// Opens the directory at `path` as a handle for further opening; `""` is the base itself.
pub(crate) fn dir_handle(base: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    walk_dir(base, path, OFlags::PATH)
}

/// Opens the directory at `path` for reading its entries; `""` is the base itself.
pub(crate) fn dir_for_reading(base: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    let (parent, name) = split(path);
    let last = if name.is_empty() { "." } else { name };
    let flags = CAREFUL | OFlags::DIRECTORY | OFlags::RDONLY;
    if parent.is_empty() {
        return openat(base, last, flags, Mode::empty());
    }
    openat(dir_handle(base, parent)?.as_fd(), last, flags, Mode::empty())
}

/// Opens something that is not to be a directory at `path`.
pub(crate) fn open(
    base: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let (parent, name) = split(path);
    if parent.is_empty() {
        return openat(base, name, flags | CAREFUL, mode);
    }
    openat(dir_handle(base, parent)?.as_fd(), name, flags | CAREFUL, mode)
}

/// Opens a file directly in `dir`, whatever bytes its name has.
pub(crate) fn open_bytes(
    dir: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    openat(dir, name, flags | CAREFUL, Mode::empty())
}

/// The directory part and the last component of a path; the first is empty if there is none.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn walk_dir(base: BorrowedFd<'_>, path: &str, how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = CAREFUL | OFlags::DIRECTORY | how;
    let mut at: Option<OwnedFd> = None;
    for component in path.split('/') {
        let component = if component.is_empty() { "." } else { component };
        let from = at.as_ref().map_or(base, |fd| fd.as_fd());
        at = Some(openat(from, component, flags, Mode::empty())?);
    }
    Ok(at.expect("a split has at least one part"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_waited_for_and_no_other_failure_is() {
        let mut tries = 0;
        let opened = patiently(5, || {
            tries += 1;
            if tries < 3 { Err(Errno::MFILE) } else { Ok(tries) }
        });
        assert_eq!(opened, Ok(3));
        assert_eq!(patiently(2, || Err::<(), _>(Errno::NFILE)), Err(Errno::NFILE));
        let mut asked = 0;
        let refused = patiently(5, || {
            asked += 1;
            Err::<(), _>(Errno::ACCESS)
        });
        assert_eq!((refused, asked), (Err(Errno::ACCESS), 1));
    }
}
