//! Which clients have a place, and which give theirs up for others. Decisions only.
//!
//! A connection without a proved key waits in a separate pool. The pool is never full: the oldest
//! connection of the neighbourhood that has most there makes room. A client with a proved key that
//! has said what it wants is admitted. Strangers hold at most half of the places, and one
//! neighbourhood a part of that. An idle stranger makes room for a listed client, and for a
//! stranger from a neighbourhood with fewer. Time is an argument; connections are unknown here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use gtp_alloc::{Span, Time};

use super::admission::Limits;
use super::budget::Holder;
use crate::identity::Fingerprint;
use crate::trust::{Access, ClientTrust};

/// Numbers clients in the order in which they come.
pub(crate) type ClientId = u64;

/// The addresses that one customer of a network typically has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Neighbourhood {
    /// An address of IPv4.
    Address(Ipv4Addr),
    /// A /64 prefix of IPv6.
    Prefix([u16; 4]),
    /// All neighbourhoods that are not told apart.
    Others,
}

impl Neighbourhood {
    pub fn of(address: IpAddr) -> Neighbourhood {
        match address.to_canonical() {
            IpAddr::V4(v4) => Neighbourhood::Address(v4),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Neighbourhood::Prefix([a, b, c, d])
            }
        }
    }
}

/// A client whose key is proved.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub from: Neighbourhood,
    pub key: Fingerprint,
    pub holder: Holder,
    pub right: Right,
    /// What it must be allowed beside its right, if anything.
    pub may_stay: Option<MayStay>,
}

/// Whether a client may go on with what it does, by this list of keys.
#[derive(Clone)]
pub(crate) struct MayStay(pub Arc<dyn Fn(&ClientTrust) -> bool + Send + Sync>);

impl fmt::Debug for MayStay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MayStay")
    }
}

/// What a client needs to be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// It lists or gets.
    Read,
    /// It puts.
    Write,
    /// It opens a stream, and sends and receives data.
    Both,
    /// It opens a stream to a service that is open to all.
    None,
}

impl Right {
    /// Whether this access allows it.
    pub fn within(self, access: Access) -> bool {
        match self {
            Right::Read => access.read,
            Right::Write => access.write,
            Right::Both => access.read && access.write,
            Right::None => true,
        }
    }
}

/// Why there is no place for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All places are taken, or all that strangers may have.
    Server,
    /// The client's neighbourhood has all that it may have.
    Neighbourhood,
    /// The client's key has all that it may have.
    Key,
    /// The client had to leave before it said what it wants.
    Gone,
}

/// Which clients are there: those that wait for a place, and those that have one.
pub(crate) struct Occupancy {
    limits: Limits,
    unproved: BTreeMap<ClientId, Neighbourhood>,
    admitted: HashMap<ClientId, Place>,
    /// Clients that gave their places to others and are not gone yet.
    leaving: HashSet<ClientId>,
    last: ClientId,
}

struct Place {
    client: Admitted,
    /// How much it has received, in the caller's unit; a change is a sign of life.
    had: u64,
    /// When that last changed.
    since: Time,
}

/// A stranger that was idle for this long makes room for others.
const IDLE_SPAN: Span = Span::from_secs(2);

/// A stranger that is idle for this long is sent away. An honest client that was held up comes
/// again, and a get that waits for its own disk asks for something within this time.
pub(crate) const DOZING_SPAN: Span = Span::from_secs(60);

impl Occupancy {
    pub fn new(limits: Limits) -> Occupancy {
        let (unproved, admitted, leaving) = (BTreeMap::new(), HashMap::new(), HashSet::new());
        Occupancy { limits, unproved, admitted, leaving, last: 0 }
    }

