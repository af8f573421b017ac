//! Fetches one object from one or several servers.
//!
//! One loop hears the engine, the lines to the servers and the clock, and decides what follows.
//! The state of a source is one of three: a line is being made, a session runs, it is given up.
//! The transfer itself outlives all of them: what is missing is asked of whoever comes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_proto::{FlowId, Revision};
use gtp_store::{Finished, Kind, Manifest, Recheck, RootKind, SinkError, Value};
use gtp_sys::Clock;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::PathWords;
use super::connect::Units;
use super::link::{self, Order, Ready, Report, Reports};
use super::place::{self, Place, Placed};
use super::progress::{Event, Outcome, Progress};
use super::roots::RootCheck;
use super::silence::{
    Asked, Inquiry, Silences, Verdict as SilenceVerdict, not_waited_for, path_lost,
    speaks_against_udp,
};
use super::{
    Endpoint, LOOK_SPAN, Monitor, Terms, Url, back_off_after, stop_words, stopped,
    without_datagrams,
};
use crate::control::{ANSWER_SPAN, ControlError, Obstacle};
use crate::engine::{
    Blame, FlowProgress, RootPolicy, TransferEvent, TransferHandle, TransferOpen, Way,
};
use crate::flows::{Failure, FailureKind};
use crate::messages::{Arrivals, Done};
use object::{check_possible, same_object};
use skipped::Skipped;
use tally::Tally;

mod conduct;
mod files;
mod hashes;
mod object;
mod skipped;
mod tally;
mod ways;

/// What to fetch, from where, and to where.
pub struct GetRequest {
    /// Addresses of the same object, at least one.
    pub sources: Vec<Url>,
    /// On what terms.
    pub terms: Terms,
    /// Where it goes.
    pub place: Place,
    /// The BLAKE3 hash that the file must have; no source is asked then.
    pub expected: Option<Value>,
}

/// Fetches an object. Dropping the future suspends the transfer.
///
/// # Errors
/// [`Failure`]; what is complete is kept for the next attempt.
pub async fn get(
    endpoint: Arc<Endpoint>,
    request: GetRequest,
    monitor: Monitor,
) -> Result<Outcome, Failure> {
    if request.sources.is_empty() {
        return Err(Failure::new(FailureKind::Usage, "no source is named"));
    }
    let (mut gather, reports) = Gather::start(endpoint, request, monitor);
    gather.run(reports).await
}

/// How a source stands.
enum State {
    /// A line is being made, perhaps after a pause.
    Connecting,
    /// It is ready and waits for the start of the transfer.
    Parked(Box<Ready>),
    /// A session runs.
    Live { flow: FlowId, orders: mpsc::UnboundedSender<Order> },
    /// It is given up.
    Gone(Failure),
}

struct Source {
    url: Url,
    state: State,
    /// When its newest attempt began.
    began: Time,
    /// Attempts since it last brought something.
    tries: u32,
    /// Whether a datagram ever came from it.
    path_seen: bool,
    /// Where its newest session sends from.
    peer: Option<SocketAddr>,
    /// What it understands in that session.
    revision: Revision,
    /// Whether its control connection has been told to carry that session's datagrams.
    is_carried: bool,
    /// The way that the user was told of last.
    way: Way,
    silences: Silences,
    inquiry: Inquiry,
    bad_blocks: u32,
    /// Rules that it broke.
    breaches: u32,
    /// Whether it has shown the object that is being fetched, or another one.
    admitted: bool,
    differs: bool,
    /// Why it was lost last, until it is back.
    lost_by: Option<Failure>,
    /// Until when its last word is waited for, and what counts without one.
    parted: Option<(Time, Failure)>,
    /// The task that tends its line.
    line: Option<JoinHandle<()>>,
}

