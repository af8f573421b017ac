//! `gtp-counts check BASELINE` counts every case and compares; `write` accepts what is counted.
//!
//! Both run this program again under valgrind, as `gtp-counts one CASE`. scripts/counts builds it
//! as the baseline wants it.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use gtp_counts::baseline::{Baseline, Verdict, compiler};
use gtp_counts::callgrind;
use gtp_counts::cases::{CASES, Case, Counted};

fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check", baseline] => check(&Baseline::read(Path::new(baseline))?),
        ["write", baseline] => write(Path::new(baseline)),
        ["one", case] => {
            let found = CASES.iter().find(|c| c.name == case);
            callgrind::run(found.with_context(|| format!("no case {case}"))?);
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("usage: gtp-counts check BASELINE | write BASELINE | one CASE"),
    }
}

fn write(baseline: &Path) -> Result<ExitCode> {
    let mut now = Baseline { compiler: compiler()?, counts: Default::default() };
    for (case, count) in counted()? {
        say(format_args!("{:<20} {count:>12.3} a {}", case.name, case.item));
        now.counts.insert(case.name.to_owned(), count);
    }
    std::fs::write(baseline, now.text()).context("cannot write the baseline")?;
    Ok(ExitCode::SUCCESS)
}

fn counted() -> Result<Vec<(&'static Case, f64)>> {
    ensure!(!cfg!(debug_assertions), "counts are of the profile `counts`: scripts/counts");
    // Valgrind hides newer extensions than these; without them other code would be counted.
    #[cfg(target_arch = "x86_64")]
    ensure!(std::is_x86_feature_detected!("avx2"), "the baseline is of processors with AVX2");
    callgrind::count_all(&std::env::current_exe()?, &cases().collect::<Vec<_>>())
}

/// Those that are counted.
fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| case.counted != Counted::Nothing)
}

fn check(baseline: &Baseline) -> Result<ExitCode> {
    let here = compiler()?;
    let tolerance = baseline.tolerance(&here);
    if here != baseline.compiler {
        say(format_args!(
            "the baseline is of {}; here is {here}, and {tolerance} % pass",
            baseline.compiler
        ));
    }
    let known = |name: &str| cases().any(|case| case.name == name);
    let gone: Vec<_> = baseline.counts.keys().filter(|name| !known(name)).collect();
    ensure!(gone.is_empty(), "the baseline has cases that are no more: {gone:?}");
    let mut moved = Vec::new();
    for (case, count) in counted()? {
        let verdict = baseline.judge(case.name, count, tolerance);
        let known = baseline.counts.get(case.name).copied().unwrap_or(f64::NAN);
        let (name, item) = (case.name, case.item);
        say(format_args!("{name:<20} {count:>12.3} was {known:>12.3} a {item}: {verdict:?}"));
        match verdict {
            Verdict::Worse | Verdict::Better | Verdict::New => moved.push(case.name),
            Verdict::Same => {}
        }
    }
    if moved.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    bail!(
        "dearer or cheaper by more than {tolerance} %, or unknown: {}. If that is wanted: \
         scripts/counts --write",
        moved.join(", ")
    )
}

/// Prints a line. A reader that goes away is no failure: the exit code says what was found.
fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
