//! Numbers for Prometheus about a server's sessions.
//!
//! They are counted from the server's events, at the end of each session. Listed keys are told
//! apart, by their comments or fingerprints, up to a bound; others count together, and so do
//! strangers, so that no client can make the page grow. Who asks for the page is the daemon's code
//! to serve; it knows nothing of what is in it.

use std::collections::HashSet;
use std::net::SocketAddr;

use gtp::{Bucket, Failure, FailureKind, Moved, ServerEvent, Time, Visit, Whose};
use gtp_sys::Clock;
use gtpd::http::{Page, Pages, Work};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use rustix::event::{Timespec, poll};
use rustix::io::Errno;

use super::teller::{outcome, rate};

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// What is counted.
pub struct Metrics {
    sessions: Counters,
    content: Counters,
    wire: Counters,
    wasted: Counters,
    files: Counters,
    changes: Counters,
    running: Family<Labels, Gauge>,
    seconds: Histograms,
    rates: Histograms,
    refused: Counters,
    missed: Counter,
    lost: Counter,
    /// Keys that are told apart.
    names: HashSet<String>,
}

/// Keys that are told apart at most; further ones count as `other`.
const NAMES_MOST: usize = 100;

const PAGE: &[Page<Registry>] = &[Page {
    path: "/metrics",
    kind: "application/openmetrics-text; version=1.0.0; charset=utf-8",
    text: |registry, _| {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, registry);
        text.into_bytes()
    },
}];

impl Metrics {
    /// Counts from now on, and serves the numbers at a loopback address by a thread of its own.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] if the address is no loopback address or not to be had.
    pub fn serve(address: SocketAddr) -> Result<Metrics, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(FailureKind::Usage, format!("--metrics {address}: {error}"))
        };
        let pages = Pages::listen(address, PAGE).map_err(failed)?.with_readers(READERS);
        let (metrics, registry) = Metrics::new();
        let thread = std::thread::Builder::new().name("gtp-metrics".into());
        thread.spawn(move || answer(pages, &registry)).map_err(failed)?;
        Ok(metrics)
    }

    fn new() -> (Metrics, Registry) {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.01, 4.0, 12));
        let rates: fn() -> Histogram = || Histogram::new(exponential_buckets(1e5, 4.0, 11));
        let metrics = Metrics {
            sessions: Family::default(),
            content: Family::default(),
            wire: Family::default(),
            wasted: Family::default(),
            files: Family::default(),
            changes: Family::default(),
            running: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            rates: Family::new_with_constructor(rates),
            refused: Family::default(),
            missed: Counter::default(),
            lost: Counter::default(),
            names: HashSet::new(),
        };
        let registry = metrics.registry();
        (metrics, registry)
    }

    fn registry(&self) -> Registry {
        let mut all = Registry::with_prefix("gtp_serve");
        all.register("sessions", "Sessions that ended", self.sessions.clone());
        all.register("content_bytes", "Content of sessions that ended", self.content.clone());
        all.register("wire_bytes", "IP bytes of their data packets", self.wire.clone());
        let help = "IP bytes of data packets that were lost or came twice, an estimate";
        all.register("retransmitted_bytes", help, self.wasted.clone());
        all.register("files", "Files that got their names", self.files.clone());
        all.register("changes", "Steps of sync that were carried out", self.changes.clone());
        all.register("running_sessions", "Sessions that run", self.running.clone());
        all.register("session_seconds", "How long sessions took", self.seconds.clone());
        let help = "Content per time of sessions that moved some";
        all.register("session_bits_per_second", help, self.rates.clone());
        all.register("refused", "Connections that became no session", self.refused.clone());
        let help = "Events that came faster than they were taken, and are not counted elsewhere";
        all.register("missed_events", help, self.missed.clone());
        all.register("audit_lost_records", "Records that the audit lacks", self.lost.clone());
        all
    }

    /// Counts an event.
    pub fn count(&mut self, event: &ServerEvent) {
        match event {
            ServerEvent::Started { visit } => {
                self.running.get_or_create(&of_verb(visit)).inc();
            }
            ServerEvent::Ended { visit, moved, failure } => {
                self.end(visit, moved, failure.as_ref());
            }
            ServerEvent::Refused { request: Some(_), .. } => self.refuse("not_allowed", 1),
            ServerEvent::Refused { request: None, .. } => self.refuse("no_key", 1),
            ServerEvent::TurnedAway { more, .. } => self.refuse("too_many", 1 + more),
            ServerEvent::Missed { count } => {
                self.missed.inc_by(*count);
            }
            ServerEvent::Changed { .. }
            | ServerEvent::KeysRead { .. }
            | ServerEvent::KeysUnreadable { .. }
            | ServerEvent::KeysUsable { .. } => {}
        }
    }

    fn end(&mut self, visit: &Visit, moved: &Moved, failure: Option<&Failure>) {
        let (key, verb) = (self.name(visit), of_verb(visit));
        self.running.get_or_create(&verb).dec();
        let mut labels = vec![("key", key)];
        labels.extend(verb.clone());
        let add = |to: &Counters, amount: u64| to.get_or_create(&labels).inc_by(amount);
        add(&self.content, moved.content_bytes);
        add(&self.wire, moved.wire_bytes);
        add(&self.wasted, moved.wasted_bytes);
        add(&self.files, moved.files);
        add(&self.changes, moved.changes);
        self.seconds.get_or_create(&verb).observe(moved.span.as_secs_f64());
        if moved.content_bytes > 0 {
            self.rates.get_or_create(&verb).observe(rate(moved) as f64);
        }
        labels.push(("outcome", outcome(failure).to_owned()));
        self.sessions.get_or_create(&labels).inc();
    }

    fn refuse(&self, why: &str, count: u64) {
        self.refused.get_or_create(&vec![("why", why.to_owned())]).inc_by(count);
    }

    /// Notes how many records the audit has lost since the start.
    pub fn count_lost(&mut self, lost: u64) {
        self.lost.inc_by(lost.saturating_sub(self.lost.get()));
    }

    /// The name under which a client's sessions count.
    fn name(&mut self, visit: &Visit) -> String {
        if visit.whose == Whose::Stranger {
            return "stranger".into();
        }
        let name = visit.request.name.clone();
        let name = name.unwrap_or_else(|| visit.request.key.to_string());
        if !self.names.contains(&name) && self.names.len() == NAMES_MOST {
            return "other".into();
        }
        self.names.insert(name.clone());
        name
    }
}