    /// A connection arrives. Returns the client that must leave the pool for it, if any.
    pub fn arrive(&mut self, from: Neighbourhood) -> (ClientId, Option<ClientId>) {
        let mut counts: HashMap<Neighbourhood, usize> = HashMap::new();
        for &there in self.unproved.values() {
            *counts.entry(there).or_default() += 1;
        }
        let here = counts.get(&from).copied().unwrap_or(0);
        let crowd = if here >= self.limits.unproved_per_address {
            here
        } else if self.unproved.len() >= self.limits.unproved {
            counts.values().copied().max().unwrap_or(0)
        } else {
            usize::MAX
        };
        let own = here >= self.limits.unproved_per_address;
        let makes_room = |whence: &Neighbourhood| {
            counts.get(whence) == Some(&crowd) && (!own || *whence == from)
        };
        let oldest = self.unproved.iter().find(|(_, whence)| makes_room(whence));
        let evicted = oldest.map(|(&id, _)| id);
        if let Some(id) = evicted {
            self.unproved.remove(&id);
            self.leaving.insert(id);
        }
        self.last += 1;
        self.unproved.insert(self.last, from);
        (self.last, evicted)
    }

    /// A client in the pool has proved its key and wants a place. Returns the client that must
    /// leave for it, if any; the place can be used when that client is gone.
    pub fn admit(
        &mut self,
        id: ClientId,
        (key, holder, right): (Fingerprint, Holder, Right),
        now: Time,
    ) -> Result<Option<ClientId>, Full> {
        let Some(&from) = self.unproved.get(&id) else { return Err(Full::Gone) };
        let client = Admitted { from, key, holder, right, may_stay: None };
        let evicted = match holder {
            Holder::Listed(_) => self.for_listed(&client, now)?,
            Holder::Strangers => self.for_stranger(&client, now)?,
        };
        if let Some(id) = evicted {
            self.admitted.remove(&id);
            self.leaving.insert(id);
        }
        self.unproved.remove(&id);
        self.admitted.insert(id, Place { client, had: 0, since: now });
        Ok(evicted)
    }

    fn for_listed(&self, client: &Admitted, now: Time) -> Result<Option<ClientId>, Full> {
        self.check_key(client)?;
        if self.admitted.len() < self.limits.connections {
            return Ok(None);
        }
        self.idle(now, |_| true).map(Some).ok_or(Full::Server)
    }

    fn for_stranger(&self, client: &Admitted, now: Time) -> Result<Option<ClientId>, Full> {
        self.check_key(client)?;
        let mut counts: HashMap<Neighbourhood, usize> = HashMap::new();
        for place in self.strangers() {
            *counts.entry(place.client.from).or_default() += 1;
        }
        let here = counts.get(&client.from).copied().unwrap_or(0);
        if here >= self.limits.connections_per_address {
            let own = |from: Neighbourhood| from == client.from;
            return self.idle(now, own).map(Some).ok_or(Full::Neighbourhood);
        }
        let strangers: usize = counts.values().sum();
        let most = (self.limits.connections / 2).max(1);
        if strangers < most && self.admitted.len() < self.limits.connections {
            return Ok(None);
        }
        let crowded = |from: Neighbourhood| counts.get(&from).is_some_and(|&n| n > here + 1);
        self.idle(now, crowded).map(Some).ok_or(Full::Server)
    }

    fn check_key(&self, client: &Admitted) -> Result<(), Full> {
        let own = self.admitted.values().filter(|place| place.client.key == client.key).count();
        if own < self.limits.sessions_per_key { Ok(()) } else { Err(Full::Key) }
    }

    fn strangers(&self) -> impl Iterator<Item = &Place> {
        self.admitted.values().filter(|place| place.client.holder == Holder::Strangers)
    }

    /// The stranger that has been idle for longest, among the neighbourhoods that `from` accepts.
    fn idle(&self, now: Time, from: impl Fn(Neighbourhood) -> bool) -> Option<ClientId> {
        let idle = self.admitted.iter().filter(|(_, place)| {
            place.client.holder == Holder::Strangers
                && from(place.client.from)
                && now.since(place.since) >= IDLE_SPAN
        });
        idle.min_by_key(|(id, place)| (place.since, **id)).map(|(&id, _)| id)
    }

    /// Records how much a client has received so far.
    pub fn note(&mut self, id: ClientId, had: u64, now: Time) {
        if let Some(place) = self.admitted.get_mut(&id)
            && place.had != had
        {
            (place.had, place.since) = (had, now);
        }
    }

    /// Says what a client that has a place must be allowed beside its right.
    pub fn set_may_stay(&mut self, id: ClientId, may_stay: MayStay) {
        if let Some(place) = self.admitted.get_mut(&id) {
            place.client.may_stay = Some(may_stay);
        }
    }

