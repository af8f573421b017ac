//! GTP 2004's laws: single flow control, capacity estimation and max-min scheduling.
//!
//! Source: Wu and Chien, "GTP: group transport protocol for lambda-grids", CCGrid 2004 (G),
//! sections 4.1 to 4.4. All rates are bit/s, `loss` is a ratio, and every function is pure. Who
//! calls them when is the agent's and the ends' affair.
//!
//! Rules:
//! - 4.1 single flow control, each round trip: [`flow_rate`].
//! - 4.2 capacity estimation, each interval: [`Estimator`].
//! - 4.3, Figure 6, max-min among the estimates: [`schedule`].
//! - 4.4 what leaves goes to those that remain: [`absorb`].
//!
//! Departures:
//! - [FIX] The thresholds of 4.2 print `r_loss`, a rate; the loss ratio is meant. At 0.5 % exactly
//!   the loss counts as low.
//! - [FIX] 4.2 tests `D = 0` before it doubles; a negative `D` starts anew as well.
//! - 4.1 bounds only the raise by the target; here the fall is bounded, too. A round trip of which
//!   nothing came, on which it is silent, changes nothing.
//! - 4.2's increment doubles without bound; here it is at most the estimate's own bound.
//! - [FIX] Figure 6, line 3 picks among the flows that are not scheduled; line 7 tests the flow
//!   just looked at.

use alloc::vec::Vec;

/// 4.1: the rate to request for the next round trip. `None` for `loss`: nothing came in this one,
/// and the rate is held.
///
/// Neither branch leaves the rate above the target: a flow with losses whose target was just
/// halved would else stay above it for many round trips.
pub fn flow_rate(request: f64, loss: Option<f64>, target: f64) -> f64 {
    let next = match loss {
        None => request,
        Some(loss) if loss > 0.0 => request * (1.0 - (0.5 * loss).min(0.125)),
        Some(_) => request * 1.02,
    };
    next.min(target)
}

/// 4.1: a flow's request, which follows its target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Single {
    request: f64,
    target: f64,
    joins: bool,
}

impl Single {
    /// `r_req`.
    pub fn request(&self) -> f64 {
        self.request
    }

    /// The target that it follows.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// The next target that is higher is taken as the first one is.
    pub fn join_anew(&mut self) {
        self.joins = true;
    }

    /// Takes over a target; whether the request changes at once. The first target is the first
    /// request, a lower one holds at once, and a higher one is climbed to round by round.
    pub fn follow(&mut self, target: f64) -> bool {
        if target == self.target {
            return false;
        }
        let joins = target > self.target && core::mem::take(&mut self.joins);
        let at_once = joins || self.target == 0.0 || self.request > target;
        self.target = target;
        if at_once {
            self.request = target;
        }
        at_once
    }

    /// The end of a round trip with this loss ratio; `None`: nothing came in it.
    pub fn end_round(&mut self, loss: Option<f64>) {
        if self.target > 0.0 {
            self.request = flow_rate(self.request, loss, self.target);
        }
    }
}

/// 4.2: the allowable increment `D` of a flow's estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimator {
    increment: f64,
}

impl Estimator {
    /// The flow's estimate after an interval in which it had `total` bit/s, lost ones included,
    /// with a target of `target`. `cap` is `min(C_i, R_app, R_send)`.
    pub fn estimate(&mut self, total: f64, loss: f64, target: f64, cap: f64) -> f64 {
        let first = 0.02 * total;
        self.increment = if loss > LOW_LOSS {
            -(0.5 * loss).min(0.2) * total
        } else if loss > 0.0 || total < 0.95 * target || self.increment <= 0.0 {
            first
        } else {
            2.0 * self.increment
        };
        // It doubles without bound where the cap holds; the cap is enough.
        self.increment = self.increment.min(cap);
        (total + self.increment).min(cap)
    }

    /// `D` as it is.
    pub fn increment(&self) -> f64 {
        self.increment
    }
}

