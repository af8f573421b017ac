//! The fluid model against what must hold of any plan: every byte is moved, rates are max-min fair
//! and time goes on. Drawn plans have hosts with a capacity each way, and sinks with several
//! sources.

use gtp_alloc::Bytes;
use gtp_alloc::fluid::{Course, FluidError, Transfers};
use gtp_alloc::maxmin::{Network, NetworkError, Session, solve};
use proptest::prelude::*;

const MBPS: f64 = 1e6;

/// A transfer: bytes, sources, sink and those before it.
#[derive(Clone, Debug)]
struct Asked {
    bytes: u64,
    sources: Vec<u32>,
    sink: u32,
    after: Vec<u32>,
}

fn transfers(hosts: &[(f64, f64)], asked: &[Asked]) -> Transfers {
    let capacity = hosts.iter().flat_map(|&(out, into)| [out, into]).collect();
    let mut transfers = Transfers::new(capacity).unwrap();
    for Asked { bytes, sources, sink, after } in asked {
        let ways: Vec<[u32; 2]> = sources.iter().map(|s| [2 * s, 2 * sink + 1]).collect();
        let ways: Vec<&[u32]> = ways.iter().map(|way| &way[..]).collect();
        transfers.add(Bytes(*bytes), &ways, after).unwrap();
    }
    transfers
}

fn plans() -> impl Strategy<Value = (Vec<(f64, f64)>, Vec<Asked>)> {
    let capacity = || (1u32..1_000).prop_map(|mbit| f64::from(mbit) * MBPS);
    let hosts = proptest::collection::vec((capacity(), capacity()), 2..7);
    (hosts, 1usize..12).prop_flat_map(|(hosts, count)| {
        let n = hosts.len() as u32;
        let one = move |number: usize| {
            let sources = proptest::collection::btree_set(0..n, 1..=(n as usize).min(3));
            let after = proptest::collection::btree_set(0..number.max(1) as u32, 0..=2);
            let bytes = prop_oneof![1 => Just(0u64), 9 => 1u64..1 << 40];
            (bytes, sources, 0..n, after).prop_map(move |(bytes, sources, sink, after)| Asked {
                bytes,
                sources: sources.into_iter().collect(),
                sink,
                after: after.into_iter().filter(|&before| (before as usize) < number).collect(),
            })
        };
        let all: Vec<_> = (0..count).map(one).collect();
        (Just(hosts), all)
    })
}

/// Bits that the steps move for each transfer.
fn moved(course: &Course) -> Vec<f64> {
    let mut bits = vec![0.0; course.transfers.len()];
    for step in &course.steps {
        for share in &step.shares {
            bits[share.transfer as usize] += share.rate * (step.end_s - step.begin_s);
        }
    }
    bits
}

proptest! {
    #[test]
    fn every_byte_is_moved_in_order_and_the_whole_ends_with_the_last((hosts, asked) in plans()) {
        let course = transfers(&hosts, &asked).run();
        for (one, (run, bits)) in asked.iter().zip(course.transfers.iter().zip(moved(&course))) {
            let (begin, end) = (run.begin_s.unwrap(), run.end_s.unwrap());
            prop_assert!(begin <= end);
            let all = one.bytes as f64 * 8.0;
            prop_assert!((bits - all).abs() <= 1e-9 * all, "{bits} of {all}");
            let ends = one.after.iter().map(|&n| course.transfers[n as usize].end_s.unwrap());
            prop_assert_eq!(begin, ends.fold(0.0, f64::max));
        }
        let total: f64 = asked.iter().map(|one| one.bytes as f64 * 8.0).sum();
        let sum: f64 = moved(&course).iter().sum();
        prop_assert!((total - sum).abs() <= 1e-9 * total);
        let last = course.transfers.iter().map(|run| run.end_s.unwrap()).fold(0.0, f64::max);
        prop_assert_eq!(course.end_s(), Some(last));
    }

    #[test]
    fn steps_follow_each_other_and_each_has_the_max_min_rates((hosts, asked) in plans()) {
        let transfers = transfers(&hosts, &asked);
        let course = transfers.run();
        let mut now = 0.0;
        for step in &course.steps {
            prop_assert_eq!(step.begin_s, now);
            prop_assert!(step.end_s > step.begin_s);
            now = step.end_s;
            let capacity = hosts.iter().flat_map(|&(out, into)| [out, into]).collect();
            let mut network = Network::new(capacity).unwrap();
            for share in &step.shares {
                let one = &asked[share.transfer as usize];
                let uses = [2 * one.sources[share.way as usize], 2 * one.sink + 1];
                let demand = f64::INFINITY;
                network.add(Session { uses: &uses, weight: 1.0, demand }).unwrap();
                let run = course.transfers[share.transfer as usize];
                prop_assert!(run.begin_s.unwrap() <= step.begin_s);
                prop_assert!(run.end_s.unwrap() >= step.end_s);
            }
            let rates: Vec<f64> = step.shares.iter().map(|share| share.rate).collect();
            prop_assert_eq!(rates, solve(&network));
        }
    }

    #[test]
    fn a_host_that_is_twice_as_fast_everywhere_halves_every_time((hosts, asked) in plans()) {
        let slow = transfers(&hosts, &asked).run();
        let fast: Vec<(f64, f64)> = hosts.iter().map(|&(a, b)| (2.0 * a, 2.0 * b)).collect();
        let fast = transfers(&fast, &asked).run();
        for (slow, fast) in slow.transfers.iter().zip(&fast.transfers) {
            let (slow, fast) = (slow.end_s.unwrap(), fast.end_s.unwrap());
            prop_assert!((slow - 2.0 * fast).abs() <= 1e-9 * slow, "{slow} {fast}");
        }
    }
}

