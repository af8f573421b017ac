//! One small world for each law and level, with sessions, and the hash of its course: the same on
//! every machine and in every build, debug or release.
//!
//! Hashes cover every packet and every word between ends, so a change of the protocol, of a law or
//! of an engine is meant to change them, and then its commit renews them: run
//! `cargo test -p gtp-sim --test pinned` and again with `--release`, and if both show the same new
//! hashes, write these here. If they differ, or nothing of the kind was changed, something depends
//! on the machine or the build. Each world also has to do its work, so that no empty course is
//! pinned.

use gtp_alloc::endnode::Params;
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Chance, Jitter, LinkSpec, Order};
use gtp_proto::{Law, Side};
use gtp_sim::packet::{self, ClockSpec, HostSpec, Volume};
use gtp_sim::rate::{self, Builder, Config, SessionId};

const END: Time = Time::from_nanos(2_000_000_000);

/// Three sessions from two hosts to one: over a lossy narrow link, one of them with an end, one
/// that comes later.
fn packets(law: Law) -> u64 {
    let mut world = packet::World::new(7);
    let rate = Rate::from_mbps(40);
    let hosts = [20_000, -35_000, 0].map(|drift_ppb| {
        let clock = ClockSpec { offset: None, drift_ppb };
        world.add_host(HostSpec { in_: rate, out: rate, clock, ..HostSpec::default() })
    });
    let middle = world.add_switch();
    let jitter = Jitter { span: Span::from_micros(300), order: Order::Kept };
    let delay = Span::from_millis(8);
    let spec = LinkSpec { rate, delay, queue: Bytes(60_000), jitter, ..LinkSpec::default() };
    for host in &hosts[..2] {
        world.connect_both(*host, middle, spec.clone()).unwrap();
    }
    let (loss, duplicate) = (Chance::from_percent(1), Chance::from_percent(1));
    world.connect_both(middle, hosts[2], LinkSpec { loss, duplicate, ..spec }).unwrap();
    for (source, volume, start) in [
        (0, Volume::Endless, Time::ZERO),
        (1, Volume::Bytes(Bytes(1_000_000)), Time::ZERO),
        (1, Volume::Endless, Time::from_nanos(700_000_000)),
    ] {
        let session = packet::SessionSpec::new(hosts[source], hosts[2]);
        world.add_session(packet::SessionSpec { law, volume, start, ..session }).unwrap();
    }
    world.run_until(END);
    for k in 0..3 {
        let status = world.session(packet::SessionId(k)).unwrap();
        assert!(status.received_bytes >= Bytes(500_000), "session {k}: {status:?}");
    }
    world.hash()
}

/// Twelve sessions among six nodes; one leaves, one wants less, one node has less to give.
fn rates(config: Config) -> u64 {
    let mut builder = Builder::new(config);
    let side = |v| if v < 3 { Side::Source } else { Side::Sink };
    for v in 0..6 {
        let interval = Span::from_millis(10 + 3 * v);
        builder.node(rate::NodeSpec {
            side: side(v),
            capacity: Rate::from_mbps(1_000),
            interval,
            phase: Span::from_millis(1 + v),
            params: Params::TABLE_VII_1,
        });
    }
    for k in 0..12u32 {
        let (source, sink) = (rate::NodeId(k % 3), rate::NodeId(3 + k / 4));
        let rtt = Span::from_millis(5 + 7 * u64::from(k));
        builder.session(rate::SessionSpec::new(source, sink, rtt));
    }
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    builder.at(at(500), rate::Change::Leave(SessionId(4)));
    builder.at(at(800), rate::Change::Demand(SessionId(7), Rate::from_mbps(30)));
    builder.at(at(1_100), rate::Change::Capacity(rate::NodeId(3), Rate::from_mbps(500)));
    let mut world = builder.build().unwrap();
    world.run_until(END);
    assert!(world.counters().1 > 50, "{:?}", world.counters());
    world.hash()
}

#[test]
fn packet_worlds_with_sessions_have_the_same_hash_on_every_machine_and_in_every_build() {
    let laws = [Law::Grant, Law::EndNode { alpha: 0.1, beta: 0.1 }];
    let hashes = laws.map(|law| format!("{:016x}", packets(law)));
    assert_eq!(hashes, ["96222d7507f441ab", "98870a52363fd672"]);
}

#[test]
fn rate_worlds_have_the_same_hash_on_every_machine_and_in_every_build() {
    let hashes = [Config::GRANT, Config::THESIS].map(|config| format!("{:016x}", rates(config)));
    assert_eq!(hashes, ["20e8c798982e3d05", "cfe4ec5182ec6665"]);
}
