//! What a program's calls ask of the pump, and what it answers.
//!
//! One connection per question, a line each way over a socket that keeps messages apart. The
//! system calls are made directly and not through the C library, whose calls are ours.

use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, getsockname, recvmsg, send, socket_with, sockopt,
    sockopt::Timeout,
};

use crate::border::is_own;

/// A pump answers within this, or hangs.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// Longest answer.
const ANSWER_MAX: usize = 1_024;
/// Descriptors of ours begin here, so that a program's own have the numbers that they would have.
const DESCRIPTORS: i32 = 512;

/// What becomes of a connection.
pub enum Answer {
    /// It is there.
    Connected(OwnedFd),
    /// The peer has no GTP; why is said.
    Without(String),
    /// It cannot be: the error number, and why.
    Refused(i32, String),
}

/// A socket on which a program listens, as the pump knows it again.
pub struct Listener {
    /// Where.
    pub at: SocketAddr,
    /// What stands for it as long as anybody holds it.
    pub inode: u64,
    /// Whether one for all addresses takes callers over IPv4.
    pub takes_v4: bool,
}

fn pump(place: &str) -> rustix::io::Result<OwnedFd> {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let pump = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
    connect(&pump, &SocketAddrUnix::new(place)?)?;
    // Anybody can listen where nobody does.
    if !is_own(&pump) {
        return Err(rustix::io::Errno::ACCESS);
    }
    sockopt::set_socket_timeout(&pump, Timeout::Recv, Some(PATIENCE))?;
    Ok(pump)
}

fn asked(place: &str, question: &str) -> rustix::io::Result<(String, Option<OwnedFd>)> {
    let pump = pump(place)?;
    send(&pump, question.as_bytes(), SendFlags::NOSIGNAL)?;
    receive(&pump)
}

/// Asks for a connection; waits until it is there or cannot be.
pub fn connection(place: &str, terms: &str, to: SocketAddr) -> Answer {
    read(asked(place, &format!("connect {to} {terms}")))
}

/// Asks for a connection over TCP within this host, where the kernel lets this process make none.
pub fn within(place: &str, to: SocketAddr) -> Answer {
    read(asked(place, &format!("within {to}")))
}

fn read(asked: rustix::io::Result<(String, Option<OwnedFd>)>) -> Answer {
    let (answer, descriptor) = match asked {
        Ok(answer) => answer,
        Err(errno) => return Answer::Without(format!("the pump does not answer: {errno}")),
    };
    match (answer.split_once(' ').unwrap_or((&answer, "")), descriptor) {
        (("ok", _), Some(descriptor)) => Answer::Connected(descriptor),
        (("no", rest), _) => {
            let (number, why) = rest.split_once(' ').unwrap_or((rest, ""));
            Answer::Refused(number.parse().unwrap_or(libc::ECONNREFUSED), why.to_owned())
        }
        ((_, why), _) => Answer::Without(why.to_owned()),
    }
}

/// Says that somebody listens; the pump sees itself how long.
///
/// # Errors
/// Why nobody will be passed on, in words.
pub fn listening(place: &str, listener: &Listener) -> Result<(), String> {
    let Listener { at, inode, takes_v4 } = listener;
    let families = if *takes_v4 { "both" } else { "own" };
    match asked(place, &format!("listen {at} {inode} {families}")) {
        Ok((answer, _)) if answer.starts_with("ok") => Ok(()),
        Ok((answer, _)) => Err(answer.strip_prefix("tcp ").unwrap_or(&answer).to_owned()),
        Err(errno) => Err(format!("the pump does not answer: {errno}")),
    }
}

/// Says that this program is there: the pump stays as long as what is returned is open anywhere.
pub fn stay(place: &str) -> Option<OwnedFd> {
    let pump = pump(place).ok()?;
    send(&pump, b"stay", SendFlags::NOSIGNAL).ok()?;
    Some(rustix::io::fcntl_dupfd_cloexec(&pump, DESCRIPTORS).unwrap_or(pump))
}

/// Whether an address is one of this host's: what is sent there comes from there.
pub fn is_of_this_host(ip: IpAddr) -> bool {
    let family = match ip {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let from = || {
        let probe = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        connect(&probe, &SocketAddr::new(ip, 9))?; // Nothing is sent.
        SocketAddr::try_from(getsockname(&probe)?)
    };
    from().is_ok_and(|from: SocketAddr| from.ip() == ip)
}

fn receive(pump: &OwnedFd) -> rustix::io::Result<(String, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut answer = [0; ANSWER_MAX];
    let mut slices = [IoSliceMut::new(&mut answer)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(pump, &mut slices, &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let text = String::from_utf8_lossy(&answer[..received.bytes.min(ANSWER_MAX)]).into_owned();
    Ok((text, descriptor))
}

/// Tells whoever looks at the program's standard error.
pub fn tell(text: &str) {
    // A program without a standard error has nobody to be told.
    let _ = writeln!(std::io::stderr(), "gtp run: {text}");
}
