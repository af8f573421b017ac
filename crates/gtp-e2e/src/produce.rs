//! A source's process that sends by itself: an endless object, perhaps produced slowly.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::plan::{sample, say};
use anyhow::{Context, Result};
use gtp_alloc::{Bytes, Rate};
use gtp_net::client::{Endpoint, Monitor, Objects, PutRequest, Terms, put};
use gtp_net::engine::{Host, HostConfig};
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::Identity;
use gtp_net::trust::HostTrust;
use gtp_store::{BlockSource, Export, FileSource, Framed, Manifest, RelPath, SourceError, Value};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

/// What a source's process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Produce {
    /// Which transfer it is, for its lines.
    pub number: usize,
    /// The server's address and fingerprint.
    pub url: String,
    /// See `url`.
    pub fingerprint: String,
    /// Where this host's key is.
    pub identity: PathBuf,
    /// The file that is sent.
    pub file: PathBuf,
    /// Seconds after the start at which it is stopped.
    pub stop: f64,
    /// A producer that makes this many bit/s until a time, and then everything.
    pub slow: Option<(f64, f64)>,
}

/// Runs it. How the transfer ended is printed.
///
/// # Errors
/// If the engine cannot start.
pub async fn run(plan: Produce) -> Result<()> {
    let host = Host::start(HostConfig {
        capacity_out: Rate::UNLIMITED,
        capacity_in: Rate::UNLIMITED,
        interval: None,
        memory: Bytes(256 << 20),
        engines: 1,
    })?;
    let endpoint = Endpoint::new(host, Identity::load_or_create(&plan.identity)?, None);
    let pin = plan.fingerprint.parse().context("a fingerprint")?;
    let url = plan.url.parse().context("an address")?;
    let slow = plan.slow.map(|(bps, s)| (bps, Instant::now() + Duration::from_secs_f64(s)));
    let file = plan.file.clone();
    let make = Box::new(move || {
        let scanned = Export::open(&file).and_then(|e| e.scan(None)).map_err(Failure::from)?;
        let inner = FileSource::new(scanned);
        let source = SlowSource { inner, slow, free_at: Instant::now() };
        Ok(Box::new(source) as Box<dyn BlockSource>)
    });
    let objects = Objects::Made(RelPath::new("made")?, make);
    let terms = Terms::new(HostTrust::Pinned(vec![pin]));
    let (events, _heard) = mpsc::unbounded_channel();
    let (progress, seen) = watch::channel(Default::default());
    let (stop, stopping) = watch::channel(None);
    let going = put(
        endpoint,
        PutRequest { objects, url, terms },
        Monitor { events, progress, stop: stopping },
    );
    let ender = async {
        tokio::time::sleep(Duration::from_secs_f64(plan.stop)).await;
        let _ = stop.send(Some(FailureKind::Other));
        std::future::pending::<()>().await;
    };
    let sampler = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            say(&sample(plan.number, &seen.borrow().clone()));
        }
    };
    tokio::select! {
        outcome = going => {
            let how = outcome.map_or_else(|e| e.to_string(), |_| "done".into());
            say(&serde_json::json!({"event": "end", "transfer": plan.number, "how": how}));
        }
        () = sampler => unreachable!("samples for ever"),
        () = ender => unreachable!("waits for ever"),
    }
    Ok(())
}

/// Gives blocks no faster than told.
struct SlowSource {
    inner: FileSource,
    slow: Option<(f64, Instant)>,
    free_at: Instant,
}

impl BlockSource for SlowSource {
    fn manifest(&self) -> &Arc<Manifest> {
        self.inner.manifest()
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        self.inner.load_block(file, block, out)?;
        if let Some((bps, until)) = self.slow
            && Instant::now() < until
        {
            let takes = Duration::from_secs_f64(out.len() as f64 * 8.0 / bps);
            self.free_at = self.free_at.max(Instant::now() - takes) + takes;
            std::thread::sleep(self.free_at.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        self.inner.file_root_while(file, wanted)
    }
}
