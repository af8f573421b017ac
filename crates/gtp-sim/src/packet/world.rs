//! The world: all hosts, links, sessions and flows, and how they are put together.
//!
//! Building and looking at it are here; time passes in its other half, the run loop. Whatever is
//! added may be added before the run or between two stretches of it, and belongs to that time.

use std::collections::BTreeMap;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Link, LinkId, LinkSpec, Rng, managed};
use gtp_proto::ecn::EcnStanding;
use gtp_proto::{LimitedBy, PathName, Side};

use super::background::{self, Generator};
use super::clock::{Clock, DRIFT_MOST};
use super::ends::{SinkEnd, SourceEnd, Standing};
use super::fabric::{Control, Fabric, Route};
use super::gate::PeerRouter;
use super::groups::Gathering;
use super::host::Host;
use super::peers::{self, Peer, PeerEnds};
use super::route::{Edge, shortest};
use super::sample::Seen;
use super::schedule::ActorId;
use super::spec::{
    Action, BackgroundId, BackgroundSpec, BuildError, HostSpec, NodeId, Pace, Path, SessionId,
    SessionSpec,
};
use crate::trace::{PacketTrace, RECORDS_MOST, Trace};
use crate::verify::{Summary, Violation, verify};

/// A network with hosts, and everything that happens in it; see the module's head.
#[derive(Debug)]
pub struct World {
    pub(super) now: Time,
    pub(super) seed: Rng,
    pub(super) fabric: Fabric,
    /// Who is behind each entry of the schedule.
    pub(super) actors: Vec<Actor>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    pub(super) hosts: Vec<Host>,
    pub(super) ends: Vec<End>,
    pub(super) sessions: Vec<Session>,
    pub(super) groups: Vec<Gathering>,
    /// The links of each way that a session takes, with a number for it.
    ways: BTreeMap<Vec<u32>, u32>,
    /// Ends of rivals that are one machine's.
    pub(super) ties: Vec<(u32, u32)>,
    pub(super) backgrounds: Vec<Background>,
    pub(super) script: BTreeMap<(Time, u64), Step>,
    pub(super) script_actor: ActorId,
    pub(super) sampler: ActorId,
    /// Hosts that wait for their turn, in order.
    pub(super) dirty: std::collections::VecDeque<u32>,
    pub(super) trace: Trace,
    pub(super) seen: Seen,
    pub(super) refused: u64,
    pub(super) events: u64,
    /// Room for one datagram, and for one head.
    pub(super) datagram: Vec<u8>,
    pub(super) head: Vec<u8>,
}

/// Who is behind an entry of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A link: its first packet arrives.
    Link(LinkId),
    /// A host's agents, echoes or upkeep.
    Host(NodeId),
    /// A host's network card hands over.
    Card(NodeId),
    /// One end of a session: twice its number for the source, one more for the sink. Then the
    /// background flows.
    End(u32),
    /// A controller at a link: a packet leaves the queue, or its own time has come.
    Gate(u32),
    /// A managed queue in front of a link.
    Managed(u32),
    /// The script of actions.
    Script,
    /// The trace ends a bin.
    Sampler,
}

#[derive(Clone, Copy, Debug)]
enum Node {
    Host(u32),
    Switch,
}

/// One end of a session or flow, wherever it is in its life.
#[derive(Debug)]
pub(crate) struct End {
    pub host: u32,
    pub actor: ActorId,
    /// Where its packets go, and whom they are for.
    pub route: Route,
    pub peer: u32,
    pub touched: bool,
    /// Whether its host serves it.
    pub open: bool,
    /// When it is in the schedule.
    pub booked: Time,
    pub role: Role,
}

/// What an end does.
#[derive(Debug)]
pub(crate) enum Role {
    /// Its time has not come.
    Waiting,
    Source(Box<SourceEnd>),
    Sink(Box<SinkEnd>),
    /// A background flow: it sends, or it counts what comes.
    Background(Box<Flow>),
    /// An end of a rival's connection.
    Peer(Box<Peer>),
    /// An end of the talk between a host and a router.
    Talk,
}

