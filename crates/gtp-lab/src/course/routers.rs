//! Which sessions cross the links of which routers, and the routers themselves, made as a scenario
//! names them.
//!
//! A session asks a router for a link on its way if one of its hosts knows the router; if both
//! do, both ask, as real ones do, and it counts once. How a router shares out, and what a host
//! makes of its answers, is the core's.

use gtp_alloc::{Rate, Span};
use gtp_link::{LinkId, LinkSpec};
use gtp_proto::Side;
use gtp_proto::limits::ROUTER_SILENCE;
use gtp_sim::packet::{Crosses, HostSpec, NodeId, Path, RouterChange, SessionId, World};

use super::packets::unfit;
use super::ways::{Links, Search, Way};
use crate::refusal::Refusal;
use crate::scenario::model::{AllocatorEntry, RouterEvent, RouterKey, Scenario, Site};
use crate::scenario::protocol::Protocol;

/// A link on a session's way for which a router is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The router.
    pub router: usize,
    /// The link's number there.
    pub number: usize,
}

/// The links of routers that this session crosses. A rival asks nobody.
pub fn crossings<'a>(
    scenario: &'a Scenario,
    k: usize,
    way: &'a Way,
) -> impl Iterator<Item = Crossing> + 'a {
    let session = &scenario.sessions[k];
    let asks = move |router: &AllocatorEntry| {
        session.protocol == Protocol::Gtp
            && (router.is_known_to(session.source) || router.is_known_to(session.sink))
    };
    let all = scenario.allocators.iter().enumerate().filter(move |(_, router)| asks(router));
    all.flat_map(move |(router, entry)| {
        let crossed = way.forth.iter().filter_map(|&link| entry.number_of(link));
        crossed.map(move |number| Crossing { router, number })
    })
}

/// What a link of a router carries that limits nobody, in bit/s.
pub const NOBODY: f64 = 1e30;

/// How a router stands, by what has happened to it.
#[derive(Clone, Debug)]
pub struct Standing {
    links: Vec<Rate>,
    key: RouterKey,
    /// Since when it answers nothing.
    silent_since: Option<Span>,
}

impl Standing {
    /// At the start.
    pub fn new(router: &AllocatorEntry) -> Standing {
        let links = router.links.iter().map(|(_, rate)| *rate).collect();
        let silent_since = match router.key {
            RouterKey::Hosts => None,
            RouterKey::Another => Some(Span::ZERO),
        };
        Standing { links, key: router.key, silent_since }
    }

    /// This happens to it.
    pub fn apply(&mut self, at: Span, event: RouterEvent) {
        match event {
            RouterEvent::Silent => self.silent_since = self.silent_since.or(Some(at)),
            RouterEvent::Back | RouterEvent::Restart => match self.key {
                RouterKey::Hosts => self.silent_since = None,
                RouterKey::Another => {}
            },
            RouterEvent::Capacity(number, rate) => self.links[number] = rate,
        }
    }

    /// Whether it is silent, and whoever asks may still be waiting for it.
    pub fn is_awaited(&self, at: Span) -> bool {
        self.silent_since.is_some_and(|since| at < since + ROUTER_SILENCE)
    }

    /// What its links limit sessions to together, in bit/s: nothing once it is ignored.
    pub fn capacities(&self, at: Span) -> impl Iterator<Item = f64> + '_ {
        let ignored = self.silent_since.is_some() && !self.is_awaited(at);
        let unlimited = move |rate: &Rate| ignored || rate.is_unlimited();
        self.links.iter().map(move |rate| if unlimited(rate) { NOBODY } else { rate.as_f64() })
    }
}

/// Talks that have wires of their own.
pub fn wires(scenario: &Scenario) -> usize {
    let wired = scenario.allocators.iter().filter(|router| matches!(router.site, Site::Wire(_)));
    wired.map(|router| router.askers.len()).sum()
}

/// Adds the routers of a scenario to its world, and has sessions cross them. Returns where they
/// are.
///
/// # Errors
/// If there is no way to one.
pub fn add(
    world: &mut World,
    scenario: &Scenario,
    ways: &[Way],
    nodes: &[NodeId],
) -> Result<Vec<NodeId>, Refusal> {
    let mut places = Vec::new();
    for router in &scenario.allocators {
        let node = match router.site {
            Site::Host(host) => nodes[host],
            Site::Wire(_) => world.add_host(HostSpec::default()),
        };
        let links = router.links.iter().map(|(_, rate)| *rate).collect();
        let key = match router.key {
            RouterKey::Hosts => 0,
            RouterKey::Another => 1,
        };
        let added = world.add_allocator(node, links, key);
        added.map_err(|e| unfit(&format!("router {:?}", router.name), e))?;
        places.push(node);
    }
    let known = vec![Vec::new(); places.len()];
    let mut talks = Talks { scenario, search: Search::new(scenario), known };
    for (k, way) in ways.iter().enumerate() {
        let session = &scenario.sessions[k];
        for Crossing { router, number } in crossings(scenario, k, way) {
            for (asks, host) in [(Side::Source, session.source), (Side::Sink, session.sink)] {
                if !scenario.allocators[router].is_known_to(host) {
                    continue;
                }
                let paths = talks.paths(world, host, router)?;
                let crosses = Crosses { router: places[router], link: number as u8, asks };
                let crossed =
                    world.add_crossing(SessionId(k as u32), crosses, [&paths[0], &paths[1]]);
                crossed.map_err(|e| unfit(&format!("session {:?}", session.name), e))?;
            }
        }
    }
    Ok(places)
}

/// Which hosts have a way to which routers.
struct Talks<'a> {
    scenario: &'a Scenario,
    search: Search<'a>,
    /// The hosts by router.
    known: Vec<Vec<usize>>,
}

impl Talks<'_> {
    /// How asks of this host get to this router, and answers back. Of use the first time only.
    fn paths(
        &mut self,
        world: &mut World,
        host: usize,
        router: usize,
    ) -> Result<[Path; 2], Refusal> {
        if self.known[router].contains(&host) {
            return Ok([Path::Shortest, Path::Shortest]);
        }
        self.known[router].push(host);
        let entry = &self.scenario.allocators[router];
        let stated = |links: &Links| Path::Links(links.iter().map(|&n| LinkId(n)).collect());
        match entry.site {
            Site::Wire(rtt) => Ok([(); 2].map(|()| {
                let wire = LinkSpec { delay: rtt / 2, ..LinkSpec::default() };
                Path::Links(vec![world.add_link(wire)])
            })),
            Site::Host(at) => {
                let who = format!("router {:?}", entry.name);
                let there = self.search.between(host, at, &who)?;
                let back = self.search.between(at, host, &who)?;
                Ok([stated(&there), stated(&back)])
            }
        }
    }
}

/// What happens to a router, in the engine's words.
pub fn change(event: RouterEvent) -> RouterChange {
    match event {
        RouterEvent::Silent => RouterChange::Silent,
        RouterEvent::Back => RouterChange::Back,
        RouterEvent::Restart => RouterChange::Restart,
        RouterEvent::Capacity(number, rate) => RouterChange::Capacity(number as u8, rate),
    }
}
