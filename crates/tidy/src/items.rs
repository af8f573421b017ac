//! Functions and test regions of a masked source, found by matching brackets.
//!
//! Enough of Rust's shape to say where a function begins and ends and which lines exist only for
//! tests; it works on masked text, where every bracket is code, and knows no types.

use crate::mask::places;
use std::ops::Range;

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// From `fn` to its closing brace, as byte offsets.
    pub span: Range<usize>,
}

/// Every function with a body in masked code, nested ones too.
#[must_use]
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for start in places(code, "fn") {
        let rest = code[start + 2..].trim_start();
        let name: String =
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if name.is_empty() {
            continue; // a function pointer's type
        }
        let end = item_end(code, start);
        if code.as_bytes().get(end.wrapping_sub(1)) == Some(&b'}') {
            found.push(Function { name, span: start..end });
        }
    }
    found
}

/// The byte ranges of masked code that are compiled for tests only.
#[must_use]
pub fn test_regions(code: &str) -> Vec<Range<usize>> {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut regions: Vec<Range<usize>> = Vec::new();
    for (start, _) in code.match_indices(ATTRIBUTE) {
        let nested = regions.last().is_some_and(|outer| outer.contains(&start));
        if !nested {
            regions.push(start..item_end(code, start + ATTRIBUTE.len()));
        }
    }
    regions
}

/// The names of modules that are declared for tests only and live in files of their own.
#[must_use]
pub fn test_modules(code: &str) -> Vec<String> {
    let regions = test_regions(code);
    let texts = regions.iter().map(|region| &code[region.clone()]);
    texts
        .filter_map(|text| text.strip_suffix(';'))
        .filter_map(|text| text.rsplit_once("mod ").map(|(_, name)| name.trim().to_owned()))
        .collect()
}

/// The end of the item that starts at `at`: its closing brace, or the semicolon of one without a
/// body, outside all brackets.
fn item_end(code: &str, at: usize) -> usize {
    let bytes = code.as_bytes();
    let mut depth = 0_usize;
    for (i, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'{' if depth == 0 => return closing(bytes, i) + 1,
            b';' if depth == 0 => return i + 1,
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    bytes.len()
}

/// The index of the brace that closes the one at `open`, or the last index.
#[must_use]
pub fn closing(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i;
                }
            }
            _ => {}
        }
    }
    bytes.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let code = "impl T { fn a(x: [u8; 3]) -> u8 { if x { y } } fn b(&self); fn c() {} }";
        let names: Vec<_> = functions(code).into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["a", "c"]);
        assert!(code[functions(code)[0].span.clone()].ends_with("} }"));
    }

    #[test]
    fn a_function_pointer_is_no_function() {
        assert!(functions("struct S { f: fn(u8) -> u8 }").is_empty());
    }

    #[test]
    fn a_test_module_is_a_region() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}";
        let regions = test_regions(code);
        assert_eq!(regions.len(), 1);
        assert_eq!(&code[regions[0].clone()], "#[cfg(test)]\nmod tests { fn b() {} }");
    }

    #[test]
    fn a_test_module_in_its_own_file_is_named() {
        assert_eq!(test_modules("#[cfg(test)]\nmod twin;\nmod real;"), ["twin"]);
        assert_eq!(test_modules("#[cfg(test)]\n#[path = \"x\"]\npub(crate) mod t;"), ["t"]);
        assert!(test_modules("#[cfg(test)]\nuse x::y;").is_empty());
    }
}
