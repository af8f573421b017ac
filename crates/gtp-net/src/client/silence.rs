//! What it means that no datagram has come in time: the path carries none, or the server is slow.
//!
//! The server says on the control channel what has come of the session's datagrams, once it has
//! read all that was there. Only a prompt word that nothing came speaks against the path. A server
//! without a processor, or with a full receive buffer, is tried again. This module connects to
//! nothing.

use gtp_alloc::{Span, Time};
use gtp_proto::limits::RTT_MOST;

use super::no_path_words;
use crate::flows::{Failure, FailureKind};
use crate::messages::Arrivals;
use crate::trust::HostAddress;

/// What is known of one server's silences.
#[derive(Debug, Default)]
pub(crate) struct Silences {
    /// How often in a row it was prompt and had heard this end, which did not hear it.
    one_way: u32,
}

/// An answer within this is prompt: the longest round-trip time that is believed.
pub(crate) const PROMPT: Span = RTT_MOST;
/// A server that is prompt, and whose datagrams do not come, is tried again so often: its answers
/// may be late by more than its word on the control channel.
const ONE_WAY_MOST: u32 = 2;

/// What is to be done about a silence.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The path carries no datagrams.
    NoPath,
    /// The server is prompt, has heard this end and is not heard: the path carries nothing back,
    /// or the server is slow. Where there is another way to try, that is tried.
    OneWay(Failure),
    /// The server is slow: another attempt may do.
    Slow(Failure),
}

/// What one session asks its server about its silence. A question is put while the session waits
/// on, to see whether the control connection should carry its datagrams, and when it has given the
/// path up. There is one at a time.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    /// When a question was put that is not answered yet.
    asked_at: Option<Time>,
    has_given_up: bool,
    /// Questions so far.
    asked: u32,
}

/// Questions of a session that waits on: a server answers eight.
const ASKED_MOST: u32 = 4;

/// What an answer is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The session waits on.
    Waiting,
    /// It has given the path up.
    GivenUp,
}

impl Inquiry {
    /// The session waits on. Returns whether to ask.
    pub fn wait(&mut self, now: Time) -> bool {
        !self.has_given_up && self.asked < ASKED_MOST && self.ask(now)
    }

    /// The session has given the path up. Returns whether to ask: not if a question is under way,
    /// whose answer counts then.
    pub fn give_up(&mut self, now: Time) -> bool {
        self.has_given_up = true;
        self.ask(now)
    }

    fn ask(&mut self, now: Time) -> bool {
        let asks = !self.is_asked();
        self.asked_at.get_or_insert(now);
        self.asked += u32::from(asks);
        asks
    }

    /// Whether the session has given the path up.
    pub fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    /// Whether a question is under way.
    pub fn is_asked(&self) -> bool {
        self.asked_at.is_some()
    }

    /// The answer has come. Returns what it is to, and how long it took.
    pub fn answer(&mut self, now: Time) -> (Asked, Span) {
        let took = self.asked_at.take().map_or(Span::ZERO, |at| now.since(at));
        (if self.has_given_up { Asked::GivenUp } else { Asked::Waiting }, took)
    }
}

/// Whether what the server says, after `took`, speaks against UDP while the session waits on: it is
/// prompt, and takes in what comes.
pub(crate) fn speaks_against_udp(arrivals: Arrivals, took: Span) -> bool {
    took <= PROMPT && arrivals != Arrivals::Unread
}

impl Silences {
    /// A datagram has come.
    pub fn end(&mut self) {
        self.one_way = 0;
    }

    /// The server has answered, after `took`, what has come of this end's datagrams.
    pub fn judge(&mut self, host: &HostAddress, arrivals: Arrivals, took: Span) -> Verdict {
        let slow = |why: String| Verdict::Slow(slow(host, &why));
        if took > PROMPT {
            self.one_way = 0;
            return slow(format!("it took {:.1} s to answer", took.as_secs_f64()));
        }
        match arrivals {
            Arrivals::None => Verdict::NoPath,
            Arrivals::Unread => slow("it does not keep up with the datagrams that come".into()),
            Arrivals::Some => {
                self.one_way += 1;
                let why = "datagrams reach it, and it does not answer them in time";
                match self.one_way > ONE_WAY_MOST {
                    true => Verdict::NoPath,
                    false => Verdict::OneWay(self::slow(host, why)),
                }
            }
        }
    }
}

