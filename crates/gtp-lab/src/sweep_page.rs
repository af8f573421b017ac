//! A sweep as a page: each measure over a swept key, a curve for each setting of the others.
//!
//! The seed is no setting: runs that differ by it alone are one point, its median, in a band from
//! the least to the largest. What is drawn along the axis is the first key with numbers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::scenario::number_of;
use crate::series::{Axis, Cell, Figure, Page, Part, Series, Table, Tile, median};
use crate::verbs::sweep::{MEASURES, Point, used};

/// The page of a sweep; `source` is the scenario's text.
pub fn page(title: &str, keys: &[&str], points: &[Point], source: &str) -> Page {
    let mut page = Page {
        title: format!("{title}: {}", counted(points.len(), "run")),
        lead: format!("Swept: {}.", keys.join(", ")),
        tiles: tiles(points),
        parts: Vec::new(),
    };
    for measure in used(points) {
        page.parts.push(Part::Figure(figure(keys, points, measure)));
    }
    page.parts.push(Part::Heading("Numbers".into()));
    page.parts.push(Part::Table(table(keys, points)));
    page.parts.push(Part::Heading("The scenario".into()));
    page.parts.push(Part::Listing(source.chars().take(20_000).collect()));
    page
}

/// All runs of a sweep as CSV.
pub fn csv(keys: &[&str], points: &[Point]) -> String {
    let mut csv = keys.join(",");
    for (name, unit) in MEASURES {
        let _ = write!(csv, ",{}", format!("{name} {unit}").trim().replace([' ', '\''], "_"));
    }
    csv += ",hash\n";
    for point in points {
        csv += &point.values.join(",");
        for value in point.measures {
            let _ = if value.is_finite() { write!(csv, ",{value}") } else { write!(csv, ",") };
        }
        let _ = writeln!(csv, ",{:016x}", point.hash);
    }
    csv
}

/// A measure's name with its unit.
pub fn label(measure: usize) -> String {
    let (name, unit) = MEASURES[measure];
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

/// A measure's value in words.
pub fn shown(value: f64) -> String {
    if value.is_finite() { format!("{value:.4}") } else { "–".to_owned() }
}

fn counted(n: usize, word: &str) -> String {
    gtp_text::count(n as u64, word)
}

fn tiles(points: &[Point]) -> Vec<Tile> {
    let mut tiles = vec![Tile { value: points.len().to_string().into(), text: "runs".into() }];
    for measure in used(points) {
        let mut values: Vec<f64> =
            points.iter().map(|p| p.measures[measure]).filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        if let Some(median) = median(&values) {
            let text = format!("median over all runs: {}", label(measure));
            tiles.push(Tile { value: shown(median).into(), text });
        }
    }
    tiles
}

fn figure(keys: &[&str], points: &[Point], measure: usize) -> Figure {
    let along = along(keys, points);
    let label = label(measure);
    let (name, unit) = MEASURES[measure];
    let id: String = name.chars().filter(|c| c.is_ascii_alphabetic() || *c == ' ').collect();
    let x = along.map_or_else(|| "run".to_owned(), |n| axis_label(keys[n], points, n));
    let mut figure = Figure::new(
        &id.replace(' ', "-").to_lowercase(),
        &label,
        Axis::linear(x),
        Axis::linear(&label),
    );
    // One curve for each setting of the other keys, in the order in which they first appear.
    let mut order: Vec<String> = Vec::new();
    let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (number, point) in points.iter().enumerate() {
        let value = point.measures[measure];
        if !value.is_finite() {
            continue;
        }
        let place = along.and_then(|n| number_of(&point.values[n])).map(|(x, _)| x);
        let setting = setting(keys, point, along);
        if !order.contains(&setting) {
            order.push(setting.clone());
        }
        curves.entry(setting).or_default().push((place.unwrap_or(number as f64), value));
    }
    for setting in order {
        let points = curves.remove(&setting).unwrap_or_default();
        let (middle, band) = gathered(points);
        let name = if setting.is_empty() { name.to_owned() } else { setting };
        let series = Series::line(name, unit, middle);
        figure.series.push(if band.iter().any(|b| b.1 < b.2) {
            series.banded(band)
        } else {
            series
        });
    }
    figure.note =
        "Runs that differ by their seeds alone are one point, the median, in a band from \
                   the least to the largest."
            .into();
    figure
}

/// The first key with several numbers; the seed only if there is no other.
fn along(keys: &[&str], points: &[Point]) -> Option<usize> {
    let numbers = |n: &usize| {
        let first = points.first().map(|p| &p.values[*n]);
        points.iter().all(|p| number_of(&p.values[*n]).is_some())
            && points.iter().any(|p| Some(&p.values[*n]) != first)
    };
    let all: Vec<usize> = (0..keys.len()).filter(numbers).collect();
    all.iter().copied().find(|&n| keys[n] != "seed").or_else(|| all.first().copied())
}

fn axis_label(key: &str, points: &[Point], n: usize) -> String {
    let unit = points.first().and_then(|p| number_of(&p.values[n])).map_or("", |(_, unit)| unit);
    if unit.is_empty() { key.to_owned() } else { format!("{key}, {unit}") }
}

fn setting(keys: &[&str], point: &Point, along: Option<usize>) -> String {
    let others = (0..keys.len()).filter(|&n| Some(n) != along && keys[n] != "seed");
    let words: Vec<String> = others.map(|n| format!("{} {}", keys[n], point.values[n])).collect();
    words.join(", ")
}

/// Points at the same place as one, with a band around it.
type Gathered = (Vec<(f64, f64)>, Vec<(f64, f64, f64)>);

fn gathered(mut points: Vec<(f64, f64)>) -> Gathered {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (mut middle, mut band) = (Vec::new(), Vec::new());
    for group in points.chunk_by(|a, b| a.0 == b.0) {
        let x = group[0].0;
        let values: Vec<f64> = group.iter().map(|(_, value)| *value).collect();
        middle.extend(median(&values).map(|middle| (x, middle)));
        band.push((x, group[0].1, group[group.len() - 1].1));
    }
    (middle, band)
}

fn table(keys: &[&str], points: &[Point]) -> Table {
    let used = used(points);
    let mut head: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    head.extend(used.iter().map(|&m| label(m)));
    let rows = points.iter().take(500).map(|point| {
        let mut row: Vec<Cell> = point.values.iter().map(|v| v.as_str().into()).collect();
        row.extend(used.iter().map(|&m| Cell::from(shown(point.measures[m]))));
        row
    });
    Table { title: String::new(), head, rows: rows.collect(), note: String::new() }
}
