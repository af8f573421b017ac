//! Routers and the hosts that ask them, in memory: whom they believe, what they remember, and what
//! they share out.

mod router_hosts;

use std::collections::BTreeMap;

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::limits::{
    ROUTER_BURST, ROUTER_HOSTS_OF_ADDRESS, ROUTER_LEAST, ROUTER_PASS, ROUTER_SESSIONS_OF_ADDRESS,
    ROUTER_SILENCE,
};
use gtp_proto::router::{
    Answer, Ask, Crossings, Dropped, HostChange, Passage, Router, RouterChange, RouterConfig,
    Stage, TAG_BYTES, Tags, Use, Verdict,
};
use gtp_proto::{Agent, AgentConfig, FlowId, Grant, Law, Owner, Phase, Report, Side};
use proptest::prelude::*;
use router_hosts::{At, Raw, Table, ask, drain};

const MS: Span = Span::from_millis(1);

/// A key whose tags depend on every byte; enough for a test.
#[derive(Clone, Copy)]
struct Key(u64);

impl Tags for Key {
    fn tag(&self, purpose: Use, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut sum = self.0 ^ purpose as u64;
        for &byte in bytes {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        }
        let mut tag = [0; TAG_BYTES];
        tag[..8].copy_from_slice(&sum.to_be_bytes());
        tag
    }
}

const KEY: Key = Key(11);

const fn mbps(n: u64) -> Rate {
    Rate::from_mbps(n)
}

fn report(demand: Rate) -> Report {
    Report {
        weight: 1.0,
        peer_weight: 1.0,
        law: Law::Grant,
        phase: Phase::Open,
        peer_offer: Rate::UNLIMITED,
        demand,
        firm: Rate::UNLIMITED,
        party: 0,
        owner: Owner::NOBODY,
        measured: Rate::ZERO,
        echoed: 0,
        rtt: Span::from_millis(10),
        counts: Default::default(),
        packet: Default::default(),
    }
}

/// A host that sends, with its agent.
struct Host {
    crossings: Crossings,
    agent: Agent,
    sessions: BTreeMap<FlowId, Rate>,
    rates: BTreeMap<FlowId, Rate>,
    at: At,
}

impl Host {
    fn new(now: Time, name: u8, capacity: Rate) -> Host {
        let mut crossings = Crossings::default();
        crossings.add_router(now, [name; 16]);
        let config = AgentConfig { side: Side::Source, capacity, interval: Some(MS * 10) };
        let agent = Agent::new(now, config);
        let (sessions, rates) = (BTreeMap::new(), BTreeMap::new());
        Host { crossings, agent, sessions, rates, at: At(usize::from(name) - 1) }
    }

    fn open(&mut self, flow: FlowId, session: u64, link: u8, demand: Rate) {
        self.crossings.open(Side::Source, flow, session, &[Passage { router: 0, link }]);
        self.sessions.insert(flow, demand);
    }

    fn round(&mut self, now: Time) {
        let news = self.crossings.handle_timeout(now);
        if news.out {
            self.agent.wake(now);
        }
        if self.agent.poll_timeout() > now {
            return;
        }
        let reports: Vec<(FlowId, Report)> = self
            .sessions
            .iter()
            .map(|(&id, &demand)| (id, self.crossings.bound(Side::Source, id, report(demand))))
            .collect();
        let mut grants: Vec<(FlowId, Grant)> = Vec::new();
        self.agent.tick(now, &reports, &mut grants);
        for (id, grant) in grants {
            self.rates.insert(id, self.crossings.settle(Side::Source, id, grant).rate);
        }
    }
}

/// A router and hosts, a millisecond apart.
struct Net {
    now: Time,
    router: Router<At>,
    hosts: Vec<Host>,
    /// What is under way: when it is there, to the router (with its sender) or to a host.
    under_way: Vec<(Time, Result<At, At>, Vec<u8>)>,
    /// All that was ever said to the router.
    said: Vec<Vec<u8>>,
    dropped: Vec<Dropped>,
    cut: bool,
}

