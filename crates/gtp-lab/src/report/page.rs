//! A run as a page: what was wanted and got, how fast, queues and losses.
//!
//! Figures show some sessions where there are many, and say so; tables list the first ones. What
//! was wanted is drawn dashed in the colour of what was got.

use super::text::{judged, last_share, percent, rate, span};
use crate::course::{Course, Judged, Outcome, Phase};
use crate::scenario::model::Scenario;
use crate::series::{Axis, Cell, Figure, Page, Part, Series, Style, Table, Tile, Tone, median};

/// The page of a run; `source` is the scenario's text.
pub fn page(scenario: &Scenario, outcome: &Outcome, source: &str) -> Page {
    let mut page = Page {
        title: scenario.title.clone(),
        lead: lead(scenario),
        tiles: tiles(scenario, outcome),
        parts: vec![Part::Figure(rates(scenario, outcome))],
    };
    page.parts.push(Part::Figure(far(outcome, scenario)));
    page.parts.push(Part::Figure(jain(outcome, scenario)));
    if let Some(figure) = loads(scenario, outcome) {
        page.parts.push(Part::Figure(figure));
    }
    for figure in [queues(scenario, outcome), drops(scenario, outcome)].into_iter().flatten() {
        page.parts.push(Part::Figure(figure));
    }
    page.parts.push(Part::Heading("Numbers".into()));
    page.parts.push(Part::Table(phases(scenario, outcome)));
    page.parts.push(Part::Table(sessions(scenario, outcome)));
    if !outcome.links.is_empty() {
        page.parts.push(Part::Table(links(outcome)));
    }
    page.parts.extend(outcome.notes.iter().map(|note| Part::Text(note.clone())));
    page.parts.push(Part::Heading("The scenario".into()));
    page.parts.push(Part::Text(format!(
        "Run by gtp-lab {}; the run's hash is {:016x} over {} events. The same file, seed and \
         version give the same run.",
        env!("CARGO_PKG_VERSION"),
        outcome.hash,
        outcome.events
    )));
    page.parts.push(Part::Listing(source.chars().take(LISTING_MAX).collect()));
    page
}

/// Characters of the scenario's text that are shown.
const LISTING_MAX: usize = 20_000;
/// Rows of a page's table.
const ROWS_MAX: usize = 200;
/// Sessions whose comings and goings are marked one by one.
const NAMED_MAX: usize = 16;
/// Marks of events in a figure.
const MARKS_MAX: usize = 40;

fn lead(scenario: &Scenario) -> String {
    let facts = format!(
        "The {} level, law {}, {} of simulated time, seed {}.",
        scenario.level.as_str(),
        scenario.law.as_str(),
        span(scenario.duration.as_nanos() as f64 / 1e9),
        scenario.seed
    );
    match scenario.about.as_str() {
        "" => facts,
        about if about.ends_with(['.', '!', '?', ':', ';']) => format!("{about} {facts}"),
        about => format!("{about}. {facts}"),
    }
}

fn tiles(scenario: &Scenario, outcome: &Outcome) -> Vec<Tile> {
    let tile = |value: Cell, text: String| Tile { value, text };
    let judged: Vec<&Phase> =
        outcome.phases.iter().filter(|p| p.judged != Judged::Unjudged).collect();
    let mut times: Vec<f64> = judged
        .iter()
        .filter_map(|phase| match phase.judged {
            Judged::Settled(after) => Some(after),
            Judged::Unsettled | Judged::Unjudged => None,
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let all = times.len() == judged.len();
    let tolerance = percent(scenario.output.tolerance);
    let mut tiles = vec![tile(
        Cell::toned(
            format!("{} of {}", times.len(), judged.len()),
            if all { Tone::Good } else { Tone::Bad },
        ),
        format!("phases that ended with every session within {tolerance} of its share"),
    )];
    if let (Some(median), Some(longest)) = (median(&times), times.last()) {
        tiles.push(tile(span(median).into(), "median time until then".into()));
        tiles.push(tile(span(*longest).into(), "longest time until then".into()));
    }
    let worst = judged.iter().map(|p| p.jain).fold(f64::INFINITY, f64::min);
    if worst.is_finite() {
        tiles.push(tile(
            format!("{worst:.4}").into(),
            "Jain's index of the least fair phase; 1 is perfectly fair".into(),
        ));
    }
    let (arrived, lost) = outcome.packets;
    if arrived > 0 {
        let part = lost as f64 / (arrived + lost) as f64;
        tiles.push(tile(percent(part).into(), format!("of {} data packets lost", arrived + lost)));
    }
    tiles
}

/// Sessions whose curves are shown: spread over all of them.
fn shown<'a>(scenario: &Scenario, outcome: &'a Outcome) -> Vec<&'a Course> {
    let every = outcome.sessions.len().div_ceil(scenario.output.curves.max(1)).max(1);
    outcome.sessions.iter().step_by(every).collect()
}

