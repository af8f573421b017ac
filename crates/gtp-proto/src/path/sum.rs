//! What several sessions' receipts say, as one sample.
//!
//! The machine of a group sees it as it would see one session's. This module must not know groups
//! or what is made of a sample.

use gtp_alloc::{Bytes, Rate, Span};

use super::Sample;
use super::member::Piece;

/// The rates at which what a piece is about was sent and arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    sent: Rate,
    arrived: Rate,
}

/// Pieces of several sessions, as they add up.
///
/// Bytes add up, and the time of all is the mean of the times that their pieces cover. A session
/// that has said nothing covers no time, and covers more with its next piece. But all together are
/// no slower than those that have spoken, and no faster than all were when each spoke last: a piece
/// may tell of a pause, and a session that says little speaks seldom.
#[derive(Default)]
pub(super) struct Sum {
    sessions: u64,
    packets: u64,
    whole: Sample,
    /// Rates of those that have spoken, and of all.
    spoken: Rates,
    all: Rates,
    delay: Option<Span>,
    peak: Span,
}

/// A sum that is shorter than this says nothing of a rate: send times are known to a millisecond.
const SUM_MIN: Span = Span::from_millis(4);
/// The least time of a piece that makes a rate.
const PIECE_MIN: Span = Span::from_millis(1);

impl Rates {
    /// The rates of a piece.
    pub fn of(piece: &Piece) -> Rates {
        let Sample { sent, sent_in, arrived, arrived_in, .. } = piece.sample;
        let per = |bytes: Bytes, span: Span| bytes.per(span.max(PIECE_MIN));
        Rates { sent: per(sent, sent_in), arrived: per(arrived, arrived_in) }
    }

    fn and(self, other: Rates) -> Rates {
        Rates {
            sent: self.sent.saturating_add(other.sent),
            arrived: self.arrived.saturating_add(other.arrived),
        }
    }
}

impl Sum {
    /// Adds a session that has said nothing, and had these rates when it spoke last.
    pub fn add_silent(&mut self, rates: Rates) {
        self.sessions += 1;
        self.all = self.all.and(rates);
    }

    /// Adds what the receipts of one session said. Its sink took a delay of `over` for a part of
    /// the path.
    pub fn add(&mut self, piece: &Piece, over: Span) {
        self.add_silent(Rates::of(piece));
        self.spoken = self.spoken.and(Rates::of(piece));
        let (sum, said) = (&mut self.whole, &piece.sample);
        (sum.sent, sum.sent_in) = (sum.sent + said.sent, sum.sent_in + said.sent_in);
        (sum.arrived, sum.arrived_in) =
            (sum.arrived + said.arrived, sum.arrived_in + said.arrived_in);
        sum.lost += said.lost;
        sum.marked += said.marked;
        sum.receipts = sum.receipts.and(said.receipts);
        self.packets += piece.packets;
        if said.arrived > Bytes::ZERO {
            let delay = said.delay + over;
            self.peak = self.peak.max(said.peak + over);
            self.delay = Some(self.delay.map_or(delay, |least| least.min(delay)));
        }
    }

    /// All of it as a sample that ends before the group's packet `end_pn`, if it is long enough.
    pub fn sample(&self, end_pn: u64) -> Option<Sample> {
        let Sample { sent, arrived, .. } = self.whole;
        let mean = |span: Span| span / self.sessions.max(1);
        let sent_in = span_of(sent, mean(self.whole.sent_in), self.spoken.sent, self.all.sent);
        let arrived_in =
            span_of(arrived, mean(self.whole.arrived_in), self.spoken.arrived, self.all.arrived);
        let long = sent_in >= SUM_MIN && arrived_in >= SUM_MIN / 2;
        (long && sent > Bytes::ZERO).then_some(Sample {
            sent_in,
            arrived_in,
            delay: self.delay.unwrap_or(Span::ZERO),
            peak: self.peak,
            first_pn: end_pn.saturating_sub(self.packets),
            end_pn,
            ..self.whole
        })
    }
}

/// The time that `bytes` took, by the mean of the times of their pieces, at rates from `least` to
/// `most`.
fn span_of(bytes: Bytes, mean: Span, least: Rate, most: Rate) -> Span {
    if bytes == Bytes::ZERO { mean } else { mean.min(bytes / least).max(bytes / most) }
}
