//! What the sink's process is to do: several transfers in one process, so that they share one
//! host's capacity, each begun and ended at its time.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gtp_alloc::{Bytes, Rate, Span};
use gtp_net::client::{
    Endpoint, GetRequest, Monitor, Place, Progress, SourceShare, Terms, Url, get,
};
use gtp_net::engine::{Host, HostConfig};
use gtp_net::flows::{FailureKind, Law, PathUse};
use gtp_net::identity::{Fingerprint, Identity};
use gtp_net::trust::HostTrust;
use gtp_store::{BlockSink, DiscardSink, Have, SinkError, Value, Window, Written};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

/// Everything that the sink's process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Capacity of the sink in bit/s; none: not stated.
    pub capacity_in: Option<u64>,
    /// Control interval in milliseconds; none: chosen.
    pub interval_ms: Option<u64>,
    /// Alpha and beta of the end-node law; none: grants.
    pub end_node: Option<(f64, f64)>,
    /// A law by which one end decides alone, and its rate in bit/s; none: the above.
    #[serde(default)]
    pub alone: Option<(String, u64)>,
    /// Whether the path bounds no session, where the sources agree.
    #[serde(default)]
    pub unbounded: bool,
    /// The transfers.
    pub transfers: Vec<Transfer>,
}

/// One transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// Its sources: address and fingerprint.
    pub sources: Vec<(String, String)>,
    /// Seconds after the start of the process at which it begins.
    pub start: f64,
    /// When it is stopped, unless it has ended by itself.
    pub stop: f64,
    /// Where it goes; none: every block is verified and dropped.
    pub dest: Option<PathBuf>,
    /// A reader that takes this many bit/s until a time, and then everything.
    pub slow: Option<(f64, f64)>,
}

/// Runs a plan, and writes a line of JSON for each thing that happens.
///
/// # Errors
/// If the engine cannot start. A transfer's failure is a line.
pub async fn run(plan: Plan) -> Result<()> {
    let host = Host::start(HostConfig {
        capacity_out: Rate::UNLIMITED,
        capacity_in: plan.capacity_in.map_or(Rate::UNLIMITED, Rate::from_bps),
        interval: plan.interval_ms.map(Span::from_millis),
        memory: Bytes(256 << 20),
        engines: 1,
    })?;
    let interval = plan.interval_ms.map(Span::from_millis);
    let endpoint = Endpoint::new(host, Identity::generate(), interval);
    let law = law(&plan)?;
    let path = if plan.unbounded { PathUse::Unbounded } else { PathUse::default() };
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (i, transfer) in plan.transfers.into_iter().enumerate() {
        tasks.spawn(one(i, transfer, Arc::clone(&endpoint), (law, path), began));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

fn law(plan: &Plan) -> Result<Law> {
    let shared = plan.end_node.map_or(Law::Grant, |(alpha, beta)| Law::EndNode { alpha, beta });
    let Some((name, rate)) = &plan.alone else { return Ok(shared) };
    let rate = Rate::from_bps(*rate);
    Ok(match name.as_str() {
        "gtp2004" => Law::Gtp2004,
        "rbudp" => Law::Rbudp(rate),
        "sabul" => Law::Sabul(rate),
        "tsunami" => Law::Tsunami(rate),
        other => anyhow::bail!("no law {other}"),
    })
}

async fn one(
    i: usize,
    transfer: Transfer,
    endpoint: Arc<Endpoint>,
    (law, path): (Law, PathUse),
    began: Instant,
) -> Result<()> {
    let pins = transfer.sources.iter().map(|(_, fp)| fp.parse::<Fingerprint>());
    let pins = pins.collect::<Result<Vec<_>, _>>().context("a fingerprint")?;
    let urls = transfer.sources.iter().map(|(url, _)| url.parse::<Url>());
    let urls = urls.collect::<Result<Vec<_>, _>>().context("an address")?;
    let terms = Terms { law, path, ..Terms::new(HostTrust::Pinned(pins)) };
    tokio::time::sleep_until((began + Duration::from_secs_f64(transfer.start)).into()).await;
    say(&serde_json::json!({"event": "begin", "transfer": i}));
    let (events, mut heard) = mpsc::unbounded_channel();
    let (progress, seen) = watch::channel(Default::default());
    let (stop, stopping) = watch::channel(None);
    let place = place(&transfer, began);
    let request = GetRequest { sources: urls, terms, place, expected: None };
    let monitor = Monitor { events, progress, stop: stopping };
    let going = get(endpoint, request, monitor);
    let sampler = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            say(&sample(i, &seen.borrow().clone()));
        }
    };
    let listener = async {
        while let Some(event) = heard.recv().await {
            say(&serde_json::json!({"event": "note", "transfer": i, "what": format!("{event:?}")}));
        }
        std::future::pending::<()>().await;
    };
    let ender = async {
        let stop_at = began + Duration::from_secs_f64(transfer.stop);
        tokio::time::sleep_until(stop_at.into()).await;
        let _ = stop.send(Some(FailureKind::Other));
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = going => outcome,
        () = sampler => unreachable!("samples for ever"),
        () = listener => unreachable!("listens for ever"),
        () = ender => unreachable!("waits for ever"),
    };
    say(&match outcome {
        Ok(done) => serde_json::json!({"event": "done", "transfer": i, "bytes": done.bytes,
            "seconds": done.elapsed.as_secs_f64(),
            "blake3": done.blake3.map(|v| v.map(|b| format!("{b:02x}")).concat()),
            "duplicate_bytes": done.progress.duplicate_bytes()}),
        Err(why) => serde_json::json!({"event": "end", "transfer": i, "why": why.to_string()}),
    });
    Ok(())
}

