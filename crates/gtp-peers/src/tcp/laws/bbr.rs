//! BBR, version 1: draft-cardwell-iccrg-bbr-congestion-control-00.
//!
//! The path is two numbers: the bandwidth of its bottleneck and its propagation time. Pacing
//! follows the first, the window bounds what is out to about twice their product.
//!
//! | rule | draft | where |
//! |---|---|---|
//! | rounds are counted by delivered segments | 4.1.1.3 | `update_round` |
//! | bandwidth: the greatest delivery rate of ten rounds | 4.1.1 | `update_bandwidth` |
//! | propagation time: the least round trip of ten seconds | 4.1.2 | `update_propagation` |
//! | pacing rate = gain times bandwidth | 4.2.1 | `set_pacing` |
//! | window: gain times product, and three bursts | 4.2.3.2 | `inflight` |
//! | window in recovery: conserve for a round, then restore | 4.2.3.4 | `handle_loss`, `modulate` |
//! | start-up until three rounds without 25 % more | 4.3.2 | `check_full` |
//! | drain | 4.3.3 | `check_drain` |
//! | cycle of eight gains | 4.3.4 | `check_cycle` |
//! | every ten seconds four segments for 200 ms | 4.3.5 | `check_probe` |
//! | after a rest the measured bandwidth, and no probe | 4.3.4.4, 4.3.5 | `handle_idle` |
//!
//! Departures: segments leave one by one, so that a burst is one segment; the cycle's first phase
//! follows from a seed; what is delivered while four segments are out counts as limited by the
//! application, as the draft wants the connection to be marked; a rest is one of more than a
//! timeout.

use alloc::collections::VecDeque;

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::prior::Prior;
use crate::Note;
use crate::tcp::law::{AckView, Delivery, Fullness, Law, Leaving, LossView, Phase, Window};

/// Pacing at the measured bandwidth.
#[derive(Clone, Debug)]
pub struct Bbr {
    state: State,
    pacing_gain: f64,
    window_gain: f64,
    pacing: Option<Rate>,
    /// Bytes of a full segment on links, as last seen.
    wire: Bytes,
    /// Candidates of the bandwidth filter: rounds and segments per second, falling.
    rates: VecDeque<(u64, f64)>,
    propagation: Option<Span>,
    propagation_at: Time,
    rounds: u64,
    round_end: u64,
    round_starts: Mark,
    full: Mark,
    full_rate: f64,
    full_rounds: u32,
    cycle: usize,
    cycle_at: Time,
    prior: Prior,
    conserving: Mark,
    probe: Probe,
    /// The connection has rested and nothing was acknowledged since.
    rested: Mark,
    /// What was sent before this many were delivered was sent while probing.
    probed_below: u64,
    draws: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbePropagation,
}

/// A yes or no that has a name where it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Set,
    Clear,
}

/// How far a probe of the propagation time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Draining,
    Waiting { until: Time, round: Mark },
}

impl Bbr {
    /// In start-up; `seed` decides where each cycle of gains begins.
    pub fn new(seed: u64) -> Bbr {
        Bbr {
            state: State::Startup,
            pacing_gain: HIGH_GAIN,
            window_gain: HIGH_GAIN,
            pacing: None,
            wire: Bytes(1_500),
            rates: VecDeque::new(),
            propagation: None,
            propagation_at: Time::ZERO,
            rounds: 0,
            round_end: 0,
            round_starts: Mark::Clear,
            full: Mark::Clear,
            full_rate: 0.0,
            full_rounds: 0,
            cycle: 0,
            cycle_at: Time::ZERO,
            prior: Prior::new(),
            conserving: Mark::Clear,
            probe: Probe::Draining,
            rested: Mark::Clear,
            probed_below: 0,
            draws: seed,
        }
    }

    /// The estimate of the bottleneck's bandwidth, in segments per second.
    pub fn bandwidth(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    fn update_round(&mut self, ack: &AckView, delivery: &Delivery) {
        if delivery.delivered_then >= self.round_end {
            self.round_end = ack.delivered;
            self.rounds += 1;
            self.round_starts = Mark::Set;
        } else {
            self.round_starts = Mark::Clear;
        }
    }

    fn update_bandwidth(&mut self, delivery: &Delivery) {
        let rate = delivery.segments as f64 / delivery.interval.as_secs_f64().max(1e-9);
        let slack = delivery.fullness == Fullness::Slack
            || self.state == State::ProbePropagation
            || delivery.delivered_then < self.probed_below;
        if slack && rate < self.bandwidth() {
            return;
        }
        while self.rates.back().is_some_and(|(_, other)| *other <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.rounds, rate));
        while self.rates.front().is_some_and(|(round, _)| round + RATE_ROUNDS <= self.rounds) {
            self.rates.pop_front();
        }
    }

