//! The network between hosts: links with what is under way on them, and routes over them.
//!
//! A packet costs one event per link: when it is offered, the link says at once when it will be at
//! the far end, and it joins the ring of what is under way there. Only the first of each ring is in
//! the schedule. What a packet is for is not known here.

use gtp_alloc::{Bytes, Span, Time};
use gtp_link::{Change, Link, LinkId, LinkSpec, Reason, Transit, Verdict};
use gtp_peers::Packet;

use super::flights::{Flight, Flights};
use super::gate::{Gate, Offered};
use super::parcel::{Parcel, ParcelId, Parcels};
use super::schedule::{Key, Schedule};
use crate::hash::RunHash;
use crate::trace::{Fate, Record, Recorder, What};

/// A link with what is under way on it.
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    pub link: Link,
    /// When its first packet arrives, as the schedule has it.
    booked: Time,
    flights: Flights,
    /// The controller at its queue, if it has one.
    pub gate: Option<u32>,
}

/// Where a route begins in the table of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route(pub u32);

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
    /// Routes, one after another: links, then [`END`].
    hops: Vec<u32>,
    /// Packets sent, copies on the way included: the newest name.
    pub named: u64,
}

impl Fabric {
    pub fn new(seed: u64) -> Fabric {
        Fabric {
            schedule: Schedule::default(),
            pipes: Vec::new(),
            parcels: Parcels::default(),
            hash: RunHash::new(seed),
            recorder: Recorder::default(),
            gates: Vec::new(),
            hops: Vec::new(),
            named: 0,
        }
    }

    pub fn add_link(&mut self, spec: LinkSpec, seed: u64) -> LinkId {
        let link = Link::new(spec, seed);
        self.pipes.push(Pipe { link, booked: Time::MAX, flights: Flights::default(), gate: None });
        LinkId(self.schedule.add_link() as usize)
    }

    /// A route over these links, which exist.
    pub fn add_route(&mut self, links: &[LinkId]) -> Route {
        let start = self.hops.len() as u32;
        self.hops.extend(links.iter().map(|l| l.0 as u32));
        self.hops.push(END);
        Route(start)
    }

    /// Propagation delays of a route as they are now.
    pub fn route_delay(&self, route: Route) -> Span {
        let links = self.hops[route.0 as usize..].iter().take_while(|&&hop| hop != END);
        let delays = links.map(|&hop| self.pipes[hop as usize].link.spec().delay);
        delays.fold(Span::ZERO, |sum, delay| sum + delay)
    }

    /// Sends a datagram: `head`, then `payload` zero bytes; it counts as `size` on links. Returns
    /// the packet if its route has no links and it is there at once.
    pub fn send(
        &mut self,
        now: Time,
        route: Route,
        to: u32,
        size: Bytes,
        head: &[u8],
        payload: u16,
    ) -> Option<ParcelId> {
        self.named += 1;
        self.hash.mix_bytes(head);
        self.hash.mix(size.0 ^ u64::from(to) << 32);
        let mut parcel = Parcel::empty(self.named, size, route.0, to);
        parcel.payload = payload;
        let id = self.parcels.insert(parcel, head);
        self.record(now, What::Sent, to, id);
        self.launch(now, id)
    }

    /// Sends a rival's packet of this size, as [`Self::send`] does a datagram.
    #[inline]
    pub fn send_foreign(
        &mut self,
        now: Time,
        route: Route,
        to: u32,
        size: Bytes,
        packet: Option<Packet>,
    ) -> Option<ParcelId> {
        self.named += 1;
        self.hash.mix(size.0 ^ u64::from(to) << 32);
        let parcel = Parcel::empty(self.named, size, route.0, to);
        let id = self.parcels.insert_foreign(parcel, packet);
        self.record(now, What::Sent, to, id);
        self.launch(now, id)
    }

    /// The next packet of a link is at its far end: takes it on. Returns it at its route's end.
    #[inline]
    pub fn arrive(&mut self, now: Time, link: u32) -> Option<ParcelId> {
        let pipe = &mut self.pipes[link as usize];
        let id = pipe.flights.take()?;
        pipe.book(link, &mut self.schedule);
        self.hash.mix(now.as_nanos());
        self.hash.mix(self.parcels.get(id).name ^ u64::from(link) << 44);
        self.record(now, What::Arrived, link, id);
        self.forward(now, id)
    }

