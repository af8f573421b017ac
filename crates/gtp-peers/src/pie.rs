//! PIE, RFC 8033: a queue drops by a chance that a controller sets after how long packets wait.
//!
//! | rule | section |
//! |---|---|
//! | the chance moves with the delay's distance to its reference, and its change | 4.2 |
//! | at small chances it moves in small steps, at large ones by 2 % at most | 4.2, 5.5 |
//! | nothing is dropped while a burst is allowed, or hardly anything waits | 4.1, 4.4 |
//! | drops are neither too near to each other nor too far apart | 5.4 |
//! | below a chance of a tenth, packets of senders that heed marks are marked instead | 5.1 |
//!
//! The one idea: the delay is what hurts, so the delay is controlled and not the bytes. The RFC
//! measures it by timestamps or by the rate of departures (5.2); here the link's rate is known, so
//! that what waits over the rate is the delay.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::draw::Draw;
use crate::{Admission, Packet, Router};

/// Parameters of a queue, by the RFC's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// `QDELAY_REF`: the delay that is aimed at.
    pub reference: Span,
    /// `MAX_BURST`: how long after a rest nothing is dropped.
    pub burst: Span,
    /// `T_UPDATE`: time between two updates of the chance.
    pub update: Span,
    /// How the chance follows the delay's distance to its reference, a second.
    pub alpha: f64,
    /// How it follows the delay's change, a second.
    pub beta: f64,
    /// `MEAN_PKTSIZE`: nothing is dropped while two of these or less wait.
    pub packet: Bytes,
}

impl Default for Config {
    /// The RFC's values (4.1, 4.2, 4.4).
    fn default() -> Config {
        Config {
            reference: Span::from_millis(15),
            burst: Span::from_millis(150),
            update: Span::from_millis(15),
            alpha: 0.125,
            beta: 1.25,
            packet: Bytes(1_500),
        }
    }
}

/// The controller of one link's queue.
#[derive(Clone, Debug)]
pub struct Queue {
    config: Config,
    capacity: Rate,
    /// `drop_prob_`.
    chance: f64,
    /// `accu_prob_`: the sum of chances since the last drop.
    sum: f64,
    /// `qdelay_old_`.
    delay: Span,
    /// `burst_allowance_`.
    allowance: Span,
    /// When the chance is updated next.
    due: Time,
    draw: Draw,
}

impl Queue {
    /// A queue of these parameters whose chances follow from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Queue {
        Queue {
            capacity: Rate::UNLIMITED,
            chance: 0.0,
            sum: 0.0,
            delay: Span::ZERO,
            allowance: config.burst,
            due: Time::ZERO + config.update,
            draw: Draw::new(seed),
            config,
        }
    }

    /// The chance by which a packet is dropped now.
    #[must_use]
    pub fn chance(&self) -> f64 {
        self.chance
    }

    /// Section 4.2, each `T_UPDATE`.
    fn update(&mut self, queued: Bytes) {
        let delay = queued / self.capacity;
        let distance = delay.as_secs_f64() - self.config.reference.as_secs_f64();
        let change = delay.as_secs_f64() - self.delay.as_secs_f64();
        let step = self.config.alpha * distance + self.config.beta * change;
        self.chance += tuned(step, self.chance);
        if delay == Span::ZERO && self.delay == Span::ZERO {
            self.chance *= DECAY;
        }
        self.chance = self.chance.clamp(0.0, 1.0);
        // Section 4.4: a burst is allowed anew once there is no congestion.
        self.allowance = self.allowance.saturating_sub(self.config.update);
        let half = self.config.reference / 2;
        if self.chance == 0.0 && delay < half && self.delay < half {
            self.allowance = self.config.burst;
        }
        self.delay = delay;
    }

    /// Section 4.1: whether packets may be dropped at all.
    fn may_drop(&self, queued: Bytes) -> bool {
        let calm = self.delay < self.config.reference / 2 && self.chance < CALM;
        self.allowance == Span::ZERO && !calm && queued.0 > 2 * self.config.packet.0
    }

    /// Section 5.4: by chance, but not soon after a drop, and surely after long without one.
    fn falls(&mut self) -> bool {
        if self.chance == 0.0 {
            self.sum = 0.0;
        }
        self.sum += self.chance;
        if self.sum < SOON {
            return false;
        }
        let falls = self.sum >= LATE || self.draw.unit() < self.chance;
        if falls {
            self.sum = 0.0;
        }
        falls
    }
}

