//! Rates, sizes, times and shares as people write them: `700Mbit`, `8MB`, `30ms`, `1%`.
//!
//! The words and rules are those of the network file. Every quantity carries its unit, fractions
//! are read exactly, digit by digit, without floating point. A bare number is refused, because
//! nobody can tell whether 700 means bits or bytes, seconds or milliseconds.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::Chance;

/// Something that is written as a number with a unit.
pub trait Quantity: Sized + Copy {
    /// What is expected, with examples.
    const EXPECTED: &'static str;

    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, beyond not being what is expected; may be empty.
    fn read(text: &str) -> Result<Self, &'static str>;
}

impl Quantity for Rate {
    const EXPECTED: &'static str = "a rate such as 700Mbit, 1.5Gbit, 80MB or 80MiB (per second)";

    fn read(text: &str) -> Result<Rate, &'static str> {
        let (number, unit) = split(text)?;
        let unit = unit.strip_suffix("/s").unwrap_or(unit);
        let bits = match unit {
            "" => return Err(BARE),
            "bit" => 1,
            "kbit" => 1_000,
            "Mbit" => 1_000_000,
            "Gbit" => 1_000_000_000,
            "Tbit" => 1_000_000_000_000,
            bytes => 8 * byte_unit(bytes).ok_or("")?,
        };
        match number.times(bits) {
            Some(0) => Err("it must be more than zero"),
            Some(bps) if bps <= RATE_MOST.as_bps() => Ok(Rate::from_bps(bps)),
            Some(_) | None => Err("it may not exceed 1000Tbit"),
        }
    }
}

impl Quantity for Bytes {
    const EXPECTED: &'static str = "a size such as 1500B, 64KiB, 8MB or 1GiB";

    fn read(text: &str) -> Result<Bytes, &'static str> {
        let (number, unit) = split(text)?;
        if unit.is_empty() {
            return Err(BARE);
        }
        number.times(byte_unit(unit).ok_or("")?).map(Bytes).ok_or(LARGE)
    }
}

impl Quantity for Span {
    const EXPECTED: &'static str = "a time such as 100us, 30ms, 2s or 1min";

    fn read(text: &str) -> Result<Span, &'static str> {
        let (number, unit) = split(text)?;
        let nanos = match unit {
            "" => return Err(BARE),
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(""),
        };
        number.times(nanos).map(Span::from_nanos).ok_or(LARGE)
    }
}

impl Quantity for Chance {
    const EXPECTED: &'static str = "a share such as 1% or 0.01%";

    fn read(text: &str) -> Result<Chance, &'static str> {
        let (number, unit) = split(text)?;
        match unit {
            "" => Err(BARE),
            "%" => match number.times(10_000_000) {
                Some(n) if n <= 1_000_000_000 => Ok(Chance::from_billionths(n as u32)),
                Some(_) | None => Err("it may not exceed 100%"),
            },
            _ => Err(""),
        }
    }
}

/// A queue's size in bytes, or as the time that it takes at the link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSize {
    /// Bytes.
    Bytes(Bytes),
    /// Time at the link's rate.
    Span(Span),
}

impl Quantity for QueueSize {
    const EXPECTED: &'static str = "a size such as 8MB or a time such as 100ms";

    fn read(text: &str) -> Result<QueueSize, &'static str> {
        Bytes::read(text)
            .map(QueueSize::Bytes)
            .or_else(|why| Span::read(text).map(QueueSize::Span).map_err(|_| why))
    }
}

/// How much a clock runs fast (or slow, below zero), in parts per billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Skew(pub i32);

impl Quantity for Skew {
    const EXPECTED: &'static str = "a clock's error such as 50ppm or -20ppm";

    fn read(text: &str) -> Result<Skew, &'static str> {
        let (sign, size) = match text.trim().strip_prefix('-') {
            Some(size) => (-1, size),
            None => (1, text.trim()),
        };
        let (number, unit) = split(size)?;
        match (unit, number.times(1_000)) {
            ("", _) => Err(BARE),
            ("ppm", Some(billionths)) if billionths <= 990_000_000 => {
                Ok(Skew(sign * billionths as i32))
            }
            ("ppm", _) => Err("it may not exceed 990000ppm"),
            _ => Err(""),
        }
    }
}

/// A decimal number: `digits / 10^places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    /// This number times `scale`, rounded down; `None` if it does not fit.
    fn times(&self, scale: u64) -> Option<u64> {
        let product = self.digits.checked_mul(u128::from(scale))?;
        u64::try_from(product / 10_u128.pow(self.places)).ok()
    }

    /// As a float, for steps of a range.
    pub fn as_f64(&self) -> f64 {
        self.digits as f64 / 10f64.powi(self.places as i32)
    }

    /// Digits behind the point.
    pub fn places(&self) -> u32 {
        self.places
    }
}

/// Splits a text into its number and its unit.
///
/// # Errors
/// What is wrong with the number; may be empty.
pub fn split(text: &str) -> Result<(Decimal, &str), &'static str> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') {
        return Err("");
    }
    if whole.len() + fraction.len() > DIGITS_MAX {
        return Err("that has too many digits");
    }
    let digits = format!("{whole}{fraction}").parse().map_err(|_| "")?;
    Ok((Decimal { digits, places: fraction.len() as u32 }, unit.trim_start()))
}

fn byte_unit(unit: &str) -> Option<u64> {
    Some(match unit {
        "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" | "kiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    })
}

/// The fastest that the engines compute with, thousands of times the fastest port.
const RATE_MOST: Rate = gtp_sim::rate::RATE_MOST;
/// More digits than any quantity here can need; 10^18 times the largest scale fits 128 bits.
const DIGITS_MAX: usize = 18;
const BARE: &str = "a bare number is refused, give its unit";
const LARGE: &str = "that is too large";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_exact() {
        assert_eq!(Rate::read("1.5Gbit"), Ok(Rate::from_mbps(1_500)));
        assert_eq!(Rate::read("80MiB/s"), Ok(Rate::from_bps(80 * 1_048_576 * 8)));
        assert_eq!(Span::read("0.5 ms"), Ok(Span::from_micros(500)));
        assert_eq!(Bytes::read("1.5KiB"), Ok(Bytes(1_536)));
        assert_eq!(Chance::read("0.01%"), Ok(Chance::from_billionths(100_000)));
        assert_eq!(Skew::read("-20ppm"), Ok(Skew(-20_000)));
        assert_eq!(QueueSize::read("100ms"), Ok(QueueSize::Span(Span::from_millis(100))));
    }

    #[test]
    fn bare_zero_and_overlarge_are_refused() {
        assert_eq!(Rate::read("700"), Err(BARE));
        for bad in ["0Mbit", "-1Mbit", "1..2Mbit", "", "Mbit", "1001Tbit", "1 e3bit"] {
            assert!(Rate::read(bad).is_err(), "{bad}");
        }
        assert!(Chance::read("100.1%").is_err() && Span::read("1 day").is_err());
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_reader(text in ".{0,40}") {
            let _ = (Rate::read(&text), Span::read(&text), Bytes::read(&text));
            let _ = (Chance::read(&text), Skew::read(&text), QueueSize::read(&text));
        }

        #[test]
        fn whole_numbers_of_every_unit_come_back(n in 1u64..1_000_000) {
            prop_assert_eq!(Rate::read(&format!("{n}kbit")), Ok(Rate::from_bps(n * 1_000)));
            prop_assert_eq!(Span::read(&format!("{n}us")), Ok(Span::from_micros(n)));
            prop_assert_eq!(Bytes::read(&format!("{n}KiB")), Ok(Bytes(n << 10)));
        }
    }
}
