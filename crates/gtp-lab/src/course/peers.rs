//! The ends of rivals' sessions and the controllers at links, made as a scenario names them.
//!
//! Each protocol gets what its user would set: payload of a packet, a size, a buffer, a rate, the
//! capacity of its link. What is drawn at random follows from the session's start and source, so
//! that no two need be alike.

use std::collections::BTreeMap;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::LinkSpec;
use gtp_peers::rate::gtp2004::agent::{Agent, Shared, Skew};
use gtp_peers::rate::{
    Transfer, gtp2004, lambdastream, netblt, rbudp, sabul, tsunami,
    udt::{self, law::Version},
};
use gtp_peers::tcp::{
    AckDelay, HEADER, Law, ParallelReceiver, ParallelSender, Proxy, Receiver, ReceiverConfig,
    Sender, SenderConfig, Side,
};
use gtp_peers::{advertised, aecp, anchors, pie, red, vcp, xcp};
use gtp_sim::packet::{PeerEnds, PeerRouter};

use crate::scenario::model::{LinkEntry, NodeKind, Scenario, SessionEntry};
use crate::scenario::protocol::{
    Delayed, Mover, Paced, Protocol, RouterEntry, WindowLaw, Windowed,
};

/// What sessions of one world share.
#[derive(Default)]
pub struct Shop {
    /// Agents of GTP 2004, by their sink.
    agents: BTreeMap<usize, Shared>,
    /// The sending sides of proxies, by the session that they send for.
    outlets: BTreeMap<usize, Side>,
}

impl Shop {
    /// The ends of a rival's session, which takes a way whose slowest link has this rate; `None`
    /// for the project's own.
    pub fn ends(&mut self, scenario: &Scenario, k: usize, slowest: Rate) -> Option<PeerEnds> {
        let session = &scenario.sessions[k];
        match session.protocol {
            Protocol::Gtp => None,
            Protocol::Window(windowed) => Some(self.window(scenario, k, windowed)),
            Protocol::Rate(paced) => Some(self.rate(scenario, session, paced, slowest)),
            Protocol::Advertised => Some(told(advertised::Source::new, k, session)),
            Protocol::Perc => Some(told(advertised::Source::with_control, k, session)),
        }
    }

    fn window(&mut self, scenario: &Scenario, k: usize, windowed: Windowed) -> PeerEnds {
        let session = &scenario.sessions[k];
        let start = Time::ZERO + session.start;
        let (config, receiver) = configs(session, &windowed);
        let seed = seed(session);
        let connections = windowed.connections;
        if connections > 1 {
            let laws = (0..connections).map(|n| law(windowed.law, u64::from(n))).collect();
            return PeerEnds {
                sender: Box::new(ParallelSender::new(start, config, laws)),
                receiver: Box::new(ParallelReceiver::new(receiver, connections, session.size)),
            };
        }
        let sender: Box<dyn gtp_peers::Endpoint> = match self.outlets.remove(&k) {
            Some(outlet) => Box::new(outlet),
            None => Box::new(Sender::new(start, config, law(windowed.law, seed))),
        };
        let next = scenario.sessions.iter().position(|s| s.relays == Some(k));
        let onward = next.map(|next| (next, &scenario.sessions[next]));
        let Some((next, onward, beyond)) =
            onward.and_then(|(next, onward)| match onward.protocol {
                Protocol::Window(beyond) => Some((next, onward, beyond)),
                Protocol::Gtp | Protocol::Rate(_) | Protocol::Advertised | Protocol::Perc => None,
            })
        else {
            return PeerEnds { sender, receiver: Box::new(Receiver::new(receiver)) };
        };
        // The proxy is at this session's sink, and sends from when the next session begins.
        let (second, _) = configs(onward, &beyond);
        let begins = Time::ZERO + onward.start;
        let proxy = Proxy::new(begins, receiver, second, law(beyond.law, seed + 1));
        let (inlet, outlet) = proxy.sides();
        self.outlets.insert(next, outlet);
        PeerEnds { sender, receiver: Box::new(inlet) }
    }

