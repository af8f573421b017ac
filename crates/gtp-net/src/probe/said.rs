//! The frames of a probe.
//!
//! A frame is one byte that says its kind, what belongs to that kind, and padding. What the peer
//! says is decoded here and believed by nobody: it is shown to people.

use minicbor::{Decode, Encode};

use super::tally::Seen;

/// What one frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Fills the path before anything counts.
    WarmUp,
    /// One of the frames that count.
    Counted {
        /// When it was given to its sender, in nanoseconds of the sender's wall clock.
        sent_ns: u64,
    },
    /// How far the end that says it is.
    Standing(Sent, Seen),
}

/// What an end has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Sent {
    /// Frames that count, and that left.
    #[n(0)]
    pub frames: u64,
    /// Frames that were due and did not leave, because the hosts or the path allow less.
    #[n(1)]
    pub held: u64,
    /// How long frames counted, in nanoseconds.
    #[n(2)]
    pub span_ns: u64,
    /// Whether it will send no more, and has seen all that it will see.
    #[n(3)]
    pub is_done: bool,
}

const WARM_UP: u8 = 0;
const COUNTED: u8 = 1;
const STANDING: u8 = 2;

impl Word {
    /// Writes the frame into `out` in place of what was there, padded to `length` bytes if it is
    /// shorter.
    pub fn write(&self, length: usize, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Word::WarmUp => out.push(WARM_UP),
            Word::Counted { sent_ns } => {
                out.push(COUNTED);
                out.extend_from_slice(&sent_ns.to_be_bytes());
            }
            Word::Standing(sent, seen) => {
                out.push(STANDING);
                // A vector takes all that is written.
                let _ = minicbor::encode((sent, seen), &mut *out);
            }
        }
        out.resize(out.len().max(length), 0);
    }

    /// Reads a frame; `None` if it is none of a probe's.
    pub fn read(frame: &[u8]) -> Option<Word> {
        let (&kind, rest) = frame.split_first()?;
        match kind {
            WARM_UP => Some(Word::WarmUp),
            COUNTED => {
                let (sent_ns, _padding) = rest.split_first_chunk()?;
                Some(Word::Counted { sent_ns: u64::from_be_bytes(*sent_ns) })
            }
            STANDING => {
                let (sent, seen) = minicbor::decode(rest).ok()?;
                Some(Word::Standing(sent, seen))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_comes_back_whatever_its_padding() {
        let sent = Sent { frames: u64::MAX, held: 3, span_ns: 5, is_done: true };
        let seen = Seen { least_ns: i64::MIN, frames: u64::MAX, ..Seen::default() };
        let words =
            [Word::WarmUp, Word::Counted { sent_ns: u64::MAX - 1 }, Word::Standing(sent, seen)];
        for word in words {
            for length in [0, 32, 1_175] {
                let mut frame = vec![7; 3];
                word.write(length, &mut frame);
                assert_eq!(Word::read(&frame), Some(word));
                assert!(frame.len() >= length && frame.len() <= 1_175);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            Word::read(&frame);
        }
    }
}
