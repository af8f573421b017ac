//! Where programs under `gtp run` listen: who said so, and whether it is still true.
//!
//! A program shows the socket on which it listens, and what is known of it is what the kernel says
//! of that socket, not what the program says. How long it listens the kernel says as well, whoever
//! holds it by then: a program may hand it on, fork, or close all other descriptors. What another
//! program does at the same port later is not announced, and nobody is passed on to it.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, getsockname, ipproto, sockopt};

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

impl Listener {
    /// What the kernel says of a socket that a program has shown. It is closed again here, so that
    /// it listens no longer than the program's own.
    ///
    /// # Errors
    /// `INVAL` where it is none of TCP or does not listen; else what the kernel says.
    pub fn of(socket: OwnedFd) -> rustix::io::Result<Listener> {
        let is_tcp = sockopt::socket_type(&socket)? == SocketType::STREAM
            && sockopt::socket_protocol(&socket)? == Some(ipproto::TCP);
        let is_v6 = match sockopt::socket_domain(&socket)? {
            AddressFamily::INET => false,
            AddressFamily::INET6 => true,
            _ => return Err(Errno::INVAL),
        };
        if !is_tcp || !sockopt::socket_acceptconn(&socket)? {
            return Err(Errno::INVAL);
        }
        let at = SocketAddr::try_from(getsockname(&socket)?)?;
        let takes_v4 = !is_v6 || !sockopt::ipv6_v6only(&socket)?;
        Ok(Listener { at, inode: rustix::fs::fstat(&socket)?.st_ino, takes_v4 })
    }

    /// As a line, by which a pump tells the one after it.
    pub fn line(&self) -> String {
        let families = if self.takes_v4 { "both" } else { "own" };
        format!("{} {} {families}\n", self.at, self.inode)
    }

