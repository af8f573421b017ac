//! Clients that ask for what they must not have, against the real server: each is refused in
//! words, nothing outside the export is read or written, and the server goes on for others.

mod hostile;
#[path = "hostile/raw_client.rs"]
mod raw_client;

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use gtp_alloc::{Bytes, Rate};
use gtp_net::control::{ControlChannel, ControlError};
use gtp_net::crypto::Suite;
use gtp_net::identity::Identity;
use gtp_net::messages::{
    Entry, EntryKind, Law, Message, Open, Opened, Page, PagesEnd, Reason, RootsWanted, SuiteList,
    VERSION, Verb,
};
use gtp_net::server::{Admission, Limits, ServeConfig, Server, ServerEvent, Writing};
use gtp_net::trust::{AuthorizedKeys, ClientTrust, HostAddress, HostTrust, Strangers};
use gtp_store::SinkOptions;
use hostile::{Client, entry, file, host, tree, unchecked};
use raw_client::RawClient;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

/// A server of a directory that has a secret beside it, and a link to the secret in it.
struct World {
    dir: TempDir,
    address: SocketAddr,
    identity: Identity,
    /// A client that may do all.
    friend: Identity,
    events: mpsc::UnboundedReceiver<ServerEvent>,
    _stop: watch::Sender<bool>,
}

impl World {
    async fn new(writing: Writing, limits: Limits) -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["export", "export/d", "outside"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        for name in ["export/a", "export/d/b", "secret", "outside/secret"] {
            std::fs::write(path(name), name).unwrap();
        }
        symlink(path("outside"), path("export/link")).unwrap();
        symlink(path("secret"), path("export/file-link")).unwrap();
        let (identity, friend) = (Identity::generate(), Identity::generate());
        std::fs::write(path("keys"), format!("{}\n", friend.fingerprint())).unwrap();
        let keys = AuthorizedKeys::load(&path("keys")).unwrap();
        let config = ServeConfig {
            root: path("export"),
            listen: "127.0.0.1:0".parse().unwrap(),
            admission: Admission::Fixed(ClientTrust { keys, strangers: Strangers::MayRead }),
            writing,
            limits,
            max_rate: Rate::UNLIMITED,
            alone: Vec::new(),
            interval: None,
            sink_options: SinkOptions::default(),
        };
        let (tell, events) = mpsc::unbounded_channel();
        let server = Server::bind(host(), &identity, config, tell).await.unwrap();
        let address = server.address();
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(server.run(stopping));
        World { dir, address, identity, friend, events, _stop: stop }
    }

    /// A channel to the server, by the book up to here.
    async fn connect(&self, identity: &Identity) -> Result<ControlChannel, ControlError> {
        let trust = Arc::new(HostTrust::Pinned(vec![self.identity.fingerprint()]));
        let address: HostAddress = self.address.to_string().parse().unwrap();
        ControlChannel::connect(&address, identity, &trust).await
    }

    async fn ask(
        &self,
        identity: &Identity,
        verb: Verb,
    ) -> Result<(ControlChannel, Opened), ControlError> {
        let mut channel = self.connect(identity).await?;
        let opened = channel.open(an_open(verb)).await?;
        Ok((channel, opened))
    }

    /// An honest client still gets what it asks for.
    async fn still_serves(&self) {
        let mut client = Client::new();
        client.patience = hostile::PATIENCE;
        let url = format!("gtp://{}/a", self.address).parse().unwrap();
        client.get(url, &self.identity).await.unwrap();
        assert_eq!(std::fs::read(client.path("out")).unwrap(), b"export/a");
    }

    fn files(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        tree(self.dir.path())
    }
}

fn an_open(verb: Verb) -> Open {
    Open {
        version: VERSION,
        verb,
        suites: SuiteList(Suite::by_preference().map(Suite::code).to_vec()),
        law: Law::Grant,
        weight_milli: 1_000,
        unit_payload_max: 1_400,
        client_session: 9,
        interval_us: None,
    }
}

fn get(path: &[u8]) -> Verb {
    Verb::Get { path: path.to_vec() }
}

