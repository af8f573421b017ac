//! Both state machines, the processes' and the daemon's, over random orders of what may happen.
//!
//! Daemons end in order, are killed, hang and go on, are full, of another version and replaced;
//! processes begin and end. After every step the bounds hold that docs/DAEMON.md states.

use std::collections::BTreeMap;

use gtpd::fallback::{Joined, parts};

use super::*;

const CAPACITY: Rate = Rate::from_mbps(100);
const OWN: Rate = Rate::from_mbps(80);
/// Processes look this often for a daemon that they have lost.
const STEP: Span = Span::from_millis(50);
/// A process leaves a daemon that hangs after this.
const HANGS: Span = Span::from_secs(2);
/// A daemon waits for no process longer than this.
const GRACE_MOST: Span = gtpd::GRACE_MOST;
/// Sources obey within this: less than a new daemon waits, so that what a process lets go that
/// this daemon has no room for is free before others are raised.
const HEARD_MS: u64 = 600;

/// A generator that does not repeat soon (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

#[derive(Debug)]
struct Process {
    bond: Bond,
    standing: Standing,
    /// What a daemon has granted, and what the one that it is joined to has promised.
    granted: Rate,
    promised: Option<Rate>,
    /// It still moves what it had on its own before it heard of a daemon.
    brings: bool,
    /// It has an allowance that no daemon has counted yet.
    allowed: bool,
    /// When it was in a daemon last, or began.
    since: Time,
    /// What moves, and when it comes down to what it is told: its sources hear of that late.
    moving: Rate,
    falls: Time,
}

#[derive(Debug, PartialEq)]
enum Stage {
    /// Nothing is granted yet: so many processes are to come back.
    Grace {
        began: Time,
        expected: usize,
    },
    Serving,
    Hung {
        since: Time,
    },
}

#[derive(Debug)]
struct Daemon {
    stage: Stage,
    /// Processes that it has room for; of another version than all here if none.
    room: Option<usize>,
}

#[derive(Debug)]
struct Model {
    now: Time,
    processes: Vec<Process>,
    daemon: Option<Daemon>,
    /// Processes that the last daemon had.
    left: usize,
    /// Until then some process comes down from what one brought that had been alone.
    unsettled: Time,
    /// When there was a daemon last.
    absent: Time,
    /// Processes that find their daemon run beside those whose daemon was named.
    finders: bool,
}

impl Process {
    /// The most that it sends or receives now.
    fn most(&self, now: Time) -> Rate {
        match self.standing {
            Standing::Joined { .. } => self.granted,
            Standing::Alone { .. } | Standing::Waiting { .. } | Standing::Orphaned { .. } => {
                self.standing.bound(now).unwrap_or(OWN)
            }
        }
    }

    fn is_joined(&self) -> bool {
        matches!(self.standing, Standing::Joined { .. })
    }

    /// Its sources obey: at once where it is more, some time later where it is less.
    fn obey(&mut self, now: Time, random: &mut Random) {
        let most = self.most(now);
        if most >= self.moving {
            (self.moving, self.falls) = (most, Time::MAX);
        } else if self.falls == Time::MAX {
            self.falls = now + Span::from_millis(random.below(HEARD_MS));
        } else if self.falls <= now {
            (self.moving, self.falls, self.brings) = (most, Time::MAX, false);
        }
    }

    fn handle(&mut self, now: Time, event: Event) {
        self.standing = self.standing.handle(now, self.bond, event);
    }
}

impl Model {
    fn joined(&self) -> usize {
        self.processes.iter().filter(|process| process.is_joined()).count()
    }

    /// All connections end.
    fn lose(&mut self) {
        let now = self.now;
        for process in self.processes.iter_mut().filter(|process| process.is_joined()) {
            let (promised, granted) = (process.promised, process.granted);
            process.handle(now, Event::Lost { promised, granted });
            process.since = now;
        }
    }

    /// One look of each process that has no daemon.
    fn look(&mut self) {
        let (now, mut joined) = (self.now, self.joined());
        for process in self.processes.iter_mut().filter(|process| !process.is_joined()) {
            let event = match &self.daemon {
                None => Event::Absent,
                Some(Daemon { stage: Stage::Hung { .. }, .. }) => Event::Silent,
                Some(Daemon { room: None, .. }) => Event::OtherVersion,
                Some(Daemon { room: Some(room), .. }) if joined >= *room => Event::Full,
                Some(_) => Event::Joined,
            };
            if event == Event::Joined {
                joined += 1;
                // What is outstanding at its sessions, which it tells the daemon.
                process.granted = process.moving;
                process.promised = None;
            }
            let alone = matches!(process.standing, Standing::Alone { .. });
            process.handle(now, event);
            process.brings |= alone && !matches!(process.standing, Standing::Alone { .. });
        }
    }

