//! The source's end of a session: answers requests at the rate it is granted.
//!
//! It sends at the smallest of its own host's target, the sink's newest grant, what the path has
//! proven to carry and what the application supplies. It keeps no copy and no retransmission
//! state. A grant is a lease: without feedback the rate halves each interval and soon ends.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use gtp_alloc::led::{Counts, Next, SourceLaw};
use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::demand::{Demand, Lack};
use crate::ecn::{Codepoint, Validation};
use crate::handshake::{Handshake, HelloOut, Outcome, Role};
use crate::limits::{
    INTERVAL_MAX, INTERVAL_MIN, LEASE_MIN, RAMP_FACTOR, SESSION_TIMEOUT, SILENCE_STOP,
    UNIT_ETHERNET,
};
use crate::meter::{RttMeter, StreamMeter};
use crate::pacer::Pacer;
use crate::path::{Path, SendLog};
use crate::proof::ProofKey;
use crate::receipt::{Arrivals, Proven, ReceiptVerifier};
use crate::report::{Grant, Law, Phase, Report};
use crate::requests::{Answerer, Class, Left};
use crate::session::{
    Arrival, Discard, Event, Link, Numbering, Transmit, Unit, Wake, earliest, wire_span,
};
use crate::weight::{SharedWeight, Weights};
use crate::wire::{Control, DATA_HEAD_LEN, DataHead, Feedback, HEADER_LEN, Header, Kind, Status};

mod asked;
mod bounds;
mod claim;
mod ecn;
mod kept;
mod path;
mod rest;
mod supplied;
mod told;

pub use kept::{Kept, PathUse};

use ecn::heeds_marks;
use told::{Told, Word};

/// What a source needs to know at the start.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Which end opens the path.
    pub role: Role,
    /// Where datagrams go.
    pub link: Link,
    /// Control law.
    pub law: Law,
    /// What each end brings to the session's weight.
    pub weights: Weights,
    /// A limit that the user set.
    pub max_rate: Rate,
    /// 16 bytes of the host's entropy, for proofs of receipt.
    pub proof_key: [u8; 16],
}

/// What the host says when asked for a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supplied {
    /// It is at hand and this many bytes long.
    Ready(u16),
    /// It is still being read or produced.
    NotYet,
    /// It cannot leave now: what carries the session's datagrams pushes back.
    NoRoom,
    /// The object has no such unit: the peer asks for nonsense.
    NoSuchUnit,
}

/// Where units come from.
pub trait Supply {
    /// Whether the bytes of `unit` are at hand.
    fn supply(&mut self, unit: u64) -> Supplied;
}

impl<F: FnMut(u64) -> Supplied> Supply for F {
    fn supply(&mut self, unit: u64) -> Supplied {
        self(unit)
    }
}

/// Counters of a source, for people and traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Data packets sent.
    pub packets: u64,
    /// IP bytes of them.
    pub bytes: u64,
    /// Packets of all kinds that receipts proved to have arrived, and those that they called
    /// missing.
    pub delivered: u64,
    /// See `delivered`.
    pub lost: u64,
    /// IP bytes of data packets that receipts proved to have arrived.
    pub delivered_bytes: u64,
}

/// What feedback last said.
#[derive(Clone, Debug)]
struct Heard {
    /// When it was read.
    at: Time,
    /// When it reached this host.
    came_at: Time,
    pn: Option<u64>,
    sent_at: u32,
    grant: u32,
    rate: Rate,
    offer: Rate,
    interval: Span,
    router_binds: bool,
}

