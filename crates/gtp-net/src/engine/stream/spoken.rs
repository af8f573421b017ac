//! The ring of a stream's source: what was said and may have to be said again.
//!
//! Bytes come from the application and are cut into units as they leave, so a unit is as long as
//! what there was to send. The sink asks for a unit only when it has the one a window before it:
//! asking is what lets go of the past. Nothing here knows rates, sessions or threads.

use std::collections::VecDeque;

use gtp_proto::limits::UNIT_ETHERNET;

use super::units::Units;
use crate::messages::STREAM_UNSENT;

/// What a unit says beside its bytes: that the stream ends with it. Its first byte.
pub const LAST: u8 = 1;

/// An emptied ring gives back memory beyond this.
const KEPT: usize = 64 << 10;

/// The bytes of a stream between the application and the last unit that the sink has.
#[derive(Debug)]
pub struct Spoken {
    window: u64,
    /// Bytes that may wait to be cut.
    most: usize,
    /// Bytes of units that may be asked for again, then those not cut yet.
    bytes: VecDeque<u8>,
    /// Place in the stream of the first of them.
    base: u64,
    /// The first unit that is kept.
    first: u64,
    /// Where each kept unit ends in the stream.
    ends: VecDeque<u64>,
    /// The application will say nothing more.
    finished: bool,
    /// The unit that says so, once cut.
    last: Option<u64>,
}

impl Spoken {
    /// A stream whose sink asks at most this many units ahead.
    pub fn new(window: u32) -> Spoken {
        Spoken {
            window: u64::from(window),
            most: Spoken::unsent_most(window) as usize,
            bytes: VecDeque::new(),
            base: 0,
            first: 0,
            ends: VecDeque::new(),
            finished: false,
            last: None,
        }
    }

    /// Bytes of a stream with this window that may wait to be sent for the first time, beside the
    /// window itself: never more than a window of ordinary units holds.
    pub fn unsent_most(window: u32) -> u64 {
        (STREAM_UNSENT as u64).min(u64::from(window) * u64::from(UNIT_ETHERNET))
    }

    /// Takes as much of `bytes` as there is room for.
    pub fn say(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.bytes.extend(&bytes[..taken]);
        taken
    }

    /// Bytes that would be taken now.
    pub fn room(&self) -> usize {
        if self.finished { 0 } else { self.most.saturating_sub(self.unsent()) }
    }

    /// Whether so much room is worth waking a writer for: half of all, so that it is not woken for
    /// every packet.
    pub fn has_much_room(&self) -> bool {
        self.room() >= self.most / 2
    }

    /// Bytes never sent.
    pub fn unsent(&self) -> usize {
        self.bytes.len() - (self.sent_end() - self.base) as usize
    }

