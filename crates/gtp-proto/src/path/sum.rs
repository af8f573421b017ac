//! What several sessions' receipts say, as one sample.
//!
//! The machine of a group sees it as it would see one session's. This module must not know groups
//! or what is made of a sample.

use gtp_alloc::{Bytes, Span};

use super::Sample;
use super::member::Piece;

/// Pieces of several sessions, as they add up.
///
/// Bytes add up, and the time of all is the mean of the times that their pieces cover. A session
/// that has said nothing covers no time, and covers more with its next piece: nothing is counted
/// twice or left out.
#[derive(Default)]
pub(super) struct Sum {
    sessions: u64,
    packets: u64,
    whole: Sample,
    delay: Option<Span>,
}

/// A sum that is shorter than this says nothing of a rate: send times are known to a millisecond.
const SUM_MIN: Span = Span::from_millis(4);

impl Sum {
    /// Adds what the receipts of one session said, if they did. Its sink took a delay of `over` for
    /// a part of the path.
    pub fn add(&mut self, piece: Option<&Piece>, over: Span) {
        self.sessions += 1;
        let Some(piece) = piece else { return };
        let (sum, said) = (&mut self.whole, &piece.sample);
        (sum.sent, sum.sent_in) = (sum.sent + said.sent, sum.sent_in + said.sent_in);
        (sum.arrived, sum.arrived_in) =
            (sum.arrived + said.arrived, sum.arrived_in + said.arrived_in);
        sum.lost += said.lost;
        self.packets += piece.packets;
        if said.arrived > Bytes::ZERO {
            let delay = said.delay + over;
            self.delay = Some(self.delay.map_or(delay, |least| least.min(delay)));
        }
    }

    /// All of it as a sample that ends before the group's packet `end_pn`, if it is long enough.
    pub fn sample(&self, end_pn: u64) -> Option<Sample> {
        let sessions = self.sessions.max(1);
        let (sent_in, arrived_in) =
            (self.whole.sent_in / sessions, self.whole.arrived_in / sessions);
        let long = sent_in >= SUM_MIN && arrived_in >= SUM_MIN / 2;
        (long && self.whole.sent > Bytes::ZERO).then_some(Sample {
            sent_in,
            arrived_in,
            delay: self.delay.unwrap_or(Span::ZERO),
            first_pn: end_pn.saturating_sub(self.packets),
            end_pn,
            ..self.whole
        })
    }
}
