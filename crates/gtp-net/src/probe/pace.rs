//! The sender of a probe: a thread that gives each frame to the session when it is due.
//!
//! The runtime's timers are a millisecond apart, in which a fast probe sends a hundred frames. A
//! thread of its own wakes some 60 µs after the time that it asked for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gtp_alloc::{Rate, Span};
use gtp_sys::clock::{Clock, duration};

use super::said::{Sent, Word};
use super::schedule::{Due, Schedule};
use super::wall::Wall;
use crate::engine::FrameWriter;

/// What is sent, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time between two frames.
    pub interval: Span,
    /// Bytes of a frame.
    pub frame: usize,
    /// How long frames count.
    pub span: Span,
}

impl Pace {
    /// Frames of `frame` bytes, at this rate with all headers; `None` for no rate.
    pub fn of(rate: Rate, (frame, headers): (u16, u64), span: Duration) -> Option<Pace> {
        if rate == Rate::ZERO {
            return None;
        }
        let bits = (u64::from(frame) + headers) * 8;
        let interval = Span::from_secs_f64(bits as f64 / rate.as_f64()).max(Span::from_nanos(1));
        Some(Pace { interval, frame: frame.into(), span: gtp_sys::clock::span(span) })
    }

    /// Bytes that may wait in the session: five milliseconds' worth, and four frames.
    fn waiting_most(&self) -> usize {
        let frames = Span::from_millis(5).as_nanos() / self.interval.as_nanos();
        self.frame * (frames as usize).max(4)
    }
}

/// Sends until all is sent, `stop` is set or the stream breaks; shows in `show` how far it is.
/// Blocks.
///
/// # Errors
/// As the stream broke.
pub fn send(
    writer: &FrameWriter,
    pace: Pace,
    stop: &Arc<AtomicBool>,
    show: &dyn Fn(Sent),
) -> io::Result<Sent> {
    let (clock, wall) = (Clock::start(), Wall::now());
    let mut schedule = Schedule::new(clock.now(), pace.interval, pace.span);
    let mut frame = Vec::with_capacity(pace.frame);
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        match schedule.due(now) {
            Due::Over => break,
            Due::At(time) => {
                show(schedule.standing());
                std::thread::sleep(duration(time.since(now).min(LOOK)));
            }
            Due::Frame { counts } => {
                let word = match counts {
                    true => Word::Counted { sent_ns: wall.of(now) },
                    false => Word::WarmUp,
                };
                word.write(pace.frame, &mut frame);
                if writer.offer_at_once(&frame, pace.waiting_most())? {
                    schedule.sent();
                } else {
                    schedule.held_up(now);
                    show(schedule.standing());
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
    show(schedule.standing());
    Ok(schedule.standing())
}

/// How long the thread waits where the session has no room: a rate that is out of reach costs no
/// processor.
const PAUSE: Duration = Duration::from_micros(200);

/// How long the thread sleeps at most before it looks whether it is to stop.
const LOOK: Span = Span::from_millis(10);
