//! Who is at the other end of a Unix socket.
//!
//! It is what the kernel noted when the connection was made, and never what the other says of
//! himself. What that allows him is for others to decide.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A process at the other end, at the time when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Effective user.
    pub uid: u32,
    /// Process; zero if it lives in a namespace of processes that is not seen from here.
    pub pid: i32,
}

/// Who connected, or listened, at the other end of `socket`.
///
/// # Errors
/// What the kernel says; `NotConnected` if there is nobody, or `socket` is none between processes.
pub fn credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the kernel writes
    // at most `length` bytes into `found`, for which all bits are valid.
    let failed = unsafe {
        let at = (&raw mut found).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, at, &mut length)
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    if found.uid == u32::MAX {
        // The kernel answers so, without an error, where there is no other process.
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(Credentials { uid: found.uid, pid: found.pid })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let found = credentials(&one).expect("credentials");
        assert_eq!(found.pid, std::process::id() as i32);
        assert_eq!(found, credentials(&other).expect("credentials"));
    }

    #[test]
    fn where_there_is_no_other_process_is_an_error() {
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(credentials(&file).is_err());
        let alone = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        assert!(credentials(&alone).is_err());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let tcp = std::net::TcpStream::connect(at).expect("a connection");
        assert!(credentials(&tcp).is_err());
    }
}
