//! Sessions that have parts of an object: asked for what they offer, and believed as far as the
//! object's own source says what blocks are.

#![allow(clippy::single_range_in_vec_init)] // Lists of ranges of which one has one.

mod common;

use common::*;

use gtp_net::engine::{Brings, SourceOpen, TransferEvent};
use gtp_proto::FlowId;
use gtp_store::{
    BLOCK, BlockSource, Framed, Pattern, RelPath, SourceError, SyntheticSource, TRAILER, Value,
    new_framed,
};

const BLOCKS: u64 = 24;
const SIZE: u64 = BLOCKS * BLOCK - 5;

/// What the blocks of the object are.
fn values() -> Vec<Value> {
    let mut source = synthetic(SIZE);
    let value = |block| {
        let mut framed = new_framed();
        source.load_block(0, block, &mut framed).unwrap();
        *framed.last_chunk::<TRAILER>().unwrap()
    };
    (0..BLOCKS).map(value).collect()
}

/// A session of `sends` that brings what it offers.
fn part(
    world: &World,
    sends: &End,
    (source, brings): (Box<dyn BlockSource>, Brings),
    transfer: &Incoming,
) -> Outgoing {
    let (here, there) = world.session_pair(sends, world.receives.addr, sends.addr);
    let handle = sends.host.open_source(SourceOpen { session: there, source });
    let flow = transfer.handle.add_part_session(here, brings);
    Outgoing { handle, runtime: world.runtime.clone(), flow }
}

/// A source that may be asked for some blocks only.
fn only(allowed: fn(u64) -> bool) -> Box<dyn BlockSource> {
    let twist = move |block, _: &mut Framed| match allowed(block) {
        true => Ok(()),
        false => Err(SourceError::NoSuchBlock { file: 0, block }),
    };
    Box::new(Twisted { inner: synthetic(SIZE), twist })
}

fn brought(transfer: &Incoming, flow: FlowId) -> u64 {
    let flows = transfer.handle.progress().flows;
    flows.iter().find(|of| of.flow == flow).map_or(0, |of| of.bytes)
}

#[test]
fn each_session_is_asked_for_what_it_offers_and_for_nothing_else() {
    let world = World::new();
    let other = End::new(unlimited());
    let mut transfer = world.transfer(SIZE);
    let own = part(&world, &world.sends, (only(|block| block < 10), Brings::Own), &transfer);
    let relay = part(&world, &other, (only(|block| block >= 8), Brings::Others), &transfer);
    transfer.handle.must_have(0, values());
    transfer.handle.offer(own.flow, vec![0..4]);
    transfer.handle.offer(relay.flow, vec![20..BLOCKS, 12..16]);
    let mut here = Vec::new();
    while here.len() < 12 {
        if let Some(TransferEvent::BlockHere { number }) = transfer.next() {
            here.push(number);
        }
    }
    here.sort_unstable();
    assert_eq!(here, (0..4).chain(12..16).chain(20..24).collect::<Vec<_>>());
    // What is offered twice, or beyond the object, does no harm.
    transfer.handle.offer(own.flow, vec![0..8]);
    transfer.handle.offer(relay.flow, vec![8..u64::MAX]);
    complete(&transfer.until_end());
    assert_eq!(brought(&transfer, own.flow), 8 * BLOCK);
    assert_eq!(brought(&transfer, relay.flow), SIZE - 8 * BLOCK);
}

#[test]
fn another_object_that_is_consistent_in_itself_is_found_at_its_first_block_and_comes_anew() {
    let world = World::new();
    let other = End::new(unlimited());
    let mut transfer = world.transfer(SIZE);
    let name = RelPath::new("object").unwrap();
    let lies = Box::new(SyntheticSource::file(name, SIZE, Pattern::Random { seed: 6 }));
    let liar = part(&world, &other, (lies, Brings::Others), &transfer);
    transfer.handle.must_have(0, values());
    transfer.handle.offer(liar.flow, vec![0..BLOCKS]);
    let events = transfer.until(|event| matches!(event, TransferEvent::BadBlock { .. }));
    assert!(!events.iter().any(|event| matches!(event, TransferEvent::BlockHere { .. })));
    let own = Box::new(synthetic(SIZE));
    let own = part(&world, &world.sends, (own, Brings::Own), &transfer);
    transfer.handle.remove_session(liar.flow);
    transfer.handle.offer(own.flow, vec![0..BLOCKS]);
    complete(&transfer.until_end());
    assert_eq!((brought(&transfer, liar.flow), brought(&transfer, own.flow)), (0, SIZE));
}

#[test]
fn a_block_of_a_relay_of_which_nobody_has_said_what_it_is_does_not_count() {
    let world = World::new();
    let mut transfer = world.transfer(SIZE);
    let honest = Box::new(synthetic(SIZE));
    let relay = part(&world, &world.sends, (honest, Brings::Others), &transfer);
    transfer.handle.offer(relay.flow, vec![0..1]);
    let events = transfer.until(|event| matches!(event, TransferEvent::BadBlock { .. }));
    assert!(!events.iter().any(|event| matches!(event, TransferEvent::BlockHere { .. })));
}

#[test]
fn what_a_session_offered_that_is_gone_is_had_from_who_offers_it_next() {
    let world = World::new();
    let other = End::new(unlimited());
    let mut transfer = world.transfer(SIZE);
    let first = part(&world, &world.sends, (Box::new(synthetic(SIZE)), Brings::Own), &transfer);
    transfer.handle.offer(first.flow, vec![0..2]);
    let one_here = |event: &TransferEvent| matches!(event, TransferEvent::BlockHere { .. });
    transfer.until(one_here);
    transfer.handle.remove_session(first.flow);
    let second = part(&world, &other, (Box::new(synthetic(SIZE)), Brings::Own), &transfer);
    transfer.handle.offer(second.flow, vec![0..BLOCKS]);
    complete(&transfer.until_end());
}
