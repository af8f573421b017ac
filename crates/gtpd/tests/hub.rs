//! The daemon's decisions, with processes that are pages: shares, departures, successions, liars.

mod posted;

use std::collections::BTreeMap;

use gtp_alloc::endnode::{CapAtTarget, Params, expected_rates};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_proto::Law;
use gtp_share::{
    Change, Found, Granted, GrantsReader, Of, Outstanding, Policy, Posted, ReportsWriter, Side,
};
use gtpd::{ClientId, EndNodeSessions, Hub, HubConfig, Right, SetError, Who};

const START: Time = Time::from_nanos(1_000_000_000);
const INTERVAL: Span = Span::from_millis(20);

fn config(mbps: u64) -> HubConfig {
    HubConfig {
        capacity_out: Rate::from_mbps(mbps),
        capacity_in: Rate::from_mbps(mbps),
        interval: Some(INTERVAL),
        grace: Span::ZERO,
        users: BTreeMap::new(),
        most: BTreeMap::new(),
        least: BTreeMap::new(),
        end_node: EndNodeSessions::default(),
    }
}

/// A process: its pages, and sessions whose sources obey what they are granted at once.
struct Process {
    id: ClientId,
    reports: ReportsWriter,
    grants: GrantsReader,
    sessions: Vec<Posted>,
}

impl Process {
    fn attach(hub: &mut Hub, now: Time, id: ClientId, uid: u32) -> Process {
        Process::with_slots(hub, now, id, uid, 64)
    }

    fn with_slots(hub: &mut Hub, now: Time, id: ClientId, uid: u32, slots: u32) -> Process {
        let who = Who { uid, pid: 1, program: "test".into() };
        let ([reports, grants], slots) = hub.attach(now, id, who, slots).unwrap();
        Process {
            id,
            reports: ReportsWriter::open(&reports, slots).unwrap(),
            grants: GrantsReader::open(&grants, slots).unwrap(),
            sessions: Vec::new(),
        }
    }

    /// Opens sessions of one transfer.
    fn open(&mut self, side: Side, transfer: u64, count: usize) {
        for _ in 0..count {
            let id = self.sessions.len() as u32 + 1;
            self.sessions.push(Posted { id, side, transfer, ..posted::session() });
        }
    }

    fn post(&self) {
        for (slot, session) in (0..).zip(&self.sessions) {
            self.reports.post(slot, session);
        }
        self.reports.beat();
    }

    fn granted(&self) -> Vec<Granted> {
        let read = |slot| match self.grants.read(slot) {
            Found::Record(granted) => granted,
            Found::Nothing | Found::Torn => panic!("no grant in slot {slot}"),
        };
        (0..self.sessions.len() as u32).map(read).collect()
    }

    fn rates(&self) -> Vec<f64> {
        self.granted().iter().map(|g| g.grant.rate.as_f64() / 1e6).collect()
    }

    fn total(&self) -> f64 {
        self.rates().iter().sum()
    }

    /// Every source obeys its newest grant.
    fn obey(&mut self) {
        let granted = self.granted();
        for (session, granted) in self.sessions.iter_mut().zip(granted) {
            session.report.echoed = granted.grant.number;
            session.report.measured = granted.grant.rate;
        }
    }
}

/// Runs some intervals; returns the time after them. The sum of what may be arriving never exceeds
/// `most` Mbit/s.
fn run(hub: &mut Hub, from: Time, intervals: u64, all: &mut [&mut Process], most: f64) -> Time {
    let mut news = Vec::new();
    let mut now = from;
    for _ in 0..intervals {
        all.iter().for_each(|process| process.post());
        hub.wake(now);
        hub.tick(now, &mut news);
        let sum: f64 = all.iter().map(|process| process.total()).sum();
        assert!(sum <= most * (1.0 + 1e-6), "{sum} of {most}");
        all.iter_mut().for_each(|process| process.obey());
        now += INTERVAL;
    }
    now
}

fn weight(weight: f64) -> Change {
    Change { weight: Some(weight), ..Change::default() }
}

fn near(x: f64, y: f64) -> bool {
    (x - y).abs() <= 1e-3 * y
}

#[test]
fn users_are_equal_and_transfers_of_a_user_are_equal_however_many_sessions_they_open() {
    for side in [Side::Source, Side::Sink] {
        let mut hub = Hub::new(START, &config(120));
        let mut processes: Vec<Process> =
            (0..4).map(|i| Process::attach(&mut hub, START, i, (i / 2) as u32)).collect();
        for (process, count) in processes.iter_mut().zip([1, 1, 4, 10]) {
            process.open(side, 1, count);
        }
        let mut all: Vec<&mut Process> = processes.iter_mut().collect();
        run(&mut hub, START, 20, &mut all, 120.0);
        for process in &processes {
            assert!(near(process.total(), 30.0), "{side:?}: {:?}", process.rates());
        }
    }
}

