//! Datagrams of one session that a control connection carries in place of UDP.
//!
//! To the engine a carrier is one more socket, with a name that no other has: what comes by it
//! bears that name, so no datagram from a real socket, or from another connection, can pass for one
//! of it. Both directions are bounded. What leaves goes into a queue that is small in bytes and in
//! time and drops the newest when it is full, so that a session sees loss and delay there as in any
//! queue of a path. What comes is held by a [`Permit`] until the engine has taken it in; the
//! connection is not read beyond that, and TCP slows its sender down.

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

/// Bytes that wait to be sent, at most: what 1 Gbit/s brings in 4 ms.
const QUEUE_BYTES: usize = 512 << 10;
/// While the oldest datagram has waited for this long, the queue takes no more than
/// [`QUEUE_LEAST`].
const QUEUE_SPAN: Span = Span::from_millis(50);
/// The bytes that the queue always takes: one batch of the engine.
const QUEUE_LEAST: usize = 64 << 10;
/// Bytes that wait for the engine, at most, but for one read; with the list of where they end.
const INBOUND_BYTES: usize = 1 << 20;

/// One end of a carrier: what the task that moves its bytes needs of the engine. Dropping it tells
/// the engine that the carrier is gone.
pub struct Carrier {
    id: SocketId,
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
        let outgoing = Arc::new(Outgoing::default());
        notices.send(Notice::Carrier(CarrierNotice::Carry {
            flow,
            carrier: id,
            outgoing: Arc::clone(&outgoing),
        }));
        Carrier { id, peer, notices, outgoing, inbound: Arc::default(), clock }
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
            if let Some(frames) = self.outgoing.take() {
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
    /// Takes a run of datagrams in, each of `segment` bytes but the last. Returns how many had no
    /// room.
    pub fn offer(&self, now: Time, run: &[u8], segment: usize) -> usize {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = queue.batches.front().map_or(Span::ZERO, |(since, _)| now.since(*since));
        let most = if waited > QUEUE_SPAN { QUEUE_LEAST } else { QUEUE_BYTES };
        let datagrams = run.chunks(segment.max(1));
        let count = datagrams.len();
        let mut frames = Vec::with_capacity(run.len() + count * (LENGTH_BYTES + 1));
        let mut taken = 0;
        for datagram in datagrams {
            if queue.bytes + frames.len() + datagram.len() > most {
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

    fn take(&self) -> Option<Vec<u8>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, frames) = queue.batches.pop_front()?;
        queue.bytes -= frames.len();
        Some(frames)
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
        let frames = outgoing.take().unwrap();
        assert_eq!(frames, [0, 0, 0, 3, DATAGRAM, 7, 7, 0, 0, 0, 2, DATAGRAM, 8]);
        assert!(outgoing.take().is_none());
    }

    #[test]
    fn a_full_queue_drops_the_newest_and_takes_more_once_something_has_left() {
        let outgoing = Outgoing::default();
        let run = vec![1; 64 << 10];
        let mut dropped = 0;
        for _ in 0..2 * QUEUE_BYTES / run.len() {
            dropped += outgoing.offer(ms(0), &run, 1 << 10);
        }
        assert!((500..600).contains(&dropped), "{dropped}");
        assert_eq!(outgoing.offer(ms(0), &run, 1 << 10), 64);
        outgoing.take().unwrap();
        assert_eq!(outgoing.offer(ms(0), &run[..1 << 10], 1 << 10), 0);
    }

    #[test]
    fn a_queue_that_does_not_move_takes_no_more_than_a_batch() {
        let outgoing = Outgoing::default();
        let run = vec![1; 32 << 10];
        assert_eq!(outgoing.offer(ms(0), &run, 1 << 10), 0);
        assert_eq!(outgoing.offer(ms(51), &run, 1 << 10), 1, "one batch, with its frames' heads");
        assert_eq!(outgoing.offer(ms(51), &run, 1 << 10), 32);
    }
}
