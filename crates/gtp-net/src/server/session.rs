//! One client's session: from its first message to the verb that does the work.
//!
//! What is refused is refused here, in words and before any work. A verb finds a client whose key,
//! path and cipher are settled.

use std::net::SocketAddr;
use std::sync::Arc;

use gtp_proto::limits::UNIT_JUMBO;
use gtp_proto::{PathUse, Role, Weights};
use gtp_store::RelPath;

use super::admission::{holder, weight};
use super::budget::Holder;
use super::clients::Seat;
use super::keys::admit;
use super::occupancy::{Full, MayStay, Right};
use super::outlet::{Outlet, Place};
use super::told::Told;
use super::used_tickets::Spent;
use super::{
    Moved, Request, ServerEvent, Shared, Stop, Visit, Whose, WhyRefused, Writing, fetch, get, list,
    probed, put, relay, streamed, tend,
};
use crate::control::ControlChannel;
use crate::crypto::Suite;
use crate::engine::{Allowance, Host, SessionOpen};
use crate::flows::{Alone, Failure, FailureKind, Law, keys, known_law};
use crate::identity::Fingerprint;
use crate::messages::{EntryKind, INTERVAL_US, Message, Open, Opened, Reason, Verb, printable};
use crate::ticket::{BadTicket, Purpose, Shown, Ticket};
use crate::trust::{Access, ClientTrust, Closed, LocalTime};

/// A refusal, for the client; the server hears of it as a failure.
pub(crate) struct Refusal {
    pub reason: Reason,
    pub text: String,
    /// As what the server counts it.
    why: WhyRefused,
}

impl Refusal {
    pub fn new(reason: Reason, text: impl Into<String>) -> Refusal {
        Refusal { reason, text: text.into(), why: WhyRefused::of_reason(reason) }
    }

    /// What the client is told.
    pub fn message(self) -> Message {
        match self.why == WhyRefused::OutsideHours {
            true => Message::refused_now(self.text),
            false => Message::refused(self.reason, self.text),
        }
    }
}

/// How a session went.
#[derive(Default)]
pub(super) struct Ending {
    pub moved: Moved,
    pub failure: Option<Failure>,
    /// Whether the client of a tree has said that it needs no more.
    pub is_done: bool,
}

impl Ending {
    pub fn failed(failure: impl Into<Failure>) -> Ending {
        Ending { failure: Some(failure.into()), ..Ending::default() }
    }
}

/// A client whose request is understood and allowed.
pub(super) struct Client {
    /// This host, at the engine that serves it.
    pub host: Host,
    pub channel: ControlChannel,
    /// Whose rights it has: its own key, or that of whoever signed its ticket.
    pub key: Fingerprint,
    pub open: Open,
    /// The export that it uses.
    pub outlet: Arc<Outlet>,
    /// Beneath the export; `None` is all of it.
    pub path: Option<RelPath>,
    /// The names that it is told where it only sees which way leads on.
    pub above: Option<Vec<String>>,
    pub suite: Suite,
    /// The weight that it gets, in thousandths.
    pub weight_milli: u32,
    /// How its session uses the path.
    pub path_use: PathUse,
    /// Whether it may read what is there, also where it only writes.
    pub may_read: bool,
    /// Whether it may write there, also where it only reads.
    pub may_write: bool,
    pub deleting: Deleting,
    /// What it has of this host's capacity.
    pub allowance: Allowance,
    /// On whose account memory for its listing goes.
    pub holder: Holder,
    /// Its place among its key's sessions; whoever works for it holds it as well.
    pub seat: Arc<Seat>,
    /// The session as its operator hears of it.
    pub told: Arc<Told>,
}

/// Whether a client that changes a tree may remove and move things in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deleting {
    /// It may.
    Allowed,
    /// It may not.
    Refused,
}

