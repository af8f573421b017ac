//! The sink's end of a session: asks for units, grants a rate, and tells what arrived.
//!
//! Each control interval it returns one feedback datagram: its grant and offer, the path's delay
//! and a receipt with proof. What the source has passed and is not here, it asks for again. It
//! holds no payload: its host places each unit where the unit's number says.

use alloc::boxed::Box;
use alloc::vec::Vec;

use gtp_alloc::led::{Came, Counts, SessionLaw};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_ranges::RangeSet;

use crate::claims::{Peer, Usage};
use crate::ecn::Codepoint;
use crate::excess::Excess;
use crate::handshake::{Handshake, HelloOut, Outcome, Role};
use crate::limits::{INTERVAL_MAX, INTERVAL_MIN, RAMP_FACTOR, SESSION_TIMEOUT, SILENCE_STOP};
use crate::meter::{Meter, RttMeter, StreamMeter};
use crate::path::first_rate;
use crate::receipt::{Arrivals, Counted, Delays, Finished, ReceiptBuilder};
use crate::report::{Grant, Law, Phase, Report};
use crate::requests::{Asker, Progress, Repairs};
use crate::session::{
    Arrival, Discard, Event, Link, Numbering, Transmit, Wake, earliest, wire_span,
};
use crate::weight::{SharedWeight, Weights};
use crate::wire::{
    Control, DATA_HEAD_LEN, DataHead, Feedback, HEADER_LEN, Header, Kind, Revision, STATUS_LEN,
    Status,
};

mod asking;
mod claim;
mod limits;
mod rest;

use rest::YOUNG_INTERVAL;

/// What a sink needs to know at the start.
#[derive(Clone, Debug)]
pub struct SinkConfig {
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
}

/// What a datagram was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A wanted unit: the host must place its bytes.
    Unit {
        /// Its number in the row.
        number: u64,
        /// Its bytes; the host must check that they are as many as the unit has.
        payload: &'a [u8],
    },
    /// Something for the session itself.
    Control,
}

/// Counters of a sink, for people and traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounters {
    /// Data packets that arrived.
    pub packets: u64,
    /// IP bytes of them.
    pub bytes: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Data packets whose unit was not wanted (any more), and their payload.
    pub duplicates: u64,
    /// See `duplicates`.
    pub duplicate_bytes: u64,
}

/// One-way delay above the smallest one of the last one to two minutes, in microseconds. The
/// two clocks need not agree; only differences are used.
#[derive(Debug, Default)]
struct Delay {
    origin: Option<u32>,
    least: [i32; 2],
    turned: Time,
    /// The least and the greatest of this interval.
    in_interval: Option<(i32, i32)>,
}

const DELAY_WINDOW: Span = Span::from_secs(60);

impl Delay {
    fn add(&mut self, now: Time, sent_at: u32) {
        let one_way = now.as_wire_micros().wrapping_sub(sent_at);
        let origin = *self.origin.get_or_insert(one_way);
        let sample = one_way.wrapping_sub(origin) as i32;
        if now.since(self.turned) > DELAY_WINDOW {
            self.least = [sample, self.least[0]];
            self.turned = now;
        }
        self.least[0] = self.least[0].min(sample);
        let (least, most) = self.in_interval.unwrap_or((sample, sample));
        self.in_interval = Some((least.min(sample), most.max(sample)));
    }

    /// The least and the greatest of the interval, which ends; none if nothing came.
    fn take_interval(&mut self) -> Option<Delays> {
        let usual = self.least[0].min(self.least[1]);
        let above = |sample: i32| sample.wrapping_sub(usual).max(0) as u32;
        let (least, most) = self.in_interval.take()?;
        Some(Delays { least: above(least), most: above(most) })
    }
}

/// Which grant the source obeys. An echo counts only after a guard time as long as the reordering
/// seen, so that no packet sent under an older grant can follow.
#[derive(Debug)]
struct Echo {
    accepted: u32,
    waiting: Option<(u32, Time)>,
    newest_sent_at: Option<u32>,
    guard: Span,
}

