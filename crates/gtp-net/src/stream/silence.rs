//! What becomes of a connection whose datagrams nobody answers.
//!
//! The end that calls asks the host what has come of its datagrams, as a client of files does, and
//! so tells a path that carries none from a host that is slow. While the sessions wait on, an
//! answer that speaks against UDP has the control connection carry the datagrams, if it may. A
//! connection is tried once: when its sessions have given the path up, the first answer decides, or
//! that there was none in time.

use std::pin::Pin;
use std::time::Duration;

use gtp_proto::Revision;
use gtp_sys::Clock;
use gtp_sys::clock::duration;
use tokio::time::{Sleep, sleep};

use crate::client::no_path_words;
use crate::client::silence::{
    Asked, Inquiry, PROMPT, Silences, Verdict, not_waited_for, speaks_against_udp, unanswered,
};
use crate::control::ControlError;
use crate::engine::{Incoming, Outgoing};
use crate::flows::{Failure, FailureKind};
use crate::messages::{Arrivals, Message};
use crate::server::path_questions::PathQuestions;
use crate::trust::HostAddress;

/// One end's part in finding out why no datagram comes.
pub(crate) enum Silence {
    /// It has called, and asks.
    Caller(Caller),
    /// It was called, and answers.
    Host(Called),
}

/// The end that calls.
pub(crate) struct Caller {
    host: HostAddress,
    revision: Revision,
    clock: Clock,
    carriage: MayCarry,
    /// Whether the control connection carries the datagrams.
    is_carried: bool,
    inquiry: Inquiry,
    /// Once the path is given up, this ends when the answer is overdue. It is kept because
    /// [`Silence::overdue`] is cancelled and called again whenever something else happens, and the
    /// time runs from the question.
    overdue: Option<Pin<Box<Sleep>>>,
}

/// The end that was called.
pub(crate) struct Called {
    revision: Revision,
    questions: PathQuestions,
}

/// Whether the control connection may carry a connection's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MayCarry {
    /// Before a datagram has come: the host's other IP version may have to be tried first.
    pub before: bool,
    /// Once the path was open.
    pub after: bool,
}

impl MayCarry {
    /// It may not.
    #[cfg(test)]
    pub const NEVER: MayCarry = MayCarry { before: false, after: false };
}

/// What follows from a silence.
pub(crate) enum Next {
    /// The host is to be asked this.
    Ask(Message),
    /// It has been asked already.
    Wait,
    /// The connection fails.
    Fail(Failure),
}

/// What the host's answer means.
pub(crate) enum Judged {
    /// UDP does not get through: the control connection is to carry the datagrams.
    Carry,
    /// The sessions wait on.
    Wait,
    /// The connection fails.
    Fail(Failure),
}

impl Silence {
    /// That of an end that calls `host`, which speaks this revision.
    pub fn of_caller(
        host: &HostAddress,
        revision: Revision,
        clock: Clock,
        carriage: MayCarry,
    ) -> Silence {
        let (host, inquiry) = (host.clone(), Inquiry::default());
        let (is_carried, overdue) = (false, None);
        Silence::Caller(Caller { host, revision, clock, carriage, is_carried, inquiry, overdue })
    }

    /// That of an end that was called by one of this revision.
    pub fn of_host(revision: Revision) -> Silence {
        Silence::Host(Called { revision, questions: PathQuestions::default() })
    }

    /// For some time no datagram of a session has come, and it waits on; `is_open` says whether one
    /// has come before. Returns what to say to the other end.
    pub fn wait(&mut self, is_open: bool) -> Option<Message> {
        match self {
            Silence::Caller(caller) => {
                let may = if is_open { caller.carriage.after } else { caller.carriage.before };
                let asks = may && !caller.is_carried && caller.inquiry.wait(caller.clock.now());
                asks.then_some(Message::ArrivalsWanted)
            }
            Silence::Host(called) => {
                (called.revision >= Revision::Sixth).then_some(Message::Unheard)
            }
        }
    }

    /// The control connection carries the datagrams from now on.
    pub fn is_carried(&mut self) {
        if let Silence::Caller(caller) = self {
            caller.is_carried = true;
        }
    }

    /// Whether this end was called, and its caller may have the control connection carry
    /// datagrams.
    pub fn takes_carry(&self) -> bool {
        matches!(self, Silence::Host(called) if called.revision >= Revision::Sixth)
    }

