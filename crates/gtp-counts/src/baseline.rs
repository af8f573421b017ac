//! What each case cost when its cost was last accepted.
//!
//! A baseline belongs to one compiler: another one makes other code, so with another one only gross
//! differences count. It is written by this program and committed with the change that moved it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// A case may cost this many percent more than the baseline says. The same program on the same
/// machine counts the same; another kernel or C library moves a case by some tenths of a percent.
pub const TOLERANCE_PERCENT: f64 = 3.0;

/// And this many with another compiler than the baseline's.
pub const OTHER_COMPILER_PERCENT: f64 = 25.0;

/// Counts by case, and the compiler that they belong to.
#[derive(Debug, PartialEq)]
pub struct Baseline {
    /// `rustc --version`.
    pub compiler: String,
    /// Instructions per item.
    pub counts: BTreeMap<String, f64>,
}

/// How a count stands to its baseline.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Within the tolerance, or better by no more than that.
    Same,
    /// Cheaper by more than the tolerance: the baseline should be written anew.
    Better,
    /// Dearer by more than the tolerance.
    Worse,
    /// The baseline does not know the case.
    New,
}

impl Baseline {
    /// Reads a baseline.
    ///
    /// # Errors
    /// If the file cannot be read, or is not one.
    pub fn read(path: &Path) -> Result<Baseline> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Baseline::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Baseline> {
        let table: toml::Table = text.parse()?;
        let compiler = table.get("compiler").and_then(|v| v.as_str()).context("no `compiler`")?;
        let counts = table.get("counts").and_then(|v| v.as_table()).context("no `[counts]`")?;
        let number = |(name, value): (&String, &toml::Value)| {
            let value = value.as_float().with_context(|| format!("`{name}` is not a number"))?;
            Ok((name.clone(), value))
        };
        let counts = counts.iter().map(number).collect::<Result<_>>()?;
        Ok(Baseline { compiler: compiler.to_owned(), counts })
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text = String::from(
            "# Instructions per item under callgrind, of Cargo.toml's profile `counts`.\n\
             # Written by `scripts/counts --write`.\n",
        );
        text.push_str(&format!("compiler = \"{}\"\n\n[counts]\n", self.compiler));
        for (name, count) in &self.counts {
            text.push_str(&format!("\"{name}\" = {count:.3}\n"));
        }
        text
    }

    /// How much dearer a case may be with this compiler, in percent.
    pub fn tolerance(&self, compiler: &str) -> f64 {
        if compiler == self.compiler { TOLERANCE_PERCENT } else { OTHER_COMPILER_PERCENT }
    }

    /// How `count` stands to what this says of the case.
    pub fn judge(&self, case: &str, count: f64, tolerance_percent: f64) -> Verdict {
        let Some(&known) = self.counts.get(case) else { return Verdict::New };
        let percent = 100.0 * (count - known) / known;
        if percent > tolerance_percent {
            Verdict::Worse
        } else if percent < -tolerance_percent {
            Verdict::Better
        } else {
            Verdict::Same
        }
    }
}

/// The compiler here, as it names itself.
///
/// # Errors
/// If it cannot be asked.
pub fn compiler() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().context("rustc")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Baseline {
        let counts = [("a/1", 100.0), ("b/2", 0.125)].map(|(n, c)| (n.to_owned(), c));
        Baseline { compiler: "rustc 1.0".into(), counts: counts.into() }
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        assert_eq!(Baseline::parse(&baseline().text()).unwrap(), baseline());
    }

    #[test]
    fn a_case_is_worse_beyond_the_tolerance_only_and_unknown_ones_are_told() {
        let known = baseline();
        assert_eq!(known.judge("a/1", 102.9, 3.0), Verdict::Same);
        assert_eq!(known.judge("a/1", 103.1, 3.0), Verdict::Worse);
        assert_eq!(known.judge("a/1", 96.9, 3.0), Verdict::Better);
        assert_eq!(known.judge("c/3", 1.0, 3.0), Verdict::New);
        assert_eq!(known.tolerance("rustc 1.0"), TOLERANCE_PERCENT);
        assert_eq!(known.tolerance("rustc 2.0"), OTHER_COMPILER_PERCENT);
    }

    #[test]
    fn a_file_that_is_no_baseline_is_refused() {
        assert!(Baseline::parse("compiler = 3\n[counts]\n").is_err());
        assert!(Baseline::parse("compiler = \"x\"\n").is_err());
        assert!(Baseline::parse("compiler = \"x\"\n[counts]\na = \"b\"\n").is_err());
    }
}
