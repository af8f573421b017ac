//! What surrounds a session's datagrams: addresses and keys.
//!
//! A datagram is believed when it came from where the session's peer may be and opens under its
//! key. An initiator knows the peer's address; a responder knows the IP address and follows the
//! port that the newest authentic datagram came from, because address translators change ports.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gtp_proto::room::STRANGERS;
use gtp_proto::wire::{HEADER_LEN, Header};
use gtp_proto::{Link, Owner, PathName, Revision, Role};
use gtp_sys::address::canonical;
use gtp_sys::udp::Origin;

use gtp_alloc::{Rate, Time};

use super::api::{Allowance, SessionOpen, SocketId, Way};
use super::batch::Batch;
use super::carrier::Outgoing;
use super::details;
use super::ways::{Came, Carriage, End, Watch};
use crate::crypto::{Forged, Opener, Sealer};

/// Addresses and keys of one session.
pub(super) struct Envelope {
    pub socket: SocketId,
    pub local_session: u32,
    peer_session: u32,
    peer: SocketAddr,
    /// The local address that the peer sends to, to answer from.
    local: Option<IpAddr>,
    learns: Learns,
    principal: u64,
    /// A limit of the user for this session alone.
    max_rate: Rate,
    allowance: Allowance,
    revision: Revision,
    sealer: Sealer,
    opener: Opener,
    newest: Option<u64>,
    /// The way besides UDP, if there is one.
    carriage: Option<Carriage>,
    /// Where the peer, of which no datagram has come by UDP, says that it takes them.
    door: Option<SocketAddr>,
    /// What waits to be sent that way.
    outgoing: Option<Arc<Outgoing>>,
    watch: Watch,
}

/// What a session still has to learn of its peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Learns {
    /// Nothing, ever.
    Nothing,
    /// The port, of which nothing is known yet.
    Port,
    /// The port; one is known.
    NewPort,
}

/// Why a datagram was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It came from an address, or on a socket, where this session has no peer.
    Stranger,
    /// It does not open under the session's key.
    Forged,
    /// The key has seen too many forgeries; the session must end.
    Exhausted,
}

/// Where a session's datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub socket: SocketId,
    pub to: SocketAddr,
    pub from: Option<IpAddr>,
}

/// What goes by UDP beside a batch that a carrier takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing does.
    Nothing,
    /// A copy of its longest datagram.
    Copy(Destination),
    /// A datagram that says nothing.
    Knock(Destination),
}

impl Envelope {
    pub fn new(open: &SessionOpen) -> Envelope {
        let keys = &open.keys;
        Envelope {
            socket: open.socket,
            local_session: open.local_session,
            peer_session: open.peer_session,
            peer: canonical(open.peer),
            local: None,
            learns: match open.role {
                Role::Initiator { .. } | Role::Eager { .. } => Learns::Nothing,
                Role::Responder => Learns::Port,
            },
            principal: open.principal,
            max_rate: open.max_rate,
            allowance: open.allowance,
            revision: open.revision,
            sealer: Sealer::new(keys.suite, keys.seal.clone()),
            opener: Opener::new(keys.suite, keys.open.clone()),
            newest: None,
            carriage: None,
            door: None,
            outgoing: None,
            watch: Watch::default(),
        }
    }

    /// Where the peer is.
    pub fn peer_ip(&self) -> IpAddr {
        self.peer.ip()
    }

    /// Both ids of the session, the smaller one first: the same at both ends.
    pub fn ids(&self) -> [u32; 2] {
        let (one, other) = (self.local_session, self.peer_session);
        [one.min(other), one.max(other)]
    }

    /// Gives the session another way besides UDP, unless it has one.
    pub fn carry(
        &mut self,
        now: Time,
        (carrier, outgoing): (SocketId, Arc<Outgoing>),
        receives: bool,
    ) {
        if self.carriage.is_none() {
            self.carriage = Some(Carriage::new(carrier, self.end(), receives, now));
            self.outgoing = Some(outgoing);
        }
    }

