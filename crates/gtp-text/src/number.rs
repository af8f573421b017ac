//! Numbers for people, in few characters and never cut.
//!
//! A quantity is scaled to the largest unit in which it is at least one, and rounded before the
//! unit is chosen, so that 999.96 kilobits are one megabit and no number has more than four
//! characters. Counted things come in their right number: one file, two files.

use alloc::format;
use alloc::string::String;

/// A unit with its larger relatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bits in a second, by thousands.
    BitPerSecond,
    /// Bytes, by 1,024.
    Byte,
    /// Bytes, by thousands.
    DecimalByte,
}

impl Unit {
    /// The unit in which somebody has most likely written this number of bytes: by thousands if it
    /// is a multiple of these, or else by 1,024 if it is one of those.
    pub const fn as_written(bytes: u64) -> Unit {
        match (bytes.is_multiple_of(1000), bytes.is_multiple_of(1024)) {
            (false, true) => Unit::Byte,
            (true, _) | (false, false) => Unit::DecimalByte,
        }
    }

    const fn names(self) -> &'static [&'static str] {
        match self {
            Unit::BitPerSecond => &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s"],
            Unit::DecimalByte => &["B", "kB", "MB", "GB", "TB", "PB", "EB"],
            Unit::Byte => &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
        }
    }

    const fn step(self) -> f64 {
        match self {
            Unit::BitPerSecond | Unit::DecimalByte => 1000.0,
            Unit::Byte => 1024.0,
        }
    }
}

/// A quantity with its unit: `1.5 KiB`, `630 Mbit/s`. Negative ones and those that are no number
/// count as zero.
pub fn scaled(quantity: f64, unit: Unit) -> String {
    let (mut number, mut names) = (quantity.max(0.0), unit.names());
    loop {
        let digits = digits(number, names.len() == unit.names().len());
        let text = format!("{number:.digits$}");
        // Rounding may lift a number into the next unit.
        let rounded: f64 = text.parse().unwrap_or(number);
        match names {
            [_, larger @ ..] if rounded >= unit.step() && !larger.is_empty() => {
                (number, names) = (number / unit.step(), larger);
            }
            [name, ..] => return format!("{text} {name}"),
            [] => return text,
        }
    }
}

/// Digits behind the point: none for whole units and for numbers of three digits.
fn digits(number: f64, is_smallest: bool) -> usize {
    if is_smallest || number >= 99.95 { 0 } else { 1 }
}

/// So many of something: `1 file`, `2 files`, `0 entries`.
pub fn count(number: u64, one: &str) -> String {
    if number == 1 {
        return format!("1 {one}");
    }
    let ends = |endings: &[&str]| endings.iter().any(|ending| one.ends_with(ending));
    let vowel_before_y = ends(&["ay", "ey", "iy", "oy", "uy"]);
    match one.strip_suffix('y') {
        Some(stem) if !vowel_before_y => format!("{number} {stem}ies"),
        _ if ends(&["s", "x", "ch", "sh"]) => format!("{number} {one}es"),
        _ => format!("{number} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_is_one_and_all_else_are_several() {
        for (number, one, told) in [
            (1, "process", "1 process"),
            (0, "process", "0 processes"),
            (1, "entry", "1 entry"),
            (2, "entry", "2 entries"),
            (3, "key", "3 keys"),
            (2, "file", "2 files"),
            (2, "box", "2 boxes"),
            (5, "branch", "5 branches"),
        ] {
            assert_eq!(count(number, one), told);
        }
    }

    #[test]
    fn a_number_that_rounds_up_to_the_next_unit_is_told_in_it() {
        for (quantity, unit, told) in [
            (999.6, Unit::BitPerSecond, "1.0 kbit/s"),
            (999_960.0, Unit::BitPerSecond, "1.0 Mbit/s"),
            (99_960.0, Unit::BitPerSecond, "100 kbit/s"),
            (630e6, Unit::BitPerSecond, "630 Mbit/s"),
            (33.4e6, Unit::BitPerSecond, "33.4 Mbit/s"),
            (1536.0, Unit::Byte, "1.5 KiB"),
            (1023.0, Unit::Byte, "1023 B"),
            (1_048_575.0, Unit::Byte, "1.0 MiB"),
            (0.0, Unit::Byte, "0 B"),
            (f64::NAN, Unit::Byte, "0 B"),
            (-1.0, Unit::Byte, "0 B"),
            (999.0, Unit::DecimalByte, "999 B"),
            (1e6, Unit::DecimalByte, "1.0 MB"),
            (500e9, Unit::DecimalByte, "500 GB"),
        ] {
            assert_eq!(scaled(quantity, unit), told, "{quantity}");
        }
    }

    #[test]
    fn a_size_is_told_by_thousands_or_by_1024_as_it_was_most_likely_written() {
        for (bytes, told) in [
            (1_000_000, "1.0 MB"),
            (500_000_000_000, "500 GB"),
            (2 << 30, "2.0 GiB"),
            (512 << 10, "512 KiB"),
            (1_024_000, "1.0 MB"),
            (1_234, "1.2 kB"),
            (0, "0 B"),
        ] {
            assert_eq!(scaled(bytes as f64, Unit::as_written(bytes)), told, "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn no_number_has_more_than_four_characters(quantity in 0.0..1e18f64) {
            for unit in [Unit::BitPerSecond, Unit::Byte, Unit::DecimalByte] {
                let told = scaled(quantity, unit);
                let number = told.split(' ').next().unwrap_or_default();
                prop_assert!(number.len() <= 4, "{}", told);
            }
        }
    }
}