    /// The daemon decides, if it serves: who has too much comes down, and others are raised only
    /// where there is room.
    fn decide(&mut self, random: &mut Random) {
        let joined = self.joined();
        let Some(daemon) = &mut self.daemon else { return };
        if let Stage::Grace { began, expected } = daemon.stage {
            let over = self.now.since(began) >= GRACE_MOST || joined >= expected;
            if !over || self.now == began {
                return;
            }
            daemon.stage = Stage::Serving;
        }
        if daemon.stage != Stage::Serving || joined == 0 {
            return;
        }
        let one = |at: usize| Joined { uid: at as u32 % 2, pid: at as i32 + 1 };
        let members: Vec<Joined> = (0..joined).map(one).collect();
        let promised = parts(CAPACITY, &members, &BTreeMap::new());
        let weights: Vec<u64> = (0..joined).map(|_| 1 + random.below(9)).collect();
        let sum: u64 = weights.iter().sum();
        let members = self.processes.iter_mut().filter(|process| process.is_joined());
        let mut members: Vec<&mut Process> = members.collect();
        let target = |at: usize| CAPACITY.scale(weights[at] as f64 / sum as f64 * 0.999);
        for (at, process) in members.iter_mut().enumerate() {
            process.granted = process.granted.min(target(at));
        }
        // What was granted counts until its sources have let go of it.
        let held = |p: &&mut Process| p.granted.max(p.moving);
        let held = members.iter().map(held).fold(Rate::ZERO, Rate::saturating_add);
        let (mut room, fits) = (CAPACITY.saturating_sub(held), held <= CAPACITY);
        for (at, process) in members.iter_mut().enumerate() {
            let held = process.granted.max(process.moving);
            let more = target(at).saturating_sub(held).min(room);
            process.granted = process.granted.saturating_add(more);
            room = room.saturating_sub(more);
            process.promised = Some(promised[at]);
            // What it brought counts within the capacity as soon as others have made room.
            process.allowed &= !fits;
            process.brings &= process.moving > process.granted;
        }
    }

    /// Something happens, or nothing does.
    fn happen(&mut self, random: &mut Random) {
        let now = self.now;
        let finds = self.finders && random.below(2) == 0;
        let bond = if finds { Bond::Found } else { Bond::Named };
        match random.below(60) {
            0 | 1 => {
                // In order or not, the next one is told how many were here.
                self.left = self.joined();
                self.lose();
                self.daemon = None;
            }
            2 => {
                if let Some(daemon) = &mut self.daemon {
                    daemon.stage = Stage::Hung { since: now };
                }
            }
            3 => {
                // It goes on, and notices that it stood still.
                let joined = self.joined();
                if let Some(daemon) = &mut self.daemon
                    && let Stage::Hung { .. } = daemon.stage
                {
                    daemon.stage = Stage::Grace { began: now, expected: usize::MAX };
                    self.left = joined;
                }
            }
            4..=7 if self.daemon.is_none() => {
                let expected = self.left.max(self.processes.len());
                let room = [None, Some(2), Some(1_000), Some(1_000)][random.below(4) as usize];
                self.daemon = Some(Daemon { stage: Stage::Grace { began: now, expected }, room });
            }
            8 if self.processes.len() < 8 => {
                // A named daemon is there before the first session, or nothing begins.
                let there = self.daemon.as_ref().is_some_and(|daemon| {
                    daemon.room.is_some_and(|room| room > self.joined())
                        && !matches!(daemon.stage, Stage::Hung { .. })
                });
                if bond == Bond::Found || there {
                    let standing = match bond {
                        Bond::Found => Standing::NEW,
                        Bond::Named => Standing::Joined { before: None },
                    };
                    let (granted, promised) = (Rate::ZERO, None);
                    let (brings, allowed) = (false, false);
                    let (since, moving, falls) = (now, Rate::ZERO, Time::MAX);
                    self.processes.push(Process {
                        bond,
                        standing,
                        granted,
                        promised,
                        brings,
                        allowed,
                        since,
                        moving,
                        falls,
                    });
                }
            }
            9 if !self.processes.is_empty() => {
                let at = random.below(self.processes.len() as u64) as usize;
                self.processes.remove(at);
            }
            _ => {}
        }
        if let Some(Daemon { stage: Stage::Hung { since }, .. }) = &self.daemon
            && now.since(*since) >= HANGS
        {
            self.lose();
        }
    }

