//! The daemon's place: one socket, one daemon, and whether another was there before.
//!
//! A lock beside the socket says who the daemon is; it goes with the process, however that ends. A
//! socket that is found without its daemon means that one has died, and that its processes may be
//! on their way back with what it had granted; the lock's file says how many these are. A socket
//! from the system's manager may mean the same, and nobody knows how many.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gtp_share::Listener;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Whether there may be processes that another daemon has granted something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// None has been here, or it ended well.
    Nobody,
    /// One has died that so many processes were to come back to.
    Left(usize),
    /// One has died, or nobody knows.
    Perhaps,
}

/// A place held; given up when dropped.
#[derive(Debug)]
pub struct Claim {
    listener: Listener,
    before: Before,
    held: Option<(PathBuf, File)>,
}

/// Why a place is not to be had.
#[derive(Debug)]
pub enum ClaimError {
    /// Another daemon is there.
    Taken,
    /// The system refuses.
    Io(io::Error),
}

impl From<io::Error> for ClaimError {
    fn from(error: io::Error) -> ClaimError {
        ClaimError::Io(error)
    }
}

impl Claim {
    /// Listens at `path`; makes its directory if it is not there: for this user alone, or for
    /// everybody to enter if this is root, whose daemon is the whole machine's.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn at(path: &Path) -> Result<Claim, ClaimError> {
        if let Some(dir) = path.parent()
            && !dir.exists()
        {
            let mode = if rustix::process::geteuid().is_root() { 0o755 } else { 0o700 };
            DirBuilder::new().recursive(true).mode(mode).create(dir)?;
            // Whatever the mask of the shell from which it is run.
            std::fs::set_permissions(dir, Permissions::from_mode(mode))?;
        }
        let lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path.with_extension("lock"))?;
        // Whoever may open it may lock it, and keep every daemon from beginning.
        lock.set_permissions(Permissions::from_mode(0o600))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(ClaimError::Taken),
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let before = match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                std::fs::remove_file(path)?;
                noted(&lock).map_or(Before::Perhaps, Before::Left)
            }
            Ok(_) => {
                let text = format!("{}: is there and is no socket", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text).into());
            }
            Err(_) => Before::Nobody,
        };
        let listener = Listener::bind(path)?;
        // Who may come is decided by the directory; who comes is known by the kernel.
        std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
        Ok(Claim { listener, before, held: Some((path.to_owned(), lock)) })
    }

    /// Takes over the listening socket that the system's manager made.
    ///
    /// # Errors
    /// When it is no socket.
    pub fn from_manager(socket: impl AsFd) -> Result<Claim, ClaimError> {
        let fd: OwnedFd = socket.as_fd().try_clone_to_owned()?;
        Ok(Claim { listener: Listener::adopt(fd)?, before: Before::Perhaps, held: None })
    }

    /// Where processes come.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Who was there before.
    pub fn before(&self) -> Before {
        self.before
    }

    /// Leaves word for a next daemon of how many processes are here.
    pub fn note(&self, processes: usize) {
        if let Some((path, lock)) = &self.held
            && let Err(error) = lock.write_all_at(format!("{processes:<NOTE$}\n").as_bytes(), 0)
        {
            tracing::warn!("{}: {error}", path.with_extension("lock").display());
        }
    }
}

/// Characters of a note.
const NOTE: usize = 8;

/// What the last daemon noted, if it did.
fn noted(lock: &File) -> Option<usize> {
    let mut text = [0; NOTE + 1];
    lock.read_exact_at(&mut text, 0).ok()?;
    str::from_utf8(&text).ok()?.trim_end().parse().ok()
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((path, _lock)) = &self.held {
            // If it is gone already, all the better.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_daemon_and_remembers_one_that_died() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gtp").join("gtpd.sock");
        let first = Claim::at(&path).unwrap();
        assert_eq!(first.before(), Before::Nobody);
        let mode = std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
        let root = rustix::process::geteuid().is_root();
        assert_eq!(mode & 0o777, if root { 0o755 } else { 0o700 });
        assert!(matches!(Claim::at(&path), Err(ClaimError::Taken)));
        drop(first);
        let mut died = Claim::at(&path).unwrap();
        assert_eq!(died.before(), Before::Nobody, "the last one ended well");
        died.held = None; // As if it was killed: the lock is gone, the socket is not.
        drop(died);
        let mut died = Claim::at(&path).unwrap();
        assert_eq!(died.before(), Before::Perhaps, "it noted nothing");
        died.note(120);
        died.note(7);
        died.held = None;
        drop(died);
        assert_eq!(Claim::at(&path).unwrap().before(), Before::Left(7));
    }

    #[test]
    fn what_is_no_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        std::fs::write(&path, "kept").unwrap();
        assert!(matches!(Claim::at(&path), Err(ClaimError::Io(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }
}
