//! Who may come, and how many.
//!
//! Two questions that are asked before anything costs much: is there a place, and is the key on
//! the list. A place is taken by a value and given back when that value is dropped.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::trust::{AuthorizedKeys, ClientTrust, Strangers};

use super::SessionId;

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
    pub(super) fn load(&self) -> Result<ClientTrust, Failure> {
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

/// Most weight, in thousandths, of a client that is not on the list: as much as one ordinary
/// session's, so that nobody takes others' shares by asking for more.
pub(super) const WEIGHT_OF_STRANGERS: u32 = 1_000;
/// Most weight, in thousandths, of a client that is on the list: a hundred ordinary sessions.
pub(super) const WEIGHT_OF_LISTED: u32 = 100_000;

/// The weight, in thousandths, that a client gets which asks for `asked`.
pub(super) fn weight(trust: &ClientTrust, key: &Fingerprint, asked: u32) -> u32 {
    let listed = trust.keys.access(key);
    let most = match listed.read || listed.write {
        true => WEIGHT_OF_LISTED,
        false => WEIGHT_OF_STRANGERS,
    };
    asked.min(most)
}

/// How many may come.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections in all: each holds a TLS session and, at most, one page of a megabyte.
    pub connections: usize,
    /// Connections from one address.
    pub connections_per_address: usize,
    /// Sessions of one key.
    pub sessions_per_key: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 512, connections_per_address: 64, sessions_per_key: 64 }
    }
}

/// Who is here.
pub(super) struct Guests {
    limits: Limits,
    present: Arc<Mutex<Present>>,
    sessions: AtomicU64,
}

#[derive(Default)]
struct Present {
    total: usize,
    addresses: HashMap<IpAddr, usize>,
    keys: HashMap<Fingerprint, usize>,
}

/// What a guest takes until it is dropped.
#[derive(Clone, Copy)]
enum Taken {
    Connection(IpAddr),
    Session(Fingerprint),
}

/// A place that a guest takes.
pub(super) struct Seat {
    present: Arc<Mutex<Present>>,
    taken: Taken,
}

impl Guests {
    pub fn new(limits: Limits) -> Guests {
        Guests { limits, present: Arc::default(), sessions: AtomicU64::new(1) }
    }

    /// A place for one more connection, if there is one.
    pub fn seat(&self, from: IpAddr) -> Option<Seat> {
        let from = from.to_canonical();
        let mut present = lock(&self.present);
        let here = present.addresses.get(&from).copied().unwrap_or(0);
        if present.total >= self.limits.connections || here >= self.limits.connections_per_address {
            return None;
        }
        present.total += 1;
        present.addresses.insert(from, here + 1);
        Some(Seat { present: Arc::clone(&self.present), taken: Taken::Connection(from) })
    }

    /// A place for one more session of this key, if there is one.
    pub fn session(&self, key: Fingerprint) -> Option<Seat> {
        let mut present = lock(&self.present);
        let here = present.keys.get(&key).copied().unwrap_or(0);
        if here >= self.limits.sessions_per_key {
            return None;
        }
        present.keys.insert(key, here + 1);
        Some(Seat { present: Arc::clone(&self.present), taken: Taken::Session(key) })
    }

    /// A number for a session.
    pub fn number(&self) -> SessionId {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut present = lock(&self.present);
        match self.taken {
            Taken::Connection(from) => {
                present.total = present.total.saturating_sub(1);
                leave(&mut present.addresses, from);
            }
            Taken::Session(key) => leave(&mut present.keys, key),
        }
    }
}

fn leave<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

fn lock(present: &Mutex<Present>) -> std::sync::MutexGuard<'_, Present> {
    present.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_full_house_admits_again_when_somebody_leaves() {
        let limits = Limits { connections: 3, connections_per_address: 2, sessions_per_key: 1 };
        let guests = Guests::new(limits);
        let (a, b) = ("10.0.0.1".parse().unwrap(), "::ffff:10.0.0.1".parse().unwrap());
        let first = guests.seat(a).unwrap();
        let _second = guests.seat(b).unwrap();
        assert!(guests.seat(a).is_none(), "both spellings are one address");
        let _third = guests.seat("10.0.0.2".parse().unwrap()).unwrap();
        assert!(guests.seat("10.0.0.3".parse().unwrap()).is_none(), "the house is full");
        drop(first);
        assert!(guests.seat(a).is_some());
    }
}
