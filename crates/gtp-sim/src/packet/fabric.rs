//! The network between hosts: links with what is under way on them, and routes over them.
//!
//! When a packet is offered, the link says at once when it will be at the far end. Where a host or
//! a controller is there, or a wire of no length, that is an event. Where the next link is a plain
//! one, it is none: the packet joins what is coming to that link, and before the first of that
//! could be at the link's own far end, the link takes in all that has come meanwhile, each at its
//! time. So only what hosts see costs events, and times are the same as if each step were one;
//! while steps are recorded, each is. What a packet is for is not known here.

use gtp_alloc::{Bytes, Span, Time};
use gtp_link::{Chance, Change, Link, LinkId, LinkSpec, Reason, Transit, Verdict};
use gtp_peers::Packet as Foreign;
use gtp_proto::Codepoint;

use super::flights::{Flight, Flights, Packet, Turn};
use super::gate::{Gate, Offered};
use super::managed::ManagedQueue;
use super::parcel::{Parcel, ParcelId, Parcels};
use super::schedule::{Key, Schedule};
use crate::hash::RunHash;
use crate::trace::{Fate, Record, Recorder, What};

/// A link with what is under way on it.
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    pub link: Link,
    /// When the schedule wakes it.
    booked: Time,
    /// What is on it and arrives by an event.
    flights: Flights,
    /// What is on links before it and is taken in without one.
    coming: Flights,
    /// The last moment at which the first of that may be taken in.
    intake: Time,
    /// So much later than a packet comes, it is taken in at the latest; zero if each step of a
    /// packet here is an event.
    ahead: Span,
    /// The turn of the last packet that it accepted.
    last: Turn,
    /// What is in front of it, if anything is.
    pub control: Option<Control>,
}

/// What is in front of a link, by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    /// A controller, which sees what the link's own queue takes and sends.
    Gate(u32),
    /// A managed queue in the place of the link's own.
    Managed(u32),
}

/// Where a route begins in the table of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route(pub u32);

/// A datagram as its sender hands it over: `head`, then `payload` zero bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    /// What it counts as on links.
    pub size: Bytes,
    pub head: &'a [u8],
    pub payload: u16,
    pub ecn: Codepoint,
}

/// After the last link of a route.
const END: u32 = u32::MAX;

/// All links, routes and packets, and the schedule of everything.
#[derive(Debug)]
pub(crate) struct Fabric {
    pub schedule: Schedule,
    pub pipes: Vec<Pipe>,
    pub parcels: Parcels,
    pub hash: RunHash,
    pub recorder: Recorder,
    pub gates: Vec<Gate>,
    pub managed: Vec<ManagedQueue>,
    /// Routes, one after another: links, then [`END`].
    hops: Vec<u32>,
    /// Packets sent, copies on the way included: the newest name.
    pub named: u64,
    /// Packets that were taken in without an event of their own.
    pub taken_in: u64,
}

/// A link shorter than this has an event for each packet: there is little to be taken in together.
const AHEAD_LEAST: Span = Span::from_micros(10);

impl Fabric {
    pub fn new(seed: u64) -> Fabric {
        Fabric {
            schedule: Schedule::default(),
            pipes: Vec::new(),
            parcels: Parcels::default(),
            hash: RunHash::new(seed),
            recorder: Recorder::default(),
            gates: Vec::new(),
            managed: Vec::new(),
            hops: Vec::new(),
            named: 0,
            taken_in: 0,
        }
    }

    pub fn add_link(&mut self, spec: LinkSpec, seed: u64) -> LinkId {
        let link = self.schedule.add_link();
        self.pipes.push(Pipe {
            link: Link::new(spec, seed),
            booked: Time::MAX,
            flights: Flights::default(),
            coming: Flights::default(),
            intake: Time::MAX,
            ahead: Span::ZERO,
            last: (Time::ZERO, 0),
            control: None,
        });
        self.look_ahead(link);
        LinkId(link as usize)
    }

    /// A route over these links, which exist.
    pub fn add_route(&mut self, links: &[LinkId]) -> Route {
        let start = self.hops.len() as u32;
        self.hops.extend(links.iter().map(|l| l.0 as u32));
        self.hops.push(END);
        Route(start)
    }