    fn check(&mut self, seed: u64) {
        let now = self.now;
        let (mut sum, mut most_of_all) = (Rate::ZERO, CAPACITY);
        if self.daemon.is_some() {
            self.absent = now;
        }
        for at in 0..self.processes.len() {
            let process = &mut self.processes[at];
            let most = process.most(now);
            process.allowed |= match process.standing {
                // No daemon has promised it anything.
                Standing::Waiting { .. } | Standing::Orphaned { part: ALLOWANCE, .. } => true,
                Standing::Joined { .. } | Standing::Orphaned { .. } | Standing::Alone { .. } => {
                    false
                }
            };
            let (process, told) = (&self.processes[at], || format!("seed {seed}, {self:?}"));
            if let Standing::Alone { .. } = process.standing {
                assert_eq!(process.bond, Bond::Found, "{process:?}: {}", told());
                assert!(most <= OWN, "{process:?}: {}", told());
                continue;
            }
            let waits = matches!(process.standing, Standing::Waiting { .. });
            assert!(!waits || most <= ALLOWANCE, "{process:?}: {}", told());
            let stands = now.since(process.since) > SETTLE && most == Rate::ZERO;
            assert!(!stands, "stands still: {process:?}: {}", told());
            let orphan = matches!(process.standing, Standing::Orphaned { .. });
            let absent = now.since(self.absent) > ORPHAN_WAIT + STEP;
            let late = absent && now.since(process.since) > ORPHAN_WAIT + STEP;
            let found = process.bond == Bond::Found;
            assert!(!(found && late && orphan), "not alone: {process:?}: {}", told());
            assert!(process.moving <= OWN.max(CAPACITY), "{process:?}: {}", told());
            if process.brings {
                self.unsettled = now + SETTLE;
            }
            let process = &self.processes[at];
            sum = sum.saturating_add(process.moving);
            if process.allowed {
                most_of_all = most_of_all.saturating_add(ALLOWANCE);
            }
        }
        let settled = self.unsettled < now;
        assert!(!settled || sum <= most_of_all, "seed {seed}: {sum} of {most_of_all} in {self:?}");
    }
}

#[test]
fn in_any_order_of_deaths_and_joins_rates_stay_within_their_bound_and_nobody_stands_still() {
    for seed in 1..=2_000_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let now = Time::from_nanos(1_000_000_000);
        let (processes, unsettled, finders) = (Vec::new(), Time::ZERO, seed % 2 == 0);
        let (daemon, left, absent) = (None, 0, now);
        let mut model = Model { now, processes, daemon, left, unsettled, absent, finders };
        for _ in 0..600 {
            model.now += STEP;
            let now = model.now;
            for process in &mut model.processes {
                process.standing = process.standing.at(now);
                if process.is_joined() {
                    process.since = now;
                }
            }
            model.happen(&mut random);
            model.look();
            model.decide(&mut random);
            model.processes.iter_mut().for_each(|process| process.obey(now, &mut random));
            model.check(seed);
        }
    }
}

const START: Time = Time::from_nanos(1_000_000_000);

#[test]
fn a_daemon_that_was_found_is_forgotten_after_the_wait_and_one_that_was_named_never() {
    let part = Rate::from_mbps(25);
    let lost = Event::Lost { promised: Some(part), granted: Rate::from_mbps(10) };
    for (bond, later) in [(Bond::Found, None), (Bond::Named, Some(part))] {
        let orphan = Standing::Joined { before: None }.handle(START, bond, lost);
        assert_eq!(orphan.bound(START), Some(Rate::from_mbps(10)), "others come down first");
        let (settled, over) = (START + SETTLE, START + ORPHAN_WAIT);
        assert_eq!(orphan.poll_timeout(START), settled);
        assert_eq!(orphan.at(settled).bound(settled), Some(part));
        assert_eq!(orphan.at(over).bound(over), later);
        let again = orphan.handle(over, bond, Event::Joined);
        assert!(matches!(again, Standing::Joined { .. }));
    }
}

#[test]
fn a_daemon_that_is_full_or_silent_is_not_absent() {
    let full = Standing::NEW.handle(START, Bond::Found, Event::Full);
    let later = START + Span::from_secs(1_000);
    assert_eq!(full.at(later).bound(later), Some(ALLOWANCE));
    let silent = Standing::NEW.handle(START, Bond::Found, Event::Silent);
    assert_eq!(silent.bound(START), Some(ALLOWANCE));
    let over = START + ORPHAN_WAIT;
    let alone = silent.at(over);
    assert_eq!(alone.bound(over), None);
    assert_eq!(alone.handle(over, Bond::Found, Event::Silent), alone, "it stays so");
    let absent = full.handle(later, Bond::Found, Event::Absent);
    assert_eq!(absent.bound(later), Some(ALLOWANCE), "others may still be orphans");
    assert_eq!(absent.at(later + ORPHAN_WAIT), Standing::NEW);
}

#[test]
fn beside_a_daemon_of_another_version_nobody_takes_what_the_last_one_promised() {
    let lost = Event::Lost { promised: Some(OWN), granted: OWN };
    for (bond, later) in [(Bond::Found, None), (Bond::Named, Some(ALLOWANCE))] {
        let orphan = Standing::Joined { before: None }.handle(START, bond, lost);
        let other = orphan.handle(START, bond, Event::OtherVersion);
        assert_eq!(other.bound(START), Some(ALLOWANCE));
        let over = START + ORPHAN_WAIT;
        assert_eq!(other.at(over).bound(over), later);
    }
}

#[test]
fn the_wait_and_the_time_to_miss_a_daemon_that_hangs_are_five_seconds_together() {
    assert_eq!(HANGS + ORPHAN_WAIT, Span::from_secs(5));
}
