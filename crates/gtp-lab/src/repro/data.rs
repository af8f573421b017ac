//! What was found, for programs: one JSON file and two CSV files that say the same as the page.
//!
//! Numbers are in full, not rounded as on the page. What JSON has no form for, the infinite and
//! what is no number, is text there. Nothing is decided here.

use super::entry::Whose;
use super::report::{VERDICTS, count, summary};
use super::verdict::{Difference, Finding, Judged, Verdict};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Everything in one value.
#[derive(Serialize)]
pub struct Report<'a> {
    /// Which paper.
    paper: &'a str,
    /// Number of entries by verdict.
    passed: usize,
    by_construction: usize,
    differing: usize,
    unexplained: usize,
    failed: usize,
    waiting: usize,
    not_applicable: usize,
    /// Every entry.
    entries: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    title: &'a str,
    place: &'a str,
    claim: &'a str,
    kind: &'static str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    real: Option<RealRow<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_applicable: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    checks: Vec<CheckRow<'a>>,
    /// Every number that was computed, by the quantity's name.
    quantities: BTreeMap<&'a str, Vec<Value>>,
}

/// What was found for real.
#[derive(Serialize)]
struct RealRow<'a> {
    /// The command, if there is one.
    run: Option<&'a str>,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<&'a str>,
    checks: Vec<CheckRow<'a>>,
}

#[derive(Serialize)]
struct CheckRow<'a> {
    says: &'a str,
    whose: &'static str,
    of: &'a str,
    criterion: &'a str,
    found: &'a str,
    holds: bool,
    why: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unexplained: Option<&'a str>,
}

/// One entry as a line for programs.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    /// The verdict, with hyphens in place of spaces.
    status: String,
    /// What the paper states.
    paper: &'a str,
    /// What was found, a check each; evidence for causes is left out.
    measured: Vec<Measured<'a>>,
    /// Why it is so: of a difference its cause, of a failure what was wanted.
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    real: Option<RealLine<'a>>,
}

#[derive(Serialize)]
struct Measured<'a> {
    says: &'a str,
    found: &'a str,
    criterion: &'a str,
    holds: bool,
}

/// What was found for real, as a part of a line.
#[derive(Serialize)]
struct RealLine<'a> {
    status: String,
    measured: Vec<Measured<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<&'a str>,
}

/// An entry as one line of JSON.
pub fn line(one: &Judged) -> String {
    let real = one.real.as_ref().map(|real| RealLine {
        status: status(real.verdict),
        measured: measured(&real.findings),
        date: real.from.as_ref().map(|from| &*from.date),
    });
    let (id, paper, reason) = (&*one.entry.id, &*one.entry.claim, summary(one));
    let (status, measured) = (status(one.verdict), measured(&one.findings));
    text(&Line { id, status, paper, measured, reason, real })
}

/// The number of entries by status, as one line of JSON.
pub fn totals_line(judged: &[Judged]) -> String {
    let counts = VERDICTS.map(|verdict| (status(verdict), count(judged, verdict)));
    text(&serde_json::json!({ "summary": BTreeMap::from(counts) }))
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings, numbers and lists have a form in JSON")
}

fn status(verdict: Verdict) -> String {
    verdict.word().replace(' ', "-")
}

fn measured(findings: &[Finding]) -> Vec<Measured<'_>> {
    let judged = findings.iter().filter(|finding| finding.whose != Whose::Cause);
    let of = judged.map(|Finding { says, found, wanted, holds, .. }| Measured {
        says,
        found,
        criterion: wanted,
        holds: *holds,
    });
    of.collect()
}

/// The report as a value for JSON.
pub fn json<'a>(judged: &'a [Judged], paper: &'a str) -> Report<'a> {
    Report {
        paper,
        passed: count(judged, Verdict::Pass),
        by_construction: count(judged, Verdict::ByConstruction),
        differing: count(judged, Verdict::Differs),
        unexplained: count(judged, Verdict::Unexplained),
        failed: count(judged, Verdict::Fail),
        waiting: count(judged, Verdict::Waiting),
        not_applicable: count(judged, Verdict::NotApplicable),
        entries: judged.iter().map(row).collect(),
    }
}

fn row(one: &Judged) -> Row<'_> {
    let quantities = one.computed.quantities.iter();
    Row {
        id: &one.entry.id,
        title: &one.entry.title,
        place: &one.entry.place,
        claim: &one.entry.claim,
        kind: one.entry.kind.word(),
        verdict: one.verdict.word(),
        real: one.entry.real.as_ref().map(|_| real(one)),
        waits_for: one.entry.waiting.as_ref().map(|waiting| waiting.what.as_str()),
        not_applicable: one.entry.not_applicable.as_ref().map(|reason| reason.why.as_str()),
        error: one.error.as_deref(),
        checks: one.findings.iter().map(check_row).collect(),
        quantities: quantities.map(|(n, x)| (n.as_str(), x.iter().map(value).collect())).collect(),
    }
}

fn real(one: &Judged) -> RealRow<'_> {
    let found = one.real.as_ref();
    let from = found.and_then(|real| real.from.as_ref());
    RealRow {
        run: one.entry.real.as_ref().and_then(|real| real.run.as_deref()),
        verdict: found.map_or("not run", |real| real.verdict.word()),
        error: found.and_then(|real| real.error.as_deref()),
        machine: from.map(|from| from.machine.as_str()),
        commit: from.map(|from| from.commit.as_str()),
        date: from.map(|from| from.date.as_str()),
        checks: found.map_or_else(Vec::new, |real| real.findings.iter().map(check_row).collect()),
    }
}

