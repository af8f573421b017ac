//! Sessions of owners, shared out with the grant law.

use alloc::vec::Vec;

use gtp_alloc::grant::{Claim, Share, shares};
use gtp_alloc::led::Counts;
use gtp_alloc::{Bytes, Rate, Span};
use proptest::prelude::*;

use super::{divide, limit};
use crate::report::{FlowId, Law, Owner, Phase, Report};

/// A session of an owner, with this weight, that wants so many Mbit/s.
fn report(owner: Owner, weight: f64, demand: u64) -> (FlowId, Report) {
    let report = Report {
        weight,
        peer_weight: 1.0,
        law: Law::Grant,
        phase: Phase::Open,
        peer_offer: Rate::UNLIMITED,
        demand: Rate::from_mbps(demand),
        firm: Rate::UNLIMITED,
        party: owner.number,
        owner,
        measured: Rate::ZERO,
        echoed: 0,
        rtt: Span::from_millis(10),
        counts: Counts { received: 0, lost: 0 },
        packet: Bytes(1_500),
    };
    (0, report)
}

fn owner(number: u64) -> Owner {
    Owner { number, ..Owner::NOBODY }
}

/// What each session gets of 100 Mbit/s, in Mbit/s.
fn rates(reports: &[(FlowId, Report)]) -> Vec<f64> {
    let mut claims: Vec<Claim> = reports.iter().map(|(_, r)| crate::room::claim(r)).collect();
    limit(reports, &mut claims);
    divide(Rate::from_mbps(100), reports, &mut claims);
    let mut out: Vec<Share> = Vec::new();
    shares(100e6, &claims, &mut out);
    out.iter().map(|share| (share.target / 1e4).round() / 100.0).collect()
}

#[test]
fn sixteen_sessions_of_one_owner_get_together_what_one_session_of_another_gets() {
    let mut reports: Vec<_> = (0..16).map(|_| report(owner(7), 1.0, 1_000)).collect();
    reports.push(report(owner(9), 1.0, 1_000));
    let rates = rates(&reports);
    assert!((rates[..16].iter().sum::<f64>() - 50.0).abs() < 0.2, "{rates:?}");
    assert_eq!(rates[16], 50.0);
}

#[test]
fn what_an_owner_does_not_use_goes_to_the_others_and_weights_count_within_an_owner() {
    let reports = [report(owner(7), 3.0, 1_000), report(owner(7), 1.0, 1_000)];
    assert_eq!(rates(&reports), [75.0, 25.0]);
    let reports =
        [report(owner(7), 1.0, 10), report(owner(7), 1.0, 10), report(owner(9), 1.0, 900)];
    assert_eq!(rates(&reports), [10.0, 10.0, 80.0]);
}

#[test]
fn an_owner_counts_as_its_heaviest_session_and_a_low_one_gives_way_as_before() {
    let reports =
        [report(owner(7), 4.0, 1_000), report(owner(7), 1.0, 1_000), report(owner(9), 1.0, 1_000)];
    assert_eq!(rates(&reports), [64.0, 16.0, 20.0]);
    let reports = [report(owner(7), 0.001, 1_000), report(owner(9), 1.0, 1_000)];
    assert!(rates(&reports)[0] <= 0.1);
}

#[test]
fn an_owners_weight_multiplies_its_share_and_its_limit_is_for_all_its_sessions() {
    let heavy = Owner { weight: 3.0, ..owner(7) };
    let reports = [report(heavy, 1.0, 900), report(heavy, 1.0, 900), report(owner(9), 1.0, 900)];
    assert_eq!(rates(&reports), [37.5, 37.5, 25.0]);
    let slow = Owner { most: Rate::from_mbps(30), ..owner(7) };
    let reports = [report(slow, 1.0, 900), report(slow, 1.0, 5), report(owner(9), 1.0, 900)];
    assert_eq!(rates(&reports), [25.0, 5.0, 70.0]);
}

#[test]
fn the_hosts_own_sessions_keep_their_weights() {
    let own = || report(Owner::NOBODY, 1.0, 1_000);
    let reports = [own(), own(), report(owner(9), 1.0, 1_000), report(owner(9), 1.0, 1_000)];
    let rates = rates(&reports);
    assert!(rates[..2].iter().all(|rate| (rate - 33.33).abs() < 0.01), "{rates:?}");
}

#[test]
fn sessions_that_want_little_leave_the_rest_of_their_owners_share_to_its_others() {
    let reports =
        [report(owner(7), 1.0, 900), report(owner(7), 1.0, 1), report(owner(9), 1.0, 900)];
    assert_eq!(rates(&reports), [49.0, 1.0, 50.0]);
    let mut reports: Vec<_> = (0..15).map(|_| report(owner(7), 1.0, 0)).collect();
    reports.extend([report(owner(7), 1.0, 900), report(owner(9), 1.0, 900)]);
    assert_eq!(rates(&reports)[15..], [50.0, 50.0]);
}

proptest! {
    #[test]
    fn each_owner_gets_what_one_session_of_its_weight_and_its_demand_would_get(
        sessions in prop::collection::vec((0_u64..4, 1_u8..9, 0_u64..80), 1..20),
    ) {
        let reports: Vec<_> = sessions
            .iter()
            .map(|&(number, weight, demand)| report(owner(number), weight.into(), demand))
            .collect();
        let rates = rates(&reports);
        let of = |number: u64| sessions.iter().zip(&rates).filter(move |(s, _)| s.0 == number);
        // The host's own sessions have number 0 and stand for themselves.
        let mut together: Vec<_> =
            of(0).map(|(s, _)| report(Owner::NOBODY, s.1.into(), s.2)).collect();
        let owners: Vec<u64> = (1..4).filter(|&number| of(number).count() > 0).collect();
        for &number in &owners {
            let heaviest = of(number).map(|(s, _)| s.1).max().unwrap_or(1);
            let demand = of(number).map(|(s, _)| s.2).sum();
            together.push(report(Owner::NOBODY, heaviest.into(), demand));
        }
        let expected = super::tests::rates(&together);
        let expected = &expected[together.len() - owners.len()..];
        for (number, expected) in owners.iter().zip(expected) {
            let got: f64 = of(*number).map(|(_, rate)| rate).sum();
            prop_assert!((got - expected).abs() < 0.2, "{number}: {got}, not {expected}");
        }
    }
}
