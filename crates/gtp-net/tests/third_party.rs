//! A server that fetches for a client from other servers, and what none of them lets happen:
//! tickets of others, for others, for other objects and of other times, and places that the sink
//! does not connect to.

#[path = "common/quick.rs"]
mod quick;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gtp_net::client::{
    Endpoint, Event, GetRequest, Monitor, OrderRequest, Outcome, Place, Progress, Terms, Tickets,
    Url, get, order,
};
use gtp_net::control::ControlChannel;
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::{Fingerprint, Identity};
use gtp_net::messages::{FetchFrom, FetchSource, Message, Open, Reason, Verb};
use gtp_net::server::{Admission, Limits, Moved, Reach, ServeConfig, Server, ServerEvent, Writing};
use gtp_net::ticket::{Allowed, Ticket};
use gtp_net::trust::{HostTrust, Strangers};
use gtp_store::SinkOptions;
use quick::host;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};

#[path = "hostile/mod.rs"]
mod hostile;

use hostile::an_open;

const PATIENCE: Duration = Duration::from_secs(30);
const LOOPBACK: &str = "127.0.0.0/8:1-65535";

/// A server of a directory.
struct Site {
    identity: Identity,
    dir: TempDir,
    address: String,
    events: mpsc::Receiver<ServerEvent>,
    _stop: watch::Sender<bool>,
}

impl Site {
    /// With a list of keys and what they may do. It fetches within these ranges.
    async fn new(keys: &[(&Identity, &str)], ranges: &[&str]) -> Site {
        Site::limited(keys, ranges, Limits::default()).await
    }

    async fn limited(keys: &[(&Identity, &str)], ranges: &[&str], limits: Limits) -> Site {
        let (dir, identity) = (tempfile::tempdir().unwrap(), Identity::generate());
        let line = |(key, may): &(&Identity, &str)| format!("{} {may}\n", key.fingerprint());
        let list = dir.path().join("keys");
        std::fs::write(&list, keys.iter().map(line).collect::<String>()).unwrap();
        let export = dir.path().join("export");
        std::fs::create_dir(&export).unwrap();
        let admission = Admission::File { path: list, strangers: Strangers::Refused };
        let config = ServeConfig {
            writing: Writing::Allowed,
            // Slow enough to be stopped in the midst.
            max_rate: gtp_alloc::Rate::from_mbps(200),
            limits,
            third_party: ranges.iter().map(|range| range.parse::<Reach>().unwrap()).collect(),
            ..ServeConfig::new(export, "127.0.0.1:0".parse().unwrap(), admission)
        };
        let (tell, events) = mpsc::channel(64);
        let server = Server::bind(host(), &identity, config, tell).await.unwrap();
        let address = server.address().to_string();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(server.run(stopped));
        Site { identity, dir, address, events, _stop: stop }
    }

    fn key(&self) -> Fingerprint {
        self.identity.fingerprint()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("export").join(name)
    }

    fn url(&self, name: &str) -> Url {
        format!("gtp://{}/{name}", self.address).parse().unwrap()
    }

    /// The end of the next session: what it was for, by whose right, and what it moved.
    async fn ended(&mut self) -> (&'static str, Fingerprint, Moved, Option<Failure>) {
        loop {
            let event = self.events.recv().await.unwrap();
            if let ServerEvent::Ended { visit, moved, failure, .. } = event {
                return (visit.request.verb, visit.request.key, moved, failure);
            }
        }
    }

    /// Whether nothing was written.
    fn is_untouched(&self) -> bool {
        self.dir.path().join("export").read_dir().unwrap().next().is_none()
    }
}

/// A source, a sink, and a client that may read at one and write at the other. The sink's key is on
/// no list.
struct World {
    source: Site,
    sink: Site,
    client: Identity,
}

impl World {
    async fn new() -> World {
        let client = Identity::generate();
        let source = Site::new(&[(&client, "read")], &[]).await;
        let sink = Site::new(&[(&client, "write")], &[LOOPBACK]).await;
        std::fs::write(source.path("a"), content(1)).unwrap();
        std::fs::write(source.path("b"), content(2)).unwrap();
        World { source, sink, client }
    }

    /// What the client signs for the sink to read `a`, from now on.
    fn allowed(&self) -> Allowed {
        let begins_s = gtp_sys::clock::unix_seconds();
        let (server, holder, path) = (self.source.key(), self.sink.key(), b"a".to_vec());
        Allowed { server, holder, path, begins_s, ends_s: begins_s + 300 }
    }

