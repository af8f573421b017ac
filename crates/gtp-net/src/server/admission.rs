//! Who may come, and how many.
//!
//! Two questions that are asked before anything costs much: is there a place, and is the key on
//! the list. A place is taken by a value and given back when that value is dropped.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::{Bytes, Span, Time};

use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::messages::{ENTRY_MEMORY, LISTINGS_MEMORY};
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
    /// Connections from one address of IPv4, or from one /64 prefix of IPv6, of which anybody may
    /// have all addresses.
    pub connections_per_address: usize,
    /// Sessions of one key.
    pub sessions_per_key: usize,
    /// Memory for the listings of all sessions together, 384 bytes and the path for
    /// each entry. Who finds it used up is told to come again later.
    pub listings: Bytes,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 512,
            connections_per_address: 64,
            sessions_per_key: 64,
            listings: Bytes(LISTINGS_MEMORY),
        }
    }
}

/// The memory, in bytes, that one entry with a path of this length is taken to need.
pub(super) fn listing_bytes(path: usize) -> u64 {
    ENTRY_MEMORY + path as u64
}

/// Who is here.
pub(super) struct Guests {
    limits: Limits,
    present: Arc<Mutex<Present>>,
    sessions: AtomicU64,
    turned_away: Mutex<TurnedAway>,
}

/// Whose being turned away was told when, so that a flood does not fill a log.
#[derive(Default)]
struct TurnedAway {
    told: HashMap<IpAddr, Told>,
}

struct Told {
    at: Time,
    /// Those turned away since.
    more: u64,
}

/// Time between two words on the same neighbourhood.
const TELL_SPAN: Span = Span::from_secs(60);

/// Neighbourhoods that are told apart: 64 KiB. Beyond them all others count as one.
const NEIGHBOURHOODS: usize = 1_024;

/// What one customer of a network has: an address of IPv4, a /64 prefix of IPv6.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

impl TurnedAway {
    /// Notes one; says whether it is to be told now, with how many were not told before.
    fn note(&mut self, from: IpAddr, now: Time) -> Option<u64> {
        let mut whose = neighbourhood(from);
        if self.told.len() >= NEIGHBOURHOODS && !self.told.contains_key(&whose) {
            self.told.retain(|_, told| now.since(told.at) < TELL_SPAN);
            if self.told.len() >= NEIGHBOURHOODS {
                whose = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            }
        }
        match self.told.get_mut(&whose) {
            Some(told) if now.since(told.at) < TELL_SPAN => {
                told.more += 1;
                None
            }
            Some(told) => {
                told.at = now;
                Some(std::mem::take(&mut told.more))
            }
            None => {
                self.told.insert(whose, Told { at: now, more: 0 });
                Some(0)
            }
        }
    }
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
        let (present, turned_away) = (Arc::default(), Mutex::default());
        Guests { limits, present, sessions: AtomicU64::new(1), turned_away }
    }

    /// Somebody was turned away; says whether that is to be told now, with how many of his
    /// neighbourhood were not told before.
    pub fn turned_away(&self, from: IpAddr, now: Time) -> Option<u64> {
        self.turned_away.lock().unwrap_or_else(PoisonError::into_inner).note(from, now)
    }

    /// A place for one more connection, if there is one.
    pub fn seat(&self, from: IpAddr) -> Option<Seat> {
        let from = neighbourhood(from);
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
    fn addresses_of_one_prefix_are_one_guest_and_other_prefixes_are_not() {
        let limits = Limits { connections_per_address: 2, ..Limits::default() };
        let guests = Guests::new(limits);
        let address = |text: &str| text.parse().unwrap();
        let _first = guests.seat(address("2001:db8:1:2::1")).unwrap();
        let _second = guests.seat(address("2001:db8:1:2:ffff::9")).unwrap();
        assert!(guests.seat(address("2001:db8:1:2:3:4:5:6")).is_none());
        assert!(guests.seat(address("2001:db8:1:3::1")).is_some());
    }

    #[test]
    fn a_flood_is_told_once_a_minute_for_each_neighbourhood_with_its_number() {
        let mut turned_away = TurnedAway::default();
        let (start, minute) = (Time::ZERO, Span::from_secs(60));
        let from = |n: u64| IpAddr::V6(Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(n)));
        assert_eq!(turned_away.note(from(0), start), Some(0));
        for n in 1..100 {
            assert_eq!(turned_away.note(from(n), start), None);
        }
        assert_eq!(turned_away.note("10.0.0.1".parse().unwrap(), start), Some(0));
        assert_eq!(turned_away.note(from(100), start + minute), Some(99));
        assert_eq!(turned_away.note(from(101), start + minute), None);
        let prefix = |n: u32| IpAddr::V6(Ipv6Addr::from(u128::from(n) << 64));
        let told = (1..100_000).filter(|&n| turned_away.note(prefix(n), start + minute).is_some());
        assert!(told.count() <= NEIGHBOURHOODS);
        assert!(turned_away.told.len() <= NEIGHBOURHOODS + 1);
    }

    #[test]
    fn a_full_house_admits_again_when_somebody_leaves() {
        let limits = Limits { connections: 3, connections_per_address: 2, ..Limits::default() };
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
