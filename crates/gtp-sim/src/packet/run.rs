//! The run loop: time passes here.
//!
//! Events come in the order of the schedule. What happens at a host marks it, and a marked host has
//! its turn when nothing more happens at that time: so it takes in all that came together before
//! it answers, as a host with sockets does.

use gtp_alloc::{Span, Time};
use gtp_link::LinkId;
use gtp_peers::Packet;
use gtp_proto::router::Passage;
use gtp_proto::wire::{HEADER_LEN, Header, Kind};
use gtp_proto::{Arrival, Codepoint, Side};

use super::background::Generator;
use super::ends::{LEAST_SLEEP, Moment, Phase, SinkEnd, SourceEnd, Standing, wire_size};
use super::fabric::{Datagram, Fabric};
use super::flights::Turn;
use super::host::{ECHO, UPKEEP};
use super::parcel::ParcelId;
use super::peers::Peer;
use super::schedule::Waker;
use super::spec::{Action, BackgroundId, NodeId, SessionId};
use super::world::{Actor, End, Flow, Role, Step, World};
use crate::trace::What;

/// One event, for whoever compares runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// When.
    pub at: Time,
    /// Whose event it was; for a host's turn, [`Actor::Host`].
    pub actor: Actor,
    /// The hash after it.
    pub hash: u64,
}

impl World {
    /// Lets time pass until `end`, events at `end` included.
    pub fn run_until(&mut self, end: Time) {
        while self.advance(end).is_some() {}
        self.now = self.now.max(end);
    }

    /// Lets the next thing happen, if it happens by `end`, and says what it was.
    pub fn step(&mut self, end: Time) -> Option<Happening> {
        let actor = self.advance(end)?;
        Some(Happening { at: self.now, actor, hash: self.hash() })
    }

    #[inline(always)]
    fn advance(&mut self, end: Time) -> Option<Actor> {
        let next = self.fabric.schedule.peek();
        let due_now = next.is_some_and(|(key, _)| key.at() <= self.now);
        if !due_now && let Some(host) = self.dirty.pop_front() {
            self.events += 1;
            self.serve(host);
            return Some(Actor::Host(self.hosts[host as usize].node));
        }
        let Some((key, waker)) = next.filter(|(key, _)| key.at() <= end) else {
            self.fabric.take_in_all((end, u64::MAX));
            return None;
        };
        self.now = self.now.max(key.at());
        self.events += 1;
        let actor = match waker {
            Waker::Link(link) => Actor::Link(LinkId(link as usize)),
            Waker::Actor(actor) => self.actors[actor.0 as usize],
        };
        match actor {
            Actor::Link(link) => self.arrive(link),
            Actor::End(end) => self.wake_end(end),
            Actor::Host(node) => self.wake_host(node),
            Actor::Card(node) => self.hand_over(node),
            Actor::Script => self.follow_script(key.turn()),
            Actor::Gate(gate) => self.fabric.open_gate(self.now, gate),
            Actor::Managed(place) => self.fabric.serve_managed(self.now, place),
            Actor::Sampler => {
                self.fabric.schedule.clear(self.sampler);
                self.fabric.take_in_all(key.turn());
                self.sample();
            }
        }
        Some(actor)
    }

    #[inline]
    fn arrive(&mut self, link: LinkId) {
        if self.fabric.is_intake(self.now, link.0 as u32) {
            self.events -= 1; // Each packet that is taken in is one.
            return self.fabric.take_in(link.0 as u32, (self.now, 0));
        }
        if let Some(parcel) = self.fabric.arrive(self.now, link.0 as u32) {
            self.deliver(parcel);
        }
    }

    /// A packet is at its host.
    #[inline]
    fn deliver(&mut self, id: ParcelId) {
        let parcel = self.fabric.parcels.get(id);
        let (to, size) = (parcel.to, parcel.size);
        let host_index = self.ends[to as usize].host;
        let host = &mut self.hosts[host_index as usize];
        if !host.holds(self.now) {
            return self.receive(id, self.now);
        }
        if host.inbox.bytes + size > host.inbox.room {
            self.refused += 1;
            self.fabric.hash.mix(self.now.as_nanos());
            self.fabric.record(self.now, What::Refused, to, id);
            self.fabric.parcels.remove(id);
            return;
        }
        if host.inbox.parcels.is_empty() {
            let release = (self.now + host.coalesce).max(host.paused_until);
            self.fabric.schedule.wake(host.card, release);
        }
        host.inbox.bytes += size;
        host.inbox.parcels.push_back((id, self.now));
    }

