//! A daemon's interval: processes that share one host, all of whose sessions have news.
//!
//! The pages are real ones in memory; there is no socket, no clock and no other process. What the
//! processes write is prepared and not counted.

use std::collections::BTreeMap;

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::{Law, LimitedBy, Phase, Report};
use gtp_share::{Label, Outstanding, Posted, PostedPath, ReportsWriter, Side, Terms};
use gtpd::{EndNodeSessions, Hub, HubConfig, Who};

const START: Time = Time::from_nanos(1_000_000_000);
const INTERVAL: Span = Span::from_millis(20);
/// Sessions of each process.
const EACH: u32 = 100;
/// Intervals before one is counted.
const BEFORE: u64 = 3;

/// A daemon and the pages of its processes.
struct Host {
    hub: Hub,
    pages: Vec<ReportsWriter>,
    now: Time,
}

impl Host {
    fn new(sessions: u32) -> Host {
        let config = HubConfig {
            capacity_out: Rate::from_mbps(10_000),
            capacity_in: Rate::from_mbps(10_000),
            interval: Some(INTERVAL),
            grace: Span::ZERO,
            users: BTreeMap::new(),
            most: BTreeMap::new(),
            least: BTreeMap::new(),
            end_node: EndNodeSessions::default(),
        };
        let mut hub = Hub::new(START, &config);
        let page = |id: u32| {
            let who = Who { uid: id % 5, pid: 1, program: "count".into() };
            let ([reports, _], slots) =
                hub.attach(START, u64::from(id), who, EACH).expect("memory for a page");
            ReportsWriter::open(&reports, slots).expect("a page just made")
        };
        let pages = (0..sessions / EACH).map(page).collect();
        Host { hub, pages, now: START }
    }

    /// Every session of every process wants something else than before.
    fn post(&mut self, round: u64) {
        for page in &self.pages {
            (0..EACH).for_each(|slot| page.post(slot, &posted(slot, round)));
            page.beat();
        }
        self.now += INTERVAL;
        self.hub.wake(self.now);
    }

    fn tick(&mut self) {
        self.hub.tick(self.now, &mut Vec::new());
    }
}

/// What a session says in a round.
fn posted(slot: u32, round: u64) -> Posted {
    let said = round + u64::from(slot);
    Posted {
        id: slot + 1,
        side: if slot.is_multiple_of(2) { Side::Source } else { Side::Sink },
        report: Report {
            weight: 1.0,
            peer_weight: 1.0,
            law: Law::Grant,
            phase: Phase::Open,
            peer_offer: Rate::UNLIMITED,
            demand: Rate::from_bps(1_000_000 + said * 7_919 % 3_000_000),
            firm: Rate::UNLIMITED,
            party: 0,
            owner: gtp_proto::Owner::NOBODY,
            measured: Rate::from_mbps(1),
            echoed: u32::MAX,
            rtt: INTERVAL,
            counts: Default::default(),
            packet: Default::default(),
        },
        principal: 0,
        transfer: u64::from(slot) / 4,
        held: Outstanding::default(),
        limited_by: LimitedBy::Sink,
        path: PostedPath::default(),
        packets: 0,
        lost: 0,
        wire_bytes: said,
        label: Label::new("gtp://host.example/file"),
        terms: Terms::NONE,
    }
}

/// One interval of a daemon with so many sessions: reading all pages, sharing out in both
/// directions, writing all grants. There are as many daemons as intervals are asked for, since
/// what the processes say is none of its work.
pub(crate) fn tick(sessions: u32, intervals: usize) -> Box<dyn FnMut()> {
    let host = |_| {
        let mut host = Host::new(sessions);
        for round in 0..BEFORE {
            host.post(round);
            host.tick();
        }
        host.post(BEFORE);
        host
    };
    let mut hosts: Vec<Host> = (0..intervals).map(host).collect();
    let mut next = 0;
    Box::new(move || {
        hosts[next % intervals].tick();
        next += 1;
    })
}