    /// The first step of a packet, apart from those that follow.
    #[inline(never)]
    fn launch(&mut self, now: Time, id: ParcelId) -> Option<ParcelId> {
        self.forward(now, id)
    }

    #[inline(always)]
    fn forward(&mut self, now: Time, id: ParcelId) -> Option<ParcelId> {
        let parcel = self.parcels.get_mut(id);
        let hop = self.hops[parcel.hop as usize];
        if hop == END {
            return Some(id);
        }
        parcel.hop += 1;
        match self.pipes[hop as usize].gate {
            None => {
                self.offer(now, hop, id);
            }
            Some(gate) => self.enter(now, gate, id),
        }
        None
    }

    /// Offers a packet to a link, which carries it or does not.
    #[inline(always)]
    pub fn offer(&mut self, now: Time, hop: u32, id: ParcelId) -> Offered {
        let size = self.parcels.get(id).size;
        match self.pipes[hop as usize].link.enqueue(now, size) {
            Verdict::Deliver { transit, copies } => {
                let leave = transit.leave;
                self.record(now, What::Accepted { leave, fate: Fate::Carried }, hop, id);
                self.fly(hop, transit, id);
                let mut twin = None;
                for _ in 1..copies {
                    self.named += 1;
                    let of = self.parcels.get(id).name;
                    let copy = self.parcels.copy(id, self.named);
                    self.record(now, What::Copied { of }, hop, copy);
                    self.fly(hop, transit, copy);
                    twin = Some(copy);
                }
                Offered::Taken { transit, twin }
            }
            Verdict::Drop(reason) => {
                self.hash.mix(now.as_nanos() ^ u64::from(hop) << 44);
                let lost = match reason {
                    // It uses the queue and the rate like any other.
                    Reason::Loss => self.pipes[hop as usize].link.newest(),
                    Reason::Queue | Reason::Down | Reason::Mtu => None,
                };
                if let Some(Transit { leave, .. }) = lost {
                    self.record(now, What::Accepted { leave, fate: Fate::Lost }, hop, id);
                }
                self.record(now, What::Dropped(reason), hop, id);
                self.parcels.remove(id);
                lost.map_or(Offered::Refused, |transit| Offered::Lost { transit })
            }
        }
    }

    #[inline(always)]
    fn fly(&mut self, link: u32, transit: Transit, parcel: ParcelId) {
        let sequence = self.schedule.next_sequence();
        let pipe = &mut self.pipes[link as usize];
        pipe.flights.push(Flight { sequence, transit, parcel });
        if transit.at < pipe.booked {
            // Nothing else on the link arrives so early.
            pipe.booked = transit.at;
            self.schedule.hasten_link(link, Key::new(transit.at, sequence));
        }
    }

    /// Changes a link at `now`; what waits in it is moved or lost.
    pub fn change(&mut self, now: Time, link: LinkId, change: Change) {
        let index = link.0 as u32;
        let pipe = &mut self.pipes[link.0];
        pipe.link.change(now, change);
        self.recorder.changed(now, index, pipe.link.spec());
        let mut moved = Vec::new();
        for flight in pipe.flights.drain() {
            let Some(transit) = pipe.link.retime(flight.transit) else {
                let parcel = *self.parcels.get(flight.parcel);
                self.recorder.add(now, What::Dropped(Reason::Down), index, &parcel);
                self.parcels.remove(flight.parcel);
                continue;
            };
            if transit != flight.transit {
                let leave = transit.leave;
                let parcel = *self.parcels.get(flight.parcel);
                self.recorder.add(now, What::Moved { leave }, index, &parcel);
            }
            moved.push(Flight { transit, ..flight });
        }
        moved.sort_by_key(|flight| (flight.transit.at, flight.sequence));
        for flight in moved {
            pipe.flights.push(flight);
        }
        pipe.book(index, &mut self.schedule);
        if let Some(gate) = pipe.gate {
            self.change_gate(now, gate);
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
    #[inline(always)]
    fn book(&mut self, index: u32, schedule: &mut Schedule) {
        let (at, key) = match self.flights.first() {
            Some(first) if first.transit.at < Time::MAX => {
                (first.transit.at, Key::new(first.transit.at, first.sequence))
            }
            Some(_) | None => (Time::MAX, Key::NEVER),
        };
        self.booked = at;
        schedule.set_link(index, key);
    }
}

impl Recorder {
    fn add(&mut self, at: Time, what: What, place: u32, parcel: &Parcel) {
        self.push(Record { at, what, place, packet: parcel.name, size: parcel.size });
    }
}
