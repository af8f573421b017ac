//! What a transfer takes from the allocator once it runs: both hosts, all their threads.
//!
//! The one test of this file, so that nothing else allocates beside it.

mod common;

use std::alloc::System;
use std::sync::{Arc, Mutex};

use common::*;
use gtp_alloc::Rate;
use gtp_store::{
    BLOCK, BlockSink, BlockSource as _, DiscardSink, Finished, Have, SinkError, Value, Window,
    Written,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Blocks before the count, in which pools fill, and blocks that are counted.
const BEFORE: u64 = 300;
const COUNTED: u64 = 1_200;
/// Packets of a block and its trailer.
const PACKETS: u64 = (BLOCK + 32).div_ceil(1_400);

/// Drops what it gets, and says what was allocated between two of its blocks.
struct Counting {
    inner: DiscardSink,
    written: u64,
    region: Option<Region<'static, System>>,
    counted: Arc<Mutex<Option<Stats>>>,
}

impl BlockSink for Counting {
    fn have(&self) -> &[Have] {
        self.inner.have()
    }

    fn window(&self) -> Window {
        self.inner.window()
    }

    fn write_block(&mut self, file: u32, block: u64, framed: &[u8]) -> Result<Written, SinkError> {
        self.written += 1;
        if self.written == BEFORE {
            self.region = Some(Region::new(ALLOCATOR));
        }
        if self.written == BEFORE + COUNTED
            && let Some(region) = self.region.take()
        {
            *self.counted.lock().unwrap() = Some(region.change());
        }
        self.inner.write_block(file, block, framed)
    }

    fn checkpoint(&mut self) -> Result<(), SinkError> {
        self.inner.checkpoint()
    }

    fn finish_file(&mut self, file: u32, root: Option<Value>) -> Result<Option<Value>, SinkError> {
        self.inner.finish_file(file, root)
    }

    fn finish(&mut self) -> Result<Finished, SinkError> {
        self.inner.finish()
    }

    fn suspend(&mut self) -> Result<(), SinkError> {
        self.inner.suspend()
    }
}

#[test]
fn a_running_transfer_allocates_less_than_once_in_twenty_packets() {
    let size = (BEFORE + COUNTED + 100) * BLOCK;
    let world = World::with(Rate::UNLIMITED, Rate::from_mbps(2_000));
    let manifest = synthetic(size).manifest().clone();
    let counted = Arc::new(Mutex::new(None));
    let sink = Counting {
        inner: DiscardSink::new(manifest.clone()),
        written: 0,
        region: None,
        counted: counted.clone(),
    };
    let mut transfer = world.transfer_into(Box::new(sink), manifest);
    let _source = world.source(size, &transfer);
    complete(&transfer.until_end());
    let stats = counted.lock().unwrap().expect("enough blocks came");
    let taken = (stats.allocations + stats.reallocations) as u64;
    let packets = COUNTED * PACKETS;
    eprintln!("{taken} in {packets} packets, {} bytes", stats.bytes_allocated);
    assert!(taken * 20 < packets, "{taken} allocations in {packets} packets: {stats:?}");
}
