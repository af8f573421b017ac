//! Quantities between people and the library.
//!
//! What people write becomes a typed value here or is refused with a hint, and typed values become
//! short words. Nothing behind this module sees a number without its unit.

use std::time::Duration;

use gtp::in_step::After;
use gtp::{Rate, Span, Value};
use gtp_emu::units_text;
pub use gtp_text::count;
use gtp_text::{Unit, scaled};

/// Reads a rate; a bare number is refused with a hint.
pub fn rate(text: &str) -> Result<Rate, String> {
    units_text::parse_rate(text).map_err(|e| e.to_string())
}

/// Reads an address of this machine at which a server listens; it stays text.
pub fn listen(text: &str) -> Result<String, String> {
    gtp::listen_address(text).map(|_| text.to_owned()).map_err(|failure| failure.text)
}

/// Reads an address at which a router listens, which may be a name; it stays text.
pub fn listen_or_name(text: &str) -> Result<String, String> {
    let is_one = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    is_one
        .then(|| text.to_owned())
        .ok_or_else(|| format!("{text:?} is no address: expected ADDR:PORT, as in 0.0.0.0:4811"))
}

/// Reads an amount of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    units_text::parse_bytes(text).map(|bytes| bytes.0).map_err(|e| e.to_string())
}

/// Reads the size of a frame, 1 KiB at least.
pub fn frame(text: &str) -> Result<u64, String> {
    let bytes = units_text::parse_bytes(text).map_err(|e| e.to_string())?;
    if bytes.0 < 1_024 {
        return Err("a frame has 1KiB at least".into());
    }
    Ok(bytes.0)
}

/// Reads a length of time above zero.
pub fn span(text: &str) -> Result<Duration, String> {
    let span = units_text::parse_span(text).map_err(|e| e.to_string())?;
    if span == Span::ZERO {
        return Err("it must be more than zero".into());
    }
    Ok(Duration::from_nanos(span.as_nanos()))
}

/// Reads when receivers release frames: a length of time, or `auto`.
pub fn release_after(text: &str) -> Result<After, String> {
    match text {
        "auto" => Ok(After::Farthest),
        _ => span(text).map(|span| After::Span(Span::from_nanos(span.as_nanos() as u64))),
    }
}

/// The longest control interval: session-level control (thesis, X.3.C) has one of a minute.
const INTERVAL_MOST: Duration = Duration::from_secs(600);

/// Reads a control interval, 1 ms to 10 min.
pub fn interval(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    if (Duration::from_millis(1)..=INTERVAL_MOST).contains(&span) {
        Ok(span)
    } else {
        Err("a control interval is from 1ms to 10min".into())
    }
}

/// Reads a step of the end-node law, 0.01 to 0.5: what hosts believe of a peer.
pub fn step(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(step) if (0.01..=0.5).contains(&step) => Ok(step),
        Ok(_) | Err(_) => Err("a step is a number from 0.01 to 0.5".into()),
    }
}

/// Reads a number of engines: 1 to 64.
pub fn engines(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(engines @ 1..=64) => Ok(engines),
        Ok(_) | Err(_) => Err("a number of engines is from 1 to 64".into()),
    }
}

/// Reads a weight.
pub fn weight(text: &str) -> Result<f64, String> {
    gtp::read_weight(text).map_err(str::to_owned)
}

/// Reads a BLAKE3 hash: 64 hexadecimal digits.
pub fn hash(text: &str) -> Result<Value, String> {
    let bad = || "a BLAKE3 hash is 64 hexadecimal digits".to_owned();
    // `from_str_radix` would take signs, too.
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let mut value = Value::default();
    for (byte, digits) in value.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
    }
    Ok(value)
}

/// A hash as text.
pub fn hex(value: &Value) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A rate for people, four digits at most.
pub fn say_rate(rate: Rate) -> String {
    if rate.is_unlimited() {
        return "unlimited".into();
    }
    scaled(rate.as_f64(), Unit::BitPerSecond)
}

/// A size for people.
pub fn say_bytes(bytes: u64) -> String {
    scaled(bytes as f64, Unit::Byte)
}

/// A quota, in the kind of unit in which it was most likely written.
pub fn say_quota(bytes: u64) -> String {
    scaled(bytes as f64, Unit::as_written(bytes))
}

/// A length of time for people.
pub fn say_seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        3600.. => format!("{}:{:02} h", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_rate_is_refused_with_a_hint() {
        assert!(rate("700").unwrap_err().contains("unit"));
        assert_eq!(rate("700Mbit").unwrap(), Rate::from_mbps(700));
    }

    #[test]
    fn hashes_are_read_as_they_are_written() {
        let value: Value = std::array::from_fn(|i| (i * 7) as u8);
        assert_eq!(hash(&hex(&value)).unwrap(), value);
    }

    #[test]
    fn what_is_not_64_hexadecimal_digits_is_no_hash() {
        for wrong in ["+1".repeat(32), "x".into(), "0".repeat(63), "g".repeat(64)] {
            assert!(hash(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_for_people_have_few_digits() {
        assert_eq!(say_rate(Rate::from_mbps(630)), "630 Mbit/s");
        assert_eq!(say_bytes(1536), "1.5 KiB");
        assert_eq!(say_seconds(75.0), "1:15 min");
    }
}
