//! Parallel TCP: several connections that share one transfer (PSockets, GridFTP); thesis, II.5.B.
//!
//! Each connection is a [`Sender`] of its own with a window of its own; what it may send next is
//! taken, one segment at a time, from what the transfer still has. So m connections grow m times
//! as fast as one, and take m shares of a bottleneck.

use alloc::boxed::Box;
use alloc::vec::Vec;

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::law::Law;
use super::receiver::{Receiver, ReceiverConfig};
use super::sender::{Sender, SenderConfig};
use super::supply::Supply;
use crate::{Body, Endpoint, Packet, Progress};

/// The sending end: connections that take turns.
#[derive(Debug)]
pub struct ParallelSender {
    senders: Vec<Sender>,
    supply: Supply,
    allotted: u64,
    /// Whose turn it is.
    turn: usize,
    wake: Option<Time>,
}

/// The receiving end.
#[derive(Debug)]
pub struct ParallelReceiver {
    receivers: Vec<Receiver>,
    length: Option<Bytes>,
}

/// Connections of one transfer, at most: what GridFTP's users call many.
pub const CONNECTIONS_MAX: u16 = 256;

impl ParallelSender {
    /// One connection for each law, at most [`CONNECTIONS_MAX`]; `config.length` is the whole
    /// transfer's. Its bytes are rounded up to whole segments.
    ///
    /// # Panics
    /// If there is no law, or there are too many.
    pub fn new(now: Time, config: SenderConfig, laws: Vec<Box<dyn Law>>) -> ParallelSender {
        assert!(!laws.is_empty(), "a transfer has a connection");
        assert!(laws.len() <= usize::from(CONNECTIONS_MAX), "not more connections than the limit");
        let each = SenderConfig { length: None, ..config };
        let senders = (0..).zip(laws);
        let senders = senders.map(|(k, law)| Sender::new(now, each, law).share(k)).collect();
        let supply = Supply::new(config.mss, config.length);
        ParallelSender { senders, supply, allotted: 0, turn: 0, wake: None }
    }

    /// The connections.
    pub fn connections(&self) -> &[Sender] {
        &self.senders
    }

    /// Gives a segment to each connection that could send one, from the one whose turn it is.
    fn allot(&mut self, now: Time) {
        let (count, limit) = (self.senders.len(), self.supply.limit(now));
        for k in 0..count {
            if self.allotted >= limit {
                return;
            }
            let sender = &mut self.senders[(self.turn + k) % count];
            if sender.wants_new(now) {
                sender.allot();
                self.allotted += 1;
            }
        }
    }
}

impl ParallelReceiver {
    /// The receiving ends of `connections` connections; `length` is the transfer's, so that the
    /// end of it is known.
    pub fn new(
        config: ReceiverConfig,
        connections: u16,
        length: Option<Bytes>,
    ) -> ParallelReceiver {
        let receivers = (0..connections.clamp(1, CONNECTIONS_MAX))
            .map(|k| Receiver::new(config).share(k))
            .collect();
        ParallelReceiver { receivers, length }
    }
}

impl Endpoint for ParallelSender {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        if let Body::Tcp(tcp) = &packet.body
            && let Some(sender) = self.senders.get_mut(usize::from(tcp.connection))
        {
            sender.handle_packet(now, packet);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        for sender in &mut self.senders {
            if sender.poll_timeout().is_some_and(|at| at <= now) {
                sender.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        self.allot(now);
        for _ in 0..self.senders.len() {
            let turn = self.turn;
            self.turn = (turn + 1) % self.senders.len();
            if let Some(packet) = self.senders[turn].poll_transmit(now) {
                return Some(packet);
            }
        }
        let due = self.supply.due(self.allotted);
        self.wake = due.map(|due| due.max(now + Span::from_micros(1)));
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        let ends = self.senders.iter().filter_map(Endpoint::poll_timeout);
        ends.chain(self.wake).min()
    }

    fn set_demand(&mut self, now: Time, rate: Option<Rate>) {
        self.supply.set_demand(now, rate, self.allotted);
    }

    fn progress(&self) -> Progress {
        let acknowledged: u64 = self.senders.iter().map(Sender::acknowledged).sum();
        let mut all = Progress {
            delivered: self.supply.bytes(acknowledged),
            done: acknowledged >= self.supply.segments(),
            ..Progress::default()
        };
        for one in self.senders.iter().map(Endpoint::progress) {
            all.sent += one.sent;
            all.repeated += one.repeated;
            all.window += one.window;
            all.rate = all.rate.saturating_add(one.rate);
            all.rtt = all.rtt.max(one.rtt);
        }
        all
    }

    fn timeouts(&self) -> u64 {
        self.senders.iter().map(Sender::timeouts).sum()
    }
}

impl Endpoint for ParallelReceiver {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        if let Body::Tcp(tcp) = &packet.body
            && let Some(receiver) = self.receivers.get_mut(usize::from(tcp.connection))
        {
            receiver.handle_packet(now, packet);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        for receiver in &mut self.receivers {
            if receiver.poll_timeout().is_some_and(|at| at <= now) {
                receiver.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        self.receivers.iter_mut().find_map(|receiver| receiver.poll_transmit(now))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.receivers.iter().filter_map(Endpoint::poll_timeout).min()
    }

    /// The reader's rate, shared equally.
    fn set_demand(&mut self, now: Time, rate: Option<Rate>) {
        let count = self.receivers.len() as f64;
        for receiver in &mut self.receivers {
            receiver.set_demand(now, rate.map(|rate| rate.scale(1.0 / count)));
        }
    }

    fn progress(&self) -> Progress {
        let arrived = self.receivers.iter().map(|receiver| receiver.progress().delivered);
        let arrived = arrived.fold(Bytes::ZERO, |sum, bytes| sum + bytes);
        let delivered = self.length.map_or(arrived, |length| arrived.min(length));
        Progress { delivered, done: self.length == Some(delivered), ..Progress::default() }
    }
}
