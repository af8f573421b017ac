//! When to look for datagrams again, at a host that receives fast.
//!
//! A thread that waits on its socket is woken for every batch that the network brings, and a wake
//! costs more than most of the work that it is for. So while much arrives the engine rests for a
//! moment instead, without listening, and then finds several batches at once. The moment is so
//! short that answers are hardly later for it, and that the socket's buffer is far from full then.

use gtp_alloc::{Bytes, Rate, Span, Time};

/// How fast datagrams arrive at this host, and what that means for its rest.
#[derive(Debug)]
pub(super) struct Naps {
    since: Time,
    bytes: Bytes,
    rate: Rate,
    /// Receive buffer of the socket that has least.
    room: Bytes,
}

/// The rate is the mean over at least this long.
const MEAN_OVER: Span = Span::from_millis(1);
/// Below this rate a batch is longer on its way than a rest.
const FAST: Rate = Rate::from_mbps(1_000);
/// The longest rest: a hundredth of a control interval of 20 ms.
const LONGEST: Span = Span::from_micros(200);
/// A shorter rest saves nothing.
const SHORTEST: Span = Span::from_micros(40);
/// So much of the buffer may fill during a rest: bookkeeping takes as much again, and the thread
/// may be late.
const ROOM_PART: u64 = 16;

impl Naps {
    /// Nothing has arrived yet.
    pub fn new(now: Time) -> Naps {
        Naps { since: now, bytes: Bytes::ZERO, rate: Rate::ZERO, room: Bytes(u64::MAX) }
    }

    /// A socket is there whose receive buffer is this large.
    pub fn handle_socket(&mut self, receive_buffer: Bytes) {
        self.room = self.room.min(receive_buffer);
    }

    /// These bytes have arrived.
    pub fn handle_received(&mut self, bytes: Bytes) {
        self.bytes += bytes;
    }

    /// How long to rest, now that everything that had arrived is taken; `None`: listen.
    pub fn rest(&mut self, now: Time) -> Option<Span> {
        let passed = now.since(self.since);
        if passed >= MEAN_OVER {
            self.rate = self.bytes.per(passed);
            (self.since, self.bytes) = (now, Bytes::ZERO);
        }
        if self.rate < FAST {
            return None;
        }
        let rest = LONGEST.min(Bytes(self.room.0 / ROOM_PART) / self.rate);
        (rest >= SHORTEST).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest at this rate, in the second millisecond.
    fn rest(buffer: u64, mbps: u64) -> Option<Span> {
        let mut naps = Naps::new(Time::ZERO);
        naps.handle_socket(Bytes(buffer));
        naps.handle_received(Bytes(mbps * 125));
        assert_eq!(naps.rest(Time::ZERO + Span::from_micros(999)), None, "nothing is known yet");
        naps.rest(Time::ZERO + MEAN_OVER)
    }

    #[test]
    fn only_a_fast_host_with_room_rests_and_never_long() {
        assert_eq!(rest(32 << 20, 999), None);
        assert_eq!(rest(32 << 20, 1_000), Some(LONGEST));
        assert_eq!(rest(32 << 20, 40_000), Some(LONGEST));
        assert_eq!(rest(212_992, 1_000), Some(Span::from_nanos(106_496)));
        assert_eq!(rest(212_992, 10_000), None, "the buffer would be full");
    }

    #[test]
    fn a_host_that_receives_no_more_listens_again() {
        let mut naps = Naps::new(Time::ZERO);
        naps.handle_socket(Bytes(32 << 20));
        naps.handle_received(Bytes(10 << 20));
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        assert!(naps.rest(at(2)).is_some());
        assert_eq!(naps.rest(at(4)), None);
    }
}
