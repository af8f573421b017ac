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
use super::ends::{Common, News};
use super::laws::{is_issued, to_f64, to_rate};
use super::mailbox::{Life, Put, Word};
use super::world::World;

/// In a schedule's tag: not a tick, but word that arrives.
const NEWS: u32 = 1 << 31;

/// Room for what goes in and out of an agent.
#[derive(Debug, Default)]
pub(super) struct AgentDesk {
    reports: Vec<(FlowId, Report)>,
    grants: Vec<(FlowId, Grant)>,
}

impl World {
    /// Runs all ticks until `end`.
    pub(super) fn run_ticks(&mut self, end: u64) {
        while let Some((at, tag)) = self.schedule.take(end) {
            self.now = at;
            let v = tag & !NEWS;
            if tag & NEWS != 0 {
                self.wake(v, at);
            } else if self.nodes[v as usize].next == at {
                self.tick(v, at);
            }
        }
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
        self.load.clear();
        let ends = node.ends.start as usize..node.ends.end as usize;
        let mut news = News::None;
        match node.side {
            Side::Source => {
                for end in &mut self.sources[ends] {
                    if end.advance(now, &mut self.mail, &mut self.load) == News::Some {
                        news = News::Some;
                    }
                }
            }
            Side::Sink => {
                for end in &mut self.sinks[ends] {
                    if end.advance(now, &mut self.mail, &mut self.load) == News::Some {
                        news = News::Some;
                    }
                }
            }
        }
        node.stale |= news == News::Some;
        let seen = std::mem::replace(&mut node.seen, now);
        let (side, capacity) = (node.side, node.capacity.as_f64());
        if self.load.bound as f64 > self.recent.of(side).part * capacity {
            self.note_load(v, side, capacity, seen);
        }
    }

    fn note_load(&mut self, v: u32, side: Side, capacity: f64, seen: u64) {
        let (load, at) = self.load.peak(seen);
        let part = load as f64 / capacity;
        for worst in [self.recent.of(side), self.worst.of(side)] {
            if part > worst.part {
                worst.part = part;
                worst.node = Some(NodeId(v));
                worst.at = Time::from_nanos(at);
            }
        }
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
        let stale = std::mem::replace(&mut node.stale, false);
        if self.config.law == Law::Grant && !stale {
            return;
        }
        let (first, last) = (node.ends.start as usize, node.ends.end as usize);
        let (interval, capacity) = (node.interval, node.capacity);
        let desk = &mut self.desk;
        desk.clear();
        let mut moved = stale;
        for (i, end) in self.sources[first..last].iter_mut().enumerate() {
            let c = &mut end.common;
            let measured = if self.config.law == Law::Grant { 0 } else { c.flow.read(interval) };
            if c.life != Life::Open {
                continue;
            }
            desk.active.push(i as u32);
            let input = match self.config.law {
                Law::Grant => {
                    let bound = c.peer_offer.min(end.demand);
                    desk.claims.push(Claim { weight: c.weight, bound: to_f64(bound) });
                    bound
                }
                Law::EndNode => {
                    desk.measured.push(Rate::from_bps(measured));
                    desk.params.push(c.params);
                    measured
                }
            };
            moved |= input != c.input;
            c.input = input;
        }
        if !moved {
            return;
        }
        match self.config.law {
            Law::Grant => desk.share(capacity),
            Law::EndNode => desk.expect(capacity, &self.params, v),
        }
        for place in 0..self.desk.active.len() {
            let at = first + self.desk.active[place] as usize;
            let (rate, offer) = match self.config.law {
                Law::Grant => {
                    let share = self.desk.shares[place];
                    (to_rate(share.target), to_rate(share.offer))
                }
                Law::EndNode => (self.desk.expected[place].as_bps(), u64::MAX),
            };
            self.decide_source(at as u32, rate, offer, now);
        }
    }

    fn decide_source(&mut self, at: u32, rate: u64, offer: u64, now: u64) {
        let end = &mut self.sources[at as usize];
        (end.expected, end.offer) = (rate, offer);
        end.obey();
        self.tell_sink(at, now);
    }

