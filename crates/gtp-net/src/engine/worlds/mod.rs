//! Transfers from several sources of which one breaks a rule, in virtual time.
//!
//! The sink is a whole engine with its agents, keys and transfer; only the kernel is left out. The
//! sources are the core's own sessions behind modelled paths. After every step each unit of the
//! object must be in exactly one place: asked of a session, free to be asked for, at the sink.

mod mirror;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_proto::{Arrival, FlowId, PathUse, Revision, Role, Weights};
use gtp_store::{BlockSource, DiscardSink};
use gtp_sys::udp::Origin;
use gtp_sys::wake::Poller;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::api::{
    Drops, HostConfig, RootPolicy, SessionKeys, SessionOpen, SocketId, TransferEvent, TransferOpen,
};
use super::batch::Batch;
use super::command::{NewTransfer, Notice, Notices, TransferId};
use super::driver::Driver;
use super::law::Law;
use super::writer;
use crate::crypto::{Suite, TrafficSecret};
use mirror::{Breach, Mirror, Nature, object};

/// A random number generator (SplitMix64), so that a world is a function of its seed.
#[derive(Clone, Copy, Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    fn hits(&mut self, chance: f64) -> bool {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64 > 1.0 - chance
    }
}

/// What a world consists of.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    size: u64,
    capacity_in: Rate,
    memory: Bytes,
    mirrors: Vec<Nature>,
}

/// A sink and its mirrors.
struct World {
    plan: Plan,
    now: Time,
    sink: Driver,
    batch: Batch,
    inbox: Receiver<Notice>,
    events: UnboundedReceiver<TransferEvent>,
    mirrors: BTreeMap<FlowId, Mirror>,
    /// Which of the plan's mirrors each session leads to.
    ends: BTreeMap<FlowId, usize>,
    /// Sessions to be opened: when, and to which mirror.
    opens: Vec<(Time, usize)>,
    breaches: Vec<u32>,
    spoilt: Vec<u32>,
    to_sink: Air,
    to_mirror: Air,
    sent: u64,
    names: FlowId,
    dice: Dice,
    lost: Vec<String>,
    heard: Vec<String>,
    check_due: Time,
    _poller: Poller,
}

/// Datagrams on their way: when each arrives, its number, its session, its bytes.
type Air = BinaryHeap<Reverse<(Time, u64, FlowId, Vec<u8>)>>;

const TRANSFER: TransferId = 1;
const START: Time = Time::from_nanos(1_000_000_000);
/// No world takes as long.
const LONGEST: Span = Span::from_secs(300);

/// Damaged blocks that are forgiven, and sessions that a mirror may have, as a client has it.
const SPOILT_MOST: u32 = 8;
const SESSIONS_MOST: u32 = 3;
/// The pause before a lost mirror is tried again.
const PAUSE: Span = Span::from_secs(5);
/// Units are accounted for this often, and whenever a session is lost.
const CHECK: Span = Span::from_millis(500);

/// How a world ended.
#[derive(Debug)]
struct Ending {
    seconds: f64,
    duplicate_bytes: u64,
}

impl World {
    fn new(plan: Plan) -> World {
        let config = HostConfig {
            capacity_out: Rate::from_mbps(1_000),
            capacity_in: plan.capacity_in,
            interval: None,
            memory: plan.memory,
            engines: 1,
        };
        let (queue, inbox) = channel();
        let poller = Poller::new().expect("descriptors");
        let notices = Notices::new(queue, poller.waker());
        let mut sink = Driver::new(START, config, notices, Arc::new(Drops::default()));
        let manifest = object(plan.size).manifest().clone();
        let (out, events) = unbounded_channel();
        let open = TransferOpen {
            sink: Box::new(DiscardSink::new(manifest.clone())),
            manifest,
            roots: RootPolicy::AskFirst,
        };
        let new = NewTransfer {
            transfer: TRANSFER,
            open,
            writer: Box::new(writer::here),
            events: out,
            progress: Arc::new(Mutex::default()),
        };
        sink.handle_notice(START, Notice::OpenTransfer(Box::new(new)));
        World {
            now: START,
            sink,
            batch: Batch::default(),
            inbox,
            events,
            mirrors: BTreeMap::new(),
            ends: BTreeMap::new(),
            opens: (0..plan.mirrors.len()).map(|number| (START, number)).collect(),
            breaches: vec![0; plan.mirrors.len()],
            spoilt: vec![0; plan.mirrors.len()],
            to_sink: BinaryHeap::new(),
            to_mirror: BinaryHeap::new(),
            sent: 0,
            names: 100,
            dice: Dice(plan.seed ^ 0xD1CE),
            lost: Vec::new(),
            heard: Vec::new(),
            check_due: START,
            plan,
            _poller: poller,
        }
    }

