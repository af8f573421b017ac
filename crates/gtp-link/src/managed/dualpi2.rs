//! DualPI2, RFC 9332: a queue for senders that answer each mark a little, beside a classic one.
//!
//! | rule | section |
//! |---|---|
//! | ECN bits choose the queue: ECT(1) and marked packets go to that of low latency | 2.3 |
//! | a PI controller moves p' by the longer wait and its change, each 15 ms | A.1 |
//! | the classic queue drops or marks by p'², the other one marks by k p', k = 2 | 2.1, A.1 |
//! | a packet of low latency is marked by a ramp from 800 to 1,200 µs of waiting | A.1 |
//! | one of low latency that is alone is marked by k p' only | A.1 |
//! | if k p' is 1, there is overload: packets of low latency are dropped too, by p'² | A.2 |
//! | the queue of low latency comes first, but the classic one has a sixteenth | 4.2.2, A.1 |
//!
//! The one idea: a classic sender's rate falls with the root of what it loses, that of the others
//! with the marks themselves; with a square between them, both get the same. What is lost is not
//! drawn: probabilities add up to one loss or mark after another, as in A.1 (`recur`).

use alloc::vec::Vec;

use gtp_alloc::{Bytes, Span, Time};

use super::fifo::Fifo;
use super::{Ecn, Packet};

/// The classic queue's wait that is aimed at (A.1).
const TARGET: Span = Span::from_millis(15);
/// `Tupdate`: the lesser of the target and a third of `RTT_max` (A.1).
const UPDATE: Span = Span::from_millis(15);
/// `RTT_max`: the longest usual round-trip time, in seconds (A.1).
const RTT_MAX: f64 = 0.1;
/// How p' follows the wait's distance to the target, per second (A.1): 0.1 Tupdate / RTT_max².
const ALPHA: f64 = 0.1 * 0.015 / (RTT_MAX * RTT_MAX);
/// How it follows the wait's change, per second (A.1): 0.3 / RTT_max.
const BETA: f64 = 0.3 / RTT_MAX;
/// `k`: the coupling factor (2.1, A.1).
const COUPLING: f64 = 2.0;
/// `minTh`: packets of low latency that have waited longer are marked now and then (A.1).
const RAMP_FROM: Span = Span::from_micros(800);
/// `range`: those that have waited so much longer are all marked (A.1).
const RAMP: Span = Span::from_micros(400);
/// `p_Cmax`: from this chance on, the classic queue drops what it would mark (A.2): 1 / k².
const CLASSIC_MOST: f64 = 1.0 / (COUPLING * COUPLING);
/// The classic queue's part of the link while both hold packets, as one in so many (A.1).
const CLASSIC_PART: i64 = 16;

/// One of the two queues.
#[derive(Clone, Debug)]
struct Lane<T> {
    fifo: Fifo<T>,
    /// The sum of chances since the last loss or mark.
    sum: f64,
}

/// Both queues and their controller.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    classic: Lane<T>,
    low: Lane<T>,
    /// p', from 0 to 1.
    base: f64,
    /// The longer wait at the last update.
    wait: Span,
    /// When p' is updated next.
    due: Time,
    /// Sixteenths of bytes that are the classic queue's, beyond what it has had.
    owed: i64,
}

impl<T> Lane<T> {
    const fn new() -> Lane<T> {
        Lane { fifo: Fifo::new(), sum: 0.0 }
    }

    /// `recur` of A.1: whether the chances add up to one more loss or mark.
    fn recurs(&mut self, chance: f64) -> bool {
        self.sum += chance;
        let recurs = self.sum > 1.0;
        if recurs {
            self.sum -= 1.0;
        }
        recurs
    }
}

impl<T> Queue<T> {
    pub fn new() -> Queue<T> {
        Queue {
            classic: Lane::new(),
            low: Lane::new(),
            base: 0.0,
            wait: Span::ZERO,
            due: Time::ZERO + UPDATE,
            owed: 0,
        }
    }

