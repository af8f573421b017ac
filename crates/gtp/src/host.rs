//! One machine's share: its key, its capacity, its engine.
//!
//! Fairness is a property of a host, so everything that should share a capacity is started on the
//! same one. It holds no transfers; they hold it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_net::client::{Detour, Endpoint, Listed, Listing, Terms, Url, Weight};
use gtp_net::engine::{self, HostConfig, Missed, Sharing, Stands, StartError};
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::{Fingerprint, Identity, IdentityError, NoConfigDir, config_dir};
use gtp_net::router::RouterOpen;
use gtp_store::RootKind;

use crate::router::RouterSpec;
use crate::trust::Trust;

/// One machine's share in all transfers of this process. Clones are the same host; its engine
/// ends when the last of them, and of what runs on it, is gone.
#[derive(Clone)]
pub struct Host {
    pub(crate) endpoint: Arc<Endpoint>,
    config_dir: Option<PathBuf>,
    unkept: Option<String>,
    pub(crate) interval: Option<Span>,
}

/// Describes a [`Host`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `start`"]
pub struct HostBuilder {
    config: HostConfig,
    identity: Option<Identity>,
    config_dir: Option<PathBuf>,
    keeping: Keeping,
    sharing: Option<Sharing>,
    routers: Vec<RouterSpec>,
}

/// Whether a host needs a key that is the same the next time.
#[derive(Clone, Copy, Debug)]
enum Keeping {
    Required,
    IfPossible,
}

impl Host {
    /// A host whose capacity is nine tenths of its network card's speed in each direction
    /// (thesis, X.3.D), where the system knows it; else rates are found by measuring.
    pub fn builder() -> HostBuilder {
        HostBuilder {
            config: HostConfig {
                capacity_out: engine::default_capacity(),
                capacity_in: engine::default_capacity(),
                interval: None,
                memory: MEMORY,
                engines: 1,
            },
            identity: None,
            config_dir: None,
            keeping: Keeping::Required,
            sharing: None,
            routers: Vec::new(),
        }
    }

    /// What others know this host by.
    pub fn fingerprint(&self) -> Fingerprint {
        self.endpoint.identity().fingerprint()
    }

    /// The time by the clock of this host's engine.
    pub fn now(&self) -> Time {
        self.endpoint.host().clock().now()
    }

    /// What this process is to the machine's daemon now.
    pub fn stands(&self) -> Stands {
        self.endpoint.host().stands()
    }

    /// Where this host keeps its key and its lists; `None` if nothing names a place.
    pub fn config_dir(&self) -> Option<&Path> {
        self.config_dir.as_deref()
    }

    /// Why this host's key is in memory alone, in words, after [`HostBuilder::or_in_memory`].
    pub fn unkept(&self) -> Option<&str> {
        self.unkept.as_deref()
    }

    /// The file of this name in the configuration directory.
    pub(crate) fn config_file(&self, name: &str) -> Result<PathBuf, Failure> {
        let dir = self.config_dir().ok_or(NoConfigDir).map_err(IdentityError::from)?;
        Ok(dir.join(name))
    }

    /// Says at which addresses the host of `url` is to be tried, the first one first: its name is
    /// not looked up any more. Of more than eight addresses the first eight count.
    pub fn introduce(&self, url: &Url, addresses: Vec<SocketAddr>) {
        self.endpoint.introduce(url.host(), addresses);
    }

    /// Says by which detour the host of `url` is to be reached if none of the addresses answers
    /// that [`Host::introduce`] was told.
    pub fn introduce_detour(&self, url: &Url, detour: Detour) {
        self.endpoint.introduce_detour(url.host(), detour);
    }

    /// Changes the capacities; `None` leaves one as it is. Sessions follow within an interval.
    pub fn set_capacity(&self, out: Option<Rate>, in_: Option<Rate>) {
        self.endpoint.host().set_capacity(out, in_);
    }

    /// What this host can send and receive by its own account. While a daemon shares out the
    /// machine's capacity, the daemon's figures apply instead.
    pub fn capacities(&self) -> [Rate; 2] {
        self.endpoint.host().capacities()
    }

    /// Datagrams that came to nothing since the host's start, by kind: `malformed`, `unknown` (of
    /// no session here), `forged`, `discarded` (seen before, or too late), `unsent`.
    pub fn dropped_datagrams(&self) -> [(&'static str, u64); 5] {
        self.endpoint.host().drops().all()
    }

    /// Lists what a server has at an address: the names in a directory, not what lies deeper.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn list(
        &self,
        url: &Url,
        fingerprints: &[Fingerprint],
        accept_new: AcceptNew,
    ) -> Result<Listing, Failure> {
        let trust = Trust { pinned: fingerprints.to_vec(), accept_new };
        let terms = Terms::new(trust.load(self.config_dir())?);
        gtp_net::client::list(&self.endpoint, url, &terms).await
    }

    /// Asks a server with this key what the object at an address weighs. It waits as long for a
    /// silent server as `patience` says.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn weigh(
        &self,
        url: &Url,
        key: Fingerprint,
        patience: Duration,
    ) -> Result<Weight, Failure> {
        let trust = Trust { pinned: vec![key], accept_new: AcceptNew::No };
        let terms = Terms { patience, ..Terms::new(trust.load(self.config_dir())?) };
        gtp_net::client::weigh(&self.endpoint, url, &terms).await
    }

    /// Lists as [`Host::list`] does, and hands each part on as it comes: nothing is kept. Returns
    /// whether there is a file or a directory.
    ///
    /// # Errors
    /// [`Failure`], perhaps after a part of the listing.
    pub async fn list_each(
        &self,
        url: &Url,
        fingerprints: &[Fingerprint],
        accept_new: AcceptNew,
        each: impl FnMut(Listed),
    ) -> Result<RootKind, Failure> {
        let trust = Trust { pinned: fingerprints.to_vec(), accept_new };
        let terms = Terms::new(trust.load(self.config_dir())?);
        gtp_net::client::list_each(&self.endpoint, url, &terms, each).await
    }
}

