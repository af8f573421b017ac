//! Answers `get`: lists the object, registers the session, answers until the client is done.
//!
//! The client decides what it fetches and when it is done; this end only lists, reads and answers.
//! It keeps no state of the transfer, so a client that comes back starts a session like any other.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use gtp_proto::Revision;
use gtp_store::{BLOCK, FileSource, Manifest, RelPath, SourceError, TRAILER};
use gtp_sys::Clock;

use super::clients::{Leave, Seat};
use super::path_questions::PathQuestions;
use super::scan::{scan, skipped_faults};
use super::session::{Client, Ending};
use super::walks::Listing;
use super::{Moved, Pace, Shared, Stop};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::engine::{SourceEvent, SourceHandle, SourceOpen, SourceProgress};
use crate::flows::{
    Failure, FailureKind, RootAnswers, next_change_shows, reason_of_source, to_messages, wire_root,
};
use crate::messages::{Arrivals, Carry, Done, Fault, Message, PeerText, Reason};

pub(super) async fn serve(shared: &Arc<Shared>, client: Client, stop: &mut Stop) -> Ending {
    let scanning = scan(shared, client);
    let scanned = tokio::select! {
        scanned = scanning => scanned,
        why = stop.told() => return Ending::failed(why.failure()),
    };
    let (client, listing) = match scanned {
        Ok(found) => found,
        Err(ending) => return ending,
    };
    let (mut giving, opened) = match Giving::open(shared, client, listing) {
        Ok(open) => open,
        Err(failure) => return Ending::failed(failure),
    };
    // It may be told to leave at any time, because it may read slowly or not at all.
    let verdict = tokio::select! {
        verdict = giving.give(opened, shared.host.clock()) => Ok(verdict),
        why = stop.told() => Err(why),
    };
    giving.end(verdict).await
}

/// Tells a client that it must leave. A client that waits for its place waits at most
/// [`HURRY_SPAN`] for that.
async fn say_farewell(mut channel: ControlChannel, seat: &Seat, why: Leave) {
    let (reason, text) = (why.reason(), why.failure().text);
    match why {
        Leave::MakeRoom => {
            let _ = tokio::time::timeout(HURRY_SPAN, channel.dismiss(reason, text)).await;
        }
        Leave::Stopping
        | Leave::Dozing
        | Leave::Revoked
        | Leave::Blind
        | Leave::Closed(_)
        | Leave::TicketOver => {
            let telling = async {
                channel.dismiss(reason, text).await;
                channel.close().await;
            };
            seat.linger(telling).await;
        }
    }
}

/// How long telling a client that another one gets its place may take. It is a part of the time for
/// which the other one waits.
const HURRY_SPAN: Duration = Duration::from_millis(250);

/// Tells the client that the object cannot be read, and ends the session for that.
async fn cannot_read(channel: &mut ControlChannel, error: SourceError) -> Result<(), Failure> {
    let fault = Message::fault(reason_of_source(&error), error.to_string());
    channel.send(&fault).await?;
    Err(error.into())
}

/// What the client hears of a file that cannot be given, or that grew while it was.
fn file_fault(path: &RelPath, error: &SourceError) -> Message {
    let path = Some(path.as_str().as_bytes().to_vec());
    let text = PeerText::new(error.words());
    Message::Fault(Fault { reason: reason_of_source(error), text, path })
}

/// A session that sends.
struct Giving {
    source: SourceHandle,
    listing: Arc<Listing>,
    answers: RootAnswers,
    questions: PathQuestions,
    client: Client,
    /// What the client says that it has, at its end.
    done: Option<Done>,
}

