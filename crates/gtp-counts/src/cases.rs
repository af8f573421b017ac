//! The cases: codec, loss map, pacer, allocators, datagrams sealed in batches, packets of a whole
//! data path, blocks hashed, and the simulator's packets, whose sessions are the product's own.
//!
//! A case prepares its work and hands it over; the work reads no clock and draws from a fixed seed.

use std::fmt;
use std::hint::black_box;

use gtp_alloc::grant::{Claim, Held, grants, shares};
use gtp_alloc::maxmin::{Network, Session, solve};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::Chance;
use gtp_net::crypto::{Opener, Sealer, Suite, TrafficSecret};
use gtp_proto::RangeSet;
use gtp_proto::pacer::Pacer;
use gtp_proto::wire::{Control, DataHead, Feedback, Header, Kind, Receipt};
use gtp_sim::rate::{Config, networks};

use crate::daemon;
use crate::path::{End, Path};
use crate::worlds::{Ends, dumbbell};

/// Something whose cost is of interest.
pub struct Case {
    /// `what/size`.
    pub name: &'static str,
    /// How many items one run of the work handles.
    pub items: u64,
    /// What an item is.
    pub item: &'static str,
    /// Makes the work; what happens here is not counted.
    pub prepare: fn() -> Box<dyn FnMut()>,
    /// What of the work callgrind counts.
    pub counted: Counted,
}

/// What of a case's work callgrind counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All, when it is done for the second time.
    All,
    /// What the work does by [`crate::callgrind::counted`], but for calls of functions whose names
    /// begin so: what others wrote and another case counts would drown what this one is about.
    Beside(&'static [&'static str]),
    /// Nothing: it is for the clock alone, and would take too long.
    Nothing,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

const fn case(
    name: &'static str,
    items: u64,
    item: &'static str,
    prepare: fn() -> Box<dyn FnMut()>,
) -> Case {
    Case { name, items, item, prepare, counted: Counted::All }
}

impl Case {
    const fn counting(self, counted: Counted) -> Case {
        Case { counted, ..self }
    }
}

/// Ring's functions, and its assembly.
const WITHOUT_AEAD: Counted = Counted::Beside(&["ring::", "<ring::", "ring_core", "_aesni"]);

/// All cases.
pub const CASES: &[Case] = &[
    case("codec/data", 1_000, "data head, written and read", data_heads),
    case("codec/feedback", 100, "feedback with 20 gaps, written and read", feedbacks),
    case("loss-map/in-order", 100_000, "unit", || units(|i| i)),
    case("loss-map/scattered", 100_000, "unit", || units(|i| i * 7_919 % 100_000)),
    case("pacer/packet", 100_000, "packet", pacer),
    case("grants/10", 10, "session", || allocator(10)),
    case("grants/100", 100, "session", || allocator(100)),
    case("grants/1000", 1_000, "session", || allocator(1_000)),
    case("grants/10000", 10_000, "session", || allocator(10_000)),
    case("grants/100000", 100_000, "session", || allocator(100_000)),
    case("grants/1000000", 1_000_000, "session", || allocator(1_000_000))
        .counting(Counted::Nothing),
    case("daemon/10000", 10_000, "session of 100 processes, in an interval", || {
        daemon::tick(10_000, 2)
    }),
    case("max-min/10", 10, "session", || oracle(10)),
    case("max-min/100", 100, "session", || oracle(100)),
    case("max-min/1000", 1_000, "session", || oracle(1_000)),
    case("max-min/10000", 10_000, "session", || oracle(10_000)),
    case("max-min/100000", 100_000, "session", || oracle(100_000)),
    case("max-min/1000000", 1_000_000, "session", || oracle(1_000_000)).counting(Counted::Nothing),
    case("seal/1400", 44 * 1_400, "byte", || seal(44, 1_400)),
    case("seal/8900", 7 * 8_900, "byte", || seal(7, 8_900)),
    case("open/1400", 44 * 1_400, "byte", || open(44, 1_400)),
    case("open/8900", 7 * 8_900, "byte", || open(7, 8_900)),
    case("packet/sender", PACKETS, "packet of a data path, its sender, without the AEAD", || {
        packets(End::Sender)
    })
    .counting(WITHOUT_AEAD),
    case(
        "packet/receiver",
        PACKETS,
        "packet of a data path, its receiver, without the AEAD",
        || packets(End::Receiver),
    )
    .counting(WITHOUT_AEAD),
    case("hash/block", gtp_store::BLOCK, "byte", hash),
    case("sim/gtp", 50_000, "data packet of a session", || simulated(Ends::Gtp, Chance::NEVER)),
    case("sim/gtp-lossy", 50_000, "data packet of a session, 1 % lost", || {
        simulated(Ends::Gtp, Chance::from_percent(1))
    }),
    case("sim/tcp", 50_000, "data packet of SACK TCP", || simulated(Ends::Tcp, Chance::NEVER)),
    case("sim/rates", RATES_TICKS, "node's computation for 10 sessions", rates),
];

