//! A world of rates: state, changes, the run, and what can be read off it.
//!
//! The only events are nodes' ticks and the changes of the description; words wait in mailboxes
//! and cost no event. Between events nothing is computed. At one time changes come first, then
//! nodes in their order. A run is a function of the description: integers throughout, but for
//! the laws, and every list in a defined order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gtp_alloc::endnode::Params;
use gtp_alloc::maxmin::{self, Network};
use gtp_alloc::{Rate, Span, Time};
use gtp_proto::{Agent, AgentConfig, Side};

use super::build::{
    BuildError, Builder, Change, Config, Hosting, Law, NodeId, NodeSpec, RTT_MOST, SessionId,
    SessionSpec,
};
use super::ends::{Common, Flow, Life, LoadSteps, SinkEnd, SourceEnd, Terms};
use super::laws::Desk;
use super::mailbox::{EMPTY, Mail, Offers, Place};
use super::post::Post;
use super::schedule::Schedule;
use super::tick::AgentDesk;

/// A node as it runs.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub side: Side,
    pub capacity: Rate,
    pub interval: u64,
    /// When it ticks next, and when it last did.
    pub next: u64,
    pub last: u64,
    /// When its ends were last advanced.
    pub seen: u64,
    /// The sum of its sessions' rates then, in bit/s.
    pub load: u64,
    /// No word arrives before.
    pub earliest: u64,
    /// Its ends among those of its kind.
    pub ends: std::ops::Range<u32>,
    /// Whether anything but its ends' inputs has changed since it last computed.
    pub stale: bool,
}

/// The largest load of any node of one kind, over its capacity at that moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorstLoad {
    /// Load over capacity: above 1 is overload.
    pub part: f64,
    /// Where; none if no node of the kind has carried anything.
    pub node: Option<NodeId>,
    /// When it was first so high.
    pub at: Time,
}

const IDLE: WorstLoad = WorstLoad { part: 0.0, node: None, at: Time::ZERO };

/// Worst loads, sources' and sinks'.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worst {
    pub source: WorstLoad,
    pub sink: WorstLoad,
}

impl Worst {
    pub fn of(&mut self, side: Side) -> &mut WorstLoad {
        match side {
            Side::Source => &mut self.source,
            Side::Sink => &mut self.sink,
        }
    }
}

/// A world of rates. Made by [`Builder::build`].
#[derive(Debug)]
pub struct World {
    pub(super) config: Config,
    pub(super) now: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) sources: Vec<SourceEnd>,
    pub(super) sinks: Vec<SinkEnd>,
    pub(super) source_terms: Vec<Terms>,
    pub(super) sink_terms: Vec<Terms>,
    /// Ends of each session: among the sources, among the sinks.
    ends: Vec<(u32, u32)>,
    /// The nodes' parameters, then those of single sessions.
    pub(super) params: Vec<Params>,
    /// Whether there are any of the second kind.
    pub(super) has_own_params: bool,
    pub(super) mail: Mail,
    /// Words for sources and for sinks that are not in their rings yet, where words are posted:
    /// under the end-node law.
    pub(super) posts: Option<[Post; 2]>,
    /// One for each node, unless laws are hosted.
    pub(super) agents: Vec<Agent>,
    pub(super) schedule: Schedule,
    pending: BinaryHeap<Reverse<(u64, u32)>>,
    changes: Vec<Change>,
    generation: u64,
    pub(super) desk: Desk,
    pub(super) agent_desk: AgentDesk,
    pub(super) load: LoadSteps,
    pub(super) worst: Worst,
    pub(super) recent: Worst,
    pub(super) hash: u64,
    pub(super) ticks: u64,
    pub(super) words: u64,
    /// How often a ring was found full when its writer's turn came.
    pub(super) crowded: u64,
}

