//! Optional fields behind the fixed part of a control body.
//!
//! Feedback and status have a fixed layout that ends with the weight. What later revisions add
//! follows as fields with a tag, a length and a value, in the order of their tags. A reader skips
//! each tag that it does not know, and the end of each value that is longer than it expects, so a
//! newer peer can say more without being misunderstood. A writer adds fields only for a peer that
//! reads them ([`Revision::Second`]). This module must not know what a value means, only tags and
//! lengths.

use alloc::vec::Vec;

use super::{Reader, WireError};
use crate::ecn::EcnCounts;

/// The revision of the messages that both ends of a session use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// The first revision, in which control bodies end with the weight.
    First = 1,
    /// The second revision, in which optional fields may follow the weight.
    Second = 2,
    /// The third revision, in which an initiator may ask on the control channel whether its
    /// datagrams come.
    Third = 3,
    /// The fourth revision, in which an initiator may have the control connection carry the
    /// session's datagrams.
    Fourth = 4,
    /// The fifth revision, in which whole trees can be surveyed and changed step by step, and the
    /// source of a put may tell the values of blocks.
    Fifth = 5,
    /// The sixth revision, in which the control connection may carry the datagrams of streams too.
    #[default]
    Sixth = 6,
}

impl Revision {
    /// The newest revision that this implementation knows.
    pub const NEWEST: Revision = Revision::Sixth;

    /// Returns the revision to use with a peer whose newest one has this number: the older of the
    /// two. Returns `None` if the peer's is older than all that are known.
    pub const fn agreed(theirs: u32) -> Option<Revision> {
        match theirs {
            0 => None,
            1 => Some(Revision::First),
            2 => Some(Revision::Second),
            3 => Some(Revision::Third),
            4 => Some(Revision::Fourth),
            5 => Some(Revision::Fifth),
            6.. => Some(Revision::Sixth),
        }
    }

    /// Returns the number by which messages name this revision.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// The tag of the greatest queueing delay of an interval, in microseconds.
pub(super) const DELAY_MOST: u8 = 1;
/// The tag of the numbers of packets that came as ECT(0), as ECT(1) and as CE.
pub(super) const ECN_COUNTS: u8 = 2;

/// The tag that says that a router's link, which the sender's host asks, limits the session. It has
/// no value.
pub(super) const ROUTER_BINDS: u8 = 3;

/// Appends the counts of ECN bits as a field.
pub(super) fn put_counts(out: &mut Vec<u8>, counts: &EcnCounts) {
    let EcnCounts { ect0, ect1, ce } = *counts;
    let mut value = [0; 12];
    for (place, count) in value.chunks_exact_mut(4).zip([ect0, ect1, ce]) {
        place.copy_from_slice(&count.to_be_bytes());
    }
    put(out, ECN_COUNTS, &value);
}

/// Appends a field of at most 255 bytes.
pub(super) fn put(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    debug_assert!(value.len() <= usize::from(u8::MAX), "a length of one byte");
    out.push(tag);
    out.push(value.len() as u8);
    out.extend_from_slice(value);
}

/// The fields of a body, one after the other.
pub(super) struct Fields<'r, 'a> {
    reader: &'r mut Reader<'a>,
    least: u8,
}

impl<'r, 'a> Fields<'r, 'a> {
    pub fn new(reader: &'r mut Reader<'a>) -> Fields<'r, 'a> {
        Fields { reader, least: 0 }
    }

    /// Returns the next field's tag and value, or `None` after the last.
    ///
    /// # Errors
    /// If the field is cut short, or its tag does not follow the one before.
    pub fn next(&mut self) -> Result<Option<(u8, Reader<'a>)>, WireError> {
        if self.reader.0.is_empty() {
            return Ok(None);
        }
        let (tag, len) = (self.reader.u8()?, usize::from(self.reader.u8()?));
        if tag <= self.least {
            return Err(WireError::BadField);
        }
        self.least = tag;
        let (value, rest) = self.reader.0.split_at_checked(len).ok_or(WireError::Truncated)?;
        self.reader.0 = rest;
        Ok(Some((tag, Reader(value))))
    }
}
