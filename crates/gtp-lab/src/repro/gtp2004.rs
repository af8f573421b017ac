//! GTP 2004's laws on random inputs, beside a second reading of the print.
//!
//! The rules of sections 4.1 and 4.2 are written down once more, line by line, with the two errata
//! that the laws' own file names; Figure 6 is held against exact fractions. Where the code departs
//! from the print, the departure is a number of its own.

use super::exact::solved;
use super::formula::Quantities;
use super::law::unit;
use gtp_link::Rng;
use gtp_peers::rate::gtp2004::law::{Estimator, absorb, flow_rate, schedule};
use serde::Deserialize;

/// A property of GTP 2004's laws.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// 4.1, single flow control: `flow_off`, the largest difference from the print, as a part of
    /// the rate, where the flow is within its target; `most_fall` and `most_rise`, as parts of the
    /// rate; `above_target`, how often the rate was left above the target; `held`, how often it was
    /// not held where nothing came.
    Flow,
    /// 4.2, capacity estimation: `estimate_off`, the largest difference from the print over random
    /// intervals; `above_cap`, how often an estimate was above its bound; and `cycle`, the
    /// estimates of a flow that gives 300 of a target of 500, interval by interval.
    Estimate,
    /// 4.3, Figure 6: `schedule_off` from exact fractions as a part of the capacity, `over`, how
    /// often more than the capacity was given, and `targets` for the `estimates` and the
    /// `capacity` that the entry gives.
    Schedule,
    /// 4.3, the definition of constrained max-min: `infeasible` and `unfair`, how often Figure 6's
    /// result breaks it as it is meant; `equal_raised`, by the number of equal flows at a full
    /// receiver, how many of them could be raised if it were read as printed.
    Definition,
    /// 4.4: `absorb_off`, the largest difference from the print, and `given`, what the estimates
    /// gained together over what the flows that left had.
    Absorb,
}

/// Tries a rule on `cases` random inputs.
pub fn run(rule: Rule, cases: usize, seed: u64, quantities: &mut Quantities) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let found = match rule {
        Rule::Flow => flow(cases, &mut rng),
        Rule::Estimate => estimate(cases, &mut rng),
        Rule::Schedule => scheduled(cases, &mut rng, quantities)?,
        Rule::Definition => definition(cases, &mut rng),
        Rule::Absorb => absorbed(cases, &mut rng),
    };
    quantities.insert("cases".to_owned(), vec![cases as f64]);
    quantities.extend(found.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Ok(())
}