    /// Nothing more will be said.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether that was said.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Bytes said in all.
    pub fn total(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Where a unit's bytes lie; nowhere, for one that was forgotten: a repair that was asked for
    /// before its unit came late is answered with nothing, and not wanted any more.
    fn content(&self, unit: u64) -> std::ops::Range<usize> {
        let Some(at) = unit.checked_sub(self.first) else { return 0..0 };
        let end = |at: u64| self.ends.get(at as usize).copied();
        let start = at.checked_sub(1).and_then(end).unwrap_or(self.base);
        let place = |at: u64| (at - self.base) as usize;
        end(at).map_or(0..0, |end| place(start)..place(end))
    }

    /// Where the part that was sent ends.
    fn sent_end(&self) -> u64 {
        self.ends.back().copied().unwrap_or(self.base)
    }
}

impl Units for Spoken {
    fn next(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    fn cut(&mut self, payload: u16) -> bool {
        let most = usize::from(payload).saturating_sub(1);
        let unsent = self.unsent();
        let closes = self.finished && unsent <= most;
        if self.last.is_some() || most == 0 || unsent == 0 && !closes {
            return false;
        }
        if closes {
            self.last = Some(self.first + self.ends.len() as u64);
        }
        self.ends.push_back(self.sent_end() + unsent.min(most) as u64);
        true
    }

    fn length(&self, unit: u64) -> u16 {
        1 + self.content(unit).len() as u16
    }

    fn write(&self, unit: u64, out: &mut Vec<u8>) {
        out.push(if self.last == Some(unit) { LAST } else { 0 });
        let content = self.content(unit);
        let (head, tail) = self.bytes.as_slices();
        let middle = head.len();
        out.extend_from_slice(&head[content.start.min(middle)..content.end.min(middle)]);
        let beyond = |at: usize| at.saturating_sub(middle);
        out.extend_from_slice(&tail[beyond(content.start)..beyond(content.end)]);
    }

    fn forget(&mut self, asked_end: u64) {
        let keep = asked_end.saturating_sub(self.window);
        let gone = keep.saturating_sub(self.first).min(self.ends.len() as u64) as usize;
        if let Some(end) = self.ends.drain(..gone).next_back() {
            self.bytes.drain(..(end - self.base) as usize);
            self.base = end;
            self.first += gone as u64;
            if self.bytes.is_empty() && self.bytes.capacity() > KEPT {
                self.bytes.shrink_to(KEPT);
            }
        }
    }

    fn kept(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use gtp_proto::Supplied;

    use super::*;

    const PAYLOAD: u16 = 11;

    fn unit(ring: &mut Spoken, number: u64) -> Option<(u8, Vec<u8>)> {
        match ring.supply(number, PAYLOAD) {
            Supplied::Ready(len) => {
                let mut out = Vec::new();
                ring.write(number, &mut out);
                assert_eq!(out.len(), usize::from(len));
                Some((out[0], out.split_off(1)))
            }
            Supplied::NotYet | Supplied::NoRoom | Supplied::NoSuchUnit => None,
        }
    }

    #[test]
    fn units_are_cut_of_what_there_is_and_come_again_as_they_were() {
        let mut ring = Spoken::new(4);
        assert_eq!(ring.supply(0, PAYLOAD), Supplied::NotYet);
        ring.say(b"hello");
        assert_eq!(unit(&mut ring, 0), Some((0, b"hello".to_vec())));
        ring.say(b"a longer word");
        assert_eq!(unit(&mut ring, 1), Some((0, b"a longer w".to_vec())));
        assert_eq!(unit(&mut ring, 0), Some((0, b"hello".to_vec())));
        ring.finish();
        assert_eq!(unit(&mut ring, 2), Some((LAST, b"ord".to_vec())));
        assert_eq!(ring.supply(3, PAYLOAD), Supplied::NotYet, "nothing follows the end");
        assert_eq!(ring.supply(4, PAYLOAD), Supplied::NoSuchUnit);
    }

    #[test]
    fn an_end_with_nothing_left_to_say_is_a_unit_of_its_own() {
        let mut ring = Spoken::new(4);
        ring.say(b"all");
        assert_eq!(unit(&mut ring, 0), Some((0, b"all".to_vec())));
        ring.finish();
        assert_eq!(ring.say(b"more"), 0);
        assert_eq!(unit(&mut ring, 1), Some((LAST, Vec::new())));
        assert_eq!(ring.total(), 3);
    }

    #[test]
    fn asking_lets_go_of_what_lies_a_window_back_and_no_more() {
        let mut ring = Spoken::new(2);
        ring.say(&[7; 100]);
        for number in 0..4 {
            assert!(unit(&mut ring, number).is_some());
        }
        ring.forget(4);
        assert_eq!(unit(&mut ring, 2), Some((0, vec![7; 10])));
        assert_eq!(unit(&mut ring, 1), Some((0, Vec::new())), "forgotten");
        assert_eq!(ring.bytes.len(), 80);
        // A sink that asks for what cannot be there yet harms its own stream alone.
        ring.forget(1 << 47);
        assert_eq!(ring.bytes.len(), 60);
        assert_eq!(unit(&mut ring, 4), Some((0, vec![7; 10])));
    }

    #[test]
    fn a_sink_that_asks_for_everything_at_once_has_a_window_kept_and_no_more() {
        let mut ring = Spoken::new(2);
        for number in 0..1_000 {
            ring.say(&[7; 10]);
            assert_eq!(unit(&mut ring, number), Some((0, vec![7; 10])));
            assert!(ring.ends.len() <= 2 && ring.bytes.len() <= 20);
        }
    }

    #[test]
    fn what_waits_is_bounded_and_a_ring_that_wraps_gives_the_same_bytes() {
        let mut ring = Spoken::new(64);
        let most = ring.room();
        assert_eq!(most, 64 * 1_400, "no more than a window waits");
        assert_eq!(Spoken::new(65_536).room(), STREAM_UNSENT, "nor than this");
        let said: Vec<u8> = (0..3 * most).map(|at| (at % 251) as u8).collect();
        let (mut from, mut heard, mut number) = (0, Vec::new(), 0);
        while heard.len() < said.len() {
            from += ring.say(&said[from..]);
            assert!(ring.unsent() <= most);
            for _ in 0..1_000 {
                match ring.supply(number, 1_400) {
                    Supplied::Ready(_) => {
                        let mut out = Vec::new();
                        ring.write(number, &mut out);
                        heard.extend_from_slice(&out[1..]);
                        number += 1;
                    }
                    Supplied::NotYet | Supplied::NoRoom | Supplied::NoSuchUnit => break,
                }
                ring.forget(number + 1);
            }
        }
        assert_eq!(heard, said);
    }
}
