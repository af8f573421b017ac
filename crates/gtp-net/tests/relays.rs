//! What a server that gives blocks on lets nobody have: without a ticket, with one for something
//! else, with one that the sender of the object has not signed, or of no transfer that runs.

#![allow(clippy::single_range_in_vec_init)] // Lists of ranges of which one has one.

#[path = "common/quick.rs"]
mod quick;

use std::path::PathBuf;
use std::sync::Arc;

use gtp_net::control::{ControlChannel, ControlError};
use gtp_net::flows::FailureKind;
use gtp_net::identity::{Fingerprint, Identity};
use gtp_net::messages::{
    BlockRanges, Entry, EntryKind, Message, Open, Page, PagesEnd, Reason, RelayGive, RelayJoin,
    RelayPeer, Verb,
};
use gtp_net::server::{Admission, Reach, ServeConfig, Server, Writing};
use gtp_net::ticket::{Allowed, Purpose, Ticket};
use gtp_net::trust::{HostTrust, Strangers};
use quick::host;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};

#[path = "hostile/mod.rs"]
mod hostile;

use hostile::an_open;

const TRANSFER: [u8; 16] = [3; 16];

/// A server that relays, and whoever may write there.
struct World {
    address: std::net::SocketAddr,
    server: Fingerprint,
    client: Identity,
    sink: Identity,
    dir: TempDir,
    _stop: watch::Sender<bool>,
}

impl World {
    async fn new() -> World {
        let (dir, identity, client) =
            (tempfile::tempdir().unwrap(), Identity::generate(), Identity::generate());
        let list = dir.path().join("keys");
        std::fs::write(&list, format!("{} write\n", client.fingerprint())).unwrap();
        let export = dir.path().join("export");
        std::fs::create_dir(&export).unwrap();
        let admission = Admission::File { path: list, strangers: Strangers::Refused };
        let config = ServeConfig {
            writing: Writing::Allowed,
            third_party: vec!["127.0.0.0/8:1-65535".parse::<Reach>().unwrap()],
            ..ServeConfig::new(export, "127.0.0.1:0".parse().unwrap(), admission)
        };
        let (tell, mut events) = mpsc::channel(64);
        tokio::spawn(async move { while events.recv().await.is_some() {} });
        let server = Server::bind(host(), &identity, config, tell).await.unwrap();
        let (address, key) = (server.address(), server.fingerprint());
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(server.run(stopped));
        let sink = Identity::generate();
        World { address, server: key, client, sink, dir, _stop: stop }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("export").join(name)
    }

    /// What the client signs for the sink to read blocks of `f`.
    fn allowed(&self) -> Allowed {
        let begins_s = gtp_sys::clock::unix_seconds();
        let (server, holder, path) = (self.server, self.sink.fingerprint(), b"f".to_vec());
        Allowed { server, holder, path, begins_s, ends_s: begins_s + 300 }
    }

    async fn connect(&self, as_whom: &Identity) -> ControlChannel {
        let trust = Arc::new(HostTrust::Pinned(vec![self.server]));
        let address = self.address.to_string().parse().unwrap();
        ControlChannel::connect(&address, as_whom, &trust).await.unwrap()
    }

    /// Asks for blocks of `path`, and says why not, if so.
    async fn ask(&self, path: &str, transfer: [u8; 16], ticket: Option<Vec<u8>>) -> Option<Reason> {
        let mut channel = self.connect(&self.sink).await;
        let verb = Verb::Relay { path: path.into(), transfer };
        match channel.open(Open { ticket, ..an_open(verb) }).await {
            Ok(_) => None,
            Err(ControlError::Refused { reason, .. }) => Some(reason),
            Err(ControlError::NotAuthorised(_)) => Some(Reason::NotAuthorised),
            Err(other) => panic!("{other}"),
        }
    }

    fn signed(&self, by: &Identity, allowed: &Allowed) -> Option<Vec<u8>> {
        // A ticket opens eight sessions.
        let number = u128::from(gtp_sys::entropy::u64()).to_be_bytes();
        Some(Ticket::sign_for(Purpose::Relay, by, allowed, number))
    }

