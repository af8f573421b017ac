//! Datagrams of one session that a control connection carries in place of UDP.
//!
//! To the engine a carrier is one more socket, with a name that no other has: what comes by it
//! bears that name, so no datagram from a real socket, or from another connection, can pass for one
//! of it. Both directions are bounded. What leaves goes into a queue that is small in bytes and in
//! time. While it has no room a session supplies no content, so a slow connection costs no loss; it
//! goes on when the connection has taken something. What a session says besides is little and is
//! always taken, up to a bound. What comes is held by a [`Permit`] until the engine has taken it
//! in; the connection is not read beyond that, and TCP slows its sender down.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::{Span, Time};
use gtp_proto::FlowId;
use gtp_sys::Clock;
use gtp_sys::udp::Origin;
use tokio::sync::Notify;

use super::api::SocketId;
use super::command::{CarrierNotice, Notice, Notices};
use crate::messages::{DATAGRAM, LENGTH_BYTES};

/// Longest datagram that is carried: the longest unit with header, overhead and tag fits, and none
/// that an honest end sends is longer.
pub const CARRIED_MOST: usize = 9_216;

/// Bytes that wait to be sent, at most. Content comes nowhere near; what a session says besides
/// does if the connection stands still for half a minute, and is dropped then.
const QUEUE_BYTES: usize = 512 << 10;
/// While so many bytes wait, no content is added: a batch of the engine is on its way then, and
/// half of one behind it. What is added at once is a batch at most.
const CONTENT_BYTES: usize = 32 << 10;
/// While the oldest datagram has waited for this long, no content is added.
const CONTENT_SPAN: Span = Span::from_millis(5);
/// Bytes that wait for the engine, at most, but for one read; with the list of where they end.
const INBOUND_BYTES: usize = 1 << 20;

/// One end of a carrier: what the task that moves its bytes needs of the engine. Dropping it tells
/// the engine that the carrier is gone.
pub struct Carrier {
    id: SocketId,
    /// The session that waits for room, if content goes by it.
    flow: FlowId,
    peer: SocketAddr,
    notices: Notices,
    outgoing: Arc<Outgoing>,
    inbound: Arc<Inbound>,
    clock: Clock,
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Carrier({:?}, {})", self.id, self.peer)
    }
}

/// Datagrams that have come by a carrier, one after the other.
pub(super) struct Parcel {
    pub carrier: SocketId,
    pub peer: SocketAddr,
    pub came: Time,
    pub bytes: Vec<u8>,
    /// Where each ends.
    pub ends: Vec<usize>,
    _permit: Permit,
}

impl Parcel {
    /// Where its datagrams came from.
    pub fn origin(&self) -> Origin {
        Origin { from: self.peer, to: None }
    }

    /// Its datagrams.
    pub fn datagrams(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (mut rest, mut begin) = (&mut self.bytes[..], 0);
        self.ends.iter().map_while(move |&end| {
            let (datagram, after) = std::mem::take(&mut rest).split_at_mut_checked(end - begin)?;
            (rest, begin) = (after, end);
            Some(datagram)
        })
    }
}

/// What waits for the engine.
#[derive(Default)]
struct Inbound {
    bytes: AtomicUsize,
    less: Notify,
}

/// Bytes that count as waiting for the engine until this is dropped.
struct Permit {
    inbound: Arc<Inbound>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.inbound.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.inbound.less.notify_one();
    }
}

/// What waits to be sent, as frames.
#[derive(Default)]
pub(super) struct Outgoing {
    queue: Mutex<Queue>,
    filled: Notify,
}

#[derive(Default)]
struct Queue {
    /// Frames that came together, and when.
    batches: VecDeque<(Time, Vec<u8>)>,
    bytes: usize,
    /// A session waits until content may be added.
    is_awaited: bool,
}

/// Frames that leave.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    frames: Vec<u8>,
    /// Content may be added again, and a session waits for that.
    makes_room: bool,
}

impl Carrier {
    /// The carrier of a session of this engine, whose peer's control connection comes from `peer`.
    /// An initiator sends by it from now on; a responder once its peer does.
    pub(super) fn open(
        id: SocketId,
        (flow, peer): (FlowId, SocketAddr),
        notices: Notices,
        clock: Clock,
    ) -> Carrier {
        let (outgoing, inbound) = (Arc::default(), Arc::default());
        let carrier = Carrier { id, flow, peer, notices, outgoing, inbound, clock };
        carrier.carry(flow);
        carrier
    }

    /// Has it carry another session with the same peer as well, which sends no content by it.
    pub(super) fn also(self, flow: FlowId) -> Carrier {
        self.carry(flow);
        self
    }

    /// Has its sessions send to this port of the peer's by UDP first, now and then, once the peer
    /// has them use it.
    pub(crate) fn going_first(self, port: Option<u16>) -> Carrier {
        if let Some(port) = port.filter(|&port| port > 0) {
            self.notices.send(Notice::Carrier(CarrierNotice::GoFirst(self.id, port)));
        }
        self
    }

    fn carry(&self, flow: FlowId) {
        let (carrier, outgoing) = (self.id, Arc::clone(&self.outgoing));
        self.notices.send(Notice::Carrier(CarrierNotice::Carry { flow, carrier, outgoing }));
    }

