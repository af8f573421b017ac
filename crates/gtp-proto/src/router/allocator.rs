//! The router: shares out what its one-way links carry among the sessions that hosts announce.
//!
//! Each link has an agent of its own, of the kind that a sink's host has: grants are numbered, and
//! an increase waits until what it needs is let go of. What a host announces is forgotten unless it
//! is repeated. A host that is not known, or has another address, shows a pass first that was made
//! for it at that address, so that recorded datagrams open nothing and answers go to nobody who has
//! not received one. This file knows no sockets; it answers to whatever its user can send to.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use gtp_alloc::led::Counts;
use gtp_alloc::{Bytes, Rate, Span, Time};

use super::has_moved;
use super::occupancy::Occupancy;
use super::pace::Pace;
use super::wire::{
    self, Answer, Ask, Dropped, Head, HostId, Kind, Pass, Stage, Tags, Use, Verdict,
};
use crate::agent::{Agent, AgentConfig, Side};
use crate::limits::{
    ROUTER_ENTRIES, ROUTER_LINKS, ROUTER_PASS, ROUTER_SESSIONS_OF_ADDRESS, ROUTER_SILENCE,
    ROUTER_WEIGHT_LEAST, ROUTER_WEIGHT_MOST,
};
use crate::report::{FlowId, Grant, Law, Owner, Phase, Report};

/// What a router needs to know at the start.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// What each one-way link carries. Those beyond [`ROUTER_LINKS`] are left out.
    pub links: Vec<Rate>,
    /// 16 bytes of entropy, new at each start: passes of an earlier run are worth nothing.
    pub secret: [u8; 16],
}

/// How a link stands, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkStanding {
    /// What it carries.
    pub capacity: Rate,
    /// Sessions that cross it.
    pub sessions: usize,
    /// What they are granted together.
    pub granted: Rate,
}

/// How a host stands with its router, where that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostChange {
    /// Nothing is heard of it any more, and it has not said that its sessions are over.
    Silent,
    /// It asks again.
    Back,
}

/// An allocator for links that belong to no host; `A` is what it answers to, and has the address
/// that hosts are counted by.
#[derive(Debug)]
pub struct Router<A> {
    links: Vec<Link>,
    secret: [u8; 16],
    begun: Time,
    hosts: BTreeMap<HostId, Host<A>>,
    /// Hosts to which something is to be said.
    ready: BTreeSet<HostId>,
    /// Hosts that are to get a pass, each with the number of its ask.
    passes: VecDeque<(A, HostId, u64)>,
    /// Hosts that have fallen silent, or are back.
    changed: BTreeSet<HostId>,
    occupancy: Occupancy,
    next_flow: FlowId,
    forget_due: Time,
}

/// One one-way link.
#[derive(Debug)]
struct Link {
    agent: Agent,
    seats: BTreeMap<u64, Seat>,
    reports: Vec<(FlowId, Report)>,
    grants: Vec<(FlowId, Grant)>,
}

/// One session on one link.
#[derive(Debug)]
struct Seat {
    flow: FlowId,
    host: HostId,
    ask: Ask,
    heard_at: Time,
    /// What its host was told last, or is about to be.
    told: Option<(u32, Rate, Rate)>,
}

/// An engine of a host that asks.
#[derive(Debug)]
struct Host<A> {
    at: A,
    pass: Pass,
    /// The number of its newest ask, and of the newest answer to it.
    newest: u64,
    said: u64,
    heard_at: Time,
    sessions: usize,
    /// Sessions of which it is to be told.
    due: BTreeSet<(u8, u64)>,
    passed_over: Vec<(u8, u64)>,
    pace: Pace,
    /// Whether it has fallen silent, and whether the router's user knows.
    is_silent: bool,
    told_silent: bool,
}

