//! Who wants to know whether datagrams of a session have come.
//!
//! That none was read proves something only once all is read that had come before the question. A
//! receive buffer that was nearly full then may have let some go unread.

use gtp_proto::FlowId;
use tokio::sync::oneshot::Sender;

use crate::messages::Arrivals;

/// Those whose question is open.
#[derive(Default)]
pub(super) struct Curious(Vec<Question>);

struct Question {
    flow: FlowId,
    answer: Sender<Arrivals>,
    /// Datagrams may have been lost here before they were read.
    overflowed: bool,
}

/// A receive buffer that is fuller than this may have overflowed: bursts fill the rest, and what
/// it counts of a datagram is more than its bytes.
const FULL: f64 = 0.5;

impl Curious {
    /// Somebody asks about a session, while the fullest receive buffer is `filled` so far.
    pub fn ask(&mut self, flow: FlowId, answer: Sender<Arrivals>, filled: f64) {
        self.0.push(Question { flow, answer, overflowed: filled > FULL });
    }

    /// Whether nobody asks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that had come is read: answers everybody. `has_heard` says whether a datagram of a
    /// session has come.
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
    fn that_nothing_came_is_said_only_where_nothing_can_have_been_lost() {
        let mut curious = Curious::default();
        let answers = [(1, 0.1), (2, 0.1), (2, 0.9), (1, 0.9)].map(|(flow, filled)| {
            let (tell, told) = oneshot::channel();
            curious.ask(flow, tell, filled);
            told
        });
        curious.answer(|flow| flow == 1);
        assert!(curious.is_empty());
        let answers = answers.map(|mut told| told.try_recv().unwrap());
        use Arrivals::{None, Some, Unread};
        assert_eq!(answers, [Some, None, Unread, Some]);
    }
}
