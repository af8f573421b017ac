//! The congestion window (5.6.4).
//!
//! It follows the product of bandwidth and propagation time by the state's gain, rises by what
//! arrives at most, and stays within the bounds that losses have set.

use super::{Bbr3, LEAST_WINDOW, Sample, State};
use crate::tcp::law::Window;

impl Bbr3 {
    /// 5.6.4.2, `BDPMultiple`, in segments.
    pub(super) fn product(&self, gain: f64, window: &Window) -> f64 {
        self.product_at(self.model.bw, gain, window)
    }

    fn product_at(&self, bw: f64, gain: f64, window: &Window) -> f64 {
        match self.floor.least {
            None => window.initial,
            Some(least) => gain * bw * least.as_secs_f64(),
        }
    }

    /// 5.6.4.2, `Inflight`.
    pub(super) fn inflight(&self, gain: f64, window: &Window) -> f64 {
        self.quantized(self.product(gain, window))
    }

    /// The same at the bandwidth without its short-term bound.
    pub(super) fn full_rate_inflight(&self, window: &Window) -> f64 {
        self.quantized(self.product_at(self.model.bandwidth(), 1.0, window))
    }

    /// `QuantizationBudget`.
    fn quantized(&self, inflight: f64) -> f64 {
        let more = if self.state == State::Up { 2.0 } else { 0.0 };
        inflight.max(LEAST_WINDOW) + more
    }

    /// 5.6.4.5, `ProbeRTTCwnd`.
    pub(super) fn floor_window(&self, window: &Window) -> f64 {
        self.product(State::ProbeRtt.window_gain(), window).max(LEAST_WINDOW)
    }

    /// 5.6.4.6, `SetCwnd`.
    pub(super) fn set_window(&mut self, sample: &Sample, window: &mut Window) {
        let gained = self.product(self.state.window_gain(), window) + self.bunches.extra();
        let most = self.quantized(gained);
        if self.full.reached {
            window.size = (window.size + sample.arrived).min(most);
        } else if window.size < most || (sample.total as f64) < window.initial {
            window.size += sample.arrived;
        }
        window.size = window.size.max(LEAST_WINDOW);
        if self.state == State::ProbeRtt {
            window.size = window.size.min(self.floor_window(window));
        }
        window.size = window.size.min(self.bound());
    }

    /// 5.6.4.7, `BoundCwndForModel`.
    fn bound(&self) -> f64 {
        let long = match self.state {
            State::Down | State::Refill | State::Up => self.model.inflight_long,
            State::Cruise | State::ProbeRtt => self.with_headroom(),
            State::Startup | State::Drain => f64::INFINITY,
        };
        long.min(self.model.inflight_short).max(LEAST_WINDOW)
    }

    /// Whether the round trip is probed with a small window.
    pub(super) fn probes(&self) -> bool {
        self.state == State::ProbeRtt
    }
}
