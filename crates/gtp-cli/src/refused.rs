//! What the parser says of words that it does not take, safe for a terminal.
//!
//! The parser repeats words of the command line as they are, and these may come from a script that
//! passes on what somebody else has called a file.

use std::error::Error as _;

use clap::Error;
use clap::builder::StyledStr;
use clap::error::ContextValue;

/// Prints an error on standard error, in colours where nothing in it had to be escaped.
pub fn print(error: Error) {
    let (error, is_changed) = escaped(error);
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    // If standard error cannot be written there is nobody to tell.
    let _ = match is_changed || gtp_text::of_lines(&why) != why {
        false => error.print(),
        true => print_plain(&gtp_text::of_lines(&error.render().to_string())),
    };
}

fn print_plain(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    std::io::stderr().write_all(text.as_bytes())
}

/// The error with each word escaped that it repeats, and whether that has changed one.
fn escaped(mut error: Error) -> (Error, bool) {
    let mut is_changed = false;
    let mut safe = |text: &String| {
        let safe = gtp_text::of_message(text);
        is_changed |= safe != *text;
        safe
    };
    let words: Vec<_> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => Some((kind, ContextValue::String(safe(text)))),
            ContextValue::Strings(texts) => {
                Some((kind, ContextValue::Strings(texts.iter().map(&mut safe).collect())))
            }
            _ => None,
        })
        .collect();
    for (kind, value) in words {
        error.insert(kind, value);
    }
    if is_changed {
        // Advice repeats the same words.
        let plain = |text: &StyledStr| StyledStr::from(gtp_text::of_lines(&text.to_string()));
        let advice: Vec<_> = error
            .context()
            .filter_map(|(kind, value)| match value {
                ContextValue::StyledStrs(all) => {
                    Some((kind, ContextValue::StyledStrs(all.iter().map(plain).collect())))
                }
                _ => None,
            })
            .collect();
        for (kind, value) in advice {
            error.insert(kind, value);
        }
    }
    (error, is_changed)
}