/// In 0..1, from a linear congruence with Knuth's MMIX constants.
fn draws() -> impl FnMut() -> f64 {
    let mut state = 1u64;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn data_heads() -> Box<dyn FnMut()> {
    let mut out = Vec::with_capacity(64);
    Box::new(move || {
        for i in 0..1_000 {
            out.clear();
            Header { kind: Kind::Data, session: 7, pn: i }.encode(&mut out);
            DataHead { proof: 3, sent_at: i as u32, grant: 9, request: 1, unit: i }
                .encode(&mut out);
            out.push(0);
            let header = Header::decode(&out).expect("as it was written");
            let body = &out[out.len() - 1 - gtp_proto::wire::DATA_HEAD_LEN..];
            let head = DataHead::decode(body).expect("as it was written");
            black_box((header, head));
        }
    })
}

fn feedbacks() -> Box<dyn FnMut()> {
    let gaps = (0..20).map(|i| 1_000 + 50 * i..1_003 + 50 * i).collect();
    let receipt = Receipt { span: 1_000..2_100, gaps, sum: 7, bytes: 1_500_000, arrived_at: 1 };
    let feedback = Feedback {
        sent_at: 5,
        grant: 9,
        rate: Rate::from_mbps(630),
        offer: Rate::from_mbps(700),
        interval: 20_000,
        echo_at: 4,
        echo_hold: 10,
        delay: 0,
        receipt,
        weight: None,
        delay_most: None,
        ecn: None,
        router_binds: false,
    };
    let control = Control::Feedback(feedback);
    let mut out = Vec::with_capacity(2_048);
    Box::new(move || {
        for _ in 0..100 {
            out.clear();
            control.encode(&mut out);
            black_box(Control::decode(Kind::Feedback, &out).expect("as it was written"));
        }
    })
}

/// A session's missing units: all, and then one after the other arrives in this order.
fn units(order: fn(u64) -> u64) -> Box<dyn FnMut()> {
    Box::new(move || {
        let mut missing = RangeSet::new();
        missing.insert(0..100_000);
        for i in 0..100_000 {
            missing.remove_one(order(i));
        }
        assert!(missing.is_empty(), "an order names each unit once");
    })
}

fn pacer() -> Box<dyn FnMut()> {
    Box::new(|| {
        let mut now = Time::ZERO;
        let mut pacer = Pacer::new(now);
        pacer.set_rate(now, Rate::from_mbps(1_000));
        let mut sent = 0;
        while sent < 100_000 {
            while pacer.may_send(now) && sent < 100_000 {
                pacer.sent(now, Bytes(1_477));
                sent += 1;
            }
            now = pacer.next_wake().map_or(now, |wake| wake.max(now));
        }
        black_box(pacer);
    })
}

/// An interval of a host's allocator: its sessions' shares, and what of them may be granted now.
fn allocator(sessions: usize) -> Box<dyn FnMut()> {
    let mut draw = draws();
    let mut some = move || 2e10 * draw() / sessions as f64;
    let claims: Vec<_> = (0..sessions).map(|_| Claim { weight: 1.0, bound: some() }).collect();
    let held: Vec<_> =
        (0..sessions).map(|_| Held { target: some(), committed: some(), newest: some() }).collect();
    let (mut share, mut granted) = (Vec::new(), Vec::new());
    Box::new(move || {
        shares(1e10, &claims, &mut share);
        grants(1e10, &held, &mut granted);
        black_box((&share, &granted));
    })
}

/// The exact optimum of random pairs among a tenth as many nodes, and two at least.
fn oracle(sessions: u32) -> Box<dyn FnMut()> {
    let mut draw = draws();
    let half = (sessions / 20).max(1);
    let capacity = (0..2 * half).map(|_| 1e8 + 1e10 * draw()).collect();
    let mut network = Network::new(capacity).expect("capacities are positive");
    for _ in 0..sessions {
        let mut node = |first: u32| first + (f64::from(half) * draw()) as u32;
        let uses = [node(0), node(half)];
        let session = Session { uses: &uses, weight: 1.0, demand: f64::INFINITY };
        network.add(session).expect("both nodes exist");
    }
    Box::new(move || {
        black_box(solve(&network));
    })
}

fn secret() -> TrafficSecret {
    TrafficSecret::new([7; 32])
}

const HEADER: [u8; 13] = [1; 13];

fn seal(packets: usize, length: usize) -> Box<dyn FnMut()> {
    let mut sealer = Sealer::new(Suite::Aes128Gcm, secret());
    let mut batch = vec![vec![5u8; length]; packets];
    let mut number = 0;
    Box::new(move || {
        for body in &mut batch {
            black_box(sealer.seal_in_place(number, &HEADER, body));
            number += 1;
        }
    })
}

fn open(packets: usize, length: usize) -> Box<dyn FnMut()> {
    let mut sealer = Sealer::new(Suite::Aes128Gcm, secret());
    let sealed: Vec<_> = (0..packets as u64)
        .map(|number| {
            let mut body = vec![5u8; length];
            let tag = sealer.seal_in_place(number, &HEADER, &mut body);
            body.extend_from_slice(&tag);
            body
        })
        .collect();
    let mut opener = Opener::new(Suite::Aes128Gcm, secret());
    let mut batch = sealed.clone();
    Box::new(move || {
        for ((number, body), sealed) in (0..).zip(&mut batch).zip(&sealed) {
            body.copy_from_slice(sealed);
            black_box(opener.open_in_place(number, &HEADER, body).expect("as it was sealed"));
        }
    })
}

const PACKETS: u64 = 10_000;

/// A data path that has found its rate, for so many packets more: 44 leave at a time.
fn packets(counted: End) -> Box<dyn FnMut()> {
    let mut path = Path::new().expect("descriptors for two engines");
    path.carry(PACKETS / 2, None);
    Box::new(move || path.carry(PACKETS, Some(counted)))
}

fn hash() -> Box<dyn FnMut()> {
    let content = vec![9u8; gtp_store::BLOCK as usize];
    Box::new(move || {
        black_box(gtp_store::block_value(4 * gtp_store::BLOCK, 1, &content));
    })
}

/// Sessions over a dumbbell from its start until 50,000 data packets have arrived.
fn simulated(ends: Ends, loss: Chance) -> Box<dyn FnMut()> {
    Box::new(move || {
        let (mut world, ids) = dumbbell(ends, loss).expect("the network is sound");
        let mut until = Time::ZERO;
        let arrived = |world: &gtp_sim::packet::World| -> u64 {
            ids.iter().filter_map(|&id| world.session(id)).map(|s| s.received_packets).sum()
        };
        while arrived(&world) < 50_000 {
            until += Span::from_millis(10);
            world.run_until(until);
        }
    })
}

const RATES_NODES: u32 = 2_000;
const RATES_INTERVALS: u64 = 10;
/// Each node computes once in each of its intervals.
const RATES_TICKS: u64 = RATES_NODES as u64 * RATES_INTERVALS;

/// The rate level from its start, while everybody has news: ten sessions at each node.
fn rates() -> Box<dyn FnMut()> {
    let interval = Span::from_millis(20);
    let network = networks::large(Config::GRANT, RATES_NODES, 5 * RATES_NODES, interval, 1);
    let mut worlds = [(); 2].map(|()| network.build().expect("the network is sound"));
    let mut next = worlds.len();
    Box::new(move || {
        next = next.checked_sub(1).expect("a world for each run");
        worlds[next].run_until(Time::ZERO + interval * RATES_INTERVALS);
        assert_eq!(worlds[next].counters().0, RATES_TICKS);
    })
}