/// The transfer, once its object is known.
struct Running {
    transfer: TransferHandle,
    manifest: Arc<Manifest>,
    /// For each entry: whether it is a file that must be finished and is not yet.
    unfinished: Vec<bool>,
    /// Entries that were there under their names and are kept: no source is asked about them.
    kept: Vec<bool>,
    check: Option<RootCheck>,
    /// Content bytes of files that will not come.
    lost_bytes: u64,
    /// How many these are.
    lost_files: u64,
    /// Files that were fetched again because their blocks had the wrong hash, and how often.
    renewed: BTreeMap<u32, u32>,
    /// A file that does not have the user's hash, until it is known which sources differ.
    wrong: Option<(u32, SinkError)>,
}

struct Gather {
    endpoint: Arc<Endpoint>,
    terms: Terms,
    place: Option<Place>,
    expected: Option<Value>,
    monitor: Monitor,
    reports: Reports,
    path_words: PathWords,
    sources: Vec<Source>,
    running: Option<Running>,
    skipped: Skipped,
    tally: Tally,
    clock: Clock,
    began: Time,
    /// When a source was first parked.
    parked_at: Option<Time>,
    /// Entries that any one source has listed at most; `None` before any has answered.
    listed: Option<u64>,
    /// When the number of bytes last rose.
    moved_at: Time,
    last_failure: Option<Failure>,
}

/// What ends the loop.
type Verdict = Result<Outcome, Failure>;

impl Gather {
    fn start(
        endpoint: Arc<Endpoint>,
        request: GetRequest,
        monitor: Monitor,
    ) -> (Gather, mpsc::UnboundedReceiver<(usize, Report)>) {
        let (reports, inbox) = mpsc::unbounded_channel();
        let GetRequest { sources, terms, place, expected } = request;
        let tally = Tally::new(sources.iter().map(Url::to_string));
        let clock = endpoint.host().clock();
        let began = clock.now();
        let gather = Gather {
            endpoint,
            terms,
            place: Some(place),
            expected,
            monitor,
            reports,
            path_words: PathWords::default(),
            sources: sources.into_iter().map(Source::at).collect(),
            running: None,
            skipped: Skipped::default(),
            tally,
            clock,
            began,
            parked_at: None,
            listed: None,
            moved_at: began,
            last_failure: None,
        };
        (gather, inbox)
    }

    async fn run(&mut self, mut reports: mpsc::UnboundedReceiver<(usize, Report)>) -> Verdict {
        for number in 0..self.sources.len() {
            self.connect(number, Duration::ZERO);
        }
        let mut look = tokio::time::interval(LOOK_SPAN);
        let mut stop = self.monitor.stop.clone();
        loop {
            let step = tokio::select! {
                event = next_event(&mut self.running) => {
                    // A server's own word on why it ends comes before that it has ended.
                    self.hear_waiting(&mut reports).and_then(|()| self.handle_transfer(event))
                }
                Some((number, report)) = reports.recv() => self.handle_report(number, report),
                _ = look.tick() => self.handle_look(),
                kind = stopped(&mut stop) => Err(Failure::new(kind, stop_words(kind))),
            };
            let step = match step {
                Ok(None) => self.begin_if_ready().await.map(|()| None),
                decided => decided,
            };
            match step {
                Ok(None) => {}
                Ok(Some(finished)) => {
                    let outcome = self.finish(finished);
                    self.farewell().await;
                    return Ok(outcome);
                }
                Err(failure) => {
                    self.suspend().await;
                    self.farewell().await;
                    return Err(failure);
                }
            }
        }
    }

    // --- the servers' lines ---

    fn connect(&mut self, number: usize, pause: Duration) {
        let units = match self.sources.len() {
            1 => Units::AsThePath,
            _ => Units::Ordinary,
        };
        let source = &mut self.sources[number];
        (source.state, source.parted) = (State::Connecting, None);
        source.began = self.clock.now() + Span::from_nanos(pause.as_nanos() as u64);
        source.line = Some(tokio::spawn(link::run(
            number,
            Arc::clone(&self.endpoint),
            source.url.clone(),
            (self.terms.clone(), units),
            pause,
            self.reports.clone(),
        )));
    }

