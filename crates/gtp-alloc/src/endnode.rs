//! The thesis's end-node law: expected rates from measured rates, at a source or a sink alike.
//!
//! Thesis VI.2.C to VI.2.E, Algorithm 2 (sink) and Algorithm 3 (source), which are one function.
//! A node serves its slowest session first. Each session slower than its target rate, an equal
//! part of what is left, is raised a step towards it; from the first one that is not, all the
//! rest get the target rate. The signature admits only what the thesis lets a node know: its
//! capacity and the average rate of each of its sessions over its last control interval. No
//! demands, no peers, no time.
//!
//! Departures are marked `[FIX]` where the print is wrong or silent.

use crate::units::Rate;
use alloc::vec::Vec;

/// Parameters of the law, equal at all nodes or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Adaptation step size, in (0, 1): the part of the distance to the target taken in one
    /// control interval.
    pub alpha: f64,
    /// Smallest step, in (0, 1), as a part of the step from zero.
    pub beta: f64,
    /// Whether a step may pass the target.
    pub cap_at_target: CapAtTarget,
}

/// Whether the last small step of a session stops at its target rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapAtTarget {
    /// As printed: a session measured just below its target is given up to `1 + alpha beta` of
    /// it, so rates ripple for ever.
    No,
    /// `[FIX]` `min(x + dx, x_f)`: rates settle exactly, and no slower.
    Yes,
}

impl Params {
    /// Thesis, Table VII.1: the simulations of chapter VII.
    pub const TABLE_VII_1: Params =
        Params { alpha: 0.15, beta: 0.2, cap_at_target: CapAtTarget::No };
    /// The values of chapters VIII and IX, there called default too.
    pub const CHAPTER_VIII: Params =
        Params { alpha: 0.1, beta: 0.2, cap_at_target: CapAtTarget::No };
    /// For use rather than reproduction: [`Params::CHAPTER_VIII`], capped at the target.
    pub const DEFAULT: Params = Params { alpha: 0.1, beta: 0.2, cap_at_target: CapAtTarget::Yes };

    /// Whether alpha and beta are inside (0, 1), for which the thesis proves its claims.
    pub fn is_valid(&self) -> bool {
        let inside = |x: f64| x > 0.0 && x < 1.0;
        inside(self.alpha) && inside(self.beta)
    }
}

/// Rates are whole bit/s. One that equals its target may be read this much below it, and each
/// slower one, read too low likewise, adds its part to the target.
const GRAIN_BPS: f64 = 1.0;
/// Two rates this near, relatively, are equal. `[FIX]` Without it rounding alone can make a
/// settled session take another last-minute step (0.7 against 1 - 0.1 - 0.1 - 0.1).
const NEAR: f64 = 1e-9;

/// Expected rates of a node's sessions for its next control interval, written to `expected`.
///
/// `measured` are average sending rates over the interval that ends now: at a sink, what was
/// received plus what was lost (VI.2.A). Among sessions measured equal, the earlier in the slice
/// is served first; from idle this decides who starts fastest, so let the order be arbitrary
/// (by session number, say) and not something that a session can choose.
///
/// Their sum can exceed the capacity. `[FIX]` VI.2.F bounds the excess by `alpha C`, which holds
/// for two sessions only; the tight bound is `alpha C (H_K - 1 + beta)` for K sessions, with
/// harmonic number `H_K` (without the beta term if capped at the target).
///
/// # Panics
/// If the slices differ in length.
pub fn expected_rates(p: &Params, capacity: Rate, measured: &[Rate], expected: &mut [Rate]) {
    assert_eq!(measured.len(), expected.len(), "one expected rate for each measured one");
    let (mut few, mut many) = ([0; FEW], Vec::new());
    let order = in_order(measured, &mut few, &mut many);
    let mut remaining = capacity.as_f64(); // C^v - sum of determined sessions' rates, eq. VI.3
    let mut undetermined = &*order;
    // [FIX] Line 5 of both algorithms prints "expected rate not 0" for "undetermined"; and
    // Algorithm 3 prints x_j(t) there for the measured rate. A slice of the undetermined also
    // spares the sentinel.
    while let Some((&place, slower)) = undetermined.split_first() {
        let k = session(place);
        let target = remaining / undetermined.len() as f64; // line 4, eq. VI.3
        let average = measured[k].as_f64();
        let grain = GRAIN_BPS * measured.len() as f64 / undetermined.len() as f64;
        if reaches(average, target, grain) {
            break; // line 12
        }
        expected[k] = Rate::from_f64(raised(p, average, target));
        remaining -= average; // eq. VI.3: the measured rate, not the expected one (VI.2.F)
        undetermined = slower;
    }
    // Lines 13 to 17, with the target of the pass that ended the loop.
    let target = remaining / undetermined.len() as f64;
    for &place in undetermined {
        expected[session(place)] = Rate::from_f64(target);
    }
}

