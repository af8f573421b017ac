//! GTP 2004: the receiver asks for blocks at a rate, and one agent shares its capacity out.
//!
//! Source: Wu and Chien, "GTP: group transport protocol for lambda-grids", CCGrid 2004 (G). The
//! laws are in [`law`], the host-wide level in [`agent`] (`gtp-laws`); this file is the sink, which
//! does the single flow control, and the source, which only paces.
//!
//! Rules:
//! - G1 set-up: the sink asks, the source answers with the rate it can give; the sink has the round
//!   trip, joins its agent, and its first target is its first rate.
//! - G2 requests name blocks and a rate (3.3). New blocks are requested ahead up to the sink's
//!   buffer (4.1); each request says up to which block.
//! - G3 SFC: each round trip the rate follows [`law::flow_rate`] and goes into a request (4.1).
//! - G4 lost blocks, seen as gaps in the packets' numbers, are requested again by the sink (3.5).
//! - G5 a lower target holds at once when it holds; a higher one is climbed to by G3.
//!
//! Departures where G is silent:
//! - D1 The control connection is packets. What was requested again and does not come within two
//!   round trips is requested once more; rates are said each round trip anyway; opening is retried
//!   each second, the end each round trip until the source has heard it.
//! - D2 What comes after the highest block seen is requested again after two silent round trips.
//! - D3 Delivered is what is in its place.
//! - D4 Gaps are told from block numbers for G4; loss rates from the packets' numbers, so that a
//!   repeated block that is lost counts.

pub use gtp_laws::gtp2004::{agent, law};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::led::Counts;
use gtp_alloc::{Rate, Span, Time};

use self::agent::{FlowId, Shared};
use self::law::Single;
use super::message::{self, Data, FIELDS, Message, Stamp};
use super::pacer::{self, Pacer};
use super::transfer::{Arrivals, Backlog, Ordinals, Transfer};
use super::wanted::Wanted;
use crate::{Body, Endpoint, Packet, Progress};

/// What GTP's ends say on the control connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// G1: the sink opens, at this time of its clock.
    Open(Time),
    /// G1: the source is ready: the sink's clock, and `R_send`.
    Ready(Time, Rate),
    /// G2.
    Request(Request),
    /// D1: everything is here.
    Done,
    /// D1: the source has heard it.
    Bye,
}

/// G2: a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The sink's clock, for the round trip.
    pub clock: Time,
    /// Bits on links a second.
    pub rate: Rate,
    /// New blocks may be sent below this one.
    pub below: u64,
    /// G4: blocks to be sent again.
    pub again: Vec<Range<u64>>,
}

/// What a sink knows of its flow at set-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// `C_i`: the flow's link.
    pub link: Rate,
    /// G2: blocks that may be requested beyond the highest that came.
    pub buffer: u64,
}

impl Terms {
    /// A link of this rate and a buffer of 65,536 blocks, which holds no flow of the papers back.
    pub fn of(link: Rate) -> Terms {
        Terms { link, buffer: 65_536 }
    }
}

/// GTP's sending end.
#[derive(Clone, Debug)]
pub struct Source {
    transfer: Transfer,
    /// `R_send`, and the application's rate.
    limit: Rate,
    demand: Option<Rate>,
    rate: Rate,
    below: u64,
    clock: Time,
    /// The sink's clock, to be returned with the next block.
    echo: Option<Time>,
    pacer: Pacer,
    stamp: Stamp,
    backlog: Backlog,
    done: bool,
    outbox: VecDeque<Control>,
}

impl Source {
    /// A source that declares to be able to give `limit` ([`Rate::UNLIMITED`]: it does not say).
    pub fn new(transfer: Transfer, limit: Rate) -> Source {
        Source {
            transfer,
            limit,
            demand: None,
            rate: Rate::ZERO,
            below: 0,
            clock: Time::ZERO,
            echo: None,
            pacer: Pacer::new(),
            stamp: Stamp::default(),
            backlog: Backlog::new(&transfer),
            done: false,
            outbox: VecDeque::new(),
        }
    }

    fn spacing(&self) -> f64 {
        let rate = self.demand.map_or(self.rate, |limit| limit.min(self.rate));
        pacer::gap(self.transfer.packet(), rate)
    }

    fn hear(&mut self, request: &Request) {
        // Requests may overtake each other; the newest rate counts.
        if request.clock >= self.clock {
            (self.clock, self.rate) = (request.clock, request.rate);
            self.echo = Some(request.clock);
        }
        self.below = self.below.max(request.below);
        for range in &request.again {
            self.backlog.repeat(range.clone());
        }
    }
}

