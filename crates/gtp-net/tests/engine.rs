//! The engine over real loopback sockets: whole transfers, and what must not break them.

mod common;

use common::*;

use gtp_net::engine::TransferEvent;

#[test]
fn an_object_arrives_whole_and_verified() {
    let world = World::new();
    let mut transfer = world.transfer(20 << 20);
    let source = world.source(20 << 20, &transfer);
    let events = transfer.until_end();
    assert_eq!(complete(&events).bytes_written, 20 << 20);
    assert!(events.iter().any(|event| matches!(event, TransferEvent::AllBlocks)));
    source.until_closed();
}
