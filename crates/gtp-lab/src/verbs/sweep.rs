//! `gtp-lab sweep`: a scenario under every combination of its swept values.
//!
//! All combinations are checked before the first one runs. They run on all cores, and the results
//! come in the order of the combinations whatever the cores do.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{Level, pool, run::stem};
use crate::course::{self, Judged, Outcome};
use crate::figures;
use crate::refusal::Refusal;
use crate::report;
use crate::scenario::{Document, Overrides, Swept};
use crate::series::median;
use crate::sweep_page;

/// Arguments of `gtp-lab sweep`.
#[derive(Args)]
#[command(after_help = "\
What is swept stands in the file: [sweep], with keys such as seed = \"1..30\" or
link.core.delay = [\"1ms\", \"30ms\"]. The page is DIR/NAME-sweep.html, the numbers
DIR/NAME-sweep.csv. Exit codes: 0 done, 2 bad scenario, 3 no such file, 1 anything else.")]
pub struct Sweep {
    /// The scenario's TOML file, with a table [sweep]
    file: PathBuf,
    /// Where page, figures and numbers go
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Simulate every packet, or rates alone, whatever the file says
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// Runs at a time; all cores where it is not given. Results do not depend on it
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print one JSON object a run instead of a table
    #[arg(long)]
    json: bool,
}

/// What one run of a sweep gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The swept values, in the order of the keys.
    pub values: Vec<String>,
    /// The measures, in the order of [`MEASURES`]; NaN where there is none.
    pub measures: [f64; MEASURES.len()],
    /// The run's hash.
    pub hash: u64,
}

/// Measures of a run, with their units.
pub const MEASURES: [(&str, &str); 7] = [
    ("phases settled", "%"),
    ("median settling time", "s"),
    ("longest settling time", "s"),
    ("worst Jain's index", ""),
    ("worst session off its share", "%"),
    ("packets lost", "%"),
    ("worst load of a sink", "%"),
];

/// Runs all combinations, prints, writes.
///
/// # Errors
/// If the scenario is refused or something cannot be written.
pub fn run(arguments: &Sweep) -> Result<(), Refusal> {
    let document = Document::open(&arguments.file)?;
    let overrides = Overrides { level: arguments.level.map(Into::into), seed: None };
    let swept = document.cases(overrides)?;
    let count = swept.count();
    let threads = arguments.threads.unwrap_or_else(pool::cores);
    super::make(&arguments.out)?;
    let bar = super::bar(count as u64, "running");
    let points = pool::run(count, threads, &bar, |n| point(&document, &swept, n, overrides));
    let points: Vec<Point> = points.into_iter().collect::<Result<_, _>>()?;
    let keys: Vec<&str> = swept.keys.iter().map(|key| key.path.as_str()).collect();
    if arguments.json {
        for point in &points {
            gtp_lab::say!("{}", object(&keys, point));
        }
    } else {
        gtp_lab::output::text(table(&keys, &points));
    }
    let failed = |e| super::unwritten(&arguments.out, &e);
    let stem = format!("{}-sweep", stem(&arguments.file));
    let title = document.scenario(overrides)?.title;
    let page = sweep_page::page(&title, &keys, &points, document.source());
    let mut written = figures::write(&page, &arguments.out, &stem).map_err(failed)?;
    let csv = arguments.out.join(format!("{stem}.csv"));
    fs::write(&csv, sweep_page::csv(&keys, &points)).map_err(failed)?;
    written.push(csv);
    for path in written {
        gtp_lab::aside!("wrote {}", path.display());
    }
    Ok(())
}

fn point(
    document: &Document,
    swept: &Swept,
    number: usize,
    overrides: Overrides,
) -> Result<Point, Refusal> {
    let case = swept.case(number);
    let scenario = document.case(&case, overrides)?;
    let outcome = course::run(&scenario, &mut |_| {})?;
    Ok(Point { values: case.values, measures: measures(&outcome), hash: outcome.hash })
}

fn measures(outcome: &Outcome) -> [f64; MEASURES.len()] {
    let judged: Vec<_> = outcome.phases.iter().filter(|p| p.judged != Judged::Unjudged).collect();
    let mut times: Vec<f64> = judged
        .iter()
        .filter_map(|phase| match phase.judged {
            Judged::Settled(after) => Some(after),
            Judged::Unsettled | Judged::Unjudged => None,
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NAN, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NAN, f64::max);
    let (arrived, lost) = outcome.packets;
    let all = arrived + lost;
    [
        100.0 * times.len() as f64 / judged.len() as f64,
        median(&times).unwrap_or(f64::NAN),
        times.last().copied().unwrap_or(f64::NAN),
        least(&mut judged.iter().map(|p| p.jain)),
        100.0 * most(&mut judged.iter().map(|p| p.worst)),
        if all == 0 { f64::NAN } else { 100.0 * lost as f64 / all as f64 },
        match &outcome.loads {
            Some((_, sink)) => 100.0 * most(&mut sink.iter().copied()),
            None => f64::NAN,
        },
    ]
}

fn object(keys: &[&str], point: &Point) -> serde_json::Value {
    let swept: serde_json::Map<_, _> = (keys.iter().zip(&point.values))
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    let measures: serde_json::Map<_, _> = (MEASURES.iter().zip(point.measures))
        .map(|((name, _), value)| ((*name).to_owned(), json!(value)))
        .collect();
    json!({ "swept": swept, "measures": measures, "hash": format!("{:016x}", point.hash) })
}

/// Rows of the printed table.
const ROWS_MAX: usize = 60;

fn table(keys: &[&str], points: &[Point]) -> String {
    let used = used(points);
    let mut head: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    head.extend(used.iter().map(|&m| sweep_page::label(m)));
    let mut rows = vec![head];
    for point in points.iter().take(ROWS_MAX) {
        let mut row = point.values.clone();
        row.extend(used.iter().map(|&m| sweep_page::shown(point.measures[m])));
        rows.push(row);
    }
    let mut said = report::columns(&rows);
    if points.len() > ROWS_MAX {
        said += &format!("and {} more runs\n", points.len() - ROWS_MAX);
    }
    said
}

/// Measures that some run has.
pub fn used(points: &[Point]) -> Vec<usize> {
    let has = |&m: &usize| points.iter().any(|p| p.measures[m].is_finite());
    (0..MEASURES.len()).filter(has).collect()
}
