//! The process that is a router: one socket, one thread, and the core's allocator.
//!
//! Take in what is there, share out what is due, answer, wait. It moves no data and needs no
//! privilege.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::router::{Dropped, Router, RouterConfig};
use gtp_sys::Clock;
use gtp_sys::address::canonical;
use gtp_sys::wake::{Poller, Waker};

use super::RouterKey;

/// A router that is about to serve.
pub struct RouterServer {
    socket: UdpSocket,
    local: SocketAddr,
    router: Router<SocketAddr>,
    key: RouterKey,
    clock: Clock,
    poller: Poller,
    shown: Arc<Shown>,
}

/// How a router is doing; kept up to date four times a second.
#[derive(Debug, Default)]
pub struct Shown {
    links: Mutex<Vec<LinkShown>>,
    hosts: AtomicU64,
    asked: AtomicU64,
    answered: AtomicU64,
    forged: AtomicU64,
    refused: AtomicU64,
    stops: AtomicU64,
}

/// How one link is doing, out and in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkShown {
    /// What it carries.
    pub capacity: [Rate; 2],
    /// Sessions that cross it.
    pub sessions: [usize; 2],
    /// What they are granted together.
    pub granted: [Rate; 2],
}

/// Longer than any ask.
const DATAGRAM_MOST: usize = 2_048;
/// Datagrams taken in before others are answered.
const AT_ONCE: usize = 256;
/// The numbers are shown this often.
const SHOW: Span = Span::from_millis(250);

impl RouterServer {
    /// Binds a router for links of these capacities, out and in.
    ///
    /// # Errors
    /// When the address is not to be had, or the process may open no more descriptors.
    pub fn bind(
        listen: SocketAddr,
        links: &[[Rate; 2]],
        key: RouterKey,
    ) -> io::Result<RouterServer> {
        let socket = UdpSocket::bind(listen)?;
        socket.set_nonblocking(true)?;
        let (local, clock, mut secret) = (socket.local_addr()?, Clock::start(), [0; 16]);
        gtp_sys::entropy::fill(&mut secret);
        let links = links.iter().flatten().copied().collect();
        let router = Router::new(clock.now(), RouterConfig { links, secret });
        let (poller, shown) = (Poller::new()?, Arc::default());
        Ok(RouterServer { socket, local, router, key, clock, poller, shown })
    }

    /// The address that it has.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// How it is doing.
    pub fn shown(&self) -> Arc<Shown> {
        self.shown.clone()
    }

    /// Ends it: call [`Shown::stop`] and then this.
    pub fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// When the system can neither wait nor read the socket.
    pub fn run(mut self) -> io::Result<()> {
        let (mut out, mut show_due) = (Vec::new(), Time::ZERO);
        while self.shown.stops.load(Ordering::Relaxed) == 0 {
            self.receive()?;
            let now = self.clock.now();
            self.router.handle_timeout(now);
            while let Some(to) = self.router.poll_transmit(now, &self.key, &mut out) {
                // What cannot be sent now is asked for again.
                if self.socket.send_to(&out, to).is_ok() {
                    self.shown.answered.fetch_add(1, Ordering::Relaxed);
                }
            }
            if show_due <= now {
                show_due = now + SHOW;
                self.shown.show(&self.router);
            }
            let until = self.router.poll_timeout().min(show_due);
            let span = until.since(self.clock.now());
            self.poller.wait([rustix::fd::AsFd::as_fd(&self.socket)], &mut [false], Some(span))?;
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut datagram = [0; DATAGRAM_MOST];
        for _ in 0..AT_ONCE {
            let (len, from) = match self.socket.recv_from(&mut datagram) {
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The network's answer to what was sent.
                Err(error) if is_of_network(&error) => continue,
                Err(error) => return Err(error),
            };
            self.shown.asked.fetch_add(1, Ordering::Relaxed);
            let now = self.clock.now();
            let handled = self.router.handle_datagram(now, from, &datagram[..len], &self.key);
            match handled {
                Ok(()) | Err(Dropped::Misdirected) => {}
                Err(Dropped::Forged | Dropped::Malformed) => {
                    self.shown.forged.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(from = %canonical(from), "a datagram without the key");
                }
                Err(Dropped::Replayed | Dropped::Full) => {
                    self.shown.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
}

fn is_of_network(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::Interrupted
    )
}

impl Shown {
    /// Lets the router end at its next turn.
    pub fn stop(&self) {
        self.stops.store(1, Ordering::Relaxed);
    }

    /// Each link.
    pub fn links(&self) -> Vec<LinkShown> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counters since the start, by name: datagrams that came, that went, that had not the key or
    /// were none of a host's, and that came again or for which there was no room; and processes of
    /// hosts that are known now.
    pub fn counts(&self) -> [(&'static str, u64); 5] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("asked", read(&self.asked)),
            ("answered", read(&self.answered)),
            ("forged", read(&self.forged)),
            ("refused", read(&self.refused)),
            ("hosts", read(&self.hosts)),
        ]
    }

    fn show(&self, router: &Router<SocketAddr>) {
        let one_way: Vec<_> = router.standing().collect();
        let link = |pair: &[_]| {
            let [out, in_] = [pair[0], *pair.last().unwrap_or(&pair[0])];
            LinkShown {
                capacity: [out, in_].map(|way: gtp_proto::router::LinkStanding| way.capacity),
                sessions: [out.sessions, in_.sessions],
                granted: [out.granted, in_.granted],
            }
        };
        let links = one_way.chunks(2).map(link).collect();
        *self.links.lock().unwrap_or_else(PoisonError::into_inner) = links;
        self.hosts.store(router.hosts() as u64, Ordering::Relaxed);
    }
}
