//! For how long has the path carried what is sent now?
//!
//! A limit of the path shows when it is first exceeded. Losses that come while no more is sent
//! than what went through for a second are a burst of random losses, or the path has changed. The
//! latter goes on, so there is time to tell.

use gtp_alloc::{Rate, Span, Time};

/// A rate that was carried for this time shows that no limit lies below it.
const SHOWS: Span = Span::from_secs(1);
/// A rate is forgotten when it was not sent for so long.
const FORGETS: Span = Span::from_secs(1);
/// Rates that differ by no more than this factor count as one.
const SAME: f64 = 1.05;

/// A rate that the path carried without an odd loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calm {
    rate: Rate,
    /// For how long it was sent in all, and when last.
    lasted: Span,
    last: Time,
}

impl Calm {
    pub fn new(now: Time) -> Calm {
        Calm { rate: Rate::ZERO, lasted: Span::ZERO, last: now }
    }

    /// Notes a sample without an odd loss that was sent at `rate` for so long. A higher rate begins
    /// anew. A lower one says nothing of this rate.
    pub fn note(&mut self, now: Time, rate: Rate, lasts: Span) {
        if rate > self.rate.scale(SAME) || now.since(self.last) > FORGETS {
            *self = Calm { rate, lasted: lasts, last: now };
        } else if rate.scale(SAME) >= self.rate {
            (self.lasted, self.last) = (self.lasted + lasts, now);
        }
    }

    /// Whether the path carried as much as `rate` of late, and for long enough to show that no
    /// limit lies below it.
    pub fn shows(&self, now: Time, rate: Rate) -> bool {
        let known = rate <= self.rate.scale(SAME) && now.since(self.last) <= FORGETS;
        known && self.lasted >= SHOWS
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Notes these rates in Mbit/s in turn, each for 40 ms, for so many of them, and says for each
    /// whether it was shown before.
    fn shown(rates: impl Iterator<Item = f64>) -> Vec<bool> {
        let (mut calm, span) = (Calm::new(Time::ZERO), Span::from_millis(40));
        let told = rates.zip(1..).map(|(rate, n)| {
            let (now, rate) = (Time::ZERO + span * n, Rate::from_f64(rate * 1e6));
            let shown = calm.shows(now, rate);
            calm.note(now, rate, span);
            shown
        });
        told.collect()
    }

    #[test]
    fn a_rate_is_shown_by_a_second_of_it() {
        let shown = shown((0..50).map(|n| 10.0 + 0.4 * f64::from(n % 2)));
        assert_eq!(shown.iter().position(|shown| *shown), Some(25));
        assert!(shown[25..].iter().all(|shown| *shown));
    }

    #[test]
    fn lower_rates_in_between_neither_show_a_rate_nor_undo_what_was_shown() {
        let shown = shown((0..60).map(|n| if n % 3 == 1 { 4.0 } else { 10.0 }));
        assert_eq!(shown.iter().position(|shown| *shown), Some(37));
    }

    #[test]
    fn a_rate_that_climbs_is_never_shown() {
        let shown = shown((0..500).map(|n| libm::pow(1.003, f64::from(n))));
        assert!(!shown.contains(&true));
    }

    #[test]
    fn a_rate_that_was_not_sent_for_more_than_a_second_is_not_shown_any_more() {
        let rates = [(10.0, 30), (3.0, 26), (10.0, 1)];
        let shown = shown(rates.iter().flat_map(|&(rate, n)| std::iter::repeat_n(rate, n)));
        assert!(shown[29] && !shown[56]);
    }
}
