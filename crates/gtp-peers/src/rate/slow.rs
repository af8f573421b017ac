//! A receiver that reads no faster than its host can: the queue `Q_r` of LambdaStream's Fig. 1.
//!
//! Packets wait in the host's buffer until the reader gets to them, and are lost when it is full.
//! Protocols without flow control are blind to it but for what they lose and how late the rest
//! comes, so this wraps any end. It does nothing while no limit is set.
//!
//! | rule | source | where |
//! |---|---|---|
//! | packets wait for the reader, each behind those before it | Fig. 1 | `handle_packet` |
//! | what finds the buffer full is lost | Fig. 1; 2.2 | `handle_packet` |
//! | the rate may change, and what waits is read at the new one | ours | `set_demand` |

use alloc::collections::VecDeque;

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::{Endpoint, Packet, Progress};

/// An end behind a buffer that is read at a limited rate.
pub struct Slow<E> {
    inner: E,
    limit: Option<Rate>,
    buffer: Bytes,
    waiting: VecDeque<(Time, Packet)>,
    held: Bytes,
    free: Time,
    lost: u64,
}

impl<E: Endpoint> Slow<E> {
    /// `inner` behind a buffer of `buffer` bytes, not limited until
    /// [`set_demand`](Endpoint::set_demand).
    pub fn new(inner: E, buffer: Bytes) -> Slow<E> {
        let (waiting, held) = (VecDeque::new(), Bytes::ZERO);
        Slow { inner, limit: None, buffer, waiting, held, free: Time::ZERO, lost: 0 }
    }

    /// The end itself.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// Packets that found the buffer full.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn read(&mut self, now: Time) {
        while self.waiting.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, packet)) = self.waiting.pop_front() else { break };
            self.held -= packet.size;
            self.inner.handle_packet(at.max(now), &packet);
        }
    }
}

impl<E: Endpoint> Endpoint for Slow<E> {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        self.read(now);
        if self.limit.is_none() && self.waiting.is_empty() {
            return self.inner.handle_packet(now, packet);
        }
        if self.held + packet.size > self.buffer {
            self.lost += 1;
            return;
        }
        let takes = self.limit.map_or(Span::ZERO, |rate| packet.size / rate);
        self.free = self.free.max(now) + takes;
        self.held += packet.size;
        self.waiting.push_back((self.free, packet.clone()));
    }

    fn handle_timeout(&mut self, now: Time) {
        self.read(now);
        if self.inner.poll_timeout().is_some_and(|due| due <= now) {
            self.inner.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        self.inner.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let next = self.waiting.front().map(|(at, _)| *at);
        [next, self.inner.poll_timeout()].into_iter().flatten().min()
    }

    fn set_demand(&mut self, now: Time, rate: Option<Rate>) {
        self.limit = rate;
        // What waits is read at the new rate.
        self.free = now;
        for (at, packet) in &mut self.waiting {
            self.free += rate.map_or(Span::ZERO, |rate| packet.size / rate);
            *at = self.free;
        }
    }

    fn progress(&self) -> Progress {
        self.inner.progress()
    }
}
