//! Counting by callgrind: this program runs itself under it, once for each case.
//!
//! Callgrind counts between entering and leaving one function, known by its name, so that neither
//! the start of the process nor the preparation of a case is in its count.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::cases::{Case, Counted};

/// The function inside which callgrind counts, as it names it.
const COUNTED: &str = "gtp_counts::callgrind::counted*";

/// Runs a case's work to be counted; what is counted as a whole runs once before, so that
/// everything is in place.
pub fn run(case: &Case) {
    let mut work = (case.prepare)();
    match case.counted {
        Counted::All => {
            work();
            counted(&mut *work);
        }
        Counted::Beside(_) => work(),
        Counted::Nothing => {}
    }
}

/// Does the work, which callgrind counts. Not to be inlined: its name tells callgrind where to
/// begin and to end; and not to be called within itself, which would end the count.
#[inline(never)]
pub fn counted(work: &mut dyn FnMut()) {
    work();
    black_box(());
}

/// Instructions per item of every case, in their order, as many at a time as there are processors:
/// what is counted does not depend on what else runs.
///
/// # Errors
/// As [`count`], of the first case that has one.
pub fn count_all<'a>(program: &Path, cases: &[&'a Case]) -> Result<Vec<(&'a Case, f64)>> {
    let counts: Vec<_> = cases.iter().map(|_| OnceLock::new()).collect();
    let taken = AtomicUsize::new(0);
    let work = || {
        // From the last: the simulator's take longest.
        while let Some(case) = cases.len().checked_sub(1 + taken.fetch_add(1, Ordering::Relaxed)) {
            let _ = counts[case].set(count(program, cases[case]));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let all = cases.iter().zip(counts);
    all.map(|(case, count)| Ok((*case, count.into_inner().context("never counted")??))).collect()
}

/// Instructions per item of a case, by running `program one CASE` under callgrind.
///
/// # Errors
/// If valgrind is missing, or the program or the count cannot be had.
pub fn count(program: &Path, case: &Case) -> Result<f64> {
    let (names, profile) = match case.counted {
        Counted::Beside(names) => (names, "/dev/stdout"),
        Counted::All | Counted::Nothing => (&[][..], "/dev/null"),
    };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--callgrind-out-file={profile}"))
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(program)
        .args(["one", case.name])
        .output()
        .context("valgrind is needed (Debian: valgrind)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} failed under valgrind:\n{said}", case.name);
    }
    let mut count = collected(&said)?;
    if !names.is_empty() {
        let beside = beside(&String::from_utf8_lossy(&output.stdout), names)?;
        ensure!(0 < beside && beside < count, "{beside} of {count} instructions in {names:?}");
        count -= beside;
    }
    Ok(count as f64 / case.items as f64)
}

/// Instructions of calls from other functions into those whose names begin so, with all that these
/// call, from callgrind's profile.
///
/// There `fn=(ID) NAME` begins a function and `cfn=` a call from it, the name given once, and the
/// line that follows `calls=` has a position and what these calls cost in all.
fn beside(profile: &str, begin: &[&str]) -> Result<u64> {
    let mut named = HashMap::new();
    let (mut caller, mut called, mut sum) = (false, false, 0);
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(of) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            let (id, name) = of.split_once(')').context("a function without a number")?;
            if let Some(name) = name.strip_prefix(' ') {
                named.insert(id, begin.iter().any(|begin| name.starts_with(begin)));
            }
            let known = *named.get(id).context("a function without a name")?;
            *(if line.starts_with("fn=") { &mut caller } else { &mut called }) = known;
        } else if line.starts_with("calls=") {
            let cost = lines.next().and_then(|line| line.split_once(' '));
            let (_, cost) = cost.context("calls without a cost")?;
            if called && !caller {
                sum += cost.trim().parse::<u64>().context("callgrind's profile")?;
            }
        }
    }
    Ok(sum)
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
    fn calls_into_what_is_left_out_count_once_with_all_that_they_call() {
        let profile = "events: Ir\n\nfn=(1) a\n0 5\ncfn=(2) ring::b\ncalls=3 0\n0 700\n+2 4\n\n\
                       fn=(2)\n0 600\ncfn=(3) ring::c\ncalls=1 0\n* 60\ncfn=(4) memcpy\n\
                       calls=1 0\n* 40\n\nfn=(3)\n0 60\n\nfn=(4)\n0 40\n\ntotals: 709\n";
        assert_eq!(beside(profile, &["ring::"]).unwrap(), 700);
        assert_eq!(beside(profile, &["gnir"]).unwrap(), 0);
        assert!(beside("fn=(1)\n0 5\n", &["ring::"]).is_err());
    }

    #[test]
    fn a_count_of_nothing_or_none_at_all_is_an_error() {
        assert_eq!(collected("==1== Events : Ir\n==1== Collected : 4711\n").unwrap(), 4711);
        assert!(collected("==1== Collected : 0\n").is_err());
        assert!(collected("==1== Events : Ir\n").is_err());
    }
}