/// How often a link is shared out when nothing changes: leases end, and silent sessions go.
const INTERVAL: Span = Span::from_millis(20);
/// A router grants nothing before all hosts have had the time to say what they send: an earlier run
/// of it may have granted that. They repeat it each 100 ms, and need a round trip to hear the pass.
const GRACE: Span = Span::from_millis(250);
/// What a share-out costs keeps the next one away: a session takes about a microsecond.
const COSTS: Span = Span::from_micros(2);
/// Passes that wait to be sent; more hosts than this wait until they ask again.
const PASSES_WAITING: usize = 64;
/// A silent host is remembered for longer than a pass holds, so that nobody can show its pass
/// again with what it once said.
const REMEMBERED: Span = Span::from_millis(2 * ROUTER_PASS.as_millis());

impl<A: Copy + Into<SocketAddr>> Router<A> {
    /// A router that begins at `now`.
    pub fn new(now: Time, config: RouterConfig) -> Router<A> {
        let link = |capacity: Rate| {
            let config = AgentConfig { side: Side::Sink, capacity, interval: Some(INTERVAL) };
            let agent = Agent::new(now, config);
            Link { agent, seats: BTreeMap::new(), reports: Vec::new(), grants: Vec::new() }
        };
        Router {
            links: config.links.into_iter().take(ROUTER_LINKS).map(link).collect(),
            secret: config.secret,
            begun: now,
            hosts: BTreeMap::new(),
            ready: BTreeSet::new(),
            passes: VecDeque::new(),
            changed: BTreeSet::new(),
            occupancy: Occupancy::default(),
            next_flow: 0,
            forget_due: Time::MAX,
        }
    }

    /// Changes what a link carries; nothing if there is no such link.
    pub fn set_capacity(&mut self, link: usize, capacity: Rate) {
        if let Some(link) = self.links.get_mut(link) {
            link.agent.set_capacity(capacity);
        }
    }

