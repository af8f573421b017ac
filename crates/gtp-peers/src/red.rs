//! RED, Floyd and Jacobson 1993: a queue drops early, by chance, before it is full.
//!
//! | rule | where |
//! |---|---|
//! | the average queue is smoothed at each arrival, and falls while the link idles | [`Queue`] |
//! | below `min` nothing is dropped, up to `max` ever more, to `max_probability` | [`Config`] |
//! | from `max` on: everything, or (gentle, Floyd 2000) ever more up to twice `max` | [`Shape`] |
//! | drops are spread out: the chance grows with the packets passed since the last | [`Queue`] |
//!
//! The one idea: a signal before the queue is full, to few senders at a time, so that they do not
//! slow down together. Compared with drop-tail, which needs no controller. Works on any packet and
//! reads no note; its chances follow from a seed.

use gtp_alloc::{Bytes, Rate, Time};

use crate::draw::Draw;
use crate::{Admission, Packet, Router};

/// What happens to packets while the average is above `max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// The chance goes on from `max_probability` at `max` to one at twice `max`.
    #[default]
    Gentle,
    /// All are dropped.
    Sharp,
}

/// Parameters of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Average queue below which nothing is dropped.
    pub min: Bytes,
    /// Average queue at which the chance is `max_probability`.
    pub max: Bytes,
    /// See `max`.
    pub max_probability: f64,
    /// Weight of the present queue in the average.
    pub weight: f64,
    /// See [`Shape`].
    pub shape: Shape,
    /// A usual packet: by it an idle link counts how many could have gone.
    pub packet: Bytes,
}

impl Config {
    /// The usual weight 0.002 and the gentle shape with a largest chance of 0.1 (ns-2's defaults)
    /// for packets of 1,000 bytes.
    #[must_use]
    pub const fn new(min: Bytes, max: Bytes) -> Config {
        Config {
            min,
            max,
            max_probability: 0.1,
            weight: 0.002,
            shape: Shape::Gentle,
            packet: Bytes(1_000),
        }
    }

    /// The chance of a drop at an average queue of `average` bytes, before it is spread out.
    #[must_use]
    pub fn probability(&self, average: f64) -> f64 {
        let (min, max) = (self.min.0 as f64, self.max.0.max(self.min.0) as f64);
        let most = self.max_probability.clamp(0.0, 1.0);
        if average < min {
            return 0.0;
        }
        if average < max {
            return most * (average - min) / (max - min); // Section 4.
        }
        match self.shape {
            Shape::Gentle if average < 2.0 * max => most + (1.0 - most) * (average - max) / max,
            Shape::Gentle | Shape::Sharp => 1.0,
        }
    }
}

/// The controller of one link's queue.
#[derive(Clone, Debug)]
pub struct Queue {
    config: Config,
    capacity: Rate,
    average: f64,
    /// Since when nothing has waited; `None` while something does.
    idle_since: Option<Time>,
    /// Packets that passed since the last drop, while drops were possible.
    passed: u64,
    draw: Draw,
}

impl Queue {
    /// A queue of these parameters whose chances follow from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Queue {
        Queue {
            config,
            capacity: Rate::ZERO,
            average: 0.0,
            idle_since: Some(Time::ZERO),
            passed: 0,
            draw: Draw::new(seed),
        }
    }

    /// The smoothed queue in bytes.
    #[must_use]
    pub fn average(&self) -> f64 {
        self.average
    }

    /// The average at an arrival that finds `queued` bytes.
    fn smooth(&mut self, now: Time, queued: Bytes) {
        let weight = self.config.weight.clamp(0.0, 1.0);
        if let Some(since) = self.idle_since.take() {
            // Section 4: as if so many packets had found the queue empty.
            let each = (self.config.packet / self.capacity).as_nanos().max(1);
            let could = now.since(since).as_nanos() / each;
            self.average *= libm::pow(1.0 - weight, could as f64);
        }
        self.average += weight * (queued.0 as f64 - self.average); // Section 4.
    }
}

impl Router for Queue {
    fn set_capacity(&mut self, _now: Time, capacity: Rate) {
        self.capacity = capacity;
    }

