//! Whether more speed still brings more: the plateau of delivery rates (5.3.1.2).
//!
//! Start-up and a probe for bandwidth both send faster than the path delivers; when three rounds
//! of that bring little, the path is full. It knows rates only.

use super::Sample;

/// What is known of a plateau.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Full {
    /// The path was full once (BBR.full_bw_reached).
    pub(super) reached: bool,
    /// It is full since the last look began (BBR.full_bw_now).
    pub(super) now: bool,
    rate: f64,
    rounds: u32,
}

impl Full {
    /// A look begins, from this rate on.
    pub(super) fn reset(&mut self, rate: f64) {
        (self.now, self.rate, self.rounds) = (false, rate, 0);
    }

    /// `CheckFullBWReached`, at the start of a round.
    pub(super) fn check(&mut self, sample: &Sample) {
        if self.now || sample.slack {
            return;
        }
        if sample.rate >= self.rate * GROWTH {
            self.reset(sample.rate);
            return;
        }
        self.rounds += 1;
        self.now = self.rounds >= ROUNDS;
        self.reached |= self.now;
    }
}

/// 5.3.1.2: less growth than this is little.
const GROWTH: f64 = 1.25;
/// 5.3.1.2: rounds of little growth.
const ROUNDS: u32 = 3;