#[test]
fn weights_of_users_and_of_sessions_count() {
    let users = BTreeMap::from([(7, 2.0)]);
    let mut hub = Hub::new(START, &HubConfig { users, ..config(120) });
    let mut one = Process::attach(&mut hub, START, 1, 7);
    let mut two = Process::attach(&mut hub, START, 2, 8);
    one.open(Side::Sink, 1, 1);
    two.open(Side::Sink, 1, 3);
    two.sessions[1].report.weight = 2.0;
    let now = run(&mut hub, START, 20, &mut [&mut one, &mut two], 120.0);
    assert!(near(one.total(), 80.0));
    assert_eq!(two.rates(), [10.0, 20.0, 10.0]);
    let listed = hub.sessions_for(Right::Of(8));
    assert_eq!(listed[0].label, "(another user's)");
    let mine = listed[1].session;
    assert_eq!(hub.set(now, Right::Of(7), mine, weight(4.0)), Err(SetError::NotYours));
    assert_eq!(hub.set(now, Right::Of(8), mine, weight(f64::NAN)), Err(SetError::BadWeight));
    assert_eq!(hub.set(now, Right::Of(8), 99, weight(1.0)), Err(SetError::NoSuchSession));
    assert_eq!(hub.set(now, Right::Of(8), mine, weight(5.0)), Ok(()));
    let now = run(&mut hub, now, 20, &mut [&mut one, &mut two], 120.0);
    assert_eq!(two.rates(), [25.0, 10.0, 5.0]);
    let limit = Change { max_rate: Some(1_000_000), ..Change::default() };
    assert_eq!(hub.set(now, Right::Anybodys, mine, limit), Ok(()));
    let now = run(&mut hub, now, 20, &mut [&mut one, &mut two], 120.0);
    assert!(near(two.rates()[0], 1.0));
    let low = Change { max_rate: Some(0), policy: Some(Policy::Low), ..Change::default() };
    assert_eq!(hub.set(now, Right::Of(8), mine, low), Ok(()));
    let now = run(&mut hub, now, 20, &mut [&mut one, &mut two], 120.0);
    assert!(two.rates()[0] < 0.001, "others leave nothing: {:?}", two.rates());
    one.sessions[0].report.demand = Rate::from_mbps(10);
    two.sessions[1].report.demand = Rate::from_mbps(10);
    two.sessions[2].report.demand = Rate::from_mbps(10);
    run(&mut hub, now, 20, &mut [&mut one, &mut two], 120.0);
    assert!(near(two.rates()[0], 90.0), "what others leave is its: {:?}", two.rates());
}

#[test]
fn a_transfer_has_the_mean_weight_of_its_sessions_among_its_users_transfers_only() {
    let mut hub = Hub::new(START, &config(140));
    let mut other = Process::attach(&mut hub, START, 0, 8);
    let mut mine: Vec<Process> = (1..=3).map(|i| Process::attach(&mut hub, START, i, 7)).collect();
    other.open(Side::Sink, 1, 1);
    for (process, (count, weight)) in mine.iter_mut().zip([(1, 1.0), (5, 2.0), (2, 4.0)]) {
        process.open(Side::Sink, 1, count);
        process.sessions.iter_mut().for_each(|session| session.report.weight = weight);
    }
    let now = {
        let mut all: Vec<&mut Process> = mine.iter_mut().chain([&mut other]).collect();
        run(&mut hub, START, 30, &mut all, 140.0)
    };
    let totals: Vec<f64> = mine.iter().map(Process::total).collect();
    assert!(near(totals[0], 10.0) && near(totals[1], 20.0) && near(totals[2], 40.0), "{totals:?}");
    assert!(near(other.total(), 70.0), "another user has what he had");
    let alone = hub.sessions_for(Right::Of(7));
    let alone = alone.iter().find(|s| s.weight == 1.0 && s.label == "session").unwrap().session;
    assert_eq!(hub.set(now, Right::Of(7), alone, weight(8.0)), Ok(()));
    let mut all: Vec<&mut Process> = mine.iter_mut().chain([&mut other]).collect();
    run(&mut hub, now, 30, &mut all, 140.0);
    assert!(near(mine[0].total(), 40.0), "8 of 14: {:?}", mine[0].rates());
}

#[test]
fn a_weight_that_is_set_for_a_served_session_counts_between_clients_and_one_they_bring_does_not() {
    let mut hub = Hub::new(START, &config(120));
    let mut server = Process::attach(&mut hub, START, 1, 7);
    server.open(Side::Sink, 1, 2);
    for (client, session) in server.sessions.iter_mut().enumerate() {
        session.principal = client as u64 + 1;
        session.transfer = client as u64;
        session.report.weight = 1.0 + 8.0 * client as f64;
    }
    let now = run(&mut hub, START, 20, &mut [&mut server], 120.0);
    assert!(near(server.rates()[0], 60.0), "{:?}", server.rates());
    let first = hub.sessions_for(Right::Of(7))[0].session;
    assert_eq!(hub.set(now, Right::Of(7), first, weight(3.0)), Ok(()));
    run(&mut hub, now, 30, &mut [&mut server], 120.0);
    assert!(near(server.rates()[0], 90.0), "{:?}", server.rates());
}

