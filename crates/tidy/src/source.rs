//! A Rust source file as the rules see it: text, masked code, and which of its lines are tests.
//!
//! Test code is a file under `tests/`, `benches/` or `examples/`, a fuzz target, anything in the
//! end-to-end crate, a module declared `#[cfg(test)]`, or a region under that attribute.

use crate::items::{test_modules, test_regions};
use crate::mask::{line_of, mask};
use crate::tree::File;
use std::ops::Range;

/// One Rust source file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Relative to the root, with `/`.
    pub path: String,
    /// The text as written.
    pub text: String,
    /// The text with comments and literals blanked.
    pub code: String,
    /// Byte ranges that only tests see; the whole file for a test file.
    pub tests: Vec<Range<usize>>,
}

impl Source {
    /// One source, seen alone.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Source {
        let code = mask(text);
        let whole = is_test_path(path) || code.contains("#![cfg(test)]");
        let tests = if whole { vec![whole_of(text)] } else { test_regions(&code) };
        Source { path: path.to_owned(), text: text.to_owned(), code, tests }
    }

    /// Every Rust source among the files; modules that another file declares for tests only are
    /// marked as tests.
    #[must_use]
    pub fn read_all(files: &[File]) -> Vec<Source> {
        let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
        let mut sources: Vec<Source> = rust
            .filter_map(|file| file.text.as_ref().map(|text| Source::new(&file.path, text)))
            .collect();
        let marked: Vec<String> = sources.iter().flat_map(Source::declared_test_stems).collect();
        for source in &mut sources {
            let is_marked = |stem: &String| {
                source.path == format!("{stem}.rs") || source.path.starts_with(&format!("{stem}/"))
            };
            if marked.iter().any(is_marked) {
                source.tests = vec![whole_of(&source.text)];
            }
        }
        sources
    }

    /// The paths, without `.rs`, of the modules that this file declares for tests only.
    fn declared_test_stems(&self) -> Vec<String> {
        let (folder, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let base = match name {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
            other => format!("{folder}/{}", other.trim_end_matches(".rs")),
        };
        test_modules(&self.code).iter().map(|module| format!("{base}/{module}")).collect()
    }

    /// The crate's directory name, or empty outside `crates/`.
    #[must_use]
    pub fn crate_name(&self) -> &str {
        crate_of(&self.path)
    }

    /// Whether a byte offset is in code that only tests see.
    #[must_use]
    pub fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|region| region.contains(&at))
    }

    /// Whether the whole file is for tests.
    #[must_use]
    pub fn is_test_file(&self) -> bool {
        self.tests.iter().any(|region| region.start == 0 && region.end >= self.text.len())
    }

    /// The line of a byte offset, from 1.
    #[must_use]
    pub fn line_of(&self, at: usize) -> usize {
        line_of(&self.text, at)
    }
}

/// The directory name of the crate that a path belongs to, or empty.
#[must_use]
pub fn crate_of(path: &str) -> &str {
    path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or("")
}

/// Whether a file is for tests by its place alone.
fn is_test_path(path: &str) -> bool {
    let folders = ["/tests/", "/benches/", "/examples/"];
    path.starts_with("fuzz/")
        || path.starts_with("crates/gtp-e2e/")
        || folders.iter().any(|folder| path.contains(folder))
}

/// The range of a whole text.
fn whole_of(text: &str) -> Range<usize> {
    0..text.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), size: text.len() as u64, text: Some(text.to_owned()) }
    }

    #[test]
    fn files_under_tests_are_tests() {
        assert!(Source::new("crates/a/tests/x.rs", "fn a() {}").is_test_file());
        assert!(Source::new("crates/gtp-e2e/src/lib.rs", "fn a() {}").is_test_file());
        assert!(!Source::new("crates/a/src/x.rs", "fn a() {}").is_test_file());
    }

    #[test]
    fn a_module_declared_for_tests_marks_its_file() {
        let files = [
            file("crates/a/src/law.rs", "#[cfg(test)]\nmod twin;\nfn a() {}"),
            file("crates/a/src/law/twin.rs", "fn b() {}"),
            file("crates/a/src/twin.rs", "fn c() {}"),
        ];
        let sources = Source::read_all(&files);
        let tests: Vec<_> = sources.iter().map(Source::is_test_file).collect();
        assert_eq!(tests, [false, true, false]);
    }
}
