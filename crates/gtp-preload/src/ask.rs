//! What a program's calls ask of the pump, and what it answers.
//!
//! One connection per question, a line each way over a socket that keeps messages apart. The
//! system calls are made directly and not through the C library, whose calls are ours.

use std::fmt::Arguments;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_sys::Clock;
use gtp_sys::clock::duration;
use gtp_sys::pump::VERSION;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, getsockname,
    recvmsg, sendmsg, socket_with, sockopt, sockopt::Timeout,
};

use crate::border::{is_own, write_error};
use crate::line::Line;

/// A pump takes a program in within this, or hangs: more than a hundred wait before it.
const TAKEN_IN: Span = Span::from_millis(2_000);
/// A pump answers within this, or hangs: longer than it tries to reach another host.
const PATIENCE: Span = Span::from_millis(30_000);
/// The shortest wait that the kernel is asked for.
const LEAST_WAIT: Span = Span::from_millis(1);
/// Longest answer.
const ANSWER_MAX: usize = 1_024;
/// Most pieces of a question.
const PIECES: usize = 6;
/// Descriptors of ours begin here, so that a program's own have the numbers that they would have.
const DESCRIPTORS: i32 = 512;

/// What becomes of a connection.
pub enum Answer {
    /// The socket is connected, or under way if it does not block.
    Connected,
    /// It was before, and the kernel says that all is well.
    Done,
    /// The peer has no GTP; why is said.
    Without(Line),
    /// It cannot be: the error number, and why.
    Refused(i32, Line),
}

/// Until when something is waited for, whatever signals come meanwhile.
struct Limit {
    clock: Clock,
    end: Time,
}

impl Limit {
    fn within(span: Span) -> Limit {
        let clock = Clock::start();
        Limit { clock, end: clock.now() + span }
    }

    /// What is left of it.
    fn left(&self) -> rustix::io::Result<Duration> {
        match self.end.since(self.clock.now()) {
            left if left >= LEAST_WAIT => Ok(duration(left)),
            _ => Err(Errno::TIMEDOUT),
        }
    }
}

fn pump(place: &str) -> rustix::io::Result<OwnedFd> {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let pump = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
    let (address, limit) = (SocketAddrUnix::new(place)?, Limit::within(TAKEN_IN));
    loop {
        // So long the kernel waits for a place among those that wait to be taken in.
        sockopt::set_socket_timeout(&pump, Timeout::Send, Some(limit.left()?))?;
        match connect(&pump, &address) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
            done => break done?,
        }
    }
    // Anybody can listen where nobody does.
    if !is_own(&pump) {
        return Err(Errno::ACCESS);
    }
    Ok(pump)
}

/// Asks, perhaps with a descriptor, and waits for the answer so long.
fn asked(
    place: &str,
    question: &[&str],
    with: Option<BorrowedFd<'_>>,
    patience: Span,
) -> rustix::io::Result<(Line, Option<OwnedFd>)> {
    let ask = || {
        let pump = pump(place)?;
        send(&pump, question, with)?;
        receive(&pump, patience)
    };
    match ask() {
        // It ended meanwhile. Whoever keeps it has its socket still open, and starts it again.
        Err(Errno::CONNRESET | Errno::PIPE) => ask(),
        answered => answered,
    }
}

/// Sends a question, given as its words with what stands between them: [`PIECES`] at most.
fn send(pump: &OwnedFd, question: &[&str], with: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let all = [VERSION, " "].into_iter().chain(question.iter().copied());
    for (piece, text) in pieces.iter_mut().zip(all) {
        *piece = IoSlice::new(text.as_bytes());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let with = with.as_slice();
    if !with.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(with)) {
        return Err(Errno::NOBUFS);
    }
    // There is room for one question in any socket.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(pump, &pieces, &mut ancillary, flags)?;
    Ok(())
}

/// Asks that a socket be connected; waits until it is, is under way or cannot be.
pub fn connection(place: &str, terms: &str, to: SocketAddr, socket: BorrowedFd<'_>) -> Answer {
    let to = Line::of(format_args!("{to}"));
    read(asked(place, &["connect ", to.text(), " ", terms], Some(socket), PATIENCE))
}

/// Asks that a socket be connected over TCP within this host, where the kernel lets this process
/// connect none.
pub fn within(place: &str, to: SocketAddr, socket: BorrowedFd<'_>) -> Answer {
    let to = Line::of(format_args!("{to}"));
    read(asked(place, &["within ", to.text()], Some(socket), PATIENCE))
}