    fn rate(
        &mut self,
        scenario: &Scenario,
        session: &SessionEntry,
        paced: Paced,
        slowest: Rate,
    ) -> PeerEnds {
        let unit = Bytes(u64::from(session.unit));
        let transfer = Transfer::new(unit, RATE_HEADERS, session.size);
        let link = paced.link.unwrap_or(slowest);
        // What a session without a rate of its user's begins at: a tenth of its link.
        let rate = paced.rate.unwrap_or(link.scale(0.1));
        match paced.mover {
            Mover::Rbudp => PeerEnds {
                sender: Box::new(rbudp::Sender::new(transfer, rate)),
                receiver: Box::new(rbudp::Receiver::new(transfer)),
            },
            Mover::Tsunami => with_tsunami(transfer, rate, tsunami::Law::Released),
            Mover::TsunamiFixed => with_tsunami(transfer, rate, tsunami::Law::Fixed),
            Mover::Netblt => {
                let burst = netblt::Burst::at(rate, BURST, &transfer);
                let terms = netblt::Terms { buffer: BUFFER, open: OPEN, burst };
                PeerEnds {
                    sender: Box::new(netblt::Sender::new(transfer, terms)),
                    receiver: Box::new(netblt::Receiver::new(transfer, terms)),
                }
            }
            Mover::Sabul => with_sabul(transfer, rate, paper(sabul::law::PR0, link)),
            Mover::SabulPr1 => with_sabul(transfer, rate, paper(sabul::law::PR1, link)),
            Mover::Sabul2 => with_sabul(transfer, rate, sabul::Law::Release(SYN)),
            Mover::Udt => with_udt(transfer, Version::Four, seed(session)),
            Mover::Udt1 => with_udt(transfer, Version::One, seed(session)),
            Mover::LambdaStream => {
                let delivery = lambdastream::Delivery::Reliable;
                let terms = lambdastream::Terms { link, initial: rate, delivery };
                PeerEnds {
                    sender: Box::new(lambdastream::Sender::new(transfer, terms)),
                    receiver: Box::new(lambdastream::Receiver::new(transfer, terms, None)),
                }
            }
            Mover::Gtp2004 => {
                let capacity = match &scenario.nodes[session.sink].kind {
                    NodeKind::Host(host) if !host.capacity_in.is_unlimited() => host.capacity_in,
                    NodeKind::Host(_) | NodeKind::Switch => link,
                };
                let agent = self.agents.entry(session.sink);
                let agent = agent.or_insert_with(|| Agent::shared(capacity, Skew::Compensated));
                let terms = gtp2004::Terms::of(link);
                PeerEnds {
                    sender: Box::new(gtp2004::Source::new(transfer, Rate::UNLIMITED)),
                    receiver: Box::new(gtp2004::Sink::new(transfer, terms, agent.clone())),
                }
            }
        }
    }
}

/// The ends of a stream whose rate the way decides.
fn told(
    source: fn(u32, Bytes) -> advertised::Source,
    k: usize,
    session: &SessionEntry,
) -> PeerEnds {
    let size = Bytes(u64::from(session.unit)) + HEADER;
    PeerEnds {
        sender: Box::new(source(k as u32, size)),
        receiver: Box::<advertised::Sink>::default(),
    }
}

/// IP's, UDP's and the protocol's own head of a rate-based protocol's packet.
pub const RATE_HEADERS: Bytes = Bytes(44);
/// NETBLT: packets in a burst, packets in a buffer, open buffers.
const BURST: u64 = 4;
const BUFFER: u64 = 1_000;
const OPEN: u64 = 32;
/// SABUL's rounds.
const SYN: Span = Span::from_millis(200);
/// UDT's default flow window, in packets.
const UDT_WINDOW: u64 = 25_600;
/// What a link without a rate counts as where a protocol must be told one.
const PLENTY: Rate = Rate::from_mbps(1_000);

fn with_tsunami(transfer: Transfer, rate: Rate, law: tsunami::Law) -> PeerEnds {
    PeerEnds {
        sender: Box::new(tsunami::Sender::new(transfer, rate, law)),
        receiver: Box::new(tsunami::Receiver::new(transfer)),
    }
}

fn paper(parameters: sabul::law::Parameters, interface: Rate) -> sabul::Law {
    sabul::Law::Paper { parameters, interface, excess: sabul::law::Excess::Never }
}

