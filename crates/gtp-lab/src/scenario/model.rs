//! A scenario as plain values: everything is resolved, checked and drawn.
//!
//! Names have become places in lists, groups have become single hosts and sessions, ranges to draw
//! from have become numbers. Times count from the start of the run. No engine is known here.

use std::sync::Arc;

use gtp_alloc::endnode::Params;
use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Change, LinkSpec};
use gtp_proto::Kept;
use serde::Deserialize;

use super::protocol::{Protocol, RouterEntry};

/// One network, what is done on it, and what is to be shown of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What it is called.
    pub title: String,
    /// What it is for; may be empty.
    pub about: String,
    /// What is simulated.
    pub level: Level,
    /// Simulated time.
    pub duration: Span,
    /// Everything that is drawn follows from it.
    pub seed: u64,
    /// What shares a host's capacity.
    pub law: LawName,
    /// Whether the path bounds GTP's sessions.
    pub path_bound: PathBound,
    /// Parameters of the end-node law.
    pub params: Params,
    /// Control interval of every host that has none of its own.
    pub interval: Option<Span>,
    /// Links.
    pub links: Vec<LinkEntry>,
    /// Hosts first, then switches.
    pub nodes: Vec<NodeEntry>,
    /// Routes stated by their links.
    pub routes: Vec<RouteEntry>,
    /// Paths of the relay that sessions may take.
    pub paths: Vec<PathEntry>,
    /// Routers that allocate.
    pub allocators: Vec<AllocatorEntry>,
    /// Sessions.
    pub sessions: Vec<SessionEntry>,
    /// Traffic that nothing controls.
    pub backgrounds: Vec<BackgroundEntry>,
    /// What happens when, in the order of time.
    pub events: Vec<(Span, Event)>,
    /// What is to be shown.
    pub output: Output,
}

impl Scenario {
    /// The groups, each with the places of its sessions.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (place, group) in
            self.sessions.iter().enumerate().filter_map(|(k, s)| Some((k, s.group?)))
        {
            groups.resize_with(groups.len().max(group + 1), Vec::new);
            groups[group].push(place);
        }
        groups
    }

    /// Nodes, links, routes, routers with who asks them, sessions with their demands, flows and
    /// events: how large it is.
    pub fn entries(&self) -> usize {
        let demands: usize = self.sessions.iter().map(|session| 1 + session.demand.len()).sum();
        let asked: usize = self.allocators.iter().map(|router| 1 + router.askers.len()).sum();
        let network = self.nodes.len() + self.links.len() + self.routes.len() + self.paths.len();
        network + asked + demands + self.backgrounds.len() + self.events.len()
    }
}

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every packet.
    Packet,
    /// Rates alone.
    Rate,
}

impl Level {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Packet => "packet",
            Level::Rate => "rate",
        }
    }

    /// The most sessions of one scenario. At the packet level each has two endpoints of some
    /// kilobytes and what they remember; at the rate level it is ten times what the largest run
    /// has.
    pub const fn sessions_most(self) -> usize {
        match self {
            Level::Packet => 1 << 17,
            Level::Rate => 1 << 22,
        }
    }
}

/// What shares a host's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LawName {
    /// Offers and committed grants.
    Grant,
    /// The thesis's end-node law.
    EndNode,
}

impl LawName {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            LawName::Grant => "grant",
            LawName::EndNode => "endnode",
        }
    }
}

/// Whether sessions are bounded by what their path shows of its rate.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum PathBound {
    /// They are.
    #[default]
    On,
    /// They send what both ends allow, as in the papers, which know no such bound.
    Off,
}

impl PathBound {
    /// What keeps a source to its path then.
    pub const fn kept(self) -> Kept {
        match self {
            PathBound::On => Kept::ByPathBound,
            PathBound::Off => Kept::ByNothing,
        }
    }
}

/// A link, one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkEntry {
    /// Its name.
    pub name: String,
    /// Its parameters at the start.
    pub spec: LinkSpec,
    /// Its seed.
    pub seed: u64,
    /// The nodes that it joins, if routes may find it.
    pub ends: Option<(usize, usize)>,
    /// What stands at its queue.
    pub router: Option<RouterEntry>,
}