/// Sessions of a node that are put in order without memory of its own.
const FEW: usize = 32;

/// The sessions in the order of their measured rates, equal ones in the slice's: each a number, the
/// rate above and the session below.
fn in_order<'a>(
    measured: &[Rate],
    few: &'a mut [u128; FEW],
    many: &'a mut Vec<u128>,
) -> &'a mut [u128] {
    let places = measured.iter().zip(0u64..);
    let places = places.map(|(rate, k)| u128::from(rate.as_bps()) << 64 | u128::from(k));
    let order = match few.get_mut(..measured.len()) {
        Some(few) => {
            few.iter_mut().zip(places).for_each(|(slot, place)| *slot = place);
            few
        }
        None => {
            many.extend(places);
            many.as_mut_slice()
        }
    };
    order.sort_unstable();
    order
}

/// Which session a number of [`in_order`] is.
fn session(place: u128) -> usize {
    place as u64 as usize
}

/// Line 6, with the tolerance that whole bits and rounding need.
fn reaches(average: f64, target: f64, grain: f64) -> bool {
    // The first comparison alone decides between infinities.
    average >= target || average >= target - (target * NEAR).max(grain)
}

/// Lines 7 to 10: one step from the measured average towards the target.
fn raised(p: &Params, average: f64, target: f64) -> f64 {
    let step = p.alpha * (target - average); // line 7
    let step = step.max(p.beta * p.alpha * target); // line 8: last-minute speed
    let step = step.min(p.alpha * target); // line 9: binds only if beta > 1
    match p.cap_at_target {
        CapAtTarget::No => average + step, // line 10
        CapAtTarget::Yes => (average + step).min(target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn run(p: &Params, capacity: u64, measured: &[u64]) -> Vec<u64> {
        let measured: Vec<Rate> = measured.iter().map(|&r| Rate::from_bps(r)).collect();
        let mut expected = vec![Rate::ZERO; measured.len()];
        expected_rates(p, Rate::from_bps(capacity), &measured, &mut expected);
        expected.iter().map(|r| r.as_bps()).collect()
    }

    #[test]
    fn from_idle_sessions_get_alpha_c_over_k_then_over_fewer_in_tie_order() {
        let got = run(&Params::CHAPTER_VIII, 600_000, &[0, 0, 0]);
        assert_eq!(got, [20_000, 30_000, 60_000]);
    }

    #[test]
    fn sessions_above_the_target_share_what_the_slow_leave() {
        let got = run(&Params::CHAPTER_VIII, 1_000, &[700, 100, 600]);
        // 100 < 333.3: raised by 0.1 x 233.3; the rest get (1000 - 100) / 2.
        assert_eq!(got, [450, 123, 450]);
    }

    #[test]
    fn a_session_near_its_target_takes_the_smallest_step() {
        let one = 1_000_000;
        assert_eq!(run(&Params::CHAPTER_VIII, one, &[990_000]), [1_010_000]);
        assert_eq!(run(&Params::DEFAULT, one, &[990_000]), [1_000_000]);
    }

    #[test]
    fn a_session_one_bit_below_its_target_counts_as_at_it() {
        assert_eq!(run(&Params::CHAPTER_VIII, 1_000, &[333, 333, 333]), [333, 333, 333]);
    }

    #[test]
    fn no_capacity_gives_nothing_and_no_limit_gives_everything() {
        assert_eq!(run(&Params::DEFAULT, 0, &[0, 5]), [0, 0]);
        let all = u64::MAX;
        assert_eq!(run(&Params::DEFAULT, all, &[0, 5, all]), [all, all, all]);
        assert_eq!(run(&Params::DEFAULT, 10, &[]), [0u64; 0]);
    }

    #[test]
    fn a_lone_session_starts_in_exponential_then_linear_steps() {
        // ceil(ln 0.2 / ln 0.975) = 64 exponential steps, then about 1/alpha linear ones: 10 s
        // at 100 ms a step (VI.2.F asks the question, chapter VII answers it).
        let p = Params { alpha: 0.025, ..Params::CHAPTER_VIII };
        let capacity = 1_000_000_000;
        let mut rate = 0;
        let mut steps = 0;
        while rate < capacity {
            rate = run(&p, capacity, &[rate])[0];
            steps += 1;
        }
        assert!((102..=105).contains(&steps), "{steps} steps");
    }
}
