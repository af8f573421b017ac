//! What is read off a run: means of rates, losses and queues over stretches of it.
//!
//! Times are in seconds from the run's start. A bin counts to a stretch if it ends within it. What
//! a figure means, and what it should be, is the tests' affair.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{PACKET, Scene};
use crate::course;
use crate::course::{Outcome, Progress};
use crate::refusal::Refusal;

/// A run that figures are read off.
pub struct Seen<'a> {
    outcome: &'a Outcome,
    scene: &'a Scene,
    /// The bottleneck's rate at the start, in bit/s.
    pub rate: f64,
}

/// The course of a run in few points, in thousandths of the bottleneck's rate, as a small picture
/// shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// The rate of GTP's sessions together, or of those in its place.
    pub ours: Vec<u16>,
    /// The rate of all others together.
    pub others: Vec<u16>,
}

/// The number of points of a curve.
const POINTS: usize = 48;

/// Runs a scene.
///
/// # Errors
/// If the scene cannot be run.
pub fn run(scene: &Scene, title: String, progress: Progress<'_>) -> Result<Outcome, Refusal> {
    course::run(&scene.scenario(title), progress)
}

impl<'a> Seen<'a> {
    /// Takes a run and the scene that was run.
    pub fn new(scene: &'a Scene, outcome: &'a Outcome) -> Seen<'a> {
        let policed = scene.core.policer.map(|policer| policer.rate);
        let rate = policed.unwrap_or(scene.core.rate).as_f64();
        Seen { outcome, scene, rate }
    }

    /// Returns when the run ends, in seconds.
    pub fn end(&self) -> f64 {
        self.scene.seconds
    }

    /// Returns the numbers of GTP's sessions, or of those in its place.
    pub fn ours(&self) -> Range<usize> {
        0..self.scene.ours
    }

    /// Returns the numbers of all other sessions.
    pub fn others(&self) -> Range<usize> {
        self.scene.ours..self.scene.flows.len()
    }

    /// Returns the mean rate of a session over a stretch, in bit/s.
    pub fn mean(&self, session: usize, from: f64, to: f64) -> f64 {
        let bins = self.bins(from, to);
        let rates = &self.outcome.sessions[session].rate[bins];
        rates.iter().sum::<f64>() / rates.len().max(1) as f64
    }

    /// Returns the mean rate of several sessions together, in bit/s.
    pub fn sum(&self, sessions: Range<usize>, from: f64, to: f64) -> f64 {
        sessions.map(|k| self.mean(k, from, to)).sum()
    }

    /// Returns the part of the bottleneck's rate at the start that was used.
    pub fn used(&self, from: f64, to: f64) -> f64 {
        self.sum(0..self.scene.flows.len(), from, to) / self.rate
    }

    /// Returns how many packets the bottleneck dropped.
    pub fn dropped(&self, from: f64, to: f64) -> f64 {
        self.outcome.links[0].drops[self.bins(from, to)].iter().sum::<u64>() as f64
    }

    /// Returns how many full packets the bottleneck carried, by their bytes.
    pub fn carried(&self, from: f64, to: f64) -> f64 {
        let bytes = self.outcome.links[0].carried[self.bins(from, to)].iter().sum::<u64>();
        bytes as f64 / PACKET as f64
    }

    /// Returns the part of what came to the bottleneck that it dropped.
    pub fn loss(&self, from: f64, to: f64) -> f64 {
        let (dropped, carried) = (self.dropped(from, to), self.carried(from, to));
        if dropped == 0.0 { 0.0 } else { dropped / (dropped + carried) }
    }

    /// Returns how many packets of a session were lost over the whole run, and how many arrived.
    pub fn packets_of(&self, session: usize) -> (f64, f64) {
        let course = &self.outcome.sessions[session];
        (course.lost as f64, course.arrived as f64)
    }

    /// Returns the part of a call's packets that were lost. A packet that is on its way when the
    /// run ends counts as lost.
    pub fn call_loss(&self, call: usize) -> f64 {
        let (sent, arrived) = self.outcome.backgrounds[call];
        1.0 - arrived as f64 / sent as f64
    }

    /// Returns the mean of the bottleneck's queue, in seconds.
    pub fn queue_mean(&self, from: f64, to: f64) -> f64 {
        let queue = &self.outcome.links[0].queue[self.bins(from, to)];
        queue.iter().sum::<f64>() / queue.len().max(1) as f64
    }

    /// Returns the 95th percentile of the bottleneck's queue, in seconds.
    pub fn queue_p95(&self, from: f64, to: f64) -> f64 {
        let mut queue = self.outcome.links[0].queue[self.bins(from, to)].to_vec();
        queue.sort_by(f64::total_cmp);
        queue.get(queue.len() * 95 / 100).copied().unwrap_or(f64::NAN)
    }

    /// Returns how long after `from` all sessions together first have this part of the bottleneck's
    /// rate over `window`, in seconds. It is not a number if they never have.
    pub fn reached(&self, part: f64, from: f64, window: f64) -> f64 {
        let bin = self.bin();
        let steps = ((self.end() - from - window) / bin).max(0.0) as usize;
        let mut afters = (0..=steps).map(|step| step as f64 * bin);
        let has = |after: &f64| self.used(from + after, from + after + window) >= part;
        afters.find(has).map_or(f64::NAN, |after| after + window)
    }

    /// Returns how long each transfer of a given size took, in seconds. One that did not end counts
    /// to the run's end.
    pub fn completions(&self) -> Vec<f64> {
        let sized = (0..self.scene.flows.len()).filter(|&k| self.scene.flows[k].size.is_some());
        sized.map(|k| self.outcome.sessions[k].life.1 - self.scene.flows[k].start).collect()
    }

    /// Returns the course of the run as a small picture shows it.
    pub fn curves(&self) -> Curves {
        let stretch = self.end() / POINTS as f64;
        let curve = |sessions: Range<usize>| {
            let point = |n: usize| {
                let from = n as f64 * stretch;
                let part = self.sum(sessions.clone(), from, from + stretch) / self.rate;
                (1e3 * part).clamp(0.0, 2e3) as u16
            };
            if sessions.is_empty() { Vec::new() } else { (0..POINTS).map(point).collect() }
        };
        Curves { ours: curve(self.ours()), others: curve(self.others()) }
    }

    fn bin(&self) -> f64 {
        self.outcome.times.first().copied().unwrap_or(1.0)
    }

    fn bins(&self, from: f64, to: f64) -> Range<usize> {
        let bin = self.bin();
        let place = |at: f64| ((at / bin).round().max(0.0) as usize).min(self.outcome.times.len());
        place(from)..place(to).max(place(from))
    }
}
