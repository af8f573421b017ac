//! What both ends need before they meet: an engine, a key, and whom to believe.
//!
//! A measurement has an engine of its own, which shares nothing with a daemon: it shall find what
//! the path carries, not what others leave of it.

use std::path::PathBuf;
use std::sync::Arc;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_net::engine::{Host, HostConfig};
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::{Identity, config_dir};
use gtp_net::trust::{HostTrust, KNOWN_HOSTS_FILE, KnownHosts, UnknownHosts};

use crate::fetch::Fetch;
use crate::serve::other;

/// What this end may use; found by measuring where nothing is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacities {
    /// For what it sends.
    pub outgoing: Option<Rate>,
    /// For what it receives.
    pub incoming: Option<Rate>,
    /// A fixed control interval.
    pub interval: Option<Span>,
    /// Threads that move data, over which sessions are spread; zero counts as one.
    pub engines: usize,
}

/// What becomes of a server whose key is on no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    /// It is refused.
    Refused,
    /// It is believed and remembered.
    Accepted,
}

/// One end's engine and key.
pub struct Ends {
    pub(crate) host: Host,
    pub(crate) identity: Identity,
    dir: PathBuf,
}

/// Memory for blocks under way: as much as the command itself takes.
const MEMORY: Bytes = Bytes(256 << 20);

impl Ends {
    /// Starts an engine with these capacities, under this host's own key.
    ///
    /// # Errors
    /// When there is no place for a key, or the system gives no thread.
    pub fn start(capacities: Capacities) -> Result<Ends, Failure> {
        let dir = config_dir().map_err(|e| other(e.to_string()))?;
        Ends::start_in(dir, capacities)
    }

    /// The same with key and lists in this directory.
    ///
    /// # Errors
    /// As there.
    pub fn start_in(dir: PathBuf, capacities: Capacities) -> Result<Ends, Failure> {
        let authentication = |text: String| Failure::new(FailureKind::Authentication, text);
        let identity = Identity::load_or_create(&dir).map_err(|e| authentication(e.to_string()))?;
        let config = HostConfig {
            capacity_out: capacities.outgoing.unwrap_or(Rate::UNLIMITED),
            capacity_in: capacities.incoming.unwrap_or(Rate::UNLIMITED),
            interval: capacities.interval,
            memory: MEMORY,
            engines: capacities.engines,
        };
        let host = Host::start(config).map_err(other)?;
        Ok(Ends { host, identity, dir })
    }

    /// Whom a fetch believes.
    pub(crate) fn trust(&self, what: &Fetch) -> Result<Arc<HostTrust>, Failure> {
        if !what.pinned.is_empty() {
            return Ok(Arc::new(HostTrust::Pinned(what.pinned.clone())));
        }
        let hosts = KnownHosts::load(&self.dir.join(KNOWN_HOSTS_FILE))
            .map_err(|e| Failure::new(FailureKind::Authentication, e.to_string()))?;
        let unknown = match what.strangers {
            Strangers::Refused => UnknownHosts::Refuse,
            Strangers::Accepted => UnknownHosts::Accept,
        };
        Ok(Arc::new(HostTrust::Known { hosts, unknown }))
    }
}
