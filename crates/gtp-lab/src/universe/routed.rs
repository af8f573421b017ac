//! Worlds of sites whose links are shared out by routers.
//!
//! Each site has a link out and a link in. A router shares these out, and some of the hosts know
//! it. In a tight world a link carries little more than what its router shares out; in a roomy one
//! it is wide, and the router's word alone limits. While faults strike, routers fall silent, begin
//! anew, and say what is not so; at the healing each comes to its [`End`]. What sessions may then
//! send is not known here.

use gtp_alloc::{Rate, Span};
use gtp_link::{LinkSpec, Rng};

use super::grouped::gather;
use super::{
    FINISHED, Fate, HEALED, JUDGED, Temper, add_link, empty, link, misfortunes, sessions, settle,
    slowest,
};
use crate::scenario::model::{
    AllocatorEntry, Event, LawName, NodeKind, RouteEntry, RouterEvent, RouterKey, Scenario, Site,
};

/// How a router is from the healing on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It shares out what its links carry.
    Well,
    /// It says nothing any more.
    Gone,
    /// Nobody can make out what it says, and never could.
    Unheard,
    /// It shares out less.
    Mean,
    /// It shares out nothing.
    Barred,
    /// It shares out more.
    Lavish,
    /// It shares out something else time and again.
    Fickle,
}

/// A site: its hosts, its links out and in, and what its router shares out of them, if it has one.
struct Place {
    hosts: Vec<usize>,
    links: [usize; 2],
    shared: Option<[Rate; 2]>,
}

/// Keeps these worlds' draws apart from those of plain ones.
const STREAM: u64 = 0x526f_7574_6572_7300;
/// What a router shares out of a tight link, as a part of it; the rest is for what sinks say.
const SHARED_OUT: f64 = 0.95;
/// What a sink says of one session at most: feedback in the shortest interval, and requests.
const SAID: Rate = Rate::from_bps(200_000);
/// The least that a router shares out.
const LEAST: f64 = 5e6;
/// The least that a mean one does: nobody's share of it is below the least rate that a router can
/// hold a session to.
const MEAN_LEAST: Rate = Rate::from_mbps(3);

/// The world of a seed.
pub fn world(seed: u64) -> Scenario {
    let mut fate = Fate(Rng::new(seed ^ STREAM));
    let temper = Temper::draw(&mut fate);
    let mut scenario = empty(format!("World {seed} of routers"), seed, LawName::Grant);
    let tight = fate.happens(50);
    let mut places = sites(&mut scenario, &mut fate, &temper);
    routes(&mut scenario, &places);
    let hosts: usize = places.iter().map(|place| place.hosts.len()).sum();
    let ends: Vec<End> = places.iter().map(|_| end(&mut fate)).collect();
    let told = places.iter().zip(&ends).filter_map(|(place, end)| Some((place.shared?, *end)));
    let least = told.flat_map(|(shared, end)| shared.map(|rate| rate.as_f64() * part(end)));
    let least = least.fold(slowest(&scenario), f64::min);
    sessions(&mut scenario, &mut fate, least, |fate| {
        let (source, other) = (fate.below(hosts as u64), 1 + fate.below(hosts as u64 - 1));
        (source as usize, (source + other) as usize % hosts)
    });
    if fate.happens(30) {
        let all: Vec<usize> = (0..hosts).collect();
        gather(&mut scenario, &mut fate, least, &all, &all);
    }
    widen(&mut scenario, &mut fate, &places, tight);
    routers(&mut scenario, &mut fate, &temper, &mut places, &ends);
    misfortunes(&mut scenario, &mut fate, &temper);
    let mut events = std::mem::take(&mut scenario.events);
    for router in 0..scenario.allocators.len() {
        strikes(&scenario, &mut fate, router, &mut events);
    }
    let routed = places.iter().zip(&ends).filter(|(place, _)| place.shared.is_some());
    for (router, (_, &end)) in routed.enumerate() {
        comes_to(&scenario, &mut fate, router, end, &mut events);
    }
    events.sort_by_key(|(at, _)| *at);
    scenario.events = events;
    scenario
}