    fn handle_report(
        &mut self,
        number: usize,
        report: Report,
    ) -> Result<Option<Finished>, Failure> {
        match report {
            Report::Ready(ready) => {
                self.parked_at.get_or_insert(self.clock.now());
                self.sources[number].state = State::Parked(ready);
            }
            Report::Listing { entries } => {
                // Only more than ever is progress: a listing may be begun again and again.
                if self.listed.is_some_and(|most| entries > most) && self.running.is_none() {
                    self.moved_at = self.clock.now();
                }
                self.listed = self.listed.max(Some(entries));
            }
            Report::Working => {
                let now = self.clock.now();
                let waited = gtp_sys::clock::duration(now.since(self.began));
                if self.running.is_none() && waited < ANSWER_SPAN {
                    self.moved_at = now;
                }
            }
            Report::Refused(failure) => self.source_failed(number, failure)?,
            Report::Arrivals { arrivals, took } => {
                self.silence_explained(number, arrivals, took)?
            }
            Report::Ended(failure) => {
                // A path is judged here, also where the server is the first to wait in vain.
                let failure = match failure.kind == FailureKind::NoUdpPath {
                    true => not_waited_for(),
                    false => failure,
                };
                // A line that was dropped on purpose may still say so.
                match self.sources[number].state {
                    State::Live { flow, .. } => {
                        if let Some(running) = &self.running {
                            running.transfer.remove_session(flow);
                        }
                        self.source_failed(number, failure)?;
                    }
                    State::Parked(_) => self.source_failed(number, failure)?,
                    State::Connecting | State::Gone(_) => {}
                }
            }
            Report::Unheard => {
                if let (State::Live { flow, .. }, Some(running)) =
                    (&self.sources[number].state, &self.running)
                {
                    running.transfer.unheard(*flow);
                }
            }
            Report::Remark(failure) => self.skipped.note(failure, &self.monitor),
            Report::FileLost { path, failure } => {
                self.skipped.hear(path, failure, &self.monitor);
            }
            Report::Roots { first_file, roots } => {
                if let Some(check) = self.running.as_mut().and_then(|r| r.check.as_mut()) {
                    check.answer(number, first_file, &roots);
                }
                self.judge_roots()?;
            }
        }
        Ok(None)
    }

    /// Takes in what the lines have reported already, a bounded number.
    fn hear_waiting(
        &mut self,
        reports: &mut mpsc::UnboundedReceiver<(usize, Report)>,
    ) -> Result<(), Failure> {
        for _ in 0..REPORTS_AT_ONCE {
            let Ok((number, report)) = reports.try_recv() else { break };
            self.handle_report(number, report)?;
        }
        Ok(())
    }

    /// No datagram comes from a source, or gets there.
    fn without_path(&self, number: usize) -> Failure {
        let source = &self.sources[number];
        let host = source.url.host();
        match source.peer {
            Some(peer) if !source.path_seen => {
                let known = (self.terms.udp, source.revision);
                without_datagrams(&self.endpoint, host, peer, known)
            }
            Some(_) | None => path_lost(host),
        }
    }

    /// A source has said what has come of the datagrams that it has not answered.
    fn silence_explained(
        &mut self,
        number: usize,
        arrivals: Arrivals,
        took: Span,
    ) -> Result<(), Failure> {
        let source = &mut self.sources[number];
        let State::Live { flow, .. } = source.state else { return Ok(()) };
        if source.inquiry.answer(self.clock.now()).0 == Asked::Waiting {
            if speaks_against_udp(arrivals, took) {
                self.carry(flow);
            }
            return Ok(());
        }
        let failure = match source.silences.judge(source.url.host(), arrivals, took) {
            SilenceVerdict::Slow(failure) => failure,
            SilenceVerdict::NoPath => self.without_path(number),
            SilenceVerdict::OneWay(failure) => {
                let known = (self.terms.udp, source.revision);
                match self.endpoint.is_closed_one_way(source.url.host(), known) {
                    true => self.without_path(number),
                    false => failure,
                }
            }
        };
        self.source_failed(number, failure)
    }

