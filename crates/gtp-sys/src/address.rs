//! Socket addresses as people write them and as the kernel reports them.
//!
//! A link-local IPv6 address means nothing without the interface on whose link it lies: its scope.
//! People name the interface (`[fe80::1%eth0]:4810`), the kernel numbers it. The scope is part of
//! the address here, so that nothing that passes through this module loses it. No other address
//! has one: where somebody writes a scope beside such an address, it is dropped, because the kernel
//! reports those addresses without it and the two must compare as equal.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};

/// Reads `ADDRESS:PORT`, with an IPv6 address in brackets. The scope of a link-local address may be
/// an interface's name or number. `None` if the text is no address or no interface has that name.
pub fn parse(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(canonical(address));
    }
    let (address, port) = text.strip_prefix('[')?.rsplit_once("]:")?;
    let (ip, interface) = address.split_once('%')?;
    let ip: Ipv6Addr = ip.parse().ok()?;
    let scope = interface_number(interface)?;
    Some(canonical(SocketAddrV6::new(ip, port.parse().ok()?, 0, scope).into()))
}

/// The same address in its one form: IPv4 as IPv4, a scope only where it means something.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match (address, address.ip().to_canonical()) {
        (SocketAddr::V6(v6), IpAddr::V6(ip)) if needs_scope(ip) => {
            SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into()
        }
        (_, ip) => SocketAddr::new(ip, address.port()),
    }
}

/// Whether an address can be reached only through a named interface.
pub fn needs_scope(ip: Ipv6Addr) -> bool {
    let link_local_group = ip.is_multicast() && ip.segments()[0] & 0x0f == 2;
    ip.is_unicast_link_local() || link_local_group
}

fn interface_number(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let any = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    name_to_index(&any, name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_a_link_local_address_may_be_named_or_numbered() {
        let loopback = interface_number("lo").unwrap();
        let named = parse("[fe80::1%lo]:4810").unwrap();
        assert_eq!(named, parse(&format!("[fe80::1%{loopback}]:4810")).unwrap());
        assert_eq!(named, SocketAddrV6::new("fe80::1".parse().unwrap(), 4810, 0, loopback).into());
        assert_eq!(canonical(named), named);
    }

    #[test]
    fn an_address_that_needs_no_scope_has_none() {
        for (written, meant) in [
            ("[2001:db8::1%lo]:1", "[2001:db8::1]:1"),
            ("[::1%1]:1", "[::1]:1"),
            ("[::ffff:10.0.0.1]:1", "10.0.0.1:1"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("[::]:0", "[::]:0"),
        ] {
            assert_eq!(parse(written), meant.parse().ok(), "{written}");
        }
    }

    #[test]
    fn what_is_no_address_or_names_no_interface_is_refused() {
        let bad = [
            "",
            ":1",
            "h:1",
            "[fe80::1%]:1",
            "[fe80::1%no-such-link]:1",
            "[fe80::1%lo]",
            "[fe80::1%lo]:x",
            "fe80::1%lo:1",
            "[10.0.0.1%lo]:1",
        ];
        for text in bad {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
