//! The ring of the source of frames: what was said, cut into units that never span two frames.
//!
//! A frame is taken whole or not at all, and its units carry its number, so a sink knows a frame
//! that it has all of from one of which something is lost. A unit that may be asked for again is
//! kept for a window, as of any stream; one that may not is forgotten when the next one is cut.

use std::collections::VecDeque;
use std::ops::Range;

use gtp_proto::Repairs;
use gtp_proto::limits::UNIT_MINIMUM;

use super::spoken::Spoken;
use super::units::Units;

/// Bytes of a unit before its content: flags, and its frame's number.
pub const HEAD: usize = 5;
/// The flag of a frame's first unit.
pub const FIRST: u8 = 2;
/// The flag of a frame's last unit.
pub const END: u8 = 4;

/// The end of a stream of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Units that there are.
    pub units: u64,
    /// Frames that there are.
    pub frames: u64,
}

/// The longest frame that a stream with this window carries: half of it, in the shortest units
/// that a path may have.
pub fn frame_most(window: u32) -> usize {
    window as usize / 2 * (usize::from(UNIT_MINIMUM) - HEAD)
}

/// The frames of a stream between the application and the last unit that may be asked for.
#[derive(Debug)]
pub struct FramesOut {
    /// Units that may be asked for again, counted from the newest.
    keeps: u64,
    /// Bytes that may wait to be cut.
    most: usize,
    frame_most: usize,
    /// Those of which units are kept, then those not cut in full.
    frames: VecDeque<Said>,
    /// How many of them are cut in full.
    whole: usize,
    /// Kept units.
    cuts: VecDeque<Cut>,
    /// The first of them.
    first: u64,
    /// Bytes not cut yet.
    waiting: usize,
    /// Frames and bytes in all.
    count: u64,
    total: u64,
    finished: bool,
}

/// A frame.
#[derive(Debug)]
struct Said {
    number: u32,
    bytes: Vec<u8>,
    /// Bytes of it that are in units.
    cut: usize,
}

/// A unit.
#[derive(Debug)]
struct Cut {
    frame: u32,
    part: Range<usize>,
}

impl FramesOut {
    /// Frames whose sink asks at most this many units ahead, and again as said.
    pub fn new(window: u32, repairs: Repairs) -> FramesOut {
        FramesOut {
            keeps: match repairs {
                Repairs::Always | Repairs::Once => u64::from(window),
                Repairs::Never => 1,
            },
            most: FramesOut::unsent_most(window) as usize,
            frame_most: frame_most(window),
            frames: VecDeque::new(),
            whole: 0,
            cuts: VecDeque::new(),
            first: 0,
            waiting: 0,
            count: 0,
            total: 0,
            finished: false,
        }
    }

    /// Bytes of a stream with this window that may wait to be sent for the first time.
    pub fn unsent_most(window: u32) -> u64 {
        Spoken::unsent_most(window).max(frame_most(window) as u64)
    }

    /// Whether a frame of this length can ever be taken.
    pub fn fits(&self, length: usize) -> bool {
        length <= self.frame_most
    }

    /// Takes a frame that fits, if there is room for it now.
    pub fn say(&mut self, frame: &[u8]) -> bool {
        let full = self.waiting > 0 && self.waiting + frame.len() > self.most;
        let Ok(number) = u32::try_from(self.count) else { return false };
        if full || self.finished || !self.fits(frame.len()) {
            return false;
        }
        self.frames.push_back(Said { number, bytes: frame.to_vec(), cut: 0 });
        self.count += 1;
        self.total += frame.len() as u64;
        self.waiting += frame.len();
        true
    }

    /// Whether so much room is worth waking a writer for: half of all.
    pub fn has_much_room(&self) -> bool {
        self.waiting <= self.most / 2
    }

    /// Bytes that are in no unit yet.
    pub fn unsent(&self) -> usize {
        self.waiting
    }

    /// Nothing more will be said.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether that was said, or frames' numbers are used up.
    pub fn is_finished(&self) -> bool {
        self.finished || self.count > u64::from(u32::MAX)
    }

    /// Bytes said in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What there is in all, once nothing more will be said and all of it is in units.
    pub fn ended(&self) -> Option<Ended> {
        let all = self.is_finished() && self.whole == self.frames.len();
        all.then(|| Ended { units: self.first + self.cuts.len() as u64, frames: self.count })
    }

    fn find(&self, unit: u64) -> Option<(&Cut, &Said)> {
        let cut = self.cuts.get(unit.checked_sub(self.first)? as usize)?;
        let oldest = self.frames.front()?.number;
        Some((cut, self.frames.get((cut.frame - oldest) as usize)?))
    }

    fn content(&self, unit: u64) -> Range<usize> {
        self.find(unit).map_or(0..0, |(cut, _)| cut.part.clone())
    }
}

impl Units for FramesOut {
    fn next(&self) -> u64 {
        self.first + self.cuts.len() as u64
    }

