//! Router-assisted rivals packet by packet, through the topologies of the papers at a tenth of
//! their rates: what each ends at, and what of it its paper's figures say.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Chance, LinkSpec, Rng};
use gtp_path::{Control, START, World};
use gtp_peers::background::{Pattern, Sink, Source};
use gtp_peers::tcp::laws::Reno;
use gtp_peers::tcp::{AckDelay, Law, Opening, Receiver, ReceiverConfig, Sender, SenderConfig};
use gtp_peers::xcp::equilibrium;
use gtp_peers::{Routed, aecp, pie, red, vcp, xcp};

/// Headers and payload of AECP's packets: 1,000 bytes on the wire (6).
const MSS: Bytes = Bytes(960);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rival {
    Sack,
    Xcp,
    EndpointXcp,
    Vcp,
    Aecp,
}

impl Rival {
    fn router(self) -> Option<Box<dyn Control>> {
        match self {
            Rival::Sack => None,
            Rival::Xcp => Some(Box::new(xcp::Queue::new())),
            Rival::EndpointXcp => Some(Box::new(xcp::Node::new())),
            Rival::Vcp => Some(Box::new(vcp::Queue::new())),
            Rival::Aecp => Some(Box::new(aecp::Queue::new(aecp::Config::default()))),
        }
    }

    /// `None`: TCP's own.
    fn routed(self) -> Option<Routed> {
        match self {
            Rival::Sack => None,
            Rival::Xcp | Rival::EndpointXcp => Some(Routed::Xcp),
            Rival::Vcp => Some(Routed::Vcp),
            Rival::Aecp => Some(Routed::Aecp),
        }
    }

    fn link(self, world: &mut World, spec: LinkSpec) -> usize {
        match self.router() {
            Some(router) => world.controlled_link(spec, router),
            None => world.link(spec),
        }
    }

    fn flow(self, world: &mut World, after: Span, there: &[usize], back: &[usize]) -> usize {
        let config = SenderConfig {
            mss: MSS,
            initial_window: 1.0,
            opening: Opening::Open,
            ..SenderConfig::default()
        };
        let (config, law): (_, Box<dyn Law>) = match self.routed() {
            None => (config, Box::new(Reno)),
            Some(routed) => (routed.adapt(config), routed.law()),
        };
        let sender = Sender::new(START + after, config, law);
        let receiver =
            ReceiverConfig { mss: MSS, delay: AckDelay::None, ..ReceiverConfig::default() };
        let receiver = self.routed().map_or(receiver, |routed| routed.adapt_receiver(receiver));
        let receiver = Receiver::new(receiver);
        world.flow(after, Box::new(sender), Box::new(receiver), there, back)
    }
}

fn link(mbps: u64, delay_ms: u64, queue: u64) -> LinkSpec {
    LinkSpec {
        rate: Rate::from_mbps(mbps),
        delay: Span::from_millis(delay_ms),
        queue: Bytes(queue),
        ..LinkSpec::default()
    }
}

fn wire(delay_ms: u64) -> LinkSpec {
    LinkSpec { delay: Span::from_millis(delay_ms), ..LinkSpec::default() }
}

/// Mean rates on the wire, Mbit/s.
fn rates(world: &World, flows: &[usize], from: f64, to: f64) -> Vec<f64> {
    flows.iter().map(|flow| world.wire_rate(*flow, from, to) / 1e6).collect()
}

/// AECP's figures 9 and 10 at a tenth of the capacity: links of 50, 25 and 50 Mbit/s, 20 ms each;
/// flow 1 over all, flows 2 to 4 over one each.
fn parking_lot(rival: Rival, from: u64, to: u64) -> Vec<f64> {
    let mut world = World::new();
    // A buffer of bandwidth times the longest round-trip time.
    let links = [50, 25, 50].map(|mbps| rival.link(&mut world, link(mbps, 20, mbps * 15_000)));
    let back = [60, 20].map(|delay| world.link(wire(delay)));
    let mut flows = vec![rival.flow(&mut world, Span::ZERO, &links, &back[..1])];
    for only in links {
        flows.push(rival.flow(&mut world, Span::ZERO, &[only], &back[1..]));
    }
    world.run_for(Span::from_secs(to));
    rates(&world, &flows, from as f64, to as f64)
}

