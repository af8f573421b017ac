//! Answers `put`: takes the object's listing, opens a sink beneath the export, and receives.
//!
//! The client's names are hostile until proved otherwise. The place is a [`Spot`], and everything
//! happens beneath its handle.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use gtp_proto::{FlowId, Revision};
use gtp_store::{
    BLOCK, BlockSink, Entry, Kind, Manifest, Recheck, RelPath, SinkError, SinkOptions, Value,
};
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep};

use super::admission::listing_bytes;
use super::budget::{Share, USED_UP};
use super::charge::Charge;
use super::clients::{Leave, Seat};
use super::confines::Confines;
use super::outlet::Outlet;
use super::path_questions::PathQuestions;
use super::quota::{Full, Meter};
use super::relay::{Relaying, Turn, relays};
use super::room::Room;
use super::session::{Client, Ending};
use super::spot::{Known, Spot, find};
use super::walks::Nothing;
use super::writers::Writer;
use super::{Moved, Pace, Shared, Stop};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN, SILENCE_SPAN};
use crate::engine::{
    Brings, FlowProgress, RootPolicy, SessionOpen, TransferEvent, TransferHandle, TransferOpen,
    TransferProgress,
};
use crate::flows::{
    Failure, FailureKind, FileIndex, Gathering, Questions, hashing_span, reason_of_sink, runs,
};
use crate::messages::{
    Carry, Done, Fault, Message, PeerText, ROOTS_PER_PAGE, Ready, Reason, RelayJoin,
};

pub(super) async fn serve(shared: &Arc<Shared>, mut client: Client, stop: &mut Stop) -> Ending {
    if let Some(fetching) = shared.fetching.as_ref().filter(|_| client.open.relay == Some(true)) {
        // All sessions of a transfer are at one engine, and this one's connects to other servers.
        client.host = fetching.endpoint().host().clone();
    }
    let spot = match find(&client).await {
        Ok(spot) => spot,
        Err(failure) => return refuse(client, failure).await,
    };
    let session = match client.session(shared) {
        Ok(session) => session,
        Err(failure) => return Ending::failed(failure),
    };
    client.channel.allow_pages();
    let opened = client.opened(shared, session.local_session, spot.object(), (0, 0));
    match receive(shared, &mut client, spot, session, opened, stop).await {
        Ok(moved) => {
            client.seat.linger(client.channel.close()).await;
            Ending { moved, ..Ending::default() }
        }
        Err(Trouble { tell, failure, moved }) => {
            if let Some(reason) = tell {
                let Client { mut channel, seat, .. } = client;
                let telling = async {
                    channel.dismiss(reason, failure.text.clone()).await;
                    channel.close().await;
                };
                seat.linger(telling).await;
            }
            Ending { moved, ..Ending::failed(failure) }
        }
    }
}

/// Refuses a client whose place cannot be written.
pub(super) async fn refuse(client: Client, failure: Failure) -> Ending {
    let absent = failure.kind == FailureKind::Temporary;
    let reason = if absent { Reason::Busy } else { Reason::Destination };
    client.seat.linger(client.channel.refuse(reason, failure.text.clone())).await;
    Ending::failed(failure)
}

/// A failure, and what the client is to be told of it.
pub(super) struct Trouble {
    pub tell: Option<Reason>,
    pub failure: Failure,
    pub moved: Moved,
}

impl Trouble {
    pub fn told(reason: Reason, failure: Failure) -> Trouble {
        Trouble { tell: Some(reason), failure, moved: Moved::default() }
    }
}

impl From<Full> for Trouble {
    fn from(full: Full) -> Trouble {
        let reason = match full {
            Full::Uncounted | Full::Claimed => Reason::Busy,
            Full::Unopened(_) | Full::Unseen | Full::Closed | Full::NoRoom(_) => {
                Reason::Destination
            }
        };
        Trouble::told(reason, full.into())
    }
}

impl From<Nothing> for Trouble {
    fn from(nothing: Nothing) -> Trouble {
        Trouble::told(nothing.reason, nothing.failure)
    }
}

