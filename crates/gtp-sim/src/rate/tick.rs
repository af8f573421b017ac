//! One node's turn: look at its sessions, compute, tell the other ends.
//!
//! A node whose sessions heard nothing and whose inputs are those of the last time would compute
//! the same again, so it does not; a settled network costs next to nothing. This file knows
//! agents and laws, and that they must agree.

use gtp_alloc::grant::{Claim, Held};
use gtp_alloc::{Rate, Span, Time};
use gtp_proto::limits::RECOMPUTE_MIN;
use gtp_proto::{FlowId, Grant, Phase, Report, Side};

use super::build::{Hosting, Law, NodeId, Pace, Telling};
use super::ends::{Common, End, Life, advance_all, advance_each};
use super::laws::{is_issued, to_f64, to_rate};
use super::mailbox::Word;
use super::world::World;

/// In a schedule's tag: not a tick, but word that arrives.
const NEWS: u32 = 1 << 31;

/// More sessions than this are not all near: their ends and rings take more than 3 MB.
const NEAR_MOST: usize = 1 << 13;

/// Room for what goes in and out of an agent.
#[derive(Debug, Default)]
pub(super) struct AgentDesk {
    reports: Vec<(FlowId, Report)>,
    grants: Vec<(FlowId, Grant)>,
}

impl World {
    /// Runs all ticks until `end`.
    pub(super) fn run_ticks(&mut self, end: u64) {
        let is_large = self.sources.len() > NEAR_MOST;
        while let Some((at, tag)) = self.schedule.take(end) {
            self.now = at;
            if is_large {
                self.look_ahead();
            }
            let v = tag & !NEWS;
            if tag & NEWS != 0 {
                self.wake(v, at);
            } else if self.nodes[v as usize].next == at {
                self.tick(v, at);
            }
        }
    }

    /// At the beginning of a day, a look at all that its nodes will want: to ask for all of it at
    /// once is to wait for memory once and not for each.
    fn look_ahead(&mut self) {
        let Some(entries) = self.schedule.new_day() else { return };
        let mut nothing = 0;
        for (_, tag) in entries {
            nothing ^= self.nodes[(tag & !NEWS) as usize].seen;
        }
        for (_, tag) in entries {
            let node = &self.nodes[(tag & !NEWS) as usize];
            let ends = node.ends.start as usize..node.ends.end as usize;
            match node.side {
                Side::Source => self.sources[ends].iter().for_each(|end| {
                    nothing ^= end.common.flow.rate ^ end.offer ^ end.next(&self.mail);
                }),
                Side::Sink => self.sinks[ends].iter().for_each(|end| {
                    nothing ^= end.common.flow.rate ^ end.newest ^ end.next(&self.mail);
                }),
            }
        }
        std::hint::black_box(nothing);
    }

    /// Something changed at node `v` that should not wait for its interval's end.
    pub(super) fn wake(&mut self, v: u32, now: u64) {
        let node = &mut self.nodes[v as usize];
        let next = match self.agents.get_mut(v as usize) {
            Some(agent) => {
                agent.wake(Time::from_nanos(now));
                agent.poll_timeout().as_nanos().max(now)
            }
            None => node.next.min((node.last + RECOMPUTE_MIN.as_nanos()).max(now)),
        };
        if next != node.next {
            node.next = next;
            self.schedule.enter(next, v);
        }
    }

    /// Gives node `v` another capacity from now on.
    pub(super) fn set_capacity(&mut self, v: u32, capacity: Rate) {
        let now = self.now;
        let node = &mut self.nodes[v as usize];
        node.capacity = capacity;
        node.stale = true;
        if let Some(agent) = self.agents.get_mut(v as usize) {
            agent.set_capacity(capacity);
        }
        if self.config.law == Law::Grant && node.next != now {
            node.next = now;
            self.schedule.enter(now, v);
        }
    }

