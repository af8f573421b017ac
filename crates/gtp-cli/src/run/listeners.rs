//! Where programs under `gtp run` listen: who said so, and whether it is still true.
//!
//! A program says once that it listens, and on which socket. How long that socket listens is what
//! the kernel says, whoever holds it by then: a program may hand it on, fork, or close all other
//! descriptors. What another program does at the same port later is not announced, and nobody is
//! passed on to it.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};

/// A socket on which a program listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub at: SocketAddr,
    /// The kernel's number of it.
    pub inode: u64,
    /// Whether one for all addresses takes callers over IPv4.
    pub takes_v4: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Listeners(HashMap<u64, Listener>);

/// Most sockets that are remembered: a program that listens anew without end fills no memory.
const MOST: usize = 4_096;

impl Listeners {
    /// Takes note of one. `false`: there are too many.
    pub fn add(&mut self, listener: Listener) -> bool {
        let fits = self.0.len() < MOST || self.0.contains_key(&listener.inode);
        if fits {
            self.0.insert(listener.inode, listener);
        }
        fits
    }

    /// Forgets those that the kernel does not know any more.
    pub fn keep(&mut self, live: &HashSet<u64>) {
        self.0.retain(|inode, _| live.contains(inode));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether somebody who called `called` at `port` is meant for one of them.
    pub fn takes(&self, called: IpAddr, port: u16) -> bool {
        let called = called.to_canonical();
        let takes = |listener: &Listener| match listener.at.ip().to_canonical() {
            IpAddr::V4(all) if all.is_unspecified() => called.is_ipv4(),
            IpAddr::V6(all) if all.is_unspecified() => called.is_ipv6() || listener.takes_v4,
            one => one == called,
        };
        self.0.values().any(|listener| listener.at.port() == port && takes(listener))
    }
}

/// The sockets of TCP that listen in this process's network, by the kernel's number.
pub fn live() -> HashSet<u64> {
    let mut found = HashSet::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        // A family that the kernel does not have has no sockets.
        if let Ok(file) = std::fs::File::open(table) {
            found.extend(listening(BufReader::new(file)));
        }
    }
    found
}

/// A state of the kernel's, as it prints it.
const LISTEN: &str = "0A";

/// Reads a table of the kernel's, in which sockets that listen come first.
fn listening(table: impl BufRead) -> impl Iterator<Item = u64> {
    let lines = table.lines().map_while(Result::ok).skip(1);
    lines.map_while(|line| {
        let mut words = line.split_ascii_whitespace();
        let state = words.nth(3)?;
        let inode = words.nth(5)?;
        (state == LISTEN).then(|| inode.parse().unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(at: &str, inode: u64, takes_v4: bool) -> Listener {
        Listener { at: at.parse().unwrap(), inode, takes_v4 }
    }

    #[test]
    fn two_listeners_on_one_port_take_their_own_callers_and_one_outlives_the_other() {
        let mut all = Listeners::default();
        assert!(all.add(listener("10.0.0.1:80", 1, false)));
        assert!(all.add(listener("10.0.0.2:80", 2, false)));
        let takes = |all: &Listeners, called: &str, port| all.takes(called.parse().unwrap(), port);
        assert!(takes(&all, "10.0.0.1", 80) && takes(&all, "::ffff:10.0.0.2", 80));
        assert!(!takes(&all, "10.0.0.3", 80) && !takes(&all, "10.0.0.1", 81));
        all.keep(&HashSet::from([2, 3]));
        assert!(!takes(&all, "10.0.0.1", 80) && takes(&all, "10.0.0.2", 80));
    }

    #[test]
    fn a_listener_for_all_addresses_takes_the_families_that_it_says() {
        let takes = |at: &str, takes_v4, called: &str| {
            let mut all = Listeners::default();
            all.add(listener(at, 1, takes_v4));
            all.takes(called.parse().unwrap(), 80)
        };
        assert!(takes("[::]:80", true, "10.0.0.1") && takes("[::]:80", true, "fd00::1"));
        assert!(!takes("[::]:80", false, "10.0.0.1") && takes("[::]:80", false, "fd00::1"));
        assert!(takes("0.0.0.0:80", true, "10.0.0.1") && !takes("0.0.0.0:80", true, "fd00::1"));
    }

    #[test]
    fn no_more_are_remembered_than_a_host_can_want() {
        let mut all = Listeners::default();
        let fits = (0..2 * MOST as u64).filter(|&inode| all.add(listener("[::]:80", inode, true)));
        assert_eq!(fits.count(), MOST);
        assert!(all.add(listener("[::]:81", 0, true)), "it is known");
    }

    #[test]
    fn the_kernel_names_sockets_that_listen_and_no_others() {
        let mut open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = |socket: &std::net::TcpListener| rustix::fs::fstat(socket).unwrap().st_ino;
        let first = inode(&open);
        assert!(live().contains(&first));
        open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!live().contains(&first) && live().contains(&inode(&open)));
        let table = "head\n 0: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 77 1\n \
            1: 0100007F:0050 0100007F:0051 01 0:0 0:0 0 0 0 78 1\n 2: nonsense\n";
        assert_eq!(listening(table.as_bytes()).collect::<Vec<_>>(), [77]);
    }
}