type Found = Vec<(&'static str, Vec<f64>)>;

/// Between two ends.
fn draw(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * unit(rng)
}

/// None, a little, much: a third of the cases each.
fn draw_loss(rng: &mut Rng) -> f64 {
    match rng.below(3) {
        0 => 0.0,
        1 => draw(rng, 0.0, 0.01),
        _ => unit(rng),
    }
}

fn flow(cases: usize, rng: &mut Rng) -> Found {
    let (mut off, mut fall, mut rise, mut above, mut held) = (0.0f64, 0.0f64, 0.0f64, 0, 0);
    for _ in 0..cases {
        let target = draw(rng, 1e6, 1e9);
        let request = draw(rng, 1e5, target);
        let loss = draw_loss(rng);
        let next = flow_rate(request, Some(loss), target);
        // The two cases of 4.1.
        let print = if loss > 0.0 {
            request * (1.0 - (0.5 * loss).min(0.125))
        } else {
            (request * (1.0 + 0.02)).min(target)
        };
        off = off.max((next - print).abs() / request);
        (fall, rise) = (fall.max(1.0 - next / request), rise.max(next / request - 1.0));
        let high = target * draw(rng, 1.0, 3.0);
        above += usize::from(flow_rate(high, Some(loss), target) > target);
        held += usize::from(flow_rate(request, None, target) != request);
    }
    let held = vec![held as f64];
    let above = vec![above as f64];
    vec![
        ("flow_off", vec![off]),
        ("most_fall", vec![fall]),
        ("most_rise", vec![rise]),
        ("above_target", above),
        ("held", held),
    ]
}

/// 4.2 as printed, but with the loss ratio in its thresholds.
fn printed_estimate(d: &mut f64, total: f64, loss: f64, target: f64, cap: f64) -> f64 {
    if loss == 0.0 && total >= 0.95 * target {
        *d = if *d <= 0.0 { 0.02 * total } else { 2.0 * *d };
    } else if loss == 0.0 || loss <= 0.005 {
        *d = 0.02 * total;
    } else {
        *d = 0.0 - (0.5 * loss).min(0.2) * total;
    }
    (total + *d).min(cap)
}

fn estimate(cases: usize, rng: &mut Rng) -> Found {
    let (mut off, mut above) = (0.0f64, 0);
    for _ in 0..cases {
        let (mut law, mut d) = (Estimator::default(), 0.0);
        let cap = draw(rng, 1e8, 1e9);
        let mut target = cap;
        for _ in 0..20 {
            let total = target * draw(rng, 0.8, 1.0);
            let loss = draw_loss(rng);
            let ours = law.estimate(total, loss, target, cap);
            let print = printed_estimate(&mut d, total, loss, target, cap);
            off = off.max((ours - print).abs() / cap);
            above += usize::from(ours > cap);
            target = ours.max(1e6);
        }
    }
    let (mut law, mut target) = (Estimator::default(), 500.0);
    let mut next = || {
        target = law.estimate(300.0, 0.0, target, 1_000.0);
        target
    };
    let cycle = (0..6).map(|_| next()).collect();
    vec![("estimate_off", vec![off]), ("above_cap", vec![above as f64]), ("cycle", cycle)]
}

/// Random estimates at a receiver of random capacity, some of them equal.
fn receiver(rng: &mut Rng) -> (f64, Vec<f64>) {
    let capacity = draw(rng, 100.0, 2_000.0).round();
    let n = 1 + rng.below(12) as usize;
    let equal = draw(rng, 1.0, 600.0).round();
    let one = |rng: &mut Rng| match rng.below(4) {
        0 => equal,
        _ => draw(rng, 0.0, 1_000.0).round(),
    };
    (capacity, (0..n).map(|_| one(rng)).collect())
}

fn scheduled(cases: usize, rng: &mut Rng, quantities: &Quantities) -> Result<Found, String> {
    let (mut off, mut over) = (0.0f64, 0);
    for _ in 0..cases {
        let (capacity, estimates) = receiver(rng);
        let targets = schedule(capacity, &estimates);
        // Each flow has a link of its own, as wide as the receiver's, and ends at the receiver.
        let n = estimates.len() as u32;
        let uses = (0..n).map(|flow| [flow, n]).collect();
        let (exact, error) = solved(capacity, uses, estimates);
        let differences = targets.iter().zip(&exact).map(|(x, y)| (x - y).abs() / capacity);
        off = off.max(differences.fold(error, f64::max));
        over += usize::from(targets.iter().sum::<f64>() > capacity * (1.0 + 1e-12));
    }
    let mut found = vec![("schedule_off", vec![off]), ("over", vec![over as f64])];
    if let Some(estimates) = quantities.get("estimates") {
        let capacity = quantities.get("capacity").and_then(|list| list.first());
        let capacity = capacity.ok_or("`estimates` need a `capacity`")?;
        found.push(("targets", schedule(*capacity, estimates)));
    }
    Ok(found)
}

/// Whether flow `j` could have more, if only flows for which `spared` says no may get less.
fn can_rise(
    j: usize,
    capacity: f64,
    estimates: &[f64],
    rates: &[f64],
    spared: fn(f64, f64) -> bool,
) -> bool {
    let room = capacity - rates.iter().sum::<f64>();
    let others = || rates.iter().enumerate().filter(|(k, _)| *k != j);
    let yields: f64 = others().filter(|(_, x)| !spared(**x, rates[j])).map(|(_, x)| x).sum();
    rates[j] < estimates[j] * (1.0 - 1e-9) && room + yields > 1e-9 * capacity
}

fn definition(cases: usize, rng: &mut Rng) -> Found {
    let (mut infeasible, mut unfair) = (0, 0);
    for _ in 0..cases {
        let (capacity, estimates) = receiver(rng);
        let rates = schedule(capacity, &estimates);
        let above = rates.iter().zip(&estimates).any(|(x, most)| x > most);
        infeasible += usize::from(above || rates.iter().sum::<f64>() > capacity * (1.0 + 1e-12));
        // Nearly equal rates are equal: they differ by rounding.
        let meant = |other: f64, own: f64| other <= own * (1.0 + 1e-9);
        let rising = |j| can_rise(j, capacity, &estimates, &rates, meant);
        unfair += usize::from((0..rates.len()).any(rising));
    }
    let raised = |n: usize| {
        let (estimates, printed) = (vec![1_000.0; n], |other: f64, own: f64| other < own);
        let rates = schedule(1_000.0, &estimates);
        (0..n).filter(|j| can_rise(*j, 1_000.0, &estimates, &rates, printed)).count() as f64
    };
    vec![
        ("infeasible", vec![infeasible as f64]),
        ("unfair", vec![unfair as f64]),
        ("equal_raised", [2, 4, 8].map(raised).to_vec()),
    ]
}

fn absorbed(cases: usize, rng: &mut Rng) -> Found {
    let (mut off, mut given) = (0.0f64, [f64::INFINITY, 0.0f64]);
    for _ in 0..cases {
        let (_, before) = receiver(rng);
        let sum: f64 = before.iter().sum();
        if sum == 0.0 {
            continue;
        }
        let (left, mut after) = (draw(rng, 1.0, 1_000.0), before.clone());
        absorb(&mut after, left);
        let print = |x: &f64| x + x * left / sum;
        let differences = before.iter().zip(&after).map(|(x, y)| (y - print(x)).abs() / sum);
        off = off.max(differences.fold(0.0, f64::max));
        let gain = (after.iter().sum::<f64>() - sum) / left;
        given = [given[0].min(gain), given[1].max(gain)];
    }
    vec![("absorb_off", vec![off]), ("given", given.to_vec())]
}