/// What a request comes to.
struct Judged {
    place: Place,
    suite: Suite,
    weight_milli: u32,
    path_use: PathUse,
    holder: Holder,
    allowance: Allowance,
    groups: Vec<Arc<str>>,
    /// What lets it in, if that is not its own key.
    ticket: Option<Ticket>,
    /// Whose rights it has.
    key: Fingerprint,
}

/// Serves a client to its end. Returns whether it has kept a tree and said that it is done.
pub(super) async fn serve(
    shared: Arc<Shared>,
    channel: ControlChannel,
    open: Open,
    mut stop: Stop,
) -> bool {
    let (remote, peer) = (channel.ends().remote, channel.peer());
    let (mut request, mut whose) = (request(&open.verb, peer), Whose::Stranger);
    let judged = async {
        let ticket = ticket(&shared, &open, peer)?;
        // Whoever shows a ticket counts as its signer.
        let key = ticket.as_ref().map_or(peer, |ticket| ticket.signer);
        request.key = key;
        let judged = admit(&shared.keys, &stop.seat, key, right(&open.verb), |trust| {
            request.name = trust.keys.comment(&key).map(str::to_owned);
            whose = self::holder(trust, &key).whose();
            judge(&shared, trust, &open, key)
        });
        judged.await.map(|judged| Judged { ticket, key, ..judged })
    };
    let judged = tokio::select! {
        judged = judged => judged,
        why = stop.seat.told() => Err(Refusal::new(why.reason(), why.failure().text)),
    };
    let judged = match judged {
        Ok(judged) => stay(&shared, &stop.seat, &open.verb, judged).await,
        refused => refused,
    };
    let Judged { place, suite, weight_milli, path_use, holder, allowance, groups, ticket, key } =
        match judged {
            Ok(judged) => judged,
            Err(refusal) => {
                shared.tell(refused(&refusal, remote, whose, request));
                stop.seat.linger(channel.refuse_with(refusal.message())).await;
                return false;
            }
        };
    let Place { outlet, path, rights, above } = place;
    let (id, export) = (shared.clients.number(), outlet.name.clone());
    let visit = Visit { id, client: remote, whose, request, export, groups };
    let told = Told::begin(&shared, visit);
    let (host, seat) = (shared.host.least_busy(), Arc::clone(&stop.seat));
    let client = Client {
        host,
        channel,
        key,
        open,
        outlet,
        path,
        above,
        suite,
        weight_milli,
        path_use,
        may_read: rights.read,
        may_write: rights.write,
        deleting: if rights.delete { Deleting::Allowed } else { Deleting::Refused },
        allowance,
        holder,
        seat,
        told: Arc::clone(&told),
    };
    let ending = attend(shared, client, ticket, &mut stop).await;
    let is_done = ending.is_done;
    told.end(ending);
    is_done
}

/// Has a client that was let in stay for as long as it is allowed to, and counts its ticket.
async fn stay(
    shared: &Shared,
    seat: &Seat,
    verb: &Verb,
    judged: Judged,
) -> Result<Judged, Refusal> {
    stay_if_allowed(shared, seat, (judged.key, verb), &judged.place).await?;
    count_ticket(shared, &judged)?;
    Ok(judged)
}