fn rates(scenario: &Scenario, outcome: &Outcome) -> Figure {
    let y = Axis::linear("Rate, Mbit/s");
    let title = "Rates of sessions and their max-min shares";
    let mut figure = Figure::new("rates", title, time(scenario), y);
    let courses = shown(scenario, outcome);
    for (n, course) in courses.iter().enumerate() {
        let name = &scenario.sessions[course.number].name;
        let (from, to) = course.life;
        let points = outcome.times.iter().zip(&course.rate);
        let there = |t: f64| t >= from && t <= to + 0.3;
        let points = points.filter(|(t, _)| there(**t)).map(|(t, rate)| (*t, rate / 1e6));
        figure.series.push(Series::line(name.clone(), "Mbit/s", points.collect()).coloured(n));
    }
    for (n, course) in courses.iter().enumerate() {
        let mut level: Vec<(f64, f64)> = course.wanted.iter().map(|(t, w)| (*t, w / 1e6)).collect();
        if let (Some(last), Some(end)) = (level.last().copied(), outcome.times.last())
            && last.1.is_finite()
        {
            level.push((*end, last.1));
        }
        let name = if n == 0 { "max-min share" } else { "" };
        figure.series.push(Series::line(name, "Mbit/s", level).styled(Style::Wanted).coloured(n));
    }
    figure.marks = marks(scenario);
    figure.note = format!(
        "Solid: the rate at which each session's data arrived, headers included. Dashed: its exact \
         max-min share. {}",
        if courses.len() < scenario.sessions.len() {
            format!("{} of {} sessions are shown.", courses.len(), scenario.sessions.len())
        } else {
            String::new()
        }
    );
    figure
}

/// The axis of time, over the whole run.
fn time(scenario: &Scenario) -> Axis {
    let end = scenario.duration.as_nanos() as f64 / 1e9;
    Axis { range: Some((0.0, end)), ..Axis::linear("Time, s") }
}

fn marks(scenario: &Scenario) -> Vec<(f64, String)> {
    let at = |span: gtp_alloc::Span| span.as_nanos() as f64 / 1e9;
    let events = scenario.events.iter();
    let mut marks: Vec<(f64, String)> =
        events.map(|(when, e)| (at(*when), e.described(scenario))).collect();
    if scenario.sessions.len() <= NAMED_MAX {
        for session in &scenario.sessions {
            marks.push((at(session.start), format!("+{}", session.name)));
            marks.extend(session.stop.map(|stop| (at(stop), format!("\u{2212}{}", session.name))));
            let changes = session.demand.iter().filter(|(when, _)| *when > session.start);
            marks.extend(changes.map(|(when, _)| (at(*when), format!("{}: demand", session.name))));
        }
    }
    if scenario.backgrounds.len() <= NAMED_MAX {
        for flow in &scenario.backgrounds {
            marks.push((at(flow.start), format!("+{}", flow.name)));
            marks.extend(flow.stop.map(|stop| (at(stop), format!("\u{2212}{}", flow.name))));
        }
    }
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));
    marks.truncate(MARKS_MAX);
    marks
}

fn far(outcome: &Outcome, scenario: &Scenario) -> Figure {
    let y = Axis::log("Distance, part of all shares");
    let mut figure = Figure::new("distance", "Distance to the max-min rates", time(scenario), y);
    let parts = outcome.times.iter().zip(outcome.distance.iter().zip(&outcome.goal));
    // Below one part in a million there is nothing to see but rounding; nobody there, no distance.
    let part = |d: f64, goal: f64| if goal > 0.0 { (d / goal).max(1e-6) } else { f64::NAN };
    let points = parts.map(|(t, (d, goal))| (*t, part(*d, *goal))).collect();
    figure.series.push(Series::line("D(t)", "", points));
    figure.marks = marks(scenario);
    figure.note = "D(t) is the 2-norm of the difference between rates and max-min rates, over the \
                   2-norm of the latter."
        .into();
    figure
}

fn jain(outcome: &Outcome, scenario: &Scenario) -> Figure {
    let y = Axis { range: Some((0.0, 1.02)), ..Axis::linear("Jain's index") };
    let title = "Fairness: Jain's index of what sessions had of their shares";
    let mut figure = Figure::new("jain", title, time(scenario), y);
    let points = outcome.times.iter().copied().zip(outcome.jain.iter().copied()).collect();
    figure.series.push(Series::line("Jain's index", "", points));
    figure.marks = marks(scenario);
    figure
}

fn loads(scenario: &Scenario, outcome: &Outcome) -> Option<Figure> {
    let (source, sink) = outcome.loads.as_ref()?;
    let title = "Largest load of any source and any sink";
    let mut figure = Figure::new("load", title, time(scenario), Axis::linear("Load over capacity"));
    for (name, load) in [("sources", source), ("sinks", sink)] {
        let points = outcome.times.iter().copied().zip(load.iter().copied()).collect();
        figure.series.push(Series::line(name, "", points));
    }
    figure.marks = marks(scenario);
    figure.note = "The worst of each bin, at whatever moment it was; above 1 is overload.".into();
    Some(figure)
}

