//! Which servers a transfer believes: given keys, else the host's list.
//!
//! Keys that were given are the whole truth; the list is read only without them. What a stranger's
//! key means is the user's choice, and refusal the default.

use std::path::Path;

use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::Fingerprint;
use gtp_net::trust::{HostTrust, KNOWN_HOSTS_FILE, KnownHosts, UnknownHosts};

use crate::host::AcceptNew;

#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    pub pinned: Vec<Fingerprint>,
    pub accept_new: AcceptNew,
}

impl Trust {
    /// Reads the list, if it is needed.
    pub fn load(&self, config_dir: &Path) -> Result<HostTrust, Failure> {
        if !self.pinned.is_empty() {
            return Ok(HostTrust::Pinned(self.pinned.clone()));
        }
        let hosts = KnownHosts::load(&config_dir.join(KNOWN_HOSTS_FILE))
            .map_err(|e| Failure::new(FailureKind::Authentication, e.to_string()))?;
        let unknown = match self.accept_new {
            AcceptNew::Yes => UnknownHosts::Accept,
            AcceptNew::No => UnknownHosts::Refuse,
        };
        Ok(HostTrust::Known { hosts, unknown })
    }
}
