//! Several sockets on one port, each with its own part of the datagrams.
//!
//! The kernel chooses by a word of the datagram itself (`SO_ATTACH_REUSEPORT_CBPF`, Linux 4.5; no
//! privilege is needed), not by its addresses: so a peer whose address changes stays where it is.
//! Where datagrams were glued together on the way in, the first one's word counts for all of them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};

use crate::udp::UdpSocket;

/// Which of `sockets` a datagram goes to: the word of 32 bits, the first byte the highest, that
/// begins at byte `at`, modulo their number. One that is shorter goes to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByWord {
    /// Where the word begins, in bytes from the datagram's beginning.
    pub at: u32,
    /// How many sockets there are, at least one.
    pub sockets: u32,
}

/// Binds sockets to one address, which must be free. Port 0 takes one that is. A kernel that does
/// not choose so gives one socket, for everything.
///
/// A process of the same user may bind to the port later and get a part of the datagrams.
///
/// # Errors
/// When the address is not to be had.
pub fn bind(addr: SocketAddr, steering: ByWord) -> io::Result<Vec<UdpSocket>> {
    if steering.sockets <= 1 {
        return Ok(vec![UdpSocket::bind(addr)?]);
    }
    // Bound for sharing alone, a port that another process shares would not be seen to be in use.
    let port = std::net::UdpSocket::bind(addr)?.local_addr()?;
    let mut sockets = Vec::new();
    for _ in 0..steering.sockets {
        let socket = Socket::new(Domain::for_address(port), Type::DGRAM, Some(Protocol::UDP))?;
        sockopt::set_socket_reuseport(&socket, true)?;
        socket.bind(&port.into())?;
        sockets.push(UdpSocket::from_std(socket.into())?);
    }
    match sockets.first().map(|first| attach(first, steering)) {
        Some(Ok(())) => Ok(sockets),
        Some(Err(_)) | None => {
            drop(sockets);
            Ok(vec![UdpSocket::bind(port)?])
        }
    }
}

/// Gives the sockets' group its program.
fn attach(socket: &impl AsFd, steering: ByWord) -> io::Result<()> {
    let line = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut lines = [
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, steering.at),
        line(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, steering.sockets),
        line(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    // SAFETY: the descriptor is borrowed and so open; `program` and the lines that it points to
    // live until the call is over, and the kernel copies them.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::ReceiveBatch;
    use crate::wake::Poller;

    fn datagram(word: u32) -> Vec<u8> {
        let mut bytes = vec![7];
        bytes.extend(word.to_be_bytes());
        bytes
    }

    /// The words that each socket has received, `count` of them in all.
    fn words(sockets: &[UdpSocket], count: usize) -> Vec<Vec<u32>> {
        let poller = Poller::new().unwrap();
        let mut batch = ReceiveBatch::new();
        let mut words = vec![Vec::new(); sockets.len()];
        while words.iter().map(Vec::len).sum::<usize>() < count {
            let fds = sockets.iter().map(AsFd::as_fd);
            poller.wait(fds, &mut vec![false; sockets.len()], None).unwrap();
            for (socket, words) in sockets.iter().zip(&mut words) {
                while socket.receive(&mut batch).unwrap() {
                    let word = |bytes: &mut [u8]| {
                        let word = bytes.get(1..5).and_then(|word| word.try_into().ok());
                        word.map_or(0, u32::from_be_bytes)
                    };
                    words.extend(batch.datagrams().map(|(_, _, bytes)| word(bytes)));
                }
            }
        }
        words
    }

    #[test]
    fn a_datagram_goes_to_the_socket_that_its_word_names_whoever_sent_it() {
        for any in ["127.0.0.1:0", "[::]:0"] {
            let steering = ByWord { at: 1, sockets: 3 };
            let Ok(sockets) = bind(any.parse().unwrap(), steering) else {
                assert!(any.starts_with('['), "IPv4 is everywhere");
                continue;
            };
            let port = sockets[0].local_addr().port();
            assert!(sockets.iter().all(|socket| socket.local_addr().port() == port));
            let sent: Vec<u32> = (0..24).map(|i| i * 0x0a0b_0c0d).collect();
            for word in &sent {
                let from = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                from.send_to(&datagram(*word), ("127.0.0.1", port)).unwrap();
            }
            let words = words(&sockets, sent.len());
            for (i, words) in words.iter().enumerate() {
                let of = |word: &u32| word % steering.sockets == i as u32;
                let named: Vec<u32> = sent.iter().copied().filter(of).collect();
                assert_eq!(*words, named, "socket {i}");
            }
        }
    }

    #[test]
    fn a_datagram_without_the_word_goes_to_the_first() {
        let sockets = bind("127.0.0.1:0".parse().unwrap(), ByWord { at: 1, sockets: 2 }).unwrap();
        let from = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        from.send_to(b"abc", sockets[0].local_addr()).unwrap();
        assert_eq!(words(&sockets, 1), [vec![0], vec![]]);
    }

    #[test]
    fn an_address_in_use_is_an_error() {
        let held = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = bind(held.local_addr().unwrap(), ByWord { at: 1, sockets: 2 }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
