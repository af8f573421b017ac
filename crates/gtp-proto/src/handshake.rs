//! Opening the path: hellos one way, answers the other.
//!
//! The initiator (the end that opened the control channel) sends padded hellos, so that address
//! translators let the answers in and the path's packet size is known before the first unit. The
//! responder stays silent until it has heard a hello that opens under the session's key. Only the
//! initiator's patience has an end: a responder cannot know how long the other end still prepares,
//! and waits until its host ends the session with the control channel.

use alloc::vec::Vec;

use gtp_alloc::{Span, Time};

use crate::limits::{HANDSHAKE_TIMEOUT, HELLOS_ANSWERED, UNIT_JUMBO};
use crate::wire::Hello;

/// Which end of the control channel a session is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens the path, and tries these unit payloads, longest first.
    Initiator {
        /// Candidates for the unit payload.
        unit_payloads: Vec<u16>,
    },
    /// As an initiator, and its sink asks right behind the first hellos, a round trip sooner, for
    /// units of the longest of these payloads: [`PathPresumed`](crate::Event::PathPresumed).
    /// Should the path not carry them, the host begins anew when it opens. A source is none the
    /// sooner for it.
    Eager {
        /// Candidates for the unit payload.
        unit_payloads: Vec<u16>,
    },
    /// Waits for the initiator.
    Responder,
}

impl Role {
    /// The same, without haste.
    pub(crate) fn patient(self) -> Role {
        match self {
            Role::Eager { unit_payloads } | Role::Initiator { unit_payloads } => {
                Role::Initiator { unit_payloads }
            }
            Role::Responder => Role::Responder,
        }
    }
}

/// Gap between rounds of hellos: first retry.
const RETRY_FIRST: Span = Span::from_millis(150);
/// The longest gap: a path that comes back within the initiator's patience must still be found.
const RETRY_MOST: Span = Span::from_secs(1);
/// How long a shorter answer waits for a longer one to overtake it, as a share of the round trip;
/// the shortest waits for a round trip more, as the longer ones are asked for once more.
const SETTLE_DIVISOR: u64 = 4;
const SETTLE_LEAST: Span = Span::from_millis(2);
/// Each size is sent twice a round: a single random loss must not shrink a whole transfer's units.
const COPIES: usize = 2;

#[derive(Debug)]
enum State {
    /// Initiator: hellos are due.
    Trying { round_at: Time, retry: Span, pending: Vec<u16> },
    /// Initiator: an answer came, a longer one may follow, to hellos that are due again if any are.
    Settling { until: Time, best: u16, pending: Vec<u16> },
    /// Responder: nothing heard yet.
    Waiting,
    /// Datagrams flow.
    Open,
    /// Given up.
    Failed,
}

/// What the handshake wants its session to tell the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Presumed { unit_payload: u16 },
    Open { unit_payload: u16 },
    NoPath,
}

/// Whether an initiator goes by the longest of its candidates before an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presumption {
    Never,
    /// Once the first round of hellos is out.
    Due,
    Made,
}

/// The state machine of one end.
#[derive(Debug)]
pub(crate) struct Handshake {
    candidates: Vec<u16>,
    longest: u16,
    state: State,
    presumption: Presumption,
    /// When an initiator gives up; a responder never does. Time in which hellos were due and its
    /// host did not get to sending them does not count.
    deadline: Time,
    answers: Vec<Hello>,
    answered: u32,
    outcome: Option<Outcome>,
}