impl Net {
    fn new(links: &[Rate], hosts: &[Rate]) -> Net {
        let now = Time::from_nanos(1_000_000_000);
        let router = Router::new(now, RouterConfig { links: links.to_vec(), secret: [1; 16] });
        let host = |(at, &capacity): (usize, &Rate)| Host::new(now, at as u8 + 1, capacity);
        let hosts = hosts.iter().enumerate().map(host).collect();
        let (under_way, said, dropped) = (Vec::new(), Vec::new(), Vec::new());
        let mut net = Net { now, router, hosts, under_way, said, dropped, cut: false };
        net.settle();
        net
    }

    fn restart(&mut self, links: &[Rate]) {
        let config = RouterConfig { links: links.to_vec(), secret: [2; 16] };
        self.router = Router::new(self.now, config);
    }

    /// Lets the first quarter of a second pass, in which a router grants nothing.
    fn settle(&mut self) {
        self.run(250);
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += MS;
            self.step();
        }
    }

    fn step(&mut self) {
        let (now, mut out) = (self.now, Vec::new());
        let here: Vec<_> = self.under_way.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, to, datagram) in here {
            match to {
                Ok(from) => {
                    let handled = self.router.handle_datagram(now, from, &datagram, &KEY);
                    self.dropped.extend(handled.err());
                }
                Err(at) => {
                    let Some(host) = self.hosts.iter_mut().find(|host| host.at == at) else {
                        continue;
                    };
                    if let Ok(news) = host.crossings.handle_datagram(now, 0, &datagram, &KEY)
                        && news.out
                    {
                        host.agent.wake(now);
                    }
                }
            }
        }
        self.router.handle_timeout(now);
        while let Some(to) = self.router.poll_transmit(now, &KEY, &mut out) {
            if !self.cut {
                self.under_way.push((now + MS, Err(to), out.clone()));
            }
        }
        for host in &mut self.hosts {
            host.round(now);
            while host.crossings.poll_transmit(now, 0, &KEY, &mut out) {
                self.said.push(out.clone());
                if !self.cut {
                    self.under_way.push((now + MS, Ok(host.at), out.clone()));
                }
            }
        }
    }

    fn rate(&self, host: usize, flow: FlowId) -> f64 {
        self.hosts[host].rates[&flow].as_f64() / 1e6
    }

    /// Runs until the hosts have just asked.
    fn until_asked(&mut self) {
        let said = self.said.len();
        while self.said.len() == said {
            self.run(1);
        }
    }

    /// The bounds in all single asks since this many were said.
    fn bounds_since(&self, said: usize) -> Vec<Rate> {
        let entries = self.said[said..].iter().map(|said| &said[46..said.len() - TAG_BYTES]);
        entries.flat_map(|entries| Ask::decode_all(entries).unwrap()).map(|ask| ask.bound).collect()
    }

    #[track_caller]
    fn near(&self, host: usize, flow: FlowId, mbps: f64) {
        let got = self.rate(host, flow);
        assert!((got - mbps).abs() < 0.002 * mbps, "{got} instead of {mbps} Mbit/s");
    }
}

#[test]
fn sessions_of_several_hosts_share_a_link_as_the_law_says() {
    let mut net = Net::new(&[mbps(100)], &[mbps(20), mbps(1_000), mbps(1_000)]);
    net.hosts[0].open(1, 10, 0, Rate::UNLIMITED);
    net.hosts[1].open(1, 20, 0, Rate::UNLIMITED);
    net.hosts[1].open(2, 21, 0, mbps(10));
    net.hosts[2].open(1, 30, 0, Rate::UNLIMITED);
    net.run(200);
    for (host, flow, fair) in [(0, 1, 20.0), (1, 1, 35.0), (1, 2, 10.0), (2, 1, 35.0)] {
        net.near(host, flow, fair);
    }
    net.hosts[2].sessions.clear();
    net.hosts[2].crossings.close(Side::Source, 1);
    net.run(50);
    net.near(1, 1, 70.0);
}

#[test]
fn grants_never_sum_to_more_than_the_link_carries_while_sessions_come() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000); 8]);
    for at in 0..8 {
        net.hosts[at].open(1, at as u64, 0, Rate::UNLIMITED);
        for _ in 0..30 {
            net.run(1);
            let least = ROUTER_LEAST.as_f64() / 1e6;
            let sum: f64 = (0..=at)
                .filter_map(|host| net.hosts[host].rates.get(&1))
                .map(|rate| rate.as_f64() / 1e6)
                .filter(|&rate| rate > least)
                .sum();
            assert!(sum <= 100.001, "{sum} Mbit/s of 100");
        }
    }
    net.run(100);
    (0..8).for_each(|host| net.near(host, 1, 12.5));
}