    /// Takes in a datagram that came from `from`.
    ///
    /// # Errors
    /// Why it was dropped. Nobody is told.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        from: A,
        datagram: &[u8],
        tags: &dyn Tags,
    ) -> Result<(), Dropped> {
        let (head, entries) = wire::open(tags, Use::ToRouter, datagram)?;
        if head.kind != Kind::Ask {
            return Err(Dropped::Misdirected);
        }
        let asks = Ask::decode_all(entries)?;
        self.admit(now, from, &head, tags)?;
        for ask in asks {
            self.handle_ask(now, head.host, ask);
        }
        if self.hosts.get(&head.host).is_some_and(Host::has_news) {
            self.ready.insert(head.host);
        }
        Ok(())
    }

    /// Does what is due at `now`: shares out, and forgets who is silent.
    pub fn handle_timeout(&mut self, now: Time) {
        if now < self.begun + GRACE {
            return;
        }
        for index in 0..self.links.len() {
            if !self.links[index].seats.is_empty() && self.links[index].agent.poll_timeout() <= now
            {
                self.forget_silent(now, index);
                self.share_out(now, index);
            }
        }
        if self.forget_due <= now {
            let occupancy = &mut self.occupancy;
            self.hosts.retain(|_, host| {
                let stays = host.sessions > 0 || now.since(host.heard_at) <= REMEMBERED;
                if !stays {
                    occupancy.remove_host(ip(host.at));
                }
                stays
            });
            self.ready.retain(|id| self.hosts.contains_key(id));
            self.forget_due = if self.hosts.is_empty() { Time::MAX } else { now + ROUTER_SILENCE };
        }
    }

    /// Writes the next datagram to `out` and returns where it goes.
    pub fn poll_transmit(&mut self, now: Time, tags: &dyn Tags, out: &mut Vec<u8>) -> Option<A> {
        if let Some((at, host, number)) = self.passes.pop_front() {
            let pass = self.pass(self.second(now), &host, at.into(), tags);
            wire::begin(&Head { kind: Kind::Pass, host, pass, number }, out);
            wire::end(tags, Use::ToHost, out);
            return Some(at);
        }
        let may_hear = |id: &&HostId| self.hosts.get(*id).is_some_and(|h| h.pace.due() <= now);
        let id = *self.ready.iter().find(may_hear)?;
        let host = self.hosts.get_mut(&id)?;
        host.said += 1;
        host.pace.take(now);
        wire::begin(
            &Head { kind: Kind::Answer, host: id, pass: host.pass, number: host.said },
            out,
        );
        host.write(&self.links, out);
        wire::end(tags, Use::ToHost, out);
        if !host.has_news() {
            self.ready.remove(&id);
        }
        Some(host.at)
    }

    /// When to call [`Router::handle_timeout`] and [`Router::poll_transmit`] next.
    pub fn poll_timeout(&self) -> Time {
        let busy = self.links.iter().filter(|link| !link.seats.is_empty());
        let next = busy.map(|link| link.agent.poll_timeout()).min().unwrap_or(Time::MAX);
        let waiting = self.ready.iter().filter_map(|id| self.hosts.get(id));
        let spoken = waiting.map(|host| host.pace.due()).min().unwrap_or(Time::MAX);
        next.min(self.forget_due).max(self.begun + GRACE).min(spoken)
    }

    /// A host that has fallen silent or is back since the last call, and where it is or was.
    pub fn poll_change(&mut self) -> Option<(A, HostChange)> {
        while let Some(id) = self.changed.pop_first() {
            if let Some(host) = self.hosts.get_mut(&id)
                && host.told_silent != host.is_silent
            {
                host.told_silent = host.is_silent;
                let change = if host.is_silent { HostChange::Silent } else { HostChange::Back };
                return Some((host.at, change));
            }
        }
        None
    }

    /// How each link stands.
    pub fn standing(&self) -> impl Iterator<Item = LinkStanding> + '_ {
        self.links.iter().map(|link| {
            let granted = link.seats.values().filter_map(|seat| seat.told);
            let granted = granted.fold(Rate::ZERO, |sum, (_, rate, _)| sum.saturating_add(rate));
            LinkStanding { capacity: link.agent.capacity(), sessions: link.seats.len(), granted }
        })
    }

    /// Engines of hosts that are known.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Lets in a host that is known at this address, or shows a pass.
    fn admit(&mut self, now: Time, from: A, head: &Head, tags: &dyn Tags) -> Result<(), Dropped> {
        if let Some(host) = self.hosts.get_mut(&head.host) {
            if head.number <= host.newest {
                return Err(Dropped::Replayed);
            }
            if host.pass == head.pass && host.at.into() == from.into() {
                host.hear(now, from, head);
                self.note_back(head.host);
                return Ok(());
            }
        }
        if !self.is_fresh(now, from.into(), head, tags) {
            self.offer_pass(from, head);
            return Err(Dropped::Misdirected);
        }
        self.welcome(now, from, head)
    }

    /// Seats a host that has shown a pass, or moves it to the address at which it has received one.
    fn welcome(&mut self, now: Time, from: A, head: &Head) -> Result<(), Dropped> {
        match self.hosts.get_mut(&head.host) {
            Some(host) => {
                if !self.occupancy.move_host(ip(host.at), ip(from), host.sessions) {
                    return Err(Dropped::Full);
                }
                host.hear(now, from, head);
                host.pass = head.pass;
                self.note_back(head.host);
            }
            None => {
                if !self.occupancy.add_host(ip(from)) {
                    return Err(Dropped::Full);
                }
                self.hosts.insert(head.host, Host::new(now, from, head));
                self.forget_due = self.forget_due.min(now + ROUTER_SILENCE);
            }
        }
        Ok(())
    }

    /// A host has asked: it is silent no more.
    fn note_back(&mut self, id: HostId) {
        if let Some(host) = self.hosts.get_mut(&id)
            && core::mem::take(&mut host.is_silent)
        {
            self.changed.insert(id);
        }
    }

    fn offer_pass(&mut self, from: A, head: &Head) {
        if self.passes.len() < PASSES_WAITING {
            self.passes.push_back((from, head.host, head.number));
        }
    }

    /// Whether the pass that a host shows is of this run, its own at this address, and not old.
    fn is_fresh(&self, now: Time, from: SocketAddr, head: &Head, tags: &dyn Tags) -> bool {
        let Some((second, _)) = head.pass.split_first_chunk::<4>() else { return false };
        let second = u32::from_be_bytes(*second);
        let age = self.second(now).checked_sub(second);
        let in_time = age.is_some_and(|age| u64::from(age) * 1_000 <= ROUTER_PASS.as_millis());
        in_time && wire::same(&self.pass(second, &head.host, from, tags), &head.pass)
    }

    /// The pass of this host at this address for this second.
    fn pass(&self, second: u32, host: &HostId, at: SocketAddr, tags: &dyn Tags) -> Pass {
        let mut signed = Vec::with_capacity(58);
        signed.extend_from_slice(&self.secret);
        signed.extend_from_slice(&second.to_be_bytes());
        signed.extend_from_slice(host);
        let (ip, scope) = match at {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        signed.extend_from_slice(&ip.octets());
        signed.extend_from_slice(&at.port().to_be_bytes());
        signed.extend_from_slice(&scope.to_be_bytes());
        let tag = tags.tag(Use::Pass, &signed);
        let mut pass = [0; 16];
        pass[..4].copy_from_slice(&second.to_be_bytes());
        pass[4..].copy_from_slice(&tag[..12]);
        pass
    }

    /// Whole seconds since this router began.
    fn second(&self, now: Time) -> u32 {
        (now.since(self.begun).as_millis() / 1_000) as u32
    }

    fn handle_ask(&mut self, now: Time, id: HostId, ask: Ask) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let key = (ask.link, ask.session);
        let Some(link) = self.links.get_mut(usize::from(ask.link)) else {
            return host.pass_over(key);
        };
        match link.seats.get_mut(&ask.session) {
            Some(seat) if seat.host != id => host.pass_over(key),
            Some(_) if ask.stage == Stage::Gone => {
                link.seats.remove(&ask.session);
                host.sessions -= 1;
                self.occupancy.remove_session(ip(host.at));
                link.wake(now);
            }
            Some(seat) => {
                let news = seat.ask != ask;
                (seat.ask, seat.heard_at) = (ask, now);
                host.due.insert(key);
                if news {
                    link.wake(now);
                }
            }
            None if ask.stage == Stage::Gone => {}
            None if !self.occupancy.add_session(ip(host.at)) => host.pass_over(key),
            None => {
                let flow = self.next_flow;
                self.next_flow = self.next_flow.wrapping_add(1);
                host.sessions += 1;
                host.due.insert(key);
                link.seat(now, flow, id, ask);
            }
        }
    }

    /// Frees the seats of sessions of which nothing is heard any more.
    fn forget_silent(&mut self, now: Time, index: usize) {
        let (hosts, occupancy) = (&mut self.hosts, &mut self.occupancy);
        let changed = &mut self.changed;
        self.links[index].seats.retain(|_, seat| {
            let stays = now.since(seat.heard_at) <= ROUTER_SILENCE;
            if !stays && let Some(host) = hosts.get_mut(&seat.host) {
                host.sessions -= 1;
                occupancy.remove_session(ip(host.at));
                if now.since(host.heard_at) > ROUTER_SILENCE {
                    host.is_silent = true;
                    changed.insert(seat.host);
                }
            }
            stays
        });
    }

    /// Shares out a link, and notes whom to tell.
    fn share_out(&mut self, now: Time, index: usize) {
        let link = &mut self.links[index];
        link.reports.clear();
        link.reports.extend(link.seats.values().map(|seat| (seat.flow, seat.report())));
        link.agent.tick(now, &link.reports, &mut link.grants);
        for ((&session, seat), (_, grant)) in link.seats.iter_mut().zip(&link.grants) {
            let news = (grant.number, grant.rate, grant.offer);
            if seat.told.is_some_and(|told| !is_news(told, news)) {
                continue;
            }
            seat.told = Some(news);
            if let Some(host) = self.hosts.get_mut(&seat.host) {
                host.due.insert((seat.ask.link, session));
                self.ready.insert(seat.host);
            }
        }
    }
}

