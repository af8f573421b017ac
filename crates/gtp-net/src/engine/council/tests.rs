//! Engines that share one capacity, in virtual time: what they agree on, and how soon.

use gtp_proto::agent::AgentConfig;
use gtp_proto::limits::RECOMPUTE_MIN;
use gtp_proto::{Law, Phase};
use gtp_sys::wake::Poller;
use proptest::prelude::*;

use super::*;

const START: Time = Time::from_nanos(1_000_000_000);
const INTERVAL: Span = Span::from_millis(10);

/// A session, and what its source has heard.
#[derive(Clone, Copy, Debug)]
struct Session {
    engine: usize,
    weight: f64,
    /// What it wants, in bit/s.
    wants: f64,
    echoed: u32,
}

/// Engines that look in by turns, in virtual time.
struct World {
    now: Time,
    seats: Vec<Option<Decider>>,
    sessions: Vec<Session>,
    granted: Vec<Rate>,
    offered: Vec<Rate>,
}

fn mbps(rate: f64) -> f64 {
    rate * 1e6
}

impl World {
    fn new(side: Side, capacity: f64, engines: usize, sessions: &[Session]) -> World {
        let capacity = Rate::from_f64(capacity);
        let agent = Agent::new(START, AgentConfig { side, capacity, interval: Some(INTERVAL) });
        let wakers = (0..engines).map(|_| Poller::new().unwrap().waker());
        let seats = Council::seats(agent, wakers);
        World {
            now: START,
            seats: seats.into_iter().map(|seat| Some(Decider::Common(seat))).collect(),
            sessions: sessions.to_vec(),
            granted: vec![Rate::ZERO; sessions.len()],
            offered: vec![Rate::ZERO; sessions.len()],
        }
    }

    /// Engine `at` looks in, if it has a reason to.
    fn look_in(&mut self, at: usize) -> bool {
        let Some(decider) = self.seats[at].as_mut() else { return false };
        if decider.poll_timeout() > self.now {
            return false;
        }
        let own = |(i, s): (usize, &Session)| (s.engine == at).then(|| (i as FlowId, report(s)));
        let reports: Vec<_> = self.sessions.iter().enumerate().filter_map(own).collect();
        let mut grants = Vec::new();
        decider.tick(self.now, &reports, &mut grants);
        assert!(grants.iter().map(|(id, _)| id).eq(reports.iter().map(|(id, _)| id)));
        let mut heard = false;
        for (id, grant) in grants {
            let i = id as usize;
            (self.granted[i], self.offered[i]) = (grant.rate, grant.offer);
            let before = std::mem::replace(&mut self.sessions[i].echoed, grant.number);
            heard |= before != grant.number;
        }
        if heard {
            // Its source has let go of what it had: an engine says so soon.
            decider.wake(self.now);
        }
        true
    }

    /// So many intervals pass; what one engine says wakes others at the same moment.
    fn pass(&mut self, intervals: u64) {
        for _ in 0..intervals * 10 {
            for _ in 0..3 {
                for at in 0..self.seats.len() {
                    self.look_in(at);
                }
            }
            self.now += RECOMPUTE_MIN.max(INTERVAL / 10);
        }
    }

    fn wake(&mut self, at: usize) {
        let now = self.now;
        self.seats[at].as_mut().unwrap().wake(now);
    }

    fn sum(&self) -> f64 {
        self.granted.iter().map(|rate| rate.as_f64()).sum()
    }
}

fn report(session: &Session) -> Report {
    Report {
        weight: session.weight,
        peer_weight: 1.0,
        law: Law::Grant,
        phase: Phase::Open,
        peer_offer: Rate::UNLIMITED,
        demand: Rate::from_f64(session.wants),
        firm: Rate::UNLIMITED,
        party: 0,
        owner: gtp_proto::Owner::NOBODY,
        measured: Rate::ZERO,
        echoed: session.echoed,
        rtt: Span::from_millis(20),
        counts: Default::default(),
        packet: Default::default(),
    }
}

/// The weighted max-min shares of sessions within their engines' limits and the host's capacity.
fn shares_within(capacity: f64, limits: &[f64], sessions: &[Session]) -> Vec<f64> {
    let rate = |s: &Session, level: f64| s.wants.min(s.weight * level);
    let full = |room: f64, rates: &dyn Fn(f64) -> f64| {
        let (mut low, mut high) = (0.0, 1e15);
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            if rates(middle) > room { high = middle } else { low = middle }
        }
        low
    };
    let of = |engine: usize| sessions.iter().filter(move |s| s.engine == engine);
    let sum = |engine: usize, level: f64| of(engine).map(|s| rate(s, level)).sum::<f64>();
    let own: Vec<f64> =
        limits.iter().enumerate().map(|(e, &limit)| full(limit, &|at| sum(e, at))).collect();
    let all = |level: f64| own.iter().enumerate().map(|(e, &own)| sum(e, level.min(own))).sum();
    let level = full(capacity, &all);
    sessions.iter().map(|s| rate(s, level.min(own[s.engine]))).collect()
}

fn hungry(engine: usize) -> Session {
    Session { engine, weight: 1.0, wants: mbps(100_000.0), echoed: 0 }
}

