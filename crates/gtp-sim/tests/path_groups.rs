//! Sessions of one path group: one share of the path for all of them, shared evenly among them.

use gtp_alloc::fairness::jain_index;
use gtp_alloc::{Rate, Span, Time};
use gtp_link::LinkSpec;
use gtp_peers::tcp::{Flavour, ReceiverConfig, SenderConfig};
use gtp_sim::packet::{HostSpec, NodeId, PeerEnds, SessionId, SessionSpec, World};

const RTT: Span = Span::from_millis(40);
const BIN: Span = Span::from_millis(10);

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

/// Two pairs of hosts of 1 Gbit/s whose packets meet on a link of 100 Mbit/s with one product of
/// queue.
fn narrow() -> (World, [[NodeId; 2]; 2]) {
    let mut world = World::new(7);
    world.trace_every(BIN).unwrap();
    let switches = [world.add_switch(), world.add_switch()];
    let rate = Rate::from_mbps(100);
    let half = RTT / 2;
    let neck = LinkSpec { rate, delay: half, queue: rate.bytes_in(RTT), ..LinkSpec::default() };
    let wide = LinkSpec { rate: Rate::from_mbps(10_000), delay: half, ..LinkSpec::default() };
    world.connect(switches[0], switches[1], neck).unwrap();
    world.connect(switches[1], switches[0], wide.clone()).unwrap();
    let pairs = [0, 1].map(|_| {
        switches.map(|switch| {
            let rate = Rate::from_mbps(1_000);
            let host = world.add_host(HostSpec { in_: rate, out: rate, ..HostSpec::default() });
            let near = LinkSpec { delay: Span::ZERO, ..wide.clone() };
            world.connect_both(host, switch, near).unwrap();
            host
        })
    });
    (world, pairs)
}

fn session(world: &mut World, [source, sink]: [NodeId; 2], start: Time) -> SessionId {
    world.add_session(SessionSpec { start, ..SessionSpec::new(source, sink) }).unwrap()
}

fn cubic(world: &mut World, [source, sink]: [NodeId; 2], start: Time) -> SessionId {
    let ends = PeerEnds {
        sender: Box::new(Flavour::Cubic.sender(start, SenderConfig::default(), 1)),
        receiver: Box::new(Flavour::Cubic.receiver(ReceiverConfig::default())),
    };
    let spec = SessionSpec { start, ..SessionSpec::new(source, sink) };
    world.add_peer_session(spec, ends).unwrap()
}

/// Mbit/s that arrived of a session between two times in milliseconds.
fn mbps(world: &World, id: SessionId, from: u64, to: u64) -> f64 {
    let bin = BIN.as_nanos() / 1_000_000;
    let (from, to) = ((from / bin) as usize, (to / bin) as usize);
    world.trace().mean_rate(id.0 as usize, from, to).as_f64() / 1e6
}

/// What sessions get together that join a CUBIC, and what they leave it, in Mbit/s: means over four
/// starts, since who begins when decides much.
fn beside_a_cubic(
    sessions: u64,
    join: fn(&mut World, [NodeId; 2], Time) -> SessionId,
) -> (f64, f64) {
    const STARTS: [u64; 4] = [3_000, 3_370, 3_740, 4_110];
    let (mut ours, mut theirs) = (0.0, 0.0);
    for start in STARTS {
        let (mut world, [one, two]) = narrow();
        let rival = cubic(&mut world, two, at(0));
        let all: Vec<_> =
            (0..sessions).map(|k| join(&mut world, one, at(start + 50 * k))).collect();
        world.run_until(at(40_000));
        let got: f64 = all.iter().map(|&id| mbps(&world, id, 16_000, 40_000)).sum();
        let left = mbps(&world, rival, 16_000, 40_000);
        println!("{sessions} sessions from {start} ms: {got:.1} beside {left:.1}");
        (ours, theirs) = (ours + got, theirs + left);
    }
    (ours / STARTS.len() as f64, theirs / STARTS.len() as f64)
}

#[test]
fn beside_a_cubic_two_eight_and_sixty_four_sessions_together_get_half_to_twice_what_one_cubic_gets()
{
    let (alike, _) = beside_a_cubic(1, cubic);
    for sessions in [1, 2, 8, 64] {
        let (ours, theirs) = beside_a_cubic(sessions, session);
        println!("{sessions} sessions: {ours:.1} beside {theirs:.1}, a CUBIC gets {alike:.1}");
        assert!((0.5..2.0).contains(&(ours / alike)), "{sessions} sessions: {ours:.1}");
        assert!(theirs > 0.5 * alike, "{sessions} sessions leave {theirs:.1}");
    }
}

#[test]
fn sessions_that_join_their_group_on_a_narrow_path_lose_less_than_a_thousandth() {
    let (mut world, [pair, _]) = narrow();
    let first = session(&mut world, pair, at(0));
    let later: Vec<_> = (0..7).map(|k| session(&mut world, pair, at(5_000 + 500 * k))).collect();
    world.run_until(at(5_000));
    let before = world.session(first).unwrap();
    world.run_until(at(12_000));
    let (mut lost, mut came) = (0, 0);
    for &id in &later {
        let status = world.session(id).unwrap();
        (lost, came) = (lost + status.lost, came + status.received_packets);
    }
    let all: f64 = later.iter().chain([&first]).map(|&id| mbps(&world, id, 9_000, 12_000)).sum();
    let status = world.session(first).unwrap();
    let firsts = status.lost - before.lost;
    println!("{lost} lost beside {came}, {firsts} of the first; {all:.1} Mbit/s in all");
    assert!(lost * 1_000 <= came, "{lost} lost beside {came}");
    assert!(firsts * 1_000 <= status.received_packets - before.received_packets);
    assert!(all > 90.0, "the path is used: {all:.1}");
}

#[test]
fn a_group_shares_evenly_within_five_round_trips_after_a_session_has_joined() {
    let (mut world, [pair, _]) = narrow();
    let mut all = vec![session(&mut world, pair, at(0))];
    for k in 0..7 {
        let joins = 5_000 + 1_000 * k;
        all.push(session(&mut world, pair, at(joins)));
        let (from, to) = (joins + 200, joins + 600);
        world.run_until(at(to));
        let rates: Vec<f64> = all.iter().map(|&id| mbps(&world, id, from, to)).collect();
        let jain = jain_index(&rates);
        println!("{} sessions: Jain {jain:.4}, {rates:.1?}", all.len());
        assert!(jain >= 0.99, "{} sessions: {jain:.4}, {rates:.1?}", all.len());
    }
}
