//! The end that listens: lets clients fetch from, list, and perhaps write to one directory.
//!
//! TCP and UDP share a port number. A connection proves its key and says what it wants within
//! five seconds, or it is gone; only then is anything looked up, and every session is known to
//! the engine before the client hears of it. Nothing outside the exported directory is reached.

pub(crate) mod admission;
mod bound;
pub(crate) mod budget;
mod charge;
pub(crate) mod clients;
mod confines;
mod counting;
mod event;
mod fetch;
mod get;
mod ground;
mod group_shares;
mod key_file;
pub(crate) mod keys;
mod list;
mod objects;
pub(crate) mod occupancy;
mod outlet;
mod overlaps;
pub(crate) mod path_questions;
mod place;
mod probed;
mod pulse;
mod put;
mod quota;
mod reachable;
mod relay;
mod renewed;
mod room;
mod rules;
mod scan;
pub(crate) mod session;
mod sharing;
mod spot;
mod steps;
mod stream_room;
mod streamed;
mod tend;
mod told;
mod turned_away;
mod used_tickets;
mod vouched;
mod walks;
mod watched;
mod writers;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gtp_alloc::{Bucket, Bytes, Rate, Span};
use gtp_proto::PathUse;
use gtp_store::replica::Replica;
use gtp_store::{Chosen, KnownRoots, SinkOptions};
use rustls::ServerConfig as TlsConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};

pub use admission::{Admission, Limits};
pub use confines::Confines;
pub use event::{
    Change, Changes, Moved, Request, Room, ServerEvent, SessionId, Visit, Whose, WhyRefused,
};
pub use group_shares::{GroupShare, KeyPart, KeyTerms, SHARES_AT_MOST, ShareAt};
pub use objects::Objects;
pub use place::listen_address;
pub use pulse::{Asked, Asker, Pulse, questions};
pub use quota::{Quota, QuotaOf, QuotaStands, Quotas};
pub use reachable::{BadReach, Reach};
pub use rules::{
    BadExports, EXPORTS_MOST, ExportRule, Exports, GROUPS_MOST, GroupRule, KEYS_OF_GROUP_MOST,
    Rights, Visibility, Who,
};
pub use told::{Pace, Running, Sessions};
pub use vouched::{Vouched, Voucher};

use crate::control::ControlChannel;
use crate::engine::{Host, SocketId};
use crate::flows::{Alone, Failure, FailureKind, has_settled};
use crate::identity::{Fingerprint, Identity};
use crate::messages::STREAMS_MEMORY;
use crate::tls::server_config;
use crate::trust::{ClientTrust, LocalTime};
use admission::Narrowed;
pub(crate) use admission::listing_bytes;
use bound::take_both;
pub(crate) use bound::{bind_both, without_v6};
use budget::Budget;
use clients::{Clients, Leave, Seat};
use fetch::Fetching;
use keys::{Keys, Overseen, oversee};
use outlet::Outlets;
use probed::Probes;
use relay::Shelves;
use sharing::Sharing;
use steps::Steps;
use used_tickets::UsedTickets;

/// Whether clients may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// Nobody may.
    Refused,
    /// Those may whom the list of keys lets.
    Allowed,
}

/// What a server exports.
#[derive(Clone, Debug)]
pub enum Offer {
    /// One directory or file, at which every path begins, to groups of keys with these shares and
    /// hours. Places and quotas of groups are in exports, and there are none.
    One(PathBuf, BTreeMap<String, GroupRule>),
    /// Several, each with a name, with which paths begin.
    Several(Exports),
}

