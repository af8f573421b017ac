//! A small virtual-time world for tests: real sessions and agents over modelled links.
//!
//! Hosts have an agent for each direction; flows join two hosts over lists of links, which they
//! share. Time jumps from event to event. The same types run here as over real sockets.
#![allow(dead_code, missing_docs)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gtp_alloc::led::{SessionLaw, SinkLaw, SourceLaw};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Link as Wire, LinkSpec, Rng, Verdict};
use gtp_proto::sink::Received;
use gtp_proto::wire::{HEADER_LEN, Header, TAG_LEN};
use gtp_proto::{
    Activity, Agent, AgentConfig, Arrival, Codepoint, Direction, Discard, Event, Law, Link, Report,
    Revision, Role, Side, SinkConfig, SinkSession, SourceConfig, SourceSession, Supplied, Weights,
};

pub const IP: u16 = 28;
pub const UNIT: u16 = 1_400;
/// Bytes that an application is ahead of its source at most, as streams over sockets let it be.
const UNSENT_MOST: u64 = 2 << 20;
/// Units that a sink asks for beyond what its application has read, if nothing else is said.
pub const READ_AHEAD: u64 = 750;
/// Length of one bin of a flow's record.
pub const BIN: Span = Span::from_millis(10);

/// When every world begins.
pub const START: Time = Time::from_nanos(1_000_000_000);

pub struct Host {
    pub out: Direction,
    pub inn: Direction,
}

impl Host {
    fn of(out: Agent, inn: Agent) -> Host {
        Host { out: Direction::new(Side::Source, out), inn: Direction::new(Side::Sink, inn) }
    }
}

pub struct Flow {
    pub source_host: usize,
    pub sink_host: usize,
    pub source: SourceSession,
    pub sink: SinkSession,
    /// Links from source to sink, and back.
    pub down: Vec<usize>,
    pub up: Vec<usize>,
    /// IP bytes of data that arrived in each bin.
    pub bins: Vec<u64>,
    /// IP bytes of all datagrams that left for the sink, statuses and all.
    pub left: u64,
    pub payload: u64,
    pub first_data: Option<Time>,
    /// Units below this may be supplied.
    pub produced: f64,
    /// Rate of the producer, in payload bits per second; infinite if it is never short.
    pub producer: f64,
    /// Rate at which the sink's application reads, in payload bits per second; its sink asks for
    /// `ahead` units beyond that, in halves. Infinite if it asks for all at once.
    pub reader: f64,
    pub ahead: u64,
    /// The longest time for which the reader sleeps between two looks, drawn anew each time: its
    /// host has much else to do. Such a reader asks by the clock alone. Zero if it looks whenever
    /// anything happens.
    pub naps: Span,
    pub wakes: Time,
    dice: Rng,
    /// Units that a sink with a reader has asked for.
    pub asked: u64,
    /// Chance that a datagram back to the source is lost.
    pub started: Time,
    pub alive: bool,
    pub events: Vec<Event>,
    pub discards: u64,
    pub silent_feedback: bool,
    /// With whom it shares room at the hosts of both its ends.
    pub party: u64,
    /// Of an eager sink: the units that it wants once it knows how long they are.
    pub wanted: Option<u64>,
    /// How long units are, as the sink and as the source know it.
    pub units: [u16; 2],
    /// What one end makes of what it should say.
    pub lie: Option<Lie>,
    /// What the path does to packets towards the sink that have ECN bits.
    pub marker: Option<Marker>,
}

/// Sees each datagram that an end of a flow sends, at this time and towards the sink or not, and
/// may change it; `false`: it says nothing instead.
pub type Lie = Box<dyn FnMut(Time, Towards, &mut Vec<u8>) -> bool>;

/// Sees the ECN bits of each packet that leaves for the sink at this time, and says with which it
/// goes on, if it does.
pub type Marker = Box<dyn FnMut(Time, Codepoint) -> Option<Codepoint>>;

/// Which end a datagram goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    Source,
    Sink,
}

/// Of what an eager sink wants every seventh unit is short, the first too.
fn length(wanted: Option<u64>, number: u64, unit: u16) -> u16 {
    if wanted.is_some() && number.is_multiple_of(7) { 200 } else { unit }
}

