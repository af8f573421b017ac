//! Parallel connections and the split proxy.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Chance, LinkSpec};
use gtp_peers::tcp::{
    self, AckDelay, Flavour, ParallelReceiver, ParallelSender, Proxy, ReceiverConfig, SenderConfig,
};

use crate::bench::Dumbbell;
use gtp_path::{START, Side, World, bdp, bottleneck, wire};

fn parallel(bed: &mut Dumbbell, connections: u16, config: SenderConfig) -> usize {
    let laws = (0..connections).map(|k| Flavour::Sack.law(u64::from(k))).collect();
    let sender = ParallelSender::new(START, config, laws);
    let receiver = ReceiverConfig { delay: AckDelay::None, ..ReceiverConfig::default() };
    let receiver = ParallelReceiver::new(receiver, connections, config.length);
    let (there, back) = ([bed.there], [bed.back]);
    bed.world.flow(Span::ZERO, Box::new(sender), Box::new(receiver), &there, &back)
}

#[test]
fn m_connections_grow_m_times_as_fast() {
    let slope = |connections: u16| {
        let rtt = Span::from_millis(100);
        let mut bed = Dumbbell::new(Rate::from_mbps(1_000), rtt, Bytes(u64::MAX));
        let config = SenderConfig { initial_threshold: 10.0, ..SenderConfig::default() };
        let flow = parallel(&mut bed, connections, config);
        bed.world.run_for(Span::from_secs(5));
        let early = bed.world.sent(flow).window;
        bed.world.run_for(Span::from_secs(10));
        (bed.world.sent(flow).window - early) / 10.0
    };
    let one = slope(1);
    assert!((one - 10.0).abs() < 0.5, "one segment in each of ten round trips: {one}");
    for m in [4, 10] {
        assert!((slope(m) / (one * f64::from(m)) - 1.0).abs() < 0.02, "{m}: {}", slope(m));
    }
}

#[test]
fn three_connections_take_three_shares_beside_one() {
    let (rate, rtt) = (Rate::from_mbps(20), Span::from_millis(40));
    // Who loses at a full queue depends on who comes when.
    for start in [333, 430, 527, 624, 721, 818] {
        let mut bed = Dumbbell::new(rate, rtt, bdp(rate, rtt));
        let config = SenderConfig { initial_threshold: 30.0, ..SenderConfig::default() };
        let many = parallel(&mut bed, 3, config);
        let one = bed.flow(Flavour::Sack, config, Span::from_millis(start));
        bed.world.run_for(Span::from_secs(150));
        let ratio = bed.world.goodput(many, 30.0, 150.0) / bed.world.goodput(one, 30.0, 150.0);
        assert!((ratio / 3.0 - 1.0).abs() < 0.15, "{start}: {ratio}");
    }
}

#[test]
fn a_shared_transfer_arrives_whole_under_loss() {
    let (rate, rtt) = (Rate::from_mbps(20), Span::from_millis(40));
    let mut bed = Dumbbell::new(rate, rtt, bdp(rate, rtt));
    bed.world.lose_every(bed.there, 23);
    let length = Bytes(3_000_001);
    let config = SenderConfig { length: Some(length), ..SenderConfig::default() };
    let flow = parallel(&mut bed, 5, config);
    assert!(bed.world.run_until_done(flow, Span::from_secs(100)));
    assert_eq!(bed.world.received(flow).delivered, length);
}

/// Goodput in Mbit/s over a path of 100 ms in two halves, each of which loses one packet in 2,000,
/// drawn from `seed`, and the most bytes that waited in the proxy.
fn over_two_halves(split: bool, buffer: Bytes, second_mbps: u64, seed: u64) -> (f64, u64) {
    let mut world = World::new();
    let half = |mbps| LinkSpec {
        loss: Chance::from_billionths(500_000),
        ..bottleneck(Rate::from_mbps(mbps), Span::from_millis(25), Bytes(1 << 20))
    };
    let links = [(50, 2 * seed), (second_mbps, 2 * seed + 1)];
    let links = links.map(|(mbps, seed)| world.seeded_link(half(mbps), seed));
    let backs = [world.link(wire(Span::from_millis(25))), world.link(wire(Span::from_millis(25)))];
    let config = SenderConfig::default();
    let sender = Box::new(Flavour::Sack.sender(START, config, 1));
    let receiver = Box::new(Flavour::Sack.receiver(ReceiverConfig::default()));
    if !split {
        let back = [backs[1], backs[0]];
        let flow = world.flow(Span::ZERO, sender, receiver, &links, &back);
        world.run_for(Span::from_secs(200));
        return (world.goodput(flow, 10.0, 200.0) / 1e6, 0);
    }
    let inlet = ReceiverConfig { buffer, ..ReceiverConfig::default() };
    let proxy = Proxy::new(START, inlet, config, Flavour::Sack.law(2));
    let (inlet, outlet) = proxy.sides();
    let first = world.flow(Span::ZERO, sender, Box::new(inlet), &links[..1], &backs[..1]);
    let second = world.flow(Span::ZERO, Box::new(outlet), receiver, &links[1..], &backs[1..]);
    world.tie((first, Side::Receiver), (second, Side::Sender));
    let mut most = 0;
    world.watch(Span::from_secs(200), Span::from_millis(10), |world| {
        most = most.max(world.sender::<tcp::Side>(second).held().0);
    });
    (world.goodput(second, 10.0, 200.0) / 1e6, most)
}

#[test]
fn a_proxy_in_the_middle_of_a_lossy_path_nearly_trebles_the_throughput() {
    // Half the round trip doubles the rate, half the loss gives another square root of two: each
    // half alone has 2.83 times the whole's rate. Behind a buffer that at times runs empty the
    // second half has to wait for the first, which costs an eighth of that here.
    let mean = |split: bool| {
        let of = |seed| over_two_halves(split, Bytes(4_000_000), 50, seed).0;
        (1..=6).map(of).sum::<f64>() / 6.0
    };
    let (whole, split) = (mean(false), mean(true));
    let ratio = split / whole / 8.0_f64.sqrt();
    assert!((ratio - 1.0).abs() < 0.15, "whole {whole}, split {split}");
}

#[test]
fn a_proxy_holds_no_more_than_its_buffer_when_the_second_half_is_slower() {
    let buffer = Bytes(400_000);
    let (rate, most) = over_two_halves(true, buffer, 3, 1);
    assert!(most <= buffer.0 && most > buffer.0 / 2, "{most}");
    assert!((2.4..3.0).contains(&rate), "{rate}");
}