/// What a server offers, to whom, and where.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// What is exported.
    pub offer: Offer,
    /// Address for TCP and UDP; port 0 takes any that is free for both.
    pub listen: SocketAddr,
    /// What clients are told that the exported directory is called, with a slash at its end.
    pub called: String,
    /// Who may come.
    pub admission: Admission,
    /// Whether clients may write.
    pub writing: Writing,
    /// How many may come.
    pub limits: Limits,
    /// A limit on each session's rate.
    pub max_rate: Rate,
    /// How sessions may use their paths, if their clients ask for it.
    pub path: PathUse,
    /// Control laws by which one end decides alone that clients may ask for.
    pub alone: Vec<Alone>,
    /// Whether clients may ask for the end-node law, which shares by sessions and knows no keys.
    pub end_node: bool,
    /// The control interval, said to clients.
    pub interval: Option<Span>,
    /// How files that clients send are treated.
    pub sink_options: SinkOptions,
    /// Whether each change that a client makes to the tree is an event.
    pub changes: Changes,
    /// What clients may write; all that is exported if not said.
    pub confines: Option<Confines>,
    /// What the listing of all that is exported has directly beneath it; everything if not said.
    pub chosen: Option<Arc<Chosen>>,
    /// The directory in which clients may keep old versions of files, outside the trees that they
    /// change. It is opened once for all sessions. `None` allows no such directory.
    pub old_versions: Option<Arc<Replica>>,
    /// The address that sends the datagrams of clients whose connections arrive from the loopback
    /// because a program on this machine, such as ssh, forwards them.
    pub data_from: Option<IpAddr>,
    /// Where this server fetches from for clients that may write and ask for it; nowhere if empty.
    pub third_party: Vec<Reach>,
}

impl ServeConfig {
    /// What the exported directory is called if nothing else is said.
    pub const CALLED: &str = "the server's /";

    /// A server of `root` at `listen` for those whom `admission` lets in. They may read, within the
    /// usual limits.
    pub fn new(root: PathBuf, listen: SocketAddr, admission: Admission) -> ServeConfig {
        ServeConfig {
            offer: Offer::One(root, BTreeMap::new()),
            listen,
            called: ServeConfig::CALLED.to_owned(),
            admission,
            writing: Writing::Refused,
            limits: Limits::default(),
            max_rate: Rate::UNLIMITED,
            path: PathUse::default(),
            alone: Vec::new(),
            end_node: false,
            interval: None,
            sink_options: SinkOptions::default(),
            changes: Changes::Untold,
            confines: None,
            chosen: None,
            old_versions: None,
            data_from: None,
            third_party: Vec::new(),
        }
    }
}

/// What may change while a server runs. Sessions keep the terms that they began with.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Whether clients may write.
    pub writing: Writing,
    /// A limit on each session's rate.
    pub max_rate: Rate,
    /// How sessions may use their paths, if their clients ask for it.
    pub path: PathUse,
    /// Control laws by which one end decides alone that clients may ask for.
    pub alone: Vec<Alone>,
    /// Whether clients may ask for the end-node law, which shares by sessions and knows no keys.
    pub end_node: bool,
}

/// Sockets that were opened for a server by another process.
#[derive(Debug)]
pub struct Sockets {
    /// It listens.
    pub tcp: std::net::TcpListener,
    /// It is bound to the same port.
    pub udp: std::net::UdpSocket,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    fingerprint: Fingerprint,
    reload: Arc<Notify>,
    drain: Arc<Notify>,
    beats: Asked,
    pulse: Pulse,
    voucher: Voucher,
    vouched: mpsc::Receiver<Vouched>,
}

/// Where the exports of a server that runs are changed.
#[derive(Clone)]
pub struct Offers(Arc<Outlets>);

impl std::fmt::Debug for Offers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Offers")
    }
}

impl Offers {
    /// Puts other exports in place of those of a server that has several, or other groups in place
    /// of those of a server with one directory. Sessions that use an export which stays go on;
    /// others end once the list of keys is read again.
    ///
    /// # Errors
    /// [`BadExports`]; the exports and groups then stay as they were.
    pub fn change(&self, exports: Exports) -> Result<(), BadExports> {
        exports.check()?;
        self.0.replace(exports)
    }

    /// What lies there of what the quotas allow.
    pub fn quotas(&self) -> Quotas {
        self.0.quotas()
    }

    /// Takes what is there now at the exports' paths for what is meant, unless a file system was
    /// mounted there and is not now. Blocks for two seconds at most; tells the log what cannot be
    /// opened.
    pub fn look_anew(&self) {
        self.0.look_anew();
    }
}