impl Flow {
    fn length(&self, number: u64, unit: u16) -> u16 {
        length(self.wanted, number, unit)
    }

    /// What an end makes of what it should say; `false`: nothing.
    fn says(&mut self, now: Time, to_sink: bool, bytes: &mut Vec<u8>) -> bool {
        let towards = if to_sink { Towards::Sink } else { Towards::Source };
        let says = self.lie.as_mut().is_none_or(|lie| lie(now, towards, bytes));
        if says && to_sink {
            self.left += (bytes.len() + TAG_LEN) as u64 + u64::from(IP);
        }
        says
    }

    /// A reader reads on, and its sink asks for as much.
    fn read(&mut self, now: Time) {
        if !self.reader.is_finite() || now < self.wakes {
            return;
        }
        if self.naps > Span::ZERO {
            self.wakes = now + Span::from_nanos(self.dice.below(self.naps.as_nanos()));
        }
        let mut read = (self.reader * now.since(self.started).as_secs_f64() / 8.0) as u64;
        if self.naps == Span::ZERO {
            read = read.min(self.payload);
        }
        let wanted = read / u64::from(UNIT) + self.ahead;
        if wanted >= self.asked + self.ahead / 2 {
            self.sink.assign(self.asked..wanted);
            self.asked = wanted;
        }
    }

    /// An eager sink asks for units as long as an event says.
    fn begin_as_told(&mut self, event: Event) {
        let payload = match event {
            Event::PathPresumed { unit_payload } => Some(unit_payload),
            Event::PathOpen { unit_payload } if unit_payload < self.units[0] => {
                assert_eq!(self.payload, 0, "nothing came by what was presumed");
                Some(unit_payload)
            }
            _ => None,
        };
        if let (Some(payload), Some(units)) = (payload, self.wanted) {
            self.units[0] = payload;
            self.sink.begin(payload);
            self.sink.assign(0..units);
        }
    }
}

struct Packet {
    at: Time,
    seq: u64,
    flow: usize,
    to_sink: bool,
    hop: usize,
    bytes: Vec<u8>,
    ecn: Codepoint,
}

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}
impl Eq for Packet {}
impl PartialOrd for Packet {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Packet {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

pub struct World {
    pub now: Time,
    pub links: Vec<Wire>,
    pub hosts: Vec<Host>,
    pub flows: Vec<Flow>,
    queue: BinaryHeap<Reverse<Packet>>,
    seq: u64,
    sent: u64,
    head: Vec<u8>,
}

pub struct FlowSpec {
    pub source: usize,
    pub sink: usize,
    pub down: Vec<usize>,
    pub up: Vec<usize>,
    pub law: Law,
    pub weight: f64,
    pub max_rate: Rate,
    pub units: u64,
}

impl World {
    pub fn new() -> World {
        World {
            now: START,
            links: Vec::new(),
            hosts: Vec::new(),
            flows: Vec::new(),
            queue: BinaryHeap::new(),
            seq: 0,
            sent: 0,
            head: Vec::new(),
        }
    }

    pub fn link(&mut self, spec: LinkSpec) -> usize {
        let seed = 7 + self.links.len() as u64;
        self.links.push(Wire::new(spec, seed));
        self.links.len() - 1
    }

    pub fn host(&mut self, out: Rate, inn: Rate, interval: Option<Span>) -> usize {
        let agent =
            |side, capacity| Agent::new(Time::ZERO, AgentConfig { side, capacity, interval });
        self.hosts.push(Host::of(agent(Side::Source, out), agent(Side::Sink, inn)));
        self.hosts.len() - 1
    }

    /// A host that receives so much, and decides alone by this law over what it receives.
    pub fn deciding_host(&mut self, inn: Rate, law: Box<dyn SinkLaw>) -> usize {
        let config = |side, capacity| AgentConfig { side, capacity, interval: None };
        let out = Agent::new(Time::ZERO, config(Side::Source, Rate::UNLIMITED));
        let inn = Agent::new(Time::ZERO, config(Side::Sink, inn)).deciding_by(law);
        self.hosts.push(Host::of(out, inn));
        self.hosts.len() - 1
    }

