//! Copa: V. Arun and H. Balakrishnan, NSDI 2018.
//!
//! The rate that it aims at is the inverse of the queue's delay. Where others fill the queue it
//! finds that it is never nearly empty, and weighs delay less and less until it loses.
//!
//! | rule | paper | where |
//! |---|---|---|
//! | delay: the least round trip of half a smoothed one, less that of 10 s | 2.1 | `measure` |
//! | target rate 1 / (delta delay), rate: window / standing round trip | 2.1 | `is_below_target` |
//! | a segment moves the window by v / (delta window) to the target | 2.1 | `observe` |
//! | v doubles from the third round trip in a direction, a turn resets it | 2.1 | `handle_round` |
//! | slow start doubles until the rate exceeds the target | 2.1 | `observe` |
//! | paced at twice the rate | 2.1 | `pacing_rate` |
//! | nearly empty: a delay below a tenth of the range of four round trips | 2.2 | `choose_mode` |
//! | not so for five round trips: competitive mode | 2.2 | `choose_mode` |
//! | there 1 / delta grows by 1 a round trip, a loss halves it | 2.2 | `handle_round` |
//!
//! Departures: a round trip moves the window by itself at most, so that v cannot run away; after a
//! timeout slow start begins again.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::extreme::{Extreme, Sense};
use crate::Note;
use crate::tcp::law::{AckView, Fullness, Law, Leaving, LossView, Window};

/// A rate that is the inverse of the queue's delay.
#[derive(Clone, Debug)]
pub struct Copa {
    least: Extreme,
    standing: Extreme,
    most: Extreme,
    wire: Bytes,
    pacing: Option<Rate>,
    start: Start,
    velocity: f64,
    direction: Option<Direction>,
    /// Round trips in this direction.
    row: u32,
    /// The window when the round trip began.
    began: f64,
    /// 1 / delta.
    weight: f64,
    mode: Mode,
    /// When the queue was nearly empty.
    emptied_at: Time,
    /// A loss was found in this round trip.
    loss: Loss,
}

/// Whether others fill the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Default,
    Competitive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    UnderWay,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Found,
    None,
}

impl Default for Copa {
    fn default() -> Copa {
        Copa {
            least: Extreme::new(Sense::Least),
            standing: Extreme::new(Sense::Least),
            most: Extreme::new(Sense::Greatest),
            wire: Bytes(1_500),
            pacing: None,
            start: Start::UnderWay,
            velocity: 1.0,
            direction: None,
            row: 0,
            began: 0.0,
            weight: DEFAULT_WEIGHT,
            mode: Mode::Default,
            emptied_at: Time::ZERO,
            loss: Loss::None,
        }
    }
}

impl Copa {
    fn measure(&mut self, now: Time, rtt: Span, smoothed: Span) {
        self.least.update(now, rtt, LEAST_KEPT);
        self.standing.update(now, rtt, smoothed / 2);
        self.most.update(now, rtt, smoothed * RANGE_KEPT);
    }

    fn get(extreme: &Extreme) -> Span {
        extreme.get().unwrap_or_default()
    }

    /// The queue's delay.
    fn delay(&self) -> Span {
        Copa::get(&self.standing).saturating_sub(Copa::get(&self.least))
    }

    /// 2.1: whether the rate is at most the target, both in segments a second.
    fn is_below_target(&self, window: f64) -> bool {
        let standing = Copa::get(&self.standing).as_secs_f64();
        window * self.delay().as_secs_f64() <= self.weight * standing
    }

    /// 2.2.
    fn choose_mode(&mut self, now: Time, smoothed: Span) {
        let range = Copa::get(&self.most).saturating_sub(Copa::get(&self.least));
        if self.emptied_at == Time::ZERO || self.delay() * 10 < range {
            self.emptied_at = now;
        }
        let mode = match now.since(self.emptied_at) > smoothed * EMPTY_WITHIN {
            true => Mode::Competitive,
            false => Mode::Default,
        };
        if mode == Mode::Default {
            self.weight = DEFAULT_WEIGHT;
        }
        self.mode = mode;
    }

