//! How late the emulator is: actual sending time minus due time, as a histogram.
//!
//! Buckets grow by an eighth of a power of two, so that any quantile is right within 12.5 %; the
//! largest value is kept exactly. Nothing is ever early: the emulator sends what is due only.

use gtp_alloc::Span;
use serde::Serialize;

/// A histogram of spans.
#[derive(Clone, Debug)]
pub struct Lateness {
    buckets: Vec<u64>,
    count: u64,
    max: Span,
}

/// What is said of the timing error, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Default)]
pub struct TimingError {
    /// Packets measured.
    pub packets: u64,
    /// Half of them were sent at most this late.
    pub p50_s: f64,
    /// All but one in a hundred were.
    pub p99_s: f64,
    /// All but one in a thousand were.
    pub p999_s: f64,
    /// The latest of all.
    pub max_s: f64,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { buckets: vec![0; 64 * EIGHTHS], count: 0, max: Span::ZERO }
    }
}

impl Lateness {
    /// Counts one packet.
    pub fn record(&mut self, late: Span) {
        self.buckets[bucket(late.as_nanos())] += 1;
        self.count += 1;
        self.max = self.max.max(late);
    }

    /// The span that `permille` of a thousand packets did not exceed.
    pub fn quantile(&self, permille: u64) -> Span {
        let wanted = (self.count * permille).div_ceil(1_000);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Span::from_nanos(ceiling(index)).min(self.max);
            }
        }
        self.max
    }

    /// Count, median, 99th and 99.9th percentile, maximum.
    pub fn summary(&self) -> TimingError {
        TimingError {
            packets: self.count,
            p50_s: self.quantile(500).as_secs_f64(),
            p99_s: self.quantile(990).as_secs_f64(),
            p999_s: self.quantile(999).as_secs_f64(),
            max_s: self.max.as_secs_f64(),
        }
    }
}

/// Buckets per power of two.
const EIGHTHS: usize = 8;

fn bucket(nanos: u64) -> usize {
    if nanos < EIGHTHS as u64 {
        return nanos as usize;
    }
    let power = nanos.ilog2() as usize;
    let eighth = (nanos >> (power - 3)) as usize - EIGHTHS;
    (power - 2) * EIGHTHS + eighth
}

/// The largest value of a bucket.
fn ceiling(index: usize) -> u64 {
    if index < EIGHTHS {
        return index as u64;
    }
    let (power, eighth) = (index / EIGHTHS + 2, index % EIGHTHS);
    let above = u128::from((EIGHTHS + eighth + 1) as u64) << (power - 3);
    u64::try_from(above - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_its_bucket_and_at_most_an_eighth_below_its_ceiling() {
        for nanos in (0..5_000).chain([1 << 20, (1 << 40) + 7, u64::MAX]) {
            let top = ceiling(bucket(nanos));
            assert!(top >= nanos && top - nanos <= nanos / 8, "{nanos} {top}");
        }
    }

    #[test]
    fn quantiles_of_a_known_series() {
        let mut lateness = Lateness::default();
        (1..=1_000).for_each(|n| lateness.record(Span::from_micros(n)));
        let median = lateness.quantile(500).as_micros();
        assert!((500..=562).contains(&median), "{median}");
        assert_eq!(lateness.summary().max_s, 0.001);
    }
}
