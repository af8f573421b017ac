//! BBR, version 3: draft-ietf-ccwg-bbr-06 (July 2026).
//!
//! As version 1 it knows the path by a bandwidth and a propagation time. Beside these it keeps two
//! bounds of what may be in flight, one that it learnt while it probed and one of the last losses,
//! and it probes rarely enough for Reno and CUBIC to live beside it.
//!
//! | rule | draft | where |
//! |---|---|---|
//! | start-up: gain 4 ln 2, until three rounds without 25 % more | 5.3.1.1, 5.3.1.2 | `full.rs` |
//! | start-up ends by loss: 2 %, six ranges, a round of recovery | 5.3.1.3 | `check_startup_loss` |
//! | drain at half the rate, three rounds at most | 5.3.2 | `check_drain` |
//! | down, cruise, refill, up | 5.3.3 | `cycle.rs` |
//! | every five seconds half the product for 200 ms | 5.3.4 | `floor.rs` |
//! | after a rest the measured bandwidth, and no probe | 5.4.1 | `handle_idle` |
//! | bandwidth: the most of two cycles | 5.5.5, 5.5.6 | `model.rs` |
//! | propagation time: the least of ten seconds | 5.5.7, 5.3.4.3 | `floor.rs` |
//! | what bunched acknowledgments add | 5.5.9 | `bunches.rs` |
//! | a loss while probing lowers the long-term bound | 5.5.10.2 | `handle_lost` |
//! | another lowers the short-term bounds, once in a round | 5.5.10.3 | `model.rs` |
//! | pacing: gain times bandwidth, less 1 % | 5.6.2 | `set_pacing` |
//! | window | 5.6.4 | `window.rs` |
//!
//! Departures: segments leave one by one, so that the offload budget (5.5.8) is below the least
//! window and left out; no recovery is found to have been needless, so that nothing is undone
//! (5.5.11); a rest is one of more than a timeout; ECN is not there, as in the draft.

mod bunches;
mod cycle;
mod floor;
mod full;
mod model;
#[cfg(test)]
mod tests;
mod window;

use gtp_alloc::{Bytes, Rate, Span, Time};

use self::bunches::Bunches;
use self::cycle::Cycle;
use self::floor::Floor;
use self::full::Full;
use self::model::Model;
use super::prior::Prior;
use crate::Note;
use crate::tcp::law::{AckView, Fullness, Law, Leaving, LossView, LostView, Phase, Window};

/// Pacing at the measured bandwidth, within bounds learnt from losses.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    state: State,
    pacing: Option<Rate>,
    /// Bytes of a full segment on links, as last seen.
    wire: Bytes,
    rounds: Rounds,
    model: Model,
    full: Full,
    cycle: Cycle,
    floor: Floor,
    bunches: Bunches,
    /// Rounds counted when drain began.
    drain_since: u64,
    prior: Prior,
    draws: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// 5.6.1: the table's column of pacing gains.
    fn pacing_gain(self) -> f64 {
        match self {
            State::Startup => 4.0 * core::f64::consts::LN_2,
            State::Drain => 0.5,
            State::Down => 0.9,
            State::Cruise | State::Refill | State::ProbeRtt => 1.0,
            State::Up => 1.25,
        }
    }

    /// 5.6.1: the table's column of window gains.
    fn window_gain(self) -> f64 {
        match self {
            State::Startup | State::Drain | State::Down | State::Cruise | State::Refill => 2.0,
            State::Up => 2.25,
            State::ProbeRtt => 0.5,
        }
    }

    /// `IsInAProbeBWState`.
    fn is_of_cycle(self) -> bool {
        match self {
            State::Down | State::Cruise | State::Refill | State::Up => true,
            State::Startup | State::Drain | State::ProbeRtt => false,
        }
    }

    /// `IsProbingBW`.
    fn is_probing(self) -> bool {
        match self {
            State::Startup | State::Refill | State::Up => true,
            State::Drain | State::Down | State::Cruise | State::ProbeRtt => false,
        }
    }
}

/// Round trips counted by what is delivered (5.5.1).
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    count: u64,
    /// What is sent once this many were delivered belongs to the next round.
    end: u64,
    starts: bool,
}

/// An acknowledgment with its rate sample (RS), in segments and segments per second.
#[derive(Clone, Copy, Debug)]
struct Sample {
    now: Time,
    rtt: Option<Span>,
    rate: f64,
    /// Segments that the sample counts, and those delivered when the sampled one was sent.
    delivered: f64,
    delivered_then: u64,
    /// Segments delivered so far (C.delivered), and by this acknowledgment.
    total: u64,
    arrived: f64,
    /// In flight when the sampled segment was sent, and lost since.
    in_flight: f64,
    lost: f64,
    slack: bool,
    /// In flight now.
    pipe: f64,
    window_limited: bool,
}