impl World {
    pub(super) fn new(b: &Builder) -> Result<World, BuildError> {
        let mut nodes: Vec<Node> = b.nodes.iter().map(Node::new).collect();
        let order = lay_out(&mut nodes, &b.sessions);
        let mut ends = vec![(0, 0); b.sessions.len()];
        order.sources.iter().enumerate().for_each(|(i, k)| ends[*k as usize].0 = i as u32);
        order.sinks.iter().enumerate().for_each(|(i, k)| ends[*k as usize].1 = i as u32);
        let mut params: Vec<Params> = b.nodes.iter().map(|n| n.params).collect();
        let own = own_params(&mut params, &b.sessions);
        let (mut mail, posts) = ways(b.config.law, b.sessions.len());
        let plan = Plan { b, nodes: &nodes, ends: &ends };
        let (sources, sinks): (Vec<SourceEnd>, Vec<SinkEnd>) = {
            let mut ring = |words: u64| mail.ring(words.min(RING_MOST) as u32);
            let at_source = |k: &u32| ring(plan.ring_size(*k, Side::Source));
            let at_sources: Vec<Place> = order.sources.iter().map(at_source).collect();
            let at_sink = |k: &u32| (ring(plan.ring_size(*k, Side::Sink)), ring(plan.echoes(*k)));
            let at_sinks: Vec<(Place, Place)> = order.sinks.iter().map(at_sink).collect();
            let inbox = |k: u32| at_sources[ends[k as usize].0 as usize];
            let boxes = |k: u32| at_sinks[ends[k as usize].1 as usize];
            let writers = |k: u32| match posts {
                None => (boxes(k).0, inbox(k)),
                Some(_) => (inbox(k), boxes(k).0),
            };
            let source = |&k: &u32| plan.source_end(k, inbox(k), writers(k).0);
            let sink = |&k: &u32| plan.sink_end(k, boxes(k).0, writers(k).1, boxes(k).1);
            (order.sources.iter().map(source).collect(), order.sinks.iter().map(sink).collect())
        };
        for (source, sink) in &ends {
            let (source, sink) = (&sources[*source as usize].common, &sinks[*sink as usize].common);
            nodes[sink.peer_node as usize].load += source.flow.rate;
            nodes[source.peer_node as usize].load += sink.flow.rate;
        }
        let terms = |k: &u32, params: u32| Terms { weight: b.sessions[*k as usize].weight, params };
        let source_terms = order.sources.iter().map(|k| terms(k, own[*k as usize].0)).collect();
        let sink_terms = order.sinks.iter().map(|k| terms(k, own[*k as usize].1)).collect();
        if mail.len() > u32::MAX as usize / 4 {
            return Err(BuildError::TooLarge);
        }
        let mut world = World {
            config: b.config,
            now: 0,
            schedule: calendar(&nodes),
            agents: agents(b),
            nodes,
            sources,
            sinks,
            source_terms,
            sink_terms,
            ends,
            has_own_params: params.len() > b.nodes.len(),
            params,
            mail,
            posts,
            pending: BinaryHeap::new(),
            changes: Vec::new(),
            generation: 0,
            desk: Desk::default(),
            agent_desk: AgentDesk::default(),
            load: LoadSteps::default(),
            worst: Worst { source: IDLE, sink: IDLE },
            recent: Worst { source: IDLE, sink: IDLE },
            hash: 0,
            ticks: 0,
            words: 0,
            crowded: 0,
        };
        world.enter_all(b);
        Ok(world)
    }

    fn enter_all(&mut self, b: &Builder) {
        for v in 0..self.nodes.len() {
            self.schedule.enter(self.nodes[v].next, v as u32);
        }
        for (k, spec) in b.sessions.iter().enumerate() {
            let id = SessionId(k as u32);
            if spec.joins > Time::ZERO {
                self.plan(spec.joins, Change::Join(id));
            } else if spec.initial == Rate::ZERO {
                self.open(self.ends[k].0);
            }
            if let Some(leaves) = spec.leaves {
                self.plan(leaves, Change::Leave(id));
            }
        }
        for (at, change) in &b.changes {
            self.plan(*at, *change);
        }
    }

    fn plan(&mut self, at: Time, change: Change) {
        self.pending.push(Reverse((at.as_nanos(), self.changes.len() as u32)));
        self.changes.push(change);
    }

    /// Runs until `end`; everything that happens at `end` has happened then. A time that has
    /// passed changes nothing.
    pub fn run_until(&mut self, end: Time) {
        let end = end.as_nanos();
        if end < self.now {
            return;
        }
        while let Some(&Reverse((at, index))) = self.pending.peek() {
            if at > end {
                break;
            }
            if at > 0 {
                self.run_ticks(at - 1);
            }
            self.now = at;
            self.pending.pop();
            self.change_now(self.changes[index as usize]);
        }
        self.run_ticks(end);
        self.now = end;
        for v in 0..self.nodes.len() as u32 {
            self.look(v, end);
        }
    }