/// The source's end of a session.
#[derive(Debug)]
pub struct SourceSession {
    config: SourceConfig,
    /// Who decides the rate under [`Law::SourceAlone`].
    alone: Option<Box<dyn SourceLaw>>,
    numbering: Numbering,
    handshake: Handshake,
    arrivals: Arrivals,
    receipts: ReceiptVerifier,
    told: Told,
    answerer: Answerer,
    moves: Moves,
    unit_payload: Option<u16>,
    /// The sink has found that units must be shorter than it presumed.
    begun_anew: bool,
    /// The first packet number after that.
    begun_at: u64,
    pacer: Pacer,
    path: Path,
    kept: Kept,
    uses: PathUse,
    /// When a receipt last said something of the path.
    path_heard_at: Option<Time>,
    path_group: u16,
    log: SendLog,
    ecn: Validation,
    /// Marked packets of which the path has not been told.
    marked: u64,
    rtt: RttMeter,
    sent_meter: StreamMeter,
    demand: Demand,
    /// Nothing to send is at hand; there is no point in waking up for the pacer.
    starved: bool,
    /// When the sending rate was worked out, if nothing that it follows from changed since: the
    /// datagrams of a burst leave at one time and at one rate.
    settled: Option<Time>,
    target: Grant,
    weight: SharedWeight,
    heard: Heard,
    last_datagram: Time,
    status_due: Time,
    status_urgent: bool,
    /// When the sink last asked for something; the start before that.
    asked_at: Time,
    /// The next status is as far away as that of a session at rest.
    resting: bool,
    told_offer: Rate,
    /// What routers that this end asks could let the session have; unlimited where it asks none.
    routers: Rate,
    closing: bool,
    /// Farewells to be said: two, because a lost one would cost others a lease.
    closes_due: u8,
    violated: Option<&'static str>,
    events: Vec<Event>,
    counters: SourceCounters,
}

/// What a session's units are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moves {
    /// Parts of something that is there.
    Object,
    /// What an application says, as it says it.
    Stream,
}

/// A change of the offer smaller than this waits for the next interval.
const OFFER_NEWS: f64 = 0.02;

impl SourceSession {
    /// A source session that begins at `now`.
    pub fn new(now: Time, config: SourceConfig) -> SourceSession {
        SourceSession {
            alone: None,
            numbering: Numbering::new(config.link),
            handshake: Handshake::new(now, config.role.clone().patient()),
            arrivals: Arrivals::default(),
            receipts: ReceiptVerifier::new(ProofKey::new(config.proof_key)),
            told: Told::default(),
            answerer: Answerer::default(),
            moves: Moves::Object,
            unit_payload: None,
            begun_anew: false,
            begun_at: 0,
            pacer: Pacer::new(now),
            path: Path::new(now),
            kept: Kept::default(),
            uses: PathUse::default(),
            path_heard_at: None,
            path_group: 0,
            log: SendLog::default(),
            ecn: Validation::new(heeds_marks(&config, Kept::default())),
            marked: 0,
            rtt: RttMeter::default(),
            sent_meter: StreamMeter::new(now),
            demand: Demand::new(now),
            starved: false,
            settled: None,
            target: Grant {
                number: 0,
                rate: Rate::ZERO,
                offer: Rate::ZERO,
                weight: config.weights.own,
                interval: INTERVAL_MIN,
            },
            weight: SharedWeight::new(config.weights),
            heard: Heard {
                at: now,
                came_at: now,
                pn: None,
                sent_at: 0,
                grant: 0,
                rate: Rate::ZERO,
                offer: Rate::UNLIMITED,
                interval: INTERVAL_MIN,
                router_binds: false,
            },
            last_datagram: now,
            status_due: now,
            status_urgent: false,
            asked_at: now,
            resting: false,
            told_offer: Rate::ZERO,
            routers: Rate::UNLIMITED,
            closing: false,
            closes_due: 0,
            violated: None,
            events: Vec::new(),
            counters: SourceCounters::default(),
            config,
        }
    }

    /// The same for a stream: units come into being one after another, as the application speaks,
    /// so the sink is told how far this end is within a request.
    #[must_use]
    pub fn of_stream(mut self) -> SourceSession {
        self.moves = Moves::Stream;
        self
    }

    /// The same, its rate decided by this law; for [`Law::SourceAlone`] and [`Law::SessionAlone`],
    /// where nothing would be sent without one. The sink's limit, the lease and the host's capacity
    /// hold all the same.
    #[must_use]
    pub fn deciding_by(mut self, law: Box<dyn SourceLaw>) -> SourceSession {
        self.alone = Some(law);
        self
    }

    /// The interface that datagrams leave by has this rate from now on, if the law that decides
    /// here asks for it.
    pub fn set_interface(&mut self, rate: Rate) {
        self.settled = None;
        if let Some(law) = &mut self.alone {
            law.set_interface(rate);
        }
    }

    /// Changes the limit that its host sets.
    pub fn set_max_rate(&mut self, rate: Rate) {
        self.settled = None;
        self.config.max_rate = rate;
    }

    /// No unit from this one on has been asked for as work, in requests accepted so far.
    pub fn asked_end(&self) -> u64 {
        self.answerer.furthest()
    }