/// The ticket that a client shows, if it is valid here. The client never falls back to its own
/// rights, which whoever had it fetch may lack.
fn ticket(shared: &Shared, open: &Open, peer: Fingerprint) -> Result<Option<Ticket>, Refusal> {
    let Some(bytes) = &open.ticket else {
        return match &open.verb {
            Verb::Relay { .. } => {
                Err(Refusal::new(Reason::NotAuthorised, "blocks are given on by ticket only"))
            }
            Verb::Get { .. }
            | Verb::Put { .. }
            | Verb::List { .. }
            | Verb::Stream { .. }
            | Verb::Tree { .. }
            | Verb::Fetch { .. } => Ok(None),
        };
    };
    let (purpose, path) = match &open.verb {
        Verb::Get { path } => (Purpose::Get, path),
        Verb::Relay { path, .. } => (Purpose::Relay, path),
        Verb::Put { .. }
        | Verb::List { .. }
        | Verb::Stream { .. }
        | Verb::Tree { .. }
        | Verb::Fetch { .. } => {
            return Err(bad_ticket(Reason::NotAuthorised, &"tickets are only for get"));
        }
    };
    let now_s = gtp_sys::clock::unix_seconds();
    let shown = Shown { server: shared.fingerprint, holder: peer, path, now_s };
    let ticket =
        Ticket::read_for(purpose, bytes).and_then(|ticket| ticket.judge(shown).map(|()| ticket));
    ticket.map(Some).map_err(|why| match why {
        // A fetch that runs for long gets new ones.
        BadTicket::Expired | BadTicket::NotYet => bad_ticket(Reason::Busy, &why),
        BadTicket::Malformed
        | BadTicket::Signature
        | BadTicket::OtherServer
        | BadTicket::OtherHolder
        | BadTicket::OtherObject
        | BadTicket::TooLong => bad_ticket(Reason::NotAuthorised, &why),
    })
}

/// Counts a session that has a place here by a ticket. A signer who is not on the list gives what
/// strangers have, so such a ticket is not counted.
fn count_ticket(shared: &Shared, judged: &Judged) -> Result<(), Refusal> {
    let Some(ticket) = judged.ticket.as_ref().filter(|_| judged.holder != Holder::Strangers) else {
        return Ok(());
    };
    let counted = shared.tickets.count(ticket, gtp_sys::clock::unix_seconds());
    counted.map_err(|why| match why {
        Spent::Used => bad_ticket(Reason::NotAuthorised, &why),
        Spent::Older | Spent::Full => bad_ticket(Reason::Busy, &why),
    })
}

fn bad_ticket(reason: Reason, why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(reason, format!("this ticket is not valid here: {why}"))
}

/// Has a client sent away once it may no longer do all that it began with, and looks whether that
/// is so already.
async fn stay_if_allowed(
    shared: &Shared,
    seat: &Seat,
    (key, verb): (Fingerprint, &Verb),
    place: &Place,
) -> Result<(), Refusal> {
    let (outlets, verb, given) = (Arc::clone(&shared.outlets), verb.clone(), place.given(verb));
    let may_stay = MayStay(Arc::new(move |trust| {
        let now = outlets.find(trust, &key, &verb);
        now.is_ok_and(|place| given.is_within(&place.given(&verb)))
    }));
    seat.set_may_stay(may_stay.clone());
    let trust = shared.keys.look().await.map_err(|_| no_list())?;
    let text = "the server's list of keys or its exports have just changed";
    match (may_stay.0)(&trust) {
        true => Ok(()),
        false => Err(Refusal::new(Reason::NotAuthorised, text)),
    }
}

/// That a client was refused what it asked for, for whoever operates the server.
fn refused(refusal: &Refusal, client: SocketAddr, whose: Whose, request: Request) -> ServerEvent {
    ServerEvent::Refused {
        client,
        whose,
        reason: refusal.why,
        request: Some(request),
        failure: Failure::new(FailureKind::Authentication, refusal.text.clone()),
    }
}

/// Lets a client have what it asked for. A ticket that has served its purpose opens no further
/// session.
async fn attend(
    shared: Arc<Shared>,
    client: Client,
    ticket: Option<Ticket>,
    stop: &mut Stop,
) -> Ending {
    // What sinks give on to each other ends with the put that it is for.
    if ticket.is_some() && matches!(client.open.verb, Verb::Get { .. }) {
        stop.end_within(shared.config.limits.by_ticket);
    }
    let ending = obey(&shared, client, stop).await;
    if let Some(ticket) = ticket.filter(|_| ending.failure.is_none()) {
        shared.tickets.close(&ticket);
    }
    ending
}

