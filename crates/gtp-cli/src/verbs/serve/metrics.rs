//! Numbers for Prometheus about a server's sessions.
//!
//! Bytes count while sessions run: each look at the server's table of sessions, one for each page
//! that is made, counts what has been moved since the last one, and the event of a session's end
//! counts the rest. Listed keys are told apart, by their comments or fingerprints, up to a bound;
//! others count together, and so do strangers, so that no client can make the page grow. Who asks
//! for the page is the daemon's code to serve; it knows nothing of what is in it.

mod exports;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp::{
    Failure, FailureKind, Host, Moved, Quotas, Rate, Running, RunningServer, ServerEvent,
    SessionId, Sessions, Stands, Time, Visit, Whose, WhyRefused,
};
use gtpd::http::{Page, Text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::teller::{outcome, rate};
use crate::pages;
use exports::ByExport;

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// The numbers of a server, and where they are served.
pub struct Metrics {
    numbers: Arc<Numbers>,
    address: SocketAddr,
    /// The thread that serves them ends when this does.
    _serving: UnixStream,
}

/// What is counted, and what the page is made from.
struct Numbers {
    sessions: Sessions,
    quotas: Quotas,
    registry: Registry,
    counts: Mutex<Counts>,
}

/// What is counted.
struct Counts {
    ended: Counters,
    /// The same by verb and outcome alone.
    ends: Counters,
    content: Counters,
    wire: Counters,
    wasted: Counters,
    files: Counters,
    changes: Counters,
    running: Family<Labels, Gauge>,
    rates_now: Gauges,
    granted: Gauges,
    /// Content, and rates now, by group and verb.
    group_content: Counters,
    group_rates: Gauges,
    by_export: ByExport,
    limited: Family<Labels, Counter<f64, AtomicU64>>,
    capacity: Gauges,
    standing: Family<Labels, Gauge>,
    dropped: Counters,
    seconds: Histograms,
    rates: Histograms,
    refused: Counters,
    missed: Counter,
    lost: Counter,
    /// Keys that are told apart.
    names: HashSet<String>,
    /// What was counted of sessions whose end was not.
    counted: BTreeMap<SessionId, Moved>,
    /// Whose sessions run, or ran.
    shown: BTreeSet<Labels>,
    groups_shown: BTreeSet<Labels>,
    /// When it was last looked what limits sessions.
    looked: Option<Time>,
}

/// Keys that are told apart at most; further ones count as `other`.
const NAMES_MOST: usize = 100;

/// Sessions that have ended and of whose end no event has come: as many events wait at most, so
/// that the event of an older one was dropped.
const ENDS_MOST: usize = 1_024;

/// Why a connection was turned away before it proved a key.
const TOO_MANY: &str = "too_many";

/// What sessions of a server of files do. A stream that it serves goes into a file, and is a `put`.
const VERBS: [&str; 7] = ["get", "put", "list", "tree", "fetch", "relay", "probe"];

/// Sessions of these move data, and may wait for a listing before they do.
const MOVING: [&str; 4] = ["get", "put", "fetch", "relay"];

const PAGE: &[Page<Numbers>] = &[Page {
    path: "/metrics",
    kind: pages::OPEN_METRICS,
    text: Text::ToAll(|numbers, _| {
        numbers.look();
        pages::text(&numbers.registry)
    }),
}];

impl Metrics {
    /// Counts from now on, and serves the numbers at a loopback address by a thread of its own.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] if the address is no loopback address or not available.
    pub fn serve(address: SocketAddr, running: &RunningServer) -> Result<Metrics, Failure> {
        let numbers = Arc::new(Numbers::new(running.sessions(), running.quotas()));
        let serving = pages::serve(address, PAGE, &numbers)?;
        Ok(Metrics { numbers, address, _serving: serving })
    }

    /// Serves the same numbers at another address.
    ///
    /// # Errors
    /// As [`Metrics::serve`]; the numbers then stay where they are.
    pub fn move_to(&mut self, address: SocketAddr) -> Result<(), Failure> {
        if address != self.address {
            self._serving = pages::serve(address, PAGE, &self.numbers)?;
            self.address = address;
        }
        Ok(())
    }

    /// Counts an event.
    pub fn count(&self, event: &ServerEvent) {
        self.numbers.counts().count(event);
    }

    /// Looks at the host, and at what keeps the sessions that run from going faster.
    pub fn look(&self, host: &Host) {
        let running = self.numbers.sessions.running();
        let mut counts = self.numbers.counts();
        counts.look_at_limits(host.now(), &running);
        counts.look_at_host(host);
    }

    /// Notes how many records the audit has lost since the start.
    pub fn count_lost(&self, records: u64) {
        let counts = self.numbers.counts();
        counts.lost.inc_by(records.saturating_sub(counts.lost.get()));
    }
}

impl Numbers {
    fn new(sessions: Sessions, quotas: Quotas) -> Numbers {
        let counts = Counts::new();
        Numbers { sessions, quotas, registry: counts.registry(), counts: Mutex::new(counts) }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what running sessions have moved. No end is counted meanwhile: a session leaves the
    /// table before its end is told.
    fn look(&self) {
        let mut counts = self.counts();
        counts.look(&self.sessions.running());
        counts.by_export.show(&self.quotas.all());
    }
}

impl Counts {
    fn new() -> Counts {
        let counts = Counts::empty();
        // An alert needs to see the first one as a change.
        for whose in [Whose::Listed, Whose::Stranger] {
            for why in WhyRefused::ALL {
                counts.refuse(why.as_str(), whose, 0);
            }
        }
        counts.refuse(TOO_MANY, Whose::Stranger, 0);
        for verb in VERBS {
            for outcome in ["done"].into_iter().chain(FailureKind::ALL.map(FailureKind::as_str)) {
                counts.count_end(verb, outcome, 0);
            }
        }
        counts
    }

    fn empty() -> Counts {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.01, 4.0, 12));
        let rates: fn() -> Histogram = || Histogram::new(exponential_buckets(1e5, 4.0, 11));
        Counts {
            ended: Family::default(),
            ends: Family::default(),
            content: Family::default(),
            wire: Family::default(),
            wasted: Family::default(),
            files: Family::default(),
            changes: Family::default(),
            running: Family::default(),
            rates_now: Family::default(),
            granted: Family::default(),
            group_content: Family::default(),
            group_rates: Family::default(),
            by_export: ByExport::default(),
            limited: Family::default(),
            capacity: Family::default(),
            standing: Family::default(),
            dropped: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            rates: Family::new_with_constructor(rates),
            refused: Family::default(),
            missed: Counter::default(),
            lost: Counter::default(),
            names: HashSet::new(),
            counted: BTreeMap::new(),
            shown: BTreeSet::new(),
            groups_shown: BTreeSet::new(),
            looked: None,
        }
    }

    fn registry(&self) -> Registry {
        let mut root = Registry::default();
        gtpd::process::register(&mut root);
        let all = root.sub_registry_with_prefix("gtp_serve");
        all.register("sessions", "Sessions that ended", self.ended.clone());
        let help = "Sessions that ended; all series are there from the start on";
        all.register("ends", help, self.ends.clone());
        all.register("content_bytes", "Content that was moved", self.content.clone());
        all.register("wire_bytes", "IP bytes of data packets", self.wire.clone());
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
        let help = "Rates of the sessions that run";
        all.register("moving_bits_per_second", help, self.rates_now.clone());
        all.register("granted_bits_per_second", "What they are granted", self.granted.clone());
        let help = "Content that was moved, by the groups of its clients";
        all.register("group_content_bytes", help, self.group_content.clone());
        let help = "Rates of the sessions that run, by the groups of their clients";
        all.register("group_moving_bits_per_second", help, self.group_rates.clone());
        self.by_export.register(all);
        let help = "Time that sessions ran, by what kept them from going faster";
        all.register("limited_seconds", help, self.limited.clone());
        let help = "What this server shares out where no daemon does";
        all.register("capacity_bits_per_second", help, self.capacity.clone());
        let help = "1 for what the server is to the machine's daemon";
        all.register("daemon_standing", help, self.standing.clone());
        all.register("dropped_datagrams", "Datagrams that came to nothing", self.dropped.clone());
        root
    }

    fn count(&mut self, event: &ServerEvent) {
        match event {
            ServerEvent::Ended { visit, moved, failure, .. } => {
                self.end(visit, moved, failure.as_ref());
            }
            ServerEvent::Refused { reason, whose, .. } => self.refuse(reason.as_str(), *whose, 1),
            ServerEvent::TurnedAway { more, .. } => {
                self.refuse(TOO_MANY, Whose::Stranger, 1 + more);
            }
            ServerEvent::Missed { count } => {
                self.missed.inc_by(*count);
            }
            ServerEvent::Started { .. }
            | ServerEvent::Changed { .. }
            | ServerEvent::KeysRead { .. }
            | ServerEvent::KeysUnreadable { .. }
            | ServerEvent::KeysUsable { .. } => {}
        }
    }

    /// Counts what these sessions have moved since they were last looked at. They are all that run.
    fn look(&mut self, running: &[Running]) {
        for Running { visit, moved, .. } in running {
            self.add(visit, moved);
        }
        self.show(running);
        let ids: HashSet<SessionId> = running.iter().map(|one| one.visit.id).collect();
        let gone: Vec<SessionId> =
            self.counted.keys().filter(|id| !ids.contains(id)).copied().collect();
        for id in gone.iter().take(gone.len().saturating_sub(ENDS_MOST)) {
            self.counted.remove(id);
        }
    }

    /// Shows how many sessions run, how fast they go, and what they are granted.
    fn show(&mut self, running: &[Running]) {
        let none = |labels: &Labels| (labels.clone(), (0, [0.0; 2]));
        let mut sums: BTreeMap<Labels, (i64, [f64; 2])> = self.shown.iter().map(none).collect();
        for Running { visit, pace, .. } in running {
            let sum = sums.entry(self.labels(visit)).or_default();
            sum.0 += 1;
            if let Some(pace) = pace {
                sum.1[0] += bps(pace.rate);
                sum.1[1] += bps(pace.granted);
            }
        }
        for (labels, (count, [rate, granted])) in sums {
            self.running.get_or_create(&labels).set(count);
            self.rates_now.get_or_create(&labels).set(rate);
            self.granted.get_or_create(&labels).set(granted);
            self.shown.insert(labels);
        }
        self.show_groups(running);
    }

    /// Shows how fast the sessions of each group's members go together.
    fn show_groups(&mut self, running: &[Running]) {
        let none = |labels: &Labels| (labels.clone(), 0.0);
        let mut sums: BTreeMap<Labels, f64> = self.groups_shown.iter().map(none).collect();
        for Running { visit, pace, .. } in running {
            let rate = pace.map_or(0.0, |pace| bps(pace.rate));
            for group in &visit.groups {
                *sums.entry(of_group(group, visit)).or_default() += rate;
            }
        }
        for (labels, rate) in sums {
            self.group_rates.get_or_create(&labels).set(rate);
            self.groups_shown.insert(labels);
        }
    }

    /// Counts the time since the last look for what limits each session now.
    fn look_at_limits(&mut self, now: Time, running: &[Running]) {
        let Some(before) = self.looked.replace(now) else { return };
        let seconds = now.since(before).as_secs_f64();
        for Running { visit, pace, .. } in running {
            let by = match pace {
                Some(pace) => pace.limited_by.as_str(),
                None if MOVING.contains(&visit.request.verb) => "listing",
                None => continue,
            };
            let mut labels = self.labels(visit);
            labels.push(("by", by.to_owned()));
            self.limited.get_or_create(&labels).inc_by(seconds);
        }
    }

    fn look_at_host(&mut self, host: &Host) {
        for (way, capacity) in ["out", "in"].into_iter().zip(host.capacities()) {
            let labels = vec![("direction", way.to_owned())];
            self.capacity.get_or_create(&labels).set(bps(capacity));
        }
        for stands in Stands::ALL {
            let labels = vec![("standing", stands.as_str().to_owned())];
            self.standing.get_or_create(&labels).set((host.stands() == stands).into());
        }
        for (why, count) in host.dropped_datagrams() {
            let dropped = self.dropped.get_or_create_owned(&vec![("why", why.to_owned())]);
            dropped.inc_by(count.saturating_sub(dropped.get()));
        }
    }

    /// Counts what a session has moved beyond what was counted of it.
    fn add(&mut self, visit: &Visit, moved: &Moved) {
        let labels = self.labels(visit);
        let counted = self.counted.entry(visit.id).or_default();
        let content = moved.content_bytes.saturating_sub(counted.content_bytes);
        self.by_export.add(visit, content);
        for group in &visit.groups {
            self.group_content.get_or_create(&of_group(group, visit)).inc_by(content);
        }
        let add = |to: &Counters, amount: u64, counted: &mut u64| {
            to.get_or_create(&labels).inc_by(amount.saturating_sub(*counted));
            *counted = amount.max(*counted);
        };
        add(&self.content, moved.content_bytes, &mut counted.content_bytes);
        add(&self.wire, moved.wire_bytes, &mut counted.wire_bytes);
        add(&self.wasted, moved.wasted_bytes, &mut counted.wasted_bytes);
        add(&self.files, moved.files, &mut counted.files);
        add(&self.changes, moved.changes, &mut counted.changes);
    }

    fn end(&mut self, visit: &Visit, moved: &Moved, failure: Option<&Failure>) {
        self.add(visit, moved);
        self.counted.remove(&visit.id);
        let verb = of_verb(visit);
        self.seconds.get_or_create(&verb).observe(moved.span.as_secs_f64());
        if moved.content_bytes > 0 {
            self.rates.get_or_create(&verb).observe(rate(moved) as f64);
        }
        let outcome = outcome(failure);
        let mut labels = self.labels(visit);
        labels.push(("outcome", outcome.to_owned()));
        self.ended.get_or_create(&labels).inc();
        self.by_export.end(visit, outcome);
        self.count_end(visit.request.verb, outcome, 1);
    }

    fn count_end(&self, verb: &str, outcome: &str, count: u64) {
        let labels = vec![("verb", verb.to_owned()), ("outcome", outcome.to_owned())];
        self.ends.get_or_create(&labels).inc_by(count);
    }

    fn refuse(&self, why: &str, whose: Whose, count: u64) {
        let whose = match whose {
            Whose::Listed => "listed",
            Whose::Stranger => "stranger",
        };
        let labels = vec![("why", why.to_owned()), ("whose", whose.to_owned())];
        self.refused.get_or_create(&labels).inc_by(count);
    }

    fn labels(&mut self, visit: &Visit) -> Labels {
        let mut labels = vec![("key", self.name(visit))];
        labels.extend(of_verb(visit));
        labels
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

fn bps(rate: Rate) -> f64 {
    if rate.is_unlimited() { f64::INFINITY } else { rate.as_f64() }
}

fn of_verb(visit: &Visit) -> Labels {
    vec![("verb", visit.request.verb.to_owned())]
}

/// The labels of a session for one of its client's groups, of which the configuration has few.
fn of_group(group: &str, visit: &Visit) -> Labels {
    let mut labels = vec![("group", group.to_owned())];
    labels.extend(of_verb(visit));
    labels
}

#[cfg(test)]
mod tests {
    use gtp::{LimitedBy, Objects, Pace, Request, Span};

    use super::*;

    fn visit(id: SessionId, name: &str, whose: Whose) -> Arc<Visit> {
        let key = gtp::Identity::generate().fingerprint();
        let request = Request { key, name: Some(name.into()), verb: "get", path: "x".into() };
        let client = SocketAddr::from(([127, 0, 0, 1], 9));
        Arc::new(Visit { id, client, whose, request, export: None, groups: Vec::new() })
    }

    fn page(numbers: &Numbers) -> String {
        String::from_utf8(pages::text(&numbers.registry)).unwrap()
    }

    fn sum(page: &str, family: &str, has: &str) -> u64 {
        let lines = page.lines().filter(|l| l.starts_with(family) && l.contains(has));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    fn moved(content_bytes: u64) -> Moved {
        Moved { content_bytes, span: Span::from_secs(1), ..Moved::default() }
    }

    #[test]
    fn every_byte_and_every_end_counts_once_and_keys_beyond_the_bound_count_as_other() {
        let numbers = Numbers::new(Sessions::default(), Quotas::default());
        let mut sent = 0;
        for n in 0..3 * NAMES_MOST as u64 {
            let whose = if n % 3 == 0 { Whose::Stranger } else { Whose::Listed };
            let visit = visit(n, &format!("client {n}"), whose);
            // A look while it runs, and one that is late.
            let moved_so_far = moved(n / 2);
            let visit_now = Arc::clone(&visit);
            let running = [Running { visit: visit_now, moved: moved_so_far, pace: None }];
            numbers.counts().look(&running);
            assert_eq!(sum(&page(&numbers), "gtp_serve_running_sessions{", ""), 1);
            numbers.counts().look(&[]);
            let failed = || Failure::new(FailureKind::Temporary, "lost");
            let failure = (n % 2 == 0).then(failed);
            numbers.counts().count(&ServerEvent::Ended {
                visit,
                moved: moved(n),
                objects: Objects::default(),
                failure,
            });
            sent += n;
        }
        let page = page(&numbers);
        assert_eq!(sum(&page, "gtp_serve_content_bytes_total{", ""), sent);
        assert_eq!(sum(&page, "gtp_serve_sessions_total{", ""), 300);
        assert_eq!(sum(&page, "gtp_serve_sessions_total{", "outcome=\"temporary\""), 150);
        assert_eq!(sum(&page, "gtp_serve_sessions_total{", "key=\"stranger\""), 100);
        assert_eq!(sum(&page, "gtp_serve_sessions_total{", "key=\"other\""), 100);
        assert_eq!(sum(&page, "gtp_serve_running_sessions{", ""), 0);
        assert_eq!(sum(&page, "gtp_serve_session_seconds_count{", ""), 300);
        let keys = page.lines().filter(|l| l.starts_with("gtp_serve_content_bytes_total{"));
        assert_eq!(keys.count(), NAMES_MOST + 2);
    }

    #[test]
    fn the_first_failure_of_a_kind_is_an_increase_of_a_series_that_was_zero() {
        let numbers = Numbers::new(Sessions::default(), Quotas::default());
        let ends = |has: &str| sum(&page(&numbers), "gtp_serve_ends_total{", has);
        let series = |page: String| {
            page.lines().filter(|line| line.starts_with("gtp_serve_ends_total{")).count()
        };
        let all = series(page(&numbers));
        assert_eq!((all, ends("")), (VERBS.len() * (FailureKind::ALL.len() + 1), 0));
        for kind in FailureKind::ALL {
            let visit = visit(1, "anna", Whose::Listed);
            let failure = Some(Failure::new(kind, "why"));
            numbers.counts().count(&ServerEvent::Ended {
                visit,
                moved: moved(1),
                objects: Objects::default(),
                failure,
            });
            let outcome = format!("outcome=\"{}\"}}", kind.as_str());
            assert_eq!(ends(&outcome), 1, "{outcome}");
        }
        assert_eq!(series(page(&numbers)), all, "no series begins at one");
        assert_eq!(ends("verb=\"get\""), FailureKind::ALL.len() as u64);
    }

    #[test]
    fn sessions_of_whose_end_no_event_comes_run_no_longer_and_take_no_memory() {
        let numbers = Numbers::new(Sessions::default(), Quotas::default());
        for id in 0..2 * ENDS_MOST as u64 {
            let visit = visit(id, "anna", Whose::Listed);
            numbers.counts().look(&[Running { visit, moved: moved(1), pace: None }]);
        }
        numbers.counts().look(&[]);
        let page = page(&numbers);
        assert_eq!(sum(&page, "gtp_serve_running_sessions{", ""), 0);
        assert_eq!(sum(&page, "gtp_serve_content_bytes_total{", ""), 2 * ENDS_MOST as u64);
        assert_eq!(numbers.counts().counted.len(), ENDS_MOST);
    }

    const PACE: Pace = Pace {
        rate: Rate::ZERO,
        granted: Rate::ZERO,
        limited_by: LimitedBy::Path,
        side: gtp_share::Side::Source,
        rtt: Span::ZERO,
        path: None,
        way: gtp::Way::Udp,
    };

    #[test]
    fn time_counts_for_what_limits_a_session_and_rates_are_those_of_sessions_that_run() {
        let numbers = Numbers::new(Sessions::default(), Quotas::default());
        let (rate, granted) = (Rate::from_mbps(3), Rate::from_mbps(4));
        let going = |limited_by| Running {
            visit: visit(1, "anna", Whose::Listed),
            moved: moved(1),
            pace: Some(Pace { rate, granted, limited_by, ..PACE }),
        };
        let listing = Running { pace: None, ..going(LimitedBy::Path) };
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut counts = numbers.counts();
        counts.look_at_limits(at(9), &[]);
        counts.look_at_limits(at(10), &[listing]);
        counts.look_at_limits(at(12), &[going(LimitedBy::Path), going(LimitedBy::Disk)]);
        counts.look_at_limits(at(15), &[going(LimitedBy::Path)]);
        counts.look(&[going(LimitedBy::Path), going(LimitedBy::Disk)]);
        drop(counts);
        let has = |line: &str| {
            let page = page(&numbers);
            assert!(page.contains(&format!("\ngtp_serve_{line}\n")), "{line}: {page}");
        };
        let anna = "key=\"anna\",verb=\"get\"";
        has(&format!("limited_seconds_total{{{anna},by=\"listing\"}} 1.0"));
        has(&format!("limited_seconds_total{{{anna},by=\"path\"}} 5.0"));
        has(&format!("limited_seconds_total{{{anna},by=\"disk\"}} 2.0"));
        has(&format!("moving_bits_per_second{{{anna}}} 6000000.0"));
        has(&format!("granted_bits_per_second{{{anna}}} 8000000.0"));
        numbers.counts().look(&[]);
        has(&format!("moving_bits_per_second{{{anna}}} 0.0"));
        has(&format!("running_sessions{{{anna}}} 0"));
    }

    #[test]
    fn content_counts_once_for_each_group_of_a_client_and_rates_are_those_of_all_members() {
        let numbers = Numbers::new(Sessions::default(), Quotas::default());
        let member = |id, groups: &[&str]| {
            let visit = Visit::clone(&visit(id, "anna", Whose::Listed));
            let groups = groups.iter().map(|name| Arc::from(*name)).collect();
            Arc::new(Visit { groups, ..visit })
        };
        let (both, one) = (member(1, &["lab", "night"]), member(2, &["lab"]));
        let pace = |rate| {
            let (rate, granted) = (Rate::from_mbps(rate), Rate::UNLIMITED);
            Some(Pace { rate, granted, ..PACE })
        };
        let running = |visit: &Arc<Visit>, bytes, rate| {
            let (visit, moved, pace) = (Arc::clone(visit), moved(bytes), pace(rate));
            Running { visit, moved, pace }
        };
        numbers.counts().look(&[running(&both, 5, 2), running(&one, 3, 4)]);
        let has = |line: &str| {
            let page = page(&numbers);
            assert!(page.contains(&format!("\ngtp_serve_group_{line}\n")), "{line}: {page}");
        };
        has("content_bytes_total{group=\"lab\",verb=\"get\"} 8");
        has("moving_bits_per_second{group=\"lab\",verb=\"get\"} 6000000.0");
        has("moving_bits_per_second{group=\"night\",verb=\"get\"} 2000000.0");
        let ended = ServerEvent::Ended {
            visit: both,
            moved: moved(9),
            objects: Objects::default(),
            failure: None,
        };
        numbers.counts().count(&ended);
        numbers.counts().look(&[running(&one, 3, 4)]);
        has("content_bytes_total{group=\"lab\",verb=\"get\"} 12");
        has("content_bytes_total{group=\"night\",verb=\"get\"} 9");
        has("moving_bits_per_second{group=\"night\",verb=\"get\"} 0.0");
    }

    #[test]
    fn content_and_ends_count_for_the_export_and_quotas_show_what_they_have_and_allow() {
        let numbers = Numbers::new(Sessions::default(), Quotas::default());
        let of = |id, export: Option<&str>| {
            let visit = Visit::clone(&visit(id, "anna", Whose::Listed));
            Arc::new(Visit { export: export.map(Arc::from), ..visit })
        };
        let ended = |visit, bytes, failed: bool| {
            let failure = failed.then(|| Failure::new(FailureKind::Missing, "gone"));
            let objects = gtp::Objects::default();
            ServerEvent::Ended { visit, moved: moved(bytes), objects, failure }
        };
        let home = of(1, Some("home"));
        let running = Running { visit: Arc::clone(&home), moved: moved(3), pace: None };
        numbers.counts().look(&[running]);
        numbers.counts().count(&ended(home, 5, false));
        numbers.counts().count(&ended(of(2, Some("lab")), 7, true));
        numbers.counts().count(&ended(of(3, None), 9, false));
        let has = |line: &str| page(&numbers).contains(&format!("\ngtp_serve_{line}\n"));
        assert!(has("export_content_bytes_total{export=\"home\",verb=\"get\"} 5"));
        assert!(has("export_content_bytes_total{export=\"/\",verb=\"get\"} 9"));
        let missing = "{export=\"lab\",verb=\"get\",outcome=\"missing\"} 1";
        assert!(has(&format!("export_sessions_total{missing}")), "{}", page(&numbers));
        let quota = gtp::Quota { bytes: Some(100), files: None };
        let owner = gtp::QuotaOf::Group("staff".into());
        let stands = gtp::QuotaStands { owner, quota, used: None };
        let staff = "{kind=\"group\",owner=\"staff\"}";
        numbers.counts().by_export.show(std::slice::from_ref(&stands));
        assert!(has(&format!("quota_limit_bytes{staff} 100.0")), "{}", page(&numbers));
        assert!(!page(&numbers).contains("gtp_serve_quota_used_bytes{"), "not counted yet");
        numbers.counts().by_export.show(&[gtp::QuotaStands { used: Some((40, 4)), ..stands }]);
        assert!(has(&format!("quota_used_bytes{staff} 40.0")), "{}", page(&numbers));
        assert!(!page(&numbers).contains("_files{"), "names have no limit");
        numbers.counts().by_export.show(&[]);
        assert!(!page(&numbers).contains("gtp_serve_quota_limit_bytes{"), "it is no more");
    }

    #[test]
    fn what_a_client_asks_for_cannot_make_the_labels_of_refusals_grow() {
        let numbers = Numbers::new(Sessions::default(), Quotas::default());
        for n in 0..1_000_u64 {
            let visit = visit(n, &format!("client {n}"), Whose::Listed);
            numbers.counts().count(&ServerEvent::Refused {
                client: visit.client,
                whose: visit.whose,
                reason: gtp::WhyRefused::Busy,
                request: Some(Request { path: format!("path {n}"), ..visit.request.clone() }),
                failure: Failure::new(FailureKind::Authentication, format!("why {n}")),
            });
        }
        let page = page(&numbers);
        let lines: Vec<&str> =
            page.lines().filter(|l| l.starts_with("gtp_serve_refused_total{")).collect();
        assert_eq!(lines.len(), 2 * WhyRefused::ALL.len() + 1);
        let lines: Vec<&str> = lines.into_iter().filter(|line| !line.ends_with(" 0")).collect();
        assert_eq!(lines, ["gtp_serve_refused_total{why=\"busy\",whose=\"listed\"} 1000"]);
    }
}
