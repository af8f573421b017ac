//! How full a socket's receive buffer is.
//!
//! The kernel says it for one system call (`SO_MEMINFO`), so a receiver that does not keep up can
//! know it before anything is lost, and tell it from a loss on the way. Memory counts with the
//! kernel's own bookkeeping, about twice the datagrams' bytes; after a read the kernel may keep up
//! to a quarter of the buffer booked until the buffer is empty. It counts drops too, but among them
//! datagrams with wrong checksums, which anybody can send.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What the kernel says of a receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory that waiting datagrams take.
    pub waiting: u64,
    /// Memory that they may take.
    pub room: u64,
}

impl Pressure {
    /// The part of the room that is taken, 0 to about 1.
    pub fn filled(&self) -> f64 {
        self.waiting as f64 / self.room.max(1) as f64
    }
}

/// Places in the kernel's answer (`linux/sock_diag.h`).
const RMEM_ALLOC: usize = 0;
const RCVBUF: usize = 1;

/// Asks for a socket's pressure.
///
/// # Errors
/// When the kernel does not answer: it is older than 4.12.
pub(crate) fn of(socket: &impl AsFd) -> io::Result<Pressure> {
    let mut answer = [0_u32; RCVBUF + 1];
    let mut length = size_of_val(&answer) as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and so open; `answer` is writable for `length` bytes, and
    // any bits are valid in it. The kernel writes at most so many.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            answer.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    if (length as usize) < size_of_val(&answer) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a kernel that does not tell of memory",
        ));
    }
    let [waiting, room] = [RMEM_ALLOC, RCVBUF].map(|place| u64::from(answer[place]));
    Ok(Pressure { waiting, room })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn what_waits_is_seen_until_it_is_taken() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&to, 8_192).unwrap();
        let empty = of(&to).unwrap();
        assert_eq!((empty.waiting, empty.filled()), (0, 0.0));
        assert!(empty.room >= 8_192);
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            from.send_to(&[7; 1_000], to.local_addr().unwrap()).unwrap();
        }
        let full = of(&to).unwrap();
        assert!(full.filled() > 0.5, "{full:?}");
        to.set_nonblocking(true).unwrap();
        while to.recv(&mut [0; 2_000]).is_ok() {}
        assert_eq!(of(&to).unwrap().waiting, 0);
    }
}
