//! What the kernel knows of a TCP socket that another process holds as well.
//!
//! A socket that was passed on has two owners, and both see what either does to it. This module
//! reads what must be known before the socket is connected on its owner's behalf, and clears the
//! few settings that would keep it from reaching this host.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_NETNS_COOKIE` of Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;
/// `SO_BINDTOIFINDEX` of Linux 5.0.
const SO_BINDTOIFINDEX: libc::c_int = 62;
/// `TCP_CLOSE`: neither connected nor about to be, nor listening.
const TCP_CLOSE: u8 = 7;

/// Whether a socket is free to be connected: neither connected, nor connecting, nor listening.
///
/// # Errors
/// What the kernel says, where it is no socket of TCP.
pub fn is_free(socket: impl AsFd) -> io::Result<bool> {
    let (mut state, mut length) = ([0_u8; 1], 1);
    get(socket, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut state, &mut length)?;
    Ok(state == [TCP_CLOSE])
}

/// The kernel's number of a socket's network namespace; `None` where the kernel does not say.
pub fn network(socket: impl AsFd) -> Option<u64> {
    let (mut value, mut length) = ([0_u8; 8], 8);
    get(socket, (libc::SOL_SOCKET, SO_NETNS_COOKIE), &mut value, &mut length).ok()?;
    (length == 8).then(|| u64::from_ne_bytes(value))
}

/// Has the kernel call a socket writable only while fewer bytes than this wait in it that were
/// never sent (`TCP_NOTSENT_LOWAT`): what is written then leaves soon.
///
/// # Errors
/// What the kernel says.
pub fn limit_unsent(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    socket2::SockRef::from(&socket).set_tcp_notsent_lowat(bytes)
}

/// Options of a socket's that were cleared, with the values that they had.
#[derive(Debug)]
#[must_use]
pub struct Cleared(Vec<(Name, [u8; 4])>);

/// An option's level and name.
type Name = (libc::c_int, libc::c_int);

impl Cleared {
    /// Sets them again, for a socket that did not come to reach this host after all.
    pub fn restore(self, socket: impl AsFd) {
        for (option, value) in self.0 {
            // What cannot be set again stays cleared: whoever clears it has the right to set it.
            let _ = set(&socket, option, value);
        }
    }
}

/// Lets a socket reach this host's own addresses: one that was bound to a network device cannot,
/// and one that opens fast says nothing before its owner writes. Returns what that has cleared.
///
/// # Errors
/// What the kernel says; leaving a device needs a right (`CAP_NET_RAW`). Nothing is cleared then.
pub fn let_reach_itself(socket: impl AsFd) -> io::Result<Cleared> {
    let device = (libc::SOL_SOCKET, SO_BINDTOIFINDEX);
    let mut cleared = Cleared(Vec::new());
    for option in [device, (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT)] {
        let (mut value, mut length) = ([0_u8; 4], 4);
        // A kernel that does not know one has not set it.
        if get(&socket, option, &mut value, &mut length).is_err() || value == [0; 4] {
            continue;
        }
        if let Err(error) = set(&socket, option, [0; 4]) {
            cleared.restore(&socket);
            return Err(error);
        }
        cleared.0.push((option, value));
    }
    Ok(cleared)
}

fn get(
    socket: impl AsFd,
    (level, name): Name,
    value: &mut [u8],
    length: &mut libc::socklen_t,
) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    *length = (*length).min(value.len() as libc::socklen_t);
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the kernel writes at
    // most `length` bytes, which `value` has.
    let failed =
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut *length) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set(socket: impl AsFd, (level, name): Name, value: [u8; 4]) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the kernel reads four
    // bytes, which `value` has.
    let failed = unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), 4) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_socket_is_free_until_it_listens_or_is_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().unwrap()).expect("a connection");
        assert!(!is_free(&listener).unwrap() && !is_free(&stream).unwrap());
        let kind = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
        let new = rustix::net::socket(kind.0, kind.1, None).unwrap();
        assert!(is_free(&new).unwrap());
        assert!(is_free(std::fs::File::open("/dev/null").unwrap()).is_err());
        assert!(network(&new).is_some_and(|number| network(&stream) == Some(number)));
        let_reach_itself(&new).unwrap().restore(&new);
    }

    #[test]
    fn what_was_cleared_of_a_socket_comes_back() {
        let kind = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
        let socket = rustix::net::socket(kind.0, kind.1, None).unwrap();
        let fast = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
        let is_set = || {
            let (mut value, mut length) = ([0_u8; 4], 4);
            get(&socket, fast, &mut value, &mut length).unwrap();
            value != [0; 4]
        };
        set(&socket, fast, 1_u32.to_ne_bytes()).unwrap();
        let cleared = let_reach_itself(&socket).unwrap();
        assert!(!is_set());
        cleared.restore(&socket);
        assert!(is_set());
    }
}