    /// Takes in a datagram that opened under the session's key.
    pub fn handle_datagram(
        &mut self,
        came: Arrival,
        header: Header,
        body: &[u8],
    ) -> Result<(), Discard> {
        let now = came.read;
        self.settled = None;
        if let Some(why) = self.violated {
            return Err(Discard::Violation(why)); // Nothing more is done for this peer.
        }
        let control = Control::decode(header.kind, body)?.ok_or(Discard::Misdirected)?;
        self.arrivals.accept(header.pn)?;
        self.last_datagram = now;
        match control {
            Control::Hello(hello) => self.handshake.handle_hello(hello),
            Control::HelloAck(hello) => {
                let rtt = wire_span(came.at, hello.sent_at, 0);
                self.rtt.add(now, rtt);
                self.handshake.handle_ack(now, hello, rtt);
            }
            Control::Feedback(feedback) => self.handle_feedback(came, header.pn, feedback)?,
            Control::Request(request) => self.handle_request(now, request)?,
            Control::Close => {
                self.closing = true;
                self.events.push(Event::PeerClosed);
            }
            Control::Status(_) => return Err(Discard::Misdirected),
        }
        self.relay_handshake();
        self.update_rate(now);
        Ok(())
    }

    /// This host's agent has decided.
    pub fn handle_grant(&mut self, now: Time, grant: Grant) {
        self.settled = None;
        self.status_urgent |= self.weight.set_own(grant.weight);
        self.target = grant;
        self.update_rate(now);
    }

    /// What the routers that this host asks could let the session have, for what is said of its
    /// limits. Their grants are part of the host's.
    pub fn handle_routers(&mut self, offer: Rate) {
        self.routers = offer;
    }

    /// This end is done: says so to the peer and wants nothing more.
    pub fn close(&mut self) {
        self.settled = None;
        self.closing = true;
        // A path that is not open carries no farewell either (docs/PROTOCOL.md, M36).
        self.closes_due = if self.handshake.is_open() { 2 } else { 0 };
    }

    /// What the agent of this host should know.
    pub fn report(&mut self, now: Time) -> Report {
        let (demand, firm) = self.claim(now);
        Report {
            weight: self.config.weights.own,
            peer_weight: self.weight.peer(),
            law: self.config.law,
            phase: if self.closing { Phase::Closing } else { Phase::Open },
            peer_offer: match self.config.law {
                Law::Grant => self.heard.offer,
                Law::EndNode { .. } | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => {
                    Rate::UNLIMITED
                }
            },
            demand,
            firm,
            party: 0,
            owner: crate::report::Owner::NOBODY,
            measured: self.sent_meter.rate(),
            echoed: 0,
            rtt: self.rtt.smoothed(),
            counts: self.counts(),
            packet: self.packet_bytes(),
        }
    }

