//! Meters: bytes counted over time become rates.
//!
//! The mean over an interval for what is told to agents, the maximum over a window for what is
//! proven, the least of a window for round-trip times. None of them asks the time.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::limits::RTT_MOST;

mod stream;

pub use stream::StreamMeter;
pub(crate) use stream::wire_gap;

/// Counts bytes and gives their mean rate over consecutive intervals.
#[derive(Clone, Debug)]
pub struct Meter {
    since: Time,
    counted: Bytes,
    rate: Rate,
}

impl Meter {
    /// A meter that starts at `now`.
    pub fn new(now: Time) -> Meter {
        Meter { since: now, counted: Bytes::ZERO, rate: Rate::ZERO }
    }

    /// Counts `bytes`.
    pub fn add(&mut self, bytes: Bytes) {
        self.counted += bytes;
    }

    /// Ends the interval at `now` if at least `span` has passed since the last end, and says
    /// whether it did.
    pub fn roll(&mut self, now: Time, span: Span) -> bool {
        let elapsed = now.since(self.since);
        let over = elapsed >= span && elapsed > Span::ZERO;
        if over {
            self.rate = self.counted.per(elapsed);
            self.since = now;
            self.counted = Bytes::ZERO;
        }
        over
    }

    /// The mean rate over the last whole interval.
    pub fn rate(&self) -> Rate {
        self.rate
    }
}

/// The largest rate seen in a sliding window, kept as a few coarse slots.
#[derive(Clone, Debug)]
pub struct WindowedMax {
    slot: Span,
    started: Time,
    slots: [Rate; SLOTS],
}

const SLOTS: usize = 8;

impl WindowedMax {
    /// A window of length `window` that starts at `now`.
    pub fn new(now: Time, window: Span) -> WindowedMax {
        WindowedMax { slot: window / SLOTS as u64, started: now, slots: [Rate::ZERO; SLOTS] }
    }

    /// Changes the window's length; what it holds is kept.
    pub fn set_window(&mut self, window: Span) {
        self.slot = window / SLOTS as u64;
    }

    /// Takes in `rate` at `now`.
    pub fn add(&mut self, now: Time, rate: Rate) {
        self.turn(now);
        self.slots[0] = self.slots[0].max(rate);
    }

    /// The largest rate in the window that ends at `now`.
    pub fn max(&mut self, now: Time) -> Rate {
        self.turn(now);
        self.slots.iter().copied().max().unwrap_or(Rate::ZERO)
    }

    /// Forgets everything.
    pub fn clear(&mut self, now: Time) {
        self.started = now;
        self.slots = [Rate::ZERO; SLOTS];
    }

    fn turn(&mut self, now: Time) {
        let slot = self.slot.as_nanos().max(1);
        let passed = now.since(self.started).as_nanos() / slot;
        if passed == 0 {
            return;
        }
        let shift = (passed as usize).min(SLOTS);
        self.slots.copy_within(..SLOTS - shift, shift);
        self.slots[..shift].fill(Rate::ZERO);
        self.started += Span::from_nanos(passed.saturating_mul(slot));
    }
}

/// Round-trip times: smoothed, and the smallest of the last minute.
#[derive(Clone, Debug, Default)]
pub struct RttMeter {
    smoothed: Span,
    least: Span,
    previous_least: Span,
    window_start: Time,
}

/// A rival that fills a queue empties it now and then, but seldom within ten seconds. With a
/// shorter memory its queue would count as part of the path.
const RTT_WINDOW: Span = Span::from_secs(60);

impl RttMeter {
    /// Takes in one sample; more than [`RTT_MOST`] counts as that.
    pub fn add(&mut self, now: Time, sample: Span) {
        let sample = sample.clamp(Span::from_nanos(1), RTT_MOST);
        if self.smoothed == Span::ZERO {
            *self = RttMeter {
                smoothed: sample,
                least: sample,
                previous_least: sample,
                window_start: now,
            };
            return;
        }
        self.smoothed = (self.smoothed * 7 + sample) / 8;
        if now.since(self.window_start) > RTT_WINDOW {
            self.previous_least = self.least;
            self.least = sample;
            self.window_start = now;
        }
        self.least = self.least.min(sample);
    }

    /// Exponentially smoothed (1/8); zero while unknown.
    pub fn smoothed(&self) -> Span {
        self.smoothed
    }

    /// The smallest sample of the last one to two minutes; zero while unknown.
    pub fn least(&self) -> Span {
        self.least.min(self.previous_least)
    }
}

#[cfg(test)]
mod tests;