    fn change_now(&mut self, change: Change) {
        self.generation += 1;
        let now = self.now;
        let ends = |k: SessionId| self.ends[k.0 as usize];
        match change {
            Change::Join(k) if self.sources[ends(k).0 as usize].common.life == Life::Future => {
                self.open(ends(k).0);
            }
            Change::Leave(k) => {
                let at = ends(k).0;
                let node = self.look_at_source_of(k);
                self.sources[at as usize].common.life = Life::Gone;
                self.after_change(at, node);
            }
            Change::Demand(k, rate) => {
                let at = ends(k).0;
                let node = self.look_at_source_of(k);
                self.sources[at as usize].demand = rate.as_bps();
                self.after_change(at, node);
            }
            Change::Capacity(v, rate) => {
                self.look(v.0, now); // Up to here the old capacity counts.
                self.set_capacity(v.0, rate);
            }
            Change::Join(_) => {}
        }
    }

    fn look_at_source_of(&mut self, k: SessionId) -> u32 {
        let sink = self.ends[k.0 as usize].1;
        let node = self.sinks[sink as usize].common.peer_node;
        self.look(node, self.now);
        node
    }

    fn open(&mut self, at: u32) {
        let node = self.sinks[self.sources[at as usize].common.peer as usize].common.peer_node;
        self.look(node, self.now);
        self.sources[at as usize].common.life = Life::Open;
        self.after_change(at, node);
    }

    fn after_change(&mut self, at: u32, node: u32) {
        self.obey(node, at);
        self.nodes[node as usize].stale = true;
        self.tell_sink(at, self.now);
        if self.config.law == Law::Grant && self.now > 0 {
            self.wake(node, self.now);
        }
    }

    /// Lets `change` happen now. Costs a look at every node: [`World::change_all`] makes many
    /// changes for the price of one.
    ///
    /// # Errors
    /// [`BuildError::Change`] if it names what does not exist or would leave a session without a
    /// limit.
    pub fn change(&mut self, change: Change) -> Result<(), BuildError> {
        self.change_all(&[change])
    }

    /// Lets all of `changes` happen now, in this order and at one moment: nodes compute after the
    /// last of them. Use it where one bin ends many sessions.
    ///
    /// # Errors
    /// [`BuildError::Change`] for the first that names what does not exist or would leave a session
    /// without a limit; none of them happens then.
    pub fn change_all(&mut self, changes: &[Change]) -> Result<(), BuildError> {
        if let Some(unsound) = changes.iter().find(|change| !self.is_sound(**change)) {
            return Err(BuildError::Change(*unsound));
        }
        let now = Time::from_nanos(self.now);
        changes.iter().for_each(|change| self.plan(now, *change));
        self.run_until(now);
        Ok(())
    }

    fn is_sound(&self, change: Change) -> bool {
        let most = super::build::RATE_MOST;
        match change {
            Change::Join(k) | Change::Leave(k) => (k.0 as usize) < self.ends.len(),
            Change::Demand(k, rate) => {
                let Some((source, sink)) = self.ends.get(k.0 as usize) else { return false };
                let far = [
                    self.sources[*source as usize].common.peer_node,
                    self.sinks[*sink as usize].common.peer_node,
                ];
                let limited = |v: &u32| !self.nodes[*v as usize].capacity.is_unlimited();
                rate <= most || rate.is_unlimited() && far.iter().any(limited)
            }
            Change::Capacity(v, rate) => (v.0 as usize) < self.nodes.len() && rate <= most,
        }
    }

    /// The time until which the world has run.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.now)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Number of sessions, those to come and those gone included.
    pub fn sessions(&self) -> usize {
        self.ends.len()
    }

    /// The rate at which session `k` sends now.
    ///
    /// # Panics
    /// If there is no such session.
    pub fn sending_rate(&self, k: SessionId) -> Rate {
        Rate::from_bps(self.sources[self.ends[k.0 as usize].0 as usize].common.flow.rate)
    }

    /// The rate at which session `k` arrives at its sink now.
    ///
    /// # Panics
    /// If there is no such session.
    pub fn arriving_rate(&self, k: SessionId) -> Rate {
        Rate::from_bps(self.sinks[self.ends[k.0 as usize].1 as usize].common.flow.rate)
    }

