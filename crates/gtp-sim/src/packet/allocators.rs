//! Routers that allocate, and what hosts say to them.
//!
//! A router is at a host of its own, which moves no data. It and each host that asks it have a pair
//! of ends in the world, between which the core's own datagrams travel as any packets do. Here are
//! the turns of both; what they say is the core's.

use std::net::{Ipv4Addr, SocketAddr};

use gtp_alloc::{Rate, Time};
use gtp_link::Rng;
use gtp_proto::router::{Crossings, Passage, Router, RouterConfig, TAG_BYTES, Tags, Use};
use gtp_proto::{Codepoint, Side};

use super::ends::{Moment, wire_size};
use super::fabric::{Datagram, Fabric};
use super::parcel::ParcelId;
use super::spec::{BuildError, Crosses, NodeId, Path, RouterChange, SessionId};
use super::world::{End, Role, World};

/// A router at a host.
#[derive(Debug)]
pub(crate) struct Allocator {
    router: Router<Talk>,
    links: Vec<Rate>,
    key: Key,
    seed: Rng,
    silent: bool,
}

/// This end of the talk with a host. Each has an address of its own.
#[derive(Clone, Copy, Debug)]
struct Talk(u32);

impl From<Talk> for SocketAddr {
    fn from(Talk(end): Talk) -> SocketAddr {
        (Ipv4Addr::from_bits(end), 0).into()
    }
}

/// What a host asks of routers.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    pub crossings: Crossings,
    /// The routers by their places there: each its node, and this host's end of the talk with it.
    asked: Vec<(NodeId, u32)>,
    key: Key,
}

/// A key of the simulated world. Its tags tell wrong keys from right ones, and no more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Key(pub u64);

impl Tags for Key {
    fn tag(&self, purpose: Use, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut state = Rng::new(self.0 ^ (purpose as u64) << 60 ^ bytes.len() as u64);
        let mut sum = state.next_u64();
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
            sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        let mut tag = [0; TAG_BYTES];
        tag[..8].copy_from_slice(&sum.to_be_bytes());
        tag
    }
}

impl Allocator {
    pub fn new(now: Time, links: Vec<Rate>, key: u64, seed: u64) -> Allocator {
        let mut seed = Rng::new(seed);
        let router = begun(now, &links, &mut seed);
        Allocator { router, links, key: Key(key), seed, silent: false }
    }

    /// The host in its turn: a datagram for its end `to`.
    pub fn handle_datagram(&mut self, now: Time, to: u32, datagram: &[u8]) {
        if !self.silent {
            // What is not for it, it drops, as a real one does.
            let _ = self.router.handle_datagram(now, Talk(to), datagram, &self.key);
        }
    }

    pub fn change(&mut self, now: Time, change: RouterChange) {
        match change {
            RouterChange::Silent => self.silent = true,
            RouterChange::Back => self.silent = false,
            RouterChange::Restart => {
                (self.router, self.silent) = (begun(now, &self.links, &mut self.seed), false);
            }
            RouterChange::Capacity(link, rate) => {
                if let Some(capacity) = self.links.get_mut(usize::from(link)) {
                    *capacity = rate;
                }
                self.router.set_capacity(usize::from(link), rate);
            }
        }
    }

    pub fn poll_timeout(&self) -> Time {
        self.router.poll_timeout()
    }

    /// Does what is due and sends all that it has to say.
    pub fn serve(
        &mut self,
        now: Moment,
        ends: &[End],
        (fabric, head): (&mut Fabric, &mut Vec<u8>),
        there: &mut Vec<ParcelId>,
    ) {
        self.router.handle_timeout(now.local);
        while let Some(Talk(at)) = self.router.poll_transmit(now.local, &self.key, head) {
            if !self.silent {
                send(now, &ends[at as usize], fabric, head, there);
            }
        }
    }
}

impl World {
    /// Makes a host the place of a router that shares out one-way links of these capacities, under
    /// this key. Hosts have the key zero. Such a host should move nothing itself.
    ///
    /// # Errors
    /// When there is no such host, or it has a router.
    pub fn add_allocator(
        &mut self,
        node: NodeId,
        links: Vec<Rate>,
        key: u64,
    ) -> Result<(), BuildError> {
        let (index, seed) = (self.host(node)? as usize, self.seed.next_u64());
        let host = &mut self.hosts[index];
        if host.allocator.is_some() {
            return Err(BuildError::OutOfRange("a host has one router at most"));
        }
        let now = host.clock.shows(self.now);
        host.allocator = Some(Box::new(Allocator::new(now, links, key, seed)));
        Ok(())
    }