#[test]
fn strangers_of_one_server_share_one_room_and_a_listed_client_keeps_its_own() {
    const KEY: u64 = gtp_share::KEYS | 5;
    let most = BTreeMap::from([(9, Rate::from_mbps(1_000))]);
    for (side, most) in [(Side::Source, BTreeMap::new()), (Side::Sink, most)] {
        let mut hub = Hub::new(START, &HubConfig { most, ..config(100) });
        let mut server = Process::attach(&mut hub, START, 1, 7);
        server.open(side, 1, 34);
        for (client, session) in server.sessions.iter_mut().enumerate() {
            (session.principal, session.transfer) = (client as u64, client as u64);
            if client > 0 {
                session.report.demand = Rate::from_mbps(2);
                session.report.firm = Rate::from_mbps(1);
            }
        }
        (server.sessions[0].principal, server.sessions[33].principal) = (KEY + 1, KEY);
        run(&mut hub, START, 40, &mut [&mut server], 100.0);
        let rates = server.rates();
        let part = 100.0 / 256.0;
        assert!(near(rates[0], 100.0 - 33.0 - 2.0 * part), "{side:?}: {rates:?}");
        assert!(near(rates[33], 1.0 + part), "{side:?}: {rates:?}");
        assert!(near(rates[1], 1.0 + part / 32.0), "{side:?}: {rates:?}");
    }
}

#[test]
fn the_other_ends_factor_lessens_a_session_and_never_raises_it_above_its_part_here() {
    let mut hub = Hub::new(START, &config(120));
    let mut one = Process::attach(&mut hub, START, 1, 7);
    let mut two = Process::attach(&mut hub, START, 2, 8);
    one.open(Side::Sink, 1, 1);
    two.open(Side::Sink, 1, 1);
    one.sessions[0].report.peer_weight = 0.5;
    let now = run(&mut hub, START, 20, &mut [&mut one, &mut two], 120.0);
    assert!(near(one.total(), 40.0) && near(two.total(), 80.0));
    assert_eq!(one.granted()[0].grant.weight, 1.0);
    one.sessions[0].report.peer_weight = 100.0;
    run(&mut hub, now, 20, &mut [&mut one, &mut two], 120.0);
    assert!(near(one.total(), 60.0) && near(two.total(), 60.0));
    // What was taken off is told, so that both ends have the same product.
    let told = one.granted()[0].grant.weight;
    assert_eq!(told, f64::from(0.01_f32));
}

#[test]
fn a_user_with_a_limit_has_no_more_while_more_is_free_and_shares_it_among_his_own() {
    let most = BTreeMap::from([(7, Rate::from_mbps(30))]);
    for side in [Side::Source, Side::Sink] {
        let mut hub = Hub::new(START, &HubConfig { most: most.clone(), ..config(120) });
        let mut one = Process::attach(&mut hub, START, 1, 7);
        let mut two = Process::attach(&mut hub, START, 2, 7);
        let mut other = Process::attach(&mut hub, START, 3, 8);
        one.open(side, 1, 2);
        two.open(side, 1, 1);
        other.open(side, 1, 1);
        other.sessions[0].report.demand = Rate::from_mbps(20);
        let all = &mut [&mut one, &mut two, &mut other];
        let now = run(&mut hub, START, 20, all, 120.0);
        assert_eq!((one.rates(), two.rates()), (vec![7.5, 7.5], vec![15.0]));
        one.sessions[0].report.demand = Rate::from_mbps(3);
        one.sessions[1].report.peer_offer = Rate::from_mbps(3);
        run(&mut hub, now, 20, &mut [&mut one, &mut two, &mut other], 120.0);
        assert!(near(two.total(), 24.0), "what his other sessions leave is his: {:?}", two.rates());
        assert!(near(other.total(), 20.0));
        let offers: Vec<Rate> = one.granted().iter().map(|g| g.grant.offer).collect();
        assert!(offers[1] > Rate::from_mbps(3), "more is offered than the other end lets it have");
        assert!(offers.iter().all(|&offer| offer <= Rate::from_mbps(30)));
    }
}