/// Whether a host should hear of what has changed.
fn is_news(told: (u32, Rate, Rate), now: (u32, Rate, Rate)) -> bool {
    told.0 != now.0 || has_moved(told.2, now.2)
}

/// The address that hosts are counted by.
fn ip<A: Into<SocketAddr>>(at: A) -> IpAddr {
    at.into().ip()
}

impl Link {
    /// Shares out soon.
    fn wake(&mut self, now: Time) {
        self.agent.wake(now + COSTS * self.seats.len() as u64);
    }

    /// A session that is new here. What it may be sending already counts as granted.
    fn seat(&mut self, now: Time, flow: FlowId, host: HostId, ask: Ask) {
        let held = ask.held.min(self.agent.capacity());
        if held > Rate::ZERO {
            self.agent.adopt(now, flow, 1, held, held);
        }
        self.seats.insert(ask.session, Seat { flow, host, ask, heard_at: now, told: None });
        self.wake(now);
    }
}

impl Seat {
    /// What the link's agent is told of it.
    fn report(&self) -> Report {
        let ask = &self.ask;
        // A host may echo a grant of a seat that was forgotten since: it says nothing of this one.
        let newest = self.told.map_or(0, |(number, ..)| number);
        let echoed = if ask.echoed <= newest { ask.echoed } else { 0 };
        Report {
            weight: f64::from(ask.weight).clamp(ROUTER_WEIGHT_LEAST, ROUTER_WEIGHT_MOST),
            peer_weight: 1.0,
            law: Law::Grant,
            phase: match ask.stage {
                Stage::Open => Phase::Open,
                Stage::Closing | Stage::Gone => Phase::Closing,
            },
            peer_offer: ask.bound,
            demand: ask.bound,
            firm: ask.bound,
            party: 0,
            owner: Owner::NOBODY,
            measured: Rate::ZERO,
            echoed,
            rtt: ask.rtt,
            counts: Counts::default(),
            packet: Bytes::ZERO,
        }
    }
}

