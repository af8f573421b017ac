//! Units of a stream, and requests for them, from a peer that says what it likes.

use std::collections::BTreeSet;

use gtp_net::engine::{Heard, Spoken, Units};
use gtp_proto::Supplied;

const WINDOW: u32 = 8;
const PAYLOAD: u16 = 9;

/// Steps from the bytes: units that come, in any order and with any content, reads, and units
/// that are asked for. Nothing may be held beyond the window, whatever comes.
pub fn stream_units(bytes: &[u8]) {
    let mut heard = Heard::new(WINDOW);
    heard.begin(PAYLOAD);
    let mut spoken = Spoken::new(WINDOW);
    let mut wanted = BTreeSet::new();
    let mut asked_end = 0;
    let mut rest = bytes;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let argument = u64::from(step >> 2);
        match step % 4 {
            0 => {
                if let Some(units) = heard.ask() {
                    assert!(units.start == asked_end && units.end > asked_end);
                    asked_end = units.end;
                    wanted.extend(units);
                }
            }
            1 => {
                let (content, tail) = rest.split_at(usize::from(step >> 4).min(rest.len()));
                rest = tail;
                // The core lets through only what is wanted, once.
                let unit = wanted.iter().nth(argument as usize % WINDOW as usize).copied();
                if let Some(unit) = unit {
                    wanted.remove(&unit);
                    if heard.take(unit, content).is_err() {
                        return; // The session ends.
                    }
                }
            }
            2 => {
                let mut out = [0; 16];
                let room = argument as usize % out.len();
                let before = heard.ready();
                assert_eq!(heard.read(&mut out[..room]), before.min(room));
            }
            3 => asked(&mut spoken, argument),
            _ => unreachable!("a remainder of four"),
        }
        assert!(wanted.len() <= WINDOW as usize);
        assert!(heard.ready() <= usize::from(PAYLOAD) * WINDOW as usize);
    }
}

/// A source that is asked for a unit, after its application has said something.
fn asked(spoken: &mut Spoken, argument: u64) {
    let said = spoken.say(&[7; 5][..argument as usize % 6]);
    assert!(said <= 5);
    if argument == 63 {
        spoken.finish();
    }
    supplied(spoken, argument, PAYLOAD, WINDOW);
}

/// What must hold of any unit that a source is asked for, in streams of both kinds.
pub fn supplied(spoken: &mut impl Units, unit: u64, payload: u16, window: u32) {
    spoken.forget(unit);
    let mut out = Vec::new();
    match spoken.supply(unit, payload) {
        Supplied::Ready(len) => {
            spoken.write(unit, &mut out);
            assert_eq!(out.len(), usize::from(len));
            assert!(len <= payload && spoken.kept() <= window as usize);
        }
        Supplied::NotYet | Supplied::NoRoom | Supplied::NoSuchUnit => {}
    }
}
