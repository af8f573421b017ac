//! Tsunami: blocks at a fixed inter-packet delay, and a receiver that asks for what is missing.
//!
//! Sources: SABUL (I), which says that it has no congestion control, and the released client and
//! server of 2002 to 2009, which have one: both are here ([`Law`]). The receiver decides what is
//! sent again and reports how bad it is; the sender decides the delay.
//!
//! Rules:
//! - T1 blocks leave in order, one each inter-packet delay (IPD); requested ones go first.
//! - T2 each 350 ms the receiver asks for every block that it has passed over and still lacks.
//! - T3 with it goes an error rate, smoothed: `e = 0.25 e + 0.75 * 0.5 * f`, `f` the requests of
//!   the period over requests and new blocks together. (The release adds how full its disk ring is
//!   and halves the sum; the ring is empty here, so that half a loss ratio is what is reported.)
//! - T4 [FIX, from the release] above the threshold of 7.5 % the IPD grows by
//!   `1 + (25/24 - 1) * (e - 7.5 %)/(1 - 7.5 %)`, else it shrinks by 5/6; it stays between the
//!   IPD of the user's target rate and 10 ms.
//! - T5 after its last block the sender repeats it until told to stop.
//!
//! Departures:
//! - D1 The list of requests has no bound; the release starts the whole transfer again from the
//!   first missing block when more than 2,048 are missing.
//! - D2 The control connection is packets: a lost request is made again in the next period, a lost
//!   stop is said again whenever a block comes after the end, at most each 50 ms.
//! - D3 Delivered is what is in its place.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Rate, Span, Time};

use super::message::{self, Data, FIELDS, Message, Stamp};
use super::pacer::{self, Pacer};
use super::transfer::{Arrivals, Backlog, Pick, Transfer, Turn};
use crate::{Body, Endpoint, Packet, Progress};

/// What Tsunami's receiver says on its control connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// T2: these blocks, please.
    Request(Vec<Range<u64>>),
    /// T3: the smoothed error rate, 0 to 1.
    ErrorRate(f64),
    /// T5: all is here.
    Stop,
}

/// What the sender does with an error rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Nothing, as SABUL (I) says.
    Fixed,
    /// T4, with the release's default values.
    Released,
}

/// T4: the next inter-packet delay in seconds, after an error rate `e`.
pub fn next_delay(delay: f64, e: f64, least: f64) -> f64 {
    let factor = if e > THRESHOLD {
        1.0 + (SLOWER - 1.0) * (e - THRESHOLD) / (1.0 - THRESHOLD)
    } else {
        FASTER
    };
    (delay * factor).min(LONGEST).max(least)
}

/// T3: the next smoothed error rate.
pub fn smooth_error(e: f64, requests: u64, blocks: u64) -> f64 {
    let fraction = requests as f64 / (1.0 + requests as f64 + blocks as f64);
    HISTORY * e + (1.0 - HISTORY) * 0.5 * fraction
}

/// Tsunami's sending end.
#[derive(Clone, Debug)]
pub struct Sender {
    transfer: Transfer,
    law: Law,
    /// The target rate's IPD, and the present one, in seconds.
    least: f64,
    delay: f64,
    demand: Option<Rate>,
    pacer: Pacer,
    stamp: Stamp,
    backlog: Backlog,
    done: bool,
}

impl Sender {
    /// A sender whose target is `rate`, counted in bytes on links.
    pub fn new(transfer: Transfer, rate: Rate, law: Law) -> Sender {
        let least = pacer::gap(transfer.packet(), rate);
        Sender {
            transfer,
            law,
            least,
            delay: least,
            demand: None,
            pacer: Pacer::new(),
            stamp: Stamp::default(),
            backlog: Backlog::new(&transfer),
            done: transfer.blocks() == 0,
        }
    }

