//! The index of the papers against the tree: what `PAPERS.md` names must be there.
//!
//! The index is a set of tables whose first column is an entry id and whose last is a status. Each
//! id stands once. A row that says `built` names code and a test, as `path` or `path#function`;
//! every path that any row names exists, and the function is in that file.

use crate::breach::{Breach, Rule};
use crate::tree::File;
use std::collections::BTreeSet;

/// The index, relative to the root.
pub const INDEX: &str = "PAPERS.md";

/// What the last column of a row may say.
const STATUSES: [&str; 4] = ["built", "partly", "planned", "background"];

/// Disagreements between the index and the tree.
#[must_use]
pub fn check(files: &[File]) -> Vec<Breach> {
    let Some(text) = text_of(files, INDEX) else {
        return vec![Breach::at(Rule::Papers, INDEX, 0, "there is no index of the papers")];
    };
    check_index(text, |path| text_of(files, path))
}

/// The text of a file of the tree.
fn text_of<'a>(files: &'a [File], path: &str) -> Option<&'a str> {
    files.iter().find(|file| file.path == path).and_then(|file| file.text.as_deref())
}

/// Disagreements between an index and a tree that `read` looks into.
fn check_index<'a>(text: &str, read: impl Fn(&str) -> Option<&'a str>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, line) in text.lines().enumerate() {
        let mut report = |what: String| found.push(Breach::at(Rule::Papers, INDEX, i + 1, what));
        for reference in references(line) {
            if let Some(what) = dangling(reference, &read) {
                report(what);
            }
        }
        let Some(row) = Row::parse(line) else { continue };
        for id in row.ids {
            if !seen.insert(id.to_owned()) {
                report(format!("entry `{id}` is listed twice"));
            }
        }
        if !STATUSES.contains(&row.status) {
            report(format!("status `{}` is none of {STATUSES:?}", row.status));
        }
        if row.status == "built" && references(line).len() < 2 {
            report("a built entry names its code and its test".to_owned());
        }
    }
    if seen.is_empty() {
        found.push(Breach::at(Rule::Papers, INDEX, 0, "the index lists no entries"));
    }
    found
}

/// A row of the index: its ids and its status.
struct Row<'a> {
    ids: Vec<&'a str>,
    status: &'a str,
}

impl<'a> Row<'a> {
    /// The row on this line, if its first column holds ids in backquotes.
    fn parse(line: &'a str) -> Option<Row<'a>> {
        let cells: Vec<&str> = line.strip_prefix('|')?.trim_end_matches('|').split('|').collect();
        let ids = quoted(cells.first()?);
        (!ids.is_empty()).then(|| Row { ids, status: cells.last().map_or("", |cell| cell.trim()) })
    }
}

/// The texts in backquotes of a line.
fn quoted(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// The references to files on a line.
fn references(line: &str) -> Vec<&str> {
    let roots = ["crates/", "docs/", "fuzz/", "repro/", "scripts/"];
    let is_path = |text: &&str| roots.iter().any(|root| text.starts_with(root));
    quoted(line).into_iter().filter(is_path).collect()
}

/// What is wrong with a reference, if anything.
fn dangling<'a>(reference: &str, read: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let (path, function) = reference.split_once('#').unwrap_or((reference, ""));
    let Some(text) = read(path) else { return Some(format!("`{path}` does not exist")) };
    let declared = function.is_empty() || text.contains(&format!("fn {function}("));
    (!declared).then(|| format!("`{path}` has no function `{function}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "crates/a/src/law.rs";

    fn count(rows: &str) -> usize {
        check_index(rows, |path| (path == CODE).then_some("fn law() {}\nfn holds() {}")).len()
    }

    #[test]
    fn a_built_entry_names_code_and_test_that_exist() {
        let row = |test: &str| {
            format!("| `alg-1` | ref | `crates/a/src/law.rs#law` | {test} | built |\n")
        };
        assert_eq!(count(&row("`crates/a/src/law.rs#holds`")), 0);
        assert_eq!(count(&row("`crates/a/src/law.rs#fails`")), 1);
        assert_eq!(count(&row("`crates/a/src/gone.rs#holds`")), 1);
        assert_eq!(count(&row("none")), 1);
    }

    #[test]
    fn an_entry_is_listed_once_with_a_known_status() {
        assert_eq!(count("| `a` `b` | ref | – | – | planned |\n"), 0);
        assert_eq!(count("| `a` | r | – | – | planned |\n| `a` | r | – | – | planned |\n"), 1);
        assert_eq!(count("| `a` | ref | – | – | soon |\n"), 1);
        assert_eq!(count("No table at all.\n"), 1);
    }
}