async fn obey(shared: &Arc<Shared>, mut client: Client, stop: &mut Stop) -> Ending {
    if let Some(names) = client.above.take() {
        return tokio::select! {
            ending = list::tell(shared, client, names) => ending,
            why = stop.told() => Ending::failed(why.failure()),
        };
    }
    match client.open.verb {
        Verb::Get { .. } => get::serve(shared, client, stop).await,
        Verb::Put { .. } => put::serve(shared, client, stop).await,
        Verb::Fetch { .. } => fetch::serve(shared, client, stop).await,
        Verb::Relay { .. } => relay::serve(shared, client, stop).await,
        Verb::List { .. } => tokio::select! {
            ending = list::serve(shared, client) => ending,
            why = stop.told() => Ending::failed(why.failure()),
        },
        Verb::Tree { .. } => tend::serve(shared, client, stop).await,
        Verb::Stream { .. } if client.open.verb.probed_path().is_some() => {
            probed::serve(shared, client, stop).await
        }
        // One that leads to no file was refused.
        Verb::Stream { .. } => streamed::serve(shared, client, stop).await,
    }
}

/// A request, as its operator hears of it; whose key that is is not known yet.
fn request(verb: &Verb, key: Fingerprint) -> Request {
    Request { key, name: None, verb: word(verb), path: printable(place(verb)) }
}

/// What in the export the client asks for; of a stream that is neither into a file nor a probe, its
/// service.
pub(super) fn place(verb: &Verb) -> &[u8] {
    verb.streamed_path().or_else(|| verb.probed_path()).unwrap_or_else(|| verb.path())
}

/// What a client must be allowed for this.
pub(super) fn right(verb: &Verb) -> Right {
    match verb {
        Verb::Stream { .. } if verb.streamed_path().is_some() => Right::Write,
        Verb::Stream { .. } if verb.probed_path().is_some() => Right::Read,
        Verb::Get { .. } | Verb::List { .. } | Verb::Tree { changes: false, .. } => Right::Read,
        Verb::Put { .. } | Verb::Fetch { .. } | Verb::Relay { .. } => Right::Write,
        Verb::Stream { .. } | Verb::Tree { changes: true, .. } => Right::Both,
    }
}

/// Says that there is no room.
pub(crate) fn no_room(full: Full) -> Refusal {
    let text = match full {
        Full::Server => "too many clients: try again later",
        Full::Neighbourhood => "too many clients from this address: try again later",
        Full::Key => "too many sessions of this key",
        Full::Gone => "too many connections: try again later",
    };
    Refusal::new(Reason::Busy, text)
}

/// Says that the server cannot use its list of keys. That is its operator's mistake, or a disk that
/// does not answer, and passes: the client comes again.
pub(crate) fn no_list() -> Refusal {
    let text = "the server cannot use its list of keys at present: try again later";
    Refusal { why: WhyRefused::NoList, ..Refusal::new(Reason::Busy, text) }
}

/// Says that nothing is there, or nothing that the client may see, for what this reason is told.
pub(super) fn missing(reason: Reason, text: String) -> Refusal {
    Refusal { why: WhyRefused::Missing, ..Refusal::new(reason, text) }
}

/// Says that a request cannot be one for what this host has.
pub(crate) fn no_such_request(text: impl Into<String>) -> Refusal {
    Refusal { why: WhyRefused::BadRequest, ..Refusal::new(Reason::Missing, text) }
}

/// Says that a key may not come at this hour.
pub(crate) fn outside(closed: &Closed, now: &LocalTime) -> Refusal {
    let text = format!("it is outside the hours of this key: {}", closed.words(now));
    Refusal { why: WhyRefused::OutsideHours, ..Refusal::new(Reason::NotAuthorised, text) }
}

