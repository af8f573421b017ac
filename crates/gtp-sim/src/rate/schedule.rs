//! When each node computes next: a calendar of short days.
//!
//! Nodes compute again and again at intervals of about the same length, so nearly every entry is
//! put a few thousand days ahead and is looked at once more, when its day is sorted. The order is
//! that of (time, entry); what an entry means is the caller's affair, also whether it still
//! holds.

/// Upcoming entries, each a time in nanoseconds and a tag.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// A day lasts `2^shift` nanoseconds.
    shift: u32,
    /// Day d is `days[d % days.len()]`, for the days after `today`.
    days: Vec<Vec<(u64, u32)>>,
    today: u64,
    /// What is left of today, latest first.
    left: Vec<(u64, u32)>,
    /// Whether nothing of today has been seen yet.
    is_new: bool,
    waiting: usize,
}

/// Entries that a day holds on average: few enough to sort them in the nearest cache.
const ENTRIES_A_DAY: f64 = 32.0;
/// The most days, 24 bytes each while they are empty.
const DAYS_MOST: u64 = 1 << 18;

impl Schedule {
    /// A calendar for `per_second` entries a second, none ever put more than `horizon`
    /// nanoseconds ahead of the newest one taken out.
    pub fn new(per_second: f64, horizon: u64) -> Schedule {
        let day = (ENTRIES_A_DAY * 1e9 / per_second.max(1.0)) as u64;
        let mut shift = day.max(1).ilog2();
        while (horizon >> shift) + 2 > DAYS_MOST {
            shift += 1;
        }
        let days = (horizon >> shift) as usize + 2;
        Schedule {
            shift,
            days: vec![Vec::new(); days],
            today: 0,
            left: Vec::new(),
            is_new: false,
            waiting: 0,
        }
    }

    /// Enters `tag` at time `at`.
    pub fn enter(&mut self, at: u64, tag: u32) {
        let day = at >> self.shift;
        if day <= self.today {
            let place = self.left.partition_point(|entry| *entry > (at, tag));
            self.left.insert(place, (at, tag));
        } else {
            let n = self.days.len() as u64;
            assert!(day - self.today < n, "nothing is entered beyond the horizon");
            self.days[(day % n) as usize].push((at, tag));
            self.waiting += 1;
        }
    }

    /// Takes out the first entry that is not after `end`.
    #[inline]
    pub fn take(&mut self, end: u64) -> Option<(u64, u32)> {
        loop {
            if let Some(&(at, tag)) = self.left.last() {
                if at > end {
                    return None;
                }
                self.left.pop();
                return Some((at, tag));
            }
            if self.waiting == 0 {
                self.today = self.today.max(end >> self.shift);
                return None;
            }
            if self.today >= end >> self.shift {
                return None;
            }
            self.turn();
        }
    }

    /// Once a day, when its first entry has been taken out: all the others.
    pub fn new_day(&mut self) -> Option<&[(u64, u32)]> {
        std::mem::take(&mut self.is_new).then_some(&self.left)
    }

    fn turn(&mut self) {
        self.today += 1;
        let n = self.days.len() as u64;
        // The old list's room stays in use.
        std::mem::swap(&mut self.left, &mut self.days[(self.today % n) as usize]);
        self.waiting -= self.left.len();
        self.left.sort_unstable_by(|a, b| b.cmp(a));
        self.is_new = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_link::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn entries_come_out_as_from_a_sorted_set() {
        for (per_second, horizon) in [(1.0, 5), (1e9, 1_000), (1e8, 100_000), (1e9, 10_000_000)] {
            let mut schedule = Schedule::new(per_second, horizon);
            let mut set = BTreeSet::new();
            let mut rng = Rng::new(horizon);
            let mut end = 0;
            for round in 0..3_000u32 {
                let entry = (end + rng.below(horizon + 1), round);
                schedule.enter(entry.0, entry.1);
                set.insert(entry);
                if rng.below(3) > 0 {
                    let limit = end + rng.below(horizon / 4 + 1);
                    let expected = set.first().copied().filter(|(at, _)| *at <= limit);
                    assert_eq!(schedule.take(limit), expected);
                    if let Some(first) = expected {
                        set.remove(&first);
                        end = first.0;
                    }
                }
            }
            while let Some(first) = set.pop_first() {
                assert_eq!(schedule.take(u64::MAX), Some(first));
            }
            assert_eq!(schedule.take(end + 1), None);
        }
    }
}