    /// Starts a flow now; the sink opens the path.
    pub fn flow(&mut self, spec: FlowSpec) -> usize {
        self.flow_by(spec, None, None)
    }

    /// The same, but its sink asks before it knows how long packets may be.
    pub fn eager_flow(&mut self, spec: FlowSpec, unit_payloads: Vec<u16>) -> usize {
        let units = spec.units;
        let (law, max_rate) = (spec.law, spec.max_rate);
        let f = self.flow(spec);
        let config = SinkConfig {
            role: Role::Eager { unit_payloads },
            link: Link { peer_session: 1, ip_overhead: IP, revision: Revision::NEWEST },
            law,
            weights: Weights::ONE,
            max_rate,
        };
        let flow = &mut self.flows[f];
        flow.sink = SinkSession::new(self.now, config);
        flow.wanted = Some(units);
        f
    }

    /// The same, but its source opens the path, as where something is put.
    pub fn put_flow(&mut self, spec: FlowSpec) -> usize {
        let (law, units) = (spec.law, spec.units);
        let f = self.flow(spec);
        let link = Link { peer_session: 1, ip_overhead: IP, revision: Revision::NEWEST };
        let (weights, max_rate) = (Weights::ONE, Rate::UNLIMITED);
        let role = Role::Initiator { unit_payloads: vec![UNIT] };
        let config = SourceConfig { role, link, law, weights, max_rate, proof_key: [9; 16] };
        let flow = &mut self.flows[f];
        flow.source = SourceSession::new(self.now, config);
        let config = SinkConfig { role: Role::Responder, link, law, weights, max_rate };
        flow.sink = SinkSession::new(self.now, config);
        flow.sink.begin(UNIT);
        flow.sink.assign(0..units);
        f
    }

    /// The same as [`World::flow`], its ends deciding by these laws.
    pub fn flow_by(
        &mut self,
        spec: FlowSpec,
        own: Option<Box<dyn SourceLaw>>,
        sinks: Option<Box<dyn SessionLaw>>,
    ) -> usize {
        let link = Link { peer_session: 1, ip_overhead: IP, revision: Revision::NEWEST };
        let mut source = SourceSession::new(
            self.now,
            SourceConfig {
                role: Role::Responder,
                link,
                law: spec.law,
                weights: Weights { own: 1.0, peer: spec.weight },
                max_rate: Rate::UNLIMITED,
                proof_key: [9; 16],
            },
        );
        if let Some(law) = own {
            source = source.deciding_by(law);
        }
        let mut sink = SinkSession::new(
            self.now,
            SinkConfig {
                role: Role::Initiator { unit_payloads: vec![UNIT] },
                link,
                law: spec.law,
                weights: Weights { own: spec.weight, peer: 1.0 },
                max_rate: spec.max_rate,
            },
        );
        if let Some(law) = sinks {
            sink = sink.deciding_by(law);
        }
        sink.begin(UNIT);
        sink.assign(0..spec.units);
        self.flows.push(Flow {
            source_host: spec.source,
            sink_host: spec.sink,
            source,
            sink,
            down: spec.down,
            up: spec.up,
            bins: Vec::new(),
            left: 0,
            payload: 0,
            first_data: None,
            produced: 0.0,
            producer: f64::INFINITY,
            reader: f64::INFINITY,
            ahead: READ_AHEAD,
            naps: Span::ZERO,
            wakes: Time::ZERO,
            dice: Rng::new(self.flows.len() as u64),
            party: 0,
            asked: spec.units,
            started: self.now,
            alive: true,
            events: Vec::new(),
            discards: 0,
            silent_feedback: false,
            wanted: None,
            units: [UNIT; 2],
            lie: None,
            marker: None,
        });
        self.hosts[spec.source].out.agent.wake(self.now);
        self.hosts[spec.sink].inn.agent.wake(self.now);
        self.flows.len() - 1
    }

    pub fn close(&mut self, flow: usize) {
        let now = self.now;
        self.flows[flow].sink.close(now);
        let host = self.flows[flow].sink_host;
        self.hosts[host].inn.agent.wake(now);
    }

