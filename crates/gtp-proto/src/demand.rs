//! What an application wants, found by watching what it supplies.
//!
//! A session whose application always has something to send wants everything. One that leaves the
//! pacer waiting wants a little more than it sends: enough to notice when it could send more, too
//! little to keep capacity from others. One that waits for the first time may have been held back
//! by a ramp until then: what it would have sent at its rate of now, less the waits, counts. When
//! it is not short of data any more, its claim doubles step by step: a host that stood still for a
//! moment has a little to catch up, and that shall not take everybody's shares away.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::limits::{DEMAND_ALPHA, DEMAND_FLOOR, DEMAND_HOLD};
use crate::meter::WindowedMax;

/// Long enough to average over blocks that arrive one by one.
const WINDOW: Span = Span::from_millis(200);
/// Without a single wait for this long the claim doubles.
const SATED: Span = Span::from_millis(100);
/// After this number of doublings the application is not the limit any more.
const DOUBLINGS: u32 = 4;
/// What an application supplies that has just begun to, twice this after the first doubling.
const STIRS: Rate = Rate::from_bps(125_000);
/// The demand of a sink that asks for little at a time is its mean over this number of windows,
/// because its requests come when its host finds the time.
const MEAN_WINDOWS: usize = 5;
/// The least that a sink has asked for and not yet been sent when it takes all that it can get, at
/// any rate.
pub(crate) const MUCH: Bytes = Bytes(64 * 1_500);
/// A sink wants more than it is sent if all that it has asked for would take longer than this at
/// the mean rate.
const LATE: Span = Span::from_secs(2);
/// A window in which the pacer waited for more than this part of the time was limited.
const WAITED: f64 = 0.05;

/// Estimates one session's demand.
#[derive(Debug)]
pub(crate) struct Demand {
    window_start: Time,
    bytes: Bytes,
    waited: Span,
    /// The highest rate that there was nothing to be sent at, in this window.
    unused: Rate,
    waiting_since: Option<Time>,
    /// What was lacking when the pacer last waited.
    lacked: Lack,
    /// When the pacer last waited, or the claim last doubled because it did not.
    last_wait: Time,
    doublings: u32,
    limited: bool,
    claim: WindowedMax,
    /// What was sent in each of the last windows, and how long it was.
    sent: [(Bytes, Span); MEAN_WINDOWS],
}

/// What a pacer waits for that would let a datagram go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The application: there is nothing to be said.
    Data,
    /// The sink: it has asked for nothing more.
    Requests,
    /// Room in what carries the datagrams.
    Room,
}

impl Demand {
    pub fn new(now: Time) -> Demand {
        Demand {
            window_start: now,
            bytes: Bytes::ZERO,
            waited: Span::ZERO,
            unused: Rate::ZERO,
            waiting_since: None,
            lacked: Lack::Requests,
            last_wait: now,
            doublings: 0,
            limited: false,
            claim: WindowedMax::new(now, DEMAND_HOLD),
            sent: [(Bytes::ZERO, Span::ZERO); MEAN_WINDOWS],
        }
    }

    /// `bytes` were there to be sent at `now`, and this is left of what the sink has asked for, as
    /// far as it is less than [`MUCH`].
    #[inline]
    pub fn sent(&mut self, now: Time, bytes: Bytes, left: impl FnOnce() -> Bytes) {
        self.roll(now);
        if let Some(since) = self.waiting_since {
            self.waiting_since = None;
            self.waited += now.since(since.max(self.window_start));
            self.last_wait = now;
        }
        self.bytes += bytes;
        if self.limited && now.since(self.last_wait) >= SATED {
            match self.claim(now) < self.useful(left()) {
                true => self.double(now),
                false => self.last_wait = now,
            }
        }
    }

    /// What it is useful to claim for a sink that has asked for so much more. One that asks for
    /// little at a time, late and then for several times at once, gets its mean, or what brings
    /// all of it soon where the mean would take long.
    fn useful(&self, left: Bytes) -> Rate {
        if left >= MUCH || self.lacked != Lack::Requests {
            Rate::UNLIMITED
        } else if left > self.mean().bytes_in(LATE) {
            left.per(WINDOW)
        } else {
            self.mean().scale(1.0 + DEMAND_ALPHA)
        }
    }

    /// What was sent in the last windows.
    fn mean(&self) -> Rate {
        let add = |(bytes, span), &(b, s): &(Bytes, Span)| (bytes + b, span + s);
        let (bytes, span) = self.sent.iter().fold((Bytes::ZERO, Span::ZERO), add);
        bytes.per(span)
    }

