//! The description of a world of rates: nodes, sessions, and what happens when.
//!
//! A description is checked as a whole before anything runs, so that a built world cannot fail.
//! Every count and span has a bound here. It draws nothing: whoever wants random networks draws
//! them first (see [`networks`](super::networks)).

use std::fmt;

use gtp_alloc::endnode::{CapAtTarget, Params};
use gtp_alloc::{Rate, Span, Time};
use gtp_proto::Side;

/// Which law every node of a world runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Offers and committed grants: GTP's default.
    Grant,
    /// The thesis's end-node law (its Algorithms 2 and 3), with each node's [`NodeSpec::params`].
    EndNode,
}

/// What computes at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosting {
    /// A [`gtp_proto::Agent`] each: the type that real hosts run. About 2 KB and some
    /// microseconds a tick for eight sessions.
    Agents,
    /// The agent's pure laws from `gtp_alloc` on the world's own compact state: the same words at
    /// the same times ([`Telling::AsAgents`]), for worlds too large for agents.
    Laws(Telling),
}

/// Which changes of a grant a sink tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// What an agent tells: all cuts, and raises by more than one part in 10^4 and 1 kbit/s.
    AsAgents,
    /// Everything, as in the papers.
    Always,
}

/// When a node computes besides the ends of its control intervals. Under the end-node law it never
/// does: its measured rates are means over whole intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// When something changes at the node itself: a session joins or leaves there, its demand or
    /// the capacity changes.
    Intervals,
    /// When word arrives from another node, too, but not within a millisecond of the last time.
    News,
}

/// What all nodes of a world have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The law.
    pub law: Law,
    /// What runs it.
    pub hosting: Hosting,
    /// When.
    pub pace: Pace,
}

impl Config {
    /// What GTP does by default, at intervals.
    pub const GRANT: Config = Config {
        law: Law::Grant,
        hosting: Hosting::Laws(Telling::AsAgents),
        pace: Pace::Intervals,
    };
    /// The thesis as printed.
    pub const THESIS: Config = Config {
        law: Law::EndNode,
        hosting: Hosting::Laws(Telling::Always),
        pace: Pace::Intervals,
    };
}

/// A node of a world, counted from zero in the order of adding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A session of a world, counted from zero in the order of adding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// One direction of a host. A host that sends and receives is two nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeSpec {
    /// Whether its sessions send or receive.
    pub side: Side,
    /// What they may have together; may be unlimited.
    pub capacity: Rate,
    /// Control interval, 100 us to 1 s.
    pub interval: Span,
    /// When the first interval ends; at most `interval`.
    pub phase: Span,
    /// Of the end-node law; the other ignores it.
    pub params: Params,
}

/// One session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionSpec {
    /// Where it sends.
    pub source: NodeId,
    /// Where it receives.
    pub sink: NodeId,
    /// Round-trip time, at most 2 s; half of it each way, rounded down to whole nanoseconds.
    pub rtt: Span,
    /// Share relative to others, in 2^-20..=2^20; the end-node law knows no weights.
    pub weight: f64,
    /// The most it can use; unlimited for a session that always has something to send.
    pub demand: Rate,
    /// When it starts.
    pub joins: Time,
    /// When it ends, if it does.
    pub leaves: Option<Time>,
    /// What both ends let it have before they compute for the first time; zero is usual. A
    /// session that joins at zero with more has always run at it.
    pub initial: Rate,
    /// End-node parameters of its own at both ends, in place of the nodes'.
    pub params: Option<Params>,
}

impl SessionSpec {
    /// An unlimited session of weight 1 that is there from the start.
    pub fn new(source: NodeId, sink: NodeId, rtt: Span) -> SessionSpec {
        SessionSpec {
            source,
            sink,
            rtt,
            weight: 1.0,
            demand: Rate::UNLIMITED,
            joins: Time::ZERO,
            leaves: None,
            initial: Rate::ZERO,
            params: None,
        }
    }
}

/// What happens to a running world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A session that was declared to join later joins now.
    Join(SessionId),
    /// It leaves, for good.
    Leave(SessionId),
    /// Its application wants another rate.
    Demand(SessionId, Rate),
    /// A node's capacity is another.
    Capacity(NodeId, Rate),
}