fn queues(scenario: &Scenario, outcome: &Outcome) -> Option<Figure> {
    let mut busiest: Vec<_> =
        outcome.links.iter().filter(|l| l.queue.iter().any(|q| *q > 0.0)).collect();
    busiest.sort_by(|a, b| b.wait_max.total_cmp(&a.wait_max));
    busiest.truncate(scenario.output.curves.min(8));
    let title = "Queues: what waits, as time at the link's rate";
    let y = Axis::linear("Queue, ms");
    let mut figure = Figure::new("queues", title, time(scenario), y);
    for link in &busiest {
        let points = outcome.times.iter().zip(&link.queue).map(|(t, q)| (*t, q * 1e3)).collect();
        figure.series.push(Series::line(link.name.clone(), "ms", points));
    }
    figure.marks = marks(scenario);
    (!busiest.is_empty()).then_some(figure)
}

fn drops(scenario: &Scenario, outcome: &Outcome) -> Option<Figure> {
    let bin = scenario.output.every.as_nanos() as f64 / 1e9;
    let mut lossy: Vec<_> =
        outcome.links.iter().filter(|l| l.dropped.0 + l.dropped.1 > 0).collect();
    lossy.sort_by_key(|l| std::cmp::Reverse(l.dropped.0 + l.dropped.1));
    lossy.truncate(scenario.output.curves.min(8));
    let y = Axis::linear("Packets lost, 1/s");
    let mut figure = Figure::new("loss", "Losses by link", time(scenario), y);
    for link in &lossy {
        let points = outcome.times.iter().zip(&link.drops);
        let points = points.map(|(t, n)| (*t, *n as f64 / bin)).collect();
        let series = Series::line(link.name.clone(), "1/s", points);
        figure.series.push(series.styled(Style::Step));
    }
    figure.marks = marks(scenario);
    (!lossy.is_empty()).then_some(figure)
}

fn phases(scenario: &Scenario, outcome: &Outcome) -> Table {
    let head = ["Phase", "from", "sessions", "wanted", "got", "Jain", "worst off", "settled after"];
    let row = |phase: &Phase| -> Vec<Cell> {
        let tone = match phase.judged {
            Judged::Settled(_) => Tone::Good,
            Judged::Unsettled => Tone::Bad,
            Judged::Unjudged => Tone::Plain,
        };
        vec![
            phase.event.clone().into(),
            format!("{:.3} s", phase.time.0).into(),
            phase.sessions.to_string().into(),
            rate(phase.sums.0).into(),
            rate(phase.sums.1).into(),
            format!("{:.4}", phase.jain).into(),
            percent(phase.worst).into(),
            Cell::toned(judged(scenario, phase), tone),
        ]
    };
    Table {
        title: "Phases".into(),
        head: head.map(str::to_owned).to_vec(),
        rows: outcome.phases.iter().take(ROWS_MAX).map(row).collect(),
        note: format!(
            "A phase is a time over which shares stay the same. What was got is the mean of its \
             second half; it is settled from when on every session stays within {} of its share.",
            percent(scenario.output.tolerance)
        ),
    }
}

fn sessions(scenario: &Scenario, outcome: &Outcome) -> Table {
    let head = ["Session", "from", "to", "last share", "got", "arrived", "lost", "RTT", "ending"];
    let row = |course: &Course| -> Vec<Cell> {
        let all = (course.arrived + course.lost).max(1);
        let bad = course.ending.starts_with("lost");
        let [wanted, got] = last_share(outcome, course);
        vec![
            scenario.sessions[course.number].name.clone().into(),
            format!("{:.3} s", course.life.0).into(),
            format!("{:.3} s", course.life.1).into(),
            wanted.into(),
            got.into(),
            super::text::bytes(course.payload).into(),
            percent(course.lost as f64 / all as f64).into(),
            if course.rtt > 0.0 { span(course.rtt).into() } else { "–".into() },
            Cell::toned(course.ending.clone(), if bad { Tone::Bad } else { Tone::Plain }),
        ]
    };
    Table {
        title: "Sessions".into(),
        head: head.map(str::to_owned).to_vec(),
        rows: outcome.sessions.iter().take(ROWS_MAX).map(row).collect(),
        note: if scenario.sessions.len() > ROWS_MAX.min(outcome.sessions.len()) {
            format!("The first of {}.", scenario.sessions.len())
        } else {
            String::new()
        },
    }
}

fn links(outcome: &Outcome) -> Table {
    let head = ["Link", "packets", "dropped in queue", "lost", "busy", "longest wait"];
    let rows = outcome.links.iter().take(ROWS_MAX).map(|link| -> Vec<Cell> {
        vec![
            link.name.clone().into(),
            link.offered.to_string().into(),
            link.dropped.0.to_string().into(),
            link.dropped.1.to_string().into(),
            percent(link.busy).into(),
            span(link.wait_max).into(),
        ]
    });
    Table {
        title: "Links".into(),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        note: String::new(),
    }
}