impl Endpoint for Source {
    fn handle_packet(&mut self, _now: Time, packet: &Packet) {
        let Body::Rate(Message::Gtp(control)) = &packet.body else { return };
        match control {
            Control::Open(clock) => self.outbox.push_back(Control::Ready(*clock, self.limit)),
            Control::Request(request) => self.hear(request),
            Control::Done => {
                self.done = true;
                self.outbox.push_back(Control::Bye);
            }
            Control::Ready(..) | Control::Bye => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if let Some(control) = self.outbox.pop_front() {
            return Some(message::control(&self.transfer, FIELDS.0, Message::Gtp(control)));
        }
        let spacing = self.spacing();
        if self.done || !self.pacer.is_ready(now, spacing) {
            return None;
        }
        if self.rate == Rate::ZERO {
            return None;
        }
        let pick = self.backlog.take(self.below)?;
        self.pacer.note_sent(now, spacing);
        let mark = self.echo.take().map_or(0, Time::as_nanos);
        let header = self.stamp.next(now, pick, spacing);
        Some(message::data(&self.transfer, Data { mark, ..header }))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let due = !self.done && self.rate > Rate::ZERO && self.backlog.has_more(self.below);
        due.then(|| self.pacer.due(self.spacing()))
    }

    fn set_demand(&mut self, _now: Time, rate: Option<Rate>) {
        self.demand = rate;
    }

    fn progress(&self) -> Progress {
        let known = if self.done { self.transfer.blocks() } else { 0 };
        Progress { done: self.done, ..self.stamp.progress(&self.transfer, known, self.rate) }
    }
}

/// GTP's receiving end: the single flow controller and monitor of one flow.
#[derive(Clone, Debug)]
pub struct Sink {
    transfer: Transfer,
    terms: Terms,
    agent: Shared,
    /// `R_app`.
    demand: Option<Rate>,
    stage: Stage,
    rtt: Span,
    /// `R_send`.
    offer: Rate,
    /// `r_req` and the target it follows.
    single: Single,
    ordinals: Ordinals,
    arrivals: Arrivals,
    wanted: Wanted,
    requested: u64,
    /// G3: the counts at the last round trip's end.
    counted: Counts,
    quiet_since: Time,
    outbox: VecDeque<Control>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was said yet.
    New,
    /// G1: asked; to be asked again at this time.
    Opening(Time),
    /// The flow, and when G3 is next.
    Flowing(FlowId, Time),
    /// D1: all is here, to be said again at this time.
    Ending(Time),
    Closed,
}

impl Sink {
    /// A sink of `transfer` at the host of `agent`.
    pub fn new(transfer: Transfer, terms: Terms, agent: Shared) -> Sink {
        Sink {
            transfer,
            terms,
            agent,
            demand: None,
            stage: Stage::New,
            rtt: Span::ZERO,
            offer: Rate::UNLIMITED,
            single: Single::default(),
            ordinals: Ordinals::default(),
            arrivals: Arrivals::new(transfer),
            wanted: Wanted::new(),
            requested: 0,
            counted: Counts::default(),
            quiet_since: Time::ZERO,
            outbox: VecDeque::new(),
        }
    }

    /// The target in force, in bit/s.
    pub fn target(&self) -> f64 {
        self.single.target()
    }

    fn cap(&self) -> Rate {
        self.terms.link.min(self.offer).min(self.demand.unwrap_or(Rate::UNLIMITED))
    }

    /// G1.
    fn begin(&mut self, now: Time, clock: Time, offer: Rate) {
        let Stage::Opening(_) = self.stage else { return };
        self.rtt = now.since(clock).max(Span::from_micros(1));
        self.offer = offer;
        let cap = self.cap();
        let id = self.agent.borrow_mut().join(now, self.rtt, cap, self.transfer.packet());
        self.stage = Stage::Flowing(id, now + self.rtt);
        self.quiet_since = now;
        self.follow(now, id);
    }

    /// G5: takes over the target in force. The first one is the first rate.
    fn follow(&mut self, now: Time, id: FlowId) {
        let target = self.agent.borrow_mut().target(now, id);
        if self.single.follow(target) {
            self.ask(now, Vec::new());
        }
    }

    /// G2.
    fn ask(&mut self, now: Time, again: Vec<Range<u64>>) {
        self.requested = self.arrivals.top().saturating_add(self.terms.buffer);
        let rate = Rate::from_f64(self.single.request());
        let request = Request { clock: now, rate, below: self.requested, again };
        self.outbox.push_back(Control::Request(request));
    }