const GUARD_LEAST: Span = Span::from_millis(1);
const GUARD_MOST: Span = Span::from_millis(200);

impl Echo {
    fn heard(&mut self, now: Time, number: u32, sent_at: u32) {
        let late = self.newest_sent_at.map_or(0, |newest| newest.wrapping_sub(sent_at) as i32);
        if late > 0 {
            self.guard = self.guard.max(Span::from_micros(late as u64)).min(GUARD_MOST);
        } else {
            self.newest_sent_at = Some(sent_at);
        }
        if self.waiting.is_none() && number <= self.accepted {
            return;
        }
        let newest = self.waiting.map_or(self.accepted, |(n, _)| n);
        if number > newest {
            self.settle(now);
            // The first of several is kept: a stream of new numbers must not starve the guard.
            self.waiting.get_or_insert((number, now));
        }
        self.settle(now);
    }

    fn settle(&mut self, now: Time) {
        if let Some((number, since)) = self.waiting
            && now.since(since) >= self.guard
        {
            self.accepted = self.accepted.max(number);
            self.waiting = None;
        }
    }
}

/// What a datagram says of time and grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    came: Arrival,
    sent_at: u32,
    grant: u32,
}

/// Losses of a stream are looked for as soon as a gap shows that reordering does not explain.
#[derive(Debug, Default)]
struct Quick {
    /// When a gap becomes a loss, and how far the source was when it showed.
    open: Option<(Time, [Progress; 2])>,
    /// Another one has shown since.
    again: bool,
    /// How long it lasts at least before it is a loss.
    patience: Span,
}

/// The sink's end of a session.
#[derive(Debug)]
pub struct SinkSession {
    config: SinkConfig,
    /// Who decides the rate under [`Law::SessionAlone`].
    alone: Option<Box<dyn SessionLaw>>,
    numbering: Numbering,
    handshake: Handshake,
    arrivals: Arrivals,
    receipt: ReceiptBuilder,
    /// Whether packets overtake each other on this path.
    overtaken: bool,
    asker: Asker,
    /// What was assigned and will not come, and the host has not taken back yet.
    unreturned: RangeSet,
    quick: Option<Quick>,
    started: Time,
    grant: Grant,
    /// What routers that this end asks could let the session have; unlimited where it asks none.
    routers: Rate,
    weight: SharedWeight,
    told_grant: u32,
    echo: Echo,
    rtt: RttMeter,
    delay: Delay,
    peer: Option<Status>,
    newest_status: u64,
    heard_at: Option<(Time, u32)>,
    /// What was heard last, if no feedback was made since: the packets of a burst say the same.
    noted: Option<Said>,
    last_datagram: Time,
    measured: StreamMeter,
    received: Meter,
    excess: Excess,
    usage: Usage,
    source: Peer,
    feedback_due: Time,
    feedback_urgent: bool,
    /// When this end last asked for something, or the source's offer moved; the start before that.
    asked_at: Time,
    /// The next feedback is as far away as that of a session at rest.
    resting: bool,
    settle_due: Time,
    closing_since: Option<Time>,
    close_due: bool,
    /// When the source said that it sends nothing more.
    peer_closed: Option<Time>,
    events: Vec<Event>,
    counters: SinkCounters,
}

/// An unanswered request is repeated after a round trip and this.
const PATIENCE: Span = Span::from_millis(15);
/// The same while the round trip is unknown.
const PATIENCE_UNKNOWN: Span = Span::from_millis(200);

