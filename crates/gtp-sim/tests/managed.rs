//! Managed queues in front of links: what they drop and whom they let pass, and that links keep to
//! the laws of nature.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::managed::Kind;
use gtp_link::{Chance, Change, LinkId, LinkSpec};
use gtp_peers::pie;
use gtp_proto::ecn::EcnState;
use gtp_sim::packet::{
    Action, BackgroundId, BackgroundSpec, BuildError, HostSpec, Path, Pattern, SessionSpec,
    SessionStatus, World,
};

const KINDS: [Kind; 3] = [Kind::Codel, Kind::FqCodel, Kind::DualPi2];

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

/// A world with a link of 8 Mbit/s, a managed queue before it, and a flow for each of these rates.
fn world(kind: Kind, loss: Chance, mbps: &[u64]) -> (World, LinkId, Vec<BackgroundId>) {
    let mut world = World::new(3);
    let [source, sink] = [0, 1].map(|_| world.add_host(HostSpec::default()));
    let spec = LinkSpec {
        rate: Rate::from_mbps(8),
        delay: Span::from_millis(5),
        queue: Bytes(200_000),
        loss,
        ..LinkSpec::default()
    };
    let link = world.add_seeded_link(spec, 5);
    world.add_managed(link, kind, 7).expect("a link without a controller");
    world.trace_packets(1_000_000);
    world.trace_every(Span::from_millis(10)).expect("bins");
    let flow = |&mbps: &u64| {
        let pattern = Pattern::Constant { rate: Rate::from_mbps(mbps) };
        let down = Path::Links(vec![link]);
        let spec = BackgroundSpec { down, ..BackgroundSpec::new(source, sink, pattern) };
        world.add_background(spec).expect("a flow")
    };
    let flows = mbps.iter().map(flow).collect();
    (world, link, flows)
}

#[test]
fn a_link_behind_a_managed_queue_keeps_the_laws_whatever_happens_to_it() {
    for kind in KINDS {
        let (mut world, link, _) = world(kind, Chance::from_percent(10), &[12, 4]);
        let to = |mbps| Change { rate: Some(Rate::from_mbps(mbps)), ..Change::default() };
        let script = [(200, to(80)), (300, to(4)), (500, Change::DOWN), (600, Change::UP)];
        for (ms, change) in script.into_iter().chain([(700, to(80)), (701, to(8))]) {
            world.at(at(ms), Action::Link(link, change)).expect("link");
        }
        world.run_until(at(1_000));
        let summary = world.verify().expect("physics");
        let drops = world.link(link).expect("added").stats().drops;
        assert!(drops.down.packets > 0 && drops.loss.packets > 0, "{kind:?}: {drops:?}");
        let dropped = drops.total().packets + world.turned_away(link);
        assert_eq!(summary.dropped, dropped, "{kind:?}");
    }
}

#[test]
fn an_overloaded_link_stays_busy_behind_a_managed_queue() {
    for kind in KINDS {
        let (mut world, link, _) = world(kind, Chance::NEVER, &[9]);
        world.run_until(at(10_000));
        let stats = *world.link(link).expect("added").stats();
        let carried = stats.carried.bytes.0 as f64 * 8.0 / 10.0;
        assert!(carried > 7.9e6, "{kind:?}: {carried}");
        assert!(world.turned_away(link) > 100, "{kind:?}");
        assert_eq!(stats.wait_max, Span::ZERO, "{kind:?}: the link itself holds none back");
        assert!(world.longest_wait(link) > Span::from_millis(5), "{kind:?}");
    }
}

#[test]
fn a_flow_within_its_share_loses_nothing_beside_one_that_sends_too_much_under_fq_codel_alone() {
    let received = |kind| {
        let (mut world, _, flows) = world(kind, Chance::NEVER, &[30, 2]);
        world.run_until(at(5_000));
        let bins = &world.trace().backgrounds[flows[1].0 as usize][300..500];
        bins.iter().map(|bytes| bytes.0 as f64 * 8.0).sum::<f64>() / 2.0 / 1e6
    };
    assert!(received(Kind::FqCodel) > 1.95, "{}", received(Kind::FqCodel));
    assert!(received(Kind::Codel) < 1.9, "{}", received(Kind::Codel));
}

/// A session over a link of 20 Mbit/s and 40 ms there and back, whose queue `control` manages,
/// beside a flow of `other` that heeds nothing; after 20 s, losses of the first second left out.
fn session(control: impl Fn(&mut World, LinkId), other: Rate) -> (SessionStatus, u64) {
    let mut world = World::new(3);
    let [source, sink] = [0, 1].map(|_| world.add_host(HostSpec::default()));
    let (rate, delay) = (Rate::from_mbps(20), Span::from_millis(20));
    let there = LinkSpec { rate, delay, queue: Bytes(100_000), ..LinkSpec::default() };
    let back = LinkSpec { delay, ..LinkSpec::default() };
    let [there, back] = [there, back].map(|spec| world.add_seeded_link(spec, 5));
    control(&mut world, there);
    let down = Path::Links(vec![there]);
    if other > Rate::ZERO {
        let pattern = Pattern::Constant { rate: other };
        let flow = BackgroundSpec::new(source, sink, pattern);
        world.add_background(BackgroundSpec { down: down.clone(), ..flow }).expect("a flow");
    }
    let up = Path::Links(vec![back]);
    let session = SessionSpec { down, up, ..SessionSpec::new(source, sink) };
    let id = world.add_session(session).expect("a session");
    // The start finds out what the path carries.
    world.run_until(at(1_000));
    let start = world.session(id).expect("added").lost;
    world.run_until(at(20_000));
    let status = world.session(id).expect("added");
    (SessionStatus { lost: status.lost - start, ..status }, world.turned_away(there))
}

#[test]
fn a_session_alone_is_marked_where_a_managed_queue_would_drop_and_uses_the_link_without_a_loss() {
    let managed = |kind| {
        move |world: &mut World, link| {
            world.add_managed(link, kind, 7).expect("no controller");
        }
    };
    let pie = |world: &mut World, link| {
        let queue = pie::Queue::new(pie::Config::default(), 1);
        world.add_router(link, Box::new(queue)).expect("no controller");
    };
    let kinds = KINDS.map(|kind| session(managed(kind), Rate::ZERO));
    for (status, dropped) in kinds.into_iter().chain([session(pie, Rate::ZERO)]) {
        assert_eq!((status.ecn.state, status.lost, dropped), (EcnState::On, 0, 0));
        let used = status.received_bytes.0 as f64 * 8.0 / 20.0 / 20e6;
        assert!(used > 0.85, "{used}");
    }
}

#[test]
fn what_a_managed_queue_drops_of_a_flow_without_ecn_it_marks_of_a_session() {
    let codel = |world: &mut World, link| {
        world.add_managed(link, Kind::Codel, 7).expect("no controller");
    };
    let (status, dropped) = session(codel, Rate::from_mbps(15));
    assert!(status.ecn.marks > 3 && dropped > 3, "{status:?}, {dropped}");
    assert_eq!(status.lost, 0);
}

#[test]
fn a_link_has_a_managed_queue_or_a_controller_but_not_two() {
    let (mut world, link, _) = world(Kind::Codel, Chance::NEVER, &[]);
    assert!(matches!(world.add_managed(link, Kind::Codel, 1), Err(BuildError::OutOfRange(_))));
    let none = LinkId(99);
    let refused = world.add_managed(none, Kind::Codel, 1);
    assert_eq!(refused, Err(BuildError::NoSuchLink(none)));
}