/// That a server has not answered within [`PROMPT`].
pub(crate) fn unanswered(host: &HostAddress) -> Failure {
    slow(host, &format!("it has not answered for {:.0} s", PROMPT.as_secs_f64()))
}

/// That a server is slow, by this sign of it.
pub(crate) fn slow(host: &HostAddress, why: &str) -> Failure {
    Failure::new(FailureKind::Temporary, format!("{host} is slow: {why}"))
}

/// That a server has ended the session because no datagram came. Whether the path carries any is
/// found by this end, which had not tried for long enough.
pub(crate) fn not_waited_for() -> Failure {
    let text = "the server has waited in vain for a datagram; this host may be slow";
    Failure::new(FailureKind::Temporary, text)
}

/// That there was a path, and there may be one again.
pub(super) fn path_lost(host: &HostAddress) -> Failure {
    Failure::new(FailureKind::Temporary, no_path_words(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostAddress {
        HostAddress::new("h", 1).unwrap()
    }

    fn is_slow(silences: &mut Silences, arrivals: Arrivals, took_ms: u64) -> bool {
        match silences.judge(&host(), arrivals, Span::from_millis(took_ms)) {
            Verdict::NoPath => false,
            Verdict::Slow(failure) | Verdict::OneWay(failure) => {
                assert!(failure.is_temporary() && failure.text.contains("is slow"), "{failure}");
                true
            }
        }
    }

    #[test]
    fn a_session_asks_one_question_at_a_time_and_few_while_it_waits() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut inquiry = Inquiry::default();
        assert!(inquiry.wait(at(1)) && !inquiry.wait(at(2)));
        assert_eq!(inquiry.answer(at(3)), (Asked::Waiting, Span::from_secs(2)));
        assert!(inquiry.wait(at(4)) && !inquiry.give_up(at(5)), "the answer is on its way");
        assert_eq!(inquiry.answer(at(6)), (Asked::GivenUp, Span::from_secs(2)));
        let mut patient = Inquiry::default();
        let mut ask = || patient.wait(at(1)) && patient.answer(at(1)).0 == Asked::Waiting;
        assert_eq!((0..10).filter(|_| ask()).count(), 4);
        assert!(patient.give_up(at(1)));
    }

    #[test]
    fn while_a_session_waits_a_slow_server_does_not_speak_against_udp() {
        let late = PROMPT + Span::from_millis(1);
        let says = [Arrivals::None, Arrivals::Some, Arrivals::Unread];
        let against = |took| says.map(|arrivals| speaks_against_udp(arrivals, took));
        assert_eq!(against(PROMPT), [true, true, false]);
        assert_eq!(against(late), [false; 3]);
    }

    #[test]
    fn only_a_prompt_word_that_nothing_came_speaks_against_the_path() {
        let mut silences = Silences::default();
        assert!(!is_slow(&mut silences, Arrivals::None, 1));
        assert!(!is_slow(&mut silences, Arrivals::None, 2_000));
        for _ in 0..10 {
            assert!(is_slow(&mut silences, Arrivals::None, 2_001));
            assert!(is_slow(&mut silences, Arrivals::Some, 2_001));
            assert!(is_slow(&mut silences, Arrivals::Unread, 1));
        }
    }

    #[test]
    fn a_prompt_server_that_is_never_heard_is_given_up_after_three_sessions() {
        let mut silences = Silences::default();
        let tries = |silences: &mut Silences| {
            (0..5).take_while(|_| is_slow(silences, Arrivals::Some, 1)).count()
        };
        assert_eq!(tries(&mut silences), 2);
        silences.end();
        assert_eq!(tries(&mut silences), 2);
    }
}