/// What becomes of a server that was never met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptNew {
    /// It is refused, and its key is shown.
    #[default]
    No,
    /// It is trusted and its key remembered.
    Yes,
}

impl HostBuilder {
    /// Capacity for what this host sends.
    pub fn capacity_out(mut self, rate: Rate) -> HostBuilder {
        self.config.capacity_out = rate;
        self
    }

    /// Capacity for what this host receives.
    pub fn capacity_in(mut self, rate: Rate) -> HostBuilder {
        self.config.capacity_in = rate;
        self
    }

    /// A fixed control interval, in place of half the median round-trip time.
    pub fn interval(mut self, interval: Span) -> HostBuilder {
        self.config.interval = Some(interval);
        self
    }

    /// Memory for blocks under way, in each direction.
    pub fn memory(mut self, memory: Bytes) -> HostBuilder {
        self.config.memory = memory;
        self
    }

    /// Engines: threads that move data, each that of its own sessions. Servers and listeners on
    /// this host spread their sessions over them; what this host fetches, sends and calls itself
    /// has the first. One if not said; [`default_engines`](crate::default_engines) suits a server
    /// that has a machine to itself.
    pub fn engines(mut self, engines: usize) -> HostBuilder {
        self.config.engines = engines;
        self
    }

    /// A key of its own, in place of the one in the configuration directory.
    pub fn identity(mut self, identity: Identity) -> HostBuilder {
        self.identity = Some(identity);
        self
    }

    /// Makes a key in memory where there is none and none can be made: no directory is named, or
    /// it is read-only. A key that is there and cannot be used is still a failure. A client of
    /// public servers needs no key that is the same the next time.
    pub fn or_in_memory(mut self) -> HostBuilder {
        self.keeping = Keeping::IfPossible;
        self
    }

    /// Shares the machine's capacity with other processes through its daemon. Where there is one,
    /// its capacity counts in place of this host's own. A host whose daemon was named does not
    /// start without it, and never runs without a limit from it.
    pub fn share(mut self, sharing: Sharing) -> HostBuilder {
        self.sharing = Some(sharing);
        self
    }

    /// Asks a router for sessions that cross one of its links. May be called several times.
    pub fn router(mut self, router: RouterSpec) -> HostBuilder {
        self.routers.push(router);
        self
    }

    /// Where key and lists are kept, in place of the user's own configuration directory.
    pub fn config_dir(mut self, dir: impl Into<PathBuf>) -> HostBuilder {
        self.config_dir = Some(dir.into());
        self
    }

    /// Starts the engine; makes the key if there is none.
    ///
    /// # Errors
    /// When there is no place for a key, it cannot be used, the system gives no thread, a daemon
    /// that was named does not take this host in within five seconds, or a router's key or name is
    /// not there.
    pub fn start(self) -> Result<Host, Failure> {
        let dir = self.config_dir.map_or_else(config_dir, Ok);
        let (identity, unkept) = match self.identity {
            Some(identity) => (identity, None),
            None => key_in(dir.as_deref().map_err(|e| *e), self.keeping)?,
        };
        let routers = self.routers.iter().map(|spec| spec.open(dir.as_deref().ok()));
        let routers = routers.collect::<Result<Vec<RouterOpen>, Failure>>()?;
        let interval = self.config.interval;
        let started = match self.sharing {
            Some(sharing) => engine::Host::start_shared(self.config, sharing),
            None => engine::Host::start(self.config).map_err(StartError::System),
        };
        let host = started.map_err(|error| Failure::new(kind(&error), error.to_string()))?;
        if !routers.is_empty() {
            let asked = host.ask_routers(&routers);
            asked.map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?;
        }
        let endpoint = Endpoint::new(host, identity, interval);
        Ok(Host { endpoint, config_dir: dir.ok(), unkept, interval })
    }
}

/// The key of a configuration directory, or one in memory, with the reason.
fn key_in(
    dir: Result<&Path, NoConfigDir>,
    keeping: Keeping,
) -> Result<(Identity, Option<String>), Failure> {
    let kept = dir.map_err(IdentityError::from).and_then(Identity::load_or_create);
    match (kept, keeping) {
        (Ok(identity), _) => Ok((identity, None)),
        (
            Err(error @ (IdentityError::NoConfigDir(_) | IdentityError::NotMade { .. })),
            Keeping::IfPossible,
        ) => Ok((Identity::generate(), Some(error.to_string()))),
        (Err(error), Keeping::Required | Keeping::IfPossible) => Err(error.into()),
    }
}

/// What a host that does not start has failed by. A daemon that is not there yet, or has no room
/// now, may be had later.
fn kind(error: &StartError) -> FailureKind {
    match error {
        StartError::System(_) => FailureKind::Other,
        StartError::Daemon { why, .. } => match why {
            Missed::Absent(_) | Missed::Full(_) | Missed::Silent(_) => FailureKind::Temporary,
            Missed::OtherVersion(_) => FailureKind::Authentication,
            Missed::Barred(_) => FailureKind::Destination,
        },
    }
}

/// Blocks under way: at 10 Gbit/s and 100 ms a path holds 125 MB.
const MEMORY: Bytes = Bytes(256 * 1024 * 1024);
