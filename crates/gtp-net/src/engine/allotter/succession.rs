//! Daemons die and others come: sessions go on, within the capacity, and are soon equal again.

use std::collections::BTreeMap;

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::Law;
use gtp_proto::agent::Side as AgentSide;
use gtpd::{HubConfig, Right};

use super::world::{Session, World};

const PROCESSES: usize = 50;
const CAPACITY: Rate = Rate::from_mbps(PROCESSES as u64);
/// How often the daemon is killed, and how long there is none, in turn.
const KILLS: usize = 15;
const AWAY_MS: [u64; 5] = [0, 30, 120, 400, 1_500];
/// How often a process without its daemon looks for the next.
const LOOKS: Span = Span::from_millis(50);
/// Between being equal again and the next kill.
const REST: Span = Span::from_millis(500);

/// What a next daemon knows of the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Word {
    /// How many processes it had.
    Left,
    /// Nothing.
    None,
}

/// What came of it.
struct Outcome {
    /// The most that arrived in any second, of the capacity.
    most: f64,
    /// The longest that it took a daemon until all were granted equal parts.
    equal: Span,
}

fn config(grace: Span) -> HubConfig {
    HubConfig {
        capacity_out: CAPACITY,
        capacity_in: CAPACITY,
        interval: Some(Span::from_millis(10)),
        grace,
        users: BTreeMap::new(),
        most: BTreeMap::new(),
        least: BTreeMap::new(),
        end_node: gtpd::EndNodeSessions::default(),
    }
}

/// A generator that does not repeat soon (xorshift).
struct Random(u64);

impl Random {
    /// A time below this one, in whole milliseconds.
    fn below(&mut self, span: Span) -> Span {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Span::from_millis(self.0 % (span.as_nanos() / 1_000_000).max(1))
    }
}

fn full() -> World {
    let mut world = World::new();
    world.daemon(&config(Span::ZERO));
    for _ in 0..PROCESSES {
        let process = world.process(AgentSide::Sink, 7, CAPACITY);
        world.processes[process].sessions.push(Session::new(1, Law::Grant, Rate::UNLIMITED));
        world.attach(process);
    }
    world.run(Span::from_secs(2));
    world.moved.clear();
    world
}

/// Kills the daemon again and again. Processes look for it every 50 ms and are up to `late` late at
/// that.
fn succession(late: Span, word: Word) -> Outcome {
    let mut world = full();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut equal = Span::ZERO;
    for kill in 0..KILLS {
        let expected = world.hub.as_ref().unwrap().roster(world.now);
        world.kill();
        for process in &mut world.processes {
            process.look = world.now + random.below(LOOKS) + random.below(late);
        }
        world.run(Span::from_millis(AWAY_MS[kill % AWAY_MS.len()]));
        let begin = world.now;
        let hub = world.daemon(&config(Span::from_millis(250)));
        if word == Word::Left {
            hub.wait_for(expected);
        }
        while !is_equal(&world, PROCESSES) {
            find(&mut world);
            world.run(Span::from_millis(1));
            assert!(world.now.since(begin) < Span::from_secs(10), "never equal again");
        }
        equal = equal.max(world.now.since(begin));
        world.run(REST);
    }
    Outcome { most: most_in_a_second(&world.moved), equal }
}

/// Who looks now finds the daemon.
fn find(world: &mut World) {
    for at in 0..world.processes.len() {
        let process = &mut world.processes[at];
        while process.look < world.now && process.look != Time::ZERO {
            process.look += LOOKS;
        }
        if process.look == world.now {
            process.look = Time::ZERO;
            world.attach(at);
        }
    }
}

fn is_equal(world: &World, sessions: usize) -> bool {
    let listed = world.hub.as_ref().unwrap().sessions_for(Right::Anybodys);
    let each = CAPACITY.as_f64() / sessions as f64;
    let near = |granted: Option<u64>| (granted.unwrap_or(0) as f64 - each).abs() <= 0.05 * each;
    listed.len() == sessions && listed.iter().all(|session| near(session.granted))
}

fn most_in_a_second(moved: &[f64]) -> f64 {
    let seconds = moved.windows(1_000).map(|second| second.iter().sum::<f64>());
    seconds.fold(0.0, f64::max) / CAPACITY.as_f64()
}

#[test]
fn killed_again_and_again_daemons_leave_all_within_the_capacity_and_equal_within_a_second() {
    let outcome = succession(Span::from_millis(600), Word::Left);
    assert!(outcome.most <= 1.01, "{} of the capacity in a second", outcome.most);
    assert!(outcome.equal <= Span::from_secs(1), "{:?}", outcome.equal);
}

#[test]
fn a_daemon_that_knows_of_none_before_waits_while_processes_come_back() {
    let outcome = succession(Span::from_millis(600), Word::None);
    assert!(outcome.most <= 1.01, "{} of the capacity in a second", outcome.most);
    assert!(outcome.equal <= Span::from_secs(1), "{:?}", outcome.equal);
}

#[test]
fn who_ended_with_the_daemon_is_not_waited_for_long() {
    let mut world = full();
    world.kill();
    world.processes.pop();
    let begin = world.now;
    world.daemon(&config(Span::from_millis(250))).wait_for(PROCESSES);
    (0..PROCESSES - 1).for_each(|at| world.attach(at));
    while !is_equal(&world, PROCESSES - 1) {
        world.run(Span::from_millis(1));
        assert!(world.now.since(begin) <= Span::from_secs(1));
    }
    world.run(Span::from_secs(2));
    assert!(most_in_a_second(&world.moved) <= 1.01);
    assert!(world.rate() / CAPACITY.as_f64() > 0.99);
}

/// Four processes that were alone, each with a capacity of its own as large as the next daemon's,
/// find that daemon one after the other; a fifth ended with the last daemon and never comes.
fn alone_and_back(side: AgentSide, word: Word) {
    const ALONE: usize = 4;
    const NEXT: Span = Span::from_millis(40);
    let mut world = World::new();
    world.daemon(&config(Span::ZERO));
    for sessions in 1..=ALONE as u32 {
        let process = world.process(side, 7, CAPACITY);
        let all = (1..=sessions).map(|id| Session::new(id, Law::Grant, Rate::UNLIMITED));
        world.processes[process].sessions.extend(all);
        world.attach(process);
    }
    world.run(Span::from_secs(2));
    world.kill();
    world.run(Span::from_secs(4));
    assert!(world.rate() > 3.9 * CAPACITY.as_f64(), "they are alone: {}", world.rate());
    let begin = world.now;
    let hub = world.daemon(&config(Span::from_millis(250)));
    if word == Word::Left {
        hub.wait_for(ALONE + 1);
    }
    for process in 0..ALONE {
        world.attach(process);
        world.run(NEXT);
    }
    // The last of them has been told by now.
    while world.now.since(begin) < Span::from_secs(1) {
        let part = world.rate() / CAPACITY.as_f64();
        assert!(part <= 1.01, "{side:?}, {word:?}: {part} after {:?}", world.now.since(begin));
        world.run(Span::from_millis(1));
    }
    let each = CAPACITY.as_f64() / ALONE as f64;
    for process in &world.processes {
        let rate = process.rate();
        assert!((rate - each).abs() <= 0.05 * each, "{side:?}, {word:?}: {rate} of {each}");
    }
}

#[test]
fn who_was_alone_is_within_the_capacity_as_soon_as_a_daemon_is_back_and_equal_within_a_second() {
    for side in [AgentSide::Sink, AgentSide::Source] {
        for word in [Word::Left, Word::None] {
            alone_and_back(side, word);
        }
    }
}
