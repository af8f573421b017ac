//! Sends an object to a server that lets it write.
//!
//! The roles are turned: this end has the bytes and answers requests, the server decides what it
//! still needs and says when all is in place. A broken line is made anew and the object listed
//! anew; what the server has it does not ask for again.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::Revision;
use gtp_store::{BlockSource, FilesInOrder, Manifest, RootKind};
use gtp_sys::Clock;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Sleep;

use super::PathWords;
use super::connect::{Granted, Units, ask, left_out, reach};
use super::placement::End;
use super::progress::{Event, Outcome, Progress, SourceShare};
use super::silence::{Asked, Inquiry, Silences, Verdict, speaks_against_udp};
use super::{
    Endpoint, LOOK_SPAN, Monitor, Relaying, Terms, Url, back_off_after, no_path_words, stop_words,
    stopped, without_datagrams,
};
use crate::control::{ANSWER_SPAN, ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::engine::{SourceEvent, SourceHandle, SourceOpen, Way};
use crate::flows::{
    Failure, FailureKind, FileIndex, RootAnswers, hashing_span, reason_of_source, root_kind,
};
use crate::messages::{Arrivals, Done, Message, Ready, Reason, RelayHave, Relays, Verb};
use listing::{block_values, send_manifest};
use parcel::{Aim, Parcel, pack};
pub use parcel::{Content, MakeContent, MakeSource, Objects};
use relay::Seated;
pub use relay::{Relay, RelayReport};
pub use shared::{SINKS_MOST, Share, SharedPaths};

mod listing;
mod parcel;
mod relay;
mod shared;

/// What to send and where to.
pub struct PutRequest {
    /// The object.
    pub objects: Objects,
    /// The server and the path there. With a slash at its end it is a directory, which is made if
    /// need be, and takes the objects beneath it; without one it is what a single object will be
    /// called, except that a file goes beneath a directory that is there.
    pub url: Url,
    /// On what terms.
    pub terms: Terms,
}

/// Sends an object. Dropping the future gives it up; the server keeps what is complete.
///
/// # Errors
/// [`Failure`].
pub async fn put(
    endpoint: Arc<Endpoint>,
    request: PutRequest,
    monitor: Monitor,
) -> Result<Outcome, Failure> {
    let clock = endpoint.host().clock();
    let began = clock.now();
    let PutRequest { mut objects, url, mut terms } = request;
    let relay = match &objects {
        Objects::Shared(share) => share.relay(),
        Objects::Paths(_) | Objects::Made(..) | Objects::Content(_) => None,
    };
    terms.relaying = if relay.is_some() { Relaying::On } else { Relaying::Off };
    let share = SourceShare::new(url.to_string());
    let mut attempt = Attempt {
        endpoint,
        url,
        terms,
        relay,
        is_plain: false,
        monitor,
        progress: Progress { sources: vec![share], ..Progress::default() },
        clock,
        began,
        moved_at: began,
        excused: Span::ZERO,
        path_seen: false,
        path_words: PathWords::default(),
        peer: None,
        revision: Revision::First,
        way: Way::Udp,
        silences: Silences::default(),
        sent_before: 0,
        proved_before: 0,
        proved: 0,
        started: false,
        there: None,
        before: None,
        there_now: 0,
        files: None,
        skipped: Vec::new(),
        failed: Vec::new(),
        failed_more: 0,
    };
    let mut tries = 0;
    loop {
        let (moved, began) = (attempt.moved_at, attempt.clock.now());
        let failure = match attempt.run(&mut objects).await {
            Ok(done) => return Ok(attempt.outcome(&done)),
            Err(failure) => failure,
        };
        tries = if attempt.moved_at > moved { 0 } else { tries + 1 };
        let quiet = attempt.quiet();
        let failure = attempt.own_words(failure);
        if !failure.is_temporary() || quiet > attempt.terms.patience {
            return Err(failure);
        }
        let pause = back_off_after(tries, attempt.clock.now().since(began));
        let after = Span::from_nanos(pause.as_nanos() as u64);
        attempt.monitor.tell(Event::Retry { url: attempt.url.to_string(), failure, after });
        let mut stop = attempt.monitor.stop.clone();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            kind = stopped(&mut stop) => return Err(Failure::new(kind, stop_words(kind))),
        }
    }
}

