//! The end that listens: who may come, to what, and with how much memory.
//!
//! TCP and UDP share a port number, and a connection proves its key and says what it wants within
//! five seconds, as at a server of files. What it wants is then the application's to allow or
//! refuse. The window that a caller gets shrinks as memory is promised to others; one key, and
//! all strangers together, are promised at most a quarter.

use std::net::SocketAddr;
use std::sync::Arc;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_proto::limits::UNIT_ETHERNET;
use gtp_proto::{PathUse, Revision, Role, Weights};
use rustls::ServerConfig as TlsConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::silence::Silence;
use super::tend::{Held, Sessions, start};
use super::{Delivery, Ends, FrameStream, Stream};
use crate::control::{ControlChannel, ControlError};
use crate::crypto::Suite;
use crate::engine::{Allowance, FramesOut, Host, SessionOpen, SocketId, Spoken, frame_most};
use crate::flows::{Alone, Failure, FailureKind, keys, known_law};
use crate::identity::{Fingerprint, Identity};
use crate::messages::{
    Connected, INTERVAL_US, Law, Message, Open, Opened, Reason, STREAM_WINDOW, Verb, printable,
};
use crate::server::admission::{Narrowed, holder, weight};
use crate::server::budget::{Budget, Holder, Share};
use crate::server::clients::{Clients, Leave, Seat};
use crate::server::keys::{Keys, Overseen, admit, oversee};
use crate::server::occupancy::Right;
use crate::server::session::{
    DEFAULT_INTERVAL_US, Refusal, common_suite, no_such_request, not_allowed, outside, unwilling,
};
use crate::server::{ACCEPT_PAUSE, Admission, COMPLAINTS, Limits, bind_both, stopping};
use crate::tls::server_config;
use crate::trust::{ClientTrust, Hours, LocalTime};

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// Those on the list of keys, without a word behind the key that narrows it.
    Listed,
    /// Anybody.
    Anyone,
}

/// What streams to a host carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    /// Bytes, each of which arrives.
    #[default]
    Bytes,
    /// Frames, which arrive whole or not at all.
    Frames,
}

/// Where to listen, and for whom.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// Address for TCP and UDP; port 0 takes any that is free for both.
    pub listen: SocketAddr,
    /// The list of keys.
    pub admission: Admission,
    /// Who may connect.
    pub callers: Callers,
    /// How many may come.
    pub limits: Limits,
    /// A limit on each session's rate.
    pub max_rate: Rate,
    /// Control laws by which one end decides alone that callers may ask for; of them streams know
    /// LambdaStream.
    pub alone: Vec<Alone>,
    /// Whether callers may ask for the end-node law, which shares by sessions and knows no keys.
    pub end_node: bool,
    /// The control interval, said to clients.
    pub interval: Option<Span>,
    /// What its streams carry; who calls for the other is refused.
    pub carries: Carries,
    /// Units that either sink of a connection may ask for ahead, at most; see [`super::WINDOW`].
    pub window: u32,
    /// Memory that may be promised to all connections together.
    pub memory: Bytes,
}

/// Connections that wait to be accepted; more are told that the host is busy.
const BACKLOG: usize = 128;

/// A host that listens for streams. Dropping it ends the listening; connections go on.
pub struct StreamListener {
    waiting: mpsc::Receiver<Caller>,
    address: SocketAddr,
    _stop: watch::Sender<bool>,
    _task: JoinHandle<()>,
}

/// Somebody who wants to connect. Dropping it refuses.
pub struct Caller {
    channel: ControlChannel,
    shared: Arc<Shared>,
    wish: Wish,
    seat: Seat,
}

/// What a caller wants, as far as it is granted.
struct Wish {
    /// This host, at the engine that serves the caller.
    host: Host,
    service: Vec<u8>,
    /// Session ids of what the caller says and of what it hears: ours and its own.
    up: (u32, u32),
    down: (u32, u32),
    law: crate::messages::Law,
    suite: Suite,
    weight_milli: u32,
    holder: Holder,
    unit_payload: u16,
    interval_us: u32,
    window: u32,
    delivery: Option<Delivery>,
    memory: Share,
}

struct Shared {
    host: Host,
    socket: SocketId,
    port: u16,
    tls: Arc<TlsConfig>,
    config: ListenConfig,
    clients: Arc<Clients>,
    keys: Arc<Keys>,
    memory: Arc<Budget>,
}