    /// The next datagram to send at `now`, its head written to `head`.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        supply: &mut dyn Supply,
        head: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.settled != Some(now)
            && let ControlFlow::Break(first) = self.poll_first(now, head)
        {
            return first;
        } // Else all of that is settled as well.
        self.poll_open(now, supply, head)
    }

    /// What goes before everything else, or nothing if the path is not open.
    fn poll_first(&mut self, now: Time, head: &mut Vec<u8>) -> ControlFlow<Option<Transmit>> {
        if let Some(hello) = self.handshake.poll_hello(now) {
            let control = match hello {
                HelloOut::Hello(hello) => Control::Hello(hello),
                HelloOut::Ack(hello) => Control::HelloAck(hello),
            };
            return ControlFlow::Break(Some(self.control(now, control, head)));
        }
        self.relay_handshake();
        if self.closes_due > 0 {
            self.closes_due -= 1;
            return ControlFlow::Break(Some(self.control(now, Control::Close, head)));
        }
        if !self.handshake.is_open() {
            return ControlFlow::Break(None);
        }
        self.interval(now);
        ControlFlow::Continue(())
    }

    /// When to call again, and why.
    pub fn poll_timeout(&self) -> Option<(Time, Wake)> {
        let hello = self.handshake.poll_timeout().map(|at| (at, Wake::Handshake));
        if self.closes_due > 0 {
            return Some((Time::ZERO, Wake::Interval));
        }
        if !self.handshake.is_open() {
            return hello;
        }
        if self.status_urgent {
            return Some((Time::ZERO, Wake::Interval));
        }
        let may_send = !self.closing && !self.starved && !self.is_blind();
        let working = may_send && self.answerer.peek().is_some();
        let pacing = if working { self.pacer.next_wake() } else { None };
        let next = earliest(hello, pacing.map(|at| (at, Wake::Pacing)));
        let decides = self.alone.as_ref().and_then(|law| law.poll_timeout());
        let next = earliest(next, decides.map(|at| (at, Wake::Interval)));
        earliest(next, Some((self.status_due, Wake::Interval)))
    }

    /// What the host should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() { None } else { Some(self.events.remove(0)) }
    }

    /// Units that will be wanted next, for reading ahead.
    pub fn upcoming(&self) -> impl Iterator<Item = core::ops::Range<u64>> + '_ {
        self.answerer.upcoming()
    }

    /// The rate at which this session may send now.
    pub fn sending_rate(&self) -> Rate {
        self.pacer.rate()
    }

    /// The sink's newest grant.
    pub fn granted(&self) -> Rate {
        self.heard.rate
    }

    /// Average sending rate over the last control interval.
    pub fn measured_rate(&self) -> Rate {
        self.sent_meter.rate()
    }

    /// Smoothed round-trip time; zero while unknown.
    pub fn rtt(&self) -> Span {
        self.rtt.smoothed()
    }

    /// Counters since the start.
    pub fn counters(&self) -> SourceCounters {
        self.counters
    }

    fn handle_feedback(&mut self, came: Arrival, pn: u64, f: Feedback) -> Result<(), Discard> {
        let now = came.read;
        let overtaken = self.heard.pn.is_some_and(|newest| pn < newest);
        if !overtaken {
            if f.grant < self.heard.grant {
                return Err(self.violation("a grant number went back"));
            }
            if f.echo_at != 0 || f.echo_hold != 0 {
                self.rtt.add(now, wire_span(came.at, f.echo_at, f.echo_hold));
            }
        }
        let packet = self.packet_bytes();
        let proven = match self.receipts.verify(&f.receipt, self.numbering.upcoming(), packet) {
            Ok(proven) => proven,
            Err(Discard::Violation(why)) => return Err(self.violation(why)),
            Err(other) => return Err(other),
        };
        if !overtaken {
            self.hear(came, pn, &f);
        } else if proven.is_none() {
            return Err(Discard::Stale); // It says nothing new but what arrived.
        }
        if let Some(proven) = proven {
            if !overtaken {
                self.hear_counts(now, &f);
            }
            self.take_proof(now, &f, proven);
        }
        Ok(())
    }

    /// The newest feedback is the sink's word.
    fn hear(&mut self, came: Arrival, pn: u64, f: &Feedback) {
        if f.grant > self.heard.grant {
            self.status_urgent = true;
        }
        self.weight.hear(f.weight);
        self.note_news(came.read, f.rate);
        self.heard = Heard {
            at: came.read,
            came_at: came.at,
            pn: Some(pn),
            sent_at: f.sent_at,
            grant: f.grant,
            rate: f.rate,
            offer: f.offer,
            interval: Span::from_micros(f.interval.into()).clamp(INTERVAL_MIN, INTERVAL_MAX),
            router_binds: f.router_binds,
        };
    }

    /// Counts what is proven, and where the time in which it arrived is known, tells the path.
    fn take_proof(&mut self, now: Time, f: &Feedback, proven: Proven) {
        if proven.span.start < self.begun_at {
            return; // Packets that were too long for the path say nothing of what it carries.
        }
        self.counters.delivered += proven.packets;
        self.counters.lost += proven.lost;
        // A receipt counts whole packets; what was sent may have been shorter.
        let from = self.log.at(proven.span.start);
        let at_most = |from| proven.bytes.min(self.log.sent_at_most(from, proven.span.end));
        let arrived = from.map_or(Bytes::ZERO, at_most);
        self.counters.delivered_bytes += arrived.0;
        // Where nothing with a proof arrived, there is no time of arrival either.
        let any = f.receipt.bytes != 0 || f.receipt.sum != 0;
        let arrived_at = any.then_some(f.receipt.arrived_at);
        let delay = Span::from_micros(f.delay.into());
        let peak = Span::from_micros(f.delay_most.unwrap_or(f.delay).into());
        let lost = proven.lost;
        let word = Word { span: proven.span, arrived, lost, arrived_at, delay, peak };
        for timed in self.told.add(word) {
            self.tell_path(now, timed);
        }
    }

    fn poll_open(
        &mut self,
        now: Time,
        supply: &mut dyn Supply,
        head: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.status_urgent || self.status_due <= now {
            return Some(self.status(now, head));
        }
        if self.settled != Some(now) {
            self.update_rate(now);
            self.settled = Some(now);
        }
        self.poll_data(now, supply, head)
    }

    /// The application, or what carries the datagrams, does not let a unit go that was asked for.
    #[cold]
    fn handle_lack(&mut self, now: Time, supplied: Supplied) {
        match supplied {
            Supplied::NotYet => self.starve(now, Lack::Data),
            Supplied::NoRoom => self.starve(now, Lack::Room),
            Supplied::NoSuchUnit => {
                self.violation("a request for units that the object does not have");
            }
            Supplied::Ready(_) => {}
        }
    }

    fn poll_data(
        &mut self,
        now: Time,
        supply: &mut dyn Supply,
        head: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.closing || self.is_blind() || !self.pacer.may_send(now) {
            return None;
        }
        let Some((request, unit)) = self.answerer.peek() else {
            self.starve(now, Lack::Requests);
            return None;
        };
        let len = match supply.supply(unit) {
            Supplied::Ready(len) => len,
            supplied => {
                self.handle_lack(now, supplied);
                return None;
            }
        };
        let header = self.numbering.next(Kind::Data);
        let pn = header.pn;
        let data = DataHead {
            proof: self.receipts.tag(pn),
            sent_at: now.as_wire_micros(),
            grant: self.heard.grant,
            request,
            unit,
        };
        head.clear();
        data.encode_after(&header, head);
        if self.answerer.advance() == Left::Nothing {
            self.status_urgent = true; // The sink learns at once that this was all.
        }
        let bytes = self.config.link.wire_bytes(head.len() + usize::from(len));
        self.pacer.sent(now, bytes);
        self.sent_meter.add(now, pn, now.as_wire_micros(), bytes);
        self.log.sent(now, pn, bytes);
        let (answerer, packet) = (&self.answerer, self.packet_bytes());
        self.demand.sent(now, bytes, || claim::left(answerer, packet));
        self.counters.packets += 1;
        self.counters.bytes += bytes.0;
        if self.resting {
            self.stir(now);
        }
        let ecn = self.ecn.send(pn);
        Some(Transmit { pn, unit: Some(Unit { number: unit, len }), ecn })
    }

    fn interval(&mut self, now: Time) {
        if now.since(self.last_datagram) > SESSION_TIMEOUT && !self.closing {
            self.closing = true;
            self.events.push(Event::TimedOut);
        }
        let (span, late) = (self.target.measures(self.config.law), self.target.pause());
        self.sent_meter.roll(now, span, late);
        self.demand.roll(now);
        let (counts, packet) = (self.counts(), self.packet_bytes());
        if let Some(law) = &mut self.alone {
            law.handle_counts(now, &counts, packet);
        }
    }

    fn counts(&self) -> Counts {
        Counts { received: self.counters.delivered, lost: self.counters.lost }
    }

    /// The one definition of the sending rate.
    fn update_rate(&mut self, now: Time) {
        let ends = match self.config.law {
            // What is granted is in what its law says, which may exceed it for moments.
            Law::SessionAlone => self.target.rate,
            Law::Grant | Law::EndNode { .. } | Law::SourceAlone | Law::SinkAlone => {
                self.target.rate.min(self.heard.rate)
            }
        };
        let own = match self.config.law {
            Law::Grant | Law::EndNode { .. } => self.ceiling(now),
            Law::SourceAlone => self.decided().min(self.config.max_rate),
            Law::SessionAlone => self.decided().min(self.obeys(now, 1.0)),
            Law::SinkAlone => self.obeys(now, 1.0),
        };
        let rate = lease(ends.min(own), now.since(self.heard.at), &self.heard);
        self.pacer.set_rate(now, if self.closing { Rate::ZERO } else { rate });
        let offer = self.offer(now);
        let news = (offer.as_f64() - self.told_offer.as_f64()).abs();
        if news > OFFER_NEWS * self.told_offer.as_f64() {
            self.status_urgent = true;
        }
    }

    /// What this end's own law says.
    fn decided(&self) -> Rate {
        let (number, packet) = (self.numbering.upcoming(), self.packet_bytes());
        let next = Next { number, packet, granted: self.heard.rate };
        self.alone.as_ref().map_or(Rate::ZERO, |law| law.rate_of(&next))
    }

    /// What the session could send if the sink did not limit it.
    fn offer(&mut self, now: Time) -> Rate {
        let own = match self.config.law {
            _ if self.closing => Rate::ZERO,
            Law::Grant | Law::EndNode { .. } => self.prospect(now),
            Law::SourceAlone => self.decided().min(self.config.max_rate),
            Law::SessionAlone => self.decided().min(self.obeys(now, RAMP_FACTOR)),
            Law::SinkAlone => self.obeys(now, RAMP_FACTOR),
        };
        self.target.offer.min(own)
    }

    fn status(&mut self, now: Time, head: &mut Vec<u8>) -> Transmit {
        self.settled = None;
        self.update_rate(now);
        let offer = self.offer(now);
        self.told_offer = offer;
        self.status_urgent = false;
        self.status_due = now + self.pause(now);
        let hold = now.since(self.heard.came_at).as_micros().min(u64::from(u32::MAX)) as u32;
        let heard_any = self.heard.pn.is_some();
        let status = Status {
            proof: self.receipts.tag(self.numbering.upcoming()),
            sent_at: now.as_wire_micros(),
            grant: self.heard.grant,
            offer,
            requests_next: self.answerer.requests_next(),
            work_front: self.answerer.front(Class::Work),
            repair_front: self.answerer.front(Class::Repair),
            echo_at: if heard_any { self.heard.sent_at } else { 0 },
            echo_hold: if heard_any { hold } else { 0 },
            limited_by: self.says_limited_by(),
            weight: self.weight.said(),
            work_unit: match self.moves {
                Moves::Object => None,
                Moves::Stream => self.answerer.next_unit(Class::Work),
            },
        };
        let transmit = self.control(now, Control::Status(status), head);
        if let Path::Shared(_) = self.path {
            self.log.said(now, transmit.pn, self.config.link.wire_bytes(head.len()));
        }
        if self.config.law == Law::Grant {
            // Slow sessions say much beside what they move, and a grant is for both.
            self.pacer.said(now, self.config.link.wire_bytes(head.len()));
        }
        transmit
    }

    fn control(&mut self, now: Time, control: Control, head: &mut Vec<u8>) -> Transmit {
        let pn = self.numbering.begin(control.kind(), head);
        if control.kind() != Kind::Status {
            self.receipts.mark_plain(pn);
        }
        let ecn = match control {
            Control::Status(_) => self.ecn.send_status(now, pn, self.rtt.smoothed()),
            Control::Hello(_)
            | Control::HelloAck(_)
            | Control::Feedback(_)
            | Control::Request(_)
            | Control::Close => {
                self.ecn.send_plain(pn);
                Codepoint::NotEct
            }
        };
        control.encode(head);
        Transmit { pn, unit: None, ecn }
    }

    /// IP bytes of a packet with a whole unit.
    pub fn packet_bytes(&self) -> Bytes {
        let unit = usize::from(self.unit_payload.unwrap_or(UNIT_ETHERNET));
        self.config.link.wire_bytes(HEADER_LEN + DATA_HEAD_LEN + unit)
    }

    fn relay_handshake(&mut self) {
        match self.handshake.poll_outcome() {
            Some(Outcome::Open { unit_payload }) => {
                self.events.push(Event::PathOpen { unit_payload });
            }
            Some(Outcome::Presumed { .. }) => {} // No source is eager.
            Some(Outcome::NoPath) => self.events.push(Event::NoPath),
            None => {}
        }
    }

    fn violation(&mut self, why: &'static str) -> Discard {
        self.settled = None;
        if self.violated.is_none() {
            self.events.push(Event::Violated(why));
        }
        self.closing = true;
        self.violated = Some(why);
        Discard::Violation(why)
    }
}

/// A grant is a lease: after a silence its rate halves each interval, and soon nothing is sent.
fn lease(rate: Rate, silence: Span, heard: &Heard) -> Rate {
    if silence >= SILENCE_STOP {
        return Rate::ZERO;
    }
    let lease = LEASE_MIN.max(heard.interval * 4);
    if silence <= lease {
        return rate;
    }
    let over = silence.saturating_sub(lease).as_nanos() / heard.interval.as_nanos().max(1);
    let halvings = (over + 1).min(63) as u32;
    if rate.is_unlimited() { Rate::ZERO } else { Rate::from_bps(rate.as_bps() >> halvings) }
}