fn end(fate: &mut Fate) -> End {
    match fate.below(100) {
        0..50 => End::Well,
        50..60 => End::Gone,
        60..67 => End::Unheard,
        67..77 => End::Mean,
        77..82 => End::Barred,
        82..92 => End::Lavish,
        _ => End::Fickle,
    }
}

/// The least part of its links that a router shares out in the end. Whoever is held to the least
/// rate has all the time that it needs, as it moves nothing that has a size.
fn part(end: End) -> f64 {
    match end {
        End::Well | End::Gone | End::Unheard | End::Lavish => 1.0,
        End::Mean | End::Fickle => 0.3,
        End::Barred => 0.0,
    }
}

/// Two to four sites of one to three hosts.
fn sites(scenario: &mut Scenario, fate: &mut Fate, temper: &Temper) -> Vec<Place> {
    let mut places = Vec::new();
    for site in 1..=2 + fate.below(3) {
        let mut hosts = Vec::new();
        for host in 1..=1 + fate.below(3) {
            hosts.push(scenario.nodes.len());
            settle(scenario, fate, temper, format!("h{site}.{host}"));
        }
        let capacity = |fate: &mut Fate| Rate::from_f64(fate.across(LEAST, 40e6));
        let shared = [capacity(fate), capacity(fate)];
        // The first has a router in any case.
        let shared = (site == 1 || fate.happens(70)).then_some(shared);
        places.push(Place { hosts, links: [0; 2], shared });
    }
    for (site, place) in (1..).zip(&mut places) {
        place.links = ["out", "in"].map(|way| {
            let spec = link(fate, temper);
            add_link(scenario, fate, format!("site{site}-{way}"), spec)
        });
    }
    places
}

/// Hosts of one site reach each other within it.
fn routes(scenario: &mut Scenario, places: &[Place]) {
    for (a, here) in places.iter().enumerate() {
        for (b, there) in places.iter().enumerate() {
            for &from in &here.hosts {
                for &to in there.hosts.iter().filter(|&&to| to != from) {
                    let between = [here.links[0], there.links[1]];
                    let between = if a == b { &[][..] } else { &between[..] };
                    // The links of node n are 2n, out of it, and 2n + 1, into it.
                    let links = [2 * from].into_iter().chain(between.iter().copied());
                    let links = links.chain([2 * to + 1]).collect();
                    scenario.routes.push(RouteEntry { from, to, links });
                }
            }
        }
    }
}

/// Gives the sites' links their rates: more than all sinks together can take, or, where a tight
/// one has a router, what that shares out and what sinks say.
fn widen(scenario: &mut Scenario, fate: &mut Fate, places: &[Place], tight: bool) {
    let sinks = scenario.nodes.iter().map(|node| match &node.kind {
        NodeKind::Host(host) => host.capacity_in.as_f64(),
        NodeKind::Switch => 0.0,
    });
    let said = SAID.as_f64() * scenario.sessions.len() as f64;
    let sinks: f64 = sinks.sum::<f64>() + said;
    for place in places {
        for (way, &number) in place.links.iter().enumerate() {
            let rate = match place.shared {
                Some(shared) if tight => shared[way].as_f64() / SHARED_OUT + said,
                Some(_) | None => sinks * fate.across(1.25, 3.0),
            };
            let rate = Rate::from_f64(rate);
            let spec = &mut scenario.links[number].spec;
            *spec = LinkSpec { rate, queue: rate.bytes_in(Span::from_millis(20)), ..spec.clone() };
        }
    }
}

/// Adds the routers. Most hosts of a site know the site's; some hosts elsewhere do, too.
fn routers(
    scenario: &mut Scenario,
    fate: &mut Fate,
    temper: &Temper,
    places: &mut [Place],
    ends: &[End],
) {
    let hosts: usize = places.iter().map(|place| place.hosts.len()).sum();
    let known = [100, 80, 50][fate.below(3) as usize];
    for (site, (place, &end)) in places.iter().zip(ends).enumerate() {
        let Some(shared) = place.shared else { continue };
        let knows = |host: usize| if place.hosts.contains(&host) { known } else { 20 };
        let askers = (0..hosts).filter(|&host| fate.happens(knows(host))).collect();
        let name = format!("router{}", site + 1);
        let site = match fate.happens(50) {
            true => Site::Wire(fate.span(Span::from_micros(100), Span::from_millis(20))),
            false => Site::Host(beside(scenario, fate, temper, &name, hosts)),
        };
        let links = place.links.into_iter().zip(shared).collect();
        let key = if end == End::Unheard { RouterKey::Another } else { RouterKey::Hosts };
        scenario.allocators.push(AllocatorEntry { name, site, links, askers, key });
    }
}

