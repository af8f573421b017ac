//! Which servers a transfer believes: given keys, else the host's list.
//!
//! Keys that were given are the whole truth; the list is read only without them. What a stranger's
//! key means is the user's choice, and refusal the default.

use std::path::Path;

use gtp_net::flows::Failure;
use gtp_net::identity::Fingerprint;
use gtp_net::trust::{HostTrust, KNOWN_HOSTS_FILE, KnownHosts, UnknownHosts};

use crate::host::AcceptNew;

#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    pub pinned: Vec<Fingerprint>,
    pub accept_new: AcceptNew,
}

impl Trust {
    /// Reads the list, if it is needed and kept.
    pub fn load(&self, config_dir: Option<&Path>) -> Result<HostTrust, Failure> {
        if !self.pinned.is_empty() {
            return Ok(HostTrust::Pinned(self.pinned.clone()));
        }
        let hosts = match config_dir {
            Some(dir) => KnownHosts::load(&dir.join(KNOWN_HOSTS_FILE))?,
            None => KnownHosts::unkept(),
        };
        let unknown = match self.accept_new {
            AcceptNew::Yes => UnknownHosts::Accept,
            AcceptNew::No => UnknownHosts::Refuse,
        };
        Ok(HostTrust::Known { hosts, unknown })
    }
}
