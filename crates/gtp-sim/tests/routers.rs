//! Controllers at links: rivals whose routers take part, beside the protocol's own sessions.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Chance, Change, LinkId, LinkSpec};
use gtp_peers::tcp::{AckDelay, Law, Opening, Receiver, ReceiverConfig, Sender, SenderConfig};
use gtp_peers::{Admission, Packet, Router};
use gtp_peers::{aecp, vcp, xcp};
use gtp_sim::packet::{
    Action, BackgroundSpec, BuildError, HostSpec, NodeId, Path, Pattern, PeerEnds, PeerRouter,
    SessionId, SessionSpec, World,
};
use std::cell::RefCell;
use std::rc::Rc;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn ends(start: Time, law: Box<dyn Law>) -> PeerEnds {
    let mss = Bytes(960);
    let opening = Opening::Open;
    let config = SenderConfig { mss, initial_window: 1.0, opening, ..SenderConfig::default() };
    let receiver = ReceiverConfig { mss, delay: AckDelay::None, ..ReceiverConfig::default() };
    PeerEnds {
        sender: Box::new(Sender::new(start, config, law)),
        receiver: Box::new(Receiver::new(receiver)),
    }
}

fn mbps(world: &World, id: SessionId, from_ms: usize, to_ms: usize) -> f64 {
    world.trace().mean_rate(id.0 as usize, from_ms / 10, to_ms / 10).as_f64() / 1e6
}

/// Figures 9 and 10 of AECP at a tenth of the capacity: links of 50, 25 and 50 Mbit/s, 20 ms each;
/// flow 1 over all, flows 2 to 4 over one each.
fn parking_lot(router: fn() -> PeerRouter, law: fn() -> Box<dyn Law>, seconds: u64) -> Vec<f64> {
    let mut world = World::new(1);
    let [source, sink] = [0, 1].map(|_| world.add_host(HostSpec::default()));
    let links = [50, 25, 50].map(|mbps| {
        let link = world.add_link(LinkSpec {
            rate: Rate::from_mbps(mbps),
            delay: Span::from_millis(20),
            queue: Bytes(mbps * 15_000),
            ..LinkSpec::default()
        });
        world.add_router(link, router()).expect("a link without a controller");
        link
    });
    let back = [60, 20]
        .map(|ms| world.add_link(LinkSpec { delay: Span::from_millis(ms), ..LinkSpec::default() }));
    let ways = [(&links[..], back[0]), (&links[..1], back[1]), (&links[1..2], back[1])];
    let ways = ways.into_iter().chain([(&links[2..], back[1])]);
    let sessions: Vec<SessionId> = ways
        .map(|(down, up)| {
            let (down, up) = (Path::Links(down.to_vec()), Path::Links(vec![up]));
            let spec = SessionSpec { down, up, ..SessionSpec::new(source, sink) };
            world.add_peer_session(spec, ends(Time::ZERO, law())).expect("session")
        })
        .collect();
    world.trace_every(Span::from_millis(10)).expect("bins");
    world.run_until(at(seconds * 1_000));
    let from = seconds as usize * 500;
    sessions.iter().map(|id| mbps(&world, *id, from, seconds as usize * 1_000)).collect()
}

fn assert_near(found: &[f64], want: &[f64], share: f64) {
    println!("{found:.2?}");
    for (found_one, want_one) in found.iter().zip(want) {
        assert!((found_one / want_one - 1.0).abs() <= share, "{found:.2?} against {want:?}");
    }
}

#[test]
fn aecp_ends_at_max_min_over_three_links() {
    let router: fn() -> PeerRouter = || Box::new(aecp::Queue::new(aecp::Config::default()));
    let found = parking_lot(router, || Box::new(aecp::Law::new(aecp::Gains::PAPER)), 40);
    assert_near(&found, &[12.5, 37.5, 12.5, 37.5], 0.03);
}

