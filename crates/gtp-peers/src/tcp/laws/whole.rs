//! Growth in whole segments, as kernels and other simulators compute it: acknowledged segments are
//! counted, and so many bring one segment more.
//!
//! Papers' laws grow by fractions. With small windows the difference shows, so that a law that
//! shall stand opposite such an implementation needs its counter too.

use crate::tcp::law::Window;

/// What a counter has left when it has brought one segment more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing, as in Linux of 2007, which compares before it counts: the acknowledgment that
    /// brings the segment is not counted either.
    Dropped,
    /// What was not needed, as in ns-3: what was counted while the law was slow brings a row of
    /// segments once it is fast.
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
