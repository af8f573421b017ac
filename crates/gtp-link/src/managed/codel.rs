//! CoDel, RFC 8289: a queue may be long for a moment, but not stand.
//!
//! | rule | section |
//! |---|---|
//! | a queue stands if every packet over 100 ms has waited for 5 ms or longer | 3.1, 3.2, 5.3 |
//! | while it stands, packets are dropped; the next in 100 ms / sqrt(n) after n | 3.3, 5.6 |
//! | if it stands again soon, dropping goes on at about the old pace | 5.5 |
//! | nothing is dropped if no more than one packet waits | 5.6 |
//!
//! The one idea: the least wait over an interval tells a standing queue from a burst. The state is
//! apart from the packets, because FQ-CoDel has one for each of its queues. A packet whose sender
//! understands marks is marked instead of dropped.

use alloc::vec::Vec;

use gtp_alloc::{Bytes, Span, Time};

use super::fifo::Fifo;
use super::{MTU, Packet};

/// The wait that is tolerated: `TARGET` of Section 5.3.
const TARGET: Span = Span::from_millis(5);
/// The time over which the least wait counts: `INTERVAL` of Section 5.3.
const INTERVAL: Span = Span::from_millis(100);
/// Section 5.5: if dropping ended less than so many intervals ago, it goes on at the old pace.
const SOON: u64 = 16;

/// The state of one queue (Section 5.2).
#[derive(Clone, Debug, Default)]
pub(super) struct Codel {
    /// `first_above_time_`: when packets will have waited too long for a whole interval. `None`:
    /// the last one has not.
    first_above: Option<Time>,
    /// `drop_next_`: when the next packet is dropped.
    drop_next: Time,
    /// `count_`: the number of drops since dropping began.
    count: u32,
    /// `lastcount_`: `count` when dropping began.
    last_count: u32,
    /// `dropping_`: whether the queue stands.
    dropping: bool,
}

/// The next packet, and whether it may be dropped.
struct Next<T> {
    packet: Option<Packet<T>>,
    may_drop: bool,
}

impl Codel {
    /// Takes the next packet to be sent out of a queue (Section 5.5).
    pub fn dequeue<T>(
        &mut self,
        now: Time,
        fifo: &mut Fifo<T>,
        dropped: &mut Vec<Packet<T>>,
    ) -> Option<Packet<T>> {
        let mut next = self.next(now, fifo);
        if !self.dropping && next.may_drop {
            self.drop_or_mark(now, &mut next, fifo, dropped);
            self.begin(now);
            return next.packet;
        }
        self.dropping &= next.may_drop;
        while self.dropping && now >= self.drop_next {
            self.count += 1;
            let marked = self.drop_or_mark(now, &mut next, fifo, dropped);
            self.dropping = next.may_drop;
            if self.dropping {
                self.drop_next += pause(self.count);
            }
            if marked {
                break;
            }
        }
        next.packet
    }

    /// Begins to drop, from the pace of the last time if that was close (Section 5.5).
    fn begin(&mut self, now: Time) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let soon = now.since(self.drop_next) < INTERVAL * SOON;
        self.count = if delta > 1 && soon { delta } else { 1 };
        self.drop_next = now + pause(self.count);
        self.last_count = self.count;
    }

    /// Drops the packet and takes the one behind it, or marks it and tells so.
    fn drop_or_mark<T>(
        &mut self,
        now: Time,
        next: &mut Next<T>,
        fifo: &mut Fifo<T>,
        dropped: &mut Vec<Packet<T>>,
    ) -> bool {
        let Some(mut packet) = next.packet.take() else { return false };
        if packet.mark() {
            next.packet = Some(packet);
            return true;
        }
        dropped.push(packet);
        *next = self.next(now, fifo);
        false
    }

    /// `dodequeue` of Section 5.6.
    fn next<T>(&mut self, now: Time, fifo: &mut Fifo<T>) -> Next<T> {
        let Some((wait, packet)) = fifo.pop(now) else {
            self.first_above = None;
            return Next { packet: None, may_drop: false };
        };
        let may_drop = if wait < TARGET || fifo.bytes() <= MTU {
            self.first_above = None;
            false
        } else {
            now >= *self.first_above.get_or_insert(now + INTERVAL)
        };
        Next { packet: Some(packet), may_drop }
    }
}

/// How long after a drop the next one follows, by the number of drops so far: the control law of
/// Section 5.6, `INTERVAL / sqrt(count)`, in whole nanoseconds.
fn pause(count: u32) -> Span {
    let nanos = u128::from(INTERVAL.as_nanos());
    let pause = (nanos * nanos / u128::from(count.max(1))).isqrt();
    Span::from_nanos(pause as u64)
}

/// A queue that is one CoDel.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    fifo: Fifo<T>,
    codel: Codel,
}

