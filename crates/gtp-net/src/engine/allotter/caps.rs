//! What a daemon says binds sessions over which one end decides alone, as it binds all.

use std::collections::BTreeMap;

use gtp_alloc::{Rate, Span};
use gtp_proto::Law;
use gtp_proto::agent::Side as AgentSide;
use gtp_share::Change;
use gtpd::{HubConfig, Right};

use super::super::standing::ORPHAN_WAIT;
use super::world::{Session, World};

const CAPACITY: Rate = Rate::from_mbps(100);
/// What a law of one end would take.
const WANTED: Rate = Rate::from_mbps(80);
/// GTP 2004 climbs from an eighth to all by a fiftieth each three round trips.
const SETTLED: Span = Span::from_secs(7);
const USER: u32 = 7;

pub(super) fn config() -> HubConfig {
    HubConfig {
        capacity_out: CAPACITY,
        capacity_in: CAPACITY,
        interval: Some(Span::from_millis(20)),
        grace: Span::ZERO,
        users: BTreeMap::new(),
        most: BTreeMap::new(),
        least: BTreeMap::new(),
        end_node: gtpd::EndNodeSessions::default(),
    }
}

/// The laws of one end that a process may run at either end.
const CASES: [(AgentSide, Law); 5] = [
    (AgentSide::Source, Law::SourceAlone),
    (AgentSide::Source, Law::SinkAlone),
    (AgentSide::Sink, Law::SourceAlone),
    (AgentSide::Sink, Law::SinkAlone),
    (AgentSide::Sink, Law::SessionAlone),
];

/// A world with one process of so many sessions under this law, attached to its daemon.
fn world(side: AgentSide, law: Law, sessions: u32, config: &HubConfig) -> World {
    let mut world = World::new();
    world.daemon(config);
    let process = world.process(side, USER, WANTED);
    let all = (1..=sessions).map(|id| Session::new(id, law, WANTED));
    world.processes[process].sessions.extend(all);
    world.attach(process);
    world
}

/// Mbit/s that move, after a while.
fn settled(world: &mut World) -> f64 {
    world.run(SETTLED);
    world.rate() / 1e6
}

fn near(x: f64, y: f64) -> bool {
    (x - y).abs() <= 0.02 * y
}

#[test]
fn a_limit_that_is_set_binds_a_session_that_decides_alone_and_is_lifted_again() {
    for (side, law) in CASES {
        let mut world = world(side, law, 1, &config());
        let alone = settled(&mut world);
        assert!(near(alone, 80.0), "{side:?} {law:?}: its law's {alone}");
        let mut set = |max_rate| {
            let hub = world.hub.as_mut().unwrap();
            let session = hub.sessions_for(Right::Anybodys)[0].session;
            let change = Change { max_rate: Some(max_rate), ..Change::default() };
            hub.set(world.now, Right::Anybodys, session, change).unwrap();
            settled(&mut world)
        };
        let limited = set(10_000_000);
        assert!(limited <= 10.0 && near(limited, 10.0), "{side:?} {law:?}: {limited}");
        let lifted = set(0);
        assert!(near(lifted, 80.0), "{side:?} {law:?}: {lifted}");
    }
}

#[test]
fn a_users_cap_binds_his_sessions_that_decide_alone_together() {
    for (side, law) in CASES {
        let most = BTreeMap::from([(USER, Rate::from_mbps(30))]);
        let mut world = world(side, law, 3, &HubConfig { most, ..config() });
        let together = settled(&mut world);
        assert!(together <= 30.0 && near(together, 30.0), "{side:?} {law:?}: {together}");
    }
}

#[test]
fn beside_another_user_a_session_that_decides_alone_has_its_part_and_no_more() {
    for (side, law) in CASES {
        let mut world = world(side, law, 1, &config());
        let other = world.process(side, USER + 1, CAPACITY);
        world.processes[other].sessions.push(Session::new(1, Law::Grant, Rate::UNLIMITED));
        world.attach(other);
        let sum = settled(&mut world);
        let rates: Vec<f64> = world.processes.iter().map(|p| p.rate() / 1e6).collect();
        assert!(near(rates[0], 50.0) && near(rates[1], 50.0), "{side:?} {law:?}: {rates:?}");
        assert!(sum <= 100.0);
    }
}

#[test]
fn a_session_that_decides_alone_keeps_what_it_had_until_there_is_a_daemon_and_after_it_its_part() {
    for (side, law) in CASES {
        let mut world = World::new();
        let process = world.process(side, USER, WANTED);
        world.processes[process].sessions.push(Session::new(1, law, WANTED));
        let before = settled(&mut world);
        assert!(near(before, 80.0), "{side:?} {law:?}: {before}");
        world.daemon(&config());
        world.attach(process);
        let idle = world.process(side, USER, WANTED);
        world.attach(idle);
        let under = settled(&mut world);
        assert!(near(under, 80.0), "{side:?} {law:?}: {under}");
        world.kill();
        world.run(ORPHAN_WAIT.saturating_sub(Span::from_millis(100)));
        let orphaned = world.rate() / 1e6;
        assert!((1.0..=50.0).contains(&orphaned), "{side:?} {law:?}: half is its part: {orphaned}");
        let alone = settled(&mut world);
        assert!(near(alone, 80.0), "{side:?} {law:?}: {alone}");
    }
}

#[test]
fn numbers_of_a_session_that_decides_alone_go_on_over_many_daemons() {
    let mut world = World::new();
    let process = world.process(AgentSide::Sink, USER, WANTED);
    world.processes[process].sessions.push(Session::new(1, Law::SinkAlone, WANTED));
    for _ in 0..40 {
        world.daemon(&config());
        world.attach(process);
        world.run(Span::from_millis(500));
        world.kill();
        world.run(Span::from_millis(50));
    }
    world.daemon(&config());
    world.attach(process);
    let rate = settled(&mut world);
    assert!(near(rate, 80.0), "{rate}");
}
