//! The least or the greatest round trip of the last so many seconds.
//!
//! Only those are kept that may become it, in order of time: each is better than all that follow.
//! How long a measurement counts is the caller's to say, with each look.

use alloc::collections::VecDeque;

use gtp_alloc::{Span, Time};

/// Which end of the range is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sense {
    Least,
    Greatest,
}

/// A running extreme; see the module's head.
#[derive(Clone, Debug)]
pub(super) struct Extreme {
    sense: Sense,
    kept: VecDeque<(Time, Span)>,
}

impl Extreme {
    pub(super) fn new(sense: Sense) -> Extreme {
        Extreme { sense, kept: VecDeque::new() }
    }

    /// Takes in a measurement, forgets what is older than `span`, and returns the extreme.
    pub(super) fn update(&mut self, now: Time, value: Span, span: Span) -> Span {
        while self.kept.back().is_some_and(|(_, old)| !self.is_better(*old, value)) {
            self.kept.pop_back();
        }
        self.kept.push_back((now, value));
        while self.kept.front().is_some_and(|(at, _)| now > *at + span) {
            self.kept.pop_front();
        }
        self.get().unwrap_or(value)
    }

    /// The extreme at the last update.
    pub(super) fn get(&self) -> Option<Span> {
        self.kept.front().map(|(_, value)| *value)
    }

    fn is_better(&self, one: Span, other: Span) -> bool {
        match self.sense {
            Sense::Least => one < other,
            Sense::Greatest => one > other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_extreme_of_the_last_seconds_only() {
        let values = [5, 3, 4, 8, 2, 6, 7, 9];
        for sense in [Sense::Least, Sense::Greatest] {
            let mut extreme = Extreme::new(sense);
            for (n, &ms) in values.iter().enumerate() {
                let now = Time::ZERO + Span::from_secs(n as u64);
                let found = extreme.update(now, Span::from_millis(ms), Span::from_secs(2));
                let last = &values[n.saturating_sub(2)..=n];
                let asked = match sense {
                    Sense::Least => last.iter().min(),
                    Sense::Greatest => last.iter().max(),
                };
                assert_eq!(Some(found), asked.map(|&ms| Span::from_millis(ms)), "{sense:?} {n}");
            }
        }
    }
}
