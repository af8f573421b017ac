//! Controllers at links: the routers of `gtp-peers` see what comes to a queue and what leaves it.
//!
//! A link settles a packet's departure when it takes it in, so that its queue needs no events; a
//! controller wants to be told when a packet leaves, and may still change what the packet says. So
//! a link with a controller keeps a row of what has yet to leave, and has an entry in the schedule
//! for the first of it and for the controller's own timer. A link without one pays nothing. The
//! protocol's own datagrams and background traffic pass as packets that ask routers for nothing.

use core::fmt;
use std::collections::VecDeque;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Link, LinkId, Transit};
use gtp_peers::{Admission, Body, Note, Packet, Router};

use super::fabric::{Control, Fabric};
use super::flights;
use super::parcel::{ParcelId, Parcels};
use super::schedule::{ActorId, Key};
use crate::trace::What;

/// A controller, as a world takes it.
pub type PeerRouter = Box<dyn Router>;

/// A controller at its link.
pub(crate) struct Gate {
    link: u32,
    router: PeerRouter,
    pub actor: ActorId,
    /// What is in the queue, in the order of leaving.
    leaving: VecDeque<Leaving>,
    /// What the controller turned away.
    pub refused: u64,
}

/// A packet in a queue with a controller.
#[derive(Debug)]
struct Leaving {
    transit: Transit,
    sequence: u64,
    fate: Carried,
}

/// What becomes of it behind the queue.
#[derive(Debug)]
enum Carried {
    /// It goes on, and perhaps a copy of it.
    On { parcel: ParcelId, twin: Option<ParcelId> },
    /// The wire loses it.
    Lost(Packet),
}

/// What a link did with a packet that it was offered.
pub(crate) enum Offered {
    Taken {
        transit: Transit,
        twin: Option<ParcelId>,
    },
    /// It passes the queue, and the wire loses it.
    Lost {
        transit: Transit,
    },
    Refused,
}

impl Gate {
    pub fn new(now: Time, link: u32, mut router: PeerRouter, rate: Rate, actor: ActorId) -> Gate {
        router.set_capacity(now, rate);
        Gate { link, router, actor, leaving: VecDeque::new(), refused: 0 }
    }

    /// The first packets that have left by `now`, told to the controller.
    fn let_go(&mut self, now: Time, link: &mut Link, parcels: &mut Parcels) {
        while self.leaving.front().is_some_and(|first| first.transit.leave <= now)
            && let Some(first) = self.leaving.pop_front()
        {
            let queued = link.queued(now);
            match first.fate {
                Carried::Lost(mut packet) => self.router.handle_departure(now, queued, &mut packet),
                Carried::On { parcel, twin } => match parcels.foreign_mut(parcel) {
                    Some(packet) => {
                        self.router.handle_departure(now, queued, packet);
                        let note = packet.note;
                        let twin = twin.and_then(|twin| parcels.foreign_mut(twin));
                        twin.into_iter().for_each(|copy| copy.note = note);
                    }
                    None => {
                        let size = parcels.get(parcel).size;
                        self.router.handle_departure(now, queued, &mut plain(size));
                    }
                },
            }
        }
    }
}

/// A packet that asks routers for nothing.
fn plain(size: Bytes) -> Packet {
    Packet { size, body: Body::Empty, note: Note::None }
}

impl Fabric {
    /// Puts a controller at a link that has none.
    pub fn add_gate(&mut self, now: Time, link: LinkId, router: PeerRouter) -> u32 {
        let actor = self.schedule.add_actor();
        let gate = self.gates.len() as u32;
        let pipe = &mut self.pipes[link.0];
        pipe.control = Some(Control::Gate(gate));
        let rate = pipe.link.spec().rate;
        self.gates.push(Gate::new(now, link.0 as u32, router, rate, actor));
        self.look_ahead(link.0 as u32);
        self.book_gate(now, gate);
        gate
    }

    /// A packet comes to a link with a controller.
    #[cold]
    pub fn enter(&mut self, now: Time, gate: u32, passing: flights::Packet) {
        let id = passing.parcel;
        let hop = self.gates[gate as usize].link;
        self.open_gate(now, gate);
        let Fabric { gates, pipes, parcels, .. } = self;
        let (gate_at, link) = (&mut gates[gate as usize], &mut pipes[hop as usize].link);
        let queued = link.queued(now);
        let mut other = plain(passing.size);
        let packet = parcels.foreign_mut(id).unwrap_or(&mut other);
        let admission = gate_at.router.handle_arrival(now, queued, packet);
        let packet = packet.clone();
        let drops = match admission {
            Admission::Pass => false,
            Admission::Mark => !parcels.mark(id),
            Admission::Drop => true,
        };
        if drops {
            gate_at.refused += 1;
            self.hash.mix(now.as_nanos() ^ u64::from(hop) << 44);
            self.record(now, What::TurnedAway, hop, id);
            self.parcels.remove(id);
            return self.book_gate(now, gate);
        }
        // A packet leaves before it arrives, even where the wire takes no time.
        let sequence = self.schedule.next_sequence();
        let behind = self.schedule.next_sequence();
        let (transit, fate) = match self.offer((now, behind), hop, passing) {
            Offered::Taken { transit, twin } => (transit, Carried::On { parcel: id, twin }),
            Offered::Lost { transit } => (transit, Carried::Lost(packet)),
            Offered::Refused => return self.book_gate(now, gate),
        };
        self.gates[gate as usize].leaving.push_back(Leaving { transit, sequence, fate });
        self.book_gate(now, gate);
    }

    /// What has left by `now` has left, and the controller's time may have come.
    #[cold]
    pub fn open_gate(&mut self, now: Time, gate: u32) {
        let Fabric { gates, pipes, parcels, .. } = self;
        let gate_at = &mut gates[gate as usize];
        let link = &mut pipes[gate_at.link as usize].link;
        gate_at.let_go(now, link, parcels);
        if gate_at.router.poll_timeout().is_some_and(|due| due <= now) {
            let queued = link.queued(now);
            gate_at.router.handle_timeout(now, queued);
        }
        self.book_gate(now, gate);
    }

    /// A link has changed: what waits leaves at other times, or does not.
    pub fn change_gate(&mut self, now: Time, gate: u32) {
        let Fabric { gates, pipes, .. } = self;
        let gate_at = &mut gates[gate as usize];
        let link = &pipes[gate_at.link as usize].link;
        gate_at.router.set_capacity(now, link.spec().rate);
        gate_at.leaving.retain_mut(|packet| match link.retime(packet.transit) {
            Some(moved) => {
                packet.transit = moved;
                true
            }
            None => false,
        });
        self.book_gate(now, gate);
    }

    fn book_gate(&mut self, now: Time, gate: u32) {
        let Fabric { gates, schedule, .. } = self;
        let gate = &gates[gate as usize];
        let timer = gate.router.poll_timeout().map(|due| due.max(now + Span::from_nanos(1)));
        let first = gate.leaving.front();
        match (timer, first) {
            (Some(due), first) if first.is_none_or(|first| due < first.transit.leave) => {
                schedule.wake(gate.actor, due);
            }
            (_, Some(first)) => {
                schedule.set(gate.actor, Key::new(first.transit.leave, first.sequence));
            }
            (_, None) => schedule.clear(gate.actor),
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("leaving", &self.leaving).finish_non_exhaustive()
    }
}
