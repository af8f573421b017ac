//! Packets in the order in which they came, each with the time of its coming.
//!
//! All managed queues are made of these. They judge by waits, so that times are kept here once,
//! and so is the rule of what has room.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use gtp_alloc::{Bytes, Span, Time};

use super::Packet;

/// A row of packets; see the module's head.
#[derive(Clone, Debug)]
pub(super) struct Fifo<T> {
    packets: VecDeque<(Time, Packet<T>)>,
    bytes: Bytes,
}

impl<T> Fifo<T> {
    pub const fn new() -> Fifo<T> {
        Fifo { packets: VecDeque::new(), bytes: Bytes::ZERO }
    }

    pub fn push(&mut self, now: Time, packet: Packet<T>) {
        self.bytes += packet.size;
        self.packets.push_back((now, packet));
    }

    /// Takes out the oldest packet, with how long it has waited.
    pub fn pop(&mut self, now: Time) -> Option<(Span, Packet<T>)> {
        let (came, packet) = self.packets.pop_front()?;
        self.bytes -= packet.size;
        Some((now.since(came), packet))
    }

    /// Returns how long the oldest packet has waited; zero if there is none.
    pub fn wait(&self, now: Time) -> Span {
        self.packets.front().map_or(Span::ZERO, |(came, _)| now.since(*came))
    }

    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Tells whether a packet of this size has room among `limit` bytes, of which `taken` are
    /// taken.
    pub fn has_room(taken: Bytes, limit: Bytes, size: Bytes) -> bool {
        taken == Bytes::ZERO || taken + size <= limit
    }

    pub fn drain(&mut self) -> Vec<Packet<T>> {
        self.bytes = Bytes::ZERO;
        self.packets.drain(..).map(|(_, packet)| packet).collect()
    }
}