impl From<Full> for Failure {
    fn from(full: Full) -> Failure {
        let kind = match full {
            Full::Uncounted | Full::Claimed => FailureKind::Temporary,
            Full::NoRoom(_) => FailureKind::Quota,
            Full::Unopened(_) | Full::Unseen | Full::Closed => FailureKind::Destination,
        };
        Failure::new(kind, full.to_string())
    }
}

impl From<ControlError> for Trouble {
    fn from(error: ControlError) -> Trouble {
        Trouble { tell: None, failure: error.into(), moved: Moved::default() }
    }
}

async fn receive(
    shared: &Arc<Shared>,
    client: &mut Client,
    spot: Spot,
    session: SessionOpen,
    opened: Message,
    stop: &mut Stop,
) -> Result<Moved, Trouble> {
    // Also while something is being sent: the client may read slowly, or not at all.
    let ((mut taking, ready), _held) = tokio::select! {
        begun = begin(shared, client, spot, session, opened) => begun?,
        why = stop.told() => return Err(must_leave(why)),
    };
    let verdict = tokio::select! {
        verdict = taking.run(client, ready) => verdict,
        why = stop.told() => Err(must_leave(why)),
    };
    if verdict.is_err() {
        taking.suspend().await;
    }
    taking.settle().await;
    let moved = moved(&taking.transfer.progress(), taking.files);
    verdict.map(|()| moved).map_err(|trouble| Trouble { moved, ..trouble })
}

/// What a session has received, with the number of files that got their names.
fn moved(progress: &TransferProgress, files: u64) -> Moved {
    let sum = |of: fn(&FlowProgress) -> u64| progress.flows.iter().map(of).sum();
    let lost = |flow: &FlowProgress| {
        let loss = flow.loss_ratio.clamp(0.0, 0.99);
        (flow.wire_bytes as f64 * loss / (1.0 - loss)) as u64 + flow.duplicate_bytes
    };
    Moved {
        content_bytes: sum(|flow| flow.bytes),
        wire_bytes: sum(|flow| flow.wire_bytes),
        wasted_bytes: sum(lost),
        // It has one session.
        loss_ratio: progress.flows.first().map_or(0.0, |flow| flow.loss_ratio),
        files,
        ..Moved::default()
    }
}

