//! `gtp plan`: moves objects between servers as a file says.
//!
//! The bytes go from server to server; this host orders and watches. A plan is refused whole before
//! anything moves if something in it is wrong, and then every fault is told. What ends when is
//! foreseen by the fluid model, and said beside what came true.

mod ask;
mod file;
mod forecast;
mod orders;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::ValueHint;
use clap::builder::BoolishValueParser;
use gtp::{Failure, FailureKind, Host};

use crate::args::{RETRY_FOR, When};
use crate::show::plan::{Forecasts, Watched};
use crate::signals::Signals;
use crate::{verbs, words};

pub use file::{Plan, Source};
pub use forecast::Forecast;

/// Options of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The plan: hosts, objects, who has them and who wants them
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Print what each transfer would get and when it would end, and move nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Go on this long with a transfer that makes no progress
    #[arg(
        long, value_name = "TIME", default_value = RETRY_FOR, env = "GTP_RETRY_FOR",
        value_parser = words::span, allow_hyphen_values = true
    )]
    pub retry_for: Duration,
    /// Stop after this time, with exit code 10; what is complete is kept
    #[arg(long, value_name = "TIME", env = "GTP_TIME_LIMIT", value_parser = words::span,
        allow_hyphen_values = true)]
    pub time_limit: Option<Duration>,
    /// One JSON object a line on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
    /// When to show progress
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", env = "GTP_PROGRESS")]
    pub progress: When,
}

pub fn run(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let text = read(&args.file)?;
    let refused = |faults: Vec<String>| refused(&args.file, faults);
    let mut plan = file::read(&text).map_err(refused)?;
    if args.dry_run
        && let Some(sizes) = ask::stated_sizes(&plan)
    {
        let foreseen = forecast::forecast(&plan, &sizes).map_err(refused)?;
        return Forecasts { plan: &plan, sizes: &sizes, foreseen: &foreseen }.show(args.json);
    }
    let runtime = verbs::runtime()?;
    let done = runtime.block_on(async {
        let host = verbs::start_client(Host::builder())?;
        let mut signals = Signals::take().map_err(verbs::other)?;
        let asked = tokio::select! {
            asked = ask::sizes(&host, &mut plan, args.retry_for) => asked.map_err(refused)?,
            () = signals.next() => {
                return Err(Failure::new(FailureKind::Interrupted, "interrupted"));
            }
        };
        asked.told.iter().for_each(|failure| crate::output::aside(format_args!("gtp: {failure}")));
        let foreseen = forecast::forecast(&plan, &asked.sizes).map_err(refused)?;
        let (plan, sizes, foreseen) = (&plan, &asked.sizes, &foreseen);
        if args.dry_run {
            return Forecasts { plan, sizes, foreseen }.show(args.json);
        }
        let mut watched = Watched::new(args, Forecasts { plan, sizes, foreseen });
        let ends = orders::run(&host, plan, args, &mut signals, &mut watched).await?;
        watched.ended(ends.exit_code());
        let code = ends.exit_code();
        Ok(if code == 0 { verbs::done() } else { ExitCode::from(code) })
    });
    // A name that is being looked up must not keep the process.
    runtime.shutdown_background();
    done
}

/// That nothing was moved, and everything that is wrong.
fn refused(path: &Path, faults: Vec<String>) -> Failure {
    let more = faults.len().saturating_sub(FAULTS_TOLD);
    let count = words::count(faults.len() as u64, "fault");
    let mut text = format!("{}: {count}, nothing is moved", path.display());
    for fault in faults.iter().take(FAULTS_TOLD) {
        text += &format!("\n  {fault}");
    }
    if more > 0 {
        text += &format!("\n  and {more} more");
    }
    Failure::new(FailureKind::Usage, text)
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed =
        |why: String| Failure::new(FailureKind::Usage, format!("{}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(file::FILE_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > file::FILE_MAX {
        return Err(failed("a plan has 1 MiB at most".into()));
    }
    Ok(text)
}

/// Faults that are told; further ones are counted.
const FAULTS_TOLD: usize = 100;
