//! What a law of TCP decides and what it may know.
//!
//! The engine finds losses, counts what is out and repeats what is missing; a [`Law`] says how
//! large the [`Window`] is. Most laws are two functions: `grow` for an acknowledgment and `shrink`
//! for a loss. The other calls have the standard's answers as defaults; a law that is paced, or
//! asks routers, or governs recovery itself answers them too.

use core::fmt;

use gtp_alloc::{Rate, Span, Time};

use crate::Note;

/// A congestion window, in segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The congestion window; the engine sends while fewer whole segments are out.
    pub size: f64,
    /// Slow start ends here.
    pub threshold: f64,
    /// Above this, slow start is limited (RFC 3742); infinite if it is not.
    pub limited_above: f64,
    /// The window that a connection begins with and comes back to when it was idle.
    pub initial: f64,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Being opened: nothing may be sent yet.
    Opening,
    /// No loss is being repaired.
    Open,
    /// Losses found by acknowledgments are being repaired (fast recovery).
    Recovery,
    /// The timer has rung; all that was out is sent again as needed.
    Timeout,
}

/// What an acknowledgment tells a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AckView {
    /// Now.
    pub now: Time,
    /// Where the connection stands, this acknowledgment worked in.
    pub phase: Phase,
    /// What counts for the window's growth: one for each acknowledgment, or the segments that it
    /// acknowledges; see [`Counting`](super::Counting).
    pub credit: f64,
    /// Segments that it acknowledges in order.
    pub acked: u64,
    /// Segments that it shows to have arrived, in order or not.
    pub arrived: u64,
    /// Segments that it shows to be lost.
    pub lost: u64,
    /// The round-trip time of the latest segment that it acknowledges, unless that was repeated.
    pub rtt: Option<Span>,
    /// Smoothed round-trip time.
    pub smoothed_rtt: Span,
    /// Least round-trip time of the connection so far.
    pub least_rtt: Span,
    /// Segments thought to be on the path before this acknowledgment, and after it.
    pub pipe_before: u64,
    /// See `pipe_before`.
    pub pipe: u64,
    /// The first segment not acknowledged.
    pub first: u64,
    /// The first segment never sent.
    pub next: u64,
    /// Whether the window was what limited sending when these segments were sent.
    pub fullness: Fullness,
    /// Segments known to have arrived so far.
    pub delivered: u64,
    /// The delivery rate that the segment sent last among these has seen.
    pub delivery: Option<Delivery>,
}

/// Whether the window is what limits a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fullness {
    /// It is.
    Full,
    /// The application or the receiver is.
    Slack,
}

/// A sample of the rate at which segments arrive
/// (draft-cheng-iccrg-delivery-rate-estimation, section 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery {
    /// Segments that arrived.
    pub segments: u64,
    /// In what time.
    pub interval: Span,
    /// Segments delivered when the sampled segment was sent.
    pub delivered_then: u64,
    /// Segments on the path when the sampled segment was sent, itself included.
    pub in_flight: u64,
    /// Segments marked as lost since then.
    pub lost: u64,
    /// Whether the application was what limited sending then.
    pub fullness: Fullness,
}

/// What a law is told of one segment that is marked as lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LostView {
    /// Now.
    pub now: Time,
    /// The segment's number.
    pub number: u64,
    /// Segments on the path when it was last sent, itself included.
    pub in_flight: u64,
    /// Segments marked as lost since it was last sent, itself included.
    pub lost: u64,
    /// Whether the application was what limited sending then.
    pub fullness: Fullness,
    /// Segments known to have arrived so far.
    pub delivered: u64,
}

/// What a loss tells a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossView {
    /// Now.
    pub now: Time,
    /// The window that was in use: the congestion window, or what was out if that was less
    /// (RFC 5681: FlightSize).
    pub window: f64,
    /// Segments thought to be on the path.
    pub pipe: u64,
    /// The first segment never sent.
    pub next: u64,
    /// Segments known to have arrived so far.
    pub delivered: u64,
}

