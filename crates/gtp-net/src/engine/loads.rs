//! How much a session may have read from the disk: what it may send, and a little more.
//!
//! A peer that asks for one unit of each block makes the source read a whole block for each unit.
//! So reading is charged like sending: it keeps to the rate at which the session may send, some
//! seconds ahead. A peer that takes what was read never meets this limit. Time and rate are
//! arguments; blocks are unknown here.

use gtp_alloc::{Bytes, Rate, Span, Time};

/// Limits what is read to what may be sent.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// When all that was read would have been read at its rate.
    due: Time,
}

/// Reading may be faster than sending by this part: blocks that were sent and lost are read again.
const MORE: f64 = 1.25;
/// An unknown or very small rate counts as this, so that a session can begin.
const LEAST: Rate = Rate::from_mbps(10);
/// How far reading may run ahead of sending, in time at that rate.
const AHEAD: Span = Span::from_secs(4);

impl Loads {
    /// Whether more may be read now.
    pub fn have_room(&self, now: Time) -> bool {
        self.due.since(now) < AHEAD
    }

    /// Notes that this much is read at `now` for a session that may send at this rate.
    pub fn take(&mut self, now: Time, length: Bytes, rate: Rate) {
        let rate = rate.max(LEAST).scale(MORE);
        self.due = self.due.max(now) + length / rate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 256 * 1024;

    /// Bytes read in a minute by a peer that sends at `rate` and takes one in `of` bytes read.
    fn read_in_a_minute(rate: Rate, of: u64) -> (u64, u64) {
        let mut loads = Loads::default();
        let (mut read, mut sent) = (0, 0);
        for ms in 0..60_000 {
            let now = Time::from_nanos(1) + Span::from_millis(ms);
            let mut room = rate.bytes_in(Span::from_millis(ms)).0.saturating_sub(sent);
            while room > 0 && loads.have_room(now) {
                loads.take(now, Bytes(BLOCK), rate);
                read += BLOCK;
                sent += BLOCK / of;
                room = room.saturating_sub(BLOCK / of);
            }
        }
        (read, sent)
    }

    #[test]
    fn a_peer_that_takes_one_unit_of_each_block_has_no_more_read_than_it_might_have_been_sent() {
        let rate = Rate::from_mbps(50);
        let (read, _) = read_in_a_minute(rate, 187);
        let fair = rate.bytes_in(Span::from_secs(60)).0;
        assert!(read < fair * 14 / 10, "{read} of {fair}");
    }

    #[test]
    fn a_peer_that_takes_all_that_is_read_for_it_is_not_held_up() {
        for mbps in [1, 50, 10_000] {
            let rate = Rate::from_mbps(mbps);
            let (read, sent) = read_in_a_minute(rate, 1);
            assert_eq!(read, sent);
            let fair = rate.bytes_in(Span::from_secs(60)).0;
            assert!(sent + BLOCK >= fair * 999 / 1_000, "{sent} of {fair} at {mbps}");
        }
    }
}
