//! How many segments acknowledgments bring at once, beyond what the bandwidth would (5.5.9).
//!
//! The excess of the last rounds is added to the window, so that the connection goes on sending
//! while acknowledgments wait to be bunched. It knows neither states nor losses.

use alloc::collections::VecDeque;

use gtp_alloc::Time;

use super::Sample;

/// BBR.extra_acked and how it is measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Bunches {
    since: Time,
    delivered: f64,
    /// Candidates for the greatest: rounds and segments, falling.
    most: VecDeque<(u64, f64)>,
}

impl Bunches {
    /// The greatest excess of the last rounds, in segments.
    pub(super) fn extra(&self) -> f64 {
        self.most.front().map_or(0.0, |(_, extra)| *extra)
    }

    /// A rest ends at `now`.
    pub(super) fn restart(&mut self, now: Time) {
        self.since = now;
    }

    /// `UpdateACKAggregation`, with the greatest of `kept` rounds.
    pub(super) fn update(&mut self, sample: &Sample, bw: f64, window: f64, round: u64, kept: u64) {
        let mut expected = bw * sample.now.since(self.since).as_secs_f64();
        if self.delivered <= expected {
            (self.delivered, self.since, expected) = (0.0, sample.now, 0.0);
        }
        self.delivered += sample.arrived;
        let extra = (self.delivered - expected).min(window);
        while self.most.back().is_some_and(|(_, other)| *other <= extra) {
            self.most.pop_back();
        }
        self.most.push_back((round, extra));
        while self.most.front().is_some_and(|(at, _)| at + kept <= round) {
            self.most.pop_front();
        }
    }
}
