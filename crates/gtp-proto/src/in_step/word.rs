//! What the two ends of a connection of frames in step say: each word is one frame of the stream.
//!
//! A part of a frame has a head and then its content. Words about clocks are repeated by each end,
//! since any of them may be lost; a filler says nothing. Numbers are unsigned and big-endian.

use alloc::vec::Vec;

use gtp_alloc::{Span, Time};

use super::Tempo;

/// Bytes of a part before its content.
pub const PART_HEAD: usize = 17;

/// Bytes of a word about clocks.
const CLOCK_BYTES: usize = 42;

const PART: u8 = 0;
const CLOCK: u8 = 1;
const FILLER: u8 = 2;

/// A frame of the stream that is too short for its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What one frame of the stream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// A part of a frame.
    Part {
        /// The frame's number.
        number: u64,
        /// When it shall be released, in nanoseconds of the source's clock; none: once it is whole.
        release: Option<u64>,
        /// What it shows.
        content: &'a [u8],
    },
    /// What the clocks show.
    Clock {
        /// The speaker's clock now, in nanoseconds.
        said: u64,
        /// What the hearer last said that its clock showed, and when that was heard here.
        heard: Option<(u64, u64)>,
        /// The group has begun, with this tempo by the speaker's clock if the speaker keeps the
        /// time. Only sinks say so.
        begun: Begun,
    },
    /// Nothing: it fills the path before frames are due. It is as long as a part with this content.
    Filler {
        /// Bytes of that content.
        bytes: usize,
    },
}

/// Whether a group has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Not yet.
    No,
    /// It has; the source keeps the time.
    Free,
    /// It has, and the sink keeps the time.
    Led(Tempo),
}

impl<'a> Word<'a> {
    /// Reads a frame of the stream; `None` for a kind that is not known here.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(frame: &'a [u8]) -> Result<Option<Word<'a>>, Malformed> {
        match frame.first() {
            Some(&PART) => {
                let (head, content) = frame.split_at_checked(PART_HEAD).ok_or(Malformed)?;
                let release = Some(number(head, 9)).filter(|&at| at > 0);
                Ok(Some(Word::Part { number: number(head, 1), release, content }))
            }
            Some(&CLOCK) => {
                let frame = frame.get(..CLOCK_BYTES).ok_or(Malformed)?;
                let heard = Some((number(frame, 9), number(frame, 17))).filter(|h| h.1 > 0);
                let (at, every) = (number(frame, 26), number(frame, 34));
                let begun = match (frame[25], every) {
                    (0, _) => Begun::No,
                    (_, 0) => Begun::Free,
                    _ => Begun::Led(Tempo::new(Time::from_nanos(at), Span::from_nanos(every))),
                };
                Ok(Some(Word::Clock { said: number(frame, 1), heard, begun }))
            }
            Some(&FILLER) => {
                let bytes = frame.len().checked_sub(PART_HEAD).ok_or(Malformed)?;
                Ok(Some(Word::Filler { bytes }))
            }
            Some(_) => Ok(None),
            None => Err(Malformed),
        }
    }

    /// Adds the word to `out`, which is empty.
    pub fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Word::Part { number, release, content } => {
                out.push(PART);
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&release.unwrap_or(0).to_be_bytes());
                out.extend_from_slice(content);
            }
            Word::Clock { said, heard, begun } => {
                let (theirs, then) = heard.unwrap_or((0, 0));
                let (flag, at, every) = match begun {
                    Begun::No => (0, 0, 0),
                    Begun::Free => (1, 0, 0),
                    Begun::Led(tempo) => (1, tempo.at().as_nanos(), tempo.every().as_nanos()),
                };
                out.push(CLOCK);
                for number in [said, theirs, then] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
                out.push(flag);
                for number in [at, every] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
            }
            Word::Filler { bytes } => {
                out.push(FILLER);
                out.resize(PART_HEAD + bytes, 0);
            }
        }
    }
}

/// The number at this place, of a slice that is long enough.
fn number(bytes: &[u8], from: usize) -> u64 {
    bytes[from..from + 8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn written(word: Word<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        word.write(&mut out);
        out
    }

    #[test]
    fn words_are_read_as_they_were_written() {
        let tempo = Tempo::new(Time::from_nanos(77), Span::from_millis(50));
        for word in [
            Word::Part { number: 3, release: None, content: b"" },
            Word::Part { number: u64::MAX, release: Some(9), content: b"picture" },
            Word::Filler { bytes: 0 },
            Word::Filler { bytes: 9 },
            Word::Clock { said: 5, heard: None, begun: Begun::No },
            Word::Clock { said: 5, heard: Some((0, 8)), begun: Begun::Free },
            Word::Clock { said: 5, heard: Some((1, 8)), begun: Begun::Led(tempo) },
        ] {
            assert_eq!(Word::read(&written(word)), Ok(Some(word)));
        }
    }

    #[test]
    fn the_words_on_the_wire_are_these() {
        let part = Word::Part { number: 0x0102, release: Some(0x03), content: b"x" };
        let head = [0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3];
        assert_eq!(written(part), [&head[..], b"x"].concat());
        let clock = Word::Clock { said: 1, heard: Some((2, 3)), begun: Begun::Free };
        let mut bytes = vec![1];
        for number in [1_u64, 2, 3] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.push(1);
        bytes.extend([0; 16]);
        assert_eq!(written(clock), bytes);
    }

    #[test]
    fn a_short_word_is_refused_and_one_of_an_unknown_kind_passed_over() {
        assert_eq!(Word::read(&[]), Err(Malformed));
        assert_eq!(Word::read(&[PART; PART_HEAD - 1]), Err(Malformed));
        assert_eq!(Word::read(&[FILLER; PART_HEAD - 1]), Err(Malformed));
        assert_eq!(Word::read(&[CLOCK; CLOCK_BYTES - 1]), Err(Malformed));
        assert_eq!(Word::read(&[3]), Ok(None));
        assert!(Word::read(&[CLOCK; CLOCK_BYTES + 9]).is_ok_and(|word| word.is_some()));
    }
}