/// Asks where a socket with this number is connected to, which another program may have connected.
/// `Some(None)`: not by way of the pump. `None`: there was no answer.
pub fn peer(place: &str, socket: u64) -> Option<Option<SocketAddr>> {
    let socket = Line::of(format_args!("{socket}"));
    let (answer, _) = asked(place, &["peer ", socket.text()], None, TAKEN_IN).ok()?;
    match answer.text() {
        "tcp" => Some(None),
        answer => answer.strip_prefix("ok ")?.parse().ok().map(Some),
    }
}

fn read(asked: rustix::io::Result<(Line, Option<OwnedFd>)>) -> Answer {
    let answer = match asked {
        Ok((answer, _)) => answer,
        Err(errno) => return Answer::Without(unanswered(errno)),
    };
    let answer = answer.text();
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("ok", _) => Answer::Connected,
        ("done", _) => Answer::Done,
        ("no", rest) => {
            let (number, why) = rest.split_once(' ').unwrap_or((rest, ""));
            let number = number.parse().unwrap_or(libc::ECONNREFUSED);
            Answer::Refused(number, Line::of(format_args!("{why}")))
        }
        (_, why) => Answer::Without(Line::of(format_args!("{why}"))),
    }
}

/// Why there is no answer, in words.
fn unanswered(errno: Errno) -> Line {
    // The system's own words need memory.
    let why = match errno {
        // It was there, and went without a word, twice: one that did not understand.
        Errno::CONNRESET | Errno::PIPE => {
            return Line::of(format_args!(
                "the pump went without an answer; if it is of another version, end it and start \
                 the program anew"
            ));
        }
        Errno::TIMEDOUT => "it takes too long",
        Errno::NOENT | Errno::CONNREFUSED => "none is there",
        Errno::ACCESS => "permission denied",
        Errno::MFILE | Errno::NFILE => "too many open files",
        errno => {
            let number = errno.raw_os_error();
            return Line::of(format_args!("the pump does not answer: error {number}"));
        }
    };
    Line::of(format_args!("the pump does not answer: {why}"))
}

/// Says that somebody listens, and shows the socket; the pump sees itself where and how long.
/// Returns why nobody will be passed on, in words; `None`: callers will be.
pub fn listening(place: &str, socket: BorrowedFd<'_>) -> Option<Line> {
    // A pump that hangs is shown nothing: unread, it would be open, and its port taken, for as long
    // as that pump is there.
    let answers = asked(place, &["stay"], None, PATIENCE);
    match answers.and_then(|_| asked(place, &["listen"], Some(socket), PATIENCE)) {
        Ok((answer, _)) if answer.text().starts_with("ok") => None,
        Ok((answer, _)) => {
            let why = answer.text();
            Some(Line::of(format_args!("{}", why.strip_prefix("tcp ").unwrap_or(why))))
        }
        Err(errno) => Some(unanswered(errno)),
    }
}

/// Says that this program is there: a pump stays as long as what is returned is open anywhere.
pub fn stay(place: &str) -> Option<OwnedFd> {
    let (_, open) = asked(place, &["stay"], None, TAKEN_IN).ok()?;
    let open = open?;
    Some(rustix::io::fcntl_dupfd_cloexec(&open, DESCRIPTORS).unwrap_or(open))
}

/// The address from which this host sends to another.
pub fn source_for(ip: IpAddr) -> Option<IpAddr> {
    let family = match ip {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let from = || {
        let probe = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        connect(&probe, &SocketAddr::new(ip, 9))?; // Nothing is sent.
        SocketAddr::try_from(getsockname(&probe)?)
    };
    from().ok().map(|from| from.ip())
}

fn receive(pump: &OwnedFd, patience: Span) -> rustix::io::Result<(Line, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut answer = [0; ANSWER_MAX];
    let mut slices = [IoSliceMut::new(&mut answer)];
    let limit = Limit::within(patience);
    let received = loop {
        sockopt::set_socket_timeout(pump, Timeout::Recv, Some(limit.left()?))?;
        match recvmsg(pump, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
            Ok(end) if end.bytes == 0 => return Err(Errno::CONNRESET),
            other => break other?,
        }
    };
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let text = std::str::from_utf8(&answer[..received.bytes.min(ANSWER_MAX)]).unwrap_or("");
    Ok((Line::of(format_args!("{text}")), descriptor))
}

/// Tells whoever looks at the program's standard error, as one piece.
pub fn tell(text: Arguments<'_>) {
    write_error(Line::of(format_args!("gtp run: {text}\n")).text());
}