    fn pace(&mut self, window: f64) {
        let standing = Copa::get(&self.standing).as_secs_f64();
        if standing > 0.0 {
            let bits = self.wire.0 as f64 * 8.0;
            self.pacing = Some(Rate::from_f64((2.0 * window / standing * bits).max(1.0)));
        }
    }
}

impl Law for Copa {
    fn name(&self) -> &'static str {
        "copa"
    }

    fn grow(&mut self, _ack: &AckView, _window: &mut Window) {}

    fn observe(&mut self, ack: &AckView, window: &mut Window) {
        let Some(rtt) = ack.rtt else { return };
        self.measure(ack.now, rtt, ack.smoothed_rtt);
        self.choose_mode(ack.now, ack.smoothed_rtt);
        let arrived = ack.arrived as f64;
        let below = self.is_below_target(window.size);
        if !below {
            self.start = Start::Over;
        }
        let step = match self.start {
            Start::UnderWay => arrived,
            Start::Over => (self.velocity * self.weight / window.size).min(1.0) * arrived,
        };
        if !below {
            window.size = (window.size - step).max(LEAST_WINDOW);
        } else if ack.fullness == Fullness::Full {
            window.size += step;
        }
        self.pace(window.size);
    }

    fn handle_round(&mut self, _ack: &AckView, window: &mut Window) {
        let direction = if window.size > self.began { Direction::Up } else { Direction::Down };
        self.began = window.size;
        if self.direction == Some(direction) {
            self.row += 1;
        } else {
            (self.direction, self.row, self.velocity) = (Some(direction), 1, 1.0);
        }
        if self.row >= ROW {
            self.velocity = (2.0 * self.velocity).min(VELOCITY_MOST);
        }
        if self.mode == Mode::Competitive && self.loss == Loss::None {
            self.weight += 1.0;
        }
        self.loss = Loss::None;
    }

    /// Losses do not lower a threshold; there is no slow start to come back to.
    fn shrink(&mut self, loss: &LossView) -> f64 {
        loss.window
    }

    fn handle_loss(&mut self, _loss: &LossView, _window: &mut Window) {
        self.loss = Loss::Found;
        if self.mode == Mode::Competitive {
            self.weight = (self.weight / 2.0).max(DEFAULT_WEIGHT);
        }
    }

    fn handle_recovered(&mut self, _now: Time, _window: &mut Window) {}

    fn handle_timeout(&mut self, _loss: &LossView, window: &mut Window) {
        window.size = 1.0;
        self.start = Start::UnderWay;
        (self.velocity, self.row, self.direction) = (1.0, 0, None);
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.pacing
    }

    fn stamp(&mut self, leaving: &Leaving) -> Note {
        self.wire = self.wire.max(leaving.size);
        Note::None
    }
}

