//! Rate laws that one end runs alone: how they are asked, and what they are told.
//!
//! By the grant law and the end-node law the hosts at both ends agree on a session's rate. The
//! protocols that the papers compare with leave it to one end: to the source of each session
//! ([`SourceLaw`]), to its sink ([`SessionLaw`]), or to the host of the sinks ([`SinkLaw`]).
//! Whoever moves data, simulated or real, counts packets and asks such a law for rates; the law
//! knows no packets, and neither side knows the other.

use alloc::vec::Vec;

use crate::{Bytes, Rate, Span, Time};

/// What one end knows of what a session's source has sent, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came.
    pub received: u64,
    /// Packets that were lost.
    pub lost: u64,
}

impl Counts {
    /// What was counted since an earlier state.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            received: self.received.saturating_sub(earlier.received),
            lost: self.lost.saturating_sub(earlier.lost),
        }
    }

    /// Packets that were sent.
    pub fn sent(&self) -> u64 {
        self.received.saturating_add(self.lost)
    }

    /// Lost of all that were sent: zero if nothing was.
    pub fn loss(&self) -> f64 {
        let sent = self.sent();
        if sent == 0 { 0.0 } else { self.lost as f64 / sent as f64 }
    }
}

/// A law by which the source of one session decides alone.
pub trait SourceLaw: core::fmt::Debug + Send {
    /// At `now`, so much is known to have come and been lost of packets that have `packet` bytes on
    /// links. Called whenever more is known, and when [`SourceLaw::poll_timeout`] says so.
    fn handle_counts(&mut self, now: Time, counts: &Counts, packet: Bytes);

    /// The rate to send such packets at, in bits on links.
    fn rate(&self, packet: Bytes) -> Rate;

    /// The same for a law that asks which packet is next, and what its sink grants.
    fn rate_of(&self, next: &Next) -> Rate {
        self.rate(next.packet)
    }

    /// The interface that packets leave by has this rate from now on. Most laws do not know of it.
    fn set_interface(&mut self, _rate: Rate) {}

    /// When the law decides next, if it does so by the clock.
    fn poll_timeout(&self) -> Option<Time>;
}

/// The packet that a source sends next.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    /// Its number.
    pub number: u64,
    /// Bytes on links of a whole packet.
    pub packet: Bytes,
    /// What the sink grants.
    pub granted: Rate,
}

/// A packet as its sink saw it.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// Its number.
    pub number: u64,
    /// When it left, by the source's clock: microseconds modulo 2^32.
    pub sent_at: u32,
    /// The newest grant that its source obeyed.
    pub grant: u32,
    /// Bytes on links of a whole packet.
    pub packet: Bytes,
    /// The session's round-trip time; zero while unknown.
    pub rtt: Span,
}

/// A law by which the sink of one session decides alone.
pub trait SessionLaw: core::fmt::Debug + Send {
    /// A packet came at `now`.
    fn handle_packet(&mut self, now: Time, packet: &Came);

    /// The newest grant has this number; said again at each look.
    fn handle_grant(&mut self, number: u32);

    /// [`SessionLaw::poll_timeout`] is over.
    fn handle_timeout(&mut self, now: Time);

    /// When the law decides next.
    fn poll_timeout(&self) -> Option<Time>;

    /// The rate that the source is to be granted, in bits on links.
    fn wish(&self) -> Rate;
}

/// What a sink's host knows of one session that ends there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arriving {
    /// The session's name at its host.
    pub id: u32,
    /// What came and was lost of it.
    pub counts: Counts,
    /// Bytes on links of one of its packets.
    pub packet: Bytes,
    /// Its round-trip time; zero while unknown.
    pub rtt: Span,
    /// The most that it can use, whatever else limits it.
    pub most: Rate,
}

/// A law by which the host of several sinks decides alone over the rates of what ends there.
pub trait SinkLaw: core::fmt::Debug + Send {
    /// At `now` these sessions are here; writes the rate of each to `rates`, in the same order.
    /// A session that is not among them has ended.
    fn decide(&mut self, now: Time, sessions: &[Arriving], rates: &mut Vec<Rate>);

    /// The host's capacity is this from now on.
    fn set_capacity(&mut self, capacity: Rate);

    /// When the law decides next.
    fn poll_timeout(&self) -> Option<Time>;
}
