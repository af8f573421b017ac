//! Sessions over whose rate one end decides alone: the rivals' laws on the project's own data path,
//! in virtual time.

mod world;

use gtp_alloc::led::SourceLaw;
use gtp_alloc::{Bytes, Rate, Span};
use gtp_laws::gtp2004;
use gtp_laws::lambdastream::{Listener, Trains};
use gtp_laws::rbudp::Fixed;
use gtp_laws::sabul::Sabul;
use gtp_laws::tsunami::Tsunami;
use gtp_link::{Chance, Change, LinkSpec};
use gtp_proto::Law;
use gtp_proto::limits::RECOMPUTE_MIN;
use world::{FlowSpec, World};

const ENDLESS: u64 = 1 << 40;

fn mbit(rate: f64) -> f64 {
    rate / 1e6
}

/// A way of so many Mbit/s with a queue of 20 ms, so many milliseconds both ways together, and this
/// loss: its links there and back.
fn way(world: &mut World, mbps: u64, rtt_ms: u64, loss: f64) -> (Vec<usize>, Vec<usize>) {
    let half = Span::from_millis(rtt_ms) / 2;
    let rate = Rate::from_mbps(mbps);
    let queue = rate.bytes_in(Span::from_millis(20));
    let narrow = world.link(LinkSpec { rate, queue, ..LinkSpec::default() });
    let loss = Chance::from_billionths((loss * 1e9) as u32);
    let there = world.link(LinkSpec { delay: half, loss, ..LinkSpec::default() });
    let back = world.link(LinkSpec { delay: half, ..LinkSpec::default() });
    (vec![there, narrow], vec![back])
}

/// One source that decides alone, to a sink that takes 600 Mbit/s, over a way of 40 ms.
fn alone(mbps: u64, loss: f64, units: u64, max_rate: Rate, law: Box<dyn SourceLaw>) -> World {
    let mut world = World::new();
    let (down, up) = way(&mut world, mbps, 40, loss);
    let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
    let sink = world.host(Rate::UNLIMITED, Rate::from_mbps(600), None);
    let law_of = Law::SourceAlone;
    let spec = FlowSpec { source, sink, down, up, law: law_of, weight: 1.0, max_rate, units };
    world.flow_by(spec, Some(law), None);
    world
}

fn fixed(mbps: u64) -> Box<dyn SourceLaw> {
    Box::new(Fixed(Rate::from_mbps(mbps)))
}

#[test]
fn rbudp_sends_at_its_rate_from_its_first_packet_on_whatever_is_lost() {
    let mut world = alone(1_000, 0.1, ENDLESS, Rate::UNLIMITED, fixed(300));
    world.run_for(Span::from_secs(2));
    assert!((mbit(world.rate(0, 0.2, 2.0)) - 270.0).abs() < 4.0);
    assert!((mbit(world.flows[0].source.sending_rate().as_f64()) - 300.0).abs() < 1e-6);
}

#[test]
fn rbudp_does_not_slow_down_before_a_full_queue_and_its_object_arrives_all_the_same() {
    let mut world = alone(200, 0.0, 30_000, Rate::UNLIMITED, fixed(300));
    world.run_for(Span::from_millis(1_000));
    assert!((mbit(world.rate(0, 0.3, 1.0)) - 200.0).abs() < 4.0, "the way is full");
    world.run_for(Span::from_millis(3_000));
    let flow = &world.flows[0];
    assert_eq!(flow.sink.outstanding(), 0);
    assert_eq!(flow.payload, 30_000 * 1_400);
    let lost = flow.sink.counters().lost as f64;
    let ratio = lost / (lost + flow.sink.counters().packets as f64);
    assert!(ratio > 0.25 && ratio < 0.36, "a third does not fit: {ratio}");
}

#[test]
fn the_limit_that_a_sinks_user_sets_holds_for_a_source_that_decides_alone() {
    let mut world = alone(1_000, 0.0, ENDLESS, Rate::from_mbps(50), fixed(300));
    world.run_for(Span::from_secs(2));
    assert!((mbit(world.rate(0, 0.5, 2.0)) - 50.0).abs() < 1.5);
}

