//! Connections over real loopback sockets: what two programs say to each other, how it ends, and
//! what a stranger or a liar gets.

mod hostile;
#[path = "common/quick.rs"]
mod quick;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::{Bytes, Rate};
use gtp_net::client::{Endpoint, Terms, Udp, Url};
use gtp_net::engine::Law;
use gtp_net::flows::FailureKind;
use gtp_net::identity::Identity;
use gtp_net::messages::{Connected, Done, EntryKind, Message, Opened, Ready, Reason};
use gtp_net::server::{Admission, Limits, ServeConfig, Server};
use gtp_net::stream::{Callers, Carries, ListenConfig, Stream, StreamListener, WINDOW, connect};
use gtp_net::trust::{HostTrust, Strangers};
use hostile::{Liar, an_opened};
use quick::host;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PATIENCE: Duration = Duration::from_secs(30);

/// A host that listens, and one that connects.
struct World {
    dir: TempDir,
    listener: StreamListener,
    fingerprint: gtp_net::identity::Fingerprint,
    endpoint: Arc<Endpoint>,
}

impl World {
    async fn new(callers: Callers, memory: Bytes) -> World {
        let dir = tempfile::tempdir().unwrap();
        let (identity, caller) = (Identity::generate(), Identity::generate());
        let keys: PathBuf = dir.path().join("keys");
        std::fs::write(&keys, format!("{}\n", caller.fingerprint())).unwrap();
        let config = ListenConfig {
            carries: Carries::Bytes,
            listen: "127.0.0.1:0".parse().unwrap(),
            admission: Admission::File { path: keys, strangers: Strangers::Refused },
            callers,
            limits: Limits::default(),
            max_rate: Rate::UNLIMITED,
            alone: Vec::new(),
            end_node: false,
            interval: None,
            window: WINDOW,
            memory,
        };
        let listener = StreamListener::bind(host(), &identity, config).await.unwrap();
        let endpoint = Endpoint::new(host(), caller, None);
        World { dir, listener, fingerprint: identity.fingerprint(), endpoint }
    }

    async fn listed() -> World {
        World::new(Callers::Listed, Bytes(1 << 30)).await
    }

    fn url(&self, service: &str) -> Url {
        format!("gtp://{}/{service}", self.listener.address()).parse().unwrap()
    }

    fn terms(&self) -> Terms {
        Terms::new(HostTrust::Pinned(vec![self.fingerprint]))
    }

    /// A connection: the end that called, and the one that was called.
    async fn pair(&mut self) -> (Stream, Stream) {
        let (url, terms) = (self.url("talk"), self.terms());
        let calling = connect(&self.endpoint, &url, &terms, WINDOW);
        let answering = async { self.listener.next().await.unwrap().accept().unwrap() };
        let (called, answered) = tokio::join!(calling, answering);
        (called.unwrap(), answered)
    }
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it ends in time")
}

fn speech(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 7) as u8).collect()
}