#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub generator: Option<Generator>,
    pub packet: Bytes,
    pub stop: Time,
    pub packets: u64,
    pub bytes: Bytes,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub spec: SessionSpec,
    pub source: u32,
    pub sink: u32,
    pub proof_key: [u8; 16],
    pub path: PathName,
    /// A rival's ends, until it starts.
    pub peers: Option<PeerEnds>,
}

#[derive(Debug)]
pub(crate) struct Background {
    pub spec: BackgroundSpec,
    pub source: u32,
    pub sink: u32,
    pub seed: u64,
}

/// What the script may hold.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Act(Action),
    Open(SessionId),
    Begin(BackgroundId),
}

impl End {
    #[inline]
    pub fn touch(&mut self, index: u32, touched: &mut Vec<u32>) {
        if !self.touched {
            self.touched = true;
            touched.push(index);
        }
    }
}

/// How a session stands, and what it has done so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionStatus {
    /// Where it is in its life.
    pub standing: Standing,
    /// Data packets sent, and their IP bytes.
    pub sent_packets: u64,
    /// See `sent_packets`.
    pub sent_bytes: Bytes,
    /// Data packets that arrived, and their IP bytes.
    pub received_packets: u64,
    /// See `received_packets`.
    pub received_bytes: Bytes,
    /// Payload that arrived, each unit once.
    pub payload: Bytes,
    /// Packets that the sink missed.
    pub lost: u64,
    /// How often the source's timer for lost packets rang; of rivals that have one.
    pub timeouts: u64,
    /// Data packets whose unit was there already.
    pub duplicates: u64,
    /// Datagrams that the core threw away at either end, duplicates apart.
    pub discards: u64,
    /// The sink's newest grant.
    pub granted: Rate,
    /// The rate at which the source may send.
    pub sending: Rate,
    /// The source's bound by the path; unlimited while no bottleneck was seen.
    pub path_bound: Rate,
    /// Whether it uses ECN, and how many of its packets queues have marked.
    pub ecn: EcnStanding,
    /// Smoothed round-trip time at the source.
    pub rtt: Span,
    /// When the first unit arrived.
    pub first_data: Option<Time>,
    /// When it ended.
    pub ended: Option<Time>,
}

/// What a background flow has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BackgroundStatus {
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived.
    pub arrived: u64,
    /// Bytes of them.
    pub arrived_bytes: Bytes,
}

impl World {
    /// An empty world at time zero; everything drawn at random follows from `seed`.
    pub fn new(seed: u64) -> World {
        let mut fabric = Fabric::new(seed);
        let script_actor = fabric.schedule.add_actor();
        let sampler = fabric.schedule.add_actor();
        World {
            now: Time::ZERO,
            seed: Rng::new(seed),
            fabric,
            actors: vec![Actor::Script, Actor::Sampler],
            nodes: Vec::new(),
            edges: Vec::new(),
            hosts: Vec::new(),
            ends: Vec::new(),
            sessions: Vec::new(),
            groups: Vec::new(),
            ways: BTreeMap::new(),
            ties: Vec::new(),
            backgrounds: Vec::new(),
            script: BTreeMap::new(),
            script_actor,
            sampler,
            dirty: std::collections::VecDeque::new(),
            trace: Trace::default(),
            seen: Seen::default(),
            refused: 0,
            events: 0,
            datagram: vec![0; DATAGRAM_MOST],
            head: Vec::with_capacity(DATAGRAM_MOST),
        }
    }