impl<T> Queue<T> {
    pub fn new() -> Queue<T> {
        Queue { fifo: Fifo::new(), codel: Codel::default() }
    }

    pub fn enqueue(
        &mut self,
        now: Time,
        limit: Bytes,
        packet: Packet<T>,
        dropped: &mut Vec<Packet<T>>,
    ) {
        if Fifo::<T>::has_room(self.fifo.bytes(), limit, packet.size) {
            self.fifo.push(now, packet);
        } else {
            dropped.push(packet);
        }
    }

    pub fn dequeue(&mut self, now: Time, dropped: &mut Vec<Packet<T>>) -> Option<Packet<T>> {
        self.codel.dequeue(now, &mut self.fifo, dropped)
    }

    pub fn drain(&mut self) -> Vec<Packet<T>> {
        self.fifo.drain()
    }

    pub fn bytes(&self) -> Bytes {
        self.fifo.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::{at, packet};
    use super::super::{Ecn, Kind, Managed};
    use super::*;

    /// A queue in which `count` packets have waited since time 0.
    fn full(count: u64) -> Queue<u64> {
        let mut queue = Queue::new();
        let mut dropped = Vec::new();
        (0..count).for_each(|n| {
            queue.enqueue(at(0), Bytes(u64::MAX), packet(n, 0, Ecn::NotCapable), &mut dropped);
        });
        assert!(dropped.is_empty());
        queue
    }

    /// The milliseconds at which a queue drops, if a packet leaves each millisecond.
    fn drops(queue: &mut Queue<u64>, millis: core::ops::Range<u64>) -> Vec<u64> {
        let mut all = Vec::new();
        for now in millis {
            let mut dropped = Vec::new();
            queue.dequeue(at(now), &mut dropped);
            all.extend(dropped.iter().map(|_| now));
        }
        all
    }

    #[test]
    fn the_nth_drop_follows_after_interval_over_sqrt_n_rfc_8289_5_6() {
        let pauses = [1, 2, 4, 100, 10_000].map(|count| pause(count).as_nanos());
        assert_eq!(pauses, [100_000_000, 70_710_678, 50_000_000, 10_000_000, 1_000_000]);
    }

    #[test]
    fn a_standing_queue_is_dropped_from_after_an_interval_ever_faster_rfc_8289_5_5() {
        // From 5 ms on packets have waited too long, from 105 ms on for an interval. Then drops
        // follow after 100 ms, 70.7, 57.7 and 50.
        let drops = drops(&mut full(1_000), 0..400);
        assert_eq!(drops, [105, 205, 276, 334, 384]);
    }

    #[test]
    fn a_burst_that_goes_within_an_interval_loses_nothing_rfc_8289_3_1() {
        assert_eq!(drops(&mut full(105), 0..400), []);
    }

    #[test]
    fn the_last_packet_is_not_dropped_however_long_it_waited_rfc_8289_5_6() {
        let mut queue = full(108);
        assert_eq!(drops(&mut queue, 0..105), []);
        // The one drop at 105 ms leaves two packets: the next has one behind it.
        assert_eq!(drops(&mut queue, 105..106), [105]);
        assert_eq!(drops(&mut queue, 5_000..5_100), []);
    }

    #[test]
    fn a_queue_that_stands_again_soon_goes_on_at_the_old_pace_rfc_8289_5_5() {
        let mut queue = full(1_000);
        assert_eq!(drops(&mut queue, 0..400).len(), 5);
        queue.drain();
        let refill = |queue: &mut Queue<u64>, now| {
            let mut dropped = Vec::new();
            assert_eq!(queue.dequeue(at(now), &mut dropped), None);
            for n in 0..1_000 {
                let packet = packet(n, 0, Ecn::NotCapable);
                queue.enqueue(at(now), Bytes(u64::MAX), packet, &mut dropped);
            }
        };
        refill(&mut queue, 500);
        // Four of the five drops count: the next pauses are 50 and 44.7 ms.
        assert_eq!(drops(&mut queue, 500..750), [605, 655, 700, 741]);
        queue.drain();
        refill(&mut queue, 10_000);
        assert_eq!(drops(&mut queue, 10_000..10_250), [10_105, 10_205]);
    }

    #[test]
    fn a_sender_that_understands_marks_is_marked_instead_rfc_8289_5_5() {
        let mut queue = Managed::new(Kind::Codel, 1);
        let (mut dropped, mut marked) = (Vec::new(), Vec::new());
        for n in 0..1_000 {
            queue.enqueue(at(0), Bytes(u64::MAX), packet(n, 0, Ecn::Classic), &mut dropped);
        }
        for now in 0..400 {
            let packet = queue.dequeue(at(now), &mut dropped).expect("one waits");
            marked.extend((packet.ecn == Ecn::Marked).then_some(now));
        }
        assert_eq!((marked, dropped.len()), (alloc::vec![105, 205, 276, 334, 384], 0));
    }
}
