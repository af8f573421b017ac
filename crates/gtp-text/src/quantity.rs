//! Rates, sizes, times and chances as people write them: `700Mbit`, `8MB`, `30ms`, `1%`.
//!
//! Every quantity carries its unit. A bare number is refused, because nobody can tell whether 700
//! means bits or bytes, seconds or milliseconds; the answer says what was expected. Fractions are
//! read exactly, digit by digit, without floating point. What a quantity is for is not known here:
//! a text becomes a whole number of the smallest unit.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// A text that is not the quantity that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadQuantity {
    text: String,
    expected: &'static str,
    hint: &'static str,
}

impl fmt::Display for BadQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadQuantity { text, expected, hint } = self;
        write!(f, "{text:?} is not {expected}{hint}")
    }
}

impl core::error::Error for BadQuantity {}

impl BadQuantity {
    /// The error that a text is nothing of what was expected.
    pub fn outside(text: &str, expected: &'static str) -> BadQuantity {
        error(text, expected, "")
    }
}

/// Reads a rate in bit/s: a number with `bit`, `kbit`, `Mbit`, `Gbit`, `Tbit` (bits per second) or
/// `B`, `kB`, `MB`, `GB`, `KiB`, `MiB`, `GiB` (bytes per second), each also with `/s`.
///
/// # Errors
/// If it is anything else, zero, or more than 1,000 Tbit/s.
pub fn read_rate(text: &str) -> Result<u64, BadQuantity> {
    let fail = |hint| error(text, RATE, hint);
    let (number, unit) = split(text).map_err(fail)?;
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    if unit.is_empty() {
        return Err(fail(BARE));
    }
    let bits = RATE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bits)| *bits);
    let bits = bits.or_else(|| Some(8 * byte_unit(unit)?)).ok_or_else(|| fail(""))?;
    match number.times(bits) {
        Some(0) => Err(fail(" (it must be more than zero)")),
        Some(bps) if bps <= RATE_MOST => Ok(bps),
        Some(_) | None => Err(fail(" (it may not exceed 1000Tbit)")),
    }
}

/// A rate in bit/s as [`read_rate`] reads it, exactly, in the largest unit of which it is a whole
/// number.
pub fn write_rate(bps: u64) -> String {
    let whole = RATE_UNITS.iter().rev().find(|(_, bits)| bps.is_multiple_of(*bits));
    let (unit, bits) = whole.copied().unwrap_or(("bit", 1));
    format!("{}{unit}", bps / bits)
}

/// Reads a size in bytes: a number with `B`, `kB`, `MB`, `GB`, `TB`, `KiB`, `MiB`, `GiB` or `TiB`.
///
/// # Errors
/// If it is anything else or too large to hold.
pub fn read_bytes(text: &str) -> Result<u64, BadQuantity> {
    let fail = |hint| error(text, SIZE, hint);
    let (number, unit) = split(text).map_err(fail)?;
    if unit.is_empty() {
        return Err(fail(BARE));
    }
    let scale = byte_unit(unit).ok_or_else(|| fail(""))?;
    number.times(scale).ok_or_else(|| fail(LARGE))
}

/// Reads a length of time in nanoseconds: a number with `ns`, `us`, `ms`, `s`, `min` or `h`.
///
/// # Errors
/// If it is anything else or too large to hold.
pub fn read_nanos(text: &str) -> Result<u64, BadQuantity> {
    let fail = |hint| error(text, TIME, hint);
    let (number, unit) = split(text).map_err(fail)?;
    let nanos = match unit {
        "" => return Err(fail(BARE)),
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(fail("")),
    };
    number.times(nanos).ok_or_else(|| fail(LARGE))
}

/// Reads a chance in billionths: a number with `%`, from `0%` to `100%`, in steps of a
/// ten-millionth of one per cent.
///
/// # Errors
/// If it is anything else.
pub fn read_billionths(text: &str) -> Result<u32, BadQuantity> {
    let fail = |hint| error(text, CHANCE, hint);
    let (number, unit) = split(text).map_err(fail)?;
    let beyond = || fail(" (it may not exceed 100%)");
    match unit {
        "" => Err(fail(BARE)),
        "%" => {
            let read = number.times(10_000_000).filter(|&read| read <= 1_000_000_000);
            read.and_then(|read| u32::try_from(read).ok()).ok_or_else(beyond)
        }
        _ => Err(fail("")),
    }
}

