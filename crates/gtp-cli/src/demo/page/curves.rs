//! What is drawn and what the pointer shows: values at equal distances of time.
//!
//! Every value is a mean over the 100 ms before its time, from the same counters as the analysis.
//! A session has a value from its first data to its last. Nothing here knows SVG.

use serde::Serialize;

use crate::demo::analysis::{Flow, Series, WINDOW};
use crate::demo::plan::{ACCESS, Each, NAMES, RTT_MS, SESSIONS, wanted};
use crate::demo::record::Record;

/// All curves of one figure.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// Times on the record's clock.
    pub t: Vec<f64>,
    /// What each session got, in Mbit/s.
    pub rates: Each<Vec<Option<f64>>>,
    /// What each should have, in Mbit/s.
    pub wanted: Each<Vec<Option<f64>>>,
    /// What limits each, as the protocol says.
    pub limited: Each<Vec<Option<&'static str>>>,
    /// The shared queue, as the time that it takes to drain, in ms.
    pub queue_ms: Vec<f64>,
    /// Packets that it dropped.
    pub dropped: Vec<u64>,
}

/// What the page's script gets.
#[derive(Serialize)]
pub struct ForScript<'a> {
    names: Each<String>,
    px: (f64, f64),
    time: (f64, f64),
    zero: f64,
    t: Vec<f64>,
    rates: Each<Vec<Option<f64>>>,
    wanted: Each<Vec<Option<f64>>>,
    limits: [&'a str; 5],
    limited: Each<Vec<Option<usize>>>,
    queue: Vec<f64>,
    dropped: &'a [u64],
}

impl Curves {
    /// Curves of these flows over a span of time.
    pub fn new(record: &Record, flows: &Each<Option<Flow>>, time: (f64, f64)) -> Curves {
        let series = Series { samples: &record.samples };
        let count = ((time.1 - time.0) / DISTANCE).max(0.0) as usize;
        let mut curves = Curves::default();
        for n in 0..=count {
            let t = time.0 + n as f64 * DISTANCE;
            let active = std::array::from_fn(|k| {
                flows[k].is_some_and(|flow| t >= flow.joined && t <= flow.left)
            });
            let goal = wanted(&active);
            let said = record.samples.partition_point(|s| s.t < t).checked_sub(1);
            for k in 0..SESSIONS {
                let here = active[k];
                curves.rates[k].push(here.then(|| series.rate(k, t - WINDOW, t) / 1e6));
                curves.wanted[k].push(here.then(|| goal[k] / 1e6));
                let said = said.and_then(|n| record.samples[n].said[k]);
                curves.limited[k].push(said.filter(|_| here).map(|said| said.limited_by));
            }
            let drain_ms = series.queue_bytes(t - DISTANCE, t) * 8e3 / ACCESS.as_f64();
            curves.queue_ms.push(drain_ms);
            curves.dropped.push(series.dropped(t - DISTANCE, t).round() as u64);
            curves.t.push(t);
        }
        curves
    }

    /// The sum of what all got at this place, in Mbit/s; none while nobody is active.
    pub fn sum(&self, n: usize) -> Option<f64> {
        let values = self.rates.iter().filter_map(|rates| rates[n]);
        values.reduce(|a, b| a + b)
    }

    /// The parts of a session's line that are drawn above the others. The active sessions take
    /// turns, so that lines that lie on one another look like a rope of all their colours.
    pub fn strand(&self, session: usize) -> Vec<(f64, Option<f64>)> {
        let mut strand = Vec::new();
        let mut was_mine = false;
        for (n, t) in self.t.iter().enumerate() {
            let active: Vec<usize> =
                (0..SESSIONS).filter(|&k| self.rates[k][n].is_some()).collect();
            let turn = (n / STRAND) % active.len().max(1);
            let mine = active.get(turn) == Some(&session);
            // One point more, so that no gap is left to the next session's part.
            strand.push((*t, self.rates[session][n].filter(|_| mine || was_mine)));
            was_mine = mine;
        }
        strand
    }

    /// Spans in which a session's limit stays the same: `(from, to, word)`.
    pub fn limits(&self, session: usize) -> Vec<(f64, f64, &'static str)> {
        let mut spans: Vec<(f64, f64, &'static str)> = Vec::new();
        for (t, word) in self.t.iter().zip(&self.limited[session]) {
            let Some(word) = word else { continue };
            match spans.last_mut() {
                Some(last) if last.2 == *word && t - last.1 < 1.5 * DISTANCE => last.1 = *t,
                Some(_) | None => spans.push((t - DISTANCE, *t, word)),
            }
        }
        spans
    }

    /// The same for the page's script; `px` are the places of the first and the last time.
    pub fn for_script(&self, px: (f64, f64), time: (f64, f64), zero: f64) -> ForScript<'_> {
        let word = |word: &Option<&str>| word.and_then(|w| LIMITS.iter().position(|l| *l == w));
        ForScript {
            names: std::array::from_fn(name),
            px,
            time,
            zero,
            t: self.t.iter().map(|t| round(*t, 3)).collect(),
            rates: std::array::from_fn(|k| rounded(&self.rates[k])),
            wanted: std::array::from_fn(|k| rounded(&self.wanted[k])),
            limits: LIMITS,
            limited: std::array::from_fn(|k| self.limited[k].iter().map(word).collect()),
            queue: self.queue_ms.iter().map(|ms| round(*ms, 3)).collect(),
            dropped: &self.dropped,
        }
    }
}

/// A session as people read it.
pub fn name(session: usize) -> String {
    format!("{} · {} ms", NAMES[session], RTT_MS[session])
}

fn rounded(values: &[Option<f64>]) -> Vec<Option<f64>> {
    values.iter().map(|value| value.map(|v| round(v, 1))).collect()
}

fn round(value: f64, places: i32) -> f64 {
    let scale = 10f64.powi(places);
    (value * scale).round() / scale
}

/// What can limit a session.
pub const LIMITS: [&str; 5] = ["source", "sink", "demand", "path", "disk"];

/// Values that a session's line stays above the others.
const STRAND: usize = 4;

/// Distance of values, in seconds.
const DISTANCE: f64 = 0.05;
