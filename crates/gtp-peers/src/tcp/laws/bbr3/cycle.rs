//! Probing for bandwidth: down, cruise, refill, up (5.3.3).
//!
//! A cycle takes two to three seconds, or as many round trips as Reno would need to grow back. What
//! a probe finds out sets the long-term bound: losses lower it, a probe without them raises it.

use gtp_alloc::{Span, Time};

use super::{Bbr3, HEADROOM, LEAST_WINDOW, Sample, State, is_too_high};
use crate::tcp::law::Window;

/// Where a cycle of probing stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cycle {
    feedback: Feedback,
    /// Rate samples are of a probe (BBR.is_bw_probe_sample).
    pub(super) samples: bool,
    /// Rounds since the last probe (BBR.rounds_since_probe_up).
    pub(super) rounds: u64,
    /// When it began, and how long it waits at most.
    since: Time,
    pub(super) wait: Span,
    /// The last probe lost too much (BBR.prev_probe_too_high).
    pub(super) went_too_high: bool,
    /// The last probe stopped at the bound (BBR.prev_probe_precautionary).
    pub(super) was_cautious: bool,
    /// How the long-term bound rises (BBR.bw_probe_up_rounds and what goes with it).
    up_rounds: u32,
    up_arrived: f64,
    up_step: f64,
}

/// What acknowledgments say of a probe (2.14, BBR.ack_phase).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Feedback {
    #[default]
    None,
    Refilling,
    Starting,
    Coming,
    Stopping,
}

impl Bbr3 {
    /// 5.3.3.9, `UpdateProbeBWCyclePhase`.
    pub(super) fn update_cycle(&mut self, sample: &Sample, window: &Window) {
        if !self.full.reached || self.adapt_long(sample, window) {
            return;
        }
        match self.state {
            State::Down => {
                if !self.check_refill(sample, window) && self.is_drained(sample, window) {
                    self.state = State::Cruise;
                }
            }
            State::Cruise => {
                self.check_refill(sample, window);
            }
            State::Refill if self.rounds.starts => {
                self.cycle.samples = true;
                self.start_up(sample, window);
            }
            State::Up => {
                if self.is_time_to_go_down(sample, window) {
                    self.cycle.went_too_high = false;
                    self.start_down(sample.now, sample.total);
                }
            }
            State::Refill | State::Startup | State::Drain | State::ProbeRtt => {}
        }
    }

    pub(super) fn start_down(&mut self, now: Time, delivered: u64) {
        self.model.forget_signals();
        self.cycle.up_step = f64::INFINITY;
        // 5.3.3.8.2: the draws that mix flows.
        self.cycle.rounds = u64::from(self.draw() >= 0.5);
        self.cycle.wait = Span::from_secs_f64(WAIT_LEAST + self.draw());
        self.cycle.since = now;
        self.cycle.feedback = Feedback::Stopping;
        self.start_round(delivered);
        self.state = State::Down;
    }

    /// After a look for the propagation time the path is drained already (5.3.4.4).
    pub(super) fn start_cruise(&mut self, now: Time, delivered: u64) {
        self.start_down(now, delivered);
        self.state = State::Cruise;
    }

    pub(super) fn stop_feedback(&mut self) {
        self.cycle.feedback = Feedback::Stopping;
    }

    fn start_refill(&mut self, delivered: u64) {
        self.model.forget_short();
        (self.cycle.up_rounds, self.cycle.up_arrived) = (0, 0.0);
        self.cycle.was_cautious = false;
        self.cycle.feedback = Feedback::Refilling;
        self.start_round(delivered);
        self.state = State::Refill;
    }

    fn start_up(&mut self, sample: &Sample, window: &Window) {
        self.cycle.feedback = Feedback::Starting;
        self.start_round(sample.total);
        self.full.reset(sample.rate);
        self.state = State::Up;
        self.raise_slope(window);
    }

