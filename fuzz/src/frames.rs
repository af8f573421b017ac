//! Units of a stream of frames, from a peer that says what it likes, and frames for one that asks
//! as it likes.

use std::collections::BTreeSet;

use gtp_alloc::Time;
use gtp_net::engine::{Ended, Frame, FramesIn, FramesOut, frame_most};
use gtp_proto::Repairs;

use crate::stream::supplied;

const WINDOW: u32 = 64;
const PAYLOAD: u16 = 9;

/// Steps from the bytes: units that come, that are given up, reads, and an end. Frames are told of
/// in their order, each once, and nothing is held beyond the window and what a frame may have.
pub fn stream_frames(bytes: &[u8]) {
    let mut heard = FramesIn::new(WINDOW);
    heard.begin(PAYLOAD);
    let mut spoken = FramesOut::new(WINDOW, Repairs::Once);
    let mut wanted = BTreeSet::new();
    let (mut asked_end, mut told) = (0, 0);
    let mut rest = bytes;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let argument = u64::from(step >> 3);
        let unit = wanted.iter().nth(argument as usize % WINDOW as usize).copied();
        let done = match step % 8 {
            0 => {
                if let Some(units) = heard.ask() {
                    assert!(units.start == asked_end && units.end > asked_end);
                    asked_end = units.end;
                    wanted.extend(units);
                }
                Ok(())
            }
            1..=3 => {
                let (content, tail) = rest.split_at(usize::from(step >> 3).min(rest.len()));
                rest = tail;
                // The core lets through only what is wanted, once.
                match unit.filter(|unit| wanted.remove(unit)) {
                    Some(unit) => heard.take(unit, content, Time::ZERO),
                    None => Ok(()),
                }
            }
            4 => match unit.filter(|unit| wanted.remove(unit)) {
                Some(unit) => heard.give_up(unit..unit + 1),
                None => Ok(()),
            },
            5 => heard.end(Ended { units: argument, frames: argument / 2 }),
            6 => {
                read(&mut heard, &mut told);
                Ok(())
            }
            _ => {
                asked(&mut spoken, argument, rest);
                Ok(())
            }
        };
        if done.is_err() {
            return; // The session ends.
        }
        assert!(wanted.len() <= WINDOW as usize);
        let beside = 2 * 64 * WINDOW as usize;
        let content = usize::from(PAYLOAD) * WINDOW as usize;
        assert!(heard.held() <= 2 * content + beside + frame_most(WINDOW));
    }
}

fn read(heard: &mut FramesIn, told: &mut u64) {
    while let Some(frame) = heard.read() {
        let (first, count) = match frame {
            Frame::Whole { number, .. } => (number, 1),
            Frame::Lost { first, count } => (first, count),
        };
        assert!(first == *told && count > 0);
        *told += count;
    }
}

/// A source that is asked for a unit, after its application has said something.
fn asked(spoken: &mut FramesOut, argument: u64, frame: &[u8]) {
    spoken.say(&frame[..frame.len().min(argument as usize)]);
    supplied(spoken, argument, PAYLOAD, WINDOW);
}
