//! BIC TCP: L. Xu, K. Harfoush, I. Rhee, 2004, in the form that Linux ran; thesis, II.5.B.
//!
//! | rule | source | where |
//! |---|---|---|
//! | the standard law below `LOW_WINDOW` | paper, III.D; thesis `low_window` | `step`, `shrink` |
//! | binary search towards the last maximum: (max - w)/B in a round trip | paper, III.C | `step` |
//! | no more than `S_MAX` in a round trip, no less than `S_MIN` | paper, III.C; thesis | `step` |
//! | beyond the maximum: slowly at first, then faster ("max probing") | paper, III.C | `step` |
//! | loss: w = beta w; fast convergence lowers the maximum | paper, III.C | `shrink` |
//!
//! Constants are Linux's of 2005 (B = 4, S_MAX = 16, beta = 819/1024); the paper has B = 2 and
//! S_MAX = 32 and beta 0.875. [`Bic::in_whole_segments`] drops every rest, as Linux does, and so
//! searches more slowly near the maximum. Departures: no delayed-acknowledgment estimate, since
//! growth here counts what the engine credits; a timeout leaves the maximum, which Linux forgets.
//! Its response is the thesis's relation where beta w is less than twice S_MAX.

use super::whole::{Counter, Leftover, slow_start};
use crate::tcp::law::{AckView, Law, LossView, Window};

/// Binary increase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bic {
    last_max: f64,
    /// If it counts in whole segments.
    whole: Option<Counter>,
}

impl Bic {
    /// The law as Linux of 2007 computes it.
    pub fn in_whole_segments(leftover: Leftover) -> Bic {
        Bic { whole: Some(Counter::new(leftover)), ..Bic::default() }
    }

    /// Acknowledged segments for one more at a whole window of `w`, without rests.
    fn needed(&self, w: f64) -> f64 {
        let distance = self.last_max - w;
        let step = libm::floor(distance / B);
        let needed = if w <= LOW_WINDOW {
            w
        } else if distance > 0.0 && step > 1.0 {
            w / step.min(S_MAX)
        } else if distance > -B {
            w * SMOOTH / B
        } else if distance > -S_MAX * (B - 1.0) {
            w * (B - 1.0) / -distance
        } else {
            w / S_MAX
        };
        // Before the first loss there is no maximum: Linux grows by at least 5 % in a round trip.
        let most = if self.last_max == 0.0 { SMOOTH } else { needed };
        libm::floor(needed.min(most)).max(1.0)
    }

    /// Segments that the window gains in a round trip at size `w`.
    fn step(&self, w: f64) -> f64 {
        if w <= LOW_WINDOW {
            return 1.0; // Paper, III.D: as the standard law.
        }
        let distance = self.last_max - w;
        let step = if distance > 0.0 {
            // Paper, III.C, binary search: to the middle where B is 2.
            let half = distance / B;
            if half > S_MAX {
                S_MAX // Paper, III.C, additive increase.
            } else if half <= 1.0 {
                // Close to the maximum: B segments take about `SMOOTH` round trips.
                B / SMOOTH
            } else {
                half
            }
        } else {
            // Paper, III.C, max probing: away from the maximum as fast as it was come up to.
            let beyond = -distance;
            if beyond < B {
                B / SMOOTH
            } else if beyond < S_MAX * (B - 1.0) {
                beyond / (B - 1.0)
            } else {
                S_MAX
            }
        };
        // Before the first loss there is no maximum: Linux grows by at least 5 % in a round trip.
        if self.last_max == 0.0 { step.max(w / 20.0) } else { step.max(S_MIN) }
    }
}

impl Law for Bic {
    fn name(&self) -> &'static str {
        "bic"
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        if let Some(credit) = slow_start(self.whole.as_ref(), ack, window) {
            let needed = self.needed(libm::floor(window.size));
            match &mut self.whole {
                None => window.size += credit * self.step(window.size) / window.size,
                Some(counter) => counter.grow(window, credit, needed),
            }
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        if let Some(counter) = &mut self.whole {
            counter.lose();
        }
        let cut = |x| if self.whole.is_some() { libm::floor(x) } else { x };
        let w = cut(loss.window);
        // Paper, III.C, fast convergence: one that lost below its old maximum leaves room.
        let last_max = if w < self.last_max { cut(w * (1.0 + BETA) / 2.0) } else { w };
        // Paper, III.D; thesis, II.5.B: (1 - beta) w with beta what is taken.
        let kept = if w <= LOW_WINDOW { w / 2.0 } else { cut(w * BETA) };
        self.last_max = last_max;
        kept
    }
}

/// Linux `low_window`.
const LOW_WINDOW: f64 = 14.0;
/// Linux `BICTCP_B`.
const B: f64 = 4.0;
/// Linux `max_increment`.
const S_MAX: f64 = 16.0;
/// Thesis, II.5.B: Smin.
const S_MIN: f64 = 0.01;
/// Linux `smooth_part`.
const SMOOTH: f64 = 20.0;
/// Linux `beta`: what is kept.
const BETA: f64 = 819.0 / 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_linear_then_a_search_then_a_probe() {
        let bic = Bic { last_max: 1_000.0, ..Bic::default() };
        let steps: [f64; 6] = [500.0, 960.0, 997.0, 1_002.0, 1_030.0, 1_200.0].map(|w| bic.step(w));
        assert_eq!(steps, [16.0, 10.0, 0.2, 0.2, 10.0, 16.0]);
    }
}
