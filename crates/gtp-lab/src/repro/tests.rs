//! The catalogue of entries as a whole: it is complete, and all cheap entries hold.

use super::entry::{Cost, Entry, load};
use super::verdict::{Verdict, judge};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn entries() -> Vec<Entry> {
    load(&root().join("repro"), "thesis").expect("every entry can be read")
}

#[test]
fn no_cheap_entry_fails() {
    let cheap = entries().into_iter().filter(|entry| entry.cost == Cost::Cheap);
    for one in cheap.map(judge) {
        assert_ne!(one.verdict, Verdict::Fail, "{}", super::report::line(&one));
    }
}

/// What is listed in the index and is not mere background has an entry, and the other way round.
#[test]
fn every_result_in_the_index_has_an_entry() {
    let index = std::fs::read_to_string(root().join("PAPERS.md")).expect("the index");
    let mut listed = BTreeSet::new();
    for line in index.lines().filter(|line| line.starts_with("| `thesis-")) {
        let status = line.trim_end_matches('|').rsplit('|').next().unwrap_or("").trim();
        if status != "background" {
            let first = line.split('|').nth(1).unwrap_or("");
            listed.extend(first.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    let there: BTreeSet<String> = entries().into_iter().map(|entry| entry.id).collect();
    assert_eq!(listed, there);
}
