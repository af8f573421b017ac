//! The end that connects: fetches from several servers, sends to one, lists.
//!
//! One idea: a server is a line that may break. Each has a task of its own that tends its control
//! channel and reports to the one loop that decides; what is lost is connected anew while the
//! engine goes on with the rest. Nothing here prints, and nothing here knows a command line.

pub(crate) mod connect;
pub mod examine;
pub(crate) mod families;
mod get;
mod introduced;
mod link;
mod list;
mod order;
mod place;
mod placement;
mod pour;
mod progress;
mod put;
mod roots;
pub(crate) mod silence;
mod tree;
mod url;
mod weigh;
mod within;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gtp_alloc::{Rate, Span};
use gtp_proto::{PathUse, Revision};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

pub use get::{GetRequest, get};
pub use list::{Listed, Listing, list, list_each};
pub use order::{OrderRequest, order};
pub use place::{Directories, MakeSink, Naming, Place};
pub use pour::{Input, PourRequest, pour};
pub use progress::{Event, Outcome, Progress, SourceShare};
pub use put::{
    Content, MakeContent, MakeSource, Objects, PutRequest, Relay, RelayReport, SINKS_MOST, Share,
    SharedPaths, put,
};
pub use tree::{
    Carried, OwnTree, Pieces, Purpose, SENT_AT_ONCE, SMALL_TOGETHER_MAX, SmallAsked, SmallContents,
    Survey, TreeSession,
};
pub use url::{BadUrl, DEFAULT_PORT, Url};
pub use weigh::{Weight, weigh, wire_bytes};

use families::{Families, Next};
pub use introduced::Detour;
use introduced::Introduced;
pub(crate) use within::DIALLING;
use within::Within;

use crate::control::reach::{dial, resolve};
use crate::control::{ControlError, OPENING_SPAN};
use crate::engine::{Allowance, Host, Law, SocketId, Way};
use crate::flows::{Failure, FailureKind};
use crate::identity::Identity;
use crate::messages::{Page, Verb};
use crate::server::{Reach, budget, listing_bytes};
use crate::trust::{HostAddress, HostTrust};

/// The connecting side of a host: its engine, its key and its UDP sockets. Transfers that share an
/// endpoint share the host's capacity.
pub struct Endpoint {
    host: Host,
    identity: Identity,
    interval: Option<Span>,
    sockets: Mutex<Sockets>,
    families: Mutex<Families>,
    introduced: Mutex<Introduced>,
    /// Where it connects to; anywhere if not said.
    within: Option<Within>,
}

#[derive(Default)]
struct Sockets {
    v4: Option<(SocketId, u16)>,
    v6: Option<(SocketId, u16)>,
}

impl Endpoint {
    /// An endpoint on this host with this key. `interval` is what servers are asked for.
    pub fn new(host: Host, identity: Identity, interval: Option<Span>) -> Arc<Endpoint> {
        Endpoint::bounded(host, identity, interval, None)
    }

    /// The same for an endpoint that connects to addresses within these ranges only.
    pub fn within(
        host: Host,
        identity: Identity,
        interval: Option<Span>,
        ranges: Vec<Reach>,
    ) -> Arc<Endpoint> {
        Endpoint::bounded(host, identity, interval, Some(Within::ranges(ranges)))
    }

    fn bounded(
        host: Host,
        identity: Identity,
        interval: Option<Span>,
        within: Option<Within>,
    ) -> Arc<Endpoint> {
        let (sockets, families, introduced) = Default::default();
        Arc::new(Endpoint { host, identity, interval, sockets, families, introduced, within })
    }

    /// The addresses of a host that it connects to.
    ///
    /// # Errors
    /// What [`resolve`] and, within bounds, [`Within::resolve`] say.
    async fn resolve(
        &self,
        host: &HostAddress,
        limit: Duration,
    ) -> Result<Vec<SocketAddr>, Failure> {
        match &self.within {
            Some(within) => within.resolve(host, limit).await,
            None => Ok(resolve(host, limit, ()).await?),
        }
    }

