//! Ranges of addresses: whose sessions cross a router, and where a server fetches.
//!
//! Ports do not count here. An address of IPv4 that comes as one of IPv6 is the former, and a range
//! is written as the former alone. Nothing is looked up.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    network: IpAddr,
    bits: u8,
}

/// The text is no range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a range of addresses, as in 10.1.0.0/16, 192.0.2.7 or 2001:db8::/32")]
pub struct BadPrefix;

impl Prefix {
    /// An address of the range.
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// How many of its first bits all addresses of the range share.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether this address lies in the range.
    pub fn holds(&self, address: IpAddr) -> bool {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let (own, own_length) = bits(self.network);
        let (other, length) = bits(address.to_canonical());
        own_length == length && (own ^ other).leading_zeros() >= u32::from(self.bits)
    }
}

impl FromStr for Prefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Prefix, BadPrefix> {
        let (network, bits) = match text.split_once('/') {
            Some((network, bits)) => (network, Some(bits)),
            None => (text, None),
        };
        let network: IpAddr = network.parse().map_err(|_| BadPrefix)?;
        if network.to_canonical() != network {
            return Err(BadPrefix);
        }
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            // Parsing alone would take a sign, too.
            Some(bits) if bits.bytes().all(|digit| digit.is_ascii_digit()) => {
                bits.parse().ok().filter(|&bits| bits <= most).ok_or(BadPrefix)?
            }
            Some(_) => return Err(BadPrefix),
        };
        Ok(Prefix { network, bits })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_addresses_and_no_other() {
        for (range, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("2001:db8::/32", "2001:db8::1", "2001:db9::1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
        ] {
            let prefix: Prefix = range.parse().unwrap();
            assert!(prefix.holds(inside.parse().unwrap()), "{range} and {inside}");
            assert!(!prefix.holds(outside.parse().unwrap()), "{range} and {outside}");
        }
        for wrong in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "host",
            "10.0.0.0/8:4810",
            "::/129",
            "::ffff:10.0.0.0/104",
        ] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
    }
}