#[test]
fn a_session_of_which_both_ends_ask_counts_once() {
    let mut net = Net::new(&[mbps(90)], &[mbps(1_000); 3]);
    net.hosts[0].open(1, 7, 0, Rate::UNLIMITED);
    net.run(20);
    net.hosts[1].open(1, 7, 0, Rate::UNLIMITED);
    net.hosts[2].open(1, 8, 0, Rate::UNLIMITED);
    net.run(200);
    net.near(0, 1, 45.0);
    net.near(2, 1, 45.0);
    assert_eq!(net.hosts[1].rates[&1], mbps(1_000), "the other end keeps the session to its share");
    // When the one that asked first is gone, the other one is heard.
    net.hosts[0].sessions.clear();
    net.hosts[0].crossings.close(Side::Source, 1);
    net.run(400);
    net.near(1, 1, 45.0);
}

#[test]
fn a_silent_router_is_ignored_after_its_time_and_heeded_as_soon_as_it_answers() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    net.hosts[0].open(1, 1, 0, Rate::UNLIMITED);
    net.run(100);
    net.near(0, 1, 100.0);
    net.cut = true;
    net.run(ROUTER_SILENCE.as_millis() - 200);
    net.near(0, 1, 100.0);
    net.run(320);
    net.near(0, 1, 1_000.0);
    net.cut = false;
    net.run(ROUTER_SILENCE.as_millis() + 50);
    net.near(0, 1, 100.0);
}

#[test]
fn a_new_session_waits_for_its_router_and_no_longer_than_stated() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    net.cut = true;
    net.hosts[0].open(1, 1, 0, Rate::UNLIMITED);
    net.run(ROUTER_SILENCE.as_millis() - 100);
    assert_eq!(net.hosts[0].rates[&1], ROUTER_LEAST);
    net.run(120);
    net.near(0, 1, 1_000.0);
    net.hosts[0].open(2, 2, 0, Rate::UNLIMITED);
    net.run(20);
    net.near(0, 2, 500.0);
}

#[test]
fn a_router_that_begins_anew_takes_over_what_is_sent_and_overloads_nothing() {
    let links = [mbps(100)];
    let mut net = Net::new(&links, &[mbps(1_000), mbps(1_000)]);
    net.hosts[0].open(1, 1, 0, Rate::UNLIMITED);
    net.run(200);
    net.restart(&links);
    net.hosts[1].open(1, 2, 0, Rate::UNLIMITED);
    for _ in 0..500 {
        net.run(1);
        let sum = net.rate(0, 1) + net.hosts[1].rates.get(&1).map_or(0.0, |r| r.as_f64() / 1e6);
        assert!(sum <= 100.1, "{sum} Mbit/s of 100");
    }
    net.near(0, 1, 50.0);
    net.near(1, 1, 50.0);
}

#[test]
fn what_was_recorded_opens_nothing_when_its_host_is_forgotten() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    net.hosts[0].open(1, 1, 0, Rate::UNLIMITED);
    net.run(300);
    let said = net.said.clone();
    for datagram in &said {
        let again = net.router.handle_datagram(net.now, At(9), datagram, &KEY);
        assert!(again.is_err(), "it came before");
    }
    net.hosts.clear();
    for seconds in 1..20 {
        net.now += MS * 1_000;
        net.router.handle_timeout(net.now);
        for datagram in &said {
            let again = net.router.handle_datagram(net.now, At(9), datagram, &KEY);
            assert!(again.is_err(), "after {seconds} s");
        }
    }
    assert_eq!(net.router.hosts(), 0);
    assert!(net.router.standing().all(|link| link.sessions == 0));
    assert!(ROUTER_PASS < Span::from_secs(20), "passes have ended meanwhile");
}

