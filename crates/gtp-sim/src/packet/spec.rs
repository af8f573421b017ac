//! What a world is made of, as plain values: hosts, sessions, background flows, actions.
//!
//! They are what a scenario's reader fills in, and what the builder checks. Nothing here does
//! anything.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Change, LinkId};
use gtp_proto::{Kept, Law, Side};

/// A host's or switch's number in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A session's number in its world, in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// A background flow's number in its world, in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackgroundId(pub u32);

/// A host: two agents, a network card and a clock. `Default` is a host without limits.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// Capacity that its agent shares among sessions that it sends. (What its card can really
    /// carry is a matter of its links.)
    pub out: Rate,
    /// The same for sessions that it receives.
    pub in_: Rate,
    /// A fixed control interval, or `None` for half the median round-trip time.
    pub interval: Option<Span>,
    /// The network card hands packets over together, this long after the first of them; zero:
    /// each at once.
    pub coalesce: Span,
    /// Bytes of packets that may wait for a paused host or for the card; more are refused.
    pub buffer: Bytes,
    /// The host's clock.
    pub clock: ClockSpec,
}

impl Default for HostSpec {
    fn default() -> HostSpec {
        HostSpec {
            out: Rate::UNLIMITED,
            in_: Rate::UNLIMITED,
            interval: None,
            coalesce: Span::ZERO,
            buffer: RECEIVE_BUFFER,
            clock: ClockSpec::default(),
        }
    }
}

/// A receive buffer that loses nothing at 20 Gbit/s on an ordinary host.
const RECEIVE_BUFFER: Bytes = Bytes(32 << 20);

/// A host's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClockSpec {
    /// What it shows when the world's shows zero; `None` draws up to 4,000 s from the world's seed:
    /// clocks agree on nothing, and the 32-bit microseconds on the wire may wrap on the way.
    pub offset: Option<Span>,
    /// How fast it runs: parts per billion above true time, or below. 50,000 are 50 ppm.
    pub drift_ppb: i32,
}

/// A link that a session crosses and that a router allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crosses {
    /// The host at which the router is ([`World::add_allocator`](super::World::add_allocator)).
    pub router: NodeId,
    /// Its number among the router's one-way links.
    pub link: u8,
    /// Which end of the session asks.
    pub asks: Side,
}

/// How packets of one direction travel.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Path {
    /// By the route of the least delay over links between nodes, fewest links first among equals.
    #[default]
    Shortest,
    /// Over these links, in order; they may be ones that join no nodes. None: a perfect wire.
    Links(Vec<LinkId>),
}

/// A session between two hosts: one source, one sink.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSpec {
    /// The host that sends.
    pub source: NodeId,
    /// The host that receives.
    pub sink: NodeId,
    /// When the sink opens it.
    pub start: Time,
    /// When the sink closes it, if it has not ended by itself.
    pub stop: Option<Time>,
    /// Control law at both ends.
    pub law: Law,
    /// What keeps its source to what its path carries.
    pub kept: Kept,
    /// Weight at both ends; positive and finite.
    pub weight: f64,
    /// A limit set at the sink.
    pub max_rate: Rate,
    /// Payload bytes of a packet.
    pub unit: u16,
    /// How much there is to move.
    pub volume: Volume,
    /// How fast the source's application supplies it.
    pub supply: Pace,
    /// What the source's application may have ready and unsent; beyond it the application waits.
    pub ready: Bytes,
    /// How fast the sink's application reads what arrived.
    pub reader: Pace,
    /// What the sink may hold unread, asked-for units included.
    pub memory: Bytes,
    /// From source to sink.
    pub down: Path,
    /// From sink to source.
    pub up: Path,
    /// The routers that its hosts ask for it.
    pub crosses: Vec<Crosses>,
}

impl SessionSpec {
    /// An endless session from the start of the world, of weight one, by the grant law, with
    /// 1,400-byte units, nothing slow at either end.
    pub fn new(source: NodeId, sink: NodeId) -> SessionSpec {
        SessionSpec {
            source,
            sink,
            start: Time::ZERO,
            stop: None,
            law: Law::Grant,
            kept: Kept::default(),
            weight: 1.0,
            max_rate: Rate::UNLIMITED,
            unit: gtp_proto::limits::UNIT_ETHERNET,
            volume: Volume::Endless,
            supply: Pace::Unlimited,
            ready: Bytes(1 << 20),
            reader: Pace::Unlimited,
            memory: Bytes(256 << 20),
            down: Path::Shortest,
            up: Path::Shortest,
            crosses: Vec::new(),
        }
    }
}

/// How much a session has to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    /// More than any run can.
    Endless,
    /// So many payload bytes; the session ends by itself.
    Bytes(Bytes),
}

/// How fast an application supplies or takes payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It is never what one waits for.
    Unlimited,
    /// At these rates, each from its time on (in ascending order); at none before the first.
    Script(Vec<(Time, Rate)>),
}