fn of_verb(visit: &Visit) -> Labels {
    vec![("verb", visit.request.verb.to_owned())]
}

/// Readers of the numbers at a time: each takes a descriptor from clients.
const READERS: usize = 16;

/// The pause before the next try to wait for readers. Waiting fails if the kernel has no memory,
/// and nothing tells when it has some again.
const POLL_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Answers those who ask, for as long as the process lives.
fn answer(mut pages: Pages<Registry>, registry: &Registry) {
    let (clock, mut complaints) = (Clock::start(), Bucket::new(1, 2));
    loop {
        let (until, now) = (pages.poll_timeout(), clock.now());
        let span = until.since(now).as_nanos();
        let timeout = Timespec {
            tv_sec: (span / 1_000_000_000) as i64,
            tv_nsec: (span % 1_000_000_000) as _,
        };
        let timeout = (until != Time::MAX).then_some(&timeout);
        let waited = poll(&mut pages.fds().collect::<Vec<_>>(), timeout);
        match waited {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                if complaints.take(clock.now()) {
                    tracing::warn!(%error, "nobody can be waited for who asks for the numbers");
                }
                std::thread::sleep(POLL_PAUSE);
            }
        }
        pages.serve(clock.now(), registry, Work::default());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gtp::{Request, Span};

    use super::*;

    fn visit(name: &str, whose: Whose) -> Arc<Visit> {
        let key = gtp::Identity::generate().fingerprint();
        let request = Request { key, name: Some(name.into()), verb: "get", path: "x".into() };
        let client = SocketAddr::from(([127, 0, 0, 1], 9));
        Arc::new(Visit { id: 1, client, whose, request })
    }

    fn page(registry: &Registry) -> String {
        String::from_utf8((PAGE[0].text)(registry, Work::default())).unwrap()
    }

    #[test]
    fn every_byte_and_every_end_counts_once_and_keys_beyond_the_bound_count_as_other() {
        let (mut metrics, registry) = Metrics::new();
        let mut sent = 0;
        for n in 0..3 * NAMES_MOST as u64 {
            let whose = if n % 3 == 0 { Whose::Stranger } else { Whose::Listed };
            let visit = visit(&format!("client {n}"), whose);
            metrics.count(&ServerEvent::Started { visit: Arc::clone(&visit) });
            let span = Span::from_secs(1);
            let moved = Moved { content_bytes: n, span, ..Moved::default() };
            let failed = || Failure::new(FailureKind::Temporary, "lost");
            let failure = (n % 2 == 0).then(failed);
            metrics.count(&ServerEvent::Ended { visit, moved, failure });
            sent += n;
        }
        let page = page(&registry);
        let sum = |family: &str, has: &str| -> u64 {
            let lines = page.lines().filter(|l| l.starts_with(family) && l.contains(has));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        assert_eq!(sum("gtp_serve_content_bytes_total{", ""), sent);
        assert_eq!(sum("gtp_serve_sessions_total{", ""), 300);
        assert_eq!(sum("gtp_serve_sessions_total{", "outcome=\"temporary\""), 150);
        assert_eq!(sum("gtp_serve_sessions_total{", "key=\"stranger\""), 100);
        assert_eq!(sum("gtp_serve_sessions_total{", "key=\"other\""), 100);
        assert_eq!(sum("gtp_serve_running_sessions{", ""), 0);
        assert_eq!(sum("gtp_serve_session_seconds_count{", ""), 300);
        let keys = page.lines().filter(|l| l.starts_with("gtp_serve_content_bytes_total{"));
        assert_eq!(keys.count(), NAMES_MOST + 2);
    }
}
