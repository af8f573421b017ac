//! Datagrams: each client of a path has an upstream socket of its own, so that the target sees
//! different clients as different and answers find their way back.
//!
//! What falls due in one round for one receiver leaves in one call.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use gtp_alloc::{Bytes, Span, Time};
use gtp_sys::Clock;
use quinn_udp::EcnCodepoint;

use super::{Lanes, Parcel, Token, Way};
use crate::poller::{EventFlags, Poller};
use crate::timing::Lateness;
use crate::udp::{Arrival, Batch, Inbox, Outlet, Slice, UdpPort};

/// A datagram of a flow.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    slot: u32,
    generation: u32,
    bytes: Slice,
    ecn: Option<EcnCodepoint>,
}

impl Datagram {
    /// The size of its IP packet.
    pub(super) fn size_towards(&self, target: &SocketAddr) -> Bytes {
        let headers = if target.is_ipv4() { IPV4_UDP } else { IPV6_UDP };
        Bytes(self.bytes.len() as u64 + headers)
    }
}

/// One client of one path.
struct Flow {
    lane: usize,
    client: SocketAddr,
    /// Our address that the client knows.
    local: Option<IpAddr>,
    upstream: UdpPort,
    generation: u32,
    last_used: Time,
    up: Batch,
    down: Batch,
}

/// All clients of all paths.
pub(super) struct Flows {
    slots: Vec<Option<Flow>>,
    free: Vec<u32>,
    by_client: HashMap<(usize, SocketAddr), u32>,
    generation: u32,
    idle: Span,
    /// Flows that have something to send in this round.
    pending: Vec<(u32, Way)>,
    failed: u64,
}

impl Flows {
    pub(super) fn new(idle: Span) -> Flows {
        Flows {
            slots: Vec::new(),
            free: Vec::new(),
            by_client: HashMap::new(),
            generation: 0,
            idle,
            pending: Vec::new(),
            failed: 0,
        }
    }

    /// Clients of a path now.
    pub(super) fn count(&self, lane: usize) -> u64 {
        self.slots.iter().flatten().filter(|flow| flow.lane == lane).count() as u64
    }

    /// Datagrams that the system did not take.
    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// Takes in what clients of a path have sent.
    pub(super) fn handle_clients(
        &mut self,
        poller: &Poller,
        inbox: &mut Inbox,
        lanes: &mut Lanes,
        lane: usize,
        clock: Clock,
    ) {
        for _ in 0..CALLS_PER_ROUND {
            let arrivals = inbox.receive(&lanes.lanes[lane].port);
            let now = clock.now();
            if arrivals.is_empty() {
                return;
            }
            for arrival in &arrivals {
                match self.find_or_open(poller, lanes, lane, arrival) {
                    Some(slot) => self.enter(lanes, slot, Way::Up, arrival, now),
                    None => self.failed += arrival.datagrams().count() as u64,
                }
            }
        }
    }

    /// Takes in what the target has answered to a client.
    pub(super) fn handle_target(
        &mut self,
        inbox: &mut Inbox,
        lanes: &mut Lanes,
        slot: u32,
        clock: Clock,
    ) {
        for _ in 0..CALLS_PER_ROUND {
            let Some(Some(flow)) = self.slots.get(slot as usize) else { return };
            let arrivals = inbox.receive(&flow.upstream);
            let now = clock.now();
            if arrivals.is_empty() {
                return;
            }
            for arrival in &arrivals {
                self.enter(lanes, slot, Way::Down, arrival, now);
            }
        }
    }

