//! The process that is a router: one socket, one thread, and the core's allocator.
//!
//! Take in what is there, share out what is due, answer from the address that was asked, wait. It
//! moves no data and needs no privilege.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::{Bucket, Rate, Span, Time};
use gtp_proto::router::{Dropped, HostChange, LinkStanding, Router, RouterConfig};
use gtp_sys::Clock;
use gtp_sys::udp::{Header, Origin, ReceiveBatch, Sent, UdpSocket};
use gtp_sys::wake::{Poller, Waker};

use super::RouterKey;
use crate::server::without_v6;

/// A router that is about to serve.
pub struct RouterServer {
    socket: UdpSocket,
    router: Router<At>,
    key: RouterKey,
    clock: Clock,
    poller: Poller,
    shown: Arc<Shown>,
    complaints: Bucket,
}

/// Where an ask came from, and to which of this machine's addresses: the answer leaves from there,
/// because hosts take in answers from the address that they ask alone.
#[derive(Clone, Copy, Debug)]
struct At(Origin);

impl From<At> for SocketAddr {
    fn from(At(origin): At) -> SocketAddr {
        origin.from
    }
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
    turns: AtomicU64,
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

/// Reads of the socket, of up to 32 datagrams each, before hosts are answered.
const READS: usize = 8;
/// Words about hosts that fall silent or are back, which those who have the key can cause.
const COMPLAINTS: Bucket = Bucket::new(1, 8);
/// The numbers are shown this often.
const SHOW: Span = Span::from_millis(250);

impl RouterServer {
    /// Binds a router for links of these capacities, out and in. Where there is no IPv6, `0.0.0.0`
    /// takes the place of `::`.
    ///
    /// # Errors
    /// When the address is not to be had, or the process may open no more descriptors.
    pub fn bind(
        listen: SocketAddr,
        links: &[[Rate; 2]],
        key: RouterKey,
    ) -> io::Result<RouterServer> {
        let socket = UdpSocket::bind(listen)
            .or_else(|error| without_v6(listen, &error).map_or(Err(error), UdpSocket::bind))?;
        let (clock, mut secret) = (Clock::start(), [0; 16]);
        gtp_sys::entropy::fill(&mut secret);
        let links = links.iter().flatten().copied().collect();
        let router = Router::new(clock.now(), RouterConfig { links, secret });
        let (poller, shown) = (Poller::new()?, Arc::<Shown>::default());
        shown.show(&router);
        let complaints = COMPLAINTS;
        Ok(RouterServer { socket, router, key, clock, poller, shown, complaints })
    }

    /// The address that it has.
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
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
        let mut batch = ReceiveBatch::new();
        while self.shown.stops.load(Ordering::Relaxed) == 0 {
            self.receive(&mut batch)?;
            let now = self.clock.now();
            self.router.handle_timeout(now);
            self.tell_changes(now);
            while let Some(At(to)) = self.router.poll_transmit(now, &self.key, &mut out) {
                let header = Header { to: to.from, from: to.to, ecn: None };
                // What cannot be sent now is asked for again.
                if self.socket.send(&header, out.len(), &out) == Sent::Taken {
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

    fn receive(&mut self, batch: &mut ReceiveBatch) -> io::Result<()> {
        for _ in 0..READS {
            match self.socket.receive(batch) {
                Ok(true) => self.take_in(batch),
                Ok(false) => return Ok(()),
                // The network's answer to what was sent.
                Err(error) if is_of_network(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_in(&mut self, batch: &mut ReceiveBatch) {
        let now = self.clock.now();
        for (origin, _, datagram) in batch.datagrams() {
            self.shown.asked.fetch_add(1, Ordering::Relaxed);
            match self.router.handle_datagram(now, At(origin), datagram, &self.key) {
                Ok(()) | Err(Dropped::Misdirected) => {}
                Err(Dropped::Forged | Dropped::Malformed) => {
                    self.shown.forged.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(from = %origin.from, "a datagram without the key");
                }
                Err(Dropped::Replayed | Dropped::Full) => {
                    self.shown.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Says in the log which hosts are silent, and which are back.
    fn tell_changes(&mut self, now: Time) {
        while let Some((At(Origin { from, .. }), change)) = self.router.poll_change() {
            if !self.complaints.take(now) {
                continue;
            }
            match change {
                HostChange::Silent => {
                    tracing::warn!(host = %from, "a host is silent: what its sessions had is free");
                }
                HostChange::Back => tracing::warn!(host = %from, "a host asks again"),
            }
        }
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

    /// How often the numbers were brought up to date; it stands still if the router hangs.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Each link.
    pub fn links(&self) -> Vec<LinkShown> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counters since the start, by name: datagrams that came, that went, that had not the key or
    /// were none of a host's, and that came again or for which there was no room; and engines of
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

    fn show(&self, router: &Router<At>) {
        let one_way: Vec<_> = router.standing().collect();
        let link = |pair: &[_]| {
            let [out, in_] = [pair[0], *pair.last().unwrap_or(&pair[0])];
            LinkShown {
                capacity: [out, in_].map(|way: LinkStanding| way.capacity),
                sessions: [out.sessions, in_.sessions],
                granted: [out.granted, in_.granted],
            }
        };
        let links = one_way.chunks(2).map(link).collect();
        *self.links.lock().unwrap_or_else(PoisonError::into_inner) = links;
        self.hosts.store(router.hosts() as u64, Ordering::Relaxed);
        self.turns.fetch_add(1, Ordering::Relaxed);
    }
}