    pub fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            self.service();
            let next = self.next_time();
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.arrivals();
        }
        self.now = end;
    }

    /// Mean IP rate of flow `f` from `from` seconds to `to` seconds after the world's start.
    pub fn rate(&self, f: usize, from: f64, to: f64) -> f64 {
        let bin = BIN.as_secs_f64();
        let (a, b) = ((from / bin).round() as usize, (to / bin).round() as usize);
        let bytes: u64 = (a..b).map(|i| self.flows[f].bins.get(i).copied().unwrap_or(0)).sum();
        bytes as f64 * 8.0 / (to - from)
    }

    /// Datagrams that either end of any session has sent.
    pub fn datagrams(&self) -> u64 {
        self.sent
    }

    /// Whether the source of flow `f` rests, and whether its sink does.
    pub fn rests(&self, f: usize) -> [bool; 2] {
        let flow = &self.flows[f];
        [flow.source.is_resting(self.now), flow.sink.is_resting(self.now)]
    }

    pub fn elapsed(&self) -> f64 {
        self.now.since(START).as_secs_f64()
    }

    fn next_time(&self) -> Time {
        let mut next = self.queue.peek().map_or(Time::MAX, |Reverse(p)| p.at);
        for host in &self.hosts {
            next = next.min(host.out.agent.poll_timeout()).min(host.inn.agent.poll_timeout());
        }
        for flow in self.flows.iter().filter(|f| f.alive) {
            for timeout in [flow.source.poll_timeout(), flow.sink.poll_timeout()] {
                next = next.min(timeout.map_or(Time::MAX, |(at, _)| at));
            }
            if flow.producer.is_finite() || flow.reader.is_finite() {
                next = next.min(self.now + Span::from_micros(500));
            }
        }
        next
    }

    fn arrivals(&mut self) {
        while self.queue.peek().is_some_and(|Reverse(p)| p.at <= self.now) {
            let Some(Reverse(packet)) = self.queue.pop() else { return };
            let flow = &self.flows[packet.flow];
            let path = if packet.to_sink { &flow.down } else { &flow.up };
            if packet.hop < path.len() {
                self.forward(packet);
            } else {
                self.deliver(packet);
            }
        }
    }

