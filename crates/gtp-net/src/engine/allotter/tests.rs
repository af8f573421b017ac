//! What sessions have while their daemon comes and goes, in virtual time.
//!
//! Without a daemon a process shares what it was promised, and what a session had it keeps until
//! somebody answers. These tests must not need pages of a real daemon.

use super::super::standing::{ORPHAN_WAIT, SETTLE};
use super::world::{Session, World};
use super::*;
use gtp_proto::agent::{Agent, AgentConfig};

const START: Time = Time::from_nanos(1_000_000_000);

fn report(phase: Phase, echoed: u32) -> Report {
    Report {
        weight: 1.0,
        peer_weight: 1.0,
        law: Law::Grant,
        phase,
        peer_offer: Rate::UNLIMITED,
        demand: Rate::UNLIMITED,
        firm: Rate::UNLIMITED,
        party: 0,
        owner: gtp_proto::Owner::NOBODY,
        measured: Rate::ZERO,
        echoed,
        rtt: Span::from_millis(20),
        counts: Default::default(),
        packet: Default::default(),
    }
}

/// A world with a daemon of 100 Mbit/s and two processes of one session each at this end.
fn shared(side: AgentSide) -> World {
    let mut world = World::new();
    world.daemon(&caps::config());
    for _ in 0..2 {
        let process = world.process(side, 7, OWN);
        world.processes[process].sessions.push(Session::new(1, Law::Grant, Rate::UNLIMITED));
        world.attach(process);
    }
    world.run(Span::from_secs(1));
    assert_eq!(mbps(&world), [50, 50]);
    world
}

const OWN: Rate = Rate::from_mbps(80);

fn mbps(world: &World) -> Vec<u64> {
    world.processes.iter().map(|process| (process.rate() / 1e6).round() as u64).collect()
}

#[test]
fn without_its_daemon_a_process_shares_its_part_among_old_sessions_and_new_ones() {
    for (side, bond) in [
        (AgentSide::Source, Bond::Found),
        (AgentSide::Sink, Bond::Found),
        (AgentSide::Sink, Bond::Named),
    ] {
        let mut world = shared(side);
        world.bond = bond;
        world.kill();
        let new = Session::new(2, Law::Grant, Rate::UNLIMITED);
        world.processes[0].sessions.push(new);
        world.run(Span::from_millis(500));
        let rates: Vec<f64> =
            world.processes[0].sessions.iter().map(|s| s.rate().as_f64()).collect();
        assert!(rates.iter().all(|rate| (rate - 25e6).abs() < 1e5), "{side:?}: {rates:?}");
        assert_eq!(mbps(&world), [50, 50], "{side:?}");
        world.run(ORPHAN_WAIT);
        let alone = match bond {
            Bond::Found => [80, 80],
            Bond::Named => [50, 50],
        };
        assert_eq!(mbps(&world), alone, "{side:?} {bond:?}");
    }
}

#[test]
fn a_process_that_had_no_session_when_its_daemon_went_serves_the_next_one() {
    for side in [AgentSide::Source, AgentSide::Sink] {
        let mut world = shared(side);
        let sessions = std::mem::take(&mut world.processes[0].sessions);
        drop(sessions);
        world.run(Span::from_secs(1));
        assert_eq!(mbps(&world), [0, 100]);
        world.bond = Bond::Named;
        world.kill();
        let new = Session::new(2, Law::Grant, Rate::UNLIMITED);
        world.processes[0].sessions.push(new);
        world.moved.clear();
        world.run(SETTLE + Span::from_millis(100));
        assert_eq!(mbps(&world), [50, 50], "{side:?}");
        let most = world.moved.iter().fold(0.0, |most: f64, moved| most.max(*moved));
        assert!(most <= 100.01e3, "{side:?}: {most} bits in a millisecond");
    }
}