    /// The links of a route.
    pub fn links_of(&self, route: Route) -> impl Iterator<Item = u32> + '_ {
        self.hops[route.0 as usize..].iter().copied().take_while(|&hop| hop != END)
    }

    /// Propagation delays of a route as they are now.
    pub fn route_delay(&self, route: Route) -> Span {
        let delays = self.links_of(route).map(|hop| self.pipes[hop as usize].link.spec().delay);
        delays.fold(Span::ZERO, |sum, delay| sum + delay)
    }

    /// Sends a datagram. Returns the packet if its route has no links and it is there at once.
    pub fn send(
        &mut self,
        now: Time,
        route: Route,
        to: u32,
        datagram: &Datagram<'_>,
    ) -> Option<ParcelId> {
        let Datagram { size, head, payload, ecn } = *datagram;
        self.named += 1;
        self.hash.mix_bytes(head);
        self.hash.mix(size.0 ^ u64::from(to) << 32 ^ (ecn as u64) << 24);
        let mut parcel = Parcel::empty(self.named, size, to);
        (parcel.payload, parcel.ecn) = (payload, ecn);
        let id = self.parcels.insert(parcel, head);
        self.record(now, What::Sent, to, id);
        self.launch(now, Packet { size, parcel: id, hop: route.0 })
    }

    /// Sends a rival's packet of this size, as [`Self::send`] does a datagram.
    #[inline]
    pub fn send_foreign(
        &mut self,
        now: Time,
        route: Route,
        to: u32,
        size: Bytes,
        packet: Option<Foreign>,
    ) -> Option<ParcelId> {
        self.named += 1;
        self.hash.mix(size.0 ^ u64::from(to) << 32);
        let parcel = Parcel::empty(self.named, size, to);
        let id = self.parcels.insert_foreign(parcel, packet);
        self.record(now, What::Sent, to, id);
        self.launch(now, Packet { size, parcel: id, hop: route.0 })
    }

    /// Whether a link is woken at `now` for nothing but to take in what has come.
    #[inline]
    pub fn is_intake(&self, now: Time, link: u32) -> bool {
        self.pipes[link as usize].intake <= now
    }

    /// The next packet of a link is at its far end: takes it on. Returns it at its route's end.
    #[inline]
    pub fn arrive(&mut self, now: Time, link: u32) -> Option<ParcelId> {
        let pipe = &mut self.pipes[link as usize];
        let flight = pipe.flights.pop()?;
        pipe.book(link, &mut self.schedule);
        self.note_arrival(&flight);
        self.record(now, What::Arrived, link, flight.packet.parcel);
        self.forward((now, flight.sequence), flight.packet)
    }

    /// A link takes in what comes to it before `turn`, each packet at its time.
    #[inline(never)]
    pub fn take_in(&mut self, link: u32, turn: Turn) {
        let mut coming = std::mem::take(&mut self.pipes[link as usize].coming);
        while let Some(flight) = coming.pop_before(turn) {
            self.taken_in += 1;
            self.note_arrival(&flight);
            let packet = Packet { hop: flight.packet.hop + 1, ..flight.packet };
            self.offer(flight.turn(), link, packet);
        }
        let pipe = &mut self.pipes[link as usize];
        // A route may lead over a link twice.
        std::mem::swap(&mut pipe.coming, &mut coming);
        coming.drain().into_iter().for_each(|flight| pipe.coming.push(flight));
        pipe.await_intake();
        pipe.book(link, &mut self.schedule);
    }

    /// All links take in what comes to them before `turn`, so that they stand as they do then.
    pub fn take_in_all(&mut self, turn: Turn) {
        for link in 0..self.pipes.len() {
            if self.pipes[link].coming.first().is_some_and(|first| first.turn() < turn) {
                self.take_in(link as u32, turn);
            }
        }
    }

    #[inline]
    fn note_arrival(&mut self, flight: &Flight) {
        let Flight { transit, on, .. } = flight;
        self.hash.note(transit.at.as_nanos(), transit.serial() ^ u64::from(*on) << 41);
    }

    /// The first step of a packet, apart from those that follow.
    #[inline(never)]
    fn launch(&mut self, now: Time, packet: Packet) -> Option<ParcelId> {
        let sequence = self.schedule.next_sequence();
        self.forward((now, sequence), packet)
    }

    /// A packet keeps its sequence number on all its way.
    #[inline(always)]
    fn forward(&mut self, turn: Turn, packet: Packet) -> Option<ParcelId> {
        let hop = self.hops[packet.hop as usize];
        if hop == END {
            return Some(packet.parcel);
        }
        let packet = Packet { hop: packet.hop + 1, ..packet };
        let pipe = &self.pipes[hop as usize];
        if let Some(control) = pipe.control {
            match control {
                Control::Gate(gate) => self.enter(turn.0, gate, packet),
                Control::Managed(place) => self.queue_up(turn.0, place, packet),
            }
            return None;
        }
        if pipe.intake < Time::MAX {
            self.take_in(hop, turn);
        }
        self.offer(turn, hop, packet);
        None
    }

    /// Offers a packet to a link, which carries it or does not.
    #[inline(always)]
    pub fn offer(&mut self, turn: Turn, hop: u32, packet: Packet) -> Offered {
        let (now, id) = (turn.0, packet.parcel);
        let pipe = &mut self.pipes[hop as usize];
        match pipe.link.enqueue(now, packet.size) {
            Verdict::Deliver { transit, copies } => {
                let (leave, sequence) = (transit.leave, pipe.in_turn(transit.at, turn.1));
                self.record(now, What::Accepted { leave, fate: Fate::Carried }, hop, id);
                self.set_out(Flight { sequence, transit, packet, on: hop });
                let mut twin = None;
                for _ in 1..copies {
                    self.named += 1;
                    let of = self.parcels.get(id).name;
                    let copy = self.parcels.copy(id, self.named);
                    self.record(now, What::Copied { of }, hop, copy);
                    let sequence = self.schedule.next_sequence();
                    let sequence = self.pipes[hop as usize].in_turn(transit.at, sequence);
                    let packet = Packet { parcel: copy, ..packet };
                    self.set_out(Flight { sequence, transit, packet, on: hop });
                    twin = Some(copy);
                }
                Offered::Taken { transit, twin }
            }
            Verdict::Drop(reason) => self.drop_at(now, hop, id, reason),
        }
    }

    #[cold]
    fn drop_at(&mut self, now: Time, hop: u32, id: ParcelId, reason: Reason) -> Offered {
        self.hash.note(now.as_nanos(), !u64::from(hop) << 41);
        let lost = match reason {
            // It uses the queue and the rate like any other.
            Reason::Loss => self.pipes[hop as usize].link.newest(),
            Reason::Queue | Reason::Down | Reason::Mtu | Reason::Policer => None,
        };
        if let Some(Transit { leave, .. }) = lost {
            self.record(now, What::Accepted { leave, fate: Fate::Lost }, hop, id);
        }
        self.record(now, What::Dropped(reason), hop, id);
        self.parcels.remove(id);
        lost.map_or(Offered::Refused, |transit| Offered::Lost { transit })
    }

    /// A packet is on its way to whatever is next on its route.
    #[inline(always)]
    fn set_out(&mut self, flight: Flight) {
        let at = flight.transit.at;
        let next = self.hops[flight.packet.hop as usize];
        if let Some(pipe) = self.pipes.get_mut(next as usize)
            && pipe.ahead > Span::ZERO
        {
            pipe.coming.push(flight);
            let intake = at + pipe.ahead;
            if intake < pipe.intake {
                pipe.intake = intake;
                if intake < pipe.booked {
                    pipe.booked = intake;
                    self.schedule.hasten_link(next, Key::new(intake, 0));
                }
            }
            return;
        }
        let pipe = &mut self.pipes[flight.on as usize];
        pipe.flights.push(flight);
        if at < pipe.booked {
            // Nothing else on the link arrives so early.
            pipe.booked = at;
            self.schedule.hasten_link(flight.on, Key::new(at, flight.sequence));
        }
    }

    /// Changes a link at a turn; what waits in it is moved or lost.
    pub fn change(&mut self, turn: Turn, link: LinkId, change: Change) {
        let (now, index) = (turn.0, link.0 as u32);
        self.take_in_all(turn);
        let mut flights = self.pipes[link.0].flights.drain();
        let behind = self.pipes.iter_mut().filter(|pipe| pipe.coming.first().is_some());
        flights.extend(behind.flat_map(|pipe| pipe.coming.drain_of(index)));
        let pipe = &mut self.pipes[link.0];
        pipe.link.change(now, change);
        self.recorder.changed(now, index, pipe.link.spec());
        let mut moved = Vec::new();
        for flight in flights {
            let Some(transit) = pipe.link.retime(flight.transit) else {
                let parcel = *self.parcels.get(flight.packet.parcel);
                self.recorder.add(now, What::Dropped(Reason::Down), index, &parcel);
                self.parcels.remove(flight.packet.parcel);
                continue;
            };
            if transit != flight.transit {
                let leave = transit.leave;
                let parcel = *self.parcels.get(flight.packet.parcel);
                self.recorder.add(now, What::Moved { leave }, index, &parcel);
            }
            moved.push(Flight { transit, ..flight });
        }
        moved.sort_by_key(|flight| (flight.transit.at, flight.transit.serial()));
        for flight in moved {
            let sequence = self.pipes[link.0].in_turn(flight.transit.at, flight.sequence);
            self.set_out(Flight { sequence, ..flight });
        }
        self.look_ahead(index);
        self.pipes[link.0].book(index, &mut self.schedule);
        match self.pipes[link.0].control {
            Some(Control::Gate(gate)) => self.change_gate(now, gate),
            Some(Control::Managed(place)) => self.serve_managed(now, place),
            None => {}
        }
    }

    /// Settles anew whether a link takes in what comes to it without events.
    pub fn look_ahead(&mut self, link: u32) {
        let pipe = &mut self.pipes[link as usize];
        let spec = pipe.link.spec();
        // Copies are named when they are made, so they are made at their time.
        let by_events = pipe.control.is_some()
            || self.recorder.is_on()
            || spec.duplicate != Chance::NEVER
            || spec.delay < AHEAD_LEAST;
        let before = pipe.ahead;
        pipe.ahead = match by_events {
            true => Span::ZERO,
            false => spec.delay.saturating_sub(Span::from_nanos(1)),
        };
        if by_events && before > Span::ZERO {
            let coming = pipe.coming.drain();
            coming.into_iter().for_each(|flight| self.set_out(flight));
        }
        let pipe = &mut self.pipes[link as usize];
        pipe.await_intake();
        pipe.book(link, &mut self.schedule);
    }

    /// Packets that what is in front of a link turned away; the link never saw them.
    pub fn turned_away(&self, pipe: &Pipe) -> u64 {
        match pipe.control {
            Some(Control::Gate(gate)) => self.gates[gate as usize].refused,
            Some(Control::Managed(place)) => self.managed[place as usize].dropped,
            None => 0,
        }
    }

    /// Notes what happened to a packet, if anybody wants to know.
    #[inline]
    pub fn record(&mut self, now: Time, what: What, place: u32, id: ParcelId) {
        if self.recorder.is_on() {
            self.recorder.add(now, what, place, self.parcels.get(id));
        }
    }
}