impl SinkSession {
    /// A sink session that begins at `now`.
    pub fn new(now: Time, config: SinkConfig) -> SinkSession {
        SinkSession {
            alone: None,
            numbering: Numbering::new(config.link),
            handshake: Handshake::new(now, config.role.clone()),
            arrivals: Arrivals::default(),
            receipt: ReceiptBuilder::default(),
            overtaken: false,
            asker: Asker::new(1),
            unreturned: RangeSet::new(),
            quick: None,
            started: now,
            grant: Grant {
                number: 0,
                rate: Rate::ZERO,
                offer: Rate::ZERO,
                weight: config.weights.own,
                interval: INTERVAL_MIN,
            },
            routers: Rate::UNLIMITED,
            weight: SharedWeight::new(config.weights),
            told_grant: 0,
            echo: Echo { accepted: 0, waiting: None, newest_sent_at: None, guard: GUARD_LEAST },
            rtt: RttMeter::default(),
            delay: Delay::default(),
            peer: None,
            newest_status: 0,
            heard_at: None,
            noted: None,
            last_datagram: now,
            measured: StreamMeter::new(now),
            received: Meter::new(now),
            excess: Excess::new(now),
            usage: Usage::new(now),
            source: Peer::Unheard,
            feedback_due: now,
            feedback_urgent: false,
            asked_at: now,
            resting: false,
            settle_due: now,
            closing_since: None,
            close_due: false,
            peer_closed: None,
            events: Vec::new(),
            counters: SinkCounters::default(),
            config,
        }
    }

    /// The same, its rate decided by this law; for [`Law::SessionAlone`], where nothing would be
    /// granted without one.
    #[must_use]
    pub fn deciding_by(mut self, law: Box<dyn SessionLaw>) -> SinkSession {
        self.alone = Some(law);
        self
    }

    /// The same for a stream: what is lost is noticed at once, and asked for again so often.
    #[must_use]
    pub fn of_stream(mut self, repairs: Repairs) -> SinkSession {
        self.quick = Some(Quick::default());
        self.asker.set_repairs(repairs);
        self
    }

    /// Of a stream: waits at least so long for what other packets have overtaken, also where no
    /// reordering was seen that takes as long.
    #[must_use]
    pub fn waiting(mut self, patience: Span) -> SinkSession {
        if let Some(quick) = &mut self.quick {
            quick.patience = patience;
        }
        self
    }