#[test]
fn xcp_leaves_its_two_wide_links_where_theory_puts_them() {
    let found = parking_lot(|| Box::new(xcp::Queue::new()), || Box::new(xcp::Law::new()), 40);
    let theory = [12.5, xcp::equilibrium::beside_held(50.0, 12.5, 2), 12.5];
    let last = xcp::equilibrium::behind_held(50.0, 12.5);
    assert_near(&found, &[theory[0], theory[1], theory[2], last], 0.03);
}

#[test]
fn vcp_fills_the_links_and_starves_the_long_flow() {
    let found = parking_lot(|| Box::new(vcp::Queue::new()), || Box::new(vcp::Law::new()), 60);
    println!("{found:.2?}");
    assert!(found[0] < 0.8 * 12.5, "max-min would be 12.5: {found:?}");
    for (crossing, capacity) in [(1, 50.0), (2, 25.0), (3, 50.0)] {
        assert!(found[0] + found[crossing] > 0.9 * capacity, "{found:?}");
    }
}

/// Writes down when it was told what.
#[derive(Default)]
struct Witness {
    arrivals: Vec<(Time, Bytes)>,
    departures: Vec<(Time, Bytes)>,
    capacities: Vec<Rate>,
    ticks: u64,
    next: Option<Time>,
    refuses: bool,
}

#[derive(Clone, Default)]
struct Watch(Rc<RefCell<Witness>>);

impl Router for Watch {
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        let mut witness = self.0.borrow_mut();
        witness.capacities.push(capacity);
        witness.next.get_or_insert(now + Span::from_millis(10));
    }
    fn handle_arrival(&mut self, now: Time, queued: Bytes, _packet: &mut Packet) -> Admission {
        let mut witness = self.0.borrow_mut();
        witness.arrivals.push((now, queued));
        if witness.refuses { Admission::Drop } else { Admission::Pass }
    }
    fn handle_departure(&mut self, now: Time, queued: Bytes, _packet: &mut Packet) {
        self.0.borrow_mut().departures.push((now, queued));
    }
    fn handle_timeout(&mut self, now: Time, _queued: Bytes) {
        let mut witness = self.0.borrow_mut();
        witness.ticks += 1;
        witness.next = Some(now + Span::from_millis(10));
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.0.borrow().next
    }
}

/// The protocol's own session at 8 Mbit/s, with a witness at its link.
fn watched(change: impl Fn(&mut LinkSpec)) -> (World, Watch, LinkId, [NodeId; 2]) {
    let mut world = World::new(3);
    let source = world.add_host(HostSpec::default());
    let sink = world.add_host(HostSpec { in_: Rate::from_mbps(7), ..HostSpec::default() });
    let mut spec = LinkSpec {
        rate: Rate::from_mbps(8),
        delay: Span::from_millis(5),
        queue: Bytes(20_000),
        ..LinkSpec::default()
    };
    change(&mut spec);
    let link = world.connect(source, sink, spec.clone()).expect("nodes");
    world.connect(sink, source, LinkSpec { delay: spec.delay, ..LinkSpec::default() }).expect("");
    let watch = Watch::default();
    world.add_router(link, Box::new(watch.clone())).expect("no other controller");
    world.trace_packets(1_000_000);
    world.add_session(SessionSpec::new(source, sink)).expect("session");
    (world, watch, link, [source, sink])
}

#[test]
fn a_controller_sees_each_datagram_come_and_leave_once_and_its_timer_rings() {
    let (mut world, watch, link, _) = watched(|spec| {
        spec.loss = Chance::from_percent(2);
        spec.duplicate = Chance::from_percent(2);
    });
    world.run_until(at(2_001));
    let seen = watch.0.borrow();
    let stats = *world.link(link).expect("added").stats();
    assert_eq!(seen.arrivals.len() as u64, stats.offered.packets);
    let waits = world.link(link).expect("added").busy_until() > world.now();
    let gone = stats.offered.packets - stats.drops.queue.packets;
    assert!(gone - seen.departures.len() as u64 <= u64::from(waits) + 13, "in the queue");
    assert!(seen.departures.is_sorted_by_key(|(at, _)| *at));
    assert_eq!((seen.ticks, &seen.capacities[..]), (200, &[Rate::from_mbps(8)][..]));
    // A packet of 1,500 bytes that found the link idle leaves 1.5 ms later.
    assert!(seen.departures[5].0 > seen.arrivals[5].0);
    drop(seen);
    world.verify().expect("physics");
}