    /// Adds a host. Drifts beyond 990,000 ppm count as that.
    pub fn add_host(&mut self, spec: HostSpec) -> NodeId {
        let node = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node::Host(self.hosts.len() as u32));
        let drawn = Span::from_nanos(self.seed.below(CLOCK_MOST.as_nanos()));
        let drift = spec.clock.drift_ppb.clamp(-DRIFT_MOST, DRIFT_MOST);
        let clock = Clock::new(spec.clock.offset.unwrap_or(CLOCK_LEAST + drawn), drift);
        let (actor, card) = (self.add_actor(Actor::Host(node)), self.add_actor(Actor::Card(node)));
        self.hosts.push(Host::new(self.now, node, &spec, clock, [actor, card]));
        node
    }

    /// Adds a node that only passes packets on.
    pub fn add_switch(&mut self) -> NodeId {
        self.nodes.push(Node::Switch);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Adds a link that joins no nodes, for paths that name their links.
    pub fn add_link(&mut self, spec: LinkSpec) -> LinkId {
        let seed = self.seed.next_u64();
        self.add_seeded_link(spec, seed)
    }

    /// The same with a seed of its own for its losses.
    pub fn add_seeded_link(&mut self, spec: LinkSpec, seed: u64) -> LinkId {
        let index = self.fabric.pipes.len() as u32;
        self.fabric.recorder.changed(self.now, index, &spec);
        self.fabric.add_link(spec, seed)
    }

    /// Puts a controller at a link's queue, from now on: it sees each packet that comes and leaves.
    ///
    /// # Errors
    /// When there is no such link, or it has a controller.
    pub fn add_router(&mut self, link: LinkId, router: PeerRouter) -> Result<(), BuildError> {
        let pipe = self.fabric.pipes.get(link.0).ok_or(BuildError::NoSuchLink(link))?;
        if pipe.control.is_some() {
            return Err(BuildError::OutOfRange("a link has one controller at most"));
        }
        let gate = self.fabric.add_gate(self.now, link, router);
        self.actors.push(Actor::Gate(gate));
        Ok(())
    }

    /// Puts a managed queue in the place of a link's own, from now on. It holds what the link's own
    /// may hold, takes each session for a flow, and drops what it would mark. The queues in which
    /// flows share a place follow from `seed`. A policer of the link sees what leaves the queue.
    ///
    /// # Errors
    /// When there is no such link, or it has a controller.
    pub fn add_managed(
        &mut self,
        link: LinkId,
        kind: managed::Kind,
        seed: u64,
    ) -> Result<(), BuildError> {
        let pipe = self.fabric.pipes.get(link.0).ok_or(BuildError::NoSuchLink(link))?;
        if pipe.control.is_some() {
            return Err(BuildError::OutOfRange("a link has one controller at most"));
        }
        let place = self.fabric.add_managed(link, kind, seed);
        self.actors.push(Actor::Managed(place));
        Ok(())
    }

    /// Joins two nodes by a link in one direction.
    ///
    /// # Errors
    /// When one of them is not there.
    pub fn connect(
        &mut self,
        from: NodeId,
        to: NodeId,
        spec: LinkSpec,
    ) -> Result<LinkId, BuildError> {
        self.node(from)?;
        self.node(to)?;
        let link = self.add_link(spec);
        self.edges.push(Edge { from: from.0, to: to.0, link });
        Ok(link)
    }

    /// Joins two nodes by two links of the same kind, from `a` to `b` and back.
    ///
    /// # Errors
    /// When one of them is not there.
    pub fn connect_both(
        &mut self,
        a: NodeId,
        b: NodeId,
        spec: LinkSpec,
    ) -> Result<[LinkId; 2], BuildError> {
        Ok([self.connect(a, b, spec.clone())?, self.connect(b, a, spec)?])
    }

    /// Adds a session. Its routes are found now, over the links that there are now.
    ///
    /// # Errors
    /// When a node, link or route is missing, or a number is out of range.
    pub fn add_session(&mut self, spec: SessionSpec) -> Result<SessionId, BuildError> {
        self.add_any_session(spec, None)
    }

    /// Adds a session whose ends are a rival's, made for its starting time. Of `spec`, law, weight,
    /// limit, unit, volume and memory are theirs to have; the applications' rates are set at them.
    /// Clocks of hosts are not theirs: they run on the world's time.
    ///
    /// # Errors
    /// As [`World::add_session`].
    pub fn add_peer_session(
        &mut self,
        spec: SessionSpec,
        ends: PeerEnds,
    ) -> Result<SessionId, BuildError> {
        self.add_any_session(spec, Some(ends))
    }

    /// The sink of one rival's session and the source of another are one machine, as a proxy is:
    /// whenever one is woken, the other may send, too. Both must begin after this.
    ///
    /// # Errors
    /// When a session is not there, is none of a rival's or has begun, when the two ends are not at
    /// one host, or when one of them is tied already.
    pub fn tie(&mut self, first: SessionId, second: SessionId) -> Result<(), BuildError> {
        let end = |id: SessionId| {
            let session = self.sessions.get(id.0 as usize).ok_or(BuildError::NoSuchSession(id))?;
            match session.peers {
                Some(_) => Ok(session),
                None => Err(BuildError::OutOfRange("what is tied is a rival's and has not begun")),
            }
        };
        let (inlet, outlet) = (end(first)?.sink, end(second)?.source);
        if self.ties.iter().any(|(one, two)| *one == inlet || *two == outlet) {
            return Err(BuildError::OutOfRange("an end is tied to one other at most"));
        }
        if self.ends[inlet as usize].host != self.ends[outlet as usize].host {
            return Err(BuildError::OutOfRange("ends that are tied are at one host"));
        }
        self.ties.push((inlet, outlet));
        Ok(())
    }

    fn add_any_session(
        &mut self,
        spec: SessionSpec,
        peers: Option<PeerEnds>,
    ) -> Result<SessionId, BuildError> {
        check_session(&spec)?;
        if spec.start < self.now {
            return Err(BuildError::Past(spec.start));
        }
        let down = self.route(spec.source, spec.sink, &spec.down)?;
        let up = self.route(spec.sink, spec.source, &spec.up)?;
        let id = SessionId(self.sessions.len() as u32);
        let (source, sink) = self.add_ends(spec.source, spec.sink, down, up)?;
        let mut proof_key = [0; 16];
        proof_key[..8].copy_from_slice(&self.seed.next_u64().to_le_bytes());
        proof_key[8..].copy_from_slice(&self.seed.next_u64().to_le_bytes());
        self.plan(spec.start, Step::Open(id));
        if let Some(stop) = spec.stop {
            self.plan(stop.max(spec.start), Step::Act(Action::Stop(id)));
        }
        let path = self.path_name(&spec, down);
        for crosses in &spec.crosses {
            let asks = if crosses.asks == Side::Source { spec.source } else { spec.sink };
            self.ask(asks, crosses.router, [&Path::Shortest; 2])?;
        }
        self.sessions.push(Session { spec, source, sink, proof_key, path, peers });
        Ok(id)
    }

    /// Adds a background flow.
    ///
    /// # Errors
    /// When a node, link or route is missing, or a number is out of range.
    pub fn add_background(&mut self, spec: BackgroundSpec) -> Result<BackgroundId, BuildError> {
        if let Some(fault) = background::fault(&spec.pattern, spec.packet) {
            return Err(BuildError::OutOfRange(fault));
        }
        if spec.start < self.now {
            return Err(BuildError::Past(spec.start));
        }
        let down = self.route(spec.source, spec.sink, &spec.down)?;
        let id = BackgroundId(self.backgrounds.len() as u32);
        let (source, sink) = self.add_ends(spec.source, spec.sink, down, down)?;
        let seed = self.seed.next_u64();
        self.plan(spec.start, Step::Begin(id));
        self.backgrounds.push(Background { spec, source, sink, seed });
        Ok(id)
    }

    /// Lets something happen at `at`.
    ///
    /// # Errors
    /// When it names what is not there, or that time is over.
    pub fn at(&mut self, at: Time, action: Action) -> Result<(), BuildError> {
        match action {
            Action::Link(link, _) if link.0 >= self.fabric.pipes.len() => {
                return Err(BuildError::NoSuchLink(link));
            }
            Action::Stop(id) if id.0 as usize >= self.sessions.len() => {
                return Err(BuildError::NoSuchSession(id));
            }
            Action::Pause(host, _)
            | Action::Capacity { host, .. }
            | Action::Agents(host, _)
            | Action::Drift(host, _)
            | Action::Coalesce(host, _) => {
                self.host(host)?;
            }
            Action::Router(host, _) => {
                let index = self.host(host)? as usize;
                if self.hosts[index].allocator.is_none() {
                    return Err(BuildError::OutOfRange("that host has no router"));
                }
            }
            Action::Link(..) | Action::Stop(_) => {}
        }
        if at < self.now {
            return Err(BuildError::Past(at));
        }
        self.plan(at, Step::Act(action));
        Ok(())
    }

    /// Keeps series of rates, queues and losses from now on, with one value per `bin`, for at most
    /// a million bins.
    ///
    /// # Errors
    /// When the bin is shorter than a microsecond.
    pub fn trace_every(&mut self, bin: Span) -> Result<(), BuildError> {
        if bin < Span::from_micros(1) {
            return Err(BuildError::OutOfRange("a bin is a microsecond or longer"));
        }
        self.trace = Trace { bin, start: self.now, ..Trace::default() };
        self.seen = self.counters();
        for pipe in &mut self.fabric.pipes {
            pipe.link.take_least_queued(self.now);
        }
        self.fabric.schedule.wake(self.sampler, self.now + bin);
        Ok(())
    }

    /// Keeps every step of every packet from now on, the first `most` of them. To be judged by the
    /// verifier, a trace must begin before the first packet and be complete.
    pub fn trace_packets(&mut self, most: usize) {
        self.fabric.recorder.start(most.min(RECORDS_MOST));
        let Fabric { pipes, recorder, .. } = &mut self.fabric;
        for (index, pipe) in pipes.iter().enumerate() {
            recorder.changed(self.now, index as u32, pipe.link.spec());
        }
        (0..self.fabric.pipes.len() as u32).for_each(|link| self.fabric.look_ahead(link));
    }

    /// The time of the world.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The hash over everything that happened so far.
    pub fn hash(&self) -> u64 {
        self.fabric.hash.value()
    }

    /// Events so far: arrivals at links' ends, timers, turns of hosts.
    pub fn events(&self) -> u64 {
        self.events + self.fabric.taken_in
    }

    /// Those of them that went through the schedule; the others are packets that a link took in
    /// together with what came before and after them.
    pub fn scheduled(&self) -> u64 {
        self.events
    }

    /// Packets under way, waiting for a card or for the end of a pause; and the most for which
    /// there ever had to be room, those that links had lost, and not yet taken in, included.
    pub fn packets_under_way(&self) -> (usize, usize) {
        (self.fabric.parcels.len(), self.fabric.parcels.most())
    }

    /// Packets that a host had no room for.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The series so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The steps of packets so far.
    pub fn packet_trace(&self) -> &PacketTrace {
        self.fabric.recorder.trace()
    }

    /// Judges the packet trace by the physics of links; see [`crate::verify`].
    ///
    /// # Errors
    /// The rules that were broken.
    pub fn verify(&self) -> Result<Summary, Vec<Violation>> {
        verify(self.packet_trace(), self.now, self.fabric.parcels.len())
    }

    /// A link, with its parameters and counters; `None` if there is no such link.
    pub fn link(&self, id: LinkId) -> Option<&Link> {
        self.fabric.pipes.get(id.0).map(|pipe| &pipe.link)
    }

    /// Packets that the controller or the managed queue at a link turned away; the link never saw
    /// them.
    pub fn turned_away(&self, id: LinkId) -> u64 {
        self.fabric.pipes.get(id.0).map_or(0, |pipe| self.fabric.turned_away(pipe))
    }

    /// The longest that a packet has waited for a link; zero if there is no such link.
    pub fn longest_wait(&self, id: LinkId) -> Span {
        let Some(pipe) = self.fabric.pipes.get(id.0) else { return Span::ZERO };
        match pipe.control {
            Some(Control::Managed(place)) => self.fabric.managed[place as usize].wait_max,
            Some(Control::Gate(_)) | None => pipe.link.stats().wait_max,
        }
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.fabric.pipes.len()
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The links of a session from source to sink that a packet would have to itself take this
    /// long to pass, payload's time aside: propagation there and back. `None`: no such session.
    pub fn base_rtt(&self, id: SessionId) -> Option<Span> {
        let session = self.sessions.get(id.0 as usize)?;
        let one_way = |end: u32| self.fabric.route_delay(self.ends[end as usize].route);
        Some(one_way(session.source) + one_way(session.sink))
    }

    /// How a session stands; `None` if there is no such session.
    pub fn session(&self, id: SessionId) -> Option<SessionStatus> {
        let session = self.sessions.get(id.0 as usize)?;
        let roles =
            (&self.ends[session.source as usize].role, &self.ends[session.sink as usize].role);
        if let (Role::Peer(sender), Role::Peer(receiver)) = roles {
            return Some(peers::status(sender, receiver));
        }
        let (Role::Source(source), Role::Sink(sink)) = roles else {
            return Some(SessionStatus::waiting());
        };
        let (sent, got) = (source.core.counters(), sink.core.counters());
        Some(SessionStatus {
            standing: sink.standing,
            sent_packets: sent.packets,
            sent_bytes: Bytes(sent.bytes),
            received_packets: got.packets,
            received_bytes: Bytes(got.bytes),
            payload: sink.payload,
            lost: got.lost,
            timeouts: 0,
            duplicates: got.duplicates,
            discards: source.discards + sink.discards,
            granted: sink.core.granted(),
            sending: source.core.sending_rate(),
            path_bound: source.core.path_bound(),
            ecn: source.core.path_standing().ecn,
            rtt: source.core.rtt(),
            first_data: sink.first_data,
            ended: sink.ended,
        })
    }

    /// What limits a session, as its source and its sink see it; `None` if it does not run.
    pub fn limited_by(&self, id: SessionId) -> Option<[LimitedBy; 2]> {
        let session = self.sessions.get(id.0 as usize)?;
        let role = |end: u32| &self.ends[end as usize].role;
        match (role(session.source), role(session.sink)) {
            (Role::Source(source), Role::Sink(sink)) => {
                Some([source.core.limited_by(), sink.core.limited_by()])
            }
            (Role::Source(_) | Role::Sink(_) | Role::Waiting | Role::Background(_), _)
            | (Role::Peer(_) | Role::Talk, _) => None,
        }
    }

    /// What a background flow did; `None` if there is no such flow.
    pub fn background(&self, id: BackgroundId) -> Option<BackgroundStatus> {
        let flow = self.backgrounds.get(id.0 as usize)?;
        let roles = (&self.ends[flow.source as usize].role, &self.ends[flow.sink as usize].role);
        let (Role::Background(source), Role::Background(sink)) = roles else {
            return Some(BackgroundStatus::default());
        };
        Some(BackgroundStatus {
            sent: source.packets,
            arrived: sink.packets,
            arrived_bytes: sink.bytes,
        })
    }

    fn node(&self, id: NodeId) -> Result<Node, BuildError> {
        self.nodes.get(id.0 as usize).copied().ok_or(BuildError::NoSuchNode(id))
    }

    /// A host's place among the hosts.
    pub(super) fn host(&self, id: NodeId) -> Result<u32, BuildError> {
        match self.node(id)? {
            Node::Host(index) => Ok(index),
            Node::Switch => Err(BuildError::NotAHost(id)),
        }
    }

    pub(super) fn route(
        &mut self,
        from: NodeId,
        to: NodeId,
        path: &Path,
    ) -> Result<Route, BuildError> {
        self.host(from)?;
        self.host(to)?;
        let links = match path {
            Path::Links(links) => links.clone(),
            Path::Shortest => {
                let pipes = &self.fabric.pipes;
                let delay = |link: LinkId| pipes[link.0].link.spec().delay.as_nanos();
                shortest(self.nodes.len(), &self.edges, delay, from.0, to.0)
                    .ok_or(BuildError::NoRoute(from, to))?
            }
        };
        if let Some(&missing) = links.iter().find(|link| link.0 >= self.fabric.pipes.len()) {
            return Err(BuildError::NoSuchLink(missing));
        }
        Ok(self.fabric.add_route(&links))
    }

    /// Names the path of a session: its hosts, and the links from one to the other. A host that
    /// has several ways to another one has an address for each.
    fn path_name(&mut self, spec: &SessionSpec, down: Route) -> PathName {
        let links: Vec<u32> = self.fabric.links_of(down).collect();
        let next = self.ways.len() as u32;
        let way = *self.ways.entry(links).or_insert(next);
        let place = |node: NodeId, way: u32| {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&node.0.to_le_bytes());
            address[4..8].copy_from_slice(&way.to_le_bytes());
            address
        };
        PathName::new(place(spec.source, way), place(spec.sink, way), [0; 32])
    }

    pub(super) fn add_ends(
        &mut self,
        source: NodeId,
        sink: NodeId,
        down: Route,
        up: Route,
    ) -> Result<(u32, u32), BuildError> {
        let first = self.ends.len() as u32;
        for (node, route, peer) in [(source, down, first + 1), (sink, up, first)] {
            let host = self.host(node)?;
            let actor = self.add_actor(Actor::End(self.ends.len() as u32));
            self.ends.push(End {
                host,
                actor,
                route,
                peer,
                touched: false,
                open: false,
                booked: Time::MAX,
                role: Role::Waiting,
            });
        }
        Ok((first, first + 1))
    }

    fn add_actor(&mut self, actor: Actor) -> ActorId {
        self.actors.push(actor);
        self.fabric.schedule.add_actor()
    }

    fn plan(&mut self, at: Time, step: Step) {
        let sequence = self.fabric.schedule.next_sequence();
        self.script.insert((at, sequence), step);
        if let Some((&(first, _), _)) = self.script.first_key_value() {
            self.fabric.schedule.wake(self.script_actor, first);
        }
    }
}

