//! Two sources of which one spoils blocks: over a long path, and when the other has left.

mod common;

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;

use gtp_alloc::Rate;
use gtp_net::engine::TransferEvent;
use gtp_proto::FlowId;
use gtp_store::{BLOCK, Framed};

/// Forwards every datagram, half a round trip later; it ends with the value.
struct LongPath {
    /// What the sink takes for the source.
    sink_side: SocketAddr,
    ended: Arc<AtomicBool>,
}

const ONE_WAY: Duration = Duration::from_millis(30);

impl LongPath {
    fn new(sink: SocketAddr, source: SocketAddr) -> LongPath {
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (to_sink, to_source) = (bind(), bind());
        let sink_side = to_sink.local_addr().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let clone = |socket: &UdpSocket| socket.try_clone().unwrap();
        for (from, via, to) in [
            (clone(&to_sink), clone(&to_source), source),
            (clone(&to_source), clone(&to_sink), sink),
        ] {
            let ended = ended.clone();
            std::thread::spawn(move || carry(&from, &via, to, &ended));
        }
        LongPath { sink_side, ended }
    }
}

impl Drop for LongPath {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn carry(from: &UdpSocket, via: &UdpSocket, to: SocketAddr, ended: &AtomicBool) {
    let (mut buffer, mut under_way) = ([0; 65_536], VecDeque::<(Instant, Vec<u8>)>::new());
    while !ended.load(Ordering::Relaxed) {
        let due = under_way.front().map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let patience = due.unwrap_or(ONE_WAY).max(Duration::from_millis(1));
        from.set_read_timeout(Some(patience)).unwrap();
        if let Ok(len) = from.recv(&mut buffer) {
            under_way.push_back((Instant::now() + ONE_WAY, buffer[..len].to_vec()));
        }
        while under_way.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            if let Some((_, datagram)) = under_way.pop_front() {
                let _ = via.send_to(&datagram, to);
            }
        }
    }
}

fn spoiling(size: u64) -> Box<dyn gtp_store::BlockSource> {
    let twist = |_: u64, out: &mut Framed| {
        out[0] ^= 1;
        Ok(())
    };
    Box::new(Twisted { inner: synthetic(size), twist })
}

fn named(events: &[TransferEvent]) -> Vec<FlowId> {
    let bad = |event: &TransferEvent| match event {
        TransferEvent::BadBlock { flow, .. } => Some(*flow),
        _ => None,
    };
    events.iter().filter_map(bad).collect()
}

/// A slow source spoils what it sends, 60 ms away; the other brings it anew.
#[test]
fn a_slow_source_that_spoils_is_named_over_a_long_path_and_the_other_brings_all() {
    let world = World::with(Rate::from_mbps(2), Rate::UNLIMITED);
    let other = End::new(host_config(Rate::from_mbps(20), Rate::UNLIMITED));
    // So much that the slow source brings a block before the other has brought all.
    let (sink, size) = (world.receives.addr, 24 * BLOCK);
    let paths = [LongPath::new(sink, world.sends.addr), LongPath::new(sink, other.addr)];
    let mut transfer = world.transfer(size);
    let liar = spoiling(size);
    let liar = world.source_from(&world.sends, sink, paths[0].sink_side, liar, &transfer);
    let honest = Box::new(synthetic(size));
    let honest = world.source_from(&other, sink, paths[1].sink_side, honest, &transfer);
    let events = transfer.until_end();
    complete(&events);
    let named = named(&events);
    let flows = transfer.handle.progress().flows;
    assert!(!named.is_empty() && named.iter().all(|&flow| flow == liar.flow), "{flows:?}");
    assert_eq!((flows[1].flow, flows[1].bytes), (honest.flow, size));
    let wire: u64 = flows.iter().map(|flow| flow.wire_bytes).sum();
    assert!(wire < 2 * size, "asked for too often: {flows:?}");
}

/// One source convicts itself; the only other leaves before its path is open.
#[test]
fn a_block_is_given_up_when_those_who_had_not_spoilt_it_are_gone() {
    let world = World::new();
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut transfer = world.transfer(BLOCK);
    let (here, _) =
        world.session_pair(&world.sends, world.receives.addr, deaf.local_addr().unwrap());
    let other = transfer.handle.add_session(here);
    let liar = world.source_of(spoiling(BLOCK), &transfer);
    let events = transfer.until(|event| matches!(event, TransferEvent::BadBlock { .. }));
    assert_eq!(named(&events), [liar.flow]);
    transfer.handle.remove_session(other);
    let events = transfer.until_end();
    let given_up = |event: &TransferEvent| match event {
        TransferEvent::Unobtainable { flow, file: 0, block: 0 } => *flow == liar.flow,
        _ => false,
    };
    assert!(events.iter().any(given_up), "{events:?}");
    assert!(matches!(events.last(), Some(TransferEvent::Suspended)));
}
