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
    replace(&mut error, |value| match value {
        ContextValue::String(text) => Some(ContextValue::String(safe(text))),
        ContextValue::Strings(texts) => {
            Some(ContextValue::Strings(texts.iter().map(&mut safe).collect()))
        }
        _ => None,
    });
    if is_changed {
        // Advice repeats the same words.
        let plain = |text: &StyledStr| StyledStr::from(gtp_text::of_lines(&text.to_string()));
        replace(&mut error, |value| match value {
            ContextValue::StyledStrs(all) => {
                Some(ContextValue::StyledStrs(all.iter().map(plain).collect()))
            }
            _ => None,
        });
    }
    (error, is_changed)
}

/// Puts what `by` makes of a value of the error's context in the value's place.
fn replace(error: &mut Error, mut by: impl FnMut(&ContextValue) -> Option<ContextValue>) {
    let made = error.context().filter_map(|(kind, value)| Some((kind, by(value)?)));
    let made: Vec<_> = made.collect();
    for (kind, value) in made {
        error.insert(kind, value);
    }
}
