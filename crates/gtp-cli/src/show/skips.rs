//! What a transfer has skipped, counted by reason.
//!
//! The ends of a transfer say why in words; those that this release says are told apart here, and
//! all others count together. It knows sentences and numbers, and nothing of how a transfer goes on
//! without what is skipped.

use std::collections::BTreeMap;

use gtp::Failure;
use serde_json::{Value, json};

/// Numbers of skipped things by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skips {
    counts: BTreeMap<Reason, u64>,
}

/// Why something is skipped, in the order in which the reasons are said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    SymbolicLink,
    SpecialFile,
    NotReadable,
    Changed,
    Name,
    Other,
    /// An end told only how many there are.
    Unnamed,
}

impl Reason {
    /// Why this was said of something. Sentences end with the reason, behind the name.
    fn of(text: &str) -> Reason {
        let says = |ends: &[&str]| ends.iter().any(|end| text.ends_with(end));
        if says(&[
            "is a symbolic link",
            "is a symbolic link, which is neither followed nor carried",
        ]) {
            Reason::SymbolicLink
        } else if says(&[
            "neither a regular file nor a directory",
            "is a device, pipe or socket, which is not carried",
        ]) {
            Reason::SpecialFile
        } else if says(&["permission denied", "could not be read"]) {
            Reason::NotReadable
        } else if says(&[
            "no such file or directory",
            "changed while being sent",
            "the source cannot give it any more",
            "vanished, or became unreadable, before it was moved",
            "it has changed meanwhile and is kept",
        ]) {
            Reason::Changed
        } else if text.contains(": the name ") || text.contains(": a component of the name ") {
            Reason::Name
        } else {
            Reason::Other
        }
    }

    fn key(self) -> &'static str {
        match self {
            Reason::SymbolicLink => "symbolic_link",
            Reason::SpecialFile => "special_file",
            Reason::NotReadable => "not_readable",
            Reason::Changed => "changed",
            Reason::Name => "name",
            Reason::Other => "other",
            Reason::Unnamed => "unnamed",
        }
    }

    fn words(self, count: u64) -> String {
        match self {
            Reason::SymbolicLink => gtp_text::count(count, "symbolic link"),
            Reason::SpecialFile => gtp_text::count(count, "special file"),
            Reason::NotReadable => format!("{count} not readable"),
            Reason::Changed => format!("{count} changed or gone meanwhile"),
            Reason::Name => format!("{count} whose name cannot be carried"),
            Reason::Other => format!("{count} for other reasons"),
            Reason::Unnamed => format!("{count} not named"),
        }
    }
}

impl Skips {
    /// Those of a list of failures.
    pub fn of<'a>(failures: impl IntoIterator<Item = &'a Failure>) -> Skips {
        let mut all = Skips::default();
        failures.into_iter().for_each(|failure| all.note(&failure.text));
        all
    }

    /// Counts one of which this was said, or as many as a sentence like `12 more` says.
    pub fn note(&mut self, text: &str) {
        let (reason, count) = match how_many(text) {
            Some(count) => (Reason::Unnamed, count),
            None => (Reason::of(text), 1),
        };
        let all = self.counts.entry(reason).or_default();
        *all = all.saturating_add(count);
    }

    /// Adds others.
    pub fn add(&mut self, others: &Skips) {
        for (reason, count) in &others.counts {
            let all = self.counts.entry(*reason).or_default();
            *all = all.saturating_add(*count);
        }
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.counts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Whether nothing was skipped.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// What people are told, as in `3 skipped: 2 symbolic links, 1 not readable`; nothing if
    /// nothing was skipped.
    pub fn words(&self) -> Option<String> {
        let by: Vec<String> = self.counts.iter().map(|(why, count)| why.words(*count)).collect();
        (!self.is_empty()).then(|| format!("{} skipped: {}", self.total(), by.join(", ")))
    }

    /// Adds what programs are told to a record: `skipped`, and `skipped_for` by reason.
    pub fn add_to(&self, record: &mut Value) {
        let by = self.counts.iter().map(|(why, count)| (why.key().to_owned(), json!(count)));
        record["skipped"] = json!(self.total());
        record["skipped_for"] = Value::Object(by.collect());
    }
}

/// The number of a sentence that counts what it does not name.
fn how_many(text: &str) -> Option<u64> {
    let (number, rest) = text.split_once(' ')?;
    let counts = ["more", "more cannot be written there", "more entries were left out", "left out"];
    number.parse().ok().filter(|_| counts.contains(&rest))
}

#[cfg(test)]
mod tests {
    use gtp::FailureKind;

    use super::*;

    fn skips(texts: &[&str]) -> Skips {
        let failures: Vec<Failure> =
            texts.iter().map(|text| Failure::new(FailureKind::Partial, *text)).collect();
        Skips::of(&failures)
    }

    #[test]
    fn what_is_skipped_is_one_line_with_the_number_by_reason() {
        let all = skips(&[
            "a/secret: permission denied",
            "a/l1: is a symbolic link",
            "l2: is a symbolic link, which is neither followed nor carried",
        ]);
        assert_eq!(all.words().unwrap(), "3 skipped: 2 symbolic links, 1 not readable");
        let one = skips(&["pipe: is neither a regular file nor a directory"]);
        assert_eq!(one.words().unwrap(), "1 skipped: 1 special file");
        assert_eq!(Skips::default().words(), None);
    }

    #[test]
    fn sentences_that_count_and_sentences_of_no_known_reason_are_counted_as_such() {
        let all = skips(&["12 more", "3 more cannot be written there", "x: too odd", "7 dwarfs"]);
        let words = "17 skipped: 2 for other reasons, 15 not named";
        assert_eq!((all.total(), all.words().unwrap().as_str()), (17, words));
        assert_eq!(skips(&["18446744073709551615 more", "1 more"]).total(), u64::MAX);
    }

    #[test]
    fn programs_get_the_number_and_the_reasons() {
        let mut all = skips(&["x: could not be read"]);
        all.add(&skips(&[
            "y: the name is not UTF-8",
            "z: changed while being sent",
            "v: permission denied",
        ]));
        let mut record = json!({ "event": "done" });
        all.add_to(&mut record);
        assert_eq!(record["skipped"], 4);
        assert_eq!(record["skipped_for"], json!({"not_readable": 2, "name": 1, "changed": 1}));
        Skips::default().add_to(&mut record);
        assert_eq!((&record["skipped"], &record["skipped_for"]), (&json!(0), &json!({})));
    }
}