    /// Runs to the end of the transfer.
    fn run(mut self) -> Ending {
        loop {
            let losses = self.lost.len();
            self.open_due();
            self.arrive();
            self.work();
            if self.hear() {
                return self.ending();
            }
            if self.check_due <= self.now || self.lost.len() > losses {
                self.check_due = self.now + CHECK;
                self.check();
            }
            let next = self.next_time().max(self.now + Span::from_micros(50));
            assert!(next < START + LONGEST, "it never ends: {self:?}");
            self.now = next;
        }
    }

    fn ending(&mut self) -> Ending {
        let sinks = self.ends.keys().filter_map(|&flow| self.sink.table().sink(flow));
        let duplicate_bytes = sinks.map(|sink| sink.core.counters().duplicate_bytes).sum();
        let seconds = self.now.since(START).as_secs_f64();
        Ending { seconds, duplicate_bytes }
    }

    fn next_time(&self) -> Time {
        let flying = |heap: &Air| heap.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
        let opens = self.opens.iter().map(|&(at, _)| at).min().unwrap_or(Time::MAX);
        let mirrors = self.mirrors.values().map(|mirror| mirror.poll_timeout(self.now)).min();
        let ends = mirrors.unwrap_or(Time::MAX).min(self.sink.poll_timeout());
        ends.min(opens).min(flying(&self.to_sink)).min(flying(&self.to_mirror))
    }

