//! What holds for every flavour on any path.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Chance, LinkSpec, Reorder};
use gtp_peers::Endpoint;
use gtp_peers::tcp::{AckDelay, Flavour, ReceiverConfig, Sender, SenderConfig};
use proptest::prelude::*;

use crate::bench::Dumbbell;
use gtp_path::{START, World, bdp, bottleneck, jain, wire};

fn flavours() -> impl Strategy<Value = Flavour> {
    prop::sample::select(Flavour::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_byte_arrives_under_any_pattern_of_loss(
        flavour in flavours(),
        lost in proptest::collection::btree_set(0u64..120, 0..40),
        acks_lost in proptest::collection::btree_set(0u64..80, 0..20),
        bytes in 1u64..150_000,
        random in 0u32..15,
    ) {
        let mut world = World::new();
        let spec = LinkSpec {
            loss: Chance::from_percent(random),
            ..bottleneck(Rate::from_mbps(10), Span::from_millis(10), Bytes(30_000))
        };
        let there = world.link(spec);
        let loss = Chance::from_percent(random / 2);
        let back = world.link(LinkSpec { loss, ..wire(Span::from_millis(10)) });
        world.lose(there, &lost.into_iter().collect::<Vec<_>>());
        world.lose(back, &acks_lost.into_iter().collect::<Vec<_>>());
        let config = SenderConfig { length: Some(Bytes(bytes)), ..SenderConfig::default() };
        let sender = Box::new(flavour.sender(START, config, 1));
        let receiver = Box::new(flavour.receiver(ReceiverConfig::default()));
        let flow = world.flow(Span::ZERO, sender, receiver, &[there], &[back]);
        prop_assert!(world.run_until_done(flow, Span::from_secs(3_000)));
        // The timer rings once a minute at the rarest, and twenty acknowledgments may be lost.
        world.run_for(Span::from_secs(3_000));
        prop_assert_eq!(world.received(flow).delivered, Bytes(bytes));
        prop_assert_eq!(world.sent(flow).delivered, Bytes(bytes));
        prop_assert!(world.received(flow).done && world.sent(flow).done);
    }

    #[test]
    fn nothing_is_sent_twice_where_nothing_is_lost_or_overtaken(
        flavour in flavours(),
        mbps in 1u64..60,
        rtt_ms in 1u64..120,
        delayed in proptest::bool::ANY,
    ) {
        let delay = if delayed { AckDelay::USUAL } else { AckDelay::None };
        let mut bed =
            Dumbbell::new(Rate::from_mbps(mbps), Span::from_millis(rtt_ms), Bytes(u64::MAX));
        let config = SenderConfig { length: Some(Bytes(1_000_000)), ..SenderConfig::default() };
        let buffer = Bytes(300_000);
        let receiver = ReceiverConfig { delay, buffer, ..ReceiverConfig::default() };
        let flow = bed.flow_to(flavour, config, receiver, Span::ZERO);
        prop_assert!(bed.world.run_until_done(flow, Span::from_secs(60)));
        prop_assert_eq!(bed.world.sent(flow).repeated, 0);
        prop_assert_eq!(bed.receiver(flow).duplicates(), 0);
        prop_assert_eq!((bed.sender(flow).timeouts(), bed.sender(flow).recoveries()), (0, 0));
    }

    #[test]
    fn what_is_out_never_exceeds_the_receivers_window_nor_grows_above_the_senders(
        flavour in flavours(),
        buffer in 1_460u64..200_000,
        random in 0u32..4,
        read_mbps in 1u64..40,
    ) {
        let mut world = World::new();
        let spec = LinkSpec {
            loss: Chance::from_percent(random),
            ..bottleneck(Rate::from_mbps(30), Span::from_millis(20), Bytes(60_000))
        };
        let there = world.link(spec);
        let back = world.link(wire(Span::from_millis(20)));
        let config = SenderConfig::default();
        let sender = Box::new(flavour.sender(START, config, 1));
        let receiver = ReceiverConfig { buffer: Bytes(buffer), ..ReceiverConfig::default() };
        let receiver = Box::new(flavour.receiver(receiver));
        let flow = world.flow(Span::ZERO, sender, receiver, &[there], &[back]);
        let (at, side) = (Span::from_millis(700), gtp_path::Side::Receiver);
        world.demand_at(at, flow, side, Some(Rate::from_mbps(read_mbps)));
        let room = (buffer / 1_460).max(1);
        let mut before = (0, 0.0);
        world.watch(Span::from_secs(5), Span::from_millis(1), |world| {
            let sender = world.sender::<Sender>(flow);
            let (sent, out) = (world.sent(flow).sent, sender.outstanding());
            assert!(out <= room, "{flavour:?}: {out} out, room for {room}");
            // The pipe may exceed a window that has just shrunk; then nothing joins it but the one
            // segment that fast retransmit sends at once.
            let over = sender.pipe() as f64 - sender.window().size;
            let stayed = over >= 1.0 && before.1 >= 1.0;
            assert!(!stayed || sent <= before.0 + 1, "{flavour:?} {over} {before:?}: {sender:?}");
            before = (sent, over);
        });
        prop_assert!(world.received(flow).delivered > Bytes::ZERO);
    }

    #[test]
    fn reordering_delays_but_loses_nothing(flavour in flavours(), percent in 1u32..20) {
        let mut world = World::new();
        let chance = Chance::from_percent(percent);
        let reorder = Reorder { chance, extra: Span::from_millis(3) };
        let there = world.link(LinkSpec {
            reorder,
            ..bottleneck(Rate::from_mbps(50), Span::from_millis(5), Bytes(100_000))
        });
        let back = world.link(wire(Span::from_millis(5)));
        let config = SenderConfig { length: Some(Bytes(2_000_000)), ..SenderConfig::default() };
        let sender = Box::new(flavour.sender(START, config, 1));
        let receiver = Box::new(flavour.receiver(ReceiverConfig::default()));
        let flow = world.flow(Span::ZERO, sender, receiver, &[there], &[back]);
        prop_assert!(world.run_until_done(flow, Span::from_secs(200)));
        prop_assert_eq!(world.received(flow).delivered, Bytes(2_000_000));
    }
}

#[test]
fn two_flows_of_one_flavour_share_a_bottleneck() {
    let (rate, rtt) = (Rate::from_mbps(20), Span::from_millis(40));
    for flavour in Flavour::ALL {
        let mut bed = Dumbbell::new(rate, rtt, bdp(rate, rtt));
        let config = SenderConfig { initial_threshold: 50.0, ..SenderConfig::default() };
        let flows =
            [Span::ZERO, Span::from_millis(1_013)].map(|after| bed.flow(flavour, config, after));
        bed.world.run_for(Span::from_secs(200));
        let rates = flows.map(|flow| bed.world.goodput(flow, 50.0, 200.0) / 1e6);
        let total: f64 = rates.iter().sum();
        assert!(total > 0.9 * 20.0 * 1460.0 / 1500.0, "{flavour:?} {rates:?}");
        assert!(jain(&rates) > 0.9, "{flavour:?} {rates:?}");
    }
}

#[test]
fn an_untuned_window_of_35_kb_gives_window_over_round_trip() {
    // GTP 2004, Tables 2 and 3: 4.88 Mbit/s at 58 ms. 23 whole segments fit.
    let mut bed = Dumbbell::new(Rate::from_mbps(1_000), Span::from_millis(58), Bytes(u64::MAX));
    let (buffer, delay) = (Bytes(35_000), AckDelay::None);
    let receiver = ReceiverConfig { buffer, delay, ..ReceiverConfig::default() };
    let flow = bed.flow_to(Flavour::Sack, SenderConfig::default(), receiver, Span::ZERO);
    bed.world.run_for(Span::from_secs(20));
    let rate = bed.world.goodput(flow, 5.0, 20.0) / 1e6;
    let expected = 23.0 * 1_460.0 * 8.0 / 0.058 / 1e6;
    assert!((rate / expected - 1.0).abs() < 0.02, "{rate} for {expected}");
}

#[test]
fn a_demand_of_the_application_is_what_it_gets() {
    let (rate, rtt) = (Rate::from_mbps(50), Span::from_millis(30));
    let mut bed = Dumbbell::new(rate, rtt, bdp(rate, rtt));
    let flow = bed.flow(Flavour::Cubic, SenderConfig::default(), Span::ZERO);
    let sender = gtp_path::Side::Sender;
    bed.world.demand_at(Span::ZERO, flow, sender, Some(Rate::from_mbps(8)));
    bed.world.demand_at(Span::from_secs(10), flow, sender, None);
    bed.world.demand_at(Span::from_secs(20), flow, sender, Some(Rate::from_mbps(12)));
    bed.world.run_for(Span::from_secs(30));
    let rate = |a: f64, b: f64| bed.world.goodput(flow, a, b) / 1e6;
    assert!((rate(2.0, 10.0) - 8.0).abs() < 0.1, "{}", rate(2.0, 10.0));
    assert!(rate(12.0, 20.0) > 45.0);
    assert!((rate(22.0, 30.0) - 12.0).abs() < 0.1, "{}", rate(22.0, 30.0));
}

#[test]
fn opening_costs_a_round_trip_and_a_lost_opening_a_second() {
    let mut bed = Dumbbell::new(Rate::from_mbps(100), Span::from_millis(80), Bytes(100_000));
    let config = SenderConfig { length: Some(Bytes(1_000)), ..SenderConfig::default() };
    let flow = bed.flow(Flavour::NewReno, config, Span::ZERO);
    assert!(bed.world.run_until_done(flow, Span::from_secs(5)));
    let took = bed.world.duration(flow).expect("done");
    assert!((took - 0.120).abs() < 0.001, "{took}");

    let mut bed = Dumbbell::new(Rate::from_mbps(100), Span::from_millis(80), Bytes(100_000));
    bed.world.lose(bed.there, &[0]);
    let flow = bed.flow(Flavour::NewReno, config, Span::ZERO);
    assert!(bed.world.run_until_done(flow, Span::from_secs(5)));
    let took = bed.world.duration(flow).expect("done");
    assert!((took - 1.120).abs() < 0.001, "{took}");
}

#[test]
fn a_lost_opening_measures_nothing_and_leaves_one_segment_and_three_seconds() {
    let opened = |lost_there: &[u64], lost_back: &[u64]| {
        let mut bed = Dumbbell::new(Rate::from_mbps(100), Span::from_millis(80), Bytes(100_000));
        bed.world.lose(bed.there, lost_there);
        bed.world.lose(bed.back, lost_back);
        let flow = bed.flow(Flavour::Sack, SenderConfig::default(), Span::ZERO);
        let repeated = if lost_there.len() + lost_back.len() > 0 { 1_000 } else { 0 };
        bed.world.run_for(Span::from_millis(repeated + 100));
        let sent = bed.world.sent(flow);
        let wait = bed.sender(flow).poll_timeout().map(|at| at.since(START).as_secs_f64());
        (sent.sent, sent.rtt, wait.map(|wait| (wait * 100.0).round() / 100.0))
    };
    // RFC 5681, 3.1; RFC 6298, 5.7 and 3: the answer may be to either of the two.
    assert_eq!(opened(&[0], &[]), (1, Span::ZERO, Some(1.08 + 3.0)));
    assert_eq!(opened(&[], &[0]), (1, Span::ZERO, Some(1.08 + 3.0)));
    let (sent, rtt, wait) = opened(&[], &[]);
    assert_eq!((sent, wait), (10, Some(1.08)));
    assert!(rtt >= Span::from_millis(80), "{rtt:?}");
}

#[test]
fn after_a_lost_opening_and_a_lost_first_segment_it_waits_three_seconds() {
    let mut bed = Dumbbell::new(Rate::from_mbps(100), Span::from_millis(80), Bytes(100_000));
    bed.world.lose(bed.there, &[0, 2]);
    let config = SenderConfig { length: Some(Bytes(1_000)), ..SenderConfig::default() };
    let flow = bed.flow(Flavour::NewReno, config, Span::ZERO);
    assert!(bed.world.run_until_done(flow, Span::from_secs(9)));
    let took = bed.world.duration(flow).expect("done");
    assert!((took - 4.120).abs() < 0.001, "{took}");
}

#[test]
fn bbr_does_not_drain_a_path_that_a_rest_of_the_application_has_emptied() {
    let (rate, rtt) = (Rate::from_mbps(20), Span::from_millis(40));
    let mut bed = Dumbbell::new(rate, rtt, bdp(rate, rtt));
    let flow = bed.flow(Flavour::Bbr, SenderConfig::default(), Span::ZERO);
    let sender = gtp_path::Side::Sender;
    bed.world.demand_at(Span::from_secs(5), flow, sender, Some(Rate::ZERO));
    // Longer than ten seconds: the propagation time is not confirmed any more.
    bed.world.demand_at(Span::from_secs(17), flow, sender, None);
    bed.world.run_for(Span::from_millis(17_005));
    let mut least = f64::INFINITY;
    bed.world.watch(Span::from_secs(1), Span::from_millis(5), |world| {
        least = least.min(world.sent(flow).window);
    });
    assert!(least > 60.0, "{least} segments, with 67 in a round trip");
}

#[test]
fn a_window_that_the_application_leaves_unused_does_not_grow() {
    let (rate, rtt) = (Rate::from_mbps(100), Span::from_millis(50));
    for flavour in [Flavour::Sack, Flavour::Cubic, Flavour::HighSpeed, Flavour::Scalable] {
        let mut bed = Dumbbell::new(rate, rtt, bdp(rate, rtt));
        let flow = bed.flow(flavour, SenderConfig::default(), Span::ZERO);
        bed.world.demand_at(Span::ZERO, flow, gtp_path::Side::Sender, Some(Rate::from_mbps(2)));
        bed.world.run_for(Span::from_secs(20));
        // 2 Mbit/s at 50 ms are 8.6 segments.
        let window = bed.sender(flow).progress().window;
        assert!(window < 40.0, "{flavour:?} {window}");
    }
}