    fn signed(&self, allowed: &Allowed) -> Vec<u8> {
        Ticket::sign(&self.client, allowed, [7; 16])
    }

    /// Reads `name` at the source with this key and ticket, as anybody might.
    async fn read(&self, as_whom: &Identity, name: &str, ticket: Vec<u8>) -> Result<(), Failure> {
        let endpoint = Endpoint::new(host(), as_whom.clone(), None);
        let url = self.source.url(name);
        let mut terms = Terms::new(HostTrust::Pinned(vec![self.source.key()]));
        terms.patience = Duration::from_millis(1_500);
        terms.tickets = Some(Arc::new(Tickets::new([(url.clone(), ticket)].into())));
        let out = tempfile::tempdir().unwrap();
        let (path, options) = (out.path().join("out"), SinkOptions::default());
        let place = Place::Path { path, options, naming: Default::default() };
        let request = GetRequest { sources: vec![url], terms, place, expected: None };
        let (monitor, _stop) = monitor();
        get(endpoint, request, monitor).await.map(|_| ())
    }

    /// Has the sink asked to fetch with what is in this message, by the client or another one.
    async fn ask(&self, as_whom: &Identity, from: FetchFrom) -> Result<Message, Failure> {
        self.ask_and_renew(as_whom, vec![from]).await
    }

    /// The same with further messages right behind it.
    async fn ask_and_renew(
        &self,
        as_whom: &Identity,
        all: Vec<FetchFrom>,
    ) -> Result<Message, Failure> {
        let address = self.sink.address.parse().unwrap();
        let trust = Arc::new(HostTrust::Pinned(vec![self.sink.key()]));
        let mut channel = ControlChannel::connect(&address, as_whom, &trust).await.unwrap();
        channel.open(an_open(Verb::Fetch { path: b"new".to_vec() })).await?;
        for from in all {
            channel.send(&Message::FetchFrom(from)).await.unwrap();
        }
        loop {
            match channel.recv().await? {
                Message::FetchSeen(_) => {}
                last => return Ok(last),
            }
        }
    }

    fn from(&self, ticket: Vec<u8>) -> FetchFrom {
        let host = self.source.address.clone();
        FetchFrom { sources: vec![FetchSource { host, ticket }], patience_ms: 1_500 }
    }
}

fn content(seed: u8) -> Vec<u8> {
    (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed).collect()
}

fn monitor() -> (Monitor, watch::Sender<Option<FailureKind>>) {
    let (events, _) = mpsc::unbounded_channel::<Event>();
    let (stop, stopped) = watch::channel(None);
    (Monitor { events, progress: watch::Sender::new(Progress::default()), stop: stopped }, stop)
}

async fn ordered(
    client: &Identity,
    sink: (Url, Fingerprint),
    sources: Vec<(Url, Fingerprint)>,
) -> Result<Outcome, Failure> {
    let endpoint = Endpoint::new(host(), client.clone(), None);
    let mut terms = Terms::new(HostTrust::Pinned(vec![sink.1]));
    terms.patience = Duration::from_secs(2);
    let request = OrderRequest { sink: sink.0, sources, terms };
    let (monitor, _stop) = monitor();
    let ordering = order(endpoint, request, monitor);
    tokio::time::timeout(PATIENCE, ordering).await.expect("it ends in time")
}

#[tokio::test]
async fn a_server_fetches_for_a_client_whose_rights_it_has_for_that_object() {
    let mut world = World::new().await;
    let (sink, source) = (&world.sink, &world.source);
    let sources = vec![(source.url("a"), source.key())];
    let to = (sink.url("new"), sink.key());
    let outcome = ordered(&world.client, to.clone(), sources.clone()).await.unwrap();
    assert_eq!((outcome.bytes, outcome.resumed_bytes, outcome.files_written), (1_000_000, 0, 1));
    assert_eq!(std::fs::read(sink.path("new")).unwrap(), content(1));
    let key = world.client.fingerprint();
    let (verb, by, moved, failure) = world.source.ended().await;
    assert_eq!((verb, by, moved.content_bytes, failure), ("get", key, 1_000_000, None));
    let (verb, by, moved, failure) = world.sink.ended().await;
    assert_eq!((verb, by, moved.content_bytes, failure), ("fetch", key, 1_000_000, None));
    // What is there is not moved again.
    let again = ordered(&world.client, to, sources).await.unwrap();
    assert_eq!((again.files_written, again.files_unchanged), (0, 1));
    let (_, _, moved, _) = world.source.ended().await;
    assert_eq!((moved.content_bytes, moved.wire_bytes), (0, 0));
}