/// Whether the client may do what it asks, and on what terms.
fn judge(
    shared: &Shared,
    trust: &ClientTrust,
    open: &Open,
    key: Fingerprint,
) -> Result<Judged, Refusal> {
    let access = trust.access(&key);
    judge_right(shared, access, &open.verb, key)?;
    let (ruled, now) = (shared.outlets.ruled(), LocalTime::now());
    ruled.open(trust, &key, &now).map_err(|closed| outside(&closed, &now))?;
    judge_law(shared, open)?;
    let suite = common_suite(open)?;
    let place = shared.outlets.find(trust, &key, &open.verb)?;
    judge_place(shared, open, place.path.as_ref())?;
    let weight_milli = weight(trust, &key, open.weight_milli);
    let holder = holder(trust, &key);
    let path_use = shared.terms().path.agreed(PathUse::of_code(open.path));
    let allowance = ruled.allowance(trust, &key, &now);
    let groups = ruled.groups(trust, &key);
    let ticket = None;
    Ok(Judged { place, suite, weight_milli, path_use, holder, allowance, groups, ticket, key })
}

/// Whether the server has what the client asks for, and its key the right to it.
fn judge_right(
    shared: &Shared,
    access: Access,
    verb: &Verb,
    key: Fingerprint,
) -> Result<(), Refusal> {
    let is_other = verb.streamed_path().or_else(|| verb.probed_path()).is_none();
    if matches!(verb, Verb::Stream { .. }) && is_other {
        return Err(no_such_request("this server has files, and no streams"));
    }
    if matches!(verb, Verb::Fetch { .. }) && shared.fetching.is_none() {
        let text = "this server does not fetch from other servers (serve --third-party)";
        return Err(Refusal::new(Reason::Permission, text));
    }
    let writes = match right(verb) {
        Right::Read | Right::None => false,
        Right::Write | Right::Both => true,
    };
    if writes && shared.terms().writing == Writing::Refused {
        return Err(Refusal::new(Reason::Permission, "this server only reads (serve --writable)"));
    }
    if right(verb).within(access) {
        return Ok(());
    }
    let needed = match right(verb) {
        Right::None | Right::Read => "the right to read",
        Right::Write => "the right to write",
        Right::Both => "both rights (read and write)",
    };
    let text = format!(
        "the key {key} may not do this here: it needs a line in the server's `authorized_keys`, \
         with {needed}"
    );
    Err(Refusal::new(Reason::NotAuthorised, text))
}

/// Whether the client may write where it asks to.
fn judge_place(shared: &Shared, open: &Open, path: Option<&RelPath>) -> Result<(), Refusal> {
    let Some(confines) = &shared.config.confines else { return Ok(()) };
    let fits = match open.verb {
        Verb::Stream { .. } if open.verb.probed_path().is_some() => true,
        Verb::Put { .. } | Verb::Fetch { .. } | Verb::Relay { .. } | Verb::Stream { .. } => {
            confines.allow(path)
        }
        Verb::Tree { changes, .. } => !changes,
        Verb::Get { .. } | Verb::List { .. } => true,
    };
    match fits {
        true => Ok(()),
        false => Err(Refusal::new(Reason::Permission, "nothing is to be written there")),
    }
}

/// Whether the server takes part in the control law that the client asks for.
fn judge_law(shared: &Shared, open: &Open) -> Result<(), Refusal> {
    let law = known_law(open.law);
    if matches!(law, Law::EndNode { .. }) && !shared.terms().end_node {
        return Err(unwilling("endnode", "--allow-control"));
    }
    let Some(alone) = law.alone() else { return Ok(()) };
    if alone == Alone::LambdaStream {
        let text = "the control law lambdastream is for streams, and this is a server of files";
        return Err(Refusal::new(Reason::Permission, text));
    }
    if matches!(open.verb, Verb::Stream { .. }) {
        let text = format!("the control law {} is for files, and this is a stream", alone.name());
        return Err(Refusal::new(Reason::Permission, text));
    }
    if !shared.terms().alone.contains(&alone) {
        return Err(not_allowed(alone));
    }
    // For `get` the client's host is the one that decides.
    let decides_here = law == Law::Gtp2004 && matches!(open.verb, Verb::Put { .. });
    if decides_here && shared.host.capacity_in().is_unlimited() {
        let text = "gtp2004 needs to know what this server can receive (serve --capacity-in)";
        return Err(Refusal::new(Reason::Permission, text));
    }
    Ok(())
}

