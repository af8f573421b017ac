//! Quantities of a network file: what each may be, and how it is read.
//!
//! Each is read by its own visitor, so that a wrong one is reported at its own place. What a
//! quantity is for is unknown here.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{CHANGE_LAST, Chance, DELAY_MOST, QUEUE_MOST};
use serde::{Deserialize, Deserializer, de};

use crate::units_text::{self, UnitError};

/// A queue's size in bytes or as the time that it takes at the link's rate.
#[derive(Clone, Copy)]
pub enum Queue {
    /// Its size.
    Bytes(Bytes),
    /// The time that it takes.
    Span(Span),
}

/// A quantity written as text.
pub struct Text<T>(pub T);

/// What a text can be read as.
pub trait FromText: Sized {
    /// What is expected, in words.
    const EXPECTED: &'static str;

    /// Reads it.
    ///
    /// # Errors
    /// If it is no such quantity, or out of bounds.
    fn from_text(text: &str) -> Result<Self, UnitError>;
}

impl FromText for Rate {
    const EXPECTED: &'static str = units_text::RATE;
    fn from_text(text: &str) -> Result<Rate, UnitError> {
        units_text::parse_rate(text)
    }
}

impl FromText for Span {
    const EXPECTED: &'static str = units_text::TIME;
    fn from_text(text: &str) -> Result<Span, UnitError> {
        units_text::parse_span(text)
    }
}

impl FromText for Bytes {
    const EXPECTED: &'static str = units_text::SIZE;
    fn from_text(text: &str) -> Result<Bytes, UnitError> {
        units_text::parse_bytes(text)
    }
}

impl FromText for Chance {
    const EXPECTED: &'static str = units_text::CHANCE;
    fn from_text(text: &str) -> Result<Chance, UnitError> {
        units_text::parse_chance(text)
    }
}

impl FromText for Queue {
    const EXPECTED: &'static str = "a size such as 8MB or a time such as 100ms";
    fn from_text(text: &str) -> Result<Queue, UnitError> {
        let bytes = units_text::parse_bytes(text).map(Queue::Bytes);
        let read = bytes
            .or_else(|error| units_text::parse_span(text).map(Queue::Span).map_err(|_| error))?;
        let fits = match read {
            Queue::Bytes(bytes) => bytes <= QUEUE_MOST,
            Queue::Span(span) => span <= DELAY_MOST,
        };
        let most = "a size of at most 1TiB or a time of at most 1h";
        if fits { Ok(read) } else { Err(UnitError::outside(text, most)) }
    }
}

/// What a packet is held up for on its way.
#[derive(Clone, Copy)]
pub struct Delay(pub Span);

impl FromText for Delay {
    const EXPECTED: &'static str = "a time of at most 1h, such as 30ms";
    fn from_text(text: &str) -> Result<Delay, UnitError> {
        bounded(text, units_text::parse_span, ..=DELAY_MOST, Delay::EXPECTED).map(Delay)
    }
}

/// A time after the start.
#[derive(Clone, Copy)]
pub struct Moment(pub Span);

impl FromText for Moment {
    const EXPECTED: &'static str = "a time of at most 8760h, such as 10s";
    fn from_text(text: &str) -> Result<Moment, UnitError> {
        bounded(text, units_text::parse_span, ..=CHANGE_LAST, Moment::EXPECTED).map(Moment)
    }
}

/// For how long a client may be silent.
#[derive(Clone, Copy)]
pub struct Idle(pub Span);

impl FromText for Idle {
    const EXPECTED: &'static str = "a time from 1s to 24h, such as 60s";
    fn from_text(text: &str) -> Result<Idle, UnitError> {
        bounded(text, units_text::parse_span, IDLE_LEAST..=IDLE_MOST, Idle::EXPECTED).map(Idle)
    }
}

/// The size of a queue that is changed.
#[derive(Clone, Copy)]
pub struct Room(pub Bytes);

impl FromText for Room {
    const EXPECTED: &'static str = "a size of at most 1TiB, such as 64KiB or 8MB";
    fn from_text(text: &str) -> Result<Room, UnitError> {
        bounded(text, units_text::parse_bytes, ..=QUEUE_MOST, Room::EXPECTED).map(Room)
    }
}

/// The size of all that is under way.
#[derive(Clone, Copy)]
pub struct Memory(pub Bytes);

impl FromText for Memory {
    const EXPECTED: &'static str = "a size from 64KiB to 1TiB, such as 512MiB";
    fn from_text(text: &str) -> Result<Memory, UnitError> {
        let bounds = MEMORY_LEAST..=QUEUE_MOST;
        bounded(text, units_text::parse_bytes, bounds, Memory::EXPECTED).map(Memory)
    }
}

/// A quantity within bounds, which `expected` says in words.
fn bounded<T: PartialOrd>(
    text: &str,
    parse: fn(&str) -> Result<T, UnitError>,
    bounds: impl RangeBounds<T>,
    expected: &'static str,
) -> Result<T, UnitError> {
    let value = parse(text)?;
    if bounds.contains(&value) { Ok(value) } else { Err(UnitError::outside(text, expected)) }
}

impl<'de, T: FromText> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<T>, D::Error> {
        deserializer.deserialize_any(TextVisitor(PhantomData))
    }
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: FromText> TextVisitor<T> {
    fn bare<E: de::Error>(number: impl fmt::Display) -> Result<Text<T>, E> {
        let expected = T::EXPECTED;
        Err(E::custom(format!(
            "a bare number is refused, give its unit in quotes: {number} is not {expected}"
        )))
    }
}

impl<T: FromText> de::Visitor<'_> for TextVisitor<T> {
    type Value = Text<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<T>, E> {
        T::from_text(text).map(Text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text<T>, E> {
        Self::bare(number)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Text<T>, E> {
        Self::bare(number)
    }
}

/// A shorter time would take a client's socket between two of its datagrams.
const IDLE_LEAST: Span = Span::from_secs(1);
/// A longer one keeps sockets of clients that have long gone.
const IDLE_MOST: Span = Span::from_secs(24 * 3_600);
/// What holds the largest packet.
const MEMORY_LEAST: Bytes = Bytes(64 << 10);