struct Attempt {
    endpoint: Arc<Endpoint>,
    url: Url,
    terms: Terms,
    /// Where the sinks relay: what brings them together, and the number of this one.
    relay: Option<(Arc<Relay>, usize)>,
    /// The user knows that this sink does not.
    is_plain: bool,
    monitor: Monitor,
    progress: Progress,
    clock: Clock,
    began: Time,
    moved_at: Time,
    /// Since then, time in which the object was listed and the server has prepared, and nothing
    /// could move.
    excused: Span,
    path_seen: bool,
    path_words: PathWords,
    /// Where the newest session sends to.
    peer: Option<SocketAddr>,
    /// What the server understands in that session.
    revision: Revision,
    /// The way that the user was told of last.
    way: Way,
    silences: Silences,
    /// IP bytes of earlier attempts.
    sent_before: u64,
    /// Payload bytes that the server proved to have received in them.
    proved_before: u64,
    /// The same with this attempt's.
    proved: u64,
    started: bool,
    /// What the first attempt found at the destination.
    there: Option<Option<RootKind>>,
    /// What the server had of the object before the first attempt.
    before: Option<Ready>,
    /// Content bytes that it had before this one.
    there_now: u64,
    /// The files, to be counted by bytes once they are listed.
    files: Option<FilesInOrder>,
    /// What is left out of the object.
    skipped: Vec<Failure>,
    /// What has failed of it in the present attempt.
    failed: Vec<Failure>,
    /// How much more.
    failed_more: usize,
}

/// One session that sends.
struct Sending {
    channel: ControlChannel,
    /// This end's UDP port.
    data_port: u16,
    source: SourceHandle,
    index: FileIndex,
    answers: RootAnswers,
    inquiry: Inquiry,
    /// Where this sink relays.
    seated: Option<Seated>,
}

/// What an event of the data session means.
enum Heard {
    /// The transfer goes on.
    Placement,
    /// For some time no datagram has come.
    NoAnswer,
    /// The data session is over; the server may still say how the transfer ended.
    Ends(Parting),
    /// No datagram has come; the server is to say whether this end's do.
    Silence,
    /// This end cannot go on, and the server is to be told why.
    Fails(Reason, Failure),
}

/// A data session that is over, while the server's verdict is awaited.
struct Parting {
    /// How the attempt ends if no verdict comes.
    failure: Failure,
    until: Pin<Box<Sleep>>,
}

/// The failure of a data session whose verdict has not come in time; never before that.
async fn overdue(parting: &mut Option<Parting>) -> Failure {
    match parting {
        Some(Parting { failure, until }) => {
            until.await;
            failure.clone()
        }
        None => std::future::pending().await,
    }
}

impl Attempt {
    async fn run(&mut self, objects: &mut Objects) -> Result<Done, Failure> {
        self.failed.clear();
        self.failed_more = 0;
        // An attempt that gets no session says itself what it failed by.
        self.peer = None;
        let mut stop = self.monitor.stop.clone();
        let opening = tokio::select! {
            opened = self.open(objects) => opened?,
            kind = stopped(&mut stop) => return Err(Failure::new(kind, stop_words(kind))),
        };
        let mut sending = opening;
        let verdict = tokio::select! {
            verdict = self.serve(&mut sending) => verdict,
            kind = stopped(&mut stop) => Err(Failure::new(kind, stop_words(kind))),
        };
        let last = sending.source.progress();
        self.tell_way(last.way);
        self.sent_before += last.wire_bytes;
        self.proved_before += last.proved_bytes;
        if let Some((relay, place)) = &self.relay {
            relay.note_sent(*place, self.sent_before);
        }
        sending.source.close();
        if verdict.is_err() && sending.channel.send(&Message::Cancel).await.is_err() {
            return verdict;
        }
        match verdict {
            // It gives on what it has.
            Ok(_) if sending.seated.is_some() => {
                let Sending { channel, seated, .. } = sending;
                drop(tokio::spawn(linger(channel, seated, self.clock)));
            }
            // Nothing more is to be heard, so nobody waits for the polite end.
            Ok(_) => drop(tokio::spawn(sending.channel.close())),
            Err(_) => sending.channel.close().await,
        }
        verdict
    }