    /// A host's card hands over what it holds, unless the host stands still.
    fn hand_over(&mut self, node: NodeId) {
        let Ok(index) = self.host(node) else { return };
        let host = &mut self.hosts[index as usize];
        if host.paused_until > self.now {
            self.fabric.schedule.wake(host.card, host.paused_until);
            return;
        }
        self.fabric.schedule.clear(host.card);
        let held = std::mem::take(&mut host.inbox.parcels);
        host.inbox.bytes = gtp_alloc::Bytes::ZERO;
        for (parcel, came) in held {
            self.receive(parcel, came);
        }
        self.mark(index);
    }

    /// A host takes a packet in that came at `came`.
    #[inline]
    fn receive(&mut self, id: ParcelId, came: Time) {
        let to = self.fabric.parcels.get(id).to;
        self.fabric.record(self.now, What::Delivered, to, id);
        match self.ends[to as usize].role {
            Role::Peer(_) => self.receive_foreign(to, id),
            Role::Source(_) | Role::Sink(_) | Role::Background(_) | Role::Waiting | Role::Talk => {
                self.receive_datagram(to, id, came);
            }
        }
    }

    fn receive_datagram(&mut self, to: u32, id: ParcelId, came: Time) {
        let parcel = self.fabric.parcels.get(id);
        let (size, ecn) = (parcel.size, parcel.ecn);
        let (_, len) = self.fabric.parcels.take(id, &mut self.datagram);
        let end = &mut self.ends[to as usize];
        let host = &mut self.hosts[end.host as usize];
        let now = host.moment(self.now);
        let came = Arrival { ecn, ..host.arrival(now, came) };
        if let Role::Background(flow) = &mut end.role {
            flow.packets += 1;
            flow.bytes += size;
            return;
        }
        // What nobody listens to, or nobody can read, is dropped as by a real host.
        let datagram = &self.datagram[..len];
        if let Role::Talk = end.role {
            host.hear_talk(now, to, datagram);
            let host = end.host;
            return self.mark(host);
        }
        let Ok(header) = Header::decode(datagram) else {
            return;
        };
        if !end.open {
            return;
        }
        let body = &datagram[HEADER_LEN..];
        match &mut end.role {
            Role::Source(source) => source.handle_datagram(came, header, body),
            Role::Sink(sink) => {
                if let Some((group, unit)) = sink.handle_datagram(now, came, header, body) {
                    let host = end.host;
                    self.gather(group, unit);
                    self.mark(host);
                }
            }
            Role::Waiting | Role::Background(_) | Role::Peer(_) | Role::Talk => return,
        }
        self.after_datagram(now, to, header.kind);
    }

    /// A rival's end takes a packet in.
    fn receive_foreign(&mut self, to: u32, id: ParcelId) {
        let end = &mut self.ends[to as usize];
        if let Role::Peer(peer) = &mut end.role
            && let Some(packet) = self.fabric.parcels.foreign_mut(id)
            && end.open
        {
            peer.handle_packet(self.now, packet);
            let (host, tied) = (end.host, peer.tied);
            end.touch(to, &mut self.hosts[host as usize].touched);
            self.mark(host);
            if let Some(tied) = tied {
                self.touch_tied(tied);
            }
        }
        self.fabric.parcels.remove(id);
    }

    /// What one end did may let the other one, of the same machine, do something.
    #[cold]
    fn touch_tied(&mut self, index: u32) {
        let end = &mut self.ends[index as usize];
        end.touch(index, &mut self.hosts[end.host as usize].touched);
    }

    /// What a datagram of this kind may mean to the agents and to its session.
    #[inline]
    fn after_datagram(&mut self, now: Moment, index: u32, kind: Kind) {
        let end = &mut self.ends[index as usize];
        let host = &mut self.hosts[end.host as usize];
        match kind {
            Kind::Data => {
                let unheard = host.in_.direction.is_unheard();
                if unheard {
                    host.echo_due = host.echo_due.min(now.local + ECHO);
                }
                // Most data packets change nothing about when the session wants its turn.
                let due = end.due(now, |local| host.clock.when(local));
                if !unheard && due == end.booked {
                    return;
                }
            }
            Kind::Feedback => host.out.wake(now.local),
            Kind::Status => {
                host.in_.wake(now.local);
                host.echo_due = host.echo_due.min(now.local + ECHO);
            }
            Kind::Hello | Kind::HelloAck | Kind::Close => host.in_.wake(now.local),
            Kind::Request => {}
        }
        end.touch(index, &mut host.touched);
        let host = end.host;
        self.mark(host);
    }

