//! What the sessions of a scenario should get, at each time: the exact max-min allocation.
//!
//! Its resources are the hosts' capacities and, where links are simulated, the links' rates less
//! what background traffic takes on average, and what routers share out of links, for the sessions
//! that ask them. Whenever a session comes or goes, or a demand, a
//! capacity or a link changes, a new epoch begins. The solver is that of `gtp_alloc`; nothing is
//! taken from the run but when sessions ended.

use gtp_alloc::maxmin::{Network, Session, solve};
use gtp_alloc::{Rate, Span};
use gtp_link::LinkState;
use gtp_proto::limits::ROUTER_SILENCE;

use super::routers::{Standing, crossings};
use super::ways::{Links, Way};
use crate::scenario::model::{Event, Level, NodeKind, RouterEvent, RouterKey, Scenario};
use crate::scenario::protocol::Protocol;

/// A time over which nothing changes that the allocation depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Epoch {
    /// When it begins.
    pub from: Span,
    /// When it ends.
    pub to: Span,
    /// Sessions that are there, by number.
    pub active: Vec<usize>,
    /// What each should get, in bit/s.
    pub wanted: Vec<f64>,
    /// Whether a fault is on for which nobody states what should be: a pause, dead agents.
    pub calm: Calm,
}

/// Whether sessions can be expected to have their shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calm {
    /// They can.
    Yes,
    /// A host stands still, or its agents do.
    No,
}

/// More epochs times what each looks at are not worked out: a minute's work.
const WORK_MAX: usize = 200_000_000;

/// All epochs of a run in which session `k` was there from `lives[k].0` to `lives[k].1`; `None` if
/// there are more than can be worked out.
pub fn epochs(
    scenario: &Scenario,
    ways: &[Way],
    backgrounds: &[Links],
    lives: &[(Span, Span)],
) -> Option<Vec<Epoch>> {
    let times = times(scenario, lives);
    if times.len().saturating_mul(work(scenario, ways, backgrounds)) > WORK_MAX {
        return None;
    }
    let mut state = State::new(scenario);
    let mut next = 0;
    let mut epochs: Vec<Epoch> = Vec::new();
    for ends in times.windows(2) {
        while let Some((_, event)) = scenario.events.get(next).filter(|(at, _)| *at <= ends[0]) {
            state.apply(scenario.events[next].0, event);
            next += 1;
        }
        let epoch = state.epoch((ends[0], ends[1]), ways, backgrounds, lives);
        match epochs.last_mut() {
            Some(last)
                if last.active == epoch.active
                    && last.wanted == epoch.wanted
                    && last.calm == epoch.calm =>
            {
                last.to = epoch.to;
            }
            _ => epochs.push(epoch),
        }
    }
    Some(epochs)
}

/// What one epoch looks at: capacities, sessions with their demands, and the links of all ways.
fn work(scenario: &Scenario, ways: &[Way], backgrounds: &[Links]) -> usize {
    let sessions = scenario.sessions.iter().map(|session| 1 + session.demand.len());
    let hops = ways.iter().map(|way| way.forth.len());
    let crossing = backgrounds.iter().map(|links| links.len());
    let shared = scenario.allocators.iter().map(|router| router.links.len());
    let resources = 2 * scenario.nodes.len() + scenario.links.len() + shared.sum::<usize>();
    resources + sessions.chain(hops).chain(crossing).sum::<usize>()
}

/// What these sessions should get at one time, whatever else there is; background traffic aside.
pub fn allocation(scenario: &Scenario, ways: &[Way], at: Span, active: &[usize]) -> Vec<f64> {
    let mut state = State::new(scenario);
    for (when, event) in scenario.events.iter().take_while(|(when, _)| *when <= at) {
        state.apply(*when, event);
    }
    let aside = vec![Links::from([]); scenario.backgrounds.len()];
    state.shares(at, active, ways, &aside)
}

/// Every time at which something may change, the start and the end included.
fn times(scenario: &Scenario, lives: &[(Span, Span)]) -> Vec<Span> {
    let mut times = vec![Span::ZERO, scenario.duration];
    times.extend(lives.iter().flat_map(|(from, to)| [*from, *to]));
    for session in &scenario.sessions {
        times.extend(session.demand.iter().map(|(at, _)| *at));
    }
    for (at, event) in &scenario.events {
        times.push(*at);
        match *event {
            Event::Pause(_, lasts) => times.push(*at + lasts),
            Event::Router(_, RouterEvent::Silent) => times.push(*at + ROUTER_SILENCE),
            Event::Link(..)
            | Event::Capacity { .. }
            | Event::AgentsStop(_)
            | Event::AgentsRun(_)
            | Event::Skew(..)
            | Event::Coalesce(..)
            | Event::Router(..) => {}
        }
    }
    if scenario.allocators.iter().any(|router| router.key == RouterKey::Another) {
        times.push(ROUTER_SILENCE);
    }
    for flow in &scenario.backgrounds {
        times.push(flow.start);
        times.extend(flow.stop);
    }
    times.retain(|at| *at <= scenario.duration);
    times.sort_unstable();
    times.dedup();
    times
}

/// Capacities of now.
struct State<'a> {
    scenario: &'a Scenario,
    out: Vec<Rate>,
    in_: Vec<Rate>,
    links: Vec<Rate>,
    up: Vec<LinkState>,
    /// Until when each host stands still, its agents included.
    still: Vec<Span>,
    /// Of the routers.
    routers: Vec<Standing>,
}

