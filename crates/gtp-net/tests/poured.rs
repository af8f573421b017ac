//! A stream to a file that a client gives up before its end: the server keeps nothing of it.

#[path = "common/quick.rs"]
mod quick;

use std::sync::Arc;
use std::time::Duration;

use gtp_net::client::{Endpoint, Monitor, PourRequest, Progress, Terms, Url, pour};
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::Identity;
use gtp_net::server::{Admission, ServeConfig, Server, ServerEvent, Writing};
use gtp_net::trust::{HostTrust, Strangers};
use quick::host;
use tempfile::TempDir;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server whose export has a file `x`, and a client that it lets write.
struct World {
    dir: TempDir,
    url: Url,
    terms: Terms,
    endpoint: Arc<Endpoint>,
    events: mpsc::Receiver<ServerEvent>,
    _stop: watch::Sender<bool>,
}

/// A stream under way, of which a part has been sent.
struct Begun {
    pouring: JoinHandle<Result<gtp_net::client::Outcome, Failure>>,
    _input: DuplexStream,
    stop: watch::Sender<Option<FailureKind>>,
}

impl World {
    async fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let (identity, client) = (Identity::generate(), Identity::generate());
        let keys = dir.path().join("keys");
        std::fs::write(&keys, format!("{} write\n", client.fingerprint())).unwrap();
        std::fs::create_dir(dir.path().join("export")).unwrap();
        std::fs::write(dir.path().join("export/x"), "old").unwrap();
        let admission = Admission::File { path: keys, strangers: Strangers::Refused };
        let listen = "127.0.0.1:0".parse().unwrap();
        let config = ServeConfig::new(dir.path().join("export"), listen, admission);
        let config = ServeConfig { writing: Writing::Allowed, ..config };
        let (tell, events) = mpsc::channel(16);
        let server = Server::bind(host(), &identity, config, tell).await.unwrap();
        let url = format!("gtp://{}/x", server.address()).parse().unwrap();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(server.run(stopped));
        let terms = Terms::new(HostTrust::Pinned(vec![identity.fingerprint()]));
        let endpoint = Endpoint::new(host(), client, None);
        World { dir, url, terms, endpoint, events, _stop: stop }
    }

    async fn begin(&self) -> Begun {
        let (mut to, input) = tokio::io::duplex(1 << 20);
        let (events, _) = mpsc::unbounded_channel();
        let (progress, mut sent) = watch::channel(Progress::default());
        let (stop, stopped) = watch::channel(None);
        let monitor = Monitor { events, progress, stop: stopped };
        let (url, terms) = (self.url.clone(), self.terms.clone());
        let request = PourRequest { input: Box::new(input), url, terms };
        let pouring = tokio::spawn(pour(Arc::clone(&self.endpoint), request, monitor));
        to.write_all(&[7; 300_000]).await.unwrap();
        sent.wait_for(|now| now.bytes == 300_000).await.unwrap();
        Begun { pouring, _input: to, stop }
    }

    /// Waits for the end of a session at the server; then the file must be as it was.
    async fn expect_nothing(&mut self) {
        let ended = loop {
            if let ServerEvent::Ended { failure, .. } = self.events.recv().await.unwrap() {
                break failure;
            }
        };
        assert!(ended.is_some(), "the server takes a part for the whole");
        let export = self.dir.path().join("export");
        assert_eq!(std::fs::read(export.join("x")).unwrap(), b"old");
        assert_eq!(export.read_dir().unwrap().count(), 1);
    }
}

#[tokio::test]
async fn a_stream_that_is_dropped_or_stopped_before_its_end_leaves_the_file_as_it_was() {
    let mut world = World::new().await;
    let work = async {
        let dropped = world.begin().await;
        dropped.pouring.abort();
        assert!(dropped.pouring.await.unwrap_err().is_cancelled());
        world.expect_nothing().await;
        // Whether the end or the break is heard first is chance.
        for _ in 0..20 {
            let stopped = world.begin().await;
            stopped.stop.send_replace(Some(FailureKind::Interrupted));
            let failure = stopped.pouring.await.unwrap().unwrap_err();
            assert_eq!(failure.kind, FailureKind::Interrupted);
            assert!(failure.text.contains("nothing of it is kept"), "{failure}");
            world.expect_nothing().await;
        }
    };
    tokio::time::timeout(PATIENCE, work).await.expect("it ends in time");
}
