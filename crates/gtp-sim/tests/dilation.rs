//! Time dilation (thesis, X.3.A): hosts whose clocks run slow, on links that are as much slower and
//! longer, do what hosts on the network do that they stand for.
//!
//! Nothing here knows how a host keeps its time. A world is run as it is and dilated, and what
//! arrived of each session is compared, times divided and rates multiplied by the factor.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::LinkSpec;
use gtp_proto::Law;
use gtp_sim::packet::{ClockSpec, HostSpec, SessionSpec, World};

/// What hosts state, and see.
const CAPACITY: Rate = Rate::from_mbps(1_000);
const BIN: Span = Span::from_millis(50);
const BINS: usize = 50;

/// Clocks of the hosts, against the links: dilated as the links are, or not at all.
#[derive(Clone, Copy)]
enum Clocks {
    Slowed,
    True,
}

/// What arrives of each of three sessions, which begin one after the other, in Mbit/s by bins of
/// the hosts' time: over a link of 1,100 Mbit/s and round trips of 23, 45 and 67 ms that are
/// dilated by the factor. Nothing falls on the end of an interval: clocks count whole nanoseconds,
/// so that it would be before it in one run and after it in another.
fn arrivals(law: Law, factor: u64, clocks: Clocks) -> Vec<Vec<f64>> {
    let mut world = World::new(1);
    world.trace_every(BIN * factor).unwrap();
    let slow = -(1_000_000_000 - 1_000_000_000 / factor as i64) as i32;
    let drift_ppb = match clocks {
        Clocks::Slowed => slow,
        Clocks::True => 0,
    };
    let host = |out: Rate, in_: Rate| HostSpec {
        out,
        in_,
        interval: Some(Span::from_millis(20)),
        clock: ClockSpec { offset: Some(Span::from_secs(1)), drift_ppb },
        ..HostSpec::default()
    };
    let sink = world.add_host(host(Rate::UNLIMITED, CAPACITY));
    let edge = world.add_switch();
    let rate = Rate::from_mbps(1_100).scale(1.0 / factor as f64);
    let narrow = LinkSpec { rate, queue: Bytes(2 << 20), ..LinkSpec::default() };
    world.connect(edge, sink, narrow).unwrap();
    world.connect(sink, edge, LinkSpec::default()).unwrap();
    for k in 0..3 {
        let source = world.add_host(host(CAPACITY, Rate::UNLIMITED));
        let delay = Span::from_micros(11_300 * (k + 1)) * factor;
        world.connect_both(source, edge, LinkSpec { delay, ..LinkSpec::default() }).unwrap();
        let start = Time::ZERO + Span::from_micros(506_700 * k) * factor;
        world.add_session(SessionSpec { law, start, ..SessionSpec::new(source, sink) }).unwrap();
    }
    world.run_until(Time::ZERO + BIN * factor * BINS as u64);
    let trace = world.trace();
    let of = |session: usize, bin: usize| {
        trace.mean_rate(session, bin, bin + 1).as_f64() * factor as f64 / 1e6
    };
    (0..3).map(|session| (0..BINS).map(|bin| of(session, bin)).collect()).collect()
}

/// The largest difference of what arrives in any bin, as a part of the capacity.
fn farthest(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let bins = a.iter().flatten().zip(b.iter().flatten());
    bins.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) * 1e6 / CAPACITY.as_f64()
}

#[test]
fn a_dilated_run_is_the_run_that_it_stands_for() {
    for law in [Law::EndNode { alpha: 0.1, beta: 0.2 }, Law::Grant] {
        let plain = arrivals(law, 1, Clocks::Slowed);
        assert!(plain[0][9] > 500.0, "the first has climbed before the second comes: {plain:?}");
        for factor in [10, 100] {
            let dilated = arrivals(law, factor, Clocks::Slowed);
            let off = farthest(&plain, &dilated);
            assert!(off < 0.02, "{law:?}, {factor}: {off} of the capacity; {plain:?} {dilated:?}");
        }
    }
}

#[test]
fn a_slower_network_under_clocks_that_are_not_slowed_is_another_run() {
    let law = Law::EndNode { alpha: 0.1, beta: 0.2 };
    let plain = arrivals(law, 1, Clocks::Slowed);
    let hasty = arrivals(law, 10, Clocks::True);
    assert!(farthest(&plain, &hasty) > 0.2);
}