impl Giving {
    /// Opens the session; also returns the message that tells the client so.
    fn open(
        shared: &Shared,
        mut client: Client,
        listing: Arc<Listing>,
    ) -> Result<(Giving, Message), Failure> {
        let source = FileSource::new(Arc::clone(&listing.scanned)).with_settling(next_change_shows);
        let source = source.with_known_roots(Arc::clone(&shared.roots));
        let session = client.session(shared)?;
        let number = session.local_session;
        let open = SourceOpen { session, source: Box::new(source) };
        let source = client.host.open_source(open);
        let sent = source.watch();
        let manifest = &listing.scanned.manifest;
        let sums = (manifest.entries.len() as u64, manifest.content_bytes());
        let extent = Extent { bytes: sums.1, manifest: None };
        client.told.measure(move || moved(&sent.progress(), None, extent));
        let sent = source.watch();
        client.told.pace(move || Some(Pace::from(&sent.progress())));
        let object = Some(wire_root(manifest.root_kind));
        let opened = client.opened(shared, number, object, sums);
        let (answers, questions) = (RootAnswers::default(), PathQuestions::default());
        Ok((Giving { source, listing, answers, questions, client, done: None }, opened))
    }

    /// Announces the object, then serves the session until the client is done.
    async fn give(&mut self, opened: Message, clock: Clock) -> Result<(), Failure> {
        let (seat, listing) = (Arc::clone(&self.client.seat), Arc::clone(&self.listing));
        let manifest = &listing.scanned.manifest;
        let faults = skipped_faults(&listing.scanned);
        let mut sent = 0;
        let announced = [opened].into_iter().chain(faults).chain(to_messages(manifest));
        let announced = announced.inspect(|_| {
            sent += 1;
            seat.note(sent, clock.now());
        });
        self.client.channel.send_all(announced).await?;
        self.run(hello_span(manifest), clock).await
    }

    /// Parts from the client, which is done, has failed, or must leave.
    async fn end(self, verdict: Result<Result<(), Failure>, Leave>) -> Ending {
        let manifest = &self.listing.scanned.manifest;
        let extent = Extent { bytes: manifest.content_bytes(), manifest: Some(manifest) };
        let moved = moved(&self.source.ended(ENDED_SPAN).await, self.done.as_ref(), extent);
        let Client { channel, seat, .. } = self.client;
        let failure = match verdict {
            Ok(verdict) => {
                seat.linger(channel.close()).await;
                verdict.err()
            }
            Err(why) => {
                say_farewell(channel, &seat, why).await;
                Some(why.failure())
            }
        };
        Ending { moved, failure, ..Ending::default() }
    }

    async fn run(&mut self, hello_within: Duration, clock: Clock) -> Result<(), Failure> {
        let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
        let mut look = tokio::time::interval(LOOK_SPAN);
        let mut hello = std::pin::pin!(tokio::time::sleep(hello_within));
        let (mut told, mut greeted, mut work) = (true, false, 0);
        loop {
            self.answers.begin(&self.source, &self.listing.index);
            let channel = &mut self.client.channel;
            tokio::select! {
                message = channel.recv(), if self.answers.has_room() => {
                    if self.hear(message?).await?.is_break() {
                        return Ok(());
                    }
                }
                answer = self.answers.next() => match answer {
                    Ok(roots) => channel.send(&roots).await?,
                    Err(error) => return cannot_read(channel, error).await,
                },
                event = self.source.next_event(), if told => match event {
                    Some(SourceEvent::PathOpen) => greeted = true,
                    Some(event) => self.handle(event).await?,
                    // The client hears of a dead path by itself, and of the end of a session.
                    None => told = false,
                },
                _ = keepalive.tick() => channel.send(&Message::Keepalive).await?,
                _ = look.tick() => {
                    work += u64::from(self.answers.is_busy());
                    let had = self.source.progress().wire_bytes + work;
                    self.client.seat.note(had, clock.now());
                }
                () = &mut hello, if !greeted => greeted = self.has_come().await?,
            }
        }
    }

