//! RBUDP, Tsunami, NETBLT, SABUL and UDT over links: rates reached, rounds paid for, every byte
//! there under any pattern of loss.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_path::{End, World, bdp, bottleneck, wire};
use gtp_peers::rate::netblt::{Burst, Terms};
use gtp_peers::rate::sabul::law::{Excess, PR0};
use gtp_peers::rate::{Transfer, netblt, rbudp, sabul, tsunami, udt};
use proptest::prelude::*;

const GIGA: Rate = Rate::from_mbps(1_000);

/// Both ends of a protocol.
type Pair = (Box<dyn End>, Box<dyn End>);

fn rbudp_at(transfer: Transfer, rate: Rate) -> Pair {
    (Box::new(rbudp::Sender::new(transfer, rate)), Box::new(rbudp::Receiver::new(transfer)))
}

fn tsunami_at(transfer: Transfer, rate: Rate, law: tsunami::Law) -> Pair {
    let sender = tsunami::Sender::new(transfer, rate, law);
    (Box::new(sender), Box::new(tsunami::Receiver::new(transfer)))
}

fn netblt_at(transfer: Transfer, rate: Rate) -> Pair {
    let terms = Terms { buffer: 512, open: 32, burst: Burst::at(rate, 8, &transfer) };
    (
        Box::new(netblt::Sender::new(transfer, terms)),
        Box::new(netblt::Receiver::new(transfer, terms)),
    )
}

fn paper() -> sabul::Law {
    sabul::Law::Paper { parameters: PR0, interface: GIGA, excess: Excess::Never }
}

const T: Span = Span::from_millis(200);

fn sabul_at(transfer: Transfer, law: sabul::Law, rate: Rate) -> Pair {
    (Box::new(sabul::Sender::new(transfer, law, rate)), Box::new(sabul::Receiver::new(transfer, T)))
}

fn udt_of(transfer: Transfer, version: udt::law::Version) -> Pair {
    (
        Box::new(udt::Sender::new(transfer, version, 25_600, 1)),
        Box::new(udt::Receiver::new(transfer)),
    )
}

/// A flow over a bottleneck with a round trip and one BDP of queue: the world, the flow, and the
/// links there and back.
fn alone(pair: Pair, rate: Rate, rtt: Span) -> (World, usize, usize) {
    let mut world = World::new();
    let there = world.link(bottleneck(rate, rtt / 2, bdp(rate, rtt)));
    let back = world.link(wire(rtt / 2));
    let flow = world.flow(Span::ZERO, pair.0, pair.1, &[there], &[back]);
    (world, flow, there)
}

#[test]
fn rbudp_pays_one_round_trip_for_each_round() {
    let rtt = Span::from_millis(50);
    let transfer = Transfer::of(Bytes(1_456 * 10_000));
    let mut times = Vec::new();
    // No loss; one block lost once; the same block lost in both rounds.
    for lost in [vec![], vec![700], vec![700, 10_001]] {
        let (mut world, flow, there) = alone(rbudp_at(transfer, GIGA.scale(0.9)), GIGA, rtt);
        world.lose(there, &lost);
        assert!(world.run_until_done(flow, Span::from_secs(5)));
        assert_eq!(world.sent(flow).repeated, lost.len() as u64);
        times.push(world.duration(flow).expect("done"));
    }
    // 10,000 packets at 900 Mbit/s, then half a round trip.
    assert!((times[0] - 0.1583).abs() < 1e-3, "{times:?}");
    assert!((times[1] - times[0] - 0.05).abs() < 1e-3, "{times:?}");
    assert!((times[2] - times[1] - 0.05).abs() < 1e-3, "{times:?}");
}

