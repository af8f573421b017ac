//! The ring of a stream's sink: what came, in order, and what came early.
//!
//! Units are put in the order of their numbers. What is asked for is bounded twice: at most a
//! window of units beyond the first that is missing, and never more than what fits beside what the
//! application has not read. So a slow reader stops its source, and memory has one bound.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::spoken::LAST;

/// An emptied ring gives back memory beyond this.
const KEPT: usize = 64 << 10;
/// What is asked for at a time is a part of the window like this.
const STEP_PART: u64 = 16;
/// At most so many units are asked for at a time: a request each few milliseconds, whatever the
/// rate.
const STEP_MOST: u64 = 512;

/// The bytes of a stream between its session and the application.
#[derive(Debug)]
pub struct Heard {
    window: u64,
    /// Bytes that a unit has at most, without what it says beside them.
    content: u64,
    /// The first unit that is not here.
    next: u64,
    /// No unit from this one on has been asked for.
    asked_end: u64,
    early: BTreeMap<u64, Vec<u8>>,
    /// In order, and not read.
    ready: VecDeque<u8>,
    /// The last unit, once it is known.
    last: Option<u64>,
    /// Bytes that came in order.
    total: u64,
    /// Nobody reads: what comes is counted and dropped.
    unread: bool,
}

impl Heard {
    /// A stream that is asked for at most this many units ahead.
    pub fn new(window: u32) -> Heard {
        Heard {
            window: u64::from(window),
            content: 1,
            next: 0,
            asked_end: 0,
            early: BTreeMap::new(),
            ready: VecDeque::new(),
            last: None,
            total: 0,
            unread: false,
        }
    }

    /// Units are at most this long.
    pub fn begin(&mut self, payload: u16) {
        self.content = u64::from(payload).saturating_sub(1).max(1);
    }

    /// Takes a unit in that was asked for and is not here.
    ///
    /// # Errors
    /// When it cannot be one of a stream: the source breaks a rule.
    pub fn take(&mut self, unit: u64, payload: &[u8]) -> Result<(), &'static str> {
        let Some((&flags, content)) = payload.split_first() else {
            return Err("a unit of a stream without its first byte");
        };
        match flags {
            0 if content.is_empty() => return Err("a unit that says nothing"),
            0 => {}
            LAST => self.note_last(unit)?,
            _ => return Err("a unit of a stream of another kind"),
        }
        if content.len() as u64 > self.content {
            return Err("a unit longer than was agreed");
        }
        if self.last.is_some_and(|last| unit > last) {
            return Err("a unit after the last one");
        }
        if unit != self.next {
            self.early.insert(unit, content.to_vec());
            return Ok(());
        }
        self.append(content);
        while let Some(content) = self.early.remove(&self.next) {
            self.append(&content);
        }
        Ok(())
    }

    /// What should be asked for now. It counts as asked for.
    pub fn ask(&mut self) -> Option<Range<u64>> {
        let asked = self.due()?;
        self.asked_end = asked.end;
        Some(asked)
    }

    /// What there is room to ask for, once it is worth a request.
    pub fn due(&self) -> Option<Range<u64>> {
        if self.last.is_some() {
            // What is missing before it has been asked for: it lies below a unit that was.
            return None;
        }
        let room = (self.window * self.content).saturating_sub(self.ready.len() as u64);
        worth_asking(self.window, self.next, self.asked_end, room / self.content)
    }

    /// Reads into `out`; says how much.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let (head, tail) = self.ready.as_slices();
        let first = out.len().min(head.len());
        out[..first].copy_from_slice(&head[..first]);
        let second = (out.len() - first).min(tail.len());
        out[first..first + second].copy_from_slice(&tail[..second]);
        self.ready.drain(..first + second);
        if self.ready.is_empty() && self.ready.capacity() > KEPT {
            self.ready.shrink_to(KEPT);
        }
        first + second
    }

    /// Bytes that can be read.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether every unit up to the last is here.
    pub fn is_whole(&self) -> bool {
        self.last.is_some_and(|last| self.next > last)
    }

    /// Bytes that came in order.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Nobody will read any more.
    pub fn drop_unread(&mut self) {
        self.unread = true;
        self.ready = VecDeque::new();
    }

    fn note_last(&mut self, unit: u64) -> Result<(), &'static str> {
        let beyond = self.next > unit || self.early.range(unit..).next().is_some();
        if beyond || self.last.is_some() {
            return Err("a last unit that is not the last");
        }
        self.last = Some(unit);
        Ok(())
    }

    fn append(&mut self, content: &[u8]) {
        self.next += 1;
        self.total += content.len() as u64;
        if !self.unread {
            self.ready.extend(content);
        }
    }
}

