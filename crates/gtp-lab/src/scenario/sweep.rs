//! Sweeps: one scenario, some of its values varied over ranges and lists, all combinations.
//!
//! `[sweep]` names keys by their paths (`seed`, `link.core.delay`: the word after a table's name is
//! the `name` of one of the repeated tables, or its number from 0) and gives each a list, a range
//! or a table of steps. Every combination is the file's tree with these values put in, so that it
//! is read and checked like a file of its own.

use super::read::{nearest, wrong};
use super::tree::{Complaint, Entry, Node, Place, Truth, Value};
use super::units;

type Read<T> = Result<T, Complaint>;

/// A swept key with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its path, in dots.
    pub path: String,
    /// The way to it through the tree.
    steps: Vec<Step>,
    /// Its values, in order.
    pub values: Vec<Node>,
}

/// One step from a value to one in it.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// By a key.
    Key(String),
    /// By the place in a list.
    Item(usize),
}

/// A sweep: its keys and the tree that they change.
#[derive(Clone, Debug)]
pub struct Swept {
    /// Swept keys, in the order of the file; the last one varies fastest.
    pub keys: Vec<Key>,
    tree: Node,
}

/// One combination.
#[derive(Clone, Debug)]
pub struct Case {
    /// The values, in the order of the keys.
    pub values: Vec<String>,
    /// The file's tree with these values in it.
    pub tree: Node,
}

/// Combinations of one sweep.
pub const CASES_MAX: usize = 100_000;
/// Values of one swept key.
const VALUES_MAX: usize = 10_000;

impl Swept {
    /// Number of combinations.
    pub fn count(&self) -> usize {
        self.keys.iter().map(|key| key.values.len()).product()
    }

    /// A combination by its number.
    pub fn case(&self, number: usize) -> Case {
        let mut tree = self.tree.clone();
        let (mut left, mut values) = (number, Vec::new());
        for key in self.keys.iter().rev() {
            let value = &key.values[left % key.values.len()];
            left /= key.values.len();
            put(&mut tree, &key.steps, value);
            values.push(plain(&value.value));
        }
        values.reverse();
        Case { values, tree }
    }
}

/// A value as it would be written, without quotes.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Date(text) => text.clone(),
        Value::Integer(n) => n.to_string(),
        Value::Float(v) => format!("{v}"),
        Value::Truth(_) | Value::List(_) | Value::Table(_) => value.described(),
    }
}

/// Reads `[sweep]`.
///
/// # Errors
/// If there is none, or something in it does not fit.
pub fn cases(tree: &Node) -> Read<Swept> {
    let Value::Table(entries) = &tree.value else {
        return Err(Complaint::new(&tree.place, "a scenario is a table"));
    };
    let sweep = entries.iter().find(|entry| entry.key == "sweep").ok_or_else(|| {
        let hint = "nothing to sweep: add [sweep] with keys such as seed = \"1..30\"";
        Complaint::new(&tree.place, hint)
    })?;
    let mut keys = Vec::new();
    collect(tree, &sweep.node, "", &mut keys)?;
    let count = keys.iter().try_fold(1usize, |n, key| n.checked_mul(key.values.len()));
    match count {
        Some(n) if n <= CASES_MAX && !keys.is_empty() => Ok(Swept { keys, tree: tree.clone() }),
        Some(_) if keys.is_empty() => Err(Complaint::new(&sweep.place, "[sweep] has no keys")),
        Some(_) | None => {
            let message = format!("more than {CASES_MAX} combinations: sweep fewer values");
            Err(Complaint::new(&sweep.place, message))
        }
    }
}

/// Walks through `[sweep]`: a table is part of a path unless it is one of steps.
fn collect(tree: &Node, node: &Node, path: &str, keys: &mut Vec<Key>) -> Read<()> {
    if let Some(entries) = node.value.as_table()
        && (path.is_empty() || !is_steps(entries))
    {
        for entry in entries {
            let dot = if path.is_empty() { "" } else { "." };
            collect(tree, &entry.node, &format!("{path}{dot}{}", entry.key), keys)?;
        }
        return Ok(());
    }
    let values = values(node, path)?;
    if values.is_empty() || values.len() > VALUES_MAX {
        let message = format!("`{path}` sweeps {} values: 1 to {VALUES_MAX}", values.len());
        return Err(Complaint::new(&node.place, message));
    }
    let steps = way(tree, path, &node.place)?;
    if keys.iter().any(|key: &Key| key.path == path) {
        return Err(Complaint::new(&node.place, format!("`{path}` is swept twice")));
    }
    keys.push(Key { path: path.to_owned(), steps, values });
    Ok(())
}