    /// Asks the server, and prepares at both ends.
    async fn open(&mut self, objects: &mut Objects) -> Result<Sending, Failure> {
        let verb = Verb::Put { path: self.url.path().to_vec() };
        let channel = reach(&self.endpoint, &self.url, &self.terms).await?;
        let units = match self.relay {
            Some(_) => Units::Ordinary,
            None => Units::AsThePath,
        };
        let terms = (&self.terms, units);
        let Granted { mut channel, opened, session, data_port } =
            ask(channel, &self.endpoint, &self.url, verb, terms, &|| {}).await?;
        (self.peer, self.revision) = (Some(session.peer), session.revision);
        let words = self.path_words.of(self.url.host(), self.terms.path, session.path);
        words.into_iter().for_each(|words| self.monitor.tell(Event::Warning(words)));
        self.mark("the put is granted");
        let end = if self.url.names_directory() { End::Slash } else { End::Name };
        // What is there when the command begins decides, and what attempts leave there does not.
        let there = *self.there.get_or_insert(opened.object.map(root_kind));
        let aim = Aim { end, there };
        let mut seated = self.seat(&channel, opened.relays);
        let asked = self.clock.now();
        let prepared = self.prepare(&mut channel, objects, aim, &mut seated).await;
        self.excused += self.clock.now().since(asked);
        let source = prepared?;
        let manifest = Arc::clone(source.manifest());
        let source = self.endpoint.host().open_source(SourceOpen { session, source });
        let (index, answers) = (FileIndex::of(&manifest), RootAnswers::default());
        let inquiry = Inquiry::default();
        let mut sending = Sending { channel, data_port, source, index, answers, inquiry, seated };
        if self.endpoint.is_carried(self.url.host(), self.terms.udp) {
            self.carry(&mut sending).await?;
        }
        Ok(sending)
    }

    /// A place for a sink among those that relay. One that does not is sent all, which is said.
    fn seat(&mut self, channel: &ControlChannel, relays: Option<Relays>) -> Option<Seated> {
        let (relay, place) = self.relay.clone()?;
        let Some(relays) = relays else {
            self.tell_plain("its server does not relay (serve --third-party)");
            return None;
        };
        Some(relay.seat(place, &self.endpoint, (&self.url, channel.peer()), relays))
    }

