//! What a session says limits it: the same word at both ends, for every cause.

mod world;

use gtp_alloc::{Rate, Span};
use gtp_link::LinkSpec;
use gtp_proto::report::LimitedBy;
use gtp_proto::{Law, Link, Revision, Role, SourceConfig, SourceSession, Weights};
use world::{FlowSpec, READ_AHEAD, World};

/// Capacities of the source and of the sink.
struct Hosts(Rate, Rate);

/// Limits that the users at the source and at the sink set.
struct Limits(Rate, Rate);

fn one(hosts: Hosts, limits: Limits, narrow: Option<Rate>) -> (World, usize) {
    with_units(1 << 40, hosts, limits, narrow)
}

/// A session whose sink asks for so many units at first.
fn with_units(units: u64, hosts: Hosts, limits: Limits, narrow: Option<Rate>) -> (World, usize) {
    let mut world = World::new();
    let half = Span::from_millis(10);
    let there = world.link(LinkSpec { delay: half, ..LinkSpec::default() });
    let back = world.link(LinkSpec { delay: half, ..LinkSpec::default() });
    let mut down = vec![there];
    if let Some(rate) = narrow {
        let queue = rate.bytes_in(Span::from_millis(50));
        down.push(world.link(LinkSpec { rate, queue, ..LinkSpec::default() }));
    }
    let source = world.host(hosts.0, Rate::UNLIMITED, None);
    let sink = world.host(Rate::UNLIMITED, hosts.1, None);
    let flow = world.flow(FlowSpec {
        source,
        sink,
        down,
        up: vec![back],
        law: Law::Grant,
        weight: 1.0,
        max_rate: limits.1,
        units,
    });
    let config = SourceConfig {
        role: Role::Responder,
        link: Link { peer_session: 1, ip_overhead: 28, revision: Revision::NEWEST },
        law: Law::Grant,
        weights: Weights::ONE,
        max_rate: limits.0,
        proof_key: [9; 16],
    };
    world.flows[flow].source = SourceSession::new(world.now, config);
    (world, flow)
}

/// Both ends' words over two seconds, ten a second.
fn said(world: &mut World, flow: usize) -> Vec<(LimitedBy, LimitedBy)> {
    world.run_for(Span::from_secs(3));
    (0..20)
        .map(|_| {
            world.run_for(Span::from_millis(100));
            let flow = &world.flows[flow];
            (flow.source.limited_by(), flow.sink.limited_by())
        })
        .collect()
}

#[track_caller]
fn both_say(mut pair: (World, usize), word: LimitedBy) {
    let said = said(&mut pair.0, pair.1);
    let agreed = said.iter().filter(|&&both| both == (word, word)).count();
    assert!(agreed >= 18, "{agreed} of 20 say {word:?}: {said:?}");
}

const NONE: Rate = Rate::UNLIMITED;

#[test]
fn a_limit_that_the_user_sets_at_either_end_is_demand_at_both() {
    let (wide, own) = (Rate::from_mbps(500), Rate::from_mbps(50));
    both_say(one(Hosts(wide, wide), Limits(NONE, own), None), LimitedBy::Demand);
    both_say(one(Hosts(wide, wide), Limits(own, NONE), None), LimitedBy::Demand);
}

#[test]
fn the_narrower_host_is_named_at_both_ends() {
    let (wide, narrow) = (Rate::from_mbps(500), Rate::from_mbps(50));
    both_say(one(Hosts(narrow, wide), Limits(NONE, NONE), None), LimitedBy::Source);
    both_say(one(Hosts(wide, narrow), Limits(NONE, NONE), None), LimitedBy::Sink);
    // A limit above what there is does not bind.
    both_say(one(Hosts(wide, narrow), Limits(wide, wide), None), LimitedBy::Sink);
}

#[test]
fn a_link_narrower_than_both_hosts_is_the_path_at_both_ends() {
    let (wide, narrow) = (Rate::from_mbps(500), Rate::from_mbps(50));
    both_say(one(Hosts(wide, wide), Limits(NONE, NONE), Some(narrow)), LimitedBy::Path);
}

#[test]
fn a_slow_reader_is_the_disk_and_a_slow_writer_is_demand_at_both_ends() {
    let wide = Rate::from_mbps(500);
    let mut reads = with_units(READ_AHEAD, Hosts(wide, wide), Limits(NONE, NONE), None);
    reads.0.flows[reads.1].reader = 30e6;
    both_say(reads, LimitedBy::Disk);
    let mut writes = one(Hosts(wide, wide), Limits(NONE, NONE), None);
    writes.0.flows[writes.1].producer = 30e6;
    both_say(writes, LimitedBy::Demand);
}
