//! A sink that asks before an answer says how long units may be.

mod world;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Chance, Jitter, LinkSpec, Order};
use gtp_proto::wire::{DATA_HEAD_LEN, HEADER_LEN, TAG_LEN};
use gtp_proto::{Event, Law};
use proptest::prelude::*;
use world::{FlowSpec, World};

const RTT: Span = Span::from_millis(60);
const SIZES: [u16; 3] = [8_900, 1_400, 1_180];

/// What a path does to packets.
struct Weather {
    /// So many of a thousand are lost each way.
    loss: u32,
    /// Each comes later by up to so many milliseconds of its own.
    jitter_ms: u64,
    /// The longest payload that passes towards the sink, and towards the source.
    passes: [u16; 2],
}

const FAIR: Weather = Weather { loss: 0, jitter_ms: 0, passes: [8_900; 2] };

/// A world with two hosts, and a flow of `units` between them.
fn between(weather: &Weather, units: u64) -> (World, FlowSpec) {
    far_apart(RTT, weather, units)
}

/// The same over another round trip.
fn far_apart(rtt: Span, weather: &Weather, units: u64) -> (World, FlowSpec) {
    let mut world = World::new();
    let spec = |passes: u16| {
        let longest = usize::from(passes) + HEADER_LEN + DATA_HEAD_LEN + TAG_LEN;
        LinkSpec {
            delay: rtt / 2,
            mtu: Some(Bytes(longest as u64 + u64::from(world::IP))),
            loss: Chance::from_billionths(weather.loss * 1_000_000),
            jitter: Jitter { span: Span::from_millis(weather.jitter_ms), order: Order::Free },
            ..LinkSpec::default()
        }
    };
    let [down, up] = weather.passes.map(|passes| vec![world.link(spec(passes))]);
    let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
    let sink = world.host(Rate::UNLIMITED, Rate::from_mbps(100), None);
    let max_rate = Rate::UNLIMITED;
    (world, FlowSpec { source, sink, down, up, law: Law::Grant, weight: 1.0, max_rate, units })
}

fn first_data(world: &World, flow: usize) -> Span {
    world.flows[flow].first_data.expect("data").since(world::START)
}

#[test]
fn its_first_unit_comes_after_one_round_trip_and_not_after_two() {
    let (mut world, spec) = between(&FAIR, 1_000);
    let flow = world.eager_flow(spec, SIZES.to_vec());
    world.run_for(Span::from_secs(1));
    let first = first_data(&world, flow);
    assert!(first >= RTT && first < RTT + Span::from_millis(3), "{first:?}");
    let (mut world, spec) = between(&FAIR, 1_000);
    let flow = world.flow(spec);
    world.run_for(Span::from_secs(1));
    assert!(first_data(&world, flow) >= RTT * 2);
}

#[test]
fn it_begins_anew_where_the_path_carries_less_and_asks_for_nothing_twice() {
    for (passes, back) in [(1_400, 1_400), (1_180, 1_180), (1_400, 8_900)] {
        let (mut world, spec) = between(&Weather { passes: [passes, back], ..FAIR }, 1_000);
        let flow = world.eager_flow(spec, SIZES.to_vec());
        world.run_for(Span::from_secs(3));
        let flow = &world.flows[flow];
        let opened = Event::PathOpen { unit_payload: passes };
        assert!(flow.events.contains(&opened), "{:?}", flow.events);
        assert_eq!(flow.payload, 143 * 200 + 857 * u64::from(passes), "as in the world");
        // Where longer hellos get through, short units come before it is known that longer do not.
        let early = if back == passes { 0 } else { 10 };
        assert!(flow.sink.counters().duplicates <= early);
    }
}

#[test]
fn what_was_too_long_for_the_path_is_little_and_is_not_taken_for_its_limit() {
    let rtt = Span::from_millis(300);
    for passes in [8_900, 1_400] {
        let weather = Weather { passes: [passes, 8_900], ..FAIR };
        let (mut world, spec) = far_apart(rtt, &weather, 100_000);
        let flow = world.eager_flow(spec, SIZES.to_vec());
        world.run_for(rtt + Span::from_millis(100)); // No word of the round trip can be back.
        let blind = world.flows[flow].source.counters().bytes;
        assert!(blind > 0 && blind < 96_000 + 9_000, "{passes}: {blind} bytes before any echo");
        world.run_for(Span::from_secs(4));
        let (source, began) = (&world.flows[flow].source, world.elapsed());
        assert!(source.path_bound().is_unlimited(), "{passes}: {:?}", source.path_bound());
        let rate = world.rate(flow, began - 1.0, began);
        assert!(rate > 0.95 * 100e6, "{passes}: {rate}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn everything_comes_whatever_is_lost_or_overtaken(
        loss in 0u32..300,
        jitter_ms in 0u64..120,
        passes in prop::sample::select(SIZES.to_vec()),
        back in prop::sample::select(SIZES.to_vec()),
    ) {
        let (mut world, spec) = between(&Weather { loss, jitter_ms, passes: [passes, back] }, 300);
        let flow = world.eager_flow(spec, SIZES.to_vec());
        world.run_for(Span::from_secs(90)); // With this loss and jitter little is carried.
        let flow = &world.flows[flow];
        if flow.events.contains(&Event::NoPath) {
            return Ok(()); // All hellos were lost.
        }
        prop_assert_eq!(flow.sink.outstanding(), 0, "{:?}", flow.events);
        prop_assert!(flow.units[0] <= passes);
        prop_assert_eq!(flow.units[0], flow.units[1]);
    }
}
