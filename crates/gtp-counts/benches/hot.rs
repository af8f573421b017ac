//! How long the hot paths take, by the clock: `cargo bench -p gtp-counts`. The same cases as those
//! whose instructions are counted, and larger ones. Of a data path's packet both ends take their
//! time here, with the AEAD and the copies that stand for the network.

use divan::Bencher;
use divan::counter::ItemsCount;
use gtp_counts::cases::{CASES, Case};

fn main() {
    divan::main();
}

/// The largest cases are sampled a few times only.
#[divan::bench(args = CASES, max_time = 5)]
fn hot(bencher: Bencher<'_, '_>, case: &Case) {
    bencher
        .counter(ItemsCount::new(case.items))
        .with_inputs(case.prepare)
        .bench_local_refs(|work| work());
}