#[test]
fn a_source_that_decides_alone_stops_all_the_same_when_nothing_is_heard() {
    let mut world = alone(1_000, 0.0, ENDLESS, Rate::UNLIMITED, fixed(300));
    world.run_for(Span::from_secs(1));
    world.flows[0].silent_feedback = true;
    world.run_for(Span::from_millis(1_100));
    assert_eq!(world.flows[0].source.sending_rate(), Rate::ZERO);
}

#[test]
fn without_a_law_a_source_that_is_to_decide_alone_sends_nothing() {
    let mut world = World::new();
    let (down, up) = way(&mut world, 1_000, 40, 0.0);
    let [source, sink] = [0, 1].map(|_| world.host(Rate::UNLIMITED, Rate::UNLIMITED, None));
    let (law, max_rate) = (Law::SourceAlone, Rate::UNLIMITED);
    world.flow(FlowSpec { source, sink, down, up, law, weight: 1.0, max_rate, units: 100 });
    world.run_for(Span::from_secs(1));
    assert_eq!(world.flows[0].payload, 0);
}

#[test]
fn sources_that_decide_alone_share_their_host_with_each_other_and_with_granted_ones() {
    let mut world = World::new();
    let source = world.host(Rate::from_mbps(100), Rate::UNLIMITED, None);
    for law in [Law::SourceAlone, Law::SourceAlone, Law::Grant] {
        let (down, up) = way(&mut world, 1_000, 20, 0.0);
        let sink = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
        let max_rate = Rate::UNLIMITED;
        let spec = FlowSpec { source, sink, down, up, law, weight: 1.0, max_rate, units: ENDLESS };
        match law {
            Law::SourceAlone => world.flow_by(spec, Some(fixed(90)), None),
            _ => world.flow(spec),
        };
    }
    world.run_for(Span::from_secs(4));
    let rates = [0, 1, 2].map(|i| mbit(world.rate(i, 2.0, 4.0)));
    assert!(rates.iter().sum::<f64>() <= 101.0, "{rates:?}");
    assert!(rates.iter().all(|rate| (30.0..37.0).contains(rate)), "{rates:?}");
}

#[test]
fn sabul_climbs_round_by_round_until_packets_are_lost_and_keeps_the_way_nearly_full() {
    let first = Rate::from_mbps(100);
    let law = Box::new(Sabul::new(first, Rate::from_mbps(1_000)));
    let mut world = alone(200, 0.0, ENDLESS, Rate::UNLIMITED, law);
    world.run_for(Span::from_secs(1));
    // Five rounds: the gap is 0.99^5 of what it was, beside 11.76 us of a packet at the interface.
    let packet = world.flows[0].source.packet_bytes().0 as f64 * 8.0;
    let gap = (packet / 100e6 - packet / 1e9) * 0.99_f64.powi(4);
    let expected = mbit(packet / (packet / 1e9 + gap));
    let found = mbit(world.flows[0].source.sending_rate().as_f64());
    assert!((found / expected - 1.0).abs() < 0.012, "{found} {expected}");
    world.run_for(Span::from_secs(29));
    assert!(mbit(world.rate(0, 20.0, 30.0)) > 180.0);
    assert!(world.flows[0].sink.counters().lost > 0);
}

#[test]
fn tsunami_gives_way_under_heavy_loss_and_comes_back_to_its_target() {
    let law = Box::new(Tsunami::new(Rate::from_mbps(400)));
    let mut world = alone(200, 0.0, ENDLESS, Rate::UNLIMITED, law);
    world.run_for(Span::from_secs(10));
    let slow = mbit(world.flows[0].source.sending_rate().as_f64());
    assert!(slow < 390.0 && slow > 200.0, "half is lost: {slow}");
    let narrow = world.flows[0].down[1];
    let now = world.now;
    let wide = Change { rate: Some(Rate::from_mbps(1_000)), ..Change::default() };
    world.links[narrow].change(now, wide);
    world.run_for(Span::from_secs(3));
    assert_eq!(world.flows[0].source.sending_rate(), Rate::from_mbps(400));
}

