//! The socket at which programs find the pump of their user, and that there is one pump.
//!
//! A file beside the socket is locked as long as a pump lives, so that of two that start at once
//! one is the pump, and a socket is removed only where nobody stands behind it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use tokio::net::{UnixListener, UnixStream};

/// Where a pump is found, as long as this lives.
pub struct Door {
    path: PathBuf,
    listener: UnixListener,
    _lock: File,
}

/// Another pump that is about to begin or to end is waited for so long...
const PATIENCE: Duration = Duration::from_secs(10);
/// ...and looked at this often.
const LOOK_SPAN: Duration = Duration::from_millis(10);
/// Programs that may wait to be heard.
const BACKLOG: i32 = 128;

/// Whether a pump of this user's listens there.
pub fn is_there(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    gtp_share::Connection::open(path).is_ok_and(|pump| pump.peer().uid == own)
}

impl Door {
    /// Listens there, in a directory that is made if it is not there, for this user alone.
    ///
    /// # Errors
    /// `AddrInUse` where a pump listens already; else what the system says.
    pub async fn open(path: &Path) -> io::Result<Door> {
        use std::os::unix::fs::DirBuilderExt;
        if let Some(dir) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let lock = take_lock(path).await?;
        if is_there(path) {
            return Err(in_use());
        }
        Ok(Door { listener: listen_at(path)?, path: path.to_owned(), _lock: lock })
    }

    /// The next program that wants something. Safe to cancel.
    pub async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Closes it, unless somebody has come meanwhile: then it is open again, and he is let in.
    pub fn close(&mut self) -> io::Result<Option<UnixStream>> {
        std::fs::remove_file(&self.path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.listener, flags) {
            Ok(program) => {
                self.listener = listen_at(&self.path)?;
                Ok(Some(UnixStream::from_std(program.into())?))
            }
            Err(_) => Ok(None),
        }
    }
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "a pump listens there already")
}

/// The lock beside a socket.
async fn take_lock(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock: OwnedFd = rustix::fs::open(Path::new(&name), flags, Mode::RUSR | Mode::WUSR)?;
    let taking = async {
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) if is_there(path) => return Err(in_use()),
                Err(rustix::io::Errno::WOULDBLOCK) => tokio::time::sleep(LOOK_SPAN).await,
                taken => return Ok(taken?),
            }
        }
    };
    match tokio::time::timeout(PATIENCE, taking).await {
        Ok(taken) => taken.map(|()| lock.into()),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "another pump holds its place")),
    }
}

fn listen_at(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(kind.0, kind.1, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_door_that_somebody_comes_to_while_it_is_closed_is_open_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run").join("s");
        let mut door = Door::open(&path).await.unwrap();
        let late = gtp_share::Connection::open(&path).unwrap();
        assert!(door.close().unwrap().is_some() && is_there(&path));
        drop(late);
        while let Some(program) = door.close().unwrap() {
            drop(program); // The look above.
        }
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn of_many_that_come_at_once_one_has_the_door_and_the_next_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (first, second, third) =
            tokio::join!(Door::open(&path), Door::open(&path), Door::open(&path));
        let mut doors: Vec<_> = [first, second, third].into_iter().flatten().collect();
        assert_eq!(doors.len(), 1);
        assert!(is_there(&path));
        doors.clear();
        assert!(!is_there(&path) && path.exists(), "as one leaves it that was killed");
        Door::open(&path).await.unwrap();
    }
}