/// Takes the object's listing and opens sink and transfer for it; what the listing holds comes
/// along.
async fn begin<'a>(
    shared: &'a Arc<Shared>,
    client: &mut Client,
    spot: Spot,
    session: SessionOpen,
    opened: Message,
) -> Result<((Taking<'a>, Ready), (Arc<Seat>, Share)), Trouble> {
    client.channel.send(&opened).await?;
    let mut share = client.outlet.walks.share(client.holder);
    let (manifest, values, join) = gather(shared, client, &spot, &mut share).await?;
    client.told.writes(&manifest);
    let join = join.map(|join| (join, share.another()));
    let target = Target::of(shared, client, spot);
    if !target.is_idle() {
        // Each name is known once more while it is watched.
        let bytes = |entry: &Entry| listing_bytes(target.path_length() + entry.path.as_str().len());
        if !share.take(manifest.entries.iter().map(bytes).sum()) {
            let failure = Failure::new(FailureKind::Temporary, USED_UP);
            return Err(Trouble::told(Reason::Busy, failure));
        }
    }
    let opening = {
        let (manifest, seat) = (Arc::clone(&manifest), Arc::clone(&client.seat));
        Opening::begin((seat, share), move |recheck| target.open(manifest, recheck, values))
    };
    // Judging many names, and reading what is there already, takes longer than the client would
    // wait in silence.
    let (opened, held) = wait_for_sink(client, opening).await?;
    let (sink, room) = opened?;
    let ready = what_is_there(&*sink, &manifest);
    let relaying = join.map(|join| Relaying::begin(shared, client, join, &*sink, &manifest));
    let relaying = match relaying.transpose() {
        Ok(relaying) => relaying,
        Err(trouble) => {
            room.give_back().await;
            return Err(trouble);
        }
    };
    let taking = start(client, sink, manifest, session, relaying);
    Ok(((Taking { room: Some(room), ..taking }, ready), held))
}

/// Where an object is to go, and what limits it there.
pub(super) struct Target {
    outlet: Arc<Outlet>,
    path: Option<RelPath>,
    spot: Spot,
    options: SinkOptions,
    confines: Option<Confines>,
    writer: Writer,
    meter: Meter,
}

/// Room within quotas, if they count it.
pub(super) type TakenRoom = Room<(Option<Charge>, Writer)>;

impl Target {
    /// The place that a client wants to write.
    pub fn of(shared: &Shared, client: &Client, spot: Spot) -> Target {
        let (outlet, path) = (Arc::clone(&client.outlet), client.path.clone());
        let (writer, meter) = outlet.writing(path.as_ref());
        let (options, confines) = (shared.config.sink_options, shared.config.confines.clone());
        Target { outlet, path, spot, options, confines, writer, meter }
    }

    /// Whether no quota counts what is written there.
    pub fn is_idle(&self) -> bool {
        self.meter.is_idle()
    }

    /// Bytes of its path.
    pub fn path_length(&self) -> usize {
        self.path.as_ref().map_or(0, |path| path.as_str().len())
    }

    /// Opens the sink. Blocks for as long as it takes to hash what is there, or until `recheck`
    /// stops it.
    pub fn open(
        self,
        manifest: Arc<Manifest>,
        recheck: Arc<Recheck>,
        values: Known,
    ) -> Result<(Box<dyn BlockSink>, TakenRoom), Trouble> {
        let Target { outlet, path, spot, options, confines, writer, meter } = self;
        judge_names(confines.as_ref(), &manifest)?;
        let mut charge = None;
        if !meter.is_idle() {
            let root = outlet.ground.dir().map_err(Trouble::from)?;
            let dirs = (root, &spot.holder);
            charge = Some(Charge::take(meter, dirs, path.as_ref(), &manifest)?);
        }
        let opened = spot.open(manifest, options, recheck, values);
        let mut sink =
            opened.map_err(|error| Trouble::told(reason_of_sink(&error), error.into()))?;
        if let Some(charge) = &mut charge
            && let Err(full) = charge.top_up(|file| sink.is_kept(file))
        {
            // What it made stays for a later attempt.
            let _ = sink.suspend();
            return Err(Trouble::from(full));
        }
        Ok((sink, Room::new((charge, writer))))
    }
}

/// Starts the transfer of what is not there already.
fn start<'a>(
    client: &mut Client,
    sink: Box<dyn BlockSink>,
    manifest: Arc<Manifest>,
    session: SessionOpen,
    relaying: Option<Relaying<'a>>,
) -> Taking<'a> {
    // What is kept needs no name, and nobody need hash it.
    let wanted = |(n, e): (u32, &Entry)| e.kind == Kind::File && e.size > 0 && !sink.is_kept(n);
    let waiting = (0u32..).zip(&manifest.entries).map(wanted).collect();
    let open =
        TransferOpen { sink, manifest: Arc::clone(&manifest), roots: RootPolicy::TrustTrailers };
    let transfer = client.host.open_transfer(open);
    let received = transfer.watch();
    client.told.measure(move || moved(&received.progress(), 0));
    let received = transfer.watch();
    client.told.pace(move || received.progress().flows.first().map(Pace::from));
    let flow = match relaying {
        Some(_) => transfer.add_part_session(session, Brings::Own),
        None => transfer.add_session(session),
    };
    let index = FileIndex::of(&manifest);
    let questions = Questions::default();
    Taking {
        transfer,
        flow,
        path_questions: PathQuestions::default(),
        manifest,
        index,
        waiting,
        renewed: BTreeSet::new(),
        questions,
        answer_by: None,
        refused: Vec::new(),
        refused_total: 0,
        lost_bytes: 0,
        files: 0,
        room: None,
        relaying,
    }
}

