//! What sessions may send where routers share out links.
//!
//! Where the links carry what hosts and routers allow, each session has its exact max-min share:
//! over hosts alone for one that asks nobody, over routers, too, for one that does. What a router
//! says counts whether it is so or not, but it can only lower, and nobody below the least rate. A
//! link that carries less than is allowed is shared out by its queue, and what a fickle router
//! will say next nobody knows: then each session is held to what its hosts and routers permit at
//! most, alone and together with the others.

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::limits::ROUTER_LEAST;

use super::shares::{Bounds, WINDOW, moments, moments_from, packet};
use super::witness::Witness;
use super::{Failure, HEALED, TOLERANCE};
use crate::course::{self, NOBODY, Uses};
use crate::scenario::model::{Event, NodeEntry, NodeKind, RouterEvent, Scenario, SessionEntry};

/// What a link is used for at most that limits nobody.
const USED: f64 = 0.955;
/// What a sink says of one session at most.
const SAID: f64 = 200e3;

/// Something of which sessions may have so much together, in bit/s.
struct Permit {
    what: String,
    most: f64,
    /// Who uses it, by their places among the sessions that are left.
    users: Vec<usize>,
    /// Its sessions are not held to exact shares.
    vague: bool,
}

/// What sessions of one world may send.
pub struct Permits {
    /// By session that is left.
    pub bounds: Vec<Bounds>,
    /// For how many of them a share cannot be said.
    pub vague: usize,
    /// How many would have more without routers.
    pub held: usize,
    all: Vec<Permit>,
}

/// What each active session may send, by its exact share with all demands as they are and as they
/// are `claimed`.
///
/// # Errors
/// If that cannot be said.
pub fn permits(
    scenario: &Scenario,
    claimed: &Scenario,
    active: &[usize],
) -> Result<Permits, String> {
    let uses = course::uses(scenario).map_err(|refusal| refusal.to_string())?;
    let routers = Routers::at_end(scenario);
    let shares = |scenario: &Scenario| {
        let floored = routers.floored(scenario, &uses, active);
        let shares = course::shares(&floored, scenario.duration, active);
        shares.map_err(|refusal| refusal.to_string())
    };
    let (plain, claimed) = (shares(scenario)?, shares(claimed)?);
    let bounds: Vec<Bounds> = (active.iter().zip(plain.into_iter().zip(claimed)))
        .map(|(&k, shares)| Bounds::new(scenario, k, shares))
        .collect();
    let alone = course::shares(&unrouted(scenario), scenario.duration, active);
    let alone = alone.map_err(|refusal| refusal.to_string())?;
    let held = bounds.iter().zip(alone).filter(|(b, alone)| b.share.1 < alone * (1.0 - TOLERANCE));
    let held = held.count();
    let all = all(scenario, &routers, &uses, active, &bounds);
    let mut permits = Permits { bounds, vague: 0, held, all };
    permits.blur(active.len());
    Ok(permits)
}

/// The same world without its routers.
fn unrouted(scenario: &Scenario) -> Scenario {
    let mut unrouted = scenario.clone();
    unrouted.allocators.clear();
    unrouted.events.retain(|(_, event)| !matches!(event, Event::Router(..)));
    unrouted
}

/// What routers say from the healing on.
struct Routers {
    /// By router and link: what it said last; unlimited where nobody heeds it.
    last: Vec<Vec<f64>>,
    /// The most that it said, where it said several things.
    fickle: Vec<Vec<Option<f64>>>,
}

impl Routers {
    fn at_end(scenario: &Scenario) -> Routers {
        let mut standings: Vec<_> = scenario.allocators.iter().map(course::Standing::new).collect();
        let mut fickle: Vec<Vec<Option<f64>>> =
            scenario.allocators.iter().map(|router| vec![None; router.links.len()]).collect();
        for (at, event) in &scenario.events {
            let Event::Router(router, event) = *event else { continue };
            standings[router].apply(*at, event);
            if let RouterEvent::Capacity(link, rate) = event
                && *at >= HEALED
            {
                let most = &mut fickle[router][link];
                *most = Some(most.unwrap_or(0.0).max(rate.as_f64()));
            }
        }
        let is_fickle = |router: usize| {
            let says = |(at, event): &&(Span, Event)| {
                *at > HEALED && matches!(event, Event::Router(r, _) if *r == router)
            };
            scenario.events.iter().any(|one| says(&one))
        };
        for (router, most) in fickle.iter_mut().enumerate() {
            if !is_fickle(router) {
                most.fill(None);
            }
        }
        let last = standings.iter().map(|s| s.capacities(scenario.duration).collect()).collect();
        Routers { last, fickle }
    }