impl Pipe {
    /// The sequence number of a packet that arrives at `at`: its own, or that of the one before it
    /// if both arrive together, so that they stay in order.
    #[inline]
    fn in_turn(&mut self, at: Time, sequence: u64) -> u64 {
        let sequence = if at == self.last.0 { sequence.max(self.last.1) } else { sequence };
        self.last = (at, sequence);
        sequence
    }

    /// Puts down until when the first packet that comes must be taken in.
    #[inline]
    fn await_intake(&mut self) {
        let first = self.coming.first().map_or(Time::MAX, |first| first.transit.at);
        self.intake = first + self.ahead; // Saturates.
    }

    #[inline(always)]
    fn book(&mut self, index: u32, schedule: &mut Schedule) {
        let arrival = match self.flights.first() {
            Some(first) if first.transit.at < Time::MAX => {
                Key::new(first.transit.at, first.sequence)
            }
            Some(_) | None => Key::NEVER,
        };
        let intake = match self.intake {
            Time::MAX => Key::NEVER,
            at => Key::new(at, 0),
        };
        let key = arrival.min(intake);
        self.booked = if key == Key::NEVER { Time::MAX } else { key.at() };
        schedule.set_link(index, key);
    }
}

impl Recorder {
    fn add(&mut self, at: Time, what: What, place: u32, parcel: &Parcel) {
        self.push(Record { at, what, place, packet: parcel.name, size: parcel.size });
    }
}
