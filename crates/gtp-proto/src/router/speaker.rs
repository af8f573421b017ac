//! What a host says to one router, and whether the router is there.
//!
//! Asks are repeated while a session crosses the router. One that has not answered for
//! [`ROUTER_SILENCE`] is ignored until it answers again; meanwhile it is asked once in that time. A
//! new router, or one that was always there, is waited for as long, once. This module must not know
//! sessions.

use gtp_alloc::{Span, Time};

use super::wire::{Dropped, Head, HostId, Kind, Pass};
use crate::limits::{ROUTER_REPEATS, ROUTER_SILENCE};

/// Whether a router's word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It answers, or may be about to.
    Heeded,
    /// It is silent.
    Ignored,
}

/// What a datagram from the router means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its entries are to be taken in.
    Answers,
    /// It is another run of the router, which knows nothing: all is to be asked anew.
    NewRun,
}

/// The talk with one router.
#[derive(Debug)]
pub(super) struct Speaker {
    host: HostId,
    pass: Pass,
    /// The number of the newest ask, and of the last one before the newest answer.
    number: u64,
    answered: u64,
    /// The number of the newest answer under this pass.
    newest: u64,
    /// When the first ask was sent that no answer has followed.
    waits_since: Option<Time>,
    standing: Standing,
    /// When all is asked again; news may go before.
    repeat_due: Time,
    /// When the first datagram of the present burst was sent, and how many more may follow it.
    burst_at: Time,
    burst_left: u32,
}

/// At most [`BURST`] datagrams are sent in this time, which keeps a host with thousands of sessions
/// below 100 Mbit/s.
const PAUSE: Span = Span::from_millis(2);
/// Enough for 448 sessions.
const BURST: u32 = 16;

impl Speaker {
    pub fn new(now: Time, host: HostId) -> Speaker {
        Speaker {
            host,
            pass: [0; 16],
            number: 0,
            answered: 0,
            newest: 0,
            waits_since: None,
            standing: Standing::Heeded,
            repeat_due: now,
            burst_at: now,
            burst_left: BURST,
        }
    }

    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// When news may be said.
    pub fn news_due(&self) -> Time {
        if self.burst_left > 0 { Time::ZERO } else { self.burst_at + PAUSE }
    }

    /// When all is to be said again.
    pub fn repeat_due(&self) -> Time {
        self.repeat_due
    }

    /// All is about to be said again.
    pub fn repeats(&mut self, now: Time) {
        let pause = match self.standing {
            Standing::Heeded => ROUTER_REPEATS,
            Standing::Ignored => ROUTER_SILENCE,
        };
        self.repeat_due = now + pause;
    }

    /// No session crosses the router any more.
    pub fn rests(&mut self) {
        self.waits_since = None;
    }

    /// When the router will have been silent for too long.
    pub fn silence_due(&self) -> Time {
        match (self.standing, self.waits_since) {
            (Standing::Heeded, Some(since)) => since + ROUTER_SILENCE,
            (Standing::Heeded, None) | (Standing::Ignored, _) => Time::MAX,
        }
    }

    /// Looks whether the router is silent; returns whether that is new.
    pub fn look(&mut self, now: Time) -> bool {
        let silent = self.silence_due() <= now;
        if silent {
            self.standing = Standing::Ignored;
        }
        silent
    }

    /// The head of the next ask, which leaves now.
    pub fn ask(&mut self, now: Time) -> Head {
        self.number += 1;
        if now >= self.burst_at + PAUSE {
            (self.burst_at, self.burst_left) = (now, BURST);
        }
        self.burst_left = self.burst_left.saturating_sub(1);
        self.waits_since.get_or_insert(now);
        Head { kind: Kind::Ask, host: self.host, pass: self.pass, number: self.number }
    }

    /// An authentic datagram has come.
    pub fn hear(&mut self, now: Time, head: &Head) -> Result<Heard, Dropped> {
        if head.host != self.host {
            return Err(Dropped::Misdirected);
        }
        match head.kind {
            Kind::Ask => Err(Dropped::Misdirected),
            Kind::Pass => self.hear_pass(now, head),
            Kind::Answer => self.hear_answer(head),
        }
    }

    fn hear_pass(&mut self, now: Time, head: &Head) -> Result<Heard, Dropped> {
        // It answers an ask that no answer has followed, or it is old.
        if head.number <= self.answered || head.number > self.number {
            return Err(Dropped::Replayed);
        }
        self.answered = head.number;
        (self.pass, self.newest) = (head.pass, 0);
        self.repeat_due = now;
        Ok(Heard::NewRun)
    }

    fn hear_answer(&mut self, head: &Head) -> Result<Heard, Dropped> {
        if head.pass != self.pass {
            return Err(Dropped::Misdirected);
        }
        if head.number <= self.newest {
            return Err(Dropped::Replayed);
        }
        (self.newest, self.answered) = (head.number, self.number);
        (self.waits_since, self.standing) = (None, Standing::Heeded);
        Ok(Heard::Answers)
    }
}
