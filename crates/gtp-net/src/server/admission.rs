//! Which clients may come, how many, and how much each may take.
//!
//! This module states what the operator wants and what the system can give. Whether a place is free
//! is decided in `occupancy`.

use std::path::PathBuf;
use std::time::Duration;

use gtp_alloc::Bytes;

use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::messages::{ENTRY_MEMORY, LISTINGS_MEMORY};
use crate::ticket::TICKET_SESSION_SECONDS_MOST;
use crate::trust::{AuthorizedKeys, ClientTrust, Strangers};

use super::budget::Holder;

/// Who may come.
#[derive(Clone, Debug)]
pub enum Admission {
    /// Those on a list of keys, read anew for every client, and perhaps everybody else.
    File {
        /// The list.
        path: PathBuf,
        /// Everybody else.
        strangers: Strangers,
    },
    /// As decided once.
    Fixed(ClientTrust),
}

impl Admission {
    /// The decision as it stands now. Blocks.
    pub(crate) fn load(&self) -> Result<ClientTrust, Failure> {
        match self {
            Admission::Fixed(trust) => Ok(trust.clone()),
            Admission::File { path, strangers } => {
                let keys = AuthorizedKeys::load(path)
                    .map_err(|e| Failure::new(FailureKind::Authentication, e.to_string()))?;
                Ok(ClientTrust { keys, strangers: *strangers })
            }
        }
    }
}

/// What lines of the list mean that name places with `read=`, `write=` or `delete=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrowed {
    /// Rights at these places, in a server with several exports.
    ToPlaces,
    /// Nothing: there are no exports with names.
    Void,
}

/// Most weight, in thousandths, of a client that is not on the list: as much as one ordinary
/// session's, so that nobody takes others' shares by asking for more.
pub(crate) const WEIGHT_OF_STRANGERS: u32 = 1_000;
/// Most weight, in thousandths, of a client that is on the list: a hundred ordinary sessions.
pub(crate) const WEIGHT_OF_LISTED: u32 = 100_000;

/// The weight, in thousandths, that a client gets which asks for `asked`.
pub(crate) fn weight(trust: &ClientTrust, key: &Fingerprint, asked: u32) -> u32 {
    let most = match holder(trust, key) {
        Holder::Listed(_) => WEIGHT_OF_LISTED,
        Holder::Strangers => WEIGHT_OF_STRANGERS,
    };
    asked.min(most)
}

/// On whose account a key's listings go.
pub(crate) fn holder(trust: &ClientTrust, key: &Fingerprint) -> Holder {
    let listed = trust.keys.access(key);
    if listed.read || listed.write { Holder::Listed(*key) } else { Holder::Strangers }
}

/// How many may come.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that have not yet said what they want, each for five seconds at most. When one
    /// more comes, the oldest of the address that has most of them is closed.
    pub unproved: usize,
    /// The same from one address of IPv4, or from one /64 prefix of IPv6, of which one customer
    /// may have all addresses.
    pub unproved_per_address: usize,
    /// Clients in all, each with a connection and a session: each holds a TLS session and, at
    /// most, one page of a megabyte. Strangers hold at most half of them; an idle stranger makes
    /// room for a listed client.
    pub connections: usize,
    /// Strangers from one address of IPv4, or from one /64 prefix of IPv6.
    pub connections_per_address: usize,
    /// Sessions of one key.
    pub sessions_per_key: usize,
    /// Memory for the listings of all sessions together: 384 bytes and the path for each entry and
    /// for each of the first thousand names that are left out, and the names of large directories
    /// while they are held. One key of the list, and all keys that are not on it together, get at
    /// most a quarter. A client that finds it used up is told to come again later.
    pub listings: Bytes,
    /// How long a session that fetches by a ticket may last; it may come again while it has a
    /// ticket that holds.
    pub by_ticket: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            unproved: 256,
            unproved_per_address: 64,
            connections: 512,
            connections_per_address: 64,
            sessions_per_key: 64,
            listings: Bytes(LISTINGS_MEMORY),
            by_ticket: Duration::from_secs(TICKET_SESSION_SECONDS_MOST),
        }
    }
}

/// Descriptors that a server has beside those of its clients: sockets of its engines and what
/// watches them, its streams, the list of keys.
const OWN_DESCRIPTORS: usize = 64;
/// Descriptors that a client may need at a time: its connection, the export, a file that is read,
/// and two on the way to the next one. A quarter of all is for files that stay open for the
/// next block.
const OF_A_CLIENT: usize = 5;

impl Limits {
    /// These limits, lowered as far as a process that may have `descriptors` open needs. One that
    /// fetches for clients has up to `fetching` open for that.
    pub fn within(self, descriptors: u64, fetching: usize) -> Limits {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let unproved = self.unproved.min(descriptors / 8).max(1);
        let own = OWN_DESCRIPTORS + fetching;
        let rest = descriptors.saturating_sub(descriptors / 4 + own + unproved);
        let connections = self.connections.min(rest / OF_A_CLIENT).max(1);
        Limits { unproved, connections, ..self }
    }
}

/// Returns the memory, in bytes, that an entry, or a name that is left out, is assumed to need if
/// its path has this length. A length of 0 stands for a step that keeps nothing.
pub(crate) fn listing_bytes(path: usize) -> u64 {
    if path == 0 { 0 } else { ENTRY_MEMORY + path as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_weighs_no_more_than_one_ordinary_session() {
        use crate::identity::Identity;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let friend = Identity::generate().fingerprint();
        let stranger = Identity::generate().fingerprint();
        std::fs::write(&path, format!("{friend}\n")).unwrap();
        let trust = Admission::File { path, strangers: Strangers::MayRead }.load().unwrap();
        let asked = [1, 1_000, 1_001, 100_000, 1_000_000];
        assert_eq!(asked.map(|w| weight(&trust, &stranger, w)), [1, 1_000, 1_000, 1_000, 1_000]);
        assert_eq!(asked.map(|w| weight(&trust, &friend, w)), [1, 1_000, 1_001, 100_000, 100_000]);
    }

    #[test]
    fn few_descriptors_mean_fewer_clients_and_many_mean_no_more() {
        let fetching = |descriptors, fetching| {
            let limits = Limits::default().within(descriptors, fetching);
            (limits.unproved, limits.connections)
        };
        let within = |descriptors| fetching(descriptors, 0);
        assert_eq!(fetching(1_024, 192), (128, 76));
        assert_eq!(within(1 << 20), (256, 512));
        assert_eq!(within(1_024), (128, 115));
        assert_eq!(within(256), (32, 19));
        assert_eq!(within(0), (1, 1));
        for descriptors in 128..5_000 {
            let (unproved, connections) = within(descriptors);
            let needed = OWN_DESCRIPTORS + unproved + OF_A_CLIENT * connections;
            assert!(needed as u64 + descriptors / 4 <= descriptors, "{descriptors}");
        }
    }
}