    fn wake_end(&mut self, index: u32) {
        let end = &mut self.ends[index as usize];
        self.fabric.schedule.clear(end.actor);
        end.booked = Time::MAX;
        let host_index = end.host;
        end.touch(index, &mut self.hosts[host_index as usize].touched);
        if let Role::Peer(peer) = &end.role
            && let Some(tied) = peer.tied
        {
            self.touch_tied(tied);
        }
        self.mark(host_index);
    }

    fn wake_host(&mut self, node: NodeId) {
        let Ok(index) = self.host(node) else { return };
        let host = &mut self.hosts[index as usize];
        self.fabric.schedule.clear(host.actor);
        host.booked = Time::MAX;
        self.mark(index);
    }

    /// A host shall have its turn.
    #[inline]
    fn mark(&mut self, host: u32) {
        let marked = &mut self.hosts[host as usize].dirty;
        if !*marked {
            *marked = true;
            self.dirty.push_back(host);
        }
    }

    /// A host's turn: what is due, then all that may be sent.
    fn serve(&mut self, index: u32) {
        let host = &mut self.hosts[index as usize];
        host.dirty = false;
        if host.paused_until > self.now {
            return; // The card's event at the end of the pause marks it again.
        }
        self.fabric.hash.mix(self.now.as_nanos() ^ u64::from(index) << 44);
        let now = host.moment(self.now);
        host.handle_timeout(now, &mut self.ends);
        if !host.gathers.is_empty() {
            self.tend_groups(now, index);
        }
        let host = &mut self.hosts[index as usize];
        let count = host.touched.len();
        for place in 0..count {
            self.poll_end(now, self.hosts[index as usize].touched[place]);
        }
        self.serve_routers(now, index);
        let host = &mut self.hosts[index as usize];
        if host.touched.len() == count {
            host.touched.clear();
        } else {
            host.touched.drain(..count); // What was touched meanwhile has its turn next.
        }
        let due = host.clock.when(host.poll_timeout());
        if due != host.booked {
            host.booked = due;
            self.fabric.schedule.wake(host.actor, due);
        }
    }

    /// A host asks routers, and answers as one.
    fn serve_routers(&mut self, now: Moment, index: u32) {
        let World { ends, fabric, head, hosts, .. } = self;
        let host = &mut hosts[index as usize];
        if host.allocator.is_none() && !host.asking.asks() {
            return;
        }
        let mut there = Vec::new();
        if let Some(allocator) = &mut host.allocator {
            allocator.serve(now, ends, (fabric, head), &mut there);
        }
        host.asking.serve(now, ends, (fabric, head), &mut there);
        there.into_iter().for_each(|parcel| self.deliver(parcel));
    }

    /// Lets one end of a session send all that it may.
    fn poll_end(&mut self, now: Moment, index: u32) {
        let World { ends, fabric, head, hosts, .. } = self;
        let end = &mut ends[index as usize];
        end.touched = false;
        if !end.open {
            return;
        }
        let mut there = Vec::new();
        match &mut end.role {
            Role::Source(source) => {
                source.handle_supply(now);
                while let Some(transmit) = source.poll_transmit(now, head) {
                    let payload = transmit.unit.map_or(0, |unit| unit.len);
                    let size = wire_size(head.len(), payload);
                    let datagram = Datagram { size, head, payload, ecn: transmit.ecn };
                    there.extend(fabric.send(now.world, end.route, end.peer, &datagram));
                }
                source.poll_done();
                end.open = source.phase != Phase::Over;
            }
            Role::Sink(sink) => {
                while let Some(transmit) = sink.core.poll_transmit(now.local, head) {
                    let (size, ecn) = (wire_size(head.len(), 0), transmit.ecn);
                    let datagram = Datagram { size, head, payload: 0, ecn };
                    there.extend(fabric.send(now.world, end.route, end.peer, &datagram));
                }
                sink.relay_events(now);
            }
            Role::Background(flow) => {
                flow.send(now.world, fabric, end.route, end.peer, &mut there);
            }
            Role::Peer(peer) => {
                peer.handle_timeout(now.world);
                loop {
                    let said = peer.poll_transmit(now.world);
                    let Some(Packet { size, .. }) = said else { break };
                    let sent = fabric.send_foreign(now.world, end.route, end.peer, size, said);
                    if let Some(parcel) = sent {
                        there.push(parcel);
                    }
                }
            }
            Role::Waiting | Role::Talk => {}
        }
        let host = &mut hosts[end.host as usize];
        let due = end.due(now, |local| host.clock.when(local));
        if due != end.booked {
            end.booked = due;
            fabric.schedule.wake(end.actor, due);
        }
        if !end.open {
            host.forget_closed(now, ends);
        }
        if !there.is_empty() {
            there.into_iter().for_each(|parcel| self.deliver(parcel));
        }
    }

