//! A run from memory to memory over loopback, through control channel, engine and sockets.

use gtp_bench::{Capacities, Ends, Fetch, NetFigures, Serve, Served, Server, Strangers, fetch};
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::Fingerprint;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const SERVE: Serve = Serve { listen: LISTEN, bytes: 3_000_001, times: 2 };
const LISTEN: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

struct World {
    dir: tempfile::TempDir,
    address: std::net::SocketAddr,
    fingerprint: Fingerprint,
    ended: UnboundedReceiver<Served>,
    engines: usize,
}

impl World {
    async fn start(serve: Serve) -> World {
        World::with(serve, Capacities::default()).await
    }

    async fn with(serve: Serve, capacities: Capacities) -> World {
        let dir = tempfile::tempdir().unwrap();
        let ends = Ends::start_in(dir.path().join("server"), capacities).unwrap();
        let server = Server::bind(ends, serve).await.unwrap();
        let (address, fingerprint) = (server.address(), server.fingerprint());
        let (ended_in, ended) = unbounded_channel();
        tokio::spawn(server.run(ended_in));
        World { dir, address, fingerprint, ended, engines: capacities.engines }
    }

    async fn fetch(
        &self,
        sessions: usize,
        pinned: Vec<Fingerprint>,
    ) -> Result<NetFigures, Failure> {
        self.fetch_at_most(1 << 30, sessions, pinned).await
    }

    async fn fetch_at_most(
        &self,
        size_most: u64,
        sessions: usize,
        pinned: Vec<Fingerprint>,
    ) -> Result<NetFigures, Failure> {
        let capacities = Capacities { engines: self.engines, ..Capacities::default() };
        let ends = Ends::start_in(self.dir.path().join("client"), capacities).unwrap();
        let server = self.address.to_string().parse().unwrap();
        let strangers = Strangers::Refused;
        fetch(&ends, Fetch { servers: vec![server], pinned, strangers, sessions, size_most }).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_arrives_over_one_session_and_over_several() {
    let mut world = World::start(SERVE).await;
    for sessions in [1, 3] {
        let figures = world.fetch(sessions, vec![world.fingerprint]).await.unwrap();
        assert_eq!(figures.bytes, 6_000_002);
        assert!(figures.wire_bytes > figures.bytes && figures.seconds > 0.0, "{figures:?}");
        let packets = figures.wire_bytes / 1_400;
        assert!((1..packets).contains(&figures.calls.system()), "not one a packet: {figures:?}");
        for _ in 0..sessions {
            let served = world.ended.recv().await.unwrap();
            assert!(served.complete && served.calls.send > 0, "{served:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_arrives_over_several_engines_at_both_ends() {
    let capacities = Capacities { engines: 3, ..Capacities::default() };
    let mut world = World::with(SERVE, capacities).await;
    for sessions in [1, 5] {
        let figures = world.fetch(sessions, vec![world.fingerprint]).await.unwrap();
        assert_eq!((figures.bytes, figures.session_rates.len()), (6_000_002, sessions));
        assert!(figures.wire_bytes < 7_000_000, "nothing twice: {figures:?}");
        for _ in 0..sessions {
            assert!(world.ended.recv().await.unwrap().complete);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_that_is_more_than_there_is_room_for_is_refused() {
    let world = World::start(SERVE).await;
    let failure = world.fetch_at_most(1_000, 1, vec![world.fingerprint]).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Usage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_refused_and_so_are_no_sessions_and_too_many() {
    let world = World::start(SERVE).await;
    let failure = world.fetch(1, Vec::new()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Authentication);
    for sessions in [0, 65] {
        let failure = world.fetch(sessions, vec![world.fingerprint]).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Usage);
    }
}
