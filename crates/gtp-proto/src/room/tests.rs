//! What parties keep of their room while others want it, and whatever sessions say.

use std::vec;
use std::vec::Vec;

use gtp_alloc::led::Counts;
use gtp_alloc::{Bytes, Span};
use proptest::prelude::*;

use super::*;
use crate::report::Law;

const CAPACITY: Rate = Rate::from_mbps(100);

fn report(party: u64, firm: u64, demand: u64) -> (FlowId, Report) {
    let report = Report {
        weight: 1.0,
        peer_weight: 1.0,
        law: Law::Grant,
        phase: Phase::Open,
        peer_offer: Rate::UNLIMITED,
        demand: Rate::from_bps(demand),
        firm: Rate::from_bps(firm),
        party,
        owner: crate::report::Owner::NOBODY,
        measured: Rate::ZERO,
        echoed: 0,
        rtt: Span::ZERO,
        counts: Counts::default(),
        packet: Bytes::ZERO,
    };
    (0, report)
}

/// Returns the bounds of these sessions in bit/s.
fn bounds(reports: &[(FlowId, Report)]) -> Vec<f64> {
    let mut claims: Vec<Claim> = reports.iter().map(|(_, report)| claim(report)).collect();
    share(CAPACITY, reports, &mut claims);
    claims.iter().map(|claim| claim.bound).collect()
}

#[test]
fn a_party_whose_room_others_want_keeps_its_part_of_it_whoever_has_how_many_sessions() {
    let part = 1e8 * ROOM_PART;
    let mut reports = vec![report(7, u64::MAX, u64::MAX)];
    reports.extend([report(1, 1_000_000, 2_000_000); 64]);
    reports.push(report(2, 1_000_000, 2_000_000));
    let bounds = bounds(&reports);
    assert_eq!(bounds[0], f64::INFINITY);
    assert!((bounds[1] - (1e6 + part / 64.0)).abs() < 1.0, "{}", bounds[1]);
    assert!((bounds[65] - (1e6 + part)).abs() < 1.0, "{}", bounds[65]);
}

#[test]
fn room_that_nobody_else_wants_is_kept_and_less_of_it_is_shared_by_what_each_wants() {
    let idle = [report(1, 0, 1_000_000), report(1, 0, 3_000_000), report(2, 0, 4_000_000)];
    assert_eq!(bounds(&idle), [1e6, 3e6, 4e6]);
    let busy = [&idle[..], &[report(9, u64::MAX, 96_000_000)]].concat();
    let bounds = bounds(&busy);
    assert_eq!(bounds, [0.5e6, 1.5e6, 2e6, 96e6]);
}

#[test]
fn the_sessions_of_the_hosts_own_user_share_no_room() {
    let reports = [report(0, 0, 1_000_000), report(0, u64::MAX, u64::MAX)];
    assert_eq!(bounds(&reports), [1e6, f64::INFINITY]);
}

proptest! {
    #[test]
    fn whatever_sessions_say_no_bound_rises_and_none_falls_below_what_is_firm(
        said in prop::collection::vec(
            (0_u64..5, prop_oneof![Just(0), 0_u64..200_000_000, Just(u64::MAX)],
             prop_oneof![Just(0), 0_u64..200_000_000, Just(u64::MAX)]),
            1..40,
        ),
    ) {
        let reports = said.iter().map(|&(party, firm, demand)| report(party, firm, demand));
        let reports: Vec<_> = reports.collect();
        let whole = CAPACITY.as_f64();
        let mut rooms = [0.0; 5];
        let mut firms = 0.0;
        for ((_, report), bound) in reports.iter().zip(bounds(&reports)) {
            let (firm, demand) = (report.firm.as_f64(), report.demand.as_f64());
            prop_assert!(bound <= demand);
            prop_assert!(bound >= firm.min(demand).min(whole) - 1.0, "{report:?}: {bound}");
            let room = if report.party == 0 { 0.0 } else { (bound.min(whole) - firm).max(0.0) };
            rooms[report.party as usize] += room;
            firms += bound.min(whole) - room;
        }
        let parts = rooms.iter().map(|room| room.min(whole * ROOM_PART)).sum::<f64>();
        let all = rooms.iter().sum::<f64>();
        prop_assert!(all <= parts.max(0.0) + (whole - firms).max(0.0) + 1.0, "{rooms:?}, {firms}");
    }
}