impl State<'_> {
    fn new(scenario: &Scenario) -> State<'_> {
        let rates = |pick: fn(&crate::scenario::model::HostEntry) -> Rate| {
            let of = |node: &crate::scenario::model::NodeEntry| match &node.kind {
                NodeKind::Host(host) => pick(host),
                NodeKind::Switch => Rate::UNLIMITED,
            };
            scenario.nodes.iter().map(of).collect::<Vec<_>>()
        };
        State {
            scenario,
            out: rates(|host| host.capacity_out),
            in_: rates(|host| host.capacity_in),
            links: scenario.links.iter().map(|link| link.spec.rate).collect(),
            up: scenario.links.iter().map(|link| link.spec.state).collect(),
            still: vec![Span::ZERO; scenario.nodes.len()],
            routers: scenario.allocators.iter().map(Standing::new).collect(),
        }
    }

    fn apply(&mut self, at: Span, event: &Event) {
        match *event {
            Event::Link(link, change) => {
                self.links[link] = change.rate.unwrap_or(self.links[link]);
                self.up[link] = change.state.unwrap_or(self.up[link]);
            }
            Event::Capacity { host, out, in_ } => {
                self.out[host] = out.unwrap_or(self.out[host]);
                self.in_[host] = in_.unwrap_or(self.in_[host]);
            }
            Event::Pause(host, lasts) => self.still[host] = at + lasts,
            Event::AgentsStop(host) => self.still[host] = Span::MAX,
            Event::AgentsRun(host) => self.still[host] = Span::ZERO,
            Event::Router(router, event) => self.routers[router].apply(at, event),
            Event::Skew(..) | Event::Coalesce(..) => {}
        }
    }

    fn epoch(
        &self,
        (from, to): (Span, Span),
        ways: &[Way],
        backgrounds: &[Links],
        lives: &[(Span, Span)],
    ) -> Epoch {
        let there = |&k: &usize| lives[k].0 <= from && from < lives[k].1;
        let active: Vec<usize> = (0..lives.len()).filter(there).collect();
        let wanted = self.shares(from, &active, ways, backgrounds);
        let still = active.iter().any(|&k| {
            let session = &self.scenario.sessions[k];
            let still = self.still[session.source] > from || self.still[session.sink] > from;
            // Whoever begins while a router is silent and not yet ignored waits for it.
            let mut crossed = crossings(self.scenario, k, &ways[k]);
            still || crossed.any(|crossed| self.routers[crossed.router].is_awaited(from))
        });
        let calm = if still { Calm::No } else { Calm::Yes };
        Epoch { from, to, active, wanted, calm }
    }

    fn shares(&self, at: Span, active: &[usize], ways: &[Way], backgrounds: &[Links]) -> Vec<f64> {
        let nodes = self.scenario.nodes.len() as u32;
        let finite = |rate: &Rate| if rate.is_unlimited() { 1e30 } else { rate.as_f64() };
        let mut capacity: Vec<f64> = self.out.iter().chain(&self.in_).map(finite).collect();
        capacity.extend(self.free(at, backgrounds));
        let mut shared = Vec::new();
        for router in &self.routers {
            shared.push(capacity.len() as u32);
            capacity.extend(router.capacities(at));
        }
        let Ok(mut network) = Network::new(capacity) else { return vec![0.0; active.len()] };
        let mut uses = Vec::new();
        for &k in active {
            let session = &self.scenario.sessions[k];
            uses.clear();
            // A rival knows nothing of what hosts state as their capacity.
            if session.protocol == Protocol::Gtp {
                uses.extend([session.source as u32, nodes + session.sink as u32]);
            }
            if self.scenario.level == Level::Packet {
                uses.extend(ways[k].forth.iter().map(|&link| 2 * nodes + link as u32));
                let crossed = crossings(self.scenario, k, &ways[k]);
                uses.extend(crossed.map(|one| shared[one.router] + one.number as u32));
                uses.sort_unstable();
                uses.dedup();
            }
            let demand = session.demand_at(at).min(session.protocol.most());
            let demand = if demand.is_unlimited() { 1e30 } else { demand.as_f64() };
            if network.add(Session { uses: &uses, weight: self.weight(k), demand }).is_err() {
                return vec![0.0; active.len()];
            }
        }
        solve(&network)
    }

    /// The end-node law knows no weights.
    fn weight(&self, k: usize) -> f64 {
        match self.scenario.law {
            crate::scenario::model::LawName::Grant => self.scenario.sessions[k].weight,
            crate::scenario::model::LawName::EndNode => 1.0,
        }
    }

    /// What background traffic leaves of each link.
    fn free(&self, at: Span, backgrounds: &[Links]) -> Vec<f64> {
        let mut free: Vec<f64> = (self.links.iter().zip(&self.up))
            .map(|(rate, up)| match up {
                LinkState::Up if rate.is_unlimited() => 1e30,
                LinkState::Up => rate.as_f64(),
                LinkState::Down => 0.0,
            })
            .collect();
        for (flow, links) in self.scenario.backgrounds.iter().zip(backgrounds) {
            if flow.start <= at && flow.stop.is_none_or(|stop| at < stop) {
                for &link in links.iter() {
                    free[link] = (free[link] - flow.pattern.mean()).max(0.0);
                }
            }
        }
        free
    }
}