/// A decimal number: `digits / 10^places`.
struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    /// This number times `scale`, rounded down; `None` if it does not fit.
    fn times(&self, scale: u64) -> Option<u64> {
        let product = self.digits.checked_mul(u128::from(scale))?;
        u64::try_from(product / 10_u128.pow(self.places)).ok()
    }
}

/// Splits a text into its number and its unit.
fn split(text: &str) -> Result<(Decimal, &str), &'static str> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let plain = !whole.is_empty() && !fraction.contains('.');
    if !plain || whole.len() + fraction.len() > MAX_DIGITS {
        return Err("");
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

fn error(text: &str, expected: &'static str, hint: &'static str) -> BadQuantity {
    let text = text.chars().take(MAX_ECHO).collect();
    BadQuantity { text, expected, hint }
}

/// What is expected of a rate.
pub const RATE: &str = "a rate such as 700Mbit, 1.5Gbit, 80MB or 80MiB (per second)";
/// What is expected of a size.
pub const SIZE: &str = "a size such as 1500B, 64KiB or 8MB";
/// What is expected of a time.
pub const TIME: &str = "a time such as 100us, 30ms or 2s";
/// What is expected of a chance.
pub const CHANCE: &str = "a share such as 1% or 0.01%";
const BARE: &str = ": a bare number is refused, give its unit";
const LARGE: &str = " (too large)";
/// Units of bits per second, each larger than the one before.
const RATE_UNITS: [(&str, u64); 5] = [
    ("bit", 1),
    ("kbit", 1_000),
    ("Mbit", 1_000_000),
    ("Gbit", 1_000_000_000),
    ("Tbit", 1_000_000_000_000),
];
/// Bits per second: thousands of times the fastest port, and exact in every law's numbers.
const RATE_MOST: u64 = 1_000_000_000_000_000;
/// More digits than any quantity here can need; 10^18 times the largest scale fits 128 bits.
const MAX_DIGITS: usize = 18;
/// Characters of a refused text that are shown again.
const MAX_ECHO: usize = 40;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_bits_or_bytes_per_second() {
        assert_eq!(read_rate("700Mbit"), Ok(700_000_000));
        assert_eq!(read_rate("1.5Gbit"), Ok(1_500_000_000));
        assert_eq!(read_rate("80MB"), Ok(640_000_000));
        assert_eq!(read_rate("80MiB/s"), Ok(80 * 1_048_576 * 8));
        assert_eq!(read_rate("0.1 kbit/s"), Ok(100));
    }

    #[test]
    fn a_bare_number_is_refused_with_a_hint() {
        let said = read_rate("700").expect_err("no unit").to_string();
        assert!(said.contains("700Mbit") && said.contains("bare number"), "{said}");
        assert!(
            read_bytes("8").is_err() && read_nanos("3").is_err() && read_billionths("1").is_err()
        );
    }

    #[test]
    fn zero_rates_and_overflow_are_refused() {
        for text in ["0Mbit", "0.0000001bit", "1001Tbit", "-1Mbit", "1..2Mbit", ""] {
            assert!(read_rate(text).is_err(), "{text}");
        }
        assert!(read_rate(&"9".repeat(1_000)).is_err());
    }

    #[test]
    fn times_sizes_and_chances_are_exact() {
        assert_eq!(read_nanos("0.5ms"), Ok(500_000));
        assert_eq!(read_nanos("2min"), Ok(120_000_000_000));
        assert_eq!(read_bytes("1.5KiB"), Ok(1_536));
        assert_eq!(read_billionths("0.01%"), Ok(100_000));
        assert_eq!(read_billionths("100%"), Ok(1_000_000_000));
        assert!(read_billionths("100.1%").is_err());
    }

    proptest! {
        #[test]
        fn a_rate_reads_back_as_it_is_written(bps in 1..=RATE_MOST, scale in 0..5_usize) {
            let bps = (bps / RATE_UNITS[scale].1).max(1) * RATE_UNITS[scale].1;
            prop_assert_eq!(read_rate(&write_rate(bps)), Ok(bps));
        }

        #[test]
        fn no_text_is_a_rate_of_nothing_or_beyond_the_most(text in ".{0,24}") {
            prop_assert!(read_rate(&text).is_ok_and(|bps| (1..=RATE_MOST).contains(&bps))
                || read_rate(&text).is_err());
        }
    }
}
