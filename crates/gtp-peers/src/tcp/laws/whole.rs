//! Growth in whole segments, as kernels and other simulators compute it: acknowledged segments are
//! counted, and so many bring one segment more.
//!
//! Papers' laws grow by fractions. With small windows the difference shows, so that a law that
//! shall stand opposite such an implementation needs its counter too.

use crate::tcp::law::{AckView, Window};

/// What a counter has left when it has brought one segment more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing, as in Linux of 2007, which compares before it counts: the acknowledgment that
    /// brings the segment is not counted either. A loss empties it, too.
    Dropped,
    /// What was not needed, as in ns-3: what was counted while the law was slow brings a row of
    /// segments once it is fast. A loss leaves it as it is.
    Kept,
}

/// Acknowledged segments, counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    leftover: Leftover,
    counted: f64,
}

impl Counter {
    pub(super) fn new(leftover: Leftover) -> Counter {
        Counter { leftover, counted: 0.0 }
    }

    /// So many more are acknowledged, and one segment for `needed` of them is what the law wants.
    pub(super) fn grow(&mut self, window: &mut Window, credit: f64, needed: f64) {
        window.size = libm::floor(window.size);
        let before = self.counted;
        self.counted += credit;
        let (enough, left) = match self.leftover {
            Leftover::Dropped => (before >= needed, 0.0),
            Leftover::Kept => (self.counted >= needed, self.counted - needed),
        };
        if enough {
            window.size += 1.0;
            self.counted = left;
        }
    }

    /// A loss.
    pub(super) fn lose(&mut self) {
        match self.leftover {
            Leftover::Dropped => self.counted = 0.0,
            Leftover::Kept => {}
        }
    }
}

/// Slow start of a law with or without a counter, and the credit that it leaves.
///
/// Linux's adds one segment for each acknowledgment, whatever it acknowledges, and goes one beyond
/// the threshold, so that the first acknowledgment after a repair brings one, too. Linux 2.6.22
/// does not count bytes (RFC 3465) unless told to; ns-2's agent does, with L = 1, which is the
/// same.
pub(super) fn slow_start(
    counter: Option<&Counter>,
    ack: &AckView,
    window: &mut Window,
) -> Option<f64> {
    match counter.map(|counter| counter.leftover) {
        Some(Leftover::Dropped) if window.size > window.threshold => Some(ack.credit),
        Some(Leftover::Dropped) => {
            window.size += 1.0;
            None
        }
        Some(Leftover::Kept) | None => window.slow_start(ack.credit),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use gtp_alloc::{Span, Time};

    use super::*;
    use crate::tcp::law::{Fullness, Law, LossView, Phase};
    use crate::tcp::laws::{Bic, Cubic, HTcp};

    /// An acknowledgment of two segments, on a path of 100 ms.
    pub(in crate::tcp::laws) fn ack(ms: u64, phase: Phase, rtt: u64) -> AckView {
        AckView {
            now: Time::from_nanos(ms * 1_000_000),
            phase,
            credit: 2.0,
            acked: 2,
            arrived: 2,
            lost: 0,
            rtt: Some(Span::from_millis(rtt)),
            smoothed_rtt: Span::from_millis(rtt),
            least_rtt: Span::from_millis(100),
            pipe_before: 2,
            pipe: 0,
            first: 2,
            next: 4,
            fullness: Fullness::Full,
            delivered: 2,
            delivery: None,
        }
    }

    pub(in crate::tcp::laws) fn loss(ms: u64, window: f64) -> LossView {
        let now = Time::from_nanos(ms * 1_000_000);
        LossView { now, window, pipe: 0, next: 0, delivered: 0 }
    }

    #[test]
    fn what_was_counted_while_much_was_needed_is_dropped_or_brings_a_row() {
        for (leftover, want) in [(Leftover::Dropped, 11.0), (Leftover::Kept, 16.0)] {
            let (mut counter, mut window) = (Counter::new(leftover), Window::new(10.7, 1.0, 1e9));
            (0..50).for_each(|_| counter.grow(&mut window, 1.0, 1e3));
            assert_eq!(window.size, 10.0, "whole, and not grown");
            (0..6).for_each(|_| counter.grow(&mut window, 1.0, 5.0));
            assert_eq!(window.size, want, "{leftover:?}");
        }
    }

    #[test]
    fn linux_does_not_count_the_acknowledgment_that_brings_a_segment() {
        for (leftover, want) in [(Leftover::Dropped, 15.0), (Leftover::Kept, 16.0)] {
            let (mut counter, mut window) = (Counter::new(leftover), Window::new(10.0, 1.0, 1e9));
            (0..30).for_each(|_| counter.grow(&mut window, 2.0, 10.0));
            assert_eq!(window.size, want, "{leftover:?}");
        }
    }

    #[test]
    fn a_loss_empties_the_counter_of_linux_only() {
        for (leftover, want) in [(Leftover::Dropped, 10.0), (Leftover::Kept, 11.0)] {
            let (mut counter, mut window) = (Counter::new(leftover), Window::new(10.0, 1.0, 1e9));
            (0..4).for_each(|_| counter.grow(&mut window, 2.0, 10.0));
            counter.lose();
            (0..2).for_each(|_| counter.grow(&mut window, 2.0, 10.0));
            assert_eq!(window.size, want, "{leftover:?}");
        }
    }

    /// Acknowledgments until a window of 90 grows by one, after `before` and a loss.
    fn needed(mut law: impl Law, before: u64) -> u64 {
        let mut window = Window::new(90.0, 50.0, f64::INFINITY);
        law.shrink(&loss(0, 100.0));
        (0..before).for_each(|_| law.grow(&ack(0, Phase::Open, 100), &mut window));
        law.shrink(&loss(0, 100.0));
        let grows = |_: &u64| {
            law.grow(&ack(0, Phase::Open, 100), &mut window);
            window.size > 90.0
        };
        (1..1_000).find(grows).unwrap_or_default()
    }

    #[test]
    fn laws_of_linux_count_anew_after_a_loss() {
        let linux = Leftover::Dropped;
        let (bic, htcp) = (Bic::in_whole_segments(linux), HTcp::in_whole_segments(linux));
        let cubic = Cubic::default().in_whole_segments(linux);
        for before in [0, 9] {
            let found = [needed(bic, before), needed(htcp, before), needed(cubic, before)];
            assert_eq!(found, [24, 46, 46], "after {before}");
        }
    }

    #[test]
    fn slow_start_of_linux_goes_one_beyond_the_threshold() {
        let counters = [Leftover::Dropped, Leftover::Kept].map(Counter::new);
        let found = counters.map(|counter| {
            let mut window = Window::new(8.0, 10.0, f64::INFINITY);
            let ack = ack(0, Phase::Open, 100);
            let left = [(); 4].map(|()| slow_start(Some(&counter), &ack, &mut window));
            (left, window.size)
        });
        let (linux, ns3) = ([None, None, None, Some(2.0)], [None, Some(2.0), Some(2.0), Some(2.0)]);
        assert_eq!(found, [(linux, 11.0), (ns3, 10.0)]);
    }
}
