//! Reading tables strictly: every key is asked for, and what nobody asked for is refused.
//!
//! A reader asks a table for the keys it knows, each as what it must be. What remains is unknown,
//! and the complaint suggests the known key that looks most like it. All complaints say what was
//! found and what was expected.

use std::ops::RangeInclusive;

use gtp_alloc::{Bytes, Span};
use gtp_link::{DELAY_MOST, QUEUE_MOST};

use super::tree::{Complaint, Entry, Node, Place, Truth, Value};
use super::units::{Quantity, QueueSize};

/// A table being read.
#[derive(Debug)]
pub struct Table<'a> {
    /// What it is called in complaints: `[[link]]`.
    what: String,
    place: &'a Place,
    entries: &'a [Entry],
    asked: Vec<&'static str>,
}

/// A value with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub place: Place,
}

type Read<T> = Result<T, Complaint>;

impl<'a> Table<'a> {
    /// Reads `node`, which must be a table.
    ///
    /// # Errors
    /// If it is none.
    pub fn of(node: &'a Node, what: impl Into<String>) -> Read<Table<'a>> {
        let what = what.into();
        match &node.value {
            Value::Table(entries) => {
                Ok(Table { what, place: &node.place, entries, asked: Vec::new() })
            }
            other => Err(Complaint::new(
                &node.place,
                format!("found {}, expected a table {what}", other.described()),
            )),
        }
    }

    /// Where the table stands.
    pub fn place(&self) -> &'a Place {
        self.place
    }