#[test]
fn a_wrong_key_and_a_changed_byte_are_dropped_and_answered_by_nothing() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    net.hosts[0].open(1, 1, 0, Rate::UNLIMITED);
    net.run(1);
    let ask = net.said[0].clone();
    for at in 0..ask.len() {
        let mut changed = ask.clone();
        changed[at] ^= 1;
        let dropped = net.router.handle_datagram(net.now, At(0), &changed, &KEY).unwrap_err();
        assert!([Dropped::Forged, Dropped::Malformed].contains(&dropped), "byte {at}");
    }
    let other = net.router.handle_datagram(net.now, At(0), &ask, &Key(12));
    assert_eq!(other, Err(Dropped::Forged));
    assert_eq!(net.router.poll_transmit(net.now, &KEY, &mut Vec::new()), None);
}

#[test]
fn passes_and_answers_to_asks_that_change_nothing_are_no_longer_than_the_ask() {
    let mut table = Table::new(&[mbps(100)]);
    let mut raw = Raw::new(0);
    let asks: Vec<Ask> = (0..28).map(|session| ask(session, mbps(1))).collect();
    for entries in [&asks[..0], &asks[..1], &asks] {
        // A stranger at first, and then one whose sessions are known and shared out.
        for _ in 0..3 {
            let said = raw.datagram(entries);
            let _ = table.router.handle_datagram(table.now, raw.at, &said, &KEY);
            let answers = drain(&mut table.router, table.now);
            let bytes: usize = answers.iter().map(|(_, answer)| answer.len()).sum();
            assert!(bytes <= said.len(), "{bytes} bytes for {}", said.len());
            assert!(said.len() <= 1_232, "it passes wherever IPv6 does");
            raw.hear(&answers);
            table.run(50);
        }
    }
    assert_eq!(table.router.standing().next().unwrap().sessions, 28);
}

#[test]
fn a_host_hears_no_more_than_a_burst_at_once_however_much_has_changed() {
    let mut table = Table::new(&[mbps(1_000)]);
    let mut host = Raw::new(0);
    for first in (0..1_400).step_by(28) {
        let asks: Vec<Ask> = (first..first + 28).map(|name| ask(name, mbps(5))).collect();
        host.ask(&mut table, &asks).unwrap();
    }
    table.run(50);
    // One session of another host changes the shares of all.
    Raw::new(1).ask(&mut table, &[ask(9_999, mbps(500))]).unwrap();
    let (mut heard, mut most) = (0, 0);
    for _ in 0..40 {
        table.now += MS;
        table.router.handle_timeout(table.now);
        let answers = drain(&mut table.router, table.now);
        let here = answers.iter().filter(|(at, _)| *at == host.at).count();
        (heard, most) = (heard + here, most.max(here));
    }
    assert!(heard > ROUTER_BURST as usize, "all sessions hear of it: {heard}");
    assert!(most <= ROUTER_BURST as usize, "{most} datagrams at once");
}

#[test]
fn answers_go_to_no_address_that_has_not_received_a_pass() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    net.hosts[0].open(1, 1, 0, Rate::UNLIMITED);
    net.run(200);
    // Somebody on the way keeps an ask and sends it on from a victim's address.
    net.cut = true;
    net.run(120);
    let (victim, kept) = (At(99), net.said.last().unwrap().clone());
    let dropped = net.router.handle_datagram(net.now, victim, &kept, &KEY);
    assert_eq!(dropped, Err(Dropped::Misdirected));
    let answers = drain(&mut net.router, net.now);
    let to_victim: Vec<usize> =
        answers.iter().filter(|(at, _)| *at == victim).map(|(_, answer)| answer.len()).collect();
    assert!(to_victim.len() <= 1 && to_victim.iter().all(|&len| len <= kept.len()));
    net.cut = false;
    for _ in 0..50 {
        net.run(1);
        assert!(net.under_way.iter().all(|(_, to, _)| *to != Err(victim)));
    }
    net.near(0, 1, 100.0);
}

#[test]
fn a_pass_is_worth_nothing_at_another_address_or_port() {
    let mut table = Table::new(&[mbps(100)]);
    let mut host = Raw::new(0);
    host.ask(&mut table, &[]).unwrap();
    for at in [At(1), At(256)] {
        let mut other = host.clone().moved(at);
        let said = other.datagram(&[]);
        let dropped = table.router.handle_datagram(table.now, at, &said, &KEY);
        assert_eq!(dropped, Err(Dropped::Misdirected), "{at:?}");
    }
}