fn is_steps(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.key == "from")
        && entries.iter().all(|e| ["from", "to", "steps", "spacing"].contains(&e.key.as_str()))
}

const EXPECTED: &str = "a list, a range such as \"1..30\" or \"10ms..100ms step 10ms\", or \
                        { from = …, to = …, steps = … }";

fn values(node: &Node, path: &str) -> Read<Vec<Node>> {
    let bad = || wrong(node, path, &node.value, EXPECTED);
    match &node.value {
        Value::List(items) => Ok(items.clone()),
        Value::Text(text) => {
            let made = range(text).map_err(|why| {
                let mut complaint = bad();
                complaint.message += why;
                complaint
            })?;
            Ok(made.into_iter().map(|value| Node { place: node.place.clone(), value }).collect())
        }
        Value::Table(_) => {
            let made = steps(node)?;
            Ok(made.into_iter().map(|value| Node { place: node.place.clone(), value }).collect())
        }
        Value::Integer(_) | Value::Float(_) | Value::Truth(_) | Value::Date(_) => Err(bad()),
    }
}

/// `"1..30"`, `"1..30 step 3"`, `"10ms..100ms step 10ms"`: both ends included.
///
/// # Errors
/// What to say, after what was expected.
fn range(text: &str) -> Result<Vec<Value>, &'static str> {
    let split = |part| units::split(part).map_err(|_| "");
    let (ends, step) = match text.split_once(" step ") {
        Some((ends, step)) => (ends, Some(step)),
        None => (text, None),
    };
    let (from, to) = ends.split_once("..").ok_or("")?;
    let ((from, unit), (to, unit_too)) = (split(from)?, split(to)?);
    let (step, unit_of_step, places) = match step {
        Some(step) => split(step).map(|(step, unit)| (step.as_f64(), unit, step.places()))?,
        None if unit.is_empty() => (1.0, unit, 0),
        None => return Err(": with a unit it needs a step"),
    };
    if unit != unit_too || unit != unit_of_step {
        return Err(": ends and step have one unit");
    }
    let places = places.max(from.places());
    let (from, to) = (from.as_f64(), to.as_f64());
    if from > to || step <= 0.0 {
        return Err(": it goes upwards, by a step above zero");
    }
    if to > EXACT_MOST {
        return Err(": its numbers are at most 9007199254740992");
    }
    let count = ((to - from) / step + 1e-9).floor();
    if count > VALUES_MAX as f64 {
        return Err(": it has too many values");
    }
    Ok((0..=count as u64).map(|n| made(from + n as f64 * step, unit, places)).collect())
}

/// Up to here every whole number is one of its own (2^53).
const EXACT_MOST: f64 = 9_007_199_254_740_992.0;

/// A number with its unit: whole numbers and plain ones stay numbers.
fn made(number: f64, unit: &str, places: u32) -> Value {
    let places = places as usize;
    match (unit.is_empty(), places) {
        (true, 0) => Value::Integer(number.round() as i64),
        (true, _) => Value::Float(format!("{number:.places$}").parse().unwrap_or(number)),
        (false, _) => Value::Text(format!("{number:.places$}{unit}")),
    }
}

/// `{ from = "1Mbit", to = "1Gbit", steps = 7, spacing = "log" }`: both ends included.
fn steps(node: &Node) -> Read<Vec<Value>> {
    let mut table = super::read::Table::of(node, "of steps")?;
    let mut end = |key: &'static str| -> Read<(f64, String)> {
        let node = table.node(key).ok_or_else(|| table.lacks(key, "a number with its unit"))?;
        let text = plain(&node.value);
        let (number, unit) = units::split(&text)
            .map_err(|_| wrong(node, key, &node.value, "a number with its unit"))?;
        Ok((number.as_f64(), unit.to_owned()))
    };
    let ((from, unit), (to, unit_too)) = (end("from")?, end("to")?);
    if unit != unit_too {
        let message = format!("`from` is in {unit:?} and `to` in {unit_too:?}: use one unit");
        return Err(Complaint::new(&node.place, message));
    }
    let count = table.integer("steps", 2..=VALUES_MAX as i64)?;
    let count = count.ok_or_else(|| table.lacks("steps", "how many values, ends included"))?;
    let spacings = [("even", Spacing::Even), ("log", Spacing::Log)];
    let spacing = table.choice("spacing", &spacings)?.unwrap_or(Spacing::Even);
    table.finish()?;
    if spacing == Spacing::Log && !(from > 0.0 && to > 0.0) {
        return Err(Complaint::new(&node.place, "spacing \"log\" needs ends above zero"));
    }
    let at = |n: i64| {
        let part = n as f64 / (count - 1) as f64;
        match spacing {
            Spacing::Even => from + (to - from) * part,
            Spacing::Log => from * libm::pow(to / from, part),
        }
    };
    Ok((0..count).map(|n| rounded(at(n), &unit)).collect())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spacing {
    Even,
    Log,
}