#[tokio::test]
async fn both_ends_say_much_at_once_and_both_hear_all_and_the_end() {
    let mut world = World::listed().await;
    let (near, far) = in_time(world.pair()).await;
    assert_eq!(near.line().peer(), world.fingerprint);
    assert_eq!(far.line().peer(), world.endpoint.identity().fingerprint());
    let (up, down) = (speech(20_000_001), speech(9_000_000));
    let talk = |stream: Stream, says: Vec<u8>, hears: Vec<u8>| async move {
        let (mut reader, mut writer, line) = stream.into_split();
        let saying = async {
            writer.write_all(&says).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let mut heard = Vec::new();
        let (_, read) = tokio::join!(saying, reader.read_to_end(&mut heard));
        read.unwrap();
        assert!(heard == hears);
        assert!(line.delivered().await);
        line.over().await;
        let standing = line.standing();
        assert!(standing.delivered && standing.received);
    };
    let near = talk(near, up.clone(), down.clone());
    let far = talk(far, down, up);
    in_time(async { tokio::join!(near, far) }).await;
}

#[tokio::test]
async fn a_half_closed_connection_still_answers() {
    let mut world = World::listed().await;
    let (mut near, mut far) = in_time(world.pair()).await;
    in_time(async {
        near.write_all(b"what?").await.unwrap();
        near.shutdown().await.unwrap();
        let mut heard = String::new();
        far.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "what?");
        assert!(near.line().delivered().await);
        far.write_all(b"that").await.unwrap();
        drop(far);
        let mut heard = String::new();
        near.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "that");
        near.line().over().await;
    })
    .await;
    let written = near.write(b"more").await.unwrap_err();
    assert_eq!(written.kind(), std::io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn what_was_written_arrives_although_the_writer_has_left() {
    let mut world = World::listed().await;
    let (mut near, mut far) = in_time(world.pair()).await;
    let said = speech(3_000_000);
    in_time(async {
        near.write_all(&said).await.unwrap();
        drop(near);
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.unwrap();
        assert!(heard == said);
    })
    .await;
}

#[tokio::test]
async fn an_abort_is_an_error_at_the_other_end_and_not_an_end() {
    let mut world = World::listed().await;
    let (mut near, mut far) = in_time(world.pair()).await;
    in_time(async {
        near.write_all(b"begun").await.unwrap();
        let mut heard = [0; 5];
        far.read_exact(&mut heard).await.unwrap();
        near.line().abort();
        let error = far.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        let error = near.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted, "{error}");
        assert!(!near.line().delivered().await);
        let error = far.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_abandons_its_stream_has_said_no_end() {
    let mut world = World::listed().await;
    let (near, mut far) = in_time(world.pair()).await;
    let (reader, mut writer, line) = near.into_split();
    in_time(async {
        writer.write_all(b"begun").await.unwrap();
        writer.abandon();
        let mut heard = [0; 5];
        far.read_exact(&mut heard).await.unwrap();
        line.abort();
        let error = far.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    })
    .await;
    drop(reader);
}

#[tokio::test]
async fn a_peer_that_dies_is_a_break_and_not_an_end() {
    let mut world = World::listed().await;
    let (mut near, mut far) = in_time(world.pair()).await;
    in_time(async {
        far.write_all(b"begun").await.unwrap();
        let mut heard = [0; 5];
        near.read_exact(&mut heard).await.unwrap();
    })
    .await;
    // A runtime that is gone takes its control channels with it, as a process that is killed does.
    let url = world.url("talk");
    let (endpoint, terms) = (Arc::clone(&world.endpoint), world.terms());
    let dying = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut stream = runtime.block_on(connect(&endpoint, &url, &terms, WINDOW)).unwrap();
        runtime.block_on(stream.write_all(b"last words")).unwrap();
        runtime.block_on(stream.read_u8()).unwrap();
        // Nobody says an end: that would be one.
        std::mem::forget(stream);
    });
    in_time(async {
        let mut orphan = world.listener.next().await.unwrap().accept().unwrap();
        let mut heard = [0; 10];
        orphan.read_exact(&mut heard).await.unwrap();
        orphan.write_u8(1).await.unwrap();
        let error = orphan.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    })
    .await;
    dying.join().unwrap();
}

#[tokio::test]
async fn a_caller_that_reads_no_more_stops_a_peer_that_goes_on_and_on() {
    let mut world = World::listed().await;
    let (near, mut far) = in_time(world.pair()).await;
    drop(near);
    let chunk = speech(1 << 20);
    let error = in_time(async {
        loop {
            if let Err(error) = far.write_all(&chunk).await {
                return error;
            }
        }
    })
    .await;
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
}

#[tokio::test]
async fn whoever_calls_by_a_law_for_files_is_told_what_it_is_for() {
    let world = World::listed().await;
    let mut terms = world.terms();
    for law in [Law::Gtp2004, Law::Rbudp(Rate::from_mbps(1)), Law::Tsunami(Rate::from_mbps(1))] {
        terms.law = law;
        let url = world.url("talk");
        let failure = in_time(connect(&world.endpoint, &url, &terms, WINDOW)).await.unwrap_err();
        assert!(failure.text.contains("for files"), "{}", failure.text);
    }
}

#[tokio::test]
async fn strangers_are_refused_and_so_is_what_the_application_does_not_want() {
    let mut world = World::listed().await;
    let stranger = Endpoint::new(host(), Identity::generate(), None);
    let (url, terms) = (world.url("talk"), world.terms());
    let failure = in_time(connect(&stranger, &url, &terms, WINDOW)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Authentication, "{failure}");
    let calling = connect(&world.endpoint, &url, &terms, WINDOW);
    let refusing = async {
        let caller = world.listener.next().await.unwrap();
        assert_eq!(caller.service(), b"talk");
        caller.refuse(Reason::Missing, "nobody talks here").await;
    };
    let (failure, ()) = in_time(async { tokio::join!(calling, refusing) }).await;
    let failure = failure.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Missing, "{failure}");
    assert!(failure.text.contains("nobody talks here"), "{failure}");
    std::fs::write(world.dir.path().join("keys"), "").unwrap();
    let failure = in_time(connect(&world.endpoint, &url, &terms, WINDOW)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Authentication, "{failure}");
}

