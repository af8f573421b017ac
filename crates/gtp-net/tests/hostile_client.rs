//! Clients that ask for what they must not have, against the real server: each is refused in
//! words, nothing outside the export is read or written, and the server goes on for others.

mod hostile;
#[path = "hostile/raw_client.rs"]
mod raw_client;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gtp_alloc::Bytes;
use gtp_net::control::{ControlChannel, ControlError, Ends};
use gtp_net::flows::FailureKind;
use gtp_net::identity::Identity;
use gtp_net::messages::{
    Entry, EntryKind, Law, Message, Open, Opened, Page, PagesEnd, Reason, RootsWanted, SuiteList,
    TreeWanted, Verb,
};
use gtp_net::server::{
    Admission, EVENTS, Limits, ServeConfig, Server, ServerEvent, WhyRefused, Writing,
};
use gtp_net::trust::{HostAddress, HostTrust, Strangers};
use hostile::{Client, an_open, entry, file, host, tree, unchecked};
use raw_client::RawClient;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

/// A server of a directory that has a secret beside it, and a link to the secret in it.
struct World {
    dir: TempDir,
    address: SocketAddr,
    identity: Identity,
    /// A client that may do all.
    friend: Identity,
    events: mpsc::Receiver<ServerEvent>,
    reload: Arc<Notify>,
    _stop: watch::Sender<bool>,
}

impl World {
    async fn new(writing: Writing, limits: Limits) -> World {
        World::with(writing, limits, Strangers::MayRead).await
    }

    async fn with(writing: Writing, limits: Limits, strangers: Strangers) -> World {
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
        let admission = Admission::File { path: path("keys"), strangers };
        let listen = "127.0.0.1:0".parse().unwrap();
        let config = ServeConfig::new(path("export"), listen, admission);
        let config = ServeConfig { writing, limits, ..config };
        let (tell, events) = mpsc::channel(EVENTS);
        let server = Server::bind(host(), &identity, config, tell).await.unwrap();
        let address = server.address();
        let (stop, stopping) = watch::channel(false);
        let reload = server.reload();
        tokio::spawn(server.run(stopping));
        World { dir, address, identity, friend, events, reload, _stop: stop }
    }