    /// What sessions may send over a link together, in bit/s, and whether that changes.
    fn permits(&self, router: usize, link: usize, sessions: usize) -> (f64, bool) {
        let (last, fickle) = (self.last[router][link], self.fickle[router][link]);
        let least = ROUTER_LEAST.as_f64() * sessions as f64;
        let most = if last >= NOBODY { f64::INFINITY } else { fickle.unwrap_or(last).max(least) };
        (most, fickle.is_some())
    }

    /// The scenario with the least rate for each session to which a router grants nothing.
    fn floored(&self, scenario: &Scenario, uses: &[Uses], active: &[usize]) -> Scenario {
        let mut floored = scenario.clone();
        let is_barred = |router: usize, link: usize| self.last[router][link] <= 0.0;
        for (router, links) in self.last.iter().enumerate() {
            for link in (0..links.len()).filter(|&link| is_barred(router, link)) {
                let unlimited = RouterEvent::Capacity(link, Rate::UNLIMITED);
                floored.events.push((scenario.duration, Event::Router(router, unlimited)));
            }
        }
        for &k in active {
            if uses[k].crossed.iter().any(|one| is_barred(one.router, one.number)) {
                let demand = scenario.sessions[k].demand_at(scenario.duration).min(ROUTER_LEAST);
                floored.sessions[k].demand = vec![(Span::ZERO, demand)];
            }
        }
        floored
    }
}

/// Everything of which the active sessions may have so much together.
fn all(
    scenario: &Scenario,
    routers: &Routers,
    uses: &[Uses],
    active: &[usize],
    bounds: &[Bounds],
) -> Vec<Permit> {
    let users = |is_one: &dyn Fn(usize) -> bool| -> Vec<usize> {
        (0..active.len()).filter(|&place| is_one(active[place])).collect()
    };
    let mut all = Vec::new();
    for (n, node) in scenario.nodes.iter().enumerate() {
        for End { does, most, of } in ends(node) {
            let users = users(&|k| of(&scenario.sessions[k]) == n);
            all.push(Permit { what: format!("{} {does}", node.name), most, users, vague: false });
        }
    }
    for (router, entry) in scenario.allocators.iter().enumerate() {
        for (number, (link, _)) in entry.links.iter().enumerate() {
            let users = users(&|k| uses[k].crossed.contains(&course::Crossing { router, number }));
            let (most, vague) = routers.permits(router, number, users.len());
            let what = format!("{} lets over {}", entry.name, scenario.links[*link].name);
            all.push(Permit { what, most, users, vague });
        }
    }
    for (n, link) in scenario.links.iter().enumerate() {
        let users = users(&|k| uses[k].links.contains(&n));
        let load: f64 = users.iter().map(|&place| bounds[place].share.1).sum();
        let room = link.spec.rate.as_f64() - SAID * scenario.sessions.len() as f64;
        let vague = load > USED * room;
        all.push(Permit { what: link.name.clone(), most: f64::INFINITY, users, vague });
    }
    all
}

/// What a host shares out among sessions of which it is one end.
struct End {
    does: &'static str,
    /// In bit/s; infinite where it is unlimited.
    most: f64,
    of: fn(&SessionEntry) -> usize,
}

fn ends(node: &NodeEntry) -> Vec<End> {
    let NodeKind::Host(host) = &node.kind else { return Vec::new() };
    let most = |rate: Rate| if rate.is_unlimited() { f64::INFINITY } else { rate.as_f64() };
    vec![
        End { does: "sends", most: most(host.capacity_out), of: |session| session.source },
        End { does: "takes", most: most(host.capacity_in), of: |session| session.sink },
    ]
}