#[test]
fn rbudp_in_pieces_pays_one_round_trip_for_each_and_for_each_of_their_rounds() {
    let rtt = Span::from_millis(50);
    let transfer = Transfer::of(Bytes(1_456 * 30_000));
    let mut times = Vec::new();
    // Pieces that end within parts of the bitmap; one block lost in the second.
    for (piece, lost) in [(30_000, vec![]), (9_000, vec![]), (9_000, vec![9_500])] {
        let sender = rbudp::Sender::in_pieces(transfer, GIGA.scale(0.9), piece);
        let receiver = rbudp::Receiver::new(transfer);
        let pair: Pair = (Box::new(sender), Box::new(receiver));
        let (mut world, flow, there) = alone(pair, GIGA, rtt);
        world.lose(there, &lost);
        assert!(world.run_until_done(flow, Span::from_secs(5)));
        assert_eq!(world.sent(flow).repeated, lost.len() as u64);
        times.push(world.duration(flow).expect("done"));
    }
    assert!((times[1] - times[0] - 3.0 * 0.05).abs() < 2e-3, "{times:?}");
    assert!((times[2] - times[1] - 0.05).abs() < 1e-3, "{times:?}");
}

/// R5: eleven segments of bitmap cross in one window, or in windows of one, two, four and four,
/// the first of which is acknowledged late; or in threes, where there is no room for more.
#[test]
fn rbudp_pays_for_the_small_windows_of_its_control_connection() {
    let transfer = Transfer::of(Bytes(1_456 * 120_000));
    let usual = rbudp::Line { initial_window: 20.0, ..rbudp::Line::default() };
    let slow = rbudp::Line { initial_window: 1.0, ..usual };
    let narrow = rbudp::Line { buffer: Bytes(3 * 1_460), initial_window: 3.0, ..usual };
    let [usual, slow, narrow] = [usual, slow, narrow].map(|line| {
        let sender = rbudp::Sender::new(transfer, GIGA.scale(0.9)).over(line);
        let receiver = rbudp::Receiver::new(transfer).over(line);
        let pair: Pair = (Box::new(sender), Box::new(receiver));
        let (mut world, flow, there) = alone(pair, GIGA, Span::from_millis(50));
        world.lose(there, &[700]);
        assert!(world.run_until_done(flow, Span::from_secs(9)));
        world.duration(flow).expect("done")
    });
    assert!((slow - usual - (3.0 * 0.05 + 0.04)).abs() < 2e-3, "{usual} {slow}");
    assert!((0.149..0.28).contains(&(narrow - usual)), "{usual} {narrow}");
}

/// R5: the end of the first round is lost twice, and the timer's first and second wait are paid.
#[test]
fn rbudp_is_silent_for_a_second_and_then_for_two_where_an_end_of_round_is_lost() {
    let transfer = Transfer::of(Bytes(1_456 * 10_000));
    let mut times = Vec::new();
    for lost in [vec![700], vec![700, 10_000], vec![700, 10_000, 10_001]] {
        let pair = rbudp_at(transfer, GIGA.scale(0.9));
        let (mut world, flow, there) = alone(pair, GIGA, Span::from_millis(50));
        world.lose(there, &lost);
        assert!(world.run_until_done(flow, Span::from_secs(5)));
        assert_eq!(world.sent(flow).repeated, 1, "the block, and only it");
        times.push(world.duration(flow).expect("done"));
    }
    assert!((times[1] - times[0] - 1.0).abs() < 1e-3, "{times:?}");
    assert!((times[2] - times[1] - 2.0).abs() < 1e-3, "{times:?}");
}

#[test]
fn rbudp_does_not_slow_down_for_losses() {
    let transfer = Transfer::of(Bytes(100_000_000));
    let (mut world, flow, there) =
        alone(rbudp_at(transfer, GIGA), Rate::from_mbps(500), Span::from_millis(20));
    assert!(world.run_until_done(flow, Span::from_secs(20)));
    // Half of each round is lost, for the queue is far smaller than the first round.
    let share = world.lost(there) as f64 / world.sent(flow).sent as f64;
    assert!((0.40..0.55).contains(&share), "{share}");
    assert_eq!(world.sent(flow).rate, GIGA);
}

