//! What was sent when, by packet numbers.
//!
//! A receipt names packet numbers. The log tells how many bytes these packets were and how long
//! they took to leave, to the millisecond. This module must not know receipts or rates.

use alloc::collections::VecDeque;

use gtp_alloc::{Bytes, Span, Time};

use crate::limits::CHECKPOINTS;

/// When which packet number had been sent, to know the rate at which a receipt's packets left.
#[derive(Debug, Default)]
pub(crate) struct SendLog {
    marks: VecDeque<Mark>,
    /// When the next mark is made.
    due: Time,
    sent: Bytes,
    said: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    pn: u64,
    at: Time,
    sent: Bytes,
    said: Bytes,
}

const MARK_EVERY: Span = Span::from_millis(1);

impl SendLog {
    /// Notes that packet `pn` of `bytes` left at `now`.
    #[inline]
    pub fn sent(&mut self, now: Time, pn: u64, bytes: Bytes) {
        if self.due <= now {
            self.mark(now, pn);
        }
        self.sent += bytes;
    }

    /// Notes that packet `pn` left at `now`, which is a status of `bytes`. These are not among the
    /// bytes sent; what sessions of one path say beside what they send is counted by itself.
    pub fn said(&mut self, now: Time, pn: u64, bytes: Bytes) {
        self.sent(now, pn, Bytes::ZERO);
        self.said += bytes;
    }

    fn mark(&mut self, now: Time, pn: u64) {
        if self.marks.len() == CHECKPOINTS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark { pn, at: now, sent: self.sent, said: self.said });
        self.due = now + MARK_EVERY;
    }

    /// When packet `pn` left, and the bytes sent before it, by the nearest mark.
    pub fn at(&self, pn: u64) -> Option<(Time, Bytes)> {
        let i = self.marks.partition_point(|m| m.pn <= pn);
        self.marks.get(i.checked_sub(1)?).map(|m| (m.at, m.sent))
    }

    /// Bytes of statuses from packet `start` until before packet `end`, by the nearest marks.
    pub fn said_in(&self, start: u64, end: u64) -> Bytes {
        let at = |pn| self.marks.partition_point(|m| m.pn <= pn).checked_sub(1);
        let said = |pn| at(pn).map_or(Bytes::ZERO, |i| self.marks[i].said);
        said(end) - said(start)
    }

    /// Bytes sent from `from`, an answer of [`SendLog::at`], until before packet `end`; at most
    /// one mark more.
    pub fn sent_at_most(&self, from: (Time, Bytes), end: u64) -> Bytes {
        let i = self.marks.partition_point(|m| m.pn < end);
        self.marks.get(i).map_or(self.sent, |m| m.sent) - from.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_can_have_arrived_of_short_packets_than_was_sent() {
        let mut log = SendLog::default();
        let at = |n: u64| Time::from_nanos(n * MARK_EVERY.as_nanos());
        for pn in 0..100 {
            log.sent(at(pn), pn, Bytes(90));
        }
        let from = log.at(10).unwrap();
        assert_eq!(log.sent_at_most(from, 20), Bytes(900), "a receipt would count ten whole ones");
        assert_eq!(log.sent_at_most(from, 100), Bytes(90 * 90), "up to the newest packet");
        assert_eq!(log.sent_at_most(from, 500), Bytes(90 * 90), "not beyond it");
    }
}