/// A number as JSON can hold it.
fn value(x: &f64) -> Value {
    if x.is_finite() { Value::from(*x) } else { Value::from(x.to_string()) }
}

fn check_row(finding: &Finding) -> CheckRow<'_> {
    let (differs, unexplained) = match &finding.difference {
        Some(Difference::Explained(why)) => (Some(why.as_str()), None),
        Some(Difference::Unexplained(known)) => (None, Some(known.as_str())),
        None => (None, None),
    };
    CheckRow {
        says: &finding.says,
        whose: whose(finding.whose),
        of: &finding.of,
        criterion: &finding.wanted,
        found: &finding.found,
        holds: finding.holds,
        why: &finding.why,
        differs,
        unexplained,
    }
}

/// Whose claim a check is, as entries write it.
fn whose(whose: Whose) -> &'static str {
    match whose {
        Whose::Ours => "ours",
        Whose::Printed => "printed",
        Whose::Cause => "cause",
    }
}

/// One row a check; an entry without checks has one row, too.
pub fn checks_csv(judged: &[Judged]) -> String {
    let mut csv = String::from(
        "entry,place,computed_by,verdict,claim,whose,quantity,criterion,found,holds,why,\
         difference\n",
    );
    for one in judged {
        let entry = &one.entry;
        let head = [&entry.id, &entry.place, entry.kind.word(), one.verdict.word()].map(field);
        for finding in &one.findings {
            let holds = if finding.holds { "yes" } else { "no" };
            let difference = finding.difference.as_ref().map_or("", Difference::text);
            let whose = whose(finding.whose);
            let of = [&finding.says, whose, &finding.of, &finding.wanted, &finding.found, holds];
            let rest = of.into_iter().chain([finding.why.as_str(), difference]).map(field);
            let row: Vec<String> = head.iter().cloned().chain(rest).collect();
            let _ = writeln!(csv, "{}", row.join(","));
        }
        if one.findings.is_empty() {
            let waits = entry.waiting.as_ref().map(|waiting| &waiting.what);
            let reason = entry.not_applicable.as_ref().map(|reason| &reason.why);
            let why = one.error.as_ref().or(waits).or(reason);
            let why = field(why.map_or("", |why| why));
            let _ = writeln!(csv, "{},{},,,,,,{why},", head.join(","), field(&entry.claim));
        }
    }
    csv
}

/// One row a number.
pub fn quantities_csv(judged: &[Judged]) -> String {
    let mut csv = String::from("entry,quantity,index,value\n");
    for one in judged {
        for (name, numbers) in &one.computed.quantities {
            for (index, x) in numbers.iter().enumerate() {
                let _ = writeln!(csv, "{},{name},{index},{x}", one.entry.id);
            }
        }
    }
    csv
}

/// A field of CSV: in quotes if it needs them.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::entry::parse;
    use crate::repro::verdict::judge;

    fn judged() -> Vec<Judged> {
        let head = "title = 't'\nplace = 'p'\nclaim = 'a \"b\", c'\nfirmness = 'exact'\n";
        let computed = "kind = 'formula'\ncompute = ['x = 1 / 0', 'y = 2.123456789']\n\
                        [[check]]\nsays = 'one, two'\nof = 'y'\n\
                        must = { is = 'at-most', value = 3 }\n";
        let nothing = "kind = 'nothing'\n[waiting]\nwhat = 'TCP'\nwhy = 'a rival'\n";
        [("one", computed), ("two", nothing)]
            .map(|(id, rest)| judge(parse(id, &format!("{head}{rest}")).expect("an entry")))
            .into()
    }

    #[test]
    fn numbers_are_in_full_and_what_json_cannot_hold_is_text() {
        let judged = judged();
        let value = serde_json::to_value(json(&judged, "thesis")).expect("a value");
        let quantities = &value["entries"][0]["quantities"];
        assert_eq!(quantities["x"][0], "inf");
        assert_eq!(quantities["y"][0], 2.123456789);
        assert!(quantities_csv(&judged).ends_with("one,x,0,inf\none,y,0,2.123456789\n"));
    }

    #[test]
    fn a_line_says_what_was_found_of_which_claim_and_the_last_one_counts() {
        let judged = judged();
        let read = |text: &str| serde_json::from_str::<Value>(text).expect("a value");
        let of = |one: &Judged| {
            let line = line(one);
            assert!(!line.contains('\n'));
            read(&line)
        };
        let [one, two] = [of(&judged[0]), of(&judged[1])];
        assert_eq!((&one["id"], &one["status"]), (&"one".into(), &"pass".into()));
        assert_eq!(one["paper"], "a \"b\", c");
        assert_eq!(one["measured"][0]["says"], "one, two");
        assert_eq!(one["measured"][0]["holds"], true);
        assert_eq!((&two["status"], &two["reason"]), (&"waiting".into(), &"for TCP".into()));
        let totals = read(&totals_line(&judged));
        assert_eq!(
            (&totals["summary"]["pass"], &totals["summary"]["waiting"]),
            (&1.into(), &1.into())
        );
        assert_eq!(totals["summary"]["by-construction"], 0);
    }

    #[test]
    fn every_row_has_as_many_fields_as_the_head() {
        let csv = checks_csv(&judged());
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 3);
        // Two fields have one comma each inside quotes.
        let commas = |line: &str| line.matches(',').count();
        assert_eq!(lines.iter().map(|l| commas(l)).collect::<Vec<_>>(), [11, 12, 12]);
        assert!(lines[1].contains("\"one, two\""));
        assert!(lines[2].contains("\"a \"\"b\"\", c\""));
    }
}
