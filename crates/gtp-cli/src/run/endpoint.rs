//! The socket at which programs find the pump of their user, and that there is one pump.
//!
//! A file beside the socket is locked as long as a pump lives, so that of two that start at once
//! one is the pump, and a socket is removed only where nobody stands behind it. Where a pump is
//! kept, lock and socket are its keeper's too, and outlive it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use tokio::net::{UnixListener, UnixStream};

use super::place;

/// Where a pump is found, as long as this lives.
pub struct Endpoint {
    path: PathBuf,
    listener: UnixListener,
    /// None where a keeper has it.
    lock: Option<File>,
}

/// Another pump that is about to begin or to end is waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// A pump that is waited for is looked at this often.
const LOOK_SPAN: Duration = Duration::from_millis(10);
/// What the name of a socket that is being closed ends with.
const CLOSING: &str = ".closing";
/// Programs that may wait to be heard.
const BACKLOG: i32 = 128;

/// Whether a pump of this user's listens there.
pub fn is_there(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    gtp_share::Connection::open(path).is_ok_and(|pump| pump.peer().uid == own)
}

impl Endpoint {
    /// Listens there, in a directory that is made if it is not there, for this user alone.
    ///
    /// # Errors
    /// `AddrInUse` where a pump listens already; else what the system says.
    pub async fn open(path: &Path) -> io::Result<Endpoint> {
        place::make_dir_of(path)?;
        let lock = take_lock(path).await?;
        if is_there(path) {
            return Err(in_use());
        }
        Ok(Endpoint { listener: listen_at(path)?, path: path.to_owned(), lock: Some(lock) })
    }

    /// The endpoint of this process's keeper, which is `open` already. If the pump before this one
    /// was killed as it closed it, it is found again.
    ///
    /// # Errors
    /// Where it is none.
    pub fn of_keeper(path: &Path, open: OwnedFd) -> io::Result<Endpoint> {
        // Mostly none was left aside.
        let _ = renameat_with(CWD, beside(path, CLOSING), CWD, path, RenameFlags::NOREPLACE);
        let listener = UnixListener::from_std(open.into())?;
        Ok(Endpoint { listener, path: path.to_owned(), lock: None })
    }

    /// The socket and its lock, for another process to have as well: the lock passes on to whatever
    /// this one starts, and is free only when all have ended.
    ///
    /// # Errors
    /// What the system says.
    pub fn hand_over(self) -> io::Result<(OwnedFd, Option<File>)> {
        if let Some(lock) = &self.lock {
            rustix::io::fcntl_setfd(lock, rustix::io::FdFlags::empty())?;
        }
        Ok((self.listener.into_std()?.into(), self.lock))
    }

    /// The next program that wants something. Safe to cancel.
    pub async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Closes it, unless somebody has come meanwhile: then it stays open and lets the caller in.
    ///
    /// # Errors
    /// Where somebody has come who cannot be let in now. It is open again then as well.
    pub fn close(&mut self) -> io::Result<Option<UnixStream>> {
        self.close_unless(|listener| {
            accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        })
    }

    fn close_unless(
        &mut self,
        accept: impl Fn(&UnixListener) -> rustix::io::Result<OwnedFd>,
    ) -> io::Result<Option<UnixStream>> {
        // Where it was removed by somebody else, nobody can come.
        let aside = beside(&self.path, CLOSING);
        let moved = std::fs::rename(&self.path, &aside).is_ok();
        let come = loop {
            match accept(&self.listener) {
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                come => break come,
            }
        };
        match come {
            Err(Errno::AGAIN) => {
                // A kept pump that is killed before it has ended is followed by another, which
                // needs the name.
                if self.lock.is_some() {
                    forget(&self.path);
                }
                Ok(None)
            }
            come => {
                if moved {
                    std::fs::rename(aside, &self.path)?;
                }
                UnixStream::from_std(come?.into()).map(Some)
            }
        }
    }
}

/// Removes the name of an endpoint that was closed.
pub fn forget(path: &Path) {
    // A file that leads nowhere does no harm.
    let _ = std::fs::remove_file(beside(path, CLOSING));
}

/// A file beside the socket.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "a pump listens there already")
}

/// The lock beside a socket.
async fn take_lock(path: &Path) -> io::Result<File> {
    let name = beside(path, ".lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock: OwnedFd = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR)?;
    let taking = async {
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if is_there(path) => return Err(in_use()),
                Err(Errno::WOULDBLOCK) => tokio::time::sleep(LOOK_SPAN).await,
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
    async fn an_endpoint_that_somebody_comes_to_while_it_is_closed_is_open_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run").join("s");
        let mut endpoint = Endpoint::open(&path).await.unwrap();
        let late = gtp_share::Connection::open(&path).unwrap();
        assert!(endpoint.close().unwrap().is_some() && is_there(&path));
        drop(late);
        while let Some(program) = endpoint.close().unwrap() {
            drop(program); // The look above.
        }
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn an_endpoint_stays_open_where_it_cannot_be_seen_who_has_come() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mut endpoint = Endpoint::open(&path).await.unwrap();
        for trouble in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            let closed = endpoint.close_unless(|_| Err(trouble));
            assert_eq!(closed.unwrap_err().raw_os_error(), Some(trouble.raw_os_error()));
            assert!(is_there(&path));
        }
        let come = std::cell::Cell::new(3);
        let closed = endpoint.close_unless(|_| match come.replace(come.get() - 1) {
            0 => Err(Errno::AGAIN),
            _ => Err(Errno::CONNABORTED),
        });
        assert!(closed.unwrap().is_none() && !path.exists(), "all of them have gone again");
    }

    #[tokio::test]
    async fn an_endpoint_that_was_handed_over_keeps_programs_waiting_and_others_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (kept, lock) = Endpoint::open(&path).await.unwrap().hand_over().unwrap();
        let waits = gtp_share::Connection::open(&path).unwrap();
        assert!(Endpoint::open(&path).await.is_err(), "there is one already");
        drop((waits, kept, lock));
        Endpoint::open(&path).await.unwrap();
    }

    #[tokio::test]
    async fn an_endpoint_whose_pump_was_killed_as_it_closed_it_is_found_by_way_of_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (kept, _lock) = Endpoint::open(&path).await.unwrap().hand_over().unwrap();
        let mut killed = Endpoint::of_keeper(&path, kept.try_clone().unwrap()).unwrap();
        assert!(killed.close().unwrap().is_none() && !is_there(&path));
        let _next = Endpoint::of_keeper(&path, kept.try_clone().unwrap()).unwrap();
        assert!(is_there(&path) && !beside(&path, CLOSING).exists());
        std::fs::write(beside(&path, CLOSING), "old").unwrap();
        let _third = Endpoint::of_keeper(&path, kept).unwrap();
        assert!(is_there(&path), "what is there stays");
        forget(&path);
        assert!(is_there(&path) && !beside(&path, CLOSING).exists());
    }

    #[tokio::test]
    async fn of_many_that_come_at_once_one_has_the_endpoint_and_the_next_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (first, second, third) =
            tokio::join!(Endpoint::open(&path), Endpoint::open(&path), Endpoint::open(&path));
        let mut endpoints: Vec<_> = [first, second, third].into_iter().flatten().collect();
        assert_eq!(endpoints.len(), 1);
        assert!(is_there(&path));
        endpoints.clear();
        assert!(!is_there(&path) && path.exists(), "as one leaves it that was killed");
        Endpoint::open(&path).await.unwrap();
    }
}
