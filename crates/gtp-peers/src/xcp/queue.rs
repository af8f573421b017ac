//! XCP's queue: what a link gives and takes each round-trip time, and each packet's share of it.
//!
//! Two timers. The control interval `d`, the mean round-trip time of the traffic, ends with new
//! pools of positive and negative feedback; the queue interval, half of the round-trip time
//! without the queue, ends with a new standing queue, the least seen in it. Every departing
//! packet takes its share of both pools. Nothing here knows connections or windows.
//!
//! | rule | source | where |
//! |---|---|---|
//! | d: round trips, each weighed by its packet's size over throughput | ns-2 | `close_control` |
//! | Q: the least queue of a queue interval | ns-2 | `close_standing`, `handle_departure` |
//! | phi = alpha (C - y) - beta Q/d | thesis, eq. II.15; Katabi, 3.5.1 | `Pools::new` |
//! | shuffle = max(0, gamma y - abs(phi)) | Katabi, 3.5.2; ns-2 | `Pools::new` |
//! | a packet's gift: by its size over throughput; its loss: by its size | ns-2 | `Pools::share` |
//! | a smaller wish is kept, and more taken from the negative pool for it | ns-2 | `Pools::share` |
//!
//! `[FIX]` The thesis's eq. II.15 adds a rate and a number of bytes; the queue is divided by `d`.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::{ALPHA, BETA, GAMMA, RTT_MAX, Request};
use crate::{Admission, Note, Packet, Router};

/// The control interval before any packet has named a round-trip time, as in ns-2.
const FIRST_INTERVAL: Span = Span::from_millis(50);
/// The shortest control interval and the shortest queue interval, as in ns-2.
const CONTROL_MIN: Span = Span::from_millis(1);
const QUEUE_MIN: Span = Span::from_millis(2);

/// The controller of one link's queue.
///
/// `[FIX]` ns-2 starts the two timers at random times, so that routers are not in step; here they
/// start with the link, so that a run depends on its arguments alone.
#[derive(Clone, Debug)]
pub struct Queue {
    capacity: Rate,
    control: Interval,
    standing: Interval,
    /// Mean round-trip time of the last control interval, seconds.
    mean_rtt: f64,
    tally: Tally,
    pools: Pools,
    /// Least queue of the last queue interval, and of the present one so far.
    queue: Bytes,
    queue_least: Bytes,
}

/// A timer that has not begun before the capacity is known.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    length: Span,
    end: Option<Time>,
}

/// What arrived in the present control interval.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    bits: f64,
    /// Sum of `size / throughput`: of the time that each packet stands for, seconds.
    time: f64,
    /// The same, each times its round-trip time.
    time_rtt: f64,
}

/// Feedback still to be given in this interval, bit/s, and the rates of giving it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pools {
    pub(super) gives: f64,
    pub(super) takes: f64,
    /// `Cp`: per second of `size / throughput`.
    pub(super) per_time: f64,
    /// `Cn`: per bit.
    pub(super) per_bit: f64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new()
    }
}

impl Queue {
    /// A queue that waits for its link's capacity.
    #[must_use]
    pub fn new() -> Queue {
        Queue {
            capacity: Rate::ZERO,
            control: Interval { length: FIRST_INTERVAL, end: None },
            standing: Interval { length: FIRST_INTERVAL, end: None },
            mean_rtt: FIRST_INTERVAL.as_secs_f64(),
            tally: Tally::default(),
            pools: Pools::default(),
            queue: Bytes::ZERO,
            queue_least: Bytes::ZERO,
        }
    }

    /// The control interval's end: new pools from what arrived.
    fn close_control(&mut self, now: Time) {
        let tally = core::mem::take(&mut self.tally);
        let first = FIRST_INTERVAL.as_secs_f64();
        self.mean_rtt = if tally.time > 0.0 { tally.time_rtt / tally.time } else { first };
        let arrived = tally.bits / self.control.length.as_secs_f64();
        let spare = self.capacity.as_f64() - arrived;
        let queue_bits = self.queue.0 as f64 * 8.0;
        self.pools = Pools::new(spare, arrived, queue_bits / self.mean_rtt, &tally);
        self.control.restart(now, Span::from_secs_f64(self.mean_rtt).max(CONTROL_MIN));
    }

