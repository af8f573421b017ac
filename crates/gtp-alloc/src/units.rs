//! Units as types: points in time, spans, byte counts and rates.
//!
//! All four are integers, so that a run is the same on every machine: nanoseconds, bytes, and
//! bits per second. Laws that need fractions convert to `f64` inside and round on the way out.
//! `Bytes / Rate = Span` and its relatives live here, so that there is one converter only.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A point in time: nanoseconds since an arbitrary start that the host chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of time in nanoseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A rate in bits per second. [`Rate::UNLIMITED`] stands for "no limit known".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Time {
    /// The host's time origin.
    pub const ZERO: Time = Time(0);
    /// Later than every other time.
    pub const MAX: Time = Time(u64::MAX);

    /// A time `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Microseconds since the origin, modulo 2^32: the form in which times travel in datagrams.
    pub const fn as_wire_micros(self) -> u32 {
        (self.0 / 1_000) as u32
    }

    /// The span from `earlier` to `self`, zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The time `span` before this one, not before the origin.
    pub const fn saturating_sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than every other span.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of `n` nanoseconds.
    pub const fn from_nanos(n: u64) -> Span {
        Span(n)
    }

    /// A span of `n` microseconds.
    pub const fn from_micros(n: u64) -> Span {
        Span(n.saturating_mul(1_000))
    }

    /// A span of `n` milliseconds.
    pub const fn from_millis(n: u64) -> Span {
        Span(n.saturating_mul(1_000_000))
    }

    /// A span of `n` seconds.
    pub const fn from_secs(n: u64) -> Span {
        Span(n.saturating_mul(NANOS_PER_SEC))
    }

    /// A span of `seconds`, rounded to the nearest nanosecond; negative and NaN become zero.
    pub fn from_secs_f64(seconds: f64) -> Span {
        Span(rounded(seconds * NANOS_PER_SEC as f64))
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }

    /// `self - other`, or zero.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Rate {
    /// Nothing may be sent.
    pub const ZERO: Rate = Rate(0);
    /// No limit is known.
    pub const UNLIMITED: Rate = Rate(u64::MAX);

    /// A rate of `n` bits per second.
    pub const fn from_bps(n: u64) -> Rate {
        Rate(n)
    }

    /// A rate of `n` million bits per second.
    pub const fn from_mbps(n: u64) -> Rate {
        Rate(n.saturating_mul(1_000_000))
    }

    /// `bps` bits per second, rounded down; infinity becomes [`Rate::UNLIMITED`], negative and
    /// NaN become zero.
    #[inline]
    pub fn from_f64(bps: f64) -> Rate {
        // A signed number fits in one instruction of most machines; the other takes several.
        const SIGNED: f64 = (1_u64 << 63) as f64;
        Rate(if bps < SIGNED { (bps as i64).max(0) as u64 } else { bps as u64 })
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Bits per second; infinity for [`Rate::UNLIMITED`].
    #[inline]
    pub fn as_f64(self) -> f64 {
        if self.is_unlimited() { f64::INFINITY } else { self.0 as f64 }
    }

    /// Whether this is [`Rate::UNLIMITED`].
    pub const fn is_unlimited(self) -> bool {
        self.0 == u64::MAX
    }

    /// Whole bytes carried in `span`, rounded down, saturating.
    pub const fn bytes_in(self, span: Span) -> Bytes {
        // The same numbers in 64 bits where they fit: every packet comes by here.
        if let Some(product) = self.0.checked_mul(span.0) {
            return Bytes(product / NANOS_PER_SEC / 8);
        }
        let bits = self.0 as u128 * span.0 as u128 / NANOS_PER_SEC as u128;
        let bytes = bits / 8;
        Bytes(if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 })
    }

    /// This rate times `factor`, saturating at [`Rate::UNLIMITED`], which stays unlimited.
    pub fn scale(self, factor: f64) -> Rate {
        if self.is_unlimited() { self } else { Rate::from_f64(self.0 as f64 * factor) }
    }

    /// `self - other`, or zero; an unlimited rate stays unlimited.
    pub const fn saturating_sub(self, other: Rate) -> Rate {
        if self.is_unlimited() { self } else { Rate(self.0.saturating_sub(other.0)) }
    }

    /// `self + other`, saturating at [`Rate::UNLIMITED`].
    pub const fn saturating_add(self, other: Rate) -> Rate {
        Rate(self.0.saturating_add(other.0))
    }
}

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// The mean rate of this many bytes in `span`; unlimited for an empty span, unless there are
    /// no bytes either.
    pub const fn per(self, span: Span) -> Rate {
        if self.0 == 0 {
            return Rate::ZERO;
        }
        if span.0 == 0 {
            return Rate::UNLIMITED;
        }
        let bps = self.0 as u128 * 8 * NANOS_PER_SEC as u128 / span.0 as u128;
        Rate(if bps > u64::MAX as u128 { u64::MAX } else { bps as u64 })
    }
}