    /// A connection from another address of this machine.
    async fn dial(&self, from: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, from], 0))).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// As [`World::ask`], from another address.
    async fn ask_from(
        &self,
        from: u8,
        identity: &Identity,
        verb: Verb,
    ) -> Result<(ControlChannel, Opened), ControlError> {
        self.ask_over(self.dial(from).await, identity, verb).await
    }

    /// As [`World::ask`], over this connection.
    async fn ask_over(
        &self,
        stream: TcpStream,
        identity: &Identity,
        verb: Verb,
    ) -> Result<(ControlChannel, Opened), ControlError> {
        let trust = Arc::new(HostTrust::Pinned(vec![self.identity.fingerprint()]));
        let address: HostAddress = self.address.to_string().parse().unwrap();
        let ends =
            Ends { local: stream.local_addr().unwrap(), remote: stream.peer_addr().unwrap() };
        let mut channel = ControlChannel::client(stream, ends, &address, identity, &trust).await?;
        let opened = channel.open(an_open(verb)).await?;
        Ok((channel, opened))
    }

    /// Writes the list of keys.
    fn list(&self, keys: &[&Identity]) {
        let lines: String = keys.iter().map(|key| format!("{}\n", key.fingerprint())).collect();
        std::fs::write(self.dir.path().join("keys"), lines).unwrap();
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

/// What a stranger hears who asks for one name only.
async fn survey_of(world: &World, only: &[u8]) -> Vec<Message> {
    let mut client = RawClient::connect(world.address).await;
    client.send(&unchecked(1, &an_open(Verb::Tree { path: Vec::new(), changes: false }))).await;
    let (hashes, xattrs, acls) = (true, true, true);
    let only = Some(only.to_vec());
    let wanted = TreeWanted { hashes, xattrs, acls, packs: None, sums: None, only };
    let kind = Message::TreeWanted(TreeWanted { only: None, ..wanted.clone() }).kind();
    client.send(&unchecked(kind, &wanted)).await;
    let mut heard = Vec::new();
    while let Some(message) = client.hear().await {
        let is_end = matches!(message, Message::TreeEnd(_) | Message::Fault(_));
        heard.push(message);
        if is_end {
            break;
        }
    }
    heard
}

#[tokio::test]
async fn a_survey_of_one_name_tells_nothing_of_what_no_single_name_leads_to() {
    let world = World::new(Writing::Allowed, Limits::default()).await;
    for only in ESCAPES.into_iter().chain([&b"d/b"[..], b"", b"."]).filter(|&p| p != b"file-link") {
        let heard = survey_of(&world, only).await;
        let told = heard.iter().any(|m| matches!(m, Message::TreePage(_) | Message::TreeEnd(_)));
        assert!(!told, "{only:?}: {heard:?}");
    }
    for only in [&b"a"[..], b"file-link"] {
        let heard = survey_of(&world, only).await;
        let [Message::Opened(_), Message::TreePage(page), Message::TreeEnd(_)] = &heard[..] else {
            panic!("{only:?}: {heard:?}");
        };
        assert_eq!(page.nodes.len(), 2, "{page:?}");
        assert_eq!(page.nodes[1].target.is_some(), only == b"file-link");
    }
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
    let listings: [Vec<Entry>; 14] = [
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
async fn a_tree_that_leads_through_a_link_or_a_file_is_left_out_there_and_nothing_is_written() {
    let world = World::new(Writing::Allowed, Limits::default()).await;
    let before = world.files();
    for (obstacle, beneath) in [("link", "link/secret"), ("a", "a/b")] {
        let dir = entry(obstacle.as_bytes(), EntryKind::Directory, 0);
        let entries = vec![dir, file(beneath.as_bytes())];
        let content_bytes = entries.iter().map(|e| e.size).sum();
        let verb = Verb::Put { path: Vec::new() };
        let (mut channel, _) = world.ask(&world.friend, verb).await.unwrap();
        channel.send(&Message::ManifestPage(Page { entries })).await.unwrap();
        let end = PagesEnd { entries_total: 2, content_bytes };
        channel.send(&Message::ManifestEnd(end)).await.unwrap();
        let mut left_out = Vec::new();
        while left_out.len() < 2 {
            match channel.recv().await.unwrap() {
                Message::Fault(fault) => left_out.extend(fault.path),
                Message::Ready(_) | Message::Keepalive | Message::Done(_) => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
        assert_eq!(left_out, [obstacle.as_bytes().to_vec(), beneath.as_bytes().to_vec()]);
    }
    world.still_serves().await;
    let mut written = world.files();
    written.retain(|file| !before.contains(file));
    assert!(written.iter().all(|(path, _)| is_journal(path)), "{written:?}");
}

fn is_journal(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|end| end == "gtp-journal")
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
    assert!(matches!(said, Some(Message::Ready(_) | Message::Fault(_))), "{said:?}");
    assert!(used() < before + (1 << 20));
    world.still_serves().await;
}

#[tokio::test]
async fn a_client_of_no_common_version_is_told_apart_from_one_that_proves_no_key() {
    let mut world = World::new(Writing::Refused, Limits::default()).await;
    let mut open = an_open(get(b"a"));
    open.version = 0;
    let mut channel = world.connect(&world.friend).await.unwrap();
    assert!(channel.open(open).await.is_err());
    let Some(ServerEvent::Refused { reason, .. }) = world.events.recv().await else { panic!() };
    assert_eq!(reason, WhyRefused::Version);
    let mut garbage = world.dial(1).await;
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let Some(ServerEvent::Refused { reason, .. }) = world.events.recv().await else { panic!() };
    assert_eq!(reason, WhyRefused::NoKey);
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
    // A listing keeps three entries and the names of two links that it leaves out. Two listings fit
    // into a quarter, not three.
    let limits = Limits { listings: Bytes(4 * 2 * (5 * 384 + 32)), ..Limits::default() };
    let world = World::new(Writing::Allowed, limits).await;
    // A listing of a tree that has changed is another one.
    let changes = std::cell::Cell::new(0);
    let ask = async |who: &Identity| {
        changes.set(changes.get() + 1);
        let change = vec![b'x'; changes.get()];
        std::fs::write(world.dir.path().join("export/a"), change).unwrap();
        world.ask(who, get(b"")).await
    };
    let first = ask(&world.friend).await.unwrap();
    let _second = ask(&world.friend).await.unwrap();
    let full = async |who: &Identity| match ask(who).await.map(|(_, opened)| opened) {
        Err(refused @ ControlError::Refused { reason: Reason::Busy, .. }) => {
            assert!(refused.is_temporary());
            assert!(refused.to_string().contains("memory for listings"), "{refused}");
        }
        other => panic!("{other:?}"),
    };
    full(&world.friend).await;
    match put_listing(&world, b"new", vec![file(b"x"), file(b"y")]).await {
        Some(Message::Fault(fault)) => assert_eq!(fault.reason, Reason::Busy, "{fault:?}"),
        other => panic!("{other:?}"),
    }
    // One level is told while it is walked through and takes no share.
    world.ask(&world.friend, Verb::List { path: Vec::new() }).await.unwrap();
    // Strangers have a part of their own, one for all of them.
    let mut strangers = Vec::new();
    for _ in 0..2 {
        strangers.push(ask(&Identity::generate()).await.unwrap());
    }
    full(&Identity::generate()).await;
    drop(first);
    let begun = Instant::now();
    while ask(&world.friend).await.is_err() {
        assert!(begun.elapsed() < hostile::PATIENCE, "its memory is never free again");
    }
}

#[tokio::test]
async fn a_flood_of_silent_connections_makes_room_for_whoever_speaks_and_is_told_once() {
    let limits = Limits { unproved: 16, unproved_per_address: 8, ..Limits::default() };
    let mut world = World::new(Writing::Refused, limits).await;
    // Not one of them ever says a word.
    let mut silent = Vec::new();
    for _ in 0..2_000 {
        silent.push(world.dial(2).await);
        silent.truncate(100);
    }
    let told = world.events.recv().await.unwrap();
    assert!(matches!(told, ServerEvent::TurnedAway { more: 0, .. }), "{told:?}");
    let begun = Instant::now();
    world.still_serves().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    drop(silent);
    let mut again = 0;
    while let Ok(event) = world.events.try_recv() {
        again += u32::from(matches!(event, ServerEvent::TurnedAway { .. }));
    }
    assert!(again <= 1, "a flood of 2,000 was told {again} more times");
}

#[tokio::test]
async fn refused_clients_that_stay_connected_keep_nobody_waiting() {
    let limits = Limits { unproved: 16, unproved_per_address: 16, ..Limits::default() };
    let world = World::with(Writing::Refused, limits, Strangers::Refused).await;
    let (stranger, mut staying) = (Identity::generate(), Vec::new());
    let begun = Instant::now();
    for _ in 0..200 {
        let mut channel = world.connect(&stranger).await.unwrap();
        let refused = channel.open(an_open(get(b"a"))).await.unwrap_err();
        assert!(matches!(refused, ControlError::NotAuthorised(_)), "{refused:?}");
        // The server waits two seconds for each to close the connection, if it has room.
        staying.push(channel);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let listed = world.ask(&world.friend, get(b"a")).await;
    assert!(listed.is_ok());
}

/// Silent connections from this address, one after the other for as long as somebody waits.
async fn hammer(server: SocketAddr, from: u8) {
    let mut held = VecDeque::new();
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, from], 0))).unwrap();
        // The server may have no place for it in its kernel just now.
        if let Ok(stream) = socket.connect(server).await {
            held.push_back(stream);
        }
        if held.len() > 64 {
            held.pop_front();
        }
        tokio::task::yield_now().await;
    }
}