/// Refuses an object with something in it that may not be written.
fn judge_names(confines: Option<&Confines>, manifest: &Manifest) -> Result<(), Trouble> {
    let Some(strange) = confines.and_then(|confines| confines.strange(manifest)) else {
        return Ok(());
    };
    let text = format!("{}: nobody has asked for it", gtp_store::escaped(strange.as_str()));
    let failure = Failure::new(FailureKind::Destination, text);
    Err(Trouble::told(Reason::Permission, failure))
}

/// What the server already has, so that the client need not send it.
fn what_is_there(sink: &dyn BlockSink, manifest: &Manifest) -> Ready {
    let bytes = sink.have().iter().filter_map(|have| {
        let size = manifest.entries.get(have.file as usize)?.size;
        let end = have.blocks.end.saturating_mul(BLOCK).min(size);
        Some(end.saturating_sub(have.blocks.start.saturating_mul(BLOCK)))
    });
    let files = (0u32..).zip(&manifest.entries).filter(|(_, entry)| entry.kind == Kind::File);
    let unchanged = files.filter(|&(number, _)| sink.is_kept(number)).count();
    Ready { resumed_bytes: bytes.sum(), files_unchanged: unchanged as u64 }
}

/// The opening of a sink, which reads what is there on a thread of its own. That ends at the next
/// block when this is dropped, and only then lets go of what it `held`: whoever comes and goes in a
/// loop meets the limits of one client.
struct Opening<T> {
    job: JoinHandle<T>,
    recheck: Arc<Recheck>,
}

impl<T: Send + 'static> Opening<T> {
    fn begin<H: Send + 'static>(
        held: H,
        open: impl FnOnce(Arc<Recheck>) -> T + Send + 'static,
    ) -> Opening<(T, H)> {
        let recheck = Arc::new(Recheck::default());
        let watched = Arc::clone(&recheck);
        let job = tokio::task::spawn_blocking(move || (open(watched), held));
        Opening { job, recheck }
    }
}

impl<T> Drop for Opening<T> {
    fn drop(&mut self) {
        self.recheck.stop();
    }
}

/// Waits for a sink for as long as the client is there.
async fn wait_for_sink<T>(client: &mut Client, mut opening: Opening<T>) -> Result<T, Trouble> {
    let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
    let channel = &mut client.channel;
    loop {
        tokio::select! {
            opened = &mut opening.job => return opened.map_err(|error| {
                let failure = Failure::new(FailureKind::Other, error.to_string());
                Trouble::told(Reason::Other, failure)
            }),
            message = channel.recv() => match message? {
                Message::UnitChoice(_) => {}
                other => return Err(last_word(other)),
            },
            _ = keepalive.tick() => channel.send(&Message::Keepalive).await?,
        }
    }
}

/// What ends a session when a client says it that has nothing to say.
fn last_word(message: Message) -> Trouble {
    let failure = match message {
        Message::Fault(fault) => Failure::of_fault(&fault),
        Message::Cancel => Failure::new(FailureKind::Interrupted, "given up by the client"),
        other => return unexpected(&other),
    };
    Trouble { tell: None, failure, moved: Moved::default() }
}

pub(super) fn must_leave(why: Leave) -> Trouble {
    Trouble::told(why.reason(), why.failure())
}