/// What a step of the controller is at a chance: Section 4.2's auto-tuning, and 5.5's cap.
#[must_use]
pub fn tuned(step: f64, chance: f64) -> f64 {
    let found = SCALES.iter().find(|(below, _)| chance < *below);
    let step = step / found.map_or(1.0, |(_, scale)| *scale);
    if chance >= CAPPED { step.min(STEP_MOST) } else { step }
}

/// Section 4.2: below these chances the step is so much smaller.
const SCALES: [(f64, f64); 6] = [
    (0.000_001, 2_048.0),
    (0.000_01, 512.0),
    (0.000_1, 128.0),
    (0.001, 32.0),
    (0.01, 8.0),
    (0.1, 2.0),
];
/// Section 4.2: what is left of the chance where nothing has waited twice in turn.
const DECAY: f64 = 0.98;
/// Section 5.1: below this chance packets of senders that heed marks are marked.
const MARKS: f64 = 0.1;
/// Section 4.1: a chance below which half of the reference delay is no reason to drop.
const CALM: f64 = 0.2;
/// Section 5.4: sums of chances before which nothing, and from which on everything is dropped.
const SOON: f64 = 0.85;
const LATE: f64 = 8.5;
/// Section 5.5: from this chance on a step is at most that.
const CAPPED: f64 = 0.1;
const STEP_MOST: f64 = 0.02;

impl Router for Queue {
    fn set_capacity(&mut self, _now: Time, capacity: Rate) {
        self.capacity = capacity;
    }

    fn handle_arrival(&mut self, _now: Time, queued: Bytes, _packet: &mut Packet) -> Admission {
        match self.may_drop(queued) && self.falls() {
            true if self.chance < MARKS => Admission::Mark,
            true => Admission::Drop,
            false => Admission::Pass,
        }
    }

