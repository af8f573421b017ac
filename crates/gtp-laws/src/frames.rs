//! Frames: what an application sends as one, and how evenly its frames come.
//!
//! LambdaStream's measure is the jitter between frames, not between packets (LambdaStream, 5 and
//! Fig. 9). A frame is a number of pieces, blocks or bytes; the time that counts is when its last
//! piece can be read. Nothing here knows how they came: it is told how far the application can
//! read.

use alloc::vec::Vec;

use gtp_alloc::{Span, Time};

/// Notes when frames are complete.
#[derive(Clone, Debug)]
pub struct Frames {
    pieces: u64,
    most: usize,
    times: Vec<Time>,
}

impl Frames {
    /// Frames of so many pieces, at least one.
    pub fn of(pieces: u64) -> Frames {
        Frames { pieces: pieces.max(1), most: usize::MAX, times: Vec::new() }
    }

    /// The same, of which no more than the first `most` are noted: eight bytes each.
    pub fn at_most(self, most: usize) -> Frames {
        Frames { most, ..self }
    }

    /// The application can read all pieces below `readable`.
    pub fn note(&mut self, now: Time, readable: u64) {
        while self.times.len() < self.most
            && (self.times.len() as u64 + 1).saturating_mul(self.pieces) <= readable
        {
            self.times.push(now);
        }
    }

    /// When each frame was complete, in order.
    pub fn times(&self) -> &[Time] {
        &self.times
    }

    /// Fig. 9: the intervals between frames from frame `first` on.
    pub fn intervals(&self, first: usize) -> Vec<Span> {
        let times = self.times.get(first..).unwrap_or(&[]);
        times.windows(2).map(|pair| pair[1].since(pair[0])).collect()
    }
}

/// The standard deviation of intervals, in seconds: the frame jitter.
pub fn jitter(intervals: &[Span]) -> f64 {
    if intervals.is_empty() {
        return 0.0;
    }
    let n = intervals.len() as f64;
    let mean = intervals.iter().map(|i| i.as_secs_f64()).sum::<f64>() / n;
    let square = |i: &Span| (i.as_secs_f64() - mean) * (i.as_secs_f64() - mean);
    libm::sqrt(intervals.iter().map(square).sum::<f64>() / n)
}

/// How evenly frames came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evenness {
    /// Intervals between frames.
    pub intervals: usize,
    /// Their median.
    pub interval: Span,
    /// How far an interval is from the median: the median of that,
    pub deviation: Span,
    /// the 99th percentile,
    pub deviation_p99: Span,
    /// and the most.
    pub deviation_most: Span,
}

impl Evenness {
    /// That of these intervals; `None` of none.
    pub fn of(intervals: &[Span]) -> Option<Evenness> {
        let interval = percentile(intervals, 50)?;
        let apart = |i: &Span| i.saturating_sub(interval).max(interval.saturating_sub(*i));
        let deviations: Vec<Span> = intervals.iter().map(apart).collect();
        Some(Evenness {
            intervals: intervals.len(),
            interval,
            deviation: percentile(&deviations, 50)?,
            deviation_p99: percentile(&deviations, 99)?,
            deviation_most: percentile(&deviations, 100)?,
        })
    }
}

/// The least value that so many percent do not exceed.
fn percentile(spans: &[Span], percent: usize) -> Option<Span> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_there_with_its_last_block() {
        let mut frames = Frames::of(10);
        for (at, readable) in [(1, 9), (2, 10), (5, 35)] {
            frames.note(Time::from_nanos(at), readable);
        }
        assert_eq!(frames.times(), [2, 5, 5].map(Time::from_nanos));
        assert_eq!(frames.intervals(0), [3, 0].map(Span::from_nanos));
        assert!(frames.intervals(9).is_empty());
    }

    #[test]
    fn jitter_is_the_deviation_of_intervals() {
        let intervals = [10, 30].map(Span::from_millis);
        assert!((jitter(&intervals) - 0.01).abs() < 1e-12);
        assert_eq!(jitter(&[]), 0.0);
    }

    #[test]
    fn evenness_is_counted_from_the_median_interval() {
        // 98 intervals of 10 ms, one of 12, one of 50.
        let mut intervals = alloc::vec![Span::from_millis(10); 98];
        intervals.extend([12, 50].map(Span::from_millis));
        let even = Evenness::of(&intervals).expect("intervals");
        assert_eq!((even.intervals, even.interval), (100, Span::from_millis(10)));
        assert_eq!((even.deviation, even.deviation_p99), (Span::ZERO, Span::from_millis(2)));
        assert_eq!(even.deviation_most, Span::from_millis(40));
        assert_eq!(Evenness::of(&[]), None);
    }

    #[test]
    fn no_more_frames_are_noted_than_asked_for() {
        let mut frames = Frames::of(10).at_most(3);
        frames.note(Time::from_nanos(1), 1_000_000_000);
        assert_eq!(frames.times().len(), 3);
    }
}