    /// Has a session that has not begun cross a link of a router. If the host that asks has asked
    /// this router nothing so far, its asks travel by the first of these paths and the answers by
    /// the second.
    ///
    /// # Errors
    /// When the session, the router or a path is missing, or the session has begun.
    pub fn add_crossing(
        &mut self,
        id: SessionId,
        crosses: Crosses,
        paths: [&Path; 2],
    ) -> Result<(), BuildError> {
        let session = self.sessions.get(id.0 as usize).ok_or(BuildError::NoSuchSession(id))?;
        if session.spec.start < self.now {
            return Err(BuildError::Past(session.spec.start));
        }
        let asks = match crosses.asks {
            Side::Source => session.spec.source,
            Side::Sink => session.spec.sink,
        };
        self.ask(asks, crosses.router, paths)?;
        self.sessions[id.0 as usize].spec.crosses.push(crosses);
        Ok(())
    }

    /// Lets a host ask a router from now on, over these paths there and back.
    pub(super) fn ask(
        &mut self,
        node: NodeId,
        router: NodeId,
        [there, back]: [&Path; 2],
    ) -> Result<(), BuildError> {
        let [asks, answers] = [self.host(node)? as usize, self.host(router)? as usize];
        if self.hosts[answers].allocator.is_none() {
            return Err(BuildError::OutOfRange("the host that is to be asked has no router"));
        }
        if self.hosts[asks].asking.passage(router, 0).is_some() {
            return Ok(());
        }
        let there = self.route(node, router, there)?;
        let back = self.route(router, node, back)?;
        let (asker, answerer) = self.add_ends(node, router, there, back)?;
        for end in [asker, answerer] {
            (self.ends[end as usize].role, self.ends[end as usize].open) = (Role::Talk, true);
        }
        let (name, host) = (drawn(&mut self.seed), &mut self.hosts[asks]);
        host.asking.add(host.clock.shows(self.now), router, asker, name);
        Ok(())
    }
}

fn begun(now: Time, links: &[Rate], seed: &mut Rng) -> Router<Talk> {
    let secret = drawn(seed);
    Router::new(now, RouterConfig { links: links.to_vec(), secret })
}

/// Sixteen bytes at random.
pub(crate) fn drawn(seed: &mut Rng) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seed.next_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&seed.next_u64().to_le_bytes());
    bytes
}

impl Asking {
    /// Whether it asks anybody.
    pub fn asks(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The router at this node, if it is asked already.
    pub fn passage(&self, router: NodeId, link: u8) -> Option<Passage> {
        let router = self.asked.iter().position(|(node, _)| *node == router)?;
        Some(Passage { router, link })
    }

    /// From now on it asks the router at this node through its own end `end`.
    pub fn add(&mut self, now: Time, router: NodeId, end: u32, host: [u8; 16]) {
        self.crossings.add_router(now, host);
        self.asked.push((router, end));
    }

    /// A datagram for its end `to`. Returns which agents are to decide anew.
    pub fn handle_datagram(&mut self, now: Time, to: u32, datagram: &[u8]) -> [bool; 2] {
        let Some(router) = self.asked.iter().position(|(_, end)| *end == to) else {
            return [false; 2];
        };
        let news = self.crossings.handle_datagram(now, router, datagram, &self.key);
        news.map_or([false; 2], |news| [news.out, news.in_])
    }

    /// Sends all that it has to say.
    pub fn serve(
        &mut self,
        now: Moment,
        ends: &[End],
        (fabric, head): (&mut Fabric, &mut Vec<u8>),
        there: &mut Vec<ParcelId>,
    ) {
        for (router, &(_, end)) in self.asked.iter().enumerate() {
            while self.crossings.poll_transmit(now.local, router, &self.key, head) {
                send(now, &ends[end as usize], fabric, head, there);
            }
        }
    }
}

fn send(now: Moment, end: &End, fabric: &mut Fabric, head: &[u8], there: &mut Vec<ParcelId>) {
    // The tag is in the head here; of a session's datagram it comes with the seal.
    let size = wire_size(head.len() - gtp_proto::wire::TAG_LEN, 0);
    let datagram = Datagram { size, head, payload: 0, ecn: Codepoint::NotEct };
    there.extend(fabric.send(now.world, end.route, end.peer, &datagram));
}
