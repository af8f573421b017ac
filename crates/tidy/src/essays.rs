//! Every file opens with its essay: what it is, its one idea, what it must not know.
//!
//! The lint can only see that the essay is there and longer than a label; whether it says
//! something is for the reader.

use crate::breach::{Breach, Rule};
use crate::source::Source;

/// The least lines of an essay, in product files and in files of tests.
const PRODUCT_LINES: usize = 3;
const TEST_LINES: usize = 1;

/// A breach when the file does not begin with an essay that is long enough.
#[must_use]
pub fn check(source: &Source) -> Option<Breach> {
    let head = source.text.lines().take_while(|line| line.starts_with("//!"));
    let lines = head.filter(|line| line.trim_start_matches("//!").trim().len() > 1).count();
    let needed = if source.is_test_file() { TEST_LINES } else { PRODUCT_LINES };
    (lines < needed).then(|| {
        let what = format!("the opening `//!` essay has {lines} lines, {needed} needed");
        Breach::at(Rule::Essay, &source.path, 1, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_file_needs_three_lines_and_a_test_file_one() {
        let essay = "//! What it is.\n//!\n//! The idea.\n//! The wall.\n#![no_std]\n";
        assert!(check(&Source::new("crates/a/src/lib.rs", essay)).is_none());
        assert!(check(&Source::new("crates/a/src/b.rs", "//! A label.\nfn a() {}")).is_some());
        assert!(check(&Source::new("crates/a/tests/b.rs", "//! A claim.\nfn a() {}")).is_none());
        assert!(check(&Source::new("crates/a/tests/b.rs", "fn a() {}")).is_some());
    }
}