/// A stranger at this address that holds as many sessions as it gets, while somebody waits.
async fn occupy(world: Arc<World>, from: u8, held: Arc<AtomicUsize>) {
    let mut sessions = VecDeque::new();
    loop {
        match world.ask_from(from, &Identity::generate(), get(b"a")).await {
            Ok(session) => {
                held.fetch_add(1, Ordering::Relaxed);
                sessions.push_back(session);
            }
            Err(_) => tokio::task::yield_now().await,
        }
        if sessions.len() > 64 {
            sessions.pop_front();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_clients_enter_within_two_seconds_while_strangers_hammer_and_hold_the_server() {
    let world = Arc::new(World::new(Writing::Refused, Limits::default()).await);
    let friends: Vec<Identity> = (0..8).map(|_| Identity::generate()).collect();
    world.list(&friends.iter().collect::<Vec<_>>());
    let (mut strangers, held) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for from in 2..10 {
        strangers.spawn(occupy(Arc::clone(&world), from, Arc::clone(&held)));
    }
    // All rooms that strangers may have.
    while held.load(Ordering::Relaxed) < 256 {
        tokio::task::yield_now().await;
    }
    for from in 2..10 {
        strangers.spawn(hammer(world.address, from));
    }
    // They stay, until they have most of the rooms that strangers cannot have.
    let (mut sessions, mut slow) = (VecDeque::new(), Vec::new());
    for n in 0..300 {
        let begun = Instant::now();
        let asked = world.ask(&friends[n % friends.len()], get(b"a")).await;
        slow.extend(Some(begun.elapsed()).filter(|took| *took > Duration::from_secs(2)));
        sessions.push_back(asked.unwrap_or_else(|refused| panic!("client {n}: {refused}")));
        if sessions.len() > 240 {
            sessions.pop_front();
        }
    }
    println!("{} of 300 took longer; {held:?} sessions of strangers", slow.len());
    assert!(slow.len() <= 3, "{slow:?}");
}

#[tokio::test]
async fn a_session_whose_client_sends_no_datagram_ends_after_ten_seconds() {
    let world = World::new(Writing::Refused, Limits::default()).await;
    let begun = Instant::now();
    let (mut channel, _) = world.ask(&world.friend, get(b"a")).await.unwrap();
    let fault = loop {
        match channel.recv().await.unwrap() {
            Message::Fault(fault) => break fault,
            Message::ManifestPage(_) | Message::ManifestEnd(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fault.reason, Reason::NoUdpPath);
    let seconds = begun.elapsed().as_secs_f64();
    assert!((9.9..20.0).contains(&seconds), "{seconds}");
}

/// Waits for the end of a session, and for its reason.
async fn end_of(channel: &mut ControlChannel) -> Reason {
    loop {
        match channel.recv().await.expect("the server says why") {
            Message::Fault(fault) => return fault.reason,
            Message::ManifestPage(_) | Message::ManifestEnd(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn sessions_of_a_key_that_is_taken_off_the_list_end_within_two_seconds_and_no_others() {
    let world = World::with(Writing::Allowed, Limits::default(), Strangers::Refused).await;
    let other = Identity::generate();
    world.list(&[&world.friend, &other]);
    let (mut gone, _) = world.ask(&world.friend, get(b"a")).await.unwrap();
    let put = Verb::Put { path: b"new".to_vec() };
    let (mut put, _) = world.ask(&world.friend, put).await.unwrap();
    let (mut stays, _) = world.ask(&other, get(b"a")).await.unwrap();
    let begun = Instant::now();
    world.list(&[&other]);
    assert_eq!(end_of(&mut gone).await, Reason::NotAuthorised);
    assert_eq!(end_of(&mut put).await, Reason::NotAuthorised);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let end = tokio::time::timeout(Duration::from_secs(2), end_of(&mut stays)).await;
    assert!(end.is_err(), "{end:?}");
}

#[tokio::test]
async fn a_list_that_is_read_again_on_demand_counts_at_once_and_touches_no_other_session() {
    let mut world = World::with(Writing::Refused, Limits::default(), Strangers::Refused).await;
    let other = Identity::generate();
    world.list(&[&world.friend, &other]);
    let (mut gone, _) = world.ask(&world.friend, get(b"a")).await.unwrap();
    let (mut stays, _) = world.ask(&other, get(b"a")).await.unwrap();
    world.list(&[&other]);
    world.reload.notify_one();
    assert_eq!(end_of(&mut gone).await, Reason::NotAuthorised);
    let read = loop {
        if let ServerEvent::KeysRead { keys } = world.events.recv().await.unwrap() {
            break keys;
        }
    };
    assert_eq!(read, 1);
    let end = tokio::time::timeout(Duration::from_secs(1), end_of(&mut stays)).await;
    assert!(end.is_err(), "{end:?}");
}

#[tokio::test]
async fn a_client_that_stops_reading_its_listing_is_sent_away_within_two_seconds() {
    let mut world = World::with(Writing::Refused, Limits::default(), Strangers::Refused).await;
    // A listing of 8 MB, more than the kernel holds for a client that does not read.
    let deep = ["a", "b", "c", "d"].map(|name| name.repeat(240)).iter().collect::<PathBuf>();
    let deep = world.dir.path().join("export").join(deep);
    std::fs::create_dir_all(&deep).unwrap();
    for number in 0..8_000 {
        std::fs::File::create(deep.join(number.to_string())).unwrap();
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let stream = socket.connect(world.address).await.unwrap();
    let asked = world.ask_over(stream, &world.friend, get(b"")).await;
    let (_unread, _) = asked.unwrap();
    let begun = Instant::now();
    world.list(&[]);
    let failure = loop {
        if let ServerEvent::Ended { failure, .. } = world.events.recv().await.unwrap() {
            break failure.unwrap();
        }
    };
    assert_eq!(failure.kind, FailureKind::Revoked, "{failure}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}
