//! What the two versions of BBR do on a path, alone and beside others.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Chance, LinkSpec, Trace};
use gtp_path::{START, World, bdp, bottleneck, wire};
use gtp_peers::tcp::{Flavour, ReceiverConfig, SenderConfig};

use crate::bench::Dumbbell;

const BOTH: [Flavour; 2] = [Flavour::Bbr, Flavour::Bbr3];
/// The payload's share of a link's bytes.
const PAYLOAD: f64 = 1_460.0 / 1_500.0;

#[test]
fn both_fill_a_path_and_keep_the_queue_within_a_product() {
    let (rate, rtt) = (Rate::from_mbps(50), Span::from_millis(40));
    for flavour in BOTH {
        let mut bed = Dumbbell::new(rate, rtt, Bytes(u64::MAX));
        let flow = bed.flow(flavour, SenderConfig::default(), Span::ZERO);
        bed.world.run_for(Span::from_secs(5));
        let (mut most, there) = (0, bed.there);
        bed.world.watch(Span::from_secs(25), Span::from_millis(5), |world| {
            most = most.max(world.queued(there).0);
        });
        let used = bed.world.goodput(flow, 5.0, 30.0) / 50e6 / PAYLOAD;
        assert!(used > 0.95, "{flavour:?} {used}");
        assert!(most < rate.bytes_in(rtt).0, "{flavour:?} {most}");
    }
}

/// Goodput in Mbit/s over 50 Mbit/s and 40 ms with random loss.
fn under_loss(flavour: Flavour, percent: u32) -> f64 {
    let mut world = World::new();
    let (rate, rtt) = (Rate::from_mbps(50), Span::from_millis(40));
    let spec = LinkSpec {
        loss: Chance::from_percent(percent),
        ..bottleneck(rate, rtt / 2, bdp(rate, rtt))
    };
    let (there, back) = (world.seeded_link(spec, 7), world.link(wire(rtt / 2)));
    let sender = Box::new(flavour.sender(START, SenderConfig::default(), 1));
    let receiver = Box::new(flavour.receiver(ReceiverConfig::default()));
    let flow = world.flow(Span::ZERO, sender, receiver, &[there], &[back]);
    world.run_for(Span::from_secs(40));
    world.goodput(flow, 10.0, 40.0) / 1e6
}

#[test]
fn version_3_keeps_its_rate_below_two_per_cent_of_loss_and_gives_way_above() {
    let (below, above) = (under_loss(Flavour::Bbr3, 1), under_loss(Flavour::Bbr3, 10));
    assert!(below > 0.7 * 50.0, "{below}");
    assert!(above < 0.5 * below, "{above} {below}");
    let first = under_loss(Flavour::Bbr, 10);
    assert!(first > 2.0 * above, "version 1 does not: {first} {above}");
}

/// Mean goodputs of a BBR and a CUBIC that share a path, in Mbit/s.
fn beside_cubic(flavour: Flavour, queue: f64) -> (f64, f64) {
    let (rate, rtt) = (Rate::from_mbps(50), Span::from_millis(40));
    let room = Bytes((bdp(rate, rtt).0 as f64 * queue) as u64);
    let mut bed = Dumbbell::new(rate, rtt, room);
    let cubic = bed.flow(Flavour::Cubic, SenderConfig::default(), Span::ZERO);
    let other = bed.flow(flavour, SenderConfig::default(), Span::from_secs(2));
    bed.world.run_for(Span::from_secs(90));
    let mean = |flow| bed.world.goodput(flow, 30.0, 90.0) / 1e6;
    (mean(other), mean(cubic))
}

#[test]
fn version_3_leaves_a_cubic_more_than_version_1_where_the_queue_is_short() {
    let (_, beside_1) = beside_cubic(Flavour::Bbr, 0.5);
    let (_, beside_3) = beside_cubic(Flavour::Bbr3, 0.5);
    assert!(beside_3 > 1.5 * beside_1, "{beside_3} {beside_1}");
}

#[test]
fn both_start_up_at_once_however_late_they_begin() {
    for flavour in BOTH {
        let (rate, rtt) = (Rate::from_mbps(50), Span::from_millis(40));
        let mut bed = Dumbbell::new(rate, rtt, bdp(rate, rtt));
        let flow = bed.flow(flavour, SenderConfig::default(), Span::from_secs(20));
        bed.world.run_for(Span::from_millis(20_750));
        let soon = bed.world.goodput(flow, 20.5, 20.75) / 50e6 / PAYLOAD;
        assert!(soon > 0.8, "{flavour:?} {soon}");
    }
}

/// Draft-ietf-ccwg-bbr-06, appendix A, asks for both of version 3.
#[test]
fn both_find_a_bandwidth_that_grows_tenfold_and_one_that_falls_tenfold() {
    let (low, high, rtt) = (Rate::from_mbps(10), Rate::from_mbps(100), Span::from_millis(40));
    for flavour in BOTH {
        let mut world = World::new();
        let trace = Trace::of_rates(&[(low, Span::from_secs(21)), (high, Span::from_secs(20))]);
        let spec = LinkSpec {
            trace: Some(trace.expect("a trace")),
            ..bottleneck(high, rtt / 2, bdp(low, rtt))
        };
        let (there, back) = (world.link(spec), world.link(wire(rtt / 2)));
        let sender = Box::new(flavour.sender(START, SenderConfig::default(), 1));
        let receiver = Box::new(flavour.receiver(ReceiverConfig::default()));
        let flow = world.flow(Span::ZERO, sender, receiver, &[there], &[back]);
        world.run_for(Span::from_secs(60));
        let used = |rate: Rate, from, to| world.goodput(flow, from, to) / rate.as_f64() / PAYLOAD;
        let found = [used(low, 10.0, 20.0), used(high, 30.0, 40.0), used(low, 50.0, 60.0)];
        assert!(found.iter().all(|used| *used > 0.85), "{flavour:?} {found:?}");
    }
}
