//! The rings of a stream, of whatever it carries: bytes, or frames.
//!
//! Sessions know only units; what is in them is between the two ends of a pipe. So a session holds
//! one of these, and only whoever made the pipe knows which.

use std::ops::Range;

use gtp_alloc::Time;
use gtp_proto::{Repairs, Supplied};

use super::frames_in::FramesIn;
use super::frames_out::{Ended, FramesOut};
use super::heard::Heard;
use super::spoken::Spoken;
use super::units::Units as _;
use crate::messages::Delivery;

/// How often what is lost of such a stream is asked for again.
pub(in crate::engine) fn repairs(delivery: Option<Delivery>) -> Repairs {
    match delivery {
        None => Repairs::Always,
        Some(Delivery::FramesOnce) => Repairs::Once,
        Some(Delivery::Frames) => Repairs::Never,
    }
}

/// At a source.
#[derive(Debug)]
pub(in crate::engine) enum OutRing {
    Bytes(Spoken),
    Frames(FramesOut),
}

impl OutRing {
    pub fn new(window: u32, delivery: Option<Delivery>) -> OutRing {
        match delivery {
            None => OutRing::Bytes(Spoken::new(window)),
            Some(_) => OutRing::Frames(FramesOut::new(window, repairs(delivery))),
        }
    }

    pub fn forget(&mut self, asked_end: u64) {
        match self {
            OutRing::Bytes(ring) => ring.forget(asked_end),
            OutRing::Frames(ring) => ring.forget(asked_end),
        }
    }

    pub fn supply(&mut self, unit: u64, payload: u16) -> Supplied {
        match self {
            OutRing::Bytes(ring) => ring.supply(unit, payload),
            OutRing::Frames(ring) => ring.supply(unit, payload),
        }
    }

    pub fn write(&self, unit: u64, out: &mut Vec<u8>) {
        match self {
            OutRing::Bytes(ring) => ring.write(unit, out),
            OutRing::Frames(ring) => ring.write(unit, out),
        }
    }

    /// Bytes are taken as far as there is room; no frame is.
    pub fn say(&mut self, bytes: &[u8]) -> usize {
        match self {
            OutRing::Bytes(ring) => ring.say(bytes),
            OutRing::Frames(_) => 0,
        }
    }

    pub fn finish(&mut self) {
        match self {
            OutRing::Bytes(ring) => ring.finish(),
            OutRing::Frames(ring) => ring.finish(),
        }
    }

    pub fn is_finished(&self) -> bool {
        match self {
            OutRing::Bytes(ring) => ring.is_finished(),
            OutRing::Frames(ring) => ring.is_finished(),
        }
    }

    pub fn total(&self) -> u64 {
        match self {
            OutRing::Bytes(ring) => ring.total(),
            OutRing::Frames(ring) => ring.total(),
        }
    }

    /// Bytes that wait to be sent for the first time.
    pub fn unsent(&self) -> usize {
        match self {
            OutRing::Bytes(ring) => ring.unsent(),
            OutRing::Frames(ring) => ring.unsent(),
        }
    }

    /// The first unit that they do not lie in.
    pub fn next(&self) -> u64 {
        match self {
            OutRing::Bytes(ring) => ring.next(),
            OutRing::Frames(ring) => ring.next(),
        }
    }

    pub fn has_much_room(&self) -> bool {
        match self {
            OutRing::Bytes(ring) => ring.has_much_room(),
            OutRing::Frames(ring) => ring.has_much_room(),
        }
    }

    /// Of frames: what there is in all, once all of it is in units. The end of a stream of bytes
    /// is in its last unit.
    pub fn ended(&self) -> Option<Ended> {
        match self {
            OutRing::Bytes(_) => None,
            OutRing::Frames(ring) => ring.ended(),
        }
    }
}

/// At a sink.
#[derive(Debug)]
pub(in crate::engine) enum InRing {
    Bytes(Heard),
    Frames(FramesIn),
}

impl InRing {
    pub fn new(window: u32, delivery: Option<Delivery>) -> InRing {
        match delivery {
            None => InRing::Bytes(Heard::new(window)),
            Some(_) => InRing::Frames(FramesIn::new(window)),
        }
    }

    pub fn begin(&mut self, payload: u16) {
        match self {
            InRing::Bytes(ring) => ring.begin(payload),
            InRing::Frames(ring) => ring.begin(payload),
        }
    }

    pub fn take(&mut self, unit: u64, payload: &[u8], at: Time) -> Result<(), &'static str> {
        match self {
            InRing::Bytes(ring) => ring.take(unit, payload),
            InRing::Frames(ring) => ring.take(unit, payload, at),
        }
    }

    /// Nothing of a stream of bytes is ever given up.
    pub fn give_up(&mut self, units: Range<u64>) -> Result<(), &'static str> {
        match self {
            InRing::Bytes(_) => Err("a unit of a stream of bytes was given up"),
            InRing::Frames(ring) => ring.give_up(units),
        }
    }

    /// The peer says how much there is.
    pub fn end(&mut self, ended: Ended) -> Result<(), &'static str> {
        match self {
            InRing::Bytes(_) => Err("a stream of bytes ends with its last unit"),
            InRing::Frames(ring) => ring.end(ended),
        }
    }

    pub fn ask(&mut self) -> Option<Range<u64>> {
        match self {
            InRing::Bytes(ring) => ring.ask(),
            InRing::Frames(ring) => ring.ask(),
        }
    }

    pub fn is_ready(&self) -> bool {
        match self {
            InRing::Bytes(ring) => ring.ready() > 0,
            InRing::Frames(ring) => ring.is_ready(),
        }
    }

    pub fn is_whole(&self) -> bool {
        match self {
            InRing::Bytes(ring) => ring.is_whole(),
            InRing::Frames(ring) => ring.is_whole(),
        }
    }

    pub fn total(&self) -> u64 {
        match self {
            InRing::Bytes(ring) => ring.total(),
            InRing::Frames(ring) => ring.total(),
        }
    }

    pub fn drop_unread(&mut self) {
        match self {
            InRing::Bytes(ring) => ring.drop_unread(),
            InRing::Frames(ring) => ring.drop_unread(),
        }
    }
}