fn one(bytes: u64, sources: &[u32], sink: u32, after: &[u32]) -> Asked {
    Asked { bytes, sources: sources.to_vec(), sink, after: after.to_vec() }
}

#[test]
fn what_an_end_frees_goes_to_those_who_go_on() {
    // A source of 600 Mbit/s feeds sinks of 100, 400 and 400: 100, 250 and 250.
    let hosts = [(600.0, 1.0), (1.0, 100.0), (1.0, 400.0), (1.0, 400.0)];
    let hosts = hosts.map(|(out, into)| (out * MBPS, into * MBPS));
    let asked = [one(12_500_000, &[0], 1, &[]), one(31_250_000, &[0], 2, &[]), {
        one(81_250_000, &[0], 3, &[])
    }];
    let course = transfers(&hosts, &asked).run();
    let ends: Vec<f64> = course.transfers.iter().map(|run| run.end_s.unwrap()).collect();
    // The first two move 100 and 250 Mbit in a second; the third has 400 of its 650 left then.
    let wanted = [1.0, 1.0, 2.0];
    assert!(ends.iter().zip(wanted).all(|(e, w)| (e - w).abs() < 1e-9), "{ends:?}");
    assert_eq!(course.steps.len(), 2);
}

#[test]
fn several_sources_add_up_and_a_transfer_waits_for_those_before_it() {
    let hosts = [(100.0, 1.0), (200.0, 1.0), (1.0, 1_000.0)];
    let hosts = hosts.map(|(out, into)| (out * MBPS, into * MBPS));
    let asked = [one(37_500_000, &[0, 1], 2, &[]), one(25_000_000, &[1], 2, &[0])];
    let course = transfers(&hosts, &asked).run();
    let ends: Vec<f64> = course.transfers.iter().map(|run| run.end_s.unwrap()).collect();
    assert!((ends[0] - 1.0).abs() < 1e-9 && (ends[1] - 2.0).abs() < 1e-9, "{ends:?}");
}

#[test]
fn a_transfer_over_no_capacity_never_ends_nor_begins_what_waits_for_it() {
    let asked = [one(1, &[0], 1, &[]), one(0, &[1], 0, &[0]), one(8, &[1], 0, &[])];
    let course = transfers(&[(0.0, 1e6), (1e6, 1e6)], &asked).run();
    let [stuck, waits, other] = &course.transfers[..] else { panic!("three transfers") };
    assert_eq!((stuck.begin_s, stuck.end_s), (Some(0.0), None));
    assert_eq!((waits.begin_s, waits.end_s), (None, None));
    assert!(other.end_s.is_some() && course.end_s().is_none());
}

#[test]
fn what_makes_no_network_is_refused_and_leaves_the_rest_as_it_was() {
    let mut all = Transfers::new(vec![1e6, f64::INFINITY]).unwrap();
    assert!(matches!(Transfers::new(vec![-1.0]), Err(FluidError::Network { .. })));
    assert_eq!(all.add(Bytes(1), &[], &[]), Err(FluidError::NoWay));
    assert_eq!(all.add(Bytes(1), &[&[0]], &[0]), Err(FluidError::After(0)));
    let unbounded = NetworkError::Unbounded { session: 1 };
    let refused = all.add(Bytes(1), &[&[0], &[1]], &[]);
    assert_eq!(refused, Err(FluidError::Network { way: 1, why: unbounded }));
    assert_eq!(all.add(Bytes(125_000), &[&[0, 1]], &[]), Ok(0));
    assert_eq!(all.run().end_s(), Some(1.0));
}
