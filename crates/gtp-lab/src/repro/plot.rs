//! The curves of an entry's page: rates, distances and loads of its runs over time.
//!
//! Engines leave steps; figures want points. A figure holds one law's runs of one scenario, so that
//! the two laws stand one below the other on the same axes.

use super::compute::{Computed, Law, Runs};
use super::entry::{Entry, Plot};
use super::measure::{Steps, Trajectory, distances};
use super::rivals;
use crate::series::{Axis, Figure, Series, Style};

/// More curves than this tell a reader nothing; the first ones stand for all.
const CURVES_MAX: usize = 64;
/// A scenario of more runs is there for a number, not for its curves.
const RUNS_MAX: usize = 30;
/// More max-min levels than this hide the curves.
const LEVELS_MAX: usize = 8;

/// The figures of an entry.
pub fn figures(entry: &Entry, computed: &Computed) -> Vec<Figure> {
    let mut figures = Vec::new();
    for plot in &entry.plot {
        for runs in computed.runs.iter().filter(|runs| (1..=RUNS_MAX).contains(&runs.runs.len())) {
            figures.push(figure(entry, *plot, runs));
        }
    }
    if entry.plot.contains(&Plot::Rates) {
        figures.extend(rivals::figures(&entry.id, &entry.title, &computed.courses));
    }
    figures.extend(computed.figures.iter().cloned());
    figures
}

fn figure(entry: &Entry, plot: Plot, runs: &Runs) -> Figure {
    let (word, unit, label) = match plot {
        Plot::Rates => ("rates", "Mbit/s", "Rate, Mbit/s"),
        Plot::Distance => ("distance", "", "Distance D(t) / D(0)"),
        Plot::Load => ("load", "", "Largest load of a sink, part of its capacity"),
    };
    let (short, law) = match runs.law {
        Law::EndNode => ("endnode", "the thesis's law"),
        Law::Grant => ("grant", "the grant law"),
    };
    let scenario = if runs.name.is_empty() { String::new() } else { format!("{}, ", runs.name) };
    let id = format!("{}-{word}-{}{short}", entry.id, scenario.replace(", ", "-")).to_lowercase();
    let title = format!("{}: {scenario}{law}", entry.title);
    let mut figure = Figure::new(&id, title, Axis::linear("Time, s"), Axis::linear(label));
    for run in &runs.runs {
        figure.series.extend(curves(plot, run, runs.runs.len(), unit));
    }
    let all = figure.series.len();
    if all > CURVES_MAX {
        figure.series.truncate(CURVES_MAX);
        figure.note = format!("{CURVES_MAX} of {all} curves.");
    }
    figure
}

fn curves(plot: Plot, run: &Trajectory, runs: usize, unit: &str) -> Vec<Series> {
    let step = |name: String, steps: &Steps, scale: f64| {
        let mut points: Vec<(f64, f64)> = steps.iter().map(|(t, x)| (*t, x / scale)).collect();
        points.extend(points.last().map(|(_, x)| (run.end, *x)));
        Series::line(name, unit, points).styled(Style::Step)
    };
    match plot {
        Plot::Rates => {
            let name = |k: usize| match (runs, run.rates.len()) {
                (_, 1) => run.label.clone(),
                (1, _) => format!("session {}", k + 1),
                (_, _) => format!("{}, session {}", run.label, k + 1),
            };
            let rates = run.rates.iter().enumerate();
            let mut curves: Vec<Series> = rates.map(|(k, r)| step(name(k), r, 1e6)).collect();
            if runs == 1 && run.rates.len() <= LEVELS_MAX {
                curves.extend((0..run.rates.len()).map(|k| {
                    let goals: Steps = run.goals.iter().map(|(t, all)| (*t, all[k])).collect();
                    let wanted = step(format!("{}, max-min", name(k)), &goals, 1e6);
                    wanted.styled(Style::Wanted).coloured(k)
                }));
            }
            curves
        }
        Plot::Distance => {
            let steps = distances(run);
            let start = steps.first().map_or(1.0, |(_, d)| *d);
            vec![step(run.label.clone(), &steps, start)]
        }
        Plot::Load => vec![step(run.label.clone(), &run.load, 1.0)],
    }
}