    // --- the start ---

    /// Starts the transfer when its object is known, and adds sources that have become ready.
    async fn begin_if_ready(&mut self) -> Result<(), Failure> {
        if self.running.is_none() {
            let Some(first) = self.leader() else { return Ok(()) };
            self.begin(first).await?;
        }
        for number in 0..self.sources.len() {
            self.admit(number)?;
        }
        Ok(())
    }

    /// Opens sink and transfer for the object as this source describes it.
    async fn begin(&mut self, number: usize) -> Result<(), Failure> {
        let State::Parked(ready) = &self.sources[number].state else { return Ok(()) };
        let manifest = Arc::clone(&ready.described.manifest);
        let single = manifest.root_kind == RootKind::File;
        if self.expected.is_some() && !single {
            let text = "a hash can be given for one file only, and this is a directory";
            return Err(Failure::new(FailureKind::Usage, text));
        }
        if let Some(hash) = self.expected {
            check_possible(hash, &self.sources[number].url, &manifest)?;
        }
        let missing =
            self.place.as_ref().map_or_else(Vec::new, |place| place.missing(&ready.described));
        missing.into_iter().for_each(|failure| self.skipped.note(failure, &self.monitor));
        let Some(place) = self.place.take() else { return Ok(()) };
        let url = self.sources[0].url.clone();
        let described = Arc::clone(&manifest);
        let expected = self.expected;
        let recheck = Arc::new(Recheck::default());
        let watched = Arc::clone(&recheck);
        let opening = tokio::task::spawn_blocking(move || {
            place::open(place, &url, &described, expected, &watched)
        });
        let Placed { sink, shown } =
            self.watch_opening(opening, &recheck, manifest.content_bytes()).await?;
        let kept = (0u32..).zip(&manifest.entries).map(|(n, _)| sink.is_kept(n)).collect();
        let policy = if self.sources.len() > 1 || self.expected.is_some() {
            RootPolicy::AskFirst
        } else {
            RootPolicy::TrustTrailers
        };
        let open = TransferOpen { sink, manifest: Arc::clone(&manifest), roots: policy };
        let transfer = self.endpoint.host().open_transfer(open);
        let unfinished =
            manifest.entries.iter().map(|e| e.kind == Kind::File && e.size > 0).collect();
        self.tally.has_files(manifest.files());
        self.monitor.tell(Event::Started {
            destination: shown,
            kind: manifest.root_kind,
            files: manifest.files(),
            bytes: manifest.content_bytes(),
        });
        self.moved_at = self.clock.now();
        self.running = Some(Running {
            transfer,
            manifest,
            unfinished,
            kept,
            check: None,
            lost_bytes: 0,
            lost_files: 0,
            renewed: BTreeMap::new(),
            wrong: None,
        });
        Ok(())
    }

    /// Waits until the destination is open, shows how far that is, and lets the user stop it.
    async fn watch_opening(
        &mut self,
        mut opening: JoinHandle<Result<Placed, Failure>>,
        recheck: &Recheck,
        total: u64,
    ) -> Result<Placed, Failure> {
        let mut look = tokio::time::interval(LOOK_SPAN);
        let mut stop = self.monitor.stop.clone();
        let broke = |e| Failure::new(FailureKind::Other, format!("opening failed: {e}"));
        loop {
            tokio::select! {
                opened = &mut opening => {
                    self.show_recheck(recheck.bytes(), total);
                    return opened.map_err(broke)?;
                }
                _ = look.tick() => self.show_recheck(recheck.bytes(), total),
                kind = stopped(&mut stop) => {
                    recheck.stop();
                    // It ends at the next block, and lets go of the destination.
                    drop(opening.await);
                    return Err(Failure::new(kind, stop_words(kind)));
                }
            }
        }
    }

    fn show_recheck(&mut self, bytes: u64, total: u64) {
        self.tally.recheck(bytes, total);
        let elapsed = self.clock.now().since(self.began);
        self.monitor.progress.send_replace(Progress { elapsed, ..self.tally.progress().clone() });
    }

