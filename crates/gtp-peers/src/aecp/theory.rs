//! What the paper proves of AECP (4), as functions, with its slips mended.
//!
//! | statement | function |
//! |---|---|
//! | eq. 16: `x = r = C/N`, `q = q0` | [`share`] |
//! | theorem 1: stable whatever the round-trip time: false, see [`Loop::delay_margin`] | [`Loop`] |
//! | theorem 2, eq. 18: time to theta-efficiency | [`efficiency_bounds`] |
//! | theorem 3, eq. 29: time to epsilon-fairness | [`fairness_time`] |
//! | eq. 38 to 43: gains by the symmetrical optimum | [`Loop`], [`super::Gains::of_alpha`] |
//!
//! Rates are in packets per second, times in seconds. The fluid of [`super::fluid`] is what these
//! are tested against.

use core::f64::consts::PI;

use super::Gains;

/// Every flow's rate at rest, eq. 16.
#[must_use]
pub fn share(capacity: f64, flows: f64) -> f64 {
    capacity / flows
}

/// Theorem 2: between what times `flows` flows that begin together at `initial` each first use a
/// share `theta` of `capacity`: `max(t1, t2) < t < t1 + t2`.
///
/// This is eq. 18, for `capacity >> flows * initial` only: `t1` is the approximation of eq. 24,
/// which leaves out `ln(1 - flows * initial / capacity) / beta`. `theta` lies between zero and
/// one, both excluded, and `initial` below `theta * capacity / flows`: beyond that the times are
/// negative or no numbers.
///
/// `[FIX]` The lower bound does not hold for a theta of 0.8 and more: the factor overshoots `C/N`
/// while rates lag behind it, which neither of the proof's extreme cases has. The upper one holds.
#[must_use]
pub fn efficiency_bounds(
    gains: Gains,
    capacity: f64,
    flows: f64,
    initial: f64,
    theta: f64,
) -> (f64, f64) {
    let room = share(capacity, flows) / initial;
    // t1: rates equal to the factor, which grows as a logistic curve; eq. 24, `room >> 1`
    let logistic = libm::log(room * theta / (1.0 - theta)) / gains.beta;
    // t2: the factor at C/N from the start; eq. 26
    let pursuit = libm::log(libm::log(1.0 / room) / libm::log(theta)) / gains.alpha;
    (logistic.max(pursuit), logistic + pursuit)
}

/// Theorem 3: how long until a flow that begins at `initial`, where `flows` others share
/// `capacity`, has a share `epsilon` of what each of them has.
///
/// `[FIX]` From `g' = -alpha * g * ln g` (31) follows `d/dt ln ln g = -alpha`; the printed eq. 32
/// forgets the derivative, and eq. 29 and 33 subtract logarithms inside instead of outside:
/// see [`fairness_time_printed`].
#[must_use]
pub fn fairness_time(alpha: f64, capacity: f64, flows: f64, initial: f64, epsilon: f64) -> f64 {
    let apart = libm::log(share(capacity, flows) / initial);
    libm::log(apart / libm::log(1.0 / epsilon)) / alpha
}

/// Theorem 3 as printed, eq. 29 and 33, for comparison only.
#[must_use]
pub fn fairness_time_printed(
    alpha: f64,
    capacity: f64,
    flows: f64,
    initial: f64,
    epsilon: f64,
) -> f64 {
    libm::log(libm::log(share(capacity, flows) * epsilon / initial)) / alpha
}

/// The loop linearised at its equilibrium, eq. 38: neither capacity nor the number of flows is in
/// it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loop {
    gains: Gains,
}

impl Loop {
    /// The loop of these gains.
    #[must_use]
    pub fn new(gains: Gains) -> Loop {
        Loop { gains }
    }

