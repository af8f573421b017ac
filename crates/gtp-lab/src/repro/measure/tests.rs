//! What is read off runs that are small enough to be reckoned by hand.

use super::*;

fn run() -> Trajectory {
    Trajectory {
        label: String::new(),
        end: 10.0,
        rates: vec![vec![(0.0, 0.0), (1.0, 2e6), (3.0, 4e6)], vec![(0.0, 4e6)]],
        goals: vec![(0.0, vec![4e6, 4e6]), (5.0, vec![4e6, 0.0])],
        load: vec![(0.0, 0.5), (1.0, 1.25)],
        standing: vec![(3.0, 0.001), (4.0, 0.004), (5.0, 0.002), (8.5, 0.003), (10.0, 0.005)],
        bounds: vec![vec![(0.0, f64::INFINITY), (7.0, 2e6)], vec![(0.0, 1e6)]],
        timeouts: vec![vec![(2.0, 1.0), (6.0, 3.0)], Vec::new()],
        counts: vec![(5.0, 90.0, 10.0), (10.0, 160.0, 40.0)],
        shared: vec![(0.0, 1.0), (4.0, 0.5), (8.0, 0.75)],
        done: vec![9.0, 4.0],
        lost: 0.0,
        losses: Vec::new(),
        longest: 1.0,
        unexplained: f64::NAN,
        capacity: 8e6,
    }
}

fn measure(read: &str, more: &str) -> Measure {
    let text = format!("name = 'x'\nread = {{ {read} }}\n{more}");
    toml::from_str(&text).expect("a measure")
}

fn measured(read: &str) -> Vec<f64> {
    measure(read, "").of(&run()).expect("something to read")
}

#[test]
fn means_are_areas_over_time() {
    assert_eq!(measured("what = 'mean', from = 0, until = 4"), [2.0, 4.0]);
    assert_eq!(measured("what = 'share', from = 2, until = 4"), [0.75, 1.0]);
    assert_eq!(measured("what = 'largest', from = 0, until = 3"), [2.0, 4.0]);
}

#[test]
fn a_timer_is_counted_from_the_spans_beginning_to_its_end() {
    assert_eq!(measured("what = 'timeouts', from = 2, until = 6"), [2.0, 0.0]);
    assert_eq!(measured("what = 'timeouts', from = 0, until = 5"), [1.0, 0.0]);
}

#[test]
fn what_was_lost_and_shared_is_of_the_span() {
    assert_eq!(measured("what = 'lost-in', from = 0, until = 5"), [0.1]);
    assert_eq!(measured("what = 'lost-in', from = 5, until = 10"), [0.3]);
    assert_eq!(measured("what = 'shared', from = 2, until = 10"), [0.5, 0.6875]);
}

#[test]
fn times_are_of_the_first_and_of_the_last_crossing() {
    assert_eq!(measured("what = 'reach', part = 0.5"), [1.0, 0.0]);
    assert_eq!(measured("what = 'near', part = 0.5"), [1.0]);
    // The second session is gone from 5 s on and still sends.
    assert_eq!(measured("what = 'stay-near', part = 0.5"), [f64::INFINITY]);
    assert_eq!(measured("what = 'settle', band = 0.5"), [1.0]);
    assert_eq!(measured("what = 'settle', band = 0.1"), [3.0]);
    assert_eq!(measured("what = 'done'"), [9.0]);
}

#[test]
fn distances_are_parts_of_the_first() {
    assert_eq!(measured("what = 'distance', at = [0, 1, 3, 5]"), [1.0, 0.5, 0.0, 1.0]);
    assert_eq!(measured("what = 'distance-means'")[..4], [1.0, 0.5, 0.5, 0.0]);
    assert_eq!(measured("what = 'worst', from = 1, until = 4"), [0.5]);
}

#[test]
fn lemmas_are_read_off_starts_and_windows() {
    assert_eq!(measured("what = 'kept'"), [0.0]);
    let mut falling = run();
    falling.rates[1].push((2.5, 3.9e6));
    assert_eq!(measure("what = 'kept'", "").of(&falling), Ok(vec![0.0125]));
    assert_eq!(measured("what = 'window-falls'"), [0.0]);
    falling.rates[0] = vec![(0.0, 1e6), (4.1, 0.5e6), (5.5, 2e6), (7.0, 1e6), (8.5, 9e5)];
    assert_eq!(measure("what = 'window-falls'", "").of(&falling), Ok(vec![2.0]));
}

