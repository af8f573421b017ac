//! No catch-all arm over an enum of our own: a new variant must be decided everywhere.
//!
//! Without types this is a heuristic: a `match` that names a variant of an enum of this workspace
//! at the head of an arm, and has a bare `_ =>` arm as well. Patterns inside tuples or `Some(…)`
//! are not seen; a name shared with a foreign enum can be exempted by name.

use crate::breach::{Breach, Rule};
use crate::items::closing;
use crate::mask::{is_word, places};
use crate::source::Source;
use std::collections::BTreeSet;

/// The names of all enums that the workspace's sources declare outside tests.
#[must_use]
pub fn enum_names(sources: &[Source]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources {
        for at in places(&source.code, "enum") {
            let rest = source.code[at + 4..].trim_start();
            let name: String = rest.chars().take_while(|c| is_word(*c as u8)).collect();
            if !source.is_test(at) && !name.is_empty() {
                names.insert(name);
            }
        }
    }
    names
}

/// Every catch-all arm over one of `enums` in product code.
#[must_use]
pub fn check(source: &Source, enums: &BTreeSet<String>) -> Vec<Breach> {
    let mut found = Vec::new();
    for at in places(&source.code, "match") {
        if source.is_test(at) {
            continue;
        }
        let Some(open) = source.code[at..].find('{').map(|n| at + n) else { continue };
        let arms = arms(&source.code, open);
        let ours = arms.iter().find_map(|(_, pattern)| {
            let head = pattern.split("::").next().unwrap_or("").trim_start_matches('|').trim();
            (pattern.contains("::") && enums.contains(head)).then_some(head)
        });
        let catch_all = arms.iter().find(|(_, pattern)| *pattern == "_");
        if let (Some(name), Some((place, _))) = (ours, catch_all) {
            let line = source.line_of(*place);
            let what = format!("`_ =>` over our own `{name}`: name the variants");
            found.push(Breach::at(Rule::Wildcard, &source.path, line, what));
        }
    }
    found
}

/// The arms of the match whose body opens at `open`: where each pattern begins, and its text.
fn arms(code: &str, open: usize) -> Vec<(usize, &str)> {
    let bytes = code.as_bytes();
    let end = closing(bytes, open);
    let mut arms = Vec::new();
    let mut start = open + 1;
    let mut at = start;
    let mut depth = 0_usize;
    while at < end {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'=' if depth == 0 && bytes.get(at + 1) == Some(&b'>') => {
                arms.push((start + leading(&code[start..at]), code[start..at].trim()));
                at = arm_end(bytes, at + 2, end);
                start = at;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    arms
}

/// Where the arm whose expression begins at `at` ends: past its comma, or past its block.
fn arm_end(bytes: &[u8], mut at: usize, end: usize) -> usize {
    while at < end && bytes[at].is_ascii_whitespace() {
        at += 1;
    }
    if bytes.get(at) == Some(&b'{') {
        at = closing(bytes, at) + 1;
        return if bytes.get(at) == Some(&b',') { at + 1 } else { at };
    }
    let mut depth = 0_usize;
    while at < end {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    end
}

/// How many bytes of white space a text begins with.
fn leading(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(body: &str) -> usize {
        let text = format!("enum Kind {{ A, B }}\nfn f(k: Kind) -> u8 {{ {body} }}");
        let source = Source::new("crates/a/src/x.rs", &text);
        let enums = enum_names(std::slice::from_ref(&source));
        check(&source, &enums).len()
    }

    #[test]
    fn a_catch_all_over_our_enum_is_found() {
        assert_eq!(count("match k { Kind::A => 1, _ => 2 }"), 1);
        assert_eq!(count("match k { Kind::A => { match x { y => 3 } } _ => 2 }"), 1);
    }

    #[test]
    fn naming_all_variants_or_a_foreign_type_passes() {
        assert_eq!(count("match k { Kind::A => 1, Kind::B => 2 }"), 0);
        assert_eq!(count("match k { Other::A => g(Kind::A), _ => 2 }"), 0);
        assert_eq!(count("match x { 0 => Kind::A, _ => Kind::B }"), 0);
    }
}