    /// The queue interval's end: the least queue seen in it is the standing queue.
    fn close_standing(&mut self, now: Time, queued: Bytes) {
        self.queue = self.queue_least;
        self.queue_least = queued;
        let empty = Span::from_secs_f64(self.mean_rtt).saturating_sub(queued / self.capacity);
        self.standing.restart(now, (empty / 2).max(QUEUE_MIN));
    }
}

impl Interval {
    fn restart(&mut self, now: Time, length: Span) {
        self.length = length;
        self.end = Some(now + length);
    }

    fn is_over(&self, now: Time) -> bool {
        self.end.is_some_and(|end| end <= now)
    }
}

impl Pools {
    /// The pools of an interval in which the link had `spare` bit/s left (negative: too much came)
    /// beside `arrived` bit/s, while `standing` bit/s would have emptied the queue in one interval.
    fn new(spare: f64, arrived: f64, standing: f64, tally: &Tally) -> Pools {
        if tally.bits == 0.0 || !spare.is_finite() {
            return Pools::default();
        }
        // phi = alpha * (C - y) - beta * Q / d                                           II.15
        let phi = ALPHA * spare - BETA * standing;
        // shuffle = max(0, gamma * y - |phi|)
        let shuffle = (GAMMA * arrived - phi.abs()).max(0.0);
        let gives = phi.max(0.0) + shuffle;
        let takes = (-phi).max(0.0) + shuffle;
        // Without a packet that says its throughput nobody can be given anything.
        let per_time = if tally.time > 0.0 { gives / tally.time } else { 0.0 };
        Pools { gives, takes, per_time, per_bit: takes / tally.bits }
    }

    /// Takes a packet's share of both pools and lowers its wish to it.
    pub(super) fn share(&mut self, request: &mut Request, bits: f64, time: f64) {
        let give = self.gives.min(self.per_time * time);
        let take = self.takes.min(self.per_bit * bits);
        let feedback = give - take;
        let (gave, took) = if request.delta >= feedback {
            request.delta = feedback;
            (give, take)
        } else {
            // The residue rule: a router before us, or the sender, allows less than we would. What
            // it does not take is not lost: more is taken from the negative pool for it.
            // [FIX] ns-2 lets a wish below all that is left to take fill the positive pool instead.
            let took = self.takes.min(take + (feedback - request.delta));
            ((request.delta + took).max(0.0), took)
        };
        self.gives = (self.gives - gave).max(0.0);
        self.takes = (self.takes - took).max(0.0);
        if self.gives == 0.0 {
            self.per_time = 0.0;
        }
        if self.takes == 0.0 {
            self.per_bit = 0.0;
        }
    }
}

/// What of a request is believed: its size over its throughput and its round-trip time, both in
/// seconds and at most [`RTT_MAX`]. `None` for one that is too young to say, or says nonsense.
fn believed(request: &Request, size: Bytes) -> Option<(f64, f64)> {
    if request.rtt == Span::ZERO || request.throughput == Rate::ZERO || request.delta.is_nan() {
        return None;
    }
    let time = (size / request.throughput).min(RTT_MAX);
    Some((time.as_secs_f64(), request.rtt.min(RTT_MAX).as_secs_f64()))
}

