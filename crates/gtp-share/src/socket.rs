//! The Unix socket between processes and daemon: whole messages, descriptors with them, and who
//! the other is.
//!
//! Sequenced packets keep messages apart without framing, and the end of the connection is the end
//! of the process, however that came about. Who is at the other end is what the kernel says, never
//! what the other end says. Nothing here waits unless it is called `wait`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use gtp_alloc::Span;
use gtp_sys::Clock;
use gtp_sys::clock::duration;
use gtp_sys::peer::{Credentials, credentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, shutdown, socket_with,
};

/// Where the daemon waits for processes.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// One connection; never blocks but in [`Connection::wait`].
#[derive(Debug)]
pub struct Connection {
    fd: OwnedFd,
    peer: Credentials,
}

/// What one look at a connection brought.
#[derive(Debug)]
pub enum Incoming {
    /// A message of so many bytes, and the descriptors that came with it.
    Message(usize, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The other end is gone.
    End,
}

/// Connections that may wait to be taken; the kernel takes `net.core.somaxconn` if that is less,
/// 4,096 unless it was changed.
const BACKLOG: i32 = 4_096;
/// Descriptors taken with one message: the two pages.
const DESCRIPTORS: usize = 2;

impl Listener {
    /// Listens at a path where nothing is yet.
    ///
    /// # Errors
    /// When the path is taken, too long or not to be had.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        Listener::on(new_socket()?, path)
    }

    /// The same where only this user, and root, may connect, whatever the process's mask is.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_private(path: &Path) -> io::Result<Listener> {
        let fd = new_socket()?;
        // The name gets the mode that the socket has.
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
        Listener::on(fd, path)
    }

    fn on(fd: OwnedFd, path: &Path) -> io::Result<Listener> {
        bind(&fd, &SocketAddrUnix::new(path)?)?;
        listen(&fd, BACKLOG)?;
        Ok(Listener(fd))
    }

    /// Takes over a socket that somebody else bound and made to listen.
    ///
    /// # Errors
    /// When it cannot be made non-blocking.
    pub fn adopt(fd: OwnedFd) -> io::Result<Listener> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Listener(fd))
    }

    /// The next process that wants something, if there is one now.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        match accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(fd) => Connection::new(fd).map(Some),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Connection {
    /// Connects to whoever listens at `path`.
    ///
    /// # Errors
    /// When nobody does, or too many wait there already.
    pub fn open(path: &Path) -> io::Result<Connection> {
        let fd = new_socket()?;
        connect(&fd, &SocketAddrUnix::new(path)?)?;
        Connection::new(fd)
    }

    fn new(fd: OwnedFd) -> io::Result<Connection> {
        Ok(Connection { peer: credentials(&fd)?, fd })
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Credentials {
        self.peer
    }

    /// Sends one message with up to two descriptors.
    ///
    /// # Errors
    /// `WouldBlock` when the other end does not read; else when it is gone.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("more descriptors than a message carries"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut control, flags)?;
        Ok(())
    }

    /// Takes what has come, if anything has, into `buffer`. A message that is longer than it is
    /// cut; of descriptors beyond two the kernel keeps nothing.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Incoming> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = match recvmsg(&self.fd, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Incoming::Nothing),
            Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Incoming::End),
            Err(error) => return Err(error.into()),
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        // Nobody sends empty messages.
        Ok(if got.bytes == 0 { Incoming::End } else { Incoming::Message(got.bytes, fds) })
    }

    /// Waits until something can be received, `millis` at most (`None`: for ever); says whether
    /// it can.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self, millis: Option<u32>) -> io::Result<bool> {
        // A signal ends no wait before its time.
        let clock = Clock::start();
        let until = millis.map(|m| clock.now() + Span::from_millis(u64::from(m)));
        loop {
            let left = until.map(|until| duration(until.since(clock.now())));
            let timeout = left.map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], timeout.as_ref()) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends the connection for all who hold it.
    pub fn end(&self) {
        // It fails only when it has ended already.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors_and_its_sender() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = Listener::bind(&path).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let near = Connection::open(&path).unwrap();
        let far = listener.accept().unwrap().unwrap();
        assert_eq!(far.peer().uid, rustix::process::geteuid().as_raw());
        assert_eq!(far.peer().pid, std::process::id() as i32);
        let mut buffer = [0; 16];
        assert!(matches!(far.receive(&mut buffer).unwrap(), Incoming::Nothing));
        near.send(b"hello", &[near.as_fd(), near.as_fd()]).unwrap();
        let Incoming::Message(5, fds) = far.receive(&mut buffer).unwrap() else { panic!() };
        assert_eq!((&buffer[..5], fds.len()), (&b"hello"[..], 2));
        drop((near, fds));
        assert!(far.wait(None).unwrap());
        assert!(matches!(far.receive(&mut buffer).unwrap(), Incoming::End));
    }

    #[test]
    fn one_that_does_not_read_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = Listener::bind(&path).unwrap();
        let near = Connection::open(&path).unwrap();
        let _far = listener.accept().unwrap().unwrap();
        let full = (0..100_000).find_map(|_| near.send(&[0; 1_000], &[]).err());
        assert_eq!(full.map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
    }
}
