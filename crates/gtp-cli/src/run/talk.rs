//! What programs and the pump say to each other: a line each way, and perhaps a descriptor.
//!
//! The socket keeps messages apart. Only the user himself is heard, and what he says is read as
//! if he were a stranger.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use gtp::{Fingerprint, Rate};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::UnixStream;

use super::listeners::Listener;

/// What a program asks.
#[derive(Debug, PartialEq)]
pub enum Question {
    /// For a connection.
    Connect(SocketAddr, Terms),
    /// For a connection over TCP to this host itself.
    Within(SocketAddr),
    /// That callers be passed on to where it listens.
    Listen(Listener),
    /// That the pump stay as long as the program.
    Stay,
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
    pub fn parse(text: &str) -> Option<Question> {
        let mut words = text.split_whitespace();
        let verb = words.next()?;
        let question = match verb {
            "stay" => Question::Stay,
            "listen" => Question::Listen(Listener {
                at: words.next()?.parse().ok()?,
                inode: words.next()?.parse().ok()?,
                takes_v4: match words.next()? {
                    "both" => true,
                    "own" => false,
                    _ => return None,
                },
            }),
            "within" => Question::Within(words.next()?.parse().ok()?),
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
pub async fn hear(from: &mut UnixStream) -> Option<Question> {
    if from.peer_cred().ok()?.uid() != rustix::process::getuid().as_raw() {
        return None;
    }
    let mut text = [0; QUESTION_MAX];
    let count = from.read(&mut text).await.ok()?;
    Question::parse(std::str::from_utf8(&text[..count]).ok()?)
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
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
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
        let asked = Question::parse("connect 10.0.0.2:80 weight=2 max_rate=1000 accept_new");
        let terms = Terms {
            weight: 2.0,
            max_rate: Rate::from_bps(1_000),
            keys: Vec::new(),
            accept_new: true,
        };
        assert_eq!(asked, Some(Question::Connect("10.0.0.2:80".parse().unwrap(), terms)));
        let listener = Listener { at: "[::]:80".parse().unwrap(), inode: 7, takes_v4: false };
        assert_eq!(Question::parse("listen [::]:80 7 own"), Some(Question::Listen(listener)));
        let within = Question::Within("127.0.0.1:80".parse().unwrap());
        assert_eq!(Question::parse("within 127.0.0.1:80"), Some(within));
        assert_eq!(Question::parse("stay"), Some(Question::Stay));
        let bad = [
            "",
            "listen",
            "listen x",
            "listen 1.2.3.4:5",
            "listen 1.2.3.4:5 7",
            "listen 1.2.3.4:5 x both",
            "listen 1.2.3.4:5 7 none",
            "listen 1.2.3.4:5 7 both more",
            "within 1.2.3.4:5 more",
            "stay here",
            "connect 1.2.3.4:5 weight=0",
            "connect 1.2.3.4:5 key=x",
            "connect 1.2.3.4:5 other=1",
            "connect 1.2.3.4:5 weight",
            "run 1.2.3.4:5",
        ];
        for text in bad {
            assert_eq!(Question::parse(text), None, "{text}");
        }
    }
}