impl StreamListener {
    /// Listens, on the current runtime.
    ///
    /// # Errors
    /// [`FailureKind::Other`] for an address that is not to be had,
    /// [`FailureKind::Authentication`] for a list of keys that cannot be read.
    pub async fn bind(
        host: Host,
        identity: &Identity,
        config: ListenConfig,
    ) -> Result<StreamListener, Failure> {
        let keys = Arc::new(Keys::read(config.admission.clone(), Narrowed::Void).await?);
        let bound = bind_both(&host, config.listen).await;
        let (listener, socket, address) = bound.map_err(|error| {
            let text = format!("cannot listen on {}: {error}", config.listen);
            Failure::new(FailureKind::Other, text)
        })?;
        let limits = config.limits.within(gtp_sys::descriptors::limit(), 0);
        let shared = Arc::new(Shared {
            host,
            socket,
            port: address.port(),
            tls: server_config(identity),
            clients: Arc::new(Clients::new(limits)),
            keys,
            memory: Budget::new(config.memory),
            config,
        });
        let (waiting_in, waiting) = mpsc::channel(BACKLOG);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(listen(listener, shared, waiting_in, stopped));
        Ok(StreamListener { waiting, address, _stop: stop, _task: task })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next caller; `None` when the listener has ended. Safe to cancel.
    pub async fn next(&mut self) -> Option<Caller> {
        self.waiting.recv().await
    }
}

async fn listen(
    listener: TcpListener,
    shared: Arc<Shared>,
    waiting: mpsc::Sender<Caller>,
    mut stop: watch::Receiver<bool>,
) {
    let mut openings = JoinSet::new();
    let (keys, clients) = (Arc::clone(&shared.keys), Arc::clone(&shared.clients));
    let present = Arc::clone(&clients);
    let overseen = move |overseen| hear(&present, overseen);
    tokio::spawn(oversee(keys, clients, Arc::default(), stop.clone(), overseen));
    let mut complaints = COMPLAINTS;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let (seat, _) = shared.clients.arrive(from);
                    openings.spawn(meet(Arc::clone(&shared), stream, seat, waiting.clone()));
                }
                Err(error) => {
                    if complaints.take(shared.host.clock().now()) {
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = openings.join_next() => {}
            () = stopping(&mut stop) => return,
        }
    }
}

/// Hears what a caller wants, and passes it on.
async fn meet(shared: Arc<Shared>, stream: TcpStream, seat: Seat, waiting: mpsc::Sender<Caller>) {
    let met = tokio::select! {
        met = ControlChannel::accept(stream, &shared.tls) => met,
        _ = seat.told() => return,
    };
    let (mut channel, open) = match met {
        Ok(met) => met,
        Err(error) => {
            tracing::debug!(%error, "no session");
            return;
        }
    };
    let key = channel.peer();
    let right = match shared.config.callers {
        Callers::Listed => Right::Both,
        Callers::Anyone => Right::None,
    };
    let judged = admit(&shared.keys, &seat, key, right, |trust| judge(&shared, trust, open, key));
    let wish = match judged.await {
        Ok(judged) => judged,
        Err(refusal) => return seat.linger(channel.refuse_with(refusal.message())).await,
    };
    let opened = opened(&shared, &wish, channel.revision());
    if channel.send(&opened).await.is_err() {
        return;
    }
    let caller = Caller { channel, shared, wish, seat };
    if let Err(mpsc::error::TrySendError::Full(caller)) = waiting.try_send(caller) {
        caller.refuse(Reason::Busy, "too many connections wait here").await;
    }
}

/// Sends those away whose hours are over. Streams have no events of their own: what matters of the
/// list of keys goes to the log.
fn hear(clients: &Clients, overseen: Overseen) {
    match overseen {
        Overseen::Looked(trust) if trust.keys.have_hours() => {
            let now = LocalTime::now();
            clients.send_away(|client| {
                let hours = trust.keys.hours(&client.key);
                Hours::all(&[&hours], &now).err().map(Leave::Closed)
            });
        }
        Overseen::Unreadable(failure) => {
            tracing::warn!(%failure, "callers are refused, as the list of keys cannot be used");
        }
        Overseen::Back(keys) => tracing::warn!(keys, "the list of keys can be used again"),
        Overseen::Read(_) | Overseen::Looked(_) | Overseen::Tick => {}
    }
}