    /// G3, D1, D2.
    fn end_round(&mut self, now: Time) {
        let counts = self.ordinals.counts();
        let round = counts.since(&self.counted);
        self.counted = counts;
        self.single.end_round((round.sent() > 0).then(|| round.loss()));
        let patience = self.rtt * 2;
        if now >= self.quiet_since + patience {
            self.quiet_since = now;
            let from = self.wanted.end().max(self.arrivals.top());
            let tail = from..self.requested.min(self.transfer.blocks());
            if self.transfer.is_finite() {
                self.wanted.ask(now.saturating_sub(patience), tail);
            }
        }
        let overdue = self.wanted.ask_again(now, |at, _| now >= at + patience);
        let mut pages = message::pages(overdue);
        self.ask(now, pages.pop().unwrap_or_default());
        pages.into_iter().for_each(|page| self.ask(now, page));
    }

    fn note_data(&mut self, now: Time, data: &Data) {
        let Stage::Flowing(id, _) = self.stage else { return };
        self.quiet_since = now;
        let before = self.ordinals.counts();
        self.ordinals.note(data.ordinal);
        self.agent.borrow_mut().note_counts(now, id, &before, self.ordinals.counts());
        if data.mark > 0 {
            let sample = now.since(Time::from_nanos(data.mark));
            self.rtt = (self.rtt * 7 + sample) / 8;
            self.agent.borrow_mut().set_path(id, self.rtt, self.transfer.packet());
        }
        let top = self.arrivals.top();
        if self.arrivals.insert(data.block) && data.block > top {
            self.wanted.ask(now, top..data.block);
            self.ask(now, alloc::vec![top..data.block]);
        }
        self.wanted.note_arrival(data.block);
        if self.arrivals.is_complete() {
            self.agent.borrow_mut().leave(id);
            self.outbox.clear();
            self.stage = Stage::Ending(now);
        }
    }
}

impl Endpoint for Sink {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(message) = &packet.body else { return };
        if let Message::Data(data) = message {
            self.note_data(now, data);
        }
        if let Message::Gtp(Control::Ready(clock, offer)) = message {
            self.begin(now, *clock, *offer);
        }
        if let (Message::Gtp(Control::Bye), Stage::Ending(_)) = (message, self.stage) {
            self.stage = Stage::Closed;
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let Stage::Flowing(id, round) = self.stage else { return };
        self.agent.borrow_mut().handle_timeout(now);
        self.follow(now, id);
        if round <= now {
            self.stage = Stage::Flowing(id, now + self.rtt);
            self.end_round(now);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        match self.stage {
            Stage::New => {
                self.stage = Stage::Opening(now + RETRY);
                self.outbox.push_back(Control::Open(now));
            }
            Stage::Opening(at) if at <= now => {
                self.stage = Stage::Opening(now + RETRY);
                self.outbox.push_back(Control::Open(now));
            }
            Stage::Ending(at) if at <= now => {
                self.stage = Stage::Ending(now + self.rtt.max(Span::from_millis(1)) * 2);
                self.outbox.push_back(Control::Done);
            }
            Stage::Opening(_) | Stage::Flowing(..) | Stage::Ending(_) | Stage::Closed => {}
        }
        let control = self.outbox.pop_front()?;
        let bytes = match &control {
            Control::Request(request) => FIELDS.0 + message::bytes_of(&request.again),
            Control::Open(_) | Control::Ready(..) | Control::Done | Control::Bye => FIELDS.0,
        };
        Some(message::control(&self.transfer, bytes, Message::Gtp(control)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.stage {
            Stage::Opening(at) | Stage::Ending(at) => Some(at),
            Stage::Flowing(id, round) => {
                let agent = self.agent.borrow().poll_timeout(id);
                Some(agent.map_or(round, |at| at.min(round)))
            }
            Stage::New | Stage::Closed => None,
        }
    }

    /// `R_app`: the rate that the application expects.
    fn set_demand(&mut self, now: Time, rate: Option<Rate>) {
        self.demand = rate;
        if let Stage::Flowing(id, _) = self.stage {
            let cap = self.cap();
            if self.agent.borrow_mut().set_cap(now, id, cap) {
                self.single.join_anew();
            }
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            delivered: self.arrivals.in_place(),
            rate: Rate::from_f64(self.single.request()),
            rtt: self.rtt,
            done: self.arrivals.is_complete(),
            ..Progress::default()
        }
    }
}

/// D1.
const RETRY: Span = Span::from_secs(1);