    fn gap(&self) -> f64 {
        let limit = self.demand.map_or(0.0, |rate| pacer::gap(self.transfer.packet(), rate));
        self.delay.max(limit)
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, _now: Time, packet: &Packet) {
        let Body::Rate(Message::Tsunami(control)) = &packet.body else { return };
        match control {
            Control::Request(wanted) => {
                for range in wanted {
                    self.backlog.repeat(range.clone());
                }
            }
            Control::ErrorRate(e) => match self.law {
                Law::Fixed => {}
                Law::Released => self.delay = next_delay(self.delay, *e, self.least),
            },
            Control::Stop => self.done = true,
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        let gap = self.gap();
        if self.done || !self.pacer.is_ready(now, gap) {
            return None;
        }
        // T1, T5.
        let last = Pick { block: self.transfer.blocks() - 1, turn: Turn::Again };
        let pick = self.backlog.take(u64::MAX).unwrap_or(last);
        self.pacer.note_sent(now, gap);
        Some(message::data(&self.transfer, self.stamp.next(now, pick, gap)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        (!self.done).then(|| self.pacer.due(self.gap()))
    }

    fn set_demand(&mut self, _now: Time, rate: Option<Rate>) {
        self.demand = rate;
    }

    fn progress(&self) -> Progress {
        let delivered = if self.done { self.transfer.blocks() } else { 0 };
        Progress {
            delivered: self.transfer.prefix(delivered),
            sent: self.stamp.sent,
            repeated: self.stamp.repeated,
            rate: pacer::rate(self.transfer.packet(), self.delay),
            done: self.done,
            ..Progress::default()
        }
    }
}

/// Tsunami's receiving end.
#[derive(Clone, Debug)]
pub struct Receiver {
    transfer: Transfer,
    arrivals: Arrivals,
    error: f64,
    /// Different blocks at the last report.
    reported: u64,
    next: Time,
    stopped: Option<Time>,
    outbox: VecDeque<Control>,
}

impl Receiver {
    /// A receiver of `transfer`.
    pub fn new(transfer: Transfer) -> Receiver {
        Receiver {
            transfer,
            arrivals: Arrivals::new(transfer),
            error: 0.0,
            reported: 0,
            next: Time::MAX,
            stopped: None,
            outbox: VecDeque::new(),
        }
    }

    fn report(&mut self) {
        let missing = self.arrivals.missing(0..self.arrivals.top());
        let requests = missing.iter().map(|range| range.end - range.start).sum();
        let blocks = self.arrivals.blocks() - self.reported;
        self.reported = self.arrivals.blocks();
        self.error = smooth_error(self.error, requests, blocks);
        self.outbox.extend(message::pages(missing).into_iter().map(Control::Request));
        self.outbox.push_back(Control::ErrorRate(self.error));
    }
}

impl Endpoint for Receiver {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(Message::Data(Data { block, .. })) = &packet.body else { return };
        if self.next == Time::MAX {
            self.next = now + PERIOD;
        }
        self.arrivals.insert(*block);
        // T5, D2.
        let stale = self.stopped.is_none_or(|at| now >= at + STOP_AGAIN);
        if self.arrivals.is_complete() && stale {
            self.stopped = Some(now);
            self.outbox.clear();
            self.outbox.push_back(Control::Stop);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.stopped.is_none() && now >= self.next {
            self.report();
            self.next = now + PERIOD;
        }
    }

    fn poll_transmit(&mut self, _now: Time) -> Option<Packet> {
        let control = self.outbox.pop_front()?;
        let bytes = match &control {
            Control::Request(ranges) => message::bytes_of(ranges),
            Control::ErrorRate(_) | Control::Stop => FIELDS.0,
        };
        Some(message::control(&self.transfer, bytes, Message::Tsunami(control)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        (self.stopped.is_none() && self.next < Time::MAX).then_some(self.next)
    }

    /// There is no flow control: see [`Slow`](super::Slow) for a receiver that reads slowly.
    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}

    fn progress(&self) -> Progress {
        Progress {
            delivered: self.arrivals.in_place(),
            done: self.arrivals.is_complete(),
            ..Progress::default()
        }
    }
}

/// T2, T3: the release's update period.
const PERIOD: Span = Span::from_millis(350);
/// T4, the release's defaults: threshold, factors, and the longest IPD in seconds.
const THRESHOLD: f64 = 0.075;
const SLOWER: f64 = 25.0 / 24.0;
const FASTER: f64 = 5.0 / 6.0;
const LONGEST: f64 = 0.01;
/// T3: weight of the past.
const HISTORY: f64 = 0.25;
/// D2.
const STOP_AGAIN: Span = Span::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_shrinks_by_a_sixth_below_the_threshold_but_not_under_the_targets() {
        assert!((next_delay(24e-6, 0.05, 12e-6) - 20e-6).abs() < 1e-12);
        assert_eq!(next_delay(13e-6, 0.0, 12e-6), 12e-6);
    }

    #[test]
    fn the_delay_grows_with_the_excess_over_the_threshold() {
        // All lost: the full 25/24. Half the way up from 7.5 %: half of it.
        assert!((next_delay(24e-6, 1.0, 12e-6) - 25e-6).abs() < 1e-12);
        assert!((next_delay(24e-6, 0.5375, 12e-6) - 24.5e-6).abs() < 1e-12);
        assert_eq!(next_delay(0.01, 1.0, 12e-6), 0.01);
    }

    #[test]
    fn the_error_rate_is_half_the_requests_share_smoothed() {
        // 100 requests beside 899 new blocks: a tenth.
        assert!((smooth_error(0.0, 100, 899) - 0.0375).abs() < 1e-12);
        assert!((smooth_error(0.04, 0, 899) - 0.01).abs() < 1e-12);
    }
}