#[test]
fn what_users_have_can_change_while_their_sessions_run_and_what_was_set_by_hand_stays() {
    let users = |weight: f64| BTreeMap::from([(7, weight)]);
    let rates = |mbps: u64| BTreeMap::from([(7, Rate::from_mbps(mbps))]);
    for side in [Side::Source, Side::Sink] {
        let mut hub = Hub::new(START, &config(120));
        let mut one = Process::attach(&mut hub, START, 1, 7);
        let mut other = Process::attach(&mut hub, START, 2, 8);
        one.open(side, 1, 2);
        other.open(side, 1, 1);
        let mut now = run(&mut hub, START, 20, &mut [&mut one, &mut other], 120.0);
        assert!(near(one.total(), 60.0), "{side:?}: {:?}", one.rates());
        let first = hub.sessions_for(Right::Of(7))[0].session;
        assert_eq!(hub.set(now, Right::Of(7), first, weight(3.0)), Ok(()));
        let heavy = HubConfig { users: users(2.0), ..config(120) };
        let capped = HubConfig { most: rates(30), ..config(120) };
        let promised = HubConfig { least: rates(100), ..config(120) };
        let told = [(heavy, 80.0), (capped, 30.0), (promised, 100.0), (config(120), 60.0)];
        for (told, expected) in told {
            hub.set_users(now, &told);
            now = run(&mut hub, now, 30, &mut [&mut one, &mut other], 120.0);
            let (rates, total) = (one.rates(), one.total());
            assert!(near(total, expected), "{side:?}: {expected}: {rates:?}");
            assert!(near(rates[0], 3.0 * rates[1]), "{side:?}: {rates:?}");
        }
    }
}

#[test]
fn a_user_with_a_guarantee_is_served_first_and_what_he_does_not_want_goes_to_others() {
    let least = BTreeMap::from([(7, Rate::from_mbps(90))]);
    for side in [Side::Source, Side::Sink] {
        let mut hub = Hub::new(START, &HubConfig { least: least.clone(), ..config(120) });
        let mut one = Process::attach(&mut hub, START, 1, 7);
        let mut other = Process::attach(&mut hub, START, 2, 8);
        one.open(side, 1, 2);
        other.open(side, 1, 1);
        let now = run(&mut hub, START, 20, &mut [&mut one, &mut other], 120.0);
        assert_eq!((one.rates(), other.rates()), (vec![45.0, 45.0], vec![30.0]), "{side:?}");
        one.sessions[0].report.demand = Rate::from_mbps(1);
        let now = run(&mut hub, now, 20, &mut [&mut one, &mut other], 120.0);
        assert!(near(one.rates()[1], 89.0), "his other session has the rest: {:?}", one.rates());
        one.sessions[1].report.peer_offer = Rate::from_mbps(9);
        let now = run(&mut hub, now, 20, &mut [&mut one, &mut other], 120.0);
        assert!(near(one.total(), 10.0) && near(other.total(), 110.0));
        let offers: Vec<f64> = one.granted().iter().map(|g| g.grant.offer.as_f64() / 1e6).collect();
        assert!(near(offers[1], 89.0), "his guarantee is there again: {offers:?}");
        one.sessions[1].report.peer_offer = Rate::UNLIMITED;
        run(&mut hub, now, 20, &mut [&mut one, &mut other], 120.0);
        assert!(near(one.total(), 90.0) && near(other.total(), 30.0));
    }
}

#[test]
fn guarantees_beyond_the_capacity_are_cut_alike_and_no_sum_exceeds_it() {
    let least = BTreeMap::from([(7, Rate::from_mbps(180)), (8, Rate::from_mbps(60))]);
    for side in [Side::Source, Side::Sink] {
        let mut hub = Hub::new(START, &HubConfig { least: least.clone(), ..config(120) });
        assert_eq!(hub.guaranteed(), Rate::from_mbps(240));
        let mut all: Vec<Process> =
            (0..3).map(|i| Process::attach(&mut hub, START, i, 7 + i as u32)).collect();
        all.iter_mut().for_each(|process| process.open(side, 1, 2));
        let mut all: Vec<&mut Process> = all.iter_mut().collect();
        run(&mut hub, START, 20, &mut all, 120.0);
        let totals: Vec<f64> = all.iter().map(|process| process.total()).collect();
        assert_eq!(totals, [90.0, 30.0, 0.0], "{side:?}");
    }
}

