//! Managed queues, which settle when a packet leaves whether it is sent, marked or dropped.
//!
//! They judge by how long packets have waited, which is known only when they leave. So whoever has
//! one in front of a link asks it for a packet each time the link is idle, and gives the link no
//! more than that one. A queue knows sizes, flows and marks of packets, not what they are, and
//! neither reads a clock nor knows the link.

mod codel;
mod dualpi2;
mod fifo;
mod fq_codel;

use alloc::vec::Vec;

use gtp_alloc::{Bytes, Time};

/// A kind of managed queue, with the values of its RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CoDel, RFC 8289: one queue, which drops ever faster for as long as all wait too long.
    Codel,
    /// FQ-CoDel, RFC 8290: a CoDel for each flow, served in turn.
    FqCodel,
    /// DualPI2, RFC 9332: a queue of low latency beside a classic one, coupled.
    DualPi2,
}

/// The two ECN bits of a packet's IP header (RFC 3168, RFC 9331).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ecn {
    /// The sender does not understand marks, so that it is told by drops.
    #[default]
    NotCapable,
    /// The sender answers a mark as it answers a drop: ECT(0).
    Classic,
    /// The sender answers each mark a little: ECT(1).
    LowLatency,
    /// The packet is marked.
    Marked,
}

/// A packet in a managed queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    /// Its bytes on the link.
    pub size: Bytes,
    /// A number that all packets of its flow have, and no other.
    pub flow: u64,
    /// Its ECN bits.
    pub ecn: Ecn,
    /// What it is to whoever owns the queue.
    pub thing: T,
}

impl<T> Packet<T> {
    /// Marks the packet if its sender understands that, and tells whether it does.
    fn mark(&mut self) -> bool {
        match self.ecn {
            Ecn::NotCapable => false,
            Ecn::Classic | Ecn::LowLatency | Ecn::Marked => {
                self.ecn = Ecn::Marked;
                true
            }
        }
    }
}

/// A managed queue; see the module's head.
#[derive(Clone, Debug)]
pub struct Managed<T> {
    discipline: Discipline<T>,
}

#[derive(Clone, Debug)]
enum Discipline<T> {
    Codel(codel::Queue<T>),
    FqCodel(fq_codel::Queue<T>),
    DualPi2(dualpi2::Queue<T>),
}

impl<T> Managed<T> {
    /// Makes an empty queue of this kind, whose flows are spread by `seed`.
    pub fn new(kind: Kind, seed: u64) -> Managed<T> {
        let discipline = match kind {
            Kind::Codel => Discipline::Codel(codel::Queue::new()),
            Kind::FqCodel => Discipline::FqCodel(fq_codel::Queue::new(seed)),
            Kind::DualPi2 => Discipline::DualPi2(dualpi2::Queue::new()),
        };
        Managed { discipline }
    }

    /// Takes a packet in at `now`. What has no room among `limit` bytes is dropped, and put into
    /// `dropped`: this packet or another one. An empty queue takes any packet.
    pub fn enqueue(
        &mut self,
        now: Time,
        limit: Bytes,
        packet: Packet<T>,
        dropped: &mut Vec<Packet<T>>,
    ) {
        match &mut self.discipline {
            Discipline::Codel(queue) => queue.enqueue(now, limit, packet, dropped),
            Discipline::FqCodel(queue) => queue.enqueue(now, limit, packet, dropped),
            Discipline::DualPi2(queue) => queue.enqueue(now, limit, packet, dropped),
        }
    }

    /// Returns the packet that is sent at `now`, perhaps marked, and puts those that are dropped
    /// instead into `dropped`. `None`: nothing waits any more.
    pub fn dequeue(&mut self, now: Time, dropped: &mut Vec<Packet<T>>) -> Option<Packet<T>> {
        match &mut self.discipline {
            Discipline::Codel(queue) => queue.dequeue(now, dropped),
            Discipline::FqCodel(queue) => queue.dequeue(now, dropped),
            Discipline::DualPi2(queue) => queue.dequeue(now, dropped),
        }
    }

    /// Takes out all that waits, in no particular order.
    pub fn drain(&mut self) -> Vec<Packet<T>> {
        match &mut self.discipline {
            Discipline::Codel(queue) => queue.drain(),
            Discipline::FqCodel(queue) => queue.drain(),
            Discipline::DualPi2(queue) => queue.drain(),
        }
    }

    /// Returns how many bytes wait.
    pub fn bytes(&self) -> Bytes {
        match &self.discipline {
            Discipline::Codel(queue) => queue.bytes(),
            Discipline::FqCodel(queue) => queue.bytes(),
            Discipline::DualPi2(queue) => queue.bytes(),
        }
    }
}

/// The size of a full packet in bytes. Where no more than this waits, nothing is dropped for
/// waiting.
const MTU: Bytes = Bytes(1_500);

#[cfg(test)]
mod checks;
