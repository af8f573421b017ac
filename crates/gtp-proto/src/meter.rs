//! Meters: bytes counted over time become rates.
//!
//! The mean over an interval for what is told to agents, the maximum over a window for what is
//! proven, the least of a window for round-trip times. None of them asks the time.

use core::ops::Range;

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::limits::{INTERVAL_MAX, RTT_MOST};

/// Counts bytes and gives their mean rate over consecutive intervals.
#[derive(Clone, Debug)]
pub struct Meter {
    since: Time,
    counted: Bytes,
    rate: Rate,
}

impl Meter {
    /// A meter that starts at `now`.
    pub fn new(now: Time) -> Meter {
        Meter { since: now, counted: Bytes::ZERO, rate: Rate::ZERO }
    }

    /// Counts `bytes`.
    pub fn add(&mut self, bytes: Bytes) {
        self.counted += bytes;
    }

    /// Ends the interval at `now` if at least `span` has passed since the last end, and says
    /// whether it did.
    pub fn roll(&mut self, now: Time, span: Span) -> bool {
        let elapsed = now.since(self.since);
        let over = elapsed >= span && elapsed > Span::ZERO;
        if over {
            self.rate = self.counted.per(elapsed);
            self.since = now;
            self.counted = Bytes::ZERO;
        }
        over
    }

    /// The mean rate over the last whole interval.
    pub fn rate(&self) -> Rate {
        self.rate
    }
}

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
    /// The last complete burst.
    complete: Mark,
    /// What came after `from` up to there.
    counted: Bytes,
    /// The newest burst.
    last: Mark,
    /// What came after the last complete one.
    pending: Bytes,
    /// What is missing after the newest one: of bursts that begin after it.
    ahead: Bytes,
    packet: Bytes,
    of_late: OfLate,
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

/// What datagrams brought of late.
#[derive(Clone, Copy, Debug, Default)]
struct OfLate {
    bytes: u64,
    datagrams: u64,
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

impl StreamMeter {
    /// A meter that starts at `now`.
    pub fn new(now: Time) -> StreamMeter {
        let mark = Mark { seen: now, sent_at: 0, pn: 0 };
        StreamMeter {
            from: None,
            complete: mark,
            counted: Bytes::ZERO,
            last: mark,
            pending: Bytes::ZERO,
            ahead: Bytes::ZERO,
            packet: Bytes::ZERO,
            of_late: OfLate::default(),
            rolled: now,
            rate: Rate::ZERO,
        }
    }

    /// Counts packet `pn` of `bytes`, sent at `sent_at` and seen at `now`.
    pub fn add(&mut self, now: Time, pn: u64, sent_at: u32, bytes: Bytes) {
        self.packet = bytes;
        let from = match self.from {
            Some(from) if now.since(self.last.seen) <= REST_MOST => from,
            Some(_) | None => return self.begin(Mark { seen: now, sent_at, pn }),
        };
        if sent_at == self.last.sent_at {
            self.last.pn = self.last.pn.max(pn);
        } else if is_later(self.last.sent_at, sent_at) {
            if self.last.sent_at != from.sent_at {
                self.counted += self.pending;
            }
            (self.complete, self.pending) = (self.last, self.ahead + bytes);
            self.ahead = Bytes::ZERO;
            self.last = Mark { seen: now, sent_at, pn };
            return;
        }
        if is_later(from.sent_at, sent_at) {
            *self.place(pn) += bytes;
        }
    }

    /// The first burst shows when the stream began, not yet how fast it is.
    fn begin(&mut self, mark: Mark) {
        (self.from, self.complete, self.last) = (Some(mark), mark, mark);
        (self.counted, self.pending, self.ahead) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
    }

    /// Of the datagrams up to the newest packet `arrived` brought `bytes`, and those of `missing`
    /// are lost: each counts as what a datagram brought on average of late.
    pub fn add_missing(&mut self, bytes: Bytes, arrived: u64, missing: &[Range<u64>]) {
        let mut late = self.of_late;
        late.bytes += bytes.0;
        late.datagrams += arrived;
        let mean = |count: u64| Bytes(late.bytes.saturating_mul(count) / late.datagrams.max(1));
        // A source may send smaller numbers later.
        let newest = self.last.pn.max(self.complete.pn);
        let upto = |end: u64| missing.iter().map(|g| g.end.min(end) - g.start.min(end)).sum();
        let (complete, seen, all) = (upto(self.complete.pn + 1), upto(newest + 1), upto(u64::MAX));
        self.counted += mean(complete);
        self.pending += mean(seen - complete);
        self.ahead += mean(all - seen);
        if late.datagrams >= WORTH {
            late = OfLate { bytes: late.bytes / 2, datagrams: late.datagrams / 2 };
        }
        self.of_late = late;
    }