    fn open_due(&mut self) {
        let now = self.now;
        for (_, number) in self.opens.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.names += 1;
            let flow = self.names;
            let [here, there] = session_pair(flow, &number.to_string());
            let nature = self.plan.mirrors[number];
            let seed = self.dice.next();
            let object = object(self.plan.size);
            let mirror = Mirror::new(now, START, nature, there, object, seed);
            self.mirrors.insert(flow, mirror);
            self.ends.insert(flow, number);
            self.sink.handle_notice(now, Notice::AddSession(TRANSFER, flow, Box::new(here)));
        }
    }

    fn arrive(&mut self) {
        let now = self.now;
        while self.to_sink.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((at, _, flow, mut bytes))) = self.to_sink.pop() else { return };
            let origin = Origin { from: address(flow), to: None };
            let came = Arrival { at, ..now.into() };
            self.sink.handle_datagram(came, SocketId(1), &origin, &mut bytes);
        }
        while self.to_mirror.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, _, flow, mut bytes))) = self.to_mirror.pop() else { return };
            let origin = Origin { from: address(0), to: None };
            if let Some(mirror) = self.mirrors.get_mut(&flow) {
                mirror.handle_datagram(now, &origin, &mut bytes);
            }
        }
    }

    fn work(&mut self) {
        let now = self.now;
        while let Ok(notice) = self.inbox.try_recv() {
            self.sink.handle_notice(now, notice);
        }
        self.sink.handle_timeout(now);
        while let Some((to, _)) = self.sink.poll_batch(now, &mut self.batch) {
            let flow = FlowId::from(to.to.port());
            let Some(nature) = self.ends.get(&flow).map(|&n| self.plan.mirrors[n]) else {
                continue;
            };
            for run in self.batch.runs() {
                for datagram in self.batch.bytes(run).chunks(run.segment.max(1)) {
                    if !self.dice.hits(nature.loss) {
                        self.sent += 1;
                        let at = now + nature.delay;
                        self.to_mirror.push(Reverse((at, self.sent, flow, datagram.to_vec())));
                    }
                }
            }
        }
        self.sink.flush_events(now);
        for (&flow, mirror) in &mut self.mirrors {
            if mirror.poll_timeout(now) <= now {
                for (at, bytes) in mirror.transmit(now) {
                    self.sent += 1;
                    self.to_sink.push(Reverse((at, self.sent, flow, bytes)));
                }
            }
        }
    }

    /// Does what whoever started a transfer does. `true`: it is complete.
    fn hear(&mut self) -> bool {
        while let Ok(event) = self.events.try_recv() {
            self.heard.push(format!("{:?}: {event:?}", self.now.since(START)));
            match event {
                TransferEvent::AllBlocks => {
                    let finish = Notice::FinishFiles(TRANSFER, vec![(0, None)]);
                    self.sink.handle_notice(self.now, finish);
                }
                TransferEvent::Lost { flow, why, blame: _ } => self.again(flow, &why),
                TransferEvent::NoPath { flow } => self.again(flow, "no path"),
                TransferEvent::BadBlock { flow, .. } => self.spoilt(flow),
                TransferEvent::Complete(_) => return true,
                TransferEvent::PathOpen { .. }
                | TransferEvent::FileDone { .. }
                | TransferEvent::FileNamed { .. }
                | TransferEvent::Warning(_)
                | TransferEvent::Silent { .. }
                | TransferEvent::BlockHere { .. }
                | TransferEvent::Stalled => {}
                TransferEvent::Unobtainable { .. }
                | TransferEvent::WrongRoot { .. }
                | TransferEvent::GivenUp { .. }
                | TransferEvent::Fault(_)
                | TransferEvent::Suspended => panic!("{event:?} in {:?}", self.plan),
            }
        }
        false
    }

    /// A mirror that spoils many blocks is given up, as a client does.
    fn spoilt(&mut self, flow: FlowId) {
        self.lost.push(format!("{flow} spoils"));
        let number = self.ends[&flow];
        self.spoilt[number] += 1;
        if self.spoilt[number] > SPOILT_MOST {
            self.sink.handle_notice(self.now, Notice::RemoveSession(TRANSFER, flow));
        }
    }

    /// A lost mirror is tried again after a pause, a few times.
    fn again(&mut self, flow: FlowId, why: &str) {
        self.lost.push(format!("{flow}: {why}"));
        self.mirrors.remove(&flow);
        let number = self.ends[&flow];
        self.breaches[number] += 1;
        if self.breaches[number] < SESSIONS_MOST {
            self.opens.push((self.now + PAUSE, number));
        }
    }

    /// Every unit that is not here is asked of a session or free, and of one only.
    fn check(&self) {
        if let Err(stray) = self.sink.account(TRANSFER) {
            panic!("{stray}: {self:?}");
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "at {:?}: {:?}, lost {:?}", self.now.since(START), self.plan, self.lost)?;
        self.heard.iter().try_for_each(|event| writeln!(f, "{event}"))?;
        for (&flow, &number) in &self.ends {
            let Some(sink) = self.sink.table().sink(flow) else { continue };
            let (owed, silence) = (sink.core.outstanding(), sink.core.silence(self.now));
            writeln!(f, "{number}: {:?} owes {owed}, silent for {silence:?}", sink.state)?;
        }
        write!(f, "again: GTP_WORLD={} cargo test -p gtp-net --lib worlds", self.plan.seed)
    }
}

fn address(flow: FlowId) -> SocketAddr {
    ([127, 0, 0, 1], u16::try_from(flow).expect("few sessions")).into()
}

/// Both ends of a session with the source of this name.
fn session_pair(flow: FlowId, name: &str) -> [SessionOpen; 2] {
    let session = |role, peer, local_session, peer_session, seal, open| SessionOpen {
        socket: SocketId(1),
        peer,
        local_session,
        peer_session,
        keys: SessionKeys {
            suite: Suite::Aes128Gcm,
            seal: TrafficSecret::new([seal; 32]),
            open: TrafficSecret::new([open; 32]),
        },
        revision: Revision::NEWEST,
        role,
        law: Law::Grant,
        weights: Weights::ONE,
        path: PathUse::default(),
        max_rate: Rate::UNLIMITED,
        principal: 0,
        allowance: crate::engine::Allowance::default(),
        label: name.to_owned(),
    };
    let asks = Role::Initiator { unit_payloads: vec![1_400] };
    [
        session(asks, address(flow), flow, flow + 10_000, 1, 2),
        session(Role::Responder, address(0), flow + 10_000, flow, 2, 1),
    ]
}

