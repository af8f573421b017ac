//! Ceilings on functions, files and lines.
//!
//! Code in this field tends towards one giant file per connection; small pieces must be composed
//! from the first day. A file's tests do not count towards its ceiling; a file of nothing but
//! tests counts whole.

use crate::breach::{Breach, Rule};
use crate::items::functions;
use crate::mask::line_of;
use crate::source::Source;

/// Lines of a function, from `fn` to its closing brace.
pub const FUNCTION_LINES: usize = 70;
/// Lines of a file, tests not counted.
pub const FILE_LINES: usize = 800;
/// Characters of a line.
pub const LINE_CHARS: usize = 100;

/// Everything in one source that is above its ceiling.
#[must_use]
pub fn check(source: &Source) -> Vec<Breach> {
    let mut found = long_functions(source);
    found.extend(long_file(source));
    found.extend(long_lines(source));
    found
}

/// Functions above their ceiling.
fn long_functions(source: &Source) -> Vec<Breach> {
    let mut found = Vec::new();
    for function in functions(&source.code) {
        let first = source.line_of(function.span.start);
        let lines = source.line_of(function.span.end - 1) - first + 1;
        if lines > FUNCTION_LINES {
            found.push(Breach {
                rule: Rule::Function,
                path: source.path.clone(),
                item: function.name.clone(),
                line: first,
                size: lines,
                what: format!("`{}` has {lines} lines, {FUNCTION_LINES} allowed", function.name),
            });
        }
    }
    found
}

/// The file itself, if it is above its ceiling.
fn long_file(source: &Source) -> Option<Breach> {
    let all = source.text.lines().count();
    let tests = if source.is_test_file() { 0 } else { test_lines(source) };
    let lines = all - tests.min(all);
    (lines > FILE_LINES).then(|| Breach {
        rule: Rule::File,
        path: source.path.clone(),
        item: String::new(),
        line: 0,
        size: lines,
        what: format!("{lines} lines without tests, {FILE_LINES} allowed"),
    })
}

/// How many lines of a file are in test regions.
fn test_lines(source: &Source) -> usize {
    let length = |region: &std::ops::Range<usize>| {
        line_of(&source.text, region.end - 1) - line_of(&source.text, region.start) + 1
    };
    source.tests.iter().map(length).sum()
}

/// Lines above their ceiling.
fn long_lines(source: &Source) -> Vec<Breach> {
    let mut found = Vec::new();
    for (i, line) in source.text.lines().enumerate() {
        let characters = line.chars().count();
        if characters > LINE_CHARS {
            let what = format!("{characters} characters, {LINE_CHARS} allowed");
            found.push(Breach::at(Rule::Line, &source.path, i + 1, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<(Rule, usize)> {
        let source = Source::new("crates/a/src/x.rs", text);
        check(&source).into_iter().map(|breach| (breach.rule, breach.size)).collect()
    }

    #[test]
    fn a_function_of_seventy_lines_passes_and_one_more_does_not() {
        let function = |lines: usize| format!("fn a() {{\n{}}}", "    b();\n".repeat(lines - 2));
        assert!(sizes(&function(70)).is_empty());
        assert_eq!(sizes(&function(71)), [(Rule::Function, 71)]);
    }

    #[test]
    fn tests_do_not_count_towards_a_file() {
        let code = "static A: u8 = 0;\n".repeat(800);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "use a::b;\n".repeat(500));
        assert!(sizes(&format!("{code}{tests}")).is_empty());
        assert_eq!(sizes(&format!("{code}{tests}use a;\n")), [(Rule::File, 801)]);
    }

    #[test]
    fn a_line_is_counted_in_characters() {
        assert!(sizes(&format!("//{}", "é".repeat(98))).is_empty());
        assert_eq!(sizes(&format!("//{}", "x".repeat(99))), [(Rule::Line, 1)]);
    }
}