#[test]
fn a_transfer_is_capped_by_its_user_and_guaranteed_by_root_until_it_ends() {
    for side in [Side::Source, Side::Sink] {
        let mut hub = Hub::new(START, &config(120));
        let mut one = Process::attach(&mut hub, START, 1, 7);
        let mut other = Process::attach(&mut hub, START, 2, 8);
        one.open(side, 1, 2);
        one.open(side, 2, 1);
        other.open(side, 1, 1);
        let now = run(&mut hub, START, 20, &mut [&mut one, &mut other], 120.0);
        let session = hub.sessions_for(Right::Of(7))[0].session;
        let of_transfer = Change { of: Of::Transfer, ..Change::default() };
        let capped = Change { max_rate: Some(20_000_000), ..of_transfer };
        assert_eq!(hub.set(now, Right::Of(7), session, capped), Ok(()));
        let now = run(&mut hub, now, 20, &mut [&mut one, &mut other], 120.0);
        let rates = one.rates();
        assert!(rates[..2] == [10.0, 10.0] && near(rates[2], 100.0 / 3.0), "{side:?}: {rates:?}");
        assert_eq!(hub.sessions_for(Right::Of(7))[0].transfer_max_rate, Some(20_000_000));
        let kept = Change { guarantee: Some(80_000_000), max_rate: Some(0), ..of_transfer };
        assert_eq!(hub.set(now, Right::Of(7), session, kept), Err(SetError::NotForUsers));
        assert_eq!(hub.set(now, Right::Anybodys, session, kept), Ok(()));
        let heavy = Change { weight: Some(2.0), ..of_transfer };
        assert_eq!(hub.set(now, Right::Anybodys, session, heavy), Err(SetError::NotOfThese));
        let alone = Change { guarantee: Some(1), ..Change::default() };
        assert_eq!(hub.set(now, Right::Anybodys, session, alone), Err(SetError::NotOfThese));
        let now = run(&mut hub, now, 20, &mut [&mut one, &mut other], 120.0);
        let rates = one.rates();
        assert!(rates[..2] == [40.0, 40.0] && near(rates[2], 40.0 / 3.0), "{side:?}: {rates:?}");
        assert_eq!(hub.guaranteed(), Rate::from_mbps(80));
        one.sessions.truncate(0);
        (0..3).for_each(|slot| one.reports.clear(slot));
        run(&mut hub, now, 2, &mut [&mut one, &mut other], 120.0);
        assert_eq!(hub.guaranteed(), Rate::ZERO);
    }
}

#[test]
fn a_toll_counts_what_was_lost_since_the_last_one_by_direction() {
    let mut hub = Hub::new(START, &config(120));
    let mut one = Process::attach(&mut hub, START, 1, 7);
    one.open(Side::Sink, 1, 3);
    one.open(Side::Source, 2, 1);
    let now = run(&mut hub, START, 2, &mut [&mut one], 240.0);
    let second = Span::from_secs(1);
    let none = hub.toll(Side::Sink, second);
    assert_eq!((none.moving, none.losing, none.through), (0, 0, Bytes::ZERO));
    for (session, (packets, lost)) in one.sessions.iter_mut().zip([(900, 100), (990, 10), (63, 0)])
    {
        session.packets = packets;
        session.lost = lost;
        session.wire_bytes = packets * 1_500;
    }
    one.sessions[3].packets = 500;
    one.sessions[3].lost = 500;
    one.sessions[3].wire_bytes = 1_000_000;
    run(&mut hub, now, 1, &mut [&mut one], 240.0);
    let toll = hub.toll(Side::Sink, second);
    assert_eq!((toll.moving, toll.losing), (2, 2), "63 packets do not count");
    assert_eq!(toll.through, Bytes(1_500 * 1_953));
    let sent = hub.toll(Side::Source, second);
    assert_eq!((sent.moving, sent.losing), (1, 1));
    assert_eq!(sent.through, Bytes(500_000), "half of what was sent came through");
    assert_eq!(hub.toll(Side::Sink, second).moving, 0, "it is taken once");
    one.sessions[0].wire_bytes = u64::MAX;
    run(&mut hub, now + second, 1, &mut [&mut one], 240.0);
    let liar = hub.toll(Side::Sink, second);
    assert_eq!(liar.through, Rate::from_mbps(40).bytes_in(second), "what it was granted");
}

#[test]
fn nobody_is_believed_to_have_said_more_than_he_moved() {
    let mut hub = Hub::new(START, &config(120));
    let mut one = Process::attach(&mut hub, START, 1, 7);
    one.open(Side::Sink, 1, 3);
    one.open(Side::Source, 2, 1);
    let now = run(&mut hub, START, 2, &mut [&mut one], 240.0);
    let span = Span::from_secs(1);
    assert_eq!(hub.said(span), Bytes::ZERO, "all are idle");
    one.sessions[0].wire_bytes = 100;
    one.sessions[1].wire_bytes = 40_000_000;
    one.sessions[3].wire_bytes = 30;
    run(&mut hub, now, 1, &mut [&mut one], 240.0);
    let said = hub.said(span).0;
    let most = said - 130;
    assert!(most > 0 && most < 1_000_000 && most.is_multiple_of(140), "{said}");
    assert_eq!(hub.said(span), Bytes::ZERO, "it is taken once");
}

#[test]
fn a_process_that_ends_gives_its_share_back_within_two_intervals() {
    let mut hub = Hub::new(START, &config(100));
    let mut one = Process::attach(&mut hub, START, 1, 1);
    let mut two = Process::attach(&mut hub, START, 2, 2);
    one.open(Side::Sink, 1, 1);
    two.open(Side::Sink, 1, 1);
    let now = run(&mut hub, START, 20, &mut [&mut one, &mut two], 100.0);
    assert!(near(one.total(), 50.0));
    hub.detach(now, two.id);
    run(&mut hub, now, 2, &mut [&mut one], 100.0);
    assert!(near(one.total(), 100.0));
}

