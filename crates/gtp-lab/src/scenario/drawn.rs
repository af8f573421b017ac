//! Quantities that may be drawn: one value, evenly from a range, or one of a list.
//!
//! Draws follow from the scenario's seed and come in the order of the file. A list's values and a
//! range's ends are read and checked like any single value.

use std::ops::RangeInclusive;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::Rng;

use super::read::{Table, bounded, quantity, wrong};
use super::tree::{Complaint, Node, Value};
use super::units::Quantity;

/// One value or what to draw it from.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawn<T> {
    /// This value.
    One(T),
    /// Evenly from the first to the second, both included.
    Between(T, T),
    /// One of these, all as likely.
    Of(Vec<T>),
}

/// A quantity that has an order and can be counted.
pub trait Counted: Quantity + PartialOrd {
    /// As a count of its smallest unit.
    fn count(self) -> u64;
    /// From such a count.
    fn counted(n: u64) -> Self;
}

impl Counted for Rate {
    fn count(self) -> u64 {
        self.as_bps()
    }
    fn counted(n: u64) -> Rate {
        Rate::from_bps(n)
    }
}

impl Counted for Span {
    fn count(self) -> u64 {
        self.as_nanos()
    }
    fn counted(n: u64) -> Span {
        Span::from_nanos(n)
    }
}

impl Counted for Bytes {
    fn count(self) -> u64 {
        self.0
    }
    fn counted(n: u64) -> Bytes {
        Bytes(n)
    }
}

impl<T: Counted> Drawn<T> {
    /// The value of a key: a quantity, `{ from = …, to = … }`, or a list.
    ///
    /// # Errors
    /// If it is something else, or the range is upside down.
    pub fn read(table: &mut Table<'_>, key: &'static str) -> Result<Option<Drawn<T>>, Complaint> {
        Drawn::read_each(table, key, quantity)
    }

    /// The same, with every value and end within bounds, which `expected` says in words.
    ///
    /// # Errors
    /// If it is something else, or outside, or the range is upside down.
    pub fn within(
        table: &mut Table<'_>,
        key: &'static str,
        bounds: &RangeInclusive<T>,
        expected: &str,
    ) -> Result<Option<Drawn<T>>, Complaint> {
        Drawn::read_each(table, key, |node, key| bounded(node, key, bounds, expected))
    }

    fn read_each(
        table: &mut Table<'_>,
        key: &'static str,
        each: impl Fn(&Node, &str) -> Result<T, Complaint>,
    ) -> Result<Option<Drawn<T>>, Complaint> {
        let Some(node) = table.node(key) else { return Ok(None) };
        match &node.value {
            Value::Table(_) => {
                let mut range = Table::of(node, format!("`{key}`"))?;
                let from = range.node("from").map(|node| each(node, "from")).transpose()?;
                let to = range.node("to").map(|node| each(node, "to")).transpose()?;
                let from = from.ok_or_else(|| range.lacks("from", T::EXPECTED))?;
                let to = to.ok_or_else(|| range.lacks("to", T::EXPECTED))?;
                range.finish()?;
                if from.count() > to.count() {
                    let message = format!("`{key}` goes from more to less: exchange its ends");
                    return Err(Complaint::new(&node.place, message));
                }
                Ok(Some(Drawn::Between(from, to)))
            }
            Value::List(items) if items.is_empty() => {
                Err(wrong(node, key, &node.value, "a list with something in it"))
            }
            Value::List(items) => {
                let values = items.iter().map(|item| each(item, key));
                values.collect::<Result<_, _>>().map(Drawn::Of).map(Some)
            }
            Value::Text(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Truth(_)
            | Value::Date(_) => each(node, key).map(Drawn::One).map(Some),
        }
    }
}

/// Draws that follow from a seed.
#[derive(Clone, Debug)]
pub struct Lots(Rng);

impl Lots {
    /// The draws of a seed.
    pub fn new(seed: u64) -> Lots {
        Lots(Rng::new(seed))
    }

    /// Draws a value.
    pub fn draw<T: Counted>(&mut self, from: &Drawn<T>) -> T {
        match from {
            Drawn::One(value) => *value,
            Drawn::Between(low, high) => {
                let width = high.count() - low.count();
                T::counted(low.count() + self.0.below(width.saturating_add(1)))
            }
            Drawn::Of(values) => values[self.below(values.len())],
        }
    }

    /// A place in a list of `n` things.
    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n as u64) as usize
    }
}