/// A host or a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEntry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
}

/// Whether a node has capacities to share.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// It sends and receives.
    Host(HostEntry),
    /// It passes on.
    Switch,
}

/// A host's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct HostEntry {
    /// What its sessions may send together.
    pub capacity_out: Rate,
    /// What they may receive together.
    pub capacity_in: Rate,
    /// Control interval; `None`: the scenario's.
    pub interval: Option<Span>,
    /// Packets are handed over together, this long after the first.
    pub coalesce: Span,
    /// Parts per billion by which its clock runs fast.
    pub skew_ppb: i32,
}

/// A route stated by its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// Node where packets enter.
    pub from: usize,
    /// Node where they leave.
    pub to: usize,
    /// Places of its links, in order; routes of one pattern share them.
    pub links: Arc<[usize]>,
}

/// A router that shares out what links carry among the sessions of hosts that ask it, as
/// `gtp router` does. It forwards nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatorEntry {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub site: Site,
    /// Places of the links, with what it shares out of each.
    pub links: Vec<(usize, Rate)>,
    /// The hosts that know it, in the order of their places: each asks it for those of its
    /// sessions that cross one of the links.
    pub askers: Vec<usize>,
    /// Whether it has the key that these hosts have.
    pub key: RouterKey,
}

impl AllocatorEntry {
    /// The number at the router of this link, if it shares it out.
    pub fn number_of(&self, link: usize) -> Option<usize> {
        self.links.iter().position(|(place, _)| *place == link)
    }

    /// Whether this host knows it.
    pub fn is_known_to(&self, host: usize) -> bool {
        self.askers.binary_search(&host).is_ok()
    }
}

/// How asks get to a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// It is at this host, and they take the way there.
    Host(usize),
    /// Over a wire from each host, with this round-trip time.
    Wire(Span),
}

/// Whose key a router has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterKey {
    /// That of the hosts that ask it.
    Hosts,
    /// Another one: nobody can make out what it says.
    Another,
}

/// What can happen to a router that allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterEvent {
    /// It takes nothing in and says nothing.
    Silent,
    /// It goes on with what it knew.
    Back,
    /// It begins anew and knows nothing.
    Restart,
    /// It shares out this much of the link of this number at the router.
    Capacity(usize, Rate),
}

/// How packets get from one end of a session to the other and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By routes: stated ones, else the shortest over links that join nodes.
    Routes,
    /// By a wire of their own with this round-trip time.
    Wire(Span),
    /// By a path of the relay, by its place in the list.
    Path(usize),
}

/// A path of the relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEntry {
    /// Its name.
    pub name: String,
    /// Places of its links from source to sink.
    pub forth: Vec<usize>,
    /// Places of its links from sink to source.
    pub back: Vec<usize>,
}

/// A session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEntry {
    /// Its name.
    pub name: String,
    /// Node that sends.
    pub source: usize,
    /// Node that receives.
    pub sink: usize,
    /// When it starts.
    pub start: Span,
    /// When it is stopped, if it is.
    pub stop: Option<Span>,
    /// How much it moves; `None`: it never ends by itself.
    pub size: Option<Bytes>,
    /// What its application supplies at most, from each time on; empty: whatever is wanted.
    pub demand: Vec<(Span, Rate)>,
    /// Its weight.
    pub weight: f64,
    /// How its packets travel.
    pub reach: Reach,
    /// Payload bytes of a packet.
    pub unit: u16,
    /// What its ends speak.
    pub protocol: Protocol,
    /// A delay there and back on top of its way.
    pub wire: Span,
    /// The session that brings what this one sends on, by its place in the list.
    pub relays: Option<usize>,
    /// The group of sessions with which it brings one object, by its number from 0 on.
    pub group: Option<usize>,
}

impl SessionEntry {
    /// What its application supplies at `at` seconds.
    pub fn demand_at(&self, at: Span) -> Rate {
        let so_far = self.demand.iter().take_while(|(from, _)| *from <= at).last();
        match (so_far, self.demand.is_empty()) {
            (Some((_, rate)), _) => *rate,
            (None, true) => Rate::UNLIMITED,
            (None, false) => Rate::ZERO,
        }
    }
}

