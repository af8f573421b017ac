//! Several sessions in virtual time: shares, settling, hidden bottlenecks, slow producers.

mod world;

use gtp_alloc::{Rate, Span};
use gtp_link::{Chance, LinkSpec};
use gtp_proto::Law;
use world::{FlowSpec, READ_AHEAD, World};

const RTT_MS: [u64; 5] = [1, 1, 60, 60, 140];

struct FiveToOne {
    world: World,
    sink: usize,
    sources: Vec<usize>,
    access: usize,
    paths: Vec<(usize, usize)>,
}

fn five_to_one(queue_ms: u64, interval: Option<Span>) -> FiveToOne {
    let mut world = World::new();
    let rate = Rate::from_mbps(700);
    let queue = rate.bytes_in(Span::from_millis(queue_ms));
    let access = world.link(LinkSpec { rate, queue, ..LinkSpec::default() });
    let sink = world.host(Rate::UNLIMITED, Rate::from_mbps(630), interval);
    let mut sources = Vec::new();
    let mut paths = Vec::new();
    for rtt in RTT_MS {
        let half = Span::from_millis(rtt) / 2;
        let there = world.link(LinkSpec { delay: half, ..LinkSpec::default() });
        let back = world.link(LinkSpec { delay: half, ..LinkSpec::default() });
        paths.push((there, back));
        sources.push(world.host(Rate::UNLIMITED, Rate::UNLIMITED, interval));
    }
    FiveToOne { world, sink, sources, access, paths }
}

impl FiveToOne {
    fn join(&mut self, i: usize, law: Law) -> usize {
        let (there, back) = self.paths[i];
        self.world.flow(FlowSpec {
            source: self.sources[i],
            sink: self.sink,
            down: vec![there, self.access],
            up: vec![back],
            law,
            weight: 1.0,
            max_rate: Rate::UNLIMITED,
            units: 1 << 40,
        })
    }

    /// Seconds after `from` from which on every live flow is within 5 % of its share, over windows
    /// of 100 ms, until `to`.
    fn settled(&self, flows: &[usize], share: f64, from: f64, to: f64) -> f64 {
        let mut last = from;
        let steps = ((to - from) / 0.05) as usize;
        for i in 0..steps.saturating_sub(1) {
            let t = from + 0.05 * i as f64;
            let off = flows.iter().any(|&f| {
                let rate = self.world.rate(f, t, t + 0.1);
                (rate - share).abs() > 0.05 * share
            });
            if off {
                last = t + 0.1;
            }
        }
        last - from
    }
}

fn one_by_one(queue_ms: u64, law: Law, interval: Option<Span>, step: f64) -> Vec<f64> {
    let mut net = five_to_one(queue_ms, interval);
    let mut live = Vec::new();
    let mut settling = Vec::new();
    let span = Span::from_secs_f64(step);
    for i in 0..5 {
        let from = net.world.elapsed();
        live.push(net.join(i, law));
        net.world.run_for(span);
        let share = 630e6 / live.len() as f64;
        settling.push(net.settled(&live, share, from, net.world.elapsed()));
    }
    for _ in 0..4 {
        let from = net.world.elapsed();
        net.world.close(live.remove(0));
        net.world.run_for(span);
        let share = 630e6 / live.len() as f64;
        settling.push(net.settled(&live, share, from, net.world.elapsed()));
    }
    assert_eq!(net.world.links[net.access].stats().drops.queue.packets, 0, "{law:?}");
    settling
}

#[test]
fn five_sessions_one_by_one_settle_within_a_second_without_loss() {
    for queue_ms in [100, 5] {
        let settling = one_by_one(queue_ms, Law::Grant, None, 2.0);
        assert!(settling.iter().all(|&s| s <= 1.0), "{settling:?}");
    }
}

#[test]
fn five_sessions_under_the_end_node_law_reach_equal_shares() {
    let law = Law::EndNode { alpha: 0.1, beta: 0.2 };
    let settling = one_by_one(100, law, Some(Span::from_millis(20)), 8.0);
    assert!(settling.iter().all(|&s| s < 7.5), "{settling:?}");
}

#[test]
fn the_end_node_law_raises_sessions_whose_packets_are_rarer_than_its_intervals() {
    // From alpha 0.1 of a share of 0.6 Mbit/s, a packet of 1,477 bytes takes 200 ms.
    let mut world = World::new();
    let sink = world.host(Rate::UNLIMITED, Rate::from_mbps(3), None);
    let delay = Span::from_millis(10);
    let flows: Vec<usize> = (0..5)
        .map(|_| {
            let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
            let link = |world: &mut World| world.link(LinkSpec { delay, ..LinkSpec::default() });
            let (down, up) = (vec![link(&mut world)], vec![link(&mut world)]);
            world.flow(FlowSpec {
                source,
                sink,
                down,
                up,
                law: Law::EndNode { alpha: 0.1, beta: 0.2 },
                weight: 1.0,
                max_rate: Rate::UNLIMITED,
                units: 1 << 40,
            })
        })
        .collect();
    world.run_for(Span::from_secs(8));
    for flow in flows {
        let rate = world.rate(flow, 6.0, 8.0);
        assert!((rate - 600_000.0).abs() < 30_000.0, "{rate}");
    }
}