/// Whether somebody may connect, and on what terms.
fn judge(
    shared: &Shared,
    trust: &ClientTrust,
    open: Open,
    key: Fingerprint,
) -> Result<Wish, Refusal> {
    judge_law(shared, open.law)?;
    let suite = common_suite(&open)?;
    let Verb::Stream { service, down_session, window, delivery } = open.verb else {
        return Err(no_such_request("this host has streams, and no files"));
    };
    judge_delivery(shared.config.carries, delivery)?;
    let now = LocalTime::now();
    Hours::all(&[&trust.keys.hours(&key)], &now).map_err(|closed| outside(&closed, &now))?;
    let listed = trust.keys.access(&key);
    if shared.config.callers == Callers::Listed && !(listed.read && listed.write) {
        let text = format!(
            "the key {key} may not call here: it needs a line in this host's `authorized_keys`, \
             with both rights (read and write)"
        );
        return Err(Refusal::new(Reason::NotAuthorised, text));
    }
    let unit_payload = open.unit_payload_max.min(UNIT_ETHERNET);
    let holder = holder(trust, &key);
    let mut memory = shared.memory.share(holder);
    let wanted = window.min(shared.config.window);
    let promised = promise(&mut memory, wanted, |window| held(window, unit_payload, delivery));
    let window = promised
        .ok_or_else(|| Refusal::new(Reason::Busy, "the host's memory for streams is promised"))?;
    let own = shared.config.interval.and_then(|span| u32::try_from(span.as_micros()).ok());
    let interval = own.or(open.interval_us).unwrap_or(DEFAULT_INTERVAL_US);
    let host = shared.host.least_busy();
    Ok(Wish {
        service,
        up: (host.new_session_id(), open.client_session),
        down: (host.new_session_id(), down_session),
        host,
        law: open.law,
        suite,
        weight_milli: weight(trust, &key, open.weight_milli),
        holder,
        unit_payload,
        interval_us: interval.clamp(*INTERVAL_US.start(), *INTERVAL_US.end()),
        window,
        delivery,
        memory,
    })
}

/// Whether a caller may ask for this control law.
fn judge_law(shared: &Shared, law: Law) -> Result<(), Refusal> {
    let known = known_law(law);
    if matches!(known, crate::flows::Law::EndNode { .. }) && !shared.config.end_node {
        return Err(unwilling("endnode", "--control"));
    }
    match known.alone() {
        None => Ok(()),
        Some(Alone::LambdaStream) if shared.config.alone.contains(&Alone::LambdaStream) => Ok(()),
        Some(Alone::LambdaStream) => Err(not_allowed(Alone::LambdaStream)),
        Some(alone) => {
            let name = alone.name();
            let text = format!("the control law {name} is for files, and this host has streams");
            Err(Refusal::new(Reason::Permission, text))
        }
    }
}

/// Whether a caller asks for what the host has, bytes or frames.
fn judge_delivery(has: Carries, asked: Option<Delivery>) -> Result<(), Refusal> {
    let text = match (has, asked) {
        (Carries::Bytes, None) | (Carries::Frames, Some(_)) => return Ok(()),
        (Carries::Bytes, Some(_)) => {
            "this host has streams of bytes, none of frames (--unreliable)"
        }
        (Carries::Frames, None) => "this host has streams of frames (--unreliable), none of bytes",
    };
    Err(no_such_request(text))
}

/// A caller is promised at most this part of what is left for its holder, so that later callers
/// find room as well: 64 connections of one key, each asking for the usual window, have
/// from 16,384 units down to 512.
const PART_OF_LEFT: u64 = 16;

/// The largest window, at most the wanted one and halved as often as need be, for which memory is
/// promised now; `None` where there is not enough for the smallest.
pub(crate) fn promise(memory: &mut Share, wanted: u32, held: impl Fn(u32) -> u64) -> Option<u32> {
    let least = *STREAM_WINDOW.start();
    let part = memory.left() / PART_OF_LEFT;
    let mut window = wanted.max(least);
    while window > least && (held(window) > part || !memory.take(held(window))) {
        window = (window / 2).max(least);
    }
    (window > least || memory.take(held(least))).then_some(window)
}

/// What a listener's memory must be for so many connections of one holder to be promised so much
/// each.
pub(crate) fn memory_for(connections: u64, each: u64) -> u64 {
    Budget::with_part((connections.saturating_sub(1) + PART_OF_LEFT).saturating_mul(each))
}

/// Bytes that a connection may hold here: its window at either ring, and what waits to be sent. A
/// frame that a unit of is kept is kept whole, and one that is put together may take room anew.
pub(crate) fn held(window: u32, unit_payload: u16, delivery: Option<Delivery>) -> u64 {
    let rings = 2 * u64::from(window) * u64::from(unit_payload);
    match delivery {
        None => rings + Spoken::unsent_most(window),
        Some(_) => rings + FramesOut::unsent_most(window) + 2 * frame_most(window) as u64,
    }
}

fn opened(shared: &Shared, wish: &Wish, revision: Revision) -> Message {
    Message::Opened(Opened {
        version: revision.number(),
        server_session: wish.up.0,
        suite: wish.suite.code(),
        unit_payload: wish.unit_payload,
        udp_port: shared.port,
        object: None,
        entries_total: 0,
        content_bytes: 0,
        weight_milli: wish.weight_milli,
        interval_us: wish.interval_us,
        law: Some(wish.law).filter(|law| law.is_alone()),
        path: None,
        by_ticket: None,
        relays: None,
        time_s: None,
    })
}

