//! A scenario file as a tree in which every value knows its place.
//!
//! The tree is what a sweep changes before it is read, so that a swept value is checked like a
//! written one and a complaint about it points to where it came from. Nothing here knows what a
//! scenario is.

use std::fmt::{self, Write as _};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where something stands: a file, by its number, and bytes in it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Place {
    /// Number of the file in [`Files`].
    pub file: usize,
    /// Bytes in it.
    pub span: Range<usize>,
}

/// A value with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it stands.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// A value of the file.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// In quotes.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number with a point or an exponent.
    Float(f64),
    /// `true` or `false`.
    Truth(Truth),
    /// A date or time, which no key wants.
    Date(String),
    /// In brackets, or repeated tables.
    List(Vec<Node>),
    /// Keys with values.
    Table(Vec<Entry>),
}

/// A truth value as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// `true`
    True,
    /// `false`
    False,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub place: Place,
    /// Its value.
    pub node: Node,
}

impl Value {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// The keys and values, if it is a table.
    pub fn as_table(&self) -> Option<&[Entry]> {
        if let Value::Table(entries) = self { Some(entries) } else { None }
    }

    /// The items, if it is a list.
    pub fn as_list(&self) -> Option<&[Node]> {
        if let Value::List(items) = self { Some(items) } else { None }
    }

    /// What it is, in the words of a complaint.
    pub fn described(&self) -> String {
        let short = |t: &str| t.chars().take(ECHO_MAX).collect::<String>();
        match self {
            Value::Text(text) => format!("{:?}", short(text)),
            Value::Integer(n) => format!("the number {n}"),
            Value::Float(v) => format!("the number {v:?}"),
            Value::Truth(Truth::True) => "true".to_owned(),
            Value::Truth(Truth::False) => "false".to_owned(),
            Value::Date(text) => format!("the date {}", short(text)),
            Value::List(items) if items.iter().any(|n| matches!(n.value, Value::Table(_))) => {
                "a list of tables".to_owned()
            }
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }
}

/// Characters of a refused text that are shown again.
const ECHO_MAX: usize = 60;

/// The files that a scenario consists of: the named one, then those it includes.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<(String, String)>);

impl Files {
    /// Adds a file by its name and text; answers its number.
    pub fn add(&mut self, name: String, text: String) -> usize {
        self.0.push((name, text));
        self.0.len() - 1
    }

    /// The text of a file; empty if there is none of this number.
    pub fn text(&self, file: usize) -> &str {
        self.0.get(file).map_or("", |(_, text)| text.as_str())
    }

    /// The tree of a file.
    ///
    /// # Errors
    /// If it is not TOML.
    pub fn tree(&self, file: usize) -> Result<Node, Complaint> {
        let text = &self.0[file].1;
        match DeTable::parse(text) {
            Ok(table) => {
                let span = table.span();
                let entries = entries(file, table.into_inner());
                Ok(Node { place: Place { file, span }, value: Value::Table(entries) })
            }
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                Err(Complaint::new(&Place { file, span }, error.message().to_owned()))
            }
        }
    }

    /// A complaint with its file, line and column, and the line itself.
    pub fn explain(&self, complaint: &Complaint) -> String {
        let Place { file, span } = &complaint.place;
        let Some((name, text)) = self.0.get(*file) else { return complaint.message.clone() };
        let start = floor(text, span.start);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |n| n + 1);
        let line = text[line_start..].lines().next().unwrap_or("");
        let number = before.matches('\n').count() + 1;
        let column = text[line_start..start].chars().count() + 1;
        let wide = text[start..floor(text, span.end.max(start))].lines().next().unwrap_or("");
        let marks = "^".repeat(wide.chars().count().clamp(1, 80));
        let gap = " ".repeat(number.to_string().len());
        let mut said = format!("{name}:{number}:{column}: {}", complaint.message);
        if line.chars().count() <= LINE_SHOWN {
            let indent: String =
                line.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let _ = write!(said, "\n{gap} |\n{number} | {line}\n{gap} | {indent}{marks}");
        }
        said
    }
}

/// Longer lines are not shown again.
const LINE_SHOWN: usize = 160;

/// The last place of a character at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// What is wrong with a scenario, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Where.
    pub place: Place,
    /// What, and what was expected.
    pub message: String,
}

impl Complaint {
    /// A complaint about what stands at `place`.
    pub fn new(place: &Place, message: impl Into<String>) -> Complaint {
        Complaint { place: place.clone(), message: message.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

fn entries(file: usize, table: DeTable<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = table
        .into_iter()
        .map(|(key, value)| Entry {
            place: Place { file, span: key.span() },
            key: key.into_inner().into_owned(),
            node: node(file, value),
        })
        .collect();
    // In the order of the file, so that the first complaint is about its first mistake.
    entries.sort_by_key(|entry| entry.place.span.start);
    entries
}

fn node(file: usize, value: Spanned<DeValue<'_>>) -> Node {
    let place = Place { file, span: value.span() };
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Integer(n),
            // Larger than any number that a key takes: what is shown again is about what it is.
            Err(_) if n.radix() == 10 => Value::Float(n.as_str().parse().unwrap_or(f64::INFINITY)),
            Err(_) => Value::Float(f64::INFINITY),
        },
        DeValue::Float(v) => Value::Float(v.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(true) => Value::Truth(Truth::True),
        DeValue::Boolean(false) => Value::Truth(Truth::False),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(items) => Value::List(items.into_iter().map(|n| node(file, n)).collect()),
        DeValue::Table(table) => Value::Table(entries(file, table)),
    };
    Node { place, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_shows_its_line_and_column() {
        let mut files = Files::default();
        let file = files.add("net.toml".into(), "a = 1\n\tbß = [2, 3x]\n".into());
        let said = files.explain(&files.tree(file).expect_err("not TOML"));
        assert!(said.starts_with("net.toml:2:2: ") || said.starts_with("net.toml:2:"), "{said}");
        let place = Place { file, span: 7..10 };
        let said = files.explain(&Complaint::new(&place, "no"));
        assert_eq!(said, "net.toml:2:2: no\n  |\n2 | \tbß = [2, 3x]\n  | \t^^");
    }

    #[test]
    fn entries_are_in_the_order_of_the_file() {
        let mut files = Files::default();
        let file = files.add("x".into(), "z = 1\n[[link]]\nb = 2\na = 0x10\n".into());
        let tree = files.tree(file).expect("TOML");
        let Value::Table(top) = &tree.value else { panic!("a table") };
        assert_eq!(top[0].key, "z");
        let Value::List(links) = &top[1].node.value else { panic!("a list") };
        let Value::Table(link) = &links[0].value else { panic!("a table") };
        assert_eq!((link[0].key.as_str(), &link[1].node.value), ("b", &Value::Integer(16)));
    }
}