    /// Lets knocks go by UDP to this port of the peer's, if this carrier is its way besides UDP: a
    /// firewall on this side then lets the peer's datagrams in. An initiator does not knock.
    pub fn go_first(&mut self, now: Time, carrier: SocketId, port: u16) {
        if let Some(carriage) = self.carriage.as_mut().filter(|carriage| carriage.id == carrier) {
            carriage.begin_to_knock(now);
            self.door = Some(SocketAddr::new(self.peer.ip(), port));
        }
    }

    /// Where a knock goes, if it is time for one: where the peer's last datagram by UDP came from,
    /// or where the peer says that it takes them.
    fn knock_to(&mut self, now: Time) -> Option<Destination> {
        let door = self.door.map(|to| Destination { socket: self.socket, to, from: self.local });
        let to = self.udp().or(door)?;
        self.carriage.as_mut()?.knocks(now).then_some(to)
    }

    /// Takes the way besides UDP away, if it is this one. Says whether it was.
    pub fn drop_carrier(&mut self, carrier: SocketId) -> bool {
        let is_dropped = self.carriage.take_if(|carriage| carriage.id == carrier).is_some();
        self.outgoing.take_if(|_| is_dropped);
        is_dropped
    }

    /// Whether content may leave at `now`, a batch at most: UDP takes it, and a carrier that has
    /// room. One that has none tells the engine when it has.
    pub fn has_room(&self, now: Time) -> bool {
        let in_use = self.outgoing.as_ref().filter(|_| self.way() == Way::Control);
        in_use.is_none_or(|outgoing| outgoing.has_room(now))
    }

    /// Looks whether the peer has been silent for too long. If this end leads, the carrier is used
    /// then; where there is none, or the peer leads, the answer is `true`.
    pub fn is_silent(&mut self, now: Time) -> bool {
        let waits = self.end() == End::Responder && !self.has_heard();
        let silent = self.watch.is_silent(now) && !waits && self.revision >= Revision::Fourth;
        silent && self.give_up_udp(now)
    }

    /// The peer hears nothing from here. The answer is as of [`Envelope::is_silent`].
    pub fn handle_unheard(&mut self, now: Time) -> bool {
        !self.watch.has_stalled(now) && self.give_up_udp(now)
    }

    fn give_up_udp(&mut self, now: Time) -> bool {
        match &mut self.carriage {
            Some(carriage) => {
                carriage.take(now);
                !carriage.is_in_use()
            }
            None => true,
        }
    }

    /// By which way datagrams leave.
    pub fn way(&self) -> Way {
        let in_use = self.carriage.as_ref().is_some_and(Carriage::is_in_use);
        if in_use { Way::Control } else { Way::Udp }
    }

    fn end(&self) -> End {
        if self.learns == Learns::Nothing { End::Initiator } else { End::Responder }
    }

    /// Whether a datagram has come that opened under the session's key.
    pub fn has_heard(&self) -> bool {
        self.newest.is_some()
    }

    /// The address of the client that this host serves, if it does.
    pub fn client(&self) -> Option<IpAddr> {
        (self.learns != Learns::Nothing).then_some(self.peer.ip())
    }

    /// The number of the client's key, if there is one.
    pub fn principal(&self) -> u64 {
        self.principal
    }

    /// Changes what the client has here. Returns the limit that is left to this session, if its
    /// allowance was another one.
    pub fn allow(&mut self, allowance: Allowance) -> Option<Rate> {
        let was = std::mem::replace(&mut self.allowance, allowance);
        (was != allowance).then(|| self.max_rate.min(allowance.single))
    }

    /// For whom the session runs: a client that this host serves, by its key if that is on the
    /// list, else by its address. Where this host is the client it may act for a key.
    pub fn owner(&self) -> Owner {
        let number = match (self.principal, self.client()) {
            (0, None) => return Owner::NOBODY,
            (0, Some(client)) => details::principal(client),
            (key, _) => key,
        };
        let Allowance { weight, most, single: _, class } = self.allowance;
        Owner { number, most, weight: weight as f32, class }
    }