    /// Whether this end has called, and the host may say that it hears nothing.
    pub fn takes_unheard(&self) -> bool {
        matches!(self, Silence::Caller(caller) if caller.revision >= Revision::Sixth)
    }

    /// Whether the path is given up and the host's answer is awaited. What the sessions say does
    /// not count meanwhile.
    pub fn is_open(&self) -> bool {
        matches!(self, Silence::Caller(Caller { overdue: Some(_), .. }))
    }

    /// No datagram of a session has been answered.
    pub fn begin(&mut self) -> Next {
        match self {
            Silence::Caller(Caller { overdue: Some(_), .. }) => Next::Wait,
            Silence::Caller(caller) if caller.revision >= Revision::Third => {
                // The limit on the host's answer, which is raced with it.
                caller.overdue = Some(Box::pin(sleep(duration(PROMPT) + GRACE)));
                match caller.inquiry.give_up(caller.clock.now()) {
                    true => Next::Ask(Message::ArrivalsWanted),
                    false => Next::Wait,
                }
            }
            Silence::Caller(caller) => Next::Fail(caller.no_path()),
            // An end that was called waits for as long as the caller is there.
            Silence::Host(_) => {
                let text = "no datagram gets through; a firewall between may block UDP";
                Next::Fail(Failure::new(FailureKind::NoUdpPath, text))
            }
        }
    }

    /// Waits until the answer is overdue, and returns what that means. Safe to cancel.
    pub async fn overdue(&mut self) -> Failure {
        match self {
            Silence::Caller(Caller { overdue: Some(overdue), host, .. }) => {
                overdue.as_mut().await;
                unanswered(host)
            }
            Silence::Caller(_) | Silence::Host(_) => std::future::pending().await,
        }
    }

    /// The host's answer; `None` if nobody has asked.
    pub fn judge(&mut self, arrivals: Arrivals) -> Option<Judged> {
        let Silence::Caller(caller) = self else { return None };
        if !caller.inquiry.is_asked() {
            return None;
        }
        let (asked, took) = caller.inquiry.answer(caller.clock.now());
        Some(match asked {
            Asked::Waiting if speaks_against_udp(arrivals, took) => Judged::Carry,
            Asked::Waiting => Judged::Wait,
            Asked::GivenUp => {
                Judged::Fail(match Silences::default().judge(&caller.host, arrivals, took) {
                    Verdict::NoPath => caller.no_path(),
                    Verdict::Slow(failure) | Verdict::OneWay(failure) => failure,
                })
            }
        })
    }

    /// The answer to the caller's question, of which of both sessions' datagrams have come.
    ///
    /// # Errors
    /// If nobody may ask this end, or if the caller asks without end.
    pub async fn answer(
        &mut self,
        outgoing: &Outgoing,
        incoming: &Incoming,
    ) -> Result<Message, ControlError> {
        let Silence::Host(Called { questions, .. }) = self else {
            let name = Message::ArrivalsWanted.name();
            return Err(ControlError::Unexpected(format!("message {name}")));
        };
        let (out, in_) = (outgoing.arrivals(), incoming.arrivals());
        questions.answer(async { Some(of_both(out.await?, in_.await?)) }).await
    }

    /// What it means here that the other end has broken the connection off for this. A host that
    /// has waited in vain proves nothing: the caller has not tried for long enough.
    pub fn weigh(&self, failure: Failure) -> Failure {
        match self {
            Silence::Caller(_) if failure.kind == FailureKind::NoUdpPath => not_waited_for(),
            Silence::Caller(_) | Silence::Host(_) => failure,
        }
    }
}

impl Caller {
    fn no_path(&self) -> Failure {
        Failure::new(FailureKind::NoUdpPath, no_path_words(&self.host))
    }
}

/// What has come of two sessions whose datagrams go the same way.
fn of_both(one: Arrivals, other: Arrivals) -> Arrivals {
    match (one, other) {
        (Arrivals::Some, _) | (_, Arrivals::Some) => Arrivals::Some,
        (Arrivals::Unread, _) | (_, Arrivals::Unread) => Arrivals::Unread,
        (Arrivals::None, Arrivals::None) => Arrivals::None,
    }
}