    /// Connects to the first of these addresses that answers.
    ///
    /// # Errors
    /// [`ControlError::Unreachable`].
    async fn dial(
        &self,
        host: &HostAddress,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> Result<TcpStream, ControlError> {
        match &self.within {
            Some(within) => within.dial(host, addresses, limit).await,
            None => dial(host, addresses, limit).await,
        }
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The key that servers see.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Says at which addresses a host is to be tried, the first one first: its name is not looked
    /// up any more. Of more than eight addresses the first eight count.
    pub fn introduce(&self, host: &HostAddress, addresses: Vec<SocketAddr>) {
        self.introduced().add(host.clone(), addresses);
    }

    /// Says by which detour a host is to be reached if none of the addresses answers that
    /// [`Endpoint::introduce`] was told.
    pub fn introduce_detour(&self, host: &HostAddress, detour: Detour) {
        self.introduced().add_detour(host, detour);
    }

    fn introduced(&self) -> std::sync::MutexGuard<'_, Introduced> {
        self.introduced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that no datagram reaches this address of a host, or comes from it.
    pub(crate) fn no_datagrams(&self, host: &HostAddress, peer: SocketAddr) -> Next {
        self.families().block(host, peer, self.host.clock().now())
    }

    /// Whether another IP version of the host could be tried if this one carries no datagrams.
    pub(crate) fn has_choice(&self, host: &HostAddress) -> bool {
        self.families().has_choice(host)
    }

    /// Whether the control connections to a host are to carry datagrams from the start.
    pub(crate) fn is_carried(&self, host: &HostAddress, udp: Udp) -> bool {
        match udp {
            Udp::Auto => {
                self.introduced().detour_taken(host).is_some()
                    || self.families().is_carried(host, self.host.clock().now())
            }
            Udp::Only => false,
            Udp::Off => true,
        }
    }

    /// Where datagrams to a host go that is reached by a detour.
    fn beside_detour(&self, host: &HostAddress) -> Option<SocketAddr> {
        let introduced = self.introduced();
        let detour = introduced.detour_taken(host)?;
        detour.datagrams.or_else(|| introduced.addresses(host)?.first().copied())
    }

    /// Whether a session's control connection may carry its datagrams. The host must speak the
    /// revision for it, and the user must not insist on UDP. While no datagram has come on the
    /// session (`path_seen`), UDP has its chance over the host's other IP version first.
    pub(crate) fn may_carry(
        &self,
        host: &HostAddress,
        revision: Revision,
        udp: Udp,
        path_seen: bool,
    ) -> bool {
        let waits = !path_seen && self.has_choice(host) && !self.is_carried(host, udp);
        udp != Udp::Only && revision >= Revision::Fourth && !waits
    }

    /// A prompt host has heard this end, which hears nothing of it. Returns whether the path is to
    /// be called closed: the host has another IP version to try, or nothing but UDP is wanted.
    /// Where neither is so, its next session is carried by its control connection, if it may be.
    fn is_closed_one_way(&self, host: &HostAddress, (udp, revision): (Udp, Revision)) -> bool {
        if udp == Udp::Only || self.has_choice(host) {
            return true;
        }
        if revision >= Revision::Fourth {
            self.families().note_way(host, Way::Control, self.host.clock().now());
        }
        false
    }

    /// Notes that the data of `url` go by another way now, and returns what to tell the user. That
    /// UDP is not used because the user does not want it says nothing of the host.
    fn way_changed(&self, url: &Url, way: Way, udp: Udp) -> Event {
        let host = url.host();
        if (way, udp) != (Way::Control, Udp::Off) {
            self.families().note_way(host, way, self.host.clock().now());
        }
        Event::Way { url: url.to_string(), way, text: way_words(self, host, way, udp) }
    }

    fn families(&self) -> std::sync::MutexGuard<'_, Families> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket from which peers of this family are reached, opened at first need, and its port.
    fn socket_for(&self, peer: IpAddr) -> io::Result<(SocketId, u16)> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, any): (_, IpAddr) = match peer {
            IpAddr::V4(_) => (&mut sockets.v4, Ipv4Addr::UNSPECIFIED.into()),
            IpAddr::V6(_) => (&mut sockets.v6, Ipv6Addr::UNSPECIFIED.into()),
        };
        if let Some(socket) = *slot {
            return Ok(socket);
        }
        let (socket, address) = self.host.bind_udp(SocketAddr::new(any, 0))?;
        Ok(*slot.insert((socket, address.port())))
    }
}

/// Whether data go by UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Udp {
    /// Where it gets through; else the control connection carries them.
    #[default]
    Auto,
    /// By UDP or not at all.
    Only,
    /// As if UDP did not get through. It is tried now and then, and taken if it does.
    Off,
}

/// On what terms sessions are asked for.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Which servers are believed.
    pub trust: Arc<HostTrust>,
    /// Who decides the rate.
    pub law: Law,
    /// Weight against other sessions, positive; 1 is ordinary.
    pub weight: f64,
    /// A limit on each session's rate.
    pub max_rate: Rate,
    /// How sessions are to use their paths, if the server allows it.
    pub path: PathUse,
    /// How long to go on without progress.
    pub patience: Duration,
    /// Whether data go by UDP.
    pub udp: Udp,
    /// What others have signed for this end, by the address of the object. With any, this end asks
    /// by them alone, never by its own key.
    pub tickets: Option<Arc<Tickets>>,
    /// For whom this is, at a host that serves.
    pub behalf: Behalf,
    /// What listings may take.
    pub listings: ListingRoom,
    /// Whether sinks are asked to give on what they get.
    pub relaying: Relaying,
}

