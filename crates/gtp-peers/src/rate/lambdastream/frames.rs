//! Frames: what an application sends as one, and how evenly its frames come.
//!
//! LambdaStream's measure is the jitter between frames, not between packets (L, 5 and Fig. 9). A
//! frame is a number of blocks; the time that counts is when its last block is there. It does not
//! know in which mode the receiver runs: it is told how far the application can read.

use alloc::vec::Vec;

use gtp_alloc::{Span, Time};

/// Notes when frames are complete.
#[derive(Clone, Debug)]
pub struct Frames {
    blocks: u64,
    times: Vec<Time>,
}

impl Frames {
    /// Frames of `blocks` blocks, at least one.
    pub fn of(blocks: u64) -> Frames {
        Frames { blocks: blocks.max(1), times: Vec::new() }
    }

    /// The application can read all blocks below `readable`.
    pub fn note(&mut self, now: Time, readable: u64) {
        while (self.times.len() as u64 + 1).saturating_mul(self.blocks) <= readable {
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
}
