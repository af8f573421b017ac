//! The propagation time, and the state that looks for it (5.3.4).
//!
//! Where no lower round trip came for five seconds, half a product in flight empties the queue, so
//! that one comes. The estimate itself keeps ten seconds and outlives one look.

use gtp_alloc::{Span, Time};

use super::{Bbr3, Sample, State};
use crate::tcp::law::Window;

/// The least round trips, and how far a look for one is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    /// The least of ten seconds (BBR.min_rtt), and when it was measured.
    pub(super) least: Option<Span>,
    least_at: Time,
    /// The least of five seconds (BBR.probe_rtt_min_delay), and when it was measured.
    recent: Option<Span>,
    recent_at: Time,
    expired: bool,
    /// The connection has rested and nothing was acknowledged since (BBR.idle_restart).
    pub(super) rested: bool,
    /// When a look may end, once little enough is in flight.
    done_at: Option<Time>,
    round_done: bool,
    /// What was sent before this many were delivered was sent during a look.
    low_below: u64,
}

impl Floor {
    /// 5.3.4.3, `UpdateMinRTT`.
    pub(super) fn update(&mut self, sample: &Sample) {
        self.expired = self.recent.is_some() && sample.now > self.recent_at + INTERVAL;
        if let Some(rtt) = sample.rtt
            && (self.expired || self.recent.is_none_or(|recent| rtt < recent))
        {
            (self.recent, self.recent_at) = (Some(rtt), sample.now);
        }
        let old = sample.now > self.least_at + KEPT;
        if let Some(recent) = self.recent
            && (old || self.least.is_none_or(|least| recent < least))
        {
            (self.least, self.least_at) = (Some(recent), self.recent_at);
        }
    }

    /// Whether a sample is low because of a look: it counts as limited by the application
    /// (5.3.4.3, `MarkConnectionAppLimited`).
    pub(super) fn is_low(&self, state: State, delivered_then: u64) -> bool {
        state == State::ProbeRtt || delivered_then < self.low_below
    }
}

impl Bbr3 {
    /// 5.3.4.3, `CheckProbeRTT`.
    pub(super) fn check_probe_rtt(&mut self, sample: &Sample, window: &mut Window) {
        let rested = core::mem::replace(&mut self.floor.rested, false);
        if self.state != State::ProbeRtt && self.floor.expired && !rested {
            self.prior.save_before_probe(self.probes(), window);
            self.state = State::ProbeRtt;
            self.floor.done_at = None;
            self.stop_feedback();
            self.start_round(sample.total);
        }
        if self.state == State::ProbeRtt {
            self.wait_for_floor(sample, window);
        }
    }

    /// `HandleProbeRTT`.
    fn wait_for_floor(&mut self, sample: &Sample, window: &mut Window) {
        self.floor.low_below = sample.total + sample.pipe as u64;
        if self.floor.done_at.is_none() {
            if sample.pipe <= self.floor_window(window) {
                self.floor.done_at = Some(sample.now + DURATION);
                self.floor.round_done = false;
                self.start_round(sample.total);
            }
            return;
        }
        self.floor.round_done |= self.rounds.starts;
        if self.floor.round_done {
            self.check_probe_rtt_done(sample.now, sample.total, window);
        }
    }

    /// `CheckProbeRTTDone` and 5.3.4.4, `ExitProbeRTT`.
    pub(super) fn check_probe_rtt_done(&mut self, now: Time, delivered: u64, window: &mut Window) {
        if self.floor.done_at.is_none_or(|done| now <= done) {
            return;
        }
        self.floor.recent_at = now;
        self.prior.restore(window);
        self.model.forget_short();
        if self.full.reached {
            self.start_cruise(now, delivered);
        } else {
            self.state = State::Startup;
        }
    }
}

/// 2.16.1, BBR.MinRTTFilterLen.
const KEPT: Span = Span::from_secs(10);
/// 2.16.2, BBR.ProbeRTTInterval.
const INTERVAL: Span = Span::from_secs(5);
/// 2.16.2, BBR.ProbeRTTDuration.
const DURATION: Span = Span::from_millis(200);
