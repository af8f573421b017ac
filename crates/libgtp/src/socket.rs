//! What the library knows of each descriptor that it gave out.
//!
//! The kernel keeps the bytes and who waits for them; here is only what the kernel cannot know: the
//! peer, the terms, and why a connection broke.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use gtp_stream::Rate;

use crate::fault::Errno;

/// One socket. Descriptors that were duplicated share it.
#[derive(Debug)]
pub struct Socket {
    /// The family that it was made for, in which its addresses are spelled.
    pub family: Family,
    pub state: Mutex<State>,
    pub terms: Mutex<Terms>,
    /// The error that reading, or `SO_ERROR`, shows; zero for none.
    broken: AtomicI32,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    /// Addresses of IPv4 are spelled as mapped ones.
    V6,
}

impl Family {
    /// Whether a program may name an address in this spelling to a socket of the family.
    pub fn takes(self, at: SocketAddr) -> bool {
        at.is_ipv4() == (self == Family::V4)
    }

    /// An address as the kernel spells it to a program.
    pub fn spelled(self, at: SocketAddr) -> SocketAddr {
        let ip = match (self, at.ip().to_canonical()) {
            (Family::V4, IpAddr::V6(any)) if any.is_unspecified() => Ipv4Addr::UNSPECIFIED.into(),
            (Family::V6, IpAddr::V4(any)) if any.is_unspecified() => Ipv6Addr::UNSPECIFIED.into(),
            (Family::V6, IpAddr::V4(v4)) => v4.to_ipv6_mapped().into(),
            (Family::V4, ip @ IpAddr::V4(_)) => ip,
            // It keeps its scope.
            (Family::V4 | Family::V6, IpAddr::V6(_)) => return at,
        };
        SocketAddr::new(ip, at.port())
    }
}

/// Where a socket is in its life.
#[derive(Debug)]
pub enum State {
    /// Made. The other end of its pair, and where it shall listen.
    Fresh { far: OwnedFd, bound: Option<SocketAddr> },
    /// It waits for a connection, or for callers; or the connection failed.
    Busy,
    /// It listens here.
    Listening { at: SocketAddr },
    /// It has a peer. Its own address is known where it was called.
    Connected { peer: SocketAddr, local: Option<SocketAddr> },
}

/// What was set for what the socket will become.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub max_rate: Rate,
    pub weight: f64,
    pub window: Option<u32>,
}

impl Socket {
    pub fn new(family: Family, state: State) -> Socket {
        let terms = Terms { max_rate: Rate::UNLIMITED, weight: 1.0, window: None };
        let (state, terms) = (Mutex::new(state), Mutex::new(terms));
        Socket { family, state, terms, broken: AtomicI32::new(0) }
    }

    /// The connection broke; the first reason stays.
    pub fn fail(&self, errno: i32) {
        let _ = self.broken.compare_exchange(0, errno, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Why it broke, if it did.
    pub fn broken(&self) -> Option<Errno> {
        Some(self.broken.load(Ordering::Acquire)).filter(|&errno| errno != 0).map(Errno)
    }

    /// The same, once.
    pub fn take_broken(&self) -> i32 {
        self.broken.swap(0, Ordering::AcqRel)
    }
}