impl SessionStatus {
    pub(super) fn waiting() -> SessionStatus {
        SessionStatus {
            standing: Standing::Waiting,
            sent_packets: 0,
            sent_bytes: Bytes::ZERO,
            received_packets: 0,
            received_bytes: Bytes::ZERO,
            payload: Bytes::ZERO,
            lost: 0,
            timeouts: 0,
            duplicates: 0,
            discards: 0,
            granted: Rate::ZERO,
            sending: Rate::ZERO,
            path_bound: Rate::UNLIMITED,
            ecn: EcnStanding::OFF,
            rtt: Span::ZERO,
            first_data: None,
            ended: None,
        }
    }
}

fn check_session(spec: &SessionSpec) -> Result<(), BuildError> {
    let ordered = |pace: &Pace| match pace {
        Pace::Unlimited => true,
        Pace::Script(script) => script.is_sorted_by_key(|(at, _)| *at),
    };
    let fault = if spec.unit == 0 || spec.unit > gtp_proto::limits::UNIT_JUMBO {
        "a unit has 1 to 8,900 bytes"
    } else if !(spec.weight > 0.0 && spec.weight.is_finite()) {
        "a weight is positive and finite"
    } else if spec.memory.0 < u64::from(spec.unit) {
        "a sink has memory for one unit at least"
    } else if !ordered(&spec.supply) || !ordered(&spec.reader) {
        "the times of a script of rates ascend"
    } else {
        return Ok(());
    };
    Err(BuildError::OutOfRange(fault))
}

/// Drawn clock offsets: never zero, because that stands for "none" on the wire, and up to a
/// little less than the 4,295 s after which 32-bit microseconds begin again.
const CLOCK_LEAST: Span = Span::from_secs(1);
const CLOCK_MOST: Span = Span::from_secs(4_000);
/// Longer than any datagram.
const DATAGRAM_MOST: usize = 1 << 14;
