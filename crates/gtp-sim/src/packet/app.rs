//! Applications at both ends: how fast one supplies what is sent, and one reads what arrived.
//!
//! A pace is a script of rates. The source's application runs ahead of what is sent by a bounded
//! amount and then waits; the sink's reads what arrived, and what it has not read holds memory.
//! Everything counts in bits times nanoseconds over seconds, so that nothing is lost to rounding.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::spec::Pace;

/// An amount that grows at the rates of a script, up to a limit that moves.
#[derive(Clone, Debug)]
struct Tap {
    script: Vec<(Time, Rate)>,
    next: usize,
    rate: Rate,
    at: Time,
    /// Bits times a billion.
    amount: u128,
}

const BIT: u128 = 1_000_000_000;

impl Tap {
    fn new(now: Time, script: &[(Time, Rate)]) -> Tap {
        let mut tap =
            Tap { script: script.to_vec(), next: 0, rate: Rate::ZERO, at: now, amount: 0 };
        tap.turn(now);
        tap
    }

    /// Runs until `now`, to no more than `most` bytes.
    fn run(&mut self, now: Time, most: u64) {
        let most = u128::from(most) * 8 * BIT;
        while let Some(&(change, _)) = self.script.get(self.next)
            && change <= now
        {
            self.pour(change, most);
            self.turn(change);
        }
        self.pour(now, most);
    }

    fn pour(&mut self, until: Time, most: u128) {
        let nanos = until.since(self.at).as_nanos();
        let more = u128::from(self.rate.as_bps()) * u128::from(nanos);
        self.amount = self.amount.saturating_add(more).min(most.max(self.amount));
        self.at = self.at.max(until);
    }

    fn turn(&mut self, now: Time) {
        while let Some(&(change, rate)) = self.script.get(self.next)
            && change <= now
        {
            self.rate = rate;
            self.next += 1;
        }
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.amount / (8 * BIT)).unwrap_or(u64::MAX)
    }

    /// When it will have reached `bytes`, or turns before that.
    fn when(&self, bytes: u64) -> Time {
        let lacks = (u128::from(bytes) * 8 * BIT).saturating_sub(self.amount);
        let turn = self.script.get(self.next).map_or(Time::MAX, |(at, _)| *at);
        let rate = u128::from(self.rate.as_bps());
        if rate == 0 {
            return turn;
        }
        let nanos = u64::try_from(lacks.div_ceil(rate)).unwrap_or(u64::MAX);
        (self.at + Span::from_nanos(nanos)).min(turn)
    }
}

/// What the source's application has ready. Units are supplied in their order; one that was
/// supplied once stays at hand.
#[derive(Clone, Debug)]
pub(crate) struct Supplier {
    tap: Option<Tap>,
    unit: u64,
    ready: Bytes,
    /// Units asked for and supplied so far: all below this.
    front: u64,
    /// The unit that is waited for.
    wanted: Option<u64>,
}

impl Supplier {
    pub fn new(now: Time, pace: &Pace, unit: u16, ready: Bytes) -> Supplier {
        let tap = match pace {
            Pace::Unlimited => None,
            Pace::Script(script) => Some(Tap::new(now, script)),
        };
        Supplier { tap, unit: unit.into(), ready, front: 0, wanted: None }
    }

    /// Whether the bytes of `unit`, the `len` last of which are wanted, are ready at `now`.
    #[inline]
    pub fn has(&mut self, now: Time, unit: u64, len: u16) -> bool {
        let Some(tap) = &mut self.tap else { return true };
        if unit < self.front {
            return true;
        }
        let begins = unit.saturating_mul(self.unit);
        tap.run(now, begins.saturating_add(self.ready.0.max(self.unit)));
        if tap.bytes() >= begins + u64::from(len) {
            self.front = unit + 1;
            self.wanted = None;
            return true;
        }
        self.wanted = Some(begins + u64::from(len));
        false
    }

    /// Nobody waits for anything until somebody asks again.
    pub fn forget_wanted(&mut self) {
        self.wanted = None;
    }

    /// When to ask again, if something was not ready.
    pub fn poll_timeout(&self) -> Time {
        match (&self.tap, self.wanted) {
            (Some(tap), Some(bytes)) => tap.when(bytes),
            (None, _) | (_, None) => Time::MAX,
        }
    }
}

/// What the sink's application has read.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    tap: Option<Tap>,
    memory: Bytes,
}

impl Reader {
    pub fn new(now: Time, pace: &Pace, memory: Bytes) -> Reader {
        let tap = match pace {
            Pace::Unlimited => None,
            Pace::Script(script) => Some(Tap::new(now, script)),
        };
        Reader { tap, memory }
    }

    /// Whether it takes everything at once.
    pub fn is_unlimited(&self) -> bool {
        self.tap.is_none()
    }

    /// Bytes that may be asked for at `now`, when `asked` were asked for and `arrived` arrived.
    pub fn room(&mut self, now: Time, asked: u64, arrived: u64) -> u64 {
        let Some(tap) = &mut self.tap else { return u64::MAX };
        tap.run(now, arrived);
        (self.memory.0 + tap.bytes()).saturating_sub(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

    #[test]
    fn a_supplier_keeps_its_pace_and_does_not_save_up_beyond_what_it_may_have_ready() {
        // 8 Mbit/s: 1,000 bytes a millisecond.
        let pace = Pace::constant(Rate::from_mbps(8));
        let mut supplier = Supplier::new(ms(0), &pace, 1_000, Bytes(3_000));
        assert!(!supplier.has(ms(0), 0, 1_000));
        assert_eq!(supplier.poll_timeout(), ms(1));
        assert!(supplier.has(ms(1), 0, 1_000) && !supplier.has(ms(1), 1, 1_000));
        let at_once = (1..10).take_while(|&unit| supplier.has(ms(100), unit, 1_000)).count();
        assert_eq!(at_once, 3, "what was ready, and no more");
        assert!(supplier.has(ms(100), 0, 1_000), "sent once, at hand for good");
    }

    #[test]
    fn a_supplier_that_stands_still_is_asked_again_when_its_script_goes_on() {
        let pace = Pace::Script(vec![(ms(5), Rate::from_mbps(8)), (ms(6), Rate::ZERO)]);
        let mut supplier = Supplier::new(ms(0), &pace, 1_000, Bytes(9_000));
        assert!(!supplier.has(ms(0), 0, 1_000));
        assert_eq!(supplier.poll_timeout(), ms(5));
        assert!(!supplier.has(ms(5), 0, 1_000));
        assert_eq!(supplier.poll_timeout(), ms(6));
        assert!(supplier.has(ms(50), 0, 1_000) && !supplier.has(ms(50), 1, 1_000));
        assert_eq!(supplier.poll_timeout(), Time::MAX);
    }

    #[test]
    fn a_reader_frees_memory_as_it_reads_and_reads_no_more_than_came() {
        let mut reader = Reader::new(ms(0), &Pace::constant(Rate::from_mbps(8)), Bytes(10_000));
        assert_eq!(reader.room(ms(0), 0, 0), 10_000);
        assert_eq!(reader.room(ms(5), 10_000, 0), 0, "nothing came");
        assert_eq!(reader.room(ms(10), 10_000, 10_000), 5_000);
        assert_eq!(reader.room(ms(90), 10_000, 10_000), 10_000);
    }
}
