//! When each frame of a probe is due.
//!
//! A session begins slowly and finds out what it may send. So a probe first sends frames that count
//! for nothing, until none has been held up for a while.

use gtp_alloc::{Span, Time};

use super::said::Sent;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A frame is to be sent.
    Frame {
        /// Whether it counts.
        counts: bool,
    },
    /// Nothing before this time.
    At(Time),
    /// Nothing any more.
    Over,
}

/// The frames of one end.
#[derive(Debug)]
pub struct Schedule {
    interval: Span,
    span: Span,
    phase: Phase,
    /// When the next frame is due.
    next: Time,
    frames: u64,
    held: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    WarmUp { begun: Time, calm_since: Time },
    Counting { begun: Time },
}

impl Schedule {
    /// A frame each `interval`, counted for `span` once the path is warm.
    pub fn new(now: Time, interval: Span, span: Span) -> Schedule {
        let phase = Phase::WarmUp { begun: now, calm_since: now };
        Schedule { interval, span, phase, next: now, frames: 0, held: 0 }
    }

    /// What is due. A frame stays due until [`Schedule::sent`] or [`Schedule::held_up`].
    pub fn due(&mut self, now: Time) -> Due {
        if let Phase::WarmUp { begun, calm_since } = self.phase
            && (now.since(calm_since) >= CALM || now.since(begun) >= WARM_UP_MOST)
        {
            self.phase = Phase::Counting { begun: now };
            self.next = now;
        }
        self.pass_over_late(now);
        match self.phase {
            _ if self.is_over() => Due::Over,
            _ if now < self.next => Due::At(self.next),
            Phase::WarmUp { .. } => Due::Frame { counts: false },
            Phase::Counting { .. } => Due::Frame { counts: true },
        }
    }

    /// The frame that was due has left.
    pub fn sent(&mut self) {
        self.next += self.interval;
        if let Phase::Counting { .. } = self.phase {
            self.frames += 1;
        }
    }

    /// The frame that was due could not leave, and will not.
    pub fn held_up(&mut self, now: Time) {
        self.hold(1, now);
    }

    /// Frames that are too late to be sent were held up.
    fn pass_over_late(&mut self, now: Time) {
        let late = now.since(self.next);
        if late <= LATE_MOST {
            return;
        }
        let late = late.saturating_sub(LATE_MOST).as_nanos() / self.interval.as_nanos() + 1;
        let left = match self.phase {
            Phase::WarmUp { .. } => late,
            Phase::Counting { begun } => {
                (begun + self.span).since(self.next).as_nanos().div_ceil(self.interval.as_nanos())
            }
        };
        self.hold(late.min(left), now);
    }

    fn hold(&mut self, frames: u64, now: Time) {
        self.next += self.interval * frames;
        match &mut self.phase {
            Phase::WarmUp { calm_since, .. } if frames > 0 => *calm_since = now,
            Phase::WarmUp { .. } => {}
            Phase::Counting { .. } => self.held += frames,
        }
    }

    /// What has been sent so far.
    pub fn standing(&self) -> Sent {
        let span_ns = match self.phase {
            Phase::WarmUp { .. } => 0,
            Phase::Counting { begun } => self.next.since(begun).as_nanos(),
        };
        Sent { frames: self.frames, held: self.held, span_ns, is_done: false }
    }

    fn is_over(&self) -> bool {
        match self.phase {
            Phase::WarmUp { .. } => false,
            Phase::Counting { begun } => self.next >= begun + self.span,
        }
    }
}

/// How long no frame may be held up before frames count.
const CALM: Span = Span::from_millis(500);

/// How long the path is warmed up at most: what is held up then is told.
pub const WARM_UP_MOST: Span = Span::from_secs(10);

/// A frame that is later than this is not sent in a burst with the next ones: it was held up.
const LATE_MOST: Span = Span::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Span = Span::from_millis(1);

    /// Runs to the end, at most `step` between two looks; `takes` says whether a frame leaves.
    fn run(interval: Span, step: Span, mut takes: impl FnMut(Time) -> bool) -> (Sent, Time) {
        let mut now = Time::from_nanos(1_000_000_000);
        let mut schedule = Schedule::new(now, interval, Span::from_secs(2));
        loop {
            match schedule.due(now) {
                Due::Over => return (schedule.standing(), now),
                Due::At(_) => now += step,
                Due::Frame { .. } if takes(now) => schedule.sent(),
                Due::Frame { .. } => schedule.held_up(now),
            }
        }
    }

    #[test]
    fn as_many_frames_as_fit_into_the_span_are_sent_however_rarely_one_looks() {
        for step in [Span::from_micros(50), MS, Span::from_millis(15)] {
            let (sent, _) = run(MS, step, |_| true);
            assert_eq!((sent.frames, sent.held, sent.span_ns), (2_000, 0, 2_000_000_000));
        }
    }

    #[test]
    fn nothing_counts_before_half_a_second_without_a_frame_held_up() {
        let warm = Time::from_nanos(4_000_000_000);
        let (sent, ended) = run(MS, MS, |now| now >= warm);
        assert_eq!((sent.frames, sent.held), (2_000, 0));
        let took = ended.since(warm);
        assert!((Span::from_millis(2_498)..Span::from_millis(2_510)).contains(&took), "{took:?}");
    }

    #[test]
    fn a_rate_that_is_never_reached_is_counted_as_held_up_after_ten_seconds() {
        let mut turn = 0;
        let (sent, _) = run(MS, MS, |_| {
            turn += 1;
            turn % 4 == 0
        });
        assert_eq!((sent.frames, sent.held), (500, 1_500));
    }

    #[test]
    fn frames_that_this_host_was_too_late_for_are_held_up_and_not_sent_in_a_burst() {
        let (sent, _) = run(MS, Span::from_millis(100), |_| true);
        assert!(sent.held > 1_500, "{sent:?}");
        assert_eq!(sent.frames + sent.held, 2_000);
    }
}
