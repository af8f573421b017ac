//! Which IP version carries datagrams to which host.
//!
//! A path may carry TCP of both IP versions and UDP of one. A session that hears no datagram marks
//! its version as blocked for that host; the next connection goes to an address of the other one.
//! The marks are taken off once both are blocked, when the other version cannot be connected to,
//! and after ten minutes, so that a later transfer finds out anew. This module connects to nothing.

use std::collections::HashMap;
use std::net::SocketAddr;

use gtp_alloc::{Span, Time};

use crate::engine::Way;
use crate::trust::HostAddress;

/// Hosts that are remembered. Beyond that all are forgotten, which costs one more attempt.
const HOSTS_MAX: usize = 1_024;

/// Time for which a mark counts: firewalls and routes change.
const MARK_SPAN: Span = Span::from_secs(600);

/// What is known of the hosts that were connected to.
#[derive(Debug, Default)]
pub(super) struct Families {
    hosts: HashMap<HostAddress, Known>,
}

/// What is known of one host. The first of each pair is for IPv4, the second for IPv6.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    has: [bool; 2],
    /// Since when no datagram is known to get through.
    blocked: [Option<Time>; 2],
    /// Since when control connections carry datagrams, because UDP does not get through.
    carried: Option<Time>,
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
    pub fn admit(
        &mut self,
        host: &HostAddress,
        addresses: Vec<SocketAddr>,
        now: Time,
    ) -> Vec<SocketAddr> {
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(host) {
            self.hosts.clear();
        }
        let known = self.hosts.entry(host.clone()).or_default();
        known.has = [false; 2];
        let counts = |since: &Time| now.since(*since) < MARK_SPAN;
        known.blocked = known.blocked.map(|mark| mark.filter(counts));
        for address in &addresses {
            known.has[index(address)] = true;
        }
        let known = *known;
        let open = |address: &SocketAddr| known.blocked[index(address)].is_none();
        match addresses.iter().any(open) {
            true => addresses.into_iter().filter(open).collect(),
            false => addresses,
        }
    }

    /// Whether connections to the host avoid an IP version that it has.
    pub fn is_avoiding(&self, host: &HostAddress) -> bool {
        let known = self.hosts.get(host).copied().unwrap_or_default();
        known.has.iter().zip(known.blocked).any(|(&has, blocked)| has && blocked.is_some())
    }

    /// Whether the host has addresses of both versions and neither is known to be blocked.
    pub fn has_choice(&self, host: &HostAddress) -> bool {
        let known = self.hosts.get(host).copied().unwrap_or_default();
        known.has == [true; 2] && known.blocked == [None; 2]
    }

    /// No datagram got through to or from this address of the host.
    pub fn block(&mut self, host: &HostAddress, peer: SocketAddr, now: Time) -> Next {
        let Some(known) = self.hosts.get_mut(host) else { return Next::None };
        known.blocked[index(&peer)] = Some(now);
        let left = (0..2).any(|family| known.has[family] && known.blocked[family].is_none());
        if left {
            return Next::OtherFamily;
        }
        known.blocked = [None; 2];
        Next::None
    }

    /// UDP gets through to the host, or does not, and its control connections carry datagrams.
    pub fn note_way(&mut self, host: &HostAddress, way: Way, now: Time) {
        if let Some(known) = self.hosts.get_mut(host) {
            known.carried = (way == Way::Control).then_some(now);
        }
    }

    /// Whether the host's control connections are to carry datagrams from the start.
    pub fn is_carried(&self, host: &HostAddress, now: Time) -> bool {
        let since = self.hosts.get(host).and_then(|known| known.carried);
        since.is_some_and(|at| now.since(at) < MARK_SPAN)
    }

    /// The version that is left cannot be connected to: the next connection tries both again.
    pub fn clear(&mut self, host: &HostAddress) {
        if let Some(known) = self.hosts.get_mut(host) {
            known.blocked = [None; 2];
        }
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
        assert_eq!(families.admit(&host, both.clone(), Time::ZERO), both);
        assert!(families.has_choice(&host) && !families.is_avoiding(&host));
        assert_eq!(families.block(&host, both[0], Time::ZERO), Next::OtherFamily);
        assert_eq!(families.admit(&host, both.clone(), Time::ZERO), both[1..]);
        assert!(families.is_avoiding(&host) && !families.has_choice(&host));
        assert_eq!(families.block(&host, both[1], Time::ZERO), Next::None);
        assert_eq!(families.admit(&host, both.clone(), Time::ZERO), both);
    }

    #[test]
    fn a_mark_comes_off_in_time_and_when_the_other_family_cannot_be_connected_to() {
        let host = HostAddress::new("h", 1).unwrap();
        let both = addresses(&["[::1]:1", "127.0.0.1:1"]);
        let mut families = Families::default();
        families.admit(&host, both.clone(), Time::ZERO);
        families.block(&host, both[0], Time::ZERO);
        families.clear(&host);
        assert_eq!(families.admit(&host, both.clone(), Time::ZERO), both);
        families.block(&host, both[0], Time::ZERO);
        let later = |seconds| Time::ZERO + Span::from_secs(seconds);
        assert_eq!(families.admit(&host, both.clone(), later(599)), both[1..]);
        assert_eq!(families.admit(&host, both.clone(), later(600)), both);
        assert!(families.has_choice(&host) && !families.is_avoiding(&host));
    }

    #[test]
    fn that_a_host_is_carried_is_forgotten_in_time_and_when_udp_gets_through() {
        let host = HostAddress::new("h", 1).unwrap();
        let mut families = Families::default();
        let later = |seconds| Time::ZERO + Span::from_secs(seconds);
        families.note_way(&host, Way::Control, later(0));
        assert!(!families.is_carried(&host, later(0)), "nothing is known of it");
        families.admit(&host, addresses(&["127.0.0.1:1"]), later(0));
        families.note_way(&host, Way::Control, later(0));
        assert!(families.is_carried(&host, later(599)) && !families.is_carried(&host, later(600)));
        families.note_way(&host, Way::Udp, later(1));
        assert!(!families.is_carried(&host, later(1)));
    }

    #[test]
    fn a_host_of_one_family_has_nothing_else_to_try() {
        let host = HostAddress::new("h", 1).unwrap();
        let one = addresses(&["[::1]:1", "[::2]:1"]);
        let mut families = Families::default();
        assert_eq!(families.admit(&host, one.clone(), Time::ZERO), one);
        assert_eq!(families.block(&host, one[0], Time::ZERO), Next::None);
    }

    #[test]
    fn hosts_without_end_take_bounded_memory() {
        let mut families = Families::default();
        for port in 1..=u16::try_from(3 * HOSTS_MAX).unwrap() {
            let host = HostAddress::new("h", port).unwrap();
            families.admit(&host, addresses(&["127.0.0.1:1"]), Time::ZERO);
            assert!(families.hosts.len() <= HOSTS_MAX);
        }
    }
}
