//! The ring of the sink of frames: whole frames in their order, and which were lost.
//!
//! Units are looked at in the order of their numbers; one that will not come is passed over, and
//! with it the frame that it was of. Frames are numbered, so it is known how many are missing
//! between two that are whole. Memory has the bounds of a stream's ring: what is asked for, what
//! is put together and what is not read fit into one window.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use gtp_alloc::Time;
use gtp_proto::RangeSet;

use super::frames_out::{END, Ended, FIRST, HEAD, frame_most};
use super::heard::worth_asking;

/// What a frame takes beside its bytes, at least.
const BESIDE: usize = 64;

/// What a reader of frames hears, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A frame, all of it.
    Whole {
        /// Its number, from 0.
        number: u64,
        /// Its bytes.
        bytes: Vec<u8>,
        /// When the last of its datagrams reached this host.
        came: Came,
    },
    /// Frames of which something was lost on the way.
    Lost {
        /// The number of the first.
        first: u64,
        /// How many.
        count: u64,
    },
}

/// When something came, and whether in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// When its last datagram reached this host, as far as that is known.
    pub at: Time,
    /// Whether a datagram that was sent later had come before one of its own.
    pub overtaken: bool,
}

impl Came {
    fn and(self, other: Came) -> Came {
        Came { at: self.at.max(other.at), overtaken: self.overtaken || other.overtaken }
    }
}

/// A frame that is being put together.
#[derive(Debug)]
struct Begun {
    bytes: Vec<u8>,
    came: Came,
}

/// What the next unit can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The first one of this frame.
    Begins(u64),
    /// Another one of this frame.
    Within(u64),
    /// So many units before it were lost; the first of them was of this frame.
    After { from: u64, lost: u64 },
}

/// The frames of a stream between its session and the application.
#[derive(Debug)]
pub struct FramesIn {
    window: u64,
    /// Bytes of a unit's content at most.
    content: usize,
    frame_most: usize,
    /// The first unit that is neither here nor given up.
    next: u64,
    /// No unit from this one on has been asked for.
    asked_end: u64,
    early: BTreeMap<u64, (Vec<u8>, Came)>,
    /// No unit from this one on has come.
    come_end: u64,
    /// Given up, and not passed yet.
    lost: RangeSet,
    place: Place,
    /// The frame that is being put together, if nothing of it is lost so far.
    begun: Option<Begun>,
    ready: VecDeque<Frame>,
    ready_bytes: usize,
    /// The first frame of which the reader was not told.
    untold: u64,
    ended: Option<Ended>,
    /// Bytes that came.
    total: u64,
    /// Nobody reads: what comes is counted and dropped.
    unread: bool,
}

impl FramesIn {
    /// Frames that are asked for at most this many units ahead.
    pub fn new(window: u32) -> FramesIn {
        FramesIn {
            window: u64::from(window),
            content: 1,
            frame_most: frame_most(window),
            next: 0,
            asked_end: 0,
            early: BTreeMap::new(),
            come_end: 0,
            lost: RangeSet::new(),
            place: Place::Begins(0),
            begun: None,
            ready: VecDeque::new(),
            ready_bytes: 0,
            untold: 0,
            ended: None,
            total: 0,
            unread: false,
        }
    }

    /// Units are at most this long.
    pub fn begin(&mut self, payload: u16) {
        self.content = usize::from(payload).saturating_sub(HEAD).max(1);
    }