    /// Puts a datagram that is through into its flow's batch.
    pub(super) fn handle_delivery(
        &mut self,
        lanes: &mut Lanes,
        way: Way,
        datagram: Datagram,
        due: Time,
        late: &mut Lateness,
    ) {
        let Some(Some(flow)) = self.slots.get_mut(datagram.slot as usize) else { return };
        if flow.generation != datagram.generation {
            return;
        }
        let lane = &mut lanes.lanes[flow.lane];
        let size = datagram.size_towards(&lane.target);
        lane.way(way).count_out(size);
        let (batch, out) = flow.outlet(way, lane);
        if !batch.takes(&datagram.bytes, datagram.ecn, out.port) {
            self.failed += batch.send(&out, late);
        }
        if batch.is_empty() {
            self.pending.push((datagram.slot, way));
        }
        batch.put(&datagram.bytes, datagram.ecn, due);
    }

    /// Sends what this round has gathered.
    pub(super) fn flush(&mut self, lanes: &mut Lanes, late: &mut Lateness) {
        for (slot, way) in self.pending.drain(..) {
            if let Some(Some(flow)) = self.slots.get_mut(slot as usize) {
                let lane = &mut lanes.lanes[flow.lane];
                let (batch, out) = flow.outlet(way, lane);
                self.failed += batch.send(&out, late);
            }
        }
    }

    /// Lets go of clients that have been silent for long.
    pub(super) fn expire(&mut self, now: Time) {
        for (slot, place) in (0..).zip(&mut self.slots) {
            if let Some(flow) = place
                && now.since(flow.last_used) > self.idle
            {
                self.by_client.remove(&(flow.lane, flow.client));
                self.free.push(slot);
                *place = None;
            }
        }
    }

    fn enter(&mut self, lanes: &mut Lanes, slot: u32, way: Way, arrival: &Arrival, now: Time) {
        let Some(Some(flow)) = self.slots.get_mut(slot as usize) else { return };
        flow.last_used = now;
        let at = now.saturating_sub(arrival.age);
        for bytes in arrival.datagrams() {
            let datagram = Datagram { slot, generation: flow.generation, bytes, ecn: arrival.ecn };
            // What cannot enter is lost, as datagrams are; the path has counted it.
            let _ = lanes.send(at, flow.lane, way, Parcel::Datagram(datagram));
        }
    }

    fn find_or_open(
        &mut self,
        poller: &Poller,
        lanes: &Lanes,
        lane: usize,
        arrival: &Arrival,
    ) -> Option<u32> {
        let client = arrival.from;
        if let Some(&slot) = self.by_client.get(&(lane, client)) {
            return Some(slot);
        }
        if self.by_client.len() >= MAX_FLOWS {
            return None;
        }
        let upstream = UdpPort::towards(lanes.lanes[lane].target).ok()?;
        let slot = self.free.last().map_or(self.slots.len() as u32, |slot| *slot);
        poller.add(upstream.socket(), Token::Flow(slot).pack(), EventFlags::IN).ok()?;
        self.free.pop();
        self.generation = self.generation.wrapping_add(1);
        let flow = Flow {
            lane,
            client,
            local: arrival.to.filter(|to| to.is_ipv4() == client.is_ipv4()),
            upstream,
            generation: self.generation,
            last_used: Time::ZERO,
            up: Batch::default(),
            down: Batch::default(),
        };
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot as usize] = Some(flow);
        self.by_client.insert((lane, client), slot);
        Some(slot)
    }
}

impl Flow {
    fn outlet<'a>(&'a mut self, way: Way, lane: &'a super::Lane) -> (&'a mut Batch, Outlet<'a>) {
        match way {
            Way::Up => (&mut self.up, Outlet { port: &self.upstream, to: lane.target, from: None }),
            Way::Down => {
                (&mut self.down, Outlet { port: &lane.port, to: self.client, from: self.local })
            }
        }
    }
}

/// IPv4 and UDP headers.
const IPV4_UDP: u64 = 28;
/// IPv6 and UDP headers.
const IPV6_UDP: u64 = 48;
/// Clients of all paths together; each costs a socket.
const MAX_FLOWS: usize = 4_096;
/// Receiving calls for one socket per round, so that none starves the others: 4 of up to 32
/// buffers of up to 64 KiB are 8 MiB, more than comes in a tick.
const CALLS_PER_ROUND: usize = 4;
