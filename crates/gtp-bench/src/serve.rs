//! The end that gives: anyone may fetch its content, which is no secret.
//!
//! A client opens as many control channels as it wants sessions; each is answered with a session
//! over the same content. Nothing is read from any disk.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::Rate;
use gtp_net::control::ControlChannel;
use gtp_net::crypto::Suite;
use gtp_net::engine::{Calls, Host, Law, SessionKeys, SessionOpen, SocketId, SourceOpen};
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::{Fingerprint, Identity};
use gtp_net::messages::{EntryKind, Message, Open, Opened, Reason, VERSION, Verb};
use gtp_net::tls;
use gtp_proto::limits::UNIT_JUMBO;
use gtp_proto::{PathUse, Revision, Role};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use crate::cpu::cpu_seconds;
use crate::memory::{Content, MemorySource, Object};
use crate::setup::Ends;

/// The path that a client asks for.
pub(crate) const PATH: &[u8] = b"bench";
/// After an attempt to accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Sessions at a time; the connections of more are closed.
pub(crate) const SESSIONS_MOST: usize = 64;
/// What is named where neither end has an interval of its own; it follows the round-trip time.
const INTERVAL_US: u32 = 20_000;

/// What to serve, and where.
#[derive(Clone, Copy, Debug)]
pub struct Serve {
    /// TCP and UDP; port 0 takes one that is free.
    pub listen: SocketAddr,
    /// Bytes of distinct content, held in memory.
    pub bytes: u64,
    /// How often it is moved in one run.
    pub times: u32,
}

/// A server that listens.
pub struct Server {
    shared: Arc<Shared>,
    listener: TcpListener,
    identity: Identity,
    address: SocketAddr,
}

struct Shared {
    host: Host,
    socket: SocketId,
    port: u16,
    content: Arc<Content>,
    seats: Arc<Semaphore>,
}

/// One session has ended.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// The client.
    pub client: SocketAddr,
    /// IP bytes sent.
    pub wire_bytes: u64,
    /// What this process has used of the processors since the session began.
    pub cpu_s: f64,
    /// What its engines' threads asked of the kernel since then.
    pub calls: Calls,
    /// Whether the client said that it has everything.
    pub complete: bool,
}

impl Server {
    /// Makes the content and listens. The engine is the caller's, with its capacities.
    ///
    /// # Errors
    /// When the sizes are beyond the limits or the address is not to be had.
    pub async fn bind(ends: Ends, serve: Serve) -> Result<Server, Failure> {
        let Ends { host, identity, .. } = ends;
        let object = Object::new(serve.bytes, serve.times).map_err(usage)?;
        let content = Content::make(object).map_err(other)?;
        let listener = TcpListener::bind(serve.listen).await.map_err(other)?;
        let address = listener.local_addr().map_err(other)?;
        let (socket, _) = host.bind_udp_everywhere(address).map_err(other)?;
        let shared = Shared {
            host,
            socket,
            port: address.port(),
            content: Arc::new(content),
            seats: Arc::new(Semaphore::new(SESSIONS_MOST)),
        };
        Ok(Server { shared: Arc::new(shared), listener, identity, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The key that clients see.
    pub fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint()
    }

    /// Serves for ever; `ended` hears of each session's end.
    pub async fn run(self, ended: mpsc::UnboundedSender<Served>) {
        let tls = tls::server_config(&self.identity);
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // Out of descriptors, or a caller has gone again: those that are here go on.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(seat) = Arc::clone(&self.shared.seats).try_acquire_owned() else { continue };
            let (shared, tls, ended) = (Arc::clone(&self.shared), Arc::clone(&tls), ended.clone());
            tokio::spawn(async move {
                let _seat = seat;
                // Whoever does not speak this protocol is not answered.
                if let Ok((channel, open)) = ControlChannel::accept(stream, &tls).await {
                    give(&shared, channel, open, &ended).await;
                }
            });
        }
    }
}

/// Serves one client's session to its end.
async fn give(
    shared: &Shared,
    mut channel: ControlChannel,
    open: Open,
    ended: &mpsc::UnboundedSender<Served>,
) {
    let (began, calls_began) = (cpu_seconds(), shared.host.calls());
    let suite = Suite::choose(&open.suites.0, &Suite::by_preference());
    let (Verb::Get { path }, Some(suite)) = (&open.verb, suite) else {
        return channel.refuse(Reason::Other, "this server only measures").await;
    };
    if path != PATH {
        return channel.refuse(Reason::Missing, "this server only measures").await;
    }
    let host = shared.host.least_busy();
    let Ok(session) = session((&host, shared), &mut channel, &open, suite) else { return };
    let opened = opened(shared, &open, &session, suite);
    let source = Box::new(MemorySource(Arc::clone(&shared.content)));
    let handle = host.open_source(SourceOpen { session, source });
    let client = channel.ends().remote;
    let told = channel.send(&Message::Opened(opened)).await.is_ok();
    // Whatever else the client says, or that it is gone, is an end too.
    let complete = told && matches!(channel.recv().await, Ok(Message::Done(_)));
    let wire_bytes = handle.progress().wire_bytes;
    handle.close();
    channel.close().await;
    let used = |began: f64| cpu_seconds().map(|now| now - began);
    let cpu_s = began.and_then(used).unwrap_or(f64::NAN);
    // Nobody need listen.
    let calls = shared.host.calls() - calls_began;
    let _ = ended.send(Served { client, wire_bytes, cpu_s, calls, complete });
}

fn session(
    (host, shared): (&Host, &Shared),
    channel: &mut ControlChannel,
    open: &Open,
    suite: Suite,
) -> Result<SessionOpen, Failure> {
    let number = host.new_session_id();
    let secrets = channel.data_secrets(number, open.client_session)?;
    Ok(SessionOpen {
        socket: shared.socket,
        peer: channel.ends().remote,
        local_session: number,
        peer_session: open.client_session,
        keys: SessionKeys { suite, seal: secrets.send, open: secrets.receive },
        revision: Revision::NEWEST,
        role: Role::Responder,
        law: Law::Grant,
        weights: gtp_proto::Weights::ONE,
        path: PathUse::default(),
        max_rate: Rate::UNLIMITED,
        principal: 0,
        allowance: gtp_net::engine::Allowance::default(),
        label: channel.ends().remote.to_string(),
    })
}

fn opened(shared: &Shared, open: &Open, session: &SessionOpen, suite: Suite) -> Opened {
    let object = shared.content.object();
    Opened {
        version: VERSION,
        server_session: session.local_session,
        suite: suite.code(),
        unit_payload: open.unit_payload_max.min(UNIT_JUMBO),
        udp_port: shared.port,
        object: Some(EntryKind::Directory),
        entries_total: u64::from(object.times),
        content_bytes: object.total(),
        weight_milli: open.weight_milli,
        interval_us: open.interval_us.unwrap_or(INTERVAL_US),
        path: None,
        law: None,
        by_ticket: None,
        relays: None,
        time_s: None,
    }
}

pub(crate) fn other(error: impl ToString) -> Failure {
    Failure::new(FailureKind::Other, error.to_string())
}

pub(crate) fn usage(error: String) -> Failure {
    Failure::new(FailureKind::Usage, error)
}