    fn cut(&mut self, payload: u16) -> bool {
        let most = usize::from(payload).saturating_sub(HEAD);
        let Some(frame) = self.frames.get_mut(self.whole).filter(|_| most > 0) else {
            return false;
        };
        let part = frame.cut..frame.bytes.len().min(frame.cut + most);
        frame.cut = part.end;
        self.waiting -= part.len();
        self.whole += usize::from(part.end == frame.bytes.len());
        self.cuts.push_back(Cut { frame: frame.number, part });
        true
    }

    fn length(&self, unit: u64) -> u16 {
        (HEAD + self.content(unit).len()) as u16
    }

    fn write(&self, unit: u64, out: &mut Vec<u8>) {
        // One that was forgotten says nothing.
        let Some((cut, frame)) = self.find(unit) else {
            out.extend_from_slice(&[0; HEAD]);
            return;
        };
        let first = if cut.part.start == 0 { FIRST } else { 0 };
        let end = if cut.part.end == frame.bytes.len() { END } else { 0 };
        out.push(first | end);
        out.extend_from_slice(&cut.frame.to_be_bytes());
        out.extend_from_slice(&frame.bytes[cut.part.clone()]);
    }

    fn forget(&mut self, asked_end: u64) {
        let keep = asked_end.saturating_sub(self.keeps);
        let gone = keep.saturating_sub(self.first).min(self.cuts.len() as u64);
        self.cuts.drain(..gone as usize);
        self.first += gone;
        let oldest = self.cuts.front().map(|cut| cut.frame);
        while self.whole > 0 && self.frames.front().is_some_and(|f| Some(f.number) != oldest) {
            self.frames.pop_front();
            self.whole -= 1;
        }
    }

    fn kept(&self) -> usize {
        self.cuts.len()
    }
}

#[cfg(test)]
mod tests {
    use gtp_proto::Supplied;

    use super::*;

    const PAYLOAD: u16 = 9;

    fn unit(ring: &mut FramesOut, number: u64) -> Option<Vec<u8>> {
        match ring.supply(number, PAYLOAD) {
            Supplied::Ready(len) => {
                let mut out = Vec::new();
                ring.write(number, &mut out);
                assert_eq!(out.len(), usize::from(len));
                Some(out)
            }
            Supplied::NotYet | Supplied::NoRoom | Supplied::NoSuchUnit => None,
        }
    }

    fn head(flags: u8, frame: u8, content: &[u8]) -> Option<Vec<u8>> {
        Some([&[flags, 0, 0, 0, frame], content].concat())
    }

    #[test]
    fn no_unit_spans_two_frames_and_each_says_which_it_is_of() {
        let mut ring = FramesOut::new(64, Repairs::Never);
        assert!(ring.say(b"sixsix") && ring.say(b"") && ring.say(b"four"));
        ring.finish();
        assert_eq!(unit(&mut ring, 0), head(FIRST, 0, b"sixs"));
        assert_eq!(unit(&mut ring, 1), head(END, 0, b"ix"));
        assert_eq!(unit(&mut ring, 2), head(FIRST | END, 1, b""));
        assert_eq!(ring.ended(), None);
        assert_eq!(unit(&mut ring, 3), head(FIRST | END, 2, b"four"));
        assert_eq!(ring.ended(), Some(Ended { units: 4, frames: 3 }));
        assert_eq!(unit(&mut ring, 4), None);
        assert!(!ring.say(b"more"));
    }

    #[test]
    fn what_is_not_repaired_is_forgotten_and_what_may_be_is_kept_for_a_window() {
        let said = |repairs, window| {
            let mut ring = FramesOut::new(window, repairs);
            for number in 0..1_000 {
                assert!(ring.say(b"sixsix"));
                assert!(unit(&mut ring, 2 * number).is_some());
                assert!(unit(&mut ring, 2 * number + 1).is_some());
                assert!(ring.cuts.len() <= window as usize && ring.waiting == 0);
            }
            ring
        };
        let mut ring = said(Repairs::Never, 64);
        assert!(ring.cuts.len() <= 1 && ring.frames.len() <= 1);
        assert_eq!(unit(&mut ring, 1_000), head(0, 0, b""), "forgotten");
        let mut ring = said(Repairs::Once, 64);
        assert!(ring.frames.len() <= 33);
        assert_eq!(unit(&mut ring, 1_990).unwrap()[5..], b"sixs"[..]);
        assert_eq!(unit(&mut ring, 1_900), head(0, 0, b""));
    }

    #[test]
    fn frames_wait_within_a_bound_and_one_that_is_too_long_is_never_taken() {
        let mut ring = FramesOut::new(64, Repairs::Never);
        let most = frame_most(64);
        assert!(!ring.fits(most + 1) && !ring.say(&vec![0; most + 1]));
        assert!(ring.say(&vec![0; most]));
        let mut taken = most;
        while ring.say(&[0; 1_000]) {
            taken += 1_000;
        }
        assert!(taken as u64 <= FramesOut::unsent_most(64));
    }
}