    /// Does what a client's message asks for. Breaks when the client is done.
    async fn hear(&mut self, message: Message) -> Result<ControlFlow<()>, Failure> {
        match message {
            Message::Done(done) => {
                self.done = Some(done);
                return Ok(ControlFlow::Break(()));
            }
            Message::Cancel => {
                let text = "given up by the client";
                return Err(Failure::new(FailureKind::Interrupted, text));
            }
            Message::RootsWanted(wanted) => {
                self.answers.ask(wanted, &self.source, &self.listing.index)?;
            }
            Message::UnitChoice(_) => {}
            Message::ArrivalsWanted => {
                let seen = self.questions.answer(self.source.arrivals()).await?;
                self.client.channel.send(&seen).await?;
            }
            Message::Carry(Carry { port })
                if self.client.channel.revision() >= Revision::Fourth =>
            {
                let peer = self.client.channel.ends().remote;
                let carrier = self.source.carrier(peer).going_first(port);
                self.client.channel.carried(carrier)?;
            }
            Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
            other => {
                let text = format!("message {}", other.name());
                return Err(ControlError::Unexpected(text).into());
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Does what follows from an event of the engine.
    async fn handle(&mut self, event: SourceEvent) -> Result<(), Failure> {
        let channel = &mut self.client.channel;
        match event {
            SourceEvent::PathOpen | SourceEvent::Closed => Ok(()),
            SourceEvent::Silent => {
                channel.send(&Message::Unheard).await?;
                Ok(())
            }
            SourceEvent::FileFault { path, error } => {
                channel.send(&file_fault(&path, &error)).await?;
                Ok(())
            }
            SourceEvent::NoPath => no_path(channel).await,
            SourceEvent::Fault(error) => cannot_read(channel, error).await,
            SourceEvent::Lost(why) => {
                channel.send(&Message::fault(Reason::TimedOut, why.clone())).await?;
                Err(Failure::new(FailureKind::Temporary, why))
            }
        }
    }

    /// Whether a datagram of the client has come, though none has opened the path.
    ///
    /// # Errors
    /// If none has, or some may have been lost here; the client is told.
    async fn has_come(&mut self) -> Result<bool, Failure> {
        let arrivals = self.source.arrivals().await;
        let channel = &mut self.client.channel;
        match arrivals {
            Some(Arrivals::Some) => return Ok(true),
            Some(Arrivals::Unread) => overrun(channel).await?,
            Some(Arrivals::None) | None => no_path(channel).await?,
        }
        Ok(false)
    }
}

/// How much an object has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent<'a> {
    /// Bytes of content.
    bytes: u64,
    /// Which blocks, if that is known.
    manifest: Option<&'a Manifest>,
}

impl Extent<'_> {
    /// Of an object whose size is not known.
    pub const UNKNOWN: Extent<'static> = Extent { bytes: u64::MAX, manifest: None };

    /// How much more than the content all units of the object are if each counts as a whole one.
    fn excess(&self, unit: u64) -> u64 {
        let whole = |content: u64| (content + TRAILER as u64).next_multiple_of(unit) - content;
        let of_file = |size: u64| {
            let last = if size.is_multiple_of(BLOCK) { 0 } else { whole(size % BLOCK) };
            (size / BLOCK).saturating_mul(whole(BLOCK)).saturating_add(last)
        };
        let entries = self.manifest.into_iter().flat_map(|manifest| &manifest.entries);
        entries.map(|entry| of_file(entry.size)).fold(0, u64::saturating_add)
    }
}

/// What a session has sent of an object. The last proofs of receipt may be on their way when the
/// client is done, so its word counts then, as far as so much was sent. Proofs count a short unit
/// as a whole one, so they contradict the client only beyond that; and no object has been moved
/// beyond its end.
pub(super) fn moved(sent: &SourceProgress, done: Option<&Done>, object: Extent<'_>) -> Moved {
    let said = done.map(|done| done.brought_bytes.unwrap_or(done.content_bytes));
    let content = match said.map(|said| said.min(sent.wire_bytes)) {
        Some(said) => {
            let excess = object.excess(sent.unit_payload.max(1).into());
            said.max(sent.proved_bytes.saturating_sub(excess))
        }
        None => sent.proved_bytes,
    };
    Moved {
        content_bytes: content.min(object.bytes),
        files: done.map_or(0, |done| done.files),
        wire_bytes: sent.wire_bytes,
        wasted_bytes: (sent.wire_bytes as f64 * sent.loss_ratio.clamp(0.0, 1.0)) as u64,
        loss_ratio: sent.loss_ratio,
        ..Moved::default()
    }
}

/// Ends a session whose client has sent no datagram.
async fn no_path(channel: &mut ControlChannel) -> Result<(), Failure> {
    let text = "no datagram came from the client";
    channel.send(&Message::fault(Reason::NoUdpPath, text)).await?;
    Err(Failure::new(FailureKind::NoUdpPath, text))
}

/// Ends a session whose client's datagrams, if there were any, were lost here.
async fn overrun(channel: &mut ControlChannel) -> Result<(), Failure> {
    let text = "this server does not keep up with what comes: try again later";
    channel.send(&Message::fault(Reason::Busy, text)).await?;
    Err(Failure::new(FailureKind::Temporary, text))
}

/// Returns how long a client may take to send its first datagram. It does so at once after the
/// listing, which may come at the lowest rate of a control channel.
fn hello_span(manifest: &Manifest) -> Duration {
    let listing: u64 = manifest.entries.iter().map(|e| 64 + e.path.as_str().len() as u64).sum();
    HELLO_SPAN + Duration::from_secs(listing / SLOWEST)
}

/// Time for a client's first datagram once it knows of its session.
const HELLO_SPAN: Duration = Duration::from_secs(10);

/// The lowest rate of a control channel, in bytes per second: a page of 1 MiB in 30 s.
const SLOWEST: u64 = 35_000;

/// How long the last figures of a session are waited for.
const ENDED_SPAN: Duration = Duration::from_millis(500);

/// Time between two looks at whether a client gets anything.
const LOOK_SPAN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use gtp_store::{BlockSource, Pattern, SyntheticSource};