    /// Takes in a datagram that opened under the session's key.
    pub fn handle_datagram<'a>(
        &mut self,
        came: Arrival,
        header: Header,
        body: &'a [u8],
    ) -> Result<Received<'a>, Discard> {
        if header.kind == Kind::Data {
            let received = self.handle_data(came, header.pn, body);
            self.end_full_part(came.read);
            return received;
        }
        let control = Control::decode(header.kind, body)?.ok_or(Discard::Misdirected)?;
        self.arrivals.accept(header.pn)?;
        if self.silence(came.read) >= SILENCE_STOP {
            self.note_news(came.read);
        }
        self.hear_source(came.read);
        let handled = self.handle_control(came, header.pn, control);
        self.end_full_part(came.read); // Whatever it was, its number may have left a gap.
        self.relay_handshake(came.read);
        handled.map(|()| Received::Control)
    }

    fn handle_control(&mut self, came: Arrival, pn: u64, control: Control) -> Result<(), Discard> {
        let now = came.read;
        match control {
            Control::Hello(hello) => self.handshake.handle_hello(hello),
            Control::HelloAck(hello) => {
                let rtt = wire_span(came.at, hello.sent_at, 0);
                self.rtt.add(now, rtt);
                self.handshake.handle_ack(now, hello, rtt);
            }
            Control::Status(status) => {
                self.usage.said(self.config.link.wire_bytes(STATUS_LEN));
                self.handle_status(came, pn, status)?;
            }
            Control::Close => {
                self.peer_closed.get_or_insert(now);
                self.events.push(Event::PeerClosed);
            }
            Control::Feedback(_) | Control::Request(_) => return Err(Discard::Misdirected),
        }
        Ok(())
    }

    /// This host's agent has decided.
    pub fn handle_grant(&mut self, grant: Grant) {
        self.feedback_urgent |= grant.number != self.grant.number;
        self.feedback_urgent |= self.weight.set_own(grant.weight);
        self.grant = grant;
        if let Some(law) = &mut self.alone {
            law.handle_grant(grant.number);
        }
    }

    /// This end is done: it wants nothing more and says so. [`SinkSession::abandon`] returns what
    /// had not arrived.
    pub fn close(&mut self, now: Time) {
        self.stop_asking();
        if self.closing_since.is_none() {
            self.closing_since = Some(now);
            // A path that is not open carries no farewell either (docs/PROTOCOL.md, M36).
            self.close_due = self.handshake.is_open();
        }
    }

    /// Whether a closed session may be forgotten: nothing granted can still be under way.
    pub fn is_finished(&self, now: Time) -> bool {
        self.closing_since.is_some_and(|since| {
            let echoed = self.grant.rate == Rate::ZERO && self.echo.accepted >= self.grant.number;
            let lease = SILENCE_STOP + self.rtt.smoothed() * 2;
            let silent = self.peer_closed.is_some_and(|at| now.since(at) >= self.echo.guard);
            !self.close_due && (echoed || silent || now.since(since) > lease)
        })
    }

    /// Changes the limit that its host sets.
    pub fn set_max_rate(&mut self, rate: Rate) {
        self.config.max_rate = rate;
    }

    /// What the agent of this host should know.
    pub fn report(&mut self, now: Time) -> Report {
        self.echo.settle(now);
        let offer = match (&self.peer, self.config.law) {
            _ if self.silence(now) > SILENCE_STOP => Rate::ZERO,
            (_, Law::EndNode { .. } | Law::SourceAlone) => Rate::UNLIMITED,
            (None, Law::SinkAlone) | (_, Law::SessionAlone) => Rate::UNLIMITED,
            // Not yet heard: its first step and the next, as it will say itself.
            (None, Law::Grant) => first_rate(self.rtt.smoothed()).scale(RAMP_FACTOR),
            (Some(status), Law::Grant | Law::SinkAlone) => status.offer,
        };
        Report {
            weight: self.config.weights.own,
            peer_weight: self.weight.peer(),
            law: self.config.law,
            phase: if self.closing_since.is_some() { Phase::Closing } else { Phase::Open },
            peer_offer: offer,
            demand: self.claim(now),
            firm: self.firm(now, offer),
            party: 0,
            owner: crate::report::Owner::NOBODY,
            measured: self.measured.rate(),
            echoed: self.echo.accepted,
            rtt: self.rtt.smoothed(),
            counts: Counts { received: self.counters.packets, lost: self.counters.lost },
            packet: self.packet_bytes(),
        }
    }

    /// The next datagram to send at `now`, written to `head`.
    pub fn poll_transmit(&mut self, now: Time, head: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(hello) = self.handshake.poll_hello(now) {
            let control = match hello {
                HelloOut::Hello(hello) => Control::Hello(hello),
                HelloOut::Ack(hello) => Control::HelloAck(hello),
            };
            return Some(self.control(&control, head));
        }
        self.relay_handshake(now);
        if core::mem::take(&mut self.close_due) {
            return Some(self.control(&Control::Close, head));
        }
        if !self.handshake.may_ask() {
            return None;
        }
        self.interval(now);
        let full = self.receipt.due_at(self.late()).is_some_and(|at| at <= now);
        if self.feedback_urgent || full || self.feedback_due <= now {
            return Some(self.feedback(now, head));
        }
        let request = self.asker.poll_request(now, self.patience())?;
        self.note_news(now);
        Some(self.control(&Control::Request(request), head))
    }

    /// When to call again, and why.
    pub fn poll_timeout(&self) -> Option<(Time, Wake)> {
        let hello = self.handshake.poll_timeout().map(|at| (at, Wake::Handshake));
        if self.close_due {
            return Some((Time::ZERO, Wake::Interval));
        }
        if !self.handshake.may_ask() {
            return hello;
        }
        if self.feedback_urgent {
            return Some((Time::ZERO, Wake::Interval));
        }
        let full = self.receipt.due_at(self.late()).map(|at| (at, Wake::Interval));
        let request = self.asker.next_due(self.patience()).map(|at| (at, Wake::Interval));
        let tail = self.asker.is_tail_open().then_some((self.settle_due, Wake::Interval));
        let decides = self.alone.as_ref().and_then(|law| law.poll_timeout());
        let hello = earliest(hello, decides.map(|at| (at, Wake::Interval)));
        let gap = self.quick.as_ref().and_then(|quick| quick.open.map(|(at, _)| at));
        let hello = earliest(hello, gap.map(|at| (at, Wake::Interval)));
        let next = earliest(hello, earliest(request, tail));
        earliest(earliest(next, full), Some((self.feedback_due, Wake::Interval)))
    }

    /// What the host should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() { None } else { Some(self.events.remove(0)) }
    }

    /// What this end's own law wants to grant.
    fn wish(&self) -> Rate {
        self.alone.as_ref().map_or(Rate::ZERO, |law| law.wish())
    }

    /// IP bytes of a packet with a whole unit.
    fn packet_bytes(&self) -> Bytes {
        let unit = usize::from(self.asker.unit_payload());
        self.config.link.wire_bytes(HEADER_LEN + DATA_HEAD_LEN + unit)
    }

    /// This session's newest grant.
    pub fn granted(&self) -> Rate {
        self.grant.rate
    }

    /// IP bytes that arrived per time, over the last [`Grant::pause`].
    pub fn received_rate(&self) -> Rate {
        self.received.rate()
    }

    /// IP bytes that arrived per time, from burst to burst as they were sent: the mean that is told
    /// to the agent. A count of whole packets in one interval, as [`SinkSession::received_rate`]
    /// is, jumps by a burst.
    pub fn measured_rate(&self) -> Rate {
        self.measured.rate()
    }

    /// Smoothed round-trip time; zero while unknown.
    pub fn rtt(&self) -> Span {
        self.rtt.smoothed()
    }

    /// How long nothing at all has come from the source.
    pub fn silence(&self, now: Time) -> Span {
        now.since(self.last_datagram)
    }

    /// Counters since the start.
    pub fn counters(&self) -> SinkCounters {
        self.counters
    }

    fn handle_data<'a>(
        &mut self,
        came: Arrival,
        pn: u64,
        body: &'a [u8],
    ) -> Result<Received<'a>, Discard> {
        let (data, payload) = DataHead::decode(body)?;
        let now = came.read;
        let upcoming = self.arrivals.upcoming();
        self.arrivals.accept(pn)?;
        let gap = pn > upcoming;
        if pn < upcoming {
            self.overtaken = true;
        }
        self.hear_source(now);
        let bytes = self.config.link.wire_bytes(HEADER_LEN + body.len());
        self.measured.add(now, pn, data.sent_at, bytes);
        let packet = Counted { pn, proof: data.proof, bytes, ecn: came.ecn };
        self.note(came, &packet, data.sent_at, data.grant)?;
        self.received.add(bytes);
        self.excess.received(bytes);
        self.usage.came(bytes);
        self.counters.packets += 1;
        self.counters.bytes += bytes.0;
        self.asker.handle_data(data.request, data.unit);
        if gap {
            self.note_gap(now);
        }
        // That a short unit came says nothing of whole ones; it is asked for again.
        let whole = payload.len() >= usize::from(self.asker.unit_payload());
        let idle = self.asker.is_past(data.request) || self.handshake.is_presumed() && !whole;
        if idle || !self.asker.received(data.unit) {
            self.counters.duplicates += 1;
            self.counters.duplicate_bytes += payload.len() as u64;
            return Err(Discard::NotWanted);
        }
        self.handshake.handle_unit();
        Ok(Received::Unit { number: data.unit, payload })
    }

    /// Packets before the one that just came are not here.
    fn note_gap(&mut self, now: Time) {
        let Some(quick) = &mut self.quick else { return };
        if quick.open.is_some() {
            quick.again = true;
        } else {
            let guard = self.echo.guard.max(quick.patience);
            quick.open = Some((now + guard, self.asker.reached_in_work()));
        }
    }

    /// How long what others have overtaken is waited for at least.
    fn overtaken_wait(&self) -> Span {
        self.quick.as_ref().map_or(Span::ZERO, |quick| quick.patience)
    }

    /// A gap that is older than the reordering seen is a loss.
    fn look_for_gaps(&mut self, now: Time) {
        let Some(quick) = &mut self.quick else { return };
        let Some((at, reached)) = quick.open else { return };
        if at <= now {
            self.asker.find_lost(reached);
            let again = core::mem::take(&mut quick.again);
            let guard = self.echo.guard.max(quick.patience);
            quick.open = again.then(|| (now + guard, self.asker.reached_in_work()));
        }
    }

    fn handle_status(&mut self, came: Arrival, pn: u64, status: Status) -> Result<(), Discard> {
        let now = came.read;
        let packet = Counted { pn, proof: status.proof, bytes: Bytes::ZERO, ecn: came.ecn };
        self.note(came, &packet, status.sent_at, status.grant)?;
        if pn < self.newest_status {
            return Ok(());
        }
        self.newest_status = pn;
        if status.echo_at != 0 || status.echo_hold != 0 {
            self.rtt.add(now, wire_span(came.at, status.echo_at, status.echo_hold));
        }
        self.asker.handle_status(status.requests_next, status.work_front, status.repair_front);
        self.weight.hear(status.weight);
        if let Some(unit) = status.work_unit {
            self.asker.handle_work_unit(status.work_front, unit);
        }
        if self.peer.as_ref().is_some_and(|before| before.offer != status.offer) {
            self.note_news(now);
        }
        self.note_hearing(now, &status);
        self.peer = Some(status);
        if self.asker.is_tail_open() {
            self.settle_due = self.settle_due.min(now + self.echo.guard.max(self.overtaken_wait()));
        }
        Ok(())
    }

    #[inline]
    fn note(
        &mut self,
        came: Arrival,
        packet: &Counted,
        sent_at: u32,
        grant: u32,
    ) -> Result<(), Discard> {
        self.receipt.add(came.at, packet);
        let said = Said { came, sent_at, grant };
        if self.noted != Some(said) {
            self.hear(said)?;
            if self.resting && packet.bytes > Bytes::ZERO {
                self.stir(came.read);
            }
        }
        if self.alone.is_some() {
            self.tell_law(came.read, packet.pn, sent_at, grant);
        }
        Ok(())
    }

    /// Nothing changes if the same is heard again.
    fn hear(&mut self, said: Said) -> Result<(), Discard> {
        let Said { came, sent_at, grant } = said;
        self.delay.add(came.at, sent_at);
        self.heard_at = Some((came.at, sent_at));
        if grant > self.told_grant {
            return Err(self.violation(came.read, "an echo of a grant that was never made"));
        }
        self.echo.heard(came.read, grant, sent_at);
        self.noted = Some(said);
        Ok(())
    }

    /// A law of this end sees what its own program would: when it reads.
    fn tell_law(&mut self, now: Time, number: u64, sent_at: u32, grant: u32) {
        let (packet, rtt) = (self.packet_bytes(), self.rtt.smoothed());
        if let Some(law) = &mut self.alone {
            law.handle_packet(now, &Came { number, sent_at, grant, packet, rtt });
        }
    }

    /// The peer broke a rule: the session ends, and says so once.
    fn violation(&mut self, now: Time, why: &'static str) -> Discard {
        if self.closing_since.is_none() {
            self.events.push(Event::Violated(why));
        }
        self.close(now);
        Discard::Violation(why)
    }

    fn interval(&mut self, now: Time) {
        self.look_for_gaps(now);
        if self.settle_due <= now {
            self.asker.settle();
            self.settle_due = now + self.grant.pause().max(self.overtaken_wait());
        }
        if self.silence(now) > SESSION_TIMEOUT && self.closing_since.is_none() {
            self.closing_since = Some(now);
            self.events.push(Event::TimedOut);
        }
        let spent = self.asker.is_spent() || self.grant.number == u32::MAX;
        if spent && self.closing_since.is_none() {
            self.close(now);
            self.events.push(Event::Spent);
        }
        self.received.roll(now, self.grant.pause());
        if let Some(law) = &mut self.alone {
            law.handle_timeout(now);
        }
    }

    /// A receipt that can name no more gaps ends at once: what it cannot call missing it claims.
    #[inline]
    fn end_full_part(&mut self, now: Time) {
        if self.receipt.is_full(&self.arrivals) {
            self.end_part(now, true);
        }
    }

    fn end_part(&mut self, now: Time, is_full: bool) {
        let (bytes, packets) = self.receipt.present();
        self.measured.end_part(bytes, packets);
        let delays = self.delay.take_interval();
        self.receipt.end_part(now, &self.arrivals, delays, is_full);
    }

    fn end_receipt(&mut self, now: Time) -> Finished {
        self.end_part(now, false);
        let finished = self.receipt.finish(now, &self.arrivals, self.late());
        let missing = finished.missing;
        let decided = self.measured.settled_upto()..finished.receipt.span.end;
        self.measured.settle(decided.end, self.arrivals.missing(decided));
        self.counters.lost += missing;
        self.usage.lost(Bytes(missing.saturating_mul(self.packet_bytes().0)));
        finished
    }

    /// How late packets may be.
    fn late(&self) -> Span {
        if self.overtaken { self.echo.guard } else { Span::ZERO }
    }

    fn feedback(&mut self, now: Time, head: &mut Vec<u8>) -> Transmit {
        let Finished { receipt, delays, ecn, .. } = self.end_receipt(now);
        self.measured.roll(now, self.grant.measures(self.config.law), INTERVAL_MAX);
        self.check_excess(now);
        self.look_at_usage(now);
        let (echo_at, echo_hold) = match self.heard_at {
            Some((at, sent_at)) => (sent_at, now.since(at).as_micros() as u32),
            None => (0, 0),
        };
        let interval = self.pause(now);
        self.noted = None;
        self.feedback_urgent = false;
        self.feedback_due = now + interval;
        self.told_grant = self.grant.number;
        let reads_fields = self.config.link.revision >= Revision::Second;
        let feedback = Feedback {
            sent_at: now.as_wire_micros(),
            grant: self.grant.number,
            rate: self.grant.rate,
            offer: self.grant.offer,
            interval: interval.as_micros() as u32,
            echo_at,
            echo_hold,
            delay: delays.map_or(0, |delays| delays.least),
            receipt,
            weight: self.weight.said(),
            delay_most: delays.map(|delays| delays.most).filter(|_| reads_fields),
            ecn: reads_fields.then_some(ecn),
            router_binds: reads_fields && self.router_binds(),
        };
        self.control(&Control::Feedback(feedback), head)
    }

    fn check_excess(&mut self, now: Time) {
        let lease = SILENCE_STOP + self.rtt.smoothed();
        let excessive = self.excess.check(now, self.grant.rate, lease);
        if excessive {
            self.violation(now, "it sends far more than it was granted");
        }
    }

    fn patience(&self) -> Span {
        match self.rtt.smoothed() {
            Span::ZERO => PATIENCE_UNKNOWN,
            rtt => rtt + PATIENCE,
        }
    }

    fn control(&mut self, control: &Control, head: &mut Vec<u8>) -> Transmit {
        let pn = self.numbering.begin(control.kind(), head);
        control.encode(head);
        Transmit { pn, unit: None, ecn: Codepoint::NotEct }
    }

    fn relay_handshake(&mut self, now: Time) {
        match self.handshake.poll_outcome() {
            Some(Outcome::Presumed { unit_payload }) => {
                self.events.push(Event::PathPresumed { unit_payload });
            }
            Some(Outcome::Open { unit_payload }) => {
                if self.asker.unit_payload() > unit_payload {
                    self.stop_asking();
                }
                if self.counters.packets == 0 {
                    self.feedback_urgent = true; // The source may not know the round trip yet.
                } else {
                    // It hears of the round trip with how fast the first units came, and not
                    // before: it would take one packet for slow.
                    self.feedback_due = now + YOUNG_INTERVAL;
                }
                self.events.push(Event::PathOpen { unit_payload });
            }
            Some(Outcome::NoPath) => self.events.push(Event::NoPath),
            None => {}
        }
    }
}
