//! One session in virtual time: how fast it starts, what loss does to it, what a hidden
//! bottleneck does to it.

mod world;

use gtp_alloc::{Rate, Span};
use gtp_link::{Chance, Change, LinkSpec};
use gtp_proto::{Event, Kept, Law, LimitedBy};
use world::{FlowSpec, World};

fn mbit(rate: f64) -> f64 {
    rate / 1e6
}

/// One sink of capacity 630 Mbit/s behind an access link of 700 and a path of `rtt`.
fn one(rtt_ms: u64, loss: f64, middle: Option<(u64, u64)>, capacity: Rate) -> (World, usize) {
    let mut world = World::new();
    let rate = Rate::from_mbps(700);
    let queue = rate.bytes_in(Span::from_millis(100));
    let access = world.link(LinkSpec { rate, queue, ..LinkSpec::default() });
    let half = Span::from_millis(rtt_ms) / 2;
    let far = LinkSpec {
        delay: half,
        loss: Chance::from_billionths((loss * 1e9) as u32),
        ..LinkSpec::default()
    };
    let there = world.link(far);
    let back = world.link(LinkSpec { delay: half, ..LinkSpec::default() });
    let mut down = vec![there];
    if let Some((mbps, queue_ms)) = middle {
        let rate = Rate::from_mbps(mbps);
        let queue = rate.bytes_in(Span::from_millis(queue_ms));
        down.push(world.link(LinkSpec { rate, queue, ..LinkSpec::default() }));
    }
    down.push(access);
    let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
    let sink = world.host(Rate::UNLIMITED, capacity, None);
    let flow = world.flow(FlowSpec {
        source,
        sink,
        down,
        up: vec![back],
        law: Law::Grant,
        weight: 1.0,
        max_rate: Rate::UNLIMITED,
        units: 1 << 40,
    });
    (world, flow)
}

#[test]
fn a_lone_session_reaches_its_grant_within_six_round_trips_and_two_intervals() {
    let (mut world, flow) = one(60, 0.0, None, Rate::from_mbps(630));
    world.run_for(Span::from_secs(2));
    let first = world.flows[flow].first_data.expect("data").since(world::START).as_secs_f64();
    let reached = first + 6.0 * 0.060 + 2.0 * 0.030;
    assert!(mbit(world.rate(flow, reached, reached + 0.05)) > 0.95 * 630.0);
    assert!(mbit(world.rate(flow, 1.0, 2.0)) > 0.99 * 630.0);
}

#[test]
fn both_ends_name_the_same_end_that_limits_a_session() {
    for (out, in_, limit) in [(100, 630, LimitedBy::Source), (630, 100, LimitedBy::Sink)] {
        let mut world = World::new();
        let link = || LinkSpec { delay: Span::from_millis(10), ..LinkSpec::default() };
        let (down, up) = (vec![world.link(link())], vec![world.link(link())]);
        let source = world.host(Rate::from_mbps(out), Rate::UNLIMITED, None);
        let sink = world.host(Rate::UNLIMITED, Rate::from_mbps(in_), None);
        let (law, weight, max_rate, units) = (Law::Grant, 1.0, Rate::UNLIMITED, 1 << 40);
        let flow = world.flow(FlowSpec { source, sink, down, up, law, weight, max_rate, units });
        world.run_for(Span::from_secs(2));
        let flow = &world.flows[flow];
        assert_eq!((flow.source.limited_by(), flow.sink.limited_by()), (limit, limit));
    }
}

#[test]
fn random_loss_does_not_lower_the_rate_and_nothing_comes_twice() {
    for loss in [0.001, 0.01, 0.05] {
        let (mut world, flow) = one(60, loss, None, Rate::from_mbps(630));
        world.run_for(Span::from_secs(4));
        let rate = mbit(world.rate(flow, 1.0, 4.0));
        assert!(rate > 0.985 * 630.0 * (1.0 - loss), "loss {loss}: {rate}");
        assert!(world.flows[flow].source.path_bound().is_unlimited());
        assert_eq!(world.flows[flow].sink.counters().duplicates, 0);
    }
}

#[test]
fn a_hidden_bottleneck_is_found_and_filled_with_little_loss() {
    for (queue_ms, loss) in [(100, 0.0), (20, 0.0), (100, 0.01), (20, 0.01)] {
        let (mut world, flow) = one(60, loss, Some((300, queue_ms)), Rate::from_mbps(630));
        world.run_for(Span::from_secs(2));
        let before = *world.links[3].stats();
        world.run_for(Span::from_secs(8));
        let after = *world.links[3].stats();
        let rate = mbit(world.rate(flow, 2.0, 10.0));
        assert!(rate > 0.9 * 300.0, "queue {queue_ms} ms, loss {loss}: {rate}");
        let dropped = after.drops.queue.packets - before.drops.queue.packets;
        let offered = after.offered.packets - before.offered.packets;
        assert!(dropped as f64 / (offered as f64) < 0.005, "{dropped} of {offered}");
    }
}

