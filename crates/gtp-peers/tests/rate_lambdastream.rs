//! LambdaStream over links: the rate it finds and keeps, its trains, its recovery, its frames.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_path::{START, Side, World, bdp, bottleneck, jain, wire};
use gtp_peers::rate::lambdastream::{Delivery, Receiver, Sender, Terms, frames};
use gtp_peers::rate::{Slow, Transfer};
use proptest::prelude::*;

/// A link of 1,000 Mbit/s that gives 950 from end to end, the rate that the paper's flows came to.
const LINK: Rate = Rate::from_mbps(1_000);
const GIVES: Rate = Rate::from_mbps(950);
const RTT: Span = Span::from_millis(110);

fn terms(initial: Rate) -> Terms {
    Terms { link: LINK, initial, delivery: Delivery::Reliable }
}

/// A world with the transatlantic link and a tenth of its BDP of queue; flows share both links.
fn atlantic() -> (World, usize, usize) {
    let mut world = World::new();
    let there = world.link(bottleneck(GIVES, RTT / 2, Bytes(bdp(GIVES, RTT).0 / 10)));
    let back = world.link(wire(RTT / 2));
    (world, there, back)
}

fn add(world: &mut World, after: Span, initial: u64, links: (usize, usize)) -> usize {
    let terms = terms(Rate::from_mbps(initial));
    let sender = Box::new(Sender::new(Transfer::ENDLESS, terms));
    let receiver = Box::new(Receiver::new(Transfer::ENDLESS, terms, None));
    world.flow(after, sender, receiver, &[links.0], &[links.1])
}

/// Seconds after which the throughput stays within 5 % of what the path gives, and its later mean
/// over that.
fn settle(initial: u64) -> (f64, f64) {
    let (mut world, there, back) = atlantic();
    let flow = add(&mut world, Span::ZERO, initial, (there, back));
    let mut outside = 0.0;
    world.watch(Span::from_secs(8), Span::from_millis(100), |w| {
        let now = w.elapsed();
        if (w.wire_rate(flow, now - 0.1, now) / GIVES.as_f64() - 1.0).abs() > 0.05 {
            outside = now;
        }
    });
    (outside, world.wire_rate(flow, 4.0, 8.0) / GIVES.as_f64())
}

#[test]
fn a_lone_flow_finds_950_megabit_from_any_start_and_quickly_from_above() {
    for (initial, within) in [(172, 3.2), (500, 1.0), (950, 0.8), (1720, 0.8)] {
        let (settled, share) = settle(initial);
        assert!(settled <= within, "from {initial}: {settled} s");
        assert!((0.97..=1.0).contains(&share), "from {initial}: {share}");
    }
}

#[test]
fn two_flows_come_to_an_equal_share_of_a_full_link() {
    let (mut world, there, back) = atlantic();
    let flows = [0, 10].map(|at| add(&mut world, Span::from_secs(at), 500, (there, back)));
    world.run_for(Span::from_secs(45));
    let rates = flows.map(|flow| world.wire_rate(flow, 30.0, 45.0));
    assert!(jain(&rates) >= 0.98 && rates.iter().sum::<f64>() >= 0.9 * 950e6, "{rates:?}");
}

#[test]
fn the_ratio_of_gaps_is_one_below_the_available_rate_and_the_overload_above_it() {
    for mbps in [300, 600, 900, 920, 1_000, 1_100, 1_500] {
        // Figure 3's streams of 200 packets overflow no queue, and this one takes an epoch's.
        let mut world = World::new();
        let there = world.link(bottleneck(GIVES, RTT / 2, bdp(GIVES, RTT)));
        let back = world.link(wire(RTT / 2));
        let flow = add(&mut world, Span::ZERO, mbps, (there, back));
        // A sender that has no more than its rate sends no trains.
        world.demand_at(Span::ZERO, flow, Side::Sender, Some(Rate::from_mbps(mbps)));
        let mut ratio = None;
        world.watch(Span::from_secs(1), Span::from_millis(1), |w| {
            ratio = ratio.or(w.receiver::<Receiver>(flow).ratio());
        });
        let ratio = ratio.expect("an epoch has passed");
        // Figure 3, for 950 Mbit/s available.
        let expected = (mbps as f64 / 950.0).max(1.0);
        let most = if mbps < 950 { 0.02 } else { 0.03 };
        assert!((ratio / expected - 1.0).abs() <= most, "{mbps}: {ratio}");
    }
}

