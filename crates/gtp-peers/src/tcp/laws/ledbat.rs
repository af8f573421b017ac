//! LEDBAT++: draft-irtf-iccrg-ledbat-plus-plus, sections as of version 01.
//!
//! Background traffic: it keeps 60 ms in the queue where it is alone, and gives way to whoever
//! keeps more. The queue's delay is a round trip less the least one of ten minutes.
//!
//! | rule | draft | where |
//! |---|---|---|
//! | slow start by GAIN for each segment; the first ends at 3/4 of the target | 4.1 | `grow` |
//! | GAIN = 1 / min(16, ceil(2 TARGET / base)) | 4.2 | [`gain`] |
//! | a round trip adds GAIN below the target | 4.3 | [`step`] |
//! | above it takes W (delay / TARGET - 1) off, half of W at most | 4.3 | [`step`] |
//! | two round trips after slow start two segments for two round trips | 4.4 | `observe` |
//! | the same again after nine times what the last such slowdown took | 4.4 | `settle` |
//! | TARGET is 60 ms, of round trips | 4.5 | `TARGET` |
//! | a loss halves the window | RFC 6817, 2.4.2 | `shrink` |
//!
//! What the draft leaves open: slow start after a slowdown has GAIN too, as in Apple's kernel; the
//! delay is that of the least of the last four round trips.

use gtp_alloc::{Span, Time};

use super::extreme::{Extreme, Sense};
use crate::tcp::law::{AckView, Law, LossView, Window};

/// A queue's delay kept at a target, and slowdowns in which it empties.
#[derive(Clone, Debug)]
pub struct Ledbat {
    base: Extreme,
    last: [Option<Span>; FILTER],
    seen: usize,
    stage: Stage,
    /// When the slowdown under way, or the ramp after it, began.
    slowed_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Slow start for the first time.
    First,
    /// At the target; the next slowdown comes then.
    Steady { until: Time },
    /// A slowdown: two segments.
    Frozen { until: Time },
    /// Back to the window of before.
    Ramp,
}

impl Default for Ledbat {
    fn default() -> Ledbat {
        Ledbat {
            base: Extreme::new(Sense::Least),
            last: [None; FILTER],
            seen: 0,
            stage: Stage::First,
            slowed_at: Time::ZERO,
        }
    }
}

/// 4.2: what a round trip below the target adds to the window, in segments.
pub fn gain(base: Span) -> f64 {
    let rounds = libm::ceil(2.0 * TARGET.as_secs_f64() / base.as_secs_f64().max(1e-9));
    1.0 / rounds.clamp(1.0, 16.0)
}

/// 4.3: by how much a round trip of this delay changes a window.
pub fn step(gain: f64, window: f64, delay: Span) -> f64 {
    let over = delay.as_secs_f64() / TARGET.as_secs_f64() - 1.0;
    if over <= 0.0 { gain } else { (gain - window * over).max(-window / 2.0) }
}

impl Ledbat {
    fn measure(&mut self, now: Time, rtt: Span) {
        self.base.update(now, rtt, BASE_KEPT);
        self.last[self.seen % FILTER] = Some(rtt);
        self.seen += 1;
    }

    fn delay(&self) -> Span {
        let least = self.last.iter().flatten().min().copied();
        let base = self.base.get().unwrap_or_default();
        least.map_or(Span::ZERO, |least| least.saturating_sub(base))
    }

    /// Slow start is over: 4.4 says when the next slowdown comes.
    fn settle(&mut self, now: Time, smoothed: Span) {
        let pause = match self.stage {
            Stage::First => smoothed * 2,
            Stage::Ramp | Stage::Frozen { .. } => now.since(self.slowed_at) * 9,
            Stage::Steady { .. } => return,
        };
        self.stage = Stage::Steady { until: now + pause };
    }

    fn avoid(&self, ack: &AckView, window: &mut Window) {
        let gain = gain(self.base.get().unwrap_or_default());
        let change = step(gain, window.size, self.delay());
        window.size = (window.size + change * ack.credit / window.size).max(LEAST_WINDOW);
        window.threshold = window.threshold.min(window.size);
    }
}

impl Law for Ledbat {
    fn name(&self) -> &'static str {
        "ledbat++"
    }

    fn observe(&mut self, ack: &AckView, window: &mut Window) {
        if let Some(rtt) = ack.rtt {
            self.measure(ack.now, rtt);
        }
        match self.stage {
            Stage::Steady { until } if ack.now >= until => {
                window.threshold = window.size.max(window.threshold);
                window.size = LEAST_WINDOW;
                self.slowed_at = ack.now;
                self.stage = Stage::Frozen { until: ack.now + ack.smoothed_rtt * 2 };
            }
            Stage::Frozen { until } if ack.now >= until => self.stage = Stage::Ramp,
            Stage::First | Stage::Steady { .. } | Stage::Frozen { .. } | Stage::Ramp => {}
        }
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        match self.stage {
            Stage::Frozen { .. } => return,
            Stage::First if self.delay() > TARGET * 3 / 4 => window.threshold = window.size,
            Stage::First | Stage::Ramp | Stage::Steady { .. } => {}
        }
        if window.in_slow_start() {
            let gain = gain(self.base.get().unwrap_or_default());
            window.slow_start(gain * ack.credit);
        } else {
            self.settle(ack.now, ack.smoothed_rtt);
            self.avoid(ack, window);
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        loss.window / 2.0
    }

    fn handle_loss(&mut self, loss: &LossView, window: &mut Window) {
        if let Stage::Frozen { .. } = self.stage {
            // What was lost was sent before: it halves the window to come back to.
            window.threshold = (window.threshold / 2.0).max(LEAST_WINDOW);
            return;
        }
        window.threshold = self.shrink(loss).max(LEAST_WINDOW);
        window.size = window.threshold;
    }

    fn handle_recovered(&mut self, _now: Time, window: &mut Window) {
        match self.stage {
            Stage::Frozen { .. } => {}
            Stage::First | Stage::Steady { .. } | Stage::Ramp => window.size = window.threshold,
        }
    }
}

