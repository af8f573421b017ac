//! Datagrams of strangers, of every length, into both ends of a running session: none is
//! answered, none counts, and the object arrives.

mod common;

use std::net::UdpSocket;
use std::sync::atomic::Ordering;

use common::{World, complete};
use gtp_alloc::Rate;

/// A first byte of each kind that there is, of kinds of the future, and of other versions.
const FIRST_BYTES: [u8; 10] = [0x00, 0x10, 0x16, 0x90, 0x91, 0x93, 0x95, 0x9F, 0xA0, 0xFF];

#[test]
fn datagrams_of_strangers_of_every_length_into_both_ends_change_nothing() {
    const SIZE: u64 = 8 << 20;
    let world = World::with(Rate::from_mbps(40), Rate::from_mbps(40));
    let mut transfer = world.transfer(SIZE);
    let (here, there) = world.session_pair(&world.sends, world.receives.addr, world.sends.addr);
    let ends = [(world.receives.addr, here.local_session), (world.sends.addr, there.local_session)];
    let source = Box::new(common::synthetic(SIZE));
    let open = gtp_net::engine::SourceOpen { session: there, source };
    let _source = world.sends.host.open_source(open);
    transfer.handle.add_session(here);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for len in (0..=2_000).chain([8_949, 9_000, 65_507]) {
        for (to, session) in ends {
            let mut datagram: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
            if let Some(head) = datagram.get_mut(..13) {
                head[0] = FIRST_BYTES[len % FIRST_BYTES.len()];
                head[1..5].copy_from_slice(&session.to_be_bytes());
                head[5..].copy_from_slice(&(len as u64).to_be_bytes());
            }
            stranger.send_to(&datagram, to).unwrap();
        }
    }
    assert_eq!(complete(&transfer.until_end()).bytes_written, SIZE);
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 2_000]).is_err(), "a stranger was answered");
    for end in [&world.sends, &world.receives] {
        let drops = end.host.drops();
        let counts = [&drops.malformed, &drops.unknown, &drops.forged, &drops.discarded];
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        // The kernel may have dropped some of them before.
        assert!(counts.iter().sum::<u64>() > 1_000, "not counted: {counts:?}");
    }
}