proptest! {
    #[test]
    fn engines_share_one_capacity_by_max_min_whoever_has_the_sessions(
        sessions in prop::collection::vec(
            (0..4_usize, 0.25..4.0_f64, 1.0..2_000.0_f64), 1..12),
        capacity in 10.0..5_000.0_f64,
        limits in prop::collection::vec(prop::option::of(10.0..3_000.0_f64), 4),
        sink in any::<bool>(),
    ) {
        let session = |&(engine, weight, wants): &(usize, f64, f64)| {
            Session { engine, weight, wants: mbps(wants), echoed: 0 }
        };
        let sessions: Vec<Session> = sessions.iter().map(session).collect();
        let side = if sink { Side::Sink } else { Side::Source };
        let mut world = World::new(side, mbps(capacity), 4, &sessions);
        for (seat, limit) in world.seats.iter_mut().zip(&limits) {
            let limit = limit.map_or(Rate::UNLIMITED, |limit| Rate::from_f64(mbps(limit)));
            seat.as_mut().unwrap().set_limit(limit);
        }
        world.pass(8);
        let limits: Vec<f64> = limits.iter().map(|l| l.map_or(1e15, mbps)).collect();
        let shares = shares_within(mbps(capacity), &limits, &sessions);
        for (i, (granted, share)) in world.granted.iter().zip(shares).enumerate() {
            let off = (granted.as_f64() - share).abs();
            prop_assert!(off < 1e-3 * share + 2_000.0, "session {i}: {granted}, not {share}");
            let offered = world.offered[i].as_f64();
            prop_assert!(offered + 2_000.0 > share * 0.999, "session {i}: offered {offered}");
            prop_assert!(offered <= limits[sessions[i].engine] * 1.001, "more than its engine can");
        }
    }
}

#[test]
fn a_session_that_comes_lowers_those_of_other_engines_before_the_interval_is_over() {
    for side in [Side::Source, Side::Sink] {
        let mut world = World::new(side, mbps(900.0), 3, &[hungry(0), hungry(1)]);
        world.pass(5);
        assert!((world.granted[0].as_f64() - mbps(450.0)).abs() < 2.0);
        world.sessions.push(hungry(2));
        world.granted.push(Rate::ZERO);
        world.offered.push(Rate::ZERO);
        world.wake(2);
        for _ in 1..INTERVAL.as_nanos() / RECOMPUTE_MIN.as_nanos() {
            world.now += RECOMPUTE_MIN;
            for at in [0, 1, 2, 0, 1, 2] {
                world.look_in(at);
            }
        }
        for granted in &world.granted {
            assert!((granted.as_f64() - mbps(300.0)).abs() < 2.0, "{side:?} {granted}");
        }
    }
}

#[test]
fn what_an_engine_had_is_the_others_when_its_last_session_or_itself_is_gone() {
    let mut world = World::new(Side::Sink, mbps(900.0), 3, &[hungry(0), hungry(1), hungry(2)]);
    world.pass(5);
    world.sessions[1].engine = usize::MAX;
    world.granted[1] = Rate::ZERO;
    assert!(world.seats[1].as_ref().unwrap().is_posting(), "the others do not know yet");
    world.pass(3);
    assert!(!world.seats[1].as_ref().unwrap().is_posting());
    assert!((world.granted[0].as_f64() - mbps(450.0)).abs() < 2.0);
    world.seats[2] = None;
    world.granted[2] = Rate::ZERO;
    world.pass(3);
    assert!((world.granted[0].as_f64() - mbps(900.0)).abs() < 2.0);
}

#[test]
fn a_capacity_that_every_engine_passes_on_holds_for_all_together() {
    let mut world = World::new(Side::Source, mbps(900.0), 3, &[hungry(0), hungry(1), hungry(2)]);
    world.pass(2);
    for seat in &mut world.seats {
        seat.as_mut().unwrap().set_capacity(Rate::from_mbps(300));
    }
    world.pass(3);
    assert!((world.sum() - mbps(300.0)).abs() < 4.0);
}

#[test]
fn an_idle_host_looks_in_no_oftener_than_its_interval() {
    let mut world = World::new(Side::Sink, mbps(900.0), 2, &[hungry(0)]);
    world.pass(3);
    let looks = (0..100).filter(|_| {
        world.now += Span::from_millis(1);
        world.look_in(1)
    });
    assert!(looks.count() <= 10, "engine 1 has no sessions: nobody wakes it");
}

#[test]
fn an_engine_whose_grants_stay_as_they_are_is_not_woken_when_another_decides() {
    let sessions = [hungry(0), Session { wants: mbps(1.0), ..hungry(1) }];
    let mut world = World::new(Side::Source, mbps(900.0), 2, &sessions);
    world.pass(5);
    let before = world.granted[1];
    let mut looks = 0;
    for _ in 0..50 {
        world.now += RECOMPUTE_MIN;
        world.wake(0);
        world.look_in(0);
        looks += u32::from(world.look_in(1));
    }
    assert!(looks <= 6, "once an interval: {looks}");
    assert_eq!(world.granted[1], before);
}