impl<A> Host<A> {
    fn new(now: Time, at: A, head: &Head) -> Host<A> {
        Host {
            at,
            pass: head.pass,
            newest: head.number,
            said: 0,
            heard_at: now,
            sessions: 0,
            due: BTreeSet::new(),
            passed_over: Vec::new(),
            pace: Pace::new(now),
            is_silent: false,
            told_silent: false,
        }
    }

    /// An ask of it has come from where it is known to be.
    fn hear(&mut self, now: Time, from: A, head: &Head) {
        (self.newest, self.heard_at, self.at) = (head.number, now, from);
    }

    /// It is to hear that nothing is allotted to this session.
    fn pass_over(&mut self, key: (u8, u64)) {
        if self.passed_over.len() < ROUTER_SESSIONS_OF_ADDRESS {
            self.passed_over.push(key);
        }
    }

    fn has_news(&self) -> bool {
        !(self.due.is_empty() && self.passed_over.is_empty())
    }

    /// Writes what it is to be told, as far as one datagram holds it.
    fn write(&mut self, links: &[Link], out: &mut Vec<u8>) {
        let mut room = ROUTER_ENTRIES;
        while room > 0
            && let Some((link, session)) = self.passed_over.pop()
        {
            let (number, rate, offer) = (0, Rate::UNLIMITED, Rate::UNLIMITED);
            let verdict = Verdict::PassedOver;
            Answer { session, link, verdict, number, rate, offer }.encode(out);
            room -= 1;
        }
        while room > 0
            && let Some((link, session)) = self.due.pop_first()
        {
            let seat = links.get(usize::from(link)).and_then(|l| l.seats.get(&session));
            let Some((number, rate, offer)) = seat.and_then(|seat| seat.told) else { continue };
            Answer { session, link, verdict: Verdict::Granted, number, rate, offer }.encode(out);
            room -= 1;
        }
    }
}
