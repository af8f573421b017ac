//! What a settings file says, read for options of a command line.
//!
//! A value is judged by the very option that it stands for, and what is wrong is told with its
//! line. Which settings there are, and what they mean, is unknown here: `gtp` and `gtpd` each
//! have their own.

use clap::{Arg, ArgAction, Command};

/// The file's keys and values.
///
/// # Errors
/// The line, and what is wrong there.
pub fn table(text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |span| line_of(text, span.start));
        format!(", line {line}: {}", e.message())
    })
}

/// Whether the option would take the value: asks its own parser.
///
/// # Errors
/// Why not, in its words.
pub fn check(option: &Arg, value: &str) -> Result<(), String> {
    let name = option.get_long().unwrap_or_default();
    let probe = option.clone().env(None::<&'static str>);
    let word = match option.get_action() {
        ArgAction::SetTrue => {
            let truth = matches!(value, "true" | "false");
            return truth.then_some(()).ok_or_else(|| "must be true or false".into());
        }
        ArgAction::Set | ArgAction::Append => format!("--{name}={value}"),
        other => return Err(format!("cannot be set here ({other:?})")),
    };
    let tried = Command::new("config").arg(probe).try_get_matches_from(["config", &word]);
    tried.map(|_| ()).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        first.trim_start_matches("error: ").to_owned()
    })
}

/// A value as it would stand behind an option; lists have commas.
pub fn as_word(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Array(parts) => {
            let words: Option<Vec<String>> = parts.iter().map(as_word).collect();
            words.map(|words| words.join(","))
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&b| b == b'\n').count()
}

/// The line where a key stands, or the table of that name.
pub fn line_of_key(text: &str, key: &str) -> usize {
    let names = |line: &str| {
        let head = line.split(['=', ']']).next().unwrap_or_default();
        head.trim_matches(|c: char| c.is_whitespace() || "[\"'".contains(c)) == key
    };
    1 + text.lines().position(names).unwrap_or(0)
}
