//! VCP's queue: what share of its target a link was used to in the last 200 ms.
//!
//! Two timers. Every 10 ms the queue is sampled; every 200 ms the bytes that arrived, half of the
//! smoothed mean queue beside them, give the load factor and its range. Packets leave with the
//! higher of their range and the link's. Nothing here knows connections.
//!
//! The authors' ns-2 code, version 0.1, judges what was measured otherwise than their paper says.
//! AECP 2010 compares with VCP in ns-2, and so, it is to be supposed, with this:
//!
//! | | paper | code |
//! |---|---|---|
//! | target | 0.98 | moves so that a mean load is reached, up to 0.999; begins at 0.95 |
//! | the queue counts | by a half, smoothed | by a thirty-second, unsmoothed |
//! | the load factor is | a number | cut to whole hundredths, and one hundredth more |
//! | acknowledgments | wait their turn | leave before everything else; a matter of the link's |
//!
//! Two departures from the code: of its mean loads to aim at, one for each power of ten of the
//! link's rate, here is the one for 66 to 660 Mbit/s; and at a mean load that is just what is aimed
//! at, the code's target stays and ours steps down.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::{Load, MEASURED_OVER};
use crate::{Admission, Note, Packet, Router};

/// The share of its capacity that a link is to be used to: the VCP paper's value.
pub const TARGET: f64 = 0.98;

/// How much a standing byte counts beside one that arrives: `kappa_q`.
const QUEUE_WEIGHT: f64 = 0.5;
/// How often the queue is looked at.
const SAMPLED_EVERY: Span = Span::from_millis(10);
/// Weight of the newest mean queue in the smoothed one.
const SMOOTHING: f64 = 0.25;

/// What is left of the mean queue in the code: two shifts by two bits, one after the other.
const CODED_STANDING: f64 = 1.0 / 16.0;
/// The code's first target, and how low and high it may move.
const CODED_TARGET: (f64, f64, f64) = (0.95, 0.1, 0.999);
/// After how many measurements the code moves its target.
const CODED_MOVES_EVERY: u32 = 10;
/// The mean load that the code aims at over 66 to 660 Mbit/s, and by how much it moves its target
/// towards that.
const CODED_AIM: (f64, f64) = (0.975, 0.003);

/// How a queue judges what it has measured.
#[derive(Clone, Copy, Debug)]
enum Judges {
    AsPaper,
    /// With the sum and the number of loads since the target was last moved.
    AsCode {
        sum: f64,
        count: u32,
    },
}

/// The controller of one link's queue.
#[derive(Clone, Debug)]
pub struct Queue {
    judges: Judges,
    target: f64,
    capacity: Rate,
    /// When the next sample and the next measurement are due; `None` before the link is known.
    due: Option<(Time, Time)>,
    arrived: Bytes,
    sampled: f64,
    samples: u32,
    /// Smoothed mean queue, bytes.
    standing: f64,
    factor: f64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new()
    }
}

impl Queue {
    /// A queue with the paper's target.
    #[must_use]
    pub fn new() -> Queue {
        Queue::with_target(TARGET)
    }

    /// A queue whose link is to be used to a share of `target`, taken as at least a thousandth and
    /// at most one.
    #[must_use]
    pub fn with_target(target: f64) -> Queue {
        Queue {
            judges: Judges::AsPaper,
            target: target.clamp(1e-3, 1.0),
            capacity: Rate::ZERO,
            due: None,
            arrived: Bytes::ZERO,
            sampled: 0.0,
            samples: 0,
            standing: 0.0,
            factor: 0.0,
        }
    }

    /// A queue that judges as the authors' ns-2 code does over a link of 66 to 660 Mbit/s; see the
    /// module's head.
    #[must_use]
    pub fn as_coded() -> Queue {
        let judges = Judges::AsCode { sum: 0.0, count: 0 };
        Queue { judges, ..Queue::with_target(CODED_TARGET.0) }
    }

