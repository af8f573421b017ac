//! `gtp demo`: the thesis's five-to-one experiment on this machine, without root.
//!
//! Five servers, five emulated paths of 1 to 140 ms into one access link, and a sink that shares
//! its capacity among five sessions which come and go; then one file from all five at once. Real
//! files, really verified. It prints a table and writes one page; what is printed is what was
//! measured, good or not.

mod analysis;
mod files;
mod network;
mod page;
mod plan;
mod record;
mod screen;
mod servers;
mod stage;
mod summary;
#[cfg(test)]
mod synthetic;
mod table;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum, ValueHint};
use gtp::{Failure, FailureKind, Law, Span};
use serde_json::{Value, json};

use crate::output;
use crate::show::json::line;
use crate::signals::Signals;
use analysis::Report;
use files::Workspace;
use plan::{NAMES, Plan, RTT_MS};
use record::Record;
use screen::Screen;
use summary::Summary;

/// Options of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Directory for the page (demo.html) and the record of what was seen (demo.json)
    #[arg(
        long, value_name = "DIR", default_value = "demo-out", env = "GTP_OUT",
        value_hint = ValueHint::DirPath
    )]
    pub out: PathBuf,
    /// Seconds from one session's start to the next; the whole takes about twelve times as long
    #[arg(
        long, value_name = "S", default_value = "3", env = "GTP_SECONDS_PER_STEP",
        value_parser = step
    )]
    pub seconds_per_step: Span,
    /// Control law, run at both ends
    #[arg(long, value_enum, default_value = "grant", env = "GTP_CONTROL")]
    pub control: crate::args::Agreed,
    /// One JSON object a line on standard output, in place of the table
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
    /// Whether to show the page in a browser at the end
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", env = "GTP_OPEN")]
    pub open: Open,
}

/// When the page is shown in a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Open {
    /// When a person at a desktop started the demo
    Auto,
    /// Never
    Never,
}

/// Runs the demo and tells what it saw.
///
/// # Errors
/// When it could not be run to its end. A file that does not verify is told by the exit code.
pub fn run(args: &DemoArgs, law: Law) -> Result<ExitCode, Failure> {
    let plan = Plan { step: args.seconds_per_step };
    // What is named first goes last: nothing runs any more when the files vanish.
    let workspace = Arc::new(Workspace::new(plan.disk_bytes())?);
    let record = watch(plan, law, &workspace)?;
    drop(workspace);
    let report = analysis::analyse(&record);
    let page = write(&args.out, &record, &report)?;
    if args.json {
        tell_programs(&record, &report, &page);
    } else {
        let table = table::render(&record, &report);
        output::line(format_args!("{table}\nThe page: {}", page.display()))?;
        show(args.open, &page);
    }
    if record.verified() {
        return Ok(ExitCode::SUCCESS);
    }
    let text = "a file did not arrive as it was served";
    Err(Failure::new(FailureKind::Integrity, text))
}

/// Plays the demo until its end or the user's.
fn watch(plan: Plan, law: Law, workspace: &Arc<Workspace>) -> Result<Record, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().map_err(other)?;
    let screen = Screen::new();
    runtime.block_on(async {
        let mut signals = Signals::take().map_err(other)?;
        tokio::select! {
            record = stage::play(plan, law, workspace, &screen) => record,
            () = signals.next() => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
        }
    })
}

/// Writes the page and the record; returns the page's path.
fn write(out: &Path, record: &Record, report: &Report) -> Result<PathBuf, Failure> {
    let failed = |path: &Path, error: std::io::Error| {
        Failure::new(FailureKind::Destination, format!("{}: {error}", path.display()))
    };
    std::fs::create_dir_all(out).map_err(|error| failed(out, error))?;
    let json = serde_json::to_string(&json!({ "record": record, "report": report }));
    let path = out.join("demo.json");
    std::fs::write(&path, json.map_err(other)?).map_err(|error| failed(&path, error))?;
    let path = out.join("demo.html");
    std::fs::write(&path, page::render(record, report)).map_err(|error| failed(&path, error))?;
    Ok(path.canonicalize().unwrap_or(path))
}

/// A line for each phase and each file, then what it amounts to.
fn tell_programs(record: &Record, report: &Report, page: &Path) {
    for phase in &report.phases {
        let mut value = json!(phase);
        value["event"] = json!("phase");
        line(&value);
    }
    if let Some(phase) = &report.gather {
        let mut value = json!(phase);
        value["event"] = json!("gather");
        line(&value);
    }
    let files = NAMES.iter().copied().zip(&record.arrivals);
    for (name, arrival) in files.chain([("all", &record.gather_arrival)]) {
        let mut value = json!(arrival);
        value["event"] = json!("file");
        value["session"] = json!(name);
        value["goodput"] = json!(arrival.goodput());
        line(&value);
    }
    line(&totals(record, report, page));
}

fn totals(record: &Record, report: &Report, page: &Path) -> Value {
    let summary = Summary::of(record, report);
    json!({
        "event": "done",
        "verified": record.verified(),
        "rtt_ms": RTT_MS,
        "phases": summary.phases,
        "settled": summary.settled,
        "settling_median": summary.settling_median,
        "settling_longest": summary.settling_longest,
        "jain_worst": summary.jain_worst,
        "queue_loss": summary.loss,
        "gather_rate": summary.gather_rate,
        "page": page.to_string_lossy(),
    })
}

/// Shows the page if there is a desktop to show it on and a person who waits for it.
fn show(open: Open, page: &Path) {
    let desktop =
        ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let person = std::io::stdout().is_terminal();
    let wanted = match open {
        Open::Auto => desktop && person,
        Open::Never => false,
    };
    if wanted {
        let mut command = Command::new("xdg-open");
        command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without the program the path above is what there is.
        let _ = command.spawn();
    }
}

/// Reads the length of a step.
fn step(text: &str) -> Result<Span, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    if (STEP_MIN..=STEP_MAX).contains(&seconds) {
        Ok(Span::from_secs_f64(seconds))
    } else {
        Err(format!("a step is from {STEP_MIN} to {STEP_MAX} seconds"))
    }
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Other, error.to_string())
}

/// The shortest step, in seconds: long enough for a connection over 140 ms.
const STEP_MIN: f64 = 0.2;

/// The longest step, in seconds: its files are larger than 10 GB.
const STEP_MAX: f64 = 30.0;
