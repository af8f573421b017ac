//! LambdaStream's laws: rate control, loss differentiation, and what a packet train says.
//!
//! Source: Xiong et al., "LambdaStream" (L), sections 2, 4.1, 4.2 and 4.4. All run at the receiver,
//! and each is a function of what was measured; rates are bit/s, gaps seconds.
//!
//! Rules:
//! - eq. 2: the average packet delay is time passed over sequence numbers passed.
//! - 4.1 differentiation: a loss with that delay near the sending gap, or far from the loss before,
//!   is not congestion; any other lengthens the gap by `K1`.
//! - 4.2 rate control: eq. 4 with the choices of 4.2.2; eqs. 8 and 10 keep each turn within the
//!   last two rates.
//! - 4.4 the train: six groups at rising rates; the rate of the first group that arrives slower
//!   than it was sent is what is available.
//!
//! Departures and choices where L is silent:
//! - [FIX] The pseudo-code's braces give `1 - 1/ratio` to the wrong `if`; here as 4.2.2 says.
//! - [FIX] `m = ceil(L/s)` makes no cut where `s` divides `L`: `floor(L/s) + 1` flows, one above L.
//! - [FIX] `lastseqno` of 4.1 is the number of the packet before; `lostSeqno` is set at each loss.
//! - Equal rates: within 0.5 %. The range of 4.1: 10 %; spacing: 100 packets; `K1`: 5 %.
//! - The breakpoint's rate: that at which its group came, not that at which it was sent. A lone
//!   flow at its rate would else see the step of the train as free for ever.
//! - A group arrives slower than sent where its gaps are 2 % longer: the ratio's threshold.

mod judge;
mod session;

pub use judge::{Arrived, Judge, LEAST_EPOCH};
pub use session::{Listener, Trains};

/// 4.2: the state of a probing phase.
#[derive(Clone, Debug, PartialEq)]
pub struct RateControl {
    /// `L`.
    link: f64,
    k: f64,
    phase: Phase,
}

/// Whether a probing phase is on, and which way its last step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The rate is kept.
    Steady,
    /// The last step was up.
    Up,
    /// The last step was down.
    Down,
}

impl RateControl {
    /// Rate control on a link of `link` bit/s.
    pub fn new(link: f64) -> RateControl {
        RateControl { link, k: 0.0, phase: Phase::Steady }
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// 4.2.3: the next sending rate after an epoch at rate `s` with this mean ratio of receiving
    /// over sending gaps, while `free` bit/s are estimated to be free.
    pub fn update(&mut self, s: f64, ratio: f64, free: f64) -> f64 {
        let next = if ratio > CONGESTED {
            self.k = match self.phase {
                Phase::Steady if ratio > SERIOUS => 1.0 - self.link / (self.flows(s) * s),
                Phase::Steady => 1.0 - 1.0 / ratio,
                // Eq. 8, half of its bound.
                Phase::Up => 0.5 * self.k / (1.0 + self.k),
                Phase::Down => self.k / core::f64::consts::E,
            };
            self.phase = Phase::Down;
            (1.0 - self.k) * s
        } else if free > 0.0 {
            self.k = match self.phase {
                Phase::Steady => free / self.link,
                Phase::Up => self.k / core::f64::consts::E,
                // Eq. 10, half of its bound.
                Phase::Down => 0.5 * self.k / (1.0 - self.k),
            };
            self.phase = Phase::Up;
            (1.0 + self.k) * s
        } else {
            s
        };
        if (next / s - 1.0).abs() < EQUAL {
            (self.phase, self.k) = (Phase::Steady, 0.0);
            return s;
        }
        next
    }

    /// 4.2.2: how many flows there are now, if there were as many equal ones as fit before.
    fn flows(&self, s: f64) -> f64 {
        if s > self.link { 1.0 } else { libm::floor(self.link / s) + 1.0 }
    }
}

/// 4.1: what a gap in the sequence numbers means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A short fault of the receiver, or light congestion: the rate stays.
    Ignored,
    /// Serious congestion or a receiver that cannot follow: the gap grows by [`K1`].
    Counts,
}

/// 4.1: the memory of loss differentiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differentiation {
    last_lost: Option<u64>,
}

impl Differentiation {
    /// Judges the loss that shows when packet `number` comes with this average delay (eq. 2) while
    /// packets leave each `gap`.
    pub fn judge(&mut self, number: u64, delay: f64, gap: f64) -> Loss {
        let near = self.last_lost.is_some_and(|last| number.saturating_sub(last) < SPACING);
        self.last_lost = Some(number);
        let normal = (1.0 - RANGE) * gap < delay && delay < (1.0 + RANGE) * gap;
        if normal || !near { Loss::Ignored } else { Loss::Counts }
    }
}

/// Eq. 2, in seconds.
pub fn average_delay(passed: f64, number: u64, before: u64) -> f64 {
    passed / number.saturating_sub(before).max(1) as f64
}

/// 4.4: the rate of the train's group `n` where the sender's is `s`, on a link of `link` bit/s.
pub fn train_rate(s: f64, n: u64, link: f64) -> f64 {
    s + n as f64 * STEP * link
}

/// 4.4: the rate available to a sender, from the rates at which the groups were sent and came.
/// `None` without groups.
pub fn available(groups: &[(f64, f64)]) -> Option<f64> {
    let slower = |(sent, came): &&(f64, f64)| came * CONGESTED < *sent;
    groups.iter().find(slower).map(|(_, came)| *came).or(groups.last().map(|(sent, _)| *sent))
}