fn assert_near(found: &[f64], want: &[f64], share: f64) {
    for (found_one, want_one) in found.iter().zip(want) {
        let off = (found_one / want_one - 1.0).abs();
        assert!(off <= share, "{found:?} against {want:?}");
    }
}

#[test]
fn aecp_ends_at_max_min_over_three_links() {
    let found = parking_lot(Rival::Aecp, 60, 90);
    assert_near(&found, &[12.5, 37.5, 12.5, 37.5], 0.02);
}

#[test]
fn xcp_leaves_of_the_outer_links_what_the_order_of_links_explains() {
    let found = parking_lot(Rival::Xcp, 20, 40);
    assert_near(&found[..1], &[12.5], 0.03);
    assert_near(&found[2..3], &[12.5], 0.03);
    assert_near(&found[1..2], &[equilibrium::beside_held(50.0, 12.5, 2)], 0.03);
    // The paper has 365 of 500, the equilibrium 360.6.
    assert!((36.0..=37.2).contains(&found[3]), "{found:?}");
}

#[test]
fn tcp_starves_the_flow_over_three_links() {
    let found = parking_lot(Rival::Sack, 100, 200);
    // Max-min gives it 12.5. The paper's flow, at ten times the rates, has nothing to be seen.
    assert!(found[0] < 12.5 / 3.0 && found[1] > 45.0 && found[3] > 45.0, "{found:?}");
}

#[test]
fn vcp_gives_the_long_flow_less_and_is_no_tcp() {
    let found = parking_lot(Rival::Vcp, 120, 180);
    assert!(found[0] < 9.0 && found[1] > 34.0 && found[3] > 34.0, "{found:?}");
}

/// One link of 50 Mbit/s; flows of these round-trip times, all from the start.
fn dumbbell(rival: Rival, rtt_ms: &[u64], from: u64, to: u64) -> (World, usize, Vec<usize>) {
    let mut world = World::new();
    let longest = rtt_ms.iter().max().unwrap();
    let bottleneck = rival.link(&mut world, link(50, 0, 50 * longest * 125));
    let flows: Vec<usize> = rtt_ms
        .iter()
        .map(|rtt| {
            let back = world.link(wire(*rtt));
            rival.flow(&mut world, Span::ZERO, &[bottleneck], &[back])
        })
        .collect();
    world.run_for(Span::from_secs(to));
    assert!(from < to);
    (world, bottleneck, flows)
}

#[test]
fn xcp_and_aecp_share_alike_whatever_the_round_trip_time() {
    for (rival, from, to) in [(Rival::Xcp, 15, 30), (Rival::Aecp, 40, 60)] {
        let (world, bottleneck, flows) = dumbbell(rival, &[50, 100, 200, 400], from, to);
        let found = rates(&world, &flows, from as f64, to as f64);
        assert_near(&found, &[12.5; 4], 0.05);
        assert_eq!(world.lost(bottleneck), 0, "{rival:?}");
    }
}

#[test]
fn aecp_holds_the_queue_that_it_wants() {
    let (mut world, bottleneck, flows) = dumbbell(Rival::Aecp, &[50; 5], 39, 40);
    let mut sum = 0.0;
    world.watch(Span::from_secs(20), Span::from_millis(10), |world| {
        sum += world.queued(bottleneck).0 as f64 / 1_000.0;
    });
    let mean = sum / 2_000.0;
    assert!((mean - 100.0).abs() < 10.0, "{mean}");
    assert_near(&rates(&world, &flows, 40.0, 60.0), &[10.0; 5], 0.02);
}

