//! The attackers: what each kind does, again and again, until it is ended.
//!
//! Every attacker has a key of its own that the server does not know, and an address of its own in
//! 127.0.0.0/8. Whatever an attacker does as the protocol asks, the product's own code does. The
//! rate of each attack is fixed, so that it is the same on every machine. This module must not know
//! how the server is measured.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Result;
use gtp_alloc::{Rate, Span};
use gtp_link::Rng;
use gtp_net::control::{ControlChannel, ControlError};
use gtp_net::crypto::Suite;
use gtp_net::identity::{Fingerprint, Identity};
use gtp_net::messages::{Law, Message, Open, Opened, RootsWanted, SuiteList, VERSION, Verb};
use gtp_net::trust::{HostAddress, HostTrust};
use gtp_proto::wire::{Header, Kind as Datagram};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use super::liar::{Liar, Lie};
use super::objects::{BIG, HASHED, HASHED_FILES, LISTED};

/// A kind of attacker, which says what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Opens a session twice a second, sends no datagram, and leaves it after two seconds.
    Leave,
    /// Holds a session that grants nothing and asks for nothing.
    Squat,
    /// Grants 12 kbit/s, says that it could take everything, and asks for all that there is.
    Trickle,
    /// Grants everything, and asks for four units ten times a second.
    Lazy,
    /// Sends 500 datagrams a second: random bytes, and hellos in the right format.
    Flood,
    /// Lists a directory of 20,000 files, again and again.
    List,
    /// Asks for the hashes of files of 16 MiB, one file after another.
    Hash,
    /// Sends keep-alives as fast as the server reads them.
    KeepAlive,
    /// Connects over TCP twenty times a second and sends random bytes; sends as many datagrams.
    Garbage,
}

/// All kinds, with the names that cases give them.
pub const KINDS: [(&str, Kind); 9] = [
    ("leave", Kind::Leave),
    ("squat", Kind::Squat),
    ("trickle", Kind::Trickle),
    ("lazy", Kind::Lazy),
    ("flood", Kind::Flood),
    ("list", Kind::List),
    ("hash", Kind::Hash),
    ("keep-alive", Kind::KeepAlive),
    ("garbage", Kind::Garbage),
];

/// The plan of an attack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attack {
    /// The kind of its attackers.
    pub kind: Kind,
    /// The number of attackers.
    pub attackers: usize,
    /// The address of the server.
    pub server: SocketAddr,
    /// The fingerprint of the server's key.
    pub fingerprint: String,
}

/// The least time between two attempts of an attacker that the server turns away.
const AGAIN: Duration = Duration::from_millis(250);
/// Idle connections that one attacker holds at a time.
const HELD: usize = 4;

/// One attacker with its key and address.
struct Attacker {
    kind: Kind,
    server: SocketAddr,
    fingerprint: Fingerprint,
    from: SocketAddr,
    identity: Identity,
    rng: Rng,
    moved: Arc<AtomicU64>,
}

/// Attacks without end; adds the IP bytes of data and statuses that arrive to `moved`.
///
/// # Errors
/// If the key does not parse, or an attacker fails for a reason that is not the server's answer.
pub async fn run(attack: Attack, moved: Arc<AtomicU64>) -> Result<()> {
    let fingerprint: Fingerprint = attack.fingerprint.parse()?;
    let mut all = JoinSet::new();
    for number in 0..attack.attackers {
        let attacker = Attacker {
            kind: attack.kind,
            server: attack.server,
            fingerprint,
            from: SocketAddr::new(address(number), 0),
            identity: Identity::generate(),
            rng: Rng::new(number as u64 + 1),
            moved: Arc::clone(&moved),
        };
        all.spawn(attacker.run());
    }
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    Ok(())
}

/// Returns the address of an attacker. None of them is 127.0.0.1.
fn address(number: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 1 + (number / 250) as u8, 1 + (number % 250) as u8).into()
}

impl Attacker {
    async fn run(mut self) -> Result<()> {
        match self.kind {
            Kind::Leave => self.leave().await,
            Kind::Flood => self.flood().await,
            Kind::Garbage => self.babble().await,
            Kind::Squat | Kind::Trickle | Kind::Lazy => {
                let mut due = attempts();
                loop {
                    due.tick().await;
                    // The server may end a session, and a flood of them may find no room.
                    let _ = self.lie().await;
                }
            }
            Kind::List | Kind::Hash | Kind::KeepAlive => {
                let mut due = attempts();
                loop {
                    due.tick().await;
                    while self.ask().await.is_ok() {}
                }
            }
        }
    }

