//! XCP's sender: a window that follows what the routers say.
//!
//! Each packet carries the round-trip time and the throughput that the window stands for, and asks
//! for as much as there is. Each acknowledgment brings back what the way left of that, and the
//! window changes by it times the round-trip time. There is no slow start and no growth of its
//! own. It needs an acknowledgment for every packet: what a packet was given and nobody returns
//! is lost.
//!
//! | rule | source | where |
//! |---|---|---|
//! | a packet carries round-trip time, throughput and a wish | Katabi, 3.2 | `stamp` |
//! | w += what came back, one packet at least | Katabi, 3.3; ns-2 | `handle_note`, `observe` |
//! | what came back is a throughput, times the round-trip time a window | ns-2 | `packets` |
//! | the wish is without bound | ns-2 | `stamp` |
//! | an unused window is given back | ours | `handle_round` |
//! | loss: w = w/2 | Katabi, 3.3: as TCP | `shrink` |
//!
//! On loss it does as Reno does, as in ns-2; figure VIII.11 of the thesis shows what comes of that.

use gtp_alloc::{Bytes, Span, Time};

use super::Request;
use crate::Note;
use crate::tcp::{AckView, Fullness, Law as Tcp, Leaving, LossView, Phase, Window};

/// The law; a window over the TCP engine.
#[derive(Clone, Debug, Default)]
pub struct Law {
    rtt: Span,
    /// Bytes on links of a full packet.
    size: Bytes,
    /// Returned and not yet applied, bit/s.
    feedback: f64,
    /// Most packets on the path in this round, and whether the window was full in it.
    most: u64,
    full: Option<Fullness>,
    /// Payload of a full packet, for the form that stands opposite ns-2.
    ns2: Option<Bytes>,
}

impl Law {
    /// The law of a new connection.
    #[must_use]
    pub fn new() -> Law {
        Law::default()
    }

    /// The form that stands opposite `Agent/TCP/Reno/XCP` of ns-2, with packets of this payload.
    /// There the window in the header is in whole packets and, in fast recovery, inflated by
    /// duplicates; the round-trip time is smoothed by an eighth for every acknowledgment; and the
    /// change of throughput is divided by the payload.
    #[must_use]
    pub fn as_in_ns2(payload: Bytes) -> Law {
        Law { ns2: Some(payload), ..Law::default() }
    }

    /// The change of the window, in packets, that belongs to a change of throughput.
    fn packets(&self, bits_per_second: f64) -> f64 {
        let each = 8.0 * self.ns2.unwrap_or(self.size).0.max(1) as f64;
        bits_per_second * self.rtt.as_secs_f64() / each
    }
}

impl Tcp for Law {
    fn name(&self) -> &'static str {
        "xcp"
    }

    fn stamp(&mut self, leaving: &Leaving) -> Note {
        let window = match self.ns2 {
            None => leaving.window.size,
            Some(_) => libm::floor(leaving.window.size) + leaving.duplicates as f64,
        };
        if self.ns2.is_none() {
            self.rtt = leaving.smoothed_rtt;
        }
        self.size = self.size.max(leaving.size);
        if self.rtt == Span::ZERO {
            return Note::Xcp(Request::default());
        }
        // Throughput in bytes on links, which is what routers count.
        let throughput = Bytes(libm::round(window * self.size.0 as f64) as u64).per(self.rtt);
        // A session whose application has no more keeps asking, too: what it is given is lost, and
        // that is what figures VIII.9 and VIII.10 are about.
        Note::Xcp(Request { rtt: self.rtt, throughput, delta: f64::INFINITY })
    }

    fn handle_note(&mut self, _now: Time, note: &Note, _window: &mut Window) {
        if let Note::Xcp(Request { delta, .. }) = note
            && delta.is_finite()
        {
            self.feedback += delta;
        }
    }

    /// Applied to every acknowledgment of new data outside fast recovery, as in ns-2; what comes
    /// back during recovery is lost.
    fn observe(&mut self, ack: &AckView, window: &mut Window) {
        if self.ns2.is_some() {
            self.rtt = smoothed(self.rtt, ack.rtt);
        }
        self.most = self.most.max(ack.pipe_before);
        if ack.fullness == Fullness::Full {
            self.full = Some(Fullness::Full);
        }
        let feedback = core::mem::take(&mut self.feedback);
        let change = self.packets(feedback);
        let repairing = ack.phase == Phase::Recovery || ack.acked == 0;
        // What the application cannot use does not add up to a burst for later.
        let useless = change > 0.0 && ack.fullness == Fullness::Slack;
        if !repairing && !useless {
            window.size = (window.size + change).max(1.0); // Katabi, 3.3.
        }
    }

    fn grow(&mut self, _ack: &AckView, _window: &mut Window) {}

    /// `[FIX]` The paper does not say what an unused window becomes. Here it is given back to what
    /// was used of it, so that the throughput in the header stays the sender's.
    fn handle_round(&mut self, _ack: &AckView, window: &mut Window) {
        let most = core::mem::take(&mut self.most) as f64;
        if self.full.take().is_none() {
            window.size = window.size.min(most + 1.0);
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        self.feedback = 0.0;
        loss.window / 2.0 // Katabi, 3.3.
    }
}

/// The round-trip time after a sample, the first of which it begins with.
fn smoothed(before: Span, sample: Option<Span>) -> Span {
    match sample {
        Some(first) if before == Span::ZERO => first,
        Some(rtt) => (before * 7 + rtt) / 8,
        None => before,
    }
}