    /// Brings node `v`'s sessions up to `now`, and notes its largest load on the way.
    pub(super) fn look(&mut self, v: u32, now: u64) {
        let node = &mut self.nodes[v as usize];
        let (side, capacity) = (node.side, node.capacity.as_f64());
        let (since, load) = (node.seen, node.load);
        self.load.begin(load);
        // Nobody reads what was carried under the grant law.
        let is_quiet = self.config.law == Law::Grant && self.agents.is_empty();
        node.seen = now;
        if !(is_quiet && node.earliest > now) {
            node.stale |= node.earliest <= now || self.config.law == Law::EndNode;
            let ends = node.ends.start as usize..node.ends.end as usize;
            let (mail, steps) = (&mut self.mail, &mut self.load);
            match (&mut self.posts, side) {
                (Some([post, _]), Side::Source) => {
                    post.deliver(&node.ends, now, &mut self.sources, mail);
                    advance_each(&mut self.sources[ends], since, now, mail, steps);
                }
                (Some([_, post]), Side::Sink) => {
                    post.deliver(&node.ends, now, &mut self.sinks, mail);
                    advance_each(&mut self.sinks[ends], since, now, mail, steps);
                }
                (None, _) => {
                    let (earliest, full) = match side {
                        Side::Source => {
                            advance_all(&mut self.sources[ends], since, now, mail, steps)
                        }
                        Side::Sink => advance_all(&mut self.sinks[ends], since, now, mail, steps),
                    };
                    node.earliest = earliest;
                    self.crowded += full;
                }
            }
            node.load = steps.end(load);
        }
        if self.load.bound as f64 > self.recent.of(side).part * capacity {
            self.note_load(v, side, capacity, load, since);
        }
    }

    fn note_load(&mut self, v: u32, side: Side, capacity: f64, load: u64, since: u64) {
        let (load, at) = self.load.peak(load, since);
        let part = load as f64 / capacity;
        for worst in [self.recent.of(side), self.worst.of(side)] {
            if part > worst.part {
                worst.part = part;
                worst.node = Some(NodeId(v));
                worst.at = Time::from_nanos(at);
            }
        }
    }

    /// The source end `at` of node `v` sends by what it is permitted now.
    pub(super) fn obey(&mut self, v: u32, at: u32) {
        let (before, now) = self.sources[at as usize].obey();
        let node = &mut self.nodes[v as usize];
        node.load = node.load - before + now;
        node.seen = self.now;
    }

    fn tick(&mut self, v: u32, now: u64) {
        self.look(v, now);
        self.ticks += 1;
        let node = &mut self.nodes[v as usize];
        node.last = now;
        node.next = now + node.interval;
        let next = node.next;
        match (self.config.hosting, node.side) {
            (Hosting::Agents, Side::Source) => self.agent_tick_source(v, now),
            (Hosting::Agents, Side::Sink) => self.agent_tick_sink(v, now),
            (Hosting::Laws(_), Side::Source) => self.law_tick_source(v, now),
            (Hosting::Laws(telling), Side::Sink) => self.law_tick_sink(v, now, telling),
        }
        self.schedule.enter(next, v);
    }

    fn law_tick_source(&mut self, v: u32, now: u64) {
        let node = &mut self.nodes[v as usize];
        if !std::mem::replace(&mut node.stale, false) {
            return;
        }
        let (first, last) = (node.ends.start as usize, node.ends.end as usize);
        let (interval, capacity) = (node.interval, node.capacity);
        let desk = &mut self.desk;
        desk.clear();
        let terms = &self.source_terms[first..last];
        let own = self.has_own_params.then_some(terms);
        for (i, end) in self.sources[first..last].iter_mut().enumerate() {
            let c = &mut end.common;
            match self.config.law {
                Law::Grant if c.life == Life::Open => {
                    let bound = to_f64(c.peer_offer.min(end.demand));
                    desk.active.push(i as u32);
                    desk.claims.push(Claim { weight: terms[i].weight, bound });
                }
                Law::Grant => {}
                Law::EndNode => desk.measure(i, c, own, interval),
            }
        }
        match self.config.law {
            Law::Grant => desk.share(capacity),
            Law::EndNode => desk.expect(capacity, &self.params, v),
        }
        for place in 0..self.desk.active.len() {
            let at = first as u32 + self.desk.active[place];
            let (rate, offer) = match self.config.law {
                Law::Grant => {
                    let share = self.desk.shares[place];
                    (to_rate(share.target), to_rate(share.offer))
                }
                Law::EndNode => (self.desk.expected[place].as_bps(), 0),
            };
            self.decide_source(v, at, rate, offer, now);
        }
    }

    #[inline]
    fn decide_source(&mut self, v: u32, at: u32, rate: u64, offer: u64, now: u64) {
        let end = &mut self.sources[at as usize];
        let before = end.said();
        (end.expected, end.offer) = (rate, offer);
        if end.said() != before {
            self.tell_sink(at, now);
        }
        self.obey(v, at);
    }

