//! Rivals at hosts: the ends of `gtp-peers` on the same links as the protocol's own sessions.
//!
//! A rival's connection is a session like any other to whoever builds, traces and reads a world;
//! only its two ends are other machines, which the host polls by the same turns. Agents do not see
//! it, as agents do not see foreign traffic. Its packets travel as parcels; what the far end reads
//! of them lies in a store of its own, so that the protocol's datagrams pay nothing for it.

use core::fmt;
use std::collections::VecDeque;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_peers::{Endpoint, Packet, Progress};

use super::ends::Standing;
use super::spec::Pace;
use super::world::SessionStatus;

/// An end of a rival's connection, as a world takes it.
pub type PeerEnd = Box<dyn Endpoint>;

/// The two ends of a rival's connection; they must have been made for its starting time.
pub struct PeerEnds {
    /// At the source.
    pub sender: PeerEnd,
    /// At the sink.
    pub receiver: PeerEnd,
}

impl fmt::Debug for PeerEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerEnds").finish_non_exhaustive()
    }
}

/// One end at its host.
pub(crate) struct Peer {
    core: PeerEnd,
    /// The application's rates to come.
    pace: VecDeque<(Time, Rate)>,
    pub sent: u64,
    pub sent_bytes: Bytes,
    pub received: u64,
    pub received_bytes: Bytes,
    first: Option<Time>,
    ended: Option<Time>,
    stopped: Option<Time>,
    /// The end that is polled whenever this one is woken.
    pub tied: Option<u32>,
}

impl Peer {
    pub fn new(core: PeerEnd, pace: &Pace, tied: Option<u32>) -> Peer {
        let pace = match pace {
            Pace::Unlimited => VecDeque::new(),
            Pace::Script(script) => {
                let silent = script.first().is_none_or(|(at, _)| *at > Time::ZERO);
                let before = silent.then_some((Time::ZERO, Rate::ZERO));
                before.into_iter().chain(script.iter().copied()).collect()
            }
        };
        Peer {
            core,
            pace,
            sent: 0,
            sent_bytes: Bytes::ZERO,
            received: 0,
            received_bytes: Bytes::ZERO,
            first: None,
            ended: None,
            stopped: None,
            tied,
        }
    }

    pub fn progress(&self) -> Progress {
        self.core.progress()
    }

    /// A packet of the far end has come.
    pub fn handle_packet(&mut self, now: Time, packet: &Packet) {
        self.received += 1;
        self.received_bytes += packet.size;
        self.core.handle_packet(now, packet);
        if self.first.is_none() && self.core.progress().delivered > Bytes::ZERO {
            self.first = Some(now);
        }
        if self.ended.is_none() && self.core.is_done() {
            self.ended = Some(now);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(&(at, rate)) = self.pace.front()
            && at <= now
        {
            self.pace.pop_front();
            self.core.set_demand(now, (!rate.is_unlimited()).then_some(rate));
        }
        if self.core.poll_timeout().is_some_and(|at| at <= now) {
            self.core.handle_timeout(now);
        }
    }

    /// The next packet to send.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        let said = self.core.poll_transmit(now);
        if let Some(packet) = &said {
            self.sent += 1;
            self.sent_bytes += packet.size;
        }
        said
    }

    /// When it has something to do by itself, after `now`.
    pub fn poll_timeout(&self, now: Time) -> Time {
        let pace = self.pace.front().map_or(Time::MAX, |(at, _)| *at);
        let core = self.core.poll_timeout().unwrap_or(Time::MAX);
        core.min(pace).max(now + Span::from_nanos(1))
    }

    pub fn stop(&mut self, now: Time) {
        self.stopped.get_or_insert(now);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("progress", &self.core.progress()).finish_non_exhaustive()
    }
}

/// How a rival's connection stands. What is lost is not known to either end: packets sent again
/// stand in its place.
pub(crate) fn status(sender: &Peer, receiver: &Peer) -> SessionStatus {
    let (sent, got) = (sender.progress(), receiver.progress());
    let ended = receiver.ended.or(sender.ended);
    let standing = match (ended, sender.stopped, receiver.first) {
        (Some(_), _, _) => Standing::Done,
        (None, Some(_), _) => Standing::Stopped,
        (None, None, Some(_)) => Standing::Live,
        (None, None, None) => Standing::Opening,
    };
    SessionStatus {
        standing,
        sent_packets: sender.sent,
        sent_bytes: sender.sent_bytes,
        received_packets: receiver.received,
        received_bytes: receiver.received_bytes,
        payload: got.delivered,
        lost: sent.repeated,
        timeouts: sender.core.timeouts(),
        sending: sent.rate,
        rtt: sent.rtt,
        first_data: receiver.first,
        ended: ended.or(sender.stopped),
        ..SessionStatus::waiting()
    }
}

/// Packets of rivals under way. What stands in a free place is what was there last. They are kept
/// as ends hand them over, and so are copied once on their way: they are large.
#[derive(Clone, Debug, Default)]
pub(crate) struct Foreign {
    slots: Vec<Option<Packet>>,
    free: Vec<u32>,
}

impl Foreign {
    /// Keeps a packet; its place.
    #[inline]
    pub fn insert(&mut self, packet: Option<Packet>) -> u32 {
        if let Some(free) = self.free.pop() {
            self.slots[free as usize] = packet;
            return free;
        }
        self.slots.push(packet);
        self.slots.len() as u32 - 1
    }

    /// The packet at `place`.
    #[inline]
    pub fn get_mut(&mut self, place: u32) -> Option<&mut Packet> {
        self.slots[place as usize].as_mut()
    }

    /// A second packet like the one at `place`.
    pub fn copy(&mut self, place: u32) -> u32 {
        let packet = self.slots[place as usize].clone();
        self.insert(packet)
    }

    /// The place is free.
    #[inline]
    pub fn release(&mut self, place: u32) {
        self.free.push(place);
    }
}
