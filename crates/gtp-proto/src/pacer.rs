//! The pacer: the one converter from a sending rate to departure times.
//!
//! Each datagram moves the next departure on by its size over the rate. Wake-ups are spaced so
//! that a segmentation batch can leave at once. A late wake-up is caught up at once only in part,
//! so that a burst is never longer than the pacer's limits say; the rest is made good slowly, 4 %
//! above the rate, so that a host that is often late still sends what it may.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::limits::{ARREARS_MOST, BURST_BYTES, BURST_SPAN, CATCH_UP};

/// Paces one session's datagrams.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Rate,
    /// The time in which one burst builds up at this rate.
    quantum: Span,
    /// What is later than this is not caught up at once.
    reach: Span,
    next: Time,
    /// What rounding `next` up to whole nanoseconds has cost, in bits times nanoseconds over
    /// seconds; below the rate, so below a nanosecond.
    credit: u64,
    /// What the last datagram cost: the next is mostly as long.
    last: Cost,
    /// What late wake-ups kept from being sent and was not caught up at once.
    arrears: Bytes,
    /// When a datagram without data left last.
    said: Time,
}

/// A datagram's length, in bits times nanoseconds a second, divided by the rate.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    bytes: Bytes,
    nanos: u64,
    rest: u64,
}

/// Arrears are made good at this part of what is sent.
const MAKE_GOOD: u64 = 25;
/// A decrease to less than this part of the rate cancels them.
const DECREASE: f64 = 0.99;

impl Pacer {
    /// A pacer at rate zero.
    pub fn new(now: Time) -> Pacer {
        Pacer {
            rate: Rate::ZERO,
            quantum: quantum(Rate::ZERO),
            reach: CATCH_UP,
            next: now,
            credit: 0,
            last: Cost::default(),
            arrears: Bytes::ZERO,
            said: now,
        }
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from `now` on. What is still owed for the last datagram is owed at the
    /// new rate.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        if rate == self.rate {
            return;
        }
        if self.rate == Rate::ZERO {
            self.next = self.next.max(now); // Nothing was late while nothing might be sent.
        }
        if rate.as_f64() < DECREASE * self.rate.as_f64() {
            self.arrears = Bytes::ZERO; // They were owed at a rate that is not ours any more.
        }
        if self.next < now && rate > self.rate && !rate.is_unlimited() {
            // What is late was so at the old rate, and is no more than that at the new one. After
            // a fall it is less.
            let late = self.rate.bytes_in(now.since(self.next));
            self.next = now.saturating_sub(late / rate);
        }
        if self.next > now {
            let owed = self.next.since(now);
            let bytes =
                if self.rate == Rate::ZERO { Bytes::ZERO } else { self.rate.bytes_in(owed) };
            self.next = if rate == Rate::ZERO { now } else { now + bytes / rate };
        }
        self.rate = rate;
        self.quantum = quantum(rate);
        self.reach = CATCH_UP.max(self.quantum);
        self.credit = 0;
        self.last = Cost::default();
    }

    /// Whether a datagram may leave at `now`.
    pub fn may_send(&self, now: Time) -> bool {
        self.rate > Rate::ZERO && self.next <= now
    }

    /// Accounts for a datagram of `bytes` on the wire that left at `now`.
    pub fn sent(&mut self, now: Time, bytes: Bytes) {
        let floor = now.saturating_sub(self.reach);
        if self.next < floor {
            self.fall_behind(floor);
        }
        let free =
            if self.arrears > Bytes::ZERO { self.make_good(now, bytes) } else { Bytes::ZERO };
        self.next = self.next.max(floor) + self.cost(bytes - free);
    }

    /// What was due before `floor` is owed from now on.
    fn fall_behind(&mut self, floor: Time) {
        if !self.rate.is_unlimited() {
            let most = self.rate.bytes_in(ARREARS_MOST);
            let late = self.rate.bytes_in(floor.since(self.next));
            self.arrears = (self.arrears + late).min(most);
        }
    }

    /// What of `bytes` costs no time since it is owed.
    fn make_good(&mut self, now: Time, bytes: Bytes) -> Bytes {
        let on_time = self.next + self.quantum * 2 >= now;
        let spare = if on_time { Bytes(bytes.0 / MAKE_GOOD) } else { Bytes::ZERO };
        let free = spare.min(self.arrears);
        self.arrears -= free;
        free
    }

    /// Accounts for a datagram without data that left at `now` beside the others: the next of
    /// those leaves later by its time, or by half of that since the last of its kind if that is
    /// less, so that data keeps half of any rate.
    pub fn said(&mut self, now: Time, bytes: Bytes) {
        let since = now.since(core::mem::replace(&mut self.said, now));
        if self.rate > Rate::ZERO && !self.rate.is_unlimited() {
            self.next += (bytes / self.rate).min(since / 2);
        }
    }

    /// The time that `bytes` take, rounded up, less what rounding cost before: no rate drifts.
    fn cost(&mut self, bytes: Bytes) -> Span {
        if self.rate.is_unlimited() || self.rate == Rate::ZERO {
            return bytes / self.rate;
        }
        self.short_cost(bytes).unwrap_or_else(|| self.long_cost(bytes))
    }

    fn long_cost(&mut self, bytes: Bytes) -> Span {
        let rate = u128::from(self.rate.as_bps());
        let bits_nanos = u128::from(bytes.0) * 8 * 1_000_000_000;
        let owed = bits_nanos.saturating_sub(u128::from(self.credit));
        let nanos = owed.div_ceil(rate);
        self.credit = (u128::from(self.credit) + nanos * rate - bits_nanos) as u64;
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The same in 64 bits, where they are enough, and without dividing the same again: every
    /// packet comes by here.
    fn short_cost(&mut self, bytes: Bytes) -> Option<Span> {
        let rate = self.rate.as_bps();
        if self.last.bytes != bytes {
            let bits_nanos = bytes.0.checked_mul(8 * 1_000_000_000)?;
            self.last = Cost { bytes, nanos: bits_nanos / rate, rest: bits_nanos % rate };
        }
        let Cost { nanos, rest, .. } = self.last;
        if rest > self.credit {
            self.credit += rate - rest;
            return Some(Span::from_nanos(nanos + 1));
        }
        self.credit -= rest;
        Some(Span::from_nanos(nanos))
    }

    /// When to wake up next if there is something to send: late enough that a batch can leave.
    pub fn next_wake(&self) -> Option<Time> {
        (self.rate > Rate::ZERO).then(|| self.next + self.quantum)
    }

    /// A session that has nothing to send does not save up credit.
    pub fn idle(&mut self, now: Time) {
        self.next = self.next.max(now.saturating_sub(self.quantum));
        self.arrears = Bytes::ZERO;
    }
}

/// The time in which one burst builds up: a millisecond or a batch, whichever is shorter, and
/// nothing at rates where that is less than two packets.
fn quantum(rate: Rate) -> Span {
    let span = (BURST_BYTES / rate).min(BURST_SPAN);
    if rate.bytes_in(span) < Bytes(2 * 1_500) { Span::ZERO } else { span }
}

#[cfg(test)]
mod tests;
