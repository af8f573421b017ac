//! Claims about comparisons: distances of drawn curves, phases, the simulated half; without root.

use super::*;
use crate::lab::{Branch, Shape};

fn two(rates: [&[f64]; 2]) -> Trajectories {
    Trajectories { bin: 0.1, rates: rates.map(<[f64]>::to_vec).into() }
}

#[test]
fn equal_trajectories_have_no_distance() {
    let same = two([&[1.0, 2.0, 3.0], &[0.0, 0.0, 0.0]]);
    let none = Distance { sessions: vec![0.0, 0.0], all: 0.0, sum: 0.0 };
    assert_eq!(between(&same, &same).unwrap(), none);
}

#[test]
fn a_distance_is_the_mean_difference_by_the_mean_rate() {
    // The first session differs by 0, 2 and 4 around a mean of 9 / 3, the second never meets.
    let one = two([&[2.0, 4.0, 6.0], &[4.0, 0.0, 0.0]]);
    let other = two([&[2.0, 2.0, 2.0], &[0.0, 4.0, 0.0]]);
    let apart = between(&one, &other).unwrap();
    assert_eq!(apart.sessions, [6.0 / 9.0, 2.0]);
    assert_eq!(apart.all, 14.0 / 13.0);
    // Sums: 6, 4, 6 against 2, 6, 2.
    assert_eq!(apart.sum, 10.0 / 13.0);
    assert_eq!(between(&other, &one).unwrap(), apart);
}

#[test]
fn trajectories_of_different_runs_are_not_compared() {
    let one = two([&[1.0, 1.0], &[1.0, 1.0]]);
    let shorter = two([&[1.0], &[1.0, 1.0]]);
    let coarser = Trajectories { bin: 0.2, ..one.clone() };
    assert!(between(&one, &shorter).is_err());
    assert!(between(&one, &coarser).is_err());
}

#[test]
fn phases_lie_between_starts_and_stops() {
    let scenario = Scenario::named("one-by-one", "100ms", Law::Grant).unwrap();
    let phases = scenario.phases();
    assert_eq!(phases.len(), 9);
    assert_eq!(phases[0].what, "s1 joins");
    assert_eq!((phases[4].span, phases[4].live.len()), ((12.0, 15.0), 5));
    assert_eq!((phases[8].what.as_str(), phases[8].live.as_slice()), ("s4 leaves", &[4][..]));
    assert_eq!(scenario.shares(&phases[1]).unwrap(), [315e6; 2]);
    let together = Scenario::named("together", "100ms", Law::Grant).unwrap();
    assert_eq!(together.phases().len(), 1);
    assert!(Scenario::named("none", "100ms", Law::Grant).is_err());
}

#[test]
fn every_named_comparison_is_there_and_others_are_not() {
    for name in NAMES.iter().chain(&["one-20", "one-1"]) {
        let scenario = Scenario::named(name, "100ms", Law::Grant).unwrap();
        let phases = scenario.phases();
        let shares = phases.iter().map(|phase| scenario.shares(phase).unwrap());
        assert!(shares.flatten().all(|share| share > 0.0), "{name}");
    }
    for name in ["one-", "one-x", "one--1", "four"] {
        assert!(Scenario::named(name, "100ms", Law::Grant).is_err(), "{name}");
    }
}

/// Two sessions to a sink of 9 Mbit/s, the second one second later.
fn small() -> Scenario {
    Scenario {
        name: "small".into(),
        net: Net::Star(Shape {
            access: ("10Mbit".into(), "100ms".into()),
            middle: None,
            branches: vec![Branch::rtt(10.0), Branch::rtt(40.0)],
        }),
        capacity: 9e6,
        law: Law::Grant,
        path: PathUse::default(),
        lives: vec![(0.0, 3.0), (1.0, 4.0)],
    }
}

#[test]
fn the_simulated_world_is_that_of_the_network_file() {
    let scenario = small();
    let run = simulate(&scenario, &[0.0, 0.0]).unwrap();
    let settling = run.settling(&scenario);
    assert!(settling.iter().all(|s| *s < 0.7), "{settling:?}");
    assert_eq!(run.loss(&scenario), 0.0);
    // A session is open after one round trip, and has data after another.
    let start_up = run.start_up(&scenario);
    assert!(start_up[0] > 0.02 && start_up[1] > start_up[0] + 0.05, "{start_up:?}");
    // What is under way at a close still comes, for a round trip of 10 ms at 4.5 Mbit/s; but the
    // last 12,000 bytes, which are not waited for, took 21 ms.
    let ends = run.end(&scenario);
    assert!((-0.021..=0.01).contains(&ends[0]), "{ends:?}");
    let again = simulate(&scenario, &[0.0, 0.0]).unwrap();
    let curves = |run: &Run| run.trajectories(&scenario);
    assert_eq!(between(&curves(&run), &curves(&again)).unwrap().all, 0.0);
    assert_eq!(run.hash, again.hash);
}

#[test]
fn a_delayed_start_moves_the_first_data_by_the_delay() {
    let scenario = small();
    let [sooner, later] =
        [0.0, 0.2].map(|delay| simulate(&scenario, &[0.0, delay]).unwrap().start_up(&scenario));
    assert_eq!(sooner[0], later[0]);
    assert!((later[1] - sooner[1] - 0.2).abs() < 0.011, "{sooner:?} {later:?}");
}

#[test]
fn a_page_shows_every_session_in_both_worlds() {
    let scenario = small();
    let run = || simulate(&scenario, &[0.0, 0.0]).unwrap();
    let runs = Runs { real: [run(), run()], planned: run(), aligned: [run(), run()] };
    let page = runs.page(&scenario).unwrap();
    let ids: Vec<_> = page.figures().map(|f| (f.id.as_str(), f.series.len())).collect();
    assert_eq!(ids, [("sessions", 5), ("s1", 5), ("s2", 5)]);
    let numbers = runs.to_json(&scenario).unwrap();
    assert_eq!(numbers["distance_of_two_real_runs"]["all"], 0.0);
    assert_eq!(numbers["settling_aligned_minus_real_s"][1][2], 0.0);
}

/// Two sources to two sinks of 9 Mbit/s: three sessions, of which the first two share a source and
/// the last two a sink.
#[test]
fn sessions_of_a_mesh_have_their_shares_in_the_simulated_world() {
    let access = ("10Mbit".into(), "100ms".into());
    let mesh = Mesh { access, rtts_ms: vec![10.0, 40.0], pairs: vec![(0, 0), (0, 1), (1, 1)] };
    let scenario = Scenario {
        name: "mesh".into(),
        net: Net::Mesh(mesh),
        capacity: 9e6,
        law: Law::Grant,
        path: PathUse::default(),
        lives: vec![(0.0, 4.0), (0.0, 4.0), (0.0, 2.0)],
    };
    let phases = scenario.phases();
    assert_eq!(scenario.shares(&phases[0]).unwrap(), [4.5e6; 3]);
    let run = simulate(&scenario, &[0.0; 3]).unwrap();
    let settling = run.settling(&scenario);
    assert!(settling.iter().all(|s| *s < 0.7), "{settling:?}");
    let rates = run.trajectories(&scenario).rates;
    assert!(rates[2][..20].iter().sum::<f64>() > rates[2][20..].iter().sum::<f64>() * 10.0);
    let all = Scenario::named("fifteen", "100ms", Law::Grant).unwrap();
    let shares = all.shares(&all.phases()[0]).unwrap();
    assert!((shares.iter().sum::<f64>() - 63e6 * 11.0 / 3.0).abs() < 1.0, "thesis, Table IX.2");
}
