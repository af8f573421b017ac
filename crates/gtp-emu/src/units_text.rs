//! Rates, sizes, times and chances as people write them, as values of this crate's units.
//!
//! How a text is read, [`gtp_text::quantity`] knows; here a number of bits, bytes, nanoseconds or
//! billionths gets its type. What a quantity is for is not known here.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::Chance;
use gtp_text::quantity;
pub use gtp_text::quantity::{BadQuantity as UnitError, CHANCE, RATE, SIZE, TIME};

/// Reads a rate ([`quantity::read_rate`]).
///
/// # Errors
/// If it is anything else, zero, or more than 1,000 Tbit/s.
pub fn parse_rate(text: &str) -> Result<Rate, UnitError> {
    quantity::read_rate(text).map(Rate::from_bps)
}

/// Reads a size ([`quantity::read_bytes`]).
///
/// # Errors
/// If it is anything else or too large to hold.
pub fn parse_bytes(text: &str) -> Result<Bytes, UnitError> {
    quantity::read_bytes(text).map(Bytes)
}

/// Reads a length of time ([`quantity::read_nanos`]).
///
/// # Errors
/// If it is anything else or too large to hold.
pub fn parse_span(text: &str) -> Result<Span, UnitError> {
    quantity::read_nanos(text).map(Span::from_nanos)
}

/// Reads a chance ([`quantity::read_billionths`]).
///
/// # Errors
/// If it is anything else.
pub fn parse_chance(text: &str) -> Result<Chance, UnitError> {
    quantity::read_billionths(text).map(Chance::from_billionths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_the_units_of_their_types() {
        assert_eq!(parse_rate("700Mbit"), Ok(Rate::from_mbps(700)));
        assert_eq!(parse_span("0.5ms"), Ok(Span::from_micros(500)));
        assert_eq!(parse_span("2min"), Ok(Span::from_secs(120)));
        assert_eq!(parse_bytes("1.5KiB"), Ok(Bytes(1_536)));
        assert_eq!(parse_chance("0.01%"), Ok(Chance::from_billionths(100_000)));
        assert_eq!(parse_chance("100%"), Ok(Chance::ALWAYS));
    }
}
