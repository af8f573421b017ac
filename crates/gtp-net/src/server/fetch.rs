//! Answers `fetch`: gets an object from other servers, for a client that may write here.
//!
//! The client moves no bytes. It names servers, and for each it has signed a ticket that lets this
//! server read one object there. Nothing is fetched without: the tickets are checked here first, so
//! that this server asks nobody for what its client has not signed. What comes is received as any
//! `get` receives, and written as any `put` is: beneath the export, within quotas, and on the
//! client's account.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_share::Side;
use gtp_store::{BlockSink, Manifest, Recheck, SinkError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::admission::listing_bytes;
use super::budget::{Share, USED_UP};
use super::clients::Seat;
use super::put::{TakenRoom, Target, Trouble, must_leave, refuse};
use super::renewed::Renewed;
use super::session::{Client, Ending};
use super::spot::{Spot, find};
use super::told::Told;
use super::{Moved, Pace, ServeConfig, Shared, Stop};
use crate::client::{
    Behalf, DIALLING, Endpoint, Event, GetRequest, ListingRoom, Monitor, Outcome, Place, Progress,
    Terms, Udp, Url, get,
};
use crate::control::ControlError;
use crate::engine::{Host, Way};
use crate::flows::{Failure, FailureKind, Law, known_law};
use crate::identity::{Fingerprint, Identity};
use crate::messages::{
    ENTRIES_MAX, FETCH_SOURCES_MAX, Fault, FetchFrom, FetchSeen, FetchSource, Fetched, Message,
    PeerText, Reason,
};
use crate::ticket::{Purpose, Shown, Ticket};
use crate::trust::{HostAddress, HostTrust};

/// What fetches for clients.
pub(crate) struct Fetching {
    endpoint: Arc<Endpoint>,
    /// A permit for each connection to a source.
    connections: Arc<Semaphore>,
}

/// Connections to sources that all fetches together have, in a process that may have so many
/// descriptors open.
fn connections(descriptors: u64) -> usize {
    let part = usize::try_from(descriptors / 8).unwrap_or(usize::MAX);
    part.clamp(FETCH_SOURCES_MAX, CONNECTIONS_MOST)
}

/// Descriptors that fetches may have open, of so many for all.
pub(super) fn descriptors(config: &ServeConfig, all: u64) -> usize {
    if config.third_party.is_empty() { 0 } else { connections(all) + DIALLING }
}

impl Fetching {
    /// With this server's key, within the ranges that it is configured for; nothing if there are
    /// none.
    pub fn of(
        host: &Host,
        identity: &Identity,
        config: &ServeConfig,
        descriptors: u64,
    ) -> Option<Fetching> {
        if config.third_party.is_empty() {
            return None;
        }
        let (host, ranges) = (host.clone(), config.third_party.clone());
        let endpoint = Endpoint::within(host, identity.clone(), config.interval, ranges);
        let connections = Arc::new(Semaphore::new(connections(descriptors)));
        Some(Fetching { endpoint, connections })
    }

    /// A place for one connection to another server, if there is one.
    pub fn hold(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.connections).try_acquire_owned().ok()
    }

    /// What connects to other servers.
    pub fn endpoint(&self) -> Arc<Endpoint> {
        Arc::clone(&self.endpoint)
    }
}