    /// The share of the link that is aimed at now.
    #[must_use]
    pub fn target(&self) -> f64 {
        self.target
    }

    /// The range that packets leave with.
    #[must_use]
    pub fn load(&self) -> Load {
        Load::of(self.factor)
    }

    fn sample(&mut self, queued: Bytes) {
        self.sampled += queued.0 as f64;
        self.samples += 1;
    }

    fn measure(&mut self) {
        let mean = self.sampled / f64::from(self.samples.max(1));
        match self.judges {
            Judges::AsPaper => self.standing += SMOOTHING * (mean - self.standing),
            Judges::AsCode { .. } => self.standing = CODED_STANDING * mean,
        }
        let demand = self.arrived.0 as f64 + QUEUE_WEIGHT * self.standing;
        // rho = (lambda + kappa_q * q) / (gamma * C * t_rho), the VCP paper's equation 7
        let room = self.target * self.capacity.as_f64() / 8.0 * MEASURED_OVER.as_secs_f64();
        self.factor = if demand == 0.0 { 0.0 } else { demand / room };
        if let Judges::AsCode { sum, count } = self.judges {
            let load = self.factor * self.target;
            self.factor = (libm::floor(100.0 * self.factor) + 1.0) / 100.0;
            self.move_target(sum + load, count + 1);
        }
        self.arrived = Bytes::ZERO;
        self.sampled = 0.0;
        self.samples = 0;
    }

    /// A step towards the target with which the mean load is what is aimed at.
    fn move_target(&mut self, sum: f64, count: u32) {
        self.judges = Judges::AsCode { sum, count };
        if count < CODED_MOVES_EVERY {
            return;
        }
        self.judges = Judges::AsCode { sum: 0.0, count: 0 };
        let (aim, step) = CODED_AIM;
        let (_, least, most) = CODED_TARGET;
        let mean = sum / f64::from(count);
        self.target = (self.target + if mean < aim { step } else { -step }).clamp(least, most);
    }
}

