//! Sessions in small worlds: what they reach, what they survive, and exact counts on links.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Chance, Change, Jitter, LinkSpec, Order};
use gtp_proto::Law;
use gtp_sim::packet::{
    Action, AgentState, BackgroundSpec, BuildError, ClockSpec, HostSpec, NodeId, Pace, Path,
    Pattern, SessionId, SessionSpec, Standing, Volume, World,
};

const fn s(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

const fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

const fn mbps(n: u64) -> Rate {
    Rate::from_mbps(n)
}

/// A link that is never the bottleneck, with half of this round-trip time.
fn long(rtt: u64) -> LinkSpec {
    LinkSpec {
        rate: mbps(1_000),
        delay: Span::from_micros(rtt * 500),
        queue: Bytes(4 << 20),
        ..LinkSpec::default()
    }
}

/// One sink of this capacity, and sources of these capacities at these round-trip times (ms).
fn star(sink: Rate, sources: &[(u64, u64)]) -> (World, NodeId, Vec<NodeId>) {
    let mut world = World::new(3);
    let middle = world.add_switch();
    let to = world.add_host(HostSpec { in_: sink, ..HostSpec::default() });
    world.connect_both(middle, to, long(0)).unwrap();
    let mut hosts = Vec::new();
    for &(capacity, rtt) in sources {
        let host = world.add_host(HostSpec { out: mbps(capacity), ..HostSpec::default() });
        world.connect_both(host, middle, long(rtt)).unwrap();
        hosts.push(host);
    }
    world.trace_every(Span::from_millis(100)).unwrap();
    (world, to, hosts)
}

/// Mbit/s of a session between two times in tenths of a second.
fn rate(world: &World, session: SessionId, from: usize, to: usize) -> f64 {
    world.trace().mean_rate(session.0 as usize, from, to).as_f64() / 1e6
}

fn near(got: f64, wanted: f64, part: f64) {
    assert!((got - wanted).abs() <= part * wanted, "{got:.3} instead of {wanted:.3}");
}

#[test]
fn a_single_session_reaches_its_grant_and_keeps_it() {
    let (mut world, sink, hosts) = star(mbps(100), &[(800, 20)]);
    let id = world.add_session(SessionSpec::new(hosts[0], sink)).unwrap();
    world.run_until(s(6));
    near(rate(&world, id, 10, 60), 100.0, 0.005);
    let status = world.session(id).unwrap();
    assert_eq!((status.granted, status.standing), (mbps(100), Standing::Live));
    assert_eq!((status.lost, status.duplicates, status.discards), (0, 0, 0));
    near(status.rtt.as_secs_f64(), 0.020, 0.1);
    assert_eq!(world.base_rtt(id), Some(Span::from_millis(20)));
}

#[test]
fn feedback_that_overtakes_feedback_leaves_the_ramp_where_it_is() {
    // Under this law a sink speaks twice in each interval, a millisecond or two apart, and the way
    // back brings the second word first as often as not.
    let mut world = World::new(4);
    let sink = world.add_host(HostSpec { in_: mbps(18), ..HostSpec::default() });
    let law = Law::EndNode { alpha: 0.1, beta: 0.2 };
    let sessions = [9, 30].map(|capacity| {
        let source = world.add_host(HostSpec { out: mbps(capacity), ..HostSpec::default() });
        let jitter = Jitter { span: Span::from_millis(6), order: Order::Free };
        let way = LinkSpec { jitter, ..long(150) };
        let (there, back) = (world.add_link(way.clone()), world.add_link(way));
        let (down, up) = (Path::Links(vec![there]), Path::Links(vec![back]));
        let spec = SessionSpec { law, down, up, ..SessionSpec::new(source, sink) };
        world.add_session(spec).unwrap()
    });
    world.trace_every(Span::from_millis(100)).unwrap();
    world.run_until(s(600));
    // 64 packets a round trip, and an interval beside it.
    let least = 64.0 * 1_500.0 * 8.0 / 0.160 / 1e6;
    for id in sessions {
        let worst = (200..6_000).map(|k| rate(&world, id, k, k + 1)).fold(f64::INFINITY, f64::min);
        assert!(
            worst > 1.25 * least,
            "{worst:.2} Mbit/s of 9, where the ramp begins at {least:.2}"
        );
    }
}

#[test]
fn a_path_far_slower_than_both_ends_is_climbed_by_steps_that_its_queue_can_hold() {
    for (path, rtt) in [(20, 20), (100, 1), (100, 20), (500, 60)] {
        let mut world = World::new(5);
        let fast = HostSpec { out: mbps(10_000), in_: mbps(10_000), ..HostSpec::default() };
        let [source, sink] = [(); 2].map(|()| world.add_host(fast.clone()));
        let queue = mbps(path).bytes_in(Span::from_millis(20));
        let link = LinkSpec { rate: mbps(path), queue, ..long(rtt) };
        world.connect_both(source, sink, link).unwrap();
        let id = world.add_session(SessionSpec::new(source, sink)).unwrap();
        let [start, end] = [2, 10].map(|at| {
            world.run_until(s(at));
            let status = world.session(id).unwrap();
            (status.lost as f64, status.received_packets as f64)
        });
        let (lost, came) = (end.0 - start.0, end.1 - start.1);
        let full = path as f64 * 1e6 * 8.0 / (8.0 * 1_477.0);
        assert!(lost < 0.001 * came, "{path} Mbit/s, {rtt} ms: {lost} packets beside {came}");
        assert!(came > 0.95 * full, "{path} Mbit/s, {rtt} ms: {came} packets of {full}");
    }
}

#[test]
fn five_sources_at_1_to_140_ms_reach_the_max_min_shares_of_one_sink() {
    let sources = [(50, 1), (300, 1), (300, 60), (80, 60), (300, 140)];
    let (mut world, sink, hosts) = star(mbps(500), &sources);
    let ids: Vec<_> =
        hosts.iter().map(|&h| world.add_session(SessionSpec::new(h, sink)).unwrap()).collect();
    world.run_until(s(6));
    // 50 and 80 are limited by their sources; 370 are left for three.
    let fair = [50.0, 370.0 / 3.0, 370.0 / 3.0, 80.0, 370.0 / 3.0];
    for (&id, fair) in ids.iter().zip(fair) {
        near(rate(&world, id, 30, 60), fair, 0.01);
    }
    assert!(ids.iter().all(|&id| world.session(id).unwrap().lost == 0));
}

#[test]
fn the_thesis_law_shares_a_sink_too() {
    let (mut world, sink, hosts) = star(mbps(120), &[(300, 20), (300, 20)]);
    let law = Law::EndNode { alpha: 0.25, beta: 0.01 };
    let ids: Vec<_> = hosts
        .iter()
        .map(|&h| world.add_session(SessionSpec { law, ..SessionSpec::new(h, sink) }).unwrap())
        .collect();
    world.run_until(s(20));
    ids.iter().for_each(|&id| near(rate(&world, id, 150, 200), 60.0, 0.05));
}

#[test]
fn what_a_slow_producer_leaves_goes_to_the_others() {
    let (mut world, sink, hosts) = star(mbps(100), &[(300, 10), (300, 10)]);
    let supply = Pace::Script(vec![(s(0), mbps(10)), (s(5), mbps(1_000))]);
    let slow = SessionSpec { supply, ..SessionSpec::new(hosts[0], sink) };
    let slow = world.add_session(slow).unwrap();
    let other = world.add_session(SessionSpec::new(hosts[1], sink)).unwrap();
    world.run_until(s(10));
    // 10 Mbit/s of payload in 1,400 of 1,477 bytes.
    let offered = 10.0 * 1_477.0 / 1_400.0;
    near(rate(&world, slow, 30, 50), offered, 0.02);
    near(rate(&world, other, 30, 50), 100.0 - 1.1 * offered - 1.0, 0.02);
    near(rate(&world, slow, 70, 100), 50.0, 0.02);
    near(rate(&world, other, 70, 100), 50.0, 0.02);
}

#[test]
fn a_slow_reader_takes_what_it_reads_and_holds_no_more_than_its_memory() {
    let (mut world, sink, hosts) = star(mbps(100), &[(300, 10), (300, 10)]);
    let memory = Bytes(2 << 20);
    let reader = Pace::constant(mbps(8));
    let slow = SessionSpec { reader, memory, ..SessionSpec::new(hosts[0], sink) };
    let slow = world.add_session(slow).unwrap();
    let other = world.add_session(SessionSpec::new(hosts[1], sink)).unwrap();
    for second in 1..10 {
        world.run_until(s(second));
        let read = second * 1_000_000;
        let unread = world.session(slow).unwrap().payload.0.saturating_sub(read);
        assert!(unread <= memory.0, "{unread} bytes are held after {second} s");
    }
    near(rate(&world, slow, 60, 90), 8.0 * 1_477.0 / 1_400.0, 0.03);
    assert!(rate(&world, other, 60, 90) > 85.0);
}

#[test]
fn a_volume_arrives_whole_through_losses_copies_and_reordering_and_the_session_ends() {
    // The farewell is said once, and no control channel says the same here.
    let (heard, ended) = (1..20)
        .map(|seed| (seed, a_volume_arrives(seed, None)))
        .find_map(|(seed, world)| (world.over <= s(20)).then_some((seed, world.ended)))
        .expect("of 19 farewells one is heard");
    // The same world, but the way back fails when the session ends.
    let lost = a_volume_arrives(heard, Some(ended));
    assert!(
        lost.over > s(20),
        "seed {heard}: the source goes on until it has heard nothing for 30 s"
    );
}

/// When a session ended at its sink, and when at last nobody had anything to do.
struct Ended {
    ended: Time,
    over: Time,
}

/// A volume over a rough link, of which what goes back is lost for a moment from `cut` on.
fn a_volume_arrives(seed: u64, cut: Option<Time>) -> Ended {
    let mut world = World::new(seed);
    let [a, b] = [(); 2].map(|()| world.add_host(HostSpec::default()));
    let rough = LinkSpec {
        rate: mbps(50),
        loss: Chance::from_percent(2),
        duplicate: Chance::from_percent(1),
        reorder: gtp_link::Reorder { chance: Chance::from_percent(1), extra: Span::from_millis(3) },
        ..long(30)
    };
    let [_, back] = world.connect_both(a, b, rough).unwrap();
    world.trace_packets(1 << 22);
    if let Some(cut) = cut {
        world.at(cut, Action::Link(back, Change::DOWN)).unwrap();
        world.at(cut + Span::from_millis(5), Action::Link(back, Change::UP)).unwrap();
    }
    let volume = Volume::Bytes(Bytes(5_000_001));
    let id = world.add_session(SessionSpec { volume, ..SessionSpec::new(a, b) }).unwrap();
    let mut over = s(20);
    world.run_until(over);
    let early = world.events();
    world.run_until(s(40));
    if world.events() > early {
        over = s(40);
    }
    let status = world.session(id).unwrap();
    assert_eq!((status.standing, status.payload), (Standing::Done, Bytes(5_000_001)));
    let ended = status.ended.unwrap();
    assert!(ended < s(8) && status.lost > 20, "seed {seed}: {status:?}");
    let events = world.events();
    world.run_until(s(80));
    assert_eq!(world.events(), events, "seed {seed}: nobody is left with anything to do");
    world.verify().unwrap();
    Ended { ended, over }
}

#[test]
fn sessions_join_and_leave_and_the_rest_share_what_there_is() {
    let (mut world, sink, hosts) = star(mbps(90), &[(300, 20), (300, 40), (300, 80)]);
    let spec = |i: usize| SessionSpec::new(hosts[i], sink);
    let a = world.add_session(spec(0)).unwrap();
    let b = world.add_session(SessionSpec { start: s(3), ..spec(1) }).unwrap();
    let c = world.add_session(SessionSpec { start: s(3), stop: Some(s(6)), ..spec(2) }).unwrap();
    world.run_until(s(9));
    near(rate(&world, a, 10, 30), 90.0, 0.01);
    [a, b, c].iter().for_each(|&id| near(rate(&world, id, 45, 60), 30.0, 0.02));
    [a, b].iter().for_each(|&id| near(rate(&world, id, 75, 90), 45.0, 0.02));
    assert_eq!(world.session(c).unwrap().standing, Standing::Stopped);
}

#[test]
fn a_cut_link_a_standstill_and_dead_agents_pass_and_the_rates_come_back() {
    let (mut world, sink, hosts) = star(mbps(100), &[(300, 20), (300, 60)]);
    let ids: Vec<_> =
        hosts.iter().map(|&h| world.add_session(SessionSpec::new(h, sink)).unwrap()).collect();
    // The first source's link to the middle is the third of all.
    let link = gtp_link::LinkId(2);
    world.trace_packets(1 << 22);
    world.at(s(3), Action::Link(link, Change::DOWN)).unwrap();
    world.at(s(6), Action::Link(link, Change::UP)).unwrap();
    world.at(s(9), Action::Pause(sink, Span::from_millis(400))).unwrap();
    world.at(s(12), Action::Agents(sink, AgentState::Dead)).unwrap();
    world.at(s(14), Action::Agents(sink, AgentState::Running)).unwrap();
    world.run_until(s(20));
    assert_eq!(rate(&world, ids[0], 45, 60), 0.0);
    // Two seconds after the cut: the silence, and then the lease of what was granted.
    near(rate(&world, ids[1], 52, 60), 100.0, 0.02);
    for window in [(75, 90), (130, 140), (180, 200)] {
        ids.iter().for_each(|&id| near(rate(&world, id, window.0, window.1), 50.0, 0.03));
    }
    world.verify().unwrap();
}

#[test]
fn a_program_that_stands_still_takes_its_own_lateness_for_no_part_of_the_path() {
    let (mut world, sink, hosts) = star(mbps(600), &[(300, 20)]);
    let id = world.add_session(SessionSpec::new(hosts[0], sink)).unwrap();
    for begun in (2_000..8_000).step_by(100) {
        world.at(ms(begun), Action::Pause(hosts[0], Span::from_millis(50))).unwrap();
    }
    world.run_until(s(8));
    let status = world.session(id).unwrap();
    near(status.rtt.as_secs_f64() * 1e3, 20.0, 0.02);
}

#[test]
fn wrong_clocks_and_a_card_that_hands_over_in_batches_change_little() {
    let mut world = World::new(5);
    let clock = |drift_ppb| ClockSpec { offset: Some(Span::from_secs(4_290)), drift_ppb };
    let fast = HostSpec { clock: clock(100_000), ..HostSpec::default() };
    let slow = HostSpec {
        clock: ClockSpec { offset: Some(Span::from_secs(9)), drift_ppb: -100_000 },
        in_: mbps(100),
        coalesce: Span::from_micros(200),
        ..HostSpec::default()
    };
    let (a, b) = (world.add_host(fast), world.add_host(slow));
    world.connect_both(a, b, long(40)).unwrap();
    let id = world.add_session(SessionSpec::new(a, b)).unwrap();
    world.at(s(10), Action::Drift(a, -50_000)).unwrap();
    world.trace_every(Span::from_millis(100)).unwrap();
    world.trace_packets(1 << 22);
    world.run_until(s(15));
    near(rate(&world, id, 20, 100), 100.0, 0.005);
    near(rate(&world, id, 110, 150), 100.0, 0.005);
    world.verify().unwrap();
}

#[test]
fn a_queue_drops_exactly_the_packets_that_find_it_full() {
    let mut world = World::new(1);
    let [a, b] = [(); 2].map(|()| world.add_host(HostSpec::default()));
    let narrow = LinkSpec { rate: mbps(10), queue: Bytes(5_000), ..LinkSpec::default() };
    let link = world.connect(a, b, narrow).unwrap();
    let pattern = Pattern::Constant { rate: mbps(17) };
    let flow = BackgroundSpec { stop: Some(s(1)), ..BackgroundSpec::new(a, b, pattern) };
    let flow = world.add_background(flow).unwrap();
    world.trace_packets(1 << 20);
    world.run_until(s(2));
    // The same queue by hand: 0.8 ms of service each; five may wait behind the one in service.
    let (mut departures, mut dropped, mut sent) = (Vec::<u64>::new(), 0, 0);
    let mut now = 0;
    while now < 1_000_000_000 {
        sent += 1;
        let inside = departures.iter().filter(|&&leaves| leaves > now).count();
        if inside > 5 {
            dropped += 1;
        } else {
            departures.push(departures.last().copied().unwrap_or(0).max(now) + 800_000);
        }
        now += 8_000u64.div_ceil(17) * 1_000 - 1_000 + 589; // 8,000 bits at 17 Mbit/s: 470,589 ns
    }
    let status = world.background(flow).unwrap();
    assert_eq!((status.sent, status.arrived), (sent, sent - dropped));
    assert_eq!(world.link(link).unwrap().stats().drops.queue.packets, dropped);
    let summary = world.verify().unwrap();
    assert_eq!((summary.sent, summary.dropped, summary.under_way), (sent, dropped, 0));
}

#[test]
fn a_session_leaves_room_for_background_traffic_that_nobody_controls() {
    let mut world = World::new(2);
    let [a, b] = [(); 2].map(|()| world.add_host(HostSpec::default()));
    let narrow = LinkSpec { rate: mbps(100), queue: Bytes(250_000), ..long(20) };
    world.connect_both(a, b, narrow).unwrap();
    let id = world.add_session(SessionSpec::new(a, b)).unwrap();
    let pattern = Pattern::Poisson { mean: mbps(40) };
    let flow = world.add_background(BackgroundSpec::new(a, b, pattern)).unwrap();
    world.trace_every(Span::from_millis(100)).unwrap();
    world.run_until(s(20));
    let got = rate(&world, id, 100, 200);
    assert!((45.0..61.0).contains(&got), "{got}");
    let status = world.background(flow).unwrap();
    assert!(status.arrived * 100 > status.sent * 97, "{status:?}");
}

#[test]
fn paths_may_name_links_that_join_nothing_and_meet_on_them() {
    let mut world = World::new(2);
    let access = world.add_link(LinkSpec { rate: mbps(60), queue: Bytes(1 << 20), ..long(10) });
    let back = world.add_link(long(10));
    let sink = world.add_host(HostSpec { in_: mbps(50), ..HostSpec::default() });
    world.trace_every(Span::from_millis(100)).unwrap();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let source = world.add_host(HostSpec::default());
        let own = world.add_link(long(6));
        let (down, up) = (Path::Links(vec![own, access]), Path::Links(vec![back]));
        let spec = SessionSpec { down, up, ..SessionSpec::new(source, sink) };
        ids.push(world.add_session(spec).unwrap());
    }
    world.run_until(s(5));
    ids.iter().for_each(|&id| near(rate(&world, id, 30, 50), 25.0, 0.01));
}