/// A flow of packets that nothing controls.
#[derive(Clone, Debug, PartialEq)]
pub struct BackgroundEntry {
    /// Its name.
    pub name: String,
    /// Node that sends.
    pub source: usize,
    /// Node that receives.
    pub sink: usize,
    /// Its links, where they are stated; else those of the route.
    pub links: Option<Vec<usize>>,
    /// When it begins.
    pub start: Span,
    /// When it ends, if it does.
    pub stop: Option<Span>,
    /// Bytes of a packet.
    pub packet: Bytes,
    /// When packets leave.
    pub pattern: Pattern,
}

/// When packets of a background flow leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Evenly.
    Constant(Rate),
    /// With exponentially distributed gaps, at this mean rate.
    Poisson(Rate),
    /// At the peak rate during exponentially distributed times, not at all during others.
    OnOff {
        /// Rate while on.
        peak: Rate,
        /// Mean on-time.
        on: Span,
        /// Mean off-time.
        off: Span,
    },
    /// The same with Pareto-distributed times.
    Pareto {
        /// Rate while on.
        peak: Rate,
        /// Mean on-time.
        on: Span,
        /// Mean off-time.
        off: Span,
        /// Shape, above one.
        shape: f64,
    },
}

impl Pattern {
    /// Its mean rate in bit/s.
    pub fn mean(&self) -> f64 {
        match *self {
            Pattern::Constant(rate) | Pattern::Poisson(rate) => rate.as_f64(),
            Pattern::OnOff { peak, on, off } | Pattern::Pareto { peak, on, off, .. } => {
                let (on, off) = (on.as_secs_f64(), off.as_secs_f64());
                peak.as_f64() * on / (on + off).max(1e-12)
            }
        }
    }
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A link changes.
    Link(usize, Change),
    /// A host stands still for so long.
    Pause(usize, Span),
    /// A host's capacities change.
    Capacity {
        /// The host.
        host: usize,
        /// What it may send.
        out: Option<Rate>,
        /// What it may receive.
        in_: Option<Rate>,
    },
    /// A host's agents stop.
    AgentsStop(usize),
    /// They run again, from nothing.
    AgentsRun(usize),
    /// A host's clock runs faster by these parts per billion from now on.
    Skew(usize, i32),
    /// A host's card hands over together what comes within this.
    Coalesce(usize, Span),
    /// Something happens to a router that allocates.
    Router(usize, RouterEvent),
}

impl Event {
    /// What it is called in figures and tables.
    pub fn described(&self, scenario: &Scenario) -> String {
        let node = |n: usize| scenario.nodes[n].name.as_str();
        match *self {
            Event::Link(link, change) => {
                let name = &scenario.links[link].name;
                match change.state {
                    Some(gtp_link::LinkState::Down) => format!("{name} down"),
                    Some(gtp_link::LinkState::Up) => format!("{name} up"),
                    None => format!("{name} changes"),
                }
            }
            Event::Pause(host, _) => format!("{} pauses", node(host)),
            Event::Capacity { host, .. } => format!("{}: capacity", node(host)),
            Event::AgentsStop(host) => format!("{}: agents stop", node(host)),
            Event::AgentsRun(host) => format!("{}: agents run", node(host)),
            Event::Skew(host, _) => format!("{}: clock", node(host)),
            Event::Coalesce(host, _) => format!("{}: card", node(host)),
            Event::Router(router, event) => {
                let name = &scenario.allocators[router].name;
                match event {
                    RouterEvent::Silent => format!("{name} silent"),
                    RouterEvent::Back => format!("{name} back"),
                    RouterEvent::Restart => format!("{name} restarts"),
                    RouterEvent::Capacity(..) => format!("{name}: capacity"),
                }
            }
        }
    }
}

/// What is to be shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output {
    /// Time between two points of a curve.
    pub every: Span,
    /// Curves of single sessions and links that a figure has at most.
    pub curves: usize,
    /// How near a share must be to be reached, as a part of it.
    pub tolerance: f64,
}