impl Router for Queue {
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.capacity = capacity;
        self.due.get_or_insert((now + SAMPLED_EVERY, now + MEASURED_OVER));
    }

    fn handle_arrival(&mut self, _now: Time, _queued: Bytes, packet: &mut Packet) -> Admission {
        self.arrived += packet.size;
        Admission::Pass
    }

    fn handle_departure(&mut self, _now: Time, _queued: Bytes, packet: &mut Packet) {
        if let Note::Vcp(load) = &mut packet.note {
            *load = self.load().max(*load);
        }
    }

    fn handle_timeout(&mut self, now: Time, queued: Bytes) {
        let Some((sample, measure)) = self.due else { return };
        if sample <= now {
            self.sample(queued);
            self.due = Some((now + SAMPLED_EVERY, measure));
        }
        if measure <= now {
            self.measure();
            self.due = Some((now + SAMPLED_EVERY, now + MEASURED_OVER));
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.due.map(|(sample, measure)| sample.min(measure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;

    const LINK: Rate = Rate::from_mbps(80);

    fn packet(load: Load) -> Packet {
        Packet { size: Bytes(1_000), body: Body::Empty, note: Note::Vcp(load) }
    }

    /// A queue that has measured `packets` of 1,000 bytes in 200 ms while `queued` bytes waited.
    fn measured(packets: u32, queued: Bytes) -> Queue {
        let mut queue = Queue::new();
        queue.set_capacity(Time::ZERO, LINK);
        for _ in 0..packets {
            queue.handle_arrival(Time::ZERO, Bytes::ZERO, &mut packet(Load::Low));
        }
        while let Some(due) = queue.poll_timeout().filter(|due| *due <= Time::ZERO + MEASURED_OVER)
        {
            queue.handle_timeout(due, queued);
        }
        queue
    }

    #[test]
    fn the_load_is_what_arrived_over_what_the_target_has_room_for() {
        // 2,000 packets fill 80 Mbit/s for 200 ms; the target has room for 1,960.
        assert_eq!(measured(1_567, Bytes::ZERO).load(), Load::Low);
        assert_eq!(measured(1_568, Bytes::ZERO).load(), Load::High);
        assert_eq!(measured(1_959, Bytes::ZERO).load(), Load::High);
        assert_eq!(measured(1_960, Bytes::ZERO).load(), Load::Over);
        assert_eq!(measured(0, Bytes::ZERO).load(), Load::Low);
    }

    #[test]
    fn a_standing_queue_counts_by_half_and_smoothed() {
        // An eighth of 320 packets: 40, which lifts 1,920 to the 1,960 that are over.
        assert_eq!(measured(1_920, Bytes(319_000)).load(), Load::High);
        assert_eq!(measured(1_920, Bytes(321_000)).load(), Load::Over);
    }

    /// The code's queue over 80 Mbit/s after `rounds` measurements of this.
    fn coded(packets: u32, queued: Bytes, rounds: u32) -> Queue {
        let mut queue = Queue::as_coded();
        queue.set_capacity(Time::ZERO, LINK);
        for round in 1..=rounds {
            for _ in 0..packets {
                queue.handle_arrival(Time::ZERO, Bytes::ZERO, &mut packet(Load::Low));
            }
            let end = Time::ZERO + MEASURED_OVER * u64::from(round);
            while let Some(due) = queue.poll_timeout().filter(|due| *due <= end) {
                queue.handle_timeout(due, queued);
            }
        }
        queue
    }

    #[test]
    fn the_code_is_over_from_99_hundredths_of_its_target_and_low_below_79() {
        // Its target is 0.95: 1,900 packets of 2,000.
        assert_eq!(coded(1_500, Bytes::ZERO, 1).load(), Load::Low);
        assert_eq!(coded(1_502, Bytes::ZERO, 1).load(), Load::High);
        assert_eq!(coded(1_880, Bytes::ZERO, 1).load(), Load::High);
        assert_eq!(coded(1_882, Bytes::ZERO, 1).load(), Load::Over);
    }

    #[test]
    fn the_code_counts_a_thirty_second_of_the_queue() {
        assert_eq!(coded(1_861, Bytes(600_000), 1).load(), Load::High);
        assert_eq!(coded(1_861, Bytes(660_000), 1).load(), Load::Over);
    }

    #[test]
    fn the_code_moves_its_target_until_the_mean_load_is_what_it_aims_at() {
        let close = |queue: Queue, want: f64| assert!((queue.target() - want).abs() < 1e-12);
        close(coded(1_900, Bytes::ZERO, 9), 0.95);
        close(coded(1_900, Bytes::ZERO, 10), 0.953);
        close(coded(1_960, Bytes::ZERO, 10), 0.947);
        close(coded(1_900, Bytes::ZERO, 400), 0.999);
    }

    #[test]
    fn a_packet_keeps_the_highest_load_of_its_path() {
        let mut calm = measured(0, Bytes::ZERO);
        let mut busy = measured(1_800, Bytes::ZERO);
        let mut one = packet(Load::Low);
        busy.handle_departure(Time::ZERO, Bytes::ZERO, &mut one);
        assert_eq!(one.note, Note::Vcp(Load::High));
        calm.handle_departure(Time::ZERO, Bytes::ZERO, &mut one);
        assert_eq!(one.note, Note::Vcp(Load::High));
    }

    #[test]
    fn a_link_without_capacity_is_over_as_soon_as_anything_comes() {
        let mut queue = Queue::new();
        queue.set_capacity(Time::ZERO, Rate::ZERO);
        queue.handle_arrival(Time::ZERO, Bytes::ZERO, &mut packet(Load::Low));
        queue.measure();
        assert_eq!(queue.load(), Load::Over);
    }
}