/// One tick after all have said the same as before; who has news.
fn quiet_tick(hub: &mut Hub, now: Time, all: &[&Process]) -> Vec<ClientId> {
    let mut news = Vec::new();
    all.iter().for_each(|process| process.post());
    hub.wake(now);
    hub.tick(now, &mut news);
    news
}

#[test]
fn grants_that_stay_as_they_are_are_not_written_again_when_somebody_else_leaves() {
    // Without a limit no offer depends on others, and no weight on another user.
    let unlimited =
        HubConfig { capacity_out: Rate::UNLIMITED, capacity_in: Rate::UNLIMITED, ..config(0) };
    for side in [Side::Source, Side::Sink] {
        let mut hub = Hub::new(START, &unlimited);
        let mut all = [1, 2, 3].map(|id| Process::attach(&mut hub, START, id, id as u32));
        for (process, mbps) in all.iter_mut().zip([10, 20, 30]) {
            process.open(side, 1, 2);
            process.sessions.iter_mut().for_each(|s| s.report.demand = Rate::from_mbps(mbps));
        }
        let [one, two, three] = &mut all;
        let now = run(&mut hub, START, 10, &mut [&mut *one, two, three], 1e9);
        assert!(quiet_tick(&mut hub, now, &[one, two, three]).is_empty(), "{side:?}");
        hub.detach(now, one.id);
        let rest: [&Process; 2] = [two, three];
        for ticks in 1..4 {
            let now = now + INTERVAL * ticks;
            let news = quiet_tick(&mut hub, now, &rest);
            assert!(news.is_empty(), "{side:?}: {news:?}");
        }
        for (process, mbps) in rest.into_iter().zip([20.0, 30.0]) {
            assert_eq!(process.rates(), [mbps, mbps], "{side:?}");
            let ids: Vec<u32> = process.granted().iter().map(|granted| granted.id).collect();
            assert_eq!(ids, [1, 2], "{side:?}");
        }
    }
}

#[test]
fn a_slot_that_is_used_again_is_granted_to_its_new_session_also_if_that_wants_the_same() {
    for side in [Side::Source, Side::Sink] {
        let mut hub = Hub::new(START, &config(100));
        let mut one = Process::attach(&mut hub, START, 1, 1);
        one.open(side, 1, 1);
        one.sessions[0].report.demand = Rate::from_mbps(10);
        let now = run(&mut hub, START, 10, &mut [&mut one], 100.0);
        one.sessions[0] = Posted { id: 9, ..one.sessions[0] };
        one.sessions[0].report.echoed = 0;
        run(&mut hub, now, 10, &mut [&mut one], 100.0);
        let [granted] = one.granted()[..] else { panic!("one session") };
        assert_eq!((granted.id, granted.grant.rate), (9, Rate::from_mbps(10)), "{side:?}");
    }
}

#[test]
fn a_process_that_stands_still_is_given_nothing_until_it_moves_again() {
    let mut hub = Hub::new(START, &config(100));
    let mut one = Process::attach(&mut hub, START, 1, 1);
    let mut two = Process::attach(&mut hub, START, 2, 2);
    one.open(Side::Sink, 1, 1);
    two.open(Side::Sink, 1, 1);
    let now = run(&mut hub, START, 20, &mut [&mut one, &mut two], 100.0);
    let now = run(&mut hub, now, 200, &mut [&mut one], 100.0);
    assert!(near(one.total(), 100.0));
    assert_eq!(two.total(), 0.0);
    run(&mut hub, now, 20, &mut [&mut one, &mut two], 100.0);
    assert!(near(two.total(), 50.0));
}

#[test]
fn a_new_daemon_raises_nobody_before_all_have_handed_over_what_they_hold() {
    let grace = Span::from_millis(250);
    let mut hub = Hub::new(START, &HubConfig { grace, ..config(100) });
    let mut news = Vec::new();
    let hold = |process: &mut Process, mbps: u64, committed: u64| {
        process.open(Side::Sink, 1, 1);
        process.sessions[0].held = Outstanding {
            number: 40,
            rate: Rate::from_mbps(mbps),
            committed: Rate::from_mbps(committed),
        };
        process.sessions[0].report.echoed = 39;
    };
    let mut one = Process::attach(&mut hub, START, 1, 1);
    hold(&mut one, 10, 10);
    one.post();
    hub.wake(START);
    hub.tick(START, &mut news);
    assert!(matches!(one.grants.read(0), Found::Nothing), "the others may be on their way");
    let mut two = Process::attach(&mut hub, START + grace, 2, 2);
    hold(&mut two, 80, 90);
    two.post();
    let now = START + grace;
    assert!(hub.poll_timeout() <= now, "those that hold too much are lowered before");
    hub.tick(now, &mut news);
    assert_eq!(one.rates(), [10.0], "90 of 100 may still be arriving");
    assert_eq!(two.rates(), [50.0]);
    assert_eq!(two.granted()[0].grant.number, 41, "numbers go on");
    run(&mut hub, now + INTERVAL, 3, &mut [&mut one, &mut two], 100.0);
    assert_eq!((one.rates()[0], two.rates()[0]), (50.0, 50.0));
}