    /// The value of a key, whatever it is.
    pub fn node(&mut self, key: &'static str) -> Option<&'a Node> {
        self.asked.push(key);
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// A complaint about this table as a whole; about the key that is written like the missing one
    /// if there is one that nobody knows so far.
    pub fn lacks(&self, key: &str, expected: &str) -> Complaint {
        self.misspelt(key).unwrap_or_else(|| {
            Complaint::new(self.place, format!("{} has no `{key}`: expected {expected}", self.what))
        })
    }

    /// The complaint that a key stands here which looks like the missing `key` and has not been
    /// asked for.
    pub fn misspelt(&self, key: &str) -> Option<Complaint> {
        let unknown =
            |e: &&Entry| !self.asked.contains(&e.key.as_str()) && nearest(&e.key, &[key]).is_some();
        let entry = self.entries.iter().find(unknown)?;
        let (wrote, what) = (&entry.key, &self.what);
        let message = format!("unknown key `{wrote}` in {what}: did you mean `{key}`?");
        Some(Complaint::new(&entry.place, message))
    }

    /// The complaint about a key that nobody has asked for so far and that is written like one of
    /// those that were.
    pub fn stray(&self) -> Option<Complaint> {
        self.asked.iter().find_map(|key| self.misspelt(key))
    }

    /// A text.
    ///
    /// # Errors
    /// If it is something else.
    pub fn text(&mut self, key: &'static str, expected: &str) -> Read<Option<At<String>>> {
        self.node(key).map(|node| text(node, key, expected)).transpose()
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// If it is not, or is something else.
    pub fn needed(&mut self, key: &'static str, expected: &str) -> Read<At<String>> {
        self.text(key, expected)?.ok_or_else(|| self.lacks(key, expected))
    }

    /// A list of texts; a single text counts as a list of one.
    ///
    /// # Errors
    /// If it is something else.
    pub fn texts(&mut self, key: &'static str, expected: &str) -> Read<Option<Vec<At<String>>>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        match &node.value {
            Value::List(items) => {
                items.iter().map(|item| text(item, key, expected)).collect::<Read<_>>().map(Some)
            }
            Value::Text(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Truth(_)
            | Value::Date(_)
            | Value::Table(_) => Ok(Some(vec![text(node, key, expected)?])),
        }
    }

    /// A number with a unit.
    ///
    /// # Errors
    /// If it is something else.
    pub fn quantity<T: Quantity>(&mut self, key: &'static str) -> Read<Option<T>> {
        self.node(key).map(|node| quantity(node, key)).transpose()
    }

    /// A number with a unit within bounds, which `expected` says in words.
    ///
    /// # Errors
    /// If it is something else, or outside.
    pub fn within<T: Quantity + PartialOrd>(
        &mut self,
        key: &'static str,
        bounds: RangeInclusive<T>,
        expected: &str,
    ) -> Read<Option<T>> {
        self.node(key).map(|node| bounded(node, key, &bounds, expected)).transpose()
    }

    /// A time of the run or a part of it, from nothing on.
    ///
    /// # Errors
    /// If it is something else, or longer than any run.
    pub fn moment(&mut self, key: &'static str) -> Read<Option<Span>> {
        self.within(key, MOMENTS, MOMENT)
    }

    /// A size of what waits at most, from nothing on.
    ///
    /// # Errors
    /// If it is something else, or more than anything holds.
    pub fn room(&mut self, key: &'static str) -> Read<Option<Bytes>> {
        self.within(key, Bytes::ZERO..=QUEUE_MOST, "a size of at most 1TiB")
    }

    /// A size, or the time that it takes at a link's rate; a queue's, or a bucket's.
    ///
    /// # Errors
    /// If it is something else, or more than anything holds.
    pub fn queue(&mut self, key: &'static str) -> Read<Option<QueueSize>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let size = quantity(node, key)?;
        let fits = match size {
            QueueSize::Bytes(bytes) => bytes <= QUEUE_MOST,
            QueueSize::Span(span) => span <= DELAY_MOST,
        };
        if fits {
            return Ok(Some(size));
        }
        Err(wrong(node, key, &node.value, "a size of at most 1TiB or a time of at most 1h"))
    }

    /// A control interval.
    ///
    /// # Errors
    /// If it is something else, or too short or long to be simulated.
    pub fn interval(&mut self, key: &'static str) -> Read<Option<Span>> {
        self.within(key, INTERVAL_LEAST..=INTERVAL_MOST, "a time from 100us to 1min")
    }

    /// A time that something takes, from nothing on.
    ///
    /// # Errors
    /// If it is something else, or longer than anything takes.
    pub fn delay(&mut self, key: &'static str) -> Read<Option<Span>> {
        self.within(key, DELAYS, DELAY)
    }

    /// A whole number within bounds.
    ///
    /// # Errors
    /// If it is something else, or outside.
    pub fn integer(&mut self, key: &'static str, bounds: RangeInclusive<i64>) -> Read<Option<i64>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        match node.value {
            Value::Integer(n) if bounds.contains(&n) => Ok(Some(n)),
            ref other => {
                let expected = if *bounds.end() == i64::MAX {
                    format!("a whole number from {}", bounds.start())
                } else {
                    format!("a whole number from {} to {}", bounds.start(), bounds.end())
                };
                Err(wrong(node, key, other, &expected))
            }
        }
    }

    /// A number within bounds.
    ///
    /// # Errors
    /// If it is something else, or outside.
    pub fn number(&mut self, key: &'static str, bounds: RangeInclusive<f64>) -> Read<Option<f64>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let number = match node.value {
            Value::Integer(n) => n as f64,
            Value::Float(v) => v,
            Value::Text(_)
            | Value::Truth(_)
            | Value::Date(_)
            | Value::List(_)
            | Value::Table(_) => f64::NAN,
        };
        if bounds.contains(&number) {
            return Ok(Some(number));
        }
        let expected = format!("a number from {} to {}", bounds.start(), bounds.end());
        Err(wrong(node, key, &node.value, &expected))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// If it is something else.
    pub fn truth(&mut self, key: &'static str) -> Read<Option<Truth>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        match node.value {
            Value::Truth(truth) => Ok(Some(truth)),
            ref other => Err(wrong(node, key, other, "true or false")),
        }
    }

    /// One of some words.
    ///
    /// # Errors
    /// If it is something else.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Read<Option<T>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        if let Value::Text(text) = &node.value
            && let Some((_, choice)) = choices.iter().find(|(word, _)| word == text)
        {
            return Ok(Some(*choice));
        }
        let quoted: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
        let mut complaint = wrong(node, key, &node.value, &listed(&quoted, "or"));
        if let Value::Text(text) = &node.value
            && let Some(near) = nearest(text, &words)
        {
            complaint.message += &format!("; did you mean {near:?}?");
        }
        Err(complaint)
    }

    /// Repeated tables: `[[key]]`.
    ///
    /// # Errors
    /// If it is something else.
    pub fn tables(&mut self, key: &'static str) -> Read<Vec<Table<'a>>> {
        let Some(node) = self.node(key) else { return Ok(Vec::new()) };
        let Value::List(items) = &node.value else {
            let expected = format!("tables headed [[{key}]], [[{key}.…]] after one of them");
            return Err(wrong(node, key, &node.value, &expected));
        };
        items.iter().map(|item| Table::of(item, format!("[[{key}]]"))).collect()
    }

    /// One table: `[key]`.
    ///
    /// # Errors
    /// If it is something else.
    pub fn table(&mut self, key: &'static str) -> Read<Option<Table<'a>>> {
        self.node(key).map(|node| Table::of(node, format!("[{key}]"))).transpose()
    }

    /// Refuses the first key that nobody asked for.
    ///
    /// # Errors
    /// If there is one.
    pub fn finish(self) -> Read<()> {
        let unknown = |e: &&Entry| !self.asked.contains(&e.key.as_str());
        let Some(entry) = self.entries.iter().find(unknown) else { return Ok(()) };
        let mut known = self.asked.clone();
        known.sort_unstable();
        known.dedup();
        let hint = match nearest(&entry.key, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are {}", listed(&known, "and")),
        };
        let message = format!("unknown key `{}` in {}: {hint}", entry.key, self.what);
        Err(Complaint::new(&entry.place, message))
    }
}

/// The entry of a key, if `node` is a table that has one.
pub fn entry<'a>(node: &'a Node, key: &str) -> Option<&'a Entry> {
    node.value.as_table()?.iter().find(|entry| entry.key == key)
}