impl Handshake {
    pub fn new(now: Time, role: Role) -> Handshake {
        let presumption = match role {
            Role::Eager { .. } => Presumption::Due,
            Role::Initiator { .. } | Role::Responder => Presumption::Never,
        };
        let (candidates, state, deadline) = match role {
            Role::Initiator { unit_payloads } | Role::Eager { unit_payloads } => {
                let pending = round(&unit_payloads);
                let state = State::Trying { round_at: now, retry: RETRY_FIRST, pending };
                (unit_payloads, state, now + HANDSHAKE_TIMEOUT)
            }
            Role::Responder => (Vec::new(), State::Waiting, Time::MAX),
        };
        Handshake {
            longest: candidates.iter().copied().max().unwrap_or(0),
            candidates,
            state,
            presumption,
            deadline,
            answers: Vec::new(),
            answered: 0,
            outcome: None,
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Whether a sink may ask: the path is open, or presumed to be.
    pub fn may_ask(&self) -> bool {
        self.is_open() || self.is_presumed()
    }

    /// Whether the path is presumed to be open for the longest candidate.
    #[inline]
    pub fn is_presumed(&self) -> bool {
        match self.state {
            State::Trying { .. } | State::Settling { .. } => self.presumption == Presumption::Made,
            State::Waiting | State::Open | State::Failed => false,
        }
    }

    /// A whole unit arrived: what was presumed is so.
    #[inline]
    pub fn handle_unit(&mut self) {
        if self.is_presumed() {
            self.open(self.wished());
        }
    }

    /// The longest candidate.
    fn wished(&self) -> u16 {
        self.candidates.first().copied().unwrap_or(0)
    }

    /// The longest unit payload that either end has probed the path with: no longer one can be
    /// known to pass.
    pub fn longest(&self) -> u16 {
        self.longest
    }

    /// A hello arrived: answer it. A second one of the same round is answered too.
    pub fn handle_hello(&mut self, hello: Hello) {
        const ANSWERS_HELD: usize = 8;
        self.longest = self.longest.max(hello.unit_payload.min(UNIT_JUMBO));
        if matches!(self.state, State::Waiting) {
            self.state = State::Open;
            self.outcome = Some(Outcome::Open { unit_payload: hello.unit_payload });
        }
        if self.answers.len() < ANSWERS_HELD && self.answered < HELLOS_ANSWERED {
            self.answered += 1;
            self.answers.push(hello);
        }
    }

    /// An answer arrived; `rtt` is what it measured.
    pub fn handle_ack(&mut self, now: Time, ack: Hello, rtt: Span) {
        if !self.candidates.contains(&ack.unit_payload) {
            return;
        }
        let best = match self.state {
            State::Trying { .. } => ack.unit_payload,
            State::Settling { best, .. } => best.max(ack.unit_payload),
            State::Waiting | State::Open | State::Failed => return,
        };
        if best == self.wished() {
            self.open(best);
            return;
        }
        let settled = now + (rtt / SETTLE_DIVISOR).max(SETTLE_LEAST);
        match &mut self.state {
            State::Settling { best: kept, .. } if *kept == best => {}
            // What was asked for again is not waited for once a longer one than the shortest came.
            State::Settling { best: kept, until, .. } => {
                (*kept, *until) = (best, settled.min(*until));
            }
            State::Trying { .. } if self.candidates.iter().all(|&c| c >= best) => {
                let pending = longer(&self.candidates, best);
                self.state = State::Settling { until: settled + rtt, best, pending };
            }
            State::Trying { .. } => {
                self.state = State::Settling { until: settled, best, pending: Vec::new() };
            }
            State::Waiting | State::Open | State::Failed => {}
        }
    }

    /// The next hello, or answer to one, that is due at `now`.
    pub fn poll_hello(&mut self, now: Time) -> Option<HelloOut> {
        if let Some(hello) = self.answers.pop() {
            return Some(HelloOut::Ack(hello));
        }
        self.advance(now);
        if let State::Settling { pending, .. } = &mut self.state
            && let Some(unit_payload) = pending.pop()
        {
            return Some(HelloOut::Hello(Hello { sent_at: now.as_wire_micros(), unit_payload }));
        }
        if let State::Trying { round_at, retry, pending } = &mut self.state
            && *round_at <= now
        {
            if let Some(unit_payload) = pending.pop() {
                let hello = Hello { sent_at: now.as_wire_micros(), unit_payload };
                return Some(HelloOut::Hello(hello));
            }
            if self.presumption == Presumption::Due {
                self.presumption = Presumption::Made;
                let unit_payload = self.candidates.first().copied().unwrap_or(0);
                self.outcome = Some(Outcome::Presumed { unit_payload });
            }
            *pending = round(&self.candidates);
            *round_at = now + *retry;
            *retry = (*retry * 2).min(RETRY_MOST);
        }
        None
    }

    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.answers.is_empty() {
            return Some(Time::ZERO);
        }
        match &self.state {
            State::Trying { round_at, .. } => Some((*round_at).min(self.deadline)),
            State::Settling { pending, .. } if !pending.is_empty() => Some(Time::ZERO),
            State::Settling { until, .. } => Some(*until),
            State::Waiting | State::Open | State::Failed => None,
        }
    }

    fn advance(&mut self, now: Time) {
        match &mut self.state {
            State::Settling { until, best, .. } if *until <= now => {
                let best = *best;
                self.open(best);
            }
            State::Trying { round_at, .. } => {
                // A round that leaves late says as little about the path until then as none.
                if *round_at <= self.deadline {
                    self.deadline += now.since(*round_at);
                    *round_at = now.max(*round_at);
                }
                if self.deadline <= now {
                    self.state = State::Failed;
                    self.outcome = Some(Outcome::NoPath);
                }
            }
            State::Settling { .. } | State::Waiting | State::Open | State::Failed => {}
        }
    }

    fn open(&mut self, unit_payload: u16) {
        self.state = State::Open;
        self.outcome = Some(Outcome::Open { unit_payload });
    }
}

/// What [`Handshake::poll_hello`] wants sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloOut {
    Hello(Hello),
    Ack(Hello),
}

/// One round of hellos, to be popped from the back: longest first.
fn round(candidates: &[u16]) -> Vec<u16> {
    let mut sizes: Vec<u16> = candidates.iter().flat_map(|&c| [c; COPIES]).collect();
    sizes.sort_unstable();
    sizes
}

/// One round of hellos longer than what was answered. Longer ones may have come before the
/// responder knew of the session: then the shortest alone is answered, though all of them pass.
fn longer(candidates: &[u16], answered: u16) -> Vec<u16> {
    let mut sizes = round(candidates);
    sizes.retain(|&size| size > answered);
    sizes
}

#[cfg(test)]
mod tests;