    /// Adds a source that is ready, if it shows the same object.
    fn admit(&mut self, number: usize) -> Result<(), Failure> {
        let Some(running) = &mut self.running else { return Ok(()) };
        if !matches!(self.sources[number].state, State::Parked(_)) {
            return Ok(());
        }
        let state = std::mem::replace(&mut self.sources[number].state, State::Connecting);
        let State::Parked(ready) = state else { return Ok(()) };
        let Ready { session, described, orders } = *ready;
        if !same_object(&running.manifest, &described.manifest) {
            return self.shows_another(number);
        }
        self.sources[number].admitted = true;
        self.sources[number].lost_by = None;
        for failure in described.skipped {
            if !self.skipped.contains(&failure) {
                self.skipped.note(failure, &self.monitor);
            }
        }
        let host = self.sources[number].url.host();
        let words = self.path_words.of(host, self.terms.path, session.path);
        words.into_iter().for_each(|words| self.monitor.tell(Event::Warning(words)));
        self.sources[number].peer = Some(session.peer);
        self.sources[number].revision = session.revision;
        self.sources[number].inquiry = Inquiry::default();
        self.sources[number].is_carried = false;
        let flow = running.transfer.add_session(session);
        self.tally.assign(flow, number);
        if let Some(check) = &mut running.check {
            for order in check.orders(number, self.clock.now()) {
                // A line that has just ended reports so itself.
                let _ = orders.send(order);
            }
        }
        self.sources[number].state = State::Live { flow, orders };
        if self.endpoint.is_carried(self.sources[number].url.host(), self.terms.udp) {
            self.carry(flow);
        }
        Ok(())
    }

    // --- the transfer ---

    fn handle_transfer(
        &mut self,
        event: Option<TransferEvent>,
    ) -> Result<Option<Finished>, Failure> {
        let Some(event) = event else {
            return Err(Failure::new(FailureKind::Other, "the engine has ended"));
        };
        match event {
            TransferEvent::PathOpen { flow } => {
                if let Some(number) = self.tally.source_of(flow) {
                    self.sources[number].path_seen = true;
                    self.sources[number].silences.end();
                }
            }
            TransferEvent::NoPath { flow } => self.no_path(flow)?,
            TransferEvent::Silent { flow } => self.silent(flow),
            TransferEvent::Lost { flow, blame, why } => match (self.live_source(flow), blame) {
                (Some(number), Blame::Source) => self.source_broke(number, why)?,
                (Some(number), Blame::Parted) => self.parted(number, why),
                (Some(number), Blame::Nobody) => {
                    self.source_failed(number, Failure::new(FailureKind::Temporary, why))?;
                }
                (None, _) => {}
            },
            TransferEvent::WrongRoot { file, doubtful, error } => {
                self.wrong_root(file, doubtful, error)?;
            }
            TransferEvent::BadBlock { flow, file, block } => self.bad_block(flow, file, block)?,
            TransferEvent::Unobtainable { flow, file, block } => {
                return Err(self.unobtainable(flow, file, block));
            }
            TransferEvent::FileDone { file, .. } => self.file_done(file),
            TransferEvent::FileNamed { file, root } => self.file_named(file, root),
            TransferEvent::GivenUp { file, why } => self.given_up(file, why),
            TransferEvent::AllBlocks => self.all_blocks()?,
            TransferEvent::Fault(error) => return Err(self.sink_failure(error)),
            TransferEvent::Warning(text) => self.monitor.tell(Event::Warning(text)),
            TransferEvent::Stalled | TransferEvent::BlockHere { .. } => {}
            TransferEvent::Complete(finished) => return Ok(Some(finished)),
            TransferEvent::Suspended => {
                return Err(Failure::new(FailureKind::Other, "the transfer was suspended"));
            }
        }
        Ok(None)
    }

    /// The source whose session this is now, not the one that it once was.
    fn live_source(&self, flow: FlowId) -> Option<usize> {
        let is = |s: &Source| matches!(s.state, State::Live { flow: f, .. } if f == flow);
        self.sources.iter().position(is)
    }

