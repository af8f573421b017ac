//! FQ-CoDel, RFC 8290: each flow has a queue of its own, which is a CoDel, and all are served in
//! turn.
//!
//! | rule | section |
//! |---|---|
//! | a hash of the flow, with a secret, chooses one of 1,024 queues | 4.1, 5.2.5 |
//! | without room, the queue that holds most loses its oldest packet | 4.1 |
//! | a queue sends 1,514 bytes, then it is the turn of the next | 4.2, 5.2.4 |
//! | a queue that begins to hold packets comes before all that held some | 4.2 |
//! | a new queue that is empty goes behind the old ones before it is forgotten | 4.2 |
//!
//! The one idea: who sends less than its share never waits for those who send more.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use gtp_alloc::{Bytes, Time};

use super::Packet;
use super::codel::Codel;
use super::fifo::Fifo;
use crate::rng::hashed;

/// The number of queues (Section 5.2.5).
const FLOWS: u64 = 1_024;
/// The bytes that a queue may send in one turn (Section 5.2.4).
const QUANTUM: i64 = 1_514;

/// The queue of the flows that hash to it.
#[derive(Clone, Debug)]
struct Flow<T> {
    fifo: Fifo<T>,
    codel: Codel,
    /// Bytes that it may send before it is another's turn.
    credit: i64,
    listed: Listed,
}

/// Whether a queue awaits its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// It is on no list.
    Nowhere,
    /// It is on one of the two lists.
    Somewhere,
}

/// All queues, and whose turn it is.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    seed: u64,
    flows: Vec<Flow<T>>,
    /// `new_queues`: those that began to hold packets.
    new: VecDeque<usize>,
    /// `old_queues`: those that have had a turn.
    old: VecDeque<usize>,
    bytes: Bytes,
}

impl<T> Queue<T> {
    pub fn new(seed: u64) -> Queue<T> {
        let flow = |_| Flow {
            fifo: Fifo::new(),
            codel: Codel::default(),
            credit: 0,
            listed: Listed::Nowhere,
        };
        Queue {
            seed,
            flows: (0..FLOWS).map(flow).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            bytes: Bytes::ZERO,
        }
    }

    /// Section 4.1.
    pub fn enqueue(
        &mut self,
        now: Time,
        limit: Bytes,
        packet: Packet<T>,
        dropped: &mut Vec<Packet<T>>,
    ) {
        let place = (hashed(self.seed, packet.flow) % FLOWS) as usize;
        let size = packet.size;
        let flow = &mut self.flows[place];
        flow.fifo.push(now, packet);
        if flow.listed == Listed::Nowhere {
            flow.listed = Listed::Somewhere;
            flow.credit = QUANTUM;
            self.new.push_back(place);
        }
        while !Fifo::<T>::has_room(self.bytes, limit, size)
            && let Some(oldest) = self.drop_of_the_largest(now)
        {
            self.bytes -= oldest.size;
            dropped.push(oldest);
        }
        self.bytes += size;
    }

    /// The oldest packet of the queue that holds most bytes.
    fn drop_of_the_largest(&mut self, now: Time) -> Option<Packet<T>> {
        let waiting = self.new.iter().chain(&self.old);
        let largest = waiting.copied().max_by_key(|&place| self.flows[place].fifo.bytes())?;
        self.flows[largest].fifo.pop(now).map(|(_, packet)| packet)
    }

