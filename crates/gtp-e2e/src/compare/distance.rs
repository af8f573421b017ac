//! How far two sets of trajectories are apart, as one number per session and for all.

use anyhow::{Result, ensure};
use serde::Serialize;

/// The rates of several sessions in bins of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Trajectories {
    /// Length of a bin in seconds.
    pub bin: f64,
    /// By session, its mean rate in each bin in bit/s.
    pub rates: Vec<Vec<f64>>,
}

/// Mean absolute difference over time, as a part of the mean rate (of both, so that neither is the
/// measure of the other). Zero: the same everywhere; two: never at the same time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// Of each session.
    pub sessions: Vec<f64>,
    /// Of all sessions: their differences added up, as a part of all that they moved.
    pub all: f64,
    /// Of the sum of the sessions' rates: what the access link carried.
    pub sum: f64,
}

/// The distance of two sets of trajectories.
///
/// # Errors
/// If they have different bins or sessions.
pub fn between(one: &Trajectories, other: &Trajectories) -> Result<Distance> {
    ensure!(one.bin == other.bin, "bins of {} s and of {} s", one.bin, other.bin);
    let lengths = |t: &Trajectories| t.rates.iter().map(Vec::len).collect::<Vec<_>>();
    ensure!(lengths(one) == lengths(other), "other sessions or other lengths");
    let parts = one.rates.iter().zip(&other.rates).map(|(a, b)| parts(a, b));
    let parts: Vec<(f64, f64)> = parts.collect();
    let whole = parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    Ok(Distance {
        sessions: parts.into_iter().map(ratio).collect(),
        all: ratio(whole),
        sum: ratio(self::parts(&one.sum(), &other.sum())),
    })
}

/// Absolute differences added up, and the mean of both curves added up.
fn parts(one: &[f64], other: &[f64]) -> (f64, f64) {
    one.iter()
        .zip(other)
        .fold((0.0, 0.0), |(apart, mean), (a, b)| (apart + (a - b).abs(), mean + 0.5 * (a + b)))
}

/// Curves that are both zero throughout are the same.
fn ratio((apart, mean): (f64, f64)) -> f64 {
    if apart == 0.0 { 0.0 } else { apart / mean }
}

impl Trajectories {
    /// The sum of all sessions' rates, by bin.
    pub fn sum(&self) -> Vec<f64> {
        let bins = self.rates.iter().map(Vec::len).max().unwrap_or(0);
        let at = |k: usize| self.rates.iter().filter_map(|rates| rates.get(k)).sum();
        (0..bins).map(at).collect()
    }

    /// Points of a session's curve in Mbit/s, each in the middle of its bin.
    pub fn points(&self, session: usize) -> Vec<(f64, f64)> {
        let rates = self.rates.get(session).into_iter().flatten().enumerate();
        rates.map(|(k, rate)| (self.bin * (k as f64 + 0.5), rate / 1e6)).collect()
    }
}