/// A text.
///
/// # Errors
/// If it is something else.
fn text(node: &Node, key: &str, expected: &str) -> Read<At<String>> {
    match &node.value {
        Value::Text(text) if !text.is_empty() && text.len() <= TEXT_MAX => {
            Ok(At { value: text.clone(), place: node.place.clone() })
        }
        Value::Text(text) if !text.is_empty() => {
            let message = format!("`{key}` is longer than {TEXT_MAX} bytes");
            Err(Complaint::new(&node.place, message))
        }
        other => Err(wrong(node, key, other, expected)),
    }
}

/// A shorter interval has a host do more than packets: at none at all no time would pass.
const INTERVAL_LEAST: Span = Span::from_micros(100);
/// A longer one controls nothing.
const INTERVAL_MOST: Span = Span::from_secs(60);
/// The longest run.
pub const DURATION_MOST: Span = Span::from_secs(24 * 3_600);
/// Times within a run.
pub const MOMENTS: RangeInclusive<Span> = Span::ZERO..=DURATION_MOST;
/// What is expected of them.
pub const MOMENT: &str = "a time of at most 24h";
/// Times that something takes on its way.
pub const DELAYS: RangeInclusive<Span> = Span::ZERO..=DELAY_MOST;
/// What is expected of them.
pub const DELAY: &str = "a time of at most 1h";
/// Longest text of a key.
const TEXT_MAX: usize = 4_096;

/// A number with a unit.
///
/// # Errors
/// If it is something else.
pub fn quantity<T: Quantity>(node: &Node, key: &str) -> Read<T> {
    let why = match &node.value {
        Value::Text(text) => match T::read(text) {
            Ok(value) => return Ok(value),
            Err(why) => why,
        },
        Value::Integer(_) | Value::Float(_) => "give the unit, in quotes",
        Value::Truth(_) | Value::Date(_) | Value::List(_) | Value::Table(_) => "",
    };
    let mut complaint = wrong(node, key, &node.value, T::EXPECTED);
    if !why.is_empty() {
        complaint.message += &format!(": {why}");
    }
    Err(complaint)
}

/// A number with a unit within bounds, which `expected` says in words.
///
/// # Errors
/// If it is something else, or outside.
pub fn bounded<T: Quantity + PartialOrd>(
    node: &Node,
    key: &str,
    bounds: &RangeInclusive<T>,
    expected: &str,
) -> Read<T> {
    let value = quantity(node, key)?;
    if bounds.contains(&value) {
        return Ok(value);
    }
    Err(wrong(node, key, &node.value, expected))
}

/// The complaint that `key` is something else than expected.
pub fn wrong(node: &Node, key: &str, found: &Value, expected: &str) -> Complaint {
    let mut message = format!("`{key}` is {}, expected {expected}", found.described());
    if is_range(found) && !expected.contains("range") {
        message += "; a range to sweep over stands in [sweep]";
    }
    Complaint::new(&node.place, message)
}

/// Whether a value is written like a range of `[sweep]`.
fn is_range(value: &Value) -> bool {
    let ends = |e: &Entry| ["from", "to"].contains(&e.key.as_str());
    value.as_text().is_some_and(|text| text.contains(".."))
        || value.as_table().is_some_and(|entries| entries.iter().any(ends))
}

/// The one of `known` that looks most like `word`, if it looks like it at all.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = |other: &str| {
        let all = word.chars().count().max(other.chars().count());
        let off = strsim::damerau_levenshtein(word, other);
        (off * 5 <= all * 2).then_some(off)
    };
    let found = known.iter().filter_map(|other| near(other).map(|off| (off, *other))).min();
    found.map(|(_, other)| other)
}

/// `a, b or c`.
pub fn listed(words: &[impl AsRef<str>], last: &str) -> String {
    match words {
        [] => "nothing".to_owned(),
        [one] => one.as_ref().to_owned(),
        [first @ .., end] => {
            let first: Vec<_> = first.iter().map(AsRef::as_ref).collect();
            format!("{} {last} {}", first.join(", "), end.as_ref())
        }
    }
}