#[test]
fn xcp_fills_a_link_within_seconds_and_keeps_no_queue() {
    let (mut world, bottleneck, flows) = dumbbell(Rival::Xcp, &[50; 5], 9, 10);
    let mut most = 0;
    world.watch(Span::from_secs(10), Span::from_millis(10), |world| {
        most = most.max(world.queued(bottleneck).0 / 1_000);
    });
    let found = rates(&world, &flows, 10.0, 20.0);
    assert!(found.iter().sum::<f64>() > 0.97 * 50.0, "{found:?}");
    assert_near(&found, &[10.0; 5], 0.05);
    assert!(most < 50, "{most} packets");
}

#[test]
fn vcp_uses_its_target_and_loses_nothing() {
    let (world, bottleneck, flows) = dumbbell(Rival::Vcp, &[50; 5], 60, 100);
    let used = rates(&world, &flows, 60.0, 100.0).iter().sum::<f64>() / 50.0;
    assert!((0.88..0.98).contains(&used), "{used}");
    assert_eq!(world.lost(bottleneck), 0);
}

/// One fat session beside `thin` ones that want half of a sink of 50 Mbit/s together: its share of
/// the other half, figure VIII.10 of the thesis.
fn fat_share(rival: Rival, thin: u64) -> f64 {
    let mut world = World::new();
    let sink = rival.link(&mut world, link(50, 0, 312_500));
    let back = world.link(wire(50));
    let mut fat = 0;
    for n in 0..=thin {
        let source = rival.link(&mut world, link(50, 0, 312_500));
        let flow = rival.flow(&mut world, Span::ZERO, &[source, sink], &[back]);
        if n == 0 {
            fat = flow;
            continue;
        }
        // Demands are payload; 24 bytes in 25 are.
        let rate = Rate::from_mbps(24).as_bps() / thin;
        world.demand_at(Span::ZERO, flow, gtp_path::Side::Sender, Some(Rate::from_bps(rate)));
    }
    world.run_for(Span::from_secs(30));
    world.wire_rate(fat, 20.0, 30.0) / 25e6
}

#[test]
fn endpoint_xcps_fat_session_declines_with_the_number_of_thin_ones() {
    for thin in [1, 4, 20] {
        let theory = equilibrium::beside_held(50.0, 25.0, thin as u32 + 1) / 25.0;
        let found = fat_share(Rival::EndpointXcp, thin);
        assert!((found - theory).abs() < 0.05, "{thin}: {found} against {theory}");
    }
}

#[test]
fn xcp_uses_four_fifths_of_a_link_at_least() {
    let share = fat_share(Rival::Xcp, 40);
    assert!((1.0 + share) / 2.0 >= equilibrium::floor() - 0.01, "{share}");
}

/// Five sources, one sink, every node of `mbps`; the first and the last source lose `loss` of their
/// packets. Mean rates from `from` to `to` seconds.
fn five_to_one(mbps: u64, loss: Chance, from: u64, to: u64) -> Vec<f64> {
    let rival = Rival::EndpointXcp;
    let mut world = World::new();
    let node = || link(mbps, 0, mbps * 90 * 125);
    let sink = rival.link(&mut world, node());
    let mut flows = Vec::new();
    for (n, rtt) in [10, 30, 50, 70, 90].into_iter().enumerate() {
        let loss = if n == 0 || n == 4 { loss } else { Chance::NEVER };
        let source = rival.link(&mut world, LinkSpec { loss, ..node() });
        let back = world.link(wire(rtt));
        flows.push(rival.flow(&mut world, Span::ZERO, &[source, sink], &[back]));
    }
    world.run_for(Span::from_secs(to));
    rates(&world, &flows, from as f64, to as f64)
}

#[test]
fn endpoint_xcp_is_full_and_fair_within_seconds() {
    assert_near(&five_to_one(100, Chance::NEVER, 3, 6), &[20.0; 5], 0.05);
}