/// The exports that a description names.
fn outlets(config: &ServeConfig) -> Result<Outlets, Failure> {
    let (listings, called) = (Budget::new(config.limits.listings), config.called.as_str());
    let bad = |why: BadExports| Failure::new(FailureKind::Usage, why.to_string());
    match &config.offer {
        Offer::One(root, groups) => {
            let rules = Exports { groups: groups.clone(), ..Exports::default() };
            rules.check().map_err(bad)?;
            let one = Outlets::one(root.clone(), called, config.chosen.clone(), listings)?;
            one.replace(rules).map_err(bad)?;
            Ok(one)
        }
        Offer::Several(exports) => {
            exports.check().map_err(bad)?;
            Ok(Outlets::several(exports.clone(), called, listings)?)
        }
    }
}

/// What lines with places mean for what is exported.
fn narrowed(offer: &Offer) -> Narrowed {
    match offer {
        Offer::One(..) => Narrowed::Void,
        Offer::Several(_) => Narrowed::ToPlaces,
    }
}

/// What all sessions of a server share.
pub(crate) struct Shared {
    host: Host,
    socket: SocketId,
    port: u16,
    tls: Arc<TlsConfig>,
    config: ServeConfig,
    clients: Arc<Clients>,
    keys: Arc<Keys>,
    outlets: Arc<Outlets>,
    sharing: Sharing,
    /// Memory for streams that are written to files.
    streams: Arc<Budget>,
    /// Whose probes run.
    probes: Probes,
    roots: Arc<KnownRoots>,
    terms: Arc<watch::Sender<Terms>>,
    events: mpsc::Sender<ServerEvent>,
    /// Events that were dropped because they were not taken in time.
    missed: AtomicU64,
    /// Pages of changes that may wait among the events.
    rooms: Arc<Semaphore>,
    /// Changes that are being carried out.
    steps: Steps,
    sessions: Sessions,
    /// This server's key, as clients see it.
    fingerprint: Fingerprint,
    tickets: UsedTickets,
    /// What fetches for clients, if anything does.
    fetching: Option<Fetching>,
    /// What sinks of clients' objects give on to each other.
    shelves: Shelves,
}

/// What ends a client's session from outside.
pub(crate) struct Stop {
    server: watch::Receiver<bool>,
    seat: Arc<Seat>,
    /// Ends with the time of a session that has one.
    over: Option<Pin<Box<Sleep>>>,
}

impl Stop {
    fn of(server: watch::Receiver<bool>, seat: &Arc<Seat>) -> Stop {
        Stop { server, seat: Arc::clone(seat), over: None }
    }

    /// Has the session end after this time from now on.
    pub fn end_within(&mut self, time: Duration) {
        self.over = Some(Box::pin(sleep(time)));
    }

    /// Waits until the session must end. Safe to cancel.
    pub async fn told(&mut self) -> Leave {
        let Stop { server, seat, over } = self;
        let over = async {
            match over {
                Some(over) => over.as_mut().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stopping(server) => Leave::Stopping,
            why = seat.told() => why,
            () = over => Leave::TicketOver,
        }
    }
}

/// Events that wait for the server's caller; further ones are counted and reported as
/// [`ServerEvent::Missed`].
pub const EVENTS: usize = 1_024;

impl Server {
    /// Opens the export and both sockets on this host.
    ///
    /// # Errors
    /// [`FailureKind::Missing`] or [`FailureKind::Destination`] for the directory,
    /// [`FailureKind::Other`] for an address that is not to be had.
    pub async fn bind(
        host: Host,
        identity: &Identity,
        config: ServeConfig,
        events: mpsc::Sender<ServerEvent>,
    ) -> Result<Server, Failure> {
        let outlets = outlets(&config)?;
        let keys = Keys::read(config.admission.clone(), narrowed(&config.offer)).await?;
        let bound = bind_both(&host, config.listen).await.map_err(|error| {
            let text = format!(
                "cannot listen on {}: {error}; take another with --listen ADDR:PORT",
                config.listen
            );
            Failure::new(FailureKind::Other, text)
        })?;
        Ok(Server::of(host, identity, (config, outlets), events, keys, bound))
    }