    fn follow_script(&mut self, turn: Turn) {
        while let Some(entry) = self.script.first_entry()
            && entry.key().0 <= self.now
        {
            match entry.remove() {
                Step::Act(action) => self.act(turn, action),
                Step::Open(id) => self.open(id),
                Step::Begin(id) => self.begin(id),
            }
        }
        let next = self.script.first_key_value().map_or(Time::MAX, |(&(at, _), _)| at);
        self.fabric.schedule.wake(self.script_actor, next);
    }

    fn act(&mut self, turn: Turn, action: Action) {
        let now = self.now;
        match action {
            Action::Link(link, change) => self.fabric.change(turn, link, change),
            Action::Pause(node, span) => self.with_host(node, |host, fabric| {
                host.paused_until = host.paused_until.max(now + span);
                fabric.schedule.wake(host.card, host.paused_until);
            }),
            Action::Capacity { host, out, in_ } => self.with_host(host, |host, _| {
                out.into_iter().for_each(|rate| host.out.direction.agent.set_capacity(rate));
                in_.into_iter().for_each(|rate| host.in_.direction.agent.set_capacity(rate));
            }),
            Action::Agents(node, state) => self.with_host(node, |host, _| host.agents = state),
            Action::Drift(node, ppb) => self.drift(node, ppb),
            Action::Coalesce(node, span) => self.with_host(node, |host, fabric| {
                host.coalesce = span;
                if !host.inbox.parcels.is_empty() {
                    fabric.schedule.wake(host.card, now.max(host.paused_until));
                }
            }),
            Action::Stop(id) => self.stop(id),
            Action::Router(node, change) => self.with_host(node, |host, _| {
                let local = host.clock.shows(now);
                if let Some(allocator) = &mut host.allocator {
                    allocator.change(local, change);
                }
            }),
        }
    }

    fn with_host(
        &mut self,
        node: NodeId,
        change: impl FnOnce(&mut super::host::Host, &mut Fabric),
    ) {
        let Ok(index) = self.host(node) else { return };
        change(&mut self.hosts[index as usize], &mut self.fabric);
        self.mark(index);
    }

    /// Changes a clock's drift; everything that the host waits for moves with it.
    fn drift(&mut self, node: NodeId, ppb: i32) {
        let Ok(index) = self.host(node) else { return };
        let most = super::clock::DRIFT_MOST;
        let host = &mut self.hosts[index as usize];
        host.clock.set_drift(self.now, ppb.clamp(-most, most));
        let all: Vec<u32> = host.out.ends.iter().chain(&host.in_.ends).copied().collect();
        for end in all {
            self.ends[end as usize].touch(end, &mut host.touched);
        }
        self.mark(index);
    }

    fn open(&mut self, id: SessionId) {
        let session = &mut self.sessions[id.0 as usize];
        let (source, sink, name) = (session.source, session.sink, id.0 + 1);
        if let Some(ends) = session.peers.take() {
            let tied = |end| {
                let other = |&(one, two): &(u32, u32)| {
                    (one == end).then_some(two).or_else(|| (two == end).then_some(one))
                };
                self.ties.iter().find_map(other)
            };
            let (outlet, inlet) = (tied(source), tied(sink));
            let sender = Peer::new(ends.sender, &session.spec.supply, outlet);
            let receiver = Peer::new(ends.receiver, &session.spec.reader, inlet);
            self.serve_end(sink, Role::Peer(Box::new(receiver)));
            return self.serve_end(source, Role::Peer(Box::new(sender)));
        }
        let session = &self.sessions[id.0 as usize];
        let now = |end: u32| self.hosts[self.ends[end as usize].host as usize].moment(self.now);
        let (spec, proof_key, path) = (&session.spec, session.proof_key, session.path);
        let source_end = SourceEnd::new(now(source), spec, name, proof_key, path);
        let group = self.group_of(sink);
        let sink_end = SinkEnd::new(now(sink), &session.spec, name).of_group(group);
        self.serve_end(source, Role::Source(Box::new(source_end)));
        self.serve_end(sink, Role::Sink(Box::new(sink_end)));
        self.cross(id);
    }

