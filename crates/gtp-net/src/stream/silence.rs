//! What becomes of a connection whose datagrams nobody answers.
//!
//! The end that calls asks the host what has come of its datagrams, as a client of files does, and
//! so tells a path that carries none from a host that is slow. A connection is tried once: the
//! first answer decides, or that there was none in time.

use std::pin::Pin;
use std::time::Duration;

use gtp_alloc::Time;
use gtp_proto::Revision;
use gtp_sys::Clock;
use gtp_sys::clock::duration;
use tokio::time::{Sleep, sleep};

use crate::client::no_path_words;
use crate::client::silence::{PROMPT, Silences, Verdict, not_waited_for, unanswered};
use crate::control::ControlError;
use crate::engine::{Incoming, Outgoing};
use crate::flows::{Failure, FailureKind};
use crate::messages::{Arrivals, Message};
use crate::server::path_questions::PathQuestions;
use crate::trust::HostAddress;

/// One end's part in finding out why no datagram comes.
pub(super) enum Silence {
    /// It has called, and asks.
    Caller(Caller),
    /// It was called, and answers.
    Host(PathQuestions),
}

/// The end that calls.
pub(super) struct Caller {
    host: HostAddress,
    revision: Revision,
    clock: Clock,
    asked: Option<Asked>,
}

struct Asked {
    at: Time,
    /// Ends when the answer is overdue. It is kept because [`Silence::overdue`] is cancelled and
    /// called again whenever something else happens, and the time runs from the question.
    overdue: Pin<Box<Sleep>>,
}

/// What follows from a silence.
pub(super) enum Next {
    /// The host is to be asked this.
    Ask(Message),
    /// It has been asked already.
    Wait,
    /// The connection fails.
    Fail(Failure),
}

impl Silence {
    /// That of an end that calls `host`, which speaks this revision.
    pub fn of_caller(host: &HostAddress, revision: Revision, clock: Clock) -> Silence {
        Silence::Caller(Caller { host: host.clone(), revision, clock, asked: None })
    }

    /// That of an end that was called.
    pub fn of_host() -> Silence {
        Silence::Host(PathQuestions::default())
    }

    /// Whether the host is asked at present. What the sessions say does not count meanwhile.
    pub fn is_open(&self) -> bool {
        matches!(self, Silence::Caller(Caller { asked: Some(_), .. }))
    }

    /// No datagram of a session has been answered.
    pub fn begin(&mut self) -> Next {
        match self {
            Silence::Caller(Caller { asked: Some(_), .. }) => Next::Wait,
            Silence::Caller(caller) if caller.revision >= Revision::Third => {
                let overdue = Box::pin(sleep(duration(PROMPT) + GRACE));
                caller.asked = Some(Asked { at: caller.clock.now(), overdue });
                Next::Ask(Message::ArrivalsWanted)
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
            Silence::Caller(Caller { asked: Some(asked), host, .. }) => {
                asked.overdue.as_mut().await;
                unanswered(host)
            }
            Silence::Caller(_) | Silence::Host(_) => std::future::pending().await,
        }
    }

    /// The host's answer; `None` if nobody has asked.
    pub fn judge(&self, arrivals: Arrivals) -> Option<Failure> {
        let Silence::Caller(caller) = self else { return None };
        let took = caller.clock.now().since(caller.asked.as_ref()?.at);
        Some(match Silences::default().judge(&caller.host, arrivals, took) {
            Verdict::NoPath => caller.no_path(),
            Verdict::Slow(failure) => failure,
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
        let Silence::Host(questions) = self else {
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
        Silence::of_caller(&HostAddress::new("h", 1).unwrap(), revision, Clock::start())
    }

    #[tokio::test]
    async fn a_caller_asks_once_and_a_prompt_word_that_nothing_came_means_that_there_is_no_path() {
        let mut silence = caller(Revision::Third);
        assert!(silence.judge(Arrivals::None).is_none(), "nobody has asked");
        assert!(matches!(silence.begin(), Next::Ask(Message::ArrivalsWanted)));
        assert!(silence.is_open() && matches!(silence.begin(), Next::Wait));
        let kind = |arrivals| silence.judge(arrivals).unwrap().kind;
        assert_eq!(kind(Arrivals::None), FailureKind::NoUdpPath);
        assert_eq!(kind(Arrivals::Some), FailureKind::Temporary);
        assert_eq!(kind(Arrivals::Unread), FailureKind::Temporary);
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
        assert_eq!(Silence::of_host().weigh(said.clone()), said, "the caller has asked");
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