    use super::*;

    fn counts(proved_bytes: u64, done: Option<Done>, object: Extent<'_>) -> u64 {
        let label = SourceProgress::new("a");
        let sent =
            SourceProgress { wire_bytes: 1_100_000, proved_bytes, unit_payload: 1_400, ..label };
        moved(&sent, done.as_ref(), object).content_bytes
    }

    fn said(brought_bytes: Option<u64>) -> Option<Done> {
        Some(Done { files: 1, content_bytes: 5_000_000, brought_bytes })
    }

    #[test]
    fn what_a_session_moved_is_what_its_client_says_unless_the_proofs_and_the_wire_contradict_it() {
        let name = RelPath::new("a").unwrap();
        let source = SyntheticSource::file(name, 5_000_000, Pattern::Zeros);
        let whole = Extent { bytes: 5_000_000, manifest: Some(source.manifest()) };
        let counts = |done| counts(1_000_000, done, whole);
        assert_eq!(counts(None), 1_000_000, "one that has broken off");
        assert_eq!(counts(said(Some(995_000))), 995_000);
        assert_eq!(counts(said(Some(7_000_000))), 1_100_000);
        assert_eq!(counts(said(None)), 1_100_000, "of an earlier release");
        // Nineteen blocks of 188 units, and one of 19,264 bytes in 14.
        let excess = 19 * (188 * 1_400 - 262_144) + 14 * 1_400 - 19_264;
        assert_eq!(counts(said(Some(0))), 1_000_000 - excess);
    }

    #[test]
    fn a_client_cannot_hide_small_files_which_short_units_bring() {
        let name = RelPath::new("a").unwrap();
        let source = SyntheticSource::file(name, 4_000, Pattern::Zeros);
        let whole = Extent { bytes: 4_000, manifest: Some(source.manifest()) };
        assert_eq!(counts(3 * 1_400, said(Some(0)), whole), 4_000);
    }
}