#[tokio::test]
async fn a_directory_comes_from_several_servers_at_once() {
    let world = World::new().await;
    let other = Site::new(&[(&world.client, "read")], &[]).await;
    for site in [&world.source, &other] {
        std::fs::create_dir(site.path("tree")).unwrap();
        for n in 0..40_u8 {
            let file = site.path(&format!("tree/{n:02}"));
            std::fs::write(&file, content(n)).unwrap();
            let when = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            std::fs::File::options().write(true).open(file).unwrap().set_modified(when).unwrap();
        }
    }
    let sources = [&world.source, &other].map(|site| (site.url("tree"), site.key())).to_vec();
    let to = (world.sink.url("copy"), world.sink.key());
    let outcome = ordered(&world.client, to, sources).await.unwrap();
    assert_eq!((outcome.files_written, outcome.bytes), (40, 40_000_000));
    assert_eq!(std::fs::read(world.sink.path("copy/39")).unwrap(), content(39));
    let mut shares = Vec::new();
    for mut site in [world.source, other] {
        shares.push(site.ended().await.2.wire_bytes);
    }
    assert!(shares.iter().all(|&bytes| bytes > 4_000_000), "{shares:?}");
}

#[tokio::test]
async fn a_source_takes_a_ticket_for_its_holder_its_object_its_server_and_its_time_only() {
    let world = World::new().await;
    let (sink, allowed) = (world.sink.identity.clone(), world.allowed());
    let refused = async |as_whom: &Identity, name: &str, ticket: Vec<u8>, why: &str| {
        let failure = world.read(as_whom, name, ticket).await.unwrap_err();
        assert!(failure.text.contains(why), "{why}: {failure}");
    };
    let ticket = world.signed(&allowed);
    refused(&Identity::generate(), "a", ticket.clone(), "it is for another host").await;
    refused(&world.client, "a", ticket.clone(), "it is for another host").await;
    refused(&sink, "b", ticket.clone(), "it is for another object").await;
    let mut changed = ticket.clone();
    *changed.last_mut().unwrap() ^= 1;
    refused(&sink, "a", changed, "its signature is wrong").await;
    let server = Identity::generate().fingerprint();
    let other = Allowed { server, ..allowed.clone() };
    refused(&sink, "a", world.signed(&other), "it is for another server").await;
    let (begins_s, now_s) = (allowed.begins_s - 200, allowed.begins_s);
    let expired = Allowed { begins_s, ends_s: now_s - 1, ..allowed.clone() };
    refused(&sink, "a", world.signed(&expired), "it has expired").await;
    let later = Allowed { begins_s: now_s + 100, ends_s: now_s + 200, ..allowed.clone() };
    refused(&sink, "a", world.signed(&later), "it is not valid yet").await;
    let long = Allowed { ends_s: now_s + 100_000, ..allowed.clone() };
    refused(&sink, "a", world.signed(&long), "it holds for too long").await;
    let older = Allowed { begins_s: now_s - 100, ..allowed.clone() };
    refused(&sink, "a", world.signed(&older), "it was issued before this server started").await;
    // Somebody who may not read there can let nobody read there.
    let stranger = Ticket::sign(&Identity::generate(), &allowed, [7; 16]);
    refused(&sink, "a", stranger, "may not do this here").await;
    // And the one that counts does, until its holder has said that it has the object.
    world.read(&sink, "a", ticket.clone()).await.unwrap();
    refused(&sink, "a", ticket, "it has been used already").await;
}