    fn tell_plain(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_plain, true) {
            self.warn(&format!("{why}; it is sent all from here"));
        }
    }

    fn warn(&self, text: &str) {
        self.monitor.tell(Event::Warning(format!("{}: {text}", self.url)));
    }

    /// Has the control connection carry a session's datagrams, if it may.
    async fn carry(&self, sending: &mut Sending) -> Result<(), Failure> {
        let Sending { channel, data_port, source, .. } = sending;
        if self.may_carry() && !channel.carries() {
            channel.carry(source.carrier(channel.ends().remote), *data_port).await?;
        }
        Ok(())
    }

    /// Whether the control connection may carry datagrams.
    fn may_carry(&self) -> bool {
        let (host, udp) = (self.url.host(), self.terms.udp);
        self.endpoint.may_carry(host, self.revision, udp, self.path_seen)
    }

    /// Tells by which way data go, where that has changed.
    fn tell_way(&mut self, way: Way) {
        if !self.path_seen || self.way == way {
            return;
        }
        self.way = way;
        self.monitor.tell(self.endpoint.way_changed(&self.url, way, self.terms.udp));
    }

    /// Lists the object, tells the server what it is and waits until the server has made room.
    async fn prepare(
        &mut self,
        channel: &mut ControlChannel,
        objects: &mut Objects,
        aim: Aim,
        seated: &mut Option<Seated>,
    ) -> Result<Box<dyn BlockSource>, Failure> {
        let taken = std::mem::replace(objects, Objects::Paths(Vec::new()));
        let mut packing = tokio::task::spawn_blocking(move || {
            let mut objects = taken;
            let packed = pack(&mut objects, aim);
            (objects, packed)
        });
        let waited = while_alive(channel, &mut packing).await;
        let packed = give_back(objects, packing, waited).await?;
        let Parcel { source, skipped, values } = packed?;
        let manifest = Arc::clone(source.manifest());
        self.tell_start(&manifest, skipped);
        self.mark("the object is listed");
        if self.revision >= Revision::Fifth {
            channel.send_all(block_values(&values)).await?;
        }
        if let Some(seat) = seated {
            match seat.join(&manifest) {
                Some(join) => channel.send(&join).await?,
                None => {
                    *seated = None;
                    self.tell_plain("the object is too long to be relayed, or has changed");
                }
            }
        }
        send_manifest(channel, &manifest).await?;
        let most = ANSWER_SPAN + hashing_span(manifest.content_bytes());
        let ready = tokio::time::timeout(most, await_ready(channel))
            .await
            .map_err(|_| ControlError::TimedOut("the server to prepare the place"))??;
        self.take_ready(ready);
        self.mark("the server is ready");
        Ok(match seated {
            Some(seated) => {
                seated.ready(self.clock.now());
                seated.tap(source)
            }
            None => source,
        })
    }

    /// What the server has before this attempt. What it had before the first does not count as
    /// sent.
    fn take_ready(&mut self, ready: Ready) {
        let before = self.before.get_or_insert_with(|| ready.clone());
        self.progress.resumed_bytes = before.resumed_bytes.min(self.progress.total);
        self.there_now = ready.resumed_bytes;
    }

    fn tell_start(&mut self, manifest: &Arc<Manifest>, skipped: Vec<Failure>) {
        self.progress.total = manifest.content_bytes();
        self.progress.files = manifest.files();
        self.files = Some(FilesInOrder::of(Arc::clone(manifest)));
        if self.started {
            return;
        }
        self.started = true;
        self.monitor.tell(Event::Started {
            destination: self.url.to_string(),
            kind: manifest.root_kind,
            files: self.progress.files,
            bytes: manifest.content_bytes(),
        });
        for failure in &skipped {
            self.monitor.tell(Event::Skipped(failure.clone()));
        }
        self.skipped = skipped;
    }

    /// Notes for the timeline that a step is done.
    fn mark(&self, step: &str) {
        let ms = self.clock.now().since(self.began).as_nanos() / 1_000_000;
        tracing::debug!(target: "gtp::timeline", ms, "{step}");
    }

    /// Answers the server until it says that all is in place. When the data session ends, the
    /// server's verdict may still be on its way on the control channel: it is waited for, and it
    /// decides.
    async fn serve(&mut self, sending: &mut Sending) -> Result<Done, Failure> {
        let mut look = tokio::time::interval(LOOK_SPAN);
        let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
        let mut parting: Option<Parting> = None;
        loop {
            let Sending { channel, source, index, answers, inquiry, seated, .. } = sending;
            answers.begin(source, index);
            tokio::select! {
                message = channel.recv(), if answers.has_room() => match message? {
                    Message::Done(done) => {
                        self.mark("the server has all");
                        return Ok(done);
                    }
                    Message::RootsWanted(wanted) => answers.ask(wanted, source, index)?,
                    Message::Fault(fault) => match &fault.path {
                        Some(path) => self.leave_out(left_out(path, &fault.text))?,
                        None => return Err(Failure::of_fault(&fault)),
                    },
                    Message::ArrivalsSeen(seen) if inquiry.is_asked() => {
                        self.hear_arrivals(sending, seen.arrivals).await?;
                    }
                    Message::Unheard => source.unheard(),
                    Message::RelayHave(have) if seated.is_some() => self.hear_have(seated, &have),
                    Message::Cancel => return Err(ControlError::Closed.into()),
                    other => {
                        let text = format!("message {}", other.name());
                        return Err(ControlError::Unexpected(text).into());
                    }
                },
                answer = answers.next() => match answer {
                    Ok(roots) => channel.send(&roots).await?,
                    Err(error) => {
                        let fault = Message::fault(reason_of_source(&error), error.to_string());
                        channel.send(&fault).await?;
                        return Err(error.into());
                    }
                },
                event = source.next_event(), if parting.is_none() && !inquiry.has_given_up()
                    => match self.heard(event) {
                    Heard::Placement => {}
                    Heard::Ends(end) => parting = Some(end),
                    Heard::NoAnswer => if self.may_carry() && inquiry.wait(self.clock.now()) {
                        channel.send(&Message::ArrivalsWanted).await?;
                    },
                    Heard::Silence => if inquiry.give_up(self.clock.now()) {
                        channel.send(&Message::ArrivalsWanted).await?;
                    },
                    Heard::Fails(reason, failure) => {
                        channel.send(&Message::fault(reason, failure.text.clone())).await?;
                        return Err(failure);
                    }
                },
                failure = overdue(&mut parting) => return Err(failure),
                _ = look.tick() => {
                    if answers.is_busy() {
                        // Hashing moves nothing, and is wanted.
                        (self.moved_at, self.excused) = (self.clock.now(), Span::ZERO);
                    }
                    self.look(source, seated.as_mut())?;
                    if let Some(seated) = seated {
                        let now = self.clock.now();
                        let rate = source.progress().rate;
                        channel.send_all(seated.due(now, rate).into_iter()).await?;
                        seated.remarks(now).into_iter().for_each(|text| self.warn(&text));
                    }
                }
                _ = keepalive.tick() => channel.send(&Message::Keepalive).await?,
            }
        }
    }

    /// The sink says what it has. What it gets from others is progress as well.
    fn hear_have(&mut self, seated: &Option<Seated>, have: &RelayHave) {
        let now = self.clock.now();
        if seated.as_ref().is_some_and(|seated| seated.hear(now, have)) {
            self.moved_at = now;
            self.excused = Span::ZERO;
        }
    }

    /// A file is left out, by this end or by the server.
    fn leave_out(&mut self, failure: Failure) -> Result<(), Failure> {
        if self.failed.len() < FAILED_MAX {
            self.monitor.tell(Event::Skipped(failure.clone()));
            self.failed.push(failure);
            return Ok(());
        }
        self.failed_more += 1;
        if self.failed_more > FAILED_MAX {
            let text = format!("faults of more than {} files", 2 * FAILED_MAX);
            return Err(ControlError::Unexpected(text).into());
        }
        Ok(())
    }

    /// What an event of the data session means for the transfer.
    fn heard(&mut self, event: Option<SourceEvent>) -> Heard {
        let ends = |text: String, span| {
            let failure = Failure::new(FailureKind::Temporary, text);
            Heard::Ends(Parting { failure, until: Box::pin(tokio::time::sleep(span)) })
        };
        match event {
            Some(SourceEvent::PathOpen) => {
                self.path_seen = true;
                self.mark("the path is open");
                self.silences.end();
                Heard::Placement
            }
            Some(SourceEvent::Silent) => Heard::NoAnswer,
            Some(SourceEvent::Closed) => ends("the server ended the session".into(), VERDICT_SPAN),
            Some(SourceEvent::NoPath) if self.path_seen => {
                ends(no_path_words(self.url.host()), LAST_WORD_SPAN)
            }
            Some(SourceEvent::NoPath) if self.revision >= Revision::Third => Heard::Silence,
            Some(SourceEvent::NoPath) => {
                let text = no_path_words(self.url.host());
                Heard::Fails(Reason::NoUdpPath, Failure::new(FailureKind::NoUdpPath, text))
            }
            Some(SourceEvent::Fault(error)) => Heard::Fails(reason_of_source(&error), error.into()),
            Some(SourceEvent::Lost(why)) => ends(why, LAST_WORD_SPAN),
            None => ends("the session has ended".into(), LAST_WORD_SPAN),
            Some(SourceEvent::FileFault { path, error }) => {
                let failure = Failure::new(FailureKind::Partial, error.words()).about(path);
                match self.leave_out(failure) {
                    Ok(()) => Heard::Placement,
                    Err(failure) => Heard::Fails(Reason::Limit, failure),
                }
            }
        }
    }

    /// The server has said what has come of this end's datagrams. Fails if that ends the session;
    /// the server is told.
    async fn hear_arrivals(
        &mut self,
        sending: &mut Sending,
        arrivals: Arrivals,
    ) -> Result<(), Failure> {
        let (asked, took) = sending.inquiry.answer(self.clock.now());
        if asked == Asked::Waiting {
            return match speaks_against_udp(arrivals, took) {
                true => self.carry(sending).await,
                false => Ok(()),
            };
        }
        let host = self.url.host();
        let failure = match self.silences.judge(host, arrivals, took) {
            Verdict::Slow(failure) => failure,
            Verdict::OneWay(failure)
                if !self.endpoint.is_closed_one_way(host, (self.terms.udp, self.revision)) =>
            {
                failure
            }
            Verdict::NoPath | Verdict::OneWay(_) => {
                Failure::new(FailureKind::NoUdpPath, no_path_words(host))
            }
        };
        let reason = match failure.is_temporary() {
            true => Reason::TimedOut,
            false => Reason::NoUdpPath,
        };
        sending.channel.send(&Message::fault(reason, failure.text.clone())).await?;
        Err(failure)
    }

    fn look(&mut self, source: &SourceHandle, seated: Option<&mut Seated>) -> Result<(), Failure> {
        let numbers = source.progress();
        let wire_bytes = self.sent_before + numbers.wire_bytes;
        let proved = self.proved_before + numbers.proved_bytes;
        let Some(share) = self.progress.sources.first_mut() else { return Ok(()) };
        let now = self.clock.now();
        if proved > self.proved {
            self.proved = proved;
            self.moved_at = now;
            self.excused = Span::ZERO;
        }
        share.wire_bytes = wire_bytes;
        // What came twice counts twice there.
        let there = match &seated {
            Some(seated) => seated.there(),
            None => self.there_now.saturating_add(numbers.proved_bytes),
        };
        let there = there.min(self.progress.total);
        if let Some((relay, place)) = &self.relay {
            relay.note_sent(*place, wire_bytes);
        }
        self.progress.bytes = self.progress.bytes.max(there);
        let whole = self.files.as_mut().map_or(0, |files| files.whole(self.progress.bytes));
        self.progress.files_done = self.progress.files_done.max(whole).min(self.progress.files);
        share.bytes = self.progress.bytes.saturating_sub(self.progress.resumed_bytes);
        share.rate = numbers.rate;
        share.granted = numbers.granted;
        share.limited_by = numbers.limited_by;
        if let Some(seated) = seated {
            (share.rate, share.limited_by) = seated.pace(now, numbers.limited_by);
        }
        share.path = numbers.path;
        share.loss_ratio = numbers.loss_ratio;
        share.rtt = numbers.rtt;
        share.way = numbers.way;
        share.alive = true;
        self.progress.elapsed = now.since(self.began);
        self.monitor.progress.send_replace(self.progress.clone());
        self.tell_way(numbers.way);
        let quiet = self.quiet();
        if quiet > self.terms.patience {
            let text = format!("no progress for {:.0} s", quiet.as_secs_f64());
            return Err(Failure::new(FailureKind::Temporary, text));
        }
        Ok(())
    }

    /// Either end may notice that no datagram gets through; what to do about it is said here.
    fn own_words(&self, failure: Failure) -> Failure {
        match (failure.kind, self.peer) {
            (FailureKind::NoUdpPath, Some(peer)) => {
                let known = (self.terms.udp, self.revision);
                without_datagrams(&self.endpoint, self.url.host(), peer, known)
            }
            _ => failure,
        }
    }

    /// How long nothing has moved that could have.
    fn quiet(&self) -> std::time::Duration {
        gtp_sys::clock::duration(self.clock.now().since(self.moved_at + self.excused))
    }

    /// What was left out, from the beginning and in the last attempt.
    fn all_left_out(&mut self) -> Vec<Failure> {
        let mut all = std::mem::take(&mut self.skipped);
        all.append(&mut self.failed);
        if self.failed_more > 0 {
            let text = format!("{} more", self.failed_more);
            all.push(Failure::new(FailureKind::Partial, text));
        }
        all
    }

    fn outcome(&mut self, done: &Done) -> Outcome {
        self.progress.bytes = done.content_bytes;
        let failed = self.failed.len() as u64 + self.failed_more as u64;
        self.progress.files_done = self.progress.files.saturating_sub(failed);
        self.progress.elapsed = self.clock.now().since(self.began);
        if let Some(share) = self.progress.sources.first_mut() {
            share.bytes = done.content_bytes.saturating_sub(self.progress.resumed_bytes);
            share.wire_bytes = self.sent_before;
        }
        self.monitor.progress.send_replace(self.progress.clone());
        Outcome {
            bytes: done.content_bytes,
            resumed_bytes: self.progress.resumed_bytes,
            elapsed: self.progress.elapsed,
            files_written: done.files,
            files_unchanged: self.before.as_ref().map_or(0, |before| before.files_unchanged),
            blake3: None,
            progress: self.progress.clone(),
            skipped: self.all_left_out(),
        }
    }
}