/// 4.3, Figure 6: the max-min fair targets for these estimates and this capacity.
pub fn schedule(capacity: f64, estimates: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..estimates.len()).collect();
    order.sort_by(|a, b| estimates[*a].total_cmp(&estimates[*b]));
    let (mut current, mut left) = (capacity, estimates.len());
    let mut targets = alloc::vec![0.0; estimates.len()];
    for flow in order {
        let fair = current / left as f64;
        // From the first estimate at or above the fair share on all flows get the same.
        targets[flow] = estimates[flow].min(fair);
        current -= targets[flow];
        left -= 1;
    }
    targets
}

/// 4.4: the estimates of those that remain when flows with `left` bit/s together have ended.
pub fn absorb(estimates: &mut [f64], left: f64) {
    let sum: f64 = estimates.iter().sum();
    if sum > 0.0 {
        for estimate in estimates {
            *estimate += *estimate * left / sum;
        }
    }
}

/// 4.2: losses up to here do not lower the estimate.
const LOW_LOSS: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_alloc::maxmin::{self, Network, Session};
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs()
    }

    #[test]
    fn the_flow_rate_falls_by_half_the_loss_at_most_an_eighth_and_rises_by_a_fiftieth() {
        assert!(close(flow_rate(400.0, Some(0.1), 500.0), 380.0));
        assert!(close(flow_rate(400.0, Some(0.25), 500.0), 350.0));
        assert!(close(flow_rate(400.0, Some(0.9), 500.0), 350.0));
        assert!(close(flow_rate(400.0, Some(0.0), 500.0), 408.0));
        assert_eq!(flow_rate(495.0, Some(0.0), 500.0), 500.0);
        assert_eq!(flow_rate(400.0, None, 500.0), 400.0);
        assert_eq!(flow_rate(400.0, Some(0.01), 200.0), 200.0);
    }

    #[test]
    fn the_estimate_grows_by_2_4_and_8_per_cent_while_the_target_is_met() {
        // A flow that can give 300: 306, 312, 324, and since 300 < 0.95 * 324 again 306.
        let (mut law, mut target) = (Estimator::default(), 500.0);
        let mut cycle = Vec::new();
        for _ in 0..5 {
            target = law.estimate(300.0, 0.0, target, 1e3);
            cycle.push(libm::round(target) as u64);
        }
        assert_eq!(cycle, [306, 312, 324, 306, 312]);
    }

    #[test]
    fn the_estimate_under_loss() {
        let mut law = Estimator::default();
        assert!(close(law.estimate(500.0, 0.005, 500.0, 1e3), 510.0));
        assert!(close(law.estimate(500.0, 0.1, 500.0, 1e3), 475.0));
        assert!(close(law.estimate(500.0, 0.9, 500.0, 1e3), 400.0));
        // After a negative increment the first positive one is 2 % again.
        assert!(close(law.estimate(500.0, 0.0, 500.0, 1e3), 510.0));
        assert_eq!(law.estimate(500.0, 0.0, 500.0, 505.0), 505.0);
    }

    #[test]
    fn the_papers_example() {
        assert_eq!(schedule(1000.0, &[100.0, 200.0, 500.0, 500.0]), [100.0, 200.0, 350.0, 350.0]);
    }

    #[test]
    fn what_ended_goes_to_those_that_remain_in_proportion() {
        let mut estimates = [100.0, 300.0];
        absorb(&mut estimates, 40.0);
        assert_eq!(estimates, [110.0, 330.0]);
    }

    proptest! {
        /// Figure 6 is max-min with the estimates as demands.
        #[test]
        fn targets_are_max_min_fair(
            estimates in proptest::collection::vec(0.0..1e3f64, 1..20), capacity in 1.0..2e3f64,
        ) {
            let mut network = Network::new(alloc::vec![capacity]).expect("a capacity");
            for demand in &estimates {
                let session = Session { uses: &[0], weight: 1.0, demand: *demand };
                network.add(session).expect("a session");
            }
            let exact = maxmin::solve(&network);
            for (target, exact) in schedule(capacity, &estimates).iter().zip(&exact) {
                prop_assert!((target - exact).abs() < 1e-6, "{target} {exact}");
            }
        }
    }
}