    fn forward(&mut self, packet: Packet) {
        let flow = &self.flows[packet.flow];
        let path = if packet.to_sink { &flow.down } else { &flow.up };
        let size = Bytes((packet.bytes.len() + TAG_LEN) as u64 + u64::from(IP));
        let verdict = self.links[path[packet.hop]].enqueue(packet.at, size);
        if let Verdict::Deliver { transit, copies } = verdict {
            for _ in 0..copies {
                self.seq += 1;
                self.queue.push(Reverse(Packet {
                    at: transit.at,
                    seq: self.seq,
                    flow: packet.flow,
                    to_sink: packet.to_sink,
                    hop: packet.hop + 1,
                    bytes: packet.bytes.clone(),
                    ecn: packet.ecn,
                }));
            }
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let now = self.now;
        let flow = &mut self.flows[packet.flow];
        let header = Header::decode(&packet.bytes).expect("our own header");
        let body = &packet.bytes[HEADER_LEN..];
        let outcome = if packet.to_sink {
            let came = Arrival { ecn: packet.ecn, ..now.into() };
            let outcome = flow.sink.handle_datagram(came, header, body);
            if let Ok(Received::Unit { number, payload }) = outcome {
                let agreed = flow.length(number, flow.units[0]);
                assert_eq!(payload.len(), usize::from(agreed), "units are as long as agreed");
                flow.payload += payload.len() as u64;
                flow.first_data.get_or_insert(now);
                let since = now.since(START);
                let bin = (since.as_nanos() / BIN.as_nanos()) as usize;
                if flow.bins.len() <= bin {
                    flow.bins.resize(bin + 1, 0);
                }
                flow.bins[bin] += (packet.bytes.len() + TAG_LEN) as u64 + u64::from(IP);
            }
            self.hosts[flow.sink_host].inn.agent.wake(now);
            outcome.map(|_| ())
        } else {
            if flow.silent_feedback {
                return;
            }
            let outcome = flow.source.handle_datagram(now.into(), header, body);
            self.hosts[flow.source_host].out.agent.wake(now);
            outcome
        };
        if let Err(why) = outcome {
            flow.discards += 1;
            let honest = flow.lie.is_none();
            assert!(!honest || !matches!(why, Discard::Violation(_)), "{why:?}");
        }
    }

    fn service(&mut self) {
        for h in 0..self.hosts.len() {
            self.tick(h);
        }
        for f in 0..self.flows.len() {
            self.transmit(f);
        }
    }

    fn tick(&mut self, h: usize) {
        let now = self.now;
        let Host { out, inn } = &mut self.hosts[h];
        if let Some(mut round) = out.poll_round(now) {
            for (f, flow) in self.flows.iter_mut().enumerate() {
                if flow.source_host == h && flow.alive {
                    let report = Report { party: flow.party, ..flow.source.report(now) };
                    round.add(f, f as u32, report, Activity::Busy);
                }
            }
            for (f, grant) in round.decide() {
                self.flows[f].source.handle_grant(now, grant);
            }
        }
        if let Some(mut round) = inn.poll_round(now) {
            for (f, flow) in self.flows.iter_mut().enumerate() {
                if flow.sink_host == h && flow.alive {
                    let report = Report { party: flow.party, ..flow.sink.report(now) };
                    round.add(f, f as u32, report, Activity::Busy);
                }
            }
            for (f, grant) in round.decide() {
                self.flows[f].sink.handle_grant(grant);
            }
        }
    }

    fn transmit(&mut self, f: usize) {
        if !self.flows[f].alive {
            return;
        }
        let (now, mut head) = (self.now, std::mem::take(&mut self.head));
        let mut out: Vec<(bool, Codepoint, Vec<u8>)> = Vec::new();
        let flow = &mut self.flows[f];
        while let Some(event) = flow.source.poll_event() {
            if let Event::UnitPayload(payload) = event {
                flow.units[1] = payload;
            }
            flow.events.push(event);
        }
        if flow.producer.is_finite() {
            let seconds = now.since(flow.started).as_secs_f64();
            flow.produced = flow.producer * seconds / 8.0 / f64::from(UNIT);
            flow.source.handle_supply(now);
        }
        flow.read(now);
        let (limited, produced) = (flow.producer.is_finite(), flow.produced as u64);
        let sent = flow.source.counters().packets;
        let (unit, wanted) = (flow.units[1], flow.wanted);
        let mut budget = if limited { produced.saturating_sub(sent) } else { u64::MAX };
        let waiting = budget.saturating_mul(unit.into()).min(UNSENT_MOST);
        flow.source.handle_backlog(now, Bytes(waiting), sent);
        let mut supply = |number: u64| {
            if budget == 0 {
                return Supplied::NotYet;
            }
            budget -= 1;
            Supplied::Ready(length(wanted, number, unit))
        };
        while let Some(t) = flow.source.poll_transmit(now, &mut supply, &mut head) {
            let mut bytes = head.clone();
            bytes.resize(bytes.len() + t.unit.map_or(0, |u| usize::from(u.len)), 0);
            out.push((true, t.ecn, bytes));
        }
        while let Some(t) = flow.sink.poll_transmit(now, &mut head) {
            out.push((false, t.ecn, head.clone()));
        }
        while let Some(event) = flow.sink.poll_event() {
            flow.begin_as_told(event);
            flow.events.push(event);
        }
        if flow.sink.is_finished(now) {
            flow.alive = false;
        }
        self.head = head;
        for (to_sink, ecn, mut bytes) in out {
            if !self.flows[f].says(now, to_sink, &mut bytes) {
                continue;
            }
            let marker = self.flows[f].marker.as_mut().filter(|_| to_sink);
            let Some(ecn) = marker.map_or(Some(ecn), |marker| marker(now, ecn)) else { continue };
            self.sent += 1;
            self.seq += 1;
            self.queue.push(Reverse(Packet {
                at: now,
                seq: self.seq,
                flow: f,
                to_sink,
                hop: 0,
                bytes,
                ecn,
            }));
        }
        // Hop zero is entered at once.
        self.arrivals();
    }
}