/// Where sessions together send more than a host has ever permitted, at any time from the start
/// on. A host whose capacity changes or whose agents die permits what is not known here.
pub fn beyond_hosts(scenario: &Scenario, witnesses: &[Witness]) -> Vec<Failure> {
    let mut failures = Vec::new();
    let whole: Vec<(usize, &NodeEntry)> =
        scenario.nodes.iter().enumerate().filter(|(n, _)| !is_struck(scenario, *n)).collect();
    for (n, node) in whole {
        for End { does, most, of } in ends(node).into_iter().filter(|end| end.most.is_finite()) {
            let users = scenario.sessions.iter().zip(witnesses).filter(|(s, _)| of(s) == n);
            let users: Vec<(&Witness, f64)> = users.map(|(s, w)| (w, packet(s.unit))).collect();
            let what = format!("{} {does}", node.name);
            failures.extend(exceeds(&what, most, &users, moments_from(scenario, WINDOW)));
        }
    }
    failures
}

/// Whether the capacity of a host changes, or its agents die.
fn is_struck(scenario: &Scenario, n: usize) -> bool {
    scenario.events.iter().any(|(_, event)| match *event {
        Event::Capacity { host, .. } => host == n,
        Event::AgentsStop(host) | Event::AgentsRun(host) => host == n,
        Event::Link(..)
        | Event::Pause(..)
        | Event::Skew(..)
        | Event::Coalesce(..)
        | Event::Router(..) => false,
    })
}

/// That these sessions, each with what one packet in a window is, send more than `most` together
/// in the windows that end at `moments`, if they do.
fn exceeds(
    what: &str,
    most: f64,
    users: &[(&Witness, f64)],
    moments: impl Iterator<Item = Time>,
) -> Option<Failure> {
    let limit = most * (1.0 + TOLERANCE) + users.iter().map(|(_, packet)| packet).sum::<f64>();
    let sent = |at| {
        let each = users.iter().map(|(w, packet)| w.sent_within(WINDOW, at) as f64 * packet);
        each.sum::<f64>()
    };
    let worst = moments.map(|at| (sent(at), at)).max_by(|a, b| a.0.total_cmp(&b.0));
    let (rate, at) = worst.filter(|(rate, _)| *rate > limit)?;
    let (rate, may, at) = (rate / 1e6, most / 1e6, at.as_nanos() as f64 / 1e9);
    Some(Failure { what: format!("{what} {rate:.3} Mbit/s at {at:.2} s, not {may:.3}") })
}

impl Permits {
    /// Each session has its own bounds, and that is all.
    pub fn exact(bounds: Vec<Bounds>) -> Permits {
        Permits { bounds, vague: 0, held: 0, all: Vec::new() }
    }

    /// Whoever shares something with a session of which no share can be said is held to what it may
    /// send at most, too.
    fn blur(&mut self, sessions: usize) {
        let mut vague = vec![false; sessions];
        loop {
            let mut spread = false;
            for permit in &self.all {
                if permit.vague || permit.users.iter().any(|&place| vague[place]) {
                    for &place in &permit.users {
                        spread |= !std::mem::replace(&mut vague[place], true);
                    }
                }
            }
            if !spread {
                break;
            }
        }
        for place in (0..sessions).filter(|&place| vague[place]) {
            let permits = self.all.iter().filter(|permit| permit.users.contains(&place));
            let most = permits.map(|permit| permit.most).fold(f64::INFINITY, f64::min);
            self.bounds[place].share = (0.0, most);
        }
        self.vague = vague.into_iter().filter(|vague| *vague).count();
    }

    /// Where sessions send more together than they may at a moment that none of them is excused at.
    pub fn exceeded(
        &self,
        scenario: &Scenario,
        witnesses: &[&Witness],
        is_excused: impl Fn(usize, Time) -> bool,
    ) -> Vec<Failure> {
        let finite = self.all.iter().filter(|permit| permit.most.is_finite());
        let exceeds = finite.filter_map(|Permit { what, most, users, .. }| {
            let is_judged = |at: &Time| !users.iter().any(|&place| is_excused(place, *at));
            let each = |&place: &usize| (witnesses[place], self.bounds[place].packet);
            let each: Vec<(&Witness, f64)> = users.iter().map(each).collect();
            exceeds(what, *most, &each, moments(scenario).filter(is_judged))
        });
        exceeds.collect()
    }
}

#[cfg(test)]
mod tests;
