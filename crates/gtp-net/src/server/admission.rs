//! Who may come, and how many.
//!
//! Two questions that are asked before anything costs much: is there a place, and is the key on
//! the list. A place is taken by a value and given back when that value is dropped.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::{Bytes, Span, Time};

use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::messages::{ENTRY_MEMORY, LISTINGS_MEMORY};
use crate::trust::{AuthorizedKeys, ClientTrust, Strangers};

use super::SessionId;
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
    /// Connections in all: each holds a TLS session and, at most, one page of a megabyte.
    pub connections: usize,
    /// Connections from one address of IPv4, or from one /64 prefix of IPv6, of which anybody may
    /// have all addresses.
    pub connections_per_address: usize,
    /// Sessions of one key.
    pub sessions_per_key: usize,
    /// Memory for the listings of all sessions together, 384 bytes and the path for each entry.
    /// One key of the list, and all keys that are not on it together, get at most a quarter. Who
    /// finds it used up is told to come again later.
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

/// The memory, in bytes, that one entry with a path of this length is taken to need; a name that
/// is passed over has none.
pub(crate) fn listing_bytes(path: usize) -> u64 {
    if path == 0 { 0 } else { ENTRY_MEMORY + path as u64 }
}

/// Who is here.
pub(crate) struct Guests {
    limits: Limits,
    present: Arc<Mutex<Present>>,
    sessions: AtomicU64,
    turned_away: Mutex<TurnedAway>,
}

/// Whose being turned away was told when, so that a flood does not fill a log.
#[derive(Default)]
struct TurnedAway {
    told: HashMap<Neighbourhood, Told>,
    /// Those turned away from neighbourhoods that are forgotten, and not told.
    forgotten: u64,
}

struct Told {
    at: Option<Time>,
    /// Those turned away since.
    more: u64,
}

/// Time between two words on the same neighbourhood.
const TELL_SPAN: Span = Span::from_secs(60);

/// Neighbourhoods that are told apart: 64 KiB. Beyond them all others count as one.
const NEIGHBOURHOODS: usize = 1_024;

/// What one customer of a network has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Neighbourhood {
    /// An address of IPv4.
    Address(Ipv4Addr),
    /// A /64 prefix of IPv6.
    Prefix([u16; 4]),
    /// All that are not told apart.
    Others,
}

impl Neighbourhood {
    fn of(address: IpAddr) -> Neighbourhood {
        match address.to_canonical() {
            IpAddr::V4(v4) => Neighbourhood::Address(v4),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Neighbourhood::Prefix([a, b, c, d])
            }
        }
    }
}

impl TurnedAway {
    /// Notes one; says whether it is to be told now, with how many were not told before.
    fn note(&mut self, from: IpAddr, now: Time) -> Option<u64> {
        let mut whose = Neighbourhood::of(from);
        if self.told.len() >= NEIGHBOURHOODS && !self.told.contains_key(&whose) {
            self.forget(now);
            if self.told.len() >= NEIGHBOURHOODS {
                whose = Neighbourhood::Others;
            }
        }
        let told = self.told.entry(whose).or_insert(Told { at: None, more: 0 });
        if told.at.is_some_and(|at| now.since(at) < TELL_SPAN) {
            told.more += 1;
            return None;
        }
        told.at = Some(now);
        Some(std::mem::take(&mut told.more) + std::mem::take(&mut self.forgotten))
    }

    /// Makes room; who was not told is told with the next.
    fn forget(&mut self, now: Time) {
        let forgotten = &mut self.forgotten;
        self.told.retain(|_, told| {
            let recent = told.at.is_some_and(|at| now.since(at) < TELL_SPAN);
            if !recent {
                *forgotten += told.more;
            }
            recent
        });
    }
}

#[derive(Default)]
struct Present {
    total: usize,
    addresses: HashMap<Neighbourhood, usize>,
    keys: HashMap<Fingerprint, usize>,
}

/// What a guest takes until it is dropped.
#[derive(Clone, Copy)]
enum Taken {
    Connection(Neighbourhood),
    Session(Fingerprint),
}

/// A place that a guest takes.
pub(crate) struct Seat {
    present: Arc<Mutex<Present>>,
    taken: Taken,
}

impl Guests {
    pub fn new(limits: Limits) -> Guests {
        let (present, turned_away) = (Arc::default(), Mutex::default());
        Guests { limits, present, sessions: AtomicU64::new(1), turned_away }
    }

    /// Somebody was turned away; says whether that is to be told now, with how many were not told
    /// before: of his neighbourhood, and of those that are forgotten since.
    pub fn turned_away(&self, from: IpAddr, now: Time) -> Option<u64> {
        self.turned_away.lock().unwrap_or_else(PoisonError::into_inner).note(from, now)
    }

    /// A place for one more connection, if there is one.
    pub fn seat(&self, from: IpAddr) -> Option<Seat> {
        let from = Neighbourhood::of(from);
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
    use std::net::Ipv6Addr;

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
    fn nobody_who_was_turned_away_is_lost_when_neighbourhoods_are_forgotten() {
        let mut turned_away = TurnedAway::default();
        let (start, minute) = (Time::ZERO, Span::from_secs(60));
        let prefix = |n: u32| IpAddr::V6(Ipv6Addr::from(u128::from(n) << 64));
        for n in 0..1_024 {
            assert_eq!(turned_away.note(prefix(n), start), Some(0));
            assert_eq!(turned_away.note(prefix(n), start), None);
        }
        // The prefix of zeros, where the loopback address is, is not one of all others.
        assert_eq!(turned_away.note(prefix(2_000), start), Some(0));
        assert_eq!(turned_away.note(prefix(2_001), start), None);
        assert_eq!(turned_away.note(prefix(2_001), start + minute), Some(1_024 + 1));
        assert_eq!(turned_away.note(prefix(2_002), start + minute), Some(0));
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