    fn law_tick_sink(&mut self, v: u32, now: u64, telling: Telling) {
        let node = &mut self.nodes[v as usize];
        let stale = std::mem::replace(&mut node.stale, false);
        if self.config.law == Law::Grant && !stale {
            return;
        }
        let (first, last) = (node.ends.start as usize, node.ends.end as usize);
        let (interval, capacity) = (node.interval, node.capacity);
        let desk = &mut self.desk;
        desk.clear();
        let mut moved = stale;
        for (i, end) in self.sinks[first..last].iter_mut().enumerate() {
            let measured = match self.config.law {
                Law::Grant => 0,
                Law::EndNode => end.common.flow.read(interval),
            };
            let c = &mut end.common;
            if c.life != Life::Open {
                continue;
            }
            desk.active.push(i as u32);
            match self.config.law {
                Law::Grant => {
                    let bound = to_f64(c.peer_offer);
                    desk.claims.push(Claim { weight: c.weight, bound });
                    let (committed, newest) = (end.committed(&self.mail), end.newest);
                    let (committed, newest) = (to_f64(committed), to_f64(newest));
                    desk.held.push(Held { target: 0.0, committed, newest });
                }
                Law::EndNode => {
                    desk.measured.push(Rate::from_bps(measured));
                    desk.params.push(c.params);
                    moved |= measured != c.input;
                    c.input = measured;
                }
            }
        }
        if !moved {
            return;
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
            let at = (first + self.desk.active[place] as usize) as u32;
            let (rate, offer) = match self.config.law {
                Law::Grant => (self.desk.granted[place], to_rate(self.desk.shares[place].offer)),
                Law::EndNode => (self.desk.expected[place].as_f64(), u64::MAX),
            };
            self.decide_sink(v, at, rate, offer, now, telling);
        }
    }

    fn decide_sink(&mut self, v: u32, at: u32, rate: f64, offer: u64, now: u64, how: Telling) {
        let end = &mut self.sinks[at as usize];
        let (rate, newest) = (libm::floor(rate.max(0.0)), to_f64(end.newest));
        // Only a raise can be held back, and only after very many.
        let outstanding = if rate > newest { end.outstanding(&self.mail) } else { 0 };
        if is_issued(how, rate, newest, outstanding) {
            let (rate, number) = (to_rate(rate), end.newest_number + 1);
            self.issue(at, rate, number, now);
            self.nodes[v as usize].stale = true;
        } else if rate > newest {
            self.nodes[v as usize].stale = true;
        }
        self.tell_source(at, offer, now);
    }

    /// A new grant starts its round trip.
    fn issue(&mut self, at: u32, rate: u64, number: u32, now: u64) {
        let end = &mut self.sinks[at as usize];
        (end.newest, end.newest_number) = (rate, number);
        let echo = now + 2 * end.common.half_rtt;
        let word = Word { at: echo, rate, offer: 0, number, life: Life::Open };
        if self.mail.put(&mut end.grants, word) == Put::Full {
            self.mail.grow(&mut end.echoes, &mut end.grants);
            let put = self.mail.put(&mut end.grants, word);
            debug_assert!(put == Put::Done);
        }
    }

    pub(super) fn tell_sink(&mut self, at: u32, now: u64) {
        let end = &mut self.sources[at as usize];
        let c = &mut end.common;
        let (rate, offer) = match c.life {
            Life::Open => (end.expected.min(end.demand), end.offer.min(end.demand)),
            Life::Future | Life::Gone => (0, 0),
        };
        if c.told == (rate, offer, c.life) {
            return;
        }
        c.told = (rate, offer, c.life);
        let word = Word { at: now + c.half_rtt, rate, offer, number: 0, life: c.life };
        if self.mail.put(&mut c.outbox, word) == Put::Full {
            let reader = &mut self.sinks[c.peer as usize].common.inbox;
            self.mail.grow(reader, &mut c.outbox);
            let put = self.mail.put(&mut c.outbox, word);
            debug_assert!(put == Put::Done);
        }
        let (session, peer_node) = (c.session, c.peer_node);
        self.told(session, peer_node, word);
    }