    pub fn enqueue(
        &mut self,
        now: Time,
        limit: Bytes,
        packet: Packet<T>,
        dropped: &mut Vec<Packet<T>>,
    ) {
        self.catch_up(now);
        if !Fifo::<T>::has_room(self.bytes(), limit, packet.size) {
            return dropped.push(packet);
        }
        let lane = match packet.ecn {
            Ecn::NotCapable | Ecn::Classic => &mut self.classic,
            Ecn::LowLatency | Ecn::Marked => &mut self.low,
        };
        lane.fifo.push(now, packet);
    }

    /// `dualpi2_dequeue` of A.2.
    pub fn dequeue(&mut self, now: Time, dropped: &mut Vec<Packet<T>>) -> Option<Packet<T>> {
        self.catch_up(now);
        loop {
            let judged = if self.serves_low() {
                let (wait, packet) = self.low.fifo.pop(now)?;
                self.judge_low(wait, packet)
            } else {
                let (_, packet) = self.classic.fifo.pop(now)?;
                self.judge_classic(packet)
            };
            match judged {
                Ok(packet) => return Some(packet),
                Err(packet) => dropped.push(packet),
            }
        }
    }

    /// Which queue is served: that of low latency, unless the classic one is owed a packet.
    fn serves_low(&mut self) -> bool {
        if self.low.fifo.is_empty() || self.classic.fifo.is_empty() {
            self.owed = 0;
            return !self.low.fifo.is_empty();
        }
        self.owed <= 0
    }

    /// Sends a packet of low latency, or returns it as an error to be dropped.
    fn judge_low(&mut self, wait: Span, mut packet: Packet<T>) -> Result<Packet<T>, Packet<T>> {
        self.owed += packet.size.0 as i64;
        let coupled = COUPLING * self.base;
        if coupled >= 1.0 && self.low.recurs(self.base * self.base) {
            return Err(packet);
        }
        // One packet alone is no queue.
        let native = if self.low.fifo.is_empty() { 0.0 } else { ramp(wait) };
        if self.low.recurs(native.max(coupled.min(1.0))) {
            packet.mark();
        }
        Ok(packet)
    }

    /// Sends a classic packet, or returns it as an error to be dropped.
    fn judge_classic(&mut self, mut packet: Packet<T>) -> Result<Packet<T>, Packet<T>> {
        self.owed -= (CLASSIC_PART - 1) * packet.size.0 as i64;
        let chance = self.base * self.base;
        let marks = chance < CLASSIC_MOST;
        if self.classic.recurs(chance) && !(marks && packet.mark()) {
            return Err(packet);
        }
        Ok(packet)
    }

    /// The updates that were due by `now`. Between two packets only time goes on, so that none of
    /// them comes too late.
    fn catch_up(&mut self, now: Time) {
        while self.due <= now {
            let due = self.due;
            self.due += UPDATE;
            let wait = self.classic.fifo.wait(due).max(self.low.fifo.wait(due));
            self.update(wait);
        }
    }

    /// `dualpi2_update` of A.1.
    fn update(&mut self, wait: Span) {
        let seconds = wait.as_secs_f64();
        let step = ALPHA * (seconds - TARGET.as_secs_f64());
        let step = step + BETA * (seconds - self.wait.as_secs_f64());
        self.base = (self.base + step).clamp(0.0, 1.0);
        self.wait = wait;
    }

    pub fn drain(&mut self) -> Vec<Packet<T>> {
        let mut all = self.classic.fifo.drain();
        all.extend(self.low.fifo.drain());
        all
    }

    pub fn bytes(&self) -> Bytes {
        self.classic.fifo.bytes() + self.low.fifo.bytes()
    }
}