    /// `|L(jw)|` of `L(s) = alpha*beta*(s + 1/T) / (s^2 * (s + alpha))`.
    #[must_use]
    pub fn magnitude(&self, omega: f64) -> f64 {
        let Gains { alpha, beta, mend, .. } = self.gains;
        let zero = libm::hypot(omega, 1.0 / mend);
        alpha * beta * zero / (omega * omega * libm::hypot(omega, alpha))
    }

    /// The angle of `L(jw)` in radians; two integrators alone are `-pi`.
    #[must_use]
    pub fn phase(&self, omega: f64) -> f64 {
        let Gains { alpha, mend, .. } = self.gains;
        libm::atan(omega * mend) - PI - libm::atan(omega / alpha)
    }

    /// The angular frequency, radians per second, where the magnitude falls through one. It falls
    /// throughout, so there is one.
    #[must_use]
    pub fn crossover(&self) -> f64 {
        let (mut low, mut high) = (1e-9, 1e9);
        for _ in 0..200 {
            let middle = libm::sqrt(low * high);
            if self.magnitude(middle) > 1.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        libm::sqrt(low * high)
    }

    /// How far, in radians, the phase at the crossover is from turning the loop's sign.
    #[must_use]
    pub fn phase_margin(&self) -> f64 {
        PI + self.phase(self.crossover())
    }

    /// The longest delay in seconds that the loop bears.
    ///
    /// `[FIX]` Theorem 1 calls the system stable for every round-trip time. Its proof takes
    /// derivatives as if the delayed factor were the present one. A delay turns the phase by
    /// `omega * delay`, and at more than this it turns the loop's sign.
    #[must_use]
    pub fn delay_margin(&self) -> f64 {
        self.phase_margin() / self.crossover()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_loop_bears_a_delay_of_0_6435_seconds() {
        let paper = Loop::new(Gains::PAPER);
        assert!((paper.crossover() - 1.0).abs() < 1e-9);
        assert!((paper.phase_margin().to_degrees() - 36.870).abs() < 1e-3);
        assert!((paper.delay_margin() - 0.643_501).abs() < 1e-6);
    }

    #[test]
    fn the_gains_are_the_symmetrical_optimum() {
        // Eq. 41 with T0 = 1/alpha, tau = T, K0/Ti = beta/T and K0 = 1: eq. 42 wants tau = 4 T0 and
        // Ti = 8 K0 T0^2. At the optimum the crossover is where the phase margin is largest.
        for alpha in [0.5, 1.0, 2.0, 7.0] {
            let gains = Gains::of_alpha(alpha);
            let inertia = 1.0 / alpha;
            assert!((gains.mend - 4.0 * inertia).abs() < 1e-12);
            assert!((gains.mend / gains.beta - 8.0 * inertia * inertia).abs() < 1e-12);
            let closed = Loop::new(gains);
            let at = closed.crossover();
            assert!((at - alpha / 2.0).abs() < 1e-9);
            assert!(closed.phase(at) > closed.phase(at * 1.1));
            assert!(closed.phase(at) > closed.phase(at * 0.9));
        }
        assert_eq!((Gains::PAPER.beta, Gains::PAPER.mend), (1.0, 2.0));
    }

    #[test]
    fn theorem_3_is_2_seconds_where_the_paper_prints_less_than_one() {
        let args = (2.0, 62_500.0, 10.0, 20.0, 0.9);
        let right = fairness_time(args.0, args.1, args.2, args.3, args.4);
        let printed = fairness_time_printed(args.0, args.1, args.2, args.3, args.4);
        assert!((right - 1.999).abs() < 1e-3, "{right}");
        assert!((printed - 0.865).abs() < 1e-3, "{printed}");
    }

    #[test]
    fn theorem_2_for_one_flow_of_half_a_gigabit() {
        let (low, high) = efficiency_bounds(Gains::PAPER, 62_500.0, 1.0, 20.0, 0.5);
        assert!((low - 8.05).abs() < 5e-3 && (high - 9.27).abs() < 5e-3, "{low} {high}");
    }
}
