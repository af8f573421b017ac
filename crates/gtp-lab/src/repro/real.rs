//! What was found through real sockets: stored results, and the verdict on them.
//!
//! A run for real needs root, namespaces and a quiet machine, so it is not made with the entries.
//! `gtp-measure repro` makes it once and writes `real.json` beside the entry: the command, the
//! machine, the commit, the date, and all rows that were printed. The entry says what is read off
//! these rows and what must be true of it, as of what is computed.

use super::entry::{Check, Entry};
use super::formula::{Quantities, assign};
use super::verdict::{Finding, Verdict, findings, of_findings};
use gtp_lab::stored::{FILE, Stored};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// How the network of an entry is run through real sockets.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Real {
    /// The words after `gtp-measure` that run it, or its like at other rates.
    pub run: Option<String>,
    /// About how many seconds that takes.
    #[serde(default)]
    pub seconds: u64,
    /// What is not as in the paper: rates, span, the other end's law.
    #[serde(default)]
    pub note: String,
    /// For each quantity where it stands in the stored rows, as a JSON pointer (RFC 6901) or
    /// several. What stands there is a number, a truth (1 or 0), nothing (not a number), or a list
    /// of these.
    #[serde(default)]
    pub read: BTreeMap<String, Pointers>,
    /// `name = formula` over what was read, in this order.
    #[serde(default)]
    pub compute: Vec<String>,
    /// What must be true.
    #[serde(default)]
    pub check: Vec<Check>,
}

/// Where a quantity stands.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Pointers {
    /// At one place.
    One(String),
    /// At several, one after the other.
    Many(Vec<String>),
}

impl Pointers {
    fn all(&self) -> &[String] {
        match self {
            Pointers::One(one) => std::slice::from_ref(one),
            Pointers::Many(many) => many,
        }
    }
}

/// What was found for real about an entry.
pub struct Measured {
    /// What is to be thought of it.
    pub verdict: Verdict,
    /// The checks, in the entry's order.
    pub findings: Vec<Finding>,
    /// When, where and with what.
    pub from: Option<Stored>,
    /// Why nothing could be judged.
    pub error: Option<String>,
}

/// What was found for real; `None` of an entry that has no run, or whose run is not judged.
pub fn judge(entry: &Entry) -> Option<Measured> {
    let real = entry.real.as_ref().filter(|real| !real.check.is_empty())?;
    if !entry.folder.join(FILE).exists() {
        let error = Some(format!("there is no {FILE} yet"));
        return Some(Measured {
            verdict: Verdict::Waiting,
            findings: Vec::new(),
            from: None,
            error,
        });
    }
    let result = stored(&entry.folder).and_then(|from| {
        is_of(real, &from)?;
        Ok((quantities(real, &from.rows)?, from))
    });
    Some(match result {
        Ok((quantities, from)) => {
            let findings = findings(&real.check, &quantities);
            let verdict = of_findings(&findings);
            Measured { verdict, findings, from: Some(from), error: None }
        }
        Err(why) => {
            Measured { verdict: Verdict::Fail, findings: Vec::new(), from: None, error: Some(why) }
        }
    })
}

fn stored(folder: &Path) -> Result<Stored, String> {
    let path = folder.join(FILE);
    let said = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|e| said(&e))?;
    serde_json::from_str(&text).map_err(|e| said(&e))
}

/// Refuses a result of another command than the entry's.
fn is_of(real: &Real, from: &Stored) -> Result<(), String> {
    match &real.run {
        Some(run) if *run == from.command => Ok(()),
        _ => Err(format!("{FILE} is of another command, gtp-measure {}", from.command)),
    }
}

fn quantities(real: &Real, rows: &[Value]) -> Result<Quantities, String> {
    let rows = Value::Array(rows.to_vec());
    let mut found = Quantities::default();
    for (name, pointers) in &real.read {
        let numbers = pointers.all().iter().map(|pointer| numbers(&rows, pointer));
        found.insert(name.clone(), numbers.collect::<Result<Vec<_>, _>>()?.concat());
    }
    real.compute.iter().try_for_each(|line| assign(line, &mut found))?;
    Ok(found)
}