    fn law_tick_sink(&mut self, v: u32, now: u64, telling: Telling) {
        let node = &mut self.nodes[v as usize];
        if !std::mem::replace(&mut node.stale, false) {
            return;
        }
        let (first, last) = (node.ends.start as usize, node.ends.end as usize);
        let (interval, capacity) = (node.interval, node.capacity);
        let desk = &mut self.desk;
        desk.clear();
        let terms = &self.sink_terms[first..last];
        let own = self.has_own_params.then_some(terms);
        for (i, end) in self.sinks[first..last].iter_mut().enumerate() {
            match self.config.law {
                Law::Grant if end.common.life == Life::Open => {
                    let bound = to_f64(end.common.peer_offer);
                    let (committed, newest) = (end.committed(&self.mail), end.newest);
                    let (committed, newest) = (to_f64(committed), to_f64(newest));
                    desk.active.push(i as u32);
                    desk.claims.push(Claim { weight: terms[i].weight, bound });
                    desk.held.push(Held { target: 0.0, committed, newest });
                }
                Law::Grant => {}
                Law::EndNode => desk.measure(i, &mut end.common, own, interval),
            }
        }
        match self.config.law {
            Law::Grant => {
                desk.share(capacity);
                desk.held.iter_mut().zip(&desk.shares).for_each(|(h, s)| h.target = s.target);
                desk.grant(capacity);
            }
            Law::EndNode => desk.expect(capacity, &self.params, v),
        }
        for place in 0..self.desk.active.len() {
            let at = first as u32 + self.desk.active[place];
            let (rate, offer) = match self.config.law {
                Law::Grant => (self.desk.granted[place], to_rate(self.desk.shares[place].offer)),
                Law::EndNode => (self.desk.expected[place].as_f64(), 0),
            };
            self.decide_sink(v, at, rate, offer, now, telling);
        }
    }

    #[inline]
    fn decide_sink(&mut self, v: u32, at: u32, rate: f64, offer: u64, now: u64, how: Telling) {
        let end = &mut self.sinks[at as usize];
        let (rate, newest) = (libm::floor(rate.max(0.0)), to_f64(end.newest));
        // Only a raise can be held back, and only after very many, and by some.
        let outstanding = match how {
            Telling::AsAgents if rate > newest => end.outstanding(&self.mail),
            Telling::AsAgents | Telling::Always => 0,
        };
        let is_issued = is_issued(how, rate, newest, outstanding);
        // Whatever is under way, or held back, makes the next computation another.
        self.nodes[v as usize].stale |= is_issued || rate > newest;
        if is_issued {
            self.issue(v, at, to_rate(rate), now);
        }
        if is_issued || offer != self.sinks[at as usize].told_offer {
            self.tell_source(at, offer, now);
        }
    }

    /// A new grant starts its round trip.
    fn issue(&mut self, v: u32, at: u32, rate: u64, now: u64) {
        let end = &mut self.sinks[at as usize];
        (end.newest, end.issued) = (rate, end.issued + 1);
        let echo = now + 2 * u64::from(end.common.half_rtt);
        let word = Word { at: echo, rate, offer: 0 };
        let mut writer = end.echoes.at(end.grants);
        self.mail.put_in(&mut end.echoes, &mut writer, word);
        end.grants = writer.next();
        let node = &mut self.nodes[v as usize];
        node.earliest = node.earliest.min(echo);
    }

    pub(super) fn tell_sink(&mut self, at: u32, now: u64) {
        let end = &mut self.sources[at as usize];
        let (rate, offer) = end.said();
        let c = &mut end.common;
        let word = Word { at: now + u64::from(c.half_rtt), rate, offer };
        match &mut self.posts {
            Some([_, sinks]) => sinks.note(c.peer, word),
            None => self
                .mail
                .put_far(&mut c.writer, word, || &mut self.sinks[c.peer as usize].common.inbox),
        }
        let (peer, peer_node) = (c.peer, c.peer_node);
        self.told(2 * u64::from(peer), peer_node, word);
    }

    fn tell_source(&mut self, at: u32, offer: u64, now: u64) {
        let end = &mut self.sinks[at as usize];
        end.told_offer = offer;
        let (rate, c) = (end.newest, &mut end.common);
        let word = Word { at: now + u64::from(c.half_rtt), rate, offer };
        match &mut self.posts {
            Some([sources, _]) => sources.note(c.peer, word),
            None => self
                .mail
                .put_far(&mut c.writer, word, || &mut self.sources[c.peer as usize].common.inbox),
        }
        let (peer, peer_node) = (c.peer, c.peer_node);
        self.told(2 * u64::from(peer) + 1, peer_node, word);
    }

