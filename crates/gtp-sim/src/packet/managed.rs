//! Managed queues in front of links: what waits is here, and the link has no more than one packet.
//!
//! A link settles at once when a packet leaves, so that its own queue needs no events. A managed
//! queue decides when a packet leaves whether it does, so that a link with one has an event for
//! each packet that leaves while others wait. Sessions' data are marked where the queue's RFC has
//! packets of classic ECN senders marked; all others are dropped: rivals here set no ECN bits.

use gtp_alloc::{Bytes, Span, Time};
use gtp_link::LinkId;
use gtp_link::managed::{self, Ecn, Kind, Managed};

use gtp_proto::Codepoint;

use super::fabric::{Control, Fabric};
use super::flights::Packet;
use super::schedule::ActorId;
use crate::trace::What;

/// A managed queue in front of its link.
#[derive(Debug)]
pub(crate) struct ManagedQueue {
    link: u32,
    queue: Managed<Waiting>,
    actor: ActorId,
    /// When it is woken next.
    booked: Time,
    /// Packets that it dropped.
    pub dropped: u64,
    /// The longest wait of a packet that was sent.
    pub wait_max: Span,
    /// The least that waited since this was last asked, just before packets came.
    least: Bytes,
}

/// A packet's ECN bits as queues name them.
fn bits(ecn: Codepoint) -> Ecn {
    match ecn {
        Codepoint::NotEct => Ecn::NotCapable,
        Codepoint::Ect0 => Ecn::Classic,
        Codepoint::Ect1 => Ecn::LowLatency,
        Codepoint::Ce => Ecn::Marked,
    }
}

/// A packet that waits, and since when.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    packet: Packet,
    since: Time,
}

impl ManagedQueue {
    /// Returns how many bytes wait.
    pub fn bytes(&self) -> Bytes {
        self.queue.bytes()
    }

    /// Returns the least that waited since this was last asked.
    pub fn take_least(&mut self) -> Bytes {
        let least = self.least.min(self.bytes());
        self.least = self.bytes();
        least
    }
}

impl Fabric {
    /// Puts a managed queue in front of a link that has no controller. Returns its actor's number.
    pub fn add_managed(&mut self, link: LinkId, kind: Kind, seed: u64) -> u32 {
        let actor = self.schedule.add_actor();
        let place = self.managed.len() as u32;
        self.pipes[link.0].control = Some(Control::Managed(place));
        self.managed.push(ManagedQueue {
            link: link.0 as u32,
            queue: Managed::new(kind, seed),
            actor,
            booked: Time::MAX,
            dropped: 0,
            wait_max: Span::ZERO,
            least: Bytes::ZERO,
        });
        self.look_ahead(link.0 as u32);
        place
    }

    /// A packet comes to a link with a managed queue.
    #[cold]
    pub fn queue_up(&mut self, now: Time, place: u32, packet: Packet) {
        let parcel = self.parcels.get(packet.parcel);
        let (flow, ecn) = (u64::from(parcel.to), bits(parcel.ecn));
        let at = &mut self.managed[place as usize];
        at.least = at.least.min(at.bytes());
        let limit = self.pipes[at.link as usize].link.spec().queue;
        let thing = Waiting { packet, since: now };
        let packet = managed::Packet { size: packet.size, flow, ecn, thing };
        let mut dropped = Vec::new();
        at.queue.enqueue(now, limit, packet, &mut dropped);
        self.turn_away(now, place, dropped);
        self.serve_managed(now, place);
    }

    /// Gives the link a packet if it is idle, and sees to it that the next one follows.
    #[cold]
    pub fn serve_managed(&mut self, now: Time, place: u32) {
        let link = self.managed[place as usize].link;
        while self.pipes[link as usize].link.busy_until() <= now {
            let at = &mut self.managed[place as usize];
            let mut dropped = Vec::new();
            let next = at.queue.dequeue(now, &mut dropped);
            if let Some(sent) = &next {
                at.wait_max = at.wait_max.max(now.since(sent.thing.since));
            }
            self.turn_away(now, place, dropped);
            let Some(sent) = next else { break };
            if sent.ecn == Ecn::Marked {
                self.parcels.mark(sent.thing.packet.parcel);
            }
            let sequence = self.schedule.next_sequence();
            self.offer((now, sequence), link, sent.thing.packet);
        }
        let at = &mut self.managed[place as usize];
        let next = match at.queue.bytes() {
            Bytes::ZERO => Time::MAX,
            Bytes(_) => self.pipes[link as usize].link.busy_until(),
        };
        if next != at.booked {
            at.booked = next;
            self.schedule.wake(at.actor, next);
        }
    }

    fn turn_away(&mut self, now: Time, place: u32, dropped: Vec<managed::Packet<Waiting>>) {
        let link = self.managed[place as usize].link;
        self.managed[place as usize].dropped += dropped.len() as u64;
        for packet in dropped {
            let id = packet.thing.packet.parcel;
            self.hash.mix(now.as_nanos() ^ u64::from(link) << 44);
            self.record(now, What::TurnedAway, link, id);
            self.parcels.remove(id);
        }
    }
}