#[test]
fn gtp_of_2004_shares_a_sink_equally_over_unequal_ways_and_gives_what_a_leaver_had() {
    let mut world = World::new();
    let capacity = Rate::from_mbps(600);
    let host = Box::new(gtp2004::Host::new(capacity));
    let sink = world.deciding_host(capacity, host);
    let mut flows = Vec::new();
    for rtt_ms in [20, 80] {
        let (down, up) = way(&mut world, 1_000, rtt_ms, 0.0);
        let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
        let (law, max_rate) = (Law::SinkAlone, Rate::UNLIMITED);
        let spec = FlowSpec { source, sink, down, up, law, weight: 1.0, max_rate, units: ENDLESS };
        flows.push(world.flow(spec));
        world.run_for(Span::from_secs(2));
    }
    assert!(mbit(world.rate(flows[0], 1.0, 2.0)) > 590.0, "alone it has all");
    for &flow in &flows {
        let rate = mbit(world.rate(flow, 3.0, 4.0));
        assert!((rate - 300.0).abs() < 15.0, "{rate}");
    }
    world.close(flows[0]);
    world.run_for(Span::from_secs(6));
    assert!(mbit(world.rate(flows[1], 8.0, 10.0)) > 0.95 * 600.0);
    assert_eq!(world.flows[flows[1]].sink.counters().lost, 0);
}

/// A lone session by GTP 2004 to a sink of so many Mbit/s, from a source of `out`, over a way of
/// 200 Mbit/s and 58 ms.
fn lone_gtp_of_2004(out: Rate, sink_mbps: u64) -> World {
    let mut world = World::new();
    let capacity = Rate::from_mbps(sink_mbps);
    let sink = world.deciding_host(capacity, Box::new(gtp2004::Host::new(capacity)));
    let (down, up) = way(&mut world, 200, 58, 0.0);
    let source = world.host(out, Rate::UNLIMITED, None);
    let (law, max_rate) = (Law::SinkAlone, Rate::UNLIMITED);
    world.flow(FlowSpec { source, sink, down, up, law, weight: 1.0, max_rate, units: ENDLESS });
    world
}

#[test]
fn gtp_of_2004_fills_its_link_soon_whether_or_not_its_source_knows_what_it_can_send() {
    for out in [Rate::from_mbps(200), Rate::UNLIMITED] {
        let mut world = lone_gtp_of_2004(out, 190);
        world.run_for(Span::from_secs(6));
        let soon = mbit(world.rate(0, 0.6, 2.0));
        assert!(soon > 0.98 * 190.0, "{out:?}: {soon}");
        // 160 MB take 6.7 s at 190 Mbit/s.
        let all = mbit(world.rate(0, 0.0, 6.0));
        assert!(all > 0.95 * 190.0, "{out:?}: {all}");
        assert_eq!(world.flows[0].sink.counters().lost, 0, "{out:?}");
    }
}

#[test]
fn a_source_that_does_not_know_what_it_can_send_goes_no_further_than_proof_allows() {
    let mut world = lone_gtp_of_2004(Rate::UNLIMITED, 100_000);
    let mut most = 0.0_f64;
    for _ in 0..200 {
        world.run_for(Span::from_millis(10));
        most = most.max(mbit(world.flows[0].source.sending_rate().as_f64()));
    }
    assert!(most > 200.0 && most <= 4.0 * 205.0, "{most}");
}

#[test]
fn gtp_of_2004_lowers_its_rate_to_what_a_narrow_way_carries() {
    let mut world = World::new();
    let capacity = Rate::from_mbps(600);
    let sink = world.deciding_host(capacity, Box::new(gtp2004::Host::new(capacity)));
    let (down, up) = way(&mut world, 200, 40, 0.0);
    let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
    let (law, max_rate) = (Law::SinkAlone, Rate::UNLIMITED);
    world.flow(FlowSpec { source, sink, down, up, law, weight: 1.0, max_rate, units: ENDLESS });
    world.run_for(Span::from_secs(10));
    let granted = mbit(world.flows[0].sink.granted().as_f64());
    assert!(granted > 180.0 && granted < 240.0, "{granted}");
    assert!(mbit(world.rate(0, 5.0, 10.0)) > 190.0);
}