#[test]
fn five_sessions_together_get_equal_shares() {
    let mut net = five_to_one(5, None);
    let flows: Vec<usize> = (0..5).map(|i| net.join(i, Law::Grant)).collect();
    net.world.run_for(Span::from_secs(5));
    let rates: Vec<f64> = flows.iter().map(|&f| net.world.rate(f, 2.0, 5.0)).collect();
    assert!(gtp_alloc::fairness::jain_index(&rates) > 0.9999);
    assert!(rates.iter().sum::<f64>() > 0.99 * 630e6);
}

#[test]
fn two_sessions_share_a_hidden_bottleneck() {
    for loss in [0.0, 0.01] {
        let mut world = World::new();
        let rate = Rate::from_mbps(300);
        let queue = rate.bytes_in(Span::from_millis(100));
        let loss_chance = Chance::from_billionths((loss * 1e9) as u32);
        let middle = world.link(LinkSpec { rate, queue, ..LinkSpec::default() });
        let sink = world.host(Rate::UNLIMITED, Rate::from_mbps(630), None);
        let mut flows = Vec::new();
        for rtt in [60, 60] {
            let half = Span::from_millis(rtt) / 2;
            let there =
                world.link(LinkSpec { delay: half, loss: loss_chance, ..LinkSpec::default() });
            let back = world.link(LinkSpec { delay: half, ..LinkSpec::default() });
            let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
            flows.push(world.flow(FlowSpec {
                source,
                sink,
                down: vec![there, middle],
                up: vec![back],
                law: Law::Grant,
                weight: 1.0,
                max_rate: Rate::UNLIMITED,
                units: 1 << 40,
            }));
            world.run_for(Span::from_secs(3));
        }
        let before = *world.links[middle].stats();
        world.run_for(Span::from_secs(20));
        let after = *world.links[middle].stats();
        let dropped = after.drops.queue.packets - before.drops.queue.packets;
        let offered = after.offered.packets - before.offered.packets;
        assert!((dropped as f64) < 0.005 * offered as f64, "{dropped} of {offered}");
        let rates: Vec<f64> = flows.iter().map(|&f| world.rate(f, 16.0, 26.0)).collect();
        assert!(rates.iter().sum::<f64>() > 0.9 * 300e6);
        assert!(gtp_alloc::fairness::jain_index(&rates) > 0.9, "{rates:?}");
    }
}

#[test]
fn a_slow_producer_keeps_its_rate_and_leaves_the_rest_to_others() {
    let mut net = five_to_one(100, None);
    let slow = net.join(2, Law::Grant);
    net.world.flows[slow].producer = 50e6 * 1400.0 / 1477.0;
    let greedy = [net.join(0, Law::Grant), net.join(3, Law::Grant)];
    net.world.run_for(Span::from_secs(4));
    let rate = |net: &FiveToOne, f| net.world.rate(f, 2.0, 4.0) / 1e6;
    assert!((rate(&net, slow) - 50.0).abs() < 1.5);
    for g in greedy {
        assert!((rate(&net, g) - 290.0).abs() < 0.04 * 290.0);
    }
    net.world.flows[slow].producer = f64::INFINITY;
    net.world.run_for(Span::from_secs(3));
    let all = [slow, greedy[0], greedy[1]];
    let settled = net.settled(&all, 210e6, 4.0, 7.0);
    assert!(settled <= 1.0);
    assert_eq!(net.world.links[net.access].stats().drops.queue.packets, 0);
}

/// What a flow over 60 ms brings, in Mbit/s, in the first second after its application began to be
/// greedy: at once, or after so many milliseconds in which it said a little.
fn first_second(little_ms: u64) -> f64 {
    let mut net = five_to_one(100, None);
    let flow = net.join(2, Law::Grant);
    if little_ms > 0 {
        net.world.flows[flow].producer = 100e3;
        net.world.run_for(Span::from_millis(little_ms));
        net.world.flows[flow].producer = f64::INFINITY;
    }
    let from = net.world.elapsed();
    net.world.run_for(Span::from_secs(1));
    net.world.rate(flow, from, from + 1.0) / 1e6
}

#[test]
fn an_application_that_had_said_little_is_brought_about_as_fast_as_a_new_session() {
    let (new, soon, later) = (first_second(0), first_second(300), first_second(2_000));
    // A new session opens its path first, an older one is fed back to less often. Trains need up to
    // six round trips of 60 ms until the rate is reached.
    let all = format!("{new:.0}, {soon:.0} and {later:.0} Mbit/s");
    assert!(soon > 400.0 && later > 0.8 * new && new > 400.0, "{all}");
}

