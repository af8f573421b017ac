//! How long the hot paths take, by the clock: `cargo bench -p gtp-counts`. The same cases as those
//! whose instructions are counted.

use divan::Bencher;
use divan::counter::ItemsCount;
use gtp_counts::cases::{CASES, Case};

fn main() {
    divan::main();
}

#[divan::bench(args = CASES)]
fn hot(bencher: Bencher<'_, '_>, case: &Case) {
    bencher
        .counter(ItemsCount::new(case.items))
        .with_inputs(case.prepare)
        .bench_local_refs(|work| work());
}
