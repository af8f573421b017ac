//! A split proxy (RFC 3135, 3.1; thesis, II.5.B): two connections back to back.
//!
//! The first ends at the proxy, which acknowledges in the far receiver's place; the second begins
//! there. Each has half the way and so half the round trip, and losses on one are repaired there.
//! What the first has delivered is what the second may send; what the second has not sent fills
//! the proxy's buffer, which is the first's receiver window.
//!
//! A [`Proxy`] is one [`Endpoint`] between the two: [`direction`] says where a packet of its goes.
//! A host that knows connections of two ends takes its two [`Side`]s, and polls both whenever one
//! of them was woken.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;

use gtp_alloc::{Bytes, Rate, Time};

use super::law::Law;
use super::receiver::{Receiver, ReceiverConfig};
use super::segment::Segment;
use super::sender::{Sender, SenderConfig};
use crate::{Body, Endpoint, Packet, Progress};

/// Which way a packet of TCP travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a sender towards a receiver.
    Onward,
    /// Back.
    Back,
}

/// The way of a packet, `None` if it is not of TCP.
pub fn direction(packet: &Packet) -> Option<Direction> {
    let Body::Tcp(tcp) = &packet.body else { return None };
    Some(match tcp.segment {
        Segment::Open | Segment::Data { .. } | Segment::Probe => Direction::Onward,
        Segment::Opened { .. } | Segment::Ack(_) => Direction::Back,
    })
}

/// The middle of a split connection.
#[derive(Debug)]
pub struct Proxy {
    inlet: Receiver,
    outlet: Sender,
}

impl Proxy {
    /// A proxy whose second connection has this configuration and law; `receiver.buffer` is what
    /// it holds at most.
    pub fn new(
        now: Time,
        receiver: ReceiverConfig,
        sender: SenderConfig,
        law: Box<dyn Law>,
    ) -> Proxy {
        let mut inlet = Receiver::new(receiver);
        inlet.await_release();
        Proxy { inlet, outlet: Sender::new(now, sender, law).share(0) }
    }

    /// Bytes that wait in the proxy.
    pub fn held(&self) -> Bytes {
        self.inlet.progress().delivered - self.outlet.progress().delivered
    }

    /// The second connection.
    pub fn outlet(&self) -> &Sender {
        &self.outlet
    }

    /// Hands over what has come in, and makes room for what has gone out.
    fn relay(&mut self) {
        self.outlet.supply_to(self.inlet.next());
        self.inlet.release_to(self.outlet.acknowledged());
    }
}

impl Endpoint for Proxy {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        match direction(packet) {
            Some(Direction::Onward) => self.inlet.handle_packet(now, packet),
            Some(Direction::Back) => self.outlet.handle_packet(now, packet),
            None => {}
        }
        self.relay();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.inlet.handle_timeout(now);
        self.outlet.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        self.inlet.poll_transmit(now).or_else(|| self.outlet.poll_transmit(now))
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.inlet.poll_timeout(), self.outlet.poll_timeout()].into_iter().flatten().min()
    }

    /// A proxy has no application.
    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}

    fn progress(&self) -> Progress {
        self.outlet.progress()
    }
}

/// One side of a proxy as an end of its own connection.
#[derive(Debug)]
pub struct Side {
    proxy: Rc<RefCell<Shared>>,
    direction: Direction,
}

/// A proxy with what its sides have still to send, by [`Direction`].
#[derive(Debug)]
struct Shared {
    proxy: Proxy,
    outboxes: [VecDeque<Packet>; 2],
}

impl Proxy {
    /// The receiving end of the first connection and the sending end of the second.
    pub fn sides(self) -> (Side, Side) {
        let shared = Shared { proxy: self, outboxes: [VecDeque::new(), VecDeque::new()] };
        let proxy = Rc::new(RefCell::new(shared));
        let inlet = Side { proxy: Rc::clone(&proxy), direction: Direction::Back };
        (inlet, Side { proxy, direction: Direction::Onward })
    }
}

impl Side {
    /// Bytes that wait in the proxy.
    pub fn held(&self) -> Bytes {
        self.proxy.borrow().proxy.held()
    }
}

impl Endpoint for Side {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        self.proxy.borrow_mut().proxy.handle_packet(now, packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.proxy.borrow_mut().proxy.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        let Shared { proxy, outboxes } = &mut *self.proxy.borrow_mut();
        while let Some(packet) = proxy.poll_transmit(now) {
            if let Some(way) = direction(&packet) {
                outboxes[way as usize].push_back(packet);
            }
        }
        outboxes[self.direction as usize].pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.proxy.borrow().proxy.poll_timeout()
    }

    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}

    /// Of its own connection.
    fn progress(&self) -> Progress {
        let shared = self.proxy.borrow();
        match self.direction {
            Direction::Back => shared.proxy.inlet.progress(),
            Direction::Onward => shared.proxy.outlet.progress(),
        }
    }
}