    /// Begins to put a file of two blocks to `f`, which is relayed, and sends none of it.
    async fn put(&self) -> ControlChannel {
        let mut channel = self.connect(&self.client).await;
        let verb = Verb::Put { path: b"f".to_vec() };
        let opened = channel.open(Open { relay: Some(true), ..an_open(verb) }).await.unwrap();
        assert!(opened.relays.is_some());
        let join = RelayJoin { transfer: TRANSFER, number: 0 };
        channel.send(&Message::RelayJoin(join)).await.unwrap();
        let entry = Entry {
            path: Vec::new(),
            kind: EntryKind::File,
            size: 2 * 262_144,
            mode: 0o644,
            mtime_s: 0,
            mtime_ns: 0,
        };
        let end = PagesEnd { entries_total: 1, content_bytes: entry.size };
        channel.send(&Message::ManifestPage(Page { entries: vec![entry] })).await.unwrap();
        channel.send(&Message::ManifestEnd(end)).await.unwrap();
        assert!(matches!(channel.recv().await.unwrap(), Message::Ready(_)));
        channel
    }
}

#[tokio::test]
async fn blocks_are_given_on_to_whom_the_sender_has_signed_for_while_the_sender_sends() {
    let world = World::new().await;
    let good = || world.signed(&world.client, &world.allowed());
    assert_eq!(world.ask("f", TRANSFER, good()).await, Some(Reason::Busy), "nothing is sent yet");
    let putting = world.put().await;
    assert_eq!(world.ask("f", TRANSFER, good()).await, None);
    let refused = Some(Reason::NotAuthorised);
    assert_eq!(world.ask("f", TRANSFER, None).await, refused, "no ticket");
    let get = Some(Ticket::sign(&world.client, &world.allowed(), [7; 16]));
    assert_eq!(world.ask("f", TRANSFER, get).await, refused, "a ticket for the file itself");
    assert_eq!(world.ask("g", TRANSFER, good()).await, refused, "another path");
    let other = Allowed { holder: Identity::generate().fingerprint(), ..world.allowed() };
    assert_eq!(world.ask("f", TRANSFER, world.signed(&world.client, &other)).await, refused);
    let own = world.signed(&world.sink, &world.allowed());
    assert_eq!(world.ask("f", TRANSFER, own).await, refused, "it may not write here itself");
    let busy = Some(Reason::Busy);
    assert_eq!(world.ask("f", [4; 16], good()).await, busy, "another transfer of the client's");
    drop(putting);
    let mut left = 100;
    while world.ask("f", TRANSFER, good()).await != busy {
        left -= 1;
        assert!(left > 0, "it is given on although nobody sends it");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_ticket_for_blocks_opens_no_file_and_what_lay_at_the_path_is_not_given_on() {
    let world = World::new().await;
    std::fs::write(world.path("f"), vec![1; 2 * 262_144]).unwrap();
    let _putting = world.put().await;
    let mut channel = world.connect(&world.sink).await;
    let verb = Verb::Get { path: b"f".to_vec() };
    let ticket = world.signed(&world.client, &world.allowed());
    let opened = channel.open(Open { ticket, ..an_open(verb) }).await;
    let failure = gtp_net::flows::Failure::from(opened.unwrap_err());
    assert_eq!(failure.kind, FailureKind::Authentication, "{failure}");
    let mut channel = world.connect(&world.sink).await;
    let verb = Verb::Relay { path: b"f".to_vec(), transfer: TRANSFER };
    let ticket = world.signed(&world.client, &world.allowed());
    channel.open(Open { ticket, ..an_open(verb) }).await.unwrap();
    let heard = tokio::time::timeout(std::time::Duration::from_millis(300), channel.recv()).await;
    assert!(heard.is_err(), "nothing is here: {heard:?}");
}

#[tokio::test]
async fn a_client_has_a_sink_connect_only_to_whom_it_has_signed_for_itself() {
    let world = World::new().await;
    let mut putting = world.put().await;
    let give = RelayGive { blocks: BlockRanges(vec![0..1]) };
    putting.send(&Message::RelayGive(give)).await.unwrap();
    // A ticket that somebody else has signed for this server to read elsewhere.
    let allowed = Allowed { holder: world.server, ..world.allowed() };
    let ticket = Ticket::sign_for(Purpose::Relay, &world.sink, &allowed, [1; 16]);
    let host = "127.0.0.1:9".to_owned();
    putting.send(&Message::RelayPeer(RelayPeer { number: 1, host, ticket })).await.unwrap();
    let fault = loop {
        match putting.recv().await.unwrap() {
            Message::Fault(fault) => break fault,
            Message::RelayHave(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fault.reason, Reason::NotAuthorised);
}
