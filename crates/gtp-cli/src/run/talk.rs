//! What programs and the pump say to each other: a line each way, and perhaps a descriptor.
//!
//! The socket keeps messages apart. Only the same user is heard, and that as if it were a
//! stranger. The first word of a question is the version of all this: a library and a
//! pump of different ones part with clear words.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use gtp::{Fingerprint, Rate};
use gtp_sys::pump::VERSION;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// What a program asks.
#[derive(Debug, PartialEq)]
pub enum Question {
    /// That the socket that comes with the question be connected.
    Connect(SocketAddr, Terms),
    /// That it be connected over TCP to this host itself.
    Within(SocketAddr),
    /// Where a socket with this number of the kernel's is connected to.
    Peer(u64),
    /// That callers be passed on to where it listens: the socket comes with the question.
    Listen,
    /// For something to hold, as long as which a pump stays.
    Stay,
    /// Which connections were made over TCP in place of GTP.
    Fallbacks,
}

/// What was heard.
#[derive(Debug)]
pub struct Heard {
    /// What is asked; why it cannot be answered, where it is of another version.
    pub question: Result<Question, String>,
    /// A descriptor that came with it.
    pub with: Option<OwnedFd>,
    /// The process that asks, as the kernel knows it; zero where it is not seen from here.
    pub pid: i32,
}

/// The terms of a connection.
#[derive(Debug, PartialEq)]
pub struct Terms {
    pub weight: f64,
    pub max_rate: Rate,
    pub keys: Vec<Fingerprint>,
    pub accept_new: bool,
}

/// Longest question.
const QUESTION_MAX: usize = 4_096;
/// Keys in one.
const KEYS_MAX: usize = 64;

impl Question {
    /// Reads a question; what is not known in it makes it none.
    ///
    /// # Errors
    /// In words for who asks, when it is of another version.
    pub fn read(text: &str) -> Result<Option<Question>, String> {
        let (version, question) = text.split_once(' ').unwrap_or((text, ""));
        if version == VERSION {
            return Ok(Question::parse(question));
        }
        let said = version.strip_prefix('v').filter(|number| number.parse::<u32>().is_ok());
        Err(format!(
            "this program was started by a gtp run that speaks {} and the pump speaks {VERSION}: \
             end the pump, and start the program anew",
            said.map_or("no version", |_| version)
        ))
    }

    fn parse(text: &str) -> Option<Question> {
        let mut words = text.split_whitespace();
        let verb = words.next()?;
        let question = match verb {
            "stay" => Question::Stay,
            "listen" => Question::Listen,
            "fallbacks" => Question::Fallbacks,
            "within" => Question::Within(words.next()?.parse().ok()?),
            "peer" => Question::Peer(words.next()?.parse().ok()?),
            "connect" => {
                let to = words.next()?.parse().ok()?;
                return Some(Question::Connect(to, Terms::parse(words)?));
            }
            _ => return None,
        };
        words.next().is_none().then_some(question)
    }
}

impl Terms {
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Option<Terms> {
        let mut terms =
            Terms { weight: 1.0, max_rate: Rate::UNLIMITED, keys: Vec::new(), accept_new: false };
        for word in words {
            match word.split_once('=') {
                Some(("weight", weight)) => terms.weight = crate::words::weight(weight).ok()?,
                Some(("max_rate", rate)) => terms.max_rate = Rate::from_bps(rate.parse().ok()?),
                Some(("key", key)) if terms.keys.len() < KEYS_MAX => {
                    terms.keys.push(key.parse().ok()?);
                }
                None if word == "accept_new" => terms.accept_new = true,
                Some(_) | None => return None,
            }
        }
        Some(terms)
    }
}

/// Hears a question, of this user's.
pub async fn hear(from: &UnixStream) -> Option<Heard> {
    let peer = from.peer_cred().ok()?;
    if peer.uid() != rustix::process::getuid().as_raw() {
        return None;
    }
    let receive = || Ok(receive_message(from.as_fd())?);
    let (text, with) = from.async_io(Interest::READABLE, receive).await.ok()?;
    let question = Question::read(std::str::from_utf8(&text).ok()?).transpose()?;
    Some(Heard { question, with, pid: peer.pid().unwrap_or(0) })
}

