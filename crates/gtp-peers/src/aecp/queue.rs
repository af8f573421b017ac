//! AECP's queue: a link's pre-allocation factor, corrected every 0.1 s, paper 3.1, 5.3.
//!
//! The router counts what arrives, looks at its queue at the end of each interval, and writes its
//! factor into every packet whose own is larger. Nothing here knows how many flows there are.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::{Factor, Gains, HEADER_LEN};
use crate::{Admission, Note, Packet, Router};

/// The sampling interval `T2` of the paper (5): 0.1 s.
const SAMPLED_EVERY: Span = Span::from_millis(100);

/// What a router must be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The gains.
    pub gains: Gains,
    /// Bytes on the wire of one packet of data: the unit of rates and queues. What is smaller, as
    /// acknowledgements are, counts by its bytes.
    pub packet: Bytes,
    /// The factor at first, packets per second. Not given in the paper.
    pub initial: f64,
}

impl Default for Config {
    /// The paper's gains and packets of 1,000 bytes (6) beside AECP's header (5.1). The factor
    /// begins at one packet in 50 ms, the rate at which the sources of its figures 7 and 8 begin:
    /// the theorems begin both alike.
    fn default() -> Config {
        let packet = Bytes(1_000 + HEADER_LEN as u64);
        Config { gains: Gains::PAPER, packet, initial: 20.0 }
    }
}

/// The factor after one interval of `interval` seconds, eq. 46 and 49: `load` packets per second
/// arrived and `queued` packets wait at a link of `capacity` packets per second.
///
/// `[FIX]` Bounded to one packet per second and `capacity`. The paper has no bounds, so that an
/// idle link's factor would grow for ever and mean nothing when a flow comes.
#[must_use]
pub fn next_factor(
    factor: f64,
    load: f64,
    queued: f64,
    capacity: f64,
    interval: f64,
    gains: Gains,
) -> f64 {
    let used = (load + (queued - gains.queue) / gains.mend) / capacity;
    let next = factor * libm::exp(gains.beta * interval * (1.0 - used));
    // In this order: a link of less than one packet per second still has a factor.
    next.min(capacity).max(1.0)
}

/// The controller of one link's queue.
#[derive(Clone, Debug)]
pub struct Queue {
    config: Config,
    /// Packets per second.
    capacity: f64,
    factor: f64,
    /// The same as it travels.
    written: Factor,
    arrived: Bytes,
    due: Option<Time>,
}

impl Queue {
    /// A queue that waits for its link's capacity.
    #[must_use]
    pub fn new(config: Config) -> Queue {
        let factor = config.initial.max(1.0);
        let written = Factor::from_packets_per_second(factor);
        Queue { config, capacity: 0.0, factor, written, arrived: Bytes::ZERO, due: None }
    }

    /// The factor now, packets per second.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    fn set_factor(&mut self, factor: f64) {
        self.factor = factor;
        self.written = Factor::from_packets_per_second(factor);
    }

    /// Bytes in units of one packet of data.
    fn packets(&self, bytes: Bytes) -> f64 {
        bytes.0 as f64 / self.config.packet.0.max(1) as f64
    }
}

impl Router for Queue {
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.capacity = capacity.as_f64() / (8.0 * self.config.packet.0.max(1) as f64);
        self.set_factor(self.factor.min(self.capacity).max(1.0));
        self.due.get_or_insert(now + SAMPLED_EVERY);
    }

    fn handle_arrival(&mut self, _now: Time, _queued: Bytes, packet: &mut Packet) -> Admission {
        self.arrived += packet.size;
        Admission::Pass
    }

    fn handle_departure(&mut self, _now: Time, _queued: Bytes, packet: &mut Packet) {
        if let Note::Aecp(carried) = &mut packet.note {
            *carried = (*carried).min(self.written);
        }
    }

    fn handle_timeout(&mut self, now: Time, queued: Bytes) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let interval = SAMPLED_EVERY.as_secs_f64();
        let arrived = core::mem::take(&mut self.arrived);
        let load = self.packets(arrived) / interval;
        let queued = self.packets(queued);
        let gains = self.config.gains;
        self.set_factor(next_factor(self.factor, load, queued, self.capacity, interval, gains));
        self.due = Some(now + SAMPLED_EVERY);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-12
    }

    #[test]
    fn the_law_is_the_papers_equation_49() {
        // r * exp(0.1 * (1 - (30,000 + (60 - 100)/2) / 62,500))
        let next = next_factor(500.0, 30_000.0, 60.0, 62_500.0, 0.1, Gains::PAPER);
        assert!(close(next, 500.0 * libm::exp(0.1 * (1.0 - 29_980.0 / 62_500.0))));
    }

    #[test]
    fn a_full_link_with_the_wanted_queue_keeps_its_factor() {
        assert!(close(next_factor(777.0, 62_500.0, 100.0, 62_500.0, 0.1, Gains::PAPER), 777.0));
    }

    #[test]
    fn an_idle_link_offers_at_most_all_of_itself() {
        let mut factor = 20.0;
        for _ in 0..10_000 {
            factor = next_factor(factor, 0.0, 0.0, 62_500.0, 0.1, Gains::PAPER);
        }
        assert_eq!(factor, 62_500.0);
    }

    #[test]
    fn a_router_measures_in_its_own_packets_and_writes_only_what_is_less() {
        let mut queue = Queue::new(Config { packet: Bytes(1_000), ..Config::default() });
        queue.set_capacity(Time::ZERO, Rate::from_mbps(8));
        let mut packet =
            Packet { size: Bytes(500), body: Body::Empty, note: Note::Aecp(Factor::UNSET) };
        for _ in 0..100 {
            queue.handle_arrival(Time::ZERO, Bytes::ZERO, &mut packet);
        }
        // 100 packets of 500 bytes in 0.1 s are 500 units a second, of 1,000; 200 units wait.
        queue.handle_timeout(Time::ZERO + SAMPLED_EVERY, Bytes(200_000));
        let want = 20.0 * libm::exp(0.1 * (1.0 - (500.0 + 50.0) / 1_000.0));
        assert!(close(queue.factor(), want));
        queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut packet);
        assert_eq!(packet.note, Note::Aecp(Factor::from_packets_per_second(want)));
        packet.note = Note::Aecp(Factor::LEAST);
        queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut packet);
        assert_eq!(packet.note, Note::Aecp(Factor::LEAST));
    }

    proptest! {
        #[test]
        fn the_factor_stays_between_one_packet_and_the_capacity(
            factor in 1.0..1e9, load in 0.0..1e12, queued in 0.0..1e12, capacity in 0.0..1e9,
        ) {
            let next = next_factor(factor, load, queued, capacity, 0.1, Gains::PAPER);
            prop_assert!(next >= 1.0 && next <= capacity.max(1.0));
        }
    }
}
