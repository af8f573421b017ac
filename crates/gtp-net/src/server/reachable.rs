//! The addresses at which a server fetches for others.
//!
//! A client names hosts, and this server connects to them, from its own place in the network. Only
//! ranges that the operator has written down are connected to, at ports that stand there too: so
//! nobody finds out through this server what listens where. A name is judged by the addresses that
//! it has at that moment, and only those are tried. This module opens nothing.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::client::DEFAULT_PORT;
use crate::prefix::{BadPrefix, Prefix};

/// A range of addresses with their ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    range: Prefix,
    ports: RangeInclusive<u16>,
}

/// The text is no range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a range of addresses, as in 10.1.0.0/16, 192.0.2.7:4811, [2001:db8::]/32 or \
     10.0.0.0/8:4810-4820; the port is 4810 if none is named"
)]
pub struct BadReach;

impl Reach {
    /// Whether this address lies in the range.
    pub fn holds(&self, address: SocketAddr) -> bool {
        self.range.holds(address.ip()) && self.ports.contains(&address.port())
    }
}

impl FromStr for Reach {
    type Err = BadReach;

    fn from_str(text: &str) -> Result<Reach, BadReach> {
        let (network, rest) = match text.strip_prefix('[') {
            Some(text) => text.split_once(']').ok_or(BadReach)?,
            // An address of IPv6 without brackets has no port behind it.
            None if text.matches(':').count() > 1 => {
                text.find('/').map_or((text, ""), |at| text.split_at(at))
            }
            None => text.find(['/', ':']).map_or((text, ""), |at| text.split_at(at)),
        };
        let (bits, ports) = rest.find(':').map_or((rest, ""), |at| rest.split_at(at));
        let range = format!("{network}{bits}").parse().map_err(|BadPrefix| BadReach)?;
        Ok(Reach { range, ports: ports_of(ports)? })
    }
}

/// The ports behind an address: none, one, or the first and the last.
fn ports_of(text: &str) -> Result<RangeInclusive<u16>, BadReach> {
    let Some(text) = text.strip_prefix(':') else {
        return if text.is_empty() { Ok(DEFAULT_PORT..=DEFAULT_PORT) } else { Err(BadReach) };
    };
    let port = |text| number(text).filter(|&port| port > 0).ok_or(BadReach);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    if first <= last { Ok(first..=last) } else { Err(BadReach) }
}

/// A number that is written with digits alone.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reach { range, ports } = self;
        match range.network() {
            IpAddr::V4(v4) => write!(f, "{v4}")?,
            IpAddr::V6(v6) => write!(f, "[{v6}]")?,
        }
        write!(f, "/{}:{}-{}", range.bits(), ports.start(), ports.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(range: &str, address: &str) -> bool {
        range.parse::<Reach>().unwrap().holds(address.parse().unwrap())
    }

    #[test]
    fn a_range_holds_its_addresses_at_its_ports_and_no_other() {
        for (range, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255:4810", "10.2.0.0:4810"),
            ("10.1.0.0/16", "10.1.0.0:4810", "10.1.0.0:22"),
            ("192.0.2.7", "192.0.2.7:4810", "192.0.2.6:4810"),
            ("192.0.2.7:9", "192.0.2.7:9", "192.0.2.7:4810"),
            ("0.0.0.0/0:1-65535", "127.0.0.1:1", "[::1]:1"),
            ("10.0.0.0/8:4810-4820", "10.9.9.9:4820", "10.9.9.9:4821"),
            ("2001:db8::/32", "[2001:db8:1::1]:4810", "[2001:db9::]:4810"),
            ("[2001:db8::]/32:7", "[2001:db8::9]:7", "[2001:db8::9]:8"),
            ("::1", "[::1]:4810", "127.0.0.1:4810"),
            ("::/0", "[fe80::1]:4810", "1.2.3.4:4810"),
            ("10.1.0.0/16", "[::ffff:10.1.2.3]:4810", "[::ffff:10.2.2.3]:4810"),
        ] {
            assert!(holds(range, inside), "{range} {inside}");
            assert!(!holds(range, outside), "{range} {outside}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused_and_what_is_shown_reads_back() {
        for text in [
            "",
            "host",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0:0",
            "10.0.0.0:",
            "10.0.0.0/8:5-4",
            "[::1",
            "[::1]x",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/8/9",
            "1.2.3.4:1-",
            "10.0.0.0/8:65536",
            "::ffff:10.0.0.0/104",
        ] {
            assert_eq!(text.parse::<Reach>(), Err(BadReach), "{text}");
        }
        for text in ["10.1.0.0/16", "[2001:db8::]/32:1-9", "::1"] {
            let reach: Reach = text.parse().unwrap();
            assert_eq!(reach.to_string().parse(), Ok(reach));
        }
    }
}
