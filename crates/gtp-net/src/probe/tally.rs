//! What a probe shows of the way to this end.
//!
//! It counts frames as they come, in bounded memory, and knows no clock: the times are given to it.
//! Delays are told above the least one, because the two ends' clocks may differ.

use gtp_alloc::Span;
use minicbor::{Decode, Encode};

/// Frames that came, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Seen {
    /// Frames that came.
    #[n(0)]
    pub frames: u64,
    /// Frames that a later one had overtaken (RFC 4737).
    #[n(1)]
    pub overtaken: u64,
    /// The least one-way delay in nanoseconds, as far as both ends' wall clocks agree.
    #[n(2)]
    pub least_ns: i64,
    /// Delay above the least, in nanoseconds: the median.
    #[n(3)]
    pub median_ns: u64,
    /// The same: the 95th percentile.
    #[n(4)]
    pub p95_ns: u64,
    /// The same: the 99th percentile.
    #[n(5)]
    pub p99_ns: u64,
    /// The same: the most.
    #[n(6)]
    pub most_ns: u64,
    /// The smoothed difference between the delays of neighbours, in nanoseconds (RFC 3550, 6.4.1).
    #[n(7)]
    pub jitter_ns: u64,
}

/// A frame that has come.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// When it was sent, in nanoseconds of the sender's wall clock.
    pub sent_ns: u64,
    /// When it came, in nanoseconds of this end's wall clock.
    pub came_ns: u64,
    /// Whether a later one had come before.
    pub overtaken: bool,
}

/// Counts frames as they come.
#[derive(Debug, Default)]
pub struct Tally {
    frames: u64,
    overtaken: u64,
    least_ns: i64,
    most_ns: i64,
    before_ns: Option<i64>,
    jitter_ns: f64,
    delays: Thinned,
}

impl Tally {
    /// Counts one frame.
    pub fn note(&mut self, Came { sent_ns, came_ns, overtaken }: Came) {
        // The sender's clock is its own affair: any two numbers have a difference.
        let delay = came_ns.wrapping_sub(sent_ns) as i64;
        self.least_ns = if self.frames == 0 { delay } else { self.least_ns.min(delay) };
        self.most_ns = if self.frames == 0 { delay } else { self.most_ns.max(delay) };
        self.frames += 1;
        self.overtaken += u64::from(overtaken);
        self.delays.note(delay);
        if overtaken {
            return;
        }
        if let Some(before) = self.before_ns.replace(delay) {
            let step = delay.abs_diff(before) as f64;
            self.jitter_ns += (step - self.jitter_ns) / JITTER_SHARE;
        }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        let above = |delay: i64| delay.abs_diff(self.least_ns);
        let [median, p95, p99] = self.delays.quantiles([0.5, 0.95, 0.99]).map(above);
        Seen {
            frames: self.frames,
            overtaken: self.overtaken,
            least_ns: self.least_ns,
            median_ns: median,
            p95_ns: p95,
            p99_ns: p99,
            most_ns: above(self.most_ns),
            jitter_ns: self.jitter_ns as u64,
        }
    }
}

impl Seen {
    /// The share of so many frames that did not come.
    pub fn loss_ratio(&self, sent: u64) -> f64 {
        match sent {
            0 => 0.0,
            _ => sent.saturating_sub(self.frames) as f64 / sent as f64,
        }
    }

    /// The smoothed difference between the delays of neighbours.
    pub fn jitter(&self) -> Span {
        Span::from_nanos(self.jitter_ns)
    }
}

/// The part of a new difference in the jitter, as RFC 3550 has it.
const JITTER_SHARE: f64 = 16.0;

/// Every so manieth of a row of numbers, evenly over all of it, in bounded memory.
#[derive(Debug)]
struct Thinned {
    kept: Vec<i64>,
    /// One in so many is kept.
    stride: u64,
    count: u64,
}

/// Numbers that are kept at most: half a megabyte, and a percentile to a hundredth.
const KEPT_MOST: usize = 1 << 16;

impl Default for Thinned {
    fn default() -> Thinned {
        Thinned { kept: Vec::new(), stride: 1, count: 0 }
    }
}

impl Thinned {
    fn note(&mut self, value: i64) {
        if self.count.is_multiple_of(self.stride) {
            if self.kept.len() == KEPT_MOST {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                self.kept.push(value);
            }
        }
        self.count += 1;
    }

    /// The least number that is no smaller than such a part of all; zeros if there is none.
    fn quantiles<const N: usize>(&self, parts: [f64; N]) -> [i64; N] {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        parts.map(|part| {
            let rank = (part * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tally(delays: impl IntoIterator<Item = i64>) -> Seen {
        let mut tally = Tally::default();
        for delay in delays {
            let sent_ns = 1 << 60;
            let came_ns = (sent_ns as i64 + delay) as u64;
            tally.note(Came { sent_ns, came_ns, overtaken: false });
        }
        tally.seen()
    }

    #[test]
    fn delays_are_told_above_the_least_one() {
        let seen = tally((1..=100).map(|n| -5_000 + n * 10));
        assert_eq!((seen.frames, seen.least_ns), (100, -4_990));
        assert_eq!((seen.median_ns, seen.p95_ns, seen.p99_ns, seen.most_ns), (490, 940, 980, 990));
    }

    #[test]
    fn the_jitter_of_a_delay_that_alternates_comes_to_the_difference() {
        let seen = tally((0..400).map(|n| if n % 2 == 0 { 0 } else { 8_000 }));
        assert!((7_900..=8_000).contains(&seen.jitter_ns), "{seen:?}");
        assert_eq!(tally([5; 100]).jitter_ns, 0);
    }

    #[test]
    fn what_was_overtaken_is_counted_and_does_not_enter_the_jitter() {
        let mut tally = Tally::default();
        for (came_ns, overtaken) in [(10, false), (900, true), (10, false)] {
            tally.note(Came { sent_ns: 0, came_ns, overtaken });
        }
        let seen = tally.seen();
        assert_eq!((seen.overtaken, seen.jitter_ns, seen.most_ns), (1, 0, 890));
    }

    #[test]
    fn nothing_seen_is_all_zeros_and_a_frame_too_many_is_no_loss() {
        assert_eq!(Tally::default().seen(), Seen::default());
        assert_eq!(tally([1, 2]).loss_ratio(1), 0.0);
        assert_eq!(tally([1, 2]).loss_ratio(4), 0.5);
        assert_eq!(Seen::default().loss_ratio(0), 0.0);
    }

    #[test]
    fn a_long_row_is_thinned_evenly() {
        let mut thinned = Thinned::default();
        (0..1_000_000).for_each(|n| thinned.note(n));
        assert!(thinned.kept.len() <= KEPT_MOST);
        let steps = thinned.kept.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(steps.into_iter().all(|step| step == 16), "{}", thinned.stride);
    }

    proptest! {
        #[test]
        fn any_clocks_are_counted_without_harm(
            times in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50),
        ) {
            let mut tally = Tally::default();
            for (sent_ns, came_ns) in times {
                tally.note(Came { sent_ns, came_ns, overtaken: false });
            }
            let seen = tally.seen();
            prop_assert!(seen.median_ns <= seen.p95_ns && seen.p95_ns <= seen.p99_ns);
            prop_assert!(seen.p99_ns <= seen.most_ns);
        }
    }
}