    async fn dial(&self) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(self.from)?;
        socket.connect(self.server).await
    }

    async fn open(&mut self, verb: Verb) -> Result<(ControlChannel, Opened, u32), ControlError> {
        let trust = Arc::new(HostTrust::Pinned(vec![self.fingerprint]));
        let session = self.rng.next_u64() as u32;
        let stream = self.dial().await.map_err(ControlError::Lost)?;
        let (channel, opened) =
            open(stream, self.server, (&self.identity, &trust), verb, session).await?;
        Ok((channel, opened, session))
    }

    async fn leave(&mut self) -> Result<()> {
        let mut held = VecDeque::new();
        let mut due = tokio::time::interval(Duration::from_millis(500));
        loop {
            due.tick().await;
            held.extend(self.open(Verb::Get { path: BIG.into() }).await.ok());
            if held.len() > HELD {
                held.pop_front();
            }
        }
    }

    async fn lie(&mut self) -> Result<()> {
        let lie = match self.kind {
            Kind::Trickle => Lie {
                rate: Rate::from_bps(12_000),
                offer: Rate::UNLIMITED,
                units: 1 << 20,
                every: Span::from_secs(3_600),
            },
            Kind::Lazy => Lie {
                rate: Rate::from_mbps(1_000),
                offer: Rate::UNLIMITED,
                units: 4,
                every: Span::from_millis(100),
            },
            _ => Lie { rate: Rate::ZERO, offer: Rate::ZERO, units: 0, every: Span::from_secs(1) },
        };
        let (mut channel, opened, session) = self.open(Verb::Get { path: BIG.into() }).await?;
        let moved = Arc::clone(&self.moved);
        let from = (self.from, lie, &*moved);
        let liar = Liar::new(&mut channel, &opened, session, from).await?;
        tokio::select! {
            ended = liar.run() => ended,
            ended = hear(&mut channel) => ended.map_err(Into::into),
        }
    }

    async fn ask(&mut self) -> Result<(), ControlError> {
        match self.kind {
            Kind::List => {
                let (mut channel, _, _) = self.open(Verb::List { path: LISTED.into() }).await?;
                while !matches!(channel.recv().await?, Message::ListingEnd(_)) {}
                Ok(())
            }
            Kind::Hash => {
                let (mut channel, _, _) = self.open(Verb::Get { path: HASHED.into() }).await?;
                while !matches!(channel.recv().await?, Message::ManifestEnd(_)) {}
                loop {
                    let first_file = self.rng.below(HASHED_FILES as u64);
                    let wanted = RootsWanted { first_file, files: 1 };
                    channel.send(&Message::RootsWanted(wanted)).await?;
                    while !matches!(channel.recv().await?, Message::Roots(_)) {}
                }
            }
            _ => {
                let (channel, _, _) = self.open(Verb::Get { path: BIG.into() }).await?;
                let (mut sends, mut receives) = channel.into_split();
                let says = async {
                    loop {
                        if let Err(error) = sends.send(&Message::Keepalive).await {
                            return error;
                        }
                    }
                };
                let hears = async {
                    loop {
                        if let Err(error) = receives.recv().await {
                            return error;
                        }
                    }
                };
                tokio::select! { error = says => Err(error), error = hears => Err(error) }
            }
        }
    }

    async fn flood(&mut self) -> Result<()> {
        let socket = UdpSocket::bind(self.from).await?;
        let mut due = tokio::time::interval(Duration::from_millis(10));
        loop {
            due.tick().await;
            for number in 0..5 {
                let datagram = if number % 2 == 0 { self.noise(1_200) } else { self.hello() };
                // A datagram that finds no room in the buffer is lost, as it may be on any path.
                let _ = socket.try_send_to(&datagram, self.server);
            }
        }
    }

    async fn babble(&mut self) -> Result<()> {
        let socket = UdpSocket::bind(self.from).await?;
        let mut held = VecDeque::new();
        let mut due = tokio::time::interval(Duration::from_millis(50));
        loop {
            due.tick().await;
            let length = self.rng.below(600) as usize;
            let _ = socket.try_send_to(&self.noise(length), self.server);
            if let Ok(mut stream) = self.dial().await {
                let _ = stream.write_all(&self.noise(length)).await;
                held.push_back(stream);
            }
            if held.len() > HELD {
                held.pop_front();
            }
        }
    }

    fn noise(&mut self, length: usize) -> Vec<u8> {
        let rng = &mut self.rng;
        std::iter::repeat_with(|| rng.next_u64().to_le_bytes()).flatten().take(length).collect()
    }

    /// Returns a hello in the right format, of a session that does not exist.
    fn hello(&mut self) -> Vec<u8> {
        let (session, pn) = (self.rng.next_u64() as u32, self.rng.below(1_000));
        let mut datagram = Vec::new();
        Header { kind: Datagram::Hello, session, pn }.encode(&mut datagram);
        datagram.extend(self.noise(1_200));
        datagram
    }
}

/// The times at which an attacker may try again.
fn attempts() -> Interval {
    let mut due = tokio::time::interval(AGAIN);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    due
}

/// Opens a session over a connection, as the protocol asks.
///
/// # Errors
/// If the server refuses, or is gone.
pub(super) async fn open(
    stream: TcpStream,
    server: SocketAddr,
    (identity, trust): (&Identity, &Arc<HostTrust>),
    verb: Verb,
    client_session: u32,
) -> Result<(ControlChannel, Opened), ControlError> {
    let unparsed = |_| ControlError::Unexpected("an address that is none".into());
    let address: HostAddress = server.to_string().parse().map_err(unparsed)?;
    let mut channel = ControlChannel::client_over(stream, &address, identity, trust).await?;
    let open = Open {
        version: VERSION,
        verb,
        suites: SuiteList(Suite::by_preference().map(Suite::code).to_vec()),
        law: Law::Grant,
        weight_milli: 1_000,
        unit_payload_max: 1_400,
        client_session,
        interval_us: None,
        path: None,
        ticket: None,
        relay: None,
    };
    let opened = channel.open(open).await?;
    Ok((channel, opened))
}

/// Reads a server's messages and ignores them.
///
/// # Errors
/// How the connection ended, which it does in the end.
async fn hear(channel: &mut ControlChannel) -> Result<(), ControlError> {
    loop {
        channel.recv().await?;
    }
}
