//! Rates that somebody tells a source: the common advertised rate, its overload, the anchors.

use gtp_alloc::maxmin::{Network, Session};
use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::LinkSpec;
use gtp_path::{Control, Side, World};
use gtp_peers::advertised::{Sink, Source, Switch};
use gtp_peers::anchors::{Meter, Slice, central};

const NODE: Rate = Rate::from_mbps(100);

/// Sources that meet at one sink of 100 Mbit/s with this controller, 10 ms away each way.
fn to_one_sink(router: Box<dyn Control>, sources: u32) -> (World, usize, Vec<usize>) {
    let mut world = World::new();
    let delay = Span::from_millis(10);
    let sink = LinkSpec { rate: NODE, delay, ..LinkSpec::default() };
    let sink = world.controlled_link(sink, router);
    let back = world.link(LinkSpec { delay, ..LinkSpec::default() });
    let flows = (0..sources)
        .map(|n| {
            let source = Source::new(n, Bytes(1_000));
            world.flow(Span::ZERO, Box::new(source), Box::new(Sink::new()), &[sink], &[back])
        })
        .collect();
    (world, sink, flows)
}

fn demand(world: &mut World, after_ms: u64, flow: usize, mbps: u64) {
    let rate = Some(Rate::from_mbps(mbps));
    world.demand_at(Span::from_millis(after_ms), flow, Side::Sender, rate);
}

#[test]
fn a_common_advertised_rate_lets_demands_that_rise_overload_the_sink() {
    // Table II.2 at a tenth: 70 beside three times 10, then the three want all.
    let (mut world, sink, flows) = to_one_sink(Box::new(Switch::new()), 4);
    for flow in &flows[1..] {
        demand(&mut world, 0, *flow, 10);
        demand(&mut world, 2_000, *flow, 100);
    }
    world.run_for(Span::from_millis(2_000));
    let before: Vec<f64> = flows.iter().map(|f| world.wire_rate(*f, 1.0, 2.0) / 1e6).collect();
    for (rate, want) in before.iter().zip([70.0, 10.0, 10.0, 10.0]) {
        assert!((rate / want - 1.0).abs() < 0.02, "{before:?}");
    }
    let seen = world.seen(sink);
    world.run_for(Span::from_millis(20));
    let offered = (world.seen(sink) - seen) as f64 * 8_000.0 / 0.020;
    assert!((offered / 280e6 - 1.0).abs() < 0.03, "{offered}");
    // The queue that this made has gone again, with nobody above the share.
    world.run_for(Span::from_secs(4));
    let after: Vec<f64> = flows.iter().map(|f| world.wire_rate(*f, 5.0, 6.0) / 1e6).collect();
    assert!(after.iter().all(|rate| (rate - 25.0).abs() < 0.5), "{after:?}");
}

#[test]
fn a_receivers_meter_shares_its_node_alike_and_gives_what_some_leave_to_the_others() {
    let meter = Meter::new(Span::from_millis(50));
    let (mut world, sink, flows) = to_one_sink(Box::new(meter), 4);
    demand(&mut world, 0, flows[0], 10);
    world.run_for(Span::from_secs(20));
    let found: Vec<f64> = flows.iter().map(|f| world.wire_rate(*f, 15.0, 20.0) / 1e6).collect();
    for (rate, want) in found.iter().zip([10.0, 30.0, 30.0, 30.0]) {
        assert!((rate / want - 1.0).abs() < 0.02, "{found:?}");
    }
    assert!(world.router::<Meter>(sink).rate() <= NODE);
}

#[test]
fn slices_and_the_common_rate_count_who_left_for_a_second_more() {
    let routers: [Box<dyn Control>; 2] = [Box::new(Slice::new(NODE)), Box::new(Switch::new())];
    for router in routers {
        let (mut world, _, flows) = to_one_sink(router, 4);
        world.stop_at(Span::from_secs(4), flows[0]);
        world.run_for(Span::from_secs(8));
        let rest = |from, until| {
            flows[1..].iter().map(|f| world.wire_rate(*f, from, until) / 1e6).collect::<Vec<_>>()
        };
        let (before, soon, after) = (rest(2.0, 4.0), rest(4.1, 4.9), rest(6.0, 8.0));
        assert!(before.iter().all(|rate| (rate - 25.0).abs() < 0.5), "{before:?}");
        // Nothing is given anew yet; what waited since the start is worked off.
        assert!(soon.iter().all(|rate| (24.5..29.0).contains(rate)), "{soon:?}");
        assert!(after.iter().all(|rate| (rate - 100.0 / 3.0).abs() < 0.7), "{after:?}");
    }
}

#[test]
fn a_slice_wastes_what_its_session_leaves_and_the_central_allocator_does_not() {
    let (mut world, _, flows) = to_one_sink(Box::new(Slice::new(NODE)), 4);
    demand(&mut world, 0, flows[0], 10);
    world.run_for(Span::from_secs(4));
    let found: Vec<f64> = flows.iter().map(|f| world.wire_rate(*f, 2.0, 4.0) / 1e6).collect();
    for (rate, want) in found.iter().zip([10.0, 25.0, 25.0, 25.0]) {
        assert!((rate / want - 1.0).abs() < 0.02, "{found:?}");
    }

    let mut network = Network::new(vec![100e6]).unwrap();
    for demand in [10e6, f64::INFINITY, f64::INFINITY, f64::INFINITY] {
        network.add(Session { uses: &[0], weight: 1.0, demand }).unwrap();
    }
    assert_eq!(central(&network), [10, 30, 30, 30].map(Rate::from_mbps));
}