/// That a control law by which one end decides alone is not taken part in.
pub(crate) fn not_allowed(alone: Alone) -> Refusal {
    // Who listens for a stream decides for it alone; a server does for all its clients.
    let option = if alone == Alone::LambdaStream { "--control" } else { "--allow-control" };
    unwilling(alone.name(), option)
}

/// That a control law is not taken part in, and the option that would change it.
pub(crate) fn unwilling(law: &str, option: &str) -> Refusal {
    let text = format!("this host takes no part in the control law {law} ({option} {law})");
    Refusal::new(Reason::Permission, text)
}

/// The cipher for a client.
pub(crate) fn common_suite(open: &Open) -> Result<Suite, Refusal> {
    Suite::choose(&open.suites.0, &Suite::by_preference())
        .ok_or_else(|| Refusal::new(Reason::Version, "no common cipher"))
}

fn word(verb: &Verb) -> &'static str {
    match verb {
        Verb::Get { .. } => "get",
        Verb::Put { .. } => "put",
        Verb::Fetch { .. } => "fetch",
        Verb::Relay { .. } => "relay",
        Verb::List { .. } => "list",
        Verb::Tree { .. } => "tree",
        Verb::Stream { .. } if verb.streamed_path().is_some() => "put",
        Verb::Stream { .. } if verb.probed_path().is_some() => "probe",
        Verb::Stream { .. } => "stream",
    }
}

impl Client {
    /// Gives the session its number and keys; the engine must know it before the client hears.
    pub fn session(&mut self, shared: &Shared) -> Result<SessionOpen, Failure> {
        let server_session = self.host.new_session_id();
        let secrets = self.channel.data_secrets(server_session, self.open.client_session)?;
        Ok(SessionOpen {
            socket: shared.socket,
            peer: shared.data_peer(self.channel.ends().remote),
            local_session: server_session,
            peer_session: self.open.client_session,
            keys: keys(self.suite, secrets),
            revision: self.channel.revision(),
            role: Role::Responder,
            law: known_law(self.open.law),
            // What the client asked for is its end's; a tree here makes it less.
            weights: Weights { own: 1.0, peer: f64::from(self.weight_milli) / 1000.0 },
            path: self.path_use,
            max_rate: shared.terms().max_rate,
            principal: self.holder.principal(),
            allowance: self.allowance,
            label: self.label(),
        })
    }

    /// How people name the session: by the client and by what is moved for it, the export first.
    fn label(&self) -> String {
        let path = match place(&self.open.verb) {
            b"" => "/".to_owned(),
            path => printable(path),
        };
        gtp_share::served(self.channel.ends().remote, &path)
    }

    /// The answer that opens the session.
    pub fn opened(
        &self,
        shared: &Shared,
        session: u32,
        object: Option<EntryKind>,
        (entries_total, content_bytes): (u64, u64),
    ) -> Message {
        let own = shared.config.interval.and_then(|span| u32::try_from(span.as_micros()).ok());
        let interval = own.or(self.open.interval_us).unwrap_or(DEFAULT_INTERVAL_US);
        Message::Opened(Opened {
            version: self.channel.revision().number(),
            server_session: session,
            suite: self.suite.code(),
            unit_payload: self.open.unit_payload_max.min(UNIT_JUMBO),
            udp_port: shared.port,
            object,
            entries_total,
            content_bytes,
            weight_milli: self.weight_milli,
            interval_us: interval.clamp(*INTERVAL_US.start(), *INTERVAL_US.end()),
            law: Some(self.open.law).filter(|law| law.is_alone()),
            path: self.path_use.code(),
            by_ticket: self.open.ticket.as_ref().map(|_| true),
            time_s: Some(gtp_sys::clock::unix_seconds()),
            relays: relay::relays(shared, &self.open),
        })
    }
}

/// Interval that is named when neither end says one: it then follows the round-trip time.
pub(crate) const DEFAULT_INTERVAL_US: u32 = 20_000;
