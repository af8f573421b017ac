//! What tests of managed queues share, and what all kinds of them keep.

use alloc::vec::Vec;

use gtp_alloc::{Bytes, Span, Time};

use super::{Ecn, Kind, Managed, Packet};

/// A moment, in milliseconds.
pub fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// A full packet.
pub fn packet(thing: u64, flow: u64, ecn: Ecn) -> Packet<u64> {
    Packet { size: Bytes(1_500), flow, ecn, thing }
}

#[test]
fn every_packet_leaves_once_or_is_dropped_once_and_bytes_are_what_waits() {
    let seed = 11;
    let mut rng = crate::Rng::new(seed);
    for kind in [Kind::Codel, Kind::FqCodel, Kind::DualPi2] {
        let mut queue = Managed::new(kind, 3);
        let (mut dropped, mut left, mut offered) = (Vec::new(), Vec::new(), 0);
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            now += Span::from_micros(rng.below(2_000));
            if rng.below(9) < 5 {
                let ecn = [Ecn::NotCapable, Ecn::Classic, Ecn::LowLatency][rng.below(3) as usize];
                let size = Bytes(64 + rng.below(1_437));
                let packet = Packet { size, flow: rng.below(5), ecn, thing: offered };
                queue.enqueue(now, Bytes(150_000), packet, &mut dropped);
                offered += 1;
            } else {
                left.extend(queue.dequeue(now, &mut dropped));
            }
            assert!(queue.bytes() <= Bytes(150_000), "{kind:?}, seed {seed}");
        }
        let (waited, rest) = (queue.bytes(), queue.drain());
        let bytes = rest.iter().fold(Bytes::ZERO, |sum, packet| sum + packet.size);
        assert_eq!((bytes, queue.bytes()), (waited, Bytes::ZERO), "{kind:?}, seed {seed}");
        assert!(!dropped.is_empty(), "{kind:?}, seed {seed}");
        let all = left.iter().chain(&dropped).chain(&rest);
        let mut things: Vec<u64> = all.map(|packet| packet.thing).collect();
        things.sort_unstable();
        assert!(things.into_iter().eq(0..offered), "{kind:?}, seed {seed}");
    }
}

#[test]
fn an_empty_queue_takes_a_packet_of_any_size() {
    for kind in [Kind::Codel, Kind::FqCodel, Kind::DualPi2] {
        let mut queue = Managed::new(kind, 3);
        let mut dropped = Vec::new();
        queue.enqueue(at(0), Bytes::ZERO, packet(1, 1, Ecn::NotCapable), &mut dropped);
        queue.enqueue(at(0), Bytes::ZERO, packet(2, 2, Ecn::NotCapable), &mut dropped);
        assert_eq!((queue.bytes(), dropped.len()), (Bytes(1_500), 1), "{kind:?}");
    }
}
