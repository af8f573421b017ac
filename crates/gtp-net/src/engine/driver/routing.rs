//! The routers that this host asks: which of its sessions cross them, and what follows.
//!
//! A session is looked at when its agent first hears of it. Its name at a router is made of both
//! its ids, so that both its ends call it the same. The core's [`Crossings`] do the rest; sockets
//! are the loop's.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gtp_alloc::{Rate, Time};
use gtp_proto::router::{Crossings, News, Passage, RouterChange};
use gtp_proto::{FlowId, Grant, Report, Side};

use super::Driver;
use crate::engine::table::Session;
use crate::router::{RouterKey, RouterOpen};

/// What is asked of routers.
pub(crate) struct Routing {
    crossings: Crossings,
    /// Each router once, however many of its links are crossed. One that is named with two keys is
    /// two, of which the one with the wrong key is silent.
    routers: Vec<(SocketAddr, RouterKey)>,
    /// What crosses which link of which of them.
    crossed: Vec<(usize, RouterOpen)>,
    /// Sessions that have been looked at.
    seen: BTreeSet<FlowId>,
    silent: SilentRouters,
}

/// Which routers the log has called silent, by their numbers: each engine asks them on its own, and
/// the log says once that one is.
#[derive(Clone)]
pub(crate) struct SilentRouters(Arc<[AtomicBool]>);

impl SilentRouters {
    /// None of this many is.
    pub fn none(routers: usize) -> SilentRouters {
        SilentRouters((0..routers).map(|_| AtomicBool::new(false)).collect())
    }

    /// Notes that a router is silent, or is no more; returns whether the log should say so.
    fn note(&self, router: usize, is_silent: bool) -> bool {
        let said = self.0.get(router).map(|said| said.swap(is_silent, Ordering::Relaxed));
        said != Some(is_silent)
    }
}

impl Routing {
    /// Asks these routers, under names that are drawn now.
    pub fn new(now: Time, opens: Vec<RouterOpen>, silent: SilentRouters) -> Routing {
        let (mut crossings, mut routers) = (Crossings::default(), Vec::new());
        let mut crossed = Vec::new();
        for open in opens {
            let same = |(address, key): &(SocketAddr, RouterKey)| {
                *address == open.address && *key == open.key
            };
            let known = routers.iter().position(same);
            let router = known.unwrap_or_else(|| {
                let mut name = [0; 16];
                gtp_sys::entropy::fill(&mut name);
                routers.push((open.address, open.key.clone()));
                crossings.add_router(now, name)
            });
            crossed.push((router, open));
        }
        Routing { crossings, routers, crossed, seen: BTreeSet::new(), silent }
    }

    /// Where the routers are, in the order of their numbers.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.routers.iter().map(|(address, _)| *address)
    }

    /// The next router, by its number and address, that is to be asked through a new socket.
    fn poll_in_vain(&mut self) -> Option<(usize, SocketAddr)> {
        while let Some((router, change)) = self.crossings.poll_change() {
            let Some(&(address, _)) = self.routers.get(router) else { continue };
            match change {
                RouterChange::InVain => return Some((router, address)),
                RouterChange::Silent if self.silent.note(router, true) => {
                    tracing::warn!(%address, "a router does not answer: its links limit nobody");
                }
                RouterChange::Back if self.silent.note(router, false) => {
                    tracing::warn!(%address, "a router answers again: its links limit sessions");
                }
                RouterChange::Silent | RouterChange::Back => {}
            }
        }
        None
    }

    fn look_at(&mut self, session: &Session) {
        if !self.seen.insert(session.flow) {
            return;
        }
        let (side, envelope) = (session.direction(), &session.envelope);
        let passages = self.passages(side, envelope.peer_ip());
        let [low, high] = envelope.ids();
        let name = u64::from(low) << 32 | u64::from(high);
        self.crossings.open(side, session.flow, name, &passages);
    }

    /// The one-way links that a session with this peer crosses, each once.
    fn passages(&self, side: Side, peer: IpAddr) -> Vec<Passage> {
        let mut all: Vec<Passage> = Vec::new();
        for (router, open) in self.crossed.iter().filter(|(_, open)| open.crosses(peer)) {
            let passage = Passage { router: *router, link: open.one_way(side) };
            if !all.contains(&passage) {
                all.push(passage);
            }
        }
        all
    }

    /// What a session reports, bounded by the routers that it crosses.
    pub(super) fn bound(&mut self, session: &Session, report: Report) -> Report {
        self.look_at(session);
        self.crossings.bound(session.direction(), session.flow, report)
    }

    /// What it hears of its grant, and what the routers could let it have.
    pub(super) fn settle(&mut self, session: &Session, grant: Grant) -> (Grant, Rate) {
        let (side, flow) = (session.direction(), session.flow);
        let grant = self.crossings.settle(side, flow, grant);
        (grant, self.crossings.offer(side, flow))
    }
}

impl Driver {
    /// Asks routers from now on.
    pub fn ask_routers(&mut self, routing: Routing) {
        self.routing = Some(Box::new(routing));
    }

    /// A datagram has come from the router of this number.
    pub fn handle_router(&mut self, now: Time, router: usize, datagram: &[u8]) {
        let Some(routing) = &mut self.routing else { return };
        let Some((address, key)) = routing.routers.get(router) else { return };
        match routing.crossings.handle_datagram(now, router, datagram, key) {
            Ok(news) => self.hear_routers(now, news),
            Err(why) => tracing::debug!(router = %address, ?why, "a datagram is dropped"),
        }
    }

    /// The next datagram for the router of this number; `false` if there is none.
    pub fn poll_router(&mut self, now: Time, router: usize, out: &mut Vec<u8>) -> bool {
        let Some(routing) = &mut self.routing else { return false };
        let Some((_, key)) = routing.routers.get(router) else { return false };
        routing.crossings.poll_transmit(now, router, key, out)
    }

    /// The next router, by its number and address, that has answered nothing and is to be asked
    /// through a new socket, whose own address fits the routes of now.
    pub fn poll_router_in_vain(&mut self) -> Option<(usize, SocketAddr)> {
        self.routing.as_mut()?.poll_in_vain()
    }

    /// Looks whether a router is silent.
    pub(super) fn watch_routers(&mut self, now: Time) {
        if let Some(routing) = &mut self.routing {
            let news = routing.crossings.handle_timeout(now);
            self.hear_routers(now, news);
        }
    }

    /// When a router is to be asked, or is silent.
    pub(super) fn routers_due(&self) -> Time {
        self.routing.as_ref().map_or(Time::MAX, |routing| routing.crossings.poll_timeout())
    }

    /// A session is over.
    pub(super) fn leave_routers(&mut self, session: &Session) {
        if let Some(routing) = &mut self.routing {
            routing.seen.remove(&session.flow);
            routing.crossings.close(session.direction(), session.flow);
        }
    }

    fn hear_routers(&mut self, now: Time, news: News) {
        if news.out {
            self.out.agent.wake(now);
        }
        if news.in_ {
            self.in_.agent.wake(now);
        }
    }
}
