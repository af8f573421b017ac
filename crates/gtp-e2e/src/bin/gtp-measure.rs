//! Measures the product over emulated networks; needs root, iproute2 and, for TCP, iperf3.
//!
//! `gtp-measure run CASE… [--runs 3] [--most-stolen 3]` prints one line of JSON per row and
//! run, then the medians.
//! It fails if a counted row says in `missed` what it should have shown and did not.
//! `gtp-measure compare [CASE…]` runs a scenario through real sockets and in the simulator, prints
//! how far the two are apart as JSON, and draws both.
//! `gtp-measure repro [ENTRY…]` runs what entries of the papers name, and stores it beside them;
//! `--missing` only where there is no result yet, `--list` says how long that takes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, ValueEnum};
use gtp_e2e::cases::{self, Tools};
use gtp_e2e::compare::{self, Runs, Scenario};
use gtp_e2e::machine::Ticks;
use gtp_e2e::stored;
use gtp_proto::Law;
use serde_json::Value;

/// How many tries each run has at most while time is stolen.
const REPEATS: usize = 4;

/// Measure the product over emulated networks.
#[derive(Parser)]
enum Arguments {
    /// Runs cases.
    Run(RunArgs),
    /// Runs scenarios through real sockets and in the simulator, and says how far they are apart.
    Compare(CompareArgs),
    /// Runs what entries of the papers name, and stores what is found beside them.
    Repro(ReproArgs),
    /// The sink's process of a case.
    Sink {
        /// What to do.
        plan: PathBuf,
    },
    /// The attackers' process of a case; it ends when it is killed.
    Attack {
        /// What to do.
        plan: String,
    },
    /// The process that reads datagrams whose gaps are judged.
    GapsIn {
        /// Their rate in bit/s.
        rate: f64,
    },
    /// The one that sends them.
    GapsOut {
        /// Their rate in bit/s.
        rate: f64,
    },
    /// The receiving process of frames over TCP.
    FramesIn,
    /// The sending one.
    FramesOut {
        /// The kernel's congestion control.
        law: String,
    },
    /// The receiving process of frames in step over TCP.
    StepIn {
        /// Connections.
        connections: usize,
    },
    /// The sending one.
    StepOut {
        /// What to do.
        plan: String,
    },
    /// The process of a source that sends by itself.
    Source {
        /// What to do.
        plan: PathBuf,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Their names; none: all. A grid's may have one of its round trips behind it: `grid-300`;
    /// `neighbours` may have a kind of attacker: `neighbours-flood`; `frames-group` the
    /// kilobytes of a frame: `frames-group-500`.
    cases: Vec<String>,
    /// How often each.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// A run in which the hypervisor took more than this many percent of the machine's time is
    /// printed and repeated, in all at most four times as many runs; none: never.
    #[arg(long, value_name = "PERCENT")]
    most_stolen: Option<f64>,
}

#[derive(Args)]
struct ReproArgs {
    /// Their ids; none: all that name a run.
    ids: Vec<String>,
    /// Folder of the papers' entries.
    #[arg(long, default_value = "repro")]
    entries: PathBuf,
    /// Only those without a result of the run that they name now.
    #[arg(long)]
    missing: bool,
    /// Print what would be run and about how long each run takes, and run nothing.
    #[arg(long)]
    list: bool,
    /// Begin no run that would not be over after so many minutes.
    #[arg(long, value_name = "MINUTES")]
    within: Option<f64>,
}

#[derive(Args)]
struct CompareArgs {
    /// Which: one, one-RTT (in ms), one-by-one, joining, together, twenty, fifteen, two-each,
    /// three-each; none: all.
    cases: Vec<String>,
    /// Queue of the sink's access link.
    #[arg(long, default_value = "100ms")]
    queue: String,
    /// How the sink shares its capacity.
    #[arg(long, value_enum, default_value_t = LawName::Grant)]
    law: LawName,
    /// The end-node law's alpha; of several, a run with each.
    #[arg(long, default_value = "0.1", value_delimiter = ',')]
    alpha: Vec<f64>,
    /// Where pages, figures and numbers go.
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

/// The laws, as scenario files name them.
#[derive(Clone, Copy, ValueEnum)]
enum LawName {
    /// Grants.
    Grant,
    /// The thesis's, with beta 0.2, an interval of 20 ms, and without a bound by the path (thesis
    /// IX.3).
    Endnode,
}

fn main() -> Result<()> {
    match Arguments::parse() {
        Arguments::Run(args) => {
            let missed = run(args)?.1;
            ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
            Ok(())
        }
        Arguments::Compare(args) => compare(args).map(|_| ()),
        Arguments::Repro(args) => repro(&args),
        Arguments::GapsIn { rate } => gtp_e2e::gaps::receive(rate),
        Arguments::GapsOut { rate } => gtp_e2e::gaps::send(rate),
        Arguments::Attack { plan } => {
            let plan = serde_json::from_str(&plan)?;
            tokio::runtime::Runtime::new()?.block_on(gtp_e2e::neighbours::attack(plan))
        }
        Arguments::FramesIn => gtp_e2e::frames::receive(),
        Arguments::FramesOut { law } => gtp_e2e::frames::send(&law),
        Arguments::StepIn { connections } => gtp_e2e::in_step::receive(connections),
        Arguments::StepOut { plan } => gtp_e2e::in_step::send(&plan),
        Arguments::Sink { plan } => {
            let plan = serde_json::from_slice(&std::fs::read(plan)?)?;
            tokio::runtime::Runtime::new()?.block_on(gtp_e2e::plan::run(plan))
        }
        Arguments::Source { plan } => {
            let plan = serde_json::from_slice(&std::fs::read(plan)?)?;
            tokio::runtime::Runtime::new()?.block_on(gtp_e2e::produce::run(plan))
        }
    }
}

fn tools() -> Result<Tools> {
    let own = std::env::current_exe()?;
    let gtp = own.with_file_name("gtp");
    Ok(Tools { gtp, own })
}

/// What was named, or else everything that has a name.
fn chosen(named: Vec<String>, all: &[&str]) -> Vec<String> {
    if named.is_empty() { all.iter().map(|s| (*s).to_owned()).collect() } else { named }
}

/// Runs entries' commands, each once for all entries that name it. One that fails leaves the others
/// their turn.
fn repro(args: &ReproArgs) -> Result<()> {
    let ReproArgs { ids, entries, missing, list, within } = args;
    let mut all = stored::runnable(entries, ids)?;
    all.retain(|entry| !missing || !entry.has_result());
    let (began, mut failed) = (Instant::now(), Vec::new());
    for group in all.chunk_by(|a, b| a.words == b.words) {
        let (command, takes) = (group[0].words.join(" "), group[0].seconds);
        if *list {
            let ids: Vec<_> = group.iter().map(stored::Runnable::id).collect();
            gtp_lab::say!("{takes:>5} s  {command}  ({})", ids.join(", "));
            continue;
        }
        let over = began.elapsed().as_secs_f64() + takes as f64;
        if within.is_some_and(|minutes| over > 60.0 * minutes) {
            failed.push(format!("{command}: no time is left"));
            continue;
        }
        let began = Instant::now();
        match rows_of(&group[0].words) {
            Ok(rows) => {
                for entry in group {
                    gtp_lab::aside!("wrote {}", stored::store(entry, &rows)?.display());
                }
            }
            Err(why) => failed.push(format!("{command}: {why:#}")),
        }
        gtp_lab::aside!("{command}: {:.0} s", began.elapsed().as_secs_f64());
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// What a command of an entry prints: the medians of cases, or the comparisons.
fn rows_of(words: &[String]) -> Result<Vec<Value>> {
    let program = std::iter::once("gtp-measure");
    let arguments = Arguments::try_parse_from(program.chain(words.iter().map(String::as_str)))?;
    match arguments {
        Arguments::Run(args) => {
            let (rows, missed) = run(args)?;
            ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
            Ok(rows)
        }
        Arguments::Compare(args) => compare(args),
        _ => bail!("an entry names `run` or `compare`, not {}", words.join(" ")),
    }
}

/// Runs scenarios in both worlds; returns what was printed.
fn compare(args: CompareArgs) -> Result<Vec<Value>> {
    let CompareArgs { cases: names, queue, law, alpha, out } = args;
    let tools = tools()?;
    let mut all = Vec::new();
    let laws: Vec<Law> = match law {
        LawName::Grant => vec![Law::Grant],
        LawName::Endnode => {
            alpha.into_iter().map(|alpha| Law::EndNode { alpha, beta: 0.2 }).collect()
        }
    };
    let named = chosen(names, compare::NAMES);
    for (name, law) in named.iter().flat_map(|name| laws.iter().map(move |&law| (name, law))) {
        let scenario = Scenario::named(name, &queue, law)?;
        let runs = Runs::of(&tools, &scenario).with_context(|| name.clone())?;
        let numbers = runs.to_json(&scenario)?;
        gtp_lab::say!("{numbers}");
        let stem = scenario.stem();
        let page = runs.page(&scenario)?;
        let mut written = gtp_lab::figures::write(&page, &out, &stem)
            .with_context(|| format!("cannot write into {}", out.display()))?;
        written.push(out.join(format!("{stem}.json")));
        std::fs::write(&written[written.len() - 1], format!("{numbers}\n"))?;
        for path in written {
            gtp_lab::aside!("wrote {}", path.display());
        }
        all.push(numbers);
    }
    Ok(all)
}

/// Runs cases; returns the medians, and what was to be shown and was not.
fn run(args: RunArgs) -> Result<(Vec<Value>, Vec<String>)> {
    let RunArgs { cases, runs, most_stolen } = args;
    let most_stolen = most_stolen.map_or(f64::INFINITY, |percent| percent / 100.0);
    let tools = tools()?;
    let (mut medians, mut missed_all) = (Vec::new(), Vec::new());
    for name in chosen(cases, cases::NAMES) {
        let mut counted: Vec<Vec<Value>> = Vec::new();
        for _ in 0..runs.saturating_mul(REPEATS) {
            let (rows, stolen) = once(&name, &tools).context(name.clone())?;
            rows.iter().for_each(|row| gtp_lab::say!("{row}"));
            if stolen <= most_stolen {
                counted.push(rows);
            }
            if counted.len() == runs {
                break;
            }
        }
        ensure!(!counted.is_empty(), "{name}: too much time was stolen in every run; try later");
        for i in 0..counted[0].len() {
            let row: Vec<Value> = counted.iter().filter_map(|rows| rows.get(i).cloned()).collect();
            let middle = median(&row);
            gtp_lab::say!("median of {} {middle}", row.len());
            medians.push(middle);
        }
        let missed = counted.iter().flatten().filter_map(|row| row["missed"].as_array()).flatten();
        missed_all.extend(missed.map(|what| format!("{name}: {what}")));
    }
    Ok((medians, missed_all))
}

/// A case's rows, each with the part of the machine's time that was stolen meanwhile.
fn once(name: &str, tools: &Tools) -> Result<(Vec<Value>, f64)> {
    let before = Ticks::read()?;
    let mut rows = cases::run(name, tools)?;
    let stolen = Ticks::read()?.stolen_since(before);
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        row.insert("stolen".into(), stolen.into());
    }
    Ok((rows, stolen))
}

/// Field by field: the median of numbers, whether all of what is true or false is true, the first
/// of anything else.
fn median(rows: &[Value]) -> Value {
    let mut fields: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in rows {
        for (key, value) in row.as_object().into_iter().flatten() {
            fields.entry(key.clone()).or_default().push(value.clone());
        }
    }
    let middle = |mut values: Vec<Value>| {
        if values.iter().all(Value::is_boolean) {
            return values.iter().all(|v| v == &Value::Bool(true)).into();
        }
        // What was never reached is no number, and later than all that are.
        if values.iter().any(|v| !v.is_number() && !v.is_null()) {
            return values.swap_remove(0);
        }
        let late = |v: &Value| v.as_f64().unwrap_or(f64::INFINITY);
        values.sort_by(|a, b| late(a).total_cmp(&late(b)));
        let numbers: Vec<f64> = values.iter().map(late).collect();
        match (values.len() % 2, gtp_lab::series::median(&numbers)) {
            (0, Some(median)) if median.is_finite() => median.into(),
            _ => values.swap_remove(values.len() / 2),
        }
    };
    fields.into_iter().map(|(key, values)| (key, middle(values))).collect()
}