fn with_sabul(transfer: Transfer, rate: Rate, law: sabul::Law) -> PeerEnds {
    PeerEnds {
        sender: Box::new(sabul::Sender::new(transfer, law, rate)),
        receiver: Box::new(sabul::Receiver::new(transfer, SYN)),
    }
}

fn with_udt(transfer: Transfer, version: Version, seed: u64) -> PeerEnds {
    PeerEnds {
        sender: Box::new(udt::Sender::new(transfer, version, UDT_WINDOW, seed)),
        receiver: Box::new(udt::Receiver::new(transfer)),
    }
}

/// A TCP's ends as a host of today has them: SACK where the law does not say otherwise, a least
/// timeout of 200 ms, and what the scenario sets.
fn configs(session: &SessionEntry, windowed: &Windowed) -> (SenderConfig, ReceiverConfig) {
    let mss = Bytes(u64::from(session.unit));
    let segments = |n: Option<u32>| n.map_or(f64::INFINITY, f64::from);
    let config = SenderConfig {
        mss,
        length: session.size,
        least_timeout: Span::from_millis(200),
        initial_window: f64::from(windowed.initial_window),
        limited_above: segments(windowed.slow_start_limit),
        initial_threshold: segments(windowed.threshold),
        ..SenderConfig::default()
    };
    let buffer = windowed.window.unwrap_or(Bytes(u64::MAX));
    let usual = ReceiverConfig { mss, buffer, ..ReceiverConfig::default() };
    let receiver = match windowed.delayed {
        Delayed::Yes => usual,
        Delayed::No => ReceiverConfig { delay: AckDelay::None, ..usual },
    };
    match windowed.law {
        WindowLaw::Tcp(flavour) => (flavour.adapt(config), flavour.adapt_receiver(receiver)),
        WindowLaw::Routed(routed) => (routed.adapt(config), routed.adapt_receiver(receiver)),
    }
}

fn law(law: WindowLaw, seed: u64) -> Box<dyn Law> {
    match law {
        WindowLaw::Tcp(flavour) => flavour.law(seed),
        WindowLaw::Routed(routed) => routed.law(),
    }
}

/// A law that draws takes the session's start and source for its seed.
fn seed(session: &SessionEntry) -> u64 {
    session.start.as_nanos() ^ (session.source as u64) << 32
}

/// What stands at a link's queue. A managed queue is no controller, but stands in its place.
pub fn router(scenario: &Scenario, link: &LinkEntry) -> Option<PeerRouter> {
    let router: PeerRouter = match link.router? {
        RouterEntry::Xcp => Box::new(xcp::Queue::new()),
        RouterEntry::XcpNode(None) => Box::new(xcp::Node::new()),
        RouterEntry::XcpNode(Some(capacity)) => Box::new(xcp::Node::with_capacity(capacity)),
        RouterEntry::Vcp => Box::new(vcp::Queue::new()),
        RouterEntry::Aecp => Box::new(aecp::Queue::new(aecp::Config::default())),
        RouterEntry::Red { min, max } => {
            let seed = link.seed ^ scenario.seed.rotate_left(32);
            Box::new(red::Queue::new(red::Config::new(min, max), seed))
        }
        RouterEntry::Pie => {
            let seed = link.seed ^ scenario.seed.rotate_left(32);
            Box::new(pie::Queue::new(pie::Config::default(), seed))
        }
        RouterEntry::Managed(_) => return None,
        RouterEntry::Advertised => Box::new(advertised::Switch::new()),
        RouterEntry::Meter(interval) => Box::new(anchors::Meter::new(interval)),
        RouterEntry::Slice(cap) => Box::new(anchors::Slice::new(cap)),
        RouterEntry::Perc => Box::new(anchors::Link::new()),
    };
    Some(router)
}

/// The slowest of these links; a gigabit where none has a rate.
pub fn slowest<'a>(links: impl Iterator<Item = &'a LinkSpec>) -> Rate {
    let rate = links.map(|spec| spec.rate).min().unwrap_or(Rate::UNLIMITED);
    if rate.is_unlimited() { PLENTY } else { rate }
}