#[test]
fn phases_end_where_somebody_leaves() {
    assert_eq!(measured("what = 'phase-share', last = 2"), [1.0, 1.0, 1.0]);
    assert_eq!(measured("what = 'phase-worst', last = 4"), [0.5, 0.0]);
    assert_eq!(measured("what = 'phase-share', last = 2, phases = 'joins'"), [1.0, 1.0]);
    assert_eq!(measured("what = 'phase-share', last = 2, phases = 'leaves'"), [1.0]);
    let none = measure("what = 'phase-share', last = 2, phases = 'leaves-but-last'", "");
    assert!(none.of(&run()).is_err(), "the last is the only one");
    assert_eq!(measured("what = 'overload'"), [1.25]);
    assert_eq!(measured("what = 'together', mbps = 4, band = 0.05, sessions = 2"), [7.0]);
}

#[test]
fn what_holds_a_session_back_is_read_in_phases() {
    assert_eq!(measured("what = 'phase-queue', last = 2"), [2.0, 3.0]);
    assert_eq!(measured("what = 'phase-queue', last = 2, phases = 'but-last'"), [2.0]);
    assert_eq!(measured("what = 'phase-share', last = 2, phases = 'but-last'"), [1.0, 1.0]);
    let mut short = run();
    short.rates[0] = vec![(0.0, 2e6)];
    let held = measure("what = 'phase-held', last = 2, band = 0.05", "");
    assert_eq!(held.of(&short), Ok(vec![f64::INFINITY, 0.5]));
    assert!(held.of(&run()).is_err(), "nobody is short of anything");
    let at_bound = measure("what = 'phase-at-bound', last = 2, band = 0.05", "");
    assert_eq!(at_bound.of(&short), Ok(vec![0.0, 1.0]));
}

#[test]
fn sessions_that_are_not_there_are_refused() {
    let mean = "what = 'mean', from = 0, until = 4";
    assert_eq!(measure(mean, "sessions = [2]").of(&run()), Ok(vec![4.0]));
    for wrong in ["sessions = [0]", "sessions = [3]", "sessions = [1, 9]"] {
        assert!(measure(mean, wrong).of(&run()).is_err(), "{wrong}");
    }
    assert!(measure("what = 'phase-share', last = 2", "sessions = [1]").of(&run()).is_err());
    assert!(measure("what = 'done'", "sessions = [1]").of(&run()).is_err());
}

#[test]
fn a_fold_over_nothing_is_no_number() {
    for fold in ["least", "most", "sum", "each"] {
        let none = measure("what = 'distance', at = []", &format!("fold = '{fold}'"));
        assert!(none.of(&run()).is_err(), "{fold} of nothing");
        if fold != "each" {
            let none = measure("what = 'unexplained'", &format!("fold = '{fold}'"));
            assert!(none.of(&run()).expect("one")[0].is_nan(), "{fold} of no number");
        }
    }
}

/// Each reading with a run that lacks what it reads.
#[test]
fn what_was_not_there_cannot_be_read() {
    let without = |change: fn(&mut Trajectory)| {
        let mut run = run();
        change(&mut run);
        run
    };
    let cases = [
        ("what = 'overload'", without(|run| run.load.clear())),
        ("what = 'done'", without(|run| run.done.clear())),
        ("what = 'phase-queue', last = 1", without(|run| run.standing.clear())),
        ("what = 'phase-held', last = 1, band = 0", without(|run| run.bounds.clear())),
        ("what = 'phase-at-bound', last = 1, band = 0", without(|run| run.bounds.clear())),
        ("what = 'timeouts', from = 0, until = 9", without(|run| run.timeouts.clear())),
        ("what = 'lost-in', from = 0, until = 4", run()),
        ("what = 'shared', from = 0, until = 9", without(|run| run.shared.clear())),
        ("what = 'worst', from = 6, until = 9", without(|run| run.goals[1].1 = vec![0.0; 2])),
        ("what = 'settle', band = 0.5", without(|run| run.goals[1].1 = vec![0.0; 2])),
        ("what = 'kept'", without(|run| run.rates[1][0].1 = 1e6)),
        ("what = 'near', part = 0.5", without(|run| run.rates[0][0].1 = 4e6)),
        ("what = 'window-falls'", without(|run| run.goals[0].1 = vec![0.0; 2])),
        ("what = 'mean', from = 0, until = 11", run()),
        ("what = 'mean', from = 4, until = 4", run()),
        ("what = 'phase-share', last = 11", run()),
        ("what = 'distance', at = [11]", run()),
        ("what = 'highest', count = 3, from = 0, until = 1", run()),
        ("what = 'together', mbps = 4, band = 0.05, sessions = 0", run()),
    ];
    for (reading, run) in cases {
        assert!(measure(reading, "").of(&run).is_err(), "{reading}");
    }
}