/// `laqm` of A.1: the chance by which a packet of low latency that has waited so long is marked.
fn ramp(wait: Span) -> f64 {
    let beyond = wait.saturating_sub(RAMP_FROM);
    (beyond.as_secs_f64() / RAMP.as_secs_f64()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::checks::{at, packet};
    use super::*;

    fn fill(queue: &mut Queue<u64>, ecn: Ecn, count: u64) {
        let mut dropped = Vec::new();
        for n in 0..count {
            queue.enqueue(at(0), Bytes(u64::MAX), packet(n, 0, ecn), &mut dropped);
        }
        assert!(dropped.is_empty());
    }

    /// How many packets of `count` a queue of this p' marks and drops, all at time `now`.
    fn marked_and_dropped(ecn: Ecn, base: f64, count: usize, now: Time) -> (usize, usize) {
        let mut queue = Queue::new();
        queue.due = Time::MAX;
        queue.base = base;
        fill(&mut queue, ecn, count as u64);
        let mut dropped = Vec::new();
        let sent: Vec<_> = core::iter::from_fn(|| queue.dequeue(now, &mut dropped)).collect();
        (sent.iter().filter(|packet| packet.ecn == Ecn::Marked).count(), dropped.len())
    }

    #[test]
    fn the_base_probability_follows_distance_and_change_each_15_ms_rfc_9332_a_1() {
        let mut queue = Queue::new();
        fill(&mut queue, Ecn::NotCapable, 10);
        // At 15 ms the first has waited for the target, and for 15 ms more than before.
        queue.catch_up(at(15));
        assert!((queue.base - 3.0 * 0.015).abs() < 1e-12, "{}", queue.base);
        queue.catch_up(at(30));
        let second = 3.0 * 0.030 + 0.15 * 0.015;
        assert!((queue.base - second).abs() < 1e-12, "{}", queue.base);
        queue.drain();
        queue.catch_up(at(10_000));
        assert_eq!(queue.base, 0.0);
    }

    #[test]
    fn classic_packets_are_lost_by_the_square_and_others_marked_by_twice_p_rfc_9332_2_1() {
        assert_eq!(marked_and_dropped(Ecn::NotCapable, 0.1, 10_001, at(0)), (0, 100));
        assert_eq!(marked_and_dropped(Ecn::Classic, 0.1, 10_001, at(0)), (100, 0));
        assert_eq!(marked_and_dropped(Ecn::LowLatency, 0.1, 10_001, at(0)), (2_000, 0));
    }

    #[test]
    fn low_latency_packets_are_marked_by_a_ramp_but_never_one_alone_rfc_9332_a_1() {
        let waited = |micros| {
            let now = Time::ZERO + Span::from_micros(micros);
            marked_and_dropped(Ecn::LowLatency, 0.0, 101, now)
        };
        // The sum of chances has to exceed one, so that the first packet passes, and the last one
        // is alone.
        let found = [800, 900, 1_000, 1_100, 1_200, 9_000].map(waited);
        assert_eq!(found, [(0, 0), (24, 0), (49, 0), (74, 0), (99, 0), (99, 0)]);
        // The greater of both chances counts: 0.5 of the ramp, and 0.6 of the controller.
        let half = Time::ZERO + Span::from_micros(1_000);
        assert_eq!(marked_and_dropped(Ecn::LowLatency, 0.3, 1_001, half), (600, 0));
        assert_eq!(marked_and_dropped(Ecn::Classic, 0.0, 100, at(10)), (0, 0));
    }

    #[test]
    fn overload_drops_in_both_queues_rfc_9332_a_2() {
        let (marked, dropped) = marked_and_dropped(Ecn::LowLatency, 0.6, 1_000, at(0));
        assert!((355..=365).contains(&dropped) && marked > 600, "{marked}, {dropped}");
        assert_eq!(marked_and_dropped(Ecn::Classic, 0.5, 1_001, at(0)), (0, 250));
        assert_eq!(marked_and_dropped(Ecn::Classic, 0.49, 1_001, at(0)), (240, 0));
    }

    #[test]
    fn low_latency_comes_first_and_leaves_a_sixteenth_rfc_9332_4_2_2() {
        let mut queue = Queue::new();
        queue.due = Time::MAX;
        fill(&mut queue, Ecn::NotCapable, 1_000);
        fill(&mut queue, Ecn::LowLatency, 1_000);
        let mut dropped = Vec::new();
        let sent = core::iter::from_fn(|| queue.dequeue(at(0), &mut dropped)).take(800);
        assert_eq!(sent.filter(|packet| packet.ecn == Ecn::NotCapable).count(), 50);
    }
}
