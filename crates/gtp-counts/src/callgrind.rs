//! Counting by callgrind: this program runs itself under it, once for each case.
//!
//! Callgrind counts between entering and leaving one function, known by its name, so that neither
//! the start of the process nor the preparation of a case is in its count.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::cases::Case;

/// The function inside which callgrind counts, as it names it.
const COUNTED: &str = "gtp_counts::callgrind::counted*";

/// Runs a case's work twice: once so that everything is in place, and once to be counted.
pub fn run(case: &Case) {
    let mut work = (case.prepare)();
    work();
    counted(&mut *work);
}

/// Not to be inlined: its name tells callgrind where to begin and to end.
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    work();
    black_box(());
}

/// Instructions per item of every case, in their order, as many at a time as there are processors:
/// what is counted does not depend on what else runs.
///
/// # Errors
/// As [`count`], of the first case that has one.
pub fn count_all<'a>(program: &Path, cases: &'a [Case]) -> Result<Vec<(&'a Case, f64)>> {
    let counts: Vec<_> = cases.iter().map(|_| OnceLock::new()).collect();
    let taken = AtomicUsize::new(0);
    let work = || {
        // From the last: the simulator's take longest.
        while let Some(case) = cases.len().checked_sub(1 + taken.fetch_add(1, Ordering::Relaxed)) {
            let _ = counts[case].set(count(program, &cases[case]));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let all = cases.iter().zip(counts);
    all.map(|(case, count)| Ok((case, count.into_inner().context("never counted")??))).collect()
}

/// Instructions per item of a case, by running `program one CASE` under callgrind.
///
/// # Errors
/// If valgrind is missing, or the program or the count cannot be had.
pub fn count(program: &Path, case: &Case) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(program)
        .args(["one", case.name])
        .output()
        .context("valgrind is needed (Debian: valgrind)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} failed under valgrind:\n{said}", case.name);
    }
    Ok(collected(&said)? as f64 / case.items as f64)
}

/// What callgrind says at its end: `==PID== Collected : N`.
fn collected(said: &str) -> Result<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"));
    let (_, number) = line.context("callgrind did not say what it collected")?;
    let number: u64 = number.trim().parse().context("callgrind's count")?;
    ensure!(number > 0, "callgrind never came through the counted function");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_nothing_or_none_at_all_is_an_error() {
        assert_eq!(collected("==1== Events : Ir\n==1== Collected : 4711\n").unwrap(), 4711);
        assert!(collected("==1== Collected : 0\n").is_err());
        assert!(collected("==1== Events : Ir\n").is_err());
    }
}
