//! Whether what is left of a world has its max-min shares, at every moment of the time judged.
//!
//! Rates are means over half a second, at every bin whose half second lies within the time from
//! [`FINISHED`] to [`END`]: a session that swings about its share fails as one that stays off it.
//! Arrivals are counted in whole packets, so a count may be off by one of them besides.

use gtp_alloc::Span;
use gtp_proto::limits::{DEMAND_ALPHA, DEMAND_FLOOR};

use super::{END, FINISHED, Failure, TOLERANCE};
use crate::course::{self, Judged, Outcome};
use crate::scenario::model::Scenario;

/// By what the shares of a world are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// No session is left, or the world failed before shares were looked at.
    Nobody,
    /// One share for each session.
    Plain,
    /// A range for at least one session, because of what limited sessions may claim.
    Range,
}

/// Time over which arrivals are smoothed.
const WINDOW: Span = Span::from_millis(500);
/// Heads of GTP, UDP and IP.
const HEADERS: f64 = 77.0;

/// What is wrong with the shares of a world, and by what they were judged.
///
/// A session whose application supplies less than its share claims somewhat more than it uses, so
/// that it can rise; what it claims is kept from others. So beside limited sessions one is right if
/// it has what it should have with all demands as they are, or with all of them as they are
/// claimed, or anything between. Where nobody is limited both are the same.
pub fn judge(scenario: &Scenario, outcome: &Outcome) -> (Vec<Failure>, Standard) {
    let active: Vec<usize> = (0..scenario.sessions.len())
        .filter(|&k| scenario.sessions[k].size.is_none() && scenario.sessions[k].stop.is_none())
        .collect();
    if active.is_empty() {
        return (Vec::new(), Standard::Nobody);
    }
    let fail = |what: String| (vec![Failure { what }], Standard::Nobody);
    let (from, to) = (FINISHED.as_secs_f64(), END.as_secs_f64());
    let covers = |time: (f64, f64)| time.0 <= from && time.1 >= to;
    match outcome.phases.iter().find(|phase| covers(phase.time)) {
        None => return fail(format!("what should be changes between {from} and {to} s")),
        Some(phase) if phase.judged == Judged::Unjudged => {
            return fail(format!("a fault is still on between {from} and {to} s"));
        }
        Some(_) => {}
    }
    let shares = |scenario: &Scenario| course::shares(scenario, END, &active);
    let (plain, claimed) = match (shares(scenario), shares(&claiming(scenario))) {
        (Ok(plain), Ok(claimed)) => (plain, claimed),
        (Err(refusal), _) | (_, Err(refusal)) => return fail(refusal.to_string()),
    };
    let (mut failures, mut standard) = (Vec::new(), Standard::Plain);
    for (&k, (plain, claimed)) in active.iter().zip(plain.into_iter().zip(claimed)) {
        let session = &scenario.sessions[k];
        let demand = session.demand_at(END);
        let claimed = if demand.is_unlimited() { claimed } else { claimed.min(demand.as_f64()) };
        let (low, high) = (plain.min(claimed), plain.max(claimed));
        if high > low * (1.0 + EQUAL) {
            standard = Standard::Range;
        }
        let packet = (f64::from(session.unit) + HEADERS) * 8.0 / WINDOW.as_secs_f64();
        let (least, most) = (low * (1.0 - TOLERANCE) - packet, high * (1.0 + TOLERANCE) + packet);
        let samples = samples(&outcome.times, &outcome.sessions[k].rate);
        if let Some(what) = complaint(&samples, least, most) {
            let (name, low, high) = (&session.name, low / 1e6, high / 1e6);
            let law = scenario.law.as_str();
            failures.push(Failure {
                what: format!(
                    "{name} gets {what} in the end, not {low:.3} to {high:.3} Mbit/s, \
                     law {law}"
                ),
            });
        }
    }
    (failures, standard)
}

/// Shares nearer than this part are the same.
const EQUAL: f64 = 1e-6;

/// The sample that is farthest outside, if one is, and how many are.
fn complaint(samples: &[(f64, f64)], least: f64, most: f64) -> Option<String> {
    let off = |rate: f64| (least - rate).max(rate - most);
    let outside = samples.iter().filter(|(_, rate)| off(*rate) > 0.0).count();
    let worst = samples.iter().max_by(|a, b| off(a.1).total_cmp(&off(b.1)));
    match worst {
        None => Some("no sample".to_owned()),
        Some(_) if outside == 0 => None,
        Some((at, rate)) => {
            let (rate, all) = (rate / 1e6, samples.len());
            Some(format!("{rate:.3} Mbit/s at {at:.2} s ({outside} of {all} samples)"))
        }
    }
}

/// Means over a window, each with its end, of all windows within the time judged.
fn samples(times: &[f64], rates: &[f64]) -> Vec<(f64, f64)> {
    let Some(bin) = times.first() else { return Vec::new() };
    let width = ((WINDOW.as_secs_f64() / bin).round() as usize).max(1);
    let first = FINISHED.as_secs_f64() + WINDOW.as_secs_f64() - bin / 2.0;
    (times.iter().zip(1usize..))
        .filter(|(at, end)| **at >= first && *end >= width)
        .map(|(at, end)| (*at, rates[end - width..end].iter().sum::<f64>() / width as f64))
        .collect()
}

/// The scenario with demands as sessions claim them.
fn claiming(scenario: &Scenario) -> Scenario {
    let mut claiming = scenario.clone();
    for (_, rate) in claiming.sessions.iter_mut().flat_map(|session| &mut session.demand) {
        *rate = rate.scale(1.0 + DEMAND_ALPHA).saturating_add(DEMAND_FLOOR);
    }
    claiming
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_in_the_middle_does_not_hide_a_swing() {
        let times: Vec<f64> = (1..=550).map(|n| f64::from(n) * 0.02).collect();
        let swing = |t: &f64| if ((t * 0.999) as u64).is_multiple_of(2) { 5e6 } else { 15e6 };
        let rates: Vec<f64> = times.iter().map(swing).collect();
        let samples = samples(&times, &rates);
        assert_eq!(samples.len(), 76);
        assert!((samples[0].0 - 9.5).abs() < 1e-9 && (samples[75].0 - 11.0).abs() < 1e-9);
        assert!(complaint(&samples, 9.5e6, 10.5e6).is_some());
        assert!(complaint(&samples, 4e6, 16e6).is_none());
        assert!(complaint(&[], 0.0, 1.0).is_some());
    }
}
