//! What was proven to arrive, as the most of the last moments.
//!
//! Time over which no receipt came is no part of these moments: it proves nothing, neither for the
//! path nor against it. What a source may send over such a time is for the lease to say.

use gtp_alloc::{Rate, Span, Time};

use crate::limits::{RAMP_FACTOR, SILENCE_STOP};
use crate::meter::WindowedMax;

/// Receipts are seldom farther apart where none is lost. What is more counts as a silence.
const APART: Span = Span::from_millis(100);
/// After a silence so long nothing is proven any more.
const FORGOTTEN_AFTER: Span = Span::from_secs(4);

/// The largest rate proven over the last moments.
#[derive(Debug)]
pub(super) struct Proven {
    most: WindowedMax,
    /// When a receipt last proved something.
    shown: Time,
    /// All silences so far.
    silent: Span,
}

impl Proven {
    /// Nothing is proven at `now`, over a window of this length.
    pub fn new(now: Time, window: Span) -> Proven {
        Proven { most: WindowedMax::new(now, window), shown: now, silent: Span::ZERO }
    }

    /// Changes how long what was proven counts.
    pub fn set_window(&mut self, window: Span) {
        self.most.set_window(window);
    }

    /// A receipt proves this rate.
    pub fn add(&mut self, now: Time, rate: Rate) {
        let left = self.left(now);
        let known = self.most.max(self.heard(now));
        self.silent += self.silence(now);
        self.shown = now;
        let heard = back(now, self.silent);
        if left < 1.0 {
            self.most.clear(heard);
            self.most.add(heard, known.scale(left));
        }
        self.most.add(heard, rate);
    }

    /// The most that is proven.
    pub fn max(&mut self, now: Time) -> Rate {
        let left = self.left(now);
        self.most.max(self.heard(now)).scale(left)
    }

    /// Forgets everything.
    pub fn clear(&mut self, now: Time) {
        self.silent += self.silence(now);
        self.shown = now;
        self.most.clear(back(now, self.silent));
    }

    /// The time without silences.
    fn heard(&self, now: Time) -> Time {
        back(now, self.silent + self.silence(now))
    }

    /// How much of the time since the last receipt is a silence.
    fn silence(&self, now: Time) -> Span {
        now.since(self.shown).saturating_sub(APART)
    }

    /// The part that is left of what was proven. Once a silence has ended all sending, the path may
    /// be another one: the ramp's next step leads to what it carried, if it still does.
    fn left(&self, now: Time) -> f64 {
        match now.since(self.shown) {
            apart if apart > FORGOTTEN_AFTER => 0.0,
            apart if apart > SILENCE_STOP => 1.0 / RAMP_FACTOR,
            _ => 1.0,
        }
    }
}

fn back(now: Time, span: Span) -> Time {
    Time::from_nanos(now.as_nanos().saturating_sub(span.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_was_proven_outlasts_a_short_silence_a_quarter_of_it_a_longer_one_and_none_lower_proofs()
    {
        let (high, low) = (Rate::from_mbps(20), Rate::from_mbps(5));
        let proven = || {
            let mut proven = Proven::new(at(0), Span::from_millis(500));
            proven.add(at(10), high);
            proven
        };
        let mut short = proven();
        assert_eq!(short.max(at(900)), high);
        short.add(at(900), low);
        assert_eq!(short.max(at(950)), high);
        (10..20).for_each(|tens| short.add(at(tens * 100), low));
        assert_eq!(short.max(at(1_950)), low);
        assert_eq!(proven().max(at(1_500)), Rate::from_mbps(5));
        let mut long = proven();
        long.add(at(1_500), Rate::from_mbps(1));
        assert_eq!(long.max(at(1_600)), Rate::from_mbps(5));
        assert_eq!(proven().max(at(4_500)), Rate::ZERO);
        let mut lower = proven();
        (1..8).for_each(|tens| lower.add(at(tens * 100), low));
        assert_eq!(lower.max(at(750)), low);
    }

    #[test]
    fn nothing_is_left_of_what_was_cleared() {
        let mut proven = Proven::new(at(0), Span::from_millis(500));
        proven.add(at(10), Rate::from_mbps(20));
        proven.add(at(600), Rate::from_mbps(20));
        proven.clear(at(610));
        assert_eq!(proven.max(at(620)), Rate::ZERO);
        proven.add(at(630), Rate::from_mbps(3));
        assert_eq!(proven.max(at(640)), Rate::from_mbps(3));
    }
}