#[test]
fn late_claims_to_hold_much_are_not_believed() {
    let mut hub = Hub::new(START, &config(100));
    let mut one = Process::attach(&mut hub, START, 1, 1);
    one.open(Side::Sink, 1, 1);
    let now = START + Span::from_secs(60);
    run(&mut hub, now, 3, &mut [&mut one], 100.0);
    let mut liar = Process::attach(&mut hub, now, 2, 2);
    liar.open(Side::Sink, 1, 1);
    liar.sessions[0].held =
        Outstanding { number: 9, rate: Rate::UNLIMITED, committed: Rate::UNLIMITED };
    let now = run(&mut hub, now + Span::from_secs(1), 3, &mut [&mut one, &mut liar], 100.0);
    assert!(near(one.total(), 50.0) && near(liar.total(), 50.0));
    assert!(liar.granted()[0].grant.number > 9);
    one.sessions[0].report.demand = Rate::ZERO;
    let now = run(&mut hub, now, 3, &mut [&mut one, &mut liar], 100.0);
    one.sessions[0].report.demand = Rate::UNLIMITED;
    run(&mut hub, now, 3, &mut [&mut one, &mut liar], 100.0);
    assert!(near(one.total(), 50.0));
}

#[test]
fn a_session_cannot_change_its_weight_by_rewriting_its_page() {
    let mut hub = Hub::new(START, &config(100));
    let mut one = Process::attach(&mut hub, START, 1, 1);
    one.open(Side::Sink, 1, 2);
    let now = run(&mut hub, START, 3, &mut [&mut one], 100.0);
    one.sessions[0].report.weight = 100.0;
    one.sessions[0].transfer = 2;
    one.sessions[0].principal = 9;
    run(&mut hub, now, 10, &mut [&mut one], 100.0);
    assert_eq!(one.rates(), [50.0, 50.0]);
}

#[test]
fn a_session_that_claims_to_hold_the_last_grant_of_all_can_be_told_to_let_go() {
    let mut hub = Hub::new(START, &config(100));
    let mut liar = Process::attach(&mut hub, START, 1, 1);
    let mut one = Process::attach(&mut hub, START, 2, 2);
    liar.open(Side::Sink, 1, 1);
    liar.sessions[0].held =
        Outstanding { number: u32::MAX, rate: Rate::UNLIMITED, committed: Rate::UNLIMITED };
    one.open(Side::Sink, 1, 1);
    run(&mut hub, START, 10, &mut [&mut liar, &mut one], 100.0);
    assert!(near(one.total(), 50.0));
}

#[test]
fn a_daemon_without_sessions_sleeps_until_it_is_rung() {
    let mut hub = Hub::new(START, &config(100));
    assert_eq!(hub.poll_timeout(), Time::MAX);
    let mut one = Process::attach(&mut hub, START, 1, 1);
    assert_eq!(hub.poll_timeout(), START, "it is to be promised its part");
    hub.tick(START, &mut Vec::new());
    assert_eq!(hub.poll_timeout(), Time::MAX);
    hub.wake(START);
    hub.tick(START, &mut Vec::new());
    assert_eq!(hub.poll_timeout(), Time::MAX, "it rang for nothing");
    one.open(Side::Sink, 1, 1);
    let now = run(&mut hub, START + INTERVAL, 3, &mut [&mut one], 100.0);
    assert!(hub.poll_timeout() < now + INTERVAL);
    one.reports.clear(0);
    one.sessions.clear();
    hub.wake(now);
    hub.tick(now, &mut Vec::new());
    hub.tick(now + INTERVAL, &mut Vec::new());
    assert_eq!(hub.poll_timeout(), Time::MAX);
}

#[test]
fn one_user_cannot_take_all_the_room_for_sessions() {
    let mut hub = Hub::new(START, &config(100));
    let full = gtp_share::SLOTS_MOST;
    let mut greedy: Vec<Process> =
        (0..5).map(|id| Process::with_slots(&mut hub, START, id, 1, full)).collect();
    for process in &mut greedy {
        process.open(Side::Sink, 1, full as usize);
        process.post();
    }
    let mut one = Process::attach(&mut hub, START, 9, 2);
    one.open(Side::Sink, 1, 1);
    one.post();
    hub.wake(START);
    hub.tick(START, &mut Vec::new());
    assert_eq!(hub.host().sessions as usize, gtpd::SESSIONS_OF_ONE + 1);
    assert!(near(one.total(), 50.0));
}