    /// Takes a unit in that was asked for, is neither here nor given up, and came at this time.
    ///
    /// # Errors
    /// When it cannot be one of a stream of frames: the source breaks a rule.
    pub fn take(&mut self, unit: u64, payload: &[u8], at: Time) -> Result<(), &'static str> {
        let Some((head, content)) = payload.split_at_checked(HEAD) else {
            return Err("a unit of a frame without its head");
        };
        match head[0] {
            0 | FIRST | END if content.is_empty() => return Err("a unit that says nothing"),
            0 | FIRST | END => {}
            both if both == FIRST | END => {}
            _ => return Err("a unit of a frame of another kind"),
        }
        if content.len() > self.content {
            return Err("a unit longer than was agreed");
        }
        if self.ended.is_some_and(|ended| unit >= ended.units) {
            return Err("a unit after the last one");
        }
        self.total += content.len() as u64;
        let came = Came { at, overtaken: unit < self.come_end };
        self.come_end = self.come_end.max(unit + 1);
        self.early.insert(unit, (payload.to_vec(), came));
        self.advance()
    }

    /// These units will not come.
    ///
    /// # Errors
    /// As of [`FramesIn::take`]: what comes after them does not fit what came before.
    pub fn give_up(&mut self, units: Range<u64>) -> Result<(), &'static str> {
        self.lost.insert(units.start.max(self.next)..units.end.max(self.next));
        self.advance()
    }

    /// The source says how much there is in all.
    ///
    /// # Errors
    /// When that does not fit what came.
    pub fn end(&mut self, ended: Ended) -> Result<(), &'static str> {
        let beyond = self.early.last_key_value().is_some_and(|(&last, _)| last >= ended.units);
        let sent = ended.units >= self.next && ended.units <= self.asked_end && !beyond;
        if !sent || self.ended.is_some() || ended.frames > ended.units {
            return Err("an end that is not the end");
        }
        self.ended = Some(ended);
        self.advance()
    }

    /// What should be asked for now. It counts as asked for.
    pub fn ask(&mut self) -> Option<Range<u64>> {
        let asked = self.due()?;
        self.asked_end = asked.end;
        Some(asked)
    }

    /// What there is room to ask for, once it is worth a request.
    pub fn due(&self) -> Option<Range<u64>> {
        if self.ended.is_some() {
            return None; // All that there is was asked for.
        }
        let content = self.content as u64;
        let room = (self.window * content).saturating_sub(self.held() as u64) / content;
        worth_asking(self.window, self.next, self.asked_end, room)
    }

    /// The next frame, or word of those that were lost before it.
    pub fn read(&mut self) -> Option<Frame> {
        let frame = self.ready.pop_front()?;
        self.ready_bytes -= weight(&frame);
        Some(frame)
    }

    /// Bytes that are put together or not read, with what they take beside.
    pub fn held(&self) -> usize {
        self.ready_bytes + self.begun.as_ref().map_or(0, |begun| begun.bytes.len())
    }

    /// Whether something can be read.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether everything that there is has come or is given up.
    pub fn is_whole(&self) -> bool {
        self.ended.is_some_and(|ended| self.next >= ended.units)
    }

    /// Bytes that came.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Nobody will read any more.
    pub fn drop_unread(&mut self) {
        self.unread = true;
        self.ready = VecDeque::new();
        self.ready_bytes = 0;
    }

    fn advance(&mut self) -> Result<(), &'static str> {
        loop {
            if let Some((payload, came)) = self.early.remove(&self.next) {
                self.put(&payload, came)?;
            } else if self.lost.remove_one(self.next) {
                self.pass_over();
            } else {
                break;
            }
            self.next += 1;
        }
        match self.ended {
            Some(ended) if self.next >= ended.units => self.close(ended.frames),
            Some(_) | None => Ok(()),
        }
    }

    /// The next unit in order.
    fn put(&mut self, payload: &[u8], came: Came) -> Result<(), &'static str> {
        let (head, content) = payload.split_at(HEAD);
        let number = u64::from(u32::from_be_bytes([head[1], head[2], head[3], head[4]]));
        let first = head[0] & FIRST != 0;
        let fits = match (self.place, first) {
            (Place::Begins(frame), true) | (Place::Within(frame), false) => number == frame,
            (Place::Begins(_), false) | (Place::Within(_), true) => false,
            // Each that was lost may have been a frame of its own.
            (Place::After { from, lost }, true) => (from + 1..=from + lost).contains(&number),
            (Place::After { from, lost }, false) => (from..from + lost).contains(&number),
        };
        if !fits {
            return Err("a unit that does not follow the one before");
        }
        if first {
            self.begun = Some(Begun { bytes: Vec::new(), came });
        }
        if let Some(Begun { bytes, came: so_far }) = &mut self.begun {
            *so_far = so_far.and(came);
            if bytes.len() + content.len() > self.frame_most {
                return Err("a frame longer than was agreed");
            }
            if !self.unread {
                bytes.extend_from_slice(content);
            }
        }
        self.place = Place::Within(number);
        if head[0] & END != 0 {
            self.place = Place::Begins(number + 1);
            if let Some(begun) = self.begun.take() {
                self.deliver(number, begun);
            }
        }
        Ok(())
    }

    fn pass_over(&mut self) {
        self.begun = None;
        self.place = match self.place {
            Place::Begins(from) | Place::Within(from) => Place::After { from, lost: 1 },
            Place::After { from, lost } => Place::After { from, lost: lost + 1 },
        };
    }

    fn deliver(&mut self, number: u64, Begun { mut bytes, came }: Begun) {
        self.tell_lost(number);
        self.untold = number + 1;
        bytes.shrink_to_fit();
        self.tell(Frame::Whole { number, bytes, came });
    }

    /// All frames below this number that the reader was not told of are lost.
    fn tell_lost(&mut self, number: u64) {
        if number > self.untold {
            self.tell(Frame::Lost { first: self.untold, count: number - self.untold });
        }
    }

    fn tell(&mut self, frame: Frame) {
        if !self.unread {
            self.ready_bytes += weight(&frame);
            self.ready.push_back(frame);
        }
    }

    /// After the last unit.
    fn close(&mut self, frames: u64) -> Result<(), &'static str> {
        let fits = match self.place {
            Place::Begins(frame) => frames == frame,
            Place::Within(_) => false,
            Place::After { from, lost } => (from + 1..=from + lost).contains(&frames),
        };
        if !fits {
            return Err("an end that is not the end");
        }
        self.tell_lost(frames);
        self.untold = frames;
        Ok(())
    }
}