/// Waits for work of this end, and tells the server meanwhile that it goes on.
async fn while_alive<T>(
    channel: &mut ControlChannel,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            _ = keepalive.tick() => channel.send(&Message::Keepalive).await?,
        }
    }
}

/// Gives back what work on another thread was lent, also when the wait for it has failed: the next
/// attempt needs it.
async fn give_back<L, T>(
    lent: &mut L,
    work: JoinHandle<(L, T)>,
    waited: Result<Result<(L, T), JoinError>, Failure>,
) -> Result<T, Failure> {
    let (done, failure) = match waited {
        Ok(done) => (done, None),
        Err(failure) => (work.await, Some(failure)),
    };
    let (back, found) =
        done.map_err(|e| Failure::new(FailureKind::Other, format!("listing failed: {e}")))?;
    *lent = back;
    failure.map_or(Ok(found), Err)
}

/// Waits until the server has prepared the place and listens for datagrams. It may have to read
/// again what it has of the object.
async fn await_ready(channel: &mut ControlChannel) -> Result<Ready, Failure> {
    let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
    loop {
        tokio::select! {
            message = channel.recv() => return match message? {
                Message::Ready(ready) => Ok(ready),
                Message::Fault(fault) => Err(Failure::of_fault(&fault)),
                Message::Cancel => Err(ControlError::Closed.into()),
                other => {
                    let text = format!("message {}", other.name());
                    Err(ControlError::Unexpected(text).into())
                }
            },
            _ = keepalive.tick() => channel.send(&Message::Keepalive).await?,
        }
    }
}

