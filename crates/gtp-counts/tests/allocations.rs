//! What a data path takes from the allocator in its steady state: both ends, to the last one.
//!
//! The one test of this file, so that nothing else allocates beside it.

use std::alloc::System;

use gtp_counts::cases::CASES;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Packets of a block and its trailer.
const PACKETS: u64 = (gtp_store::BLOCK + 32).div_ceil(1_400);
/// Runs in which pools fill, and runs that are counted.
const BEFORE: u64 = 20;
const COUNTED: u64 = 40;

#[test]
fn a_data_path_allocates_for_blocks_and_for_intervals_and_never_for_packets() {
    let case = CASES.iter().find(|case| case.name == "packet/sender").unwrap();
    let mut work = (case.prepare)();
    (0..BEFORE).for_each(|_| work());
    let region = Region::new(ALLOCATOR);
    (0..COUNTED).for_each(|_| work());
    let stats = region.change();
    let taken = (stats.allocations + stats.reallocations) as f64;
    let packets = COUNTED * case.items;
    let blocks = packets as f64 / PACKETS as f64;
    eprintln!("{taken} for {packets} packets, {:.3} a block: {stats:?}", taken / blocks);
    assert!(taken < 3.1 * blocks, "{taken} for {blocks} blocks: {stats:?}");
}
