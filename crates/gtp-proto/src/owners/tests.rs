//! Sessions of owners, shared out with the grant law.

use alloc::vec::Vec;

use gtp_alloc::grant::{Claim, Share};
use gtp_alloc::led::Counts;
use gtp_alloc::{Bytes, Rate, Span, within};
use proptest::prelude::*;

use super::{classed, divide, limit};
use crate::classes::{Class, Classes};
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
    rates_within(reports, &Classes::default())
}

fn rates_within(reports: &[(FlowId, Report)], classes: &Classes) -> Vec<f64> {
    let mut claims: Vec<Claim> = reports.iter().map(|(_, r)| crate::room::claim(r)).collect();
    limit(reports, classes, &mut claims);
    divide(Rate::from_mbps(100), reports, classes, &mut claims);
    let mut out: Vec<Share> = Vec::new();
    within::divide(100e6, &claims, &classed(reports, classes), &mut out);
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

fn class(number: u32, least: u64, most: Rate) -> Class {
    let least = Rate::from_mbps(least);
    Class { number, least, most, each: Rate::UNLIMITED }
}

fn of_class(number: u64, class: u32) -> Owner {
    Owner { class, ..owner(number) }
}

#[test]
fn a_class_has_one_rate_for_all_its_owners_who_share_it_whatever_their_sessions() {
    let classes = Classes::new([class(1, 0, Rate::from_mbps(40))].into());
    let mut reports: Vec<_> = (0..15).map(|_| report(of_class(7, 1), 1.0, 900)).collect();
    reports.extend([report(of_class(8, 1), 1.0, 900), report(owner(9), 1.0, 900)]);
    let rates = rates_within(&reports, &classes);
    assert!((rates[..15].iter().sum::<f64>() - 20.0).abs() < 0.2, "{rates:?}");
    assert_eq!(rates[15..], [20.0, 60.0]);
}

#[test]
fn a_class_is_served_its_guarantee_first_whatever_the_others_do_as_far_as_it_wants_it() {
    let classes = Classes::new([class(1, 60, Rate::UNLIMITED)].into());
    let crowd = |demand| {
        let mut reports: Vec<_> = (2..10).map(|n| report(owner(n), 1.0, 900)).collect();
        reports.extend([report(of_class(1, 1), 2.0, demand), report(of_class(1, 1), 1.0, demand)]);
        rates_within(&reports, &classes)[8..].to_vec()
    };
    assert_eq!(crowd(900), [40.0, 20.0]);
    assert_eq!(crowd(5), [5.0, 5.0]);
}

#[test]
fn each_owner_of_a_class_keeps_to_the_limit_of_each_and_to_its_own() {
    let classes =
        Classes::new([Class { each: Rate::from_mbps(25), ..class(1, 0, Rate::UNLIMITED) }].into());
    let slow = Owner { most: Rate::from_mbps(10), ..of_class(2, 1) };
    let reports = [
        report(of_class(1, 1), 1.0, 900),
        report(of_class(1, 1), 1.0, 900),
        report(slow, 1.0, 900),
        report(owner(3), 1.0, 900),
    ];
    assert_eq!(rates_within(&reports, &classes), [12.5, 12.5, 10.0, 65.0]);
}

fn some_limit() -> impl Strategy<Value = (u64, Rate)> {
    let most = prop_oneof![Just(Rate::UNLIMITED), (1_u64..60).prop_map(Rate::from_mbps)];
    (prop_oneof![Just(0_u64), 1_u64..60], most)
}

proptest! {
    #[test]
    fn within_classes_each_owner_gets_what_one_session_of_its_weight_and_its_demand_would_get(
        sessions in prop::collection::vec((1_u64..6, 1_u8..9, 0_u64..80), 1..20),
        limits in prop::collection::vec(some_limit(), 3),
    ) {
        // Owners 1 and 2 are in class 1, 3 in class 2 and 4 in class 3; 5 in none.
        let class_of = |number: u64| [0, 1, 1, 2, 3, 0][number as usize];
        let table = limits.iter().zip(1..);
        let table = table.map(|(&(least, most), number)| class(number, least, most));
        let classes = Classes::new(table.collect());
        let reports: Vec<_> = sessions
            .iter()
            .map(|&(n, weight, demand)| report(of_class(n, class_of(n)), weight.into(), demand))
            .collect();
        let rates = rates_within(&reports, &classes);
        let of = |number: u64| sessions.iter().zip(&rates).filter(move |(s, _)| s.0 == number);
        let owners: Vec<u64> = (1..6).filter(|&number| of(number).count() > 0).collect();
        let together: Vec<_> = owners
            .iter()
            .map(|&number| {
                let heaviest = of(number).map(|(s, _)| s.1).max().unwrap_or(1);
                let demand = of(number).map(|(s, _)| s.2).sum();
                report(of_class(number, class_of(number)), heaviest.into(), demand)
            })
            .collect();
        let expected = rates_within(&together, &classes);
        for (number, expected) in owners.iter().zip(&expected) {
            let got: f64 = of(*number).map(|(_, rate)| rate).sum();
            prop_assert!((got - expected).abs() < 0.2, "{number}: {got}, not {expected}");
        }
        let sum: f64 = rates.iter().sum();
        prop_assert!(sum < 100.1, "{sum}");
        for (&(_, most), number) in limits.iter().zip(1..) {
            let all = reports.iter().zip(&rates);
            let inside = all.filter(|((_, report), _)| report.owner.class == number);
            let sum: f64 = inside.map(|(_, rate)| rate).sum();
            prop_assert!(sum * 1e6 <= most.as_f64() + 1e5, "{number}: {sum} of {most}");
        }
    }

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