    fn no_path(&mut self, flow: FlowId) -> Result<(), Failure> {
        let Some(number) = self.live_source(flow) else { return Ok(()) };
        let source = &mut self.sources[number];
        if let State::Live { orders, .. } = &source.state
            && source.revision >= Revision::Third
        {
            if source.inquiry.give_up(self.clock.now()) {
                // A line that has just ended reports so itself.
                let _ = orders.send(Order::AskArrivals);
            }
            return Ok(());
        }
        let failure = self.without_path(number);
        self.source_failed(number, failure)
    }

    fn bad_block(&mut self, flow: FlowId, file: u32, block: u64) -> Result<(), Failure> {
        let Some(number) = self.tally.source_of(flow) else { return Ok(()) };
        let (url, path) = (self.sources[number].url.to_string(), self.path_of(file));
        self.monitor.tell(Event::BadBlock { url: url.clone(), path: path.clone(), block });
        self.sources[number].bad_blocks += 1;
        let gone = |s: &Source| matches!(s.state, State::Gone(_));
        let alone = self.sources.iter().filter(|s| !gone(s)).count() == 1;
        if alone || self.sources[number].bad_blocks <= BAD_BLOCKS_MAX {
            return Ok(());
        }
        let text = format!("it sends damaged blocks of {path}");
        self.give_up(number, Failure::new(FailureKind::Integrity, text))
    }

    fn unobtainable(&self, flow: FlowId, file: u32, block: u64) -> Failure {
        let url = self.tally.source_of(flow).map(|n| self.sources[n].url.to_string());
        let (url, path) = (url.unwrap_or_default(), self.path_of(file));
        let text = format!("{url} sends block {block} of {path} damaged, and nobody else has it");
        Failure::new(FailureKind::Integrity, text)
    }

    fn path_of(&self, file: u32) -> String {
        self.running.as_ref().map(|r| path_of(&r.manifest, file)).unwrap_or_default()
    }

    fn sink_failure(&self, error: gtp_store::SinkError) -> Failure {
        let failure = Failure::from(error);
        if failure.kind != FailureKind::Integrity {
            return failure;
        }
        let urls: Vec<String> = self.sources.iter().map(|s| s.url.to_string()).collect();
        failure.about(urls.join(", "))
    }

    // --- the clock ---

    fn handle_look(&mut self) -> Result<Option<Finished>, Failure> {
        let now = self.clock.now();
        if let Some(running) = &self.running {
            let numbers = running.transfer.progress();
            if self.tally.update(&numbers, &mut self.sources) {
                self.moved_at = now;
            }
            let hashing = running.check.is_some()
                && self.sources.iter().any(|s| matches!(s.state, State::Live { .. }));
            if hashing {
                // How long that may take is limited there.
                self.moved_at = now;
            }
        }
        self.tell_ways();
        self.dismiss_late()?;
        self.go_on_unheard()?;
        let elapsed = now.since(self.began);
        self.monitor.progress.send_replace(Progress { elapsed, ..self.tally.progress().clone() });
        let quiet = gtp_sys::clock::duration(now.since(self.moved_at));
        if quiet > self.terms.patience {
            return Err(self.patience_over(quiet));
        }
        Ok(None)
    }

    /// What is said when nothing has moved for as long as the user wants to wait.
    fn patience_over(&self, quiet: Duration) -> Failure {
        let met = self.running.is_some() || self.listed.is_some();
        match (&self.last_failure, met) {
            (Some(failure), false) => failure.clone(),
            (Some(failure), true) => {
                let text = format!("no progress for {:.0} s: {failure}", quiet.as_secs_f64());
                Failure::new(FailureKind::Temporary, text)
            }
            (None, true) => {
                let text = format!("the sources send nothing for {:.0} s", quiet.as_secs_f64());
                Failure::new(FailureKind::Temporary, text)
            }
            (None, false) => {
                let host = self.sources[0].url.host().clone();
                ControlError::Unreachable { host, why: Obstacle::Silence(quiet) }.into()
            }
        }
    }