/// 2.1: how long the least round trip counts.
const LEAST_KEPT: Span = Span::from_secs(10);
/// 2.2: round trips of which the greatest bounds the range.
const RANGE_KEPT: u64 = 4;
/// 2.2: round trips within which a queue must be nearly empty.
const EMPTY_WITHIN: u64 = 5;
/// 2.2: 1 / delta in default mode.
const DEFAULT_WEIGHT: f64 = 2.0;
/// 2.1: round trips in one direction from which on the velocity doubles.
const ROW: u32 = 3;
/// A velocity beyond which doubling says nothing: a round trip doubles the window by far.
const VELOCITY_MOST: f64 = 1e9;
/// Segments that always go out, so that delays are measured.
const LEAST_WINDOW: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::super::whole::tests::{ack, loss};
    use super::*;
    use crate::tcp::law::Phase;

    /// A law on a path of 100 ms that has left slow start, with a window.
    fn settled(size: f64) -> (Copa, Window) {
        let mut law = Copa { start: Start::Over, ..Copa::default() };
        law.least.update(Time::ZERO, Span::from_millis(100), LEAST_KEPT);
        (law, Window::new(size, f64::INFINITY, f64::INFINITY))
    }

    fn say(law: &mut Copa, window: &mut Window, ms: u64, rtt: u64) {
        law.observe(&ack(ms, Phase::Open, rtt), window);
    }

    fn near(found: f64, asked: f64) {
        assert!((found - asked).abs() < 1e-6, "{found} for {asked}");
    }

    /// 2.1.
    #[test]
    fn two_segments_wait_at_the_target_and_each_acknowledged_one_moves_towards_it() {
        // With 102 segments in 102 ms, two wait: 1 / (0.5 * 2 ms) is the rate.
        for (size, rtt, moved) in [(101.0, 102, 1.0), (103.0, 102, -1.0), (102.0, 103, -1.0)] {
            let (mut law, mut window) = settled(size);
            say(&mut law, &mut window, 1, rtt);
            near(window.size, size + moved * 2.0 * 2.0 / size);
        }
    }

    /// 2.1.
    #[test]
    fn the_velocity_doubles_from_the_third_round_trip_in_one_direction_and_a_turn_ends_that() {
        let (mut law, mut window) = settled(10.0);
        let mut round = |to: f64| {
            window.size = to;
            law.handle_round(&ack(1, Phase::Open, 100), &mut window);
            law.velocity
        };
        let found = [11.0, 12.0, 13.0, 14.0, 15.0, 14.0, 13.0, 12.0].map(&mut round);
        assert_eq!(found, [1.0, 1.0, 2.0, 4.0, 8.0, 1.0, 1.0, 2.0]);
    }

    /// 2.1.
    #[test]
    fn slow_start_doubles_until_the_rate_exceeds_the_target() {
        let (mut law, mut window) = settled(10.0);
        law.start = Start::UnderWay;
        say(&mut law, &mut window, 1, 100);
        near(window.size, 12.0);
        say(&mut law, &mut window, 200, 160);
        assert_eq!(law.start, Start::Over);
        assert!(window.size < 12.0);
    }

    /// 2.1.
    #[test]
    fn it_is_paced_at_twice_its_rate() {
        let (mut law, mut window) = settled(100.0);
        say(&mut law, &mut window, 1, 100);
        let paced = law.pacing_rate().map_or(0.0, Rate::as_f64);
        near(paced / 12_000.0, 2.0 * window.size / 0.1);
    }

    /// 2.1: the standing round trip is the least of half a smoothed one.
    #[test]
    fn a_single_long_round_trip_is_no_queue() {
        let (mut law, mut window) = settled(100.0);
        say(&mut law, &mut window, 1, 100);
        say(&mut law, &mut window, 30, 180);
        assert_eq!(law.delay(), Span::ZERO);
        say(&mut law, &mut window, 130, 180);
        assert_eq!(law.delay(), Span::from_millis(80));
    }

    /// 2.2.
    #[test]
    fn a_queue_never_nearly_empty_for_five_round_trips_makes_it_competitive() {
        let (mut law, mut window) = settled(50.0);
        (0..=75).for_each(|n| say(&mut law, &mut window, 1_000 + 10 * n, 150));
        assert_eq!(law.mode, Mode::Default);
        say(&mut law, &mut window, 1_760, 150);
        assert_eq!(law.mode, Mode::Competitive);
        let mut weight = |lost| {
            if lost {
                law.handle_loss(&loss(1_800, 50.0), &mut window);
            }
            law.handle_round(&ack(1_800, Phase::Open, 150), &mut window);
            law.weight
        };
        let found = [false, false, false, true, true, false].map(&mut weight);
        assert_eq!(found, [3.0, 4.0, 5.0, 2.5, 2.0, 3.0]);
        say(&mut law, &mut window, 2_000, 101);
        assert_eq!((law.mode, law.weight), (Mode::Default, 2.0));
    }

    /// 2.2: delta follows losses in competitive mode only.
    #[test]
    fn losses_do_not_move_it_in_default_mode() {
        let (mut law, mut window) = settled(50.0);
        law.handle_loss(&loss(1, 50.0), &mut window);
        law.handle_recovered(Time::ZERO, &mut window);
        assert_eq!((window.size, law.weight), (50.0, 2.0));
    }
}
