//! Worlds with groups: several sources bring one object to one sink, and one source sends the same
//! to several sinks.
//!
//! Hosts, links, other sessions and faults are those of plain worlds. A group moves an object of
//! a size, which must be there in time, each unit once; or one without end, whose sessions must
//! have their max-min shares in the end as any others. A session of a group may end before its
//! time; the others then bring what it did not.

use gtp_alloc::{Bytes, Span};
use gtp_link::Rng;

use super::{Failure, Fate, Temper, empty, misfortunes, network, plain_session, sessions, slowest};
use crate::course::Outcome;
use crate::scenario::model::{LawName, Scenario, SessionEntry};

/// Keeps these worlds' draws apart from those of plain ones.
const STREAM: u64 = 0x4772_6f75_7073_0000;
/// What never ends in a world: a terabyte.
pub const ENDLESS: Bytes = Bytes(1 << 40);

/// The world of a seed.
pub fn world(seed: u64) -> Scenario {
    let mut fate = Fate(Rng::new(seed ^ STREAM));
    let temper = Temper::draw(&mut fate);
    let (sources, sinks) = (2 + fate.below(4) as usize, 1 + fate.below(4) as usize);
    let mut scenario = empty(format!("World {seed} of groups"), seed, LawName::Grant);
    network(&mut scenario, &mut fate, &temper, sources, sinks);
    let least = slowest(&scenario);
    sessions(&mut scenario, &mut fate, least, |fate| {
        let source = fate.below(sources as u64) as usize;
        (source, sources + fate.below(sinks as u64) as usize)
    });
    let (from, to): (Vec<usize>, Vec<usize>) =
        ((0..sources).collect(), (sources..sources + sinks).collect());
    for _ in 0..1 + fate.below(2) {
        gather(&mut scenario, &mut fate, least, &from, &to);
    }
    if fate.happens(50) {
        spread(&mut scenario, &mut fate, least, &from, &to);
    }
    misfortunes(&mut scenario, &mut fate, &temper);
    scenario
}

/// Several of these sources bring one object to one of these sinks, where what is slowest moves
/// `least` bit/s.
pub fn gather(
    scenario: &mut Scenario,
    fate: &mut Fate,
    least: f64,
    sources: &[usize],
    sinks: &[usize],
) {
    let sink = sinks[fate.below(sinks.len() as u64) as usize];
    let mut sources: Vec<usize> = sources.iter().copied().filter(|&host| host != sink).collect();
    let members = choose(fate, &mut sources);
    // A source is asked for 256 units at a time at least, so a small object comes from few: one
    // alone must be able to bring it.
    let size = if fate.happens(40) { ENDLESS } else { size(fate, least) };
    let group = scenario.groups().len();
    let leaver = fate.happens(20).then(|| fate.below(members as u64) as usize);
    let start = fate.span(Span::ZERO, Span::from_secs(2));
    for (n, source) in sources.into_iter().take(members).enumerate() {
        let start = start + fate.span(Span::ZERO, Span::from_millis(500));
        let lasts = fate.span(Span::from_millis(50), Span::from_secs(3));
        let name = format!("g{}.{}", group + 1, n + 1);
        scenario.sessions.push(SessionEntry {
            start,
            stop: (leaver == Some(n) && members > 1).then(|| start + lasts),
            size: Some(size),
            group: Some(group),
            ..plain_session(name, source, sink)
        });
    }
}

/// One of these sources sends the same to several of these sinks.
fn spread(
    scenario: &mut Scenario,
    fate: &mut Fate,
    least: f64,
    sources: &[usize],
    sinks: &[usize],
) {
    let source = sources[fate.below(sources.len() as u64) as usize];
    let mut sinks = sinks.to_vec();
    let members = choose(fate, &mut sinks);
    let size = (!fate.happens(40)).then(|| size(fate, least));
    let start = fate.span(Span::ZERO, Span::from_millis(2_500));
    for (n, sink) in sinks.into_iter().take(members).enumerate() {
        let plain = plain_session(format!("p{}", n + 1), source, sink);
        scenario.sessions.push(SessionEntry { start, size, ..plain });
    }
}

/// Puts some of these hosts first, at random, two at least where there are two; says how many.
fn choose(fate: &mut Fate, hosts: &mut [usize]) -> usize {
    let all = hosts.len();
    for place in 0..all {
        hosts.swap(place, fate.between(place as u64, all as u64) as usize);
    }
    let least = all.min(2);
    least + fate.below((all - least + 1) as u64) as usize
}

/// What one session moves in a second, or less, of its equal part of the slowest host.
fn size(fate: &mut Fate, least: f64) -> Bytes {
    let most = least.min(25e6) / 8.0 / SESSIONS_MOST;
    Bytes((most * fate.across(0.02, 1.0)) as u64 + 1)
}

/// Sessions of a world: eight as in plain ones, and those of three groups.
const SESSIONS_MOST: f64 = 22.0;

/// Objects of which not each unit came once, though their sessions say that they are done.
pub fn not_whole(scenario: &Scenario, outcome: &Outcome) -> Vec<Failure> {
    let mut failures = Vec::new();
    for (number, members) in scenario.groups().iter().enumerate() {
        let brought: u64 = members.iter().map(|&k| outcome.sessions[k].payload).sum();
        let size = members.first().and_then(|&k| scenario.sessions[k].size);
        let done = members.iter().any(|&k| outcome.sessions[k].ending == "done");
        if done && Some(Bytes(brought)) != size {
            let what = format!("group {} brought {brought} bytes, not {size:?}", number + 1);
            failures.push(Failure { what });
        }
    }
    failures
}
