//! `gtp-lab run`: one scenario, its table, its page, its figures.
//!
//! The page and its figures are named after the file, so that the results of several scenarios lie
//! beside each other.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Level;
use crate::refusal::Refusal;
use crate::report::{self, Format};
use crate::scenario::{Document, Overrides};
use crate::{course, figures};

/// Arguments of `gtp-lab run`.
#[derive(Args)]
#[command(after_help = "\
The page is DIR/NAME.html, a figure DIR/NAME-FIGURE.svg; NAME is that of the file. docs/SIMULATOR.md
describes the file. Exit codes: 0 done, 2 bad scenario, 3 no such file, 1 anything else.")]
pub struct Run {
    /// The scenario's TOML file
    file: PathBuf,
    /// Where page, figures and data go
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Simulate every packet, or rates alone, whatever the file says
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// Another seed than the file's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the series as CSV too
    #[arg(long)]
    csv: bool,
    /// Print the summary as one JSON object instead of a table, and write it as a file
    #[arg(long)]
    json: bool,
    /// Run it once more beside itself, and replay its packets by the laws of nature
    #[arg(long)]
    check: bool,
    /// Only print the summary, and write nothing
    #[arg(long)]
    dry: bool,
}

/// Runs, prints, writes.
///
/// # Errors
/// If the scenario is refused or something cannot be written.
pub fn run(arguments: &Run) -> Result<(), Refusal> {
    let document = Document::open(&arguments.file)?;
    let level = arguments.level.map(Into::into);
    let scenario = document.scenario(Overrides { level, seed: arguments.seed })?;
    if !arguments.dry {
        super::make(&arguments.out)?;
    }
    let bar = super::bar(1_000, "running");
    let outcome = course::run(&scenario, &mut |done| bar.set_position((done * 1e3) as u64))?;
    bar.finish_and_clear();
    if arguments.json {
        gtp_lab::say!("{}", report::json(&scenario, &outcome));
    } else {
        gtp_lab::output::text(report::summary(&scenario, &outcome));
    }
    if !arguments.dry {
        let stem = stem(&arguments.file);
        let page = report::page(&scenario, &outcome, document.source());
        let failed = |e| super::unwritten(&arguments.out, &e);
        let mut written = figures::write(&page, &arguments.out, &stem).map_err(failed)?;
        let mut formats = Vec::new();
        formats.extend(arguments.csv.then_some(Format::Csv));
        formats.extend(arguments.json.then_some(Format::Json));
        let data = report::write(&scenario, &outcome, &formats, &arguments.out, &stem);
        written.extend(data.map_err(failed)?);
        for path in written {
            gtp_lab::aside!("wrote {}", path.display());
        }
    }
    if arguments.check { super::replay::check(&scenario) } else { Ok(()) }
}

/// The file's name without its ending.
pub fn stem(file: &Path) -> String {
    file.file_stem().map_or_else(|| "run".to_owned(), |stem| stem.to_string_lossy().into_owned())
}
