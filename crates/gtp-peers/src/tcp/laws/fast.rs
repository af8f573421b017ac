//! FAST TCP: C. Jin, D. Wei, S. Low, 2004; thesis, II.5.C.
//!
//! | rule | source | where |
//! |---|---|---|
//! | w = min(2w, (1-g) w + g (w baseRTT/RTT + alpha)), every 2nd | equation 5 | `handle_round` |
//! | baseRTT the least, RTT a smoothed round-trip time | paper, IV.B | `observe` |
//! | loss: w = w/2 | paper, IV.A | `shrink` |
//!
//! The thesis prints w = w baseRTT/RTT + alpha, which is g = 1. alpha is the number of segments
//! that each flow keeps in queues; it has to fit the path's speed (200 at 1 Gbit/s), so it is a
//! parameter. At rest each flow has x = alpha/(RTT - baseRTT): equal shares with equal alpha.
//! Departure: slow start ends when alpha segments wait, or at the first loss.

use gtp_alloc::Span;

use crate::tcp::law::{AckView, Law, LossView, Phase, Window};

/// A set number of segments in queues, reached by steps in proportion to the distance.
#[derive(Clone, Copy, Debug)]
pub struct Fast {
    alpha: f64,
    smoothed: f64,
    rounds: u64,
}

impl Fast {
    /// Keeps `alpha` segments in queues.
    pub fn new(alpha: f64) -> Fast {
        Fast { alpha, smoothed: 0.0, rounds: 0 }
    }

    /// The segments that wait, by this law's own estimate.
    fn share_of_base(&self, base: Span) -> f64 {
        if self.smoothed == 0.0 { 1.0 } else { (base.as_secs_f64() / self.smoothed).min(1.0) }
    }
}

impl Default for Fast {
    fn default() -> Fast {
        Fast::new(200.0) // Paper, V: for 1 Gbit/s.
    }
}

impl Law for Fast {
    fn name(&self) -> &'static str {
        "fast"
    }

    fn observe(&mut self, ack: &AckView, window: &mut Window) {
        let Some(rtt) = ack.rtt.map(Span::as_secs_f64) else { return };
        // Paper, IV.B: the gain is min(3/w, 1/4) for each acknowledgment.
        let gain = (3.0 / window.size).min(0.25);
        self.smoothed =
            if self.smoothed == 0.0 { rtt } else { self.smoothed + gain * (rtt - self.smoothed) };
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        window.slow_start(if window.in_slow_start() { ack.credit } else { 0.0 });
    }

    fn handle_round(&mut self, ack: &AckView, window: &mut Window) {
        self.rounds += 1;
        let share = self.share_of_base(ack.least_rtt);
        if window.in_slow_start() {
            if window.size * (1.0 - share) > self.alpha {
                window.threshold = window.size;
            }
            return;
        }
        if ack.phase == Phase::Open && self.rounds.is_multiple_of(2) {
            let w = window.size;
            // Equation 5; thesis, II.5.C, which prints it with a gain of one.
            let target = (1.0 - GAIN) * w + GAIN * (w * share + self.alpha);
            window.size = target.min(2.0 * w).max(2.0);
            // A falling window does not mean slow start.
            window.threshold = window.threshold.min(window.size);
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        loss.window / 2.0 // Paper, IV.A.
    }
}

/// The paper's gamma.
const GAIN: f64 = 0.5;
