//! What was got beside what was wanted, for each time between changes.
//!
//! Rates of packets are counts in bins, so they are smoothed over a tenth of a second before they
//! are compared. A phase is settled from when on every session stays within the tolerance of its
//! share until the phase ends.

use gtp_alloc::fairness::jain_index;
use gtp_proto::limits::ROUTER_SILENCE;

use super::wanted::{Calm, Epoch};
use super::{Course, Outcome, seconds};
use crate::scenario::model::{Event, RouterEvent, Scenario};

/// One phase: a time over which what is wanted stays the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// From and to, in seconds.
    pub time: (f64, f64),
    /// What began it.
    pub event: String,
    /// Number of sessions that are there.
    pub sessions: usize,
    /// Sum of what was wanted and of what was got, in bit/s; what was got is the mean of the
    /// phase's second half.
    pub sums: (f64, f64),
    /// Jain's index of what sessions had of their shares in that half.
    pub jain: f64,
    /// The largest part by which a session was off its share in that half.
    pub worst: f64,
    /// The number of a session that was the last to be off its share, in a phase that is judged.
    pub last_off: Option<usize>,
    /// The watched sessions that are there: number, wanted, got, in bit/s.
    pub shares: Vec<(usize, f64, f64)>,
    /// How it went.
    pub judged: Judged,
}

/// How a phase went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judged {
    /// All had their shares from so many seconds after its beginning on.
    Settled(f64),
    /// They had not when it ended.
    Unsettled,
    /// It is too short to say, nobody is there, or a fault is on.
    Unjudged,
}

/// Sessions of a phase whose shares are listed one by one.
const LISTED_MAX: usize = 256;
/// Times over which counted packets are smoothed.
const SMOOTH_S: f64 = 0.1;
/// Shares below this are nothing, in bit/s.
const NOTHING: f64 = 1_000.0;

/// Fills in everything of `outcome` that compares its sessions' rates with the epochs.
pub fn judge(scenario: &Scenario, epochs: &[Epoch], outcome: &mut Outcome) {
    let bins = outcome.times.len();
    let bin = seconds(scenario.output.every);
    let smooth: Vec<Vec<f64>> = {
        let width = ((SMOOTH_S / bin).round() as usize).max(1);
        outcome.sessions.iter().map(|s| trailing(&s.rate, width)).collect()
    };
    outcome.distance = vec![f64::NAN; bins];
    outcome.goal = vec![f64::NAN; bins];
    outcome.jain = vec![f64::NAN; bins];
    for course in &mut outcome.sessions {
        course.wanted.clear();
    }
    for epoch in epochs {
        levels(epoch, &mut outcome.sessions);
        let range = range(&outcome.times, epoch, bin);
        for n in range.clone() {
            compare(epoch, &smooth, n, outcome);
        }
        if let Some(phase) = phase(scenario, epoch, &smooth, range, &outcome.times, bin) {
            outcome.phases.push(phase);
        }
    }
    for course in &mut outcome.sessions {
        course.wanted.push((course.life.1.min(seconds(scenario.duration)), f64::NAN));
    }
}

/// Bins that lie within an epoch.
fn range(times: &[f64], epoch: &Epoch, bin: f64) -> std::ops::Range<usize> {
    let (from, to) = (seconds(epoch.from), seconds(epoch.to));
    let first = times.partition_point(|t| *t < from + bin * (1.0 - 1e-6));
    let last = times.partition_point(|t| *t <= to + bin * 1e-6);
    first..last.max(first)
}

fn levels(epoch: &Epoch, sessions: &mut [Course]) {
    for (&k, &wanted) in epoch.active.iter().zip(&epoch.wanted) {
        let at = seconds(epoch.from);
        if let Some(course) = sessions.get_mut(k) {
            match course.wanted.last() {
                Some((_, level)) if *level == wanted => {}
                _ => course.wanted.push((at, wanted)),
            }
        }
    }
}

fn compare(epoch: &Epoch, rates: &[Vec<f64>], n: usize, outcome: &mut Outcome) {
    let (mut off, mut goal, mut parts) = (0.0, 0.0, Vec::with_capacity(epoch.active.len()));
    for (&k, &wanted) in epoch.active.iter().zip(&epoch.wanted) {
        let rate = rates[k][n];
        off += (rate - wanted) * (rate - wanted);
        goal += wanted * wanted;
        if wanted > NOTHING {
            parts.push(rate / wanted);
        }
    }
    outcome.distance[n] = f64::sqrt(off);
    outcome.goal[n] = f64::sqrt(goal);
    outcome.jain[n] = jain_index(&parts);
}