pub(super) async fn serve(shared: &Arc<Shared>, mut client: Client, stop: &mut Stop) -> Ending {
    if known_law(client.open.law) != Law::Grant {
        let text = "a server fetches from other servers only under the grant law";
        let failure = Failure::new(FailureKind::Destination, text);
        return refuse(client, failure).await;
    }
    let spot = match find(&client).await {
        Ok(spot) => spot,
        Err(failure) => return refuse(client, failure).await,
    };
    let begun = tokio::select! {
        begun = begin(shared, &mut client, spot) => begun,
        why = stop.told() => Err(must_leave(why)),
    };
    let fetched = match begun {
        Ok(order) => order.run(&mut client, stop).await,
        Err(trouble) => Err(trouble),
    };
    let Client { mut channel, seat, .. } = client;
    match fetched {
        Ok((fetched, moved)) => {
            let telling = async {
                if channel.send(&Message::Fetched(fetched)).await.is_ok() {
                    channel.close().await;
                }
            };
            seat.linger(telling).await;
            Ending { moved, ..Ending::default() }
        }
        Err(Trouble { tell, failure, moved }) => {
            if let Some(reason) = tell {
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

/// Hears what is to be fetched, and from whom.
async fn begin(shared: &Shared, client: &mut Client, spot: Spot) -> Result<Order, Trouble> {
    let Some(fetching) = &shared.fetching else {
        let failure = Failure::new(
            FailureKind::Other,
            "this server does not fetch from other servers (serve --third-party)",
        );
        return Err(Trouble::told(Reason::Permission, failure));
    };
    let session = client.host.new_session_id();
    let opened = client.opened(shared, session, spot.object(), (0, 0));
    client.channel.send(&opened).await?;
    let asked = timeout(ORDER_SPAN, client.channel.recv()).await;
    let asked = asked.map_err(|_| ControlError::TimedOut("the sources of the fetch"))??;
    let Message::FetchFrom(asked) = asked else {
        let error = ControlError::Unexpected(format!("message {}", asked.name()));
        return Err(Trouble::told(Reason::Unexpected, error.into()));
    };
    let patience_ms = asked.patience_ms;
    let sources = judged(&asked, (client.channel.peer(), shared.fingerprint))?;
    let patience = Duration::from_millis(patience_ms.into()).clamp(PATIENCE_LEAST, PATIENCE_MOST);
    let number = u32::try_from(sources.len()).unwrap_or(u32::MAX);
    let held = Arc::clone(&fetching.connections).try_acquire_many_owned(number);
    let held = held.map_err(|_| {
        let text = "this server fetches from too many others at the moment: try again later";
        Trouble::told(Reason::Busy, Failure::new(FailureKind::Temporary, text))
    })?;
    let renewed = Renewed::new(&sources, client.host.clock().now());
    let terms = Terms {
        law: Law::Grant,
        weight: f64::from(client.weight_milli) / 1000.0,
        max_rate: shared.terms().max_rate,
        behalf: Behalf { principal: client.holder.principal(), allowance: client.allowance },
        path: client.path_use,
        patience,
        udp: Udp::Auto,
        tickets: Some(renewed.tickets()),
        listings: ListingRoom::of(client.outlet.walks.share(client.holder)),
        ..Terms::new(HostTrust::Each(sources.iter().map(Source::known).collect()))
    };
    let urls = sources.into_iter().map(|source| source.url).collect();
    let target = Target::of(shared, client, spot);
    let share = client.outlet.walks.share(client.holder);
    let recheck = Arc::new(Recheck::default());
    let (seat, watched) = (Arc::clone(&client.seat), Arc::clone(&recheck));
    let told = Arc::clone(&client.told);
    let opening = Opening { target, share, recheck: watched, told, _seat: seat };
    let endpoint = Arc::clone(&fetching.endpoint);
    let own = shared.fingerprint;
    Ok(Order { endpoint, urls, terms, opening, recheck, renewed, own, _held: held })
}

/// A source that the client has signed a ticket for.
#[derive(Clone)]
pub(super) struct Source {
    pub url: Url,
    pub key: Fingerprint,
    pub ticket: Vec<u8>,
}

impl Source {
    /// The host, and the key that it must prove.
    pub fn known(&self) -> (HostAddress, Fingerprint) {
        (self.url.host().clone(), self.key)
    }
}

/// The sources of an order, each with a ticket that counts.
fn judged(asked: &FetchFrom, by: (Fingerprint, Fingerprint)) -> Result<Vec<Source>, Trouble> {
    let sources = asked.sources.iter().map(|source| judge(source, Purpose::Get, by));
    let sources = sources.collect::<Result<Vec<Source>, Failure>>();
    sources.map_err(|why| Trouble::told(Reason::NotAuthorised, why))
}

pub(super) fn by_url(sources: &[Source]) -> HashMap<Url, Vec<u8>> {
    sources.iter().map(|source| (source.url.clone(), source.ticket.clone())).collect()
}

/// Whether the client, whose key comes first, has signed this for this server.
pub(super) fn judge(
    source: &FetchSource,
    purpose: Purpose,
    (client, own): (Fingerprint, Fingerprint),
) -> Result<Source, Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        let host = gtp_text::of_message(&source.host);
        let text = format!("the ticket for {host} is not valid here: {why}");
        Failure::new(FailureKind::Authentication, text)
    };
    let host: HostAddress = source.host.parse().map_err(|why| bad(&why))?;
    let ticket = Ticket::read_for(purpose, &source.ticket).map_err(|why| bad(&why))?;
    if ticket.signer != client {
        return Err(bad(&"it was signed by another key"));
    }
    let (server, path) = (ticket.allowed.server, &ticket.allowed.path);
    let now_s = gtp_sys::clock::unix_seconds();
    // Which server and object these are is for the client to say, and for that server to check.
    ticket.judge(Shown { server, holder: own, path, now_s }).map_err(|why| bad(&why))?;
    let url = Url::of(host, path).ok_or_else(|| bad(&"its path is invalid"))?;
    Ok(Source { url, key: server, ticket: source.ticket.clone() })
}

/// A fetch that is agreed on.
struct Order {
    endpoint: Arc<Endpoint>,
    urls: Vec<Url>,
    terms: Terms,
    opening: Opening,
    recheck: Arc<Recheck>,
    renewed: Renewed,
    /// This server's key.
    own: Fingerprint,
    /// Its connections to sources.
    _held: OwnedSemaphorePermit,
}

/// What opens the sink, once the object is known.
struct Opening {
    target: Target,
    share: Share,
    recheck: Arc<Recheck>,
    told: Arc<Told>,
    /// The client's place, which is held until what is there is read even if the client is gone.
    _seat: Arc<Seat>,
}

/// What a sink leaves beside itself: its room within quotas, or why there is none, and the memory
/// of its listing, until the fetch is over.
#[derive(Default)]
struct Beside {
    room: Option<TakenRoom>,
    trouble: Option<Trouble>,
    share: Option<Share>,
}

impl Opening {
    fn open(
        self,
        manifest: &Arc<Manifest>,
        beside: &Mutex<Beside>,
    ) -> Result<Box<dyn BlockSink>, SinkError> {
        let Opening { target, mut share, recheck, told, _seat } = self;
        told.writes(manifest);
        let names = manifest.entries.iter().map(|entry| entry.path.as_str().len());
        // Each name is known once more while it is watched for quotas.
        let bytes: u64 = names.map(|length| listing_bytes(target.path_length() + length)).sum();
        let opened = match share.take(bytes) && (target.is_idle() || share.take(bytes)) {
            true => target.open(Arc::clone(manifest), recheck, Default::default()),
            false => {
                let failure = Failure::new(FailureKind::Temporary, USED_UP);
                Err(Trouble::told(Reason::Busy, failure))
            }
        };
        let mut beside = beside.lock().unwrap_or_else(PoisonError::into_inner);
        beside.share = Some(share);
        match opened {
            Ok((sink, room)) => {
                beside.room = Some(room);
                Ok(sink)
            }
            Err(trouble) => {
                let text = trouble.failure.text.clone();
                beside.trouble = Some(trouble);
                Err(SinkError::Unsuitable(text))
            }
        }
    }
}

impl Order {
    /// Fetches, and tells the client how far that is.
    async fn run(self, client: &mut Client, stop: &mut Stop) -> Result<(Fetched, Moved), Trouble> {
        let Order { endpoint, urls: sources, terms, opening, recheck, mut renewed, own, _held } =
            self;
        let recheck = Stopping(recheck);
        let beside = Arc::new(Mutex::new(Beside::default()));
        let left = Arc::clone(&beside);
        let make = Box::new(move |manifest: &Arc<Manifest>| opening.open(manifest, &left));
        let (events, heard) = mpsc::unbounded_channel();
        let (pass, remarks) = mpsc::channel(REMARKS_MAX);
        let (progress, seen) = watch::channel(Progress::default());
        let (halt, halted) = watch::channel(None);
        let monitor = Monitor { events, progress, stop: halted };
        measure(client, &seen);
        let request = GetRequest { sources, terms, place: Place::Sink(make), expected: None };
        let mut getting = pin!(get(endpoint, request, monitor));
        // A client that does not read holds up its own news, and nothing else.
        let ended = tokio::select! {
            ended = &mut getting => Ok(ended),
            trouble = tell(client, remarks, &seen, (own, &mut renewed)) => Err(trouble),
            never = sift(heard, pass) => match never {},
            why = stop.told() => Err(must_leave(why)),
        };
        let (ended, left_by) = match ended {
            Ok(ended) => (ended, None),
            Err(why) => {
                recheck.0.stop();
                halt.send_replace(Some(FailureKind::Interrupted));
                (getting.await, Some(why))
            }
        };
        let trouble = beside_over(&beside).await;
        let moved = moved(&seen.borrow());
        match (ended, left_by.or(trouble)) {
            (Ok(outcome), _) => {
                let files = outcome.files_written;
                Ok((fetched(outcome), Moved { files, ..moved }))
            }
            (Err(_), Some(why)) => Err(Trouble { moved, ..why }),
            (Err(failure), None) => {
                Err(Trouble { moved, ..Trouble::told(reason_of(failure.kind), failure) })
            }
        }
    }
}

/// Gives back what was held beside the sink; returns why it could not be opened, if it could not.
async fn beside_over(beside: &Mutex<Beside>) -> Option<Trouble> {
    let Beside { room, trouble, share } =
        std::mem::take(&mut *beside.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(room) = room {
        room.give_back().await;
    }
    drop(share);
    trouble
}

/// Tells the client how a fetch goes and takes new tickets from it, until it wants no more.
async fn tell(
    client: &mut Client,
    mut remarks: mpsc::Receiver<Message>,
    seen: &watch::Receiver<Progress>,
    (own, renewed): (Fingerprint, &mut Renewed),
) -> Trouble {
    let mut left = REMARKS_MAX;
    let mut tick = interval(SEEN_SPAN);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            Some(remark) = remarks.recv(), if left > 0 => {
                left -= 1;
                client.channel.send(&remark).await
            }
            message = client.channel.recv() => match message {
                Ok(Message::FetchFrom(again)) => {
                    let now = client.host.clock().now();
                    match renew(renewed, &again, (client.channel.peer(), own), now) {
                        Ok(()) => Ok(()),
                        Err(trouble) => return trouble,
                    }
                }
                other => return given_up(other),
            },
            _ = tick.tick() => {
                let far = of(&seen.borrow());
                client.channel.send(&Message::FetchSeen(far)).await
            }
        };
        if let Err(error) = sent {
            return error.into();
        }
    }
}

/// Passes on what the client is to hear. Of all else nothing is kept, and of this no more than has
/// room: a client that does not read fills no memory.
async fn sift(
    mut heard: mpsc::UnboundedReceiver<Event>,
    pass: mpsc::Sender<Message>,
) -> Infallible {
    while let Some(event) = heard.recv().await {
        if let Some(remark) = remark(event) {
            let _ = pass.try_send(remark);
        }
    }
    std::future::pending().await
}

/// Takes new tickets, if they are what may come.
fn renew(
    renewed: &mut Renewed,
    again: &FetchFrom,
    by: (Fingerprint, Fingerprint),
    now: Time,
) -> Result<(), Trouble> {
    renewed.count(now)?;
    Ok(renewed.replace(&judged(again, by)?)?)
}

/// Reads no more of what is there once nobody waits for it.
struct Stopping(Arc<Recheck>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What the client hears of a source that is lost: a fault that does not end the session.
fn remark(event: Event) -> Option<Message> {
    let (url, failure) = match event {
        Event::Retry { url, failure, .. } | Event::Dropped { url, failure } => (url, failure),
        Event::Started { .. }
        | Event::Way { .. }
        | Event::Skipped(_)
        | Event::Warning(_)
        | Event::BadBlock { .. }
        | Event::Renewed { .. }
        | Event::FileDone { .. } => return None,
    };
    let text = PeerText::new(format!("{url}: {}", failure.text));
    Some(Message::Fault(Fault { reason: reason_of(failure.kind), text, path: Some(Vec::new()) }))
}

/// Why a client that says this, or is gone, wants no more.
fn given_up(message: Result<Message, ControlError>) -> Trouble {
    match message {
        Ok(Message::Cancel) => {
            let failure = Failure::new(FailureKind::Interrupted, "given up by the client");
            Trouble { tell: None, failure, moved: Moved::default() }
        }
        Ok(other) => {
            let error = ControlError::Unexpected(format!("message {}", other.name()));
            Trouble::told(Reason::Unexpected, error.into())
        }
        Err(error) => error.into(),
    }
}

/// The operator sees how far it is, and how fast.
fn measure(client: &Client, seen: &watch::Receiver<Progress>) {
    let gauge = seen.clone();
    client.told.measure(move || moved(&gauge.borrow()));
    let gauge = seen.clone();
    client.told.pace(move || {
        let progress = gauge.borrow();
        (progress.total > 0).then(|| Pace {
            rate: progress.rate(),
            granted: progress.granted(),
            limited_by: progress.limited_by(),
            side: Side::Sink,
            // The sessions of several sources have one each.
            rtt: Span::ZERO,
            path: None,
            way: Way::Udp,
        })
    });
}

fn moved(progress: &Progress) -> Moved {
    let sum = |of: fn(&crate::client::SourceShare) -> u64| progress.sources.iter().map(of).sum();
    Moved {
        content_bytes: sum(|source| source.bytes),
        wire_bytes: sum(|source| source.wire_bytes),
        wasted_bytes: sum(|source| source.duplicate_bytes),
        loss_ratio: progress.loss_ratio(),
        ..Moved::default()
    }
}

fn of(progress: &Progress) -> FetchSeen {
    let Progress { bytes, total, resumed_bytes, rechecked, .. } = *progress;
    FetchSeen { bytes, total, resumed_bytes, rechecked }
}

fn fetched(outcome: Outcome) -> Fetched {
    let first = outcome.skipped.first().map(|failure| PeerText::new(failure.text.clone()));
    Fetched {
        bytes: outcome.bytes,
        resumed_bytes: outcome.resumed_bytes.min(outcome.bytes),
        files_written: outcome.files_written,
        files_unchanged: outcome.files_unchanged,
        left_out: (outcome.skipped.len() as u64).min(ENTRIES_MAX),
        first_left_out: first,
    }
}

/// What the client is told of a failure at the sources.
fn reason_of(kind: FailureKind) -> Reason {
    match kind {
        FailureKind::Missing => Reason::Missing,
        FailureKind::Destination | FailureKind::Quota => Reason::Destination,
        FailureKind::Temporary | FailureKind::Unreachable => Reason::Busy,
        FailureKind::Integrity => Reason::Integrity,
        FailureKind::Authentication | FailureKind::OutsideHours | FailureKind::Revoked => {
            Reason::NotAuthorised
        }
        FailureKind::TimeLimit => Reason::TimedOut,
        FailureKind::NoUdpPath => Reason::NoUdpPath,
        FailureKind::Interrupted => Reason::Stopping,
        FailureKind::Other | FailureKind::Usage | FailureKind::Partial => Reason::Other,
    }
}

/// How long a client has to name its sources.
const ORDER_SPAN: Duration = Duration::from_secs(10);

/// Connections to sources that all fetches together have at most.
const CONNECTIONS_MOST: usize = 1_024;

/// Lost sources that the client hears of, of one fetch.
const REMARKS_MAX: usize = 100;

/// Time between two words on how far it is.
const SEEN_SPAN: Duration = Duration::from_millis(250);

/// How long a fetch may go on without progress, at least and at most: whoever wants to wait for
/// longer orders it anew, with new tickets.
const PATIENCE_LEAST: Duration = Duration::from_secs(1);
const PATIENCE_MOST: Duration = Duration::from_secs(60);