impl Sample {
    /// `None` if the acknowledgment brought no rate.
    fn of(ack: &AckView) -> Option<Sample> {
        let delivery = ack.delivery?;
        Some(Sample {
            now: ack.now,
            rtt: ack.rtt,
            rate: delivery.segments as f64 / delivery.interval.as_secs_f64().max(1e-9),
            delivered: delivery.segments as f64,
            delivered_then: delivery.delivered_then,
            total: ack.delivered,
            arrived: ack.arrived as f64,
            in_flight: delivery.in_flight as f64,
            lost: delivery.lost as f64,
            slack: delivery.fullness == Fullness::Slack,
            pipe: ack.pipe as f64,
            window_limited: ack.fullness == Fullness::Full,
        })
    }
}

impl Bbr3 {
    /// In start-up; `seed` decides how long it waits between probes.
    pub fn new(seed: u64) -> Bbr3 {
        Bbr3 {
            state: State::Startup,
            pacing: None,
            wire: Bytes(1_500),
            rounds: Rounds::default(),
            model: Model::new(),
            full: Full::default(),
            cycle: Cycle::default(),
            floor: Floor::default(),
            bunches: Bunches::default(),
            drain_since: 0,
            prior: Prior::new(),
            draws: seed,
        }
    }

    /// The estimate of the bottleneck's bandwidth, in segments per second.
    pub fn bandwidth(&self) -> f64 {
        self.model.bandwidth()
    }

    /// 5.2.3, `UpdateModelAndState`.
    fn update(&mut self, sample: &Sample, window: &mut Window) {
        self.model.note_delivery(sample);
        self.update_round(sample);
        self.model.note_rate(sample);
        if self.model.loss_round_starts && !self.state.is_probing() {
            self.model.adapt(window);
        }
        let kept = if self.full.reached { EXTRA_KEPT } else { 1 };
        self.bunches.update(sample, self.model.bw, window.size, self.rounds.count, kept);
        if self.rounds.starts {
            self.full.check(sample);
        }
        self.check_startup(sample, window);
        self.check_drain(sample, window);
        self.update_cycle(sample, window);
        self.floor.update(sample);
        self.check_probe_rtt(sample, window);
        self.model.end_round(sample);
    }

    /// 5.5.1.
    fn update_round(&mut self, sample: &Sample) {
        self.rounds.starts = sample.delivered_then >= self.rounds.end;
        if self.rounds.starts {
            self.start_round(sample.total);
            self.rounds.count += 1;
            self.cycle.rounds += 1;
        }
    }

    fn start_round(&mut self, delivered: u64) {
        self.rounds.end = delivered;
    }

    /// 5.3.1.1, `CheckStartupDone`.
    fn check_startup(&mut self, sample: &Sample, window: &Window) {
        if self.state != State::Startup {
            return;
        }
        self.check_startup_loss(sample, window);
        if self.full.reached {
            self.state = State::Drain;
            self.drain_since = self.rounds.count;
        }
    }

    /// 5.3.1.3: a whole round of recovery, losses in six places of it and of more than 2 %. A round
    /// of losses begins with the first of them, so that its end is a whole round later.
    fn check_startup_loss(&mut self, sample: &Sample, window: &Window) {
        let recovered_for_a_round =
            self.prior.phase() == Phase::Recovery && self.model.loss_round_starts;
        let scattered = self.model.loss_ranges >= STARTUP_RANGES;
        if recovered_for_a_round && scattered && is_too_high(sample.lost, sample.in_flight) {
            self.full.reached = true;
            self.model.inflight_long = self.product(1.0, window).max(self.model.inflight_latest);
        }
    }

    /// 5.3.2, `CheckDrainDone`.
    fn check_drain(&mut self, sample: &Sample, window: &Window) {
        if self.state == State::Drain
            && (sample.pipe <= self.inflight(1.0, window)
                || self.rounds.count > self.drain_since + DRAIN_ROUNDS)
        {
            self.start_down(sample.now, sample.total);
        }
    }

    /// 5.6.2, `SetPacingRateWithGain`.
    fn set_pacing(&mut self, gain: f64) {
        let rate = self.rate(gain * self.model.bw * PACED);
        if self.model.bw > 0.0 && (self.full.reached || self.pacing.is_none_or(|p| rate > p)) {
            self.pacing = Some(rate);
        }
    }