/// The object's listing, values of blocks that may be here, and whether it is to be relayed.
async fn gather(
    shared: &Shared,
    client: &mut Client,
    spot: &Spot,
    share: &mut Share,
) -> Result<(Arc<Manifest>, Known, Option<RelayJoin>), Trouble> {
    let refused = |why: crate::flows::BadListing| {
        Trouble::told(Reason::Limit, Failure::new(FailureKind::Other, why.to_string()))
    };
    // What is all that is exported has no name; a file that is to replace it is refused later.
    let name = spot.name.clone().or_else(|| RelPath::new("export").ok());
    let mut gathering = Gathering::named(name);
    // Which blocks a file here has is told only to those who may read it.
    let may_read = client.may_read;
    let (mut known, mut join) = (Known::new(), None);
    loop {
        match client.channel.recv().await? {
            Message::ManifestPage(page) => {
                let bytes = page.entries.iter().map(|entry| listing_bytes(entry.path.len())).sum();
                if !share.take(bytes) {
                    let failure = Failure::new(FailureKind::Temporary, USED_UP);
                    return Err(Trouble::told(Reason::Busy, failure));
                }
                gathering.page(page).map_err(refused)?;
            }
            Message::ManifestEnd(end) => {
                let kind = gathering.kind();
                let manifest = gathering.end(&end, kind).map_err(refused)?;
                return Ok((manifest, known, join));
            }
            Message::RelayJoin(asked) if relays(shared, &client.open).is_some() => {
                join = Some(asked);
            }
            Message::BlockValues(page) => {
                let bytes = listing_bytes(page.path.len()) + 32 * page.values.0.len() as u64;
                if !share.take(bytes) {
                    let failure = Failure::new(FailureKind::Temporary, USED_UP);
                    return Err(Trouble::told(Reason::Busy, failure));
                }
                let path = RelPath::from_bytes(&page.path).ok().filter(|_| may_read);
                let values = path.map(|path| known.entry(path).or_default());
                if let Some(values) = values.filter(|values| values.len() as u64 == page.first) {
                    values.extend(page.values.0);
                }
            }
            Message::Cancel => return Err(ControlError::Closed.into()),
            Message::Fault(fault) => {
                let failure = Failure::of_fault(&fault);
                return Err(Trouble { tell: None, failure, moved: Moved::default() });
            }
            other => return Err(unexpected(&other)),
        }
    }
}

fn unexpected(message: &Message) -> Trouble {
    let error = ControlError::Unexpected(format!("message {}", message.name()));
    Trouble::told(Reason::Unexpected, error.into())
}

/// A session that receives.
struct Taking<'a> {
    transfer: TransferHandle,
    /// Its session.
    flow: FlowId,
    path_questions: PathQuestions,
    manifest: Arc<Manifest>,
    index: FileIndex,
    /// For each entry, whether it is a file that has no name yet.
    waiting: Vec<bool>,
    /// Files that were begun anew because what was left of them is of another file.
    renewed: BTreeSet<u32>,
    /// For the roots that the client still owes.
    questions: Questions,
    /// When it must have said them.
    answer_by: Option<Pin<Box<Sleep>>>,
    /// What the client is to hear of entries that cannot be written here.
    refused: Vec<Message>,
    /// How many there were.
    refused_total: usize,
    /// Content bytes of files that will not be here.
    lost_bytes: u64,
    /// Files that have got their names.
    files: u64,
    /// Its room within quotas, if they count it.
    room: Option<TakenRoom>,
    /// Other sinks, where the object is relayed.
    relaying: Option<Relaying<'a>>,
}