#[test]
fn a_session_whose_carrier_keeps_it_to_the_path_has_no_bound_of_its_own_until_it_is_back_on_udp() {
    let (mut world, flow) = one(60, 0.0, Some((300, 100)), Rate::from_mbps(630));
    world.flows[flow].source.set_kept(Kept::ByCarrier);
    world.run_for(Span::from_secs(4));
    assert!(world.flows[flow].source.path_bound().is_unlimited());
    let rate = mbit(world.rate(flow, 3.0, 4.0));
    assert!(rate > 0.95 * 300.0, "{rate}");
    world.flows[flow].source.set_kept(Kept::ByPathBound);
    world.run_for(Span::from_secs(4));
    assert!(world.flows[flow].source.path_bound() < Rate::from_mbps(330));
}

#[test]
fn a_session_that_nothing_keeps_to_the_path_sends_what_both_ends_allow_whatever_is_lost() {
    let (mut world, flow) = one(60, 0.0, Some((300, 20)), Rate::from_mbps(400));
    world.flows[flow].source.set_kept(Kept::ByNothing);
    world.run_for(Span::from_secs(4));
    let before = *world.links[3].stats();
    world.run_for(Span::from_secs(2));
    let after = *world.links[3].stats();
    assert!(world.flows[flow].source.path_bound().is_unlimited());
    let dropped = after.drops.queue.packets - before.drops.queue.packets;
    let offered = after.offered.packets - before.offered.packets;
    let part = dropped as f64 / offered as f64;
    assert!((0.2..0.28).contains(&part), "a quarter of 400 is more than 300: {part}");
}

#[test]
fn an_unstated_capacity_is_found_and_held_without_loss() {
    let (mut world, flow) = one(60, 0.0, None, Rate::UNLIMITED);
    world.run_for(Span::from_secs(2));
    let before = world.links[0].stats().drops.queue.packets;
    world.run_for(Span::from_secs(7));
    assert_eq!(world.links[0].stats().drops.queue.packets, before);
    // For the first few cuts of the climb it is not known that nobody else is there.
    let rate = mbit(world.rate(flow, 4.0, 9.0));
    assert!(rate > 0.9 * 700.0, "{rate}");
}

#[test]
fn after_a_path_stood_still_for_a_moment_the_rate_is_back_within_a_second() {
    let (mut world, flow) = one(60, 0.0, None, Rate::from_mbps(630));
    world.run_for(Span::from_secs(2));
    for link in [1, 2] {
        let now = world.now;
        world.links[link].change(now, Change::DOWN);
    }
    world.run_for(Span::from_millis(150));
    for link in [1, 2] {
        let now = world.now;
        world.links[link].change(now, Change::UP);
    }
    world.run_for(Span::from_secs(2));
    let rate = mbit(world.rate(flow, 3.2, 4.1));
    assert!(rate > 0.95 * 630.0, "{rate}");
}

#[test]
fn a_session_at_rest_speaks_ten_times_a_second_and_is_as_quick_as_ever() {
    let (mut world, flow) = one(4, 0.0, None, Rate::from_mbps(630));
    let sink = |world: &mut World, units| world.flows[flow].sink.assign(units);
    world.flows[flow].sink.abandon();
    sink(&mut world, 0..1_000);
    world.run_for(Span::from_millis(900));
    assert_eq!(world.flows[flow].sink.outstanding(), 0);
    let mut spoken = |span| {
        let before = world.datagrams();
        world.run_for(span);
        world.datagrams() - before
    };
    let (awake, _) = (spoken(Span::from_millis(100)), spoken(Span::from_secs(2)));
    let at_rest = spoken(Span::from_secs(2));
    assert!(awake >= 20, "{awake}");
    assert!((36..=44).contains(&at_rest), "status and feedback each 100 ms: {at_rest}");
    sink(&mut world, 1_000..2_000);
    world.run_for(Span::from_millis(8));
    assert!(world.flows[flow].sink.outstanding() < 1_000, "no unit within two round trips");
    world.run_for(Span::from_secs(1));
    assert_eq!(world.flows[flow].sink.outstanding(), 0);
    assert!(world.flows[flow].events.iter().all(|event| !matches!(event, Event::TimedOut)));
}

#[test]
fn an_end_heard_again_after_a_silence_is_news_before_anything_moves() {
    let (mut world, flow) = one(4, 0.0, None, Rate::from_mbps(630));
    world.run_for(Span::from_secs(1));
    let turn = |world: &mut World, change| {
        let now = world.now;
        for link in [1, 2] {
            world.links[link].change(now, change);
        }
    };
    turn(&mut world, Change::DOWN);
    world.run_for(Span::from_millis(1_500));
    let sent = world.flows[flow].source.counters().packets;
    let came = world.flows[flow].sink.counters().packets;
    assert_eq!(world.rests(flow), [true, true], "nothing moved for more than a second");
    turn(&mut world, Change::UP);
    let mut woke = [false; 2];
    for _ in 0..15_000 {
        world.run_for(Span::from_micros(10));
        let [source, sink] = world.rests(flow);
        woke[0] |= !source && world.flows[flow].source.counters().packets == sent;
        woke[1] |= !sink && world.flows[flow].sink.counters().packets == came;
    }
    assert_eq!(woke, [true, true], "source and sink");
}

#[test]
fn a_session_that_closes_does_not_rest() {
    let (mut world, flow) = one(4, 0.0, None, Rate::from_mbps(630));
    world.flows[flow].sink.abandon();
    world.run_for(Span::from_secs(3));
    assert_eq!(world.rests(flow), [true, true]);
    world.close(flow);
    assert!(!world.rests(flow)[1]);
}