#[test]
fn a_host_whose_address_changes_goes_on_when_it_has_received_a_pass_there() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000), mbps(1_000)]);
    net.hosts[0].open(1, 1, 0, Rate::UNLIMITED);
    net.hosts[1].open(1, 2, 0, Rate::UNLIMITED);
    net.run(300);
    for at in [At(256), At(77)] {
        net.hosts[0].at = at;
        for _ in 0..ROUTER_SILENCE.as_millis() + 200 {
            net.run(1);
            net.near(0, 1, 50.0);
            net.near(1, 1, 50.0);
        }
        assert_eq!(net.hosts[0].crossings.poll_change(), None, "the router was not silent");
    }
}

#[test]
fn one_address_fills_no_more_than_its_part_of_the_table() {
    let mut table = Table::new(&[mbps(100)]);
    let mut names: Vec<Raw> =
        (0..ROUTER_HOSTS_OF_ADDRESS + 1).map(|name| Raw::new(name).moved(At(256 * name))).collect();
    for name in &mut names[..ROUTER_HOSTS_OF_ADDRESS] {
        name.ask(&mut table, &[]).unwrap();
    }
    let beyond = names.last_mut().unwrap().ask(&mut table, &[]);
    assert_eq!(beyond, Err(Dropped::Full));
    // Its sessions count together, too, whichever of its names asks.
    for first in (0..ROUTER_SESSIONS_OF_ADDRESS as u64 + 28).step_by(28) {
        let asks: Vec<Ask> = (first..first + 28).map(|name| ask(name, mbps(1))).collect();
        names[(first / 28 % 200) as usize].ask(&mut table, &asks).unwrap();
        table.now += MS;
    }
    table.router.handle_timeout(table.now);
    let sessions = table.router.standing().next().unwrap().sessions;
    assert_eq!(sessions, ROUTER_SESSIONS_OF_ADDRESS);
    let mut other = Raw::new(9_999).moved(At(1));
    other.ask(&mut table, &[ask(1 << 40, mbps(1))]).unwrap();
    assert_eq!(table.router.standing().next().unwrap().sessions, sessions + 1);
    // What is over makes room again.
    let gone: Vec<Ask> = (0..28).map(|n| Ask { stage: Stage::Gone, ..ask(n, mbps(1)) }).collect();
    names[0].ask(&mut table, &gone).unwrap();
    let fresh: Vec<Ask> = (0..28).map(|n| ask(1 << 50 | n, mbps(1))).collect();
    names[1].ask(&mut table, &fresh).unwrap();
    assert_eq!(table.router.standing().next().unwrap().sessions, sessions + 1);
}

#[test]
fn a_weight_beyond_those_of_transfers_is_not_believed() {
    let mut table = Table::new(&[mbps(100)]);
    let [mut greedy, mut honest] = [0, 1].map(Raw::new);
    let heavy = Ask { weight: 1e9, ..ask(1, mbps(1_000)) };
    for _ in 0..20 {
        greedy.ask(&mut table, &[heavy]).unwrap();
        honest.ask(&mut table, &[ask(2, mbps(1_000))]).unwrap();
        table.run(20);
        for raw in [&mut greedy, &mut honest] {
            raw.hear(&drain(&mut table.router, table.now));
            raw.echo();
        }
    }
    let got = honest.granted(2).rate.as_f64() / 1e6;
    assert!((got - 100.0 / 1_001.0).abs() < 0.001, "{got} Mbit/s beside a weight of a billion");
}

#[test]
fn an_echo_of_a_forgotten_seat_lets_go_of_nothing() {
    let mut table = Table::new(&[mbps(100)]);
    let [mut back, mut new] = [0, 1].map(Raw::new);
    // It was forgotten while it had the whole link, and its source keeps to grant 500.
    let held = Ask { held: mbps(100), echoed: 500, ..ask(1, mbps(100)) };
    back.ask(&mut table, &[held]).unwrap();
    new.ask(&mut table, &[ask(2, mbps(100))]).unwrap();
    table.run(100);
    new.hear(&drain(&mut table.router, table.now));
    assert_eq!(new.granted(2).rate, Rate::ZERO, "the other one has not let go of anything");
}

