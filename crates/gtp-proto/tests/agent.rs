//! The agent against sources over channels that delay, lose and reorder what it says.

use std::collections::{BTreeMap, VecDeque};

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::limits::{RTT_MOST, SILENCE_STOP};
use gtp_proto::{Agent, AgentConfig, FlowId, Grant, Law, Phase, Report, Side};
use proptest::prelude::*;

const START: Time = Time::from_nanos(1_000_000_000);
const MS: Span = Span::from_millis(1);

fn report(weight: f64, demand: Rate) -> Report {
    Report {
        weight,
        peer_weight: 1.0,
        law: Law::Grant,
        phase: Phase::Open,
        peer_offer: Rate::UNLIMITED,
        demand,
        firm: Rate::UNLIMITED,
        party: 0,
        owner: gtp_proto::Owner::NOBODY,
        measured: Rate::ZERO,
        echoed: 0,
        rtt: Span::from_millis(20),
        counts: Default::default(),
        packet: Default::default(),
    }
}

fn agent(side: Side, capacity: Rate) -> Agent {
    Agent::new(START, AgentConfig { side, capacity, interval: None })
}

fn tick(agent: &mut Agent, now: Time, reports: &[(FlowId, Report)]) -> Vec<(FlowId, Grant)> {
    let mut grants = Vec::new();
    agent.tick(now, reports, &mut grants);
    grants
}

fn sum(grants: &[(FlowId, Grant)]) -> u64 {
    grants.iter().map(|(_, g)| g.rate.as_bps()).sum()
}

/// A source as a sink sees it: it obeys the newest grant that it has heard of.
struct Source {
    weight: f64,
    demand: Rate,
    up_ms: u64,
    down_ms: u64,
    phase: Phase,
    heard: (u32, Rate),
    told: u32,
    told_at: u64,
    last_through: u64,
    /// Feedback on its way: when it arrives, number, rate.
    feedback: Vec<(u64, u32, Rate)>,
    /// What arrives at the sink, one entry a millisecond: when, at which rate, which number.
    stream: VecDeque<(u64, Rate, u32)>,
    echoed: u32,
    arriving: Rate,
}

/// Feedback is never lost for longer than this: a lease does not lapse.
const BLACKOUT_MS: u64 = 120;

/// Many sources and one sink.
struct Net {
    agent: Agent,
    sources: BTreeMap<FlowId, Source>,
    ms: u64,
    seed: u64,
    loss: u64,
    jitter_ms: u64,
    /// When the capacity was what, newest last.
    capacities: Vec<(u64, u64)>,
}