/// Paths that lead out of the export, or would.
const ESCAPES: [&[u8]; 14] = [
    b"..",
    b"../secret",
    b"d/../../secret",
    b"d/..",
    b"./a",
    b"/etc/hostname",
    b"//etc/hostname",
    b"link/secret",
    b"file-link",
    b"d/../link/secret",
    b"a\0b",
    b"..\0",
    b"\xff",
    b"a/b",
];

#[tokio::test]
async fn paths_that_leave_the_export_are_refused_for_every_verb() {
    let world = World::new(Writing::Allowed, Limits::default()).await;
    let before = world.files();
    for path in ESCAPES {
        let path = path.to_vec();
        let verbs =
            [get(&path), Verb::List { path: path.clone() }, Verb::Put { path: path.clone() }];
        for verb in verbs {
            let put = matches!(verb, Verb::Put { .. });
            match world.ask(&world.friend, verb.clone()).await {
                Err(ControlError::Refused { reason, text }) => {
                    let said = text.to_string();
                    assert!(!said.is_empty() && !said.contains(char::is_control), "{said:?}");
                    assert!(
                        matches!(
                            reason,
                            Reason::Missing
                                | Reason::Destination
                                | Reason::Unreadable
                                | Reason::Other
                        ),
                        "{verb:?}: {reason:?}"
                    );
                }
                // What a link is called is a name like others; only its listing can tell.
                Ok((mut channel, opened)) if put && path == b"file-link" => {
                    assert_eq!(opened.object, Some(EntryKind::File));
                    let page = Page { entries: vec![file(b"")] };
                    channel.send(&Message::ManifestPage(page)).await.unwrap();
                    let end = PagesEnd { entries_total: 1, content_bytes: 10 };
                    channel.send(&Message::ManifestEnd(end)).await.unwrap();
                    let said = channel.recv().await.unwrap();
                    assert!(matches!(said, Message::Fault(_)), "{said:?}");
                }
                other => panic!("{verb:?}: {:?}", other.map(|(_, opened)| opened)),
            }
        }
    }
    assert!(world.files() == before);
    world.still_serves().await;
}