/// Whether the sinks of an object give its blocks on to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relaying {
    /// Each gets all of it from the source.
    #[default]
    Off,
    /// Those that can.
    On,
}

impl Relaying {
    /// What is said of it in the opening of a session.
    fn asked(self, verb: &Verb) -> Option<bool> {
        (self == Relaying::On && matches!(verb, Verb::Put { .. })).then_some(true)
    }
}

/// Memory for the listings of a transfer's sources: a server bounds it for each client.
#[derive(Clone, Debug, Default)]
pub struct ListingRoom(Option<Arc<budget::Share>>);

impl ListingRoom {
    /// As much as whoever has this share may take.
    pub(crate) fn of(share: budget::Share) -> ListingRoom {
        ListingRoom(Some(Arc::new(share)))
    }

    /// Begins to count one listing.
    fn begin(&self) -> Counted {
        Counted(self.0.as_ref().map(|share| share.another()))
    }
}

/// What one listing takes, until it is dropped.
#[derive(Debug, Default)]
struct Counted(Option<budget::Share>);

impl Counted {
    /// Counts a page before it is kept; whether there is room for it.
    fn take(&mut self, page: &Page) -> bool {
        let bytes = page.entries.iter().map(|entry| listing_bytes(entry.path.len())).sum();
        self.0.as_mut().is_none_or(|share| share.take(bytes))
    }
}

/// What others have signed for this end, by the address of the object. They last for minutes and
/// may be replaced while a transfer runs.
#[derive(Debug, Default)]
pub struct Tickets(Mutex<HashMap<Url, Vec<u8>>>);

impl Tickets {
    /// These tickets.
    pub fn new(tickets: HashMap<Url, Vec<u8>>) -> Tickets {
        Tickets(Mutex::new(tickets))
    }

    /// The ticket for an object.
    pub fn get(&self, url: &Url) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned()
    }

    /// Shows these from now on.
    pub fn replace(&self, tickets: HashMap<Url, Vec<u8>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tickets;
    }
}

/// For whom a host that serves is a client of others: sessions count as that client's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Behalf {
    /// The number of its key ([`SessionOpen::principal`](crate::engine::SessionOpen)); zero if this
    /// is for nobody.
    pub principal: u64,
    /// What it has at this host.
    pub allowance: Allowance,
}

impl Terms {
    /// Ordinary terms: grants, weight 1, no limit, a minute's patience.
    pub fn new(trust: HostTrust) -> Terms {
        Terms {
            trust: Arc::new(trust),
            law: Law::Grant,
            weight: 1.0,
            max_rate: Rate::UNLIMITED,
            path: PathUse::default(),
            patience: PATIENCE,
            udp: Udp::Auto,
            tickets: None,
            behalf: Behalf::default(),
            listings: ListingRoom::default(),
            relaying: Relaying::Off,
        }
    }
}

/// What the user has been told of how a transfer's sessions use their paths.
#[derive(Debug, Default)]
struct PathWords(BTreeSet<String>);

impl PathWords {
    /// What is to be told of a session that begins: everything once for a transfer, however often
    /// its sessions begin anew.
    fn of(&mut self, host: &HostAddress, asked: PathUse, agreed: PathUse) -> Option<String> {
        path_words(host, asked, agreed).filter(|words| self.0.insert(words.clone()))
    }
}

/// What to tell the user of how a session uses its path, if that is out of the ordinary.
fn path_words(host: &HostAddress, asked: PathUse, agreed: PathUse) -> Option<String> {
    match (asked, agreed) {
        (PathUse::Unbounded, PathUse::Unbounded) => Some(format!(
            "{host}: nothing bounds this transfer on the path; others there may get nothing"
        )),
        (PathUse::Unbounded, PathUse::Bounded(_)) => Some(format!(
            "{host}: the path bounds this transfer: the server was not started with --no-path-bound"
        )),
        (PathUse::Bounded(asked), PathUse::Bounded(agreed)) if agreed < asked => Some(format!(
            "{host}: the transfer counts as {agreed} TCP flows, not {asked}: the server allows no \
             more (--path-flows)"
        )),
        (PathUse::Bounded(_), _) => None,
    }
}

/// How a transfer talks to whoever started it.
pub struct Monitor {
    /// What happens.
    pub events: mpsc::UnboundedSender<Event>,
    /// How far it is, about ten times a second.
    pub progress: watch::Sender<Progress>,
    /// Becomes `Some` when the transfer is to be stopped, with the kind of failure that this is.
    pub stop: watch::Receiver<Option<FailureKind>>,
}

impl Monitor {
    fn tell(&self, event: Event) {
        // Nobody need listen.
        let _ = self.events.send(event);
    }
}