#[test]
fn random_loss_takes_four_tenths_from_an_xcp_session_as_in_ns_2() {
    // Figure VIII.11's loss, 0.025%. The thesis calls what is left very low; in ns-2.35 with the
    // same nodes and packets of 1,000 bytes it is 58 and 55 of 100 Mbit/s between seconds 2 and 62
    // (`ns bench/referees/star.tcl 62 2 0.00025 '10 30 50 70 90' '1 5' 1000`).
    let found = five_to_one(500, Chance::from_billionths(250_000), 2, 22);
    for (lossy, ns_2) in [(found[0], 58.2), (found[4], 54.9)] {
        // A session loses some 35 packets in the time, a sixth more or less by chance. With SACK in
        // place of Reno's recovery the session of 90 ms has a quarter more.
        assert!((lossy / ns_2 - 1.0_f64).abs() < 0.2, "{found:?}");
    }
    // The others share what is left, and the shuffle: 118, 120 and 119 there.
    assert_near(&found[1..4], &[117.5, 119.6, 119.4], 0.06);
}

/// Table VIII.2 of the thesis at a tenth: the sinks of each source's sessions, with what must be
/// otherwise for table VIII.3 to come out in brackets behind it.
const PRINTED: [[usize; 4]; 8] = [
    [1, 2, 2, 7], // [6]
    [1, 2, 3, 4], // [6]
    [2, 3, 4, 4],
    [3, 4, 4, 8],
    [1, 3, 4, 5],
    [2, 2, 3, 4],
    [2, 5, 8, 8],
    [1, 4, 5, 6],
];

/// Rates of the 32 sessions under endpointXCP in Mbit/s of the thesis's scale, highest first.
fn sixteen_nodes(sinks: &[[usize; 4]; 8], seed: u64) -> Vec<f64> {
    let rival = Rival::EndpointXcp;
    let mut world = World::new();
    let mut node = || rival.link(&mut world, link(50, 0, 625_000));
    let ends: Vec<[usize; 2]> = (0..8).map(|_| [node(), node()]).collect();
    let mut rng = Rng::new(seed);
    let mut flows = Vec::new();
    for (source, row) in sinks.iter().enumerate() {
        for sink in row {
            let back = world.link(wire(1 + rng.below(100)));
            let there = [ends[source][0], ends[sink - 1][1]];
            flows.push(rival.flow(&mut world, Span::ZERO, &there, &[back]));
        }
    }
    world.run_for(Span::from_secs(12));
    let mut found: Vec<f64> =
        rates(&world, &flows, 9.0, 12.0).iter().map(|rate| 10.0 * rate).collect();
    found.sort_by(|a, b| b.total_cmp(a));
    found
}

#[test]
fn sixteen_nodes_end_at_the_aggregate_of_figure_viii_13() {
    let mut corrected = PRINTED;
    corrected[0][3] = 6;
    corrected[1][3] = 6;
    // 3,413 is the thesis's. 3,266 is what the table as printed came to as computed here: no
    // reference, but so far from the thesis's that the table must be read as corrected.
    for (table, want) in [(&corrected, 3_413.0), (&PRINTED, 3_266.0)] {
        let sum: f64 = sixteen_nodes(table, 1).iter().sum();
        assert!((sum / want - 1.0).abs() < 0.02, "{sum} against {want}");
    }
}