/// How a transfer is doing.
pub(crate) fn sample(transfer: usize, p: &Progress) -> serde_json::Value {
    let shown = |s: &SourceShare| {
        serde_json::json!({"wire": s.wire_bytes, "rate": s.rate.as_bps(),
            "granted": s.granted.as_bps(), "limited_by": s.limited_by.as_str(),
            "loss": s.loss_ratio, "rtt": s.rtt.as_secs_f64(), "duplicate": s.duplicate_bytes})
    };
    let sources: Vec<_> = p.sources.iter().map(shown).collect();
    serde_json::json!({"event": "sample", "transfer": transfer, "bytes": p.bytes,
        "sources": sources})
}

fn place(transfer: &Transfer, began: Instant) -> Place {
    match (&transfer.dest, transfer.slow) {
        (Some(path), _) => Place::Path {
            path: path.clone(),
            options: Default::default(),
            naming: Default::default(),
        },
        (None, slow) => Place::Sink(Box::new(move |manifest| {
            let inner = DiscardSink::new(Arc::clone(manifest));
            let slow = slow.map(|(bps, until)| (bps, began + Duration::from_secs_f64(until)));
            Ok(Box::new(SlowSink { inner, slow, free_at: Instant::now() }))
        })),
    }
}

/// Verifies and drops every block, no faster than told.
struct SlowSink {
    inner: DiscardSink,
    slow: Option<(f64, Instant)>,
    free_at: Instant,
}

impl BlockSink for SlowSink {
    fn have(&self) -> &[Have] {
        self.inner.have()
    }

    fn is_kept(&self, file: u32) -> bool {
        self.inner.is_kept(file)
    }

    fn window(&self) -> Window {
        self.inner.window()
    }

    fn write_block(&mut self, file: u32, block: u64, bytes: &[u8]) -> Result<Written, SinkError> {
        if let Some((bps, until)) = self.slow
            && Instant::now() < until
        {
            let takes = Duration::from_secs_f64(bytes.len() as f64 * 8.0 / bps);
            self.free_at = self.free_at.max(Instant::now() - takes) + takes;
            std::thread::sleep(self.free_at.saturating_duration_since(Instant::now()));
        }
        self.inner.write_block(file, block, bytes)
    }

    fn checkpoint(&mut self) -> Result<(), SinkError> {
        self.inner.checkpoint()
    }

    fn finish_file(&mut self, file: u32, root: Option<Value>) -> Result<Option<Value>, SinkError> {
        self.inner.finish_file(file, root)
    }

    fn finish(&mut self) -> Result<gtp_store::Finished, SinkError> {
        self.inner.finish()
    }

    fn suspend(&mut self) -> Result<(), SinkError> {
        self.inner.suspend()
    }
}

pub(crate) fn say(value: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    // Whoever listened is gone: nobody is left to tell.
    let _ = writeln!(out, "{value}").and_then(|()| out.flush());
}
