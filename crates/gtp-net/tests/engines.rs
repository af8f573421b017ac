//! Hosts with several engines, on loopback: who moves what, and that all of it arrives.

mod common;

use common::{End, Incoming, Outgoing, World, complete, host_config, synthetic, unlimited};
use gtp_alloc::Rate;
use gtp_net::engine::{Host, HostConfig};

const MIB: u64 = 1 << 20;

/// An end with three engines on one port, seen from each.
fn wide() -> Vec<End> {
    let host = Host::start(HostConfig { engines: 3, ..unlimited() }).unwrap();
    let (socket, addr) = host.bind_udp_everywhere("127.0.0.1:0".parse().unwrap()).unwrap();
    host.at_each_engine().map(|host| End { host, socket, addr }).collect()
}

fn world(receives: End) -> World {
    World { receives, ..World::with(Rate::from_mbps(2_000), Rate::UNLIMITED) }
}

/// A session that brings a synthetic file from an end.
fn source(from: &End, world: &World, size: u64, transfer: &Incoming) -> Outgoing {
    let object = Box::new(synthetic(size));
    world.source_from(from, world.receives.addr, from.addr, object, transfer)
}

#[test]
fn each_engine_of_a_source_sends_the_sessions_that_are_its_own_from_one_port() {
    // Slow enough that no engine is done before another one has had a processor.
    let world = world(End::new(host_config(Rate::UNLIMITED, Rate::from_mbps(250))));
    let engines = wide();
    let mut transfer = world.transfer(60 * MIB);
    let _sources: Vec<Outgoing> =
        engines.iter().map(|end| source(end, &world, 60 * MIB, &transfer)).collect();
    complete(&transfer.until_end());
    let flows = transfer.handle.progress().flows;
    assert!(flows.iter().all(|flow| flow.bytes > MIB), "{flows:?}");
    for end in &engines {
        let calls = end.host.engine_calls();
        assert!(calls.send > 0 && calls.receive > 0, "{calls:?}");
    }
}

#[test]
fn each_engine_of_a_sink_receives_the_transfers_that_are_its_own_on_one_port() {
    let mut transfers = Vec::new();
    for receives in wide() {
        let world = world(receives);
        let transfer = world.transfer(20 * MIB);
        let source = world.source(20 * MIB, &transfer);
        transfers.push((world, transfer, source));
    }
    for (world, transfer, _source) in &mut transfers {
        complete(&transfer.until_end());
        let calls = world.receives.host.engine_calls();
        assert!(calls.receive > 0, "{calls:?}");
    }
}

#[test]
fn sessions_of_two_engines_that_come_from_one_socket_of_their_peer_all_arrive() {
    // The kernel may glue datagrams of both together, and gives them to the engine of the first.
    let peer = End::new(host_config(Rate::from_mbps(2_000), Rate::UNLIMITED));
    let mut transfers = Vec::new();
    for receives in wide() {
        let world = world(receives);
        let transfer = world.transfer(20 * MIB);
        let source = source(&peer, &world, 20 * MIB, &transfer);
        transfers.push((world, transfer, source));
    }
    for (_, transfer, _) in &mut transfers {
        complete(&transfer.until_end());
    }
}

#[test]
fn who_looks_for_room_gets_the_engine_that_fewest_have() {
    let host = &wide()[0].host;
    let at = |host: &Host| host.new_session_id() % 3;
    let chosen = [(); 6].map(|()| host.least_busy());
    let mut engines = chosen.each_ref().map(at);
    engines.sort_unstable();
    assert_eq!(engines, [0, 0, 1, 1, 2, 2]);
    let mut left = chosen.to_vec();
    left.retain(|host| at(host) != 1);
    drop(chosen);
    for _ in 0..4 {
        assert_eq!(at(&host.least_busy()), 1, "nobody has it any more");
    }
}