    // --- the end ---

    fn finish(&mut self, finished: Finished) -> Outcome {
        let (mut bytes, mut root) = (0, finished.root);
        if let Some(running) = &self.running {
            self.tally.update(&running.transfer.progress(), &mut self.sources);
            bytes = running.manifest.content_bytes().saturating_sub(running.lost_bytes);
            self.tally.is_over(running.lost_files);
            if running.manifest.root_kind == RootKind::File && bytes == 0 {
                root = Some(gtp_store::empty_root());
            }
        }
        self.tell_ways();
        let flows = self.running.as_ref().map(|running| running.transfer.progress().flows);
        for source in &self.sources {
            if let State::Live { flow, orders } = &source.state {
                let of_session = |flows: &Vec<FlowProgress>| {
                    flows
                        .iter()
                        .find(|progress| progress.flow == *flow)
                        .map(|brought| brought.bytes)
                };
                let done = Done {
                    files: finished.files_written,
                    content_bytes: bytes,
                    brought_bytes: flows.as_ref().and_then(of_session),
                };
                // A source that is gone need not know.
                let _ = orders.send(Order::Done(done));
            }
        }
        let mut progress: Progress = self.tally.progress().clone();
        progress.bytes = bytes;
        progress.elapsed = self.clock.now().since(self.began);
        self.monitor.progress.send_replace(progress.clone());
        Outcome {
            bytes,
            resumed_bytes: progress.resumed_bytes,
            elapsed: progress.elapsed,
            files_written: finished.files_written,
            files_unchanged: finished.files_unchanged,
            blake3: root,
            progress,
            skipped: std::mem::take(&mut self.skipped).into_list(&self.monitor),
        }
    }

    /// Lets every line say its last word.
    async fn farewell(&mut self) {
        let mut lines = Vec::new();
        for source in &mut self.sources {
            let gone = State::Gone(Failure::new(FailureKind::Other, "the transfer is over"));
            // Without the sender of its orders a line says farewell by itself.
            let talks = match std::mem::replace(&mut source.state, gone) {
                State::Live { .. } | State::Parked(_) => true,
                State::Connecting | State::Gone(_) => false,
            };
            match source.line.take() {
                Some(line) if talks => lines.push(line),
                Some(line) => line.abort(),
                None => {}
            }
        }
        let ending = async {
            for line in lines {
                // A line that broke has nothing more to say.
                let _ = line.await;
            }
        };
        // A server that does not listen must not keep the user.
        let _ = tokio::time::timeout(FAREWELL_SPAN, ending).await;
    }

    /// Keeps what is complete, and waits until it is kept.
    async fn suspend(&mut self) {
        let Some(running) = &mut self.running else { return };
        running.transfer.suspend();
        let ending = async {
            while let Some(event) = running.transfer.next_event().await {
                if matches!(event, TransferEvent::Suspended | TransferEvent::Complete(_)) {
                    break;
                }
            }
        };
        // A disk that does not answer must not keep the user.
        let _ = tokio::time::timeout(SUSPEND_SPAN, ending).await;
    }
}

async fn next_event(running: &mut Option<Running>) -> Option<TransferEvent> {
    match running {
        Some(running) => running.transfer.next_event().await,
        None => std::future::pending().await,
    }
}

fn path_of(manifest: &Manifest, file: u32) -> String {
    manifest.entries.get(file as usize).map(|e| e.path.to_string()).unwrap_or_default()
}

/// Reports that are heard before an event of the engine: several for each of many sources.
const REPORTS_AT_ONCE: usize = 256;

/// Time for telling servers that all is over.
const FAREWELL_SPAN: Duration = Duration::from_secs(1);

/// Time for keeping what is complete.
const SUSPEND_SPAN: Duration = Duration::from_secs(10);

/// Damaged blocks after which a source among several is given up.
const BAD_BLOCKS_MAX: u32 = 8;
