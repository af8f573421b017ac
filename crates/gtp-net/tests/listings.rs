//! What listings of a large tree cost a server, over real sockets, while many clients hold one.
//!
//! Memory is counted at the allocator, for both ends together. The tests of this file take turns,
//! so that nothing else allocates beside them.

mod hostile;

use std::alloc::System;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gtp_net::control::{ControlChannel, ControlError, Ends};
use gtp_net::identity::Identity;
use gtp_net::messages::{Message, Opened, Reason, Verb};
use gtp_net::server::{Admission, EVENTS, ServeConfig, Server};
use gtp_net::trust::{AuthorizedKeys, ClientTrust, HostAddress, HostTrust, Strangers};
use hostile::{an_open, host};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::net::TcpSocket;
use tokio::sync::{Barrier, mpsc, watch};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Clients that hold a listing at a time.
const CLIENTS: usize = 64;

/// Entries of the tree, and what all clients together may cost, at both ends. Of the short run that
/// is 384 KiB for each client; if each had a listing of its own, it would take three times as much.
fn size() -> (usize, usize) {
    let is_long = std::env::var_os("GTP_LONG").is_some_and(|long| long == "1");
    if is_long { (200_000, 64 << 20) } else { (8_000, 24 << 20) }
}

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// The most bytes in use at a time until it is asked.
struct Peak {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<usize>,
}

impl Peak {
    fn watch() -> Peak {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut most = 0;
            while !stopped.load(Ordering::Relaxed) {
                most = most.max(live());
                std::thread::yield_now();
            }
            most
        });
        Peak { stop, thread }
    }

    fn bytes(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A server of a directory to everybody.
struct World {
    address: SocketAddr,
    trust: Arc<HostTrust>,
    _stop: watch::Sender<bool>,
}

impl World {
    async fn of(root: &Path) -> World {
        let identity = Identity::generate();
        let trust = ClientTrust { keys: AuthorizedKeys::default(), strangers: Strangers::MayRead };
        let listen = "127.0.0.1:0".parse().unwrap();
        let config = ServeConfig::new(root.to_owned(), listen, Admission::Fixed(trust));
        let (tell, _) = mpsc::channel(EVENTS);
        let server = Server::bind(host(), &identity, config, tell).await.unwrap();
        let address = server.address();
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(server.run(stopping));
        let trust = Arc::new(HostTrust::Pinned(vec![identity.fingerprint()]));
        World { address, trust, _stop: stop }
    }

    /// A stranger asks, through a connection that holds little.
    async fn ask(&self, from: u8, verb: Verb) -> (ControlChannel, Opened) {
        let (channel, opened) = self.try_to_ask(from, verb).await;
        (channel, opened.unwrap())
    }

    async fn try_to_ask(
        &self,
        from: u8,
        verb: Verb,
    ) -> (ControlChannel, Result<Opened, ControlError>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8_192).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, from], 0))).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        let address: HostAddress = self.address.to_string().parse().unwrap();
        let ends =
            Ends { local: stream.local_addr().unwrap(), remote: stream.peer_addr().unwrap() };
        let identity = Identity::generate();
        let channel = ControlChannel::client(stream, ends, &address, &identity, &self.trust);
        let mut channel = channel.await.unwrap();
        let opened = channel.open(an_open(verb)).await;
        (channel, opened)
    }
}

/// Reads a listing to its end; how many entries it has. They must be in order.
async fn read(channel: &mut ControlChannel) -> u64 {
    let (mut count, mut last) = (0, Vec::new());
    loop {
        match channel.recv().await.unwrap() {
            Message::ListingPage(page) | Message::ManifestPage(page) => {
                for entry in page.entries.into_iter().filter(|entry| !entry.path.is_empty()) {
                    assert!(entry.path > last);
                    last = entry.path;
                    count += 1;
                }
            }
            Message::ListingEnd(end) | Message::ManifestEnd(end) => {
                assert_eq!(end.entries_total, count);
                return count;
            }
            other => panic!("{other:?}"),
        }
    }
}

fn large_tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..size().0 {
        std::fs::File::create(dir.path().join(format!("{n:06}"))).unwrap();
    }
    dir
}

/// Bytes above those before that clients use at most while each holds a listing, and then reads it.
async fn cost(root: &Path, verb: fn() -> Verb) -> usize {
    let world = Arc::new(World::of(root).await);
    let before = live();
    let peak = Peak::watch();
    let all_have_asked = Arc::new(Barrier::new(CLIENTS));
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        let (world, all_have_asked) = (Arc::clone(&world), Arc::clone(&all_have_asked));
        clients.spawn(async move {
            let (mut channel, _) = world.ask(2 + (n % 8) as u8, verb()).await;
            all_have_asked.wait().await;
            assert_eq!(read(&mut channel).await, size().0 as u64);
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    peak.bytes().saturating_sub(before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_list_a_large_directory_at_once_cost_a_few_pages_each() {
    let _turn = TURN.lock().await;
    let tree = large_tree();
    let cost = cost(tree.path(), || Verb::List { path: Vec::new() }).await;
    println!("{CLIENTS} listings: {cost} bytes");
    assert!(cost < size().1, "{cost} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_get_a_large_tree_at_once_share_its_listing() {
    let _turn = TURN.lock().await;
    let tree = large_tree();
    let cost = cost(tree.path(), || Verb::Get { path: Vec::new() }).await;
    println!("{CLIENTS} gets: {cost} bytes");
    assert!(cost < size().1, "{cost} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_breaks_off_in_the_middle_says_why_and_is_not_taken_for_whole() {
    let _turn = TURN.lock().await;
    let tree = large_tree();
    let world = World::of(tree.path()).await;
    let (mut channel, _) = world.ask(2, Verb::List { path: Vec::new() }).await;
    // The directory goes away while its listing waits for the client.
    let moved = tree.path().with_extension("moved");
    std::fs::rename(tree.path(), &moved).unwrap();
    std::fs::remove_dir_all(&moved).unwrap();
    let (mut entries, mut named) = (0, 0);
    let end = loop {
        match channel.recv().await.unwrap() {
            Message::ListingPage(page) => entries += page.entries.len() as u64,
            Message::Fault(fault) => match fault.path.as_deref() {
                Some(_) => named += 1,
                None => panic!("{fault:?}"),
            },
            Message::ListingEnd(end) => break end,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(end.entries_total, entries);
    assert!(entries < size().0 as u64, "it was listed before it went away");
    assert!(named > 0, "nothing says that something is missing");
    match world.try_to_ask(2, Verb::List { path: Vec::new() }).await.1 {
        Err(ControlError::Refused { reason: Reason::Busy, text }) => {
            assert!(text.to_string().contains("not there at present"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}
