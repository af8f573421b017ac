//! The engine over real loopback sockets: whole transfers, and what must not break them.

mod common;

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use common::relay::{Relay, dying_in_mid_block, faithful, narrow, vicious};
use common::*;

use gtp_alloc::{Bytes, Rate};
use gtp_net::engine::{HostConfig, SourceEvent, SourceOpen, TransferEvent};
use gtp_proto::limits::UNIT_MINIMUM;
use gtp_proto::{FlowId, Role};
use gtp_store::{
    BLOCK, BlockSource, DiscardSink, Fault, Framed, OrderedWriterSink, SinkError, SourceError,
};

const MIB: u64 = 1 << 20;

fn is_lost(event: &TransferEvent, of: FlowId) -> bool {
    matches!(event, TransferEvent::Lost { flow, .. } if *flow == of)
}

#[test]
fn an_object_arrives_whole_and_verified() {
    let world = World::new();
    let mut transfer = world.transfer(20 * MIB);
    let source = world.source(20 * MIB, &transfer);
    let events = transfer.until_end();
    assert_eq!(complete(&events).bytes_written, 20 * MIB);
    assert!(events.iter().any(|event| matches!(event, TransferEvent::AllBlocks)));
    source.until_closed();
}

#[test]
fn two_hundred_megabytes_arrive_and_progress_says_so() {
    let world = World::with(Rate::UNLIMITED, Rate::from_mbps(4_000));
    let mut transfer = world.transfer(200_000_000);
    let _source = world.source(200_000_000, &transfer);
    let finished = complete(&transfer.until_end());
    assert_eq!(finished.bytes_written, 200_000_000);
    let progress = transfer.handle.progress();
    assert_eq!((progress.bytes, progress.total), (200_000_000, 200_000_000));
    assert_eq!(progress.flows[0].bytes, 200_000_000);
    assert!(progress.flows[0].wire_bytes > 200_000_000);
}