    fn handle_timeout(&mut self, now: Time, queued: Bytes) {
        while self.due <= now {
            self.due += self.config.update;
            self.update(queued);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Note};

    /// At 8 Mbit/s a kilobyte waits for a millisecond.
    fn queue() -> Queue {
        let mut queue = Queue::new(Config::default(), 1);
        queue.set_capacity(Time::ZERO, Rate::from_mbps(8));
        queue
    }

    fn offer(queue: &mut Queue, now: Time, queued: Bytes) -> Admission {
        let mut packet = Packet { size: Bytes(1_500), body: Body::Empty, note: Note::None };
        queue.handle_arrival(now, queued, &mut packet)
    }

    /// `count` updates that find so much waiting, from the next one on.
    fn updates(queue: &mut Queue, count: u32, queued: Bytes) {
        for _ in 0..count {
            let due = queue.due;
            queue.handle_timeout(due, queued);
        }
    }

    #[test]
    fn the_chance_moves_by_distance_and_change_scaled_by_itself_rfc_8033_4_2() {
        let mut queue = queue();
        // 25 ms: 10 over the reference, and 25 more than before; the least chance's scale.
        updates(&mut queue, 1, Bytes(25_000));
        let first = (0.125 * 0.010 + 1.25 * 0.025) / 2_048.0;
        assert!((queue.chance() - first).abs() < 1e-12, "{}", queue.chance());
        // The same again: no change, and now the chance is between 10^-5 and 10^-4.
        updates(&mut queue, 1, Bytes(25_000));
        let second = first + 0.125 * 0.010 / 128.0;
        assert!((queue.chance() - second).abs() < 1e-12, "{}", queue.chance());
    }

    #[test]
    fn steps_are_scaled_by_six_thresholds_and_capped_from_a_tenth_on_rfc_8033_4_2_and_5_5() {
        let scaled = [
            (0.0, 2_048.0),
            (0.000_005, 512.0),
            (0.000_05, 128.0),
            (0.000_5, 32.0),
            (0.005, 8.0),
            (0.05, 2.0),
        ];
        for (chance, scale) in scaled {
            assert!((tuned(1.0, chance) - 1.0 / scale).abs() < 1e-12, "{chance}");
        }
        assert_eq!([tuned(1.0, 0.1), tuned(0.01, 0.5), tuned(-1.0, 0.5)], [0.02, 0.01, -1.0]);
    }

    #[test]
    fn the_chance_decays_where_nothing_waits_rfc_8033_4_2() {
        let mut queue = queue();
        queue.chance = 0.5;
        updates(&mut queue, 1, Bytes::ZERO);
        let first = (0.5 - 0.125 * 0.015) * 0.98;
        assert!((queue.chance() - first).abs() < 1e-12, "{}", queue.chance());
    }

    #[test]
    fn a_burst_of_150_ms_passes_and_is_allowed_again_after_a_rest_rfc_8033_4_4() {
        let mut queue = queue();
        let drops = |queue: &mut Queue| {
            (0..1_000)
                .filter(|_| offer(queue, Time::ZERO, Bytes(50_000)) == Admission::Drop)
                .count()
        };
        for _ in 0..9 {
            updates(&mut queue, 1, Bytes(50_000));
            queue.chance = 1.0;
            assert_eq!(drops(&mut queue), 0);
        }
        updates(&mut queue, 1, Bytes(50_000));
        queue.chance = 1.0;
        assert!(drops(&mut queue) > 900, "the allowance is used up after ten updates");
        queue.chance = 0.0;
        updates(&mut queue, 2, Bytes::ZERO);
        queue.chance = 1.0;
        assert_eq!(drops(&mut queue), 0);
    }

    #[test]
    fn hardly_anything_waiting_or_half_the_delay_drops_nothing_rfc_8033_4_1() {
        let mut queue = queue();
        (queue.allowance, queue.chance, queue.delay) = (Span::ZERO, 1.0, Span::from_millis(50));
        let drops = |queue: &mut Queue, queued: u64| {
            (0..100).filter(|_| offer(queue, Time::ZERO, Bytes(queued)) == Admission::Drop).count()
        };
        assert_eq!(drops(&mut queue, 3_000), 0);
        assert!(drops(&mut queue, 3_001) > 90);
        (queue.chance, queue.delay) = (0.19, Span::from_micros(7_499));
        assert_eq!(drops(&mut queue, 50_000), 0);
        queue.chance = 0.2;
        assert!(drops(&mut queue, 50_000) > 5);
    }

    #[test]
    fn drops_are_neither_too_near_nor_too_far_apart_rfc_8033_5_4() {
        let mut queue = queue();
        (queue.allowance, queue.chance, queue.delay) = (Span::ZERO, 0.05, Span::from_millis(50));
        let (mut gap, mut shortest, mut longest, mut count) = (0_u32, u32::MAX, 0, 0_u32);
        for _ in 0..100_000 {
            gap += 1;
            if offer(&mut queue, Time::ZERO, Bytes(50_000)) == Admission::Mark {
                (shortest, longest) = (shortest.min(gap), longest.max(gap));
                (gap, count) = (0, count + 1);
            }
        }
        // A sum of 0.85 takes 17 packets of five hundredths, one of 8.5 takes 170.
        assert!((17..=18).contains(&shortest) && longest <= 171, "{shortest} to {longest}");
        assert!(count > 2_000, "{count}");
    }
}