fn phase(
    scenario: &Scenario,
    epoch: &Epoch,
    rates: &[Vec<f64>],
    range: std::ops::Range<usize>,
    times: &[f64],
    bin: f64,
) -> Option<Phase> {
    if epoch.active.is_empty() {
        return None;
    }
    let tolerance = scenario.output.tolerance;
    let half = range.start + range.len() / 2..range.end;
    let mut shares = Vec::new();
    let (mut sums, mut worst, mut parts) = ((0.0, 0.0), 0.0f64, Vec::new());
    for (&k, &wanted) in epoch.active.iter().zip(&epoch.wanted) {
        let got = mean(&rates[k][half.clone()]);
        sums = (sums.0 + wanted, sums.1 + got);
        if wanted > NOTHING {
            parts.push(got / wanted);
            worst = worst.max((got / wanted - 1.0).abs());
        }
        if shares.len() < LISTED_MAX {
            shares.push((k, wanted, got));
        }
    }
    let off = |n: usize| {
        let mut there = epoch.active.iter().zip(&epoch.wanted);
        let inside = |rate: f64, wanted: f64| (rate / wanted - 1.0).abs() <= tolerance;
        there.find(|&(&k, &wanted)| wanted > NOTHING && !inside(rates[k][n], wanted))
    };
    let mut last_off = None;
    let enough = range.len() as f64 * bin >= 2.0 * SMOOTH_S && range.len() >= 4;
    let judged = if !enough || epoch.calm == Calm::No || parts.is_empty() {
        Judged::Unjudged
    } else {
        let outside = range.clone().rev().find_map(|n| off(n).map(|(k, _)| (n, *k)));
        last_off = outside.map(|(_, k)| k);
        let outside = outside.map(|(n, _)| n);
        let first = outside.map_or(range.start, |n| n + 1);
        // Settled in the very last bins only is not settled.
        if first + (range.len() / 20).max(1) >= range.end {
            Judged::Unsettled
        } else {
            let after = times[first] - seconds(epoch.from) - bin;
            Judged::Settled(if outside.is_none() { 0.0 } else { after.max(0.0) })
        }
    };
    let time = (seconds(epoch.from), seconds(epoch.to));
    let event = event(scenario, epoch);
    let (sessions, jain) = (epoch.active.len(), jain_index(&parts));
    Some(Phase { time, event, sessions, sums, jain, worst, last_off, shares, judged })
}

/// What began an epoch, as far as the scenario says.
fn event(scenario: &Scenario, epoch: &Epoch) -> String {
    let mut said = Vec::new();
    for session in &scenario.sessions {
        if session.start == epoch.from {
            said.push(format!("{} joins", session.name));
        }
        if session.stop == Some(epoch.from) {
            said.push(format!("{} leaves", session.name));
        }
        if session.demand.iter().any(|(at, _)| *at == epoch.from && *at > session.start) {
            said.push(format!("{}: demand", session.name));
        }
        if said.len() > 20 {
            break;
        }
    }
    for flow in &scenario.backgrounds {
        if flow.start == epoch.from {
            said.push(format!("{} begins", flow.name));
        }
        if flow.stop == Some(epoch.from) {
            said.push(format!("{} ends", flow.name));
        }
    }
    for (at, event) in &scenario.events {
        if *at == epoch.from {
            said.push(event.described(scenario));
        }
        if let Event::Router(router, RouterEvent::Silent) = *event
            && *at + ROUTER_SILENCE == epoch.from
        {
            said.push(format!("{} is ignored", scenario.allocators[router].name));
        }
    }
    match said.len() {
        0 => "a session ends".to_owned(),
        1..=3 => said.join(", "),
        n => format!("{}, {} and {} more", said[0], said[1], n - 2),
    }
}

/// Means over the last `width` bins.
fn trailing(rates: &[f64], width: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let mut means = Vec::with_capacity(rates.len());
    for (n, rate) in rates.iter().enumerate() {
        sum += rate;
        if n >= width {
            sum -= rates[n - width];
        }
        means.push((sum / (n + 1).min(width) as f64).max(0.0));
    }
    means
}

fn mean(rates: &[f64]) -> f64 {
    if rates.is_empty() { 0.0 } else { rates.iter().sum::<f64>() / rates.len() as f64 }
}