/// What to ask for of a stream whose first missing unit is `next`, of which nothing from
/// `asked_end` on was asked for, with room for so many units; if it is worth a request.
pub(super) fn worth_asking(
    window: u64,
    next: u64,
    asked_end: u64,
    room: u64,
) -> Option<Range<u64>> {
    let end = next + room.min(window);
    let more = end.saturating_sub(asked_end);
    let step = (window / STEP_PART).clamp(1, STEP_MOST);
    let idle = asked_end == next;
    if more == 0 || more < step && !idle {
        return None;
    }
    Some(asked_end..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(window: u32, payload: u16) -> Heard {
        let mut ring = Heard::new(window);
        ring.begin(payload);
        ring
    }

    fn read(ring: &mut Heard) -> Vec<u8> {
        let mut out = vec![0; 1_000];
        let count = ring.read(&mut out);
        out.truncate(count);
        out
    }

    #[test]
    fn units_are_read_in_order_whatever_order_they_come_in() {
        let mut ring = begun(8, 11);
        assert_eq!(ring.ask(), Some(0..8));
        for (unit, bytes) in [(2, &b"\0c"[..]), (1, b"\0b"), (3, b"\x01d")] {
            ring.take(unit, bytes).unwrap();
            assert_eq!(ring.ready(), 0);
        }
        assert!(!ring.is_whole());
        ring.take(0, b"\0a").unwrap();
        assert!(ring.is_whole());
        assert_eq!((read(&mut ring), ring.total()), (b"abcd".to_vec(), 4));
        assert_eq!(ring.ask(), None, "nothing follows the end");
    }

    #[test]
    fn nothing_is_asked_for_beyond_the_window_or_beyond_the_room() {
        let mut ring = begun(32, 11);
        assert_eq!(ring.ask(), Some(0..32));
        assert_eq!(ring.ask(), None);
        for unit in 1..32 {
            ring.take(unit, &[0; 11]).unwrap();
        }
        assert_eq!(ring.ask(), None, "the first is missing");
        ring.take(0, &[0; 11]).unwrap();
        assert_eq!(ring.ask(), None, "all room is taken by what nobody reads");
        let mut out = [0; 15];
        assert_eq!(ring.read(&mut out), 15);
        assert_eq!(ring.ask(), Some(32..33), "nothing is outstanding, so one unit is worth asking");
        assert_eq!(ring.read(&mut out), 15);
        assert_eq!(ring.ask(), Some(33..35));
        assert_eq!(ring.read(&mut [0; 1_000]), 290);
        assert_eq!(ring.ask(), Some(35..64));
    }

    #[test]
    fn what_no_honest_source_sends_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut ring = begun(8, 4);
            ring.ask();
            ring.take(0, bytes).is_err()
        };
        assert!(refused(b""));
        assert!(refused(b"\0"));
        assert!(refused(b"\x02a"));
        assert!(refused(b"\0abcd"));
        assert!(!refused(b"\0abc"));
    }

    #[test]
    fn nothing_may_follow_the_last_unit() {
        let mut ring = begun(8, 4);
        ring.ask();
        ring.take(5, b"\0a").unwrap();
        assert!(ring.take(4, b"\x01").is_err(), "a later one is here");
        ring.take(6, b"\x01").unwrap();
        assert!(ring.take(7, b"\0a").is_err());
        assert!(ring.take(3, b"\x01").is_err(), "there was a last one");
    }

    #[test]
    fn what_nobody_reads_takes_no_memory_and_does_not_stop_the_source() {
        let mut ring = begun(4, 101);
        ring.drop_unread();
        for unit in 0..100 {
            while ring.ask().is_some() {}
            ring.take(unit, &[0; 101]).unwrap();
            assert_eq!(ring.ready(), 0);
        }
        assert_eq!(ring.total(), 10_000);
    }
}
