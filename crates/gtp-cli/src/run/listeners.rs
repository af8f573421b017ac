//! Where programs under `gtp run` listen: who said so, and whether it is still true.
//!
//! A program shows the socket on which it listens, and what is known of it is what the kernel says
//! of that socket, not what the program says. How long it listens the kernel says as well, whoever
//! holds it by then: a program may hand it on, fork, or close all other descriptors. What another
//! program does at the same port later is not announced, and nobody is passed on to it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use gtp_alloc::Time;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, getsockname, ipproto, sockopt};

use super::sockets::{Listening, Reading};

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

/// All of them, each with when it became known.
#[derive(Debug, Default)]
pub struct Listeners(HashMap<u64, (Listener, Time)>);

/// Most sockets that are remembered: a program that listens anew without end fills no memory.
const MOST: usize = 4_096;

impl Listeners {
    /// Some of an earlier pump's, as far as there is room.
    pub fn of(some: Vec<Listener>) -> Listeners {
        let mut all = Listeners::default();
        for listener in some {
            all.add(listener, Time::ZERO);
        }
        all
    }

    /// Takes note of one at that time. `false`: there are too many.
    pub fn add(&mut self, listener: Listener, at: Time) -> bool {
        let fits = self.0.len() < MOST || self.0.contains_key(&listener.inode);
        if fits {
            self.0.insert(listener.inode, (listener, at));
        }
        fits
    }

    /// Forgets those that the kernel does not know any more. A reading says nothing of those that
    /// were added after it had begun.
    pub fn keep(&mut self, live: &Reading<Listening>) {
        self.0.retain(|inode, (_, at)| *at > live.begun || live.said.contains(inode));
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Listener> {
        self.0.values().map(|(listener, _)| listener)
    }

    /// The kernel's numbers of all of them.
    pub fn inodes(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
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
        self.all().any(|listener| listener.at.port() == port && takes(listener))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn listener(at: &str, inode: u64, takes_v4: bool) -> Listener {
        Listener { at: at.parse().unwrap(), inode, takes_v4 }
    }

    const NOW: Time = Time::from_nanos(5);

    fn reading(live: &[u64]) -> Reading<Listening> {
        Reading { begun: NOW, said: Arc::new(live.iter().copied().collect()) }
    }

    #[test]
    fn two_listeners_on_one_port_take_their_own_callers_and_one_outlives_the_other() {
        let mut all = Listeners::default();
        assert!(all.add(listener("10.0.0.1:80", 1, false), NOW));
        assert!(all.add(listener("10.0.0.2:80", 2, false), NOW));
        let takes = |all: &Listeners, called: &str, port| all.takes(called.parse().unwrap(), port);
        assert!(takes(&all, "10.0.0.1", 80) && takes(&all, "::ffff:10.0.0.2", 80));
        assert!(!takes(&all, "10.0.0.3", 80) && !takes(&all, "10.0.0.1", 81));
        all.keep(&reading(&[2, 3]));
        assert!(!takes(&all, "10.0.0.1", 80) && takes(&all, "10.0.0.2", 80));
    }

    #[test]
    fn one_that_was_added_while_the_tables_were_read_is_not_forgotten() {
        let mut all = Listeners::default();
        let later = Time::from_nanos(NOW.as_nanos() + 1);
        assert!(all.add(listener("[::]:80", 1, true), NOW));
        assert!(all.add(listener("[::]:81", 2, true), later));
        all.keep(&reading(&[]));
        assert_eq!(all.all().map(|one| one.inode).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_listener_for_all_addresses_takes_the_families_that_it_says() {
        let takes = |at: &str, takes_v4, called: &str| {
            let mut all = Listeners::default();
            all.add(listener(at, 1, takes_v4), NOW);
            all.takes(called.parse().unwrap(), 80)
        };
        assert!(takes("[::]:80", true, "10.0.0.1") && takes("[::]:80", true, "fd00::1"));
        assert!(!takes("[::]:80", false, "10.0.0.1") && takes("[::]:80", false, "fd00::1"));
        assert!(takes("0.0.0.0:80", true, "10.0.0.1") && !takes("0.0.0.0:80", true, "fd00::1"));
    }

    #[test]
    fn no_more_are_remembered_than_a_host_can_want() {
        let mut all = Listeners::default();
        let mut add = |inode| all.add(listener("[::]:80", inode, true), NOW);
        let fits = (0..2 * MOST as u64).filter(|&inode| add(inode));
        assert_eq!(fits.count(), MOST);
        assert!(all.add(listener("[::]:81", 0, true), NOW), "it is known");
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
    fn a_line_that_is_cut_off_is_no_listener() {
        let bad = ["", "x", "1.2.3.4:5", "1.2.3.4:5 7", "1.2.3.4:5 x both", "1.2.3.4:5 7 none"];
        for line in bad.into_iter().chain(["1.2.3.4:5 7 both more"]) {
            assert_eq!(Listener::parse(line), None, "{line}");
        }
    }
}
