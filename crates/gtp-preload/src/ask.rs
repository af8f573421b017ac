//! What a program's calls ask of the pump, and what it answers.
//!
//! One connection per question, a line each way over a socket that keeps messages apart. The
//! system calls are made directly and not through the C library, whose calls are ours.

use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with, sockopt, sockopt::Timeout,
};

use crate::border::is_own;

/// A pump answers within this, or hangs.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// Longest answer.
const ANSWER_MAX: usize = 1_024;

/// What becomes of a connection.
pub enum Answer {
    /// It is there.
    Connected(OwnedFd),
    /// The peer has no GTP; why is said.
    Without(String),
    /// It cannot be: the error number, and why.
    Refused(i32, String),
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

/// Asks for a connection; waits until it is there or cannot be.
pub fn connection(place: &str, terms: &str, to: SocketAddr) -> Answer {
    let asked = || {
        let pump = pump(place)?;
        send(&pump, format!("connect {to} {terms}").as_bytes(), SendFlags::NOSIGNAL)?;
        receive(&pump)
    };
    let (answer, descriptor) = match asked() {
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

/// Says that somebody listens here, for as long as what is returned is open.
pub fn listening(place: &str, at: SocketAddr) -> Option<OwnedFd> {
    let pump = pump(place).ok()?;
    send(&pump, format!("listen {at}").as_bytes(), SendFlags::NOSIGNAL).ok()?;
    let (answer, _) = receive(&pump).ok()?;
    answer.starts_with("ok").then_some(pump)
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
