//! The project speaks of itself alone, in tidy text.
//!
//! No paths of the machine it was written on, no hosts of package registries, no talk of how the
//! text came about; no trailing blanks, no carriage returns, a newline at the end, no large files.
//! The words are put together from pieces here, so that this file passes its own rule.

use crate::breach::{Breach, Rule};

/// The largest file that may stand in the source tree, in bytes.
pub const LARGEST_FILE: u64 = 200_000;

/// Files whose text is not ours to write.
const GENERATED: [&str; 2] = ["Cargo.lock", "bench/peers/Cargo.lock"];

/// Pieces of the words that must not appear, in lower case.
const FORBIDDEN: [[&str; 2]; 10] = [
    ["/wor", "k/"],
    ["/far", "m/"],
    ["/ro", "ot/"],
    ["/tmp/tar", "get"],
    ["sub", "agent"],
    ["issu", "e #"],
    ["crates", ".io"],
    ["py", "pi.org"],
    ["registry", ".npm"],
    ["proxy", ".golang"],
];

/// A breach when a file is larger than a source tree should hold.
#[must_use]
pub fn check_size(path: &str, size: u64) -> Option<Breach> {
    (size > LARGEST_FILE)
        .then(|| Breach::at(Rule::Large, path, 0, format!("{size} bytes, {LARGEST_FILE} allowed")))
}

/// Everything untidy in one text file.
#[must_use]
pub fn check(path: &str, text: &str) -> Vec<Breach> {
    if GENERATED.contains(&path) {
        return Vec::new();
    }
    let words: Vec<String> = FORBIDDEN.iter().map(|pieces| pieces.concat()).collect();
    let mut found = Vec::new();
    for (i, line) in text.split('\n').enumerate() {
        let mut report = |what: String| found.push(Breach::at(Rule::Word, path, i + 1, what));
        let lower = line.to_lowercase();
        for word in words.iter().filter(|word| lower.contains(*word)) {
            report(format!("contains `{word}`"));
        }
        if line.ends_with([' ', '\t', '\r']) {
            report("ends in a blank".to_owned());
        }
    }
    if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        let last = text.split('\n').count();
        found.push(Breach::at(Rule::Word, path, last, "must end in exactly one newline"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check("README.md", text).len()
    }

    #[test]
    fn tidy_text_passes() {
        assert_eq!(count("One line.\n\nAnother.\n"), 0);
        assert_eq!(count(""), 0);
    }

    #[test]
    fn blanks_and_missing_newlines_are_found() {
        assert_eq!(count("One line. \n"), 1);
        assert_eq!(count("One line.\r\n"), 1);
        assert_eq!(count("One line."), 1);
        assert_eq!(count("One line.\n\n"), 1);
    }

    #[test]
    fn every_forbidden_word_is_found_in_any_case() {
        for pieces in FORBIDDEN {
            assert_eq!(count(&format!("see {} here\n", pieces.concat().to_uppercase())), 1);
        }
    }

    #[test]
    fn a_large_file_is_found() {
        assert!(check_size("a.bin", LARGEST_FILE).is_none());
        assert!(check_size("a.bin", LARGEST_FILE + 1).is_some());
    }
}
