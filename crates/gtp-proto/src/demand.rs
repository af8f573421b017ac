//! What an application wants, found by watching what it supplies.
//!
//! A session whose application always has something to send wants everything. One that leaves the
//! pacer waiting wants a little more than it sends: enough to notice when it could send more, too
//! little to keep capacity from others.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::limits::{DEMAND_ALPHA, DEMAND_FLOOR, DEMAND_HOLD};
use crate::meter::WindowedMax;

/// Long enough to average over blocks that arrive one by one.
const WINDOW: Span = Span::from_millis(200);
/// Without a single wait for this long the application is not the limit any more.
const SATED: Span = Span::from_millis(100);
/// A window in which the pacer waited for more than this part of the time was limited.
const WAITED: f64 = 0.05;

/// Estimates one session's demand.
#[derive(Debug)]
pub(crate) struct Demand {
    window_start: Time,
    bytes: Bytes,
    waited: Span,
    waiting_since: Option<Time>,
    last_wait: Time,
    limited: bool,
    claim: WindowedMax,
}

impl Demand {
    pub fn new(now: Time) -> Demand {
        Demand {
            window_start: now,
            bytes: Bytes::ZERO,
            waited: Span::ZERO,
            waiting_since: None,
            last_wait: now,
            limited: false,
            claim: WindowedMax::new(now, DEMAND_HOLD),
        }
    }

    /// `bytes` were there to be sent at `now`.
    pub fn sent(&mut self, now: Time, bytes: Bytes) {
        self.roll(now);
        if let Some(since) = self.waiting_since.take() {
            self.waited += now.since(since.max(self.window_start));
            self.last_wait = now;
        }
        self.bytes += bytes;
        if self.limited && now.since(self.last_wait) >= SATED {
            self.limited = false;
        }
    }

    /// The pacer would let a datagram go at `now` and there is none.
    pub fn wait(&mut self, now: Time) {
        self.roll(now);
        self.waiting_since.get_or_insert(now);
        self.last_wait = now;
    }

    /// Ends a window if it is over.
    pub fn roll(&mut self, now: Time) {
        let elapsed = now.since(self.window_start);
        if elapsed < WINDOW {
            return;
        }
        if let Some(since) = self.waiting_since {
            self.waited += now.since(since.max(self.window_start));
        }
        if self.waited.as_secs_f64() > WAITED * elapsed.as_secs_f64() {
            self.limited = true;
            let rate = self.bytes.per(elapsed);
            self.claim.add(now, rate.scale(1.0 + DEMAND_ALPHA).saturating_add(DEMAND_FLOOR));
        }
        self.window_start = now;
        self.bytes = Bytes::ZERO;
        self.waited = Span::ZERO;
    }

    /// Whether the application is what limits the session.
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// What the session may claim at `now`.
    pub fn claim(&mut self, now: Time) -> Rate {
        if self.limited { self.claim.max(now).max(DEMAND_FLOOR) } else { Rate::UNLIMITED }
    }
}

#[cfg(test)]
mod tests;