    /// With whom the session shares room to grow: the client's key if it is on the list, else all
    /// strangers; nobody where this host neither serves nor fetches for a client.
    pub fn party(&self) -> u64 {
        match (self.principal, self.learns) {
            (0, Learns::Nothing) => 0,
            (0, Learns::Port | Learns::NewPort) => STRANGERS,
            (key, _) => key,
        }
    }

    /// The name of the path to the peer, once it is known. A client whose key is not on the list
    /// has none: its sessions share their path with nobody. Of a client the address and the key
    /// count, since ports change. A server is one whose address and port this host has chosen. A
    /// connection that carries datagrams is a path of its own.
    pub fn path_name(&self) -> Option<PathName> {
        let mut key = [0; 32];
        match (self.learns, self.principal) {
            (Learns::Nothing, _) => key[..2].copy_from_slice(&self.peer.port().to_le_bytes()),
            (Learns::Port, _) | (Learns::NewPort, 0) => return None,
            (Learns::NewPort, number) => key[2..10].copy_from_slice(&number.to_le_bytes()),
        }
        if self.way() == Way::Control {
            key[CARRIED_AT] = 1;
            key[CARRIED_AT + 1..][..4].copy_from_slice(&self.local_session.to_le_bytes());
        }
        let local = self.local.map_or([0; 16], octets);
        Some(PathName::new(local, octets(self.peer.ip()), key))
    }

    /// What the core needs to know of the path.
    pub fn link(&self) -> Link {
        let ip_overhead = match self.peer {
            SocketAddr::V4(_) => 28,
            SocketAddr::V6(_) => 48,
        };
        Link { peer_session: self.peer_session, ip_overhead, revision: self.revision }
    }

    /// Where to send, once that is known.
    pub fn destination(&self) -> Option<Destination> {
        match &self.carriage {
            Some(carriage) if carriage.is_in_use() => {
                Some(Destination { socket: carriage.id, to: self.peer, from: None })
            }
            Some(_) | None => self.udp(),
        }
    }

    fn udp(&self) -> Option<Destination> {
        match self.learns {
            Learns::Port => None,
            Learns::Nothing | Learns::NewPort => {
                Some(Destination { socket: self.socket, to: self.peer, from: self.local })
            }
        }
    }

    /// What goes by UDP beside a batch; nothing beside an empty one, which is not sent.
    pub fn beside(&mut self, now: Time, batch: &Batch) -> Beside {
        if batch.is_empty() {
            return Beside::Nothing;
        }
        match self.copy_to(now, batch) {
            Some(to) => Beside::Copy(to),
            None => self.knock_to(now).map_or(Beside::Nothing, Beside::Knock),
        }
    }

    /// Where a copy of the longest datagram of a batch goes, to try UDP, if it is time.
    fn copy_to(&mut self, now: Time, batch: &Batch) -> Option<Destination> {
        if !self.carriage.as_ref()?.wants_copy(now, batch.longest()) {
            return None;
        }
        let udp = self.udp()?;
        self.carriage.as_mut()?.copied(now, self.newest);
        Some(udp)
    }

