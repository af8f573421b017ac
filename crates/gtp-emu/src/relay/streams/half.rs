//! One direction of a connection: a window at the side where bytes are taken in, an order at the
//! side where they are given out.
//!
//! It knows sockets and byte positions; what happens between the two sides is not its concern.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;

use gtp_alloc::{Span, Time};

use super::SEGMENT;
use crate::udp::Slice;

/// See the module's head.
pub(super) struct Half {
    /// Bytes taken in so far.
    taken: u64,
    /// Of these, not yet acknowledged.
    in_flight: u64,
    window: u64,
    /// Below it the window doubles per round trip, above it grows by a segment.
    threshold: u64,
    /// Losses until then belong to one that has been answered.
    answered_until: Time,
    pub(super) readable: bool,
    source: Source,

    /// Bytes given out or waiting in `ready`.
    expected: u64,
    /// What came before its turn.
    early: BTreeMap<u64, Slice>,
    ready: VecDeque<Slice>,
    /// Bytes of the first ready slice that were given out.
    given: usize,
    pub(super) writable: bool,
    /// Where the sender's bytes end.
    pub(super) end_at: Option<u64>,
    receiver: Receiver,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Open,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiver {
    Open,
    /// It has been told the end.
    Ended,
}

/// What taking in gave.
pub(super) enum Filled {
    Nothing,
    Bytes { at: u64, buffer: Rc<[u8]> },
    End { at: u64 },
    Broken,
}

/// What giving out gave.
pub(super) enum Drained {
    /// This many bytes.
    Bytes(u64),
    Broken,
}

impl Default for Half {
    fn default() -> Half {
        Half {
            taken: 0,
            in_flight: 0,
            window: FIRST_WINDOW,
            threshold: MAX_WINDOW,
            answered_until: Time::ZERO,
            readable: false,
            source: Source::Open,
            expected: 0,
            early: BTreeMap::new(),
            ready: VecDeque::new(),
            given: 0,
            writable: true,
            end_at: None,
            receiver: Receiver::Open,
        }
    }
}

impl Half {
    /// Takes in bytes from the sending side, as far as the window admits.
    pub(super) fn fill(&mut self, mut socket: &TcpStream) -> Filled {
        let room = self.window.min(MAX_WINDOW).saturating_sub(self.in_flight);
        let idle = !self.readable || self.source == Source::Ended;
        if idle || room < SEGMENT as u64 && self.in_flight > 0 {
            return Filled::Nothing;
        }
        let mut buffer = [0; PIECE];
        let piece = (room as usize).clamp(SEGMENT, PIECE);
        match socket.read(&mut buffer[..piece]) {
            Ok(0) => {
                self.source = Source::Ended;
                Filled::End { at: self.taken }
            }
            Ok(n) => {
                let at = self.taken;
                self.taken += n as u64;
                self.in_flight += n as u64;
                Filled::Bytes { at, buffer: Rc::from(&buffer[..n]) }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Filled::Nothing,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Filled::Nothing
            }
            Err(_) => {
                self.source = Source::Ended;
                Filled::Broken
            }
        }
    }

    /// This many bytes have reached their receiver, and the news has come back.
    pub(super) fn acknowledge(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.window += if self.window < self.threshold {
            bytes
        } else {
            (SEGMENT as u64 * bytes / self.window).max(1)
        };
        self.window = self.window.min(MAX_WINDOW);
    }

    /// Answers a loss: half the window, once per round trip (RFC 5681, equation 4).
    pub(super) fn back_off(&mut self, now: Time, trip: Span) {
        if now >= self.answered_until {
            self.threshold = (self.in_flight / 2).max(2 * SEGMENT as u64);
            self.window = self.threshold;
            self.answered_until = now + trip;
        }
    }

    /// Bytes that have passed the links, perhaps not in their turn.
    pub(super) fn accept(&mut self, at: u64, bytes: Slice) {
        if at >= self.expected {
            self.early.insert(at, bytes);
        }
        while let Some(first) = self.early.first_entry()
            && *first.key() == self.expected
        {
            let bytes = first.remove();
            self.expected += bytes.len() as u64;
            self.ready.push_back(bytes);
        }
    }

    /// Gives out what is ready, and the end after it.
    pub(super) fn drain(&mut self, mut socket: &TcpStream) -> Drained {
        let mut total = 0;
        while let Some(front) = self.ready.front()
            && self.writable
        {
            match socket.write(&front.bytes()[self.given..]) {
                Ok(n) => {
                    total += n as u64;
                    self.given += n;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Drained::Broken,
            }
            if self.given == front.len() {
                self.ready.pop_front();
                self.given = 0;
            }
        }
        let complete = self.ready.is_empty() && self.end_at == Some(self.expected);
        if complete && self.receiver == Receiver::Open {
            self.receiver = Receiver::Ended;
            // If the receiver has gone meanwhile, it needs no end.
            let _ = socket.shutdown(Shutdown::Write);
        }
        Drained::Bytes(total)
    }

    /// Whether the end has been handed over.
    pub(super) fn is_over(&self) -> bool {
        self.receiver == Receiver::Ended
    }
}

/// Ten segments (RFC 6928).
const FIRST_WINDOW: u64 = 10 * SEGMENT as u64;
/// Bytes under way per direction of a connection: 1 Gbit/s over 130 ms.
const MAX_WINDOW: u64 = 16 << 20;
/// Bytes taken in at once: 45 segments.
const PIECE: usize = 45 * SEGMENT;