#[test]
fn a_slow_receiver_leaves_its_part_of_the_link_to_the_other_flow() {
    let (mut world, there, back) = atlantic();
    let quick = add(&mut world, Span::ZERO, 500, (there, back));
    let terms = terms(Rate::from_mbps(500));
    let receiver = Slow::new(Receiver::new(Transfer::ENDLESS, terms, None), Bytes(1_000_000));
    let sender = Box::new(Sender::new(Transfer::ENDLESS, terms));
    let slow = world.flow(Span::from_secs(4), sender, Box::new(receiver), &[there], &[back]);
    let limit = Some(Rate::from_mbps(200));
    world.demand_at(Span::from_secs(4), slow, Side::Receiver, limit);
    world.run_for(Span::from_secs(20));
    // Figure 10(c): unequal, and the link is full.
    let rates = [quick, slow].map(|flow| world.wire_rate(flow, 10.0, 20.0) / 1e6);
    assert!(rates[0] + rates[1] >= 0.9 * 950.0 && rates[0] > 2.0 * rates[1], "{rates:?}");
}

/// A sender that keeps its rate, for other traffic.
fn constant(world: &mut World, rate: Rate, links: (usize, usize)) {
    let sender = gtp_peers::rate::rbudp::Sender::new(Transfer::ENDLESS, rate);
    let receiver = gtp_peers::rate::rbudp::Receiver::new(Transfer::ENDLESS);
    world.flow(Span::ZERO, Box::new(sender), Box::new(receiver), &[links.0], &[links.1]);
}

#[test]
fn a_train_finds_what_other_traffic_leaves_to_within_a_tenth_of_the_link() {
    for (other, own) in [(0, 600), (100, 500), (300, 400), (500, 300), (700, 200)] {
        let (mut world, there, back) = atlantic();
        constant(&mut world, Rate::from_mbps(other.max(1)), (there, back));
        // Only the first train counts: what it finds changes the rate.
        let flow = add(&mut world, Span::from_millis(200), own, (there, back));
        let mut found = None;
        world.watch(Span::from_millis(400), Span::from_millis(1), |w| {
            found = found.or(w.receiver::<Receiver>(flow).available());
        });
        let leaves = 950e6 - other as f64 * 1e6;
        let error = (found.expect("a train has come") - leaves) / 1e9;
        assert!(error.abs() <= 0.1, "{other} {own}: {found:?} of {leaves}");
    }
}

/// A flow of `blocks` blocks at 100 Mbit/s below its path's rate, with frames of one block.
fn steady(blocks: u64, delivery: Delivery, lose: &[u64]) -> (World, usize) {
    let mut world = World::new();
    let there = world.link(bottleneck(GIVES, RTT / 2, bdp(GIVES, RTT)));
    let back = world.link(wire(RTT / 2));
    world.lose(there, lose);
    let terms = Terms { delivery, ..terms(Rate::from_mbps(100)) };
    let transfer = Transfer::of(Bytes(blocks * 1_456));
    let sender = Box::new(Sender::new(transfer, terms));
    let receiver = Box::new(Receiver::new(transfer, terms, Some(1)));
    let flow = world.flow(Span::ZERO, sender, receiver, &[there], &[back]);
    world.demand_at(Span::ZERO, flow, Side::Sender, Some(Rate::from_mbps(100)));
    (world, flow)
}

#[test]
fn a_first_loss_is_mended_in_a_round_trip_and_a_second_by_the_epochs() {
    // A packet each 120 us: block 2,000 is due after 0.24 s and half a round trip.
    let arrives = |n: f64| START + Span::from_secs_f64(n * 120e-6) + RTT / 2;
    let mended = |lose: &[u64]| {
        let (mut world, flow) = steady(20_000, Delivery::Reliable, lose);
        assert!(world.run_until_done(flow, Span::from_secs(10)));
        let frames = world.receiver::<Receiver>(flow).frames().expect("frames are noticed");
        frames.times()[2_000].since(arrives(2_000.0)).as_secs_f64() / RTT.as_secs_f64()
    };
    let once = mended(&[2_000]);
    assert!((1.0..1.2).contains(&once), "{once} round trips");
    // The block went again a round trip, 917 packets, later.
    let again = (2_917..2_921).map(|n| mended(&[2_000, n])).fold(0.0, f64::max);
    assert!(again > 1.9 && again <= 1.0 + 2.0 + 1.5, "{again} round trips");
}

#[test]
fn without_reliable_delivery_nothing_waits_for_a_block() {
    let (mut world, flow) = steady(20_000, Delivery::Unreliable, &[2_000, 2_917, 2_918, 2_919]);
    assert!(world.run_until_done(flow, Span::from_secs(10)));
    let receiver = world.receiver::<Receiver>(flow);
    let intervals = receiver.frames().expect("frames are noticed").intervals(0);
    assert!(intervals.iter().all(|i| *i < Span::from_millis(1)));
    assert!(world.received(flow).delivered >= Bytes(19_990 * 1_456));
}

