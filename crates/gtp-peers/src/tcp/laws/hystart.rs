//! HyStart++: RFC 9406. Slow start ends before the queue is full.
//!
//! | rule | section |
//! |---|---|
//! | a round ends when all that was out at its start is acknowledged | 4.2 |
//! | the least of 8 times is an eighth above the last round's: a quarter of the growth | 4.2 |
//! | that eighth is 4 ms at least and 16 ms at most | 4.2, 4.3 |
//! | if it falls below what it was then, slow start goes on | 4.2 |
//! | after 5 such rounds slow start ends | 4.2, 4.3 |
//! | an acknowledgment counts for 8 segments at most | 4.2, 4.3 |
//! | only the first slow start is watched | 4.3 |
//!
//! The one idea: round-trip times that rise in slow start may be a burst's or jitter's doing, so
//! that a rise slows it down first and ends it only if it lasts.

use gtp_alloc::Span;

use crate::tcp::law::{AckView, Window};

/// `MIN_RTT_THRESH` and `MAX_RTT_THRESH`: bounds of the rise that counts.
const RISE_LEAST: Span = Span::from_millis(4);
const RISE_MOST: Span = Span::from_millis(16);
/// `MIN_RTT_DIVISOR`: the rise that counts, as one in so many of the last round's least.
const RISE_PART: u64 = 8;
/// `N_RTT_SAMPLE`: round-trip times that a round must have.
const SAMPLES: u32 = 8;
/// `CSS_GROWTH_DIVISOR`: conservative slow start grows so many times more slowly.
const SLOWER: f64 = 4.0;
/// `CSS_ROUNDS`: rounds of conservative slow start.
const ROUNDS: u32 = 5;
/// `L`: segments for which an acknowledgment counts at most, without pacing.
const CREDIT_MOST: f64 = 8.0;

/// What is known of the rounds of a slow start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyStart {
    /// `windowEnd`: the round ends when everything before this segment is acknowledged.
    round_end: u64,
    /// `lastRoundMinRTT`; none before the second round.
    last: Option<Span>,
    /// `currentRoundMinRTT`.
    current: Option<Span>,
    /// `rttSampleCount`.
    samples: u32,
    /// The conservative stage, if it is under way.
    conservative: Option<Conservative>,
}

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// `cssBaselineMinRtt`: the round-trip time at which it began.
    baseline: Span,
    /// Rounds of it that have ended.
    rounds: u32,
}

impl HyStart {
    /// Takes in an acknowledgment in slow start, which it may end, and returns what counts of it.
    pub(super) fn credit(&mut self, ack: &AckView, window: &mut Window) -> f64 {
        if window.threshold < f64::INFINITY {
            return ack.credit;
        }
        if let Some(rtt) = ack.rtt {
            self.current = Some(self.current.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        self.judge();
        let credit = ack.credit.min(CREDIT_MOST);
        let credit = if self.conservative.is_some() { credit / SLOWER } else { credit };
        if ack.first >= self.round_end {
            self.end_round(ack.next, window);
        }
        credit
    }

    fn judge(&mut self) {
        let Some(current) = self.current.filter(|_| self.samples >= SAMPLES) else { return };
        match self.conservative {
            Some(stage) if current < stage.baseline => self.conservative = None,
            Some(_) => {}
            None => {
                let Some(last) = self.last else { return };
                let rise = (last / RISE_PART).clamp(RISE_LEAST, RISE_MOST);
                if current >= last + rise {
                    self.conservative = Some(Conservative { baseline: current, rounds: 0 });
                }
            }
        }
    }

    fn end_round(&mut self, next: u64, window: &mut Window) {
        (self.round_end, self.last, self.current, self.samples) = (next, self.current, None, 0);
        let Some(stage) = &mut self.conservative else { return };
        stage.rounds += 1;
        if stage.rounds >= ROUNDS {
            window.threshold = window.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::law::Phase;
    use crate::tcp::laws::whole::tests::ack;

    /// A round of ten acknowledgments of two segments at this round-trip time; what they count.
    fn round(hystart: &mut HyStart, window: &mut Window, rtt: u64) -> f64 {
        let end = hystart.round_end;
        let view = |first| AckView { first, next: end + 100, ..ack(0, Phase::Open, rtt) };
        let mut sum: f64 = (0..9).map(|_| hystart.credit(&view(0), window)).sum();
        sum += hystart.credit(&view(end), window);
        sum
    }

    fn begun() -> (HyStart, Window) {
        let (mut hystart, mut window) =
            (HyStart::default(), Window::new(10.0, f64::INFINITY, f64::INFINITY));
        // The first acknowledgment of all ends the round in which nothing was out.
        let first = AckView { rtt: None, ..ack(0, Phase::Open, 100) };
        hystart.credit(&first, &mut window);
        (hystart, window)
    }

    #[test]
    fn a_rise_of_an_eighth_slows_slow_start_down_and_five_rounds_end_it_rfc_9406_4_2() {
        let (mut hystart, mut window) = begun();
        assert_eq!(round(&mut hystart, &mut window, 100), 20.0);
        assert_eq!(round(&mut hystart, &mut window, 112), 20.0);
        // 112 and an eighth are 126; seven acknowledgments tell too little.
        assert_eq!(round(&mut hystart, &mut window, 126), 14.0 + 3.0 * 0.5);
        for _ in 0..3 {
            assert_eq!(round(&mut hystart, &mut window, 130), 5.0);
            assert_eq!(window.threshold, f64::INFINITY);
        }
        round(&mut hystart, &mut window, 130);
        assert_eq!(window.threshold, 10.0);
        assert_eq!(round(&mut hystart, &mut window, 200), 20.0, "it is not its affair any more");
    }

    #[test]
    fn slow_start_goes_on_when_the_rise_was_a_moments_rfc_9406_4_2() {
        let (mut hystart, mut window) = begun();
        round(&mut hystart, &mut window, 100);
        round(&mut hystart, &mut window, 130);
        assert_eq!(round(&mut hystart, &mut window, 110), 7.0 * 0.5 + 3.0 * 2.0);
        assert_eq!(round(&mut hystart, &mut window, 110), 20.0);
    }

    #[test]
    fn the_rise_that_counts_has_bounds_rfc_9406_4_3() {
        for (base, calm, risen) in [(10, 13, 14), (400, 415, 416)] {
            for (rtt, slower) in [(calm, false), (risen, true)] {
                let (mut hystart, mut window) = begun();
                round(&mut hystart, &mut window, base);
                let counted = round(&mut hystart, &mut window, rtt);
                assert_eq!(counted < 20.0, slower, "{base} ms, {rtt} ms");
            }
        }
    }

    #[test]
    fn an_acknowledgment_counts_for_eight_segments_at_most_rfc_9406_4_3() {
        let (mut hystart, mut window) = begun();
        let many = AckView { credit: 40.0, ..ack(0, Phase::Open, 100) };
        assert_eq!(hystart.credit(&many, &mut window), 8.0);
    }
}