    /// Strangers that have been idle for longer than [`DOZING_SPAN`].
    pub fn dozing(&self, now: Time) -> Vec<ClientId> {
        let dozing = self.admitted.iter().filter(|(_, place)| {
            place.client.holder == Holder::Strangers && now.since(place.since) >= DOZING_SPAN
        });
        dozing.map(|(&id, _)| id).collect()
    }

    /// The admitted clients for which `answer` returns something, each with that.
    pub fn ask<T>(&self, answer: impl Fn(&Admitted) -> Option<T>) -> Vec<(ClientId, T)> {
        let answers = self.admitted.iter().map(|(&id, place)| (id, answer(&place.client)));
        answers.filter_map(|(id, answer)| Some((id, answer?))).collect()
    }

    /// Whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.unproved.is_empty() && self.admitted.is_empty()
    }

    /// A client is gone.
    pub fn leave(&mut self, id: ClientId) {
        self.unproved.remove(&id);
        self.admitted.remove(&id);
        self.leaving.remove(&id);
    }

    /// A client's connection is gone. What works for it may hold its place a little longer, unless
    /// another client has it.
    pub fn is_gone(&mut self, id: ClientId) {
        self.leaving.remove(&id);
    }

    /// Whether a client gave its place to another and is not gone yet.
    pub fn is_leaving(&self, id: ClientId) -> bool {
        self.leaving.contains(&id)
    }

    /// How many such clients there are.
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    const START: Time = Time::from_nanos(1_000_000_000);

    fn at(seconds: u64) -> Time {
        START + Span::from_secs(seconds)
    }

    fn from(last: u8) -> Neighbourhood {
        Neighbourhood::Address(Ipv4Addr::new(127, 0, 0, last))
    }

    fn key() -> Fingerprint {
        Identity::generate().fingerprint()
    }

    fn limits(connections: usize, connections_per_address: usize) -> Limits {
        Limits { connections, connections_per_address, ..Limits::default() }
    }

    /// Comes and asks for a place at once.
    fn come(
        occupancy: &mut Occupancy,
        whence: Neighbourhood,
        who: (Fingerprint, Holder, Right),
        now: Time,
    ) -> Result<(ClientId, Option<ClientId>), Full> {
        let (id, _) = occupancy.arrive(whence);
        let admitted = occupancy.admit(id, who, now).map(|evicted| (id, evicted));
        if admitted.is_err() {
            occupancy.leave(id);
        }
        admitted
    }

    fn stranger() -> (Fingerprint, Holder, Right) {
        (key(), Holder::Strangers, Right::Read)
    }

    fn listed() -> (Fingerprint, Holder, Right) {
        let key = key();
        (key, Holder::Listed(key), Right::Read)
    }

    #[test]
    fn silent_connections_push_out_their_like_and_never_somebody_who_has_just_come() {
        let mut occupancy = Occupancy::new(Limits::default());
        let mut friends = Vec::new();
        // Eight addresses at 140 a second each, and a friend every tenth of a second.
        for tick in 0..8 * 140 * 60_u64 {
            let (_, evicted) = occupancy.arrive(from((tick % 8) as u8));
            assert!(!evicted.is_some_and(|id| friends.contains(&id)), "at {tick}");
            if tick.is_multiple_of(112) {
                // It takes its time: two seconds.
                friends.push(occupancy.arrive(from(99)).0);
                if friends.len() > 20 {
                    occupancy.leave(friends.remove(0));
                }
            }
            assert!(occupancy.unproved.len() <= Limits::default().unproved);
        }
    }

    #[test]
    fn a_pool_full_of_as_many_addresses_keeps_whoever_came_last_for_longest() {
        let mut occupancy = Occupancy::new(Limits { unproved: 100, ..Limits::default() });
        let prefix = |n: u16| Neighbourhood::Prefix([1, 2, 3, n]);
        for n in 0..100 {
            assert_eq!(occupancy.arrive(prefix(n)).1, None);
        }
        let (friend, _) = occupancy.arrive(from(1));
        for n in 100..190 {
            assert_ne!(occupancy.arrive(prefix(n)).1, Some(friend), "{n}");
        }
    }

    #[test]
    fn strangers_have_half_of_the_places_and_listed_clients_the_rest() {
        let mut occupancy = Occupancy::new(limits(8, 64));
        for n in 0..4 {
            come(&mut occupancy, from(n), stranger(), at(0)).unwrap();
        }
        assert_eq!(come(&mut occupancy, from(9), stranger(), at(1)), Err(Full::Server));
        for n in 0..4 {
            assert_eq!(come(&mut occupancy, from(n), listed(), at(1)).unwrap().1, None);
        }
        assert_eq!(come(&mut occupancy, from(9), listed(), at(1)), Err(Full::Server));
    }

    #[test]
    fn an_idle_stranger_makes_room_for_a_listed_client_and_a_busy_one_does_not() {
        let mut occupancy = Occupancy::new(limits(2, 64));
        let (busy, _) = come(&mut occupancy, from(1), stranger(), at(0)).unwrap();
        come(&mut occupancy, from(1), listed(), at(0)).unwrap();
        occupancy.note(busy, 1_000, at(4));
        assert_eq!(come(&mut occupancy, from(2), listed(), at(5)), Err(Full::Server));
        occupancy.note(busy, 1_000, at(7));
        let (_, evicted) = come(&mut occupancy, from(2), listed(), at(7)).unwrap();
        assert_eq!(evicted, Some(busy));
    }

    #[test]
    fn a_stranger_takes_the_place_of_an_idle_one_from_where_there_are_more() {
        let mut occupancy = Occupancy::new(limits(8, 64));
        let first = come(&mut occupancy, from(1), stranger(), at(0)).unwrap().0;
        for _ in 0..3 {
            come(&mut occupancy, from(1), stranger(), at(1)).unwrap();
        }
        assert_eq!(come(&mut occupancy, from(1), stranger(), at(9)), Err(Full::Server));
        let (second, evicted) = come(&mut occupancy, from(2), stranger(), at(9)).unwrap();
        assert_eq!(evicted, Some(first));
        // Now there are three and one: one more makes it even, and then nobody gives way.
        let (_, evicted) = come(&mut occupancy, from(2), stranger(), at(9)).unwrap();
        assert!(evicted.is_some_and(|id| id != second));
        assert_eq!(come(&mut occupancy, from(2), stranger(), at(19)), Err(Full::Server));
    }

    #[test]
    fn one_neighbourhood_and_one_key_have_their_number_of_places() {
        let mut occupancy = Occupancy::new(Limits { sessions_per_key: 3, ..limits(100, 2) });
        for _ in 0..2 {
            come(&mut occupancy, from(1), stranger(), at(0)).unwrap();
        }
        assert_eq!(come(&mut occupancy, from(1), stranger(), at(1)), Err(Full::Neighbourhood));
        come(&mut occupancy, from(2), stranger(), at(1)).unwrap();
        let friend = listed();
        for _ in 0..3 {
            come(&mut occupancy, from(1), friend, at(1)).unwrap();
        }
        assert_eq!(come(&mut occupancy, from(3), friend, at(1)), Err(Full::Key));
    }

    #[test]
    fn a_stranger_dozes_off_when_it_has_had_nothing_for_a_minute() {
        let mut occupancy = Occupancy::new(limits(8, 8));
        let (idle, _) = come(&mut occupancy, from(1), stranger(), at(0)).unwrap();
        let (busy, _) = come(&mut occupancy, from(1), stranger(), at(0)).unwrap();
        come(&mut occupancy, from(1), listed(), at(0)).unwrap();
        occupancy.note(busy, 1, at(30));
        assert!(occupancy.dozing(at(59)).is_empty());
        assert_eq!(occupancy.dozing(at(60)), [idle]);
    }

    #[test]
    fn who_left_the_pool_gets_no_place() {
        let mut occupancy = Occupancy::new(Limits { unproved: 1, ..Limits::default() });
        let (first, _) = occupancy.arrive(from(1));
        let (_, evicted) = occupancy.arrive(from(2));
        assert_eq!(evicted, Some(first));
        assert_eq!(occupancy.admit(first, listed(), at(0)), Err(Full::Gone));
    }

    #[test]
    fn both_spellings_of_an_address_and_all_addresses_of_a_prefix_are_one_neighbourhood() {
        let of = |text: &str| Neighbourhood::of(text.parse().unwrap());
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }
}
