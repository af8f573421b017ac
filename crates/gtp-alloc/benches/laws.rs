//! How long the laws and the oracle take: `cargo bench -p gtp-alloc`.
//!
//! Oracle networks have 10^5 nodes, half sources and half sinks, and random pairs. Ten million
//! sessions need about 1.5 GB.

use divan::{Bencher, counter::ItemsCount};
use gtp_alloc::Rate;
use gtp_alloc::endnode::{Params, expected_rates};
use gtp_alloc::grant::{Claim, Held, grants, shares};
use gtp_alloc::maxmin::{Network, Session, solve};

fn main() {
    divan::main();
}

const NODES: u32 = 100_000;
const SIZES: [usize; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
const SESSIONS: [usize; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// In 0..1, from a linear congruence with Knuth's MMIX constants.
fn draws() -> impl FnMut() -> f64 {
    let mut state = 1u64;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Demands,
    Weights,
}

fn network(sessions: usize, kind: Kind) -> Network {
    let mut draw = draws();
    let capacity = (0..NODES).map(|_| 1e8 + 1e10 * draw()).collect();
    let mut network = Network::new(capacity).unwrap();
    // Demands about as large as the fair parts, for every second session.
    let fair = 1e10 * f64::from(NODES) / sessions as f64;
    let half = f64::from(NODES / 2);
    for _ in 0..sessions {
        let uses = [(half * draw()) as u32, (half + half * draw()) as u32];
        let (weight, demand) = match kind {
            Kind::Plain => (1.0, f64::INFINITY),
            Kind::Demands if draw() < 0.5 => (1.0, fair * draw()),
            Kind::Demands => (1.0, f64::INFINITY),
            Kind::Weights => (0.1 + 9.9 * draw(), fair * draw()),
        };
        network.add(Session { uses: &uses, weight, demand }).unwrap();
    }
    network
}

fn bench_oracle(bencher: Bencher<'_, '_>, n: usize, kind: Kind) {
    let network = network(n, kind);
    bencher.counter(ItemsCount::new(n)).bench_local(|| solve(&network));
}

#[divan::bench(args = SIZES, sample_count = 7, sample_size = 1)]
fn oracle(bencher: Bencher<'_, '_>, n: usize) {
    bench_oracle(bencher, n, Kind::Plain);
}

#[divan::bench(args = SIZES, sample_count = 7, sample_size = 1)]
fn oracle_with_demands(bencher: Bencher<'_, '_>, n: usize) {
    bench_oracle(bencher, n, Kind::Demands);
}

#[divan::bench(args = SIZES, sample_count = 7, sample_size = 1)]
fn oracle_with_weights_and_demands(bencher: Bencher<'_, '_>, n: usize) {
    bench_oracle(bencher, n, Kind::Weights);
}

#[divan::bench(args = SESSIONS)]
fn grant_shares(bencher: Bencher<'_, '_>, n: usize) {
    let mut draw = draws();
    let claims: Vec<Claim> = (0..n)
        .map(|_| Claim { weight: 0.1 + 9.9 * draw(), bound: 2e10 * draw() / n as f64 })
        .collect();
    let mut out = Vec::new();
    bencher.counter(ItemsCount::new(n)).bench_local(|| shares(1e10, &claims, &mut out));
}

#[divan::bench(args = SESSIONS)]
fn grant_commitments(bencher: Bencher<'_, '_>, n: usize) {
    let mut draw = draws();
    let held: Vec<Held> = (0..n)
        .map(|_| {
            let committed = 1e10 * draw() / n as f64;
            Held { target: 1e10 * draw() / n as f64, committed, newest: committed * draw() }
        })
        .collect();
    let mut out = Vec::new();
    bencher.counter(ItemsCount::new(n)).bench_local(|| grants(1e10, &held, &mut out));
}

#[divan::bench(args = SESSIONS)]
fn endnode_law(bencher: Bencher<'_, '_>, n: usize) {
    let mut draw = draws();
    let measured: Vec<Rate> = (0..n).map(|_| Rate::from_f64(2e10 * draw() / n as f64)).collect();
    let mut expected = vec![Rate::ZERO; n];
    let capacity = Rate::from_f64(1e10);
    bencher
        .counter(ItemsCount::new(n))
        .bench_local(|| expected_rates(&Params::DEFAULT, capacity, &measured, &mut expected));
}