impl Div<Rate> for Bytes {
    type Output = Span;

    /// The time that these bytes take at `rate`, rounded up; [`Span::MAX`] at rate zero and zero
    /// at an unlimited rate.
    fn div(self, rate: Rate) -> Span {
        if rate.is_unlimited() || self.0 == 0 {
            return Span::ZERO;
        }
        if rate.0 == 0 {
            return Span::MAX;
        }
        if let Some(product) = self.0.checked_mul(8 * NANOS_PER_SEC) {
            return Span(product.div_ceil(rate.0));
        }
        let nanos = (self.0 as u128 * 8 * NANOS_PER_SEC as u128).div_ceil(rate.0 as u128);
        Span(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    fn div(self, n: u64) -> Span {
        Span(self.0 / n)
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t={:.6}s", self.0 as f64 / NANOS_PER_SEC as f64)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.as_secs_f64())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Rate {
    /// People's form, with three significant decimals: `630.000 Mbit/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.0 as f64;
        match self.0 {
            u64::MAX => f.write_str("unlimited"),
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => write!(f, "{:.3} kbit/s", bps / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.3} Mbit/s", bps / 1e6),
            _ => write!(f, "{:.3} Gbit/s", bps / 1e9),
        }
    }
}

/// The nearest whole number, halves up; 0 for what is negative or no number. The same as the
/// standard's rounding, in a few instructions and without its library.
#[inline]
fn rounded(x: f64) -> u64 {
    let whole = x as u64; // Rounded down, and kept in bounds.
    // Exact: there is a rest below 2^53 only, where both and their difference are.
    whole.saturating_add(u64::from(x - whole as f64 >= 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_at_one_gigabit_takes_twelve_microseconds() {
        assert_eq!(Bytes(1_500) / Rate::from_mbps(1_000), Span::from_micros(12));
    }

    #[test]
    fn rate_zero_never_finishes_and_unlimited_takes_no_time() {
        assert_eq!(Bytes(1) / Rate::ZERO, Span::MAX);
        assert_eq!(Bytes(1) / Rate::UNLIMITED, Span::ZERO);
    }

    #[test]
    fn short_and_long_arithmetic_agree_where_one_takes_over_from_the_other() {
        let wide = |bytes: u64, rate: u64| {
            (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(rate)) as u64
        };
        let last = u64::MAX / 8_000_000_000;
        for bytes in [1, 1_500, last - 1, last, last + 1] {
            for rate in [7, 999_999_937, 1 << 40] {
                let span = Bytes(bytes) / Rate::from_bps(rate);
                assert_eq!(span, Span::from_nanos(wide(bytes, rate)), "{bytes} at {rate}");
            }
        }
        for nanos in [1, u64::MAX / 1_000_003, u64::MAX / 1_000_003 + 1] {
            let wide = u128::from(nanos) * 1_000_003 / 8_000_000_000;
            let carried = Rate::from_bps(1_000_003).bytes_in(Span::from_nanos(nanos));
            assert_eq!(u128::from(carried.0), wide);
        }
    }

    #[test]
    fn rounding_in_short_is_the_library_s_rounding_everywhere() {
        let edges = [
            0.5 - f64::EPSILON / 4.0,
            0.5,
            1.5,
            2.5,
            (1u64 << 52) as f64 - 0.5,
            (1u64 << 53) as f64 + 2.0,
            u64::MAX as f64,
            2.0 * u64::MAX as f64,
        ];
        let wild = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.7, -0.0];
        let drawn = (0..100_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let drawn = drawn.map(|n| n as f64 / (1u64 << (n % 60)) as f64);
        for x in edges.into_iter().chain(wild).chain(drawn) {
            assert_eq!(rounded(x), libm::round(x) as u64, "{x}");
        }
    }

    #[test]
    fn a_rate_from_a_number_is_what_the_language_makes_of_it_also_at_the_edges() {
        let half = (1_u64 << 63) as f64;
        let edges = [half, half.next_down(), half.next_up(), 2.0 * half, (2.0 * half).next_down()];
        let wild = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -0.7, -half * 4.0, 0.7];
        for x in edges.into_iter().chain(wild) {
            assert_eq!(Rate::from_f64(x).as_bps(), x as u64, "{x}");
        }
    }

    #[test]
    fn bytes_over_span_and_back_agree() {
        let rate = Bytes(125_000).per(Span::from_millis(1));
        assert_eq!(rate, Rate::from_mbps(1_000));
        assert_eq!(rate.bytes_in(Span::from_millis(1)), Bytes(125_000));
    }
}