/// Holds a sink that has everything, so that the others can read from it, for as long as this
/// process lives or the sink wants.
async fn linger(mut channel: ControlChannel, seated: Option<Seated>, clock: Clock) {
    let Some(mut seated) = seated else { return };
    let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
    let mut look = tokio::time::interval(LOOK_SPAN);
    loop {
        let said = tokio::select! {
            message = channel.recv() => match message {
                Ok(Message::RelayHave(have)) => {
                    seated.hear(clock.now(), &have);
                    Ok(())
                }
                Ok(_) => Err(ControlError::Closed),
                Err(error) => Err(error),
            },
            _ = look.tick() => {
                let due = seated.due(clock.now(), Rate::ZERO);
                channel.send_all(due.into_iter()).await
            }
            _ = keepalive.tick() => channel.send(&Message::Keepalive).await,
        };
        if said.is_err() || seated.is_over() {
            return channel.close().await;
        }
    }
}

/// How long the server's verdict may take once it has closed the data session in order. It sends
/// the verdict right after that; on a bad path TCP repeats it a few times.
const VERDICT_SPAN: Duration = Duration::from_secs(10);

/// The same for a data session that broke: the server may have gone with it.
const LAST_WORD_SPAN: Duration = Duration::from_secs(2);

/// Files that fail during a transfer and are remembered by name; as many more are counted.
const FAILED_MAX: usize = 1_000;

#[cfg(test)]
mod tests;
