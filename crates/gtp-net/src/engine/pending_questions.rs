//! Questions of sessions whether datagrams have come, until the engine can answer them.
//!
//! That none was read proves something only once everything is read that had arrived before the
//! question. A receive buffer that was nearly full then may have let some go unread.

use gtp_proto::FlowId;
use tokio::sync::oneshot::Sender;

use crate::messages::Arrivals;

/// The questions that are not answered yet.
#[derive(Default)]
pub(super) struct PendingQuestions(Vec<Question>);

struct Question {
    flow: FlowId,
    answer: Sender<Arrivals>,
    /// Datagrams may have been lost here before they were read.
    overflowed: bool,
}

/// A receive buffer that is fuller than this may have overflowed: bursts fill the rest, and what
/// it counts of a datagram is more than its bytes.
const FULL: f64 = 0.5;

impl PendingQuestions {
    /// Notes a question about a session, while the fullest receive buffer is `filled` so far.
    /// Forgets the questions of those who have gone: while more datagrams come than can be read, no
    /// question is answered, and clients come and go.
    pub fn ask(&mut self, flow: FlowId, answer: Sender<Arrivals>, filled: f64) {
        self.0.retain(|question| !question.answer.is_closed());
        self.0.push(Question { flow, answer, overflowed: filled > FULL });
    }

    /// Whether there is no question.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Answers all questions. Everything that had arrived before them must be read. `has_heard`
    /// says whether a datagram of a session has come.
    pub fn answer(&mut self, has_heard: impl Fn(FlowId) -> bool) {
        for Question { flow, answer, overflowed } in self.0.drain(..) {
            let arrivals = match (has_heard(flow), overflowed) {
                (true, _) => Arrivals::Some,
                (false, true) => Arrivals::Unread,
                (false, false) => Arrivals::None,
            };
            // Whoever has gone need not know.
            let _ = answer.send(arrivals);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn the_questions_of_clients_that_have_gone_are_forgotten() {
        let mut pending = PendingQuestions::default();
        let ask = |pending: &mut PendingQuestions, flow| {
            let (tell, told) = oneshot::channel();
            pending.ask(flow, tell, 0.1);
            told
        };
        let mut stays = ask(&mut pending, 1);
        for flow in 2..1_000 {
            drop(ask(&mut pending, flow));
        }
        assert_eq!(pending.0.len(), 2, "that of who stays, and that of who went last");
        pending.answer(|_| true);
        assert_eq!(stays.try_recv().unwrap(), Arrivals::Some);
    }

    #[test]
    fn that_nothing_came_is_said_only_where_nothing_can_have_been_lost() {
        let mut pending = PendingQuestions::default();
        let answers = [(1, 0.1), (2, 0.1), (2, 0.9), (1, 0.9)].map(|(flow, filled)| {
            let (tell, told) = oneshot::channel();
            pending.ask(flow, tell, filled);
            told
        });
        pending.answer(|flow| flow == 1);
        assert!(pending.is_empty());
        let answers = answers.map(|mut told| told.try_recv().unwrap());
        use Arrivals::{None, Some, Unread};
        assert_eq!(answers, [Some, None, Unread, Some]);
    }
}
