//! endpointXCP, thesis VIII.2.A: XCP's queue law at end nodes, because lambda networks have no
//! routers that could run it.
//!
//! Each source and each sink owns one [`Node`]: a queue that exists on paper only, drained at the
//! node's capacity, fed by all sessions of that side of the host. A packet meets its source's node
//! first and its sink's node last. Constants are XCP's, unchanged.
//!
//! `[FIX]` The thesis says "into the receiver" in one place and "to the sources and sinks" in
//! another; VIII.2.A and the results need both.
//!
//! Put a node as the router of the link that joins its host; the link's own queue is not looked at.

use gtp_alloc::{Bytes, Rate, Time};

use super::Queue;
use crate::{Admission, Packet, Router};

/// One side of one host: XCP's controller over a virtual queue of the node's capacity.
#[derive(Clone, Debug)]
pub struct Node {
    controller: Queue,
    /// What the user set; `None` takes the capacity of the link it is put at.
    own: Option<Rate>,
    capacity: Rate,
    /// When the virtual queue will be empty if nothing more comes.
    empty_at: Time,
}

impl Default for Node {
    fn default() -> Node {
        Node::new()
    }
}

impl Node {
    /// A node of its link's capacity.
    #[must_use]
    pub fn new() -> Node {
        Node { controller: Queue::new(), own: None, capacity: Rate::ZERO, empty_at: Time::ZERO }
    }

    /// A node of a capacity of its own, usually less than its link's.
    #[must_use]
    pub fn with_capacity(capacity: Rate) -> Node {
        Node { own: Some(capacity), ..Node::new() }
    }

    /// Bytes in the virtual queue.
    #[must_use]
    pub fn backlog(&self, now: Time) -> Bytes {
        self.capacity.bytes_in(self.empty_at.since(now))
    }
}

impl Router for Node {
    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        let backlog = self.backlog(now);
        self.capacity = self.own.unwrap_or(capacity);
        self.empty_at = now + backlog / self.capacity;
        self.controller.set_capacity(now, self.capacity);
    }

    /// The packet is served here and now: its feedback does not wait for a queue that is not there.
    fn handle_arrival(&mut self, now: Time, _queued: Bytes, packet: &mut Packet) -> Admission {
        let ahead = self.backlog(now);
        let admission = self.controller.handle_arrival(now, ahead, packet);
        self.controller.handle_departure(now, ahead, packet);
        self.empty_at = self.empty_at.max(now) + packet.size / self.capacity;
        admission
    }

    fn handle_timeout(&mut self, now: Time, _queued: Bytes) {
        let backlog = self.backlog(now);
        self.controller.handle_timeout(now, backlog);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.controller.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Note};
    use gtp_alloc::Span;

    fn full_packet() -> Packet {
        Packet { size: Bytes(1_000), body: Body::Empty, note: Note::None }
    }

    #[test]
    fn the_virtual_queue_fills_and_drains_at_the_nodes_own_capacity() {
        let mut node = Node::with_capacity(Rate::from_mbps(8));
        node.set_capacity(Time::ZERO, Rate::from_mbps(1_000));
        for _ in 0..5 {
            node.handle_arrival(Time::ZERO, Bytes(999_999), &mut full_packet());
        }
        assert_eq!(node.backlog(Time::ZERO), Bytes(5_000));
        // One byte per microsecond.
        assert_eq!(node.backlog(Time::ZERO + Span::from_millis(2)), Bytes(3_000));
        assert_eq!(node.backlog(Time::ZERO + Span::from_millis(9)), Bytes::ZERO);
    }

    #[test]
    fn a_new_capacity_drains_the_same_backlog() {
        let mut node = Node::new();
        node.set_capacity(Time::ZERO, Rate::from_mbps(8));
        node.handle_arrival(Time::ZERO, Bytes::ZERO, &mut full_packet());
        node.set_capacity(Time::ZERO, Rate::from_mbps(80));
        assert_eq!(node.backlog(Time::ZERO), Bytes(1_000));
        assert_eq!(node.backlog(Time::ZERO + Span::from_micros(100)), Bytes::ZERO);
    }
}