#[tokio::test]
async fn a_session_by_ticket_ends_while_its_holder_would_keep_it_and_one_by_a_key_goes_on() {
    let (client, holder) = (Identity::generate(), Identity::generate());
    let limits = Limits { by_ticket: Duration::from_millis(200), ..Limits::default() };
    let site = Site::limited(&[(&client, "read")], &[], limits).await;
    std::fs::write(site.path("a"), content(1)).unwrap();
    let open = async |whose: &Identity, ticket: Option<Vec<u8>>| {
        let address = site.address.parse().unwrap();
        let trust = Arc::new(HostTrust::Pinned(vec![site.key()]));
        let mut channel = ControlChannel::connect(&address, whose, &trust).await.unwrap();
        let open = Open { ticket, ..an_open(Verb::Get { path: b"a".to_vec() }) };
        channel.open(open).await.unwrap();
        channel
    };
    let mut own = open(&client, None).await;
    let begins_s = gtp_sys::clock::unix_seconds();
    let (server, path) = (site.key(), b"a".to_vec());
    let (holder_key, ends_s) = (holder.fingerprint(), begins_s + 300);
    let allowed = Allowed { server, holder: holder_key, path, begins_s, ends_s };
    let ticket = Ticket::sign(&client, &allowed, [7; 16]);
    // The ticket still holds, and opens another session after the first.
    for _ in 0..2 {
        let mut kept = open(&holder, Some(ticket.clone())).await;
        let fault = loop {
            if let Message::Fault(fault) = kept.recv().await.unwrap() {
                break fault;
            }
        };
        assert_eq!(fault.reason, Reason::TimedOut, "{}", fault.text);
    }
    own.send(&Message::ArrivalsWanted).await.unwrap();
    while !matches!(own.recv().await.unwrap(), Message::ArrivalsSeen(_)) {}
}

#[tokio::test]
async fn a_ticket_gives_no_more_than_its_signer_has() {
    let client = Identity::generate();
    let source = Site::new(&[(&client, "write")], &[]).await;
    let sink = Site::new(&[(&client, "write")], &[LOOPBACK]).await;
    std::fs::write(source.path("a"), content(1)).unwrap();
    let sources = vec![(source.url("a"), source.key())];
    let failure = ordered(&client, (sink.url("new"), sink.key()), sources).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Authentication, "{failure}");
    assert!(failure.text.contains("may not do this here"), "{failure}");
    assert!(sink.is_untouched());
}

#[tokio::test]
async fn a_client_whom_a_source_does_not_know_reads_nothing_there_by_the_rights_of_its_sink() {
    let client = Identity::generate();
    let sink = Site::new(&[(&client, "read,write")], &[LOOPBACK]).await;
    let source = Site::new(&[(&sink.identity, "read")], &[]).await;
    std::fs::write(source.path("a"), content(1)).unwrap();
    let sources = vec![(source.url("a"), source.key())];
    let failure = ordered(&client, (sink.url("new"), sink.key()), sources).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Authentication, "{failure}");
    assert!(sink.is_untouched());
}

#[tokio::test]
async fn a_sink_fetches_nothing_that_its_client_has_not_signed_for_it() {
    let world = World::new().await;
    let allowed = world.allowed();
    let fault = async |from: FetchFrom, why: &str| {
        let Ok(Message::Fault(fault)) = world.ask(&world.client, from).await else { panic!() };
        assert_eq!(fault.reason, Reason::NotAuthorised);
        assert!(fault.text.to_string().contains(why), "{why}: {}", fault.text);
    };
    let of_another = Ticket::sign(&Identity::generate(), &allowed, [7; 16]);
    fault(world.from(of_another), "it was signed by another key").await;
    let other = Allowed { holder: Identity::generate().fingerprint(), ..allowed.clone() };
    fault(world.from(world.signed(&other)), "it is for another host").await;
    let expired = Allowed { begins_s: 0, ends_s: 10, ..allowed.clone() };
    fault(world.from(world.signed(&expired)), "it has expired").await;
    let odd = Allowed { path: b"/a".to_vec(), ..allowed.clone() };
    fault(world.from(world.signed(&odd)), "its path is invalid").await;
    let ticket = world.signed(&allowed);
    let nowhere = FetchSource { host: "no host".into(), ticket: ticket.clone() };
    fault(FetchFrom { sources: vec![nowhere], patience_ms: 1 }, "expected host:port").await;
    // Another client has no right to write there, whatever the ticket says.
    let stranger = world.ask(&Identity::generate(), world.from(ticket.clone())).await;
    assert_eq!(stranger.unwrap_err().kind, FailureKind::Authentication);
    assert!(world.sink.is_untouched());
    let last = world.ask(&world.client, world.from(ticket)).await;
    assert!(matches!(last, Ok(Message::Fetched(_))), "{last:?}");
}