    /// Whether session `k` has joined and not left.
    ///
    /// # Panics
    /// If there is no such session.
    pub fn is_active(&self, k: SessionId) -> bool {
        self.sources[self.ends[k.0 as usize].0 as usize].common.life == Life::Open
    }

    /// All sending rates in bit/s, by session.
    pub fn rates(&self, rates: &mut Vec<f64>) {
        rates.clear();
        let rate =
            |(source, _): &(u32, u32)| self.sources[*source as usize].common.flow.rate as f64;
        rates.extend(self.ends.iter().map(rate));
    }

    /// The exact global max-min rates in bit/s, by session, of the sessions that are active now
    /// under the demands and capacities of now; by their weights under the grant law.
    pub fn optimum(&self) -> Vec<f64> {
        let capacity = self.nodes.iter().map(|n| n.capacity.as_f64()).collect();
        let mut network = Network::new(capacity).expect("capacities were checked");
        for &(source, sink) in &self.ends {
            let end = &self.sources[source as usize];
            let uses = [self.sinks[sink as usize].common.peer_node, end.common.peer_node];
            let demand = match end.common.life {
                Life::Open => Rate::from_bps(end.demand).as_f64(),
                Life::Future | Life::Gone => 0.0,
            };
            let weight = match self.config.law {
                Law::Grant => self.source_terms[source as usize].weight,
                Law::EndNode => 1.0,
            };
            let session = maxmin::Session { uses: &uses, weight, demand };
            network.add(session).expect("sessions were checked");
        }
        maxmin::solve(&network)
    }

    /// Counts what may have moved the optimum: joins, leaves, changes of demand and capacity.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The largest load of any node of one kind so far, at whatever moment it was.
    pub fn worst_load(&self, side: Side) -> WorstLoad {
        let mut worst = self.worst;
        *worst.of(side)
    }

    /// The same since the last time this was asked.
    pub fn take_worst_load(&mut self, side: Side) -> WorstLoad {
        std::mem::replace(self.recent.of(side), IDLE)
    }

    /// A running hash of every word that one end has told another: when, which session, what.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Node computations so far, and words told.
    pub fn counters(&self) -> (u64, u64) {
        (self.ticks, self.words)
    }
}

impl Node {
    fn new(spec: &NodeSpec) -> Node {
        let phase = spec.phase.as_nanos();
        Node {
            side: spec.side,
            capacity: spec.capacity,
            interval: spec.interval.as_nanos(),
            next: phase,
            last: phase,
            seen: 0,
            load: 0,
            earliest: EMPTY,
            ends: 0..0,
            stale: true,
        }
    }
}

/// How words travel under a law between this many sessions' ends.
fn ways(law: Law, sessions: usize) -> (Mail, Option<[Post; 2]>) {
    match law {
        Law::Grant => (Mail::new(Offers::Told), None),
        Law::EndNode => (Mail::new(Offers::None), Some([sessions; 2].map(Post::new))),
    }
}

/// The sessions in the order of their ends in memory.
struct Order {
    sources: Vec<u32>,
    sinks: Vec<u32>,
}

/// Lays a node's ends side by side, in the order of its sessions, and the nodes in the order in
/// which they first tick: if their intervals are alike, memory is then read as it lies.
fn lay_out(nodes: &mut [Node], sessions: &[SessionSpec]) -> Order {
    let mut by_tick: Vec<u32> = (0..nodes.len() as u32).collect();
    by_tick.sort_by_key(|v| nodes[*v as usize].next);
    let mut by_node = |node: fn(&SessionSpec) -> NodeId, side: Side| {
        let mut count = vec![0u32; nodes.len()];
        sessions.iter().for_each(|s| count[node(s).0 as usize] += 1);
        let mut at = 0;
        for &v in &by_tick {
            if nodes[v as usize].side == side {
                // For now the end is where the next session goes.
                nodes[v as usize].ends = at..at;
                at += count[v as usize];
            }
        }
        let mut order = vec![0; sessions.len()];
        for (k, s) in sessions.iter().enumerate() {
            let ends = &mut nodes[node(s).0 as usize].ends;
            order[ends.end as usize] = k as u32;
            ends.end += 1;
        }
        order
    };
    Order { sources: by_node(|s| s.source, Side::Source), sinks: by_node(|s| s.sink, Side::Sink) }
}