    /// Where packet `pn` counts: with the complete bursts, or after them.
    fn place(&mut self, pn: u64) -> &mut Bytes {
        if pn <= self.complete.pn { &mut self.counted } else { &mut self.pending }
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
        let counted_in = wire_gap(from.sent_at, self.complete.sent_at);
        let many = self.counted.0 >= self.packet.0 * WINDOW_PACKETS || counted_in >= INTERVAL_MAX;
        if counted_in > Span::ZERO && counted_in * 2 >= span && many {
            self.rate = self.counted.per(counted_in);
            self.from = Some(self.complete);
            self.counted = Bytes::ZERO;
        } else {
            // A packet may come now.
            let passed = now.since(from.seen).saturating_sub(late);
            self.rate =
                self.rate.min((self.counted + self.pending + self.ahead + self.packet).per(passed));
        }
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

/// The largest rate seen in a sliding window, kept as a few coarse slots.
#[derive(Clone, Debug)]
pub struct WindowedMax {
    slot: Span,
    started: Time,
    slots: [Rate; SLOTS],
}

const SLOTS: usize = 8;

impl WindowedMax {
    /// A window of length `window` that starts at `now`.
    pub fn new(now: Time, window: Span) -> WindowedMax {
        WindowedMax { slot: window / SLOTS as u64, started: now, slots: [Rate::ZERO; SLOTS] }
    }

    /// Changes the window's length; what it holds is kept.
    pub fn set_window(&mut self, window: Span) {
        self.slot = window / SLOTS as u64;
    }

    /// Takes in `rate` at `now`.
    pub fn add(&mut self, now: Time, rate: Rate) {
        self.turn(now);
        self.slots[0] = self.slots[0].max(rate);
    }

    /// The largest rate in the window that ends at `now`.
    pub fn max(&mut self, now: Time) -> Rate {
        self.turn(now);
        self.slots.iter().copied().max().unwrap_or(Rate::ZERO)
    }

    /// Forgets everything.
    pub fn clear(&mut self, now: Time) {
        self.started = now;
        self.slots = [Rate::ZERO; SLOTS];
    }

    fn turn(&mut self, now: Time) {
        let slot = self.slot.as_nanos().max(1);
        let passed = now.since(self.started).as_nanos() / slot;
        if passed == 0 {
            return;
        }
        let shift = (passed as usize).min(SLOTS);
        self.slots.copy_within(..SLOTS - shift, shift);
        self.slots[..shift].fill(Rate::ZERO);
        self.started += Span::from_nanos(passed.saturating_mul(slot));
    }
}

/// Round-trip times: smoothed, and the smallest of the last minute.
#[derive(Clone, Debug, Default)]
pub struct RttMeter {
    smoothed: Span,
    least: Span,
    previous_least: Span,
    window_start: Time,
}

/// A rival that fills a queue empties it now and then, but seldom within ten seconds. With a
/// shorter memory its queue would count as part of the path.
const RTT_WINDOW: Span = Span::from_secs(60);

impl RttMeter {
    /// Takes in one sample; more than [`RTT_MOST`] counts as that.
    pub fn add(&mut self, now: Time, sample: Span) {
        let sample = sample.clamp(Span::from_nanos(1), RTT_MOST);
        if self.smoothed == Span::ZERO {
            *self = RttMeter {
                smoothed: sample,
                least: sample,
                previous_least: sample,
                window_start: now,
            };
            return;
        }
        self.smoothed = (self.smoothed * 7 + sample) / 8;
        if now.since(self.window_start) > RTT_WINDOW {
            self.previous_least = self.least;
            self.least = sample;
            self.window_start = now;
        }
        self.least = self.least.min(sample);
    }

    /// Exponentially smoothed (1/8); zero while unknown.
    pub fn smoothed(&self) -> Span {
        self.smoothed
    }

    /// The smallest sample of the last one to two minutes; zero while unknown.
    pub fn least(&self) -> Span {
        self.least.min(self.previous_least)
    }
}

#[cfg(test)]
mod tests;