/// Two honest sources, and perhaps a third that breaks a rule.
fn plan(seed: u64) -> Plan {
    let mut dice = Dice(seed);
    let mut nature = |breach, after| Nature {
        breach,
        after,
        rate: Rate::from_bps(dice.between(3_000_000, 8_000_000)),
        delay: Span::from_millis(dice.between(1, 60)),
        loss: dice.between(0, 10) as f64 / 1_000.0,
    };
    let mut mirrors = vec![nature(Breach::None, Span::ZERO), nature(Breach::None, Span::ZERO)];
    let breach = Breach::ALL[(seed % Breach::ALL.len() as u64) as usize];
    let mut third = nature(breach, Span::ZERO);
    let size = (9 << 20) + dice.below(3 << 20);
    let honest: u64 = mirrors.iter().map(|mirror| mirror.rate.as_bps()).sum();
    let least_ms = size * 8_000 / honest;
    if breach != Breach::Deaf {
        third.after = Span::from_millis(dice.below(least_ms));
    }
    mirrors.insert(dice.below(3) as usize, third);
    let capacity_in = Rate::from_mbps(100);
    Plan { seed, size, capacity_in, memory: Bytes(64 << 20), mirrors }
}

/// The same without those that break rules.
fn honest_ones(plan: &Plan) -> Plan {
    let mut honest = plan.clone();
    honest.mirrors.retain(|mirror| mirror.breach == Breach::None);
    honest
}

/// The seeds to try: 210, or 2,000 with `GTP_LONG=1`, or the one that `GTP_WORLD` names.
fn worlds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match (number("GTP_WORLD"), number("GTP_LONG")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(1)) => 0..2_000,
        (None, _) => 0..210,
    }
}

/// The threads that share the worlds.
const THREADS: u64 = 4;

/// A world with a source that breaks a rule, held against the same without it.
struct Outcome {
    seed: u64,
    breach: Breach,
    ratio: f64,
    seconds: f64,
    /// Bytes that came twice or unasked, beyond those of the honest world.
    excess: u64,
}

fn compare(seed: u64) -> Outcome {
    let plan = plan(seed);
    let with = World::new(plan.clone()).run();
    let without = World::new(honest_ones(&plan)).run();
    let breach = plan.mirrors.iter().map(|mirror| mirror.breach).find(|&b| b != Breach::None);
    Outcome {
        seed,
        breach: breach.expect("one breaks a rule"),
        ratio: with.seconds / without.seconds,
        seconds: without.seconds,
        excess: with.duplicate_bytes.saturating_sub(without.duplicate_bytes),
    }
}

fn compare_all(seeds: std::ops::Range<u64>) -> Vec<Outcome> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let mine = seeds.clone().filter(move |seed| seed % THREADS == n);
                scope.spawn(move || mine.map(compare).collect::<Vec<_>>())
            })
            .collect();
        let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.flat_map(|outcomes| outcomes.expect("no world fails")).collect()
    })
}

/// A breach costs at most this times what the honest two take alone.
const ASKED: f64 = 1.1;

#[test]
fn a_source_that_breaks_any_rule_ends_no_transfer_and_costs_a_tenth_at_most() {
    let outcomes = compare_all(worlds());
    for breach in Breach::ALL {
        let of = outcomes.iter().filter(|outcome| outcome.breach == breach);
        if let Some(worst) = of.clone().max_by(|a, b| a.ratio.total_cmp(&b.ratio)) {
            let (ratio, seconds, seed) = (worst.ratio, worst.seconds, worst.seed);
            let excess = of.map(|outcome| outcome.excess).max().unwrap_or(0) >> 10;
            println!("{breach:?}: {ratio:.3} of {seconds:.2} s in world {seed}, {excess} KiB more");
        }
    }
    for Outcome { seed, breach, ratio, .. } in outcomes {
        assert!(
            ratio <= ASKED,
            "{breach:?}: {ratio:.3} times as long; again: GTP_WORLD={seed} cargo test -p gtp-net \
             --lib worlds"
        );
    }
}