#[test]
fn a_session_by_grants_takes_what_one_that_is_decided_alone_leaves_of_a_sink() {
    let mut world = alone(1_000, 0.0, ENDLESS, Rate::UNLIMITED, fixed(400));
    world.run_for(Span::from_secs(1));
    let (down, up) = way(&mut world, 1_000, 40, 0.0);
    let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
    let sink = world.flows[0].sink_host;
    let (law, max_rate) = (Law::Grant, Rate::UNLIMITED);
    let spec = FlowSpec { source, sink, down, up, law, weight: 1.0, max_rate, units: ENDLESS };
    let other = world.flow(spec);
    world.run_for(Span::from_secs(3));
    assert!((mbit(world.rate(0, 2.0, 4.0)) - 400.0).abs() < 5.0);
    let rest = mbit(world.rate(other, 2.0, 4.0));
    assert!(rest > 185.0 && rest < 201.0, "{rest}");
}

/// LambdaStream from `first` over a way of 200 Mbit/s and 40 ms.
fn lambdastream(first: u64) -> World {
    lambdastream_into(first, Rate::UNLIMITED)
}

/// The same to a host that receives so much at most.
fn lambdastream_into(first: u64, capacity: Rate) -> World {
    let mut world = World::new();
    let (down, up) = way(&mut world, 200, 40, 0.0);
    let [source, sink] =
        [Rate::UNLIMITED, capacity].map(|inn| world.host(Rate::UNLIMITED, inn, None));
    let (law, max_rate) = (Law::SessionAlone, Rate::UNLIMITED);
    let spec = FlowSpec { source, sink, down, up, law, weight: 1.0, max_rate, units: ENDLESS };
    let link = Rate::from_mbps(200);
    let listener = Listener::new(link, Rate::from_mbps(first));
    world.flow_by(spec, Some(Box::new(Trains::new(link))), Some(Box::new(listener)));
    world
}

#[test]
fn lambdastream_finds_a_lone_link_s_rate_from_below_and_from_above_and_stays() {
    for first in [50, 400] {
        let mut world = lambdastream(first);
        world.run_for(Span::from_secs(30));
        let rates: Vec<f64> = (0..10)
            .map(|s| mbit(world.rate(0, 20.0 + f64::from(s), 21.0 + f64::from(s))))
            .collect();
        assert!(rates.iter().all(|&rate| rate > 170.0), "from {first}: {rates:?}");
        let counters = world.flows[0].sink.counters();
        let from_above = counters.lost as f64 / (counters.lost + counters.packets) as f64;
        assert!(from_above < 0.05, "from {first}: {from_above}");
    }
}

#[test]
fn lambdastream_stays_within_what_its_sink_s_host_receives_but_for_its_trains() {
    for first in [50, 400] {
        let mut world = lambdastream_into(first, Rate::from_mbps(150));
        world.run_for(Span::from_secs(30));
        let rate = mbit(world.rate(0, 10.0, 30.0));
        assert!(rate > 0.9 * 150.0 && rate < 1.02 * 150.0, "from {first}: {rate}");
        assert_eq!(world.flows[0].sink.counters().lost, 0, "from {first}");
    }
}

#[test]
fn a_sink_that_decides_for_its_session_grants_its_first_rate_at_once() {
    let mut world = lambdastream(50);
    // A sink claims nothing before its source was heard (docs/CLAIMS.md): that takes the round trip
    // of a hello and its answer, four packets each way on the links. The agent ticks at once then,
    // or after its pause if it has just done so.
    let packets = (Bytes(1_500) / Rate::from_mbps(200)) * 8;
    let (trip, heard) = (Span::from_millis(40), packets + RECOMPUTE_MIN);
    world.run_for(trip);
    assert_eq!(world.flows[0].sink.granted(), Rate::ZERO);
    world.run_for(heard);
    assert_eq!(world.flows[0].sink.granted(), Rate::from_mbps(50));
    world.run_for(Span::from_millis(220));
    assert!(world.flows[0].payload > 0);
}