/// Adds a host for a router, with links of its own to and from all hosts. They know no bursts of
/// losses: ten asks in a row would be lost in one, and the router ignored at some later time.
fn beside(
    scenario: &mut Scenario,
    fate: &mut Fate,
    temper: &Temper,
    name: &str,
    hosts: usize,
) -> usize {
    let at = scenario.nodes.len();
    let first = scenario.links.len();
    settle(scenario, fate, temper, name.to_owned());
    for link in &mut scenario.links[first..] {
        link.spec.burst = None;
    }
    for host in 0..hosts {
        let there = vec![2 * host, first + 1].into();
        scenario.routes.push(RouteEntry { from: host, to: at, links: there });
        let back = vec![first, 2 * host + 1].into();
        scenario.routes.push(RouteEntry { from: at, to: host, links: back });
    }
    at
}

/// What befalls a router while faults strike.
fn strikes(scenario: &Scenario, fate: &mut Fate, router: usize, events: &mut Vec<(Span, Event)>) {
    let count = |fate: &mut Fate, percent| {
        if fate.happens(percent) { 1 + fate.below(3) } else { 0 }
    };
    for _ in 0..count(fate, 40) {
        let at = fate.span(Span::ZERO, HEALED);
        let end = (at + Span::from_nanos(fate.across(1e6, 2.5e9) as u64)).min(HEALED);
        let back = if fate.happens(50) { RouterEvent::Back } else { RouterEvent::Restart };
        events.push((at, Event::Router(router, RouterEvent::Silent)));
        events.push((end, Event::Router(router, back)));
    }
    for _ in 0..count(fate, 25) {
        let at = fate.span(Span::ZERO, HEALED);
        events.push((at, Event::Router(router, RouterEvent::Restart)));
    }
    for _ in 0..count(fate, 30) {
        let at = fate.span(Span::ZERO, HEALED);
        let link = fate.below(2) as usize;
        let rate = match fate.below(4) {
            0 => Rate::ZERO,
            1 => Rate::UNLIMITED,
            _ => Rate::from_f64(fate.across(1e5, 1e8)),
        };
        events.push((at, Event::Router(router, RouterEvent::Capacity(link, rate))));
    }
    for (link, (_, rate)) in scenario.allocators[router].links.iter().enumerate() {
        events.push((HEALED, Event::Router(router, RouterEvent::Capacity(link, *rate))));
    }
    let back = if fate.happens(50) { RouterEvent::Back } else { RouterEvent::Restart };
    events.push((HEALED, Event::Router(router, back)));
}

/// How a router is from the healing on.
fn comes_to(
    scenario: &Scenario,
    fate: &mut Fate,
    router: usize,
    end: End,
    events: &mut Vec<(Span, Event)>,
) {
    let mut says = |at: Span, event| events.push((at, Event::Router(router, event)));
    for (link, &(_, rate)) in scenario.allocators[router].links.iter().enumerate() {
        match end {
            End::Well | End::Gone | End::Unheard => {}
            End::Mean => {
                let less = rate.scale(fate.across(part(end), 0.9)).max(MEAN_LEAST);
                says(HEALED, RouterEvent::Capacity(link, less));
            }
            End::Barred => says(HEALED, RouterEvent::Capacity(link, Rate::ZERO)),
            End::Lavish => {
                let most = if fate.happens(50) { Rate::UNLIMITED } else { rate.scale(3.0) };
                says(HEALED, RouterEvent::Capacity(link, most));
            }
            End::Fickle => {
                let mut at = HEALED;
                while at < FINISHED + JUDGED {
                    let other = rate.scale(fate.across(part(end), 2.0));
                    says(at, RouterEvent::Capacity(link, other));
                    at += fate.span(Span::from_millis(30), Span::from_millis(300));
                }
            }
        }
    }
    if end == End::Gone {
        says(HEALED, RouterEvent::Silent);
    }
}
