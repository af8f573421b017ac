//! What users, or others, moved in the last hour, a point for every ten seconds.
//!
//! Bytes by user and direction since the start are counted elsewhere; here the differences are
//! kept, so that a look at a session costs nothing more. Whoever counts bounds how many are told
//! apart, and so what is kept. Time is an argument; nobody need look while nothing moves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gtp_alloc::{Span, Time};
use gtp_share::{HISTORY_COLUMNS, HistoryView, Side};

use crate::seats::direction;

/// A user's number; `None` for all that are not told apart.
pub(crate) type User = Option<u32>;

/// The rates of the last hour of each who is told apart.
#[derive(Debug)]
pub(crate) struct History<W = User> {
    begin: Time,
    /// Number of the point that is being counted.
    open: u64,
    rows: BTreeMap<(W, Way), Row>,
}

/// A direction, in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Out,
    In,
}

/// One user's in one direction.
#[derive(Debug, Default)]
struct Row {
    /// Bytes since the start, when the last point ended.
    before: u64,
    /// Rates in bit/s, the oldest first; the last is that before the open point.
    points: VecDeque<u64>,
}

/// What a point is the mean of.
const POINT: Span = Span::from_secs(10);
/// Points of a column that people are shown: a minute.
const POINTS_OF_COLUMN: usize = 6;
/// An hour.
const POINTS: usize = HISTORY_COLUMNS * POINTS_OF_COLUMN;

impl<W: Copy + Ord> History<W> {
    /// Begins at `now`.
    pub fn new(now: Time) -> History<W> {
        History { begin: now, open: 0, rows: BTreeMap::new() }
    }

    /// Whether a point has ended since the last turn. It is to be turned before what is moved then
    /// counts.
    pub fn is_due(&self, now: Time) -> bool {
        self.at(now) > self.open
    }

    /// Ends the points that are over. `totals` are bytes since the start. What was moved since the
    /// last turn was moved in the point that was open then: later ones end with a turn of their own
    /// where anything moves.
    pub fn turn(&mut self, now: Time, totals: impl IntoIterator<Item = (W, Side, u64)>) {
        let ended = self.at(now).saturating_sub(self.open);
        if ended == 0 {
            return;
        }
        self.open += ended;
        for (user, side, total) in totals {
            let row = self.rows.entry((user, way(side))).or_default();
            let moved = total.saturating_sub(row.before);
            row.before = total;
            row.push(rate(moved));
            (1..ended.min(POINTS as u64)).for_each(|_| row.push(0));
        }
    }

    /// The hour before the last turn, of who moved anything in it: a rate for each minute, the
    /// oldest first.
    pub fn rows(&self) -> Vec<(W, Side, Vec<u64>)> {
        let rows = self.rows.iter().filter_map(|(&(whose, way), row)| {
            let rates = row.columns();
            let side = match way {
                Way::Out => Side::Source,
                Way::In => Side::Sink,
            };
            rates.iter().any(|rate| *rate > 0).then_some((whose, side, rates))
        });
        rows.collect()
    }

    /// Forgets those who have moved nothing in the hour before the last turn, and returns them.
    pub fn forget_idle(&mut self) -> BTreeSet<W> {
        let moves = |row: &Row| row.points.iter().any(|&rate| rate > 0);
        let moved: BTreeSet<W> =
            self.rows.iter().filter(|(_, row)| moves(row)).map(|((whose, _), _)| *whose).collect();
        let all = self.rows.keys().map(|(whose, _)| *whose);
        let idle: BTreeSet<W> = all.filter(|whose| !moved.contains(whose)).collect();
        self.rows.retain(|(whose, _), _| !idle.contains(whose));
        idle
    }

    /// The number of the point at a time.
    fn at(&self, now: Time) -> u64 {
        now.since(self.begin).as_nanos() / POINT.as_nanos()
    }
}

impl History {
    /// The hour of each user, as people are told.
    pub fn view(&self) -> Vec<HistoryView> {
        let rows = self.rows().into_iter().map(|(uid, side, rates)| HistoryView {
            uid,
            direction: direction(side).to_owned(),
            rates,
        });
        rows.collect()
    }
}

impl Row {
    fn push(&mut self, rate: u64) {
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        self.points.push_back(rate);
    }

    /// Means of each minute, the last of which ends with the last point.
    fn columns(&self) -> Vec<u64> {
        let all: Vec<u64> = self.points.iter().copied().collect();
        let minutes = all.rchunks(POINTS_OF_COLUMN);
        let mean = |minute: &[u64]| {
            let sum: u128 = minute.iter().map(|&rate| u128::from(rate)).sum();
            u64::try_from(sum / minute.len() as u128).unwrap_or(u64::MAX)
        };
        let mut columns: Vec<u64> = minutes.map(mean).collect();
        columns.reverse();
        columns
    }
}

/// Bit/s of so many bytes in a point.
fn rate(bytes: u64) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(POINT.as_nanos());
    u64::try_from(bits).unwrap_or(u64::MAX)
}

fn way(side: Side) -> Way {
    match side {
        Side::Source => Way::Out,
        Side::Sink => Way::In,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    /// Bytes of a user that sends, in thousands.
    fn sent(uid: u32, thousands: u64) -> (User, Side, u64) {
        (Some(uid), Side::Source, thousands * 1_000)
    }

    #[test]
    fn each_minute_is_the_mean_of_its_points_and_idle_time_needs_no_look_of_its_own() {
        let mut history = History::new(at(0));
        let mut total = 0;
        for second in (10..=120).step_by(10) {
            assert!(history.is_due(at(second)) && !history.is_due(at(second - 1)));
            total += if second <= 60 { 10 } else { 20 };
            history.turn(at(second), [sent(7, total)]);
        }
        let rates = |history: &History| history.view()[0].rates.clone();
        assert_eq!(rates(&history), [8_000, 16_000]);
        assert_eq!(history.view()[0].uid, Some(7));
        assert_eq!(history.view()[0].direction, "out");
        history.turn(at(240), [sent(7, total)]);
        assert_eq!(rates(&history), [8_000, 16_000, 0, 0]);
    }

    #[test]
    fn fast_users_have_their_rate() {
        let mut history = History::new(at(0));
        // 12.5 GB in ten seconds.
        let all = (1..=6).map(|k| (k * 10, sent(7, k * 12_500_000)));
        all.for_each(|(second, sent)| history.turn(at(second), [sent]));
        assert_eq!(history.view()[0].rates, [10_000_000_000]);
        assert_eq!(rate(u64::MAX), u64::MAX / 10 * 8 + 4);
    }

    #[test]
    fn what_ended_before_a_pause_counts_in_its_own_minute() {
        let mut history = History::new(at(0));
        history.turn(at(600), [sent(7, 60)]);
        let rates = history.view()[0].rates.clone();
        assert_eq!((rates.len(), rates[0]), (10, 8_000));
        assert!(rates[1..].iter().all(|rate| *rate == 0));
    }

    #[test]
    fn an_hour_is_kept_and_who_moved_nothing_in_it_is_not_shown() {
        let mut history = History::new(at(0));
        for second in (10..=7_200).step_by(10) {
            history.turn(at(second), [sent(7, second), (None, Side::Sink, 5_000)]);
        }
        assert_eq!(history.view().len(), 1, "the others only began with something");
        let hour = history.view()[0].rates.clone();
        assert_eq!(hour, [8_000; HISTORY_COLUMNS]);
        assert!(history.rows.values().all(|row| row.points.len() == POINTS));
        history.turn(at(7_200 + 3_601), [sent(7, 7_200)]);
        assert!(history.view().is_empty());
    }
}