#[test]
fn of_pages_that_say_to_be_full_a_tick_reads_a_bounded_part() {
    const USED: usize = 2; // Word of the head.
    let mut hub = Hub::new(START, &config(100));
    let full = gtp_share::SLOTS_MOST;
    let pages = 2 * gtpd::SESSIONS_OF_ONE as u64 / u64::from(full);
    for id in 0..pages {
        let greedy = Process::with_slots(&mut hub, START, id, 1, full);
        let used = &greedy.reports.raw()[USED];
        used.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    }
    let mut open = |id, uid| {
        let mut process = Process::attach(&mut hub, START, id, uid);
        process.open(Side::Sink, 1, 1);
        process.post();
        process
    };
    let (_late, other) = (open(98, 1), open(99, 2));
    let look = |hub: &mut Hub, now| {
        hub.wake(now);
        hub.tick(now, &mut Vec::new());
        hub.host().sessions
    };
    assert_eq!(look(&mut hub, START), 1, "the other user's");
    assert!(near(other.total(), 100.0));
    hub.detach(START, 0);
    assert_eq!(look(&mut hub, START + INTERVAL), 2, "there is room again");
}

/// The thesis's steps, as a session's law.
const END_NODE: Law = Law::EndNode { alpha: 0.1, beta: 0.2 };

/// Two users' processes with a session each under the end-node law, which moved so many Mbit/s.
fn under_end_node_law(hub: &mut Hub, side: Side, moved: [u64; 2]) -> [Process; 2] {
    [0, 1].map(|user| {
        let mut process = Process::attach(hub, START, user as ClientId, user);
        process.open(side, 1, 1);
        let report = &mut process.sessions[0].report;
        (report.law, report.measured) = (END_NODE, Rate::from_mbps(moved[user as usize]));
        process.post();
        process
    })
}

#[test]
fn a_daemon_shares_out_sessions_under_the_end_node_law_by_it_only_where_it_is_told() {
    for side in [Side::Source, Side::Sink] {
        let moved = [20, 60].map(Rate::from_mbps);
        let mut law = [Rate::ZERO; 2];
        let params = Params { alpha: 0.1, beta: 0.2, cap_at_target: CapAtTarget::Yes };
        expected_rates(&params, Rate::from_mbps(100), &moved, &mut law);
        for end_node in [EndNodeSessions::ByTheirLaw, EndNodeSessions::ByGrants] {
            let mut hub = Hub::new(START, &HubConfig { end_node, ..config(100) });
            let mut processes = under_end_node_law(&mut hub, side, [20, 60]);
            hub.wake(START);
            hub.tick(START, &mut Vec::new());
            let granted = processes.each_ref().map(|process| process.granted()[0].grant.rate);
            assert_eq!(granted == law, end_node == EndNodeSessions::ByTheirLaw, "{granted:?}");
            let mut all: Vec<&mut Process> = processes.iter_mut().collect();
            run(&mut hub, START + INTERVAL, 400, &mut all, 150.0);
            for process in &processes {
                assert!((process.total() - 50.0).abs() < 1.0, "{end_node:?} {side:?}");
            }
        }
    }
}

/// The law's own steps from nothing, of which the first is 31.5 Mbit/s: far more than a tenth of
/// what a session moves that has just begun.
#[test]
fn a_daemon_raises_sessions_from_nothing_in_the_steps_of_the_end_node_law() {
    let params = Params { alpha: 0.1, beta: 0.2, cap_at_target: CapAtTarget::Yes };
    for side in [Side::Source, Side::Sink] {
        let end_node = EndNodeSessions::ByTheirLaw;
        let mut hub = Hub::new(START, &HubConfig { end_node, ..config(630) });
        let mut processes = under_end_node_law(&mut hub, side, [0, 0]);
        let mut moved = [Rate::ZERO; 2];
        for n in 0..40 {
            let mut law = [Rate::ZERO; 2];
            expected_rates(&params, Rate::from_mbps(630), &moved, &mut law);
            let now = START + INTERVAL * n;
            hub.wake(now);
            hub.tick(now, &mut Vec::new());
            moved = processes.each_ref().map(|process| process.granted()[0].grant.rate);
            assert_eq!(moved, law, "{side:?}, interval {n}");
            for (process, moved) in processes.iter_mut().zip(moved) {
                process.sessions[0].report.measured = moved;
                process.post();
            }
        }
        assert!(moved.iter().all(|rate| near(rate.as_f64() / 1e6, 315.0)), "{moved:?}");
    }
}

#[test]
fn the_limit_of_a_user_holds_under_the_end_node_law_too() {
    let most = BTreeMap::from([(0, Rate::from_mbps(10))]);
    let end_node = EndNodeSessions::ByTheirLaw;
    let mut hub = Hub::new(START, &HubConfig { end_node, most, ..config(100) });
    let mut processes = under_end_node_law(&mut hub, Side::Sink, [50, 20]);
    let mut all: Vec<&mut Process> = processes.iter_mut().collect();
    run(&mut hub, START, 400, &mut all, 150.0);
    let [bounded, other] = processes.each_ref().map(Process::total);
    assert!(bounded <= 10.0 && other > 80.0, "{bounded} {other}");
}