    #[inline]
    fn told(&mut self, to: u64, reader: u32, word: Word) {
        self.words += 1;
        for part in [word.at, to, word.rate, word.offer] {
            self.hash = fold(self.hash, part);
        }
        if self.config.law == Law::EndNode {
            return;
        }
        let node = &mut self.nodes[reader as usize];
        node.earliest = node.earliest.min(word.at);
        if self.config.pace == Pace::News {
            self.schedule.enter(word.at, reader | NEWS);
        }
    }

    fn agent_tick_source(&mut self, v: u32, now: u64) {
        let node = &self.nodes[v as usize];
        let (first, last) = (node.ends.start as usize, node.ends.end as usize);
        let (interval, law) = (node.interval, self.agent_law(v));
        self.desk.clear();
        self.agent_desk.reports.clear();
        for at in first..last {
            let end = &mut self.sources[at];
            let measured = end.common.flow.read(interval);
            if end.common.life == Life::Open {
                self.desk.active.push((at - first) as u32);
                let demand = Rate::from_bps(end.demand);
                let report = report(&end.common, law, self.source_terms[at].weight, measured);
                self.agent_desk.reports.push((at as u32, Report { demand, ..report }));
            }
        }
        self.agent_tick(v, now);
        for place in 0..self.desk.active.len() {
            let at = first as u32 + self.desk.active[place];
            let grant = self.agent_desk.grants[place].1;
            let offer = self.offer_of(&grant);
            self.decide_source(v, at, grant.rate.as_bps(), offer, now);
        }
    }

    fn agent_tick_sink(&mut self, v: u32, now: u64) {
        let node = &self.nodes[v as usize];
        let (first, last) = (node.ends.start as usize, node.ends.end as usize);
        let (interval, law) = (node.interval, self.agent_law(v));
        self.desk.clear();
        self.agent_desk.reports.clear();
        for at in first..last {
            let end = &mut self.sinks[at];
            let measured = end.common.flow.read(interval);
            if end.common.life == Life::Open {
                self.desk.active.push((at - first) as u32);
                let report = report(&end.common, law, self.sink_terms[at].weight, measured);
                let echoed = end.echoed_number(&self.mail);
                self.agent_desk.reports.push((at as u32, Report { echoed, ..report }));
            }
        }
        self.agent_tick(v, now);
        for place in 0..self.desk.active.len() {
            let at = first as u32 + self.desk.active[place];
            let grant = self.agent_desk.grants[place].1;
            let is_new = grant.number != self.sinks[at as usize].issued;
            if is_new {
                self.issue(v, at, grant.rate.as_bps(), now);
            }
            let offer = self.offer_of(&grant);
            if is_new || offer != self.sinks[at as usize].told_offer {
                self.tell_source(at, offer, now);
            }
        }
    }

    /// What a session tells of its agent's offer: nothing under the end-node law.
    fn offer_of(&self, grant: &Grant) -> u64 {
        match self.config.law {
            Law::Grant => grant.offer.as_bps(),
            Law::EndNode => 0,
        }
    }

    fn agent_tick(&mut self, v: u32, now: u64) {
        let AgentDesk { reports, grants } = &mut self.agent_desk;
        self.agents[v as usize].tick(Time::from_nanos(now), reports, grants);
    }

    fn agent_law(&self, v: u32) -> gtp_proto::Law {
        match self.config.law {
            Law::Grant => gtp_proto::Law::Grant,
            Law::EndNode => {
                let params = self.params[v as usize];
                gtp_proto::Law::EndNode { alpha: params.alpha, beta: params.beta }
            }
        }
    }
}

/// What an end reports to its agent; a sink knows no demand and a source no echo.
fn report(c: &Common, law: gtp_proto::Law, weight: f64, measured: u64) -> Report {
    Report {
        weight,
        peer_weight: 1.0,
        law,
        phase: Phase::Open,
        peer_offer: Rate::from_bps(c.peer_offer),
        demand: Rate::UNLIMITED,
        firm: Rate::UNLIMITED,
        party: 0,
        owner: gtp_proto::Owner::NOBODY,
        measured: Rate::from_bps(measured),
        echoed: 0,
        rtt: Span::from_nanos(2 * u64::from(c.half_rtt)),
        counts: Default::default(),
        packet: Default::default(),
    }
}

/// One more word in a running hash.
fn fold(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}
