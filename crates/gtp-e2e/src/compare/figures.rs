//! What the thesis reads off a run: shares, when they are reached, and the distance from them.
//!
//! The same quantities are read off simulated runs for the papers' entries, over the same spans
//! and bins, so that one criterion can judge both.

use serde::Serialize;

use super::{BAND, BIN, Phase, Run, Scenario};

/// At most this many last seconds of a phase count as settled.
const LAST: f64 = 3.0;
/// Length of a mean of the distance, in seconds.
const MEAN: f64 = 1.0;

/// A run in figures. A phase is a stretch in which the same sessions live.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// By phase and session that lives: the mean rate in the phase's last 3 s (its last half if
    /// that is less), as a part of its share.
    pub share: Vec<f64>,
    /// By session: seconds from its start to the first bin with half its first share; not a number
    /// if it never had that.
    pub half_s: Vec<f64>,
    /// By session: the same of 95 %.
    pub reach_s: Vec<f64>,
    /// In the first phase, by second: the mean Euclidean distance of the rates from their shares,
    /// as a part of the distance from no rates at all.
    pub distance: Vec<f64>,
    /// By phase: the longest time in seconds in which all are within 5 % of their shares.
    pub together_s: Vec<f64>,
}

impl Run {
    /// The run in figures.
    pub fn figures(&self, scenario: &Scenario) -> Figures {
        let rates = self.trajectories(scenario).rates;
        let phases = scenario.phases();
        let read = |phase: &Phase| {
            let shares = scenario.shares(phase).unwrap_or_default();
            phase.live.iter().copied().zip(shares).collect::<Vec<_>>()
        };
        let shares: Vec<_> = phases.iter().map(read).collect();
        let reached = |part: f64| {
            let session =
                |i: usize| first_at(&rates[i], scenario.lives[i].0, part, &phases, &shares, i);
            (0..rates.len()).map(session).collect::<Vec<_>>()
        };
        let spans = || phases.iter().map(|phase| phase.span).zip(&shares);
        Figures {
            share: spans().flat_map(|(span, shares)| settled(&rates, span, shares)).collect(),
            half_s: reached(0.5),
            reach_s: reached(0.95),
            distance: spans()
                .next()
                .map_or_else(Vec::new, |(span, of)| distances(&rates, span, of)),
            together_s: spans().map(|(span, shares)| together(&rates, span, shares)).collect(),
        }
    }
}

/// The bins of a span.
fn bins(rates: &[f64], (from, until): (f64, f64)) -> &[f64] {
    let at = |t: f64| ((t / BIN).round() as usize).min(rates.len());
    &rates[at(from)..at(until)]
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

fn settled(rates: &[Vec<f64>], span: (f64, f64), shares: &[(usize, f64)]) -> Vec<f64> {
    let from = (span.1 - LAST).max(0.5 * (span.0 + span.1));
    shares.iter().map(|&(i, share)| mean(bins(&rates[i], (from, span.1))) / share).collect()
}

/// Seconds from a session's start to the first bin with a part of its share in its first phase.
fn first_at(
    rates: &[f64],
    start: f64,
    part: f64,
    phases: &[Phase],
    shares: &[Vec<(usize, f64)>],
    session: usize,
) -> f64 {
    let own = phases.iter().zip(shares).find_map(|(phase, shares)| {
        let share = shares.iter().find(|(i, _)| *i == session)?.1;
        Some((phase.span, share))
    });
    let Some((span, share)) = own else { return f64::NAN };
    let found = bins(rates, span).iter().position(|&rate| rate >= part * share);
    found.map_or(f64::NAN, |k| span.0 - start + BIN * (k as f64 + 0.5))
}

fn distances(rates: &[Vec<f64>], span: (f64, f64), shares: &[(usize, f64)]) -> Vec<f64> {
    let whole = shares.iter().map(|(_, share)| share * share).sum::<f64>().sqrt();
    let count = bins(&rates[0], span).len();
    let at = |k: usize| {
        let off = shares.iter().map(|&(i, share)| (bins(&rates[i], span)[k] - share).powi(2));
        off.sum::<f64>().sqrt() / whole
    };
    let all: Vec<f64> = (0..count).map(at).collect();
    all.chunks_exact((MEAN / BIN).round() as usize).map(mean).collect()
}

fn together(rates: &[Vec<f64>], span: (f64, f64), shares: &[(usize, f64)]) -> f64 {
    let near = |k: usize| {
        let of = |&(i, share): &(usize, f64)| {
            bins(&rates[i], span).get(k).is_some_and(|rate| (rate - share).abs() <= BAND * share)
        };
        shares.iter().all(of)
    };
    if shares.is_empty() {
        return f64::NAN;
    }
    let (mut longest, mut now) = (0_u32, 0_u32);
    for k in 0..((span.1 - span.0) / BIN).round() as usize {
        now = if near(k) { now + 1 } else { 0 };
        longest = longest.max(now);
    }
    BIN * f64::from(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: [(usize, f64); 2] = [(0, 4.0), (1, 4.0)];

    #[test]
    fn the_distance_is_of_the_length_of_all_shares() {
        let nothing = vec![vec![0.0; 20]; 2];
        assert_eq!(distances(&nothing, (0.0, 2.0), &SHARES), [1.0, 1.0]);
        let shares = vec![vec![4.0; 20]; 2];
        assert_eq!(distances(&shares, (0.0, 2.0), &SHARES), [0.0, 0.0]);
    }

    #[test]
    fn together_is_the_longest_time_in_which_nobody_is_off() {
        let mut rates = vec![vec![4.0; 30]; 2];
        rates[1][9] = 4.5;
        assert_eq!(together(&rates, (0.0, 3.0), &SHARES), 2.0);
    }

    #[test]
    fn a_phase_counts_by_its_last_seconds() {
        let mut rates = vec![vec![0.0; 100]; 2];
        (70..100).for_each(|k| rates[0][k] = 4.0);
        (50..100).for_each(|k| rates[1][k] = 2.0);
        assert_eq!(settled(&rates, (0.0, 10.0), &SHARES), [1.0, 0.5]);
    }
}