#[tokio::test]
async fn memory_that_is_promised_makes_later_windows_smaller_and_then_none() {
    // Listed keys get a quarter, and each connection a part of what is left of it: 64 units at
    // least in both rings and in what waits to be sent.
    let (part, least) = (7_500_000, 3 * 64 * 1_400);
    let most = part / least;
    let mut world = World::new(Callers::Listed, Bytes(4 * part)).await;
    let mut held = Vec::new();
    let failure = in_time(async {
        loop {
            let (url, terms) = (world.url("talk"), world.terms());
            let calling = connect(&world.endpoint, &url, &terms, 1_000);
            tokio::pin!(calling);
            tokio::select! {
                ended = &mut calling => break ended.unwrap_err(),
                caller = world.listener.next() => {
                    let far = caller.unwrap().accept().unwrap();
                    held.push((calling.await.unwrap(), far));
                }
            }
            assert!(held.len() as u64 <= most, "{} of {most}", held.len());
        }
    })
    .await;
    assert_eq!(failure.kind, FailureKind::Temporary, "{failure}");
    assert!(held.len() > 2, "{}", held.len());
    // All of them work, and give back what they had.
    for (near, far) in &mut held {
        in_time(near.write_all(b"x")).await.unwrap();
        assert_eq!(in_time(far.read_u8()).await.unwrap(), b'x');
    }
    let lines: Vec<_> = held.iter().map(|(near, _)| near.line().clone()).collect();
    held.clear();
    for line in lines {
        in_time(line.over()).await;
    }
    in_time(world.pair()).await;
}

/// Passes one connection on, and no datagram: a firewall that blocks UDP.
async fn tcp_only(to: std::net::SocketAddr) -> std::net::SocketAddr {
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = door.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut near, _) = door.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
        // Either end may break it.
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    address
}

#[tokio::test]
async fn a_host_says_that_no_datagram_came_and_the_caller_blames_the_path() {
    let mut world = World::listed().await;
    let door = tcp_only(world.listener.address()).await;
    let url = format!("gtp://{door}/talk").parse().unwrap();
    let terms = Terms { udp: Udp::Only, ..world.terms() };
    let calling = connect(&world.endpoint, &url, &terms, WINDOW);
    let answering = async { world.listener.next().await.unwrap().accept().unwrap() };
    let (called, answered) = in_time(async { tokio::join!(calling, answering) }).await;
    let mut called = called.unwrap();
    assert!(!in_time(called.line().opened()).await);
    assert!(called.line().standing().no_path, "{:?}", called.line().why());
    let error = called.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::HostUnreachable, "{error}");
    in_time(answered.line().over()).await;
    assert!(answered.line().why().unwrap().contains("no UDP path"), "{:?}", answered.line().why());
}

/// What becomes of a stream whose other end says these things instead of bringing anything.
async fn lied_to(lies: &[Message]) -> std::io::Error {
    let liar = Liar::new().await;
    let endpoint = Endpoint::new(host(), Identity::generate(), None);
    let terms = Terms::new(HostTrust::Pinned(vec![liar.identity.fingerprint()]));
    let url = liar.url("talk");
    let calling = connect(&endpoint, &url, &terms, WINDOW);
    let lying = async {
        let (mut raw, open) = liar.meet().await;
        let opened = Opened { object: None, ..an_opened(&open, EntryKind::File) };
        raw.say(&Message::Opened(opened)).await;
        for lie in lies {
            raw.say(lie).await;
        }
        raw
    };
    let (called, raw) = tokio::join!(calling, lying);
    let mut stream = match called {
        Ok(stream) => stream,
        Err(failure) => return std::io::Error::other(failure.to_string()),
    };
    stream.write_all(b"said").await.unwrap();
    let listening = raw.linger();
    let reading = stream.read_u8();
    let (read, ()) = tokio::join!(reading, listening);
    assert!(!stream.line().delivered().await, "nobody has received it");
    read.unwrap_err()
}

#[tokio::test]
async fn a_liar_ends_a_connection_with_an_error_and_never_with_an_end() {
    let connected =
        |window| Message::Connected(Connected { down_session: 9, window, delivery: None });
    let done = |content_bytes| Message::Done(Done { content_bytes, ..Done::NOTHING });
    let cases: [(&[Message], &str); 6] = [
        (&[connected(WINDOW + 1)], "not on offer"),
        (&[Message::Ready(Ready { resumed_bytes: 0, files_unchanged: 0 })], "Ready"),
        (&[connected(WINDOW), done(4)], "Done"),
        (&[connected(WINDOW), done(0)], "Done"),
        (&[connected(WINDOW), connected(WINDOW)], "Connected"),
        (&[connected(WINDOW), Message::Cancel], "broke the connection off"),
    ];
    for (lies, words) in cases {
        let error = in_time(lied_to(lies)).await;
        assert!(error.to_string().contains(words), "{error}, not {words}");
    }
}

#[tokio::test]
async fn a_server_of_files_has_no_streams_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::generate();
    let admission =
        Admission::File { path: dir.path().join("keys"), strangers: Strangers::MayRead };
    let listen = "127.0.0.1:0".parse().unwrap();
    let config = ServeConfig::new(dir.path().to_owned(), listen, admission);
    let (events, _heard) = tokio::sync::mpsc::channel(16);
    let server = Server::bind(host(), &identity, config, events).await.unwrap();
    let url = format!("gtp://{}/talk", server.address()).parse().unwrap();
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(server.run(stopped));
    let endpoint = Endpoint::new(host(), Identity::generate(), None);
    let terms = Terms::new(HostTrust::Pinned(vec![identity.fingerprint()]));
    let failure = in_time(connect(&endpoint, &url, &terms, WINDOW)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Missing, "{failure}");
}