    /// Whether the propagation time was not confirmed for ten seconds.
    fn update_propagation(&mut self, ack: &AckView) -> Mark {
        // What was never measured does not expire: a connection may begin late.
        let expired =
            self.propagation.is_some() && ack.now > self.propagation_at + PROPAGATION_KEPT;
        if let Some(rtt) = ack.rtt
            && (expired || self.propagation.is_none_or(|least| rtt <= least))
        {
            self.propagation = Some(rtt);
            self.propagation_at = ack.now;
        }
        if expired { Mark::Set } else { Mark::Clear }
    }

    /// Segments that fill the path `gain` times.
    fn inflight(&self, gain: f64, window: &Window) -> f64 {
        match self.propagation {
            None => window.initial,
            Some(least) => gain * self.bandwidth() * least.as_secs_f64() + 3.0,
        }
    }

    fn check_cycle(&mut self, ack: &AckView, window: &Window) {
        if self.state != State::ProbeBandwidth {
            return;
        }
        let full = ack.now.since(self.cycle_at) > self.propagation.unwrap_or_default();
        let before = ack.pipe_before as f64;
        let next = if self.pacing_gain > 1.0 {
            full && (ack.lost > 0 || before >= self.inflight(self.pacing_gain, window))
        } else if self.pacing_gain < 1.0 {
            full || before <= self.inflight(1.0, window)
        } else {
            full
        };
        if next {
            self.advance_cycle(ack.now);
        }
    }

    fn advance_cycle(&mut self, now: Time) {
        self.cycle_at = now;
        self.cycle = (self.cycle + 1) % CYCLE.len();
        self.pacing_gain = CYCLE[self.cycle];
    }

    fn check_full(&mut self, delivery: &Delivery) {
        if self.full == Mark::Set
            || self.round_starts == Mark::Clear
            || delivery.fullness == Fullness::Slack
        {
            return;
        }
        if self.bandwidth() >= self.full_rate * 1.25 {
            self.full_rate = self.bandwidth();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        if self.full_rounds >= 3 {
            self.full = Mark::Set;
        }
    }

    fn check_drain(&mut self, ack: &AckView, window: &Window) {
        if self.state == State::Startup && self.full == Mark::Set {
            self.state = State::Drain;
            self.pacing_gain = 1.0 / HIGH_GAIN;
            self.window_gain = HIGH_GAIN;
        }
        if self.state == State::Drain && ack.pipe as f64 <= self.inflight(1.0, window) {
            self.enter_probe_bandwidth(ack.now);
        }
    }

    fn enter_probe_bandwidth(&mut self, now: Time) {
        self.state = State::ProbeBandwidth;
        self.window_gain = 2.0;
        // Any phase but the one that drains (Knuth's multiplier spreads the draws).
        self.draws = self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.cycle = CYCLE.len() - 1 - ((self.draws >> 33) % 7) as usize;
        self.advance_cycle(now);
    }

    fn check_probe(&mut self, ack: &AckView, expired: Mark, window: &mut Window) {
        // What a rest has emptied needs no draining: its first acknowledgment has measured.
        let rested = core::mem::replace(&mut self.rested, Mark::Clear);
        let stale = expired == Mark::Set && rested == Mark::Clear;
        if self.state != State::ProbePropagation && stale {
            self.prior.save_before_probe(self.probes(), window);
            self.state = State::ProbePropagation;
            (self.pacing_gain, self.window_gain) = (1.0, 1.0);
            self.probe = Probe::Draining;
        }
        if self.state != State::ProbePropagation {
            return;
        }
        self.probed_below = ack.delivered + ack.pipe;
        match self.probe {
            Probe::Draining if ack.pipe as f64 <= LEAST_WINDOW => {
                self.probe = Probe::Waiting { until: ack.now + PROBE_FOR, round: Mark::Clear };
                self.round_end = ack.delivered;
            }
            Probe::Draining => {}
            Probe::Waiting { until, round } => {
                let round = if self.round_starts == Mark::Set { Mark::Set } else { round };
                self.probe = Probe::Waiting { until, round };
                if round == Mark::Set && ack.now > until {
                    self.propagation_at = ack.now;
                    self.prior.restore(window);
                    self.leave_probe(ack.now);
                }
            }
        }
    }

    fn leave_probe(&mut self, now: Time) {
        if self.full == Mark::Set {
            self.enter_probe_bandwidth(now);
        } else {
            self.state = State::Startup;
            (self.pacing_gain, self.window_gain) = (HIGH_GAIN, HIGH_GAIN);
        }
    }

    fn set_pacing(&mut self) {
        let rate = self.rate(self.pacing_gain * self.bandwidth());
        if self.bandwidth() > 0.0
            && (self.full == Mark::Set || self.pacing.is_none_or(|p| rate > p))
        {
            self.pacing = Some(rate);
        }
    }

    fn rate(&self, segments_per_second: f64) -> Rate {
        Rate::from_f64((segments_per_second * self.wire.0 as f64 * 8.0).max(1.0))
    }

    fn modulate(&mut self, ack: &AckView, window: &mut Window) {
        let arrived = ack.arrived as f64;
        if ack.phase == Phase::Recovery {
            window.size = (window.size - ack.lost as f64).max(1.0);
            if self.round_starts == Mark::Set {
                self.conserving = Mark::Clear;
            }
        }
        if self.conserving == Mark::Set {
            window.size = window.size.max(ack.pipe as f64 + arrived);
        } else {
            let target = self.inflight(self.window_gain, window);
            if self.full == Mark::Set {
                window.size = (window.size + arrived).min(target);
            } else if window.size < target || (ack.delivered as f64) < window.initial {
                window.size += arrived;
            }
            window.size = window.size.max(LEAST_WINDOW);
        }
        if self.state == State::ProbePropagation {
            window.size = window.size.min(LEAST_WINDOW);
        }
    }

    fn probes(&self) -> bool {
        self.state == State::ProbePropagation
    }
}

impl Law for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn grow(&mut self, _ack: &AckView, _window: &mut Window) {}

