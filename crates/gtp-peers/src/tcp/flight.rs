//! When each segment that is out was sent, and what that says of round trips and of the rate at
//! which segments arrive (draft-cheng-iccrg-delivery-rate-estimation, sections 3.2 and 3.3).
//!
//! Every segment is counted once, when it is first known to have arrived, in order or not.

use alloc::collections::VecDeque;

use gtp_alloc::{Span, Time};

use super::law::{Delivery, Fullness, LostView};

/// Records of the segments that are out, and the connection's delivery so far.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    first: u64,
    records: VecDeque<Record>,
    /// Segments delivered so far (C.delivered), and when the last of them was (C.delivered_time).
    delivered: u64,
    delivered_at: Time,
    /// Segments marked as lost so far, each as often as it was (C.lost).
    lost: u64,
    /// When the first segment of the current sample was sent (C.first_sent_time).
    first_sent: Time,
    /// Until this many are delivered, samples come from a time of slack (C.app_limited).
    slack_until: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    at: Time,
    first_sent: Time,
    delivered_at: Time,
    delivered: u64,
    /// Segments on the path with it (P.tx_in_flight), and lost before it (P.lost).
    in_flight: u64,
    lost: u64,
    fullness: Fullness,
    times: Times,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Times {
    Once,
    Again,
}

/// What the segments that one acknowledgment shows to have arrived say together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Harvest {
    /// How many.
    pub(crate) arrived: u64,
    /// The latest sending time among those that were sent once.
    once_at: Option<Time>,
    newest: Option<Record>,
}

impl Flight {
    pub(crate) fn new(now: Time) -> Flight {
        Flight {
            first: 0,
            records: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            lost: 0,
            first_sent: now,
            slack_until: 0,
        }
    }

    /// Segments known to have arrived so far.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Segment `n` leaves, for the first time or again, while `pipe` are on the path.
    pub(crate) fn send(&mut self, now: Time, n: u64, pipe: u64) {
        if pipe == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        let slack = self.slack_until > self.delivered;
        let mut record = Record {
            at: now,
            first_sent: self.first_sent,
            delivered_at: self.delivered_at,
            delivered: self.delivered,
            in_flight: pipe + 1,
            lost: self.lost,
            fullness: if slack { Fullness::Slack } else { Fullness::Full },
            times: Times::Once,
        };
        match self.records.get_mut((n - self.first) as usize) {
            None => self.records.push_back(record),
            Some(old) => {
                record.times = Times::Again;
                *old = record;
            }
        }
    }

    /// Sending stopped for want of data while `pipe` were on the path.
    pub(crate) fn slacken(&mut self, pipe: u64) {
        self.slack_until = (self.delivered + pipe).max(1);
    }

    /// Segment `n` has arrived.
    pub(crate) fn arrive(&mut self, now: Time, n: u64, harvest: &mut Harvest) {
        let Some(record) = n.checked_sub(self.first).and_then(|i| self.records.get(i as usize))
        else {
            return;
        };
        self.delivered += 1;
        self.delivered_at = now;
        harvest.arrived += 1;
        if record.times == Times::Once {
            harvest.once_at = harvest.once_at.max(Some(record.at));
        }
        let newest = harvest.newest.map_or((0, Time::ZERO), |r| (r.delivered, r.at));
        if (record.delivered, record.at) >= newest {
            harvest.newest = Some(*record);
        }
    }

    /// Segment `n` is marked as lost.
    pub(crate) fn lose(&mut self, now: Time, n: u64) -> Option<LostView> {
        self.lost += 1;
        let record = self.records.get(n.checked_sub(self.first)? as usize)?;
        Some(LostView {
            now,
            number: n,
            in_flight: record.in_flight,
            lost: self.lost - record.lost,
            fullness: record.fullness,
            delivered: self.delivered,
        })
    }

    /// Forgets the segments below `first`.
    pub(crate) fn advance(&mut self, first: u64) {
        let gone = first.saturating_sub(self.first).min(self.records.len() as u64);
        for _ in 0..gone {
            self.records.pop_front();
        }
        self.first = self.first.max(first);
    }

    /// The round trip that a harvest measured: Karn's rule leaves repeated segments out.
    pub(crate) fn rtt(&self, now: Time, harvest: &Harvest) -> Option<Span> {
        harvest.once_at.map(|at| now.since(at))
    }

    /// The time since the first segment that is not forgotten was last sent.
    pub(crate) fn since_first(&self, now: Time) -> Option<Span> {
        self.records.front().map(|record| now.since(record.at))
    }

    /// The delivery rate that a harvest sampled; nothing from an interval shorter than the least
    /// round trip (section 3.3: such samples are of bunched acknowledgments).
    pub(crate) fn sample(&mut self, harvest: &Harvest, least: Option<Span>) -> Option<Delivery> {
        let record = harvest.newest?;
        self.first_sent = record.at;
        let sending = record.at.since(record.first_sent);
        let arriving = self.delivered_at.since(record.delivered_at);
        let interval = sending.max(arriving);
        if least.is_none_or(|least| interval < least) {
            return None;
        }
        Some(Delivery {
            segments: self.delivered - record.delivered,
            interval,
            delivered_then: record.delivered,
            in_flight: record.in_flight,
            lost: self.lost - record.lost,
            fullness: record.fullness,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_arrivals_give_their_own_rate() {
        // One segment each millisecond, each acknowledged 10 ms later.
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let mut flight = Flight::new(at(0));
        let mut last = None;
        for ms in 0..100u64 {
            if ms >= 10 {
                let mut harvest = Harvest::default();
                flight.arrive(at(ms), ms - 10, &mut harvest);
                assert_eq!(flight.rtt(at(ms), &harvest), Some(Span::from_millis(10)));
                last = flight.sample(&harvest, Some(Span::from_millis(10)));
                flight.advance(ms - 9);
            }
            flight.send(at(ms), ms, u64::from(ms > 0));
        }
        let sample = last.expect("a sample");
        assert_eq!((sample.segments, sample.interval), (10, Span::from_millis(10)));
        assert_eq!(sample.fullness, Fullness::Full);
    }

    #[test]
    fn a_gap_that_is_filled_says_how_long_its_filling_took_and_what_waited_behind_it() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let mut flight = Flight::new(at(0));
        (0..3).for_each(|n| flight.send(at(n), n, n));
        flight.send(at(300), 0, 0);
        let mut harvest = Harvest::default();
        (0..3).for_each(|n| flight.arrive(at(310), n, &mut harvest));
        assert_eq!(flight.since_first(at(310)), Some(Span::from_millis(10)));
        assert_eq!(flight.rtt(at(310), &harvest), Some(Span::from_millis(308)));
        flight.advance(3);
        assert_eq!(flight.since_first(at(310)), None);
    }
}
