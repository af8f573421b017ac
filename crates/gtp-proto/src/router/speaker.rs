//! What a host says to one router, and whether the router is there.
//!
//! Asks are repeated while a session crosses the router. One that has not answered for
//! [`ROUTER_SILENCE`] is ignored until it answers again; meanwhile it is asked once in that time,
//! and each time its user may change the way to it, as this host's own address may have changed. A
//! new router, or one that was always there, is waited for as long, once. This module must not know
//! sessions.

use gtp_alloc::Time;

use super::pace::Pace;
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
    /// How it stood when its user last looked.
    seen: Standing,
    /// While it is ignored: whether nothing has come from it since it was last asked, and whether
    /// it is about to be asked again although that is so.
    is_unheard: bool,
    in_vain: bool,
    /// When all is asked again; news may go before.
    repeat_due: Time,
    pace: Pace,
}

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
            seen: Standing::Heeded,
            is_unheard: false,
            in_vain: false,
            repeat_due: now,
            pace: Pace::new(now),
        }
    }

    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// When news may be said.
    pub fn news_due(&self) -> Time {
        self.pace.due()
    }

    /// When all is to be said again.
    pub fn repeat_due(&self) -> Time {
        self.repeat_due
    }

    /// All is about to be said again.
    pub fn repeats(&mut self, now: Time) {
        let pause = match self.standing {
            Standing::Heeded => ROUTER_REPEATS,
            Standing::Ignored => {
                self.in_vain |= core::mem::replace(&mut self.is_unheard, true);
                ROUTER_SILENCE
            }
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
            (self.standing, self.is_unheard) = (Standing::Ignored, true);
        }
        silent
    }

    /// How the router stands, if that has changed since this was last called.
    pub fn take_change(&mut self) -> Option<Standing> {
        let before = core::mem::replace(&mut self.seen, self.standing);
        (before != self.standing).then_some(self.standing)
    }

    /// Whether it is about to be asked again although nothing came of the last time.
    pub fn take_in_vain(&mut self) -> bool {
        core::mem::take(&mut self.in_vain)
    }

    /// The head of the next ask, which leaves now.
    pub fn ask(&mut self, now: Time) -> Head {
        self.number += 1;
        self.pace.take(now);
        self.waits_since.get_or_insert(now);
        Head { kind: Kind::Ask, host: self.host, pass: self.pass, number: self.number }
    }

    /// An authentic datagram has come.
    pub fn hear(&mut self, now: Time, head: &Head) -> Result<Heard, Dropped> {
        if head.host != self.host {
            return Err(Dropped::Misdirected);
        }
        let heard = match head.kind {
            Kind::Ask => Err(Dropped::Misdirected),
            Kind::Pass => self.hear_pass(now, head),
            Kind::Answer => self.hear_answer(now, head),
        }?;
        (self.is_unheard, self.in_vain) = (false, false);
        Ok(heard)
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

    fn hear_answer(&mut self, now: Time, head: &Head) -> Result<Heard, Dropped> {
        if head.pass != self.pass {
            return Err(Dropped::Misdirected);
        }
        if head.number <= self.newest {
            return Err(Dropped::Replayed);
        }
        (self.newest, self.answered) = (head.number, self.number);
        if self.standing == Standing::Ignored {
            self.repeat_due = now; // It has been asked for some sessions only.
        }
        (self.waits_since, self.standing) = (None, Standing::Heeded);
        Ok(Heard::Answers)
    }
}