/// Longest ring that a session begins with; rings grow.
const RING_MOST: u64 = 64;

/// For each session the places of its parameters at source and sink: the nodes', or its own,
/// which are added to `all`.
fn own_params(all: &mut Vec<Params>, sessions: &[SessionSpec]) -> Vec<(u32, u32)> {
    let mut own = Vec::with_capacity(sessions.len());
    for s in sessions {
        own.push(match s.params {
            None => (s.source.0, s.sink.0),
            Some(params) => {
                all.push(params);
                (all.len() as u32 - 1, all.len() as u32 - 1)
            }
        });
    }
    own
}

/// What ends are made from.
struct Plan<'a> {
    b: &'a Builder,
    nodes: &'a [Node],
    ends: &'a [(u32, u32)],
}

impl Plan<'_> {
    fn spec(&self, k: u32) -> &SessionSpec {
        &self.b.sessions[k as usize]
    }

    fn node(&self, v: NodeId) -> &Node {
        &self.nodes[v.0 as usize]
    }

    /// Words that may be on their way to one end: those of the travel time, and those that wait
    /// for the reader's interval to end.
    fn ring_size(&self, k: u32, to: Side) -> u64 {
        let s = self.spec(k);
        let (source, sink) = (self.node(s.source).interval, self.node(s.sink).interval);
        let (reader, writer) = match to {
            Side::Source => (source, sink),
            Side::Sink => (sink, source),
        };
        (s.rtt.as_nanos() / 2 + reader) / writer + 2
    }

    /// Grants that may be on their round trip, or wait for the sink's own interval to end.
    fn echoes(&self, k: u32) -> u64 {
        let s = self.spec(k);
        s.rtt.as_nanos() / self.node(s.sink).interval + 3
    }

    fn common(&self, k: u32, at: &Node, inbox: Place, writer: Place) -> Common {
        let s = self.spec(k);
        let always = s.joins == Time::ZERO && s.initial > Rate::ZERO;
        let rate = if always { s.initial.min(s.demand).as_bps() } else { 0 };
        Common {
            peer: 0,
            peer_node: 0,
            half_rtt: (s.rtt.as_nanos() / 2) as u32, // At most a second.
            inbox,
            writer,
            life: if always { Life::Open } else { Life::Future },
            // What the first interval lacks of history, if it is shorter than the others.
            flow: Flow::steady(rate, at.interval - at.next),
            peer_offer: u64::MAX,
        }
    }

    fn source_end(&self, k: u32, inbox: Place, writer: Place) -> SourceEnd {
        let s = self.spec(k);
        SourceEnd {
            common: Common {
                peer: self.ends[k as usize].1,
                peer_node: s.sink.0,
                ..self.common(k, self.node(s.source), inbox, writer)
            },
            demand: s.demand.as_bps(),
            expected: s.initial.as_bps(),
            granted: s.initial.as_bps(),
            offer: 0,
        }
    }

    fn sink_end(&self, k: u32, inbox: Place, writer: Place, echoes: Place) -> SinkEnd {
        let s = self.spec(k);
        let common = self.common(k, self.node(s.sink), inbox, writer);
        SinkEnd {
            permitted: common.flow.rate,
            common: Common {
                peer: self.ends[k as usize].0,
                peer_node: s.source.0,
                // Nothing is granted before the source has said what it could do with it.
                peer_offer: common.flow.rate,
                ..common
            },
            echoed: s.initial.as_bps(),
            newest: s.initial.as_bps(),
            told_offer: 0,
            issued: 0,
            echoes,
            grants: echoes.next(),
        }
    }
}

fn agents(b: &Builder) -> Vec<Agent> {
    if b.config.hosting != Hosting::Agents {
        return Vec::new();
    }
    let agent = |n: &NodeSpec| {
        let config = AgentConfig { side: n.side, capacity: n.capacity, interval: Some(n.interval) };
        Agent::new(Time::ZERO + n.phase, config)
    };
    b.nodes.iter().map(agent).collect()
}

fn calendar(nodes: &[Node]) -> Schedule {
    let per_second = nodes.iter().map(|n| 1e9 / n.interval as f64).sum();
    let longest = nodes.iter().map(|n| n.interval).max().unwrap_or(0);
    Schedule::new(
        per_second,
        longest.max(RTT_MOST.as_nanos() / 2) + Span::from_millis(1).as_nanos(),
    )
}