impl Wish {
    /// One direction's session, at this end.
    fn session(
        &self,
        shared: &Shared,
        channel: &mut ControlChannel,
        (own, peer): (u32, u32),
    ) -> Result<SessionOpen, ControlError> {
        let remote = channel.ends().remote;
        Ok(SessionOpen {
            socket: shared.socket,
            peer: remote,
            local_session: own,
            peer_session: peer,
            keys: keys(self.suite, channel.data_secrets(own, peer)?),
            revision: channel.revision(),
            role: Role::Responder,
            law: known_law(self.law),
            weights: Weights { own: 1.0, peer: f64::from(self.weight_milli) / 1000.0 },
            path: PathUse::ONE_FLOW,
            max_rate: shared.config.max_rate,
            principal: self.holder.principal(),
            allowance: Allowance::default(),
            label: remote.to_string(),
        })
    }
}

impl Caller {
    /// What the caller wants to be connected to, as it named it.
    pub fn service(&self) -> &[u8] {
        &self.wish.service
    }

    /// The same for people.
    pub fn shown_service(&self) -> String {
        printable(&self.wish.service)
    }

    /// The caller's key, which it has proved to hold.
    pub fn peer(&self) -> Fingerprint {
        self.channel.peer()
    }

    /// The caller's address.
    pub fn remote(&self) -> SocketAddr {
        self.channel.ends().remote
    }

    /// The address of this host that was called.
    pub fn local(&self) -> SocketAddr {
        self.channel.ends().local
    }

    /// How the caller wants frames delivered; none if it wants a stream of bytes.
    pub fn delivery(&self) -> Option<Delivery> {
        self.wish.delivery
    }

    /// Connects the caller to a stream of bytes.
    ///
    /// # Errors
    /// When the caller's session ids cannot be used, or it wants frames.
    pub fn accept(self) -> Result<Stream, Failure> {
        match self.wish.delivery {
            None => Ok(self.open()?.of_bytes()),
            Some(_) => Err(Failure::new(FailureKind::Other, "the caller wants frames")),
        }
    }

    /// Connects the caller to a stream of frames.
    ///
    /// # Errors
    /// When the caller's session ids cannot be used, or it wants bytes.
    pub fn accept_frames(self) -> Result<FrameStream, Failure> {
        match self.wish.delivery {
            Some(_) => Ok(self.open()?.of_frames()),
            None => Err(Failure::new(FailureKind::Other, "the caller wants bytes")),
        }
    }

    fn open(self) -> Result<Ends, Failure> {
        let Caller { mut channel, shared, wish, seat } = self;
        let hears = wish.session(&shared, &mut channel, wish.up)?;
        let says = wish.session(&shared, &mut channel, wish.down)?;
        let (down_session, window, delivery) = (wish.down.0, wish.window, wish.delivery);
        let greeting = Some(Message::Connected(Connected { down_session, window, delivery }));
        let (carried, data_port) = (false, 0);
        let patience = Span::ZERO;
        let sessions =
            Sessions { says, hears, window, delivery, patience, greeting, carried, data_port };
        let silence = Silence::of_host(channel.revision());
        let held = Held::new(Arc::new(seat), shared.host.clock(), wish.memory);
        Ok(start(&wish.host, channel, sessions, silence, Some(held)))
    }

    /// Tells the caller no, and why.
    pub async fn refuse(mut self, reason: Reason, text: impl Into<String>) {
        if self.channel.send(&Message::fault(reason, text)).await.is_ok() {
            self.channel.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_connections_of_one_key_as_are_let_in_find_memory_for_their_windows() {
        let budget = Budget::new(Bytes(crate::messages::STREAMS_MEMORY));
        let holder = Holder::Listed(Identity::generate().fingerprint());
        let mut shares: Vec<Share> =
            (0..Limits::default().sessions_per_key).map(|_| budget.share(holder)).collect();
        let held = |window| held(window, 1_408, None);
        let windows: Vec<_> =
            shares.iter_mut().map(|share| promise(share, super::super::WINDOW, held)).collect();
        assert_eq!(windows[0], Some(super::super::WINDOW));
        assert_eq!(windows.last(), Some(&Some(512)), "{windows:?}");
        assert!(windows.is_sorted_by(|one, next| one >= next));
    }

    #[test]
    fn what_a_connection_may_hold_counts_what_waits_to_be_sent() {
        assert_eq!(held(16_384, 1_400, None), 2 * 16_384 * 1_400 + (2 << 20));
        assert_eq!(held(64, 1_400, None), 3 * 64 * 1_400);
        let frames = held(64, 1_400, Some(Delivery::Frames));
        assert_eq!(frames, 3 * 64 * 1_400 + 64 * 1_175);
    }
}