/// 4.5.
const TARGET: Span = Span::from_millis(60);
/// RFC 6817, 4.2: the base is the least of ten minutes.
const BASE_KEPT: Span = Span::from_secs(600);
/// Round trips of which the least is the present one.
const FILTER: usize = 4;
/// 4.4, and RFC 6817's MIN_CWND.
const LEAST_WINDOW: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::super::whole::tests::{ack, loss};
    use super::*;
    use crate::tcp::law::Phase;

    fn say(law: &mut Ledbat, window: &mut Window, ms: u64, rtt: u64) {
        let ack = ack(ms, Phase::Open, rtt);
        law.observe(&ack, window);
        law.grow(&ack, window);
    }

    fn near(found: f64, asked: f64) {
        assert!((found - asked).abs() < 1e-9, "{found} for {asked}");
    }

    /// 4.2.
    #[test]
    fn the_gain_is_a_sixteenth_on_short_paths_and_one_on_long_ones() {
        let gains = [1, 7, 8, 50, 60, 100, 120, 300].map(|ms| 1.0 / gain(Span::from_millis(ms)));
        assert_eq!(gains, [16.0, 16.0, 15.0, 3.0, 2.0, 2.0, 1.0, 1.0]);
    }

    /// 4.3.
    #[test]
    fn above_the_target_the_window_falls_by_its_share_of_the_excess_and_by_half_at_most() {
        let change = |ms| step(0.5, 100.0, Span::from_millis(ms));
        near(change(0), 0.5);
        near(change(60), 0.5);
        near(change(66), 0.5 - 10.0);
        near(change(120), -50.0);
        near(change(600), -50.0);
    }

    /// 4.1.
    #[test]
    fn slow_start_grows_by_the_gain_and_ends_above_three_quarters_of_the_target() {
        let (mut law, mut window) = (Ledbat::default(), Window::new(10.0, f64::INFINITY, 1e9));
        say(&mut law, &mut window, 100, 100);
        near(window.size, 11.0);
        // The least of four counts: three long round trips are not yet a queue.
        (1..=3).for_each(|n| say(&mut law, &mut window, 100 + n, 146));
        near(window.size, 14.0);
        say(&mut law, &mut window, 104, 146);
        assert!(!window.in_slow_start() && window.size < 14.2, "{window:?}");
    }

    /// A law that has left its first slow start at 200 ms with a window of 40.
    fn settled() -> (Ledbat, Window) {
        let (mut law, mut window) = (Ledbat::default(), Window::new(40.0, f64::INFINITY, 1e9));
        law.measure(Time::ZERO, Span::from_millis(100));
        (0..3).for_each(|_| law.measure(Time::ZERO, Span::from_millis(150)));
        say(&mut law, &mut window, 200, 150);
        assert_eq!(law.stage, Stage::Steady { until: Time::from_nanos(500_000_000) });
        (law, window)
    }

    /// 4.4.
    #[test]
    fn the_first_slowdown_comes_two_round_trips_after_slow_start_and_lasts_two() {
        let (mut law, mut window) = settled();
        say(&mut law, &mut window, 499, 150);
        assert!(window.size > 39.0);
        let before = window.size;
        say(&mut law, &mut window, 500, 100);
        near(window.size, 2.0);
        near(window.threshold, before);
        say(&mut law, &mut window, 699, 100);
        near(window.size, 2.0);
        say(&mut law, &mut window, 700, 100);
        near(window.size, 3.0);
    }

    /// 4.4.
    #[test]
    fn the_next_slowdown_comes_after_nine_times_what_the_last_one_took() {
        let (mut law, mut window) = settled();
        say(&mut law, &mut window, 500, 100);
        (0..60).for_each(|n| say(&mut law, &mut window, 700 + 5 * n, 100));
        let Stage::Steady { until } = law.stage else { panic!("{:?}", law.stage) };
        // The window was back after 39 acknowledgments that add a segment each, 5 ms apart.
        let back = 700 + 5 * 39;
        assert_eq!(until.as_nanos() / 1_000_000, back + 9 * (back - 500));
        assert!(window.size > 40.0);
    }

    /// RFC 6817, 2.4.2, and 4.4.
    #[test]
    fn a_loss_halves_the_window_and_in_a_slowdown_the_one_to_come_back_to() {
        let (mut law, mut window) = settled();
        law.handle_loss(&loss(300, 40.0), &mut window);
        law.handle_recovered(Time::ZERO, &mut window);
        near(window.size, 20.0);
        say(&mut law, &mut window, 500, 100);
        law.handle_loss(&loss(510, 2.0), &mut window);
        law.handle_recovered(Time::ZERO, &mut window);
        near(window.size, 2.0);
        assert!((9.0..11.0).contains(&window.threshold), "{window:?}");
    }
}