/// What an answer may be late by until it is missed: one that is prompt by its own time is read
/// first.
const GRACE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn caller(revision: Revision) -> Silence {
        may_carry(revision, MayCarry::NEVER)
    }

    fn may_carry(revision: Revision, carriage: MayCarry) -> Silence {
        let host = HostAddress::new("h", 1).unwrap();
        Silence::of_caller(&host, revision, Clock::start(), carriage)
    }

    fn failed(silence: &mut Silence, arrivals: Arrivals) -> FailureKind {
        let Some(Judged::Fail(failure)) = silence.judge(arrivals) else { panic!("no failure") };
        failure.kind
    }

    #[tokio::test]
    async fn a_caller_asks_once_and_a_prompt_word_that_nothing_came_means_that_there_is_no_path() {
        for (arrivals, kind) in [
            (Arrivals::None, FailureKind::NoUdpPath),
            (Arrivals::Some, FailureKind::Temporary),
            (Arrivals::Unread, FailureKind::Temporary),
        ] {
            let mut silence = caller(Revision::Third);
            assert!(silence.judge(Arrivals::None).is_none(), "nobody has asked");
            assert!(matches!(silence.begin(), Next::Ask(Message::ArrivalsWanted)));
            assert!(silence.is_open() && matches!(silence.begin(), Next::Wait));
            assert_eq!(failed(&mut silence, arrivals), kind);
        }
    }

    #[tokio::test]
    async fn while_the_sessions_wait_a_caller_that_may_asks_and_an_answer_has_tcp_carry_them() {
        let may = MayCarry { before: false, after: true };
        let mut silence = may_carry(Revision::Sixth, may);
        assert_eq!(silence.wait(false), None, "the other IP version has its chance first");
        assert_eq!(silence.wait(true), Some(Message::ArrivalsWanted));
        assert_eq!(silence.wait(true), None, "one question at a time");
        assert!(!silence.is_open());
        assert!(matches!(silence.judge(Arrivals::Unread), Some(Judged::Wait)));
        assert_eq!(silence.wait(true), Some(Message::ArrivalsWanted));
        assert!(matches!(silence.judge(Arrivals::None), Some(Judged::Carry)));
        silence.is_carried();
        assert_eq!(silence.wait(true), None);
        assert_eq!(caller(Revision::Sixth).wait(true), None, "it may not");
    }

    #[test]
    fn only_a_caller_that_knows_it_hears_that_its_datagrams_do_not_come() {
        assert_eq!(Silence::of_host(Revision::Sixth).wait(true), Some(Message::Unheard));
        assert_eq!(Silence::of_host(Revision::Fifth).wait(true), None);
        let host = Silence::of_host(Revision::Sixth);
        assert!(host.takes_carry() && !host.takes_unheard());
        assert!(!Silence::of_host(Revision::Fifth).takes_carry());
        assert!(caller(Revision::Sixth).takes_unheard());
    }

    #[test]
    fn a_host_of_an_older_revision_is_not_asked() {
        let mut silence = caller(Revision::Second);
        let Next::Fail(failure) = silence.begin() else { panic!("it is asked") };
        assert_eq!(failure.kind, FailureKind::NoUdpPath);
        assert!(!silence.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_does_not_answer_in_time_is_slow() {
        let mut silence = caller(Revision::Third);
        let begun = Instant::now();
        silence.begin();
        let failure = silence.overdue().await;
        assert_eq!(failure.kind, FailureKind::Temporary, "{failure}");
        assert_eq!(begun.elapsed(), duration(PROMPT) + GRACE);
    }

    #[test]
    fn that_a_host_has_waited_in_vain_proves_nothing_to_the_caller() {
        let said = Failure::new(FailureKind::NoUdpPath, "no datagram came");
        assert_eq!(caller(Revision::Third).weigh(said.clone()).kind, FailureKind::Temporary);
        assert_eq!(
            Silence::of_host(Revision::Third).weigh(said.clone()),
            said,
            "the caller has asked"
        );
        let other = Failure::new(FailureKind::Missing, "no such service");
        assert_eq!(caller(Revision::Third).weigh(other.clone()), other);
    }

    #[test]
    fn a_datagram_of_either_session_has_come() {
        use Arrivals::{None, Some, Unread};
        for (one, other, both) in
            [(None, None, None), (Some, None, Some), (Unread, Some, Some), (None, Unread, Unread)]
        {
            assert_eq!((of_both(one, other), of_both(other, one)), (both, both));
        }
    }
}