#[test]
fn a_host_takes_back_its_echo_when_the_routers_numbers_begin_anew() {
    let mut now = Time::from_nanos(1_000_000_000);
    let mut crossings = Crossings::default();
    crossings.add_router(now, [1; 16]);
    crossings.open(Side::Sink, 1, 7, &[Passage { router: 0, link: 0 }]);
    let mut router = Raw::new(0);
    let echoed = |crossings: &mut Crossings, now: Time, number: u32, grant: u32| {
        crossings.bound(Side::Sink, 1, report(Rate::UNLIMITED));
        let (rate, offer) = (Rate::UNLIMITED, Rate::UNLIMITED);
        crossings.settle(
            Side::Sink,
            1,
            Grant { number: grant, rate, offer, interval: MS * 10, weight: 1.0 },
        );
        let mut out = Vec::new();
        crossings.handle_timeout(now);
        assert!(crossings.poll_transmit(now, 0, &KEY, &mut out), "{number}");
        let entries = &out[46..out.len() - TAG_BYTES];
        Ask::decode_all(entries).unwrap()[0].echoed
    };
    let answer = |number, rate| Answer {
        session: 7,
        link: 0,
        verdict: Verdict::Granted,
        number,
        rate,
        offer: rate,
    };
    let told = router.answer(&answer(500, mbps(10)));
    crossings.handle_datagram(now, 0, &told, &KEY).unwrap();
    assert_eq!(echoed(&mut crossings, now, 500, 1), 500);
    // Forgotten and seated again. The source may still send what it was granted before.
    now += MS * 200;
    let told = router.answer(&answer(2, mbps(1)));
    crossings.handle_datagram(now, 0, &told, &KEY).unwrap();
    assert_eq!(echoed(&mut crossings, now, 2, 2), 0);
}

#[test]
fn a_bound_that_falls_from_unlimited_is_said_at_once() {
    let mut net = Net::new(&[mbps(100)], &[Rate::UNLIMITED]);
    net.hosts[0].open(1, 1, 0, Rate::UNLIMITED);
    net.run(200);
    net.until_asked();
    net.hosts[0].sessions.insert(1, mbps(10));
    let said = net.said.len();
    net.run(20);
    assert_eq!(net.bounds_since(said).first(), Some(&mbps(10)));
}

#[test]
fn a_bound_that_creeps_is_said_when_it_is_a_thousandth_from_what_was_said() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    net.hosts[0].open(1, 1, 0, mbps(10));
    net.run(200);
    net.until_asked();
    let said = net.said.len();
    for step in 1..=8 {
        let crept = Rate::from_bps(10_000_000 - 8_000 * step);
        net.hosts[0].sessions.insert(1, crept);
        net.run(10);
    }
    assert!(net.bounds_since(said).len() >= 3, "{:?}", net.bounds_since(said));
}

#[test]
fn a_router_that_does_not_answer_is_asked_by_one_datagram_a_second() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    net.cut = true;
    for flow in 0..100 {
        net.hosts[0].open(flow, flow.into(), 0, Rate::UNLIMITED);
    }
    net.run(ROUTER_SILENCE.as_millis() + 200);
    let said = net.said.len();
    for step in 0..300_u64 {
        // All that sessions wish for changes, they end, and others begin.
        let flow = (step % 100) as u32;
        net.hosts[0].sessions.insert(flow, mbps(1 + step));
        if step % 10 == 0 {
            net.hosts[0].crossings.close(Side::Source, flow);
            net.hosts[0].open(flow, 1_000 + step, 0, Rate::UNLIMITED);
        }
        net.run(10);
    }
    let asked = net.said.len() - said;
    assert!((2..=4).contains(&asked), "{asked} datagrams in three seconds");
}