fn weight(frame: &Frame) -> usize {
    match frame {
        Frame::Whole { bytes, .. } => BESIDE + bytes.len(),
        Frame::Lost { .. } => BESIDE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(window: u32, payload: u16) -> FramesIn {
        let mut ring = FramesIn::new(window);
        ring.begin(payload);
        while ring.ask().is_some() {}
        ring
    }

    fn unit(flags: u8, frame: u8, content: &[u8]) -> Vec<u8> {
        [&[flags, 0, 0, 0, frame], content].concat()
    }

    const NOW: Time = Time::ZERO;

    fn whole(number: u64, bytes: &[u8]) -> Frame {
        late(number, bytes, false)
    }

    fn late(number: u64, bytes: &[u8], overtaken: bool) -> Frame {
        Frame::Whole { number, bytes: bytes.to_vec(), came: Came { at: NOW, overtaken } }
    }

    fn read(ring: &mut FramesIn) -> Vec<Frame> {
        std::iter::from_fn(|| ring.read()).collect()
    }

    #[test]
    fn frames_are_read_whole_and_in_order_whatever_order_their_units_come_in() {
        let mut ring = begun(64, 9);
        ring.take(1, &unit(END, 0, b"ix"), NOW).unwrap();
        ring.take(2, &unit(FIRST | END, 1, b""), NOW).unwrap();
        assert_eq!(read(&mut ring), []);
        ring.take(0, &unit(FIRST, 0, b"sixs"), NOW).unwrap();
        ring.end(Ended { units: 3, frames: 2 }).unwrap();
        assert_eq!(read(&mut ring), [late(0, b"sixsix", true), whole(1, b"")]);
        assert!(ring.is_whole());
        assert_eq!((ring.total(), ring.held(), ring.ask()), (6, 0, None));
    }

    #[test]
    fn a_frame_tells_when_the_last_of_it_came_and_whether_a_later_one_came_before() {
        let at = Time::from_nanos;
        let mut ring = begun(64, 9);
        ring.take(0, &unit(FIRST, 0, b"a"), at(10)).unwrap();
        ring.take(3, &unit(FIRST | END, 2, b"c"), at(20)).unwrap();
        ring.take(2, &unit(FIRST | END, 1, b"b"), at(40)).unwrap();
        ring.take(1, &unit(END, 0, b"a"), at(30)).unwrap();
        ring.take(4, &unit(FIRST | END, 3, b"d"), at(50)).unwrap();
        let came = read(&mut ring).into_iter().map(|frame| match frame {
            Frame::Whole { came, .. } => (came.at.as_nanos(), came.overtaken),
            Frame::Lost { .. } => unreachable!("nothing is lost"),
        });
        assert_eq!(came.collect::<Vec<_>>(), [(30, true), (40, true), (20, false), (50, false)]);
    }

    #[test]
    fn a_frame_of_which_something_is_lost_is_lost_and_the_gap_is_told_in_its_place() {
        let mut ring = begun(64, 9);
        ring.take(0, &unit(FIRST, 0, b"a"), NOW).unwrap();
        ring.take(3, &unit(0, 1, b"b"), NOW).unwrap();
        ring.take(4, &unit(END, 1, b"b"), NOW).unwrap();
        ring.take(5, &unit(FIRST | END, 2, b"c"), NOW).unwrap();
        assert_eq!(read(&mut ring), []);
        // The end of one frame and the beginning of the next.
        ring.give_up(1..3).unwrap();
        assert_eq!(read(&mut ring), [Frame::Lost { first: 0, count: 2 }, whole(2, b"c")]);
        // Its end may be all that is lost, and nothing but the end of all says so.
        ring.take(6, &unit(FIRST, 3, b"d"), NOW).unwrap();
        ring.end(Ended { units: 9, frames: 5 }).unwrap();
        assert!(!ring.is_whole());
        ring.give_up(7..9).unwrap();
        assert_eq!(read(&mut ring), [Frame::Lost { first: 3, count: 2 }]);
        assert!(ring.is_whole());
    }

    #[test]
    fn what_no_honest_source_sends_is_refused() {
        let after = |units: &[(u64, Vec<u8>)], lost: Range<u64>| {
            let mut ring = begun(64, 9);
            let mut said = units.iter().map(|(n, unit)| ring.take(*n, unit, NOW));
            let taken: Result<(), _> = said.by_ref().collect();
            taken.and_then(|()| ring.give_up(lost)).is_err()
        };
        assert!(after(&[(0, vec![FIRST, 0, 0, 0])], 0..0));
        assert!(after(&[(0, unit(0, 0, b"a"))], 0..0), "a frame without its beginning");
        assert!(after(&[(0, unit(FIRST, 1, b"a"))], 0..0), "the first frame is missing");
        assert!(after(&[(0, unit(FIRST, 0, b""))], 0..0));
        assert!(after(&[(0, unit(8, 0, b"a"))], 0..0));
        assert!(after(&[(0, unit(FIRST, 0, b"abcde"))], 0..0));
        let one = || (0, unit(FIRST, 0, b"a"));
        assert!(after(&[one(), (1, unit(FIRST, 1, b"a"))], 0..0), "the frame before had no end");
        assert!(after(&[one(), (1, unit(0, 1, b"a"))], 0..0));
        // Two units cannot have been three frames, nor none.
        assert!(after(&[one(), (3, unit(FIRST, 3, b"a"))], 1..3));
        assert!(after(&[one(), (3, unit(FIRST, 0, b"a"))], 1..3));
        assert!(!after(&[one(), (3, unit(FIRST, 2, b"a"))], 1..3));
        assert!(after(&[one(), (3, unit(0, 2, b"a"))], 1..3));
        assert!(!after(&[one(), (3, unit(0, 1, b"a"))], 1..3));
    }

    #[test]
    fn an_end_must_fit_what_came() {
        let refused = |ended| {
            let mut ring = begun(64, 9);
            ring.take(0, &unit(FIRST | END, 0, b"a"), NOW).unwrap();
            ring.take(2, &unit(FIRST | END, 2, b"c"), NOW).unwrap();
            ring.end(ended).is_err() || ring.give_up(1..2).is_err()
        };
        assert!(!refused(Ended { units: 3, frames: 3 }));
        assert!(refused(Ended { units: 3, frames: 2 }));
        assert!(refused(Ended { units: 2, frames: 2 }));
        assert!(refused(Ended { units: 65, frames: 3 }), "never asked for");
        assert!(refused(Ended { units: 3, frames: 4 }));
    }

    #[test]
    fn a_frame_beyond_the_agreed_length_ends_the_stream_before_it_takes_more_memory() {
        let mut ring = begun(64, 1_400);
        let mut fed = 0;
        let refused = loop {
            let flags = if fed == 0 { FIRST } else { 0 };
            if let Err(why) = ring.take(fed, &unit(flags, 0, &[0; 1_395]), NOW) {
                break why;
            }
            fed += 1;
        };
        assert_eq!(refused, "a frame longer than was agreed");
        assert!(ring.held() <= frame_most(64));
    }

    #[test]
    fn a_reader_that_stops_stops_the_asking_even_if_frames_are_empty() {
        let mut ring = FramesIn::new(64);
        ring.begin(9);
        let mut unit_number = 0;
        while let Some(asked) = ring.ask() {
            for _ in asked {
                ring.take(unit_number, &unit(FIRST | END, unit_number as u8, b""), NOW).unwrap();
                unit_number += 1;
            }
        }
        assert!(unit_number <= 64, "{unit_number}");
        let before = ring.held();
        assert!(ring.read().is_some() && ring.held() < before);
        ring.drop_unread();
        assert!(ring.ask().is_some());
    }
}