/// 4.2: above this ratio there is congestion.
pub const CONGESTED: f64 = 1.02;
/// 4.2.2: above this one a new flow has come.
pub const SERIOUS: f64 = 1.2;
/// 4.2.3: rates within this are equal.
const EQUAL: f64 = 0.005;
/// 4.1: alpha, th and K1.
const RANGE: f64 = 0.1;
const SPACING: u64 = 100;
/// What a counted loss adds to the gap.
pub const K1: f64 = 0.05;
/// 4.4: packets from one train to the next, of a train, and of its groups; Delta over the link.
pub const PERIOD: u64 = 8_000;
/// Packets of a train.
pub const TRAIN: u64 = 300;
/// Packets of a group.
pub const GROUP: u64 = 50;
const STEP: f64 = 0.1;
/// 2.1: a receiving gap that is so many times the sending gap says nothing.
pub const SPIKE: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const L: f64 = 1e9;

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-12
    }

    #[test]
    fn the_first_step_up_is_the_free_part_of_the_link() {
        // k1(0) = 300/1000.
        assert!(close(RateControl::new(L).update(500e6, 1.0, 300e6), 650e6));
    }

    #[test]
    fn the_first_step_down_is_to_the_fair_share_or_by_the_ratio() {
        // 500 Mbit/s on 1000: three flows now; 900: two; 1720: one.
        assert!(close(RateControl::new(L).update(500e6, 1.5, 0.0), L / 3.0));
        assert!(close(RateControl::new(L).update(900e6, 1.5, 0.0), L / 2.0));
        assert!(close(RateControl::new(L).update(L, 1.5, 0.0), L / 2.0));
        assert!(close(RateControl::new(L).update(1720e6, 1.72, 0.0), L));
        assert!(close(RateControl::new(L).update(1000e6, 1.1, 0.0), 1000e6 / 1.1));
    }

    #[test]
    fn a_step_too_small_ends_the_phase_and_keeps_the_rate() {
        let mut control = RateControl::new(L);
        assert_eq!(control.update(900e6, 1.0, 4e6), 900e6);
        assert_eq!(control.phase(), Phase::Steady);
        assert_eq!(control.update(900e6, 1.01, 0.0), 900e6);
    }

    /// Updates until the rate is within 5 % of 950 Mbit/s and stays, on a link of 1000 that gives
    /// 950: the network's answer is at once and exact.
    fn updates(start: f64) -> usize {
        let (mut control, mut s, top) = (RateControl::new(L), start, 950e6);
        let (mut n, mut last_outside) = (0, 0);
        for _ in 0..200 {
            s = control.update(s, (s / top).max(1.0), (top - s).max(0.0));
            n += 1;
            if (s / top - 1.0).abs() > 0.05 {
                last_outside = n;
            }
        }
        assert!((s / top - 1.0).abs() < 0.02, "{s}");
        last_outside + 1
    }

    #[test]
    fn from_172_megabit_it_takes_14_updates_and_3_from_above() {
        assert_eq!([172e6, 400e6, 1720e6].map(updates), [14, 7, 3]);
        assert_eq!(updates(950e6), 1);
    }

    #[test]
    fn a_lone_loss_or_one_at_the_usual_pace_is_ignored() {
        let gap = 12e-6;
        let mut law = Differentiation::default();
        assert_eq!(law.judge(1_000, 20e-6, gap), Loss::Ignored);
        assert_eq!(law.judge(1_050, 12.5e-6, gap), Loss::Ignored);
        assert_eq!(law.judge(1_090, 20e-6, gap), Loss::Counts);
        assert_eq!(law.judge(1_120, 5e-6, gap), Loss::Counts);
        assert_eq!(law.judge(1_220, 20e-6, gap), Loss::Ignored);
    }

    #[test]
    fn the_average_delay_is_time_over_numbers_passed() {
        assert!(close(average_delay(48e-6, 10, 6), 12e-6));
        assert!(close(average_delay(48e-6, 6, 6), 48e-6));
    }

    #[test]
    fn the_train_finds_where_packets_begin_to_come_slower() {
        assert!(close(train_rate(400e6, 2, L), 600e6));
        let groups = [(400e6, 400e6), (500e6, 499e6), (600e6, 550e6), (700e6, 550e6)];
        assert_eq!(available(&groups), Some(550e6));
        assert_eq!(available(&groups[..2]), Some(500e6));
        assert_eq!(available(&[]), None);
    }

    proptest! {
        /// Eqs. 7 and 9: after a turn the next rate lies strictly between the last two.
        #[test]
        fn a_turn_lands_between_the_last_two_rates(
            s in 50e6..2e9f64, ratio in 1.021..3.0f64, free in 1e6..5e8f64, down_first: bool,
        ) {
            let mut control = RateControl::new(L);
            let turn = |control: &mut RateControl, s: f64, down: bool| {
                if down { control.update(s, ratio, 0.0) } else { control.update(s, 1.0, free) }
            };
            let first = turn(&mut control, s, down_first);
            prop_assume!(first != s);
            let second = turn(&mut control, first, !down_first);
            // Or the turn was too small to make.
            let (low, high) = (s.min(first), s.max(first));
            prop_assert!(low < second && second < high || second == first);
        }
    }
}