    fn handle_arrival(&mut self, now: Time, queued: Bytes, _packet: &mut Packet) -> Admission {
        self.smooth(now, queued);
        let chance = self.config.probability(self.average);
        if chance <= 0.0 {
            self.passed = 0;
            return Admission::Pass;
        }
        // Section 4, p / (1 - passed * p): the gap between drops is even from 1 to 1/p.
        let left = 1.0 - self.passed as f64 * chance;
        let spread = if left > 0.0 { chance / left } else { 1.0 };
        if self.draw.unit() < spread {
            self.passed = 0;
            // RFC 3168, section 7: if the average exceeds the upper threshold, packets are dropped,
            // even if their senders heed marks.
            return if chance < 1.0 { Admission::Mark } else { Admission::Drop };
        }
        self.passed += 1;
        Admission::Pass
    }

    fn handle_departure(&mut self, now: Time, queued: Bytes, _packet: &mut Packet) {
        self.idle_since = (queued == Bytes::ZERO).then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Note};
    use gtp_alloc::Span;

    const FIFTY_TO_150: Config = Config::new(Bytes(50_000), Bytes(150_000));

    fn packet() -> Packet {
        Packet { size: Bytes(1_000), body: Body::Empty, note: Note::None }
    }

    #[test]
    fn the_chance_rises_in_three_straight_lines() {
        let chance = |average| FIFTY_TO_150.probability(average);
        assert_eq!([0.0, 49_999.0, 50_000.0].map(chance), [0.0; 3]);
        assert!((chance(100_000.0) - 0.05).abs() < 1e-12);
        assert!((chance(150_000.0) - 0.1).abs() < 1e-12);
        assert!((chance(225_000.0) - 0.55).abs() < 1e-12);
        assert_eq!([300_000.0, 1e12].map(chance), [1.0; 2]);
        let sharp = Config { shape: Shape::Sharp, ..FIFTY_TO_150 };
        assert!(sharp.probability(149_999.0) < 0.1);
        assert_eq!(sharp.probability(150_000.0), 1.0);
    }

    #[test]
    fn drops_come_at_the_rate_of_the_curve_and_never_far_apart() {
        // At a steady chance p the gap is even from 1 to 1/p: its mean is (1 + 1/p) / 2.
        let mut queue = Queue::new(Config { weight: 1.0, ..FIFTY_TO_150 }, 1);
        queue.set_capacity(Time::ZERO, Rate::from_mbps(100));
        let (mut gap, mut gaps, mut longest) = (0_u32, 0_u32, 0_u32);
        for _ in 0..100_000 {
            queue.idle_since = None;
            gap += 1;
            if queue.handle_arrival(Time::ZERO, Bytes(100_000), &mut packet()) == Admission::Mark {
                longest = longest.max(gap);
                gaps += 1;
                gap = 0;
            }
        }
        assert!(longest <= 20);
        let mean = 100_000.0 / f64::from(gaps);
        assert!((mean - 10.5).abs() < 0.2, "{mean}");
    }

    #[test]
    fn one_burst_moves_the_average_little() {
        let mut queue = Queue::new(FIFTY_TO_150, 1);
        queue.set_capacity(Time::ZERO, Rate::from_mbps(100));
        for waiting in 0..100 {
            let admission = queue.handle_arrival(Time::ZERO, Bytes(waiting * 1_000), &mut packet());
            assert_eq!(admission, Admission::Pass);
        }
        assert!(queue.average() < 10_000.0);
    }

    #[test]
    fn the_average_falls_while_the_link_idles() {
        let mut queue = Queue::new(FIFTY_TO_150, 1);
        queue.set_capacity(Time::ZERO, Rate::from_mbps(8));
        queue.average = 100_000.0;
        queue.handle_departure(Time::ZERO, Bytes::ZERO, &mut packet());
        // One packet a millisecond: 1,000 could have gone.
        queue.handle_arrival(Time::ZERO + Span::from_secs(1), Bytes::ZERO, &mut packet());
        let want = 100_000.0 * libm::pow(0.998, 1_001.0);
        assert!((queue.average() - want).abs() < 1e-6);
    }

    #[test]
    fn senseless_parameters_still_give_chances() {
        let odd = Config { weight: f64::NAN, max_probability: 7.0, ..FIFTY_TO_150 };
        for average in [0.0, 6e4, 1e9] {
            assert!((0.0..=1.0).contains(&odd.probability(average)));
        }
        let crossed = Config::new(Bytes(10), Bytes(5));
        assert_eq!([9.0, 10.0, 20.0].map(|at| crossed.probability(at)), [0.0, 0.1, 1.0]);
    }
}