    /// 5.3.3.8.3, `IsTimeToProbeBW`: whether a refill has begun.
    fn check_refill(&mut self, sample: &Sample, window: &Window) -> bool {
        // 5.3.3.8.2: two to three seconds, or as many rounds as Reno would need to grow back.
        let reno = self.product(1.0, window).min(window.size).min(RENO_ROUNDS);
        let waited = sample.now > self.cycle.since + self.cycle.wait;
        if !waited && (self.cycle.rounds as f64) < reno {
            return false;
        }
        self.start_refill(sample.total);
        true
    }

    /// 5.3.3.1, `IsTimeToCruise`: the queue is gone and there is headroom.
    fn is_drained(&self, sample: &Sample, window: &Window) -> bool {
        let target = self.full_rate_inflight(window);
        sample.pipe <= self.with_headroom() && sample.pipe <= target
    }

    /// 5.3.3.7, `IsTimeToGoDown`, but for the losses, which are told one by one.
    fn is_time_to_go_down(&mut self, sample: &Sample, window: &Window) -> bool {
        if self.cycle.went_too_high && sample.pipe >= self.model.inflight_long {
            self.cycle.was_cautious = true;
            return true;
        }
        if sample.window_limited && window.size >= self.model.inflight_long {
            self.full.reset(sample.rate);
            return false;
        }
        self.full.now
    }

    /// `InflightWithHeadroom`.
    pub(super) fn with_headroom(&self) -> f64 {
        let bound = self.model.inflight_long;
        if bound.is_infinite() {
            return bound;
        }
        (bound - f64::max(1.0, HEADROOM * bound)).max(LEAST_WINDOW)
    }

    /// `AdaptLongTermModel`: whether it has decided the state.
    fn adapt_long(&mut self, sample: &Sample, window: &Window) -> bool {
        if self.rounds.starts && self.advance_feedback(sample) {
            return true;
        }
        let bound = self.model.inflight_long;
        if is_too_high(sample.lost, sample.in_flight) || bound.is_infinite() {
            return false;
        }
        self.model.inflight_long = bound.max(sample.in_flight);
        if self.state == State::Up {
            self.raise_long(sample, window);
        }
        false
    }

    /// A round has passed: whether a cautious probe went well and the next one begins at once.
    fn advance_feedback(&mut self, sample: &Sample) -> bool {
        match self.cycle.feedback {
            Feedback::Starting => self.cycle.feedback = Feedback::Coming,
            Feedback::Stopping => {
                self.cycle.samples = false;
                self.cycle.feedback = Feedback::None;
                if self.state.is_of_cycle() && !sample.slack {
                    self.model.advance();
                }
                if self.state.is_of_cycle() && self.cycle.was_cautious && !self.cycle.went_too_high
                {
                    self.start_refill(sample.total);
                    return true;
                }
            }
            Feedback::None | Feedback::Refilling | Feedback::Coming => {}
        }
        false
    }

    /// `RaiseInflightLongtermSlope`.
    fn raise_slope(&mut self, window: &Window) {
        let growth = (1u64 << self.cycle.up_rounds) as f64;
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(UP_ROUNDS);
        self.cycle.up_step = (window.size / growth).max(1.0);
    }

    /// `ProbeInflightLongtermUpward`.
    fn raise_long(&mut self, sample: &Sample, window: &Window) {
        if !sample.window_limited || window.size < self.model.inflight_long {
            return;
        }
        self.cycle.up_arrived += sample.arrived;
        let steps = libm::floor(self.cycle.up_arrived / self.cycle.up_step);
        self.cycle.up_arrived -= steps * self.cycle.up_step;
        self.model.inflight_long += steps;
        if self.rounds.starts {
            self.raise_slope(window);
        }
    }
}

/// 5.3.3.8.2: seconds to the next probe at least; up to one more is drawn.
const WAIT_LEAST: f64 = 2.0;
/// 5.3.3.8.3: rounds to the next probe at most.
const RENO_ROUNDS: f64 = 63.0;
/// 5.3.3.9: doublings of the long-term bound's growth at most.
const UP_ROUNDS: u32 = 30;