    fn tell_source(&mut self, at: u32, offer: u64, now: u64) {
        let end = &mut self.sinks[at as usize];
        let (rate, number) = (end.newest, end.newest_number);
        let c = &mut end.common;
        if c.told == (rate, offer, Life::Open) {
            return;
        }
        c.told = (rate, offer, Life::Open);
        let word = Word { at: now + c.half_rtt, rate, offer, number, life: Life::Open };
        if self.mail.put(&mut c.outbox, word) == Put::Full {
            let reader = &mut self.sources[c.peer as usize].common.inbox;
            self.mail.grow(reader, &mut c.outbox);
            let put = self.mail.put(&mut c.outbox, word);
            debug_assert!(put == Put::Done);
        }
        let (session, peer_node) = (c.session, c.peer_node);
        self.told(session, peer_node, word);
    }

    fn told(&mut self, session: u32, reader: u32, word: Word) {
        self.words += 1;
        for part in
            [word.at, u64::from(session) << 32 | u64::from(word.number), word.rate, word.offer]
        {
            self.hash = fold(self.hash, part);
        }
        if self.config.pace == Pace::News && self.config.law == Law::Grant {
            self.schedule.enter(word.at, reader | NEWS);
        }
    }

    fn agent_tick_source(&mut self, v: u32, now: u64) {
        let node = &self.nodes[v as usize];
        let (first, last) = (node.ends.start as usize, node.ends.end as usize);
        let (interval, law) = (node.interval, self.agent_law(v));
        self.desk.clear();
        self.agent_desk.reports.clear();
        for (i, end) in self.sources[first..last].iter_mut().enumerate() {
            let measured = end.common.flow.read(interval);
            if end.common.life == Life::Open {
                self.desk.active.push(i as u32);
                let demand = Rate::from_bps(end.demand);
                let peer_offer = match self.config.law {
                    Law::Grant => end.common.peer_offer,
                    Law::EndNode => u64::MAX,
                };
                let report = report(&end.common, law, measured, peer_offer, demand);
                self.agent_desk.reports.push((end.common.session, report));
            }
        }
        self.agent_tick(v, now);
        for place in 0..self.desk.active.len() {
            let at = first + self.desk.active[place] as usize;
            let grant = self.agent_desk.grants[place].1;
            let offer = match self.config.law {
                Law::Grant => grant.offer.as_bps(),
                Law::EndNode => u64::MAX,
            };
            self.decide_source(at as u32, grant.rate.as_bps(), offer, now);
        }
    }

    fn agent_tick_sink(&mut self, v: u32, now: u64) {
        let node = &self.nodes[v as usize];
        let (first, last) = (node.ends.start as usize, node.ends.end as usize);
        let (interval, law) = (node.interval, self.agent_law(v));
        self.desk.clear();
        self.agent_desk.reports.clear();
        for (i, end) in self.sinks[first..last].iter_mut().enumerate() {
            let measured = end.common.flow.read(interval);
            if end.common.life == Life::Open {
                self.desk.active.push(i as u32);
                let peer_offer = match self.config.law {
                    Law::Grant => end.common.peer_offer,
                    Law::EndNode => u64::MAX,
                };
                let report = report(&end.common, law, measured, peer_offer, Rate::UNLIMITED);
                let report = Report { echoed: end.echoed_number, ..report };
                self.agent_desk.reports.push((end.common.session, report));
            }
        }
        self.agent_tick(v, now);
        for place in 0..self.desk.active.len() {
            let at = (first + self.desk.active[place] as usize) as u32;
            let grant = self.agent_desk.grants[place].1;
            if grant.number != self.sinks[at as usize].newest_number {
                self.issue(at, grant.rate.as_bps(), grant.number, now);
            }
            let offer = match self.config.law {
                Law::Grant => grant.offer.as_bps(),
                Law::EndNode => u64::MAX,
            };
            self.tell_source(at, offer, now);
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

fn report(c: &Common, law: gtp_proto::Law, measured: u64, offer: u64, demand: Rate) -> Report {
    Report {
        weight: c.weight,
        law,
        phase: Phase::Open,
        peer_offer: Rate::from_bps(offer),
        demand,
        measured: Rate::from_bps(measured),
        echoed: 0,
        rtt: Span::from_nanos(2 * c.half_rtt),
    }
}

/// One more word in a running hash.
fn fold(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}
