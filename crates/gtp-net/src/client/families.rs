//! Which IP version carries datagrams to which host.
//!
//! A path may carry TCP of both IP versions and UDP of one. A session that hears no datagram marks
//! its version as blocked for that host; the next connection goes to an address of the other one.
//! Once both are blocked the host has no UDP path, and the marks are taken off, so that a later
//! transfer finds out anew. This module connects to nothing.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::trust::HostAddress;

/// Hosts that are remembered. Beyond that all are forgotten, which costs one more attempt.
const HOSTS_MAX: usize = 1_024;

/// What is known of the hosts that were connected to.
#[derive(Debug, Default)]
pub(super) struct Families {
    hosts: HashMap<HostAddress, Known>,
}

/// What is known of one host. The first of each pair is for IPv4, the second for IPv6.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    has: [bool; 2],
    blocked: [bool; 2],
}

/// Whether there is another IP version to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The host has addresses of the other version, on which nothing is known to be blocked.
    OtherFamily,
    /// None is left: there is no UDP path to the host.
    None,
}

impl Families {
    /// Takes note of a host's addresses and returns those to connect to.
    pub fn admit(&mut self, host: &HostAddress, addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(host) {
            self.hosts.clear();
        }
        let known = self.hosts.entry(host.clone()).or_default();
        known.has = [false; 2];
        for address in &addresses {
            known.has[index(address)] = true;
        }
        let known = *known;
        let open = |address: &SocketAddr| !known.blocked[index(address)];
        match addresses.iter().any(open) {
            true => addresses.into_iter().filter(open).collect(),
            false => addresses,
        }
    }

    /// Whether connections to the host avoid an IP version that it has.
    pub fn is_avoiding(&self, host: &HostAddress) -> bool {
        let known = self.hosts.get(host).copied().unwrap_or_default();
        known.has.iter().zip(known.blocked).any(|(&has, blocked)| has && blocked)
    }

    /// Whether the host has addresses of both versions and neither is known to be blocked.
    pub fn has_choice(&self, host: &HostAddress) -> bool {
        let known = self.hosts.get(host).copied().unwrap_or_default();
        known.has == [true; 2] && known.blocked == [false; 2]
    }

    /// No datagram got through to or from this address of the host.
    pub fn block(&mut self, host: &HostAddress, peer: SocketAddr) -> Next {
        let Some(known) = self.hosts.get_mut(host) else { return Next::None };
        known.blocked[index(&peer)] = true;
        let left = (0..2).any(|family| known.has[family] && !known.blocked[family]);
        if left {
            return Next::OtherFamily;
        }
        known.blocked = [false; 2];
        Next::None
    }
}

fn index(address: &SocketAddr) -> usize {
    usize::from(address.ip().to_canonical().is_ipv6())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn there_is_no_udp_path_only_when_neither_family_has_one() {
        let host = HostAddress::new("h", 1).unwrap();
        let both = addresses(&["[::1]:1", "127.0.0.1:1"]);
        let mut families = Families::default();
        assert_eq!(families.admit(&host, both.clone()), both);
        assert!(families.has_choice(&host) && !families.is_avoiding(&host));
        assert_eq!(families.block(&host, both[0]), Next::OtherFamily);
        assert_eq!(families.admit(&host, both.clone()), both[1..]);
        assert!(families.is_avoiding(&host) && !families.has_choice(&host));
        assert_eq!(families.block(&host, both[1]), Next::None);
        assert_eq!(families.admit(&host, both.clone()), both);
    }

    #[test]
    fn a_host_of_one_family_has_nothing_else_to_try() {
        let host = HostAddress::new("h", 1).unwrap();
        let one = addresses(&["[::1]:1", "[::2]:1"]);
        let mut families = Families::default();
        assert_eq!(families.admit(&host, one.clone()), one);
        assert_eq!(families.block(&host, one[0]), Next::None);
    }

    #[test]
    fn hosts_without_end_take_bounded_memory() {
        let mut families = Families::default();
        for port in 1..=u16::try_from(3 * HOSTS_MAX).unwrap() {
            let host = HostAddress::new("h", port).unwrap();
            families.admit(&host, addresses(&["127.0.0.1:1"]));
            assert!(families.hosts.len() <= HOSTS_MAX);
        }
    }
}