#[test]
fn a_rate_that_the_path_carries_is_reached_by_each_mover_alone() {
    let rtt = Span::from_millis(58);
    let rate = GIGA.scale(0.9);
    let endless = Transfer::ENDLESS;
    let movers = [
        ("rbudp", rbudp_at(endless, rate)),
        ("tsunami", tsunami_at(endless, rate, tsunami::Law::Released)),
        ("netblt", netblt_at(endless, rate)),
    ];
    for (name, pair) in movers {
        let (mut world, flow, there) = alone(pair, GIGA, rtt);
        world.run_for(Span::from_secs(4));
        let share = world.wire_rate(flow, 1.0, 4.0) / 900e6;
        assert!((share - 1.0).abs() < 0.01, "{name}: {share}");
        assert_eq!(world.lost(there), 0, "{name}");
    }
}

#[test]
fn udt_alone_fills_nine_tenths_of_a_gigabit_at_58_ms() {
    for version in [udt::law::Version::One, udt::law::Version::Four] {
        let pair = udt_of(Transfer::ENDLESS, version);
        let (mut world, flow, _) = alone(pair, GIGA, Span::from_millis(58));
        world.run_for(Span::from_secs(30));
        let share = world.goodput(flow, 5.0, 30.0) / 1e9;
        assert!(share >= 0.9, "{version:?}: {share}");
    }
}

#[test]
fn sabul_alone_rises_and_falls_about_the_bottleneck() {
    // The release raises by 3 Mbit/s each second here: a minute holds one fall and half a rise.
    for (law, first, least) in [(paper(), 300, 0.85), (sabul::Law::Release(T), 470, 0.7)] {
        let pair = sabul_at(Transfer::ENDLESS, law.clone(), Rate::from_mbps(first));
        let (mut world, flow, _) = alone(pair, Rate::from_mbps(500), Span::from_millis(50));
        let mut rates = Vec::new();
        world.watch(Span::from_secs(60), T, |w| rates.push(w.sent(flow).rate.as_f64()));
        let rises = rates.windows(2).filter(|w| w[1] > w[0]).count();
        let falls = rates.windows(2).filter(|w| w[1] < w[0]).count();
        assert!(rises > 3 && falls >= 1, "{law:?}: {rises} {falls}");
        let mean = world.goodput(flow, 20.0, 60.0) / 500e6;
        assert!((least..1.0).contains(&mean), "{law:?}: {mean}");
    }
}

/// The rate in Mbit/s that Tsunami's laws T3 and T4 come to after `reports` reports at a bottleneck
/// of `link` Mbit/s, from `target`: of what a report's period sends, what the bottleneck does not
/// carry is asked for, whether it was new or sent again.
fn tsunami_after(reports: u32, target: f64, link: f64) -> f64 {
    let bits = Transfer::ENDLESS.packet().0 as f64 * 8.0;
    let (mut rate, mut error) = (target, 0.0);
    for _ in 0..reports {
        let blocks = |rate: f64| (rate * 0.35e6 / bits).round() as u64;
        let lost = blocks((rate - link).max(0.0));
        error = gtp_laws::tsunami::smooth_error(error, lost, blocks(rate.min(link)));
        let delay = |rate: f64| bits / (rate * 1e6);
        rate = bits / 1e6 / gtp_laws::tsunami::next_delay(delay(rate), error, delay(target));
    }
    rate
}

#[test]
fn tsunami_slows_down_above_its_threshold_as_its_laws_say_and_its_fixed_law_does_not() {
    let mut rates = Vec::new();
    for (law, times) in [(tsunami::Law::Fixed, 1), (tsunami::Law::Released, 3)] {
        let pair = tsunami_at(Transfer::ENDLESS, GIGA, law);
        let (mut world, flow, _) = alone(pair, Rate::from_mbps(400), Span::from_millis(20));
        for _ in 0..times {
            world.run_for(Span::from_secs(20));
            rates.push(world.sent(flow).rate.as_f64() / 1e6);
        }
    }
    assert_eq!(rates[0], 1_000.0);
    // After 20, 40 and 60 s, at a report each 350 ms.
    for (found, reports) in rates[1..].iter().zip([57, 114, 171]) {
        let want = tsunami_after(reports, 1_000.0, 400.0);
        assert!((found / want - 1.0).abs() < 0.1, "{reports}: {found} for {want}");
    }
}