#[tokio::test]
async fn new_tickets_that_are_for_another_object_or_come_too_often_end_a_fetch() {
    let world = World::new().await;
    let ticket = world.signed(&world.allowed());
    let other = world.signed(&Allowed { path: b"b".to_vec(), ..world.allowed() });
    for (then, why) in [
        (vec![world.from(other)], "the new tickets are for other objects"),
        (vec![world.from(ticket.clone()); 3], "new tickets come too often"),
    ] {
        let all = [vec![world.from(ticket.clone())], then].concat();
        let last = world.ask_and_renew(&world.client, all).await;
        let Ok(Message::Fault(fault)) = last else { panic!("{last:?}") };
        assert_eq!(fault.reason, Reason::NotAuthorised);
        assert!(fault.text.to_string().contains(why), "{}", fault.text);
    }
    assert!(world.sink.is_untouched());
}

#[tokio::test]
async fn who_asks_by_tickets_never_asks_by_its_own_key() {
    let world = World::new().await;
    let endpoint = Endpoint::new(host(), world.client.clone(), None);
    let mut terms = Terms::new(HostTrust::Pinned(vec![world.source.key()]));
    terms.tickets = Some(Arc::new(Tickets::new([].into())));
    let out = tempfile::tempdir().unwrap();
    let (path, options) = (out.path().join("out"), SinkOptions::default());
    let place = Place::Path { path, options, naming: Default::default() };
    let request = GetRequest { sources: vec![world.source.url("a")], terms, place, expected: None };
    let (monitor, _stop) = monitor();
    let failure = get(endpoint, request, monitor).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Authentication, "{failure}");
    assert!(failure.text.contains("no ticket for"), "{failure}");
}

#[tokio::test]
async fn a_sink_connects_within_its_ranges_only_and_without_any_fetches_nothing() {
    let client = Identity::generate();
    let source = TcpListener::bind("127.0.0.1:0").unwrap();
    source.set_nonblocking(true).unwrap();
    let url: Url = format!("gtp://{}/a", source.local_addr().unwrap()).parse().unwrap();
    let sources = || vec![(url.clone(), client.fingerprint())];
    for (ranges, why) in [
        (&["10.0.0.0/8:1-65535", "127.0.0.1:1"][..], "has no address within the ranges"),
        (&[], "does not fetch from other servers"),
    ] {
        let sink = Site::new(&[(&client, "write")], ranges).await;
        let to = (sink.url("new"), sink.key());
        let failure = ordered(&client, to, sources()).await.unwrap_err();
        assert!(failure.text.contains(why), "{failure}");
        assert_eq!(failure.kind, FailureKind::Destination);
        assert!(sink.is_untouched());
    }
    let called = source.accept().map(drop).unwrap_err();
    assert_eq!(called.kind(), ErrorKind::WouldBlock, "nobody was connected to");
}

#[tokio::test]
async fn a_source_whose_key_is_another_is_not_fetched_from() {
    let world = World::new().await;
    let sources = vec![(world.source.url("a"), Identity::generate().fingerprint())];
    let to = (world.sink.url("new"), world.sink.key());
    let failure = ordered(&world.client, to, sources).await.unwrap_err();
    assert!(failure.text.contains("is not the one given"), "{failure}");
    assert!(world.sink.is_untouched());
}

#[tokio::test]
async fn an_order_that_is_dropped_ends_the_fetch_and_the_next_one_goes_on() {
    let mut world = World::new().await;
    let all: Vec<u8> = (0..40).flat_map(content).collect();
    std::fs::write(world.source.path("a"), &all).unwrap();
    let endpoint = Endpoint::new(host(), world.client.clone(), None);
    let terms = Terms::new(HostTrust::Pinned(vec![world.sink.key()]));
    let sources = vec![(world.source.url("a"), world.source.key())];
    let sink = world.sink.url("new");
    let request = OrderRequest { sink, sources: sources.clone(), terms };
    let (events, _) = mpsc::unbounded_channel();
    let (progress, mut seen) = watch::channel(Progress::default());
    let (_stop, stop) = watch::channel(None);
    let monitor = Monitor { events, progress, stop };
    let ordering = tokio::spawn(order(endpoint, request, monitor));
    seen.wait_for(|now| now.bytes > 4_000_000).await.unwrap();
    ordering.abort();
    let (verb, _, _, failure) = world.sink.ended().await;
    assert!(verb == "fetch" && failure.is_some());
    let to = (world.sink.url("new"), world.sink.key());
    let outcome = ordered(&world.client, to, sources).await.unwrap();
    assert!(outcome.resumed_bytes > 2_000_000, "{}", outcome.resumed_bytes);
    assert_eq!(std::fs::read(world.sink.path("new")).unwrap(), all);
}
