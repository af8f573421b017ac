//! Tsunami's law: an inter-packet delay that follows a smoothed error rate.
//!
//! Sources: SABUL (I), which says that there is no congestion control, and the released client and
//! server of 2002 to 2009, which have one: this one.
//!
//! Rules:
//! - T3 each 350 ms an error rate, smoothed: `e = 0.25 e + 0.75 * 0.5 * f`, `f` the requests of
//!   the period over requests and new blocks together. (The release adds how full its disk ring is
//!   and halves the sum; the ring is empty here, so that half a loss ratio is what is reported.)
//! - T4 [FIX, from the release] above the threshold of 7.5 % the inter-packet delay (IPD) grows by
//!   `1 + (25/24 - 1) * (e - 7.5 %)/(1 - 7.5 %)`, else it shrinks by 5/6; it stays between the
//!   IPD of the user's target rate and 10 ms.
//!
//! Departure of [`Tsunami`], which counts packets: a loss is one request. The release asks again
//! in each period for what is still missing, so that its `f` grows faster under lasting loss.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::{Counts, SourceLaw};

/// T4: the next inter-packet delay in seconds, after an error rate `e`.
pub fn next_delay(delay: f64, e: f64, least: f64) -> f64 {
    let factor = if e > THRESHOLD {
        1.0 + (SLOWER - 1.0) * (e - THRESHOLD) / (1.0 - THRESHOLD)
    } else {
        FASTER
    };
    (delay * factor).min(LONGEST).max(least)
}

/// T3: the next smoothed error rate.
pub fn smooth_error(e: f64, requests: u64, blocks: u64) -> f64 {
    let fraction = requests as f64 / (1.0 + requests as f64 + blocks as f64);
    HISTORY * e + (1.0 - HISTORY) * 0.5 * fraction
}

/// T3, T4 at one place: periods by the clock, errors from what was lost.
#[derive(Clone, Debug)]
pub struct Tsunami {
    target: Rate,
    /// Seconds; below the target's IPD it counts as that.
    delay: f64,
    error: f64,
    counted: Counts,
    next: Option<Time>,
}

impl Tsunami {
    /// A law whose rate is at most `target`, counted in bytes on links.
    pub fn new(target: Rate) -> Tsunami {
        Tsunami { target, delay: 0.0, error: 0.0, counted: Counts::default(), next: None }
    }

    /// T3: the smoothed error rate.
    pub fn error(&self) -> f64 {
        self.error
    }
}

impl SourceLaw for Tsunami {
    fn handle_counts(&mut self, now: Time, counts: &Counts, packet: Bytes) {
        let next = *self.next.get_or_insert(now + PERIOD);
        if now < next {
            return;
        }
        self.next = Some(now + PERIOD);
        let period = counts.since(&self.counted);
        self.counted = *counts;
        if period.sent() == 0 {
            return; // No news is no good news.
        }
        self.error = smooth_error(self.error, period.lost, period.received);
        let least = delay_of(packet, self.target);
        self.delay = next_delay(self.delay.max(least), self.error, least);
    }

    fn rate(&self, packet: Bytes) -> Rate {
        if self.delay <= delay_of(packet, self.target) {
            return self.target;
        }
        Rate::from_f64(packet.0 as f64 * 8.0 / self.delay)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next
    }
}

fn delay_of(packet: Bytes, rate: Rate) -> f64 {
    packet.0 as f64 * 8.0 / rate.as_f64()
}

/// T2, T3: the release's update period.
pub const PERIOD: Span = Span::from_millis(350);
/// T4, the release's defaults: threshold, factors, and the longest IPD in seconds.
const THRESHOLD: f64 = 0.075;
const SLOWER: f64 = 25.0 / 24.0;
const FASTER: f64 = 5.0 / 6.0;
const LONGEST: f64 = 0.01;
/// T3: weight of the past.
const HISTORY: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_shrinks_by_a_sixth_below_the_threshold_but_not_under_the_targets() {
        assert!((next_delay(24e-6, 0.05, 12e-6) - 20e-6).abs() < 1e-12);
        assert_eq!(next_delay(13e-6, 0.0, 12e-6), 12e-6);
    }

    #[test]
    fn the_delay_grows_with_the_excess_over_the_threshold() {
        // All lost: the full 25/24. Half the way up from 7.5 %: half of it.
        assert!((next_delay(24e-6, 1.0, 12e-6) - 25e-6).abs() < 1e-12);
        assert!((next_delay(24e-6, 0.5375, 12e-6) - 24.5e-6).abs() < 1e-12);
        assert_eq!(next_delay(0.01, 1.0, 12e-6), 0.01);
    }

    #[test]
    fn the_error_rate_is_half_the_requests_share_smoothed() {
        // 100 requests beside 899 new blocks: a tenth.
        assert!((smooth_error(0.0, 100, 899) - 0.0375).abs() < 1e-12);
        assert!((smooth_error(0.04, 0, 899) - 0.01).abs() < 1e-12);
    }

    #[test]
    fn the_rate_falls_each_period_while_a_third_is_lost_and_comes_back_to_the_target() {
        let (target, packet) = (Rate::from_mbps(1_000), Bytes(1_500));
        let mut law = Tsunami::new(target);
        let mut counts = Counts::default();
        let at = |n: u64| Time::ZERO + PERIOD * n;
        law.handle_counts(at(0), &counts, packet);
        for n in 1..=10 {
            counts.received += 2_000;
            counts.lost += 1_000;
            law.handle_counts(at(n), &counts, packet);
        }
        // e comes to 1/6; ten times at most 1 + (25/24 - 1) * (1/6 - .075)/(.925) each.
        let slow = law.rate(packet).as_f64();
        assert!(slow < 0.97e9 && slow > 0.95e9, "{slow}");
        for n in 11..=20 {
            counts.received += 3_000;
            law.handle_counts(at(n), &counts, packet);
        }
        assert_eq!(law.rate(packet), target);
    }
}
