//! What one interval costs the daemon: 100 processes with 100 sessions each, all of which report.

use std::collections::BTreeMap;

use divan::Bencher;
use gtp_alloc::{Rate, Span, Time};
use gtp_proto::{Law, LimitedBy, Phase, Report};
use gtp_share::{Label, Outstanding, Posted, ReportsWriter, Side};
use gtpd::{Hub, HubConfig, Who};

fn main() {
    divan::main();
}

const START: Time = Time::from_nanos(1_000_000_000);
const INTERVAL: Span = Span::from_millis(20);

fn posted(id: u32, seed: u64) -> Posted {
    Posted {
        id,
        side: if id.is_multiple_of(2) { Side::Source } else { Side::Sink },
        report: Report {
            weight: 1.0,
            peer_weight: 1.0,
            law: Law::Grant,
            phase: Phase::Open,
            peer_offer: Rate::UNLIMITED,
            demand: Rate::from_bps(1_000_000 + seed * 7_919 % 3_000_000),
            measured: Rate::from_mbps(1),
            echoed: u32::MAX,
            rtt: Span::from_millis(20),
            counts: Default::default(),
            packet: Default::default(),
        },
        principal: 0,
        transfer: u64::from(id) / 4,
        held: Outstanding::default(),
        limited_by: LimitedBy::Sink,
        packets: 0,
        lost: 0,
        wire_bytes: seed,
        label: Label::new("gtp://host.example/file"),
    }
}

fn hub(processes: u64, sessions: u32) -> (Hub, Vec<ReportsWriter>) {
    let config = HubConfig {
        capacity_out: Rate::from_mbps(10_000),
        capacity_in: Rate::from_mbps(10_000),
        interval: Some(INTERVAL),
        grace: Span::ZERO,
        users: BTreeMap::new(),
        most: BTreeMap::new(),
        least: BTreeMap::new(),
    };
    let mut hub = Hub::new(START, &config);
    let page = |id| {
        let who = Who { uid: (id % 5) as u32, pid: 1, program: "bench".into() };
        let ([reports, _], slots) = hub.attach(START, id, who, 4_096).unwrap();
        ReportsWriter::open(&reports, slots).unwrap()
    };
    let pages: Vec<ReportsWriter> = (0..processes).map(page).collect();
    post(&pages, sessions, 0);
    hub.tick(START, &mut Vec::new());
    (hub, pages)
}

fn post(pages: &[ReportsWriter], sessions: u32, round: u64) {
    for page in pages {
        for slot in 0..sessions {
            page.post(slot, &posted(slot + 1, round + u64::from(slot)));
        }
        page.beat();
    }
}

/// A whole tick: reading all pages, both agents, writing grants.
#[divan::bench(args = [10, 1_000, 10_000])]
fn tick(bencher: Bencher<'_, '_>, sessions: u64) {
    let processes = (sessions / 100).max(1);
    let each = (sessions / processes) as u32;
    let (mut hub, pages) = hub(processes, each);
    let (mut now, mut round, mut news) = (START, 0, Vec::new());
    bencher
        .with_inputs(|| {
            round += 1;
            post(&pages, each, round);
            now += INTERVAL;
            now
        })
        .bench_local_values(|now| {
            hub.wake(now);
            hub.tick(now, &mut news);
        });
}