/// A number to six digits, with its unit.
fn rounded(number: f64, unit: &str) -> Value {
    let magnitude = if number > 0.0 { libm::log10(number).floor() as i64 } else { 0 };
    let places = (5 - magnitude).clamp(0, 9) as usize;
    let text = format!("{number:.places$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    match (unit.is_empty(), text.parse::<i64>()) {
        (true, Ok(n)) => Value::Integer(n),
        (true, Err(_)) => Value::Float(text.parse().unwrap_or(number)),
        (false, _) => Value::Text(format!("{text}{unit}")),
    }
}

/// Puts one value into a tree; text that is a number or a truth value counts as such.
///
/// # Errors
/// If the path leads nowhere.
pub fn set(tree: &mut Node, path: &str, text: &str) -> Read<()> {
    let place = tree.place.clone();
    let value = match (text, text.parse::<i64>(), text.parse::<f64>()) {
        ("true", ..) => Value::Truth(Truth::True),
        ("false", ..) => Value::Truth(Truth::False),
        (_, Ok(n), _) => Value::Integer(n),
        (_, Err(_), Ok(x)) => Value::Float(x),
        (_, Err(_), Err(_)) => Value::Text(text.to_owned()),
    };
    let steps = way(tree, path, &place)?;
    put(tree, &steps, &Node { place, value });
    Ok(())
}

/// The way through the tree along a path.
fn way(tree: &Node, path: &str, place: &Place) -> Read<Vec<Step>> {
    let words: Vec<&str> = path.split('.').collect();
    let (mut steps, mut at) = (Vec::new(), Some(tree));
    for (depth, word) in words.iter().enumerate() {
        let last = depth + 1 == words.len();
        let value = at.map(|node| &node.value);
        if let Some(items) = value.and_then(Value::as_list) {
            let item = item(items, word).map_err(|hint| {
                Complaint::new(place, format!("`{path}`: no {word:?} there: {hint}"))
            })?;
            steps.push(Step::Item(item));
            at = items.get(item);
        } else if let Some(entries) = value.and_then(Value::as_table) {
            at = entries.iter().find(|entry| entry.key == *word).map(|entry| &entry.node);
            if at.is_none() && !last {
                let known: Vec<_> = entries.iter().map(|e| e.key.as_str()).collect();
                let hint = nearest(word, &known)
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let message = format!("`{path}`: the file has no `{word}` there{hint}");
                return Err(Complaint::new(place, message));
            }
            steps.push(Step::Key((*word).to_owned()));
        } else {
            let message = format!("`{path}` leads beyond a single value at `{word}`");
            return Err(Complaint::new(place, message));
        }
    }
    let items = at.and_then(|node| node.value.as_list()).unwrap_or_default();
    if items.iter().any(|node| node.value.as_table().is_some()) {
        let message = format!("`{path}` is a list of tables: name one, and a key in it");
        return Err(Complaint::new(place, message));
    }
    Ok(steps)
}

/// The place of the item with this name or number.
fn item(items: &[Node], word: &str) -> Result<usize, String> {
    let name = |node: &Node| {
        let named = node.value.as_table()?.iter().find(|entry| entry.key == "name")?;
        named.node.value.as_text().map(str::to_owned)
    };
    let names: Vec<Option<String>> = items.iter().map(name).collect();
    if let Some(found) = names.iter().position(|n| n.as_deref() == Some(word)) {
        return Ok(found);
    }
    match word.parse::<usize>() {
        Ok(n) if n < items.len() => Ok(n),
        _ => {
            let known: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
            Err(match nearest(word, &known) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("use a name or a number below {}", items.len()),
            })
        }
    }
}

/// Puts a value into the tree.
fn put(tree: &mut Node, steps: &[Step], value: &Node) {
    let Some((step, rest)) = steps.split_first() else {
        *tree = value.clone();
        return;
    };
    match (step, &mut tree.value) {
        (Step::Item(n), Value::List(items)) => {
            if let Some(item) = items.get_mut(*n) {
                put(item, rest, value);
            }
        }
        (Step::Key(key), Value::Table(entries)) => {
            match entries.iter_mut().find(|entry| entry.key == *key) {
                Some(entry) => put(&mut entry.node, rest, value),
                None => entries.push(Entry {
                    key: key.clone(),
                    place: value.place.clone(),
                    node: value.clone(),
                }),
            }
        }
        (Step::Item(_) | Step::Key(_), _) => {}
    }
}