    /// So many bytes wait to be sent at `now` that may be: where the application was silent until
    /// now, what it takes to send them within [`SATED`] is claimed. One whose sink is silent has
    /// as much waiting as its buffers hold, which says nothing. Tells whether the claim has risen.
    pub fn backlog(&mut self, now: Time, waiting: Bytes) -> bool {
        self.roll(now);
        let needed = waiting.per(SATED);
        if !self.limited || self.lacked == Lack::Requests || needed <= self.claim(now) {
            return false;
        }
        self.claim.add(now, needed.scale(1.0 / f64::from(1 << self.doublings)));
        true
    }

    /// The sink has asked for so many bytes, and had asked for nothing until `now`. If that lasted
    /// so long that nothing is remembered of what it took, what brings this within as long is
    /// claimed: a sink whose disk is slow asks again sooner.
    pub fn asked(&mut self, now: Time, wanted: Bytes) {
        self.roll(now);
        let rested = self.waiting_since.is_some_and(|since| now.since(since) >= DEMAND_HOLD);
        if self.limited && rested && self.lacked == Lack::Requests {
            self.claim.add(now, wanted.per(DEMAND_HOLD));
        }
    }

    fn double(&mut self, now: Time) {
        self.last_wait = now;
        self.doublings += 1;
        if self.doublings > DOUBLINGS {
            // What was waited for in this window was so by another application than this one now.
            (self.limited, self.doublings) = (false, 0);
            (self.waited, self.unused) = (Span::ZERO, Rate::ZERO);
        }
    }

    /// The pacer, which runs at `rate`, would let a datagram go at `now` and there is none, for
    /// want of this.
    pub fn wait(&mut self, now: Time, rate: Rate, lack: Lack) {
        self.roll(now);
        self.lacked = lack;
        self.unused = self.unused.max(rate);
        self.waiting_since.get_or_insert(now);
        self.last_wait = now;
        self.doublings = 0;
    }

    /// Ends a window if it is over.
    #[inline]
    pub fn roll(&mut self, now: Time) {
        let elapsed = now.since(self.window_start);
        if elapsed >= WINDOW {
            self.end_window(now, elapsed);
        }
    }

    fn end_window(&mut self, now: Time, elapsed: Span) {
        if let Some(since) = self.waiting_since {
            self.waited += now.since(since.max(self.window_start));
        }
        let waited = self.waited.as_secs_f64() / elapsed.as_secs_f64();
        let newly = !self.limited && waited > WAITED;
        self.limited |= newly;
        if self.limited {
            // Also without a wait: what was sent was wanted, and the next wait must not find the
            // claim forgotten.
            let mut rate = self.bytes.per(elapsed);
            if newly && !self.unused.is_unlimited() {
                rate = rate.max(self.unused.scale((1.0 - waited).max(0.0)));
            }
            self.claim.add(now, rate.scale(1.0 + DEMAND_ALPHA).saturating_add(DEMAND_FLOOR));
        }
        self.sent.rotate_right(1);
        self.sent[0] = (self.bytes, elapsed);
        self.window_start = now;
        self.bytes = Bytes::ZERO;
        (self.waited, self.unused) = (Span::ZERO, Rate::ZERO);
    }

    /// Whether the application is what limits the session.
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// What of the claim at `now` the application supplies, with a tenth to grow, where this is
    /// left of what the sink has asked for; unlimited if the application is not the limit. Without
    /// a wait it doubles later than the claim does: one that supplies ten times a second must not
    /// look like one that always has something. For a sink that asks for little at a time the mean
    /// counts.
    pub fn supplied(&mut self, now: Time, left: Bytes) -> Rate {
        if !self.limited {
            return Rate::UNLIMITED;
        }
        let supplied = self.claim.max(now).saturating_sub(DEMAND_FLOOR);
        let useful = self.useful(left);
        if self.waiting_since.is_some() || left == Bytes::ZERO {
            return supplied.min(useful);
        }
        let sated = now.since(self.last_wait).as_nanos() / SATED.as_nanos();
        let doublings = u64::from(self.doublings) + sated;
        match doublings.saturating_sub(1).min(DOUBLINGS.into()) as u32 {
            0 => supplied.min(useful),
            more => supplied.max(STIRS).scale(f64::from(1 << more)).min(useful),
        }
    }

    /// What was lacking when the pacer last waited.
    pub fn lacked(&self) -> Lack {
        self.lacked
    }

    /// What the session may claim at `now`.
    pub fn claim(&mut self, now: Time) -> Rate {
        if !self.limited {
            return Rate::UNLIMITED;
        }
        self.claim.max(now).max(DEMAND_FLOOR).scale(f64::from(1 << self.doublings))
    }
}

#[cfg(test)]
mod tests;
