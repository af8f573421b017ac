//! The page of a comparison: both worlds' curves over the max-min steps, and the numbers.

use anyhow::Result;
use gtp_lab::series::{Axis, Cell, Figure, Page, Part, Series, Style, Table, Tile};

use super::{Distance, Phase, Run, Runs, Scenario, Trajectories, law_name};

/// Colours before they come again, dashed.
const COLOURS: usize = 8;

/// Everything about these runs.
///
/// # Errors
/// If the runs do not belong to one scenario.
pub fn page(runs: &Runs, scenario: &Scenario) -> Result<Page> {
    let distances = runs.distances(scenario)?;
    let curves = |run: &Run| run.trajectories(scenario);
    let (real, again) = (curves(&runs.real[0]), curves(&runs.real[1]));
    let (aligned, planned) = (curves(&runs.aligned[0]), curves(&runs.planned));
    let mut parts: Vec<Part> = match scenario.lives.len() {
        0..=COLOURS => vec![Part::Figure(together(scenario, &real, &aligned))],
        // More than there are colours: one world a figure.
        _ => vec![
            Part::Figure(one_world(scenario, ("sessions-real", "real"), &real)),
            Part::Figure(one_world(scenario, ("sessions-simulated", "simulated"), &aligned)),
        ],
    };
    for i in 0..scenario.lives.len() {
        parts.push(Part::Figure(session(scenario, i, [&real, &again, &aligned, &planned])));
    }
    parts.push(Part::Table(distance_table(&[
        ("simulated with the real starts, to the first run", &distances.aligned[0]),
        ("simulated with the real starts, to the second run", &distances.aligned[1]),
        ("simulated as planned, to the first run", &distances.planned[0]),
        ("simulated as planned, to the second run", &distances.planned[1]),
        ("the two real runs", &distances.noise),
    ])));
    parts.push(Part::Table(settling_table(runs, scenario)));
    let tile = |distance: &Distance, text: &str| Tile {
        value: percent(distance.all).into(),
        text: text.to_owned(),
    };
    Ok(Page {
        title: format!("Real against simulated: {}", scenario.name),
        lead: format!(
            "The same network and sessions through real sockets and the emulator, and in the \
             packet-level simulator; law {}, access queue {}.",
            law_name(scenario.law),
            scenario.net.queue()
        ),
        tiles: vec![
            tile(&distances.aligned[0], "from simulated to real, starts aligned"),
            tile(&distances.planned[0], "from simulated to real, starts as planned"),
            tile(&distances.noise, "from one real run to another"),
        ],
        parts,
    })
}

fn axes(id: &str, title: String) -> Figure {
    Figure::new(id, title, Axis::linear("Time, s"), Axis::linear("Rate, Mbit/s"))
}

fn together(scenario: &Scenario, real: &Trajectories, simulated: &Trajectories) -> Figure {
    let mut figure = axes("sessions", "Rates of all sessions".to_owned());
    for i in 0..scenario.lives.len() {
        let name = |world: &str| format!("s{} {world}", i + 1);
        let curve = |name, of: &Trajectories| Series::line(name, "Mbit/s", of.points(i));
        figure.series.push(curve(name("real"), real).coloured(i));
        figure.series.push(curve(name("simulated"), simulated).coloured(i + COLOURS));
    }
    figure.series.extend(levels(scenario));
    figure.marks = marks(scenario);
    figure.note = "IP bytes that left the sink's access link, in bins of 100 ms. Drawn through: \
                   real sockets; dashed: the simulator, each start delayed to the real first \
                   data; grey: the max-min share of each living session."
        .to_owned();
    figure
}

fn one_world(scenario: &Scenario, (id, world): (&str, &str), of: &Trajectories) -> Figure {
    let mut figure = axes(id, format!("Rates of all sessions, {world}"));
    for i in 0..scenario.lives.len() {
        let curve = Series::line(format!("s{}", i + 1), "Mbit/s", of.points(i));
        figure.series.push(curve.coloured(i));
    }
    figure.series.extend(levels(scenario));
    figure.marks = marks(scenario);
    figure.note = "IP bytes that left the sinks' access links, in bins of 100 ms.".to_owned();
    figure
}