#[test]
fn a_host_is_told_when_its_router_falls_silent_is_asked_in_vain_and_is_back() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    net.hosts[0].open(1, 1, 0, Rate::UNLIMITED);
    net.run(300);
    let changes = |net: &mut Net| {
        let crossings = &mut net.hosts[0].crossings;
        std::iter::from_fn(|| crossings.poll_change()).map(|(_, c)| c).collect::<Vec<_>>()
    };
    assert_eq!(changes(&mut net), []);
    net.cut = true;
    net.run(ROUTER_SILENCE.as_millis() + 150);
    assert_eq!(changes(&mut net), [RouterChange::Silent, RouterChange::InVain]);
    for _ in 0..3 {
        net.run(ROUTER_SILENCE.as_millis());
        assert_eq!(changes(&mut net), [RouterChange::InVain]);
    }
    // A pass is heard, and so the way to the router is not changed again before an answer comes.
    net.restart(&[mbps(100)]);
    net.cut = false;
    net.run(ROUTER_SILENCE.as_millis() + 300);
    assert_eq!(changes(&mut net), [RouterChange::Back]);
    net.near(0, 1, 100.0);
}

#[test]
fn a_router_is_told_of_hosts_that_fall_silent_and_not_of_those_that_end() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000), mbps(1_000)]);
    for at in 0..2 {
        net.hosts[at].open(1, at as u64, 0, Rate::UNLIMITED);
    }
    net.run(100);
    net.hosts[1].sessions.clear();
    net.hosts[1].crossings.close(Side::Source, 1);
    net.run(10);
    net.cut = true;
    net.run(ROUTER_SILENCE.as_millis() + 200);
    assert_eq!(net.router.poll_change(), Some((At(0), HostChange::Silent)));
    assert_eq!(net.router.poll_change(), None);
    net.cut = false;
    net.run(ROUTER_SILENCE.as_millis() + 200);
    assert_eq!(net.router.poll_change(), Some((At(0), HostChange::Back)));
    assert_eq!(net.router.poll_change(), None);
}

#[test]
fn sessions_beyond_the_bound_go_as_without_the_router() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    let all = ROUTER_SESSIONS_OF_ADDRESS as u32 + 1;
    for flow in 0..all {
        net.hosts[0].open(flow, flow.into(), 0, Rate::UNLIMITED);
    }
    net.run(1_000);
    let sessions = net.router.standing().next().unwrap().sessions;
    assert_eq!(sessions, ROUTER_SESSIONS_OF_ADDRESS);
    // The link lets each of those have its least; the host gives the other one all that is left.
    let rates = net.hosts[0].rates.values();
    let free = rates.filter(|&&rate| rate > mbps(100)).count();
    assert_eq!(free, 1, "the link of 100 Mbit/s does not limit it");
}

#[test]
fn a_link_that_the_router_does_not_have_limits_nobody() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    net.hosts[0].open(1, 1, 5, Rate::UNLIMITED);
    net.run(50);
    net.near(0, 1, 1_000.0);
}

fn signed(key: Key, purpose: Use, mut bytes: Vec<u8>) -> Vec<u8> {
    let tag = key.tag(purpose, &bytes);
    bytes.extend_from_slice(&tag);
    bytes
}

proptest! {
    #[test]
    fn signed_nonsense_neither_panics_nor_opens_anything(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        kind in 0..4_u8,
    ) {
        let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
        let datagrams = [
            signed(KEY, Use::ToRouter, bytes.clone()),
            signed(KEY, Use::ToRouter, [b"gtpR\x01".as_slice(), &[kind], &bytes].concat()),
            signed(KEY, Use::ToHost, [b"gtpR\x01".as_slice(), &[kind], &bytes].concat()),
            bytes,
        ];
        for datagram in &datagrams {
            let _ = net.router.handle_datagram(net.now, At(0), datagram, &KEY);
            let _ = net.hosts[0].crossings.handle_datagram(net.now, 0, datagram, &KEY);
        }
        prop_assert_eq!(net.router.hosts(), 0);
    }

    #[test]
    fn entries_come_back_as_they_were_said(
        session in any::<u64>(),
        (link, echoed) in any::<(u8, u32)>(),
        weight in f32::MIN_POSITIVE..f32::MAX,
        rates in any::<[u64; 2]>(),
        rtt in 0..2_000_000_u64,
    ) {
        let [bound, held] = rates.map(Rate::from_bps);
        let (stage, rtt) = (Stage::Closing, Span::from_micros(rtt));
        let ask = Ask { session, link, stage, weight, bound, held, echoed, rtt };
        let mut out = Vec::new();
        ask.encode(&mut out);
        prop_assert_eq!(Ask::decode_all(&out), Ok(vec![ask]));
        prop_assert!(Ask::decode_all(&out[1..]).is_err());
    }
}