    /// Reads such a line.
    pub fn parse(line: &str) -> Option<Listener> {
        let mut words = line.split_whitespace();
        let (at, inode) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let takes_v4 = match words.next()? {
            "both" => true,
            "own" => false,
            _ => return None,
        };
        words.next().is_none().then_some(Listener { at, inode, takes_v4 })
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Listeners(HashMap<u64, Listener>);

/// Most sockets that are remembered: a program that listens anew without end fills no memory.
const MOST: usize = 4_096;

impl Listeners {
    /// Some of an earlier pump's, as far as there is room.
    pub fn of(some: Vec<Listener>) -> Listeners {
        let mut all = Listeners::default();
        for listener in some {
            all.add(listener);
        }
        all
    }

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

    /// Keeps those that listen still, as far as that can be seen now.
    pub fn look(&mut self) {
        if let Ok(live) = live() {
            self.keep(&live);
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Listener> {
        self.0.values()
    }

    /// Whether there is room for no other.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MOST
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
///
/// # Errors
/// When the kernel's tables cannot be read now, for want of descriptors for example. Nothing is
/// known then, and nobody may be forgotten for it.
pub fn live() -> io::Result<HashSet<u64>> {
    Ok(tables()?.iter().flat_map(|table| listening(table.as_bytes())).collect())
}

/// The sockets of TCP in this process's network that are connected, or about to be.
///
/// # Errors
/// As [`live`].
pub fn connected() -> io::Result<HashSet<u64>> {
    let connected = |(state, inode): (String, u64)| CONNECTED.contains(&&*state).then_some(inode);
    Ok(tables()?.iter().flat_map(|table| rows(table.as_bytes())).filter_map(connected).collect())
}

/// Whether a socket of TCP in this process's network is still there and has asked for a connection
/// that is not made yet.
///
/// # Errors
/// As [`live`].
pub fn asks(socket: u64) -> io::Result<bool> {
    let its = |(state, inode): (String, u64)| inode == socket && state == ASKS;
    Ok(tables()?.iter().flat_map(|table| rows(table.as_bytes())).any(its))
}

/// The kernel's tables. A family that it does not have has no sockets.
fn tables() -> io::Result<Vec<String>> {
    let read = |table: &str| match std::fs::read_to_string(table) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        text => Some(text),
    };
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"].into_iter().filter_map(read).collect()
}

/// States of the kernel's, as it prints them.
const LISTEN: &str = "0A";
/// Established, asked for, and those of which one end has said all: ours (both FIN_WAIT) or the
/// other (CLOSE_WAIT). What no program holds any more has no number.
const CONNECTED: [&str; 5] = ["01", "02", "04", "05", "08"];

/// A connection was asked for and not answered yet (SYN_SENT).
const ASKS: &str = "02";

/// A table's rows: each socket's state and number.
fn rows(table: impl BufRead) -> impl Iterator<Item = (String, u64)> {
    let lines = table.lines().map_while(Result::ok).skip(1);
    lines.map_while(|line| {
        let mut words = line.split_ascii_whitespace();
        let state = words.nth(3)?.to_owned();
        let inode = words.nth(5)?;
        Some((state, inode.parse().unwrap_or(0)))
    })
}

/// Those of a table that listen, which come first in it.
fn listening(table: impl BufRead) -> impl Iterator<Item = u64> {
    rows(table).take_while(|(state, _)| state == LISTEN).map(|(_, inode)| inode)
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
        assert!(live().unwrap().contains(&first));
        open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let live = live().unwrap();
        assert!(!live.contains(&first) && live.contains(&inode(&open)));
        let table = "head\n 0: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 77 1\n \
            1: 0100007F:0050 0100007F:0051 01 0:0 0:0 0 0 0 78 1\n 2: nonsense\n";
        assert_eq!(listening(table.as_bytes()).collect::<Vec<_>>(), [77]);
    }

    #[test]
    fn of_a_socket_that_is_shown_the_kernels_word_counts() {
        let four = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(&four).unwrap().st_ino;
        let at = four.local_addr().unwrap();
        let known = Listener::of(four.try_clone().unwrap().into()).unwrap();
        assert_eq!(known, Listener { at, inode, takes_v4: true });
        assert_eq!(Listener::parse(&known.line()), Some(known));
        let six = std::net::TcpListener::bind("[::1]:0").unwrap();
        let at = six.local_addr().unwrap();
        assert_eq!(Listener::of(six.into()).unwrap().at, at);
        let kinds = (AddressFamily::INET, SocketType::STREAM);
        let bound = rustix::net::socket(kinds.0, kinds.1, None).unwrap();
        rustix::net::bind(&bound, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let others: [OwnedFd; 5] = [
            bound,
            std::net::TcpStream::connect(four.local_addr().unwrap()).unwrap().into(),
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            std::os::unix::net::UnixStream::pair().unwrap().0.into(),
            std::fs::File::open("/dev/null").unwrap().into(),
        ];
        for other in others {
            assert!(Listener::of(other).is_err(), "it does not listen");
        }
    }

    #[test]
    fn sockets_that_are_connected_are_known_until_they_are_closed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inode = rustix::fs::fstat(&stream).unwrap().st_ino;
        assert!(connected().unwrap().contains(&inode));
        let (accepted, _) = listener.accept().unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let other = rustix::fs::fstat(&accepted).unwrap().st_ino;
        let both = connected().unwrap();
        assert!(both.contains(&inode) && both.contains(&other), "one way is open still");
        drop(stream);
        assert!(!connected().unwrap().contains(&inode));
    }

    #[test]
    fn a_line_that_is_cut_off_is_no_listener() {
        let bad = ["", "x", "1.2.3.4:5", "1.2.3.4:5 7", "1.2.3.4:5 x both", "1.2.3.4:5 7 none"];
        for line in bad.into_iter().chain(["1.2.3.4:5 7 both more"]) {
            assert_eq!(Listener::parse(line), None, "{line}");
        }
    }
}
