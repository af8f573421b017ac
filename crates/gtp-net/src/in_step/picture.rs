//! The service by which a source of frames in step says what it sends.
//!
//! Its name has the source's part, the number of parts, and the bytes of a part, so that two ends
//! that do not mean the same picture find out before anything is sent. It knows no connection.

use gtp_proto::in_step::PARTS_MOST;

/// Which part of which picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    part: u16,
    parts: u16,
    part_bytes: u64,
}

impl Picture {
    /// Part `part` (from 0) of `parts`, each of `part_bytes` bytes; `None` if there is no such
    /// part.
    pub fn new(part: u16, parts: u16, part_bytes: u64) -> Option<Picture> {
        let is_sound = part < parts && parts <= PARTS_MOST && part_bytes > 0;
        is_sound.then_some(Picture { part, parts, part_bytes })
    }

    /// The part, from 0.
    pub fn part(&self) -> u16 {
        self.part
    }

    /// How many parts there are.
    pub fn parts(&self) -> u16 {
        self.parts
    }

    /// Bytes of a part.
    pub fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// The service's name: parts are counted from 1 there.
    pub fn service(&self) -> String {
        format!("{PREFIX}{},{},{}", self.part + 1, self.parts, self.part_bytes)
    }

    /// Whether the name is one of such a service, sound or not.
    pub fn is_meant(service: &[u8]) -> bool {
        service.starts_with(PREFIX.as_bytes())
    }

    /// Reads the name of a service; `None` if it is no sound one of frames in step.
    pub fn read(service: &[u8]) -> Option<Picture> {
        let text = std::str::from_utf8(service).ok()?.strip_prefix(PREFIX)?;
        let mut numbers = text.split(',').map(number);
        let mut next = || numbers.next().flatten();
        let (part, parts, part_bytes) = (next()?, next()?, next()?);
        if numbers.next().is_some() {
            return None;
        }
        let part = u16::try_from(part.checked_sub(1)?).ok()?;
        Picture::new(part, u16::try_from(parts).ok()?, part_bytes)
    }
}

/// A decimal number without leading zeros or signs.
fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|digit| digit.is_ascii_digit()) && !text.starts_with('0');
    is_plain.then(|| text.parse().ok()).flatten()
}

const PREFIX: &str = "frames:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_read_as_it_was_written() {
        let picture = Picture::new(1, 4, 2_000_000).expect("sound");
        assert_eq!(picture.service(), "frames:2,4,2000000");
        assert_eq!(Picture::read(b"frames:2,4,2000000"), Some(picture));
    }

    #[test]
    fn what_names_no_part_of_a_picture_is_refused() {
        for name in [
            "frames:",
            "frames:0,4,9",
            "frames:5,4,9",
            "frames:1,4",
            "frames:1,4,9,9",
            "frames:1,4,0",
            "frames:+1,4,9",
            "frames:01,4,9",
            "frames:1,65,9",
            "frames:1,70000,9",
            "probe:1,4,9",
        ] {
            assert_eq!(Picture::read(name.as_bytes()), None, "{name}");
        }
        assert!(Picture::is_meant(b"frames:x") && !Picture::is_meant(b"stream/send"));
    }
}