    /// Opens the export, and serves on sockets that another process has bound. The address of the
    /// configuration does not matter then, and one engine has all sessions.
    ///
    /// # Errors
    /// As [`Server::bind`], and [`FailureKind::Other`] for sockets that do not fit.
    pub async fn take_over(
        host: Host,
        identity: &Identity,
        config: ServeConfig,
        events: mpsc::Sender<ServerEvent>,
        sockets: Sockets,
    ) -> Result<Server, Failure> {
        let outlets = outlets(&config)?;
        let keys = Keys::read(config.admission.clone(), narrowed(&config.offer)).await?;
        let bound = take_both(&host, sockets).map_err(|error| {
            let text = format!("the sockets that were given cannot be used: {error}");
            Failure::new(FailureKind::Other, text)
        })?;
        Ok(Server::of(host, identity, (config, outlets), events, keys, bound))
    }

    fn of(
        host: Host,
        identity: &Identity,
        (config, outlets): (ServeConfig, Outlets),
        events: mpsc::Sender<ServerEvent>,
        keys: Keys,
        (listener, socket, address): (TcpListener, SocketId, SocketAddr),
    ) -> Server {
        let ServeConfig { writing, max_rate, path, end_node, .. } = config;
        let terms = Terms { writing, max_rate, path, alone: config.alone.clone(), end_node };
        let descriptors = gtp_sys::descriptors::limit();
        let limits = config.limits.within(descriptors, fetch::descriptors(&config, descriptors));
        let clients = Arc::new(Clients::new(limits));
        let fetching = Fetching::of(&host, identity, &config, descriptors);
        let shared = Shared {
            host,
            socket,
            port: address.port(),
            tls: server_config(identity),
            config,
            clients,
            keys: Arc::new(keys),
            outlets: Arc::new(outlets),
            sharing: Sharing::default(),
            streams: Budget::new(Bytes(STREAMS_MEMORY)),
            probes: Probes::default(),
            roots: Arc::new(KnownRoots::new(ROOTS_KEPT, has_settled)),
            terms: Arc::new(watch::Sender::new(terms)),
            events,
            missed: AtomicU64::new(0),
            rooms: Arc::new(Semaphore::new(CHANGES_WAITING)),
            steps: Steps::default(),
            sessions: Sessions::default(),
            fingerprint: identity.fingerprint(),
            tickets: UsedTickets::since(gtp_sys::clock::unix_seconds()),
            fetching,
            shelves: Shelves::default(),
        };
        let (shared, reload, drain) = (Arc::new(shared), Arc::default(), Arc::default());
        let fingerprint = identity.fingerprint();
        let (pulse, beats) = pulse::of_host(&shared.host);
        let (voucher, vouched) = Voucher::new();
        Server {
            listener,
            address,
            shared,
            fingerprint,
            reload,
            drain,
            beats,
            pulse,
            voucher,
            vouched,
        }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The key that clients see.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// A notification here makes the server read its list of keys again.
    pub fn reload(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// A notification here makes the server take no more clients, and end when the last is gone.
    pub fn drain(&self) -> Arc<Notify> {
        Arc::clone(&self.drain)
    }

    /// Says whether what serves clients goes on: what accepts them, and the host's engines.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// The sessions that it has.
    pub fn sessions(&self) -> Sessions {
        self.shared.sessions.clone()
    }

    /// Gives the server clients for which somebody vouches.
    pub fn voucher(&self) -> Voucher {
        self.voucher.clone()
    }

    /// Where its exports are changed.
    pub fn offers(&self) -> Offers {
        Offers(Arc::clone(&self.shared.outlets))
    }

    /// Where the terms of the sessions to come are changed.
    pub fn terms(&self) -> Arc<watch::Sender<Terms>> {
        Arc::clone(&self.shared.terms)
    }

    /// Serves until `stop` becomes true or its sender is gone; then clients are told, and what
    /// they sent is kept. If it is told to drain, it ends when its clients are gone.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut sessions = JoinSet::new();
        tokio::spawn(self.overseeing(stop.clone()));
        self.accept(&mut sessions, &mut stop).await;
        let Server { listener, shared, mut beats, .. } = self;
        drop(listener);
        let steps = &shared.steps;
        let ending = async {
            while sessions.join_next().await.is_some() {}
            steps.gone().await;
        };
        let mut ending = std::pin::pin!(ending);
        loop {
            tokio::select! {
                () = &mut ending => return,
                () = beats.answer() => {}
                () = stopping(&mut stop) => break,
            }
        }
        steps.stop();
        // A client that does not listen must not keep the server, nor a disk that stands still.
        if tokio::time::timeout(FAREWELL_SPAN, ending).await.is_err() && steps.begin().is_none() {
            tracing::warn!("a change goes on that nobody will hear of: it takes too long");
        }
    }

    /// Takes clients in until it is told to stop or to drain.
    async fn accept(&mut self, sessions: &mut JoinSet<()>, stop: &mut watch::Receiver<bool>) {
        let told = stop.clone();
        let mut complaints = COMPLAINTS;
        loop {
            let arrivals = async {
                self.shared.clients.settled().await;
                self.listener.accept().await
            };
            tokio::select! {
                accepted = arrivals => match accepted {
                    Ok((stream, from)) => self.admit(sessions, stream, from, told.clone()),
                    // Out of descriptors: those who are here go on, and leave in time.
                    Err(error) => {
                        if complaints.take(self.shared.host.clock().now()) {
                            tracing::warn!(%error, "a connection could not be accepted");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(vouched) = self.vouched.recv() => {
                    sessions.spawn(vouched.serve(Arc::clone(&self.shared), told.clone()));
                }
                Some(_) = sessions.join_next() => {}
                () = self.beats.answer() => {}
                () = self.drain.notified() => return,
                () = stopping(stop) => return,
            }
        }
    }

    /// Watches the clients and the list of keys.
    fn overseeing(&self, stop: watch::Receiver<bool>) -> impl Future<Output = ()> + use<> {
        let shared = Arc::clone(&self.shared);
        let (keys, clients) = (Arc::clone(&shared.keys), Arc::clone(&shared.clients));
        oversee(keys, clients, Arc::clone(&self.reload), stop, move |overseen| match overseen {
            Overseen::Read(keys) => shared.tell(ServerEvent::KeysRead { keys }),
            Overseen::Unreadable(failure) => shared.tell(ServerEvent::KeysUnreadable { failure }),
            Overseen::Back(keys) => shared.tell(ServerEvent::KeysUsable { keys }),
            Overseen::Looked(trust) => shared.share_out(&trust),
            Overseen::Tick => {
                shared.clients.wake_dozing(shared.host.clock().now());
                shared.tell_missed();
            }
        })
    }

    fn admit(
        &self,
        sessions: &mut JoinSet<()>,
        stream: TcpStream,
        from: SocketAddr,
        server: watch::Receiver<bool>,
    ) {
        let shared = Arc::clone(&self.shared);
        let (seat, evicted) = shared.clients.arrive(from);
        if let Some(client) = evicted
            // To answer a flood would feed it.
            && let Some(more) = shared.clients.turned_away(client, shared.host.clock().now())
        {
            shared.tell(ServerEvent::TurnedAway { client, more });
        }
        sessions.spawn(meet(shared, stream, from, (seat, server)));
    }
}

/// Meets a client that has come, and serves it if it says what it wants before it is to go.
async fn meet(
    shared: Arc<Shared>,
    stream: TcpStream,
    from: SocketAddr,
    (seat, mut server): (Seat, watch::Receiver<bool>),
) {
    let met = tokio::select! {
        met = ControlChannel::accept(stream, &shared.tls) => met,
        _ = seat.told() => return,
        // One that has said nothing yet need not hear of it.
        () = stopping(&mut server) => return,
    };
    match met {
        Ok((channel, open)) => {
            let seat = Arc::new(seat);
            let stop = Stop::of(server, &seat);
            session::serve(shared, channel, open, stop).await;
            seat.is_gone();
        }
        Err(error) => {
            let reason = WhyRefused::of_opening(&error);
            shared.tell(ServerEvent::Refused {
                client: from,
                whose: Whose::Stranger,
                reason,
                request: None,
                failure: Failure::from(error),
            });
        }
    }
}

impl Shared {
    /// The address from which a client at `remote` sends its datagrams.
    fn data_peer(&self, remote: SocketAddr) -> SocketAddr {
        let from = self.config.data_from.filter(|_| remote.ip().to_canonical().is_loopback());
        from.map_or(remote, |from| SocketAddr::new(from, remote.port()))
    }

    /// The terms for a session that begins now.
    fn terms(&self) -> Terms {
        self.terms.borrow().clone()
    }

    /// Has the host hear what the clients that are here have together, and sends those away whose
    /// hours are over.
    fn share_out(&self, trust: &Arc<ClientTrust>) {
        let by = (self.outlets.ruled(), trust);
        let closed = self.sharing.look(&self.host, by, self.clients.listed(), &LocalTime::now());
        if !closed.is_empty() {
            self.clients.send_away(|client| closed.get(&client.key).copied().map(Leave::Closed));
        }
    }

    fn tell(&self, event: ServerEvent) {
        self.missed.fetch_add(tell(&self.events, event), Ordering::Relaxed);
    }

    /// Tells of changes, if they are wanted. Waits while too many wait to be taken; those that are
    /// not taken in time count as missed.
    async fn tell_changes(&self, visit: &Arc<Visit>, changes: Vec<Change>) {
        if changes.is_empty() || self.config.changes == Changes::Untold {
            return;
        }
        let room = Arc::clone(&self.rooms).acquire_owned();
        match tokio::time::timeout(CHANGES_SPAN, room).await {
            Ok(Ok(permit)) => {
                let (visit, room) = (Arc::clone(visit), Room::new(permit));
                self.tell(ServerEvent::Changed { visit, changes, room });
            }
            Ok(Err(_)) | Err(_) => {
                self.missed.fetch_add(changes.len() as u64, Ordering::Relaxed);
            }
        }
    }

    fn tell_missed(&self) {
        let count = self.missed.swap(0, Ordering::Relaxed);
        if count > 0 && self.events.try_send(ServerEvent::Missed { count }).is_err() {
            self.missed.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// Tells of an event; returns how many things are not told because too many wait.
fn tell(events: &mpsc::Sender<ServerEvent>, event: ServerEvent) -> u64 {
    match events.try_send(event) {
        // Nobody need listen.
        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => 0,
        Err(mpsc::error::TrySendError::Full(event)) => event.records(),
    }
}

/// Pages of changes that wait for the server's caller, each of 512 KiB at most as it was sent.
const CHANGES_WAITING: usize = 16;

/// How long a client waits for room for a page of its changes.
const CHANGES_SPAN: Duration = Duration::from_secs(5);

/// Hashes of files that are cached for later requests: 6 MB, at most twice that.
const ROOTS_KEPT: usize = 65_536;

/// Waits until the server is to stop, or nobody could say so any more.
pub(crate) async fn stopping(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is as good.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Pause when no connection can be accepted.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Complaints of one kind that clients can cause, such as that no connection can be accepted: one
/// now and then.
pub(crate) const COMPLAINTS: Bucket = Bucket::new(1, 2);

/// Time for all sessions to end when the server stops.
const FAREWELL_SPAN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_change_that_is_dropped_each_step_counts_as_missed() {
        let (events, _taken) = mpsc::channel(1);
        assert_eq!(tell(&events, ServerEvent::KeysRead { keys: 1 }), 0);
        assert_eq!(tell(&events, ServerEvent::KeysRead { keys: 2 }), 1);
        let request = Request {
            key: Identity::generate().fingerprint(),
            name: None,
            verb: "tree",
            path: String::new(),
        };
        let client = "127.0.0.1:1".parse().unwrap();
        let (whose, groups) = (Whose::Listed, Vec::new());
        let visit = Arc::new(Visit { id: 1, client, whose, request, export: None, groups });
        let step = Change { what: "remove", path: "x".to_owned(), to: None, failure: None };
        let room = Room::new(Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap());
        let changed = ServerEvent::Changed { visit, changes: vec![step; 3], room };
        assert_eq!(tell(&events, changed), 3);
    }
}
