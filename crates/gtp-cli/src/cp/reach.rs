//! Where a far end is to be reached: the addresses that are tried, and the address of an object.
//!
//! A far end may know other addresses of its own than the name that ssh was given stands for, so
//! both are tried. This module must not know in which way.

use std::net::SocketAddr;
use std::time::Duration;

use gtp::{Failure, FailureKind, Url};
use tokio::time::timeout;

use super::hello::{self, Ready};
use super::operand::Login;

/// The address of an object at a far end.
///
/// # Errors
/// If the path cannot be a part of an address.
pub fn url(login: &Login, ready: &Ready, path: &str, is_dir: bool) -> Result<Url, Failure> {
    let path = if is_dir { format!("{path}/") } else { path.to_owned() };
    let named = Url::at(login.host(), ready.port, &path);
    // An alias of ssh's may be no name that a host has.
    let named = named.or_else(|_| Url::at("far-end", ready.port, &path));
    named.map_err(|bad| Failure::new(FailureKind::Other, bad.to_string()))
}

/// Where the far end is tried: where it says, and what the name stands for that ssh was given. A
/// far end behind a translator knows only its own side's addresses.
pub async fn addresses(login: &Login, ready: &Ready) -> Vec<SocketAddr> {
    merged(ready, &named(login, ready.port).await)
}

/// The addresses that the far end has said, with those of a name behind the first of them.
pub fn merged(ready: &Ready, named: &[SocketAddr]) -> Vec<SocketAddr> {
    let said = ready.addresses.iter().map(|ip| SocketAddr::new(*ip, ready.port));
    let mut all: Vec<SocketAddr> = said.collect();
    for &address in named {
        if !all.contains(&address) {
            all.insert(all.len().min(1), address);
        }
    }
    all
}

/// What the name stands for that ssh was given, if anybody but ssh knows it.
pub async fn named(login: &Login, port: u16) -> Vec<SocketAddr> {
    let host = login.host();
    let typed = gtp_sys::address::parse(&format!("{host}:{port}"));
    let typed = typed.or_else(|| gtp_sys::address::parse(&format!("[{host}]:{port}")));
    match typed {
        Some(typed) => vec![typed],
        None => match timeout(NAME_SPAN, tokio::net::lookup_host((host, port))).await {
            Ok(Ok(named)) => named.take(hello::ADDRESSES_MAX).collect(),
            // An alias of ssh's need be no name that anybody else knows.
            Ok(Err(_)) | Err(_) => Vec::new(),
        },
    }
}

/// Time to find out what a name stands for.
const NAME_SPAN: Duration = Duration::from_secs(2);
