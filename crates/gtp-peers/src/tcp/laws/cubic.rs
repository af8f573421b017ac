//! CUBIC: RFC 9438.
//!
//! | rule | source | where |
//! |---|---|---|
//! | W(t) = C (t - K)^3 + W_max | RFC 9438, 4.2, figure 1 | `target` |
//! | K = cbrt((W_max - cwnd_epoch)/C) | RFC 9438, 4.2, figure 2 | `begin` |
//! | target of the next round trip, within [cwnd, 1.5 cwnd] | RFC 9438, 4.2 | `target` |
//! | w += (target - w)/w for each segment | RFC 9438, 4.4, 4.5 | `grow` |
//! | never below what the standard law would have: W_est | RFC 9438, 4.3, figure 4 | `grow` |
//! | loss: w = beta w | RFC 9438, 4.6 | `shrink` |
//! | fast convergence | RFC 9438, 4.7 | `shrink` |
//! | after a timeout the curve begins at its plateau | RFC 9438, 4.8 | `handle_timeout` |
//!
//! [`Cubic::in_whole_segments`] is the law as kernels and ns-3 compute it: distance, window and
//! count are whole numbers, and the standard's window is left out. It is there to stand opposite
//! them.
//!
//! Departures: slow start is the standard's unless [`Cubic::with_hystart`] is asked for (4.10
//! recommends it); time in which the sender was limited by something else is not taken out of t
//! (4.2 asks for it) except after an idle time.

use gtp_alloc::{Span, Time};

use super::hystart::HyStart;
use super::whole::{Counter, Leftover, slow_start};
use crate::tcp::law::{AckView, Law, LossView, Window};

/// A cubic curve around the window of the last loss.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    /// What a loss leaves of the window.
    kept: f64,
    /// W_max: the plateau.
    plateau: f64,
    /// When this stage of avoidance began, and what the window was.
    epoch: Option<Time>,
    /// K, in seconds.
    k: f64,
    /// W_est, and the window from which it grows as fast as the standard law.
    estimate: f64,
    prior: f64,
    /// If it counts in whole segments.
    whole: Option<Counter>,
    /// What watches the first slow start, if anything does.
    watch: Option<HyStart>,
}

impl Default for Cubic {
    fn default() -> Cubic {
        Cubic::keeping(BETA)
    }
}

impl Cubic {
    /// A law that keeps this share of the window on loss: 0.7 in the RFC, 0.8 in the first versions
    /// (S. Ha, I. Rhee, L. Xu, 2008).
    pub fn keeping(kept: f64) -> Cubic {
        let [plateau, k, estimate, prior] = [0.0; 4];
        Cubic { kept, plateau, epoch: None, k, estimate, prior, whole: None, watch: None }
    }

    /// The same, computed in whole segments.
    pub fn in_whole_segments(self, leftover: Leftover) -> Cubic {
        Cubic { whole: Some(Counter::new(leftover)), ..self }
    }

    /// The same with HyStart++ in its first slow start, as Section 4.10 recommends.
    pub fn with_hystart(self) -> Cubic {
        Cubic { watch: Some(HyStart::default()), ..self }
    }

    fn begin(&mut self, now: Time, w: f64) {
        self.epoch = Some(now);
        self.plateau = self.plateau.max(w);
        // RFC 9438, figure 2.
        self.k = libm::cbrt((self.plateau - w) / C);
        self.estimate = w;
    }

    /// The window that the curve has one round trip from now.
    fn target(&self, now: Time, rtt: Span, w: f64) -> f64 {
        let since = self.epoch.map_or(Span::ZERO, |epoch| now.since(epoch));
        let t = since.as_secs_f64() + rtt.as_secs_f64() - self.k;
        // RFC 9438, figure 1, and the bounds of 4.2.
        (C * t * t * t + self.plateau).clamp(w, 1.5 * w)
    }

    fn lose(&mut self, w: f64) -> f64 {
        self.epoch = None;
        self.prior = w;
        if let Some(counter) = &mut self.whole {
            counter.lose();
        }
        // RFC 9438, 4.7: fast convergence.
        self.plateau = if w < self.plateau { w * (1.0 + self.kept) / 2.0 } else { w };
        match self.whole {
            None => w * self.kept, // RFC 9438, 4.6.
            Some(_) => {
                self.plateau = libm::floor(self.plateau);
                libm::floor(w * self.kept)
            }
        }
    }

    /// Acknowledged segments for one more: the window over the distance to the curve, without
    /// rests, and a hundred windows where there is no distance.
    fn needed(&self, ack: &AckView, w: f64) -> f64 {
        let epoch = self.epoch.unwrap_or(ack.now);
        let t = ack.now.since(epoch).as_secs_f64() + ack.least_rtt.as_secs_f64() - self.k;
        let rise = libm::floor(C * libm::fabs(t * t * t));
        let target = self.plateau + if t < 0.0 { -rise } else { rise };
        if target > w { libm::floor(w / (target - w)).max(2.0) } else { 100.0 * w }
    }
}

impl Law for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        let credit = match &mut self.watch {
            Some(watch) => watch.credit(ack, window),
            None => ack.credit,
        };
        let ack = &AckView { credit, ..*ack };
        let Some(credit) = slow_start(self.whole.as_ref(), ack, window) else { return };
        if self.epoch.is_none() {
            self.begin(ack.now, window.size);
        }
        let needed = self.needed(ack, libm::floor(window.size));
        if let Some(counter) = &mut self.whole {
            return counter.grow(window, credit, needed);
        }
        // Figure 4: the standard's rate at this beta up to the last maximum, then one.
        let friendly = 3.0 * (1.0 - self.kept) / (1.0 + self.kept);
        let alpha = if self.estimate < self.prior { friendly } else { 1.0 };
        self.estimate += alpha * credit / window.size;
        let target = self.target(ack.now, ack.smoothed_rtt, window.size);
        // RFC 9438, 4.4 and 4.5.
        let w = window.size + credit * (target - window.size) / window.size;
        window.size = w.max(self.estimate); // RFC 9438, 4.3.
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        self.lose(match self.whole {
            None => loss.window,
            Some(_) => libm::floor(loss.window),
        })
    }

    fn handle_timeout(&mut self, loss: &LossView, window: &mut Window) {
        window.threshold = self.lose(loss.window).max(2.0);
        window.size = 1.0;
        // 4.8: K is zero, the plateau is where avoidance begins.
        self.plateau = 0.0;
    }

    fn handle_idle(&mut self, _now: Time, window: &mut Window) {
        self.epoch = None;
        window.size = window.size.min(window.initial);
    }
}

/// RFC 9438, 4.1 and 5: segments for each second cubed.
const C: f64 = 0.4;
/// RFC 9438, 4.6: what is kept.
const BETA: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_leaves_at_the_reduced_window_and_is_back_at_the_plateau_after_k() {
        let mut cubic = Cubic::default();
        let w = cubic.lose(1_000.0);
        assert_eq!(w, 700.0);
        cubic.begin(Time::ZERO, w);
        // K = cbrt(300/0.4) = 9.086 s.
        assert!((cubic.k - 9.086).abs() < 1e-3);
        let at = |ms: u64, w: f64| cubic.target(Time::from_nanos(ms * 1_000_000), Span::ZERO, w);
        assert!((at(0, 700.0) - 700.0).abs() < 1e-6);
        assert!((at(9_086, 900.0) - 1_000.0).abs() < 0.01);
        assert!((at(4_543, 800.0) - 962.5).abs() < 0.1, "seven eighths of the way at half of K");
    }
}