#[test]
fn netblt_sends_no_faster_than_its_receiver_reads() {
    let transfer = Transfer::ENDLESS;
    let (mut world, flow, _) =
        alone(netblt_at(transfer, GIGA.scale(0.9)), GIGA, Span::from_millis(20));
    world.demand_at(Span::ZERO, flow, gtp_path::Side::Receiver, Some(Rate::from_mbps(200)));
    world.run_for(Span::from_secs(6));
    let read = world.goodput(flow, 2.0, 6.0);
    assert!((read / 200e6 - 1.0).abs() < 0.05, "{read}");
}

#[test]
fn a_sender_keeps_below_its_applications_rate() {
    let transfer = Transfer::ENDLESS;
    let pairs = [
        rbudp_at(transfer, GIGA),
        tsunami_at(transfer, GIGA, tsunami::Law::Released),
        netblt_at(transfer, GIGA),
        sabul_at(transfer, paper(), GIGA.scale(0.9)),
        udt_of(transfer, udt::law::Version::Four),
    ];
    for (i, pair) in pairs.into_iter().enumerate() {
        let (mut world, flow, _) = alone(pair, GIGA, Span::from_millis(20));
        world.demand_at(Span::ZERO, flow, gtp_path::Side::Sender, Some(Rate::from_mbps(100)));
        world.run_for(Span::from_secs(3));
        let rate = world.wire_rate(flow, 1.0, 3.0) / 100e6;
        // UDT's pairs come on top: one packet in sixteen does not wait.
        let most = if i == 4 { 1.08 } else { 1.01 };
        assert!((0.98..most).contains(&rate), "{i}: {rate}");
    }
}

/// Which packets a link loses: each of the first `n` with some chance, by a drawn list.
fn losses() -> impl Strategy<Value = Vec<u64>> {
    let few = proptest::collection::vec(0..400u64, 0..60);
    let many = (1..5u64, 0..120u64).prop_map(|(step, n)| (0..n).map(|i| i * step).collect());
    let run = (0..150u64, 0..200u64).prop_map(|(from, n)| (from..from + n).collect());
    prop_oneof![few, many, run]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Data, control or both: whatever is lost, everything arrives.
    #[test]
    fn every_byte_arrives_under_any_pattern_of_loss(
        there in losses(), back in losses(), which in 0..7usize, blocks in 1..200u64,
    ) {
        let transfer = Transfer::of(Bytes(blocks * 1_456 - 7));
        let rate = Rate::from_mbps(40);
        let pair = match which {
            0 => rbudp_at(transfer, rate),
            1 => tsunami_at(transfer, rate, tsunami::Law::Released),
            2 => tsunami_at(transfer, rate, tsunami::Law::Fixed),
            3 => netblt_at(transfer, rate),
            4 => sabul_at(transfer, paper(), rate),
            5 => sabul_at(transfer, sabul::Law::Release(T), rate),
            _ => udt_of(transfer, udt::law::Version::Four),
        };
        let mut world = World::new();
        let (narrow, way) = (Rate::from_mbps(50), Span::from_millis(10));
        let forth = world.link(bottleneck(narrow, way, Bytes(60_000)));
        let home = world.link(wire(Span::from_millis(10)));
        world.lose(forth, &there);
        world.lose(home, &back);
        let flow = world.flow(Span::ZERO, pair.0, pair.1, &[forth], &[home]);
        // TCP's timer rings once a minute at the rarest, and 400 packets at most are lost. UDT's
        // waits longer each time that nothing is heard, too.
        let patience = if matches!(which, 0 | 6) { 400 * 60 } else { 400 };
        world.run_for(Span::from_secs(patience));
        prop_assert!(world.received(flow).done, "{which}: {:?}", world.received(flow));
        prop_assert!(world.sent(flow).done, "{which}: the sender does not know");
        prop_assert_eq!(world.received(flow).delivered, Bytes(blocks * 1_456 - 7));
    }
}