impl Router for Queue {
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.capacity = capacity;
        if self.control.end.is_none() {
            self.control.restart(now, FIRST_INTERVAL);
            self.standing.restart(now, FIRST_INTERVAL);
        }
    }

    fn handle_arrival(&mut self, _now: Time, _queued: Bytes, packet: &mut Packet) -> Admission {
        self.tally.bits += packet.size.0 as f64 * 8.0;
        if let Note::Xcp(request) = &packet.note
            && let Some((time, rtt)) = believed(request, packet.size)
        {
            self.tally.time += time;
            self.tally.time_rtt += time * rtt;
        }
        Admission::Pass
    }

    fn handle_departure(&mut self, _now: Time, queued: Bytes, packet: &mut Packet) {
        self.queue_least = self.queue_least.min(queued);
        if let Note::Xcp(request) = &mut packet.note {
            match believed(request, packet.size) {
                Some((time, _)) => self.pools.share(request, packet.size.0 as f64 * 8.0, time),
                None => request.delta = 0.0,
            }
        }
    }

    fn handle_timeout(&mut self, now: Time, queued: Bytes) {
        if self.control.is_over(now) {
            self.close_control(now);
        }
        if self.standing.is_over(now) {
            self.close_standing(now, queued);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.control.end?.min(self.standing.end?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;
    use proptest::prelude::*;

    const LINK: Rate = Rate::from_mbps(80);

    fn packet(throughput: Rate, rtt: Span, delta: f64) -> Packet {
        let note = Note::Xcp(Request { rtt, throughput, delta });
        Packet { size: Bytes(1_000), body: Body::Empty, note }
    }

    fn delta_of(packet: &Packet) -> f64 {
        match packet.note {
            Note::Xcp(request) => request.delta,
            ref other => panic!("the note became {other:?}"),
        }
    }

    fn started() -> Queue {
        let mut queue = Queue::new();
        queue.set_capacity(Time::ZERO, LINK);
        queue
    }

    /// Brings `count` packets of a sender at `throughput` into the first interval, then ends it.
    fn after_one_interval(throughput: Rate, count: u64) -> Queue {
        let mut queue = started();
        for _ in 0..count {
            let mut one = packet(throughput, Span::from_millis(50), f64::INFINITY);
            queue.handle_arrival(Time::ZERO, Bytes::ZERO, &mut one);
        }
        queue.handle_timeout(Time::ZERO + FIRST_INTERVAL, Bytes::ZERO);
        queue
    }

    #[test]
    fn half_a_load_is_given_two_fifths_of_what_is_spare() {
        // 250 packets of 8,000 bits in 50 ms are 40 Mbit/s, half of the link.
        let queue = after_one_interval(Rate::from_mbps(40), 250);
        assert!((queue.pools.gives - 0.4 * 40e6).abs() < 1.0, "{:?}", queue.pools);
        assert_eq!(queue.pools.takes, 0.0, "phi exceeds a tenth of the traffic: no shuffle");
    }

    #[test]
    fn a_full_link_shuffles_a_tenth_of_its_traffic() {
        let queue = after_one_interval(Rate::from_mbps(80), 500);
        assert!((queue.pools.gives - 8e6).abs() < 1.0);
        assert!((queue.pools.takes - 8e6).abs() < 1.0);
    }

    #[test]
    fn a_standing_queue_is_taken_back_within_the_interval() {
        let mut queue = started();
        queue.queue = Bytes(50_000);
        for _ in 0..500 {
            let mut one = packet(LINK, Span::from_millis(50), f64::INFINITY);
            queue.handle_arrival(Time::ZERO, Bytes::ZERO, &mut one);
        }
        queue.close_control(Time::ZERO + FIRST_INTERVAL);
        let phi = -0.226 * 400_000.0 / 0.05;
        assert!((queue.pools.takes - queue.pools.gives + phi).abs() < 1.0);
    }

    #[test]
    fn packets_of_one_interval_share_out_the_whole_pool() {
        let mut queue = after_one_interval(Rate::from_mbps(40), 250);
        let mut sum = 0.0;
        for _ in 0..250 {
            let mut one = packet(Rate::from_mbps(40), Span::from_millis(50), f64::INFINITY);
            queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut one);
            sum += delta_of(&one);
        }
        assert!((sum - 16e6).abs() < 1.0, "{sum}");
        let mut late = packet(Rate::from_mbps(40), Span::from_millis(50), f64::INFINITY);
        queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut late);
        assert_eq!(delta_of(&late), 0.0, "an empty pool gives nothing");
    }

    #[test]
    fn senders_get_equal_gifts_whatever_their_throughput() {
        // A packet of a sender four times slower stands for four times as long: four times as much.
        let mut queue = after_one_interval(Rate::from_mbps(40), 250);
        let mut fast = packet(Rate::from_mbps(40), Span::from_millis(50), f64::INFINITY);
        let mut slow = packet(Rate::from_mbps(10), Span::from_millis(50), f64::INFINITY);
        queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut fast);
        queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut slow);
        assert!((delta_of(&slow) / delta_of(&fast) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_smaller_wish_is_kept_and_its_residue_stays_in_the_positive_pool() {
        let mut pools = Pools { gives: 100.0, takes: 50.0, per_time: 10.0, per_bit: 1.0 };
        let mut request = Request { delta: 2.0, ..Request::default() };
        // The share would be 10 - 1 = 9; the wish is 2: 7 more are taken, so 10 are still given.
        pools.share(&mut request, 1.0, 1.0);
        assert_eq!(request.delta, 2.0);
        assert_eq!((pools.gives, pools.takes), (90.0, 42.0));
        // With the negative pool empty the gift shrinks to the wish.
        let mut pools = Pools { gives: 100.0, takes: 0.0, per_time: 10.0, per_bit: 0.0 };
        pools.share(&mut request, 1.0, 1.0);
        assert_eq!(pools.gives, 98.0);
    }

    #[test]
    fn a_sender_without_a_round_trip_time_is_told_nothing() {
        let mut queue = after_one_interval(Rate::from_mbps(40), 250);
        let mut young = packet(Rate::ZERO, Span::ZERO, f64::INFINITY);
        queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut young);
        assert_eq!(delta_of(&young), 0.0);
    }

    #[test]
    fn the_control_interval_becomes_the_mean_round_trip_time() {
        let mut queue = started();
        for rtt in [20, 100] {
            let mut one = packet(Rate::from_mbps(10), Span::from_millis(rtt), f64::INFINITY);
            queue.handle_arrival(Time::ZERO, Bytes::ZERO, &mut one);
        }
        queue.handle_timeout(Time::ZERO + FIRST_INTERVAL, Bytes::ZERO);
        assert_eq!(queue.control.length, Span::from_millis(60));
        assert_eq!(queue.standing.length, Span::from_millis(30), "no queue: half of it");
    }

    #[test]
    fn traffic_without_a_header_loads_the_link_and_is_left_alone() {
        let mut queue = started();
        for _ in 0..500 {
            let mut other = Packet { size: Bytes(1_000), body: Body::Empty, note: Note::None };
            queue.handle_arrival(Time::ZERO, Bytes::ZERO, &mut other);
            queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut other);
            assert_eq!(other.note, Note::None);
        }
        queue.handle_timeout(Time::ZERO + FIRST_INTERVAL, Bytes::ZERO);
        assert_eq!(queue.pools.per_time, 0.0);
        assert!(queue.pools.takes > 0.0);
    }

    proptest! {
        #[test]
        fn no_header_makes_a_router_give_more_than_its_pool(
            rtt in any::<u64>(), throughput in any::<u64>(), delta in any::<f64>(),
            size in 0..u64::MAX,
        ) {
            let mut queue = after_one_interval(Rate::from_mbps(40), 250);
            let request = Request {
                rtt: Span::from_nanos(rtt),
                throughput: Rate::from_bps(throughput),
                delta,
            };
            let before = queue.pools.gives;
            let mut hostile =
                Packet { size: Bytes(size), body: Body::Empty, note: Note::Xcp(request) };
            queue.handle_arrival(Time::ZERO, Bytes::ZERO, &mut hostile);
            queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut hostile);
            prop_assert!(delta_of(&hostile) <= before);
            prop_assert!(queue.pools.gives >= 0.0 && queue.pools.gives.is_finite());
            prop_assert!(queue.pools.takes >= 0.0 && queue.pools.takes.is_finite());
            queue.handle_timeout(Time::ZERO + FIRST_INTERVAL * 3, Bytes::ZERO);
            prop_assert!(queue.control.length <= RTT_MAX && queue.control.length >= CONTROL_MIN);
            prop_assert!(queue.pools.gives.is_finite() && queue.pools.per_time.is_finite());
        }
    }
}
