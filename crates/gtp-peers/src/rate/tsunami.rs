//! Tsunami: blocks at a fixed inter-packet delay, and a receiver that asks for what is missing.
//!
//! Sources: SABUL (I), which says that it has no congestion control, and the released client and
//! server of 2002 to 2009, which have one ([`gtp_laws::tsunami`]): both are here ([`Law`]). The
//! receiver decides what is sent again and reports how bad it is; the sender decides the delay.
//!
//! Rules:
//! - T1 blocks leave in order, one each inter-packet delay (IPD); requested ones go first.
//! - T2 each 350 ms the receiver asks for every block that it has passed over and still lacks.
//! - T3 with it goes an error rate, smoothed.
//! - T4 the sender's delay follows it, between that of the user's target rate and 10 ms.
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
use gtp_laws::tsunami::{PERIOD, next_delay, smooth_error};

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
        self.arrivals.progress()
    }
}

/// D2.
const STOP_AGAIN: Span = Span::from_millis(50);