/// What a law may write on a segment that leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaving {
    /// Now.
    pub now: Time,
    /// The window.
    pub window: Window,
    /// Smoothed round-trip time, zero before the first measurement.
    pub smoothed_rtt: Span,
    /// The segment's bytes on links.
    pub size: gtp_alloc::Bytes,
    /// Whether the window is what limits sending.
    pub fullness: Fullness,
    /// By how many segments RFC 5681, 3.2, would have inflated the window in this fast recovery;
    /// none with blocks.
    pub duplicates: u64,
}

/// A law of the congestion window.
pub trait Law: fmt::Debug + Send {
    /// The law's name in scenario files and tables.
    fn name(&self) -> &'static str;

    /// An acknowledgment of new data while the window is in use and no fast recovery is under way.
    fn grow(&mut self, ack: &AckView, window: &mut Window);

    /// A loss, once in a round of losses: the new slow-start threshold, in segments. The engine
    /// keeps it at two at least.
    fn shrink(&mut self, loss: &LossView) -> f64;

    /// Every acknowledgment, whatever the phase, before `grow`.
    fn observe(&mut self, _ack: &AckView, _window: &mut Window) {}

    /// A round trip has passed: all that was out at the last call has been acknowledged.
    fn handle_round(&mut self, _ack: &AckView, _window: &mut Window) {}

    /// A segment is marked as lost, before the acknowledgment that showed it is worked in.
    fn handle_lost(&mut self, _lost: &LostView, _window: &mut Window) {}

    /// Fast recovery begins. By default the window becomes the new threshold (RFC 6675, 5).
    fn handle_loss(&mut self, loss: &LossView, window: &mut Window) {
        window.threshold = self.shrink(loss).max(LEAST_THRESHOLD);
        window.size = window.threshold;
    }

    /// Fast recovery has ended. By default the window is the threshold.
    fn handle_recovered(&mut self, _now: Time, window: &mut Window) {
        window.size = window.threshold;
    }

    /// The timer has rung for the first time since the last acknowledgment. By default slow start
    /// begins again (RFC 5681, 3.1).
    fn handle_timeout(&mut self, loss: &LossView, window: &mut Window) {
        window.threshold = self.shrink(loss).max(LEAST_THRESHOLD);
        window.size = 1.0;
    }

    /// It has rung again, and nothing was acknowledged in between. By default the threshold stays
    /// as the first one left it (RFC 5681, 3.1).
    fn handle_timeout_again(&mut self, window: &mut Window) {
        window.size = 1.0;
    }

    /// The connection was idle for longer than a timeout. By default it begins with the initial
    /// window (RFC 5681, 4.1).
    fn handle_idle(&mut self, _now: Time, window: &mut Window) {
        window.size = window.size.min(window.initial);
    }

    /// The rate at which segments leave, as bits on links; `None` sends as the window allows.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// What routers on the way shall find on a segment with payload.
    fn stamp(&mut self, _leaving: &Leaving) -> Note {
        Note::None
    }

    /// The echo of a stamp, before the acknowledgment that brought it is worked in.
    fn handle_note(&mut self, _now: Time, _note: &Note, _window: &mut Window) {}
}

/// RFC 5681, equation 4.
const LEAST_THRESHOLD: f64 = 2.0;

impl Window {
    /// A window of this initial size and threshold.
    pub fn new(initial: f64, threshold: f64, limited_above: f64) -> Window {
        Window { size: initial, threshold, limited_above, initial }
    }

    /// Whether slow start is under way.
    pub fn in_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Slow start: one segment for each of `credit` (RFC 5681, 3.1), and above the limit a share
    /// of it (RFC 3742: K = int(cwnd / (0.5 max_ssthresh)), cwnd += MSS / K). Returns the credit
    /// that is left when the threshold is reached, `None` if none is.
    pub fn slow_start(&mut self, credit: f64) -> Option<f64> {
        if !self.in_slow_start() {
            return Some(credit);
        }
        let step = if self.size <= self.limited_above {
            1.0
        } else {
            1.0 / libm::floor(self.size / (0.5 * self.limited_above))
        };
        let wanted = self.size + step * credit;
        self.size = wanted.min(self.threshold);
        let left = (wanted - self.size) / step;
        (left > 0.0).then_some(left)
    }
}