#[test]
fn a_short_stall_of_the_receiver_cuts_nothing_and_a_slow_one_sets_the_rate() {
    let slow = |stall: bool| {
        let (mut world, there, back) = atlantic();
        let terms = terms(Rate::from_mbps(500));
        let receiver = Receiver::new(Transfer::ENDLESS, terms, None);
        let flow = world.flow(
            Span::ZERO,
            Box::new(Sender::new(Transfer::ENDLESS, terms)),
            Box::new(Slow::new(receiver, Bytes(200_000))),
            &[there],
            &[back],
        );
        world.demand_at(Span::ZERO, flow, Side::Sender, Some(Rate::from_mbps(500)));
        let (begin, limit) = (Span::from_secs(2), if stall { 1_000 } else { 300_000_000 });
        world.demand_at(begin, flow, Side::Receiver, Some(Rate::from_bps(limit)));
        if stall {
            world.demand_at(begin + Span::from_millis(5), flow, Side::Receiver, None);
        }
        world.run_for(Span::from_secs(8));
        let host = world.receiver::<Slow<Receiver>>(flow);
        assert!(host.lost() > 10, "{}", host.lost());
        (host.inner().changes(), world.sent(flow).rate.as_f64() / 1e6)
    };
    assert_eq!(slow(true), ((0, 0), 500.0));
    let (changes, rate) = slow(false);
    assert!(changes.0 + changes.1 >= 3 && rate < 310.0, "{changes:?} {rate}");
}

#[test]
fn frames_of_two_megabytes_come_evenly_and_a_loss_costs_a_round_trip() {
    let run = |lose: &[u64]| {
        let mut world = World::new();
        let there = world.link(bottleneck(GIVES, RTT / 2, Bytes(bdp(GIVES, RTT).0 / 10)));
        let back = world.link(wire(RTT / 2));
        world.lose(there, lose);
        let terms = terms(Rate::from_mbps(920));
        let transfer = Transfer::ENDLESS;
        let flow = world.flow(
            Span::ZERO,
            Box::new(Sender::new(transfer, terms)),
            Box::new(Receiver::new(transfer, terms, Some(2_000_000 / 1_456))),
            &[there],
            &[back],
        );
        world.demand_at(Span::ZERO, flow, Side::Sender, Some(Rate::from_mbps(920)));
        world.run_for(Span::from_secs(5));
        world.receiver::<Receiver>(flow).frames().expect("frames are noticed").intervals(1)
    };
    let even = run(&[]);
    let mean = even.iter().map(|i| i.as_secs_f64()).sum::<f64>() / even.len() as f64;
    assert!((0.016..0.018).contains(&mean), "{mean}");
    assert!(frames::jitter(&even) < 1e-4, "{}", frames::jitter(&even));
    let longest = run(&[200_000]).into_iter().max().expect("frames came");
    assert!(longest >= RTT, "{longest:?}");
}

/// Which packets a link loses: some here and there, or a run.
fn losses() -> impl Strategy<Value = Vec<u64>> {
    let few = proptest::collection::vec(0..400u64, 0..60);
    let run = (0..150u64, 0..200u64).prop_map(|(from, n)| (from..from + n).collect());
    prop_oneof![few, run]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Data, feedback or both: whatever is lost, everything arrives.
    #[test]
    fn every_byte_arrives_under_any_pattern_of_loss(
        there in losses(), back in losses(), blocks in 1..200u64,
    ) {
        let mut world = World::new();
        let rate = Rate::from_mbps(50);
        let forth = world.link(bottleneck(rate, Span::from_millis(10), Bytes(60_000)));
        let home = world.link(wire(Span::from_millis(10)));
        world.lose(forth, &there);
        world.lose(home, &back);
        let transfer = Transfer::of(Bytes(blocks * 1_456 - 7));
        let terms = Terms { link: rate, initial: rate.scale(0.8), delivery: Delivery::Reliable };
        let sender = Box::new(Sender::new(transfer, terms));
        let receiver = Box::new(Receiver::new(transfer, terms, None));
        let flow = world.flow(Span::ZERO, sender, receiver, &[forth], &[home]);
        world.run_for(Span::from_secs(120));
        prop_assert!(world.received(flow).done && world.sent(flow).done);
        prop_assert_eq!(world.received(flow).delivered, Bytes(blocks * 1_456 - 7));
    }
}
