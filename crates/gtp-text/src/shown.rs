//! Text as it may be shown: no character that hides, misleads or commands a terminal.
//!
//! Unicode's properties decide: controls, formats, everything that renderers may ignore
//! (Default_Ignorable_Code_Point, UAX #44), marks of direction, separators, spaces other than the
//! plain one, and code points that are private or mean nothing yet. They appear as `\u{202e}`.
//! A backslash is doubled, so that what is shown can be told from what was escaped. Combining marks
//! stay, because names of many languages need them, except at the start, where they would change
//! what stands before the text.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use icu_properties::props::{
    BidiControl, BinaryProperty, DefaultIgnorableCodePoint, EnumeratedProperty, GeneralCategory,
};

/// Whether a character shows itself, and nothing else, wherever it stands behind others.
pub fn is_plain(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let hides = matches!(
        GeneralCategory::for_char(c),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::SpaceSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
    );
    !hides && !DefaultIgnorableCodePoint::for_char(c) && !BidiControl::for_char(c) && c != BLANK
}

/// The Braille pattern without dots: a symbol by its category, and nothing to the eye.
const BLANK: char = '\u{2800}';

/// Whether a character is drawn over the one before it.
fn is_mark(c: char) -> bool {
    matches!(
        GeneralCategory::for_char(c),
        GeneralCategory::NonspacingMark
            | GeneralCategory::SpacingMark
            | GeneralCategory::EnclosingMark
    )
}

/// A text as it may be shown.
pub fn of_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    add(&mut shown, text, Backslash::Doubled);
    shown
}

/// Bytes as they may be shown: those that are not UTF-8 appear as `\xff`.
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        add(&mut shown, chunk.valid(), Backslash::Doubled);
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// A text with `?` in place of each character that may not be shown, for places of fixed width.
pub fn replaced(text: &str) -> String {
    let fits = |(at, c): (usize, char)| is_plain(c) && !(at == 0 && is_mark(c));
    text.chars().enumerate().map(|(at, c)| if fits((at, c)) { c } else { '?' }).collect()
}

/// A message as it may be shown, which holds names that were escaped when it was written: its
/// backslashes stay as they are.
pub fn of_message(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    add(&mut shown, text, Backslash::Kept);
    shown
}

/// Lines for people as they may be shown: as [`of_message`], and the ends of lines stay.
pub fn of_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(of_message).collect();
    lines.join("\n")
}

/// What becomes of a backslash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backslash {
    Doubled,
    Kept,
}

fn add(shown: &mut String, text: &str, backslash: Backslash) {
    for (at, c) in text.chars().enumerate() {
        match c {
            '\\' if backslash == Backslash::Doubled => shown.push_str("\\\\"),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            '\0' => shown.push_str("\\0"),
            c if !is_plain(c) || (at == 0 && is_mark(c)) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
}

/// JSON with every character that may not be shown as `\uXXXX`: it means the same to a program, and
/// a terminal obeys none of it. Outside of strings valid JSON has no such character.
pub fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // Between the lines of indented JSON.
        if is_plain(c) || c == '\n' {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    /// Every character there is.
    fn all() -> impl Iterator<Item = char> {
        '\0'..=char::MAX
    }

    #[test]
    fn nothing_invisible_or_directional_is_shown_raw() {
        let hidden = |c: char| {
            DefaultIgnorableCodePoint::for_char(c)
                || BidiControl::for_char(c)
                || matches!(
                    GeneralCategory::for_char(c),
                    GeneralCategory::Control | GeneralCategory::Format
                )
                || (c.is_whitespace() && c != ' ')
        };
        let mut seen = 0;
        for c in all().filter(|&c| hidden(c)) {
            seen += 1;
            let text = format!("a{c}b");
            assert!(!of_text(&text).contains(c), "{:?}", c.escape_unicode().to_string());
            assert!(!of_bytes(text.as_bytes()).contains(c));
            assert_eq!(replaced(&text), "a?b");
            assert!(c == '\n' || !escape_json(&text).contains(c));
        }
        assert!(seen > 4_000, "{seen}: the default-ignorable ones alone are more");
    }

    #[test]
    fn characters_that_have_hidden_in_names_are_escaped() {
        for c in [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{17b4}',
            '\u{180b}',
            '\u{180e}',
            '\u{200b}',
            '\u{200e}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{e000}',
            '\u{1d173}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e01ef}',
            '\u{10ffff}',
            '\u{a0}',
            '\u{2028}',
            '\u{85}',
        ] {
            let shown = format!("a{}", c.escape_unicode());
            assert_eq!(of_text(&format!("a{c}")), shown);
        }
    }

    #[test]
    fn names_of_all_languages_are_shown_as_they_are() {
        for name in [
            "naïve",
            "日本語",
            "Ελλάδα",
            "e\u{301}te\u{301}",
            "हिन्दी",
            "עברית",
            "العربية",
            "😀",
            "a b",
            "'\"$",
        ] {
            assert_eq!(of_text(name), name);
            assert_eq!(escape_json(name), name);
        }
        assert_eq!(of_text("\u{301}x"), "\\u{301}x");
        assert_eq!(of_text("a\\n\n\u{1b}[2J"), "a\\\\n\\n\\u{1b}[2J");
        assert_eq!(of_bytes(b"a\xff\xfe\0"), "a\\xff\\xfe\\0");
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(of_lines("a\u{ad}\\n\n\u{1b}b\n"), "a\\u{ad}\\n\n\\u{1b}b\n");
    }

    #[test]
    fn escaped_json_names_characters_beyond_the_first_plane_by_two_units() {
        assert_eq!(escape_json("\"\u{e0041}\u{202e}\""), "\"\\udb40\\udc41\\u202e\"");
    }

    proptest! {
        #[test]
        fn whatever_bytes_come_only_plain_characters_are_shown(bytes: Vec<u8>) {
            prop_assert!(of_bytes(&bytes).chars().all(is_plain));
        }

        #[test]
        fn what_was_escaped_once_is_not_escaped_again(text: String) {
            let shown = of_text(&text);
            prop_assert_eq!(of_message(&shown), shown);
            prop_assert!(of_message(&text).chars().all(is_plain));
        }

        #[test]
        fn different_texts_are_shown_differently(a: String, b: String) {
            prop_assert_eq!(a == b, of_text(&a) == of_text(&b));
        }
    }
}