#[test]
fn a_slow_reader_before_a_full_buffer_leaves_the_rest_to_others() {
    for reader in [0.0, 20e6] {
        let mut net = five_to_one(100, None);
        let (there, back) = net.paths[2];
        let slow = net.world.flow(FlowSpec {
            source: net.sources[2],
            sink: net.sink,
            down: vec![there, net.access],
            up: vec![back],
            law: Law::Grant,
            weight: 1.0,
            max_rate: Rate::UNLIMITED,
            units: READ_AHEAD,
        });
        net.world.flows[slow].reader = reader;
        let greedy = net.join(0, Law::Grant);
        net.world.run_for(Span::from_secs(8));
        let rates = [slow, greedy].map(|f| net.world.rate(f, 3.0, 8.0) / 1e6);
        let expected = reader / 1e6 * 1_477.0 / 1_400.0;
        assert!((rates[0] - expected).abs() < 0.1 * expected + 0.1, "{rates:?}");
        // Half a window takes longer than 100 ms at a tenth and 1 Mbit/s more: that doubles once.
        assert!(rates[1] > 630.0 - 2.0 * (1.1 * expected + 1.0) - 2.0, "{rates:?}");
    }
}

#[test]
fn silence_of_feedback_stops_the_source_within_a_second() {
    let mut net = five_to_one(100, None);
    let flow = net.join(2, Law::Grant);
    net.world.run_for(Span::from_secs(2));
    net.world.flows[flow].silent_feedback = true;
    net.world.run_for(Span::from_secs(1));
    let sent = net.world.flows[flow].source.counters().packets;
    net.world.run_for(Span::from_secs(2));
    assert_eq!(net.world.flows[flow].source.counters().packets, sent);
}

#[test]
fn a_source_that_says_farewell_frees_its_grant_without_a_lease() {
    let mut net = five_to_one(100, None);
    let flow = net.join(2, Law::Grant);
    net.world.run_for(Span::from_secs(1));
    net.world.flows[flow].source.close();
    net.world.close(flow);
    net.world.run_for(Span::from_millis(200));
    assert!(!net.world.flows[flow].alive, "finished within two round trips");
}

/// What fifty sessions bring to a sink of this capacity, as parts of it: the most, statuses and
/// all, in any span of `seconds`, and what moves of data.
fn fifty(capacity: Rate, seconds: usize) -> (f64, f64) {
    let mut world = World::new();
    let rate = Rate::from_mbps(200);
    let queue = rate.bytes_in(Span::from_millis(100));
    let access = world.link(LinkSpec { rate, queue, ..LinkSpec::default() });
    let sink = world.host(Rate::UNLIMITED, capacity, None);
    let delay = Span::from_millis(10);
    let link = |world: &mut World| world.link(LinkSpec { delay, ..LinkSpec::default() });
    for _ in 0..5 {
        let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
        let (there, back) = (link(&mut world), link(&mut world));
        for _ in 0..10 {
            world.flow(FlowSpec {
                source,
                sink,
                down: vec![there, access],
                up: vec![back],
                law: Law::Grant,
                weight: 1.0,
                max_rate: Rate::UNLIMITED,
                units: 1 << 40,
            });
            world.run_for(Span::from_millis(7));
        }
    }
    world.run_for(Span::from_secs(2));
    let mut arrived = Vec::new();
    for _ in 0..100 * (seconds + 2) {
        arrived.push(world.links[access].stats().carried.bytes);
        world.run_for(Span::from_millis(10));
    }
    let most = arrived
        .iter()
        .zip(&arrived[100 * seconds..])
        .map(|(a, b)| (*b - *a).0)
        .max()
        .expect("some");
    let at = world.elapsed();
    let moved: f64 = (0..50).map(|f| world.rate(f, at - 3.0, at)).sum();
    (most as f64 * 8.0 / seconds as f64 / capacity.as_f64(), moved / capacity.as_f64())
}

#[test]
fn fifty_slow_sessions_bring_no_more_than_the_capacity_statuses_and_all() {
    // At 1 Mbit/s each a session's statuses, one an interval of 10 ms, are 8 % of its data.
    let (most, moved) = fifty(Rate::from_mbps(50), 1);
    assert!(most <= 1.005, "{most}");
    assert!(moved >= 0.9, "{moved}");
}

#[test]
fn sessions_whose_grants_are_less_than_their_statuses_would_be_keep_to_the_capacity() {
    // At 30 kbit/s each, where one an interval would be three times as much; a packet takes a third
    // of a second.
    let (most, moved) = fifty(Rate::from_bps(1_500_000), 20);
    assert!(most <= 1.005, "{most}");
    assert!(moved >= 0.5, "{moved}");
}
