//! TCP Vegas: L. Brakmo and L. Peterson, 1995, in the form that Linux runs; thesis, II.5.C.
//!
//! Once in a round trip, with d = w (1 - RTTmin/RTT) the segments that wait in queues:
//!
//! | rule | source | where |
//! |---|---|---|
//! | w += 1 if d < alpha, w -= 1 if d > beta | paper, 3.2; thesis, II.5.C | `handle_round` |
//! | d from BaseRTT, the least of all, and the round's RTT | paper, 3.2 | `handle_round` |
//! | RTT is the least of the round | Linux | `observe` |
//! | slow start: every other round, ends when d > gamma | paper, 3.3 | `grow`, `handle_round` |
//! | loss: w = w/2 | thesis, II.5.C | `shrink` |
//!
//! The paper's own cut for a loss that is found early, a quarter, is left out as in Linux. Linux
//! doubles in every round; the paper and the thesis, in every other: the paper's is taken.

use gtp_alloc::Span;

use crate::tcp::law::{AckView, Law, LossView, Window};

/// A few segments in queues, kept by round-trip times.
#[derive(Clone, Copy, Debug)]
pub struct Vegas {
    alpha: f64,
    beta: f64,
    gamma: f64,
    /// The least round trip of this round, and the number of them measured.
    least: Span,
    measured: u64,
    rounds: u64,
    /// A step of avoidance in every so many round trips.
    stride: u64,
}

impl Default for Vegas {
    fn default() -> Vegas {
        // Linux's; the paper has alpha 1 to 2, beta 3 to 4, gamma 1 (3.2, 3.3).
        Vegas::new(2.0, 4.0, 1.0)
    }
}

impl Vegas {
    /// Keeps between `alpha` and `beta` segments in queues; slow start ends at `gamma`.
    pub fn new(alpha: f64, beta: f64, gamma: f64) -> Vegas {
        Vegas { alpha, beta, gamma, least: Span::MAX, measured: 0, rounds: 0, stride: 1 }
    }

    /// Steps in every `stride`-th round trip only: 2 is what Linux comes to, whose step starts from
    /// the window of a round trip ago.
    pub fn stepping_every(self, stride: u64) -> Vegas {
        Vegas { stride: stride.max(1), ..self }
    }
}

impl Law for Vegas {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn observe(&mut self, ack: &AckView, _window: &mut Window) {
        if let Some(rtt) = ack.rtt {
            self.least = self.least.min(rtt);
            self.measured += 1;
        }
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        // Paper, 3.3: the window stands still in every other round trip, so that a comparison of
        // expected and actual rate is of one window.
        if window.in_slow_start() && self.rounds.is_multiple_of(2) {
            window.slow_start(ack.credit);
        }
    }

    fn handle_round(&mut self, ack: &AckView, window: &mut Window) {
        self.rounds += 1;
        let steps = self.rounds.is_multiple_of(self.stride);
        // Fewer than three measurements say too little: no change by delay in this round.
        if self.measured > 2 {
            // Paper, 3.2: (expected - actual) BaseRTT; thesis, II.5.C, with d a rate.
            let waiting = window.size
                * (1.0 - ack.least_rtt.as_secs_f64() / self.least.as_secs_f64().max(1e-9));
            if window.in_slow_start() {
                if waiting > self.gamma {
                    // Linux: fall back to what the path held, and leave slow start.
                    window.size = (window.size - waiting + 1.0).max(2.0);
                    window.threshold = window.size;
                }
            // Paper, 3.2, step 4; thesis, II.5.C.
            } else if steps && waiting > self.beta {
                window.size = (window.size - 1.0).max(2.0);
                window.threshold = window.threshold.min(window.size);
            } else if steps && waiting < self.alpha {
                window.size += 1.0;
            }
        } else if steps && !window.in_slow_start() {
            window.size += 1.0;
        }
        (self.least, self.measured) = (Span::MAX, 0);
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        (self.least, self.measured) = (Span::MAX, 0);
        // Thesis, II.5.C.
        loss.window / 2.0
    }
}
