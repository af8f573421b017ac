//! Rust text with comments and literals blanked out, so that rules look at code alone.
//!
//! The masked text has the same bytes at the same places as the source: what is blanked becomes
//! spaces, newlines stay. It is a lexer for the five things that can hide code-like text (line
//! and nested block comments, strings, raw strings, character literals) and knows no grammar.

/// Blanks comments, strings and character literals of Rust source.
#[must_use]
pub fn mask(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = hidden_end(bytes, at);
        if end > at {
            out.extend(bytes[at..end].iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
            at = end;
        } else {
            out.push(if bytes[at].is_ascii() { bytes[at] } else { b' ' });
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The end of the comment or literal that starts at `at`, or `at` when none does.
fn hidden_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    if rest[0] == b'"' {
        return string_end(bytes, at + 1);
    }
    if rest[0] == b'\'' {
        return character_end(bytes, at);
    }
    let inside_word = at > 0 && is_word(bytes[at - 1]);
    if inside_word { at } else { prefixed_literal_end(bytes, at) }
}

/// The end of a literal with a prefix (`r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `c"…"`), or `at`.
fn prefixed_literal_end(bytes: &[u8], at: usize) -> usize {
    let mut quote = at;
    let mut raw = false;
    while let Some(b'b' | b'c' | b'r') = bytes.get(quote).filter(|_| quote < at + 2) {
        raw |= bytes[quote] == b'r';
        quote += 1;
    }
    if quote == at {
        return at;
    }
    let open = quote;
    while raw && bytes.get(quote) == Some(&b'#') {
        quote += 1;
    }
    if bytes.get(quote) != Some(&b'"') {
        return at;
    }
    if !raw {
        return string_end(bytes, quote + 1);
    }
    let mut closing = vec![b'"'];
    closing.resize(1 + quote - open, b'#');
    let body = &bytes[quote + 1..];
    let length = body.windows(closing.len()).position(|w| w == closing);
    length.map_or(bytes.len(), |n| quote + 1 + n + closing.len())
}

/// The end of a string whose first byte of content is at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a character literal that starts at `at`, or `at` when the quote begins a lifetime.
fn character_end(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at + 1) == Some(&b'\\') {
        let tail = bytes.get(at + 3..).unwrap_or(&[]);
        return tail.iter().position(|b| *b == b'\'').map_or(bytes.len(), |n| at + 4 + n);
    }
    // One character of at most four bytes, then the closing quote; anything else is a lifetime.
    let width = bytes.get(at + 1).map_or(1, |b| match b {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    });
    if bytes.get(at + 1 + width) == Some(&b'\'') { at + 2 + width } else { at }
}

/// The end of a block comment, which may hold others.
fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Whether a byte can be part of an identifier.
#[must_use]
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Every place where `needle` stands in masked code, not as a part of a longer identifier.
pub fn places<'a>(code: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(needle).map(|(at, _)| at).filter(move |at| {
        let open = !needle.starts_with(|c: char| c.is_ascii_alphanumeric())
            || *at == 0
            || !is_word(bytes[at - 1]);
        let end = at + needle.len();
        let closed = !needle.ends_with(|c: char| c.is_ascii_alphanumeric())
            || bytes.get(end).is_none_or(|b| !is_word(*b));
        open && closed
    })
}

/// The line of a byte offset, from 1.
#[must_use]
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_vanish_and_lines_stay() {
        assert_eq!(mask("a // b {\nc"), "a       \nc");
        assert_eq!(mask("a /* { /* x */ \n } */ b"), "a              \n      b");
    }

    #[test]
    fn strings_vanish_with_their_escapes() {
        assert_eq!(mask(r#"f("{ \" }", 1)"#), "f(        , 1)");
        assert_eq!(mask(r##"f(r#"a"b{"#, br"\")"##), "f(         ,      )");
        assert_eq!(mask(r#"x(b"{", c"}")"#), "x(    ,     )");
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(mask("fn f<'a>(c: &'a str) { '{' }"), "fn f<'a>(c: &'a str) {     }");
        assert_eq!(
            mask(r"match c { '\'' => '\u{7d}', 'é' => 'x' }").matches(['{', '}']).count(),
            2
        );
    }

    #[test]
    fn words_with_an_r_are_not_raw_strings() {
        assert_eq!(mask("for r in br { r#type }"), "for r in br { r#type }");
    }

    #[test]
    fn masked_text_keeps_every_offset() {
        let source = "let é = \"ü\"; // ß\n'λ'";
        assert_eq!(mask(source).len(), source.len());
    }

    #[test]
    fn a_place_is_a_whole_word() {
        let found: Vec<_> = places("todo my_todo todo_x todo", "todo").collect();
        assert_eq!(found, [0, 20]);
    }
}