/// Shortest and longest control interval.
pub const INTERVAL_LEAST: Span = Span::from_micros(100);
/// See [`INTERVAL_LEAST`].
pub const INTERVAL_MOST: Span = Span::from_secs(1);
/// Longest round-trip time.
pub const RTT_MOST: Span = gtp_proto::limits::RTT_MOST;
/// Largest finite rate: below it, whole bits keep every sum of the laws exact.
pub const RATE_MOST: Rate = Rate::from_bps(1_000_000_000_000_000);
/// Most nodes, and most sessions: 2^24, some 12 GB of state.
pub const COUNT_MOST: usize = 1 << 24;

/// Why a description is refused; indices count in the order of adding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BuildError {
    /// More than [`COUNT_MOST`] nodes or sessions.
    TooLarge,
    /// The node's interval is outside its bounds, or its phase is zero or longer than that.
    Interval(NodeId),
    /// Alpha or beta is not inside (0, 1).
    Params(NodeId),
    /// A rate is finite and above [`RATE_MOST`].
    NodeRate(NodeId),
    /// The session names a node that does not exist or is of the other kind.
    Ends(SessionId),
    /// The round-trip time is above [`RTT_MOST`].
    Rtt(SessionId),
    /// The weight is outside 2^-20..=2^20.
    Weight(SessionId),
    /// A rate is finite and above [`RATE_MOST`], or the initial rate is unlimited.
    SessionRate(SessionId),
    /// Neither its demand nor a node limits it.
    Unbounded(SessionId),
    /// It would leave before it joins.
    Times(SessionId),
    /// Alpha or beta of its own is not inside (0, 1).
    SessionParams(SessionId),
    /// Agents stop at the target rate; they cannot run the law as printed.
    AgentsCap(NodeId),
    /// Agents know neither initial rates nor parameters of single sessions.
    AgentsSession(SessionId),
    /// A change names a session or node that does not exist, or a rate above [`RATE_MOST`], or
    /// would leave a session without any limit.
    Change(Change),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BuildError::TooLarge => write!(f, "more than {COUNT_MOST} nodes or sessions"),
            BuildError::Interval(NodeId(v)) => {
                write!(f, "node {v}: an interval is 100 us to 1 s, a phase above 0 and at most it")
            }
            BuildError::Params(NodeId(v)) => {
                write!(f, "node {v}: alpha and beta must lie between 0 and 1")
            }
            BuildError::NodeRate(NodeId(v)) => {
                write!(f, "node {v}: a capacity is at most 10^15 bit/s, or unlimited")
            }
            BuildError::Ends(SessionId(k)) => {
                write!(f, "session {k}: it must go from a source node to a sink node")
            }
            BuildError::Rtt(SessionId(k)) => {
                write!(f, "session {k}: a round-trip time is at most 2 s")
            }
            BuildError::Weight(SessionId(k)) => {
                write!(f, "session {k}: a weight lies between 2^-20 and 2^20")
            }
            BuildError::SessionRate(SessionId(k)) => {
                write!(f, "session {k}: rates are at most 10^15 bit/s; a demand may be unlimited")
            }
            BuildError::Unbounded(SessionId(k)) => {
                write!(f, "session {k}: give it a demand, or one of its nodes a capacity")
            }
            BuildError::Times(SessionId(k)) => write!(f, "session {k}: it leaves before it joins"),
            BuildError::SessionParams(SessionId(k)) => {
                write!(f, "session {k}: alpha and beta must lie between 0 and 1")
            }
            BuildError::AgentsCap(NodeId(v)) => {
                write!(f, "node {v}: under agents the end-node law must be capped at the target")
            }
            BuildError::AgentsSession(SessionId(k)) => {
                write!(f, "session {k}: agents know no initial rates or parameters of sessions")
            }
            BuildError::Change(change) => {
                write!(f, "{change:?}: no such session or node, or no rate of at most 10^15 bit/s")
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// A world to be.
#[derive(Clone, Debug)]
pub struct Builder {
    /// What all nodes have in common.
    pub config: Config,
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// The sessions.
    pub sessions: Vec<SessionSpec>,
    /// What happens besides the sessions' own joins and leaves; at equal times in this order.
    pub changes: Vec<(Time, Change)>,
}

impl Builder {
    /// Nothing yet.
    pub fn new(config: Config) -> Builder {
        Builder { config, nodes: Vec::new(), sessions: Vec::new(), changes: Vec::new() }
    }

    /// Adds a node.
    pub fn node(&mut self, spec: NodeSpec) -> NodeId {
        self.nodes.push(spec);
        NodeId((self.nodes.len() - 1) as u32)
    }

    /// Adds a session.
    pub fn session(&mut self, spec: SessionSpec) -> SessionId {
        self.sessions.push(spec);
        SessionId((self.sessions.len() - 1) as u32)
    }

    /// Lets `change` happen at `at`.
    pub fn at(&mut self, at: Time, change: Change) {
        self.changes.push((at, change));
    }

    /// The world at time zero.
    ///
    /// # Errors
    /// The first [`BuildError`] found.
    pub fn build(&self) -> Result<super::World, BuildError> {
        self.check()?;
        super::World::new(self)
    }

    fn check(&self) -> Result<(), BuildError> {
        if self.nodes.len() > COUNT_MOST || self.sessions.len() > COUNT_MOST {
            return Err(BuildError::TooLarge);
        }
        for (v, node) in self.nodes.iter().enumerate() {
            self.check_node(NodeId(v as u32), node)?;
        }
        for (k, session) in self.sessions.iter().enumerate() {
            self.check_session(SessionId(k as u32), session)?;
        }
        match self.changes.iter().find(|(_, change)| !self.is_sound(*change)) {
            Some((_, change)) => Err(BuildError::Change(*change)),
            None => Ok(()),
        }
    }

    /// Whether `change` names what exists, and a rate that leaves every session bounded.
    fn is_sound(&self, change: Change) -> bool {
        let session = |k: SessionId| self.sessions.get(k.0 as usize);
        let is_limited = |v: NodeId| !self.nodes[v.0 as usize].capacity.is_unlimited();
        match change {
            Change::Join(k) | Change::Leave(k) => session(k).is_some(),
            Change::Demand(k, rate) => session(k).is_some_and(|s| {
                rate <= RATE_MOST
                    || rate.is_unlimited() && (is_limited(s.source) || is_limited(s.sink))
            }),
            Change::Capacity(v, rate) => (v.0 as usize) < self.nodes.len() && rate <= RATE_MOST,
        }
    }

    fn check_node(&self, id: NodeId, node: &NodeSpec) -> Result<(), BuildError> {
        let in_bounds = (INTERVAL_LEAST..=INTERVAL_MOST).contains(&node.interval);
        if !in_bounds || node.phase == Span::ZERO || node.phase > node.interval {
            return Err(BuildError::Interval(id));
        }
        if !is_rate(node.capacity) {
            return Err(BuildError::NodeRate(id));
        }
        if self.config.law == Law::EndNode {
            if !node.params.is_valid() {
                return Err(BuildError::Params(id));
            }
            let capped = node.params.cap_at_target == CapAtTarget::Yes;
            if self.config.hosting == Hosting::Agents && !capped {
                return Err(BuildError::AgentsCap(id));
            }
        }
        Ok(())
    }

    fn check_session(&self, id: SessionId, s: &SessionSpec) -> Result<(), BuildError> {
        let node = |v: NodeId, side| {
            self.nodes.get(v.0 as usize).filter(|n| n.side == side).ok_or(BuildError::Ends(id))
        };
        let ends = [node(s.source, Side::Source)?, node(s.sink, Side::Sink)?];
        if s.rtt > RTT_MOST {
            return Err(BuildError::Rtt(id));
        }
        let weights = gtp_alloc::maxmin::WEIGHT_MIN..=gtp_alloc::maxmin::WEIGHT_MAX;
        if !weights.contains(&s.weight) {
            return Err(BuildError::Weight(id));
        }
        if !is_rate(s.demand) || s.initial > RATE_MOST {
            return Err(BuildError::SessionRate(id));
        }
        if s.demand.is_unlimited() && ends.iter().all(|n| n.capacity.is_unlimited()) {
            return Err(BuildError::Unbounded(id));
        }
        if s.leaves.is_some_and(|leaves| leaves < s.joins) {
            return Err(BuildError::Times(id));
        }
        if s.params.is_some_and(|p| !p.is_valid()) {
            return Err(BuildError::SessionParams(id));
        }
        let plain = s.initial == Rate::ZERO && s.params.is_none();
        if self.config.hosting == Hosting::Agents && !plain {
            return Err(BuildError::AgentsSession(id));
        }
        Ok(())
    }
}

/// A finite rate in bounds, or none at all.
fn is_rate(rate: Rate) -> bool {
    rate <= RATE_MOST || rate.is_unlimited()
}