#[tokio::test]
async fn who_may_not_write_cannot_put() {
    let reading = World::new(Writing::Refused, Limits::default()).await;
    let put = || Verb::Put { path: b"new".to_vec() };
    match reading.ask(&reading.friend, put()).await.map(|(_, opened)| opened) {
        Err(ControlError::Refused { reason: Reason::Permission, .. }) => {}
        other => panic!("{other:?}"),
    }
    let writing = World::new(Writing::Allowed, Limits::default()).await;
    let stranger = Identity::generate();
    match writing.ask(&stranger, put()).await.map(|(_, opened)| opened) {
        Err(ControlError::NotAuthorised(text)) => {
            assert!(text.to_string().contains(&stranger.fingerprint().to_string()), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!writing.dir.path().join("export/new").exists());
}

/// Sends a listing into the export; the server's last word.
async fn put_listing(world: &World, path: &[u8], entries: Vec<Entry>) -> Option<Message> {
    let verb = Verb::Put { path: path.to_vec() };
    let (mut channel, _) = world.ask(&world.friend, verb).await.unwrap();
    let end = PagesEnd {
        entries_total: entries.len() as u64,
        content_bytes: entries.iter().map(|e| e.size).sum(),
    };
    let page = Message::ManifestPage(Page { entries });
    channel.send(&page).await.unwrap();
    // It may have said no to the page already.
    let _ = channel.send(&Message::ManifestEnd(end)).await;
    channel.recv().await.ok()
}

#[tokio::test]
async fn listings_that_would_write_elsewhere_are_refused_and_leave_nothing() {
    let world = World::new(Writing::Allowed, Limits::default()).await;
    let before = world.files();
    let dir = |path: &[u8]| entry(path, EntryKind::Directory, 0);
    let listings: [Vec<Entry>; 16] = [
        vec![file(b"../secret")],
        vec![file(b"..")],
        vec![dir(b"x"), file(b"x/../../secret")],
        vec![file(b"/etc/gtp-was-here")],
        vec![file(b"x\0y")],
        vec![file(b"x\ny")],
        vec![file(&[b'x'; 256])],
        vec![file(b"\xff")],
        vec![file(b"x"), file(b"x")],
        vec![file(b"y"), file(b"x")],
        vec![file(b"x"), file(b"x/y")],
        vec![file(b"new/x")],
        vec![file(b"x.gtp-part")],
        vec![file(b"link/secret")],
        vec![dir(b"link"), file(b"link/secret")],
        vec![dir(b"a"), file(b"a/b")],
    ];
    for entries in listings {
        let said = put_listing(&world, b"", entries.clone()).await;
        match said {
            Some(Message::Fault(fault)) => {
                let text = fault.text.to_string();
                assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
            }
            other => panic!("{entries:?}: {other:?}"),
        }
        assert!(world.files() == before, "{entries:?}");
    }
    world.still_serves().await;
}

#[tokio::test]
async fn a_file_of_absurd_size_takes_no_space_before_its_bytes_come() {
    use std::os::unix::fs::MetadataExt;
    let world = World::new(Writing::Allowed, Limits::default()).await;
    let used = || {
        let mut blocks = 0;
        let mut dirs = vec![world.dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let meta = entry.metadata().unwrap();
                blocks += meta.blocks();
                dirs.extend(meta.is_dir().then(|| entry.path()));
            }
        }
        blocks * 512
    };
    let before = used();
    let huge = vec![entry(b"huge", EntryKind::File, 1 << 58)];
    let said = put_listing(&world, b"", huge).await;
    assert!(matches!(said, Some(Message::Ready | Message::Fault(_))), "{said:?}");
    assert!(used() < before + (1 << 20));
    world.still_serves().await;
}

#[tokio::test]
async fn absurd_wishes_are_refused_in_words_and_extreme_ones_are_cut() {
    type Change = fn(&mut Open);
    let absurd: [Change; 13] = [
        |o| o.unit_payload_max = 0,
        |o| o.unit_payload_max = u16::MAX,
        |o| o.weight_milli = 0,
        |o| o.weight_milli = u32::MAX,
        |o| o.interval_us = Some(0),
        |o| o.interval_us = Some(u32::MAX),
        |o| o.law = Law::EndNode { alpha: f64::NAN, beta: 0.5 },
        |o| o.law = Law::EndNode { alpha: 0.0, beta: 0.5 },
        |o| o.law = Law::EndNode { alpha: 0.5, beta: f64::INFINITY },
        |o| o.suites = SuiteList(vec![]),
        |o| o.suites = SuiteList(vec![1; 9]),
        |o| o.suites = SuiteList(vec![200]),
        |o| o.verb = get(&[b'x'; 5_000]),
    ];
    let world = World::new(Writing::Refused, Limits::default()).await;
    for (number, change) in absurd.into_iter().enumerate() {
        let mut open = an_open(get(b"a"));
        change(&mut open);
        let mut client = RawClient::connect(world.address).await;
        client.send(&unchecked(1, &open)).await;
        match client.hear().await {
            Some(Message::Refused(refused)) => {
                let expected = [Reason::Unexpected, Reason::Version].contains(&refused.reason);
                assert!(expected, "{number}: {refused:?}");
            }
            other => panic!("{number}: {other:?}"),
        }
        assert_eq!(client.hear().await, None);
    }
    for longest in [1_180, 8_900] {
        let mut open = an_open(get(b"a"));
        (open.unit_payload_max, open.weight_milli) = (longest, 1_000_000);
        let mut channel = world.connect(&world.friend).await.unwrap();
        let opened = channel.open(open).await.unwrap();
        assert!(opened.unit_payload <= longest, "{opened:?}");
    }
    world.still_serves().await;
}

#[tokio::test]
async fn questions_for_files_that_are_not_end_the_session() {
    let world = World::new(Writing::Refused, Limits::default()).await;
    for (first_file, files) in [(1, 1), (0, 2), (1 << 20, 16_384)] {
        let (mut channel, _) = world.ask(&world.friend, get(b"a")).await.unwrap();
        let wanted = Message::RootsWanted(RootsWanted { first_file, files });
        channel.send(&wanted).await.unwrap();
        while let Ok(message) = channel.recv().await {
            assert!(!matches!(message, Message::Roots(_)), "{first_file}, {files}");
        }
    }
    world.still_serves().await;
}

#[tokio::test]
async fn a_key_has_its_number_of_sessions_and_no_more() {
    let limits = Limits { sessions_per_key: 3, ..Limits::default() };
    let world = World::new(Writing::Refused, limits).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(world.ask(&world.friend, get(b"a")).await.unwrap());
    }
    for _ in 0..20 {
        match world.ask(&world.friend, get(b"a")).await.map(|(_, opened)| opened) {
            Err(refused @ ControlError::Refused { reason: Reason::Busy, .. }) => {
                assert!(refused.is_temporary());
            }
            other => panic!("{other:?}"),
        }
    }
    world.still_serves().await;
    drop(open.pop());
    let begun = Instant::now();
    while world.ask(&world.friend, get(b"a")).await.is_err() {
        assert!(begun.elapsed() < hostile::PATIENCE, "its place is never free again");
    }
}