fn session(scenario: &Scenario, i: usize, curves: [&Trajectories; 4]) -> Figure {
    let mut figure = axes(&format!("s{}", i + 1), format!("Rate of session s{}", i + 1));
    let names = ["real", "real, again", "simulated, start aligned", "simulated, as planned"];
    for (name, of) in names.into_iter().zip(curves) {
        figure.series.push(Series::line(name, "Mbit/s", of.points(i)));
    }
    figure.series.push(wanted(scenario, i));
    figure.marks = marks(scenario);
    figure
}

/// The different shares of the sessions that live, the least first.
fn levels(scenario: &Scenario) -> Vec<Series> {
    let different = |phase: &Phase| {
        let mut shares = scenario.shares(phase).unwrap_or_default();
        shares.sort_by(f64::total_cmp);
        shares.dedup_by(|a, b| (*a - *b).abs() < 1.0);
        shares
    };
    let phases = scenario.phases();
    let most = phases.iter().map(|phase| different(phase).len()).max().unwrap_or(0);
    (0..most).map(|k| line(scenario, |p| different(p).get(k).copied())).collect()
}

/// The share of a session while it lives.
fn wanted(scenario: &Scenario, session: usize) -> Series {
    line(scenario, |phase| {
        let place = phase.live.iter().position(|&i| i == session)?;
        scenario.shares(phase).ok()?.get(place).copied()
    })
}

fn line(scenario: &Scenario, share: impl Fn(&Phase) -> Option<f64>) -> Series {
    let phases = scenario.phases();
    let level = |phase| share(phase).map_or(f64::NAN, |share| share / 1e6);
    let mut points: Vec<_> = phases.iter().map(|p| (p.span.0, level(p))).collect();
    points.push((scenario.end(), f64::NAN));
    Series::line("max-min", "Mbit/s", points).styled(Style::Wanted).coloured(COLOURS - 1)
}

fn marks(scenario: &Scenario) -> Vec<(f64, String)> {
    scenario.phases().into_iter().map(|phase| (phase.span.0, phase.what)).collect()
}

fn percent(part: f64) -> String {
    format!("{:.2} %", 100.0 * part)
}

fn distance_table(rows: &[(&str, &Distance)]) -> Table {
    let sessions = rows.first().map_or(0, |(_, distance)| distance.sessions.len());
    let mut head = vec!["distance of".to_owned(), "all sessions".into(), "their sum".into()];
    head.extend((1..=sessions).map(|i| format!("s{i}")));
    let row = |(name, distance): &(&str, &Distance)| {
        let mut row: Vec<Cell> = vec![(*name).into()];
        let numbers = [distance.all, distance.sum].into_iter().chain(distance.sessions.clone());
        row.extend(numbers.map(|part| Cell::from(percent(part))));
        row
    };
    Table {
        title: "Distance".into(),
        head,
        rows: rows.iter().map(row).collect(),
        note:
            "Mean absolute difference of the rates in bins of 100 ms, as a part of the mean rate."
                .into(),
    }
}

fn settling_table(runs: &Runs, scenario: &Scenario) -> Table {
    let all = [&runs.real[0], &runs.real[1], &runs.aligned[0], &runs.aligned[1], &runs.planned];
    let settled: Vec<Vec<f64>> = all.iter().map(|run| run.settling(scenario)).collect();
    let apart = runs.differences(scenario);
    let shown = |seconds: f64| match seconds.is_finite() {
        true => format!("{:.0} ms", 1e3 * seconds),
        false => "never".to_owned(),
    };
    let head = ["from", "what", "real", "again", "aligned", "aligned to again", "as planned"];
    let mut head: Vec<String> = head.map(str::to_owned).into();
    head.extend(["aligned - real".to_owned(), "for the other".to_owned()]);
    let row = |(k, phase): (usize, &Phase)| {
        let mut row: Vec<Cell> = vec![format!("{} s", phase.span.0).into()];
        row.push(phase.what.clone().into());
        row.extend(settled.iter().map(|times| Cell::from(shown(times[k]))));
        row.extend(apart.iter().map(|times| Cell::from(shown(times[k]))));
        row
    };
    Table {
        title: "Settling".into(),
        head,
        rows: scenario.phases().iter().enumerate().map(row).collect(),
        note: "Time after the planned start or stop from which on every living session was within \
               5 % of its share for half a second, in windows of 100 ms."
            .into(),
    }
}