    /// A session that begins crosses the routers that its hosts ask for it.
    fn cross(&mut self, id: SessionId) {
        let session = &self.sessions[id.0 as usize];
        for (side, end) in [(Side::Source, session.source), (Side::Sink, session.sink)] {
            let host = &mut self.hosts[self.ends[end as usize].host as usize];
            let own = session.spec.crosses.iter().filter(|crosses| crosses.asks == side);
            let passages: Vec<Passage> = own
                .filter_map(|crosses| host.asking.passage(crosses.router, crosses.link))
                .collect();
            host.asking.crossings.open(side, end, u64::from(id.0), &passages);
        }
    }

    fn begin(&mut self, id: BackgroundId) {
        let background = &self.backgrounds[id.0 as usize];
        let (source, sink) = (background.source, background.sink);
        let spec = &background.spec;
        let generator = Generator::new(self.now, spec.pattern, spec.packet, background.seed);
        let flow = Flow {
            generator: Some(generator),
            packet: spec.packet,
            stop: spec.stop.unwrap_or(Time::MAX),
            packets: 0,
            bytes: gtp_alloc::Bytes::ZERO,
        };
        let counter = Flow { generator: None, packets: 0, ..flow.clone() };
        self.serve_end(source, Role::Background(Box::new(flow)));
        self.serve_end(sink, Role::Background(Box::new(counter)));
    }

    /// From now on its host serves this end.
    fn serve_end(&mut self, index: u32, role: Role) {
        let end = &mut self.ends[index as usize];
        let host = &mut self.hosts[end.host as usize];
        let local = host.clock.shows(self.now);
        match &role {
            Role::Source(_) => {
                host.out.ends.push(index);
                host.out.wake(local);
            }
            Role::Sink(_) => {
                host.in_.ends.push(index);
                host.in_.wake(local);
            }
            Role::Background(_) | Role::Waiting | Role::Peer(_) | Role::Talk => {}
        }
        host.upkeep_due = host.upkeep_due.min(local + UPKEEP).max(local);
        end.role = role;
        end.open = true;
        end.touch(index, &mut host.touched);
        let host = end.host;
        self.mark(host);
    }

    fn stop(&mut self, id: SessionId) {
        let (source, index) =
            (self.sessions[id.0 as usize].source, self.sessions[id.0 as usize].sink);
        for end in [source, index] {
            let end = &mut self.ends[end as usize];
            if let Role::Peer(peer) = &mut end.role {
                peer.stop(self.now);
                end.open = false;
                self.fabric.schedule.clear(end.actor);
                end.booked = Time::MAX;
            }
        }
        let end = &mut self.ends[index as usize];
        let host_index = end.host;
        let host = &mut self.hosts[host_index as usize];
        let now = host.moment(self.now);
        let Role::Sink(sink) = &mut end.role else { return };
        sink.end(now, Standing::Stopped);
        host.in_.wake(now.local);
        end.touch(index, &mut host.touched);
        self.mark(host_index);
    }
}

impl End {
    /// When it must be polled next, in the world's time.
    #[inline]
    fn due(&self, now: Moment, world: impl Fn(Time) -> Time) -> Time {
        let (core, supply) = match &self.role {
            _ if !self.open => return Time::MAX,
            Role::Source(source) => (source.core.poll_timeout(), source.supply_timeout()),
            Role::Sink(sink) => (sink.core.poll_timeout(), Time::MAX),
            Role::Background(flow) => return flow.due(),
            Role::Peer(peer) => return peer.poll_timeout(now.world),
            Role::Waiting | Role::Talk => return Time::MAX,
        };
        let least = now.local + LEAST_SLEEP;
        let core = core.map_or(Time::MAX, |(at, _)| world(at.max(least)));
        core.min(supply.max(now.world + Span::from_nanos(1)))
    }
}

impl Flow {
    fn due(&self) -> Time {
        let due = self.generator.as_ref().map_or(Time::MAX, Generator::due);
        if due < self.stop { due } else { Time::MAX }
    }

    fn send(
        &mut self,
        now: Time,
        fabric: &mut Fabric,
        route: super::fabric::Route,
        to: u32,
        there: &mut Vec<ParcelId>,
    ) {
        while self.due() <= now
            && let Some(generator) = &mut self.generator
        {
            generator.sent();
            self.packets += 1;
            let ecn = Codepoint::NotEct;
            let datagram = Datagram { size: self.packet, head: &[], payload: 0, ecn };
            there.extend(fabric.send(now, route, to, &datagram));
        }
    }
}
