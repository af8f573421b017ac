//! Routers and the hosts that ask them, in memory: whom they believe, what they remember, and what
//! they share out.

use std::collections::BTreeMap;

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::limits::{ROUTER_LEAST, ROUTER_PASS, ROUTER_SESSIONS_OF_HOST, ROUTER_SILENCE};
use gtp_proto::router::{
    Ask, Crossings, Dropped, Passage, Router, RouterConfig, Stage, TAG_BYTES, Tags, Use,
};
use gtp_proto::{Agent, AgentConfig, FlowId, Grant, Law, Owner, Phase, Report, Side};
use proptest::prelude::*;

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
}

impl Host {
    fn new(now: Time, name: u8, capacity: Rate) -> Host {
        let mut crossings = Crossings::default();
        crossings.add_router(now, [name; 16]);
        let config = AgentConfig { side: Side::Source, capacity, interval: Some(MS * 10) };
        let agent = Agent::new(now, config);
        Host { crossings, agent, sessions: BTreeMap::new(), rates: BTreeMap::new() }
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
    router: Router<usize>,
    hosts: Vec<Host>,
    /// What is under way: when it is there, to the router (with its sender) or to a host.
    under_way: Vec<(Time, Result<usize, usize>, Vec<u8>)>,
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
                Err(host) => {
                    let host = &mut self.hosts[host];
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
        for (at, host) in self.hosts.iter_mut().enumerate() {
            host.round(now);
            while host.crossings.poll_transmit(now, 0, &KEY, &mut out) {
                self.said.push(out.clone());
                if !self.cut {
                    self.under_way.push((now + MS, Ok(at), out.clone()));
                }
            }
        }
    }

    fn rate(&self, host: usize, flow: FlowId) -> f64 {
        self.hosts[host].rates[&flow].as_f64() / 1e6
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
        let again = net.router.handle_datagram(net.now, 9, datagram, &KEY);
        assert!(again.is_err(), "it came before");
    }
    net.hosts.clear();
    for seconds in 1..20 {
        net.now += MS * 1_000;
        net.router.handle_timeout(net.now);
        for datagram in &said {
            let again = net.router.handle_datagram(net.now, 9, datagram, &KEY);
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
        let dropped = net.router.handle_datagram(net.now, 0, &changed, &KEY).unwrap_err();
        assert!([Dropped::Forged, Dropped::Malformed].contains(&dropped), "byte {at}");
    }
    let other = net.router.handle_datagram(net.now, 0, &ask, &Key(12));
    assert_eq!(other, Err(Dropped::Forged));
    assert_eq!(net.router.poll_transmit(net.now, &KEY, &mut Vec::new()), None);
}

#[test]
fn answers_are_never_longer_than_what_they_answer() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    for flow in 0..100 {
        net.hosts[0].open(flow, flow.into(), 0, Rate::UNLIMITED);
    }
    for _ in 0..300 {
        net.run(1);
        let longest = net.said.iter().map(Vec::len).max().unwrap_or(0);
        let answers = net.under_way.iter().filter(|(_, to, _)| to.is_err());
        assert!(answers.map(|(.., datagram)| datagram.len()).all(|len| len <= longest));
        assert!(longest <= 1_232, "it passes wherever IPv6 does");
    }
}

#[test]
fn sessions_beyond_the_bound_go_as_without_the_router() {
    let mut net = Net::new(&[mbps(100)], &[mbps(1_000)]);
    let all = ROUTER_SESSIONS_OF_HOST as u32 + 1;
    for flow in 0..all {
        net.hosts[0].open(flow, flow.into(), 0, Rate::UNLIMITED);
    }
    net.run(1_000);
    let sessions = net.router.standing().next().unwrap().sessions;
    assert_eq!(sessions, ROUTER_SESSIONS_OF_HOST);
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
            let _ = net.router.handle_datagram(net.now, 0, datagram, &KEY);
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
