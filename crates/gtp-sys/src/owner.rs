//! Whose a TCP connection is that comes from this host.
//!
//! A port on a loopback address is open to every user, and what comes there does not say whose it
//! is, as a Unix socket would. The kernel knows: it tells the user who made the socket at the other
//! end. What that allows the user is for others to decide; this file must not know.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY`, of a question and of its answer.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `TCP_ESTABLISHED`. A socket in any other state may have lost its owner, and then the kernel
/// names root.
const ESTABLISHED: u8 = 1;
/// Bytes of a message's head.
const HEAD: usize = 16;
/// Bytes of a question: its head, and what the kernel calls `inet_diag_req_v2`.
const QUESTION: usize = HEAD + 56;
/// Bytes of an answer without what may follow: its head, and `inet_diag_msg`.
const ANSWER: usize = HEAD + 72;
/// Bytes of the names of both ends, at the same place in an answer behind four others.
const NAMES: usize = 36;

/// The user who made the socket at the other end of a connection within this host, `local` being
/// this end's address and `peer` the other's. `None` if there is no such socket, or it is not
/// connected any more.
///
/// # Errors
/// What the kernel says; where it may not be asked that is an error as well.
pub fn owner(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
    let question = question(peer, local);
    send(&kernel, &question, SendFlags::empty())?;
    let mut answer = [0; 512];
    // The kernel has answered when the question is sent.
    let (length, _) = recv(&kernel, &mut answer[..], RecvFlags::empty())?;
    Ok(read(&answer[..length], &question))
}

/// Asks for the socket whose own address is `near` and which is connected to `far`.
fn question(near: SocketAddr, far: SocketAddr) -> [u8; QUESTION] {
    let mut all = [0; QUESTION];
    all[..4].copy_from_slice(&(QUESTION as u32).to_ne_bytes());
    all[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    all[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    let body = &mut all[HEAD..];
    body[0] = if near.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8;
    body[1] = libc::IPPROTO_TCP as u8;
    body[4..8].copy_from_slice(&(1_u32 << ESTABLISHED).to_ne_bytes());
    let names = &mut body[8..8 + NAMES];
    names[..2].copy_from_slice(&near.port().to_be_bytes());
    names[2..4].copy_from_slice(&far.port().to_be_bytes());
    put(&mut names[4..20], near.ip());
    put(&mut names[20..36], far.ip());
    // Whichever socket has these names.
    body[48..56].fill(0xff);
    all
}

fn put(place: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => place[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => place.copy_from_slice(&address.octets()),
    }
}

/// The owner, if this answers the question with a socket that is connected and has one.
fn read(answer: &[u8], question: &[u8; QUESTION]) -> Option<u32> {
    let answer = answer.get(..ANSWER)?;
    let body = &answer[HEAD..];
    let word = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let is_it = answer[4..6] == BY_FAMILY.to_ne_bytes()
        && body[1] == ESTABLISHED
        && body[4..4 + NAMES] == question[HEAD + 8..HEAD + 8 + NAMES];
    // A socket without an inode is nobody's any more.
    word(68).filter(|&inode| is_it && inode != 0)?;
    word(64)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair(at: &str) -> Option<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(at).ok()?;
        let near = TcpStream::connect(listener.local_addr().ok()?).ok()?;
        Some((listener.accept().ok()?.0, near))
    }

    #[test]
    fn a_connection_from_this_process_is_its_users_over_both_protocols() {
        let own = rustix::process::geteuid().as_raw();
        let v4 = pair("127.0.0.1:0").expect("a connection");
        // There may be no IPv6 here.
        for (taken, _near) in [Some(v4), pair("[::1]:0")].into_iter().flatten() {
            let (local, peer) = (taken.local_addr().unwrap(), taken.peer_addr().unwrap());
            assert_eq!(owner(local, peer).unwrap(), Some(own), "{local}");
        }
    }

    #[test]
    fn a_socket_that_is_closed_or_never_was_there_is_nobodys() {
        let (taken, near) = pair("127.0.0.1:0").expect("a connection");
        let (local, peer) = (taken.local_addr().unwrap(), taken.peer_addr().unwrap());
        drop(near);
        assert!(!matches!(owner(local, peer), Ok(Some(_))), "it may be root's by its number");
        assert!(!matches!(owner(peer, peer), Ok(Some(_))));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = listener.local_addr().unwrap();
        assert!(!matches!(owner(peer, listening), Ok(Some(_))), "it only listens");
    }

    #[test]
    fn an_answer_that_is_cut_or_another_sockets_names_nobody() {
        let (taken, near) = pair("127.0.0.1:0").expect("a connection");
        let asked = question(near.local_addr().unwrap(), taken.local_addr().unwrap());
        let mut answer = [0; ANSWER];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[HEAD + 1] = ESTABLISHED;
        answer[HEAD + 4..HEAD + 4 + NAMES].copy_from_slice(&asked[HEAD + 8..HEAD + 8 + NAMES]);
        answer[HEAD + 64..HEAD + 68].copy_from_slice(&1_000_u32.to_ne_bytes());
        assert_eq!(read(&answer, &asked), None, "without an inode");
        answer[HEAD + 68] = 7;
        assert_eq!(read(&answer, &asked), Some(1_000));
        for end in 0..ANSWER {
            assert_eq!(read(&answer[..end], &asked), None);
        }
        for (at, other) in [(4, 2), (HEAD + 1, 6), (HEAD + 4, 1), (HEAD + 39, 9)] {
            let mut answer = answer;
            answer[at] ^= other;
            assert_eq!(read(&answer, &asked), None, "byte {at}");
        }
    }
}