#[test]
fn an_empty_object_and_tiny_files_need_no_care() {
    let world = World::new();
    let mut transfer = world.transfer(0);
    assert_eq!(complete(&transfer.until_end()).bytes_written, 0);
    let sizes = [0, 1, 5, 0, 300_000, BLOCK, BLOCK + 1, 1_400, 17];
    let tree = || Box::new(gtp_store::SyntheticSource::dir(&sizes, gtp_store::Pattern::Zeros));
    let manifest = tree().manifest().clone();
    let sink = Box::new(DiscardSink::new(manifest.clone()));
    let mut transfer = world.transfer_into(sink, manifest);
    let _source = world.source_of(tree(), &transfer);
    let (mut done, mut named) = (Vec::new(), Vec::new());
    loop {
        match transfer.next().expect("events go on to the end") {
            TransferEvent::FileDone { file, root } => done.push((file, root.is_some())),
            TransferEvent::AllBlocks => {
                transfer.handle.finish_files(vec![(4, None), (6, None)]);
            }
            TransferEvent::Complete(finished) => {
                assert_eq!(finished.bytes_written, sizes.iter().sum::<u64>());
                break;
            }
            TransferEvent::FileNamed { file, .. } => named.push(file),
            TransferEvent::PathOpen { .. } => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
    named.sort_unstable();
    assert_eq!(named, [1, 2, 4, 5, 6, 7, 8]);
    done.sort_unstable();
    assert_eq!(done, [1, 2, 4, 5, 6, 7, 8].map(|file| (file, true)));
}

#[test]
fn a_file_that_one_source_loses_comes_from_another_and_one_that_all_lose_is_given_up() {
    let sizes = [5, 3 * BLOCK, 17, 2_000];
    for honest in [true, false] {
        let world = World::new();
        let tree = || gtp_store::SyntheticSource::dir(&sizes, gtp_store::Pattern::Zeros);
        let manifest = tree().manifest().clone();
        let path = manifest.entries[1].path.clone();
        let sink = Box::new(DiscardSink::new(manifest.clone()));
        let mut transfer = world.transfer_into(sink, manifest);
        // Only the long file has a second block.
        let losing = |loses: bool, path: gtp_store::RelPath| Twisted {
            inner: tree(),
            twist: move |block: u64, _: &mut Framed| match block {
                1 if loses => Err(SourceError::Changed { path: path.clone() }),
                _ => Ok(()),
            },
        };
        let _first = world.source_of(Box::new(losing(true, path.clone())), &transfer);
        let _second = world.source_of(Box::new(losing(!honest, path)), &transfer);
        let mut given_up = Vec::new();
        let finished = loop {
            match transfer.next().expect("events go on to the end") {
                TransferEvent::GivenUp { file, why: None } => given_up.push(file),
                TransferEvent::AllBlocks if honest => {
                    transfer.handle.finish_files(vec![(1, None)]);
                }
                TransferEvent::Complete(finished) => break finished,
                TransferEvent::PathOpen { .. }
                | TransferEvent::FileDone { .. }
                | TransferEvent::FileNamed { .. }
                | TransferEvent::AllBlocks => {}
                other => panic!("unexpected: {other:?}"),
            }
        };
        let expected = if honest { (4, vec![]) } else { (3, vec![1]) };
        assert_eq!((finished.files_written, given_up), expected);
    }
}

#[test]
fn three_sources_share_one_object_and_none_is_asked_twice() {
    let world = World::with(Rate::UNLIMITED, Rate::from_mbps(600));
    let others = [End::new(unlimited()), End::new(unlimited())];
    let mut transfer = world.transfer(60 * MIB);
    let _first = world.source(60 * MIB, &transfer);
    let _more: Vec<Outgoing> = others
        .iter()
        .map(|end| {
            let object = Box::new(synthetic(60 * MIB));
            world.source_from(end, world.receives.addr, end.addr, object, &transfer)
        })
        .collect();
    complete(&transfer.until_end());
    let flows = transfer.handle.progress().flows;
    assert_eq!(flows.iter().map(|flow| flow.bytes).sum::<u64>(), 60 * MIB);
    assert!(flows.iter().all(|flow| flow.bytes > 6 * MIB), "{flows:?}");
    let twice: u64 = flows.iter().map(|flow| flow.duplicate_bytes).sum();
    assert!(twice < 3 * MIB, "{twice} bytes came twice");
}

#[test]
fn work_goes_to_the_sources_by_their_rates() {
    let world = World::with(Rate::from_mbps(40), Rate::UNLIMITED);
    let faster = End::new(host_config(Rate::from_mbps(120), Rate::UNLIMITED));
    let mut transfer = world.transfer(30 * MIB);
    let _slow = world.source(30 * MIB, &transfer);
    let object = Box::new(synthetic(30 * MIB));
    let _fast = world.source_from(&faster, world.receives.addr, faster.addr, object, &transfer);
    complete(&transfer.until_end());
    let flows = transfer.handle.progress().flows;
    assert!(flows[0].bytes * 2 < flows[1].bytes, "{flows:?}");
    assert!(flows[0].duplicate_bytes + flows[1].duplicate_bytes < 2 * MIB, "{flows:?}");
}

#[test]
fn sources_that_are_alike_share_memory_that_is_short() {
    let short = HostConfig { memory: Bytes(2 << 20), ..unlimited() };
    let world =
        World { receives: End::new(short), ..World::with(Rate::from_mbps(300), Rate::UNLIMITED) };
    let others = [(); 2].map(|()| End::new(host_config(Rate::from_mbps(300), Rate::UNLIMITED)));
    let mut transfer = world.transfer(60 * MIB);
    let _first = world.source(60 * MIB, &transfer);
    let _more = others.each_ref().map(|end| {
        let object = Box::new(synthetic(60 * MIB));
        world.source_from(end, world.receives.addr, end.addr, object, &transfer)
    });
    complete(&transfer.until_end());
    let flows = transfer.handle.progress().flows;
    assert!(flows.iter().all(|flow| flow.bytes > 12 * MIB), "{flows:?}");
}

#[test]
fn a_bad_block_is_named_and_fetched_elsewhere() {
    let world = World::new();
    let mut transfer = world.transfer(20 * MIB);
    let liar = Twisted {
        inner: synthetic(20 * MIB),
        twist: |block: u64, out: &mut Framed| {
            out[77] ^= u8::from(block % 8 == 3);
            Ok(())
        },
    };
    let liar = world.source_of(Box::new(liar), &transfer);
    let _honest = world.source(20 * MIB, &transfer);
    let events = transfer.until_end();
    complete(&events);
    let bad: Vec<(FlowId, u64)> = events
        .iter()
        .filter_map(|event| match event {
            TransferEvent::BadBlock { flow, block, .. } => Some((*flow, *block)),
            _ => None,
        })
        .collect();
    assert!(!bad.is_empty());
    assert!(bad.iter().all(|&(flow, block)| flow == liar.flow && block % 8 == 3), "{bad:?}");
}

#[test]
fn a_good_answer_of_one_alone_to_a_bad_block_of_two_is_held_against_nobody() {
    let world = World::new();
    let size = 256 * 1024;
    let relay = Relay::new(world.receives.addr, world.sends.addr, dying_in_mid_block);
    let mut transfer = world.transfer(size);
    let spoil = |_: u64, out: &mut Framed| {
        out[0] ^= 1;
        Ok(())
    };
    let liar = Box::new(Twisted { inner: synthetic(size), twist: spoil });
    let sink = world.receives.addr;
    let liar = world.source_from(&world.sends, sink, relay.sink_side, liar, &transfer);
    transfer.until(|event| matches!(event, TransferEvent::PathOpen { .. }));
    let honest = world.source(size, &transfer);
    let events = transfer.until_end();
    complete(&events);
    let named = |event: &TransferEvent| matches!(event, TransferEvent::BadBlock { .. });
    assert!(!events.iter().any(named), "{events:?}");
    let flows = transfer.handle.progress().flows;
    assert_eq!((flows[0].flow, flows[0].bytes), (liar.flow, 0));
    assert!(flows[0].duplicate_bytes + flows[1].duplicate_bytes < size, "{flows:?}");
    assert_eq!((flows[1].flow, flows[1].bytes), (honest.flow, size));
}

#[test]
fn a_sink_that_hoped_for_longer_packets_than_pass_gets_all_in_shorter_ones() {
    for fate in [narrow, faithful] {
        let world = World::new();
        let relay = Relay::new(world.receives.addr, world.sends.addr, fate);
        let mut transfer = world.transfer(6 * MIB);
        let ends = world.session_pair(&world.sends, world.receives.addr, relay.sink_side);
        let (mut here, there) = ends;
        here.role = Role::Eager { unit_payloads: vec![8_900, 1_400, 1_180] };
        let source = Box::new(synthetic(6 * MIB));
        let _source = world.sends.host.open_source(SourceOpen { session: there, source });
        transfer.handle.add_session(here);
        let events = transfer.until_end();
        assert_eq!(complete(&events).bytes_written, 6 * MIB);
        assert!(events.iter().any(|event| matches!(event, TransferEvent::PathOpen { .. })));
        assert!(!events.iter().any(|event| matches!(event, TransferEvent::BadBlock { .. })));
    }
}

#[test]
fn a_sink_that_asks_for_crumbs_is_not_served() {
    let world = World::new();
    let transfer = world.transfer(MIB);
    let ends = world.session_pair(&world.sends, world.receives.addr, world.sends.addr);
    let (mut here, there) = ends;
    here.role = Role::Initiator { unit_payloads: vec![UNIT_MINIMUM - 1] };
    let source = Box::new(synthetic(MIB));
    let handle = world.sends.host.open_source(SourceOpen { session: there, source });
    let flow = transfer.handle.add_session(here);
    let mut source = Outgoing { handle, runtime: world.runtime.clone(), flow };
    let last = source.last_event();
    assert!(matches!(&last, Some(SourceEvent::Lost(why)) if why.contains("short")), "{last:?}");
}

#[test]
fn a_block_that_every_source_sends_wrong_ends_the_transfer() {
    let world = World::new();
    let mut transfer = world.transfer(5 * MIB);
    let liar = || {
        let twist = |block: u64, out: &mut Framed| {
            out[0] ^= u8::from(block == 7);
            Ok(())
        };
        Box::new(Twisted { inner: synthetic(5 * MIB), twist })
    };
    let _sources = [world.source_of(liar(), &transfer), world.source_of(liar(), &transfer)];
    let events = transfer.until_end();
    let named = |event: &TransferEvent| {
        matches!(event, TransferEvent::Unobtainable { file: 0, block: 7, .. })
    };
    assert!(events.iter().any(named), "{events:?}");
    assert!(matches!(events.last(), Some(TransferEvent::Suspended)));
}

#[test]
fn lost_repeated_cut_bent_replayed_and_reordered_datagrams_do_no_harm() {
    let world = World::with(Rate::from_mbps(150), Rate::from_mbps(150));
    let relay = Relay::new(world.receives.addr, world.sends.addr, vicious);
    let mut transfer = world.transfer(6 * MIB);
    let object = Box::new(synthetic(6 * MIB));
    let source =
        world.source_from(&world.sends, world.receives.addr, relay.sink_side, object, &transfer);
    assert_eq!(complete(&transfer.until_end()).bytes_written, 6 * MIB);
    let drops = world.receives.host.drops();
    assert!(drops.forged.load(Ordering::Relaxed) > 0);
    assert!(drops.malformed.load(Ordering::Relaxed) > 0);
    assert!(drops.discarded.load(Ordering::Relaxed) > 0);
    drop(source);
}

#[test]
fn strangers_are_not_answered() {
    let world = World::new();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let transfer = world.transfer(MIB);
    let (here, there) = world.session_pair(&world.sends, world.receives.addr, world.sends.addr);
    let session = there.local_session;
    let _source = world.sends.host.open_source(gtp_net::engine::SourceOpen {
        session: there,
        source: Box::new(synthetic(MIB)),
    });
    for len in 0..1_600 {
        let mut datagram: Vec<u8> = (0..len).map(|i: u32| (i * 7) as u8).collect();
        for kind in [0x10, 0x90, 0x91, 0x92, 0x93, 0x94, 0x95] {
            if let Some(head) = datagram.get_mut(..13) {
                head[0] = kind;
                head[1..5].copy_from_slice(&session.to_be_bytes());
                head[5..].copy_from_slice(&u64::from(len).to_be_bytes());
            }
            stranger.send_to(&datagram, world.sends.addr).unwrap();
        }
    }
    let mut transfer = transfer;
    transfer.handle.add_session(here);
    complete(&transfer.until_end());
    stranger.set_nonblocking(true).unwrap();
    let answer = stranger.recv(&mut [0; 2_000]).map_err(|error| error.kind());
    assert_eq!(answer, Err(io::ErrorKind::WouldBlock));
    assert!(world.sends.host.drops().forged.load(Ordering::Relaxed) > 5_000);
}

#[test]
fn a_source_that_cannot_read_says_so_and_another_session_resumes() {
    let world = World::new();
    let mut transfer = world.transfer(12 * MIB);
    let broken = Twisted {
        inner: synthetic(12 * MIB),
        // Beyond what is read before anything is sent.
        twist: |block: u64, _: &mut Framed| match block {
            40 => Err(SourceError::NoSuchBlock { file: 0, block }),
            _ => Ok(()),
        },
    };
    let mut broken = world.source_of(Box::new(broken), &transfer);
    let events = transfer.until(|event| matches!(event, TransferEvent::Stalled));
    let lost = |event: &TransferEvent| match event {
        TransferEvent::Lost { flow, .. } => *flow == broken.flow,
        _ => false,
    };
    assert!(events.iter().any(lost), "{events:?}");
    assert!(matches!(broken.last_event(), Some(SourceEvent::Fault(_))));
    let brought = transfer.handle.progress().bytes;
    let _second = world.source(12 * MIB, &transfer);
    complete(&transfer.until_end());
    let flows = transfer.handle.progress().flows;
    assert!(brought > 0 && flows[0].bytes >= brought, "{flows:?}");
    assert_eq!(flows[0].bytes + flows[1].bytes, 12 * MIB);
}

#[test]
fn a_full_disk_ends_the_transfer_with_its_name() {
    let world = World::new();
    let manifest = synthetic(3 * MIB).manifest().clone();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let sink = OrderedWriterSink::new(manifest.clone(), full, 8).unwrap();
    let mut transfer = world.transfer_into(Box::new(sink), manifest);
    let source = world.source(3 * MIB, &transfer);
    match transfer.until_end().pop() {
        Some(TransferEvent::Fault(error)) => assert_eq!(error.fault(), Some(Fault::Full)),
        other => panic!("no fault: {other:?}"),
    }
    source.until_closed();
}

/// Sends what is written to it elsewhere.
struct Pipe(Sender<Vec<u8>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_ordered_sink_with_a_small_window_gets_every_byte_in_order() {
    let world = World::new();
    let manifest = synthetic(10 * MIB).manifest().clone();
    let (pipe, written) = channel();
    let sink = OrderedWriterSink::new(manifest.clone(), Pipe(pipe), 3).unwrap();
    let mut transfer = world.transfer_into(Box::new(sink), manifest);
    let _sources = [world.source(10 * MIB, &transfer), world.source(10 * MIB, &transfer)];
    let root = complete(&transfer.until_end()).root.expect("a single file has a root");
    let bytes: Vec<u8> = written.try_iter().flatten().collect();
    assert_eq!((bytes.len() as u64, blake3::hash(&bytes)), (10 * MIB, root.into()));
}

#[test]
fn another_root_than_expected_is_told_and_all_of_the_file_can_come_anew() {
    let world = World::new();
    let mut transfer = world.transfer(2 * MIB);
    let _source = world.source(2 * MIB, &transfer);
    let mut told = false;
    loop {
        match transfer.next() {
            Some(TransferEvent::AllBlocks) => {
                let expected = if told { None } else { Some([9; 32]) };
                transfer.handle.finish_files(vec![(0, expected)]);
            }
            Some(TransferEvent::WrongRoot { file: 0, doubtful: false, error }) => {
                let wrong = matches!(error, SinkError::RootMismatch { expected, .. }
                    if expected == [9; 32]);
                assert!(wrong && !std::mem::replace(&mut told, true));
                transfer.handle.begin_anew(0);
            }
            Some(TransferEvent::Complete(finished)) => {
                assert_eq!(finished.bytes_written, 4 * MIB, "it came twice");
                return assert!(told);
            }
            Some(
                TransferEvent::PathOpen { .. }
                | TransferEvent::FileDone { .. }
                | TransferEvent::FileNamed { .. },
            ) => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
}

#[test]
fn a_source_of_another_length_breaks_a_rule_and_is_lost() {
    let world = World::new();
    let mut transfer = world.transfer(2 * MIB);
    let source = world.source(2 * MIB - 1, &transfer);
    let events = transfer.until(|event| matches!(event, TransferEvent::Stalled));
    let named = |event: &TransferEvent| match event {
        TransferEvent::Lost { flow, why, .. } => *flow == source.flow && why.contains("length"),
        _ => false,
    };
    assert!(events.iter().any(named), "{events:?}");
    let shorter = world.source(MIB, &transfer);
    let events = transfer.until(|event| matches!(event, TransferEvent::Stalled));
    assert!(events.iter().any(|event| is_lost(event, shorter.flow)), "{events:?}");
}

#[test]
fn when_one_of_two_sources_vanishes_the_other_brings_the_rest() {
    let world = World::with(Rate::UNLIMITED, Rate::from_mbps(300));
    let relay = Relay::new(world.receives.addr, world.sends.addr, faithful);
    let mut transfer = world.transfer(30 * MIB);
    let open = relay.open.clone();
    let vanishing = Twisted {
        inner: synthetic(30 * MIB),
        twist: move |block: u64, _: &mut Framed| {
            if block >= 20 {
                open.store(false, Ordering::Relaxed);
            }
            Ok(())
        },
    };
    let sink = world.receives.addr;
    let object = Box::new(vanishing);
    let _first = world.source_from(&world.sends, sink, relay.sink_side, object, &transfer);
    let second = End::new(unlimited());
    let object = Box::new(synthetic(30 * MIB));
    let _second = world.source_from(&second, sink, second.addr, object, &transfer);
    complete(&transfer.until_end());
    let flows = transfer.handle.progress().flows;
    assert_eq!(flows[0].bytes + flows[1].bytes, 30 * MIB);
}

#[test]
fn a_source_that_vanishes_alone_is_lost_and_its_successor_resumes() {
    let world = World::with(Rate::UNLIMITED, Rate::from_mbps(300));
    let relay = Relay::new(world.receives.addr, world.sends.addr, faithful);
    let mut transfer = world.transfer(8 * MIB);
    let open = relay.open.clone();
    let vanishing = Twisted {
        inner: synthetic(8 * MIB),
        twist: move |block: u64, _: &mut Framed| {
            if block == 15 {
                open.store(false, Ordering::Relaxed);
            }
            Ok(())
        },
    };
    let sink = world.receives.addr;
    let object = Box::new(vanishing);
    let first = world.source_from(&world.sends, sink, relay.sink_side, object, &transfer);
    let events = transfer.until(|event| matches!(event, TransferEvent::Stalled));
    assert!(events.iter().any(|event| is_lost(event, first.flow)), "{events:?}");
    let _second = world.source(8 * MIB, &transfer);
    complete(&transfer.until_end());
}

#[test]
fn where_nobody_answers_there_is_no_path() {
    let world = World::new();
    let deaf = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut transfer = world.transfer(MIB);
    let peer = deaf.local_addr().unwrap();
    let (here, _) = world.session_pair(&world.sends, world.receives.addr, peer);
    let flow = transfer.handle.add_session(here);
    let events = transfer.until(|event| matches!(event, TransferEvent::Stalled));
    let named = |event: &TransferEvent| match event {
        TransferEvent::NoPath { flow: named } => *named == flow,
        _ => false,
    };
    assert!(events.iter().any(named), "{events:?}");
}

#[test]
fn roots_are_to_be_had_after_the_session_has_closed() {
    let world = World::new();
    let mut transfer = world.transfer(3 * MIB);
    let mut source = world.source(3 * MIB, &transfer);
    let root = complete(&transfer.until_end()).root;
    assert!(matches!(source.last_event(), Some(SourceEvent::Closed)));
    let roots = world.runtime.block_on(source.handle.roots(0..1)).unwrap();
    assert_eq!(Some(roots[0]), root);
    assert!(world.runtime.block_on(source.handle.roots(0..2)).is_err());
}

#[test]
fn a_dropped_transfer_closes_its_sessions() {
    let world = World::with(Rate::from_mbps(10), Rate::from_mbps(10));
    let mut transfer = world.transfer(100 * MIB);
    let source = world.source(100 * MIB, &transfer);
    transfer.until(|event| matches!(event, TransferEvent::PathOpen { .. }));
    drop(transfer);
    source.until_closed();
}