/// Waits until a transfer is to be stopped; for ever if nobody can stop it any more.
async fn stopped(stop: &mut watch::Receiver<Option<FailureKind>>) -> FailureKind {
    let kind = stop.wait_for(Option::is_some).await.ok().and_then(|kind| *kind);
    match kind {
        Some(kind) => kind,
        None => std::future::pending().await,
    }
}

/// How long a transfer goes on without progress unless the user says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks at the engine's numbers.
const LOOK_SPAN: Duration = Duration::from_millis(100);

/// First pause before a lost server is connected anew; each further one is twice as long.
const RETRY_FIRST: Duration = Duration::from_millis(250);

/// Longest such pause.
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// The pause before attempt number `tries`, counted from 0.
pub(crate) fn back_off(tries: u32) -> Duration {
    (RETRY_FIRST * 2u32.saturating_pow(tries.min(8))).min(RETRY_LONGEST)
}

/// The same where the attempt before it has lasted for so long. Where it can have waited for a
/// connection alone, attempts begin that far apart, but for the first pause: a server that takes
/// none for a while, such as one that is started again under a manager that keeps its sockets, has
/// its clients wait in the system's queue, and a client that leaves the queue and pauses as well
/// comes late. After a longer attempt the server has worked, and the pause is whole.
pub(crate) fn back_off_after(tries: u32, attempt: Span) -> Duration {
    let lasted = gtp_sys::clock::duration(attempt);
    let waited = if lasted <= OPENING_SPAN + LATE_SPAN { lasted } else { Duration::ZERO };
    back_off(tries).saturating_sub(waited).max(RETRY_FIRST)
}

/// By how much an attempt that waits in vain may outlast the time that it waits.
const LATE_SPAN: Duration = Duration::from_millis(500);

/// What it means that no datagram gets through to a host at this address: another IP version is to
/// be tried, or there is no UDP path, and the host's revision shows whether it knows another way.
fn without_datagrams(
    endpoint: &Endpoint,
    host: &HostAddress,
    peer: SocketAddr,
    (udp, revision): (Udp, Revision),
) -> Failure {
    match endpoint.no_datagrams(host, peer) {
        Next::OtherFamily => {
            let (silent, other) = match peer.is_ipv6() {
                true => ("IPv6", "IPv4"),
                false => ("IPv4", "IPv6"),
            };
            let text = format!("no datagram gets through to {host} over {silent}; trying {other}");
            Failure::new(FailureKind::Temporary, text)
        }
        Next::None if udp != Udp::Only && revision < Revision::Fourth => {
            Failure::new(FailureKind::NoUdpPath, no_path_words(host) + TOO_OLD)
        }
        Next::None => Failure::new(FailureKind::NoUdpPath, no_path_words(host)),
    }
}

/// What else would help.
const TOO_OLD: &str = "; a newer gtp there would let the control connection carry the data";

/// That data go by another way now.
pub(crate) fn way_words(endpoint: &Endpoint, host: &HostAddress, way: Way, udp: Udp) -> String {
    let detour = endpoint.introduced().detour_taken(host);
    match way {
        Way::Control if let Some(detour) = detour => detour.words,
        Way::Control if udp == Udp::Off => {
            format!("the control connection carries the data of {host}, as asked for")
        }
        Way::Udp => format!("UDP gets through to {host}: it carries the data now"),
        Way::Control => format!(
            "UDP does not get through to {host}: the control connection carries the data, which \
             is slower"
        ),
    }
}

/// That no datagram gets through, in words that name what to open.
pub(crate) fn no_path_words(host: &HostAddress) -> String {
    let port = host.port();
    format!(
        "no UDP path to {host}: TCP port {port} answers, but no datagram gets through within 5 s. \
         A firewall between may block UDP port {port}; open it towards the server"
    )
}

/// Words for a stop that was asked for.
fn stop_words(kind: FailureKind) -> &'static str {
    if kind == FailureKind::TimeLimit {
        "the time limit is over; what is complete is kept, repeat the command to go on"
    } else {
        "interrupted; what is complete is kept, repeat the command to go on"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_wait_in_vain_follow_each_other_and_those_that_are_refused_are_far_apart() {
        let sixth_begins = |attempt: u64| -> u64 {
            let lasts = Span::from_millis(attempt);
            (0..5).map(|n| attempt + back_off_after(n, lasts).as_millis() as u64).sum()
        };
        assert_eq!(sixth_begins(0), 250 + 500 + 1_000 + 2_000 + 4_000);
        // Each waits five seconds for a server that takes no connections.
        assert_eq!(sixth_begins(5_000), 5 * 5_250);
        assert_eq!(sixth_begins(1_500), 5 * 1_500 + 3 * 250 + 500 + 2_500);
        // After eight seconds the server has done something.
        assert_eq!(sixth_begins(8_000), 5 * 8_000 + 7_750);
    }
}