#[test]
fn what_cannot_be_built_is_refused_and_says_why() {
    let mut world = World::new(0);
    let (a, switch) = (world.add_host(HostSpec::default()), world.add_switch());
    let b = world.add_host(HostSpec::default());
    let spec = SessionSpec::new(a, b);
    assert_eq!(world.add_session(spec.clone()), Err(BuildError::NoRoute(a, b)));
    let to_switch = SessionSpec::new(a, switch);
    assert_eq!(world.add_session(to_switch), Err(BuildError::NotAHost(switch)));
    let nowhere = NodeId(9);
    assert_eq!(
        world.connect(a, nowhere, LinkSpec::default()),
        Err(BuildError::NoSuchNode(nowhere))
    );
    world.connect_both(a, b, long(1)).unwrap();
    for wrong in [
        SessionSpec { unit: 0, ..spec.clone() },
        SessionSpec { weight: f64::NAN, ..spec.clone() },
        SessionSpec { memory: Bytes(10), ..spec.clone() },
        SessionSpec {
            supply: Pace::Script(vec![(s(2), mbps(1)), (s(1), mbps(2))]),
            ..spec.clone()
        },
    ] {
        assert!(matches!(world.add_session(wrong), Err(BuildError::OutOfRange(_))));
    }
    let missing = gtp_link::LinkId(77);
    let down = Path::Links(vec![missing]);
    let wrong = SessionSpec { down, ..spec };
    assert_eq!(world.add_session(wrong), Err(BuildError::NoSuchLink(missing)));
    assert_eq!(
        world.at(s(1), Action::Link(missing, Change::DOWN)),
        Err(BuildError::NoSuchLink(missing))
    );
    world.run_until(s(2));
    let late = Action::Pause(a, Span::from_millis(1));
    assert_eq!(world.at(ms(1_999), late), Err(BuildError::Past(ms(1_999))));
}

#[test]
fn a_host_that_stands_still_loses_what_its_buffer_cannot_hold() {
    let mut world = World::new(1);
    let a = world.add_host(HostSpec::default());
    let b = world.add_host(HostSpec { buffer: Bytes(10_000), ..HostSpec::default() });
    world.connect(a, b, LinkSpec::default()).unwrap();
    let pattern = Pattern::Constant { rate: mbps(8) };
    let flow = BackgroundSpec { stop: Some(s(1)), ..BackgroundSpec::new(a, b, pattern) };
    let flow = world.add_background(flow).unwrap();
    world.trace_packets(1 << 20);
    world.at(Time::from_nanos(500), Action::Pause(b, Span::from_millis(50))).unwrap();
    world.run_until(s(2));
    // One packet a millisecond from 0 on; those of 1 … 50 ms wait, ten have room.
    let status = world.background(flow).unwrap();
    assert_eq!((status.sent, world.refused()), (1_000, 39 + 1));
    assert_eq!(status.arrived, 1_000 - world.refused());
    assert_eq!(world.verify().unwrap().refused, world.refused());
}
