//! Where a server listens, as people write it.
//!
//! One idea: an address that cannot be used is refused in words that say what to write, before
//! anything is opened. It knows the text only; whether the address can be bound is seen later.

use std::net::SocketAddr;

use crate::flows::{Failure, FailureKind};

/// Reads `ADDRESS:PORT`, with an IPv6 address in brackets. A link-local address may name its
/// interface: `[fe80::1%eth0]:4810`.
///
/// # Errors
/// [`FailureKind::Usage`] if the text is no address.
pub fn listen_address(text: &str) -> Result<SocketAddr, Failure> {
    gtp_sys::address::parse(text).ok_or_else(|| {
        let text = format!(
            "{text:?} is no address of this machine: expected ADDRESS:PORT, as in 0.0.0.0:4810, \
             [::]:4810 or, on one link, [fe80::1%eth0]:4810"
        );
        Failure::new(FailureKind::Usage, text)
    })
}
