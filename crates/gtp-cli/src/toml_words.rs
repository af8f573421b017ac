//! What a settings file says, read for options of a command line.
//!
//! A value is judged by the very option that it stands for, and what is wrong is told with its
//! line. Which settings there are, and what they mean, is unknown here: `gtp` and `gtpd` each
//! have their own.

use clap::{Arg, ArgAction, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What the file says of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The key as it is written there.
    pub key: String,
    /// The value, as it would stand behind an option.
    pub value: String,
    /// The line of the key.
    pub line: usize,
}

/// The lines of a text at which things stand.
pub struct Lines<'t> {
    text: &'t str,
    whole: Option<Spanned<DeTable<'t>>>,
}

impl<'t> Lines<'t> {
    /// Those of a text; of one that is no TOML it knows none.
    pub fn of(text: &'t str) -> Lines<'t> {
        Lines { text, whole: DeTable::parse(text).ok() }
    }

    /// The line of what stands at a path of keys, and of items of lists, which are texts or
    /// numbered from 0: that of its last part that is there, and 1 if none is.
    pub fn at<W: AsRef<str>>(&self, path: &[W]) -> usize {
        let at = self.whole.as_ref().and_then(|whole| start_in_table(whole.get_ref(), path));
        line_of(self.text, at.unwrap_or(0))
    }
}

fn start_in_table<W: AsRef<str>>(table: &DeTable<'_>, path: &[W]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == first.as_ref())?;
    Some(start_in(value.get_ref(), rest).unwrap_or(key.span().start))
}

fn start_in<W: AsRef<str>>(value: &DeValue<'_>, path: &[W]) -> Option<usize> {
    match value {
        DeValue::Table(table) => start_in_table(table, path),
        DeValue::Array(items) => {
            let (first, rest) = path.split_first()?;
            let name = Some(first.as_ref());
            let is_it = |item: &&Spanned<DeValue<'_>>| item.get_ref().as_str() == name;
            let numbered = || items.get(first.as_ref().parse::<usize>().ok()?);
            let item = items.iter().find(is_it).or_else(numbered)?;
            Some(start_in(item.get_ref(), rest).unwrap_or(item.span().start))
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => None,
    }
}

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

#[cfg(test)]
mod tests;