#[test]
fn a_process_that_a_full_daemon_does_not_take_in_keeps_to_the_allowance() {
    let mut world = World::new();
    let process = world.process(AgentSide::Sink, 7, OWN);
    world.processes[process].sessions.push(Session::new(1, Law::Grant, Rate::UNLIMITED));
    world.run(Span::from_secs(1));
    assert_eq!(mbps(&world), [80]);
    let mut told = |why| {
        let missed = DaemonNews::Missed(Bond::Found, why);
        world.processes[process].allotter.handle_news(world.now, &missed);
        world.run(ORPHAN_WAIT + Span::from_secs(1));
        mbps(&world)
    };
    assert_eq!(told(Why::Full), [1]);
    assert_eq!(told(Why::Silent), [80], "one that does not answer for long is none");
    assert_eq!(told(Why::Absent), [80]);
}

#[test]
fn what_a_session_had_when_its_daemon_came_it_keeps_until_that_answers_or_has_no_room() {
    for side in [AgentSide::Source, AgentSide::Sink] {
        let mut world = World::new();
        let process = world.process(side, 7, OWN);
        world.processes[process].sessions.push(Session::new(1, Law::Grant, Rate::UNLIMITED));
        world.run(Span::from_secs(1));
        world.daemon(&caps::config());
        world.attach(process);
        world.hub_stands_still = true;
        world.run(Span::from_secs(1));
        assert_eq!(mbps(&world), [80], "{side:?}");
        world.run(ANSWER_MOST);
        assert_eq!(mbps(&world), [0], "{side:?}");
    }
}

#[test]
fn an_engine_that_has_not_yet_found_the_daemon_of_its_mates_raises_nothing() {
    let capacity = Rate::from_mbps(80);
    let (side, interval) = (AgentSide::Sink, Some(Span::from_millis(20)));
    let agent = Agent::new(START, AgentConfig { side, capacity, interval });
    let mut allotter = Allotter::new(Decider::own(agent));
    let mut grants = Vec::new();
    allotter.tick(START, &[(1, report(Phase::Open, 0))], &mut grants);
    assert_eq!(grants[0].1.rate, capacity);
    allotter.handle_news(START, &DaemonNews::Elsewhere);
    allotter.set_capacity(Rate::from_mbps(800));
    let reports = [(1, report(Phase::Open, 1)), (2, report(Phase::Open, 0))];
    allotter.tick(START + Span::from_millis(20), &reports, &mut grants);
    let all = sum(grants.iter().map(|(_, grant)| grant.rate));
    assert!(all <= capacity, "{all}");
}

#[test]
fn without_its_daemon_a_session_that_closes_lets_go_at_once() {
    let mut world = shared(AgentSide::Sink);
    world.kill();
    let (now, grants) = (world.now, &mut Vec::new());
    let allotter = &mut world.processes[0].allotter;
    let number = allotter.last[0].1.number;
    allotter.tick(now, &[(1, report(Phase::Closing, number))], grants);
    assert_eq!((grants[0].1.rate, grants[0].1.number), (Rate::ZERO, number + 1));
}

#[test]
fn an_older_grant_is_not_taken() {
    let (agent, mut grants) = (Agent::new(START, config(AgentSide::Sink)), Vec::new());
    let mut decider = Decider::own(agent);
    decider.tick(START, &[(1, report(Phase::Open, 0))], &mut grants);
    let mut flow = Flow::new(&decider, 1, &report(Phase::Open, 0), None);
    let grant = Grant { number: 0, rate: Rate::UNLIMITED, ..flow.grant };
    flow.take(grant);
    assert_eq!(flow.grant.rate, OWN);
    assert_eq!(flow.outstanding().number, 1);
}

fn config(side: AgentSide) -> AgentConfig {
    AgentConfig { side, capacity: OWN, interval: Some(Span::from_millis(20)) }
}

#[test]
fn it_ticks_once_more_after_the_last_session_and_then_rests() {
    let mut world = shared(AgentSide::Sink);
    let allotter = &mut world.processes[0].allotter;
    assert!(allotter.is_posting());
    allotter.tick(world.now, &[], &mut Vec::new());
    assert!(!allotter.is_posting());
}