impl Taking<'_> {
    /// Notes what is there now, for quotas.
    async fn settle(&mut self) {
        if let Some(room) = self.room.take() {
            room.give_back().await;
        }
    }

    /// Says what is there already, and takes the rest.
    async fn run(&mut self, client: &mut Client, ready: Ready) -> Result<(), Trouble> {
        client.channel.send(&Message::Ready(ready)).await?;
        let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
        loop {
            let channel = &mut client.channel;
            tokio::select! {
                message = channel.recv() => match self.relayed(message?)? {
                    None => {}
                    Some(message) => self.hear(message, channel).await?,
                },
                turn = turn_of(&mut self.relaying) => {
                    let relaying = self.relaying.as_mut();
                    let said = relaying.map(|relaying| relaying.take(turn, &self.transfer));
                    channel.send_all(said.into_iter().flatten()).await?;
                }
                event = self.transfer.next_event() => {
                    let Some(event) = self.noticed(event) else { continue };
                    if let Some(TransferEvent::Silent { .. }) = event {
                        channel.send(&Message::Unheard).await?;
                    }
                    let done = self.handle(event)?;
                    channel.send_all(self.refused.drain(..)).await?;
                    if let Some(done) = done {
                        // The client's next request finds it charged.
                        self.settle().await;
                        client.channel.send(&Message::Done(done)).await?;
                        if let Some(relaying) = self.relaying.take() {
                            relaying.linger(&mut client.channel).await;
                        }
                        return Ok(());
                    }
                    channel.send_all(self.questions.due()).await?;
                },
                () = overdue(&mut self.answer_by) => {
                    let text = "the client does not say the hashes of its files";
                    let failure = Failure::new(FailureKind::Temporary, text);
                    return Err(Trouble::told(Reason::TimedOut, failure));
                }
                _ = keepalive.tick() => channel.send(&Message::Keepalive).await?,
            }
        }
    }

    /// Gives what is about other sinks to whom it concerns, and the rest back.
    fn relayed(&mut self, message: Message) -> Result<Option<Message>, Trouble> {
        match &mut self.relaying {
            Some(relaying) => relaying.hear(message, (&self.transfer, self.flow)),
            None => Ok(Some(message)),
        }
    }

    /// The same of an event; `None` if it has been dealt with.
    fn noticed(&mut self, event: Option<TransferEvent>) -> Option<Option<TransferEvent>> {
        match (&mut self.relaying, event) {
            (Some(relaying), Some(event)) => {
                relaying.notice(event, (&self.transfer, self.flow)).map(Some)
            }
            (_, event) => Some(event),
        }
    }

    /// Does what a message of the client's asks for.
    async fn hear(
        &mut self,
        message: Message,
        channel: &mut ControlChannel,
    ) -> Result<(), Trouble> {
        match message {
            Message::Roots(page) => {
                self.take_roots(page.first_file, &page.roots.0);
                channel.send_all(self.questions.due()).await?;
            }
            Message::UnitChoice(_) => {}
            Message::ArrivalsWanted => {
                let seen = self.path_questions.answer(self.transfer.arrivals(self.flow));
                channel.send(&seen.await?).await?;
            }
            Message::Carry(Carry { port }) if channel.revision() >= Revision::Fourth => {
                let peer = channel.ends().remote;
                let carrier = self.transfer.carrier(self.flow, peer).going_first(port);
                channel.carried(carrier)?;
            }
            other => return Err(last_word(other)),
        }
        Ok(())
    }

    /// What follows from an event of the engine; `Some` when all is in place.
    fn handle(&mut self, event: Option<TransferEvent>) -> Result<Option<Done>, Trouble> {
        let temporary = |why: &str| Failure::new(FailureKind::Temporary, why);
        let Some(event) = event else {
            return Err(Trouble::told(Reason::Other, temporary("the engine has ended")));
        };
        match event {
            TransferEvent::PathOpen { .. }
            | TransferEvent::Stalled
            | TransferEvent::Silent { .. } => Ok(None),
            TransferEvent::NoPath { .. } => {
                let failure =
                    Failure::new(FailureKind::NoUdpPath, "no datagram came from the client");
                Err(Trouble::told(Reason::NoUdpPath, failure))
            }
            TransferEvent::Lost { why, .. } => {
                Err(Trouble::told(Reason::TimedOut, temporary(&why)))
            }
            TransferEvent::BadBlock { .. } | TransferEvent::BlockHere { .. } => Ok(None),
            TransferEvent::WrongRoot { file, doubtful, error } => {
                // What another client left under the same name may be of another file.
                if self.relaying.is_some() {
                    // The sink has dropped it, and the next attempt finds nothing of it.
                    return Err(Trouble::told(Reason::Busy, temporary(&error.to_string())));
                }
                if !doubtful || !self.renewed.insert(file) {
                    return Err(Trouble::told(reason_of_sink(&error), error.into()));
                }
                self.transfer.begin_anew(file);
                Ok(None)
            }
            TransferEvent::Unobtainable { .. } => {
                let failure = Failure::new(FailureKind::Integrity, "a block came damaged");
                Err(Trouble::told(Reason::Integrity, failure))
            }
            TransferEvent::FileDone { file, .. } => {
                if let Some(waiting) = self.waiting.get_mut(file as usize) {
                    *waiting = false;
                }
                Ok(None)
            }
            TransferEvent::FileNamed { .. } => {
                self.files += 1;
                Ok(None)
            }
            TransferEvent::Warning(text) => {
                tracing::warn!("{text}");
                Ok(None)
            }
            TransferEvent::GivenUp { file, why } => {
                self.give_up(file, why);
                Ok(None)
            }
            TransferEvent::AllBlocks => {
                self.ask_roots();
                Ok(None)
            }
            TransferEvent::Fault(error) => Err(Trouble::told(reason_of_sink(&error), error.into())),
            TransferEvent::Complete(finished) => {
                self.count_refused();
                Ok(Some(Done {
                    files: finished.files_written,
                    content_bytes: self.manifest.content_bytes().saturating_sub(self.lost_bytes),
                    brought_bytes: None,
                }))
            }
            TransferEvent::Suspended => {
                Err(Trouble::told(Reason::Other, temporary("the transfer was suspended")))
            }
        }
    }

    /// An entry will not be here. If that is for this end's reasons, the client hears of it.
    fn give_up(&mut self, file: u32, why: Option<SinkError>) {
        if let Some(waiting) = self.waiting.get_mut(file as usize) {
            *waiting = false;
        }
        let Some(entry) = self.manifest.entries.get(file as usize) else { return };
        self.lost_bytes += entry.size;
        let Some(error) = why else { return };
        self.refused_total += 1;
        if self.refused_total <= REFUSED_TOLD {
            let path = Some(entry.path.as_str().as_bytes().to_vec());
            let text = PeerText::new(error.words());
            self.refused.push(Message::Fault(Fault { reason: reason_of_sink(&error), text, path }));
        }
    }

    /// Says how many more entries there were than the client has heard of by name.
    fn count_refused(&mut self) {
        let more = self.refused_total.saturating_sub(REFUSED_TOLD);
        if more > 0 {
            let text = PeerText::new(format!("{more} more cannot be written there"));
            let fault = Fault { reason: Reason::Destination, text, path: Some(Vec::new()) };
            self.refused.push(Message::Fault(fault));
        }
    }

    fn ask_roots(&mut self) {
        let wanted: Vec<u32> =
            (0u32..).zip(&self.waiting).filter(|(_, w)| **w).map(|(n, _)| n).collect();
        self.questions.add(runs(&self.index, &wanted, ROOTS_PER_PAGE));
        if self.questions.is_empty() {
            self.transfer.finish_files(Vec::new());
            return;
        }
        let sizes = wanted.iter().filter_map(|&file| self.manifest.entries.get(file as usize));
        let bytes = sizes.map(|entry| entry.size).fold(0, u64::saturating_add);
        self.answer_by = Some(Box::pin(sleep(SILENCE_SPAN + hashing_span(bytes))));
    }

    fn take_roots(&mut self, first_file: u64, roots: &[Value]) {
        let count = u32::try_from(roots.len()).unwrap_or(u32::MAX);
        let Some(entries) = self.index.entries(first_file, count) else { return };
        if !self.questions.answered(first_file, roots.len()) {
            return;
        }
        if self.questions.is_empty() {
            self.answer_by = None;
        }
        let expected = entries.iter().zip(roots).map(|(&file, &root)| (file, Some(root)));
        self.transfer.finish_files(expected.collect());
    }

    /// Keeps what is complete; the next attempt finds the destination free.
    async fn suspend(&mut self) {
        self.transfer.suspend();
        while let Some(event) = self.transfer.next_event().await {
            if matches!(event, TransferEvent::Suspended | TransferEvent::Complete(_)) {
                break;
            }
        }
    }
}

/// Waits until there is something to do about other sinks; for ever where nothing is relayed.
async fn turn_of(relaying: &mut Option<Relaying<'_>>) -> Turn {
    match relaying {
        Some(relaying) => relaying.turn().await,
        None => std::future::pending().await,
    }
}

/// Waits until a time has come; for ever if there is none.
async fn overdue(at: &mut Option<Pin<Box<Sleep>>>) {
    match at {
        Some(at) => at.await,
        None => std::future::pending().await,
    }
}

/// Entries that cannot be written and that a client hears of by name.
const REFUSED_TOLD: usize = 900;

#[cfg(test)]
mod tests;