/// AECP's second simulation, figure 8, at a tenth and shorter: five flows each way over 50 Mbit/s
/// and 50 ms, 40 web sources of 8 Mbit/s in all, and 16 Mbit/s of constant traffic from 40 to 80 s.
/// The forward flows' mean rates in Mbit/s before, during and after that, and the share lost.
fn disturbed(rival: Rival) -> ([f64; 3], f64) {
    let mut world = World::new();
    let there = rival.link(&mut world, link(50, 25, 312_500));
    let back = rival.link(&mut world, link(50, 25, 312_500));
    let forward: Vec<usize> =
        (0..5).map(|_| rival.flow(&mut world, Span::ZERO, &[there], &[back])).collect();
    for _ in 0..5 {
        rival.flow(&mut world, Span::ZERO, &[back], &[there]);
    }
    let mut beside = |mbps, pattern, after, seed| {
        let after = Span::from_secs(after);
        let rate = Rate::from_mbps(mbps);
        let source = Source::new(START + after, rate, Bytes(1_000), pattern, seed);
        world.flow(after, Box::new(source), Box::new(Sink::new()), &[there], &[])
    };
    let web = Pattern::OnOff { on: Span::from_millis(50), off: Span::from_millis(450) };
    for seed in 0..40 {
        beside(2, web, 0, seed);
    }
    let constant = beside(16, Pattern::Constant, 40, 0);
    world.stop_at(Span::from_secs(80), constant);
    world.run_for(Span::from_secs(105));
    let mean = |from, to| rates(&world, &forward, from, to).iter().sum::<f64>() / 5.0;
    let lost = world.lost(there) as f64 / world.seen(there) as f64;
    ([mean(25.0, 40.0), mean(47.0, 80.0), mean(90.0, 105.0)], lost)
}

#[test]
fn aecp_gives_way_to_constant_traffic_and_takes_its_place_again() {
    let (found, lost) = disturbed(Rival::Aecp);
    // What web, constant traffic and the acknowledgments of the other way leave: 43 bytes for each
    // 1,003 of theirs.
    let left = |other: f64| (50.0 - other) / 5.0 / (1.0 + 43.0 / 1_003.0);
    assert_near(&[found[0], found[2]], &[left(8.0); 2], 0.05);
    // A third of what comes now is without control, and moves.
    assert_near(&found[1..2], &[left(24.0)], 0.1);
    assert!(lost < 0.02, "{lost}");
}

/// Mean queue in bytes and use in Mbit/s of eight TCP flows over 50 Mbit/s, 40 ms.
fn eight_flows(router: Option<Box<dyn Control>>) -> (f64, f64) {
    let mut world = World::new();
    let spec = link(50, 0, 250_000);
    let bottleneck = match router {
        Some(router) => world.controlled_link(spec, router),
        None => world.link(spec),
    };
    let flows: Vec<usize> = (0..8)
        .map(|_| {
            let back = world.link(wire(40));
            Rival::Sack.flow(&mut world, Span::ZERO, &[bottleneck], &[back])
        })
        .collect();
    world.run_for(Span::from_secs(10));
    let mut sum = 0.0;
    world.watch(Span::from_secs(20), Span::from_millis(20), |world| {
        sum += world.queued(bottleneck).0 as f64;
    });
    (sum / 1_000.0, rates(&world, &flows, 10.0, 30.0).iter().sum())
}

#[test]
fn red_keeps_less_waiting_than_drop_tail_at_the_same_use() {
    let config = red::Config::new(Bytes(60_000), Bytes(180_000));
    let (red_queue, red_use) = eight_flows(Some(Box::new(red::Queue::new(config, 3))));
    let (tail_queue, tail_use) = eight_flows(None);
    assert!(red_queue < 0.5 * tail_queue, "{red_queue} against {tail_queue}");
    assert!(red_use > 0.95 * tail_use, "{red_use} against {tail_use}");
}

#[test]
fn pie_keeps_the_delay_near_its_reference_at_the_same_use() {
    let pie = pie::Queue::new(pie::Config::default(), 3);
    let (pie_queue, pie_use) = eight_flows(Some(Box::new(pie)));
    let (tail_queue, tail_use) = eight_flows(None);
    // 15 ms at 50 Mbit/s are 94 kB.
    assert!((40_000.0..140_000.0).contains(&pie_queue), "{pie_queue}, {tail_queue} without it");
    assert!(pie_use > 0.95 * tail_use, "{pie_use} against {tail_use}");
}
