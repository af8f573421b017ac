//! One source of a group, at the sink: its parts and its clock.
//!
//! A task for each source reads what it sends and passes it on, with times by the sink's clock. It
//! decides nothing about frames.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use gtp_alloc::{Span, Time};
use gtp_proto::in_step::{Begun, PART_HEAD, Part, Word};
use gtp_sys::clock::Clock;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::pulse::Pulse;
use crate::stream::{Breaking, Frame, FrameReader, FrameStream, FrameWriter, Unended};

/// What a source's task is told at its start.
pub struct Attendance {
    /// The call's number, by which news of an earlier call of the same place are known.
    pub call: u64,
    /// Bytes of a part.
    pub part_bytes: u64,
    pub clock: Clock,
    pub begun: watch::Receiver<Begun>,
    pub news: mpsc::Sender<News>,
}

/// News of one source.
pub struct News {
    /// The call.
    pub call: u64,
    pub told: Told,
}

/// What a source's task tells.
pub enum Told {
    /// The source's clock is known, and the round trip to it.
    Known(Span),
    /// A part, and the round trip as it is known by then.
    Part(Part<Bytes>, Option<Span>),
    /// So many frames of the stream were lost on the way.
    Lost(u64),
    /// It has said its end, or why it broke.
    Ended(Result<(), String>),
}

/// Time for the two ends to part.
const PARTING_SPAN: Duration = Duration::from_secs(5);

/// Attends to a source until its end.
pub async fn attend(stream: FrameStream, seat: Attendance) {
    let FrameStream { reader, writer, line } = stream;
    // Whoever drops this task in the middle has said no end.
    let breaking = Breaking::new(&line);
    let mut writer = Unended::new(writer);
    let ended = match writer.get_mut() {
        Some(writer) => hear(&reader, writer, &seat).await,
        None => Ok(()),
    };
    let is_whole = ended.is_ok();
    let why = ended.map_err(|error| line.why().map_or_else(|| error.to_string(), str::to_owned));
    let told = pass_on(&seat, Told::Ended(why)).await;
    if is_whole && told.is_ok() {
        writer.finish();
        breaking.keep();
        // It takes no longer if the peer is there.
        let _ = timeout(PARTING_SPAN, line.over()).await;
    }
}

/// Reads to the end of the stream, and says words about the clock.
async fn hear(reader: &FrameReader, writer: &FrameWriter, seat: &Attendance) -> io::Result<()> {
    let (mut pulse, mut ticks) = (Pulse::new(seat.clock), Pulse::ticks());
    let mut is_told = false;
    loop {
        let frame = tokio::select! {
            frame = reader.read() => frame?,
            _ = ticks.tick() => {
                let begun = *seat.begun.borrow();
                pulse.tell(writer, begun)?;
                continue;
            }
        };
        let told = match frame {
            None => return Ok(()),
            Some(Frame::Lost { count, .. }) => Some(Told::Lost(count)),
            Some(Frame::Whole { bytes, came, .. }) => {
                understand(bytes, came.at, &mut pulse, seat.part_bytes)?
            }
        };
        if let Some(told) = told {
            pass_on(seat, told).await?;
        }
        if let Some(round_trip) = pulse.peer().round_trip().filter(|_| pulse.is_known())
            && !std::mem::replace(&mut is_told, true)
        {
            pass_on(seat, Told::Known(round_trip)).await?;
        }
    }
}

async fn pass_on(seat: &Attendance, told: Told) -> io::Result<()> {
    let sent = seat.news.send(News { call: seat.call, told }).await;
    sent.map_err(|_| io::Error::other("nobody gathers frames any more"))
}

/// What a frame of the stream says, as far as the group is concerned.
fn understand(
    bytes: Vec<u8>,
    came: Time,
    pulse: &mut Pulse,
    part_bytes: u64,
) -> io::Result<Option<Told>> {
    let broken = |text| io::Error::new(io::ErrorKind::InvalidData, text);
    let word = Word::read(&bytes);
    match word.map_err(|_| broken("the source sent a frame that is none of a group's"))? {
        None | Some(Word::Filler { .. }) => Ok(None),
        Some(Word::Clock { said, heard, .. }) => {
            pulse.hear(came, said, heard);
            Ok(None)
        }
        Some(Word::Part { content, .. }) if content.len() as u64 > part_bytes => {
            Err(broken("the source sent a part that is longer than was agreed"))
        }
        Some(Word::Part { number, release, .. }) => {
            // A time by a clock that is not known is none.
            let release = release.and_then(|at| pulse.peer().own(at));
            let body = Bytes::from(bytes).slice(PART_HEAD..);
            let part = Part { number, release, came, body };
            Ok(Some(Told::Part(part, pulse.peer().round_trip())))
        }
    }
}
