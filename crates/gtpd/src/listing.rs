//! The list of sessions of a process that no daemon counts, for who looks at it.
//!
//! It is asked and answered as the daemon's, by the same messages, and one question alone: which
//! sessions there are. Root and the process's own user are heard. A list is made at most ten times
//! a second, and a reader that is slow keeps nobody waiting. What is listed this file must not
//! know.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;

use gtp_alloc::{Span, Time};
use gtp_share::{Answer, Connection, HostView, Incoming, MESSAGE_MOST, Request, SessionView};
use rustix::event::{PollFd, PollFlags};

use crate::caller::{Caller, Sending, State};
use crate::claim::{Claim, ClaimError};
use crate::right::Right;
use crate::view::lines;

/// A place where a process may be looked at, and nobody else may be.
#[derive(Debug)]
pub struct Lookout(Claim);

/// A place, and those who look.
#[derive(Debug)]
pub struct Listing {
    place: Claim,
    readers: Vec<Caller>,
    /// The list that was made last.
    kept: Option<(Time, Rc<Vec<u8>>)>,
    /// When the socket's name was looked for last.
    looked: Time,
    /// Until when nobody is accepted, because the last try failed.
    rests_until: Option<Time>,
}

/// Readers at a time: the oldest makes room for the next.
pub const READERS: usize = 8;
/// A reader that has not asked and read within this time is let go.
const PATIENCE: Span = Span::from_secs(5);
/// A list is as good as new for so long.
const FRESH: Span = Span::from_millis(100);
/// A listener whose last connection could not be accepted rests for so long.
const REST: Span = Span::from_millis(100);
/// How often it looks whether its socket still has its name.
const LOOK: Span = Span::from_secs(10);
/// Packets of a list sent to one reader in a turn.
const PACKETS: usize = 64;
/// What is said to who asks for anything else.
const NO_DAEMON: &str = "a server tells here which sessions it has, and no more: the last hour and \
                         `gtp set` are the daemon's (gtpd)";

impl Lookout {
    /// A socket of mode 0600 at `path`; one that a process has left there is removed.
    ///
    /// # Errors
    /// [`ClaimError`]: another process is there, or the system refuses.
    pub fn at(path: &Path) -> Result<Lookout, ClaimError> {
        Claim::private(path).map(Lookout)
    }
}

impl Listing {
    /// Nobody looks yet, at `now`.
    pub fn new(now: Time, Lookout(place): Lookout) -> Listing {
        Listing { place, readers: Vec::new(), kept: None, looked: now, rests_until: None }
    }

    /// What to wait for.
    pub fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let comers = PollFd::from_borrowed_fd(self.place.listener().as_fd(), PollFlags::IN);
        let readers = self.readers.iter().map(|reader| {
            let what = if reader.list.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(reader.connection.as_fd(), what)
        });
        self.rests_until.is_none().then_some(comers).into_iter().chain(readers)
    }

    /// When there is something to do that no descriptor tells of.
    pub fn poll_timeout(&self) -> Time {
        let ends = self.readers.iter().map(|reader| reader.came + PATIENCE);
        ends.chain(self.rests_until).fold(self.looked + LOOK, Time::min)
    }

    /// Takes in who has come, and answers who has asked by what `make` lists.
    pub fn serve(&mut self, now: Time, mut make: impl FnMut() -> (HostView, Vec<SessionView>)) {
        self.keep_place(now);
        self.kept.take_if(|(made, _)| now.since(*made) >= FRESH);
        self.accept(now);
        let Listing { readers, kept, .. } = self;
        let mut list = || {
            let (_, text) = kept.get_or_insert_with(|| (now, Rc::new(text(make()))));
            Rc::clone(text)
        };
        readers.retain_mut(|reader| {
            go_on(now, reader, &mut list);
            !reader.is_over() && now.since(reader.came) < PATIENCE
        });
    }

    fn accept(&mut self, now: Time) {
        self.rests_until.take_if(|until| *until <= now);
        for _ in 0..READERS {
            match self.place.listener().accept() {
                Ok(Some(connection)) => self.admit(now, connection),
                Ok(None) => return,
                Err(_) => {
                    // Without a free descriptor accepting fails at once.
                    self.rests_until = Some(now + REST);
                    return;
                }
            }
        }
    }

    /// Takes somebody in who may look. The socket's mode lets nobody else come, unless somebody
    /// has changed it.
    fn admit(&mut self, now: Time, connection: Connection) {
        if Right::of(connection.peer().uid) != Right::Anybodys {
            return;
        }
        if self.readers.len() >= READERS {
            self.readers.remove(0);
        }
        self.readers.push(Caller::new(now, connection));
    }

    /// Makes the socket again if its name was removed.
    fn keep_place(&mut self, now: Time) {
        if now.since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        match self.place.restore() {
            Ok(true) => tracing::warn!("the socket of --status was removed, and is made again"),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "the socket of --status is gone"),
        }
    }
}

/// Hears a reader, and sends its list as far as it reads.
fn go_on(now: Time, reader: &mut Caller, list: &mut impl FnMut() -> Rc<Vec<u8>>) {
    if reader.list.is_none() {
        let mut buffer = [0; MESSAGE_MOST];
        match reader.connection.receive(&mut buffer) {
            Ok(Incoming::Message(length, _)) => {
                answer(now, reader, Request::read(&buffer[..length]), list);
            }
            Ok(Incoming::Nothing) => {}
            Ok(Incoming::End) | Err(_) => reader.state = State::Over,
        }
    }
    reader.feed(PACKETS);
}

fn answer(
    now: Time,
    reader: &mut Caller,
    asked: Result<Request, String>,
    list: &mut impl FnMut() -> Rc<Vec<u8>>,
) {
    let answer = match asked {
        Ok(Request::Sessions { .. }) => {
            let text = list();
            let bytes = text.len() as u64;
            reader.list = Some(Sending { text, at: 0, began: now });
            Answer::Sessions { bytes }
        }
        Ok(
            Request::Attach { .. }
            | Request::History { .. }
            | Request::Keys { .. }
            | Request::Set { .. },
        ) => Answer::Refused { why: NO_DAEMON.to_owned() },
        Err(why) => Answer::Refused { why },
    };
    // Strings and numbers: there is nothing that JSON cannot say.
    let said = serde_json::to_vec(&answer).unwrap_or_default();
    if reader.connection.send(&said, &[]).is_err() {
        reader.state = State::Over;
    }
}

fn text((host, sessions): (HostView, Vec<SessionView>)) -> Vec<u8> {
    let both: io::Result<Vec<u8>> =
        lines(&[host]).and_then(|host| Ok([host, lines(&sessions)?].concat()));
    // Writing to memory does not fail.
    both.unwrap_or_default()
}

#[cfg(test)]
mod tests;