impl Net {
    fn new(capacity: u64, loss: u64, jitter_ms: u64, seed: u64) -> Net {
        Net {
            agent: agent(Side::Sink, Rate::from_bps(capacity)),
            sources: BTreeMap::new(),
            ms: 0,
            seed,
            loss,
            jitter_ms,
            capacities: vec![(0, capacity)],
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % below
    }

    fn join(&mut self, id: FlowId, weight: f64, demand: u64, up_ms: u64, down_ms: u64) {
        let source = Source {
            weight,
            demand: Rate::from_bps(demand),
            up_ms,
            down_ms,
            phase: Phase::Open,
            heard: (0, Rate::ZERO),
            told: 0,
            told_at: 0,
            last_through: self.ms,
            feedback: Vec::new(),
            stream: VecDeque::new(),
            echoed: 0,
            arriving: Rate::ZERO,
        };
        self.sources.entry(id).or_insert(source);
    }

    fn capacity(&mut self, capacity: u64) {
        self.agent.set_capacity(Rate::from_bps(capacity));
        self.capacities.push((self.ms, capacity));
    }

    fn step(&mut self) {
        self.ms += 1;
        let now = START + MS * self.ms;
        self.agent.wake(now);
        if self.agent.poll_timeout() <= now {
            let reports: Vec<(FlowId, Report)> = self
                .sources
                .iter()
                .map(|(id, s)| {
                    let rtt = Span::from_millis(s.up_ms + s.down_ms);
                    let (phase, echoed) = (s.phase, s.echoed);
                    (*id, Report { phase, echoed, rtt, ..report(s.weight, s.demand) })
                })
                .collect();
            for (id, grant) in tick(&mut self.agent, now, &reports) {
                self.tell(id, grant);
            }
        }
        let ms = self.ms;
        for source in self.sources.values_mut() {
            source.step(ms);
        }
        self.sources
            .retain(|_, s| s.phase == Phase::Open || s.echoed < s.told || s.arriving > Rate::ZERO);
    }

    fn tell(&mut self, id: FlowId, grant: Grant) {
        let (ms, interval_ms) = (self.ms, self.agent.interval().as_millis());
        let (lost, late) = (self.random(1_000) < self.loss, self.random(self.jitter_ms + 1));
        let Some(source) = self.sources.get_mut(&id) else { return };
        if grant.number == source.told && ms < source.told_at + interval_ms {
            return;
        }
        (source.told, source.told_at) = (grant.number, ms);
        let silence = ms - source.last_through;
        if !lost || silence >= BLACKOUT_MS {
            source.last_through = ms;
            source.feedback.push((ms + source.up_ms + late, grant.number, grant.rate));
        }
    }

    fn arriving(&self) -> u64 {
        self.sources.values().map(|s| s.arriving.as_bps()).sum()
    }

    /// The largest capacity of the last `ms` milliseconds.
    fn capacity_since(&self, ms: u64) -> u64 {
        let from = self.ms.saturating_sub(ms);
        let in_force = self.capacities.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        self.capacities[in_force..].iter().map(|(_, c)| *c).max().unwrap_or(0)
    }
}

impl Source {
    fn step(&mut self, ms: u64) {
        for (_, number, rate) in self.feedback.extract_if(.., |(at, ..)| *at <= ms) {
            if number > self.heard.0 {
                self.heard = (number, rate);
            }
        }
        let rate = self.heard.1.min(self.demand);
        self.stream.push_back((ms + self.down_ms, rate, self.heard.0));
        while self.stream.front().is_some_and(|(at, ..)| *at <= ms) {
            let Some((_, rate, number)) = self.stream.pop_front() else { return };
            self.arriving = rate;
            self.echoed = self.echoed.max(number);
        }
    }
}

#[derive(Clone, Debug)]
enum Turn {
    Join { id: u32, weight: f64, demand: u64, up_ms: u64, down_ms: u64 },
    Leave(u32),
    Demand(u32, u64),
    Capacity(u64),
    Wait(u64),
}

fn weight() -> impl Strategy<Value = f64> {
    (-30..=30_i32).prop_map(|tenths| 10_f64.powf(f64::from(tenths) / 20.0))
}

fn rate() -> impl Strategy<Value = u64> {
    (20..=33_u32, 1..100_u64).prop_map(|(power, part)| (1_u64 << power) / part)
}

fn turn() -> impl Strategy<Value = Turn> {
    let id = 0..6_u32;
    let join = (id.clone(), weight(), rate(), 1..100_u64, 1..100_u64).prop_map(
        |(id, weight, demand, up_ms, down_ms)| Turn::Join { id, weight, demand, up_ms, down_ms },
    );
    prop_oneof![
        3 => join,
        1 => id.clone().prop_map(Turn::Leave),
        1 => (id, rate()).prop_map(|(id, demand)| Turn::Demand(id, demand)),
        1 => rate().prop_map(Turn::Capacity),
        4 => (1..300_u64).prop_map(Turn::Wait),
    ]
}

/// After a fall of the capacity: an interval, the longest silence and the longest round trip with
/// jitter, and an interval again until the last decrease is told.
const FALL_MS: u64 = 100 + BLACKOUT_MS + 250 + 100;

#[test]
fn steps_that_a_peer_names_are_believed_from_a_hundredth_to_a_half() {
    let believed = |alpha, beta| Law::EndNode { alpha, beta }.believed();
    assert_eq!(believed(1e-9, 1.0), Law::EndNode { alpha: 0.01, beta: 0.5 });
    assert_eq!(believed(1.0, 1e-300), Law::EndNode { alpha: 0.5, beta: 0.01 });
    assert_eq!(believed(f64::NAN, f64::INFINITY), Law::EndNode { alpha: 0.01, beta: 0.5 });
    assert_eq!(believed(0.15, 0.2), Law::EndNode { alpha: 0.15, beta: 0.2 });
    assert_eq!(Law::Grant.believed(), Law::Grant);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_arrives_at_a_sink_never_exceeds_its_capacity(
        turns in proptest::collection::vec(turn(), 1..40),
        capacity in rate(),
        loss in 0..500_u64,
        jitter_ms in 0..40_u64,
        seed: u64,
    ) {
        let mut net = Net::new(capacity, loss, jitter_ms, seed);
        for turn in turns {
            let mut wait = 1;
            match turn {
                Turn::Join { id, weight, demand, up_ms, down_ms } => {
                    net.join(id, weight, demand, up_ms, down_ms);
                }
                Turn::Leave(id) => {
                    if let Some(source) = net.sources.get_mut(&id) {
                        source.phase = Phase::Closing;
                    }
                }
                Turn::Demand(id, demand) => {
                    if let Some(source) = net.sources.get_mut(&id) {
                        source.demand = Rate::from_bps(demand);
                    }
                }
                Turn::Capacity(capacity) => net.capacity(capacity),
                Turn::Wait(ms) => wait = ms,
            }
            for _ in 0..wait {
                net.step();
                let most = net.capacity_since(FALL_MS);
                prop_assert!(net.arriving() <= most, "{} of {most} at {}", net.arriving(), net.ms);
            }
        }
    }

    #[test]
    fn with_nothing_changing_a_sink_is_filled_exactly_within_two_seconds(
        flows in proptest::collection::vec((weight(), rate(), 1..60_u64, 1..60_u64), 1..8),
        capacity in rate(),
        seed: u64,
    ) {
        let mut net = Net::new(capacity, 100, 5, seed);
        let mut demanded = 0_u64;
        for ((weight, demand, up, down), id) in flows.into_iter().zip(0..) {
            net.join(id, weight, demand, up, down);
            demanded += demand;
        }
        (0..2_000).for_each(|_| net.step());
        let expected = capacity.min(demanded) as f64;
        let got = net.arriving() as f64;
        let slack = expected * 1e-3 + 8.0 * 1_000.0;
        prop_assert!((got - expected).abs() <= slack, "{got} of {expected}");
    }

    #[test]
    fn targets_at_a_source_never_sum_above_its_capacity(
        flows in proptest::collection::vec(
            (weight(), rate(), rate(), any::<bool>(), any::<bool>()), 1..20),
        capacity in rate(),
    ) {
        let mut agent = agent(Side::Source, Rate::from_bps(capacity));
        let law = |other| if other { Law::EndNode { alpha: 0.1, beta: 0.2 } } else { Law::Grant };
        let reports: Vec<(FlowId, Report)> = flows
            .iter()
            .zip(0..)
            .map(|(&(weight, demand, measured, other, closing), id)| {
                let demand = Rate::from_bps(demand);
                let phase = if closing { Phase::Closing } else { Phase::Open };
                let (law, measured) = (law(other), Rate::from_bps(measured));
                (id, Report { phase, law, measured, ..report(weight, demand) })
            })
            .collect();
        let grants = tick(&mut agent, START, &reports);
        // Sessions under the end-node law follow that law; the others share what they leave.
        let by_grant: Vec<(FlowId, Grant)> = grants
            .iter()
            .zip(&reports)
            .filter(|(_, (_, r))| r.law == Law::Grant)
            .map(|(g, _)| *g)
            .collect();
        prop_assert!(sum(&by_grant) <= capacity);
        for ((_, grant), (_, r)) in grants.iter().zip(&reports) {
            if r.law == Law::Grant {
                prop_assert!(grant.rate <= r.demand);
            }
            if r.phase == Phase::Closing {
                prop_assert_eq!(grant.offer, Rate::ZERO);
            }
        }
    }

    #[test]
    fn beside_the_end_node_law_a_grant_is_raised_only_into_what_that_law_leaves(
        rates in proptest::collection::vec(1..90_u64, 1..5),
        seed: u64,
    ) {
        let capacity = 100_000_000_u64;
        let mut agent = agent(Side::Sink, Rate::from_bps(capacity));
        let law = Law::EndNode { alpha: 0.1, beta: 0.2 };
        let mut reports = vec![(0, report(1.0, Rate::UNLIMITED))];
        for (mbps, id) in rates.iter().zip(1..) {
            let measured = Rate::from_mbps(*mbps);
            reports.push((id, Report { law, measured, ..report(1.0, Rate::UNLIMITED) }));
        }
        let mut now = START;
        // The end-node law knows no commitments: its own steps may go beyond the capacity, as
        // they do in the thesis, and grants then give way.
        let (mut granted, mut others) = (Rate::ZERO, 0);
        for step in 0..200_u64 {
            let grants = tick(&mut agent, now, &reports);
            if grants[0].1.rate > granted {
                prop_assert!(grants[0].1.rate.as_bps() + others <= capacity);
            }
            (granted, others) = (grants[0].1.rate, sum(&grants[1..]));
            prop_assert!(granted.as_bps() <= capacity);
            for ((_, r), (_, g)) in reports.iter_mut().zip(&grants) {
                r.echoed = g.number;
                if r.law != Law::Grant {
                    r.measured = g.rate;
                }
            }
            now += Span::from_millis(1 + (seed >> (step % 50)) % 30);
        }
    }
}

#[test]
fn weights_share_a_full_sink_in_proportion() {
    let mut net = Net::new(60_000_000, 0, 0, 1);
    for (id, weight) in [(0, 1.0), (1, 2.0), (2, 3.0)] {
        net.join(id, weight, 1 << 40, 10, 10);
    }
    (0..1_000).for_each(|_| net.step());
    let rates: Vec<u64> = net.sources.values().map(|s| s.arriving.as_bps() / 1_000).collect();
    assert_eq!(rates, [10_000, 20_000, 30_000]);
}

/// Two flows; the first never echoes anything newer than its first grant.
fn until_the_honest_one_has_half(rtt: Span) -> Span {
    let capacity = Rate::from_mbps(100);
    let mut agent = agent(Side::Sink, capacity);
    let greedy = Report { rtt, ..report(1.0, Rate::UNLIMITED) };
    let grants = tick(&mut agent, START, &[(0, greedy)]);
    assert_eq!(grants[0].1.rate, capacity);
    let liar = Report { echoed: grants[0].1.number, ..greedy };
    let mut honest = report(1.0, Rate::UNLIMITED);
    let mut now = START;
    loop {
        now += MS;
        agent.wake(now);
        let grants = tick(&mut agent, now, &[(0, liar), (1, honest)]);
        honest.echoed = grants[1].1.number;
        if grants[1].1.rate.as_bps() >= 49_000_000 {
            return now.since(START);
        }
        assert!(now.since(START) < Span::from_secs(60), "it never lets go");
    }
}

#[test]
fn a_source_that_echoes_old_grants_holds_them_for_one_lease_and_no_longer() {
    let span = until_the_honest_one_has_half(Span::from_millis(20));
    assert!(span <= SILENCE_STOP + Span::from_millis(20 + 5), "{span:?}");
    // Even one that claims the longest round trip that a session believes.
    let span = until_the_honest_one_has_half(RTT_MOST);
    assert!(span <= RTT_MOST + SILENCE_STOP + Span::from_millis(210), "{span:?}");
}

#[test]
fn a_session_that_is_not_reported_is_forgotten() {
    let mut agent = agent(Side::Sink, Rate::from_mbps(100));
    let all = report(1.0, Rate::UNLIMITED);
    tick(&mut agent, START, &[(0, all)]);
    let grants = tick(&mut agent, START + MS, &[(1, all)]);
    assert_eq!(grants[0].1.rate, Rate::from_mbps(100));
}

#[test]
fn a_closing_session_keeps_its_commitment_until_the_echo() {
    let mut agent = agent(Side::Sink, Rate::from_mbps(100));
    let all = report(1.0, Rate::UNLIMITED);
    let first = tick(&mut agent, START, &[(0, all)])[0].1;
    let leaving = Report { phase: Phase::Closing, echoed: first.number, ..all };
    let grants = tick(&mut agent, START + MS, &[(0, leaving), (1, all)]);
    assert_eq!((grants[0].1.rate, grants[1].1.rate), (Rate::ZERO, Rate::ZERO));
    let gone = Report { echoed: grants[0].1.number, ..leaving };
    let grants = tick(&mut agent, START + MS * 2, &[(0, gone), (1, all)]);
    assert_eq!(grants[1].1.rate, Rate::from_mbps(100));
}

#[test]
fn an_unknown_capacity_limits_nobody() {
    let mut agent = agent(Side::Sink, Rate::UNLIMITED);
    let flows = [(0, report(1.0, Rate::from_mbps(7))), (1, report(1.0, Rate::UNLIMITED))];
    let grants = tick(&mut agent, START, &flows);
    assert_eq!(grants[0].1.rate, Rate::from_mbps(7));
    assert!(grants[1].1.rate.is_unlimited());
}

#[test]
fn hostile_reports_never_panic_and_never_exceed_the_capacity() {
    let odd = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 1e300, 1.0];
    let rates = [Rate::ZERO, Rate::from_bps(1), Rate::from_bps(u64::MAX - 1), Rate::UNLIMITED];
    for side in [Side::Source, Side::Sink] {
        let mut agent = agent(side, Rate::from_mbps(10));
        let mut reports = Vec::new();
        for (i, weight) in odd.into_iter().enumerate() {
            for (j, rate) in rates.into_iter().enumerate() {
                let id = (i * rates.len() + j) as u32;
                let (echoed, rtt) = (u32::MAX, Span::MAX);
                let hostile = Report {
                    peer_offer: rate,
                    measured: rate,
                    echoed,
                    rtt,
                    ..report(weight, rate)
                };
                reports.push((id, hostile));
            }
        }
        for ms in 0..500 {
            let grants = tick(&mut agent, START + MS * ms, &reports);
            assert!(sum(&grants) <= 10_000_000);
        }
    }
}

#[test]
fn an_adopted_grant_stands_until_it_is_echoed_and_its_numbers_go_on() {
    let mbps = Rate::from_mbps;
    let mut agent = agent(Side::Sink, mbps(100));
    agent.adopt(START, 1, 7, mbps(60), mbps(80));
    let mut one = report(1.0, Rate::UNLIMITED);
    one.echoed = 6;
    let reports = |one| [(1, one), (2, report(1.0, Rate::UNLIMITED))];
    let first = tick(&mut agent, START, &reports(one));
    assert_eq!((first[0].1.number, first[0].1.rate), (8, mbps(50)));
    assert_eq!(first[1].1.rate, mbps(20), "80 of 100 may still be arriving");
    one.echoed = 7;
    let second = tick(&mut agent, START + MS, &reports(one));
    assert_eq!(second[1].1.rate, mbps(40), "60 may still be arriving");
    one.echoed = 8;
    let third = tick(&mut agent, START + MS + MS, &reports(one));
    assert_eq!(third[1].1.rate, mbps(50));
}