    fn rate(&self, segments_per_second: f64) -> Rate {
        Rate::from_f64((segments_per_second * self.wire.0 as f64 * 8.0).max(1.0))
    }

    /// Returns the next pseudo-random number: at least 0 and less than 1. The generator is linear
    /// congruential with Knuth's multiplier (MMIX).
    fn draw(&mut self) -> f64 {
        self.draws = self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.draws >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// 5.5.10.2, `IsInflightTooHigh`.
fn is_too_high(lost: f64, in_flight: f64) -> bool {
    lost > in_flight * LOSS_THRESHOLD
}

impl Law for Bbr3 {
    fn name(&self) -> &'static str {
        "bbr3"
    }

    fn grow(&mut self, _ack: &AckView, _window: &mut Window) {}

    /// Losses do not lower a threshold; there is no slow start to come back to.
    fn shrink(&mut self, loss: &LossView) -> f64 {
        loss.window
    }

    fn observe(&mut self, ack: &AckView, window: &mut Window) {
        self.prior.note(ack, window);
        let Some(mut sample) = Sample::of(ack) else { return };
        sample.slack |= self.floor.is_low(self.state, sample.delivered_then);
        self.update(&sample, window);
        self.set_pacing(self.state.pacing_gain());
        self.set_window(&sample, window);
    }

    /// 5.5.10.2, `HandleLostPacket`.
    fn handle_lost(&mut self, lost: &LostView, window: &mut Window) {
        self.model.note_loss(lost);
        if !self.cycle.samples || !is_too_high(lost.lost as f64, lost.in_flight as f64) {
            return;
        }
        self.cycle.went_too_high = true;
        self.cycle.samples = false;
        if lost.fullness == Fullness::Full {
            let target = self.product(1.0, window).min(window.size);
            self.model.inflight_long = inflight_at(lost).max(target * BETA);
        }
        if self.state == State::Up {
            self.start_down(lost.now, lost.delivered);
        }
    }

    /// 5.6.4.4: the window stays; the model answers the losses.
    fn handle_loss(&mut self, _loss: &LossView, window: &mut Window) {
        self.prior.save(Phase::Recovery, self.probes(), window);
    }

    fn handle_recovered(&mut self, _now: Time, window: &mut Window) {
        self.prior.restore(window);
    }

    fn handle_timeout(&mut self, _loss: &LossView, window: &mut Window) {
        self.prior.save(Phase::Timeout, self.probes(), window);
        window.size = 1.0;
    }

    /// 5.4.1, `HandleRestartFromIdle`.
    fn handle_idle(&mut self, now: Time, window: &mut Window) {
        self.floor.rested = true;
        self.bunches.restart(now);
        if self.state.is_of_cycle() {
            self.set_pacing(1.0);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now, self.rounds.end, window);
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.pacing
    }

    fn stamp(&mut self, leaving: &Leaving) -> Note {
        self.wire = self.wire.max(leaving.size);
        if self.pacing.is_none() {
            // 5.6.2, `InitPacingRate`: before anything is delivered.
            let rtt = leaving.smoothed_rtt.max(Span::from_millis(1)).as_secs_f64();
            let nominal = leaving.window.initial / rtt;
            self.pacing = Some(self.rate(State::Startup.pacing_gain() * nominal));
        }
        Note::None
    }
}

/// 5.5.10.2, `InflightAtLoss`: with how many in flight losses crossed the threshold.
fn inflight_at(lost: &LostView) -> f64 {
    let (in_flight, lost) = (lost.in_flight as f64 - 1.0, lost.lost as f64 - 1.0);
    in_flight + (LOSS_THRESHOLD * in_flight - lost) / (1.0 - LOSS_THRESHOLD)
}

/// 2.8, BBR.LossThresh.
const LOSS_THRESHOLD: f64 = 0.02;
/// 2.8, BBR.Beta.
const BETA: f64 = 0.7;
/// 2.8, BBR.Headroom.
const HEADROOM: f64 = 0.15;
/// 2.8, BBR.MinPipeCwnd, in segments.
const LEAST_WINDOW: f64 = 4.0;
/// 5.3.1.3, BBRStartupFullLossCnt.
const STARTUP_RANGES: u64 = 6;
/// 5.3.2: rounds that drain lasts at most.
const DRAIN_ROUNDS: u64 = 3;
/// 5.6.2, BBR.PacingMarginPercent: what is left of the rate.
const PACED: f64 = 0.99;
/// 2.12, BBR.ExtraAckedFilterLen, in rounds.
const EXTRA_KEPT: u64 = 10;
