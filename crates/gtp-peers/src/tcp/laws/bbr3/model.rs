//! The path's bandwidth, and the bounds that losses set (5.5.2 to 5.5.6, 5.5.10).
//!
//! The long-term model is of probes, the short-term one of losses since the last of them. Both are
//! plain numbers here; when a cycle or a round ends is for others to say.

use super::{BETA, Sample};
use crate::tcp::law::{LostView, Window};

/// What is known of the path but for its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// The greatest delivery rates of the cycle before and of this one (BBR.max_bw_filter).
    cycles: [f64; 2],
    /// The bandwidth within its short-term bound (BBR.bw).
    pub(super) bw: f64,
    pub(super) bw_short: f64,
    pub(super) inflight_long: f64,
    pub(super) inflight_short: f64,
    /// The greatest rate and volume delivered in this round.
    pub(super) bw_latest: f64,
    pub(super) inflight_latest: f64,
    /// A round of losses ends when something sent after so many were delivered arrives.
    loss_round_end: u64,
    pub(super) loss_round_starts: bool,
    pub(super) loss_in_round: bool,
    /// Ranges of segments lost in this round, and the last segment of the last of them.
    pub(super) loss_ranges: u64,
    last_lost: Option<u64>,
}

impl Model {
    pub(super) fn new() -> Model {
        Model {
            cycles: [0.0; 2],
            bw: 0.0,
            bw_short: f64::INFINITY,
            inflight_long: f64::INFINITY,
            inflight_short: f64::INFINITY,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            loss_round_end: 0,
            loss_round_starts: false,
            loss_in_round: false,
            loss_ranges: 0,
            last_lost: None,
        }
    }

    /// BBR.max_bw.
    pub(super) fn bandwidth(&self) -> f64 {
        self.cycles[0].max(self.cycles[1])
    }

    /// 5.5.6, `AdvanceMaxBwFilter`; a cycle without a sample is none.
    pub(super) fn advance(&mut self) {
        if self.cycles[1] > 0.0 {
            self.cycles = [self.cycles[1], 0.0];
        }
    }

    /// 5.5.10.3, `UpdateLatestDeliverySignals`.
    pub(super) fn note_delivery(&mut self, sample: &Sample) {
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        self.loss_round_starts = sample.delivered_then >= self.loss_round_end;
        if self.loss_round_starts {
            self.loss_round_end = sample.total;
        }
    }

    /// 5.5.5, `UpdateMaxBw`.
    pub(super) fn note_rate(&mut self, sample: &Sample) {
        if sample.rate >= self.bandwidth() || !sample.slack {
            self.cycles[1] = self.cycles[1].max(sample.rate);
        }
    }

    /// 5.5.10.2, `NoteLoss`.
    pub(super) fn note_loss(&mut self, lost: &LostView) {
        if !self.loss_in_round {
            self.loss_round_end = lost.delivered;
        }
        self.loss_in_round = true;
        if self.last_lost.is_none_or(|last| lost.number != last + 1) {
            self.loss_ranges += 1;
        }
        self.last_lost = Some(lost.number);
    }

    /// 5.5.10.3, `AdaptLowerBoundsFromCongestion`, at the end of a round.
    pub(super) fn adapt(&mut self, window: &Window) {
        if !self.loss_in_round {
            return;
        }
        if self.bw_short.is_infinite() {
            self.bw_short = self.bandwidth();
        }
        if self.inflight_short.is_infinite() {
            self.inflight_short = window.size;
        }
        self.bw_short = self.bw_latest.max(BETA * self.bw_short);
        self.inflight_short = self.inflight_latest.max(BETA * self.inflight_short);
    }

    /// 5.5.10.3: what comes last for each acknowledgment.
    pub(super) fn end_round(&mut self, sample: &Sample) {
        if self.loss_round_starts {
            (self.bw_latest, self.inflight_latest) = (sample.rate, sample.delivered);
            self.loss_in_round = false;
            (self.loss_ranges, self.last_lost) = (0, None);
        }
        self.bw = self.bandwidth().min(self.bw_short);
    }

    #[cfg(test)]
    pub(super) fn round_of_losses(&self) -> u64 {
        self.loss_round_end
    }

    #[cfg(test)]
    pub(super) fn cycles_of(&mut self, rate: f64) {
        self.cycles = [0.0, rate];
    }

    /// `ResetShortTermModel`.
    pub(super) fn forget_short(&mut self) {
        (self.bw_short, self.inflight_short) = (f64::INFINITY, f64::INFINITY);
    }

    /// `ResetCongestionSignals`.
    pub(super) fn forget_signals(&mut self) {
        self.loss_in_round = false;
        (self.bw_latest, self.inflight_latest) = (0.0, 0.0);
    }
}