fn numbers(rows: &Value, pointer: &str) -> Result<Vec<f64>, String> {
    let value = rows.pointer(pointer).ok_or_else(|| format!("{FILE} has no {pointer}"))?;
    let numbers = match value {
        Value::Array(all) => all.iter().map(number).collect(),
        one => number(one).map(|x| vec![x]),
    };
    numbers.ok_or_else(|| format!("{FILE}: {pointer} is no number"))
}

/// What is there as a number; what was never reached is not one.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Null => Some(f64::NAN),
        Value::Bool(is) => Some(f64::from(u8::from(*is))),
        other => other.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::entry::parse;

    fn measured(rows: &str, check: &str) -> Measured {
        let folder = tempfile::tempdir().unwrap();
        let stored = format!(
            r#"{{"command": "run c", "machine": "m", "commit": "c", "date": "d", "rows": {rows}}}"#
        );
        std::fs::write(folder.path().join(FILE), stored).unwrap();
        let text = format!(
            "title = 't'\nplace = 'p'\nclaim = 'c'\nkind = 'formula'\nfirmness = 'exact'\n\
             compute = ['x = 2']\n\
             [[check]]\nsays = 's'\nof = 'x'\nmust = {{ is = 'equals', value = 2 }}\n\
             [real]\nrun = 'run c'\nread = {{ sum = '/0/sum' }}\n\
             [[real.check]]\nsays = 's'\nof = 'sum'\n{check}\n"
        );
        let mut entry = parse("id", &text).expect("an entry");
        entry.folder = folder.path().to_owned();
        judge(&entry).expect("a judgement")
    }

    const FOUR: &str = "must = { is = 'equals', value = 4 }";

    #[test]
    fn what_was_found_for_real_is_judged_as_what_is_computed() {
        assert_eq!(measured(r#"[{"sum": 4}]"#, FOUR).verdict, Verdict::Pass);
        assert_eq!(measured(r#"[{"sum": [4, 5]}]"#, FOUR).verdict, Verdict::Fail);
        let unexplained = format!("{FOUR}\nunexplained = 'seen once'");
        assert_eq!(measured(r#"[{"sum": 5}]"#, &unexplained).verdict, Verdict::Unexplained);
    }

    #[test]
    fn what_has_not_been_run_yet_waits_and_a_result_that_cannot_be_read_fails() {
        let folder = tempfile::tempdir().unwrap();
        let text = "title = 't'\nplace = 'p'\nclaim = 'c'\nkind = 'nothing'\n\
                    firmness = 'exact'\n[not_applicable]\nwhy = 'w'\n\
                    [real]\nrun = 'run c'\nread = { sum = '/0/sum' }\n\
                    [[real.check]]\nsays = 's'\nof = 'sum'\nmust = { is = 'rises' }\n";
        let mut entry = parse("id", text).expect("an entry");
        entry.folder = folder.path().to_owned();
        let verdict = |entry: &Entry| judge(entry).expect("a judgement").verdict;
        assert_eq!(verdict(&entry), Verdict::Waiting);
        std::fs::write(folder.path().join(FILE), "no object").unwrap();
        assert_eq!(verdict(&entry), Verdict::Fail);
    }

    #[test]
    fn what_was_never_reached_or_is_not_there_fails() {
        assert_eq!(measured(r#"[{"sum": null}]"#, FOUR).verdict, Verdict::Fail);
        assert!(measured(r#"[{"some": 4}]"#, FOUR).error.is_some_and(|e| e.contains("/0/sum")));
        assert!(measured(r#"[{"sum": "4"}]"#, FOUR).error.is_some());
    }

    #[test]
    fn a_result_of_another_command_is_refused() {
        let real = Real { run: Some("run c".into()), ..Real::default() };
        let from = |command: &str| Stored {
            command: command.into(),
            machine: String::new(),
            commit: String::new(),
            date: String::new(),
            rows: Vec::new(),
        };
        assert!(is_of(&real, &from("run c")).is_ok());
        assert!(is_of(&real, &from("run c --runs 9")).is_err());
    }
}