/// A message, and the first descriptor that came with it: the kernel keeps no others.
fn receive_message(from: BorrowedFd<'_>) -> rustix::io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut text = vec![0; QUESTION_MAX];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(from, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags)?;
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let first = descriptors.next().and_then(|mut rights| rights.next());
    text.truncate(got.bytes);
    Ok((text, first))
}

/// Answers, perhaps with a descriptor.
pub async fn answer(to: &UnixStream, text: &str, descriptor: Option<OwnedFd>) -> io::Result<()> {
    let send = || Ok(send_message(to.as_fd(), text, descriptor.as_ref().map(AsFd::as_fd))?);
    to.async_io(Interest::WRITABLE, send).await
}

fn send_message(
    to: BorrowedFd<'_>,
    text: &str,
    descriptor: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let text = [io::IoSlice::new(text.as_bytes())];
    sendmsg(to, &text, &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_and_anything_else_is_none() {
        let text = "connect 10.0.0.2:80 weight=2 max_rate=1000 accept_new";
        let asked = Question::parse(text);
        let terms = Terms {
            weight: 2.0,
            max_rate: Rate::from_bps(1_000),
            keys: Vec::new(),
            accept_new: true,
        };
        assert_eq!(asked, Some(Question::Connect("10.0.0.2:80".parse().unwrap(), terms)));
        assert_eq!(Question::parse("listen"), Some(Question::Listen));
        let within = Question::Within("127.0.0.1:80".parse().unwrap());
        assert_eq!(Question::parse("within 127.0.0.1:80"), Some(within));
        assert_eq!(Question::parse("peer 77"), Some(Question::Peer(77)));
        assert_eq!(Question::parse("stay"), Some(Question::Stay));
        assert_eq!(Question::parse("fallbacks"), Some(Question::Fallbacks));
        let bad = [
            "",
            "listen 1.2.3.4:5 7 both",
            "within 1.2.3.4:5 more",
            "stay here",
            "fallbacks all",
            "connect 1.2.3.4:5 weight=0",
            "connect 1.2.3.4:5 key=x",
            "connect 1.2.3.4:5 socket=7",
            "peer x",
            "peer 1 2",
            "connect 1.2.3.4:5 other=1",
            "connect 1.2.3.4:5 weight",
            "run 1.2.3.4:5",
        ];
        for text in bad {
            assert_eq!(Question::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_question_of_another_version_or_of_none_is_answered_in_words() {
        assert_eq!(Question::read("v2 stay"), Ok(Some(Question::Stay)));
        assert_eq!(Question::read("v2 dance"), Ok(None));
        let newer = Question::read("v3 stay a_while").unwrap_err();
        assert!(newer.contains("v3") && newer.contains(VERSION) && newer.contains("end the pump"));
        for older in ["stay", "connect 10.0.0.2:80 weight=1", "", "v\u{1b}[2J stay"] {
            let said = Question::read(older).unwrap_err();
            assert!(said.contains("no version") && !said.contains('\u{1b}'), "{said}");
        }
    }

    #[tokio::test]
    async fn a_question_is_heard_with_the_descriptor_that_came_and_the_process() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let shown = std::fs::File::open("/dev/null").unwrap();
        let question = format!("{VERSION} listen");
        send_message(near.as_fd(), &question, Some(shown.as_fd())).unwrap();
        far.set_nonblocking(true).unwrap();
        let heard = hear(&UnixStream::from_std(far).unwrap()).await.unwrap();
        assert_eq!(heard.question, Ok(Question::Listen));
        assert_eq!(heard.pid, std::process::id() as i32);
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(heard.with.unwrap().as_fd()), inode(shown.as_fd()));
    }
}
