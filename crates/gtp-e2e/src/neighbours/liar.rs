//! A client with a real session that makes false grants and requests.
//!
//! Keys, hellos, receipts and requests come from the core. A [`Lie`] instead of an agent decides
//! what the client grants its source and how much it asks for, so that it holds a place among the
//! server's sessions without using it. This module must not know how many such clients there are.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use gtp_alloc::{Rate, Span, Time};
use gtp_net::control::ControlChannel;
use gtp_net::crypto::{Opener, Sealer, Suite, TAG_LEN};
use gtp_net::messages::Opened;
use gtp_proto::wire::{HEADER_LEN, Header};
use gtp_proto::{Event, Grant, Law, Link, Role, SinkConfig, SinkSession, Weights};
use gtp_sys::Clock;
use tokio::net::UdpSocket;

/// What a liar grants and asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lie {
    /// The rate that it grants its source.
    pub rate: Rate,
    /// The rate that it claims it could grant.
    pub offer: Rate,
    /// The number of units in each request.
    pub units: u64,
    /// The time between two requests.
    pub every: Span,
}

/// The control interval that a liar states.
const INTERVAL: Span = Span::from_millis(10);
/// The longest time between two looks of a liar at its session.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of the longest datagram that is read.
const DATAGRAM_MOST: usize = 2_048;
/// Bytes of the headers of IPv4 and UDP.
const IP_OVERHEAD: u16 = 28;

/// A liar's session.
pub(super) struct Liar<'a> {
    core: SinkSession,
    sealer: Sealer,
    opener: Opener,
    socket: UdpSocket,
    clock: Clock,
    lie: Lie,
    /// The first unit that it has not asked for, and when it asks again. It is `None` before the
    /// path is open.
    next: Option<(u64, Time)>,
    /// IP bytes that all attackers have received together, statuses and all.
    moved: &'a AtomicU64,
}

impl<'a> Liar<'a> {
    /// Begins a session that has just been opened over `channel`, from this address.
    ///
    /// # Errors
    /// If the keys cannot be exported, or the socket cannot be made.
    pub async fn new(
        channel: &mut ControlChannel,
        opened: &Opened,
        client_session: u32,
        (from, lie, moved): (SocketAddr, Lie, &'a AtomicU64),
    ) -> Result<Liar<'a>> {
        let suite = Suite::from_code(opened.suite).context("an unknown cipher")?;
        let secrets = channel.data_secrets(opened.server_session, client_session)?;
        let clock = Clock::start();
        let socket = UdpSocket::bind((from.ip(), 0)).await?;
        socket.connect(channel.ends().remote).await?;
        let (peer_session, revision) = (opened.server_session, channel.revision());
        let config = SinkConfig {
            role: Role::Initiator { unit_payloads: vec![opened.unit_payload] },
            link: Link { peer_session, ip_overhead: IP_OVERHEAD, revision },
            law: Law::Grant,
            weights: Weights { own: 1.0, peer: 1.0 },
            max_rate: Rate::UNLIMITED,
        };
        Ok(Liar {
            core: SinkSession::new(clock.now(), config),
            sealer: Sealer::new(suite, secrets.send),
            opener: Opener::new(suite, secrets.receive),
            socket,
            clock,
            lie,
            next: None,
            moved,
        })
    }

    /// Lies until the session ends.
    ///
    /// # Errors
    /// If the socket fails.
    pub async fn run(mut self) -> Result<()> {
        let mut datagram = [0; DATAGRAM_MOST];
        while self.look() {
            self.send();
            let wait = tokio::time::timeout(self.pause(), self.socket.recv(&mut datagram)).await;
            if let Ok(length) = wait {
                self.take(&mut datagram[..length?]);
            }
        }
        Ok(())
    }

    /// Sends whatever lies are due. Returns `false` after the session's end.
    fn look(&mut self) -> bool {
        let now = self.clock.now();
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::PathOpen { unit_payload } => {
                    self.core.begin(unit_payload);
                    let Lie { rate, offer, .. } = self.lie;
                    let grant = Grant { number: 1, rate, offer, weight: 1.0, interval: INTERVAL };
                    self.core.handle_grant(grant);
                    self.next = Some((0, now));
                }
                Event::PathPresumed { .. } | Event::UnitPayload(_) => {}
                Event::NoPath
                | Event::PeerClosed
                | Event::TimedOut
                | Event::Spent
                | Event::Violated(_) => return false,
            }
        }
        if let Some((first, at)) = self.next.filter(|&(_, at)| at <= now)
            && self.lie.units > 0
        {
            self.core.assign(first..first + self.lie.units);
            self.next = Some((first + self.lie.units, at + self.lie.every));
        }
        // Like a host's agent, it takes the report, which settles what the source has echoed.
        let _ = self.core.report(now);
        true
    }

    fn send(&mut self) {
        let now = self.clock.now();
        let mut datagram = Vec::with_capacity(DATAGRAM_MOST);
        while let Some(transmit) = self.core.poll_transmit(now, &mut datagram) {
            let (head, body) = datagram.split_at_mut(HEADER_LEN);
            let tag = self.sealer.seal_in_place(transmit.pn, head, body);
            datagram.extend_from_slice(&tag);
            // A datagram is lost if the buffer is full or the server is gone.
            let _ = self.socket.try_send(&datagram);
            datagram.clear();
        }
    }

    fn pause(&self) -> Duration {
        let due = self.core.poll_timeout().map_or(Time::MAX, |(at, _)| at);
        Duration::from_nanos(due.since(self.clock.now()).as_nanos()).min(LOOK)
    }

    /// Takes in a datagram, and drops it if it does not open.
    fn take(&mut self, datagram: &mut [u8]) {
        let Ok(header) = Header::decode(datagram) else { return };
        if datagram.len() < HEADER_LEN + TAG_LEN {
            return;
        }
        let bytes = datagram.len() as u64 + u64::from(IP_OVERHEAD);
        let (head, sealed) = datagram.split_at_mut(HEADER_LEN);
        let Ok(body) = self.opener.open_in_place(header.pn, head, sealed) else { return };
        let now = self.clock.now();
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        // What it says counts as well, whatever becomes of it here.
        let _ = self.core.handle_datagram(now.into(), header, body);
    }
}
