//! One connection to the daemon: what it has become, and the list on its way to it.
//!
//! A list is sent in packets, as many as the other end takes, so that a reader that is slow holds
//! nobody up. This module must not know the hub, nor what a request means.

use std::io;
use std::rc::Rc;

use gtp_alloc::Time;
use gtp_share::{Connection, LIST_PACKET};

/// One connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub connection: Connection,
    pub state: State,
    pub came: Time,
    /// Something is there to be read, or its list can go on, or it has ended.
    pub ready: bool,
    /// The other end has gone; what it said before may still wait to be read.
    pub ended: bool,
    /// Until all of it is sent nothing else is heard.
    pub list: Option<Sending>,
}

/// A list on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub text: Rc<Vec<u8>>,
    pub at: usize,
    pub began: Time,
}

/// What a connection has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Asking,
    Attached,
    Over,
}

impl Caller {
    /// One that has just come and said nothing.
    pub(crate) fn new(now: Time, connection: Connection) -> Caller {
        let state = State::Asking;
        Caller { connection, state, came: now, ready: false, ended: false, list: None }
    }

    /// Whether nothing of it need be heard any more. A process that has ended may have left more
    /// bells than are taken in a turn, and it is not to be listed until all of them are.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over || self.ended && self.state == State::Attached
    }

    /// Sends of its list what the other end takes, `most` packets at most; says how many.
    pub(crate) fn feed(&mut self, most: usize) -> usize {
        let Some(Sending { text, at, .. }) = &mut self.list else { return 0 };
        let mut parts = text[*at..].chunks(LIST_PACKET);
        for sent in 0..most {
            let Some(part) = parts.next() else {
                self.list = None;
                return sent;
            };
            match self.connection.send(part, &[]) {
                Ok(()) => *at += part.len(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return sent,
                Err(_) => {
                    self.state = State::Over;
                    return sent;
                }
            }
        }
        most
    }
}
