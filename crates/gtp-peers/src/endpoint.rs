//! One end of a connection: the contract that every rival's sender and receiver keeps.
//!
//! The same shape as the protocol's own core: inputs are `handle_*`, outputs are drained by
//! `poll_*`, and time is an argument. How packets travel is not known here.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::Packet;

/// One end of a connection, sender or receiver.
///
/// Any number of inputs at one `now`; then the host drains [`poll_transmit`](Self::poll_transmit)
/// until it answers `None`, and waits until the earlier of [`poll_timeout`](Self::poll_timeout)
/// and the next packet. Times never go backwards.
pub trait Endpoint {
    /// A packet has arrived.
    fn handle_packet(&mut self, now: Time, packet: &Packet);

    /// The time that [`poll_timeout`](Self::poll_timeout) named has come. Calls that come early or
    /// for nothing change nothing.
    fn handle_timeout(&mut self, now: Time);

    /// The next packet to put on the wire at `now`, if there is one.
    fn poll_transmit(&mut self, now: Time) -> Option<Packet>;

    /// When this end next has something to do by itself: a pacing instant, a timer.
    fn poll_timeout(&self) -> Option<Time>;

    /// The application's limit from now on: it produces (sender) or reads (receiver) no faster.
    /// `None` lifts the limit.
    fn set_demand(&mut self, now: Time, rate: Option<Rate>);

    /// Where the connection stands.
    fn progress(&self) -> Progress;

    /// How often the timer for lost packets has rung (sender), of protocols that have one.
    fn timeouts(&self) -> u64 {
        0
    }

    /// Whether the transfer is done, as `progress` says it too; a host asks after each packet.
    fn is_done(&self) -> bool {
        self.progress().done
    }
}

/// Where a connection stands, as seen from one end. What an end cannot know stays zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Payload bytes handed to the application in order (receiver) or known to have arrived
    /// (sender).
    pub delivered: Bytes,
    /// Packets with payload put on the wire, repeated ones included (sender).
    pub sent: u64,
    /// Packets with payload that were sent again (sender).
    pub repeated: u64,
    /// Congestion window in packets, for protocols with a window (sender).
    pub window: f64,
    /// Rate by which packets are paced, for protocols with a rate (sender).
    pub rate: Rate,
    /// Smoothed round-trip time (sender).
    pub rtt: Span,
    /// The transfer has a given length and all of it has arrived.
    pub done: bool,
}