    /// Opens a datagram where it lies and returns its clear body.
    #[inline]
    pub fn open<'d>(
        &mut self,
        now: Time,
        (socket, origin): (SocketId, &Origin),
        header: Header,
        datagram: &'d mut [u8],
    ) -> Result<&'d [u8], Refusal> {
        let length = datagram.len();
        let way = match &self.carriage {
            Some(carriage) if carriage.id == socket => Way::Control,
            Some(_) | None => Way::Udp,
        };
        let expected = match self.learns {
            Learns::Nothing => origin.from == self.peer,
            Learns::Port | Learns::NewPort => origin.from.ip() == self.peer.ip(),
        };
        if way == Way::Udp && !(expected && socket == self.socket) {
            return Err(Refusal::Stranger);
        }
        let Some((head, body)) = datagram.split_at_mut_checked(HEADER_LEN) else {
            return Err(Refusal::Forged);
        };
        let body = self.opener.open_in_place(header.pn, head, body).map_err(|why| match why {
            Forged::Short | Forged::StrangeEpoch | Forged::BadTag => Refusal::Forged,
            Forged::Exhausted => Refusal::Exhausted,
        })?;
        let newest = self.newest.is_none_or(|newest| header.pn > newest);
        self.watch.hear(now);
        if let Some(carriage) = &mut self.carriage {
            carriage.hear(Came { way, number: header.pn, newest, length });
        }
        if newest {
            self.newest = Some(header.pn);
            if self.learns != Learns::Nothing && way == Way::Udp {
                self.learns = Learns::NewPort;
                self.peer = origin.from;
                self.local = origin.to;
            }
        }
        Ok(body)
    }

    /// Seals the datagram that starts at `start` and ends with `bytes`, and appends its tag.
    #[inline]
    pub fn seal(&mut self, pn: u64, bytes: &mut Vec<u8>, start: usize) {
        let (head, body) = bytes[start..].split_at_mut(HEADER_LEN);
        let tag = self.sealer.seal_in_place(pn, head, body);
        bytes.extend_from_slice(&tag);
    }
}

/// Where a path's name has what tells connections that carry datagrams from each other, behind the
/// port or the key's number.
const CARRIED_AT: usize = 16;

/// An address as a path's name has it.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use gtp_proto::{PathUse, Weights};

    use super::super::api::SessionKeys;
    use super::super::law::Law;
    use super::*;
    use crate::crypto::{Suite, TrafficSecret};

    fn initiator() -> Envelope {
        initiator_for(0, Allowance::default())
    }

    /// A session of a host that is the client, on behalf of a key.
    fn initiator_for(principal: u64, allowance: Allowance) -> Envelope {
        let secret = |byte| TrafficSecret::new([byte; 32]);
        let keys = SessionKeys { suite: Suite::ChaCha20Poly1305, seal: secret(1), open: secret(2) };
        Envelope::new(&SessionOpen {
            socket: SocketId(1),
            peer: SocketAddr::from(([10, 0, 0, 1], 1)),
            local_session: 1,
            peer_session: 2,
            keys,
            revision: Revision::NEWEST,
            role: Role::Initiator { unit_payloads: vec![1_180] },
            law: Law::Grant,
            weights: Weights::ONE,
            path: PathUse::default(),
            max_rate: Rate::UNLIMITED,
            principal,
            allowance,
            label: String::new(),
        })
    }

    #[test]
    fn a_session_that_fetches_for_a_client_is_that_clients_and_one_for_nobody_is_nobodys() {
        assert_eq!(initiator().owner(), Owner::NOBODY);
        let (weight, most) = (2.0, Rate::from_mbps(5));
        let allowance = Allowance { weight, most, single: most, class: 3 };
        let mut fetching = initiator_for(7, allowance);
        assert_eq!(fetching.owner(), Owner { number: 7, most, weight: 2.0, class: 3 });
        assert_eq!((fetching.party(), fetching.client()), (7, None));
        let more = Allowance { single: Rate::from_mbps(9), ..allowance };
        assert_eq!(fetching.allow(more), Some(Rate::from_mbps(9)));
        assert_eq!(fetching.allow(more), None, "that is no news");
    }

    #[test]
    fn a_second_carrier_neither_takes_the_place_of_the_first_nor_takes_it_away() {
        let (mut envelope, first, second) = (initiator(), SocketId(2), SocketId(3));
        let socket = |envelope: &Envelope| envelope.destination().unwrap().socket;
        envelope.carry(Time::ZERO, (first, Arc::default()), true);
        envelope.carry(Time::ZERO, (second, Arc::default()), true);
        assert_eq!(socket(&envelope), first);
        assert!(!envelope.drop_carrier(second));
        assert_eq!(socket(&envelope), first);
        assert!(envelope.drop_carrier(first));
        assert_eq!((envelope.way(), socket(&envelope)), (Way::Udp, SocketId(1)));
    }
}
