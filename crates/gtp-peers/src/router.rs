//! A queue's controller: the contract that every router-assisted rival's queue keeps.
//!
//! It sees what comes and goes at one link's queue; the queue itself, and what the wire behind it
//! loses, are the link's.

use gtp_alloc::{Bytes, Rate, Time};

use crate::Packet;

/// What a queue does with an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Queue it, if there is room.
    Pass,
    /// Mark it if its sender heeds marks (ECN), and drop it otherwise.
    Mark,
    /// Drop it although there is room.
    Drop,
}

/// A controller that sits at one link's queue: it sees every packet that comes and goes, may
/// change its note, and keeps no state per connection.
pub trait Router {
    /// The link's rate has changed; also called once before the first packet.
    fn set_capacity(&mut self, now: Time, capacity: Rate);

    /// A packet arrives while `queued` bytes wait (this one not counted). Packets of protocols
    /// that ask nothing of routers pass here too and count as load.
    fn handle_arrival(&mut self, now: Time, queued: Bytes, packet: &mut Packet) -> Admission;

    /// A packet leaves the queue for the wire while `queued` bytes stay behind it. Without it
    /// nothing happens.
    fn handle_departure(&mut self, _now: Time, _queued: Bytes, _packet: &mut Packet) {}

    /// The time that [`poll_timeout`](Self::poll_timeout) named has come.
    fn handle_timeout(&mut self, _now: Time, _queued: Bytes) {}

    /// When the controller next measures or updates. Without it never: it acts on packets alone.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}