    /// Section 4.2.
    pub fn dequeue(&mut self, now: Time, dropped: &mut Vec<Packet<T>>) -> Option<Packet<T>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let place = list.pop_front()?;
            let flow = &mut self.flows[place];
            if flow.credit <= 0 {
                flow.credit += QUANTUM;
                self.old.push_back(place);
                continue;
            }
            let before = dropped.len();
            let packet = flow.codel.dequeue(now, &mut flow.fifo, dropped);
            let gone = dropped[before..].iter().chain(&packet).map(|packet| packet.size);
            self.bytes -= gone.fold(Bytes::ZERO, |sum, size| sum + size);
            match packet {
                Some(packet) => {
                    flow.credit -= packet.size.0 as i64;
                    let list = if is_new { &mut self.new } else { &mut self.old };
                    list.push_front(place);
                    return Some(packet);
                }
                None if is_new => self.old.push_back(place),
                None => flow.listed = Listed::Nowhere,
            }
        }
    }

    pub fn drain(&mut self) -> Vec<Packet<T>> {
        self.bytes = Bytes::ZERO;
        self.new.clear();
        self.old.clear();
        let mut all = Vec::new();
        for flow in &mut self.flows {
            flow.listed = Listed::Nowhere;
            all.extend(flow.fifo.drain());
        }
        all
    }

    pub fn bytes(&self) -> Bytes {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ecn;
    use super::super::checks::{at, packet};
    use super::*;

    fn offer(queue: &mut Queue<u64>, flow: u64, count: u64, limit: u64) -> Vec<u64> {
        let mut dropped = Vec::new();
        for n in 0..count {
            let packet = packet(100 * flow + n, flow, Ecn::NotCapable);
            queue.enqueue(at(0), Bytes(limit), packet, &mut dropped);
        }
        dropped.iter().map(|packet| packet.thing).collect()
    }

    fn sent(queue: &mut Queue<u64>, count: usize) -> Vec<u64> {
        let mut dropped = Vec::new();
        let packets = core::iter::from_fn(|| queue.dequeue(at(1), &mut dropped));
        packets.take(count).map(|packet| packet.thing).collect()
    }

    #[test]
    fn flows_that_wait_send_in_turn_whatever_they_hold_rfc_8290_4_2() {
        let mut queue = Queue::new(1);
        offer(&mut queue, 1, 10, u64::MAX);
        offer(&mut queue, 2, 2, u64::MAX);
        // A first packet leaves 14 bytes of credit, so that a turn begins with two.
        assert_eq!(sent(&mut queue, 7), [100, 101, 200, 201, 102, 103, 104]);
        assert_eq!(queue.bytes(), Bytes(5 * 1_500));
    }

    #[test]
    fn a_new_flow_comes_before_all_that_have_had_a_turn_rfc_8290_4_2() {
        let mut queue = Queue::new(1);
        offer(&mut queue, 1, 10, u64::MAX);
        offer(&mut queue, 2, 10, u64::MAX);
        assert_eq!(sent(&mut queue, 6), [100, 101, 200, 201, 102, 202]);
        offer(&mut queue, 3, 1, u64::MAX);
        assert_eq!(sent(&mut queue, 2), [300, 103]);
    }

    #[test]
    fn a_new_flow_that_empties_cannot_be_new_again_before_all_others_rfc_8290_4_2() {
        let mut queue = Queue::new(1);
        let short = |queue: &mut Queue<u64>, flow: u64, n: u64| {
            let short = packet(100 * flow + n, flow, Ecn::NotCapable);
            let short = Packet { size: Bytes(500), ..short };
            queue.enqueue(at(0), Bytes(u64::MAX), short, &mut Vec::new());
        };
        (0..10).for_each(|n| short(&mut queue, 1, n));
        assert_eq!(sent(&mut queue, 5), [100, 101, 102, 103, 104]);
        short(&mut queue, 3, 0);
        assert_eq!(sent(&mut queue, 2), [300, 105]);
        // It was found empty, and is behind the other, though it has credit left.
        short(&mut queue, 3, 1);
        assert_eq!(sent(&mut queue, 3), [106, 301, 107]);
    }

    #[test]
    fn without_room_the_flow_that_holds_most_loses_its_oldest_rfc_8290_4_1() {
        let mut queue = Queue::new(1);
        assert_eq!(offer(&mut queue, 1, 8, 10 * 1_500), []);
        assert_eq!(offer(&mut queue, 2, 4, 10 * 1_500), [100, 101]);
        assert_eq!(queue.bytes(), Bytes(10 * 1_500));
        assert_eq!(offer(&mut queue, 2, 2, 10 * 1_500), [102, 200]);
    }

    #[test]
    fn each_flow_is_a_codel_of_its_own_rfc_8290_4_2() {
        let mut queue = Queue::new(1);
        offer(&mut queue, 1, 1_000, u64::MAX);
        let mut lost = Vec::new();
        for now in 0..150 {
            let quick = packet(now, 2, Ecn::NotCapable);
            queue.enqueue(at(now), Bytes(u64::MAX), quick, &mut lost);
            queue.dequeue(at(now), &mut lost);
            queue.dequeue(at(now), &mut lost);
        }
        assert!(!lost.is_empty() && lost.iter().all(|packet| packet.flow == 1), "{lost:?}");
    }
}
