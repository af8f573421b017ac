//! The mean rate of a paced stream, as its source sent it.
//!
//! Packets may arrive out of order, so what a part of the stream brought is known only when its
//! last packets have come or are lost. Until then the part waits, and the rate is that of the
//! parts before it.

use alloc::collections::VecDeque;
use core::iter;
use core::ops::Range;

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::limits::INTERVAL_MAX;

/// The mean rate of a paced stream over consecutive intervals, from burst to burst.
///
/// Whole packets in an interval of fixed length are too coarse a count where an interval holds few
/// of them or none. So each mean is taken from the last burst of one interval to the last of the
/// next, by when they were sent, and an interval that holds none can only show that the rate is
/// less than thought. A burst is what was sent at one time, and complete when the next has begun.
#[derive(Clone, Debug)]
pub struct StreamMeter {
    /// The burst that ends what was measured last; none before the first.
    from: Option<Mark>,
    /// What came after `from`, in all parts that do not wait any longer.
    settled: Part,
    /// Parts of which packets may be late, the oldest first.
    waiting: VecDeque<Part>,
    /// The present part: up to the last complete burst.
    present: Part,
    /// The newest burst.
    last: Mark,
    /// What came after the last complete one.
    pending: Bytes,
    /// What is missing after the newest one: of bursts that begin after it.
    ahead: Bytes,
    packet: Bytes,
    of_late: OfLate,
    /// Smaller numbers are counted, as arrived or as missing.
    settled_upto: u64,
    rolled: Time,
    rate: Rate,
}

/// A mean is over so many packets, or over the longest interval there is: which of two is lost, or
/// only late, cannot be told.
const WINDOW_PACKETS: u64 = 8;
/// Datagrams that are worth a mean.
const WORTH: u64 = 128;
/// After so long a rest a stream begins anew: its timestamps go round in 71 minutes, and half of
/// that would look like time gone back.
const REST_MOST: Span = Span::from_secs(10);
/// If more parts would wait than this, the newest becomes longer.
const PARTS_MOST: usize = 32;

/// What datagrams brought of late.
#[derive(Clone, Copy, Debug, Default)]
struct OfLate {
    bytes: u64,
    datagrams: u64,
}

impl OfLate {
    fn add(&mut self, bytes: Bytes, datagrams: u64) {
        if self.datagrams >= WORTH {
            *self = OfLate { bytes: self.bytes / 2, datagrams: self.datagrams / 2 };
        }
        self.bytes += bytes.0;
        self.datagrams += datagrams;
    }

    /// What so many brought on average.
    fn mean(&self, datagrams: u64) -> Bytes {
        Bytes(self.bytes.saturating_mul(datagrams) / self.datagrams.max(1))
    }
}

/// A burst of a stream.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// When its first packet was seen.
    seen: Time,
    /// When it was sent, by a wire timestamp of whatever clock.
    sent_at: u32,
    /// The largest packet number in it.
    pn: u64,
}

/// A part of a stream: the bursts after another part.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Its last burst.
    end: Mark,
    bytes: Bytes,
}

impl StreamMeter {
    /// A meter that starts at `now`.
    pub fn new(now: Time) -> StreamMeter {
        let mark = Mark { seen: now, sent_at: 0, pn: 0 };
        let part = Part { end: mark, bytes: Bytes::ZERO };
        StreamMeter {
            from: None,
            settled: part,
            waiting: VecDeque::new(),
            present: part,
            last: mark,
            pending: Bytes::ZERO,
            ahead: Bytes::ZERO,
            packet: Bytes::ZERO,
            of_late: OfLate::default(),
            settled_upto: 0,
            rolled: now,
            rate: Rate::ZERO,
        }
    }

    /// Counts packet `pn` of `bytes`, sent at `sent_at` and seen at `now`. One that
    /// [`StreamMeter::settle`] called missing does not count again.
    #[inline]
    pub fn add(&mut self, now: Time, pn: u64, sent_at: u32, bytes: Bytes) {
        if pn < self.settled_upto {
            return;
        }
        self.packet = bytes;
        let from = match self.from {
            Some(from) if now.since(self.last.seen) <= REST_MOST => from,
            Some(_) | None => return self.begin(Mark { seen: now, sent_at, pn }),
        };
        if sent_at == self.last.sent_at {
            self.last.pn = self.last.pn.max(pn);
        } else if is_later(self.last.sent_at, sent_at) {
            if self.last.sent_at != from.sent_at {
                self.present.bytes += self.pending;
            }
            (self.present.end, self.pending) = (self.last, self.ahead + bytes);
            self.ahead = Bytes::ZERO;
            self.last = Mark { seen: now, sent_at, pn };
            return;
        }
        if is_later(from.sent_at, sent_at) {
            *self.place(pn) += bytes;
        }
    }

    /// The first burst shows when the stream began, not yet how fast it is.
    #[cold]
    fn begin(&mut self, mark: Mark) {
        let part = Part { end: mark, bytes: Bytes::ZERO };
        (self.from, self.last) = (Some(mark), mark);
        (self.settled, self.present) = (part, part);
        self.waiting.clear();
        (self.pending, self.ahead) = (Bytes::ZERO, Bytes::ZERO);
    }

