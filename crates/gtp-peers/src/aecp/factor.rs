//! The pre-allocation factor in 16 bits, and AECP's header of 3 bytes, paper 5.1.
//!
//! `[FIX]` The paper gives the field 16 bits and says nothing of its format; as a plain number of
//! packets per second it would end at 65,534, half a gigabit of its packets. Here it is a small
//! floating number: 5 bits of exponent `e`, 11 bits of mantissa `m`, worth `(1 + m/2048) * 2^e`
//! packets per second, from 1 to 4 thousand million, never wrong by more than a 4096th. The paper's
//! -1 for "no router has spoken", all ones, is above every number, so that a router may compare
//! and replace the field without decoding it.

use core::fmt;

/// Bytes of the header.
pub const HEADER_LEN: usize = 3;

const MANTISSA_BITS: u32 = 11;
const MANTISSA_ONE: f64 = (1 << MANTISSA_BITS) as f64;

/// A factor as it travels. Ordered by what it lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u16);

impl Factor {
    /// What a sender writes: no router has spoken.
    pub const UNSET: Factor = Factor(u16::MAX);
    /// One packet per second.
    pub const LEAST: Factor = Factor(0);
    /// The largest number: 4,293,918,720 packets per second.
    pub const LARGEST: Factor = Factor(u16::MAX - 1);

    /// The factor nearest to a number of packets per second; what is out of range becomes the
    /// nearest end of it, what is not a number the least.
    #[must_use]
    pub fn from_packets_per_second(rate: f64) -> Factor {
        if rate.is_nan() || rate <= 1.0 {
            return Factor::LEAST;
        }
        let exponent = libm::floor(libm::log2(rate)).min(31.0);
        let mantissa = rate / libm::exp2(exponent) - 1.0;
        // Up to 2048, which rounds into the next exponent; beyond the last one, saturates.
        let code = (exponent * MANTISSA_ONE) + libm::round(mantissa * MANTISSA_ONE);
        Factor((code as u16).min(Factor::LARGEST.0))
    }

    /// Packets per second; `None` if no router has spoken.
    #[must_use]
    pub fn packets_per_second(self) -> Option<f64> {
        if self == Factor::UNSET {
            return None;
        }
        let exponent = f64::from(self.0 >> MANTISSA_BITS);
        let mantissa = f64::from(self.0 & ((1 << MANTISSA_BITS) - 1));
        Some((1.0 + mantissa / MANTISSA_ONE) * libm::exp2(exponent))
    }

    /// The 16 bits.
    #[must_use]
    pub fn code(self) -> u16 {
        self.0
    }

    /// The factor of 16 bits: every pattern is one.
    #[must_use]
    pub fn from_code(code: u16) -> Factor {
        Factor(code)
    }
}

/// AECP's header, between the network's and the transport's (figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of the protocol that follows, as in IPv6.
    pub next: u8,
    /// The factor.
    pub factor: Factor,
}

/// Fewer bytes than a header has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderTooShort {
    /// Bytes that there were.
    pub len: usize,
}

impl fmt::Display for HeaderTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes are too few for an AECP header, give it {HEADER_LEN}", self.len)
    }
}

impl core::error::Error for HeaderTooShort {}

impl Header {
    /// The header's bytes; the factor's higher byte first.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let [high, low] = self.factor.code().to_be_bytes();
        [self.next, high, low]
    }

    /// The header at the front of `bytes`; what follows it is not looked at.
    ///
    /// # Errors
    /// [`HeaderTooShort`] if there are fewer than [`HEADER_LEN`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderTooShort> {
        let Some(&[next, high, low]) = bytes.first_chunk() else {
            return Err(HeaderTooShort { len: bytes.len() });
        };
        Ok(Header { next, factor: Factor::from_code(u16::from_be_bytes([high, low])) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_code_survives_the_way_to_a_number_and_back() {
        for code in 0..u16::MAX {
            let rate = Factor::from_code(code).packets_per_second();
            let rate = rate.expect("only all ones are no number");
            assert_eq!(Factor::from_packets_per_second(rate).code(), code);
        }
        assert_eq!(Factor::from_code(u16::MAX).packets_per_second(), None);
    }

    #[test]
    fn every_code_survives_the_header() {
        for code in 0..=u16::MAX {
            let header = Header { next: 6, factor: Factor::from_code(code) };
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn codes_are_in_the_order_of_their_numbers_and_unset_is_above_all() {
        for code in 1..u16::MAX {
            let [below, at] = [code - 1, code].map(|c| Factor::from_code(c).packets_per_second());
            assert!(below < at);
        }
        assert!(Factor::UNSET > Factor::LARGEST);
    }

    #[test]
    fn what_no_field_can_hold_becomes_the_nearest_end() {
        for low in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 1.0, 1e-300] {
            assert_eq!(Factor::from_packets_per_second(low), Factor::LEAST);
        }
        for high in [4_293_918_720.0, 4.4e9, 1e300, f64::INFINITY] {
            assert_eq!(Factor::from_packets_per_second(high), Factor::LARGEST);
        }
    }

    #[test]
    fn a_header_of_two_bytes_is_an_error_and_a_longer_packet_is_not() {
        for len in 0..HEADER_LEN {
            assert_eq!(Header::decode(&[0; 8][..len]), Err(HeaderTooShort { len }));
        }
        let header = Header::decode(&[6, 0, 0, 99]);
        assert_eq!(header, Ok(Header { next: 6, factor: Factor::LEAST }));
    }

    proptest! {
        #[test]
        fn a_number_travels_with_an_error_of_less_than_a_4096th(rate in 1.0..4.29e9) {
            let back = Factor::from_packets_per_second(rate).packets_per_second().unwrap();
            prop_assert!((back / rate - 1.0).abs() <= 1.0 / 4096.0, "{rate} became {back}");
        }
    }
}