    /// Losses do not lower a threshold; there is no slow start to come back to.
    fn shrink(&mut self, loss: &LossView) -> f64 {
        loss.window
    }

    fn observe(&mut self, ack: &AckView, window: &mut Window) {
        self.prior.note(ack, window);
        let Some(delivery) = ack.delivery else { return };
        self.update_round(ack, &delivery);
        self.update_bandwidth(&delivery);
        self.check_cycle(ack, window);
        self.check_full(&delivery);
        self.check_drain(ack, window);
        let expired = self.update_propagation(ack);
        self.check_probe(ack, expired, window);
        self.set_pacing();
        self.modulate(ack, window);
    }

    fn handle_loss(&mut self, loss: &LossView, window: &mut Window) {
        self.prior.save(Phase::Recovery, self.probes(), window);
        window.size = loss.pipe as f64 + 1.0;
        self.conserving = Mark::Set;
        // 4.2.3.4: a round begins here, and conservation ends with it.
        self.round_end = loss.delivered;
    }

    fn handle_recovered(&mut self, _now: Time, window: &mut Window) {
        self.conserving = Mark::Clear;
        self.prior.restore(window);
    }

    fn handle_timeout(&mut self, _loss: &LossView, window: &mut Window) {
        self.prior.save(Phase::Timeout, self.probes(), window);
        self.conserving = Mark::Clear;
        window.size = 1.0;
    }

    fn handle_idle(&mut self, _now: Time, _window: &mut Window) {
        self.rested = Mark::Set;
        if self.state == State::ProbeBandwidth {
            self.pacing = Some(self.rate(self.bandwidth()));
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.pacing
    }

    fn stamp(&mut self, leaving: &Leaving) -> Note {
        self.wire = self.wire.max(leaving.size);
        if self.pacing.is_none() {
            // 4.2.1: before anything is delivered, the initial window in a round trip.
            let rtt = leaving.smoothed_rtt.max(Span::from_millis(1)).as_secs_f64();
            self.pacing = Some(self.rate(HIGH_GAIN * leaving.window.initial / rtt));
        }
        Note::None
    }
}

/// 2/ln 2: the least gain that doubles the rate in each round (4.3.2.1).
const HIGH_GAIN: f64 = 2.885;
/// 4.3.4.1.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// 4.1.1.4: rounds that the bandwidth filter reaches back.
const RATE_ROUNDS: u64 = 10;
/// 4.1.2.2.
const PROPAGATION_KEPT: Span = Span::from_secs(10);
/// 4.3.5.
const PROBE_FOR: Span = Span::from_millis(200);
/// 4.2.3: BBRMinPipeCwnd.
const LEAST_WINDOW: f64 = 4.0;