    /// A carrier of no session, whose engine takes nothing.
    #[cfg(test)]
    pub fn alone() -> Carrier {
        let poller = gtp_sys::wake::Poller::new().unwrap();
        let notices = Notices::new(std::sync::mpsc::channel().0, poller.waker());
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        Carrier::open(SocketId(1), (1, peer), notices, Clock::start())
    }

    /// Waits until there are frames to be sent, and returns those of one batch. Safe to cancel.
    pub async fn next_frames(&self) -> Vec<u8> {
        loop {
            if let Some(Taken { frames, makes_room }) = self.outgoing.take() {
                if makes_room {
                    self.notices.send(Notice::Carrier(CarrierNotice::Room(self.flow)));
                }
                return frames;
            }
            self.outgoing.filled.notified().await;
        }
    }

    /// Hands over datagrams that have come, `ends` being where each ends, once the engine has room
    /// for them.
    pub async fn deliver(&self, bytes: Vec<u8>, ends: Vec<usize>) {
        let came = self.clock.now();
        while self.inbound.bytes.load(Ordering::Relaxed) > INBOUND_BYTES {
            self.inbound.less.notified().await;
        }
        let held = bytes.len() + size_of::<usize>() * ends.len();
        self.inbound.bytes.fetch_add(held, Ordering::Relaxed);
        let permit = Permit { inbound: Arc::clone(&self.inbound), bytes: held };
        let (carrier, peer) = (self.id, self.peer);
        let parcel = Parcel { carrier, peer, came, bytes, ends, _permit: permit };
        self.notices.send(Notice::Carrier(CarrierNotice::Carried(Box::new(parcel))));
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.notices.send(Notice::Carrier(CarrierNotice::Drop(self.id)));
    }
}

impl Outgoing {
    /// Whether content may be added at `now`, a batch of the engine at most. If not, what leaves
    /// next and makes room says so.
    pub fn has_room(&self, now: Time) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = queue.batches.front().map_or(Span::ZERO, |(since, _)| now.since(*since));
        let has_room = queue.bytes < CONTENT_BYTES && waited < CONTENT_SPAN;
        queue.is_awaited |= !has_room;
        has_room
    }

    /// Takes a run of datagrams in, each of `segment` bytes but the last. Returns how many had no
    /// room.
    pub fn offer(&self, now: Time, run: &[u8], segment: usize) -> usize {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let datagrams = run.chunks(segment.max(1));
        let count = datagrams.len();
        let mut frames = Vec::with_capacity(run.len() + count * (LENGTH_BYTES + 1));
        let mut taken = 0;
        for datagram in datagrams {
            if queue.bytes + frames.len() + datagram.len() > QUEUE_BYTES {
                break;
            }
            let length = u32::try_from(datagram.len() + 1).unwrap_or(u32::MAX);
            frames.extend_from_slice(&length.to_be_bytes());
            frames.push(DATAGRAM);
            frames.extend_from_slice(datagram);
            taken += 1;
        }
        if taken > 0 {
            queue.bytes += frames.len();
            queue.batches.push_back((now, frames));
            self.filled.notify_one();
        }
        count - taken
    }

    fn take(&self) -> Option<Taken> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, frames) = queue.batches.pop_front()?;
        queue.bytes -= frames.len();
        let makes_room = queue.is_awaited && queue.bytes < CONTENT_BYTES;
        queue.is_awaited &= !makes_room;
        Some(Taken { frames, makes_room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn datagrams_leave_as_frames_in_their_order() {
        let outgoing = Outgoing::default();
        assert_eq!(outgoing.offer(ms(0), &[7, 7, 8], 2), 0);
        let Taken { frames, makes_room } = outgoing.take().unwrap();
        assert_eq!(frames, [0, 0, 0, 3, DATAGRAM, 7, 7, 0, 0, 0, 2, DATAGRAM, 8]);
        assert!(!makes_room, "nobody waits for it");
        assert_eq!(outgoing.take(), None);
    }

    #[test]
    fn content_waits_for_room_without_a_drop_and_the_waiting_session_is_told_once() {
        let outgoing = Outgoing::default();
        let batch = vec![1; 64 << 10];
        assert!(outgoing.has_room(ms(0)));
        assert_eq!(outgoing.offer(ms(0), &batch, 1 << 10), 0);
        assert!(!outgoing.has_room(ms(0)));
        assert_eq!(
            outgoing.offer(ms(0), &[1; 100], 100),
            0,
            "a status is taken although there is no room"
        );
        assert!(outgoing.take().unwrap().makes_room && outgoing.has_room(ms(0)));
        assert!(!outgoing.take().unwrap().makes_room);
    }

    #[test]
    fn a_queue_that_does_not_move_takes_no_content_until_its_oldest_has_left() {
        let outgoing = Outgoing::default();
        for at in [0, 4] {
            assert!(outgoing.has_room(ms(at)));
            assert_eq!(outgoing.offer(ms(at), &[1; 1_000], 1_000), 0);
        }
        assert!(!outgoing.has_room(ms(5)));
        assert!(outgoing.take().unwrap().makes_room && outgoing.has_room(ms(8)));
    }

    #[test]
    fn what_waits_is_bounded_whatever_it_is() {
        let outgoing = Outgoing::default();
        let dropped: usize = (0..20_000).map(|_| outgoing.offer(ms(0), &[1; 100], 100)).sum();
        assert_eq!(20_000 - dropped, QUEUE_BYTES / (100 + LENGTH_BYTES + 1));
    }
}