    /// Ends the present part, in which `datagrams` brought `bytes`. It waits for
    /// [`StreamMeter::settle`].
    pub fn end_part(&mut self, bytes: Bytes, datagrams: u64) {
        self.of_late.add(bytes, datagrams);
        let ended = core::mem::take(&mut self.present.bytes);
        let mut part = Part { end: self.present.end, bytes: ended };
        if self.waiting.len() >= PARTS_MOST
            && let Some(newest) = self.waiting.pop_back()
        {
            part.bytes += newest.bytes;
        }
        self.waiting.push_back(part);
    }

    /// Of the packets below `upto`, those of `missing` are lost and none is late. Each that is lost
    /// counts as what a datagram brought on average of late.
    pub fn settle(&mut self, upto: u64, missing: impl Iterator<Item = Range<u64>>) {
        missing.for_each(|range| self.add_missing(range));
        self.settled_upto = self.settled_upto.max(upto);
        while let Some(oldest) = self.waiting.front()
            && oldest.end.pn < upto
        {
            self.settled = Part { end: oldest.end, bytes: self.settled.bytes + oldest.bytes };
            self.waiting.pop_front();
        }
    }

    /// Which numbers [`StreamMeter::settle`] has not been told of begin here.
    pub fn settled_upto(&self) -> u64 {
        self.settled_upto
    }

    fn add_missing(&mut self, range: Range<u64>) {
        // A source may send smaller numbers later.
        let newest = self.last.pn.max(self.present.end.pn);
        let of_late = self.of_late;
        let mut from = range.start;
        let mut count = |upto: u64, bytes: &mut Bytes| {
            let upto = upto.clamp(from, range.end.max(from));
            *bytes += of_late.mean(upto - from);
            from = upto;
        };
        count(self.settled.end.pn + 1, &mut self.settled.bytes);
        for part in &mut self.waiting {
            count(part.end.pn + 1, &mut part.bytes);
        }
        count(self.present.end.pn + 1, &mut self.present.bytes);
        count(newest + 1, &mut self.pending);
        count(u64::MAX, &mut self.ahead);
    }

    /// Where packet `pn` counts: with a part that has complete bursts, or after them.
    #[inline]
    fn place(&mut self, pn: u64) -> &mut Bytes {
        if pn > self.present.end.pn { &mut self.pending } else { self.place_of_late(pn) }
    }

    #[cold]
    fn place_of_late(&mut self, pn: u64) -> &mut Bytes {
        let mut parts = iter::once(&mut self.settled).chain(&mut self.waiting);
        match parts.find(|part| pn <= part.end.pn) {
            Some(part) => &mut part.bytes,
            None => &mut self.present.bytes,
        }
    }

    /// When the newest burst was seen; the meter's start before the first.
    pub fn newest(&self) -> Time {
        self.last.seen
    }

    /// Ends the interval at `now` if at least `span` has passed since the last end. That nothing
    /// was seen for `late` shows nothing yet: it may be late, or lost.
    pub fn roll(&mut self, now: Time, span: Span, late: Span) {
        let Some(from) = self.from else { return };
        if now.since(self.rolled) < span || now.since(from.seen) == Span::ZERO {
            return;
        }
        self.rolled = now;
        if self.waiting.is_empty() {
            let bytes = self.settled.bytes + core::mem::take(&mut self.present.bytes);
            self.settled = Part { end: self.present.end, bytes };
        }
        let Part { end, bytes } = self.settled;
        let settled_in = wire_gap(from.sent_at, end.sent_at);
        let many = bytes.0 >= self.packet.0 * WINDOW_PACKETS || settled_in >= INTERVAL_MAX;
        if settled_in > Span::ZERO && settled_in * 2 >= span && many {
            self.rate = bytes.per(settled_in);
            self.from = Some(end);
            self.settled.bytes = Bytes::ZERO;
        } else {
            // A packet may come now.
            let passed = now.since(from.seen).saturating_sub(late);
            self.rate = self.rate.min((self.seen() + self.packet).per(passed));
        }
    }

    /// All that was counted after `from`.
    fn seen(&self) -> Bytes {
        let waiting = self.waiting.iter().fold(Bytes::ZERO, |sum, part| sum + part.bytes);
        self.settled.bytes + waiting + self.present.bytes + self.pending + self.ahead
    }

    /// The mean rate over the last interval that ended a burst, or less.
    pub fn rate(&self) -> Rate {
        self.rate
    }
}

/// Time between two wire timestamps of one clock; zero if it went back.
pub(crate) fn wire_gap(from: u32, to: u32) -> Span {
    let micros = to.wrapping_sub(from);
    if micros > u32::MAX / 2 { Span::ZERO } else { Span::from_micros(micros.into()) }
}

/// Whether the second of two wire timestamps of one clock is later.
fn is_later(from: u32, to: u32) -> bool {
    to.wrapping_sub(from).cast_signed() > 0
}