#[tokio::test]
async fn listings_of_one_key_have_a_quarter_of_the_memory_and_free_it_when_they_end() {
    // The export has three entries that travel; two listings of it fit into a quarter, not three.
    let limits = Limits { listings: Bytes(4 * 2 * (3 * 384 + 16)), ..Limits::default() };
    let world = World::new(Writing::Allowed, limits).await;
    let first = world.ask(&world.friend, get(b"")).await.unwrap();
    let _second = world.ask(&world.friend, get(b"")).await.unwrap();
    let verbs = [get(b""), Verb::List { path: Vec::new() }];
    let full = async |who: &Identity| {
        for verb in verbs.clone() {
            match world.ask(who, verb).await.map(|(_, opened)| opened) {
                Err(refused @ ControlError::Refused { reason: Reason::Busy, .. }) => {
                    assert!(refused.is_temporary());
                    assert!(refused.to_string().contains("memory for listings"), "{refused}");
                }
                other => panic!("{other:?}"),
            }
        }
    };
    full(&world.friend).await;
    match put_listing(&world, b"new", vec![file(b"x"), file(b"y")]).await {
        Some(Message::Fault(fault)) => assert_eq!(fault.reason, Reason::Busy, "{fault:?}"),
        other => panic!("{other:?}"),
    }
    // Strangers have a part of their own, one for all of them.
    let mut strangers = Vec::new();
    for _ in 0..2 {
        strangers.push(world.ask(&Identity::generate(), get(b"")).await.unwrap());
    }
    full(&Identity::generate()).await;
    drop(first);
    let begun = Instant::now();
    while world.ask(&world.friend, get(b"")).await.is_err() {
        assert!(begun.elapsed() < hostile::PATIENCE, "its memory is never free again");
    }
}

#[tokio::test]
async fn a_flood_of_connections_is_turned_away_and_those_that_dawdle_lose_their_places() {
    let limits = Limits { connections: 16, connections_per_address: 8, ..Limits::default() };
    let mut world = World::new(Writing::Refused, limits).await;
    // Not one of them ever says a word.
    let mut silent = Vec::new();
    for _ in 0..2_000 {
        let stream = TcpStream::connect(world.address).await.unwrap();
        if silent.len() < 8 {
            silent.push(stream);
        }
    }
    let told = world.events.recv().await.unwrap();
    assert!(matches!(told, ServerEvent::TurnedAway { more: 0, .. }), "{told:?}");
    let begun = Instant::now();
    world.still_serves().await;
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
    drop(silent);
    let mut again = 0;
    while let Ok(event) = world.events.try_recv() {
        again += u32::from(matches!(event, ServerEvent::TurnedAway { .. }));
    }
    assert!(again <= 1, "a flood of 2,000 was told {again} more times");
}
