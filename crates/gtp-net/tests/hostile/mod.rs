//! Peers that keep no rule: TLS by the book, and then whatever a test says.
#![allow(dead_code)] // Each test file uses a part of it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::{Bytes, Rate};
use gtp_net::client::{
    self, Endpoint, Event, GetRequest, Monitor, Outcome, Place, Progress, Terms, Udp, Url,
};
use gtp_net::crypto::Suite;
use gtp_net::engine::{Host, HostConfig};
use gtp_net::flows::{Failure, Law};
use gtp_net::identity::Identity;
use gtp_net::messages::{
    CONTENT_MAX, Entry, EntryKind, LENGTH_BYTES, Message, Open, Opened, Page, PagesEnd, SuiteList,
    VERSION, Verb,
};
use gtp_net::tls::server_config;
use gtp_net::trust::HostTrust;
use gtp_store::SinkOptions;
use minicbor::Encode;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::server::TlsStream;

/// Nothing here takes longer than a part of this.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn host() -> Host {
    let (capacity_out, capacity_in) = (Rate::from_mbps(200), Rate::from_mbps(200));
    Host::start(HostConfig {
        capacity_out,
        capacity_in,
        interval: None,
        memory: Bytes(64 << 20),
        engines: 1,
    })
    .unwrap()
}

/// A server that says what a test says.
pub struct Liar {
    pub listener: TcpListener,
    pub identity: Identity,
}

/// The liar's end of a connection: frames, and anything else.
pub struct Raw {
    stream: TlsStream<TcpStream>,
}

impl Liar {
    pub async fn new() -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Liar { listener, identity: Identity::generate() }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub fn url(&self, path: &str) -> Url {
        format!("gtp://{}/{path}", self.address()).parse().unwrap()
    }

    /// Waits for a client and its first message.
    pub async fn meet(&self) -> (Raw, Open) {
        let (stream, _) = self.listener.accept().await.unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(server_config(&self.identity));
        let mut raw = Raw { stream: acceptor.accept(stream).await.unwrap() };
        match raw.hear().await {
            Some(Message::Open(open)) => (raw, open),
            other => panic!("no client begins so: {other:?}"),
        }
    }
}

impl Raw {
    /// Sends bytes; whether the client is still there.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok()
    }

    pub async fn say(&mut self, message: &Message) -> bool {
        self.send(&message.to_frame().unwrap()).await
    }

    pub async fn hear(&mut self) -> Option<Message> {
        let length = self.stream.read_u32().await.ok()?;
        let mut frame = vec![0; length as usize];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(Message::parse(&frame).unwrap())
    }

    /// Waits until the client is gone.
    pub async fn linger(mut self) {
        while self.hear().await.is_some() {}
    }
}

/// A frame whose body nobody has checked.
pub fn unchecked(kind: u8, body: &impl Encode<()>) -> Vec<u8> {
    framed(kind, &minicbor::to_vec(body).unwrap())
}

/// A frame around any bytes.
pub fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(1 + body.len()).unwrap();
    let mut frame = length.to_be_bytes().to_vec();
    assert_eq!(frame.len(), LENGTH_BYTES);
    frame.push(kind);
    frame.extend_from_slice(body);
    frame
}

/// Returns what an ordinary client asks for to open a session.
pub fn an_open(verb: Verb) -> Open {
    Open {
        version: VERSION,
        verb,
        suites: SuiteList(Suite::by_preference().map(Suite::code).to_vec()),
        law: gtp_net::messages::Law::Grant,
        weight_milli: 1_000,
        unit_payload_max: 1_400,
        client_session: 9,
        interval_us: None,
        path: None,
        ticket: None,
        relay: None,
    }
}

/// An honest answer to a client.
pub fn an_opened(open: &Open, object: EntryKind) -> Opened {
    Opened {
        version: VERSION,
        server_session: 7,
        suite: open.suites.0[0],
        unit_payload: open.unit_payload_max,
        udp_port: 4_810,
        object: Some(object),
        entries_total: 0,
        content_bytes: 0,
        weight_milli: 1_000,
        interval_us: 20_000,
        path: None,
        law: None,
        by_ticket: None,
        relays: None,
        time_s: None,
    }
}

pub fn entry(path: &[u8], kind: EntryKind, size: u64) -> Entry {
    Entry { path: path.to_vec(), kind, size, mode: 0o644, mtime_s: 0, mtime_ns: 0 }
}

pub fn file(path: &[u8]) -> Entry {
    entry(path, EntryKind::File, 10)
}

/// The pages of a listing, unchecked, and an end with its true sums as far as they may be said.
pub fn listing(entries: Vec<Entry>) -> Vec<u8> {
    let total = entries.len() as u64;
    let content_bytes = entries.iter().fold(0, |sum: u64, e| sum.saturating_add(e.size));
    let content_bytes = content_bytes.min(CONTENT_MAX);
    let mut frames = unchecked(4, &Page { entries });
    frames.extend(unchecked(5, &PagesEnd { entries_total: total, content_bytes }));
    frames
}

/// A client in a directory of its own.
pub struct Client {
    pub endpoint: Arc<Endpoint>,
    pub patience: Duration,
    pub udp: Udp,
    pub law: Law,
    dir: TempDir,
}

impl Client {
    pub fn new() -> Client {
        Client {
            endpoint: Endpoint::new(host(), Identity::generate(), None),
            patience: Duration::from_millis(1_500),
            udp: Udp::Only,
            law: Law::Grant,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Whether nothing at all was written.
    pub fn is_untouched(&self) -> bool {
        std::fs::read_dir(self.dir.path()).unwrap().next().is_none()
    }

    pub fn terms(&self, server: &Identity) -> Terms {
        let mut terms = Terms::new(HostTrust::Pinned(vec![server.fingerprint()]));
        terms.patience = self.patience;
        terms.udp = self.udp;
        terms.law = self.law;
        terms
    }

    /// Fetches into `out`.
    pub async fn get(&self, url: Url, server: &Identity) -> Result<Outcome, Failure> {
        let (events, _heard) = mpsc::unbounded_channel();
        self.get_all(vec![url], self.terms(server), events).await
    }

    /// Fetches into `out` from several.
    pub async fn get_all(
        &self,
        sources: Vec<Url>,
        terms: Terms,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Outcome, Failure> {
        let options = SinkOptions::default();
        let place = Place::Path { path: self.path("out"), options, naming: Default::default() };
        let request = GetRequest { sources, terms, place, expected: None };
        let (_stop, stop) = watch::channel(None);
        let monitor = Monitor { events, progress: watch::Sender::new(Progress::default()), stop };
        let getting = client::get(Arc::clone(&self.endpoint), request, monitor);
        tokio::time::timeout(PATIENCE, getting).await.expect("it ends in time")
    }
}

/// Everything beneath a directory, for before and after.
pub fn tree(root: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&path));
            found.push((path, None));
        } else {
            found.push((path.clone(), std::fs::read(&path).ok()));
        }
    }
    found.sort();
    found
}