impl Pace {
    /// One rate from the beginning.
    pub fn constant(rate: Rate) -> Pace {
        Pace::Script(vec![(Time::ZERO, rate)])
    }
}

/// A flow of UDP packets that nothing controls.
#[derive(Clone, Debug, PartialEq)]
pub struct BackgroundSpec {
    /// The host that sends.
    pub source: NodeId,
    /// The host that receives.
    pub sink: NodeId,
    /// When it begins.
    pub start: Time,
    /// When it ends.
    pub stop: Option<Time>,
    /// Bytes of a packet on links.
    pub packet: Bytes,
    /// When packets leave.
    pub pattern: Pattern,
    /// From source to sink.
    pub down: Path,
}

impl BackgroundSpec {
    /// A flow of 1,000-byte packets from the start of the world without end.
    pub fn new(source: NodeId, sink: NodeId, pattern: Pattern) -> BackgroundSpec {
        BackgroundSpec {
            source,
            sink,
            start: Time::ZERO,
            stop: None,
            packet: Bytes(1_000),
            pattern,
            down: Path::Shortest,
        }
    }
}

/// When packets of a background flow leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Evenly.
    Constant {
        /// Bits per second on links.
        rate: Rate,
    },
    /// With exponentially distributed gaps.
    Poisson {
        /// Mean bits per second on links.
        mean: Rate,
    },
    /// Evenly during exponentially distributed times, nothing during others. A packet at the peak
    /// rate may take 1,000 mean on-times at most.
    OnOff {
        /// Bits per second while on.
        peak: Rate,
        /// Mean length of an on-time.
        on: Span,
        /// Mean length of an off-time.
        off: Span,
    },
    /// The same with Pareto-distributed times: many such flows together are self-similar
    /// (Willinger et al., 1997). A packet at the peak rate may take 1,000 of the least on-times at
    /// most, which are `on (shape - 1) / shape`.
    ParetoOnOff {
        /// Bits per second while on.
        peak: Rate,
        /// Mean length of an on-time.
        on: Span,
        /// Mean length of an off-time.
        off: Span,
        /// Shape, above 1 (else there is no mean): 1.5 is usual.
        shape: f64,
    },
}

/// What can be made to happen at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// A link changes: rate, delay, queue, loss, down or up.
    Link(LinkId, Change),
    /// A host stands still for so long: it takes nothing in and sends nothing.
    Pause(NodeId, Span),
    /// A host's capacities change; `None` keeps one.
    Capacity {
        /// Which host.
        host: NodeId,
        /// For what it sends.
        out: Option<Rate>,
        /// For what it receives.
        in_: Option<Rate>,
    },
    /// A host's agents die, and grants stop, or they run again from nothing.
    Agents(NodeId, AgentState),
    /// A host's clock runs faster or slower from now on, in parts per billion of true time.
    Drift(NodeId, i32),
    /// A host's card hands over together what comes within this.
    Coalesce(NodeId, Span),
    /// The sink closes a session.
    Stop(SessionId),
    /// Something happens to the router at a host.
    Router(NodeId, RouterChange),
}

/// What can happen to a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterChange {
    /// It takes nothing in and says nothing.
    Silent,
    /// It goes on with what it knew.
    Back,
    /// It begins anew and knows nothing.
    Restart,
    /// It shares out this much of the one-way link of this number.
    Capacity(u8, Rate),
}

/// Whether a host's agents run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// They do.
    Running,
    /// They do not; sessions live on their last grants.
    Dead,
}

/// Why something cannot be added to a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// There is no such host or switch: use the numbers that the world gave.
    NoSuchNode(NodeId),
    /// Only hosts send and receive; this is a switch.
    NotAHost(NodeId),
    /// There is no such link: use the numbers that the world gave.
    NoSuchLink(LinkId),
    /// No links lead from the first node to the second: join them, or name the links.
    NoRoute(NodeId, NodeId),
    /// There is no such session: use the numbers that the world gave.
    NoSuchSession(SessionId),
    /// That time is over: a world does not go back.
    Past(Time),
    /// A number outside its range; the text says which and what the range is.
    OutOfRange(&'static str),
}

impl core::fmt::Display for BuildError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            BuildError::NoSuchNode(node) => write!(f, "the world has no node {}", node.0),
            BuildError::NotAHost(node) => {
                write!(f, "node {} is a switch; only hosts send and receive", node.0)
            }
            BuildError::NoSuchLink(link) => write!(f, "the world has no link {}", link.0),
            BuildError::NoRoute(from, to) => {
                write!(f, "no links lead from node {} to node {}: connect them", from.0, to.0)
            }
            BuildError::NoSuchSession(id) => write!(f, "the world has no session {}", id.0),
            BuildError::Past(at) => write!(f, "{at:?} is over in this world"),
            BuildError::OutOfRange(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for BuildError {}