#[test]
fn a_controller_hears_of_a_new_rate_and_of_what_still_leaves() {
    let (mut world, watch, link, _) = watched(|_| {});
    let slower = Change { rate: Some(Rate::from_mbps(2)), ..Change::default() };
    world.at(at(1_000), Action::Link(link, slower)).expect("link");
    world.at(at(1_500), Action::Link(link, Change::DOWN)).expect("link");
    world.at(at(1_700), Action::Link(link, Change::UP)).expect("link");
    world.run_until(at(4_000));
    let seen = watch.0.borrow();
    assert_eq!(seen.capacities[..2], [Rate::from_mbps(8), Rate::from_mbps(2)]);
    assert!(seen.departures.is_sorted_by_key(|(at, _)| *at));
    assert!(seen.departures.iter().all(|(at_, _)| !(at(1_501)..at(1_700)).contains(at_)));
    assert!(seen.departures.iter().any(|(at_, _)| *at_ > at(1_700)), "it carries again");
    drop(seen);
    world.verify().expect("physics");
}

/// When a controller saw 16 Mbit/s leave a link of 8 whose wire loses this much, and which becomes
/// ten times as fast, slower again, and is cut for a while.
fn departures_with_loss(percent: u32) -> Vec<(Time, Bytes)> {
    let mut world = World::new(3);
    let [source, sink] = [0, 1].map(|_| world.add_host(HostSpec::default()));
    let link = world.add_seeded_link(
        LinkSpec {
            rate: Rate::from_mbps(8),
            queue: Bytes(20_000),
            loss: Chance::from_percent(percent),
            ..LinkSpec::default()
        },
        5,
    );
    let watch = Watch::default();
    world.add_router(link, Box::new(watch.clone())).expect("no other controller");
    let pattern = Pattern::Constant { rate: Rate::from_mbps(16) };
    let down = Path::Links(vec![link]);
    let spec = BackgroundSpec { down, ..BackgroundSpec::new(source, sink, pattern) };
    world.add_background(spec).expect("flow");
    let to = |mbps| Change { rate: Some(Rate::from_mbps(mbps)), ..Change::default() };
    let script = [(200, to(80)), (300, to(4)), (500, Change::DOWN), (600, Change::UP)];
    for (ms, change) in script.into_iter().chain([(700, to(80)), (701, to(8))]) {
        world.at(at(ms), Action::Link(link, change)).expect("link");
    }
    world.trace_packets(1_000_000);
    world.run_until(at(1_000));
    world.verify().expect("physics");
    let seen = watch.0.borrow();
    seen.departures.clone()
}

#[test]
fn what_the_wire_will_lose_leaves_a_controlled_queue_like_any_other() {
    let all = departures_with_loss(0);
    assert!(all.len() > 800, "{}", all.len());
    for percent in [30, 70, 100] {
        let lossy = departures_with_loss(percent);
        let differs = all.iter().zip(&lossy).find(|(one, other)| one != other);
        assert_eq!((differs, lossy.len()), (None, all.len()), "{percent} %");
    }
}

#[test]
fn what_a_controller_turns_away_is_lost_and_counted() {
    let (mut world, watch, link, _) = watched(|_| {});
    world.run_until(at(1_000));
    watch.0.borrow_mut().refuses = true;
    let before = world.link(link).expect("added").stats().offered.packets;
    world.run_until(at(1_200));
    assert_eq!(world.link(link).expect("added").stats().offered.packets, before);
    assert!(world.turned_away(link) > 10);
    world.verify().expect("physics");
    assert!(matches!(
        world.add_router(link, Box::<Watch>::default()),
        Err(BuildError::OutOfRange(_))
    ));
    let none = LinkId(99);
    assert_eq!(world.add_router(none, Box::<Watch>::default()), Err(BuildError::NoSuchLink(none)));
}
